//! Telling the store what will be wanted, near spans together.

use std::ops::Range;

use crate::dataset::array::Stored;
use crate::store::{StoredFile, coalesce};

/// Gathers what will be wanted, in the order in which it will be.
#[derive(Debug, Default)]
pub(crate) struct Ahead<'a> {
    file: Option<&'a dyn StoredFile>,
    /// Spans of that file, ascending, that were not asked for yet.
    spans: Vec<Range<u64>>,
}

impl<'a> Ahead<'a> {
    /// With room from an earlier time ([`Self::end`]), so that it need not allocate.
    pub fn in_room(room: Vec<Range<u64>>) -> Self {
        Self { file: None, spans: room }
    }

    /// This one will be wanted.
    pub fn want(&mut self, stored: Stored<'a>) {
        let same = self.file.is_some_and(|file| std::ptr::addr_eq(file, stored.file));
        let ascends = self.spans.last().is_none_or(|last| last.end <= stored.span.start);
        if !same || !ascends {
            self.ask();
            self.file = Some(stored.file);
        }
        self.spans.push(stored.span);
    }

    /// That was all. Gives its room back.
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
