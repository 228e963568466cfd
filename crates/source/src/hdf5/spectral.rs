//! Wavelength lists: finding the one that belongs to a dataset.

use super::tree::{Attributes, Tree, parent, plain};

/// Names, in plain spelling, of lists with 1 for good bands and 0 for bad ones. This includes `bad_band_list`.
pub(crate) const GOOD_BANDS: [&str; 6] =
    ["goodwavelengths", "goodbands", "goodwavelength", "bbl", "goodbandslist", "badbandlist"];

/// A list of band centres somewhere in a file.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Wavelengths {
    /// The numbers as stored.
    pub values: Vec<f64>,
    /// Their unit, if the file states it.
    pub unit: Option<String>,
    /// Where they were found, for messages.
    pub found: String,
}

/// Whether an attribute or a dataset of this name holds band centres.
fn is_wavelength_name(name: &str) -> bool {
    const NAMES: [&str; 16] = [
        "wavelength",
        "wavelengths",
        "wvl",
        "wvls",
        "wl",
        "wls",
        "wave",
        "waves",
        "lambda",
        "lambdas",
        "bandcenter",
        "bandcenters",
        "bandcentre",
        "bandcentres",
        "listcw",
        "lambdanm",
    ];
    const OTHERWISE: [&str; 16] = [
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
    ];
    let name = plain(name);
    NAMES.contains(&name.as_str())
        || (name.contains("wavelength") && !OTHERWISE.iter().any(|word| name.contains(word)))
}

/// Whether numbers can be band centres: finite, not negative, not all alike.
fn plausible(values: &[f64]) -> bool {
    let positive = values.iter().all(|value| value.is_finite() && *value >= 0.0);
    let top = values.iter().copied().fold(0.0, f64::max);
    positive && top > 0.0 && (values.len() < 2 || values.iter().any(|value| *value != values[0]))
}

/// The unit of the list in the attribute `name`: `wavelength_units` beside `wavelength`, say.
pub(crate) fn attribute_unit(attributes: &Attributes, name: &str) -> Option<String> {
    let name = plain(name);
    let singular = name.trim_end_matches('s');
    let beside = attributes.names_where(|other| {
        let other = plain(other);
        other.starts_with(singular) && (other.ends_with("unit") || other.ends_with("units"))
    });
    attributes.text(beside.first()?)
}

fn from_attributes(tree: &Tree, path: &str, found: &mut Vec<Wavelengths>) {
    let attributes = tree.attributes(path);
    for name in attributes.names_where(is_wavelength_name) {
        if let Some(values) = attributes.numbers(name).filter(|values| plausible(values)) {
            let unit = attribute_unit(&attributes, name);
            found.push(Wavelengths { values, unit, found: format!("attribute '{name}'") });
        }
    }
}

/// The list in the dataset at `path`, with its unit.
pub(crate) fn from_dataset(tree: &Tree, path: &str) -> Option<Wavelengths> {
    let attributes = tree.attributes(path);
    // NetCDF stores a dimension without a variable as a dataset of zeros.
    let name = attributes.text("NAME").unwrap_or_default();
    if name.starts_with("This is a netCDF dimension but not") {
        return None;
    }
    let values = tree.list(path).filter(|values| plausible(values))?;
    let unit = attributes.find(&["units", "unit"]).and_then(|name| attributes.text(name));
    Some(Wavelengths { values, unit, found: format!("'{path}'") })
}

/// The lists of band centres that may belong to the dataset at `path`, nearest first: its own
/// attributes, then attributes and datasets of the groups around it, then the rest of the file.
fn scopes(tree: &Tree, path: &str) -> Vec<Vec<Wavelengths>> {
    let mut scopes = Vec::new();
    let mut own = Vec::new();
    from_attributes(tree, path, &mut own);
    scopes.push(own);
    let mut group = path;
    while !group.is_empty() {
        group = parent(group);
        let mut here = Vec::new();
        from_attributes(tree, group, &mut here);
        let lists =
            tree.datasets.iter().filter(|e| e.group() == group && is_wavelength_name(e.name()));
        here.extend(lists.filter_map(|entry| from_dataset(tree, &entry.path)));
        scopes.push(here);
    }
    let anywhere = tree.datasets.iter().filter(|entry| is_wavelength_name(entry.name()));
    scopes.push(anywhere.filter_map(|entry| from_dataset(tree, &entry.path)).collect());
    scopes
}

/// The nearest list that is as long as one of `lengths`; `None` if there is none, or if the nearest lists
/// contradict each other. Also returns a list that fits no axis, for a note.
pub(crate) fn find(
    tree: &Tree,
    path: &str,
    lengths: &[usize],
) -> (Option<Wavelengths>, Option<Wavelengths>) {
    let mut misfit = None;
    for scope in scopes(tree, path) {
        let (fits, others): (Vec<_>, Vec<_>) =
            scope.into_iter().partition(|list| lengths.contains(&list.values.len()));
        misfit = misfit.or(others.into_iter().next());
        let Some(first) = fits.first().cloned() else { continue };
        let alike = fits.iter().all(|list| list.values.len() == first.values.len());
        return (alike.then_some(first), misfit);
    }
    (None, misfit)
}

/// The list of `bands` numbers nearest to the dataset at `path` whose name, in plain spelling, is
/// one of `names`.
pub(crate) fn beside(tree: &Tree, path: &str, names: &[&str], bands: usize) -> Option<Vec<f64>> {
    let own = tree.attributes(path);
    let fits = |values: &Vec<f64>| values.len() == bands;
    if let Some(values) = own.find(names).and_then(|name| own.numbers(name)).filter(fits) {
        return Some(values);
    }
    let mut group = path;
    while !group.is_empty() {
        group = parent(group);
        let attributes = tree.attributes(group);
        let attribute = attributes.find(names).and_then(|name| attributes.numbers(name));
        let dataset = || {
            let named = |entry: &&super::tree::Entry| {
                entry.group() == group && names.contains(&plain(entry.name()).as_str())
            };
            tree.datasets.iter().filter(named).find_map(|entry| tree.list(&entry.path).filter(fits))
        };
        if let Some(values) = attribute.filter(fits).or_else(dataset) {
            return Some(values);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_band_centres_are_told_from_names_about_them() {
        for name in ["wavelength", "Wavelengths", "wvl", "lambda", "Band_Centers", "wavelength_nm"]
        {
            assert!(is_wavelength_name(name), "{name}");
        }
        for name in ["good_wavelengths", "wavelength_units", "fwhm", "wavelength_min", "waveform"] {
            assert!(!is_wavelength_name(name), "{name}");
        }
    }

    #[test]
    fn only_lists_that_can_be_band_centres_are_taken() {
        assert!(plausible(&[400.0, 500.0]));
        assert!(plausible(&[0.0, 900.0, 800.0]), "PRISMA pads with zeros");
        assert!(!plausible(&[0.0, 0.0]));
        assert!(!plausible(&[1.0, f64::NAN]));
        assert!(!plausible(&[5.0, 5.0]));
        assert!(!plausible(&[]));
    }
}
