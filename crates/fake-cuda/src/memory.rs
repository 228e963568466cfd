//! The device's memory, and which operations used it last.
//!
//! An allocation's address is one that nobody can read or write, and that is never given out again; so a program that looks
//! at device memory crashes, and a late use is never taken for one of other memory. The contents lie elsewhere.

use std::collections::BTreeMap;
use std::ptr;

use crate::abi::CUdeviceptr;
use crate::faults::Kind;
use crate::order::{Clock, Point, Stamp};

/// What fresh memory holds.
const RUBBISH: u8 = 0xAB;

/// All allocations there were, by their address.
#[derive(Default)]
pub struct DeviceMemory(BTreeMap<CUdeviceptr, Allocation>);

struct Allocation {
    context: usize,
    bytes: usize,
    /// For whatever is queued from now on.
    freed: bool,
    /// None once all that was queued before is done.
    contents: Option<Vec<u8>>,
    /// Operations that later ones may have to be ordered behind.
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
pub struct Place {
    pub allocation: CUdeviceptr,
    pub first: usize,
    pub bytes: usize,
}

impl Place {
    fn end(&self) -> usize {
        self.first + self.bytes
    }
}

impl DeviceMemory {
    /// Allocates memory of a context.
    pub fn allocate(&mut self, context: usize, bytes: usize) -> CUdeviceptr {
        let address = reserve(bytes);
        let contents = Some(vec![RUBBISH; bytes]);
        let accesses = Vec::new();
        self.0.insert(address, Allocation { context, bytes, freed: false, contents, accesses });
        address
    }

    /// Bytes allocated in contexts that `in_device` knows.
    pub fn used(&self, in_device: impl Fn(usize) -> bool) -> usize {
        let alive = self.0.values().filter(|own| !own.freed && in_device(own.context));
        alive.map(|own| own.bytes).sum()
    }

    /// How many allocations of a context are not freed.
    pub fn alive(&self, context: usize) -> usize {
        let alive = |own: &&Allocation| own.context == context && !own.freed;
        self.0.values().filter(alive).count()
    }

    /// Frees all of a context.
    pub fn free_all(&mut self, context: usize) {
        let own = self.0.values_mut().filter(|own| own.context == context);
        for own in own {
            own.freed = true;
            own.contents = None;
        }
    }

    /// Where an address lies, if so many bytes from there on are of one allocation that is not freed.
    pub fn find(&self, address: CUdeviceptr, bytes: usize) -> Result<Place, (Kind, String)> {
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
        Ok(Place { allocation: *start, first, bytes })
    }

    /// The context of an allocation.
    pub fn context(&self, place: Place) -> usize {
        self.0[&place.allocation].context
    }

    /// All of an allocation.
    pub fn whole(&self, place: Place) -> Place {
        Place { first: 0, bytes: self.0[&place.allocation].bytes, ..place }
    }

    /// Whether memory was once allocated at this address, and is freed.
    pub fn is_freed(&self, address: CUdeviceptr) -> bool {
        self.0.get(&address).is_some_and(|own| own.freed)
    }

    /// Frees an allocation: nothing more may be queued for it.
    pub fn free(&mut self, place: Place) {
        self.own(place).freed = true;
    }

    /// Drops the contents of an allocation that was freed.
    pub fn empty(&mut self, place: Place) {
        self.own(place).contents = None;
    }

    /// The bytes; none if they are gone.
    pub fn bytes(&self, place: Place) -> Option<&[u8]> {
        self.0[&place.allocation].contents.as_ref().map(|own| &own[place.first..place.end()])
    }

    /// The bytes, to be written.
    pub fn bytes_mut(&mut self, place: Place) -> Option<&mut [u8]> {
        let contents = self.own(place).contents.as_mut();
        contents.map(|own| &mut own[place.first..place.end()])
    }

    /// Operations that use an allocation, and that the host has not seen done.
    pub fn in_use(&mut self, place: Place, seen: &Clock) -> Vec<String> {
        let own = self.own(place);
        own.accesses.retain(|access| !seen.covers(access.stamp));
        own.accesses.iter().map(|access| access.what.clone()).collect()
    }

    /// Notes that the operation `by` reads or writes memory. Gives the earlier ones that it is in conflict with: one of
    /// the two writes, and nothing orders it behind them.
    pub fn access(
        &mut self,
        place: Place,
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
        // Whatever is ordered behind this one is ordered behind those before it, too.
        own.accesses.retain(|access| {
            let within = first <= access.first && access.end <= end;
            !(within && (writes || !access.writes) && by.clock.covers(access.stamp))
        });
        own.accesses.push(Access { first, end, writes, stamp: by.stamp, what });
        conflicts
    }

    fn own(&mut self, place: Place) -> &mut Allocation {
        self.0.get_mut(&place.allocation).expect("places are of allocations")
    }
}

/// An address for so many bytes that nobody can read or write, and some beyond them.
fn reserve(bytes: usize) -> CUdeviceptr {
    const PAGE: usize = 4096;
    let bytes = bytes.next_multiple_of(PAGE) + PAGE;
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
    // SAFETY: a mapping of its own, at an address of the system's choice, which nobody can touch.
    let address = unsafe { libc::mmap(ptr::null_mut(), bytes, libc::PROT_NONE, flags, -1, 0) };
    assert!(address != libc::MAP_FAILED, "no address space: {}", std::io::Error::last_os_error());
    address as CUdeviceptr
}
