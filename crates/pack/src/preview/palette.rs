//! Colours that colour-blind readers can distinguish on a light page.

/// An sRGB colour.
pub type Colour = [u8; 3];

/// The background of the page.
pub const PAGE: Colour = [255, 255, 255];
/// Text and axes.
pub const INK: Colour = [34, 34, 40];
/// Explanatory text.
pub const MUTED: Colour = [92, 92, 102];
/// Grid lines and frames.
pub const GRID: Colour = [224, 224, 230];
/// The background of bad bands in charts of spectra.
pub const BAD: Colour = [240, 240, 244];
/// Pixels without data: a pale violet that cannot be confused with a stretched grey.
pub const NODATA: Colour = [206, 190, 220];
/// The spectrum of a whole cube.
pub const WHOLE: Colour = [0, 114, 178];

/// Okabe and Ito's palette. Its yellow is darkened so that lines are visible on white.
const OKABE_ITO: [Colour; 7] = [
    [0, 114, 178],
    [213, 94, 0],
    [0, 158, 115],
    [204, 121, 167],
    [230, 159, 0],
    [86, 180, 233],
    [188, 172, 20],
];

/// The colour of class `id`: gray for 0, Okabe and Ito's colours for the first classes, then hues
/// that differ by the golden angle.
pub fn class_colour(id: usize) -> Colour {
    match id {
        0 => [120, 120, 120],
        id if id <= OKABE_ITO.len() => OKABE_ITO[id - 1],
        id => {
            let step = id - OKABE_ITO.len();
            let hue = (step as f64 * 137.508 + 25.0) % 360.0;
            hsl(hue, 0.65, [0.38, 0.55, 0.28][step % 3])
        }
    }
}

fn hsl(hue: f64, saturation: f64, lightness: f64) -> Colour {
    let reach = saturation * lightness.min(1.0 - lightness);
    let part = |offset: f64| {
        let k = (offset + hue / 30.0) % 12.0;
        let value = lightness - reach * (k - 3.0).min(9.0 - k).clamp(-1.0, 1.0);
        (value * 255.0).round() as u8
    };
    [part(0.0), part(8.0), part(4.0)]
}

/// Blends `over` onto `under` with an `opacity` from 0 to 1.
pub fn blend(under: Colour, over: Colour, opacity: f64) -> Colour {
    let mix = |channel: usize| {
        let (u, o) = (f64::from(under[channel]), f64::from(over[channel]));
        (u + (o - u) * opacity).round() as u8
    };
    [mix(0), mix(1), mix(2)]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_twenty_classes_differ() {
        let apart = |a: Colour, b: Colour| {
            (0..3).map(|c| i32::from(a[c]).abs_diff(i32::from(b[c]))).sum::<u32>()
        };
        for a in 0..20 {
            for b in 0..a {
                assert!(apart(class_colour(a), class_colour(b)) > 30, "{a} and {b}");
            }
        }
    }

    #[test]
    fn hues_are_those_of_css() {
        assert_eq!(hsl(0.0, 1.0, 0.5), [255, 0, 0]);
        assert_eq!(hsl(120.0, 1.0, 0.5), [0, 255, 0]);
        assert_eq!(hsl(240.0, 1.0, 0.25), [0, 0, 128]);
    }
}
