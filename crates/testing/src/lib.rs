//! Shared by the tests of all crates: reporting a skipped test, and running programs over a fake
//! CUDA driver, a web server and a bucket with faults.
//!
//! A Rust test either passes or fails, and the output of a passing test is not shown. So a test
//! that cannot run here reports why with [`skipped`] before it returns, and at its end
//! `scripts/test` lists all skipped tests.

#![deny(missing_docs)]

use std::fmt::Display;
use std::fs::OpenOptions;
use std::io::{self, Write as _};
use std::path::Path;

pub use fake_cuda::FakeCuda;
pub use fake_driver::FakeDriver;

pub mod bucket;
mod fake_cuda;
mod fake_driver;
mod http;
pub mod server;

/// The variable that names the file of skipped tests, one per line; if it is not set, no file is
/// written.
pub const LIST: &str = "HSIPACK_SKIPPED";

/// Reports that the test of the calling thread, or a part of it, is skipped, and why.
///
/// # Panics
/// If the list cannot be written to.
pub fn skipped(reason: impl Display) {
    let thread = std::thread::current();
    let line = format!("{}: {reason}\n", thread.name().unwrap_or("a test"));
    eprint!("SKIPPED: {line}");
    if let Some(list) = std::env::var_os(LIST) {
        let list = Path::new(&list);
        append(list, &line).unwrap_or_else(|error| panic!("{}: {error}", list.display()));
    }
}

/// Adds a line in one write, so that lines of parallel tests do not mix.
fn append(list: &Path, line: &str) -> io::Result<()> {
    OpenOptions::new().create(true).append(true).open(list)?.write_all(line.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn skipped_tests_are_listed_by_name() {
        let folder = tempfile::tempdir().unwrap();
        let list = folder.path().join("list");
        append(&list, "before: of another test\n").unwrap();
        let this = std::env::current_exe().unwrap();
        let run = std::process::Command::new(this)
            .args(["--exact", "tests::one_that_is_skipped", "--ignored"])
            .env(LIST, &list)
            .output()
            .unwrap();
        assert!(run.status.success(), "{run:?}");
        let text = std::fs::read_to_string(&list).unwrap();
        assert_eq!(
            text,
            "before: of another test\ntests::one_that_is_skipped: there is no such thing\n"
        );
    }

    #[test]
    #[ignore = "run by the test above, in a process of its own"]
    fn one_that_is_skipped() {
        skipped("there is no such thing");
    }
}
