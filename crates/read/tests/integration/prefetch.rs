//! Batches on the CPU that are converted and augmented before they are asked for.

use std::sync::Arc;
use std::time::{Duration, Instant};

use hsipack_read::augment::array::Stream;
use hsipack_read::augment::{Augmented, Images, Parameters, Pipeline, SampleKey};
use hsipack_read::plan::{Crop, Order};
use hsipack_read::trace::Trace;
use hsipack_read::{
    Array, Dataset, Device, DeviceBatch, DeviceLoader, DeviceOptions, ElementType, Error, Host,
    Library, LoaderOptions, Normalization, PreparedDeviceLoader, Result,
};

use crate::images::{flat, made, options};

const AUGMENTATIONS: &str = r#"{"seed": 7, "ops": [{"op": "hflip"}, {"op": "affine", "degrees": 20},
    {"op": "band_dropout", "p": 0.6}, {"op": "gaussian_noise", "std": 0.1}, {"op": "mixup", "p": 0.5}]}"#;

fn pipeline() -> Pipeline {
    Pipeline::from_json(AUGMENTATIONS).unwrap()
}

fn float32() -> DeviceOptions {
    let image = ElementType::F32;
    DeviceOptions { image, physical: true, nan: Some(0.0), ..DeviceOptions::new(Device::Cpu) }
}

fn shuffled(batch_size: usize) -> LoaderOptions {
    let mut options = options(batch_size);
    options.plan.order = Order::Shuffled;
    options.plan.crop = Crop::Random { rows: 6, columns: 7, per_sample: 3, min_labelled: 0.0 };
    options
}

fn prepared(
    dataset: &Dataset,
    options: LoaderOptions,
    device: DeviceOptions,
) -> PreparedDeviceLoader {
    PreparedDeviceLoader::new(dataset, options, device).unwrap().augmented(pipeline()).unwrap()
}

/// Everything of a batch that its user sees.
fn seen(batch: &DeviceBatch<Host>) -> String {
    // Layers lie one behind the other in each pixel.
    let values = |array: &Array| match array.shape().len() {
        4 => flat(&array.permuted(&[0, 2, 3, 1])),
        _ => flat(array),
    };
    let masks: Vec<_> = batch.masks.iter().map(|(name, mask)| (name, values(mask))).collect();
    let mixed: Vec<_> = batch.mixed.iter().map(|mix| format!("{mix:?}")).collect();
    format!("{:?} {:?} {masks:?} {mixed:?}", batch.items(), values(&batch.image))
}

/// Waits until a batch is prepared, though nobody asks for it.
fn wait_until_ready(loader: &DeviceLoader<Host>) {
    let end = Instant::now() + Duration::from_secs(20);
    while !loader.is_ready() {
        assert!(Instant::now() < end, "nothing was prepared");
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn batches_equal_those_that_are_augmented_when_they_are_given() {
    let (_folder, written) = made();
    let dataset = Dataset::open(&written.path).unwrap();
    for normalization in [Normalization::None, Normalization::Standardize, Normalization::L2] {
        for slots in [2, 3, 5] {
            for copy in [true, false] {
                let options = LoaderOptions { slots, ..shuffled(4) };
                let device =
                    DeviceOptions { copy, normalization: normalization.clone(), ..float32() };
                let mut ahead = prepared(&dataset, options.clone(), device.clone())
                    .start(Host::new(2))
                    .unwrap();
                let mut now = DeviceLoader::new(&dataset, options, device, Host::new(1)).unwrap();
                for _ in 0..2 {
                    let (mut count, batches) = (0, now.batches_per_epoch().unwrap());
                    loop {
                        let (have, want) = (ahead.next_batch(), now.next_batch());
                        assert_eq!(ahead.state(), now.state());
                        let (Some(have), Some(want)) = (&have, want) else {
                            assert!(have.is_none());
                            break;
                        };
                        let mut want = want.unwrap();
                        (want.mixed, _) = want.augment(&pipeline()).unwrap();
                        assert_eq!(seen(have.as_ref().unwrap()), seen(&want));
                        count += 1;
                    }
                    assert_eq!(count, batches);
                }
            }
        }
    }
}

#[test]
fn the_next_batch_is_prepared_while_one_is_used_and_no_more_than_two() {
    let (_folder, written) = made();
    let dataset = Dataset::open(&written.path).unwrap();
    let trace = Arc::new(Trace::default());
    let options = LoaderOptions { trace: Some(trace.clone()), slots: 5, ..shuffled(3) };
    let mut loader = prepared(&dataset, options, float32()).start(Host::new(1)).unwrap();
    let kept = loader.next_batch().unwrap().unwrap();
    wait_until_ready(&loader);
    std::thread::sleep(Duration::from_millis(50));
    let mut written = Vec::new();
    trace.write(&mut written).unwrap();
    let trace: serde_json::Value = serde_json::from_slice(&written).unwrap();
    let events = trace["traceEvents"].as_array().unwrap();
    let of = |name: &str| events.iter().filter(|event| event["name"] == name).count();
    assert!((2..=3).contains(&of("convert")), "{} batches were converted", of("convert"));
    assert_eq!(of("augment"), of("convert"));
    assert_eq!(kept.items().len(), 3);
}

#[test]
fn moving_to_another_epoch_drops_what_was_prepared() {
    let (_folder, written) = made();
    let dataset = Dataset::open(&written.path).unwrap();
    let start = || prepared(&dataset, shuffled(4), float32()).start(Host::new(2)).unwrap();
    let (mut loader, mut want) = (start(), start());
    for (step, epoch) in [(0, 4), (1, 2), (2, 2), (3, 0)] {
        for _ in 0..step {
            loader.next_batch().unwrap().unwrap();
        }
        if step > 0 {
            wait_until_ready(&loader);
        }
        loader.set_epoch(epoch);
        want.set_epoch(epoch);
        assert_eq!(loader.state(), want.state());
        let next = |loader: &mut DeviceLoader<Host>| seen(&loader.next_batch().unwrap().unwrap());
        assert_eq!(next(&mut loader), next(&mut want), "epoch {epoch}");
        want.set_epoch(9);
    }
}

#[test]
fn it_resumes_behind_the_last_batch_given_and_not_behind_the_last_one_prepared() {
    let (_folder, written) = made();
    let dataset = Dataset::open(&written.path).unwrap();
    let mut loader = prepared(&dataset, shuffled(4), float32()).start(Host::new(2)).unwrap();
    for _ in 0..12 {
        let state = loader.state();
        let Some(batch) = loader.next_batch() else { continue };
        wait_until_ready(&loader);
        let resumed = prepared(&dataset, shuffled(4), float32()).resumed(&state).unwrap();
        let mut resumed = resumed.start(Host::new(1)).unwrap();
        assert_eq!(seen(&resumed.next_batch().unwrap().unwrap()), seen(&batch.unwrap()));
    }
}

#[test]
fn kept_slots_are_an_error_only_while_they_are_kept() {
    let (_folder, written) = made();
    let dataset = Dataset::open(&written.path).unwrap();
    // Images are views of the slots; masks are converted.
    let device = DeviceOptions { copy: false, ..DeviceOptions::new(Device::Cpu) };
    let mut options = shuffled(3);
    options.slots = 3;
    let mut loader = DeviceLoader::new(&dataset, options, device, Host::new(1)).unwrap();
    let mut items = Vec::new();
    for _ in 0..3 {
        let mut kept = Vec::new();
        for _ in 0..3 {
            kept.push(loader.next_batch().unwrap().unwrap());
        }
        let state = loader.state();
        let error = loader.next_batch().unwrap().unwrap_err();
        assert!(error.to_string().contains("you keep all 3 slots"), "{error}");
        assert_eq!(loader.state(), state, "the error is not a batch's");
        items.extend(kept.iter().flat_map(|batch| batch.items().to_vec()));
    }
    let mut want = DeviceLoader::new(&dataset, shuffled(3), float32(), Host::new(1)).unwrap();
    let want = (0..9).flat_map(|_| want.next_batch().unwrap().unwrap().items().to_vec());
    assert_eq!(items, want.collect::<Vec<_>>());
}

/// A library that cannot augment.
#[derive(Clone, Debug)]
struct CannotAugment(Host);

impl Library for CannotAugment {
    type Tensor = Array;
    type Engine = Host;

    fn host(&self) -> &Host {
        &self.0
    }

    fn engine(&self, device: usize) -> Result<Host> {
        self.0.engine(device)
    }

    fn stream(&self, device: usize) -> Result<Stream> {
        self.0.stream(device)
    }

    fn tensor(&self, array: Array) -> Result<Array> {
        self.0.tensor(array)
    }

    fn array(&self, tensor: &Array) -> Result<Array> {
        self.0.array(tensor)
    }

    fn device(&self, tensor: &Array) -> Result<Device> {
        Library::device(&self.0, tensor)
    }

    fn look_at(&self, image: &Array) -> Result<(Vec<usize>, ElementType)> {
        self.0.look_at(image)
    }

    fn augment(
        &self,
        _: &Pipeline,
        _: Images<Array>,
        _: u64,
        _: &[SampleKey],
    ) -> Result<(Augmented<Array>, Parameters)> {
        Err(Error::conflict("cannot augment"))
    }
}

#[test]
fn a_batch_that_cannot_be_augmented_is_an_error_in_its_place() {
    let (_folder, written) = made();
    let dataset = Dataset::open(&written.path).unwrap();
    let prepared = prepared(&dataset, shuffled(4), float32());
    let mut loader = prepared.start(CannotAugment(Host::new(1))).unwrap();
    let batches = loader.batches_per_epoch().unwrap();
    for epoch in 1..3 {
        let errors = loader.epoch().filter(|batch| {
            batch.as_ref().is_err_and(|error| error.to_string().contains("cannot augment"))
        });
        assert_eq!(errors.count(), batches);
        assert_eq!((loader.state().epoch, loader.state().delivered.len()), (epoch, 0));
    }
}

#[test]
fn augmentations_that_do_not_fit_are_refused_at_once() {
    let (_folder, written) = made();
    let dataset = Dataset::open(&written.path).unwrap();
    let too_large = r#"[{"op": "random_crop", "size": [8, 8]}]"#;
    let too_large = Pipeline::from_json(too_large).unwrap();
    let prepared = PreparedDeviceLoader::new(&dataset, shuffled(4), float32()).unwrap();
    let error = prepared.augmented(too_large).unwrap_err();
    assert!(error.to_string().contains("8"), "{error}");
}

#[test]
fn it_stops_at_any_time() {
    let (_folder, written) = made();
    let dataset = Dataset::open(&written.path).unwrap();
    for batches in 0..12 {
        let mut loader = prepared(&dataset, shuffled(3), float32()).start(Host::new(2)).unwrap();
        let kept: Vec<_> = (0..batches).filter_map(|_| loader.next_batch()).collect();
        drop(loader);
        assert!(kept.iter().all(Result::is_ok));
    }
}
