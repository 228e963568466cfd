//! Writes and packs small cubes, for tests that use datasets.

use std::fmt::Write;
use std::path::{Path, PathBuf};

use hsipack_format::checksums;
use hsipack_pack::convert::{self, ConvertOptions, MaskOption};
use hsipack_pack::progress::Progress;
use hsipack_store::{Dataset, Stack};

/// Writes `name.hdr` and `name.img`: float32, band interleaved by pixel. The header also contains
/// `more`.
pub fn write_envi(
    folder: &Path,
    name: &str,
    shape: [usize; 3],
    values: &[f32],
    more: &str,
) -> PathBuf {
    let [rows, columns, bands] = shape;
    assert_eq!(values.len(), rows * columns * bands);
    let header = format!(
        "ENVI\nsamples = {columns}\nlines = {rows}\nbands = {bands}\ndata type = 4\n\
         interleave = bip\nbyte order = 0\n{more}"
    );
    let path = folder.join(format!("{name}.hdr"));
    std::fs::write(&path, header).unwrap();
    let bytes: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
    std::fs::write(folder.join(format!("{name}.img")), bytes).unwrap();
    path
}

/// Writes a mask of class ids as uint8 `.npy`.
pub fn write_mask(folder: &Path, name: &str, rows: usize, columns: usize, ids: &[u8]) -> PathBuf {
    assert_eq!(ids.len(), rows * columns);
    let mut header =
        format!("{{'descr': '|u1', 'fortran_order': False, 'shape': ({rows}, {columns}), }}");
    while (10 + header.len() + 1) % 64 != 0 {
        header.push(' ');
    }
    header.push('\n');
    let mut bytes = b"\x93NUMPY\x01\x00".to_vec();
    bytes.extend((header.len() as u16).to_le_bytes());
    bytes.extend(header.as_bytes());
    bytes.extend(ids);
    let path = folder.join(format!("{name}.npy"));
    std::fs::write(&path, bytes).unwrap();
    path
}

/// Header lines of five bands in nm, of which the third is bad.
pub fn five_bands() -> String {
    let mut text = "wavelength units = Nanometers\n".to_owned();
    for (key, list) in [
        ("wavelength", "460.25, 550.5, 640.125, 850, 1200.1"),
        ("fwhm", "5, 5.5, 6, 6.5, 7.25"),
        ("bbl", "1, 1, 0, 1, 1"),
        ("band names", "blue, green, red, near, µ far"),
    ] {
        writeln!(text, "{key} = {{{list}}}").unwrap();
    }
    text
}

/// Values whose neighbours all differ, with all sorts of numbers.
pub fn varied(count: usize) -> Vec<f32> {
    let mut values: Vec<f32> = (0..count).map(|i| ((i * 7919) % 1013) as f32 * 0.0031).collect();
    for (value, at) in [(f32::NAN, 3), (-0.0, 7), (6e-8, 11), (-1.5, 13), (60000.0, 17)] {
        if let Some(slot) = values.get_mut(at) {
            *slot = value;
        }
    }
    values
}

/// Packs `inputs`; `set` changes the options.
pub fn pack(inputs: &[PathBuf], output: &Path, set: impl Fn(&mut ConvertOptions)) -> Dataset {
    let inputs = inputs.iter().map(|input| input.display().to_string()).collect();
    let mut options = ConvertOptions::new(inputs, output);
    options.threads = 2;
    set(&mut options);
    convert::convert(&options, &Progress::default(), &|_| {}).unwrap();
    Dataset::open(output).unwrap()
}

/// A mask of every cube, by pattern.
pub fn mask(name: &str, pattern: &str) -> MaskOption {
    MaskOption::new(name, pattern)
}

/// Changes attributes in an array's `zarr.json`, as another library might, and opens the dataset
/// again.
pub fn with_attributes(
    dataset: &Dataset,
    array: &str,
    set: &[(&str, serde_json::Value)],
) -> Dataset {
    let (root, name) = (dataset.path(), format!("{array}/zarr.json"));
    let mut meta: serde_json::Value =
        serde_json::from_slice(&std::fs::read(root.join(&name)).unwrap()).unwrap();
    for (key, value) in set {
        meta["attributes"][*key] = value.clone();
    }
    std::fs::write(root.join(&name), meta.to_string()).unwrap();
    let sums = root.join(checksums::SHA256SUMS);
    let files: Vec<(String, Vec<u8>)> = checksums::parse(&std::fs::read(&sums).unwrap())
        .unwrap()
        .into_iter()
        .map(|(file, _)| (file.clone(), std::fs::read(root.join(file)).unwrap()))
        .collect();
    let files = files.iter().map(|(file, content)| (file.as_str(), content.as_slice()));
    std::fs::write(&sums, checksums::encode(files)).unwrap();
    Dataset::open(root).unwrap()
}

/// The stored bytes of a sample.
pub fn stored(stack: &Stack, index: usize) -> Vec<u8> {
    let mut bytes = vec![0; stack.image.sample_bytes()];
    stack.image.read_sample(index, &mut bytes).unwrap();
    bytes
}
