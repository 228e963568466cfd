//! Class ids of whole samples, kept in a file until the ids of all samples are known.

use std::fs::File;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use hsipack_format::{DType, Error, MaskValue, Result, mask};
use hsipack_store::Dataset;

use super::MaskIds;

/// One mask's ids, sample after sample. They are stored because computing them may fail at the last
/// sample, and may not be possible twice.
pub struct Spool {
    file: File,
    path: PathBuf,
    /// Where the ids of each sample start, by the sample's id and counted in ids; and the end of
    /// the last one.
    starts: Vec<u64>,
    /// Number of columns of each sample, and its stack.
    columns: Vec<(usize, usize)>,
    /// Greatest id of each stack.
    greatest: Vec<u16>,
}

impl Spool {
    /// Creates an empty spool in a new file at `path`.
    pub(super) fn create(path: &Path, dataset: &Dataset) -> Result<Self> {
        let fail = |error| Error::io(path, "cannot create", error);
        let mut options = File::options();
        let file = options.read(true).write(true).create(true).truncate(true);
        let file = file.open(path).map_err(fail)?;
        let (mut starts, mut columns) = (vec![0], Vec::new());
        for id in 0..dataset.samples().len() {
            let stack = dataset.samples().stack(id);
            let shape = dataset.stacks()[stack].image.shape();
            starts.push(starts[id] + shape.pixels() as u64);
            columns.push((shape.columns, stack));
        }
        let greatest = vec![0; dataset.stacks().len()];
        Ok(Self { file, path: path.to_owned(), starts, columns, greatest })
    }

    /// Stores the ids of a sample in (row, column) order.
    ///
    /// # Errors
    /// If their number is not the number of the sample's pixels, or they cannot be written.
    pub fn put(&mut self, sample: usize, ids: &[u16]) -> Result<()> {
        let pixels = self.starts[sample + 1] - self.starts[sample];
        if ids.len() as u64 != pixels {
            return Err(Error::conflict(format!(
                "sample {sample} has {pixels} pixels, but {} ids are given",
                ids.len()
            ))
            .with_remedy("give one id for each pixel"));
        }
        let (_, stack) = self.columns[sample];
        let greatest = &mut self.greatest[stack];
        *greatest = ids.iter().copied().fold(*greatest, u16::max);
        let write = self.file.write_all_at(bytemuck::cast_slice(ids), 2 * self.starts[sample]);
        write.map_err(|error| Error::io(&self.path, "cannot write", error))
    }
}

impl MaskIds for Spool {
    fn greatest(&mut self, stack: usize) -> Result<MaskValue> {
        Ok(self.greatest[stack].into())
    }

    fn read(
        &mut self,
        _: usize,
        sample: usize,
        rows: Range<usize>,
        ids: &mut Vec<MaskValue>,
    ) -> Result<()> {
        let (columns, _) = self.columns[sample];
        let mut bytes = vec![0; 2 * rows.len() * columns];
        let start = self.starts[sample] + (rows.start * columns) as u64;
        let read = self.file.read_exact_at(&mut bytes, 2 * start);
        read.map_err(|error| Error::io(&self.path, "cannot read", error))?;
        ids.clear();
        mask::read(DType::U16, &bytes, ids);
        Ok(())
    }
}
