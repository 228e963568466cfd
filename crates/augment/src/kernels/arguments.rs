//! Arguments of kernels, with the memory layout of `kernels.cu`.

/// Pixels per block of a [`Warp`].
pub const PIXELS: usize = 64;
/// Threads per block.
pub const THREADS: usize = 256;
/// Maximum number of samples of a [`Warp`]: arguments may take 4 KiB.
pub const SAMPLES: usize = 48;
/// Maximum number of samples of a [`Draw`].
pub const DRAWN: usize = 128;
/// Pairs of normal numbers that are drawn together: the numbers of a pair belong to values that are
/// as many apart.
pub const PAIRS: usize = 64;
/// Bytes of the widest vector.
pub const WIDEST: usize = 16;

/// The source of one sample's pixels.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub struct Sample {
    /// A map from the result's pixels to the frame's, row by row.
    pub map: [f32; 9],
    /// Minimum and maximum column, minimum and maximum row, to which border padding clamps.
    pub bounds: [f32; 4],
    /// Index of the sample in the batch.
    pub place: i32,
    /// Index of its displacements; -1 if it has none.
    pub field: i32,
}

/// Moves pixels.
#[derive(Clone, Copy, Debug)]
#[repr(C, align(16))]
pub struct Warp {
    /// The value outside the frame, as the bytes of a vector.
    pub fill_vector: [u8; WIDEST],
    /// The value outside the frame, as a number.
    pub fill: f32,
    /// Rows of the frame.
    pub rows: i32,
    /// Columns of the frame.
    pub columns: i32,
    /// Rows of the result.
    pub to_rows: i32,
    /// Columns of the result.
    pub to_columns: i32,
    /// Vectors per pixel.
    pub vectors: i32,
    /// One of [`Warp::ZEROS`], [`Warp::BORDER`], [`Warp::REFLECTION`].
    pub padding: i32,
    /// Whether frames are mirrored at the centres of the outermost pixels instead of their edges.
    pub align_corners: i32,
    /// Whether all maps are affine.
    pub affine: i32,
    /// The samples; the grid's second axis has one entry for each.
    pub samples: [Sample; SAMPLES],
}

impl Warp {
    /// Outside, values are `fill`.
    pub const ZEROS: i32 = 0;
    /// Outside, values are those of the outermost pixels.
    pub const BORDER: i32 = 1;
    /// The frame is mirrored.
    pub const REFLECTION: i32 = 2;
}

/// Factors and summands of the bands.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Values {
    /// Vectors per pixel.
    pub vectors: i32,
    /// Vectors per sample.
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
    /// Vectors per pixel.
    pub vectors: i32,
    /// 0 for vertical neighbours, 1 for horizontal ones.
    pub axis: i32,
    /// Number of neighbours.
    pub taps: i32,
    /// 1 for zeros around the frame, 0 for mirroring.
    pub zeros: i32,
}

/// Copies or fills rectangles. Their numbers, [`Rectangles::NUMBERS`] each, are the kernel's last
/// argument.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Rectangles {
    /// Rows of the frame.
    pub rows: i32,
    /// Columns of the frame.
    pub columns: i32,
    /// Vectors per pixel.
    pub vectors: i32,
}

impl Rectangles {
    /// Numbers of a rectangle: its sample, first row and column, rows and columns, and the source:
    /// a sample, row and column, or the place of a spectrum.
    pub const NUMBERS: usize = 8;
    /// Maximum number of rectangles of a call.
    pub const MAX_PER_CALL: usize = 1 << 15;
}

/// A sample whose numbers are drawn.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub struct Drawn {
    /// The seed of its numbers.
    pub seed: u64,
    /// Index of the sample in the batch.
    pub place: i64,
}

/// Random numbers for the values of samples.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Draw {
    /// Mean of the noise.
    pub mean: f32,
    /// Standard deviation of the noise.
    pub std: f32,
    /// Vectors per sample.
    pub all: i64,
    /// The samples; the grid's second axis has one entry for each.
    pub samples: [Drawn; DRAWN],
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_fit() {
        assert!(size_of::<Warp>() + 3 * 8 <= 4096);
        assert_eq!(size_of::<Warp>() % WIDEST, 0);
        assert!(size_of::<Draw>() + 3 * 8 <= 4096);
    }
}
