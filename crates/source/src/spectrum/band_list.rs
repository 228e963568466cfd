//! Band centres in a file of their own: a text, a header, or an array.

use std::path::Path;

use hsipack_format::{Error, ErrorKind, Result};
use hsipack_store::{Dataset, bounded_read, is_packed};

use crate::container::ArrayEntry;
use crate::flat::envi;
use crate::flat::envi::Bands;
use crate::meaning::spectrum::{BandList, from_array};
use crate::spectrum::spectrum_text::{self, NumberList, Quantity, counts};
use crate::spectrum::wavelengths::{fwhm_to_nm, to_nm};
use crate::{OpenOptions, detect};

/// Larger texts are not read. Those of 10,000 bands take some 100 KB.
const LARGEST_TEXT: u64 = 4 << 20;
const REMEDY: &str = "give a text of one centre for each band, a CSV with a column wavelength, an ENVI header, or an array \
                      as FILE::NAME";

/// The band centres in `path`, in nm: the array `variable` of a container, or its only list; the
/// wavelengths of an ENVI header; or the numbers of a text.
///
/// # Errors
/// If the file cannot be read, or holds no list of wavelengths.
pub fn band_centers(path: &Path, variable: Option<&str>) -> Result<Vec<f64>> {
    read(path, variable).map_err(|error| error.at(path))
}

fn read(path: &Path, variable: Option<&str>) -> Result<Vec<f64>> {
    let mut found = None;
    let is_container = detect::visit(path, &mut |container| {
        let is_list = |entry: &ArrayEntry| entry.list_len().is_some_and(|length| length > 1);
        let mut lists = container.arrays_anywhere(&|_| true);
        lists.retain(|entry| match variable {
            Some(name) => entry.path.trim_matches('/') == name.trim_matches('/'),
            None => is_list(entry),
        });
        let [list] = &lists[..] else {
            return Err(match variable {
                Some(name) => Error::conflict(format!("there is no array '{name}'")),
                None if lists.is_empty() => {
                    return Err(Error::malformed("the file holds no list of wavelengths")
                        .with_remedy(REMEDY));
                }
                None => Error::conflict(format!("the file holds {} lists", lists.len())),
            }
            .with_remedy("name the array with the band centres: FILE::NAME"));
        };
        found = from_array(container, &list.path);
        Ok(())
    })?;
    match found {
        Some(BandList { values, unit, .. }) => nm(&NumberList { values, unit }),
        None if is_container => match alone(path) {
            Some(values) => nm(&NumberList { values, unit: None }),
            None => {
                Err(Error::malformed("the array is not a list of wavelengths").with_remedy(REMEDY))
            }
        },
        None if variable.is_some() => {
            Err(Error::unsupported("the file is not a container of arrays").with_remedy(REMEDY))
        }
        None => of_text(path),
    }
}

/// The numbers of an `.npy` file, which holds nothing else.
fn alone(path: &Path) -> Option<Vec<f64>> {
    crate::flat::numpy::list_in(path).ok()?
}

/// The bands in `path`: centres and, if they are known, full widths at half maximum, in nm. Of a
/// packed dataset or a cube, those that it records; of a text, the columns wavelength and fwhm; or
/// those of an ENVI header.
///
/// # Errors
/// If the file cannot be read, or holds no wavelengths.
pub(crate) fn sensor_bands(path: &Path) -> Result<Bands> {
    if is_packed(path) {
        return of_dataset(path);
    }
    let of_text = bands_of_text(path);
    if of_text.is_ok() {
        return of_text;
    }
    match detect::open(path, &OpenOptions::default()) {
        Ok(cube) => {
            let info = cube.info();
            let unknown = || Error::conflict("the cube has no wavelengths").at(path);
            Ok((info.wavelength.clone().ok_or_else(unknown)?, info.fwhm.clone()))
        }
        Err(_) => of_text.map_err(|error| error.at(path)),
    }
}

fn of_dataset(path: &Path) -> Result<Bands> {
    let dataset = Dataset::open(path)?;
    let mut bands = dataset.stacks().iter().map(|stack| (&stack.wavelength, &stack.fwhm));
    let first = bands.next();
    let Some((Some(wavelengths), fwhm)) = first else {
        return Err(Error::conflict("the dataset has no wavelengths")
            .at(path)
            .with_remedy("give a CSV with the columns wavelength and fwhm"));
    };
    if bands.any(|other| Some(other) != first) {
        return Err(Error::conflict("the stacks of the dataset have different bands")
            .at(path)
            .with_remedy("give a CSV with the columns wavelength and fwhm"));
    }
    Ok((wavelengths.clone(), fwhm.clone()))
}

fn bands_of_text(path: &Path) -> Result<Bands> {
    let text = bounded_read::read(path, LARGEST_TEXT)?;
    if let Some(bands) = envi::bands_in(&text)? {
        return Ok(bands);
    }
    let text = String::from_utf8(text).map_err(|_| {
        Error::malformed("not a text of bands")
            .with_remedy("give a CSV with the columns wavelength and fwhm")
    })?;
    let (centers, widths) = bands_in(&text)?;
    let in_nm = nm(&centers)?;
    let widths = widths.map(|widths| {
        fwhm_to_nm(&widths.values, widths.unit.as_deref(), Some((&centers.values, &in_nm)))
            .map_err(|why| Error::conflict(why).with_remedy("correct the column fwhm"))
    });
    Ok((in_nm, widths.transpose()?))
}

/// The centres and widths in a text: the columns of a table, with or without a header; centres
/// alone as in [`numbers`].
fn bands_in(text: &str) -> Result<(NumberList, Option<NumberList>)> {
    let text = text.trim_start_matches('\u{feff}');
    let lines: Vec<&str> = text
        .lines()
        .map(str::trim)
        .filter(|line| !line.is_empty() && !line.starts_with('#'))
        .collect();
    let widths = match widths_below_header(&lines) {
        Some(widths) => Some(widths?),
        None => match columns_without_header(&lines) {
            Some([centers, widths]) => return Ok((centers, Some(widths))),
            None => None,
        },
    };
    Ok((numbers(text)?, widths))
}

/// The column fwhm of a table; `None` if there is no such column.
fn widths_below_header(lines: &[&str]) -> Option<Result<NumberList>> {
    let cells = |line: &'_ str| -> Vec<String> {
        let cells = line.split([',', ';', '\t']);
        cells.map(|cell| cell.trim().trim_matches('"').to_owned()).collect()
    };
    let (first, below) = lines.split_first()?;
    let keys = cells(first);
    let keys: Vec<_> = keys.iter().map(|cell| spectrum_text::key(cell)).collect();
    let is_width = |key: &spectrum_text::Key| key.quantity == Quantity::Fwhm && !key.is_unit;
    let column = keys.iter().position(|key| key.as_ref().is_some_and(is_width))?;
    let unit = keys[column].as_ref().and_then(|key| key.unit.clone());
    let width = |line: &&str| match cells(line).get(column).map(String::as_str) {
        // Without a width, it is unknown.
        None | Some("") => Some(0.0),
        Some(cell) => spectrum_text::number(cell),
    };
    let values = below.iter().map(width).collect::<Option<Vec<f64>>>().ok_or_else(|| {
        Error::malformed("the column fwhm holds something else than numbers")
            .with_remedy("correct it, or leave cells empty")
    });
    Some(values.map(|values| NumberList { values, unit }))
}

/// Centres and widths of a table of numbers without a header: two columns, maybe after one that
/// counts the bands.
fn columns_without_header(lines: &[&str]) -> Option<[NumberList; 2]> {
    let row = |line: &&str| -> Option<Vec<f64>> {
        let cells = line.split(|letter: char| ",;".contains(letter) || letter.is_whitespace());
        cells.filter(|cell| !cell.is_empty()).map(spectrum_text::number).collect()
    };
    let rows = lines.iter().map(row).collect::<Option<Vec<_>>>()?;
    let width = rows.first()?.len();
    if rows.len() < 2 || rows.iter().any(|row| row.len() != width) {
        return None;
    }
    let column = |number: usize| rows.iter().map(|row| row[number]).collect::<Vec<f64>>();
    let list = |number: usize| NumberList { values: column(number), unit: None };
    match (width, counts(&column(0))) {
        (2, false) => Some([list(0), list(1)]),
        (3, true) => Some([list(1), list(2)]),
        _ => None,
    }
}

fn of_text(path: &Path) -> Result<Vec<f64>> {
    let text = bounded_read::read(path, LARGEST_TEXT)?;
    if let Some((wavelengths, _)) = envi::bands_in(&text)? {
        return Ok(wavelengths);
    }
    let text = String::from_utf8(text)
        .map_err(|_| Error::malformed("not a text of band centres").with_remedy(REMEDY))?;
    nm(&numbers(&text)?)
}

/// The numbers that a text of band centres holds, for fuzzing.
#[doc(hidden)]
pub fn band_numbers(text: &str) -> Result<Vec<f64>> {
    numbers(text).map(|list| list.values)
}

/// The band centres in a text: all numbers, or one column of a table.
fn numbers(text: &str) -> Result<NumberList> {
    let text = text.trim_start_matches('\u{feff}');
    let lines =
        text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'));
    let lines: Vec<&str> = lines.collect();
    let cells = |line: &'_ str| -> Vec<String> {
        let cells = line.split(|letter: char| ",;".contains(letter) || letter.is_whitespace());
        cells
            .filter(|cell| !cell.is_empty())
            .map(|cell| cell.trim_matches('"').to_owned())
            .collect()
    };
    let malformed = |what: String| Error::malformed(what).with_remedy(REMEDY);
    let Some((first, below)) = lines.split_first() else {
        return Err(malformed("the file is empty".to_owned()));
    };
    // A header names the column. Its cells may contain spaces, as in `wavelength (nm)`.
    let header: Vec<&str> =
        first.split([',', ';', '\t']).map(|cell| cell.trim().trim_matches('"')).collect();
    let key =
        |cell: &&str| spectrum_text::key(cell).filter(|key| key.quantity == Quantity::Wavelength);
    let has_header = header.iter().any(|cell| spectrum_text::number_list(cell).is_err());
    if has_header && !below.is_empty() {
        let named: Vec<usize> =
            (0..header.len()).filter(|column| key(&header[*column]).is_some()).collect();
        let column = match (&named[..], header.len()) {
            ([column], _) => *column,
            (_, 1) => 0,
            _ => return Err(malformed(format!("no column of {header:?} is called wavelength"))),
        };
        let unit = key(&header[column]).and_then(|key| key.unit);
        let mut values = Vec::with_capacity(below.len());
        for (line, number) in below.iter().zip(2..) {
            let cell = line.split([',', ';', '\t']).nth(column).unwrap_or_default();
            let value = spectrum_text::number(cell);
            values
                .push(value.ok_or_else(|| {
                    malformed(format!("line {number}: {cell:?} is not a number"))
                })?);
        }
        return Ok(NumberList { values, unit });
    }
    let table: Vec<Vec<String>> = lines.iter().map(|line| cells(line)).collect();
    let column = |column: usize| -> Option<Vec<f64>> {
        table.iter().map(|row| spectrum_text::number(row.get(column)?)).collect()
    };
    // Two columns of which the first counts the bands.
    if table.len() > 1
        && table.iter().all(|row| row.len() == 2)
        && let (Some(count), Some(values)) = (column(0), column(1))
        && counts(&count)
    {
        return Ok(NumberList { values, unit: None });
    }
    spectrum_text::number_list(&lines.join(" ")).map_err(|_| {
        malformed(
            "the text holds something else than numbers, or numbers of different units".to_owned(),
        )
    })
}

/// A list such as `400, 410, 420 nm`; `None` if the text is something else.
pub fn parse_band_centers(text: &str) -> Option<Result<Vec<f64>>> {
    let list = spectrum_text::number_list(text).ok().filter(|list| !list.values.is_empty())?;
    Some(nm(&list))
}

fn nm(list: &NumberList) -> Result<Vec<f64>> {
    to_nm(&list.values, list.unit.as_deref()).map_err(|_| {
        Error::new(ErrorKind::Conflict, "these are not wavelengths")
            .with_remedy("give lengths above 0 in nm or µm, such as 400,410 or 0.4um,0.41um")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_lists_or_columns() {
        let read = |text: &str| {
            let list = numbers(text).unwrap();
            (list.values, list.unit)
        };
        let three = vec![400.0, 410.5, 421.0];
        for text in [
            "400\n410.5\n421\n",
            "400, 410.5, 421",
            "\u{feff}# centres\n400 410.5 421",
            "1 400\n2 410.5\n3 421",
            "band,wavelength\n1,400\n2,410.5\n3,421",
            "centre\n400\n410.5\n421",
        ] {
            assert_eq!(read(text), (three.clone(), None), "{text}");
        }
        let nm = Some("nm".to_owned());
        assert_eq!(read("400 nm, 410.5 nm, 421 nm"), (three.clone(), nm.clone()));
        assert_eq!(read("band,wavelength (nm)\n1,400\n2,410.5\n3,421"), (three, nm));
    }

    #[test]
    fn tables_of_bands_have_centres_and_widths() {
        let read = |text: &str| {
            let (centers, widths) = bands_in(text).unwrap();
            (centers.values, widths.map(|widths| widths.values))
        };
        let (nm, fwhm) = (vec![490.0, 560.5], vec![65.0, 35.0]);
        for text in [
            "wavelength,fwhm\n490,65\n560.5,35\n",
            "\u{feff}band;FWHM (nm);Wavelength (nm)\nB2;65;490\nB3;35;560.5",
            "490,65\n560.5,35",
            "1\t490\t65\n2\t560.5\t35",
            "490 65\n560.5 35",
        ] {
            assert_eq!(read(text), (nm.clone(), Some(fwhm.clone())), "{text}");
        }
        for text in ["490\n560.5", "1,490\n2,560.5", "wavelength\n490\n560.5", "490, 560.5"] {
            assert_eq!(read(text), (nm.clone(), None), "{text}");
        }
        assert_eq!(read("wavelength,fwhm\n490,\n560.5,35").1, Some(vec![0.0, 35.0]));
        for text in ["", "wavelength,fwhm\n490,x\n", "wavelength,fwhm\nx,2\n"] {
            assert!(bands_in(text).is_err(), "{text:?}");
        }
    }

    #[test]
    fn other_texts_are_refused() {
        for text in ["", "a b c", "a,b\n1,2\n", "wavelength\n400\nx\n", "400 nm, 1 um"] {
            assert_eq!(numbers(text).unwrap_err().kind(), ErrorKind::Malformed, "{text:?}");
        }
    }

    #[test]
    fn lists_are_in_nm() {
        let parse = |text: &str| parse_band_centers(text).map(Result::unwrap);
        assert_eq!(parse("400,500"), Some(vec![400.0, 500.0]));
        assert_eq!(parse("0.4,0.5"), Some(vec![400.0, 500.0]));
        assert_eq!(parse("0.4um,0.5um"), Some(vec![400.0, 500.0]));
        assert_eq!(parse("centres.txt"), None);
        assert!(parse_band_centers("-1,2").unwrap().is_err());
    }
}
