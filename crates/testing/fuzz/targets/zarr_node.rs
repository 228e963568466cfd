//! The metadata of Zarr v2 and v3 nodes in other people's datasets.
#![no_main]

use hsipack_source::zarr::metadata::Node;
use libfuzzer_sys::fuzz_target;
use serde_json::Value;

fuzz_target!(|text: &[u8]| {
    let Ok(json) = serde_json::from_slice::<Value>(text) else { return };
    let _ = Node::from_v3(&json);
    let _ = Node::from_v2(Some(&json), &json["attributes"]);
    let _ = Node::from_v2(None, &json);
});
