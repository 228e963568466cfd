//! White and dark references of a cube: opens them, compares them with the cube, and averages them.
//! `pairs.rs` finds their files.
//!
//! Specim IQ also records dark frames with the integration time of the white reference. If they are
//! there and the dark reference is subtracted from the cube, they are subtracted from the white
//! reference: (cube − dark) / (white − its dark).
//!
//! Every file's own scaling is applied first. If the white reference was recorded with another
//! integration time than the cube, the quotient is multiplied by time of white / time of cube, as
//! the makers do.

use std::cmp::Ordering;
use std::path::PathBuf;
use std::sync::Arc;

use hsipack_format::{Error, Opt, Result, remedy};
use hsipack_source::{CubeInfo, OpenOptions, Recent, RowBuffer, Scaling, Source};

use super::options::{Reference, ValueOptions};
use super::pairs::{self, Kind};
use crate::fingerprint::{self, fingerprint};
use crate::input::Input;

use super::calibration::Calibration;
use super::cube_file::open_file;
use super::transform::{Scratch, Transform};

/// Properties of the references, relative to the cube, that a calibration depends on.
#[derive(Clone, Debug, PartialEq)]
pub struct Fit {
    /// Time of white / time of cube; 1 if it is not known, or there is no white reference.
    white_time: f64,
    /// Notes for the user.
    pub notes: Vec<String>,
    /// The white reference's file.
    pub white: Option<PathBuf>,
    /// The dark reference's file.
    pub dark: Option<PathBuf>,
    /// Fingerprint of the files of all references; `None` without any.
    pub fingerprint: Option<String>,
}

/// If two band centres are further apart than this, in nm, they belong to different bands.
const SAME_BAND_NM: f64 = 0.1;

/// Opens the references that `values` select for the cube in `input`, and compares them with it.
///
/// # Errors
/// If a reference cannot be found or opened, or does not fit the cube.
pub fn check(values: &ValueOptions, input: &Input, info: &CubeInfo) -> Result<Fit> {
    let references = References::open(values, input, info)?;
    let fingerprint = references.fingerprint()?;
    Ok(Fit { fingerprint, ..references.fit(values, input, info) })
}

/// The first reference file of the cube in `input` that is no longer the planned one, or the cube
/// itself if it had other references. `planned` is [`Fit::fingerprint`].
///
/// # Errors
/// If a reference cannot be found or opened, or does not fit the cube.
pub fn changed(
    values: &ValueOptions,
    input: &Input,
    info: &CubeInfo,
    planned: Option<&str>,
) -> Result<Option<PathBuf>> {
    let references = References::open(values, input, info)?;
    let (files, planned) = (references.files(), planned.into_iter().flat_map(|all| all.split(' ')));
    let planned: Vec<&str> = planned.collect();
    if files.len() != planned.len() {
        return Ok(Some(input.file.clone()));
    }
    for (file, planned) in files.into_iter().zip(planned) {
        if !fingerprint::is_still(std::slice::from_ref(file), planned)? {
            return Ok(Some(file.clone()));
        }
    }
    Ok(None)
}

/// The opened references of a cube.
struct References {
    white: Option<Box<dyn Source>>,
    dark: Option<Box<dyn Source>>,
    /// Dark frames with the integration time of the white reference.
    white_dark: Option<Box<dyn Source>>,
}

impl References {
    fn open(values: &ValueOptions, input: &Input, info: &CubeInfo) -> Result<Self> {
        let open = |reference: &Option<Reference>, kind: Kind| match reference {
            None => Ok(None),
            Some(reference) => {
                let source = open_reference(reference, kind, input, info, values)?;
                if !values.raw_values {
                    check_scale(source.info(), input, info)?;
                }
                Ok(Some(source))
            }
        };
        let (white, dark) = (open(&values.white, Kind::White)?, open(&values.dark, Kind::Dark)?);
        if let (Some(white_file), Some(dark_file)) = (file_of(&white), file_of(&dark))
            && white_file == dark_file
        {
            return Err(Error::conflict(format!(
                "the white and the dark reference of {} are the same file",
                input.text()
            ))
            .at(white_file)
            .with_remedy(remedy!["correct ", Opt::White, " or ", Opt::Dark]));
        }
        let of_white = file_of(&white).filter(|_| dark.is_some());
        let white_dark = of_white.and_then(|white| pairs::dark_of_white(&white));
        let white_dark =
            white_dark.map(|file| open_fitting(&Input::of(&file), input, info, values));
        Ok(Self { white, dark, white_dark: white_dark.transpose()? })
    }

    fn files(&self) -> Vec<&PathBuf> {
        let sources = [&self.white, &self.dark, &self.white_dark].into_iter().flatten();
        sources.flat_map(|source| &source.info().files).collect()
    }

    fn fingerprint(&self) -> Result<Option<String>> {
        /// Most cubes have the references of the cube before.
        static RECENT: Recent<String> = Recent::new();
        let of_file = |file: &PathBuf| {
            let read =
                || fingerprint(std::slice::from_ref(file)).map(|(_, fingerprint)| fingerprint);
            RECENT.get(file, |_| true, read)
        };
        let all = self.files().into_iter().map(of_file).collect::<Result<Vec<_>>>()?;
        let all: Vec<&str> = all.iter().map(|fingerprint| fingerprint.as_str()).collect();
        Ok((!all.is_empty()).then(|| all.join(" ")))
    }

    fn fit(&self, values: &ValueOptions, input: &Input, info: &CubeInfo) -> Fit {
        let (white, dark) = (file_of(&self.white), file_of(&self.dark));
        let mut fit = Fit { white_time: 1.0, notes: Vec::new(), white, dark, fingerprint: None };
        if let Some(file) = file_of(&self.white_dark) {
            fit.notes.push(format!(
                "{}: {} is subtracted from the white reference, and the dark reference from the cube",
                input.text(),
                file.display()
            ));
        }
        for (kind, source) in [("white", &self.white), ("dark", &self.dark)] {
            let Some(reference) = source.as_ref().map(|source| source.info()) else { continue };
            let mut note = |what: String| {
                let file = reference.files[0].display();
                fit.notes.push(format!("{}: {what} ({kind} reference {file})", input.text()));
            };
            let scalings = |info: &CubeInfo| (info.scaling, info.band_scaling.clone());
            if scalings(reference) != scalings(info) && !values.raw_values {
                note(format!(
                    "its numbers are scaled by {}, those of the reference by {}, as stated in each file",
                    scale_text(info),
                    scale_text(reference)
                ));
            }
            let (Some(ours), Some(theirs)) = (&info.exposure, &reference.exposure) else {
                if info.exposure != reference.exposure {
                    note("only one of the two files gives an integration time; it is assumed to be the same for both".into());
                }
                continue;
            };
            match theirs.ratio_to(ours) {
                Some(1.0) => {}
                Some(ratio) if kind == "white" => {
                    fit.white_time = ratio;
                    note(format!(
                        "{ours}, but {theirs} for the reference; corrected by their ratio"
                    ));
                }
                Some(_) => note(format!(
                    "{ours}, but {theirs} for the reference; subtracted without correction"
                )),
                None => note(format!(
                    "{ours} cannot be compared with {theirs}; they are assumed to be equal"
                )),
            }
        }
        fit
    }
}

/// The file of a reference.
fn file_of(reference: &Option<Box<dyn Source>>) -> Option<PathBuf> {
    reference.as_ref().map(|source| source.info().files[0].clone())
}

/// Refuses a reference that has the cube's type, if only one of the two files gives a scale. Most
/// likely the other file lost its scale, and the result would be meaningless.
fn check_scale(reference: &CubeInfo, input: &Input, cube: &CubeInfo) -> Result<()> {
    let scaled = [cube, reference].map(CubeInfo::is_scaled);
    if reference.dtype != cube.dtype || scaled[0] == scaled[1] {
        return Ok(());
    }
    let (with, without) = if scaled[0] {
        (input.text(), reference.files[0].display().to_string())
    } else {
        (reference.files[0].display().to_string(), input.text())
    };
    let scaled = if scaled[0] { cube } else { reference };
    Err(Error::conflict(format!(
        "{with} scales its numbers by {}, but {without} gives no scale",
        scale_text(scaled)
    ))
    .at(&reference.files[0])
    .with_remedy(remedy![
        "give both files the same scale factor, or calibrate stored numbers with ",
        Opt::RawValues
    ]))
}

fn scale_text(info: &CubeInfo) -> String {
    if info.radiometry.is_some() {
        return "background and gain of each column and band".to_owned();
    }
    if info.band_scaling.is_some() {
        return "a factor for each band".to_owned();
    }
    let Scaling { multiply, divide, add } = info.scaling;
    let add = if add == 0.0 { String::new() } else { format!(" and {add} added") };
    format!("{}{add}", multiply / divide)
}

/// The calibration of the cube in `input` with `bands` kept, for each column and band: first the
/// camera's calibration in the cube's file, then the references that `values` select.
///
/// # Errors
/// If a reference cannot be found or read, does not fit the cube, or is unusable: it is saturated,
/// or white is no brighter than dark.
pub fn load(
    values: &ValueOptions,
    input: &Input,
    info: &CubeInfo,
    bands: Option<&[usize]>,
) -> Result<Option<Calibration>> {
    let calibration = if values.raw_values { None } else { of_camera(info, bands)? };
    if values.white.is_none() && values.dark.is_none() {
        return Ok(calibration);
    }
    let references = References::open(values, input, info)?;
    let fit = references.fit(values, input, info);
    let columns = info.shape.columns;
    let mean = |source: &Option<Box<dyn Source>>, kind| {
        let mean = |source| mean_over_rows(source, kind, values.raw_values, columns, bands);
        source.as_deref().map(mean).transpose()
    };
    let white = mean(&references.white, Kind::White)?;
    let dark = mean(&references.dark, Kind::Dark)?;
    let white_dark = mean(&references.white_dark, Kind::Dark)?;
    if let Some(white) = &white {
        check_white(white, white_dark.as_ref().or(dark.as_ref()), &fit, input)?;
    }
    let count = columns * bands.map_or(info.shape.bands, <[usize]>::len);
    let dark = dark.map_or_else(|| vec![0.0; count], |dark| dark.values);
    let panel = values.white_reflectance * fit.white_time;
    let white_dark = white_dark.as_ref().map_or(&dark, |white_dark| &white_dark.values);
    let span = match white {
        // A dead column, which is no brighter than the dark reference, gives no value: 0 makes it NaN.
        Some(white) => (white.values.iter().zip(white_dark))
            .map(|(white, dark)| ((white - dark) / panel).max(0.0))
            .collect(),
        None => vec![1.0; count],
    };
    let references = Calibration::new(dark, span);
    Ok(Some(match calibration {
        Some(calibration) => calibration.then(&references),
        None => references,
    }))
}

/// The camera's calibration in a cube's file, if there is one.
///
/// # Errors
/// If it cannot be read.
pub fn of_camera(info: &CubeInfo, bands: Option<&[usize]>) -> Result<Option<Calibration>> {
    let Some(radiometry) = &info.radiometry else { return Ok(None) };
    Ok(Some(Calibration::of_places(&radiometry.read()?, info.shape.bands, bands)))
}

/// Refuses an unusable white reference.
fn check_white(white: &Mean, dark: Option<&Mean>, fit: &Fit, input: &Input) -> Result<()> {
    let file = fit.white.clone().unwrap_or_default();
    if white.saturated > MAX_SATURATED_SHARE {
        return Err(Error::conflict(format!(
            "the white reference of {} is saturated: {:.1} % of its values are {}",
            input.text(),
            100.0 * white.saturated,
            white.greatest
        ))
        .at(file)
        .with_remedy("take a white reference that was recorded with less light or a shorter integration time"));
    }
    let Some(dark) = dark else { return Ok(()) };
    let darker =
        white.values.iter().zip(&dark.values).filter(|(white, dark)| white <= dark).count();
    if 2 * darker > white.values.len() {
        let other = fit.dark.clone().unwrap_or_default();
        return Err(Error::conflict(format!(
            "the white reference of {} is no brighter than its dark reference {}",
            input.text(),
            other.display()
        ))
        .at(file)
        .with_remedy(remedy![
            "correct ",
            Opt::White,
            " and ",
            Opt::Dark,
            "; they may have been exchanged"
        ]));
    }
    Ok(())
}

/// Opens a reference and refuses one that does not fit the cube.
fn open_reference(
    reference: &Reference,
    kind: Kind,
    input: &Input,
    cube: &CubeInfo,
    values: &ValueOptions,
) -> Result<Box<dyn Source>> {
    open_fitting(&pairs::find(reference, kind, input)?, input, cube, values)
}

/// Opens the reference in `file` and refuses one that does not fit the cube. It is read as the
/// options say that cubes are read. If that does not fit, it may be in a file of another kind, for
/// which they do not hold.
fn open_fitting(
    file: &Input,
    input: &Input,
    cube: &CubeInfo,
    values: &ValueOptions,
) -> Result<Box<dyn Source>> {
    let fitting = |opened: Result<Box<dyn Source>>| {
        let source = opened?;
        check_grid(source.info(), input, cube).map_err(|error| error.at(&file.file))?;
        Ok(source)
    };
    fitting(open_file(file, values)).or_else(|error| {
        let options = OpenOptions { variable: file.variable.clone(), ..Default::default() };
        fitting(hsipack_source::open(&file.file, &options)).map_err(|_| error)
    })
}

fn check_grid(reference: &CubeInfo, input: &Input, cube: &CubeInfo) -> Result<()> {
    let (theirs, ours) = (reference.shape, cube.shape);
    if theirs.bands != ours.bands || ![1, ours.columns].contains(&theirs.columns) {
        return Err(Error::conflict(format!(
            "the reference has {} columns and {} bands, but the cube has {} and {}",
            theirs.columns, theirs.bands, ours.columns, ours.bands
        ))
        .with_remedy("give a reference with the same sensor settings, or with one column"));
    }
    let (Some(theirs), Some(ours)) = (&reference.wavelength, &cube.wavelength) else {
        return Ok(());
    };
    let far = |(a, b): (&f64, &f64)| (a - b).abs() > SAME_BAND_NM;
    match theirs.iter().zip(ours).position(far) {
        None => Ok(()),
        Some(band) => Err(Error::conflict(format!(
            "band {band} is at {} nm in the reference; in {} it is at {} nm",
            theirs[band],
            input.text(),
            ours[band]
        ))
        .with_remedy("give a reference with the same sensor settings, or correct the wavelengths of one of them")),
    }
}

/// The mean of a reference over its rows.
struct Mean {
    /// One value for each (column, band): physical values, or stored values if requested.
    values: Vec<f64>,
    /// The greatest stored value of a white reference.
    greatest: f64,
    /// The share of its values that equal `greatest`, if that is the greatest value of a camera
    /// with some number of bits; otherwise 0.
    saturated: f64,
}

/// The greatest values of cameras with 8, 10, 12, 14 and 16 bits; signed 16-bit numbers hold 15
/// bits.
const FULL: [f64; 6] = [255.0, 1023.0, 4095.0, 16383.0, 32767.0, 65535.0];
/// If a larger share of a white reference is saturated, the cause is not a few broken pixels.
const MAX_SATURATED_SHARE: f64 = 0.005;

/// The mean spectrum of every column of a reference, for the selected bands: physical values, or
/// stored values if `raw` is set. A reference with one column is used for every column.
fn mean_over_rows(
    source: &dyn Source,
    kind: Kind,
    raw: bool,
    columns: usize,
    bands: Option<&[usize]>,
) -> Result<Mean> {
    let info = source.info();
    let kept = bands.map(<[usize]>::to_vec);
    let stored =
        Transform { bands: kept.clone(), nodata: info.ignore_value, ..Transform::identity(info) };
    let transform = match raw {
        true => stored.clone(),
        false => Transform {
            calibration: of_camera(info, bands)?.map(Arc::new),
            ..Transform::physical(info, kept)
        },
    };
    let kept = transform.out_bands();
    // The greatest stored value matters only for white references.
    let sums = sum_rows(source, &transform, Some(&stored).filter(|_| kind == Kind::White))?;
    let means: Vec<f64> =
        sums.sums.iter().zip(&sums.counts).map(|(sum, count)| sum / f64::from(*count)).collect();
    let values = if info.shape.columns == columns {
        means
    } else {
        means.repeat(columns)[..columns * kept].to_vec()
    };
    let full = !info.dtype.is_float() && FULL.contains(&sums.greatest);
    let share = sums.as_great as f64 / (info.shape.rows * sums.counts.len()).max(1) as f64;
    let saturated = if full { share } else { 0.0 };
    Ok(Mean { values, greatest: sums.greatest, saturated })
}

/// Sums of the values of each column and band, their counts, and the greatest stored value.
struct Sums {
    sums: Vec<f64>,
    counts: Vec<u32>,
    greatest: f64,
    as_great: u64,
}

fn sum_rows(
    source: &dyn Source,
    transform: &Transform,
    stored: Option<&Transform>,
) -> Result<Sums> {
    let shape = source.info().shape;
    let bands = transform.out_bands();
    let len = shape.columns * bands;
    let mut all = Sums {
        sums: vec![0.0; len],
        counts: vec![0; len],
        greatest: f64::NEG_INFINITY,
        as_great: 0,
    };
    let (mut buffer, mut scratch) = (RowBuffer::new(), Scratch::default());
    let step = source.preferred_rows(64 << 20);
    for start in (0..shape.rows).step_by(step) {
        let end = shape.rows.min(start + step);
        source.read_rows(start..end, &mut buffer)?;
        transform.apply_f64(&buffer, start, &mut scratch, &mut |position, values| {
            for (at, value) in values.iter().enumerate().filter(|(_, value)| value.is_finite()) {
                let slot = (position.column * bands + at) % len;
                all.sums[slot] += value;
                all.counts[slot] += 1;
            }
            Ok(())
        })?;
        let Some(stored) = stored else { continue };
        stored.apply_f64(&buffer, start, &mut scratch, &mut |_, values| {
            for value in values {
                match value.partial_cmp(&all.greatest) {
                    Some(Ordering::Greater) => (all.greatest, all.as_great) = (*value, 1),
                    Some(Ordering::Equal) => all.as_great += 1,
                    _ => {}
                }
            }
            Ok(())
        })?;
    }
    Ok(all)
}
