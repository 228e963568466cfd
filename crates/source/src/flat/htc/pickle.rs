//! The pickled header of HTC `.blosc` files, read without executing anything.
//!
//! Python's pickle is a small stack machine that may call any function. This one knows only the
//! instructions that protocols 2 to 5 use for `(shape, dtype)` and `{name: (shape, dtype, bytes)}`,
//! and the one callable `numpy.dtype`. Anything else is refused, and the error names it.
//!
//! A dtype is pickled as `numpy.dtype('f2', False, True)` followed by a state tuple whose second
//! item is the byte order. The state is set on an object that may already be memoised, so dtypes
//! are kept in a separate table and the stack holds indices.

use std::rc::Rc;

use hsipack_format::{DType, Error, Result};

use crate::flat::numpy::header::parse_dtype;

/// An array as the header describes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Array {
    /// Lengths in index order; arrays are in C order.
    pub lengths: Vec<usize>,
    /// Type of the values, or why it is not supported.
    pub dtype: std::result::Result<DType, String>,
    /// Whether values are big-endian.
    pub big_endian: bool,
}

/// The array that a header describes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Header {
    /// One array, whose frame extends to the end of the file.
    Single(Array),
    /// Arrays by name, with the lengths of their frames, which follow one another in this order.
    Named(Vec<(String, Array, u64)>),
}

/// Parses the header at the start of `bytes`. Also returns its length.
///
/// # Errors
/// If it is cut short, or contains anything that the two kinds of header do not.
pub fn parse(bytes: &[u8]) -> Result<(Header, usize)> {
    let mut machine = Machine { bytes, ..Machine::default() };
    let value = machine.run()?;
    Ok((machine.header(&value)?, machine.at))
}

/// No header nests tuples deeper than this. The limit also keeps dropping them from recursing
/// deeply.
const DEEPEST: usize = 4;
/// NumPy arrays have no more axes. Shared parts of a pickle are copied for each array that refers
/// to them. Therefore the size of an array's description and the number of arrays are limited.
const MAX_AXES: usize = 64;
const LONGEST_NAME: usize = 1024;
const MAX_ARRAYS: usize = 20_000;
/// No header needs more values on the stack or in the memo.
const MAX_VALUES: usize = 1 << 20;

#[derive(Clone, Debug)]
enum Value {
    None,
    Bool,
    Int(i64),
    Text(Rc<str>),
    /// Items, and how deep they nest. The depth is kept because a shared tuple may be reached in
    /// many ways.
    Tuple(Rc<[Value]>, usize),
    Dict,
    DTypeClass,
    DType(usize),
    Mark,
}

impl Value {
    fn depth(&self) -> usize {
        match self {
            Value::Tuple(_, depth) => *depth,
            _ => 0,
        }
    }
}

/// A dtype object: its code (`f2`) and, once its state is set, its byte order.
#[derive(Debug)]
struct DTypeObject {
    code: Rc<str>,
    order: Option<Rc<str>>,
}

#[derive(Default)]
struct Machine<'a> {
    bytes: &'a [u8],
    at: usize,
    stack: Vec<Value>,
    memo: Vec<Option<Value>>,
    dtypes: Vec<DTypeObject>,
    /// The one dictionary a header may have.
    dict: Option<Vec<(Value, Value)>>,
}

fn cut_short() -> Error {
    Error::malformed("the file ends inside its pickled header")
        .with_remedy("copy the file again; it is cut short")
}

fn damaged(what: &str) -> Error {
    Error::malformed(what).with_remedy("copy the file again; it may be damaged")
}

fn foreign(what: &str) -> Error {
    Error::unsupported(format!("the pickled header has {what}, which no HTC file needs"))
        .with_remedy("write the file with htc's compress_file; pickled code is never executed")
}

impl Machine<'_> {
    /// Executes instructions up to STOP and returns the remaining value.
    fn run(&mut self) -> Result<Value> {
        let protocol = self.take(2)?;
        if protocol[0] != 0x80 || !(2..=5).contains(&protocol[1]) {
            return Err(Error::malformed(
                "the file does not begin with a pickle of protocol 2 to 5",
            )
            .with_remedy("check that the file was written by htc's compress_file"));
        }
        loop {
            let op = self.take(1)?[0];
            if op == b'.' {
                let value = self.pop()?;
                return if self.stack.is_empty() { Ok(value) } else { Err(foreign("two values")) };
            }
            self.step(op)?;
            if self.stack.len() > MAX_VALUES {
                return Err(foreign("too many values"));
            }
        }
    }

    fn step(&mut self, op: u8) -> Result<()> {
        match op {
            0x95 => self.take(8).map(drop), // FRAME: how much follows; STOP shows this, too
            b'(' => self.push(Value::Mark),
            b'N' => self.push(Value::None),
            0x88 => self.push(Value::Bool),
            0x89 => self.push(Value::Bool),
            b'J' | b'K' | b'M' | 0x8a => self.integer(op),
            b'X' | 0x8c | 0x8d | b'U' | b'T' => self.text(op),
            b')' | 0x85 | 0x86 | 0x87 | b't' => self.tuple(op),
            b'}' => self.new_dict(),
            b's' => self.set_item(),
            b'u' => self.set_items(),
            0x94 | b'q' | b'r' => self.memoize(op),
            b'h' | b'j' => self.recall(op),
            b'c' | 0x93 => self.global(op),
            b'R' => self.call(),
            b'b' => self.build(),
            0x81 | 0x92 | b'i' | b'o' => Err(foreign("an instruction to create an object")),
            b'P' | b'Q' => Err(foreign("a reference to an outside object")),
            0x82..=0x84 => Err(foreign("a class from Python's extension registry")),
            b']' | b'l' | b'a' | b'e' => Err(foreign("a list")),
            b'G' => Err(foreign("a float")),
            b'B' | b'C' | 0x8e | 0x96 => Err(foreign("raw bytes")),
            _ => Err(foreign(&format!("the pickle instruction 0x{op:02x}"))),
        }
    }

    fn take(&mut self, count: usize) -> Result<&[u8]> {
        let end = self.at.checked_add(count).ok_or_else(cut_short)?;
        let taken = self.bytes.get(self.at..end).ok_or_else(cut_short)?;
        self.at = end;
        Ok(taken)
    }

    /// An unsigned little-endian number of `size` ≤ 8 bytes.
    fn unsigned(&mut self, size: usize) -> Result<u64> {
        let mut raw = [0; 8];
        raw[..size].copy_from_slice(self.take(size)?);
        Ok(u64::from_le_bytes(raw))
    }

    fn size(&mut self, size: usize) -> Result<usize> {
        usize::try_from(self.unsigned(size)?).map_err(|_| cut_short())
    }

    #[expect(clippy::unnecessary_wraps, reason = "one kind of arm in `step`")]
    fn push(&mut self, value: Value) -> Result<()> {
        self.stack.push(value);
        Ok(())
    }

    fn pop(&mut self) -> Result<Value> {
        match self.stack.pop() {
            Some(Value::Mark) | None => Err(foreign("an instruction without its operands")),
            Some(value) => Ok(value),
        }
    }

    /// Pops everything above the topmost mark, and the mark itself.
    fn pop_to_mark(&mut self) -> Result<Vec<Value>> {
        let mark = self
            .stack
            .iter()
            .rposition(|value| matches!(value, Value::Mark))
            .ok_or_else(|| foreign("an instruction without its operands"))?;
        let items = self.stack.split_off(mark + 1);
        self.stack.pop();
        Ok(items)
    }

    fn integer(&mut self, op: u8) -> Result<()> {
        let value = match op {
            b'J' => i64::from(self.unsigned(4)? as u32 as i32),
            b'K' => self.unsigned(1)? as i64,
            b'M' => self.unsigned(2)? as i64,
            _ => {
                let size = self.size(1)?;
                if size > 8 {
                    return Err(foreign("an integer of more than 64 bits"));
                }
                let raw = self.unsigned(size)?;
                let unused = 64 - 8 * size as u32;
                // Shifted up and down again, to extend the sign.
                if size == 0 { 0 } else { ((raw << unused) as i64) >> unused }
            }
        };
        self.push(Value::Int(value))
    }

    fn text(&mut self, op: u8) -> Result<()> {
        let size = match op {
            0x8c | b'U' => self.size(1)?,
            b'X' | b'T' => self.size(4)?,
            _ => self.size(8)?,
        };
        let text = std::str::from_utf8(self.take(size)?)
            .map_err(|_| damaged("a name in the pickled header is not UTF-8"))?;
        let text = Rc::from(text);
        self.push(Value::Text(text))
    }

    fn tuple(&mut self, op: u8) -> Result<()> {
        let items = match op {
            b')' => Vec::new(),
            b't' => self.pop_to_mark()?,
            _ => {
                let mut items = Vec::new();
                for _ in 0..=op - 0x85 {
                    items.push(self.pop()?);
                }
                items.reverse();
                items
            }
        };
        let depth = 1 + items.iter().map(Value::depth).max().unwrap_or(0);
        if depth > DEEPEST {
            return Err(foreign("tuples nested too deeply"));
        }
        self.push(Value::Tuple(items.into(), depth))
    }

    fn new_dict(&mut self) -> Result<()> {
        if self.dict.replace(Vec::new()).is_some() {
            return Err(foreign("a second dictionary"));
        }
        self.push(Value::Dict)
    }

    fn set_item(&mut self) -> Result<()> {
        let (value, key) = (self.pop()?, self.pop()?);
        self.insert(key, value)
    }

    fn set_items(&mut self) -> Result<()> {
        let items = self.pop_to_mark()?;
        let (pairs, []) = items.as_chunks::<2>() else {
            return Err(foreign("a key without its value"));
        };
        pairs.iter().try_for_each(|[key, value]| self.insert(key.clone(), value.clone()))
    }

    fn insert(&mut self, key: Value, value: Value) -> Result<()> {
        match (self.stack.last(), &mut self.dict) {
            (Some(Value::Dict), Some(dict)) => {
                dict.push((key, value));
                Ok(())
            }
            _ => Err(foreign("items set on something that is not a dictionary")),
        }
    }

    fn memoize(&mut self, op: u8) -> Result<()> {
        let at = match op {
            b'q' => self.size(1)?,
            b'r' => self.size(4)?,
            _ => self.memo.len(),
        };
        // Numbers are given in sequence, so no header has one far ahead.
        if at > self.memo.len() || at >= MAX_VALUES {
            return Err(foreign("a memo number out of sequence"));
        }
        let value = match self.stack.last() {
            None | Some(Value::Mark) => return Err(foreign("an instruction without its operands")),
            Some(value) => value.clone(),
        };
        if at == self.memo.len() {
            self.memo.push(None);
        }
        self.memo[at] = Some(value);
        Ok(())
    }

    fn recall(&mut self, op: u8) -> Result<()> {
        let at = self.size(if op == b'h' { 1 } else { 4 })?;
        let value = self.memo.get(at).cloned().flatten();
        self.push(value.ok_or_else(|| foreign("a memo number that was never set"))?)
    }

    fn global(&mut self, op: u8) -> Result<()> {
        let (module, name) = if op == b'c' {
            (self.line()?, self.line()?)
        } else {
            let (name, module) = (self.pop()?, self.pop()?);
            match (module, name) {
                (Value::Text(module), Value::Text(name)) => (module.to_string(), name.to_string()),
                _ => return Err(foreign("an unnamed callable")),
            }
        };
        if (&*module, &*name) != ("numpy", "dtype") {
            let called: String = format!("{module}.{name}").chars().take(100).collect();
            return Err(foreign(&format!("a call of {}", called.escape_debug())));
        }
        self.push(Value::DTypeClass)
    }

    /// Text up to the next line feed.
    fn line(&mut self) -> Result<String> {
        let remaining = &self.bytes[self.at..];
        let len = remaining.iter().position(|byte| *byte == b'\n').ok_or_else(cut_short)?;
        self.at += len + 1;
        Ok(String::from_utf8_lossy(&remaining[..len]).into_owned())
    }

    /// `numpy.dtype(code, align, copy)`.
    fn call(&mut self) -> Result<()> {
        let (arguments, callable) = (self.pop()?, self.pop()?);
        let (Value::DTypeClass, Value::Tuple(arguments, _)) = (callable, arguments) else {
            return Err(foreign("a call of something that cannot be called"));
        };
        match &arguments[..] {
            [Value::Text(code)]
            | [Value::Text(code), Value::Bool | Value::Int(_)]
            | [Value::Text(code), Value::Bool | Value::Int(_), Value::Bool | Value::Int(_)] => {
                self.dtypes.push(DTypeObject { code: code.clone(), order: None });
                self.push(Value::DType(self.dtypes.len() - 1))
            }
            _ => Err(foreign("a dtype made in an unknown way")),
        }
    }

    /// Sets the state `(3, '<', None, None, None, -1, -1, 0)` of a dtype.
    fn build(&mut self) -> Result<()> {
        let state = self.pop()?;
        let (Some(Value::DType(index)), Value::Tuple(state, _)) = (self.stack.last(), state) else {
            return Err(foreign("a state for something that is not a dtype"));
        };
        match &state[..] {
            [Value::Int(3 | 4), Value::Text(order), Value::None, Value::None, Value::None, ..] => {
                self.dtypes[*index].order = Some(order.clone());
                Ok(())
            }
            _ => Err(Error::unsupported("a structured dtype, or one of an unknown version")
                .with_remedy("save the cube as a plain array of numbers")),
        }
    }

    fn header(&self, value: &Value) -> Result<Header> {
        match (value, &self.dict) {
            (Value::Tuple(items, _), None) => match &items[..] {
                [shape, dtype] => Ok(Header::Single(self.array(shape, dtype)?)),
                _ => Err(foreign("a tuple that is not (shape, dtype)")),
            },
            (Value::Dict, Some(items)) if items.len() > MAX_ARRAYS => {
                Err(foreign("too many arrays"))
            }
            (Value::Dict, Some(items)) => items
                .iter()
                .map(|(name, entry)| self.entry(name, entry))
                .collect::<Result<_>>()
                .map(Header::Named),
            _ => Err(foreign("neither (shape, dtype) nor a dictionary of arrays")),
        }
    }

    fn entry(&self, name: &Value, entry: &Value) -> Result<(String, Array, u64)> {
        let (Value::Text(name), Value::Tuple(items, _)) = (name, entry) else {
            return Err(foreign("a dictionary that is not {name: (shape, dtype, bytes)}"));
        };
        if name.len() > LONGEST_NAME {
            return Err(foreign("an overlong name"));
        }
        match &items[..] {
            [shape, dtype, Value::Int(bytes)] if *bytes >= 0 => {
                Ok((name.to_string(), self.array(shape, dtype)?, bytes.unsigned_abs()))
            }
            _ => Err(foreign("a dictionary that is not {name: (shape, dtype, bytes)}")),
        }
    }

    fn array(&self, shape: &Value, dtype: &Value) -> Result<Array> {
        let (Value::Tuple(lengths, _), Value::DType(dtype)) = (shape, dtype) else {
            return Err(foreign("an array without a shape and a dtype"));
        };
        if lengths.len() > MAX_AXES {
            return Err(foreign("more axes than NumPy has"));
        }
        let lengths = lengths
            .iter()
            .map(|length| match length {
                Value::Int(length) => usize::try_from(*length).ok(),
                _ => None,
            })
            .collect::<Option<Vec<usize>>>()
            .ok_or_else(|| foreign("a length that is not a whole number"))?;
        let DTypeObject { code, order } = &self.dtypes[*dtype];
        let order = match order.as_deref() {
            Some(order @ ("<" | ">" | "|" | "=")) => order,
            None => "=",
            Some(_) => return Err(damaged("a dtype has an unknown byte order")),
        };
        let (dtype, big_endian) = match parse_dtype(&format!("{order}{code}")) {
            Ok((dtype, big_endian)) => (Ok(dtype), big_endian),
            Err(error) => (Err(error.what().to_owned()), false),
        };
        Ok(Array { lengths, dtype, big_endian })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use hsipack_format::ErrorKind;
    use proptest::prelude::*;

    /// `pickle.dumps(((40, 48, 100), np.dtype('f2')), protocol)` for protocols 2, 4.
    const PROTOCOL_2: &[u8] =
        b"\x80\x02K(K0Kd\x87q\x00cnumpy\ndtype\nq\x01X\x02\x00\x00\x00f2q\x02\
        \x89\x88\x87q\x03Rq\x04(K\x03X\x01\x00\x00\x00<q\x05NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xff\
        K\x00tq\x06b\x86q\x07.";
    const PROTOCOL_4: &[u8] =
        b"\x80\x04\x95A\x00\x00\x00\x00\x00\x00\x00K(K0Kd\x87\x94\x8c\x05numpy\
        \x94\x8c\x05dtype\x94\x93\x94\x8c\x02f2\x94\x89\x88\x87\x94R\x94(K\x03\x8c\x01<\x94NNNJ\xff\
        \xff\xff\xffJ\xff\xff\xff\xffK\x00t\x94b\x86\x94.";

    #[test]
    fn both_ways_of_naming_the_dtype_are_read() {
        for pickle in [PROTOCOL_2, PROTOCOL_4] {
            let mut bytes = pickle.to_vec();
            bytes.extend(b"the frame");
            let (header, len) = parse(&bytes).unwrap();
            assert_eq!(len, pickle.len());
            assert_eq!(
                header,
                Header::Single(Array {
                    lengths: vec![40, 48, 100],
                    dtype: Ok(DType::F16),
                    big_endian: false
                })
            );
        }
    }

    #[test]
    fn a_memoised_dtype_has_the_state_set_later() {
        let dictionary = b"\x80\x02}(X\x01\x00\x00\x00aK\x02K\x03\x86cnumpy\ndtype\nX\x02\x00\x00\x00i4\
            \x89\x88\x87Rq\x00(K\x03X\x01\x00\x00\x00>NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tbK\x09\
            \x87X\x01\x00\x00\x00bK\x04\x85h\x00M\x00\x01\x87u.";
        let (Header::Named(arrays), _) = parse(dictionary).unwrap() else { panic!() };
        assert_eq!(arrays[0].0, "a");
        assert_eq!((arrays[0].2, arrays[1].2), (9, 256));
        assert_eq!(
            arrays[1].1,
            Array { lengths: vec![4], dtype: Ok(DType::I32), big_endian: true }
        );
    }

    #[test]
    fn anything_that_would_execute_is_refused_by_name() {
        // os.system('true')
        let evil = b"\x80\x02cos\nsystem\nX\x04\x00\x00\x00true\x85R.";
        let error = parse(evil).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unsupported);
        assert!(error.what().contains("os.system"), "{error}");
        let evil = b"\x80\x04\x8c\x08builtins\x8c\x04eval\x93\x8c\x011\x85R.";
        assert!(parse(evil).unwrap_err().what().contains("builtins.eval"));
        for op in [b'i', b'o', 0x81, 0x92, b'P', b'Q', 0x82, b']', b'G', b'0'] {
            let error = parse(&[0x80, 4, op]).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Unsupported, "{op}: {error}");
        }
        // A dtype given a state tuple of a structured type.
        let fields =
            b"\x80\x02K\x01\x85cnumpy\ndtype\nX\x02\x00\x00\x00V8\x89\x88\x87R(K\x03X\x01\x00\
            \x00\x00|NK\x01\x85NJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tb\x86.";
        assert_eq!(parse(fields).unwrap_err().kind(), ErrorKind::Unsupported);
    }

    #[test]
    fn a_header_cut_anywhere_is_an_error() {
        for len in 0..PROTOCOL_4.len() {
            assert!(parse(&PROTOCOL_4[..len]).is_err(), "{len}");
        }
    }

    #[test]
    fn deep_nesting_and_self_doubling_tuples_stop_early() {
        let mut doubling = b"\x80\x02)".to_vec();
        doubling.extend([b'q', 0, b'h', 0, 0x86].repeat(1000));
        assert!(parse(&doubling).is_err());
        let mut deep = b"\x80\x02)".to_vec();
        deep.extend([0x85].repeat(100_000));
        assert!(parse(&deep).unwrap_err().what().contains("nested"));
    }

    /// A dictionary whose `count` entries are all the same memoised entry, with this `name` and
    /// `axes` axes.
    fn shared_entries(name: &str, axes: usize, count: usize) -> Vec<u8> {
        let mut bytes = b"\x80\x02}(X".to_vec();
        bytes.extend((name.len() as u32).to_le_bytes());
        bytes.extend(name.as_bytes());
        bytes.extend(b"q\x00(");
        bytes.extend(b"K\x01".repeat(axes));
        bytes.extend(b"tcnumpy\ndtype\nX\x02\x00\x00\x00f4\x85RK\x09\x87q\x01");
        bytes.extend(b"h\x00h\x01".repeat(count - 1));
        bytes.extend(b"u.");
        bytes
    }

    #[test]
    fn shared_entries_are_limited() {
        let arrays = |name: &str, axes, count| parse(&shared_entries(name, axes, count));
        assert!(matches!(arrays("a", 3, 50), Ok((Header::Named(arrays), _)) if arrays.len() == 50));
        // 500 KB of header that would have taken 200 GB.
        assert!(arrays("a", 100_000, 100_000).is_err());
        assert!(arrays(&"a".repeat(100_000), 3, 10_000).is_err());
        assert!(arrays("a", 3, MAX_ARRAYS + 1).is_err());
    }

    #[test]
    fn integers_carry_their_sign() {
        for (raw, want) in [
            (&b"\x8a\x00"[..], 0),
            (b"\x8a\x01\xff", -1),
            (b"\x8a\x02\x00\x01", 256),
            (b"\x8a\x08\xff\xff\xff\xff\xff\xff\xff\x7f", i64::MAX),
            (b"J\xfe\xff\xff\xff", -2),
        ] {
            let mut machine = Machine { bytes: &raw[1..], ..Machine::default() };
            machine.integer(raw[0]).unwrap();
            assert!(matches!(machine.stack[0], Value::Int(value) if value == want), "{raw:?}");
        }
    }

    proptest! {
        #[test]
        fn arbitrary_bytes_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
            let mut pickle = vec![0x80, 4];
            pickle.extend(&bytes);
            let _ = parse(&bytes);
            let _ = parse(&pickle);
        }

        #[test]
        fn instructions_in_any_order_never_panic(
            ops in prop::collection::vec(prop::sample::select(
                &b"(N\x88\x89K\x05)\x85\x86\x87t}su\x94h\x00Rb\x93."[..]), 0..60),
        ) {
            let mut pickle = b"\x80\x04cnumpy\ndtype\n\x94\x8c\x02f4\x94".to_vec();
            pickle.extend(&ops);
            let _ = parse(&pickle);
        }

        #[test]
        fn mutated_headers_never_panic(
            changes in prop::collection::vec((0usize..90, any::<u8>()), 1..6),
            second in any::<bool>(),
        ) {
            let mut bytes = if second { PROTOCOL_2 } else { PROTOCOL_4 }.to_vec();
            for (at, value) in changes {
                if let Some(byte) = bytes.get_mut(at) {
                    *byte = value;
                }
            }
            let _ = parse(&bytes);
        }
    }
}
