//! COCO annotations as a mask: the pixels that `pycocotools` gives each of them.

use std::collections::BTreeMap;
use std::ops::Range;
use std::path::Path;

use hsipack_format::{CubeShape, DType, Error, ErrorKind, Result};

use super::LabelOptions;
use super::classes::{self, Value};
use super::coco::{self, Annotation, Coco, Segmentation};
use super::runs::{Runs, lengths_of};
use crate::{Access, CubeInfo, RowBuffer, Source};

/// The attributes that can be the class.
const ATTRIBUTES: [&str; 2] = ["category_id", "name"];
/// The most places of the runs of a picture, which are in memory.
const MAX_CHANGES: usize = 1 << 26;

/// A mask of annotations; later ones cover earlier ones.
struct Annotated {
    info: CubeInfo,
    drawn: Vec<(Runs, u16)>,
}

/// Opens the annotations in `path` of the cube in the options.
///
/// # Errors
/// If the file is malformed, or has no annotations of this cube or others than the options say.
pub(super) fn open(path: &Path, options: &LabelOptions<'_>) -> Result<Box<dyn Source>> {
    let coco = coco::read(path)?;
    let [rows, columns] = options.image;
    if u32::try_from(rows as u64 * columns as u64).is_err() {
        return Err(Error::unsupported("the cube has too many pixels for COCO annotations")
            .with_remedy("give a mask of class ids"));
    }
    let image = coco.image_of(options.cube, options.image)?;
    let classes = Classes::of(&coco, options.variable.as_deref())?;
    let mut info = CubeInfo::new("COCO", CubeShape::new(rows, columns, 1), DType::U16, path);
    info.has_named_classes = classes.are_named;
    let (mut drawn, mut changes) = (Vec::new(), 0);
    for (number, annotation) in coco.of_image(image) {
        let id = classes.id_of(annotation, number)?;
        if matches!(annotation.segmentation, Segmentation::None) {
            info.undrawn_boxes += 1;
        }
        for runs in runs_of(&annotation.segmentation, options.image) {
            let runs = runs.map_err(|what| {
                Error::malformed(format!("annotation {number}: {what}"))
                    .with_remedy("correct the annotation, or export the file again")
            })?;
            changes += runs.len();
            if changes > MAX_CHANGES {
                return Err(Error::unsupported("the annotations of the picture are too detailed")
                    .with_remedy("simplify its polygons"));
            }
            drawn.push((runs, id));
        }
    }
    info.class_names = classes.names;
    Ok(Box::new(Annotated { info, drawn }))
}

/// The runs of an annotation.
fn runs_of(
    segmentation: &Segmentation,
    image: [usize; 2],
) -> Vec<std::result::Result<Runs, String>> {
    let sized = |size: &[usize; 2]| match *size == image {
        true => Ok(()),
        false => Err(format!(
            "its run lengths are of {}x{} pixels, but the cube has {}x{}",
            size[0], size[1], image[0], image[1]
        )),
    };
    match segmentation {
        Segmentation::None => Vec::new(),
        Segmentation::Polygons(polygons) => {
            polygons.iter().map(|polygon| Runs::of_polygon(polygon, image)).collect()
        }
        Segmentation::Lengths { size, lengths } => {
            vec![sized(size).and_then(|()| Runs::of_lengths(lengths.iter().copied(), image))]
        }
        Segmentation::Text { size, text } => {
            let lengths = sized(size).and_then(|()| lengths_of(text));
            vec![lengths.and_then(|lengths| Runs::of_lengths(lengths, image))]
        }
    }
}

/// The classes of annotations.
struct Classes {
    ids: BTreeMap<i64, u16>,
    /// Names by their ids.
    names: Option<Vec<String>>,
    /// Whether ids are merely places in `names`.
    are_named: bool,
}

impl Classes {
    fn of(coco: &Coco, attribute: Option<&str>) -> Result<Self> {
        match attribute.unwrap_or(ATTRIBUTES[0]) {
            "category_id" => Self::by_id(coco),
            "name" => Self::by_name(coco),
            other => Err(Error::unsupported(format!("annotations have no class {other:?}"))
                .with_remedy(format!("write one of {} behind '::'", ATTRIBUTES.join(", ")))),
        }
    }

    /// Class ids are those of the categories.
    fn by_id(coco: &Coco) -> Result<Self> {
        let (mut ids, mut names) = (BTreeMap::new(), Vec::new());
        let used = coco.annotations.iter().filter_map(|annotation| annotation.category_id);
        for id in coco.categories.iter().map(|class| class.id).chain(used.clone()) {
            let class = u16::try_from(id).map_err(|_| {
                Error::new(ErrorKind::Overflow, format!("the category id {id} is not a class id"))
                    .with_remedy("class ids are whole numbers from 0 to 65535; number classes by their names: write ::name behind the file")
            })?;
            ids.insert(id, class);
        }
        if used.clone().any(|id| id == 0) {
            return Err(Error::conflict("annotations have the category 0, which is also the class of pixels without an annotation")
                .with_remedy("number classes by their names, from 1 on: write ::name behind the file"));
        }
        for class in coco.categories.iter().filter(|class| class.id > 0) {
            let id = class.id as usize;
            if names.len() <= id {
                names.resize(id + 1, String::new());
            }
            names[id].clone_from(&class.name);
        }
        Ok(Self { ids, names: (!names.is_empty()).then_some(names), are_named: false })
    }

    /// Class ids are places among the names of the categories.
    fn by_name(coco: &Coco) -> Result<Self> {
        let values = coco.categories.iter().map(|class| Value::Text(class.name.clone()));
        let values: Vec<Value> = values.collect();
        // Names that are numbers are names, too.
        let named = classes::by_name(&values, "name")?;
        let both = coco.categories.iter().zip(&named.ids);
        let ids = both.filter_map(|(class, id)| Some((class.id, (*id)?))).collect();
        Ok(Self { ids, names: named.names, are_named: true })
    }

    fn id_of(&self, annotation: &Annotation, number: usize) -> Result<u16> {
        let id = annotation.category_id.and_then(|id| self.ids.get(&id));
        id.copied().ok_or_else(|| {
            Error::malformed(format!("annotation {number} has no category with a name or id"))
                .with_remedy("give each annotation a category_id of the list of categories")
        })
    }
}

impl Source for Annotated {
    fn info(&self) -> &CubeInfo {
        &self.info
    }

    fn access(&self) -> Access {
        Access::Random
    }

    fn preferred_rows(&self, budget: usize) -> usize {
        (budget / self.info.row_bytes().max(1)).clamp(1, self.info.shape.rows)
    }

    fn read_rows(&self, rows: Range<usize>, out: &mut RowBuffer) -> Result<()> {
        let CubeShape { rows: height, columns: width, .. } = self.info.shape;
        out.reset(DType::U16, rows.len() * width);
        let pixels = out.values_mut::<u16>();
        pixels.fill(0);
        for (runs, id) in &self.drawn {
            runs.draw(height, &rows, *id, pixels);
        }
        Ok(())
    }
}
