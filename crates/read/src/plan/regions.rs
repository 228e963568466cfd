//! Regions of masks (superpixels, instances) that get a window each.

use super::pad::Pad;

/// Which regions of a mask (superpixels, instances) get a window each.
#[derive(Clone, Debug, PartialEq)]
pub struct Regions {
    /// Rows of a window. The middle of the region's bounding box lies in its middle; larger regions are cut.
    pub rows: u32,
    /// Columns of a window.
    pub columns: u32,
    /// What lies beyond the cube's edge, in images; masks have 0 there.
    pub pad: Pad,
    /// No regions of these ids; 0 never is one.
    pub ignore: Vec<u32>,
    /// Only regions of so many pixels at least.
    pub min_pixels: usize,
    /// The mask whose most frequent class id in a region is its label, 0 not counting; the region's id is, if `None`.
    pub labels: Option<String>,
}

impl Regions {
    /// Windows of `rows` × `columns` for all regions, mirrored beyond the edge, labelled by their ids.
    pub fn new(rows: u32, columns: u32) -> Self {
        let (pad, ignore) = (Pad::Reflect, Vec::new());
        Self { rows, columns, pad, ignore, min_pixels: 1, labels: None }
    }
}

/// A region of a mask, and the window that it gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Region {
    /// Id of the sample in the dataset.
    pub sample: usize,
    /// First row of the window.
    pub row: i32,
    /// First column of the window.
    pub column: i32,
    /// What its pixels have in the mask.
    pub id: u32,
    /// Its class id.
    pub label: u32,
    /// Whether it is higher or wider than its window.
    pub cut: bool,
}
