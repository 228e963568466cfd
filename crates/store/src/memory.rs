//! How much memory this process can have, and allocating it so that a refusal is an error.
//!
//! The machine may have memory that the process must not use: containers, Slurm and systemd put
//! processes into control groups with limits, and the system kills a process that exceeds one,
//! without a message. So the available memory is the smallest of what these leave: the machine,
//! every control group from the process's own up to the root (version 2, version 1, or both), and
//! `ulimit -v`.

use std::cell::Cell;
use std::collections::TryReserveError;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use memmap2::MmapOptions;

use hsipack_format::{Error, Result};

/// Available memory, and what limits it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Available {
    /// Bytes.
    pub bytes: u64,
    /// The limiting system, as the end of a sentence: "on this machine".
    pub by: String,
}

/// Requests smaller than this are not compared with the available memory, because a comparison
/// reads a dozen files.
const SMALL: u64 = 16 << 20;

/// Vectors of zeros of at least this many bytes ask for huge pages: the system clears those several
/// times as fast.
const LARGE: usize = 8 << 20;

/// If less of the address space is left, calls into libraries that do not check their allocations
/// run one at a time.
const SCARCE_BYTES: u64 = 64 << 20;
/// Additional memory that such a library may allocate, e.g. for compressor contexts.
const LIBRARY_BYTES: usize = 1 << 20;

thread_local! {
    /// Whether this thread is making an allocation whose failure is handled as an error.
    static ASKS: Cell<bool> = const { Cell::new(false) };
}

/// The memory available now; `None` if the system does not report it.
pub fn available() -> Option<Available> {
    available_in(Path::new("/"), address_space_limit())
}

/// The memory that this process could have if none were in use. Unlike [`available`], it is the
/// same in every run on a machine. `None` if the system does not report it.
pub fn limit() -> Option<u64> {
    limit_in(Path::new("/"), address_space_limit())
}

/// Checks that `bytes` of memory are available. `what` says what needs them, as the subject of a
/// sentence in the error.
///
/// # Errors
/// If less is available; the error gives both numbers and what limits the memory.
pub fn check(bytes: u64, what: &str) -> Result<()> {
    if bytes < SMALL {
        return Ok(());
    }
    match available() {
        Some(available) if bytes > available.bytes => Err(too_little(bytes, what, &available)),
        _ => Ok(()),
    }
}

fn too_little(bytes: u64, what: &str, available: &Available) -> Error {
    Error::memory(format!(
        "{what} takes {} of memory, but only {} are available {}",
        size(bytes),
        size(available.bytes),
        available.by
    ))
    .with_remedy("free some memory, raise the limit, or ask for less")
}

/// A size like `12 MiB`, or `12 KiB` up to 1 MiB, rounded up.
pub fn size(bytes: u64) -> String {
    match bytes {
        0..1_048_577 => format!("{} KiB", bytes.div_ceil(1 << 10)),
        _ => format!("{} MiB", bytes.div_ceil(1 << 20)),
    }
}

/// An empty vector with capacity for `len` values; `what` is for the error.
///
/// # Errors
/// If the system refuses the memory.
pub fn reserved<T>(len: usize, what: &str) -> Result<Vec<T>> {
    let mut values = Vec::new();
    room(&mut values, len, what)?;
    Ok(values)
}

/// Reserves capacity for `len` values in a vector that is reused; `what` is for the error.
///
/// # Errors
/// If the system refuses the memory.
pub fn room<T>(values: &mut Vec<T>, len: usize, what: &str) -> Result<()> {
    let more = len.saturating_sub(values.len());
    asking(|| values.try_reserve_exact(more)).map_err(|error| {
        let bytes = (len as u64).saturating_mul(size_of::<T>() as u64);
        Error::memory(format!("cannot allocate {} for {what}", size(bytes)))
            .with_remedy("free some memory, raise the limit, or ask for less")
            .caused_by(error)
    })
}

/// A vector of `len` zeros. The system provides the memory when it is first used. `what` is for the
/// error.
///
/// # Errors
/// If the system refuses the memory.
pub fn zeroed<T: bytemuck::Zeroable>(len: usize, what: &str) -> Result<Vec<T>> {
    let zeroed = asking(|| bytemuck::allocation::try_zeroed_vec(len));
    if let Ok(values) = &zeroed
        && size_of_val(values.as_slice()) >= LARGE
    {
        advise_huge(values);
    }
    zeroed.or_else(|()| {
        // Try again to get the error, or the vector if there is memory by now.
        let mut values = reserved(len, what)?;
        values.resize_with(len, T::zeroed);
        Ok(values)
    })
}

/// Whether this thread is making an allocation whose failure it handles. A program's global
/// allocator can ask this, because it cannot know otherwise. Allocates nothing itself.
pub fn may_be_refused() -> bool {
    ASKS.get()
}

fn asking<T>(work: impl FnOnce() -> T) -> T {
    let before = ASKS.replace(true);
    let done = work();
    ASKS.set(before);
    done
}

/// Whether an error means that memory was refused. Such an error says nothing about the file that
/// it names.
pub fn refused(error: &Error) -> bool {
    let source = std::error::Error::source(error);
    source.is_some_and(|source| {
        let io = source.downcast_ref::<io::Error>();
        source.is::<TryReserveError>()
            || io.is_some_and(|error| error.kind() == io::ErrorKind::OutOfMemory)
    })
}

/// Runs `work`, a call into a C library that allocates up to `bytes` with `malloc` and does not
/// check the result: if `malloc` fails, C-Blosc writes to address 0. So the same amount is
/// allocated and freed first. `what` is for the error.
///
/// Another thread could take the memory in between. So such calls run one at a time, with a small
/// reserve for other allocations of threads. If the address space is not short and `bytes` is
/// small, `work` runs at once.
///
/// # Errors
/// If the system refuses the memory. Then `work` was not run.
pub fn with_room<T>(bytes: usize, what: &str, work: impl FnOnce() -> T) -> Result<T> {
    /// Has the alignment that C-Blosc uses, so that both allocations are equal.
    #[derive(Clone, Copy)]
    #[repr(align(32))]
    struct Line(#[allow(dead_code)] [u8; 32]);

    // In this case the memory would be granted anyway, and reading batches should not allocate.
    if !is_short(bytes) && (bytes as u64) < SCARCE_BYTES {
        return Ok(work());
    }
    let _alone = alone();
    let bytes = bytes.saturating_add(LIBRARY_BYTES);
    // Without `black_box`, compilers may remove an allocation that is not used.
    drop(std::hint::black_box(reserved::<Line>(bytes.div_ceil(size_of::<Line>()), what)?));
    Ok(work())
}

/// Like [`with_room`], if `work` maps `bytes` of the address space. An allocation with `malloc`
/// would not prove that there is room, because the allocator may reuse memory without asking the
/// system.
///
/// # Errors
/// If the system refuses a map of this size. Then `work` was not run.
pub fn with_address_space<T>(bytes: usize, work: impl FnOnce() -> T) -> io::Result<T> {
    let _alone = alone();
    drop(MmapOptions::new().len(bytes.saturating_add(LIBRARY_BYTES)).map_anon()?);
    Ok(work())
}

/// A lock under which calls that need the rest of the memory run one at a time.
fn alone() -> MutexGuard<'static, ()> {
    static SHORT: Mutex<()> = Mutex::new(());
    SHORT.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Whether the limit of the address space leaves only little memory in addition to `bytes`.
pub fn is_short(bytes: usize) -> bool {
    exceeds_address_space((bytes as u64).saturating_add(SCARCE_BYTES))
}

/// Like [`available`], with the system's files below `root` and a given limit of the address space.
fn available_in(root: &Path, address_space: Option<u64>) -> Option<Available> {
    let machine = machine(root).map(|bytes| Available { bytes, by: "on this machine".to_owned() });
    let process = address_space.map(|limit| Available {
        bytes: limit.saturating_sub(address_space_used(root)),
        by: "within the limit of this process's address space (`ulimit -v`)".to_owned(),
    });
    let groups = memory_groups(root).into_iter().filter_map(|group| group.available());
    machine.into_iter().chain(process).chain(groups).min_by_key(|limit| limit.bytes)
}

/// Like [`limit`], with the system's files below `root` and a given limit of the address space.
fn limit_in(root: &Path, address_space: Option<u64>) -> Option<u64> {
    let text = fs::read_to_string(root.join("proc/meminfo")).unwrap_or_default();
    let machine = field(&text, "MemTotal:").map(|kibibytes| kibibytes << 10);
    let groups = memory_groups(root).into_iter().filter_map(|group| group.limit());
    machine.into_iter().chain(address_space).chain(groups).min()
}

/// Whether the limit of the address space (`ulimit -v`) leaves less than `bytes` for one more map.
pub fn exceeds_address_space(bytes: u64) -> bool {
    let remaining = |limit: u64| limit.saturating_sub(address_space_used(Path::new("/")));
    address_space_limit().is_some_and(|limit| remaining(limit) < bytes)
}

fn machine(root: &Path) -> Option<u64> {
    let text = fs::read_to_string(root.join("proc/meminfo")).ok()?;
    field(&text, "MemAvailable:").map(|kibibytes| kibibytes << 10)
}

fn address_space_used(root: &Path) -> u64 {
    let text = fs::read_to_string(root.join("proc/self/status")).unwrap_or_default();
    field(&text, "VmSize:").map_or(0, |kibibytes| kibibytes << 10)
}

/// The number after a name at the start of a line.
fn field(text: &str, name: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(name))?;
    line.split_whitespace().next()?.parse().ok()
}

#[cfg(not(miri))]
fn address_space_limit() -> Option<u64> {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the call fills the struct it is given.
    let read = unsafe { libc::getrlimit(libc::RLIMIT_AS, &mut limit) };
    (read == 0 && limit.rlim_cur != libc::RLIM_INFINITY).then_some(limit.rlim_cur)
}

#[cfg(miri)]
fn address_space_limit() -> Option<u64> {
    None
}

/// The versions of control groups. They use different file names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Version {
    One,
    Two,
}

/// A control group that accounts for memory: one that contains the process, or a parent of it.
struct Group {
    version: Version,
    /// Its folder.
    folder: PathBuf,
    /// Its name inside its hierarchy.
    name: String,
}

/// In version 1, a control group without a limit reports a limit of about 2^63.
const NO_LIMIT: u64 = 1 << 60;

impl Group {
    fn number(&self, file: &str) -> Option<u64> {
        fs::read_to_string(self.folder.join(file)).ok()?.trim().parse().ok()
    }

    /// The smallest of its limits; `None` if it has none.
    fn limit(&self) -> Option<u64> {
        // Above `memory.high`, the system slows a process down until it hardly makes progress.
        let limits: &[&str] = match self.version {
            Version::One => &["memory.limit_in_bytes"],
            Version::Two => &["memory.max", "memory.high"],
        };
        let limits = limits.iter().filter_map(|file| self.number(file));
        limits.filter(|limit| *limit < NO_LIMIT).min()
    }

    /// The memory that its limits leave; `None` if it has no limit.
    fn available(&self) -> Option<Available> {
        let limit = self.limit()?;
        let (used, cached) = match self.version {
            Version::One => {
                ("memory.usage_in_bytes", ["total_inactive_file ", "total_active_file "])
            }
            Version::Two => ("memory.current", ["inactive_file ", "active_file "]),
        };
        let stat = fs::read_to_string(self.folder.join("memory.stat")).unwrap_or_default();
        // Cached files count as used, but the system frees them when memory is needed.
        let cached: u64 = cached.iter().filter_map(|name| field(&stat, name)).sum();
        let used = self.number(used).unwrap_or(0).saturating_sub(cached);
        let by = format!("within the limit of {} of the control group {}", size(limit), self.name);
        Some(Available { bytes: limit.saturating_sub(used), by })
    }
}

/// All control groups that limit this process's memory.
fn memory_groups(root: &Path) -> Vec<Group> {
    let text = |path: &str| fs::read_to_string(root.join(path)).unwrap_or_default();
    let mounts = mounts(&text("proc/self/mountinfo"));
    let mut groups = Vec::new();
    for line in text("proc/self/cgroup").lines() {
        let mut parts = line.splitn(3, ':');
        let (Some(_), Some(controllers), Some(name)) = (parts.next(), parts.next(), parts.next())
        else {
            continue;
        };
        let version = match controllers {
            "" => Version::Two,
            some if some.split(',').any(|controller| controller == "memory") => Version::One,
            _ => continue,
        };
        let Some(mount) = mounts.iter().find(|mount| mount.version == version) else { continue };
        let point = mount.point.strip_prefix("/").unwrap_or(&mount.point);
        for name in mount.visible(name).ancestors() {
            let below = name.strip_prefix("/").unwrap_or(name);
            groups.push(Group {
                version,
                folder: root.join(point).join(below),
                name: name.display().to_string(),
            });
        }
    }
    groups
}

/// Where a hierarchy of control groups is mounted.
struct Mount {
    version: Version,
    /// The group that the mount shows as its root.
    shows: PathBuf,
    point: PathBuf,
}

impl Mount {
    /// The path of the group `name` below the mount. In a container, only its own group may be
    /// mounted, but `name` is still the full name. Then the group is the root of the mount.
    fn visible(&self, name: &str) -> PathBuf {
        match Path::new(name).strip_prefix(&self.shows) {
            Ok(below) => Path::new("/").join(below),
            Err(_) => PathBuf::from("/"),
        }
    }
}

/// The mounts in `/proc/self/mountinfo` that account for memory.
fn mounts(text: &str) -> Vec<Mount> {
    let parse = |line: &str| {
        let (mount, system) = line.split_once(" - ")?;
        let mut system = system.split(' ');
        let (kind, options) = (system.next()?, system.nth(1).unwrap_or_default());
        let version = match kind {
            "cgroup2" => Version::Two,
            "cgroup" if options.split(',').any(|controller| controller == "memory") => Version::One,
            _ => return None,
        };
        let mut fields = mount.split(' ').skip(3);
        Some(Mount { version, shows: fields.next()?.into(), point: fields.next()?.into() })
    };
    text.lines().filter_map(parse).collect()
}

/// Asks for huge pages in memory that somebody else allocated and nobody has written to. The system
/// may refuse.
fn advise_huge<T>(memory: &[T]) {
    // Miri has no such call.
    if cfg!(miri) {
        return;
    }
    const PAGE: usize = 4096;
    let range = memory.as_ptr_range();
    let start = (range.start as usize).next_multiple_of(PAGE);
    let end = range.end as usize / PAGE * PAGE;
    if start < end {
        // SAFETY: whole pages of the given memory; advice changes no content.
        unsafe { libc::madvise(start as *mut libc::c_void, end - start, libc::MADV_HUGEPAGE) };
    }
}

#[cfg(test)]
mod tests {
    use hsipack_format::ErrorKind;

    use super::*;

    const MIB: u64 = 1 << 20;

    /// A folder tree that imitates the system's files.
    fn system(files: &[(&str, &str)]) -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        let meminfo = ("proc/meminfo", "MemTotal: 16777216 kB\nMemAvailable: 8388608 kB\n");
        for (path, content) in [meminfo].iter().chain(files) {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, content).unwrap();
        }
        root
    }

    fn found(root: &tempfile::TempDir) -> (u64, String) {
        let available = available_in(root.path(), None).unwrap();
        (available.bytes / MIB, available.by)
    }

    const TWO: &str = "29 22 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n";

    #[test]
    fn without_limits_it_is_the_machine_s() {
        assert_eq!(found(&system(&[])), (8192, "on this machine".to_owned()));
        let unlimited = system(&[
            ("proc/self/cgroup", "0::/a\n"),
            ("proc/self/mountinfo", TWO),
            ("sys/fs/cgroup/a/memory.max", "max\n"),
            ("sys/fs/cgroup/a/memory.high", "max\n"),
        ]);
        assert_eq!(found(&unlimited).0, 8192);
        assert_eq!(limit_in(unlimited.path(), None), Some(16384 * MIB));
    }

    #[test]
    fn a_job_s_limit_counts_wherever_it_stands_above_the_process() {
        let slurm = system(&[
            ("proc/self/cgroup", "0::/slurm/job_7/step_0\n"),
            ("proc/self/mountinfo", TWO),
            ("sys/fs/cgroup/slurm/job_7/step_0/memory.max", "max\n"),
            ("sys/fs/cgroup/slurm/job_7/memory.max", "1073741824\n"),
            ("sys/fs/cgroup/slurm/job_7/memory.current", "536870912\n"),
            // Half of the used memory is cached files.
            (
                "sys/fs/cgroup/slurm/job_7/memory.stat",
                "anon 268435456\ninactive_file 134217728\nactive_file 134217728\n",
            ),
            ("sys/fs/cgroup/slurm/memory.max", "4294967296\n"),
        ]);
        let (mebibytes, by) = found(&slurm);
        assert_eq!(mebibytes, 768);
        assert_eq!(limit_in(slurm.path(), None), Some(1024 * MIB));
        assert_eq!(limit_in(slurm.path(), Some(5 * MIB)), Some(5 * MIB));
        assert!(by.contains("1024 MiB") && by.contains("/slurm/job_7"), "{by}");
    }

    #[test]
    fn a_container_sees_its_own_group_as_the_root() {
        let container = system(&[
            ("proc/self/cgroup", "0::/\n"),
            ("proc/self/mountinfo", "9 8 0:26 /docker/abc /sys/fs/cgroup ro - cgroup2 cgroup rw\n"),
            ("sys/fs/cgroup/memory.max", "2147483648\n"),
            ("sys/fs/cgroup/memory.high", "1073741824\n"),
            ("sys/fs/cgroup/memory.current", "73741824\n"),
        ]);
        assert_eq!(found(&container).0, 953);
    }

    #[test]
    fn version_one_and_both_at_once() {
        let mountinfo = "31 22 0:28 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n\
                   32 22 0:29 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n";
        let hybrid = system(&[
            ("proc/self/cgroup", "5:cpu,cpuacct:/x\n4:memory:/job/1\n0::/init.scope\n"),
            ("proc/self/mountinfo", mountinfo),
            ("sys/fs/cgroup/memory/job/1/memory.limit_in_bytes", "9223372036854771712\n"),
            ("sys/fs/cgroup/memory/job/memory.limit_in_bytes", "536870912\n"),
            ("sys/fs/cgroup/memory/job/memory.usage_in_bytes", "268435456\n"),
            (
                "sys/fs/cgroup/memory/job/memory.stat",
                "inactive_file 7\ntotal_inactive_file 134217728\n",
            ),
        ]);
        assert_eq!(found(&hybrid).0, 384);
        // Docker with version 1: the full name, but only the container's own group is mounted.
        let docker = system(&[
            ("proc/self/cgroup", "4:memory:/docker/abc\n"),
            (
                "proc/self/mountinfo",
                "31 22 0:28 /docker/abc /sys/fs/cgroup/memory ro - cgroup cgroup rw,memory\n",
            ),
            ("sys/fs/cgroup/memory/memory.limit_in_bytes", "104857600\n"),
        ]);
        assert_eq!(found(&docker).0, 100);
    }

    #[test]
    fn the_address_space_is_a_limit_too() {
        let system = system(&[("proc/self/status", "VmPeak: 9 kB\nVmSize:\t  1048576 kB\n")]);
        let available = available_in(system.path(), Some(3 << 30)).unwrap();
        assert_eq!(available.bytes, 2 << 30);
        assert!(available.by.contains("ulimit -v"));
    }

    #[test]
    fn too_much_is_an_error_with_both_numbers() {
        let available = Available { bytes: 100 * MIB, by: "on this machine".to_owned() };
        let error = too_little(200 * MIB, "the ring", &available).to_string();
        assert!(error.contains("the ring takes 200 MiB of memory, but only 100 MiB"), "{error}");
        let error = reserved::<u64>(usize::MAX, "a list").unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Memory);
        assert!(reserved::<u64>(1 << 59, "a list").unwrap_err().what().contains("a list"));
        assert_eq!(zeroed::<u8>(2, "a list").unwrap(), [0, 0]);
        assert!(zeroed::<u64>(1 << 59, "a list").unwrap_err().what().contains("a list"));
        check(1, "nothing").unwrap();
        assert_eq!(with_room(1 << 20, "a library", || 7).unwrap(), 7);
        let refused = with_room(1 << 62, "a library", || unreachable!("there is no room"));
        let error = refused.unwrap_err();
        assert!(error.what().contains("a library") && super::refused(&error), "{error}");
        assert_eq!(with_address_space(1 << 20, || 7).unwrap(), 7);
        let refused = with_address_space(1 << 62, || unreachable!("there is no room"));
        assert_eq!(refused.unwrap_err().kind(), io::ErrorKind::OutOfMemory);
        let other = io::Error::from(io::ErrorKind::NotFound);
        assert!(!super::refused(&Error::io("a", "cannot read", other)));
        assert!(asking(may_be_refused) && !may_be_refused());
        // More than any machine has.
        #[cfg(target_os = "linux")]
        assert_eq!(check(1 << 62, "all of it").unwrap_err().kind(), ErrorKind::Memory);
    }
}
