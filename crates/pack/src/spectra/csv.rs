//! The table as CSV: columns that describe the row, then three columns for each band, named by its
//! wavelength in nm.

use std::path::Path;

use csv::Writer;
use hsipack_format::{Error, Result};

use super::table::{Row, Table};
use crate::staged::Staged;

/// Writes the file. The columns of a band are `LABEL`, `std_LABEL` and `missing_LABEL`. If a row
/// has no value in a column, the cell is empty.
pub(super) fn write(table: &Table, path: &Path) -> Result<()> {
    let bands = Bands::of(table);
    let mut file = Staged::create(path)?;
    let fail = |error: csv::Error| Error::io(path, "cannot write", error.into());
    {
        let mut writer = Writer::from_writer(file.writer());
        let names = table.columns.iter().map(|column| column.name.clone());
        let labels = bands.labels.iter();
        let header = names
            .chain(labels.clone().cloned())
            .chain(labels.clone().map(|label| format!("std_{label}")))
            .chain(labels.map(|label| format!("missing_{label}")));
        writer.write_record(header).map_err(fail)?;
        for (number, row) in table.rows.iter().enumerate() {
            let texts = table.columns.iter().map(|column| column.values.text(number));
            let cells = texts.chain(bands.cells(row)).map(Option::unwrap_or_default);
            writer.write_record(cells).map_err(fail)?;
        }
        writer.flush().map_err(|error| Error::io(path, "cannot write", error))?;
    }
    file.commit()
}

/// The bands of all stacks that have rows. Bands with the same label share one column.
struct Bands {
    labels: Vec<String>,
    /// For each stack, the place in `labels` of each of its bands.
    places: Vec<Vec<usize>>,
}

impl Bands {
    fn of(table: &Table) -> Self {
        let mut bands =
            Self { labels: Vec::new(), places: vec![Vec::new(); table.wavelengths.len()] };
        for row in &table.rows {
            if !bands.places[row.stack].is_empty() {
                continue;
            }
            let of_stack = labels(table.wavelengths[row.stack].as_deref(), row.spectrum.len());
            let column = |label: String| {
                bands.labels.iter().position(|existing| *existing == label).unwrap_or_else(|| {
                    bands.labels.push(label);
                    bands.labels.len() - 1
                })
            };
            bands.places[row.stack] = of_stack.into_iter().map(column).collect();
        }
        bands
    }

    /// Spectrum, standard deviations and missing values of a row, each in the order of the labels.
    fn cells<'a>(&'a self, row: &'a Row) -> impl Iterator<Item = Option<String>> + 'a {
        let mut band_of = vec![None; self.labels.len()];
        (0..).zip(&self.places[row.stack]).for_each(|(band, column)| band_of[*column] = Some(band));
        let number = |value: f64| (!value.is_nan()).then(|| value.to_string());
        let of = move |part: usize, band: usize| match part {
            0 => number(row.spectrum[band]),
            1 => number(row.std[band]),
            _ => Some(row.missing[band].to_string()),
        };
        (0..3).flat_map(move |part| {
            let cells: Vec<_> = band_of.iter().map(|band| of(part, (*band)?)).collect();
            cells
        })
    }
}

/// Wavelengths of the bands in nm, if all are known and differ; otherwise `band_0`, `band_1`, …
fn labels(wavelengths: Option<&[f64]>, bands: usize) -> Vec<String> {
    let named: Vec<String> = wavelengths.unwrap_or_default().iter().map(f64::to_string).collect();
    let mut sorted = named.clone();
    sorted.sort_unstable();
    sorted.dedup();
    let all_known = wavelengths.is_some_and(|all| all.iter().all(|nm| nm.is_finite()));
    if all_known && sorted.len() == bands {
        return named;
    }
    (0..bands).map(|band| format!("band_{band}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bands_are_called_by_wavelengths_that_differ() {
        assert_eq!(labels(Some(&[450.0, 452.75]), 2), ["450", "452.75"]);
        assert_eq!(labels(Some(&[450.0, 450.0]), 2), ["band_0", "band_1"]);
        assert_eq!(labels(Some(&[450.0, f64::NAN]), 2), ["band_0", "band_1"]);
        assert_eq!(labels(None, 1), ["band_0"]);
    }
}
