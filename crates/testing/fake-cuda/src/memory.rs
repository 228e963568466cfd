//! The device's memory, and the last operations on it.
//!
//! The address of an allocation cannot be read or written, and is never reused. So a program that accesses device
//! memory crashes, and a late use is never mistaken for a use of other memory. The contents are stored elsewhere.

use std::collections::BTreeMap;
use std::ptr;

use crate::abi::CUdeviceptr;
use crate::faults::Kind;
use crate::order::{Clock, Point, Stamp};

/// Contents of new memory.
const RUBBISH: u8 = 0xAB;

/// All allocations ever made, by address.
#[derive(Default)]
pub struct DeviceMemory(BTreeMap<CUdeviceptr, Allocation>);

struct Allocation {
    context: usize,
    bytes: usize,
    /// Whether it is freed for all work queued from now on.
    freed: bool,
    /// `None` once all work queued before the free is done.
    contents: Option<Vec<u8>>,
    /// Operations after which later ones may have to be ordered.
    accesses: Vec<Access>,
}

struct Access {
    first: usize,
    end: usize,
    writes: bool,
    stamp: Stamp,
    what: String,
}

/// A part of an allocation.
#[derive(Clone, Copy, Debug)]
pub struct DeviceRange {
    pub allocation: CUdeviceptr,
    pub first: usize,
    pub bytes: usize,
}

impl DeviceRange {
    fn end(&self) -> usize {
        self.first + self.bytes
    }
}

impl DeviceMemory {
    /// Allocates memory in a context.
    pub fn allocate(&mut self, context: usize, bytes: usize) -> CUdeviceptr {
        let address = reserve(bytes);
        let contents = Some(vec![RUBBISH; bytes]);
        let accesses = Vec::new();
        self.0.insert(address, Allocation { context, bytes, freed: false, contents, accesses });
        address
    }

    /// Bytes allocated in the contexts for which `in_device` is true.
    pub fn used(&self, in_device: impl Fn(usize) -> bool) -> usize {
        let alive = self.0.values().filter(|own| !own.freed && in_device(own.context));
        alive.map(|own| own.bytes).sum()
    }

    /// Number of allocations of a context that are not freed.
    pub fn alive(&self, context: usize) -> usize {
        let alive = |own: &&Allocation| own.context == context && !own.freed;
        self.0.values().filter(alive).count()
    }

    /// Frees all allocations of a context.
    pub fn free_all(&mut self, context: usize) {
        let own = self.0.values_mut().filter(|own| own.context == context);
        for own in own {
            own.freed = true;
            own.contents = None;
        }
    }

    /// The place of an address, if this many bytes from there on are in one allocation that is not freed.
    pub fn find(&self, address: CUdeviceptr, bytes: usize) -> Result<DeviceRange, (Kind, String)> {
        let outside = || {
            let what = format!("{bytes} bytes at {address:#x} are not of one allocation");
            (Kind::OutsideAllocation, what)
        };
        let (start, own) = self.0.range(..=address).next_back().ok_or_else(outside)?;
        let first = (address - start) as usize;
        if first >= own.bytes || bytes > own.bytes - first {
            return Err(outside());
        }
        if own.freed {
            return Err((Kind::UseAfterFree, format!("the memory at {address:#x} was freed")));
        }
        Ok(DeviceRange { allocation: *start, first, bytes })
    }

    /// The context of an allocation.
    pub fn context(&self, place: DeviceRange) -> usize {
        self.0[&place.allocation].context
    }

    /// The whole allocation.
    pub fn whole(&self, place: DeviceRange) -> DeviceRange {
        DeviceRange { first: 0, bytes: self.0[&place.allocation].bytes, ..place }
    }

    /// Whether memory was allocated at this address and is now freed.
    pub fn is_freed(&self, address: CUdeviceptr) -> bool {
        self.0.get(&address).is_some_and(|own| own.freed)
    }

    /// Frees an allocation: no more work may be queued for it.
    pub fn free(&mut self, place: DeviceRange) {
        self.own(place).freed = true;
    }

    /// Drops the contents of a freed allocation.
    pub fn empty(&mut self, place: DeviceRange) {
        self.own(place).contents = None;
    }

    /// The bytes; `None` if they are gone.
    pub fn bytes(&self, place: DeviceRange) -> Option<&[u8]> {
        self.0[&place.allocation].contents.as_ref().map(|own| &own[place.first..place.end()])
    }

    /// The bytes, for writing.
    pub fn bytes_mut(&mut self, place: DeviceRange) -> Option<&mut [u8]> {
        let contents = self.own(place).contents.as_mut();
        contents.map(|own| &mut own[place.first..place.end()])
    }

    /// Operations that use an allocation and that the host has not seen done.
    pub fn in_use(&mut self, place: DeviceRange, seen: &Clock) -> Vec<String> {
        let own = self.own(place);
        own.accesses.retain(|access| !seen.covers(access.stamp));
        own.accesses.iter().map(|access| access.what.clone()).collect()
    }

    /// Records that the operation `by` reads or writes memory. Returns the earlier operations with which it conflicts:
    /// at least one of the two writes, and nothing orders them.
    pub fn access(
        &mut self,
        place: DeviceRange,
        writes: bool,
        by: &Point,
        seen: &Clock,
        what: String,
    ) -> Vec<String> {
        let (first, end) = (place.first, place.end());
        let own = self.own(place);
        own.accesses.retain(|access| !seen.covers(access.stamp));
        let conflict = |access: &&Access| {
            let overlaps = access.first < end && first < access.end;
            overlaps && (writes || access.writes) && !by.clock.covers(access.stamp)
        };
        let conflicts = own.accesses.iter().filter(conflict).map(|access| access.what.clone());
        let conflicts = conflicts.collect();
        // Operations ordered after this one are also ordered after those before it.
        own.accesses.retain(|access| {
            let within = first <= access.first && access.end <= end;
            !(within && (writes || !access.writes) && by.clock.covers(access.stamp))
        });
        own.accesses.push(Access { first, end, writes, stamp: by.stamp, what });
        conflicts
    }

    fn own(&mut self, place: DeviceRange) -> &mut Allocation {
        self.0.get_mut(&place.allocation).expect("places are of allocations")
    }
}

/// An address range of this size and a bit more, which cannot be read or written.
fn reserve(bytes: usize) -> CUdeviceptr {
    const PAGE: usize = 4096;
    let bytes = bytes.next_multiple_of(PAGE) + PAGE;
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
    // SAFETY: a new mapping, at an address chosen by the system, which cannot be accessed.
    let address = unsafe { libc::mmap(ptr::null_mut(), bytes, libc::PROT_NONE, flags, -1, 0) };
    assert!(address != libc::MAP_FAILED, "no address space: {}", std::io::Error::last_os_error());
    address as CUdeviceptr
}
