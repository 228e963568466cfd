//! Fills a slot with values.

use std::panic::{AssertUnwindSafe, catch_unwind};

use super::arrays::array_of;
use super::band_fit::BandFit;
use super::batch_plan::{BatchPlan, Part};
use super::reader::Reader;
use crate::dataset::array::ArrayRef;
use crate::decode::{Decoder, GroupsOfGrid, Scratch};
use crate::plan::Item;
use crate::ring::slots::Failure;
use crate::{Error, ErrorKind, Result};

/// Fills a task's piece of the slot, whose parts may be of several readers. See [`fill`].
pub(super) fn fill_all(
    readers: &[Reader],
    plan: &BatchPlan,
    parts: &[Part],
    memory: &mut [u8],
    scratch: &mut Scratch,
) -> Vec<Failure> {
    let reader = |part: &Part| plan.reader_at(part.position);
    let mut failures = Vec::new();
    let mut unfilled = memory;
    for parts in parts.chunk_by(|part, next| reader(part) == reader(next)) {
        let bytes = parts.iter().map(|part| part.bytes).sum();
        let (memory, after) = unfilled.split_at_mut(bytes);
        unfilled = after;
        failures.extend(fill(&readers[reader(&parts[0])], plan, parts, memory, scratch));
    }
    failures
}

/// Fills a task's piece of the slot. If a sample fails, the other samples of the task are still
/// read.
pub(super) fn fill(
    reader: &Reader,
    plan: &BatchPlan,
    parts: &[Part],
    memory: &mut [u8],
    scratch: &mut Scratch,
) -> Vec<Failure> {
    let mut failures = Vec::new();
    let mut rest = memory;
    for part in parts {
        let (mut out, after) = rest.split_at_mut(part.bytes);
        rest = after;
        let bytes = part.bytes / part.windows;
        let groups = GroupsOfGrid::default();
        let mut cubes = Cubes { reader, array: part.array, last: None, groups };
        let mut position = part.position;
        let end = position + part.windows;
        while position < end {
            // Many windows may lie in chunks that are in memory, cube by cube…
            let items = &plan.items[position..end];
            let decoder = reader.decoder_of(plan, position);
            let mut gather = || cubes.gather(decoder, part, items, out, scratch);
            let gathered = catch_unwind(AssertUnwindSafe(&mut gather)).unwrap_or(0);
            if gathered > 0 {
                position += gathered;
                out = &mut out[gathered * bytes..];
                continue;
            }
            // … up to one that needs more work.
            let item = &items[0];
            let (window, after) = out.split_at_mut(bytes);
            out = after;
            let mut read = || cubes.read(decoder, part, *item, window, scratch);
            let done = catch_unwind(AssertUnwindSafe(&mut read)).unwrap_or_else(|_| {
                Err(Error::new(
                    ErrorKind::Io,
                    format!("a decoding thread panicked at sample {}", item.sample),
                ))
            });
            if let Err(error) = done {
                failures.push(Failure { position, error });
            }
            position += 1;
        }
    }
    failures
}

/// The cubes that a part's windows belong to.
struct Cubes<'a> {
    reader: &'a Reader,
    /// Array of the batch.
    array: usize,
    /// The last sample, its array and its place: many windows may be of one sample.
    last: Option<(usize, ArrayRef<'a>, usize)>,
    groups: GroupsOfGrid,
}

impl<'a> Cubes<'a> {
    /// The array that holds a window's cube, and the cube's place in it.
    fn find(&mut self, item: Item) -> Result<(ArrayRef<'a>, usize)> {
        if let Some((sample, array, index)) = self.last
            && sample == item.sample
        {
            return Ok((array, index));
        }
        let Reader { dataset, beside, .. } = self.reader;
        let array = array_of(dataset, beside, item, self.array)?;
        let index = dataset.samples().index(item.sample);
        self.last = Some((item.sample, array, index));
        Ok((array, index))
    }

    /// Copies the first windows of `items` that are of one cube and whose decoded chunks are in
    /// memory. Returns how many.
    fn gather(
        &mut self,
        decoder: Decoder<'_>,
        part: &Part,
        items: &[Item],
        out: &mut [u8],
        scratch: &mut Scratch,
    ) -> usize {
        let Some(first) = items.first().filter(|_| part.down.is_none()) else { return 0 };
        let Ok((array, index)) = self.find(*first) else { return 0 };
        if self.reader.new_ids.of(array).is_some() || self.fit().is_some() {
            return 0;
        }
        let Some(gather) = decoder.gather(array, index, &mut self.groups) else { return 0 };
        let of_it = items.iter().take_while(|item| item.sample == first.sample);
        gather.copy(of_it.map(|item| array.window(item.window)), out, scratch)
    }

    /// How the images of the batch get its bands, if that is what is read.
    fn fit(&self) -> Option<&'a BandFit> {
        self.reader.fit.as_deref().filter(|_| self.array == 0)
    }

    /// Reads a window, wherever its values are, as the batch has it.
    fn read(
        &mut self,
        decoder: Decoder<'_>,
        part: &Part,
        item: Item,
        out: &mut [u8],
        scratch: &mut Scratch,
    ) -> Result<()> {
        let cube = self.find(item)?;
        let Some(fit) = self.fit() else {
            return self.read_values(decoder, part, item, cube, out, scratch);
        };
        let (array, _) = cube;
        let bands = decoder.bands_of(array).map_or(array.shape().bands, <[usize]>::len);
        let pixels = out.len() / (fit.bands * fit.dtype.size());
        // Taken out, because reading needs the rest of the scratch.
        let mut values = std::mem::take(&mut scratch.unfitted);
        values.resize(pixels * bands * array.dtype().size(), 0);
        let done = self.read_values(decoder, part, item, cube, &mut values, scratch);
        if done.is_ok() {
            let form = (array.dtype(), bands);
            fit.apply(array.stack, &values, form, out, &mut scratch.spectra);
        }
        scratch.unfitted = values;
        done
    }

    /// Reads the values of a window.
    fn read_values(
        &self,
        decoder: Decoder<'_>,
        part: &Part,
        item: Item,
        (array, index): (ArrayRef<'a>, usize),
        out: &mut [u8],
        scratch: &mut Scratch,
    ) -> Result<()> {
        let reader = self.reader;
        let shape = array.shape();
        let window = array.window(item.window);
        match part.down {
            Some(down) => decoder.rows(array, index, down, window, out, scratch),
            None if window.is_inside(shape.rows, shape.columns) => {
                decoder.all_rows(array, index, window, out, scratch)
            }
            None => decoder.padded(array, index, window, reader.pad(array), out, scratch),
        }?;
        if let Some(table) = reader.new_ids.of(array) {
            table.apply(array.dtype(), out);
        }
        Ok(())
    }
}
