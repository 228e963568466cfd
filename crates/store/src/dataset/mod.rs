//! A packed dataset, opened: its stacks, their arrays and its samples.
//!
//! [`Dataset::open`] reads metadata only, checks them against `SHA256SUMS` and against each other;
//! [`ChunkArray`] reads chunks.

use std::collections::HashSet;
use std::io::Read as _;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use hsipack_format::checksums::{self, SHA256SUMS};
use hsipack_format::geo::cf;
use hsipack_format::metadata::{FWHM, IMAGE, LAYOUT, Root, SAMPLES, Scaling, WAVELENGTH};
use hsipack_format::samples::{Samples, lines};
use hsipack_format::zarr::{self, ArrayMeta};
use hsipack_format::{Command, CubeShape, DType, Error, Grid, Result, codec, remedy};

use crate::codec::decode_frame;
use crate::folder::{self, Folder};
use crate::metadata::MetadataFiles;
use crate::rows::{self, Chunks, Part};
use crate::samples::{self, Source, wrong_sum};
use crate::shard::ShardFile;
use crate::{memory, remote, small};

/// A packed dataset.
#[derive(Debug)]
pub struct Dataset {
    folder: Arc<Folder>,
    root: Root,
    samples: Samples,
    stacks: Vec<Stack>,
    may_lack_files: bool,
}

/// Whether the folder `path` is, or claims to be, a packed dataset.
pub fn is_packed(path: &Path) -> bool {
    let root = || small::read(&path.join("zarr.json"), small::METADATA);
    folder::steadily(path, root).is_ok_and(|text| matches!(zarr::parse_root(&text), Ok(Some(_))))
}

/// The cubes of one shape.
#[derive(Debug)]
pub struct Stack {
    /// `ROWSxCOLUMNSxBANDS`.
    pub name: String,
    /// The cubes.
    pub image: ChunkArray,
    /// Masks by name, one band each.
    pub masks: Vec<ChunkArray>,
    /// Band centres in nm.
    pub wavelength: Option<Vec<f64>>,
    /// Full widths at half maximum in nm.
    pub fwhm: Option<Vec<f64>>,
    /// Names of its arrays that say where the pixels of all samples lie ([`cf::NAMES`]), where these share a grid.
    pub geo_arrays: Vec<&'static str>,
    /// What is wrong with coordinate arrays; always empty after [`Dataset::open`].
    pub problems: Vec<Error>,
}

impl Dataset {
    /// Opens the dataset at `path`. Where it is exchanged for a newer one meanwhile (an append does that), it is one of
    /// the two, whole. It goes on with its own samples when others are appended later.
    ///
    /// # Errors
    /// If it is not a packed dataset, is of a newer layout, or its metadata do not match
    /// `SHA256SUMS` or each other; the file is named.
    pub fn open(path: impl AsRef<Path>) -> Result<Self> {
        Self::open_looking(path.as_ref(), true)
    }

    /// Opens it; if it is not to be `settled`, as [`Folder::open_unsettled`] does.
    fn open_looking(path: &Path, settled: bool) -> Result<Self> {
        let sums = || {
            let files = MetadataFiles::of(path)?;
            let root = read_root(&files, path)?;
            let text = files.read(&path.join(SHA256SUMS), small::SUMS)?;
            let sums = checksums::parse(&text).map_err(|error| error.at(path.join(SHA256SUMS)))?;
            check_sums(&files, path, &sums)?;
            Ok((checksums::sha256(&text), files.version(), (files, root, sums)))
        };
        let read =
            |folder: &Arc<Folder>,
             (files, root, sums): (MetadataFiles, Root, Vec<(String, String)>)| {
                let sum =
                    sums.iter().find(|(name, _)| name == SAMPLES).map(|(_, sum)| sum.as_str());
                let mut dataset = Self::open_in(folder, &files, root, sum)?;
                if let Some(error) = dataset.take_problem() {
                    return Err(error);
                }
                dataset.check_listed(&sums)?;
                Ok(dataset)
            };
        match settled {
            true => Folder::open(path, sums, read),
            false => Folder::open_unsettled(path, sums, read),
        }
    }

    /// Opens the dataset at `path` for reading: as [`open`](Self::open), but a store of this layout that another library
    /// wrote needs no `SHA256SUMS`. If `as_of` is given, with the samples that it had when that was its fingerprint.
    ///
    /// # Errors
    /// As [`open`](Self::open), and if the dataset never had that fingerprint.
    pub fn open_to_read(path: impl AsRef<Path>, as_of: Option<&str>) -> Result<Self> {
        Self::open_to_read_looking(path.as_ref(), as_of, true)
    }

    /// As [`open_to_read`](Self::open_to_read), but of a dataset on a server nobody has looked yet whether all was read of one
    /// and the same: that costs the way there and back. [`Folder::read`] or [`Folder::check`] does so, which has to follow.
    ///
    /// # Errors
    /// As [`open_to_read`](Self::open_to_read).
    pub fn open_unsettled(path: impl AsRef<Path>, as_of: Option<&str>) -> Result<Self> {
        Self::open_to_read_looking(path.as_ref(), as_of, false)
    }

    fn open_to_read_looking(path: &Path, as_of: Option<&str>, settled: bool) -> Result<Self> {
        let open = || {
            let dataset = if remote::is_url(path) {
                match Self::open_looking(path, settled) {
                    // Not asked for beforehand: it costs the way there and back.
                    Err(error) if small::is_missing(&error) => Self::open_foreign(path)?,
                    opened => opened?,
                }
            } else if path.join(SHA256SUMS).exists() {
                Self::open(path)?
            } else {
                Self::open_foreign(path)?
            };
            let Some(fingerprint) = as_of else { return Ok(dataset) };
            dataset.as_it_was(fingerprint)?.ok_or_else(|| {
                Error::conflict("the dataset was replaced by another one")
                    .at(path)
                    .with_remedy("open it again")
            })
        };
        // Objects of a server are compared where each of them is opened.
        if remote::is_url(path) { open() } else { folder::steadily(path, open) }
    }

    /// Opens a store without `SHA256SUMS`, which no other library writes.
    fn open_foreign(path: &Path) -> Result<Self> {
        let mut dataset = Self::open_unverified(path)?;
        if dataset.root.is_ours() {
            return Err(Error::damaged("SHA256SUMS is missing")
                .at(path)
                .with_remedy("copy the dataset again, with every file"));
        }
        dataset.may_lack_files = true;
        match dataset.take_problem() {
            Some(problem) => Err(problem),
            None => Ok(dataset),
        }
    }

    /// Opens the dataset at `path` without comparing its metadata with `SHA256SUMS`, which need not
    /// exist: for stores that another library wrote, and for looking into damaged ones. Coordinate
    /// arrays that cannot be read are left out and told in [`Stack::problems`].
    ///
    /// # Errors
    /// If it is not a packed dataset, is of a newer layout, or its metadata contradict each other.
    pub fn open_unverified(path: impl AsRef<Path>) -> Result<Self> {
        let path = path.as_ref();
        let root = || {
            let files = MetadataFiles::of(path)?;
            let root = read_root(&files, path)?;
            // Damaged ones are looked into, too: then the sums need not be readable.
            let sums = files.read(&path.join(SHA256SUMS), small::SUMS).ok();
            let sums = sums.map_or_else(|| sums_of(&files, path).map(String::into_bytes), Ok)?;
            Ok((checksums::sha256(&sums), None, (files, root)))
        };
        Folder::open(path, root, |folder, (files, root)| Self::open_in(folder, &files, root, None))
    }

    /// Opens it; `sum` is that of `samples.jsonl`, if what is read is to be compared with it.
    fn open_in(
        folder: &Arc<Folder>,
        files: &MetadataFiles,
        root: Root,
        sum: Option<&str>,
    ) -> Result<Self> {
        let path = folder.path();
        let stacks = stack_names(files, path)?
            .into_iter()
            .map(|name| Stack::open(folder, files, name))
            .collect::<Result<Vec<_>>>()?;
        let samples = read_samples(files, path, sum, &stacks)?;
        let folder = folder.clone();
        Ok(Self { folder, root, samples, stacks, may_lack_files: false })
    }

    /// Refuses metadata files without a line in `SHA256SUMS`: nothing says that they are what was written.
    fn check_listed(&self, sums: &[(String, String)]) -> Result<()> {
        let listed: HashSet<&str> = sums.iter().map(|(file, _)| file.as_str()).collect();
        let of_stacks = self.stacks.iter().flat_map(|stack| {
            let arrays = [&stack.image].into_iter().chain(&stack.masks).map(ChunkArray::name);
            let coordinates = [(WAVELENGTH, &stack.wavelength), (FWHM, &stack.fwhm)];
            let coordinates =
                coordinates.into_iter().filter_map(|(name, values)| values.as_ref().map(|_| name));
            let arrays = arrays.chain(coordinates).chain(stack.geo_arrays.iter().copied());
            let files = arrays.map(|name| format!("{}/{name}/zarr.json", stack.name));
            files.chain([format!("{}/zarr.json", stack.name)])
        });
        let mut files = ["zarr.json".to_owned(), SAMPLES.to_owned()].into_iter().chain(of_stacks);
        match files.find(|file| !listed.contains(file.as_str())) {
            None => Ok(()),
            Some(file) => Err(Error::damaged("the file is not listed in SHA256SUMS")
                .at(self.path().join(file))
                .with_remedy(remedy![
                    "run ",
                    Command::Validate,
                    "; restore SHA256SUMS from a copy"
                ])),
        }
    }

    /// The dataset as it was when its fingerprint was `fingerprint`: without the samples and masks that were added since.
    /// Statistics are those of all samples. `None` if it never had that fingerprint.
    ///
    /// # Errors
    /// If what is recorded of it contradicts itself.
    pub fn as_it_was(mut self, fingerprint: &str) -> Result<Option<Self>> {
        if self.fingerprint() == fingerprint {
            return Ok(Some(self));
        }
        let Some(len) = self.root.samples_at(fingerprint) else { return Ok(None) };
        let of_samples = |error: Error| error.at(self.folder.path().join(SAMPLES));
        let len = usize::try_from(len).unwrap_or(usize::MAX);
        let added = self.root.masks_since(fingerprint);
        for stack in &mut self.stacks {
            stack.masks.retain(|mask| !added.contains(&mask.name()));
        }
        self.samples = self.samples.first(len, &names_of(&self.stacks)).map_err(of_samples)?;
        for (place, stack) in self.stacks.iter_mut().enumerate() {
            let len = self.samples.ids_in(place).len();
            [&mut stack.image].into_iter().chain(&mut stack.masks).for_each(|array| array.cut(len));
        }
        if self.stacks.iter().any(|stack| stack.image.is_empty()) {
            // Stacks are numbered anew.
            self.stacks.retain(|stack| !stack.image.is_empty());
            let names = names_of(&self.stacks);
            self.samples = self.samples.first(len, &names).map_err(of_samples)?;
        }
        self.folder = Arc::new(self.folder.of_the_past(fingerprint));
        Ok(Some(self))
    }

    /// Takes out one of the [`Stack::problems`], with what to do about it.
    pub fn take_problem(&mut self) -> Option<Error> {
        let problem = self.stacks.iter_mut().find_map(|stack| stack.problems.pop());
        problem.map(|error| {
            error.with_remedy(remedy!["run ", Command::Validate, ", then ", Command::Repair])
        })
    }

    /// Where it lies.
    pub fn path(&self) -> &Path {
        self.folder.path()
    }

    /// Its folder, where files are opened so that an append does no harm.
    pub fn folder(&self) -> &Folder {
        &self.folder
    }

    /// Whether a missing file means fill values. In Zarr it does; but packing writes every file.
    pub fn may_lack_files(&self) -> bool {
        self.may_lack_files
    }

    /// What the root group records: layout, how and when it was packed, what was appended.
    pub fn root(&self) -> &Root {
        &self.root
    }

    /// All samples, in order.
    pub fn samples(&self) -> &Samples {
        &self.samples
    }

    /// All stacks, in order of their names.
    pub fn stacks(&self) -> &[Stack] {
        &self.stacks
    }

    /// The stack of that name.
    pub fn stack(&self, name: &str) -> Option<&Stack> {
        self.stacks.iter().find(|stack| stack.name == name)
    }

    /// Hash of `SHA256SUMS`, or of what it would say where there is none: two datasets with equal fingerprints have equal
    /// metadata.
    pub fn fingerprint(&self) -> &str {
        self.folder.fingerprint()
    }
}

/// Names the metadata file that an error is of, and says what to do if the error does not.
fn of_file(error: Error, file: &Path) -> Error {
    let error = error.at(file);
    if error.remedy().is_some() {
        return error;
    }
    error.with_remedy("restore the file from a copy, or convert again")
}

/// Compares the files that `SHA256SUMS` lists with their sums, but for `samples.jsonl`: see [`Source`].
fn check_sums(files: &MetadataFiles, path: &Path, sums: &[(String, String)]) -> Result<()> {
    for (name, sum) in sums.iter().filter(|(name, _)| name != SAMPLES) {
        let file = path.join(name);
        let text = files.read(&file, small::METADATA)?;
        if checksums::sha256(&text) != *sum {
            return Err(wrong_sum(file));
        }
    }
    Ok(())
}

/// The samples of a dataset with these stacks; `sum` is that of `samples.jsonl`, if it is known.
fn read_samples(
    files: &MetadataFiles,
    path: &Path,
    sum: Option<&str>,
    stacks: &[Stack],
) -> Result<Samples> {
    let file = path.join(SAMPLES);
    let names = names_of(stacks);
    let text = match sum.map(|sum| Source::of(files, path, sum)).transpose()? {
        Some(Source::Index(index, lines)) => {
            let samples = Samples::new(index, lines, &names);
            let samples =
                samples.and_then(|samples| check_samples(&samples, stacks).map(|()| samples));
            // What does not fit the stacks is told of the text, if it is true.
            match (samples, sum) {
                (Ok(samples), _) => return Ok(samples),
                (Err(_), Some(sum)) => samples::text(files, path, sum)?,
                (Err(error), None) => return Err(error),
            }
        }
        Some(Source::Text(text)) => text,
        None => files.read(&file, small::SAMPLES)?,
    };
    let read = check_count(&text, stacks).and_then(|()| {
        let samples = Samples::decode(text, &names)?;
        check_samples(&samples, stacks).map(|()| samples)
    });
    read.map_err(|error| of_file(error, &file))
}

/// Reads a whole file into `bytes`; `false` if there is none.
fn read_into(path: &Path, bytes: &mut Vec<u8>) -> Result<bool> {
    bytes.clear();
    if remote::is_url(path) {
        let read = small::read_if_there(path, STORED_CHUNK)?;
        return Ok(read.map(|read| *bytes = read).is_some());
    }
    let (file, len) = match small::open(path) {
        Err(error) if small::is_missing(&error) => return Ok(false),
        opened => opened?,
    };
    if len > STORED_CHUNK {
        return Err(Error::damaged(format!("the chunk has {len} bytes")).at(path));
    }
    let read = file.take(STORED_CHUNK).read_to_end(bytes);
    read.map(|_| true).map_err(|error| Error::io(path, "cannot read", error))
}

/// Most bytes of a chunk as stored: blosc and the checksum add some to what they cannot compress.
const STORED_CHUNK: u64 = codec::MAX_CHUNK as u64 + (1 << 20);

fn read_root(files: &MetadataFiles, path: &Path) -> Result<Root> {
    let file = path.join("zarr.json");
    if !files.has(&file)? {
        return Err(Error::malformed("not a packed dataset: there is no zarr.json in it")
            .at(path)
            .with_remedy(remedy!["give the folder that ", Command::Convert, " wrote"]));
    }
    let own =
        zarr::parse_root(&files.read(&file, small::METADATA)?).map_err(|error| error.at(&file))?;
    let Some(root) = own else {
        return Err(Error::malformed("a Zarr store, but not one that hsipack packed")
            .at(path)
            .with_remedy(remedy!["pack it with ", Command::Convert]));
    };
    match root.layout() {
        Some(1..=LAYOUT) => Ok(root),
        Some(layout) => Err(Error::unsupported(format!("the dataset has layout {layout}"))
            .at(file)
            .with_remedy(format!("update hsipack; this one reads layout {LAYOUT}"))),
        None => Err(Error::malformed("attributes.hsipack.layout is missing").at(file)),
    }
}

/// What `SHA256SUMS` says of a dataset's metadata: the root, the samples, every stack and every array of one.
fn sums_of(files: &MetadataFiles, path: &Path) -> Result<String> {
    let mut names = vec!["zarr.json".to_owned(), SAMPLES.to_owned()];
    for name in stack_names(files, path)? {
        names.push(format!("{name}/zarr.json"));
        let arrays = array_names(files, &path.join(&name))?;
        names.extend(arrays.into_iter().map(|array| format!("{name}/{array}/zarr.json")));
    }
    let contents = names.into_iter().map(|file| {
        let most = if file == SAMPLES { small::SAMPLES } else { small::METADATA };
        let content = files.read(&path.join(&file), most)?;
        Ok((file, content))
    });
    let contents = contents.collect::<Result<Vec<_>>>()?;
    Ok(checksums::encode(
        contents.iter().map(|(file, content)| (file.as_str(), content.as_slice())),
    ))
}

/// Folders below `path` that hold an image array, sorted.
fn stack_names(files: &MetadataFiles, path: &Path) -> Result<Vec<String>> {
    files.folders(path, &Path::new(IMAGE).join("zarr.json"))
}

/// Folders of a stack that hold an array, sorted.
fn array_names(files: &MetadataFiles, folder: &Path) -> Result<Vec<String>> {
    files.folders(folder, Path::new("zarr.json"))
}

/// Compares the number of lines with that of the cubes before a line is read, and what they will take with the memory.
fn check_count(text: &[u8], stacks: &[Stack]) -> Result<()> {
    let lines = lines(text).count();
    let cubes = stacks.iter().fold(0usize, |all, stack| all.saturating_add(stack.image.len()));
    if lines > cubes {
        return Err(Error::damaged(format!(
            "{lines} samples are listed, but the stacks hold {cubes} cubes"
        )));
    }
    // Measured: beside the lines, which are in memory, their columns take a quarter as much, and up to twice that meanwhile.
    memory::check(text.len() as u64, &format!("the list of {lines} samples"))
}

fn names_of(stacks: &[Stack]) -> Vec<&str> {
    stacks.iter().map(|stack| stack.name.as_str()).collect()
}

fn check_samples(samples: &Samples, stacks: &[Stack]) -> Result<()> {
    for (place, stack) in stacks.iter().enumerate() {
        let (cubes, listed) = (stack.image.len(), samples.ids_in(place).len());
        if cubes != listed {
            return Err(Error::damaged(format!(
                "stack {} holds {cubes} cubes, but {listed} samples are listed",
                stack.name
            )));
        }
    }
    Ok(())
}

impl Stack {
    fn open(root: &Arc<Folder>, files: &MetadataFiles, name: String) -> Result<Self> {
        let folder = root.path().join(&name);
        zarr::parse_group(&files.read(&folder.join("zarr.json"), small::METADATA)?)
            .map_err(|error| error.at(folder.join("zarr.json")))?;
        let image = ChunkArray::open(root, files, &folder, IMAGE, 4)?;
        let (mut masks, mut geo_arrays) = (Vec::new(), Vec::new());
        for array in array_names(files, &folder)? {
            if let Some(name) = geo_array(files, &folder, &array)? {
                geo_arrays.push(name);
            } else if ![IMAGE, WAVELENGTH, FWHM].contains(&array.as_str()) {
                let mask = ChunkArray::open(root, files, &folder, &array, 3)?;
                let (m, i) = (mask.shape(), image.shape());
                if (mask.len(), m.rows, m.columns) != (image.len(), i.rows, i.columns) {
                    return Err(Error::damaged("a mask of another shape than the image")
                        .at(folder.join(array)));
                }
                masks.push(mask);
            }
        }
        let bands = image.shape().bands;
        let mut problems = Vec::new();
        let mut coordinate = |array: &str| {
            read_coordinate(files, &folder.join(array), bands).unwrap_or_else(|error| {
                problems.push(error);
                None
            })
        };
        let (wavelength, fwhm) = (coordinate(WAVELENGTH), coordinate(FWHM));
        Ok(Self { name, image, masks, wavelength, fwhm, geo_arrays, problems })
    }

    /// The mask of that name.
    pub fn mask(&self, name: &str) -> Option<&ChunkArray> {
        self.masks.iter().find(|mask| mask.name() == name)
    }
}

/// The name of an array that says where pixels lie. Older versions had masks of these names, which have three axes.
fn geo_array(files: &MetadataFiles, stack: &Path, array: &str) -> Result<Option<&'static str>> {
    let Some(name) = cf::NAMES.into_iter().find(|name| *name == array) else { return Ok(None) };
    let meta = files.read(&stack.join(array).join("zarr.json"), small::METADATA)?;
    // Other libraries write them in types and codecs that are not read here, as masks never are.
    let is_mask = ArrayMeta::parse(&meta).is_ok_and(|meta| meta.shape.len() == 3);
    Ok((!is_mask).then_some(name))
}

/// Reads a 1-D float64 array of `len` values in one chunk; `None` if there is no such array.
fn read_coordinate(files: &MetadataFiles, folder: &Path, len: usize) -> Result<Option<Vec<f64>>> {
    let file = folder.join("zarr.json");
    if !files.has(&file)? {
        return Ok(None);
    }
    let meta =
        ArrayMeta::parse(&files.read(&file, small::METADATA)?).map_err(|error| error.at(&file))?;
    if meta.shape != [len as u64]
        || meta.file_shape != meta.shape
        || meta.chunk_shape.is_some()
        || meta.dtype != DType::F64
    {
        return Err(Error::damaged(format!("not one chunk of {len} float64 values")).at(file));
    }
    if len > codec::MAX_CHUNK / 8 {
        return Err(Error::unsupported(format!("a list of {len} values")).at(file));
    }
    let chunk = folder.join("c/0");
    let stored = files.read(&chunk, small::METADATA)?;
    let mut bytes = memory::zeroed(len * 8, "a list of wavelengths")?;
    decode_chunk(&meta, &stored, true, &mut bytes).map_err(|error| error.at(chunk))?;
    let (values, _) = bytes.as_chunks::<8>();
    Ok(Some(values.iter().map(|value| f64::from_le_bytes(*value)).collect()))
}

/// Decodes one stored chunk of an array into `out`, which it fills.
fn decode_chunk(meta: &ArrayMeta, stored: &[u8], verify: bool, out: &mut [u8]) -> Result<()> {
    let frame = match meta.codecs.checksum {
        true if verify => codec::verify(stored)?,
        true => codec::without_checksum(stored)?,
        false => stored,
    };
    if meta.codecs.blosc.is_some() {
        decode_frame(frame, out)
    } else if frame.len() == out.len() {
        out.copy_from_slice(frame);
        Ok(())
    } else {
        Err(Error::damaged(format!("a chunk holds {} bytes instead of {}", frame.len(), out.len())))
    }
}

/// An image or mask array of a stack.
#[derive(Debug)]
pub struct ChunkArray {
    root: Arc<Folder>,
    name: String,
    folder: PathBuf,
    meta: ArrayMeta,
    grid: Grid,
    len: usize,
    open: Mutex<Vec<(usize, Arc<ShardFile>)>>,
}

/// Shards kept open: reading in sample order needs one, a few threads a few.
const OPEN_SHARDS: usize = 8;

impl ChunkArray {
    /// Opens array `name` of a stack, with `axes` 4 (sample, y, x, band) or 3 (sample, y, x).
    fn open(
        root: &Arc<Folder>,
        files: &MetadataFiles,
        stack: &Path,
        name: &str,
        axes: usize,
    ) -> Result<Self> {
        let folder = stack.join(name);
        let file = folder.join("zarr.json");
        let meta = ArrayMeta::parse(&files.read(&file, small::METADATA)?)
            .map_err(|error| error.at(&file))?;
        let (len, grid) = meta.samples_and_grid(axes).map_err(|error| error.at(&file))?;
        if axes == 3 && meta.dtype.is_float() {
            return Err(Error::unsupported(format!("a mask of {}", meta.dtype)).at(file));
        }
        if axes == 4 {
            meta.check_attributes().map_err(|error| of_file(error, &file))?;
        }
        let (root, name) = (root.clone(), name.to_owned());
        Ok(Self { root, name, folder, meta, grid, len, open: Mutex::default() })
    }

    /// Leaves the first `len` samples.
    fn cut(&mut self, len: usize) {
        self.len = len;
        self.meta.shape[0] = len as u64;
    }

    /// The array's name in its stack.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The array's folder.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Its metadata.
    pub fn meta(&self) -> &ArrayMeta {
        &self.meta
    }

    /// Its chunk grid.
    pub fn grid(&self) -> &Grid {
        &self.grid
    }

    /// Shape of one sample; a mask has one band.
    pub fn shape(&self) -> CubeShape {
        self.grid.shape()
    }

    /// Number of samples.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are no samples.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Decodes a stored chunk, as [`ShardFile::with_stored`] gives it, into `out`,
    /// [`chunk_bytes`](Self::chunk_bytes) long. Unless its checksum is compared (`verify`), only damage that the
    /// decompressor finds is an error.
    ///
    /// # Errors
    /// If the chunk is damaged.
    pub fn decode(&self, stored: &[u8], verify: bool, out: &mut [u8]) -> Result<()> {
        decode_chunk(&self.meta, stored, verify, out)
    }

    /// Number of shard files.
    pub fn shards(&self) -> usize {
        self.len.div_ceil(self.grid.samples_per_shard())
    }

    /// Bytes of one stored sample uncompressed.
    pub fn sample_bytes(&self) -> usize {
        self.shape().values() * self.meta.dtype.size()
    }

    /// Bytes of one chunk uncompressed, overhang included.
    pub fn chunk_bytes(&self) -> usize {
        self.grid.chunk_values() * self.meta.dtype.size()
    }

    /// The factor from stored values to physical ones (`scale_factor`; 1 where there is none).
    pub fn scale_factor(&self) -> f64 {
        self.scaling().factor
    }

    /// What is added to stored values × [`scale_factor`](Self::scale_factor) to give physical ones (`add_offset`, which
    /// other libraries write; 0 where there is none).
    pub fn add_offset(&self) -> f64 {
        self.scaling().offset
    }

    /// How stored values become physical ones: [`scale_factor`](Self::scale_factor) and
    /// [`add_offset`](Self::add_offset).
    pub fn scaling(&self) -> Scaling {
        self.meta.scaling()
    }

    /// The file of shard `shard`.
    pub fn shard_path(&self, shard: usize) -> PathBuf {
        let mut position = vec![0; self.meta.shape.len()];
        position[0] = shard as u64;
        self.folder.join(ArrayMeta::file_key(&position))
    }

    /// Shard `shard`, opened; kept open for the next call.
    ///
    /// # Errors
    /// If it cannot be read or its index is damaged.
    pub fn shard(&self, shard: usize) -> Result<Arc<ShardFile>> {
        let mut open = self.open.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        if let Some(place) = open.iter().position(|(number, _)| *number == shard) {
            return Ok(open[place].1.clone());
        }
        let file = Arc::new(self.open_shard(shard)?);
        if open.len() == OPEN_SHARDS {
            open.remove(0);
        }
        open.push((shard, file.clone()));
        Ok(file)
    }

    /// Shard `shard`, opened anew.
    ///
    /// # Errors
    /// As [`shard`](Self::shard).
    pub fn open_shard(&self, shard: usize) -> Result<ShardFile> {
        let path = self.shard_path(shard);
        self.root.read(|| ShardFile::open(&path, self.grid.chunks_per_shard()))
    }

    /// Says that the chunks of sample `index` will be wanted soon, where they lie on a server.
    ///
    /// # Errors
    /// As [`shard`](Self::shard).
    pub fn ask_ahead(&self, index: usize) -> Result<()> {
        if self.meta.chunk_shape.is_none() || !remote::is_url(&self.folder) {
            return Ok(());
        }
        let (shard, first) = self.grid.locate(index);
        let chunks = first..first + self.grid.chunks_per_sample();
        self.shard(shard)?.ask_ahead(chunks);
        Ok(())
    }

    /// Reads and decodes chunk `chunk` of sample `index` into `out`, [`chunk_bytes`](Self::chunk_bytes)
    /// long, values little-endian. `stored` is working memory for arrays without shards.
    ///
    /// # Errors
    /// If the chunk cannot be read or is damaged; the shard, sample and chunk are named.
    pub fn read_chunk(
        &self,
        index: usize,
        chunk: usize,
        stored: &mut Vec<u8>,
        out: &mut [u8],
    ) -> Result<()> {
        let name = |error: Error, path: &Path| {
            if memory::refused(&error) {
                return error.at(path);
            }
            Error::damaged(format!("sample {index}, chunk {chunk}: {}", error.what()))
                .at(path)
                .with_remedy(remedy!["run ", Command::Validate, ", then ", Command::Repair])
        };
        if self.meta.chunk_shape.is_some() {
            let (shard, first) = self.grid.locate(index);
            let shard = self.shard(shard)?;
            let decode = |stored: &[u8]| {
                decode_chunk(&self.meta, stored, true, out)
                    .map_err(|error| name(error, shard.path()))
            };
            return match shard.with_stored(first + chunk, decode)? {
                Some(()) => Ok(()),
                None => self.fill(out).map_err(|error| name(error, shard.path())),
            };
        }
        let path = self.chunk_path(index, chunk);
        let decoded = match read_into(&path, stored)? {
            true => decode_chunk(&self.meta, stored, true, out),
            false => self.fill(out),
        };
        decoded.map_err(|error| name(error, &path))
    }

    /// The file of a chunk of an array without shards.
    pub fn chunk_path(&self, index: usize, chunk: usize) -> PathBuf {
        let (down, across) = (chunk / self.grid.across(), chunk % self.grid.across());
        let mut position = vec![index as u64, down as u64, across as u64];
        position.resize(self.meta.shape.len(), 0);
        self.folder.join(ArrayMeta::file_key(&position))
    }

    /// Fills `out` with the fill value: what a chunk holds that was never written.
    ///
    /// # Errors
    /// If the fill value is not a number.
    pub fn fill(&self, out: &mut [u8]) -> Result<()> {
        let value = self.meta.fill_bytes()?;
        out.chunks_exact_mut(value.len()).for_each(|slot| slot.copy_from_slice(&value));
        Ok(())
    }

    /// Reads sample `index` into `out`, [`sample_bytes`](Self::sample_bytes) long: (row, column,
    /// band), little-endian.
    ///
    /// # Errors
    /// As [`read_chunk`](Self::read_chunk).
    pub fn read_sample(&self, index: usize, out: &mut [u8]) -> Result<()> {
        self.read_rows(index, 0..self.shape().rows, &mut RowScratch::default(), out)
    }

    /// Reads rows `rows` of sample `index` into `out`, which they fill: (row, column, band),
    /// little-endian. Whole slabs of chunks are cheapest.
    ///
    /// # Errors
    /// As [`read_chunk`](Self::read_chunk).
    pub fn read_rows(
        &self,
        index: usize,
        rows: Range<usize>,
        scratch: &mut RowScratch,
        out: &mut [u8],
    ) -> Result<()> {
        let (grid, columns) = (&self.grid, 0..self.shape().columns);
        let RowScratch { stored, decoded } = scratch;
        if self.meta.chunk_shape.is_some() {
            let (shard, first) = self.grid.locate(index);
            let chunks =
                self.grid.chunk_rows(&rows).flat_map(|down| self.grid.chunks_in(down, &columns));
            self.shard(shard)?.ask_ahead(chunks.map(|chunk| first + chunk));
        }
        let mut chunks = StoredChunks { array: self, index, stored };
        let mut rest = out;
        for down in grid.chunk_rows(&rows) {
            let rows = grid.rows_in(down, &rows);
            let (out, after) = rest.split_at_mut(rows.len() * self.row_bytes());
            let part = Part { down, rows, columns: columns.clone(), bands: None };
            rows::take(grid, self.meta.dtype.size(), &part, &mut chunks, decoded, out)?;
            rest = after;
        }
        Ok(())
    }

    /// Hands rows `rows` of sample `index` to `each`, one row of chunks at a time, so that a large scene need not fit in
    /// memory: which rows, and their bytes in (row, column, band) order, little-endian.
    ///
    /// # Errors
    /// As [`read_chunk`](Self::read_chunk), and if `each` fails.
    pub fn each_slab(&self, index: usize, rows: Range<usize>, each: &mut EachSlab) -> Result<()> {
        let (mut scratch, mut slab) = (RowScratch::default(), Vec::new());
        for down in self.grid.chunk_rows(&rows) {
            let rows = self.grid.rows_in(down, &rows);
            let bytes = rows.len() * self.row_bytes();
            memory::room(&mut slab, bytes, "a row of chunks")?;
            slab.resize(bytes, 0);
            self.read_rows(index, rows.clone(), &mut scratch, &mut slab)?;
            each(rows, &slab)?;
        }
        Ok(())
    }

    /// Bytes of one row of a sample.
    fn row_bytes(&self) -> usize {
        self.shape().row_values() * self.meta.dtype.size()
    }
}

/// Takes some whole rows of a sample: which, and their bytes.
pub type EachSlab<'e> = dyn FnMut(Range<usize>, &[u8]) -> Result<()> + 'e;

/// Working memory for reading rows, used again for the next ones.
#[derive(Debug, Default)]
pub struct RowScratch {
    /// A stored chunk of an array without shards.
    stored: Vec<u8>,
    /// A decoded chunk, where rows are only part of it.
    decoded: Vec<u64>,
}

/// The chunks of one sample of an array.
struct StoredChunks<'a> {
    array: &'a ChunkArray,
    index: usize,
    stored: &'a mut Vec<u8>,
}

impl Chunks for StoredChunks<'_> {
    fn decode(&mut self, chunk: usize, out: &mut [u8]) -> Result<()> {
        self.array.read_chunk(self.index, chunk, self.stored, out)
    }
}
