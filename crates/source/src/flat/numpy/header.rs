//! The header of a `.npy` array: magic, version, and a Python dictionary that is parsed by hand.

use std::io::Read;

use hsipack_format::{DType, Error, Result};

use crate::AxisOrder;
use crate::flat::{FlatLayout, SampleAxis};
use crate::meaning::Placed;

pub(super) const MAGIC: &[u8] = b"\x93NUMPY";
/// Magic, version and the longer kind of header length.
const PREAMBLE: usize = 12;
/// NumPy itself refuses dictionaries longer than 10,000 characters.
const LONGEST_DICTIONARY: usize = 1 << 16;

const PLAIN_ARRAY: &str = "save the cube as a plain array of numbers, e.g. cube.astype('float32')";

/// Entries of the header of a `.npy` file.
#[doc(hidden)]
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NpyHeader {
    /// Type of the values.
    pub dtype: DType,
    /// Whether values are big-endian.
    pub big_endian: bool,
    /// Whether the first index is the fastest.
    pub fortran_order: bool,
    /// Lengths in index order.
    pub shape: Vec<usize>,
    /// Where the values begin.
    pub data_offset: usize,
}

impl NpyHeader {
    /// How a cube in the array is stored in the `.npy` file.
    pub(super) fn layout(&self, order: AxisOrder) -> FlatLayout {
        FlatLayout {
            offset: self.data_offset as u64,
            order: if self.fortran_order { order.reversed() } else { order },
            big_endian: self.big_endian,
            rows_reversed: false,
        }
    }

    /// Where in the array the cube is, if the array holds several samples.
    pub(super) fn samples(&self, placed: &Placed) -> Option<SampleAxis> {
        let samples = placed.samples()?;
        Some(if self.fortran_order { samples.reversed() } else { samples })
    }

    /// How long the `.npy` file must be.
    ///
    /// # Errors
    /// If no file can be as long.
    pub(super) fn file_len(&self) -> Result<u64> {
        let values = self.shape.iter().try_fold(1usize, |all, length| all.checked_mul(*length));
        let bytes = values.and_then(|values| values.checked_mul(self.dtype.size()));
        let end = bytes.and_then(|bytes| bytes.checked_add(self.data_offset));
        end.map(|end| end as u64).ok_or_else(|| crate::axes::lengths::too_large(&self.shape))
    }

    pub(super) fn text(&self) -> String {
        format!("{} {}", crate::axes::lengths::lengths_text(&self.shape), self.dtype)
    }
}

/// Parses the header at the start of `bytes`, which may continue after it.
///
/// # Errors
/// If it is not the header of an array of real numbers.
#[doc(hidden)]
pub fn parse(bytes: &[u8]) -> Result<NpyHeader> {
    parse_with(bytes, parse_dtype)
}

/// Like [`parse`], for an array of texts: its letters are numbers along one more axis.
fn parse_texts(bytes: &[u8]) -> Result<NpyHeader> {
    let mut letters = 0;
    let header = parse_with(bytes, |descr| {
        let (big_endian, code) = match descr.as_bytes().first() {
            Some(b'>') => (true, &descr[1..]),
            Some(b'<' | b'|' | b'=') => (false, &descr[1..]),
            _ => (false, descr),
        };
        let length = code.get(1..).and_then(|length| length.parse().ok());
        match (code.as_bytes().first(), length) {
            (Some(b'U'), Some(length)) => {
                letters = length;
                Ok((DType::U32, big_endian))
            }
            (Some(b'S'), Some(length)) => {
                letters = length;
                Ok((DType::U8, big_endian))
            }
            _ => Err(bad_header("no type of texts")),
        }
    })?;
    let mut shape = header.shape;
    shape.push(letters);
    Ok(NpyHeader { shape, ..header })
}

fn parse_with(
    bytes: &[u8],
    dtype: impl FnOnce(&str) -> Result<(DType, bool)>,
) -> Result<NpyHeader> {
    let (start, end) = dictionary_range(bytes)?;
    let raw = bytes.get(start..end).ok_or_else(cut_short)?;
    let text = match bytes[6] {
        3 => std::str::from_utf8(raw).map_err(|_| bad_header("text that is not UTF-8"))?.to_owned(),
        _ => raw.iter().map(|byte| char::from(*byte)).collect(),
    };
    let mut header = Dictionary { text: &text }.parse(dtype)?;
    header.data_offset = end;
    Ok(header)
}

/// Reads the header at the start of a stream.
pub(super) fn read_header(stream: &mut dyn Read) -> Result<NpyHeader> {
    parse(&read_bytes(stream)?)
}

/// Reads the header at the start of a stream, if it is that of an array of texts.
pub(super) fn read_text_header(stream: &mut dyn Read) -> Option<NpyHeader> {
    parse_texts(&read_bytes(stream).ok()?).ok()
}

fn read_bytes(stream: &mut dyn Read) -> Result<Vec<u8>> {
    let fail = |error: std::io::Error| match error.kind() {
        std::io::ErrorKind::UnexpectedEof => cut_short(),
        _ => Error::malformed(format!("cannot read the .npy header: {error}"))
            .with_remedy("copy the file again; it is damaged"),
    };
    let mut bytes = vec![0; PREAMBLE];
    stream.read_exact(&mut bytes).map_err(fail)?;
    let (_, end) = dictionary_range(&bytes)?;
    bytes.resize(end.max(PREAMBLE), 0);
    stream.read_exact(&mut bytes[PREAMBLE..]).map_err(fail)?;
    Ok(bytes)
}

fn cut_short() -> Error {
    Error::malformed("the file ends inside its .npy header")
        .with_remedy("copy the file again; it is cut short")
}

/// Where in a file that starts with `bytes` the dictionary begins and ends.
fn dictionary_range(bytes: &[u8]) -> Result<(usize, usize)> {
    if !bytes.starts_with(MAGIC) {
        return Err(Error::malformed("not a .npy array: the magic is missing")
            .with_remedy("save the array with numpy.save"));
    }
    let Some(preamble) = bytes.first_chunk::<PREAMBLE>() else { return Err(cut_short()) };
    let (start, length) = match (preamble[6], preamble[7]) {
        (1, 0) => (10, usize::from(u16::from_le_bytes([preamble[8], preamble[9]]))),
        (2 | 3, 0) => {
            let length = u32::from_le_bytes([preamble[8], preamble[9], preamble[10], preamble[11]]);
            (12, usize::try_from(length).unwrap_or(usize::MAX))
        }
        (major, minor) => {
            return Err(Error::unsupported(format!(".npy version {major}.{minor} is not known"))
                .with_remedy("save the array with numpy.save"));
        }
    };
    if length > LONGEST_DICTIONARY {
        return Err(Error::unsupported(format!(
            "the .npy header has {length} bytes, too many for a plain array"
        ))
        .with_remedy(PLAIN_ARRAY));
    }
    Ok((start, start + length))
}

/// A parser of the header's Python dictionary; `text` is the rest of it.
struct Dictionary<'a> {
    text: &'a str,
}

impl<'a> Dictionary<'a> {
    fn parse(mut self, dtype: impl FnOnce(&str) -> Result<(DType, bool)>) -> Result<NpyHeader> {
        let (mut descr, mut fortran_order, mut shape) = (None, None, None);
        self.expect('{')?;
        while !self.accept('}') {
            let key = self.string()?;
            self.expect(':')?;
            let first = match key {
                "descr" => descr.replace(self.descr()?).is_none(),
                "fortran_order" => fortran_order.replace(self.boolean()?).is_none(),
                "shape" => shape.replace(self.shape()?).is_none(),
                _ => {
                    return Err(bad_header(&format!(
                        "the key '{}'",
                        key.chars().take(40).collect::<String>().escape_debug()
                    )));
                }
            };
            if !first {
                return Err(bad_header(&format!("the key '{key}' twice")));
            }
            if !self.accept(',') {
                self.expect('}')?;
                break;
            }
        }
        if !self.text.trim_matches([' ', '\n', '\t', '\r']).is_empty() {
            return Err(bad_header("text after the dictionary"));
        }
        match (descr, fortran_order, shape) {
            (Some(descr), Some(fortran_order), Some(shape)) => {
                let (dtype, big_endian) = dtype(descr)?;
                Ok(NpyHeader { dtype, big_endian, fortran_order, shape, data_offset: 0 })
            }
            _ => Err(bad_header("not all of 'descr', 'fortran_order' and 'shape'")),
        }
    }

    fn accept(&mut self, wanted: char) -> bool {
        self.text = self.text.trim_start_matches([' ', '\n', '\t', '\r']);
        match self.text.strip_prefix(wanted) {
            Some(tail) => {
                self.text = tail;
                true
            }
            None => false,
        }
    }

    fn expect(&mut self, wanted: char) -> Result<()> {
        if self.accept(wanted) {
            return Ok(());
        }
        let found = self.text.chars().next().map_or("its end".to_owned(), |c| format!("{c:?}"));
        Err(bad_header(&format!("{found} where {wanted:?} should be")))
    }

    fn string(&mut self) -> Result<&'a str> {
        let quote = if self.accept('"') {
            '"'
        } else {
            self.expect('\'')?;
            '\''
        };
        match self.text.split_once(quote) {
            Some((string, tail)) if !string.contains('\\') => {
                self.text = tail;
                Ok(string)
            }
            _ => Err(bad_header("a string that cannot be read")),
        }
    }

    fn descr(&mut self) -> Result<&'a str> {
        if self.accept('[') || self.accept('(') {
            return Err(Error::unsupported("a structured array (a table of named fields)")
                .with_remedy(PLAIN_ARRAY));
        }
        self.string()
    }

    fn boolean(&mut self) -> Result<bool> {
        self.accept(' ');
        for (word, value) in [("True", true), ("False", false)] {
            if let Some(tail) = self.text.strip_prefix(word) {
                self.text = tail;
                return Ok(value);
            }
        }
        Err(bad_header("neither True nor False for 'fortran_order'"))
    }

    fn shape(&mut self) -> Result<Vec<usize>> {
        const MAX_AXES: usize = 64;
        self.expect('(')?;
        let mut shape = Vec::new();
        while !self.accept(')') {
            shape.push(self.length()?);
            if shape.len() > MAX_AXES {
                return Err(bad_header("more axes than NumPy has"));
            }
            if !self.accept(',') {
                self.expect(')')?;
                // `(5)` is a number in Python, not a tuple.
                return if shape.len() > 1 { Ok(shape) } else { Err(bad_header("a bare shape")) };
            }
        }
        Ok(shape)
    }

    fn length(&mut self) -> Result<usize> {
        self.accept(' ');
        let digits =
            self.text.len() - self.text.trim_start_matches(|c: char| c.is_ascii_digit()).len();
        let (number, tail) = self.text.split_at(digits);
        let length = number.parse().map_err(|_| bad_header("a length that is not a number"))?;
        // Python 2 wrote long integers as `480L`.
        self.text = tail.strip_prefix('L').unwrap_or(tail);
        Ok(length)
    }
}

fn bad_header(found: &str) -> Error {
    Error::malformed(format!("the .npy header has {found}"))
        .with_remedy("save the array again with numpy.save")
}

/// Reads a NumPy type string such as `<f4` or `|u1`: the type, and whether it is big-endian.
///
/// # Errors
/// If it is not a type of real numbers or booleans that hsipack supports.
pub(crate) fn parse_dtype(text: &str) -> Result<(DType, bool)> {
    let (big_endian, code) = match text.as_bytes().first() {
        Some(b'>') => (true, &text[1..]),
        Some(b'<') => (false, &text[1..]),
        Some(b'=' | b'|') => (cfg!(target_endian = "big"), &text[1..]),
        _ => (cfg!(target_endian = "big"), text),
    };
    match dtype_of_code(code).or((code == "?").then_some(DType::Bool)) {
        Some(dtype) => Ok((dtype, big_endian)),
        None => Err(refuse_dtype(text, code)),
    }
}

/// The type in a NumPy type string after the byte order, if hsipack supports it.
pub(crate) fn dtype_of_code(code: &str) -> Option<DType> {
    Some(match code {
        "b1" => DType::Bool,
        "u1" => DType::U8,
        "i1" => DType::I8,
        "u2" => DType::U16,
        "i2" => DType::I16,
        "u4" => DType::U32,
        "i4" => DType::I32,
        "u8" => DType::U64,
        "i8" => DType::I64,
        "f2" => DType::F16,
        "f4" => DType::F32,
        "f8" => DType::F64,
        _ => return None,
    })
}

fn refuse_dtype(text: &str, code: &str) -> Error {
    let short: String = text.chars().take(40).collect();
    let short = short.escape_debug();
    let what = match code.as_bytes().first() {
        Some(b'c') => "complex numbers",
        Some(b'O') => "Python objects",
        Some(b'S' | b'a' | b'U') => "strings",
        Some(b'V') => "raw or structured records",
        Some(b'm' | b'M') => "dates or time spans",
        Some(b'f') => "floats of a length that only some machines have",
        _ => {
            return Error::malformed(format!("unknown element type '{short}'"))
                .with_remedy("copy the file again; it may be damaged");
        }
    };
    Error::unsupported(format!("the array holds {what} ({short})")).with_remedy(PLAIN_ARRAY)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::AxisOrder;
    use crate::OpenOptions;
    use crate::meaning::place_alone;
    use hsipack_format::ErrorKind;
    use proptest::prelude::*;

    fn npy(version: u8, dictionary: &str) -> Vec<u8> {
        let mut bytes = MAGIC.to_vec();
        bytes.extend([version, 0]);
        match version {
            1 => bytes.extend((dictionary.len() as u16).to_le_bytes()),
            _ => bytes.extend((dictionary.len() as u32).to_le_bytes()),
        }
        bytes.extend(dictionary.as_bytes());
        bytes.extend([0; 4]);
        bytes
    }

    #[test]
    fn the_dictionary_may_be_in_any_order_and_spacing() {
        for (version, dictionary) in [
            (1, "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3, 4), }     \n"),
            (2, "{'shape':(2,3,4),'descr':'<f4','fortran_order':False}\n"),
            (3, "{\"fortran_order\" : False , \"shape\" : ( 2L, 3L, 4L, ) , \"descr\" : \"<f4\"}"),
        ] {
            let header = parse(&npy(version, dictionary)).unwrap();
            assert_eq!(header.dtype, DType::F32, "{dictionary}");
            assert_eq!(header.shape, [2, 3, 4]);
            assert!(!header.big_endian && !header.fortran_order);
            assert_eq!(header.data_offset, npy(version, dictionary).len() - 4);
        }
    }

    #[test]
    fn every_real_type_is_known_and_no_other() {
        for (text, dtype) in [
            ("|b1", DType::Bool),
            ("|u1", DType::U8),
            ("|i1", DType::I8),
            (">u2", DType::U16),
            ("<i2", DType::I16),
            ("=u4", DType::U32),
            ("i4", DType::I32),
            ("<u8", DType::U64),
            (">i8", DType::I64),
            ("<f2", DType::F16),
            (">f4", DType::F32),
            ("<f8", DType::F64),
        ] {
            assert_eq!(parse_dtype(text).unwrap(), (dtype, text.starts_with('>')), "{text}");
        }
        for text in ["<c8", "|O", "<U4", "|S3", "|V8", "<M8[ns]", "<f16"] {
            assert_eq!(parse_dtype(text).unwrap_err().kind(), ErrorKind::Unsupported, "{text}");
        }
        for long in ["c", "O", "x"] {
            let error = parse_dtype(&format!("<{}", long.repeat(100_000))).unwrap_err();
            assert!(error.what().len() < 200, "{}", error.what().len());
        }
        for text in ["", "<", "é", "<é4", "f3x", "x1"] {
            assert!(parse_dtype(text).is_err(), "{text}");
        }
    }

    #[test]
    fn malformed_headers_are_refused() {
        for dictionary in [
            "",
            "{}",
            "{'descr': '<f4', 'fortran_order': False}",
            "{'descr': '<f4', 'fortran_order': 0, 'shape': (2,)}",
            "{'descr': '<f4', 'fortran_order': False, 'shape': (-2, 3, 4)}",
            "{'descr': '<f4', 'fortran_order': False, 'shape': (99999999999999999999999, 3, 4)}",
            "{'descr': '<f4', 'fortran_order': False, 'shape': (5)}",
            "{'descr': '<f4', 'fortran_order': False, 'shape': [5, 5, 5]}",
            "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3, 4), 'x': 1}",
            "{'descr': '<f4', 'descr': '<f8', 'fortran_order': False, 'shape': (2, 3, 4)}",
            "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3, 4)} import os",
            "{'descr': '<f4' 'fortran_order': False, 'shape': (2, 3, 4)}",
            "{'descr': '\\x3cf4', 'fortran_order': False, 'shape': (2, 3, 4)}",
        ] {
            let error = parse(&npy(1, dictionary)).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Malformed, "{dictionary}: {error}");
        }
        let structured = "{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (2,)}";
        assert_eq!(parse(&npy(3, structured)).unwrap_err().kind(), ErrorKind::Unsupported);
        assert_eq!(parse(&npy(4, "{}")).unwrap_err().kind(), ErrorKind::Unsupported);
    }

    #[test]
    fn a_huge_header_is_refused_before_it_is_read() {
        let mut bytes = npy(2, "{}");
        bytes[8..12].copy_from_slice(&u32::MAX.to_le_bytes());
        assert_eq!(parse(&bytes).unwrap_err().kind(), ErrorKind::Unsupported);
        assert!(read_header(&mut &bytes[..]).is_err());
    }

    const SOUND: &str = "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3, 4), }     \n";

    proptest! {
        #[test]
        fn parsing_arbitrary_bytes_never_panics(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = parse(&bytes);
            let mut with_magic = MAGIC.to_vec();
            with_magic.extend(&bytes);
            let _ = parse(&with_magic);
        }

        #[test]
        fn parsing_mutated_headers_never_panics(
            version in 1u8..4,
            changes in prop::collection::vec((0usize..90, any::<u8>()), 1..6),
            cut in 0usize..100,
        ) {
            let mut bytes = npy(version, SOUND);
            for (at, value) in changes {
                if let Some(byte) = bytes.get_mut(at) {
                    *byte = value;
                }
            }
            bytes.truncate(cut);
            if let Ok(header) = parse(&bytes) {
                let _ = place_alone(&header.shape, &OpenOptions::default(), &mut Vec::new());
                let _ = header.file_len();
            }
        }

        #[test]
        fn dictionaries_of_any_text_never_panic(text in "\\PC*") {
            let _ = parse(&npy(3, &text));
        }
    }

    #[test]
    fn fortran_order_is_the_reversed_axis_order() {
        let mut header = parse(&npy(1, SOUND)).unwrap();
        header.fortran_order = true;
        let (layout, len) = (header.layout(AxisOrder::BIP), header.file_len().unwrap());
        assert_eq!(layout.order, AxisOrder::BIP.reversed());
        assert_eq!(len, header.data_offset as u64 + 96);
    }
}
