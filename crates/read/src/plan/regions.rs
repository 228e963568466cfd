//! Regions of masks (superpixels, instances) that get a window each.

use serde::{Deserialize, Serialize};

use super::pad::Pad;

/// Which regions of a mask (superpixels, instances) get a window. Each gets its own.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Regions {
    /// Rows of a window. The window is centred on the region's bounding box. Larger regions are
    /// cut.
    pub rows: u32,
    /// Columns of a window.
    pub columns: u32,
    /// The values beyond the cube's edge in images. Masks have 0 there.
    pub pad: Pad,
    /// No regions with these ids. 0 is never a region.
    pub ignore: Vec<u32>,
    /// Only regions of at least this many pixels.
    pub min_pixels: usize,
    /// The mask for labels: the label of a region is its most frequent class id in this mask, not
    /// counting 0. If `None`, the label is the region's id.
    pub labels: Option<String>,
}

impl Regions {
    /// Windows of `rows` × `columns` for all regions, mirrored beyond the edge, labelled by their
    /// ids.
    pub fn new(rows: u32, columns: u32) -> Self {
        let (pad, ignore) = (Pad::Reflect, Vec::new());
        Self { rows, columns, pad, ignore, min_pixels: 1, labels: None }
    }
}

/// A region of a mask, and its window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Region {
    /// Id of the sample in the dataset.
    pub sample: usize,
    /// First row of the window.
    pub row: i32,
    /// First column of the window.
    pub column: i32,
    /// The id of the region's pixels in the mask.
    pub id: u32,
    /// The region's class id.
    pub label: u32,
    /// Whether the region is higher or wider than its window.
    pub cut: bool,
}
