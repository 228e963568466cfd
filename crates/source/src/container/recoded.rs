//! A cube whose stored numbers mean something else than their type says: unsigned numbers in signed
//! ones, and missing values under several numbers.

use std::ops::Range;

use half::f16;
use hsipack_format::{DType, Result};

use crate::buffer::RowBuffer;
use crate::cube_info::CubeInfo;
use crate::reader::{Access, Source};

/// The cube `source` with its numbers read as `dtype`, which has the same size, and with all of
/// `marks` replaced by the first, which becomes [`CubeInfo::ignore_value`].
pub(crate) fn recoded(source: Box<dyn Source>, dtype: DType, marks: &[f64]) -> Box<dyn Source> {
    let possible: Vec<f64> = marks.iter().copied().filter(|mark| can_hold(dtype, *mark)).collect();
    let [mark, others @ ..] = &possible[..] else {
        return match source.info().dtype == dtype {
            true => source,
            false => recode_all(source, dtype, None, Vec::new()),
        };
    };
    let is_unchanged = others.is_empty()
        && source.info().dtype == dtype
        && source.info().ignore_value == Some(*mark);
    if is_unchanged { source } else { recode_all(source, dtype, Some(*mark), others.to_vec()) }
}

/// Whether numbers of this type can be `number`, rounded if it is a fraction.
fn can_hold(dtype: DType, number: f64) -> bool {
    let whole = |least: f64, most: f64| number.fract() == 0.0 && (least..=most).contains(&number);
    match dtype {
        DType::Bool | DType::U8 => whole(0.0, u8::MAX.into()),
        DType::I8 => whole(i8::MIN.into(), i8::MAX.into()),
        DType::U16 => whole(0.0, u16::MAX.into()),
        DType::I16 => whole(i16::MIN.into(), i16::MAX.into()),
        DType::U32 => whole(0.0, u32::MAX.into()),
        DType::I32 => whole(i32::MIN.into(), i32::MAX.into()),
        DType::U64 => whole(0.0, u64::MAX as f64),
        DType::I64 => whole(i64::MIN as f64, i64::MAX as f64),
        DType::F16 | DType::F32 | DType::F64 => !number.is_nan(),
    }
}

struct Recoded {
    source: Box<dyn Source>,
    info: CubeInfo,
    /// Numbers that are replaced by the ignore value.
    others: Vec<f64>,
}

impl Recoded {
    fn recode(&self, out: &mut RowBuffer) {
        out.relabel(self.info.dtype);
        let Some(mark) = self.info.ignore_value.filter(|_| !self.others.is_empty()) else { return };
        macro_rules! replace {
            ($type:ty, $convert:expr) => {{
                let convert = $convert;
                let others: Vec<$type> = self.others.iter().map(|other| convert(*other)).collect();
                let mark: $type = convert(mark);
                let marked = out.values_mut::<$type>().iter_mut().filter(|v| others.contains(v));
                marked.for_each(|value| *value = mark);
            }};
        }
        match self.info.dtype {
            DType::Bool | DType::U8 => replace!(u8, |number: f64| number as u8),
            DType::I8 => replace!(i8, |number: f64| number as i8),
            DType::U16 => replace!(u16, |number: f64| number as u16),
            DType::I16 => replace!(i16, |number: f64| number as i16),
            DType::U32 => replace!(u32, |number: f64| number as u32),
            DType::I32 => replace!(i32, |number: f64| number as i32),
            DType::U64 => replace!(u64, |number: f64| number as u64),
            DType::I64 => replace!(i64, |number: f64| number as i64),
            DType::F16 => replace!(f16, f16::from_f64),
            DType::F32 => replace!(f32, |number: f64| number as f32),
            DType::F64 => replace!(f64, |number: f64| number),
        }
    }
}

fn recode_all(
    source: Box<dyn Source>,
    dtype: DType,
    mark: Option<f64>,
    others: Vec<f64>,
) -> Box<dyn Source> {
    let mut info = source.info().clone();
    info.dtype = dtype;
    info.ignore_value = mark.or(info.ignore_value);
    Box::new(Recoded { source, info, others })
}

impl Source for Recoded {
    fn info(&self) -> &CubeInfo {
        &self.info
    }

    fn access(&self) -> Access {
        self.source.access()
    }

    fn preferred_rows(&self, budget: usize) -> usize {
        self.source.preferred_rows(budget)
    }

    fn read_rows(&self, rows: Range<usize>, out: &mut RowBuffer) -> Result<()> {
        self.source.read_rows(rows, out)?;
        self.recode(out);
        Ok(())
    }

    fn has_cheap_bands(&self) -> bool {
        self.source.has_cheap_bands()
    }

    fn read_band(&self, band: usize, rows: Range<usize>, out: &mut RowBuffer) -> Result<()> {
        self.source.read_band(band, rows, out)?;
        self.recode(out);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use hsipack_format::CubeShape;

    use super::*;
    use crate::AxisOrder;
    use crate::flat::{FlatLayout, FlatSource, MemoryBytes};

    fn cube(values: &[i16]) -> Box<dyn Source> {
        let shape = CubeShape::new(1, 1, values.len());
        let info = CubeInfo::new("test", shape, DType::I16, "x");
        let (order, big_endian) = (AxisOrder::BIP, false);
        let layout = FlatLayout { offset: 0, order, big_endian, rows_reversed: false };
        let bytes = values.iter().flat_map(|value| value.to_le_bytes()).collect();
        Box::new(FlatSource::new(info, layout, MemoryBytes(bytes)))
    }

    fn read<T: bytemuck::Pod>(source: &dyn Source) -> Vec<T> {
        let mut rows = RowBuffer::new();
        source.read_rows(0..1, &mut rows).unwrap();
        assert_eq!(rows.dtype(), source.info().dtype);
        rows.as_slice::<T>().to_vec()
    }

    #[test]
    fn other_marks_become_the_first() {
        let source = recoded(cube(&[1, -5, -9, 7]), DType::I16, &[-5.0, -9.0, 0.5]);
        assert_eq!(source.info().ignore_value, Some(-5.0));
        assert_eq!(read::<i16>(&*source), [1, -5, -5, 7]);
        // A mark that the type cannot hold is no mark.
        let source = recoded(cube(&[1, -9]), DType::I16, &[1e6, -9.0]);
        assert_eq!(source.info().ignore_value, Some(-9.0));
    }

    #[test]
    fn signed_numbers_are_read_as_unsigned_ones() {
        let source = recoded(cube(&[1, -1, -2]), DType::U16, &[65535.0, 65534.0]);
        assert_eq!(read::<u16>(&*source), [1, 65535, 65535]);
        let mut band = RowBuffer::new();
        source.read_band(2, 0..1, &mut band).unwrap();
        assert_eq!(band.as_slice::<u16>(), [65535]);
    }
}
