//! Affine maps, rotation, perspective, elastic fields.

use std::f64::consts::PI;

use serde::{Deserialize, Deserializer, Serialize};

use super::super::{Action, Augmentation, BatchPosition, Op, half};
use super::Geometric;
use crate::drawn::Drawn;
use crate::frame::Frame;
use crate::geometry::{Field, Interpolation, KorniaCompat, Outside, Padding, Source};
use crate::matrix::Matrix;
use crate::range::Range;
use hsipack_format::random::Random;
use hsipack_format::{Error, Result};

/// Shears, then rotates and scales about the centre, then shifts. Positive angles rotate clockwise,
/// as in Kornia's RandomAffine.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Affine {
    /// Share of the samples it is applied to.
    pub p: f64,
    /// Angle in degrees; a single number x means -x to x.
    #[serde(deserialize_with = "around_zero")]
    pub degrees: Range,
    /// Largest shift, as a fraction of the frame's width and of its height.
    pub translate: [f64; 2],
    /// Scale factor of both axes, or only of x if `scale_y` is given.
    pub scale: Range,
    /// Scale factor of y.
    pub scale_y: Option<Range>,
    /// Shear along x in degrees; a single number x means -x to x.
    #[serde(deserialize_with = "around_zero")]
    pub shear: Range,
    /// Shear along y in degrees.
    pub shear_y: Option<Range>,
    /// Interpolation between pixels.
    pub interpolation: Interpolation,
    /// Padding outside the frame.
    pub padding: Padding,
    /// Value used instead of zero outside the frame.
    pub fill: f64,
    /// Where `reflection` mirrors: at pixel centres if true, otherwise at edges.
    pub align_corners: bool,
}

/// Rotates about the centre. Positive angles rotate counter-clockwise, as in Kornia's
/// RandomRotation.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Rotate {
    /// Share of the samples it is applied to.
    pub p: f64,
    /// Angle in degrees; a single number x means -x to x.
    #[serde(deserialize_with = "around_zero")]
    pub degrees: Range,
    /// Interpolation between pixels.
    pub interpolation: Interpolation,
    /// Padding outside the frame.
    pub padding: Padding,
    /// Where `reflection` mirrors: at pixel centres if true, otherwise at edges.
    pub align_corners: bool,
}

/// Moves each corner independently, and warps the image with them.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Perspective {
    /// Share of the samples it is applied to.
    pub p: f64,
    /// Largest move of a corner, as a fraction of half the frame.
    pub distortion: f64,
    /// Corners move outwards as well as inwards.
    pub area_preserving: bool,
    /// Interpolation between pixels.
    pub interpolation: Interpolation,
    /// Padding outside the frame.
    pub padding: Padding,
    /// Where `reflection` mirrors: at pixel centres if true, otherwise at edges.
    pub align_corners: bool,
}

/// Displaces every pixel by a smooth random field.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Elastic {
    /// Share of the samples it is applied to.
    pub p: f64,
    /// Strength along x and y: a field value of 1 displaces by half the frame's width or height,
    /// times this number.
    pub alpha: [f64; 2],
    /// Width of the Gaussian that smooths the field, in rows and columns.
    pub sigma: [f64; 2],
    /// Size of the Gaussian's kernel in rows and columns; must be odd.
    pub kernel: [usize; 2],
    /// Interpolation between pixels.
    pub interpolation: Interpolation,
    /// Padding outside the frame.
    pub padding: Padding,
    /// Where `reflection` mirrors, and whether half a frame is (width - 1)/2.
    pub align_corners: bool,
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

impl Augmentation for Affine {
    fn p(&self) -> f64 {
        self.p
    }

    fn check(&self, _: Frame) -> Result<()> {
        let all = f64::INFINITY;
        self.degrees.check("degrees", -all, all)?;
        self.scale.check("scale", f64::MIN_POSITIVE, all)?;
        self.scale_y.map_or(Ok(()), |scale| scale.check("scale_y", f64::MIN_POSITIVE, all))?;
        for (shear, what) in [(Some(self.shear), "shear"), (self.shear_y, "shear_y")] {
            shear.map_or(Ok(()), |shear| shear.check(what, -89.0, 89.0))?;
        }
        match self.translate.iter().find(|part| !(0.0..=1.0).contains(*part)) {
            Some(part) => Err(Error::conflict(format!("translate cannot be {part} of the frame"))
                .with_remedy("give shares of the frame, from 0 to 1")),
            None => Ok(()),
        }
    }

    fn draw(
        &self,
        BatchPosition { frame, .. }: BatchPosition,
        random: &mut Random,
    ) -> Result<Drawn> {
        let angle = self.degrees.draw(random);
        let scale = self.scale.draw(random);
        let scale_y = self.scale_y.map_or(scale, |range| range.draw(random));
        let [part_x, part_y] = self.translate.map(|part| Range::around_zero(part).draw(random));
        let translation = [part_x * frame.columns as f64, part_y * frame.rows as f64];
        let shear_y = self.shear_y.unwrap_or(Range::only(0.0));
        let shear = [self.shear.draw(random), shear_y.draw(random)];
        Ok(Drawn::Affine { angle, scale: [scale, scale_y], translation, shear })
    }

    fn action(&self, _: &Op) -> Action<'_> {
        Action::Moves(self)
    }
}

impl Geometric for Affine {
    fn source(&self, drawn: &Drawn, frame: Frame, compat: KorniaCompat) -> Result<Source> {
        Ok(sampled(self.points(drawn, frame, compat)?, frame, self.align_corners))
    }

    fn points(&self, drawn: &Drawn, frame: Frame, compat: KorniaCompat) -> Result<Source> {
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

/// The map from the frame's pixels to the result's.
fn affine(frame: Frame, angle: f64, scale: [f64; 2], by: [f64; 2], shear: [f64; 2]) -> Matrix {
    let [cx, cy] = frame.centre();
    let (sin, cos) = sine_and_cosine(angle);
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

/// The sine and cosine of an angle in degrees. They are exact for quarter turns, which therefore
/// move whole pixels.
fn sine_and_cosine(degrees: f64) -> (f64, f64) {
    let quarters = degrees / 90.0;
    if quarters.fract() != 0.0 {
        return (degrees * PI / 180.0).sin_cos();
    }
    match quarters.rem_euclid(4.0) as u8 {
        0 => (0.0, 1.0),
        1 => (1.0, 0.0),
        2 => (0.0, -1.0),
        _ => (-1.0, 0.0),
    }
}

/// The source for a warp of a frame onto itself.
fn warp(map: Matrix, frame: Frame, align_corners: bool, compat: KorniaCompat) -> Result<Source> {
    let back = map.inverse().ok_or_else(|| {
        Error::conflict("the warp that was drawn has no inverse")
            .with_remedy("use less extreme angles, scales or distortions")
    })?;
    if compat == KorniaCompat::V0_9 {
        return Ok(Source::map(back));
    }
    // Kornia 0.8 normalised matrices as if `align_corners` was on, but sampled as requested; masks always without it.
    let legacy = |aligned| {
        let stretch = frame.normalised(aligned).inverse()?.after(&frame.normalised(true));
        Some(stretch.after(&back).after(&stretch.inverse()?))
    };
    let unusable = || {
        Error::conflict("warps as in Kornia 0.8 need frames of more than one pixel")
            .with_remedy("use those of Kornia 0.9, the default")
    };
    let (image, mask) = legacy(align_corners).zip(legacy(false)).ok_or_else(unusable)?;
    Ok(Source { image, mask, bounds: None, elastic: None })
}

/// The sampling positions of a warp, from the map of its points. With `align_corners`, an axis of a
/// single pixel has length 0 for libtorch's sampling and so for Kornia: every position along it is
/// that pixel.
fn sampled(mut points: Source, frame: Frame, align_corners: bool) -> Source {
    for map in [&mut points.image, &mut points.mask] {
        if align_corners && frame.columns == 1 {
            map.0[0] = [1.0, 0.0, 0.0];
        }
        if align_corners && frame.rows == 1 {
            map.0[1] = [0.0, 1.0, 0.0];
        }
    }
    points
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

impl Augmentation for Rotate {
    fn p(&self) -> f64 {
        self.p
    }

    fn check(&self, _: Frame) -> Result<()> {
        self.degrees.check("degrees", f64::NEG_INFINITY, f64::INFINITY)
    }

    fn draw(&self, _: BatchPosition, random: &mut Random) -> Result<Drawn> {
        Ok(Drawn::Rotate { angle: self.degrees.draw(random) })
    }

    fn action(&self, _: &Op) -> Action<'_> {
        Action::Moves(self)
    }
}

impl Geometric for Rotate {
    fn source(&self, drawn: &Drawn, frame: Frame, compat: KorniaCompat) -> Result<Source> {
        Ok(sampled(self.points(drawn, frame, compat)?, frame, self.align_corners))
    }

    fn points(&self, drawn: &Drawn, frame: Frame, compat: KorniaCompat) -> Result<Source> {
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

impl Augmentation for Perspective {
    fn p(&self) -> f64 {
        self.p
    }

    fn check(&self, _: Frame) -> Result<()> {
        Range::only(self.distortion).check("distortion", 0.0, 1.0)
    }

    fn draw(
        &self,
        BatchPosition { frame, .. }: BatchPosition,
        random: &mut Random,
    ) -> Result<Drawn> {
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
        Ok(Drawn::Perspective { from, to })
    }

    fn action(&self, _: &Op) -> Action<'_> {
        Action::Moves(self)
    }
}

impl Geometric for Perspective {
    fn frame(&self, frame: Frame) -> Result<Frame> {
        if frame.rows > 1 && frame.columns > 1 {
            return Ok(frame);
        }
        let Frame { rows, columns, .. } = frame;
        Err(Error::conflict(format!(
            "perspective needs four corners, but those of a frame of {rows} x {columns} coincide"
        ))
        .with_remedy("give frames of at least two rows and two columns, or leave out perspective"))
    }

    fn source(&self, drawn: &Drawn, frame: Frame, compat: KorniaCompat) -> Result<Source> {
        Ok(sampled(self.points(drawn, frame, compat)?, frame, self.align_corners))
    }

    fn points(&self, drawn: &Drawn, frame: Frame, compat: KorniaCompat) -> Result<Source> {
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

impl Augmentation for Elastic {
    fn p(&self) -> f64 {
        self.p
    }

    fn check(&self, _: Frame) -> Result<()> {
        let odd = self.kernel.iter().all(|size| size % 2 == 1);
        if odd && self.sigma.iter().all(|sigma| *sigma > 0.0 && sigma.is_finite()) {
            return Ok(());
        }
        Err(Error::conflict(format!(
            "a kernel of {:?} with sigma {:?} cannot smooth an elastic field",
            self.kernel, self.sigma
        ))
        .with_remedy("give odd kernel sizes, and sigmas above 0"))
    }

    fn draw(&self, _: BatchPosition, random: &mut Random) -> Result<Drawn> {
        Ok(Drawn::seed(random))
    }

    fn action(&self, _: &Op) -> Action<'_> {
        Action::Moves(self)
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

    fn precedes(&self) -> bool {
        // A field is evaluated at the result's pixels, so no later move may shift them.
        false
    }
}

/// A range, or a single number x that means -x to x.
fn around_zero<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Range, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged, expecting = "degrees are a number or [low, high]")]
    enum NumberOrRange {
        Number(f64),
        Range(Range),
    }
    Ok(match NumberOrRange::deserialize(deserializer)? {
        NumberOrRange::Number(most) => Range::around_zero(most.abs()),
        NumberOrRange::Range(range) => range,
    })
}
