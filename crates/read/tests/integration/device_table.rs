//! Batches that a device decodes, or gathers from its memory, have the values of the CPU's in many
//! combinations of options: over the stand-in for the CUDA driver, which runs the kernels compiled
//! as C++.

use std::fmt;
use std::path::PathBuf;

use hsipack_format::random::{Random, Stream as Series};
use hsipack_format::{Codec, Compressor, DType, Shuffle};
use hsipack_read::augment::array::Stream;
use hsipack_read::plan::{Crop, Order, Pad, Patches, Share, State, Windows};
use hsipack_read::{
    CacheKind, Class, Dataset, DecodePlace, Device, DeviceCache, DeviceLoader, DeviceOptions,
    ElementType, Host, Loader, LoaderOptions, NewIds, OnDamage, OpenOptions, PageCacheBounds,
    PreparedDeviceLoader, PreparedLoader, ShuffleWindow, Verify,
};
use hsipack_testing::{FakeDriver, skipped};
use serde_json::json;

use crate::device_loading::{damage, runs_clean};
use crate::images::options;
use crate::support::{StackSpec, write_dataset};

/// Number of combinations.
const CASES: u64 = 160;

/// Datasets with the same bands and masks: one of two shapes, one of another codec, one of large
/// chunks.
struct Data {
    _folder: tempfile::TempDir,
    paths: Vec<PathBuf>,
}

impl Data {
    fn write() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let spec = |rows, columns, samples, tile: (usize, usize), codec| {
            let spec = StackSpec::new(rows, columns, 7, samples).masks(&["a", "b"]);
            let spec = spec.tile(tile.0, tile.1);
            StackSpec { wide_masks: vec!["wide".into()], codec, per_shard: 1, ..spec }
        };
        let lz4 = |shuffle| Some(Codec::new(Compressor::Lz4, 5, shuffle, DType::F16));
        let zstd = Some(Codec::new(Compressor::Zstd, 3, Shuffle::Byte, DType::F16));
        let stacks = [
            vec![
                spec(30, 26, 6, (11, 9), lz4(Shuffle::Byte)).band_group(3),
                spec(24, 31, 4, (10, 31), lz4(Shuffle::Bit)),
            ],
            vec![spec(27, 25, 5, (9, 25), zstd)],
            vec![spec(30, 26, 5, (30, 26), lz4(Shuffle::None))],
        ];
        let write = |(number, specs): (usize, Vec<StackSpec>)| {
            let path = folder.path().join(format!("made_{number}"));
            let split = |id| if id % 2 == 0 { "train" } else { "val" };
            let labels = |id| json!({ "label": id % 3, "split": split(id) });
            write_dataset(&path, &specs, labels).path
        };
        let paths = stacks.into_iter().enumerate().map(write).collect();
        Self { _folder: folder, paths }
    }
}

/// A combination of options.
struct Case {
    number: u64,
    datasets: Vec<Dataset>,
    weights: Option<Vec<f64>>,
    options: LoaderOptions,
    device: DeviceOptions,
}

impl fmt::Display for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { number, datasets, options, device, .. } = self;
        write!(
            f,
            "case {number}: {} dataset(s), {options:?}, {} {}",
            datasets.len(),
            device.device_cache,
            device.device_cache_bytes
        )
    }
}

fn pick<T: Clone>(random: &mut Random, from: &[T]) -> T {
    from[random.below(from.len() as u64) as usize].clone()
}

fn pad(random: &mut Random) -> Pad {
    pick(random, &[Pad::Reflect, Pad::Edge, Pad::Value(-1.5), Pad::Value(f64::NAN)])
}

impl Case {
    fn new(number: u64, data: &Data) -> Self {
        let mut random = Random::keyed(Series::Order, [149, number]);
        let verify = pick(&mut random, &[Verify::Once, Verify::Always, Verify::Never]);
        let open = |path: &PathBuf| {
            Dataset::open_with(path, OpenOptions { verify, ..OpenOptions::default() }).unwrap()
        };
        let joins = number.is_multiple_of(4);
        let datasets: Vec<Dataset> = match joins {
            true => data.paths.iter().map(open).collect(),
            false => vec![open(&data.paths[(number % 3) as usize])],
        };
        let mut options = options(2 + random.below(7) as usize);
        options.plan.order = pick(&mut random, &[Order::Sequential, Order::Shuffled]);
        options.plan.seed = number;
        let masks: &[&str] = pick(&mut random, &[&[][..], &["a"], &["b", "a"], &["wide"]]);
        options.masks = Some(masks.iter().map(|name| (*name).to_owned()).collect());
        let [rows, columns] = [5 + random.below(19) as u32, 5 + random.below(19) as u32];
        let windows = |random: &mut Random| {
            let start = |random: &mut Random, size: u32| random.below(u64::from(size) + 20) as i32;
            let window = |random: &mut Random| {
                let [row, column] = [start(random, rows), start(random, columns)];
                (random.below(5) as usize, row - rows as i32 + 1, column - columns as i32 + 1)
            };
            let list: Vec<_> = (0..23).map(|_| window(random)).collect();
            Windows::listed((rows, columns), pad(random), &list).unwrap()
        };
        match number % 7 {
            0 | 1 => {}
            2 => options.plan.crop = Crop::Centre { rows, columns },
            3 => {
                let has_masks = !masks.is_empty();
                let min_labelled = if has_masks { pick(&mut random, &[0.0, 0.7]) } else { 0.0 };
                options.plan.crop = Crop::Random { rows, columns, per_sample: 3, min_labelled };
            }
            4 => {
                let (rows, columns) = (32, 27);
                let pad = Some(pad(&mut random));
                options.plan.crop =
                    Crop::Grid { rows, columns, row_step: 20, column_step: 27, pad };
            }
            5 if !joins => options.plan.crop = Crop::Windows(windows(&mut random).into()),
            _ => {
                let pad = pad(&mut random);
                let patches = Patches { pad, per_class: Some(20), ..Patches::new(9, 9) };
                options.patches = Some(("a".into(), patches));
                options.plan.batch_size = 40;
            }
        }
        if random.below(4) == 0 {
            options.bands =
                Some(pick(&mut random, &[vec![6, 0, 3], vec![2], vec![1, 1, 5, 0, 4, 2]]));
        }
        if masks.contains(&"a") && random.below(4) == 0 {
            let classes = [0, 1, 2, 3].map(|id| (Class::Id(id), 10 + id)).to_vec();
            options.new_ids = vec![NewIds { mask: "a".into(), classes, other: None }];
        }
        if random.below(3) == 0 {
            let world_size = 2 + random.below(2) as usize;
            options.share = Share { rank: random.below(world_size as u64) as usize, world_size };
        }
        if random.below(5) == 0 && !matches!(options.plan.crop, Crop::Windows(_)) {
            options.splits = vec!["train".into()];
        }
        options.on_damage = pick(&mut random, &[OnDamage::Error, OnDamage::Skip]);
        options.slots = 2 + random.below(3) as usize;
        options.threads = 1 + random.below(3) as usize;
        options.cache =
            pick(&mut random, &[CacheKind::Auto, CacheKind::None, CacheKind::Compressed]);
        options.cache_bytes = if options.cache == CacheKind::Compressed { 40_000 } else { 0 };
        if options.cache == CacheKind::Auto && random.below(3) == 0 {
            options.shuffle_window = pick(&mut random, &[ShuffleWindow::All, ShuffleWindow::Auto]);
        }
        // As they are stored: nothing computes on this device.
        let element = if masks == ["wide"] { ElementType::U16 } else { ElementType::U8 };
        let mut device = DeviceOptions {
            layers: false,
            masks: Some(element),
            ..DeviceOptions::new(Device::Cuda(0))
        };
        device.device_cache = DeviceCache::ALL[(number % 4) as usize];
        options.decode = match device.device_cache {
            DeviceCache::Decoded => pick(&mut random, &[DecodePlace::Device, DecodePlace::Host]),
            _ => DecodePlace::Device,
        };
        if device.device_cache != DeviceCache::None {
            device.device_cache_bytes = pick(&mut random, &[0, 0, 30_000, 60_000]);
        }
        // Files are registered in one piece each, in pieces of a page, or only a few of them.
        let pieces = [(0, 32 << 20), (0, 4096), (24_000, 4096), (1, 4096)];
        let (bytes, piece_bytes) = pieces[(number / 3 % 4) as usize];
        device.page_cache = PageCacheBounds { bytes, piece_bytes };
        let is_mix = joins && random.below(2) == 0;
        options.plan.is_mix = is_mix;
        let weights = is_mix.then(|| vec![1.0, 2.0, 1.0]);
        Self { number, datasets, weights, options, device }
    }

    fn prepared(&self, decode: DecodePlace) -> PreparedLoader {
        let options = LoaderOptions { decode, ..self.options.clone() };
        let all = self.datasets.iter().map(|dataset| (dataset.clone(), options.clone()));
        PreparedLoader::joined(all.collect(), self.weights.as_deref())
            .unwrap_or_else(|error| panic!("{self}: {error}"))
    }

    /// Compares the batches of an epoch and a half, before and after the loaders resume and go
    /// elsewhere.
    fn compare(&self, driver: &FakeDriver) -> Figures {
        let prepared =
            || PreparedDeviceLoader::of(self.prepared(self.options.decode), self.device.clone());
        let mut loader = prepared().unwrap().start(Host::new(1)).unwrap();
        let mut plain = self.prepared(DecodePlace::Host).start().unwrap();
        let mut figures = Figures::default();
        let count = plain.batches_per_epoch().unwrap();
        for _ in 0..count + 1 + count / 2 {
            self.compare_one(driver, &mut loader, &mut plain, &mut figures);
        }
        let state = State::from_json(&loader.state().to_json()).unwrap();
        figures.add(&loader);
        if self.number.is_multiple_of(2) {
            drop(loader);
            loader = prepared().unwrap().resumed(&state).unwrap().start(Host::new(1)).unwrap();
        }
        for _ in 0..3 {
            self.compare_one(driver, &mut loader, &mut plain, &mut figures);
        }
        // Unfinished batches are dropped, with the chunks that they were to bring.
        loader.set_epoch(5);
        plain.set_epoch(5);
        for _ in 0..=count {
            self.compare_one(driver, &mut loader, &mut plain, &mut figures);
        }
        figures
    }

    fn compare_one(
        &self,
        driver: &FakeDriver,
        loader: &mut DeviceLoader<Host>,
        plain: &mut Loader,
        figures: &mut Figures,
    ) {
        let (have, want) = (loader.next_batch(), plain.next_batch());
        assert_eq!(loader.state(), plain.state(), "{self}");
        match (have, want) {
            (None, None) => {}
            (Some(Ok(have)), Some(Ok(want))) => {
                assert_eq!(have.items(), want.items(), "{self}");
                assert_eq!(have.dataset_number(), want.dataset_number());
                let image = want.image();
                let stream = Stream::LEGACY.handle() as usize;
                driver.read(stream, have.image.address() as u64, image.bytes);
                for ((name, have), want) in have.masks.iter().zip(want.masks()) {
                    assert_eq!(name, want.name);
                    driver.read(stream, have.address() as u64, want.bytes);
                }
                figures.batches += 1;
            }
            (Some(Err(have)), Some(Err(want))) => {
                assert_eq!(have.to_string(), want.to_string(), "{self}");
                figures.failed += 1;
            }
            (have, want) => panic!(
                "{self}: {:?} {:?}",
                have.map(|result| result.map(drop)),
                want.map(|result| result.map(drop))
            ),
        }
    }
}

#[derive(Debug, Default)]
struct Figures {
    batches: u64,
    failed: u64,
    decoded: u64,
    hits: u64,
    straight: u64,
}

impl Figures {
    fn add(&mut self, loader: &DeviceLoader<Host>) {
        let statistics = loader.statistics();
        self.decoded += statistics.device_decoded;
        self.hits += statistics.device_cache_hits;
        self.straight += u64::from(statistics.page_cache_bytes > 0);
    }
}

#[test]
fn device_batches_equal_host_batches_in_every_combination() {
    runs_clean("device_table::combinations", 1);
}

#[test]
#[ignore = "run by the test above"]
fn combinations() {
    let driver = FakeDriver::new();
    let data = Data::write();
    let (mut figures, mut with_hits) = (Figures::default(), 0);
    for number in 0..CASES {
        let case = Case::new(number, &data);
        let case_figures = case.compare(&driver);
        assert_eq!(case_figures.failed, 0, "{case}");
        with_hits += u64::from(case_figures.hits > 0);
        figures.decoded += case_figures.decoded;
        figures.hits += case_figures.hits;
        figures.straight += case_figures.straight;
        figures.batches += case_figures.batches;
    }
    println!("{figures:?}, hits in {with_hits} cases");
    assert!(figures.decoded > 150 && figures.hits > 1000 && with_hits > 60, "{figures:?}");
    assert!(figures.straight > 20, "{figures:?}");
}

#[test]
fn damaged_samples_fail_or_are_skipped_as_on_the_host() {
    runs_clean("device_table::damaged_combinations", 1);
}

#[test]
#[ignore = "run by the test above"]
fn damaged_combinations() {
    let driver = FakeDriver::new();
    let data = Data::write();
    for (path, samples) in data.paths.iter().zip([[0, 2], [1, 4], [0, 3]]) {
        let dataset = Dataset::open(path).unwrap();
        let stack = dataset.stacks()[0].name.clone();
        samples.into_iter().for_each(|index| damage(path, &stack, index));
    }
    let mut failed = 0;
    for number in 0..CASES / 2 {
        let mut case = Case::new(number, &data);
        // Crops are chosen by masks, and random ones by trying.
        if case.options.patches.is_some() {
            case.options.plan.batch_size = 20;
        }
        failed += case.compare(&driver).failed;
    }
    println!("{failed} failed");
    assert!(failed > 40, "{failed}");
}

/// Samples in the memory of the device are read once, and shared by the loaders of the process.
#[test]
fn loaders_of_a_process_share_what_stays_on_the_device() {
    runs_clean("device_table::sharing", 2);
}

#[test]
#[ignore = "run by the test above"]
fn sharing() {
    let driver = FakeDriver::new();
    let data = Data::write();
    let dataset = Dataset::open(&data.paths[0]).unwrap();
    let mut device = DeviceOptions { layers: false, ..DeviceOptions::new(Device::Cuda(0)) };
    device.device_cache = DeviceCache::Decoded;
    let mut loader_options = options(3);
    loader_options.decode = DecodePlace::Device;
    loader_options.masks = Some(vec!["a".into()]);
    let start = |options: &LoaderOptions| {
        DeviceLoader::new(&dataset, options.clone(), device.clone(), Host::new(1)).unwrap()
    };
    let read = |loader: &mut DeviceLoader<Host>| {
        let mut plain = Loader::new(
            &dataset,
            LoaderOptions { decode: DecodePlace::Host, ..loader.options().clone() },
        )
        .unwrap();
        plain.set_epoch(loader.state().epoch);
        let before = loader.statistics();
        for (have, want) in loader.epoch().zip(plain.epoch()) {
            let (have, want) = (have.unwrap(), want.unwrap());
            let stream = Stream::LEGACY.handle() as usize;
            driver.read(stream, have.image.address() as u64, want.image().bytes);
        }
        let after = loader.statistics();
        (after.link_bytes - before.link_bytes, after.device_cache_hits - before.device_cache_hits)
    };
    let mut first = start(&loader_options);
    let (link, _) = read(&mut first);
    let (again, _) = read(&mut first);
    // Counted from the start, because batches are copied before they are asked for.
    let hits = first.statistics().device_cache_hits;
    assert!(again * 4 < link && hits >= 10, "{again} of {link} bytes, {hits} hits");
    let report = first.report().device_cache;
    assert_eq!((report.kind, report.samples, report.loaded), ("decoded", 10, 1.0), "{report:?}");
    // Another one, of parts of the same cubes.
    loader_options.plan.crop =
        Crop::Random { rows: 9, columns: 9, per_sample: 4, min_labelled: 0.0 };
    let mut second = start(&loader_options);
    let allocated = driver.calls("cuMemAlloc_v2");
    let (other, hits) = read(&mut second);
    assert!(other * 4 < link && hits >= 40, "{other} of {link} bytes, {hits} hits");
    assert!(driver.calls("cuMemAlloc_v2") - allocated < 4, "it takes no memory for samples");
    drop(first);
    // The memory stays as long as a loader uses it.
    assert!(read(&mut second).1 >= 34);
    assert_eq!(second.report().device_cache.samples, 10);
}

/// If the device runs out of memory, what stays there is released, and batches go on over the link.
#[test]
fn device_cache_is_released_when_memory_runs_out() {
    runs_clean("device_table::releasing", 2);
}

#[test]
#[ignore = "run by the test above"]
fn releasing() {
    const OUT_OF_MEMORY: u32 = 2;
    let driver = FakeDriver::new();
    let data = Data::write();
    let dataset = Dataset::open(&data.paths[0]).unwrap();
    for kind in [DeviceCache::Decoded, DeviceCache::Compressed] {
        let mut device = DeviceOptions { layers: false, ..DeviceOptions::new(Device::Cuda(0)) };
        device.device_cache = kind;
        let mut loader_options = options(2);
        loader_options.decode = DecodePlace::Device;
        loader_options.masks = Some(vec!["a".into()]);
        let mut loader =
            DeviceLoader::new(&dataset, loader_options.clone(), device, Host::new(1)).unwrap();
        let mut plain =
            Loader::new(&dataset, LoaderOptions { decode: DecodePlace::Host, ..loader_options })
                .unwrap();
        let mut kept = Vec::new();
        for number in 0..20 {
            if number == 8 {
                // The next slot, for batches that are kept.
                driver.fail("cuMemAlloc_v2", 1, OUT_OF_MEMORY);
                kept.clear();
            }
            match (loader.next_batch(), plain.next_batch()) {
                (Some(have), Some(want)) => {
                    let (have, want) = (have.unwrap(), want.unwrap());
                    let stream = Stream::LEGACY.handle() as usize;
                    driver.read(stream, have.image.address() as u64, want.image().bytes);
                    kept.push(have);
                }
                (None, None) => {}
                other => panic!("{other:?}"),
            }
        }
        let report = loader.report();
        assert_eq!(report.device_cache.kind, "none", "{kind}: {report:?}");
        assert!(report.notes.iter().any(|note| note.contains("cache was released")), "{report:?}");
    }
}

#[test]
fn contradictions_are_refused() {
    if !hsipack_testing::FakeCuda::has_kernels() {
        skipped("the stand-in was built without a C++ compiler");
        return;
    }
    let data = Data::write();
    let dataset = Dataset::open(&data.paths[0]).unwrap();
    let error = |decode, kind, device, bytes| {
        let mut loader_options = options(2);
        loader_options.decode = decode;
        let device = DeviceOptions {
            device_cache: kind,
            device_cache_bytes: bytes,
            ..DeviceOptions::new(device)
        };
        let error = DeviceLoader::new(&dataset, loader_options, device, Host::new(1)).err();
        error.map(|error| error.to_string())
    };
    let gpu = Device::Cuda(0);
    let compressed = error(DecodePlace::Host, DeviceCache::Compressed, gpu, 0).unwrap();
    assert!(compressed.contains("does not decode them"), "{compressed}");
    let nothing = error(DecodePlace::Host, DeviceCache::None, gpu, 5).unwrap();
    assert!(nothing.contains("keeps nothing"), "{nothing}");
    let cpu = error(DecodePlace::Host, DeviceCache::Decoded, Device::Cpu, 0).unwrap();
    assert!(cpu.contains("batches are on the CPU"), "{cpu}");
    assert_eq!(error(DecodePlace::Host, DeviceCache::Auto, Device::Cpu, 0), None);
}
