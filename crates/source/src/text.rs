//! Texts of headers and lists.

/// Decodes header text as UTF-8, or as Latin-1 if it is not valid UTF-8 (because of a `µ`, or a
/// name in `description`).
pub(crate) fn decode(bytes: &[u8]) -> String {
    let bytes = bytes.strip_prefix(b"\xEF\xBB\xBF").unwrap_or(bytes);
    match std::str::from_utf8(bytes) {
        Ok(text) => text.to_owned(),
        Err(_) => bytes.iter().copied().map(char::from).collect(),
    }
}
