//! How option values are spelled.

use std::fmt::Display;
use std::time::Duration;

use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use hsipack_format::samples::Condition;
use hsipack_pack::convert::{BandSelection, ChunkShape, ClassName, MaskOption, NewClass, OldClass};
use hsipack_read::ShuffleWindow;

/// Parses one of these values of a library's option. Names are those of the library, with hyphens between words.
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

/// `ROWS` or `ROWSxCOLUMNS`.
pub fn chunk(text: &str) -> Result<ChunkShape, String> {
    let number = |part: &str| {
        part.parse().map_err(|_| "give ROWS or ROWSxCOLUMNS, such as 16 or 64x64".to_owned())
    };
    match text.split_once(['x', 'X']) {
        Some((rows, columns)) => {
            Ok(ChunkShape { rows: number(rows)?, columns: Some(number(columns)?) })
        }
        None => Ok(ChunkShape { rows: number(text)?, columns: None }),
    }
}

/// A number of bytes with an optional unit: `512MiB`, `1GB`, `4096`.
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

/// `auto`, `all`, or a number of bytes.
pub fn shuffle_window(text: &str) -> Result<ShuffleWindow, String> {
    match text {
        "auto" => Ok(ShuffleWindow::Auto),
        "all" => Ok(ShuffleWindow::All),
        _ => bytes(text)
            .map(|bytes| ShuffleWindow::Bytes(bytes as u64))
            .map_err(|_| "give auto, all, or a number of bytes, such as 8GiB".to_owned()),
    }
}

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

/// Rows and columns of pixels: `64x48`, or `64` for a square.
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

/// Band numbers and ranges, counted from 0, both ends included: `0,3,10-20`.
pub fn bands(text: &str) -> Result<BandSelection, String> {
    let numbers = numbers(text, "band or range of bands")?;
    Ok(BandSelection::Numbers(numbers.into_iter().map(|number| number as usize).collect()))
}

/// Class ids and ranges of class ids, both ends included: `1,3,10-20`.
pub fn classes(text: &str) -> Result<ClassList, String> {
    numbers(text, "class id or range of class ids").map(ClassList)
}

/// A class of a mask to pack, and its new id: `3=1`, `tumour=2`, `organs.tumour=2`, `*=255`.
pub fn new_class(text: &str) -> Result<NewClassArg, String> {
    let bad = || format!("{text:?}: give CLASS=ID, such as tumour=2, organs.3=1 or *=255");
    let (class, id) = text.rsplit_once('=').ok_or_else(bad)?;
    match (class.trim(), id.trim().parse()) {
        ("", _) => Err(bad()),
        (class, Ok(id)) => Ok(NewClassArg { class: class.to_owned(), id }),
        (_, Err(_)) => Err(format!("{text:?}: class ids are whole numbers from 0 to 65535")),
    }
}

/// A class as it was typed, with or without its mask's name and a dot before it, and its new id.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewClassArg {
    class: String,
    id: u16,
}

impl NewClassArg {
    /// Gives the class its new id.
    ///
    /// # Errors
    /// The errors of [`MaskOption::give_class`].
    pub fn give(&self, masks: &mut [MaskOption]) -> hsipack_format::Result<()> {
        let (mask, class) = of_mask(&self.class, masks);
        let new = NewClass { class: OldClass::of(&class), id: self.id };
        MaskOption::give_class(masks, mask.as_deref(), new)
    }
}

/// The mask that a class is of, if its name and a dot are before the class, and the class.
fn of_mask(text: &str, masks: &[MaskOption]) -> (Option<String>, String) {
    let split = masks.iter().find_map(|mask| {
        let class = text.strip_prefix(&mask.name)?.strip_prefix('.')?;
        Some((Some(mask.name.clone()), class.to_owned()))
    });
    split.unwrap_or_else(|| (None, text.to_owned()))
}

/// A class id of a mask and its name: `1=tumour`, `organs.2=spleen`.
pub fn class_name(text: &str) -> Result<ClassNameArg, String> {
    let (class, name) = match text.split_once('=') {
        Some((class, name)) if !class.trim().is_empty() && !name.trim().is_empty() => (class, name),
        _ => return Err(format!("{text:?}: give ID=NAME, such as 1=tumour or organs.2=spleen")),
    };
    Ok(ClassNameArg { class: class.trim().to_owned(), name: name.trim().to_owned() })
}

/// A class id as it was typed, with or without its mask's name and a dot before it, and the name of the class.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClassNameArg {
    class: String,
    name: String,
}

impl ClassNameArg {
    /// Names the class.
    ///
    /// # Errors
    /// If the class is not an id, and the errors of [`MaskOption::name_class`].
    pub fn give(&self, masks: &mut [MaskOption]) -> hsipack_format::Result<()> {
        let (mask, class) = of_mask(&self.class, masks);
        let id = class.parse().map_err(|_| {
            hsipack_format::Error::conflict(format!("{class:?} is not a class id"))
                .with_remedy("give a whole number from 0 to 65535")
        })?;
        let name = self.name.clone();
        MaskOption::name_class(masks, mask.as_deref(), ClassName { id, name })
    }
}

/// A condition on samples: `label == 'urban' and cloud < 10`.
pub fn condition(text: &str) -> Result<Condition, String> {
    Condition::parse(text).map_err(|error| error.to_string())
}

/// Class ids, given as one value.
#[derive(Clone, Debug)]
pub struct ClassList(pub Vec<u32>);

fn numbers(text: &str, what: &str) -> Result<Vec<u32>, String> {
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

/// Ranges in nm, both ends included: `450-700,1500-1800`.
pub fn wavelengths(text: &str) -> Result<BandSelection, String> {
    let ranges = text.split(',').map(|part| {
        let bad = || format!("{part:?} is not a range of wavelengths such as 450-700");
        let (low, high) = part.split_once('-').ok_or_else(bad)?;
        let number = |text: &str| {
            text.trim().parse::<f64>().ok().filter(|nm| nm.is_finite()).ok_or_else(bad)
        };
        let (low, high) = (number(low)?, number(high)?);
        if low <= high { Ok((low, high)) } else { Err(bad()) }
    });
    ranges.collect::<Result<_, _>>().map(BandSelection::Wavelengths)
}

/// `PATTERN`, `NAME=PATTERN` or `NAME:LAYER=PATTERN`.
pub fn mask(text: &str) -> Result<MaskOption, String> {
    let plain = |word: &str| {
        !word.is_empty() && word.chars().all(|c| c.is_alphanumeric() || "_-.:# ".contains(c))
    };
    let (name, pattern) = match text.split_once('=') {
        Some((name, pattern)) if plain(name) => (name, pattern),
        _ => ("mask", text),
    };
    if pattern.is_empty() {
        return Err("the pattern is empty".into());
    }
    let (name, layer) = match name.split_once(':') {
        Some((name, layer)) => (name, Some(layer.to_owned())),
        None => (name, None),
    };
    Ok(MaskOption { layer, ..MaskOption::new(name, pattern) })
}

#[cfg(test)]
mod tests {
    use hsipack_read::plan::Order;

    use super::*;

    #[test]
    fn values_of_libraries_are_typed_with_hyphens() {
        let command = clap::Command::new("read")
            .arg(clap::Arg::new("order").long("order").value_parser(one_of(&Order::ALL)));
        for order in Order::ALL {
            let words = ["read", "--order", &typed(order)];
            let matches = command.clone().try_get_matches_from(words).unwrap();
            assert_eq!(matches.get_one::<Order>("order"), Some(&order));
        }
        let error = command.try_get_matches_from(["read", "--order", "groups_spread"]).unwrap_err();
        assert!(error.to_string().contains("groups-spread"), "{error}");
        let parser = one_of_or(&Order::ALL, &[("balanced", Order::ClassBalanced)]);
        let command = clap::Command::new("read").arg(clap::Arg::new("order").value_parser(parser));
        let matches = command.try_get_matches_from(["read", "balanced"]).unwrap();
        assert_eq!(matches.get_one::<Order>("order"), Some(&Order::ClassBalanced));
    }

    #[test]
    fn values_are_read_as_spelled() {
        assert_eq!(chunk("64x32"), Ok(ChunkShape { rows: 64, columns: Some(32) }));
        assert_eq!(bytes("512MiB"), Ok(512 << 20));
        assert_eq!(bytes("1.5 GB"), Ok(1_500_000_000));
        assert_eq!(bands("3,0-2"), Ok(BandSelection::Numbers(vec![3, 0, 1, 2])));
        assert_eq!(wavelengths("450-700.5"), Ok(BandSelection::Wavelengths(vec![(450.0, 700.5)])));
        assert_eq!(rate("1000MB/s"), Ok(1_000_000_000));
        assert_eq!((rate("5 B/s"), rate("1.5kB")), (Ok(5), Ok(1500)));
        for bad in ["1", "1000", "1.", "1/s", "1000 /s"] {
            assert!(rate(bad).unwrap_err().contains("the unit is missing"), "{bad}");
        }
        assert_eq!(duration("1.5ms"), Ok(Duration::from_micros(1500)));
        assert_eq!(pixels("64x48"), Ok([64, 48]));
        assert_eq!(pixels("64"), Ok([64, 64]));
        assert_eq!(cube("48x64x10"), Ok([48, 64, 10]));
        for bad in ["", "4", "4x4", "4x4x0", "4x4x4x4", "4x4xa"] {
            assert!(cube(bad).is_err(), "{bad}");
        }
        for bad in ["", "0", "1x0", "x", "1x", "-1", "1x1x1"] {
            assert!(pixels(bad).is_err(), "{bad}");
        }
        for bad in ["", "5", "ms", "-1s", "1h", "1e400s"] {
            assert!(duration(bad).is_err(), "{bad}");
        }
        for bad in ["", "3-1", "a"] {
            assert!(bands(bad).is_err() && wavelengths(bad).is_err(), "{bad}");
        }
        assert!(bytes("5 apples").is_err() && bytes("-1").is_err());
    }

    #[test]
    fn classes_have_masks_if_these_are_named() {
        let mut masks = [mask("organs=a.png").unwrap(), mask("b.c=a.png").unwrap()];
        for text in ["organs.tumour=3", "b.c.*=255", "organs.7 = 0"] {
            new_class(text).unwrap().give(&mut masks).unwrap();
        }
        let class = |text, id| NewClass { class: OldClass::of(text), id };
        assert_eq!(masks[0].classes, [class("tumour", 3), class("7", 0)]);
        assert_eq!(masks[1].classes, [class("*", 255)]);
        assert!(new_class("tumour=3").unwrap().give(&mut masks).is_err());
        for bad in ["", "3", "=3", "a=", "a=-1", "a=65536", "a=b"] {
            assert!(new_class(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn class_names_have_masks_if_these_are_named() {
        let mut masks = [mask("organs=a.png").unwrap(), mask("b.c=a.png").unwrap()];
        for text in ["organs.3=tumour", "b.c.0=a=b", "organs.7 = left lung "] {
            class_name(text).unwrap().give(&mut masks).unwrap();
        }
        let class = |id, name: &str| ClassName { id, name: name.to_owned() };
        assert_eq!(masks[0].class_names, [class(3, "tumour"), class(7, "left lung")]);
        assert_eq!(masks[1].class_names, [class(0, "a=b")]);
        for bad in ["3=tumour", "organs.x=tumour", "organs.65536=tumour", "organs.3=fat"] {
            assert!(class_name(bad).unwrap().give(&mut masks).is_err(), "{bad}");
        }
        for bad in ["", "3", "=3", "3="] {
            assert!(class_name(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn masks_have_names_and_layers() {
        let parts = |text| mask(text).map(|mask| (mask.name, mask.layer, mask.pattern));
        assert_eq!(parts("{dir}/{stem}.png"), Ok(("mask".into(), None, "{dir}/{stem}.png".into())));
        assert_eq!(parts("organs=a.png"), Ok(("organs".into(), None, "a.png".into())));
        assert_eq!(parts("t:bone=a.png"), Ok(("t".into(), Some("bone".into()), "a.png".into())));
        assert_eq!(parts("/a=b/{stem}.png"), Ok(("mask".into(), None, "/a=b/{stem}.png".into())));
    }
}
