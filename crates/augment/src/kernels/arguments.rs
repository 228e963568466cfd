//! What kernels are given, as `kernels.cu` has it in memory.

/// Pixels of a block of a [`Warp`].
pub const PIXELS: usize = 64;
/// Threads of a block.
pub const THREADS: usize = 256;
/// Most samples of a [`Warp`]: arguments may have 4 KiB.
pub const SAMPLES: usize = 48;
/// Bytes of the widest vector.
pub const WIDEST: usize = 16;

/// Where the pixels of one sample come from.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub struct Sample {
    /// A map of the result's pixels to the frame's, row by row.
    pub map: [f32; 9],
    /// Least and greatest column, least and greatest row that padding by the outermost pixels stays in.
    pub bounds: [f32; 4],
    /// Its place in the batch.
    pub place: i32,
    /// The place of its displacements among all; -1 for none.
    pub field: i32,
}

/// Moves pixels.
#[derive(Clone, Copy, Debug)]
#[repr(C, align(16))]
pub struct Warp {
    /// What lies outside the frame, as the bytes of a vector.
    pub fill_vector: [u8; WIDEST],
    /// The same as a number.
    pub fill: f32,
    /// Rows of the frame.
    pub rows: i32,
    /// Columns of the frame.
    pub columns: i32,
    /// Rows of the result.
    pub to_rows: i32,
    /// Columns of the result.
    pub to_columns: i32,
    /// Vectors of a pixel.
    pub vectors: i32,
    /// One of [`Warp::ZEROS`], [`Warp::BORDER`], [`Warp::REFLECTION`].
    pub padding: i32,
    /// Whether mirrors stand at the outermost pixels' centres, not their edges.
    pub align_corners: i32,
    /// Whether all maps are affine.
    pub affine: i32,
    /// The samples, as many as the grid's second axis has.
    pub samples: [Sample; SAMPLES],
}

impl Warp {
    /// What is outside is `fill`.
    pub const ZEROS: i32 = 0;
    /// What is outside is the outermost pixel.
    pub const BORDER: i32 = 1;
    /// The frame is mirrored.
    pub const REFLECTION: i32 = 2;
}

/// Products and sums by band.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Values {
    /// Vectors of a pixel.
    pub vectors: i32,
    /// Vectors of a sample.
    pub all: i64,
}

/// Weighted sums of neighbours along an axis.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Blur {
    /// Rows of the frame.
    pub rows: i32,
    /// Columns of the frame.
    pub columns: i32,
    /// Vectors of a pixel.
    pub vectors: i32,
    /// 0 for neighbours below one another, 1 for those side by side.
    pub axis: i32,
    /// Neighbours.
    pub taps: i32,
    /// 1 for zeros around the frame, 0 for mirrors.
    pub zeros: i32,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_fit() {
        assert!(size_of::<Warp>() + 3 * 8 <= 4096);
        assert_eq!(size_of::<Warp>() % WIDEST, 0);
    }
}
