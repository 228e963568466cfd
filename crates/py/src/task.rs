//! Runs long work in a separate thread, while the thread that Python called from checks for Ctrl-C.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use hsipack_format::{Error, ErrorKind};
use pyo3::prelude::*;

use crate::errors::raised;
use crate::exit::detached;

/// Interval at which Ctrl-C is checked.
pub const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// Work in progress, and its result once it is done. Of several copies, one gets the result.
pub struct Task<T>(Arc<Outcome<T>>);

impl<T> Clone for Task<T> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

struct Outcome<T> {
    result: Mutex<Option<std::thread::Result<T>>>,
    done: Condvar,
    /// The thread that does the work, if it was started for it alone.
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl<T: Send + 'static> Task<T> {
    /// Starts the work in a new thread.
    pub fn start(py: Python<'_>, work: impl FnOnce() -> T + Send + 'static) -> PyResult<Self> {
        let (task, run) = Self::new(work);
        let thread = std::thread::Builder::new().name("hsipack".to_owned()).spawn(run);
        let thread = thread.map_err(|error| no_thread(py, error))?;
        *task.0.thread.lock().unwrap_or_else(PoisonError::into_inner) = Some(thread);
        Ok(task)
    }

    /// A task, and the function that must be called to run it.
    fn new(work: impl FnOnce() -> T + Send + 'static) -> (Self, impl FnOnce() + Send + 'static) {
        let (result, done, thread) = (Mutex::new(None), Condvar::new(), Mutex::new(None));
        let outcome = Arc::new(Outcome { result, done, thread });
        let task = Self(outcome.clone());
        let run = move || {
            let result = catch_unwind(AssertUnwindSafe(work));
            *outcome.result.lock().unwrap_or_else(PoisonError::into_inner) = Some(result);
            outcome.done.notify_all();
        };
        (task, run)
    }

    /// The result, if it comes within `patience`; other Python threads run meanwhile.
    pub fn poll(&self, py: Python<'_>, patience: Duration) -> PyResult<Option<T>> {
        let outcome = &self.0;
        detached(py, || outcome.is_done(patience));
        // Taken here: a thread that is stopped on its way back, as the process ends, would keep the result for ever.
        match outcome.take() {
            None => Ok(None),
            Some(Ok(value)) => Ok(Some(value)),
            Some(Err(_)) => {
                let error = Error::bug("hsipack panicked");
                Err(raised(py, &error))
            }
        }
    }

    /// Waits up to `patience` for the result, and drops it.
    pub fn discard(&self, py: Python<'_>, patience: Duration) {
        detached(py, || self.0.is_done(patience).then(|| self.0.take()));
    }

    /// Waits for the result. If a signal handler raises, the work continues, and can be waited for
    /// again.
    pub fn wait(&self, py: Python<'_>) -> PyResult<T> {
        loop {
            if let Some(value) = self.poll(py, POLL_INTERVAL)? {
                return Ok(value);
            }
            py.check_signals()?;
        }
    }

    /// Waits for the result, whatever signals arrive.
    pub fn finish(&self, py: Python<'_>) -> PyResult<T> {
        loop {
            if let Some(value) = self.poll(py, POLL_INTERVAL)? {
                return Ok(value);
            }
        }
    }
}

impl<T> Outcome<T> {
    /// Whether the result comes within `patience`.
    fn is_done(&self, patience: Duration) -> bool {
        let result = self.result.lock().unwrap_or_else(PoisonError::into_inner);
        let waited = self.done.wait_timeout_while(result, patience, |result| result.is_none());
        let is_done = waited.unwrap_or_else(PoisonError::into_inner).0.is_some();
        if is_done {
            // It has nothing more to do. Programs that count threads do not count it any more.
            let thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner).take();
            thread.map(JoinHandle::join);
        }
        is_done
    }

    fn take(&self) -> Option<std::thread::Result<T>> {
        self.result.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

/// Runs `work` in a separate thread. If a signal handler raises meanwhile, this stops waiting, and
/// the work ends by itself.
pub fn patiently<T: Send + 'static>(
    py: Python<'_>,
    work: impl FnOnce() -> T + Send + 'static,
) -> PyResult<T> {
    Task::start(py, work)?.wait(py)
}

type Job = Box<dyn FnOnce() + Send>;

/// A thread that runs one job after another. It is kept, because libtorch starts its own threads
/// for each thread that calls it.
pub struct Worker {
    jobs: Option<Sender<Job>>,
    thread: Option<JoinHandle<()>>,
}

impl Worker {
    /// Starts the thread.
    pub fn start(py: Python<'_>) -> PyResult<Self> {
        let (jobs, todo) = channel::<Job>();
        let run = move || todo.into_iter().for_each(|job| job());
        let thread = std::thread::Builder::new().name("hsipack batch".to_owned()).spawn(run);
        let thread = thread.map_err(|error| no_thread(py, error))?;
        Ok(Self { jobs: Some(jobs), thread: Some(thread) })
    }

    /// Runs `work` in the thread.
    pub fn run<T: Send + 'static>(&self, work: impl FnOnce() -> T + Send + 'static) -> Task<T> {
        let (task, run) = Task::new(work);
        let jobs = self.jobs.as_ref().expect("taken when it is dropped");
        jobs.send(Box::new(run)).expect("the thread ends after its sender");
        task
    }
}

impl Drop for Worker {
    /// Waits for the job in progress.
    fn drop(&mut self) {
        drop(self.jobs.take());
        if let Some(thread) = self.thread.take() {
            // Jobs catch their own panics.
            let _ = thread.join();
        }
    }
}

fn no_thread(py: Python<'_>, error: std::io::Error) -> PyErr {
    let error = Error::new(ErrorKind::Io, format!("cannot start a thread: {error}"))
        .with_remedy("end other processes, or raise the limit on threads");
    raised(py, &error)
}
