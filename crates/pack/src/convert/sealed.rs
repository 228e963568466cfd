//! JSON that contains a hash of itself, so that a file that was changed or truncated is detected.

use hsipack_format::checksums::sha256;
use serde::Serialize;

const BEFORE: &str = "{\"sha256\":\"";
const BETWEEN: &str = "\",\"content\":";
const AFTER: &str = "}\n";
/// Number of digits of a hash.
const DIGITS: usize = 64;

/// The JSON text of `content`, with its hash: `{"sha256":"…","content":…}` and a line feed.
///
/// # Panics
/// If the keys of a map in `content` are not strings.
pub fn seal(content: &impl Serialize) -> Vec<u8> {
    let mut text = format!("{BEFORE}{}{BETWEEN}", "0".repeat(DIGITS)).into_bytes();
    let start = text.len();
    serde_json::to_writer(&mut text, content).expect("keys are strings");
    let hash = sha256(&text[start..]);
    text[BEFORE.len()..][..DIGITS].copy_from_slice(hash.as_bytes());
    text.extend(AFTER.as_bytes());
    text
}

/// Whether a text that begins like this is sealed.
pub fn is_start(start: &[u8]) -> bool {
    start.starts_with(BEFORE.as_bytes())
}

/// The content of a sealed text; `None` if any byte differs from what [`seal`] wrote.
pub fn content(text: &str) -> Option<&str> {
    let (hash, remaining) = text.strip_prefix(BEFORE)?.split_at_checked(DIGITS)?;
    let content = remaining.strip_prefix(BETWEEN)?.strip_suffix(AFTER)?;
    (sha256(content.as_bytes()) == hash).then_some(content)
}
