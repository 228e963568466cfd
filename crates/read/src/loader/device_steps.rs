//! The steps of a device's work on a batch.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use crate::device::decode::{Decode, Gather, STATUS_BYTES};
use crate::device::resident::Region;

/// A device's work on a batch.
#[derive(Debug)]
pub(crate) struct Decoding {
    /// In this order.
    pub steps: Vec<Step>,
    /// Number of chunks that are decoded.
    pub chunks: usize,
    /// First byte of their statuses, which are 0.
    pub statuses: usize,
    /// Bytes of the device's buffer that are copied there.
    pub bytes: usize,
    /// The copies, which fill these bytes, except for gaps that nothing uses.
    pub copies: Vec<LinkCopy>,
    /// Bytes of frames that were gathered in the slot.
    pub gathered_bytes: usize,
    /// Bytes of the batch's values.
    pub values: usize,
    /// Number of images that come from the device's memory.
    pub hits: usize,
    /// Chunks that earlier batches bring to the device's memory.
    pub(super) earlier: Vec<(Arc<Region>, usize)>,
    /// Chunks that this batch brings there.
    pub(super) loads: Vec<(Arc<Region>, usize)>,
}

/// A copy to the device's buffer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct LinkCopy {
    /// Where in the buffer it belongs.
    pub to: Range<usize>,
    /// The address of its first byte in the map of a file, where it lies in one registered part.
    /// `None` if it is at the same place of the slot as of the buffer.
    pub map: Option<usize>,
}

/// A part of the device's work. Places are counted from the start of the slot.
pub(crate) enum Step {
    /// Decodes the chunks of a table.
    Decode {
        decode: Decode,
        /// First byte of the table.
        table: usize,
        /// First byte of the statuses.
        statuses: usize,
        /// Where frames are; the slot if `None`.
        from: Option<Arc<Region>>,
        /// Where chunks belong; the batch if `None`.
        into: Option<Arc<Region>>,
    },
    /// Copies bytes of the slot.
    Move { from: usize, bytes: usize, into: Arc<Region>, to: u64 },
    /// Gathers the windows of a table into the batch.
    Gather { gather: Gather, table: usize, bands: usize, from: Arc<Region> },
}

impl fmt::Debug for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Decode { decode, .. } => decode.fmt(f),
            Self::Move { from, bytes, to, .. } => write!(f, "{bytes} bytes from {from} to {to}"),
            Self::Gather { gather, .. } => gather.fmt(f),
        }
    }
}

impl Decoding {
    /// One step, which decodes what is in the slot into the batch.
    #[cfg(test)]
    pub(crate) fn one(
        decode: Decode,
        (table, statuses): (usize, usize),
        chunks: usize,
        bytes: usize,
        values: usize,
    ) -> Self {
        let steps = vec![Step::Decode { decode, table, statuses, from: None, into: None }];
        let (earlier, loads) = (Vec::new(), Vec::new());
        let copies = vec![LinkCopy { to: 0..bytes, map: None }];
        let (hits, gathered_bytes) = (0, 0);
        Self {
            steps,
            chunks,
            statuses,
            bytes,
            copies,
            gathered_bytes,
            values,
            hits,
            earlier,
            loads,
        }
    }

    /// Where the statuses come back to, behind what is copied to the device.
    pub(crate) fn answers(&self) -> Range<usize> {
        self.bytes..self.bytes + self.chunks * STATUS_BYTES
    }

    /// Scratch memory that the steps need. They use it one after another.
    pub(crate) fn scratch_bytes(&self) -> u64 {
        let scratch = self.steps.iter().map(|step| match step {
            Step::Decode { decode, .. } => decode.scratch_bytes(),
            Step::Move { .. } | Step::Gather { .. } => 0,
        });
        scratch.max().unwrap_or(0)
    }

    /// The regions that the steps use.
    pub(crate) fn regions(&self) -> impl Iterator<Item = &Arc<Region>> {
        self.steps
            .iter()
            .flat_map(|step| match step {
                Step::Decode { from, into, .. } => [from.as_ref(), into.as_ref()],
                Step::Move { into, .. } => [Some(into), None],
                Step::Gather { from, .. } => [Some(from), None],
            })
            .flatten()
    }

    /// Whether the device decodes something.
    pub(crate) fn decodes(&self) -> bool {
        self.chunks > 0
    }

    /// Whether the chunks that earlier batches had to bring are there.
    pub(crate) fn is_backed(&self) -> bool {
        self.earlier.iter().all(|(region, chunk)| region.is_resident(*chunk))
    }

    /// The host has seen all steps done, and all chunks are sound.
    pub(crate) fn confirm(&self) {
        self.loads.iter().for_each(|(region, chunk)| region.confirm(*chunk));
    }
}
