//! Helpers for tests of readers: masks, refusals and what a file says about its bands.

use std::path::Path;

use hsipack_format::{Error, ErrorKind};
use hsipack_pack::source::{self, OpenOptions, Source};

use crate::common::{check_against_truth, fixture, open, truth};

/// A fixture's name taken apart into file and variable.
fn parts(name: &str) -> (&str, Option<&str>) {
    match name.split_once('#') {
        Some((file, variable)) => (file, Some(variable)),
        None => (name, None),
    }
}

/// Options to open a mask.
pub fn mask(variable: Option<&str>) -> OpenOptions {
    OpenOptions { variable: variable.map(str::to_owned), mask: true, ..Default::default() }
}

/// Opens `path` with `options`.
pub fn open_with(path: &Path, options: &OpenOptions) -> Box<dyn Source> {
    source::open(path, options).unwrap_or_else(|error| panic!("{error}"))
}

/// Checks a fixture that is a mask; `file#variable` names the variable, `named` says whether the
/// reader is told, too.
pub fn check_mask(name: &str, named: bool) {
    let (file, variable) = parts(name);
    let source = open_with(&fixture(file), &mask(variable.filter(|_| named)));
    check_against_truth(&*source, &truth(&fixture(""), name));
    assert_eq!(source.info().wavelength, None);
}

/// Checks the values and the wavelengths, widths and good bands of a fixture, without naming the
/// variable unless `named`. What `TRUTH.json` does not list has to be unknown to the reader.
pub fn check_bands(name: &str, named: bool) {
    let (file, variable) = parts(name);
    let source = open(&fixture(file), variable.filter(|_| named));
    let truth = truth(&fixture(""), name);
    check_against_truth(&*source, &truth);
    let info = source.info();
    for (key, found) in [("wavelength", &info.wavelength), ("fwhm", &info.fwhm)] {
        let wanted: Option<Vec<f64>> = serde_json::from_value(truth[key].clone()).unwrap();
        assert_eq!(found.is_some(), wanted.is_some(), "{name}: {key} {:?}", info.notes);
        for (found, wanted) in found.iter().flatten().zip(wanted.iter().flatten()) {
            assert!((found - wanted).abs() <= 1e-9 * wanted, "{name}: {key} {found} {wanted}");
        }
    }
    let wanted: Option<Vec<bool>> = serde_json::from_value(truth["good_bands"].clone()).unwrap();
    assert_eq!(info.good_bands, wanted, "{name}");
}

/// The error that opening a fixture gives; it has to be of `kind`, name the file and give a remedy.
pub fn refusal(name: &str, options: &OpenOptions, kind: ErrorKind) -> Error {
    let (file, variable) = parts(name);
    let path = fixture(file);
    let mut options = options.clone();
    options.variable = variable.map(str::to_owned).or(options.variable);
    let Err(error) = source::open(&path, &options) else { panic!("{name} was opened") };
    assert_eq!(error.kind(), kind, "{error}");
    assert_eq!(error.path(), Some(&*path), "{error}");
    assert!(error.remedy().is_some(), "{error}");
    error
}

/// The error that reading all rows of a fixture gives; opening it has to succeed.
pub fn read_error(name: &str) -> Error {
    let (file, variable) = parts(name);
    let source = open(&fixture(file), variable);
    let rows = source.info().shape.rows;
    let error = source.read_rows(0..rows, &mut source::RowBuffer::new()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Malformed, "{error}");
    assert_eq!(error.path(), Some(&*fixture(file)), "{error}");
    assert!(error.remedy().is_some(), "{error}");
    error
}
