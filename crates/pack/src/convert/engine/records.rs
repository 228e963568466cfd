//! Records of samples in finished shards, so that a resumed conversion need not read the samples
//! again.

use serde_json::{Value, json};

use crate::convert::stats::{BandStats, Summary, Vanished};

/// Facts about a packed sample.
#[derive(Clone, Debug)]
pub struct SampleRecord {
    /// NaN values.
    pub nan: u64,
    /// Infinite values.
    pub inf: u64,
    /// Least and greatest finite value.
    pub range: Option<[f64; 2]>,
    /// The greatest relative quantisation error, and its band.
    pub relative: (usize, f64),
    /// The greatest absolute quantisation error, and its band.
    pub absolute: (usize, f64),
    /// Whether most values became 0.
    pub vanished: Option<Vanished>,
}

impl SampleRecord {
    /// The record of a sample with these statistics.
    pub(super) fn of(stats: &BandStats) -> Self {
        let Summary { nan, inf, range } = stats.summary();
        let relative = stats.worst_relative().unwrap_or_default();
        let absolute = stats.worst_absolute().unwrap_or_default();
        Self { nan, inf, range, relative, absolute, vanished: stats.vanished() }
    }

    /// The record of sample `sample` of the plan, with its numbers bit for bit.
    pub(super) fn to_json(&self, sample: usize) -> Value {
        let bits = |(band, error): (usize, f64)| (band, error.to_bits());
        json!({
            "sample": sample,
            "nan": self.nan,
            "inf": self.inf,
            "range": self.range.map(|range| range.map(f64::to_bits)),
            "relative": bits(self.relative),
            "absolute": bits(self.absolute),
            "vanished": self.vanished.map(|Vanished { band, part }| (band, part.to_bits())),
        })
    }

    /// Reads the record that [`to_json`](Self::to_json) wrote; `None` if the JSON is not such a
    /// record.
    pub(super) fn from_json(json: &Value) -> Option<(usize, Self)> {
        let real = |value: &Value| value.as_u64().map(f64::from_bits);
        let range = json["range"].as_array();
        let error = |key: &str| {
            let band = usize::try_from(json[key][0].as_u64()?).ok()?;
            Some((band, real(&json[key][1])?))
        };
        let record = Self {
            nan: json["nan"].as_u64()?,
            inf: json["inf"].as_u64()?,
            range: range.and_then(|range| Some([real(range.first()?)?, real(range.get(1)?)?])),
            relative: error("relative")?,
            absolute: error("absolute")?,
            vanished: real(&json["vanished"][1]).map(|part| Vanished {
                band: json["vanished"][0].as_u64().map(|band| band as usize),
                part,
            }),
        };
        Some((json["sample"].as_u64()? as usize, record))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_come_back_bit_for_bit() {
        let (relative, absolute) = ((3, 0.1), (5, 1e-300));
        let range = Some([-0.0, 0.1]);
        let vanished = Some(Vanished { band: Some(2), part: 0.7 });
        let record = SampleRecord { nan: 1, inf: 2, range, relative, absolute, vanished };
        let (sample, read) = SampleRecord::from_json(&record.to_json(7)).unwrap();
        assert_eq!((sample, read.nan, read.inf), (7, 1, 2));
        assert_eq!((read.relative, read.absolute), (relative, absolute));
        assert_eq!(read.vanished, vanished);
        assert_eq!(read.range.unwrap().map(f64::to_bits), record.range.unwrap().map(f64::to_bits));
        let empty = SampleRecord { range: None, vanished: None, ..record };
        let (_, read) = SampleRecord::from_json(&empty.to_json(0)).unwrap();
        assert_eq!((read.range, read.vanished), (None, None));
        assert!(SampleRecord::from_json(&json!({"sample": 0})).is_none());
    }
}
