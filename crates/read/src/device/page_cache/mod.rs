//! Stored chunks that a device reads straight from the system's page cache.
//!
//! A device can read the memory map of a file without the host's help if that part of it is
//! registered with the device's driver. Registering pins the pages, and holds up other work of the
//! device. So it is done in pieces, by a thread of its own, when the planning thread knows which
//! batches come next; and the number of registered bytes is bounded.
//!
//! ```text
//! planning thread    leases the pieces of a batch; if there is no room for one, its chunks are gathered
//! this thread        unregisters pieces that make room, reads cold pages ahead, registers
//! decoding threads   compare checksums that are due, wait for the pieces; if one was refused, gather its chunks
//! transfer thread    queues copies, each within one piece; the batch returns the pieces when it is dropped
//! ```
//!
//! The following always holds:
//!
//! 1. A registered piece stays mapped: it holds its file's map.
//! 2. A piece that a batch leases stays registered until the batch is dropped, which is after its
//!    copies were seen done.
//! 3. Registered bytes, and those that are about to be, are never more than the limit.
//! 4. When the loader's transfer thread has ended, everything is unregistered.
//!
//! A file that becomes shorter while a piece of it is registered keeps its pages there, so a device
//! still reads the old bytes. Pages that cannot be read are never registered: the driver refuses
//! them, and the host then reports the error when it gathers the chunk.
//!
//! | file | part |
//! |---|---|
//! | `pieces.rs` | pieces, their leases, and which of them are unregistered. Calls no device |
//! | `registrar.rs` | the thread that registers them; the part that the loader sees |

mod pieces;
mod registrar;

use serde::{Deserialize, Serialize};

pub(crate) use pieces::{Leased, Leases};
pub(crate) use registrar::{Demand, MapRegistrar, PageCache, Registering};

/// Bounds of the parts of files that are registered with a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PageCacheBounds {
    /// Registered bytes at most. 0 stands for a quarter of the memory that is available when the
    /// loader begins, divided by the number of ranks on this machine.
    pub bytes: u64,
    /// Bytes of a piece, a multiple of the page size. One that is not is rounded up.
    pub piece_bytes: u64,
}

impl Default for PageCacheBounds {
    fn default() -> Self {
        Self { bytes: 0, piece_bytes: 32 << 20 }
    }
}
