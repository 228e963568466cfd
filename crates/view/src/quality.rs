//! Conspicuous properties of a sample: missing values, saturation, spectra unlike those of its
//! class, damage.
//!
//! The dataset itself counts missing values. Everything else is found when a sample is shown, so
//! nothing is read only for the marks.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Mutex, PoisonError};

use hsipack_format::{Error, ErrorKind, Sample};
use serde::Serialize;

use crate::cube::thumbnail::Clipped;

/// Something conspicuous.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Mark {
    /// The kind of mark.
    pub kind: &'static str,
    /// The mark in words.
    pub text: String,
}

/// The class that a sample's spectrum is compared with: its stack, and the number of its label.
pub type Class = (usize, Option<u32>);

/// Marks of the samples that were shown.
#[derive(Debug, Default)]
pub struct QualityLog(Mutex<Found>);

#[derive(Debug, Default)]
struct Found {
    damaged: HashMap<usize, String>,
    clipped: HashMap<usize, Clipped>,
    classes: BTreeMap<Class, Members>,
    /// Number of values of all spectra.
    values: usize,
}

/// The samples of a class.
#[derive(Debug, Default)]
struct Members {
    spectra: HashMap<usize, Vec<f32>>,
    /// The usual spectrum among them; `None` after another spectrum was added.
    usual: Option<Usual>,
}

/// How far the spectra of a class are from their mean.
#[derive(Debug)]
struct Usual {
    mean: Vec<f64>,
    /// The median distance.
    distance: f64,
    /// The median deviation from it.
    spread: f64,
}

/// Maximum number of values of mean spectra to keep: 32 MB. Samples that are shown later are not
/// compared.
const MAX_VALUES: usize = 8_000_000;
/// A class must have this many shown samples before one of them can be an outlier.
const MIN_SAMPLES: usize = 8;
/// An outlier's distance from the mean of its class exceeds the median distance by this many median
/// deviations. If distances were normally distributed, that would be more than five standard
/// deviations.
const OUTLIER_DEVIATIONS: f64 = 8.0;
/// From this share of pixels at the greatest value on, a sample counts as saturated: such a share
/// is not chance.
const SATURATED: f32 = 0.01;

impl QualityLog {
    /// Notes that sample `id` could not be read, if the sample itself is the cause.
    pub fn fail(&self, id: usize, error: &Error) {
        if matches!(error.kind(), ErrorKind::Damaged | ErrorKind::Malformed) {
            self.found().damaged.insert(id, error.what().to_owned());
        }
    }

    /// Notes the mean spectrum of sample `id`.
    pub fn note(&self, id: usize, class: Class, spectrum: Vec<f32>, clipped: Clipped) {
        let mut found = self.found();
        found.damaged.remove(&id);
        if clipped.share >= SATURATED {
            found.clipped.insert(id, clipped);
        }
        if found.values + spectrum.len() > MAX_VALUES {
            return;
        }
        let values = spectrum.len();
        let members = found.classes.entry(class).or_default();
        members.usual = None;
        if members.spectra.insert(id, spectrum).is_none() {
            found.values += values;
        }
    }

    /// The conspicuous properties of sample `id`.
    pub fn of(&self, id: usize, class: Class, sample: Option<&Sample>) -> Vec<Mark> {
        let mut marks = Vec::new();
        let mut found = self.found();
        if let Some(what) = found.damaged.get(&id) {
            marks.push(Mark { kind: "damaged", text: what.clone() });
        }
        for (kind, name, count) in sample
            .into_iter()
            .flat_map(|sample| [("nan", "NaN", sample.nan), ("inf", "infinite", sample.inf)])
        {
            if count > 0 {
                let text = match count {
                    1 => format!("1 value is {name}"),
                    _ => format!("{count} values are {name}"),
                };
                marks.push(Mark { kind, text });
            }
        }
        if let Some(Clipped { band, share }) = found.clipped.get(&id) {
            let percent = 100.0 * share;
            let text = format!(
                "{percent:.0} % of the pixels of band {band} have the greatest value of the cube"
            );
            marks.push(Mark { kind: "saturated", text });
        }
        if let Some(times) = found.classes.get_mut(&class).and_then(|class| class.outlying(id)) {
            let text = format!(
                "its mean spectrum is {times:.1} times as far from the mean of its class as usual"
            );
            marks.push(Mark { kind: "outlier", text });
        }
        marks
    }

    fn found(&self) -> std::sync::MutexGuard<'_, Found> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Members {
    /// The distance of the spectrum of `id` from the mean of all, divided by the usual distance;
    /// `None` if it is not far.
    fn outlying(&mut self, id: usize) -> Option<f64> {
        let spectrum = self.spectra.get(&id)?;
        if self.spectra.len() < MIN_SAMPLES {
            return None;
        }
        let usual = self.usual.get_or_insert_with(|| Usual::of(&self.spectra, spectrum.len()));
        let distance = usual.distance_of(spectrum);
        // If all spectra are equal except for rounding, none is far.
        let is_far = distance > usual.distance + OUTLIER_DEVIATIONS * usual.spread
            && distance > 1.5 * usual.distance
            && usual.distance > 0.0;
        is_far.then(|| distance / usual.distance)
    }
}

impl Usual {
    fn of(spectra: &HashMap<usize, Vec<f32>>, bands: usize) -> Self {
        let mut mean = vec![0.0; bands];
        for spectrum in spectra.values() {
            mean.iter_mut().zip(spectrum).for_each(|(sum, value)| *sum += f64::from(*value));
        }
        mean.iter_mut().for_each(|sum| *sum /= spectra.len() as f64);
        let mut usual = Self { mean, distance: 0.0, spread: 0.0 };
        let distances: Vec<f64> =
            spectra.values().map(|spectrum| usual.distance_of(spectrum)).collect();
        usual.distance = median(distances.clone());
        let deviations = distances.into_iter().map(|distance| (distance - usual.distance).abs());
        usual.spread = median(deviations.collect());
        usual
    }

    /// The distance of a spectrum from the mean. Bands in which some sample has no value are
    /// skipped.
    fn distance_of(&self, spectrum: &[f32]) -> f64 {
        let differences = spectrum.iter().zip(&self.mean);
        let differences = differences.map(|(value, mean)| f64::from(*value) - mean);
        differences
            .filter(|difference| difference.is_finite())
            .map(|difference| difference * difference)
            .sum::<f64>()
            .sqrt()
    }
}

fn median(mut values: Vec<f64>) -> f64 {
    let middle = values.len() / 2;
    *values.select_nth_unstable_by(middle, f64::total_cmp).1
}

#[cfg(test)]
mod tests {
    use super::*;

    const NONE: Clipped = Clipped { band: 0, share: 0.0 };

    #[test]
    fn a_spectrum_unlike_the_others_of_its_class_is_an_outlier() {
        let log = QualityLog::default();
        let class = (0, Some(1));
        for id in 0..20_u16 {
            let shift = f32::from(id % 5) * 0.01 + if id == 7 { 0.5 } else { 0.0 };
            log.note(usize::from(id), class, vec![0.2 + shift, 0.4 - shift, f32::NAN], NONE);
        }
        let outliers: Vec<usize> =
            (0..20).filter(|id| !log.of(*id, class, None).is_empty()).collect();
        assert_eq!(outliers, [7]);
        let text = &log.of(7, class, None)[0].text;
        assert!(text.contains("times as far from the mean of its class"), "{text}");
        // The other class has too few samples.
        log.note(30, (0, None), vec![9.0; 3], NONE);
        assert_eq!(log.of(30, (0, None), None), []);
    }

    #[test]
    fn damage_and_saturation_are_marks() {
        let log = QualityLog::default();
        let class = (0, None);
        log.note(1, class, vec![1.0], Clipped { band: 3, share: 0.25 });
        assert_eq!(log.of(1, class, None)[0].kind, "saturated");
        assert!(log.of(1, class, None)[0].text.starts_with("25 % of the pixels of band 3"));
        log.fail(2, &Error::damaged("chunk 5 has a wrong checksum"));
        assert_eq!(log.of(2, class, None)[0].text, "chunk 5 has a wrong checksum");
        log.fail(3, &Error::conflict("no such thing"));
        assert_eq!(log.of(3, class, None), []);
    }
}
