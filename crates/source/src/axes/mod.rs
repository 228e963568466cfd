//! The axes of an array as the user names them.
//!
//! `axis_order.rs` has their order in memory or in a file, `cube_axes.rs` finds those of the cube,
//! and `lengths.rs` writes their lengths in messages.

pub(crate) mod axis_order;
pub(crate) mod cube_axes;
pub(crate) mod lengths;

use hsipack_format::{Error, Opt, Remedy, Result, remedy};

use crate::axes::axis_order::{Axis, AxisOrder};
use crate::axes::lengths::lengths_text;

/// The axes of an array as the user names them (`--axes`), one letter per axis: `y`, `x` and `b`
/// once each, `n` at most once for the axis of samples, each of which is a cube, and `1` for each
/// axis of length 1 to drop. `11yxb` is (1, 1, row, column, band), `nyxb` is (sample, row, column,
/// band).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Axes(Vec<Letter>);

/// An axis of an array.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Letter {
    /// An axis of the cube.
    Cube(Axis),
    /// The axis of samples.
    Sample,
    /// An axis of length 1 to drop.
    Single,
}

/// No container has arrays with more axes.
const MAX_AXES: usize = 32;

impl Axes {
    /// Parses axes as the user spells them. `None` if a letter is unknown, or if `y`, `x` or `b` is
    /// missing or occurs twice.
    pub fn parse(text: &str) -> Option<Axes> {
        let letters: Vec<Letter> = text
            .chars()
            .map(|letter| match letter.to_ascii_lowercase() {
                'y' => Some(Letter::Cube(Axis::Row)),
                'x' => Some(Letter::Cube(Axis::Column)),
                'b' => Some(Letter::Cube(Axis::Band)),
                'n' => Some(Letter::Sample),
                '1' => Some(Letter::Single),
                _ => None,
            })
            .collect::<Option<_>>()?;
        let count = |wanted| letters.iter().filter(|letter| **letter == wanted).count();
        let whole = [Axis::Row, Axis::Column, Axis::Band]
            .into_iter()
            .all(|axis| count(Letter::Cube(axis)) == 1);
        let has_one_n_at_most = count(Letter::Sample) <= 1;
        (whole && has_one_n_at_most && letters.len() <= MAX_AXES).then_some(Axes(letters))
    }

    /// The position of the axis of samples.
    pub fn sample_axis(&self) -> Option<usize> {
        self.0.iter().position(|letter| *letter == Letter::Sample)
    }

    /// The order of the cube's three axes.
    pub fn order(&self) -> AxisOrder {
        let mut axes = self.0.iter().filter_map(|letter| match letter {
            Letter::Cube(axis) => Some(*axis),
            Letter::Sample | Letter::Single => None,
        });
        AxisOrder(std::array::from_fn(|_| axes.next().expect("three letters, each once")))
    }

    /// The order, for data with exactly three axes.
    ///
    /// # Errors
    /// If the user also names axes of length 1.
    pub fn of_three(&self) -> Result<AxisOrder> {
        match self.0.len() {
            3 => Ok(self.order()),
            named => Err(Error::conflict(format!(
                "'{self}' names {named} axes, but the data have three"
            ))
            .with_remedy("name three axes: y, x and b, each once")),
        }
    }

    /// How many axes the user names, those of samples and of length 1 included.
    pub fn count(&self) -> usize {
        self.0.len()
    }

    /// The positions of the cube's axes in an array of these `lengths`.
    ///
    /// # Errors
    /// If the array has other axes.
    pub(crate) fn within(&self, lengths: &[usize]) -> Result<[usize; 3]> {
        let text = lengths_text(lengths);
        if self.0.len() != lengths.len() {
            return Err(Error::conflict(format!(
                "'{self}' names {} axes, but the array has {}: {text}",
                self.0.len(),
                lengths.len()
            ))
            .with_remedy(
                "name every axis: y, x and b once each, n for an axis of samples, 1 for an axis of length 1",
            ));
        }
        let left_out =
            |(letter, length): (&Letter, &usize)| *letter == Letter::Single && *length != 1;
        if let Some(axis) = self.0.iter().zip(lengths).position(left_out) {
            return Err(Error::conflict(format!(
                "axis {} of the array of {text} does not have length 1, as the axes '{self}' say",
                axis + 1
            ))
            .with_remedy(one_cube_an_array()));
        }
        let is_kept = |axis: &usize| matches!(self.0[*axis], Letter::Cube(_));
        let mut kept = (0..lengths.len()).filter(is_kept);
        Ok(std::array::from_fn(|_| kept.next().expect("three letters, each once")))
    }
}

impl AxisOrder {
    /// Parses an order spelled with the letters `y`, `x`, `b`, each once; `None` if the text is
    /// something else.
    pub fn parse(text: &str) -> Option<AxisOrder> {
        let axes = Axes::parse(text)?;
        axes.of_three().ok()
    }
}

/// The remedy for arrays with more axes than a cube has.
pub(crate) fn one_cube_an_array() -> Remedy {
    remedy![
        "if one axis counts samples, name it n with ",
        Opt::Axes,
        ", such as nyxb; otherwise save each cube as a 3-D array of its own, because only axes of length 1 can be left out"
    ]
}

impl From<AxisOrder> for Axes {
    fn from(order: AxisOrder) -> Self {
        Axes(order.0.map(Letter::Cube).to_vec())
    }
}

impl std::fmt::Display for Axes {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.iter().try_for_each(|letter| {
            f.write_str(match letter {
                Letter::Cube(Axis::Row) => "y",
                Letter::Cube(Axis::Column) => "x",
                Letter::Cube(Axis::Band) => "b",
                Letter::Sample => "n",
                Letter::Single => "1",
            })
        })
    }
}
