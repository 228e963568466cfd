//! Bottleneck of a running loader, from its counters: a quick look that needs no further runs.
//!
//! The parts are named by the same levels, and the remedies come from the same code, as in
//! [`diagnose`](super). The counters show how long parts were busy, but not what would be gained
//! without them; only a diagnosis measures that.

use hsipack_read::CacheKind;
use serde::{Deserialize, Serialize};

use super::action::Action;
use super::facts::Facts;
use super::level::Level;
use super::remedy;
use super::verdict::NETWORK;

/// The limit of the rate of batches.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Limit {
    /// Batches are ready before they are needed.
    Consumer,
    /// Threads wait for stored bytes.
    Disk,
    /// Threads decompress, or wait for a processor.
    Decode,
    /// Opening files, or choosing crops by their labels, takes longer than decoding them.
    Plan,
}

/// Activity of a loader and its consumer over some time.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Observed {
    /// Share of the time in which the consumer waited for a batch, from 0 to 1.
    pub consumer_waiting: f64,
    /// Share of the time of all decoding threads in which they worked, including reading.
    pub decode_busy: f64,
    /// Share of the planning thread's time in which it worked.
    pub plan_busy: f64,
    /// Seconds that all decoding threads worked, including reading.
    pub decode_busy_s: f64,
    /// Seconds of these that were spent on reading.
    pub read_s: f64,
    /// Bytes that were read from files.
    pub stored_bytes: u64,
    /// Bytes that came from disks, not from the system's file cache; `None` if the system does not
    /// say.
    pub disk_bytes: Option<u64>,
    /// Processor time of all threads in seconds; `None` if the system does not say.
    pub cpu_s: Option<f64>,
}

impl Observed {
    /// The limit of the rate of batches.
    pub fn limit(&self) -> Limit {
        if self.consumer_waiting < 0.1 {
            return Limit::Consumer;
        }
        if self.decode_busy < 0.5 && self.plan_busy > 0.5 {
            return Limit::Plan;
        }
        if self.read_s > 0.5 * self.decode_busy_s || self.faults() {
            return Limit::Disk;
        }
        Limit::Decode
    }

    /// Whether threads mostly wait for pages of memory maps, which counts as decoding. This is so
    /// if many bytes came from disks and the processors were not busy.
    fn faults(&self) -> bool {
        let from_disk = self.disk_bytes.is_some_and(|bytes| bytes > self.stored_bytes / 4);
        let rested = self.cpu_s.is_some_and(|cpu| cpu < 0.6 * self.decode_busy_s);
        self.stored_bytes > 0 && from_disk && rested
    }
}

hsipack_format::option_names!(Limit, "limit", {
    Consumer => "consumer",
    Disk => "disk",
    Decode => "decode",
    Plan => "plan",
});

impl Limit {
    /// The level whose part is the culprit; `None` if a diagnosis has no such level.
    pub fn culprit(self) -> Option<Level> {
        match self {
            Limit::Disk => Some(Level::Read),
            Limit::Decode => Some(Level::Decode),
            Limit::Consumer | Limit::Plan => None,
        }
    }

    /// The limit in words; `remote` is true for a dataset on a server.
    pub fn meaning(self, remote: bool) -> &'static str {
        match (self, self.culprit()) {
            (Limit::Disk, _) if remote => NETWORK,
            (_, Some(level)) => level.adds(),
            (Limit::Plan, None) => "planning: opening files, or finding crops with labels",
            (_, None) => "the consumer: batches are ready before they are needed",
        }
    }

    /// Changes to try, best first: options, then advice in words; both are empty if the consumer is
    /// the limit.
    pub fn remedies(self, facts: &Facts) -> (Vec<Action>, Vec<String>) {
        match self {
            Limit::Consumer => (Vec::new(), Vec::new()),
            Limit::Plan if facts.labelled_crops => {
                let advice = "a lower share of labelled pixels: to reach it, up to 32 crops are drawn for each item";
                (Vec::new(), vec![advice.to_owned()])
            }
            Limit::Plan => {
                (Vec::new(), vec!["more epochs: files are opened in the first one".to_owned()])
            }
            Limit::Disk => {
                let cache = remedy::cache(facts, CacheKind::Compressed);
                (cache.into_iter().collect(), remedy::disk_advice(facts))
            }
            Limit::Decode => {
                let options = [remedy::threads(facts), remedy::cache(facts, CacheKind::Decoded)];
                // Chunks that are kept decoded are only copied, whatever their codec.
                let kept = facts.cache == CacheKind::Decoded.name();
                let mut advice = if kept { Vec::new() } else { remedy::decode_advice(facts) };
                advice.push("more cores".to_owned());
                (options.into_iter().flatten().collect(), advice)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::remedy::remedy;
    use super::super::verdict::{Limits, Measured, verdict};
    use super::*;

    fn busy() -> Observed {
        Observed {
            consumer_waiting: 1.0,
            decode_busy: 1.0,
            decode_busy_s: 2.0,
            ..Observed::default()
        }
    }

    #[test]
    fn the_busy_part_is_the_limit() {
        assert_eq!(Observed { consumer_waiting: 0.05, ..busy() }.limit(), Limit::Consumer);
        assert_eq!(busy().limit(), Limit::Decode);
        assert_eq!(Observed { read_s: 1.5, ..busy() }.limit(), Limit::Disk);
        assert_eq!(Observed { decode_busy: 0.2, plan_busy: 0.9, ..busy() }.limit(), Limit::Plan);
        let faults =
            Observed { stored_bytes: 100, disk_bytes: Some(90), cpu_s: Some(0.5), ..busy() };
        assert_eq!(faults.limit(), Limit::Disk);
        assert_eq!(Observed { cpu_s: Some(1.9), ..faults }.limit(), Limit::Decode);
    }

    #[test]
    fn quick_advice_equals_that_of_a_diagnosis() {
        let facts = Facts {
            threads: 2,
            cores: 2,
            available_memory: Some(1000),
            stored_bytes: Some(100),
            decoded_bytes: Some(200),
            ..Facts::default()
        };
        for (limit, last) in [(Limit::Disk, Level::Read), (Limit::Decode, Level::Decode)] {
            let times = [(Level::Step, 0.1), (Level::Collate, 0.1), (last, 0.5)];
            let measured = times.map(|(level, time)| Measured { level, batch_s: vec![time; 3] });
            let diagnosed = remedy(&verdict(&measured, Limits::default()), &facts).unwrap();
            let (options, advice) = limit.remedies(&facts);
            assert_eq!(limit.culprit(), Some(last));
            assert_eq!(options.first(), Some(&diagnosed.action));
            assert!(diagnosed.advice.iter().all(|line| advice.contains(line)), "{diagnosed:?}");
        }
        let many = Facts { cores: 8, ..facts.clone() };
        assert_eq!(Limit::Decode.remedies(&many).0[0], Action::Threads { threads: 8 });
        let served = Facts { remote: true, ..facts.clone() };
        let (_, advice) = Limit::Disk.remedies(&served);
        assert!(advice[0].contains("local_cache"), "{advice:?}");
        assert!(!advice.iter().any(|line| line.contains("disk:") || line.contains("faster disk")));
        assert_eq!(Limit::Disk.meaning(true), "the network");
        assert_ne!(Limit::Disk.meaning(false), "the network");
        let cached = Facts { cache: "compressed".into(), ..facts };
        assert!(Limit::Disk.remedies(&cached).0.is_empty(), "it is in use already");
    }
}
