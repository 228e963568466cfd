//! Features on a map as a mask: their coordinates become pixels of the cube, and an attribute says
//! their classes.

use std::path::Path;

use hsipack_format::{CubeShape, DType, Error, Opt, Result, remedy};
use hsipack_store::bounded_read;

use super::burned::Burned;
use super::classes::{self, Classes, Value};
use super::crs::Conversion;
use super::features::{Features, MAX_LISTED, in_pixels, not_in_the_cube, not_placed};
use super::shapes::Labelled;
use super::{LabelOptions, annotated, envi_roi, geojson, geopackage, json, labelme, shapefile};
use crate::{CubeInfo, Source};

/// The start of a file that says its format.
const HEAD_BYTES: u64 = 512;

/// Opens features in `path`; `None` if the file holds something else.
///
/// # Errors
/// If the file is malformed, or does not fit the options or the cube.
pub(super) fn open(path: &Path, options: &LabelOptions<'_>) -> Result<Option<Box<dyn Source>>> {
    if !path.is_file() {
        return Ok(None);
    }
    let head = bounded_read::head(path, HEAD_BYTES)?;
    let read: fn(&Path, Option<&str>) -> Result<Features> = if json::recognises(&head) {
        // The head of an object on a server may be there before the object is.
        hsipack_store::mirror::prepare(path)?;
        match json::kind(path).map_err(|error| error.at(path))? {
            json::Kind::GeoJson => geojson::read,
            json::Kind::Coco => {
                return annotated::open(path, options).map(Some).map_err(|error| error.at(path));
            }
            json::Kind::Labelme => {
                return labelme::open(path, options).map(Some).map_err(|error| error.at(path));
            }
        }
    } else if envi_roi::recognises(&head) {
        hsipack_store::mirror::prepare(path)?;
        return envi_roi::open(path, options).map(Some).map_err(|error| error.at(path));
    } else if shapefile::recognises(&head) {
        shapefile::read
    } else if geopackage::recognises(&head) {
        geopackage::read
    } else {
        return Ok(None);
    };
    // The head of an object on a server may be there before the object is.
    hsipack_store::mirror::prepare(path)?;
    let features = read(path, options.variable.as_deref()).map_err(|error| error.at(path))?;
    let burned = burned(features, path, options).map_err(|error| error.at(path))?;
    Ok(Some(Box::new(burned)))
}

fn burned(features: Features, path: &Path, options: &LabelOptions<'_>) -> Result<Burned> {
    let geo = options.geo.ok_or_else(not_placed)?;
    let classes = classes_of(&features, options.variable.as_deref())?;
    let conversion = match (&features.crs, &geo.crs) {
        (Some(_), None) => {
            return Err(Error::unsupported("the reference system of the cube is not known, so the features have no place in it")
                .with_remedy("give a cube with a reference system, or features without one that have the coordinates of the cube"));
        }
        // Without a reference system, features have the coordinates of the cube.
        (crs, _) => Conversion::between(crs.as_deref(), geo.crs.as_deref())?,
    };
    let [rows, columns] = options.image;
    let mut info =
        CubeInfo::new(features.format, CubeShape::new(rows, columns, 1), DType::U16, path);
    info.files = features.files;
    info.geo = Some(geo.clone());
    info.has_named_classes = classes.names.is_some();
    info.class_names = classes.names;
    let mut shapes = Vec::new();
    // Without features with a class, there is nothing to check.
    info.misses_cube = classes.ids.iter().any(Option::is_some);
    for (number, (feature, id)) in features.features.into_iter().zip(classes.ids).enumerate() {
        let Some(id) = id else { continue };
        for shape in feature.shapes {
            let shape = in_pixels(shape, geo, conversion.as_ref())
                .ok_or_else(|| not_in_the_cube().within(format!("feature {number}")))?;
            info.misses_cube &= !shape.touches(options.image);
            shapes.extend(Labelled::new(shape, id, rows));
        }
    }
    Ok(Burned { info, shapes, all_touched: options.all_touched })
}

/// The classes of features: by the attribute, otherwise class 1 for all of them.
fn classes_of(features: &Features, attribute: Option<&str>) -> Result<Classes> {
    let Some(attribute) = attribute else {
        return Ok(Classes { ids: vec![Some(1); features.features.len()], names: None });
    };
    // A layer may stand before the attribute.
    let attribute = attribute.rsplit_once('/').map_or(attribute, |(_, attribute)| attribute);
    if !features.features.is_empty() && !features.attributes.iter().any(|name| name == attribute) {
        let mut listed: Vec<&str> =
            features.attributes.iter().take(MAX_LISTED).map(String::as_str).collect();
        listed.extend((features.attributes.len() > MAX_LISTED).then_some("…"));
        let error = Error::unsupported(format!("no feature has the attribute {attribute:?}"));
        return Err(match listed.is_empty() {
            true => {
                error.with_remedy(remedy!["leave out ::", attribute.to_owned(), " in ", Opt::Mask])
            }
            false => error.with_remedy(format!("its attributes: {}", listed.join(", "))),
        });
    }
    let values: Vec<Value> =
        features.features.iter().map(|feature| feature.value.clone()).collect();
    classes::classes(&values, attribute)
}
