//! The arrays in a container, by the names that users write after `::`.

use std::path::Path;

use hsipack_format::{DType, Result};

use crate::axes::Axes;
use crate::container::ArrayEntry;
use crate::container::variables::Role;
use crate::detect;
use crate::recent::Recent;

/// An array in a container.
#[derive(Clone, Debug, PartialEq)]
pub struct Listed {
    /// Its path inside the container, without a slash at the start; empty for the only array of an
    /// `.npy` file.
    pub name: String,
    /// Lengths in index order.
    pub lengths: Vec<usize>,
    /// Type of its numbers; `None` if it holds something else.
    pub dtype: Option<DType>,
}

/// The arrays in the container at `path`, in the order in which the file lists them. Empty if it is
/// not a container.
///
/// # Errors
/// If the container cannot be read.
pub fn arrays(path: &Path) -> Result<Vec<Listed>> {
    let mut all = Vec::new();
    detect::visit(path, &mut |container| {
        all.extend(container.arrays_anywhere(&|_| true).into_iter().map(Listed::from));
        Ok(())
    })?;
    Ok(all)
}

/// The number of samples in an array of the container at `path`: the length of its axis `n` in
/// `axes`. `name` may be only the last part of the array's path, and is `None` for the only array
/// with as many axes. `None` if there is no such array.
///
/// # Errors
/// If the container cannot be read.
pub fn number_of_samples(path: &Path, name: Option<&str>, axes: &Axes) -> Result<Option<usize>> {
    /// Each of thousands of samples asks.
    static RECENT: Recent<Vec<Listed>> = Recent::new();
    let Some(axis) = axes.sample_axis() else { return Ok(None) };
    let all = RECENT.get(path, |_| true, || arrays(path))?;
    let fits = |array: &&Listed| array.lengths.len() == axes.count();
    let named = |array: &&Listed| match name.map(|name| name.trim_matches('/')) {
        None => true,
        Some(name) => array.name == name || array.name.rsplit('/').next() == Some(name),
    };
    let is_exact = |array: &&&Listed| Some(&*array.name) == name.map(|name| name.trim_matches('/'));
    let found: Vec<&Listed> = all.iter().filter(fits).filter(named).collect();
    let exact = found.iter().find(is_exact).copied();
    let only = found.first().copied().filter(|_| found.len() == 1);
    Ok(exact.or(only).map(|array| array.lengths[axis]))
}

impl From<ArrayEntry> for Listed {
    fn from(ArrayEntry { path, lengths, dtype }: ArrayEntry) -> Self {
        Self { name: path.strip_prefix('/').unwrap_or(&path).to_owned(), lengths, dtype }
    }
}

impl Listed {
    /// Whether it can be a cube: it has three axes, of which at least two are longer than 1.
    pub fn may_be_cube(&self) -> bool {
        let role = self.dtype.map(|dtype| Role::of(&self.lengths, dtype));
        matches!(role, Some(Role::Cube(2..) | Role::Picture))
    }
}
