//! Tables of spectra: texts with one spectrum a row, as spectrometers and published soil, leaf and
//! mineral libraries have them.
//!
//! ```text
//! id,label,400,410,420      the header gives the wavelengths
//! 1,clay,0.12,0.15,0.17     each row is a cube of one pixel: table.csv::[0]
//! 2,sand,0.22,0.25,0.28     table.csv::[1]
//! ```
//!
//! Cells are between commas, semicolons (then numbers may have decimal commas) or tabs. Columns
//! whose names are numbers are bands. So are columns that have numbers behind a common word
//! (`band_1`, `band_2`, …; `X400`, `X410`, … as R writes them; `band_400nm`, `band_410nm`, …). The
//! others describe the spectra. Only the positions of rows are kept in memory.

use std::io::{BufReader, Read, Seek, SeekFrom};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use csv::{ByteRecord, ReaderBuilder, StringRecord, Trim};
use hsipack_format::{CubeShape, DType, Error, Result};
use hsipack_store::bounded_read;

use crate::recent::Recent;
use crate::spectrum::spectrum_text::{Quantity, counts, is_sensed, key, wavelengths_in_names};
use crate::spectrum::wavelengths::to_nm;
use crate::{Access, CubeInfo, RowBuffer, Source};

/// The longest header. That of 10,000 bands takes some 100 KB.
const MAX_HEADER_BYTES: u64 = 1 << 20;
/// A table has at least as many bands. A few numbers in a header may be anything.
const MIN_BANDS: usize = 4;
/// The most rows of a table.
const MAX_ROWS: usize = 1 << 24;

/// Words before wavelengths, also before those that are one nm apart, as numbers of bands are.
const SURE: [&str; 8] = ["abs", "absorbance", "nm", "refl", "reflectance", "rho", "rrs", "spc"];

/// A table of spectra.
#[derive(Debug)]
pub struct SpectraTable {
    path: PathBuf,
    header: Header,
    /// Where each row starts in the file.
    rows: Vec<u64>,
}

#[derive(Clone, Debug, PartialEq)]
struct Header {
    delimiter: u8,
    names: Vec<String>,
    /// The columns that are bands.
    bands: Vec<usize>,
    /// In nm.
    wavelength: Option<Vec<f64>>,
}

impl Header {
    /// The header of a table of spectra; `None` if it is the header of something else.
    fn parse(line: &str) -> Option<Self> {
        let line = line.trim_start_matches('\u{feff}');
        let delimiter = [b'\t', b';'].into_iter().find(|other| line.as_bytes().contains(other));
        let delimiter = delimiter.unwrap_or(b',');
        let mut reader = builder(delimiter).has_headers(false).from_reader(line.as_bytes());
        let mut record = StringRecord::new();
        if !reader.read_record(&mut record).ok()? {
            return None;
        }
        let names: Vec<String> = record.iter().map(str::to_owned).collect();
        // A list of cubes.
        if names.iter().any(|name| name == "path") {
            return None;
        }
        let cell = |name: &String| number(name, delimiter == b';');
        let numbers: Vec<(usize, f64)> = names
            .iter()
            .enumerate()
            .filter_map(|(column, name)| Some((column, cell(name)?)))
            .collect();
        let (bands, wavelength) = match numbers.len() >= MIN_BANDS {
            true => {
                let (bands, values): (Vec<usize>, Vec<f64>) = numbers.into_iter().unzip();
                let wavelength = (!counts(&values)).then(|| to_nm(&values, None).ok()).flatten();
                (bands, wavelength)
            }
            false => numbered(&names)?,
        };
        Some(Self { delimiter, names, bands, wavelength })
    }

    fn reader<R: Read>(&self, from: R) -> csv::Reader<R> {
        builder(self.delimiter).has_headers(false).from_reader(from)
    }
}

/// Columns with numbers behind a common word, and wavelengths if R wrote these numbers, or if the
/// names say so. Only wavelengths may have a word behind them, too.
fn numbered(names: &[String]) -> Option<(Vec<usize>, Option<Vec<f64>>)> {
    let split = |name: &str| {
        let is_of_number = |letter: char| letter.is_ascii_digit() || letter == '.';
        let start = name.find(|letter: char| letter.is_ascii_digit())?;
        let (prefix, from_digits) = name.split_at(start);
        let end = from_digits.find(|letter| !is_of_number(letter)).unwrap_or(from_digits.len());
        let (digits, suffix) = from_digits.split_at(end);
        // A minus before a number is no word.
        let are_words = prefix.contains(char::is_alphabetic) && !suffix.contains(is_of_number);
        let words = are_words.then(|| (prefix.to_owned(), suffix.to_owned()))?;
        Some((words, digits.parse::<f64>().ok()?))
    };
    type Words = (String, String);
    let parts: Vec<Option<(Words, f64)>> = names.iter().map(|name| split(name)).collect();
    let count = |words: &Words| parts.iter().flatten().filter(|(other, _)| other == words).count();
    let all = parts.iter().flatten().map(|(words, _)| words);
    let words = all.max_by_key(|words| count(words)).filter(|words| count(words) >= MIN_BANDS)?;
    let of_words = |(column, part): (usize, &Option<(Words, f64)>)| {
        part.as_ref().filter(|(other, _)| other == words).map(|(_, value)| (column, *value))
    };
    let (bands, values): (Vec<usize>, Vec<f64>) =
        parts.iter().enumerate().filter_map(of_words).unzip();
    let are_rising = values.windows(2).all(|pair| pair[0] < pair[1]);
    let (prefix, suffix) = words;
    let word = prefix.trim_end_matches(|letter: char| !letter.is_alphabetic()).to_lowercase();
    let is_sure = prefix == "X" || SURE.contains(&&*word) && is_sensed(&values);
    let wavelength = match are_rising && !counts(&values) {
        true if is_sure && suffix.is_empty() => to_nm(&values, None).ok(),
        true => {
            let texts: Vec<String> = bands.iter().map(|column| names[*column].clone()).collect();
            wavelengths_in_names(&texts)
        }
        false => None,
    };
    let is_table = are_rising && (suffix.is_empty() || wavelength.is_some());
    is_table.then_some((bands, wavelength))
}

/// The number in a cell of a header: a wavelength, which may have a unit. Numbers above 0.
fn number(cell: &str, has_decimal_commas: bool) -> Option<f64> {
    let (text, factor) = match cell.strip_suffix("nm") {
        Some(nm) => (nm.trim(), 1.0),
        None => match cell.strip_suffix("um").or(cell.strip_suffix("µm")) {
            Some(um) => (um.trim(), 1000.0),
            None => (cell, 1.0),
        },
    };
    let is_plain = text.starts_with(|letter: char| letter.is_ascii_digit() || letter == '.');
    let text = if has_decimal_commas { text.replacen(',', ".", 1) } else { text.to_owned() };
    let value = text.parse::<f64>().ok().filter(|value| is_plain && value.is_finite())?;
    (value > 0.0).then_some(value * factor)
}

fn builder(delimiter: u8) -> ReaderBuilder {
    let mut builder = ReaderBuilder::new();
    builder.trim(Trim::All).delimiter(delimiter).flexible(true);
    builder
}

fn header_of(path: &Path) -> Option<Header> {
    let ending = path.extension()?.to_string_lossy().to_ascii_lowercase();
    if !["csv", "tsv", "txt"].contains(&&*ending) || !path.is_file() {
        return None;
    }
    let head = bounded_read::head(path, MAX_HEADER_BYTES).ok()?;
    let line = head.split(|byte| *byte == b'\n').next()?;
    Header::parse(std::str::from_utf8(line).ok()?.trim_end_matches('\r'))
}

/// Checks headers; for fuzzing.
#[doc(hidden)]
pub fn spectra_header(line: &str) -> Option<usize> {
    let header = Header::parse(line)?;
    assert!(header.bands.iter().all(|band| *band < header.names.len()));
    assert!(header.wavelength.is_none_or(|list| list.len() == header.bands.len()));
    Some(header.bands.len())
}

impl SpectraTable {
    /// Cells of tables that stand for a missing number, besides empty ones.
    pub const MISSING: [&str; 3] = ["NA", "#N/A", "null"];

    /// The table at `path`; `None` if the file is no table of spectra.
    ///
    /// # Errors
    /// If the table cannot be read.
    pub fn open(path: &Path) -> Result<Option<Arc<Self>>> {
        static RECENT: Recent<Option<Arc<SpectraTable>>> = Recent::new();
        let read = || match header_of(path) {
            Some(header) => Self::read(path, header).map(|table| Some(Arc::new(table))),
            None => Ok(None),
        };
        RECENT.get(path, Option::is_some, read).map(|table| (*table).clone())
    }

    fn read(path: &Path, header: Header) -> Result<Self> {
        // A library with a spectrum in each column: its rows are bands.
        let is_axis = |name: &String| {
            key(name).is_some_and(|key| key.quantity == Quantity::Wavelength && !key.is_unit)
        };
        if header.wavelength.is_none() && header.names.first().is_some_and(is_axis) {
            return Err(Error::unsupported(format!(
                "the column {:?} says that each row is a band, and each other column a spectrum",
                header.names[0]
            ))
            .at(path)
            .with_remedy(
                "write each spectrum into a row, with the wavelengths as header: pandas.read_csv(FILE, index_col=0).T.to_csv(OUT, index_label='name')",
            ));
        }
        let mut reader = header.reader(BufReader::new(bounded_read::window(path)?));
        let (mut record, mut rows) = (ByteRecord::new(), Vec::new());
        let mut next = |record: &mut ByteRecord| {
            let start = reader.position().byte();
            reader.read_byte_record(record).map(|found| found.then_some(start)).map_err(|error| {
                Error::malformed(format!("cannot read the table: {error}")).at(path)
            })
        };
        // The first record is the header.
        next(&mut record)?;
        let mut empty = None;
        while let Some(start) = next(&mut record)? {
            let number = rows.len() + 2;
            // Spreadsheets write empty rows below a table.
            if record.iter().all(<[u8]>::is_empty) {
                empty.get_or_insert(number);
                continue;
            }
            if let Some(empty) = empty {
                return Err(Error::malformed(format!(
                    "row {empty} is empty, but rows follow it; the header is row 1"
                ))
                .at(path)
                .with_remedy("remove the row"));
            }
            if record.len() != header.names.len() {
                return Err(Error::malformed(format!(
                    "row {number} has {} cells, but the header has {}; the header is row 1",
                    record.len(),
                    header.names.len()
                ))
                .at(path)
                .with_remedy(
                    "correct the row; a separator inside a cell needs quotes around the cell",
                ));
            }
            if rows.len() == MAX_ROWS {
                return Err(Error::unsupported(format!("the table has more than {MAX_ROWS} rows"))
                    .at(path)
                    .with_remedy("split it into several files"));
            }
            rows.push(start);
        }
        Ok(Self { path: path.to_owned(), header, rows })
    }

    /// Number of spectra.
    pub fn len(&self) -> usize {
        self.rows.len()
    }

    /// Whether it has only a header.
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// Names of all columns.
    pub fn names(&self) -> &[String] {
        &self.header.names
    }

    /// Whether a column is a band.
    pub fn is_band(&self, column: usize) -> bool {
        self.header.bands.binary_search(&column).is_ok()
    }

    /// The character between cells.
    pub fn delimiter(&self) -> u8 {
        self.header.delimiter
    }

    /// The spectrum in row `index`, counted from 0 after the header.
    fn spectrum(&self, index: usize) -> Result<Vec<f64>> {
        let fail = |error| Error::io(&self.path, "cannot read", error);
        let mut file = bounded_read::window(&self.path)?;
        file.seek(SeekFrom::Start(self.rows[index])).map_err(fail)?;
        let mut record = ByteRecord::new();
        let mut reader = self.header.reader(BufReader::new(file));
        reader.read_byte_record(&mut record).map_err(|error| {
            Error::malformed(format!("cannot read the table: {error}")).at(&self.path)
        })?;
        let value = |band: &usize| {
            let cell = record.get(*band).unwrap_or_default();
            self.value(cell).ok_or_else(|| {
                Error::malformed(format!(
                    "row {}, column {:?}: {:?} is not a number; the header is row 1",
                    index + 2,
                    self.header.names[*band],
                    String::from_utf8_lossy(cell)
                ))
                .at(&self.path)
                .with_remedy("write a number, or leave the cell empty if it is missing")
            })
        };
        let cells = || self.header.bands.iter().filter_map(|band| record.get(*band));
        if self.header.delimiter == b';'
            && [b',', b'.'].iter().all(|point| cells().any(|cell| cell.contains(point)))
        {
            return Err(Error::malformed(format!(
                "row {}: some numbers have decimal commas, others points; the header is row 1",
                index + 2
            ))
            .at(&self.path)
            .with_remedy("write all numbers with one of them"));
        }
        self.header.bands.iter().map(value).collect()
    }

    /// The number in a cell. Empty cells and those of R and spreadsheets for missing values are
    /// NaN.
    fn value(&self, cell: &[u8]) -> Option<f64> {
        let text = std::str::from_utf8(cell).ok()?;
        if text.is_empty() || SpectraTable::MISSING.contains(&text) {
            return Some(f64::NAN);
        }
        match self.header.delimiter == b';' {
            true => text.replacen(',', ".", 1).parse().ok(),
            false => text.parse().ok(),
        }
    }
}

/// The index in a variable such as `[3]`.
fn index_of(variable: &str) -> Option<usize> {
    variable.strip_prefix('[')?.strip_suffix(']')?.parse().ok()
}

/// Opens a row of a table of spectra; `None` if the file is something else.
///
/// # Errors
/// If there is no such row, or it holds something else than numbers.
pub(crate) fn open(
    path: &Path,
    variable: Option<&str>,
    sample: Option<usize>,
) -> Result<Option<Box<dyn Source>>> {
    let Some(table) = SpectraTable::open(path)? else { return Ok(None) };
    let count = table.len();
    let index = variable.map_or(sample, index_of);
    let Some(index) = index.filter(|index| *index < count) else {
        return Err(Error::conflict(format!("the file is a table of {count} spectra"))
            .at(path)
            .with_remedy("name a row by its number from 0, such as FILE::[0]"));
    };
    let values = table.spectrum(index)?;
    let shape = CubeShape::new(1, 1, values.len());
    let mut info = CubeInfo::new("table of spectra", shape, DType::F64, path);
    info.wavelength.clone_from(&table.header.wavelength);
    if info.wavelength.is_none() {
        let names = table.header.bands.iter().map(|band| table.header.names[*band].clone());
        info.band_names = Some(names.collect());
    }
    Ok(Some(Box::new(Spectrum { info, values })))
}

/// A cube of one pixel.
struct Spectrum {
    info: CubeInfo,
    values: Vec<f64>,
}

impl Source for Spectrum {
    fn info(&self) -> &CubeInfo {
        &self.info
    }

    fn access(&self) -> Access {
        Access::Random
    }

    fn preferred_rows(&self, _budget: usize) -> usize {
        1
    }

    fn read_rows(&self, rows: Range<usize>, out: &mut RowBuffer) -> Result<()> {
        let count = if rows.is_empty() { 0 } else { self.values.len() };
        out.reset(DType::F64, count).copy_from_slice(bytemuck::cast_slice(&self.values[..count]));
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header(line: &str) -> Option<(Vec<usize>, Option<Vec<f64>>)> {
        Header::parse(line).map(|header| (header.bands, header.wavelength))
    }

    #[test]
    fn numbers_in_the_header_are_wavelengths() {
        let nm = Some(vec![400.0, 410.5, 420.0, 430.0]);
        for line in [
            "id,label,400,410.5,420,430",
            "\u{feff}id;label;400;410,5;420;430",
            "id\tlabel\t400 nm\t410.5nm\t420 nm\t430 nm",
            "\"id\",\"label\",\"0.4\",\"0.4105\",\"0.42\",\"0.43\"",
            "id,label,0.4um,0.4105um,0.42um,0.43um",
            "id,label,X400,X410.5,X420,X430",
            "id,label,nm400,nm410.5,nm420,nm430",
            "id,label,spc.400,spc.410.5,spc.420,spc.430",
            "id,b1,wl_400,wl_410.5,wl_420,wl_430",
            "1,label,Reflectance_400,Reflectance_410.5,Reflectance_420,Reflectance_430",
            "id,label,band_400nm,band_410.5nm,band_420nm,band_430nm",
            "id,label,R 0.4 um,R 0.4105 um,R 0.42 um,R 0.43 um",
        ] {
            let (bands, wavelength) = header(line).unwrap();
            assert_eq!(bands, [2, 3, 4, 5], "{line}");
            let round = |list: Vec<f64>| -> Vec<f64> {
                list.iter().map(|nm| (nm * 1e6).round() / 1e6).collect()
            };
            assert_eq!(wavelength.map(round), nm, "{line}");
        }
        let one_apart = header("Reflectance_350,Reflectance_351,Reflectance_352,Reflectance_353");
        assert_eq!(one_apart.unwrap().1.unwrap(), [350.0, 351.0, 352.0, 353.0]);
        assert_eq!(header("400,410.5,420,430,class").unwrap().0, [0, 1, 2, 3]);
    }

    #[test]
    fn numbered_bands_have_no_wavelengths() {
        for line in [
            "id,b1,b2,b3,b4",
            "id,band_01,band_02,band_03,band_10",
            "x,1,2,3,4",
            "id,band_201,band_202,band_203,band_204",
            "id,ndvi_2019,ndvi_2020,ndvi_2022,ndvi_2025",
        ] {
            assert_eq!(header(line), Some((vec![1, 2, 3, 4], None)), "{line}");
        }
    }

    #[test]
    fn empty_rows_may_be_below_a_table() {
        let file = tempfile::Builder::new().suffix(".csv").tempfile().unwrap();
        let table = |rows: &str| {
            std::fs::write(file.path(), format!("id,400,410,420,430\n1,1,2,3,4\n{rows}")).unwrap();
            SpectraTable::read(file.path(), header_of(file.path()).unwrap())
        };
        assert_eq!(table("2,1,2,3,4\n,,,,\n , ,,,\n,\n").unwrap().len(), 2);
        let error = table(",,,,\n2,1,2,3,4\n").unwrap_err();
        assert!(error.what().contains("row 3 is empty") && error.remedy().is_some(), "{error}");
        assert_eq!(table("2,,,,\n").unwrap().len(), 2, "values are missing");
    }

    #[test]
    fn other_headers_are_no_tables_of_spectra() {
        for line in [
            "",
            "path,label",
            "path,400,410,420,430",
            "name,split,2019,2020",
            "b1,b2,b3",
            "b1_mean,b2_mean,b3_mean,b4_mean",
            "a,b,c,d,e",
            "-1,-2,-3,-4",
        ] {
            assert_eq!(header(line), None, "{line}");
        }
    }
}
