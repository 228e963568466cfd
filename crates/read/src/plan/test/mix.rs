//! Properties of mixes: interrupted anywhere, on any number of ranks, with any weights.

use hsipack_format::random::{Random, Stream};

use super::*;
use crate::plan::{JoinedPlan, lengths, seed_of};

/// A mix of datasets with these numbers of samples, in which a dataset has its fraction of `total`
/// items by its weight.
fn mix(counts: &[u32], weights: &[f64], total: usize, batch_size: usize) -> JoinedPlan {
    let lengths = lengths(weights, total);
    let plans = counts.iter().zip(lengths).enumerate().map(|(number, (count, length))| {
        let options = PlanOptions {
            order: Order::Shuffled,
            seed: seed_of(7, number),
            is_mix: true,
            epoch_length: Some(length),
            ..PlanOptions::new(batch_size)
        };
        plan(cubes(*count), options)
    });
    JoinedPlan::new(plans.collect(), 7)
}

/// The batches that are left on a rank: the dataset of each, and its items.
fn batches(mix: &JoinedPlan, segments: &[Segment], share: Share) -> Vec<(usize, Vec<Item>)> {
    let epoch = mix.epoch(3, segments, share).unwrap();
    let batch = |n| {
        let (plan, number) = epoch.turn(n);
        let mut items = Vec::new();
        epoch.epochs()[plan].batch(number, None, &mut items).unwrap();
        (plan, items)
    };
    (0..epoch.batches()).map(batch).collect()
}

fn segment(world_size: usize, batches: usize) -> Segment {
    Segment { batch_size: 3, world_size, batches }
}

#[test]
fn a_thousand_interrupted_mixes_go_on_with_the_next_batch() {
    let mut random = Random::keyed(Stream::PlanTurns, [1]);
    for _ in 0..40 {
        let counts: Vec<u32> = (0..3).map(|_| 1 + random.below(30) as u32).collect();
        let weights: Vec<f64> = (0..3).map(|_| 0.1 + random.unit()).collect();
        let mixed = mix(&counts, &weights, 40 + random.below(80) as usize, 3);
        let world_size = 1 + random.below(8) as usize;
        let share = Share { rank: random.below(world_size as u64) as usize, world_size };
        let all = batches(&mixed, &[], share);
        for _ in 0..25 {
            let first = random.below(all.len() as u64 + 1) as usize;
            let second = first + random.below((all.len() - first) as u64 + 1) as usize;
            // Stopped once, and once more in what was left.
            let stops = [segment(world_size, first), segment(world_size, second - first)];
            assert_eq!(batches(&mixed, &stops[..1], share), all[first..]);
            assert_eq!(batches(&mixed, &stops, share), all[second..]);
        }
    }
}

/// The samples of each dataset in an epoch, in order.
fn samples(batches: &[(usize, Vec<Item>)]) -> Vec<(usize, usize, usize)> {
    let mut found: Vec<_> = (batches.iter())
        .flat_map(|(plan, items)| items.iter().map(move |item| (*plan, item)))
        .filter(|(_, item)| !item.padding)
        .map(|(plan, item)| (plan, item.sample, item.repeat as usize))
        .collect();
    found.sort_unstable();
    found
}

#[test]
fn worlds_of_one_to_eight_ranks_share_a_mix_and_change_into_each_other() {
    let (counts, weights) = ([60, 24, 9], [60.0, 24.0, 9.0]);
    let mixed = mix(&counts, &weights, 93, 3);
    let whole = samples(&batches(&mixed, &[], Share::ALL));
    let mut once = whole.clone();
    once.dedup();
    assert_eq!((whole.len(), once.len()), (93, 93));
    for world_size in 1..=8 {
        let on = |segments: &[Segment], world_size: usize| -> Vec<Vec<(usize, Vec<Item>)>> {
            let ranks = 0..world_size;
            ranks.map(|rank| batches(&mixed, segments, Share { rank, world_size })).collect()
        };
        let ranks = on(&[], world_size);
        // All ranks have batches of the same dataset at the same time.
        let turns = |rank: &[(usize, Vec<Item>)]| rank.iter().map(|(plan, _)| *plan).collect();
        let of_first: Vec<usize> = turns(&ranks[0]);
        assert!(ranks.iter().all(|rank| turns(rank) == of_first));
        assert_eq!(samples(&ranks.concat()), whole);
        for stop in (0..=of_first.len()).step_by(3) {
            let segments = [segment(world_size, stop)];
            let before: Vec<_> = ranks.iter().flat_map(|rank| rank[..stop].to_vec()).collect();
            for other in 1..=8 {
                let after = on(&segments, other).concat();
                assert_eq!(samples(&[before.clone(), after].concat()), whole);
            }
        }
    }
}

#[test]
fn draws_of_a_long_mix_have_the_weights() {
    let (counts, weights) = ([50, 20, 10], [3.0, 1.0, 2.0]);
    let total = 100_000;
    let mixed = mix(&counts, &weights, total, 50);
    let epoch = batches(&mixed, &[], Share::ALL);
    let mut drawn = [vec![0u32; 50], vec![0; 20], vec![0; 10]];
    for (plan, items) in &epoch {
        items.iter().for_each(|item| drawn[*plan][item.sample - 100] += 1);
    }
    let sum: f64 = weights.iter().sum();
    let mut chi_square = 0.0;
    for (drawn, weight) in drawn.iter().zip(weights) {
        let wanted = total as f64 * weight / sum / drawn.len() as f64;
        chi_square += drawn.iter().map(|n| (f64::from(*n) - wanted).powi(2) / wanted).sum::<f64>();
    }
    // 79 degrees of freedom: greater in one of a thousand random draws.
    assert!(chi_square < 123.6, "{chi_square}");
}
