//! Measures one case.

use std::path::PathBuf;
use std::time::Instant;

use hsipack_read::Statistics;
use serde::{Deserialize, Serialize};

use super::busy::Busy;
use super::data::Data;
use super::feed::{ConsumerStats, Feed};
use super::load;
use super::load::Watch;
use super::options::{Settings, Strategy};
use crate::Result;
use crate::device::TrainingLibrary;
use crate::machine::{self, Usage};
use crate::step::{StepKind, Trainer};

/// One measurement: one strategy at one rate, once.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Request {
    /// The strategy.
    pub strategy: Strategy,
    /// Bytes read per second by all workers together; unlimited if `None`.
    pub rate_limit: Option<u64>,
    /// All other settings.
    pub settings: Settings,
    /// The files.
    pub data: Data,
}

/// The results of a case. Times are in seconds.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Measurement {
    /// Duration of each measured epoch.
    pub epoch_s: Vec<f64>,
    /// Number of cubes in all of them.
    pub cubes: u64,
    /// Processor time of all threads.
    pub cpu_s: Option<f64>,
    /// The most memory that the process held, from its start.
    pub peak_bytes: Option<u64>,
    /// Bytes read from files.
    pub bytes_read: u64,
    /// Bytes of these that came from disks and not from the system's file cache.
    pub disk_bytes: Option<u64>,
    /// Share of the time during which the device worked.
    pub utilisation: f64,
    /// How it was measured: by `nvml`, or by the consumer's `clock`.
    pub utilisation_source: String,
    /// The same for each window of 0.15 s.
    pub timeline: Vec<f64>,
    /// The device: `cpu`, `cuda:0`, …
    pub device: String,
    /// Name of the GPU.
    pub gpu: Option<String>,
    /// Where the time went.
    pub statistics: Statistics,
    /// Notes for the user.
    pub notes: Vec<String>,
}

/// Values that the consumer collects.
#[derive(Default)]
struct Kept {
    epoch_s: Vec<f64>,
    wait_s: Vec<f64>,
    step_s: Vec<f64>,
    busy: Busy,
    cubes: u64,
    bytes: u64,
    notes: Vec<String>,
}

/// Measures a case in this process, with tensors of a library. Peak memory is that of the whole
/// process, so use a new process for each case.
///
/// # Errors
/// If files cannot be read, augmentations do not fit, or there is no memory.
pub fn measure<L: TrainingLibrary>(request: &Request, library: &L) -> Result<Measurement> {
    let Request { strategy, rate_limit, settings, data } = request;
    let device = library.named(&settings.device)?;
    // Starting a GPU is not part of an epoch.
    let mut step = library.step(settings.step, data.shape.bands, device)?;
    let mut feed = Feed::start(*strategy, *rate_limit, settings, data, library, device)?;
    let mut kept = Kept::default();
    let device_works = feed.augments() || matches!(settings.step, StepKind::Network);
    let per_epoch = feed.batches_per_epoch();
    for _ in 0..warmup_epochs(settings.warmup_epochs, device_works, feed.slots(), per_epoch) {
        epoch(&mut feed, &mut *step, library, request, Instant::now(), &mut kept)?;
    }
    feed.begin();
    kept = Kept { notes: kept.notes, ..Kept::default() };
    let (usage, bytes_before) = (Usage::now(), feed.bytes_read());
    let watch = Watch::start(device);
    let start = Instant::now();
    let mut before = 0.0;
    for _ in 0..settings.epochs {
        epoch(&mut feed, &mut *step, library, request, start, &mut kept)?;
        let now = start.elapsed().as_secs_f64();
        kept.epoch_s.push(now - before);
        before = now;
    }
    let seconds = before;
    let usage = Usage::now().since(usage);
    let looked = watch.map(Watch::stop).filter(|loads| !loads.is_empty());
    let bytes_read = feed.bytes_read() - bytes_before;
    let by_clock = (kept.busy.share(0.0, seconds), kept.busy.windows(0.0, seconds));
    let (source, (utilisation, timeline)) = match looked {
        Some(loads) => ("nvml", (loads.iter().sum::<f64>() / loads.len() as f64, loads)),
        None => ("clock", by_clock),
    };
    let consumer = ConsumerStats {
        seconds,
        wait_s: &kept.wait_s,
        step_s: &kept.step_s,
        cubes: kept.cubes,
        bytes: kept.bytes,
        bytes_read,
    };
    kept.notes.dedup();
    Ok(Measurement {
        cubes: kept.cubes,
        cpu_s: usage.cpu_s,
        peak_bytes: machine::peak_memory(),
        bytes_read,
        disk_bytes: usage.disk_bytes,
        utilisation,
        utilisation_source: source.to_owned(),
        timeline,
        device: device.to_string(),
        gpu: load::gpu_name(device),
        statistics: feed.statistics(consumer),
        epoch_s: kept.epoch_s,
        notes: kept.notes,
    })
}

/// Number of warm-up epochs. The device's first work takes long, and meanwhile batches are loaded
/// ahead. With a slow disk, the measured epochs would get these batches for free. So if the device
/// has such work, at least three times as many batches come first as there are slots, unless no
/// warm-up was requested.
fn warmup_epochs(
    requested: usize,
    device_works: bool,
    slots: usize,
    batches_per_epoch: usize,
) -> usize {
    if device_works && requested > 0 {
        requested.max((3 * slots).div_ceil(batches_per_epoch))
    } else {
        requested
    }
}

/// One epoch: for each batch wait, copy, augment, train.
fn epoch<L: TrainingLibrary>(
    feed: &mut Feed<L>,
    step: &mut dyn Trainer<L::Tensor>,
    library: &L,
    request: &Request,
    start: Instant,
    kept: &mut Kept,
) -> Result<()> {
    let now = || start.elapsed().as_secs_f64();
    let mut requested_at = now();
    for _ in 0..feed.batches_per_epoch() {
        let delivered = feed.next()?;
        let received_at = now();
        let batch = feed.arrive(delivered)?;
        let arrived_at = now();
        let image = feed.augment(batch)?;
        step.train(&image)?;
        let (shape, element) = library.look_at(&image)?;
        kept.cubes += shape[0] as u64;
        kept.bytes += (shape.iter().product::<usize>() * element.size()) as u64;
        // Free the memory before the next batch is requested.
        drop(image);
        let done_at = now();
        kept.busy.add(arrived_at, done_at);
        kept.wait_s.push(received_at - requested_at);
        kept.step_s.push(done_at - received_at);
        requested_at = done_at;
    }
    if request.settings.drop_cache {
        feed.release();
        if let Err(error) = machine::drop_file_cache(&files(request)) {
            kept.notes.push(format!("the file cache was not dropped: {error}"));
        }
    }
    Ok(())
}

/// The folder that the strategy reads.
fn files(request: &Request) -> PathBuf {
    match request.strategy {
        Strategy::Original => request.data.original.clone(),
        Strategy::Blosc => request.data.blosc.clone(),
        _ => request.data.half.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn batches_loaded_ahead_of_a_slow_first_one_are_used_up_before_counting() {
        // Two batches per epoch, four slots: at least twelve batches, unless no warm-up was asked for.
        assert_eq!(warmup_epochs(1, true, 4, 2), 6);
        assert_eq!(warmup_epochs(1, true, 4, 5), 3);
        assert_eq!(warmup_epochs(9, true, 4, 2), 9);
        assert_eq!(warmup_epochs(0, true, 4, 2), 0);
        assert_eq!(warmup_epochs(1, false, 4, 2), 1);
    }
}
