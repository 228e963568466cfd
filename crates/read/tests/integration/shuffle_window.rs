//! Windows that come block by block if not all chunks fit into memory.

use std::collections::HashSet;

use hsipack_read::plan::{Crop, Item, LastBatch, Patches, State};
use hsipack_read::{
    CacheChoice, CacheKind, Dataset, Loader, LoaderOptions, OnDamage, PreparedLoader,
    ShuffleWindow, Workload,
};
use serde_json::json;

use crate::images;
use crate::support::{StackSpec, Written, write_dataset};

/// Bytes of all chunks of the images.
const IMAGES: u64 = 8 * 30 * (5 * 20 * 7 * 2) + 4 * 21 * (6 * 9 * 7 * 2);

/// Slabs of rows, and tiles that extend beyond the edges.
fn made() -> (tempfile::TempDir, Written) {
    let folder = tempfile::tempdir().unwrap();
    let stacks = [
        StackSpec::new(150, 20, 7, 8).masks(&["a"]).tile(5, 20),
        StackSpec::new(40, 23, 7, 4).masks(&["a"]).tile(6, 9),
    ];
    let written = write_dataset(&folder.path().join("made"), &stacks, |_| json!({}));
    (folder, written)
}

fn patches(batch_size: usize, size: u32) -> LoaderOptions {
    let mut options = images::options(batch_size);
    options.patches = Some(("a".into(), Patches::new(size, size)));
    options.masks = Some(vec!["a".into()]);
    options
}

fn crops(batch_size: usize) -> LoaderOptions {
    let mut options = images::options(batch_size);
    options.plan.crop = Crop::Random { rows: 9, columns: 8, per_sample: 40, min_labelled: 0.0 };
    options
}

/// The items of the rest of an epoch, with the bytes of their images and masks.
fn epoch(loader: &mut Loader) -> Vec<(Item, Vec<u8>, Vec<u8>)> {
    let mut all = Vec::new();
    for batch in loader.epoch() {
        let batch = batch.unwrap();
        let (image, mask) = (batch.image(), batch.mask("a").unwrap());
        let bytes = image.bytes.len() / batch.len();
        let mask_bytes = mask.bytes.len() / batch.len();
        for (position, item) in batch.items().iter().enumerate() {
            let image = &image.bytes[position * bytes..][..bytes];
            let mask = &mask.bytes[position * mask_bytes..][..mask_bytes];
            all.push((*item, image.to_vec(), mask.to_vec()));
        }
    }
    all
}

fn items(all: &[(Item, Vec<u8>, Vec<u8>)]) -> Vec<Item> {
    all.iter().map(|(item, ..)| *item).collect()
}

#[test]
fn windows_are_those_of_a_global_shuffle_in_another_order() {
    let (_folder, written) = made();
    let dataset = Dataset::open(&written.path).unwrap();
    for options in [patches(16, 9), patches(16, 1), crops(16)] {
        let whole = LoaderOptions { cache: CacheKind::None, ..options.clone() };
        let mut whole = Loader::new(&dataset, whole).unwrap();
        let options = LoaderOptions { cache_bytes: IMAGES / 3, ..options };
        let mut loader = Loader::new(&dataset, options).unwrap();
        let window = loader.cache().shuffle_window.clone().expect("what was asked for");
        assert!(window.blocks < window.of_blocks, "{window:?}");
        assert_eq!(whole.cache().shuffle_window, None);
        for _ in 0..3 {
            let (all, have) = (epoch(&mut whole), epoch(&mut loader));
            assert_ne!(items(&all), items(&have));
            assert_eq!(all.len(), have.len());
            let all: HashSet<_> = all.into_iter().collect();
            assert!(have.into_iter().all(|window| all.contains(&window)));
        }
    }
}

#[test]
fn chunks_are_decoded_about_once_an_epoch_and_no_more_are_held_than_said() {
    let (_folder, written) = made();
    let dataset = Dataset::open(&written.path).unwrap();
    let (images, masks) = (8 * 30 + 4 * 21, 8 * 30 + 4 * 21);
    for (options, most) in [(patches(16, 5), 1.25), (patches(16, 1), 1.0), (crops(16), 1.0)] {
        let options = LoaderOptions { cache_bytes: IMAGES / 3, threads: 1, ..options };
        let mut loader = Loader::new(&dataset, options).unwrap();
        let epochs = 5;
        let mut held = 0;
        for _ in 0..epochs {
            while let Some(batch) = loader.next_batch() {
                drop(batch.unwrap());
                held = held.max(loader.cached_bytes());
            }
        }
        // Loaders work ahead, so up to one group of the sixth epoch was also decoded.
        let stats = loader.statistics().loader;
        let decoded = (stats.chunks - stats.cached_chunks) as f64;
        let window = loader.cache().shuffle_window.clone().unwrap();
        assert!(window.decoded <= most, "{window:?}");
        let all = f64::from(epochs * (images + masks));
        // Chunks that two consecutive groups share are decoded once.
        assert!(decoded >= 0.8 * all, "{decoded} of {all}");
        assert!(decoded / all <= (most + 0.01) * 1.1, "{decoded} of {all}: {window:?}");
        // A pixel has one byte in a mask and 14 bytes in an image.
        let limit = loader.cache().limit_bytes;
        assert!(held <= limit + limit / 14 && held > limit / 4, "{held} of {limit}");
    }
}

#[test]
fn threads_that_are_ahead_of_others_decode_no_chunk_for_every_window() {
    let (_folder, written) = made();
    let dataset = Dataset::open(&written.path).unwrap();
    let options =
        LoaderOptions { cache_bytes: IMAGES / 8, threads: 3, slots: 4, ..patches(1500, 1) };
    let mut loader = Loader::new(&dataset, options).unwrap();
    let windows: usize = loader.epoch().map(|batch| batch.unwrap().len()).sum();
    let stats = loader.statistics().loader;
    let (decoded, chunks) = (stats.chunks - stats.cached_chunks, 2 * (8 * 30 + 4 * 21));
    // Each thread decodes each chunk at most once, although the threads also begin the next epoch.
    assert!(decoded <= 3 * chunks, "{decoded} of {chunks} for {windows} windows");
}

#[test]
fn a_training_goes_on_in_its_order_where_there_is_other_memory() {
    let (_folder, written) = made();
    let dataset = Dataset::open(&written.path).unwrap();
    for bytes in [IMAGES / 3, 0] {
        let options = LoaderOptions { cache_bytes: bytes, ..patches(16, 5) };
        let mut loader = Loader::new(&dataset, options.clone()).unwrap();
        let whole = items(&epoch(&mut loader));
        loader.set_epoch(0);
        let mut parts: Vec<Item> = Vec::new();
        for batch in loader.epoch().take(20) {
            parts.extend(batch.unwrap().items());
        }
        let state = loader.state();
        assert_eq!(state.shuffle_window, (bytes > 0).then_some(bytes));
        let text = state.to_json();
        let state = hsipack_read::plan::State::from_json(&text).unwrap();
        // More or less memory, and another batch size.
        let elsewhere = LoaderOptions { cache_bytes: IMAGES / 3 - bytes, ..patches(7, 5) };
        let mut loader = Loader::with_state(&dataset, elsewhere.clone(), &state).unwrap();
        parts.extend(items(&epoch(&mut loader)));
        assert_eq!(parts, whole);

        let other = ShuffleWindow::Bytes(IMAGES / 5);
        let other = LoaderOptions { shuffle_window: other, ..elsewhere };
        let error = Loader::with_state(&dataset, other, &state).unwrap_err();
        assert!(error.to_string().contains("shuffle window"), "{error}");
    }
}

/// Each state decides the shuffle window of its own epoch only.
#[test]
fn states_with_other_shuffle_windows_are_resumed_one_after_the_other() {
    let (_folder, written) = made();
    let dataset = Dataset::open(&written.path).unwrap();
    let with_cache = |bytes| LoaderOptions { cache_bytes: bytes, ..patches(16, 5) };
    let states: Vec<State> = [IMAGES / 3, IMAGES / 5, 0]
        .into_iter()
        .map(|bytes| {
            let mut loader = Loader::new(&dataset, with_cache(bytes)).unwrap();
            loader.epoch().next().unwrap().unwrap();
            loader.state()
        })
        .collect();
    let chosen = PreparedLoader::new(&dataset, with_cache(IMAGES / 3)).unwrap();
    let mut prepared = chosen.clone();
    for state in &states {
        prepared = prepared.resumed(state).unwrap();
        assert_eq!(prepared.state(), state);
        let mut loader = prepared.clone().start().unwrap();
        assert_eq!(loader.state(), *state);
        loader.next_batch().unwrap().unwrap();
    }
    // Between epochs, the loader decides again.
    let between = prepared.resumed(chosen.state()).unwrap();
    assert_eq!(between.cache().shuffle_window, chosen.cache().shuffle_window);
}

#[test]
fn ranks_share_the_epoch_of_a_window_that_is_asked_for() {
    let (_folder, written) = made();
    let dataset = Dataset::open(&written.path).unwrap();
    let rank = |rank: usize, shuffle_window: ShuffleWindow| {
        let mut options = LoaderOptions { shuffle_window, ..patches(8, 5) };
        options.share = hsipack_read::plan::Share { rank, world_size: 2 };
        options.plan.last = LastBatch::Short;
        options.cache_bytes = IMAGES / 3;
        Loader::new(&dataset, options).unwrap()
    };
    let auto = rank(0, ShuffleWindow::Auto);
    assert_eq!(auto.cache().shuffle_window, None);
    assert!(auto.cache().why.contains("is not chosen automatically"), "{:?}", auto.cache());
    let requested = ShuffleWindow::Bytes(IMAGES / 3);
    let [first, second] = [0, 1].map(|number| items(&epoch(&mut rank(number, requested))));
    let mut all = Loader::new(&dataset, patches(16, 5)).unwrap();
    let all: HashSet<_> = items(&epoch(&mut all)).into_iter().collect();
    let both: HashSet<_> = first.iter().chain(&second).copied().collect();
    assert_eq!((both.len(), first.len() + second.len()), (all.len(), all.len()));
    assert_eq!(both, all);
}

#[test]
fn errors_of_decoding_ahead_appear_where_the_batch_is_needed() {
    let (_folder, written) = made();
    let shard = written.path.join("150x20x7/image/c/0/0/0/0");
    let mut bytes = std::fs::read(&shard).unwrap();
    bytes[40] ^= 1;
    std::fs::write(&shard, bytes).unwrap();
    let dataset = Dataset::open(&written.path).unwrap();
    let options = LoaderOptions { cache_bytes: IMAGES / 3, ..patches(16, 5) };
    let mut loader = Loader::new(&dataset, options.clone()).unwrap();
    let error = loader.epoch().find_map(Result::err).expect("a damaged chunk");
    assert!(error.to_string().contains("sample 0"), "{error}");
    let options = LoaderOptions { on_damage: OnDamage::Skip, ..options };
    let mut loader = Loader::new(&dataset, options).unwrap();
    let mut windows = 0;
    // A batch of nothing but damage is replaced by padding.
    loader.epoch().for_each(|batch| {
        windows += batch.unwrap().items().iter().filter(|item| !item.padding).count();
    });
    let skipped = loader.statistics().loader.skipped as usize;
    assert!(skipped > 0);
    assert_eq!(windows + skipped, loader.plan().items());
}

#[test]
fn windows_that_cannot_be_are_refused_with_what_can() {
    let (_folder, written) = made();
    let dataset = Dataset::open(&written.path).unwrap();
    let refused = |options: LoaderOptions| {
        let error = Loader::new(&dataset, options).unwrap_err();
        assert!(error.remedy().is_some(), "{error}");
        error.to_string()
    };
    let requested = ShuffleWindow::Bytes(IMAGES / 3);
    let whole = LoaderOptions { shuffle_window: requested, ..images::options(4) };
    assert!(refused(whole).contains("windows cannot be read block by block in this order"));
    let small = LoaderOptions { shuffle_window: ShuffleWindow::Bytes(1000), ..crops(4) };
    assert!(refused(small).contains("larger than half of it"));
    let cache = CacheKind::Compressed;
    let other =
        LoaderOptions { shuffle_window: requested, cache, cache_bytes: 1 << 20, ..crops(4) };
    assert!(refused(other).contains("cannot be combined with cache kind compressed"));
    // Two cubes do not fit, so there is no shuffle window.
    let little = LoaderOptions { cache_bytes: 40_000, ..crops(4) };
    let little = Loader::new(&dataset, little).unwrap();
    assert!(little.cache().why.contains("two cubes, or two blocks"), "{:?}", little.cache());
    assert_eq!(little.cache().shuffle_window, None);
    let all =
        LoaderOptions { shuffle_window: ShuffleWindow::All, cache_bytes: IMAGES / 3, ..crops(4) };
    assert_eq!(Loader::new(&dataset, all).unwrap().cache().shuffle_window, None);
    let large = LoaderOptions { shuffle_window: ShuffleWindow::Bytes(1 << 30), ..crops(4) };
    assert!(Loader::new(&dataset, large).unwrap().cache().why.contains("all chunks fit"));
}

#[test]
fn an_outlook_tells_what_a_loader_would_read_and_keep() {
    let (_folder, written) = made();
    let dataset = Dataset::open(&written.path).unwrap();
    let some = |options: LoaderOptions| LoaderOptions { samples: Some(vec![1, 2, 9]), ..options };
    for options in [patches(16, 9), some(patches(16, 1)), some(crops(16)), images::options(2)] {
        for cache_bytes in [0, IMAGES / 3] {
            let options = LoaderOptions { cache_bytes, ..options.clone() };
            let workload = Workload::of(&dataset, &options).unwrap();
            let mut loader = Loader::new(&dataset, options).unwrap();
            let shown = |cache: &CacheChoice| CacheChoice { why: String::new(), ..cache.clone() };
            assert_eq!(shown(&workload.cache), shown(loader.cache()));
            assert_eq!(workload.windows(), loader.plan().items() as u64);
            let cache = workload.cache.clone();
            assert_eq!(Workload { cache, ..loader.workload() }, workload);
            let mut read = HashSet::new();
            for batch in loader.epoch() {
                read.extend(batch.unwrap().ids());
            }
            assert_eq!(workload.samples.iter().copied().collect::<HashSet<_>>(), read);
        }
    }
    // A whole cube has each of its chunks once; a pixel is in one chunk.
    let whole = Workload::of(&dataset, &images::options(2)).unwrap();
    assert_eq!((whole.decoded, whole.chunks), (1.0, (8.0 * 30.0 + 4.0 * 21.0) / 12.0));
    let spectra = Workload::of(&dataset, &some(patches(16, 1))).unwrap();
    let chunks = (2 * 30 + 21) as f64;
    assert!((spectra.chunks - 1.0).abs() < 1e-9, "{spectra:?}");
    assert!((spectra.decoded - spectra.windows() as f64 / chunks).abs() < 1e-9, "{spectra:?}");
    let wrong = LoaderOptions { splits: vec!["test".into()], ..patches(16, 1) };
    assert!(Workload::of(&dataset, &wrong).is_err());
}
