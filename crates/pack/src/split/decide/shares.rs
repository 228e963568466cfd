//! The share of each split, and the number of pixels of a class that this gives.

use std::fmt;
use std::str::FromStr;

use hsipack_format::{Error, Opt, Result, remedy};
use serde::Deserialize;

/// The most splits at a time.
const MAX_SPLITS: usize = 32;

/// The share of every class that a split gets.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Share {
    /// A fraction of 1.
    Part(f64),
    /// The remainder after the other splits.
    Rest,
}

/// Names and shares of splits. The first one is for training.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(try_from = "GivenShares")]
pub struct Shares(Vec<(String, Share)>);

impl Shares {
    /// Creates shares from pairs of a split's name and its share.
    ///
    /// # Errors
    /// If there is only one split, a name occurs twice or is empty, a share is not above 0 and at
    /// most 1, two splits get the rest, or the sum of the shares is more than 1.
    pub fn new(shares: Vec<(String, Share)>) -> Result<Self> {
        let shares = Self(shares);
        if shares.0.is_empty() || shares.0.len() > MAX_SPLITS {
            return Err(refused(format!("there are {} splits", shares.0.len())));
        }
        for (index, (name, share)) in shares.0.iter().enumerate() {
            if name.is_empty() {
                return Err(refused("a split has no name".to_owned()));
            }
            if shares.0[..index].iter().any(|(other, _)| other == name) {
                return Err(refused(format!("two splits are named {name}")));
            }
            match share {
                Share::Part(part) if !(*part > 0.0 && *part <= 1.0) => {
                    return Err(refused(format!(
                        "the share of {name} is {part}, not above 0 and at most 1"
                    )));
                }
                Share::Rest if shares.0[..index].iter().any(|(_, share)| *share == Share::Rest) => {
                    return Err(refused("two splits get the rest".to_owned()));
                }
                _ => {}
            }
        }
        Ok(shares)
    }

    /// Refuses shares whose sum is too large. With `per_class`, the first split gets that number
    /// instead of its share.
    ///
    /// # Errors
    /// If the sum is more than 1, or nothing is left for the split that gets the rest.
    pub fn check(&self, per_class: Option<u64>) -> Result<()> {
        if self.0.is_empty() {
            return Err(refused("there are 0 splits".to_owned()));
        }
        let counted = if per_class.is_some() { &self.0[1..] } else { &self.0[..] };
        if per_class.is_some() && self.0[0].1 == Share::Rest {
            return Err(Error::conflict(format!(
                "{} gets the rest, but also a fixed number of pixels of each class",
                self.0[0].0
            ))
            .with_remedy(remedy![
                "leave out ",
                Opt::PerClass,
                ", or give the rest to another split"
            ]));
        }
        let sum: f64 = parts(counted).sum();
        let rest_split = counted.iter().find(|(_, share)| *share == Share::Rest);
        match rest_split {
            _ if sum > 1.0 + TINY => {
                Err(refused(format!("the shares add up to {sum}, more than 1")))
            }
            Some((name, _)) if sum > 1.0 - TINY => {
                Err(refused(format!("nothing is left for {name}: the other shares add up to 1")))
            }
            _ => Ok(()),
        }
    }

    /// Number of splits.
    pub fn splits(&self) -> usize {
        self.0.len()
    }

    /// Their names.
    pub fn names(&self) -> impl ExactSizeIterator<Item = &str> {
        self.0.iter().map(|(name, _)| name.as_str())
    }

    /// Names and shares.
    pub fn all(&self) -> &[(String, Share)] {
        &self.0
    }

    /// How many of the `count` pixels of a class each split gets, followed by the number that
    /// belong to no split. The largest remainders are rounded up. If `per_class` is set, the first
    /// split gets that many pixels, or all if there are fewer, instead of its share. The others
    /// then get their shares of all pixels, as far as enough are left.
    pub fn of_class(&self, count: u64, per_class: Option<u64>) -> Vec<u64> {
        let first = per_class.map(|most| most.min(count));
        let remaining = count - first.unwrap_or(0);
        let others = if first.is_some() { &self.0[1..] } else { &self.0[..] };
        let requested = parts(others).sum::<f64>() * count as f64;
        let remainder = (remaining as f64 - requested).max(0.0);
        let mut weights: Vec<f64> = others
            .iter()
            .map(|(_, share)| match share {
                Share::Part(part) => part * count as f64,
                Share::Rest => remainder,
            })
            .collect();
        let has_rest = others.iter().any(|(_, share)| *share == Share::Rest);
        weights.push(if has_rest || remainder < TINY * count as f64 { 0.0 } else { remainder });
        first.into_iter().chain(apportion(remaining, &weights)).collect()
    }

    /// How many of the samples of each class every split gets, followed by the number that belong
    /// to no split. Each is the share of the class, rounded up or down so that the sums over all
    /// classes are as close to the shares as possible. Rounded by itself, every class of two
    /// samples would be divided into halves, whatever the shares are.
    pub fn of_classes(&self, counts: impl Iterator<Item = u64>) -> Vec<Vec<u64>> {
        // Shares of one large number are as exact as the shares are.
        const ONE: u64 = 1 << 40;
        let parts: Vec<f64> =
            self.of_class(ONE, None).iter().map(|part| *part as f64 / ONE as f64).collect();
        let mut lacking = vec![0.0; parts.len()];
        let of_class = |count: u64| {
            lacking.iter_mut().zip(&parts).for_each(|(lacks, part)| *lacks += part * count as f64);
            let exact: Vec<f64> = parts.iter().map(|part| part * count as f64).collect();
            let mut bins: Vec<u64> =
                exact.iter().map(|exact| (exact + TINY).floor() as u64).collect();
            lacking.iter_mut().zip(&bins).for_each(|(lacks, bin)| *lacks -= *bin as f64);
            let mut order: Vec<usize> = (0..bins.len()).collect();
            order.retain(|split| exact[*split] - bins[*split] as f64 > TINY);
            // What lacks by rounding errors more does not come first.
            order.sort_by_key(|split| std::cmp::Reverse((lacking[*split] / TINY).round() as i64));
            let missing = count.saturating_sub(bins.iter().sum()) as usize;
            for split in order.into_iter().take(missing) {
                bins[split] += 1;
                lacking[split] -= 1.0;
            }
            bins
        };
        counts.map(of_class).collect()
    }
}

/// Tolerance for errors of decimal fractions in binary.
const TINY: f64 = 1e-9;

fn parts(shares: &[(String, Share)]) -> impl Iterator<Item = f64> {
    shares.iter().map(|(_, share)| match share {
        Share::Part(part) => *part,
        Share::Rest => 0.0,
    })
}

fn refused(what: String) -> Error {
    Error::conflict(what)
        .with_remedy("give the share of each split, such as train=0.1,val=0.1,test=rest")
}

/// Divides `count` in proportion to `weights` by largest remainders. If remainders are equal, the
/// first is rounded up.
fn apportion(count: u64, weights: &[f64]) -> Vec<u64> {
    let sum: f64 = weights.iter().sum();
    if sum <= 0.0 {
        return vec![0; weights.len()];
    }
    let exact: Vec<f64> = weights.iter().map(|weight| weight / sum * count as f64).collect();
    let mut parts: Vec<u64> = exact.iter().map(|exact| (exact + TINY).floor() as u64).collect();
    let mut order: Vec<usize> = (0..parts.len()).collect();
    let remainder = |index: usize| exact[index] - parts[index] as f64;
    // Remainders that differ by less than rounding errors count as equal.
    let rounded: Vec<i64> =
        order.iter().map(|index| (remainder(*index) / TINY).round() as i64).collect();
    order.sort_by_key(|index| std::cmp::Reverse(rounded[*index]));
    let missing = count.saturating_sub(parts.iter().sum());
    for index in order.into_iter().filter(|index| weights[*index] > 0.0).take(missing as usize) {
        parts[index] += 1;
    }
    parts
}

impl FromStr for Shares {
    type Err = Error;

    /// Parses text such as `train=0.1,val=0.1,test=rest`.
    fn from_str(text: &str) -> Result<Self> {
        let shares = text.split(',').map(|entry| {
            let (name, share) = entry
                .split_once('=')
                .ok_or_else(|| refused(format!("{entry:?} is not a split with its share")))?;
            let share = match share.trim() {
                "rest" => Share::Rest,
                number => Share::Part(number.parse().map_err(|_| {
                    refused(format!(
                        "the share of {} is {number:?}, not a number or rest",
                        name.trim()
                    ))
                })?),
            };
            Ok((name.trim().to_owned(), share))
        });
        Self::new(shares.collect::<Result<_>>()?)
    }
}

/// [`Shares`] as text, or as names with shares.
#[derive(Deserialize)]
#[serde(untagged)]
enum GivenShares {
    Text(String),
    Named(Vec<(String, Share)>),
}

impl TryFrom<GivenShares> for Shares {
    type Error = Error;

    fn try_from(raw: GivenShares) -> Result<Self> {
        match raw {
            GivenShares::Text(text) => text.parse(),
            GivenShares::Named(shares) => Self::new(shares),
        }
    }
}

impl fmt::Display for Shares {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, (name, share)) in self.0.iter().enumerate() {
            let comma = if index == 0 { "" } else { "," };
            match share {
                Share::Part(part) => write!(f, "{comma}{name}={part}")?,
                Share::Rest => write!(f, "{comma}{name}=rest")?,
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn shares(text: &str) -> Shares {
        text.parse().unwrap()
    }

    #[test]
    fn shares_are_spelled_as_they_are_read() {
        let text = "train=0.1,val=0.25,test=rest";
        assert_eq!(shares(text).to_string(), text);
        assert_eq!(shares(" a = 1 ").all(), [("a".to_owned(), Share::Part(1.0))]);
    }

    #[test]
    fn invalid_shares_are_refused() {
        for (text, what) in [
            ("", "is not a split with its share"),
            ("train", "is not a split with its share"),
            ("train=x", "not a number or rest"),
            ("train=NaN,test=rest", "the share of train is NaN"),
            ("train=0,test=rest", "not above 0"),
            ("train=-0.1,test=rest", "not above 0"),
            ("train=1.5", "at most 1"),
            ("=0.1", "has no name"),
            ("a=0.1,a=0.2", "two splits are named a"),
            ("a=rest,b=rest", "two splits get the rest"),
        ] {
            let error = text.parse::<Shares>().unwrap_err();
            assert!(error.what().contains(what), "{text}: {error}");
            assert!(error.remedy().is_some());
        }
        let checked =
            |text: &str, per_class| shares(text).check(per_class).map_err(|e| e.to_string());
        assert!(checked("a=0.6,b=0.5", None).unwrap_err().contains("more than 1"));
        assert!(checked("a=0.6,b=0.4,c=rest", None).unwrap_err().contains("nothing is left for c"));
        assert!(checked("a=0.6,b=0.5", Some(3)).is_ok());
        assert!(checked("a=rest,b=0.5", Some(3)).is_err());
        assert!(checked("a=0.1,b=0.2,c=0.7", None).is_ok());
    }

    #[test]
    fn pixels_of_a_class_are_divided_by_largest_remainders() {
        let of = |text: &str, count, per_class| shares(text).of_class(count, per_class);
        assert_eq!(of("a=0.1,b=0.1,c=rest", 830, None), [83, 83, 664, 0]);
        assert_eq!(of("a=0.1,b=0.1,c=rest", 5, None), [1, 0, 4, 0]);
        assert_eq!(of("a=0.1,b=0.1,c=rest", 3, None), [0, 0, 3, 0]);
        assert_eq!(of("a=0.3,b=0.3", 10, None), [3, 3, 4]);
        assert_eq!(of("a=0.7,b=0.3", 10, None), [7, 3, 0]);
        assert_eq!(of("a=0.1,b=0.1,c=rest", 830, Some(50)), [50, 83, 697, 0]);
        assert_eq!(of("a=0.1,b=0.1,c=rest", 20, Some(50)), [20, 0, 0, 0]);
        assert_eq!(of("a=0.1,b=0.5,c=0.5", 100, Some(50)), [50, 25, 25, 0]);
        assert_eq!(of("a=0.1,b=0.2", 100, Some(5)), [5, 20, 75]);
    }

    proptest! {
        #[test]
        fn all_classes_together_meet_the_shares(
            counts in prop::collection::vec(0u64..30, 1..200), parts in prop::collection::vec(1u32..100, 1..5),
        ) {
            let sum = f64::from(parts.iter().sum::<u32>()) * 1.25;
            let all = parts.iter().enumerate().map(|(n, part)| (format!("s{n}"), Share::Part(f64::from(*part) / sum)));
            let shares = Shares::new(all.collect()).unwrap();
            let bins = shares.of_classes(counts.iter().copied());
            let total: u64 = counts.iter().sum();
            for (split, part) in parts.iter().map(|part| f64::from(*part) / sum).chain([0.2]).enumerate() {
                let mut got = 0;
                for (count, bins) in counts.iter().zip(&bins) {
                    prop_assert_eq!(bins.iter().sum::<u64>(), *count);
                    prop_assert!((part * *count as f64 - bins[split] as f64).abs() < 1.0 + 1e-6);
                    got += bins[split];
                }
                prop_assert!((part * total as f64 - got as f64).abs() < 5.0, "{} of {}", got, part * total as f64);
            }
        }

        #[test]
        fn every_pixel_is_given_once_and_shares_are_met_to_a_pixel(
            parts in prop::collection::vec(1u32..100, 1..5), count in 0u64..5000, has_rest in any::<bool>(),
            per_class in prop::option::of(0u64..300),
        ) {
            let sum: u32 = parts.iter().sum::<u32>() + 10;
            let mut all: Vec<_> = parts.iter().enumerate()
                .map(|(n, part)| (format!("s{n}"), Share::Part(f64::from(*part) / f64::from(sum)))).collect();
            if has_rest {
                all.push(("rest".to_owned(), Share::Rest));
            }
            let shares = Shares::new(all.clone()).unwrap();
            shares.check(per_class).unwrap();
            let bins = shares.of_class(count, per_class);
            prop_assert_eq!(bins.len(), all.len() + 1);
            prop_assert_eq!(bins.iter().sum::<u64>(), count);
            prop_assert!(!has_rest || bins[all.len()] == 0);
            if let Some(most) = per_class {
                prop_assert_eq!(bins[0], most.min(count));
            } else {
                for ((_, share), got) in all.iter().zip(&bins) {
                    if let Share::Part(part) = share {
                        prop_assert!((part * count as f64 - *got as f64).abs() < 1.0);
                    }
                }
            }
        }
    }
}
