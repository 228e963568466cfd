//! Lengths of the axes of arrays, for messages.

use hsipack_format::Error;

/// The lengths as text, such as `8x10x32`.
pub(crate) fn lengths_text(lengths: &[usize]) -> String {
    let lengths: Vec<String> = lengths.iter().map(usize::to_string).collect();
    lengths.join("x")
}

/// The error for a shape that no file can hold.
pub(crate) fn too_large(lengths: &[usize]) -> Error {
    Error::malformed(format!("a shape of {} is impossibly large", lengths_text(lengths)))
        .with_remedy("copy the file again; it is damaged")
}
