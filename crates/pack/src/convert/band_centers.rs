//! `--band-centers`: the band centres that files lack.

use std::path::PathBuf;

use hsipack_format::{Error, ErrorKind, Opt, Result, remedy};
use hsipack_source::{CubeInfo, band_centers, parse_band_centers};

use super::named_files;
use crate::input::Input;

/// Where band centres come from.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum BandCenters<'a> {
    /// The first and the last, in nm; the others are at equal distances.
    Range([f64; 2]),
    /// All, in nm.
    List(Vec<f64>),
    /// A file, with fields of the cube's path.
    Pattern(&'a str),
}

impl<'a> BandCenters<'a> {
    /// # Errors
    /// If the text is neither a range, a list nor a path.
    pub fn parse(text: &'a str) -> Result<Self> {
        if let Some((first, last)) = text.split_once(':').filter(|(_, last)| !last.contains(':')) {
            // A unit after the last number counts for both.
            let number = |text: &str| text.trim().parse::<f64>().is_ok();
            let ends = match (number(first), number(last)) {
                (true, false) => format!("{first}{}, {last}", unit_of(last)),
                _ => format!("{first}, {last}"),
            };
            if let Some(ends) = parse_band_centers(&ends) {
                let ends = ends?;
                if let [first, last] = ends[..]
                    && first != last
                {
                    return Ok(Self::Range([first, last]));
                }
                return Err(Error::conflict(format!("{text:?} is not a range of band centres"))
                    .with_remedy("give the first and the last, such as 400:700"));
            }
        }
        if let Some(list) = parse_band_centers(text) {
            return list.map(Self::List);
        }
        Ok(Self::Pattern(text))
    }

    /// The centres of the bands of a cube, in nm.
    /// The second value is the file that holds them.
    fn of(&self, input: &Input, bands: usize) -> Result<(Vec<f64>, Option<PathBuf>)> {
        let centers = match self {
            Self::Range([first, _]) if bands == 1 => vec![*first],
            Self::Range([first, last]) => {
                let step = (last - first) / (bands - 1) as f64;
                let center = |band: usize| match band + 1 == bands {
                    true => *last,
                    false => first + step * band as f64,
                };
                (0..bands).map(center).collect()
            }
            Self::List(list) => list.clone(),
            Self::Pattern(pattern) => {
                if let Some(list) = named_files::find(pattern, input, "the band centres")? {
                    let centers = band_centers(&list.file, list.variable.as_deref())?;
                    return Ok((centers, Some(list.file)));
                }
                let why = named_files::absence(pattern, input);
                let what = format!("its band centres are missing: {why}");
                return Err(Error::new(ErrorKind::Io, what).at(&input.file).with_remedy(remedy![
                    "check ",
                    Opt::BandCenters,
                    ": a range such as 400:700, a list such as 400,410,420, or a file"
                ]));
            }
        };
        Ok((centers, None))
    }
}

/// Whether a text is a path, which may have fields.
pub(super) fn is_pattern(text: &str) -> bool {
    matches!(BandCenters::parse(text), Ok(BandCenters::Pattern(_)))
}

/// Whether a text gives the centre of each band, not only of the first and the last.
pub(super) fn are_listed(text: &str) -> bool {
    matches!(BandCenters::parse(text), Ok(BandCenters::List(_) | BandCenters::Pattern(_)))
}

/// The unit after the last digit of a text.
fn unit_of(text: &str) -> &str {
    let end = text.rfind(|letter: char| letter.is_ascii_digit()).map_or(0, |last| last + 1);
    &text[end..]
}

/// Gives the bands of a cube their centres.
///
/// # Errors
/// If there are not as many centres as bands, or they cannot be read.
pub(super) fn apply(text: &str, input: &Input, info: &mut CubeInfo) -> Result<()> {
    let bands = info.shape.bands;
    let (centers, file) = BandCenters::parse(text)?.of(input, bands)?;
    if centers.len() != bands {
        return Err(Error::conflict(format!(
            "it has {bands} bands, but {} band centres are given",
            centers.len()
        ))
        .at(&input.file)
        .with_remedy(remedy!["correct ", Opt::BandCenters]));
    }
    let differs = |wavelengths: &Vec<f64>| {
        wavelengths.iter().zip(&centers).any(|(a, b)| (a - b).abs() > 0.01)
    };
    if info.wavelength.as_ref().is_some_and(differs) {
        info.notes
            .push(format!("the wavelengths in the file are replaced by {}", Opt::BandCenters));
        info.fwhm = None;
    }
    info.wavelength = Some(centers);
    // The file is part of the cube's fingerprint.
    info.files.extend(file.filter(|file| !info.files.contains(file)));
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    #[test]
    fn ranges_lists_and_paths_are_told_apart() {
        let range = |text: &str| match BandCenters::parse(text).unwrap() {
            BandCenters::Range(ends) => ends.map(|end| (end * 1e6).round() / 1e6),
            other => panic!("{other:?}"),
        };
        for text in ["400:700", "400nm:700nm", "400:700nm", "0.4:0.7", "0.4um:0.7um", "0.4:0.7µm"]
        {
            assert_eq!(range(text), [400.0, 700.0], "{text}");
        }
        assert_eq!(range("700:400"), [700.0, 400.0]);
        assert_eq!(BandCenters::parse("400,410.5").unwrap(), BandCenters::List(vec![400.0, 410.5]));
        for path in ["centres.txt", "{path}::wl", "/a:b/c.csv", "x.mat::wl"] {
            assert_eq!(BandCenters::parse(path).unwrap(), BandCenters::Pattern(path));
        }
        for wrong in ["400:400", "400:-1"] {
            assert!(BandCenters::parse(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_range_includes_both_ends() {
        let input = Input::of(Path::new("a.npy"));
        let centers = |bands| BandCenters::Range([400.0, 700.0]).of(&input, bands).unwrap().0;
        assert_eq!(centers(4), [400.0, 500.0, 600.0, 700.0]);
        assert_eq!(centers(1), [400.0]);
    }
}
