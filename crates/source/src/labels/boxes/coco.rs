//! Boxes of COCO annotations: left, top, width and height. Annotations of crowds have none.

use std::path::Path;

use hsipack_format::Result;

use super::{Boxes, CubeOfBoxes, Label, annotations, wrong};

/// Reads the boxes of a cube.
///
/// # Errors
/// As [`super::read`].
pub(super) fn read(path: &Path, cube: CubeOfBoxes<'_>) -> Result<Boxes> {
    let coco = annotations::read(path)?;
    let image = coco.image_of(cube.names, cube.size)?;
    let mut boxes = Boxes::default();
    for (number, annotation) in
        coco.of_image(image).filter(|(_, annotation)| !annotation.is_crowd())
    {
        let location = format!("annotation {number}");
        let Some([left, top, width, height]) = annotation.corners() else {
            return Err(wrong(location, "it has no bbox of four numbers"));
        };
        let Some(id) = annotation.category_id else {
            return Err(wrong(location, "it has no category_id"));
        };
        let class = coco.categories.iter().find(|class| class.id == id);
        let name = class.map(|class| class.name.as_str()).filter(|name| !name.is_empty());
        let label = name.map_or(Label::Id(id), |name| Label::Name(name.to_owned()));
        boxes
            .add([left, top, left + width, top + height], label, cube.size)
            .map_err(|what| wrong(location, what))?;
    }
    Ok(boxes)
}
