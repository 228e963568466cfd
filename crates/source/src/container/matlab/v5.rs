//! The elements of MATLAB v5 files: what variables there are, and where their numbers lie.
//!
//! ```text
//! 128-byte header       116 bytes of text, 8 of subsystem offset, u16 version 0x0100, "MI"
//! elements              u32 type, u32 size, data, padding to 8 bytes
//!                       or, up to 4 bytes of data: u16 size, u16 type in one word, data
//! type 15, compressed   a zlib stream that holds one matrix element; not padded
//! type 14, matrix       elements: flags and class, dimensions, name, then the content by class
//! ```
//!
//! The "MI" is written as a 16-bit number, so it shows the byte order. Only headers are read here;
//! numbers are skipped. A compressed matrix is inflated only up to the end of its headers, unless
//! it is a struct. Every size is checked against the rest of the element around it, and the
//! outermost against the file.

use std::io::{Read, Seek, SeekFrom};
use std::ops::Range;

use flate2::read::ZlibDecoder;
use hsipack_format::{DType, Error, Result};

/// Bytes of the file header.
pub const HEADER: usize = 128;

/// A variable or a field of a struct.
#[derive(Clone, Debug, PartialEq)]
pub struct Variable {
    /// Its path: `cube`, `scene.data`.
    pub name: String,
    /// Lengths in MATLAB's index order; at least two.
    pub lengths: Vec<usize>,
    /// Its contents.
    pub content: Content,
}

/// Contents of a variable.
#[derive(Clone, Debug, PartialEq)]
pub enum Content {
    /// Real numbers.
    Numbers(Numbers),
    /// One line of text.
    Text(String),
    /// Something that is not a cube, described in words.
    Other(&'static str),
}

/// Real numbers, in column-major order.
#[derive(Clone, Debug, PartialEq)]
pub struct Numbers {
    /// The type they are stored in, which may be narrower than the variable's class.
    pub dtype: DType,
    /// Whether they are big-endian.
    pub big_endian: bool,
    /// The zlib stream they are in, as a range of the file, if they are compressed.
    pub stream: Option<Range<u64>>,
    /// The inflated length that the stream states; 0 if the numbers are not compressed.
    pub stream_len: u64,
    /// Where they begin: in the inflated stream, or in the file.
    pub offset: u64,
}

const MI_INT8: u32 = 1;
const MI_INT32: u32 = 5;
const MI_UINT32: u32 = 6;
const MI_MATRIX: u32 = 14;
const MI_COMPRESSED: u32 = 15;
const MI_UTF8: u32 = 16;

/// Structs nested deeper than this are skipped.
const DEEPEST: usize = 8;
/// Files with more variables and fields than this are refused.
const MAX_VARIABLES: usize = 20_000;
const MAX_AXES: usize = 32;
/// MATLAB's names have up to 63 characters. A field's path is kept for every variable in it, so a
/// long name would be kept many times.
const LONGEST_NAME: usize = 256;
/// Longer texts are not read.
const LONGEST_TEXT: usize = 1 << 12;
const LONGEST_FIELD_NAMES: usize = 1 << 20;
/// Deflate cannot shrink data by more than this.
const BEST_RATIO: u64 = 1032;

fn damaged(what: &str) -> Error {
    Error::malformed(what).with_remedy("copy the file again; it is cut short or damaged")
}

/// Whether the v5 file that starts with `head` is big-endian; `None` if it is not a v5 file.
pub fn byte_order(head: &[u8]) -> Option<bool> {
    match head.get(124..HEADER)? {
        [0x00, 0x01, b'I', b'M'] => Some(false),
        [0x01, 0x00, b'M', b'I'] => Some(true),
        _ => None,
    }
}

/// The variables of a file that is in memory.
///
/// # Errors
/// If it is not a valid v5 file.
pub fn parse(bytes: &[u8]) -> Result<Vec<Variable>> {
    scan(&mut std::io::Cursor::new(bytes), bytes.len() as u64)
}

/// The variables of a file of `len` bytes.
///
/// # Errors
/// If it is not a valid v5 file, or cannot be read.
pub fn scan<F: Read + Seek>(file: &mut F, len: u64) -> Result<Vec<Variable>> {
    let mut header = [0; HEADER];
    file.read_exact(&mut header).map_err(|_| damaged("the file ends inside its MATLAB header"))?;
    let big_endian = byte_order(&header)
        .ok_or_else(|| damaged("not a MATLAB v5 file: its header has no byte order"))?;
    let mut found = Vec::new();
    let mut position = HEADER as u64;
    while position < len {
        position = scan_element(file, position, len, big_endian, &mut found)?;
    }
    Ok(found)
}

/// Reads the headers of the element at `position`. Returns the position of the next one.
fn scan_element<F: Read + Seek>(
    file: &mut F,
    position: u64,
    len: u64,
    big_endian: bool,
    found: &mut Vec<Variable>,
) -> Result<u64> {
    file.seek(SeekFrom::Start(position)).map_err(unreadable)?;
    let mut walker = Walker {
        input: InPlace(&mut *file),
        position,
        big_endian,
        stream: None,
        stream_len: 0,
        found,
    };
    let tag = walker.tag(len)?;
    let (start, end) = (walker.position, walker.position + tag.size);
    match tag.kind {
        MI_MATRIX => walker.matrix(Parent::File, end, 0)?,
        MI_COMPRESSED => {
            let input = ZlibDecoder::new(file.take(tag.size));
            let stream = Some(start..end);
            let stream_len = 0;
            Walker { input, position: 0, big_endian, stream, stream_len, found }
                .compressed(tag.size)?;
        }
        _ => {} // Only matrices are documented to occur here; other elements are not variables.
    }
    // Compressed elements are not padded; matrices are made of padded elements.
    Ok(end)
}

fn unreadable(error: std::io::Error) -> Error {
    damaged(&format!("cannot read the variables: {error}"))
}

/// A stream that can skip bytes.
trait Input: Read {
    fn skip(&mut self, count: u64) -> std::io::Result<()>;
}

struct InPlace<'a, F>(&'a mut F);

impl<F: Read> Read for InPlace<'_, F> {
    fn read(&mut self, out: &mut [u8]) -> std::io::Result<usize> {
        self.0.read(out)
    }
}

impl<F: Read + Seek> Input for InPlace<'_, F> {
    fn skip(&mut self, count: u64) -> std::io::Result<()> {
        let count = i64::try_from(count).map_err(|_| std::io::ErrorKind::UnexpectedEof)?;
        self.0.seek_relative(count)
    }
}

impl<R: Read> Input for ZlibDecoder<R> {
    fn skip(&mut self, count: u64) -> std::io::Result<()> {
        match std::io::copy(&mut self.take(count), &mut std::io::sink())? {
            skipped if skipped == count => Ok(()),
            _ => Err(std::io::ErrorKind::UnexpectedEof.into()),
        }
    }
}

struct Tag {
    kind: u32,
    size: u64,
    /// Whether the data are inside the tag's own 8 bytes.
    small: bool,
}

/// Flags and class, dimensions and name of a matrix.
struct MatrixHeader {
    class: u32,
    complex: bool,
    logical: bool,
    lengths: Vec<usize>,
    name: String,
}

/// Parent of a matrix, which decides its path.
#[derive(Clone, Copy)]
enum Parent<'a> {
    File,
    Field(&'a str),
}

/// Walks over the elements of a file, or of one compressed element.
struct Walker<'a, I> {
    input: I,
    position: u64,
    big_endian: bool,
    stream: Option<Range<u64>>,
    /// The inflated length that the stream states.
    stream_len: u64,
    found: &'a mut Vec<Variable>,
}

impl<I: Input> Walker<'_, I> {
    /// The matrix in a zlib stream of `size` bytes.
    fn compressed(&mut self, size: u64) -> Result<()> {
        let tag = self.tag(u64::MAX)?;
        if tag.kind != MI_MATRIX {
            return Ok(());
        }
        if tag.size / BEST_RATIO > size {
            return Err(damaged("a compressed variable states a size that its bytes cannot hold"));
        }
        self.stream_len = self.position + tag.size;
        self.matrix(Parent::File, self.stream_len, 0)
    }

    fn read(&mut self, out: &mut [u8]) -> Result<()> {
        self.input.read_exact(out).map_err(unreadable)?;
        self.position += out.len() as u64;
        Ok(())
    }

    fn skip_to(&mut self, end: u64) -> Result<()> {
        let count = end
            .checked_sub(self.position)
            .ok_or_else(|| damaged("a variable is longer than it states"))?;
        self.input.skip(count).map_err(unreadable)?;
        self.position = end;
        Ok(())
    }

    fn word(&mut self) -> Result<u32> {
        let mut raw = [0; 4];
        self.read(&mut raw)?;
        Ok(self.number(raw))
    }

    fn number(&self, raw: [u8; 4]) -> u32 {
        if self.big_endian { u32::from_be_bytes(raw) } else { u32::from_le_bytes(raw) }
    }

    /// The tag of an element whose data must end by `end`.
    fn tag(&mut self, end: u64) -> Result<Tag> {
        let word = self.word()?;
        let tag = if word >> 16 == 0 {
            Tag { kind: word, size: u64::from(self.word()?), small: false }
        } else {
            Tag { kind: word & 0xFFFF, size: u64::from(word >> 16), small: true }
        };
        let room = end.checked_sub(self.position);
        if room.is_none_or(|room| tag.size > room) || (tag.small && tag.size > 4) {
            return Err(damaged("a variable is longer than the element that contains it"));
        }
        Ok(tag)
    }

    /// The data of an element of one of the types `kinds` and at most `most` bytes. Skips the
    /// padding after it.
    fn element(&mut self, kinds: &[u32], most: usize, end: u64) -> Result<Vec<u8>> {
        let tag = self.tag(end)?;
        if !kinds.contains(&tag.kind) || tag.size > most as u64 {
            return Err(damaged("the header of a variable cannot be read"));
        }
        let mut data = vec![0; tag.size as usize];
        self.read(&mut data)?;
        let padding =
            if tag.small { 4 - tag.size } else { tag.size.next_multiple_of(8) - tag.size };
        self.skip_to((self.position + padding).min(end))?;
        Ok(data)
    }

    fn matrix(&mut self, parent: Parent<'_>, end: u64, depth: usize) -> Result<()> {
        if self.position == end {
            return Ok(()); // An empty matrix may have no headers at all.
        }
        let Some(header) = self.matrix_header(end)? else { return Ok(()) };
        let path = match parent {
            // The variable without a name holds MATLAB's own bookkeeping.
            Parent::File if header.name.is_empty() => return Ok(()),
            Parent::File => header.name.clone(),
            Parent::Field(path) => path.to_owned(),
        };
        let content = match header.class {
            1 => Content::Other("cell array"),
            2 if header.lengths.iter().any(|length| *length != 1) => Content::Other("struct array"),
            2 if depth == DEEPEST => Content::Other("deeply nested struct"),
            2 => return self.fields(&path, end, depth),
            3 => Content::Other("object"),
            4 => self.text(&header, end)?.map_or(Content::Other("text"), Content::Text),
            5 => Content::Other("sparse matrix"),
            6..=15 if header.complex => Content::Other("complex numbers"),
            6..=15 => Content::Numbers(self.numbers(&path, &header, end)?),
            _ => Content::Other("function or object"),
        };
        self.add(Variable { name: path, lengths: header.lengths, content })
    }

    fn add(&mut self, variable: Variable) -> Result<()> {
        if self.found.len() == MAX_VARIABLES {
            return Err(Error::unsupported(format!("more than {MAX_VARIABLES} variables"))
                .with_remedy("save the cube in a separate file"));
        }
        self.found.push(variable);
        Ok(())
    }

    /// `None` for classes that have no such header.
    fn matrix_header(&mut self, end: u64) -> Result<Option<MatrixHeader>> {
        const OPAQUE: u32 = 17;
        let flags = self.element(&[MI_UINT32], 8, end)?;
        let Some(flags) = flags.first_chunk::<4>().map(|raw| self.number(*raw)) else {
            return Err(damaged("a variable has no class"));
        };
        let class = flags & 0xFF;
        if class == OPAQUE {
            return Ok(None);
        }
        let raw = self.element(&[MI_INT32], 4 * MAX_AXES, end)?;
        let lengths = self.lengths(&raw)?;
        let name = self.element(&[MI_INT8, MI_UTF8], LONGEST_NAME, end)?;
        let name = String::from_utf8_lossy(&name).into_owned();
        let (complex, logical) = (flags & 0x800 != 0, flags & 0x200 != 0);
        Ok(Some(MatrixHeader { class, complex, logical, lengths, name }))
    }

    fn lengths(&self, raw: &[u8]) -> Result<Vec<usize>> {
        let (words, tail) = raw.as_chunks::<4>();
        let lengths: Option<Vec<usize>> =
            words.iter().map(|raw| usize::try_from(self.number(*raw) as i32).ok()).collect();
        match lengths {
            Some(lengths) if lengths.len() >= 2 && tail.is_empty() => Ok(lengths),
            _ => Err(damaged("a variable has impossible dimensions")),
        }
    }

    /// The text in a short line of characters.
    fn text(&mut self, header: &MatrixHeader, end: u64) -> Result<Option<String>> {
        let &[1, letters] = &header.lengths[..] else { return Ok(None) };
        if letters == 0 || letters > LONGEST_TEXT {
            return Ok(None);
        }
        let tag = self.tag(end)?;
        if tag.size > 4 * LONGEST_TEXT as u64 {
            return Ok(None);
        }
        let mut raw = vec![0; tag.size as usize];
        self.read(&mut raw)?;
        let wide = |raw: &[u8; 2]| match self.big_endian {
            true => u16::from_be_bytes(*raw),
            false => u16::from_le_bytes(*raw),
        };
        Ok(match tag.kind {
            // 4 is an array of 16-bit numbers, 17 UTF-16.
            4 | 17 => {
                let units: Vec<u16> = raw.as_chunks::<2>().0.iter().map(wide).collect();
                Some(String::from_utf16_lossy(&units))
            }
            MI_INT8 | 2 | MI_UTF8 => Some(String::from_utf8_lossy(&raw).into_owned()),
            _ => None,
        })
    }

    /// Where a matrix's numbers lie. Their size must fit its dimensions.
    fn numbers(&mut self, path: &str, header: &MatrixHeader, end: u64) -> Result<Numbers> {
        let tag = self.tag(end)?;
        let stored = match tag.kind {
            1 => DType::I8,
            2 => DType::U8,
            3 => DType::I16,
            4 => DType::U16,
            5 => DType::I32,
            6 => DType::U32,
            7 => DType::F32,
            9 => DType::F64,
            12 => DType::I64,
            13 => DType::U64,
            _ => return Err(damaged(&format!("'{path}' is not stored in a numeric type"))),
        };
        let values = header.lengths.iter().try_fold(1usize, |all, length| all.checked_mul(*length));
        let size = values.and_then(|values| values.checked_mul(stored.size()));
        if size.is_none_or(|size| size as u64 != tag.size) {
            let lengths = crate::axes::lengths::lengths_text(&header.lengths);
            return Err(damaged(&format!(
                "'{path}' of {lengths} cannot be {} bytes of {stored}",
                tag.size
            )));
        }
        let dtype = if header.logical && stored == DType::U8 { DType::Bool } else { stored };
        Ok(Numbers {
            dtype,
            big_endian: self.big_endian,
            stream: self.stream.clone(),
            stream_len: self.stream_len,
            offset: self.position,
        })
    }

    /// Reads the fields of a struct with one element.
    fn fields(&mut self, path: &str, end: u64, depth: usize) -> Result<()> {
        let length = self.element(&[MI_INT32], 4, end)?;
        let length = length.first_chunk::<4>().map_or(0, |raw| self.number(*raw) as usize);
        let names = self.element(&[MI_INT8], LONGEST_FIELD_NAMES, end)?;
        if length == 0 || !names.len().is_multiple_of(length) {
            return if names.is_empty() {
                Ok(())
            } else {
                Err(damaged(&format!("the fields of '{path}' have no names")))
            };
        }
        if length > LONGEST_NAME {
            return Err(damaged(&format!("the fields of '{path}' have overlong names")));
        }
        for raw in names.chunks_exact(length) {
            let name = raw.split(|byte| *byte == 0).next().unwrap_or_default();
            let field = format!("{path}.{}", String::from_utf8_lossy(name));
            let tag = self.tag(end)?;
            if tag.kind != MI_MATRIX {
                return Err(damaged(&format!("'{field}' is not a variable")));
            }
            let field_end = self.position + tag.size;
            self.matrix(Parent::Field(&field), field_end, depth + 1)?;
            self.skip_to(field_end)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use hsipack_format::ErrorKind;
    use proptest::prelude::*;
    use std::io::Write;

    fn element(kind: u32, data: &[u8]) -> Vec<u8> {
        let mut bytes = kind.to_le_bytes().to_vec();
        bytes.extend((data.len() as u32).to_le_bytes());
        bytes.extend(data);
        bytes.resize(bytes.len().next_multiple_of(8), 0);
        bytes
    }

    fn matrix(class: u32, lengths: &[i32], name: &str, content: &[u8]) -> Vec<u8> {
        let mut flags = class.to_le_bytes().to_vec();
        flags.extend([0; 4]);
        let lengths: Vec<u8> = lengths.iter().flat_map(|length| length.to_le_bytes()).collect();
        let mut data = element(MI_UINT32, &flags);
        data.extend(element(MI_INT32, &lengths));
        data.extend(element(MI_INT8, name.as_bytes()));
        data.extend(content);
        element(MI_MATRIX, &data)
    }

    fn compressed(matrix: &[u8]) -> Vec<u8> {
        let mut encoder =
            flate2::write::ZlibEncoder::new(Vec::new(), flate2::Compression::default());
        encoder.write_all(matrix).unwrap();
        let data = encoder.finish().unwrap();
        let mut bytes = MI_COMPRESSED.to_le_bytes().to_vec();
        bytes.extend((data.len() as u32).to_le_bytes());
        bytes.extend(data);
        bytes
    }

    fn file(elements: &[Vec<u8>]) -> Vec<u8> {
        let mut bytes = vec![b' '; 124];
        bytes.extend([0x00, 0x01, b'I', b'M']);
        bytes.extend(elements.concat());
        bytes
    }

    fn cube() -> Vec<u8> {
        matrix(6, &[2, 3, 4], "cube", &element(4, &[7; 48]))
    }

    fn nested() -> Vec<u8> {
        let mut content = vec![5, 0, 4, 0, 8, 0, 0, 0]; // the small form: 4 bytes of type 5
        content.extend(element(MI_INT8, b"data\0\0\0\0empty\0\0\0inner\0\0\0"));
        content.extend(matrix(9, &[2, 2, 2], "", &element(2, &[1; 8])));
        content.extend(element(MI_MATRIX, &[]));
        let mut inner = vec![5, 0, 4, 0, 2, 0, 0, 0];
        inner.extend(element(MI_INT8, b"w\0"));
        inner.extend(matrix(6, &[1, 2], "", &[2, 0, 2, 0, 8, 9, 0, 0]));
        content.extend(matrix(2, &[1, 1], "", &inner));
        matrix(2, &[1, 1], "scene", &content)
    }

    fn names(bytes: &[u8]) -> Vec<String> {
        parse(bytes).unwrap().into_iter().map(|variable| variable.name).collect()
    }

    #[test]
    fn numbers_are_found_in_the_type_they_are_stored_in() {
        let bytes = file(&[cube()]);
        let variables = parse(&bytes).unwrap();
        assert_eq!(variables[0].lengths, [2, 3, 4]);
        let Content::Numbers(numbers) = &variables[0].content else { panic!() };
        assert_eq!((numbers.dtype, &numbers.stream), (DType::U16, &None));
        assert_eq!(bytes[numbers.offset as usize..], [7; 48]);
    }

    #[test]
    fn compressed_and_plain_elements_may_follow_each_other() {
        let bytes = file(&[compressed(&cube()), nested(), compressed(&nested()), cube()]);
        let scene = ["scene.data", "scene.inner.w"];
        assert_eq!(names(&bytes), [&["cube"], &scene[..], &scene[..], &["cube"]].concat());
        let variables = parse(&bytes).unwrap();
        let Content::Numbers(plain) = &variables[2].content else { panic!() };
        assert_eq!(bytes[plain.offset as usize..][..2], [8, 9], "numbers inside the tag");
        let Content::Numbers(inflated) = &variables[4].content else { panic!() };
        let stream = inflated.stream.clone().unwrap();
        let mut all = Vec::new();
        ZlibDecoder::new(&bytes[stream.start as usize..stream.end as usize])
            .read_to_end(&mut all)
            .unwrap();
        assert_eq!(all[inflated.offset as usize..][..2], [8, 9]);
    }

    #[test]
    fn long_names_are_refused_before_every_field_repeats_them() {
        let of_field = |length: usize| {
            let mut content = vec![5, 0, 4, 0];
            content.extend((length as u32).to_le_bytes());
            content.extend(element(MI_INT8, &vec![b'a'; length]));
            content.extend(matrix(9, &[2, 2, 2], "", &element(2, &[1; 8])));
            parse(&file(&[compressed(&matrix(2, &[1, 1], "s", &content))]))
        };
        assert_eq!(of_field(63).unwrap().len(), 1);
        assert!(of_field(LONGEST_NAME + 1).unwrap_err().what().contains("overlong"));
        let long = matrix(9, &[1, 8], &"a".repeat(LONGEST_NAME + 1), &element(2, &[0; 8]));
        assert!(parse(&file(&[long])).is_err());
    }

    #[test]
    fn other_elements_are_skipped_by_their_size() {
        let bytes = file(&[
            matrix(1, &[1, 1], "cell", &cube()),
            matrix(4, &[1, 4], "text", &element(16, b"text")),
            matrix(6 | 0x800, &[1, 1], "complex", &element(9, &[0; 8])),
            matrix(2, &[1, 2], "structs", &[0; 64]),
            matrix(17, &[1, 1], "opaque", &[0; 8]),
            matrix(9, &[1, 8], "", &element(2, &[0; 8])),
            matrix(9 | 0x200, &[2, 2], "logical", &element(2, &[1; 4])),
        ]);
        let variables = parse(&bytes).unwrap();
        let kinds: Vec<(&str, bool)> = variables
            .iter()
            .map(|variable| (&*variable.name, matches!(variable.content, Content::Numbers(_))))
            .collect();
        assert_eq!(
            kinds,
            [
                ("cell", false),
                ("text", false),
                ("complex", false),
                ("structs", false),
                ("logical", true)
            ]
        );
        let Content::Numbers(numbers) = &variables[4].content else { panic!() };
        assert_eq!(numbers.dtype, DType::Bool);
    }

    #[test]
    fn sizes_that_contradict_each_other_are_refused() {
        let mut bytes = file(&[cube()]);
        bytes[128 + 4] = 0xFF; // the matrix is larger than the file
        assert_eq!(parse(&bytes).unwrap_err().kind(), ErrorKind::Malformed);
        for lengths in [[2, 3, 5], [-2, -3, 4], [i32::MAX, i32::MAX, i32::MAX]] {
            let bytes = file(&[matrix(6, &lengths, "cube", &element(4, &[7; 48]))]);
            assert_eq!(parse(&bytes).unwrap_err().kind(), ErrorKind::Malformed, "{lengths:?}");
        }
        // A stream of a few bytes that claims 4 GB.
        let mut huge = MI_MATRIX.to_le_bytes().to_vec();
        huge.extend(u32::MAX.to_le_bytes());
        let error = parse(&file(&[compressed(&huge)])).unwrap_err();
        assert!(error.what().contains("its bytes cannot hold"), "{error}");
    }

    #[test]
    fn a_file_cut_anywhere_is_an_error_or_has_fewer_variables() {
        let bytes = file(&[compressed(&cube()), nested()]);
        for len in 0..bytes.len() {
            assert!(parse(&bytes[..len]).map_or(0, |found| found.len()) < 3, "{len}");
        }
    }

    #[test]
    fn nesting_has_an_end() {
        let mut inner = cube();
        for _ in 0..100 {
            let mut content = vec![5, 0, 4, 0, 2, 0, 0, 0];
            content.extend(element(MI_INT8, b"f\0"));
            content.extend(inner);
            inner = matrix(2, &[1, 1], "s", &content);
        }
        let variables = parse(&file(&[inner])).unwrap();
        assert_eq!(variables[0].content, Content::Other("deeply nested struct"));
    }

    proptest! {
        #[test]
        fn arbitrary_bytes_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
            let _ = parse(&bytes);
            let _ = parse(&file(std::slice::from_ref(&bytes)));
            let _ = parse(&file(&[compressed(&bytes)]));
        }

        #[test]
        fn mutated_files_never_panic(
            changes in prop::collection::vec((120usize..600, any::<u8>()), 1..6),
            deflated in any::<bool>(),
        ) {
            let inner = [cube(), nested()];
            let mut bytes = file(&inner);
            if deflated {
                // Mutate what is inside the stream.
                let mut inside = nested();
                for (at, value) in &changes {
                    if let Some(byte) = inside.get_mut(*at - 120) {
                        *byte = *value;
                    }
                }
                bytes = file(&[compressed(&inside)]);
            }
            for (at, value) in changes {
                if let Some(byte) = bytes.get_mut(at) {
                    *byte = value;
                }
            }
            let _ = parse(&bytes);
        }
    }
}
