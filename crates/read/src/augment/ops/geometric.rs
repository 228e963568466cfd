//! Augmentations that move pixels: flips, turns, warps, crops.

use std::f64::consts::PI;

use serde::{Deserialize, Deserializer, Serialize};

use super::super::matrix::Matrix;
use super::super::range::Range;
use super::{Drawn, Frame, half, no, size, yes};
use crate::plan::random::Random;
use crate::{Error, Result};

/// How values between pixels come about.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Interpolation {
    /// From the four nearest pixels. Masks always take the nearest.
    #[default]
    Bilinear,
    /// The nearest pixel's.
    Nearest,
}

/// What lies outside the frame.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Padding {
    /// Zeros (or `fill`); masks are given `mask_fill`.
    #[default]
    Zeros,
    /// The outermost pixels, again and again.
    Border,
    /// The frame mirrored: about the outermost pixels' centres with `align_corners`, about their edges without.
    Reflection,
}

/// Mirrors left and right (`hflip`) or top and bottom (`vflip`).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Flip {
    /// Share of the samples it is applied to.
    pub p: f64,
}

/// Turns by quarters, counter-clockwise. A frame that is not square is turned by halves only.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Rot90 {
    /// Share of the samples it is applied to.
    pub p: f64,
    /// Least and greatest number of quarter turns.
    pub turns: [i32; 2],
    /// Draw as Kornia's RandomRotation90 does: a real number, rounded, so that the least and the greatest number
    /// come half as often as the others.
    pub kornia_law: bool,
}

/// Shears, then turns and scales about the centre, then moves. Positive angles turn clockwise, as Kornia's
/// RandomAffine does.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Affine {
    /// Share of the samples it is applied to.
    pub p: f64,
    /// Angle in degrees; a number stands for ± that.
    #[serde(deserialize_with = "around_zero")]
    pub degrees: Range,
    /// Most that it moves by: parts of the frame's width, of its height.
    pub translate: [f64; 2],
    /// Factor of both axes, or of x if there is one for y.
    pub scale: Range,
    /// Factor of y.
    pub scale_y: Option<Range>,
    /// Shear along x in degrees; a number stands for ± that.
    #[serde(deserialize_with = "around_zero")]
    pub shear: Range,
    /// Shear along y in degrees.
    pub shear_y: Option<Range>,
    /// Between pixels.
    pub interpolation: Interpolation,
    /// Outside the frame.
    pub padding: Padding,
    /// What zeros are replaced with, outside the frame.
    pub fill: f64,
    /// Where `reflection` mirrors.
    pub align_corners: bool,
}

/// Turns about the centre; positive angles turn counter-clockwise, as Kornia's RandomRotation does.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Rotate {
    /// Share of the samples it is applied to.
    pub p: f64,
    /// Angle in degrees; a number stands for ± that.
    #[serde(deserialize_with = "around_zero")]
    pub degrees: Range,
    /// Between pixels.
    pub interpolation: Interpolation,
    /// Outside the frame.
    pub padding: Padding,
    /// Where `reflection` mirrors.
    pub align_corners: bool,
}

/// Moves the corners, each by itself, and the plane with them.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Perspective {
    /// Share of the samples it is applied to.
    pub p: f64,
    /// How far corners move at most: this part of half the frame.
    pub distortion: f64,
    /// Corners move outwards as well as inwards.
    pub area_preserving: bool,
    /// Between pixels.
    pub interpolation: Interpolation,
    /// Outside the frame.
    pub padding: Padding,
    /// Where `reflection` mirrors.
    pub align_corners: bool,
}

/// Moves every pixel by a smooth random field.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Elastic {
    /// Share of the samples it is applied to.
    pub p: f64,
    /// Strength along x and y: half a frame's width or height for a field of 1.
    pub alpha: [f64; 2],
    /// Width of the Gaussian that smooths the field, in rows and columns.
    pub sigma: [f64; 2],
    /// Size of that Gaussian's kernel in rows and columns, odd.
    pub kernel: [usize; 2],
    /// Between pixels.
    pub interpolation: Interpolation,
    /// Outside the frame.
    pub padding: Padding,
    /// Where `reflection` mirrors; whether half a frame is (width - 1)/2.
    pub align_corners: bool,
}

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
    /// Corner pixels keep their centres; else their edges.
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
    /// Corner pixels keep their centres; else their edges.
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

/// How pixels outside the frame are made, as far as an operation needs any.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Outside {
    pub padding: Padding,
    pub fill: f64,
    pub align_corners: bool,
}

/// Where the pixels of one sample's result come from: maps of the result's pixels to the frame's.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Source {
    pub image: Matrix,
    pub mask: Matrix,
    /// What is outside is clamped to these pixels (least x, greatest x, least y, greatest y) instead of the frame.
    pub bounds: Option<[f64; 4]>,
    pub elastic: Option<Field>,
}

/// A field of displacements, made from a seed.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Field {
    pub seed: u64,
    pub kernel: [usize; 2],
    pub sigma: [f64; 2],
    /// Pixels along x and y for a smoothed number of 1.
    pub pixels: [f64; 2],
}

impl Source {
    pub fn map(map: Matrix) -> Self {
        Self { image: map, mask: map, bounds: None, elastic: None }
    }

    pub fn nothing() -> Self {
        Self::map(Matrix::IDENTITY)
    }
}

/// Which Kornia the arithmetic of warps follows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum KorniaCompat {
    /// 0.9: matrices mean what they say.
    #[default]
    #[serde(rename = "0.9")]
    V0_9,
    /// 0.8 and before: without `align_corners`, warps are scaled and moved by part of a pixel.
    #[serde(rename = "0.8")]
    V0_8,
}

/// A geometric operation.
pub(crate) trait Geometric {
    /// The frame that comes out.
    fn frame(&self, frame: Frame) -> Result<Frame> {
        Ok(frame)
    }
    /// Where the pixels come from.
    fn source(&self, drawn: &Drawn, frame: Frame, compat: KorniaCompat) -> Result<Source>;
    /// The same for points, without what decides which of two pixels is taken.
    fn points(&self, drawn: &Drawn, frame: Frame, compat: KorniaCompat) -> Result<Source> {
        self.source(drawn, frame, compat)
    }
    /// What is needed from outside the frame.
    fn outside(&self) -> Option<Outside> {
        None
    }
    /// How values between pixels come about; `None` if there are none.
    fn interpolation(&self) -> Option<Interpolation> {
        None
    }
}

impl<T: Geometric> Geometric for &T {
    fn frame(&self, frame: Frame) -> Result<Frame> {
        T::frame(self, frame)
    }

    fn source(&self, drawn: &Drawn, frame: Frame, compat: KorniaCompat) -> Result<Source> {
        T::source(self, drawn, frame, compat)
    }

    fn points(&self, drawn: &Drawn, frame: Frame, compat: KorniaCompat) -> Result<Source> {
        T::points(self, drawn, frame, compat)
    }

    fn outside(&self) -> Option<Outside> {
        T::outside(self)
    }

    fn interpolation(&self) -> Option<Interpolation> {
        T::interpolation(self)
    }
}

impl Default for Flip {
    fn default() -> Self {
        Self { p: half() }
    }
}

impl Geometric for super::HorizontalFlip {
    fn source(&self, _: &Drawn, frame: Frame, _: KorniaCompat) -> Result<Source> {
        Ok(Source::map(Matrix::axes(-1.0, frame.columns as f64 - 1.0, 1.0, 0.0)))
    }
}

impl Geometric for super::VerticalFlip {
    fn source(&self, _: &Drawn, frame: Frame, _: KorniaCompat) -> Result<Source> {
        Ok(Source::map(Matrix::axes(1.0, 0.0, -1.0, frame.rows as f64 - 1.0)))
    }
}

impl Default for Rot90 {
    fn default() -> Self {
        Self { p: half(), turns: [0, 3], kornia_law: false }
    }
}

impl Rot90 {
    pub(super) fn draw(&self, frame: Frame, random: &mut Random) -> Result<Drawn> {
        let [least, most] = self.turns;
        let turns = if self.kornia_law {
            let turns = Range::new(f64::from(least), f64::from(most)).draw(random);
            turns.round_ties_even() as i64
        } else {
            let step = if frame.rows == frame.columns { 1 } else { 2 };
            let (least, most) = (i64::from(least), i64::from(most));
            // From the least number of turns that the frame allows.
            let least = least + least.rem_euclid(step);
            let choices = (most - least).div_euclid(step) + 1;
            if choices < 1 {
                return Err(odd_turn(frame));
            }
            least + step * random.below(choices as u64) as i64
        };
        let turns = turns.rem_euclid(4) as u8;
        if turns % 2 == 1 && frame.rows != frame.columns {
            return Err(odd_turn(frame));
        }
        Ok(Drawn::Turns { turns })
    }
}

fn odd_turn(frame: Frame) -> Error {
    Error::conflict(format!(
        "rot90 cannot turn a frame of {} x {} by a quarter and keep its size",
        frame.rows, frame.columns
    ))
    .with_remedy("allow half turns, crop to a square before, or use rotate")
}

impl Geometric for Rot90 {
    fn source(&self, drawn: &Drawn, frame: Frame, _: KorniaCompat) -> Result<Source> {
        let Drawn::Turns { turns } = drawn else { return Err(drawn.misfit("rot90")) };
        if turns % 2 == 1 && frame.rows != frame.columns {
            return Err(odd_turn(frame));
        }
        let (right, bottom) = (frame.columns as f64 - 1.0, frame.rows as f64 - 1.0);
        Ok(Source::map(Matrix(match turns % 4 {
            0 => Matrix::IDENTITY.0,
            1 => [[0.0, -1.0, right], [1.0, 0.0, 0.0], [0.0, 0.0, 1.0]],
            2 => [[-1.0, 0.0, right], [0.0, -1.0, bottom], [0.0, 0.0, 1.0]],
            _ => [[0.0, 1.0, 0.0], [-1.0, 0.0, bottom], [0.0, 0.0, 1.0]],
        })))
    }
}

impl Default for Affine {
    fn default() -> Self {
        Self {
            p: half(),
            degrees: Range::only(0.0),
            translate: [0.0, 0.0],
            scale: Range::only(1.0),
            scale_y: None,
            shear: Range::only(0.0),
            shear_y: None,
            interpolation: Interpolation::Bilinear,
            padding: Padding::Zeros,
            fill: 0.0,
            align_corners: false,
        }
    }
}

impl Affine {
    pub(super) fn check(&self) -> Result<()> {
        let all = f64::INFINITY;
        self.degrees.check("degrees", -all, all)?;
        self.scale.check("scale", f64::MIN_POSITIVE, all)?;
        self.scale_y.map_or(Ok(()), |scale| scale.check("scale_y", f64::MIN_POSITIVE, all))?;
        for (shear, what) in [(Some(self.shear), "shear"), (self.shear_y, "shear_y")] {
            shear.map_or(Ok(()), |shear| shear.check(what, -89.0, 89.0))?;
        }
        match self.translate.iter().find(|part| !(0.0..=1.0).contains(*part)) {
            Some(part) => Err(Error::conflict(format!("a translation by {part} of the frame"))
                .with_remedy("give parts of the frame from 0 to 1")),
            None => Ok(()),
        }
    }

    pub(super) fn draw(&self, frame: Frame, random: &mut Random) -> Drawn {
        let angle = self.degrees.draw(random);
        let scale = self.scale.draw(random);
        let scale_y = self.scale_y.map_or(scale, |range| range.draw(random));
        let [part_x, part_y] = self.translate.map(|part| Range::around_zero(part).draw(random));
        let translation = [part_x * frame.columns as f64, part_y * frame.rows as f64];
        let shear_y = self.shear_y.unwrap_or(Range::only(0.0));
        let shear = [self.shear.draw(random), shear_y.draw(random)];
        Drawn::Affine { angle, scale: [scale, scale_y], translation, shear }
    }
}

impl Geometric for Affine {
    fn source(&self, drawn: &Drawn, frame: Frame, compat: KorniaCompat) -> Result<Source> {
        let Drawn::Affine { angle, scale, translation, shear } = drawn else {
            return Err(drawn.misfit("affine"));
        };
        let map = affine(frame, *angle, *scale, *translation, *shear);
        warp(map, frame, self.align_corners, compat)
    }

    fn outside(&self) -> Option<Outside> {
        let Self { padding, fill, align_corners, .. } = *self;
        Some(Outside { padding, fill, align_corners })
    }

    fn interpolation(&self) -> Option<Interpolation> {
        Some(self.interpolation)
    }
}

/// The map of the frame's pixels to the result's.
fn affine(frame: Frame, angle: f64, scale: [f64; 2], by: [f64; 2], shear: [f64; 2]) -> Matrix {
    let [cx, cy] = frame.centre();
    let (sin, cos) = (angle * PI / 180.0).sin_cos();
    let [[a, b], [c, d]] = [[cos * scale[0], -sin * scale[1]], [sin * scale[0], cos * scale[1]]];
    let turn = Matrix([
        [a, b, cx + by[0] - (a * cx + b * cy)],
        [c, d, cy + by[1] - (c * cx + d * cy)],
        [0.0, 0.0, 1.0],
    ]);
    let [tx, ty] = shear.map(|degrees| (degrees * PI / 180.0).tan());
    let sheared =
        Matrix([[1.0, -tx, tx * cy], [-ty, 1.0 + tx * ty, ty * (cx - tx * cy)], [0.0, 0.0, 1.0]]);
    turn.after(&sheared)
}

/// The source of a warp of a frame onto itself.
fn warp(map: Matrix, frame: Frame, align_corners: bool, compat: KorniaCompat) -> Result<Source> {
    let back = map.inverse().ok_or_else(|| {
        Error::conflict("a warp that cannot be undone was drawn")
            .with_remedy("draw less extreme angles, scales or distortions")
    })?;
    if compat == KorniaCompat::V0_9 {
        return Ok(Source::map(back));
    }
    // Kornia 0.8 normalised matrices as if with align_corners, but sampled as asked; masks always without.
    let legacy = |aligned| {
        let stretch = frame.normalised(aligned).inverse()?.after(&frame.normalised(true));
        Some(stretch.after(&back).after(&stretch.inverse()?))
    };
    let unusable = || Error::conflict("Kornia 0.8 warps frames of more than one pixel only");
    let (image, mask) = legacy(align_corners).zip(legacy(false)).ok_or_else(unusable)?;
    Ok(Source { image, mask, bounds: None, elastic: None })
}

impl Default for Rotate {
    fn default() -> Self {
        Self {
            p: half(),
            degrees: Range::only(0.0),
            interpolation: Interpolation::Bilinear,
            padding: Padding::Zeros,
            align_corners: true,
        }
    }
}

impl Rotate {
    pub(super) fn draw(&self, random: &mut Random) -> Drawn {
        Drawn::Rotate { angle: self.degrees.draw(random) }
    }
}

impl Geometric for Rotate {
    fn source(&self, drawn: &Drawn, frame: Frame, compat: KorniaCompat) -> Result<Source> {
        let Drawn::Rotate { angle } = drawn else { return Err(drawn.misfit("rotate")) };
        let map = affine(frame, -angle, [1.0; 2], [0.0; 2], [0.0; 2]);
        warp(map, frame, self.align_corners, compat)
    }

    fn outside(&self) -> Option<Outside> {
        let Self { padding, align_corners, .. } = *self;
        Some(Outside { padding, fill: 0.0, align_corners })
    }

    fn interpolation(&self) -> Option<Interpolation> {
        Some(self.interpolation)
    }
}

impl Default for Perspective {
    fn default() -> Self {
        Self {
            p: half(),
            distortion: 0.5,
            area_preserving: false,
            interpolation: Interpolation::Bilinear,
            padding: Padding::Zeros,
            align_corners: false,
        }
    }
}

impl Perspective {
    pub(super) fn draw(&self, frame: Frame, random: &mut Random) -> Drawn {
        let (right, bottom) = (frame.columns as f64 - 1.0, frame.rows as f64 - 1.0);
        let from = [[0.0, 0.0], [right, 0.0], [right, bottom], [0.0, bottom]];
        let most =
            [frame.columns as f64, frame.rows as f64].map(|size| self.distortion * size / 2.0);
        let inwards = [[1.0, 1.0], [-1.0, 1.0], [-1.0, -1.0], [1.0, -1.0]];
        let mut to = from;
        for (corner, sign) in to.iter_mut().zip(inwards) {
            for axis in 0..2 {
                let number = random.unit();
                corner[axis] += if self.area_preserving {
                    2.0 * most[axis] * (number - 0.5)
                } else {
                    sign[axis] * most[axis] * number
                };
            }
        }
        Drawn::Perspective { from, to }
    }
}

impl Geometric for Perspective {
    fn source(&self, drawn: &Drawn, frame: Frame, compat: KorniaCompat) -> Result<Source> {
        let Drawn::Perspective { from, to } = drawn else {
            return Err(drawn.misfit("perspective"));
        };
        let map = Matrix::from_points(from, to).unwrap_or(Matrix([[0.0; 3]; 3]));
        warp(map, frame, self.align_corners, compat)
    }

    fn outside(&self) -> Option<Outside> {
        let Self { padding, align_corners, .. } = *self;
        Some(Outside { padding, fill: 0.0, align_corners })
    }

    fn interpolation(&self) -> Option<Interpolation> {
        Some(self.interpolation)
    }
}

impl Default for Elastic {
    fn default() -> Self {
        Self {
            p: half(),
            alpha: [1.0, 1.0],
            sigma: [32.0, 32.0],
            kernel: [63, 63],
            interpolation: Interpolation::Bilinear,
            padding: Padding::Zeros,
            align_corners: false,
        }
    }
}

impl Elastic {
    pub(super) fn check(&self) -> Result<()> {
        let odd = self.kernel.iter().all(|size| size % 2 == 1);
        if odd && self.sigma.iter().all(|sigma| *sigma > 0.0 && sigma.is_finite()) {
            return Ok(());
        }
        Err(Error::conflict(format!(
            "an elastic field smoothed with a kernel of {:?} and sigma {:?}",
            self.kernel, self.sigma
        ))
        .with_remedy("give an odd kernel size and a sigma above 0"))
    }
}

impl Geometric for Elastic {
    fn source(&self, drawn: &Drawn, frame: Frame, _: KorniaCompat) -> Result<Source> {
        let Drawn::Seed { seed } = drawn else { return Err(drawn.misfit("elastic")) };
        let inner = usize::from(self.align_corners);
        let pixels = [
            self.alpha[0] * (frame.columns - inner) as f64 / 2.0,
            self.alpha[1] * (frame.rows - inner) as f64 / 2.0,
        ];
        let Self { kernel, sigma, .. } = *self;
        let field = Field { seed: *seed, kernel, sigma, pixels };
        Ok(Source { elastic: Some(field), ..Source::nothing() })
    }

    fn outside(&self) -> Option<Outside> {
        let Self { padding, align_corners, .. } = *self;
        Some(Outside { padding, fill: 0.0, align_corners })
    }

    fn interpolation(&self) -> Option<Interpolation> {
        Some(self.interpolation)
    }
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

    pub(super) fn draw(&self, frame: Frame, random: &mut Random) -> Drawn {
        let (_, padded) = self.padded(frame);
        let [rows, columns] = self.size;
        let x = random.below((padded.columns - columns + 1) as u64) as usize;
        let y = random.below((padded.rows - rows + 1) as u64) as usize;
        Drawn::Window { x, y, width: columns, height: rows }
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
    pub(crate) fn by_centres(&self) -> Option<bool> {
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

    pub(super) fn check(&self) -> Result<()> {
        size("resized_crop", self.size)?;
        self.scale.check("scale", f64::MIN_POSITIVE, f64::INFINITY)?;
        self.ratio.check("ratio", f64::MIN_POSITIVE, f64::INFINITY)
    }

    pub(super) fn draw(&self, frame: Frame, random: &mut Random) -> Drawn {
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
        Drawn::Window { x, y, width, height }
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
    pub(crate) fn by_centres(&self) -> Option<bool> {
        (self.interpolation == Interpolation::Bilinear).then_some(self.align_corners)
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
}

fn crop_scale() -> Range {
    Range::new(0.08, 1.0)
}

fn crop_ratio() -> Range {
    Range::new(0.75, 4.0 / 3.0)
}

/// A range, or a number that stands for ± that.
fn around_zero<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Range, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Given {
        Number(f64),
        Range(Range),
    }
    Ok(match Given::deserialize(deserializer)? {
        Given::Number(most) => Range::around_zero(most.abs()),
        Given::Range(range) => range,
    })
}
