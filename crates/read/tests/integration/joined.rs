//! One loader over several datasets.

use hsipack_read::plan::{Crop, Item, Order, Share, State};
use hsipack_read::{
    CacheKind, CommonBands, Dataset, Device, DeviceOptions, ErrorKind, Host, Loader, LoaderOptions,
    Member, PreparedDeviceLoader, PreparedLoader, Result, ShuffleWindow, Values, ndarray,
};
use serde_json::json;

use crate::images;
use crate::support::{StackSpec, write_dataset};

/// A batch: the number of its dataset, its items, and the bytes of image and mask.
type Read = (usize, Vec<Item>, Vec<u8>, Vec<u8>);

/// Three datasets of other shapes, with the same bands and masks.
fn datasets() -> (tempfile::TempDir, Vec<Dataset>) {
    let folder = tempfile::tempdir().unwrap();
    let specs = [
        StackSpec::new(60, 20, 7, 8).masks(&["a"]).tile(5, 20),
        StackSpec::new(40, 23, 7, 5).masks(&["a"]).tile(6, 9),
        StackSpec::new(31, 44, 7, 3).masks(&["a"]),
    ];
    let open = |(number, spec): (usize, &StackSpec)| {
        let path = folder.path().join(format!("made_{number}"));
        let written = write_dataset(&path, std::slice::from_ref(spec), |_| json!({}));
        Dataset::open(&written.path).unwrap()
    };
    let datasets = specs.iter().enumerate().map(open).collect();
    (folder, datasets)
}

fn prepared(datasets: &[Dataset], options: &LoaderOptions) -> Result<PreparedLoader> {
    let datasets = datasets.iter().map(|dataset| (dataset.clone(), options.clone()));
    PreparedLoader::joined(datasets.collect(), None)
}

fn start(datasets: &[Dataset], options: &LoaderOptions) -> Loader {
    prepared(datasets, options).unwrap().start().unwrap()
}

/// The batches that are left of an epoch.
fn epoch(loader: &mut Loader) -> Vec<Read> {
    let batches = loader.epoch().map(|batch| {
        let batch = batch.unwrap();
        let bytes = |bytes: &[u8]| bytes.to_vec();
        let mask = batch.mask("a").map(|mask| bytes(mask.bytes)).unwrap_or_default();
        (batch.dataset_number(), batch.items().to_vec(), bytes(batch.image().bytes), mask)
    });
    batches.collect()
}

fn kinds() -> Vec<LoaderOptions> {
    let whole = images::options(3);
    let mut crops = images::options(4);
    crops.plan.crop = Crop::Random { rows: 9, columns: 8, per_sample: 20, min_labelled: 0.0 };
    let window = LoaderOptions { shuffle_window: ShuffleWindow::Bytes(200_000), ..crops.clone() };
    let kept = LoaderOptions { cache: CacheKind::Decoded, cache_bytes: 30_000, ..crops.clone() };
    let mut bands = whole.clone();
    bands.bands = Some(vec![6, 0, 2]);
    let mut listed = whole.clone();
    listed.plan.order = Order::Sequential;
    vec![whole, crops, window, kept, bands, listed]
}

#[test]
fn batches_of_a_dataset_are_those_of_a_loader_of_it_alone() {
    let (_folder, datasets) = datasets();
    for options in kinds() {
        let mut joined = start(&datasets, &options);
        let members = prepared(&datasets, &options).unwrap().members().to_vec();
        let alone =
            |member: &Member| Loader::new(member.dataset(), member.options().clone()).unwrap();
        let mut alone: Vec<Loader> = members.iter().map(alone).collect();
        for _ in 0..3 {
            let all = epoch(&mut joined);
            for (number, alone) in alone.iter_mut().enumerate() {
                let of_dataset: Vec<_> = all.iter().filter(|batch| batch.0 == number).collect();
                let wanted = epoch(alone);
                assert_eq!(of_dataset.len(), wanted.len(), "{options:?}");
                for (have, want) in of_dataset.into_iter().zip(wanted) {
                    assert_eq!((&have.1, &have.2, &have.3), (&want.1, &want.2, &want.3));
                }
            }
            let turns: Vec<usize> = all.iter().map(|batch| batch.0).collect();
            assert_eq!(turns.is_sorted(), options.plan.order == Order::Sequential, "{turns:?}");
            let together = matches!(options.shuffle_window, ShuffleWindow::Bytes(_));
            assert_eq!(members[0].cache().shuffle_window.is_some(), together);
        }
    }
}

#[test]
fn memory_is_divided_and_seeds_differ() {
    let (_folder, datasets) = datasets();
    let mut options = kinds().remove(3);
    options.cache_bytes = 30_000;
    let joined = prepared(&datasets, &options).unwrap();
    let of = |of: &dyn Fn(&Member) -> u64| joined.members().iter().map(of).collect::<Vec<_>>();
    let needed = of(&|member| member.cache().needed_bytes);
    let sizes = of(&|member| member.options().cache_bytes);
    for (size, needed_here) in sizes.iter().zip(&needed) {
        let part = *needed_here as f64 / needed.iter().sum::<u64>() as f64;
        assert!((*size as f64 - 30_000.0 * part).abs() <= 1.0, "{size} {part}");
    }
    let mut seeds = of(&|member| member.options().plan.seed);
    assert_eq!(seeds[0], options.plan.seed);
    seeds.dedup();
    assert_eq!(seeds.len(), 3);
}

#[test]
fn it_goes_on_after_any_batch_and_in_any_epoch() {
    let (_folder, datasets) = datasets();
    for options in kinds() {
        let mut loader = start(&datasets, &options);
        let epochs = [epoch(&mut loader), epoch(&mut loader)];
        loader.set_epoch(0);
        for delivered in 0..epochs[0].len() {
            let state = State::from_json(&loader.state().to_json()).unwrap();
            let prepared = prepared(&datasets, &options).unwrap().resumed(&state).unwrap();
            let mut resumed = prepared.start().unwrap();
            assert!(
                epoch(&mut resumed) == epochs[0][delivered..],
                "after {delivered}: {options:?}"
            );
            assert!(epoch(&mut resumed) == epochs[1]);
            loader.next_batch().unwrap().unwrap();
        }
    }
}

#[test]
fn ranks_get_batches_of_the_same_datasets_in_step() {
    let (_folder, datasets) = datasets();
    let options = images::options(2);
    let rank = |rank| {
        let prepared = prepared(&datasets, &options).unwrap();
        let mut loader = prepared.at(Share { rank, world_size: 2 }).unwrap().start().unwrap();
        epoch(&mut loader)
    };
    let (first, second) = (rank(0), rank(1));
    let turns = |all: &[Read]| all.iter().map(|batch| batch.0).collect::<Vec<_>>();
    assert_eq!(turns(&first), turns(&second));
    let samples = first.iter().chain(&second).flat_map(|(number, items, ..)| {
        items.iter().filter(|item| !item.padding).map(move |item| (*number, item.sample))
    });
    let mut samples: Vec<_> = samples.collect();
    samples.sort_unstable();
    samples.dedup();
    assert_eq!(samples.len(), 16);
}

#[test]
fn weights_are_fractions_of_an_epoch() {
    let (_folder, datasets) = datasets();
    let mut options = images::options(2);
    options.plan.epoch_length = Some(30);
    let joined = |weights: &[f64]| {
        let datasets = datasets.iter().map(|dataset| (dataset.clone(), options.clone()));
        PreparedLoader::joined(datasets.collect(), Some(weights))
    };
    let mut loader = joined(&[1.0, 0.0, 2.0]).unwrap().start().unwrap();
    for _ in 0..2 {
        let mut counts = [0; 3];
        epoch(&mut loader).iter().for_each(|batch| counts[batch.0] += batch.1.len());
        assert_eq!(counts, [10, 0, 20]);
    }
    for weights in [&[1.0, 2.0][..], &[0.0; 3], &[1.0, -1.0, 1.0], &[1.0, f64::NAN, 1.0]] {
        let error = joined(weights).unwrap_err();
        assert!(error.to_string().contains("are not weights of 3 datasets"), "{error}");
    }
}

#[test]
fn datasets_of_a_mix_may_have_other_bands() {
    let (folder, mut datasets) = datasets();
    let spec = StackSpec::new(20, 20, 6, 12).masks(&["a"]);
    let other = write_dataset(&folder.path().join("other"), &[spec], |_| json!({}));
    datasets.push(Dataset::open(&other.path).unwrap());
    let mut options = images::options(2);
    options.plan.is_mix = true;
    let mixed = |weights: Option<&[f64]>| {
        let datasets = datasets.iter().map(|dataset| (dataset.clone(), options.clone()));
        PreparedLoader::joined(datasets.collect(), weights).unwrap().start().unwrap()
    };
    let items = |loader: &mut Loader| {
        let mut counts = [0; 4];
        epoch(loader).iter().for_each(|batch| {
            counts[batch.0] += batch.1.iter().filter(|item| !item.padding).count();
            let bands = datasets[batch.0].stacks()[0].image.shape().bands;
            let shape = datasets[batch.0].stacks()[0].image.shape();
            assert_eq!(batch.2.len() % (bands * 2), 0, "{shape:?}");
        });
        counts
    };
    let sizes: Vec<usize> = datasets.iter().map(|dataset| dataset.samples().len()).collect();
    assert_eq!(items(&mut mixed(None)).to_vec(), sizes);
    // The largest comes once.
    assert_eq!(sizes[3], 12);
    assert_eq!(items(&mut mixed(Some(&[1.0, 0.5, 0.0, 2.0]))), [6, 3, 0, 12]);
    // A state of a mix is of no other loader.
    let mut loader = mixed(None);
    loader.next_batch().unwrap().unwrap();
    let state = loader.state();
    let wanted = epoch(&mut loader);
    let mut resumed = {
        let datasets = datasets.iter().map(|dataset| (dataset.clone(), options.clone()));
        let prepared = PreparedLoader::joined(datasets.collect(), None).unwrap();
        prepared.resumed(&state).unwrap().start().unwrap()
    };
    assert!(epoch(&mut resumed) == wanted);
    let error = prepared(&datasets[..3], &images::options(2)).unwrap().resumed(&state).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::State);
}

#[test]
fn batches_of_items_of_several_datasets_are_copied_to_a_device() {
    let (folder, mut datasets) = datasets();
    let spec = StackSpec::new(20, 20, 6, 12).masks(&["a"]);
    let other = write_dataset(&folder.path().join("other"), &[spec], |_| json!({}));
    datasets.push(Dataset::open(&other.path).unwrap());
    let mut options = images::options(5);
    options.plan.crop = Crop::Random { rows: 9, columns: 8, per_sample: 3, min_labelled: 0.5 };
    (options.plan.is_mix, options.plan.mixes_items) = (true, true);
    let prepared = |options: &LoaderOptions| prepared(&datasets, options);
    let error = prepared(&options).unwrap_err();
    assert!(error.to_string().contains("datasets of 7 and 6 bands"), "{error}");
    options.common_bands = Some(CommonBands::default());
    let device = DeviceOptions { emulated_bus: Some(1e9), ..DeviceOptions::new(Device::Cpu) };
    for cache in [CacheKind::None, CacheKind::Decoded, CacheKind::Compressed] {
        let cache_bytes = if cache == CacheKind::None { 0 } else { 100_000 };
        let options = LoaderOptions { cache, cache_bytes, ..options.clone() };
        let mut plain = prepared(&options).unwrap().start().unwrap();
        let loader = PreparedDeviceLoader::of(prepared(&options).unwrap(), device.clone());
        let mut loader = loader.unwrap().start(Host::default()).unwrap();
        let mut sources = std::collections::HashSet::new();
        for number in 0..2 * plain.batches_per_epoch().unwrap() {
            if number == 7 {
                let state = State::from_json(&loader.state().to_json()).unwrap();
                let resumed = PreparedDeviceLoader::of(prepared(&options).unwrap(), device.clone());
                loader = resumed.unwrap().resumed(&state).unwrap().start(Host::default()).unwrap();
            }
            let (Some(want), Some(batch)) = (plain.next_batch(), loader.next_batch()) else {
                assert!(plain.state() == loader.state());
                continue;
            };
            let (want, batch) = (want.unwrap(), batch.unwrap());
            assert_eq!(want.items(), batch.items());
            assert!(want.names().eq(batch.names()));
            let image = want.image_f16().unwrap();
            let bits = |value: &half::f16| value.to_bits();
            let copied = batch.image.permuted(&[0, 2, 3, 1]);
            let copied = copied.values::<half::f16>().unwrap();
            assert!(image.iter().map(bits).eq(copied.iter().map(bits)));
            for (position, item) in want.items().iter().enumerate() {
                let dataset = want.dataset_of(position);
                sources.insert(dataset);
                let sample = image.index_axis(ndarray::Axis(0), position);
                let missing = sample.index_axis(ndarray::Axis(2), 6);
                assert_eq!(missing.iter().all(|value| value.is_nan()), dataset == 3, "{item:?}");
            }
        }
        assert_eq!(sources.len(), 4);
    }
}

#[test]
fn an_epoch_of_one_of_several_datasets_is_resumed() {
    let (_folder, datasets) = datasets();
    let joined = || {
        let options = images::options(2);
        let datasets = datasets.iter().map(|dataset| (dataset.clone(), options.clone()));
        PreparedLoader::joined(datasets.collect(), Some(&[0.0, 1.0, 0.0])).unwrap()
    };
    let mut loader = joined().start().unwrap();
    let all = epoch(&mut loader);
    loader.set_epoch(0);
    loader.next_batch().unwrap().unwrap();
    let state = loader.state();
    assert_eq!(state.seed, images::options(2).plan.seed);
    let mut resumed = joined().resumed(&state).unwrap().start().unwrap();
    assert!(epoch(&mut resumed) == all[1..]);
}

#[test]
fn datasets_that_do_not_match_are_refused() {
    let (folder, mut datasets) = datasets();
    let spec = StackSpec::new(20, 20, 6, 2).masks(&["a"]);
    let other = write_dataset(&folder.path().join("other"), &[spec], |_| json!({}));
    datasets.push(Dataset::open(&other.path).unwrap());
    let error = prepared(&datasets, &images::options(2)).unwrap_err().to_string();
    assert!(error.contains("datasets of [7] and [6] bands"), "{error}");
    let mut options = images::options(2);
    options.bands = Some(vec![0, 3]);
    prepared(&datasets, &options).unwrap();
    let spec = StackSpec::new(20, 20, 7, 2).masks(&["b"]);
    let other = write_dataset(&folder.path().join("masks"), &[spec], |_| json!({}));
    datasets[3] = Dataset::open(&other.path).unwrap();
    let error = prepared(&datasets, &images::options(2)).unwrap_err().to_string();
    assert!(error.contains(r#"datasets with masks ["a"] and ["b"]"#), "{error}");
}
