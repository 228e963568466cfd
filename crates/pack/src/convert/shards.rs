//! Shard files: written to a temporary name, whole, in chunk order, then synced and renamed.

use std::fs::{self, File};
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

use hsipack_format::shard::{ChunkSpan, ShardIndex};
use hsipack_format::{Command, Error, Result, remedy};
use hsipack_store::shard::ShardFile;

/// One shard file being written.
pub struct ShardWriter {
    file: BufWriter<File>,
    temporary: PathBuf,
    path: PathBuf,
    index: ShardIndex,
    offset: u64,
}

/// A shard whose bytes are written but not yet known to be on disk.
pub struct WrittenShard {
    file: File,
    temporary: PathBuf,
    path: PathBuf,
}

impl ShardWriter {
    /// Starts the shard at `path` with room for `chunks` chunks.
    ///
    /// # Errors
    /// If the file cannot be made.
    pub fn create(path: PathBuf, chunks: usize) -> Result<Self> {
        let folder = path.parent().expect("shards lie in their array's folder");
        fs::create_dir_all(folder).map_err(|error| Error::io(folder, "cannot create", error))?;
        let temporary = path.with_extension("tmp");
        let file = File::create(&temporary)
            .map_err(|error| Error::io(&temporary, "cannot create", error))?;
        // Chunks are large; the buffer is for datasets of many small cubes.
        let file = BufWriter::with_capacity(1 << 20, file);
        Ok(Self { file, temporary, path, index: ShardIndex::empty(chunks), offset: 0 })
    }

    /// Appends stored chunk `chunk`.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn write(&mut self, chunk: usize, stored: &[u8]) -> Result<()> {
        self.file
            .write_all(stored)
            .map_err(|error| Error::io(&self.temporary, "cannot write", error))?;
        let len = stored.len() as u64;
        self.index.0[chunk] = Some(ChunkSpan { offset: self.offset, len });
        self.offset += len;
        Ok(())
    }

    /// Copies the first `chunks` chunks of an existing shard as they are.
    ///
    /// # Errors
    /// If one cannot be read, is damaged, or cannot be written.
    pub fn carry(&mut self, from: &ShardFile, chunks: usize) -> Result<()> {
        for chunk in 0..chunks {
            from.with_stored(chunk, |stored| {
                hsipack_format::codec::verify(stored).map_err(|error| {
                    error.at(from.path()).with_remedy(remedy![
                        "first run ",
                        Command::Validate,
                        ", then ",
                        Command::Repair
                    ])
                })?;
                self.write(chunk, stored)
            })?;
        }
        Ok(())
    }

    /// Writes the index behind the chunks; gives the bytes of the whole shard.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn finish(mut self) -> Result<(WrittenShard, u64)> {
        let index = self.index.encode();
        let fail = |error| Error::io(&self.temporary, "cannot write", error);
        self.file.write_all(&index).map_err(fail)?;
        let bytes = self.offset + index.len() as u64;
        match self.file.into_inner() {
            Ok(file) => {
                Ok((WrittenShard { file, temporary: self.temporary, path: self.path }, bytes))
            }
            Err(error) => Err(Error::io(&self.temporary, "cannot write", error.into_error())),
        }
    }
}

impl WrittenShard {
    /// Waits until the shard is on disk, and gives it its name.
    ///
    /// # Errors
    /// If the disk refuses.
    pub fn commit(self) -> Result<()> {
        self.file.sync_all().map_err(|error| Error::io(&self.temporary, "cannot write", error))?;
        fs::rename(&self.temporary, &self.path)
            .map_err(|error| Error::io(&self.path, "cannot rename to", error))?;
        sync_folder(self.path.parent().expect("shards lie in a folder"))
    }
}

/// Makes the names in a folder durable.
///
/// # Errors
/// If the disk refuses.
pub fn sync_folder(folder: &Path) -> Result<()> {
    File::open(folder)
        .and_then(|folder| folder.sync_all())
        .map_err(|error| Error::io(folder, "cannot write", error))
}

/// Writes a small file whole: temporary name, sync, rename.
///
/// # Errors
/// If it cannot be written.
pub fn write_whole(path: &Path, content: &[u8]) -> Result<()> {
    let folder = path.parent().expect("files lie in a folder");
    fs::create_dir_all(folder).map_err(|error| Error::io(folder, "cannot create", error))?;
    let mut name = path.file_name().expect("files have a name").to_owned();
    name.push(".tmp");
    let temporary = path.with_file_name(name);
    let write = || {
        let mut file = File::create(&temporary)?;
        file.write_all(content)?;
        file.sync_all()?;
        fs::rename(&temporary, path)
    };
    write().map_err(|error| Error::io(path, "cannot write", error))
}
