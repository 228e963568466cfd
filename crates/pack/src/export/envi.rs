//! ENVI: a header (`.hdr`) and band-interleaved-by-pixel data (`.img`), little-endian.
//!
//! ENVI has no float16, but float32 can hold every float16 value exactly. If dividing by its
//! reciprocal gives the same values, `scale_factor` is written as `reflectance scale factor`, by
//! which readers divide, and integers stay integers. Readers know no field for `add_offset`, so
//! physical values are written if there is one.

use std::fmt::Write;
use std::path::Path;

use hsipack_format::metadata::Scaling;
use hsipack_format::{CubeShape, DType, Result};

use super::raster::Raster;
use super::{Written, map_info, to_f32};
use crate::convert::integers;
use crate::preview::palette::class_colour;
use crate::staged::Staged;

/// How values are written.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Values {
    /// As stored; float16 is widened to float32. Dividing by `divisor` gives physical values.
    Stored { divisor: f64 },
    /// Physical values, in a type that can still distinguish all stored values.
    Scaled(DType),
}

/// Whether readers take a divisor for a multiplier: 0.001 and other powers of ten below 1.
fn looks_like_multiplier(divisor: f64) -> bool {
    let power = divisor.log10();
    divisor < 1.0 && (power - power.round()).abs() < 1e-9
}

fn values(Scaling { factor: scale, offset, .. }: Scaling, stored: DType) -> Values {
    let divisor = 1.0 / scale;
    if offset != 0.0 {
        Values::Scaled(DType::F64)
    } else if divisor.is_finite() && 1.0 / divisor == scale && !looks_like_multiplier(divisor) {
        Values::Stored { divisor }
    } else if stored != DType::F32 && (1e-30..1e30).contains(&scale.abs()) {
        Values::Scaled(DType::F32)
    } else {
        Values::Scaled(DType::F64)
    }
}

/// Writes both files. The header comes last, because without it the data are not a cube yet.
pub(super) fn write(raster: &Raster<'_>, header_path: &Path, data_path: &Path) -> Result<Written> {
    let (stored, scaling) = (raster.dtype, raster.scaling);
    let mut data = Staged::create(data_path)?;
    let mut header = Staged::create(header_path)?;
    let values = values(scaling, stored);
    let (mut singles, mut greatest_id) = (Vec::new(), None);
    (raster.rows)(&mut |bytes| {
        if raster.class_names.is_some() {
            greatest_id = greatest_id.max(greatest(bytes, raster));
        }
        if raster.is_whole() && matches!(values, Values::Stored { .. }) {
            return data.write(bytes);
        }
        to_f32(bytes, stored, &mut singles);
        match values {
            Values::Stored { .. } => data.write(bytemuck::cast_slice(&singles)),
            Values::Scaled(dtype) => data.write(&scaled(&singles, scaling, dtype)),
        }
    })?;
    let mut notes = Vec::new();
    let classes = greatest_id.map_or(0, |id| id + 1);
    header.write(header_text(raster, values, classes, &mut notes).as_bytes())?;
    data.commit()?;
    header.commit()?;
    Ok(match values {
        Values::Stored { .. } if raster.is_whole() => (stored, scaling, notes),
        Values::Stored { .. } => (DType::F32, scaling, notes),
        Values::Scaled(dtype) => {
            let Scaling { factor, offset, .. } = scaling;
            notes.push(if offset == 0.0 {
                format!(
                    "values are multiplied by {factor}; for the stored values, divide by it and round to {stored}"
                )
            } else {
                format!(
                    "values are multiplied by {factor}, and {offset} is added; for the stored values, subtract, divide and round to {stored}"
                )
            });
            (dtype, Scaling::NONE, notes)
        }
    })
}

fn scaled(values: &[f32], scaling: Scaling, dtype: DType) -> Vec<u8> {
    let physical = values.iter().map(|value| scaling.physical(f64::from(*value)));
    match dtype {
        DType::F32 => physical.flat_map(|value| (value as f32).to_le_bytes()).collect(),
        _ => physical.flat_map(f64::to_le_bytes).collect(),
    }
}

/// The greatest class id in `bytes`, other than that of pixels without data.
fn greatest(bytes: &[u8], raster: &Raster<'_>) -> Option<usize> {
    let mut ids = Vec::new();
    integers::read(bytes, raster.dtype, &mut ids);
    let of_classes = ids.into_iter().filter(|id| raster.nodata != Some(*id));
    of_classes.map(|id| id as usize).max()
}

/// The text of the header. Readers need a name and a colour for each of `classes` classes, if there
/// are classes.
fn header_text(
    raster: &Raster<'_>,
    values: Values,
    classes: usize,
    notes: &mut Vec<String>,
) -> String {
    let code = match raster.dtype {
        _ if values == Values::Scaled(DType::F64) => 5,
        _ if values == Values::Scaled(DType::F32) => 4,
        DType::I16 => 2,
        DType::U8 => 1,
        DType::U16 => 12,
        DType::U32 => 13,
        DType::U64 => 15,
        _ => 4,
    };
    let class_names = raster.class_names.as_deref();
    let file_type = if class_names.is_some() { "ENVI Classification" } else { "ENVI Standard" };
    let CubeShape { rows, columns, bands } = raster.shape;
    let title = plain(&raster.title);
    let mut text = format!(
        "ENVI\ndescription = {{{title}}}\nsamples = {columns}\nlines = {rows}\nbands = {bands}\n\
         header offset = 0\nfile type = {file_type}\ndata type = {code}\ninterleave = bip\n\
         byte order = 0\n"
    );
    // Writing to a `String` cannot fail, here and below.
    // Missing values are NaN once they are scaled.
    let is_scaled = matches!(values, Values::Scaled(_));
    match raster.nodata {
        Some(value) if value.is_nan() || is_scaled => text.push_str("data ignore value = NaN\n"),
        Some(value) => _ = writeln!(text, "data ignore value = {value}"),
        None => {}
    }
    if let Values::Stored { divisor } = values
        && divisor != 1.0
    {
        let _ = writeln!(text, "reflectance scale factor = {divisor}");
    }
    if let Some(unit) = &raster.unit {
        let _ = writeln!(text, "data units = {}", plain(unit));
    }
    if let Some(geo) = &raster.geo {
        match map_info::lines(geo) {
            Ok(lines) => {
                text.push_str(&lines);
                notes.extend(map_info::note(geo).map(str::to_owned));
            }
            Err(note) => notes.push(note),
        }
    }
    bands_text(raster, &mut text);
    if let Some(names) = class_names {
        let colours = raster.class_colours.as_deref().unwrap_or_default();
        let classes = classes.max(names.len()).max(colours.len());
        let _ = writeln!(text, "classes = {classes}");
        let name = |id: usize| match names.get(id).map(|name| plain(name)) {
            Some(name) if !name.trim().is_empty() => name,
            _ => format!("class {id}"),
        };
        list(&mut text, "class names", (0..classes).map(name));
        let colour = |id: usize| colours.get(id).copied().unwrap_or_else(|| class_colour(id));
        list(&mut text, "class lookup", (0..classes).flat_map(colour).map(|part| part.to_string()));
    }
    text
}

fn bands_text(raster: &Raster<'_>, text: &mut String) {
    if let Some(wavelength) = raster.wavelength {
        text.push_str("wavelength units = Nanometers\n");
        list(text, "wavelength", wavelength.iter().map(f64::to_string));
        // Without wavelengths, fwhm has no unit.
        if let Some(fwhm) = raster.fwhm {
            list(text, "fwhm", fwhm.iter().map(f64::to_string));
        }
    }
    if let Some(good) = &raster.good_bands {
        list(text, "bbl", good.iter().map(|good| u8::from(*good).to_string()));
    }
    if let Some(names) = &raster.band_names {
        list(text, "band names", names.iter().map(|name| plain(name)));
    }
}

/// Writes a list in braces, in lines of eight entries.
fn list(text: &mut String, key: &str, items: impl IntoIterator<Item = String>) {
    let items: Vec<String> = items.into_iter().collect();
    let lines: Vec<String> = items.chunks(8).map(|line| line.join(", ")).collect();
    let _ = writeln!(text, "{key} = {{\n  {}}}", lines.join(",\n  "));
}

/// Replaces the characters that would end a list or an entry.
fn plain(text: &str) -> String {
    text.replace(['{', '}', ',', '\n', '\r', ';'], " ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(factor: f64, stored: DType) -> Values {
        values(Scaling { factor, ..Scaling::NONE }, stored)
    }

    #[test]
    fn factors_become_divisors_where_that_is_exact() {
        assert_eq!(of(1.0, DType::F16), Values::Stored { divisor: 1.0 });
        assert_eq!(of(0.0009765625, DType::F16), Values::Stored { divisor: 1024.0 });
        assert_eq!(of(0.0001, DType::F16), Values::Stored { divisor: 10000.0 });
        assert_eq!(of(64.0, DType::F16), Values::Stored { divisor: 0.015625 });
        assert!(matches!(of(1000.0, DType::F16), Values::Scaled(_)));
        // For these numbers, 1 / (1 / x) is not x.
        let odd = (1..1000).map(f64::from).find(|x| 1.0 / (1.0 / x) != *x).unwrap();
        assert_eq!(of(odd, DType::F16), Values::Scaled(DType::F32));
        assert_eq!(of(odd, DType::F32), Values::Scaled(DType::F64));
    }

    #[test]
    fn scaled_values_give_the_stored_ones_back() {
        let odd = (1..1000).map(f64::from).find(|x| 1.0 / (1.0 / x) != *x).unwrap();
        let stored: Vec<f32> =
            (0..0x7c00).map(|bits| half::f16::from_bits(bits).to_f32()).collect();
        let bytes = scaled(&stored, Scaling { factor: odd, ..Scaling::NONE }, DType::F32);
        let (singles, _) = bytes.as_chunks::<4>();
        for (single, stored) in singles.iter().zip(&stored) {
            let back = f64::from(f32::from_le_bytes(*single)) / odd;
            assert_eq!(half::f16::from_f64(back).to_f32(), *stored);
        }
    }
}
