//! Crops, resizing, padding.

use serde::{Deserialize, Serialize};

use super::super::{Action, Augmentation, BatchPosition, Op, no, size, yes};
use super::Geometric;
use crate::drawn::Drawn;
use crate::frame::Frame;
use crate::geometry::{Interpolation, KorniaCompat, Outside, Padding, Source};
use crate::matrix::Matrix;
use crate::range::Range;
use hsipack_format::random::Random;
use hsipack_format::{Error, Result};

/// Crops a window at a random position.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RandomCrop {
    /// Rows and columns of the window.
    pub size: [usize; 2],
    /// Number of pixels added around the frame first: left, top, right, bottom.
    #[serde(default)]
    pub pad: [usize; 4],
    /// If the frame is smaller than the window, add the missing number of pixels on both sides.
    #[serde(default)]
    pub pad_if_needed: bool,
    /// Values of the added pixels.
    #[serde(default)]
    pub padding: Padding,
    /// Value used instead of zero.
    #[serde(default)]
    pub fill: f64,
}

/// Crops the window in the middle.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CenterCrop {
    /// Rows and columns of the window.
    pub size: [usize; 2],
}

/// Cuts out a window of random size and shape and resizes it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ResizedCrop {
    /// Rows and columns of the result.
    pub size: [usize; 2],
    /// Area of the window, as a share of the frame's area.
    #[serde(default = "crop_scale")]
    pub scale: Range,
    /// Aspect ratio of the window, width to height.
    #[serde(default = "crop_ratio")]
    pub ratio: Range,
    /// Interpolation between pixels.
    #[serde(default)]
    pub interpolation: Interpolation,
    /// Whether resizing aligns the centres of the corner pixels, or otherwise their edges. Masks
    /// always align edges, as in Kornia. So masks are sampled at the image's positions only if this
    /// is off, or if the image takes the nearest pixel.
    #[serde(default = "yes")]
    pub align_corners: bool,
}

/// Resizes the frame.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Resize {
    /// Rows and columns of the result.
    pub size: [usize; 2],
    /// Interpolation between pixels.
    #[serde(default)]
    pub interpolation: Interpolation,
    /// Whether resizing aligns the centres of the corner pixels, or otherwise their edges. Masks
    /// always align edges, as in Kornia. So masks are sampled at the image's positions only if this
    /// is off, or if the image takes the nearest pixel.
    #[serde(default = "yes")]
    pub align_corners: bool,
}

/// Adds pixels below and to the right until the frame has this size.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PadTo {
    /// Rows and columns of the result.
    pub size: [usize; 2],
    /// Values of the added pixels.
    #[serde(default)]
    pub padding: Padding,
    /// Value used instead of zero.
    #[serde(default)]
    pub fill: f64,
}

impl RandomCrop {
    /// A window of `rows` × `columns`.
    pub fn new(rows: usize, columns: usize) -> Self {
        let padding = Padding::Zeros;
        Self { size: [rows, columns], pad: [0; 4], pad_if_needed: no(), padding, fill: 0.0 }
    }

    /// Number of pixels added to the left and at the top, and the frame with all added pixels.
    fn padded(&self, frame: Frame) -> ([usize; 2], Frame) {
        let [mut left, mut top, mut right, mut bottom] = self.pad;
        if self.pad_if_needed {
            // As in Kornia: the number of missing pixels, or `pad` if that is larger.
            let across = self.size[1].saturating_sub(frame.columns);
            let down = self.size[0].saturating_sub(frame.rows);
            (left, right) = (left.max(across), right.max(across));
            (top, bottom) = (top.max(down), bottom.max(down));
        }
        let columns = frame.columns.saturating_add(left).saturating_add(right);
        let rows = frame.rows.saturating_add(top).saturating_add(bottom);
        ([left, top], Frame { rows, columns, ..frame })
    }
}

impl Augmentation for RandomCrop {
    fn draw(
        &self,
        BatchPosition { frame, .. }: BatchPosition,
        random: &mut Random,
    ) -> Result<Drawn> {
        let (_, padded) = self.padded(frame);
        let [rows, columns] = self.size;
        let x = random.below((padded.columns - columns + 1) as u64) as usize;
        let y = random.below((padded.rows - rows + 1) as u64) as usize;
        Ok(Drawn::Window { x, y, width: columns, height: rows })
    }

    fn action(&self, _: &Op) -> Action<'_> {
        Action::Moves(self)
    }
}

impl Geometric for RandomCrop {
    fn frame(&self, frame: Frame) -> Result<Frame> {
        size("random_crop", self.size)?;
        let (_, padded) = self.padded(frame);
        fits("random_crop", self.size, padded)?;
        Ok(frame.resized(self.size))
    }

    fn source(&self, drawn: &Drawn, frame: Frame, _: KorniaCompat) -> Result<Source> {
        let Drawn::Window { x, y, .. } = drawn else { return Err(drawn.misfit("random_crop")) };
        let ([left, top], _) = self.padded(frame);
        let by = [*x as f64 - left as f64, *y as f64 - top as f64];
        Ok(Source::map(Matrix::translation(by[0], by[1])))
    }

    fn outside(&self) -> Option<Outside> {
        // Padding mirrors at the centres of the outermost pixels, as in torch.
        let Self { padding, fill, .. } = *self;
        let pads = self.pad_if_needed || self.pad != [0; 4];
        pads.then_some(Outside { padding, fill, align_corners: true })
    }

    fn follows(&self) -> bool {
        // Added pixels must not show pixels that an earlier warp moved out of the frame.
        self.outside().is_none()
    }
}

fn fits(what: &str, size: [usize; 2], frame: Frame) -> Result<()> {
    if size[0] <= frame.rows && size[1] <= frame.columns {
        return Ok(());
    }
    Err(Error::conflict(format!(
        "{what} to {} x {} is larger than the frame of {} x {}",
        size[0], size[1], frame.rows, frame.columns
    ))
    .with_remedy(
        "crop to a smaller size, pad first (pad_to, or pad_if_needed of random_crop), or resize",
    ))
}

impl Augmentation for CenterCrop {
    fn action(&self, _: &Op) -> Action<'_> {
        Action::Moves(self)
    }
}

impl Geometric for CenterCrop {
    fn frame(&self, frame: Frame) -> Result<Frame> {
        size("center_crop", self.size)?;
        fits("center_crop", self.size, frame)?;
        Ok(frame.resized(self.size))
    }

    fn source(&self, _: &Drawn, frame: Frame, _: KorniaCompat) -> Result<Source> {
        let left = (frame.columns - self.size[1]) / 2;
        let top = (frame.rows - self.size[0]) / 2;
        Ok(Source::map(Matrix::translation(left as f64, top as f64)))
    }
}

impl ResizedCrop {
    /// Whether pixel centres are aligned, or otherwise edges. `None` if the nearest pixel is taken:
    /// as in torch, this always aligns edges.
    fn by_centres(&self) -> Option<bool> {
        (self.interpolation == Interpolation::Bilinear).then_some(self.align_corners)
    }

    /// Resizes to `rows` × `columns`, with Kornia's default scale and ratio.
    pub fn new(rows: usize, columns: usize) -> Self {
        Self {
            size: [rows, columns],
            scale: crop_scale(),
            ratio: crop_ratio(),
            interpolation: Interpolation::Bilinear,
            align_corners: yes(),
        }
    }
}

impl ResizedCrop {
    fn resized(
        &self,
        drawn: &Drawn,
        frame: Frame,
        align: Option<bool>,
        compat: KorniaCompat,
    ) -> Result<Source> {
        let Drawn::Window { x, y, width, height } = *drawn else {
            return Err(drawn.misfit("resized_crop"));
        };
        let inside =
            x.saturating_add(width) <= frame.columns && y.saturating_add(height) <= frame.rows;
        if !inside || width == 0 || height == 0 {
            return Err(drawn.misfit("resized_crop"));
        }
        let mut source = resize([height, width], self.size, align, compat);
        let shift = Matrix::translation(x as f64, y as f64);
        source.image = shift.after(&source.image);
        source.mask = shift.after(&source.mask);
        source.bounds = source.bounds.map(|[left, right, top, bottom]| {
            [left + x as f64, right + x as f64, top + y as f64, bottom + y as f64]
        });
        Ok(source)
    }
}

impl Augmentation for ResizedCrop {
    fn check(&self, _: Frame) -> Result<()> {
        size("resized_crop", self.size)?;
        self.scale.check("scale", f64::MIN_POSITIVE, f64::INFINITY)?;
        self.ratio.check("ratio", f64::MIN_POSITIVE, f64::INFINITY)
    }

    fn draw(
        &self,
        BatchPosition { frame, .. }: BatchPosition,
        random: &mut Random,
    ) -> Result<Drawn> {
        let (rows, columns) = (frame.rows as f64, frame.columns as f64);
        let logs = Range::new(self.ratio.low.ln(), self.ratio.high.ln());
        // As many candidates as in Kornia, whether or not they are used.
        let candidates: Vec<[f64; 2]> = (0..10)
            .map(|_| {
                let area = self.scale.draw(random) * rows * columns;
                let ratio = logs.draw(random).exp();
                [(area * ratio).sqrt().round_ties_even(), (area / ratio).sqrt().round_ties_even()]
            })
            .collect();
        let fits = |[width, height]: &[f64; 2]| {
            (1.0..=columns).contains(width) && (1.0..=rows).contains(height)
        };
        let [width, height] = candidates.into_iter().find(fits).unwrap_or_else(|| {
            let ratio = columns / rows;
            if ratio < self.ratio.low {
                [columns, (columns / self.ratio.low).round_ties_even().clamp(1.0, rows)]
            } else if ratio > self.ratio.high {
                [(rows * self.ratio.high).round_ties_even().clamp(1.0, columns), rows]
            } else {
                [columns, rows]
            }
        });
        let (width, height) = (width as usize, height as usize);
        let x = random.below((frame.columns - width + 1) as u64) as usize;
        let y = random.below((frame.rows - height + 1) as u64) as usize;
        Ok(Drawn::Window { x, y, width, height })
    }

    fn action(&self, _: &Op) -> Action<'_> {
        Action::Moves(self)
    }
}

impl Geometric for ResizedCrop {
    fn frame(&self, frame: Frame) -> Result<Frame> {
        Ok(frame.resized(self.size))
    }

    fn source(&self, drawn: &Drawn, frame: Frame, compat: KorniaCompat) -> Result<Source> {
        self.resized(drawn, frame, self.by_centres(), compat)
    }

    fn points(&self, drawn: &Drawn, frame: Frame, compat: KorniaCompat) -> Result<Source> {
        self.resized(drawn, frame, self.by_centres().or(Some(false)), compat)
    }

    fn outside(&self) -> Option<Outside> {
        border_unless(self.by_centres())
    }

    fn interpolation(&self) -> Option<Interpolation> {
        Some(self.interpolation)
    }

    fn follows(&self) -> bool {
        // If edges are aligned, it uses only pixels of its own window.
        self.by_centres() != Some(false)
    }

    fn precedes(&self) -> bool {
        self.follows()
    }
}

/// If edges are aligned, resizing reaches half a pixel beyond the outermost centres.
fn border_unless(align: Option<bool>) -> Option<Outside> {
    let padding = Padding::Border;
    (align == Some(false)).then_some(Outside { padding, fill: 0.0, align_corners: false })
}

/// The source of the pixels if a frame of size `from` (rows, columns) is resized to `to`.
///
/// `align` is `None` if the nearest pixel is taken; images are then sampled like masks.
fn resize(from: [usize; 2], to: [usize; 2], align: Option<bool>, compat: KorniaCompat) -> Source {
    let axis = |from: usize, to: usize| {
        let (from, to) = (from as f64, to as f64);
        let by_edges = (from / to, 0.5 * from / to - 0.5);
        let by_centres = if to > 1.0 { ((from - 1.0) / (to - 1.0), 0.0) } else { (0.0, 0.0) };
        let mask = match compat {
            KorniaCompat::V0_9 => by_edges,
            // The pixel that contains the new pixel's edge.
            KorniaCompat::V0_8 => (from / to, -0.5),
        };
        // Masks take the pixel that contains the centre of the new pixel. If the centre is between two pixels, they
        // take the later one, which rounding half to even would not always do. Adding `0.25 / to` decides these ties
        // and nothing else, because all other positions are at least `0.5 / to` away from a tie.
        let mask = (mask.0, mask.1 + 0.25 / to);
        match align {
            Some(true) => (by_centres, mask),
            Some(false) => (by_edges, mask),
            None => (mask, mask),
        }
    };
    let ((image_y, mask_y), (image_x, mask_x)) = (axis(from[0], to[0]), axis(from[1], to[1]));
    Source {
        image: Matrix::axes(image_x.0, image_x.1, image_y.0, image_y.1),
        mask: Matrix::axes(mask_x.0, mask_x.1, mask_y.0, mask_y.1),
        bounds: (align == Some(false))
            .then(|| [0.0, from[1] as f64 - 1.0, 0.0, from[0] as f64 - 1.0]),
        elastic: None,
    }
}

impl Resize {
    /// Whether pixel centres are aligned, or otherwise edges. `None` if the nearest pixel is taken:
    /// as in torch, this always aligns edges.
    fn by_centres(&self) -> Option<bool> {
        (self.interpolation == Interpolation::Bilinear).then_some(self.align_corners)
    }
}

impl Augmentation for Resize {
    fn action(&self, _: &Op) -> Action<'_> {
        Action::Moves(self)
    }
}

impl Geometric for Resize {
    fn frame(&self, frame: Frame) -> Result<Frame> {
        size("resize", self.size)?;
        Ok(frame.resized(self.size))
    }

    fn source(&self, _: &Drawn, frame: Frame, compat: KorniaCompat) -> Result<Source> {
        Ok(resize([frame.rows, frame.columns], self.size, self.by_centres(), compat))
    }

    fn points(&self, _: &Drawn, frame: Frame, compat: KorniaCompat) -> Result<Source> {
        let align = self.by_centres().or(Some(false));
        Ok(resize([frame.rows, frame.columns], self.size, align, compat))
    }

    fn outside(&self) -> Option<Outside> {
        border_unless(self.by_centres())
    }

    fn interpolation(&self) -> Option<Interpolation> {
        Some(self.interpolation)
    }

    fn follows(&self) -> bool {
        // If edges are aligned, it uses only pixels of its own window.
        self.by_centres() != Some(false)
    }

    fn precedes(&self) -> bool {
        self.follows()
    }
}

impl Augmentation for PadTo {
    fn action(&self, _: &Op) -> Action<'_> {
        Action::Moves(self)
    }
}

impl Geometric for PadTo {
    fn frame(&self, frame: Frame) -> Result<Frame> {
        if self.size[0] < frame.rows || self.size[1] < frame.columns {
            return Err(Error::conflict(format!(
                "pad_to {} x {} is smaller than the frame of {} x {}",
                self.size[0], self.size[1], frame.rows, frame.columns
            ))
            .with_remedy("pad to at least the frame's size, or crop first"));
        }
        Ok(frame.resized(self.size))
    }

    fn source(&self, _: &Drawn, _: Frame, _: KorniaCompat) -> Result<Source> {
        Ok(Source::nothing())
    }

    fn outside(&self) -> Option<Outside> {
        let Self { padding, fill, .. } = *self;
        Some(Outside { padding, fill, align_corners: true })
    }

    fn follows(&self) -> bool {
        // Added pixels must not show pixels that an earlier warp moved out of the frame.
        self.outside().is_none()
    }
}

fn crop_scale() -> Range {
    Range::new(0.08, 1.0)
}

fn crop_ratio() -> Range {
    Range::new(0.75, 4.0 / 3.0)
}
