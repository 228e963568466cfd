//! White and dark references of a cube: finding and opening them, comparing them with it, averaging them.
//!
//! Every file's own scaling is applied first. Where the white reference was recorded with another integration time than
//! the cube, the quotient is multiplied with time of white / time of cube, as the makers do.

use std::path::{Path, PathBuf};

use hsipack_format::{Error, Opt, Result, remedy};

use super::options::{Reference, ValueOptions};
use crate::input::Input;
use crate::source::{CubeInfo, OpenOptions, RowBuffer, Scaling, Source};

use super::calibration::Calibration;
use super::transform::{Scratch, Transform};

/// What the references say of themselves that a calibration depends on, seen from the cube.
#[derive(Clone, Debug, PartialEq)]
pub struct Fit {
    /// Time of white / time of cube; 1 where it is not known, or there is no white reference.
    white_time: f64,
    /// What the user should know.
    pub notes: Vec<String>,
}

/// Centres of bands that lie further apart, in nm, are of other bands.
const SAME_BAND_NM: f64 = 0.1;

/// Opens the references that `options` ask for, for the cube in `input`, and compares them with it.
///
/// # Errors
/// If a reference cannot be found or opened, or does not fit the cube.
pub fn check(options: &ValueOptions, input: &Input, info: &CubeInfo) -> Result<Fit> {
    let references = References::open(options, input, info)?;
    Ok(references.fit(options, input, info))
}

/// The references of a cube, opened.
struct References {
    white: Option<Box<dyn Source>>,
    dark: Option<Box<dyn Source>>,
}

impl References {
    fn open(options: &ValueOptions, input: &Input, info: &CubeInfo) -> Result<Self> {
        let open = |reference: &Option<Reference>, kind: &str| match reference {
            None => Ok(None),
            Some(reference) => {
                let source = open_reference(reference, kind, input, info)?;
                if !options.raw_values {
                    check_scale(source.info(), input, info)?;
                }
                Ok(Some(source))
            }
        };
        Ok(Self { white: open(&options.white, "WHITEREF")?, dark: open(&options.dark, "DARKREF")? })
    }

    fn fit(&self, options: &ValueOptions, input: &Input, info: &CubeInfo) -> Fit {
        let mut fit = Fit { white_time: 1.0, notes: Vec::new() };
        for (kind, source) in [("white", &self.white), ("dark", &self.dark)] {
            let Some(reference) = source.as_ref().map(|source| source.info()) else { continue };
            let mut note = |what: String| {
                let file = reference.files[0].display();
                fit.notes.push(format!("{}: {what} ({kind} reference {file})", input.text()));
            };
            let scalings = |info: &CubeInfo| (info.scaling, info.band_scaling.clone());
            if scalings(reference) != scalings(info) && !options.raw_values {
                note(format!(
                    "its numbers are scaled by {}, the reference's by {}, as each file says",
                    scale_text(info),
                    scale_text(reference)
                ));
            }
            let (Some(ours), Some(theirs)) = (&info.exposure, &reference.exposure) else {
                if info.exposure != reference.exposure {
                    note("only one of the two gives an integration time; taken to be alike".into());
                }
                continue;
            };
            match theirs.ratio_to(ours) {
                Some(1.0) => {}
                Some(ratio) if kind == "white" => {
                    fit.white_time = ratio;
                    note(format!(
                        "{ours}, but {theirs} of the reference; corrected by their ratio"
                    ));
                }
                Some(_) => {
                    note(format!("{ours}, but {theirs} of the reference; subtracted as it is"))
                }
                None => note(format!("{ours} cannot be compared with {theirs}; taken to be alike")),
            }
        }
        fit
    }
}

/// Refuses a reference of the cube's own type where only one of them says how its numbers are scaled: most likely the other
/// lost it on the way, and what came of the two would mean nothing.
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
        "{with} scales its numbers by {}, but {without} says nothing of a scale",
        scale_text(scaled)
    ))
    .at(&reference.files[0])
    .with_remedy(remedy![
        "give both files the same scale factor, or calibrate stored numbers with ",
        Opt::RawValues
    ]))
}

fn scale_text(info: &CubeInfo) -> String {
    if info.band_scaling.is_some() {
        return "a factor for each band".to_owned();
    }
    let Scaling { multiply, divide, add } = info.scaling;
    let add = if add == 0.0 { String::new() } else { format!(" and {add} added") };
    format!("{}{add}", multiply / divide)
}

/// The references that `options` ask for, for the cube in `input`, with `bands` kept.
///
/// # Errors
/// If a reference cannot be found or read, or does not fit the cube.
pub fn load(
    options: &ValueOptions,
    input: &Input,
    info: &CubeInfo,
    bands: Option<&[usize]>,
) -> Result<Option<Calibration>> {
    if options.white.is_none() && options.dark.is_none() {
        return Ok(None);
    }
    let references = References::open(options, input, info)?;
    let fit = references.fit(options, input, info);
    let columns = info.shape.columns;
    let mean = |source: &Option<Box<dyn Source>>| {
        let source = source.as_deref();
        source.map(|source| mean_over_rows(source, options.raw_values, columns, bands)).transpose()
    };
    let (white, dark) = (mean(&references.white)?, mean(&references.dark)?);
    let values = columns * bands.map_or(info.shape.bands, <[usize]>::len);
    let dark = dark.unwrap_or_else(|| vec![0.0; values]);
    let panel = options.white_reflectance * fit.white_time;
    let span = match white {
        Some(white) => {
            white.iter().zip(&dark).map(|(white, dark)| (white - dark) / panel).collect()
        }
        None => vec![1.0; values],
    };
    Ok(Some(Calibration::new(dark, span)))
}

fn stem(file: &Path) -> String {
    file.file_stem().unwrap_or_default().to_string_lossy().into_owned()
}

/// `WHITEREF_NAME` or `DARKREF_NAME` beside the cube `NAME`, if there is one.
pub fn beside(file: &Path, kind: &str) -> Option<PathBuf> {
    let name = format!("{kind}_{}.hdr", stem(file));
    Some(file.with_file_name(name)).filter(|candidate| candidate.is_file())
}

/// Opens a reference and refuses one that does not fit the cube.
fn open_reference(
    reference: &Reference,
    kind: &str,
    input: &Input,
    cube: &CubeInfo,
) -> Result<Box<dyn Source>> {
    let file = match reference {
        Reference::File(file) => Input::parse(file).here()?,
        Reference::Auto => {
            let found = beside(&input.file, kind).map(|file| Input::of(&file));
            found.ok_or_else(|| {
                Error::conflict(format!("no {kind}_{} beside it", stem(&input.file)))
                    .at(&input.file)
                    .with_remedy("name the reference file, or leave the option away")
            })?
        }
    };
    let options = OpenOptions { variable: file.variable.clone(), ..Default::default() };
    let source = crate::source::open(&file.file, &options)?;
    check_grid(source.info(), input, cube).map_err(|error| error.at(&file.file))?;
    Ok(source)
}

fn check_grid(reference: &CubeInfo, input: &Input, cube: &CubeInfo) -> Result<()> {
    let (theirs, ours) = (reference.shape, cube.shape);
    if theirs.bands != ours.bands || ![1, ours.columns].contains(&theirs.columns) {
        return Err(Error::conflict(format!(
            "the reference has {} columns and {} bands, the cube {} and {}",
            theirs.columns, theirs.bands, ours.columns, ours.bands
        ))
        .with_remedy("give a reference of the same sensor settings, or of one column"));
    }
    let (Some(theirs), Some(ours)) = (&reference.wavelength, &cube.wavelength) else {
        return Ok(());
    };
    let far = |(a, b): (&f64, &f64)| (a - b).abs() > SAME_BAND_NM;
    match theirs.iter().zip(ours).position(far) {
        None => Ok(()),
        Some(band) => Err(Error::conflict(format!(
            "band {band} of the reference is at {} nm, that of {} at {} nm",
            theirs[band],
            input.text(),
            ours[band]
        ))
        .with_remedy("give a reference of the same sensor settings, or correct the wavelengths of one of them")),
    }
}

/// The mean spectrum of every column of a reference, for the selected bands, in physical values unless `raw`. A
/// reference of one column serves every column.
fn mean_over_rows(
    source: &dyn Source,
    raw: bool,
    columns: usize,
    bands: Option<&[usize]>,
) -> Result<Vec<f64>> {
    let info = source.info();
    let bands = bands.map(<[usize]>::to_vec);
    let transform = match raw {
        true => {
            let ignore_value = info.ignore_value;
            Transform { bands, ignore_value, ..Transform::identity(info) }
        }
        false => Transform::physical(info, bands),
    };
    let kept = transform.out_bands();
    let (sums, counts) = sum_rows(source, &transform)?;
    let means: Vec<f64> =
        sums.iter().zip(counts).map(|(sum, count)| sum / f64::from(count)).collect();
    Ok(if info.shape.columns == columns {
        means
    } else {
        means.repeat(columns)[..columns * kept].to_vec()
    })
}

fn sum_rows(source: &dyn Source, transform: &Transform) -> Result<(Vec<f64>, Vec<u32>)> {
    let shape = source.info().shape;
    let bands = transform.out_bands();
    let mut sums = vec![0.0; shape.columns * bands];
    let mut counts = vec![0u32; sums.len()];
    let (mut buffer, mut scratch) = (RowBuffer::new(), Scratch::default());
    let step = source.preferred_rows(64 << 20);
    for start in (0..shape.rows).step_by(step) {
        let end = shape.rows.min(start + step);
        source.read_rows(start..end, &mut buffer)?;
        transform.apply_f64(&buffer, start, &mut scratch, &mut |place, values| {
            for (at, value) in values.iter().enumerate().filter(|(_, value)| value.is_finite()) {
                let slot = (place.column * bands + at) % sums.len();
                sums[slot] += value;
                counts[slot] += 1;
            }
            Ok(())
        })?;
    }
    Ok((sums, counts))
}
