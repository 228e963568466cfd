//! Options that say where the masks of cubes are.

use std::path::PathBuf;
use std::str::FromStr;

use hsipack_format::geo::cf;
use hsipack_format::{Error, Result};
use hsipack_source::labels::{ClassColor, Resampling};
use serde::{Deserialize, Serialize};

use crate::convert::class_files::CLASS;
use crate::convert::classes::{ClassName, NewClass};
use crate::pattern::Pattern;

/// One `--mask`: where to find the mask of each cube.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MaskOption {
    /// Name of the mask array.
    pub name: String,
    /// Name of the boolean layer that this pattern gives, if a mask has several layers.
    pub layer: Option<String>,
    /// Path with fields.
    pub pattern: String,
    /// New ids for its classes. Classes that are not listed keep their ids.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub classes: Vec<NewClass>,
    /// Names of its packed class ids. They replace those in mask files.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub class_names: Vec<ClassName>,
    /// The colours of its classes, if its files are coloured pictures.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub colors: Vec<ClassColor>,
    /// How files on another grid become masks on the grid of their cubes; if `None`, they are
    /// refused.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resample: Option<Resampling>,
    /// Whether features on a map cover every pixel that they touch.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub all_touched: bool,
}

/// The file with the colours of a mask's classes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MaskColors {
    /// The mask; if `None`, there is only one.
    #[serde(default)]
    pub mask: Option<String>,
    /// The file.
    pub file: PathBuf,
}

impl FromStr for MaskColors {
    type Err = String;

    /// Parses `FILE` or `NAME=FILE`.
    fn from_str(text: &str) -> std::result::Result<Self, Self::Err> {
        let (mask, file) = match text.split_once('=') {
            Some((name, file)) if is_plain(name) => (Some(name.to_owned()), file),
            _ => (None, text),
        };
        match file {
            "" => Err("the path is empty".into()),
            file => Ok(Self { mask, file: file.into() }),
        }
    }
}

/// Whether a text before `=` is the name of a mask and not part of a path.
fn is_plain(word: &str) -> bool {
    !word.is_empty() && word.chars().all(|c| c.is_alphanumeric() || "_-.:# ".contains(c))
}

impl MaskOption {
    /// A mask whose files `pattern` finds, with the classes that the files have.
    pub fn new(name: impl Into<String>, pattern: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            layer: None,
            pattern: pattern.into(),
            classes: Vec::new(),
            class_names: Vec::new(),
            colors: Vec::new(),
            resample: None,
            all_touched: false,
        }
    }
}

impl MaskOption {
    /// Whether it has a file for each class.
    pub(crate) fn is_by_class(&self) -> bool {
        self.layer.as_deref() == Some(CLASS)
    }

    /// Patterns with its fields. The class is not a field of cubes.
    pub(super) fn patterns(&self) -> impl Iterator<Item = Pattern<'_>> {
        let parts = self.is_by_class().then(|| self.pattern.split(CLASS));
        let whole = (!self.is_by_class()).then_some(&*self.pattern);
        parts.into_iter().flatten().chain(whole).map(Pattern)
    }
}

impl FromStr for MaskOption {
    type Err = String;

    /// Parses `PATTERN`, `NAME=PATTERN`, `NAME:LAYER=PATTERN` or `NAME:{class}=PATTERN`.
    fn from_str(text: &str) -> std::result::Result<Self, Self::Err> {
        let (name, pattern) = match text.split_once('=') {
            Some((name, pattern)) if is_plain(name.strip_suffix(":{class}").unwrap_or(name)) => {
                (name, pattern)
            }
            _ => ("mask", text),
        };
        if pattern.is_empty() {
            return Err("the pattern is empty".into());
        }
        let (name, layer) = match name.split_once(':') {
            Some((name, layer)) => (name, Some(layer.to_owned())),
            None => (name, None),
        };
        Ok(Self { layer, ..Self::new(name, pattern) })
    }
}

/// Refuses names that a mask array cannot have.
///
/// # Errors
/// If the name is not allowed.
pub(crate) fn check_mask_name(name: &str) -> Result<()> {
    check_array_name(name, "mask")
}

/// Refuses names that an array beside the image cannot have. `role` says what it is, as in `mask`.
///
/// # Errors
/// If the name is not allowed.
pub(crate) fn check_array_name(name: &str, role: &str) -> Result<()> {
    let reserved = ["image", "wavelength", "fwhm", "c", "zarr.json", ""].contains(&name)
        || cf::NAMES.contains(&name);
    // File names on Linux have up to 255 bytes.
    let is_long = name.len() > 200;
    if reserved
        || is_long
        || name.contains(['/', '\\', '\0'])
        || name.starts_with('.')
        || name.starts_with("__")
    {
        return Err(Error::conflict(format!("{name:?} cannot be the name of a {role}"))
            .with_remedy("choose another name"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn masks_have_names_and_layers() {
        let parts = |text: &str| {
            let mask: MaskOption = text.parse().unwrap();
            (mask.name, mask.layer, mask.pattern)
        };
        assert_eq!(parts("{dir}/{stem}.png"), ("mask".into(), None, "{dir}/{stem}.png".into()));
        assert_eq!(parts("organs=a.png"), ("organs".into(), None, "a.png".into()));
        assert_eq!(parts("t:bone=a.png"), ("t".into(), Some("bone".into()), "a.png".into()));
        assert_eq!(parts("/a=b/{stem}.png"), ("mask".into(), None, "/a=b/{stem}.png".into()));
        let by_class: MaskOption = "organs:{class}={dir}/{stem}_{class}.png".parse().unwrap();
        assert!(by_class.is_by_class() && by_class.name == "organs");
        let fields: Vec<&str> = by_class.patterns().flat_map(Pattern::fields).collect();
        assert_eq!(fields, ["dir", "stem"]);
        assert_eq!(parts("{stem}=a.png"), ("mask".into(), None, "{stem}=a.png".into()));
        assert!("organs=".parse::<MaskOption>().is_err());
    }

    #[test]
    fn colours_are_of_a_mask_if_it_is_named() {
        let of = |text: &str| text.parse::<MaskColors>().map(|of| (of.mask, of.file));
        assert_eq!(of("classes.csv"), Ok((None, "classes.csv".into())));
        assert_eq!(of("gt=a/b=c.csv"), Ok((Some("gt".into()), "a/b=c.csv".into())));
        assert_eq!(of("a/b=c.csv"), Ok((None, "a/b=c.csv".into())));
        assert!(of("").is_err() && of("gt=").is_err());
    }
}
