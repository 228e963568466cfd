//! Which mirrored files the work of a thread has opened.

use std::cell::RefCell;
use std::path::{Path, PathBuf};

thread_local! {
    static PINNED: RefCell<Option<Vec<PathBuf>>> = const { RefCell::new(None) };
}

/// Runs `work` on this thread, and returns the mirrored files that it opens.
pub(super) fn recorded<T>(work: impl FnOnce() -> T) -> (T, Vec<PathBuf>) {
    let before = PINNED.replace(Some(Vec::new()));
    let result = work();
    (result, PINNED.replace(before).unwrap_or_default())
}

/// Records a file that is in use. Returns whether it is to be pinned.
pub(super) fn pins(path: &Path) -> bool {
    PINNED.with_borrow_mut(|pinned| {
        pinned.as_mut().map(|paths| paths.push(path.to_owned())).is_some()
    })
}
