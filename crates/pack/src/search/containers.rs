//! Many cubes in one file: wildcards after `::`, and arrays of samples.
//!
//! ```text
//! x.h5::*/image      every array `image` in a group of the file
//! x.npz::data        with axes nyxb: x.npz::data[0], x.npz::data[1], …
//! x.npy              with axes nyxb: x.npy::[0], x.npy::[1], …
//! ```

use hsipack_format::{Error, Opt, Result, remedy};
use hsipack_source::{Axes, Listed, arrays};
use regex::Regex;

use super::wildcards::Wildcards;
use crate::input::Input;

/// The most names that a message lists.
const LISTED: usize = 5;

/// The most samples of an array. Its file may claim any number.
const MAX_SAMPLES: usize = 1 << 22;

/// Whether the variable of an input is a pattern. Brackets are not part of such patterns: they give
/// the index of a sample.
fn is_pattern(variable: &str) -> bool {
    variable.contains(['*', '?'])
}

/// The cubes in the file of an input: those that its variable matches, if it is a pattern; and all
/// samples, if `axes` has an axis of samples.
///
/// # Errors
/// If the file cannot be listed, or nothing matches.
pub(super) fn expand(input: Input, axes: Option<&Axes>) -> Result<Vec<Input>> {
    let samples = axes.filter(|axes| axes.sample_axis().is_some());
    let pattern = input.variable.as_deref().filter(|variable| is_pattern(variable));
    if pattern.is_none() && (samples.is_none() || input.sample().is_some()) {
        let axes = samples.filter(|_| input.sample().is_some()).map(Axes::to_string);
        return Ok(vec![Input { axes: axes.or(input.axes.clone()), ..input }]);
    }
    let all = arrays(&input.file)?;
    if all.is_empty() && pattern.is_none() {
        // A format whose axes are known.
        return Ok(vec![input]);
    }
    let fits = |array: &&Listed| match samples {
        Some(axes) => array.dtype.is_some() && array.lengths.len() == axes.count(),
        None => array.may_be_cube(),
    };
    let found: Vec<&Listed> = match (pattern, &input.variable) {
        (Some(pattern), _) => {
            let regex = regex_of(pattern);
            all.iter().filter(|array| regex.is_match(&array.name)).filter(fits).collect()
        }
        (None, Some(variable)) => {
            let name = variable.trim_matches('/');
            let exact = all.iter().filter(|array| array.name == name);
            let last = all.iter().filter(|array| array.name.rsplit('/').next() == Some(name));
            let exact: Vec<&Listed> = exact.collect();
            if exact.is_empty() { last.filter(fits).collect() } else { exact }
        }
        (None, None) => all.iter().filter(fits).collect(),
    };
    match (&found[..], pattern) {
        ([], Some(pattern)) => return Err(no_match(&input, pattern, &all)),
        ([], None) => return Err(no_samples(&input, axes, &all)),
        ([_, _, ..], None) => {
            let names = found.iter().map(|array| described(&input, array)).collect::<Vec<_>>();
            return Err(Error::ambiguous("the file holds several arrays of samples")
                .with_choices(shortened(names))
                .at(&input.file)
                .with_remedy("name one after '::', or several with a star, such as FILE::*"));
        }
        _ => {}
    }
    let mut inputs = Vec::new();
    for array in found {
        let mut fields = input.fields.clone();
        if let Some(pattern) = pattern {
            Wildcards::of(pattern).add(&array.name, &mut fields);
        }
        let name = (!array.name.is_empty()).then(|| array.name.clone());
        match samples.and_then(Axes::sample_axis) {
            Some(axis) => {
                let count = array.lengths.get(axis).copied().unwrap_or_default();
                if count > MAX_SAMPLES {
                    return Err(too_many_samples(&input, array, axes));
                }
                let name = name.unwrap_or_default();
                inputs.extend((0..count).map(|index| Input {
                    variable: Some(format!("{name}[{index}]")),
                    axes: axes.map(Axes::to_string),
                    fields: fields.clone(),
                    ..input.clone()
                }));
            }
            None => inputs.push(Input { variable: name, fields, ..input.clone() }),
        }
    }
    Ok(inputs)
}

/// The expression that a pattern of variables stands for: `*` and `?` match within a name, `**`
/// also across groups.
fn regex_of(pattern: &str) -> Regex {
    let mut text = String::from("^");
    let mut letters = pattern.trim_matches('/').chars().peekable();
    while let Some(letter) = letters.next() {
        match letter {
            '*' if letters.next_if_eq(&'*').is_some() => text.push_str("(.*)"),
            '*' => text.push_str("([^/]*)"),
            '?' => text.push_str("[^/]"),
            other => text.push_str(&regex::escape(other.encode_utf8(&mut [0; 4]))),
        }
    }
    text.push('$');
    Regex::new(&text).expect("escaped text and groups")
}

fn described(input: &Input, array: &Listed) -> String {
    let lengths: Vec<String> = array.lengths.iter().map(usize::to_string).collect();
    let file = input.file.file_name().unwrap_or_default().to_string_lossy();
    format!("{file}::{} ({})", array.name, lengths.join("x"))
}

/// The first of `names`, and an ellipsis if there are more.
pub(super) fn shortened(mut names: Vec<String>) -> Vec<String> {
    if names.len() > LISTED {
        names.truncate(LISTED);
        names.push("…".to_owned());
    }
    names
}

fn holds(input: &Input, all: &[Listed]) -> String {
    let names: Vec<String> = all.iter().map(|array| described(input, array)).collect();
    if names.is_empty() { "no arrays".to_owned() } else { shortened(names).join(", ") }
}

fn no_match(input: &Input, pattern: &str, all: &[Listed]) -> Error {
    let what = format!("no cube matches '{pattern}'; the file holds {}", holds(input, all));
    Error::conflict(what).at(&input.file).with_remedy(
        "correct the pattern after '::'; a star matches one name, ** any number of groups",
    )
}

fn too_many_samples(input: &Input, array: &Listed, axes: Option<&Axes>) -> Error {
    let axes = axes.map(Axes::to_string).unwrap_or_default();
    Error::unsupported(format!(
        "{} has more than {MAX_SAMPLES} samples with the axes '{axes}'",
        described(input, array)
    ))
    .at(&input.file)
    .with_remedy(remedy!["correct ", Opt::Axes, ", or write the samples into several arrays"])
}

fn no_samples(input: &Input, axes: Option<&Axes>, all: &[Listed]) -> Error {
    let axes = axes.map(Axes::to_string).unwrap_or_default();
    Error::conflict(format!(
        "no array has the {} axes '{axes}'; the file holds {}",
        axes.len(),
        holds(input, all)
    ))
    .at(&input.file)
    .with_remedy(remedy!["correct ", Opt::Axes])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stars_match_within_a_name() {
        let matches = |pattern: &str, name: &str| regex_of(pattern).is_match(name);
        assert!(matches("*/image", "a/image") && matches("/*/image", "b.c/image"));
        assert!(!matches("*/image", "a/b/image") && !matches("*/image", "image"));
        assert!(matches("**/image", "a/b/image") && matches("cube_?", "cube_1"));
        assert!(!matches("cube_?", "cube_12") && matches("a.b*", "a.b"));
        assert!(!matches("a.b*", "axb"));
    }
}
