//! JSON with a hash of itself, so that a file which was changed or cut short is not taken for what was written.

use hsipack_format::checksums::sha256;

const BEFORE: &str = "{\"sha256\":\"";
const BETWEEN: &str = "\",\"content\":";
const AFTER: &str = "}\n";
/// Digits of a hash.
const DIGITS: usize = 64;

/// `content`, a JSON text, with its hash: `{"sha256":"…","content":…}` and the end of a line.
pub fn seal(content: &str) -> String {
    format!("{BEFORE}{}{BETWEEN}{content}{AFTER}", sha256(content.as_bytes()))
}

/// What was sealed; `None` if a byte of the text is not as [`seal`] wrote it.
pub fn content(text: &str) -> Option<&str> {
    let (hash, rest) = text.strip_prefix(BEFORE)?.split_at_checked(DIGITS)?;
    let content = rest.strip_prefix(BETWEEN)?.strip_suffix(AFTER)?;
    (sha256(content.as_bytes()) == hash).then_some(content)
}
