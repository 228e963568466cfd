//! Spectra of regions agree with a slow computation over every pixel.

use std::path::Path;

use half::f16;
use hsipack_format::DType;
use hsipack_pack::convert::{ChunkShape, MaskOption, PackedType, Scale};
use hsipack_pack::progress::Progress;
use hsipack_pack::spectra::{Output, Row, SpectraOptions, Statistic, Table, Values, spectra};
use hsipack_store::Dataset;
use proptest::prelude::*;
use std::sync::atomic::Ordering;

use super::packing::{five_bands, mask, pack, stored, varied, write_envi, write_mask};

/// Two cubes of 7 × 9 pixels with a mask each, in tiles that divide neither axis, and a table.
fn packed(folder: &Path, scale: Scale, dtype: DType, ids: &[Vec<u8>; 2]) -> Dataset {
    let values = varied(7 * 9 * 5);
    let shifted: Vec<f32> = values.iter().map(|value| value * 0.75).collect();
    let inputs: Vec<_> = [("one", &values), ("two", &shifted)]
        .into_iter()
        .zip(ids)
        .map(|((name, values), ids)| {
            write_mask(folder, &format!("{name}_mask"), 7, 9, ids);
            write_envi(folder, name, [7, 9, 5], values, &five_bands())
        })
        .collect();
    let table = folder.join("table.csv");
    std::fs::write(&table, "name,split,label,age,pixels\none,train,3,41,x\ntwo,val,4,,y\n")
        .unwrap();
    pack(&inputs, &folder.join("d.hsipack"), |options| {
        options.values.scale = scale;
        options.values.dtype = PackedType::of(dtype).unwrap();
        options.layout.chunk = Some(ChunkShape { rows: 3, columns: Some(4) });
        options.mask = vec![mask("organs", "{dir}/{stem}_mask.npy")];
        options.table = vec![table.clone()];
    })
}

fn compute(dataset: &Dataset, set: impl FnOnce(&mut SpectraOptions)) -> Table {
    let mut options = SpectraOptions::new(dataset.path(), "organs");
    options.threads = 1;
    set(&mut options);
    spectra(&options, &Progress::default()).unwrap()
}

/// Physical values of a sample, (pixel, band).
fn physical(dataset: &Dataset, index: usize) -> Vec<Vec<f64>> {
    let stack = &dataset.stacks()[0];
    let bytes = stored(stack, index);
    let values: Vec<f64> = match stack.image.meta().dtype {
        DType::F16 => bytes
            .chunks_exact(2)
            .map(|pair| f16::from_le_bytes([pair[0], pair[1]]).to_f64())
            .collect(),
        _ => bytes
            .chunks_exact(4)
            .map(|four| f64::from(f32::from_le_bytes(four.try_into().unwrap())))
            .collect(),
    };
    let scaled: Vec<f64> = values.iter().map(|value| value * stack.image.scale_factor()).collect();
    scaled.chunks_exact(stack.image.shape().bands).map(<[f64]>::to_vec).collect()
}

/// Statistic, standard deviation and number of missing values of one band.
fn oracle(values: &[f64], statistic: Statistic) -> (f64, f64, u64) {
    let mut finite: Vec<f64> = values.iter().copied().filter(|value| value.is_finite()).collect();
    finite.sort_by(f64::total_cmp);
    let (n, middle) = (finite.len() as f64, finite.len() / 2);
    let mean = finite.iter().sum::<f64>() / n;
    let std = (finite.iter().map(|value| (value - mean).powi(2)).sum::<f64>() / n).sqrt();
    let median = match finite.len() {
        0 => f64::NAN,
        len if len % 2 == 1 => finite[middle],
        _ => (finite[middle - 1] + finite[middle]) / 2.0,
    };
    let value = if statistic == Statistic::Mean { mean } else { median };
    (value, std, (values.len() - finite.len()) as u64)
}

fn close(have: f64, want: f64) -> bool {
    have.is_nan() && want.is_nan() || (have - want).abs() <= 1e-9 * want.abs().max(1.0)
}

fn check_row(dataset: &Dataset, row: &Row, member: impl Fn(usize) -> bool, statistic: Statistic) {
    let pixels = physical(dataset, row.sample);
    let of: Vec<&Vec<f64>> =
        (0..pixels.len()).filter(|pixel| member(*pixel)).map(|pixel| &pixels[pixel]).collect();
    assert_eq!(row.pixels, of.len() as u64);
    for band in 0..row.spectrum.len() {
        let values: Vec<f64> = of.iter().map(|pixel| pixel[band]).collect();
        let (value, std, missing) = oracle(&values, statistic);
        assert!(close(row.spectrum[band], value), "{} {value}", row.spectrum[band]);
        assert!(close(row.std[band], std), "{} {std}", row.std[band]);
        assert_eq!(row.missing[band], missing);
        if statistic == Statistic::Median {
            assert_eq!(row.spectrum[band].to_bits(), value.to_bits(), "medians are exact");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]
    #[test]
    fn every_region_has_the_statistics_of_its_pixels(
        first in prop::collection::vec(prop::sample::select(vec![0u8, 1, 2, 255]), 63..64),
        second in prop::collection::vec(0u8..3, 63..64),
        single: bool, median: bool, ignored in 0u32..4, least in 0u64..30, background: bool,
    ) {
        let folder = tempfile::tempdir().unwrap();
        let dtype = if single { DType::F32 } else { DType::F16 };
        let ids = [first, second];
        let dataset = packed(folder.path(), Scale::Factor(4.0), dtype, &ids);
        let statistic = if median { Statistic::Median } else { Statistic::Mean };
        let set = |threads| move |options: &mut SpectraOptions| {
            options.threads = threads;
            options.statistic = statistic;
            options.min_pixels = least;
            options.ignore = vec![ignored];
            options.background = background;
        };
        let table = compute(&dataset, set(1));
        let mut want = Vec::new();
        for (sample, ids) in ids.iter().enumerate() {
            for id in 0..=255u8 {
                let pixels = ids.iter().filter(|pixel| **pixel == id).count() as u64;
                let counts = (id > 0 || background) && u32::from(id) != ignored;
                if counts && pixels >= least.max(1) {
                    want.push((sample, u16::from(id)));
                }
            }
        }
        let got: Vec<_> = table.rows.iter().map(|row| (row.sample, row.region)).collect();
        prop_assert_eq!(got, want);
        for row in &table.rows {
            check_row(&dataset, row, |pixel| u16::from(ids[row.sample][pixel]) == row.region, statistic);
        }
        // The same bits with any number of threads (NaN is not equal to itself).
        let again = compute(&dataset, set(3));
        prop_assert_eq!(format!("{:?}", table.rows), format!("{:?}", again.rows));
    }
}

#[test]
fn every_layer_is_a_region_and_layers_overlap() {
    let folder = tempfile::tempdir().unwrap();
    let layers: [Vec<u8>; 2] = [
        (0..63).map(|pixel| u8::from(pixel % 3 == 0)).collect(),
        (0..63).map(|pixel| u8::from(pixel > 40)).collect(),
    ];
    let input = write_envi(folder.path(), "one", [7, 9, 5], &varied(315), &five_bands());
    for (name, ids) in ["skin", "bone"].into_iter().zip(&layers) {
        write_mask(folder.path(), name, 7, 9, ids);
    }
    let layer = |name: &str| MaskOption {
        layer: Some(name.into()),
        ..mask("organs", &format!("{{dir}}/{name}.npy"))
    };
    let dataset = pack(&[input], &folder.path().join("d.hsipack"), |options| {
        options.mask = vec![layer("skin"), layer("bone")];
    });
    let table = compute(&dataset, |_| {});
    assert_eq!(table.rows.iter().map(|row| row.region).collect::<Vec<_>>(), [0, 1]);
    let class = table.columns.iter().find(|column| column.name == "class").unwrap();
    let names = ["skin", "bone"].map(|name| Some(name.to_owned()));
    assert_eq!(class.values, Values::Text(names.into()));
    for row in &table.rows {
        let of = &layers[usize::from(row.region)];
        check_row(&dataset, row, |pixel| of[pixel] == 1, Statistic::Mean);
    }
    let table = compute(&dataset, |options| options.ignore = vec![0]);
    assert_eq!(table.rows.iter().map(|row| row.region).collect::<Vec<_>>(), [1]);
}

#[test]
fn rows_have_what_is_known_of_their_samples() {
    let folder = tempfile::tempdir().unwrap();
    let ids = [0u8, 1].map(|least| (0..63).map(|pixel| least + pixel % 2).collect());
    let dataset = packed(folder.path(), Scale::None, DType::F16, &ids);
    let table = compute(&dataset, |_| {});
    let names: Vec<&str> = table.columns.iter().map(|column| column.name.as_str()).collect();
    let want = [
        "sample",
        "name",
        "stack",
        "split",
        "group",
        "label",
        "source",
        "region",
        "class",
        "pixels",
        "table_pixels",
        "age",
    ];
    assert_eq!(names, want);
    let values =
        |name: &str| &table.columns.iter().find(|column| column.name == name).unwrap().values;
    assert_eq!(*values("region"), Values::Whole(vec![Some(1), Some(1), Some(2)]));
    assert_eq!(*values("label"), Values::Whole(vec![Some(3), Some(4), Some(4)]));
    assert_eq!(*values("age"), Values::Whole(vec![Some(41), None, None]));
    let text = |texts: [&str; 3]| Values::Text(texts.map(|text| Some(text.to_owned())).into());
    assert_eq!(*values("split"), text(["train", "val", "val"]));
    assert_eq!(*values("table_pixels"), text(["x", "y", "y"]));
    let val = compute(&dataset, |options| options.splits = vec!["val".into()]);
    assert_eq!((val.rows.len(), val.samples), (2, 1));
    let chosen = compute(&dataset, |options| options.samples = Some(vec![0, 0]));
    assert_eq!((chosen.rows.len(), chosen.samples), (1, 1));
}

#[test]
fn impossible_requests_are_refused_and_leave_no_file() {
    let folder = tempfile::tempdir().unwrap();
    let ids = [1u8, 1].map(|id| vec![id; 63]);
    let dataset = packed(folder.path(), Scale::None, DType::F16, &ids);
    let fault = |set: &dyn Fn(&mut SpectraOptions)| {
        let mut options = SpectraOptions::new(dataset.path(), "organs");
        set(&mut options);
        spectra(&options, &Progress::default()).unwrap_err().to_string()
    };
    assert!(fault(&|options| options.mask = "bones".into()).contains("its masks are: organs"));
    assert!(fault(&|options| options.splits = vec!["x".into()]).contains("it has train, val"));
    assert!(fault(&|options| options.samples = Some(vec![2])).contains("there is no sample 2"));
    let stopped = Progress::default();
    stopped.stop.store(true, Ordering::Relaxed);
    let options = SpectraOptions::new(dataset.path(), "organs");
    assert_eq!(spectra(&options, &stopped).unwrap_err().to_string(), "stopped");
    let table = compute(&dataset, |_| {});
    for name in ["a.csv", "a.parquet"] {
        let path = folder.path().join(name);
        Output::new(&path, false).unwrap().write(&table).unwrap();
        let refused = Output::new(&path, false).unwrap_err().to_string();
        assert!(refused.contains("the file exists"), "{refused}");
        Output::new(&path, true).unwrap().write(&table).unwrap();
    }
    assert!(Output::new("a.txt", false).unwrap_err().to_string().contains("use .parquet or .csv"));
    let nowhere = folder.path().join("no/a.parquet");
    assert!(Output::new(nowhere, false).unwrap().write(&table).is_err());
    let part_files = std::fs::read_dir(folder.path()).unwrap().flatten();
    let part_files =
        part_files.filter(|file| file.file_name().to_string_lossy().ends_with(".part"));
    assert_eq!(part_files.count(), 0);
}
