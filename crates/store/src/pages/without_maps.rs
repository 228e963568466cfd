//! Miri does not support memory maps.

use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::io;
use std::ops::Range;
use std::ptr::NonNull;
use std::time::Duration;

use super::size::Pages;

fn layout(bytes: usize) -> Layout {
    Layout::from_size_align(bytes, 4096).expect("a sensible size")
}

pub fn allocate(bytes: usize) -> io::Result<NonNull<u8>> {
    // SAFETY: the layout is not empty.
    NonNull::new(unsafe { alloc_zeroed(layout(bytes)) })
        .ok_or_else(|| io::ErrorKind::OutOfMemory.into())
}

pub fn free(start: NonNull<u8>, bytes: usize) {
    // SAFETY: allocated above with the same layout.
    unsafe { dealloc(start.as_ptr(), layout(bytes)) };
}

pub fn want_huge_pages(_: NonNull<u8>, _: usize) -> Result<(), String> {
    Ok(())
}

pub fn touch(_: NonNull<u8>, _: Range<usize>, _: Pages) -> io::Result<()> {
    Ok(())
}

pub fn huge_page_bytes(_: NonNull<u8>, _: usize) -> usize {
    0
}

pub fn lock(_: NonNull<u8>, _: usize) -> Result<(), String> {
    Err("not under Miri".into())
}

pub fn thread_time() -> Duration {
    Duration::ZERO
}
