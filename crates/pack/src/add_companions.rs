//! Adds targets and further images to a packed dataset, from files, as if they had been packed with
//! the cubes.
//!
//! As when masks are added, a new state of the dataset is prepared beside it: the shards of the new
//! arrays, and hard links to all other files. It then replaces the dataset in one step. The files
//! of all samples are opened before anything is written.
//!
//! Where the files are is recorded with the recipes of the conversions. So `validate --source`,
//! `repair` and `merge` treat the arrays as those that were packed with the cubes, and an append
//! needs their files for its cubes.

use std::path::PathBuf;
use std::sync::atomic::Ordering;
use std::time::Instant;

#[cfg(feature = "clap")]
use hsipack_format::arguments::one_of;
use hsipack_format::codec::TARGET_BLOCK;
use hsipack_format::metadata::Role;
use hsipack_format::zarr::ArrayMeta;
use hsipack_format::{Error, ErrorKind, Opt, Result, Sample, remedy};
use hsipack_store::folder::aside;
use hsipack_store::{Dataset, Stack, mirror, remote, threads};
use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::add_mask::is_tiled;
use crate::convert::companions::{self, CompanionReader, PlannedCompanion};
use crate::convert::encode::{Encoded, Encoder};
use crate::convert::masks::CubeOfMask;
use crate::convert::metadata::{self, Metadata};
use crate::convert::options::check_array_name;
use crate::convert::shards::{FinishedFile, ShardWriter};
use crate::convert::staging::{Claim, Staging};
use crate::convert::{
    Assignment, CompanionOption, ConvertOptions, FitMethod, LayoutOptions, shared_geo,
};
use crate::input::Input;
use crate::progress::Progress;
use crate::session::Session;
use crate::validate::recipe;

/// Targets and further images to be added. As in `convert/options/mod.rs`, an option is a field,
/// here and nowhere else.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "clap", derive(clap::Args))]
#[serde(default)]
pub struct AddOptions {
    /// A packed dataset
    pub dataset: PathBuf,
    /// Pack a target with each cube: floats for each pixel, as 'mag1c={dir}/{stem}_mag1c.tif'
    /// (repeatable)
    ///
    /// PATTERN has the same fields as for `hsipack convert`, for the source of each sample: its
    /// folder is {dir}. Files, sizes and values are as for `hsipack convert --target`.
    #[cfg_attr(
        feature = "clap",
        arg(long, value_name = "NAME=PATTERN", required_unless_present = "image")
    )]
    pub target: Vec<Assignment>,
    /// Pack a further image with each cube, of another sensor or time, as 'rgb={dir}/{stem}.jpg'
    /// (repeatable)
    ///
    /// Files, sizes and values are as for `hsipack convert --image`.
    #[cfg_attr(feature = "clap", arg(long, value_name = "NAME=PATTERN"))]
    pub image: Vec<Assignment>,
    /// Bring targets and further images of another resolution to the pixels of their cubes: the
    /// value at the center of each pixel, or the mean of the values in it
    /// [default: images keep their resolution, targets are refused]
    #[cfg_attr(
        feature = "clap",
        arg(long, value_name = "nearest|mean", value_parser = one_of(&FitMethod::ALL))
    )]
    pub fit: Option<FitMethod>,
    /// Also look for sources in this folder if their path is relative. The working directory is
    /// searched before it, and the folder that contains the dataset after it
    #[cfg_attr(feature = "clap", arg(long, value_name = "DIR"))]
    pub source_root: Option<PathBuf>,
    /// The command, which the dataset records.
    #[cfg_attr(feature = "clap", arg(skip))]
    pub command: String,
}

/// The result of adding targets and further images.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// The dataset.
    pub dataset: PathBuf,
    /// Names of the targets, in the order of the alphabet.
    pub targets: Vec<String>,
    /// Names of the further images, in the order of the alphabet.
    pub images: Vec<String>,
    /// Samples that have them.
    pub samples: usize,
    /// Bytes of their shards.
    pub stored_bytes: u64,
    /// Seconds that it took.
    pub seconds: f64,
}

/// How many bytes of a file are read at once.
const BLOCK_BYTES: usize = 64 << 20;

/// Adds targets and further images to a dataset.
///
/// # Errors
/// If it is not an intact dataset written by hsipack, or another process writes it; if a name is
/// taken or not allowed; if the file of a sample is missing, or does not fit its cube or the files
/// of other samples; [`ErrorKind::Interrupted`] if `progress.stop` was set. The dataset is then
/// unchanged.
pub fn add(options: &AddOptions, progress: &Progress) -> Result<Report> {
    let _inputs = Session::begin();
    add_here(options, progress).map_err(mirror::error_with_urls)
}

fn add_here(options: &AddOptions, progress: &Progress) -> Result<Report> {
    let start = Instant::now();
    let path = &options.dataset;
    remote::refuse(path, "adding targets and images to")?;
    let companions = CompanionOption::all(&options.target, &options.image, options.fit);
    // A claim creates a folder. So first check that there is a dataset to claim, unless an interrupted commit has to be
    // recovered.
    if !aside(path).exists() {
        check_names(&Dataset::open(path)?, &companions)?;
    }
    let claim = Claim::of(path)?;
    claim.recover()?;
    let staging = Staging::scratch(claim)?;
    // From here on no other process changes the dataset.
    let added = Dataset::open(path).and_then(|dataset| {
        check_names(&dataset, &companions)?;
        let addition = Addition { dataset, companions, options, staging: &staging };
        Ok((addition.write(progress)?, addition.dataset.samples().len()))
    });
    let (stored_bytes, samples) = match added {
        Ok(added) => added,
        Err(error) => {
            // The next process that writes there removes what remains.
            let _ = staging.discard();
            return Err(error);
        }
    };
    staging.commit()?;
    let names = |assignments: &[Assignment]| {
        let mut names: Vec<String> = assignments.iter().map(|array| array.name.clone()).collect();
        names.sort();
        names
    };
    Ok(Report {
        dataset: path.clone(),
        targets: names(&options.target),
        images: names(&options.image),
        samples,
        stored_bytes,
        seconds: start.elapsed().as_secs_f64(),
    })
}

/// Refuses names that the arrays cannot have.
fn check_names(dataset: &Dataset, companions: &[CompanionOption]) -> Result<()> {
    if companions.is_empty() {
        return Err(Error::conflict("no target and no image is named").with_remedy(remedy![
            "name one with ",
            Opt::Target,
            " or ",
            Opt::Image
        ]));
    }
    for (number, CompanionOption { role, name, .. }) in companions.iter().enumerate() {
        check_array_name(name, role.words())?;
        if companions[..number].iter().any(|other| other.name == *name) {
            return Err(Error::conflict(format!("two arrays are named {name}"))
                .with_remedy("give each a name of its own"));
        }
        let mut arrays = dataset.stacks().iter().flat_map(Stack::arrays);
        if let Some(array) = arrays.find(|array| array.name() == name) {
            let role = array.role().map_or("mask", Role::words);
            return Err(Error::conflict(format!("the dataset has a {role} {name}"))
                .at(array.folder())
                .with_remedy("choose another name"));
        }
    }
    Ok(())
}

/// Arrays that are being added.
struct Addition<'a> {
    dataset: Dataset,
    companions: Vec<CompanionOption>,
    options: &'a AddOptions,
    staging: &'a Staging,
}

impl Addition<'_> {
    /// Writes the new state. Returns the bytes of the new shards.
    fn write(&self, progress: &Progress) -> Result<u64> {
        let planned = self.planned(progress)?;
        let mut files = Metadata::new();
        let mut bytes = 0;
        for (stack_number, stack) in self.dataset.stacks().iter().enumerate() {
            for (option, companion) in self.companions.iter().zip(&planned[stack_number]) {
                for shard in 0..stack.image.shards() {
                    bytes += self.write_shard(stack_number, shard, option, companion, progress)?;
                }
            }
            files.keep_stack(&self.dataset, stack, &[])?;
            let (len, geo) = (stack.image.len(), shared_geo::recorded(&self.dataset, stack)?);
            for companion in &planned[stack_number] {
                files.add_companion(&stack.name, companion, len, geo.as_ref());
            }
        }
        self.write_metadata(files)?;
        Ok(bytes)
    }

    /// The arrays of each stack. All files are opened once, so that a file that is missing or does
    /// not fit is an error before anything is written.
    fn planned(&self, progress: &Progress) -> Result<Vec<Vec<PlannedCompanion>>> {
        let mut planned: Vec<Vec<PlannedCompanion>> = vec![Vec::new(); self.dataset.stacks().len()];
        let tolerance = ConvertOptions::default().wavelength_tolerance;
        for id in 0..self.dataset.samples().len() {
            check_stop(progress)?;
            let sample = self.dataset.samples().get(id)?;
            let stack = self.dataset.samples().stack(id);
            for (number, option) in self.companions.iter().enumerate() {
                let companion = self.companion(stack, option, &self.open(&sample, option)?)?;
                let others = planned.iter().filter_map(|arrays| arrays.get(number));
                for other in others {
                    let (dtype, bands) = (other.dtype, other.grid.shape().bands);
                    companion
                        .check_like(dtype, bands, &other.meaning, tolerance)
                        .map_err(|error| error.at(&sample.source.path))?;
                }
                if planned[stack].len() == number {
                    planned[stack].push(companion);
                }
            }
        }
        Ok(planned)
    }

    /// Opens the file of a companion of a sample. Its source need not exist.
    fn open(&self, sample: &Sample, option: &CompanionOption) -> Result<CompanionReader> {
        let root = self.options.source_root.as_deref();
        let input = recipe::locate(sample, self.dataset.path(), root);
        let input = input.unwrap_or_else(|_| Input::of_sample(sample));
        let missing = || Error::damaged(format!("there is no stack {}", sample.stack));
        let shape = self.dataset.stack(&sample.stack).ok_or_else(missing)?.image.shape();
        let (rows, columns) = (shape.rows, shape.columns);
        let cube = CubeOfMask { input: &input, rows, columns, geo: sample.geo.as_ref() };
        CompanionReader::open(option, cube)
    }

    /// The array of a companion in a stack, the same as if it had been packed with the cubes.
    fn companion(
        &self,
        stack: usize,
        option: &CompanionOption,
        reader: &CompanionReader,
    ) -> Result<PlannedCompanion> {
        let image = &self.dataset.stacks()[stack].image;
        let dtype = reader.dtype(image.meta().dtype);
        let tile = is_tiled(&self.dataset).then(|| image.grid().tile());
        let per_shard = image.grid().samples_per_shard();
        let grid = companions::grid(tile, per_shard, image.shape(), reader.shape(), dtype)
            .map_err(|error| error.at(reader.file()))?;
        let codec = match image.meta().codecs.compression {
            None => LayoutOptions::default().codec(dtype, grid.chunk_values()),
            Some(codec) => {
                codec.of_dtype(dtype).with_blocks(TARGET_BLOCK, grid.chunk_values() * dtype.size())
            }
        };
        let (name, meaning) = (option.name.clone(), reader.meaning());
        Ok(PlannedCompanion { name, dtype, grid, codec, meaning })
    }

    /// Writes one shard of a companion. Returns its size in bytes.
    fn write_shard(
        &self,
        stack_number: usize,
        shard: usize,
        option: &CompanionOption,
        companion: &PlannedCompanion,
        progress: &Progress,
    ) -> Result<u64> {
        let (stack, grid) = (&self.dataset.stacks()[stack_number], companion.grid);
        let key = ArrayMeta::file_key(&[shard as u64, 0, 0, 0][..companion.axes()]);
        let path = self.staging.dataset().join(&stack.name).join(&companion.name).join(key);
        let chunk_bytes = grid.chunk_values() * companion.dtype.size();
        let mut writer = ShardWriter::create(path, grid.chunks_per_shard(), chunk_bytes)?;
        let per_shard = grid.samples_per_shard();
        let samples = shard * per_shard..stack.image.len().min((shard + 1) * per_shard);
        let encode = |encoder: &mut Encoder, index: usize| -> Result<(usize, Encoded)> {
            check_stop(progress)?;
            let none = || Error::damaged(format!("no sample has index {index}"));
            let id = self.dataset.samples().id_at(stack_number, index).ok_or_else(none)?;
            let reader = self.open(&self.dataset.samples().get(id)?, option)?;
            let cube = reader.into_cube(grid, companion.codec, companion.dtype)?;
            Ok((index, encoder.encode_companion(&cube, BLOCK_BYTES)?))
        };
        // As many samples at once as there are threads, because the encoded chunks of a shard may not fit into memory.
        let count = threads::cores();
        for first in samples.clone().step_by(count) {
            let indexes = first..samples.end.min(first + count);
            let encoded = threads::in_turn(count, "add", indexes, Encoder::default, encode)?;
            for (index, encoded) in encoded {
                let (_, start) = grid.locate(index);
                let mut chunks = encoded.chunks().enumerate();
                chunks.try_for_each(|(chunk, stored)| writer.write(start + chunk, stored))?;
                progress.bytes_out.fetch_add(encoded.data.len() as u64, Ordering::Relaxed);
                progress.cubes.fetch_add(1, Ordering::Relaxed);
            }
        }
        let FinishedFile { file: written, bytes, .. } = writer.finish()?;
        written.commit().map(|()| bytes)
    }

    /// Writes everything except the new shards.
    fn write_metadata(&self, mut files: Metadata) -> Result<()> {
        let base = &self.dataset;
        files.add_samples(Some(base.samples()), [])?;
        let names: Vec<&str> = self.companions.iter().map(|array| array.name.as_str()).collect();
        let added = self.companions.iter().map(|array| json!(array)).collect();
        let (now, samples) = (metadata::now(), base.samples().len());
        let (continues, command) = (base.fingerprint(), &self.options.command);
        let root = base.root().clone();
        files.add_root(root.with_companions(continues, &now, command, (&names, added), samples));
        self.staging.link_unchanged(base.path(), &[])?;
        self.staging.write_metadata(files.into_files(&[]), &[])
    }
}

fn check_stop(progress: &Progress) -> Result<()> {
    match progress.stop.load(Ordering::Relaxed) {
        false => Ok(()),
        true => {
            Err(Error::new(ErrorKind::Interrupted, "stopped")
                .with_remedy("the dataset is as it was"))
        }
    }
}
