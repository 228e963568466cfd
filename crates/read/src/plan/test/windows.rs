//! Windows around labelled pixels, on regions, and listed ones.

use super::*;

#[test]
fn every_labelled_pixel_is_the_centre_of_a_window_with_its_class() {
    let samples = ragged(7);
    for (rows, columns) in [(1, 1), (3, 5), (4, 2)] {
        let crop = Crop::Windows(labelled(&samples, Patches::new(rows, columns)).into());
        let options = PlanOptions { crop, order: Order::Sequential, ..PlanOptions::new(1000) };
        let mut expected = Vec::new();
        for cube in &samples {
            for pixel in 0..cube.rows * cube.columns {
                let (row, column) = (pixel / cube.columns, pixel % cube.columns);
                let (row, column) =
                    (row as i32 - rows as i32 / 2, column as i32 - columns as i32 / 2);
                let label = class(cube.sample, pixel);
                if label > 0 {
                    expected.push((
                        cube.sample,
                        Window { row, column, rows, columns },
                        Some(label),
                    ));
                }
            }
        }
        let mut found = windows(&plan(samples.clone(), options.clone()), 0);
        // Numbers of bands differ, so batches with different numbers of bands take turns.
        found.sort_by_key(|(sample, ..)| *sample);
        assert_eq!(found, expected);
        let shuffled = PlanOptions { order: Order::Shuffled, ..options };
        let shuffled = windows(&plan(samples.clone(), shuffled), 0);
        assert_ne!(shuffled, expected);
        assert_eq!(shuffled.iter().collect::<HashSet<_>>(), expected.iter().collect());
    }
}

#[test]
fn classes_are_chosen_ignored_and_bounded() {
    let samples = ragged(9);
    let all = labelled(&samples, Patches::new(1, 1));
    let [(1, ones), (2, twos), (3, threes)] = all.classes()[..] else { panic!("{all:?}") };
    assert_eq!(ones + twos + threes, all.len());
    let some = |change: &dyn Fn(&mut Patches)| {
        let mut patches = Patches::new(1, 1);
        change(&mut patches);
        labelled(&samples, patches)
    };
    let chosen = some(&|patches: &mut Patches| patches.classes = Some(vec![1, 3]));
    assert_eq!(chosen.classes(), [(1, ones), (3, threes)]);
    assert_eq!(
        some(&|patches: &mut Patches| patches.ignore = vec![0, 1]).classes(),
        [(2, twos), (3, threes)]
    );
    assert_eq!(some(&|patches: &mut Patches| patches.ignore = Vec::new()).classes()[0].0, 0);
    let few = some(&|patches: &mut Patches| patches.per_class = Some(threes + 1));
    assert_eq!(few.classes(), [(1, threes + 1), (2, threes + 1), (3, threes)]);
    assert_eq!(
        few,
        some(&|patches: &mut Patches| patches.per_class = Some(threes + 1)),
        "drawn once"
    );

    let mut none = LabelledPixels::new(Patches::new(1, 1));
    none.add(0, (2, 2), [0; 4]).unwrap();
    let error = none.windows(0).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Conflict);
    assert!(error.to_string().contains("no pixel has one of the requested labels"), "{error}");
}

#[test]
fn pixels_of_each_class_are_drawn_evenly() {
    // 20 of 100 pixels of a class, with 400 seeds: each pixel comes about 80 times.
    let mut counts = [0u32; 100];
    for seed in 0..400 {
        let patches = Patches { per_class: Some(20), ..Patches::new(1, 1) };
        let mut pixels = LabelledPixels::new(patches);
        pixels.add(0, (10, 10), [7; 100]).unwrap();
        let crop = Crop::Windows(pixels.windows(seed).unwrap().into());
        let options = PlanOptions { crop, ..PlanOptions::new(20) };
        for (_, window, _) in windows(&plan(vec![sample(0, 10, 10, 1)], options), 0) {
            counts[(window.row * 10 + window.column) as usize] += 1;
        }
    }
    let chi_square: f64 = counts.iter().map(|n| (f64::from(*n) - 80.0).powi(2) / 80.0).sum();
    // 99 degrees of freedom, and drawn without replacement: 99.9 % lie below 148.2 * 0.8.
    assert!(chi_square < 148.2, "{chi_square}: {counts:?}");
}

#[test]
fn balanced_classes_take_turns_and_give_all_their_windows() {
    let samples = cubes(11);
    let crop = Crop::Windows(labelled(&samples, Patches::new(3, 3)).into());
    let order = Order::ClassBalanced;
    let options = PlanOptions { crop: crop.clone(), order, seed: 4, ..PlanOptions::new(5) };
    let balanced = plan(samples, PlanOptions { epoch_length: Some(3000), ..options });
    let Crop::Windows(all) = &crop else { unreachable!() };
    let items = windows(&balanced, 2);
    assert_eq!(items.len(), 3000);
    let mut firsts = [[0u32; 3]; 3];
    for turn in items.chunks(3) {
        let labels: Vec<u32> = turn.iter().map(|(.., label)| label.unwrap()).collect();
        for (position, label) in labels.iter().enumerate() {
            firsts[position][*label as usize - 1] += 1;
        }
        assert_eq!(labels.iter().collect::<HashSet<_>>().len(), 3, "{labels:?}");
    }
    // At which place of its turn each class comes: 4 degrees of freedom, 99.9 % lie below 18.5.
    let chi_square: f64 =
        firsts.as_flattened().iter().map(|n| (f64::from(*n) - 1000. / 3.).powi(2) * 3e-3).sum();
    assert!(chi_square < 18.5, "{chi_square}: {firsts:?}");
    for (class, count) in all.classes() {
        let of_class: Vec<_> = items.iter().filter(|item| item.2 == Some(class)).collect();
        for round in of_class.chunks_exact(count) {
            assert_eq!(round.iter().collect::<HashSet<_>>().len(), count, "each once a round");
        }
    }
}

#[test]
fn windows_of_samples_drawn_by_weight_come_from_everywhere() {
    let samples = cubes(4);
    let all = labelled(&samples, Patches::new(1, 1));
    let total = all.len();
    let options = PlanOptions { crop: Crop::Windows(all.into()), ..PlanOptions::new(8) };
    let order = Order::Weighted;
    let plan = plan(samples, PlanOptions { order, epoch_length: Some(60 * total), ..options });
    let found: HashSet<_> = windows(&plan, 0).into_iter().collect();
    // Each sample has a weight, and all its windows are equally likely.
    assert_eq!(found.len(), total);
    let few: HashSet<i32> =
        windows(&plan, 1)[..30].iter().map(|(_, window, _)| window.row).collect();
    assert!(few.len() > 4, "{few:?}");
}

#[test]
fn listed_windows_keep_their_order_and_must_touch_their_cube() {
    let list = [(103, 5, 5), (100, -2, 0), (103, 0, -1), (101, 7, 8)];
    let crop =
        |list: &[_]| Crop::Windows(Windows::listed((3, 2), Pad::Reflect, list).unwrap().into());
    let options = |crop| PlanOptions { crop, order: Order::Sequential, ..PlanOptions::new(3) };
    let found = windows(&plan(cubes(5), options(crop(&list))), 0);
    let found: Vec<_> = found.iter().map(|(id, at, _)| (*id, at.row, at.column)).collect();
    assert_eq!(found, list);
    assert!(Windows::listed((3, 2), Pad::Edge, &[]).is_err());
    for (outside, what) in [
        ((100, -3, 0), "row -3, column 0 lies outside sample 100 of 8x9"),
        ((100, 8, 0), "row 8, column 0"),
        ((101, 0, -2), "column -2"),
        ((101, 0, 9), "column 9"),
        ((99, 0, 0), "windows are listed for sample 99"),
    ] {
        let error = refusal(cubes(5), options(crop(&[list[0], outside])));
        assert!(error.contains(what), "{error}");
    }
    let balanced = PlanOptions { order: Order::ClassBalanced, ..options(crop(&list)) };
    assert_eq!(plan(cubes(5), balanced).items(), 4, "by the classes of the samples");
}

#[test]
fn windows_of_regions_keep_what_they_show() {
    let shown = [(7, 3, 1, 9, 4), (2, 0, 0, 5, 8), (7, -1, 2, 6, 8)].map(
        |(sample, row, column, id, label)| Region { sample, row, column, id, label, cut: id > 5 },
    );
    let windows = Windows::of_regions((3, 2), Pad::Edge, &shown).unwrap();
    assert!(windows.are_regions() && windows.are_labelled());
    assert_eq!(windows.classes(), [(4, 1), (8, 2)]);
    assert_eq!(windows.cut_regions(), Some(2));
    assert_eq!(windows.of_samples(&[7]).unwrap().cut_regions(), Some(2));
    assert_eq!(windows.of_samples(&[2]).unwrap().cut_regions(), Some(0));
    let listed = Crop::Windows(windows.into());
    let samples = vec![sample(2, 6, 5, 1), sample(7, 6, 5, 1)];
    let options = PlanOptions { crop: listed, order: Order::Sequential, ..PlanOptions::new(4) };
    let items = without_padding(&rest(&plan(samples, options), 0, &[], 1));
    for (item, region) in items.iter().zip(&shown) {
        let Region { sample, row, column, id, label, .. } = *region;
        let window = Window { row, column, rows: 3, columns: 2 };
        assert_eq!((item.sample, item.window), (sample, window));
        assert_eq!((item.region, item.label), (Some(id), Some(label)));
    }
    assert_eq!(items.len(), 3);

    // Classes take turns, whatever the order of the list.
    let samples = cubes(6);
    let Crop::Windows(windows) = crop(6, &samples) else { panic!("windows") };
    let classes = windows.classes().len();
    let crop = Crop::Windows(windows);
    let options = PlanOptions { crop, order: Order::ClassBalanced, ..PlanOptions::new(1) };
    let items = without_padding(&rest(&plan(samples, options), 0, &[], 1));
    for turn in items.chunks_exact(classes) {
        let labels: HashSet<_> = turn.iter().map(|item| item.label).collect();
        assert_eq!(labels.len(), classes);
    }
}

#[test]
fn states_of_other_windows_are_refused() {
    let base = plan(cubes(5), PlanOptions { crop: crop(5, &cubes(5)), ..PlanOptions::new(2) });
    let other = Crop::Windows(labelled(&cubes(5), Patches::new(3, 5)).into());
    let other = plan(cubes(5), PlanOptions { crop: other, ..PlanOptions::new(2) });
    assert_ne!(base.digest(), other.digest());
    let state = base.epoch(0, &[], Share::ALL).unwrap().state("abc", 1);
    state.check(&base, "abc", None).unwrap();
    assert!(state.check(&other, "abc", None).is_err());
}

#[test]
fn the_order_of_windows_is_that_of_a_global_shuffle() {
    // At which place a window comes, and how far apart neighbours in the cube come: 64 classes each.
    let cube = sample(0, 64, 64, 1);
    let mut pixels = LabelledPixels::new(Patches::new(1, 1));
    pixels.add(0, (64, 64), [1; 4096]).unwrap();
    let crop = Crop::Windows(pixels.windows(0).unwrap().into());
    let plan = plan(vec![cube], PlanOptions { crop, ..PlanOptions::new(512) });
    let (mut places, mut gaps) = (vec![0u32; 64 * 64], vec![0u32; 64]);
    for epoch in 0..10 {
        let mut position_of = vec![0i64; 4096];
        for (position, (_, window, _)) in windows(&plan, epoch).iter().enumerate() {
            let pixel = (window.row * 64 + window.column) as usize;
            position_of[pixel] = position as i64;
            places[position / 64 * 64 + pixel / 64] += 1;
        }
        for pair in position_of.windows(2) {
            gaps[((pair[1] - pair[0]).rem_euclid(4096) / 64) as usize] += 1;
        }
    }
    let chi_square = |counts: &[u32]| -> f64 {
        let mean = f64::from(counts.iter().sum::<u32>()) / counts.len() as f64;
        counts.iter().map(|n| (f64::from(*n) - mean).powi(2) / mean).sum()
    };
    // 63 degrees of freedom: 99.9 % below 103.4; 63 x 63: mean 3969, deviation 89.
    assert!(chi_square(&gaps) < 103.4, "{gaps:?}");
    assert!((chi_square(&places) - 3969.0).abs() < 4.0 * 89.0);
}

#[test]
fn millions_of_windows_need_no_list() {
    // A hundred million windows work the same way, but take a minute without optimisation.
    let side = 2300u32;
    let all = (side * side) as usize;
    let cube = sample(0, side, side, 3);
    let mut pixels = LabelledPixels::new(Patches::new(9, 9));
    let labels = (0..side * side).map(|pixel| 1 + pixel / side % 16);
    pixels.add(0, (side, side), labels).unwrap();
    let windows = pixels.windows(0).unwrap();
    assert_eq!(windows.len(), all);
    assert!(windows.bytes() < all + all / 4, "{}", windows.bytes());
    let crop = Crop::Windows(windows.into());
    let plan = plan(vec![cube], PlanOptions { crop, ..PlanOptions::new(512) });
    let epoch = plan.epoch(0, &[], Share { rank: 1, world_size: 4 }).unwrap();
    assert_eq!(epoch.batches(), all.div_ceil(4 * 512));
    let mut items = Vec::new();
    epoch.batch(epoch.batches() - 1, None, &mut items).unwrap();
    assert!(!items.is_empty());
    for Item { window, label, .. } in items {
        assert_eq!(label, Some(1 + (window.row + 4) as u32 % 16));
    }
    let state = epoch.state("", 2000);
    let remaining = plan.epoch(0, &state.delivered, Share::ALL).unwrap();
    assert_eq!(remaining.items(), all - 2000 * 4 * 512);
}

#[test]
fn windows_of_some_samples_are_those_in_their_order() {
    let list = [(103, 5, 5), (100, -2, 0), (103, 0, -1), (101, 7, 8), (100, 1, 1)];
    let all = Windows::listed((3, 2), Pad::Reflect, &list).unwrap();
    assert_eq!(all.of_samples(&[102, 99]), None, "they have none");
    let some = all.of_samples(&[103, 102, 100]).unwrap();
    let kept: Vec<_> = list.into_iter().filter(|window| window.0 != 101).collect();
    assert_eq!(some, Windows::listed((3, 2), Pad::Reflect, &kept).unwrap());
    assert_eq!(all.of_samples(&[100, 101, 103]), Some(all));

    let labels = |sample: usize| (0..12).map(move |pixel| (pixel * 7 + sample as u32) % 4);
    let around = |samples: &[usize]| {
        let mut pixels = LabelledPixels::new(Patches::new(3, 3));
        samples.iter().for_each(|sample| pixels.add(*sample, (3, 4), labels(*sample)).unwrap());
        pixels.windows(0).unwrap()
    };
    let some = around(&[5, 6, 8]).of_samples(&[8, 5]).unwrap();
    assert_eq!(some.samples(), [5, 8]);
    assert_eq!(some.classes(), around(&[5, 8]).classes());
    for sample in 0..2 {
        let windows = |windows: &Windows| -> Vec<_> {
            let places = 0..windows.of_sample(sample);
            let number = |window| windows::WindowNumber { sample: sample as u32, window };
            places.map(|window| windows.get(number(window))).collect()
        };
        assert_eq!(windows(&some), windows(&around(&[5, 8])));
    }
}
