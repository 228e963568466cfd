//! The five strategies, on small cubes: all deliver the same batches.

use std::path::Path;

use half::f16;
use hsipack_measure::bench::{
    Augment, BenchOptions, CubeSize, Data, Feed, InProcess, Progress, Request, Settings, Strategy,
    measure, prepare, run,
};
use hsipack_measure::step::StepKind;
use hsipack_pack::convert::{ConvertOptions, convert};
use hsipack_pack::progress;
use hsipack_read::augment::{Array, Device, ElementType, Host, Pipeline};

use crate::machine::beside_others;

const SHAPE: CubeSize = CubeSize { rows: 24, columns: 32, bands: 8 };

fn options(folder: &Path, augment: Augment) -> BenchOptions {
    BenchOptions {
        cubes: Some(7),
        shape: SHAPE,
        repeats: 1,
        work_dir: folder.to_owned(),
        settings: Settings {
            batch_size: 3,
            workers: 2,
            epochs: 2,
            warmup_epochs: 1,
            step: StepKind::Time(0.001),
            device: "cpu".to_owned(),
            augment,
            seed: 3,
            ..Settings::default()
        },
        ..BenchOptions::default()
    }
}

/// Ids and float32 images of two epochs.
fn batches(strategy: Strategy, options: &BenchOptions, data: &Data) -> Vec<(Vec<usize>, Vec<f32>)> {
    let host = Host::new(2);
    let settings = &options.settings;
    let mut feed = Feed::start(strategy, None, settings, data, &host, Device::Cpu).unwrap();
    assert_eq!(feed.batches_per_epoch(), 3);
    (0..6)
        .map(|_| {
            let batch = feed.next().unwrap();
            let ids = batch.ids();
            let image = feed.augment(feed.arrive(batch).unwrap()).unwrap();
            let half = strategy >= Strategy::Half;
            let element = if half { ElementType::F16 } else { ElementType::F32 };
            assert_eq!(image.element(), element, "{strategy}");
            assert_eq!(image.shape(), [ids.len(), 8, 24, 32]);
            (ids, widened(&image))
        })
        .collect()
}

/// Values of images (B, C, H, W) in the order of memory: sample, row, column, band.
fn widened(image: &Array) -> Vec<f32> {
    let stored = image.permuted(&[0, 2, 3, 1]);
    match image.element() {
        ElementType::F16 => {
            stored.elements::<f16>().unwrap().iter().map(|value| value.to_f32()).collect()
        }
        _ => stored.elements::<f32>().unwrap().to_vec(),
    }
}

fn largest(a: &[f32], b: &[f32]) -> f32 {
    assert_eq!(a.len(), b.len());
    a.iter().zip(b).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max)
}

#[test]
fn all_strategies_give_the_same_cubes_in_the_same_order() {
    let _machine = beside_others();
    let folder = tempfile::tempdir().unwrap();
    for (augment, most) in [(Augment::None, 0.0), (Augment::Published, 2e-3)] {
        let options = options(folder.path(), augment);
        let (data, _work) = prepare(&options, &progress::Progress::default(), &|_| {}).unwrap();
        let original = batches(Strategy::Original, &options, &data);
        let mut samples: Vec<usize> =
            original[..3].iter().flat_map(|(ids, _)| ids.clone()).collect();
        assert_ne!(samples, (0..7).collect::<Vec<usize>>(), "shuffled");
        samples.sort_unstable();
        assert_eq!(samples, (0..7).collect::<Vec<usize>>());
        for strategy in &Strategy::all_on("cpu")[1..] {
            let found = batches(*strategy, &options, &data);
            for ((ids, image), (want_ids, want)) in found.iter().zip(&original) {
                assert_eq!(ids, want_ids, "{strategy}");
                // Exact except for the cast to float16, or for the rounding of warps.
                let want: Vec<f32> = match *strategy >= Strategy::Half {
                    true => want.iter().map(|value| f16::from_f32(*value).to_f32()).collect(),
                    false => want.clone(),
                };
                let off = largest(image, &want);
                assert!(off <= most, "{strategy}: {off}");
            }
        }
    }
}

#[test]
fn a_users_pipeline_is_run_by_all() {
    let _machine = beside_others();
    let folder = tempfile::tempdir().unwrap();
    let pipeline = Pipeline::from_json(
        r#"{"seed": 9, "ops": [{"op": "rot90", "turns": [2, 2]}, {"op": "gain", "range": [0.5, 0.5]}]}"#,
    );
    let options = options(folder.path(), Augment::Pipeline(pipeline.unwrap()));
    let (data, _work) = prepare(&options, &progress::Progress::default(), &|_| {}).unwrap();
    let original = batches(Strategy::Original, &options, &data);
    for strategy in &Strategy::all_on("cpu")[1..] {
        let found = batches(*strategy, &options, &data);
        for ((_, image), (_, want)) in found.iter().zip(&original) {
            assert!(largest(image, want) < 1e-3, "{strategy}");
        }
    }
}

#[test]
fn a_measurement_says_what_was_done_on_the_device() {
    let _machine = beside_others();
    let folder = tempfile::tempdir().unwrap();
    let mut options = options(folder.path(), Augment::Published);
    options.settings.step = StepKind::Time(0.02);
    let (data, _work) = prepare(&options, &progress::Progress::default(), &|_| {}).unwrap();
    for strategy in Strategy::all_on("cpu") {
        let settings = options.settings.clone();
        let request = Request { strategy, rate_limit: Some(1 << 30), settings, data: data.clone() };
        let json = serde_json::to_string(&request).unwrap();
        let measured = measure(&serde_json::from_str(&json).unwrap(), &Host::default()).unwrap();
        assert_eq!((measured.epoch_s.len(), measured.cubes), (2, 14), "{strategy}");
        let (statistics, seconds) = (&measured.statistics, measured.epoch_s.iter().sum::<f64>());
        assert!(seconds >= 0.12, "6 batches of 20 ms take {seconds}");
        let times = &statistics.times;
        assert_eq!((statistics.schema, statistics.batches), (1, 6));
        assert_eq!((times.wait_s.count, times.step_s.count), (6, 6));
        assert!(!times.load_s.is_empty() && times.load_s.mean > 0.0);
        let loaders = if strategy == Strategy::Ring { 1 } else { 2 };
        assert_eq!(statistics.loaders, loaders, "{strategy}");
        assert!(measured.bytes_read > 0 && measured.peak_bytes.is_some());
        assert!(measured.utilisation > 0.2 && measured.utilisation <= 1.0, "{measured:?}");
        assert_eq!(measured.timeline.len(), (seconds / 0.15 + 1e-9) as usize);
        assert_eq!(
            (measured.device.as_str(), measured.utilisation_source.as_str()),
            ("cpu", "clock")
        );
    }
}

#[test]
fn a_benchmark_of_packed_cubes_leaves_nothing_and_makes_a_page() {
    let _machine = beside_others();
    let folder = tempfile::tempdir().unwrap();
    let mut generated = options(folder.path(), Augment::None);
    generated.keep = true;
    let (data, _work) = prepare(&generated, &progress::Progress::default(), &|_| {}).unwrap();
    // The same command finds the kept files; other cubes are refused.
    let (again, _work) =
        prepare(&generated, &progress::Progress::default(), &|_| panic!("nothing is to be made"))
            .unwrap();
    assert_eq!(again, data);
    generated.cubes = Some(8);
    let error = prepare(&generated, &progress::Progress::default(), &|_| {}).unwrap_err();
    assert!(error.to_string().contains("choose another work_dir"), "{error}");
    // Strategies whose files do not exist are also refused.
    let elsewhere = tempfile::tempdir().unwrap();
    let mut original_only = options(elsewhere.path(), Augment::None);
    (original_only.keep, original_only.strategies) = (true, vec![Strategy::Original]);
    prepare(&original_only, &progress::Progress::default(), &|_| {}).unwrap();
    original_only.strategies.push(Strategy::Ring);
    let error = prepare(&original_only, &progress::Progress::default(), &|_| {}).unwrap_err();
    assert!(error.to_string().contains("that these strategies need"), "{error}");

    let packed = folder.path().join("cubes.hsipack");
    let inputs = vec![data.original.display().to_string()];
    convert(&ConvertOptions::new(inputs, &packed), &progress::Progress::default(), &|_| {})
        .unwrap();
    for path in [&packed, &data.original] {
        let work = tempfile::tempdir().unwrap();
        let mut options = options(work.path(), Augment::Published);
        options.path = Some(path.display().to_string());
        options.rate_limits = vec![None, Some(1 << 30)];
        options.repeats = 2;
        let stop = progress::Progress::default();
        let listening = Progress { stop: &stop, tell: &|_| {} };
        let host = Host::default();
        let report = run(&options, &InProcess(&host), &listening).unwrap();
        assert_eq!(report.strategies.len(), 10);
        assert!(
            report.strategies.iter().all(|entry| entry.epoch_s.n == 2 && entry.speedup.is_some())
        );
        assert_eq!(std::fs::read_dir(work.path()).unwrap().count(), 0);
        assert!(packed.is_dir());
        let json = serde_json::to_value(&report).unwrap();
        assert_eq!(json["strategies"][9]["name"], "+ring-buffer");
        assert_eq!(json["strategies"][9]["rate_limit"], 1 << 30);
        assert_eq!(json["strategies"][0]["rate_limit"], serde_json::Value::Null);
        assert!(json["strategies"][4]["statistics"]["times"]["load_s"]["percentiles"].is_array());
        let page = report.page();
        assert!(page.contains("+gpu-aug") && page.contains("id=\"data\""));
        // A run that ends before the first window has no chart, and says why.
        let mut brief = report.clone();
        brief.strategies.iter_mut().for_each(|entry| entry.timeline.busy = vec![0.5; 3]);
        assert!(!brief.page().contains("too short for a chart"));
        brief.strategies[3].timeline.busy.clear();
        assert_eq!(brief.page().matches("too short for a chart").count(), 1);
    }
}

#[test]
fn options_that_do_not_fit_are_refused_before_files_are_written() {
    let _machine = beside_others();
    let folder = tempfile::tempdir().unwrap();
    let mut options = options(folder.path(), Augment::None);
    let huge = CubeSize { rows: 1 << 20, columns: 1 << 20, bands: 100 };
    (options.cubes, options.shape) = (Some(1000), huge);
    let error = prepare(&options, &progress::Progress::default(), &|_| {}).unwrap_err();
    assert!(error.to_string().contains("use fewer cubes"), "{error}");
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
}

#[test]
fn a_network_trains_in_the_place_of_a_wait_and_a_gpu_is_refused_before_anything_is_made() {
    let _machine = beside_others();
    let folder = tempfile::tempdir().unwrap();
    let mut options = options(folder.path(), Augment::None);
    options.settings.step = StepKind::Network;
    options.strategies = vec![Strategy::Blosc, Strategy::Ring];
    let (stop, host) = (progress::Progress::default(), Host::new(2));
    let listening = Progress { stop: &stop, tell: &|_| {} };
    let report = run(&options, &InProcess(&host), &listening).unwrap();
    let steps = report.strategies.iter().map(|entry| &entry.statistics.times.step_s);
    assert!(steps.clone().count() == 2 && steps.clone().all(|step_s| step_s.mean > 0.0));
    options.settings.device = "cuda".to_owned();
    let error = run(&options, &InProcess(&host), &listening).unwrap_err().to_string();
    assert!(error.contains("hsipack[torch]"), "{error}");
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
}
