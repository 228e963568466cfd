//! Processes that share a local cache: they fetch every block once, and none of them is held up by
//! another that is killed or stopped.

use std::env;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use hsipack_read::plan::Order;
use hsipack_read::store::{RemoteStore, Store};
use hsipack_read::{CacheKind, Dataset, Loader, LoaderOptions, OpenOptions};
use hsipack_store::local_cache::{CacheFolder, LocalCache};
use hsipack_testing::server::{Link, Server};
use serde_json::json;

use crate::support::{StackSpec, write_dataset};

/// Bytes of a stored cube. Two of them are too large for one block.
const CUBE: u64 = 60 * 24 * 100 * 2 + 4;
const CUBES: usize = 90;
/// The folder of the dataset, its URL, the folder of the cache, and the seed, for a process that
/// reads.
const VARIABLES: [&str; 4] = ["FILES", "URL", "CACHE", "SEED"];

/// A dataset on a server behind a slow link, and an empty local cache.
struct Served {
    folder: tempfile::TempDir,
    server: Server,
}

/// A process that reads one epoch; it is killed when it is dropped.
struct Reader(Child);

impl Served {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let stack = StackSpec { codec: None, per_shard: 20, ..StackSpec::new(60, 24, 100, CUBES) };
        write_dataset(&folder.path().join("made"), &[stack.tile(60, 24)], |_| json!({}));
        let link = Link { latency: Duration::from_millis(20), rate: Some(20_000_000) };
        let server = Server::behind(folder.path(), link);
        Self { folder, server }
    }

    fn cache(&self) -> PathBuf {
        self.folder.path().join("cache")
    }

    /// Starts a process that reads an epoch with this seed.
    fn read(&self, seed: u64) -> Reader {
        let (files, url) = (self.folder.path().join("made"), self.server.url("made"));
        let seed = PathBuf::from(seed.to_string());
        let mut command = Command::new(env::current_exe().unwrap());
        command.args(["--exact", "shared_cache::a_process_that_reads", "--ignored", "--nocapture"]);
        command.envs(VARIABLES.into_iter().zip([files, url, self.cache(), seed]));
        Reader(command.stdout(Stdio::null()).spawn().unwrap())
    }

    /// Fetched chunks, as a multiple of the dataset's size.
    fn fetched(&self) -> f64 {
        let ranges = self.server.requests().into_iter().filter_map(|request| request.range);
        let bytes: u64 = ranges.map(|(first, last)| last + 1 - first).sum();
        bytes as f64 / (CUBES as u64 * CUBE) as f64
    }

    /// Waits until a part of the dataset was fetched.
    fn wait_for(&self, part: f64) {
        let begun = Instant::now();
        while self.fetched() < part {
            assert!(begun.elapsed() < Duration::from_secs(60), "{}", self.fetched());
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Everything in the cache is right.
    fn assert_intact(&self) {
        let cache = CacheFolder::open(&self.cache()).unwrap();
        let checked = cache.check().unwrap();
        assert_eq!((checked.good, checked.damaged), (CUBES as u64, Vec::new()));
    }
}

impl Reader {
    /// Waits until the process has read everything, and found it right.
    fn succeeds(mut self) {
        assert!(self.0.wait().unwrap().success());
    }

    fn send(&self, signal: libc::c_int) {
        // SAFETY: the process was not waited for yet, so the number is still its own.
        assert_eq!(unsafe { libc::kill(self.0.id() as libc::pid_t, signal) }, 0);
    }

    /// Stops all threads of the process.
    fn stop(&self) {
        self.send(libc::SIGSTOP);
        let (process, mut status) = (self.0.id() as libc::pid_t, 0);
        // SAFETY: `status` outlives the call. It does not end the wait for the end of the process.
        assert_eq!(unsafe { libc::waitpid(process, &mut status, libc::WUNTRACED) }, process);
        assert!(libc::WIFSTOPPED(status), "{status}");
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn processes_with_the_same_order_fetch_everything_once() {
    let served = Served::new();
    let readers = [served.read(1), served.read(1)];
    readers.into_iter().for_each(Reader::succeeds);
    assert!(served.fetched() <= 1.1, "{}", served.fetched());
    served.assert_intact();
}

#[test]
fn processes_with_other_orders_fetch_hardly_more() {
    let served = Served::new();
    let readers = [served.read(1), served.read(2), served.read(3)];
    readers.into_iter().for_each(Reader::succeeds);
    assert!(served.fetched() <= 1.2, "{}", served.fetched());
    served.assert_intact();
}

#[test]
fn a_killed_process_leaves_its_blocks_to_the_others() {
    let served = Served::new();
    let (killed, other) = (served.read(1), served.read(1));
    served.wait_for(0.4);
    killed.send(libc::SIGKILL);
    other.succeeds();
    // What the killed process was fetching is fetched again.
    assert!(served.fetched() <= 1.5, "{}", served.fetched());
    served.assert_intact();
}

#[test]
fn a_stopped_process_holds_nobody_up() {
    let served = Served::new();
    let (stopped, other) = (served.read(1), served.read(1));
    served.wait_for(0.4);
    // A process that stops while it holds the lock of the cache would stop all others.
    // While it holds the lock of the cache, nobody else can write there for 30 s. So it is stopped at another moment.
    let lock = File::open(served.cache().join("total")).unwrap();
    lock.lock().unwrap();
    stopped.stop();
    drop(lock);
    let begun = Instant::now();
    other.succeeds();
    assert!(begun.elapsed() < Duration::from_secs(30), "{:?}", begun.elapsed());
    assert!(served.fetched() <= 1.5, "{}", served.fetched());
    stopped.send(libc::SIGCONT);
    stopped.succeeds();
    served.assert_intact();
}

#[test]
#[ignore = "run by the tests above, in a process of its own"]
fn a_process_that_reads() {
    let [files, url, cache, seed] =
        VARIABLES.map(|name| env::var_os(name).map(PathBuf::from).unwrap());
    let seed = seed.to_str().unwrap().parse().unwrap();
    let local_cache = Some(LocalCache { folder: cache, bytes: Some(1 << 30) });
    // Little is kept in memory, so blocks are read from the cache.
    let store = Some(Arc::new(RemoteStore::with_bytes(16 * CUBE)) as Arc<dyn Store>);
    let options = OpenOptions { store, local_cache, ..OpenOptions::default() };
    let dataset = Dataset::open_with(&url, options).unwrap();
    let files = Dataset::open(Path::new(&files)).unwrap();
    let mut options = LoaderOptions::new(2);
    (options.cache, options.end_epoch) = (CacheKind::None, Some(1));
    (options.threads, options.slots) = (2, 4);
    (options.plan.seed, options.plan.order) = (seed, Order::Shuffled);
    let mut want = Loader::new(&files, options.clone()).unwrap();
    let mut loader = Loader::new(&dataset, options).unwrap();
    for batch in loader.epoch() {
        let (batch, want) = (batch.unwrap(), want.next_batch().unwrap().unwrap());
        assert!(batch.image().bytes == want.image().bytes);
    }
    drop(loader);
    dataset.local_cache().unwrap().flush();
}
