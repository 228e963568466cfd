//! Adds masks to a packed dataset: splits of its labelled pixels, superpixels, predictions.
//!
//! A new state of the dataset is prepared beside it, as an append does (`convert/staging.rs`): the
//! shards of the new masks, and hard links to all other files. It then replaces the dataset in one
//! step. If the process is killed before that step, the dataset is unchanged, and the next process
//! that writes there removes the remains. After it, the masks are there.
//!
//! Each mask records the command and the options that made it. This distinguishes it from masks
//! that were packed with the cubes: `validate --source` does not look for its files, `repair`
//! reports that it has to be made again, and appends fill it with zeros for new cubes. A mask that
//! replaces one that was packed with the cubes is such a mask, too.

mod spool;

use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::time::Instant;

use hsipack_format::codec::TARGET_BLOCK;
use hsipack_format::metadata::{MaskOrigin, Role};
use hsipack_format::zarr::ArrayMeta;
use hsipack_format::{
    Color, CubeShape, DType, Error, ErrorKind, Grid, MaskValue, Opt, Result, mask, remedy,
};
use hsipack_store::folder::aside;
use hsipack_store::{Dataset, Stack, remote};
use serde::Serialize;
use serde_json::Value;

pub use self::spool::Spool;
use crate::convert::LayoutOptions;
use crate::convert::encode::Encoder;
use crate::convert::masks;
use crate::convert::metadata::{self, Metadata, mask_codec};
use crate::convert::options::check_mask_name;
use crate::convert::plan::PlannedMask;
use crate::convert::shards::{FinishedFile, ShardWriter};
use crate::convert::shared_geo;
use crate::convert::staging::{Claim, Staging};
use crate::progress::Progress;

/// A mask to be added.
#[derive(Clone, Debug)]
pub struct NewMask {
    /// Its name.
    pub name: String,
    /// Names of its classes in each stack, class 0 first, if they have names.
    pub class_names: Vec<Option<Vec<String>>>,
    /// Colours of its classes in each stack, class 0 first; empty if none is known.
    pub class_colors: Vec<Vec<Option<Color>>>,
    /// The options that it was made with.
    pub recipe: Value,
}

/// The result of adding a mask.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// The dataset.
    pub dataset: PathBuf,
    /// The mask's name.
    pub mask: String,
    /// Samples that have it.
    pub samples: usize,
    /// Bytes of its shards.
    pub stored_bytes: u64,
    /// Whether an existing mask of this name was replaced.
    pub replaced: bool,
    /// Seconds that it took to store the mask.
    pub seconds: f64,
}

/// Gives the class ids of new masks.
///
/// Ids are requested stack by stack; within a stack sample by sample, in the order of its arrays;
/// within a sample mask by mask; and within a mask from the first row to the last. No ids are
/// requested twice.
pub trait MaskIds {
    /// The greatest id of all masks in the samples of a stack, which decides in which type they are
    /// stored.
    ///
    /// # Errors
    /// If it cannot be determined.
    fn greatest(&mut self, stack: usize) -> Result<MaskValue>;

    /// Writes the ids of rows `rows` of a sample to `ids`, replacing its content. The order is
    /// (row, column).
    ///
    /// # Errors
    /// If they cannot be determined.
    fn read(
        &mut self,
        mask: usize,
        sample: usize,
        rows: std::ops::Range<usize>,
        ids: &mut Vec<MaskValue>,
    ) -> Result<()>;
}

/// Masks that are being added: the right to write the dataset, and its new state, which is removed
/// unless it is committed.
pub struct Adding {
    dataset: Dataset,
    staging: Option<Staging>,
    names: Vec<String>,
    replaced: Vec<String>,
}

/// Which existing masks new ones of the same names may replace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Replace {
    /// None.
    Never,
    /// Those that were added after packing.
    Added,
    /// Also those that were packed with the cubes.
    Any,
}

impl Adding {
    /// Claims the dataset at `path` to add masks of these names, which may replace others.
    ///
    /// # Errors
    /// If it is not an intact dataset written by hsipack, another process writes it, a conversion
    /// there has to be resumed first, or a name is taken or not allowed.
    pub fn begin(path: &Path, names: Vec<String>, replace: Replace) -> Result<Self> {
        remote::refuse(path, "adding masks to")?;
        // A claim creates a folder. So first check that there is a dataset to claim, unless an interrupted commit has
        // to be recovered.
        if !aside(path).exists() {
            check_names(&Dataset::open(path)?, &names, replace)?;
        }
        let claim = Claim::of(path)?;
        claim.recover()?;
        let staging = Some(Staging::scratch(claim)?);
        // From here on no other process changes the dataset.
        let (dataset, replaced) = (Dataset::open(path)?, Vec::new());
        let mut adding = Self { dataset, staging, names, replaced };
        adding.replaced = check_names(&adding.dataset, &adding.names, replace)?;
        Ok(adding)
    }

    /// The dataset before the masks are added.
    pub fn dataset(&self) -> &Dataset {
        &self.dataset
    }

    /// Names of existing masks that will be replaced.
    pub fn replaced(&self) -> &[String] {
        &self.replaced
    }

    /// A file for ids that are computed sample by sample, before it is known whether all samples
    /// succeed.
    ///
    /// # Errors
    /// If the file cannot be created.
    pub fn spool(&self) -> Result<Spool> {
        Spool::create(&self.staging().scratch_folder()?.join("ids"), &self.dataset)
    }

    /// Writes the shards of the masks. Returns the number of bytes of each mask.
    ///
    /// # Errors
    /// The errors of `ids`; if a file cannot be written; [`ErrorKind::Interrupted`] if
    /// `progress.stop` was set.
    pub fn write(
        &self,
        masks: &[NewMask],
        command: &str,
        ids: &mut dyn MaskIds,
        progress: &Progress,
    ) -> Result<Vec<u64>> {
        let mut bytes = vec![0; masks.len()];
        let mut files = Metadata::new();
        let replaced: Vec<&str> = self.replaced.iter().map(String::as_str).collect();
        for (stack_index, stack) in self.dataset.stacks().iter().enumerate() {
            let dtype = mask::dtype_for(ids.greatest(stack_index)?);
            let planned = masks.iter().map(|mask| self.planned(stack_index, mask, dtype, command));
            let planned = planned.collect::<Result<Vec<_>>>()?;
            for shard in 0..stack.image.shards() {
                let written =
                    self.write_shard((stack_index, stack), shard, &planned, ids, progress)?;
                bytes.iter_mut().zip(written).for_each(|(total, size)| *total += size);
            }
            files.keep_stack(&self.dataset, stack, &replaced)?;
            let (len, geo) = (stack.image.len(), shared_geo::recorded(&self.dataset, stack)?);
            planned.iter().for_each(|mask| files.add_mask(&stack.name, mask, len, geo.as_ref()));
        }
        self.write_metadata(files, command)?;
        Ok(bytes)
    }

    /// Replaces the dataset by the new state, in one step.
    ///
    /// # Errors
    /// If the file system fails.
    pub fn commit(mut self) -> Result<()> {
        self.staging.take().expect("taken here and when it is dropped").commit()
    }

    /// Writes and commits one mask whose ids are in `spool`.
    ///
    /// # Errors
    /// The same as those of [`write`](Self::write) and [`commit`](Self::commit).
    pub fn finish(
        self,
        mask: &NewMask,
        command: &str,
        spool: &mut Spool,
        progress: &Progress,
    ) -> Result<Report> {
        let start = Instant::now();
        let bytes = self.write(std::slice::from_ref(mask), command, spool, progress)?;
        let report = Report {
            dataset: self.dataset.path().to_owned(),
            mask: mask.name.clone(),
            samples: self.dataset.samples().len(),
            stored_bytes: bytes.iter().sum(),
            replaced: !self.replaced.is_empty(),
            seconds: 0.0,
        };
        self.commit()?;
        Ok(Report { seconds: start.elapsed().as_secs_f64(), ..report })
    }

    fn staging(&self) -> &Staging {
        self.staging.as_ref().expect("taken by who commits or drops it")
    }

    /// Layout and meaning of a mask in a stack, the same as if it had been packed with the cubes.
    fn planned(
        &self,
        stack_index: usize,
        mask: &NewMask,
        dtype: DType,
        command: &str,
    ) -> Result<PlannedMask> {
        let image = &self.dataset.stacks()[stack_index].image;
        let flat = CubeShape { bands: 1, ..image.shape() };
        let tile = if is_tiled(&self.dataset) { image.grid().tile() } else { masks::tile(flat) };
        let grid = Grid::new(flat, tile, image.grid().samples_per_shard())?;
        let codec = match image.meta().codecs.compression {
            None => LayoutOptions::default().codec(dtype, grid.chunk_values()),
            // Blosc chose its blocks.
            Some(codec) if codec.blocksize == 0 => codec,
            Some(codec) => {
                codec.of_dtype(dtype).with_blocks(TARGET_BLOCK, grid.chunk_values() * dtype.size())
            }
        };
        Ok(PlannedMask {
            name: mask.name.clone(),
            dtype,
            grid,
            codec,
            layers: Vec::new(),
            class_names: mask.class_names.get(stack_index).cloned().flatten(),
            class_colors: mask.class_colors.get(stack_index).cloned().unwrap_or_default(),
            origin: Some(MaskOrigin { command: command.to_owned(), recipe: mask.recipe.clone() }),
        })
    }

    /// Writes one shard of each mask. Returns their sizes in bytes.
    fn write_shard(
        &self,
        (stack_index, stack): (usize, &Stack),
        shard: usize,
        masks: &[PlannedMask],
        ids: &mut dyn MaskIds,
        progress: &Progress,
    ) -> Result<Vec<u64>> {
        let folder = self.staging().dataset().join(&stack.name);
        let writer = |mask: &PlannedMask| {
            let path = folder.join(&mask.name).join(ArrayMeta::file_key(&[shard as u64, 0, 0]));
            let chunk_bytes = mask.grid.chunk_values() * mask.dtype.size();
            ShardWriter::create(path, mask.grid.chunks_per_shard(), chunk_bytes)
        };
        let mut writers = masks.iter().map(writer).collect::<Result<Vec<_>>>()?;
        let mut encoder = Encoder::default();
        let per_shard = stack.image.grid().samples_per_shard();
        for index in shard * per_shard..stack.image.len().min((shard + 1) * per_shard) {
            if progress.stop.load(Ordering::Relaxed) {
                return Err(Error::new(ErrorKind::Interrupted, "stopped")
                    .with_remedy("the dataset is as it was"));
            }
            let none = || Error::damaged(format!("no sample has index {index}"));
            let sample = self.dataset.samples().id_at(stack_index, index).ok_or_else(none)?;
            for (number, (mask, writer)) in masks.iter().zip(&mut writers).enumerate() {
                let mut read = |rows, out: &mut Vec<MaskValue>| ids.read(number, sample, rows, out);
                let encoded =
                    encoder.encode_ids(mask.dtype, &mask.grid, &mask_codec(mask), &mut read)?;
                let (_, first) = mask.grid.locate(index);
                let mut chunks = encoded.chunks().enumerate();
                chunks.try_for_each(|(chunk, stored)| writer.write(first + chunk, stored))?;
                progress.bytes_out.fetch_add(encoded.data.len() as u64, Ordering::Relaxed);
            }
            progress.cubes.fetch_add(1, Ordering::Relaxed);
        }
        let finish = |writer: ShardWriter| {
            let FinishedFile { file: written, bytes, .. } = writer.finish()?;
            written.commit().map(|()| bytes)
        };
        writers.into_iter().map(finish).collect()
    }

    /// Writes everything except the new shards.
    fn write_metadata(&self, mut files: Metadata, command: &str) -> Result<()> {
        let base = &self.dataset;
        files.add_samples(Some(base.samples()), [])?;
        let continues = self.replaced.is_empty().then(|| base.fingerprint());
        let names: Vec<&str> = self.names.iter().map(String::as_str).collect();
        let now = metadata::now();
        let samples = base.samples().len();
        files.add_root(base.root().clone().with_masks(continues, &now, command, &names, samples));
        let replaced = base.stacks().iter().flat_map(|stack| {
            self.replaced.iter().map(|name| PathBuf::from(&stack.name).join(name))
        });
        self.staging().link_unchanged(base.path(), &replaced.collect::<Vec<_>>())?;
        self.staging().write_metadata(files.into_files(&[]), &[])
    }
}

/// Whether the user chose the chunk shape; arrays that are added then have the same chunks as the
/// image.
pub(crate) fn is_tiled(dataset: &Dataset) -> bool {
    let recipes = dataset.root().recipes().unwrap_or_default();
    recipes.first().is_some_and(|(recipe, _)| !recipe["chunk"].is_null())
}

impl Drop for Adding {
    /// Leaves the dataset unchanged.
    fn drop(&mut self) {
        if let Some(staging) = self.staging.take() {
            // The next process that writes there removes what remains.
            let _ = staging.discard();
        }
    }
}

/// Refuses names that masks cannot have, and names of masks that may not be replaced. Returns the
/// names of masks that will be replaced.
///
/// # Errors
/// If a name is not allowed, occurs twice, or is taken.
pub fn check_names(dataset: &Dataset, names: &[String], replace: Replace) -> Result<Vec<String>> {
    let mut replaced = Vec::new();
    for (index, name) in names.iter().enumerate() {
        check_mask_name(name)?;
        if names[..index].contains(name) {
            return Err(Error::conflict(format!("two masks have the name {name}"))
                .with_remedy("give each mask its own name"));
        }
        if let Some(other) = dataset.stacks().iter().find_map(|stack| stack.companion(name)) {
            let role = other.role().map_or("target", Role::words);
            return Err(Error::conflict(format!("the dataset has a {role} {name}"))
                .at(other.folder())
                .with_remedy("choose another name"));
        }
        let existing: Vec<_> =
            dataset.stacks().iter().filter_map(|stack| stack.mask(name)).collect();
        let Some(first) = existing.first() else { continue };
        let is_packed = existing.iter().any(|mask| mask.meta().mask_meaning().origin.is_none());
        if replace == Replace::Added && is_packed {
            return Err(Error::conflict(format!("mask {name} was packed with the cubes"))
                .at(first.folder())
                .with_remedy(
                    "choose another name: only masks that were added later are replaced",
                ));
        }
        if replace == Replace::Never {
            return Err(Error::conflict(format!("the dataset already has a mask {name}"))
                .at(first.folder())
                .with_remedy(remedy![
                    "pass ",
                    Opt::Force,
                    " to replace it, or choose another name"
                ]));
        }
        replaced.push(name.clone());
    }
    Ok(replaced)
}
