//! The loader: contents, order, errors, resumption, ends.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use hsipack_read::plan::{Crop, LastBatch, Order, PlanOptions, Share, State};
use hsipack_read::store::{Limited, Link, StoreKind};
use hsipack_read::{
    Batch, CacheKind, Dataset, Error, ErrorKind, Loader, LoaderOptions, OnDamage, OpenOptions,
};
use hsipack_testing::skipped;
use proptest::prelude::*;
use serde_json::json;

use crate::support::{StackSpec, Written, write_dataset};

fn made(stacks: &[StackSpec]) -> (tempfile::TempDir, Written) {
    let folder = tempfile::tempdir().unwrap();
    let extra =
        |id: usize| json!({ "label": id % 3, "split": if id % 4 == 3 { "test" } else { "train" } });
    let written = write_dataset(&folder.path().join("made"), stacks, extra);
    (folder, written)
}

fn options(batch_size: usize) -> LoaderOptions {
    let mut options = LoaderOptions::new(batch_size);
    options.memory.locked = false;
    options.memory.no_huge_pages = true;
    options.slots = 3;
    options.threads = 3;
    options
}

/// Checks that every value of a batch is the written one. `windows.rs` checks windows that reach
/// beyond the edge.
pub fn check(batch: &Batch, written: &Written, bands: Option<&[usize]>) {
    let image = batch.image();
    let bytes = image.bytes.len() / batch.len();
    for (position, item) in batch.items().iter().enumerate() {
        let (window, shape) = (item.window, written.shape(item.sample));
        if !window.is_inside(shape.rows, shape.columns) {
            continue;
        }
        let rows = window.row_range();
        let columns = window.column_range();
        let want = written.image(item.sample, rows.clone(), columns.clone(), bands);
        assert!(image.bytes[position * bytes..][..bytes] == want, "image {item:?}");
        for mask in batch.masks() {
            let size = mask.bytes.len() / batch.len();
            let want = written.mask(item.sample, rows.clone(), columns.clone());
            assert!(mask.bytes[position * size..][..size] == want, "mask {item:?}");
        }
    }
}

#[test]
fn a_batch_s_arrays_are_seen_as_arrays() {
    let (_folder, written) = made(&[StackSpec::new(12, 10, 7, 6).masks(&["a"]).tile(5, 10)]);
    let dataset = Dataset::open(&written.path).unwrap();
    let mut loader = Loader::new(&dataset, options(4)).unwrap();
    for batch in loader.epoch() {
        let batch = batch.unwrap();
        let image = batch.image_f16().unwrap();
        assert_eq!(image.dim(), (batch.len(), 12, 10, 7));
        assert!(batch.image().values::<f32>().is_none());
        let mask = batch.mask("a").unwrap().values::<u8>().unwrap();
        assert_eq!(mask.dim(), (batch.len(), 12, 10, 1));
        for (position, id) in batch.ids().enumerate() {
            let want = written.image(id, 3..4, 8..9, Some(&[6]));
            assert_eq!(image[[position, 3, 8, 6]].to_le_bytes(), want[..]);
            assert_eq!(mask[[position, 3, 8, 0]], written.mask(id, 3..4, 8..9)[0]);
        }
    }
}

fn ids(loader: &mut Loader) -> Vec<usize> {
    loader.epoch().flat_map(|batch| batch.unwrap().ids().collect::<Vec<_>>()).collect()
}

#[test]
fn epochs_hold_every_sample_once_with_its_values_and_differ() {
    let (_folder, written) = made(&[StackSpec::new(12, 10, 7, 23).masks(&["a", "b"]).tile(5, 10)]);
    let dataset = Dataset::open(&written.path).unwrap();
    let mut loader = Loader::new(&dataset, options(4)).unwrap();
    assert_eq!(loader.batches_per_epoch().unwrap(), 6);
    let mut orders = Vec::new();
    for epoch in 0..3 {
        let mut order = Vec::new();
        for batch in loader.epoch() {
            let batch = batch.unwrap();
            assert_eq!(batch.epoch(), epoch);
            assert_eq!(batch.image().shape, [batch.len(), 12, 10, 7]);
            assert_eq!(batch.mask("b").unwrap().shape, [batch.len(), 12, 10, 1]);
            check(&batch, &written, None);
            order.extend(batch.ids());
        }
        let mut sorted = order.clone();
        sorted.sort_unstable();
        assert_eq!(sorted, (0..23).collect::<Vec<_>>());
        orders.push(order);
    }
    assert!(orders[0] != orders[1] && orders[1] != orders[2]);
}

#[test]
fn the_order_depends_on_the_seed_and_nothing_else() {
    let (_folder, written) = made(&[StackSpec::new(6, 5, 3, 40)]);
    let dataset = Dataset::open(&written.path).unwrap();
    let order = |seed: u64, threads: usize, slots: usize| {
        let mut options = options(4);
        (options.plan.seed, options.threads, options.slots) = (seed, threads, slots);
        ids(&mut Loader::new(&dataset, options).unwrap())
    };
    let first = order(1, 1, 2);
    assert_eq!(first, order(1, 4, 5));
    assert_ne!(first, order(2, 1, 2));
}

#[test]
fn every_store_and_every_cache_gives_the_same_batches() {
    let (_folder, written) = made(&[StackSpec::new(12, 10, 7, 9).masks(&["a"]).tile(5, 4)]);
    for store in StoreKind::ALL {
        let open = OpenOptions { store: Some(store.store()), ..Default::default() };
        let dataset = Dataset::open_with(&written.path, open).unwrap();
        if dataset.sample(0).is_err() {
            skipped("the temporary folder does not take O_DIRECT");
            continue;
        }
        for cache in [CacheKind::None, CacheKind::Compressed, CacheKind::Decoded] {
            // A budget for a part of the chunks, and one for all.
            for cache_bytes in [3000, 1 << 20] {
                let mut loader =
                    Loader::new(&dataset, LoaderOptions { cache, cache_bytes, ..options(2) })
                        .unwrap();
                for _ in 0..3 {
                    loader.epoch().for_each(|batch| check(&batch.unwrap(), &written, None));
                }
                assert!(loader.cached_bytes() <= cache_bytes);
                let stats = loader.statistics().loader;
                assert_eq!(stats.cached_chunks > 0, cache != CacheKind::None);
                if cache_bytes == 1 << 20 && cache != CacheKind::None {
                    let a_batch_of_epoch = stats.chunks as f64 / 3.0;
                    assert!(stats.cached_chunks as f64 >= a_batch_of_epoch, "{stats:?}");
                }
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]
    #[test]
    fn crops_hold_the_values_of_their_windows(
        tile in (1usize..20, 1usize..24), size in (1u32..=15, 1u32..=18), per_sample in 1u32..4,
        bands in prop::option::of(prop::collection::vec(0usize..3, 1..4)), seed: u64
    ) {
        let spec = StackSpec::new(15, 18, 3, 7).masks(&["a"]).tile(tile.0.min(15), tile.1.min(18));
        let (_folder, written) = made(&[spec]);
        let dataset = Dataset::open(&written.path).unwrap();
        let mut options = options(3);
        options.bands = bands.clone();
        options.plan = PlanOptions {
            seed,
            crop: Crop::Random { rows: size.0, columns: size.1, per_sample, min_labelled: 0.3 },
            ..options.plan
        };
        let mut loader = Loader::new(&dataset, options).unwrap();
        let mut counts = HashMap::new();
        for batch in loader.epoch() {
            let batch = batch.unwrap();
            check(&batch, &written, bands.as_deref());
            batch.ids().for_each(|id| *counts.entry(id).or_insert(0) += 1);
        }
        prop_assert!(counts.len() == 7 && counts.values().all(|count| *count == per_sample));
    }
}

#[test]
fn crops_have_the_labelled_share_where_there_is_one() {
    let (_folder, written) = made(&[StackSpec::new(40, 40, 2, 8).masks(&["a"]).tile(16, 16)]);
    let dataset = Dataset::open(&written.path).unwrap();
    let mut options = options(4);
    options.plan.crop = Crop::Random { rows: 8, columns: 8, per_sample: 5, min_labelled: 0.9 };
    let mut loader = Loader::new(&dataset, options).unwrap();
    for batch in loader.epoch() {
        let batch = batch.unwrap();
        let mask = batch.mask("a").unwrap();
        for crop in mask.bytes.chunks(64) {
            let labelled = crop.iter().filter(|class| **class != 0).count();
            assert!(labelled as f64 >= 0.9 * 64.0, "{labelled}");
        }
    }
}

#[test]
fn stacks_of_different_shapes_come_in_batches_of_one() {
    let stacks =
        [StackSpec::new(12, 10, 3, 9), StackSpec::new(8, 20, 3, 6), StackSpec::new(5, 5, 4, 4)];
    let (_folder, written) = made(&stacks);
    let dataset = Dataset::open(&written.path).unwrap();
    let mut loader = Loader::new(&dataset, options(4)).unwrap();
    let mut count = 0;
    for batch in loader.epoch() {
        let batch = batch.unwrap();
        check(&batch, &written, None);
        count += batch.len();
    }
    assert_eq!(count, 19);
    // Crops of one size mix stacks with the same number of bands.
    let mut options = options(4);
    options.plan.crop = Crop::Centre { rows: 5, columns: 5 };
    let mut mixed = false;
    for batch in Loader::new(&dataset, options).unwrap().epoch() {
        let batch = batch.unwrap();
        check(&batch, &written, None);
        let stacks: Vec<String> = batch.samples().map(|sample| sample.unwrap().stack).collect();
        mixed |= ["12x10x3", "8x20x3"].iter().all(|stack| stacks.iter().any(|name| name == stack));
    }
    assert!(mixed);
}

#[test]
fn ranks_share_an_epoch() {
    let (_folder, written) = made(&[StackSpec::new(4, 5, 2, 29)]);
    let dataset = Dataset::open(&written.path).unwrap();
    for world_size in [1, 2, 3, 8] {
        for last in [LastBatch::Pad, LastBatch::Short] {
            let mut all = Vec::new();
            for rank in 0..world_size {
                let mut options = options(2);
                options.share = Share { rank, world_size };
                options.plan.last = last;
                let mut loader = Loader::new(&dataset, options).unwrap();
                for batch in loader.epoch() {
                    let batch = batch.unwrap();
                    let items = batch.items().iter().filter(|item| !item.padding);
                    all.extend(items.map(|item| item.sample));
                }
            }
            all.sort_unstable();
            assert_eq!(all, (0..29).collect::<Vec<_>>(), "{world_size} {last:?}");
        }
    }
}

#[test]
fn splits_and_lists_of_samples_are_kept_to() {
    let (_folder, written) = made(&[StackSpec::new(4, 5, 2, 12)]);
    let dataset = Dataset::open(&written.path).unwrap();
    let test = LoaderOptions { splits: vec!["test".into()], ..options(2) };
    let mut order = ids(&mut Loader::new(&dataset, test).unwrap());
    order.sort_unstable();
    assert_eq!(order, [3, 7, 11]);
    let mut listed = LoaderOptions { samples: Some(vec![7, 2, 9]), ..options(2) };
    let shuffled = ids(&mut Loader::new(&dataset, listed.clone()).unwrap());
    listed.samples = Some(vec![9, 7, 2]);
    assert_eq!(ids(&mut Loader::new(&dataset, listed.clone()).unwrap()), shuffled);
    listed.plan.order = Order::Sequential;
    assert_eq!(ids(&mut Loader::new(&dataset, listed).unwrap()), [9, 7, 2], "in their order");
    let twice = LoaderOptions { samples: Some(vec![7, 2, 2]), ..options(2) };
    assert!(
        Loader::new(&dataset, twice).unwrap_err().to_string().contains("sample 2 is listed twice")
    );
    let wrong = LoaderOptions { splits: vec!["val".into()], ..options(2) };
    let error = Loader::new(&dataset, wrong).unwrap_err();
    assert!(error.to_string().contains("test, train"), "{error}");
    let train = dataset.in_splits((0..12).collect(), &["train".into()]).unwrap();
    let none = LoaderOptions { samples: Some(train), splits: vec!["test".into()], ..options(2) };
    let error = Loader::new(&dataset, none).unwrap_err();
    assert!(error.to_string().contains("no sample is in split 'test'"), "{error}");
    let wrong = LoaderOptions { samples: Some(vec![12]), ..options(2) };
    assert!(Loader::new(&dataset, wrong).unwrap_err().to_string().contains("0 to 11"));
}

#[test]
fn an_epoch_goes_on_where_its_state_was_taken_with_other_threads_batches_and_ranks() {
    let (_folder, written) = made(&[StackSpec::new(4, 5, 2, 41)]);
    let dataset = Dataset::open(&written.path).unwrap();
    let whole = ids(&mut Loader::new(&dataset, options(4)).unwrap());
    for delivered in 0..=11 {
        let mut loader = Loader::new(&dataset, options(4)).unwrap();
        let mut samples = Vec::new();
        for _ in 0..delivered {
            samples.extend(loader.next_batch().unwrap().unwrap().ids());
        }
        let state = State::from_json(&loader.state().to_json()).unwrap();
        drop(loader);
        let mut same = samples.clone();
        let mut again =
            Loader::with_state(&dataset, LoaderOptions { threads: 1, ..options(4) }, &state)
                .unwrap();
        if delivered < 11 {
            same.extend(ids(&mut again));
            assert_eq!(same, whole);
        } else {
            // All batches were delivered, so the state is that of the beginning of the next epoch.
            assert_eq!(again.next_batch().unwrap().unwrap().epoch(), 1);
            continue;
        }
        for rank in 0..3 {
            let share = Share { rank, world_size: 3 };
            let mut loader =
                Loader::with_state(&dataset, LoaderOptions { share, ..options(2) }, &state)
                    .unwrap();
            for batch in loader.epoch() {
                let batch = batch.unwrap();
                samples.extend(
                    batch.items().iter().filter(|item| !item.padding).map(|item| item.sample),
                );
            }
        }
        samples.sort_unstable();
        assert_eq!(samples, (0..41).collect::<Vec<_>>(), "{delivered}");
    }
}

#[test]
fn an_epoch_can_be_set_and_left() {
    let (_folder, written) = made(&[StackSpec::new(4, 5, 2, 20)]);
    let dataset = Dataset::open(&written.path).unwrap();
    let mut loader = Loader::new(&dataset, options(3)).unwrap();
    let (first, second) = (ids(&mut loader), ids(&mut loader));
    loader.set_epoch(0);
    assert_eq!(ids(&mut loader), first);
    // The loop ends early, then continues.
    let some: Vec<usize> =
        loader.epoch().take(2).flat_map(|batch| batch.unwrap().ids().collect::<Vec<_>>()).collect();
    assert_eq!([some, ids(&mut loader)].concat(), second);
    loader.next_batch().unwrap().unwrap();
    loader.set_epoch(1);
    assert_eq!(ids(&mut loader), second);
    // Kept batches do not change when the epoch is set.
    loader.set_epoch(5);
    let kept = loader.next_batch().unwrap().unwrap();
    let copy = kept.image().bytes.to_vec();
    loader.set_epoch(1);
    assert_eq!(ids(&mut loader), second);
    assert!(kept.image().bytes == copy);
}

#[test]
fn the_last_epoch_ends_for_good() {
    let (_folder, written) = made(&[StackSpec::new(4, 5, 2, 5)]);
    let dataset = Dataset::open(&written.path).unwrap();
    let mut loader =
        Loader::new(&dataset, LoaderOptions { end_epoch: Some(2), ..options(2) }).unwrap();
    assert_eq!((ids(&mut loader).len(), ids(&mut loader).len()), (5, 5));
    assert!(ids(&mut loader).is_empty());
    assert!(loader.next_batch().is_none() && loader.next_batch().is_none());
    loader.set_epoch(1);
    assert_eq!(ids(&mut loader).len(), 5);
}

fn damage(written: &Written, file: &str, at: usize) -> std::path::PathBuf {
    let shard = written.path.join(file);
    let mut bytes = std::fs::read(&shard).unwrap();
    bytes[at] ^= 1;
    std::fs::write(&shard, bytes).unwrap();
    shard
}

#[test]
fn a_damaged_batch_is_an_error_in_its_place_or_its_damage_is_skipped_and_counted() {
    let (_folder, written) = made(&[StackSpec::new(9, 8, 4, 10).masks(&["a"])]);
    let shard = damage(&written, "9x8x4/image/c/1/0/0/0", 40); // sample 4
    let dataset = Dataset::open(&written.path).unwrap();
    let mut options = options(3);
    options.plan.order = Order::Sequential;
    let mut loader = Loader::new(&dataset, options.clone()).unwrap();
    let mut epoch = loader.epoch();
    let batches: Vec<_> = epoch.by_ref().take(2).collect();
    let error: &Error = batches[1].as_ref().unwrap_err();
    assert_eq!((error.kind(), error.path()), (ErrorKind::Damaged, Some(shard.as_path())));
    assert!(error.to_string().contains("sample 4"), "{error}");
    drop(batches);
    // The batches after it were decoded already.
    let remaining: Vec<Vec<usize>> = epoch.map(|batch| batch.unwrap().ids().collect()).collect();
    assert_eq!(remaining, [vec![6, 7, 8], vec![9]]);
    assert_eq!((loader.state().epoch, loader.state().delivered.len()), (1, 0));

    options.on_damage = OnDamage::Skip;
    let mut loader = Loader::new(&dataset, options).unwrap();
    for _ in 0..2 {
        let mut order = Vec::new();
        for batch in loader.epoch() {
            let batch = batch.unwrap();
            check(&batch, &written, None);
            order.extend(batch.ids());
        }
        assert_eq!(order, [0, 1, 2, 3, 5, 6, 7, 8, 9]);
    }
    assert_eq!(loader.statistics().loader.skipped, 2);
}

#[test]
fn a_batch_that_fails_counts_as_given_wherever_it_is() {
    let (_folder, written) = made(&[single(9, 8, 8)]);
    break_samples(&written, "9x8x4", &[0, 3, 7]);
    let dataset = Dataset::open(&written.path).unwrap();
    let mut options = options(1);
    options.plan.order = Order::Sequential;
    let mut loader = Loader::new(&dataset, options.clone()).unwrap();
    let mut states = Vec::new();
    for epoch in 0..2 {
        let mut results = Vec::new();
        while let Some(batch) = loader.next_batch() {
            results.push(batch.map(|batch| batch.items()[0].sample).ok());
            states.push(loader.state());
            let expected = if results.len() == 8 { (epoch + 1, 0) } else { (epoch, results.len()) };
            let delivered =
                loader.state().delivered.iter().map(|segment| segment.batches).sum::<usize>();
            assert_eq!((loader.state().epoch, delivered), expected);
        }
        assert_eq!(results, [None, Some(1), Some(2), None, Some(4), Some(5), Some(6), None]);
    }
    // A resumed loader goes on after the batch that failed, also with several ranks.
    for (state, number) in states.iter().zip(1..8) {
        let mut resumed = Loader::with_state(&dataset, options.clone(), state).unwrap();
        assert_eq!(resumed.epoch().count(), 8 - number);
        assert_eq!(resumed.state(), states[7]);
    }
    let ranks = [0, 1].map(|rank| {
        let share = Share { rank, world_size: 2 };
        let options = LoaderOptions { share, ..options.clone() };
        let mut loader = Loader::with_state(&dataset, options, &states[3]).unwrap();
        let results: Vec<bool> = loader.epoch().map(|batch| batch.is_ok()).collect();
        (results, loader.state())
    });
    assert_eq!((&ranks[0].0[..], &ranks[1].0[..]), (&[true, true][..], &[true, false][..]));
    assert_eq!(ranks[0].1, ranks[1].1);
}

#[test]
fn setting_the_epoch_after_an_error_begins_it_again() {
    let (_folder, written) = made(&[single(9, 8, 4)]);
    break_samples(&written, "9x8x4", &[0]);
    let dataset = Dataset::open(&written.path).unwrap();
    let mut options = options(1);
    options.plan.order = Order::Sequential;
    let mut loader = Loader::new(&dataset, options).unwrap();
    for _ in 0..2 {
        assert!(loader.next_batch().unwrap().is_err());
        assert_eq!(loader.next_batch().unwrap().unwrap().items()[0].sample, 1);
        loader.set_epoch(0);
    }
}

/// A stack with one sample in each shard.
fn single(rows: usize, columns: usize, samples: usize) -> StackSpec {
    StackSpec { per_shard: 1, ..StackSpec::new(rows, columns, 4, samples) }
}

/// Cuts the shards of images of a stack short. `places` are indices of samples in the stack.
fn break_samples(written: &Written, stack: &str, places: &[usize]) {
    for index in places {
        let shard = written.path.join(format!("{stack}/image/c/{index}/0/0/0"));
        std::fs::write(shard, b"short").unwrap();
    }
}

/// The samples of each batch of an epoch, with whether each is padding. Checks the values.
fn batches(loader: &mut Loader, written: &Written) -> Vec<Vec<(usize, bool)>> {
    let batch_of = |batch: Batch| {
        check(&batch, written, None);
        batch.items().iter().map(|item| (item.sample, item.padding)).collect()
    };
    loader.epoch().map(|batch| batch_of(batch.unwrap())).collect()
}

#[test]
fn a_batch_of_nothing_but_damage_is_replaced_by_padding() {
    let (_folder, written) = made(&[single(9, 8, 4).masks(&["a"])]);
    break_samples(&written, "9x8x4", &[0, 3]);
    let dataset = Dataset::open(&written.path).unwrap();
    let mut options = LoaderOptions { on_damage: OnDamage::Skip, ..options(1) };
    options.plan.order = Order::Sequential;
    let mut loader = Loader::new(&dataset, options.clone()).unwrap();
    for _ in 0..2 {
        // The first sample of the epoch that can be read, as for last batches.
        let expected = [vec![(1, true)], vec![(1, false)], vec![(2, false)], vec![(1, true)]];
        assert_eq!(batches(&mut loader, &written), expected);
    }
    assert_eq!(loader.batches_per_epoch().unwrap(), 4);
    assert_eq!(loader.statistics().loader.skipped, 4);
    // The replacement does not depend on where an epoch was resumed.
    let mut state = loader.state();
    state.delivered =
        vec![hsipack_read::plan::Segment { batch_size: 1, world_size: 1, batches: 3 }];
    let mut resumed = Loader::with_state(&dataset, options, &state).unwrap();
    assert_eq!(batches(&mut resumed, &written), [vec![(1, true)]]);
}

#[test]
fn every_rank_gets_all_batches_although_one_has_nothing_but_damage() {
    let (_folder, written) = made(&[single(9, 8, 12)]);
    break_samples(&written, "9x8x4", &[2, 3]);
    let dataset = Dataset::open(&written.path).unwrap();
    let of_ranks = [0, 1].map(|rank| {
        let mut options = LoaderOptions { on_damage: OnDamage::Skip, ..options(2) };
        options.plan.order = Order::Sequential;
        options.share = Share { rank, world_size: 2 };
        batches(&mut Loader::new(&dataset, options).unwrap(), &written)
    });
    assert_eq!(of_ranks.each_ref().map(Vec::len), [3, 3]);
    assert_eq!(of_ranks[1][0], [(0, true)]);
    assert!(of_ranks.iter().flatten().flatten().filter(|(_, padding)| *padding).count() == 1);
}

#[test]
fn a_replacement_has_the_shape_of_its_batch() {
    // The samples of the stacks take turns: 0, 2, 4, 6 are of the first one.
    let stacks = [single(9, 8, 4).masks(&["a"]), single(12, 6, 4).masks(&["a"])];
    let (_folder, written) = made(&stacks);
    break_samples(&written, "9x8x4", &[1]);
    break_samples(&written, "12x6x4", &[0, 1, 3]);
    let dataset = Dataset::open(&written.path).unwrap();
    let mut options = LoaderOptions { on_damage: OnDamage::Skip, ..options(1) };
    options.plan.order = Order::Sequential;
    let mut loader = Loader::new(&dataset, options.clone()).unwrap();
    let replaced = |batches: &[Vec<(usize, bool)>]| -> Vec<(usize, usize)> {
        let number = |(number, batch): (usize, &Vec<(usize, bool)>)| {
            batch[0].1.then_some((number, batch[0].0))
        };
        batches.iter().enumerate().filter_map(number).collect()
    };
    let all = batches(&mut loader, &written);
    assert_eq!(all.len(), 8);
    assert_eq!(replaced(&all), [(1, 5), (2, 0), (3, 5), (7, 5)]);
    // Crops of both stacks have one shape.
    options.plan.crop = Crop::Random { rows: 5, columns: 5, per_sample: 1, min_labelled: 0.0 };
    let all = batches(&mut Loader::new(&dataset, options).unwrap(), &written);
    assert_eq!(replaced(&all), [(1, 0), (2, 0), (3, 0), (7, 0)]);
}

#[test]
fn another_window_of_a_damaged_sample_may_be_the_replacement() {
    let (_folder, written) = made(&[StackSpec { per_shard: 1, ..StackSpec::new(9, 8, 4, 1) }]);
    // The first chunk: rows 0 to 2.
    damage(&written, "9x8x4/image/c/0/0/0/0", 20);
    let dataset = Dataset::open(&written.path).unwrap();
    let mut options = LoaderOptions { on_damage: OnDamage::Skip, ..options(1) };
    options.plan.order = Order::Sequential;
    options.plan.crop = Crop::Grid { rows: 3, columns: 8, row_step: 3, column_step: 8, pad: None };
    let mut loader = Loader::new(&dataset, options).unwrap();
    let rows: Vec<_> = loader
        .epoch()
        .map(|batch| {
            let batch = batch.unwrap();
            check(&batch, &written, None);
            (batch.items()[0].window.row, batch.items()[0].padding)
        })
        .collect();
    assert_eq!(rows, [(3, true), (3, false), (6, false)]);
}

#[test]
fn an_epoch_of_nothing_but_damage_ends_with_an_error_for_each_batch() {
    let (_folder, written) = made(&[single(9, 8, 3)]);
    break_samples(&written, "9x8x4", &[0, 1, 2]);
    let dataset = Dataset::open(&written.path).unwrap();
    let options = LoaderOptions { on_damage: OnDamage::Skip, ..options(1) };
    let mut loader = Loader::new(&dataset, options).unwrap();
    for _ in 0..2 {
        let errors: Vec<Error> = loader.epoch().map(|batch| batch.unwrap_err()).collect();
        assert_eq!(errors.len(), 3);
        for error in errors {
            assert!(error.to_string().contains("no other sample of its shape"), "{error}");
            assert!(error.remedy().is_some());
        }
    }
}

#[test]
fn a_damaged_mask_that_crops_need_is_damage_of_its_sample() {
    let spec = StackSpec { per_shard: 1, ..StackSpec::new(24, 24, 3, 4).masks(&["a"]) };
    let (_folder, written) = made(&[spec]);
    std::fs::write(written.path.join("24x24x3/a/c/1/0/0"), b"short").unwrap();
    let dataset = Dataset::open(&written.path).unwrap();
    let mut options = options(2);
    options.plan.order = Order::Sequential;
    options.plan.crop = Crop::Random { rows: 4, columns: 4, per_sample: 1, min_labelled: 0.5 };
    let mut loader = Loader::new(&dataset, options.clone()).unwrap();
    let results: Vec<bool> = loader.epoch().map(|batch| batch.is_ok()).collect();
    assert_eq!(results, [false, true]);
    let skip = LoaderOptions { on_damage: OnDamage::Skip, ..options };
    let mut loader = Loader::new(&dataset, skip.clone()).unwrap();
    let kept = [vec![(0, false)], vec![(2, false), (3, false)]];
    assert_eq!(batches(&mut loader, &written), kept);
    assert_eq!(loader.statistics().loader.skipped, 1);
    let mut alone = skip;
    alone.plan.batch_size = 1;
    let all = batches(&mut Loader::new(&dataset, alone).unwrap(), &written);
    assert_eq!((all.len(), &all[1]), (4, &vec![(0, true)]));
}

#[test]
fn a_missing_shard_or_index_is_damage_of_its_samples() {
    let (_folder, written) = made(&[StackSpec { per_shard: 2, ..StackSpec::new(9, 8, 4, 6) }]);
    std::fs::remove_file(written.path.join("9x8x4/image/c/1/0/0/0")).unwrap();
    let end = std::fs::metadata(written.path.join("9x8x4/image/c/2/0/0/0")).unwrap().len();
    let shard = damage(&written, "9x8x4/image/c/2/0/0/0", end as usize - 1);
    let dataset = Dataset::open(&written.path).unwrap();
    let error = dataset.sample(5).unwrap_err();
    assert_eq!((error.kind(), error.path()), (ErrorKind::Damaged, Some(shard.as_path())));
    let text = error.to_string();
    assert!(text.contains("sample 5 (cube 5)") && text.contains("index is damaged"), "{text}");
    assert!(dataset.sample(2).unwrap_err().to_string().contains("the shard is missing"));
    let mut options = LoaderOptions { on_damage: OnDamage::Skip, ..options(4) };
    options.plan.order = Order::Sequential;
    let mut loader = Loader::new(&dataset, options).unwrap();
    // The second batch has no sample that can be read.
    assert_eq!(ids(&mut loader), [0, 1, 0]);
}

#[test]
fn whoever_has_a_batch_finds_all_of_it_counted() {
    let (_folder, written) = made(&[StackSpec::new(6, 5, 3, 8).tile(6, 5)]);
    let dataset = Dataset::open(&written.path).unwrap();
    for _ in 0..50 {
        let end_epoch = Some(1);
        let mut loader = Loader::new(&dataset, LoaderOptions { end_epoch, ..options(2) }).unwrap();
        assert_eq!(ids(&mut loader).len(), 8);
        assert_eq!(loader.statistics().loader.chunks, 8);
    }
}

#[test]
fn a_last_epoch_of_which_nothing_is_left_ends_once() {
    let (_folder, written) = made(&[StackSpec::new(6, 5, 3, 8)]);
    let dataset = Dataset::open(&written.path).unwrap();
    let mut loader = Loader::new(&dataset, options(2)).unwrap();
    let mut state = loader.state();
    loader.epoch().for_each(|batch| drop(batch.unwrap()));
    // A state of a user who counts batches without checking whether the epoch is over.
    state.delivered =
        vec![hsipack_read::plan::Segment { batch_size: 2, world_size: 1, batches: 4 }];
    let last = LoaderOptions { end_epoch: Some(1), ..options(4) };
    let mut loader = Loader::with_state(&dataset, last, &state).unwrap();
    assert!(loader.next_batch().is_none());
    assert_eq!((loader.state().epoch, loader.state().delivered.len()), (1, 0));
    assert!(loader.next_batch().is_none());
    assert_eq!(loader.state().epoch, 1);
}

#[test]
fn kept_batches_are_never_written_to_and_keeping_all_is_an_error() {
    let (_folder, written) = made(&[StackSpec::new(6, 5, 3, 30)]);
    let dataset = Dataset::open(&written.path).unwrap();
    let mut loader = Loader::new(&dataset, LoaderOptions { slots: 5, ..options(2) }).unwrap();
    let mut kept: Vec<Batch> = (0..4).map(|_| loader.next_batch().unwrap().unwrap()).collect();
    for _ in 0..20 {
        check(
            &loader.next_batch().unwrap_or_else(|| loader.next_batch().unwrap()).unwrap(),
            &written,
            None,
        );
        kept.iter().for_each(|batch| check(batch, &written, None));
    }
    let fifth = loader.next_batch().unwrap_or_else(|| loader.next_batch().unwrap()).unwrap();
    let error = loader.next_batch().unwrap().unwrap_err();
    assert!(error.to_string().contains("all 5 slots"), "{error}");
    drop(fifth);
    assert!(loader.next_batch().is_none_or(|batch| batch.is_ok()));
    drop(loader);
    kept.iter().for_each(|batch| check(batch, &written, None));
    kept.clear();
}

#[test]
fn loaders_end_cleanly_whenever_they_are_dropped() {
    let (_folder, written) = made(&[StackSpec::new(30, 30, 10, 16)]);
    let dataset = Dataset::open(&written.path).unwrap();
    let threads = || std::fs::read_dir("/proc/self/task").unwrap().count();
    let start = Instant::now();
    for round in 0..60 {
        let mut loader = Loader::new(&dataset, options(4)).unwrap();
        let kept: Vec<_> = (0..round % 3).map(|_| loader.next_batch()).collect();
        if round % 5 == 0 {
            loader.set_epoch(7);
        }
        drop(loader);
        drop(kept);
    }
    assert!(start.elapsed() < Duration::from_secs(30));
    // Other tests have their own loaders, but none of these sixty times four threads remains.
    assert!(threads() < 100, "{}", threads());
}

#[test]
fn every_batch_of_a_replaced_dataset_is_an_error_until_it_is_there_again() {
    let (folder, written) = made(&[StackSpec::new(6, 5, 3, 6)]);
    let dataset = Dataset::open(&written.path).unwrap();
    let mut loader = Loader::new(&dataset, options(3)).unwrap();
    std::fs::rename(&written.path, folder.path().join("old")).unwrap();
    let batches = loader.batches_per_epoch().unwrap();
    for epoch in 0..20 {
        let errors: Vec<_> = loader.epoch().filter_map(Result::err).collect();
        for error in &errors {
            assert!(error.to_string().contains("open it again"), "{error}");
        }
        // The ring has some batches of before.
        assert!(epoch < 5 || errors.len() == batches, "{errors:?}");
    }
    std::fs::rename(folder.path().join("old"), &written.path).unwrap();
    assert!((0..5).any(|_| loader.epoch().all(|batch| batch.is_ok())));
}

#[test]
fn a_wait_can_have_an_end() {
    let (_folder, written) = made(&[StackSpec::new(6, 5, 3, 6)]);
    let store = Limited::new(StoreKind::Pread.store(), Link::of_rate(200), 1);
    let open = OpenOptions { store: Some(std::sync::Arc::new(store)), ..Default::default() };
    let dataset = Dataset::open_with(&written.path, open).unwrap();
    let mut loader = Loader::new(&dataset, options(3)).unwrap();
    let start = Instant::now();
    let next = loader.next_within(Duration::from_millis(50));
    assert!(matches!(next, Some(Ok(None))));
    assert!(start.elapsed() < Duration::from_secs(2));
}

#[test]
fn contradictions_are_told_at_once() {
    let (_folder, written) = made(&[StackSpec::new(6, 5, 3, 6).masks(&["organ"])]);
    let dataset = Dataset::open(&written.path).unwrap();
    let text = |options: LoaderOptions| Loader::new(&dataset, options).unwrap_err().to_string();
    assert!(text(LoaderOptions { threads: 0, ..options(2) }).contains("thread"));
    assert!(text(LoaderOptions { slots: 1, ..options(2) }).contains("at least 2"));
    assert!(text(LoaderOptions { bands: Some(vec![3]), ..options(2) }).contains("0 to 2"));
    assert!(text(LoaderOptions { bands: Some(vec![]), ..options(2) }).contains("no bands"));
    assert!(text(LoaderOptions { masks: Some(vec!["x".into()]), ..options(2) }).contains("organ"));
    assert!(text(options(0)).contains("batch"));
    let much = text(LoaderOptions { slots: 1 << 50, ..options(2) });
    for part in ["1125899906842624 slots of ", " take ", ", but only ", "fewer slots", "slots fit"]
    {
        assert!(much.contains(part), "{much}");
    }
    let mut drops = options(7);
    drops.plan.last = LastBatch::Drop;
    assert!(text(drops).contains("no batch is left"));
}
