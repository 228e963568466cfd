//! What is conspicuous about a sample: missing values, saturation, spectra unlike those of its class, damage.
//!
//! The dataset counts missing values itself; the rest is found when a sample is looked at, so that nothing is read for it.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Mutex, PoisonError};

use hsipack_format::{Error, ErrorKind, Sample};
use serde::Serialize;

use crate::cube::thumbnail::Clipped;

/// Something conspicuous.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Mark {
    /// Which.
    pub kind: &'static str,
    /// What it is in words.
    pub text: String,
}

/// The class that a sample's spectrum is compared with: its stack, and the number of its label.
pub type Class = (usize, Option<u32>);

/// What was found of the samples that were looked at.
#[derive(Debug, Default)]
pub struct Seen(Mutex<Found>);

#[derive(Debug, Default)]
struct Found {
    damaged: HashMap<usize, String>,
    clipped: HashMap<usize, Clipped>,
    classes: BTreeMap<Class, Members>,
    /// Values of all spectra.
    values: usize,
}

/// The samples of a class.
#[derive(Debug, Default)]
struct Members {
    spectra: HashMap<usize, Vec<f32>>,
    /// What is usual among them, until another one comes.
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

/// Values of mean spectra that are kept: 32 MB. Samples that are looked at later are not compared.
const MOST: usize = 8_000_000;
/// So many samples of a class have to be seen before one of them can be unlike the others.
const FEWEST: usize = 8;
/// Beyond the median distance from the class's mean by so many median deviations from it: five standard deviations and
/// more, were distances normal.
const FAR: f64 = 8.0;
/// A share of pixels at the greatest value that is no chance.
const SATURATED: f32 = 0.01;

impl Seen {
    /// Notes that sample `id` could not be read, if that is its own fault.
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
        if found.values + spectrum.len() > MOST {
            return;
        }
        let values = spectrum.len();
        let members = found.classes.entry(class).or_default();
        members.usual = None;
        if members.spectra.insert(id, spectrum).is_none() {
            found.values += values;
        }
    }

    /// What is conspicuous about sample `id`.
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
                "{percent:.0} % of the pixels of band {band} have the cube's greatest value"
            );
            marks.push(Mark { kind: "saturated", text });
        }
        if let Some(times) = found.classes.get_mut(&class).and_then(|class| class.outlying(id)) {
            let text = format!(
                "its mean spectrum is {times:.1} times as far from the mean of its class as is usual there"
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
    /// How many times as far as usual the spectrum of `id` is from the mean of all, if that is far.
    fn outlying(&mut self, id: usize) -> Option<f64> {
        let own = self.spectra.get(&id)?;
        if self.spectra.len() < FEWEST {
            return None;
        }
        let usual = self.usual.get_or_insert_with(|| Usual::of(&self.spectra, own.len()));
        let own = usual.distance_of(own);
        // Where all are alike but for rounding, nothing is far.
        let is_far = own > usual.distance + FAR * usual.spread
            && own > 1.5 * usual.distance
            && usual.distance > 0.0;
        is_far.then(|| own / usual.distance)
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
        let deviations = distances.into_iter().map(|one| (one - usual.distance).abs());
        usual.spread = median(deviations.collect());
        usual
    }

    /// How far a spectrum is from the mean. Bands in which some sample has no value tell nothing.
    fn distance_of(&self, spectrum: &[f32]) -> f64 {
        let differences = spectrum.iter().zip(&self.mean);
        let differences = differences.map(|(value, mean)| f64::from(*value) - mean);
        differences.filter(|one| one.is_finite()).map(|one| one * one).sum::<f64>().sqrt()
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
        let seen = Seen::default();
        let class = (0, Some(1));
        for id in 0..20_u16 {
            let shift = f32::from(id % 5) * 0.01 + if id == 7 { 0.5 } else { 0.0 };
            seen.note(usize::from(id), class, vec![0.2 + shift, 0.4 - shift, f32::NAN], NONE);
        }
        let outliers: Vec<usize> =
            (0..20).filter(|id| !seen.of(*id, class, None).is_empty()).collect();
        assert_eq!(outliers, [7]);
        let text = &seen.of(7, class, None)[0].text;
        assert!(text.contains("times as far from the mean of its class"), "{text}");
        // Of another class there are too few.
        seen.note(30, (0, None), vec![9.0; 3], NONE);
        assert_eq!(seen.of(30, (0, None), None), []);
    }

    #[test]
    fn damage_and_saturation_are_marks() {
        let seen = Seen::default();
        let class = (0, None);
        seen.note(1, class, vec![1.0], Clipped { band: 3, share: 0.25 });
        assert_eq!(seen.of(1, class, None)[0].kind, "saturated");
        assert!(seen.of(1, class, None)[0].text.starts_with("25 % of the pixels of band 3"));
        seen.fail(2, &Error::damaged("chunk 5 has a wrong checksum"));
        assert_eq!(seen.of(2, class, None)[0].text, "chunk 5 has a wrong checksum");
        seen.fail(3, &Error::conflict("no such thing"));
        assert_eq!(seen.of(3, class, None), []);
    }
}
