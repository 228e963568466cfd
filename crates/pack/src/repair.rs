//! Repairs a damaged dataset: recreates damaged chunks from their sources.
//!
//! A shard that has a damaged chunk is rewritten beside the old one: intact chunks are copied, and
//! damaged chunks are encoded again. When the new shard is complete and on the disk, it replaces
//! the old one. What cannot be repaired (metadata other than the index of the samples, or chunks
//! whose source is missing or has changed) is left as it is and reported.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use hsipack_format::metadata::{FWHM, MaskOrigin, WAVELENGTH};
use hsipack_format::samples::index::SAMPLES_INDEX;
use hsipack_format::{Error, ErrorKind, Result, Sample};
use hsipack_store::dataset::ChunkArray;
use hsipack_store::output::{self, write_whole};
use hsipack_store::remote::is_url;
use hsipack_store::shard::ShardFile;
use hsipack_store::{Dataset, Stack, mirror};
use serde::Serialize;

use crate::convert::encode::{Encoded, Encoder, OpenCube};
use crate::convert::masks::{self, CubeOfMask, MaskReader};
use crate::convert::shards::ShardWriter;
use crate::convert::staging::Claim;
use crate::convert::{CompanionReader, metadata, plan};
use crate::fingerprint::fingerprint;
use crate::progress::Progress;
use crate::session::Session;
use crate::validate::recipe::{self, Recipe};
use crate::validate::{self, Problem, ProblemKind, ValidateOptions, coordinates, structure};

/// The result of a repair.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// The dataset.
    pub dataset: PathBuf,
    /// Number of problems before the repair.
    pub found: usize,
    /// Names of the samples of which chunks were recreated.
    pub repaired_samples: Vec<String>,
    /// Number of chunks that were recreated.
    pub repaired_chunks: usize,
    /// Whether the index of the samples was rewritten.
    pub repaired_index: bool,
    /// Damages that could not be repaired, with the reason.
    pub failed: Vec<String>,
    /// Problems that the validation after the repair found.
    pub remaining: Vec<Problem>,
}

/// How many bytes of a source are read at once.
const BLOCK_BYTES: usize = 64 << 20;

/// Damaged chunks of one shard of one array, by sample. If there are none, the shard is only
/// rewritten.
type Damage = BTreeMap<usize, BTreeSet<usize>>;

/// Validates the dataset at `path`, recreates damaged chunks, and validates again.
///
/// # Errors
/// If it cannot be validated, or its metadata are damaged: a repair needs them.
pub fn repair(path: &Path, options: &ValidateOptions, progress: &Progress) -> Result<Report> {
    let _inputs = Session::begin();
    repair_here(path, options, progress).map_err(mirror::error_with_urls)
}

fn repair_here(path: &Path, options: &ValidateOptions, progress: &Progress) -> Result<Report> {
    let options = ValidateOptions { quick: false, source: false, ..options.clone() };
    if is_url(path) {
        // If a commit was interrupted, readers can still open the dataset, but a repair needs all metadata in their
        // final places.
        Claim::of(path)?.recover()?;
    }
    let before = validate::validate(path, &options, progress)?;
    let metadata = before
        .problems
        .iter()
        .find(|problem| matches!(problem.kind, ProblemKind::Metadata | ProblemKind::Record));
    if let Some(problem) = metadata {
        return Err(Error::new(
            ErrorKind::Damaged,
            format!("metadata cannot be repaired: {}", problem.what),
        )
        .at(&problem.path)
        .with_remedy("restore the file from a copy, or convert again"));
    }
    let mut report = Report {
        dataset: path.to_owned(),
        found: before.problems.len(),
        repaired_samples: Vec::new(),
        repaired_chunks: 0,
        repaired_index: false,
        failed: Vec::new(),
        remaining: Vec::new(),
    };
    if !before.problems.is_empty() {
        // An append at the same time would copy the damaged shards, or lose the new ones.
        let claim = Claim::of(path)?;
        let _held = claim.hold()?;
        output::remove_temporaries(path)?;
        let dataset = Dataset::open_unverified(path)?;
        Mender {
            dataset: &dataset,
            recipes: recipe::read(&dataset)?,
            options: &options,
            report: &mut report,
        }
        .mend(&before.problems);
        report.remaining = validate::validate(path, &options, progress)?.problems;
    }
    Ok(report)
}

struct Mender<'a> {
    dataset: &'a Dataset,
    recipes: Vec<Recipe>,
    options: &'a ValidateOptions,
    report: &'a mut Report,
}

impl Mender<'_> {
    fn mend(&mut self, problems: &[Problem]) {
        let mut shards: BTreeMap<(String, String, usize), Damage> = BTreeMap::new();
        let mut coordinates = BTreeSet::new();
        if problems.iter().any(|problem| problem.kind == ProblemKind::Index) {
            let result = self.mend_index();
            self.report.repaired_index = result.is_ok();
            self.note(result);
        }
        for problem in problems {
            let Some(stack) = problem.stack.clone() else { continue };
            match (&problem.array, problem.shard) {
                (Some(array), Some(shard)) => {
                    let damage = shards.entry((stack.clone(), array.clone(), shard)).or_default();
                    let chunks = self.chunks_per_sample(&stack, array);
                    if let Some(index) = problem.index {
                        let all = problem.chunk.map_or(0..chunks, |chunk| chunk..chunk + 1);
                        damage.entry(index).or_default().extend(all);
                    }
                }
                (array, _) if problem.kind == ProblemKind::Coordinate => {
                    coordinates.insert((stack, array.clone()));
                }
                _ => {}
            }
        }
        for (stack, array) in coordinates {
            let result = match array {
                Some(array) => self.mend_geo_array(&stack, &array),
                None => self.mend_coordinates(&stack),
            };
            self.note(result);
        }
        for ((stack, array, shard), damage) in shards {
            let result = self.mend_shard(&stack, &array, shard, &damage);
            self.note(result);
        }
    }

    fn note(&mut self, result: Result<()>) {
        if let Err(error) = result {
            self.report.failed.push(error.to_string());
        }
    }

    fn chunks_per_sample(&self, stack: &str, array: &str) -> usize {
        self.array(stack, array).map_or(0, |(_, array)| array.grid().chunks_per_sample())
    }

    fn array(&self, stack: &str, array: &str) -> Option<(&Stack, &ChunkArray)> {
        let stack = self.dataset.stack(stack)?;
        let found = stack.arrays().find(|candidate| candidate.name() == array);
        found.map(|array| (stack, array))
    }

    /// Rewrites the index of the samples.
    fn mend_index(&self) -> Result<()> {
        let index = structure::made_index(self.dataset)?;
        write_whole(&self.dataset.path().join(SAMPLES_INDEX), &index)
    }

    /// Rewrites the positions of rows or columns, or the grid mapping, from `samples.jsonl`.
    fn mend_geo_array(&self, stack: &str, array: &str) -> Result<()> {
        let folder = self.dataset.path().join(stack).join(array);
        let gone = || {
            Error::damaged("samples.jsonl does not contain the georeferencing of the samples")
                .at(&folder)
        };
        let stack = self.dataset.stack(stack).ok_or_else(gone)?;
        let arrays = coordinates::made(self.dataset, stack)?;
        let geo_array = arrays.iter().find(|geo_array| geo_array.name == array).ok_or_else(gone)?;
        write_whole(&folder.join(geo_array.chunk_file()), &geo_array.chunk)
    }

    /// Rewrites wavelengths and fwhm from the first source that has them.
    fn mend_coordinates(&mut self, stack: &str) -> Result<()> {
        let stack_index =
            self.dataset.stacks().iter().position(|candidate| candidate.name == stack);
        let samples = self.dataset.samples();
        let mut reason = Error::damaged("no source gives its wavelengths");
        for id in stack_index.into_iter().flat_map(|stack| samples.ids_in(stack)) {
            match samples.get(id).and_then(|sample| self.source_bands(&sample)) {
                Ok([wavelength, fwhm]) if wavelength.is_some() => {
                    let folder = self.dataset.path().join(stack);
                    for (array, values) in [(WAVELENGTH, wavelength), (FWHM, fwhm)] {
                        let Some(values) = values else { continue };
                        let array = folder.join(array);
                        if output::exists(&array.join("zarr.json"))? {
                            write_whole(&array.join("c/0"), &metadata::coordinate_chunk(&values))?;
                        }
                    }
                    return Ok(());
                }
                Ok(_) => {}
                Err(error) => reason = error,
            }
        }
        Err(reason)
    }

    fn source_bands(&self, sample: &Sample) -> Result<[Option<Vec<f64>>; 2]> {
        let (recipe, input) = self.source(sample)?;
        let source = plan::open_source(&input, &recipe.values)?;
        let info = source.info();
        let bands = plan::select_bands(info, &recipe.values)?;
        Ok([plan::pick(&info.wavelength, &bands), plan::pick(&info.fwhm, &bands)])
    }

    /// How a sample was made, and its source. Fails if the source has changed.
    fn source(&self, sample: &Sample) -> Result<(&Recipe, crate::input::Input)> {
        let recipe = recipe::of(&self.recipes, sample.id).ok_or_else(|| {
            Error::damaged(format!("the dataset does not record how {} was made", sample.name))
        })?;
        let root = self.options.source_root.as_deref();
        let input = recipe::locate(sample, self.dataset.path(), root)
            .map_err(|error| error.at(&sample.source.path))?;
        let source = plan::open_source(&input, &recipe.values)?;
        if fingerprint(&source.info().files)?.1 != sample.source.fingerprint {
            return Err(Error::conflict(format!(
                "the source of sample {} has changed since the conversion",
                sample.name
            ))
            .at(&input.file)
            .with_remedy("restore the original file, or convert again"));
        }
        Ok((recipe, input))
    }

    /// Rewrites one shard.
    fn mend_shard(
        &mut self,
        stack: &str,
        array: &str,
        shard: usize,
        damage: &Damage,
    ) -> Result<()> {
        let (stack, array) =
            self.array(stack, array).ok_or_else(|| Error::damaged("an array is gone"))?;
        if let Some(origin) = array.meta().mask_meaning().origin {
            return Err(made_elsewhere(array, &origin));
        }
        let grid = array.grid();
        let path = array.shard_path(shard);
        let old = array.open_shard(shard).ok();
        let first = shard * grid.samples_per_shard();
        let samples = first..array.len().min(first + grid.samples_per_shard());
        let mut writer = ShardWriter::create(path, grid.chunks_per_shard(), array.chunk_bytes())?;
        let (mut names, mut chunks) = (Vec::new(), 0);
        for index in samples {
            match damage.get(&index) {
                Some(bad) => {
                    let sample = self.sample(stack, index)?;
                    self.write_again(&sample, stack, array, bad, old.as_ref(), &mut writer)?;
                    names.push(sample.name.clone());
                    chunks += bad.len();
                }
                None => {
                    let (_, start) = grid.locate(index);
                    for chunk in start..start + grid.chunks_per_sample() {
                        copy_chunk(old.as_ref(), chunk, &mut writer)?;
                    }
                }
            }
        }
        let written = writer.finish()?.file;
        written.commit()?;
        for name in names {
            if !self.report.repaired_samples.contains(&name) {
                self.report.repaired_samples.push(name);
            }
        }
        self.report.repaired_chunks += chunks;
        Ok(())
    }

    fn sample(&self, stack: &Stack, index: usize) -> Result<Sample> {
        let samples = self.dataset.samples();
        let stack_index =
            self.dataset.stacks().iter().position(|candidate| candidate.name == stack.name);
        let id = stack_index.and_then(|stack_index| samples.id_at(stack_index, index));
        let none = || Error::damaged(format!("no sample has index {index}"));
        id.ok_or_else(none).and_then(|id| samples.get(id))
    }

    /// Writes all chunks of a sample: recreates those in `bad`, and copies the others.
    fn write_again(
        &self,
        sample: &Sample,
        stack: &Stack,
        array: &ChunkArray,
        bad: &BTreeSet<usize>,
        old: Option<&ShardFile>,
        writer: &mut ShardWriter,
    ) -> Result<()> {
        let (recipe, input) = self.source(sample)?;
        let (_, start) = array.grid().locate(sample.index);
        let mut put = |chunk: usize, stored: &[u8]| {
            if bad.contains(&chunk) {
                return writer.write(start + chunk, stored);
            }
            // Masks, companions and references have no fingerprints in the dataset, but the intact chunks show whether they are
            // still those that were packed.
            if !is_content(array, old, start + chunk, stored)? {
                return Err(Error::conflict(format!(
                    "a mask, target, image or reference of sample {} has changed since the conversion",
                    sample.name
                ))
                .at(array.folder())
                .with_remedy("restore the original file, or convert again"));
            }
            copy_chunk(old, start + chunk, writer)
        };
        let mut encoder = Encoder::default();
        if let Some(role) = array.role() {
            let companion = recipe.companions.iter().find(|option| option.name == array.name());
            let companion = companion.ok_or_else(|| {
                let role = role.words();
                Error::damaged(format!("the dataset does not record where the {role} came from"))
            })?;
            let shape = stack.image.shape();
            let (rows, columns) = (shape.rows, shape.columns);
            let cube = CubeOfMask { input: &input, rows, columns, geo: sample.geo.as_ref() };
            let reader = CompanionReader::open(companion, cube)?;
            let dtype = array.meta().dtype;
            let cube = reader.into_cube(*array.grid(), recipe::codec(array), dtype)?;
            let encoded = encoder.encode_companion(&cube, BLOCK_BYTES)?;
            return encoded.chunks().enumerate().try_for_each(|(chunk, stored)| put(chunk, stored));
        }
        if array.name() != stack.image.name() {
            let group =
                masks::groups(&recipe.masks)?.into_iter().find(|group| group.name == array.name());
            let group = group.ok_or_else(|| {
                Error::damaged("the dataset does not record where the mask came from")
            })?;
            let shape = array.shape();
            let optional = recipe.mask_fill.is_some();
            let (rows, columns) = (shape.rows, shape.columns);
            let cube = CubeOfMask { input: &input, rows, columns, geo: sample.geo.as_ref() };
            let meaning = array.meta().mask_meaning();
            let reader = MaskReader::open(&group, cube, optional)?.map(|reader| {
                let names = meaning.class_names.as_deref();
                reader.filling(recipe.mask_fill).among(&meaning.layers, names)
            });
            let fill = recipe.mask_fill.filter(|_| !group.is_by_class()).unwrap_or(0).into();
            let encoded = encoder.encode_mask(
                reader.as_ref(),
                fill,
                array.meta().dtype,
                array.grid(),
                &recipe::codec(array),
            )?;
            return encoded.chunks().enumerate().try_for_each(|(chunk, stored)| put(chunk, stored));
        }
        let source = plan::open_source(&input, &recipe.values)?;
        let bands = plan::select_bands(source.info(), &recipe.values)?;
        let cube = OpenCube {
            transform: plan::transform(
                &input,
                source.info(),
                bands,
                &recipe.values,
                array.scale_factor(),
            )?,
            source,
            grid: *array.grid(),
            codec: recipe::codec(array),
            dtype: array.meta().dtype,
            missing: array.meta().missing(),
            turn: Mutex::new(()),
        };
        let slab = array.grid().tile().rows;
        let block = cube.source.preferred_rows(BLOCK_BYTES).div_ceil(slab) * slab;
        let height = array.shape().rows;
        for first in (0..height).step_by(block) {
            let rows = first..height.min(first + block);
            encoder.read(&cube, rows.clone(), None)?;
            let encoded = encoder.encode(&cube, rows, Encoded::default())?;
            let chunk = first / slab * array.grid().chunks_per_row();
            encoded.chunks().enumerate().try_for_each(|(at, stored)| put(chunk + at, stored))?;
        }
        Ok(())
    }
}

/// The error for a damaged mask that was added after packing: no source file exists to recreate it
/// from.
fn made_elsewhere(array: &ChunkArray, origin: &MaskOrigin) -> Error {
    Error::damaged(format!(
        "mask {} was made by `{}`, not from a source file",
        array.name(),
        origin.command
    ))
    .at(array.folder())
    .with_remedy("run that again with force, to replace the mask")
}

/// Whether an intact chunk of the old shard has the values of `stored`. Another version may have
/// compressed them otherwise.
fn is_content(
    array: &ChunkArray,
    old: Option<&ShardFile>,
    chunk: usize,
    stored: &[u8],
) -> Result<bool> {
    let Some(old) = old else { return Ok(true) };
    let same = old.with_stored(chunk, |before| {
        if before == stored {
            return Ok(true);
        }
        let mut values = [vec![0; array.chunk_bytes()], vec![0; array.chunk_bytes()]];
        for (stored, values) in [before, stored].into_iter().zip(&mut values) {
            array.decode(stored, true, values)?;
        }
        Ok(values[0] == values[1])
    })?;
    Ok(same.unwrap_or(true))
}

fn copy_chunk(old: Option<&ShardFile>, chunk: usize, writer: &mut ShardWriter) -> Result<()> {
    // The chunk is copied before it is written, so that a page that cannot be read gives an error about the old shard.
    let stored = match old {
        Some(old) => old.with_stored(chunk, |stored| Ok(stored.to_vec()))?,
        None => None,
    };
    let gone = || Error::damaged(format!("chunk {chunk} of the shard is gone"));
    writer.write(chunk, &stored.ok_or_else(gone)?)
}
