//! Masks with a file for each class:
//! `--mask 'organs:{class}={dir}/annotations/{stem}#{class}.png'`.
//!
//! The files that exist for a cube say which classes it has. Each becomes a boolean layer, named
//! after the class.

use std::collections::BTreeMap;
use std::path::PathBuf;

use hsipack_format::{Error, Result, remedy};
use hsipack_store::remote::is_url;
use regex::Regex;

use super::named_files::candidates;
use crate::input::Input;

/// The field of a pattern that stands for the class.
pub const CLASS: &str = "{class}";

/// Stand for the class, and for a star of the pattern, in texts in which fields were replaced. No
/// path has them.
const MARKED_CLASS: char = '\u{1}';
const MARKED_STAR: char = '\u{2}';

/// The files of the classes that the cube in `input` has, in order of their names.
///
/// # Errors
/// If the pattern has a field that the cube does not have, it is on a server, which is not
/// searched, or several files are of one class.
pub fn class_files(pattern: &str, input: &Input) -> Result<Vec<(String, Input)>> {
    let marked =
        pattern.replace(CLASS, &MARKED_CLASS.to_string()).replace('*', &MARKED_STAR.to_string());
    for candidate in candidates(&marked, input)? {
        let text = candidate.file.to_string_lossy().into_owned();
        if !text.contains(MARKED_CLASS) {
            return Err(Error::conflict(format!("{CLASS} is not in the path of {pattern:?}"))
                .with_remedy("write it into the name of the file or of a folder"));
        }
        if is_url(&candidate.file) {
            return Err(Error::unsupported(format!(
                "the files of {pattern:?} are on a server, and are not searched"
            ))
            .with_remedy("name each class, such as organs:liver={dir}/{stem}_liver.png"));
        }
        let mut files = BTreeMap::new();
        for (class, path) in matching(&text)? {
            if let Some(other) = files.insert(class.clone(), path.clone()) {
                return Err(Error::ambiguous(format!("two files are of the class {class:?}"))
                    .at(&input.file)
                    .with_choices([other, path].map(|path| path.display().to_string()).into())
                    .with_remedy(remedy![
                        "write more of the name into the pattern, in place of a star"
                    ]));
            }
        }
        if !files.is_empty() {
            let input =
                |file: PathBuf| Input { variable: candidate.variable.clone(), ..Input::of(&file) };
            return Ok(files.into_iter().map(|(class, file)| (class, input(file))).collect());
        }
    }
    Ok(Vec::new())
}

/// Files whose paths match a text with marks, and the class in each.
fn matching(text: &str) -> Result<Vec<(String, PathBuf)>> {
    let glob = glob::Pattern::escape(text).replace([MARKED_CLASS, MARKED_STAR], "*");
    let expression =
        regex::escape(text).replace(MARKED_CLASS, "([^/]+)").replace(MARKED_STAR, "[^/]*");
    let wrong = |error: &dyn std::fmt::Display| {
        Error::conflict(format!("the path of the masks cannot be searched: {error}"))
            .with_remedy("correct the pattern")
    };
    let expression = Regex::new(&format!("^{expression}$")).map_err(|error| wrong(&error))?;
    let mut found = Vec::new();
    for path in glob::glob(&glob).map_err(|error| wrong(&error))? {
        let path =
            path.map_err(|error| Error::io(error.path().to_owned(), "cannot list", error.into()))?;
        let name = path.to_string_lossy().into_owned();
        let Some(captures) = expression.captures(&name) else { continue };
        let mut classes = captures.iter().skip(1).flatten().map(|class| class.as_str().to_owned());
        // If the class is in several places, all must say the same.
        if let Some(class) = classes.next()
            && classes.all(|other| other == class)
        {
            found.push((class, path));
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn files_of_a_cube_name_its_classes() {
        let folder = tempfile::tempdir().unwrap();
        let below = |path: &str| folder.path().join(path);
        fs::create_dir_all(below("scan[1]/annotations/liver")).unwrap();
        for file in ["a#x#spleen#binary.png", "a#x#left lung#binary.png", "b#x#liver#binary.png"] {
            fs::write(below("scan[1]/annotations").join(file), "").unwrap();
        }
        fs::write(below("scan[1]/annotations/liver/a_liver.png"), "").unwrap();
        fs::write(below("scan[1]/annotations/liver/a_other.png"), "").unwrap();
        let cube = Input::of(&below("scan[1]/a.npy"));
        let classes = |pattern: &str| {
            let files = class_files(pattern, &cube).unwrap();
            files.into_iter().map(|(class, _)| class).collect::<Vec<_>>()
        };
        let all = ["left lung", "spleen"];
        assert_eq!(classes("{dir}/annotations/{stem}#x#{class}#binary.png"), all);
        assert_eq!(classes("{dir}/annotations/{stem}*#{class}#binary.png"), all);
        assert_eq!(classes("annotations/{stem}#x#{class}#binary.png"), all, "beside the cube");
        assert_eq!(classes("{dir}/annotations/{class}/{stem}_{class}.png"), ["liver"]);
        assert!(classes("{dir}/annotations/{stem}_{class}.png").is_empty());
    }

    #[test]
    fn patterns_that_cannot_be_searched_are_refused() {
        let folder = tempfile::tempdir().unwrap();
        let cube = Input::of(&folder.path().join("a.npy"));
        for file in ["a_1_fat.png", "a_2_fat.png"] {
            fs::write(folder.path().join(file), "").unwrap();
        }
        for (pattern, reason) in [
            ("{dir}/a_*_{class}.png", "two files are of the class"),
            ("{dir}/a.mat::{class}", "is not in the path"),
            ("s3://bucket/{class}.png", "on a server"),
            ("{dir}/{what}_{class}.png", "what"),
        ] {
            let error = class_files(pattern, &cube).unwrap_err();
            assert!(error.to_string().contains(reason) && error.remedy().is_some(), "{error}");
        }
    }
}
