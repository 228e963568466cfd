//! Images that are stored as integers: the form in which they are delivered, and the loop that
//! converts them.
//!
//! A physical value is number × `scale_factor` + `add_offset`; a number that marks a missing value
//! becomes NaN. float16 values are computed in single precision, with one rounding of the sum, and
//! rounded to the nearest float16. float32 values are computed in double precision and rounded
//! once.

use half::f16;
use half::slice::HalfFloatSliceExt;
use hsipack_format::metadata::Scaling;
use hsipack_format::{Codec, DType};
use hsipack_store::blocks::{Block, decode_blocks};
use hsipack_store::{codec, memory};

use crate::Result;
use crate::device::decode::Floats;

/// The form in which images are delivered that are stored as integers of 8 or 16 bits. Images of
/// other types are delivered as they are stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Integers {
    /// The stored integers.
    Stored,
    /// Physical values of this type.
    Physical(FloatType),
    /// The stored integers as values of this type, with NaN where values are missing.
    Numbers(FloatType),
}

/// A type of floats that integers become.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FloatType {
    /// Half precision.
    F16,
    /// Single precision.
    F32,
}

impl Default for Integers {
    fn default() -> Self {
        Self::Physical(FloatType::F16)
    }
}

impl FloatType {
    pub(crate) fn dtype(self) -> DType {
        match self {
            Self::F16 => DType::F16,
            Self::F32 => DType::F32,
        }
    }
}

/// Converts the integers of an image.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Conversion {
    from: DType,
    into: FloatType,
    scaling: Scaling,
}

/// Numbers that are converted together, in vector registers. The loops are fastest if they are
/// unrolled this far.
const LANES: usize = 64;

impl Conversion {
    /// Converts integers of type `from` (of 8 or 16 bits).
    pub fn new(from: DType, into: FloatType, scaling: Scaling) -> Self {
        Self { from, into, scaling }
    }

    /// The same on a device.
    pub(crate) fn floats(&self) -> Option<Floats> {
        Floats::new(self.from, self.into, self.scaling)
    }

    /// Bytes of the integers of so many bytes of converted values.
    pub(crate) fn stored_bytes(&self, converted: usize) -> usize {
        converted / self.into.dtype().size() * self.from.size()
    }

    /// Bytes of the values of so many bytes of integers.
    pub fn converted_bytes(&self, stored: usize) -> usize {
        stored / self.from.size() * self.into.dtype().size()
    }

    /// Fills `out` with the values of integers that `read` reads. `integers` is working memory.
    ///
    /// # Errors
    /// The errors of `read`, and if there is no memory for the integers.
    pub(crate) fn fill(
        &self,
        out: &mut [u8],
        integers: &mut Vec<u8>,
        read: &mut dyn FnMut(&mut [u8]) -> Result<()>,
    ) -> Result<()> {
        let bytes = self.stored_bytes(out.len());
        if integers.len() < bytes {
            memory::room(integers, bytes, "the integers of a part of a batch")?;
            integers.resize(bytes, 0);
        }
        let stored = &mut integers[..bytes];
        read(stored)?;
        self.run(stored, out);
        Ok(())
    }

    /// Fills `out` with the values of a chunk without its checksum. They are converted block by
    /// block, while a block is in the processor's cache, if the codec allows that. `integers` is
    /// working memory.
    ///
    /// # Errors
    /// If the chunk is damaged, or there is no memory for the integers.
    pub fn decode(
        &self,
        codec: &Codec,
        frame: &[u8],
        integers: &mut Vec<u8>,
        out: &mut [u8],
    ) -> Result<()> {
        let (bytes, mut remaining) = (self.stored_bytes(out.len()), &mut *out);
        let is_done = decode_blocks(frame, bytes, integers, &mut |block| {
            let converted = self.converted_bytes(block.bytes());
            let (values, after) = std::mem::take(&mut remaining).split_at_mut(converted);
            self.block(block, values);
            remaining = after;
        })?;
        match is_done {
            true => Ok(()),
            false => self.fill(out, integers, &mut |out| codec::decode(codec, frame, out)),
        }
    }

    /// Converts little-endian integers to as many floats.
    pub(crate) fn run(&self, stored: &[u8], out: &mut [u8]) {
        self.block(Block::Values(stored), out);
    }

    /// Converts the integers of a block.
    pub(crate) fn block(&self, stored: Block<'_>, out: &mut [u8]) {
        match (self.from, stored) {
            (DType::U8, Block::Values(all)) => self.values(all, u8::from_le_bytes, out),
            (DType::I8, Block::Values(all)) => self.values(all, i8::from_le_bytes, out),
            (DType::U16, Block::Values(all)) => self.values(all, u16::from_le_bytes, out),
            (DType::U16, Block::Planes(all)) => self.planes(all, u16::from_le_bytes, out),
            (_, Block::Values(all)) => self.values(all, i16::from_le_bytes, out),
            (_, Block::Planes(all)) => self.planes(all, i16::from_le_bytes, out),
        }
    }

    fn values<const N: usize, T: Integer>(
        &self,
        bytes: &[u8],
        number: impl Fn([u8; N]) -> T,
        out: &mut [u8],
    ) {
        let (all, last) = bytes.as_chunks().0.as_chunks();
        let last = padded(last, [0; N]);
        // An array from a function stays in registers; one that is mapped does not.
        let numbers = |bytes: &[[u8; N]; LANES]| std::array::from_fn(|at| number(bytes[at]));
        self.convert(all, &last, out, numbers, |_| true);
    }

    fn planes<T: Integer>(
        &self,
        [first, second]: [&[u8]; 2],
        number: impl Fn([u8; 2]) -> T,
        out: &mut [u8],
    ) {
        let [(first, first_end), (second, second_end)] = [first.as_chunks(), second.as_chunks()];
        let last = (&padded(first_end, 0), &padded(second_end, 0));
        let numbers = |(first, second): (&[u8; LANES], &[u8; LANES])| {
            // The compiler vectorises this loop, but not the same within the next one.
            let mut bytes = [[0; 2]; LANES];
            for (at, bytes) in bytes.iter_mut().enumerate() {
                *bytes = [first[at], second[at]];
            }
            std::array::from_fn(|at| number(bytes[at]))
        };
        // Comparing second bytes takes half as long as comparing numbers.
        let missing = self.scaling.missing.map_or(0, |missing| (missing as i32).to_le_bytes()[1]);
        let may_miss = |(_, second): (&[u8; LANES], &[u8; LANES])| {
            second.iter().fold(false, |any, byte| any | (*byte == missing))
        };
        self.convert(first.iter().zip(second), last, out, numbers, may_miss);
    }

    /// Converts numbers that `numbers` makes of `all`, and as many of `last` as `out` has a place
    /// for. `may_miss` says whether numbers may mark missing values.
    fn convert<B: Copy, T: Integer>(
        &self,
        all: impl IntoIterator<Item = B>,
        last: B,
        out: &mut [u8],
        numbers: impl Fn(B) -> [T; LANES],
        may_miss: impl Fn(B) -> bool,
    ) {
        let Scaling { factor, offset, missing } = self.scaling;
        // Adding -0 changes nothing, as 0 would change -0.
        let offset = if offset == 0.0 { -0.0 } else { offset };
        let missing = missing.and_then(integer::<T>);
        match (self.into, missing) {
            (FloatType::F16, Some(missing)) => {
                let (factor, offset) = (factor as f32, offset as f32);
                convert::<_, { 2 * LANES }>(all, last, out, |block, values| {
                    let numbers = numbers(block);
                    let halves = halves(numbers, factor, offset);
                    *values = bytemuck::cast(halves);
                    // Written twice, because an array that comes out of a branch is moved through memory.
                    if may_miss(block) {
                        let marked: [f16; LANES] =
                            std::array::from_fn(|at| match numbers[at] == missing {
                                true => f16::NAN,
                                false => halves[at],
                            });
                        *values = bytemuck::cast(marked);
                    }
                });
            }
            (FloatType::F16, None) => {
                let (factor, offset) = (factor as f32, offset as f32);
                convert::<_, { 2 * LANES }>(all, last, out, |block, values| {
                    *values = bytemuck::cast(halves(numbers(block), factor, offset));
                });
            }
            (FloatType::F32, missing) => {
                convert::<_, { 4 * LANES }>(all, last, out, |block, values| {
                    let numbers = numbers(block);
                    let singles: [f32; LANES] = std::array::from_fn(|at| {
                        let number: f64 = numbers[at].into();
                        let physical = (number * factor + offset) as f32;
                        if missing == Some(numbers[at]) { f32::NAN } else { physical }
                    });
                    *values = bytemuck::cast(singles);
                });
            }
        }
    }
}

/// Fills `out` with the values that `convert` makes of `all`, and as many of `last` as it has a
/// place for.
#[inline(always)]
fn convert<B, const BYTES: usize>(
    all: impl IntoIterator<Item = B>,
    last: B,
    out: &mut [u8],
    convert: impl Fn(B, &mut [u8; BYTES]),
) {
    let (values, end) = out.as_chunks_mut();
    for (block, values) in all.into_iter().zip(values) {
        convert(block, values);
    }
    if !end.is_empty() {
        let mut values = [0; BYTES];
        convert(last, &mut values);
        end.copy_from_slice(&values[..end.len()]);
    }
}

/// float16 values of numbers.
#[inline(always)]
fn halves<T: Integer>(numbers: [T; LANES], factor: f32, offset: f32) -> [f16; LANES] {
    let singles: [f32; LANES] = std::array::from_fn(|at| {
        let number: f32 = numbers[at].into();
        number.mul_add(factor, offset)
    });
    let mut halves = [f16::ZERO; LANES];
    halves.convert_from_f32_slice(&singles);
    halves
}

/// A type of integers that images are stored as.
trait Integer: Copy + PartialEq + TryFrom<i32> + Into<f32> + Into<f64> {}

impl<T: Copy + PartialEq + TryFrom<i32> + Into<f32> + Into<f64>> Integer for T {}

/// A number as an integer; `None` if the type does not have it.
fn integer<T: Integer>(number: f64) -> Option<T> {
    T::try_from(number as i32).ok().filter(|integer| Into::<f64>::into(*integer) == number)
}

/// Numbers with zeros behind them.
fn padded<T: Copy>(numbers: &[T], zero: T) -> [T; LANES] {
    let mut padded = [zero; LANES];
    padded[..numbers.len()].copy_from_slice(numbers);
    padded
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn converted(conversion: Conversion, stored: &[u8]) -> Vec<u8> {
        let mut out = vec![0; conversion.converted_bytes(stored.len())];
        conversion.run(stored, &mut out);
        assert_eq!(conversion.stored_bytes(out.len()), stored.len());
        out
    }

    /// The same from planes, in blocks that do not fill the lanes.
    fn by_planes(conversion: Conversion, stored: &[u8]) -> Vec<u8> {
        let mut out = vec![0; conversion.converted_bytes(stored.len())];
        let mut remaining = &mut out[..];
        for block in stored.chunks(2 * (3 * LANES + 7)) {
            let plane =
                |byte: usize| block.iter().skip(byte).step_by(2).copied().collect::<Vec<u8>>();
            let (now, after) = remaining.split_at_mut(conversion.converted_bytes(block.len()));
            conversion.block(Block::Planes([&plane(0), &plane(1)]), now);
            remaining = after;
        }
        out
    }

    fn all(dtype: DType) -> (Vec<i64>, Vec<u8>) {
        let (least, greatest) = dtype.integers().unwrap();
        let numbers: Vec<i64> = (least..=greatest).collect();
        let bytes =
            numbers.iter().flat_map(|number| number.to_le_bytes().into_iter().take(dtype.size()));
        let bytes = bytes.collect();
        (numbers, bytes)
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(16))]

        #[test]
        fn every_integer_becomes_the_rounded_physical_value(
            factor in prop_oneof![Just(1.0), Just(1e-4), Just(2e-5), Just(0.1), 1e-6f64..10.0, -2.0f64..-1e-5],
            offset in prop_oneof![Just(0.0), Just(-0.1), -100.0f64..100.0],
            dtype in prop::sample::select(vec![DType::U8, DType::I8, DType::U16, DType::I16]),
            missing in any::<prop::sample::Index>(),
        ) {
            let (numbers, bytes) = all(dtype);
            let missing = numbers[missing.index(numbers.len())];
            let scaling = Scaling { factor, offset, missing: Some(missing as f64) };
            let conversion = |into| Conversion { from: dtype, into, scaling };
            let halves = converted(conversion(FloatType::F16), &bytes);
            let singles = converted(conversion(FloatType::F32), &bytes);
            if dtype.size() == 2 {
                prop_assert_eq!(&by_planes(conversion(FloatType::F16), &bytes), &halves);
                prop_assert_eq!(&by_planes(conversion(FloatType::F32), &bytes), &singles);
            }
            for (at, number) in numbers.iter().enumerate() {
                let half = f16::from_le_bytes(halves.as_chunks::<2>().0[at]);
                let single = f32::from_le_bytes(singles.as_chunks::<4>().0[at]);
                if *number == missing {
                    prop_assert!(half.is_nan() && single.is_nan());
                    continue;
                }
                let offset = if offset == 0.0 { -0.0 } else { offset };
                let in_single = (*number as f32).mul_add(factor as f32, offset as f32);
                prop_assert_eq!(half.to_bits(), f16::from_f32(in_single).to_bits());
                prop_assert_eq!(single.to_bits(), (scaling.physical(*number as f64) as f32).to_bits());
            }
        }
    }

    #[test]
    fn numbers_without_scale_are_as_they_are() {
        let (numbers, bytes) = all(DType::I16);
        let conversion =
            Conversion { from: DType::I16, into: FloatType::F32, scaling: Scaling::NONE };
        let singles = converted(conversion, &bytes);
        let singles = singles.as_chunks::<4>().0.iter().map(|single| f32::from_le_bytes(*single));
        assert!(singles.zip(numbers).all(|(single, number)| single == number as f32));
    }
}
