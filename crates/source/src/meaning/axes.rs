//! Which axis of an array is which. The evidence, strongest first:
//!
//! ```text
//! --axes                                         what the user says
//! a product                                      its layout
//! names of the axes                              y, x, band; latitude; wavelength …
//! a list whose length only one axis has          wavelengths, band numbers, widths, bad bands
//! the shape of a mask beside the array           rows and columns; the third axis holds the bands
//! none                                           (row, column, band), with a note; or a question
//! ```
//!
//! The user is asked if a list fits several axes, or if the lengths speak against (row, column,
//! band): the first axis is strictly the shortest, or the last two are equal and the first differs.

use std::collections::BTreeSet;
use std::ops::Range;

use hsipack_format::{CubeShape, DType, Error, Opt, Result, remedy};

use super::spectrum;
use crate::axes::Axes;
use crate::axes::axis_order::{Axis, AxisOrder};
use crate::axes::cube_axes::{empty, kept_axes, too_few_axes};
use crate::axes::lengths::lengths_text;
use crate::axes::lengths::too_large;
use crate::container::{ArrayEntry, Container, Entries, plain};
use crate::flat::SampleAxis;
use crate::open_options::OpenOptions;

/// A cube within an array.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Placed {
    /// Lengths of all axes of the array, in index order.
    pub lengths: Vec<usize>,
    /// Which of these axes are the cube's. An index after the last axis stands for an axis of
    /// length 1, such as the bands of a 2-D mask.
    pub axes: [usize; 3],
    /// Meaning of these three axes.
    pub order: AxisOrder,
    /// If the array holds several samples, their axis, and the index of this one.
    pub sample: Option<(usize, usize)>,
}

impl Placed {
    fn length(&self, axis: usize) -> usize {
        self.lengths.get(axis).copied().unwrap_or(1)
    }

    /// The cube's shape.
    pub fn shape(&self) -> CubeShape {
        self.order.shape(self.axes.map(|axis| self.length(axis)))
    }

    /// Which values of the array are the cube's, if it holds several samples: in C order of its
    /// indices.
    pub fn samples(&self) -> Option<SampleAxis> {
        let (axis, index) = self.sample?;
        let before = self.axes.iter().filter(|of_cube| **of_cube < axis).count();
        Some(SampleAxis { before, count: self.length(axis), index })
    }

    /// The indices along `axis` that hold rows `rows` of the cube.
    pub fn range(&self, axis: usize, rows: &Range<usize>) -> Range<usize> {
        match self.sample {
            Some((samples, index)) if samples == axis => index..index + 1,
            _ if axis == self.row_axis() => rows.clone(),
            _ => 0..self.lengths[axis],
        }
    }

    /// Bytes of the whole array; `None` if that overflows.
    pub fn array_len(&self, dtype: DType) -> Option<u64> {
        let values =
            self.lengths.iter().try_fold(1usize, |all, length| all.checked_mul(*length))?;
        u64::try_from(values.checked_mul(dtype.size())?).ok()
    }

    /// The array's axis of image rows.
    pub fn row_axis(&self) -> usize {
        self.axes[self.order.position(Axis::Row)]
    }

    /// The same cube with the array's axes in reverse: the order on disk if the first index is the
    /// fastest.
    pub fn reversed(&self) -> Placed {
        let mut lengths = self.lengths.clone();
        lengths.reverse();
        let last = lengths.len().wrapping_sub(1);
        let mirrored = |axis: usize| if axis > last { axis } else { last - axis };
        let [a, b, c] = self.axes.map(mirrored);
        let sample = self.sample.map(|(axis, index)| (mirrored(axis), index));
        let order = self.order.reversed();
        if self.axes[2] > last {
            // A 2-D mask: its band axis stays behind the two others.
            let AxisOrder([_, x, y]) = order;
            return Placed {
                lengths,
                axes: [b, a, self.axes[2]],
                order: AxisOrder([x, y, Axis::Band]),
                sample,
            };
        }
        Placed { lengths, axes: [c, b, a], order, sample }
    }
}

/// Meaning of an axis, according to its name.
pub(crate) fn axis_of_name(name: &str) -> Option<Axis> {
    let name = plain(name);
    Some(match name.as_str() {
        "y" | "row" | "rows" | "line" | "lines" | "lat" | "latitude" | "northing" | "downtrack"
        | "height" | "alongtrack" | "yc" | "scan" | "scans" | "nrow" | "nrows" | "ny" => Axis::Row,
        "x" | "column" | "columns" | "col" | "cols" | "sample" | "samples" | "lon"
        | "longitude" | "easting" | "crosstrack" | "width" | "acrosstrack" | "xc" | "ncol"
        | "ncols" | "pixel" | "pixels" | "nx" => Axis::Column,
        "b" | "band" | "bands" | "channel" | "channels" | "c" | "wvl" | "wl" | "wave"
        | "lambda" | "spectral" | "spectrum" | "nbands" | "nband" | "spectralbands"
        | "wavelengthnm" => Axis::Band,
        name if name.contains("wavelength") => Axis::Band,
        _ => return None,
    })
}

/// The order that the names of three axes give. `None` unless the band axis is named, or both
/// others are and the third is not known to be something else.
pub(super) fn order_of_names(names: &[Option<String>; 3]) -> Option<AxisOrder> {
    let axes = names.each_ref().map(|name| name.as_deref().and_then(axis_of_name));
    let only = |axis| {
        let mut at = (0..3).filter(|i| axes[*i] == Some(axis));
        at.next().filter(|_| at.next().is_none())
    };
    let (row, column) = (only(Axis::Row), only(Axis::Column));
    let band = match (only(Axis::Band), row, column) {
        (Some(band), _, _) => band,
        (None, Some(row), Some(column)) => {
            let third = 3 - row - column;
            let name = names[third].as_deref().map(plain).unwrap_or_default();
            if axes[third].is_some() || ["t", "time", "times", "date"].contains(&name.as_str()) {
                return None;
            }
            third
        }
        _ => return None,
    };
    match (row, column) {
        // By their names, columns come before rows, unlike in most images.
        (Some(row), Some(column)) if column < row => {
            let mut order = [Axis::Band; 3];
            (order[row], order[column]) = (Axis::Row, Axis::Column);
            Some(AxisOrder(order))
        }
        _ => Some(with_band_at(band)),
    }
}

/// The order with the band axis at position `band`, and row before column.
fn with_band_at(band: usize) -> AxisOrder {
    match band {
        0 => AxisOrder::BSQ,
        1 => AxisOrder::BIL,
        _ => AxisOrder::BIP,
    }
}

/// The positions of the axes that are `length` long.
fn axes_of(lengths: [usize; 3], length: usize) -> Vec<usize> {
    (0..3).filter(|axis| lengths[*axis] == length).collect()
}

/// Refuses axes that cannot be told apart.
fn ask<T>(name: &str, lengths: &[usize], why: &str) -> Result<T> {
    let what = if name.is_empty() { "the array".to_owned() } else { format!("'{name}'") };
    Err(Error::ambiguous(format!("{what} is {}, and {why}", lengths_text(lengths))).with_remedy(
        remedy![
            "give the order of axes with ",
            Opt::Axes,
            ": yxb if it is (row, column, band), ybx if (row, band, column), byx if (band, row, column)"
        ],
    ))
}

/// The note of a cube whose order of axes is a guess.
pub const AXES_GUESSED: &str = "nothing says what the axes are; assumed to be (row, column, band)";

/// The order if nothing but the lengths is known.
///
/// # Errors
/// If the lengths speak against (row, column, band).
fn order_of_lengths(
    name: &str,
    [a, b, c]: [usize; 3],
    notes: &mut Vec<String>,
) -> Result<AxisOrder> {
    // A single line is a reference, not a cube of one band.
    let why = match () {
        () if a > 1 && a < b && a < c => "its first axis is the shortest, so it may hold the bands",
        () if b == c && a != b => {
            "its last two axes are equally long, so the first may hold the bands"
        }
        () => {
            notes.push(AXES_GUESSED.to_owned());
            return Ok(AxisOrder::BIP);
        }
    };
    ask(name, &[a, b, c], why)
}

/// Names of masks and maps of classes, in [`plain`] spelling.
const MASKS: [&str; 16] = [
    "map",
    "gt",
    "groundtruth",
    "mask",
    "masks",
    "label",
    "labels",
    "class",
    "classes",
    "classmap",
    "annotation",
    "annotations",
    "segmentation",
    "roi",
    "labelmap",
    "target",
];

/// The order that the shapes of masks beside the array give, if they agree.
fn order_of_masks(container: &dyn Container, path: &str, lengths: [usize; 3]) -> Option<AxisOrder> {
    let is_mask = |name: &str| MASKS.contains(&&*plain(name));
    let mut bands = BTreeSet::new();
    for entry in container.arrays_anywhere(&is_mask) {
        let [rows, columns] = entry.lengths[..] else { continue };
        if rows < 2 || columns < 2 || entry.path == path {
            continue;
        }
        for (row, column, band) in [(0, 1, 2), (0, 2, 1), (1, 2, 0)] {
            if (lengths[row], lengths[column]) == (rows, columns) {
                bands.insert(band);
            }
        }
    }
    match bands.len() {
        1 => bands.first().map(|band| with_band_at(*band)),
        _ => None,
    }
}

/// The axes of a mask, whose bands, if it has any, are of no interest: never a question.
fn order_of_mask(lengths: [usize; 3], image: Option<[usize; 2]>) -> AxisOrder {
    let fits = |[rows, columns]: [usize; 2]| {
        let places = [(0, 1, 2), (0, 2, 1), (1, 2, 0)];
        let mut found = places
            .into_iter()
            .filter(|(row, column, _)| (lengths[*row], lengths[*column]) == (rows, columns));
        found.next().map(|(_, _, band)| band)
    };
    let layer = || axes_of(lengths, 1).first().copied();
    with_band_at(image.and_then(fits).or_else(layer).unwrap_or(2))
}

/// The cube in an array: which axes are which.
///
/// `product` is the layout that a product defines, if the array belongs to one.
///
/// # Errors
/// If the array cannot be a cube, or its axes cannot be told apart.
pub(super) fn place(
    container: &dyn Container,
    entry: &ArrayEntry,
    product: Option<([usize; 3], AxisOrder)>,
    options: &OpenOptions,
    notes: &mut Vec<String>,
) -> Result<Placed> {
    let lengths = entry.lengths.clone();
    if lengths.contains(&0) {
        return Err(empty(&lengths));
    }
    let placed = match lengths.len() {
        _ if options.mask
            && let Some(mask) = sample_mask(&lengths, options)? =>
        {
            mask
        }
        2 if options.mask => mask_image(container, entry, options),
        0..=2 => return Err(too_few_axes(&lengths)),
        _ => three(container, entry, product, options, notes)?,
    };
    if placed.shape().checked_values().is_none() {
        return Err(too_large(&lengths));
    }
    Ok(placed)
}

fn mask_image(container: &dyn Container, entry: &ArrayEntry, options: &OpenOptions) -> Placed {
    let names = container.axis_names(&entry.path);
    let axes = [0, 1].map(|axis| names.get(axis)?.as_deref().and_then(axis_of_name));
    let turned = match options.axes.as_ref().map(Axes::order) {
        Some(order) => order.position(Axis::Column) < order.position(Axis::Row),
        None => axes == [Some(Axis::Column), Some(Axis::Row)],
    };
    let order =
        if turned { AxisOrder([Axis::Column, Axis::Row, Axis::Band]) } else { AxisOrder::BIP };
    Placed { lengths: entry.lengths.clone(), axes: [0, 1, 2], order, sample: None }
}

/// The mask of one sample in an array of masks: the axis of samples is the first one that has their
/// number, and without which the array has the shape of the image. `None` if the array holds a
/// single mask, which may have layers.
///
/// # Errors
/// If there are not as many masks.
fn sample_mask(lengths: &[usize], options: &OpenOptions) -> Result<Option<Placed>> {
    let (Some(index), Some([rows, columns])) = (options.sample, options.image) else {
        return Ok(None);
    };
    let long = |axis: &usize| lengths[*axis] > 1 || lengths.len() == 3;
    let axes: Vec<usize> = (0..lengths.len()).filter(long).collect();
    let [a, b, c] = axes[..] else { return Ok(None) };
    let fits = |[samples, row, column]: &[usize; 3]| {
        let count = options.samples.is_none_or(|count| lengths[*samples] == count);
        count && (lengths[*row], lengths[*column]) == (rows, columns)
    };
    let orders = [[a, b, c], [b, a, c], [c, a, b]];
    let Some([samples, row, column]) = orders.into_iter().find(fits) else { return Ok(None) };
    check_sample(index, lengths[samples])?;
    // An index after the last axis stands for the bands, which there are none of.
    let axes = [row, column, lengths.len()];
    let (lengths, sample) = (lengths.to_vec(), Some((samples, index)));
    Ok(Some(Placed { lengths, axes, order: AxisOrder::BIP, sample }))
}

fn check_sample(index: usize, count: usize) -> Result<()> {
    if index < count {
        return Ok(());
    }
    Err(Error::conflict(format!("there is no sample {index}; the array has {count}"))
        .with_remedy("samples are counted from 0"))
}

fn three(
    container: &dyn Container,
    entry: &ArrayEntry,
    product: Option<([usize; 3], AxisOrder)>,
    options: &OpenOptions,
    notes: &mut Vec<String>,
) -> Result<Placed> {
    let lengths = entry.lengths.clone();
    if let (Some((axes, order)), None) = (product, &options.axes) {
        return Ok(Placed { lengths, axes, order, sample: None });
    }
    let axes = kept_axes(&lengths, options.axes.as_ref())?;
    let sample = match options.axes.as_ref().and_then(Axes::sample_axis) {
        None => None,
        Some(axis) => {
            let index = options.sample.ok_or_else(|| which_sample(entry, lengths[axis]))?;
            check_sample(index, lengths[axis])?;
            Some((axis, index))
        }
    };
    let long = axes.map(|axis| lengths[axis]);
    let order = match options.axes.as_ref().map(Axes::order) {
        Some(order) => order,
        None => order(container, entry, axes, long, options, notes)?,
    };
    Ok(Placed { lengths, axes, order, sample })
}

/// The error for an array of samples of which none is named.
fn which_sample(entry: &ArrayEntry, count: usize) -> Error {
    Error::ambiguous(format!("the array holds {count} samples"))
        .with_remedy(format!("name one by its index from 0, such as FILE::{}[0]", entry.name()))
}

fn order(
    container: &dyn Container,
    entry: &ArrayEntry,
    axes: [usize; 3],
    lengths: [usize; 3],
    options: &OpenOptions,
    notes: &mut Vec<String>,
) -> Result<AxisOrder> {
    let names = container.axis_names(&entry.path);
    let names = axes.map(|axis| names.get(axis).cloned().flatten());
    if let Some(order) = order_of_names(&names) {
        return Ok(order);
    }
    if options.mask {
        return Ok(order_of_mask(lengths, options.image));
    }
    let is_band = |name: &String| axis_of_name(name) == Some(Axis::Band);
    let dimensions = names.into_iter().flatten().filter(is_band).collect();
    let search = spectrum::find(container, &entry.path, &lengths, &dimensions)?;
    let list = search.length.or_else(|| spectrum::other_length(container, &entry.path, &lengths));
    let fits = list.as_ref().map_or(Vec::new(), |(length, _)| axes_of(lengths, *length));
    if let [only] = fits[..] {
        return Ok(with_band_at(only));
    }
    if let Some(order) = order_of_masks(container, &entry.path, lengths) {
        return Ok(order);
    }
    if let Some((length, found)) = list {
        let why = format!("the list in {found} ({length} values) fits more than one axis");
        return ask(entry.name(), &lengths, &why);
    }
    order_of_lengths(entry.name(), lengths, notes)
}

/// The order of the axes of an array beside which there is nothing else: (row, column, band),
/// unless the user or the lengths say otherwise.
///
/// # Errors
/// If the array cannot be a cube, or its axes cannot be told apart.
pub(crate) fn place_alone(
    lengths: &[usize],
    options: &OpenOptions,
    notes: &mut Vec<String>,
) -> Result<Placed> {
    let entry = ArrayEntry { path: String::new(), lengths: lengths.to_vec(), dtype: None };
    place(&Entries(Vec::new()), &entry, None, options, notes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn order(names: [&str; 3]) -> Option<String> {
        let names = names.map(|name| Some(name.to_owned()).filter(|name| !name.is_empty()));
        order_of_names(&names).map(|order| order.to_string())
    }

    #[test]
    fn axis_names_give_the_order() {
        assert_eq!(order(["y", "x", "band"]).unwrap(), "yxb");
        assert_eq!(order(["downtrack", "crosstrack", "bands"]).unwrap(), "yxb");
        assert_eq!(order(["wavelength", "lat", "lon"]).unwrap(), "byx");
        assert_eq!(order(["wavelength", "", ""]).unwrap(), "byx");
        assert_eq!(order(["lon", "lat", "wavelength"]).unwrap(), "xyb");
        assert_eq!(order(["z", "y", "x"]).unwrap(), "byx");
        assert_eq!(order(["x", "b", "y"]).unwrap(), "xby");
        assert_eq!(order(["line", "band", "sample"]).unwrap(), "ybx");
        assert_eq!(order(["channel", "dim_1", "dim_2"]).unwrap(), "byx");
        assert_eq!(order(["dim_0", "x", "c"]).unwrap(), "yxb");
    }

    #[test]
    fn axis_names_that_do_not_tell_are_not_believed() {
        assert_eq!(order(["time", "y", "x"]), None);
        assert_eq!(order(["phony_dim_0", "phony_dim_1", "phony_dim_2"]), None);
        assert_eq!(order(["", "y", ""]), None);
        assert_eq!(order(["band", "band", "y"]), None);
        assert_eq!(order(["y", "y", "x"]), None);
    }

    #[test]
    fn lengths_alone_are_row_column_band_or_a_question() {
        let order = |lengths: [usize; 3]| {
            let mut notes = Vec::new();
            let order = order_of_lengths("a", lengths, &mut notes).ok()?;
            Some((order.to_string(), notes.len()))
        };
        for lengths in [[7, 6, 5], [5, 4, 6], [5, 5, 5], [5, 5, 6], [5, 6, 5], [1, 6, 5]] {
            assert_eq!(order(lengths), Some(("yxb".to_owned(), 1)), "{lengths:?}");
        }
        for lengths in [[4, 5, 6], [4, 6, 5], [4, 5, 5], [6, 5, 5]] {
            assert_eq!(order(lengths), None, "{lengths:?}");
        }
    }

    #[test]
    fn layers_are_not_taken_for_masks_of_samples() {
        let axes_of = |lengths: &[usize], samples: Option<usize>| {
            let (sample, image) = (Some(1), Some([5, 6]));
            let options = OpenOptions { sample, samples, image, ..Default::default() };
            sample_mask(lengths, &options).unwrap().map(|placed| placed.sample)
        };
        assert_eq!(axes_of(&[8, 5, 6], Some(8)), Some(Some((0, 1))));
        assert_eq!(axes_of(&[5, 6, 8], Some(8)), Some(Some((2, 1))));
        assert_eq!(axes_of(&[5, 6, 3], Some(8)), None);
        assert_eq!(axes_of(&[3, 5, 6], Some(8)), None);
        assert_eq!(axes_of(&[3, 5, 6], None), Some(Some((0, 1))));
    }

    #[test]
    fn a_reversed_cube_is_the_same_cube() {
        let placed = Placed {
            lengths: vec![1, 5, 4, 6],
            axes: [1, 2, 3],
            order: AxisOrder::BIP,
            sample: None,
        };
        let reversed = placed.reversed();
        assert_eq!((&reversed.lengths[..], reversed.axes), (&[6, 4, 5, 1][..], [0, 1, 2]));
        assert_eq!((reversed.shape(), reversed.row_axis()), (placed.shape(), 2));
        assert_eq!(reversed.reversed(), placed);
        let mask =
            Placed { lengths: vec![5, 4], axes: [0, 1, 2], order: AxisOrder::BIP, sample: None };
        let reversed = mask.reversed();
        assert_eq!((reversed.shape(), reversed.row_axis()), (mask.shape(), 1));
        assert_eq!(reversed.reversed(), mask);
    }
}
