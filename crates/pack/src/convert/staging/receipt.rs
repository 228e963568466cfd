//! Receipts of finished shards: their files, the plan that they belong to, and what is known of
//! their samples.

use std::path::{Path, PathBuf};

use hsipack_format::Result;
use hsipack_store::bounded_read;
use serde_json::{Value, json};

use crate::convert::sealed;

/// State of the path of a receipt.
#[derive(Debug, PartialEq)]
pub(super) enum Found {
    /// The record of the shard.
    Receipt(Value),
    /// A receipt of another plan.
    Foreign,
    /// A receipt of another shard.
    Misplaced,
    /// Anything else.
    Damaged,
}

/// The receipt of shard `number` of `stack` for the plan `plan`. `record` describes the shard.
pub(super) fn write(record: &Value, plan: &str, stack: &str, number: usize) -> Vec<u8> {
    let receipt = json!({ "plan": plan, "stack": stack, "shard": number, "record": record });
    sealed::seal(&receipt)
}

/// Reads the receipt of shard `number` of `stack` at `file`; `None` if there is no file.
///
/// # Errors
/// If it cannot be read.
pub(super) fn read(file: &Path, plan: &str, stack: &str, number: usize) -> Result<Option<Found>> {
    let Some(text) = bounded_read::read_if_there(file, bounded_read::SAMPLES)? else {
        return Ok(None);
    };
    let content = std::str::from_utf8(&text).ok().and_then(sealed::content);
    let receipt = content.and_then(|content| serde_json::from_str::<Value>(content).ok());
    Ok(Some(match receipt {
        Some(receipt) if receipt["plan"] != plan => Found::Foreign,
        Some(receipt) if receipt["stack"] != stack || receipt["shard"] != number => {
            Found::Misplaced
        }
        Some(mut receipt) => Found::Receipt(receipt["record"].take()),
        None => Found::Damaged,
    }))
}

/// The files of a shard: their paths below the dataset and lengths in bytes.
pub(super) fn files(record: &Value) -> impl Iterator<Item = (PathBuf, u64)> {
    let files = record["files"].as_array().into_iter().flatten();
    files.filter_map(|file| Some((PathBuf::from(file["path"].as_str()?), file["bytes"].as_u64()?)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn receipts_are_whole_and_of_their_plan() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("0.json");
        let record = json!({"bytes": 7, "files": [{"path": "a/c/0", "bytes": 7}], "x": 0.1});
        let found = |plan, stack, number| read(&file, plan, stack, number).unwrap();
        assert_eq!(found("plan", "a", 3), None);
        let text = write(&record, "plan", "a", 3);
        std::fs::write(&file, &text).unwrap();
        assert_eq!(found("plan", "a", 3), Some(Found::Receipt(record.clone())));
        assert_eq!(found("another", "a", 3), Some(Found::Foreign));
        assert_eq!(found("plan", "b", 3), Some(Found::Misplaced));
        assert_eq!(found("plan", "a", 2), Some(Found::Misplaced));
        assert_eq!(files(&record).collect::<Vec<_>>(), [(PathBuf::from("a/c/0"), 7)]);
        for at in 0..text.len() {
            let mut bytes = text.clone();
            bytes[at] ^= 1;
            std::fs::write(&file, &bytes).unwrap();
            assert_eq!(found("plan", "a", 3), Some(Found::Damaged), "byte {at}");
            std::fs::write(&file, &text[..at]).unwrap();
            assert_eq!(found("plan", "a", 3), Some(Found::Damaged), "cut to {at} bytes");
        }
    }
}
