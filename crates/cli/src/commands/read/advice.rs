//! What could make it faster, in options.

use hsipack_format::{Codec, Compressor};
use hsipack_read::{CacheKind, Loader};

use super::figures::Limit;
use super::{Args, CacheArg, VerifyArg, machine};
use crate::output;
use crate::reading::StoreArg;

/// What to try, best first; empty if the loader is as fast as the consumer.
pub fn advice(limit: Limit, loader: &Loader, args: &Args) -> Vec<String> {
    match limit {
        Limit::Consumer => Vec::new(),
        Limit::Disk => disk(loader, args),
        Limit::Decode => decode(loader, args),
        Limit::Plan => match args.min_labelled {
            Some(_) => vec!["a lower --min-labelled: up to 32 crops are drawn for it".to_owned()],
            None => vec!["more --epochs: files are opened in the first one".to_owned()],
        },
    }
}

fn disk(loader: &Loader, args: &Args) -> Vec<String> {
    let mut tips = Vec::new();
    if args.rate_limit.is_some() {
        tips.push("a higher --rate-limit".to_owned());
    }
    let stored = machine::stored_bytes(loader.dataset().path());
    if matches!(args.cache, CacheArg::None) && fits(stored) {
        tips.push(format!("--cache compressed --cache-size {}", size(stored)));
    }
    if args.rate_limit.is_none() && matches!(args.store, StoreArg::Mmap) {
        tips.push("--store direct, or --store pread on a network disk".to_owned());
    }
    if codec(loader).is_some_and(|codec| codec.compressor != Compressor::Zstd) {
        tips.push("packing with --codec zstd, for less to read".to_owned());
    }
    tips.push("a faster disk".to_owned());
    tips
}

fn decode(loader: &Loader, args: &Args) -> Vec<String> {
    let mut tips = Vec::new();
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    if loader.options().threads < cores {
        tips.push(format!("--threads {cores}, one a core"));
    }
    let decoded = loader.dataset().decoded_bytes();
    if loader.options().cache != CacheKind::Decoded && fits(decoded) {
        tips.push(format!("--cache decoded --cache-size {}", size(decoded)));
    }
    if let Some(codec) = codec(loader)
        && !matches!(codec.compressor, Compressor::Lz4 | Compressor::Lz4Hc)
    {
        let slow = codec.compressor.name();
        tips.push(format!("packing with --codec lz4hc, which decodes faster than {slow}"));
    }
    if let Some([rows, columns]) = tiles(loader, args) {
        tips.push(format!(
            "packing with --chunk {rows}x{columns}: for a crop, whole rows of the scene are decoded"
        ));
    }
    if matches!(args.verify, VerifyArg::Always) {
        tips.push("--verify once".to_owned());
    }
    tips.push("more cores".to_owned());
    tips
}

/// The codec of the first stack's images.
fn codec(loader: &Loader) -> Option<Codec> {
    loader.dataset().stacks().first()?.image.meta().codecs.blosc
}

/// The size of crops, if chunks are whole rows and crops much narrower.
fn tiles(loader: &Loader, args: &Args) -> Option<[u32; 2]> {
    let [rows, columns] = args.crop.or(args.centre_crop).or(args.grid)?;
    let image = &loader.dataset().stacks().first()?.image;
    let width = image.shape().columns;
    let narrow = image.grid().tile().columns == width && columns as usize * 2 <= width;
    // Smaller tiles cost more than they save.
    narrow.then_some([rows, columns].map(|side| side.max(32)))
}

/// Half of the memory that is left may be used.
fn fits(bytes: u64) -> bool {
    machine::available_memory().is_some_and(|available| bytes <= available / 2)
}

/// As an option takes it, rounded up.
fn size(bytes: u64) -> String {
    output::bytes(bytes + bytes / 50).replace(' ', "")
}
