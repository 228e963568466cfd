//! The side that answers requests, as lines of JSON.

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::failure::Failure;
use crate::{Error, Result};

/// An answer.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Answer<T> {
    Done(T),
    Failed(Failure),
}

/// The side that answers requests.
pub struct Channel<'a> {
    /// Receives the next line; `None` after the last one.
    pub receive: &'a mut dyn FnMut() -> Result<Option<String>>,
    /// Sends a line, without its newline.
    pub send: &'a mut dyn FnMut(&str) -> Result<()>,
}

impl Channel<'_> {
    /// Reads the next request.
    pub(crate) fn request<T: DeserializeOwned>(&mut self) -> Result<Option<T>> {
        let Some(line) = (self.receive)()? else { return Ok(None) };
        let request = serde_json::from_str(&line);
        request.map(Some).map_err(|error| Error::malformed(format!("no request: {error}")))
    }

    /// Answers the last request.
    pub(crate) fn answer<T: Serialize>(&mut self, result: Result<T>) -> Result<()> {
        let answer = match result {
            Ok(done) => Answer::Done(done),
            Err(error) => Answer::Failed(Failure::from(&error)),
        };
        (self.send)(&serde_json::to_string(&answer).expect("plain data"))
    }
}
