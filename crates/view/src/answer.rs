//! Answers, and how errors become some.

use hsipack_format::{Error, ErrorKind};
use serde::Serialize;
use serde_json::json;

/// What is sent back.
#[derive(Debug)]
pub struct Answer {
    /// Status of HTTP.
    pub status: u16,
    /// What the body is.
    pub content_type: &'static str,
    /// The body.
    pub body: Vec<u8>,
    /// Lengths of the axes of numbers.
    pub shape: Option<String>,
    /// Whether the browser may keep it: what it says stays true as long as its address does.
    pub stays: bool,
}

impl Answer {
    fn new(content_type: &'static str, body: Vec<u8>) -> Self {
        Self { status: 200, content_type, body, shape: None, stays: false }
    }

    /// JSON. Numbers that are none are `null` in it.
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

    /// A picture.
    pub fn png(body: Vec<u8>) -> Self {
        Self { stays: true, ..Self::new("image/png", body) }
    }

    /// A file of the page.
    pub fn file(content_type: &'static str, body: &[u8]) -> Self {
        Self::new(content_type, body.to_vec())
    }

    /// That a question is none.
    pub fn refusal(status: u16, what: &str, remedy: Option<&str>) -> Self {
        let body = json!({ "error": what, "remedy": remedy });
        Self { status, ..Self::json(&body) }
    }

    /// That there is nothing at this address.
    pub fn missing() -> Self {
        Self::refusal(404, "there is nothing at this address", None)
    }
}

/// Numbers as bytes; `to` is those of one.
pub fn bytes<T: Copy, const N: usize>(values: &[T], to: fn(T) -> [u8; N]) -> Vec<u8> {
    values.iter().flat_map(|value| to(*value)).collect()
}

impl From<Error> for Answer {
    fn from(error: Error) -> Self {
        let status = match error.kind() {
            ErrorKind::Conflict | ErrorKind::Ambiguous => 400,
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
