//! Where the transfer thread gets host batches.

use std::sync::Arc;

use crate::Result;
use crate::loader::Decoding;

/// Where host batches come from.
pub(super) trait Source: Send + 'static {
    /// A batch in host memory that does not move and is not written to until it is dropped.
    type Batch: Send;
    /// The metadata of a batch.
    type Info: Send + Sync;
    /// How far the consumer is when it has taken a batch.
    type Position: Send;

    fn next(&mut self) -> Option<Result<Self::Batch>>;

    /// The next batch, the end or an error, as of [`next`](Self::next), if it is there.
    fn next_if_ready(&mut self) -> Option<Option<Result<Self::Batch>>>;

    fn go_to(&mut self, epoch: u64);
    fn position(&self) -> Self::Position;
    fn bytes(batch: &Self::Batch) -> &[u8];
    fn info(batch: &Self::Batch) -> Self::Info;

    /// The device's work if it has to complete the batch, whose [`bytes`](Self::bytes) are then all
    /// that it needs.
    fn decoding(batch: &Self::Batch) -> Option<Arc<Decoding>>;

    /// Where the device's answers go: the status of each chunk.
    fn answers(batch: &mut Self::Batch) -> &mut [u8];

    /// Gathers the frames of all later batches, because the device cannot copy from the maps of
    /// files.
    fn close_page_cache(&self, why: &str);

    /// The same batch as values, after the device could not decode it.
    ///
    /// # Errors
    /// If it cannot be decoded here, either. This is then the error of the batch.
    fn decoded_here(&mut self, batch: Self::Batch) -> Result<Self::Batch>;
}
