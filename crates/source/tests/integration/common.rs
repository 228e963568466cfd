//! The places of test data, and what independent readers found in them.

use std::path::{Path, PathBuf};

use hsipack_format::ErrorKind;
use hsipack_source::{Axes, OpenOptions, RowBuffer, Source};
use hsipack_testing::skipped;
use sha2::{Digest, Sha256};

/// The root of the repository.
fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

/// A small synthetic file under `fixtures/`, written by `scripts/dev/make_fixtures.py`.
pub fn fixture(name: &str) -> PathBuf {
    let path = root().join("fixtures").join(name);
    assert!(path.exists(), "{} is missing: run scripts/dev/make_fixtures.py", path.display());
    path
}

/// A real file in `$HSIPACK_SHARED/data` (`../shared/data` if that is not set). If that folder does
/// not exist, prints this and returns `None`.
pub fn shared(name: &str) -> Option<PathBuf> {
    let folder = std::env::var_os("HSIPACK_SHARED");
    let data = root().join(folder.map_or("../shared".into(), PathBuf::from)).join("data");
    if !data.is_dir() {
        skipped(format_args!("no real cubes in {}", data.display()));
        return None;
    }
    Some(data.join(name))
}

/// Values that an independent Python reader found in `name` (a path relative to the folder of
/// `truth`, with `#variable` for containers).
pub fn truth(folder: &Path, name: &str) -> serde_json::Value {
    let text = std::fs::read_to_string(folder.join("TRUTH.json")).unwrap();
    let all: serde_json::Value = serde_json::from_str(&text).unwrap();
    assert!(!all[name].is_null(), "TRUTH.json has no {name}");
    all[name].clone()
}

/// Opens `path` as a cube. If its lengths could be those of (band, row, column), and nothing else
/// says what its axes are, they are (row, column, band).
pub fn open(path: &Path, variable: Option<&str>) -> Box<dyn Source> {
    open_with_axes(
        path,
        OpenOptions { variable: variable.map(str::to_owned), ..Default::default() },
    )
}

/// Like [`open`], with other options.
pub fn open_with_axes(path: &Path, mut options: OpenOptions) -> Box<dyn Source> {
    let opened = hsipack_source::open(path, &options).or_else(|error| {
        let asks = error.kind() == ErrorKind::Ambiguous && error.to_string().contains("axes");
        options.axes = Axes::parse("yxb").filter(|_| asks && options.axes.is_none());
        if options.axes.is_some() { hsipack_source::open(path, &options) } else { Err(error) }
    });
    opened.unwrap_or_else(|error| panic!("{error}"))
}

/// SHA-256 of all values of a cube in (row, column, band) order, little-endian as stored, read
/// `step` rows at a time.
pub fn canonical_sha256(source: &dyn Source, step: usize) -> String {
    let rows = source.info().shape.rows;
    let mut hash = Sha256::new();
    let mut buffer = RowBuffer::new();
    for start in (0..rows).step_by(step) {
        source.read_rows(start..rows.min(start + step), &mut buffer).unwrap();
        hash.update(buffer.bytes());
    }
    hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Checks shape, type and every value of a cube against `TRUTH.json`, reading it one row, a few
/// rows and all rows at a time.
pub fn check_against_truth(source: &dyn Source, truth: &serde_json::Value) {
    let shape = source.info().shape;
    assert_eq!(serde_json::json!([shape.rows, shape.columns, shape.bands]), truth["shape"]);
    let dtype = match truth["dtype"].as_str().unwrap() {
        "|b1" => "bool".to_owned(),
        name => {
            let bits = 8 * name[2..].parse::<usize>().unwrap();
            let kind = match &name[1..2] {
                "u" => "uint",
                "i" => "int",
                _ => "float",
            };
            format!("{kind}{bits}")
        }
    };
    assert_eq!(source.info().dtype.name(), dtype);
    for step in [1, 3, shape.rows] {
        assert_eq!(
            canonical_sha256(source, step),
            truth["sha256_canonical"],
            "{step} rows at a time"
        );
    }
}

/// Checks a synthetic cube in `fixtures/`, with its `name` in `TRUTH.json`.
pub fn check_fixture(name: &str) {
    let (path, variable) = match name.split_once('#') {
        Some((path, variable)) => (path, Some(variable)),
        None => (name, None),
    };
    let source = open(&fixture(path), variable);
    check_against_truth(&*source, &truth(&fixture(""), name));
}
