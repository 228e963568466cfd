//! Further images: arrays of the same ground with bands of their own, packed beside the image.

use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;

use half::f16;
use hsipack_format::metadata::{CompanionMeaning, Role};
use hsipack_format::{DType, ErrorKind, Ratio};
use hsipack_pack::convert::parts::{self, Part, WorkOptions};
use hsipack_pack::convert::plan::Plan;
use hsipack_pack::convert::{Assignment, ConvertOptions, FitMethod, Mode, PackedType, convert};
use hsipack_pack::info::DatasetReport;
use hsipack_pack::merge::{MergeOptions, merge};
use hsipack_pack::progress::Progress;
use hsipack_pack::repair::repair;
use hsipack_pack::validate::{Report, ValidateOptions, validate};
use hsipack_store::Dataset;
use proptest::prelude::*;

use crate::conversion::{content, pack};
use crate::packing::write_envi;

/// Rows and columns of the cubes: four of one shape, two of another.
const SHAPES: [([usize; 2], usize); 2] = [([6, 12], 4), ([12, 6], 2)];

/// A value of the colours of a cube, twice as many rows and columns.
fn color(number: usize, at: usize) -> u8 {
    (at * 31 + number * 7) as u8
}

/// A value of the image of an earlier time, of which every thirteenth is missing.
fn earlier(number: usize, at: usize) -> f32 {
    if (at + number).is_multiple_of(13) {
        f32::NAN
    } else {
        (at as f32 * 0.37 + number as f32).sin()
    }
}

/// A value of the thermal image, a third of the rows and columns.
fn kelvin(number: usize, at: usize) -> u16 {
    (at * 999 + number * 17 + 40_000) as u16
}

fn write_png(path: &Path, [rows, columns]: [usize; 2], values: &[u8]) {
    let file = std::fs::File::create(path).unwrap();
    let mut png = png::Encoder::new(file, columns as u32, rows as u32);
    png.set_color(png::ColorType::Rgb);
    png.set_depth(png::BitDepth::Eight);
    png.write_header().unwrap().write_image_data(values).unwrap();
}

/// Whole numbers of 16 bits as ENVI.
fn write_u16(folder: &Path, name: &str, [rows, columns]: [usize; 2], values: &[u16]) {
    let header = format!(
        "ENVI\nsamples = {columns}\nlines = {rows}\nbands = 1\ndata type = 12\ninterleave = bip\nbyte order = 0\n"
    );
    std::fs::write(folder.join(format!("{name}.hdr")), header).unwrap();
    let bytes: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
    std::fs::write(folder.join(format!("{name}.img")), bytes).unwrap();
}

struct Folders {
    _folder: tempfile::TempDir,
    inputs: PathBuf,
    images: PathBuf,
    results: PathBuf,
}

/// Cubes of two shapes, three further images of each, and a folder for the results.
fn folders() -> Folders {
    let folder = tempfile::tempdir().unwrap();
    let [inputs, images, results] =
        ["in", "images", "results"].map(|name| folder.path().join(name));
    for folder in [&inputs, &images, &results] {
        std::fs::create_dir(folder).unwrap();
    }
    let sizes = SHAPES.iter().flat_map(|(size, count)| vec![*size; *count]);
    for (number, [rows, columns]) in sizes.enumerate() {
        let values: Vec<f32> =
            (0..rows * columns * 4).map(|at| (at + number) as f32 * 0.5).collect();
        write_envi(&inputs, &format!("cube{number}"), [rows, columns, 4], &values, "");
        let colors: Vec<u8> = (0..rows * columns * 12).map(|at| color(number, at)).collect();
        write_png(&images.join(format!("cube{number}.png")), [2 * rows, 2 * columns], &colors);
        let values: Vec<f32> = (0..rows * columns * 2).map(|at| earlier(number, at)).collect();
        let bands = "wavelength = {500, 600}\nfwhm = {5, 6}\nwavelength units = nm\n";
        write_envi(&images, &format!("cube{number}_t0"), [rows, columns, 2], &values, bands);
        let values: Vec<u16> = (0..rows * columns / 9).map(|at| kelvin(number, at)).collect();
        write_u16(&images, &format!("cube{number}_k"), [rows / 3, columns / 3], &values);
    }
    Folders { _folder: folder, inputs, images, results }
}

fn image(name: &str, file: &str) -> Assignment {
    Assignment { name: name.to_owned(), value: format!("{{dir}}/../images/{{stem}}{file}") }
}

fn all_images() -> Vec<Assignment> {
    vec![image("thermal", "_k.hdr"), image("rgb", ".png"), image("before", "_t0.hdr")]
}

fn plain(inputs: &Path, out: &Path) -> ConvertOptions {
    let mut options = ConvertOptions::new(vec![inputs.display().to_string()], out);
    options.layout.shard_size = 3 * 6 * 12 * 4 * 2;
    options
}

fn with_images(inputs: &Path, out: &Path) -> ConvertOptions {
    ConvertOptions { image: all_images(), ..plain(inputs, out) }
}

/// The values of a further image.
fn values(dataset: &Dataset, stack: &str, name: &str, index: usize) -> Vec<f32> {
    let array = dataset.stack(stack).unwrap().companion(name).unwrap();
    let mut bytes = vec![0; array.sample_bytes()];
    array.read_sample(index, &mut bytes).unwrap();
    match array.meta().dtype {
        DType::F16 => {
            bytes.as_chunks::<2>().0.iter().map(|two| f16::from_le_bytes(*two).to_f32()).collect()
        }
        _ => bytes.as_chunks::<4>().0.iter().map(|four| f32::from_le_bytes(*four)).collect(),
    }
}

/// The values that a further image should have.
fn expected(name: &str, number: usize, [rows, columns]: [usize; 2]) -> Vec<f32> {
    let pixels = rows * columns;
    match name {
        "rgb" => (0..pixels * 12).map(|at| color(number, at).into()).collect(),
        "before" => {
            let values = (0..pixels * 2).map(|at| earlier(number, at));
            values.map(|value| f16::from_f32(value).to_f32()).collect()
        }
        _ => (0..pixels / 9).map(|at| kelvin(number, at).into()).collect(),
    }
}

fn bits(values: &[f32]) -> Vec<u32> {
    values.iter().map(|value| if value.is_nan() { u32::MAX } else { value.to_bits() }).collect()
}

fn check(dataset: &Path, source: bool) -> Report {
    let options = ValidateOptions { source, ..ValidateOptions::default() };
    validate(dataset, &options, &Progress::default()).unwrap()
}

#[test]
fn further_images_are_packed_without_loss_at_their_resolution() {
    let Folders { _folder, inputs, results, .. } = folders();
    let out = results.join("out");
    let report = pack(&with_images(&inputs, &out));
    assert_eq!(
        report.stacks[1].images,
        [
            "before (float16, 2 bands)",
            "rgb (float16, 3 bands, 2 x the rows and columns)",
            "thermal (float32, 1 band, 1/3 x the rows and columns)"
        ]
    );
    let dataset = Dataset::open(&out).unwrap();
    for (stack, first, count, size) in [("6x12x4", 0, 4, [6, 12]), ("12x6x4", 4, 2, [12, 6])] {
        for index in 0..count {
            for name in ["rgb", "before", "thermal"] {
                let found = values(&dataset, stack, name, index);
                let want = expected(name, first + index, size);
                assert_eq!(bits(&found), bits(&want), "{stack} {name} {index}");
            }
        }
    }
    let stack = dataset.stack("6x12x4").unwrap();
    let meaning = |name: &str| stack.companion(name).unwrap().meta().companion_meaning().unwrap();
    let CompanionMeaning { role, ratio, wavelength, fwhm, .. } = meaning("before");
    assert_eq!((role, ratio), (Role::Image, Ratio::EQUAL));
    assert_eq!((wavelength, fwhm), (Some(vec![500.0, 600.0]), Some(vec![5.0, 6.0])));
    assert_eq!(meaning("thermal").ratio, Ratio::new(1, 3).unwrap());
    let dimensions = &stack.companion("rgb").unwrap().meta().dimension_names;
    assert_eq!(*dimensions, ["sample", "rgb_y", "rgb_x", "rgb_band"]);
    let info = DatasetReport::new(&dataset).unwrap();
    let images = &info.stacks[1].images;
    assert_eq!((images[1].shape, images[1].ratio), ([12, 24, 3], [2, 1]));
    assert!(images.iter().all(|image| image.stored_bytes > 0));
    let checked = check(&out, true);
    assert!(checked.ok && checked.sources == 6, "{checked:?}");
}

#[test]
fn other_values_in_the_file_of_an_image_are_found() {
    let Folders { _folder, inputs, images, results } = folders();
    let out = results.join("out");
    pack(&with_images(&inputs, &out));
    let file = images.join("cube1_k.img");
    let mut bytes = std::fs::read(&file).unwrap();
    bytes[2 * 5] ^= 1;
    std::fs::write(&file, bytes).unwrap();
    let report = check(&out, true);
    assert_eq!(report.problems.len(), 1, "{:?}", report.problems);
    let what = &report.problems[0].what;
    assert!(what.starts_with("further image thermal: row 1, column 1, band 0: "), "{what}");
}

#[test]
fn damaged_images_are_repaired() {
    let Folders { _folder, inputs, results, .. } = folders();
    let out = results.join("out");
    pack(&with_images(&inputs, &out));
    let before = content(&out);
    let shard = out.join("6x12x4/rgb/c/0/0/0/0");
    let mut bytes = std::fs::read(&shard).unwrap();
    bytes[40] ^= 1;
    std::fs::write(&shard, &bytes).unwrap();
    std::fs::remove_file(out.join("12x6x4/thermal/c/0/0/0/0")).unwrap();
    let report = check(&out, false);
    let damaged: Vec<_> =
        report.problems.iter().filter_map(|problem| problem.array.as_deref()).collect();
    assert!(damaged.contains(&"rgb") && damaged.contains(&"thermal"), "{report:?}");
    let repaired = repair(&out, &ValidateOptions::default(), &Progress::default()).unwrap();
    assert!(repaired.remaining.is_empty() && repaired.failed.is_empty(), "{repaired:?}");
    assert_eq!(content(&out), before);
}

#[test]
fn appends_parts_and_resumed_conversions_give_the_same_dataset() {
    let Folders { _folder, inputs, images, results } = folders();
    let whole = results.join("whole");
    pack(&with_images(&inputs, &whole));
    let want = content(&whole);

    let (out, file) = (results.join("parts"), results.join("plan.json"));
    let options = with_images(&inputs, &out);
    parts::plan(&options, &file, &Progress::default(), &|_| {}).unwrap();
    for number in [2, 1, 3] {
        let work = WorkOptions { threads: 1, ..WorkOptions::new(Part::new(number, 3).unwrap()) };
        parts::work(&file, &work, &Progress::default(), &|_| {}).unwrap();
    }
    parts::commit(&file, false).unwrap();
    assert_eq!(content(&out), want);

    let out = results.join("resumed");
    let options = ConvertOptions { threads: 1, ..with_images(&inputs, &out) };
    let progress = Progress::default();
    let stop = |_: &Plan| progress.stop.store(true, Ordering::Relaxed);
    let error = convert(&options, &progress, &stop).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Interrupted);
    let resume = ConvertOptions { mode: Mode::RESUME, ..options };
    let other = ConvertOptions { fit: Some(FitMethod::Mean), ..resume.clone() };
    let error = convert(&other, &Progress::default(), &|_| {}).unwrap_err();
    assert!(error.to_string().contains("leave out fit"), "{error}");
    pack(&resume);
    assert_eq!(content(&out), want);

    let (out, file) = (results.join("changed"), results.join("changed.json"));
    parts::plan(&with_images(&inputs, &out), &file, &Progress::default(), &|_| {}).unwrap();
    let changed = images.join("cube2_t0.img");
    let mut bytes = std::fs::read(&changed).unwrap();
    bytes[1] ^= 1;
    std::fs::write(&changed, bytes).unwrap();
    let work = WorkOptions::new(Part::new(1, 1).unwrap());
    let error = parts::work(&file, &work, &Progress::default(), &|_| {}).unwrap_err();
    assert!(error.to_string().contains("changed since the conversion was planned"), "{error}");
}

#[test]
fn cubes_are_appended_with_the_images_of_the_dataset() {
    let Folders { _folder, inputs, results, .. } = folders();
    let only = |out: &Path, which: &[usize]| {
        let name = |number: &usize| inputs.join(format!("cube{number}.hdr")).display().to_string();
        ConvertOptions { inputs: which.iter().map(name).collect(), ..with_images(&inputs, out) }
    };
    let (out, whole) = (results.join("out"), results.join("whole"));
    pack(&only(&out, &[0, 1]));
    pack(&ConvertOptions { mode: Mode::APPEND, ..only(&out, &[2, 3]) });
    pack(&only(&whole, &[0, 1, 2, 3]));
    let shards = |path: &Path| {
        let mut files = content(path);
        files.retain(|path, _| {
            ["rgb", "before", "thermal"]
                .iter()
                .any(|name| path.starts_with(format!("6x12x4/{name}/c")))
        });
        files
    };
    assert_eq!((shards(&out), shards(&out).len()), (shards(&whole), 6));
    assert!(check(&out, true).ok);
    let before = content(&out);
    let again = |image: Vec<Assignment>, fit| ConvertOptions {
        mode: Mode::APPEND,
        image,
        fit,
        name: Some("again".to_owned()),
        ..only(&out, &[0])
    };
    let coarse =
        vec![image("rgb", "_k.hdr"), image("before", "_t0.hdr"), image("thermal", "_k.hdr")];
    for (options, what) in [
        (
            again(vec![image("rgb", ".png")], None),
            "the dataset has the further images [\"before\",",
        ),
        (again(Vec::new(), None), "but [] are given"),
        (again(coarse, None), "its further image \"rgb\" has 1 bands, but 3 in other cubes"),
        (
            again(all_images(), Some(FitMethod::Nearest)),
            "\"rgb\" has 1 times the rows and columns of its cube, but 2 times the rows and columns in",
        ),
    ] {
        let error = convert(&options, &Progress::default(), &|_| {}).unwrap_err();
        assert!(error.to_string().contains(what), "{error}");
    }
    assert_eq!(content(&out), before);
}

#[test]
fn merged_datasets_keep_their_images() {
    let Folders { _folder, inputs, results, .. } = folders();
    let [first, other, both] = ["one", "other", "both"].map(|name| results.join(name));
    pack(&with_images(&inputs, &first));
    let name = Some("plain {stem}".to_owned());
    pack(&ConvertOptions { name, ..plain(&inputs, &other) });
    let merging = MergeOptions {
        datasets: vec![first.clone(), other],
        output: both.clone(),
        ..MergeOptions::default()
    };
    merge(&merging, &Progress::default()).unwrap();
    let (before, merged) = (Dataset::open(&first).unwrap(), Dataset::open(&both).unwrap());
    for (name, index) in
        ["rgb", "before", "thermal"].into_iter().flat_map(|name| [(name, 0), (name, 3)])
    {
        let of = |dataset| bits(&values(dataset, "6x12x4", name, index));
        assert_eq!(of(&merged), of(&before));
        let missing = values(&merged, "6x12x4", name, index + 4);
        assert!(missing.iter().all(|value| value.is_nan()));
    }
    assert!(check(&both, false).ok);
}

#[test]
fn images_that_do_not_fit_are_refused_before_anything_is_written() {
    let Folders { _folder, inputs, images, results } = folders();
    let out = results.join("out");
    for number in 0..6 {
        write_u16(&images, &format!("cube{number}_odd"), [7, 12], &[1; 84]);
    }
    std::fs::remove_file(images.join("cube3.png")).unwrap();
    for (image, what) in [
        (image("odd", "_odd.hdr"), "the further image \"odd\" has 7x12 pixels, but its cube"),
        (image("rgb", ".png"), "its further image \"rgb\" is missing: there is no"),
        (image("image", "_k.hdr"), "\"image\" cannot be the name of a further image"),
    ] {
        let options = ConvertOptions { image: vec![image], ..plain(&inputs, &out) };
        let error = convert(&options, &Progress::default(), &|_| {}).unwrap_err();
        assert!(error.to_string().contains(what), "{error}");
        assert!(error.remedy().is_some(), "{error}");
        assert_eq!(std::fs::read_dir(&results).unwrap().count(), 0, "{error}");
    }
    // A target has the pixels of its cube, unless it is brought to them.
    let target = vec![image("kelvin", "_k.hdr")];
    let options = ConvertOptions { target, ..plain(&inputs, &out) };
    let error = convert(&options, &Progress::default(), &|_| {}).unwrap_err();
    assert!(error.to_string().contains("or bring it to them with fit"), "{error}");
    let options = ConvertOptions { fit: Some(FitMethod::Mean), ..options };
    pack(&options);
    let dataset = Dataset::open(&out).unwrap();
    let target = values(&dataset, "6x12x4", "kelvin", 2);
    assert_eq!(
        (target.len(), target[0], target[40]),
        (72, kelvin(2, 0).into(), kelvin(2, 5).into())
    );
}

#[test]
fn images_can_be_brought_to_the_pixels_of_their_cubes() {
    let Folders { _folder, inputs, results, .. } = folders();
    for fit in FitMethod::ALL {
        let out = results.join(fit.name());
        let options = ConvertOptions { fit: Some(fit), ..with_images(&inputs, &out) };
        pack(&options);
        let dataset = Dataset::open(&out).unwrap();
        let (fine, got) = (expected("rgb", 1, [6, 12]), values(&dataset, "6x12x4", "rgb", 1));
        let want = (0..6 * 12 * 3).map(|at| {
            let (row, column, band) = (at / 36, at / 3 % 12, at % 3);
            let value = |down: usize, across: usize| {
                fine[((2 * row + down) * 24 + 2 * column + across) * 3 + band]
            };
            match fit {
                FitMethod::Nearest => value(1, 1),
                FitMethod::Mean => {
                    f16::from_f32((value(0, 0) + value(0, 1) + value(1, 0) + value(1, 1)) / 4.0)
                        .to_f32()
                }
            }
        });
        assert_eq!(got, want.collect::<Vec<_>>(), "{fit}");
        assert!(check(&out, true).ok);
    }
}

#[test]
fn a_dataset_without_images_is_packed_as_before() {
    let Folders { _folder, inputs, results, .. } = folders();
    let out = results.join("out");
    pack(&plain(&inputs, &out));
    let root = std::fs::read_to_string(out.join("zarr.json")).unwrap();
    assert!(!root.contains("images") && !root.contains("\"fit\""), "{root}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]
    #[test]
    fn images_of_any_ratio_are_packed_whole(
        size in (1usize..5, 1usize..5), finer in 1u32..4, coarser in 1u32..4, bands in 1usize..4, seed in 0u16..999,
    ) {
        let (finer, coarser) = if seed.is_multiple_of(2) { (finer, 1) } else { (1, coarser) };
        let folder = tempfile::tempdir().unwrap();
        let (rows, columns) = (size.0 * coarser as usize, size.1 * coarser as usize);
        write_envi(folder.path(), "cube", [rows, columns, 2], &vec![1.0; rows * columns * 2], "");
        let [down, across] = [rows, columns].map(|length| length * finer as usize / coarser as usize);
        let value = |at: usize| (at * 13 + usize::from(seed)) as f32 / 8.0;
        let written: Vec<f32> = (0..down * across * bands).map(value).collect();
        write_envi(folder.path(), "other", [down, across, bands], &written, "");
        let input = folder.path().join("cube.hdr").display().to_string();
        let mut options = ConvertOptions::new(vec![input], folder.path().join("out"));
        options.image = vec![Assignment { name: "other".into(), value: "{dir}/other.hdr".into() }];
        options.values.dtype = PackedType::F32;
        pack(&options);
        let dataset = Dataset::open(folder.path().join("out")).unwrap();
        let stack = &dataset.stacks()[0];
        prop_assert_eq!(stack.companions[0].ratio(), Ratio::new(finer, coarser).unwrap());
        prop_assert_eq!(values(&dataset, &stack.name, "other", 0), written);
        prop_assert!(check(&folder.path().join("out"), true).ok);
    }
}
