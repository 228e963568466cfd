//! The order of the axes of an array, if its own file does not say it: the shape of its mask, and
//! other cubes of the same lengths.

use std::collections::HashMap;

use hsipack_format::{Error, Opt, Result, remedy};
use hsipack_source::{AXES_GUESSED, Axes, AxisOrder, CubeInfo, OpenOptions};

use super::open_source;
use crate::convert::masks::{MaskGroup, OF_PRODUCT, ROLE};
use crate::convert::named_files;
use crate::convert::options::ValueOptions;
use crate::input::Input;

/// Evidence for the order of the axes of arrays. It is collected while inputs are examined, so that
/// no input is opened for it alone: an input whose axes are not known waits until another input of
/// the same lengths says them.
pub(super) struct Evidence<'a> {
    groups: &'a [MaskGroup],
    values: &'a ValueOptions,
    /// Orders by the lengths of arrays.
    orders: HashMap<[usize; 3], Known>,
}

/// The order of arrays of certain lengths.
struct Known {
    /// `None` if cubes disagree.
    order: Option<AxisOrder>,
    /// The cube that says it.
    according_to: String,
    /// Whether it was used for a cube.
    is_used: bool,
}

/// The order of axes of an array, and why.
pub(super) struct Found {
    /// As the user would give it.
    pub axes: String,
    /// For a note.
    pub why: &'static str,
}

/// The answer to the question for the order of axes.
pub(super) enum Answer {
    /// The order.
    Found(Found),
    /// Another cube with axes of these lengths may say it.
    Later([usize; 3]),
    /// The array cannot be opened in any order.
    Never,
}

const ORDERS: [AxisOrder; 3] = [AxisOrder::BIP, AxisOrder::BIL, AxisOrder::BSQ];

impl<'a> Evidence<'a> {
    pub fn new(groups: &'a [MaskGroup], values: &'a ValueOptions) -> Self {
        Self { groups, values, orders: HashMap::new() }
    }

    /// Learns the order of a cube whose file, or whose mask, says it.
    ///
    /// # Errors
    /// If another order was used for a cube with axes of these lengths.
    pub fn learn(&mut self, input: &Input, info: &CubeInfo) -> Result<()> {
        let Some(order) = info.axes else { return Ok(()) };
        let lengths = order.lengths(info.shape);
        let says = || Known { order: Some(order), according_to: input.text(), is_used: false };
        let entry = self.orders.entry(lengths).or_insert_with(says);
        if entry.order.is_none_or(|before| before == order) {
            return Ok(());
        }
        if entry.is_used {
            let before = entry.order.map(|before| before.to_string()).unwrap_or_default();
            return Err(Error::ambiguous(format!(
                "its axes are {order}, but those of {} are {before}, although their lengths are the same; other files do not say their axes",
                entry.according_to
            ))
            .at(&input.file)
            .with_remedy(remedy!["give the order of axes with ", Opt::Axes]));
        }
        entry.order = None;
        Ok(())
    }

    /// The order of the axes of the array in `input`, which could not be opened without it.
    pub fn of_question(&mut self, input: &Input) -> Answer {
        let Some(lengths) = lengths_of(input, self.values) else { return Answer::Never };
        match of_masks(input, lengths, self.groups) {
            Some(order) => {
                Answer::Found(Found { axes: order.to_string(), why: "the shape of its mask" })
            }
            None => self.of_lengths(lengths).map_or(Answer::Later(lengths), Answer::Found),
        }
    }

    /// The order of the axes of arrays of these lengths, if a cube has said it.
    pub fn of_lengths(&mut self, lengths: [usize; 3]) -> Option<Found> {
        let entry = self.orders.get_mut(&lengths)?;
        let axes = entry.order?.to_string();
        entry.is_used = true;
        Some(Found { axes, why: "another cube with axes of these lengths" })
    }

    /// The order of the axes of an array whose order was only guessed, if its mask contradicts the
    /// guess.
    pub fn of_guess(&self, input: &Input) -> Option<Found> {
        if self.groups.is_empty() {
            return None;
        }
        let source = open_source(input, self.values).ok()?;
        let info = source.info();
        if !info.notes.iter().any(|note| note == AXES_GUESSED) {
            return None;
        }
        let order = of_masks(input, AxisOrder::BIP.lengths(info.shape), self.groups)?;
        let differs = order != AxisOrder::BIP;
        differs.then(|| Found { axes: order.to_string(), why: "the shape of its mask" })
    }
}

fn lengths_of(input: &Input, values: &ValueOptions) -> Option<[usize; 3]> {
    let order = AxisOrder::BIP;
    let forced = Input { axes: Some(Axes::from(order).to_string()), ..input.clone() };
    let shape = open_source(&forced, &without_centers(values)).ok()?.info().shape;
    Some(order.lengths(shape))
}

/// The number of bands is not known yet, nor which axis they have.
fn without_centers(values: &ValueOptions) -> ValueOptions {
    ValueOptions { band_centers: None, resample: None, ..values.clone() }
}

/// The only order in which an array has the rows and columns of its masks.
fn of_masks(input: &Input, lengths: [usize; 3], groups: &[MaskGroup]) -> Option<AxisOrder> {
    let patterns = groups.iter().flat_map(|group| &group.patterns).map(|(_, pattern)| pattern);
    for pattern in patterns.filter(|pattern| *pattern != OF_PRODUCT) {
        let Some(file) = named_files::find(pattern, input, ROLE).ok().flatten() else { continue };
        let options = OpenOptions { variable: file.variable, mask: true, ..OpenOptions::default() };
        let Ok(mask) = hsipack_source::open(&file.file, &options) else { continue };
        let shape = mask.info().shape;
        if shape.bands != 1 {
            continue;
        }
        let fits = |order: &&AxisOrder| {
            let cube = order.shape(lengths);
            (cube.rows, cube.columns) == (shape.rows, shape.columns)
        };
        let mut fitting = ORDERS.iter().filter(fits);
        if let (Some(order), None) = (fitting.next(), fitting.next()) {
            return Some(*order);
        }
    }
    None
}
