//! The order of the axes of an array, if its own file does not say it: the shape of its mask, and other cubes of the same
//! lengths.

use std::collections::HashMap;

use hsipack_source::{AXES_GUESSED, Axes, AxisOrder, OpenOptions};

use super::open_source;
use crate::convert::masks::{MaskGroup, OF_PRODUCT, ROLE};
use crate::convert::named_files;
use crate::convert::options::ValueOptions;
use crate::input::Input;

/// What says the order of the axes of arrays.
pub(super) struct Evidence<'a> {
    inputs: &'a [Input],
    groups: &'a [MaskGroup],
    values: &'a ValueOptions,
    /// Orders by the lengths of arrays; `None` if cubes disagree. Empty until they are needed.
    known: Option<HashMap<[usize; 3], Option<AxisOrder>>>,
}

/// The order of axes of an array, and why.
pub(super) struct Found {
    /// As the user would give it.
    pub axes: String,
    /// For a note.
    pub why: &'static str,
}

const ORDERS: [AxisOrder; 3] = [AxisOrder::BIP, AxisOrder::BIL, AxisOrder::BSQ];

impl<'a> Evidence<'a> {
    pub fn new(inputs: &'a [Input], groups: &'a [MaskGroup], values: &'a ValueOptions) -> Self {
        Self { inputs, groups, values, known: None }
    }

    /// The order of the axes of the array in `input`, which could not be opened without it.
    pub fn of_question(&mut self, input: &Input) -> Option<Found> {
        let lengths = self.lengths(input)?;
        let axes = |order: AxisOrder| order.to_string();
        if let Some(order) = self.of_masks(input, lengths) {
            return Some(Found { axes: axes(order), why: "the shape of its mask" });
        }
        let (inputs, groups, values) = (self.inputs, self.groups, self.values);
        let known = self.known.get_or_insert_with(|| orders_in(inputs, groups, values));
        let order = known.get(&lengths).copied().flatten()?;
        Some(Found { axes: axes(order), why: "another cube with axes of these lengths" })
    }

    /// The order of the axes of an array whose order was only guessed, if its mask contradicts the guess.
    pub fn of_guess(&self, input: &Input) -> Option<Found> {
        if self.groups.is_empty() {
            return None;
        }
        let source = open_source(input, self.values).ok()?;
        let info = source.info();
        if !info.notes.iter().any(|note| note == AXES_GUESSED) {
            return None;
        }
        let order = self.of_masks(input, AxisOrder::BIP.lengths(info.shape))?;
        let differs = order != AxisOrder::BIP;
        differs.then(|| Found { axes: order.to_string(), why: "the shape of its mask" })
    }

    /// The lengths of the axes of an array, without axes of length 1.
    fn lengths(&self, input: &Input) -> Option<[usize; 3]> {
        lengths_of(input, self.values)
    }

    fn of_masks(&self, input: &Input, lengths: [usize; 3]) -> Option<AxisOrder> {
        of_masks(input, lengths, self.groups)
    }
}

fn lengths_of(input: &Input, values: &ValueOptions) -> Option<[usize; 3]> {
    let order = AxisOrder::BIP;
    let forced = Input { axes: Some(Axes::from(order).to_string()), ..input.clone() };
    let shape = open_source(&forced, &without_centers(values)).ok()?.info().shape;
    Some(order.lengths(shape))
}

/// The number of bands is not known yet.
fn without_centers(values: &ValueOptions) -> ValueOptions {
    ValueOptions { band_centers: None, ..values.clone() }
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

/// The orders of axes that the files of cubes, or their masks, say, by the lengths of their arrays.
fn orders_in(
    inputs: &[Input],
    groups: &[MaskGroup],
    values: &ValueOptions,
) -> HashMap<[usize; 3], Option<AxisOrder>> {
    let mut known: HashMap<[usize; 3], Option<AxisOrder>> = HashMap::new();
    let values = without_centers(values);
    for input in inputs {
        let (lengths, order) = match open_source(input, &values) {
            Ok(source) => {
                let info = source.info();
                let Some(order) = info.axes else { continue };
                (order.lengths(info.shape), order)
            }
            Err(_) => {
                let Some(lengths) = lengths_of(input, &values) else { continue };
                let Some(order) = of_masks(input, lengths, groups) else { continue };
                (lengths, order)
            }
        };
        let agreed = known.entry(lengths).or_insert(Some(order));
        if *agreed != Some(order) {
            *agreed = None;
        }
    }
    known
}
