//! Helpers for tests of readers: masks, refusals, and metadata of bands.

use std::path::Path;

use hsipack_format::{Error, ErrorKind};
use hsipack_source::{OpenOptions, Source};

use crate::common::{check_against_truth, fixture, open, shared, truth};

/// Splits the name of a fixture into file and variable.
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
    hsipack_source::open(path, options).unwrap_or_else(|error| panic!("{error}"))
}

/// Checks a fixture that is a mask. `file#variable` names the variable; `named` says whether the
/// reader also gets its name.
pub fn check_mask(name: &str, named: bool) {
    let (file, variable) = parts(name);
    let source = open_with(&fixture(file), &mask(variable.filter(|_| named)));
    check_against_truth(&*source, &truth(&fixture(""), name));
    assert_eq!(source.info().wavelength, None);
}

/// Checks the values and the wavelengths, widths and good bands of a fixture, without naming the
/// variable unless `named`. The reader must not know metadata that `TRUTH.json` does not list.
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

/// The error of opening a fixture. It must be of `kind`, name the file and give a remedy.
pub fn refusal(name: &str, options: &OpenOptions, kind: ErrorKind) -> Error {
    let (file, variable) = parts(name);
    let path = fixture(file);
    let mut options = options.clone();
    options.variable = variable.map(str::to_owned).or(options.variable);
    let Err(error) = hsipack_source::open(&path, &options) else { panic!("{name} was opened") };
    assert_eq!(error.kind(), kind, "{error}");
    assert_eq!(error.path(), Some(&*path), "{error}");
    assert!(error.remedy().is_some(), "{error}");
    error
}

/// The error of reading all rows of a fixture. Opening it must succeed.
pub fn read_error(name: &str) -> Error {
    let (file, variable) = parts(name);
    let source = open(&fixture(file), variable);
    let rows = source.info().shape.rows;
    let error = source.read_rows(0..rows, &mut hsipack_source::RowBuffer::new()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Malformed, "{error}");
    assert_eq!(error.path(), Some(&*fixture(file)), "{error}");
    assert!(error.remedy().is_some(), "{error}");
    error
}

/// Opens and reads many damaged copies of a fixture, as a cube and as a mask. There must be no
/// panic, and every error must name the file.
pub fn survive_damage(name: &str) {
    const COPIES: u64 = 400;
    let sound = std::fs::read(fixture(name)).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join(Path::new(name).file_name().unwrap());
    // Numerical Recipes' generator: the damage is the same in every run.
    let mut state = 1u64;
    let mut random = |below: usize| {
        state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (state >> 33) as usize % below
    };
    for copy in 0..COPIES {
        let mut bytes = sound.clone();
        // Half of the damage is near the start or the end, where the headers are.
        for _ in 0..=random(4) {
            let near = sound.len().min(300);
            let at = match random(4) {
                0 => random(near),
                1 => sound.len() - 1 - random(near),
                _ => random(sound.len()),
            };
            bytes[at] =
                if random(2) == 0 { random(256) as u8 } else { bytes[at] ^ (1 << random(8)) };
        }
        if random(5) == 0 {
            bytes.truncate(1 + random(sound.len()));
        }
        std::fs::write(&path, &bytes).unwrap();
        for mask in [false, true] {
            read_what_opens(&path, &OpenOptions { mask, ..Default::default() }, copy);
        }
    }
}

fn read_what_opens(path: &Path, options: &OpenOptions, copy: u64) {
    const MAX_VALUES: usize = 1 << 20;
    let error = match hsipack_source::open(path, options) {
        Err(error) => error,
        Ok(source) if source.info().shape.values() > MAX_VALUES => return,
        Ok(source) => {
            let rows = source.info().shape.rows;
            match source.read_rows(0..rows, &mut hsipack_source::RowBuffer::new()) {
                Err(error) => error,
                Ok(()) => return,
            }
        }
    };
    assert!(error.path().is_some(), "copy {copy}: {error}");
    assert!(error.remedy().is_some(), "copy {copy}: {error}");
}

/// Checks a real cube in `../shared/data`, with its `name` in `TRUTH.json`. `file` is the file to
/// open, if that is not the part of `name` before `#`.
pub fn check_shared(name: &str, file: Option<&str>) {
    let (path, variable) = match name.split_once('#') {
        Some((path, variable)) => (path, Some(variable)),
        None => (name, None),
    };
    let Some(path) = shared(file.unwrap_or(path)) else { return };
    let source = open(&path, variable);
    check_against_truth(&*source, &truth(&shared("").unwrap(), name));
}
