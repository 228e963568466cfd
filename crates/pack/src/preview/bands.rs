//! Chooses the bands for red, green and blue.

/// Wavelengths of red, green and blue in nm.
const RGB: [f64; 3] = [640.0, 550.0, 460.0];
/// A band may be this far from the wavelength, in nm. So sensors that begin at 500 nm still have a
/// band for blue.
const TOLERANCE: f64 = 50.0;

/// The bands of a colour picture.
#[derive(Clone, Debug, PartialEq)]
pub struct Composite {
    /// Red, green and blue.
    pub bands: [usize; 3],
    /// A description of the bands, for the caption.
    pub caption: String,
}

/// Chooses good bands: those nearest to red, green and blue light, otherwise three spread over all
/// bands, with the longest wavelength as red.
pub fn choose(bands: usize, wavelength: Option<&[f64]>, good: Option<&[bool]>) -> Composite {
    let mut usable: Vec<usize> =
        (0..bands).filter(|band| good.is_none_or(|good| good[*band])).collect();
    if usable.is_empty() {
        usable = (0..bands).collect();
    }
    if let Some(nm) = wavelength {
        if let Some(bands) = nearest(&usable, nm, RGB) {
            return Composite {
                bands,
                caption: format!("Red, green, blue: {}", name_of(bands, wavelength)),
            };
        }
        usable.sort_by(|a, b| nm[*a].total_cmp(&nm[*b]));
    }
    // Bands at 1/6, 1/2 and 5/6 are used, because the outermost bands of most sensors are noise.
    let at = |sixths: usize| usable[(usable.len() * sixths / 6).min(usable.len() - 1)];
    let bands = [at(5), at(3), at(1)];
    let caption = match usable.as_slice() {
        [_] => format!("Gray: {}", name_of(bands, wavelength)),
        _ => format!("False colour, red, green, blue: {}", name_of(bands, wavelength)),
    };
    Composite { bands, caption }
}

/// A named choice of bands that shows a cube in colour.
#[derive(Clone, Debug, PartialEq)]
pub struct Preset {
    /// `RGB`, `CIR`, `SWIR`, `False colour` or `Gray`.
    pub name: &'static str,
    /// Red, green and blue.
    pub bands: [usize; 3],
    /// The bands in words.
    pub caption: String,
}

/// Composites that have names, and the wavelengths of their red, green and blue in nm.
const NAMED: [(&str, [f64; 3]); 3] =
    [("RGB", RGB), ("CIR", [860.0, 650.0, 550.0]), ("SWIR", [2200.0, 1650.0, 860.0])];

/// All presets for a cube, at least one: those for which it has the wavelengths, and the choice
/// that previews use. Bands that are not good are used only if there are no others.
pub fn presets(bands: usize, wavelength: Option<&[f64]>, good: Option<&[bool]>) -> Vec<Preset> {
    let usable: Vec<usize> =
        (0..bands).filter(|band| good.is_none_or(|good| good[*band])).collect();
    let preset = |name, bands| Preset { name, bands, caption: name_of(bands, wavelength) };
    let found = |(name, targets)| {
        let bands = nearest(&usable, wavelength?, targets)?;
        Some(preset(name, bands))
    };
    let mut all: Vec<Preset> = NAMED.into_iter().filter_map(found).collect();
    let choice = choose(bands, wavelength, good).bands;
    if all.first().is_none_or(|first| first.bands != choice) {
        let name =
            if choice.iter().all(|band| *band == choice[0]) { "Gray" } else { "False colour" };
        all.insert(0, preset(name, choice));
    }
    all
}

/// The bands nearest to these wavelengths; `None` unless they differ and are within [`TOLERANCE`].
fn nearest(usable: &[usize], nm: &[f64], targets: [f64; 3]) -> Option<[usize; 3]> {
    let mut bands = [0; 3];
    for (band, target) in bands.iter_mut().zip(targets) {
        let distance = |band: &usize| (nm[*band] - target).abs();
        *band = *usable.iter().min_by(|a, b| distance(a).total_cmp(&distance(b)))?;
        if distance(band) > TOLERANCE {
            return None;
        }
    }
    let [red, green, blue] = bands;
    (red != green && green != blue).then_some(bands)
}

/// The bands as text, such as `640.1, 550, 459.8 nm (bands 3, 2, 1)`. Equal bands are named once.
fn name_of(bands: [usize; 3], wavelength: Option<&[f64]>) -> String {
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
    fn presets_are_those_that_wavelengths_reach() {
        let names = |nm: Option<&[f64]>, bands| -> Vec<&str> {
            presets(bands, nm, None).iter().map(|preset| preset.name).collect()
        };
        assert_eq!(names(Some(&line(400.0, 10.0, 60)), 60), ["RGB", "CIR"]);
        assert_eq!(names(Some(&line(400.0, 10.0, 210)), 210), ["RGB", "CIR", "SWIR"]);
        assert_eq!(names(Some(&line(850.0, 10.0, 160)), 160), ["False colour", "SWIR"]);
        assert_eq!(names(None, 60), ["False colour"]);
        assert_eq!(names(None, 1), ["Gray"]);
        let swir = &presets(210, Some(&line(400.0, 10.0, 210)), None)[2];
        assert_eq!(swir.caption, "2200, 1650, 860 nm (bands 180, 125, 46)");
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
