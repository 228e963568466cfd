//! Feature `clap`: options as they are typed on a command line, where the types of fields do not say it.

use clap::builder::RangedU64ValueParser;
use clap::{ArgMatches, Args, Command, Error, FromArgMatches};
use hsipack_format::arguments::numbers;

use super::options::BandSelection;

/// [`BandSelection`] as two options.
#[derive(clap::Args)]
struct BandArguments {
    /// Bands to keep, counted from 0, in this order, such as 0,5,10-20 [default: all]
    #[arg(long, value_name = "LIST", value_parser = bands, conflicts_with = "wavelengths", help_heading = "Values", display_order = 13)]
    bands: Option<BandSelection>,
    /// Bands to keep, by centre wavelength in nm, both ends included, such as 450-700,1500-1800 [default: all]
    #[arg(long, value_name = "RANGES", value_parser = wavelengths, help_heading = "Values", display_order = 14)]
    wavelengths: Option<BandSelection>,
}

impl FromArgMatches for BandSelection {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, Error> {
        let given = BandArguments::from_arg_matches(matches)?;
        Ok(given.bands.or(given.wavelengths).unwrap_or(Self::All))
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

impl Args for BandSelection {
    fn augment_args(command: Command) -> Command {
        BandArguments::augment_args(command)
    }

    fn augment_args_for_update(command: Command) -> Command {
        BandArguments::augment_args_for_update(command)
    }
}

/// Band numbers and ranges, counted from 0, both ends included: `0,3,10-20`.
fn bands(text: &str) -> Result<BandSelection, String> {
    let numbers = numbers(text, "band or range of bands")?;
    Ok(BandSelection::Numbers(numbers.into_iter().map(|number| number as usize).collect()))
}

/// Ranges in nm, both ends included: `450-700,1500-1800`.
fn wavelengths(text: &str) -> Result<BandSelection, String> {
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

/// The number that marks missing values.
pub(in crate::convert) fn nodata(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(number) if !f64::is_nan(number) => Ok(number),
        _ => Err("give the stored number that marks missing values, such as -9999".to_owned()),
    }
}

/// A number of threads.
pub(in crate::convert) fn threads() -> RangedU64ValueParser<usize> {
    RangedU64ValueParser::new().range(1..=1024)
}

#[cfg(test)]
mod tests {
    use hsipack_format::{Compressor, DType};

    use super::*;
    use crate::convert::{ChunkShape, ConvertOptions, Fill, KeepBits, Mode, Reference, Scale};

    fn parsed(flags: &[&str]) -> Result<ConvertOptions, clap::Error> {
        let command = ConvertOptions::augment_args(Command::new("convert").no_binary_name(true));
        let words = ["in", "-o", "out"].iter().chain(flags);
        ConvertOptions::from_arg_matches(&command.try_get_matches_from(words)?)
    }

    #[test]
    fn without_flags_all_options_have_their_defaults() {
        let default = ConvertOptions::new(vec!["in".to_owned()], "out");
        assert_eq!(parsed(&[]).unwrap().by_name(), default.by_name());
    }

    #[test]
    fn flags_set_the_options_of_their_names() {
        let typed = parsed(&[
            "--resume",
            "--append",
            "--chunk",
            "64x32",
            "--codec",
            "zstd",
            "--shard-size",
            "4kB",
            "--keep-bits",
            "7",
            "--bands",
            "3,0-2",
            "--dtype",
            "float32",
            "--scale",
            "0.5",
            "--fill",
            "-1",
            "--white",
            "auto",
            "-j",
            "3",
            "--mask",
            "organs=a.png",
            "--remap-classes",
            "2=3,liver=4",
            "--class-names",
            "3=liver",
            "--raw-values",
        ]);
        let typed = typed.unwrap();
        assert_eq!(typed.mode, Mode { resume: true, append: true });
        assert_eq!(typed.layout.chunk, Some(ChunkShape { rows: 64, columns: Some(32) }));
        assert_eq!((typed.layout.codec, typed.layout.shard_size), (Compressor::Zstd, 4000));
        assert_eq!(typed.values.bands, BandSelection::Numbers(vec![3, 0, 1, 2]));
        assert_eq!((typed.values.dtype(), typed.values.keep_bits), (DType::F32, KeepBits::Bits(7)));
        assert_eq!(typed.values.scale, Scale::Factor(0.5));
        assert_eq!(typed.values.fill, Fill::Value(-1.0));
        assert_eq!((&typed.values.white, typed.threads), (&Some(Reference::Auto), 3));
        assert!(typed.values.raw_values && !typed.values.drop_bad_bands);
        let masks = typed.with_classes().unwrap().mask;
        assert_eq!((masks[0].classes.len(), masks[0].class_names.len()), (2, 1));
        let ranges = parsed(&["--wavelengths", "450-700.5"]).unwrap().values.bands;
        assert_eq!(ranges, BandSelection::Wavelengths(vec![(450.0, 700.5)]));
        for wrong in [
            "--bands=",
            "--bands=3-1",
            "--bands=a",
            "--wavelengths=3",
            "--wavelengths=3-1",
            "--threads=0",
            "--level=10",
            "--chunk=a",
            "--mask-fill=1",
            "--remap-classes=1=2",
            "--shard-size=0",
            "--nodata=nan",
            "--nodata=error",
            "--dtype=int8",
            "--normalize=l3",
        ] {
            assert!(parsed(&[wrong]).is_err(), "{wrong}");
        }
        assert!(parsed(&["--bands", "1", "--wavelengths", "400-500"]).is_err());
    }
}
