//! Where the values of a cube are in an array of bytes.

use crate::AxisOrder;

/// How a cube is laid out in its bytes.
#[derive(Clone, Copy, Debug)]
pub struct FlatLayout {
    /// Bytes before the first value.
    pub offset: u64,
    /// The axes from slowest to fastest.
    pub order: AxisOrder,
    /// Whether values are big-endian.
    pub big_endian: bool,
    /// Whether the last row of the image comes first (Tivita).
    pub rows_reversed: bool,
}

/// The axis of samples in an array that holds several cubes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SampleAxis {
    /// How many of the cube's axes are slower, 0 to 3.
    pub before: usize,
    /// Number of samples.
    pub count: usize,
    /// The sample that is the cube.
    pub index: usize,
}

impl SampleAxis {
    /// The same axis if the first index of the array is the fastest.
    pub fn reversed(self) -> Self {
        Self { before: 3 - self.before, ..self }
    }
}
