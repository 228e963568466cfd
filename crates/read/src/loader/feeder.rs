//! The planning thread: plans batches into free slots, and tells the store which chunks will be
//! needed.

use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Instant;

use hsipack_augment::{Frame, SampleKey};
use hsipack_store::remote::is_url;

use super::arrays::array_of;
use super::batch_plan::{BatchArray, BatchPlan, ItemSource, Part, lay_out};
use super::compressed;
use super::labelled::LabelledMasks;
use super::load_times::LoadTime;
use super::local_plan::LocalPlan;
use super::reader::Reader;
use super::shared::{Shared, Start};
use super::shuffle_schedule::ShuffleSchedule;
use super::stored_batch::Compressed;
use crate::dataset::array::ArrayRef;
use crate::decode::{ChunkPrefetch, Decoder, inside};
use crate::plan::{EpochPlan, Item, JoinedEpoch, JoinedPlan, PlanRun, Segment};
use crate::ring::{Claim, PlanSlot};
use crate::shuffle_buffer::ChunkRef;
use crate::trace::{BatchNumber, Track};
use crate::{Error, ErrorKind, Result};

/// Why the feeder stops what it is doing.
enum Leave {
    /// A new generation begins.
    Restarted,
    Stopped,
    /// No batches can come any more.
    Over,
}

/// State of the planning thread from batch to batch.
struct Feeder<'a> {
    shared: &'a Shared,
    generation: u64,
    datasets: Vec<OneDataset<'a>>,
    /// The chunks that are decoded ahead with the latest batch.
    ahead: Vec<ChunkRef>,
    /// The windows and parts of the latest batch. Those in the slot cannot be reached once it is
    /// published.
    items: Vec<Item>,
    needed: Vec<Vec<usize>>,
    parts: Vec<Part>,
    /// The readers of the latest batch's windows, and the places of the windows of each.
    sources: Vec<(usize, Range<usize>)>,
    /// Memory for the spans that are requested ahead.
    spans: Vec<Range<u64>>,
}

/// The planning of one dataset's batches.
struct OneDataset<'a> {
    reader: &'a Reader,
    labelled: LabelledMasks<'a>,
    schedule: ShuffleSchedule,
    /// The chunks that the loader will need, for the cache on the local disk.
    local: LocalPlan,
    /// The dataset was not as it was opened when this epoch began.
    is_suspect: bool,
    /// The error of that moment, for the next batch.
    suspicion: Option<Error>,
}

/// Plans batches until the ring is stopped.
pub(super) fn run(shared: &Shared) {
    let run = AssertUnwindSafe(|| {
        loop {
            let start = shared.start();
            let generation = start.generation;
            let datasets = shared.readers.iter().map(OneDataset::new).collect();
            let mut feeder = Feeder {
                shared,
                generation,
                datasets,
                ahead: Vec::new(),
                items: Vec::new(),
                needed: Vec::new(),
                parts: Vec::new(),
                sources: Vec::new(),
                spans: Vec::new(),
            };
            match feeder.run(start) {
                Leave::Restarted => {}
                Leave::Stopped => return,
                Leave::Over if shared.ring.slots().finish(generation) => {}
                Leave::Over => return,
            }
        }
    });
    if catch_unwind(run).is_err() {
        // Otherwise the consumer would wait for batches for ever.
        shared.ring.slots().stop();
    }
}

impl<'a> OneDataset<'a> {
    fn new(reader: &'a Reader) -> Self {
        let labelled = LabelledMasks::for_training(reader);
        let (schedule, local) = (ShuffleSchedule::default(), LocalPlan::new(reader));
        Self { reader, labelled, schedule, local, is_suspect: false, suspicion: None }
    }

    /// Looks whether the dataset is as it was opened, at the start of an epoch.
    fn look(&mut self) {
        self.suspicion = self.reader.dataset.check_recently().err();
        self.is_suspect = self.suspicion.is_some();
    }

    /// Refuses to plan a batch of a dataset that was replaced. Every batch of the epoch fails by
    /// itself, so that the epoch has as many batches as on other ranks, and goes on if the dataset
    /// is there again.
    fn check(&mut self) -> Result<()> {
        if let Some(error) = self.suspicion.take() {
            return Err(error);
        }
        if self.is_suspect {
            self.reader.dataset.check_unchanged()?;
            self.is_suspect = false;
        }
        Ok(())
    }

    fn plan(&mut self, epoch: &EpochPlan, number: usize, plan: &mut BatchPlan) -> Result<()> {
        let Reader { dataset, new_ids, .. } = self.reader;
        plan.shape = epoch.shape_number(number);
        plan.damaged.clear();
        epoch.batch(number, Some(&mut self.labelled), &mut plan.items)?;
        self.labelled.move_damage(&plan.items, &mut plan.damaged);
        new_ids.relabel(dataset, &mut plan.items);
        self.lay_out(plan)?;
        self.draw_bands(plan)
    }

    /// Adds items of this dataset to a batch that has items of several.
    fn add(&mut self, epoch: &EpochPlan, run: &PlanRun, plan: &mut BatchPlan) -> Result<()> {
        let (first, damaged) = (plan.items.len(), plan.damaged.len());
        let (places, labelled) = (run.places.clone(), &mut self.labelled);
        epoch.push_items(places, run.padding, Some(labelled), &mut plan.items)?;
        let items = &mut plan.items[first..];
        self.labelled.move_damage(items, &mut plan.damaged);
        plan.damaged[damaged..].iter_mut().for_each(|failure| failure.position += first);
        self.reader.new_ids.relabel(&self.reader.dataset, items);
        Ok(())
    }

    /// Decides where the arrays of a batch are, whose first item is of this dataset.
    fn lay_out(&self, plan: &mut BatchPlan) -> Result<()> {
        let Reader { dataset, beside, fit, .. } = self.reader;
        let first = plan.items.first().ok_or_else(|| {
            Error::new(ErrorKind::Conflict, "a batch without samples was planned")
        })?;
        let stack = dataset.stack_of(first.sample)?;
        let size = (first.window.rows, first.window.columns);
        let (decoder, len) = (self.reader.decoder(), plan.items.len());
        lay_out((&decoder, fit.as_deref()), beside, stack, len, size, &mut plan.arrays)?;
        Ok(())
    }

    /// Draws the bands that images need, if augmentations decide that.
    fn draw_bands(&self, plan: &mut BatchPlan) -> Result<()> {
        plan.needed.clear();
        let (Some(pipeline), Some(image)) = (&self.reader.band_draw, plan.arrays.first()) else {
            return Ok(());
        };
        let BatchArray { rows, columns, bands, .. } = *image;
        let samples: Vec<SampleKey> = plan.items.iter().map(SampleKey::from).collect();
        let frame = Frame { rows, columns, bands };
        plan.needed = pipeline.needed_bands(frame, plan.epoch, &samples)?;
        if let Some(chosen) = &self.reader.options.bands {
            plan.needed.iter_mut().flatten().for_each(|band| *band = chosen[*band]);
        }
        Ok(())
    }

    /// Decides which chunks are decoded with this batch, for later batches, too.
    fn turn(
        &mut self,
        epoch: &EpochPlan,
        number: usize,
        unfinished: usize,
        plan: &mut BatchPlan,
    ) -> Result<()> {
        let Some(buffer) = &self.reader.shuffle_buffer else { return Ok(()) };
        self.schedule.turn(self.reader, buffer, epoch, number, unfinished, &mut plan.ahead)
    }
}

impl<'a> Feeder<'a> {
    fn run(&mut self, start: Start) -> Leave {
        let Shared { plan, .. } = self.shared;
        let options = self.shared.options();
        let Start { mut epoch, mut delivered, .. } = start;
        let mut empty = 0;
        while options.end_epoch.is_none_or(|end| epoch < end) {
            self.datasets.iter_mut().for_each(OneDataset::look);
            let batches = match self.draw(plan, epoch, &delivered) {
                Ok(batches) => batches,
                Err(error) => {
                    if let Err(leave) = self.fail(epoch, error) {
                        return leave;
                    }
                    epoch += 1;
                    delivered.clear();
                    continue;
                }
            };
            // The rest of an epoch may be empty, but several epochs in a row may not.
            empty = if batches.batches() == 0 { empty + 1 } else { 0 };
            if empty == 3 {
                return Leave::Over;
            }
            for number in 0..batches.batches() {
                if let Err(leave) = self.batch(&batches, number) {
                    return leave;
                }
                // As soon as the first batches are on their way.
                if number + 1 == options.slots.min(batches.batches()) {
                    for (dataset, epoch_of_dataset) in self.datasets.iter().zip(batches.epochs()) {
                        dataset.local.tell(dataset.reader, epoch, epoch_of_dataset.delivered());
                    }
                }
            }
            epoch += 1;
            delivered.clear();
        }
        Leave::Over
    }

    /// The rest of an epoch. If there is one dataset with a shuffle window, the epoch may have been
    /// drawn before.
    fn draw(
        &mut self,
        plan: &JoinedPlan,
        epoch: u64,
        delivered: &[Segment],
    ) -> Result<JoinedEpoch> {
        if let ([dataset], []) = (&mut *self.datasets, delivered)
            && let Some(drawn) = dataset.schedule.take_epoch(epoch)
        {
            return Ok(drawn.into());
        }
        plan.epoch(epoch, delivered, self.shared.options().share)
    }

    fn batch(&mut self, epoch: &JoinedEpoch, number: usize) -> Result<(), Leave> {
        let before = Instant::now();
        let mut slot = self.claim()?;
        let claimed = Instant::now();
        let unfinished = self.shared.ring.slots().unfinished();
        let (plan, pieces) = slot.plan();
        plan.epoch = epoch.epoch();
        plan.number = number;
        plan.batches = epoch.batches();
        plan.compressed = None;
        plan.sources.clear();
        plan.loading = LoadTime::begun(claimed);
        let runs = epoch.runs(number);
        let (shared, datasets) = (self.shared, &mut *self.datasets);
        let readers = &shared.readers;
        let planned = match &runs {
            Some(runs) => plan_runs(datasets, epoch, runs, plan),
            None => plan_turn(datasets, epoch, number, unfinished, plan),
        };
        plan.error =
            planned.and_then(|()| plan.cut(&|number| readers[number].arrays(), pieces)).err();
        if plan.error.is_none() && runs.is_none() {
            let slot_bytes = shared.ring.slot_bytes();
            let (page_cache, decodes) = (shared.page_cache.as_ref(), shared.compressed);
            let reader = &readers[plan.reader];
            compressed::plan(reader, plan, pieces, (slot_bytes, decodes), page_cache);
        }
        self.items.clear();
        self.parts.clear();
        self.ahead.clear();
        self.sources.clear();
        self.sources.extend(plan.readers());
        if plan.error.is_some() {
            pieces.clear();
        } else if !self.sources.iter().all(|(reader, _)| readers[*reader].keeps_all())
            && !plan.compressed.as_ref().is_some_and(Compressed::is_mapped)
        {
            self.items.extend_from_slice(&plan.items);
            self.needed.clone_from(&plan.needed);
            self.parts.extend_from_slice(plan.parts());
            self.ahead.extend_from_slice(&plan.ahead);
            let dataset = &readers[plan.reader].dataset;
            let loads = plan.compressed.iter().flat_map(|planned| planned.load_chunks(dataset));
            self.ahead.extend(loads);
        }
        // Requests to a server are made before anybody waits for the data; otherwise the data would be fetched twice.
        // With files, workers begin at once.
        let is_served =
            self.sources.iter().any(|(reader, _)| is_url(readers[*reader].dataset.path()));
        if is_served {
            self.prefetch();
        }
        slot.publish();
        if runs.is_none() {
            let unfinished = shared.ring.slots().unfinished();
            let (reader, of_reader) = epoch.turn(number);
            self.datasets[reader].local.go_on(epoch.epoch(), of_reader, unfinished);
        }
        if !is_served {
            self.prefetch();
        }
        let end = Instant::now();
        if let Some(trace) = &self.shared.options().trace {
            let batch = Some(BatchNumber { epoch: epoch.epoch(), batch: number });
            trace.span(Track::Planner, "wait for a slot", (before, claimed), batch);
            trace.span(Track::Planner, "plan", (claimed, end), batch);
        }
        self.shared.counters.planned(claimed - before, end - claimed);
        Ok(())
    }

    fn claim(&self) -> Result<PlanSlot<'a, BatchPlan>, Leave> {
        let shared: &'a Shared = self.shared;
        match shared.ring.claim(self.generation) {
            Claim::Slot(slot) => Ok(slot),
            Claim::Restarted => Err(Leave::Restarted),
            Claim::Stopped => Err(Leave::Stopped),
        }
    }

    /// Gives the consumer an error in place of the epoch's batches.
    fn fail(&self, epoch: u64, error: Error) -> Result<(), Leave> {
        let mut slot = self.claim()?;
        *slot.plan().0 = BatchPlan::failed(epoch, error);
        slot.publish();
        Ok(())
    }

    /// Tells the stores which spans the batch needs, with spans that lie close together joined.
    /// Errors are ignored here, because reading the chunks reports them.
    fn prefetch(&mut self) {
        let sources = std::mem::take(&mut self.sources);
        for (reader, places) in &sources {
            self.prefetch_from(&self.shared.readers[*reader], places);
        }
        self.sources = sources;
    }

    /// The same for the windows at some places of the batch, which a reader reads.
    fn prefetch_from(&mut self, reader: &Reader, places: &Range<usize>) {
        // If all decoded chunks are in memory, nothing is read any more.
        if reader.keeps_all() {
            return;
        }
        let mut ahead = ChunkPrefetch::in_room(std::mem::take(&mut self.spans));
        for chunk in &self.ahead {
            let located =
                chunk.array(&reader.dataset).locate(chunk.index as usize, chunk.chunk as usize);
            if let Ok(Some(stored)) = located {
                ahead.want(stored);
            }
        }
        // The chunks of the windows are held by now, or will be.
        let parts = if reader.shuffle_buffer.is_some() { &[][..] } else { &self.parts };
        let windows = |part: &Part| part.position..part.position + part.windows;
        let parts = parts.iter().filter(|part| places.contains(&part.position));
        for (part, position) in
            parts.flat_map(|part| windows(part).map(move |position| (part, position)))
        {
            let item = self.items[position];
            let Ok(array) = array_of(&reader.dataset, &reader.beside, item, part.array) else {
                continue;
            };
            let index = reader.dataset.samples().index(item.sample);
            let (rows, columns) = inside(array, array.window(item.window), reader.pad(array));
            let downs = match part.down {
                Some(down) => down..down + 1,
                None => array.grid().chunk_rows(&rows),
            };
            let needed = self.needed.get(position).map(Vec::as_slice);
            let decoder = Decoder { needed, ..reader.decoder() };
            let bands = decoder.needed_of(array);
            for chunk in downs.flat_map(|down| array.grid().chunks_in(down, &columns, bands)) {
                if is_cached(reader, array, index, chunk) {
                    continue;
                }
                if let Ok(Some(stored)) = array.locate(index, chunk) {
                    ahead.want(stored);
                }
            }
        }
        self.spans = ahead.end();
        reader.dataset.store().batch_requested();
    }
}

/// Plans a batch of one dataset.
fn plan_turn(
    datasets: &mut [OneDataset<'_>],
    epoch: &JoinedEpoch,
    number: usize,
    unfinished: usize,
    plan: &mut BatchPlan,
) -> Result<()> {
    let (reader, number) = epoch.turn(number);
    plan.reader = reader;
    let (dataset, epoch) = (&mut datasets[reader], &epoch.epochs()[reader]);
    dataset.check()?;
    dataset.plan(epoch, number, plan)?;
    dataset.turn(epoch, number, unfinished, plan)
}

/// Plans a batch of items of several datasets.
fn plan_runs(
    datasets: &mut [OneDataset<'_>],
    epoch: &JoinedEpoch,
    runs: &[PlanRun],
    plan: &mut BatchPlan,
) -> Result<()> {
    plan.reader = runs.first().map_or(0, |run| run.plan);
    plan.shape = 0;
    plan.items.clear();
    plan.damaged.clear();
    plan.needed.clear();
    for run in runs {
        let dataset = &mut datasets[run.plan];
        dataset.check()?;
        dataset.add(&epoch.epochs()[run.plan], run, plan)?;
        let (reader, end) = (run.plan, plan.items.len());
        match plan.sources.last_mut() {
            Some(source) if source.reader == reader => source.end = end,
            _ => plan.sources.push(ItemSource { reader, end }),
        }
    }
    datasets[plan.reader].lay_out(plan)
}

fn is_cached(reader: &Reader, array: ArrayRef<'_>, index: usize, chunk: usize) -> bool {
    let number = array.number(index, chunk);
    reader.cache.as_ref().is_some_and(|cache| cache.holds(array, number))
        || reader.residents.as_ref().is_some_and(|kept| kept.holds(array, index, chunk))
}
