//! Layouts of users: TOML, inputs and options below a folder.
#![no_main]

use std::path::Path;

use libfuzzer_sys::fuzz_target;

use layout::Layout;

#[allow(dead_code)]
#[path = "../../../cli/src/commands/convert/layout.rs"]
mod layout;
#[allow(dead_code)]
#[path = "../../../cli/src/commands/convert/option_file.rs"]
mod option_file;

fuzz_target!(|bytes: &[u8]| {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    match Layout::parse(Path::new("own.toml"), text) {
        Ok(layout) => {
            // Nothing that is relative in the layout is looked up in the folder where the command runs.
            let is_whole = |path: &String| path.starts_with('/') || path.contains("://");
            assert!(layout.inputs("/data/").iter().all(is_whole));
            let file = layout.options("own.toml".into(), "/data");
            assert!(!file.options.contains_key("inputs"));
        }
        Err(error) => assert!(error.path().is_some() && error.remedy().is_some()),
    }
});
