//! Contents of a slot: which windows of which samples are where, and the tasks that fill it.
//!
//! A slot begins with the images, (sample, row, column, band). The masks follow, (sample, row,
//! column) each, then the targets and the further images, with their channels and bands. Every
//! array starts on a page.
//!
//! The smallest unit of work is a *part*: the rows of one sample's window that lie in one row of
//! chunks; or a whole window that reaches beyond the edge of its cube; or a run of small windows,
//! of which a batch may have thousands. A part writes to one piece of the slot. The parts of an
//! array follow one another without gaps, so a task, which is a run of parts, writes to one piece,
//! too.

use std::ops::Range;

use hsipack_format::{DType, Opt, remedy};

use super::arrays::{array_of, place};
use super::band_fit::BandFit;
use super::load_times::LoadTime;
use super::stored_batch::{Compressed, Entry};
use crate::dataset::Dataset;
use crate::decode::Decoder;
use crate::plan::{Item, Window};
use crate::ring::slots::Failure;
use crate::shuffle_buffer::ChunkRef;
use crate::{Error, Result};

/// A batch, planned into a slot.
#[derive(Debug, Default)]
pub(crate) struct BatchPlan {
    pub epoch: u64,
    /// Number of the batch among those of this rank that were left when the epoch was begun or
    /// resumed.
    pub number: usize,
    /// How many batches were left then.
    pub batches: usize,
    /// The loader's reader of the items; of the first ones if there are several.
    pub reader: usize,
    /// If items are of several datasets: the items of each, one after the other. Otherwise empty.
    pub sources: Vec<ItemSource>,
    /// Number of the items' shape in the plan.
    pub shape: usize,
    pub items: Vec<Item>,
    pub arrays: Vec<BatchArray>,
    /// For each item, the bands of its image that are used, if not all that the batch has. The
    /// others have any values.
    pub needed: Vec<Vec<usize>>,
    /// Why there is no batch.
    pub error: Option<Error>,
    /// Damage that was found while the batch was planned, if damaged samples are skipped.
    pub damaged: Vec<Failure>,
    /// When it was loaded.
    pub loading: LoadTime,
    /// If a device decodes the batch: what the slot holds instead of values.
    pub compressed: Option<Compressed>,
    /// Chunks to decode and hold, for this batch or later ones.
    pub ahead: Vec<ChunkRef>,
    parts: Vec<Part>,
    /// Parts of each task.
    tasks: Vec<Range<usize>>,
    /// Chunks of each task that comes before the parts.
    ahead_tasks: Vec<Range<usize>>,
}

/// Items of a batch that one reader reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ItemSource {
    pub reader: usize,
    /// Place in the batch after the last of them. They follow those of the source before.
    pub end: usize,
}

/// The work of a task.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Task<'a> {
    /// Decode these chunks, and hold them.
    Ahead(&'a [ChunkRef]),
    /// Fill these parts.
    Parts(&'a [Part]),
    /// Gather these chunks as they are stored.
    Compressed(&'a [Entry]),
}

/// One array of a batch: 0 is the image; the masks, targets and further images follow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct BatchArray {
    /// First byte in the slot.
    pub start: usize,
    pub rows: usize,
    pub columns: usize,
    pub bands: usize,
    pub dtype: DType,
}

impl BatchArray {
    pub(crate) fn sample_bytes(&self) -> usize {
        self.rows * self.columns * self.bands * self.dtype.size()
    }
}

/// See the module's documentation.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Part {
    /// The array of the batch.
    pub array: usize,
    /// Place in the batch; of the first window if there are several.
    pub position: usize,
    /// How many windows it has, each of one sample.
    pub windows: usize,
    /// The row of chunks; `None` if the part consists of whole windows.
    pub down: Option<usize>,
    /// Number of bytes that it writes.
    pub bytes: usize,
}

/// Parts are combined into tasks of up to this many bytes, so that handing out a task costs little
/// compared with its work.
const TASK_BYTES: usize = 1 << 20;
/// Chunks are decoded ahead in tasks of up to this many bytes together, or of one chunk if it is
/// larger.
const AHEAD_BYTES: usize = 1 << 20;
/// Windows of at most this many bytes are read in runs…
const SMALL: usize = 64 << 10;
/// … of up to this many bytes.
const RUN_BYTES: usize = 256 << 10;
/// Arrays start on pages.
const ALIGNMENT: usize = 4096;

/// Where the image of a batch, and the arrays `beside` it, of `len` windows of `rows` × `columns`
/// of the image lie in a slot, and where they end. Images may be brought to other bands.
pub(crate) fn lay_out(
    (decoder, fit): (&Decoder<'_>, Option<&BandFit>),
    beside: &[String],
    stack: usize,
    len: usize,
    (rows, columns): (u32, u32),
    arrays: &mut Vec<BatchArray>,
) -> Result<usize> {
    arrays.clear();
    let dataset = decoder.dataset;
    let mut end = 0usize;
    for number in
        std::iter::once(Ok(0)).chain(beside.iter().map(|name| place(dataset, stack, name)))
    {
        let array = dataset.array(stack, number?);
        let bands = decoder.bands.filter(|_| array.array == 0);
        let Window { rows, columns, .. } = array.window(Window::at(0, 0, rows, columns));
        let (bands, dtype) = match fit.filter(|_| array.array == 0) {
            Some(fit) => (fit.bands, fit.dtype),
            None => (bands.map_or(array.shape().bands, <[usize]>::len), array.dtype()),
        };
        let (rows, columns) = (rows as usize, columns as usize);
        let array = BatchArray { start: end, rows, columns, bands, dtype };
        let bytes = array.sample_bytes().checked_mul(len);
        let after =
            bytes.and_then(|bytes| end.checked_add(bytes)?.checked_next_multiple_of(ALIGNMENT));
        end = after.ok_or_else(|| {
            Error::memory(format!("a batch of {len} samples does not fit into memory"))
                .with_remedy(remedy!["choose a smaller ", Opt::BatchSize])
        })?;
        arrays.push(array);
    }
    Ok(end)
}

impl BatchPlan {
    /// Takes the place of an epoch whose batches cannot be planned.
    pub(crate) fn failed(epoch: u64, error: Error) -> Self {
        Self { epoch, batches: 1, error: Some(error), ..Self::default() }
    }

    /// The reader of the item at a place.
    pub(crate) fn reader_at(&self, position: usize) -> usize {
        let source = self.sources.iter().find(|source| position < source.end);
        source.map_or(self.reader, |source| source.reader)
    }

    /// The readers of all items, and the places of the items of each.
    pub(crate) fn readers(&self) -> impl Iterator<Item = (usize, Range<usize>)> {
        (0..).map_while(|number| self.source(number))
    }

    /// The reader of source `number` of the items, and the places of these items.
    fn source(&self, number: usize) -> Option<(usize, Range<usize>)> {
        if self.sources.is_empty() {
            return (number == 0).then_some((self.reader, 0..self.items.len()));
        }
        let ItemSource { reader, end } = *self.sources.get(number)?;
        let start = number.checked_sub(1).map_or(0, |before| self.sources[before].end);
        Some((reader, start..end))
    }

    /// Cuts the filling of the slot into tasks, and adds the pieces that they write to. `read` has
    /// the dataset of each reader, and the names of the arrays beside the image.
    pub(crate) fn cut<'r>(
        &mut self,
        read: &dyn Fn(usize) -> (&'r Dataset, &'r [String]),
        pieces: &mut Vec<Range<usize>>,
    ) -> Result<()> {
        self.parts.clear();
        self.tasks.clear();
        self.compressed = None;
        // First the chunks that several parts may need. These tasks write to no piece of the slot.
        self.cut_ahead(read(self.reader).0);
        pieces.extend(self.ahead_tasks.iter().map(|_| 0..0));
        for array in 0..self.arrays.len() {
            let BatchArray { start: mut end, .. } = self.arrays[array];
            let bytes = self.arrays[array].sample_bytes();
            // Not `readers`, which would borrow this, and a list of them would be allocated for every batch.
            for source in 0..self.sources.len().max(1) {
                let Some((number, places)) = self.source(source) else { break };
                if bytes > SMALL {
                    for position in places {
                        self.cut_sample(read(number), array, position, &mut end, pieces)?;
                    }
                    continue;
                }
                let run = RUN_BYTES / bytes.max(1);
                for position in places.clone().step_by(run) {
                    let windows = run.min(places.end - position);
                    let bytes = windows * bytes;
                    self.push(
                        Part { array, position, windows, down: None, bytes },
                        &mut end,
                        pieces,
                    );
                }
            }
        }
        Ok(())
    }

    fn cut_sample(
        &mut self,
        (dataset, beside): (&Dataset, &[String]),
        number: usize,
        position: usize,
        end: &mut usize,
        pieces: &mut Vec<Range<usize>>,
    ) -> Result<()> {
        let item = self.items[position];
        let array = array_of(dataset, beside, item, number)?;
        let window = array.window(item.window);
        let row_bytes = self.arrays[number].sample_bytes() / self.arrays[number].rows;
        let mut push = |down, bytes| {
            self.push(Part { array: number, position, windows: 1, down, bytes }, end, pieces);
        };
        if !window.is_inside(array.shape().rows, array.shape().columns) {
            push(None, row_bytes * window.rows as usize);
            return Ok(());
        }
        let rows = window.row_range();
        for down in array.grid().chunk_rows(&rows) {
            push(Some(down), row_bytes * array.grid().rows_in(down, &rows).len());
        }
        Ok(())
    }

    fn cut_ahead(&mut self, dataset: &Dataset) {
        self.ahead_tasks.clear();
        let mut bytes = 0;
        for (number, chunk) in self.ahead.iter().enumerate() {
            bytes += chunk.array(dataset).chunks.chunk_bytes();
            match self.ahead_tasks.last_mut() {
                Some(task) if bytes <= AHEAD_BYTES => task.end = number + 1,
                _ => {
                    self.ahead_tasks.push(number..number + 1);
                    bytes = chunk.array(dataset).chunks.chunk_bytes();
                }
            }
        }
    }

    /// Adds the next part, which writes from `end` on, to the last task or to a new one.
    fn push(&mut self, part: Part, end: &mut usize, pieces: &mut Vec<Range<usize>>) {
        let number = self.parts.len();
        self.parts.push(part);
        match (self.tasks.last_mut(), pieces.last_mut()) {
            (Some(task), Some(piece))
                if piece.end == *end && piece.len() + part.bytes <= TASK_BYTES =>
            {
                task.end = number + 1;
                piece.end += part.bytes;
            }
            _ => {
                self.tasks.push(number..number + 1);
                pieces.push(*end..*end + part.bytes);
            }
        }
        *end += part.bytes;
    }

    /// The work of a task.
    pub(crate) fn task(&self, number: usize) -> Task<'_> {
        if let Some(compressed) = &self.compressed {
            return Task::Compressed(compressed.task(number));
        }
        match self.ahead_tasks.get(number) {
            Some(chunks) => Task::Ahead(&self.ahead[chunks.clone()]),
            None => {
                let task = self.tasks[number - self.ahead_tasks.len()].clone();
                Task::Parts(&self.parts[task])
            }
        }
    }

    /// All parts, in the order of their bytes.
    pub(crate) fn parts(&self) -> &[Part] {
        &self.parts
    }

    /// Bytes of the slot up to the end of the last array.
    pub(crate) fn end(&self) -> usize {
        let last = self.arrays.last();
        last.map_or(0, |array| array.start + array.sample_bytes() * self.items.len())
    }

    /// Removes the samples at `positions` (ascending) from the batch and closes the gaps.
    pub(crate) fn remove(&mut self, positions: &[usize], bytes: &mut [u8]) {
        if let Some(compressed) = &mut self.compressed {
            compressed.remove(positions);
        }
        let holds_values = self.compressed.is_none();
        for array in self.arrays.iter().filter(|_| holds_values) {
            let (start, sample) = (array.start, array.sample_bytes());
            let kept = (0..self.items.len()).filter(|position| !positions.contains(position));
            for (to, from) in kept.enumerate().filter(|(to, from)| to != from) {
                bytes.copy_within(
                    start + from * sample..start + (from + 1) * sample,
                    start + to * sample,
                );
            }
        }
        for source in &mut self.sources {
            source.end -= positions.partition_point(|position| *position < source.end);
        }
        self.sources.dedup_by_key(|source| source.end);
        self.sources.retain(|source| source.end > 0);
        let mut position = 0;
        self.items.retain(|_| {
            position += 1;
            !positions.contains(&(position - 1))
        });
        debug_assert!(self.needed.is_empty(), "bands are drawn for all samples of the batch");
    }
}
