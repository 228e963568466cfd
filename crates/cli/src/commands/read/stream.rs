//! The consumer: takes batches, epoch after epoch, as training would.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use hsipack_format::Error;
use hsipack_read::ArrayView;
use hsipack_read::plan::State;
use serde::Serialize;

use super::Args;
use super::figures::{Counts, Figures, Look};
use super::source::{Source, Taken};
use super::view::View;

/// How often the command checks whether it should stop.
const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// Why no more batches are taken.
#[derive(Debug)]
pub enum End {
    Complete,
    /// `--max-batches` were taken.
    Enough,
    /// Ctrl-C.
    Stopped,
    /// A batch failed. The state is the one before it, so that a later run reads it again.
    Failed(Error, Box<State>),
}

/// One epoch, or the part of it that was read.
#[derive(Debug, Serialize)]
pub struct EpochReport {
    pub epoch: u64,
    /// Whether it was read to its end.
    pub complete: bool,
    #[serde(flatten)]
    pub figures: Figures,
    /// Only with `--checksum`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub items: Option<Vec<ItemReport>>,
}

/// One cube or crop as it was delivered.
#[derive(Debug, Serialize)]
pub struct ItemReport {
    sample: usize,
    repeat: u32,
    padding: bool,
    row: i32,
    column: i32,
    rows: u32,
    columns: u32,
    /// For patches, the class id of the centre.
    #[serde(skip_serializing_if = "Option::is_none")]
    label: Option<u32>,
    /// CRC-32 of the bytes.
    image: u32,
    masks: BTreeMap<String, u32>,
}

/// All epochs that were read, and the looks at their start and end.
#[derive(Debug)]
pub struct Epochs {
    pub list: Vec<EpochReport>,
    pub looks: Vec<Look>,
}

/// Takes a stream of batches.
pub struct Stream<'a> {
    stop: &'a AtomicBool,
    step: Option<Duration>,
    /// Batches that remain to be taken.
    remaining: u64,
    /// The stream ends before this epoch.
    end: u64,
    epoch: u64,
    counts: Counts,
    items: Option<Vec<ItemReport>>,
    epochs: Epochs,
    view: View,
}

impl<'a> Stream<'a> {
    /// `start` is the look before the loader began.
    pub fn new(loader: &Source, start: Look, args: &Args, stop: &'a AtomicBool) -> Self {
        let epoch = loader.state().epoch;
        Self {
            stop,
            step: args.step_time,
            remaining: args.max_batches.unwrap_or(u64::MAX),
            end: args.epochs,
            epoch,
            counts: Counts::default(),
            items: args.checksum.then(Vec::new),
            epochs: Epochs { list: Vec::new(), looks: vec![start] },
            view: View::new(loader, start, epoch, args.epochs),
        }
    }

    /// Takes batches until there are no more, or the command should stop.
    pub fn run(&mut self, loader: &mut Source) -> End {
        while self.epoch < self.end {
            if self.stop.load(Ordering::Relaxed) {
                return End::Stopped;
            }
            let before = loader.state();
            match loader.next_within(POLL_INTERVAL) {
                None => {
                    self.close(loader, true);
                    let next = loader.state().epoch;
                    if next == self.epoch {
                        break;
                    }
                    self.epoch = next;
                    self.view.begin(next);
                }
                Some(Ok(None)) => self.view.tick(loader, self.counts),
                Some(Ok(Some(batch))) => {
                    self.consume(&batch);
                    drop(batch);
                    self.view.batch(loader, self.counts);
                    self.remaining -= 1;
                    if self.remaining == 0 {
                        return self.enough(loader);
                    }
                }
                Some(Err(error)) => return End::Failed(error, Box::new(before)),
            }
        }
        End::Complete
    }

    /// Ends after the last requested batch, which may also be the last of its epoch, or of all.
    fn enough(&mut self, loader: &Source) -> End {
        let epoch = loader.state().epoch;
        if epoch > self.epoch {
            self.close(loader, true);
            self.epoch = epoch;
        }
        if epoch == self.end { End::Complete } else { End::Enough }
    }

    fn consume(&mut self, batch: &Taken) {
        let taken = Instant::now();
        let items = batch.items();
        self.counts.padding += items.iter().filter(|item| item.padding).count() as u64;
        self.counts.batches += 1;
        self.counts.samples += items.len() as u64;
        self.counts.bytes += batch.bytes();
        if let Some(items) = &mut self.items {
            items.extend(checksums(batch));
        }
        let until = self.step.map(|step| taken + step);
        while let Some(remaining) =
            until.and_then(|until| until.checked_duration_since(Instant::now()))
        {
            if remaining.is_zero() || self.stop.load(Ordering::Relaxed) {
                break;
            }
            std::thread::sleep(remaining.min(POLL_INTERVAL));
        }
    }

    /// Closes the figures of an epoch, complete or not.
    fn close(&mut self, loader: &Source, complete: bool) {
        let now = Look::at(loader, self.counts);
        let before = self.epochs.looks.last().expect("there is one of the start");
        let figures = Figures::between(before, &now);
        let items = self.items.as_mut().map(std::mem::take);
        self.view.end(&figures);
        self.epochs.list.push(EpochReport { epoch: self.epoch, complete, figures, items });
        self.epochs.looks.push(now);
    }

    /// All epochs that were read, including one that was broken off.
    pub fn finish(mut self, loader: &Source) -> Epochs {
        if self.epoch < self.end {
            let now = Look::at(loader, self.counts);
            let before = self.epochs.looks.last().expect("there is one of the start");
            if Figures::between(before, &now).batches > 0 || self.epochs.list.is_empty() {
                self.close(loader, false);
            }
        }
        self.view.finish();
        self.epochs
    }
}

fn checksums(batch: &Taken) -> impl Iterator<Item = ItemReport> {
    // `--checksum` is refused for batches on a device.
    let arrays = batch.arrays().map(|(image, masks)| (image, masks.collect::<Vec<_>>()));
    let sum = move |array: &ArrayView<'_>, index: usize| {
        let bytes = array.bytes.len() / batch.items().len();
        crc32fast::hash(&array.bytes[index * bytes..][..bytes])
    };
    arrays.into_iter().flat_map(move |(image, masks)| {
        batch.items().iter().enumerate().map(move |(index, item)| ItemReport {
            sample: item.sample,
            repeat: item.repeat,
            padding: item.padding,
            row: item.window.row,
            column: item.window.column,
            rows: item.window.rows,
            columns: item.window.columns,
            label: item.label,
            image: sum(&image, index),
            masks: masks.iter().map(|mask| (mask.name.to_owned(), sum(mask, index))).collect(),
        })
    })
}
