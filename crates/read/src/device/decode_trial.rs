//! Frames in the memory of a device, copied and decoded as often as asked, to measure how fast that
//! is.

use std::mem::ManuallyDrop;
use std::sync::Arc;
use std::time::{Duration, Instant};

use hsipack_store::mapping::page_size;
use hsipack_store::memory;
use hsipack_store::pages::Block;

use super::backend::{Backend, DecodePlaces, DeviceMemory};
use super::cuda::Cuda;
use super::decode::{CHUNK_BYTES, Chunk, Decode, STATUS_BYTES, Status, block_bytes, slots_of};
use crate::ring::memory::PageLocker;
use crate::{Error, Result};

/// Alignment of frames and tables, in bytes.
const ALIGNMENT: usize = 16;

/// A batch of frames of one codec on a GPU.
///
/// ```no_run
/// # fn example(frames: &[(&[u8], usize)]) -> hsipack_read::Result<()> {
/// let mut trial = hsipack_read::DecodeTrial::on_cuda(0, frames)?;
/// println!("{:?} for the copy, {:?} for decoding", trial.copy()?, trial.decode(10)? / 10);
/// # Ok(())
/// # }
/// ```
pub struct DecodeTrial(Trial<Cuda>);

/// See [`DecodeTrial`].
struct Trial<B: Backend> {
    backend: B,
    locker: Option<Arc<dyn PageLocker>>,
    /// The bytes that are copied to the device: frames, the table of chunks, statuses.
    host: ManuallyDrop<Locked>,
    memory: ManuallyDrop<DeviceBuffers<B>>,
    work: Decode,
    parts: Parts,
    /// The device no longer says what is done, so it keeps all memory for good.
    is_lost: bool,
}

/// Memory of the device.
struct DeviceBuffers<B: Backend> {
    /// The same as on the host.
    uploaded: B::Memory,
    /// The decoded frames.
    batch: B::Memory,
    scratch: B::Memory,
}

/// Where parts of the memory begin.
#[derive(Clone, Copy)]
struct Parts {
    table: usize,
    statuses: usize,
    chunks: usize,
    decoded: usize,
}

/// Memory of the host, page-locked if the device can.
struct Locked {
    memory: Block,
    locker: Option<Arc<dyn PageLocker>>,
}

impl DecodeTrial {
    /// Copies frames, each with the number of bytes that it decodes to, to a GPU, and decodes them
    /// once.
    ///
    /// # Errors
    /// If there is no such GPU, it has not enough memory, or its kernel cannot decode a frame.
    pub fn on_cuda(device: usize, frames: &[(&[u8], usize)]) -> Result<Self> {
        let cuda = Cuda::open(device)?;
        let locker = cuda.locker();
        Trial::new(cuda, Some(locker), frames).map(Self)
    }

    /// Bytes of the device's memory that are free.
    ///
    /// # Errors
    /// If there is no such GPU.
    pub fn free_memory(device: usize) -> Result<u64> {
        Cuda::open(device)?.free_memory()
    }

    /// Copies all frames from page-locked memory to the GPU, and waits until they are there.
    ///
    /// # Errors
    /// If the device fails.
    pub fn copy(&mut self) -> Result<Duration> {
        self.0.copy()
    }

    /// Decodes all frames so many times, and waits until that is done.
    ///
    /// # Errors
    /// If the device fails.
    pub fn decode(&mut self, times: u32) -> Result<Duration> {
        self.0.decode(times)
    }

    /// Whether the frames were decoded to these values, one after the other.
    ///
    /// # Errors
    /// If the device fails.
    pub fn has_decoded<'a>(&mut self, values: impl IntoIterator<Item = &'a [u8]>) -> Result<bool> {
        self.0.has_decoded(values)
    }
}

impl<B: Backend> Trial<B> {
    fn new(
        backend: B,
        locker: Option<Arc<dyn PageLocker>>,
        frames: &[(&[u8], usize)],
    ) -> Result<Self> {
        backend.prepare_decoding()?;
        let too_large = || Error::unsupported("a chunk of 2 GiB or more cannot be decoded");
        let mut chunks = Vec::with_capacity(frames.len());
        let (mut end, mut decoded, mut block, mut slots) = (0usize, 0u64, 1, 1);
        for (frame, bytes) in frames {
            let start = end.next_multiple_of(ALIGNMENT);
            end = start + frame.len();
            let bytes = u32::try_from(*bytes).map_err(|_| too_large())?;
            chunks.push(Chunk::of_values(bytes, start as u64..end as u64, decoded));
            decoded += u64::from(bytes);
            let of_frame = u64::from(block_bytes(frame)).clamp(1, u64::from(bytes).max(1));
            block = block.max(of_frame);
            slots = slots.max(slots_of(u64::from(bytes), of_frame));
        }
        let table = end.next_multiple_of(ALIGNMENT);
        let statuses = table + chunks.len() * CHUNK_BYTES;
        let work = Decode::new(&chunks, end as u64, decoded, slots as u32, block)?;
        let parts = Parts { table, statuses, chunks: chunks.len(), decoded: decoded as usize };
        let bytes = statuses + chunks.len() * STATUS_BYTES;

        let mut host = Locked::new(bytes, locker.as_ref())?;
        let to = &mut host.memory;
        let mut start = 0usize;
        for (frame, _) in frames {
            start = start.next_multiple_of(ALIGNMENT);
            to[start..start + frame.len()].copy_from_slice(frame);
            start += frame.len();
        }
        for (to, chunk) in to[table..].chunks_exact_mut(CHUNK_BYTES).zip(&chunks) {
            to.copy_from_slice(&chunk.to_bytes());
        }
        let scratch = usize::try_from(work.scratch_bytes()).map_err(|_| too_large())?;
        let memory = DeviceBuffers {
            uploaded: backend.allocate(bytes)?,
            batch: backend.allocate(parts.decoded.max(1))?,
            scratch: backend.allocate(scratch.max(1))?,
        };
        let (host, memory) = (ManuallyDrop::new(host), ManuallyDrop::new(memory));
        let mut trial = Self { backend, locker, host, memory, work, parts, is_lost: false };
        trial.copy_bytes(bytes)?;
        trial.decode(1)?;
        trial.check()?;
        Ok(trial)
    }

    /// Waits for an event. If that is impossible, nobody knows any more what the device uses.
    fn finish(&mut self, event: Result<B::Event>) -> Result<()> {
        let finished = event.and_then(|event| self.backend.finish(&event));
        self.is_lost |= finished.is_err();
        finished
    }

    fn copy(&mut self) -> Result<Duration> {
        self.copy_bytes(self.parts.table)
    }

    fn copy_bytes(&mut self, bytes: usize) -> Result<Duration> {
        let start = Instant::now();
        // SAFETY: both have so many bytes, nothing else uses them, and they stay until the copy is done, or for ever.
        unsafe { self.backend.queue_copy(self.host.start(), self.memory.uploaded.start(), bytes)? };
        let copied = self.backend.copied();
        self.finish(copied)?;
        Ok(start.elapsed())
    }

    fn decode(&mut self, times: u32) -> Result<Duration> {
        let DeviceBuffers { uploaded, batch, scratch } = &*self.memory;
        let address = |byte: usize| uploaded.start().wrapping_add(byte);
        let at = DecodePlaces {
            chunks: address(self.parts.table),
            compressed: address(0),
            batch: batch.start(),
            scratch: scratch.start(),
            statuses: address(self.parts.statuses),
        };
        let start = Instant::now();
        // SAFETY: the table and the frames were copied to these places, and the memory is as large as `work` was made for. It
        // stays until the decoding is done, or for ever. Decodings of one stream come one after the other.
        let queued =
            (0..times).try_for_each(|_| unsafe { self.backend.queue_decode(&self.work, &at) });
        let decoded = self.backend.decoded();
        self.finish(decoded)?;
        queued?;
        Ok(start.elapsed())
    }

    /// Copies bytes of the device's memory to the host.
    fn answer(&mut self, from: *const u8, bytes: usize) -> Result<Locked> {
        let mut to = ManuallyDrop::new(Locked::new(bytes, self.locker.as_ref())?);
        // SAFETY: both have so many bytes, and stay until the copy is done, or for ever.
        unsafe { self.backend.queue_answers(from, to.start(), bytes)? };
        let done = self.backend.decoded();
        self.finish(done)?;
        Ok(ManuallyDrop::into_inner(to))
    }

    fn has_decoded<'a>(&mut self, values: impl IntoIterator<Item = &'a [u8]>) -> Result<bool> {
        let answer = self.answer(self.memory.batch.start(), self.parts.decoded)?;
        let mut decoded = &answer.memory[..self.parts.decoded];
        let mut values = values.into_iter();
        let are_same =
            values.all(|values| decoded.split_off(..values.len()).is_some_and(|is| is == values));
        Ok(are_same && decoded.is_empty())
    }

    fn check(&mut self) -> Result<()> {
        let Parts { statuses, chunks, .. } = self.parts;
        let statuses = self.memory.uploaded.start().wrapping_add(statuses);
        let statuses = self.answer(statuses, chunks * STATUS_BYTES)?;
        let (numbers, _) = statuses.memory[..chunks * STATUS_BYTES].as_chunks::<STATUS_BYTES>();
        let wrong = |number: &[u8; STATUS_BYTES]| Status::of(u32::from_le_bytes(*number));
        match numbers.iter().map(wrong).find(|status| *status != Status::Sound) {
            None => Ok(()),
            Some(status) => Err(Error::bug(format!("the device found a frame {status:?}"))),
        }
    }
}

impl<B: Backend> Drop for Trial<B> {
    fn drop(&mut self) {
        if !self.is_lost {
            // SAFETY: neither is used afterwards. All work was seen done.
            unsafe {
                ManuallyDrop::drop(&mut self.memory);
                ManuallyDrop::drop(&mut self.host);
            }
        }
    }
}

impl Locked {
    fn new(bytes: usize, locker: Option<&Arc<dyn PageLocker>>) -> Result<Self> {
        // Page-locking is done by whole pages, so nothing else may be in them.
        let memory = Block::new(bytes.max(1).next_multiple_of(page_size())).map_err(|error| {
            Error::memory(format!("cannot allocate {} for frames", memory::size(bytes as u64)))
                .caused_by(error)
        })?;
        let mut locked = Self { memory, locker: None };
        let (start, bytes) = (locked.start(), locked.memory.len());
        // Without page-locking, copies are slower.
        locked.locker = locker.filter(|locker| locker.lock(start, bytes).is_ok()).cloned();
        Ok(locked)
    }

    fn start(&mut self) -> *mut u8 {
        self.memory.as_mut_ptr()
    }
}

impl Drop for Locked {
    fn drop(&mut self) {
        if let Some(locker) = self.locker.take() {
            locker.unlock(self.start(), self.memory.len());
        }
    }
}

#[cfg(test)]
mod tests {
    use hsipack_format::codec::TARGET_BLOCK;
    use hsipack_format::{Codec, Compressor, DType, Shuffle};

    use super::super::fake::Fake;
    use super::*;

    /// Values and their frames, of different lengths.
    fn frames(shuffle: Shuffle) -> Vec<(Vec<u8>, Vec<u8>)> {
        let lengths = [300_000, 4_096, 150_002];
        let of = |(seed, bytes): (usize, usize)| {
            let values: Vec<u8> =
                (0..bytes).map(|at| ((at / 7 + seed) % 251 * (at % 2)) as u8).collect();
            let codec = Codec::new(Compressor::Lz4, 5, shuffle, DType::F16);
            let mut stored = Vec::new();
            let codec = codec.with_blocks(TARGET_BLOCK, bytes);
            hsipack_store::codec::encode(&codec, &values, &mut stored).unwrap();
            let frame = hsipack_format::codec::without_checksum(&stored).unwrap().to_vec();
            (values, frame)
        };
        lengths.into_iter().enumerate().map(of).collect()
    }

    fn borrowed(frames: &[(Vec<u8>, Vec<u8>)]) -> Vec<(&[u8], usize)> {
        frames.iter().map(|(values, frame)| (frame.as_slice(), values.len())).collect()
    }

    #[test]
    fn frames_are_decoded_one_after_the_other() {
        for (seed, shuffle) in [Shuffle::Byte, Shuffle::Bit, Shuffle::None].into_iter().enumerate()
        {
            let (fake, frames) = (Fake::new(seed as u64), frames(shuffle));
            let mut trial = Trial::new(fake.clone(), None, &borrowed(&frames)).unwrap();
            let values = || frames.iter().map(|(values, _)| values.as_slice());
            assert!(trial.has_decoded(values()).unwrap());
            assert!(!trial.has_decoded(values().rev()).unwrap());
            assert!(!trial.has_decoded(values().take(2)).unwrap());
            assert!(trial.copy().unwrap() > Duration::ZERO);
            assert!(trial.decode(3).unwrap() > Duration::ZERO);
            assert!(trial.has_decoded(values()).unwrap());
            drop(trial);
            fake.finish_all();
            fake.end();
        }
    }

    #[test]
    fn damaged_frames_and_lost_devices_are_errors() {
        let (fake, mut frames) = (Fake::new(7), frames(Shuffle::Byte));
        frames[1].1[30] ^= 0xFF;
        frames[1].1.truncate(40);
        let damaged = Trial::new(fake.clone(), None, &borrowed(&frames)).err().unwrap();
        assert!(damaged.to_string().contains("Damaged"), "{damaged}");
        let sound = &borrowed(&frames)[..1];
        let mut trial = Trial::new(fake.clone(), None, sound).unwrap();
        fake.refuse_decodes(1);
        assert!(trial.decode(2).is_err());
        trial.decode(2).unwrap();
        fake.finish_all();
        fake.lose();
        assert!(trial.copy().is_err());
        drop(trial);
        fake.end();
    }
}
