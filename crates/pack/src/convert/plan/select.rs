//! Which of the files that a search found are cubes: not those that other cubes use as masks or
//! references, not 2-D arrays or spectral libraries, and only one of several forms of the same
//! cube.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::path::{Path, PathBuf};

use hsipack_format::remedy::current;
use hsipack_format::{Error, ErrorKind, Opt};
use hsipack_source::{AxisOrder, Listed, OpenOptions, RowBuffer, Source, arrays};
use hsipack_store::mirror;

use super::columns::Completed;
use super::open_source;
use crate::convert::class_files::class_files;
use crate::convert::masks::{MaskGroup, OF_PRODUCT, ROLE};
use crate::convert::named_files;
use crate::convert::options::{CompanionOption, Reference, ValueOptions};
use crate::convert::pairs::{self, Kind};
use crate::input::Input;

/// The most names that a note lists.
const LISTED: usize = 5;

/// A path by which a file is recognised.
fn resolved(path: &Path) -> PathBuf {
    path.canonicalize().unwrap_or_else(|_| path.to_owned())
}

/// The inputs without files that are masks, companions or references of others. Inputs whose
/// columns could not be completed, which have an error, are no cubes of such files. `notes` says
/// which are left out.
pub(super) fn without_used_files(
    inputs: Vec<Completed>,
    values: &ValueOptions,
    companions: &[CompanionOption],
    groups: &[MaskGroup],
    notes: &mut Vec<String>,
) -> Vec<Completed> {
    let masks = || groups.iter().flat_map(|group| &group.patterns).map(|(_, pattern)| pattern);
    let patterns = || masks().chain(companions.iter().map(|option| &option.pattern));
    let references: Vec<(&Reference, Kind)> =
        [(&values.white, Kind::White), (&values.dark, Kind::Dark)]
            .into_iter()
            .filter_map(|(reference, kind)| Some((reference.as_ref()?, kind)))
            .collect();
    // Objects on servers are not looked up twice, and files with arrays of programs are no masks.
    let is_file =
        |input: &Input| input.stands_for.is_none() && mirror::url_of(&input.file).is_none();
    if inputs.len() < 2 || patterns().next().is_none() && references.is_empty() {
        return inputs;
    }
    let mut used = HashSet::new();
    let complete = inputs.iter().filter(|(input, error)| error.is_none() && is_file(input));
    for (input, _) in complete {
        let masks = patterns().filter(|pattern| *pattern != OF_PRODUCT);
        let masks =
            masks.filter_map(|pattern| named_files::find(pattern, input, ROLE).ok().flatten());
        let by_class = groups.iter().filter(|group| group.is_by_class());
        let by_class = by_class.filter_map(|group| class_files(&group.patterns[0].1, input).ok());
        let by_class = by_class.flatten().map(|(_, file)| file);
        let find =
            |(reference, kind): &(&Reference, Kind)| pairs::find(reference, *kind, input).ok();
        let files = masks.chain(by_class).chain(references.iter().filter_map(find));
        let cube_file = resolved(&input.file);
        used.extend(files.map(|file| resolved(&file.file)).filter(|file| *file != cube_file));
    }
    if used.is_empty() {
        return inputs;
    }
    let is_cube = |input: &Input| !is_file(input) || !used.contains(&resolved(&input.file));
    let (kept, dropped): (Vec<_>, Vec<_>) =
        inputs.into_iter().partition(|(input, _)| is_cube(input));
    if !dropped.is_empty() {
        let mut names: Vec<String> =
            dropped.iter().take(LISTED).map(|(input, _)| input.text()).collect();
        names.extend((dropped.len() > LISTED).then(|| "…".to_owned()));
        let are = if dropped.len() == 1 {
            "input is a mask, target, further image or reference"
        } else {
            "inputs are masks, targets, further images or references"
        };
        notes.push(format!(
            "{} {are} of other cubes, and not packed as cubes: {}",
            dropped.len(),
            names.join(", ")
        ));
    }
    kept
}

/// Keeps one of several files in a folder with the same stem and a cube of the same shape: the one
/// that says most about its bands, otherwise the first. If one of them is something else, all stay,
/// and packing them gives an error.
pub(super) fn without_second_forms(
    inputs: Vec<Input>,
    values: &ValueOptions,
    notes: &mut Vec<String>,
) -> Vec<Input> {
    let mut by_name: BTreeMap<(PathBuf, String), Vec<usize>> = BTreeMap::new();
    for (index, input) in inputs.iter().enumerate() {
        if input.root.is_some() && input.variable.is_none() && input.file.is_file() {
            let folder = input.file.parent().unwrap_or(Path::new("")).to_owned();
            by_name.entry((folder, input.default_name())).or_default().push(index);
        }
    }
    let mut dropped = BTreeMap::new();
    for places in by_name.into_values().filter(|places| places.len() > 1) {
        let forms: Vec<&Input> = places.iter().map(|index| &inputs[*index]).collect();
        if let Some(kept) = same_cube(&forms, values) {
            for (form, index) in places.iter().enumerate().filter(|(form, _)| *form != kept) {
                dropped.insert(*index, (forms[form].text(), forms[kept].text()));
            }
        }
    }
    if let Some((other, kept)) = dropped.values().next() {
        let more = match dropped.len() {
            1 => String::new(),
            more => format!("; so are {} other files", more - 1),
        };
        notes.push(format!(
            "{other} is left out, because {kept} holds the same cube in another form{more}"
        ));
    }
    let places = inputs.into_iter().enumerate();
    places.filter(|(index, _)| !dropped.contains_key(index)).map(|(_, input)| input).collect()
}

/// Which of several files holds the cube that all of them hold; `None` if they may be different
/// cubes.
fn same_cube(forms: &[&Input], values: &ValueOptions) -> Option<usize> {
    let open = |form: &Input| open_source(form, values);
    let opened: Vec<_> = forms.iter().map(|form| open(form)).collect();
    let first = opened.iter().flatten().next()?;
    let (shape, rows) = (first.info().shape, telling_rows(&**first)?);
    let is_first = |source: &dyn Source| {
        let is_same = |(at, row): &(usize, Vec<f64>)| {
            row_of(source, *at).is_some_and(|other| are_close(row, &other))
        };
        source.info().shape == shape && rows.iter().all(is_same)
    };
    for (form, source) in forms.iter().zip(&opened) {
        let is_same = match source {
            Ok(source) => is_first(&**source),
            // An array whose axes are not known can be the cube if one of the orders gives its shape.
            Err(error) => {
                is_question(error, form, values)
                    && [AxisOrder::BIP, AxisOrder::BIL, AxisOrder::BSQ].into_iter().any(|order| {
                        let axes = Some(order.to_string());
                        open(&Input { axes, ..(*form).clone() })
                            .is_ok_and(|source| is_first(&*source))
                    })
            }
        };
        if !is_same {
            return None;
        }
    }
    let says = |index: &usize| {
        let info = opened[*index].as_ref().ok().map(|source| source.info());
        info.map(|info| (info.wavelength.is_some(), info.geo.is_some()))
    };
    // The first of those that say most.
    (0..forms.len()).rev().max_by_key(says)
}

/// The most rows of a cube that are read beside its first, middle and last.
const FURTHER_ROWS: usize = 8;

/// Rows by which a cube is recognised, with their numbers: the first, the middle and the last, and
/// others for those in which all values are equal, as in the margins of a scene. `None` if all are
/// so, or one cannot be read.
fn telling_rows(source: &dyn Source) -> Option<Vec<(usize, Vec<f64>)>> {
    let count = source.info().shape.rows;
    let ends = BTreeSet::from([0, count / 2, count.checked_sub(1)?]);
    let further = (1..=FURTHER_ROWS).map(|part| count * part / (FURTHER_ROWS + 1));
    let further = further.filter(|at| !ends.contains(at)).collect::<BTreeSet<_>>();
    let mut rows = Vec::new();
    let mut telling = 0;
    for at in ends.iter().chain(&further) {
        if telling == ends.len() {
            break;
        }
        let row = row_of(source, *at)?;
        telling += usize::from(!is_constant(&row));
        rows.push((*at, row));
    }
    (telling > 0).then_some(rows)
}

/// Whether all values are equal or missing.
fn is_constant(row: &[f64]) -> bool {
    let mut present = row.iter().filter(|value| !value.is_nan());
    let first = present.next();
    present.all(|value| Some(value) == first)
}

/// The physical values of row `at` of a cube; `None` if it cannot be read.
fn row_of(source: &dyn Source, at: usize) -> Option<Vec<f64>> {
    let (info, mut buffer) = (source.info(), RowBuffer::new());
    source.read_rows(at..at + 1, &mut buffer).ok()?;
    let physical = |at: usize| {
        let value = buffer.number(at);
        let is_missing = info.ignore_value == Some(value);
        if is_missing { f64::NAN } else { info.scaling_of(at % info.shape.bands).physical(value) }
    };
    Some((0..buffer.len()).map(physical).collect())
}

/// Whether two files may hold the same values, in types of different precision.
fn are_close(first: &[f64], second: &[f64]) -> bool {
    let is_close = |(a, b): (&f64, &f64)| {
        a.is_nan() && b.is_nan() || a == b || (a - b).abs() <= 1e-3 * a.abs().max(b.abs())
    };
    first.len() == second.len() && first.iter().zip(second).all(is_close)
}

/// Whether the error of opening an input asks for the order of its axes.
pub(super) fn is_question(error: &Error, input: &Input, values: &ValueOptions) -> bool {
    error.kind() == ErrorKind::Ambiguous && values.axes.is_none() && input.axes.is_none()
}

/// Whether the file of an input holds a 2-D array, and nothing that can be a cube.
fn is_layer(input: &Input, values: &ValueOptions) -> bool {
    let is_cube = match open_source(input, values) {
        Ok(_) => true,
        Err(error) => error.kind() != ErrorKind::Unsupported,
    };
    if is_cube || arrays(&input.file).is_ok_and(|all| all.iter().any(Listed::may_be_cube)) {
        return false;
    }
    let options =
        OpenOptions { variable: input.variable.clone(), mask: true, ..OpenOptions::default() };
    let mask = hsipack_source::open(&input.file, &options);
    mask.is_ok_and(|source| source.info().shape.bands == 1)
}

/// Files in searched folders that are no cubes.
#[derive(Default)]
pub(super) struct OtherFiles {
    /// Files that hold a 2-D array, which may be a mask of the cubes beside it.
    layers: Vec<Input>,
    /// ENVI's spectral libraries.
    libraries: Vec<Input>,
}

impl OtherFiles {
    /// Adds the file of an input that could not be packed, if it is such a file. Returns whether it
    /// is.
    pub fn add(&mut self, input: &Input, values: &ValueOptions) -> bool {
        if input.root.is_none() {
            return false;
        }
        let files = if hsipack_source::is_spectral_library(&input.file) {
            &mut self.libraries
        } else if is_layer(input, values) {
            &mut self.layers
        } else {
            return false;
        };
        files.push(input.clone());
        true
    }

    /// Notes that these files are not packed, and how they may be. `cubes` are those that are.
    pub fn notes<'a>(
        &self,
        cubes: impl Iterator<Item = &'a Input> + Clone,
    ) -> impl Iterator<Item = String> {
        let kinds = ["file holds a 2-D array, not a cube", "files hold a 2-D array, not a cube"];
        let layers = self.layers.first().map(|first| {
            format!(
                "{}; as a mask, give it with {}",
                not_packed(&self.layers, kinds),
                current().together(&[Opt::Mask.to(mask_pattern(first, cubes))])
            )
        });
        let kinds = [
            "file is an ENVI spectral library, not a cube",
            "files are ENVI spectral libraries, not cubes",
        ];
        let libraries = self.libraries.first().map(|_| not_packed(&self.libraries, kinds));
        layers.into_iter().chain(libraries)
    }
}

/// The start of a note about `files`; `kinds` says what one file is, or several are.
fn not_packed(files: &[Input], kinds: [&str; 2]) -> String {
    let name = |input: &Input| {
        let url = mirror::url_of(&input.file);
        url.as_deref().unwrap_or(&input.file).display().to_string()
    };
    let mut names: Vec<String> = files.iter().take(LISTED).map(name).collect();
    names.extend((files.len() > LISTED).then(|| "…".to_owned()));
    let (kind, verb) = if files.len() == 1 { (kinds[0], "is") } else { (kinds[1], "are") };
    format!("{} {kind}, and {verb} not packed: {}", files.len(), names.join(", "))
}

/// The pattern that gives a file for one of the cubes beside it.
fn mask_pattern<'a>(file: &Input, mut cubes: impl Iterator<Item = &'a Input>) -> String {
    let file_name = file.file.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let pattern = cubes.find_map(|cube| {
        let is_beside = cube.file.parent() == file.file.parent();
        let stem = cube.file.file_stem().filter(|_| is_beside)?.to_str()?;
        let at = file_name.find(stem).filter(|_| file_name != stem)?;
        Some(format!("{{dir}}/{}{{stem}}{}", &file_name[..at], &file_name[at + stem.len()..]))
    });
    pattern.unwrap_or_else(|| format!("{{dir}}/{file_name}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_note_offers_a_2_d_array_as_mask() {
        let cubes = [Input::of(Path::new("a/PaviaU.mat"))];
        let note = |names: &[&str]| {
            let layers = names.iter().map(|name| Input::of(Path::new(name))).collect();
            let files = OtherFiles { layers, ..OtherFiles::default() };
            files.notes(cubes.iter()).next()
        };
        let of_one = note(&["a/PaviaU_gt.mat"]).unwrap();
        assert!(of_one.starts_with("1 file holds a 2-D array"), "{of_one}");
        assert!(of_one.contains("{dir}/{stem}_gt.mat"), "{of_one}");
        let names: Vec<String> = (0..7).map(|number| format!("a/{number}.mat")).collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let of_several = note(&names).unwrap();
        assert!(
            of_several.contains("7 files") && of_several.contains("a/4.mat, …"),
            "{of_several}"
        );
        assert_eq!(note(&[]), None);
    }
}
