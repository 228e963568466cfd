//! Patterns with fields, for a path and the fields of its cube: lines of the input.
#![no_main]

use std::collections::BTreeSet;
use std::path::Path;

use hsipack_pack::input::Input;
use hsipack_pack::pattern::Pattern;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    let mut lines = text.split('\n');
    let (pattern, path) = (lines.next().unwrap_or_default(), lines.next().unwrap_or_default());
    let pattern = Pattern(pattern);
    let mut input =
        Input { variable: lines.next().map(str::to_owned), ..Input::of(Path::new(path)) };
    for field in lines {
        input.fields.insert(field.to_owned(), Some(field.to_owned()));
    }
    let fields: BTreeSet<String> = input.fields.keys().cloned().collect();
    let filled = pattern.of(&input);
    // What is accepted before cubes are known can be filled for each of them.
    assert_eq!(pattern.check(&fields).is_ok(), filled.is_ok());
    if !pattern.is_of_each_cube() {
        assert_eq!(filled.ok().flatten().as_deref(), Some(pattern.0));
    }
    let _ = (input.default_name(), input.array_and_sample(), input.relative());
});
