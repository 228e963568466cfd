//! ENVI: a header (`.hdr`) and band-interleaved-by-pixel data (`.img`), little-endian.
//!
//! ENVI has no float16; float32 holds every float16 exactly. `scale_factor` travels as
//! `reflectance scale factor`, by which readers divide, where dividing by its reciprocal is the same. `add_offset` has
//! no field that readers know, so that physical values are written where there is one.

use std::fmt::Write;
use std::path::Path;

use hsipack_format::metadata::Scaling;
use hsipack_format::{DType, Result};

use super::{Job, Written, to_f32};
use crate::staged::Staged;

/// How values are written.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Values {
    /// As stored, widened to float32; `divisor` makes them physical.
    Stored { divisor: f64 },
    /// Physical ones, in a type that still tells stored values apart.
    Scaled(DType),
}

fn values(Scaling { factor: scale, offset }: Scaling, stored: DType) -> Values {
    let divisor = 1.0 / scale;
    if offset != 0.0 {
        Values::Scaled(DType::F64)
    } else if divisor.is_finite() && 1.0 / divisor == scale {
        Values::Stored { divisor }
    } else if stored == DType::F16 && (1e-30..1e30).contains(&scale.abs()) {
        Values::Scaled(DType::F32)
    } else {
        Values::Scaled(DType::F64)
    }
}

/// Writes both files, the header last: without it the data are no cube yet.
pub(super) fn write(job: &Job, header_path: &Path, data_path: &Path) -> Result<Written> {
    let (stored, scaling) = (job.array.meta().dtype, job.scaling());
    let mut data = Staged::create(data_path)?;
    let mut header = Staged::create(header_path)?;
    if job.is_mask {
        job.each_slab(&mut |bytes| data.write(bytes))?;
        header.write(mask_header(job).as_bytes())?;
        data.commit()?;
        header.commit()?;
        return Ok((stored, Scaling::NONE, Vec::new()));
    }
    let values = values(scaling, stored);
    let mut singles = Vec::new();
    job.each_slab(&mut |bytes| {
        to_f32(bytes, stored, &mut singles);
        match values {
            Values::Stored { .. } => data.write(bytemuck::cast_slice(&singles)),
            Values::Scaled(dtype) => data.write(&scaled(&singles, scaling, dtype)),
        }
    })?;
    header.write(image_header(job, values).as_bytes())?;
    data.commit()?;
    header.commit()?;
    Ok(match values {
        Values::Stored { .. } => (DType::F32, scaling, Vec::new()),
        Values::Scaled(dtype) => {
            let Scaling { factor, offset } = scaling;
            let note = if offset == 0.0 {
                format!(
                    "values are multiplied by {factor}; divide by it and round to {stored} for the stored ones"
                )
            } else {
                format!(
                    "values are multiplied by {factor}, and {offset} is added; \
                     subtract, divide and round to {stored} for the stored ones"
                )
            };
            (dtype, Scaling::NONE, vec![note])
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

fn layout(job: &Job, file_type: &str, code: u8) -> String {
    let (shape, sample) = (job.array.shape(), job.sample);
    let description = plain(&format!("hsipack export of sample {}: {}", sample.id, sample.name));
    format!(
        "ENVI\ndescription = {{{description}}}\nsamples = {}\nlines = {}\nbands = {}\n\
         header offset = 0\nfile type = {file_type}\ndata type = {code}\ninterleave = bip\n\
         byte order = 0\n",
        shape.columns, shape.rows, shape.bands
    )
}

fn image_header(job: &Job, values: Values) -> String {
    let code = if values == Values::Scaled(DType::F64) { 5 } else { 4 };
    let mut text = layout(job, "ENVI Standard", code);
    text.push_str("data ignore value = NaN\n");
    if let Values::Stored { divisor } = values
        && divisor != 1.0
    {
        // Writing to a String cannot fail, here and below.
        let _ = writeln!(text, "reflectance scale factor = {divisor}");
    }
    if let Some(wavelength) = &job.stack.wavelength {
        text.push_str("wavelength units = Nanometers\n");
        list(&mut text, "wavelength", wavelength.iter().map(f64::to_string));
        // Without wavelengths there is no unit for it to be in.
        if let Some(fwhm) = &job.stack.fwhm {
            list(&mut text, "fwhm", fwhm.iter().map(f64::to_string));
        }
    }
    if let Some(good) = job.stack.image.meta().band_notes().good_bands {
        list(&mut text, "bbl", good.iter().map(|good| u8::from(*good).to_string()));
    }
    if let Some(names) = job.array.meta().band_notes().band_names {
        list(&mut text, "band names", names.iter().map(|name| plain(name)));
    }
    text
}

fn mask_header(job: &Job) -> String {
    let code = if job.array.meta().dtype == DType::U16 { 12 } else { 1 };
    let Some(names) = job.array.meta().mask_meaning().class_names else {
        // Ids without names, or bits of layers: a plain image of whole numbers.
        let mut text = layout(job, "ENVI Standard", code);
        let layers = job.array.meta().mask_meaning().layers;
        if !layers.is_empty() {
            let bits = layers.iter().enumerate().map(|(bit, name)| format!("bit {bit} {name}"));
            let name =
                format!("bits of {}: {}", job.array.name(), bits.collect::<Vec<_>>().join("; "));
            list(&mut text, "band names", [plain(&name)]);
        }
        return text;
    };
    let mut text = layout(job, "ENVI Classification", code);
    let _ = writeln!(text, "classes = {}", names.len());
    list(&mut text, "class names", names.iter().map(|name| plain(name)));
    let colours = (0..names.len()).flat_map(crate::preview::palette::class_colour);
    list(&mut text, "class lookup", colours.map(|part| part.to_string()));
    text
}

/// A list in braces, lines of eight.
fn list(text: &mut String, key: &str, items: impl IntoIterator<Item = String>) {
    let items: Vec<String> = items.into_iter().collect();
    let lines: Vec<String> = items.chunks(8).map(|line| line.join(", ")).collect();
    let _ = writeln!(text, "{key} = {{\n  {}}}", lines.join(",\n  "));
}

/// Text without what would end a list or an entry.
fn plain(text: &str) -> String {
    text.replace(['{', '}', ',', '\n', '\r', ';'], " ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(factor: f64, stored: DType) -> Values {
        values(Scaling { factor, offset: 0.0 }, stored)
    }

    #[test]
    fn factors_become_divisors_where_that_is_exact() {
        assert_eq!(of(1.0, DType::F16), Values::Stored { divisor: 1.0 });
        assert_eq!(of(0.0009765625, DType::F16), Values::Stored { divisor: 1024.0 });
        assert_eq!(of(0.0001, DType::F16), Values::Stored { divisor: 10000.0 });
        // 1 / (1 / x) is not x for these.
        let odd = (1..1000).map(f64::from).find(|x| 1.0 / (1.0 / x) != *x).unwrap();
        assert_eq!(of(odd, DType::F16), Values::Scaled(DType::F32));
        assert_eq!(of(odd, DType::F32), Values::Scaled(DType::F64));
    }

    #[test]
    fn scaled_values_give_the_stored_ones_back() {
        let odd = (1..1000).map(f64::from).find(|x| 1.0 / (1.0 / x) != *x).unwrap();
        let stored: Vec<f32> =
            (0..0x7c00).map(|bits| half::f16::from_bits(bits).to_f32()).collect();
        let bytes = scaled(&stored, Scaling { factor: odd, offset: 0.0 }, DType::F32);
        let (singles, _) = bytes.as_chunks::<4>();
        for (single, stored) in singles.iter().zip(&stored) {
            let back = f64::from(f32::from_le_bytes(*single)) / odd;
            assert_eq!(half::f16::from_f64(back).to_f32(), *stored);
        }
    }
}
