//! The process that measures, as seen by the one that asks.

use std::io::{BufRead, BufReader, Read, Write};
use std::path::PathBuf;
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use hsipack_format::{Opt, remedy};
use hsipack_store::threads;
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::channel::Answer;
use crate::{Error, ErrorKind, Result};

/// Interval at which a request to stop is checked.
const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// A process that calls [`serve`](super::serve). It is killed on drop.
#[derive(Debug)]
pub struct Process {
    program: PathBuf,
    child: Child,
    requests: ChildStdin,
    answers: Receiver<String>,
    /// Reads the process's standard error until it ends.
    messages: Option<JoinHandle<String>>,
}

impl Process {
    /// Starts the process.
    ///
    /// # Errors
    /// If the program cannot be run, or the system cannot start threads.
    pub fn start(command: &mut Command) -> Result<Self> {
        let program = PathBuf::from(command.get_program());
        let piped = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = piped.spawn().map_err(|error| Error::io(&program, "cannot run", error))?;
        let requests = child.stdin.take().expect("piped");
        let lines = BufReader::new(child.stdout.take().expect("piped")).lines();
        let mut stderr = child.stderr.take().expect("piped");
        let (sender, answers) = channel();
        // Both threads end with the process.
        let listen = move || lines.map_while(|line| sender.send(line.ok()?).ok()).for_each(drop);
        let read = move || {
            let mut text = Vec::new();
            // Text that arrived before an error still counts.
            let _ = stderr.read_to_end(&mut text);
            String::from_utf8_lossy(&text).into_owned()
        };
        let started =
            threads::start("answers", listen).and_then(|_| threads::start("messages", read));
        match started {
            Ok(messages) => {
                Ok(Self { program, child, requests, answers, messages: Some(messages) })
            }
            Err(error) => {
                end(&mut child);
                Err(error)
            }
        }
    }

    /// Sends a request and returns the answer.
    ///
    /// # Errors
    /// The error in the answer; or if the process ends without an answer, or was stopped.
    pub fn ask<A: DeserializeOwned>(
        &mut self,
        request: &impl Serialize,
        stop: &AtomicBool,
    ) -> Result<A> {
        let mut line = serde_json::to_string(request).expect("plain data");
        line.push('\n');
        // Writing to a process that has ended could kill this one with a signal.
        let running = matches!(self.child.try_wait(), Ok(None));
        if !running || self.requests.write_all(line.as_bytes()).is_err() {
            return Err(self.ended());
        }
        let line = loop {
            match self.answers.recv_timeout(POLL_INTERVAL) {
                Ok(line) => break line,
                Err(_) if stop.load(Ordering::Relaxed) => return Err(stopped()),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return Err(self.ended()),
            }
        };
        match serde_json::from_str(&line) {
            Ok(Answer::Done(done)) => Ok(done),
            Ok(Answer::Failed(failure)) => Err(failure.into()),
            Err(error) => {
                Err(self.failed(format!("the process sent an invalid answer: {error}: {line}")))
            }
        }
    }

    /// The error if the process ended without an answer.
    fn ended(&mut self) -> Error {
        let status = self.child.wait();
        let messages = self.messages.take().and_then(|messages| messages.join().ok());
        let messages = messages.unwrap_or_default();
        match (last_line(&messages), status) {
            (_, Ok(status)) if by_the_user(status) => stopped(),
            (Some(line), _) => self.failed(line.to_owned()),
            (None, Ok(status)) => {
                let error = self
                    .failed(format!("it ended early ({status}), possibly because memory ran out"));
                error.with_remedy(remedy!["choose a smaller ", Opt::BatchSize])
            }
            (None, Err(error)) => self.failed(error.to_string()),
        }
    }

    fn failed(&self, what: String) -> Error {
        Error::new(ErrorKind::Io, what).at(&self.program)
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        end(&mut self.child);
    }
}

fn end(child: &mut Child) {
    // A process that has already ended cannot be killed.
    let _ = child.kill();
    let _ = child.wait();
}

/// The last line that a failed process wrote.
fn last_line(text: &str) -> Option<&str> {
    let line = text.lines().rfind(|line| !line.trim().is_empty())?;
    Some(line.strip_prefix("hsipack: ").unwrap_or(line))
}

/// Whether Ctrl-C ended the process: all processes of a terminal receive it.
fn by_the_user(status: ExitStatus) -> bool {
    #[cfg(unix)]
    return std::os::unix::process::ExitStatusExt::signal(&status) == Some(2);
    #[cfg(not(unix))]
    return false;
}

fn stopped() -> Error {
    Error::new(ErrorKind::Interrupted, "stopped")
        .with_remedy("the same command starts again from the beginning")
}

#[cfg(all(test, unix))]
mod tests {
    use std::time::Instant;

    use super::*;

    /// A process that runs lines of a shell.
    fn shell(script: &str) -> Process {
        Process::start(Command::new("sh").args(["-c", script])).unwrap()
    }

    fn ask(script: &str) -> Result<u32> {
        shell(script).ask(&"how many?", &AtomicBool::new(false))
    }

    #[test]
    fn answers_come_back_and_errors_with_their_kind() {
        assert_eq!(
            ask(r#"read line; test "$line" = '"how many?"' && echo '{"done": 7}'"#).unwrap(),
            7
        );
        let failed = r#"{"failed": {"kind": "device", "what": "no", "choices": [], "remedy": [{"words": "sorry"}]}}"#;
        let error = ask(&format!("read line; echo '{failed}'")).unwrap_err();
        assert_eq!((error.kind(), error.to_string()), (ErrorKind::Device, "no (sorry)".to_owned()));
    }

    #[test]
    fn the_last_words_of_a_process_are_in_its_error() {
        let error = ask("read line; echo one >&2; echo 'hsipack: two' >&2; exit 3").unwrap_err();
        assert_eq!((error.kind(), error.to_string()), (ErrorKind::Io, "sh: two".to_owned()));
        let error = ask("read line; kill -9 $$").unwrap_err().to_string();
        assert!(error.contains("signal: 9") && error.contains("batch_size"), "{error}");
        let error = ask("read line; echo hello; read line").unwrap_err().to_string();
        assert!(error.contains("an invalid answer"), "{error}");
        let mut gone = shell("exit 1");
        gone.child.wait().unwrap();
        assert_eq!(gone.ask::<u32>(&1, &AtomicBool::new(false)).unwrap_err().kind(), ErrorKind::Io);
        assert!(Process::start(&mut Command::new("./no-such-program")).is_err());
    }

    /// Whether this process ignores Ctrl-C, like one that a script started in the background. Its
    /// children then ignore it as well.
    fn ctrl_c_is_ignored() -> bool {
        let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
        let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
        let ignored = ignored.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
        ignored.is_some_and(|mask| mask & 0b10 != 0)
    }

    #[test]
    fn ctrl_c_and_the_wish_to_stop_end_it() {
        match ctrl_c_is_ignored() {
            true => hsipack_testing::skipped("Ctrl-C is ignored here, as in the background"),
            false => {
                assert_eq!(ask("read line; kill -2 $$").unwrap_err().kind(), ErrorKind::Interrupted)
            }
        }
        let (mut process, start) = (shell("read line; exec sleep 60"), Instant::now());
        let error = process.ask::<u32>(&1, &AtomicBool::new(true)).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Interrupted);
        drop(process);
        assert!(start.elapsed() < Duration::from_secs(30));
    }
}
