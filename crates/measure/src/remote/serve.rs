//! Answering requests.

use super::channel::Channel;
use super::request::Request;
use crate::device::TrainingLibrary;
use crate::{Result, bench, diagnose};

/// Answers requests with a library until there are no more.
///
/// # Errors
/// If a request cannot be read, or an answer cannot be sent. An error during measuring is sent as
/// an answer.
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

    use super::super::channel::Answer;
    use super::*;
    use crate::Error;

    /// The answers of the host to some lines.
    fn answers(lines: &[&str]) -> (Vec<String>, Result<()>) {
        let (mut lines, mut sent) = (lines.iter(), Vec::new());
        let mut receive = || Ok(lines.next().map(|line| (*line).to_owned()));
        let mut send = |line: &str| {
            sent.push(line.to_owned());
            Ok(())
        };
        let channel = &mut Channel { receive: &mut receive, send: &mut send };
        let served = serve(&Host::new(1), channel);
        (sent, served)
    }

    #[test]
    fn requests_are_answered_in_their_order_and_errors_are_answers() {
        let lines = [r#"{"device": "auto"}"#, r#"{"device": "tpu"}"#, r#"{"device": "cpu"}"#];
        let (sent, served) = answers(&lines);
        served.unwrap();
        assert_eq!([&sent[0], &sent[2]], [r#"{"done":"cpu"}"#; 2]);
        let Answer::Failed(failure) = serde_json::from_str::<Answer<String>>(&sent[1]).unwrap()
        else {
            panic!("{}", sent[1]);
        };
        assert!(Error::from(failure).to_string().contains("no device is named tpu"));
    }

    #[test]
    fn text_that_is_not_a_request_ends_the_process() {
        let (sent, served) = answers(&["hello", r#"{"device": "cpu"}"#]);
        assert!(sent.is_empty() && served.unwrap_err().to_string().contains("no request"));
    }
}
