//! `--boxes`: bounding boxes, as two columns of the samples.
//!
//! | column | value |
//! |---|---|
//! | `boxes` | a list with `[x_min, y_min, x_max, y_max]` of each box, by the edges of pixels |
//! | `box_labels` | a list with the class of each box: its name, or its id if the file names no classes |
//!
//! A cube without boxes has empty lists. A cube that no file lists has null, if `--unlisted keep`
//! says that it is packed.

use hsipack_format::samples::boxes::{BOX_LABELS, BOXES};
use hsipack_format::{Error, ErrorKind, Opt, Result, remedy};
use hsipack_source::labels::boxes::{self, CubeOfBoxes, Label};
use serde_json::{Map, Value, json};

use super::masks::names_of;
use super::named_files;
use super::options::Unlisted;
use crate::input::Input;

/// The longest text of the boxes of a cube. A line of samples.jsonl has up to 4 MiB.
const MAX_TEXT_BYTES: usize = 2 << 20;

/// The columns of the boxes of a cube. `None` if no file lists it, and such cubes are left out.
///
/// # Errors
/// If the file is malformed; if none lists the cube, and `unlisted` says that this is an error.
pub(super) fn columns(
    pattern: &str,
    input: &Input,
    size: [usize; 2],
    unlisted: Unlisted,
) -> Result<Option<Map<String, Value>>> {
    let found = match named_files::find(pattern, input, "the boxes")? {
        None => Err(Error::not_found(format!(
            "its boxes are missing: {}",
            named_files::absence(pattern, input)
        ))
        .at(&input.file)),
        Some(file) => {
            let names = names_of(input)?;
            let cube = CubeOfBoxes { names: &names, size };
            boxes::read(&file.file, file.variable.as_deref(), cube)
        }
    };
    let found = match (found, unlisted) {
        (Ok(found), _) => found,
        (Err(error), Unlisted::Error) if error.kind() == ErrorKind::NotFound => {
            return Err(error.or_remedy(remedy![
                "check ",
                Opt::Boxes,
                ", or pass ",
                Opt::Unlisted.to("keep"),
                " or ",
                Opt::Unlisted.to("skip")
            ]));
        }
        (Err(error), rule) if error.kind() == ErrorKind::NotFound => {
            return Ok((rule == Unlisted::Keep).then(|| of(Value::Null, Value::Null)));
        }
        (Err(error), _) => return Err(error),
    };
    let label = |label: &Label| match label {
        Label::Name(name) => Value::from(name.as_str()),
        Label::Id(id) => Value::from(*id),
    };
    let (boxes, labels) = (json!(found.boxes), found.labels.iter().map(label).collect());
    let columns = of(boxes, labels);
    let len = json!(columns).to_string().len();
    if len > MAX_TEXT_BYTES {
        return Err(Error::unsupported(format!(
            "the {} boxes of the cube take {len} bytes; they may take up to {MAX_TEXT_BYTES}",
            found.boxes.len()
        ))
        .at(&input.file)
        .with_remedy("divide the cube, or shorten the names of the classes"));
    }
    Ok(Some(columns))
}

fn of(boxes: Value, labels: Value) -> Map<String, Value> {
    Map::from_iter([(BOXES.to_owned(), boxes), (BOX_LABELS.to_owned(), labels)])
}
