//! JSON that contains a hash of itself, so that a file that was changed or truncated is detected.

use hsipack_format::checksums::sha256;

const BEFORE: &str = "{\"sha256\":\"";
const BETWEEN: &str = "\",\"content\":";
const AFTER: &str = "}\n";
/// Number of digits of a hash.
const DIGITS: usize = 64;

/// `content`, a JSON text, with its hash: `{"sha256":"…","content":…}` and a line feed.
pub fn seal(content: &str) -> String {
    format!("{BEFORE}{}{BETWEEN}{content}{AFTER}", sha256(content.as_bytes()))
}

/// The content of a sealed text; `None` if any byte differs from what [`seal`] wrote.
pub fn content(text: &str) -> Option<&str> {
    let (hash, rest) = text.strip_prefix(BEFORE)?.split_at_checked(DIGITS)?;
    let content = rest.strip_prefix(BETWEEN)?.strip_suffix(AFTER)?;
    (sha256(content.as_bytes()) == hash).then_some(content)
}
