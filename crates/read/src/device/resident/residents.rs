//! The cubes of one loader that stay in the memory of its device.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use hsipack_format::codec::MAX_CHUNK;
use hsipack_store::memory;
use serde::Serialize;

use super::choice::{Choice, Kept, choose};
use super::cubes::{Cube, CubeKey, Cubes};
use super::region::Region;
use super::registry::{self, Owner};
use crate::Result;
use crate::dataset::Dataset;
use crate::dataset::array::{ArrayRef, Stored};
use crate::device::backend::{Backend, DeviceMemory};
use crate::device::decode::{FRAME_HEADER, supports};
use crate::device::options::DeviceCache;

/// Bytes that a slot of the ring has at most in addition to a batch, for chunks that are brought to
/// the device.
const LOAD_ROOM: usize = 32 << 20;
/// Cubes and frames begin at multiples of this many bytes.
const ALIGNMENT: u64 = 256;
/// The fraction of the device's free memory that is taken if the user gives no size: 1 of so many
/// parts. A network, its gradients and activations need the larger rest, and the loader begins
/// before they are there.
const PART_OF_FREE: u64 = 4;
/// How long released memory may be in use by queued work.
const LAST_USE: Duration = Duration::from_millis(300);

/// See the module's documentation.
#[derive(Debug)]
pub(crate) struct Residents {
    /// The region that this loader fills.
    loaded: Option<Shared>,
    /// The cubes of `own` in the order of the samples, and how many of their chunks were looked at
    /// to bring them ahead.
    order: Vec<CubeKey>,
    ahead: AtomicUsize,
    /// Regions of other loaders.
    others: Vec<Shared>,
    /// Whether every sample is kept.
    is_whole: bool,
    /// Bytes that a slot of the ring needs in addition to a batch.
    load_bytes: usize,
    counts: [usize; 2],
    why: String,
}

/// A region, and its cubes.
#[derive(Clone, Debug)]
struct Shared {
    region: Arc<Region>,
    cubes: Arc<Cubes>,
}

/// The samples that a loader reads, and the memory that they may take.
pub(crate) struct Request<'a> {
    pub dataset: &'a Dataset,
    /// Stack and samples, in the order of the plan.
    pub samples: Vec<(usize, usize)>,
    /// The arrays that are read, by stack.
    pub arrays: &'a dyn Fn(usize) -> Result<Vec<usize>>,
    pub wanted: DeviceCache,
    /// The most bytes; a part of the free memory if 0.
    pub limit: u64,
    /// Bytes that the loader itself still takes.
    pub reserved: u64,
    /// Whether batches have parts of cubes.
    pub by_windows: bool,
    /// Whether the device decodes frames, and all that is read of them is used as it is.
    pub decodes: bool,
    /// Whether values are changed for this loader, so that no other one can use them.
    pub is_private: bool,
    /// The fraction of the memory for this dataset, if a loader reads several.
    pub fraction: f64,
}

/// Samples that stay in the memory of the device.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ResidentReport {
    /// `none`, `decoded` or `compressed`.
    pub kind: &'static str,
    /// Bytes of device memory that are taken, together with other loaders of this process.
    pub bytes: u64,
    /// Number of samples that stay, or will when they were read, and number of samples that are
    /// read.
    pub samples: usize,
    /// Number of samples that are read.
    pub of_samples: usize,
    /// Fraction of their chunks that are there.
    pub loaded: f64,
    /// The reason, in words.
    pub why: String,
}

impl ResidentReport {
    /// Nothing, for this reason.
    pub(crate) fn none(why: &str) -> Self {
        let (kind, bytes, samples, of_samples, loaded) = ("none", 0, 0, 0, 0.0);
        Self { kind, bytes, samples, of_samples, loaded, why: why.to_owned() }
    }
}

impl Residents {
    /// Takes memory for the cubes of a loader, unless regions of other loaders have a place for
    /// them.
    ///
    /// # Errors
    /// If the device, or a shard's index, cannot be read. If there is too little memory, nothing is
    /// kept.
    pub(in crate::device) fn join<B: Backend>(backend: &B, request: &Request<'_>) -> Result<Self> {
        let Request { dataset, samples, wanted, .. } = request;
        let owner = backend.number().filter(|_| !request.is_private);
        let owner = owner.map(|device| Owner::new(device, dataset));
        let others = owner.as_ref().map(registry::of).unwrap_or_default();
        let suits = |region: &Region| match wanted {
            DeviceCache::Decoded => region.kept() == Kept::Decoded,
            DeviceCache::Compressed => region.kept() == Kept::Compressed,
            _ => region.kept() == Kept::Decoded || request.decodes,
        };
        // One that is not complete may never be.
        let others = others.into_iter().filter(|(region, _)| region.is_complete() && suits(region));
        let others: Vec<Shared> = others.map(|(region, cubes)| Shared { region, cubes }).collect();
        let mut absent = Vec::new();
        let mut kept_by_others = 0;
        for (stack, sample) in samples {
            let keys = request.keys(*stack, *sample)?;
            let has = |other: &Shared| keys.iter().all(|key| other.cubes.contains_key(key));
            match others.iter().any(has) {
                true => kept_by_others += 1,
                false => absent.push(keys),
            }
        }
        let mut residents = Self {
            loaded: None,
            order: Vec::new(),
            ahead: AtomicUsize::new(0),
            is_whole: absent.is_empty(),
            load_bytes: 0,
            others,
            counts: [kept_by_others, samples.len()],
            why: "another loader of this process keeps the samples".to_owned(),
        };
        if absent.is_empty() {
            return Ok(residents);
        }
        let free = backend.free_memory()?.saturating_sub(request.reserved);
        let limit = match request.limit {
            0 => free / PART_OF_FREE,
            limit => limit,
        };
        let limit = (limit as f64 * request.fraction) as u64;
        let decoded: Vec<u64> = absent.iter().map(|keys| request.decoded_bytes(keys)).collect();
        let compressed = || absent.iter().map(|keys| request.compressed_bytes(keys)).collect();
        let compressed = || if request.decodes { compressed() } else { None };
        let Choice { kept, places, why } =
            choose(*wanted, limit, &decoded, compressed, request.by_windows);
        residents.why = why;
        let Some(kept) = kept else { return Ok(residents) };
        residents.order =
            places.iter().flat_map(|number| absent[*number].iter().copied()).collect();
        let (cubes, chunks, bytes) = request.lay_out(kept, &residents.order)?;
        let Some(memory) = usize::try_from(bytes).ok().map(|bytes| backend.allocate(bytes)) else {
            return Ok(residents);
        };
        let memory: Arc<dyn DeviceMemory> = match memory {
            Ok(memory) => Arc::new(memory),
            Err(error) => {
                residents.order.clear();
                residents.why = format!("{}: {}", memory::size(bytes), error.what());
                return Ok(residents);
            }
        };
        let region = Arc::new(Region::new(kept, memory, chunks));
        let cubes = Arc::new(cubes);
        if let Some(owner) = owner {
            registry::add(owner, &region, cubes.clone());
        }
        residents.load_bytes = request.load_bytes(&residents.order);
        residents.counts[0] += places.len();
        residents.is_whole = residents.counts[0] == residents.counts[1];
        residents.loaded = Some(Shared { region, cubes });
        Ok(residents)
    }

    /// Where a cube is, or will be.
    pub(crate) fn find(&self, key: CubeKey) -> Option<(&Arc<Region>, &Cube)> {
        if let Some(loaded) = &self.loaded
            && let Some(cube) = loaded.cubes.get(&key)
        {
            return (!loaded.region.is_released()).then_some((&loaded.region, cube));
        }
        let usable = |other: &&Shared| other.region.is_complete() && !other.region.is_released();
        self.others
            .iter()
            .filter(usable)
            .find_map(|other| Some((&other.region, other.cubes.get(&key)?)))
    }

    /// Whether this loader fills a region.
    pub(crate) fn is_own(&self, region: &Arc<Region>) -> bool {
        self.loaded.as_ref().is_some_and(|loaded| Arc::ptr_eq(&loaded.region, region))
    }

    /// Whether a chunk of a cube is there, or on its way, so that it need not be read.
    pub(crate) fn holds(&self, array: ArrayRef<'_>, index: usize, chunk: usize) -> bool {
        let Some((region, cube)) = self.find(key(array, index)) else { return false };
        !region.is_absent(cube.first + chunk)
    }

    /// The next cubes whose chunks may be absent, from a point on that goes forward: for chunks
    /// that are brought ahead. `each` says whether to go on.
    pub(crate) fn for_each_ahead(
        &self,
        mut each: impl FnMut(&Arc<Region>, CubeKey, &Cube) -> bool,
    ) {
        let Some(loaded) = self.loaded.as_ref().filter(|loaded| !loaded.region.is_complete())
        else {
            return;
        };
        loop {
            let next = self.ahead.load(Ordering::Relaxed);
            let Some(key) = self.order.get(next) else {
                // Chunks that were dropped on the way are brought in another round.
                self.ahead.store(0, Ordering::Relaxed);
                return;
            };
            if !each(&loaded.region, *key, &loaded.cubes[key]) {
                return;
            }
            self.ahead.store(next + 1, Ordering::Relaxed);
        }
    }

    /// Whether every sample is kept, or will be.
    pub(crate) fn are_whole(&self) -> bool {
        self.is_whole
    }

    /// Bytes that a slot of the ring should have in addition to a batch, for chunks that are
    /// brought to the device.
    pub(crate) fn load_bytes(&self) -> usize {
        self.load_bytes
    }

    /// Whether anything is kept.
    pub(crate) fn are_empty(&self) -> bool {
        self.loaded.is_none() && self.others.is_empty()
    }

    /// Gives up all regions of the loader, also those that it shares. Waits until queued work no
    /// longer uses them. `false` if there are none.
    pub(crate) fn release(&self) -> bool {
        let released: Vec<_> = self.regions().filter_map(|region| region.release()).collect();
        let until = Instant::now() + LAST_USE;
        let is_used = || released.iter().any(|memory| memory.strong_count() > 0);
        while is_used() && Instant::now() < until {
            std::thread::sleep(Duration::from_millis(1));
        }
        !released.is_empty()
    }

    fn regions(&self) -> impl Iterator<Item = &Arc<Region>> {
        self.loaded.iter().chain(&self.others).map(|shared| &shared.region)
    }

    /// Whether the device ran out of memory, so that what was kept was released.
    pub(crate) fn was_released(&self) -> bool {
        self.regions().any(|region| region.is_released())
    }

    /// The report of this moment.
    pub(crate) fn report(&self) -> ResidentReport {
        let [samples, of_samples] = self.counts;
        let living = || self.regions().filter(|region| !region.is_released());
        let Some(first) = living().next() else {
            let why = if self.was_released() {
                "the device ran out of memory, so it was released"
            } else {
                &self.why
            };
            return ResidentReport { of_samples, ..ResidentReport::none(why) };
        };
        let bytes = living().map(|region| region.bytes()).sum::<u64>();
        let loaded = living().map(|region| region.fraction() * region.bytes() as f64).sum::<f64>();
        ResidentReport {
            kind: match first.kept() {
                Kept::Decoded => "decoded",
                Kept::Compressed => "compressed",
            },
            bytes,
            samples,
            of_samples,
            loaded: (loaded / bytes.max(1) as f64 * 1e3).round() / 1e3,
            why: self.why.clone(),
        }
    }
}

/// The key of a cube.
pub(crate) fn key(array: ArrayRef<'_>, index: usize) -> CubeKey {
    let number = |number: usize| u32::try_from(number).unwrap_or(u32::MAX);
    CubeKey { stack: number(array.stack), array: number(array.array), index: number(index) }
}

impl<'a> Request<'a> {
    fn keys(&self, stack: usize, sample: usize) -> Result<Vec<CubeKey>> {
        let index = self.dataset.samples().index(sample);
        let arrays = (self.arrays)(stack)?;
        Ok(arrays.iter().map(|array| key(self.dataset.array(stack, *array), index)).collect())
    }

    fn array(&self, key: CubeKey) -> ArrayRef<'a> {
        self.dataset.array(key.stack as usize, key.array as usize)
    }

    fn cube_bytes(&self, key: CubeKey) -> u64 {
        let (shape, element) = (self.array(key).shape(), self.array(key).dtype().size());
        (shape.rows * shape.columns * shape.bands * element) as u64
    }

    fn decoded_bytes(&self, keys: &[CubeKey]) -> u64 {
        keys.iter().map(|key| self.cube_bytes(*key).next_multiple_of(ALIGNMENT)).sum()
    }

    /// Bytes of the frames; `None` if the device cannot decode all of them.
    fn compressed_bytes(&self, keys: &[CubeKey]) -> Option<u64> {
        let frames =
            keys.iter().map(|key| Some(self.frames(*key)?.iter().copied().map(padded).sum()));
        frames.collect::<Option<Vec<u64>>>().map(|bytes| bytes.iter().sum())
    }

    /// Bytes of each frame of a cube; `None` if the device cannot decode all of them.
    fn frames(&self, key: CubeKey) -> Option<Vec<u32>> {
        let array = self.array(key);
        let frames = 0..array.grid().chunks_per_sample();
        frames.map(|chunk| frame_bytes(array, key.index as usize, chunk)).collect()
    }

    /// Bytes of a slot for chunks of these cubes: all of them if they are small.
    fn load_bytes(&self, keys: &[CubeKey]) -> usize {
        // Rows of the tables for each chunk.
        const NOTES: usize = 256;
        let (mut all, mut largest) = (0_usize, 0);
        for key in keys {
            let array = self.array(*key);
            let chunk = array.chunk_bytes().max(array.chunks.chunk_bytes()) + NOTES;
            all = all.saturating_add(array.grid().chunks_per_sample().saturating_mul(chunk));
            largest = largest.max(chunk);
        }
        all.min(LOAD_ROOM.max(2 * largest))
    }

    /// The places of cubes in a region, the number of its chunks, and its bytes.
    fn lay_out(&self, kept: Kept, keys: &[CubeKey]) -> Result<(Cubes, usize, u64)> {
        let (mut cubes, mut chunks, mut end) = (Cubes::default(), 0, 0_u64);
        let mut twice = HashSet::new();
        for key in keys.iter().filter(|key| twice.insert(**key)) {
            let (start, mut frames) = (end, Vec::new());
            match kept {
                Kept::Decoded => end += self.cube_bytes(*key).next_multiple_of(ALIGNMENT),
                Kept::Compressed => {
                    for bytes in self.frames(*key).unwrap_or_default() {
                        frames.push((end, bytes));
                        end += padded(bytes);
                    }
                }
            }
            cubes.insert(*key, Cube { start, first: chunks, frames: frames.into() });
            chunks += self.array(*key).grid().chunks_per_sample();
        }
        Ok((cubes, chunks, end))
    }
}

fn padded(bytes: u32) -> u64 {
    u64::from(bytes).next_multiple_of(ALIGNMENT)
}

/// Bytes of the frame of a chunk that a device can decode.
fn frame_bytes(array: ArrayRef<'_>, index: usize, chunk: usize) -> Option<u32> {
    frame(array, index, chunk).map(|(_, bytes)| bytes)
}

/// Where a chunk is stored, and the bytes of its frame, if a device can decode it.
pub(crate) fn frame<'a>(
    array: ArrayRef<'a>,
    index: usize,
    chunk: usize,
) -> Option<(Stored<'a>, u32)> {
    let codecs = array.chunks.meta().codecs;
    let codec = codecs.compression.filter(supports)?;
    let is_long = array.chunk_bytes() > MAX_CHUNK;
    if usize::from(codec.typesize) != array.stored_dtype().size() || is_long {
        return None;
    }
    let stored = array.locate(index, chunk).ok()??;
    let span = &stored.span;
    let checksum = if codecs.checksum { size_of::<u32>() as u64 } else { 0 };
    let bytes = (span.end - span.start).checked_sub(checksum)?;
    let bytes = u32::try_from(bytes).ok().filter(|bytes| *bytes as usize > FRAME_HEADER)?;
    Some((stored, bytes))
}
