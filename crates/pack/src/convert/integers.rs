//! Integers that are packed as they are: from single-precision numbers to bytes.

use half::f16;
use hsipack_format::{DType, Error, ErrorKind, Opt, remedy};

/// The bytes of an integer of this type, repeated to four.
pub fn fill(dtype: DType, number: i64) -> [u8; 4] {
    let bytes = number.to_le_bytes();
    match dtype.size() {
        1 => [bytes[0]; 4],
        _ => [bytes[0], bytes[1], bytes[0], bytes[1]],
    }
}

/// Writes numbers as integers of `dtype`. NaN becomes `missing`.
///
/// # Errors
/// The place of the first number that is not an integer of the type, that is NaN although nothing
/// stands for it, or that is `missing` although it has a value.
pub fn write(
    numbers: &[f32],
    dtype: DType,
    missing: Option<i64>,
    out: &mut [u8],
) -> Result<(), usize> {
    let (least, greatest) = dtype.integers().unwrap_or_default();
    let (least, greatest) = (least as f32, greatest as f32);
    let missing = missing.map(|missing| missing as f32);
    // NaN is in no range.
    let fits = |number: f32| number >= least && number <= greatest && Some(number) != missing;
    let is_whole = |number: f32| (number as i32) as f32 == number;
    let stand_in = missing.unwrap_or(f32::NAN);
    let all = numbers.iter().fold(true, |all, number| {
        all & (fits(*number) & is_whole(*number) | (number.is_nan() & missing.is_some()))
    });
    if !all {
        let misfit = |number: &f32| {
            !(fits(*number) && is_whole(*number) || number.is_nan() && missing.is_some())
        };
        return Err(numbers.iter().position(misfit).unwrap_or(0));
    }
    let filled = |number: &f32| if number.is_nan() { stand_in } else { *number } as i32;
    match dtype.size() {
        1 => out.iter_mut().zip(numbers).for_each(|(out, number)| *out = filled(number) as u8),
        _ => {
            let (pairs, _) = out.as_chunks_mut::<2>();
            let pairs = pairs.iter_mut().zip(numbers);
            pairs.for_each(|(out, number)| *out = (filled(number) as u16).to_le_bytes());
        }
    }
    Ok(())
}

/// The error for a value at a row, column and band that cannot be kept as an integer of `dtype`.
pub fn refuse(
    dtype: DType,
    missing: Option<i64>,
    (row, column, band): (usize, usize, usize),
    value: f32,
) -> Error {
    let pixel = format!("band {band}, row {row}, column {column}");
    let what = if value.is_nan() {
        format!("{pixel} has no value, and no integer of {dtype} is free to stand for it")
    } else if missing == Some(value as i64) {
        format!("{pixel}: the value {value} would be taken for a missing one, which {value} marks")
    } else {
        format!("{pixel}: the value {value} does not fit {dtype}")
    };
    Error::new(ErrorKind::Overflow, what).with_remedy(remedy![
        "pass ",
        Opt::Dtype.to("float16"),
        ", or another type"
    ])
}

/// Reads integers and floats of a packed image as double-precision numbers, replacing the content
/// of `numbers`. Missing values are not marked.
pub fn read(bytes: &[u8], dtype: DType, numbers: &mut Vec<f64>) {
    numbers.clear();
    let (pairs, _) = bytes.as_chunks::<2>();
    match dtype {
        DType::U8 => numbers.extend(bytes.iter().map(|byte| f64::from(*byte))),
        DType::I16 => {
            numbers.extend(pairs.iter().map(|pair| f64::from(i16::from_le_bytes(*pair))));
        }
        DType::U16 => {
            numbers.extend(pairs.iter().map(|pair| f64::from(u16::from_le_bytes(*pair))));
        }
        DType::F16 => numbers.extend(pairs.iter().map(|pair| f16::from_le_bytes(*pair).to_f64())),
        _ => {
            let (singles, _) = bytes.as_chunks::<4>();
            numbers.extend(singles.iter().map(|single| f64::from(f32::from_le_bytes(*single))));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn integers_are_written_as_they_are() {
        for dtype in [DType::U8, DType::U16, DType::I16] {
            let (least, greatest) = dtype.integers().unwrap();
            let numbers: Vec<f32> = (least..=greatest).map(|number| number as f32).collect();
            let mut bytes = vec![0; numbers.len() * dtype.size()];
            write(&numbers, dtype, None, &mut bytes).unwrap();
            let mut back = Vec::new();
            read(&bytes, dtype, &mut back);
            assert!(back.iter().zip(&numbers).all(|(back, number)| *back == f64::from(*number)));
        }
    }

    #[test]
    fn numbers_that_cannot_be_kept_are_found() {
        let mut out = [0; 6];
        let mut write = |numbers: [f32; 3], missing| write(&numbers, DType::I16, missing, &mut out);
        assert_eq!(write([1.0, f32::NAN, -5.0], Some(-1)), Ok(()));
        assert_eq!(write([1.0, f32::NAN, -5.0], None), Err(1));
        assert_eq!(write([1.0, -1.0, 0.0], Some(-1)), Err(1));
        assert_eq!(write([1.0, 2.0, 32768.0], None), Err(2));
        assert_eq!(write([0.5, 2.0, 3.0], None), Err(0));
        assert_eq!(write([1.0, f32::NAN, -5.0], Some(-1)), Ok(()));
        assert_eq!(out, [1, 0, 255, 255, 251, 255]);
        assert_eq!((fill(DType::U8, 255), fill(DType::I16, -2)), ([255; 4], [254, 255, 254, 255]));
    }
}
