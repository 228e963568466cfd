//! The integers of instruments, packed as they are, compared with float16.

use hsipack_format::Opt;
use hsipack_read::{Conversion, FloatType};
use serde::Serialize;

use super::candidates::Candidate;
use super::figures::Rate;
use super::measure::Bench;
use super::sample::Sample;
use crate::Result;

/// Integers are recommended if they decode at least at this fraction of the rate of float16.
const RATE: f64 = 0.95;

/// Integers that hold all values exactly, and float16, measured in the same rounds with the chosen
/// codec.
#[derive(Clone, Debug, Serialize)]
pub struct Integers {
    /// The type, as `convert --dtype` spells it.
    pub dtype: &'static str,
    /// Codec, level and filter.
    pub codec: String,
    /// Bytes of the values as float16, divided by stored bytes.
    pub ratio: f64,
    /// Decoding to float16, for each number of threads, in bytes of float16.
    pub decode: Vec<Rate>,
    /// Encoding, in bytes of float16.
    pub write: Rate,
    /// Stored bytes of float16, divided by those of integers.
    pub smaller: f64,
    /// Decoding speed, relative to float16, with the most threads.
    pub faster: f64,
}

impl Integers {
    /// Whether they are smaller than float16 and decode about as fast.
    pub fn are_better(&self) -> bool {
        self.smaller > 1.0 && self.faster >= RATE
    }

    /// The gain, in a sentence.
    pub fn sentence(&self) -> String {
        format!(
            "the values are integers: {} keeps them bit for bit, stores {:.2}x smaller and decodes {:.2}x as fast as float16 with {}",
            Opt::Dtype.to(self.dtype),
            self.smaller,
            self.faster,
            self.codec
        )
    }
}

/// Measures the integers of the sample and float16 with the codec and chunks of `chosen`; `None` if
/// the values are not integers.
///
/// # Errors
/// If Blosc refuses the codec, the system cannot start a thread, or the user stopped.
pub fn measure(sample: &Sample, bench: &mut Bench, chosen: &Candidate) -> Result<Option<Integers>> {
    let Some(exact) = &sample.integers else { return Ok(None) };
    let dtype = exact.dtype.dtype();
    let conversion = Conversion::new(dtype, FloatType::F16, exact.scaling);
    let codec = chosen.codec.of_dtype(dtype);
    let integers = Candidate { codec, integers: Some(conversion), ..*chosen };
    let found = bench.sweep(&[*chosen, integers], &|candidate| match candidate.integers {
        Some(_) => sample.integer_chunks(candidate.chunk_bytes),
        None => sample.chunks(candidate.chunk_bytes, None),
    })?;
    let [half, integers] = &found[..] else { return Ok(None) };
    Ok(Some(Integers {
        dtype: exact.dtype.name(),
        codec: integers.name.clone(),
        ratio: integers.ratio,
        decode: integers.decode.clone(),
        write: integers.write,
        smaller: integers.ratio / half.ratio,
        faster: integers.decode_at_most() / half.decode_at_most(),
    }))
}
