//! Building an index of lines.

use std::collections::HashMap;

use serde_json::Value;

use super::{CHECKED, FIXED, Head, Index, MAGIC, Origin, VERSION, stack_width, width};
use crate::samples::limits::{MAX_LINE, MAX_NAME, MAX_SAMPLES};
use crate::samples::record::{Line, Text};
use crate::{Error, Result};

/// The number of a sample without a key, while an index is built.
const NONE: u32 = u32::MAX;

/// An index to which samples are added.
#[derive(Default)]
pub(in crate::samples) struct Builder<'a> {
    /// The stacks that exist; any stack is allowed if `None`.
    allowed: Option<&'a [&'a str]>,
    head: Head,
    starts: Vec<u64>,
    name_ends: Vec<u64>,
    names: String,
    stacks: Vec<u32>,
    places: Vec<u32>,
    splits: Keys,
    groups: Keys,
    labels: Keys,
}

/// The number of each key, and the number of each sample's key.
#[derive(Default)]
struct Keys {
    numbers: HashMap<Box<str>, u32>,
    of: Vec<u32>,
}

impl Keys {
    /// Adds a sample by the text of its key. `new` is called if no earlier sample had this key.
    fn push(&mut self, text: Option<&str>, new: impl FnOnce(&str)) {
        let number = text.map_or(NONE, |text| {
            self.numbers.get(text).copied().unwrap_or_else(|| {
                let next = self.numbers.len() as u32;
                self.numbers.insert(text.into(), next);
                new(text);
                next
            })
        });
        self.of.push(number);
    }
}

/// The key of a label. The labels 1 and 1.0 are one, that of the first sample.
fn key_of(label: &Value) -> String {
    match label.as_f64() {
        Some(whole) if label.is_f64() && whole.fract() == 0.0 && whole.abs() < 1e15 => {
            format!("{whole:.0}")
        }
        _ => label.to_string(),
    }
}

impl<'a> Builder<'a> {
    /// An index without samples. Only samples of the stacks `allowed` can be added.
    pub fn of_stacks(stacks: &'a [&'a str]) -> Self {
        Self { allowed: Some(stacks), ..Self::default() }
    }

    /// An index with the first `len` samples of `index`.
    pub fn after(index: &Index, len: usize) -> Self {
        let mut all = Self::default();
        let head = index.head();
        let columns = [index.splits(), index.groups(), index.labels()];
        let texts: Vec<String> = head.labels.iter().map(key_of).collect();
        for id in 0..len {
            let stack = &head.stacks[index.stack(id)].0;
            let [split, group, label] =
                columns.each_ref().map(|column| column.get(id).map(|number| number as usize));
            all.place(id, stack);
            all.push_name(index.line(id).start, index.name(id));
            let split = split.map(|split| head.splits[split].as_str());
            all.splits.push(split, |split| all.head.splits.push(split.to_owned()));
            let group = group.map(|group| head.groups[group].as_str());
            all.groups.push(group, |group| all.head.groups.push(group.to_owned()));
            all.labels.push(label.map(|label| texts[label].as_str()), |_| {
                all.head.labels.extend(label.map(|label| head.labels[label].clone()));
            });
        }
        let is_there = |(_, first): &&(String, u64)| *first < len as u64;
        all.head.columns = head.columns.iter().filter(is_there).cloned().collect();
        all.head.geo_from = head.geo_from.filter(|first| *first < len as u64);
        all
    }

    /// Number of samples.
    pub fn len(&self) -> usize {
        self.starts.len()
    }

    /// Names of the samples, in order.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        let starts = [0].into_iter().chain(self.name_ends.iter().copied());
        starts.zip(&self.name_ends).map(|(start, end)| &self.names[start as usize..*end as usize])
    }

    /// Adds the next line, which begins at `start`.
    ///
    /// # Errors
    /// If it is not a sample, is too long or out of order, or names a stack that does not exist.
    pub fn add(&mut self, start: u64, line: &[u8]) -> Result<()> {
        if line.len() > MAX_LINE {
            let len = line.len();
            return Err(Error::damaged(format!("{len} bytes; a line has at most {MAX_LINE}")));
        }
        let line: Line<'_> =
            serde_json::from_slice(line).map_err(|error| Error::damaged(error.to_string()))?;
        let (id, name, stack) = (self.len(), line.name.0, line.stack.0);
        if name.len() > MAX_NAME {
            let len = name.len();
            return Err(Error::damaged(format!(
                "a name of {len} bytes; a name has at most {MAX_NAME}"
            )));
        }
        if line.id != id {
            return Err(Error::damaged(format!("sample {} stands where {id} should be", line.id)));
        }
        if self.allowed.is_some_and(|stacks| !stacks.contains(&&*stack)) {
            return Err(Error::damaged(format!(
                "sample {id} is in stack {stack}, which does not exist"
            )));
        }
        let entry = self.head.stacks.iter().find(|(name, _)| *name == stack);
        let next = entry.map_or(0, |(_, count)| *count);
        if line.index as u64 != next {
            return Err(Error::damaged(format!(
                "sample {id} has index {} in stack {stack} instead of {next}",
                line.index
            )));
        }
        if id >= MAX_SAMPLES {
            return Err(Error::unsupported(format!("more than {MAX_SAMPLES} samples")));
        }
        self.place(id, &stack);
        self.push_name(start, &name);
        let head = &mut self.head;
        let split = line.split.as_ref().map(|split| split.0.as_ref());
        self.splits.push(split, |split| head.splits.push(split.to_owned()));
        let group = line.group.as_ref().map(|group| group.0.as_ref());
        self.groups.push(group, |group| head.groups.push(group.to_owned()));
        let label = line.label.filter(|label| !label.is_null());
        let text = label.as_ref().map(key_of);
        self.labels.push(text.as_deref(), |_| head.labels.extend(label));
        if line.geo.is_some() {
            head.geo_from.get_or_insert(id as u64);
        }
        // A table has few columns, and most lines list them in the same order.
        for (position, Text(key)) in line.columns.0.iter().enumerate() {
            if head.columns.get(position).is_none_or(|(column, _)| column != key)
                && !head.columns.iter().any(|(column, _)| column == key)
            {
                head.columns.push((key.clone().into_owned(), id as u64));
            }
        }
        Ok(())
    }

    /// Assigns the next position in its stack to the next sample.
    fn place(&mut self, id: usize, stack: &str) {
        let stacks = &mut self.head.stacks;
        let last = id.checked_sub(1).map(|last| self.stacks[last] as usize);
        let listed = last
            .filter(|last| stacks[*last].0 == stack)
            .or_else(|| stacks.iter().position(|(name, _)| name == stack));
        let number = listed.unwrap_or_else(|| {
            stacks.push((stack.to_owned(), 0));
            stacks.len() - 1
        });
        let count = &mut stacks[number].1;
        self.stacks.push(number as u32);
        self.places.push(*count as u32);
        *count += 1;
    }

    fn push_name(&mut self, start: u64, name: &str) {
        self.starts.push(start);
        self.names.push_str(name);
        self.name_ends.push(self.names.len() as u64);
    }

    /// The bytes of the index, for a text with this length and checksum.
    pub fn finish(mut self, origin: &Origin) -> Vec<u8> {
        self.head.names_bytes = self.names.len() as u64;
        let head = serde_json::to_vec(&self.head).expect("texts and numbers are JSON");
        let several = self.head.stacks.len() > 1;
        let len = self.len();
        let room = FIXED + head.len() + self.names.len() + len * (16 + 4 * 6) + 128;
        let mut bytes = Vec::with_capacity(room);
        bytes.extend(MAGIC);
        bytes.extend(VERSION.to_le_bytes());
        bytes.extend([0; 4]);
        bytes.extend(origin.len.to_le_bytes());
        bytes.extend(origin.sha256);
        bytes.extend((len as u64).to_le_bytes());
        bytes.extend((head.len() as u64).to_le_bytes());
        bytes.extend(head);
        let mut part = |write: &dyn Fn(&mut Vec<u8>)| {
            bytes.resize(bytes.len().next_multiple_of(8), 0);
            write(&mut bytes);
        };
        let long = |numbers: &[u64], out: &mut Vec<u8>| {
            numbers.iter().for_each(|number| out.extend(number.to_le_bytes()));
        };
        part(&|out| long(&self.starts, out));
        part(&|out| long(&self.name_ends, out));
        part(&|out| out.extend(self.names.as_bytes()));
        part(&|out| write_numbers(&self.stacks, stack_width(self.head.stacks.len()), out));
        part(&|out| write_numbers(&self.places, if several { 4 } else { 0 }, out));
        part(&|out| write_numbers(&self.ids(), if several { 4 } else { 0 }, out));
        for (keys, different) in [
            (&self.splits, self.head.splits.len()),
            (&self.groups, self.head.groups.len()),
            (&self.labels, self.head.labels.len()),
        ] {
            part(&|out| write_numbers(&keys.of, width(different), out));
        }
        let sum = crate::crc::crc32c(&bytes[CHECKED..]);
        bytes[12..CHECKED].copy_from_slice(&sum.to_le_bytes());
        bytes
    }

    /// The ids, sorted by stack.
    fn ids(&self) -> Vec<u32> {
        if self.head.stacks.len() < 2 {
            return Vec::new();
        }
        let starts = self.head.stacks.iter().scan(0, |sum, (_, count)| {
            let start = *sum;
            *sum += *count as usize;
            Some(start)
        });
        let starts: Vec<usize> = starts.collect();
        let mut ids = vec![0; self.len()];
        for (id, (stack, position)) in self.stacks.iter().zip(&self.places).enumerate() {
            ids[starts[*stack as usize] + *position as usize] = id as u32;
        }
        ids
    }
}

/// Writes numbers of `width` bytes. The largest such number means "none".
fn write_numbers(numbers: &[u32], width: usize, out: &mut Vec<u8>) {
    numbers.iter().for_each(|number| out.extend(&number.to_le_bytes()[..width]));
}
