//! A dataset and a raw cube with known values, and requests like those of a browser.

use std::fmt::Write as _;
use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};

use hsipack_pack::convert::{ConvertOptions, MaskOption, PackedType, convert};
use hsipack_pack::progress::Progress;
use hsipack_view::{Options, Subject, View};
use serde_json::Value;

pub const ROWS: usize = 6;
pub const COLUMNS: usize = 9;
pub const BANDS: usize = 5;
/// The number of samples in the dataset.
pub const SAMPLES: usize = 12;

/// The packed value, which is exact in fp16.
pub fn value(sample: usize, row: usize, column: usize, band: usize) -> f64 {
    if sample == 3 && (row, column, band) == (2, 4, 1) {
        return f64::NAN;
    }
    let mixed = (sample * 31 + row * 17 + column * 7 + band * 13) % 101;
    mixed as f64 / 4.0 + 1.0
}

/// The label of a pixel.
pub fn label(row: usize, column: usize) -> u8 {
    u8::from(column >= 5) + 2 * u8::from(row == 0)
}

/// A file in NumPy's format.
pub fn write_npy(path: &Path, kind: &str, shape: &[usize], values: &[u8]) {
    let mut list = String::new();
    shape.iter().for_each(|length| {
        let _ = write!(list, "{length}, ");
    });
    let header = format!("{{'descr': '{kind}', 'fortran_order': False, 'shape': ({list}), }}");
    let padded = (header.len() + 11).next_multiple_of(64) - 11;
    let mut bytes = b"\x93NUMPY\x01\x00".to_vec();
    bytes.extend_from_slice(&u16::try_from(padded + 1).unwrap().to_le_bytes());
    bytes.extend_from_slice(format!("{header:padded$}\n").as_bytes());
    bytes.extend_from_slice(values);
    fs::write(path, bytes).unwrap();
}

/// Writes a cube to an ENVI file, band after band, with the values of sample `sample` and
/// wavelengths from 400 nm.
pub fn write_envi(path: &Path, sample: usize) {
    let header = format!(
        "ENVI\nsamples = {COLUMNS}\nlines = {ROWS}\nbands = {BANDS}\ndata type = 4\ninterleave = bsq\n\
         byte order = 0\nwavelength units = nm\nwavelength = {{450, 550, 640, 700, 860}}\nbbl = {{1, 1, 1, 0, 1}}\n\
         map info = {{UTM, 1, 1, 500000, 5400000, 10, 10, 32, North, WGS-84}}\n"
    );
    fs::write(path.with_extension("hdr"), header).unwrap();
    let mut bytes = Vec::new();
    for band in 0..BANDS {
        for row in 0..ROWS {
            for column in 0..COLUMNS {
                bytes.extend_from_slice(&(value(sample, row, column, band) as f32).to_le_bytes());
            }
        }
    }
    fs::write(path.with_extension("raw"), bytes).unwrap();
}

/// Packs [`SAMPLES`] cubes with masks, splits and labels. The name of the last one is markup.
pub fn dataset(folder: &Path) -> PathBuf {
    let cubes = folder.join("cubes");
    fs::create_dir(&cubes).unwrap();
    let mut table = "name,split,label,age\n".to_owned();
    for sample in 0..SAMPLES {
        let name =
            if sample + 1 == SAMPLES { "z<img src=x>".to_owned() } else { format!("s{sample:02}") };
        write_envi(&cubes.join(&name), sample);
        let labels: Vec<u8> =
            (0..ROWS * COLUMNS).map(|at| label(at / COLUMNS, at % COLUMNS)).collect();
        write_npy(&folder.join(format!("{name}_mask.npy")), "|u1", &[ROWS, COLUMNS], &labels);
        let split = if sample < 8 { "train" } else { "test" };
        let _ = writeln!(table, "{name},{split},{},{}", ["oak", "beech"][sample % 2], 50 - sample);
    }
    let list = folder.join("table.csv");
    fs::write(&list, table).unwrap();
    let output = folder.join("trees.hsipack");
    let mut options = ConvertOptions::new(vec![cubes.to_string_lossy().into_owned()], &output);
    options.table = vec![list];
    options.mask = vec![MaskOption::new("mask", "{dir}/../{stem}_mask.npy")];
    convert(&options, &Progress::default(), &|_| {}).unwrap();
    output
}

/// The number that a cube of integers has for a value of [`value`]: four times as large, and -9999
/// if it is missing.
pub fn count(sample: usize, row: usize, column: usize, band: usize) -> i16 {
    let value = 4.0 * value(sample, row, column, band);
    if value.is_nan() { -9999 } else { value as i16 }
}

/// Packs four cubes of integers, bit for bit. Their physical values are those of [`value`] times
/// `factor`.
pub fn integers(folder: &Path, factor: f64) -> PathBuf {
    let cubes = folder.join("counts");
    fs::create_dir(&cubes).unwrap();
    for sample in 0..4 {
        let header = format!(
            "ENVI\nsamples = {COLUMNS}\nlines = {ROWS}\nbands = {BANDS}\ndata type = 2\ninterleave = bip\n\
             byte order = 0\ndata ignore value = -9999\nreflectance scale factor = {}\n",
            4.0 / factor
        );
        let path = cubes.join(format!("s{sample}"));
        fs::write(path.with_extension("hdr"), header).unwrap();
        let pixels = (0..ROWS).flat_map(|row| (0..COLUMNS).map(move |column| (row, column)));
        let numbers = pixels
            .flat_map(|(row, column)| (0..BANDS).map(move |band| count(sample, row, column, band)));
        let bytes: Vec<u8> = numbers.flat_map(i16::to_le_bytes).collect();
        fs::write(path.with_extension("raw"), bytes).unwrap();
    }
    let output = folder.join("counts.hsipack");
    let mut options = ConvertOptions::new(vec![cubes.to_string_lossy().into_owned()], &output);
    options.values.dtype = PackedType::I16;
    convert(&options, &Progress::default(), &|_| {}).unwrap();
    output
}

/// A response of the server.
pub struct Answer {
    pub status: u16,
    pub head: String,
    pub body: Vec<u8>,
}

impl Answer {
    pub fn json(&self) -> Value {
        assert_eq!(self.status, 200, "{}", String::from_utf8_lossy(&self.body));
        serde_json::from_slice(&self.body).unwrap()
    }

    /// The error in the response.
    pub fn error(&self) -> String {
        assert!(self.status >= 400, "{}", self.status);
        let body: Value = serde_json::from_slice(&self.body).unwrap();
        body["error"].as_str().unwrap().to_owned()
    }

    pub fn header(&self, name: &str) -> Option<&str> {
        let line = self
            .head
            .lines()
            .find(|line| line.to_ascii_lowercase().starts_with(&format!("{name}:")))?;
        Some(line[name.len() + 1..].trim())
    }

    pub fn shape(&self) -> Vec<usize> {
        assert_eq!(self.status, 200, "{}", String::from_utf8_lossy(&self.body));
        self.header("x-shape").unwrap().split(',').map(|length| length.parse().unwrap()).collect()
    }

    pub fn singles(&self) -> Vec<f32> {
        let (values, _) = self.body.as_chunks::<4>();
        values.iter().map(|value| f32::from_le_bytes(*value)).collect()
    }
}

/// A server, and the parts of its address.
pub struct Viewed {
    pub view: View,
    pub host: String,
    pub token: String,
}

impl Viewed {
    pub fn of(path: &Path) -> Self {
        Self::with(path, &Options::default())
    }

    pub fn with(path: &Path, options: &Options) -> Self {
        Self::start(Subject::open(&path.to_string_lossy(), None).unwrap(), options)
    }

    pub fn start(subject: Subject, options: &Options) -> Self {
        let view = View::start(subject, options).unwrap();
        let address = view.url().strip_prefix("http://").unwrap();
        let (host, token) = address.split_once('/').unwrap();
        let (host, token) = (host.to_owned(), token.trim_end_matches('/').to_owned());
        Self { view, host, token }
    }

    /// The response to a request for `path` after the token.
    pub fn get(&self, path: &str) -> Answer {
        let head = format!("GET /{}/{path} HTTP/1.1\r\nHost: {}", self.token, self.host);
        self.send(&head)
    }

    /// The response to a request with this head, without the end of its last line.
    pub fn send(&self, head: &str) -> Answer {
        let mut stream = TcpStream::connect(&self.host).unwrap();
        write!(stream, "{head}\r\nConnection: close\r\n\r\n").unwrap();
        let mut all = Vec::new();
        stream.read_to_end(&mut all).unwrap();
        let end = all.windows(4).position(|four| four == b"\r\n\r\n").unwrap();
        let head = String::from_utf8(all[..end].to_vec()).unwrap();
        let status = head.split(' ').nth(1).unwrap().parse().unwrap();
        Answer { status, head, body: all[end + 4..].to_vec() }
    }
}
