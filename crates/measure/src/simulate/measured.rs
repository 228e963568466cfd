//! A model from measured statistics.

use hsipack_read::{BatchTimes, Distribution};
use serde::Deserialize;
use serde_json::Value;

use super::times::Times;
use crate::{Error, Result};
use hsipack_format::{Command, Opt, Remedy, remedy};

/// Loaders, queue, device and model as derived from statistics.
///
/// A loader with S slots has one batch in use while the model works on it or the link copies it, so
/// S − 1 can be loading or ready; S − 2 if a device decodes, because a batch has its slot until it
/// is decoded, while the next one is copied. At most that many load at a time, and the others form
/// the queue: with L loaders, S − 1 − L places. A real loader that finds no free slot waits before
/// it begins a batch, whereas a simulated one waits with a batch in hand. Both load the same
/// batches at the same times, because in both cases the number of batches that are begun and not
/// taken is limited.
#[derive(Clone, Debug, PartialEq)]
pub struct Measured {
    /// Number of batches that are loaded at the same time.
    pub loaders: usize,
    /// Places in the queue.
    pub queue: usize,
    /// Time that one loader needs for a batch.
    pub load: Times,
    /// Time to copy a batch to the device; `None` if no batches were copied.
    pub copy: Option<Times>,
    /// Time to decode a batch on the device; `None` if it decoded none.
    pub decode: Option<Times>,
    /// Number of slots of the device, without buffers for batches that it will decode; `None` if
    /// there is no device.
    pub device_slots: Option<usize>,
    /// Time from receiving a batch to requesting the next one; `None` if there are no such times.
    pub step: Option<Times>,
    /// Number of threads, if all threads share each batch.
    pub threads: Option<usize>,
}

/// The part of `hsipack_read::Statistics` that is needed. Files may have more fields, and may lack
/// the other ones.
#[derive(Deserialize)]
struct Statistics {
    schema: u32,
    loaders: usize,
    slots: usize,
    #[serde(default)]
    device_slots: usize,
    times: BatchTimes,
    #[serde(default)]
    loader: Inside,
}

#[derive(Default, Deserialize)]
struct Inside {
    #[serde(default)]
    threads: usize,
}

impl Measured {
    /// Finds statistics in JSON from `hsipack read`, `bench` or `diagnose` or from
    /// `Loader.stats()`: at the top, under `statistics`, or in the member of `strategies` with this
    /// name.
    ///
    /// # Errors
    /// If there are none, if there are several and none is named, or if they are not valid.
    pub fn from_json(text: &str, strategy: Option<&str>) -> Result<Self> {
        let json: Value = serde_json::from_str(text).map_err(|error| {
            Error::malformed(format!("is not JSON: {error}")).with_remedy(remedy![
                "give a file that ",
                Command::Read.with(Opt::Json),
                " or Loader.stats() wrote"
            ])
        })?;
        let found = find(&json, strategy)?;
        let statistics: Statistics = serde_json::from_value(found.clone()).map_err(|error| {
            Error::malformed(format!("its statistics are not as expected: {error}"))
                .with_remedy(write_anew())
        })?;
        statistics.measured()
    }
}

fn write_anew() -> Remedy {
    let (read, bench) = (Command::Read.with(Opt::Json), Command::Bench.with(Opt::Json));
    remedy!["write it again with ", read, ", ", bench, " or Loader.stats()"]
}

impl Statistics {
    fn measured(&self) -> Result<Measured> {
        if self.schema != 1 {
            return Err(Error::unsupported(format!("the statistics have schema {}", self.schema))
                .with_remedy(
                    "this version of hsipack reads schema 1; use the version that wrote them",
                ));
        }
        if self.loaders == 0 || self.slots < 2 {
            let (loaders, slots) = (self.loaders, self.slots);
            return Err(Error::malformed(format!(
                "the statistics have {loaders} loaders and {slots} slots"
            ))
            .with_remedy(write_anew()));
        }
        let BatchTimes { load_s, copy_s, decode_s, step_s, .. } = &self.times;
        let times = |name: &str, measured: &Distribution, option: Opt| {
            Times::measured(measured).map_err(|error| {
                Error::malformed(format!("{name} of its statistics {}", error.what()))
                    .with_remedy(remedy!["read more batches in the run, or give ", option])
            })
        };
        let load = times("load_s", load_s, Opt::LoadTime)?;
        let stage = |name, measured: &Distribution, option| {
            // Batches that the CPU decoded count as 0.
            let any = measured.percentiles.last().is_some_and(|most| *most != 0.0);
            any.then(|| times(name, measured, option)).transpose()
        };
        let copy = stage("copy_s", copy_s, Opt::CopyTime)?;
        let decode = stage("decode_s", decode_s, Opt::DecodeTime)?;
        // Programs that take batches without using them have step times of 0. No model can be made from these.
        let step = Times::measured(step_s).ok();
        let in_use = if decode.is_some() && self.slots > 2 { 2 } else { 1 };
        let loaders = self.loaders.min(self.slots - in_use);
        Ok(Measured {
            loaders,
            queue: self.slots - in_use - loaders,
            load,
            copy,
            decode,
            device_slots: (self.device_slots > 0).then_some(self.device_slots),
            step,
            threads: (self.loaders == 1 && self.loader.threads > 0).then_some(self.loader.threads),
        })
    }
}

fn find<'a>(json: &'a Value, strategy: Option<&str>) -> Result<&'a Value> {
    let strategies = json.get("strategies").and_then(Value::as_array);
    let name = |entry: &'a Value| entry.get("name").and_then(Value::as_str).unwrap_or_default();
    if let Some(all) = strategies {
        let names = || all.iter().map(name).collect::<Vec<_>>().join(", ");
        let choose = || remedy!["choose one with ", Opt::Strategy, format!(": {}", names())];
        let entry = match (strategy, all.as_slice()) {
            (Some(wanted), all) => {
                all.iter().find(|entry| name(entry) == wanted).ok_or_else(|| {
                    Error::conflict(format!("has no strategy {wanted:?}")).with_remedy(choose())
                })?
            }
            (None, [only]) => only,
            (None, _) => {
                return Err(Error::new(
                    crate::ErrorKind::Ambiguous,
                    format!("has {} strategies", all.len()),
                )
                .with_remedy(choose()));
            }
        };
        return entry.get("statistics").filter(|found| found.is_object()).ok_or_else(|| {
            Error::malformed(format!("its strategy {:?} has no statistics", name(entry)))
                .with_remedy(write_anew())
        });
    }
    if strategy.is_some() {
        return Err(
            Error::conflict("has no strategies").with_remedy(remedy!["leave out ", Opt::Strategy])
        );
    }
    let is = |value: &&Value| value.get("times").is_some() && value.get("loaders").is_some();
    let nested = json.get("statistics").filter(|found| found.is_object());
    nested.or_else(|| Some(json).filter(is)).ok_or_else(|| {
        Error::malformed("has no statistics").with_remedy(remedy![
            "give a file that ",
            Command::Read.with(Opt::Json),
            ", ",
            Command::Bench.with(Opt::Json),
            " or Loader.stats() wrote"
        ])
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn statistics(loaders: usize, slots: usize) -> Value {
        let times = |mean: f64| serde_json::json!({"count": 2, "mean": mean, "sd": 0.0, "percentiles": [mean, mean]});
        serde_json::json!({
            "schema": 1, "batches": 2, "waiting_s": 0.0, "loaders": loaders, "slots": slots,
            "times": {"load_s": times(0.5), "wait_s": times(0.0), "step_s": times(0.1)},
            "loader": {"threads": 4}
        })
    }

    #[test]
    fn statistics_are_found_wherever_they_are_written() {
        let bare = statistics(1, 4);
        let strategies = serde_json::json!({"strategies": [
            {"name": "original", "statistics": statistics(2, 5)}, {"name": "ring", "statistics": bare}]});
        let of = |json: &Value, name| Measured::from_json(&json.to_string(), name);
        let ring = of(&bare, None).unwrap();
        assert_eq!((ring.loaders, ring.queue, ring.threads), (1, 2, Some(4)));
        assert_eq!((ring.load.mean_s(), ring.step.as_ref().unwrap().mean_s()), (0.5, 0.1));
        assert_eq!(of(&serde_json::json!({"statistics": bare, "x": 1}), None).unwrap(), ring);
        assert_eq!(of(&strategies, Some("ring")).unwrap(), ring);
        let original = of(&strategies, Some("original")).unwrap();
        assert_eq!((original.loaders, original.queue, original.threads), (2, 2, None));
        assert!(of(&strategies, None).unwrap_err().to_string().contains("original, ring"));
        assert!(of(&strategies, Some("x")).is_err() && of(&bare, Some("x")).is_err());
    }

    #[test]
    fn slots_bound_loaders_and_queue() {
        for (loaders, slots, want) in
            [(1, 2, (1, 0)), (1, 4, (1, 2)), (7, 15, (7, 7)), (7, 4, (3, 0))]
        {
            let found = Measured::from_json(&statistics(loaders, slots).to_string(), None).unwrap();
            assert_eq!((found.loaders, found.queue), want);
        }
    }

    #[test]
    fn stages_on_a_device_are_those_with_times() {
        let times = |all: &[f64]| serde_json::to_value(Distribution::of(all.to_vec())).unwrap();
        let of = |slots: usize, device_slots: usize, copy: &[f64], decode: &[f64]| {
            let mut json = statistics(1, slots);
            json["device_slots"] = device_slots.into();
            json["times"]["copy_s"] = times(copy);
            json["times"]["decode_s"] = times(decode);
            let found = Measured::from_json(&json.to_string(), None).unwrap();
            let ms = |times: Option<Times>| {
                times.map_or(0, |times| (times.mean_s() * 1e3).round() as u64)
            };
            (found.queue, found.device_slots, ms(found.copy), ms(found.decode))
        };
        assert_eq!(of(4, 0, &[], &[]), (2, None, 0, 0));
        assert_eq!(of(4, 2, &[0.25, 0.75], &[]), (2, Some(2), 500, 0));
        assert_eq!(of(4, 2, &[0.25, 0.75], &[0.1]), (1, Some(2), 500, 100));
        // The CPU decoded all batches.
        assert_eq!(of(4, 3, &[0.2], &[0.0, 0.0]), (2, Some(3), 200, 0));
        // There is no slot in which the next batch could be copied meanwhile.
        assert_eq!(of(2, 2, &[0.2], &[0.1]), (0, Some(2), 200, 100));
    }

    #[test]
    fn nonsense_is_refused_with_a_remedy() {
        let broken = |key: &str, value: Value| {
            let mut json = statistics(1, 4);
            *json.pointer_mut(key).unwrap() = value;
            json.to_string()
        };
        for text in [
            "".to_owned(),
            "[]".to_owned(),
            "{}".to_owned(),
            r#"{"strategies": []}"#.to_owned(),
            broken("/schema", 2.into()),
            broken("/loaders", 0.into()),
            broken("/slots", 1.into()),
            broken("/times/load_s/percentiles", serde_json::json!([-1.0, 2.0])),
            broken("/times", Value::Null),
        ] {
            let error = Measured::from_json(&text, None).unwrap_err();
            assert!(error.remedy().is_some(), "{text}: {error}");
        }
    }
}
