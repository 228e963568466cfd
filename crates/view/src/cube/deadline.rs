//! Answers that take too long.

use std::time::{Duration, Instant};

use hsipack_format::{Error, ErrorKind, Result};

/// When an answer is given up.
#[derive(Clone, Copy, Debug)]
pub struct Deadline {
    end: Instant,
    /// What to do about it.
    remedy: &'static str,
}

/// A cube of some gigabytes is read in less from a disk that deserves the name.
const LONGEST: Duration = Duration::from_secs(120);

impl Deadline {
    /// That of a question about a cube, which is asked now.
    pub fn new() -> Self {
        Self::with_remedy("look at a smaller part, or pack the cube, which is read faster")
    }

    /// That of another question, and what to do when it takes too long.
    pub fn with_remedy(remedy: &'static str) -> Self {
        Self { end: Instant::now() + LONGEST, remedy }
    }

    /// # Errors
    /// If it is over.
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
    fn what_is_over_is_an_error() {
        assert!(Deadline::new().check().is_ok());
        let over = Deadline { end: Instant::now(), ..Deadline::new() }.check().unwrap_err();
        assert_eq!(over.kind(), ErrorKind::Interrupted);
    }
}
