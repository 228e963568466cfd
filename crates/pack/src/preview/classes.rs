//! Masks: the class of every pixel of the picture, and the colours of the classes.

use hsipack_format::mask::{self, MAX_LAYERS};
use hsipack_format::metadata::MaskMeaning;
use hsipack_format::{Error, MaskValue, Result};
use hsipack_source::{OpenOptions, RowBuffer, Source};
use hsipack_store::dataset::ChunkArray;

use super::palette::{Colour, blend, class_colour};
use super::sampling::Sampling;
use super::stretch::Image;
use crate::convert::classes::means_nothing;
use crate::input::Input;

/// The most classes that get a spectrum and a line in the legend.
const SHOWN: usize = 10;
/// Opacity of a class's colour over the picture.
const OPACITY: f64 = 0.5;
/// The part of the pixels that must not be cloud for a picture to be stretched without its clouds.
const CLEAR: f64 = 0.02;
/// Memory for one read.
const BUDGET: usize = 64 << 20;

/// The id of the class of pixels that are in no layer of a mask.
const IN_NO_LAYER: u16 = u16::MAX;

/// A class, or a boolean layer.
#[derive(Clone, Debug, PartialEq)]
pub struct Class {
    /// Class id, or bit of the layer, or [`IN_NO_LAYER`].
    pub id: u16,
    /// The label, such as `3 liver`.
    pub label: String,
    /// Number of its sampled pixels.
    pub pixels: u64,
    /// Its colour.
    pub colour: Colour,
}

/// The mask of a picture.
#[derive(Clone, Debug)]
pub struct ClassMap {
    /// The mask's name.
    pub name: String,
    /// The most frequent classes, in order of their ids. If some pixels are in no layer, these come
    /// last.
    pub classes: Vec<Class>,
    /// Number of further classes that are in the picture.
    pub more: usize,
    values: Vec<MaskValue>,
    meaning: Meaning,
}

/// The meaning of a mask's labels: their names and colours.
#[derive(Clone, Debug)]
pub enum Meaning {
    /// Class ids.
    Ids {
        /// Names of the classes, if known.
        names: Option<Vec<String>>,
        /// Colours of the classes, as far as they are known.
        colours: Vec<Option<Colour>>,
    },
    /// Sets of bits, one for each layer.
    Layers {
        /// Names of the layers, bit 0 first.
        names: Vec<String>,
    },
}

impl ClassMap {
    /// The mask of sample `index` of a dataset.
    ///
    /// # Errors
    /// If it cannot be read.
    pub fn of_sample(array: &ChunkArray, index: usize, sampling: &Sampling) -> Result<Self> {
        let values = packed_values(array, index, sampling)?;
        Ok(Self::of_values(array, values))
    }

    /// A mask with these values of a picture's pixels. They have the same meaning as in the
    /// dataset's mask.
    pub fn of_values(array: &ChunkArray, values: Vec<MaskValue>) -> Self {
        let meaning = Meaning::from(array.meta().mask_meaning());
        Self::new(array.name().to_owned(), values, meaning)
    }

    /// The mask in a file, `file` or `file::variable`, of a cube of `rows` × `columns` pixels.
    ///
    /// # Errors
    /// If it cannot be read, has another shape, or contains a value that is not a class id.
    pub fn of_file(text: &str, rows: usize, columns: usize, sampling: &Sampling) -> Result<Self> {
        let input = Input::parse(text).here()?;
        let variable = input.variable.clone();
        let options = OpenOptions {
            variable,
            mask: true,
            image: Some([rows, columns]),
            ..OpenOptions::default()
        };
        let source = hsipack_source::open(&input.file, &options)?;
        let info = source.info();
        if (info.shape.rows, info.shape.columns) != (rows, columns) {
            return Err(Error::conflict(format!(
                "the mask has {}x{} pixels, but the cube has {rows}x{columns}",
                info.shape.rows, info.shape.columns
            ))
            .at(&input.file)
            .with_remedy("give the mask of this cube, rows x columns"));
        }
        let bands = info.shape.bands;
        let meaning = match bands {
            1 => {
                Meaning::Ids { names: info.class_names.clone(), colours: info.class_colors.clone() }
            }
            2..=MAX_LAYERS => {
                let numbered = || (0..bands).map(|layer| format!("layer{layer}")).collect();
                Meaning::Layers { names: info.band_names.clone().unwrap_or_else(numbered) }
            }
            _ => {
                return Err(Error::unsupported(format!("the mask has {bands} layers"))
                    .at(&input.file)
                    .with_remedy(format!(
                        "give one band of class ids, or up to {MAX_LAYERS} boolean layers"
                    )));
            }
        };
        let values = read_values(&*source, sampling).map_err(|error| error.at(&input.file))?;
        Ok(Self::new(input.default_name(), values, meaning))
    }

    fn new(name: String, values: Vec<MaskValue>, meaning: Meaning) -> Self {
        let counts = meaning.count(&values);
        let mut present: Vec<u16> = (0..=u16::MAX)
            .filter(|id| counts.get(usize::from(*id)).is_some_and(|n| *n > 0))
            .collect();
        present.sort_by_key(|id| (std::cmp::Reverse(counts[usize::from(*id)]), *id));
        let more = present.len().saturating_sub(SHOWN);
        present.truncate(SHOWN);
        present.sort_unstable();
        let class = |id: u16| Class {
            id,
            label: meaning.label(id),
            pixels: counts[usize::from(id)],
            colour: meaning.colour(id),
        };
        let mut classes: Vec<Class> = present.into_iter().map(class).collect();
        let outside = meaning.in_no_layer(&values);
        if outside > 0 && !classes.is_empty() {
            classes.push(Class {
                id: IN_NO_LAYER,
                label: "in no layer".to_owned(),
                pixels: outside,
                colour: class_colour(0),
            });
        }
        Self { name, classes, more, values, meaning }
    }

    /// Of the pixels of a picture of this mask, those by which the picture should be stretched:
    /// those that are not cloud, if at least [`CLEAR`] of the pixels with data remain. Clouds are
    /// so bright that the ground would be black. Returns the names of the classes that were left
    /// out, if any.
    pub fn clear(&self, values: &[[f32; 3]]) -> Option<(Vec<[f32; 3]>, Vec<String>)> {
        let clouds: Vec<usize> =
            (0..self.classes.len()).filter(|class| self.is_cloud(&self.classes[*class])).collect();
        if clouds.is_empty() {
            return None;
        }
        let valid = |pixel: &[f32; 3]| pixel.iter().all(|value| value.is_finite());
        let is_clear = |index: usize| !self.of_pixel(index).any(|class| clouds.contains(&class));
        let clear: Vec<[f32; 3]> = (values.iter().enumerate())
            .filter(|(index, pixel)| valid(pixel) && is_clear(*index))
            .map(|(_, pixel)| *pixel)
            .collect();
        let all = values.iter().filter(|pixel| valid(pixel)).count();
        let names = clouds.into_iter().map(|class| self.classes[class].label.clone()).collect();
        (clear.len() as f64 >= CLEAR * all as f64 && !clear.is_empty()).then_some((clear, names))
    }

    /// Whether a class is bright cloud, by its name. Shadows of clouds are dark.
    fn is_cloud(&self, class: &Class) -> bool {
        let name = class.label.to_lowercase();
        name.contains("cloud")
            && !["shadow", "no cloud", "cloud-free", "cloud free", "cloudless"]
                .iter()
                .any(|word| name.contains(word))
    }

    /// Number of pixels in the picture.
    pub fn pixels(&self) -> usize {
        self.values.len()
    }

    /// The classes of pixel `index` of the picture, as indices into [`classes`](Self::classes).
    /// There are several if layers overlap.
    pub fn of_pixel(&self, index: usize) -> impl Iterator<Item = usize> + '_ {
        let value = self.values[index];
        let layers = matches!(self.meaning, Meaning::Layers { .. });
        let member = move |class: &Class| match layers {
            true if class.id == IN_NO_LAYER => self.meaning.is_in_no_layer(value),
            true => value >> class.id & 1 == 1,
            false => value == MaskValue::from(class.id),
        };
        self.classes.iter().enumerate().filter(move |(_, class)| member(class)).map(|(i, _)| i)
    }

    /// `image` tinted with the colours of the classes. The background stays unchanged.
    pub fn overlay(&self, image: &Image) -> Image {
        let over = |pixel, id: u16| blend(pixel, self.meaning.colour(id), OPACITY);
        let tint = |(pixel, value): (&Colour, &MaskValue)| match &self.meaning {
            Meaning::Layers { names } => {
                let layers = mask::layers_of(value & mask::all_layers(names.len()));
                layers.fold(*pixel, |pixel, layer| over(pixel, layer as u16))
            }
            Meaning::Ids { .. } if self.meaning.is_background(*value as u16) => *pixel,
            Meaning::Ids { .. } => over(*pixel, *value as u16),
        };
        let pixels = image.pixels.iter().zip(&self.values).map(tint).collect();
        Image { pixels, ..*image }
    }
}

impl Meaning {
    /// Number of pixels of each id, or of each layer.
    fn count(&self, values: &[MaskValue]) -> Vec<u64> {
        match self {
            Self::Layers { names } => (0..names.len().min(MAX_LAYERS))
                .map(|bit| values.iter().filter(|value| **value >> bit & 1 == 1).count() as u64)
                .collect(),
            Self::Ids { .. } => {
                let mut counts = vec![0; usize::from(u16::MAX) + 1];
                values.iter().for_each(|id| counts[*id as usize] += 1);
                counts
            }
        }
    }

    /// Number of pixels that are in no layer.
    fn in_no_layer(&self, values: &[MaskValue]) -> u64 {
        values.iter().filter(|value| self.is_in_no_layer(**value)).count() as u64
    }

    /// Whether a pixel with these bits is in no layer. `false` if the values are class ids.
    fn is_in_no_layer(&self, bits: MaskValue) -> bool {
        let Self::Layers { names } = self else { return false };
        bits & mask::all_layers(names.len()) == 0
    }

    /// The label: `3 liver`, `3` for a class without a name, or the name of a layer.
    pub fn label(&self, id: u16) -> String {
        match self {
            Self::Layers { names } => {
                names.get(usize::from(id)).cloned().unwrap_or_else(|| id.to_string())
            }
            Self::Ids { names, .. } => {
                match names.as_ref().and_then(|names| names.get(usize::from(id))) {
                    Some(name) if !name.is_empty() => format!("{id} {name}"),
                    _ => id.to_string(),
                }
            }
        }
    }

    /// The colour of a class, or of a layer.
    pub fn colour(&self, id: u16) -> Colour {
        match self {
            Self::Layers { .. } => class_colour(usize::from(id) + 1),
            Self::Ids { colours, .. } => {
                let colour = colours.get(usize::from(id)).copied().flatten();
                colour.unwrap_or_else(|| class_colour(usize::from(id)))
            }
        }
    }

    /// Whether `id` means that a pixel is not labelled: id 0, if its name says so.
    fn is_background(&self, id: u16) -> bool {
        let Self::Ids { names, .. } = self else { return false };
        let name = names.as_ref().and_then(|names| names.first());
        id == 0 && name.is_some_and(|name| means_nothing(name))
    }
}

impl From<MaskMeaning> for Meaning {
    fn from(meaning: MaskMeaning) -> Self {
        match meaning.layers.is_empty() {
            false => Self::Layers { names: meaning.layers },
            true => Self::Ids { names: meaning.class_names, colours: meaning.class_colors },
        }
    }
}

/// Reads the values of sample `index` of a dataset's mask at the pixels of `sampling`, row by row.
///
/// # Errors
/// If it cannot be read, or has class ids above 65535, which masks of other libraries may have.
pub fn packed_values(
    array: &ChunkArray,
    index: usize,
    sampling: &Sampling,
) -> Result<Vec<MaskValue>> {
    let (columns, dtype) = (array.shape().columns, array.meta().dtype);
    let mut values = vec![0; sampling.pixels()];
    let mut row_values = Vec::new();
    for rows in sampling.reads(array.grid().tile().rows) {
        array.each_slab(index, rows, &mut |rows, bytes| {
            for (row, bytes) in rows.zip(bytes.chunks_exact(columns * dtype.size())) {
                row_values.clear();
                mask::read(dtype, bytes, &mut row_values);
                for (pixel, column) in sampling.hits(row, 0, columns) {
                    values[pixel] = row_values[column];
                }
            }
            Ok(())
        })?;
    }
    let greatest = values.iter().copied().max().unwrap_or(0);
    if greatest > u16::MAX.into() && array.meta().mask_meaning().layers.is_empty() {
        return Err(Error::unsupported(format!("the mask has the class id {greatest}"))
            .at(array.folder())
            .with_remedy("class ids are whole numbers from 0 to 65535"));
    }
    Ok(values)
}

fn read_values(source: &dyn Source, sampling: &Sampling) -> Result<Vec<MaskValue>> {
    let shape = source.info().shape;
    let mut values = vec![0; sampling.pixels()];
    let mut buffer = RowBuffer::new();
    for rows in sampling.reads(source.preferred_rows(BUDGET)) {
        source.read_rows(rows.clone(), &mut buffer)?;
        for row in rows.clone() {
            for (pixel, column) in sampling.hits(row, 0, shape.columns) {
                let first = ((row - rows.start) * shape.columns + column) * shape.bands;
                for band in 0..shape.bands {
                    let value = buffer.number(first + band);
                    let id = class_id(value).ok_or_else(|| refuse(value, row, column))?;
                    values[pixel] = match shape.bands {
                        1 => id.into(),
                        _ => values[pixel] | MaskValue::from(id != 0) << band,
                    };
                }
            }
        }
    }
    Ok(values)
}

fn class_id(value: f64) -> Option<u16> {
    (value.fract() == 0.0 && (0.0..=65535.0).contains(&value)).then_some(value as u16)
}

fn refuse(value: f64, row: usize, column: usize) -> Error {
    Error::conflict(format!(
        "row {row}, column {column} of the mask is {value}, which is not a class id"
    ))
    .with_remedy("class ids are whole numbers from 0 to 65535")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of_ids(names: Option<Vec<String>>) -> Meaning {
        Meaning::Ids { names, colours: Vec::new() }
    }

    fn image(pixels: usize) -> Image {
        Image { width: pixels, height: 1, pixels: vec![[100, 100, 100]; pixels] }
    }

    #[test]
    fn background_stays_and_classes_are_tinted() {
        let names = Some(vec!["background".to_owned()]);
        let map = ClassMap::new("m".into(), vec![0, 1, 2, 1], of_ids(names));
        let over = map.overlay(&image(4));
        assert_eq!(over.pixels[0], [100, 100, 100]);
        assert_eq!(over.pixels[1], [50, 107, 139]);
        assert_eq!(over.pixels[1], over.pixels[3]);
        assert_ne!(over.pixels[1], over.pixels[2]);
        let labels: Vec<&str> = map.classes.iter().map(|class| class.label.as_str()).collect();
        assert_eq!(labels, ["0 background", "1", "2"]);
        assert_eq!(map.of_pixel(3).collect::<Vec<_>>(), [1]);
    }

    #[test]
    fn zero_is_a_class_unless_its_name_says_otherwise() {
        let named = |name: &str| of_ids(Some(vec![name.into(), "b".into()]));
        let first =
            |meaning| ClassMap::new("m".into(), vec![0], meaning).overlay(&image(1)).pixels[0];
        assert_eq!(first(named("Unclassified")), [100, 100, 100]);
        assert_ne!(first(named("stomach")), [100, 100, 100]);
        for meaning in [of_ids(None), named("")] {
            assert_eq!(meaning.label(0), "0");
            assert_ne!(first(meaning), [100, 100, 100]);
        }
    }

    #[test]
    fn layers_overlap() {
        let names = vec!["bone".to_owned(), "skin".to_owned(), "never".to_owned()];
        let map = ClassMap::new("m".into(), vec![0, 1, 2, 3], Meaning::Layers { names });
        let labels: Vec<&str> = map.classes.iter().map(|class| class.label.as_str()).collect();
        assert_eq!(labels, ["bone", "skin", "in no layer"]);
        assert_eq!(map.classes[2].pixels, 1);
        assert_eq!(map.of_pixel(3).collect::<Vec<_>>(), [0, 1]);
        assert_eq!(map.of_pixel(0).collect::<Vec<_>>(), [2]);
        assert_eq!(map.overlay(&image(4)).pixels[0], [100, 100, 100]);
    }

    #[test]
    fn pixels_are_in_no_layer_only_if_some_are_in_one() {
        let layers = |ids| {
            let names = vec!["cloud".to_owned()];
            ClassMap::new("m".into(), ids, Meaning::Layers { names }).classes.len()
        };
        assert_eq!((layers(vec![1, 1]), layers(vec![1, 0]), layers(vec![0, 0])), (1, 2, 0));
    }

    #[test]
    fn clouds_do_not_decide_how_a_picture_is_stretched() {
        let pixels = [[0.1; 3], [0.2; 3], [0.9; 3], [f32::NAN; 3]];
        let clear = |names: [&str; 2], values: [MaskValue; 4]| {
            let names = names.map(str::to_owned).into();
            ClassMap::new("m".into(), values.into(), Meaning::Layers { names }).clear(&pixels)
        };
        let (clear_pixels, names) = clear(["land", "cloud"], [1, 0, 3, 0]).unwrap();
        assert_eq!((clear_pixels.as_slice(), names), (&pixels[..2], vec!["cloud".to_owned()]));
        assert!(clear(["land", "cloud shadow"], [1, 0, 3, 0]).is_none());
        assert!(clear(["land", "cloud"], [1; 4]).is_none(), "no pixel is cloud");
        assert!(clear(["land", "cloud"], [2; 4]).is_none(), "every pixel is cloud");
        let names = Some(vec!["clear".to_owned(), "Cloud".to_owned()]);
        let map = ClassMap::new("m".into(), vec![0, 0, 1, 0], of_ids(names));
        assert_eq!(map.clear(&pixels).unwrap().1, ["1 Cloud"]);
    }

    #[test]
    fn the_most_frequent_of_many_classes_are_shown() {
        let values = (0..30).flat_map(|id| vec![id; id as usize + 1]).collect();
        let map = ClassMap::new("m".into(), values, of_ids(None));
        assert_eq!((map.classes.len(), map.more), (10, 20));
        assert_eq!(map.classes[0].id, 20);
    }
}
