//! Whole conversions: another Zarr library reads them back, and the result does not depend on
//! threads, interruptions or the kind of input.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use half::f16;
use hsipack_format::ErrorKind;
use hsipack_pack::convert::{self, ChunkShape, ConvertOptions, Fill, KeepBits, Mode, Scale};
use hsipack_pack::progress::Progress;
use hsipack_pack::validate::{ValidateOptions, validate};
use hsipack_source::RowBuffer;
use hsipack_store::Dataset;

use crate::appending::lines;
use crate::common;

/// A folder of small float32 cubes with wavelengths and masks: `count` of 6 × 5 × 4, `other` of
/// another shape.
pub fn cubes(folder: &Path, count: usize, other: usize) {
    for number in 0..count + other {
        let rows = if number < count { 6 } else { 3 };
        let value = |i: usize| (i as f32 * 0.37 + number as f32).sin() * 3.0 + 4.0;
        let values: Vec<f32> = (0..rows * 5 * 4).map(value).collect();
        let file = folder.join(format!("cube{number:03}"));
        std::fs::write(file.with_extension("img"), bytemuck::cast_slice(&values)).unwrap();
        let header = format!(
            "ENVI\nsamples = 5\nlines = {rows}\nbands = 4\ndata type = 4\ninterleave = bip\nbyte order = 0\n\
             wavelength = {{400, 500, 600, 700}}\nfwhm = {{5, 5, 6, 6}}\nwavelength units = nm\n"
        );
        std::fs::write(file.with_extension("hdr"), header).unwrap();
        let mut png = png::Encoder::new(
            std::fs::File::create(file.with_extension("png")).unwrap(),
            5,
            rows as u32,
        );
        png.set_color(png::ColorType::Grayscale);
        png.set_depth(png::BitDepth::Eight);
        let ids: Vec<u8> = (0..rows * 5).map(|i| ((i + number) % 3) as u8).collect();
        png.write_header().unwrap().write_image_data(&ids).unwrap();
    }
}

/// Options that pack `folder` into `out`, a few cubes to a shard.
pub fn options(folder: &Path, out: &Path) -> ConvertOptions {
    let mut options = ConvertOptions::new(vec![folder.display().to_string()], out);
    options.mask = vec![super::packing::mask("mask", "{dir}/{stem}.png")];
    options.layout.shard_size = 3 * 6 * 5 * 4 * 2;
    options.layout.chunk = Some(ChunkShape { rows: 4, columns: None });
    options
}

pub fn pack(options: &ConvertOptions) -> convert::Report {
    convert::convert(options, &Progress::default(), &|_| {})
        .unwrap_or_else(|error| panic!("{error}"))
}

/// Every file in a folder, without the time of creation and the fingerprints that depend on it.
pub fn content(folder: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut files = BTreeMap::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(next) = folders.pop() {
        for entry in std::fs::read_dir(next).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
                continue;
            }
            let below = path.strip_prefix(folder).unwrap().to_owned();
            let mut bytes = std::fs::read(&path).unwrap();
            if below == Path::new("zarr.json") || below == Path::new("SHA256SUMS") {
                let text = String::from_utf8(bytes).unwrap();
                let stable = |line: &&str| {
                    let differs =
                        ["\"created\"", "\"continues\""].iter().any(|key| line.contains(key));
                    !differs && !line.ends_with("  zarr.json")
                };
                bytes = text.lines().filter(stable).collect::<Vec<_>>().join("\n").into_bytes();
            }
            files.insert(below, bytes);
        }
    }
    files
}

#[test]
fn zarrs_reads_the_values_that_were_cast() {
    for (name, scale) in [("envi/bil_little_u2.img", 1.0), ("tiff/contig_float32.tif", 2.0)] {
        let path = common::fixture("").join(name);
        if !path.exists() {
            // The fixture may have another name by now. The shared tests cover every format.
            continue;
        }
        check_with_zarrs(&path, scale);
    }
    for name in [
        "envi/emit20250324t221005_jpl_unmix_ex",
        "tiff/M3_4030seg_L2_aristcrater.tif",
        "derived/emit_layout.nc",
    ] {
        if let Some(path) = common::shared(name) {
            check_with_zarrs(&path, 4.0);
        }
    }
}

fn check_with_zarrs(path: &Path, scale: f64) {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("out.hsipack");
    let mut options = ConvertOptions::new(vec![path.display().to_string()], &out);
    options.values.scale = Scale::Factor(scale);
    options.layout.chunk = Some(ChunkShape { rows: 3, columns: Some(4) });
    pack(&options);
    let source = common::open(path, None);
    let shape = source.info().shape;
    let mut rows = RowBuffer::new();
    source.read_rows(0..shape.rows, &mut rows).unwrap();
    let number = |at: usize| match rows.dtype() {
        hsipack_format::DType::U16 => f64::from(rows.as_slice::<u16>()[at]),
        _ => f64::from(rows.as_slice::<f32>()[at]),
    };
    let want: Vec<u16> =
        (0..shape.values()).map(|at| f16::from_f64(number(at) / scale).to_bits()).collect();

    let store = Arc::new(zarrs::filesystem::FilesystemStore::new(&out).unwrap());
    let array = zarrs::array::Array::open(store, &format!("/{shape}/image")).unwrap();
    let bytes =
        array.retrieve_array_subset::<zarrs::array::ArrayBytes>(&array.subset_all()).unwrap();
    let bytes = bytes.into_fixed().unwrap();
    let got: Vec<u16> =
        bytes.as_chunks::<2>().0.iter().map(|bits| u16::from_le_bytes(*bits)).collect();
    assert_eq!(got, want, "{}", path.display());
}

#[test]
fn threads_do_not_change_a_byte() {
    let folder = tempfile::tempdir().unwrap();
    cubes(folder.path(), 8, 2);
    let results = [1, 2, 7].map(|threads| {
        // Next to the cubes: packed datasets inside an input folder are not an input.
        let out = folder.path().join(format!("out{threads}"));
        pack(&ConvertOptions { threads, ..options(folder.path(), &out) });
        content(&out)
    });
    assert!(results[0].len() > 10);
    assert_eq!(results[0], results[1]);
    assert_eq!(results[0], results[2]);
}

#[test]
fn threads_do_not_change_what_is_chosen_automatically() {
    let folder = tempfile::tempdir().unwrap();
    cubes(folder.path(), 8, 2);
    let results = [1, 2, 7].map(|threads| {
        let out = folder.path().join(format!("out{threads}"));
        let mut options = ConvertOptions { threads, ..options(folder.path(), &out) };
        options.values.scale = Scale::Auto;
        options.values.keep_bits = KeepBits::Auto;
        let mut estimate = convert::dry_run(&options).unwrap();
        estimate.output.clear();
        let report = pack(&options);
        assert!(report.information.is_some());
        (serde_json::to_string(&estimate).unwrap(), content(&out))
    });
    assert_eq!(results[0], results[1]);
    assert_eq!(results[0], results[2]);
}

#[test]
fn the_first_cube_that_cannot_be_read_is_named_whatever_the_threads() {
    let folder = tempfile::tempdir().unwrap();
    cubes(folder.path(), 12, 0);
    for threads in [1, 2, 7] {
        let mut options = options(folder.path(), &folder.path().join("out"));
        options.values.scale = Scale::Auto;
        options.values.fill = Fill::Error;
        options.values.nodata = Some(1e9);
        options.threads = threads;
        for (number, at) in [(3, 100), (4, 0), (9, 0)] {
            let file = folder.path().join(format!("cube{number:03}.img"));
            let mut values = std::fs::read(&file).unwrap();
            values[4 * at..4 * at + 4].copy_from_slice(&1e9f32.to_le_bytes());
            std::fs::write(&file, values).unwrap();
        }
        let error = convert::dry_run(&options).unwrap_err();
        let named = error.path().and_then(Path::file_stem);
        assert!(named.is_some_and(|name| name == "cube003"), "{error}");
    }
}

#[test]
fn a_stopped_conversion_is_resumed_to_the_same_dataset() {
    let folder = tempfile::tempdir().unwrap();
    cubes(folder.path(), 9, 2);
    let whole = folder.path().join("whole");
    pack(&options(folder.path(), &whole));
    let out = folder.path().join("out");
    let options = ConvertOptions { threads: 1, ..options(folder.path(), &out) };

    // If it is stopped while planning, nothing is written.
    let progress = Progress::default();
    let stop = |_: &convert::plan::Plan| progress.stop.store(true, Ordering::Relaxed);
    progress.stop.store(true, Ordering::Relaxed);
    let error = convert::convert(&options, &progress, &stop).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Interrupted);
    assert!(!folder.path().join("out.partial").exists());

    // If it is stopped while packing, finished shards are kept, and there is no dataset.
    progress.stop.store(false, Ordering::Relaxed);
    let error = convert::convert(&options, &progress, &stop).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Interrupted);
    assert!(!out.exists() && folder.path().join("out.partial").exists());
    let resume = ConvertOptions { mode: Mode::RESUME, ..options.clone() };
    assert!(
        convert::convert(&options, &Progress::default(), &|_| {})
            .unwrap_err()
            .to_string()
            .contains("pass resume")
    );
    pack(&resume);
    assert_eq!(content(&out), content(&whole));
    assert!(pack(&resume).already_complete);
}

#[test]
fn appended_cubes_join_those_that_are_there() {
    let folder = tempfile::tempdir().unwrap();
    let (first, second) = (folder.path().join("a"), folder.path().join("b"));
    std::fs::create_dir_all(&first).unwrap();
    std::fs::create_dir_all(&second).unwrap();
    cubes(&first, 4, 1);
    cubes(&second, 7, 0);
    for number in 0..4 {
        for ending in ["hdr", "img", "png"] {
            std::fs::remove_file(second.join(format!("cube{number:03}.{ending}"))).unwrap();
        }
    }
    // cube004 is in both, with another shape.
    for ending in ["hdr", "img", "png"] {
        std::fs::rename(
            first.join(format!("cube004.{ending}")),
            first.join(format!("other.{ending}")),
        )
        .unwrap();
    }
    let out = folder.path().join("out");
    pack(&options(&first, &out));
    let before = Dataset::open(&out).unwrap();
    pack(&ConvertOptions { mode: Mode::APPEND, ..options(&second, &out) });
    let after = Dataset::open(&out).unwrap();
    assert_eq!(after.samples().len(), 8);
    assert_eq!(lines(&after)[..5], lines(&before));
    assert_ne!(after.fingerprint(), before.fingerprint());

    // The values are the same as in one conversion of all cubes.
    let together = folder.path().join("together");
    let mut all = options(&first, &together);
    all.inputs.push(second.display().to_string());
    pack(&all);
    let whole = Dataset::open(&together).unwrap();
    for stack in whole.stacks() {
        let appended = after.stack(&stack.name).unwrap();
        assert_eq!(stack.image.len(), appended.image.len());
        for index in 0..stack.image.len() {
            let read = |array: &hsipack_store::dataset::ChunkArray| {
                let mut values = vec![0; array.sample_bytes()];
                array.read_sample(index, &mut values).unwrap();
                values
            };
            assert_eq!(read(&stack.image), read(&appended.image));
            assert_eq!(read(&stack.masks[0]), read(&appended.masks[0]));
        }
    }
    let options = ValidateOptions { source: true, ..ValidateOptions::default() };
    let report = validate(&out, &options, &Progress::default()).unwrap();
    assert!(report.ok && report.unchecked.is_empty() && report.sources == 8, "{report:?}");
}

#[test]
fn an_error_in_the_middle_leaves_nothing() {
    let folder = tempfile::tempdir().unwrap();
    cubes(folder.path(), 5, 0);
    let values = [1e6f32; 6 * 5 * 4];
    std::fs::write(folder.path().join("cube003.img"), bytemuck::cast_slice(&values)).unwrap();
    let out = folder.path().join("out");
    let error =
        convert::convert(&options(folder.path(), &out), &Progress::default(), &|_| {}).unwrap_err();
    let text = error.to_string();
    for part in ["cube003", "band 0", "1000000", "pass scale=auto"] {
        assert!(text.contains(part), "{text}");
    }
    assert!(!out.exists() && !folder.path().join("out.partial").exists());
    let mut scaled = options(folder.path(), &out);
    scaled.values.scale = Scale::Auto;
    pack(&scaled);
    assert_eq!(Dataset::open(&out).unwrap().stacks()[0].image.scale_factor(), 16.0);
}

#[test]
fn files_that_change_after_planning_are_refused_unless_their_content_is_the_same() {
    let folder = tempfile::tempdir().unwrap();
    let [inputs, outputs] = ["in", "made"].map(|name| folder.path().join(name));
    for folder in [&inputs, &outputs] {
        std::fs::create_dir(folder).unwrap();
    }
    cubes(&inputs, 3, 0);
    let convert = |out: &str, change: &dyn Fn()| {
        convert::convert(&options(&inputs, &outputs.join(out)), &Progress::default(), &|_| change())
    };
    pack(&options(&inputs, &outputs.join("whole")));
    for (name, named) in [("cube001.img", "cube001.hdr"), ("cube002.png", "cube002.png")] {
        let path = inputs.join(name);
        let bytes = std::fs::read(&path).unwrap();
        let mut other = bytes.clone();
        // In a value of the cube; in the checksum of the picture's last, empty part.
        *other.last_mut().unwrap() ^= 1;
        let error = convert(name, &|| std::fs::write(&path, &other).unwrap()).unwrap_err();
        let text = error.to_string();
        assert!(text.contains("changed since the conversion was planned"), "{text}");
        assert!(text.contains(named) && text.contains("restore the file"), "{text}");
        assert!(!outputs.join(name).exists());
        std::fs::write(&path, &bytes).unwrap();
        let same = format!("same-{name}");
        convert(&same, &|| std::fs::write(&path, &bytes).unwrap()).unwrap();
        assert!(content(&outputs.join(same)) == content(&outputs.join("whole")));
    }
}
