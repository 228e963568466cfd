//! Uploads a large object in parts, several at the same time, in bounded memory. The object exists
//! only when its last request is answered.

use std::collections::VecDeque;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use hsipack_format::{Error, Result};
use object_store::multipart::{MultipartStore, PartId};
use object_store::{MultipartId, PutMode, PutPayload};
use tokio::task::JoinHandle;

use super::failure::Failure;
use super::network;
use super::object::Object;
use super::retry::RetryClock;
use super::writing::to_write;
use crate::memory;
use crate::throttle::Wire;

/// Size of a part in bytes. Some servers require the same size for all parts except the last, and
/// at least 5 MiB.
const PART: u64 = 8 << 20;
/// Maximum number of parts. S3 allows slightly more; this leaves room because an object may become
/// larger than announced.
const PARTS: u64 = 9_000;
/// Number of parts that are sent at the same time.
const PARALLEL_PARTS: usize = 4;
/// How long to wait for a server to delete parts that are no longer needed.
const FORGET: Duration = Duration::from_secs(5);
/// Number of bytes at the end of an object that are compared if it is not known whether the object
/// was completed.
const COMPARED_BYTES: usize = 64 << 10;

/// An object being written.
#[derive(Debug)]
pub(crate) struct Upload {
    object: Object,
    part: usize,
    /// The part that is being collected.
    buffer: Vec<u8>,
    begun: Option<MultipartId>,
    sent: VecDeque<JoinHandle<Result<PartId, Failure>>>,
    parts: Vec<PartId>,
    bytes: u64,
}

impl Upload {
    /// Begins to upload the object at `url`, which will have at most about `most` bytes.
    ///
    /// # Errors
    /// If the server does not accept objects; if there is no memory for a part.
    pub(crate) fn new(url: &Path, most: u64) -> Result<Self> {
        let object = to_write(url)?;
        let part = PART.max(most.div_ceil(PARTS)) as usize;
        let (sent, parts) = (VecDeque::new(), Vec::new());
        Ok(Self { object, part, buffer: Vec::new(), begun: None, sent, parts, bytes: 0 })
    }

    /// Appends `bytes`. Waits while the maximum number of parts is being sent.
    ///
    /// # Errors
    /// If the server does not accept a part.
    pub(crate) fn write(&mut self, mut bytes: &[u8]) -> Result<()> {
        self.bytes += bytes.len() as u64;
        while !bytes.is_empty() {
            if self.buffer.len() == self.part {
                self.send()?;
            }
            let take = bytes.len().min(self.part - self.buffer.len());
            self.room_for(take)?;
            self.buffer.extend_from_slice(&bytes[..take]);
            bytes = &bytes[take..];
        }
        Ok(())
    }

    /// Grows the buffer step by step, so that a short object does not need memory for a whole part.
    fn room_for(&mut self, more: usize) -> Result<()> {
        let (needed, capacity) = (self.buffer.len() + more, self.buffer.capacity());
        if needed <= capacity {
            return Ok(());
        }
        let wanted = needed.max(2 * capacity).min(self.part);
        memory::room(&mut self.buffer, wanted, "a part of an object")
            .map_err(|error| error.at(&self.object.url))
    }

    /// Sends the rest and waits until the whole object is there.
    ///
    /// # Errors
    /// If the server does not accept it.
    pub(crate) fn finish(mut self) -> Result<()> {
        if self.begun.is_none() {
            let payload = PutPayload::from(std::mem::take(&mut self.buffer));
            let object = &self.object;
            return network::wait(async {
                let put = object.put(payload, PutMode::Overwrite).await;
                put.map_err(|failure| failure.of_writing(&object.url))
            });
        }
        let end = self.buffer[self.buffer.len().saturating_sub(COMPARED_BYTES)..].to_vec();
        self.send()?;
        while !self.sent.is_empty() {
            self.one_more()?;
        }
        let Some(id) = self.begun.take() else { return Ok(()) };
        let parts = std::mem::take(&mut self.parts);
        let (object, store, bytes) = (self.object.clone(), self.store()?, self.bytes);
        network::wait(async {
            let done = complete(&object, &*store, &id, parts, bytes, &end).await;
            done.map_err(|failure| failure.of_writing(&object.url))
        })
        .inspect_err(|_| self.begun = Some(id.clone()))
    }

    /// Sends the collected part.
    fn send(&mut self) -> Result<()> {
        let store = self.store()?;
        if self.begun.is_none() {
            let object = &self.object;
            self.begun = Some(network::wait(async {
                let begun = begin(object, &*store).await;
                begun.map_err(|failure| failure.of_writing(&object.url))
            })?);
        }
        while self.sent.len() >= PARALLEL_PARTS {
            self.one_more()?;
        }
        let (object, id) = (self.object.clone(), self.begun.clone().unwrap_or_default());
        let number = self.parts.len() + self.sent.len();
        let payload = PutPayload::from(std::mem::take(&mut self.buffer));
        self.sent.push_back(network::spawn(async move {
            let mut tries = RetryClock::default();
            loop {
                match store.put_part(&object.key, &id, number, payload.clone()).await {
                    Ok(part) => return Ok(part),
                    Err(error) => tries.again(Failure::from_library(&error)).await?,
                }
            }
        })?);
        Ok(())
    }

    /// Waits for the first of the parts that are being sent.
    fn one_more(&mut self) -> Result<()> {
        let Some(sent) = self.sent.front_mut() else { return Ok(()) };
        let url = &self.object.url;
        let part = network::wait(async {
            match sent.await {
                Ok(part) => part.map_err(|failure| failure.of_writing(url)),
                Err(_) => Err(Error::bug("a part was given up").at(url)),
            }
        })?;
        self.sent.pop_front();
        self.parts.push(part);
        Ok(())
    }

    fn store(&self) -> Result<Arc<dyn MultipartStore>> {
        // This was checked when the upload was begun.
        self.object.client.parts.clone().ok_or_else(|| Error::bug("a server without parts"))
    }
}

impl Drop for Upload {
    /// Deletes the parts if the object was not completed: they would take up invisible space on the
    /// server.
    fn drop(&mut self) {
        self.sent.iter().for_each(JoinHandle::abort);
        if let (Some(id), Some(store)) = (self.begun.take(), &self.object.client.parts) {
            let _ = network::wait_at_most(FORGET, store.abort_multipart(&self.object.key, &id));
        }
    }
}

async fn begin(object: &Object, store: &dyn MultipartStore) -> Result<MultipartId, Failure> {
    let mut tries = RetryClock::default();
    loop {
        match store.create_multipart(&object.key).await {
            Ok(id) => return Ok(id),
            Err(error) => tries.again(Failure::from_library(&error)).await?,
        }
    }
}

/// Joins the parts into an object of `bytes` bytes that ends with `end`.
async fn complete(
    object: &Object,
    store: &dyn MultipartStore,
    id: &MultipartId,
    parts: Vec<PartId>,
    bytes: u64,
    end: &[u8],
) -> Result<(), Failure> {
    let mut tries = RetryClock::default();
    loop {
        let failure = match store.complete_multipart(&object.key, id, parts.clone()).await {
            Ok(_) => return Ok(()),
            Err(error) => Failure::from_library(&error),
        };
        // If the answer was lost, the server no longer knows the parts.
        if is_there(object, bytes, end).await {
            return Ok(());
        }
        tries.again(failure).await?;
    }
}

/// Whether an object with this length and end is there.
async fn is_there(object: &Object, bytes: u64, end: &[u8]) -> bool {
    let Ok(version) = object.version().await else { return false };
    let mut stored = vec![0; end.len()];
    version.len == bytes
        && object
            .span(bytes - end.len() as u64..bytes, &version, &mut stored, &Wire::default())
            .await
            .is_ok()
        && stored == end
}
