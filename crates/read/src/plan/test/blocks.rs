//! Windows that come block by block.

use super::*;

/// Whether a window begins in this block.
fn is_in(block: &Block, item: &Item) -> bool {
    let inside = |range: &std::ops::Range<u32>, start: i32| {
        (start < 0 && range.start == 0) || (start >= 0 && range.contains(&(start as u32)))
    };
    block.sample == item.sample
        && inside(&block.rows, item.window.row)
        && inside(&block.columns, item.window.column)
}

#[test]
fn groups_of_blocks_come_one_after_the_other() {
    for kind in 1..CROPS {
        let samples = ragged(31);
        let crop = crop(kind, &samples);
        let blocks = Some(blocks(&samples, &crop, 4));
        // One shape, so that batches do not have to wait for one another.
        let samples: Vec<PlanSample> =
            samples.into_iter().map(|sample| PlanSample { bands: 5, ..sample }).collect();
        let plan = plan(samples, PlanOptions { crop, blocks, ..PlanOptions::new(1) });
        let epoch = plan.epoch(3, &[], Share::ALL).unwrap();
        let (mut group, mut found, mut items) = (0, HashSet::new(), Vec::new());
        for n in 0..epoch.batches() {
            let now = epoch.group(n).unwrap();
            assert!(now == group || now == group + 1, "{group} {now}");
            group = now;
            epoch.batch(n, None, &mut items).unwrap();
            let mut matching = epoch.blocks(group).filter(|block| is_in(block, &items[0]));
            found.insert((group, matching.next().expect("of its group").clone()));
            assert_eq!(matching.next(), None);
        }
        assert_eq!(group + 1, epoch.groups());
        let blocks = || (0..epoch.groups()).flat_map(|group| epoch.blocks(group));
        assert_eq!(blocks().count(), found.len());
        assert_eq!(blocks().collect::<HashSet<_>>().len(), found.len(), "every block once");
        assert!((0..epoch.groups()).all(|group| (1..=4).contains(&epoch.blocks(group).count())));
        assert_ne!(windows(&plan, 0), windows(&plan, 1));
    }
}

/// Windows around all pixels of a cube of 64 x 64 in blocks of 4 rows, `together` in a group.
fn in_blocks(together: usize) -> Plan {
    let mut pixels = LabelledPixels::new(Patches::new(1, 1));
    pixels.add(0, (64, 64), [1; 4096]).unwrap();
    let crop = Crop::Windows(pixels.windows(0).unwrap().into());
    let rows = |block: u32| 4 * block..4 * block + 4;
    let block = |block| Block { sample: 0, rows: rows(block), columns: 0..64 };
    let blocks = ShuffleBlocks { blocks: (0..16).map(block).collect(), together };
    let blocks = Some(Arc::new(blocks));
    plan(vec![sample(0, 64, 64, 1)], PlanOptions { crop, blocks, ..PlanOptions::new(512) })
}

#[test]
fn windows_come_in_any_place_and_their_block_follows_as_often_as_said() {
    // 16 blocks of 256 windows each.
    for together in [4, 8, 16] {
        let plan = in_blocks(together);
        let epochs = 300;
        let (mut places, mut follows) = (vec![0u32; 16 * 16], 0u32);
        for epoch in 0..epochs {
            let rows: Vec<i32> =
                windows(&plan, epoch).iter().map(|(_, window, _)| window.row / 4).collect();
            for (position, block) in rows.iter().enumerate() {
                places[position / 256 * 16 + *block as usize] += 1;
            }
            follows += rows.windows(2).filter(|pair| pair[0] == pair[1]).count() as u32;
        }
        // In which sixteenth of the epoch a block's windows come. They come in groups, so only the places of the groups
        // are independent: 16 / together of them per epoch.
        let groups = (16 / together) as f64;
        let mean = f64::from(epochs as u32) * 4096.0 / 256.0;
        let chi_square: f64 =
            places.iter().map(|count| (f64::from(*count) - mean).powi(2) / mean).sum();
        // If they were independent, there would be 225 degrees of freedom. But each group puts 256 / groups windows into
        // one sixteenth at once.
        let together_there = if together == 16 { 1.0 } else { 256.0 / groups };
        assert!(chi_square / together_there < 310.0, "{together}: {chi_square}"); // 99.99 %
        // In a global shuffle, a window of the same block follows once in 16 times (255 of 4095).
        let share = f64::from(follows) / f64::from(epochs as u32) / 4095.0;
        let expected = (255.0 / 4095.0) * groups;
        assert!((share / expected - 1.0).abs() < 0.02, "{together}: {share} {expected}");
    }
}

#[test]
fn windows_of_a_group_are_shuffled_evenly() {
    // At which place of its group a window comes, and which window follows it: as in a shuffle of all windows of the
    // group.
    let plan = in_blocks(8);
    let (mut places, mut steps) = (vec![0u32; 64 * 64], vec![0u32; 64]);
    for epoch in 0..20 {
        let drawn = plan.epoch(epoch, &[], Share::ALL).unwrap();
        let all = windows(&plan, epoch);
        for group in 0..2 {
            let blocks: Vec<Block> = drawn.blocks(group).cloned().collect();
            // Numbers of the group's pixels, 2048.
            let number = |window: &Window| {
                let row = window.row as u32;
                let block = blocks.iter().position(|block| block.rows.contains(&row)).unwrap();
                block * 256 + (row % 4) as usize * 64 + window.column as usize
            };
            let numbers: Vec<usize> =
                all[group * 2048..][..2048].iter().map(|(_, window, _)| number(window)).collect();
            for (position, number) in numbers.iter().enumerate() {
                places[position / 32 * 64 + number / 32] += 1;
            }
            for pair in numbers.windows(2) {
                steps[(pair[1] + 2048 - pair[0]) % 2048 / 32] += 1;
            }
        }
    }
    let chi_square = |counts: &[u32]| -> f64 {
        let mean = f64::from(counts.iter().sum::<u32>()) / counts.len() as f64;
        counts.iter().map(|n| (f64::from(*n) - mean).powi(2) / mean).sum()
    };
    assert!(chi_square(&steps) < 103.4, "{steps:?}");
    assert!((chi_square(&places) - 3969.0).abs() < 4.0 * 89.0);
}

#[test]
fn senseless_blocks_are_refused() {
    let samples = cubes(3);
    let crop = crop(5, &samples);
    let good = blocks(&samples, &crop, 2);
    let with = |order, blocks: ShuffleBlocks| {
        let blocks = Some(Arc::new(blocks));
        let options = PlanOptions { crop: crop.clone(), order, blocks, ..PlanOptions::new(2) };
        refusal(samples.clone(), options)
    };
    let message = with(Order::Sequential, (*good).clone());
    assert!(message.contains("with sequential order"), "{message}");
    assert!(
        with(Order::Shuffled, ShuffleBlocks { together: 0, ..(*good).clone() })
            .contains("0 blocks")
    );
    let mut less = (*good).clone();
    less.blocks.pop();
    assert!(with(Order::Shuffled, less.clone()).contains("gaps"));
    less.blocks.push(less.blocks[0].clone());
    assert!(with(Order::Shuffled, less).contains("overlap"));
}
