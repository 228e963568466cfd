//! Flips and quarter turns.

use serde::{Deserialize, Serialize};

use super::super::{Action, Augmentation, BatchPosition, Op, half};
use super::Geometric;
use crate::drawn::Drawn;
use crate::frame::Frame;
use crate::geometry::{KorniaCompat, Source};
use crate::matrix::Matrix;
use crate::range::Range;
use hsipack_format::random::Random;
use hsipack_format::{Error, Result};

/// Flips left-right (`hflip`) or top-bottom (`vflip`).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Flip {
    /// Share of the samples it is applied to.
    pub p: f64,
}

/// Turns by multiples of 90°, counter-clockwise. A frame that is not square is turned only by
/// multiples of 180°.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Rot90 {
    /// Share of the samples it is applied to.
    pub p: f64,
    /// Minimum and maximum number of quarter turns.
    pub turns: [i32; 2],
    /// Draw as Kornia's RandomRotation90 does: a real number is rounded, so that the minimum and
    /// the maximum are half as likely as the other numbers.
    pub kornia_law: bool,
}

impl Default for Flip {
    fn default() -> Self {
        Self { p: half() }
    }
}

impl Augmentation for Flip {
    fn p(&self) -> f64 {
        self.p
    }

    fn action(&self, op: &Op) -> Action<'_> {
        Action::Moves(if matches!(op, Op::Hflip(_)) { &Horizontal } else { &Vertical })
    }
}

/// Flips left-right.
struct Horizontal;
/// Flips top-bottom.
struct Vertical;

impl Geometric for Horizontal {
    fn source(&self, _: &Drawn, frame: Frame, _: KorniaCompat) -> Result<Source> {
        Ok(Source::map(Matrix::axes(-1.0, frame.columns as f64 - 1.0, 1.0, 0.0)))
    }
}

impl Geometric for Vertical {
    fn source(&self, _: &Drawn, frame: Frame, _: KorniaCompat) -> Result<Source> {
        Ok(Source::map(Matrix::axes(1.0, 0.0, -1.0, frame.rows as f64 - 1.0)))
    }
}

impl Default for Rot90 {
    fn default() -> Self {
        Self { p: half(), turns: [0, 3], kornia_law: false }
    }
}

impl Augmentation for Rot90 {
    fn p(&self) -> f64 {
        self.p
    }

    fn check(&self, _: Frame) -> Result<()> {
        let [least, most] = self.turns;
        if least <= most {
            return Ok(());
        }
        Err(Error::conflict(format!("turns cannot be [{least}, {most}]"))
            .with_remedy("give [least, most] with least <= most"))
    }

    fn check_draws(&self, frame: Frame) -> Result<()> {
        let [least, most] = self.turns;
        let odd = most > least || most % 2 != 0;
        if self.kornia_law && odd && frame.rows != frame.columns {
            return Err(odd_turn(frame));
        }
        Ok(())
    }

    fn draw(
        &self,
        BatchPosition { frame, .. }: BatchPosition,
        random: &mut Random,
    ) -> Result<Drawn> {
        let [least, most] = self.turns;
        let turns = if self.kornia_law {
            let turns = Range::new(f64::from(least), f64::from(most)).draw(random);
            turns.round_ties_even() as i64
        } else {
            let step = if frame.rows == frame.columns { 1 } else { 2 };
            let (least, most) = (i64::from(least), i64::from(most));
            // Start from the smallest number of turns that the frame allows.
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

    fn action(&self, _: &Op) -> Action<'_> {
        Action::Moves(self)
    }
}

fn odd_turn(frame: Frame) -> Error {
    Error::conflict(format!(
        "rot90 cannot turn a frame of {} x {} by a quarter and keep its size",
        frame.rows, frame.columns
    ))
    .with_remedy("allow half turns only, crop to a square first, or use rotate")
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
