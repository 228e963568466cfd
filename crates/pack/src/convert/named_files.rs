//! The file that a pattern gives for a cube: a mask, a reference, a header, a list of band centres.

use std::path::Path;

use hsipack_format::{Error, ErrorKind, Result};
use hsipack_store::mirror;
use hsipack_store::remote::{is_away, is_url};

use crate::input::Input;
use crate::pattern::{self, Pattern};

/// The paths where the file may be; none if a field of the pattern has no value. The pattern is
/// relative to the working directory. If it is a relative path that does not begin with the cube's
/// own path, it is also tried relative to the cube's folder.
///
/// # Errors
/// If the pattern has a field that the cube does not have.
pub fn candidates(pattern: &str, input: &Input) -> Result<Vec<Input>> {
    let pattern = Pattern(pattern);
    let Some(text) = pattern.of(input)? else { return Ok(Vec::new()) };
    let named = Input::parse(&text);
    let whole = mirror::archive_of(&input.file);
    let folder = pattern::folder(whole.as_ref().unwrap_or(&input.file));
    let beside = folder.join(&text);
    let is_whole = named.file.is_absolute() || is_url(&named.file);
    if pattern.begins_at_the_cube() || is_whole || folder == Path::new(".") {
        return Ok(vec![named]);
    }
    Ok(vec![named, Input::parse(&beside.to_string_lossy())])
}

/// The file; `None` if there is none. `role` says what it is to the cube, as in `the mask`.
///
/// # Errors
/// If both the working directory and the cube's folder have one.
pub fn find(pattern: &str, input: &Input, role: &str) -> Result<Option<Input>> {
    let mut files = Vec::new();
    for candidate in candidates(pattern, input)? {
        let url = is_url(&candidate.file);
        match candidate.here() {
            Ok(file) => files.push(file),
            // A missing object is skipped, but a server that does not answer, or no valid URL, is an error.
            Err(error) if url && !is_away(&error) && error.kind() != ErrorKind::Malformed => {}
            Err(error) => return Err(error),
        }
    }
    files.retain(|file| file.file.exists());
    match &files[..] {
        [first, second] if !is_same(&first.file, &second.file) => {
            Err(Error::ambiguous(format!("two files may be {role} of {}", input.text()))
                .with_choices(vec![first.text(), second.text()])
                .with_remedy(format!(
                    "write {{dir}}/{pattern} for files beside the cubes, otherwise an absolute path"
                )))
        }
        _ => Ok(files.into_iter().next()),
    }
}

fn is_same(first: &Path, second: &Path) -> bool {
    match (first.canonicalize(), second.canonicalize()) {
        (Ok(first), Ok(second)) => first == second,
        _ => false,
    }
}

/// Why there is no file, for an error.
pub fn absence(pattern: &str, input: &Input) -> String {
    let names: Vec<String> =
        candidates(pattern, input).unwrap_or_default().iter().map(Input::text).collect();
    match names.is_empty() {
        true => format!("a field of {pattern:?} has no value for this cube"),
        false => format!("there is no {}", names.join(", and no ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mask_of(pattern: &str, input: &Input) -> Result<Option<Input>> {
        find(pattern, input, "the mask")
    }

    #[test]
    fn patterns_take_parts_of_the_cube_s_path() {
        let input = Input { root: Some("data".into()), ..Input::of(Path::new("data/p1/cube.hdr")) };
        let files = |pattern| {
            candidates(pattern, &input).unwrap().iter().map(Input::text).collect::<Vec<_>>()
        };
        assert_eq!(files("{dir}/{stem}_mask.png"), ["data/p1/cube_mask.png"]);
        assert_eq!(files("{path}::map"), ["data/p1/cube.hdr::map"]);
        assert_eq!(files("/masks/{stem}.png"), ["/masks/cube.png"]);
        let both = ["masks/p1/cube.mat::gt", "data/p1/masks/p1/cube.mat::gt"];
        assert_eq!(files("masks/{name}.mat::gt"), both);
        let here = Input::of(Path::new("cube.hdr"));
        assert_eq!(candidates("{stem}.png", &here).unwrap().len(), 1, "the same place twice");
    }

    #[test]
    fn masks_beside_the_cube_are_found_and_two_are_asked_about() {
        let folder = tempfile::tempdir().unwrap();
        let work = folder.path().join("work");
        let cubes = folder.path().join("cubes");
        for parent in [&work, &cubes] {
            std::fs::create_dir_all(parent.join("masks")).unwrap();
        }
        let input = Input::of(&cubes.join("a.npy"));
        std::fs::write(cubes.join("masks/a.png"), "x").unwrap();
        let found = mask_of("masks/{stem}.png", &input).unwrap().unwrap();
        assert_eq!(found.file, cubes.join("masks/a.png"));
        assert!(mask_of("other/{stem}.png", &input).unwrap().is_none());
        // One file is at the path relative to the working directory, and another beside the cube.
        let here = tempfile::Builder::new().tempdir_in(".").unwrap();
        let here = Path::new(here.path().file_name().unwrap());
        std::fs::write(here.join("a.png"), "x").unwrap();
        let pattern = format!("{}/{{stem}}.png", here.display());
        let found = mask_of(&pattern, &input).unwrap().unwrap();
        assert_eq!(found.file, here.join("a.png"));
        std::fs::create_dir(cubes.join(here)).unwrap();
        std::fs::write(cubes.join(here).join("a.png"), "x").unwrap();
        let error = mask_of(&pattern, &input).unwrap_err();
        assert_eq!((error.kind(), error.choices().len()), (ErrorKind::Ambiguous, 2));
    }
}
