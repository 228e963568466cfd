//! Which bands become red, green and blue.

/// Wavelengths of red, green and blue in nm.
const RGB: [f64; 3] = [640.0, 550.0, 460.0];
/// A band may lie this far off, in nm: sensors that begin at 500 nm still have a blue of sorts.
const TOLERANCE: f64 = 50.0;

/// The bands of a colour picture.
#[derive(Clone, Debug, PartialEq)]
pub struct Composite {
    /// Red, green and blue.
    pub bands: [usize; 3],
    /// What they are, for the caption.
    pub caption: String,
}

/// Chooses among the good bands: those nearest to red, green and blue light, or three spread over all,
/// the longest wavelength being red.
pub fn choose(bands: usize, wavelength: Option<&[f64]>, good: Option<&[bool]>) -> Composite {
    let mut usable: Vec<usize> =
        (0..bands).filter(|band| good.is_none_or(|good| good[*band])).collect();
    if usable.is_empty() {
        usable = (0..bands).collect();
    }
    if let Some(nm) = wavelength {
        if let Some(bands) = natural(&usable, nm) {
            return Composite {
                bands,
                caption: format!("Red, green, blue: {}", name(bands, wavelength)),
            };
        }
        usable.sort_by(|a, b| nm[*a].total_cmp(&nm[*b]));
    }
    // At 1/6, 1/2 and 5/6: the outermost bands of most sensors are noise.
    let at = |sixths: usize| usable[(usable.len() * sixths / 6).min(usable.len() - 1)];
    let bands = [at(5), at(3), at(1)];
    let caption = match usable.as_slice() {
        [_] => format!("Gray: {}", name(bands, wavelength)),
        _ => format!("False colour, red, green, blue: {}", name(bands, wavelength)),
    };
    Composite { bands, caption }
}

fn natural(usable: &[usize], nm: &[f64]) -> Option<[usize; 3]> {
    let mut bands = [0; 3];
    for (band, target) in bands.iter_mut().zip(RGB) {
        let distance = |band: &usize| (nm[*band] - target).abs();
        *band = *usable.iter().min_by(|a, b| distance(a).total_cmp(&distance(b)))?;
        if distance(band) > TOLERANCE {
            return None;
        }
    }
    let [red, green, blue] = bands;
    (red != green && green != blue).then_some(bands)
}

/// `640.1, 550, 459.8 nm (bands 3, 2, 1)`, equal bands named once.
fn name(bands: [usize; 3], wavelength: Option<&[f64]>) -> String {
    let mut list = bands.to_vec();
    if list.iter().all(|band| *band == list[0]) {
        list.truncate(1);
    }
    let join = |words: Vec<String>| words.join(", ");
    let numbers = join(list.iter().map(usize::to_string).collect());
    let plural = if list.len() == 1 { "band" } else { "bands" };
    match wavelength {
        None => format!("{plural} {numbers}"),
        Some(nm) => {
            let tenths = |band: &usize| format!("{}", (nm[*band] * 10.0).round() / 10.0);
            format!("{} nm ({plural} {numbers})", join(list.iter().map(tenths).collect()))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(start: f64, step: f64, bands: usize) -> Vec<f64> {
        (0..bands).map(|band| start + step * band as f64).collect()
    }

    #[test]
    fn visible_bands_are_taken_as_they_are_seen() {
        let nm = line(400.0, 10.0, 60);
        let choice = choose(60, Some(&nm), None);
        assert_eq!(choice.bands, [24, 15, 6]);
        assert_eq!(choice.caption, "Red, green, blue: 640, 550, 460 nm (bands 24, 15, 6)");
        let falling: Vec<f64> = nm.iter().rev().copied().collect();
        assert_eq!(choose(60, Some(&falling), None).bands, [35, 44, 53]);
    }

    #[test]
    fn a_bad_band_is_passed_over() {
        let nm = line(400.0, 10.0, 60);
        let good: Vec<bool> = (0..60).map(|band| band != 15).collect();
        assert_eq!(choose(60, Some(&nm), Some(&good)).bands[1], 14);
    }

    #[test]
    fn infrared_and_unknown_bands_are_spread() {
        let nm = line(900.0, 5.0, 60);
        let choice = choose(60, Some(&nm), None);
        assert_eq!(choice.bands, [50, 30, 10]);
        assert!(choice.caption.starts_with("False colour"), "{}", choice.caption);
        let falling: Vec<f64> = nm.iter().rev().copied().collect();
        assert_eq!(choose(60, Some(&falling), None).bands, [9, 29, 49]);
        assert_eq!(choose(60, None, None).bands, [50, 30, 10]);
    }

    #[test]
    fn few_bands_are_enough() {
        assert_eq!(choose(1, None, None).bands, [0, 0, 0]);
        assert_eq!(choose(1, Some(&[550.0]), None).caption, "Gray: 550 nm (band 0)");
        assert_eq!(choose(2, None, None).bands, [1, 1, 0]);
        assert_eq!(choose(3, None, None).bands, [2, 1, 0]);
        assert_eq!(choose(2, None, Some(&[false, false])).bands, [1, 1, 0]);
    }
}
