//! Crops, resizing, padding.

use serde::{Deserialize, Serialize};

use super::super::{Action, Augmentation, Drawn, Frame, Op, Place, no, size, yes};
use super::{Geometric, Interpolation, KorniaCompat, Outside, Padding, Source};
use crate::matrix::Matrix;
use crate::range::Range;
use hsipack_format::random::Random;
use hsipack_format::{Error, Result};

/// Cuts out a window anywhere.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RandomCrop {
    /// Rows and columns.
    pub size: [usize; 2],
    /// Pixels that are put around the frame before: left, top, right, bottom.
    #[serde(default)]
    pub pad: [usize; 4],
    /// Where the frame is smaller than the window, put as many pixels as it lacks on both sides.
    #[serde(default)]
    pub pad_if_needed: bool,
    /// What these pixels are.
    #[serde(default)]
    pub padding: Padding,
    /// What zeros are replaced with.
    #[serde(default)]
    pub fill: f64,
}

/// Cuts out the window in the middle.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CenterCrop {
    /// Rows and columns.
    pub size: [usize; 2],
}

/// Cuts out a window of random size and shape and resizes it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ResizedCrop {
    /// Rows and columns of the result.
    pub size: [usize; 2],
    /// Part of the frame's area that the window has.
    #[serde(default = "crop_scale")]
    pub scale: Range,
    /// Width to height of the window.
    #[serde(default = "crop_ratio")]
    pub ratio: Range,
    /// Between pixels.
    #[serde(default)]
    pub interpolation: Interpolation,
    /// The image's corner pixels keep their centres; else their edges. Masks go by edges either way, as Kornia's do: only
    /// without it, or with the nearest pixel taken, do they come from the image's positions.
    #[serde(default = "yes")]
    pub align_corners: bool,
}

/// Resizes the frame.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Resize {
    /// Rows and columns of the result.
    pub size: [usize; 2],
    /// Between pixels.
    #[serde(default)]
    pub interpolation: Interpolation,
    /// The image's corner pixels keep their centres; else their edges. Masks go by edges either way, as Kornia's do: only
    /// without it, or with the nearest pixel taken, do they come from the image's positions.
    #[serde(default = "yes")]
    pub align_corners: bool,
}

/// Puts pixels below and to the right until the frame has the size.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PadTo {
    /// Rows and columns of the result.
    pub size: [usize; 2],
    /// What the new pixels are.
    #[serde(default)]
    pub padding: Padding,
    /// What zeros are replaced with.
    #[serde(default)]
    pub fill: f64,
}

impl RandomCrop {
    /// A window of `rows` × `columns`.
    pub fn new(rows: usize, columns: usize) -> Self {
        let padding = Padding::Zeros;
        Self { size: [rows, columns], pad: [0; 4], pad_if_needed: no(), padding, fill: 0.0 }
    }

    /// Pixels put to the left and above, and the size with all of them.
    fn padded(&self, frame: Frame) -> ([usize; 2], Frame) {
        let [mut left, mut top, mut right, mut bottom] = self.pad;
        if self.pad_if_needed {
            // As Kornia does: what the frame itself lacks, or what is put around it anyway if that is more.
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
    fn draw(&self, Place { frame, .. }: Place, random: &mut Random) -> Result<Drawn> {
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
        // Padding mirrors about the outermost pixels' centres, as torch's does.
        let Self { padding, fill, .. } = *self;
        let pads = self.pad_if_needed || self.pad != [0; 4];
        pads.then_some(Outside { padding, fill, align_corners: true })
    }

    fn follows(&self) -> bool {
        // Pixels that are put around a frame must not show what a warp before it moved out of sight.
        self.outside().is_none()
    }
}

fn fits(what: &str, size: [usize; 2], frame: Frame) -> Result<()> {
    if size[0] <= frame.rows && size[1] <= frame.columns {
        return Ok(());
    }
    Err(Error::conflict(format!(
        "{what} to {} x {} of a frame of {} x {}",
        size[0], size[1], frame.rows, frame.columns
    ))
    .with_remedy("crop to less, pad before (pad_to, or pad_if_needed of random_crop), or resize"))
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
    /// Whether pixels' centres are kept, or their edges; `None` if the nearest pixel is taken, which goes by edges
    /// whatever is asked for, as torch's does.
    fn by_centres(&self) -> Option<bool> {
        (self.interpolation == Interpolation::Bilinear).then_some(self.align_corners)
    }

    /// To `rows` × `columns`, with Kornia's default scale and ratio.
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

    fn draw(&self, Place { frame, .. }: Place, random: &mut Random) -> Result<Drawn> {
        let (rows, columns) = (frame.rows as f64, frame.columns as f64);
        let logs = Range::new(self.ratio.low.ln(), self.ratio.high.ln());
        // As many candidates as Kornia draws, whatever becomes of them.
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
        // By edges, it looks no further than its own window.
        self.by_centres() != Some(false)
    }

    fn precedes(&self) -> bool {
        self.follows()
    }
}

/// Resizing by edges reaches half a pixel beyond the outermost centres.
fn border_unless(align: Option<bool>) -> Option<Outside> {
    let padding = Padding::Border;
    (align == Some(false)).then_some(Outside { padding, fill: 0.0, align_corners: false })
}

/// Where pixels come from when a frame of `from` (rows, columns) is resized to `to`.
///
/// `align` is `None` where the nearest pixel is taken: then images go as masks do.
fn resize(from: [usize; 2], to: [usize; 2], align: Option<bool>, compat: KorniaCompat) -> Source {
    let axis = |from: usize, to: usize| {
        let (from, to) = (from as f64, to as f64);
        let by_edges = (from / to, 0.5 * from / to - 0.5);
        let by_centres = if to > 1.0 { ((from - 1.0) / (to - 1.0), 0.0) } else { (0.0, 0.0) };
        let mask = match compat {
            KorniaCompat::V0_9 => by_edges,
            // The pixel that the new one's edge falls into.
            KorniaCompat::V0_8 => (from / to, -0.5),
        };
        // Masks take the pixel that the new one's centre falls into, the later one if it falls between two, which
        // rounding half to even would not always do. Fractions of the new size are no nearer to the middle than
        // this, but for those that are there.
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
    /// Whether pixels' centres are kept, or their edges; `None` if the nearest pixel is taken, which goes by edges
    /// whatever is asked for, as torch's does.
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
        // By edges, it looks no further than its own window.
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
                "pad_to {} x {} of a frame of {} x {}",
                self.size[0], self.size[1], frame.rows, frame.columns
            ))
            .with_remedy("pad to at least the frame's size, or crop before"));
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
        // Pixels that are put around a frame must not show what a warp before it moved out of sight.
        self.outside().is_none()
    }
}

fn crop_scale() -> Range {
    Range::new(0.08, 1.0)
}

fn crop_ratio() -> Range {
    Range::new(0.75, 4.0 / 3.0)
}
