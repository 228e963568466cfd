//! Values of options as people type them on a command line: names with hyphens, sizes with units,
//! lists with ranges.

use std::fmt::Display;
use std::ops::RangeInclusive;
use std::time::Duration;

use clap::builder::{PossibleValue, PossibleValuesParser, RangedU64ValueParser, TypedValueParser};

use crate::samples::Condition;

/// Parses one of these values of a library's option. Names are those of the library, with hyphens
/// between words.
pub fn one_of<T>(values: &'static [T]) -> impl TypedValueParser<Value = T>
where
    T: Display + Copy + Send + Sync + 'static,
{
    one_of_or(values, &[])
}

/// Like [`one_of`], with other words for some values, which the help does not show.
pub fn one_of_or<T>(
    values: &'static [T],
    others: &'static [(&'static str, T)],
) -> impl TypedValueParser<Value = T>
where
    T: Display + Copy + Send + Sync + 'static,
{
    let possible = values.iter().map(|value| {
        let others = others.iter().filter(|(_, same)| typed(same) == typed(value));
        PossibleValue::new(typed(value)).aliases(others.map(|(word, _)| *word))
    });
    PossibleValuesParser::new(possible).map(|word| {
        let named = values.iter().find(|value| typed(value) == word);
        let other = || Some(&others.iter().find(|(other, _)| *other == word)?.1);
        *named.or_else(other).expect("one of the possible values")
    })
}

/// A value of an option as it is typed: `groups-spread` for `groups_spread`.
pub fn typed(value: impl Display) -> String {
    value.to_string().replace('_', "-")
}

/// A number of bytes with an optional unit: `512MiB`, `1GB`, `4096`.
///
/// # Errors
/// If the text is no such number.
pub fn bytes(text: &str) -> Result<usize, String> {
    let split = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(split);
    let factor = match unit.trim().to_ascii_lowercase().as_str() {
        "" | "b" => 1.0,
        "k" | "kb" => 1e3,
        "m" | "mb" => 1e6,
        "g" | "gb" => 1e9,
        "kib" => 1024.0,
        "mib" => 1024.0 * 1024.0,
        "gib" => 1024.0 * 1024.0 * 1024.0,
        other => {
            return Err(format!(
                "{other:?} is not a unit of bytes; use kB, MB, GB, KiB, MiB or GiB"
            ));
        }
    };
    let value: f64 =
        number.parse().map_err(|_| "give a number of bytes, such as 512MiB".to_owned())?;
    if value * factor >= 1.0 && value * factor < 1e18 {
        Ok((value * factor) as usize)
    } else {
        Err("out of range".into())
    }
}

/// Bytes per second, with a unit: `1000MB/s`. The `/s` is optional.
///
/// # Errors
/// If the text is no such rate.
pub fn rate(text: &str) -> Result<u64, String> {
    let size = text.strip_suffix("/s").unwrap_or(text).trim_end();
    if size.ends_with(|last: char| last.is_ascii_digit() || last == '.') {
        return Err("the unit is missing; give a rate such as 1000MB/s".to_owned());
    }
    let rate = bytes(size).map(|rate| rate as u64);
    rate.map_err(|error| format!("{error}; give a rate such as 1000MB/s"))
}

/// A time with a unit: `50ms`, `2s`.
///
/// # Errors
/// If the text is no such time.
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

/// A whole number.
pub fn count(range: RangeInclusive<u64>) -> RangedU64ValueParser<usize> {
    RangedU64ValueParser::new().range(range)
}

/// Numbers and ranges of numbers, both ends included: `0,3,10-20`. `what` names them in errors.
///
/// # Errors
/// If the text is no such list.
pub fn numbers(text: &str, what: &str) -> Result<Vec<u32>, String> {
    let mut numbers = Vec::new();
    for part in text.split(',') {
        let number = |text: &str| {
            text.trim().parse::<u32>().map_err(|_| format!("{part:?} is not a {what}"))
        };
        match part.split_once('-') {
            None => numbers.push(number(part)?),
            Some((first, last)) => {
                let (first, last) = (number(first)?, number(last)?);
                if first > last || last - first > 1_000_000 {
                    return Err(format!("{part:?} is not a {what}"));
                }
                numbers.extend(first..=last);
            }
        }
    }
    Ok(numbers)
}

/// Class ids and ranges of class ids, both ends included: `1,3,10-20`. No text is an empty list.
///
/// # Errors
/// If the text is no such list.
pub fn class_list(text: &str) -> Result<Vec<u32>, String> {
    if text.is_empty() {
        return Ok(Vec::new());
    }
    numbers(text, "class id or range of class ids")
}

/// A condition on samples: `label == 'urban' and cloud < 10`.
///
/// # Errors
/// If the text is no condition.
pub fn condition(text: &str) -> Result<Condition, String> {
    Condition::parse(text).map_err(|error| error.to_string())
}

/// Rows and columns of pixels: `64x48`, or `64` for a square.
///
/// # Errors
/// If the text is no such size.
pub fn pixels(text: &str) -> Result<[u32; 2], String> {
    let number = |part: &str| match part.parse() {
        Ok(0) | Err(_) => Err("give ROWSxCOLUMNS of at least 1, such as 64x64".to_owned()),
        Ok(number) => Ok(number),
    };
    match text.split_once(['x', 'X']) {
        Some((rows, columns)) => Ok([number(rows)?, number(columns)?]),
        None => number(text).map(|side| [side, side]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Compressor;

    #[test]
    fn names_are_typed_with_hyphens() {
        #[derive(Clone, Copy, Debug, PartialEq)]
        enum Side {
            FarLeft,
            Right,
        }
        crate::option_names!(Side, "side", { FarLeft => "far_left", Right => "right" });
        let parser = one_of_or(&Side::ALL, &[("left", Side::FarLeft)]);
        let command = clap::Command::new("test").arg(clap::Arg::new("side").value_parser(parser));
        let parsed = |word: &str| {
            let matches = command.clone().try_get_matches_from(["test", word])?;
            Ok::<_, clap::Error>(*matches.get_one::<Side>("side").unwrap())
        };
        for side in Side::ALL {
            assert_eq!(parsed(&typed(side)).unwrap(), side);
        }
        assert_eq!(parsed("left").unwrap(), Side::FarLeft);
        assert!(parsed("far_left").unwrap_err().to_string().contains("far-left"));
        let parser = one_of(&Compressor::ALL);
        let command = clap::Command::new("test").arg(clap::Arg::new("codec").value_parser(parser));
        let matches = command.try_get_matches_from(["test", "zstd"]).unwrap();
        assert_eq!(matches.get_one::<Compressor>("codec"), Some(&Compressor::Zstd));
    }

    #[test]
    fn sizes_have_units_and_lists_have_ranges() {
        assert_eq!(bytes("512MiB"), Ok(512 << 20));
        assert_eq!(bytes("1.5 GB"), Ok(1_500_000_000));
        assert!(bytes("5 apples").is_err() && bytes("-1").is_err());
        assert_eq!(rate("1000MB/s"), Ok(1_000_000_000));
        assert_eq!((rate("5 B/s"), rate("1.5kB")), (Ok(5), Ok(1500)));
        for bad in ["1", "1000", "1.", "1/s", "1000 /s"] {
            assert!(rate(bad).unwrap_err().contains("the unit is missing"), "{bad}");
        }
        assert_eq!(duration("1.5ms"), Ok(Duration::from_micros(1500)));
        for bad in ["", "5", "ms", "-1s", "1h", "1e400s"] {
            assert!(duration(bad).is_err(), "{bad}");
        }
        assert_eq!(pixels("64x48"), Ok([64, 48]));
        assert_eq!(pixels("64"), Ok([64, 64]));
        assert_eq!(numbers("3,0-2", "band"), Ok(vec![3, 0, 1, 2]));
        for bad in ["", "0", "1x0", "x", "1x", "-1", "1x1x1"] {
            assert!(pixels(bad).is_err(), "{bad}");
        }
        assert_eq!((class_list("1,3-4"), class_list("")), (Ok(vec![1, 3, 4]), Ok(Vec::new())));
        assert!(class_list("x").unwrap_err().contains("is not a class id"));
        for bad in ["", "3-1", "a"] {
            assert!(numbers(bad, "band").unwrap_err().contains("is not a band"), "{bad}");
        }
    }
}
