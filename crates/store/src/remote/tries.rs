//! Trying again what a server failed to do.

use std::time::{Duration, Instant};

use super::failure::Failure;
use super::network::PATIENCE;

/// First pause before something is tried again; each one is twice as long, up to the last.
const PAUSE: Duration = Duration::from_millis(50);
const LONGEST_PAUSE: Duration = Duration::from_secs(4);

/// How often, and for how long, something was tried. The client tries requests again by itself for some seconds; this is
/// for bodies that break off, and for servers that are away for longer in the middle of the work.
#[derive(Debug)]
pub(super) struct Tries {
    since: Instant,
    pause: Duration,
}

impl Default for Tries {
    fn default() -> Self {
        Self { since: Instant::now(), pause: PAUSE }
    }
}

impl Tries {
    /// Waits before the next try; gives the failure back if there is none.
    pub(super) async fn again(&mut self, failure: Failure) -> Result<(), Failure> {
        let passes = matches!(failure, Failure::Cut | Failure::Away(_));
        if !passes || self.since.elapsed() > PATIENCE {
            return Err(failure);
        }
        tokio::time::sleep(self.pause).await;
        self.pause = (2 * self.pause).min(LONGEST_PAUSE);
        Ok(())
    }
}
