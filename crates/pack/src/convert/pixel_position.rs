//! Where pixels are.

/// The position of a tile of pixels in its cube.
#[derive(Clone, Copy, Debug)]
pub struct PixelPosition {
    /// Row of the first pixel.
    pub row: usize,
    /// Column of the first pixel.
    pub column: usize,
}
