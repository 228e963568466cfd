//! Answers, and how errors become answers.

use hsipack_format::{Error, ErrorKind, MaskValue};
use serde::Serialize;
use serde_json::json;

/// An answer to a request.
#[derive(Debug)]
pub struct Answer {
    /// The HTTP status.
    pub status: u16,
    /// The type of the body.
    pub content_type: &'static str,
    /// The body.
    pub body: Vec<u8>,
    /// For numbers, the lengths of their axes.
    pub shape: Option<String>,
    /// Whether the browser may keep the answer, because it stays valid as long as its address does.
    pub stays: bool,
}

impl Answer {
    fn new(content_type: &'static str, body: Vec<u8>) -> Self {
        Self { status: 200, content_type, body, shape: None, stays: false }
    }

    /// JSON. NaN and infinite numbers become `null`.
    pub fn json(value: &impl Serialize) -> Self {
        let body = serde_json::to_vec(value).expect("answers have string keys");
        Self::new("application/json", body)
    }

    /// Numbers, little-endian, the last axis fastest.
    pub fn numbers<const N: usize>(shape: [usize; N], body: Vec<u8>) -> Self {
        let shape = shape.map(|length| length.to_string()).join(",");
        let answer = Self::new("application/octet-stream", body);
        Self { shape: Some(shape), ..answer }
    }

    /// The values of a mask: class ids in two bytes, or sets of boolean layers in eight.
    pub fn mask(shape: [usize; 2], values: &[MaskValue], layers: bool) -> Self {
        let body = match layers {
            true => bytes(values, MaskValue::to_le_bytes),
            false => bytes(values, |id| (id as u16).to_le_bytes()),
        };
        Self::numbers(shape, body)
    }

    /// A picture.
    pub fn png(body: Vec<u8>) -> Self {
        Self { stays: true, ..Self::new("image/png", body) }
    }

    /// A file of the page.
    pub fn file(content_type: &'static str, body: &[u8]) -> Self {
        Self::new(content_type, body.to_vec())
    }

    /// A refusal, with what is wrong and what to do.
    pub fn refusal(status: u16, what: &str, remedy: Option<&str>) -> Self {
        let body = json!({ "error": what, "remedy": remedy });
        Self { status, ..Self::json(&body) }
    }

    /// The answer if there is nothing at this address.
    pub fn missing() -> Self {
        Self::refusal(404, "there is nothing at this address", None)
    }
}

/// Numbers as bytes; `to` converts one number.
pub fn bytes<T: Copy, const N: usize>(values: &[T], to: fn(T) -> [u8; N]) -> Vec<u8> {
    values.iter().flat_map(|value| to(*value)).collect()
}

impl From<Error> for Answer {
    fn from(error: Error) -> Self {
        let status = match error.kind() {
            ErrorKind::Conflict | ErrorKind::NotFound | ErrorKind::Ambiguous => 400,
            ErrorKind::Malformed | ErrorKind::Unsupported | ErrorKind::Damaged => 422,
            ErrorKind::Interrupted => 503,
            _ => 500,
        };
        let remedy = error.remedy().map(ToString::to_string);
        let mut what = error.what().to_owned();
        if let Some(path) = error.path() {
            what = format!("{}: {what}", path.display());
        }
        let what = hsipack_format::text::printable(&what);
        Self::refusal(status, &what, remedy.as_deref())
    }
}
