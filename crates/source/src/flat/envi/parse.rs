//! The header of an ENVI file: `key = value` lines below a first line `ENVI`.
//!
//! [`parse`] is pure: it turns bytes into a consistent [`Header`] (no axis is empty, sizes do not
//! overflow, every list is as long as it should be). If the layout contradicts itself, that is an
//! error. Other contradictory entries are dropped, with a note.
//!
//! ```text
//! ENVI
//! ; a comment, also inside braces
//! samples = 43
//! wavelength units = nm
//! wavelength = {366.551,
//!  367.656}
//! ```

use hsipack_format::{CubeShape, DType, Error, Result};

use super::bands::{class_colors, class_names, good_bands, names, spectral_axis};
use super::fields::{Fields, number, shorten, tokens};
use super::header::{Header, Interleave};
use super::map_info;
use crate::container::plain;
use crate::flat::FlatSource;
use crate::meaning::value_unit::{unit_in_title, value_unit};
use crate::meaning::{missing, scaling};
use crate::spectrum::spectrum_text::number_list;
use crate::text::decode;
use crate::{Exposure, Scaling};

/// Reads an ENVI header.
///
/// # Errors
/// If the text is not an ENVI header, lacks required keys (the error lists all of them),
/// contradicts itself about the layout of the data, or does not describe an image of real numbers.
#[doc(hidden)]
pub fn parse(bytes: &[u8]) -> Result<Header> {
    let fields = Fields::parse(&decode(bytes))?;
    let mut notes = fields.contradictions()?;
    let kind = file_type(&fields, &mut notes)?;
    require_keys(&fields)?;
    refuse_frame_offsets(&fields)?;
    let shape = shape(&fields)?;
    let dtype = dtype(fields.whole("data type")?.unwrap_or(0))?;
    let offset = fields.whole("header offset")?.unwrap_or(0);
    let len = FlatSource::data_len(shape, dtype).and_then(|len| len.checked_add(offset));
    if len.is_none() {
        return Err(Error::malformed(format!("a cube of {shape} {dtype} is impossibly large"))
            .with_remedy("correct lines, samples and bands"));
    }
    let band_names = names(&fields, "band names", "bands", shape.bands, &mut notes);
    let (wavelength, fwhm) = spectral_axis(&fields, shape.bands, band_names.as_deref(), &mut notes);
    let unit = unit(&fields, wavelength.is_some());
    note_unused_calibration(&fields, &mut notes);
    Ok(Header {
        format: "ENVI",
        shape,
        dtype,
        interleave: interleave(&fields)?,
        big_endian: byte_order(&fields, dtype, &mut notes)?,
        offset,
        compressed: fields.whole("file compression")?.unwrap_or(0) != 0,
        classification: kind == FileType::Classification,
        of_tiff: kind == FileType::Tiff,
        padding: None,
        wavelength,
        fwhm,
        good_bands: good_bands(&fields, shape.bands, &mut notes),
        band_names,
        class_names: class_names(&fields, &mut notes),
        class_colors: class_colors(&fields),
        ignore_value: ignore_value(&fields, dtype, &mut notes),
        scaling: scaling_of(&fields, shape.bands, &mut notes),
        exposure: exposure(&fields),
        unit,
        geo: map_info::geo(&fields, &mut notes),
        notes,
    })
}

/// The kinds of images that headers describe.
#[derive(Clone, Copy, PartialEq)]
enum FileType {
    Standard,
    Classification,
    Tiff,
}

const SPECTRAL_LIBRARY: &str = "envi spectral library";

/// Whether a header is of a spectral library.
pub(super) fn is_spectral_library(bytes: &[u8]) -> bool {
    let is_library = |fields: Fields| {
        fields.word("file type").is_some_and(|text| text.eq_ignore_ascii_case(SPECTRAL_LIBRARY))
    };
    Fields::parse(&decode(bytes)).is_ok_and(is_library)
}

/// The kind of the image. An error if the header does not describe an image.
fn file_type(fields: &Fields, notes: &mut Vec<String>) -> Result<FileType> {
    let Some(text) = fields.word("file type") else { return Ok(FileType::Standard) };
    match text.to_lowercase().as_str() {
        "envi" | "envi standard" => Ok(FileType::Standard),
        "envi classification" => Ok(FileType::Classification),
        "tiff" | "tif" | "geotiff" => Ok(FileType::Tiff),
        SPECTRAL_LIBRARY => Err(Error::unsupported(
            "an ENVI spectral library: a table of single spectra, not an image",
        )
        .with_remedy(
            "give an image cube; to pack the spectra as cubes of one pixel, write them as a CSV with a spectrum in each row and the wavelengths as header",
        )),
        other if other.starts_with("envi meta") || other.starts_with("envi virtual") => {
            Err(Error::unsupported(format!(
                "file type is '{}': the header only points to other files",
                shorten(text)
            ))
            .with_remedy("give those files, or save the image as ENVI Standard"))
        }
        _ => {
            notes.push(format!("file type is '{}'; read as ENVI Standard", shorten(text)));
            Ok(FileType::Standard)
        }
    }
}

/// Refuses a header that lacks required keys. One error names all of them.
fn require_keys(fields: &Fields) -> Result<()> {
    // With a single band all interleaves are the same.
    let single_band = matches!(fields.whole("bands"), Ok(Some(1)));
    let missing: Vec<String> = ["lines", "samples", "bands", "data type", "interleave"]
        .into_iter()
        .filter(|key| fields.word(key).is_none() && !(*key == "interleave" && single_band))
        .map(|key| format!("`{key}`"))
        .collect();
    if missing.is_empty() {
        return Ok(());
    }
    let missing = missing.join(", ");
    Err(Error::malformed(format!("the header lacks {missing}"))
        .with_remedy(format!("add {missing} to the header, or copy it again")))
}

fn refuse_frame_offsets(fields: &Fields) -> Result<()> {
    for key in ["major frame offsets", "minor frame offsets"] {
        let Some(text) = fields.get(key) else { continue };
        if !tokens(text).all(|token| number(token) == Some(0.0)) {
            return Err(Error::unsupported(format!(
                "`{key}` is {{{}}}: there are bytes between the frames of the image",
                shorten(text)
            ))
            .with_remedy("save the image without frame offsets"));
        }
    }
    Ok(())
}

fn shape(fields: &Fields) -> Result<CubeShape> {
    let axis = |key| -> Result<usize> {
        let length = fields.whole(key)?.unwrap_or(0);
        match usize::try_from(length) {
            Ok(0) => Err(Error::malformed(format!("`{key}` is 0: there is no image"))
                .with_remedy(format!("correct `{key}` in the header"))),
            Ok(length) => Ok(length),
            Err(_) => Err(Error::malformed(format!("`{key}` is {length}, impossibly large"))),
        }
    };
    Ok(CubeShape::new(axis("lines")?, axis("samples")?, axis("bands")?))
}

fn dtype(code: u64) -> Result<DType> {
    Ok(match code {
        1 => DType::U8,
        2 => DType::I16,
        3 => DType::I32,
        4 => DType::F32,
        5 => DType::F64,
        12 => DType::U16,
        13 => DType::U32,
        14 => DType::I64,
        15 => DType::U64,
        6 | 9 => {
            return Err(Error::unsupported(format!("data type {code}: complex numbers"))
                .with_remedy("save the magnitude or the real part as data type 4"));
        }
        _ => {
            return Err(Error::malformed(format!("data type {code} does not exist"))
                .with_remedy("use 1, 2, 3, 4, 5, 12, 13, 14 or 15"));
        }
    })
}

fn interleave(fields: &Fields) -> Result<Interleave> {
    // Only the header of a single band may lack the interleave.
    let Some(word) = fields.word("interleave") else { return Ok(Interleave::Bsq) };
    Interleave::ALL
        .into_iter()
        .find(|candidate| word.eq_ignore_ascii_case(candidate.name()))
        .ok_or_else(|| {
            Error::malformed(format!("interleave is '{}'", shorten(word)))
                .with_remedy("use bsq, bil or bip")
        })
}

fn byte_order(fields: &Fields, dtype: DType, notes: &mut Vec<String>) -> Result<bool> {
    match fields.whole("byte order")? {
        Some(0) => Ok(false),
        Some(1) => Ok(true),
        Some(other) => Err(Error::malformed(format!("byte order is {other}"))
            .with_remedy("use 0 for little-endian or 1 for big-endian")),
        None => {
            if dtype.size() > 1 {
                notes
                    .push("the header gives no byte order; assumed to be little-endian".to_owned());
            }
            Ok(false)
        }
    }
}

/// The value of the first key with one of `names`, in the spelling of arrays in containers;
/// `envi_key`, ENVI's key, comes first.
fn word_of<'a>(
    fields: &'a Fields,
    envi_key: &'a str,
    names: &[&str],
) -> Option<(&'a str, &'a str)> {
    let keys: Vec<(&str, String)> = fields.all().map(|(key, _)| (key, plain(key))).collect();
    let others = names.iter().flat_map(|name| keys.iter().filter(move |(_, key)| key == name));
    let others = others.map(|(key, _)| *key);
    std::iter::once(envi_key).chain(others).find_map(|key| Some((key, fields.word(key)?)))
}

fn ignore_value(fields: &Fields, dtype: DType, notes: &mut Vec<String>) -> Option<f64> {
    let (key, text) = word_of(fields, "data ignore value", &missing::NAMES)?;
    let values: Option<Vec<f64>> = tokens(text).map(number).collect();
    // A list with one value per band is fine if all values are the same.
    let value = values.as_deref().and_then(|values| match values {
        [first, others @ ..] if others.iter().all(|value| value.total_cmp(first).is_eq()) => {
            Some(*first)
        }
        _ => None,
    });
    match value {
        Some(value) if dtype == DType::F32 => Some(f64::from(value as f32)),
        Some(value) => Some(value),
        None => {
            notes.push(format!("{key} '{}' is not used: it is not a single number", shorten(text)));
            None
        }
    }
}

/// How stored numbers become physical values.
///
/// GDAL writes scale and offset of each band as `data gain values` and `data offset values`. If a
/// header has these and `reflectance scale factor`, both describe the same step, so only one of
/// them is used.
fn scaling_of(fields: &Fields, bands: usize, notes: &mut Vec<String>) -> Vec<Scaling> {
    let mut list = |key: &str, usual: f64| {
        let values = fields.get(key).map(number_list)?;
        let values = values.map(|list| list.values).unwrap_or_default();
        match values.len() {
            1 => Some(vec![values[0]; bands]),
            count if count == bands => Some(values),
            count => {
                notes.push(format!(
                    "`{key}` is not a list of {bands} numbers (it has {count}), so it is not used"
                ));
                Some(vec![usual; bands])
            }
        }
    };
    let (gains, offsets) = (list("data gain values", 1.0), list("data offset values", 0.0));
    let factor = scale_factor(fields, notes);
    let gains = gains.unwrap_or_else(|| vec![1.0; bands]);
    let offsets = offsets.unwrap_or_else(|| vec![0.0; bands]);
    if gains.contains(&0.0) {
        notes.push("`data gain values` has zeros, so it is not used".to_owned());
        return vec![factor.unwrap_or(Scaling::NONE)];
    }
    let scaling = |(multiply, add): (f64, f64)| Scaling { multiply, divide: 1.0, add };
    let by_band: Vec<Scaling> = gains.into_iter().zip(offsets).map(scaling).collect();
    if by_band.iter().all(Scaling::is_none) {
        return vec![factor.unwrap_or(Scaling::NONE)];
    }
    if factor.is_some() {
        notes.push(
            "the header has `data gain values` or `data offset values` and a scale factor; the scale factor is not used"
                .to_owned(),
        );
    }
    let alike = by_band.windows(2).all(|pair| pair[0] == pair[1]);
    if alike { by_band[..1].to_vec() } else { by_band }
}

/// The scale factor that ENVI defines.
const OWN_SCALE: &str = "reflectance scale factor";

/// Other keys: a factor from 10 divides and a factor below 1 multiplies. ENVI's own factor divides,
/// but 0.0001 and other powers of ten below 1 can only have been meant as multipliers.
fn scale_factor(fields: &Fields, notes: &mut Vec<String>) -> Option<Scaling> {
    let (key, text) = word_of(fields, OWN_SCALE, &scaling::SCALES)?;
    let is_own = key == OWN_SCALE;
    let is_multiplier = |factor: f64| {
        let power = factor.log10();
        factor < 1.0 && (!is_own || (power - power.round()).abs() < 1e-9)
    };
    match number(text) {
        Some(1.0) => None,
        Some(0.0) => None, // how some writers spell "none"
        Some(multiply) if multiply > 0.0 && is_multiplier(multiply) => {
            notes.push(match is_own {
                true => format!("{key} {multiply} is taken as a multiplier, not as a divisor"),
                false => format!("numbers are multiplied by `{}`, {multiply}", shorten(key)),
            });
            Some(Scaling { multiply, ..Scaling::NONE })
        }
        Some(divide) if divide.is_finite() && (divide >= 10.0 || is_own && divide > 0.0) => {
            if !is_own {
                notes.push(format!("numbers are divided by `{}`, {divide}", shorten(key)));
            }
            Some(Scaling { divide, ..Scaling::NONE })
        }
        _ => {
            notes.push(format!("{key} '{}' is not used", shorten(text)));
            None
        }
    }
}

/// The integration time. Fenix has two detectors. If their times differ, the cube has no single
/// integration time.
fn exposure(fields: &Fields) -> Option<Exposure> {
    let exposure_of = |field: &str| {
        let word = fields.word(field)?;
        let (time, unit) = word.split_once(char::is_whitespace).unwrap_or((word, ""));
        let time = number(time).filter(|time| time.is_finite() && *time > 0.0)?;
        Some(Exposure { field: field.to_owned(), time, unit: unit.trim().to_lowercase() })
    };
    let both = exposure_of("tint1")
        .filter(|first| exposure_of("tint2").is_some_and(|two| two.time == first.time));
    ["tint", "integration time", "exposure time", "exposure"]
        .into_iter()
        .find_map(exposure_of)
        .or(both)
}

/// The unit of the values.
fn unit(fields: &Fields, has_wavelengths: bool) -> Option<String> {
    let named = ["data units", "data unit", "units", "unit"]
        .into_iter()
        .find_map(|key| value_unit(fields.word(key)?, has_wavelengths));
    named.or_else(|| {
        let (_, of_values) = fields.get("z plot titles")?.split_once(',')?;
        value_unit(unit_in_title(of_values)?, has_wavelengths)
    })
}

/// Adds notes about the step from radiance to reflectance, which is not used: ENVI's own tools
/// apply it only on request.
fn note_unused_calibration(fields: &Fields, notes: &mut Vec<String>) {
    for key in ["data reflectance gain values", "data reflectance offset values"] {
        if fields.get(key).is_some() {
            notes.push(format!("the header has `{key}`, which are not applied"));
        }
    }
}

#[cfg(test)]
mod tests {
    use hsipack_format::ErrorKind;
    use proptest::prelude::*;

    use super::*;

    const LAYOUT: &str =
        "samples = 4\nlines = 3\nbands = 2\ndata type = 12\ninterleave = bil\nbyte order = 0\n";

    fn with(more: &str) -> Header {
        parse(format!("ENVI\n{LAYOUT}{more}").as_bytes()).unwrap()
    }

    fn refuse(text: &str) -> Error {
        let error = parse(text.as_bytes()).unwrap_err();
        assert!(error.remedy().is_some(), "{error}");
        error
    }

    #[test]
    fn the_unit_of_values_comes_from_its_key_or_the_title_of_their_axis() {
        for (more, unit) in [
            ("data units = ppm m", Some("ppm m")),
            ("Units = {K} ; kelvin", Some("K")),
            (
                "z plot titles = {Wavelength (nm), Radiance (uW/(cm2 nm sr))}",
                Some("uW/(cm2 nm sr)"),
            ),
            ("data units = K\nz plot titles = {Band, Heat [C]}", Some("K")),
            ("z plot titles = {Wavelength, Reflectance}", None),
            ("wavelength = {0.5, 0.6}\nunits = um", None),
            ("units = um", Some("um")),
        ] {
            assert_eq!(with(more).unit.as_deref(), unit, "{more}");
        }
    }

    #[test]
    fn a_plain_header_is_read_without_notes() {
        let header = with("");
        assert_eq!(header.shape, CubeShape::new(3, 4, 2));
        assert_eq!(header.dtype, DType::U16);
        assert_eq!(header.interleave, Interleave::Bil);
        assert_eq!((header.big_endian, header.offset, header.compressed), (false, 0, false));
        assert_eq!((&header.scaling, header.ignore_value), (&vec![Scaling::NONE], None));
        assert_eq!(header.file_len(), 48);
        assert_eq!(header.notes, [""; 0]);
    }

    #[test]
    fn keys_and_words_may_be_written_in_any_case_and_spacing() {
        let text = "\u{feff}ENVI \r\nSamples=4\rLINES   =  3\r\n  Bands = 2.0 ; two\r\n\
                    Data  Type = 4\r\nInterleave = BIP\r\nByte Order = 1\r\nHeader Offset = 128\r\n\
                    File Compression = 1";
        let header = parse(text.as_bytes()).unwrap();
        assert_eq!(header.shape, CubeShape::new(3, 4, 2));
        assert_eq!(header.interleave, Interleave::Bip);
        assert!(header.big_endian && header.compressed);
        assert_eq!(header.file_len(), 128 + 96);
    }

    #[test]
    fn every_data_type_is_known_and_complex_is_refused() {
        let codes = [1, 2, 3, 4, 5, 12, 13, 14, 15].map(|code| dtype(code).unwrap().name());
        let names = [
            "uint8", "int16", "int32", "float32", "float64", "uint16", "uint32", "int64", "uint64",
        ];
        assert_eq!(codes, names);
        assert_eq!([6, 9].map(|code| dtype(code).unwrap_err().kind()), [ErrorKind::Unsupported; 2]);
        assert_eq!(dtype(7).unwrap_err().kind(), ErrorKind::Malformed);
    }

    #[test]
    fn braces_span_lines_hold_comments_and_may_open_on_the_next_line() {
        let header = with(
            "description = {lines = 99, bands = 7\n and more}\nwavelength units = Micrometers\n\
             wavelength =\n{\n0.5\n; a comment = {\n,0.75\n}\nband names = { red ,\n near  infrared,}",
        );
        assert_eq!(header.shape, CubeShape::new(3, 4, 2));
        assert_eq!(header.wavelength, Some(vec![500.0, 750.0]));
        assert_eq!(header.band_names, Some(vec!["red".to_owned(), "near infrared".to_owned()]));
        assert_eq!(header.notes, [""; 0]);
    }

    #[test]
    fn a_list_without_a_closing_brace_ends_before_the_next_key() {
        for more in [
            "wavelength = {450,\n 500\nwavelength units = nm\n",
            "wavelength units = nm\nband names = {a, b}\nwavelength = {450, 500",
            "wavelength = {450,\n500\nband names = {a, b}\nwavelength units = nm",
            "wavelength units = nm\nwavelength = [450,\n 500\nbbl = {1, 1}",
        ] {
            let header = with(more);
            assert_eq!(header.wavelength, Some(vec![450.0, 500.0]), "{more}");
            assert!(header.notes[0].contains("list of `wavelength`"), "{:?}", header.notes);
        }
        let many = "a = {\n".repeat(100_000);
        assert!(refuse(&format!("ENVI\n{LAYOUT}{many}")).what().contains("closing brace"));
    }

    #[test]
    fn lists_may_contain_lists_and_continue_without_braces() {
        let header = with(
            "description = {a {b}\n lines = 7}\nwavelength units = nm\nwavelength = 450,\n500",
        );
        assert_eq!((header.shape.rows, header.wavelength), (3, Some(vec![450.0, 500.0])));
        assert_eq!(header.notes, [""; 0]);
    }

    #[test]
    fn wavelengths_are_found_under_other_keys_and_in_names() {
        for more in [
            "wavelengths = {450, 500}\nwavelength units = nm",
            "Wavelength_nm = {450, 500}",
            "wavelength = [450, 500]\nwavelength_unit = {nm}",
            "wavelength = {0.45, 0.5}\nunits of wavelengths = um",
            "wavelength = {450 nm, 500 nm}",
            "wavelength = {450,0; 500,0}\nwavelength units = nm",
            "band centers (nm) = {450, 500}",
            "wavelength = {1, 2}\nwavelengths = {450 nm, 500 nm}",
        ] {
            assert_eq!(with(more).wavelength, Some(vec![450.0, 500.0]), "{more}");
        }
        let header = with("band names = {Band 1 (0.45 Micrometers), Band 2 (0.5 Micrometers)}");
        assert_eq!(header.wavelength, Some(vec![450.0, 500.0]));
        assert_eq!(header.notes, ["the wavelengths are taken from `band names`"]);
        let header = with("wavelength = {1, 2}\nwavelength units = Micrometers");
        assert_eq!(header.wavelength, None);
        assert!(header.notes[0].contains("numbers the bands"), "{:?}", header.notes);
    }

    #[test]
    fn widths_may_have_a_unit_of_their_own() {
        for more in ["fwhm units = nm\nfwhm = {5, 6}", "fwhm = {5 nm, 6 nm}", "fwhm_nm = {5, 6}"] {
            let header =
                with(&format!("wavelength = {{0.45, 0.5}}\nwavelength units = um\n{more}"));
            assert_eq!(header.fwhm, Some(vec![5.0, 6.0]), "{more}");
        }
        assert_eq!(with("fwhm_nm = {5, 6}").fwhm, Some(vec![5.0, 6.0]));
        for (wavelength, unit, fwhm) in
            [("450, 500", "nm", "0.005, 0.006"), ("0.45, 0.5", "um", "5, 6")]
        {
            let header = with(&format!(
                "wavelength = {{{wavelength}}}\nwavelength units = {unit}\nfwhm = {{{fwhm}}}"
            ));
            assert_eq!(header.fwhm, Some(vec![5.0, 6.0]), "{unit}");
            assert!(header.notes[0].contains("another unit"), "{:?}", header.notes);
        }
    }

    #[test]
    fn gains_and_offsets_scale_each_band() {
        let of = |more: &str| {
            let header = with(more);
            let parts = |scaling: &Scaling| (scaling.multiply, scaling.divide, scaling.add);
            (header.scaling.iter().map(parts).collect::<Vec<_>>(), header.notes.len())
        };
        let (gain, offset) = ("data gain values = {2, 4}\n", "data offset values = {1, 3}\n");
        assert_eq!(of(&format!("{gain}{offset}")), (vec![(2.0, 1.0, 1.0), (4.0, 1.0, 3.0)], 0));
        assert_eq!(of(gain), (vec![(2.0, 1.0, 0.0), (4.0, 1.0, 0.0)], 0));
        assert_eq!(of("data gain values = {2, 2}"), (vec![(2.0, 1.0, 0.0)], 0));
        assert_eq!(of("data gain values = 2"), (vec![(2.0, 1.0, 0.0)], 0));
        assert_eq!(of("data gain values = {1, 1}"), (vec![(1.0, 1.0, 0.0)], 0));
        for bad in [
            "data gain values = {2, 3, 4}",
            "data gain values = {0, 1}",
            "data gain values = {x, 1}",
        ] {
            assert_eq!(of(bad), (vec![(1.0, 1.0, 0.0)], 1), "{bad}");
        }
        let factor = "reflectance scale factor = 10000\n";
        assert_eq!(of(&format!("{factor}data gain values = {{1, 1}}")), (vec![(1.0, 1e4, 0.0)], 0));
        assert_eq!(of(&format!("{factor}{gain}")), (vec![(2.0, 1.0, 0.0), (4.0, 1.0, 0.0)], 1));
    }

    #[test]
    fn all_missing_keys_are_listed_at_once() {
        let error = refuse("ENVI\nlines = 3\ndata type =\nbyte order = 0\n");
        assert_eq!(error.what(), "the header lacks `samples`, `bands`, `data type`, `interleave`");
    }

    #[test]
    fn a_single_band_needs_no_interleave() {
        let text = "ENVI\nsamples = 4\nlines = 3\nbands = 1\ndata type = 1\n";
        assert_eq!(parse(text.as_bytes()).unwrap().shape, CubeShape::new(3, 4, 1));
    }

    #[test]
    fn impossible_layouts_are_refused() {
        let malformed = [
            ("interleave = bil", "interleave = bup", "interleave is 'bup'"),
            ("data type = 12", "data type = 8", "data type 8 does not exist"),
            ("byte order = 0", "byte order = 2", "byte order is 2"),
            ("lines = 3", "lines = 0", "`lines` is 0"),
            ("lines = 3", "lines = -3", "`lines` is '-3'"),
            ("lines = 3", "lines = three", "`lines` is 'three'"),
            ("lines = 3", "lines = 3.5", "`lines` is '3.5'"),
            ("lines = 3", "lines = 18446744073709551615", "impossibly large"),
            ("lines = 3", "lines = 18446744073709551616", "`lines` is"),
            ("lines = 3", "lines = 3\nheader offset = 18446744073709551615", "impossibly large"),
            ("lines = 3", "lines = 3\nheader offset = -1", "`header offset` is '-1'"),
            ("lines = 3", "lines = 3\nLines = 4", "`lines` is given as 3 and as 4"),
        ];
        for (from, to, what) in malformed {
            let error = parse(format!("ENVI\n{LAYOUT}").replace(from, to).as_bytes()).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Malformed, "{error}");
            assert!(error.what().contains(what), "{to}: {error}");
        }
    }

    #[test]
    fn other_file_types_are_refused_by_name() {
        for (more, what) in [
            ("file type = ENVI Spectral Library", "spectral library"),
            ("file type = ENVI META File", "only points to other files"),
            ("major frame offsets = {0, 12}", "`major frame offsets` is {0, 12}"),
            ("minor frame offsets = {1, 0}", "`minor frame offsets` is {1, 0}"),
        ] {
            let error = refuse(&format!("ENVI\n{LAYOUT}{more}"));
            assert_eq!(error.kind(), ErrorKind::Unsupported, "{error}");
            assert!(error.what().contains(what), "{error}");
        }
        assert_eq!(with("major frame offsets = {0, 0}\nfile type = ENVI").notes, [""; 0]);
    }

    #[test]
    fn other_texts_are_not_headers() {
        assert!(refuse("ENVIRONMENT\nsamples = 4").what().contains("'ENVIRONMENT'"));
        assert!(refuse("").what().contains("not an ENVI header"));
        assert!(refuse("\u{0}\u{1}").what().contains("not an ENVI header"));
        let error = parse(b"\xFF\xFEE\0N\0V\0I\0").unwrap_err();
        assert!(error.what().contains("UTF-16"), "{error}");
    }

    #[test]
    fn wavelengths_come_in_nm_from_every_unit() {
        for (unit, listed, want) in [
            ("nm", "500,600", [500.0, 600.0]),
            ("Nanometers", "500,600", [500.0, 600.0]),
            ("Micrometers", "0.5,0.625", [500.0, 625.0]),
            ("um", "0.5,0.625", [500.0, 625.0]),
            ("microns", "0.5,0.625", [500.0, 625.0]),
            ("\u{b5}m", "0.5,0.625", [500.0, 625.0]),
            ("Angstroms", "5000,6250", [500.0, 625.0]),
            ("nm", "5.0d+02 600", [500.0, 600.0]),
        ] {
            let first = number(tokens(listed).next().unwrap()).unwrap();
            let width = first / 128.0;
            let more = format!("wavelength = {{{listed}}}\nfwhm = {{{width},{width}}}\n");
            let header = with(&format!("{more}wavelength units = {unit}"));
            assert_eq!(header.wavelength, Some(want.to_vec()), "{unit}");
            let close = |nm: &f64| (nm - want[0] / 128.0).abs() < 1e-9;
            assert!(header.fwhm.unwrap().iter().all(close), "{unit}");
            assert_eq!(header.notes, [""; 0]);
        }
        let header = with("wavelength = {500, 600}\nwavelength units = nm\nwavelength units = NM");
        assert_eq!(header.notes, [""; 0]);
    }

    #[test]
    fn a_latin_1_micro_sign_is_understood() {
        let text = format!("ENVI\n{LAYOUT}wavelength = {{0.5, 1}}\nwavelength units = ?m");
        let bytes: Vec<u8> =
            text.bytes().map(|byte| if byte == b'?' { 0xB5 } else { byte }).collect();
        assert_eq!(parse(&bytes).unwrap().wavelength, Some(vec![500.0, 1000.0]));
    }

    #[test]
    fn unknown_wavelength_units_are_guessed_from_the_largest() {
        let header = with("wavelength = {0.5, 2.5}\nwavelength units = Unknown");
        assert_eq!(header.wavelength, Some(vec![500.0, 2500.0]));
        assert_eq!(
            header.notes,
            ["the header gives no wavelength unit; assumed to be micrometres"]
        );
        let header = with("wavelength = {99.0, 100.0}");
        assert_eq!(header.wavelength, Some(vec![99.0, 100.0]));
        assert_eq!(header.notes, ["the header gives no wavelength unit; assumed to be nanometres"]);
    }

    #[test]
    fn a_wrong_unit_is_believed_but_noted() {
        for (units, list, nm) in
            [("Nanometers", "0.4, 2.5", "2.5"), ("Micrometers", "400, 2500", "2500000")]
        {
            let header = with(&format!("wavelength units = {units}\nwavelength = {{{list}}}"));
            assert!(header.wavelength.is_some());
            assert_eq!(
                header.notes,
                [format!("wavelengths up to {nm} nm are unlikely; check `wavelength units`")]
            );
        }
    }

    #[test]
    fn wavelengths_that_are_none_are_dropped_with_a_note() {
        for (more, what) in [
            ("wavelength = {1,2,3}\nwavelength units = nm", "3 values for 2 bands"),
            ("wavelength = {a, b}\nwavelength units = nm", "values that are not numbers"),
            ("wavelength = {NaN, 5}\nwavelength units = nm", "values that are not numbers"),
            ("wavelength = {-1, 5}\nwavelength units = nm", "negative"),
            ("wavelength = {1, 1e300}\nwavelength units = m", "infinite"),
            ("fwhm = {1, 1e300}\nwavelength units = m", "infinite"),
            ("wavelength = {9000, 8000}\nwavelength units = Wavenumber", "'Wavenumber'"),
            ("wavelength = {1, 3}\nwavelength units = Index", "'Index'"),
            ("wavelength = {1, 2}\nwavelength units = nm", "numbers the bands"),
            ("fwhm = {1, 2}", "`fwhm` is not used"),
        ] {
            let header = with(more);
            assert_eq!((header.wavelength, header.fwhm), (None, None), "{more}");
            assert_eq!(header.notes.len(), 1, "{:?}", header.notes);
            assert!(header.notes[0].contains(what), "{:?}", header.notes);
        }
    }

    #[test]
    fn the_bad_band_list_has_zeros_and_ones_only() {
        assert_eq!(with("bbl = {0, 1.000}").good_bands, Some(vec![false, true]));
        for bad in ["bbl = {0, 2}", "bbl = {1}"] {
            let header = with(bad);
            assert_eq!(header.good_bands, None);
            assert_eq!(header.notes.len(), 1);
        }
    }

    #[test]
    fn the_ignore_value_is_one_number_in_any_spelling() {
        for (text, want) in [
            ("-9999", -9999.0),
            ("{-9999}", -9999.0),
            ("{0, 0}", 0.0),
            ("-9.999e+03", -9999.0),
            ("1.5D2", 150.0),
            ("65535 ; none", 65535.0),
        ] {
            let header = with(&format!("data ignore value = {text}"));
            assert_eq!(header.ignore_value, Some(want), "{text}");
        }
        assert!(with("data ignore value = nan").ignore_value.unwrap().is_nan());
        for text in ["none", "{1, 2}"] {
            let header = with(&format!("data ignore value = {text}"));
            assert_eq!((header.ignore_value, header.notes.len()), (None, 1));
        }
    }

    #[test]
    fn the_ignore_value_of_a_float32_cube_is_one_it_can_hold() {
        let text = format!("ENVI\n{LAYOUT}data ignore value = -1.23e34").replace("= 12", "= 4");
        let value = parse(text.as_bytes()).unwrap().ignore_value.unwrap();
        assert_eq!(value, f64::from(-1.23e34_f32));
        assert_ne!(value, -1.23e34);
    }

    #[test]
    fn the_scale_factor_divides_unless_it_makes_no_sense() {
        for (line, multiply, divide, notes) in [
            ("reflectance scale factor = 10000", 1.0, 1e4, 0),
            ("reflectance scale factor = 2", 1.0, 2.0, 0),
            ("reflectance scale factor = 1.0", 1.0, 1.0, 0),
            ("reflectance scale factor = 0", 1.0, 1.0, 0),
            ("reflectance scale factor = 0.015625", 1.0, 0.015625, 0),
            ("reflectance scale factor = 1e-4", 1e-4, 1.0, 1),
            ("reflectance scale factor = -5", 1.0, 1.0, 1),
            ("reflectance scale factor = x", 1.0, 1.0, 1),
            ("Scale_Factor = 10000", 1.0, 1e4, 1),
            ("scale factor = 0.0001", 1e-4, 1.0, 1),
            ("scale factor = 2", 1.0, 1.0, 1),
        ] {
            let header = with(line);
            let want = Scaling { multiply, divide, add: 0.0 };
            assert_eq!((header.scaling, header.notes.len()), (vec![want], notes), "{line}");
        }
    }

    #[test]
    fn class_names_travel_if_they_are_as_many_as_the_classes() {
        let header =
            with("file type = ENVI Classification\nclasses = 2\nclass names = {none, oak}");
        assert!(header.classification);
        assert_eq!(header.class_names, Some(vec!["none".to_owned(), "oak".to_owned()]));
        let header = with("classes = 3\nclass names = {none, oak}");
        assert_eq!((header.class_names, header.notes.len()), (None, 1));
    }

    proptest! {
        #[test]
        fn arbitrary_bytes_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..600)) {
            let _ = parse(&bytes);
        }

        #[test]
        fn arbitrary_lines_below_the_first_never_panic(
            lines in proptest::collection::vec(
                ("(samples|lines|bands|data type|interleave|byte order|header offset|wavelength|fwhm|\
                   bbl|band names|classes|class names|data ignore value|file type|data gain values|.{0,8})",
                 "( ?= ?)",
                 "(\\{)?([0-9]{1,20}|[-0-9.,e ]{0,12}|bil|bsq|.{0,12})(\\})?"), 0..20),
        ) {
            let body: Vec<String> = lines.iter().map(|(k, e, v)| format!("{k}{e}{v}")).collect();
            if let Ok(header) = parse(format!("ENVI\n{}", body.join("\n")).as_bytes()) {
                check_invariants(&header)?;
            }
        }

        #[test]
        fn a_damaged_header_never_panics(
            at in 0usize..400, byte in any::<u8>(), cut in 0usize..400,
        ) {
            let mut bytes = format!(
                "ENVI\n{LAYOUT}wavelength units = nm\nwavelength = {{500, 600}}\nbbl = {{1, 0}}\n\
                 fwhm = {{5, 5}}\nband names = {{a, b}}\ndata ignore value = -9999\n\
                 reflectance scale factor = 1e4\nfile type = ENVI Classification\nclasses = 2\n\
                 class names = {{a, b}}\nmajor frame offsets = {{0, 0}}\nheader offset = 16\n"
            ).into_bytes();
            if let Some(slot) = bytes.get_mut(at) {
                *slot = byte;
            }
            bytes.truncate(bytes.len().max(cut) - cut.min(bytes.len()));
            if let Ok(header) = parse(&bytes) {
                check_invariants(&header)?;
            }
        }
    }

    fn check_invariants(header: &Header) -> Result<(), TestCaseError> {
        prop_assert!(!header.shape.is_empty());
        prop_assert!(header.file_len() > header.offset);
        let bands = header.shape.bands;
        let fits = |len: Option<usize>| len.is_none_or(|len| len == bands);
        prop_assert!(fits(header.wavelength.as_ref().map(Vec::len)));
        prop_assert!(fits(header.fwhm.as_ref().map(Vec::len)));
        prop_assert!(fits(header.good_bands.as_ref().map(Vec::len)));
        prop_assert!(fits(header.band_names.as_ref().map(Vec::len)));
        prop_assert!([1, bands].contains(&header.scaling.len()));
        Ok(())
    }
}
