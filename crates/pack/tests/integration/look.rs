//! `info` and `preview`, on cubes with known numbers and colours.

use std::fs::File;
use std::io::BufReader;
use std::path::{Path, PathBuf};

use hsipack_format::ErrorKind;
use hsipack_pack::convert::{ChunkShape, Scale};
use hsipack_pack::info::{CubeReport, DatasetReport};
use hsipack_pack::preview::{PreviewOptions, preview};
use hsipack_pack::target::Target;
use serde_json::json;

use super::common::{fixture, shared};
use super::packing::{five_bands, mask, pack, varied, with_attributes, write_envi, write_mask};

const NODATA: [u8; 3] = [206, 190, 220];
/// The column where the first picture of a page begins.
const LEFT_COLUMN: usize = 28;
const TOP_ROW: usize = 86;

fn report(path: &Path, quick: bool) -> CubeReport {
    match Target::open(&path.display().to_string(), None).unwrap() {
        Target::Cube(input, source) => CubeReport::new(&input, &*source, quick).unwrap(),
        Target::Dataset(_) => panic!("{} is a cube", path.display()),
    }
}

fn options(path: &Path, output: PathBuf) -> PreviewOptions {
    PreviewOptions {
        mask_file: None,
        path: path.display().to_string(),
        output,
        sample: None,
        mask: None,
        axes: None,
        force: false,
    }
}

struct Picture {
    width: usize,
    height: usize,
    rgb: Vec<u8>,
}

impl Picture {
    fn read(path: &Path) -> Self {
        let decoder = png::Decoder::new(BufReader::new(File::open(path).unwrap()));
        let mut reader = decoder.read_info().unwrap();
        let mut rgb = vec![0; reader.output_buffer_size().unwrap()];
        let info = reader.next_frame(&mut rgb).unwrap();
        assert_eq!(info.color_type, png::ColorType::Rgb);
        Self { width: info.width as usize, height: info.height as usize, rgb }
    }

    fn at(&self, x: usize, y: usize) -> [u8; 3] {
        let start = (y * self.width + x) * 3;
        self.rgb[start..start + 3].try_into().unwrap()
    }

    fn has(&self, colour: [u8; 3]) -> bool {
        self.rgb.chunks_exact(3).any(|pixel| pixel == colour)
    }
}

#[test]
fn info_counts_what_is_missing_and_applies_the_scaling() {
    let folder = tempfile::tempdir().unwrap();
    let values = [1.0, 2.0, f32::NAN, -9999.0, f32::INFINITY, 6.0, -9999.0, 8.0];
    let more = "data ignore value = -9999\nreflectance scale factor = 2\n";
    let path = write_envi(folder.path(), "a", [2, 2, 2], &values, more);
    let report = report(&path, false);
    let found = report.values.unwrap();
    assert_eq!((found.min, found.max), (Some(0.5), Some(4.0)));
    assert_eq!((found.nan, found.ignored, found.inf), (1, 2, 1));
    assert_eq!(report.scaling.unwrap().divide, 2.0);
    assert_eq!((report.shape, report.dtype, report.bytes), ([2, 2, 2], "float32", 32));
    assert!(self::report(&path, true).values.is_none());
}

#[test]
fn info_knows_the_bands() {
    let folder = tempfile::tempdir().unwrap();
    let path = write_envi(folder.path(), "a", [3, 4, 5], &varied(60), &five_bands());
    let report = report(&path, true);
    let bands = report.wavelengths.unwrap();
    assert_eq!((bands.count, bands.min_nm, bands.max_nm), (5, 460.25, 1200.1));
    assert_eq!((bands.order, bands.fwhm_nm), ("ascending", Some([5.0, 7.25])));
    assert_eq!(report.bad_bands, Some(vec![2]));
}

#[test]
fn info_of_a_container_lists_its_cubes() {
    let path = fixture("hdf5/filters.h5");
    let error = Target::open(&path.display().to_string(), None).err().unwrap();
    assert_eq!(error.kind(), ErrorKind::Ambiguous);
    assert!(error.to_string().contains("/wide_chunk (7x9x12 uint16)"), "{error}");
    if let Some(path) = shared("derived/generic.h5") {
        let error = Target::open(&path.display().to_string(), None).err().unwrap();
        assert_eq!(error.kind(), ErrorKind::Ambiguous);
        assert!(error.to_string().contains("/scan/cube_bsq"), "{error}");
    }
}

#[test]
fn info_of_a_dataset_tells_what_was_packed() {
    let folder = tempfile::tempdir().unwrap();
    let inputs: Vec<PathBuf> = ["a", "b", "c"]
        .iter()
        .map(|name| {
            write_mask(folder.path(), &format!("{name}_m"), 4, 6, &[2; 24]);
            write_envi(folder.path(), name, [4, 6, 5], &varied(120), &five_bands())
        })
        .collect();
    let table = folder.path().join("t.csv");
    std::fs::write(
        &table,
        "name,split,group,label,age\na,train,p1,x,3\nb,train,p1,y,4\nc,test,p2,x,5\n",
    )
    .unwrap();
    let dataset = pack(&inputs, &folder.path().join("d.hsipack"), |options| {
        options.table = vec![table.clone()];
        options.mask = vec![mask("organs", "{dir}/{stem}_m.npy")];
        options.values.scale = Scale::Factor(2.0);
    });
    let report = DatasetReport::new(&dataset).unwrap();
    assert_eq!((report.samples, report.stacks.len(), report.appends), (3, 1, 0));
    assert_eq!((report.splits["train"], report.splits["test"]), (2, 1));
    assert_eq!((report.groups["p1"], report.labels["x"]), (2, 2));
    assert_eq!(report.columns, ["age"]);
    let stack = &report.stacks[0];
    assert_eq!((stack.shape, stack.dtype, stack.scale_factor), ([4, 6, 5], "float16", 2.0));
    assert_eq!((stack.masks[0].name.as_str(), stack.masks[0].dtype), ("organs", "uint8"));
    assert_eq!((stack.bad_bands.clone(), stack.uncompressed_bytes), (Some(vec![2]), 3 * 240));
    let found = stack.values.unwrap();
    assert_eq!((found.min, found.max, found.nan), (Some(-1.5), Some(60000.0), 3));
    let worst = stack.quantisation.unwrap();
    assert!(worst.max_rel > 0.0 && worst.mean_rel <= worst.max_rel, "{worst:?}");
    let attributes = dataset.stacks()[0].image.meta().attributes["hsipack"].clone();
    for (key, band, unit, greatest) in [
        ("max_rel", worst.band, 1.0, worst.max_rel),
        ("max_abs", worst.max_abs_band, 2.0, worst.max_abs),
    ] {
        let all = attributes["quantisation"][key].as_array().unwrap();
        let all: Vec<f64> = all.iter().map(|error| unit * error.as_f64().unwrap()).collect();
        assert_eq!((all[band], all.iter().copied().fold(0.0, f64::max)), (greatest, greatest));
    }
    let stored: u64 = stack.stored_bytes + stack.masks[0].stored_bytes;
    assert_eq!(report.stored_bytes, stored);
    assert_eq!(report.uncompressed_bytes, 3 * (240 + 24));
    let image = format!("{}/image", stack.name);
    let report =
        DatasetReport::new(&with_attributes(&dataset, &image, &[("add_offset", json!(0.5))]))
            .unwrap();
    let (stack, found) = (&report.stacks[0], report.stacks[0].values.as_ref().unwrap());
    assert_eq!((stack.add_offset, found.min, found.max), (0.5, Some(-1.0), Some(60000.5)));
}

#[test]
fn colours_are_those_of_the_cube() {
    let folder = tempfile::tempdir().unwrap();
    // Blue, green, red: a red, a green, a blue pixel, and one without data.
    let values = [0.0, 0.0, 9.0, 0.0, 5.0, 0.0, 2.0, 0.0, 0.0, 1.0, f32::NAN, 1.0];
    let more = "wavelength units = nm\nwavelength = {460, 550, 640}\n";
    let path = write_envi(folder.path(), "a", [2, 2, 3], &values, more);
    let output = folder.path().join("a.png");
    let drawn = preview(&options(&path, output.clone())).unwrap();
    assert!(drawn.captions[0].contains("640, 550, 460 nm (bands 2, 1, 0)"), "{:?}", drawn.captions);
    let picture = Picture::read(&output);
    let pixel = |row: usize, column: usize| {
        picture.at(LEFT_COLUMN + 120 + 240 * column, TOP_ROW + 120 + 240 * row)
    };
    assert_eq!(pixel(0, 0), [255, 0, 0]);
    assert_eq!(pixel(0, 1), [0, 255, 0]);
    assert_eq!(pixel(1, 0), [0, 0, 255]);
    assert_eq!(pixel(1, 1), NODATA);
}

#[test]
fn masks_are_laid_over_the_second_picture() {
    let folder = tempfile::tempdir().unwrap();
    let path = write_envi(folder.path(), "a", [2, 2, 1], &[0.0, 0.0, 1.0, 1.0], "");
    let ids = write_mask(folder.path(), "m", 2, 2, &[0, 1, 2, 0]);
    let output = folder.path().join("a.png");
    let mut options = options(&path, output.clone());
    options.mask_file = Some(ids.display().to_string());
    preview(&options).unwrap();
    let picture = Picture::read(&output);
    let pixel = |picture_number: usize, row: usize, column: usize| {
        let left_column = LEFT_COLUMN + picture_number * (480 + 16);
        picture.at(left_column + 120 + 240 * column, TOP_ROW + 120 + 240 * row)
    };
    assert_eq!(pixel(0, 0, 1), [0, 0, 0]);
    // 0 is not declared as the background.
    assert_eq!(pixel(1, 0, 0), [60, 60, 60]);
    assert_eq!(pixel(1, 0, 1), [0, 57, 89]);
    assert_eq!(pixel(1, 1, 0), [234, 175, 128]);
    assert_eq!(pixel(1, 1, 1), [188, 188, 188]);

    let wrong = write_mask(folder.path(), "wrong", 2, 3, &[0; 6]);
    options.mask_file = Some(wrong.display().to_string());
    let error = preview(&options).unwrap_err().to_string();
    assert!(error.contains("wrong.npy: the mask has 2x3 pixels, but the cube has 2x2"), "{error}");
}

#[test]
fn odd_cubes_are_drawn() {
    let folder = tempfile::tempdir().unwrap();
    let five = five_bands();
    let falling = "wavelength units = nm\nwavelength = {900, 800, 700}\n";
    let cases: [(&str, [usize; 3], Vec<f32>, &str); 9] = [
        ("nan", [3, 3, 5], vec![f32::NAN; 45], &five),
        ("equal", [3, 3, 5], vec![7.0; 45], &five),
        ("zero", [3, 3, 5], vec![0.0; 45], ""),
        ("pixel", [1, 1, 5], vec![1.0, 2.0, 3.0, 4.0, 5.0], &five),
        ("one", [1, 1, 1], vec![1e-30], ""),
        ("gray", [4, 4, 1], varied(16), ""),
        ("two", [4, 4, 2], varied(32), ""),
        ("falling", [4, 4, 3], varied(48), falling),
        ("line", [1, 3000, 2], varied(6000), ""),
    ];
    for (name, shape, values, more) in cases {
        let path = write_envi(folder.path(), name, shape, &values, more);
        let output = folder.path().join(format!("{name}.png"));
        preview(&options(&path, output.clone())).unwrap_or_else(|error| panic!("{error}"));
        let picture = Picture::read(&output);
        assert!(picture.width >= 900 && picture.height >= 400, "{name}");
        assert_eq!(picture.has(NODATA), values.iter().any(|value| value.is_nan()), "{name}");
        report(&path, false);
    }
    let nothing = report(&folder.path().join("nan.hdr"), false).values.unwrap();
    assert_eq!((nothing.min, nothing.nan), (None, 45));
}

#[test]
fn datasets_are_drawn_as_sheets_and_by_sample() {
    let folder = tempfile::tempdir().unwrap();
    let mut inputs: Vec<PathBuf> = Vec::new();
    for number in 0..15 {
        let name = format!("cube{number}");
        let shade: Vec<f32> = (0..40).map(|i| ((i + number) % 40) as f32).collect();
        write_mask(folder.path(), &format!("{name}_m"), 2, 4, &[0, 1, 1, 0, 0, 0, 0, 1]);
        inputs.push(write_envi(folder.path(), &name, [2, 4, 5], &shade, &five_bands()));
    }
    let dataset = pack(&inputs, &folder.path().join("d.hsipack"), |options| {
        options.layout.chunk = Some(ChunkShape { rows: 1, columns: Some(3) });
        options.mask = vec![mask("organs", "{dir}/{stem}_m.npy")];
    });
    let output = folder.path().join("s.png");
    let mut options = options(dataset.path(), output.clone());
    let drawn = preview(&options).unwrap();
    assert_eq!(
        (drawn.cubes.len(), drawn.cubes[0].as_str(), drawn.cubes[11].as_str()),
        (12, "cube0", "cube14")
    );
    assert!(Picture::read(&output).has([0, 114, 178]), "the line of the stack");

    // The picture from the file, with the mask, is the same as from the dataset.
    options.sample = Some("cube3".into());
    preview(&options).unwrap();
    let packed = Picture::read(&output);
    let mut direct = self::options(&inputs[3], folder.path().join("direct.png"));
    direct.mask_file = Some(folder.path().join("cube3_m.npy").display().to_string());
    preview(&direct).unwrap();
    let direct = Picture::read(&direct.output);
    for (x, y) in [
        (LEFT_COLUMN, TOP_ROW),
        (LEFT_COLUMN + 479, TOP_ROW + 239),
        (LEFT_COLUMN + 496 + 200, TOP_ROW + 10),
    ] {
        assert_eq!(packed.at(x, y), direct.at(x, y), "{x} {y}");
    }
    assert_ne!(
        packed.at(LEFT_COLUMN + 200, TOP_ROW + 10),
        packed.at(LEFT_COLUMN + 496 + 200, TOP_ROW + 10),
        "tinted"
    );

    options.mask = Some("bones".into());
    assert!(preview(&options).unwrap_err().to_string().contains("organs"));
}

#[test]
fn mistakes_are_named() {
    let folder = tempfile::tempdir().unwrap();
    let path = write_envi(folder.path(), "a", [2, 2, 1], &[0.0; 4], "");
    let check = |options: &PreviewOptions, words: &str| {
        let error = preview(options).unwrap_err();
        assert!(error.to_string().contains(words) && error.remedy().is_some(), "{error}");
    };
    let good = options(&path, folder.path().join("a.png"));
    check(&PreviewOptions { output: "a.jpg".into(), ..good.clone() }, "PNG");
    check(&PreviewOptions { sample: Some("0".into()), ..good.clone() }, "leave out sample");
    check(&PreviewOptions { mask: Some("gt".into()), ..good.clone() }, "with mask_file");
    check(&options(folder.path(), folder.path().join("a.png")), "this folder");
    check(&options(&folder.path().join("no.hdr"), folder.path().join("a.png")), "no.hdr");
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 2, "nothing is left behind");
}

#[test]
fn a_picture_does_not_depend_on_how_the_cube_is_read() {
    let folder = tempfile::tempdir().unwrap();
    let values = varied(90 * 40 * 5);
    let input = write_envi(folder.path(), "a", [90, 40, 5], &values, &five_bands());
    let ids: Vec<u8> = (0..90 * 40).map(|at| (at / 700 % 4) as u8).collect();
    write_mask(folder.path(), "a_m", 90, 40, &ids);
    // One read of all rows, and 45 reads of two rows, which several threads share.
    let pictures = [90, 2].map(|rows| {
        let dataset = pack(
            std::slice::from_ref(&input),
            &folder.path().join(format!("d{rows}")),
            |options| {
                options.layout.chunk = Some(ChunkShape { rows, columns: None });
                options.mask = vec![mask("organs", "{dir}/{stem}_m.npy")];
            },
        );
        let output = folder.path().join(format!("{rows}.png"));
        preview(&options(dataset.path(), output.clone())).unwrap();
        Picture::read(&output)
    });
    assert!(pictures[0].rgb == pictures[1].rgb);
}
