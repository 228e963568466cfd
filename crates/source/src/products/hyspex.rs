//! HySpex cameras of NEO: raw numbers, with the calibration in a binary header before them.
//!
//! | file | part |
//! |---|---|
//! | `….hyspex` and its `.hdr` | an ENVI pair, whose `header offset` leaves room for the binary header |
//!
//! Radiance in mW/(cm² µm sr) is (number − background) × gain. Each column and band has its own
//! background and gain. The gain follows from the camera's response and the settings: h·c / (RE ·
//! QE · SF · integration time · π·aperture² · pixel size · sampling · wavelength), as the maker's
//! tools and others in the field compute it. Cameras with serial numbers from 3000 to 5000 also
//! measure the background after the last line; in between, it is assumed to change evenly.

use std::f64::consts::PI;
use std::path::Path;

use hsipack_format::{Error, Result};
use hsipack_store::bounded_read;

use super::Product;
use crate::cube_info::{PlaceScaling, Radiometry};
use crate::{CubeInfo, Exposure};

const MAGIC: &[u8] = b"HYSPEX";
/// Bytes before the lists.
const FIXED: usize = 2181;
/// The largest camera has some 1800 columns and 430 bands.
const LARGEST_HEADER: u64 = 256 << 20;
const UNIT: &str = "mW/(cm2 um sr)";
/// Planck's constant in J s, and the speed of light in m/s.
const PLANCK: f64 = 6.626_070_15e-34;
const LIGHT: f64 = 299_792_458.0;

/// See the [module](self).
pub(super) struct Hyspex;

impl Product for Hyspex {
    fn sensor(&self) -> &'static str {
        "HySpex"
    }

    fn describe_cube(&self, info: &mut CubeInfo) -> Result<bool> {
        let is_data = |file: &&std::path::PathBuf| {
            file.extension().is_some_and(|ending| ending.eq_ignore_ascii_case("hyspex"))
        };
        let Some(file) = info.files.iter().find(is_data).cloned() else { return Ok(false) };
        let start = bounded_read::head(&file, FIXED as u64)?;
        if !start.starts_with(MAGIC) {
            return Ok(false);
        }
        let head = Head::parse(&start).map_err(|why| unusable(&file, why))?;
        let (columns, bands) = (info.shape.columns, info.shape.bands);
        if (head.columns, head.bands) != (columns, bands) {
            let (others, other_bands) = (head.columns, head.bands);
            return Err(Error::conflict(format!(
                "the ENVI header says {columns} columns and {bands} bands, but the header of the camera says {others} and {other_bands}"
            ))
            .at(&file)
            .with_remedy("copy both files again; a part of a scan cannot be calibrated with it"));
        }
        info.format = format!("HySpex ({})", info.format);
        info.unit = Some(UNIT.to_owned());
        info.exposure = info.exposure.take().or_else(|| {
            let (field, unit) = ("integration time".to_owned(), "us".to_owned());
            Some(Exposure { field, time: head.integration_time, unit })
        });
        info.radiometry = Some(Radiometry { file, columns, bands });
        Ok(true)
    }
}

fn unusable(file: &Path, why: String) -> Error {
    Error::malformed(format!("the camera's header: {why}"))
        .at(file)
        .with_remedy("copy the file again, or pack the stored numbers unchanged")
}

/// Entries of the fixed-length part of the header.
#[derive(Clone, Copy, Debug, PartialEq)]
#[doc(hidden)]
pub struct Head {
    bands: usize,
    columns: usize,
    integration_time: f64,
    bad_pixels: usize,
    has_last_background: bool,
    /// SF · π·aperture² · pixel size along both axes.
    response: f64,
}

impl Head {
    /// Parses it from the first bytes of a file.
    ///
    /// # Errors
    /// A message, if the bytes are something else.
    pub fn parse(bytes: &[u8]) -> Result<Self, String> {
        if bytes.len() < FIXED {
            return Err(format!("it has {} bytes, but needs more than {FIXED}", bytes.len()));
        }
        let whole = |at: usize| {
            let bytes = bytes[at..].first_chunk::<4>().expect("within the fixed part");
            u32::from_le_bytes(*bytes)
        };
        let number = |at: usize, name: &str| {
            let bytes = bytes[at..].first_chunk::<8>().expect("within the fixed part");
            let number = f64::from_le_bytes(*bytes);
            match number.is_finite() && number > 0.0 {
                true => Ok(number),
                false => Err(format!("{name} is {number}")),
            }
        };
        let serial = whole(12);
        let (bands, columns, time) = (whole(1961), whole(1965), whole(1977));
        if bands < 2 || columns == 0 || bands > 1 << 16 || columns > 1 << 20 || time == 0 {
            return Err(format!("{bands} bands, {columns} columns, {time} µs"));
        }
        let aperture = number(2117, "the aperture")?;
        let pixel = number(2125, "the pixel size")? * number(2133, "the pixel size")?;
        Ok(Self {
            bands: bands as usize,
            columns: columns as usize,
            integration_time: f64::from(time),
            bad_pixels: whole(2077) as usize,
            has_last_background: (3000..=5000).contains(&serial),
            response: number(2109, "the scale SF")? * PI * aperture * aperture * pixel,
        })
    }

    /// Bytes of the whole header.
    pub fn bytes(&self) -> u64 {
        let planes = if self.has_last_background { 3 } else { 2 };
        let lists = 2 * self.bands as u64 + planes * self.bands as u64 * self.columns as u64;
        FIXED as u64 + 8 * lists + 4 * self.bad_pixels as u64
    }
}

/// Reads the calibration of a cube.
///
/// # Errors
/// If the file cannot be read, or its header changed since it was opened.
pub(crate) fn read(of: &Radiometry) -> Result<PlaceScaling> {
    let file = &of.file;
    let head =
        Head::parse(&bounded_read::head(file, FIXED as u64)?).map_err(|why| unusable(file, why))?;
    if (head.columns, head.bands) != (of.columns, of.bands) {
        return Err(Error::conflict("the file was changed since it was opened").at(file));
    }
    if head.bytes() > LARGEST_HEADER {
        return Err(unusable(file, format!("it says that it has {} bytes", head.bytes())));
    }
    let bytes = bounded_read::head(file, head.bytes())?;
    if (bytes.len() as u64) < head.bytes() {
        return Err(unusable(file, format!("it has {} of {} bytes", bytes.len(), head.bytes())));
    }
    Ok(parse_lists(&head, &bytes))
}

/// Parses the lists after the fixed part. `bytes` must hold all of them.
fn parse_lists(head: &Head, bytes: &[u8]) -> PlaceScaling {
    let Head { bands, columns, .. } = *head;
    let all = |at: usize, len: usize| -> Vec<f64> {
        let numbers = bytes[at..at + 8 * len].as_chunks::<8>().0;
        numbers.iter().map(|number| f64::from_le_bytes(*number)).collect()
    };
    // From (band, column) to (column, band).
    let plane = |at: usize| -> Vec<f64> {
        let plane = all(at, bands * columns);
        let places = (0..columns).flat_map(|column| (0..bands).map(move |band| (band, column)));
        places.map(|(band, column)| plane[band * columns + column]).collect()
    };
    let centres = all(FIXED, bands);
    let efficiency = all(FIXED + 8 * bands, bands);
    let response = FIXED + 16 * bands;
    let background = response + 8 * bands * columns;
    let last = background + 8 * bands * columns + 4 * head.bad_pixels;
    // From photons to energy, per nm of the band's width. 10^8 converts W/(m² nm sr) and µs to `UNIT`.
    let by_band: Vec<f64> = (0..bands)
        .map(|band| {
            let next = (band + 1).min(bands - 1);
            let sampling = centres[next] - centres[next - 1];
            let photons = head.response * head.integration_time * efficiency[band];
            photons * sampling * centres[band] / (PLANCK * LIGHT * 1e9 * 1e8)
        })
        .collect();
    let response = plane(response);
    let divisor = response.iter().zip(by_band.iter().cycle()).map(|(re, by)| re * by);
    let finite = |divisor: f64| if divisor.is_finite() { divisor } else { 0.0 };
    PlaceScaling {
        background: plane(background),
        last_background: head.has_last_background.then(|| plane(last)),
        divisor: divisor.map(finite).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A header of 2 bands and 3 columns.
    fn header(serial: u32) -> Vec<u8> {
        let mut bytes = vec![0; FIXED];
        bytes[..6].copy_from_slice(MAGIC);
        let whole = [(12, serial), (1961, 2), (1965, 3), (1977, 1000), (2077, 1)];
        whole.iter().for_each(|(at, n)| bytes[*at..at + 4].copy_from_slice(&n.to_le_bytes()));
        let numbers = [(2109, 2.0f64), (2117, 0.01), (2125, 1e-3), (2133, 2e-3)];
        numbers.iter().for_each(|(at, n)| bytes[*at..at + 8].copy_from_slice(&n.to_le_bytes()));
        let mut lists = vec![500.0, 510.0, 0.5, 0.25];
        lists.extend([1.0, 2.0, 3.0, 4.0, 5.0, 0.0]);
        lists.extend([10.0, 20.0, 30.0, 40.0, 50.0, 60.0]);
        bytes.extend(lists.iter().flat_map(|number: &f64| number.to_le_bytes()));
        bytes.extend([7, 0, 0, 0]);
        let last = [11.0, 21.0, 31.0, 41.0, 51.0, 61.0];
        bytes.extend(last.iter().flat_map(|number: &f64| number.to_le_bytes()));
        bytes
    }

    #[test]
    fn places_are_scaled_by_response_and_settings() {
        let bytes = header(100);
        let head = Head::parse(&bytes).unwrap();
        assert_eq!((head.bands, head.columns, head.bytes()), (2, 3, FIXED as u64 + 8 * 16 + 4));
        let scaling = parse_lists(&head, &bytes);
        assert_eq!(scaling.background, [10.0, 40.0, 20.0, 50.0, 30.0, 60.0]);
        assert_eq!(scaling.last_background, None);
        // The formula in the module's documentation, for column 1 and band 0.
        let gain = PLANCK * LIGHT * 1e9 * 1e8
            / (2.0 * 0.5 * 2.0 * 1000.0 * PI * 1e-4 * 2e-6 * 10.0 * 500.0);
        assert!((scaling.divisor[2] * gain - 1.0).abs() < 1e-12);
        assert_eq!(scaling.divisor[5], 0.0);
        let head = Head::parse(&header(3100)).unwrap();
        let last = parse_lists(&head, &header(3100)).last_background.unwrap();
        assert_eq!(last, [11.0, 41.0, 21.0, 51.0, 31.0, 61.0]);
    }

    #[test]
    fn meaningless_headers_are_refused() {
        let whole = header(100);
        for (at, value) in [(1961, 0u32), (1961, u32::MAX), (1965, 0), (1977, 0), (2113, 0)] {
            let mut bytes = whole.clone();
            bytes[at..at + 4].copy_from_slice(&value.to_le_bytes());
            assert!(Head::parse(&bytes).is_err(), "{at}");
        }
        assert!(Head::parse(&whole[..FIXED - 1]).is_err());
    }
}
