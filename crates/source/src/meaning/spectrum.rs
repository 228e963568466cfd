//! Lists that describe the bands of a cube: wavelengths, widths and bad bands, under all names in
//! use.
//!
//! Lists are searched for near the array first: its own attributes, then attributes and arrays of
//! the groups around it, then arrays anywhere. A list belongs to the cube only if it has one value
//! per band.

use std::collections::BTreeSet;

use hsipack_format::{Result, text};

use crate::CubeInfo;
use crate::container::{Container, parent, plain};
use crate::spectrum::wavelengths::{self, Unit, guess, known_unit, scaled};

/// The most lists of one kind that are read. Reading one from a compressed struct takes long.
const MAX_LISTS: usize = 32;
/// No sensor has more bands. Longer lists are not read.
const MAX_BANDS: usize = 1 << 20;

/// A list that describes bands.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct BandList {
    /// The numbers as stored.
    pub values: Vec<f64>,
    /// Their unit, if the file states it.
    pub unit: Option<String>,
    /// Where they were found, for messages.
    pub found: String,
}

impl BandList {
    /// How many nm their unit has; `Err` names a unit that is not a length.
    fn factor(&self) -> Result<Option<f64>, String> {
        match self.unit.as_deref().and_then(known_unit) {
            Some(Unit::Length(factor)) => Ok(Some(factor)),
            Some(Unit::Other) => {
                Err(text::printable(self.unit.as_deref().unwrap_or_default().trim()).into_owned())
            }
            None => Ok(None),
        }
    }
}

/// The kinds of lists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Centres of the bands.
    Wavelength,
    /// Full widths at half maximum.
    Fwhm,
    /// 1 for good bands, 0 for bad ones.
    GoodBands,
}

/// Names of wavelength lists in [`plain`] spelling, without a unit at the end. Any name with
/// `wavelength` in it counts as well, unless it has one of [`OTHER_QUANTITIES`].
const WAVELENGTHS: [&str; 28] = [
    "wl",
    "wls",
    "wvl",
    "wvls",
    "wv",
    "wave",
    "waves",
    "wav",
    "wavs",
    "wlen",
    "wavelen",
    "lambda",
    "lambdas",
    "lam",
    "λ",
    "cwl",
    "cwls",
    "bandcenter",
    "bandcenters",
    "bandcentre",
    "bandcentres",
    "centerwave",
    "centerwaves",
    "listcw",
    "bandwl",
    "centralwl",
    "waveband",
    "wavebands",
];
/// Names that more often mean something else, in [`plain`] spelling. Lists of these names have to
/// rise or fall, and are not looked for in other groups.
const WEAK: [&str; 17] = [
    "band",
    "bands",
    "b",
    "c",
    "channel",
    "channels",
    "center",
    "centers",
    "centre",
    "centres",
    "spectral",
    "spectralaxis",
    "spectrum",
    "nm",
    "um",
    "µm",
    "spectralbands",
];
/// Parts of names that are about wavelengths but are not wavelengths.
const OTHER_QUANTITIES: [&str; 20] = [
    "fwhm",
    "width",
    "good",
    "bad",
    "flag",
    "min",
    "max",
    "range",
    "step",
    "resolution",
    "error",
    "uncert",
    "unit",
    "shift",
    "count",
    "num",
    "index",
    "delta",
    "valid",
    "name",
];
const WIDTHS: [&str; 8] = [
    "fwhm",
    "fwhms",
    "bandwidth",
    "bandwidths",
    "fullwidthhalfmax",
    "fullwidthhalfmaximum",
    "fullwidthathalfmaximum",
    "listfwhm",
];
const GOOD_BANDS: [&str; 9] = [
    "goodwavelengths",
    "goodbands",
    "goodwavelength",
    "bbl",
    "goodbandslist",
    "goodbandlist",
    "badbandlist",
    "badbandslist",
    "goodbandsmask",
];
/// Units at the end of names, the longest first.
const UNITS: [&str; 12] = [
    "nanometers",
    "nanometres",
    "micrometers",
    "micrometres",
    "nanometer",
    "micrometer",
    "microns",
    "micron",
    "angstroms",
    "angstrom",
    "nm",
    "um",
];

/// The name in plain spelling without the unit at its end, and this unit.
pub(crate) fn without_unit(name: &str) -> (String, Option<&'static str>) {
    let whole = plain(name).replace("μm", "um").replace("µm", "um");
    // The last letters of these words are no unit.
    if ["maximum", "minimum", "spectrum"].iter().any(|word| whole.ends_with(word)) {
        return (whole, None);
    }
    for unit in UNITS {
        if let Some(stem) = whole.strip_suffix(unit).filter(|stem| !stem.is_empty()) {
            return (stem.to_owned(), Some(unit));
        }
    }
    (whole, None)
}

/// How well a name says that a list is of this kind, 0 best; `None` if it does not.
pub(crate) fn rank(name: &str, kind: Kind) -> Option<u8> {
    let (base, unit) = without_unit(name);
    let is = |names: &[&str]| names.contains(&&*base);
    match kind {
        Kind::Wavelength => {
            let contains = base.contains("wavelength")
                && !OTHER_QUANTITIES.iter().any(|word| base.contains(word));
            match (contains || is(&WAVELENGTHS), unit) {
                (true, Some(_)) => Some(0),
                (true, None) => Some(1),
                (false, _) => (is(&WEAK) || WEAK.contains(&&*plain(name))).then_some(2),
            }
        }
        Kind::Fwhm if base.contains("unit") => None,
        Kind::Fwhm => (is(&WIDTHS) || base.contains("fwhm")).then_some(1),
        Kind::GoodBands => is(&GOOD_BANDS).then_some(1),
    }
}

/// The unit that a text beside a list states: `wavelength_units` beside `wavelength`.
/// `wavelengthunits` is the unit of wavelengths of any name.
fn stated_beside(names: impl IntoIterator<Item = String>, list: &str, kind: Kind) -> Vec<String> {
    let base = plain(list);
    let singular = base.trim_end_matches('s').to_owned();
    let mut found: Vec<(bool, String)> = Vec::new();
    for name in names {
        let other = plain(&name);
        let Some(of) = other.strip_suffix("units").or_else(|| other.strip_suffix("unit")) else {
            continue;
        };
        if !singular.is_empty() && of.starts_with(&*singular) {
            found.push((false, name));
        } else if kind == Kind::Wavelength && matches!(of, "wavelength" | "wavelengths") {
            found.push((true, name));
        }
    }
    found.sort();
    found.into_iter().map(|(_, name)| name).collect()
}

/// Where lists are looked for, and how they are read.
struct Lists<'a> {
    container: &'a dyn Container,
    path: &'a str,
    kind: Kind,
    /// Names that count as well, such as that of the dimension of the bands.
    extra: &'a BTreeSet<String>,
}

/// A list that was not read yet.
enum ListLocation {
    Attribute { of: String, name: String },
    Array { path: String },
}

struct Candidate {
    rank: u8,
    length: usize,
    name: String,
    location: ListLocation,
}

impl<'a> Lists<'a> {
    fn rank(&self, name: &str) -> Option<u8> {
        let by_dimension = self.kind == Kind::Wavelength && self.extra.contains(name);
        rank(name, self.kind).or_else(|| by_dimension.then_some(2))
    }

    fn of_attributes(&self, of: &str, found: &mut Vec<Candidate>) {
        let attributes = self.container.attributes(of);
        for name in attributes.names() {
            let Some(rank) = self.rank(&name) else { continue };
            let numbers = attributes.value(&name).and_then(|value| value.numbers());
            if let Some((numbers, _)) = numbers {
                let location = ListLocation::Attribute { of: of.to_owned(), name: name.clone() };
                found.push(Candidate { rank, length: numbers.len(), name, location });
            }
        }
    }

    fn of_arrays(&self, group: Option<&str>, found: &mut Vec<Candidate>) {
        let wanted = |name: &str| self.rank(name).is_some_and(|rank| group.is_some() || rank < 2);
        let arrays = match group {
            Some(group) => self.container.arrays_in(group, &wanted),
            None => self.container.arrays_anywhere(&wanted),
        };
        for entry in arrays.into_iter().filter(|entry| entry.path != self.path) {
            let Some(rank) = self.rank(entry.name()) else { continue };
            // How many numbers a text has shows only when it is read.
            let written = || Some(self.container.values(&entry.path).ok()??.numbers()?.0.len());
            let length = if entry.dtype.is_some() { entry.list_len() } else { written() };
            if let Some(length) = length.filter(|length| *length <= MAX_BANDS) {
                let name = entry.name().to_owned();
                let location = ListLocation::Array { path: entry.path };
                found.push(Candidate { rank, length, name, location });
            }
        }
    }

    /// The candidates of each scope, nearest first and the best names first.
    fn scopes(&self) -> Vec<Vec<Candidate>> {
        let mut scopes = Vec::new();
        let mut attached = Vec::new();
        self.of_attributes(self.path, &mut attached);
        scopes.push(attached);
        let mut group = self.path;
        while !group.is_empty() {
            group = parent(group);
            let mut here = Vec::new();
            self.of_attributes(group, &mut here);
            self.of_arrays(Some(group), &mut here);
            scopes.push(here);
        }
        let mut anywhere = Vec::new();
        self.of_arrays(None, &mut anywhere);
        scopes.push(anywhere);
        for scope in &mut scopes {
            scope.sort_by_key(|candidate| candidate.rank);
        }
        scopes
    }

    fn read(&self, candidate: &Candidate) -> Result<Option<BandList>> {
        let (value, own_unit, group, found) = match &candidate.location {
            ListLocation::Attribute { of, name } => (
                self.container.attributes(of).value(name),
                None,
                of.clone(),
                format!("attribute '{name}'"),
            ),
            ListLocation::Array { path } => {
                let attributes = self.container.attributes(path);
                let unit =
                    attributes.find(&["units", "unit"]).and_then(|name| attributes.text(&name));
                (self.container.values(path)?, unit, parent(path).to_owned(), format!("'{path}'"))
            }
        };
        let Some((values, written)) = value.and_then(|value| value.numbers()) else {
            return Ok(None);
        };
        let is_known = |unit: &String| known_unit(unit).is_some();
        let unit = own_unit
            .filter(is_known)
            .or_else(|| written.filter(is_known))
            .or_else(|| without_unit(&candidate.name).1.map(str::to_owned))
            .or_else(|| self.unit_beside(&group, &candidate.name));
        Ok(Some(BandList { values, unit, found }))
    }

    /// The unit that attributes of the array or of the list's group, or a text beside the list,
    /// state.
    fn unit_beside(&self, group: &str, list: &str) -> Option<String> {
        for of in [self.path, group, parent(self.path)] {
            let attributes = self.container.attributes(of);
            for name in stated_beside(attributes.names(), list, self.kind) {
                if let Some(unit) = attributes.text(&name).filter(|unit| known_unit(unit).is_some())
                {
                    return Some(unit);
                }
            }
        }
        let is_unit = |name: &str| !stated_beside([name.to_owned()], list, self.kind).is_empty();
        let texts = self.container.arrays_in(group, &is_unit);
        texts.iter().find_map(|entry| {
            let value = self.container.values(&entry.path).ok()??;
            value.text().filter(|unit| known_unit(unit).is_some()).map(str::to_owned)
        })
    }
}

/// Whether numbers can be wavelengths: finite, not negative, not all alike.
fn is_plausible(values: &[f64]) -> bool {
    let positive = values.iter().all(|value| value.is_finite() && *value >= 0.0);
    let top = values.iter().copied().fold(0.0, f64::max);
    positive && top > 0.0 && (values.len() < 2 || values.iter().any(|value| *value != values[0]))
}

/// Whether values are band numbers: 0, 1, 2, … or 1, 2, 3, …
fn is_count(values: &[f64]) -> bool {
    values.len() > 1
        && (values[0] == 0.0 || values[0] == 1.0)
        && values.iter().enumerate().all(|(index, value)| *value == values[0] + index as f64)
}

fn is_monotonic(values: &[f64]) -> bool {
    values.windows(2).all(|pair| pair[0] < pair[1])
        || values.windows(2).all(|pair| pair[0] > pair[1])
}

/// Wavelengths that fit a cube.
pub(super) struct Wavelengths {
    /// As stored.
    pub list: BandList,
    /// In nm.
    pub nm: Vec<f64>,
}

/// The outcome of a search for wavelengths.
#[derive(Default)]
pub(super) struct Search {
    /// The wavelengths, if there are any.
    pub wavelengths: Option<Wavelengths>,
    /// The length of a list that describes bands and has one of the lengths asked for, and its
    /// name.
    pub length: Option<(usize, String)>,
    /// Why other lists were left out.
    pub notes: Vec<String>,
}

/// The wavelengths in nm of a list, or why they are not used.
fn in_nm(list: &BandList, name: &str, rank: u8, notes: &mut Vec<String>) -> Option<Vec<f64>> {
    let factor = match list.factor() {
        Ok(factor) => factor,
        Err(unit) => {
            notes.push(format!(
                "the wavelengths are in '{unit}', which is not a unit of length, so they are left out"
            ));
            return None;
        }
    };
    if is_count(&list.values) && factor.is_none_or(|factor| factor == 1.0) {
        notes.push(format!("'{name}' numbers the bands; it does not give wavelengths"));
        return None;
    }
    let left_out = || format!("'{name}' holds values that are not wavelengths, so it was left out");
    if !is_plausible(&list.values) || rank > 1 && !is_monotonic(&list.values) {
        notes.push(left_out());
        return None;
    }
    let factor = factor.unwrap_or_else(|| {
        let (factor, unit) = guess(&list.values);
        if factor != 1.0 {
            notes.push(format!("'{name}' was assumed to be in {unit}"));
        }
        factor
    });
    let nm = scaled(&list.values, factor);
    if nm.contains(&f64::INFINITY) {
        notes.push(left_out());
        return None;
    }
    Some(nm)
}

/// Looks for wavelengths of the array at `path` that have one of these `lengths`.
///
/// # Errors
/// If a list is damaged.
pub(super) fn find(
    container: &dyn Container,
    path: &str,
    lengths: &[usize],
    dimensions: &BTreeSet<String>,
) -> Result<Search> {
    let mut search = Search::default();
    let lists = Lists { container, path, kind: Kind::Wavelength, extra: dimensions };
    let mut read = 0;
    for scope in lists.scopes() {
        let (mut fits, misfits): (Vec<_>, Vec<_>) =
            scope.into_iter().partition(|candidate| lengths.contains(&candidate.length));
        // Lists of the same name for different sensors: no telling whose this cube is.
        if let Some(best) = fits.iter().map(|candidate| candidate.rank).min() {
            let of_best = || fits.iter().filter(|candidate| candidate.rank == best);
            let first = of_best().next().map(|candidate| candidate.length);
            if of_best().any(|candidate| Some(candidate.length) != first) {
                return Ok(search);
            }
        }
        for candidate in fits.drain(..) {
            read += 1;
            if read > MAX_LISTS {
                return Ok(search);
            }
            let Some(list) = lists.read(&candidate)? else { continue };
            let nm = in_nm(&list, &candidate.name, candidate.rank, &mut search.notes);
            if let Some(nm) = nm {
                search.length = Some((list.values.len(), list.found.clone()));
                search.wavelengths = Some(Wavelengths { list, nm });
                return Ok(search);
            }
            if list.values.len() > 1 && search.length.is_none() {
                search.length = Some((list.values.len(), list.found));
            }
        }
        // A single number, such as `bands = 32`, is not a list.
        if let Some(misfit) =
            misfits.iter().find(|candidate| candidate.rank < 2 && candidate.length > 1)
        {
            let note = format!(
                "'{}' has {} values for {} bands, so it was left out",
                misfit.name,
                misfit.length,
                lengths.iter().map(usize::to_string).collect::<Vec<_>>().join(" or ")
            );
            if !search.notes.contains(&note) {
                search.notes.push(note);
            }
        }
    }
    Ok(search)
}

/// The nearest list of this kind that has `bands` values.
fn nearest(
    container: &dyn Container,
    path: &str,
    kind: Kind,
    bands: usize,
    notes: &mut Vec<String>,
) -> Result<Option<BandList>> {
    let lists = Lists { container, path, kind, extra: &BTreeSet::new() };
    let mut misfit = None;
    let mut read = 0;
    for candidate in lists.scopes().into_iter().flatten() {
        if candidate.length != bands {
            misfit = misfit.or(Some((candidate.name, candidate.length)));
            continue;
        }
        read += 1;
        if read > MAX_LISTS {
            break;
        }
        if let Some(list) = lists.read(&candidate)? {
            return Ok(Some(list));
        }
    }
    if let Some((name, length)) = misfit.filter(|(_, length)| *length > 1) {
        notes.push(format!("'{name}' has {length} values for {bands} bands, so it was left out"));
    }
    Ok(None)
}

/// The length of a list of widths or of bad bands that has one of `lengths`, and its name: which
/// axis holds the bands if there are no wavelengths.
pub(super) fn other_length(
    container: &dyn Container,
    path: &str,
    lengths: &[usize],
) -> Option<(usize, String)> {
    [Kind::Fwhm, Kind::GoodBands].into_iter().find_map(|kind| {
        let lists = Lists { container, path, kind, extra: &BTreeSet::new() };
        let mut found = lists.scopes().into_iter().flatten();
        let fits =
            found.find(|candidate| candidate.length > 1 && lengths.contains(&candidate.length))?;
        Some((fits.length, format!("'{}'", fits.name)))
    })
}

/// Fills in what the lists near the array at `path` say about its bands.
///
/// # Errors
/// If a list is damaged.
pub(super) fn describe(
    container: &dyn Container,
    path: &str,
    dimensions: &BTreeSet<String>,
    info: &mut CubeInfo,
) -> Result<()> {
    let bands = info.shape.bands;
    let search = find(container, path, &[bands], dimensions)?;
    // Notes about other lists matter if none was found.
    let found = search.wavelengths;
    info.notes.extend(
        search.notes.into_iter().filter(|note| found.is_none() || note.contains("assumed")),
    );
    let widths = nearest(container, path, Kind::Fwhm, bands, &mut info.notes)?;
    if let Some(widths) = widths {
        describe_widths(&widths, found.as_ref(), info);
    }
    info.wavelength = found.map(|found| found.nm);
    if let Some(good) = nearest(container, path, Kind::GoodBands, bands, &mut info.notes)? {
        match good.values.iter().all(|value| *value == 0.0 || *value == 1.0) {
            true => info.good_bands = Some(good.values.iter().map(|value| *value == 1.0).collect()),
            false => info.notes.push(format!(
                "{} holds values other than 0 and 1, so it was left out",
                good.found
            )),
        }
    }
    Ok(())
}

/// Fills in the widths of bands in nm.
fn describe_widths(widths: &BandList, wavelengths: Option<&Wavelengths>, info: &mut CubeInfo) {
    let found = &widths.found;
    let is_width = |nm: &[f64]| nm.iter().all(|value| value.is_finite() && *value >= 0.0);
    let stated = match widths.factor() {
        Ok(stated) => stated,
        Err(unit) => {
            info.notes.push(format!(
                "the fwhm are in '{unit}', which is not a unit of length, so they are left out"
            ));
            return;
        }
    };
    let nm = match (stated, wavelengths) {
        (Some(factor), _) => scaled(&widths.values, factor),
        (None, None) => {
            info.notes.push(format!(
                "the unit of {found} is unknown without wavelengths, so it was left out"
            ));
            return;
        }
        (None, Some(wavelengths)) => {
            let Some(factor) = width_factor(&widths.values, wavelengths) else {
                info.notes.push(format!(
                    "{found} cannot be the fwhm of these wavelengths in any unit, so it was left out"
                ));
                return;
            };
            let nm = scaled(&widths.values, factor.1);
            if factor.0 {
                info.notes.push(format!(
                    "{found} (fwhm) was assumed to be in another unit than the wavelengths"
                ));
            }
            nm
        }
    };
    match is_width(&nm) {
        true => info.fwhm = Some(nm),
        false => {
            info.notes.push(format!("{found} holds values that are not widths, so it was left out"))
        }
    }
}

/// How many nm the unit of widths without a unit has, and whether it differs from that of the
/// wavelengths: theirs if the widths are possible in it, otherwise nm or µm.
fn width_factor(widths: &[f64], wavelengths: &Wavelengths) -> Option<(bool, f64)> {
    let stored =
        wavelengths.list.values.iter().zip(&wavelengths.nm).find(|(stored, _)| **stored > 0.0);
    let unit_factor =
        stored.map_or(1.0, |(stored, nm)| 10f64.powi((nm / stored).log10().round() as i32));
    let factor = wavelengths::width_factor(widths, &wavelengths.nm, unit_factor)?;
    Some((factor != unit_factor, factor))
}

/// The list in the array at `path`, with its unit; for products that know where their lists are.
pub(crate) fn from_array(container: &dyn Container, path: &str) -> Option<BandList> {
    let (values, _) = container.values(path).ok()??.numbers()?;
    let attributes = container.attributes(path);
    let unit = attributes.find(&["units", "unit"]).and_then(|name| attributes.text(&name));
    is_plausible(&values).then(|| BandList { values, unit, found: format!("'{path}'") })
}

/// The list of `bands` flags nearest to the array at `path`, 1 for good bands; for products.
pub(crate) fn good_bands_beside(
    container: &dyn Container,
    path: &str,
    bands: usize,
) -> Option<Vec<f64>> {
    let list = nearest(container, path, Kind::GoodBands, bands, &mut Vec::new()).ok()??;
    Some(list.values)
}

#[cfg(test)]
mod tests {
    use hsipack_format::{CubeShape, DType};
    use serde_json::json;

    use super::*;
    use crate::container::InMemory;

    fn described(container: &InMemory) -> CubeInfo {
        let mut info = CubeInfo::new("test", CubeShape::new(1, 1, 3), DType::U8, "x");
        describe(container, "/cube", &BTreeSet::new(), &mut info).unwrap();
        info
    }

    fn of_lists(lists: &[(&str, &[f64])]) -> CubeInfo {
        let add = |tree: InMemory, (name, values): &(&str, &[f64])| {
            tree.with_list(&format!("/{name}"), values)
        };
        described(&lists.iter().fold(InMemory::default(), add))
    }

    #[test]
    fn names_of_wavelengths_are_distinguished_from_names_about_them() {
        for name in [
            "wavelength",
            "Wavelengths",
            "wvl",
            "λ",
            "Band_Centers",
            "wavelength_nm",
            "wlUm",
            "bands",
        ] {
            assert!(rank(name, Kind::Wavelength).is_some(), "{name}");
        }
        for name in [
            "good_wavelengths",
            "wavelength_units",
            "fwhm",
            "wavelength_min",
            "waveform",
            "band_names",
        ] {
            assert!(rank(name, Kind::Wavelength).is_none(), "{name}");
        }
    }

    #[test]
    fn only_lists_that_can_be_wavelengths_are_taken() {
        assert!(is_plausible(&[400.0, 500.0]));
        assert!(is_plausible(&[0.0, 900.0, 800.0]), "PRISMA pads with zeros");
        for values in [&[0.0, 0.0][..], &[1.0, f64::NAN], &[5.0, 5.0], &[-1.0, 2.0], &[]] {
            assert!(!is_plausible(values), "{values:?}");
        }
        for values in [&[1.0, 2.0, 3.0][..], &[0.0, 1.0, 2.0], &[450.0, 400.0, 500.0], &[5.0, 6.0]]
        {
            assert_eq!(of_lists(&[("bands", values)]).wavelength, None, "{values:?}");
        }
        let info = of_lists(&[("wavelength", &[400.0, 500.0])]);
        assert_eq!(info.notes, ["'wavelength' has 2 values for 3 bands, so it was left out"]);
        // A number of bands beside the list is not a list.
        let info = of_lists(&[("bands", &[3.0]), ("wl", &[400.0, 500.0, 600.0])]);
        assert!(info.wavelength.is_some() && info.notes.is_empty());
    }

    #[test]
    fn the_nearest_list_of_the_best_name_is_taken() {
        let tree = InMemory::default()
            .with_list("/far/wavelength", &[1000.0, 1100.0, 1200.0])
            .with_list("/bands", &[700.0, 800.0, 900.0])
            .with_list("/wavelength", &[400.0, 500.0, 600.0]);
        assert_eq!(described(&tree).wavelength, Some(vec![400.0, 500.0, 600.0]));
        let tree = tree.with_attributes("/cube", json!({"wl": [410, 510, 610]}));
        assert_eq!(described(&tree).wavelength, Some(vec![410.0, 510.0, 610.0]));
    }

    #[test]
    fn widths_in_another_unit_than_wavelengths_are_recognised() {
        let nm = &[400.0, 500.0, 600.0];
        let um = &[0.4, 0.5, 0.6];
        for wavelengths in [nm, um] {
            for widths in [&[5.0, 5.0, 6.0], &[0.005, 0.005, 0.006]] {
                let info = of_lists(&[("wavelength", wavelengths), ("fwhm", widths)]);
                assert_eq!(info.wavelength, Some(nm.to_vec()));
                assert_eq!(info.fwhm, Some(vec![5.0, 5.0, 6.0]));
            }
        }
        let info = of_lists(&[("wavelength", nm), ("fwhm", &[1e9, 1e9, 1e9])]);
        assert!(info.fwhm.is_none() && info.notes[0].contains("fwhm"), "{:?}", info.notes);
        let info = of_lists(&[("fwhm_um", &[0.005, 0.005, 0.006])]);
        assert_eq!(info.fwhm, Some(vec![5.0, 5.0, 6.0]));
        assert_eq!(of_lists(&[("fwhm", &[5.0, 5.0, 6.0])]).fwhm, None);
    }

    #[test]
    fn lists_are_never_infinite_and_are_read_only_so_often() {
        let huge = [1e307, 2e307, 3e307];
        assert_eq!(of_lists(&[("wavelength_um", &huge)]).wavelength, None);
        assert_eq!(of_lists(&[("fwhm_um", &huge)]).fwhm, None);
        let many = (0..100).fold(InMemory::default(), |tree, number| {
            tree.with_list(&format!("/group{number}/wavelength_um"), &huge)
        });
        assert_eq!(described(&many).wavelength, None);
        assert_eq!(many.read.get(), MAX_LISTS);
    }

    #[test]
    fn bad_bands_are_zeros_and_ones() {
        let good = of_lists(&[("bbl", &[1.0, 0.0, 1.0])]).good_bands;
        assert_eq!(good, Some(vec![true, false, true]));
        assert_eq!(of_lists(&[("bbl", &[1.0, 2.0, 1.0])]).good_bands, None);
    }
}
