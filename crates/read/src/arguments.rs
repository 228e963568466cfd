//! Options of a loader as they are typed on a command line.

use clap::builder::{BoolValueParser, PossibleValuesParser, TypedValueParser};
use hsipack_format::arguments::numbers;
pub use hsipack_format::arguments::{count, one_of, one_of_or};

use crate::{Device, OnDamage, ShuffleWindow};

/// A number of bytes, with an optional unit, or 0.
pub fn bytes(text: &str) -> Result<u64, String> {
    if text == "0" {
        return Ok(0);
    }
    hsipack_format::arguments::bytes(text).map(|bytes| bytes as u64)
}

/// Band numbers and ranges, counted from 0, both ends included: `0,3,10-20`.
pub fn bands(text: &str) -> Result<Vec<usize>, String> {
    let numbers = numbers(text, "band or range of bands")?;
    Ok(numbers.into_iter().map(|number| number as usize).collect())
}

/// `auto`, `all`, or a number of bytes.
pub fn shuffle_window(text: &str) -> Result<ShuffleWindow, String> {
    match text {
        "auto" => Ok(ShuffleWindow::Auto),
        "all" => Ok(ShuffleWindow::All),
        _ => match bytes(text) {
            Ok(bytes) if bytes > 0 => Ok(ShuffleWindow::Bytes(bytes)),
            _ => Err("give auto, all, or a number of bytes, such as 8GiB".to_owned()),
        },
    }
}

/// `cpu`, `cuda`, or `cuda:N`.
pub fn device(text: &str) -> Result<Device, String> {
    let number = match text {
        "cpu" => return Ok(Device::Cpu),
        "cuda" => Some(0),
        _ => text.strip_prefix("cuda:").and_then(|number| number.parse().ok()),
    };
    number.map(Device::Cuda).ok_or_else(|| "give cpu, cuda, or a number, such as cuda:1".to_owned())
}

/// Whether the ring's memory is locked: `locked` or `plain`.
pub fn is_locked() -> impl TypedValueParser<Value = bool> {
    PossibleValuesParser::new(["locked", "plain"]).map(|kind| kind == "locked")
}

/// The flag that skips damaged samples.
pub fn on_damage() -> impl TypedValueParser<Value = OnDamage> {
    BoolValueParser::new().map(|skip| if skip { OnDamage::Skip } else { OnDamage::Error })
}

#[cfg(test)]
mod tests {
    use clap::{Args, Command, FromArgMatches};

    use crate::plan::Order;
    use crate::{
        CacheKind, DecodePlace, Device, DeviceCache, DeviceOptions, LoaderOptions, OnDamage,
        ShuffleWindow,
    };

    fn parsed(words: &[&str]) -> Result<LoaderOptions, clap::Error> {
        let command = LoaderOptions::augment_args(Command::new("read").no_binary_name(true));
        LoaderOptions::from_arg_matches(&command.try_get_matches_from(words)?)
    }

    #[test]
    fn without_flags_all_options_have_their_defaults() {
        let (typed, default) = (parsed(&[]).unwrap(), LoaderOptions::default());
        let json = |options: &LoaderOptions| serde_json::to_value(options).unwrap();
        assert_eq!(json(&typed), json(&default));
        assert_eq!(format!("{typed:?}"), format!("{default:?}"));
    }

    #[test]
    fn flags_set_the_options_of_their_names() {
        let typed = parsed(&[
            "-b",
            "3",
            "--order",
            "balanced",
            "--split",
            "a,b",
            "--bands",
            "4,0-1",
            "-t",
            "2",
            "--memory",
            "plain",
            "--no-huge-pages",
            "--cache",
            "decoded",
            "--cache-size",
            "2kB",
            "--shuffle-window",
            "1KiB",
            "--skip-damaged",
            "--rank",
            "1",
            "--world-size",
            "2",
            "--decode",
            "device",
        ]);
        let typed = typed.unwrap();
        assert_eq!((typed.plan.batch_size, typed.plan.order), (3, Order::ClassBalanced));
        assert_eq!((typed.share.rank, typed.share.world_size), (1, 2));
        assert_eq!(typed.splits, ["a", "b"]);
        assert_eq!((typed.bands, typed.threads), (Some(vec![4, 0, 1]), 2));
        assert!(!typed.memory.locked && typed.memory.no_huge_pages);
        assert_eq!((typed.cache, typed.cache_bytes), (CacheKind::Decoded, 2000));
        assert_eq!(typed.shuffle_window, ShuffleWindow::Bytes(1024));
        assert_eq!((typed.on_damage, typed.decode), (OnDamage::Skip, DecodePlace::Device));
        for wrong in [["-b", "0"], ["--slots", "1"], ["--order", "fast"], ["--rank", "1"]] {
            assert!(parsed(&wrong).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn flags_set_the_options_of_the_device() {
        let parsed = |words: &[&str]| {
            let command = DeviceOptions::augment_args(Command::new("read").no_binary_name(true));
            DeviceOptions::from_arg_matches(&command.try_get_matches_from(words)?)
        };
        assert_eq!(parsed(&[]).unwrap(), DeviceOptions::default());
        let words =
            ["--device", "cuda:2", "--device-cache", "compressed", "--device-cache-size", "2kB"];
        let typed = parsed(&words).unwrap();
        assert_eq!((typed.device, typed.device_cache), (Device::Cuda(2), DeviceCache::Compressed));
        assert_eq!(typed.device_cache_bytes, 2000);
        for wrong in [["--device", "gpu"], ["--device", "cuda:x"], ["--device-cache", "all"]] {
            assert!(parsed(&wrong).is_err(), "{wrong:?}");
        }
    }
}
