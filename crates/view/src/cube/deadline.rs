//! A time limit for answers.

use std::time::{Duration, Instant};

use hsipack_format::{Error, ErrorKind, Result};

/// The time after which an answer is given up.
#[derive(Clone, Copy, Debug)]
pub struct Deadline {
    end: Instant,
    /// The remedy if the time is over.
    remedy: &'static str,
}

/// Enough to read a cube of several gigabytes from a normal disk.
const LONGEST: Duration = Duration::from_secs(120);

impl Deadline {
    /// The deadline for a question about a cube that is asked now.
    pub fn new() -> Self {
        Self::with_remedy("choose a smaller part, or pack the cube to read it faster")
    }

    /// The deadline for another question, with what to do if it takes too long.
    pub fn with_remedy(remedy: &'static str) -> Self {
        Self { end: Instant::now() + LONGEST, remedy }
    }

    /// # Errors
    /// If the time is over.
    pub fn check(self) -> Result<()> {
        match Instant::now() < self.end {
            true => Ok(()),
            false => Err(Error::new(
                ErrorKind::Interrupted,
                format!("this takes longer than {} s", LONGEST.as_secs()),
            )
            .with_remedy(self.remedy)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn expired_deadline_is_an_error() {
        assert!(Deadline::new().check().is_ok());
        let over = Deadline { end: Instant::now(), ..Deadline::new() }.check().unwrap_err();
        assert_eq!(over.kind(), ErrorKind::Interrupted);
    }
}
