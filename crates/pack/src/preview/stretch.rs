//! Turns physical values into the colours of a screen.

use hsipack_format::{Error, Result};

use super::palette::{Colour, NODATA};

/// The percentiles that become black and full colour.
const LOW: f64 = 0.02;
const HIGH: f64 = 0.98;

/// A picture, row by row.
#[derive(Clone, Debug, PartialEq)]
pub struct Image {
    /// Number of pixels in a row.
    pub width: usize,
    /// Number of rows.
    pub height: usize,
    /// Colours.
    pub pixels: Vec<Colour>,
}

impl Image {
    /// The picture as the bytes of a PNG file.
    ///
    /// # Errors
    /// If the memory cannot be allocated.
    pub fn png(&self) -> Result<Vec<u8>> {
        let fail = |error: png::EncodingError| {
            Error::unsupported(format!("a picture of {}x{}: {error}", self.width, self.height))
        };
        let side = |length: usize| u32::try_from(length).unwrap_or(u32::MAX);
        let mut bytes = Vec::new();
        let mut encoder = png::Encoder::new(&mut bytes, side(self.width), side(self.height));
        encoder.set_color(png::ColorType::Rgb);
        encoder.set_compression(png::Compression::Fast);
        let mut writer = encoder.write_header().map_err(fail)?;
        writer.write_image_data(self.pixels.as_flattened()).map_err(fail)?;
        writer.finish().map_err(fail)?;
        Ok(bytes)
    }
}

/// Stretches each channel from its 2nd to its 98th percentile. If a channel of a pixel is not
/// finite, the pixel gets the colour of missing data. A channel with only one value becomes
/// mid-gray.
pub fn stretch(width: usize, height: usize, values: &[[f32; 3]]) -> Image {
    stretch_like(width, height, values, values)
}

/// The same as [`stretch`], but with the percentiles of the values in `like`.
pub fn stretch_like(width: usize, height: usize, values: &[[f32; 3]], like: &[[f32; 3]]) -> Image {
    let limits = [0, 1, 2].map(|channel| percentiles(like.iter().map(|pixel| pixel[channel])));
    let shade = |pixel: &[f32; 3]| {
        let mut colour = [0; 3];
        for channel in 0..3 {
            let (value, (low, high)) = (pixel[channel], limits[channel]);
            if !value.is_finite() {
                return NODATA;
            }
            let part = if high > low { (value - low) / (high - low) } else { 0.5 };
            colour[channel] = (part.clamp(0.0, 1.0) * 255.0).round() as u8;
        }
        colour
    };
    Image { width, height, pixels: values.iter().map(shade).collect() }
}

/// The low and high percentile of the finite values; zeros if there are none.
fn percentiles(values: impl Iterator<Item = f32>) -> (f32, f32) {
    let mut finite: Vec<f32> = values.filter(|value| value.is_finite()).collect();
    if finite.is_empty() {
        return (0.0, 0.0);
    }
    let last = (finite.len() - 1) as f64;
    let mut at = |part: f64| {
        *finite.select_nth_unstable_by((part * last).round() as usize, f32::total_cmp).1
    };
    (at(LOW), at(HIGH))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn channels_are_stretched_apart() {
        let values: Vec<[f32; 3]> = (0..101).map(|i| [i as f32, 1000.0 - i as f32, 7.0]).collect();
        let image = stretch(101, 1, &values);
        assert_eq!(image.pixels[0], [0, 255, 128]);
        assert_eq!(image.pixels[100], [255, 0, 128]);
        assert_eq!(image.pixels[50], [128, 128, 128]);
        // (26 - 2) / (98 - 2) = 1/4.
        assert_eq!(image.pixels[26][0], 64);
    }

    #[test]
    fn missing_pixels_have_a_colour_of_their_own_and_no_weight() {
        let mut values: Vec<[f32; 3]> = (0..101).map(|i| [i as f32; 3]).collect();
        values[3][1] = f32::NAN;
        values[4] = [f32::INFINITY; 3];
        let image = stretch(101, 1, &values);
        assert_eq!((image.pixels[3], image.pixels[4]), (NODATA, NODATA));
        assert_eq!(image.pixels[100], [255, 255, 255]);
        let nothing = stretch(2, 1, &[[f32::NAN; 3]; 2]);
        assert_eq!(nothing.pixels, [NODATA; 2]);
        assert_eq!(stretch(1, 1, &[[5.0; 3]]).pixels, [[128; 3]]);
    }
}
