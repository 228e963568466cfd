//! How much is measured.

use std::time::Duration;

#[cfg(feature = "clap")]
use clap::builder::TypedValueParser;
#[cfg(feature = "clap")]
use hsipack_format::arguments::{count, duration};
use serde::{Deserialize, Serialize};

use super::rounds::Rounds;
use super::verdict::Limits;

/// How much is measured. `serde` makes these options arguments of Python's `hsipack.diagnose`, the
/// feature `clap` those of `hsipack diagnose`.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "clap", derive(clap::Args))]
#[serde(default)]
pub struct Effort {
    /// Apply the recommendation, and compare the measured gain with the predicted one. If the speed
    /// of the machine changed in between, everything is repeated, up to three times in total
    #[cfg_attr(feature = "clap", arg(long, help_heading = "Measuring"))]
    pub verify: bool,
    /// How often to run every level; up to three times as often while more rounds could change the
    /// verdict
    // The remedy is tried in rounds as well.
    #[cfg_attr(feature = "clap", arg(long, value_name = "N", default_value = "5", value_parser = count(1..=1000).map(Rounds::new), help_heading = "Measuring"))]
    pub rounds: Rounds,
    /// Minimum time to run a level in a round
    // At least three batches are measured.
    #[serde(rename = "seconds", with = "seconds")]
    #[cfg_attr(feature = "clap", arg(long, value_name = "TIME", default_value = "1s", value_parser = duration, help_heading = "Measuring"))]
    pub time: Duration,
    /// When a drop counts.
    #[serde(skip)]
    #[cfg_attr(feature = "clap", arg(skip))]
    pub limits: Limits,
}

impl Default for Effort {
    /// Five rounds of one second each; nothing is verified.
    fn default() -> Self {
        let (rounds, time) = (Rounds::new(5), Duration::from_secs(1));
        Self { verify: false, rounds, time, limits: Limits::default() }
    }
}

/// A time as a number of seconds.
mod seconds {
    use std::time::Duration;

    use serde::de::{Error, Unexpected};
    use serde::{Deserialize, Deserializer, Serializer};

    pub fn serialize<S: Serializer>(time: &Duration, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_f64(time.as_secs_f64())
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Duration, D::Error> {
        let seconds = f64::deserialize(from)?;
        let refused = |_| D::Error::invalid_value(Unexpected::Float(seconds), &"a time from 0 on");
        Duration::try_from_secs_f64(seconds).map_err(refused)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn efforts_are_read_by_name_and_wrong_ones_are_refused() {
        let read = serde_json::from_value::<Effort>;
        assert_eq!(read(json!({})).unwrap(), Effort::default());
        let effort = read(json!({"rounds": 2, "seconds": 0.5, "verify": true})).unwrap();
        assert_eq!((effort.rounds, effort.verify), (Rounds::new(2), true));
        assert_eq!(effort.time, Duration::from_millis(500));
        assert_eq!(read(serde_json::to_value(effort).unwrap()).unwrap(), effort);
        for wrong in [json!({"rounds": 0}), json!({"seconds": -1.0}), json!({"seconds": 1e300})] {
            assert!(read(wrong.clone()).is_err(), "{wrong}");
        }
    }
}
