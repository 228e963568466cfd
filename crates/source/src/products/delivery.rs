//! The files of a delivery. A file's name says which part of which product it is, and which files
//! lie beside it.
//!
//! If the user names a file, its folder is not listed: the names of the other files follow from its
//! name.

use std::path::{Path, PathBuf};

use hsipack_format::{Error, Result};
use hsipack_store::mirror;

use super::{PRODUCTS, Product};
use crate::raster::jpeg2000;

/// Kind of a file of a delivery.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Part {
    /// A cube. The text tells several cubes of one delivery apart (`VNIR`, `SWIR`); it is empty if
    /// there is one.
    Image(&'static str),
    /// Metadata of the cubes.
    Metadata,
    /// A quality layer, or something else beside the cubes.
    Layer,
    /// A file whose format says what it is, such as an ENVI header. The product adds what it knows.
    /// As in `Image`, the text tells cubes apart.
    Plain(&'static str),
}

/// A line of a product's table: how a file is named, and what it is.
///
/// A name is `start`, any text, `end`, and one of `endings`, in upper or lower case. A `#` in
/// `start` stands for a digit, a `*` at the end of `end` for any text.
///
/// Users rename deliveries. A line without `start` fits such files: any text or none may be before
/// `end`, whose hyphen is left out if there is none. They count only if the metadata and an image
/// are there, and the metadata belong to the product ([`Product::owns`]).
#[derive(Debug)]
pub(crate) struct FileName {
    /// How names begin.
    pub start: &'static str,
    /// The text before the ending.
    pub end: &'static str,
    /// Endings with their dot, in lower case. If empty, any ending fits, or none.
    pub endings: &'static [&'static str],
    /// Kind of such a file.
    pub part: Part,
}

impl FileName {
    /// The part of `name` that all files of a delivery share, if `name` fits this line.
    fn base<'n>(&self, name: &'n str) -> Option<&'n str> {
        // Letters beyond ASCII stay as they are, so lengths stay equal.
        let small = name.to_ascii_lowercase();
        let begins = small.len() >= self.start.len()
            && self.start.bytes().zip(small.bytes()).all(|(wanted, found)| match wanted {
                b'#' => found.is_ascii_digit(),
                _ => wanted.to_ascii_lowercase() == found,
            });
        let stem = match self.endings {
            [] => Some(small.as_str()),
            endings => endings.iter().find_map(|ending| small.strip_suffix(ending)),
        };
        let (stem, end) = (stem?, self.end.to_ascii_lowercase());
        if self.start.is_empty()
            && let Some(bare) = end.strip_prefix('-')
        {
            let is_bare = match bare.strip_suffix('*') {
                Some(bare) => stem.starts_with(bare),
                None => stem == bare,
            };
            if is_bare {
                return Some("");
            }
        }
        let base = match end.strip_suffix('*') {
            Some(end) => &stem[..stem.rfind(end)?],
            None => stem.strip_suffix(&end)?,
        };
        // `start` is ASCII, and what follows `base` is, so this is a boundary of letters.
        (begins && base.len() >= self.start.len()).then(|| name.get(..base.len())).flatten()
    }

    /// The names that such a file of the delivery `base` can have, as makers and users spell them.
    /// Empty if the names may contain any text.
    pub(super) fn names(&self, base: &str) -> Vec<String> {
        let spelled = |ending: &&str| [ending.to_ascii_uppercase(), (*ending).to_owned()];
        let end = if base.is_empty() { self.end.trim_start_matches('-') } else { self.end };
        let small = end.to_ascii_lowercase();
        let mut stems = vec![format!("{base}{end}")];
        if small != end {
            stems.push(format!("{base}{small}"));
        }
        let endings = if self.end.ends_with('*') { &[] } else { self.endings };
        let endings: Vec<String> = endings.iter().flat_map(spelled).collect();
        let name = |stem: &String, ending: &String| format!("{stem}{ending}");
        let of_stem = |stem| endings.iter().map(move |ending| name(stem, ending));
        stems.iter().flat_map(of_stem).collect()
    }
}

/// A file of a delivery.
pub(crate) struct Found {
    /// The product.
    pub product: &'static dyn Product,
    /// Which part of the delivery it is.
    pub part: Part,
    /// The file.
    pub path: PathBuf,
    /// The part of its name that all files of the delivery share.
    pub base: String,
}

impl std::fmt::Debug for Found {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:?} {}", self.part, self.path.display())
    }
}

/// Which part of a delivery the file at `path` is, by its name.
pub(crate) fn find(path: &Path) -> Option<Found> {
    let name = path.file_name()?.to_str()?;
    PRODUCTS.into_iter().find_map(|product| {
        let (line, base) =
            product.files().iter().find_map(|line| Some((line, line.base(name)?)))?;
        let found =
            Found { product, part: line.part, path: path.to_owned(), base: base.to_owned() };
        let is_whole = || {
            let image = found.beside(|part| matches!(part, Part::Image(_))).into_iter().next();
            image.is_some() && found.metadata().is_some_and(|path| product.owns(&path))
        };
        (!line.start.is_empty() || is_whole()).then_some(found)
    })
}

/// The cubes and metadata of deliveries that lie in `folder` itself, in the order of their names.
///
/// # Errors
/// If the folder cannot be listed.
pub(crate) fn in_folder(folder: &Path) -> Result<Vec<Found>> {
    let fail = |error| Error::io(folder, "cannot list", error);
    let mut paths = Vec::new();
    for entry in folder.read_dir().map_err(fail)? {
        paths.push(entry.map_err(fail)?.path());
    }
    paths.sort();
    let parts = paths.iter().filter_map(|path| find(path));
    Ok(parts.filter(|found| matches!(found.part, Part::Image(_) | Part::Metadata)).collect())
}

impl Found {
    /// The files of the delivery that exist and for which `wanted` is true.
    pub fn beside(&self, wanted: impl Fn(Part) -> bool) -> Vec<Found> {
        let mut found: Vec<Found> = Vec::new();
        for line in self.product.files().iter().filter(|line| wanted(line.part)) {
            for name in line.names(&self.base) {
                let path = self.path.with_file_name(name);
                if is_there(&path) && !found.iter().any(|other| is_same(&other.path, &path)) {
                    let base = self.base.clone();
                    found.push(Found { product: self.product, part: line.part, path, base });
                }
            }
        }
        found
    }

    /// The cubes of the delivery. A JPEG 2000 file is skipped if another file holds the same cube.
    pub fn images(&self) -> Vec<Found> {
        let mut images = self.beside(|part| matches!(part, Part::Image(_)));
        let is_read = |image: &Found| !jpeg2000::is_named(&image.path);
        let read: Vec<Part> =
            images.iter().filter(|image| is_read(image)).map(|image| image.part).collect();
        images.retain(|image| is_read(image) || !read.contains(&image.part));
        images
    }

    /// The file that says what the cubes are.
    pub fn metadata(&self) -> Option<PathBuf> {
        self.beside(|part| part == Part::Metadata).into_iter().next().map(|found| found.path)
    }

    /// The names that the cubes may have, for messages: one of each kind.
    pub fn image_names(&self) -> String {
        let lines = self.product.files().iter();
        let images = lines.filter(|line| matches!(line.part, Part::Image(_)));
        let mut names: Vec<String> =
            images.filter_map(|line| line.names(&self.base).into_iter().next()).collect();
        // Lines without a start repeat the names of the others.
        let mut listed = std::collections::HashSet::new();
        names.retain(|name| listed.insert(name.clone()));
        names.join(" or ")
    }
}

/// Whether there is a file at `path`, which may represent an object on a server.
pub(super) fn is_there(path: &Path) -> bool {
    mirror::look(path).is_ok() && path.is_file()
}

/// Whether two names refer to the same file, as they can on file systems that ignore case.
fn is_same(a: &Path, b: &Path) -> bool {
    use std::os::unix::fs::MetadataExt;
    let identity = |path: &Path| path.metadata().map(|file| (file.dev(), file.ino())).ok();
    a == b || identity(a).is_some_and(|a| Some(a) == identity(b))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_a_start_any_text_and_an_end() {
        let line = FileName {
            start: "enmap##-",
            end: "-SPECTRAL_IMAGE",
            endings: &[".tif", ".geotiff"],
            part: Part::Image(""),
        };
        for (name, end) in [
            ("ENMAP01-__L1C-SPECTRAL_IMAGE.TIF", "-__L1C"),
            ("enmap01-__L1C-spectral_image.GeoTIFF", "-__L1C"),
            ("ENMAP01-Müritz-SPECTRAL_IMAGE.TIF", "-Müritz"),
        ] {
            assert!(line.base(name).unwrap().ends_with(end), "{name}");
        }
        for name in [
            "ENMAP0x-a-SPECTRAL_IMAGE.TIF",
            "ENMAP01-a-SPECTRAL_IMAGE.png",
            "ENMAP01-a.TIF",
            "SPECTRAL_IMAGE.TIF",
            "",
        ] {
            assert_eq!(line.base(name), None, "{name}");
        }
        let names = line.names("ENMAP01-a");
        assert_eq!(names[..2], ["ENMAP01-a-SPECTRAL_IMAGE.TIF", "ENMAP01-a-SPECTRAL_IMAGE.tif"]);
        assert!(names.contains(&"ENMAP01-a-spectral_image.geotiff".to_owned()));
        let renamed = FileName { start: "", end: "-METADATA", endings: &[".xml"], ..line };
        for (name, base) in [
            ("METADATA.XML", Some("")),
            ("metadata.xml", Some("")),
            ("patch 1-METADATA.xml", Some("patch 1")),
            ("MYMETADATA.xml", None),
        ] {
            assert_eq!(renamed.base(name), base, "{name}");
        }
        assert!(renamed.names("").contains(&"metadata.xml".to_owned()));
        let layers = FileName { end: "-QL_*", part: Part::Layer, ..line };
        assert_eq!(layers.base("ENMAP01-a-QL_PIXELMASK.TIF"), Some("ENMAP01-a"));
        assert_eq!(layers.base("ENMAP01-a.TIF"), None);
        assert!(layers.names("ENMAP01-a").is_empty());
    }
}
