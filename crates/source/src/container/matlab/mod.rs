//! MATLAB v5 `.mat` files (`save -v6`, `-v7`); v7.3 files are HDF5 and read by `hdf5/`.
//!
//! A cube is a 3-D array (row, column, band), stored as a variable or as a field of a struct. It
//! may also be a matrix of spectra, (bands × pixels) or (pixels × bands). Then scalars such as
//! `nRow` and `nCol` or a 2-D `map` beside it give the shape of the image, and its pixels run down
//! the columns. MATLAB stores everything column by column, first index fastest.
//!
//! Numbers keep the type in which they are stored: MATLAB writes whole numbers of class double in a
//! narrower type. Compressed variables are read as streams. Because the first index is the row, a
//! read of a few rows passes over the whole stream, so
//! [`preferred_rows`](crate::Source::preferred_rows) asks for as many rows as the budget allows.

#[doc(hidden)]
pub mod v5;

use std::collections::BTreeMap;
use std::io::{BufReader, Read, Seek, SeekFrom};
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use flate2::read::ZlibDecoder;
use hsipack_format::{CubeShape, Error, ErrorKind, Opt, Result, remedy};
use hsipack_store::bounded_read;

use self::v5::{Content, Numbers, Variable};
use crate::container::variables::{self, Candidate, Role};
use crate::container::{self, ArrayEntry, Attributes, Container, NoAttributes, Value, Visitor};
use crate::flat::{ByteSource, FileBytes, FlatLayout, FlatSource, SampleAxis, StreamBytes};
use crate::meaning::{Known, Placed, Subject};
use crate::recent::{MANY_ARRAYS, Recent};
use crate::{Axes, Axis, AxisOrder, CubeInfo, OpenOptions, Source};

/// How many scalars are read to find the shape of an image. Reading one in a compressed struct
/// inflates everything before it.
const MAX_SCALARS: usize = 64;
/// Longer lists beside a cube are not read.
const LONGEST_LIST: usize = 1 << 20;
/// Pairs of scalars that give the rows and columns of the image, in lower case.
const IMAGE_SIZES: [(&str, &str); 10] = [
    ("nrow", "ncol"),
    ("nrows", "ncols"),
    ("lines", "cols"),
    ("lines", "samples"),
    ("nlines", "nsamples"),
    ("rows", "cols"),
    ("rows", "columns"),
    ("row", "col"),
    ("height", "width"),
    ("h", "w"),
];
/// 2-D arrays that have the shape of the image, in lower case.
const MAPS: [&str; 7] = ["map", "gt", "groundtruth", "ground_truth", "mask", "label", "labels"];

/// Whether a file that starts with `head` (up to 4 KiB) is of this format.
pub(crate) fn recognises(path: &Path, head: &[u8]) -> bool {
    let named = path.extension().is_some_and(|extension| extension.eq_ignore_ascii_case("mat"));
    v5::byte_order(head).is_some() || (named && !is_v73(head))
}

fn is_v73(head: &[u8]) -> bool {
    head.starts_with(b"MATLAB 7.3")
}

/// Whether `head` begins a v4 file: five words, the first of which encodes the type in decimal.
fn is_v4(head: &[u8]) -> bool {
    let Some(head) = head.first_chunk::<20>() else { return false };
    let words = head.as_chunks::<4>().0;
    [u32::from_le_bytes, u32::from_be_bytes].iter().any(|read| {
        let [kind, rows, columns, imaginary, name] = [0, 1, 2, 3, 4].map(|word| read(words[word]));
        let digits = [kind / 100 % 10, kind / 10 % 10, kind % 10];
        kind < 5000
            && digits[0] == 0
            && digits[1] <= 5
            && digits[2] <= 2
            && rows <= i32::MAX as u32
            && columns <= i32::MAX as u32
            && imaginary <= 1
            && (1..=256).contains(&name)
    })
}

/// Opens the cube in `path`.
///
/// # Errors
/// If the file cannot be read or is malformed, or holds no cube or several.
pub fn open(path: &Path, options: &OpenOptions) -> Result<Box<dyn Source>> {
    open_located(path, options).map_err(|error| error.at(path))
}

fn open_located(path: &Path, options: &OpenOptions) -> Result<Box<dyn Source>> {
    let workspace = Workspace::read(path)?;
    let index = workspace.choose(options)?;
    let variable = &workspace.variables[index];
    let numbers = match &variable.content {
        Content::Numbers(numbers) => numbers,
        Content::Text(_) => return Err(not_numbers(&variable.name, "text")),
        Content::Other(what) => return Err(not_numbers(&variable.name, what)),
    };
    let entry = entry(variable);
    let subject = Subject { container: &workspace, entry: &entry, layout: None, options };
    let mut notes = Vec::new();
    let placed = workspace.place(variable, &subject, &mut notes)?;
    let (shape, order) = (placed.shape(), placed.order);
    let mut info = CubeInfo::new("MATLAB v5", shape, numbers.dtype, path);
    info.notes = notes;
    let reading = subject.describe(&placed, Known::default(), &mut info)?;
    let layout = FlatLayout {
        offset: numbers.offset,
        order: order.reversed(),
        big_endian: numbers.big_endian,
        rows_reversed: false,
    };
    let samples = placed.samples().map(SampleAxis::reversed);
    let end = placed
        .array_len(numbers.dtype)
        .and_then(|len| len.checked_add(numbers.offset))
        .ok_or_else(|| crate::axes::lengths::too_large(&variable.lengths))?;
    let source = match &numbers.stream {
        Some(stream) => FlatSource::new(info, layout, inflated(path, stream.clone(), numbers, end)),
        None => FlatSource::new(info, layout, FileBytes::open(path)?),
    };
    Ok(reading.apply(Box::new(source.of_sample(samples))))
}

fn not_numbers(name: &str, what: &str) -> Error {
    Error::unsupported(format!("'{name}' is not an array of real numbers: {what}"))
        .with_remedy("name an array of real numbers after '::'")
}

/// The inflated bytes of the zlib stream that holds `numbers`. When the byte before `end` has been
/// read, the rest of the stream is read, too. This compares its checksum, and its length with the
/// length that it states.
fn inflated(path: &Path, stream: Range<u64>, numbers: &Numbers, end: u64) -> StreamBytes {
    /// Padding that a writer may add after the variable.
    const PADDING: u64 = 8;
    let file_path = path.to_owned();
    let trailing = numbers.stream_len.saturating_sub(end).saturating_add(PADDING);
    StreamBytes::new(path, stream.start, move || {
        let fail = |error| Error::io(&file_path, "cannot read", error);
        let mut file = bounded_read::window(&file_path)?;
        file.seek(SeekFrom::Start(stream.start)).map_err(fail)?;
        let raw = BufReader::new(file).take(stream.end - stream.start);
        Ok(Box::new(ReadToEnd { inner: ZlibDecoder::new(raw), remaining: end, trailing }))
    })
}

struct ReadToEnd<R> {
    inner: R,
    remaining: u64,
    /// The most bytes that may follow them.
    trailing: u64,
}

impl<R: Read> Read for ReadToEnd<R> {
    fn read(&mut self, out: &mut [u8]) -> std::io::Result<usize> {
        let most = usize::try_from(self.remaining).unwrap_or(usize::MAX).min(out.len());
        let count = self.inner.read(&mut out[..most])?;
        self.remaining -= count as u64;
        if count > 0 && self.remaining == 0 {
            let excess = (&mut self.inner).take(self.trailing.saturating_add(1));
            if std::io::copy(&mut { excess }, &mut std::io::sink())? > self.trailing {
                return Err(std::io::Error::new(
                    std::io::ErrorKind::InvalidData,
                    "the data are longer than the variable says",
                ));
            }
        }
        Ok(count)
    }
}

/// The variables of a file.
struct Workspace<'a> {
    path: &'a Path,
    variables: Arc<Vec<Variable>>,
    /// Shapes of images, by the struct that describes them.
    image_sizes: BTreeMap<String, Vec<ImageSize>>,
}

/// The part of a variable's path that names the struct it is in.
fn parent(name: &str) -> &str {
    name.rsplit_once('.').map_or("", |(parent, _)| parent)
}

/// The length of a row or column vector, or of a scalar.
fn vector_len(lengths: &[usize]) -> Option<usize> {
    match lengths {
        [1, length] | [length, 1] if *length > 0 => Some(*length),
        _ => None,
    }
}

/// The variables in `path`.
fn variables_of(path: &Path) -> Result<Arc<Vec<Variable>>> {
    static RECENT: Recent<Vec<Variable>> = Recent::new();
    let is_long = |variables: &Vec<Variable>| variables.len() >= MANY_ARRAYS;
    RECENT.get(path, is_long, || {
        let fail = |error| Error::io(path, "cannot read", error);
        let file = bounded_read::window(path)?;
        let len = file.len();
        let mut file = BufReader::new(file);
        let mut head = Vec::new();
        (&mut file).take(v5::HEADER as u64).read_to_end(&mut head).map_err(fail)?;
        if v5::byte_order(&head).is_none() {
            return Err(refuse_header(&head));
        }
        file.rewind().map_err(fail)?;
        v5::scan(&mut file, len)
    })
}

/// Shows the file at `path` as a container.
///
/// # Errors
/// If the file cannot be read or is malformed.
pub(crate) fn visit(path: &Path, visitor: Visitor<'_>) -> Result<()> {
    let variables = variables_of(path).map_err(|error| error.at(path))?;
    visitor(&Workspace { path, variables, image_sizes: BTreeMap::new() })
}

impl<'a> Workspace<'a> {
    fn read(path: &'a Path) -> Result<Self> {
        let variables = variables_of(path)?;
        let mut workspace = Self { path, variables, image_sizes: BTreeMap::new() };
        if workspace.variables.iter().any(is_layer) {
            workspace.image_sizes = workspace.find_image_sizes()?;
        }
        Ok(workspace)
    }

    /// The index of the variable that is the cube.
    fn choose(&self, options: &OpenOptions) -> Result<usize> {
        let candidate = |variable| candidate(variable, options);
        let mut candidates: Vec<Candidate> = self.variables.iter().map(candidate).collect();
        let any_3d = candidates
            .iter()
            .any(|candidate| matches!(candidate.role, Role::Cube(_) | Role::Higher));
        let mut disagreement = None;
        for (candidate, variable) in candidates.iter_mut().zip(self.variables.iter()) {
            // Beside a 3-D cube, matrices of spectra may be abundances or end members.
            if candidate.role == Role::Layer && (options.mask || !any_3d) {
                match self.spectra(variable, options) {
                    Ok(Some(_)) => candidate.role = Role::Cube(3),
                    Ok(None) => {}
                    Err(error) => disagreement = Some(error),
                }
            }
        }
        match variables::choose(self.path, options, &candidates) {
            // The reason why no matrix of spectra fits is more useful than the message that there is no
            // cube.
            Err(error) if error.kind() == ErrorKind::Unsupported => {
                Err(disagreement.unwrap_or(error))
            }
            chosen => chosen,
        }
    }

    /// The cube in a variable, in MATLAB's index order.
    fn place(
        &self,
        variable: &Variable,
        subject: &Subject<'_>,
        notes: &mut Vec<String>,
    ) -> Result<Placed> {
        let options = subject.options;
        // As if the pixels were divided into rows and columns.
        let divided = |(shape, order): (CubeShape, AxisOrder)| Placed {
            lengths: order.lengths(shape).to_vec(),
            axes: [0, 1, 2],
            order,
            sample: None,
        };
        if let Some(column) = column_of_pixels(&variable.lengths, options) {
            return Ok(divided(column));
        }
        if variable.lengths.len() == 2 {
            match self.spectra(variable, options) {
                Ok(Some(spectra)) => return Ok(divided(spectra)),
                Err(error) if !options.mask => return Err(error),
                _ => {}
            }
        }
        let named = |error: Error| {
            let error = error.within(format_args!("'{}'", variable.name));
            if variable.lengths.len() != 2 || options.mask {
                return error;
            }
            error.with_remedy(remedy![
                "for a matrix of spectra, add the scalars nRow and nCol to the file; for a mask, use ",
                Opt::Mask
            ])
        };
        subject.place(notes).map_err(named)
    }

    /// Shape and axis order of a matrix of spectra. `None` if it cannot be one: nothing in the file
    /// gives the shape of the image, or the matrix has that shape itself.
    ///
    /// # Errors
    /// If the image's shape is known and does not fit, or fits in several ways.
    fn spectra(
        &self,
        variable: &Variable,
        options: &OpenOptions,
    ) -> Result<Option<(CubeShape, AxisOrder)>> {
        let (Content::Numbers(_), &[first, second]) = (&variable.content, &variable.lengths[..])
        else {
            return Ok(None);
        };
        let sizes = self.image_sizes.get(parent(&variable.name)).map_or(&[][..], Vec::as_slice);
        let is_image = |size: &ImageSize| (size.rows, size.columns) == (first, second);
        if sizes.is_empty()
            || variable.lengths.contains(&0)
            || sizes.iter().any(is_image)
            || vector_len(&variable.lengths) == Some(1)
        {
            return Ok(None);
        }
        let mut found: Vec<(CubeShape, AxisOrder)> = Vec::new();
        for size in sizes {
            for (bands, pixels, bands_first) in [(first, second, true), (second, first, false)] {
                if size.pixels() == Some(pixels) {
                    let shape = CubeShape::new(size.rows, size.columns, bands);
                    found.push((shape, pixel_order(bands_first, options)?));
                }
            }
        }
        found.dedup();
        match found[..] {
            [] if options.mask => Ok(None),
            [only] => Ok(Some(only)),
            [] => Err(Error::malformed(format!(
                "'{}' is {first}x{second}, but no axis has as many pixels as {}",
                variable.name,
                sizes.iter().map(ImageSize::text).collect::<Vec<_>>().join(" or "),
            ))
            .with_remedy("correct the scalars, or save the cube as rows x columns x bands")),
            _ => Err(Error::ambiguous(format!(
                "'{}' of {first}x{second} could be a matrix of spectra in several ways",
                variable.name
            ))
            .with_remedy("save the cube as rows x columns x bands")),
        }
    }

    /// The value of a scalar, if it is a whole positive number.
    fn length_of(&self, numbers: &Numbers) -> Result<Option<usize>> {
        let value = self.bytes(numbers, 1)?;
        let value = variables::to_f64(&value, numbers.dtype, numbers.big_endian)[0];
        let whole = value >= 1.0 && value <= f64::from(i32::MAX) && value.fract() == 0.0;
        Ok(whole.then_some(value as usize))
    }

    /// The shapes of images that the file describes, by the struct that describes them.
    fn find_image_sizes(&self) -> Result<BTreeMap<String, Vec<ImageSize>>> {
        let mut hints: BTreeMap<&str, Hints> = BTreeMap::new();
        let mut scalars_read = 0;
        for variable in self.variables.iter() {
            let Content::Numbers(numbers) = &variable.content else { continue };
            let name = variables::last_component(&variable.name);
            let lower = name.to_ascii_lowercase();
            let home = parent(&variable.name);
            if vector_len(&variable.lengths) == Some(1) && is_size_name(&lower) {
                if scalars_read == MAX_SCALARS {
                    continue;
                }
                scalars_read += 1;
                if let Some(length) = self.length_of(numbers)? {
                    hints.entry(home).or_default().scalars.push((lower, name.to_owned(), length));
                }
            } else if MAPS.contains(&&*lower) && is_layer(variable) {
                let lengths = (variable.lengths[0], variable.lengths[1]);
                hints.entry(home).or_default().maps.push(lengths);
            }
        }
        Ok(hints.into_iter().map(|(home, hints)| (home.to_owned(), hints.sizes())).collect())
    }

    /// The bytes of the `count` values of a small variable.
    fn bytes(&self, numbers: &Numbers, count: usize) -> Result<Vec<u8>> {
        let mut bytes = vec![0; count * numbers.dtype.size()];
        match &numbers.stream {
            Some(stream) => {
                let end = numbers.offset + bytes.len() as u64;
                inflated(self.path, stream.clone(), numbers, end)
                    .read_at(numbers.offset, &mut bytes)?;
            }
            None => FileBytes::open(self.path)?.read_at(numbers.offset, &mut bytes)?,
        }
        Ok(bytes)
    }
}

/// The path of a variable in the tree: the fields of a struct are in a group.
fn path_of(name: &str) -> String {
    format!("/{}", name.replace('.', "/"))
}

fn entry(variable: &Variable) -> ArrayEntry {
    let dtype = match &variable.content {
        Content::Numbers(numbers) => Some(numbers.dtype),
        Content::Text(_) | Content::Other(_) => None,
    };
    ArrayEntry { path: path_of(&variable.name), lengths: variable.lengths.clone(), dtype }
}

impl Container for Workspace<'_> {
    fn arrays_in(&self, group: &str, wanted: &dyn Fn(&str) -> bool) -> Vec<ArrayEntry> {
        let mut found = self.arrays_anywhere(wanted);
        found.retain(|entry| container::parent(&entry.path) == group);
        found
    }

    fn arrays_anywhere(&self, wanted: &dyn Fn(&str) -> bool) -> Vec<ArrayEntry> {
        let of_name = |variable: &&Variable| wanted(variables::last_component(&variable.name));
        self.variables.iter().filter(of_name).map(entry).collect()
    }

    fn attributes(&self, _path: &str) -> Box<dyn Attributes + '_> {
        Box::new(NoAttributes)
    }

    fn axis_names(&self, _path: &str) -> Vec<Option<String>> {
        Vec::new()
    }

    fn values(&self, path: &str) -> Result<Option<Value>> {
        let found = self.variables.iter().find(|variable| path_of(&variable.name) == path);
        let (lengths, numbers) = match found {
            Some(Variable { lengths, content: Content::Numbers(numbers), .. }) => {
                (lengths, numbers)
            }
            Some(Variable { content: Content::Text(text), .. }) => {
                return Ok(Some(Value::Texts(vec![text.clone()])));
            }
            _ => return Ok(None),
        };
        match vector_len(lengths).filter(|length| *length <= LONGEST_LIST) {
            Some(length) => {
                let bytes = self.bytes(numbers, length)?;
                Ok(Some(variables::to_value(&bytes, numbers.dtype, numbers.big_endian)))
            }
            None => Ok(None),
        }
    }
}

fn refuse_header(head: &[u8]) -> Error {
    if is_v4(head) {
        return Error::unsupported("a MATLAB v4 file, which cannot hold 3-D arrays")
            .with_remedy("load it in MATLAB and save it with -v7");
    }
    Error::malformed("not a MATLAB file: it has no v5 header and is not HDF5 (v7.3)")
        .with_remedy("copy the file again, or save it with -v7 or -v7.3")
}

fn is_layer(variable: &Variable) -> bool {
    let Content::Numbers(numbers) = &variable.content else { return false };
    Role::of(&variable.lengths, numbers.dtype) == Role::Layer
}

fn candidate(variable: &Variable, options: &OpenOptions) -> Candidate {
    match &variable.content {
        Content::Numbers(numbers) => {
            let candidate = Candidate::numbers(&variable.name, &variable.lengths, numbers.dtype);
            match column_of_pixels(&variable.lengths, options) {
                Some(_) => candidate.of(Role::Column),
                None => candidate,
            }
        }
        Content::Text(_) => {
            let lengths = crate::axes::lengths::lengths_text(&variable.lengths);
            Candidate::other(&variable.name, format!("{lengths} text"))
        }
        Content::Other(what) => {
            let lengths = crate::axes::lengths::lengths_text(&variable.lengths);
            Candidate::other(&variable.name, format!("{lengths} {what}"))
        }
    }
}

/// The shape and order of a mask that is saved as one column, or row, of all pixels of its image.
/// As in MATLAB's `gt(:)`, the columns of the image follow one another. `None` if it is anything
/// else.
fn column_of_pixels(lengths: &[usize], options: &OpenOptions) -> Option<(CubeShape, AxisOrder)> {
    let [rows, columns] = options.image.filter(|_| options.mask)?;
    let pixels = vector_len(lengths).filter(|length| *length > 1)?;
    let order = if lengths[0] == 1 { AxisOrder::BSQ } else { AxisOrder::BIP };
    (rows.checked_mul(columns) == Some(pixels)).then_some((CubeShape::new(rows, columns, 1), order))
}

/// The index order of (bands × pixels) or (pixels × bands) after the pixels are split into rows and
/// columns: rows first, as in MATLAB's `reshape`, unless the user says otherwise.
fn pixel_order(bands_first: bool, options: &OpenOptions) -> Result<AxisOrder> {
    let usual = if bands_first { AxisOrder::BSQ } else { AxisOrder::BIP };
    let order = options.axes.as_ref().map(Axes::of_three).transpose()?.unwrap_or(usual);
    if order.position(Axis::Band) == usual.position(Axis::Band) {
        return Ok(order);
    }
    let (is, either) = if bands_first {
        ("(bands x pixels)", "byx or bxy")
    } else {
        ("(pixels x bands)", "yxb or xyb")
    };
    Err(Error::conflict(format!("the axes {order} do not fit a matrix of {is}"))
        .with_remedy(remedy!["give ", Opt::Axes, format!(" as {either}, or leave it out")]))
}

fn is_size_name(lower: &str) -> bool {
    IMAGE_SIZES.iter().any(|(rows, columns)| lower == *rows || lower == *columns)
}

/// Shape of an image as one struct, or the file outside of structs, describes it.
#[derive(Default)]
struct Hints {
    /// Scalars: the name in lower case, the name, the value.
    scalars: Vec<(String, String, usize)>,
    /// Rows and columns of maps.
    maps: Vec<(usize, usize)>,
}

impl Hints {
    /// The shapes that pairs of scalars give, or those of maps if there are no such pairs.
    fn sizes(&self) -> Vec<ImageSize> {
        let scalar = |wanted: &str| self.scalars.iter().find(|(lower, ..)| lower == wanted);
        let mut sizes: Vec<ImageSize> = IMAGE_SIZES
            .iter()
            .filter_map(|(rows, columns)| {
                let (rows, columns) = (scalar(rows)?, scalar(columns)?);
                let names = Some((rows.1.clone(), columns.1.clone()));
                Some(ImageSize { rows: rows.2, columns: columns.2, names })
            })
            .collect();
        if sizes.is_empty() {
            let of_map = |(rows, columns): &(usize, usize)| ImageSize {
                rows: *rows,
                columns: *columns,
                names: None,
            };
            sizes = self.maps.iter().map(of_map).collect();
        }
        sizes.sort_by_key(|size| (size.rows, size.columns));
        sizes.dedup_by_key(|size| (size.rows, size.columns));
        sizes
    }
}

/// The shape of an image that a file describes.
struct ImageSize {
    rows: usize,
    columns: usize,
    /// The names of the scalars, if scalars give the shape.
    names: Option<(String, String)>,
}

impl ImageSize {
    fn pixels(&self) -> Option<usize> {
        self.rows.checked_mul(self.columns)
    }

    fn text(&self) -> String {
        let Self { rows, columns, names } = self;
        match names {
            Some((row_name, column_name)) => {
                format!("{row_name} x {column_name} = {rows} x {columns}")
            }
            None => format!("the {rows} x {columns} map"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    /// Returns one byte per read, as if the checksum came after a buffer's end.
    struct Trickle<'a>(&'a [u8]);

    impl Read for Trickle<'_> {
        fn read(&mut self, out: &mut [u8]) -> std::io::Result<usize> {
            let count = out.len().min(1);
            self.0.read(&mut out[..count])
        }
    }

    #[test]
    fn the_checksum_is_compared_even_if_the_values_came_without_it() {
        let mut encoder = flate2::write::ZlibEncoder::new(Vec::new(), Default::default());
        encoder.write_all(&[7; 100]).unwrap();
        let sound = encoder.finish().unwrap();
        let mut damaged = sound.clone();
        *damaged.last_mut().unwrap() ^= 1;
        // The values fill the stream, or padding follows them.
        for remaining in [100, 93] {
            let read = |stream: &[u8]| {
                let inner = ZlibDecoder::new(Trickle(stream));
                ReadToEnd { inner, remaining, trailing: 100 - remaining }
                    .read_exact(&mut vec![0; remaining as usize])
            };
            assert!(read(&sound).is_ok());
            assert!(read(&damaged).is_err());
        }
    }

    #[test]
    fn version_4_headers_are_known_in_both_byte_orders() {
        let words = [0u32, 7, 9, 0, 4];
        let little: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        let big: Vec<u8> =
            [1000, 7, 9, 0, 4].iter().flat_map(|word: &u32| word.to_be_bytes()).collect();
        assert!(is_v4(&little) && is_v4(&big));
        assert!(!is_v4(&[b' '; 20]) && !is_v4(&little[..19]));
    }
}
