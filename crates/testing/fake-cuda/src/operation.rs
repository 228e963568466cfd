//! Operations that are queued on streams.

use crate::kernels::Launch;
use crate::memory::DeviceRange;
use crate::order::Stamp;

/// Queued work.
pub struct Operation {
    pub stamp: Stamp,
    pub work: Work,
    pub after: Vec<Stamp>,
}

/// The action of an operation.
pub enum Work {
    /// Marks a point, or waits for one.
    Nothing,
    /// Copies registered host memory, which is recorded as in use.
    ToDevice { to: DeviceRange },
    /// Copies bytes that were taken from host memory when the copy was queued.
    Staged { from: Vec<u8>, to: DeviceRange },
    /// Copies to host memory, which is recorded as in use.
    ToHost { from: DeviceRange },
    /// A kernel.
    Launch(Launch),
    /// Frees memory.
    Free { range: DeviceRange },
    /// Copies within the device.
    Within { from: DeviceRange, to: DeviceRange },
    /// A consumer in a test: reads memory and compares it.
    Compare { range: DeviceRange, want: Vec<u8>, what: String },
    /// A consumer in a test: writes memory.
    Fill { range: DeviceRange, value: u8 },
}
