//! Datasets whose chunks hold some of the bands: the batches are those of datasets whose chunks
//! hold all of them, and only chunks with a band that is used are decoded.

use hsipack_read::augment::Pipeline;
use hsipack_read::plan::{Crop, Order, Pad, Patches, Share};
use hsipack_read::{
    CacheKind, Dataset, Device, DeviceLoader, DeviceOptions, Host, Loader, LoaderOptions, OnDamage,
    PreparedDeviceLoader,
};
use serde_json::json;

use crate::images::{flat, options};
use crate::support::{StackSpec, write_dataset};

const BANDS: usize = 23;

/// The same cubes with all bands in a chunk, and in band groups of 5. The last group has 3.
struct Data {
    _folder: tempfile::TempDir,
    whole: Dataset,
    grouped: Dataset,
}

impl Data {
    fn write() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let specs = [
            StackSpec::new(50, 40, BANDS, 6).masks(&["a"]).tile(16, 24),
            StackSpec::new(33, 47, BANDS, 4).masks(&["a"]).tile(11, 47),
        ];
        let write = |name: &str, specs: Vec<StackSpec>| {
            let path = folder.path().join(name);
            write_dataset(&path, &specs, |id| json!({ "label": id % 3 }));
            Dataset::open(&path).unwrap()
        };
        let grouped = specs.iter().map(|spec| spec.clone().band_group(5)).collect();
        let (whole, grouped) = (write("whole", specs.to_vec()), write("grouped", grouped));
        Self { _folder: folder, whole, grouped }
    }
}

/// Compares the batches of two epochs. Returns how many chunks were decoded of each dataset.
fn same(data: &Data, options: &LoaderOptions) -> [u64; 2] {
    let options = &LoaderOptions { end_epoch: Some(2), ..options.clone() };
    let mut loaders =
        [&data.whole, &data.grouped].map(|dataset| Loader::new(dataset, options.clone()).unwrap());
    let [whole, grouped] = &mut loaders;
    for _ in 0..2 * whole.batches_per_epoch().unwrap() + 1 {
        match (whole.next_batch(), grouped.next_batch()) {
            (None, None) => {}
            (Some(want), Some(have)) => {
                let (want, have) = (want.unwrap(), have.unwrap());
                assert_eq!(have.items(), want.items());
                assert!(have.image().bytes == want.image().bytes, "{options:?}");
                assert!(
                    have.masks().map(|mask| mask.bytes).eq(want.masks().map(|mask| mask.bytes))
                );
            }
            _ => panic!("epochs of different length: {options:?}"),
        }
    }
    loaders.map(|loader| {
        let stats = loader.statistics().loader;
        stats.chunks - stats.cached_chunks
    })
}

fn crops(crop: Crop) -> LoaderOptions {
    let mut options = options(4);
    options.plan.crop = crop;
    options
}

fn patches(rows: u32, columns: u32) -> LoaderOptions {
    let mut options = options(32);
    options.patches = Some(("a".into(), Patches::new(rows, columns)));
    options
}

/// Ways to cut windows.
fn windows() -> Vec<LoaderOptions> {
    let grid = |pad| Crop::Grid { rows: 32, columns: 32, row_step: 30, column_step: 32, pad };
    vec![
        options(3),
        crops(Crop::Random { rows: 29, columns: 31, per_sample: 3, min_labelled: 0.0 }),
        crops(Crop::Random { rows: 3, columns: 5, per_sample: 20, min_labelled: 0.0 }),
        crops(Crop::Centre { rows: 17, columns: 16 }),
        crops(grid(Some(Pad::Reflect))),
        crops(grid(Some(Pad::Value(2.0)))),
        patches(9, 9),
        patches(1, 1),
    ]
}

#[test]
fn batches_are_those_of_whole_spectra() {
    let data = Data::write();
    for windows in windows() {
        for cache in [CacheKind::None, CacheKind::Compressed, CacheKind::Decoded, CacheKind::Auto] {
            for bands in [None, Some(vec![3]), Some(vec![22, 0, 7, 8, 9, 10, 7, 20])] {
                same(&data, &LoaderOptions { cache, bands, ..windows.clone() });
            }
        }
    }
}

#[test]
fn batches_of_ranks_and_blocks_are_those_of_whole_spectra() {
    let data = Data::write();
    for rank in 0..2 {
        let mut ranked =
            crops(Crop::Random { rows: 9, columns: 8, per_sample: 7, min_labelled: 0.2 });
        ranked.share = Share { rank, world_size: 2 };
        ranked.plan.order = Order::Shuffled;
        same(&data, &ranked);
    }
    for (bands, cache_bytes) in [(None, 350_000), (Some(vec![21, 2, 3]), 150_000)] {
        // Not all chunks fit, so windows come block by block.
        let kept = LoaderOptions { cache_bytes, bands, ..patches(5, 5) };
        let mut loader = Loader::new(&data.grouped, kept.clone()).unwrap();
        let mut items = loader
            .epoch()
            .map(|batch| batch.unwrap().items().to_vec())
            .collect::<Vec<_>>()
            .concat();
        assert!(loader.cache().shuffle_window.is_some(), "{:?}", loader.cache());
        // Blocks of band groups have other sizes, so the windows come in another order.
        let whole = LoaderOptions { cache: CacheKind::None, cache_bytes: 0, ..kept.clone() };
        let mut whole = Loader::new(&data.whole, whole).unwrap();
        let mut want =
            whole.epoch().map(|batch| batch.unwrap().items().to_vec()).collect::<Vec<_>>().concat();
        let window =
            |item: &hsipack_read::plan::Item| (item.sample, item.window.row, item.window.column);
        items.sort_by_key(window);
        want.sort_by_key(window);
        assert!(items.iter().map(window).eq(want.iter().map(window)));
        for batch in Loader::new(&data.grouped, kept.clone()).unwrap().epoch() {
            let batch = batch.unwrap();
            let image = batch.image();
            let bytes = image.bytes.len() / batch.len();
            for (item, have) in batch.items().iter().zip(image.bytes.chunks(bytes)) {
                let shape = data.whole.sample(item.sample).unwrap().shape;
                if item.window.is_inside(shape.rows, shape.columns) {
                    let window = item.window;
                    let (rows, columns) = (window.row_range(), window.column_range());
                    let want =
                        data.whole.crop_bands(item.sample, rows, columns, kept.bands.as_deref());
                    assert!(have == want.unwrap().bytes());
                }
            }
        }
    }
}

#[test]
fn only_chunks_with_a_chosen_band_are_decoded() {
    let data = Data::write();
    let whole = LoaderOptions { cache: CacheKind::None, masks: Some(Vec::new()), ..options(3) };
    for (bands, groups) in
        [(vec![0], 1), (vec![22, 20], 1), (vec![4, 5, 4], 2), (vec![1, 11, 21], 3)]
    {
        let [all, some] = same(&data, &LoaderOptions { bands: Some(bands), ..whole.clone() });
        assert_eq!(some, groups * all);
    }
    let [all, some] = same(&data, &whole);
    assert_eq!(some, 5 * all);
}

/// Two epochs after augmentation.
struct Augmented {
    images: Vec<Vec<f64>>,
    /// Of each batch and item.
    bands: Vec<Vec<Vec<usize>>>,
    /// Number of decoded chunks.
    decoded: u64,
}

fn augmented(dataset: &Dataset, options: &LoaderOptions, pipeline: &Pipeline) -> Augmented {
    let options = LoaderOptions { end_epoch: Some(2), ..options.clone() };
    let device = DeviceOptions { layers: false, ..DeviceOptions::new(Device::Cpu) };
    let prepared = PreparedDeviceLoader::new(dataset, options, device).unwrap();
    let prepared = prepared.augmented(pipeline.clone()).unwrap();
    let mut loader: DeviceLoader<Host> = prepared.start(Host::new(1)).unwrap();
    let (mut images, mut bands) = (Vec::new(), Vec::new());
    for _ in 0..2 {
        for batch in loader.epoch() {
            let batch = batch.unwrap();
            images.push(flat(&batch.image.permuted(&[0, 2, 3, 1])));
            bands.push(batch.bands().unwrap().unwrap());
        }
    }
    let stats = loader.statistics().loader;
    Augmented { images, bands, decoded: stats.chunks - stats.cached_chunks }
}

#[test]
fn only_chunks_with_a_drawn_band_are_decoded() {
    let data = Data::write();
    let plain = LoaderOptions { cache: CacheKind::None, masks: Some(Vec::new()), ..options(3) };
    let mut windows =
        crops(Crop::Random { rows: 29, columns: 31, per_sample: 2, min_labelled: 0.0 });
    (windows.cache, windows.masks) = (CacheKind::None, Some(Vec::new()));
    for options in [plain.clone(), windows] {
        for chosen in [None, Some((0..BANDS).rev().collect::<Vec<_>>())] {
            let options = LoaderOptions { bands: chosen, ..options.clone() };
            for per in ["batch", "item"] {
                let text = format!(
                    r#"{{"seed": 3, "ops": [{{"op": "random_bands", "count": 3, "per": "{per}", "contiguous": true}}, {{"op": "hflip"}}]}}"#
                );
                let pipeline = Pipeline::from_json(&text).unwrap();
                let want = augmented(&data.whole, &options, &pipeline);
                let have = augmented(&data.grouped, &options, &pipeline);
                assert_eq!(have.bands, want.bands);
                assert!(have.images == want.images, "{per} {options:?}");
                // Nothing is left out if bands are not drawn first, or a sample may be left out of its batch.
                let mut later = pipeline.clone();
                later.ops.reverse();
                let all = augmented(&data.grouped, &options, &later);
                assert!(all.images == augmented(&data.whole, &options, &later).images);
                assert!(have.decoded * 2 < all.decoded, "{} of {}", have.decoded, all.decoded);
                let skip = LoaderOptions { on_damage: OnDamage::Skip, ..options.clone() };
                let all = augmented(&data.grouped, &skip, &pipeline);
                assert!(all.images == want.images && have.decoded * 2 < all.decoded);
            }
        }
    }
}
