//! An image, mask or companion array of a stack, read by chunks and rows.

use std::fs;
use std::io::Read as _;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use hsipack_format::metadata::{IMAGE, Role, Scaling};
use hsipack_format::zarr::ArrayMeta;
use hsipack_format::{Command, CubeShape, Error, Grid, Ratio, Result, codec, remedy};

use crate::codec::decode;
use crate::folder::Folder;
use crate::metadata::MetadataFiles;
use crate::rows::{self, Chunks, Part, Values};
use crate::shard::ShardFile;
use crate::{bounded_read, memory, remote};

/// An image, mask or companion array of a stack.
#[derive(Debug)]
pub struct ChunkArray {
    root: Arc<Folder>,
    name: String,
    folder: PathBuf,
    meta: ArrayMeta,
    grid: Grid,
    role: Option<Role>,
    ratio: Ratio,
    len: usize,
    open: Mutex<Vec<(usize, Arc<ShardFile>)>>,
}

/// Number of shards that are kept open. Reading in sample order needs one; several threads need a
/// few.
const OPEN_SHARDS: usize = 8;

impl ChunkArray {
    /// Opens the image of a stack, (sample, y, x, band).
    pub(super) fn open_image(
        root: &Arc<Folder>,
        files: &MetadataFiles,
        stack: &Path,
    ) -> Result<Self> {
        Self::open(root, files, stack, IMAGE, |_| 4)
    }

    /// Opens another array of a stack: a mask, (sample, y, x), a target, which may have a fourth
    /// axis of channels, or a further image, which has one of bands.
    pub(super) fn open_beside(
        root: &Arc<Folder>,
        files: &MetadataFiles,
        stack: &Path,
        name: &str,
    ) -> Result<Self> {
        let axes = |meta: &ArrayMeta| match meta.role() {
            Some(Role::Image) => 4,
            Some(Role::Target) if meta.shape.len() == 4 => 4,
            Some(Role::Target) | None => 3,
        };
        let array = Self::open(root, files, stack, name, axes)?;
        if array.meta.dtype.is_float() == array.role.is_some() {
            return Ok(array);
        }
        let role = array.role.map_or("mask", Role::words);
        Err(Error::unsupported(format!("the {role} has the type {}", array.meta.dtype))
            .at(array.folder.join("zarr.json")))
    }

    fn open(
        root: &Arc<Folder>,
        files: &MetadataFiles,
        stack: &Path,
        name: &str,
        axes: impl Fn(&ArrayMeta) -> usize,
    ) -> Result<Self> {
        let folder = stack.join(name);
        let file = folder.join("zarr.json");
        let meta = ArrayMeta::parse(&files.read(&file, bounded_read::METADATA)?)
            .map_err(|error| error.at(&file))?;
        let axes = axes(&meta);
        let (len, grid) = meta.samples_and_grid(axes).map_err(|error| error.at(&file))?;
        let role = meta.role();
        let ratio = match role {
            Some(Role::Image) => meta.ratio().map_err(|error| error.at(&file))?,
            Some(Role::Target) | None => Ratio::EQUAL,
        };
        if axes == 4 || role.is_some() {
            meta.check_attributes().map_err(|error| of_file(error, &file))?;
        }
        let (root, name) = (root.clone(), name.to_owned());
        Ok(Self { root, name, folder, meta, grid, role, ratio, len, open: Mutex::default() })
    }

    /// Keeps only the first `len` samples.
    pub(super) fn cut(&mut self, len: usize) {
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

    /// Its role, if it is a companion.
    pub fn role(&self) -> Option<Role> {
        self.role
    }

    /// Its resolution. Only further images may have another one than the image.
    pub fn ratio(&self) -> Ratio {
        self.ratio
    }

    /// Shape of one sample. A mask has one band; the bands of a target are its channels.
    pub fn shape(&self) -> CubeShape {
        self.grid.shape()
    }

    /// Whether it has an axis of bands or channels.
    pub fn has_bands(&self) -> bool {
        self.meta.shape.len() > 3
    }

    /// Number of samples.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are no samples.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Decodes a stored chunk, as given by [`ShardFile::with_stored`], into `out`, which must be
    /// [`chunk_bytes`](Self::chunk_bytes) long. With `verify`, the checksum is compared. Without
    /// it, only damage that the decompressor detects is an error.
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

    /// Size of one uncompressed sample in bytes.
    pub fn sample_bytes(&self) -> usize {
        self.shape().values() * self.meta.dtype.size()
    }

    /// Size of one uncompressed chunk in bytes, including the overhang.
    pub fn chunk_bytes(&self) -> usize {
        self.grid.chunk_values() * self.meta.dtype.size()
    }

    /// The factor from stored values to physical values (`scale_factor`; 1 if there is none).
    pub fn scale_factor(&self) -> f64 {
        self.scaling().factor
    }

    /// The number that is added to stored values × [`scale_factor`](Self::scale_factor) to give
    /// physical values (`add_offset`, which other libraries write; 0 if there is none).
    pub fn add_offset(&self) -> f64 {
        self.scaling().offset
    }

    /// How stored values are converted to physical values: [`scale_factor`](Self::scale_factor) and
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

    /// Opens shard `shard`, and keeps it open for the next call.
    ///
    /// # Errors
    /// If it cannot be read or its index is damaged.
    pub fn shard(&self, shard: usize) -> Result<Arc<ShardFile>> {
        let mut open = self.open.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        if let Some(index) = open.iter().position(|(number, _)| *number == shard) {
            return Ok(open[index].1.clone());
        }
        let file = Arc::new(self.open_shard(shard)?);
        if open.len() == OPEN_SHARDS {
            open.remove(0);
        }
        open.push((shard, file.clone()));
        Ok(file)
    }

    /// Opens shard `shard`, even if it is open already.
    ///
    /// # Errors
    /// Those of [`shard`](Self::shard).
    pub fn open_shard(&self, shard: usize) -> Result<ShardFile> {
        let path = self.shard_path(shard);
        self.root.read(|| ShardFile::open(&path, self.grid.chunks_per_shard()))
    }

    /// Gives the file of shard `shard` a second name, `target`. Returns `false` if that is not
    /// possible, and the chunks have to be copied: the dataset is on a server or another file
    /// system, or the file also has chunks of samples that were appended since the dataset was
    /// opened.
    ///
    /// # Errors
    /// Those of [`shard`](Self::shard).
    pub fn link_shard(&self, shard: usize, target: &Path) -> Result<bool> {
        if remote::is_url(&self.folder) {
            return Ok(false);
        }
        let per_shard = self.grid.samples_per_shard();
        let samples = self.len.saturating_sub(shard * per_shard).min(per_shard);
        let chunks = samples * self.grid.chunks_per_sample();
        let path = self.shard_path(shard);
        self.root.read(|| {
            // This may run again after the folder was exchanged.
            let _ = fs::remove_file(target);
            let file = ShardFile::open(&path, self.grid.chunks_per_shard())?;
            if file.index().0.iter().skip(chunks).any(Option::is_some) {
                return Ok(false);
            }
            // A link to a symbolic link would depend on the folder that it is in.
            let file = path.canonicalize();
            Ok(file.and_then(|file| fs::hard_link(file, target)).is_ok())
        })
    }

    /// A hint that the chunks of sample `index` will be needed soon. It has an effect only for
    /// datasets on servers.
    ///
    /// # Errors
    /// Those of [`shard`](Self::shard).
    pub fn ask_ahead(&self, index: usize) -> Result<()> {
        if self.meta.chunk_shape.is_none() || !remote::is_url(&self.folder) {
            return Ok(());
        }
        let (shard, first) = self.grid.locate(index);
        let chunks = first..first + self.grid.chunks_per_sample();
        self.shard(shard)?.ask_ahead(chunks);
        Ok(())
    }

    /// Reads and decodes chunk `chunk` of sample `index` into `out`, which must be
    /// [`chunk_bytes`](Self::chunk_bytes) long. Values are little-endian. `stored` is working
    /// memory for arrays without shards.
    ///
    /// # Errors
    /// If the chunk cannot be read or is damaged; the error names the shard, sample and chunk.
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
            Error::damaged(format!("sample {index} of its stack, chunk {chunk}: {}", error.what()))
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
        let (groups, across) = (self.grid.band_groups(), self.grid.across());
        let (pixels, group) = (chunk / groups, chunk % groups);
        let position = [index, pixels / across, pixels % across, group].map(|axis| axis as u64);
        self.folder.join(ArrayMeta::file_key(&position[..self.meta.shape.len()]))
    }

    /// Fills `out` with the fill value, which is the content of a chunk that was never written.
    ///
    /// # Errors
    /// If the fill value is not a number.
    pub fn fill(&self, out: &mut [u8]) -> Result<()> {
        let value = self.meta.fill_bytes()?;
        out.chunks_exact_mut(value.len()).for_each(|slot| slot.copy_from_slice(&value));
        Ok(())
    }

    /// Reads sample `index` into `out`, which must be [`sample_bytes`](Self::sample_bytes) long:
    /// (row, column, band), little-endian.
    ///
    /// # Errors
    /// Those of [`read_chunk`](Self::read_chunk).
    pub fn read_sample(&self, index: usize, out: &mut [u8]) -> Result<()> {
        self.read_rows(index, 0..self.shape().rows, &mut RowScratch::default(), out)
    }

    /// Reads rows `rows` of sample `index` into `out` and fills it: (row, column, band),
    /// little-endian. Reading whole rows of chunks is fastest.
    ///
    /// # Errors
    /// Those of [`read_chunk`](Self::read_chunk).
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
            let chunks = self.grid.chunk_rows(&rows);
            let chunks = chunks.flat_map(|down| self.grid.chunks_in(down, &columns, None));
            self.shard(shard)?.ask_ahead(chunks.map(|chunk| first + chunk));
        }
        let mut chunks = StoredChunks { array: self, index, stored };
        let values = Values::stored(self.meta.dtype.size());
        let mut remaining = out;
        for down in grid.chunk_rows(&rows) {
            let rows = grid.rows_in(down, &rows);
            let (out, after) = remaining.split_at_mut(rows.len() * self.row_bytes());
            let part = Part { down, rows, columns: columns.clone(), bands: None, needed: None };
            rows::take(grid, values, &part, &mut chunks, decoded, out)?;
            remaining = after;
        }
        Ok(())
    }

    /// Calls `each` for rows `rows` of sample `index`, one row of chunks at a time, so that a large
    /// scene need not fit into memory. `each` gets the row range and its bytes in (row, column,
    /// band) order, little-endian.
    ///
    /// # Errors
    /// Those of [`read_chunk`](Self::read_chunk), and if `each` fails.
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

    /// Size of one row of a sample in bytes.
    fn row_bytes(&self) -> usize {
        self.shape().row_values() * self.meta.dtype.size()
    }
}

/// Decodes one stored chunk of an array into `out` and fills it.
pub(super) fn decode_chunk(
    meta: &ArrayMeta,
    stored: &[u8],
    verify: bool,
    out: &mut [u8],
) -> Result<()> {
    let frame = match meta.codecs.checksum {
        true if verify => codec::verify(stored)?,
        true => codec::without_checksum(stored)?,
        false => stored,
    };
    if let Some(codec) = &meta.codecs.compression {
        decode(codec, frame, out)
    } else if frame.len() == out.len() {
        out.copy_from_slice(frame);
        Ok(())
    } else {
        Err(Error::damaged(format!("a chunk holds {} bytes instead of {}", frame.len(), out.len())))
    }
}

/// Maximum size of a stored chunk in bytes. If the data cannot be compressed, Blosc and the
/// checksum make a chunk slightly larger.
const STORED_CHUNK: u64 = codec::MAX_CHUNK as u64 + (1 << 20);

/// Reads a whole file into `bytes`; `false` if it does not exist.
fn read_into(path: &Path, bytes: &mut Vec<u8>) -> Result<bool> {
    bytes.clear();
    if remote::is_url(path) {
        let read = bounded_read::read_if_there(path, STORED_CHUNK)?;
        return Ok(read.map(|read| *bytes = read).is_some());
    }
    let (file, len) = match bounded_read::open(path) {
        Err(error) if bounded_read::is_missing(&error) => return Ok(false),
        opened => opened?,
    };
    if len > STORED_CHUNK {
        return Err(Error::damaged(format!("the chunk has {len} bytes")).at(path));
    }
    let read = file.take(STORED_CHUNK).read_to_end(bytes);
    read.map(|_| true).map_err(|error| Error::io(path, "cannot read", error))
}

/// A function that takes some whole rows of a sample: their range and their bytes.
pub type EachSlab<'e> = dyn FnMut(Range<usize>, &[u8]) -> Result<()> + 'e;

/// Working memory for reading rows. It is reused for the next rows.
#[derive(Debug, Default)]
pub struct RowScratch {
    /// A stored chunk of an array without shards.
    stored: Vec<u8>,
    /// A decoded chunk, if only part of it is needed.
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

/// Adds the metadata file to an error, and a remedy if it has none.
pub(super) fn of_file(error: Error, file: &Path) -> Error {
    let error = error.at(file);
    if error.remedy().is_some() {
        return error;
    }
    error.with_remedy("restore the file from a copy, or convert again")
}
