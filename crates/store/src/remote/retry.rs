//! Retries after a server failed.

use std::time::{Duration, Instant};

use super::failure::Failure;

/// How long a server may be unreachable or answer with errors, in the middle of reading, before
/// this is an error.
pub(super) const MAX_OUTAGE: Duration = Duration::from_secs(150);
/// The first pause before a retry. Each pause is twice as long as the one before, up to the
/// longest.
const PAUSE: Duration = Duration::from_millis(50);
const LONGEST_PAUSE: Duration = Duration::from_secs(4);

/// Counts for how long something was tried. The client itself retries requests for a few seconds.
/// This is for answers that break off, and for servers that are unavailable for longer in the
/// middle of the work.
#[derive(Debug)]
pub(super) struct RetryClock {
    since: Instant,
    pause: Duration,
}

impl Default for RetryClock {
    fn default() -> Self {
        Self { since: Instant::now(), pause: PAUSE }
    }
}

impl RetryClock {
    /// Waits before the next try. Returns the failure if there should be no further try.
    pub(super) async fn again(&mut self, failure: Failure) -> Result<(), Failure> {
        let passes = matches!(
            failure,
            Failure::Cut | Failure::Away(_) | Failure::Credentials { may_pass: true, .. }
        );
        if !passes || self.since.elapsed() > MAX_OUTAGE {
            return Err(failure);
        }
        tokio::time::sleep(self.pause).await;
        self.pause = (2 * self.pause).min(LONGEST_PAUSE);
        Ok(())
    }
}
