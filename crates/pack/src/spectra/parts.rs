//! Spectra with several processes: each computes the spectra of some samples, and one combines the
//! results into a table.

use hsipack_format::{Error, Result};
use hsipack_store::Dataset;
use serde::{Deserialize, Serialize};

use super::table::{Row, Table};
use super::{SpectraOptions, choose, look, rows_of};
use crate::progress::Progress;

/// The header before the numbers of the rows.
#[derive(Serialize, Deserialize)]
struct Head {
    /// Fingerprint of the dataset.
    fingerprint: String,
    /// Number of samples that were read, including those without a region.
    samples: usize,
    rows: Vec<RowHead>,
}

#[derive(Serialize, Deserialize)]
struct RowHead {
    sample: usize,
    stack: usize,
    region: u16,
    pixels: u64,
    bands: usize,
}

/// Divides the selected samples into at most `most` shares of neighbouring samples.
///
/// # Errors
/// The same as those of [`spectra`](super::spectra), except errors of chunks.
pub fn shares(options: &SpectraOptions, most: usize) -> Result<Vec<Vec<usize>>> {
    let dataset = Dataset::open_to_read(&options.dataset, options.as_of.as_deref())?;
    let samples = choose(&dataset, options)?;
    look(&dataset, options, &samples)?;
    let shares = most.clamp(1, samples.len().max(1));
    let first = |share: usize| share * samples.len() / shares;
    Ok((0..shares).map(|share| samples[first(share)..first(share + 1)].to_vec()).collect())
}

/// The spectra of one share, as bytes for [`put_together`].
///
/// # Errors
/// The same as those of [`spectra`](super::spectra).
pub fn part(options: &SpectraOptions, progress: &Progress) -> Result<Vec<u8>> {
    let dataset = Dataset::open_to_read(&options.dataset, options.as_of.as_deref())?;
    let samples = choose(&dataset, options)?;
    let rows = rows_of(&dataset, options, &samples, progress)?;
    Ok(encode(dataset.fingerprint(), samples.len(), &rows))
}

/// Combines all shares into the same table that one process would compute.
///
/// # Errors
/// If the dataset cannot be opened, or a part comes from another dataset.
pub fn put_together(options: &SpectraOptions, parts: &[Vec<u8>]) -> Result<Table> {
    let dataset = Dataset::open_to_read(&options.dataset, options.as_of.as_deref())?;
    let (mut samples, mut rows) = (0, Vec::new());
    for part in parts {
        let (head, of_part) =
            decode(part).ok_or_else(|| Error::bug("a part of spectra that is none"))?;
        if head.fingerprint != dataset.fingerprint() {
            return Err(Error::conflict("the dataset was changed while its spectra were computed")
                .at(&options.dataset)
                .with_remedy("compute them again"));
        }
        samples += head.samples;
        rows.extend(of_part);
    }
    rows.sort_by_key(|row: &Row| row.sample);
    Table::new(&dataset, options, samples, rows)
}

/// A line of JSON, followed by the numbers of each row: spectrum, standard deviation, missing.
fn encode(fingerprint: &str, samples: usize, rows: &[Row]) -> Vec<u8> {
    let head = |row: &Row| RowHead {
        sample: row.sample,
        stack: row.stack,
        region: row.region,
        pixels: row.pixels,
        bands: row.spectrum.len(),
    };
    let fingerprint = fingerprint.to_owned();
    let head = Head { fingerprint, samples, rows: rows.iter().map(head).collect() };
    let mut bytes = serde_json::to_vec(&head).expect("whole numbers and text");
    bytes.push(b'\n');
    for row in rows {
        for numbers in [&row.spectrum, &row.std] {
            bytes.extend(numbers.iter().flat_map(|number| number.to_le_bytes()));
        }
        bytes.extend(row.missing.iter().flat_map(|number| number.to_le_bytes()));
    }
    bytes
}

fn decode(bytes: &[u8]) -> Option<(Head, Vec<Row>)> {
    let end = bytes.iter().position(|byte| *byte == b'\n')?;
    let head: Head = serde_json::from_slice(&bytes[..end]).ok()?;
    let mut words = bytes[end + 1..].chunks_exact(8);
    let mut next = || Some(<[u8; 8]>::try_from(words.next()?).expect("chunks of 8"));
    let mut rows = Vec::new();
    for row in &head.rows {
        let mut numbers =
            || (0..row.bands).map(|_| next().map(f64::from_le_bytes)).collect::<Option<_>>();
        let (spectrum, std) = (numbers()?, numbers()?);
        let missing =
            (0..row.bands).map(|_| next().map(u64::from_le_bytes)).collect::<Option<_>>()?;
        let RowHead { sample, stack, region, pixels, .. } = *row;
        rows.push(Row { sample, stack, region, pixels, spectrum, std, missing });
    }
    next().is_none().then_some((head, rows))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(sample: usize, bands: usize) -> Row {
        let numbers: Vec<f64> = (0..bands).map(|band| 1.0 / (band + sample) as f64).collect();
        Row {
            sample,
            stack: 1,
            region: 7,
            pixels: 1 << 40,
            std: numbers.iter().map(|number| -number).collect(),
            missing: (0..bands as u64).collect(),
            spectrum: numbers,
        }
    }

    #[test]
    fn rows_come_back_bit_for_bit() {
        let rows = [row(0, 3), row(5, 0), row(9, 4)];
        let bytes = encode("f", 11, &rows);
        let (head, read) = decode(&bytes).unwrap();
        assert_eq!((&*head.fingerprint, head.samples), ("f", 11));
        assert!(rows[0].spectrum[0].is_infinite());
        assert_eq!(read, rows);
        let nan = Row { spectrum: vec![f64::NAN], ..row(1, 1) };
        let bytes = encode("f", 1, std::slice::from_ref(&nan));
        assert!(decode(&bytes).unwrap().1[0].spectrum[0].is_nan());
    }

    #[test]
    fn parts_that_are_cut_or_longer_are_refused() {
        let bytes = encode("f", 1, &[row(0, 3)]);
        for len in 0..bytes.len() {
            assert!(decode(&bytes[..len]).is_none() || bytes.len() - len < 8, "{len}");
        }
        assert!(decode(&[&bytes[..], &[0; 8]].concat()).is_none());
    }
}
