//! A small picture of a cube, and what is found out while it is made.

use hsipack_format::Result;
use hsipack_pack::physical::Cube;
use hsipack_pack::preview::{self, Sampling};

use super::bands::{self, each_spectrum};
use super::cache::CachedCube;
use super::deadline::Deadline;

/// Default number of rows and of columns of a thumbnail.
pub const USUAL: usize = 160;
/// Maximum number of rows and of columns of a thumbnail.
pub const MAX_SIDE: usize = 512;

/// Summary of a cube at a glance.
#[derive(Debug)]
pub struct Glance {
    /// A picture, as a PNG file.
    pub png: Vec<u8>,
    /// The mean spectrum of the finite values that were read, and the band with the largest share
    /// of pixels at the cube's greatest value. Only if all bands were read for the picture anyway.
    pub spectrum: Option<(Vec<f32>, Clipped)>,
}

/// The band in which most pixels have the greatest value of all bands.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Clipped {
    /// The band.
    pub band: usize,
    /// The share of its pixels, 0 to 1.
    pub share: f32,
}

/// Looks at the cube. The picture is at most `side` pixels wide and high.
///
/// # Errors
/// If the cube cannot be read, or reading takes too long.
pub fn glance(
    cube: &Cube,
    held: Option<&CachedCube>,
    side: usize,
    deadline: Deadline,
) -> Result<Glance> {
    let shape = cube.shape;
    let shown = Sampling::new(shape.rows, shape.columns, side);
    let presets =
        preview::presets(shape.bands, cube.wavelength.as_deref(), cube.good_bands.as_deref());
    let channels = presets[0].bands;
    let mut rgb = vec![[f32::NAN; 3]; shown.pixels()];
    let mut spectrum = None;
    if cube.has_cheap_bands() {
        let values = bands::read(cube, held, &shown, &channels, deadline)?;
        for (at, pixel) in rgb.iter_mut().enumerate() {
            *pixel = [0, 1, 2].map(|plane| values[plane * shown.pixels() + at]);
        }
    } else {
        let mut sums = vec![Sums::default(); shape.bands];
        each_spectrum(cube, held, &shown, deadline, &mut |at, spectrum| {
            rgb[at] = channels.map(|band| spectrum[band]);
            sums.iter_mut().zip(spectrum).for_each(|(sums, value)| sums.add(*value));
        })?;
        spectrum = Some((sums.iter().map(Sums::mean).collect(), clipped(&sums)));
    }
    let png = preview::stretch(shown.columns.len(), shown.rows.len(), &rgb).png()?;
    Ok(Glance { png, spectrum })
}

/// The finite values of a band.
#[derive(Clone, Copy, Debug)]
struct Sums {
    count: u32,
    sum: f64,
    greatest: f32,
    /// How many values equal the greatest value.
    at_greatest: u32,
}

impl Default for Sums {
    fn default() -> Self {
        Self { count: 0, sum: 0.0, greatest: f32::NEG_INFINITY, at_greatest: 0 }
    }
}

impl Sums {
    fn add(&mut self, value: f32) {
        if !value.is_finite() {
            return;
        }
        self.count += 1;
        self.sum += f64::from(value);
        if value > self.greatest {
            (self.greatest, self.at_greatest) = (value, 0);
        }
        self.at_greatest += u32::from(value == self.greatest);
    }

    fn mean(&self) -> f32 {
        (self.sum / f64::from(self.count)) as f32
    }
}

fn clipped(bands: &[Sums]) -> Clipped {
    let greatest = bands.iter().map(|sums| sums.greatest).fold(f32::NEG_INFINITY, f32::max);
    let share = |sums: &Sums| match sums.greatest == greatest && sums.count > 0 {
        true => sums.at_greatest as f32 / sums.count as f32,
        false => 0.0,
    };
    let all = bands.iter().map(share).enumerate();
    let (band, share) =
        all.fold((0, 0.0), |most, candidate| if candidate.1 > most.1 { candidate } else { most });
    Clipped { band, share }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_greatest_value_is_counted_where_it_is_most_frequent() {
        let of = |values: &[f32]| {
            let mut sums = Sums::default();
            values.iter().for_each(|value| sums.add(*value));
            sums
        };
        let bands = [
            of(&[1.0, 1.0, 1.0, 1.0]),
            of(&[9.0, 2.0, 9.0, f32::NAN, 3.0]),
            of(&[9.0, 2.0, 3.0, f32::INFINITY]),
        ];
        assert_eq!(clipped(&bands), Clipped { band: 1, share: 0.5 });
        assert_eq!(bands[1].mean(), 5.75);
        assert!(Sums::default().mean().is_nan());
        assert_eq!(clipped(&[Sums::default()]).share, 0.0);
    }
}
