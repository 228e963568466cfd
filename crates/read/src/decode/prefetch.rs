//! Tells the store what will be read next, with spans that lie close together joined.

use std::ops::Range;

use crate::dataset::array::Stored;
use crate::store::{StoredFile, coalesce};

/// Collects the chunks that will be read, in the order in which they will be.
#[derive(Debug, Default)]
pub(crate) struct ChunkPrefetch<'a> {
    file: Option<&'a dyn StoredFile>,
    /// Spans of that file, ascending, that were not requested yet.
    spans: Vec<Range<u64>>,
}

impl<'a> ChunkPrefetch<'a> {
    /// Uses the memory of an earlier list ([`Self::end`]), so that nothing has to be allocated.
    pub fn in_room(room: Vec<Range<u64>>) -> Self {
        Self { file: None, spans: room }
    }

    /// Notes that this chunk will be read.
    pub fn want(&mut self, stored: Stored<'a>) {
        let file: &'a dyn StoredFile = &**stored.file;
        let same = self.file.is_some_and(|last| std::ptr::addr_eq(last, file));
        let ascends = self.spans.last().is_none_or(|last| last.end <= stored.span.start);
        if !same || !ascends {
            self.ask();
            self.file = Some(file);
        }
        self.spans.push(stored.span);
    }

    /// Requests the chunks that are left. Returns the memory of the list, to be used again.
    pub fn end(mut self) -> Vec<Range<u64>> {
        self.ask();
        self.spans
    }

    fn ask(&mut self) {
        if let Some(file) = self.file {
            let near = file.near();
            coalesce(&self.spans, near.gap, near.run).for_each(|run| file.prefetch(run.span));
        }
        self.spans.clear();
    }
}
