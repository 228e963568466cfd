//! Cubes whose spectra are resampled to other bands.

use std::ops::{Range, RangeInclusive};
use std::path::Path;
use std::str::FromStr;

use hsipack_format::spectral_response::{MIN_COVERAGE, SensorBands, SpectralResponse};
use hsipack_format::{CubeShape, DType, Error, ErrorKind, Opt, Result, remedy};
use serde::{Deserialize, Serialize};

use crate::spectrum::band_list::sensor_bands;
use crate::{Access, CubeInfo, RowBuffer, Source, marked};

/// The bands that spectra are resampled to.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "Bands")]
pub struct BandGrid {
    /// Centres in nm.
    pub wavelengths: Vec<f64>,
    /// Full widths at half maximum in nm; a width that is not above 0 is unknown.
    pub fwhm: Option<Vec<f64>>,
}

/// Bands as users give them.
#[derive(Deserialize)]
#[serde(untagged)]
enum Bands {
    File(String),
    Lists {
        wavelengths: Vec<f64>,
        #[serde(default)]
        fwhm: Option<Vec<f64>>,
    },
}

impl TryFrom<Bands> for BandGrid {
    type Error = Error;

    fn try_from(bands: Bands) -> Result<Self> {
        match bands {
            Bands::File(path) => path.parse(),
            Bands::Lists { wavelengths, fwhm } => Self::new(wavelengths, fwhm),
        }
    }
}

impl BandGrid {
    fn new(wavelengths: Vec<f64>, fwhm: Option<Vec<f64>>) -> Result<Self> {
        let grid = Self { wavelengths, fwhm };
        grid.sensor().check("new")?;
        Ok(grid)
    }

    fn sensor(&self) -> SensorBands<'_> {
        let Self { wavelengths, fwhm } = self;
        SensorBands { wavelengths, fwhm: fwhm.as_deref(), valid: None }
    }
}

impl FromStr for BandGrid {
    type Err = Error;

    /// Reads the bands in a file: a CSV or text, an ENVI header, a dataset or a cube.
    fn from_str(text: &str) -> Result<Self> {
        let path = Path::new(text);
        if !path.exists() {
            return Err(Error::new(ErrorKind::NotFound, "there is no such file of bands")
                .at(path)
                .with_remedy(
                    "give a CSV with the columns wavelength and fwhm, an ENVI header, a dataset or a cube; the names of sensors are not known",
                ));
        }
        let (wavelengths, fwhm) = sensor_bands(path)?;
        Self::new(wavelengths, fwhm).map_err(|error| error.at(path))
    }
}

/// The cube of `source`, resampled to the bands of `grid`. Its values are physical (float64), and
/// NaN where they are missing. `nodata` is the stored number that marks missing values; if it is
/// `None`, the file says it.
///
/// # Errors
/// If the cube has no wavelengths, none of the bands, or gains of its own for each column.
pub fn resampled(
    source: Box<dyn Source>,
    grid: &BandGrid,
    nodata: Option<f64>,
) -> Result<Box<dyn Source>> {
    let from = source.info();
    let refuse = |what: String| Error::conflict(what).at(&from.files[0]);
    let Some(wavelengths) = &from.wavelength else {
        return Err(refuse("its wavelengths are not known, so it cannot be resampled".to_owned())
            .with_remedy(remedy!["give them with ", Opt::BandCenters]));
    };
    if from.radiometry.is_some() {
        return Err(refuse(
            "its columns have gains of their own, which are applied to the bands of the sensor"
                .to_owned(),
        )
        .with_remedy(remedy![
            "pack it without ",
            Opt::Resample,
            ", and resample its batches"
        ]));
    }
    let mut valid = from.good_bands.clone().unwrap_or_else(|| vec![true; from.shape.bands]);
    from.empty_bands.iter().for_each(|band| valid[*band] = false);
    let bands = SensorBands { wavelengths, fwhm: from.fwhm.as_deref(), valid: Some(&valid) };
    let response = SpectralResponse::new(bands, grid.sensor(), MIN_COVERAGE)
        .map_err(|error| error.at(&from.files[0]))?;
    if !response.valid().contains(&true) {
        let ends = |nm: &[f64]| {
            let least = nm.iter().copied().fold(f64::INFINITY, f64::min);
            format!("{least} to {} nm", nm.iter().copied().fold(0.0, f64::max))
        };
        return Err(refuse(format!(
            "it has bands from {}, and none where the new ones are, from {}",
            ends(wavelengths),
            ends(&grid.wavelengths)
        ))
        .with_remedy(remedy!["correct ", Opt::Resample]));
    }
    let mut info = from.clone();
    info.shape = CubeShape { bands: response.bands(), ..from.shape };
    info.dtype = DType::F64;
    info.wavelength = Some(grid.wavelengths.clone());
    info.fwhm.clone_from(&grid.fwhm);
    info.good_bands = Some(response.valid().to_vec());
    (info.band_names, info.ignore_value) = (None, None);
    info.scale_bands(Vec::new());
    info.empty_bands.clear();
    let missing = response.valid().iter().filter(|valid| !**valid).count();
    if missing > 0 {
        info.notes.push(format!(
            "{missing} of the {} bands of {} are where it has no bands, and are packed as NaN",
            response.bands(),
            Opt::Resample
        ));
    }
    let missing = nodata.or(from.ignore_value).map(|nodata| marked(nodata, from.dtype));
    Ok(Box::new(ResampledSource { info, source, response, missing }))
}

struct ResampledSource {
    info: CubeInfo,
    source: Box<dyn Source>,
    response: SpectralResponse,
    /// Stored numbers of missing values.
    missing: Option<RangeInclusive<f64>>,
}

impl ResampledSource {
    /// The physical value of a stored number of a band.
    fn physical(&self, band: usize, value: f64) -> f64 {
        let from = self.source.info();
        let is_missing = self.missing.as_ref().is_some_and(|missing| missing.contains(&value));
        if is_missing { f64::NAN } else { from.scaling_of(band).physical(value) }
    }
}

impl Source for ResampledSource {
    fn info(&self) -> &CubeInfo {
        &self.info
    }

    fn access(&self) -> Access {
        self.source.access()
    }

    fn preferred_rows(&self, budget: usize) -> usize {
        // The rows of the source are held, too.
        self.source.preferred_rows(budget / 2)
    }

    fn read_rows(&self, rows: Range<usize>, out: &mut RowBuffer) -> Result<()> {
        let (all, count) = (self.response.source_bands(), self.response.bands());
        let pixels = rows.len() * self.info.shape.columns;
        let mut stored = RowBuffer::new();
        self.source.read_rows(rows, &mut stored)?;
        out.reset(self.info.dtype, pixels * count);
        let mut spectrum = vec![f64::NAN; all];
        let used = self.response.used_bands();
        for (pixel, resampled) in out.values_mut::<f64>().chunks_exact_mut(count).enumerate() {
            for band in &used {
                spectrum[*band] = self.physical(*band, stored.number(pixel * all + band));
            }
            self.response.apply(&spectrum, resampled);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::flat::{FlatLayout, FlatSource, MemoryBytes};
    use crate::{AxisOrder, Scaling};

    /// A cube of 1 x 2 pixels with 10 bands from 400 nm on, whose values are wavelengths, in
    /// tenths.
    fn cube(change: impl Fn(&mut CubeInfo)) -> Box<dyn Source> {
        let shape = CubeShape::new(1, 2, 10);
        let mut info = CubeInfo::new("test", shape, DType::U16, "cube");
        info.wavelength = Some((0..10).map(|band| 400.0 + 10.0 * f64::from(band)).collect());
        info.scaling = Scaling { multiply: 1.0, divide: 10.0, add: 0.0 };
        info.ignore_value = Some(0.0);
        change(&mut info);
        let layout = FlatLayout {
            offset: 0,
            order: AxisOrder::BIP,
            big_endian: false,
            rows_reversed: false,
        };
        let numbers = (0..20u16).map(|at| if at == 15 { 0 } else { 4000 + at % 10 * 100 });
        let bytes = numbers.flat_map(u16::to_le_bytes).collect();
        Box::new(FlatSource::new(info, layout, MemoryBytes(bytes)))
    }

    fn grid(wavelengths: &[f64]) -> BandGrid {
        BandGrid::new(wavelengths.to_vec(), None).unwrap()
    }

    #[test]
    fn values_are_physical_and_missing_ones_stay() {
        let source = resampled(cube(|_| ()), &grid(&[412.5, 450.0, 700.0]), None).unwrap();
        let info = source.info();
        assert_eq!((info.shape.bands, info.dtype), (3, DType::F64));
        assert_eq!(info.good_bands, Some(vec![true, true, false]));
        assert_eq!((info.notes.len(), info.is_scaled()), (1, false));
        let mut out = RowBuffer::new();
        source.read_rows(0..1, &mut out).unwrap();
        let values = out.as_slice::<f64>();
        assert!((values[0] - 412.5).abs() < 1e-9 && values[1] == 450.0 && values[2].is_nan());
        assert!((values[3] - 412.5).abs() < 1e-9 && values[4].is_nan());
        source.read_band(1, 0..1, &mut out).unwrap();
        assert!(out.as_slice::<f64>()[0] == 450.0);
    }

    #[test]
    fn cubes_without_these_bands_are_refused() {
        let error = |source, nm: &[f64]| match resampled(source, &grid(nm), None) {
            Ok(_) => panic!("resampled"),
            Err(error) => error.to_string(),
        };
        assert!(error(cube(|info| info.wavelength = None), &[450.0]).contains("not known"));
        assert!(error(cube(|_| ()), &[900.0]).contains("bands from 400 to 490 nm"));
        let all_bad = |info: &mut CubeInfo| info.good_bands = Some(vec![false; 10]);
        assert!(error(cube(all_bad), &[450.0]).contains("none where the new ones are"));
    }

    #[test]
    fn bands_are_given_as_lists_or_files() {
        let read = |json: &str| serde_json::from_str::<BandGrid>(json);
        let both = read(r#"{"wavelengths": [500, 600], "fwhm": [10, 20]}"#).unwrap();
        assert_eq!(both.fwhm, Some(vec![10.0, 20.0]));
        assert_eq!(read(&serde_json::to_string(&both).unwrap()).unwrap(), both);
        for wrong in [r#"{"wavelengths": []}"#, r#"{"wavelengths": [0]}"#, r#""sentinel2""#] {
            assert!(read(wrong).is_err(), "{wrong}");
        }
        let error = "sentinel2".parse::<BandGrid>().unwrap_err();
        assert!(error.to_string().contains("names of sensors are not known"), "{error}");
    }
}
