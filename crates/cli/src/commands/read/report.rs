//! The closing report.

use std::path::PathBuf;
use std::time::Duration;

use hsipack_read::plan::State;
use hsipack_read::{
    BatchTimes, CacheChoice, CacheKind, CacheTimes, DeviceReport, MemoryReport, Shuffled,
    Statistics,
};
use hsipack_store::local_cache::{CachedDataset, LocalCacheUse};
use serde::Serialize;

use super::Args;
use super::advice::advice;
use super::figures::{Figures, unit};
use super::source::Source;
use super::stream::{End, EpochReport, Epochs};
use crate::{output, parse};

/// The data that were read, the rate, and its limit.
#[derive(Debug, Serialize)]
pub struct Report {
    dataset: PathBuf,
    fingerprint: String,
    /// `complete`, `max-batches` or `stopped`.
    ended: &'static str,
    resumed: Option<Resumed>,
    state: Option<PathBuf>,
    /// Number of epochs that were read. The first and the last may be incomplete.
    epochs: usize,
    /// Time to open the dataset and make the ring.
    setup_s: f64,
    #[serde(flatten)]
    total: Figures,
    batch_size: usize,
    batches_per_epoch: usize,
    rank: usize,
    world_size: usize,
    order: String,
    seed: u64,
    store: String,
    verify: String,
    rate_limit: Option<u64>,
    latency_s: f64,
    masks: Vec<String>,
    threads: usize,
    slots: usize,
    memory: MemoryReport,
    cache: Cache,
    local_cache: Option<LocalCacheUse>,
    /// How batches get to the device; nothing on the CPU.
    transfer: Option<DeviceReport>,
    /// Options that could make reading faster.
    advice: Vec<String>,
    first_epoch: Option<Figures>,
    later_epochs: Option<Figures>,
    per_epoch: Vec<EpochReport>,
    /// Statistics of all epochs, in the schema of all commands.
    statistics: Statistics,
    #[serde(skip)]
    unit: &'static str,
}

/// Where a run from a saved state continued.
#[derive(Debug, Serialize)]
struct Resumed {
    epoch: u64,
    batches: usize,
}

#[derive(Debug, Serialize)]
struct Cache {
    #[serde(flatten)]
    choice: CacheChoice,
    bytes: u64,
    #[serde(flatten)]
    times: CacheTimes,
}

impl Report {
    pub fn new(
        args: &Args,
        loader: &Source,
        saved: Option<&State>,
        end: &End,
        setup: Duration,
        epochs: Epochs,
    ) -> Self {
        let Epochs { list, looks } = epochs;
        let (start, last) = (looks[0], looks[looks.len() - 1]);
        let total = Figures::between(&start, &last);
        let options = loader.options();
        Self {
            dataset: args.dataset.clone(),
            fingerprint: loader.dataset().fingerprint().to_owned(),
            ended: match end {
                End::Complete | End::Failed(..) => "complete",
                End::Enough => "max-batches",
                End::Stopped => "stopped",
            },
            resumed: saved.map(|state| Resumed {
                epoch: state.epoch,
                batches: state.delivered.iter().map(|segment| segment.batches).sum(),
            }),
            state: args.state.clone(),
            epochs: list.len(),
            setup_s: setup.as_secs_f64(),
            batch_size: options.plan.batch_size,
            batches_per_epoch: loader.batches_per_epoch().unwrap_or(0),
            rank: options.share.rank,
            world_size: options.share.world_size,
            order: parse::typed(options.plan.order),
            seed: options.plan.seed,
            store: args.store.to_string(),
            verify: args.verify.to_string(),
            rate_limit: args.link.rate,
            latency_s: args.link.latency.as_secs_f64(),
            masks: loader.masks().to_vec(),
            threads: options.threads,
            slots: options.slots,
            memory: loader.memory(),
            cache: Cache {
                choice: loader.cache().clone(),
                bytes: loader.cached_bytes(),
                times: loader.cache_times(),
            },
            local_cache: loader.dataset().local_cache().map(CachedDataset::used),
            transfer: loader.transfer(),
            advice: advice(total.limit, loader, args),
            first_epoch: list.first().map(|epoch| epoch.figures.clone()),
            later_epochs: (list.len() > 1).then(|| Figures::between(&looks[1], &last)),
            total,
            per_epoch: list,
            statistics: loader.statistics(),
            unit: unit(loader),
        }
    }

    /// Prints the report for people.
    pub fn print(&self) {
        let Self { total, .. } = self;
        say!(
            "{}: {} in {} of up to {}, {}, {:.2} s{}",
            self.dataset.display(),
            output::count(total.samples as usize, self.unit),
            output::count(total.batches as usize, "batch"),
            self.batch_size,
            output::count(self.epochs, "epoch"),
            total.seconds,
            match self.ended {
                "stopped" => " (stopped)",
                "max-batches" => " (as many batches as requested)",
                _ => "",
            }
        );
        if total.batches == 0 {
            self.print_nothing();
            return;
        }
        line("rate", self.rate());
        if let (Some(first), Some(later)) = (&self.first_epoch, &self.later_epochs) {
            line("first epoch", first.rates(self.unit));
            line("later epochs", later.rates(self.unit));
        }
        line("data", self.data());
        self.print_network();
        line("threads", self.threads());
        line("ring", self.ring());
        self.print_transfer();
        line("consumer", format!("waited {} of the time", percent(total.consumer_waiting)));
        self.print_limit();
        self.print_rest();
    }

    fn print_nothing(&self) {
        match (&self.resumed, &self.state) {
            (Some(resumed), Some(path)) if self.ended == "complete" => say!(
                "  note: all {} were already read ({}); to read more, raise --epochs or change --state",
                output::count(resumed.epoch as usize, "epoch"),
                path.display()
            ),
            _ => {}
        }
    }

    fn print_transfer(&self) {
        let Some(DeviceReport {
            device,
            copies,
            decode,
            chunks,
            registered_bytes,
            device_cache: cache,
            notes,
            ..
        }) = &self.transfer
        else {
            return;
        };
        let bytes = output::bytes;
        let decoded = self.statistics.device_decoded;
        let link = bytes(self.statistics.link_bytes);
        line(
            "transfer",
            format!(
                "{link} copied to {device} ({copies}), {decoded} batches decoded there ({decode})"
            ),
        );
        let BatchTimes { copy_s, decode_s, .. } = &self.statistics.times;
        let times = [(copy_s, "to copy a batch"), (decode_s, "to decode or gather it")];
        let times = times.iter().filter(|(times, _)| !times.is_empty());
        let times = times.map(|(times, what)| format!("{:.3} ms {what}", times.mean * 1e3));
        let times = times.collect::<Vec<_>>().join(", ");
        if !times.is_empty() {
            line("times", times);
        }
        let straight = bytes(self.statistics.page_cache_bytes);
        let registered = bytes(*registered_bytes);
        match *chunks {
            "page cache" => line(
                "chunks",
                format!(
                    "{straight} straight from the page cache, {registered} of files registered"
                ),
            ),
            "both" => line(
                "chunks",
                format!(
                    "{straight} straight from the page cache, {registered} of files registered; others gathered"
                ),
            ),
            "gathered" => line("chunks", "gathered in host memory"),
            _ => {}
        }
        let kept = match cache.kind {
            "none" => format!("none: {}", cache.why),
            kind => format!(
                "{}, {kind}: {} of {} samples, {} images came from there",
                bytes(cache.bytes),
                cache.samples,
                cache.of_samples,
                self.statistics.device_cache_hits
            ),
        };
        line("device cache", kept);
        notes.iter().for_each(|note| say!("  note: {note}"));
    }

    fn rate(&self) -> String {
        let stored = match self.total.ratio {
            Some(_) => format!(", {:.2} GB/s stored", self.total.stored_gb_per_s),
            None => String::new(),
        };
        format!("{} uncompressed{stored}", self.total.rates(self.unit))
    }

    fn data(&self) -> String {
        let Figures { bytes, stored_bytes, disk_bytes, ratio, .. } = &self.total;
        let mut text = format!("{} uncompressed", output::bytes(*bytes));
        if let Some(ratio) = ratio {
            text += &format!(" from {} stored", output::bytes(*stored_bytes));
            // Crops decode more than they deliver, caches deliver more than is read.
            if self.unit == "cube" && self.total.cached_chunks == 0 {
                text += &format!(" (ratio {ratio:.2})");
            }
        }
        if let Some(disk) = disk_bytes.filter(|disk| *disk > 0) {
            text += &format!(", {} of it from disk", output::bytes(disk));
        }
        text
    }

    fn print_network(&self) {
        let of = |figures: &Figures| {
            let bytes = output::bytes(figures.fetched_bytes.unwrap_or(0));
            format!("{}, {bytes}", output::count(figures.requests.unwrap_or(0) as usize, "request"))
        };
        if self.total.requests.is_some() {
            let later = (self.epochs - 1) as u64;
            let each = match (&self.first_epoch, &self.later_epochs) {
                (Some(first), Some(later_epochs)) if later > 0 => {
                    let mut each_epoch = later_epochs.clone();
                    each_epoch.requests =
                        later_epochs.requests.map(|requests| requests.div_ceil(later));
                    each_epoch.fetched_bytes =
                        later_epochs.fetched_bytes.map(|bytes| bytes / later);
                    format!("first epoch {}; each later one {}", of(first), of(&each_epoch))
                }
                _ => of(&self.total),
            };
            line("server", each);
        }
        let Some(cache) = &self.local_cache else { return };
        let bytes = output::bytes;
        line(
            "local cache",
            format!(
                "{} read from it, {} kept, {} dropped, {} fetched and not kept; {} of {} in {}",
                bytes(cache.read_bytes),
                bytes(cache.kept_bytes),
                bytes(cache.dropped_bytes),
                bytes(cache.passed_bytes),
                bytes(cache.total_bytes),
                bytes(cache.limit_bytes),
                cache.folder.display()
            ),
        );
        if cache.damaged > 0 {
            let blocks = output::count(cache.damaged as usize, "block");
            line(
                "",
                format!("{blocks} of it damaged, dropped and fetched again; is its disk failing?"),
            );
        }
        if let Some(problem) = &cache.problem {
            line("", format!("it could not be written: {problem}"));
        }
    }

    fn threads(&self) -> String {
        let Figures { decode_busy, read, idle, .. } = self.total;
        format!(
            "{}: {} decoding, {} reading, {} idle",
            self.threads,
            percent(decode_busy - read),
            percent(read),
            percent(idle)
        )
    }

    fn ring(&self) -> String {
        let MemoryReport { bytes, kind, huge_page_bytes, .. } = &self.memory;
        let pages = match huge_page_bytes {
            None | Some(0) => "no huge pages".to_owned(),
            Some(all) if all >= bytes => "huge pages".to_owned(),
            Some(some) => format!("{} of it on huge pages", output::bytes(*some as u64)),
        };
        format!(
            "{} slots, {} {kind}, {pages}; {:.1} of {} ready when a batch was taken",
            self.slots,
            output::bytes(*bytes as u64),
            self.total.mean_ready,
            self.slots - 1
        )
    }

    fn print_limit(&self) {
        line("limited by", self.total.limit.meaning(self.total.requests.is_some()));
        for (number, tip) in self.advice.iter().enumerate() {
            line(if number == 0 { "try" } else { "" }, tip);
        }
        if self.total.seconds < SHORT {
            line("note", "this run is too short to judge rates and limits; read more --epochs");
        }
    }

    fn print_rest(&self) {
        let Cache {
            choice: CacheChoice { kind, chosen, limit_bytes, shuffle_window, why, .. },
            bytes,
            times,
        } = &self.cache;
        if *kind != CacheKind::None {
            let kind = if *kind == CacheKind::Decoded { "decoded" } else { "compressed" };
            let (bytes, limit) = (output::bytes(*bytes), output::bytes(*limit_bytes));
            let (hits, chunks) = (self.total.cached_chunks, self.total.chunks);
            line("cache", format!("{bytes} of {limit} {kind}; gave {hits} of {chunks} chunks"));
            if times.keeping_s > 0.0 {
                let CacheTimes { keeping_s, saved_s } = times;
                line(
                    "",
                    format!(
                        "keeping chunks took {keeping_s:.3} s of all threads together, and saved {saved_s:.3} s"
                    ),
                );
            }
        }
        if *chosen {
            let name = if *kind == CacheKind::None { "cache" } else { "" };
            line(name, format!("{kind}: {why}"));
        }
        if let Some(Shuffled { blocks, of_blocks, decoded, .. }) = shuffle_window {
            line(
                "shuffled",
                format!(
                    "among {blocks} of {of_blocks} blocks of cubes at a time; each chunk is decoded {decoded} times an epoch"
                ),
            );
        }
        if self.total.skipped > 0 {
            let count = output::count(self.total.skipped as usize, "sample");
            line("skipped", format!("{count} with damaged chunks"));
        }
        if self.total.padding > 0 {
            line("padding", output::count(self.total.padding as usize, "sample"));
        }
        if let Some(path) = &self.state {
            line("state", path.display().to_string());
        }
        self.memory.notes.iter().for_each(|note| line("note", note));
    }
}

/// Runs of fewer seconds are too short: disturbances may last longer.
const SHORT: f64 = 0.5;

/// Prints one line: a name in a column of its own, and a text.
fn line(name: &str, text: impl AsRef<str>) {
    say!("  {name:<13}{}", text.as_ref());
}

fn percent(share: f64) -> String {
    format!("{:.0}%", share * 100.0)
}
