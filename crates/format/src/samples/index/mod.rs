//! `samples.index`: the values of samples that are needed often, as columns that are read in place.
//!
//! Opening `samples.jsonl` means reading every line. The index holds the result: a program that
//! maps it into memory has the list of samples after one pass over its bytes. The index can be
//! rebuilt from the text at any time, so nothing depends on it. [`Index::read`] trusts nothing and
//! checks every part. If the index is damaged, belongs to another text ([`Origin`]) or comes from a
//! newer hsipack, the text is read instead.
//!
//! # Layout
//! All numbers are little-endian. Every part begins at a multiple of 8 bytes, padded with zeros.
//!
//! | bytes | what |
//! |---|---|
//! | 8 | `HSIPIDX\n` |
//! | 4 | the version, 1 |
//! | 4 | CRC-32C of all bytes that follow |
//! | 8, 32 | length and SHA-256 of the `samples.jsonl` it was built from |
//! | 8 | number of samples, n |
//! | 8, then as many | length of the head, then the head as JSON: `Head` |
//! | 8 n | where each line begins in `samples.jsonl` |
//! | 8 n | where each name ends among the names |
//! | `names_bytes` | the names, one after another |
//! | w n | numbers of the stacks: positions in `stacks` |
//! | 4 n | positions in the stacks' arrays, if there are several stacks |
//! | 4 n | ids of the samples of the first stack, then of the second, …, if there are several |
//! | w n, three times | numbers of splits, groups and labels: positions in these lists |
//!
//! A number takes w bytes. w is 0 if its list is empty (for stacks: if it has one entry). Otherwise
//! w is 1, 2 or 4: the smallest size that can hold a number for every entry and one for "none",
//! which is the largest number of that size.

mod build;
#[cfg(test)]
mod tests;

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::limits::{MAX_NAME, MAX_SAMPLES};
use crate::{Error, Result, checksums};

pub(super) use build::Builder;

/// Name of the file, beside `samples.jsonl`.
pub const SAMPLES_INDEX: &str = "samples.index";

const MAGIC: &[u8; 8] = b"HSIPIDX\n";
const VERSION: u32 = 1;
/// Number of bytes before the head.
const FIXED: usize = 72;
/// Where the checksummed part begins.
const CHECKED: usize = 16;

/// The bytes of an index: in memory, or a mapped file.
pub trait Bytes: Send + Sync {
    /// All bytes.
    fn bytes(&self) -> &[u8];

    /// Whether everything that [`bytes`](Self::bytes) gave so far was really read. If not, some
    /// bytes could not be read and were replaced.
    fn were_read(&self) -> bool;
}

impl Bytes for Vec<u8> {
    fn bytes(&self) -> &[u8] {
        self
    }

    fn were_read(&self) -> bool {
        true
    }
}

/// The JSON part of an index.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(super) struct Head {
    /// Names of the stacks that hold samples, in the order in which they first occur, and how many
    /// samples they hold.
    pub stacks: Vec<(String, u64)>,
    /// The different splits, in the order in which they first occur.
    pub splits: Vec<String>,
    /// The groups, likewise.
    pub groups: Vec<String>,
    /// The labels, likewise.
    pub labels: Vec<Value>,
    /// Other columns, in the order in which they first occur, each with the id of the first sample
    /// that has it.
    pub columns: Vec<(String, u64)>,
    /// The first sample that has the location of its pixels.
    pub geo_from: Option<u64>,
    /// Total length of all names in bytes.
    pub names_bytes: u64,
}

/// Names of the stacks and the numbers of their samples, according to the bytes of an index.
/// Nothing is checked, so this is only a hint. `None` if the bytes are not an index.
pub fn stacks_hint(bytes: &[u8]) -> Option<Vec<(String, u64)>> {
    let len = bytes.get(FIXED - 8..FIXED)?.try_into().ok().map(u64::from_le_bytes)?;
    let end = FIXED.checked_add(usize::try_from(len).ok()?)?;
    let head: Head = serde_json::from_slice(bytes.get(FIXED..end)?).ok()?;
    bytes.starts_with(MAGIC).then_some(head.stacks)
}

/// The checked index of a `samples.jsonl`. Cloning is cheap.
#[derive(Clone)]
pub struct Index {
    bytes: Arc<dyn Bytes>,
    head: Arc<Head>,
    len: usize,
    text_len: u64,
    parts: Parts,
}

/// The positions where the parts of an index begin.
#[derive(Clone, Copy, Debug)]
struct Parts {
    starts: usize,
    name_ends: usize,
    names: usize,
    stacks: Numbers,
    places: usize,
    ids: usize,
    splits: Numbers,
    groups: Numbers,
    labels: Numbers,
    end: usize,
}

/// A part that consists of numbers of `width` bytes each.
#[derive(Clone, Copy, Debug)]
struct Numbers {
    at: usize,
    width: usize,
}

/// The number of bytes needed for numbers below `different` and one more that means "none".
fn width(different: usize) -> usize {
    match different {
        0 => 0,
        1..=0xFF => 1,
        0x100..=0xFFFF => 2,
        _ => 4,
    }
}

/// Like [`width`], for stacks: every sample has a stack.
fn stack_width(stacks: usize) -> usize {
    if stacks > 1 { width(stacks) } else { 0 }
}

impl Parts {
    /// The parts of an index of `len` samples whose head ends at `start`; `None` if their length
    /// exceeds the address space.
    fn new(head: &Head, len: usize, start: usize) -> Option<Self> {
        let mut at = start;
        let mut part = |bytes: Option<usize>| -> Option<usize> {
            let begin = at.checked_next_multiple_of(8)?;
            at = begin.checked_add(bytes?)?;
            Some(begin)
        };
        let several = head.stacks.len() > 1;
        let starts = part(len.checked_mul(8))?;
        let name_ends = part(len.checked_mul(8))?;
        let names = part(usize::try_from(head.names_bytes).ok())?;
        let mut numbers = |width: usize| -> Option<Numbers> {
            Some(Numbers { at: part(len.checked_mul(width))?, width })
        };
        let stacks = numbers(stack_width(head.stacks.len()))?;
        let places = numbers(if several { 4 } else { 0 })?.at;
        let ids = numbers(if several { 4 } else { 0 })?.at;
        let splits = numbers(width(head.splits.len()))?;
        let groups = numbers(width(head.groups.len()))?;
        let labels = numbers(width(head.labels.len()))?;
        let end = at;
        Some(Self { starts, name_ends, names, stacks, places, ids, splits, groups, labels, end })
    }
}

/// The 8 bytes at `at`, as a number.
fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    let bytes = bytes.get(at..)?.first_chunk::<8>()?;
    Some(u64::from_le_bytes(*bytes))
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    let bytes = bytes.get(at..)?.first_chunk::<4>()?;
    Some(u32::from_le_bytes(*bytes))
}

fn damaged(what: &str) -> Error {
    Error::damaged(format!("{what} of the index"))
}

/// Stands for a checksum that was not computed, in an index that is not written to a file.
pub(super) const UNKNOWN: [u8; 32] = [0; 32];

/// Facts about the text from which an index was built.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Origin {
    /// Its length in bytes.
    pub len: u64,
    /// Its SHA-256.
    pub sha256: [u8; 32],
}

impl Origin {
    /// Reads the origin from the first bytes of an index; `None` if they are not from an index.
    pub fn of(bytes: &[u8]) -> Option<Self> {
        let is_ours = bytes.starts_with(MAGIC) && u32_at(bytes, 8)? == VERSION;
        let sha256 = *bytes.get(24..)?.first_chunk::<32>()?;
        is_ours.then_some(Self { len: u64_at(bytes, 16)?, sha256 })
    }

    /// The SHA-256 in hexadecimal, as in `SHA256SUMS`.
    pub fn sum(&self) -> String {
        checksums::hex(&self.sha256)
    }
}

impl Index {
    /// Reads an index and checks all of it. It does not check whether the index agrees with the
    /// text.
    ///
    /// # Errors
    /// If it is damaged, or has a version that this hsipack does not know.
    pub fn read(bytes: Arc<dyn Bytes>) -> Result<Self> {
        let index = Self::parse(&bytes)?;
        index.check()?;
        if bytes.were_read() { Ok(index) } else { Err(damaged("bytes cannot be read")) }
    }

    fn parse(owner: &Arc<dyn Bytes>) -> Result<Self> {
        let bytes = owner.bytes();
        let cut = || damaged("the end is missing");
        let origin = Origin::of(bytes).ok_or_else(|| {
            Error::unsupported(format!("not an index of samples of version {VERSION}"))
        })?;
        let sum = u32_at(bytes, 12).ok_or_else(cut)?;
        if crate::crc::crc32c(bytes.get(CHECKED..).ok_or_else(cut)?) != sum {
            return Err(damaged("the checksum does not match the bytes"));
        }
        let number = |at| u64_at(bytes, at).and_then(|number| usize::try_from(number).ok());
        let len = number(56).ok_or_else(cut)?;
        let head_len = number(64).ok_or_else(cut)?;
        let head_end = head_len.checked_add(FIXED).ok_or_else(cut)?;
        let head = bytes.get(FIXED..head_end).ok_or_else(cut)?;
        let head: Head = serde_json::from_slice(head)
            .map_err(|error| Error::damaged(format!("the head of the index: {error}")))?;
        let parts = Parts::new(&head, len, head_end).ok_or_else(cut)?;
        if parts.end != bytes.len() {
            return Err(damaged("the length does not fit the parts"));
        }
        let (bytes, head) = (owner.clone(), Arc::new(head));
        Ok(Self { bytes, head, len, text_len: origin.len, parts })
    }

    /// Checks every number once, so that later reads need no checks.
    fn check(&self) -> Result<()> {
        let (bytes, parts, len) = (self.bytes.bytes(), &self.parts, self.len);
        if len > MAX_SAMPLES {
            return Err(damaged("the number of samples"));
        }
        let all = |at: usize| bytes[at..at + 8 * len].as_chunks::<8>().0.iter();
        let mut next = 0;
        for start in all(parts.starts).map(|start| u64::from_le_bytes(*start)) {
            if start < next {
                return Err(damaged("the order of lines"));
            }
            next = start + 1;
        }
        if next > self.text_len {
            return Err(damaged("the place of a line"));
        }
        let names = &bytes[parts.names..parts.names + self.head.names_bytes as usize];
        let names = str::from_utf8(names).map_err(|_| damaged("the text of names"))?;
        let mut before = 0;
        for end in all(parts.name_ends).map(|end| u64::from_le_bytes(*end)) {
            let is_name = before <= end
                && end - before <= MAX_NAME as u64
                && end <= self.head.names_bytes
                && names.is_char_boundary(end as usize);
            if !is_name {
                return Err(damaged("the place of a name"));
            }
            before = end;
        }
        if before != self.head.names_bytes {
            return Err(damaged("the length of names"));
        }
        let head = &*self.head;
        for (numbers, different) in [
            (parts.splits, head.splits.len()),
            (parts.groups, head.groups.len()),
            (parts.labels, head.labels.len()),
        ] {
            numbers.check(bytes, len, different)?;
        }
        self.check_stacks()
    }

    /// Checks that the numbers of stacks, the positions in them and the ids agree.
    fn check_stacks(&self) -> Result<()> {
        let (bytes, parts, stacks) = (self.bytes.bytes(), &self.parts, &self.head.stacks);
        let sum = stacks.iter().try_fold(0u64, |sum, (_, count)| sum.checked_add(*count));
        if sum != Some(self.len as u64) {
            return Err(damaged("the number of samples of stacks"));
        }
        if stacks.len() < 2 {
            return Ok(());
        }
        let wrong = || damaged("the place of a sample");
        let mut at = parts.ids;
        for (number, (_, count)) in stacks.iter().enumerate() {
            let mut least = 0;
            for position in 0..*count as usize {
                let id = u32_at(bytes, at).ok_or_else(wrong)? as usize;
                at += 4;
                let agrees = id >= least
                    && id < self.len
                    && parts.stacks.get(bytes, id) == Some(number)
                    && u32_at(bytes, parts.places + 4 * id) == Some(position as u32);
                if !agrees {
                    return Err(wrong());
                }
                least = id + 1;
            }
        }
        Ok(())
    }

    /// Number of samples.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are no samples.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The text that it was built from.
    pub fn origin(&self) -> Origin {
        Origin::of(self.bytes.bytes()).unwrap_or_else(|| changed())
    }

    /// All bytes of the index.
    pub fn bytes(&self) -> &[u8] {
        self.bytes.bytes()
    }

    pub(super) fn head(&self) -> &Head {
        &self.head
    }

    /// The value that `find` returns for the bytes. They were checked, so the value exists, unless
    /// the bytes were changed since.
    fn found<'a, T>(&'a self, find: impl FnOnce(&'a [u8]) -> Option<T>) -> T {
        let found = find(self.bytes.bytes());
        match found {
            Some(found) if self.bytes.were_read() => found,
            _ => changed(),
        }
    }

    /// The position of the line of sample `id` in the text, up to the start of the next line.
    pub(super) fn line(&self, id: usize) -> Range<u64> {
        assert!(id < self.len, "there is no sample {id}");
        self.found(|bytes| {
            let start = |id: usize| match id == self.len {
                true => Some(self.text_len),
                false => u64_at(bytes, self.parts.starts + 8 * id),
            };
            let (start, end) = (start(id)?, start(id + 1)?);
            (start <= end && end <= self.text_len).then_some(start..end)
        })
    }

    /// The end of the lines of the first `len` samples.
    pub(super) fn end_of(&self, len: usize) -> u64 {
        if len < self.len { self.line(len).start } else { self.text_len }
    }

    pub(super) fn name(&self, id: usize) -> &str {
        assert!(id < self.len, "there is no sample {id}");
        let Parts { name_ends, names, .. } = self.parts;
        self.found(|bytes| {
            let end = u64_at(bytes, name_ends + 8 * id)? as usize;
            let start = match id.checked_sub(1) {
                Some(before) => u64_at(bytes, name_ends + 8 * before)? as usize,
                None => 0,
            };
            let names = bytes.get(names..)?.get(..self.head.names_bytes as usize)?;
            str::from_utf8(names.get(start..end)?).ok()
        })
    }

    /// The number of the stack of a sample.
    pub(super) fn stack(&self, id: usize) -> usize {
        assert!(id < self.len, "there is no sample {id}");
        if self.parts.stacks.width == 0 {
            return 0;
        }
        let stacks = self.head.stacks.len();
        self.found(|bytes| self.parts.stacks.get(bytes, id).filter(|stack| *stack < stacks))
    }

    /// The position of a sample in its stack.
    pub(super) fn place(&self, id: usize) -> usize {
        assert!(id < self.len, "there is no sample {id}");
        if self.parts.stacks.width == 0 {
            return id;
        }
        let position = self.found(|bytes| u32_at(bytes, self.parts.places + 4 * id)) as usize;
        let count = self.head.stacks[self.stack(id)].1 as usize;
        if position < count { position } else { changed() }
    }

    /// The sample at a position in the list of ids by stack.
    pub(super) fn id(&self, position: usize) -> usize {
        if self.parts.stacks.width == 0 {
            return position;
        }
        let id = self.found(|bytes| u32_at(bytes, self.parts.ids + 4 * position)) as usize;
        if id < self.len { id } else { changed() }
    }

    pub(super) fn splits(&self) -> Column {
        self.column(self.parts.splits, self.head.splits.len())
    }

    pub(super) fn groups(&self) -> Column {
        self.column(self.parts.groups, self.head.groups.len())
    }

    pub(super) fn labels(&self) -> Column {
        self.column(self.parts.labels, self.head.labels.len())
    }

    fn column(&self, numbers: Numbers, different: usize) -> Column {
        Column { index: Some(self.clone()), numbers, different }
    }
}

impl fmt::Debug for Index {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "Index of {} samples", self.len)
    }
}

impl Numbers {
    /// Number `id`; `None` if the bytes end before it.
    fn get(self, bytes: &[u8], id: usize) -> Option<usize> {
        let at = self.at + self.width * id;
        match self.width {
            1 => bytes.get(at).map(|byte| usize::from(*byte)),
            2 => {
                let two = bytes.get(at..)?.first_chunk::<2>()?;
                Some(usize::from(u16::from_le_bytes(*two)))
            }
            _ => u32_at(bytes, at).map(|number| number as usize),
        }
    }

    /// The number that means "none".
    fn none(self) -> usize {
        match self.width {
            1 => usize::from(u8::MAX),
            2 => usize::from(u16::MAX),
            _ => u32::MAX as usize,
        }
    }

    fn check(self, bytes: &[u8], len: usize, different: usize) -> Result<()> {
        let is_right = |number: usize| number < different || number == self.none();
        let all = &bytes[self.at..self.at + self.width * len];
        let right = match self.width {
            0 => true,
            1 => all.iter().all(|byte| is_right(usize::from(*byte))),
            2 => {
                let mut all = all.as_chunks::<2>().0.iter();
                all.all(|number| is_right(usize::from(u16::from_le_bytes(*number))))
            }
            _ => {
                let mut all = all.as_chunks::<4>().0.iter();
                all.all(|number| is_right(u32::from_le_bytes(*number) as usize))
            }
        };
        if right { Ok(()) } else { Err(damaged("the number of a split, group or label")) }
    }
}

/// A column of numbers in an index: positions in a list of different keys.
#[derive(Clone, Debug)]
pub(super) struct Column {
    /// `None` if no sample has a key.
    index: Option<Index>,
    numbers: Numbers,
    different: usize,
}

impl Default for Column {
    fn default() -> Self {
        Self { index: None, numbers: Numbers { at: 0, width: 0 }, different: 0 }
    }
}

impl Column {
    /// The number of an existing sample.
    pub fn get(&self, id: usize) -> Option<u32> {
        if self.numbers.width == 0 {
            return None;
        }
        let index = self.index.as_ref()?;
        let number = index.found(|bytes| self.numbers.get(bytes, id));
        match number {
            none if none == self.numbers.none() => None,
            number if number < self.different => Some(number as u32),
            _ => changed(),
        }
    }
}

/// Panics, because a number that was valid when the dataset was opened is now invalid. Going on
/// would give wrong results.
#[cold]
fn changed() -> ! {
    panic!(
        "samples.index of an open dataset was changed in place, or can no longer be read; check the system log, and open the dataset again"
    )
}
