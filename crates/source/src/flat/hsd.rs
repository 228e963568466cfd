//! HSD (`.hsd`), the format of Hyperspectral City: a cube as mean spectrum, principal components
//! and their scores.
//!
//! ```text
//! 4 × i32 little-endian    rows, columns, bands, components
//! i32, float32, i32        first centre, step and last centre of the bands, in nm
//! float32                  mean spectrum: bands values
//! float32                  components × bands values, band fastest
//! float32                  rows × columns × components scores, component fastest
//! ```
//!
//! A spectrum is the mean plus the sum of the components times their scores. There is no public
//! specification: the layout is established from public loaders of the dataset, in MATLAB and in
//! Python, which agree.

use std::ops::Range;
use std::path::Path;

use hsipack_format::{CubeShape, DType, Error, Opt, Result, remedy};
use hsipack_store::memory;

use crate::container::variables::refuse_variable;
use crate::cube_size::{MAX_ROW, check_size};
use crate::flat::envi;
use crate::flat::{ByteSource, FileBytes};
use crate::{Access, AxisOrder, CubeInfo, OpenOptions, RowBuffer, Source};

const HEADER: usize = 28;
/// The most bytes that the components may take. Those of the dataset take some 20 KiB.
const MAX_COMPONENT_BYTES: usize = 64 << 20;

/// The first bytes of a file.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Header {
    /// Rows × columns × bands.
    pub shape: CubeShape,
    /// Number of principal components.
    pub components: usize,
    /// First centre, step and last centre of the bands, in nm.
    pub centers: [f64; 3],
}

impl Header {
    /// Reads the first bytes of a file.
    ///
    /// # Errors
    /// If there are fewer than 28 bytes, a length is not positive, or the lengths are impossible
    /// together.
    pub fn parse(head: &[u8]) -> Result<Self> {
        let Some((header, _)) = head.split_first_chunk::<HEADER>() else {
            return Err(Error::malformed("the file is too short for the header of HSD")
                .with_remedy("copy the file again; it is cut short"));
        };
        let (fields, _) = header.as_chunks::<4>();
        let whole = |field: usize| i32::from_le_bytes(fields[field]);
        let positive = |field| usize::try_from(whole(field)).ok().filter(|length| *length > 0);
        let parsed = || {
            let shape = CubeShape::new(positive(0)?, positive(1)?, positive(2)?);
            let components = positive(3)?;
            let step = f64::from(f32::from_le_bytes(fields[5]));
            let header = Self {
                shape,
                components,
                centers: [f64::from(whole(4)), step, f64::from(whole(6))],
            };
            header.file_len().filter(|_| shape.checked_values().is_some()).map(|_| header)
        };
        parsed().ok_or_else(|| {
            Error::malformed(format!(
                "the header states {} rows, {} columns, {} bands and {} components",
                whole(0),
                whole(1),
                whole(2),
                whole(3)
            ))
            .with_remedy(
                "check that this is HSD as Hyperspectral City has it; copy it again if it is",
            )
        })
    }

    /// Where the scores begin; `None` if that is more than can be counted.
    fn scores_at(&self) -> Option<u64> {
        let spectra = self.components.checked_add(1)?.checked_mul(self.shape.bands)?;
        (spectra as u64).checked_mul(4)?.checked_add(HEADER as u64)
    }

    /// Number of bytes of the scores of a row.
    fn row_bytes(&self) -> Option<u64> {
        (self.shape.columns as u64).checked_mul(self.components as u64)?.checked_mul(4)
    }

    /// Number of bytes of a complete file.
    fn file_len(&self) -> Option<u64> {
        self.row_bytes()?.checked_mul(self.shape.rows as u64)?.checked_add(self.scores_at()?)
    }

    /// The centres of the bands, if the first, the step and the last one agree with their number.
    fn wavelength(&self) -> Option<Vec<f64>> {
        let [first, step, last] = self.centers;
        let bands = self.shape.bands;
        let end = first + step * (bands - 1) as f64;
        let agree = first > 0.0 && step > 0.0 && end.is_finite() && (end - last).abs() <= step;
        agree.then(|| (0..bands).map(|band| first + step * band as f64).collect())
    }
}

/// Whether a file that starts with `head` (up to 4 KiB) is of this format.
pub(crate) fn recognises(path: &Path, head: &[u8]) -> bool {
    path.extension().is_some_and(|ending| ending.eq_ignore_ascii_case("hsd"))
        && !envi::has_header(path)
        && Header::parse(head).is_ok()
}

/// Opens the cube in `path`.
///
/// # Errors
/// If the file cannot be read or is malformed, or the options ask for something that it does not
/// have.
pub fn open(path: &Path, options: &OpenOptions) -> Result<Box<dyn Source>> {
    refuse_variable(path, options)?;
    if options.axes.as_ref().is_some_and(|axes| *axes != AxisOrder::BIP.into()) {
        return Err(Error::conflict("the axes of HSD are fixed").at(path).with_remedy(remedy![
            "leave ",
            Opt::Axes,
            " out for this file"
        ]));
    }
    let bytes = FileBytes::open(path)?;
    let mut head = [0; HEADER];
    let head = &mut head[..HEADER.min(usize::try_from(bytes.len()).unwrap_or(HEADER))];
    bytes.read_at(0, head)?;
    let header = Header::parse(head).map_err(|error| error.at(path))?;
    let Header { shape, components, .. } = header;
    let scores_at = header.scores_at().unwrap_or(u64::MAX);
    match header.file_len() {
        Some(len) if len <= bytes.len() => {}
        _ => {
            return Err(Error::malformed(format!(
                "the header states {} rows, {} columns, {} bands and {components} components, which take more than the file's {} bytes",
                shape.rows,
                shape.columns,
                shape.bands,
                bytes.len()
            ))
            .at(path)
            .with_remedy("copy the file again; it is cut short"));
        }
    }
    check_size(shape, DType::F32).map_err(|error| error.at(path))?;
    let spectra = (components + 1) * shape.bands;
    if spectra * 4 > MAX_COMPONENT_BYTES || header.row_bytes().is_none_or(|bytes| bytes > MAX_ROW) {
        return Err(Error::unsupported(format!("{components} components are too many"))
            .at(path)
            .with_remedy("check that the file is what it should be"));
    }
    let mut raw = Vec::new();
    memory::room(&mut raw, spectra * 4, "the components of a cube")?;
    raw.resize(spectra * 4, 0);
    bytes.read_at(HEADER as u64, &mut raw)?;
    let mut spectra: Vec<f32> = numbers(&raw).collect();
    let components = spectra.split_off(shape.bands);
    let mut info = CubeInfo::new("HSD", shape, DType::F32, path);
    info.wavelength = header.wavelength();
    if info.wavelength.is_none() {
        let [first, step, last] = header.centers;
        info.notes.push(format!(
            "wavelengths are unknown: {} bands from {first} nm in steps of {step} nm do not end at {last} nm",
            shape.bands
        ));
    }
    Ok(Box::new(Hsd { info, bytes, scores_at, mean: spectra, components }))
}

/// Numbers in the bytes of a file.
fn numbers(bytes: &[u8]) -> impl Iterator<Item = f32> {
    let (numbers, _) = bytes.as_chunks::<4>();
    numbers.iter().map(|number| f32::from_le_bytes(*number))
}

/// A cube whose spectra are computed when they are read.
struct Hsd {
    info: CubeInfo,
    bytes: FileBytes,
    scores_at: u64,
    mean: Vec<f32>,
    /// Component by component, the band fastest.
    components: Vec<f32>,
}

impl Hsd {
    /// Number of bytes of the scores of a row.
    fn row_bytes(&self) -> usize {
        self.info.shape.columns * (self.components.len() / self.mean.len()) * 4
    }

    /// Computes some bands of the rows `rows`.
    fn read(&self, rows: Range<usize>, bands: Range<usize>, out: &mut RowBuffer) -> Result<()> {
        let width = bands.len();
        let (row_bytes, values) = (self.row_bytes(), rows.len() * self.info.shape.columns * width);
        let (out, scores) = out.reset_with_scratch(DType::F32, values, rows.len() * row_bytes);
        self.bytes.read_at(self.scores_at + (rows.start * row_bytes) as u64, scores)?;
        let all_bands = self.mean.len();
        let count = self.components.len() / all_bands;
        let spectra: &mut [f32] = bytemuck::cast_slice_mut(out);
        let pixels = spectra.chunks_exact_mut(width).zip(scores.chunks_exact(count * 4));
        for (spectrum, scores) in pixels {
            spectrum.copy_from_slice(&self.mean[bands.clone()]);
            for (score, component) in numbers(scores).zip(self.components.chunks_exact(all_bands)) {
                for (value, part) in spectrum.iter_mut().zip(&component[bands.clone()]) {
                    *value += score * part;
                }
            }
        }
        Ok(())
    }
}

impl Source for Hsd {
    fn info(&self) -> &CubeInfo {
        &self.info
    }

    fn access(&self) -> Access {
        Access::Random
    }

    fn preferred_rows(&self, budget: usize) -> usize {
        let row = self.info.row_bytes() + self.row_bytes();
        (budget / row.max(1)).clamp(1, self.info.shape.rows)
    }

    fn read_rows(&self, rows: Range<usize>, out: &mut RowBuffer) -> Result<()> {
        self.read(rows, 0..self.info.shape.bands, out)
    }

    fn read_band(&self, band: usize, rows: Range<usize>, out: &mut RowBuffer) -> Result<()> {
        self.read(rows, band..band + 1, out)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn header(lengths: [i32; 4], first: i32, step: f32, last: i32) -> Vec<u8> {
        let mut bytes: Vec<u8> = lengths.iter().flat_map(|length| length.to_le_bytes()).collect();
        bytes.extend(first.to_le_bytes());
        bytes.extend(step.to_le_bytes());
        bytes.extend(last.to_le_bytes());
        bytes
    }

    /// A file with 2 × 3 pixels, 4 bands and 2 components, and its values.
    fn file() -> (Vec<u8>, Vec<f32>) {
        let mean = [10.0, 20.0, 30.0, 40.0];
        let components = [[1.0, 2.0, 3.0, 4.0], [0.5, 0.0, -0.5, 1.0]];
        let scores = |pixel: usize| [pixel as f32, 2.0 - pixel as f32];
        let mut bytes = header([2, 3, 4, 2], 450, 4.0, 462);
        let mut values = Vec::new();
        let stored = mean.into_iter().chain(components.into_iter().flatten());
        bytes.extend(stored.chain((0..6).flat_map(scores)).flat_map(f32::to_le_bytes));
        for [a, b] in (0..6).map(scores) {
            let value =
                |band: usize| mean[band] + a * components[0][band] + b * components[1][band];
            values.extend((0..4).map(value));
        }
        (bytes, values)
    }

    fn opened(bytes: &[u8]) -> Result<Box<dyn Source>> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("1.hsd");
        std::fs::write(&path, bytes).unwrap();
        open(&path, &OpenOptions::default())
    }

    #[test]
    fn spectra_are_sums_of_components() {
        let (bytes, values) = file();
        let source = opened(&bytes).unwrap();
        let mut rows = RowBuffer::new();
        source.read_rows(0..2, &mut rows).unwrap();
        assert_eq!(rows.as_slice::<f32>(), values);
        source.read_rows(1..2, &mut rows).unwrap();
        assert_eq!(rows.as_slice::<f32>(), &values[12..]);
        source.read_band(2, 0..2, &mut rows).unwrap();
        let band: Vec<f32> = values.iter().skip(2).step_by(4).copied().collect();
        assert_eq!(rows.as_slice::<f32>(), band);
        assert_eq!(source.info().wavelength.as_deref(), Some(&[450.0, 454.0, 458.0, 462.0][..]));
    }

    #[test]
    fn centers_that_do_not_fit_the_bands_are_unknown() {
        let (mut bytes, _) = file();
        bytes[24..28].copy_from_slice(&950_i32.to_le_bytes());
        let source = opened(&bytes).unwrap();
        assert_eq!(source.info().wavelength, None);
        assert!(source.info().notes[0].contains("wavelengths are unknown"));
    }

    #[test]
    fn files_that_are_cut_short_or_state_nonsense_are_refused() {
        let (bytes, _) = file();
        for (bytes, reason) in [
            (&bytes[..bytes.len() - 1], "more than the file's"),
            (&bytes[..20], "too short"),
            (&header([0, 3, 4, 2], 1, 1.0, 4), "0 rows"),
            (&header([2, 3, 4, -2], 1, 1.0, 4), "-2 components"),
            (&header([i32::MAX; 4], 1, 1.0, 4), "2147483647 rows"),
            (&header([1, 1, 1 << 20, 1 << 20], 1, 1.0, 4), "more than the file's"),
        ] {
            let error = opened(bytes).err().unwrap();
            assert!(error.to_string().contains(reason), "{reason}: {error}");
            assert!(error.path().is_some() && error.remedy().is_some(), "{error}");
        }
    }

    #[test]
    fn only_plausible_files_of_that_name_are_recognised() {
        let (bytes, _) = file();
        assert!(recognises(Path::new("a.HSD"), &bytes));
        assert!(!recognises(Path::new("a.raw"), &bytes));
        assert!(!recognises(Path::new("a.hsd"), &[0; 100]));
    }

    proptest! {
        #[test]
        fn parsing_never_panics(head in prop::collection::vec(any::<u8>(), 0..40)) {
            if let Ok(header) = Header::parse(&head) {
                prop_assert!(!header.shape.is_empty() && header.components > 0);
                prop_assert!(header.wavelength().is_none_or(|all| all.iter().all(|nm| *nm > 0.0)));
            }
        }
    }
}
