//! Tables of users: CSV, TSV, JSON, JSON lines and Parquet. The first byte chooses the format.
#![no_main]

use hsipack_pack::table::Table;
use libfuzzer_sys::fuzz_target;

#[path = "../files.rs"]
mod files;

const ENDINGS: [&str; 5] = ["csv", "tsv", "json", "jsonl", "parquet"];

fuzz_target!(|bytes: &[u8]| {
    let Some((choice, bytes)) = bytes.split_first() else { return };
    let name = format!("table.{}", ENDINGS[usize::from(*choice) % ENDINGS.len()]);
    files::write(&name, bytes);
    let path = files::path(&name);
    if let Ok(mut table) = Table::read(&path, "name") {
        let names: Vec<String> = table.remaining().into_iter().map(str::to_owned).collect();
        assert!(names.iter().all(|name| table.row(name).is_some()));
    }
});
