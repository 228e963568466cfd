//! Waiting that ends early when the waiting thread is no longer needed.
//!
//! A server may be unreachable for a minute, and reading continues afterwards. But a loader that is
//! closed in the meantime has to end its threads at once. Here, a thread sets a condition that ends
//! any wait for a server.

use std::cell::RefCell;
use std::sync::Arc;
use std::time::Duration;

use hsipack_format::{Error, ErrorKind};

/// Whether the thread has to end.
pub type Stop = Arc<dyn Fn() -> bool + Send + Sync>;

/// How often a waiting thread checks the condition.
pub(crate) const POLL_INTERVAL: Duration = Duration::from_millis(100);

thread_local! {
    static STOP: RefCell<Option<Stop>> = const { RefCell::new(None) };
}

/// Runs `work` on this thread. As soon as `stop` returns true, any wait for a server ends with an
/// error of kind [`ErrorKind::Interrupted`].
pub fn until<T>(stop: Stop, work: impl FnOnce() -> T) -> T {
    /// Restores the previous condition, also after a panic.
    struct Before(Option<Stop>);
    impl Drop for Before {
        fn drop(&mut self) {
            STOP.set(self.0.take());
        }
    }
    let _before = Before(STOP.replace(Some(stop)));
    work()
}

/// Whether this thread has to end.
pub(crate) fn stopped() -> bool {
    STOP.with_borrow(|stop| stop.as_ref().is_some_and(|stop| stop()))
}

/// The error of a wait that ended early.
pub(crate) fn interrupted() -> Error {
    Error::new(ErrorKind::Interrupted, "stopped while waiting for a server")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_has_to_end_only_where_it_was_said() {
        assert!(!stopped());
        until(Arc::new(|| true), || {
            assert!(stopped());
            until(Arc::new(|| false), || assert!(!stopped()));
            assert!(stopped());
            assert!(std::thread::spawn(|| !stopped()).join().unwrap());
        });
        assert!(!stopped());
    }
}
