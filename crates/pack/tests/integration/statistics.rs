//! Statistics of chosen samples agree with their definitions, and with those that the conversion
//! recorded.

use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

use half::f16;
use hsipack_format::{DType, ErrorKind};
use hsipack_pack::convert::stats::BandStats;
use hsipack_pack::convert::{ChunkShape, PackedType, Scale};
use hsipack_pack::progress::Progress;
use hsipack_pack::statistics::{StatisticsOptions, statistics};
use hsipack_store::Dataset;
use proptest::prelude::*;

use super::packing::{five_bands, pack, stored, varied, write_envi};

/// Six cubes of two shapes in turn, in tiles that divide neither axis; the first three are the
/// split `train`.
fn packed(folder: &Path, dtype: DType) -> Dataset {
    let mut table = "name,split\n".to_owned();
    let inputs: Vec<_> = (0..6)
        .map(|number| {
            let name = format!("cube_{number}");
            table += &format!("{name},{}\n", if number < 3 { "train" } else { "test" });
            let rows = 7 + number % 2 * 4;
            let values = varied((rows * 9 + number) * 5);
            write_envi(folder, &name, [rows, 9, 5], &values[number * 5..], &five_bands())
        })
        .collect();
    let file = folder.join("table.csv");
    std::fs::write(&file, table).unwrap();
    pack(&inputs, &folder.join("d.hsipack"), |options| {
        options.values.dtype = PackedType::of(dtype).unwrap();
        options.values.scale = Scale::Factor(4.0);
        options.layout.chunk = Some(ChunkShape { rows: 3, columns: Some(4) });
        options.table = vec![file.clone()];
    })
}

fn compute(
    dataset: &Dataset,
    samples: Option<&[usize]>,
    threads: usize,
) -> Vec<(usize, BandStats)> {
    let mut options = StatisticsOptions::new(dataset.path());
    options.samples = samples.map(<[usize]>::to_vec);
    options.threads = threads;
    let (progress, total) = (Progress::default(), AtomicU64::new(0));
    let all = statistics(&options, &progress, &total).unwrap();
    assert_eq!(progress.bytes_in.load(Ordering::Relaxed), total.load(Ordering::Relaxed));
    all
}

/// Stored values of a sample, band fastest.
fn values(dataset: &Dataset, id: usize) -> Vec<f64> {
    let stack = &dataset.stacks()[dataset.samples().stack(id)];
    let bytes = stored(stack, dataset.samples().index(id));
    match stack.image.meta().dtype {
        DType::F16 => {
            bytes.as_chunks().0.iter().map(|half| f16::from_le_bytes(*half).to_f64()).collect()
        }
        _ => bytes.as_chunks().0.iter().map(|four| f32::from_le_bytes(*four).into()).collect(),
    }
}

fn close(have: f64, want: f64) -> bool {
    (have - want).abs() <= 1e-5 * want.abs().max(1.0)
}

/// Compares with the definitions, in double precision.
fn check(dataset: &Dataset, samples: &[usize], all: &[(usize, BandStats)]) {
    for (number, stack) in dataset.stacks().iter().enumerate() {
        let of: Vec<usize> =
            samples.iter().copied().filter(|id| dataset.samples().stack(*id) == number).collect();
        let found = all.iter().find(|(stack, _)| *stack == number);
        assert_eq!(found.is_some(), !of.is_empty());
        let Some((_, stats)) = found else { continue };
        let values: Vec<Vec<f64>> = of.iter().map(|id| values(dataset, *id)).collect();
        let bands = stack.image.shape().bands;
        for (band, stats) in stats.0.iter().enumerate() {
            let band = |cube: &Vec<f64>| -> Vec<f64> {
                cube.iter().copied().skip(band).step_by(bands).collect()
            };
            let values: Vec<f64> = values.iter().flat_map(band).collect();
            let finite: Vec<f64> =
                values.iter().copied().filter(|value| value.is_finite()).collect();
            let (count, least) = (finite.len() as f64, finite.iter().copied().reduce(f64::min));
            let mean = finite.iter().sum::<f64>() / count;
            let m2 = finite.iter().map(|value| (value - mean).powi(2)).sum::<f64>();
            assert_eq!(stats.count, finite.len() as u64);
            assert_eq!(stats.nan, values.iter().filter(|value| value.is_nan()).count() as u64);
            assert_eq!(stats.inf, values.iter().filter(|value| value.is_infinite()).count() as u64);
            assert_eq!(Some(stats.min), least);
            assert_eq!(Some(stats.max), finite.iter().copied().reduce(f64::max));
            assert!(close(stats.mean, mean), "{} {mean}", stats.mean);
            assert!(close(stats.std(), (m2 / count).sqrt()), "{} {m2}", stats.std());
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]
    #[test]
    fn they_are_those_of_the_chosen_samples(
        mut samples in prop::collection::vec(0usize..6, 0..9), single: bool,
    ) {
        let folder = tempfile::tempdir().unwrap();
        let dtype = if single { DType::F32 } else { DType::F16 };
        let dataset = packed(folder.path(), dtype);
        let all = compute(&dataset, Some(&samples), 1);
        // The same bits with any number of threads.
        prop_assert_eq!(&all, &compute(&dataset, Some(&samples), 3));
        samples.sort_unstable();
        samples.dedup();
        check(&dataset, &samples, &all);
    }
}

#[test]
fn they_equal_the_recorded_ones() {
    let folder = tempfile::tempdir().unwrap();
    let dataset = packed(folder.path(), DType::F16);
    for (split, samples) in [(None, None), (Some("train"), Some(&[0, 1, 2][..]))] {
        for (stack, got) in compute(&dataset, samples, 2) {
            let meta = dataset.stacks()[stack].image.meta();
            let recorded = match split {
                None => meta.statistics().unwrap(),
                Some(split) => {
                    meta.split_statistics()
                        .unwrap()
                        .into_iter()
                        .find(|entry| entry.0 == split)
                        .unwrap()
                        .1
                }
            };
            for (band, got) in got.0.iter().enumerate() {
                let counts = (recorded.count[band], recorded.nan[band], recorded.inf[band]);
                assert_eq!((got.count, got.nan, got.inf), counts);
                assert_eq!((got.min, got.max), (recorded.min[band], recorded.max[band]));
                let near = |have: f64, want: f64| (have - want).abs() <= 1e-12 * want.abs();
                assert!(near(got.mean, recorded.mean[band]) && near(got.std(), recorded.std[band]));
            }
        }
    }
}

#[test]
fn large_cubes_are_divided_among_threads() {
    // 300 x 400 x 80 halves are 19 MB, more than one piece.
    let folder = tempfile::tempdir().unwrap();
    let values: Vec<f32> = (0..300 * 400 * 80u32)
        .map(|index| (index.wrapping_mul(2_654_435_761) >> 8) as f32 / 1e5)
        .collect();
    let input = write_envi(folder.path(), "large", [300, 400, 80], &values, "");
    let dataset = pack(&[input], &folder.path().join("d.hsipack"), |options| {
        options.layout.chunk = Some(ChunkShape { rows: 32, columns: Some(100) });
    });
    let all = compute(&dataset, None, 1);
    assert_eq!(all, compute(&dataset, None, 3));
    check(&dataset, &[0], &all);
}

#[test]
fn samples_as_they_were_missing_ones_damage_and_stops() {
    let folder = tempfile::tempdir().unwrap();
    let dataset = packed(folder.path(), DType::F16);
    let mut options = StatisticsOptions::new(dataset.path());
    let run = |options: &StatisticsOptions| {
        statistics(options, &Progress::default(), &AtomicU64::new(0))
            .map_err(|error| error.to_string())
    };
    options.samples = Some(vec![2, 6]);
    assert!(run(&options).unwrap_err().contains("there is no sample 6"));
    options.samples = Some(Vec::new());
    assert_eq!(run(&options).unwrap(), []);
    options.as_of = Some("0123".to_owned());
    assert!(run(&options).is_err());

    let stopped = Progress::default();
    stopped.stop.store(true, Ordering::Relaxed);
    let all = StatisticsOptions::new(dataset.path());
    let error = statistics(&all, &stopped, &AtomicU64::new(0)).unwrap_err();
    assert_eq!(error.to_string(), "stopped");

    let shard = std::fs::read_dir(dataset.stacks()[0].image.folder().join("c/0/0/0"))
        .unwrap()
        .next()
        .unwrap()
        .unwrap()
        .path();
    let mut bytes = std::fs::read(&shard).unwrap();
    bytes[40..60].fill(0x5A);
    std::fs::write(&shard, bytes).unwrap();
    let error = statistics(&all, &Progress::default(), &AtomicU64::new(0)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Damaged, "{error}");
}
