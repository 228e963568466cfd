//! Feature `clap`: options as they are typed on a command line, where the types of fields do not
//! say it.

use std::path::PathBuf;

use clap::builder::{OsStringValueParser, RangedU64ValueParser, TypedValueParser};

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

/// A path that may be empty, because a file of options may give it.
pub(in crate::convert) fn path_or_none() -> impl TypedValueParser<Value = PathBuf> {
    OsStringValueParser::new().map(PathBuf::from)
}

#[cfg(test)]
mod tests {
    use clap::{Args, Command, FromArgMatches};
    use hsipack_format::{Compressor, DType};

    use crate::convert::{
        BandSelection, ChunkShape, ConvertOptions, Fill, KeepBits, Mode, Reference, Scale,
        ValueOptions,
    };

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
        // clap takes no exponents with a sign for negative numbers.
        let exponents = parsed(&["--nodata", "-3.4028234663852886e+38", "--fill", "-1e-3"]);
        let ValueOptions { nodata, fill, .. } = exponents.unwrap().values;
        assert_eq!((nodata, fill), (Some(f32::MIN.into()), Fill::Value(-1e-3)));
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
            "--nodata=--raw-values",
            "--dtype=int8",
            "--normalize=l3",
        ] {
            assert!(parsed(&[wrong]).is_err(), "{wrong}");
        }
        assert!(parsed(&["--bands", "1", "--wavelengths", "400-500"]).is_err());
    }
}
