//! An open packed dataset: its stacks, their arrays and its samples.
//!
//! | file | job |
//! |---|---|
//! | `mod.rs` | [`Dataset::open`] reads only metadata, and checks them against `SHA256SUMS` and each other |
//! | `stack.rs` | the arrays and coordinates of a stack |
//! | `array.rs` | [`ChunkArray`] reads chunks |

mod array;
mod stack;

use std::collections::HashSet;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use hsipack_format::checksums::{self, SHA256SUMS};
use hsipack_format::metadata::{FWHM, IMAGE, LAYOUT, Root, SAMPLES, WAVELENGTH, parse_root};
use hsipack_format::samples::{Samples, lines};
use hsipack_format::{Command, Error, Result, remedy};

pub use array::{ChunkArray, EachSlab, RowScratch};
pub use stack::Stack;
use stack::array_names;

use crate::folder::{self, Folder};
use crate::metadata::MetadataFiles;
use crate::remote::ShardTails;
use crate::samples::{self, Source, wrong_sum};
use crate::{bounded_read, memory, remote};

/// A packed dataset.
#[derive(Debug)]
pub struct Dataset {
    folder: Arc<Folder>,
    root: Root,
    samples: Samples,
    stacks: Vec<Stack>,
    may_lack_files: bool,
    tails: Mutex<ShardTails>,
}

/// Whether the folder `path` is a packed dataset, or claims to be one.
pub fn is_packed(path: &Path) -> bool {
    let root = || bounded_read::read(&path.join("zarr.json"), bounded_read::METADATA);
    folder::steadily(path, root).is_ok_and(|text| matches!(parse_root(&text), Ok(Some(_))))
}

impl Dataset {
    /// Opens the dataset at `path`. If an append replaces the dataset meanwhile, the result is
    /// completely the old or completely the new one. If samples are appended later, the open
    /// dataset keeps its own samples.
    ///
    /// # Errors
    /// If it is not a packed dataset, has a newer layout, or its metadata do not match `SHA256SUMS`
    /// or each other; the error names the file.
    pub fn open(path: impl AsRef<Path>) -> Result<Self> {
        Self::open_looking(path.as_ref(), true)
    }

    /// Opens the dataset; without `settled`, with [`Folder::open_unsettled`].
    fn open_looking(path: &Path, settled: bool) -> Result<Self> {
        let path = &*remote::pinned(path)?;
        let sums = || {
            let files = MetadataFiles::of(path, !settled)?;
            let root = read_root(&files, path)?;
            let text = files.read(&path.join(SHA256SUMS), bounded_read::SUMS)?;
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

    /// Opens the dataset at `path` for reading. Like [`open`](Self::open), but a store of this
    /// layout that another library wrote needs no `SHA256SUMS`. If `as_of` is given, the dataset
    /// has only the samples that it had when this was its fingerprint.
    ///
    /// # Errors
    /// Those of [`open`](Self::open), and if the dataset never had that fingerprint.
    pub fn open_to_read(path: impl AsRef<Path>, as_of: Option<&str>) -> Result<Self> {
        Self::open_to_read_looking(path.as_ref(), as_of, true)
    }

    /// Like [`open_to_read`](Self::open_to_read), but saves a round trip to the server: it does not
    /// check that all files came from the same state of the dataset. The caller has to call
    /// [`Folder::read`] or [`Folder::check`] afterwards, which check this.
    ///
    /// # Errors
    /// Those of [`open_to_read`](Self::open_to_read).
    pub fn open_unsettled(path: impl AsRef<Path>, as_of: Option<&str>) -> Result<Self> {
        Self::open_to_read_looking(path.as_ref(), as_of, false)
    }

    fn open_to_read_looking(path: &Path, as_of: Option<&str>, settled: bool) -> Result<Self> {
        let open = || {
            let dataset = if remote::is_url(path) {
                match Self::open_looking(path, settled) {
                    // Not checked in advance, because that would cost a round trip.
                    Err(error) if bounded_read::is_missing(&error) => Self::open_foreign(path)?,
                    opened => opened?,
                }
            } else if path.join(SHA256SUMS).exists() {
                Self::open(path)?
            } else {
                Self::open_foreign(path)?
            };
            let Some(fingerprint) = as_of else { return Ok(dataset) };
            let has_other_columns = dataset.root.has_chunks_of(fingerprint);
            dataset.as_it_was(fingerprint)?.ok_or_else(|| match has_other_columns {
                true => Error::conflict(
                    "splits, labels or other columns were changed since the dataset was opened",
                )
                .at(path)
                .with_remedy(
                    "open it again before starting worker processes or loading it from a pickle: they open the dataset themselves, and columns from before the change cannot be read",
                ),
                false => Error::conflict(format!(
                    "the dataset cannot be opened as it was with the fingerprint {fingerprint}: it never had it, or the dataset or its masks were replaced since"
                ))
                .at(path)
                .with_remedy(format!(
                    "open it as it is now, or with a fingerprint that `hsipack info {}` shows",
                    path.display()
                )),
            })
        };
        // On a server, versions are compared when the objects are opened.
        if remote::is_url(path) { open() } else { folder::steadily(path, open) }
    }

    /// Opens a store without `SHA256SUMS`. Only hsipack writes this file.
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
    /// exist: for stores that another library wrote, and for examining damaged datasets. Coordinate
    /// arrays that cannot be read are skipped and reported in [`Stack::problems`].
    ///
    /// # Errors
    /// If it is not a packed dataset, has a newer layout, or its metadata contradict each other.
    pub fn open_unverified(path: impl AsRef<Path>) -> Result<Self> {
        let path = &*remote::pinned(path.as_ref())?;
        let root = || {
            let files = MetadataFiles::of(path, false)?;
            let root = read_root(&files, path)?;
            // Damaged datasets are opened too, so `SHA256SUMS` need not be readable.
            let sums = files.read(&path.join(SHA256SUMS), bounded_read::SUMS).ok();
            let sums = sums.map_or_else(|| sums_of(&files, path).map(String::into_bytes), Ok)?;
            Ok((checksums::sha256(&sums), None, (files, root)))
        };
        Folder::open(path, root, |folder, (files, root)| Self::open_in(folder, &files, root, None))
    }

    /// Opens the dataset; `sum` is the checksum of `samples.jsonl`, if it is to be compared.
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
        let (folder, tails) = (folder.clone(), Mutex::new(files.take_tails()));
        Ok(Self { folder, root, samples, stacks, may_lack_files: false, tails })
    }

    /// Refuses metadata files that are not listed in `SHA256SUMS`, because they cannot be checked.
    fn check_listed(&self, sums: &[(String, String)]) -> Result<()> {
        let listed: HashSet<&str> = sums.iter().map(|(file, _)| file.as_str()).collect();
        let of_stacks = self.stacks.iter().flat_map(|stack| {
            let arrays = stack.arrays().map(ChunkArray::name);
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

    /// The dataset as it was when its fingerprint was `fingerprint`, without samples, masks and
    /// companions that were added since. Statistics still cover all samples. `None` if it never had
    /// that fingerprint.
    ///
    /// # Errors
    /// If the dataset's records contradict each other.
    pub fn as_it_was(mut self, fingerprint: &str) -> Result<Option<Self>> {
        if self.fingerprint() == fingerprint {
            return Ok(Some(self));
        }
        let Some(len) = self.root.samples_at(fingerprint) else { return Ok(None) };
        let of_samples = |error: Error| error.at(self.folder.path().join(SAMPLES));
        let len = usize::try_from(len).unwrap_or(usize::MAX);
        let added = self.root.arrays_since(fingerprint);
        for stack in &mut self.stacks {
            stack.masks.retain(|mask| !added.contains(&mask.name()));
            stack.companions.retain(|companion| !added.contains(&companion.name()));
        }
        self.samples = self.samples.first(len, &names_of(&self.stacks)).map_err(of_samples)?;
        for (number, stack) in self.stacks.iter_mut().enumerate() {
            let len = self.samples.ids_in(number).len();
            stack.arrays_mut().for_each(|array| array.cut(len));
        }
        if self.stacks.iter().any(|stack| stack.image.is_empty()) {
            // The remaining stacks get new numbers.
            self.stacks.retain(|stack| !stack.image.is_empty());
            let names = names_of(&self.stacks);
            self.samples = self.samples.first(len, &names).map_err(of_samples)?;
        }
        self.folder = Arc::new(self.folder.of_the_past(fingerprint));
        Ok(Some(self))
    }

    /// Removes one of the [`Stack::problems`] and returns it with a remedy.
    pub fn take_problem(&mut self) -> Option<Error> {
        let problem = self.stacks.iter_mut().find_map(|stack| stack.problems.pop());
        problem.map(|error| {
            error.with_remedy(remedy!["run ", Command::Validate, ", then ", Command::Repair])
        })
    }

    /// The path or URL of the dataset.
    pub fn path(&self) -> &Path {
        self.folder.path()
    }

    /// Its folder. Opening files through it is safe while samples are appended.
    pub fn folder(&self) -> &Folder {
        &self.folder
    }

    /// The ends of shards that were fetched with the metadata, for a store that is about to open
    /// the shards. They are given only once, and only after
    /// [`open_unsettled`](Self::open_unsettled).
    pub fn take_tails(&self) -> ShardTails {
        std::mem::take(&mut *self.tails.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Whether a missing file means fill values, as in Zarr. hsipack itself writes every file.
    pub fn may_lack_files(&self) -> bool {
        self.may_lack_files
    }

    /// The records of the root group: the layout, how and when the dataset was packed, and what was
    /// appended.
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

    /// The stack with this name.
    pub fn stack(&self, name: &str) -> Option<&Stack> {
        self.stacks.iter().find(|stack| stack.name == name)
    }

    /// The hash of `SHA256SUMS`, or of the text it would have if it does not exist. Two datasets
    /// with equal fingerprints have equal metadata.
    pub fn fingerprint(&self) -> &str {
        self.folder.fingerprint()
    }

    /// Whether this is the dataset as it was before cubes or masks were added.
    pub fn is_past(&self) -> bool {
        self.root.earlier().iter().any(|(then, _)| *then == self.fingerprint())
    }

    /// The number of samples that the dataset had when its fingerprint was this one; `None` if it
    /// never had it.
    pub fn samples_at(&self, fingerprint: &str) -> Option<usize> {
        if self.fingerprint() == fingerprint {
            return Some(self.samples.len());
        }
        // A dataset that was opened as it was does not know what came later.
        let earlier = self.root.earlier().into_iter();
        let mut before = earlier.take_while(|(then, _)| *then != self.fingerprint());
        let (_, samples) = before.find(|(then, _)| *then == fingerprint)?;
        usize::try_from(samples).ok()
    }
}

/// Compares the files that `SHA256SUMS` lists with their checksums, except `samples.jsonl`: see
/// [`Source`].
fn check_sums(files: &MetadataFiles, path: &Path, sums: &[(String, String)]) -> Result<()> {
    for (name, sum) in sums.iter().filter(|(name, _)| name != SAMPLES) {
        let file = path.join(name);
        let text = files.read(&file, bounded_read::METADATA)?;
        if checksums::sha256(&text) != *sum {
            return Err(wrong_sum(file));
        }
    }
    Ok(())
}

/// The samples of a dataset with these stacks; `sum` is the checksum of `samples.jsonl`, if it is
/// known.
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
            // If the index does not fit the stacks, read the text: if that does not fit either, the error is about the text.
            match (samples, sum) {
                (Ok(samples), _) => return Ok(samples),
                (Err(_), Some(sum)) => samples::text(files, path, sum)?,
                (Err(error), None) => return Err(error),
            }
        }
        Some(Source::Text(text)) => text,
        None => files.read(&file, bounded_read::SAMPLES)?,
    };
    let read = check_count(&text, stacks).and_then(|()| {
        let samples = Samples::decode(text, &names)?;
        check_samples(&samples, stacks).map(|()| samples)
    });
    read.map_err(|error| array::of_file(error, &file))
}

fn read_root(files: &MetadataFiles, path: &Path) -> Result<Root> {
    let file = path.join("zarr.json");
    if !files.has(&file)? {
        return Err(Error::malformed("not a packed dataset: there is no zarr.json in it")
            .at(path)
            .with_remedy(remedy!["give the folder that ", Command::Convert, " wrote"]));
    }
    let parsed =
        parse_root(&files.read(&file, bounded_read::METADATA)?).map_err(|error| error.at(&file))?;
    let Some(root) = parsed else {
        return Err(Error::malformed("a Zarr store, but not one that hsipack packed")
            .at(path)
            .with_remedy(remedy!["pack it with ", Command::Convert]));
    };
    match root.layout() {
        Some(1..=LAYOUT) => Ok(root),
        Some(layout) => Err(Error::unsupported(format!("the dataset has layout {layout}"))
            .at(file)
            .with_remedy(format!("update hsipack; this version reads layout {LAYOUT}"))),
        None => Err(Error::malformed("attributes.hsipack.layout is missing").at(file)),
    }
}

/// The text that `SHA256SUMS` would have for a dataset's metadata: the root, the samples, every
/// stack and its arrays.
fn sums_of(files: &MetadataFiles, path: &Path) -> Result<String> {
    let mut names = vec!["zarr.json".to_owned(), SAMPLES.to_owned()];
    for name in stack_names(files, path)? {
        names.push(format!("{name}/zarr.json"));
        let arrays = array_names(files, &path.join(&name))?;
        names.extend(arrays.into_iter().map(|array| format!("{name}/{array}/zarr.json")));
    }
    let contents = names.into_iter().map(|file| {
        let most = if file == SAMPLES { bounded_read::SAMPLES } else { bounded_read::METADATA };
        let content = files.read(&path.join(&file), most)?;
        Ok((file, content))
    });
    let contents = contents.collect::<Result<Vec<_>>>()?;
    Ok(checksums::encode(
        contents.iter().map(|(file, content)| (file.as_str(), content.as_slice())),
    ))
}

/// Sorted names of the folders below `path` that contain an image array.
fn stack_names(files: &MetadataFiles, path: &Path) -> Result<Vec<String>> {
    files.folders(path, &Path::new(IMAGE).join("zarr.json"))
}

/// Before a line is read, compares the number of lines with the number of cubes, and the needed
/// memory with the available memory.
fn check_count(text: &[u8], stacks: &[Stack]) -> Result<()> {
    let lines = lines(text).count();
    let cubes = stacks.iter().fold(0usize, |all, stack| all.saturating_add(stack.image.len()));
    if lines > cubes {
        return Err(Error::damaged(format!(
            "{lines} samples are listed, but the stacks hold {cubes} cubes"
        )));
    }
    // Measured: in addition to the lines, which are already in memory, their columns take a quarter as much, and temporarily
    // up to twice that.
    memory::check(text.len() as u64, &format!("the list of {lines} samples"))
}

fn names_of(stacks: &[Stack]) -> Vec<&str> {
    stacks.iter().map(|stack| stack.name.as_str()).collect()
}

fn check_samples(samples: &Samples, stacks: &[Stack]) -> Result<()> {
    for (number, stack) in stacks.iter().enumerate() {
        let (cubes, listed) = (stack.image.len(), samples.ids_in(number).len());
        if cubes != listed {
            return Err(Error::damaged(format!(
                "stack {} holds {cubes} cubes, but {listed} samples are listed",
                stack.name
            )));
        }
    }
    Ok(())
}
