//! The loader for a GPU over the stand-in for the CUDA driver: the real code for CUDA runs in a
//! process of its own, and every misuse of a device is a fault.

use std::ptr;
use std::thread;

use cudarc::driver::sys;
use hsipack_read::augment::array::Stream;
use hsipack_read::{
    Array, Dataset, DecodePlace, Device, DeviceBatch, DeviceLoader, DeviceOptions, ElementType,
    Host, Loader, Normalization, cuda_is_available, pci_bus_id,
};
use hsipack_testing::{FakeCuda, FakeDriver, skipped};

use crate::images::{made, options};

/// The variable that says where the loaders of a test decode.
const DECODE: &str = "HSIPACK_TEST_DECODE";

/// Where the loaders of this process decode.
fn decode() -> DecodePlace {
    std::env::var(DECODE).map_or(DecodePlace::Host, |name| name.parse().unwrap())
}

/// Runs an ignored test of this file over the stand-in, with chunks decoded on the host and on the
/// device; it must have no faults.
fn runs_clean_both_ways(test: &str, seeds: u64) {
    runs_clean(test, seeds, &[]);
    runs_clean_decoding(test, seeds);
}

/// The same with chunks decoded on the device.
fn runs_clean_decoding(test: &str, seeds: u64) {
    if FakeCuda::has_kernels() {
        runs_clean(test, seeds, &[(DECODE, "device")]);
    } else {
        skipped(format!("{test} with decoding on the device: there is no C++ compiler"));
    }
}

/// Runs an ignored test of this file over the stand-in; it must have no faults.
fn runs_clean(test: &str, seeds: u64, settings: &[(&str, &str)]) {
    let cuda = FakeCuda::new();
    for seed in 1..=seeds {
        let mut command = cuda.test(&format!("driver::{test}"));
        command.env("FAKE_CUDA_SEED", seed.to_string()).envs(settings.iter().copied());
        cuda.assert_clean(&mut command);
    }
}

fn gpu() -> DeviceOptions {
    DeviceOptions { layers: false, masks: None, ..DeviceOptions::new(Device::Cuda(0)) }
}

fn start(dataset: &Dataset) -> DeviceLoader<Host> {
    let mut options = options(3);
    // Class ids as they are stored, without computation.
    options.masks = Some(vec!["ids".into()]);
    options.decode = decode();
    DeviceLoader::new(dataset, options, gpu(), Host::new(1)).unwrap()
}

fn plain(dataset: &Dataset) -> Loader {
    let mut options = options(3);
    options.masks = Some(vec!["ids".into()]);
    Loader::new(dataset, options).unwrap()
}

/// Queues a consumer's work on a stream that reads an array.
fn read(driver: &FakeDriver, stream: Stream, array: &Array, want: &[u8]) {
    assert_eq!(array.device(), Device::Cuda(0));
    assert!(array.bytes().is_none(), "the host looks at a device's memory");
    driver.read(stream.handle() as usize, array.address() as u64, want);
}

/// A batch on the device, and the bytes of its image and its mask.
struct Both {
    batch: DeviceBatch<Host>,
    image: Vec<u8>,
    mask: Vec<u8>,
}

impl Both {
    fn read(&self, driver: &FakeDriver, stream: Stream) {
        read(driver, stream, &self.batch.image, &self.image);
        read(driver, stream, &self.batch.masks[0].1, &self.mask);
    }
}

fn next(device: &mut DeviceLoader<Host>, plain: &mut Loader) -> Option<Both> {
    let (batch, want) = (device.next_batch(), plain.next_batch());
    assert_eq!(device.state(), plain.state());
    let (batch, want) = (batch?.unwrap(), want?.unwrap());
    let (image, mask) = (want.image().bytes.to_vec(), want.mask("ids").unwrap().bytes.to_vec());
    Some(Both { batch, image, mask })
}

#[test]
fn batches_arrive_and_kept_ones_are_never_overwritten() {
    runs_clean_both_ways("kept", 6);
}

#[test]
#[ignore = "run by the test above"]
fn kept() {
    let (_folder, written) = made();
    let dataset = Dataset::open(&written.path).unwrap();
    let driver = FakeDriver::new();
    let (mut loader, mut plain) = (start(&dataset), plain(&dataset));
    assert_eq!(
        (loader.report().device.as_str(), loader.report().copies),
        ("cuda:0", "asynchronous")
    );
    let mut kept: Vec<Both> = Vec::new();
    for step in 0..60 {
        if step == 25 {
            loader.set_epoch(7);
            plain.set_epoch(7);
        }
        let Some(both) = next(&mut loader, &mut plain) else { continue };
        both.read(&driver, Stream::LEGACY);
        kept.iter().rev().take(2).for_each(|both| both.read(&driver, Stream::LEGACY));
        if step % 4 == 0 {
            kept.push(both);
        }
        if step % 9 == 8 {
            drop(kept.swap_remove(kept.len() / 2));
        }
    }
    let statistics = loader.statistics();
    assert!(statistics.given_away > 0 && statistics.link_bytes > 0);
    assert_eq!(statistics.device_decoded > 0, decode() == DecodePlace::Device);
    drop(loader);
    kept.iter().for_each(|both| both.read(&driver, Stream::LEGACY));
    // Work on them is still queued.
    drop(kept);
}

#[test]
fn a_batch_used_on_other_streams_and_dropped_by_another_thread_is_waited_for() {
    runs_clean_both_ways("elsewhere", 6);
}

#[test]
#[ignore = "run by the test above"]
fn elsewhere() {
    let (_folder, written) = made();
    let dataset = Dataset::open(&written.path).unwrap();
    let driver = FakeDriver::new();
    let (mut loader, mut plain) = (start(&dataset), plain(&dataset));
    let stream = OwnStream::new();
    let (send, receive) = std::sync::mpsc::channel::<Both>();
    let dropper = thread::spawn(move || receive.into_iter().for_each(drop));
    for step in 0..40 {
        let Some(both) = next(&mut loader, &mut plain) else { continue };
        if step % 3 > 0 {
            both.read(&driver, Stream::LEGACY);
        }
        // Like consumers of DLPack.
        both.batch.image.memory().lend(stream.name()).unwrap();
        both.read(&driver, stream.name());
        send.send(both).unwrap();
    }
    drop(send);
    dropper.join().unwrap();
    drop(loader);
    driver.finish();
}

/// A consumer's own stream, in the primary context of the device.
struct OwnStream {
    stream: sys::CUstream,
    context: sys::CUcontext,
}

impl OwnStream {
    fn new() -> Self {
        let mut context = ptr::null_mut();
        // SAFETY: the loader has initialised the driver; the result is written where it may be.
        unsafe { sys::cuDevicePrimaryCtxRetain(&mut context, 0) }.result().unwrap();
        let mut own_stream = Self { stream: ptr::null_mut(), context };
        let flags = sys::CUstream_flags::CU_STREAM_NON_BLOCKING as u32;
        // SAFETY: as above.
        within(context, || unsafe { sys::cuStreamCreate(&mut own_stream.stream, flags) });
        own_stream
    }

    fn name(&self) -> Stream {
        Stream::of(self.stream.cast())
    }
}

impl Drop for OwnStream {
    fn drop(&mut self) {
        // SAFETY: made once, given back once.
        within(self.context, || unsafe { sys::cuStreamDestroy_v2(self.stream) });
        // SAFETY: retained once, released once.
        unsafe { sys::cuDevicePrimaryCtxRelease_v2(0) }.result().unwrap();
    }
}

/// Calls the driver with a context current.
fn within(context: sys::CUcontext, call: impl FnOnce() -> sys::CUresult) {
    let mut popped = ptr::null_mut();
    // SAFETY: the context is retained; it is popped again.
    unsafe { sys::cuCtxPushCurrent_v2(context) }.result().unwrap();
    let result = call();
    // SAFETY: pops what was pushed.
    unsafe { sys::cuCtxPopCurrent_v2(&mut popped) }.result().unwrap();
    result.result().unwrap();
}

#[test]
fn too_little_device_memory_is_an_error_and_the_batch_comes_later() {
    runs_clean("little_memory", 3, &[]);
}

#[test]
#[ignore = "run by the test above"]
fn little_memory() {
    let (_folder, written) = made();
    let dataset = Dataset::open(&written.path).unwrap();
    let driver = FakeDriver::new();
    let mut loader = start(&dataset);
    let slot = loader.report().slot_bytes;
    driver.set_memory(0, 3 * slot + slot / 2);
    let mut kept = Vec::new();
    let error = loop {
        match loader.next_batch() {
            Some(Ok(batch)) => kept.push(batch),
            Some(Err(error)) => break error,
            None => {}
        }
    };
    assert!(error.to_string().contains("out of memory"), "{error}");
    assert_eq!(kept.len(), 3);
    let state = loader.state();
    kept.clear();
    let batch = loader.next_batch().unwrap().unwrap();
    let mut resumed = plain(&dataset);
    for _ in 0..3 {
        resumed.next_batch();
    }
    assert_eq!(resumed.state(), state);
    assert_eq!(batch.items(), resumed.next_batch().unwrap().unwrap().items());
    drop((batch, loader));

    driver.set_memory(0, slot);
    let again = DeviceLoader::new(&dataset, options(3), gpu(), Host::new(1)).err().unwrap();
    assert!(again.to_string().contains("out of memory"), "{again}");
}

#[test]
fn a_lost_device_is_an_error_at_every_call_and_nothing_hangs() {
    runs_clean_both_ways("lost", 3);
}

#[test]
#[ignore = "run by the test above"]
fn lost() {
    let (_folder, written) = made();
    let dataset = Dataset::open(&written.path).unwrap();
    let driver = FakeDriver::new();
    let mut loader = start(&dataset);
    let batch = loader.next_batch().unwrap().unwrap();
    driver.lose();
    drop(batch);
    let errors = (0..6).filter(|_| matches!(loader.next_batch(), Some(Err(_)))).count();
    assert!(errors >= 4, "{errors}");
}

#[test]
fn computing_on_a_device_needs_a_library_that_computes_there() {
    runs_clean("computing", 1, &[("FAKE_CUDA_DEVICES", "2")]);
}

#[test]
#[ignore = "run by the test above"]
fn computing() {
    let (_folder, written) = made();
    let dataset = Dataset::open(&written.path).unwrap();
    assert!(cuda_is_available());
    assert_ne!(pci_bus_id(0).unwrap(), pci_bus_id(1).unwrap());
    assert!(pci_bus_id(2).is_err());
    for device in [
        DeviceOptions { normalization: Normalization::L2, ..gpu() },
        DeviceOptions { image: ElementType::F32, ..gpu() },
    ] {
        let mut loader = DeviceLoader::new(&dataset, options(3), device, Host::new(1)).unwrap();
        let error = loader.next_batch().unwrap().unwrap_err();
        assert!(error.to_string().contains("cuda:0"), "{error}");
        // The next call returns the error again: no batch is skipped.
        assert!(loader.next_batch().unwrap().is_err());
    }
}

#[test]
fn drivers_that_are_too_old_are_named() {
    runs_clean("old_driver", 1, &[("FAKE_CUDA_VERSION", "11040")]);
}

#[test]
#[ignore = "run by the test above"]
fn old_driver() {
    let error = pci_bus_id(0).unwrap_err().to_string();
    assert!(error.contains("it offers CUDA 11.4, and 12.0 is needed"), "{error}");
    assert!(!cuda_is_available());
}
