//! The cubes of one shape: their image, masks, companions and coordinates.

use std::path::Path;
use std::sync::Arc;

use hsipack_format::geo::cf;
use hsipack_format::metadata::{FWHM, IMAGE, Role, WAVELENGTH};
use hsipack_format::zarr::{self, ArrayMeta};
use hsipack_format::{DType, Error, Result, codec};

use super::array::{ChunkArray, decode_chunk};
use crate::folder::Folder;
use crate::metadata::MetadataFiles;
use crate::{bounded_read, memory};

/// The cubes of one shape.
#[derive(Debug)]
pub struct Stack {
    /// `ROWSxCOLUMNSxBANDS`.
    pub name: String,
    /// The cubes.
    pub image: ChunkArray,
    /// Masks by name, one band each.
    pub masks: Vec<ChunkArray>,
    /// Companions: the targets, then the further images, each in the order of their names. The
    /// bands of a target are its channels.
    pub companions: Vec<ChunkArray>,
    /// Band centres in nm.
    pub wavelength: Option<Vec<f64>>,
    /// Full widths at half maximum, in nm.
    pub fwhm: Option<Vec<f64>>,
    /// Names of the arrays with the location of the pixels ([`cf::NAMES`]). They exist if all
    /// samples share a grid.
    pub geo_arrays: Vec<&'static str>,
    /// Problems with coordinate arrays. Always empty after [`Dataset::open`](super::Dataset::open).
    pub problems: Vec<Error>,
}

impl Stack {
    pub(super) fn open(root: &Arc<Folder>, files: &MetadataFiles, name: String) -> Result<Self> {
        let folder = root.path().join(&name);
        zarr::parse_group(&files.read(&folder.join("zarr.json"), bounded_read::METADATA)?)
            .map_err(|error| error.at(folder.join("zarr.json")))?;
        let image = ChunkArray::open_image(root, files, &folder)?;
        let (mut masks, mut companions, mut geo_arrays) = (Vec::new(), Vec::new(), Vec::new());
        for array in array_names(files, &folder)? {
            if let Some(name) = geo_array(files, &folder, &array)? {
                geo_arrays.push(name);
            } else if ![IMAGE, WAVELENGTH, FWHM].contains(&array.as_str()) {
                let other = ChunkArray::open_beside(root, files, &folder, &array)?;
                let role = other.role();
                let (shape, size) = (other.shape(), image.shape());
                let size = [size.rows, size.columns].map(|length| other.ratio().length(length));
                if other.len() != image.len() || size != [shape.rows, shape.columns].map(Some) {
                    let role = role.map_or("mask", Role::words);
                    let what = format!("the {role} has a different shape from the image");
                    return Err(Error::damaged(what).at(folder.join(array)));
                }
                if role.is_some() { &mut companions } else { &mut masks }.push(other);
            }
        }
        companions.sort_by_key(|companion| companion.role());
        let bands = image.shape().bands;
        let mut problems = Vec::new();
        let mut coordinate = |array: &str| {
            read_coordinate(files, &folder.join(array), bands).unwrap_or_else(|error| {
                problems.push(error);
                None
            })
        };
        let (wavelength, fwhm) = (coordinate(WAVELENGTH), coordinate(FWHM));
        Ok(Self { name, image, masks, companions, wavelength, fwhm, geo_arrays, problems })
    }

    /// Its arrays with a value or more for each pixel: the image, then the masks, then the
    /// companions.
    pub fn arrays(&self) -> impl Iterator<Item = &ChunkArray> {
        std::iter::once(&self.image).chain(&self.masks).chain(&self.companions)
    }

    /// The same arrays, to change them.
    pub(super) fn arrays_mut(&mut self) -> impl Iterator<Item = &mut ChunkArray> {
        std::iter::once(&mut self.image).chain(&mut self.masks).chain(&mut self.companions)
    }

    /// The companions of a role, in the order of their names.
    pub fn companions_of(&self, role: Role) -> impl Iterator<Item = &ChunkArray> {
        self.companions.iter().filter(move |companion| companion.role() == Some(role))
    }

    /// The companion with this name.
    pub fn companion(&self, name: &str) -> Option<&ChunkArray> {
        self.companions.iter().find(|companion| companion.name() == name)
    }

    /// The target with this name.
    pub fn target(&self, name: &str) -> Option<&ChunkArray> {
        self.companions_of(Role::Target).find(|target| target.name() == name)
    }

    /// The mask with this name.
    pub fn mask(&self, name: &str) -> Option<&ChunkArray> {
        self.masks.iter().find(|mask| mask.name() == name)
    }
}

/// The name of an array with the location of pixels; `None` for other arrays. In older versions,
/// masks could have these names; masks have three axes.
fn geo_array(files: &MetadataFiles, stack: &Path, array: &str) -> Result<Option<&'static str>> {
    let Some(name) = cf::NAMES.into_iter().find(|name| *name == array) else { return Ok(None) };
    let meta = files.read(&stack.join(array).join("zarr.json"), bounded_read::METADATA)?;
    // Location arrays of other libraries may have types and codecs that cannot be parsed here. Masks never have
    // these.
    let is_mask = ArrayMeta::parse(&meta).is_ok_and(|meta| meta.shape.len() == 3);
    Ok((!is_mask).then_some(name))
}

/// Reads a 1-D float64 array of `len` values in one chunk; `None` if the array does not exist.
fn read_coordinate(files: &MetadataFiles, folder: &Path, len: usize) -> Result<Option<Vec<f64>>> {
    let file = folder.join("zarr.json");
    if !files.has(&file)? {
        return Ok(None);
    }
    let meta = ArrayMeta::parse(&files.read(&file, bounded_read::METADATA)?)
        .map_err(|error| error.at(&file))?;
    if meta.shape != [len as u64]
        || meta.file_shape != meta.shape
        || meta.chunk_shape.is_some()
        || meta.dtype != DType::F64
    {
        return Err(Error::damaged(format!("not one chunk of {len} float64 values")).at(file));
    }
    if len > codec::MAX_CHUNK / 8 {
        return Err(Error::unsupported(format!("a list of {len} values")).at(file));
    }
    let chunk = folder.join("c/0");
    let stored = files.read(&chunk, bounded_read::METADATA)?;
    let mut bytes = memory::zeroed(len * 8, "a list of wavelengths")?;
    decode_chunk(&meta, &stored, true, &mut bytes).map_err(|error| error.at(chunk))?;
    let (values, _) = bytes.as_chunks::<8>();
    Ok(Some(values.iter().map(|value| f64::from_le_bytes(*value)).collect()))
}

/// Sorted names of the folders of a stack that contain an array.
pub(super) fn array_names(files: &MetadataFiles, folder: &Path) -> Result<Vec<String>> {
    files.folders(folder, Path::new("zarr.json"))
}
