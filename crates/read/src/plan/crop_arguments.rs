//! `--windows` as it is typed on a command line.

use clap::error::ErrorKind;
use clap::{Arg, ArgMatches, Args, Command, FromArgMatches};
use hsipack_format::arguments::pixels;

use super::crop_size::{CropKind, CropSize, WindowOption};

/// The argument has two values: `--windows random 64x64`. The command also has an argument `patch`.
impl Args for WindowOption {
    fn augment_args(command: Command) -> Command {
        let windows = Arg::new("windows").long("windows").num_args(2);
        let windows = windows.value_names(["random|center|grid", "ROWSxCOLUMNS"]);
        let windows = windows.conflicts_with("patch").help(
            "Read windows of this size in pixels: random ones, the center of each cube, or all of a grid over it \
             [default: whole cubes]",
        );
        command.arg(windows.long_help(
            "Read windows of this size in pixels: random ones, the center of each cube, or all of a grid over it \
             [default: whole cubes]\n\n\
             The last windows of a grid are moved back so that they end at the edge of the cube.",
        ))
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl FromArgMatches for WindowOption {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let Some(mut words) = matches.get_many::<String>("windows") else {
            return Ok(Self(None));
        };
        let (kind, size) = (words.next(), words.next());
        let (kind, size) = (kind.map_or("", String::as_str), size.map_or("", String::as_str));
        let parsed = kind.parse::<CropKind>().map_err(|error| error.to_string());
        let parsed = parsed.and_then(|kind| Ok(CropSize { kind, size: pixels(size)? }));
        parsed.map(|size| Self(Some(size))).map_err(|error| {
            let text = format!("invalid value for '--windows': {error}; such as random 64x64\n");
            clap::Error::raw(ErrorKind::ValueValidation, text)
        })
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use clap::{Arg, Args, Command, FromArgMatches};

    use crate::plan::{Crop, CropKind, WindowOption};

    #[test]
    fn windows_have_a_kind_and_a_size() {
        let parsed = |words: &[&str]| {
            let command = WindowOption::augment_args(Command::new("read").no_binary_name(true));
            let command = command.arg(Arg::new("patch").long("patch"));
            WindowOption::from_arg_matches(&command.try_get_matches_from(words)?)
        };
        assert_eq!(parsed(&[]).unwrap().crop(), Crop::Whole);
        let grid = parsed(&["--windows", "grid", "8x9"]).unwrap();
        assert!(grid.is(CropKind::Grid) && !grid.is(CropKind::Random));
        let [rows, columns] = [8, 9];
        let crop = Crop::Grid { rows, columns, row_step: 8, column_step: 9, pad: None };
        assert_eq!(grid.crop(), crop);
        let center = parsed(&["--windows", "center", "5"]).unwrap();
        assert_eq!(center.crop(), Crop::Centre { rows: 5, columns: 5 });
        for wrong in [
            &["--windows", "random"][..],
            &["--windows", "8x8", "random"],
            &["--windows", "middle", "8x8"],
            &["--windows", "random", "0x8"],
            &["--windows", "random", "8", "--patch", "9"],
        ] {
            let error = parsed(wrong).unwrap_err().to_string();
            assert!(error.contains("--windows"), "{wrong:?}: {error}");
        }
    }
}
