//! The files of every strategy, made from the same cubes.

use std::fs;
use std::path::{Path, PathBuf};

use hsipack_format::{Command, Compressor, DType, Opt, remedy};
use hsipack_pack::convert::{self, ConvertOptions, PackedType, Scale, plan};
use hsipack_pack::progress::Progress;
use hsipack_read::{Dataset, FloatType, Integers};
use hsipack_store::dataset::ChunkArray;
use hsipack_store::{is_packed, mirror, threads};
use serde::{Deserialize, Serialize};

use super::options::{BenchOptions, CubeSize, Cubes, Strategy};
use super::{codec, npy, synthetic};
use crate::{Error, ErrorKind, Result, machine};

/// Name of the folder inside the work folder.
const FOLDER: &str = "hsipack-bench";
/// Bytes of a value of float32.
const VALUE: u64 = 4;
/// File that records what the files were made from.
const MANIFEST: &str = "data.json";

/// The same cubes, stored for every strategy.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Data {
    /// Source of the cubes: a path, or `generated`.
    pub source: String,
    /// Number of cubes.
    pub cubes: usize,
    /// Rows, columns and bands of each.
    pub shape: CubeSize,
    /// Folder of float32 .npy files.
    pub original: PathBuf,
    /// Packed as float32.
    pub blosc: PathBuf,
    /// Packed as float16.
    pub half: PathBuf,
    /// Bytes of these three; 0 for files that no strategy needs.
    pub bytes: [u64; 3],
    /// How these three are compressed, as the options of `hsipack convert` spell it:
    /// `lz4hc 4 byte`. `None` if they are not compressed, or no strategy needs them.
    pub codecs: [Option<String>; 3],
}

impl Data {
    /// The files' sizes and codecs for people; `size` formats sizes.
    pub fn files(&self, size: impl Fn(f64) -> String) -> String {
        let all = ["float32", "+blosc", "+fp16"].into_iter().zip(self.bytes).zip(&self.codecs);
        let existing = all.filter(|((_, bytes), _)| *bytes > 0).map(|((name, bytes), codec)| {
            let codec = codec.as_ref().map_or(String::new(), |codec| format!(" ({codec})"));
            format!("{name} {}{codec}", size(bytes as f64))
        });
        existing.collect::<Vec<_>>().join(", ")
    }
}

/// The folder in which files are made. It is removed on drop, unless it is to be kept.
#[derive(Debug)]
pub struct WorkFolder {
    path: PathBuf,
    remove: bool,
}

impl Drop for WorkFolder {
    fn drop(&mut self) {
        if self.remove {
            // If it cannot be removed now, it stays: there is nobody to report it to.
            let _ = fs::remove_dir_all(&self.path);
        }
    }
}

/// The contents of a kept folder.
#[derive(PartialEq, Serialize, Deserialize)]
struct Manifest {
    cubes: Cubes,
    data: Data,
}

/// Which files are needed.
#[derive(Clone, Copy)]
struct Needed {
    original: bool,
    blosc: bool,
    half: bool,
}

impl Needed {
    fn of(strategies: &[Strategy]) -> Self {
        let any = |wanted: &[Strategy]| strategies.iter().any(|strategy| wanted.contains(strategy));
        Self {
            original: any(&[Strategy::Original]),
            blosc: any(&[Strategy::Blosc]),
            half: any(&[
                Strategy::Half,
                Strategy::DeviceAugment,
                Strategy::Ring,
                Strategy::DeviceDecode,
            ]),
        }
    }

    /// Bytes per value in all these files together, before compression. The float32 files are
    /// always needed, because the others are made from them.
    fn value_bytes(self) -> u64 {
        VALUE + if self.blosc { VALUE } else { 0 } + if self.half { 2 } else { 0 }
    }
}

/// Makes the files of the strategies, or finds those that an earlier run kept. `tell` receives
/// progress messages.
///
/// # Errors
/// If the cubes cannot be read or packed, there is not enough room on the disk, or the user stops
/// the run.
pub fn prepare(
    options: &BenchOptions,
    progress: &Progress,
    tell: &(dyn Fn(&str) + Sync),
) -> Result<(Data, WorkFolder)> {
    let needed = Needed::of(&options.strategies());
    let folder = options.work_dir.join(FOLDER);
    if let Some(data) = kept(options, &folder, needed) {
        return Ok((data, WorkFolder { path: folder, remove: false }));
    }
    if folder.exists() {
        return Err(Error::conflict(
            "this folder belongs to another run: it does not hold these cubes in the form that these strategies need",
        )
        .at(folder)
        .with_remedy(remedy!["delete it, or choose another ", Opt::WorkDir]));
    }
    let threads = options.settings.workers;
    let make = Make { folder: folder.clone(), needed, threads, progress, tell };
    let work = WorkFolder { path: folder, remove: !options.keep };
    let data = match options.source() {
        Cubes::Generated { count, shape } => make.generated(count, shape),
        Cubes::Path { path, count } if is_packed(Path::new(&path)) => {
            make.of_dataset(Path::new(&path), count)
        }
        Cubes::Path { path, count } => make.of_files(&path, count),
    }?;
    if options.keep {
        let manifest = Manifest { cubes: options.source(), data: data.clone() };
        let text = serde_json::to_string(&manifest).expect("plain data");
        let path = make.folder.join(MANIFEST);
        fs::create_dir_all(&make.folder)
            .and_then(|()| fs::write(&path, text))
            .map_err(|error| Error::io(&path, "cannot write", error))?;
    }
    Ok((data, work))
}

/// The files that an earlier run kept, if it generated the same cubes. Files of the user may have
/// changed since.
fn kept(options: &BenchOptions, folder: &Path, needed: Needed) -> Option<Data> {
    let text = fs::read_to_string(folder.join(MANIFEST)).ok()?;
    let manifest: Manifest = serde_json::from_str(&text).ok()?;
    let present = |wanted: bool, path: &Path| !wanted || path.exists();
    let same = options.path.is_none() && manifest.cubes == options.source();
    let Data { original, blosc, half, .. } = &manifest.data;
    let complete = present(needed.original, original)
        && present(needed.blosc, blosc)
        && present(needed.half, half);
    (same && complete).then_some(manifest.data)
}

struct Make<'a> {
    folder: PathBuf,
    needed: Needed,
    /// Threads that decompress in the strategies.
    threads: usize,
    progress: &'a Progress,
    tell: &'a (dyn Fn(&str) + Sync),
}

impl Make<'_> {
    fn original(&self) -> PathBuf {
        self.folder.join("original")
    }

    /// Makes the folder if there is room for `values` values in all, each with `value_bytes` bytes.
    fn begin(&self, values: u64, value_bytes: u64) -> Result<()> {
        let wanted = values.saturating_mul(value_bytes);
        if let Some(free) = machine::free_space(&self.folder)
            && free < wanted
        {
            return Err(Error::conflict(format!(
                "the files of all strategies take up to {:.1} GB, but only {:.1} GB are free",
                wanted as f64 / 1e9,
                free as f64 / 1e9
            ))
            .at(&self.folder)
            .with_remedy(remedy![
                "use fewer ",
                Opt::Cubes,
                ", or choose another disk with ",
                Opt::WorkDir
            ]));
        }
        let original = self.original();
        fs::create_dir_all(&original).map_err(|error| Error::io(&original, "cannot create", error))
    }

    fn check_stop(&self) -> Result<()> {
        if self.progress.stop.load(std::sync::atomic::Ordering::Relaxed) {
            return Err(stopped());
        }
        Ok(())
    }

    fn generated(&self, count: usize, shape: CubeSize) -> Result<Data> {
        self.begin((count * shape.values()) as u64, self.needed.value_bytes())?;
        (self.tell)(&format!("drawing {count} cubes of {shape}"));
        let numbers: Vec<usize> = (0..count).collect();
        let count_threads = hsipack_store::threads::cores();
        let write = |number: usize| {
            self.check_stop()?;
            let values = synthetic::cube(number as u64, shape);
            npy::write(&npy::path(&self.original(), number), shape, bytemuck::cast_slice(&values))
        };
        std::thread::scope(|scope| {
            let run = |numbers: Vec<usize>| numbers.into_iter().try_for_each(write);
            let parts = (0..count_threads)
                .map(|first| numbers.iter().copied().skip(first).step_by(count_threads).collect())
                .map(|part| threads::start_scoped(scope, "draw", move || run(part)))
                .collect::<Result<Vec<_>>>()?;
            parts.into_iter().try_for_each(|part| part.join().unwrap_or_else(|_| Err(panicked())))
        })?;
        self.packed("generated".to_owned(), count, shape, None, None)
    }

    fn of_dataset(&self, path: &Path, count: Option<usize>) -> Result<Data> {
        let dataset = Dataset::open(path)?;
        let (shape, ids) = largest_stack(&dataset, count)?;
        // The dataset serves as it is only if it holds exactly these samples.
        let whole = ids.len() == dataset.len();
        let dtype = dataset.stacks()[dataset.stack_of(ids[0])?].image.meta().dtype;
        let serves = |wanted: DType| (whole && dtype == wanted).then(|| path.to_owned());
        let (blosc, half) = (serves(DType::F32), serves(DType::F16));
        let source = path.display().to_string();
        let Needed { original, blosc: packed, .. } = self.needed;
        if !original && !packed && half.is_some() {
            let half = half.unwrap_or_default();
            let bytes = [0, 0, machine::stored_bytes(&half)];
            let codecs = [None, None, codec_of(&half)?];
            let (original, blosc) = (self.original(), PathBuf::new());
            return Ok(Data {
                source,
                cubes: ids.len(),
                shape,
                original,
                blosc,
                half,
                bytes,
                codecs,
            });
        }
        self.begin((ids.len() * shape.values()) as u64, self.needed.value_bytes())?;
        self.unpack(&dataset, shape, &ids)?;
        self.packed(source, ids.len(), shape, blosc, half)
    }

    fn of_files(&self, path: &str, count: Option<usize>) -> Result<Data> {
        // Needed only to read files of any format. It is removed before the others are packed.
        let read = self.folder.join("read");
        let mut options = ConvertOptions::new(vec![path.to_owned()], &read);
        options.values.dtype = PackedType::F32;
        (options.layout.codec, options.layout.level) = (Compressor::Lz4, 1);
        let _inputs = mirror::session();
        let planned = plan::plan(&options, None, &self.progress.stop);
        let planned = planned.map_err(mirror::error_with_urls)?;
        let largest = planned.stacks.iter().max_by_key(|stack| stack.samples.len());
        let Some(stack) = largest.filter(|stack| !stack.samples.is_empty()) else {
            return Err(Error::conflict("there are no cubes")
                .at(path)
                .with_remedy("check the path"));
        };
        let chosen = &stack.samples[..stack.samples.len().min(count.unwrap_or(usize::MAX))];
        let shape = CubeSize::from(stack.grid.shape());
        options.inputs =
            chosen.iter().map(|sample| planned.samples[*sample].input.text()).collect();
        let value_bytes = self.needed.value_bytes().max(2 * VALUE);
        self.begin((chosen.len() * shape.values()) as u64, value_bytes)?;
        (self.tell)(&format!("reading {} cubes", chosen.len()));
        convert::convert(&options, self.progress, &|_| {})?;
        let dataset = Dataset::open(&read)?;
        let ids: Vec<usize> = (0..dataset.len()).collect();
        self.unpack(&dataset, shape, &ids)?;
        drop(dataset);
        fs::remove_dir_all(&read).map_err(|error| Error::io(&read, "cannot remove", error))?;
        self.packed(path.to_owned(), ids.len(), shape, None, None)
    }

    /// Writes samples as float32 files.
    fn unpack(&self, dataset: &Dataset, shape: CubeSize, ids: &[usize]) -> Result<()> {
        (self.tell)(&format!("writing {} cubes as float32 files", ids.len()));
        let dataset = dataset.clone().with_integers(Integers::Physical(FloatType::F32));
        for (number, id) in ids.iter().enumerate() {
            self.check_stop()?;
            let cube = dataset.sample(*id)?;
            let wide = (cube.dtype == DType::F16).then(|| widened(cube.bytes()));
            let bytes = wide.as_deref().unwrap_or(cube.bytes());
            npy::write(&npy::path(&self.original(), number), shape, bytes)?;
        }
        Ok(())
    }

    /// Packs the float32 files for the strategies that need them.
    fn packed(
        &self,
        source: String,
        cubes: usize,
        shape: CubeSize,
        blosc: Option<PathBuf>,
        half: Option<PathBuf>,
    ) -> Result<Data> {
        let original = self.original();
        let pack = |name: &str, dtype: PackedType, wanted: bool, existing: Option<PathBuf>| {
            let output = self.folder.join(name);
            match existing {
                Some(path) => return Ok(path),
                None if !wanted => return Ok(output),
                None => {}
            }
            let inputs = vec![original.display().to_string()];
            let mut options = ConvertOptions::new(inputs, &output);
            options.values.dtype = dtype;
            if dtype == PackedType::F32 {
                (self.tell)("finding the codec that decompresses these cubes fastest");
                let stop = &self.progress.stop;
                options.layout = codec::fastest(&original, cubes, shape, self.threads, stop)?;
            }
            options.values.axes = Some("yxb".to_owned());
            // A power of two, so that cubes of any range fit float16.
            options.values.scale = if dtype == PackedType::F16 { Scale::Auto } else { Scale::None };
            (self.tell)(&format!("packing {cubes} cubes as {}", dtype.name()));
            convert::convert(&options, self.progress, &|_| {}).map(|_| output)
        };
        let blosc = pack("blosc", PackedType::F32, self.needed.blosc, blosc)?;
        let half = pack("half", PackedType::F16, self.needed.half, half)?;
        let bytes = [&original, &blosc, &half].map(|path| machine::stored_bytes(path));
        let of = |wanted: bool, path| if wanted { codec_of(path) } else { Ok(None) };
        let codecs = [None, of(self.needed.blosc, &blosc)?, of(self.needed.half, &half)?];
        Ok(Data { source, cubes, shape, original, blosc, half, bytes, codecs })
    }
}

/// How the cubes of a packed dataset are compressed.
fn codec_of(path: &Path) -> Result<Option<String>> {
    let dataset = Dataset::open(path)?;
    let codec = dataset.stacks().first().and_then(|stack| stack.image.meta().codecs.compression);
    Ok(codec.as_ref().map(codec::name))
}

/// The stack with the most cubes: the shape, and the ids of the first `count` cubes.
fn largest_stack(dataset: &Dataset, count: Option<usize>) -> Result<(CubeSize, Vec<usize>)> {
    let stacks = dataset.stacks().iter().enumerate();
    let largest = stacks.max_by_key(|(_, stack)| stack.image.len());
    let Some((index, stack)) = largest.filter(|(_, stack)| !stack.image.is_empty()) else {
        return Err(Error::conflict("the dataset has no samples")
            .at(dataset.path())
            .with_remedy(remedy!["pack some with ", Command::Convert]));
    };
    let ids = dataset.samples().ids_in(index).take(count.unwrap_or(usize::MAX)).collect();
    Ok((CubeSize::from(ChunkArray::shape(&stack.image)), ids))
}

/// Converts float16 to float32, little-endian.
fn widened(bytes: &[u8]) -> Vec<u8> {
    let value = |pair: &[u8]| half::f16::from_le_bytes([pair[0], pair[1]]).to_f32().to_le_bytes();
    bytes.chunks_exact(2).flat_map(value).collect()
}

/// The error if the user stopped the run.
pub fn stopped() -> Error {
    Error::new(ErrorKind::Interrupted, "stopped")
        .with_remedy("the same command starts again from the beginning")
}

fn panicked() -> Error {
    Error::bug("a thread panicked")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn half_values_are_widened_exactly() {
        let bytes: Vec<u8> = [0.5f32, -2.0, 65504.0]
            .into_iter()
            .flat_map(|value| half::f16::from_f32(value).to_le_bytes())
            .collect();
        let wide: Vec<f32> = bytemuck::pod_collect_to_vec(&widened(&bytes));
        assert_eq!(wide, [0.5, -2.0, 65504.0]);
    }
}
