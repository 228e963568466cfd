//! Bounding boxes: COCO, Pascal VOC, YOLO, CSV. The first byte chooses the name of the file.
#![no_main]

use hsipack_source::labels::boxes::{self, CubeOfBoxes};
use libfuzzer_sys::fuzz_target;

// Boxes are no masks.
#[allow(dead_code)]
#[path = "../labels.rs"]
mod labels;

const NAMES: [&str; 4] = ["boxes.json", "boxes.xml", "boxes.txt", "boxes.csv"];

fuzz_target!(|bytes: &[u8]| {
    let Some((choice, bytes)) = bytes.split_first() else { return };
    let name = NAMES[usize::from(*choice) % NAMES.len()];
    labels::write(name, bytes);
    let cube = CubeOfBoxes { names: &labels::names(), size: labels::SIZE };
    let _ = boxes::pictures(&labels::path(name));
    let Ok(found) = boxes::read(&labels::path(name), None, cube) else { return };
    assert_eq!(found.boxes.len(), found.labels.len());
    let [rows, columns] = labels::SIZE.map(|side| side as f64);
    for [left, top, right, bottom] in found.boxes {
        assert!(left < right && top < bottom && right > 0.0 && bottom > 0.0);
        assert!(left < columns && top < rows);
    }
});
