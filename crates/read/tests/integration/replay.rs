//! Items that are requested one by one are equal to those in the loader's batches, also after
//! augmentation.

use hsipack_read::augment::{Host, Images, Pipeline, SampleKey};
use hsipack_read::plan::{Crop, Item, Pad, Patches};
use hsipack_read::{
    Array, Class, Dataset, Device, DeviceLoader, DeviceOptions, LoaderOptions, NewIds,
    Normalization, Replay, ShuffleWindow,
};

use serde_json::json;

use crate::images;
use crate::support::{StackSpec, Written, write_dataset};

/// Everything that a batch consists of.
fn told(image: &Array, masks: &[(String, Array)]) -> Vec<(String, Vec<usize>, Vec<u8>)> {
    let bytes = |array: &Array| match array.bytes() {
        Some(bytes) => bytes.to_vec(),
        None => {
            array.permuted(&[0, 2, 3, 1]).bytes().expect("(sample, row, column, value)").to_vec()
        }
    };
    let entry = |name: &str, array: &Array| (name.to_owned(), array.shape().to_vec(), bytes(array));
    let masks = masks.iter().map(|(name, mask)| entry(name, mask));
    std::iter::once(entry("image", image)).chain(masks).collect()
}

fn of_images(images: &Images<Array>) -> Vec<(String, Vec<usize>, Vec<u8>)> {
    let masks: Vec<_> =
        images.masks.iter().map(|mask| (mask.name.clone(), mask.labels.clone())).collect();
    told(&images.image, &masks)
}

/// Stacks of different shape with masks that have labelled pixels.
fn labelled() -> (tempfile::TempDir, Written) {
    let folder = tempfile::tempdir().unwrap();
    let stacks = [
        StackSpec::new(14, 16, 5, 7).masks(&["a", "b"]).tile(5, 16),
        StackSpec::new(19, 12, 5, 5).masks(&["a", "b"]).tile(4, 5),
    ];
    let written = write_dataset(&folder.path().join("made"), &stacks, |_| json!({}));
    (folder, written)
}

/// Compares two epochs of a loader with what is read without one.
fn compare(dataset: &Dataset, options: LoaderOptions, device: DeviceOptions) {
    let replay = Replay::new(dataset, options.clone(), device.clone()).unwrap();
    let mut loader = DeviceLoader::new(dataset, options, device, Host::default()).unwrap();
    for epoch in [0, 3] {
        loader.set_epoch(epoch);
        let batches = replay.epoch(epoch).unwrap().batches();
        let mut number = 0;
        for batch in loader.epoch() {
            let batch = batch.unwrap();
            let items = replay.items(epoch, number).unwrap();
            assert_eq!(items, batch.items());
            let read = replay.read(&items).unwrap();
            assert_eq!(of_images(&read), told(&batch.image, &batch.masks));
            number += 1;
        }
        assert_eq!(number, batches);
        assert!(replay.items(epoch, batches).is_err());
    }
}

#[test]
fn items_are_those_of_the_loader_bit_for_bit() {
    let (_folder, written) = images::made();
    let mut device = DeviceOptions::new(Device::Cpu);
    device.physical = true;
    device.normalization = Normalization::Standardize;
    device.nan = Some(-1.0);
    compare(&Dataset::open(&written.path).unwrap(), images::options(3), device);
}

#[test]
fn so_are_crops_of_every_kind() {
    let (_folder, written) = labelled();
    let dataset = Dataset::open(&written.path).unwrap();
    let compare = |change: &dyn Fn(&mut LoaderOptions)| {
        let mut options = images::options(3);
        change(&mut options);
        compare(&dataset, options, DeviceOptions::new(Device::Cpu));
    };
    compare(&|options| {
        let (rows, columns, per_sample) = (6, 5, 2);
        options.plan.crop = Crop::Random { rows, columns, per_sample, min_labelled: 0.2 };
    });
    compare(&|options| {
        let (rows, columns, row_step, column_step) = (15, 13, 3, 4);
        let pad = Some(Pad::Reflect);
        options.plan.crop = Crop::Grid { rows, columns, row_step, column_step, pad };
        options.bands = Some(vec![3, 0]);
    });
    compare(&|options| {
        options.patches = Some(("a".into(), Patches { pad: Pad::Edge, ..Patches::new(5, 5) }));
        options.masks = Some(vec!["b".into(), "a".into()]);
        let classes = vec![(Class::Id(2), 7)];
        options.new_ids = vec![NewIds { mask: "a".into(), classes, other: Some(9) }];
    });
    compare(&|options| {
        options.patches = Some(("a".into(), Patches::new(1, 1)));
        options.shuffle_window = ShuffleWindow::Bytes(6 << 10);
    });
}

#[test]
fn an_item_alone_becomes_what_it_becomes_in_its_batch() {
    let (_folder, written) = images::made();
    let dataset = Dataset::open(&written.path).unwrap();
    let pipeline = Pipeline::from_json(
        r#"{"seed": 7, "ops": [{"op": "hflip"}, {"op": "affine", "degrees": 20}, {"op": "elastic"},
            {"op": "erase", "p": 0.7}, {"op": "band_dropout", "p": 0.6}, {"op": "gaussian_noise", "std": 0.1},
            {"op": "snv"}]}"#,
    )
    .unwrap();
    assert!(!pipeline.takes_from_others());
    let mut options = images::options(4);
    options.plan.crop = Crop::Random { rows: 8, columns: 7, per_sample: 3, min_labelled: 0.0 };
    let mut device = DeviceOptions::new(Device::Cpu);
    device.image = hsipack_read::ElementType::F32;
    let replay = Replay::new(&dataset, options.clone(), device.clone()).unwrap();
    let mut loader = DeviceLoader::new(&dataset, options, device, Host::default()).unwrap();
    loader.set_epoch(2);
    for (number, batch) in loader.epoch().enumerate() {
        let mut batch = batch.unwrap();
        let (_, parameters) = batch.augment(&pipeline).unwrap();
        let items = replay.items(2, number).unwrap();
        for (position, item) in items.iter().enumerate() {
            let alone = replay.read(&[*item]).unwrap();
            let sample_parameters = parameters.of_sample(position);
            let augmented = pipeline.apply(&Host::default(), &alone, &sample_parameters).unwrap();
            let keys = [SampleKey::from(item)];
            let frame = parameters.frame;
            assert_eq!(pipeline.draw(frame, 2, &keys).unwrap(), sample_parameters);
            let of_batch = |array: &Array| array.narrowed(0, position, 1);
            let masks: Vec<_> =
                batch.masks.iter().map(|(name, mask)| (name.clone(), of_batch(mask))).collect();
            let images = Images::new(augmented.image, augmented.masks);
            assert_eq!(of_images(&images), told(&of_batch(&batch.image), &masks));
        }
    }
}

#[test]
fn pipelines_say_whether_samples_take_from_others() {
    let takes = |json: &str| Pipeline::from_json(json).unwrap().takes_from_others();
    for op in ["mixup", "cutmix_rect", "transplant"] {
        assert!(takes(&format!(r#"[{{"op": "hflip"}}, {{"op": "{op}"}}]"#)), "{op}");
    }
    assert!(!takes(r#"[{"op": "jigsaw"}, {"op": "erase"}]"#));
}

#[test]
fn damage_is_an_error_that_names_the_sample() {
    let (_folder, written) = images::made();
    let [shard] = &shards(&written.path.join("9x8x5/image/c"))[..1] else { panic!("no shard") };
    let mut bytes = std::fs::read(shard).unwrap();
    bytes[8..40].fill(0);
    std::fs::write(shard, bytes).unwrap();
    let dataset = Dataset::open(&written.path).unwrap();
    let device = DeviceOptions::new(Device::Cpu);
    let replay = Replay::new(&dataset, images::options(12), device).unwrap();
    let batches = 0..replay.epoch(0).unwrap().batches();
    let items: Vec<Item> = batches.flat_map(|batch| replay.items(0, batch).unwrap()).collect();
    let failed = items.iter().filter_map(|item| replay.read(&[*item]).err());
    let failed: Vec<String> = failed.map(|error| error.to_string()).collect();
    assert!(!failed.is_empty() && failed.len() < items.len(), "{failed:?}");
    assert!(failed.iter().all(|error| error.contains("sample")), "{failed:?}");
}

/// The shards of an array, which are in numbered folders.
fn shards(folder: &std::path::Path) -> Vec<std::path::PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        match path.is_dir() {
            true => found.extend(shards(&path)),
            false => found.push(path),
        }
    }
    found
}
