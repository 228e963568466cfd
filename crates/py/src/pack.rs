//! Convert, estimate, validate, spectra.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use hsipack_format::geo::Unit;
use hsipack_format::{Error, Result, names, text};
use hsipack_pack::convert::parts::{self, Part, WorkOptions};
use hsipack_pack::convert::plan::{Plan, PlannedSample};
use hsipack_pack::convert::{self as packing, ConvertOptions};
use hsipack_pack::input::Input;
use hsipack_pack::progress::Progress;
use hsipack_pack::spectra::{self as spectra_of, Output, SpectraOptions, Table, Values};
use hsipack_pack::validate::{self as validation, ValidateOptions, parts as checked_parts};
use hsipack_source::array_geo as arrays_geo;
use hsipack_source::guess_wavelength_unit;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict};
use serde::Serialize;
use serde_json::{Map, Value, json};

use crate::errors::OrRaise;
use crate::exit::calling;
use crate::options;
use crate::settings::read;
use crate::task::{POLL_INTERVAL, Task, patiently};

/// Files that hold arrays: the file, the sample's name, its columns and its location as JSON.
type Arrays = Vec<(PathBuf, String, String, Option<String>)>;

fn convert_options(settings: &Bound<'_, PyDict>, arrays: Arrays) -> PyResult<ConvertOptions> {
    let mut options: ConvertOptions = options::read(settings)?;
    for (file, name, columns, geo) in arrays {
        let array = array(&file, name, &columns, geo.as_deref()).or_raise(settings.py())?;
        options.arrays.push(array);
    }
    Ok(options)
}

fn array(file: &Path, name: String, columns: &str, geo: Option<&str>) -> Result<Input> {
    let odd = |error| Error::conflict(format!("columns of {name}: {error}"));
    let mut columns: Map<String, Value> = serde_json::from_str(columns).map_err(odd)?;
    let geo = geo.map(serde_json::from_str).transpose().map_err(odd)?;
    columns.insert("name".to_owned(), Value::from(name.as_str()));
    Ok(Input { columns, stands_for: Some(name), geo, ..Input::of(file) })
}

/// The defaults of all options of a conversion, by name, as JSON.
#[pyfunction]
pub fn convert_defaults() -> String {
    Value::Object(ConvertOptions::default().by_name()).to_string()
}

/// Packs cubes; returns the report as JSON. `progress` is called with the bytes done and the total
/// (0 if unknown).
#[pyfunction]
#[pyo3(signature = (settings, progress, arrays = Vec::new()))]
pub fn convert(
    py: Python<'_>,
    settings: &Bound<'_, PyDict>,
    progress: Option<Bound<'_, PyAny>>,
    arrays: Arrays,
) -> PyResult<String> {
    let options = convert_options(settings, arrays)?;
    let total = Arc::new(AtomicU64::new(0));
    let value_bytes = total.clone();
    let work = move |progress: &Progress| {
        let done = packing::convert(&options, progress, &|plan: &Plan| {
            let bytes = plan.samples.iter().map(PlannedSample::value_bytes).sum();
            value_bytes.store(bytes, Ordering::Relaxed);
        });
        if options.arrays.is_empty() {
            return done;
        }
        let renamed = |text: &str| with_names(text, &options.arrays);
        let mut report = done.map_err(|error| error.retold(&renamed))?;
        report.notes.iter_mut().for_each(|note| *note = renamed(note));
        Ok(report)
    };
    // If it is stopped, work in progress ends cleanly first, so that the conversion can be resumed at once.
    supervised(py, work, &total, progress, true).map(|report| json(&report))
}

/// Replaces the files that hold arrays by the names of the arrays: `FILE.hdr`, and files next to it
/// with that name.
fn with_names(text: &str, arrays: &[Input]) -> String {
    arrays.iter().fold(text.to_owned(), |text, array| {
        let stem = array.file.with_extension("").display().to_string();
        let mut parts = text.split(stem.as_str());
        let mut renamed = parts.next().unwrap_or_default().to_owned();
        for part in parts {
            renamed.push_str(&array.text());
            renamed
                .push_str(part.trim_start_matches(|c: char| c == '.' || c.is_ascii_alphanumeric()));
        }
        renamed
    })
}

/// Checks the location of the pixels of the array for cube `name`, and returns it as JSON.
#[pyfunction]
pub fn array_geo(
    py: Python<'_>,
    name: &str,
    crs: Option<&str>,
    transform: [f64; 6],
    unit: Option<&str>,
) -> PyResult<String> {
    let units = [Unit::Degree, Unit::Metre];
    let unit = unit.map(|unit| names::value("unit", unit, &units, Unit::name)).transpose();
    let unit = unit.map_err(|error| error.within(format!("cube '{}': geo", text::printable(name))));
    let geo = unit.and_then(|unit| arrays_geo::array_geo(name, crs, transform, unit));
    geo.map(|geo| json(&geo)).or_raise(py)
}

/// The unit of wavelengths without one, guessed as for files: `nanometres`, `micrometres` or
/// `metres`.
#[pyfunction]
pub fn wavelength_unit(values: Vec<f64>) -> &'static str {
    guess_wavelength_unit(&values).1
}

/// Plans a conversion in parts, in `file`; returns what was planned as JSON.
#[pyfunction]
pub fn plan_parts(py: Python<'_>, settings: &Bound<'_, PyDict>, file: PathBuf) -> PyResult<String> {
    let options = convert_options(settings, Vec::new())?;
    let work = move |progress: &Progress| parts::plan(&options, &file, progress, &|_| {});
    supervised(py, work, &AtomicU64::new(0), None, true).map(|planned| json(&planned))
}

/// Writes part `part`, counted from 1, of `of`; returns the report as JSON.
#[pyfunction]
pub fn work_part(
    py: Python<'_>,
    plan: PathBuf,
    part: usize,
    of: usize,
    threads: usize,
    buffer_size: Option<usize>,
) -> PyResult<String> {
    let mut options = WorkOptions::new(Part::new(part, of).or_raise(py)?);
    options.threads = threads.max(1);
    options.buffer_size = buffer_size.unwrap_or(options.buffer_size);
    let work = move |progress: &Progress| parts::work(&plan, &options, progress, &|_| {});
    supervised(py, work, &AtomicU64::new(0), None, true).map(|report| json(&report))
}

/// Commits the parts as a dataset; returns the report of the conversion as JSON.
#[pyfunction]
pub fn commit_parts(py: Python<'_>, plan: PathBuf) -> PyResult<String> {
    let report = patiently(py, move || parts::commit(&plan, false))?.or_raise(py)?;
    Ok(json(&report))
}

/// Removes the files that were written for the parts.
#[pyfunction]
pub fn discard_parts(py: Python<'_>, plan: PathBuf) -> PyResult<()> {
    patiently(py, move || parts::discard(&plan))?.or_raise(py)
}

/// Reports what a conversion would do, as JSON, without writing anything.
#[pyfunction]
pub fn estimate(py: Python<'_>, settings: &Bound<'_, PyDict>) -> PyResult<String> {
    let options = convert_options(settings, Vec::new())?;
    let estimate = patiently(py, move || packing::dry_run(&options))?.or_raise(py)?;
    Ok(json(&estimate))
}

/// Verifies that a dataset is intact; returns the report as JSON.
#[pyfunction]
pub fn validate(
    py: Python<'_>,
    path: PathBuf,
    quick: bool,
    source: bool,
    source_root: Option<PathBuf>,
    threads: Option<usize>,
    progress: Option<Bound<'_, PyAny>>,
) -> PyResult<String> {
    let threads = threads.unwrap_or(ValidateOptions::default().threads).max(1);
    let options = ValidateOptions { quick, source, source_root, threads };
    let work = move |progress: &Progress| validation::validate(&path, &options, progress);
    supervised(py, work, &AtomicU64::new(0), progress, false).map(|report| json(&report))
}

/// Maximum number of parts into which a validation can be divided.
#[pyfunction]
pub fn validation_parts(py: Python<'_>, path: PathBuf) -> PyResult<usize> {
    patiently(py, move || checked_parts::most_parts(&path))?.or_raise(py)
}

/// Checks part `part`, counted from 1, of `of`; returns the bytes checked, and the findings as
/// JSON.
#[pyfunction]
pub fn validate_part(
    py: Python<'_>,
    path: PathBuf,
    source: bool,
    source_root: Option<PathBuf>,
    part: usize,
    of: usize,
    threads: usize,
) -> PyResult<(u64, String)> {
    let part = Part::new(part, of).or_raise(py)?;
    let options = ValidateOptions { quick: false, source, source_root, threads: threads.max(1) };
    let work =
        move |progress: &Progress| checked_parts::validate_part(&path, &options, part, progress);
    let found = supervised(py, work, &AtomicU64::new(0), None, false)?;
    Ok((found.bytes(), json(&found)))
}

/// The report, as JSON, of a validation with these findings of its parts.
#[pyfunction]
pub fn put_validation_together(
    py: Python<'_>,
    path: PathBuf,
    source: bool,
    parts: Vec<String>,
) -> PyResult<String> {
    let broken = |error: serde_json::Error| Error::bug("a part of a validation").caused_by(error);
    let parts: Result<Vec<_>> =
        parts.iter().map(|part| serde_json::from_str(part).map_err(broken)).collect();
    let parts = parts.or_raise(py)?;
    let options = ValidateOptions { source, ..ValidateOptions::default() };
    let work = move || checked_parts::put_together(&path, &options, parts);
    Ok(json(&patiently(py, work)?.or_raise(py)?))
}

/// The settings of `hsipack.spectra`.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
pub struct SpectraSettings {
    dataset: PathBuf,
    as_of: Option<String>,
    samples: Option<Vec<usize>>,
    mask: String,
    statistic: String,
    splits: Vec<String>,
    min_pixels: u64,
    ignore: Vec<u32>,
    background: bool,
    threads: Option<usize>,
    output: Option<PathBuf>,
    force: bool,
}

impl SpectraSettings {
    fn options(self) -> Result<(SpectraOptions, Option<Output>)> {
        let defaults = SpectraOptions::new(self.dataset, self.mask);
        let options = SpectraOptions {
            as_of: self.as_of,
            samples: self.samples,
            statistic: self.statistic.parse()?,
            splits: self.splits,
            min_pixels: self.min_pixels,
            ignore: self.ignore,
            background: self.background,
            threads: self.threads.unwrap_or(defaults.threads),
            ..defaults
        };
        let output = self.output.map(|path| Output::new(path, self.force)).transpose()?;
        Ok((options, output))
    }
}

/// Columns as JSON, the number of bands of each row, and the values of all rows' bands, one row
/// after another: wavelengths (NaN if unknown), spectra and standard deviations as float64, counts
/// of missing values as uint64.
type Spectra<'py> = (String, Vec<usize>, [Bound<'py, PyBytes>; 4]);

/// Spectra of the regions of a mask; if a file is given, they are also written to it.
#[pyfunction]
pub fn spectra<'py>(
    py: Python<'py>,
    settings: &Bound<'py, PyAny>,
    progress: Option<Bound<'_, PyAny>>,
) -> PyResult<Spectra<'py>> {
    // Errors about the file are raised before any cube is read.
    let (options, output) = read::<SpectraSettings>(settings)?.options().or_raise(py)?;
    let work = move |progress: &Progress| {
        let table = spectra_of::spectra(&options, progress)?;
        output.map_or(Ok(()), |output| output.write(&table))?;
        Ok(table)
    };
    let table = supervised(py, work, &AtomicU64::new(0), progress, false)?;
    Ok(parts_of(py, &table))
}

/// The samples whose spectra are requested, in up to `most` shares. Errors about the file are
/// raised here.
#[pyfunction]
pub fn spectra_shares(
    py: Python<'_>,
    settings: &Bound<'_, PyAny>,
    most: usize,
) -> PyResult<Vec<Vec<usize>>> {
    let (options, _) = read::<SpectraSettings>(settings)?.options().or_raise(py)?;
    patiently(py, move || spectra_of::parts::shares(&options, most))?.or_raise(py)
}

/// The spectra of one share, for [`put_spectra_together`].
#[pyfunction]
pub fn spectra_part<'py>(
    py: Python<'py>,
    settings: &Bound<'py, PyAny>,
) -> PyResult<Bound<'py, PyBytes>> {
    let (options, _) = read::<SpectraSettings>(settings)?.options().or_raise(py)?;
    let work = move |progress: &Progress| spectra_of::parts::part(&options, progress);
    let part = supervised(py, work, &AtomicU64::new(0), None, false)?;
    Ok(PyBytes::new(py, &part))
}

/// As [`spectra`], from parts that were computed elsewhere.
#[pyfunction]
pub fn put_spectra_together<'py>(
    py: Python<'py>,
    settings: &Bound<'py, PyAny>,
    parts: Vec<Vec<u8>>,
) -> PyResult<Spectra<'py>> {
    let (options, output) = read::<SpectraSettings>(settings)?.options().or_raise(py)?;
    let work = move || {
        let table = spectra_of::parts::put_together(&options, &parts)?;
        output.map_or(Ok(()), |output| output.write(&table))?;
        Ok(table)
    };
    Ok(parts_of(py, &patiently(py, work)?.or_raise(py)?))
}

fn parts_of<'py>(py: Python<'py>, table: &Table) -> Spectra<'py> {
    let bands = table.rows.iter().map(|row| row.spectrum.len()).collect();
    (columns_json(table), bands, band_bytes(table).map(|bytes| PyBytes::new(py, &bytes)))
}

fn columns_json(table: &Table) -> String {
    let column = |column: &spectra_of::Column| {
        let values = match &column.values {
            Values::Whole(values) => json!(values),
            Values::Number(values) => json!(values),
            Values::Flag(values) => json!(values),
            Values::Text(values) => json!(values),
        };
        (column.name.clone(), values)
    };
    Value::Object(table.columns.iter().map(column).collect()).to_string()
}

fn band_bytes(table: &Table) -> [Vec<u8>; 4] {
    let mut all = [const { Vec::new() }; 4];
    let put = |bytes: &mut Vec<u8>, values: &[f64]| {
        bytes.extend(values.iter().flat_map(|value| value.to_ne_bytes()));
    };
    for row in &table.rows {
        let unknown = || vec![f64::NAN; row.spectrum.len()];
        put(&mut all[0], &table.wavelengths[row.stack].clone().unwrap_or_else(unknown));
        put(&mut all[1], &row.spectrum);
        put(&mut all[2], &row.std);
        all[3].extend(row.missing.iter().flat_map(|count| count.to_ne_bytes()));
    }
    all
}

/// Runs work that can be stopped, while signals are checked and progress is reported. If `wait` is
/// set, it waits after a stop until the work has ended, because later calls may depend on it.
pub fn supervised<T: Send + 'static>(
    py: Python<'_>,
    work: impl FnOnce(&Progress) -> Result<T> + Send + 'static,
    total: &AtomicU64,
    tell: Option<Bound<'_, PyAny>>,
    wait: bool,
) -> PyResult<T> {
    let progress = Arc::new(Progress::default());
    let shared = progress.clone();
    let task = Task::start(py, move || work(&shared))?;
    let look = || {
        py.check_signals()?;
        if let Some(tell) = &tell {
            let done = progress.bytes_in.load(Ordering::Relaxed);
            calling(py, || tell.call1((done, total.load(Ordering::Relaxed))))?;
        }
        Ok(())
    };
    loop {
        if let Some(result) = task.poll(py, POLL_INTERVAL)? {
            let result = result.or_raise(py)?;
            if tell.is_some() {
                look()?;
            }
            return Ok(result);
        }
        if let Err(raised) = look() {
            progress.stop.store(true, Ordering::Relaxed);
            if wait {
                let _ = task.finish(py)?;
            }
            return Err(raised);
        }
    }
}

pub fn json(value: &impl Serialize) -> String {
    serde_json::to_string(value).expect("plain data")
}
