//! ESRI (ArcGIS) headers of `.bil`, `.bip` and `.bsq` files, as GDAL reads and writes them (driver
//! EHdr). They have the same suffix as ENVI headers.
//!
//! ```text
//! NROWS       480
//! NCOLS       640
//! NBANDS      100
//! NBITS       16
//! PIXELTYPE   SIGNEDINT
//! LAYOUT      BIL
//! BYTEORDER   I
//! ULXMAP      600015        the centre of the upper left pixel
//! ```
//!
//! The reference system is in a `.prj` file beside the header.

use std::collections::BTreeMap;
use std::path::Path;

use hsipack_format::{CubeShape, DType, Error, Geo, Result};
use hsipack_store::bounded_read;

use super::fields::{lines, number, shorten};
use super::header::{Header, Interleave};
use crate::flat::FlatSource;
use crate::place::georeference;
use crate::spectrum::spectrum_text::number_list;
use crate::spectrum::wavelengths::to_nm;
use crate::text::decode;
use crate::{Exposure, Scaling};

/// The texts of reference systems are shorter.
const LARGEST_PRJ: u64 = 64 << 10;

/// `KEY value` lines of an ESRI header, keys in lower case.
struct Fields<'a>(BTreeMap<String, &'a str>);

impl<'a> Fields<'a> {
    fn of(text: &'a str) -> Self {
        let pairs = lines(text).filter_map(|line| line.split_once(char::is_whitespace));
        Self(pairs.map(|(key, value)| (key.to_lowercase(), value.trim())).collect())
    }

    fn has(&self, key: &str) -> bool {
        self.0.contains_key(key)
    }

    /// The first word of a value, in lower case.
    fn word(&self, key: &str) -> Option<String> {
        Some(self.0.get(key)?.split_whitespace().next()?.to_lowercase())
    }

    fn number(&self, key: &str) -> Option<f64> {
        number(&self.word(key)?).filter(|value| value.is_finite())
    }

    /// A whole number that is not negative, or `usual`.
    fn whole(&self, key: &str, usual: u64) -> Result<u64> {
        let Some(word) = self.word(key) else { return Ok(usual) };
        word.parse().map_err(|_| {
            let key = key.to_uppercase();
            Error::malformed(format!("{key} is '{}', not a count", shorten(&word)))
                .with_remedy(format!("correct {key} in the header"))
        })
    }
}

/// Whether a text is an ESRI header, of a `.bil`, `.bip`, `.bsq` or `.flt` file.
pub(super) fn is_header(text: &str) -> bool {
    let fields = Fields::of(text);
    fields.has("nrows")
        && fields.has("ncols")
        && ["layout", "nbits", "nbands", "byteorder"].into_iter().any(|key| fields.has(key))
}

/// Reads an ESRI header.
///
/// # Errors
/// If it lacks a required key, or describes something that is not a plain cube of real numbers.
pub(super) fn parse(bytes: &[u8]) -> Result<Header> {
    let text = decode(bytes);
    let fields = Fields::of(&text);
    let axis = |key: &str, usual| match fields.whole(key, usual)? {
        0 => Err(Error::malformed(format!("{} is 0 or missing", key.to_uppercase()))
            .with_remedy("correct the header")),
        length => usize::try_from(length).map_err(|_| Error::malformed("impossibly large")),
    };
    let shape = CubeShape::new(axis("nrows", 0)?, axis("ncols", 0)?, axis("nbands", 1)?);
    let dtype = dtype(&fields)?;
    let interleave = match fields.word("layout").as_deref().unwrap_or("bil") {
        "bil" => Interleave::Bil,
        "bip" => Interleave::Bip,
        "bsq" => Interleave::Bsq,
        other => {
            return Err(Error::malformed(format!("LAYOUT is '{}'", shorten(other)))
                .with_remedy("use BIL, BIP or BSQ"));
        }
    };
    let offset = fields.whole("skipbytes", 0)?;
    let len = FlatSource::data_len(shape, dtype).and_then(|len| len.checked_add(offset));
    if len.is_none() {
        return Err(Error::malformed(format!("a cube of {shape} {dtype} is impossibly large"))
            .with_remedy("correct NROWS, NCOLS and NBANDS"));
    }
    let mut notes = Vec::new();
    let time = fields.number("integrationtime").filter(|time| *time > 0.0);
    let order = fields.word("byteorder").unwrap_or_default();
    let big_endian = order.starts_with('m');
    let ignore = ["nodata", "nodata_value"].iter().find_map(|key| fields.number(key));
    Ok(Header {
        format: "ESRI",
        shape,
        dtype,
        interleave,
        big_endian,
        offset,
        compressed: false,
        classification: false,
        of_tiff: false,
        padding: padding(&fields, shape, dtype, interleave)?,
        wavelength: wavelengths(&text, shape.bands, &mut notes),
        fwhm: None,
        good_bands: None,
        band_names: None,
        class_names: None,
        class_colors: Vec::new(),
        ignore_value: ignore.map(|value| match dtype {
            DType::F32 => f64::from(value as f32),
            _ => value,
        }),
        scaling: vec![Scaling::NONE],
        exposure: time.map(|time| Exposure {
            field: "integrationtime".to_owned(),
            time,
            unit: String::new(),
        }),
        unit: None,
        geo: geo(&fields, shape),
        notes,
    })
}

fn dtype(fields: &Fields<'_>) -> Result<DType> {
    let kind = fields.word("pixeltype").unwrap_or_default();
    let (signed, float) = (kind.starts_with("signed"), kind.starts_with("float"));
    Ok(match (fields.whole("nbits", 8)?, signed, float) {
        (8, false, _) => DType::U8,
        (8, true, _) => DType::I8,
        (16, true, _) => DType::I16,
        (16, false, false) => DType::U16,
        (32, _, true) => DType::F32,
        (32, true, _) => DType::I32,
        (32, ..) => DType::U32,
        (64, _, true) => DType::F64,
        (bits, ..) => {
            return Err(Error::unsupported(format!(
                "{bits} bits per value{}",
                match kind.as_str() {
                    "" => String::new(),
                    kind => format!(" of type {}", shorten(kind).to_uppercase()),
                }
            ))
            .with_remedy("convert it: gdal_translate -of ENVI -ot Float32 IN OUT"));
        }
    })
}

/// Entries of the header about bytes between rows or bands. Cameras write wrong numbers here, so
/// the size of the file decides.
fn padding(
    fields: &Fields<'_>,
    shape: CubeShape,
    dtype: DType,
    interleave: Interleave,
) -> Result<Option<String>> {
    let band_row = (shape.columns as u64).saturating_mul(dtype.size() as u64);
    let whole_row = band_row.saturating_mul(shape.bands as u64);
    let plain = match interleave {
        // In BIP, the bands of a row do not have rows of their own.
        Interleave::Bip => vec![("totalrowbytes", whole_row)],
        Interleave::Bil => vec![("bandrowbytes", band_row), ("totalrowbytes", whole_row)],
        Interleave::Bsq => vec![("bandrowbytes", band_row), ("bandgapbytes", 0)],
    };
    for (key, plain) in plain {
        let stated = fields.whole(key, plain)?;
        if ![0, plain].contains(&stated) {
            return Ok(Some(format!("{} is {stated}, not {plain}", key.to_uppercase())));
        }
    }
    Ok(None)
}

/// The lines between `WAVELENGTHS` and `WAVELENGTHS_END`, as Headwall writes them, in nm.
fn wavelengths(text: &str, bands: usize, notes: &mut Vec<String>) -> Option<Vec<f64>> {
    let is = |line: &str, word: &str| line.eq_ignore_ascii_case(word);
    let list = lines(text).skip_while(|line| !is(line, "WAVELENGTHS")).skip(1);
    let list: Vec<&str> = list.take_while(|line| !is(line, "WAVELENGTHS_END")).collect();
    if list.is_empty() {
        return None;
    }
    let values = number_list(&list.join(" ")).map(|list| list.values).unwrap_or_default();
    if values.len() != bands {
        let count = values.len();
        notes.push(format!("WAVELENGTHS has {count} numbers for {bands} bands, so it is not used"));
        return None;
    }
    to_nm(&values, None).map_err(|why| notes.push(why)).ok()
}

/// Where the pixels lie, without the reference system.
fn geo(fields: &Fields<'_>, shape: CubeShape) -> Option<Geo> {
    let size = fields.number("cellsize");
    let width = fields.number("xdim").or(size)?;
    let height = fields.number("ydim").or(size)?;
    let (left, top) = match (fields.number("ulxmap"), fields.number("ulymap")) {
        (Some(x), Some(y)) => (x - width / 2.0, y + height / 2.0),
        _ => {
            let bottom = fields.number("yllcorner")?;
            (fields.number("xllcorner")?, bottom + height * shape.rows as f64)
        }
    };
    Geo::new(None, [left, width, 0.0, top, 0.0, -height])
}

/// Adds the reference system in the `.prj` file beside the header at `path`.
pub(super) fn add_reference_system(header: &mut Header, path: &Path) {
    let Some(geo) = header.geo.take() else { return };
    let names = ["prj", "PRJ"].map(|suffix| path.with_extension(suffix));
    let text = names.iter().filter(|name| name.is_file());
    let text = text.filter_map(|name| bounded_read::read(name, LARGEST_PRJ).ok()).next();
    let crs = text.and_then(|text| georeference::crs(&decode(&text)));
    header.geo = Some(match crs {
        Some((crs, unit)) => Geo { crs: Some(crs), unit, ..geo },
        None => geo,
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn layout_type_and_place_are_read() {
        let text = "NROWS 5\nNCOLS 6\nNBANDS 7\nNBITS 32\nPIXELTYPE FLOAT\nBYTEORDER M\nLAYOUT BIP\nSKIPBYTES 9\n\
                    NODATA -9999\nULXMAP 615\nULYMAP 485\nXDIM 30\nYDIM 30\nTOTALROWBYTES 168\nBANDROWBYTES 24";
        let header = parse(text.as_bytes()).unwrap();
        assert_eq!((header.shape, header.dtype), (CubeShape::new(5, 6, 7), DType::F32));
        assert!(header.big_endian && header.interleave == Interleave::Bip && header.offset == 9);
        assert_eq!(header.ignore_value, Some(-9999.0));
        assert_eq!(header.geo.unwrap().transform, [600.0, 30.0, 0.0, 500.0, 0.0, -30.0]);
        let plain = parse(b"nrows 5\nncols 6\nnbits 16\nbyteorder LSBFIRST").unwrap();
        assert_eq!((plain.shape, plain.dtype), (CubeShape::new(5, 6, 1), DType::U16));
        assert!(!plain.big_endian && plain.interleave == Interleave::Bil && plain.geo.is_none());
    }

    #[test]
    fn types_follow_bits_and_kind() {
        let of = |bits: u32, kind: &str| {
            parse(format!("nrows 1\nncols 1\nnbits {bits}\npixeltype {kind}").as_bytes())
                .map(|header| header.dtype)
        };
        for (bits, kind, dtype) in [
            (8, "UNSIGNEDINT", DType::U8),
            (8, "SIGNEDINT", DType::I8),
            (16, "SIGNEDINT", DType::I16),
            (16, "UNSIGNEDINT", DType::U16),
            (32, "SIGNEDINT", DType::I32),
            (32, "FLOAT", DType::F32),
            (32, "UNSIGNEDINT", DType::U32),
            (64, "FLOAT", DType::F64),
        ] {
            assert_eq!(of(bits, kind).unwrap(), dtype);
        }
        for (bits, kind) in [(1, ""), (12, "UNSIGNEDINT"), (16, "FLOAT")] {
            assert!(of(bits, kind).unwrap_err().remedy().is_some());
        }
    }

    #[test]
    fn padding_and_wavelengths_are_read() {
        for (text, what) in [
            (
                "nrows 5\nncols 6\nnbands 2\nlayout bil\nbandrowbytes 8",
                Some("BANDROWBYTES is 8, not 6"),
            ),
            ("nrows 5\nncols 6\nlayout bsq\nbandgapbytes 8", Some("BANDGAPBYTES is 8, not 0")),
            ("nrows 5\nncols 6\nlayout bip\nbandrowbytes 8", None),
        ] {
            assert_eq!(parse(text.as_bytes()).unwrap().padding.as_deref(), what, "{text}");
        }
        let text = "nrows 5\nncols 6\nnbands 2\nINTEGRATIONTIME 100\nWAVELENGTHS\n899.5\n900.75\nWAVELENGTHS_END\n";
        let header = parse(text.as_bytes()).unwrap();
        assert_eq!(header.wavelength, Some(vec![899.5, 900.75]));
        assert_eq!(header.exposure.unwrap().time, 100.0);
        let header = parse(text.replace("900.75\n", "").as_bytes()).unwrap();
        assert_eq!((header.wavelength, header.notes.len()), (None, 1));
    }

    #[test]
    fn headers_that_do_not_describe_a_plain_cube_are_refused() {
        for (text, what) in [
            ("nrows 5\nncols 0\nnbits 8", "NCOLS is 0"),
            ("nrows x\nncols 1\nnbits 8", "NROWS is 'x'"),
            ("nrows 5\nncols 6\nlayout abc", "LAYOUT is 'abc'"),
            ("nrows 18446744073709551615\nncols 6\nnbits 8", "impossibly large"),
        ] {
            let error = parse(text.as_bytes()).unwrap_err();
            assert!(error.what().contains(what), "{error}");
        }
    }
}
