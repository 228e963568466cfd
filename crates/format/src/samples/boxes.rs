//! Boxes around objects, in two columns of the samples.

use serde_json::Value;

/// The column with the boxes of a sample: a list with `[left, top, right, bottom]` of each, in
/// pixels from the outer corner of the cube's first pixel. Null if they are not known.
pub const BOXES: &str = "boxes";
/// The column with their classes: a list of as many names, or of whole numbers.
pub const BOX_LABELS: &str = "box_labels";

/// The edges of the boxes in a value of the column [`BOXES`]. `None` if it is something else: a
/// column of a user's table may have this name.
pub fn edges(column: &Value) -> Option<Vec<[f64; 4]>> {
    let edges = |object: &Value| {
        let [left, top, right, bottom] = &object.as_array()?[..] else { return None };
        Some([left.as_f64()?, top.as_f64()?, right.as_f64()?, bottom.as_f64()?])
    };
    column.as_array()?.iter().map(edges).collect()
}

/// A label as text: without quotes if it is one.
pub fn label_text(label: &Value) -> String {
    label.as_str().map_or_else(|| label.to_string(), str::to_owned)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn only_lists_of_four_numbers_are_boxes() {
        assert_eq!(edges(&json!([])), Some(Vec::new()));
        assert_eq!(edges(&json!([[1, 2, 3.5, 4]])), Some(vec![[1.0, 2.0, 3.5, 4.0]]));
        for other in [
            json!(3),
            json!(null),
            json!([1, 2, 3, 4]),
            json!([[1, 2, 3]]),
            json!([["1", 2, 3, 4]]),
        ] {
            assert_eq!(edges(&other), None, "{other}");
        }
    }

    #[test]
    fn labels_are_shown_without_quotes() {
        assert_eq!([label_text(&json!("leaf")), label_text(&json!(7))], ["leaf", "7"]);
    }
}
