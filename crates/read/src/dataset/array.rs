//! The stored chunks of one array: which file and which span holds each chunk, and how it is
//! decoded.

use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};

use hsipack_format::codec;
use hsipack_format::metadata::{Role, Scaling};
use hsipack_format::shard::{ChunkSpan, ShardIndex};
use hsipack_format::{Command, CubeShape, DType, Error, ErrorKind, Grid, Opt, remedy};
use hsipack_store::dataset::ChunkArray;
use hsipack_store::remote::is_url;
use hsipack_store::{bounded_read, memory};

use super::files::{Files, ShardHandle, is_sharded};
use super::integers::{Conversion, FloatType, Integers};
use super::open::{Dataset, Verify};
use crate::Result;
use crate::plan::Window;
use crate::store::{ReadBuffer, StoredFile};

/// An array of an open dataset.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ArrayRef<'a> {
    pub dataset: &'a Dataset,
    pub stack: usize,
    /// 0 is the image; 1, 2, … are the masks, then the companions.
    pub array: usize,
    pub chunks: &'a ChunkArray,
    pub files: &'a Files,
}

/// Where a stored chunk lies.
pub(crate) struct Stored<'a> {
    pub file: &'a Arc<dyn StoredFile>,
    pub span: Range<u64>,
}

impl Dataset {
    /// The image array of a stack.
    pub(crate) fn image(&self, stack: usize) -> ArrayRef<'_> {
        self.array(stack, 0)
    }

    /// Creates a value for every chunk of every array: per stack, per array. `what` names the
    /// values in the error.
    ///
    /// # Errors
    /// If there is no memory for them.
    pub(crate) fn for_every_chunk<T>(
        &self,
        what: &str,
        new: impl Fn() -> T,
    ) -> Result<Vec<Vec<Box<[T]>>>> {
        let of_array = |array: ArrayRef<'_>| {
            // An open dataset already has as many notes, so their memory is not checked again.
            let mut places = memory::reserved(array.count(), what)?;
            places.resize_with(array.count(), &new);
            Ok(places.into())
        };
        let of_stack = |stack| self.arrays(stack).map(of_array).collect();
        (0..self.stacks().len()).map(of_stack).collect()
    }

    /// The arrays of a stack.
    pub(crate) fn arrays(&self, stack: usize) -> impl Iterator<Item = ArrayRef<'_>> {
        (0..self.stacks()[stack].arrays().count()).map(move |array| self.array(stack, array))
    }

    /// Array `array` of a stack: 0 is the image; 1, 2, … are its masks in order of their names,
    /// then its companions.
    pub(crate) fn array(&self, stack: usize, array: usize) -> ArrayRef<'_> {
        let chunks = self.stacks()[stack].arrays().nth(array).expect("the array of a stack");
        ArrayRef { dataset: self, stack, array, chunks, files: self.files(stack, array) }
    }

    pub(super) fn mask_array(&self, stack: usize, name: &str) -> Result<ArrayRef<'_>> {
        let masks = &self.stacks()[stack].masks;
        match masks.iter().position(|mask| mask.name() == name) {
            Some(index) => Ok(self.array(stack, index + 1)),
            None => Err(self.no_mask(stack, name)),
        }
    }

    pub(super) fn companion_array(
        &self,
        stack: usize,
        role: Role,
        name: &str,
    ) -> Result<ArrayRef<'_>> {
        let packed = &self.stacks()[stack];
        let is_named = |array: &ChunkArray| array.name() == name && array.role() == Some(role);
        match packed.companions.iter().position(is_named) {
            Some(index) => Ok(self.array(stack, 1 + packed.masks.len() + index)),
            None => Err(self.no_companion(stack, role, name)),
        }
    }

    /// The error for a companion that a stack does not have.
    pub(crate) fn no_companion(&self, stack: usize, role: Role, name: &str) -> Error {
        let stack = &self.stacks()[stack];
        let names: Vec<&str> = stack.companions_of(role).map(ChunkArray::name).collect();
        let option = match role {
            Role::Target => Opt::Target,
            Role::Image => Opt::Image,
        };
        let role = role.words();
        Error::conflict(format!("stack {} has no {role} {name:?}", stack.name))
            .at(self.path())
            .with_remedy(if names.is_empty() {
                remedy![
                    format!("it has no {role}s; pack some with "),
                    Command::Convert.with(option)
                ]
            } else {
                format!("it has {}", names.join(", ")).into()
            })
    }

    /// The error for a mask that a stack does not have.
    pub(crate) fn no_mask(&self, stack: usize, name: &str) -> Error {
        let stack = &self.stacks()[stack];
        let names: Vec<&str> = stack.masks.iter().map(ChunkArray::name).collect();
        Error::conflict(format!("stack {} has no mask {name:?}", stack.name))
            .at(self.path())
            .with_remedy(if names.is_empty() {
                remedy!["it has no masks; pack some with ", Command::Convert.with(Opt::Mask)]
            } else {
                format!("it has {}", names.join(", ")).into()
            })
    }
}

impl<'a> ArrayRef<'a> {
    pub(crate) fn shape(&self) -> CubeShape {
        self.chunks.shape()
    }

    /// Whether it is the image of cubes, or a further image.
    pub(crate) fn is_image(&self) -> bool {
        self.array == 0 || self.chunks.role() == Some(Role::Image)
    }

    /// The window of this array that covers the ground of a window of the image.
    pub(crate) fn window(&self, of_image: Window) -> Window {
        of_image.scaled(self.chunks.ratio())
    }

    pub(crate) fn grid(&self) -> &'a Grid {
        self.chunks.grid()
    }

    /// The number of chunks of all its cubes.
    pub(crate) fn count(&self) -> usize {
        self.chunks.len() * self.grid().chunks_per_sample()
    }

    /// The number of chunk `chunk` of the cube at `index` among all chunks of the array.
    pub(crate) fn number(&self, index: usize, chunk: usize) -> usize {
        index * self.grid().chunks_per_sample() + chunk
    }

    /// Where a chunk is stored; `None` if it was never written.
    ///
    /// # Errors
    /// If its file cannot be opened, the shard's index is damaged, or the dataset was replaced
    /// while it was opened.
    pub(crate) fn locate(&self, index: usize, chunk: usize) -> Result<Option<Stored<'a>>> {
        let (file, entry) = if is_sharded(self.chunks) {
            let (shard, first) = self.grid().locate(index);
            (shard, first + chunk)
        } else {
            (self.number(index, chunk), 0)
        };
        let shard = match self.files.open[file].get() {
            Some(shard) => shard,
            None => self.open(file, index, chunk)?,
        };
        self.dataset.folder().settle()?;
        let span = shard.index.0[entry].map(|span| span.offset..span.offset + span.len);
        Ok(shard.file.as_ref().zip(span).map(|(file, span)| Stored { file, span }))
    }

    /// Like [`locate`](Self::locate), but only if the file is open.
    pub(crate) fn locate_if_open(&self, index: usize, chunk: usize) -> Option<Stored<'a>> {
        let (shard, _) = self.grid().locate(index);
        let is_open = is_sharded(self.chunks) && self.files.open[shard].get().is_some();
        is_open.then(|| self.locate(index, chunk).ok().flatten()).flatten()
    }

    fn open(&self, file: usize, index: usize, chunk: usize) -> Result<&'a ShardHandle> {
        let _alone = self.files.opening.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(shard) = self.files.open[file].get() {
            return Ok(shard);
        }
        let path = self.file_path(file, index, chunk);
        // If samples were appended meanwhile, the file of that name still holds this dataset's samples.
        let shard = self.dataset.folder().read(|| self.open_there(&path))?;
        Ok(self.files.open[file].get_or_init(|| shard))
    }

    /// Opens the file at `path`, which may never have been written.
    fn open_there(&self, path: &Path) -> Result<ShardHandle> {
        match self.open_file(path.to_owned()) {
            Err(error) if bounded_read::is_missing(&error) => match self.dataset.may_lack_files() {
                true => self.never_written(),
                false => Err(Error::damaged("the shard is missing").at(path)),
            },
            opened => opened,
        }
    }

    /// Opens shard `shard` if it is not open. The caller checks that the dataset was not replaced
    /// meanwhile.
    pub(super) fn open_shard(&self, shard: usize) -> Result<()> {
        if self.files.open[shard].get().is_none() {
            let opened = self.open_there(&self.chunks.shard_path(shard))?;
            self.files.open[shard].get_or_init(|| opened);
        }
        Ok(())
    }

    /// Bytes of a shard's file, or of a chunk's file if the array is not sharded; 0 if the size
    /// cannot be read. If a file on a server is not open yet, the bytes that it would have
    /// uncompressed.
    pub(crate) fn file_bytes(&self, file: usize, index: usize, chunk: usize) -> u64 {
        match self.files.open[file].get() {
            Some(shard) => shard.len(),
            None if is_url(self.chunks.folder()) => {
                (self.chunks_per_file() * self.chunks.chunk_bytes()) as u64
            }
            None => match std::fs::metadata(self.file_path(file, index, chunk)) {
                Ok(metadata) => metadata.len(),
                Err(_) => 0,
            },
        }
    }

    fn never_written(&self) -> Result<ShardHandle> {
        let chunks = self.chunks_per_file();
        let mut index = memory::reserved(chunks, "the index of a shard")?;
        index.resize(chunks, None);
        Ok(ShardHandle { file: None, index: ShardIndex(index) })
    }

    fn open_file(&self, path: PathBuf) -> Result<ShardHandle> {
        let file = self.dataset.store().open(&path)?;
        if !is_sharded(self.chunks) {
            let span = ChunkSpan { offset: 0, len: file.len() };
            return Ok(ShardHandle { file: Some(file), index: ShardIndex(vec![Some(span)]) });
        }
        let read = ShardIndex::span(self.chunks_per_file(), file.len()).and_then(|span| {
            let (data_len, mut index) = (span.start, None);
            // The index is read by itself: a page fault here would read megabytes around it.
            file.prefetch(span.clone());
            file.with_bytes(span, &mut ReadBuffer::default(), &mut |bytes| {
                index = Some(ShardIndex::decode(bytes, data_len)?);
                Ok(())
            })?;
            Ok(index.expect("the closure was called"))
        });
        let index = read.map_err(|error| error.at(path))?;
        let span = |span: &Option<ChunkSpan>| span.map(|span| span.offset..span.offset + span.len);
        let spans: Vec<_> = index.0.iter().map(span).collect();
        file.divide(&spans, self.grid().chunks_per_sample());
        Ok(ShardHandle { file: Some(file), index })
    }

    fn chunks_per_file(&self) -> usize {
        if is_sharded(self.chunks) { self.grid().chunks_per_shard() } else { 1 }
    }

    /// The file of a shard, or of a chunk if the array is not sharded.
    fn file_path(&self, file: usize, index: usize, chunk: usize) -> PathBuf {
        if is_sharded(self.chunks) {
            self.chunks.shard_path(file)
        } else {
            self.chunks.chunk_path(index, chunk)
        }
    }

    /// Decodes the stored bytes of a chunk into `out`, and compares the checksum if that is due.
    ///
    /// # Errors
    /// If the chunk is damaged.
    pub(crate) fn decode(&self, number: usize, stored: &[u8], out: &mut [u8]) -> Result<()> {
        let due = self.is_due(number);
        self.chunks.decode(stored, due, out)?;
        if due {
            self.note_verified(number);
        }
        Ok(())
    }

    /// Like [`decode`](Self::decode), with converted values. `integers` is working memory.
    ///
    /// # Errors
    /// As for [`decode`](Self::decode); if there is no memory for the integers.
    pub(crate) fn convert(
        &self,
        number: usize,
        stored: &[u8],
        conversion: &Conversion,
        integers: &mut Vec<u8>,
        out: &mut [u8],
    ) -> Result<()> {
        let Some(codec) = &self.chunks.meta().codecs.compression else {
            return conversion.fill(out, integers, &mut |out| self.decode(number, stored, out));
        };
        conversion.decode(codec, self.frame(number, stored)?, integers, out)
    }

    /// The frame of a stored chunk. Compares the checksum if that is due.
    ///
    /// # Errors
    /// If the chunk is damaged.
    pub(crate) fn frame<'b>(&self, number: usize, stored: &'b [u8]) -> Result<&'b [u8]> {
        if self.is_due(number) {
            let frame = codec::verify(stored)?;
            self.note_verified(number);
            return Ok(frame);
        }
        match self.chunks.meta().codecs.checksum {
            true => codec::without_checksum(stored),
            false => Ok(stored),
        }
    }

    /// Whether the checksum of a chunk is to be compared.
    pub(crate) fn is_due(&self, number: usize) -> bool {
        let (word, bit) = (&self.files.verified[number / 64], 1 << (number % 64));
        self.chunks.meta().codecs.checksum
            && match self.dataset.verify() {
                Verify::Always => true,
                Verify::Once => word.load(Ordering::Relaxed) & bit == 0,
                Verify::Never => false,
            }
    }

    fn note_verified(&self, number: usize) {
        self.files.verified[number / 64].fetch_or(1 << (number % 64), Ordering::Relaxed);
    }

    /// The error of a chunk, with what a user needs to find the chunk. Errors that are not about
    /// stored data (no memory, a dataset that was replaced) stay as they are.
    pub(crate) fn in_chunk(&self, index: usize, chunk: usize, error: Error) -> Error {
        if error.kind() != ErrorKind::Damaged {
            return error;
        }
        let samples = self.dataset.samples();
        let sample = samples.id_at(self.stack, index);
        let name = sample.map_or_else(String::new, |id| format!(" ({})", samples.name(id)));
        let id = sample.unwrap_or(index);
        let array = self.chunks.name();
        let what = format!("sample {id}{name}, {array} chunk {chunk}: {}", error.what());
        let file = match is_sharded(self.chunks) {
            true => self.chunks.shard_path(self.grid().locate(index).0),
            false => self.chunks.chunk_path(index, chunk),
        };
        Error::damaged(what)
            .at(file)
            .with_remedy(remedy![
                "run ",
                Command::Validate,
                ", then ",
                Command::Repair,
                "; or pass ",
                Opt::SkipDamaged
            ])
            .caused_by(error)
    }

    /// The type of its values as they are delivered.
    pub(crate) fn dtype(&self) -> DType {
        self.float_type().map_or(self.stored_dtype(), FloatType::dtype)
    }

    /// The type of its values as they are stored.
    pub(crate) fn stored_dtype(&self) -> DType {
        self.chunks.meta().dtype
    }

    /// Bytes of the values of a chunk as they are delivered.
    pub(crate) fn chunk_bytes(&self) -> usize {
        self.grid().chunk_values() * self.dtype().size()
    }

    /// How its values are converted before they are delivered.
    pub(crate) fn conversion(&self) -> Option<Conversion> {
        let into = self.float_type()?;
        let scaling = self.chunks.scaling();
        let scaling = match self.dataset.integers() {
            Integers::Physical(_) => scaling,
            _ => Scaling { missing: scaling.missing, ..Scaling::NONE },
        };
        Some(Conversion::new(self.stored_dtype(), into, scaling))
    }

    fn float_type(&self) -> Option<FloatType> {
        let is_converted = self.array == 0
            && matches!(self.stored_dtype(), DType::U8 | DType::I8 | DType::U16 | DType::I16);
        match self.dataset.integers() {
            Integers::Physical(float) | Integers::Numbers(float) if is_converted => Some(float),
            _ => None,
        }
    }
}
