//! Reports of the system about memory, processor time and disks.

use std::fs::{self, File};
use std::path::{Path, PathBuf};

use hsipack_read::Dataset;
use hsipack_store::memory;
use hsipack_store::remote::is_url;
use serde::{Deserialize, Serialize};

use crate::{Error, Result};

/// Resources that the process has used so far; `None` if the system does not say.
#[derive(Clone, Copy, Debug, Default)]
pub struct Usage {
    /// Processor time of all threads in seconds.
    pub cpu_s: Option<f64>,
    /// Bytes that came from disks, not from the system's file cache.
    pub disk_bytes: Option<u64>,
}

impl Usage {
    /// Usage up to now.
    pub fn now() -> Self {
        let text = |path| fs::read_to_string(path).ok();
        Self {
            cpu_s: text("/proc/self/stat").as_deref().and_then(cpu_seconds),
            disk_bytes: text("/proc/self/io").as_deref().and_then(|io| field(io, "read_bytes:")),
        }
    }

    /// Usage since an earlier reading.
    pub fn since(self, earlier: Self) -> Self {
        let cpu = self.cpu_s.zip(earlier.cpu_s).map(|(now, then)| now - then);
        let disk = self.disk_bytes.zip(earlier.disk_bytes);
        Self { cpu_s: cpu, disk_bytes: disk.map(|(now, then)| now.saturating_sub(then)) }
    }
}

/// User and system time of `/proc/self/stat`, in ticks of 10 ms.
fn cpu_seconds(stat: &str) -> Option<f64> {
    // The program's name is in brackets and may contain any character.
    let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
    let ticks = |at: usize| fields.get(at)?.parse::<u64>().ok();
    Some((ticks(11)? + ticks(12)?) as f64 / 100.0)
}

/// The number after a name at the start of a line.
fn field(text: &str, name: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(name))?;
    line.split_whitespace().next()?.parse().ok()
}

/// Memory that this process can use without swapping, and without exceeding its own limit or that
/// of a control group.
pub fn available_memory() -> Option<u64> {
    memory::available().map(|available| available.bytes)
}

/// The most memory that this process held at once, in bytes.
pub fn peak_memory() -> Option<u64> {
    let text = fs::read_to_string("/proc/self/status").ok()?;
    field(&text, "VmHWM:").map(|kilobytes| kilobytes * 1024)
}

/// The machine, recorded together with its measurements.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Machine {
    /// Model of the processors; empty if the system does not say.
    pub processor: String,
    /// Cores that this process may use.
    pub cores: usize,
    /// Memory in bytes.
    pub memory_bytes: Option<u64>,
    /// System and its release, such as `linux 6.18.2`.
    pub system: String,
    /// The 1-minute load average, in busy processes: it shows other load on the machine.
    pub load_average: Option<f64>,
}

impl Machine {
    /// The machine that this process runs on.
    pub fn this() -> Self {
        let text = |path| fs::read_to_string(path).unwrap_or_default();
        let release = text("/proc/sys/kernel/osrelease");
        Self {
            processor: after_colon(&text("/proc/cpuinfo"), "model name").to_owned(),
            cores: hsipack_store::threads::cores(),
            memory_bytes: field(&text("/proc/meminfo"), "MemTotal:")
                .map(|kilobytes| kilobytes * 1024),
            system: format!("{} {}", std::env::consts::OS, release.trim()).trim().to_owned(),
            load_average: text("/proc/loadavg")
                .split_whitespace()
                .next()
                .and_then(|load| load.parse().ok()),
        }
    }
}

/// The text after `NAME :` on the first line that begins with that name.
fn after_colon<'a>(text: &'a str, name: &str) -> &'a str {
    let line = text.lines().find(|line| line.starts_with(name));
    line.and_then(|line| line.split_once(':')).map_or("", |(_, value)| value.trim())
}

/// Free bytes on the disk of a folder, or of its nearest parent folder that exists.
pub fn free_space(folder: &Path) -> Option<u64> {
    let whole = std::path::absolute(folder).ok()?;
    let existing = whole.ancestors().find(|folder| folder.exists())?;
    let disk = rustix::fs::statvfs(existing).ok()?;
    Some(disk.f_bavail.saturating_mul(disk.f_frsize))
}

/// Bytes of all files below a folder.
pub fn stored_bytes(folder: &Path) -> u64 {
    let size = |file: PathBuf| fs::metadata(file).map_or(0, |meta| meta.len());
    files(folder).map_or(0, |files| files.into_iter().map(size).sum())
}

/// Bytes of a dataset as stored: of all its files, or of its shards on a server.
pub fn dataset_bytes(dataset: &Dataset) -> u64 {
    match is_url(dataset.path()) {
        true => dataset.open_bytes(),
        false => stored_bytes(dataset.path()),
    }
}

/// Every file below a folder.
fn files(folder: &Path) -> Result<Vec<PathBuf>> {
    let cannot = |error| Error::io(folder, "cannot list", error);
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).map_err(cannot)? {
        let entry = entry.map_err(cannot)?;
        if entry.file_type().map_err(cannot)?.is_dir() {
            found.extend(files(&entry.path())?);
        } else {
            found.push(entry.path());
        }
    }
    Ok(found)
}

/// Drops the files below a folder from the system's cache.
///
/// # Errors
/// If a file cannot be opened, or the system refuses.
pub fn drop_file_cache(folder: &Path) -> Result<()> {
    for path in files(folder)? {
        forget(&path).map_err(|error| Error::io(path, "cannot drop from the file cache", error))?;
    }
    Ok(())
}

#[cfg(target_os = "linux")]
fn forget(path: &Path) -> std::io::Result<()> {
    let file = File::open(path)?;
    // Pages that are not yet written would stay in the cache.
    file.sync_data()?;
    Ok(rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed)?)
}

#[cfg(not(target_os = "linux"))]
fn forget(_: &Path) -> std::io::Result<()> {
    Err(std::io::ErrorKind::Unsupported.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_of_the_system_are_parsed() {
        let stat = "7 (a (b) c) R 1 7 7 0 -1 4194304 94 0 0 0 150 50 0 0 20 0 1 0 100 5 5";
        assert_eq!(cpu_seconds(stat), Some(2.0));
        assert_eq!(field("rchar: 5\nread_bytes: 4096\n", "read_bytes:"), Some(4096));
        assert_eq!(field("", "read_bytes:"), None);
        let processors = "processor\t: 0\nmodel name\t: A Processor 9\nmodel name\t: B\n";
        assert_eq!(after_colon(processors, "model name"), "A Processor 9");
        assert_eq!(after_colon("", "model name"), "");
    }

    #[test]
    fn free_space_is_told_of_folders_that_are_not_there_yet() {
        let folder = tempfile::tempdir().unwrap();
        assert!(free_space(&folder.path().join("not/yet")).unwrap() > 0);
        assert!(Machine::this().cores > 0);
    }
}
