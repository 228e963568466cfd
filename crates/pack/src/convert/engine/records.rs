//! What is kept of samples in finished shards, so that a resumed conversion need not read them again.

use serde_json::{Value, json};

use crate::convert::stats::BandStats;

/// What is known of a packed sample.
#[derive(Clone, Debug)]
pub struct SampleRecord {
    /// NaN values.
    pub nan: u64,
    /// Infinite values.
    pub inf: u64,
    /// Least and greatest finite value.
    pub range: Option<[f64; 2]>,
    /// The band with the greatest relative quantisation error, and its greatest relative and absolute error.
    pub worst: (usize, f64, f64),
}

impl SampleRecord {
    /// The record of a sample with these statistics.
    pub(super) fn of(stats: &BandStats) -> Self {
        let summary = stats.summary();
        let worst = stats.worst_band().map_or((0, 0.0, 0.0), |(band, errors)| {
            (band, errors.max_rel_error, errors.max_abs_error)
        });
        Self { nan: summary.nan, inf: summary.inf, range: summary.range, worst }
    }

    /// The record of sample `sample` of the plan, its numbers bit for bit.
    pub(super) fn to_json(&self, sample: usize) -> Value {
        let (band, relative, absolute) = self.worst;
        json!({
            "sample": sample,
            "nan": self.nan,
            "inf": self.inf,
            "range": self.range.map(|range| range.map(f64::to_bits)),
            "worst": (band, relative.to_bits(), absolute.to_bits()),
        })
    }

    /// Reads what [`to_json`](Self::to_json) gave; `None` if it is something else.
    pub(super) fn from_json(json: &Value) -> Option<(usize, Self)> {
        let real = |value: &Value| value.as_u64().map(f64::from_bits);
        let range = json["range"].as_array();
        let worst = &json["worst"];
        let record = Self {
            nan: json["nan"].as_u64()?,
            inf: json["inf"].as_u64()?,
            range: range.and_then(|range| Some([real(range.first()?)?, real(range.get(1)?)?])),
            worst: (worst[0].as_u64().unwrap_or(0) as usize, real(&worst[1])?, real(&worst[2])?),
        };
        Some((json["sample"].as_u64()? as usize, record))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_come_back_bit_for_bit() {
        let record =
            SampleRecord { nan: 1, inf: 2, range: Some([-0.0, 0.1]), worst: (3, 0.1, 1e-300) };
        let (sample, read) = SampleRecord::from_json(&record.to_json(7)).unwrap();
        assert_eq!((sample, read.nan, read.inf, read.worst), (7, 1, 2, record.worst));
        assert_eq!(read.range.unwrap().map(f64::to_bits), record.range.unwrap().map(f64::to_bits));
        let empty = SampleRecord { range: None, ..record };
        assert_eq!(SampleRecord::from_json(&empty.to_json(0)).unwrap().1.range, None);
        assert!(SampleRecord::from_json(&json!({"sample": 0})).is_none());
    }
}
