//! White and dark references: (value − dark) / (white − dark).

use std::path::{Path, PathBuf};

use hsipack_format::{CubeShape, Error, Result};

use super::options::{Reference, ValueOptions};
use crate::input::Input;
use crate::source::{OpenOptions, RowBuffer, Source};

use super::transform::{Scratch, Transform};

/// References of one cube, averaged over their rows: one value a column and band.
#[derive(Clone, Debug, PartialEq)]
pub struct Calibration {
    /// Subtracted; one value a (column, band) of the selected bands.
    dark: Vec<f64>,
    /// Divided by, after the subtraction: (white − dark) / reflectance of the panel.
    span: Vec<f64>,
}

impl Calibration {
    /// The references that `options` ask for, for the cube in `input` of `shape`, with `bands` kept.
    ///
    /// # Errors
    /// If a reference cannot be found or read, or does not fit the cube.
    pub fn load(
        options: &ValueOptions,
        input: &Input,
        shape: CubeShape,
        bands: Option<&[usize]>,
    ) -> Result<Option<Self>> {
        let load = |reference: &Option<Reference>, kind: &str| match reference {
            None => Ok(None),
            Some(reference) => {
                let file = match reference {
                    Reference::File(file) => Input::parse(file),
                    Reference::Auto => {
                        beside(&input.file, kind).map(|file| Input::of(&file)).ok_or_else(|| {
                            Error::conflict(format!("no {kind}_{} beside it", stem(&input.file)))
                                .at(&input.file)
                                .with_remedy("name the reference file, or leave the option away")
                        })?
                    }
                };
                mean_over_rows(&file, shape, bands).map(Some)
            }
        };
        let white = load(&options.white, "WHITEREF")?;
        let dark = load(&options.dark, "DARKREF")?;
        if white.is_none() && dark.is_none() {
            return Ok(None);
        }
        let values = shape.columns * bands.map_or(shape.bands, <[usize]>::len);
        let dark = dark.unwrap_or_else(|| vec![0.0; values]);
        let span = match white {
            Some(white) => white
                .iter()
                .zip(&dark)
                .map(|(white, dark)| (white - dark) / options.white_reflectance)
                .collect(),
            None => vec![1.0; values],
        };
        Ok(Some(Self { dark, span }))
    }

    /// Calibrates whole pixels of `bands` bands in place, the first being in `column` of a row of
    /// `columns`. Where white and dark agree the result is NaN: nothing is known there.
    pub fn apply(&self, values: &mut [f64], bands: usize, column: usize, columns: usize) {
        for (pixel, spectrum) in values.chunks_exact_mut(bands).enumerate() {
            let start = (column + pixel) % columns * bands;
            let references = self.dark[start..].iter().zip(&self.span[start..]);
            for (value, (dark, span)) in spectrum.iter_mut().zip(references) {
                *value = if *span == 0.0 { f64::NAN } else { (*value - dark) / span };
            }
        }
    }
}

fn stem(file: &Path) -> String {
    file.file_stem().unwrap_or_default().to_string_lossy().into_owned()
}

/// `WHITEREF_NAME` or `DARKREF_NAME` beside the cube `NAME`, if there is one.
pub fn beside(file: &Path, kind: &str) -> Option<PathBuf> {
    let name = format!("{kind}_{}.hdr", stem(file));
    Some(file.with_file_name(name)).filter(|candidate| candidate.is_file())
}

/// The mean spectrum of every column of a reference, for the selected bands. A reference of one column
/// serves every column.
fn mean_over_rows(file: &Input, shape: CubeShape, bands: Option<&[usize]>) -> Result<Vec<f64>> {
    let options = OpenOptions { variable: file.variable.clone(), ..Default::default() };
    let source = crate::source::open(&file.file, &options)?;
    let reference = source.info().shape;
    if reference.bands != shape.bands || ![1, shape.columns].contains(&reference.columns) {
        return Err(Error::conflict(format!(
            "the reference has {} columns and {} bands, the cube {} and {}",
            reference.columns, reference.bands, shape.columns, shape.bands
        ))
        .at(&file.file)
        .with_remedy("give a reference of the same sensor settings, or of one column"));
    }
    let mut transform = Transform::identity(source.info());
    transform.bands = bands.map(<[usize]>::to_vec);
    transform.ignore_value = source.info().ignore_value;
    let kept = transform.out_bands();
    let (sums, counts) = sum_rows(&*source, &transform)?;
    let means: Vec<f64> =
        sums.iter().zip(counts).map(|(sum, count)| sum / f64::from(count)).collect();
    Ok(if reference.columns == shape.columns {
        means
    } else {
        means.repeat(shape.columns)[..shape.columns * kept].to_vec()
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
