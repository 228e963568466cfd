//! Properties of whole plans, compared with naive counting.

mod blocks;
mod mix;
mod windows;

use std::collections::HashSet;

use proptest::prelude::*;

use super::*;
use crate::ErrorKind;

const WORLD_SIZES: [usize; 4] = [1, 2, 3, 8];
const ORDERS: [Order; 6] = [
    Order::Sequential,
    Order::Shuffled,
    Order::Weighted,
    Order::ClassBalanced,
    Order::GroupsSpread,
    Order::GroupsTogether,
];

pub(super) fn sample(number: u32, rows: u32, columns: u32, bands: u32) -> PlanSample {
    PlanSample {
        group: Some(number % 3 * 7),
        class: Some(number % 2 + 4),
        weight: f64::from(number % 4 + 1),
        ..PlanSample::new(number as usize, rows, columns, bands)
    }
}

/// Samples of one shape, numbered from 100.
fn cubes(count: u32) -> Vec<PlanSample> {
    (0..count).map(|number| sample(100 + number, 8, 9, 5)).collect()
}

/// Samples of three shapes and two numbers of bands, mixed.
fn ragged(count: u32) -> Vec<PlanSample> {
    let shapes = [(8, 9, 5), (10, 9, 5), (8, 12, 5), (8, 9, 7)];
    let shape = |number: u32| shapes[(number * 7 % 11 % 4) as usize];
    (0..count)
        .map(|number| (number, shape(number)))
        .map(|(number, (rows, columns, bands))| sample(number, rows, columns, bands))
        .collect()
}

fn plan(samples: Vec<PlanSample>, options: PlanOptions) -> Plan {
    Plan::new(samples, options).unwrap()
}

fn refusal(samples: Vec<PlanSample>, options: PlanOptions) -> String {
    let error = Plan::new(samples, options).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Conflict);
    assert!(error.remedy().is_some(), "{error}");
    error.to_string()
}

/// The first `count` global batches of what is left. Each consists of the ranks' parts, one after
/// another.
fn global_batches(
    plan: &Plan,
    epoch: u64,
    delivered: &[Segment],
    world_size: usize,
    count: usize,
) -> Vec<Vec<Item>> {
    let mut global = vec![Vec::new(); count];
    let mut items = Vec::new();
    for rank in 0..world_size {
        let epoch = plan.epoch(epoch, delivered, Share { rank, world_size }).unwrap();
        for (n, global) in global.iter_mut().enumerate() {
            epoch.batch(n, None, &mut items).unwrap();
            assert!(!items.is_empty(), "every rank gets something in every batch");
            global.append(&mut items);
        }
    }
    global
}

/// All global batches of what is left.
fn rest(plan: &Plan, epoch: u64, delivered: &[Segment], world_size: usize) -> Vec<Vec<Item>> {
    let remaining = plan.epoch(epoch, delivered, Share { rank: 0, world_size }).unwrap();
    let batches = global_batches(plan, epoch, delivered, world_size, remaining.batches());
    assert_eq!(batches.iter().flatten().filter(|item| !item.padding).count(), remaining.items());
    batches
}

fn without_padding(batches: &[Vec<Item>]) -> Vec<Item> {
    batches.iter().flatten().copied().filter(|item| !item.padding).collect()
}

/// The items of an epoch in no particular order, counted naively.
fn all_items(plan: &Plan) -> HashSet<Item> {
    without_padding(&rest(plan, 0, &[], 1)).into_iter().collect()
}

fn order_strategy() -> impl Strategy<Value = Order> {
    prop::sample::select(ORDERS.to_vec())
}

/// A crop of one of [`CROPS`] kinds that fits these samples.
fn crop(kind: usize, samples: &[PlanSample]) -> Crop {
    match kind {
        0 => Crop::Whole,
        1 => Crop::Centre { rows: 8, columns: 8 },
        2 => Crop::Random { rows: 3, columns: 4, per_sample: 3, min_labelled: 0.0 },
        3 => Crop::Grid { rows: 5, columns: 4, row_step: 4, column_step: 3, pad: None },
        4 => {
            let ids = || samples.iter().map(|sample| sample.sample);
            let listed: Vec<_> = ids()
                .flat_map(|id| [(id, -1, 2), (id, 3, 3)])
                .chain(ids().rev().map(|id| (id, 7, -2)))
                .collect();
            Crop::Windows(Windows::listed((3, 5), Pad::Edge, &listed).unwrap().into())
        }
        5 => Crop::Windows(labelled(samples, Patches::new(3, 3)).into()),
        _ => {
            let region = |sample: usize, id: u32| {
                let (row, column) = (id as i32 * 2 - 1, 4 - id as i32);
                Region { sample, row, column, id, label: sample as u32 % 2 + id % 2, cut: false }
            };
            let ids = samples.iter().rev().map(|sample| sample.sample);
            let shown: Vec<Region> = ids
                .flat_map(|sample| (1..4 - sample as u32 % 2).map(move |id| region(sample, id)))
                .collect();
            Crop::Windows(Windows::of_regions((4, 3), Pad::Reflect, &shown).unwrap().into())
        }
    }
}

const CROPS: usize = 7;

/// Blocks of these samples, `together` in a group: whole cubes, or parts of them where windows are
/// numbered.
fn blocks(samples: &[PlanSample], crop: &Crop, together: usize) -> Arc<ShuffleBlocks> {
    let parts = |length: u32, at: u32| [0..at, at..length];
    let in_sample = |sample: &PlanSample| {
        let PlanSample { sample, rows, columns, .. } = *sample;
        let whole = Block { sample, rows: 0..rows, columns: 0..columns };
        match (crop, sample % 3) {
            (Crop::Windows(_), 0) => {
                parts(rows, 3).into_iter().map(|rows| Block { rows, ..whole.clone() }).collect()
            }
            (Crop::Windows(_), 1) => parts(rows, 5)
                .into_iter()
                .flat_map(|rows| parts(columns, 4).map(|columns| (rows.clone(), columns)))
                .map(|(rows, columns)| Block { sample, rows, columns })
                .collect(),
            _ => vec![whole],
        }
    };
    Arc::new(ShuffleBlocks { blocks: samples.iter().flat_map(in_sample).collect(), together })
}

/// The class of a pixel: 0 for most, otherwise 1 to 3, of which 3 is rare.
fn class(sample: usize, pixel: u32) -> u32 {
    match (sample as u32 * 31 + pixel * 7) % 40 {
        0..5 => 1,
        5..8 => 2,
        8 => 3,
        _ => 0,
    }
}

fn labelled(samples: &[PlanSample], patches: Patches) -> Windows {
    let mut pixels = LabelledPixels::new(patches);
    for PlanSample { sample, rows, columns, .. } in samples {
        let classes = (0..rows * columns).map(|pixel| class(*sample, pixel));
        pixels.add(*sample, (*rows, *columns), classes).unwrap();
    }
    pixels.windows(3).unwrap()
}

/// Windows of an epoch in order, with their labels.
fn windows(plan: &Plan, epoch: u64) -> Vec<(usize, Window, Option<u32>)> {
    let items = without_padding(&rest(plan, epoch, &[], 1));
    items.into_iter().map(|item| (item.sample, item.window, item.label)).collect()
}

fn last_strategy() -> impl Strategy<Value = LastBatch> {
    prop::sample::select(vec![LastBatch::Pad, LastBatch::Short])
}

#[test]
fn every_item_comes_once_on_some_rank() {
    for samples in [cubes(29), ragged(29)] {
        for order in ORDERS {
            for last in [LastBatch::Pad, LastBatch::Short] {
                let plan = plan(
                    samples.clone(),
                    PlanOptions { order, last, seed: 5, ..PlanOptions::new(3) },
                );
                let once = all_items(&plan);
                assert_eq!(once.len(), 29, "repeats tell the items of a sample apart");
                for world_size in WORLD_SIZES {
                    let items = without_padding(&rest(&plan, 0, &[], world_size));
                    assert_eq!(items.len(), 29);
                    assert_eq!(items.into_iter().collect::<HashSet<_>>(), once);
                }
            }
        }
    }
}

#[test]
fn orders_without_replacement_give_every_sample_once() {
    for order in [Order::Sequential, Order::Shuffled, Order::GroupsSpread, Order::GroupsTogether] {
        let plan = plan(ragged(40), PlanOptions { order, ..PlanOptions::new(4) });
        let samples: HashSet<usize> = all_items(&plan).iter().map(|item| item.sample).collect();
        assert_eq!(samples, (0..40).collect());
    }
}

#[test]
fn the_same_seed_gives_the_same_order() {
    let options = |seed| PlanOptions { seed, ..PlanOptions::new(4) };
    let batches = |seed, epoch| rest(&plan(ragged(50), options(seed)), epoch, &[], 2);
    assert_eq!(batches(1, 0), batches(1, 0));
    assert_ne!(batches(1, 0), batches(1, 1));
    assert_ne!(batches(1, 0), batches(2, 0));
}

#[test]
fn batches_are_pinned() {
    let samples = ragged(12);
    let crop = Crop::Random { rows: 3, columns: 4, per_sample: 1, min_labelled: 0.0 };
    let plan = plan(samples, PlanOptions { crop, seed: 42, ..PlanOptions::new(3) });
    let batches: Vec<Vec<(usize, i32, i32)>> = rest(&plan, 7, &[], 1)
        .iter()
        .map(|batch| {
            batch.iter().map(|item| (item.sample, item.window.row, item.window.column)).collect()
        })
        .collect();
    assert_eq!(format!("{batches:?}"), PINNED_BATCHES);
    assert_eq!(plan.digest(), PINNED_DIGEST);
}

// Computed by an independent implementation in Python; never to be changed.
const PINNED_BATCHES: &str = "[[(2, 3, 3), (1, 3, 0)], [(4, 5, 1), (11, 5, 2), (10, 4, 2)], [(9, 0, 2)], [(6, 3, 3), (0, 3, 3), (8, 5, 3)], [(5, 2, 0), (3, 3, 1), (7, 4, 4)]]";
const PINNED_DIGEST: &str = "d9ddc5dd5308e2b5";

#[test]
fn crops_do_not_depend_on_batches_or_ranks() {
    let crop = Crop::Random { rows: 3, columns: 4, per_sample: 2, min_labelled: 0.0 };
    let items = |batch_size, order, world_size| {
        let crop = crop.clone();
        let plan = plan(cubes(30), PlanOptions { crop, order, ..PlanOptions::new(batch_size) });
        without_padding(&rest(&plan, 0, &[], world_size)).into_iter().collect::<HashSet<_>>()
    };
    let expected = items(1, Order::Sequential, 1);
    assert_eq!(items(7, Order::Shuffled, 3), expected);
    assert_eq!(items(4, Order::GroupsSpread, 8), expected);
    let places: HashSet<Window> = expected.iter().map(|item| item.window).collect();
    assert!(places.len() > 20, "crops differ");
}

#[test]
fn batches_have_one_shape() {
    for order in ORDERS {
        let plan = plan(ragged(60), PlanOptions { order, ..PlanOptions::new(4) });
        assert_eq!(plan.shapes().len(), 4);
        let remaining = plan.epoch(3, &[], Share { rank: 0, world_size: 2 }).unwrap();
        for (n, batch) in rest(&plan, 3, &[], 2).iter().enumerate() {
            let shape = remaining.shape(n).unwrap();
            for item in batch {
                let sample = &plan.samples()[item.sample];
                assert_eq!(
                    (sample.rows, sample.columns, sample.bands),
                    (shape.rows as u32, shape.columns as u32, shape.bands as u32)
                );
            }
        }
    }
}

#[test]
fn crops_to_one_size_mix_all_cubes_of_equal_bands() {
    let crop = Crop::Centre { rows: 8, columns: 8 };
    let plan = plan(ragged(60), PlanOptions { crop, ..PlanOptions::new(8) });
    assert_eq!(plan.shapes(), [CubeShape::new(8, 8, 5), CubeShape::new(8, 8, 7)]);
    let mixed = rest(&plan, 0, &[], 1).iter().any(|batch| {
        let sizes = batch.iter().map(|item| &plan.samples()[item.sample]);
        sizes.map(|sample| (sample.rows, sample.columns)).collect::<HashSet<_>>().len() > 1
    });
    assert!(mixed);
}

#[test]
fn batches_of_several_shapes_are_shuffled_too() {
    let samples: Vec<_> = (0..80).map(|n| sample(n, if n < 40 { 8 } else { 9 }, 9, 5)).collect();
    let small = |order, epoch| -> Vec<bool> {
        let plan = plan(samples.clone(), PlanOptions { order, ..PlanOptions::new(4) });
        rest(&plan, epoch, &[], 1).iter().map(|batch| batch[0].sample < 40).collect()
    };
    let sequential = small(Order::Sequential, 0);
    assert!(sequential[..10].iter().all(|small| *small) && !sequential[10..].contains(&true));
    let mut first_places = [0; 2];
    for epoch in 0..400 {
        let shuffled = small(Order::Shuffled, epoch);
        assert_eq!(shuffled.iter().filter(|small| **small).count(), 10);
        first_places[0] += u32::from(shuffled[0]);
        first_places[1] += u32::from(shuffled[19]);
    }
    assert!(first_places.iter().all(|count| count.abs_diff(200) < 50), "{first_places:?}");
}

#[test]
fn padding_comes_from_the_start_of_the_epoch() {
    let options = PlanOptions { last: LastBatch::Pad, ..PlanOptions::new(4) };
    let padded = plan(cubes(10), options.clone());
    let batches = rest(&padded, 0, &[], 2);
    assert_eq!(batches.iter().map(Vec::len).collect::<Vec<_>>(), [8, 8]);
    let marks: Vec<bool> = batches[1].iter().map(|item| item.padding).collect();
    assert_eq!(marks, [false, false, true, true, true, true, true, true]);
    for (item, first) in batches[1][2..].iter().zip(&batches[0]) {
        assert_eq!(*item, Item { padding: true, ..*first });
    }
    let tiny = rest(&plan(cubes(3), options), 0, &[], 8);
    assert_eq!((tiny.len(), tiny[0].len(), without_padding(&tiny).len()), (1, 32, 3));
}

#[test]
fn short_batches_are_even_over_the_ranks() {
    let plan = plan(cubes(13), PlanOptions::new(4));
    let lengths = |world_size| -> Vec<usize> {
        let length = |rank| {
            let epoch = plan.epoch(0, &[], Share { rank, world_size }).unwrap();
            let mut items = Vec::new();
            epoch.batch(epoch.batches() - 1, None, &mut items).unwrap();
            items.len()
        };
        (0..world_size).map(length).collect()
    };
    assert_eq!(lengths(1), [1]);
    assert_eq!(lengths(2), [3, 2]);
    assert_eq!(lengths(3), [1, 1, 1], "two of them padding");
    assert_eq!(lengths(8), [2, 2, 2, 2, 2, 1, 1, 1]);
    assert_eq!(rest(&plan, 0, &[], 3)[1].iter().filter(|item| item.padding).count(), 2);
}

/// Batches of every rank as (own items, padding), computed only from the table of [`LastBatch`].
fn naive_batches(
    items: usize,
    batch_size: usize,
    world_size: usize,
    last: LastBatch,
) -> Vec<Vec<(usize, usize)>> {
    let mut ranks = vec![Vec::new(); world_size];
    let mut remaining = items;
    while remaining >= batch_size * world_size {
        ranks.iter_mut().for_each(|rank| rank.push((batch_size, 0)));
        remaining -= batch_size * world_size;
    }
    if remaining == 0 || last == LastBatch::Drop {
        return ranks;
    }
    for (number, rank) in ranks.iter_mut().enumerate() {
        // Each rank in turn takes its share of what is left.
        let places = match last {
            LastBatch::Pad => batch_size,
            _ => (remaining / world_size + usize::from(number < remaining % world_size)).max(1),
        };
        let before = match last {
            LastBatch::Pad => number * batch_size,
            _ => (0..number)
                .map(|n| remaining / world_size + usize::from(n < remaining % world_size))
                .sum(),
        };
        let items = places.min(remaining.saturating_sub(before));
        rank.push((items, places - items));
    }
    ranks
}

#[test]
fn last_batches_are_what_the_table_says() {
    for last in [LastBatch::Pad, LastBatch::Drop, LastBatch::Short] {
        for items in 1..=40 {
            for (batch_size, world_size) in [1, 2, 3, 5, 8]
                .into_iter()
                .flat_map(|size| [1, 2, 3, 4, 7].map(|world| (size, world)))
            {
                let plan = plan(cubes(items), PlanOptions { last, ..PlanOptions::new(batch_size) });
                let expected = naive_batches(items as usize, batch_size, world_size, last);
                for (rank, expected) in expected.iter().enumerate() {
                    let what = format!(
                        "{last:?}: {items} items in batches of {world_size} x {batch_size}"
                    );
                    let Ok(epoch) = plan.epoch(0, &[], Share { rank, world_size }) else {
                        assert!(expected.is_empty() && last == LastBatch::Drop, "{what}");
                        continue;
                    };
                    let mut items = Vec::new();
                    let batches: Vec<(usize, usize)> = (0..epoch.batches())
                        .map(|n| {
                            epoch.batch(n, None, &mut items).unwrap();
                            let padding = items.iter().filter(|item| item.padding).count();
                            (items.len() - padding, padding)
                        })
                        .collect();
                    assert_eq!(&batches, expected, "{what}, rank {rank}");
                }
            }
        }
    }
}

#[test]
fn padding_repeats_items_of_the_epoch() {
    for last in [LastBatch::Pad, LastBatch::Short] {
        let plan = plan(cubes(37), PlanOptions { last, ..PlanOptions::new(3) });
        let batches = rest(&plan, 0, &[], 2);
        let padding: Vec<Item> =
            batches.iter().flatten().filter(|item| item.padding).copied().collect();
        assert_eq!(padding.len(), if last == LastBatch::Pad { 5 } else { 1 });
        for (item, first) in padding.iter().zip(batches.iter().flatten()) {
            assert_eq!(*item, Item { padding: true, ..*first });
        }
    }
}

#[test]
fn the_digest_is_computed_once_and_not_for_every_state() {
    let plan = plan(cubes(20), PlanOptions::new(2));
    let digest = plan.digest();
    assert_eq!(State::new(&plan, "abc", 0).plan, digest);
    assert!(std::ptr::eq(digest, plan.digest()));
}

#[test]
fn dropped_items_are_counted() {
    let plan = plan(ragged(50), PlanOptions { last: LastBatch::Drop, ..PlanOptions::new(3) });
    let remaining = plan.epoch(0, &[], Share { rank: 0, world_size: 2 }).unwrap();
    assert_eq!(remaining.items() + remaining.dropped(), 50);
    assert!(remaining.dropped() > 0);
    assert!(rest(&plan, 0, &[], 2).iter().all(|batch| batch.len() == 6));
    let error = plan.epoch(0, &[], Share { rank: 0, world_size: 90 }).unwrap_err().to_string();
    assert!(
        error.contains("270 items of one shape, but an epoch has 50 items of 4 shapes"),
        "{error}"
    );
}

#[test]
fn items_that_one_segment_would_drop_are_used_by_the_next() {
    let plan = plan(cubes(10), PlanOptions { last: LastBatch::Drop, ..PlanOptions::new(2) });
    let delivered = [Segment { batch_size: 4, world_size: 1, batches: 2 }];
    let remaining = rest(&plan, 0, &delivered, 1);
    assert_eq!(remaining.len(), 1);
    let all_given = Segment { batch_size: 3, world_size: 1, batches: 3 };
    assert_eq!(rest(&plan, 0, &[all_given], 1).len(), 0, "one item is left, and dropped");
}

#[test]
fn epochs_can_be_longer_or_shorter_than_the_data() {
    for order in ORDERS {
        for length in [1, 7, 20, 33, 60] {
            let options = PlanOptions { order, epoch_length: Some(length), ..PlanOptions::new(4) };
            let plan = plan(cubes(20), options);
            assert_eq!(plan.items(), length);
            assert_eq!(all_items(&plan).len(), length, "{order:?}");
        }
    }
}

#[test]
fn windows_of_a_grid_drawn_by_weight_are_all_likely() {
    let crop = Crop::Grid { rows: 4, columns: 9, row_step: 2, column_step: 1, pad: None };
    let options = PlanOptions {
        crop,
        order: Order::Weighted,
        epoch_length: Some(900),
        ..PlanOptions::new(10)
    };
    let mut counts = [0u32; 3];
    for item in all_items(&plan(cubes(900), options)) {
        counts[item.window.row as usize / 2] += 1;
    }
    assert!(counts.iter().all(|count| count.abs_diff(300) < 60), "{counts:?}");
}

#[test]
fn a_batch_is_not_allocated_where_it_fits() {
    let plan = plan(cubes(20), PlanOptions::new(4));
    let epoch = plan.epoch(0, &[], Share::ALL).unwrap();
    let mut items = Vec::with_capacity(4);
    let address = items.as_ptr();
    for n in 0..epoch.batches() {
        epoch.batch(n, None, &mut items).unwrap();
    }
    assert_eq!((items.as_ptr(), items.capacity()), (address, 4));
    assert!(
        epoch
            .batch(5, None, &mut items)
            .unwrap_err()
            .to_string()
            .contains("no batch 5: 5 batches left")
    );
    assert!(epoch.shape(5).is_err());
}

#[test]
fn plans_can_be_shared_by_threads() {
    fn shared<T: Send + Sync + 'static>() {}
    shared::<Plan>();
    shared::<EpochPlan>();
}

#[test]
fn senseless_plans_are_refused() {
    let options = PlanOptions::new(2);
    let with = |change: fn(&mut PlanSample)| {
        let mut samples = cubes(3);
        change(&mut samples[1]);
        samples
    };
    let order = |order| PlanOptions { order, ..options.clone() };
    assert!(refusal(vec![], options.clone()).contains("no samples"));
    assert!(refusal(cubes(1), PlanOptions::new(0)).contains("0 items"));
    assert!(refusal(with(|s| s.rows = 0), options.clone()).contains("sample 101 of 0x9x5"));
    assert!(refusal(with(|s| s.sample = 102), options.clone()).contains("102 is listed twice"));
    for weight in [-1.0, f64::NAN, f64::INFINITY] {
        let mut samples = cubes(3);
        samples[2].weight = weight;
        assert!(refusal(samples, order(Order::Weighted)).contains("sample 102 has the weight"));
    }
    let weightless = |weight| cubes(2).into_iter().map(|s| PlanSample { weight, ..s }).collect();
    assert!(refusal(weightless(0.0), order(Order::Weighted)).contains("sum of the weights is 0"));
    assert!(
        refusal(weightless(f64::MAX), order(Order::Weighted)).contains("sum of the weights is inf")
    );
    assert!(refusal(with(|s| s.class = None), order(Order::ClassBalanced)).contains("no label"));
    assert!(refusal(with(|s| s.group = None), order(Order::GroupsSpread)).contains("no group"));
    let crop = Crop::Centre { rows: 9, columns: 9 };
    assert!(refusal(cubes(1), PlanOptions { crop, ..options.clone() }).contains("sample 100"));
    let empty = PlanOptions { epoch_length: Some(0), ..options.clone() };
    assert!(refusal(cubes(1), empty).contains("0 items"));
    let long = PlanOptions { epoch_length: Some(usize::MAX), ..options.clone() };
    assert!(refusal(cubes(1), long).contains("4294967295"));
    let most = i32::MAX as u32;
    let huge = vec![sample(0, most, most, 1), sample(1, most, most, 1)];
    let crop = Crop::Grid { rows: 1, columns: 1, row_step: 1, column_step: 1, pad: None };
    assert!(refusal(huge, PlanOptions { crop, ..options }).contains("4294967295"));
}

#[test]
fn labels_reach_the_crops() {
    struct Left(u32);
    impl Labelled for Left {
        fn share(&mut self, sample: usize, window: Window) -> Result<f64> {
            assert!((100..120).contains(&sample));
            self.0 += 1;
            Ok(f64::from(u32::from(window.column == 0)))
        }
    }
    let crop = Crop::Random { rows: 2, columns: 7, per_sample: 1, min_labelled: 1.0 };
    let plan = plan(cubes(20), PlanOptions { crop, ..PlanOptions::new(20) });
    let epoch = plan.epoch(0, &[], Share::ALL).unwrap();
    let (mut items, mut labels) = (Vec::new(), Left(0));
    epoch.batch(0, Some(&mut labels), &mut items).unwrap();
    assert!(items.iter().all(|item| item.window.column == 0));
    assert!(labels.0 > 20);
    assert!(epoch.batch(0, None, &mut items).is_err());
}

#[test]
fn states_survive_json() {
    let plan = plan(cubes(20), PlanOptions { seed: u64::MAX, ..PlanOptions::new(2) });
    let epoch = plan.epoch(u64::MAX, &[], Share { rank: 1, world_size: 2 }).unwrap();
    let state = epoch.state("abc", 3);
    assert_eq!(State::from_json(&state.to_json()).unwrap(), state);
    assert_eq!(state.delivered, [Segment { batch_size: 2, world_size: 2, batches: 3 }]);
    let more = plan.epoch(0, &state.delivered, Share { rank: 0, world_size: 2 }).unwrap();
    assert_eq!(more.state("abc", 1).delivered[0].batches, 4, "segments of one size are one");
    let other = plan.epoch(0, &state.delivered, Share::ALL).unwrap();
    assert_eq!(other.state("abc", 0).delivered.len(), 1);
    assert_eq!(other.state("abc", 1).delivered.len(), 2);
}

#[test]
fn foreign_states_are_refused() {
    let base = PlanOptions::new(2);
    let plan = |options: &PlanOptions| plan(cubes(20), options.clone());
    let state = plan(&base).epoch(4, &[], Share::ALL).unwrap().state("abc", 1);
    state.check(&plan(&base), "abc", None).unwrap();
    state.check(&plan(&PlanOptions { batch_size: 5, ..base.clone() }), "abc", None).unwrap();

    let error = state.check(&plan(&base), "abd", None).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::State);
    assert!(
        error.to_string().contains("its fingerprint is abc, but this dataset has abd"),
        "{error}"
    );
    let seeded = PlanOptions { seed: 9, ..base.clone() };
    let error = state.check(&plan(&seeded), "abc", None).unwrap_err();
    assert!(error.what().contains("seed 0, but seed 9"), "{error}");
    assert_eq!(error.remedy(), Some(&hsipack_format::remedy!["pass ", Opt::Seed.to(0u64)]));

    let ordered = PlanOptions { order: Order::Sequential, ..base.clone() };
    let error = state.check(&plan(&ordered), "abc", None).unwrap_err().to_string();
    assert!(error.contains("middle of epoch 4"), "{error}");
    State::new(&plan(&base), "abc", 5).check(&plan(&ordered), "abc", None).unwrap();

    // Samples were added. Between epochs this does not matter, nor within one if the plan has none of them.
    let more = Plan::new(cubes(21), base.clone()).unwrap();
    state.check(&plan(&base), "abd", Some(20)).unwrap();
    State::new(&plan(&base), "abc", 5).check(&more, "abd", Some(20)).unwrap();
    let error = state.check(&more, "abd", Some(20)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::State);
    assert!(
        error.what().contains("middle of epoch 4, which began when the dataset had 20 samples")
    );
    let message = error.to_string();
    assert!(message.contains("as_of=abc") && message.contains("the next epoch may"), "{message}");

    let later = State { version: 2, ..state.clone() };
    assert!(later.check(&plan(&base), "abc", None).is_err());
    assert!(State::from_json(&later.to_json()).is_err());
    assert_eq!(State::from_json("{").unwrap_err().kind(), ErrorKind::Malformed);
}

#[test]
fn more_batches_than_there_were_are_refused() {
    let plan = plan(cubes(20), PlanOptions::new(2));
    let segment = |batch_size, world_size, batches| Segment { batch_size, world_size, batches };
    let error = plan.epoch(0, &[segment(2, 2, 6)], Share::ALL).unwrap_err().to_string();
    assert!(error.contains("another epoch: 6 batches of 2 x 2 items were read"), "{error}");
    for senseless in
        [segment(0, 1, 0), segment(usize::MAX, usize::MAX, 0), segment(1, 1, usize::MAX)]
    {
        assert!(plan.epoch(0, &[senseless], Share::ALL).is_err());
    }
    assert_eq!(plan.epoch(0, &[segment(usize::MAX, 1, 1)], Share::ALL).unwrap().batches(), 0);
}

proptest! {
    #[test]
    fn an_interrupted_epoch_goes_on_with_the_same_batches(
        order in order_strategy(), kind in 0..CROPS, last in last_strategy(), drop: bool,
        together in prop::option::of(1usize..9), seed: u64, count in 1u32..60, batch_size in 1usize..6, world_size in 1usize..4, at: prop::sample::Index
    ) {
        let last = if drop { LastBatch::Drop } else { last };
        let samples = ragged(count);
        let crop = crop(kind, &samples);
        let together = together.filter(|_| order == Order::Shuffled);
        let blocks = together.map(|together| blocks(&samples, &crop, together));
        let options = PlanOptions { seed, order, crop, last, blocks, ..PlanOptions::new(batch_size) };
        let plan = plan(samples, options);
        let Ok(epoch) = plan.epoch(1, &[], Share { rank: 0, world_size }) else {
            return Ok(()); // everything is dropped
        };
        let whole = rest(&plan, 1, &[], world_size);
        let at = at.index(whole.len() + 1);
        let state = epoch.state("", at);
        prop_assert_eq!(&rest(&plan, 1, &state.delivered, world_size)[..], &whole[at..]);
    }

    #[test]
    fn resuming_with_other_sizes_loses_and_repeats_nothing(
        order in order_strategy(), kind in 0..CROPS, last in last_strategy(), seed: u64,
        together in prop::option::of(1usize..9), count in 1u32..60, length in prop::option::of(1usize..150),
        sizes in prop::collection::vec((1usize..9, prop::sample::select(WORLD_SIZES.to_vec()), 0usize..5), 0..5),
        end in (1usize..9, prop::sample::select(WORLD_SIZES.to_vec()))
    ) {
        let plan = |batch_size| {
            let samples = ragged(count);
            let crop = crop(kind, &samples);
            let together = together.filter(|_| order == Order::Shuffled);
            let blocks = together.map(|together| blocks(&samples, &crop, together));
            let options =
                PlanOptions { seed, order, crop, last, epoch_length: length, blocks, batch_size, is_mix: false, mixes_items: false, align: 1 };
            plan(samples, options)
        };
        let expected = all_items(&plan(1));
        let mut items = Vec::new();
        let mut delivered = Vec::new();
        for (batch_size, world_size, batches) in sizes {
            let plan = plan(batch_size);
            let epoch = plan.epoch(0, &delivered, Share { rank: world_size - 1, world_size }).unwrap();
            let batches = batches.min(epoch.batches());
            items.extend(without_padding(&global_batches(&plan, 0, &delivered, world_size, batches)));
            delivered = epoch.state("", batches).delivered;
        }
        let plan = plan(end.0);
        let remaining = rest(&plan, 0, &delivered, end.1);
        items.extend(without_padding(&remaining));
        prop_assert_eq!(items.len(), plan.items());
        prop_assert_eq!(items.into_iter().collect::<HashSet<_>>(), expected);

        let epoch = plan.epoch(0, &delivered, Share { rank: 0, world_size: end.1 }).unwrap();
        let delivered = epoch.state("", remaining.len()).delivered;
        prop_assert_eq!(rest(&plan, 0, &delivered, 3).len(), 0, "everything was given");
    }

    #[test]
    fn arbitrary_states_never_panic(
        text in "\\PC{0,80}", sizes in prop::collection::vec((0usize..5, 0usize..5, any::<usize>()), 0..4)
    ) {
        let _ = State::from_json(&text);
        let delivered: Vec<Segment> = sizes
            .into_iter()
            .map(|(batch_size, world_size, batches)| Segment { batch_size, world_size, batches })
            .collect();
        let _ = plan(cubes(9), PlanOptions::new(2)).epoch(0, &delivered, Share::ALL);
    }
}
