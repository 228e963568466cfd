//! The kernels that can be launched: their source is compiled as C++, in which a loop in random
//! order takes the place of a device's threads. They are `decode_frames` of `decode.cu` and
//! `gather_windows` of `gather.cu`.

use std::ffi::c_uint;

use crate::memory::DeviceRange;

/// A kernel that can be launched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kernel {
    Decode,
    Gather,
}

impl Kernel {
    pub const ALL: [Self; 2] = [Self::Decode, Self::Gather];

    /// The image of the module that holds the kernel, as programs load it.
    pub const fn image(self) -> &'static str {
        match self {
            Self::Decode => include_str!("../../../read/src/device/decode/decode.ptx"),
            Self::Gather => include_str!("../../../read/src/device/decode/gather.ptx"),
        }
    }

    /// The kernel's name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Decode => "decode_frames",
            Self::Gather => "gather_windows",
        }
    }
}

/// Threads of a block.
pub const THREADS: c_uint = 64;

/// How many threads a launch asks for.
#[derive(Clone, Copy, Debug)]
pub struct Shape {
    pub grid: [c_uint; 3],
    pub block: [c_uint; 3],
    pub shared: c_uint,
}

/// `Decode` of `decode.cu`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Decode {
    pub chunks: u32,
    pub slots: u32,
    pub scratch: u64,
    floats: Floats,
}

/// `Floats` of `decode.cu`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
struct Floats {
    factor: f64,
    offset: f64,
    missing: f64,
    number: u32,
    bytes: u32,
}

/// `Chunk` of `decode.cu`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct Chunk {
    pub frame: u64,
    pub into: u64,
    pub pitch: u64,
    pub frame_bytes: u32,
    bytes: u32,
    row_bytes: u32,
    first_row: u32,
    pub rows: u32,
    remaining: u32,
    pub width: u32,
    pub pixel: u32,
    pub kept: u32,
    pub pixel_pitch: u32,
}

/// `Gather` of `gather.cu`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Gather {
    pub windows: u32,
    pub slots: u32,
}

/// `Window` of `gather.cu`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct Window {
    from: u64,
    into: u64,
    fill: u64,
    row: i32,
    column: i32,
    rows: u32,
    columns: u32,
    cube_rows: u32,
    cube_columns: u32,
    pixel: u32,
    element: u32,
    pub bands: u32,
    pad: u32,
}

/// A launch.
pub enum Launch {
    Decode(DecodeLaunch),
    Gather(GatherLaunch),
}

/// A launch of `gather_windows`, and the memory from each of its addresses to the end of the
/// allocation.
pub struct GatherLaunch {
    pub gather: Gather,
    pub windows: DeviceRange,
    pub bands: DeviceRange,
    pub cubes: DeviceRange,
    pub batch: DeviceRange,
}

/// A launch of `decode_frames`, and the memory from each of its addresses to the end of the
/// allocation.
pub struct DecodeLaunch {
    pub decode: Decode,
    pub chunks: DeviceRange,
    pub compressed: DeviceRange,
    pub batch: DeviceRange,
    pub scratch: DeviceRange,
    pub statuses: DeviceRange,
}

/// Addresses of the memory of a launch.
pub struct Memory {
    pub compressed: *const u8,
    pub batch: *mut u8,
    pub scratch: *mut u8,
}

/// A row of a kernel's table.
///
/// # Safety
/// Every value of its bytes must be valid.
pub unsafe trait Row: Copy {
    /// The rows of a table.
    fn all(bytes: &[u8]) -> Vec<Self> {
        let row = |bytes: &[u8]| {
            // SAFETY: there are as many bytes, and every value of them is a row.
            unsafe { bytes.as_ptr().cast::<Self>().read_unaligned() }
        };
        bytes.chunks_exact(size_of::<Self>()).map(row).collect()
    }
}

// SAFETY: it consists of integers.
unsafe impl Row for Chunk {}
// SAFETY: as above.
unsafe impl Row for Window {}
// SAFETY: as above.
unsafe impl Row for u32 {}

impl Window {
    /// The end of the cube, and that of the window in the batch, if the kernel stays within them;
    /// `None` otherwise.
    pub fn ends(&self, bands: &[u32]) -> Option<[u64; 2]> {
        let pixels = |rows: u32, columns: u32| u64::from(rows) * u64::from(columns);
        let elements = self.pixel.checked_div(self.element).filter(|_| self.element <= 8)?;
        let chosen = bands.get(..self.bands as usize)?;
        if elements == 0 || chosen.iter().any(|band| *band >= elements) {
            return None;
        }
        if pixels(self.cube_rows, self.cube_columns) == 0 {
            return None;
        }
        let kept = if self.bands == 0 { self.pixel } else { self.bands * self.element };
        let cube = pixels(self.cube_rows, self.cube_columns).checked_mul(self.pixel.into())?;
        let window = pixels(self.rows, self.columns).checked_mul(kept.into())?;
        Some([self.from.checked_add(cube)?, self.into.checked_add(window)?])
    }
}

impl Chunk {
    /// The first byte of the batch that is not written to any more; `None` if there is no such
    /// number.
    pub fn end(&self) -> Option<u64> {
        let rows = u64::from(self.rows).saturating_sub(1).checked_mul(self.pitch)?;
        let last = self.width.checked_div(self.pixel)?.saturating_sub(1);
        let pixels = u64::from(last).checked_mul(self.pixel_pitch.into())?;
        self.into.checked_add(rows)?.checked_add(pixels)?.checked_add(self.kept.into())
    }
}

/// Runs `gather_windows`.
///
/// # Safety
/// The memory must be as large as the windows say, and there must be as many bands.
#[cfg(kernels)]
pub unsafe fn run_gather(
    gather: &Gather,
    windows: &[Window],
    bands: &[u32],
    (cubes, batch): (*const u8, *mut u8),
    order: u64,
) {
    unsafe extern "C" {
        fn gather_order(seed: u64);
        fn gather_windows(
            gather: *const Gather,
            windows: *const Window,
            bands: *const u32,
            cubes: *const u8,
            batch: *mut u8,
        );
    }
    // SAFETY: the caller is responsible for the memory.
    unsafe {
        gather_order(order);
        gather_windows(gather, windows.as_ptr(), bands.as_ptr(), cubes, batch);
    }
}

/// There is no kernel, so no module was loaded, and nothing could be launched.
///
/// # Safety
/// As above.
#[cfg(not(kernels))]
pub unsafe fn run_gather(_: &Gather, _: &[Window], _: &[u32], _: (*const u8, *mut u8), _: u64) {
    unreachable!("no module was loaded");
}

/// Runs `decode_frames`.
///
/// # Safety
/// The memory must be as large as the chunks and `decode` say.
#[cfg(kernels)]
pub unsafe fn run_decode(
    decode: &Decode,
    chunks: &[Chunk],
    memory: &Memory,
    statuses: &mut [u32],
    order: u64,
) {
    unsafe extern "C" {
        fn decode_order(seed: u64);
        fn decode_frames(
            decode: *const Decode,
            chunks: *const Chunk,
            compressed: *const u8,
            batch: *mut u8,
            scratch: *mut u8,
            statuses: *mut u32,
        );
    }
    let Memory { compressed, batch, scratch } = *memory;
    let (chunks, statuses) = (chunks.as_ptr(), statuses.as_mut_ptr());
    // SAFETY: the caller is responsible for the memory.
    unsafe {
        decode_order(order);
        decode_frames(decode, chunks, compressed, batch, scratch, statuses);
    }
}

/// There is no kernel, so no module was loaded, and nothing could be launched.
///
/// # Safety
/// As above.
#[cfg(not(kernels))]
pub unsafe fn run_decode(_: &Decode, _: &[Chunk], _: &Memory, _: &mut [u32], _: u64) {
    unreachable!("no module was loaded");
}
