//! Descriptions of planned cubes. The files of many cubes say the same about their bands and
//! values, and a plan of many cubes keeps it once.

use std::collections::VecDeque;
use std::path::Path;
use std::sync::Arc;

use hsipack_format::Geo;
use hsipack_source::{CubeInfo, Radiometry};

/// Description of bands and values in the files of cubes, and the bands that are kept.
#[derive(Debug)]
pub struct Description {
    /// Without files, notes, place and radiometry, which belong to one cube.
    info: CubeInfo,
    /// Bands that are kept; `None` keeps all.
    pub bands: Option<Vec<usize>>,
}

impl Description {
    /// The description of a cube, without what belongs to it alone: files, notes, place and
    /// radiometry.
    pub fn new(mut info: CubeInfo, bands: Option<Vec<usize>>) -> (Self, OwnInfo) {
        let own_info = OwnInfo { geo: info.geo.take(), radiometry: info.radiometry.take() };
        info.files = Vec::new();
        info.notes = Vec::new();
        (Self { info, bands }, own_info)
    }

    /// Contents of the file. Files, notes, place and radiometry are empty.
    pub fn shared(&self) -> &CubeInfo {
        &self.info
    }

    /// The whole description of the cube in `file`.
    pub fn of(&self, file: &Path, own_info: &OwnInfo) -> CubeInfo {
        CubeInfo {
            files: vec![file.to_owned()],
            geo: own_info.geo.clone(),
            radiometry: own_info.radiometry.clone(),
            ..self.info.clone()
        }
    }

    /// Whether the other says the same.
    fn is_like(&self, other: &Self) -> bool {
        // Every field, so that a new one is not forgotten.
        let CubeInfo {
            format,
            shape,
            dtype,
            wavelength,
            fwhm,
            good_bands,
            band_names,
            ignore_value,
            scaling,
            band_scaling,
            radiometry: _,
            empty_bands,
            unit,
            acquisition: _,
            exposure,
            class_names,
            class_colors: _,
            has_named_classes: _,
            misses_cube: _,
            undrawn_boxes: _,
            geo: _,
            notes: _,
            axes: _,
            files: _,
        } = &self.info;
        let theirs = &other.info;
        // NaN is like NaN.
        let bits = |value: Option<f64>| value.map(f64::to_bits);
        *shape == theirs.shape
            && *dtype == theirs.dtype
            && *format == theirs.format
            && *wavelength == theirs.wavelength
            && *fwhm == theirs.fwhm
            && *good_bands == theirs.good_bands
            && *band_names == theirs.band_names
            && bits(*ignore_value) == bits(theirs.ignore_value)
            && *scaling == theirs.scaling
            && *band_scaling == theirs.band_scaling
            && *empty_bands == theirs.empty_bands
            && *unit == theirs.unit
            && *exposure == theirs.exposure
            && *class_names == theirs.class_names
            && self.bands == other.bands
    }
}

/// Facts in the files of a cube that hold for it alone.
#[derive(Clone, Debug, Default)]
pub struct OwnInfo {
    /// Where the pixels lie on Earth.
    pub geo: Option<Geo>,
    /// Background and gain of each column and band.
    pub radiometry: Option<Radiometry>,
}

/// The descriptions of the last cubes.
#[derive(Debug, Default)]
pub(super) struct Descriptions(VecDeque<Arc<Description>>);

/// Number of descriptions with which a new one is compared. Folders often hold cubes of a few
/// sensors in turns.
const MAX_DESCRIPTIONS: usize = 16;

impl Descriptions {
    /// The description of a cube: an earlier one, if it says the same.
    pub fn share(
        &mut self,
        info: CubeInfo,
        bands: Option<Vec<usize>>,
    ) -> (Arc<Description>, OwnInfo) {
        let (new, own_info) = Description::new(info, bands);
        let position = self.0.iter().position(|earlier| earlier.is_like(&new));
        let shared = match position.and_then(|at| self.0.remove(at)) {
            Some(earlier) => earlier,
            None => Arc::new(new),
        };
        self.0.push_front(shared.clone());
        self.0.truncate(MAX_DESCRIPTIONS);
        (shared, own_info)
    }
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use hsipack_format::{CubeShape, DType};

    use super::*;

    fn info(bands: usize, file: &str) -> CubeInfo {
        let mut info = CubeInfo::new("test", CubeShape::new(2, 3, bands), DType::U16, file);
        info.wavelength = Some(vec![500.0; bands]);
        info.ignore_value = Some(f64::NAN);
        info.notes = vec![file.to_owned()];
        info
    }

    #[test]
    fn cubes_with_the_same_bands_and_values_share_a_description() {
        let mut all = Descriptions::default();
        let (first, _) = all.share(info(4, "a"), None);
        let (other, _) = all.share(info(5, "b"), None);
        let (again, _) = all.share(info(4, "c"), None);
        assert!(Arc::ptr_eq(&first, &again) && !Arc::ptr_eq(&first, &other));
        let (kept, _) = all.share(info(4, "a"), Some(vec![0]));
        assert!(!Arc::ptr_eq(&first, &kept));
        let scaled = CubeInfo { unit: Some("K".to_owned()), ..info(4, "a") };
        assert!(!Arc::ptr_eq(&first, &all.share(scaled, None).0));
        for bands in 10..40 {
            all.share(info(bands, "d"), None);
        }
        assert_eq!(all.0.len(), MAX_DESCRIPTIONS);
    }

    #[test]
    fn a_cube_gets_back_what_belongs_to_it_alone() {
        let geo = Geo { crs: None, transform: [1.0, 2.0, 0.0, 3.0, 0.0, -2.0], unit: None };
        let original = CubeInfo { geo: Some(geo.clone()), ..info(4, "a.hdr") };
        let (shared, own_info) = Descriptions::default().share(original, None);
        assert!(shared.shared().geo.is_none() && shared.shared().files.is_empty());
        let whole = shared.of(Path::new("a.hdr"), &own_info);
        assert_eq!((whole.geo, whole.files), (Some(geo), vec![PathBuf::from("a.hdr")]));
    }
}
