//! Annotations in COCO's JSON, for all pictures of a dataset in one file.
//!
//! ```text
//! {"images": [{"id": 1, "file_name": "a.png", "height": 480, "width": 640}],
//!  "categories": [{"id": 3, "name": "leaf"}],
//!  "annotations": [{"image_id": 1, "category_id": 3, "bbox": [x, y, width, height], "iscrowd": 0,
//!                   "segmentation": [[x, y, x, y, …], …] or {"size": [rows, columns], "counts": [numbers] or "text"}}]}
//! ```

use std::collections::HashMap;
use std::fmt;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::SystemTime;

use hsipack_format::{Error, Result};
use hsipack_store::bounded_read;
use serde::Deserialize;
use serde::de::{self, DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};

use super::classes::MAX_NAME;
use super::cube_names::{CubeNames, Entries};
use super::json;

/// The most numbers of all annotations together, which are in memory.
const MAX_NUMBERS: usize = 1 << 26;
/// The most entries of each list.
const MAX_ENTRIES: usize = 1 << 22;

/// A file of annotations.
#[derive(Debug, Default)]
pub(super) struct Coco {
    /// The pictures.
    images: Vec<Image>,
    /// Their file names.
    pub entries: Entries,
    /// The classes.
    pub categories: Vec<Category>,
    /// The annotations, each with the place of its picture.
    pub annotations: Vec<Annotation>,
    /// Places of the annotations of each picture.
    of_images: Vec<Vec<u32>>,
}

/// A picture.
#[derive(Debug, Default, Deserialize)]
pub(super) struct Image {
    id: Id,
    #[serde(default)]
    file_name: String,
    #[serde(default)]
    height: Option<f64>,
    #[serde(default)]
    width: Option<f64>,
}

/// A class.
#[derive(Debug, Deserialize)]
pub(super) struct Category {
    /// Its id.
    pub id: i64,
    /// Its name.
    #[serde(default)]
    pub name: String,
}

/// The id of a picture: a number, or a text.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Id {
    Number(i64),
    Text(String),
}

impl Default for Id {
    fn default() -> Self {
        Self::Number(0)
    }
}

impl fmt::Display for Id {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Number(number) => write!(f, "{number}"),
            Self::Text(text) => write!(f, "{text:?}"),
        }
    }
}

/// An annotation.
#[derive(Debug, Deserialize)]
pub(super) struct Annotation {
    image_id: Id,
    /// The id of its class.
    #[serde(default)]
    pub category_id: Option<i64>,
    /// Its pixels.
    #[serde(default)]
    pub segmentation: Segmentation,
    #[serde(default)]
    bbox: Option<json::Numbers<f64>>,
    #[serde(default)]
    iscrowd: Option<f64>,
}

impl Annotation {
    /// Left, top, width and height of its box; `None` if it has none.
    pub fn corners(&self) -> Option<[f64; 4]> {
        self.bbox.as_ref()?.0.as_slice().try_into().ok()
    }

    /// Whether it is a crowd of objects, whose box says little.
    pub fn is_crowd(&self) -> bool {
        self.iscrowd.is_some_and(|number| number != 0.0)
    }
}

/// The pixels of an annotation.
#[derive(Debug, Default)]
pub(super) enum Segmentation {
    /// It has only a box.
    #[default]
    None,
    /// Polygons: x, y, x, y, … each.
    Polygons(Vec<Vec<f64>>),
    /// Numbers of pixels that are not set and set in turns, column by column.
    Lengths { size: [usize; 2], lengths: Vec<u32> },
    /// The same as text.
    Text { size: [usize; 2], text: String },
}

impl Segmentation {
    /// The memory that it takes, in numbers.
    fn numbers(&self) -> usize {
        match self {
            Self::None => 0,
            Self::Polygons(polygons) => polygons.iter().map(|polygon| polygon.len() + 3).sum(),
            Self::Lengths { lengths, .. } => lengths.len() / 2 + 1,
            Self::Text { text, .. } => text.len() / 8 + 1,
        }
    }
}

impl Coco {
    /// The picture of a cube with this number of rows and columns, as its place.
    ///
    /// # Errors
    /// If the file has none, may have several, or says another size.
    pub fn image_of(&self, cube: &CubeNames, size: [usize; 2]) -> Result<usize> {
        let image = self.entries.find(cube)?.ok_or_else(|| self.entries.missing(cube))?;
        let Image { height, width, .. } = self.images[image];
        let name = &self.entries.names()[image];
        for (stated, actual) in [height, width].iter().zip(size) {
            if stated.is_some_and(|stated| stated != actual as f64 && stated != 0.0) {
                let picture = [height, width].map(|side| side.unwrap_or_default() as usize);
                return Err(other_size(name, picture, size));
            }
        }
        Ok(image)
    }

    /// The annotations of the picture at a place, with their numbers in the file.
    pub fn of_image(&self, image: usize) -> impl Iterator<Item = (usize, &Annotation)> {
        self.of_images[image]
            .iter()
            .map(|annotation| (*annotation as usize, &self.annotations[*annotation as usize]))
    }

    /// Finds the pictures and classes of annotations.
    fn finish(mut self) -> Result<Self> {
        let wrong =
            |what: String, remedy: &'static str| Err(Error::malformed(what).with_remedy(remedy));
        let mut places = HashMap::new();
        for (index, image) in self.images.iter().enumerate() {
            if places.insert(image.id.clone(), index).is_some() {
                return wrong(
                    format!("two images have the id {}", image.id),
                    "give each image its own id",
                );
            }
            if image.file_name.is_empty() {
                return wrong(
                    format!("the image with the id {} has no file_name", image.id),
                    "name the file of each image, so that hsipack knows its cube",
                );
            }
        }
        self.entries =
            Entries::new(self.images.iter().map(|image| image.file_name.clone()).collect());
        let ids: HashMap<i64, ()> = self.categories.iter().map(|class| (class.id, ())).collect();
        self.of_images = vec![Vec::new(); self.images.len()];
        for (number, annotation) in self.annotations.iter().enumerate() {
            let Some(index) = places.get(&annotation.image_id) else {
                return wrong(
                    format!(
                        "annotation {number} is of the image {}, which the file does not list",
                        annotation.image_id
                    ),
                    "add the image, or remove the annotation",
                );
            };
            if let Some(id) = annotation.category_id
                && !ids.is_empty()
                && !ids.contains_key(&id)
            {
                return wrong(
                    format!(
                        "annotation {number} is of the category {id}, which the file does not list"
                    ),
                    "add the category, or remove the annotation",
                );
            }
            self.of_images[*index].push(number as u32);
        }
        Ok(self)
    }
}

/// The error for a picture whose size differs from that of its cube.
pub(super) fn other_size(name: &str, picture: [usize; 2], cube: [usize; 2]) -> Error {
    Error::conflict(format!(
        "the labels are for a picture {name:?} of {}x{} pixels (rows x columns), but the cube has {}x{}",
        picture[0], picture[1], cube[0], cube[1]
    ))
    .with_remedy("give the labels of this cube; labels of a picture of another size have to be scaled first")
}

/// A file that was read, and what it was then.
struct Kept {
    path: std::path::PathBuf,
    len: u64,
    changed: Option<SystemTime>,
    coco: Arc<Coco>,
}

/// The file that was read last. It is asked for once for each cube.
static LAST: Mutex<Option<Kept>> = Mutex::new(None);

/// Reads the annotations in `path`, or takes them from memory if the file was the last one that was
/// read.
///
/// # Errors
/// If the file is not in this format, or contradicts itself.
pub(super) fn read(path: &Path) -> Result<Arc<Coco>> {
    let file = bounded_read::window(path)?;
    let about = path.metadata().map_err(|error| Error::io(path, "cannot read", error))?;
    let (len, changed) = (about.len(), about.modified().ok());
    // Threads that need the same file wait here for the first of them.
    let mut last = LAST.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(kept) = &*last
        && kept.path == path
        && (kept.len, kept.changed) == (len, changed)
    {
        return Ok(kept.coco.clone());
    }
    *last = None;
    let coco = Arc::new(parse(BufReader::new(file))?);
    *last = Some(Kept { path: path.to_owned(), len, changed, coco: coco.clone() });
    Ok(coco)
}

/// Forgets the file that was read last.
pub(super) fn forget() {
    *LAST.lock().unwrap_or_else(PoisonError::into_inner) = None;
}

/// Reads annotations.
///
/// # Errors
/// As [`read`].
pub(super) fn parse(mut from: impl BufRead) -> Result<Coco> {
    json::skip_mark(&mut from)?;
    let mut coco = Coco::default();
    let mut deserializer = serde_json::Deserializer::from_reader(from);
    Document(&mut coco).deserialize(&mut deserializer).and_then(|()| deserializer.end()).map_err(
        |error| {
            Error::malformed(format!("cannot read the COCO annotations: {error}"))
                .with_remedy("export the annotations again as COCO JSON (instances)")
        },
    )?;
    coco.finish()
}

/// The whole file.
struct Document<'a>(&'a mut Coco);

impl<'de> DeserializeSeed<'de> for Document<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<(), D::Error> {
        from.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for Document<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object with images, annotations and categories")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        let coco = self.0;
        while let Some(key) = map.next_key::<String>()? {
            match &*key {
                "images" => map.next_value_seed(json::Each::new("image", |image| {
                    limit(&mut coco.images, image)
                }))?,
                "categories" => {
                    map.next_value_seed(json::Each::new("category", |mut class: Category| {
                        if class.name.len() > MAX_NAME {
                            return Err(format!("a text of {} bytes is no name", class.name.len()));
                        }
                        class.name = hsipack_format::text::printable(&class.name).into_owned();
                        limit(&mut coco.categories, class)
                    }))?
                }
                "annotations" => {
                    let mut numbers = 0;
                    map.next_value_seed(json::Each::new(
                        "annotation",
                        |annotation: Annotation| {
                            numbers += annotation.segmentation.numbers();
                            if numbers > MAX_NUMBERS {
                                return Err(format!("there are more than {MAX_NUMBERS} numbers"));
                            }
                            limit(&mut coco.annotations, annotation)
                        },
                    ))?;
                }
                _ => {
                    map.next_value::<IgnoredAny>()?;
                }
            }
        }
        Ok(())
    }
}

fn limit<T>(list: &mut Vec<T>, entry: T) -> Result<(), String> {
    if list.len() >= MAX_ENTRIES {
        return Err(format!("there are more than {MAX_ENTRIES}"));
    }
    list.push(entry);
    Ok(())
}

impl<'de> Deserialize<'de> for Segmentation {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct OfSegmentation;
        impl<'de> Visitor<'de> for OfSegmentation {
            type Value = Segmentation;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a list of polygons, or an object with counts and size")
            }

            fn visit_unit<E>(self) -> Result<Segmentation, E> {
                Ok(Segmentation::None)
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Segmentation, A::Error> {
                let mut polygons = Vec::new();
                while let Some(polygon) =
                    list.next_element::<json::Numbers<f64>>()?.map(|list| list.0)
                {
                    if polygon.len() < 6 || polygon.len() % 2 == 1 {
                        return Err(de::Error::custom(format!(
                            "a polygon has {} numbers; it needs two for each of at least 3 corners",
                            polygon.len()
                        )));
                    }
                    polygons.push(polygon);
                }
                Ok(match polygons.is_empty() {
                    true => Segmentation::None,
                    false => Segmentation::Polygons(polygons),
                })
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Segmentation, A::Error> {
                let (mut size, mut counts) = (None, None);
                while let Some(key) = map.next_key::<String>()? {
                    match &*key {
                        "size" => size = Some(map.next_value::<[usize; 2]>()?),
                        "counts" => counts = Some(map.next_value::<Counts>()?),
                        _ => {
                            map.next_value::<IgnoredAny>()?;
                        }
                    }
                }
                match (size, counts) {
                    (Some(size), Some(Counts::Lengths(lengths))) => {
                        Ok(Segmentation::Lengths { size, lengths })
                    }
                    (Some(size), Some(Counts::Text(text))) => Ok(Segmentation::Text { size, text }),
                    _ => Err(de::Error::custom("run lengths need counts and size")),
                }
            }
        }
        from.deserialize_any(OfSegmentation)
    }
}

/// Run lengths.
enum Counts {
    Lengths(Vec<u32>),
    Text(String),
}

impl<'de> Deserialize<'de> for Counts {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct OfCounts;
        impl<'de> Visitor<'de> for OfCounts {
            type Value = Counts;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("run lengths: a list of whole numbers, or a text")
            }

            fn visit_str<E>(self, text: &str) -> Result<Counts, E> {
                Ok(Counts::Text(text.to_owned()))
            }

            fn visit_seq<A: SeqAccess<'de>>(self, list: A) -> Result<Counts, A::Error> {
                let list = de::value::SeqAccessDeserializer::new(list);
                json::Numbers::deserialize(list).map(|list| Counts::Lengths(list.0))
            }
        }
        from.deserialize_any(OfCounts)
    }
}

impl<'de> Deserialize<'de> for Id {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct OfId;
        impl Visitor<'_> for OfId {
            type Value = Id;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an id: a whole number or a text")
            }

            fn visit_i64<E>(self, number: i64) -> Result<Id, E> {
                Ok(Id::Number(number))
            }

            fn visit_u64<E: de::Error>(self, number: u64) -> Result<Id, E> {
                number.try_into().map(Id::Number).map_err(|_| E::custom("the id is too large"))
            }

            fn visit_str<E>(self, text: &str) -> Result<Id, E> {
                Ok(Id::Text(text.to_owned()))
            }
        }
        from.deserialize_any(OfId)
    }
}
