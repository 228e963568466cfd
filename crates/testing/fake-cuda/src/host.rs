//! Host memory: registrations, and the copies that use it until the host has seen them done.
//!
//! Only here does the stand-in touch memory of the program, as a device does.

use std::ptr;

use crate::order::{Clock, Stamp};

/// Registered memory, and the copies that use host memory.
#[derive(Default)]
pub struct HostMemory {
    registered: Vec<Registration>,
    uses: Vec<Use>,
}

/// A range of host memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stretch {
    pub start: usize,
    pub bytes: usize,
}

pub struct Registration {
    pub memory: Stretch,
    pub context: usize,
    pub flags: u32,
    /// Whether it is registered for all contexts.
    pub portable: bool,
    /// The bytes of memory that is registered as read-only. The device pins its pages, so a file
    /// that becomes shorter changes nothing there.
    pub pinned: Option<Vec<u8>>,
}

/// A copy that is queued, or not yet seen done by the host.
struct Use {
    memory: Stretch,
    stamp: Stamp,
    /// Hash of the memory that it reads; `None` if it writes.
    hash: Option<u64>,
}

/// How much of a range is registered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Registered {
    All,
    Part,
    None,
}

impl Stretch {
    fn end(&self) -> usize {
        self.start.saturating_add(self.bytes)
    }

    fn overlaps(&self, other: &Self) -> bool {
        self.start < other.end() && other.start < self.end()
    }

    fn holds(&self, other: &Self) -> bool {
        self.start <= other.start && other.end() <= self.end()
    }

    /// Whether all of its pages are mapped.
    pub fn is_mapped(&self) -> bool {
        // SAFETY: only asks for a number.
        let page = unsafe { libc::sysconf(libc::_SC_PAGESIZE) } as usize;
        let first = self.start / page * page;
        let bytes = self.end() - first;
        let mut pages = vec![0; bytes.div_ceil(page)];
        // SAFETY: there is one byte for each page; the pages themselves are not touched, and need not exist.
        unsafe { libc::mincore(first as *mut _, bytes, pages.as_mut_ptr()) == 0 }
    }

    /// The access rights of the maps that it lies in, as of `/proc/self/maps`: `r--s`. `None` if a
    /// part is not mapped.
    pub fn rights(&self) -> Option<Vec<String>> {
        let maps = std::fs::read_to_string("/proc/self/maps").ok()?;
        let (mut at, mut rights) = (self.start, Vec::new());
        for line in maps.lines() {
            let (range, fields) = line.split_once(' ')?;
            let (start, end) = range.split_once('-')?;
            let number = |text| usize::from_str_radix(text, 16).ok();
            if (number(start)?..number(end)?).contains(&at) {
                rights.push(fields.get(..4)?.to_owned());
                at = number(end)?;
            }
            if at >= self.end() {
                return Some(rights);
            }
        }
        None
    }

    /// Whether the system can read all of its pages, without reading them here: it does not raise a
    /// signal.
    pub fn is_readable(&self) -> bool {
        // SAFETY: only asks for a number.
        let page = unsafe { libc::sysconf(libc::_SC_PAGESIZE) } as usize;
        let first = self.start / page * page;
        let bytes = (self.end() - first).next_multiple_of(page);
        // SAFETY: populates pages that are mapped, or fails; their contents stay as they are.
        unsafe { libc::madvise(first as *mut _, bytes, libc::MADV_POPULATE_READ) == 0 }
    }

    /// Copies the memory to `to`.
    pub fn read(&self, to: &mut [u8]) {
        assert_eq!(to.len(), self.bytes, "as many bytes");
        // SAFETY: the program has queued a copy that reads this memory in its full length, and must leave it alone
        // until it has seen the copy done. That it is mapped was checked where the program may have unmapped it. If the
        // program writes meanwhile, the bytes are wrong, as they would be on a device.
        unsafe { ptr::copy_nonoverlapping(self.start as *const u8, to.as_mut_ptr(), self.bytes) };
    }

    /// Copies `from` to the memory.
    pub fn write(&self, from: &[u8]) {
        assert_eq!(from.len(), self.bytes, "as many bytes");
        // SAFETY: as above, for a copy that writes.
        unsafe { ptr::copy_nonoverlapping(from.as_ptr(), self.start as *mut u8, self.bytes) };
    }

    /// The memory's bytes.
    pub fn bytes(&self) -> Vec<u8> {
        let mut bytes = vec![0; self.bytes];
        self.read(&mut bytes);
        bytes
    }
}

impl HostMemory {
    /// The registration that contains an address.
    pub fn holding(&self, address: usize) -> Option<&Registration> {
        let byte = Stretch { start: address, bytes: 1 };
        self.registered.iter().find(|registration| registration.memory.holds(&byte))
    }

    /// How much of a range is registered for a context.
    pub fn registered(&self, memory: Stretch, context: usize) -> Registered {
        let mut candidates = self
            .registered
            .iter()
            .filter(|registration| registration.portable || registration.context == context)
            .peekable();
        if candidates.clone().any(|registration| registration.memory.holds(&memory)) {
            Registered::All
        } else if candidates.any(|registration| registration.memory.overlaps(&memory)) {
            Registered::Part
        } else {
            Registered::None
        }
    }

    /// Whether a part of this memory is registered.
    pub fn is_taken(&self, memory: Stretch) -> bool {
        self.registered.iter().any(|existing| existing.memory.overlaps(&memory))
    }

    /// Registers memory of which no part is registered.
    pub fn register(&mut self, registration: Registration) {
        self.registered.push(registration);
    }

    /// The bytes that a device reads there.
    pub fn bytes(&self, memory: Stretch) -> Vec<u8> {
        let pinned = self.registered.iter().find_map(|registration| {
            let first = memory.start.checked_sub(registration.memory.start)?;
            registration.pinned.as_ref()?.get(first..first + memory.bytes)
        });
        pinned.map_or_else(|| memory.bytes(), <[u8]>::to_vec)
    }

    /// Whether a device may only read this memory.
    pub fn is_read_only(&self, memory: Stretch) -> bool {
        self.registered.iter().any(|registration| {
            registration.pinned.is_some() && registration.memory.overlaps(&memory)
        })
    }

    /// Removes the registration that starts at this address.
    pub fn unregister(&mut self, start: usize) -> Option<Stretch> {
        let index = self.registered.iter().position(|existing| existing.memory.start == start)?;
        Some(self.registered.swap_remove(index).memory)
    }

    /// Removes all registrations of a context.
    pub fn unregister_all(&mut self, context: usize) {
        let gone = |registration: &mut Registration| registration.context == context;
        let gone: Vec<Registration> = self.registered.extract_if(.., gone).collect();
        for registration in gone {
            self.forget(registration.memory);
        }
    }

    /// Number of registrations of a context.
    pub fn alive(&self, context: usize) -> usize {
        self.registered.iter().filter(|registration| registration.context == context).count()
    }

    /// Records that a copy reads or writes memory.
    pub fn note_use(&mut self, memory: Stretch, stamp: Stamp, reads: bool) {
        let hash = reads.then(|| hash(&self.bytes(memory)));
        self.uses.push(Use { memory, stamp, hash });
    }

    /// Forgets the copies that use this memory; they will not be done. Returns their number.
    pub fn forget(&mut self, memory: Stretch) -> usize {
        let before = self.uses.len();
        self.uses.retain(|access| !access.memory.overlaps(&memory));
        before - self.uses.len()
    }

    /// The memory that a copy uses, and the hash of the bytes it should read. `None` if the copy
    /// was forgotten.
    pub fn used_by(&self, stamp: Stamp) -> Option<(Stretch, Option<u64>)> {
        let access = self.uses.iter().find(|access| access.stamp == stamp)?;
        Some((access.memory, access.hash))
    }

    /// Removes the copies that the host has seen done. Returns the memory of those whose memory was
    /// written since they were queued.
    pub fn settle(&mut self, clock: &Clock) -> Vec<Stretch> {
        let done: Vec<Use> =
            self.uses.extract_if(.., |access| clock.covers(access.stamp)).collect();
        let changed = |access: &Use| {
            let now = || access.memory.is_mapped().then(|| hash(&self.bytes(access.memory)));
            access.hash.is_some() && now() != access.hash
        };
        done.iter().filter(|access| changed(access)).map(|access| access.memory).collect()
    }
}

/// A hash (FNV over words).
pub fn hash(bytes: &[u8]) -> u64 {
    let mut hash = 0xCBF2_9CE4_8422_2325_u64 ^ bytes.len() as u64;
    for word in bytes.chunks(8) {
        let mut whole = [0; 8];
        whole[..word.len()].copy_from_slice(word);
        hash =
            (hash ^ u64::from_le_bytes(whole)).wrapping_mul(0x0000_0100_0000_01B3).rotate_left(23);
    }
    hash
}
