//! Decoded chunks in memory that several processes map. Each chunk is decoded by one of them.
//!
//! ```text
//! head       what it is for; bytes used
//! states     one a chunk: empty → being written → ready
//! chunks     one after the other, each at its place; what nobody wrote to takes no memory
//! ```
//! The memory is a file without a name. The system frees it when the last process that has it ends,
//! however it ends. If a process ends while it writes a chunk, the chunk stays "being written", and
//! the other processes decode it for themselves.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use memmap2::{Advice, MmapOptions, MmapRaw};

/// A chunk's state.
const EMPTY: u32 = 0;
const WRITING: u32 = 1;
const READY: u32 = 2;

/// Bytes of the head. Chunks begin at multiples of this.
const PAGE: usize = 4096;
/// Changes whenever the layout changes.
const MAGIC: u64 = u64::from_le_bytes(*b"hsipack1");

/// Nobody can make the file shorter or longer any more.
const SEALS: i32 = libc::F_SEAL_SHRINK | libc::F_SEAL_GROW | libc::F_SEAL_SEAL;

/// See the module's documentation.
#[derive(Debug)]
pub(super) struct Segment {
    file: File,
    map: MmapRaw,
    layout: Layout,
}

/// The chunks of one array, which all have the same length.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ChunksOf {
    /// How many.
    pub count: usize,
    /// Bytes of each.
    pub bytes: usize,
}

/// Where everything lies.
#[derive(Debug)]
struct Layout {
    /// Every array's chunks, the number of its first chunk, and the first byte of that chunk.
    arrays: Vec<(ChunksOf, usize, u64)>,
    chunks: usize,
    end: u64,
}

impl Layout {
    fn of(arrays: &[ChunksOf]) -> Self {
        let chunks = arrays.iter().map(|array| array.count).sum();
        let states = size_of::<AtomicU32>() * chunks;
        let mut layout =
            Self { arrays: Vec::new(), chunks, end: (PAGE + states.next_multiple_of(PAGE)) as u64 };
        let mut first = 0;
        for array in arrays {
            layout.arrays.push((*array, first, layout.end));
            first += array.count;
            layout.end += array.count as u64 * array.bytes.next_multiple_of(PAGE) as u64;
        }
        layout
    }

    /// The number of a chunk among all chunks, and where its bytes lie.
    fn chunk(&self, array: usize, number: usize) -> (usize, Range<usize>) {
        let (chunks, first, start) = self.arrays[array];
        assert!(number < chunks.count, "there is no chunk {number} of array {array}");
        let start = start as usize + number * chunks.bytes.next_multiple_of(PAGE);
        (first + number, start..start + chunks.bytes)
    }
}

/// The head of the memory.
#[repr(C)]
struct Head {
    magic: AtomicU64,
    /// Identifies what the memory is for: two segments with the same key hold the same chunks.
    key: AtomicU64,
    used: AtomicU64,
}

impl Segment {
    /// Creates a segment for the chunks of these arrays.
    ///
    /// # Errors
    /// If the system does not offer such memory.
    pub(super) fn create(key: u64, arrays: &[ChunksOf]) -> io::Result<Self> {
        // SAFETY: the name is a string that ends with 0; the call makes a file, or gives -1.
        let descriptor = unsafe {
            libc::memfd_create(c"hsipack".as_ptr(), libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING)
        };
        if descriptor < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the file was opened just now, and nobody else has its number.
        let file = File::from(unsafe { OwnedFd::from_raw_fd(descriptor) });
        let layout = Layout::of(arrays);
        file.set_len(layout.end)?;
        // SAFETY: the call changes what may be done to the file, and nothing of this process.
        if unsafe { libc::fcntl(file.as_raw_fd(), libc::F_ADD_SEALS, SEALS) } != 0 {
            return Err(io::Error::last_os_error());
        }
        let segment = Self::map(file, layout)?;
        segment.head().key.store(key, Ordering::Relaxed);
        segment.head().magic.store(MAGIC, Ordering::Release);
        Ok(segment)
    }

    /// Maps a segment that another process created. Returns `None` if the file is something else.
    ///
    /// # Errors
    /// If it cannot be mapped.
    pub(super) fn join(file: File, key: u64, arrays: &[ChunksOf]) -> io::Result<Option<Self>> {
        let layout = Layout::of(arrays);
        // SAFETY: the call asks about the file, and changes nothing.
        let seals = unsafe { libc::fcntl(file.as_raw_fd(), libc::F_GET_SEALS) };
        // The file has the right length and cannot change it, so no access to the map can miss the file.
        if seals & SEALS != SEALS || seals < 0 || file.metadata()?.len() != layout.end {
            return Ok(None);
        }
        let segment = Self::map(file, layout)?;
        let head = segment.head();
        let is_same =
            head.magic.load(Ordering::Acquire) == MAGIC && head.key.load(Ordering::Relaxed) == key;
        Ok(is_same.then_some(segment))
    }

    fn map(file: File, layout: Layout) -> io::Result<Self> {
        let length = usize::try_from(layout.end).map_err(io::Error::other)?;
        let map = MmapOptions::new().len(length).map_raw(&file)?;
        Ok(Self { file, map, layout })
    }

    /// Asks for huge pages if all chunks together take at most `limit` bytes: then whatever lies
    /// beside a chunk on its page is another one that is kept. Only some systems offer them for
    /// such memory.
    pub(super) fn prefer_huge_pages(&self, limit: u64) {
        if self.layout.end <= limit {
            // Without them, everything works as before.
            let _ = self.map.advise(Advice::HugePage);
        }
    }

    /// The file, for other processes.
    pub(super) fn file(&self) -> &File {
        &self.file
    }

    fn head(&self) -> &Head {
        // SAFETY: the map is longer than a head, begins on a page, and holds numbers that may have any value; all
        // processes touch them as atomics only.
        unsafe { &*self.map.as_ptr().cast::<Head>() }
    }

    fn state(&self, chunk: usize) -> &AtomicU32 {
        assert!(chunk < self.layout.chunks, "there is no chunk {chunk}");
        // SAFETY: the states lie behind the first page, one for each chunk, and all processes touch them as atomics only.
        unsafe { &*self.map.as_ptr().add(PAGE).cast::<AtomicU32>().add(chunk) }
    }

    /// The values of a chunk of an array, if a process has decoded it.
    pub(super) fn get(&self, array: usize, number: usize) -> Option<&[u8]> {
        let (chunk, bytes) = self.layout.chunk(array, number);
        if self.state(chunk).load(Ordering::Acquire) != READY {
            return None;
        }
        // SAFETY: the span lies in the map. The chunk is ready, so its writer is done, and nobody writes to it again. The
        // map lives as long as this.
        Some(unsafe { std::slice::from_raw_parts(self.map.as_ptr().add(bytes.start), bytes.len()) })
    }

    /// Stores a decoded chunk of an array, unless a process already did, or all processes together
    /// would then hold more than `limit` bytes. Returns how long it took to copy it, if this call
    /// stored it.
    pub(super) fn keep(
        &self,
        array: usize,
        number: usize,
        values: &[u8],
        limit: u64,
    ) -> Option<Duration> {
        let (chunk, bytes) = self.layout.chunk(array, number);
        debug_assert_eq!(values.len(), bytes.len());
        let (state, len) = (self.state(chunk), bytes.len() as u64);
        if values.len() != bytes.len() || state.load(Ordering::Relaxed) != EMPTY {
            return None;
        }
        let used = &self.head().used;
        let add = |used: u64| used.checked_add(len).filter(|used| *used <= limit);
        if used.fetch_update(Ordering::Relaxed, Ordering::Relaxed, add).is_err() {
            return None;
        }
        let begin = state.compare_exchange(EMPTY, WRITING, Ordering::Relaxed, Ordering::Relaxed);
        if begin.is_err() {
            // Another thread or process was first.
            used.fetch_sub(len, Ordering::Relaxed);
            return None;
        }
        let before = Instant::now();
        // SAFETY: the span lies in the map, and is as long as the values. Only the thread that moved the chunk from empty
        // to being written writes there, once, and nobody reads the chunk before it is ready.
        unsafe {
            let to = self.map.as_mut_ptr().add(bytes.start);
            std::ptr::copy_nonoverlapping(values.as_ptr(), to, bytes.len());
        }
        state.store(READY, Ordering::Release);
        Some(before.elapsed())
    }

    /// Bytes that all processes together hold.
    pub(super) fn used(&self) -> u64 {
        self.head().used.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ARRAYS: [ChunksOf; 2] =
        [ChunksOf { count: 3, bytes: 5000 }, ChunksOf { count: 2, bytes: 7 }];

    #[test]
    fn a_chunk_kept_by_one_process_is_read_by_another() {
        let first = Segment::create(5, &ARRAYS).unwrap();
        let other = Segment::join(first.file().try_clone().unwrap(), 5, &ARRAYS).unwrap().unwrap();
        assert!((0..3).all(|chunk| other.get(0, chunk).is_none()));
        assert!(first.keep(0, 2, &[7; 5000], u64::MAX).is_some());
        assert!(other.keep(1, 0, &[1; 7], u64::MAX).is_some());
        assert!(other.keep(0, 2, &[8; 5000], u64::MAX).is_none(), "kept already");
        assert_eq!(other.get(0, 2), Some(&[7; 5000][..]));
        assert_eq!(first.get(1, 0), Some(&[1; 7][..]));
        assert_eq!((first.get(1, 1), first.get(0, 1)), (None, None));
        assert_eq!((first.used(), other.used()), (5007, 5007));
        first.keep(0, 0, &[1; 5000], 10_006);
        assert_eq!((first.get(0, 0), first.used()), (None, 5007), "there is no room");
        first.keep(0, 0, &[1; 5000], 10_007);
        assert_eq!(other.used(), 10_007);
    }

    /// Whether the kernel was asked for huge pages: the flag `hg` of the mapping.
    fn wants_huge_pages(segment: &Segment) -> bool {
        let address = format!("{:x}-", segment.map.as_ptr() as usize);
        let maps = std::fs::read_to_string("/proc/self/smaps").unwrap();
        let mapping = maps.split_once(&format!("\n{address}")).unwrap().1;
        let flags = mapping.lines().find(|line| line.starts_with("VmFlags:")).unwrap();
        flags.split_whitespace().any(|flag| flag == "hg")
    }

    #[test]
    fn huge_pages_are_asked_for_if_everything_is_kept() {
        if !std::path::Path::new("/sys/kernel/mm/transparent_hugepage/shmem_enabled").exists() {
            println!("skipped: the kernel has no huge pages for shared memory");
            return;
        }
        let segment = Segment::create(5, &ARRAYS).unwrap();
        assert!(segment.keep(0, 2, &[7; 5000], u64::MAX).is_some());
        segment.prefer_huge_pages(segment.layout.end - 1);
        assert!(!wants_huge_pages(&segment));
        segment.prefer_huge_pages(segment.layout.end);
        assert!(wants_huge_pages(&segment));
        assert_eq!(segment.get(0, 2), Some(&[7; 5000][..]));
    }

    #[test]
    fn a_chunk_that_nobody_finished_is_nobody_s() {
        let first = Segment::create(5, &ARRAYS).unwrap();
        first.state(1).store(WRITING, Ordering::Relaxed);
        first.keep(0, 1, &[1; 5000], u64::MAX);
        assert_eq!((first.get(0, 1), first.used()), (None, 0));
    }

    #[test]
    fn other_files_are_not_joined() {
        let first = Segment::create(5, &ARRAYS).unwrap();
        let file = || first.file().try_clone().unwrap();
        assert!(Segment::join(file(), 6, &ARRAYS).unwrap().is_none());
        assert!(Segment::join(file(), 5, &ARRAYS[..1]).unwrap().is_none());
        assert!(first.file().set_len(1).is_err(), "its length stays");
        let plain = tempfile::tempfile().unwrap();
        plain.set_len(first.file().metadata().unwrap().len()).unwrap();
        assert!(Segment::join(plain, 5, &ARRAYS).unwrap().is_none());
    }

    #[test]
    fn threads_that_keep_the_same_chunks_agree() {
        let arrays = [ChunksOf { count: 200, bytes: 4097 }];
        let first = Segment::create(0, &arrays).unwrap();
        std::thread::scope(|scope| {
            for thread in 0..4u8 {
                let first = &first;
                scope.spawn(move || {
                    for chunk in (0..200).map(|chunk| (chunk * (2 * thread as usize + 1)) % 200) {
                        first.keep(0, chunk, &[thread; 4097], u64::MAX);
                        let values = first.get(0, chunk);
                        assert!(values.is_none_or(|values| values.iter().all(|v| *v == values[0])));
                    }
                });
            }
        });
        assert_eq!(first.used(), 200 * 4097);
        assert!((0..200).all(|chunk| first.get(0, chunk).is_some()));
    }
}
