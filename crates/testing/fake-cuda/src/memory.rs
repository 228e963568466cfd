//! The device's memory, and the last operations on it.
//!
//! The address of an allocation cannot be read or written, and is never reused. So a program that
//! accesses device memory crashes, and a late use is never mistaken for a use of other memory. The
//! contents are stored elsewhere.

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
        let alive =
            self.0.values().filter(|allocation| !allocation.freed && in_device(allocation.context));
        alive.map(|allocation| allocation.bytes).sum()
    }

    /// Number of allocations of a context that are not freed.
    pub fn alive(&self, context: usize) -> usize {
        let alive = |allocation: &&Allocation| allocation.context == context && !allocation.freed;
        self.0.values().filter(alive).count()
    }

    /// Frees all allocations of a context.
    pub fn free_all(&mut self, context: usize) {
        let allocations = self.0.values_mut().filter(|allocation| allocation.context == context);
        for allocation in allocations {
            allocation.freed = true;
            allocation.contents = None;
        }
    }

    /// The place of an address, if this many bytes from there on are in one allocation that is not
    /// freed.
    pub fn find(&self, address: CUdeviceptr, bytes: usize) -> Result<DeviceRange, (Kind, String)> {
        let outside = || {
            let what = format!("{bytes} bytes at {address:#x} are not of one allocation");
            (Kind::OutsideAllocation, what)
        };
        let (start, allocation) = self.0.range(..=address).next_back().ok_or_else(outside)?;
        let first = (address - start) as usize;
        if first >= allocation.bytes || bytes > allocation.bytes - first {
            return Err(outside());
        }
        if allocation.freed {
            return Err((Kind::UseAfterFree, format!("the memory at {address:#x} was freed")));
        }
        Ok(DeviceRange { allocation: *start, first, bytes })
    }

    /// The context of an allocation.
    pub fn context(&self, range: DeviceRange) -> usize {
        self.0[&range.allocation].context
    }

    /// The whole allocation.
    pub fn whole(&self, range: DeviceRange) -> DeviceRange {
        DeviceRange { first: 0, bytes: self.0[&range.allocation].bytes, ..range }
    }

    /// Whether memory was allocated at this address and is now freed.
    pub fn is_freed(&self, address: CUdeviceptr) -> bool {
        self.0.get(&address).is_some_and(|allocation| allocation.freed)
    }

    /// Frees an allocation: no more work may be queued for it.
    pub fn free(&mut self, range: DeviceRange) {
        self.own(range).freed = true;
    }

    /// Drops the contents of a freed allocation.
    pub fn empty(&mut self, range: DeviceRange) {
        self.own(range).contents = None;
    }

    /// The bytes; `None` if they are gone.
    pub fn bytes(&self, range: DeviceRange) -> Option<&[u8]> {
        self.0[&range.allocation].contents.as_ref().map(|bytes| &bytes[range.first..range.end()])
    }

    /// The bytes, for writing.
    pub fn bytes_mut(&mut self, range: DeviceRange) -> Option<&mut [u8]> {
        let contents = self.own(range).contents.as_mut();
        contents.map(|bytes| &mut bytes[range.first..range.end()])
    }

    /// Operations that use an allocation and that the host has not seen done.
    pub fn in_use(&mut self, range: DeviceRange, clock: &Clock) -> Vec<String> {
        let allocation = self.own(range);
        allocation.accesses.retain(|access| !clock.covers(access.stamp));
        allocation.accesses.iter().map(|access| access.what.clone()).collect()
    }

    /// Records that the operation `by` reads or writes memory. Returns the earlier operations with
    /// which it conflicts: at least one of the two writes, and nothing orders them.
    pub fn access(
        &mut self,
        range: DeviceRange,
        writes: bool,
        by: &Point,
        clock: &Clock,
        what: String,
    ) -> Vec<String> {
        let (first, end) = (range.first, range.end());
        let allocation = self.own(range);
        allocation.accesses.retain(|access| !clock.covers(access.stamp));
        let conflict = |access: &&Access| {
            let overlaps = access.first < end && first < access.end;
            overlaps && (writes || access.writes) && !by.clock.covers(access.stamp)
        };
        let conflicts =
            allocation.accesses.iter().filter(conflict).map(|access| access.what.clone());
        let conflicts = conflicts.collect();
        // Operations ordered after this one are also ordered after those before it.
        allocation.accesses.retain(|access| {
            let within = first <= access.first && access.end <= end;
            !(within && (writes || !access.writes) && by.clock.covers(access.stamp))
        });
        allocation.accesses.push(Access { first, end, writes, stamp: by.stamp, what });
        conflicts
    }

    fn own(&mut self, range: DeviceRange) -> &mut Allocation {
        self.0.get_mut(&range.allocation).expect("places are of allocations")
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
