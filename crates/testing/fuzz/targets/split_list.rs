//! Lists of the samples of splits: lines, and JSON. The first byte chooses the format.
#![no_main]

use hsipack_pack::table::{SplitList, read_lists};
use libfuzzer_sys::fuzz_target;

#[path = "../files.rs"]
mod files;

fuzz_target!(|bytes: &[u8]| {
    let Some((choice, bytes)) = bytes.split_first() else { return };
    let name = if choice % 2 == 0 { "list.txt" } else { "list.json" };
    files::write(name, bytes);
    let path = files::path(name);
    for text in [format!("train={}", path.display()), path.display().to_string()] {
        if let Ok(list) = text.parse::<SplitList>() {
            let _ = read_lists(&[list]);
        }
    }
});
