//! The axes of an array as the user names them.

use hsipack_format::{Error, Result};

use crate::axis_order::{Axis, AxisOrder};
use crate::lengths::lengths_text;

/// The axes of an array as the user names them (`--axes`), one letter per axis: `y`, `x` and `b` once each,
/// and `1` for each axis of length 1 to drop. `11yxb` is (1, 1, row, column, band).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Axes(Vec<Option<Axis>>);

/// No container has arrays with more axes.
const MOST_AXES: usize = 32;

impl Axes {
    /// Parses axes as the user spells them. `None` if a letter is unknown, or if `y`, `x` or `b` is missing
    /// or occurs twice.
    pub fn parse(text: &str) -> Option<Axes> {
        let letters: Vec<Option<Axis>> = text
            .chars()
            .map(|letter| match letter.to_ascii_lowercase() {
                'y' => Some(Some(Axis::Row)),
                'x' => Some(Some(Axis::Column)),
                'b' => Some(Some(Axis::Band)),
                '1' => Some(None),
                _ => None,
            })
            .collect::<Option<_>>()?;
        let once = |axis| letters.iter().filter(|letter| **letter == Some(axis)).count() == 1;
        let whole = once(Axis::Row) && once(Axis::Column) && once(Axis::Band);
        (whole && letters.len() <= MOST_AXES).then_some(Axes(letters))
    }

    /// The order of the cube's three axes.
    pub fn order(&self) -> AxisOrder {
        let mut axes = self.0.iter().flatten();
        AxisOrder(std::array::from_fn(|_| *axes.next().expect("three letters, each once")))
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

    /// How many axes the user names, those of length 1 included.
    pub(crate) fn count(&self) -> usize {
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
            .with_remedy("name every axis: y, x and b once each, 1 for an axis of length 1"));
        }
        let left_out = |(letter, length): (&Option<Axis>, &usize)| letter.is_none() && *length != 1;
        if let Some(axis) = self.0.iter().zip(lengths).position(left_out) {
            return Err(Error::conflict(format!(
                "axis {} of the array of {text} does not have length 1, as the axes '{self}' say",
                axis + 1
            ))
            .with_remedy(ONE_CUBE_AN_ARRAY));
        }
        let mut kept = (0..lengths.len()).filter(|axis| self.0[*axis].is_some());
        Ok(std::array::from_fn(|_| kept.next().expect("three letters, each once")))
    }
}

impl AxisOrder {
    /// Parses an order spelled with the letters `y`, `x`, `b`, each once; `None` if the text is something else.
    pub fn parse(text: &str) -> Option<AxisOrder> {
        let axes = Axes::parse(text)?;
        axes.of_three().ok()
    }
}

pub(crate) const ONE_CUBE_AN_ARRAY: &str =
    "save each cube as a 3-D array of its own; only axes of length 1 can be left out";

impl From<AxisOrder> for Axes {
    fn from(order: AxisOrder) -> Self {
        Axes(order.0.map(Some).to_vec())
    }
}

impl std::fmt::Display for Axes {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.iter().try_for_each(|letter| {
            f.write_str(match letter {
                Some(Axis::Row) => "y",
                Some(Axis::Column) => "x",
                Some(Axis::Band) => "b",
                None => "1",
            })
        })
    }
}
