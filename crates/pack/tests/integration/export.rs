//! Exported files have the same bits as the dataset, and describe their content.

use std::path::{Path, PathBuf};

use half::f16;
use hsipack_format::DType;
use hsipack_pack::convert::{ChunkShape, ConvertOptions, Mode, PackedType, Scale, convert};
use hsipack_pack::export::{ExportOptions, Exported, export};
use hsipack_pack::progress::Progress;
use hsipack_source::{OpenOptions, RowBuffer, Source};
use hsipack_store::Dataset;
use serde_json::json;

use super::common::open;
use super::packing::{
    five_bands, mask, pack, stored, varied, with_attributes, write_envi, write_mask,
};

const SHAPE: [usize; 3] = [7, 9, 5];

/// Two cubes with masks, in tiles that divide neither axis.
fn packed(folder: &Path, scale: Scale, dtype: DType) -> Dataset {
    let values = varied(SHAPE.iter().product());
    let shifted: Vec<f32> = values.iter().map(|value| value * 0.75).collect();
    let inputs = [("one", &values), ("two", &shifted)].map(|(name, values)| {
        let ids: Vec<u8> = (0..63).map(|i| if name == "two" { i % 4 } else { 0 }).collect();
        write_mask(folder, &format!("{name}_mask"), 7, 9, &ids);
        write_envi(folder, name, SHAPE, values, &five_bands())
    });
    pack(&inputs, &folder.join("d.hsipack"), |options| {
        options.values.scale = scale;
        options.values.dtype = PackedType::of(dtype).unwrap();
        options.layout.chunk = Some(ChunkShape { rows: 3, columns: Some(4) });
        options.mask = vec![mask("organs", "{dir}/{stem}_mask.npy")];
    })
}

fn options(dataset: &Dataset, sample: &str, output: PathBuf) -> ExportOptions {
    ExportOptions {
        dataset: dataset.path().to_owned(),
        sample: sample.into(),
        mask: None,
        output,
        force: false,
    }
}

fn export_to(dataset: &Dataset, output: &Path) -> Exported {
    export(&options(dataset, "two", output.to_owned())).unwrap()
}

fn read_all(source: &dyn Source) -> RowBuffer {
    let mut buffer = RowBuffer::new();
    source.read_rows(0..source.info().shape.rows, &mut buffer).unwrap();
    buffer
}

fn halves(bytes: &[u8]) -> Vec<f16> {
    bytes.chunks_exact(2).map(|pair| f16::from_le_bytes([pair[0], pair[1]])).collect()
}

#[test]
fn npy_holds_the_stored_bits() {
    let folder = tempfile::tempdir().unwrap();
    let dataset = packed(folder.path(), Scale::Factor(4.0), DType::F16);
    let output = folder.path().join("a.npy");
    let exported = export_to(&dataset, &output);
    assert_eq!((exported.sample, exported.dtype, exported.scale_factor), (1, "float16", 4.0));
    assert!(exported.notes[0].contains("multiply by 4"), "{:?}", exported.notes);
    let source = open(&output, None);
    assert_eq!(source.info().dtype, DType::F16);
    assert_eq!(read_all(&*source).bytes(), stored(&dataset.stacks()[0], 1));
}

/// Reads an exported float32 file back: the exact stored values, and the physical values.
fn check_float32(scale: Scale, ending: &str) {
    let folder = tempfile::tempdir().unwrap();
    let dataset = packed(folder.path(), scale, DType::F16);
    let output = folder.path().join(format!("out.{ending}"));
    let exported = export_to(&dataset, &output);
    let stack = &dataset.stacks()[0];
    let source = open(&output, None);
    let info = source.info();
    assert_eq!(info.wavelength, stack.wavelength, "{ending}");
    assert_eq!(info.fwhm, stack.fwhm, "{ending}");
    assert_eq!(info.good_bands, Some(vec![true, true, false, true, true]), "{ending}");
    assert_eq!(info.band_names.as_ref().unwrap()[4], "µ far", "{ending}");
    let physical = |value: f64| value * info.scaling.multiply / info.scaling.divide;
    let buffer = read_all(&*source);
    let want = halves(&stored(stack, 1));
    assert!(want.iter().any(|value| value.is_nan()) && want.iter().any(|value| *value != want[0]));
    for (got, want) in buffer.as_slice::<f32>().iter().zip(&want) {
        assert_eq!(got.to_bits(), want.to_f32().to_bits(), "{ending}");
        if !want.is_nan() {
            assert_eq!(
                physical(f64::from(*got)),
                want.to_f64() * exported.scale_factor,
                "{ending}"
            );
        }
    }
    assert_eq!(buffer.len(), want.len());
}

#[test]
fn envi_and_tiff_hold_the_stored_values_and_say_how_to_scale_them() {
    for ending in ["hdr", "tif"] {
        check_float32(Scale::None, ending);
        check_float32(Scale::Factor(8.0), ending);
    }
}

#[test]
fn a_factor_that_no_divisor_expresses_is_applied_and_can_be_undone() {
    let odd = (1..1000).map(f64::from).find(|x| 1.0 / (1.0 / x) != *x).unwrap();
    for (dtype, written) in [(DType::F16, "float32"), (DType::F32, "float64")] {
        let folder = tempfile::tempdir().unwrap();
        let dataset = packed(folder.path(), Scale::Factor(odd), dtype);
        let output = folder.path().join("a.img");
        let exported = export_to(&dataset, &output);
        assert_eq!((exported.dtype, exported.scale_factor), (written, 1.0));
        assert_eq!(exported.files, [folder.path().join("a.hdr"), output.clone()]);
        let buffer = read_all(&*open(&output, None));
        let bytes = stored(&dataset.stacks()[0], 1);
        if dtype == DType::F16 {
            let back = |value: &f32| f16::from_f64(f64::from(*value) / odd).to_bits();
            let got: Vec<u16> = buffer.as_slice::<f32>().iter().map(back).collect();
            let want: Vec<u16> = halves(&bytes).iter().map(|half| half.to_bits()).collect();
            assert_eq!(got, want);
        } else {
            let back = |value: &f64| ((value / odd) as f32).to_le_bytes();
            let got: Vec<u8> = buffer.as_slice::<f64>().iter().flat_map(back).collect();
            assert_eq!(got, bytes);
        }
    }
}

#[test]
fn an_offset_that_another_library_wrote_is_added_or_told() {
    let folder = tempfile::tempdir().unwrap();
    let dataset = packed(folder.path(), Scale::Factor(4.0), DType::F16);
    let image = format!("{}/image", dataset.stacks()[0].name);
    let dataset = with_attributes(&dataset, &image, &[("add_offset", json!(-2.5))]);
    let want: Vec<f64> = halves(&stored(&dataset.stacks()[0], 1))
        .iter()
        .map(|half| half.to_f64() * 4.0 - 2.5)
        .collect();
    let input = folder.path().join("one.hdr").display().to_string();
    let mut append = ConvertOptions::new(vec![input], dataset.path());
    append.mode = Mode::APPEND;
    let error = convert(&append, &Progress::default(), &|_| {}).unwrap_err();
    assert!(error.to_string().contains("add_offset (-2.5)"), "{error}");
    let mut physical_values = Vec::new();
    let sample = dataset.samples().get(1).unwrap();
    let cube = hsipack_pack::physical::Cube::of_sample(&dataset, &sample).unwrap();
    cube.read_rows(0..SHAPE[0], &mut |_, _, values| {
        physical_values.extend_from_slice(values);
        Ok(())
    })
    .unwrap();
    let same = |values: &[f64]| {
        let pairs = values.iter().zip(&want);
        values.len() == want.len()
            && pairs.clone().all(|(a, b)| a == b || (a.is_nan() && b.is_nan()))
    };
    assert!(same(&physical_values), "{physical_values:?}");
    for ending in ["npy", "tif", "hdr"] {
        let output = folder.path().join(format!("out.{ending}"));
        let exported = export_to(&dataset, &output);
        let source = open(&output, None);
        let buffer = read_all(&*source);
        let values: Vec<f64> = match buffer.dtype() {
            DType::F16 => buffer.as_slice::<f16>().iter().map(|value| value.to_f64()).collect(),
            DType::F32 => buffer.as_slice::<f32>().iter().copied().map(f64::from).collect(),
            _ => buffer.as_slice::<f64>().to_vec(),
        };
        let rescaled =
            values.iter().map(|value| value * exported.scale_factor + exported.add_offset);
        assert!(same(&rescaled.collect::<Vec<_>>()), "{ending}: {exported:?}");
        if ending != "npy" {
            let info = source.info();
            let read = values.iter().map(|value| {
                value * info.scaling.multiply / info.scaling.divide + info.scaling.add
            });
            assert!(same(&read.collect::<Vec<_>>()), "{ending}: {:?}", info.scaling);
        }
    }
}

#[test]
fn masks_keep_their_ids_in_every_format() {
    let folder = tempfile::tempdir().unwrap();
    let dataset = packed(folder.path(), Scale::None, DType::F16);
    let want: Vec<u8> = (0..63).map(|i| i % 4).collect();
    for ending in ["npy", "hdr", "tif", "png"] {
        let output = folder.path().join(format!("m.{ending}"));
        let mut options = options(&dataset, "1", output.clone());
        options.mask = Some("organs".into());
        export(&options).unwrap();
        let open_mask = OpenOptions { mask: true, ..Default::default() };
        let source =
            hsipack_source::open(&output, &open_mask).unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(source.info().shape.rows, 7, "{ending}");
        assert_eq!(read_all(&*source).bytes(), want, "{ending}");
    }
    let mut wrong = options(&dataset, "1", folder.path().join("w.npy"));
    wrong.mask = Some("bones".into());
    let error = export(&wrong).unwrap_err().to_string();
    assert!(error.contains("no mask bones") && error.contains("organs"), "{error}");
}

#[test]
fn existing_files_stay_unless_forced_and_failures_leave_none() {
    let folder = tempfile::tempdir().unwrap();
    let dataset = packed(folder.path(), Scale::None, DType::F16);
    let out = tempfile::tempdir().unwrap();
    // If only the header exists, exporting is already refused.
    std::fs::write(out.path().join("a.hdr"), "mine").unwrap();
    let mut options = options(&dataset, "one", out.path().join("a.img"));
    let error = export(&options).unwrap_err().to_string();
    assert!(error.contains("a.hdr: the file exists") && error.contains("pass force"), "{error}");
    assert_eq!(std::fs::read(out.path().join("a.hdr")).unwrap(), b"mine");
    options.force = true;
    export(&options).unwrap();
    assert_eq!(std::fs::read_dir(out.path()).unwrap().count(), 2);

    options.output = out.path().join("b.npy");
    options.sample = "three".into();
    let error = export(&options).unwrap_err().to_string();
    assert!(error.contains("no sample three") && error.contains("0 to 1"), "{error}");
    options.sample = "0".into();
    let shard = dataset.stacks()[0].image.shard_path(0);
    let mut bytes = std::fs::read(&shard).unwrap();
    bytes[10] ^= 0xff;
    std::fs::write(&shard, bytes).unwrap();
    let error = export(&options).unwrap_err().to_string();
    assert!(error.contains("hsipack validate"), "{error}");
    assert_eq!(std::fs::read_dir(out.path()).unwrap().count(), 2);
}
