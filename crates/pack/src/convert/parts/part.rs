//! Which shards of a conversion belong to which part.

use std::fmt;
use std::num::NonZeroUsize;
use std::str::FromStr;

use hsipack_format::{Error, Result};

/// One of several parts of a conversion, such as `2/16`, counted from 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Part {
    /// Counted from 0.
    index: usize,
    of: NonZeroUsize,
}

impl Part {
    /// The whole conversion.
    pub const WHOLE: Part = Part { index: 0, of: NonZeroUsize::MIN };

    /// Part `number`, counted from 1, of `of`.
    ///
    /// # Errors
    /// If there is no such part.
    pub fn new(number: usize, of: usize) -> Result<Self> {
        match NonZeroUsize::new(of) {
            Some(of) if (1..=of.get()).contains(&number) => Ok(Self { index: number - 1, of }),
            _ => Err(Error::conflict(format!("there is no part {number} of {of}"))
                .with_remedy("parts are counted from 1: give 1/16, 2/16, … 16/16")),
        }
    }

    /// Those of `all` that belong to this part. Neighbours go to different parts, because shards of
    /// one stack take about the same time.
    pub(crate) fn of<T>(self, all: impl Iterator<Item = T>) -> impl Iterator<Item = T> {
        all.skip(self.index).step_by(self.of.get())
    }
}

impl fmt::Display for Part {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.index + 1, self.of)
    }
}

impl FromStr for Part {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let numbers = text
            .split_once('/')
            .and_then(|(number, of)| Some((number.trim().parse().ok()?, of.trim().parse().ok()?)));
        match numbers {
            Some((number, of)) => Self::new(number, of),
            None => Err(Error::conflict(format!("{text:?} is not a part"))
                .with_remedy("give its number and the number of parts, such as 1/16")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_all_and_none_twice() {
        for of in [1, 2, 5, 16] {
            let mut all: Vec<usize> =
                (1..=of).flat_map(|number| Part::new(number, of).unwrap().of(0..11)).collect();
            all.sort_unstable();
            assert_eq!(all, (0..11).collect::<Vec<_>>());
        }
        assert_eq!(Part::WHOLE.of(0..3).count(), 3);
    }

    #[test]
    fn parts_are_counted_from_one() {
        for text in ["1/1", "2/16", "16/16"] {
            assert_eq!(text.parse::<Part>().unwrap().to_string(), text);
        }
        for text in ["0/16", "17/16", "1/0", "1", "a/b", "-1/2", ""] {
            let error = text.parse::<Part>().unwrap_err().to_string();
            assert!(error.contains("1/16"), "{error}");
        }
    }
}
