//! Detects the format of a file, first by its content, then by its name.

use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use hsipack_format::{Error, Result};
use hsipack_store::bounded_read;
use hsipack_store::mirror::{self, Pin};

use super::{Access, CubeInfo, OpenOptions, RowBuffer, Source, foreign, products};
use crate::container::{self, Visitor};
use crate::cube_size::check_row;
use crate::file_format::{FileFormat, Kind};
use crate::flat::{self, envi};
use crate::raster::{self, jpeg2000, png};
use crate::reader::Described;
use crate::spectrum::spectra_table;

/// How many bytes at the start of a file the formats see.
const HEAD: u64 = 4096;
/// Endings of archives that are not searched for cubes.
const UNREAD: [&str; 12] = [
    ".7z", ".rar", ".tar.bz2", ".tbz2", ".tar.xz", ".txz", ".tar.zst", ".tar.lz4", ".tar.z",
    ".zipx", ".bz2", ".xz",
];

/// Formats that are not read, recognised so that the error names them.
const FOREIGN: &[FileFormat] =
    &[FileFormat::new(Kind::Refused, "", foreign::recognises, foreign::open)];

/// All formats, the most reliable signatures first.
const FORMATS: [&[FileFormat]; 4] = [container::FORMATS, raster::FORMATS, FOREIGN, flat::FORMATS];

fn format_of(path: &Path, head: &[u8]) -> Option<&'static FileFormat> {
    FORMATS.into_iter().flatten().find(|format| (format.recognises)(path, head))
}

/// Shows the file or folder at `path` as a container. Returns whether it is one.
///
/// # Errors
/// If it cannot be read, and those of `visitor`.
pub(crate) fn visit(path: &Path, visitor: Visitor<'_>) -> Result<bool> {
    let (visited, _) = mirror::pinning(|| {
        mirror::prepare(path)?;
        let head = head(path)?;
        match format_of(path, &head).and_then(|format| format.visit) {
            Some(visit) => visit(path, visitor).map(|()| true),
            None => Ok(false),
        }
    });
    visited.map_err(mirror::error_with_urls)
}

/// The first bytes of a file; none of a folder.
fn head(path: &Path) -> Result<Vec<u8>> {
    let is_folder =
        path.metadata().map_err(|error| bounded_read::failed(path, "cannot read", error))?.is_dir();
    if is_folder { Ok(Vec::new()) } else { bounded_read::head(path, HEAD) }
}

/// Opens an image, with what an ENVI header beside it says.
fn open_image(format: &FileFormat, path: &Path, options: &OpenOptions) -> Result<Box<dyn Source>> {
    let source = (format.open)(path, options)?;
    // Products say more about their images than such headers.
    if products::is_of_delivery(path) || !envi::has_header(path) {
        return Ok(source);
    }
    let mut info = source.info().clone();
    envi::describe_tiff(path, &mut info);
    Ok(Box::new(Described { info, source }))
}

/// Opens the cube in `path`, a file or a folder, in any known format.
///
/// # Errors
/// If the path cannot be read, no format recognises it, or its format's reader refuses it.
pub fn open(path: &Path, options: &OpenOptions) -> Result<Box<dyn Source>> {
    let (source, pin) = mirror::pinning(|| {
        // Some libraries open the file by name, so it is fetched first.
        mirror::prepare(path)?;
        products::open(path, options, open_file)
    });
    let source = source.map_err(mirror::error_with_urls)?;
    Ok(if pin.is_empty() {
        source
    } else {
        Box::new(Pinned { source, pin, is_verified: Mutex::new(false) })
    })
}

/// A cube whose files represent objects on a server or members of an archive. They are kept while
/// the cube is open.
struct Pinned {
    source: Box<dyn Source>,
    pin: Pin,
    /// Whether archive members that are read in place were verified against their checksums. No row
    /// is read before that.
    is_verified: Mutex<bool>,
}

impl Pinned {
    fn verify(&self) -> Result<()> {
        let mut is_verified = self.is_verified.lock().unwrap_or_else(PoisonError::into_inner);
        if !*is_verified {
            self.pin.verify()?;
            *is_verified = true;
        }
        Ok(())
    }
}

impl Source for Pinned {
    fn info(&self) -> &CubeInfo {
        self.source.info()
    }

    fn access(&self) -> Access {
        self.source.access()
    }

    fn preferred_rows(&self, budget: usize) -> usize {
        self.source.preferred_rows(budget)
    }

    fn read_rows(&self, rows: Range<usize>, out: &mut RowBuffer) -> Result<()> {
        self.verify()
            .and_then(|()| self.source.read_rows(rows, out))
            .map_err(mirror::error_with_urls)
    }

    fn has_cheap_bands(&self) -> bool {
        self.source.has_cheap_bands()
    }

    fn read_band(&self, band: usize, rows: Range<usize>, out: &mut RowBuffer) -> Result<()> {
        self.verify()
            .and_then(|()| self.source.read_band(band, rows, out))
            .map_err(mirror::error_with_urls)
    }
}

fn open_file(path: &Path, options: &OpenOptions) -> Result<Box<dyn Source>> {
    if mirror::is_archive(path) {
        // A search for cubes would have looked into the archive, so most likely it cannot be read.
        mirror::folder_of_archive(path)?;
        return Err(Error::unsupported("this is an archive, not a cube")
            .at(path)
            .with_remedy("give the path of a cube in it: ARCHIVE/FOLDER/FILE"));
    }
    let head = head(path)?;
    if head.is_empty() && !path.is_dir() {
        return Err(Error::malformed("the file is empty").at(path).with_remedy("copy it again"));
    }
    let format = format_of(path, &head);
    if let Some(header) = &options.header
        && is_raw(path, format)
    {
        return envi::open_with_header(path, header, options);
    }
    if format.is_none()
        && let Some(spectrum) =
            spectra_table::open(path, options.variable.as_deref(), options.sample)?
    {
        return Ok(spectrum);
    }
    match format {
        Some(format) => {
            let image = (format.kind == Kind::Headers).then(|| envi::tiff_of(path)).flatten();
            if let Some(image) = image {
                return open_file(&image, options);
            }
            let source = match format.kind {
                Kind::Images => open_image(format, path, options)?,
                _ => (format.open)(path, options)?,
            };
            check_row(source.info()).map_err(|error| error.at(path))?;
            Ok(source)
        }
        None if is_unread_archive(path) => {
            Err(Error::unsupported("archives of this kind are not opened")
                .at(path)
                .with_remedy("unpack it, or pack it again as .zip, .tar, .tar.gz or .tgz"))
        }
        None if foreign::is_named(path, &head) => foreign::open(path, options),
        None if options.mask && is_json(&head) => {
            Err(Error::unsupported("the file holds polygons or other JSON, not a picture of class ids")
                .at(path)
                .with_remedy(
                    "draw the polygons into a picture of class ids (rasterio.features.rasterize, or the export of the labelling tool), and give that",
                ))
        }
        None if options.mask => {
            Err(Error::unsupported("not a mask in any format hsipack knows").at(path).with_remedy(
                "give a PNG or TIFF picture of class ids (not a JPEG, which changes them), .npy, .npz, .mat, ENVI or HDF5",
            ))
        }
        None => {
            let names = FORMATS.into_iter().flatten().map(|format| format.name);
            let names: Vec<&str> = names.filter(|name| !name.is_empty()).collect();
            let remedy =
                format!("give {}, or a .zip, .tar, .tar.gz or .tgz of them", names.join(", "));
            Err(Error::unsupported("not a cube in any format hsipack knows")
                .at(path)
                .with_remedy(remedy))
        }
    }
}

/// Whether a file that starts with `head` is JSON, as labelling tools write polygons.
fn is_json(head: &[u8]) -> bool {
    let text = head.strip_prefix(b"\xEF\xBB\xBF").unwrap_or(head).trim_ascii_start();
    let Some((first, tail)) = text.split_first() else { return false };
    let second = tail.trim_ascii_start().first();
    matches!((first, second), (b'{', Some(b'"' | b'}')) | (b'[', Some(b'{' | b'[' | b']')))
}

/// Whether a file may hold the raw data of a header elsewhere: it is of no other format, and has no
/// header beside it.
fn is_raw(path: &Path, format: Option<&FileFormat>) -> bool {
    format.is_none_or(|format| format.kind == Kind::Headers) && !envi::has_header(path)
}

/// Whether the file at `path` needs a header that is elsewhere: it is of no known format. Files
/// that cannot be read do not.
pub fn needs_header(path: &Path) -> bool {
    let head = head(path).unwrap_or_default();
    path.is_file() && !head.is_empty() && is_raw(path, format_of(path, &head))
}

/// The file with the values of the cube that the file at `path` describes; `None` if `path` is not
/// a header, or its data are missing.
pub fn data_of(path: &Path) -> Option<PathBuf> {
    envi::data_of(path)
}

/// Whether the file at `path` is exactly the raw data that the ENVI header at `header` describes.
/// Files that are cubes by themselves are not.
pub fn is_raw_data_of(path: &Path, header: &Path) -> bool {
    !envi::has_header(path) && !is_cube_file(path) && envi::is_described_by(path, header)
}

/// Whether `path` is a folder that is itself a cube container, not a folder of cubes.
pub fn is_container_folder(path: &Path) -> bool {
    ["zarr.json", ".zarray", ".zgroup"].iter().any(|name| path.join(name).is_file())
}

/// Whether a file found while searching a folder should be opened as a cube. This is so for any
/// known format, except images, the data files of ENVI pairs, and files that a product has beside
/// its cubes. It is also so for files that cannot be read, because the error then names them.
pub fn is_cube_file(path: &Path) -> bool {
    if products::is_beside_a_cube(path) {
        return false;
    }
    if products::is_unread_cube(path) {
        return true;
    }
    let Ok(head) = bounded_read::head(path, HEAD) else { return true };
    if head.is_empty() {
        return false;
    }
    let is_header = || {
        head.starts_with(b"ENVI")
            || path.extension().is_some_and(|ending| ending.eq_ignore_ascii_case("hdr"))
    };
    match format_of(path, &head).map(|format| format.kind) {
        Some(Kind::Cubes | Kind::Images) => true,
        Some(Kind::Headers) => is_header() && envi::tiff_of(path).is_none(),
        Some(Kind::Pictures | Kind::Refused) | None => false,
    }
}

/// Whether the file at `path` is a picture, which is a cube only if users name it.
pub fn is_picture(path: &Path) -> bool {
    let head = bounded_read::head(path, HEAD).unwrap_or_default();
    let mut pictures = raster::FORMATS.iter().filter(|format| format.kind == Kind::Pictures);
    pictures.any(|format| (format.recognises)(path, &head))
}

/// Whether the file at `path` is a table of single spectra in ENVI's format, which is no cube.
pub fn is_spectral_library(path: &Path) -> bool {
    envi::is_spectral_library(path)
}

/// Whether a file's name ends like that of an archive, or of a compressed cube, that cannot be
/// opened.
pub fn is_unread_archive(path: &Path) -> bool {
    unread_stem(path).is_some()
}

/// The name of the contents of an archive that cannot be opened; `None` for other files.
pub fn unread_stem(path: &Path) -> Option<&str> {
    let name = path.file_name()?.to_str()?;
    let without = |ending: &str| {
        let at = name.len().checked_sub(ending.len())?;
        let is_ending = name.get(at..)?.eq_ignore_ascii_case(ending);
        is_ending.then(|| &name[..at])
    };
    let of_cube = || without(".gz").filter(|stem| is_signed(Path::new(stem)));
    UNREAD.iter().find_map(|ending| without(ending)).or_else(of_cube)
}

/// Whether a file's name ends like that of a cube that is recognised by its signature.
fn is_signed(path: &Path) -> bool {
    let ending = path.extension().unwrap_or_default();
    let mut endings = FORMATS.into_iter().flatten().flat_map(|format| format.endings);
    endings.any(|signed| ending.eq_ignore_ascii_case(signed))
}

/// Why a file that is named like a cube, but that [`is_cube_file`] does not accept, is none; `None`
/// for other files, and for those that belong to a cube.
pub fn why_no_cube(path: &Path) -> Option<&'static str> {
    if !is_signed(path) || products::is_beside_a_cube(path) {
        return None;
    }
    let head = bounded_read::head(path, HEAD).ok()?;
    if head.is_empty() {
        return Some("empty");
    }
    match format_of(path, &head).map(|format| format.kind) {
        None => Some("not recognised"),
        Some(Kind::Refused) => foreign::name_of(path, &head),
        Some(_) => None,
    }
}

/// A file that is no cube, for messages about folders without cubes.
pub struct Other {
    /// Its kind, if it is recognised.
    pub format: Option<&'static str>,
    /// How to convert it, if it can hold a cube.
    pub way_out: Option<String>,
}

/// Kind of a file that [`is_cube_file`] does not accept.
pub fn other(path: &Path) -> Other {
    let head = bounded_read::head(path, HEAD).unwrap_or_default();
    let raw = || {
        (!head.is_empty() && envi::recognises(path, &head)).then_some("raw data without a header")
    };
    let picture = || png::recognises(path, &head).then_some("a PNG picture");
    let foreign = foreign::name_of(path, &head);
    let jpeg2000 = jpeg2000::recognises(path, &head)
        .then(|| jpeg2000::refusal(path).remedy().map(ToString::to_string).unwrap_or_default());
    Other {
        format: foreign.or_else(picture).or_else(raw),
        way_out: jpeg2000.or_else(|| foreign::way_out(path, &head)),
    }
}
