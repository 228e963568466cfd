//! Feature `clap`: the choice of bands as it is typed on a command line.

use clap::{ArgMatches, Args, Command, Error, FromArgMatches};
use hsipack_format::arguments::numbers;

use super::values::BandSelection;

/// [`BandSelection`] as two options.
#[derive(clap::Args)]
struct BandArguments {
    /// Bands to keep, counted from 0, in this order, such as 0,5,10-20 [default: all]
    #[arg(long, value_name = "LIST", value_parser = bands, conflicts_with = "wavelengths", help_heading = "Values", display_order = 13)]
    bands: Option<BandSelection>,
    /// Bands to keep, by centre wavelength in nm, both ends included, such as 450-700,1500-1800
    /// [default: all]
    #[arg(long, value_name = "RANGES", value_parser = wavelengths, help_heading = "Values", display_order = 14)]
    wavelengths: Option<BandSelection>,
}

impl FromArgMatches for BandSelection {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, Error> {
        let arguments = BandArguments::from_arg_matches(matches)?;
        Ok(arguments.bands.or(arguments.wavelengths).unwrap_or(Self::All))
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
