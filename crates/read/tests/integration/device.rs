//! Batches as tensors, on the CPU: contents for all options, kept batches, resumption, ends,
//! errors.

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use hsipack_format::SpectralNorm;
use hsipack_format::spectrum::normalize;
use hsipack_read::augment::array::Stream;
use hsipack_read::plan::{Crop, Item};
use hsipack_read::{
    Array, Dataset, Device, DeviceBatch, DeviceLoader, DeviceOptions, ElementType, Error,
    ErrorKind, Host, Library, Loader, LoaderOptions, Normalization, cuda_is_available,
};
use serde_json::json;

use crate::images::{OFFSET, SCALE, edit, flat, made, options, value};
use crate::support::{Written, mask_value, wide_value, write_sums};

fn cpu() -> DeviceOptions {
    DeviceOptions::new(Device::Cpu)
}

fn start(
    dataset: &Dataset,
    options: LoaderOptions,
    device: DeviceOptions,
) -> hsipack_read::Result<DeviceLoader<Host>> {
    DeviceLoader::new(dataset, options, device, Host::new(2))
}

/// The spectrum of a pixel according to the options, computed in a simple way.
fn spectrum(
    written: &Written,
    item: &Item,
    row: usize,
    column: usize,
    options: &DeviceOptions,
) -> Vec<f64> {
    let factor = if written.places[item.sample].0 == 0 { 1.0 } else { 2.0 };
    let (row, column) = (row + item.window.row as usize, column + item.window.column as usize);
    let (scale, offset) = if options.physical { (SCALE * factor, OFFSET) } else { (1.0, 0.0) };
    let mut spectrum: Vec<f64> =
        (0..5).map(|band| value(item.sample, row, column, band) * scale + offset).collect();
    let norm = match options.normalization {
        Normalization::Standardize => {
            let mean = [1.5, 2.0, 3.0, f64::NAN, 5.0];
            let std = |factor: f64| [2.0, 0.0, 0.5 * factor, 0.0, 4.0];
            let (mean, std) = match options.physical {
                false => (mean, std(factor)),
                // Those of both stacks together, which have as many values each.
                true => {
                    let means = [1.0, 2.0].map(|of| mean.map(|mean| mean * SCALE * of + OFFSET));
                    let stds = [1.0, 2.0].map(|of| std(of).map(|std| std * SCALE * of));
                    let both = |of: [[f64; 5]; 2]| {
                        std::array::from_fn::<_, 5, _>(|band| (of[0][band] + of[1][band]) / 2.0)
                    };
                    let squares = both(stds.map(|std| std.map(|std| std * std)));
                    let mut std = [0.0; 5];
                    for band in 0..5 {
                        let apart = (means[0][band] - means[1][band]) / 2.0;
                        let variance = squares[band] + apart * apart;
                        std[band] = if variance.is_nan() { 0.0 } else { variance.sqrt() };
                    }
                    (both(means), std)
                }
            };
            for band in 0..5 {
                let mean = if mean[band].is_nan() { 0.0 } else { mean[band] };
                let std = if std[band] == 0.0 { 1.0 } else { std[band] };
                spectrum[band] = (spectrum[band] - mean) / std;
            }
            None
        }
        Normalization::L1 => Some(SpectralNorm::L1),
        Normalization::L2 => Some(SpectralNorm::L2),
        Normalization::Snv => Some(SpectralNorm::Snv),
        _ => None,
    };
    if let Some(norm) = norm {
        normalize(&mut spectrum, norm);
    }
    if let Some(nan) = options.nan {
        spectrum.iter_mut().filter(|value| value.is_nan()).for_each(|value| *value = nan);
    }
    spectrum
}

/// The spectrum of the first pixel of the first sample.
fn first_spectrum(image: &Array) -> Vec<f64> {
    let bands = image.shape()[1];
    flat(&image.permuted(&[0, 2, 3, 1]))[..bands].to_vec()
}

pub fn check_image(batch: &DeviceBatch<Host>, written: &Written, options: &DeviceOptions) {
    let &[count, bands, rows, columns] = batch.image.shape() else { panic!("{batch:?}") };
    assert_eq!((count, bands), (batch.len(), 5));
    let stride = [rows * columns * bands, 1, columns * bands, bands].map(|stride| stride as isize);
    assert_eq!((batch.image.strides(), batch.image.element()), (&stride[..], options.image));
    let values = flat(&batch.image.permuted(&[0, 2, 3, 1]));
    let mut values = values.chunks(5);
    let tolerance = match options.image {
        ElementType::BF16 => 8e-3,
        ElementType::F16 => 1e-3,
        _ => 2e-6,
    };
    for item in batch.items() {
        for (row, column) in (0..rows).flat_map(|row| (0..columns).map(move |column| (row, column)))
        {
            let want = spectrum(written, item, row, column, options);
            let have = values.next().unwrap();
            for (have, want) in have.iter().zip(&want) {
                let near = (have - want).abs() <= tolerance * want.abs().max(1.0);
                assert!(near || have.is_nan() && want.is_nan(), "{have} {want} {options:?}");
            }
        }
    }
}

/// Values of a mask, in (sample, row, column) order.
fn mask_values(batch: &DeviceBatch<Host>, value: impl Fn(usize, usize, usize) -> u16) -> Vec<u16> {
    let mut values = Vec::new();
    for item in batch.items() {
        let window = item.window;
        for row in window.row_range() {
            for column in window.column_range() {
                values.push(value(item.sample, row, column));
            }
        }
    }
    values
}

fn check_masks(batch: &DeviceBatch<Host>, options: &DeviceOptions) {
    let few = |sample, row, column| u16::from(mask_value(sample, row, column));
    let &[count, _, rows, columns] = batch.image.shape() else { panic!("{batch:?}") };
    for (name, bits, wide) in
        [("few", 3, false), ("ids", 0, false), ("many", 16, true), ("wide", 0, true)]
    {
        let mask = batch.mask(name).unwrap();
        let want = if wide { mask_values(batch, wide_value) } else { mask_values(batch, few) };
        if bits > 0 && options.layers {
            let shape = [count, bits, rows, columns];
            assert_eq!((mask.shape(), mask.element()), (&shape[..], ElementType::Bool));
            let of = |value: &u16| (0..bits).map(|bit| f64::from(value >> bit & 1)).collect();
            let want: Vec<f64> = want.iter().flat_map::<Vec<f64>, _>(of).collect();
            assert_eq!(flat(&mask.permuted(&[0, 2, 3, 1])), want, "{name}");
            continue;
        }
        let least = if wide { ElementType::I32 } else { ElementType::U8 };
        let element = options.masks.unwrap_or(least);
        assert_eq!((mask.shape(), mask.element()), (&[count, rows, columns][..], element));
        let want: Vec<f64> = want.into_iter().map(f64::from).collect();
        assert_eq!(flat(mask), want, "{name}");
    }
}

#[test]
fn batches_are_what_the_options_say() {
    let (_folder, written) = made();
    let dataset = Dataset::open(&written.path).unwrap();
    let mut number = 0;
    for normalization in [
        Normalization::None,
        Normalization::Standardize,
        Normalization::L1,
        Normalization::L2,
        Normalization::Snv,
    ] {
        for (physical, nan) in [(false, None), (true, None), (false, Some(0.5)), (true, Some(-1.0))]
        {
            for image in [ElementType::F16, ElementType::F32, ElementType::BF16, ElementType::F64] {
                let mut options = options(4);
                if number % 2 == 0 {
                    // Crops mix stacks in a batch.
                    options.plan.crop =
                        Crop::Random { rows: 6, columns: 7, per_sample: 1, min_labelled: 0.0 };
                }
                let masks = [None, Some(ElementType::I64), Some(ElementType::F32)][number % 3];
                let layers = number % 5 > 0;
                number += 1;
                let normalization = normalization.clone();
                let device =
                    DeviceOptions { image, masks, layers, physical, nan, normalization, ..cpu() };
                let mut loader = start(&dataset, options, device.clone()).unwrap();
                let mut count = 0;
                for batch in loader.epoch() {
                    let batch = batch.unwrap();
                    check_image(&batch, &written, &device);
                    check_masks(&batch, &device);
                    count += batch.len();
                }
                assert_eq!((count, loader.statistics().copied), (12, 0));
            }
        }
    }
}

#[test]
fn an_emulated_bus_takes_its_time_and_changes_nothing() {
    let (_folder, written) = made();
    let dataset = Dataset::open(&written.path).unwrap();
    let bytes = {
        let mut loader = start(&dataset, options(4), cpu()).unwrap();
        loader.next_batch().unwrap().unwrap();
        loader.report().slot_bytes as f64
    };
    // 20 ms for a slot; a batch may not fill it.
    let device = DeviceOptions { emulated_bus: Some(bytes / 20e-3), ..cpu() };
    let mut loader = start(&dataset, options(4), device.clone()).unwrap();
    let began = Instant::now();
    let batches: Vec<_> = loader.epoch().map(Result::unwrap).collect();
    assert!(began.elapsed() > Duration::from_millis(10) * batches.len() as u32);
    batches.iter().for_each(|batch| check_image(batch, &written, &device));
    assert_eq!(loader.report().device, "emulated");
    assert_eq!(loader.statistics().times.wait_s.count, batches.len() as u64);

    let repeat = DeviceOptions { repeat: true, ..device };
    let mut loader = start(&dataset, options(4), repeat).unwrap();
    let ids: Vec<Vec<usize>> =
        (0..9).map(|_| loader.next_batch().unwrap().unwrap().ids().collect()).collect();
    assert!(ids.iter().all(|batch| *batch == ids[0]), "{ids:?}");

    // On the CPU, it is converted again and again.
    let repeat = DeviceOptions { repeat: true, ..cpu() };
    let mut loader = start(&dataset, options(4), repeat.clone()).unwrap();
    let first: Vec<usize> = loader.next_batch().unwrap().unwrap().ids().collect();
    for _ in 0..9 {
        let batch = loader.next_batch().unwrap().unwrap();
        assert_eq!(batch.ids().collect::<Vec<_>>(), first);
        check_image(&batch, &written, &repeat);
    }

    for (bad, what) in [(Some(0.0), "bus"), (Some(f64::NAN), "bus")] {
        let device = DeviceOptions { emulated_bus: bad, repeat: true, ..cpu() };
        let error = start(&dataset, options(4), device).err().unwrap();
        assert!(error.to_string().contains(what), "{error}");
    }
}

#[test]
fn chosen_bands_have_their_own_statistics() {
    let (_folder, written) = made();
    let dataset = Dataset::open(&written.path).unwrap();
    let mut options = options(2);
    options.bands = Some(vec![4, 0]);
    let device = DeviceOptions {
        normalization: Normalization::Standardize,
        image: ElementType::F32,
        ..cpu()
    };
    let mut loader = start(&dataset, options, device.clone()).unwrap();
    for batch in loader.epoch() {
        let batch = batch.unwrap();
        let want = spectrum(&written, &batch.items()[0], 0, 0, &device);
        let have = first_spectrum(&batch.image);
        assert!((have[0] - want[4]).abs() < 1e-5 && (have[1] - want[0]).abs() < 1e-5);
    }
}

/// The first pixel of the first sample, all bands, and what a loader makes of it.
fn first_pixel(
    written: &Written,
    device: DeviceOptions,
) -> (Vec<f64>, Vec<f64>, DeviceLoader<Host>) {
    let dataset = Dataset::open(&written.path).unwrap();
    let mut loader = start(&dataset, options(1), device.clone()).unwrap();
    let batch = loader.next_batch().unwrap().unwrap();
    let plain = DeviceOptions { normalization: Normalization::None, ..device };
    let before = spectrum(written, &batch.items()[0], 0, 0, &plain);
    (before, first_spectrum(&batch.image), loader)
}

#[test]
fn statistics_of_the_train_split_standardise_where_there_is_one() {
    let (_folder, written) = made();
    let device = DeviceOptions {
        normalization: Normalization::Standardize,
        image: ElementType::F32,
        ..cpu()
    };
    let (_, _, loader) = first_pixel(&written, device.clone());
    let all = |split: Option<&str>| {
        ["12x10x5", "9x8x5"].map(|stack| (stack.to_owned(), split.map(str::to_owned)))
    };
    assert_eq!(loader.standardized_by(), all(None));
    drop(loader);
    for stack in ["9x8x5", "12x10x5"] {
        let stats = |mean: f64| {
            json!({
                "min": [0, 0, 0, 0, 0], "max": [1, 1, 1, 1, 1], "nan": [0, 0, 0, 0, 0], "count": [9, 9, 9, 0, 9],
                "mean": [mean, 1.0, 1.0, null, 1.0], "std": [4.0, 4.0, 4.0, null, 4.0],
            })
        };
        edit(&written.path.join(stack).join("image"), |attributes| {
            let metadata = attributes["hsipack"].as_object_mut().unwrap();
            metadata
                .insert("split_stats".into(), json!({ "test": stats(7.0), "Train": stats(1.0) }));
        });
    }
    write_sums(&written.path);
    let (before, after, loader) = first_pixel(&written, device);
    assert_eq!(loader.standardized_by(), all(Some("Train")));
    for band in 0..5 {
        let want = if band == 3 { before[band] } else { (before[band] - 1.0) / 4.0 };
        assert!((after[band] - want).abs() < 1e-6, "{after:?} {before:?}");
    }
}

#[test]
fn bands_are_standardised_by_figures_of_the_users() {
    let (_folder, written) = made();
    let nan = f64::NAN;
    let by = |mean: &[f64], std: &[f64]| {
        let normalization = Normalization::StandardizeBy { mean: mean.to_vec(), std: std.to_vec() };
        DeviceOptions { normalization, image: ElementType::F32, physical: true, ..cpu() }
    };
    let device = by(&[0.5, nan, 1.0, -1.0, nan], &[2.0, 2.0, nan, 0.0, nan]);
    let (before, after, loader) = first_pixel(&written, device);
    let want = [(before[0] - 0.5) / 2.0, before[1], before[2], before[3] + 1.0, before[4]];
    assert!(want.iter().zip(&after).all(|(want, have)| (want - have).abs() < 1e-6), "{after:?}");
    assert!(loader.standardized_by().is_empty());
    let dataset = Dataset::open(&written.path).unwrap();
    for (device, what) in [
        (by(&[1.0; 4], &[1.0; 5]), "the mean for standardising has 4 numbers"),
        (by(&[1.0; 5], &[1.0; 6]), "the standard deviation for standardising has 6 numbers"),
        (by(&[1.0; 5], &[-1.0; 5]), "the standard deviation is -1"),
    ] {
        let error = start(&dataset, options(1), device).unwrap_err();
        assert!(error.to_string().contains(what), "{error}");
    }
}

#[test]
fn a_batch_knows_its_samples() {
    let (_folder, written) = made();
    let dataset = Dataset::open(&written.path).unwrap();
    let mut loader = start(&dataset, options(3), cpu()).unwrap();
    assert_eq!(loader.layers("few").unwrap(), ["x", "y", "z"]);
    assert_eq!((loader.layers("ids").unwrap().len(), loader.layers("none")), (0, None));
    let batch = loader.next_batch().unwrap().unwrap();
    for ((id, sample), class) in batch.ids().zip(batch.samples()).zip(batch.classes()) {
        assert_eq!(sample.unwrap().id, id);
        assert_eq!(class, dataset.labels().class_of(id));
    }
    let report = loader.report();
    assert_eq!((report.device.as_str(), report.copies, report.device_slots), ("cpu", "none", 0));
}

#[test]
fn kept_batches_stay_what_they_are_and_never_stop_the_loader() {
    let (_folder, written) = made();
    let dataset = Dataset::open(&written.path).unwrap();
    for slots in 2..6 {
        let mut options = options(3);
        options.slots = slots;
        let mut loader = start(&dataset, options, cpu()).unwrap();
        let mut kept = Vec::new();
        for step in 0..40 {
            let Some(batch) = loader.next_batch() else { continue };
            kept.push(batch.unwrap());
            if step % 9 == 8 {
                drop(kept.swap_remove(step % kept.len()));
            }
        }
        assert!(loader.statistics().copied > 0 && !loader.report().notes.is_empty());
        kept.iter().for_each(|batch| check_image(batch, &written, &cpu()));
        // The batches outlive the loader, and so does a view of a part.
        let view = kept[0].image.permuted(&[0, 2, 3, 1]).narrowed(0, 0, 1);
        let before = flat(&view);
        drop(loader);
        kept.iter().for_each(|batch| check_image(batch, &written, &cpu()));
        drop(kept);
        assert_eq!(format!("{before:?}"), format!("{:?}", flat(&view)));
    }
}

#[test]
fn it_goes_on_from_any_state_like_the_loader_inside() {
    let (_folder, written) = made();
    let dataset = Dataset::open(&written.path).unwrap();
    let mut loader = start(&dataset, options(2), cpu()).unwrap();
    let mut plain = Loader::new(&dataset, options(2)).unwrap();
    for step in 0..20 {
        let state = loader.state();
        assert_eq!(state, plain.state());
        if step == 11 {
            loader.set_epoch(1);
            plain.set_epoch(1);
        }
        let (have, want) = (loader.next_batch(), plain.next_batch());
        let items = have.map(|batch| batch.unwrap().items().to_vec());
        assert_eq!(items, want.map(|batch| batch.unwrap().items().to_vec()));
        if step != 11 && items.is_some() {
            let mut resumed =
                DeviceLoader::with_state(&dataset, options(2), cpu(), Host::new(1), &state)
                    .unwrap();
            assert_eq!(resumed.next_batch().map(|batch| batch.unwrap().items().to_vec()), items);
        }
    }
}

#[test]
fn it_stops_at_any_time() {
    let (_folder, written) = made();
    let dataset = Dataset::open(&written.path).unwrap();
    for batches in 0..12 {
        let mut loader = start(&dataset, options(3), cpu()).unwrap();
        let mut kept = None;
        for _ in 0..batches {
            kept = loader.next_batch().map(Result::unwrap).or(kept);
        }
        drop(loader);
        if let Some(batch) = &kept {
            check_image(batch, &written, &cpu());
        }
    }
}

#[test]
fn a_damaged_sample_is_an_error_and_the_next_call_goes_on() {
    let (_folder, written) = made();
    let shard = walk(&written.path.join("9x8x5/image/c"));
    let mut bytes = fs::read(&shard).unwrap();
    bytes[40] ^= 0x55;
    fs::write(&shard, bytes).unwrap();
    let dataset = Dataset::open(&written.path).unwrap();
    let mut loader = start(&dataset, options(12), cpu()).unwrap();
    let batches = loader.batches_per_epoch().unwrap();
    for epoch in 1..3 {
        let results: Vec<_> = loader.epoch().map(|batch| batch.map(|batch| batch.len())).collect();
        assert_eq!(results.len(), batches);
        let errors: Vec<_> = results.iter().filter_map(|result| result.as_ref().err()).collect();
        assert!(errors.len() == 1 && batches > 1, "{results:?}");
        assert_eq!(errors[0].kind(), ErrorKind::Damaged);
        assert_eq!((loader.state().epoch, loader.state().delivered.len()), (epoch, 0));
    }
}

/// A library without memory for its tensors.
#[derive(Clone, Debug)]
struct NoMemory(Host);

impl Library for NoMemory {
    type Tensor = Array;
    type Engine = Host;

    fn host(&self) -> &Host {
        &self.0
    }

    fn engine(&self, device: usize) -> hsipack_read::Result<Host> {
        self.0.engine(device)
    }

    fn stream(&self, device: usize) -> hsipack_read::Result<Stream> {
        self.0.stream(device)
    }

    fn tensor(&self, _: Array) -> hsipack_read::Result<Array> {
        Err(Error::conflict("no memory"))
    }

    fn array(&self, tensor: &Array) -> hsipack_read::Result<Array> {
        self.0.array(tensor)
    }

    fn device(&self, tensor: &Array) -> hsipack_read::Result<Device> {
        Library::device(&self.0, tensor)
    }

    fn look_at(&self, image: &Array) -> hsipack_read::Result<(Vec<usize>, ElementType)> {
        self.0.look_at(image)
    }
}

#[test]
fn a_batch_that_cannot_be_made_comes_once_more_and_then_counts() {
    let (_folder, written) = made();
    let dataset = Dataset::open(&written.path).unwrap();
    let library = NoMemory(Host::new(2));
    let mut loader = DeviceLoader::new(&dataset, options(12), cpu(), library).unwrap();
    let batches = loader.batches_per_epoch().unwrap();
    let delivered = |loader: &DeviceLoader<NoMemory>| {
        loader.state().delivered.first().map(|segment| segment.batches)
    };
    assert!(loader.next_batch().unwrap().is_err());
    assert_eq!(delivered(&loader), None);
    assert!(loader.next_batch().unwrap().is_err());
    assert!(batches > 1 && delivered(&loader) == Some(1));
    let mut errors = 2;
    while let Some(batch) = loader.next_batch() {
        assert!(batch.is_err());
        errors += 1;
    }
    assert_eq!(errors, 2 * batches);
    // Such an error ends the iterator, which would otherwise see the same batch twice.
    assert_eq!(loader.epoch().count(), 1);
}

fn walk(folder: &Path) -> std::path::PathBuf {
    let mut entries: Vec<_> =
        fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    entries.sort();
    if entries[0].is_dir() { walk(&entries[0]) } else { entries[0].clone() }
}

#[test]
fn unavailable_devices_are_refused_at_once() {
    let (_folder, written) = made();
    let dataset = Dataset::open(&written.path).unwrap();
    let refused = |device: DeviceOptions| {
        let error = start(&dataset, options(3), device).unwrap_err();
        assert!(error.remedy().is_some(), "{error}");
        error.to_string()
    };
    let message = refused(DeviceOptions { image: ElementType::I32, ..cpu() });
    assert!(message.contains("the type int32"), "{message}");
    let message = refused(DeviceOptions { masks: Some(ElementType::U8), ..cpu() });
    assert!(message.contains("uint16"), "{message}");
    if !cuda_is_available() {
        refused(DeviceOptions::new(Device::Cuda(0)));
    }
    edit(&written.path.join("9x8x5/image"), |attributes| drop(attributes.remove("hsipack")));
    write_sums(&written.path);
    let dataset = Dataset::open(&written.path).unwrap();
    let device = DeviceOptions { normalization: Normalization::Standardize, ..cpu() };
    let error = start(&dataset, options(3), device).unwrap_err();
    assert!(error.to_string().contains("records no statistics"), "{error}");
}
