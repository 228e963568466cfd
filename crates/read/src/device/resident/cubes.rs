//! Which cubes a region has, and where.

use std::collections::HashMap;
use std::sync::Arc;

/// The cubes of a region.
pub(super) type Cubes = HashMap<CubeKey, Cube>;

/// The cube of a sample in an array.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct CubeKey {
    pub stack: u32,
    pub array: u32,
    /// Its place in the stack.
    pub index: u32,
}

/// Where a cube is in its region.
#[derive(Clone, Debug)]
pub(crate) struct Cube {
    /// First byte of the decoded cube.
    pub start: u64,
    /// Number of its first chunk in the region.
    pub first: usize,
    /// If frames are kept: the place of each.
    pub frames: Arc<[(u64, u32)]>,
}
