//! Several cubes with the same grid as one: the detectors of a sensor, their bands in order of
//! wavelength.
//!
//! The user joins their names with `+`: `scene.he5::VNIR_Cube+SWIR_Cube`. Each band keeps its own
//! scaling. Bands without data are dropped, because they have no place in the order.

use std::ops::Range;

use hsipack_format::{CubeShape, Error, Result};

use crate::{Access, CubeInfo, OpenOptions, RowBuffer, Source};

/// No sensor has more detectors.
const MAX_PARTS: usize = 8;

/// The names in a variable that names several cubes; `None` if it is one name.
pub(crate) fn names(options: &OpenOptions) -> Option<Vec<&str>> {
    let names: Vec<&str> = options.variable.as_deref()?.split('+').map(str::trim).collect();
    let several =
        (2..=MAX_PARTS).contains(&names.len()) && names.iter().all(|name| !name.is_empty());
    (several && !options.mask).then_some(names)
}

/// A band of a joined cube.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Band {
    part: usize,
    band: usize,
    wavelength: f64,
}

/// Cubes with the same grid, as one.
struct Joined {
    info: CubeInfo,
    parts: Vec<Box<dyn Source>>,
    bands: Vec<Band>,
}

/// The cubes `parts`, which the user calls `names`, as one.
///
/// # Errors
/// If they differ in grid, type or ignore value, or if one lacks wavelengths.
pub(crate) fn join(names: &[&str], parts: Vec<Box<dyn Source>>) -> Result<Box<dyn Source>> {
    let infos: Vec<&CubeInfo> = parts.iter().map(|part| part.info()).collect();
    check(names, &infos)?;
    let bands = in_order(names, &infos)?;
    let info = describe(names, &infos, &bands);
    Ok(Box::new(Joined { info, parts, bands }))
}

fn check(names: &[&str], infos: &[&CubeInfo]) -> Result<()> {
    let [first, others @ ..] = infos else { return Ok(()) };
    for (name, other) in names[1..].iter().zip(others) {
        let grid = |info: &CubeInfo| (info.shape.rows, info.shape.columns, info.dtype);
        let what = if grid(first) != grid(other) {
            format!("{} is {} {}", name, other.shape, other.dtype)
        } else if first.ignore_value != other.ignore_value {
            format!("{name} uses another value for missing data")
        } else {
            continue;
        };
        return Err(Error::conflict(format!(
            "{what}, but {} is {} {}; they cannot be joined",
            names[0], first.shape, first.dtype
        ))
        .with_remedy("join cubes with the same grid and type, or pack each cube separately"));
    }
    Ok(())
}

/// All bands that have data, in order of wavelength. Bands of the same wavelength keep the order of
/// their cubes.
fn in_order(names: &[&str], infos: &[&CubeInfo]) -> Result<Vec<Band>> {
    let mut bands = Vec::new();
    for (part, (name, info)) in names.iter().zip(infos).enumerate() {
        let wavelengths = info.wavelength.as_ref().ok_or_else(|| {
            Error::conflict(format!(
                "the wavelengths of {name} are not known, so its bands cannot be sorted"
            ))
            .with_remedy("pack each cube separately")
        })?;
        let with_data = (0..info.shape.bands).filter(|band| !info.empty_bands.contains(band));
        bands.extend(with_data.map(|band| Band { part, band, wavelength: wavelengths[band] }));
    }
    bands.sort_by(|a, b| a.wavelength.total_cmp(&b.wavelength));
    if bands.is_empty() {
        return Err(Error::conflict("none of these cubes has a band with data"));
    }
    Ok(bands)
}

fn describe(names: &[&str], infos: &[&CubeInfo], bands: &[Band]) -> CubeInfo {
    let first = infos[0];
    let shape = CubeShape { bands: bands.len(), ..first.shape };
    let format = format!("{}, {} joined", first.format, names.join(" + "));
    let mut info = CubeInfo::new(format, shape, first.dtype, &first.files[0]);
    let same =
        |alike: fn(&CubeInfo, &CubeInfo) -> bool| infos.iter().all(|part| alike(part, first));
    info.wavelength = Some(bands.iter().map(|band| band.wavelength).collect());
    let fwhm = |band: &Band| Some(infos[band.part].fwhm.as_ref()?[band.band]);
    info.fwhm = bands.iter().map(fwhm).collect();
    if infos.iter().any(|part| part.good_bands.is_some()) {
        let good =
            |band: &Band| infos[band.part].good_bands.as_ref().is_none_or(|good| good[band.band]);
        info.good_bands = Some(bands.iter().map(good).collect());
    }
    let name = |band: &Band| match &infos[band.part].band_names {
        Some(names) => names[band.band].clone(),
        None => format!("{} {}", last_component(names[band.part]), band.band),
    };
    info.band_names = Some(bands.iter().map(name).collect());
    info.scale_bands(bands.iter().map(|band| infos[band.part].scaling_of(band.band)).collect());
    info.ignore_value = first.ignore_value;
    info.unit = first.unit.clone().filter(|_| same(|a, b| a.unit == b.unit));
    info.geo = first.geo.clone().filter(|_| same(|a, b| a.geo == b.geo));
    info.acquisition =
        first.acquisition.clone().filter(|_| same(|a, b| a.acquisition == b.acquisition));
    for (name, part) in names.iter().zip(infos) {
        info.notes.extend(part.notes.iter().map(|note| format!("{name}: {note}")));
        let new: Vec<_> =
            part.files.iter().filter(|file| !info.files.contains(file)).cloned().collect();
        info.files.extend(new);
    }
    let empty: usize = infos.iter().map(|part| part.empty_bands.len()).sum();
    if empty > 0 {
        info.notes.push(format!("{empty} bands without data are left out of the joined cube"));
    }
    info
}

fn last_component(name: &str) -> &str {
    name.rsplit('/').next().unwrap_or(name)
}

impl Joined {
    /// The share of `budget` for each cube. One more share is for the joined rows.
    fn share(&self, budget: usize) -> usize {
        budget / (self.parts.len() + 1)
    }
}

impl Source for Joined {
    fn info(&self) -> &CubeInfo {
        &self.info
    }

    fn access(&self) -> Access {
        let sequential = self.parts.iter().any(|part| part.access() == Access::Sequential);
        if sequential { Access::Sequential } else { Access::Random }
    }

    fn preferred_rows(&self, budget: usize) -> usize {
        let affordable = (self.share(budget) / self.info.row_bytes().max(1)).max(1);
        let wanted = self.parts.iter().map(|part| part.preferred_rows(self.share(budget))).max();
        wanted.unwrap_or(1).min(affordable).clamp(1, self.info.shape.rows)
    }

    fn read_rows(&self, rows: Range<usize>, out: &mut RowBuffer) -> Result<()> {
        let pixels = rows.len() * self.info.shape.columns;
        let size = self.info.dtype.size();
        let mut read = Vec::with_capacity(self.parts.len());
        for part in &self.parts {
            let mut buffer = RowBuffer::new();
            buffer.reserve(rows.len() * part.info().row_bytes())?;
            part.read_rows(rows.clone(), &mut buffer)?;
            read.push(buffer);
        }
        out.reserve(pixels * self.bands.len() * size)?;
        let to = out.reset(self.info.dtype, pixels * self.bands.len());
        for (index, band) in self.bands.iter().enumerate() {
            let step = self.parts[band.part].info().shape.bands * size;
            let from = read[band.part].bytes().chunks_exact(step);
            let spectra = to.chunks_exact_mut(self.bands.len() * size);
            for (spectrum, from) in spectra.zip(from) {
                let value = &from[band.band * size..][..size];
                spectrum[index * size..][..size].copy_from_slice(value);
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use hsipack_format::DType;

    use super::*;
    use crate::AxisOrder;
    use crate::Scaling;
    use crate::flat::{FlatLayout, FlatSource, MemoryBytes};

    /// One row of two pixels, whose values are 10, 11, … and 20, 21, …
    fn part(nm: &[f64], scaling: f64) -> Box<dyn Source> {
        let bands = nm.len();
        let mut info = CubeInfo::new("test", CubeShape::new(1, 2, bands), DType::U8, "a");
        info.wavelength = Some(nm.to_vec());
        info.scaling = Scaling { multiply: scaling, ..Scaling::NONE };
        info.empty_bands = (0..bands).filter(|band| nm[*band] == 0.0).collect();
        let values = (0..2).flat_map(|pixel| (0..bands).map(move |band| 10 * (pixel + 1) + band));
        let bytes: Vec<u8> = values.map(|value| value as u8).collect();
        let layout = FlatLayout {
            offset: 0,
            order: AxisOrder::BIP,
            big_endian: false,
            rows_reversed: false,
        };
        Box::new(FlatSource::new(info, layout, MemoryBytes(bytes)))
    }

    #[test]
    fn bands_come_in_order_of_wavelength_with_their_own_scale() {
        let parts = vec![part(&[0.0, 700.0, 500.0], 2.0), part(&[600.0, 700.0], 3.0)];
        let joined = join(&["a/VNIR", "SWIR"], parts).unwrap();
        let info = joined.info();
        assert_eq!(info.wavelength.as_deref(), Some(&[500.0, 600.0, 700.0, 700.0][..]));
        let factors: Vec<f64> = (0..4).map(|band| info.scaling_of(band).multiply).collect();
        assert_eq!(factors, [2.0, 3.0, 2.0, 3.0]);
        assert_eq!(info.band_names.as_ref().unwrap()[2..], ["VNIR 1", "SWIR 1"]);
        assert!(info.notes[0].contains("1 bands without data"), "{:?}", info.notes);
        let mut rows = RowBuffer::new();
        joined.read_rows(0..1, &mut rows).unwrap();
        assert_eq!(rows.bytes(), [12, 10, 11, 11, 22, 20, 21, 21]);
    }

    #[test]
    fn cubes_that_do_not_fit_are_refused() {
        let refused = |change: fn(&mut CubeInfo), what: &str| {
            let mut info = part(&[600.0], 1.0).info().clone();
            change(&mut info);
            let first = part(&[500.0], 1.0);
            let infos = [first.info(), &info];
            let error = check(&["a", "b"], &infos).and_then(|()| in_order(&["a", "b"], &infos));
            let error = error.unwrap_err().to_string();
            assert!(error.contains(what), "{error}");
        };
        refused(|info| info.shape.rows = 7, "b is 7x2x1");
        refused(|info| info.dtype = DType::I8, "int8");
        refused(|info| info.ignore_value = Some(0.0), "missing");
        refused(|info| info.wavelength = None, "wavelengths of b");
    }

    #[test]
    fn several_names_have_a_plus_between() {
        let named = |text: &str| {
            let options = OpenOptions { variable: Some(text.to_owned()), ..Default::default() };
            names(&options).map(|names| names.len())
        };
        assert_eq!([named("a"), named("a+"), named("+")], [None; 3]);
        assert_eq!([named("a+b"), named("a + b+c")], [Some(2), Some(3)]);
    }
}
