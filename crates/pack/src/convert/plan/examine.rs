//! Examines an input for the plan: opens its cube, references, masks and companions. This reads
//! files, so threads examine several inputs at once, and nothing here depends on other inputs.

use std::collections::BTreeMap;
use std::path::PathBuf;

use hsipack_format::metadata::MaskMeaning;
use hsipack_format::{Color, CubeShape, DType, Grid, Result, mask};
use hsipack_source::CubeInfo;
use serde_json::{Map, Value};

use super::{PlannedMask, open_source, select_bands};
use crate::convert::boxes;
use crate::convert::companions::{self, CompanionReader, PlannedCompanion};
use crate::convert::masks::{self, CubeOfMask, MaskGroup, MaskReader};
use crate::convert::options::CompanionOption;
use crate::convert::options::{ConvertOptions, Unlisted};
use crate::convert::references::{self, Fit};
use crate::fingerprint::fingerprint;
use crate::input::Input;

/// Examines inputs.
pub(super) struct Examiner<'a> {
    pub options: &'a ConvertOptions,
    /// The masks of every cube.
    pub masks: Vec<MaskGroup>,
    /// The companions of every cube.
    pub companions: Vec<CompanionOption>,
    /// Masks of the dataset that were added after packing, for which cubes have no files.
    pub added_masks: BTreeMap<String, MaskMeaning>,
}

/// Contents of the files of an input.
pub(super) struct Examined {
    /// The description of its cube.
    pub info: CubeInfo,
    /// Bytes of its files.
    pub source_bytes: u64,
    /// Fingerprint of its files.
    pub fingerprint: String,
    /// Bands that are kept; `None` keeps all.
    pub bands: Option<Vec<usize>>,
    /// The shape with the bands that are kept.
    pub shape: CubeShape,
    /// Its white and dark references.
    pub references: Fit,
    /// The columns of its boxes; `None` if no file lists it, and it is left out.
    pub boxes: Option<Map<String, Value>>,
    /// Its masks, in the order of [`Examiner::masks`].
    pub masks: Vec<ExaminedMask>,
    /// Its companions, in the order of [`Examiner::companions`].
    pub companions: Vec<ExaminedCompanion>,
}

/// Contents of the file of a companion.
pub(super) struct ExaminedCompanion {
    /// Fingerprint of its files.
    pub fingerprint: String,
    /// A note for the user about its place on Earth.
    pub note: Option<String>,
    /// Its array.
    pub array: PlannedCompanion,
}

/// Contents of the file of a mask.
pub(super) struct ExaminedMask {
    /// Fingerprint of its files; `None` if the cube has none, and the mask is filled.
    pub fingerprint: Option<String>,
    /// Names of classes in the file.
    pub file_classes: Vec<String>,
    /// Names of classes that have no id in the file, and none that the user gives.
    pub free_names: Vec<String>,
    /// Colours of classes that have no id in the file.
    pub named_colors: Vec<(String, Color)>,
    /// Its file, if it has a place on Earth and does not touch the cube.
    pub missed_by: Option<PathBuf>,
    /// Notes for the user about its place on Earth, and what it does not show.
    pub notes: Vec<String>,
    /// Whether it has class ids other than 0, not layers.
    pub has_ids: bool,
    /// The array that it needs.
    pub array: PlannedMask,
}

impl Examiner<'_> {
    /// Examines an input.
    ///
    /// # Errors
    /// If a file cannot be read, or does not fit the options or the cube.
    pub fn examine(&self, input: &Input) -> Result<Examined> {
        let values = &self.options.values;
        let mut info = open_source(input, values)?.info().clone();
        let (source_bytes, fingerprint) = fingerprint(&info.files)?;
        info.geo = input.geo.as_deref().cloned().or(info.geo);
        let bands = select_bands(&info, values)?;
        let kept = bands.as_ref().map_or(info.shape.bands, Vec::len);
        let shape = CubeShape { bands: kept, ..info.shape };
        let references = references::check(values, input, &info)?;
        let geo = info.geo.as_ref();
        let masks = self.masks.iter().map(|group| self.mask(group, input, shape, &info));
        let masks = masks.collect::<Result<_>>()?;
        let cube = CubeOfMask { input, rows: shape.rows, columns: shape.columns, geo };
        let companions = self.companions.iter().map(|option| self.companion(option, cube, shape));
        let companions = companions.collect::<Result<_>>()?;
        let boxes = match &self.options.boxes {
            None => Some(Map::new()),
            Some(pattern) => {
                let unlisted = self.options.unlisted.unwrap_or(Unlisted::Error);
                boxes::columns(pattern, input, [shape.rows, shape.columns], unlisted)?
            }
        };
        Ok(Examined {
            info,
            source_bytes,
            fingerprint,
            bands,
            shape,
            references,
            boxes,
            masks,
            companions,
        })
    }

    fn companion(
        &self,
        companion: &CompanionOption,
        cube: CubeOfMask<'_>,
        shape: CubeShape,
    ) -> Result<ExaminedCompanion> {
        let reader = CompanionReader::open(companion, cube)?;
        let (layout, image) = (&self.options.layout, self.options.values.dtype());
        let dtype = reader.dtype(image);
        let tile = layout.chunk.map(|_| layout.tile(shape, image.size()));
        let per_shard = Grid::samples_for(shape, image.size(), layout.shard_size);
        let grid = companions::grid(tile, per_shard, shape, reader.shape(), dtype)
            .map_err(|error| error.at(reader.file()))?;
        let array = PlannedCompanion {
            name: companion.name.clone(),
            dtype,
            grid,
            codec: layout.codec(dtype, grid.chunk_values()),
            meaning: reader.meaning(),
        };
        let (fingerprint, note) = (reader.fingerprint()?, reader.place_note);
        Ok(ExaminedCompanion { fingerprint, note, array })
    }

    fn mask(
        &self,
        group: &MaskGroup,
        input: &Input,
        shape: CubeShape,
        info: &CubeInfo,
    ) -> Result<ExaminedMask> {
        let geo = info.geo.as_ref();
        let cube = CubeOfMask { input, rows: shape.rows, columns: shape.columns, geo };
        let fill = self.options.mask_fill;
        let meaning = self.added_masks.get(&group.name);
        let reader = match meaning {
            None => MaskReader::open(group, cube, fill.is_some())?,
            Some(_) => None,
        };
        let reader = reader.map(|reader| reader.filling(fill).of_cube_with(info.shape.bands));
        let (greatest, layers, class_names) = match (&reader, meaning) {
            (Some(reader), _) => {
                (reader.scan()?, reader.layer_names.clone(), reader.class_names.clone())
            }
            (None, Some(meaning)) => (0, Vec::new(), meaning.class_names.clone()),
            (None, None) if group.is_by_class() => (0, Vec::new(), None),
            (None, None) => (fill.unwrap_or(0).into(), Vec::new(), None),
        };
        let mut class_colors = match (&reader, meaning) {
            (Some(reader), _) => reader.class_colors.clone(),
            (None, Some(meaning)) => meaning.class_colors.clone(),
            (None, None) => Vec::new(),
        };
        if class_names.is_none() {
            // Palettes have colours for classes that no pixel has.
            class_colors.truncate((greatest as usize).saturating_add(1));
        }
        let layout = &self.options.layout;
        let size = self.options.values.dtype().size();
        let flat = CubeShape { bands: 1, ..shape };
        let tile = match layout.chunk {
            Some(_) => layout.tile(shape, size),
            None => masks::tile(flat),
        };
        let per_shard = Grid::samples_for(shape, size, layout.shard_size);
        let grid = Grid::new(flat, tile, per_shard)?;
        let has_ids = layers.is_empty() && greatest > 0;
        let array = PlannedMask {
            name: group.name.clone(),
            dtype: mask::dtype_for(greatest.max(mask::all_layers(layers.len()))),
            grid,
            // Blocks that suit one byte per pixel suit two, too, for masks that turn out to need them.
            codec: layout.codec(DType::U8, grid.chunk_values()),
            layers,
            class_names,
            class_colors,
            origin: meaning.and_then(|meaning| meaning.origin.clone()),
        };
        let fingerprint = reader.as_ref().map(MaskReader::fingerprint).transpose()?;
        let by_name = reader.as_ref().and_then(|reader| reader.by_name.as_ref());
        let free_names = by_name.map(|ids| ids.free_names().cloned().collect()).unwrap_or_default();
        let apart = reader.as_ref().filter(|reader| reader.misses_cube());
        let missed_by = apart.map(|reader| reader.file().to_owned());
        let notes =
            reader.as_ref().map(|reader| reader.notes(&group.name, cube)).unwrap_or_default();
        let (file_classes, named_colors) =
            reader.map(|reader| (reader.file_classes, reader.named_colors)).unwrap_or_default();
        Ok(ExaminedMask {
            fingerprint,
            file_classes,
            free_names,
            named_colors,
            missed_by,
            notes,
            has_ids,
            array,
        })
    }
}
