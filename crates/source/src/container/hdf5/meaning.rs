//! The meaning of a dataset: the rules of all containers, and those of products whose layout says
//! everything.

use std::path::PathBuf;

use hsipack_format::{Error, Result};

use super::entry::Entry;
use super::tree::Tree;
use crate::container::ArrayEntry;
use crate::meaning::{Known, Placed, Reading, Subject};
use crate::products::{self, Facts, ProductCube};
use crate::spectrum::wavelengths::{fwhm_to_nm, to_nm};
use crate::{CubeInfo, OpenOptions};

/// Everything needed to interpret a dataset.
pub(super) struct Meaning<'a> {
    pub tree: &'a Tree,
    pub entry: &'a Entry,
    pub product: Option<&'a ProductCube>,
    pub options: &'a OpenOptions,
}

impl Meaning<'_> {
    pub fn format(&self) -> String {
        let eos = self.tree.groups.iter().any(|group| group == "/HDFEOS");
        let netcdf = self.tree.attributes("").find(&["ncproperties"]).is_some();
        let container = match (self.tree.is_matlab, eos, netcdf) {
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

    fn subject<'s>(&'s self, shown: &'s ArrayEntry) -> Subject<'s> {
        Subject {
            container: self.tree,
            entry: shown,
            layout: self.product.map(|product| (product.axes, product.order)),
            options: self.options,
        }
    }

    /// The cube in the dataset. Its size is checked against the file and the `sources` of its
    /// values.
    pub fn place(&self, sources: &[PathBuf], notes: &mut Vec<String>) -> Result<Placed> {
        let shown = self.tree.shown(self.entry);
        let named = |error: Error| error.within(format_args!("'{}'", self.entry.path));
        let placed = self.subject(&shown).place(notes).map_err(named)?;
        self.check_size(sources, placed.shape().values())?;
        Ok(placed)
    }

    /// Refuses sizes that the file, together with the files of a virtual dataset, cannot hold. No
    /// filter makes data 2000 times smaller, and a cube of almost only fill values means a damaged
    /// header.
    fn check_size(&self, sources: &[PathBuf], values: usize) -> Result<()> {
        const GRACE: u64 = 1 << 30;
        let size = |path: &PathBuf| path.metadata().map_or(0, |metadata| metadata.len());
        let stored = sources.iter().map(size).fold(self.tree.file_size(), u64::saturating_add);
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

    /// Fills in what the file says about bands, numbers and place. Returns how the numbers have to
    /// be read.
    ///
    /// # Errors
    /// If a list is damaged.
    pub fn describe(&self, placed: &Placed, info: &mut CubeInfo) -> Result<Reading> {
        let shown = self.tree.shown(self.entry);
        let subject = self.subject(&shown);
        let Some(product) = self.product else {
            let reading = subject.describe(placed, Known::default(), info)?;
            info.geo = subject.geo(placed, &mut info.notes);
            return Ok(reading);
        };
        let mut facts = product.product.facts(product, self.tree, info.shape.bands);
        info.acquisition = Some(products::acquisition(product.product, &info.files[0]));
        info.notes.append(&mut facts.notes);
        info.empty_bands = std::mem::take(&mut facts.empty_bands);
        info.unit = facts.unit.map(str::to_owned);
        let predefined =
            Known { scaling: facts.scaling, ignore_value: facts.ignore_value, bands: true };
        let geo = facts.geo.take();
        describe_bands(facts, info);
        let reading = subject.describe(placed, predefined, info)?;
        if !self.options.mask {
            let is_as_defined = (placed.axes, placed.order) == (product.axes, product.order);
            info.geo =
                geo.filter(|_| is_as_defined).or_else(|| subject.geo(placed, &mut info.notes));
        }
        Ok(reading)
    }
}

/// Fills in what a product says about bands.
fn describe_bands(facts: Facts, info: &mut CubeInfo) {
    let bands = info.shape.bands;
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
