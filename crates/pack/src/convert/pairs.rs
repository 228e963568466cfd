//! Finds the white and dark references of each cube.
//!
//! | camera | cube | white reference | dark reference |
//! |---|---|---|---|
//! | Specim IQ; Specim FX, Fenix and others by Lumo | `NAME` | `WHITEREF_NAME` | `DARKREF_NAME` |
//! | Headwall, MV.X | any in the folder, such as `raw_0` | `whiteReference` | `darkReference` |
//!
//! Specim IQ also keeps `WHITEDARKREF_NAME`: dark frames with the integration time of the white
//! reference.
//!
//! The files are in the same folder as the cube. If references have other names, a pattern gives
//! their paths.

use std::path::{Path, PathBuf};

use hsipack_format::{Error, ErrorKind, Opt, Result, remedy};

use super::named_files;
use super::options::Reference;
use crate::input::Input;

/// A white or a dark reference.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    White,
    Dark,
}

impl Kind {
    pub const fn word(self) -> &'static str {
        match self {
            Self::White => "white",
            Self::Dark => "dark",
        }
    }

    const fn prefix(self) -> &'static str {
        match self {
            Self::White => "WHITEREF_",
            Self::Dark => "DARKREF_",
        }
    }

    /// The name in Headwall's folders.
    const fn name(self) -> &'static str {
        match self {
            Self::White => "whiteReference",
            Self::Dark => "darkReference",
        }
    }

    const fn option(self) -> Opt {
        match self {
            Self::White => Opt::White,
            Self::Dark => Opt::Dark,
        }
    }
}

const KINDS: [Kind; 2] = [Kind::White, Kind::Dark];
/// Starts the name of the dark reference of a white reference.
const WHITE_DARK: &str = "WHITEDARKREF_";
/// Endings that may follow Headwall's names. Headers come first, because they say where their data
/// are.
const ENDINGS: [&str; 4] = [".hdr", ".bin.hdr", "", ".bin"];

fn text(part: Option<&std::ffi::OsStr>) -> String {
    part.unwrap_or_default().to_string_lossy().into_owned()
}

/// The reference beside a cube, by the naming rules of the camera makers.
pub fn beside(cube: &Path, kind: Kind) -> Option<PathBuf> {
    let (stem, name) = (text(cube.file_stem()), text(cube.file_name()));
    let prefix = kind.prefix();
    let specim = [format!("{prefix}{stem}.hdr"), format!("{prefix}{name}")];
    let is_reference = KINDS.iter().any(|kind| is_named(&name, kind.name()));
    let headwall = ENDINGS.iter().map(|ending| format!("{}{ending}", kind.name()));
    let headwall = headwall.filter(|_| !is_reference);
    let all = specim.into_iter().chain(headwall).map(|name| cube.with_file_name(name));
    // A data file without a header is not a cube.
    all.into_iter().find(|candidate| candidate.is_file() && hsipack_source::is_cube_file(candidate))
}

/// Whether a file has this name followed by one of the endings.
fn is_named(file: &str, name: &str) -> bool {
    file.strip_prefix(name).is_some_and(|ending| ENDINGS.contains(&ending))
}

/// Whether a file in a folder is the reference of a cube there, and therefore not a cube to pack.
pub fn is_reference(path: &Path) -> bool {
    let name = text(path.file_name());
    let mut prefixes = KINDS.iter().map(|kind| kind.prefix()).chain([WHITE_DARK]);
    let specim = prefixes.find_map(|prefix| name.strip_prefix(prefix));
    if specim.is_some_and(|cube| path.with_file_name(cube).is_file()) {
        return true;
    }
    let raw = || ["raw_0", "raw_0.hdr"].iter().any(|raw| path.with_file_name(raw).is_file());
    KINDS.iter().any(|kind| is_named(&name, kind.name())) && raw()
}

/// Whether a file is the reflectance that a Specim IQ computed itself of a scan below `root`,
/// `NAME/results/REFLECTANCE_NAME` of `NAME/capture/NAME`. Scans that are calibrated by their
/// references are this reflectance already.
pub fn is_reflectance_of_scan(path: &Path, root: &Path) -> bool {
    let name = text(path.file_name());
    let scan = name.strip_prefix("REFLECTANCE_").map(|scan| Path::new(scan).with_extension("hdr"));
    let folder = path.parent().and_then(Path::parent).map(|folder| folder.join("capture"));
    scan.zip(folder)
        .is_some_and(|(scan, folder)| folder.starts_with(root) && folder.join(scan).is_file())
}

/// The dark reference that belongs to the white reference `white`, by Specim's naming rule.
pub fn dark_of_white(white: &Path) -> Option<PathBuf> {
    let name = text(white.file_name());
    let cube_name = name.strip_prefix(Kind::White.prefix())?;
    let stem = Path::new(cube_name).with_extension("hdr");
    let names = [format!("{WHITE_DARK}{}", stem.display()), format!("{WHITE_DARK}{cube_name}")];
    let mut all = names.iter().map(|name| white.with_file_name(name));
    all.find(|candidate| candidate.is_file() && hsipack_source::is_cube_file(candidate))
}

/// Finds the file of a cube's reference.
///
/// # Errors
/// If there is none. The error says where it was searched for.
pub fn find(reference: &Reference, kind: Kind, cube: &Input) -> Result<Input> {
    let word = kind.word();
    match reference {
        Reference::File(file) => Input::parse(file).here(),
        Reference::Auto => {
            let found = beside(&cube.file, kind).map(|file| Input::of(&file));
            found.ok_or_else(|| {
                if is_reference(&cube.file) {
                    return Error::conflict("it is itself the reference of a cube")
                        .at(&cube.file)
                        .with_remedy(
                            "give the folder instead of a pattern, or a pattern that matches cubes only; in folders, references are not packed",
                        );
                }
                let stem = text(cube.file.file_stem());
                let (prefix, name) = (kind.prefix(), kind.name());
                Error::conflict(format!(
                    "its {word} reference is missing: neither {prefix}{stem} nor {name} is beside it"
                ))
                .at(&cube.file)
                .with_remedy(remedy![
                    "give the references, for example with ",
                    kind.option().to(format!("{{dir}}/{word}/{{stem}}.hdr")),
                    ", or leave out the option"
                ])
            })
        }
        Reference::Pattern(pattern) => {
            let role = format!("the {word} reference");
            named_files::find(pattern, cube, &role)?.ok_or_else(|| {
                let why = named_files::absence(pattern, cube);
                Error::new(ErrorKind::Io, format!("its {word} reference is missing: {why}"))
                    .at(&cube.file)
                    .with_remedy(remedy!["check the pattern of ", kind.option()])
            })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn folder(files: &[&str]) -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        for file in files {
            std::fs::create_dir_all(folder.path().join(file).parent().unwrap()).unwrap();
            let header = if file.ends_with(".tif") { "II*\0" } else { "ENVI\n" };
            std::fs::write(folder.path().join(file), header).unwrap();
        }
        folder
    }

    #[test]
    fn cameras_name_references_in_their_ways() {
        let folder = folder(&[
            "a/scan.hdr",
            "a/scan.raw",
            "a/WHITEREF_scan.hdr",
            "a/DARKREF_scan.hdr",
            "a/WHITEDARKREF_scan.hdr",
            "b/raw_0",
            "b/raw_0.hdr",
            "b/raw_2000",
            "b/whiteReference.hdr",
            "b/darkReference.bin.hdr",
            "c/core.tif",
            "c/WHITEREF_core.tif",
            "d/darkReference",
            "d/darkReference.hdr",
        ]);
        let path = |name: &str| folder.path().join(name);
        let found = |cube: &str, kind| {
            let found = beside(&path(cube), kind)?;
            Some(found.strip_prefix(folder.path()).unwrap().to_str().unwrap().to_owned())
        };
        for cube in ["a/scan.hdr", "a/scan.raw"] {
            assert_eq!(found(cube, Kind::White).as_deref(), Some("a/WHITEREF_scan.hdr"));
            assert_eq!(found(cube, Kind::Dark).as_deref(), Some("a/DARKREF_scan.hdr"));
        }
        for cube in ["b/raw_0", "b/raw_2000"] {
            assert_eq!(found(cube, Kind::White).as_deref(), Some("b/whiteReference.hdr"));
            assert_eq!(found(cube, Kind::Dark).as_deref(), Some("b/darkReference.bin.hdr"));
        }
        let white_dark = Some(path("a/WHITEDARKREF_scan.hdr"));
        assert_eq!(dark_of_white(&path("a/WHITEREF_scan.hdr")), white_dark);
        assert_eq!(dark_of_white(&path("a/WHITEREF_scan.raw")), white_dark);
        assert_eq!(dark_of_white(&path("c/WHITEREF_core.tif")), None);
        assert_eq!(dark_of_white(&path("b/whiteReference.hdr")), None);
        assert_eq!(found("c/core.tif", Kind::White).as_deref(), Some("c/WHITEREF_core.tif"));
        assert_eq!(found("c/core.tif", Kind::Dark), None);
        assert_eq!(found("b/whiteReference", Kind::Dark), None);
        for (file, reference) in [
            ("a/WHITEREF_scan.hdr", true),
            ("a/WHITEDARKREF_scan.hdr", true),
            ("a/scan.hdr", false),
            ("b/darkReference.bin", true),
            ("b/whiteReference.hdr", true),
            ("b/raw_2000", false),
            // In a folder without scans, references count as cubes.
            ("d/darkReference.hdr", false),
        ] {
            assert_eq!(is_reference(&path(file)), reference, "{file}");
        }
    }

    #[test]
    fn patterns_take_the_cubes_place() {
        let folder = folder(&["day/scan.hdr", "day/refs/w_scan.hdr"]);
        let cube = Input::of(&folder.path().join("day/scan.hdr"));
        let pattern = |text: &str| text.parse::<Reference>().unwrap();
        let found = find(&pattern("{dir}/refs/w_{stem}.hdr"), Kind::White, &cube).unwrap();
        assert!(found.file.ends_with("day/refs/w_scan.hdr"));
        let error = find(&pattern("{dir}/d_{stem}.hdr"), Kind::Dark, &cube).unwrap_err();
        let text = error.to_string();
        assert!(text.contains("its dark reference is missing") && text.contains("d_scan.hdr"));
        let error = find(&Reference::Auto, Kind::White, &cube).unwrap_err().to_string();
        assert!(error.contains("WHITEREF_scan") && error.contains("whiteReference"), "{error}");
        let error = find(&pattern("{dir}/{stem}{foo}.hdr"), Kind::White, &cube).unwrap_err();
        assert!(error.what().contains("unknown field {foo}"), "{error}");
        assert_eq!(pattern("white.hdr"), Reference::File("white.hdr".into()));
    }
}
