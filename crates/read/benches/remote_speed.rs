//! How close is reading from a server to the speed of the link, and to the speed of decoding?
//!
//! In one run, alternating, for links of 200 MB/s and without a limit, with a latency of 30 ms:
//! bare ranged GETs of the same shards, as many at a time as the loader may send, whose bytes are
//! discarded; the loader on the files; the loader on the server, for an epoch from the first
//! request on; the same while it fills a local cache; the second epoch, at whose beginning blocks
//! may still be waiting to be written into the cache; later epochs. Server, link and loader share
//! the processor.
//!
//! `cargo bench -p hsipack-read --bench remote_speed [-- DIR [CUBES [REPEATS]]]`

#[path = "../tests/support/mod.rs"]
mod support;

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use hsipack_format::{Codec, Compressor};
use hsipack_read::{CacheKind, Dataset, Loader, LoaderOptions, OpenOptions};
use hsipack_store::local_cache::LocalCache;
use hsipack_store::remote::is_url;
use hsipack_testing::server::{Link, Server};
use serde_json::json;
use support::{LZ4, StackSpec, median, reflectance, write_dataset_of};

const BATCH: usize = 6;
/// How many bare GETs are sent at a time, and their bytes.
const CONNECTIONS: usize = 16;
const RANGE: u64 = 8 << 20;

fn main() {
    let mut args = std::env::args().skip(1).filter(|arg| arg != "--bench");
    let folder = args.next().map_or_else(std::env::temp_dir, PathBuf::from);
    let cubes: usize = args.next().and_then(|arg| arg.parse().ok()).unwrap_or(24);
    let repeats: usize = args.next().and_then(|arg| arg.parse().ok()).unwrap_or(5);
    let folder = folder.join("hsipack-remote-bench");
    let path = folder.join(format!("cubes{cubes}"));
    if !path.join("SHA256SUMS").exists() {
        std::fs::create_dir_all(&path).expect("a writable folder");
        let spec = StackSpec { per_shard: 6, ..StackSpec::new(480, 640, 100, cubes) }.tile(16, 640);
        let codec = Codec { compressor: Compressor::Lz4Hc, level: 4, ..LZ4 };
        let spec = StackSpec { codec: Some(codec), ..spec };
        write_dataset_of(&path, &[spec], |_| json!({}), &reflectance);
    }
    let name = format!("cubes{cubes}");
    let shards = shards(&path);
    let stored: u64 = shards.iter().map(|(_, len)| len).sum();
    for rate in [Some(200_000_000), None] {
        let link = Link { latency: Duration::from_millis(30), rate };
        let server = Server::behind(&folder, link);
        let (mut bare, mut local, mut remote, mut first) = (vec![], vec![], vec![], vec![]);
        let (mut filling, mut seconds, mut later) = (vec![], [vec![], vec![]], [vec![], vec![]]);
        for _ in 0..repeats {
            bare.push(get_all(&server, &name, &shards));
            let files = epochs(&path, None);
            local.push(files.first);
            let served = epochs(&server.url(&name), None);
            remote.push(served.first);
            first.push(served.first_batch);
            let cache = folder.join("cache");
            let _ = std::fs::remove_dir_all(&cache);
            let cache = LocalCache { folder: cache, bytes: Some(1 << 40) };
            let kept = epochs(&server.url(&name), Some(&cache));
            filling.push(kept.first);
            for (case, times) in [kept, files].iter().enumerate() {
                seconds[case].push(times.second);
                later[case].push(times.later);
            }
        }
        let limit = median(&bare).max(median(&local));
        println!(
            "link: {link:?}; {cubes} cubes, {} MB stored; medians of {repeats}",
            stored / 1_000_000
        );
        let rows = [
            ("bare GETs", &bare),
            ("files", &local),
            ("server", &remote),
            ("server, filling a cache", &filling),
            ("the cache, second epoch", &seconds[0]),
            ("files, second epoch", &seconds[1]),
            ("the cache, later epochs", &later[0]),
            ("files, later epochs", &later[1]),
        ];
        for (what, times) in rows {
            println!(
                "    {what:24} {:6.1} cubes/s  {:7.1} MB/s stored  {:5.1} % of the slower of the first two",
                cubes as f64 / median(times),
                stored as f64 / 1e6 / median(times),
                100.0 * limit / median(times)
            );
        }
        for (what, [cache, files]) in [("the second epoch", &seconds), ("later epochs", &later)] {
            let ratios: Vec<f64> =
                files.iter().zip(cache).map(|(files, cache)| files / cache).collect();
            let least = ratios.iter().copied().fold(f64::INFINITY, f64::min);
            let most = ratios.iter().copied().fold(0.0, f64::max);
            println!(
                "    {what} from the cache: {:.3} times as fast as from files ({least:.3} to {most:.3})",
                median(&ratios)
            );
        }
        let bytes = stored as f64 * BATCH as f64 / cubes as f64;
        let target = 0.03 + 1.5 * bytes * median(&bare) / stored as f64;
        println!(
            "    first batch of {BATCH}, from opening the dataset on: {:.3} s; latency and 1.5 times its bytes: {target:.3} s",
            median(&first)
        );
    }
}

/// Paths of the shards in the dataset, and their lengths.
fn shards(path: &Path) -> Vec<(String, u64)> {
    let dataset = Dataset::open(path).expect("a dataset");
    let image = &dataset.stacks()[0].image;
    let shard = |number| {
        let shard = image.shard_path(number);
        let len = shard.metadata().expect("a shard").len();
        (shard.strip_prefix(path).expect("below").display().to_string(), len)
    };
    (0..image.shards()).map(shard).collect()
}

/// Epochs in seconds.
struct Times {
    /// Of the first one, from opening the dataset on.
    first: f64,
    first_batch: f64,
    second: f64,
    /// Of each of two later ones.
    later: f64,
}

fn epochs(path: &Path, cache: Option<&LocalCache>) -> Times {
    let begun = Instant::now();
    let open = OpenOptions { local_cache: cache.cloned(), ..OpenOptions::default() };
    let dataset = Dataset::open_with(path, open).expect("a dataset");
    let mut options = LoaderOptions::new(BATCH);
    options.cache = CacheKind::None;
    // The last epoch is not timed: near the end of an epoch, loaders begin the next one.
    options.end_epoch = if is_url(path) && cache.is_none() { Some(1) } else { Some(5) };
    let mut loader = Loader::new(&dataset, options).expect("sound options");
    let mut first_batch = None;
    for batch in loader.epoch() {
        assert!(!batch.expect("sound").is_empty());
        first_batch.get_or_insert(begun.elapsed().as_secs_f64());
    }
    let first = begun.elapsed().as_secs_f64();
    let mut epoch = || {
        let begun = Instant::now();
        loader.epoch().for_each(|batch| drop(batch.expect("sound")));
        begun.elapsed().as_secs_f64()
    };
    let second = epoch();
    let later = (epoch() + epoch()) / 2.0;
    Times { first, first_batch: first_batch.expect("a batch"), second, later }
}

/// Seconds to fetch all shards and discard them.
fn get_all(server: &Server, name: &str, shards: &[(String, u64)]) -> f64 {
    let ranges: Vec<_> = shards
        .iter()
        .flat_map(|(path, len)| {
            (0..*len)
                .step_by(RANGE as usize)
                .map(move |start| (path, start, (start + RANGE).min(*len)))
        })
        .collect();
    let next = AtomicUsize::new(0);
    let url = server.url(name);
    let url = url.to_str().expect("a URL").strip_prefix("http://").expect("a URL");
    let (host, base) = url.split_once('/').expect("a URL");
    let begun = Instant::now();
    std::thread::scope(|scope| {
        for _ in 0..CONNECTIONS {
            scope.spawn(|| {
                let mut stream = TcpStream::connect(host).expect("the server");
                let mut answer = BufReader::new(stream.try_clone().expect("the same"));
                let mut body = vec![0; RANGE as usize];
                while let Some((path, start, end)) =
                    ranges.get(next.fetch_add(1, Ordering::Relaxed))
                {
                    let last = end - 1;
                    write!(
                        stream,
                        "GET /{base}/{path} HTTP/1.1\r\nRange: bytes={start}-{last}\r\n\r\n"
                    )
                    .expect("the server");
                    let mut line = String::new();
                    while line != "\r\n" {
                        line.clear();
                        answer.read_line(&mut line).expect("a header");
                    }
                    answer.read_exact(&mut body[..(end - start) as usize]).expect("a body");
                }
            });
        }
    });
    begun.elapsed().as_secs_f64()
}
