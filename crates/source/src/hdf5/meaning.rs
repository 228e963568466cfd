//! What a dataset means: which axis is which, and what the file says about its bands and numbers.

use std::path::PathBuf;

use hsipack_format::{CubeShape, DType, Error, Opt, Result, remedy};

use super::spectral::GOOD_BANDS;
use super::tree::{Attributes, Entry, Tree};
use super::{axes, grid, spectral};
use crate::cube_axes::kept_axes;
use crate::products::{Facts, ProductCube};
use crate::wavelengths::{fwhm_to_nm, to_nm};
use crate::{Axes, Axis, AxisOrder, CubeInfo, OpenOptions, Scaling};

/// A cube within a dataset.
#[derive(Clone, Debug)]
pub(super) struct Cube {
    /// Lengths of all axes of the dataset.
    pub lengths: Vec<usize>,
    /// Which of these axes are the cube's. An index after the last axis stands for an axis of length 1,
    /// such as the bands of a 2-D mask.
    pub axes: [usize; 3],
    /// What these three axes are.
    pub order: AxisOrder,
}

impl Cube {
    fn length(&self, axis: usize) -> usize {
        self.lengths.get(axis).copied().unwrap_or(1)
    }

    pub fn shape(&self) -> CubeShape {
        self.order.shape(self.axes.map(|axis| self.length(axis)))
    }

    /// The dataset's axis of image rows.
    pub fn row_axis(&self) -> usize {
        self.axes[self.order.position(Axis::Row)]
    }
}

/// Everything needed to interpret a dataset.
pub(super) struct Meaning<'a> {
    pub tree: &'a Tree,
    pub entry: &'a Entry,
    pub product: Option<&'a ProductCube>,
    /// Whether the file is MATLAB's, whose index order is the reverse of the order on disk.
    pub matlab: bool,
    pub options: &'a OpenOptions,
}

impl Meaning<'_> {
    pub fn format(&self, tree: &Tree) -> String {
        let eos = tree.groups.iter().any(|group| group == "/HDFEOS");
        let netcdf = tree.attributes("").find(&["ncproperties"]).is_some();
        let container = match (self.matlab, eos, netcdf) {
            (true, _, _) => "MATLAB v7.3",
            (_, true, _) => "HDF-EOS5",
            (_, _, true) => "NetCDF-4",
            _ => "HDF5",
        };
        match self.product {
            Some(product) => format!("{} ({container})", product.name),
            None => container.to_owned(),
        }
    }

    /// The cube in the dataset. Its size is checked against the file and the `sources` of its values.
    pub fn cube(&self, sources: &[PathBuf]) -> Result<Cube> {
        let Entry { path, shape, .. } = self.entry;
        let text = self.entry.shape_text();
        if shape.contains(&0) {
            return Err(Error::malformed(format!("'{path}' is empty: {text}")));
        }
        let cube =
            if shape.len() == 2 && self.options.mask { self.image()? } else { self.three()? };
        let lengths = cube.axes.map(|axis| cube.length(axis));
        let product = lengths[0].checked_mul(lengths[1]).and_then(|n| n.checked_mul(lengths[2]));
        let possible = product.filter(|_| cube.shape().checked_values().is_some());
        let Some(values) = possible else {
            return Err(Error::malformed(format!(
                "'{path}' claims to be {text}: impossibly large"
            )));
        };
        self.check_size(sources, values)?;
        Ok(cube)
    }

    /// Refuses sizes that the file, together with the files of a virtual dataset, cannot hold. No filter
    /// makes data 2000 times smaller, and a cube of almost only fill values means a damaged header.
    fn check_size(&self, sources: &[PathBuf], values: usize) -> Result<()> {
        const GRACE: u64 = 1 << 30;
        let size = |path: &PathBuf| path.metadata().map_or(0, |metadata| metadata.len());
        let stored = sources.iter().map(size).fold(self.tree.file.size(), u64::saturating_add);
        let claimed = (values as u64).saturating_mul(8);
        let possible = stored.saturating_mul(2000).saturating_add(GRACE);
        if claimed <= possible {
            return Ok(());
        }
        Err(Error::malformed(format!(
            "'{}' claims to be {}, but the file has only {stored} bytes",
            self.entry.path,
            self.entry.shape_text(),
        ))
        .with_remedy("copy the file again; it is cut short or damaged"))
    }

    /// A 2-D mask: one band.
    fn image(&self) -> Result<Cube> {
        let lengths = self.entry.shape.clone();
        let names = self.tree.axis_names(&self.entry.path, 2);
        let known = [0, 1].map(|axis| names[axis].as_deref().and_then(axes::axis_of_name));
        let turned = known == [Some(Axis::Column), Some(Axis::Row)];
        let rows_first = AxisOrder([Axis::Row, Axis::Column, Axis::Band]);
        let columns_first = AxisOrder([Axis::Column, Axis::Row, Axis::Band]);
        let order = if turned != self.matlab { columns_first } else { rows_first };
        Ok(Cube { lengths, axes: [0, 1, 2], order })
    }

    fn three(&self) -> Result<Cube> {
        let Entry { path, shape, .. } = self.entry;
        let rank = shape.len();
        if rank < 3 {
            return Err(Error::unsupported(format!(
                "'{path}' is {rank}-D ({}), not a cube",
                self.entry.shape_text()
            ))
            .with_remedy(remedy![
                "name a 3-D dataset; a 2-D one can be a mask (",
                Opt::Mask,
                ")"
            ]));
        }
        let axes = self.kept_axes()?;
        let lengths = axes.map(|axis| shape[axis]);
        let order = self.order(axes, lengths)?;
        Ok(Cube { lengths: shape.clone(), axes, order })
    }

    /// Which of the dataset's axes are the cube's, in the order on disk.
    fn kept_axes(&self) -> Result<[usize; 3]> {
        if let (Some(product), None) = (self.product, &self.options.axes) {
            return Ok(product.axes);
        }
        let mut shown = self.entry.shape.clone();
        if self.matlab {
            shown.reverse();
        }
        let [a, b, c] = kept_axes(&shown, self.options.axes.as_ref())
            .map_err(|error| error.within(format_args!("'{}'", self.entry.path)))?;
        let last = shown.len() - 1;
        Ok(if self.matlab { [last - c, last - b, last - a] } else { [a, b, c] })
    }

    /// What the three axes are, in the order on disk.
    fn order(&self, axes: [usize; 3], lengths: [usize; 3]) -> Result<AxisOrder> {
        if let Some(order) = self.options.axes.as_ref().map(Axes::order) {
            return Ok(if self.matlab { order.reversed() } else { order });
        }
        if let Some(product) = self.product {
            return Ok(product.order);
        }
        let names = self.tree.axis_names(&self.entry.path, self.entry.shape.len());
        let names = axes.map(|axis| names[axis].clone());
        if let Some(order) = axes::order_of_names(&names) {
            return Ok(order);
        }
        let shown = if self.matlab { [lengths[2], lengths[1], lengths[0]] } else { lengths };
        let (list, _) = spectral::find(self.tree, &self.entry.path, &lengths);
        let told = match &list {
            Some(list) => axes::order_of_length(shown, list.values.len()),
            None if self.options.mask => axes::order_of_length(shown, 1),
            None => None,
        };
        let path = &self.entry.path;
        let order = match (told, &list) {
            (Some(order), _) => order,
            // MATLAB's toolboxes and every cube published as .mat use (row, column, band).
            (None, None) if self.matlab => AxisOrder::BIP,
            (None, Some(list)) if self.matlab && shown[2] == list.values.len() => AxisOrder::BIP,
            (None, Some(list)) => {
                let why = format!(
                    "the wavelength list in {} ({}) matches more than one axis",
                    list.found,
                    list.values.len()
                );
                return axes::cannot_tell(path, lengths, &why);
            }
            (None, None) => {
                return axes::cannot_tell(
                    path,
                    lengths,
                    "it is unclear which axis holds the bands",
                );
            }
        };
        Ok(if self.matlab { order.reversed() } else { order })
    }

    /// Fills in what the file says about bands and numbers.
    pub fn describe(&self, cube: &Cube, info: &mut CubeInfo) {
        let bands = info.shape.bands;
        let facts = match self.product {
            Some(product) => product.product.facts(product, self.tree, bands),
            None => self.generic_facts(bands, &mut info.notes),
        };
        info.notes.extend(facts.notes);
        if let Some(list) = facts.wavelengths
            && let Some(list) =
                fitting(Some(list), |l| l.values.len(), bands, "wavelength", &mut info.notes)
        {
            let unit = list.unit.as_deref();
            info.wavelength = to_nm(&list.values, unit).map_err(|note| info.notes.push(note)).ok();
            let fwhm = fitting(facts.fwhm, Vec::len, bands, "fwhm", &mut info.notes);
            // Widths are in the unit of the band centres, unless they have one of their own.
            let unit = facts.fwhm_unit.as_deref().or(unit);
            if let (Some(nm), Some(fwhm)) = (&info.wavelength, fwhm) {
                info.fwhm = fwhm_to_nm(&fwhm, unit, Some((&list.values, nm)))
                    .map_err(|note| info.notes.push(note))
                    .ok();
            }
        }
        info.good_bands = fitting(facts.good_bands, Vec::len, bands, "good band", &mut info.notes);
        let attributes = self.tree.attributes(&self.entry.path);
        info.ignore_value = ignore_value(&attributes, &mut info.notes).or(facts.ignore_value);
        info.empty_bands = facts.empty_bands;
        info.unit = facts.unit.map(str::to_owned);
        // If the user names the axes, the names in the file do not count.
        if self.options.axes.is_none() && !self.options.mask {
            let notes = &mut info.notes;
            info.geo = facts.geo.or_else(|| grid::geo(self.tree, &self.entry.path, cube, notes));
        }
        info.scaling =
            facts.scaling.unwrap_or_else(|| generic_scaling(&attributes, &mut info.notes));
        if attributes.text("_Unsigned").as_deref() == Some("true") && is_signed(info.dtype) {
            info.notes.push(
                "the attribute _Unsigned says that these signed numbers are unsigned; they are read \
                 as stored"
                    .into(),
            );
        }
    }

    fn generic_facts(&self, bands: usize, notes: &mut Vec<String>) -> Facts {
        let path = &self.entry.path;
        let (wavelengths, misfit) = spectral::find(self.tree, path, &[bands]);
        if let (None, Some(list)) = (&wavelengths, misfit) {
            notes.push(format!(
                "the wavelength list in {} has {} entries for {bands} bands; left out",
                list.found,
                list.values.len()
            ));
        }
        let names = ["fwhm", "fwhms", "bandwidth", "bandwidths"];
        let good = spectral::beside(self.tree, path, &GOOD_BANDS, bands);
        Facts {
            wavelengths,
            fwhm: spectral::beside(self.tree, path, &names, bands),
            fwhm_unit: spectral::attribute_unit(&self.tree.attributes(path), "fwhm"),
            good_bands: good.map(|good| good.iter().map(|flag| *flag != 0.0).collect()),
            ..Facts::default()
        }
    }
}

fn is_signed(dtype: DType) -> bool {
    matches!(dtype, DType::I8 | DType::I16 | DType::I32 | DType::I64)
}

/// The list, if it has one entry per band. Otherwise adds a note.
fn fitting<T>(
    list: Option<T>,
    len: impl Fn(&T) -> usize,
    bands: usize,
    what: &str,
    notes: &mut Vec<String>,
) -> Option<T> {
    let list = list?;
    if len(&list) == bands {
        return Some(list);
    }
    notes.push(format!("the {what} list has {} entries for {bands} bands; left out", len(&list)));
    None
}

/// The number that marks missing data, under any of the names in use.
fn ignore_value(attributes: &Attributes, notes: &mut Vec<String>) -> Option<f64> {
    const NAMES: [&str; 8] = [
        "fillvalue",
        "missingvalue",
        "dataignorevalue",
        "nodata",
        "nodatavalue",
        "ignorevalue",
        "filvalue",
        "missing",
    ];
    let named = |name: &'static str| Some((name, attributes.number(attributes.find(&[name])?)?));
    let found: Vec<_> = NAMES.into_iter().filter_map(named).collect();
    let (_, value) = *found.first()?;
    let same = |other: f64| other == value || (other.is_nan() && value.is_nan());
    if found.iter().any(|(_, other)| !same(*other)) {
        let all: Vec<_> = found.iter().map(|(name, value)| format!("{name} {value}")).collect();
        notes.push(format!(
            "several values mark missing data ({}); the first one is used",
            all.join(", ")
        ));
    }
    Some(value)
}

/// CF `scale_factor` multiplies. A capitalised `Scale_Factor` (NEON, and products that follow it)
/// divides.
fn generic_scaling(attributes: &Attributes, notes: &mut Vec<String>) -> Scaling {
    let usable = |value: &f64| value.is_finite() && *value != 0.0;
    let multiply = attributes.number("scale_factor").filter(usable);
    let add = attributes.number("add_offset").filter(|value| value.is_finite());
    if multiply.is_some() || add.is_some() {
        let (multiply, add) = (multiply.unwrap_or(1.0), add.unwrap_or(0.0));
        return Scaling { multiply, divide: 1.0, add };
    }
    match attributes.number("Scale_Factor").filter(usable) {
        Some(divide) if divide >= 1.0 => {
            notes.push(format!("numbers are divided by the attribute Scale_Factor, {divide}"));
            Scaling { divide, ..Scaling::NONE }
        }
        Some(multiply) => {
            notes.push(format!("numbers are multiplied by the attribute Scale_Factor, {multiply}"));
            Scaling { multiply, ..Scaling::NONE }
        }
        None => Scaling::NONE,
    }
}
