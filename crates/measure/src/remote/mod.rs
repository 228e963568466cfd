//! Measuring in another process. Each case of a benchmark runs in its own process, so that memory and processor time
//! are its own. Devices for which this process has no library are measured in a Python process, whose torch supports
//! them.
//!
//! Requests are written to the process's standard input and answers to its standard output, both as JSON, one per line:
//!
//! | request | answer |
//! |---|---|
//! | [`Request::Device`] | the device that the name means, such as `cuda:0` |
//! | [`Request::Bench`] | a [`bench::Measurement`] |
//! | [`Request::Diagnose`] | [`diagnose::About`]; after it, only requests of [`diagnose`] follow |
//!
//! An answer is `{"done": …}` or `{"failed": …}`, an error with all its parts. The process that asked spells the remedy
//! for its own users. The process ends when its input ends.
//!
//! | file | part |
//! |---|---|
//! | `process.rs` | the process, as seen by the one that asks |
//! | `failure.rs` | errors as plain data |

mod failure;
mod process;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::device::TrainingLibrary;
use crate::{Error, Result, bench, diagnose};
pub use failure::Failure;
pub use process::Process;

/// A request.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Request {
    /// Whether the library has the device of that name.
    Device(String),
    /// Measure a case.
    Bench(Box<bench::Request>),
    /// Open a packed dataset, whose levels are timed next.
    Diagnose(Box<diagnose::PackedRequest>),
}

/// An answer.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Answer<T> {
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

/// Answers requests with a library until there are no more.
///
/// # Errors
/// If a request cannot be read, or an answer cannot be sent. An error during measuring is sent as an answer.
pub fn serve<L: TrainingLibrary>(library: &L, channel: &mut Channel<'_>) -> Result<()> {
    while let Some(request) = channel.request()? {
        match request {
            Request::Device(name) => {
                channel.answer(library.named(&name).map(|device| device.to_string()))?;
            }
            Request::Bench(request) => channel.answer(bench::measure(&request, library))?,
            Request::Diagnose(request) => diagnose::serve(&request, library, channel)?,
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use hsipack_read::augment::Host;

    use super::*;

    /// The answers of the host to some lines.
    fn answers(lines: &[&str]) -> (Vec<String>, Result<()>) {
        let (mut lines, mut told) = (lines.iter(), Vec::new());
        let mut receive = || Ok(lines.next().map(|line| (*line).to_owned()));
        let mut send = |line: &str| {
            told.push(line.to_owned());
            Ok(())
        };
        let channel = &mut Channel { receive: &mut receive, send: &mut send };
        let served = serve(&Host::new(1), channel);
        (told, served)
    }

    #[test]
    fn requests_are_answered_in_their_order_and_errors_are_answers() {
        let lines = [r#"{"device": "auto"}"#, r#"{"device": "tpu"}"#, r#"{"device": "cpu"}"#];
        let (told, served) = answers(&lines);
        served.unwrap();
        assert_eq!([&told[0], &told[2]], [r#"{"done":"cpu"}"#; 2]);
        let Answer::Failed(failure) = serde_json::from_str::<Answer<String>>(&told[1]).unwrap()
        else {
            panic!("{}", told[1]);
        };
        assert!(Error::from(failure).to_string().contains("no device is named tpu"));
    }

    #[test]
    fn what_is_no_request_ends_it() {
        let (told, served) = answers(&["hello", r#"{"device": "cpu"}"#]);
        assert!(told.is_empty() && served.unwrap_err().to_string().contains("no request"));
    }
}
