//! How option values are spelled.

use std::time::Duration;

use hsipack_format::arguments::numbers;
pub use hsipack_format::arguments::{bytes, one_of, pixels, typed};
use hsipack_format::samples::Condition;

/// Bytes per second, with a unit: `1000MB/s`. The `/s` is optional.
pub fn rate(text: &str) -> Result<u64, String> {
    let size = text.strip_suffix("/s").unwrap_or(text).trim_end();
    if size.ends_with(|last: char| last.is_ascii_digit() || last == '.') {
        return Err("the unit is missing; give a rate such as 1000MB/s".to_owned());
    }
    let rate = bytes(size).map(|rate| rate as u64);
    rate.map_err(|error| format!("{error}; give a rate such as 1000MB/s"))
}

/// A time with a unit: `50ms`, `2s`.
pub fn duration(text: &str) -> Result<Duration, String> {
    let bad = || "give a time with its unit, such as 50ms or 2s".to_owned();
    let split = text.find(|c: char| !c.is_ascii_digit() && c != '.').ok_or_else(bad)?;
    let (number, unit) = text.split_at(split);
    let seconds = match unit.trim() {
        "us" | "µs" => 1e-6,
        "ms" => 1e-3,
        "s" => 1.0,
        "min" => 60.0,
        _ => return Err(bad()),
    };
    let value: f64 = number.parse().map_err(|_| bad())?;
    Duration::try_from_secs_f64(value * seconds).map_err(|_| "out of range".to_owned())
}

/// Rows, columns and bands of a cube: `480x640x100`.
pub fn cube(text: &str) -> Result<[u32; 3], String> {
    let sizes: Option<Vec<u32>> = text
        .split(['x', 'X'])
        .map(|part| part.parse().ok().filter(|size| (1..=1 << 20).contains(size)))
        .collect();
    sizes
        .and_then(|sizes| sizes.try_into().ok())
        .ok_or_else(|| "give ROWSxCOLUMNSxBANDS of at least 1 each, such as 480x640x100".to_owned())
}

/// Class ids and ranges of class ids, both ends included: `1,3,10-20`.
pub fn classes(text: &str) -> Result<ClassList, String> {
    numbers(text, "class id or range of class ids").map(ClassList)
}

/// A condition on samples: `label == 'urban' and cloud < 10`.
pub fn condition(text: &str) -> Result<Condition, String> {
    Condition::parse(text).map_err(|error| error.to_string())
}

/// Class ids, given as one value.
#[derive(Clone, Debug)]
pub struct ClassList(pub Vec<u32>);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_read_as_spelled() {
        assert_eq!(rate("1000MB/s"), Ok(1_000_000_000));
        assert_eq!((rate("5 B/s"), rate("1.5kB")), (Ok(5), Ok(1500)));
        for bad in ["1", "1000", "1.", "1/s", "1000 /s"] {
            assert!(rate(bad).unwrap_err().contains("the unit is missing"), "{bad}");
        }
        assert_eq!(duration("1.5ms"), Ok(Duration::from_micros(1500)));
        assert_eq!(cube("48x64x10"), Ok([48, 64, 10]));
        for bad in ["", "4", "4x4", "4x4x0", "4x4x4x4", "4x4xa"] {
            assert!(cube(bad).is_err(), "{bad}");
        }
        for bad in ["", "5", "ms", "-1s", "1h", "1e400s"] {
            assert!(duration(bad).is_err(), "{bad}");
        }
    }
}
