//! Writes the shards of a merged array: links and copies of stored chunks.

use std::fs;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;

use hsipack_format::metadata::IMAGE;
use hsipack_format::zarr::ArrayMeta;
use hsipack_format::{Error, ErrorKind, Grid, MaskValue, Result, codec, mask};
use hsipack_store::Dataset;
use hsipack_store::dataset::{ChunkArray, RowScratch};

use super::stacks::MergedStack;
use crate::convert::PlannedCompanion;
use crate::convert::encode::{Encoded, Encoder};
use crate::convert::metadata::mask_codec;
use crate::convert::plan::PlannedMask;
use crate::convert::shards::{FinishedFile, ShardWriter};
use crate::progress::Progress;

/// The shards that were written so far.
pub(super) struct Shards<'a> {
    folder: PathBuf,
    fill: u16,
    progress: &'a Progress,
    /// Number of shards that are hard links.
    pub linked: usize,
    /// Number of shards that were written.
    pub written: usize,
}

/// An array of the merged dataset.
struct Merged<'a> {
    folder: PathBuf,
    grid: Grid,
    rank: usize,
    value_size: usize,
    /// The arrays that it consists of, each with the number of its samples; a mask or companion may
    /// be missing.
    parts: Vec<(Option<&'a ChunkArray>, usize)>,
    /// The values of samples of a dataset without the array.
    fill: Fill<'a>,
}

/// The values of samples of a dataset that lacks an array.
#[derive(Clone, Copy)]
enum Fill<'a> {
    /// Every dataset has it.
    Nothing,
    /// It is a mask: one class id.
    Ids(&'a PlannedMask),
    /// It is a companion: NaN.
    Nan(&'a PlannedCompanion),
}

impl<'a> Shards<'a> {
    /// No shards yet, below `folder`. `fill` is the class id of masks that are missing.
    pub fn new(folder: PathBuf, fill: u16, progress: &'a Progress) -> Self {
        Self { folder, fill, progress, linked: 0, written: 0 }
    }

    /// Writes the shards of all arrays of a stack.
    ///
    /// # Errors
    /// If a chunk is damaged or cannot be read, or a shard cannot be written;
    /// [`ErrorKind::Interrupted`] if the user wants to stop.
    pub fn write(&mut self, stack: &MergedStack, datasets: &[Dataset]) -> Result<()> {
        let folder = self.folder.join(&stack.planned.name);
        let parts = || stack.stacks(datasets);
        let image = Merged {
            folder: folder.join(IMAGE),
            grid: stack.planned.grid,
            rank: 4,
            value_size: stack.values.dtype().size(),
            parts: parts().map(|part| (Some(&part.image), part.image.len())).collect(),
            fill: Fill::Nothing,
        };
        self.write_array(&image)?;
        for mask in &stack.planned.masks {
            let merged = Merged {
                folder: folder.join(&mask.name),
                grid: mask.grid,
                rank: 3,
                value_size: mask.dtype.size(),
                parts: parts().map(|part| (part.mask(&mask.name), part.image.len())).collect(),
                fill: Fill::Ids(mask),
            };
            self.write_array(&merged)?;
        }
        for companion in &stack.planned.companions {
            let name = &companion.name;
            let merged = Merged {
                folder: folder.join(name),
                grid: companion.grid,
                rank: companion.axes(),
                value_size: companion.dtype.size(),
                parts: parts().map(|part| (part.companion(name), part.image.len())).collect(),
                fill: Fill::Nan(companion),
            };
            self.write_array(&merged)?;
        }
        Ok(())
    }

    fn write_array(&mut self, array: &Merged<'_>) -> Result<()> {
        let len: usize = array.parts.iter().map(|(_, len)| len).sum();
        let per_shard = array.grid.samples_per_shard();
        for shard in 0..len.div_ceil(per_shard) {
            let samples = shard * per_shard..len.min((shard + 1) * per_shard);
            let mut key = vec![0; array.rank];
            key[0] = shard as u64;
            let path = array.folder.join(ArrayMeta::file_key(&key));
            if let Some((part, part_shard)) = array.same_shard(&samples) {
                let folder = path.parent().unwrap_or(Path::new(""));
                fs::create_dir_all(folder)
                    .map_err(|error| Error::io(folder, "cannot create", error))?;
                if part.link_shard(part_shard, &path)? {
                    self.linked += 1;
                    self.progress.cubes.fetch_add(samples.len() as u64, Ordering::Relaxed);
                    continue;
                }
            }
            self.write_shard(array, &samples, path)?;
            self.written += 1;
            self.progress.cubes.fetch_add(samples.len() as u64, Ordering::Relaxed);
        }
        Ok(())
    }

    fn write_shard(&self, array: &Merged<'_>, samples: &Range<usize>, path: PathBuf) -> Result<()> {
        let grid = &array.grid;
        let chunk_bytes = grid.chunk_values() * array.value_size;
        let mut writer = ShardWriter::create(path, grid.chunks_per_shard(), chunk_bytes)?;
        let mut encoder = Encoder::default();
        let mut filled: Option<Encoded> = None;
        for sample in samples.clone() {
            if self.progress.stop.load(Ordering::Relaxed) {
                return Err(Error::new(ErrorKind::Interrupted, "stopped")
                    .with_remedy("nothing was written"));
            }
            let (_, first) = grid.locate(sample);
            let (part, index) = array.locate(sample);
            match (part, array.fill) {
                (Some(part), _) if array.has_chunks_of(part) => {
                    let (shard, start) = part.grid().locate(index);
                    let shard = part.shard(shard)?;
                    for chunk in 0..grid.chunks_per_sample() {
                        let copied = shard.with_stored(start + chunk, |stored| {
                            codec::verify(stored).map_err(|error| error.at(shard.path()))?;
                            let bytes = stored.len() as u64;
                            self.progress.bytes_in.fetch_add(bytes, Ordering::Relaxed);
                            writer.write(first + chunk, stored)
                        })?;
                        copied.ok_or_else(|| {
                            Error::damaged("a chunk of the shard is missing").at(shard.path())
                        })?;
                    }
                }
                (Some(part), Fill::Ids(mask)) => {
                    let encoded = encode(&mut encoder, mask, &mut |rows, ids| {
                        read_ids(part, index, rows, ids)
                    })?;
                    put(&mut writer, first, &encoded)?;
                }
                (None, Fill::Ids(mask)) => {
                    if filled.is_none() {
                        let columns = grid.shape().columns;
                        filled = Some(encode(&mut encoder, mask, &mut |rows, ids| {
                            ids.clear();
                            ids.resize(rows.len() * columns, self.fill.into());
                            Ok(())
                        })?);
                    }
                    let encoded =
                        filled.as_ref().ok_or_else(|| Error::bug("a mask without ids"))?;
                    put(&mut writer, first, encoded)?;
                }
                (None, Fill::Nan(companion)) => {
                    if filled.is_none() {
                        let (codec, dtype) = (&companion.codec, companion.dtype);
                        filled = Some(encoder.encode_nan(grid, codec, dtype)?);
                    }
                    let encoded =
                        filled.as_ref().ok_or_else(|| Error::bug("a companion without values"))?;
                    put(&mut writer, first, encoded)?;
                }
                (_, Fill::Nothing | Fill::Nan(_)) => {
                    return Err(Error::bug("an array without chunks"));
                }
            }
        }
        let FinishedFile { file, .. } = writer.finish()?;
        file.commit()
    }
}

type ReadRows<'a> = dyn FnMut(Range<usize>, &mut Vec<MaskValue>) -> Result<()> + 'a;

fn encode(encoder: &mut Encoder, mask: &PlannedMask, read: &mut ReadRows<'_>) -> Result<Encoded> {
    encoder.encode_ids(mask.dtype, &mask.grid, &mask_codec(mask), read)
}

fn put(writer: &mut ShardWriter, first: usize, encoded: &Encoded) -> Result<()> {
    let mut chunks = encoded.chunks().enumerate();
    chunks.try_for_each(|(chunk, stored)| writer.write(first + chunk, stored))
}

/// The ids of rows of a sample of a mask.
fn read_ids(
    mask: &ChunkArray,
    index: usize,
    rows: Range<usize>,
    ids: &mut Vec<MaskValue>,
) -> Result<()> {
    let dtype = mask.meta().dtype;
    let mut bytes = vec![0; rows.len() * mask.shape().columns * dtype.size()];
    mask.read_rows(index, rows, &mut RowScratch::default(), &mut bytes)?;
    ids.clear();
    mask::read(dtype, &bytes, ids);
    Ok(())
}

impl Merged<'_> {
    /// The part that has a sample, and its position there.
    fn locate(&self, sample: usize) -> (Option<&ChunkArray>, usize) {
        let mut first = 0;
        for (part, len) in &self.parts {
            if sample < first + len {
                return (*part, sample - first);
            }
            first += len;
        }
        (None, 0)
    }

    /// Whether the chunks of a part can be copied.
    fn has_chunks_of(&self, part: &ChunkArray) -> bool {
        let chunk = |grid: &Grid| (grid.tile(), grid.band_group());
        part.meta().dtype.size() == self.value_size && chunk(part.grid()) == chunk(&self.grid)
    }

    /// The part, and the number of its shard, that has exactly these samples.
    fn same_shard(&self, samples: &Range<usize>) -> Option<(&ChunkArray, usize)> {
        let per_shard = self.grid.samples_per_shard();
        let mut first = 0;
        for (part, len) in &self.parts {
            let here = first..first + len;
            first += len;
            if !here.contains(&samples.start) {
                continue;
            }
            let part = part.filter(|part| self.has_chunks_of(part))?;
            let offset = samples.start - here.start;
            let fits = part.grid().samples_per_shard() == per_shard
                && offset.is_multiple_of(per_shard)
                && samples.end - here.start == (offset + per_shard).min(*len);
            return fits.then_some((part, offset / per_shard));
        }
        None
    }
}
