//! Answers that take too long.

use std::time::{Duration, Instant};

use hsipack_format::{Error, ErrorKind, Result};

/// When an answer is given up.
#[derive(Clone, Copy, Debug)]
pub struct Deadline(Instant);

/// A cube of some gigabytes is read in less from a disk that deserves the name.
const LONGEST: Duration = Duration::from_secs(120);

impl Deadline {
    /// That of a question that is asked now.
    pub fn new() -> Self {
        Self(Instant::now() + LONGEST)
    }

    /// # Errors
    /// If it is over.
    pub fn check(self) -> Result<()> {
        match Instant::now() < self.0 {
            true => Ok(()),
            false => Err(Error::new(
                ErrorKind::Interrupted,
                format!("this takes longer than {} s", LONGEST.as_secs()),
            )
            .with_remedy("look at a smaller part, or pack the cube, which is read faster")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_over_is_an_error() {
        assert!(Deadline::new().check().is_ok());
        let over = Deadline(Instant::now()).check().unwrap_err();
        assert_eq!(over.kind(), ErrorKind::Interrupted);
    }
}
