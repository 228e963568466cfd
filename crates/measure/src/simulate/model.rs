//! The model, and which models are refused.

use serde::{Deserialize, Serialize};

use super::bounds::Bounds;
use super::times::{LONGEST_S, Times};
use crate::{Error, Result};

/// The default spread of load times, as a share of their mean. With it, simulations reproduce the
/// published runs of 7 loaders (docs/simulating.md).
pub const DEFAULT_SPREAD: f64 = 0.05;

/// Maximum number of loaders.
pub const MAX_LOADERS: usize = 1024;

/// Maximum number of places in the queue.
pub const MAX_QUEUE: usize = 1 << 20;

/// Maximum number of device slots.
pub const MAX_DEVICE_SLOTS: usize = 1024;

/// Number of device slots of hsipack's loader: one is written to while one is used.
/// [`Model::copies_ahead`] adds one.
pub(super) const DEVICE_SLOTS: usize = 2;

/// Maximum number of simulated batches: a few seconds of work.
pub const MAX_BATCHES: u64 = 50_000_000;

/// Which batch the model gets next.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Order {
    /// The batch that was loaded first. The next free loader begins the next batch.
    FirstCome,
    /// The next batch by number, as with PyTorch's DataLoader: loader i modulo the number of
    /// loaders loads batch i. A slow batch delays the batches after it, which wait in the queue and
    /// in the loaders.
    InOrder,
}

hsipack_format::option_names!(Order, "order", {
    FirstCome => "first-come",
    InOrder => "in-order",
});

/// When a run ends.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum End {
    /// After this many seconds.
    Seconds(f64),
    /// When the model has finished this many batches.
    Batches(u64),
}

/// Loaders, queue, device and model.
#[derive(Clone, Debug, PartialEq)]
pub struct Model {
    /// Number of batches that are loaded at the same time, each by one loader.
    pub loaders: usize,
    /// Time that a loader needs for a batch.
    pub load: Times,
    /// Time to copy a batch to the device; `None` if batches are not copied.
    pub copy: Option<Times>,
    /// Time to decode a batch on the device; `None` if the loaders decode.
    pub decode: Option<Times>,
    /// Number of batches that can be on the device: from the beginning of the copy, or of the
    /// decoding if there is no copy, to the end of the step. Without either, it has no effect.
    pub device_slots: usize,
    /// Time that the model needs for a batch.
    pub step: Times,
    /// Number of finished batches that the queue can hold, in addition to those that loaders hold.
    /// With 0, a loader holds its batch until it is taken: by the model or, on a device, by the
    /// link, which is done with it after the copy. At most `loaders + queue` batches are begun and
    /// not taken; for a DataLoader this limit is `num_workers * prefetch_factor`.
    pub queue: usize,
    /// Which batch the model gets next.
    pub order: Order,
    /// Seed of the random numbers.
    pub seed: u64,
    /// When the run ends.
    pub end: End,
    /// Number of threads, if all threads of the only loader share each batch.
    pub threads: Option<usize>,
}

impl Model {
    /// Loaders without queue and device, first come first served, for 30 s, with mean times in
    /// seconds, the default spread of load times, and a constant step time.
    pub fn new(loaders: usize, load_s: f64, step_s: f64) -> Self {
        Self {
            loaders,
            load: Times::new(load_s, load_s * DEFAULT_SPREAD),
            copy: None,
            decode: None,
            device_slots: DEVICE_SLOTS,
            step: Times::new(step_s, 0.0),
            queue: 0,
            order: Order::FirstCome,
            seed: 0,
            end: End::Seconds(30.0),
            threads: None,
        }
    }

    /// Whether batches are copied to a device, or decoded there.
    pub fn has_device(&self) -> bool {
        self.copy.is_some() || self.decode.is_some()
    }

    /// Whether batches are copied and then decoded. While one is decoded, the next is copied into a
    /// buffer of its own, so one more batch can be on the device.
    pub(super) fn copies_ahead(copy: Option<&Times>, decode: Option<&Times>) -> bool {
        copy.is_some() && decode.is_some()
    }

    /// Upper bounds of the rate.
    pub fn bounds(&self) -> Bounds {
        let rate = |times: &Times| 1.0 / times.mean_s();
        let on_device = [self.copy.as_ref(), self.decode.as_ref(), Some(&self.step)];
        let on_device: Vec<f64> = on_device.into_iter().flatten().map(Times::mean_s).collect();
        // With a slot for each stage, one of the stages is always the lower bound.
        let limits = self.device_slots < on_device.len();
        let stay: f64 = on_device.iter().sum();
        Bounds {
            loading: self.loaders as f64 / self.load.mean_s(),
            copy: self.copy.as_ref().map(rate),
            decode: self.decode.as_ref().map(rate),
            device_slots: limits.then_some(self.device_slots as f64 / stay),
            step: rate(&self.step),
        }
    }

    /// # Errors
    /// If the model is not valid, or would take too much time or memory to simulate.
    pub fn check(&self) -> Result<()> {
        let within = |name: &str, number: usize, least: usize, most: usize| {
            if (least..=most).contains(&number) {
                return Ok(());
            }
            Err(Error::conflict(format!("there are {number} {name}"))
                .with_remedy(format!("choose {least} to {most}")))
        };
        within("loaders", self.loaders, 1, MAX_LOADERS)?;
        within("batches in the queue", self.queue, 0, MAX_QUEUE)?;
        within("device slots", self.device_slots, 1, MAX_DEVICE_SLOTS)?;
        let times = |name: &str, times: &Times| {
            times.check().map_err(|error| {
                Error::conflict(format!("the {name} time {}", error.what()))
                    .with_remedy("give times above 0 and up to ten years")
            })
        };
        let stages = [
            ("load", Some(&self.load)),
            ("copy", self.copy.as_ref()),
            ("decode", self.decode.as_ref()),
            ("step", Some(&self.step)),
        ];
        let stages = || stages.iter().filter_map(|(name, times)| Some((*name, (*times)?)));
        stages().try_for_each(|(name, stage)| times(name, stage))?;
        let batches = match self.end {
            End::Batches(batches) => batches as f64,
            End::Seconds(time) if time.is_finite() && time > 0.0 && time <= LONGEST_S => {
                time * self.bounds().least()
            }
            End::Seconds(_) => {
                return Err(Error::conflict("the duration is 0 or longer than ten years")
                    .with_remedy("choose one in between, such as 30s"));
            }
        };
        if batches > MAX_BATCHES as f64 {
            return Err(too_many());
        }
        if batches < 1.0 && matches!(self.end, End::Batches(_)) {
            return Err(Error::conflict("there are 0 batches").with_remedy("simulate at least one"));
        }
        let mean = stages().map(|(_, times)| times.mean_s()).fold(0.0, f64::max);
        if matches!(self.end, End::Batches(_)) && batches * mean > LONGEST_S {
            return Err(Error::conflict("so many batches take longer than ten years")
                .with_remedy("simulate fewer batches"));
        }
        Ok(())
    }
}

pub(super) fn too_many() -> Error {
    Error::conflict(format!(
        "more than {} million batches would be simulated",
        MAX_BATCHES / 1_000_000
    ))
    .with_remedy("choose a shorter duration; rates settle long before")
}
