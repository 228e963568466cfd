//! One batch, again and again, to measure the speed of copying alone.

use std::sync::Arc;

use super::batch_info::BatchInfo;
use super::source::Source;
use crate::Result;
use crate::loader::{Batch, Decoding, Loader};
use crate::plan::State;

/// A loader that delivers its first batch for ever.
pub(super) struct Repeat {
    loader: Loader,
    batch: Option<Arc<Batch>>,
}

impl Repeat {
    pub(super) fn new(loader: Loader) -> Self {
        Self { loader, batch: None }
    }
}

impl Source for Repeat {
    type Batch = Arc<Batch>;
    type Info = Arc<BatchInfo>;
    type Position = State;

    fn next(&mut self) -> Option<Result<Arc<Batch>>> {
        if let Some(batch) = &self.batch {
            return Some(Ok(batch.clone()));
        }
        let batch = self.loader.next_batch()?.map(Arc::new);
        if let Ok(batch) = &batch {
            self.batch = Some(batch.clone());
        }
        Some(batch)
    }

    fn next_if_ready(&mut self) -> Option<Option<Result<Arc<Batch>>>> {
        Some(self.next())
    }

    fn go_to(&mut self, _: u64) {}

    fn position(&self) -> State {
        self.loader.state()
    }

    fn bytes(batch: &Arc<Batch>) -> &[u8] {
        batch.memory()
    }

    fn info(batch: &Arc<Batch>) -> Arc<BatchInfo> {
        BatchInfo::of(batch)
    }

    fn decoding(_: &Arc<Batch>) -> Option<Arc<Decoding>> {
        None
    }

    fn answers(_: &mut Arc<Batch>) -> &mut [u8] {
        &mut []
    }

    fn close_page_cache(&self, _: &str) {}

    fn decoded_here(&mut self, batch: Arc<Batch>) -> Result<Arc<Batch>> {
        Ok(batch)
    }
}
