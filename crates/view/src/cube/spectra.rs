//! Means and standard deviations of rectangles and classes.

use std::collections::BTreeMap;

use hsipack_format::{Error, MaskValue, Result, mask};
use hsipack_pack::physical::Cube;
use hsipack_pack::spectra::Spectrum;

use super::cache::CachedCube;
use super::deadline::Deadline;
use crate::query::Window;

/// Maximum number of pixels in a rectangle.
const MAX_PIXELS: usize = 4_000_000;

/// The spectra of a rectangle.
///
/// # Errors
/// If it has too many pixels, the cube cannot be read, or reading takes too long.
pub fn of_window(
    cube: &Cube,
    held: Option<&CachedCube>,
    window: &Window,
    deadline: Deadline,
) -> Result<Spectrum> {
    if window.pixels() > MAX_PIXELS {
        return Err(Error::conflict(format!("the rectangle has {} pixels", window.pixels()))
            .with_remedy(format!("choose a rectangle of at most {MAX_PIXELS} pixels")));
    }
    let bands = cube.shape.bands;
    let mut spectrum = Spectrum::new(bands);
    if let Some(held) = held.filter(|held| held.is_whole) {
        let mut pixel = vec![0.0; bands];
        for row in window.rows.clone() {
            for column in window.columns.clone() {
                add(&mut spectrum, held.spectrum(held.place(row, column)), &mut pixel);
            }
        }
        return Ok(spectrum);
    }
    let step = cube.block_rows().max(1);
    let mut start = window.rows.start;
    while start < window.rows.end {
        deadline.check()?;
        let end = (start - start % step + step).min(window.rows.end);
        cube.read_rows(start..end, &mut |_, first, values| {
            for (column, pixel) in (first..).zip(values.chunks_exact(bands)) {
                if window.columns.contains(&column) {
                    spectrum.add(pixel);
                }
            }
            Ok(())
        })?;
        start = end;
    }
    Ok(spectrum)
}

/// The spectra of each class, or layer if the mask has `layers`, from the held pixels. `mask` has
/// the value of each of these pixels.
pub fn of_classes(
    held: &CachedCube,
    mask: &[MaskValue],
    layers: bool,
    bands: usize,
) -> BTreeMap<u16, Spectrum> {
    let mut classes: BTreeMap<u16, Spectrum> = BTreeMap::new();
    let mut pixel = vec![0.0; bands];
    for (index, value) in mask.iter().enumerate() {
        let spectrum = held.spectrum(index);
        let mut to = |class| {
            let sums = classes.entry(class).or_insert_with(|| Spectrum::new(bands));
            add(sums, spectrum, &mut pixel);
        };
        match layers {
            false => to(*value as u16),
            true => mask::layers_of(*value).for_each(|layer| to(layer as u16)),
        }
    }
    classes
}

fn add(spectrum: &mut Spectrum, values: &[f32], pixel: &mut [f64]) {
    pixel.iter_mut().zip(values).for_each(|(to, from)| *to = f64::from(*from));
    spectrum.add(pixel);
}
