//! The meaning of an array in a container, decided once for all of them: which axis is which, the
//! bands, the values, the place on Earth.
//!
//! | file | decides |
//! |---|---|
//! | `axes` | which axis is which |
//! | `spectrum` | wavelengths, widths, bad bands |
//! | `scaling` | scale factors and offsets |
//! | `missing` | numbers that mark missing values, unsigned numbers |
//! | `location` | where pixels are on Earth |
//! | `value_unit` | units of values, as files state them |
//! | `radiometry` | background and gain of each column and band |

mod axes;
mod location;
pub(crate) mod missing;
pub(crate) mod radiometry;
pub(crate) mod scaling;
pub(crate) mod spectrum;
pub(crate) mod value_unit;

use std::collections::BTreeSet;

use hsipack_format::{DType, Result};

pub use self::axes::AXES_GUESSED;
pub(crate) use self::axes::{Placed, place_alone};
use crate::axes::axis_order::AxisOrder;
use crate::container::{ArrayEntry, Container, recoded};
use crate::meaning::value_unit::value_unit;
use crate::open_options::OpenOptions;
use crate::{CubeInfo, Scaling, Source};

/// An array that is read as a cube, or as a mask.
pub(crate) struct Subject<'a> {
    /// The container.
    pub container: &'a dyn Container,
    /// The array.
    pub entry: &'a ArrayEntry,
    /// The axes of the array that the product to which it belongs defines, and what these are.
    pub layout: Option<([usize; 3], AxisOrder)>,
    /// The user's options.
    pub options: &'a OpenOptions,
}

/// Facts about a cube that its container does not give.
#[derive(Default)]
pub(crate) struct Known {
    /// The scaling.
    pub scaling: Option<Scaling>,
    /// The number that marks missing values, if the container does not state one.
    pub ignore_value: Option<f64>,
    /// Whether the bands are described already.
    pub bands: bool,
}

/// How stored numbers have to be read: their type as it is meant, and the numbers that mark missing
/// values.
#[derive(Debug)]
pub(crate) struct Reading {
    dtype: DType,
    marks: Vec<f64>,
}

impl Reading {
    /// The cube with its numbers as they are meant.
    pub fn apply(&self, source: Box<dyn Source>) -> Box<dyn Source> {
        recoded(source, self.dtype, &self.marks)
    }
}

impl Subject<'_> {
    /// Which axis is which. Guesses are added to `notes`.
    ///
    /// # Errors
    /// If the array cannot be a cube, or its axes cannot be told apart.
    pub fn place(&self, notes: &mut Vec<String>) -> Result<Placed> {
        axes::place(self.container, self.entry, self.layout, self.options, notes)
    }

    /// Fills in what the container says about the bands, values and place of the cube. Returns how
    /// its numbers have to be read.
    ///
    /// # Errors
    /// If a list in the container is damaged.
    pub fn describe(
        &self,
        placed: &Placed,
        predefined: Known,
        info: &mut CubeInfo,
    ) -> Result<Reading> {
        let path = &self.entry.path;
        let is_guess = info.notes.iter().any(|note| note == AXES_GUESSED);
        info.axes = (!is_guess && !self.options.mask).then_some(placed.order);
        if !self.options.mask && !predefined.bands {
            let names = self.container.axis_names(path);
            let of_bands = |axis: &usize| names.get(*axis).cloned().flatten();
            let band = placed.axes[placed.order.position(crate::Axis::Band)];
            let dimension: BTreeSet<String> = of_bands(&band).into_iter().collect();
            spectrum::describe(self.container, path, &dimension, info)?;
        }
        let attributes = self.container.attributes(path);
        info.scaling = match predefined.scaling {
            Some(scaling) => scaling,
            None => scaling::of(&*attributes, &mut info.notes),
        };
        if info.scaling.is_none() && predefined.scaling.is_none() && !self.options.mask {
            info.notes.extend(scaling::suggestion(self.container, path));
        }
        // A product states its unit itself.
        if info.unit.is_none() {
            let name = attributes.find(&["units", "unit"]);
            let stated = name.and_then(|name| attributes.text(&name));
            info.unit = stated.and_then(|text| value_unit(&text, info.wavelength.is_some()));
        }
        let meant = missing::meant_type(&*attributes, info.dtype);
        let mut marks = missing::marks(&*attributes, &mut info.notes);
        if let Some(fill) = self.container.fill_value(path).filter(|fill| !fill.is_nan())
            && !marks.contains(&fill)
        {
            marks.push(fill);
        }
        if marks.is_empty() {
            marks.extend(predefined.ignore_value);
        }
        for mark in &mut marks {
            *mark = missing::mark_as(*mark, info.dtype, meant);
        }
        // The first stands for all of them.
        marks.sort_by_key(|mark| Some(*mark) != self.options.nodata);
        info.ignore_value = marks.first().copied();
        Ok(Reading { dtype: meant, marks })
    }

    /// Where the pixels lie on Earth, if the container follows CF. If the user names the axes
    /// otherwise than the file does, its coordinates do not count.
    pub fn geo(&self, placed: &Placed, notes: &mut Vec<String>) -> Option<hsipack_format::Geo> {
        let agrees = || {
            let names = self.container.axis_names(&self.entry.path);
            let names = placed.axes.map(|axis| names.get(axis).cloned().flatten());
            axes::order_of_names(&names) == Some(placed.order)
        };
        match !self.options.mask && (self.options.axes.is_none() || agrees()) {
            true => location::geo(self.container, &self.entry.path, placed, notes),
            false => None,
        }
    }
}
