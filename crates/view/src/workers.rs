//! Threads that read cubes. They are few, so that many questions at once do not need more memory.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};

use hsipack_format::{Error, Result};
use hsipack_store::threads;
use tokio::sync::oneshot;

use crate::answer::Answer;

/// Number of threads: one can read a large cube while others answer small questions.
const THREADS: usize = 3;
/// Number of questions that can wait. Further questions are refused, and can be tried again.
const WAITING: usize = 256;

struct Job {
    work: Box<dyn FnOnce() -> Answer + Send>,
    answer: oneshot::Sender<Answer>,
}

/// The threads. They end when this value is dropped.
#[derive(Clone)]
pub struct Workers(SyncSender<Job>);

impl Workers {
    /// Starts the threads.
    ///
    /// # Errors
    /// If the system refuses threads.
    pub fn start() -> Result<Self> {
        let (sender, receiver) = sync_channel(WAITING);
        let receiver = Arc::new(Mutex::new(receiver));
        for number in 0..THREADS {
            let receiver = Arc::clone(&receiver);
            threads::start(format!("view {number}"), move || work(&receiver))?;
        }
        Ok(Self(sender))
    }

    /// The answer of `work`. No thread is blocked while it is awaited.
    pub async fn answer(&self, work: impl FnOnce() -> Answer + Send + 'static) -> Answer {
        let (answer, answered) = oneshot::channel();
        if self.0.try_send(Job { work: Box::new(work), answer }).is_err() {
            return Answer::refusal(
                503,
                "too many requests at once",
                Some("try again in a moment"),
            );
        }
        answered.await.unwrap_or_else(|_| Answer::refusal(503, "the server is ending", None))
    }
}

fn work(jobs: &Mutex<Receiver<Job>>) {
    loop {
        let job = jobs.lock().unwrap_or_else(PoisonError::into_inner).recv();
        let Ok(Job { work, answer }) = job else { return };
        // Skip the work if the request was aborted meanwhile.
        if answer.is_closed() {
            continue;
        }
        let done = catch_unwind(AssertUnwindSafe(work));
        let _ = answer.send(done.unwrap_or_else(|panic| Error::panicked(&*panic).into()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_is_an_answer_and_the_thread_goes_on() {
        let workers = Workers::start().unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        for _ in 0..2 * THREADS {
            let answer = runtime.block_on(workers.answer(|| panic!("no cube")));
            assert_eq!(answer.status, 500);
            assert!(String::from_utf8(answer.body).unwrap().contains("no cube"));
        }
        let answer = runtime.block_on(workers.answer(|| Answer::json(&1)));
        assert_eq!(answer.body, b"1");
    }
}
