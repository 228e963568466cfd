//! Stacks whose samples share a grid: the arrays that describe the grid exist exactly as long as
//! this is true.

use std::fs::OpenOptions;
use std::io::Write as _;
use std::ops::Range;
use std::path::Path;

use hsipack_format::checksums::{self, SHA256SUMS};
use hsipack_format::geo::cf;
use hsipack_format::metadata::SAMPLES;
use hsipack_format::samples::index::SAMPLES_INDEX;
use hsipack_pack::convert::{ConvertOptions, Mode};
use hsipack_pack::progress::Progress;
use hsipack_pack::repair::repair;
use hsipack_pack::validate::{ProblemKind, Report, ValidateOptions, validate};
use hsipack_store::Dataset;

use crate::conversion::{cubes, options, pack};
use crate::servers::of;

/// Sets the easting of the cubes `which`.
pub fn locate(folder: &Path, which: Range<usize>, easting: u32) {
    for number in which {
        let header = folder.join(format!("cube{number:03}.hdr"));
        let mut file = OpenOptions::new().append(true).open(header).unwrap();
        writeln!(file, "map info = {{UTM, 1, 1, {easting}, 5297190, 30, 20, 32, North, WGS-84}}")
            .unwrap();
    }
}

/// Whether a file of a dataset belongs to the arrays that describe the grid.
pub fn is_of_grid(file: &Path) -> bool {
    file.components().any(|part| cf::NAMES.iter().any(|name| part.as_os_str() == *name))
}

fn check(out: &Path) -> Report {
    validate(out, &ValidateOptions::default(), &Progress::default()).unwrap()
}

/// Writes a file of a dataset, and its line in `SHA256SUMS`.
fn write_listed(out: &Path, file: &str, content: &[u8]) {
    std::fs::write(out.join(file), content).unwrap();
    let sums = std::fs::read_to_string(out.join(SHA256SUMS)).unwrap();
    let line = |line: &str| match line.split_once("  ") {
        Some((_, name)) if name == file => format!("{}  {name}\n", checksums::sha256(content)),
        _ => format!("{line}\n"),
    };
    std::fs::write(out.join(SHA256SUMS), sums.lines().map(line).collect::<String>()).unwrap();
}

#[test]
fn readers_go_on_while_the_grid_is_replaced() {
    let folder = tempfile::tempdir().unwrap();
    cubes(folder.path(), 5, 0);
    locate(folder.path(), 0..3, 634200);
    locate(folder.path(), 3..5, 634230);
    let out = folder.path().join("out");
    pack(&of(folder.path(), &out, 0..2, Mode::CREATE));
    let first = Dataset::open(&out).unwrap();
    pack(&of(folder.path(), &out, 2..3, Mode::APPEND));
    assert_eq!(Dataset::open(&out).unwrap().stacks()[0].geo_arrays, ["spatial_ref", "x", "y"]);
    pack(&of(folder.path(), &out, 3..5, Mode::APPEND));
    let last = Dataset::open(&out).unwrap();
    assert!(last.stacks()[0].geo_arrays.is_empty());
    let mut values = vec![0; first.stacks()[0].image.sample_bytes()];
    first.stacks()[0].image.read_sample(1, &mut values).unwrap();
    let past = Dataset::open_to_read(&out, Some(first.fingerprint())).unwrap();
    assert_eq!(past.samples().len(), 2);
    assert!(check(&out).ok);
}

#[test]
fn only_stacks_that_are_added_to_change() {
    let folder = tempfile::tempdir().unwrap();
    // The last two have 3 rows.
    cubes(folder.path(), 3, 2);
    locate(folder.path(), 0..2, 634200);
    locate(folder.path(), 3..5, 634200);
    let out = folder.path().join("out");
    let inputs = |which: &[usize]| {
        let name = |number: &usize| folder.path().join(format!("cube{number:03}.hdr"));
        which.iter().map(|number| name(number).display().to_string()).collect()
    };
    pack(&ConvertOptions { inputs: inputs(&[0, 1, 3, 4]), ..options(folder.path(), &out) });
    let names = |dataset: &Dataset| -> Vec<usize> {
        dataset.stacks().iter().map(|stack| stack.geo_arrays.len()).collect()
    };
    assert_eq!(names(&Dataset::open(&out).unwrap()), [3, 3]);
    let append =
        ConvertOptions { inputs: inputs(&[2]), mode: Mode::APPEND, ..options(folder.path(), &out) };
    pack(&append);
    let after = Dataset::open(&out).unwrap();
    assert_eq!(after.stacks()[0].name, "3x5x4");
    assert_eq!(names(&after), [3, 0]);
    assert!(check(&out).ok);
}

#[test]
fn arrays_that_do_not_say_what_samples_say_are_found() {
    let folder = tempfile::tempdir().unwrap();
    cubes(folder.path(), 3, 0);
    locate(folder.path(), 0..3, 634200);
    let out = folder.path().join("out");
    pack(&options(folder.path(), &out));
    let text = std::fs::read_to_string(out.join(SAMPLES)).unwrap();
    std::fs::remove_file(out.join(SAMPLES_INDEX)).unwrap();
    let last = text.rfind("634200").unwrap();
    // All have another place; one has another place; one has no place.
    let geo = text.rfind(",\"geo\"").unwrap();
    let end = geo + text[geo..].find('}').unwrap() + 1;
    for (changed, metadata, chunks) in [
        (text.replace("634200", "634230"), 1, 1),
        (format!("{}634230{}", &text[..last], &text[last + 6..]), 1, 0),
        (format!("{}{}", &text[..geo], &text[end..]), 1, 0),
    ] {
        write_listed(&out, SAMPLES, changed.as_bytes());
        let report = check(&out);
        let count = |kind| report.problems.iter().filter(|problem| problem.kind == kind).count();
        assert_eq!(
            (count(ProblemKind::Metadata), count(ProblemKind::Coordinate), report.problems.len()),
            (metadata, chunks, metadata + chunks),
            "{report:?}"
        );
        // It is unknown which of the two is right.
        assert!(repair(&out, &ValidateOptions::default(), &Progress::default()).is_err());
    }
    write_listed(&out, SAMPLES, text.as_bytes());
    assert!(check(&out).ok);
}

#[test]
fn masks_of_older_versions_may_have_the_names_of_coordinates() {
    let folder = tempfile::tempdir().unwrap();
    cubes(folder.path(), 2, 0);
    let out = folder.path().join("out");
    pack(&options(folder.path(), &out));
    for name in cf::NAMES {
        let sums = std::fs::read_to_string(out.join(SHA256SUMS)).unwrap();
        let stack = out.join("6x5x4");
        std::fs::rename(stack.join("mask"), stack.join(name)).unwrap();
        let renamed = sums.replace("/mask/", &format!("/{name}/"));
        std::fs::write(out.join(SHA256SUMS), renamed).unwrap();
        let dataset = Dataset::open(&out).unwrap();
        let stack = &dataset.stacks()[0];
        assert_eq!((stack.mask(name).is_some(), stack.geo_arrays.len()), (true, 0), "{name}");
        std::fs::rename(out.join("6x5x4").join(name), out.join("6x5x4/mask")).unwrap();
        std::fs::write(out.join(SHA256SUMS), sums).unwrap();
    }
}
