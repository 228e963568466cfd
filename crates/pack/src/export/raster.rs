//! The data that a writer writes, whatever their origin: rows of one array, and their description.

use hsipack_format::metadata::Scaling;
use hsipack_format::{Command, CubeShape, DType, Error, Geo, Result, Sample, remedy};
use hsipack_store::dataset::ChunkArray;
use hsipack_store::{Dataset, Stack};

use super::find_mask;
use crate::convert::PackedType;
use crate::preview::palette::{Colour, class_colour};

/// Receives the bytes of some whole rows.
pub(super) type Take<'a> = &'a mut dyn FnMut(&[u8]) -> Result<()>;
/// Passes on all rows, some at a time.
pub(super) type Rows<'a> = Box<dyn Fn(Take<'_>) -> Result<()> + 'a>;

/// One image, or one mask or map of whole numbers.
pub(super) struct Raster<'a> {
    /// Rows × columns × bands.
    pub shape: CubeShape,
    /// Type of the values that `rows` gives: float16, float32, int16, uint8 or uint16; uint32 or
    /// uint64 only for boolean layers.
    pub dtype: DType,
    /// Whether the array is (rows, columns), without an axis of bands.
    pub flat: bool,
    /// Number of rows that come at a time; the last time there may be fewer.
    pub slab: usize,
    /// Scaling from values to physical values.
    pub scaling: Scaling,
    /// Unit of physical values.
    pub unit: Option<String>,
    /// The array's name in a file with several arrays: `image`, a mask's name, `map`.
    pub name: &'a str,
    /// A short description.
    pub title: String,
    /// The georeferencing of the pixels.
    pub geo: Option<Geo>,
    /// Band centres in nm.
    pub wavelength: Option<&'a [f64]>,
    /// Full widths at half maximum in nm.
    pub fwhm: Option<&'a [f64]>,
    /// Whether each band is good.
    pub good_bands: Option<Vec<bool>>,
    /// Names of the bands.
    pub band_names: Option<Vec<String>>,
    /// Names of classes 0, 1, ….
    pub class_names: Option<Vec<String>>,
    /// Colours of the classes.
    pub class_colours: Option<Vec<Colour>>,
    /// The value of pixels without data.
    pub nodata: Option<f64>,
    /// The values, little-endian, in (row, column, band) order.
    pub rows: Rows<'a>,
}

impl<'a> Raster<'a> {
    /// The image of a sample, or one of its masks.
    pub fn of_sample(
        dataset: &'a Dataset,
        sample: &'a Sample,
        mask: Option<&str>,
    ) -> Result<Raster<'a>> {
        let missing = || Error::damaged(format!("there is no stack {}", sample.stack));
        let stack = dataset.stack(&sample.stack).ok_or_else(missing)?;
        match mask {
            None => Self::of_image(stack, sample),
            Some(name) => Self::of_mask(stack, find_mask(dataset, stack, name)?, sample),
        }
    }

    fn of_image(stack: &'a Stack, sample: &'a Sample) -> Result<Raster<'a>> {
        let array = &stack.image;
        let notes = array.meta().band_notes();
        Ok(Raster {
            scaling: array.scaling(),
            unit: array.meta().unit(),
            wavelength: stack.wavelength.as_deref(),
            fwhm: stack.fwhm.as_deref(),
            good_bands: notes.good_bands,
            band_names: notes.band_names,
            nodata: match array.meta().dtype.is_float() {
                true => Some(f64::NAN),
                false => array.scaling().missing,
            },
            flat: false,
            ..Self::of_array(array, sample, &PackedType::ALL.map(PackedType::dtype))?
        })
    }

    fn of_mask(stack: &'a Stack, array: &'a ChunkArray, sample: &'a Sample) -> Result<Raster<'a>> {
        debug_assert!(stack.masks.iter().any(|mask| mask.name() == array.name()));
        let meaning = array.meta().mask_meaning();
        let layers = meaning.layers;
        let bits = layers.iter().enumerate().map(|(bit, name)| format!("bit {bit} {name}"));
        let bits: Vec<String> = bits.collect();
        let bits = format!("bits of {}: {}", array.name(), bits.join("; "));
        let mut types = vec![DType::U8, DType::U16];
        if !layers.is_empty() {
            types.extend([DType::U32, DType::U64]);
        }
        let named = meaning.class_names.as_ref().map_or(0, Vec::len);
        let is_classes = meaning.class_names.is_some();
        let colours = meaning.class_colors;
        let count = if is_classes { named } else { colours.len() };
        let colour =
            |id: usize| colours.get(id).copied().flatten().unwrap_or_else(|| class_colour(id));
        Ok(Raster {
            band_names: (!is_classes && !layers.is_empty()).then(|| vec![bits]),
            class_colours: (count > 0).then(|| (0..count).map(colour).collect()),
            class_names: meaning.class_names,
            ..Self::of_array(array, sample, &types)?
        })
    }

    fn of_array(array: &'a ChunkArray, sample: &'a Sample, taken: &[DType]) -> Result<Raster<'a>> {
        let (shape, dtype) = (array.shape(), array.meta().dtype);
        if !taken.contains(&dtype) {
            return Err(Error::unsupported(format!("the array has the type {dtype}"))
                .at(array.folder())
                .with_remedy(remedy!["pack the cubes with ", Command::Convert]));
        }
        Ok(Raster {
            slab: array.grid().tile().rows,
            name: array.name(),
            geo: sample.geo.clone(),
            ..Self::new(
                shape,
                dtype,
                format!("hsipack export of sample {}: {}", sample.id, sample.name),
                Box::new(move |take| {
                    array.each_slab(sample.index, 0..shape.rows, &mut |_, bytes| take(bytes))
                }),
            )
        })
    }

    /// An array of which only shape and type are known, without an axis of bands.
    pub fn new(shape: CubeShape, dtype: DType, title: String, rows: Rows<'a>) -> Raster<'a> {
        Raster {
            shape,
            dtype,
            flat: true,
            slab: 1,
            scaling: Scaling::NONE,
            unit: None,
            name: "map",
            title,
            geo: None,
            wavelength: None,
            fwhm: None,
            good_bands: None,
            band_names: None,
            class_names: None,
            class_colours: None,
            nodata: None,
            rows,
        }
    }

    /// Whether values are whole numbers: class ids, bits, or the integers of an image.
    pub fn is_whole(&self) -> bool {
        !self.dtype.is_float()
    }
}
