//! Masks: class ids, or boolean layers packed into bits. They are read a few rows at a time.

use std::path::{Path, PathBuf};

use hsipack_format::grid::TARGET_CHUNK;
use hsipack_format::mask::{self, MAX_LAYERS};
use hsipack_format::{
    Color, CubeShape, DType, Error, ErrorKind, Geo, MaskValue, Opt, Result, Tile, remedy,
};
use hsipack_source::labels::{self, Alignment, ClassColor, CubeNames, LabelOptions, Resampling};
use hsipack_source::{QualityLayers, RowBuffer, Source};
use hsipack_store::mirror;
use serde::{Deserialize, Serialize};

use super::class_files::{CLASS, class_files};
use super::class_ids::IdsOfNames;
use super::classes::{self, ClassName, ClassTable, NewClass};
use super::named_files;
use super::options::MaskOption;
use crate::fingerprint::{self, fingerprint};
use crate::input::Input;
use crate::pattern::Pattern;

/// The patterns that make up one mask array.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MaskGroup {
    /// Name of the array.
    pub name: String,
    /// Layer name and pattern. If the mask is not made of layers, there is one pattern without a
    /// name.
    pub patterns: Vec<(Option<String>, String)>,
    /// Class ids to replace.
    pub classes: Vec<NewClass>,
    /// Names of its packed class ids.
    pub class_names: Vec<ClassName>,
    /// The colours of its classes, if its files are coloured pictures.
    pub colors: Vec<ClassColor>,
    /// How files on another grid are brought onto that of the cube.
    pub resample: Option<Resampling>,
    /// Whether features on a map cover every pixel that they touch.
    pub all_touched: bool,
}

/// The cube to which a mask belongs.
#[derive(Clone, Copy, Debug)]
pub struct CubeOfMask<'a> {
    /// Where the cube is.
    pub input: &'a Input,
    /// Its rows.
    pub rows: usize,
    /// Its columns.
    pub columns: usize,
    /// Where its pixels lie on Earth, if that is known.
    pub geo: Option<&'a Geo>,
}

impl MaskGroup {
    /// Whether it has a file for each class, which may be missing.
    pub(crate) fn is_by_class(&self) -> bool {
        self.patterns.iter().any(|(layer, _)| layer.as_deref() == Some(CLASS))
    }

    /// Whether the user gave ids or names for its classes. Boolean layers have no classes.
    fn names_classes(&self) -> bool {
        !self.classes.is_empty() || !self.class_names.is_empty()
    }
}

/// Used instead of a pattern: the quality layers of the product that a cube belongs to.
pub const OF_PRODUCT: &str = "product";

/// The role of a mask, in errors.
pub(super) const ROLE: &str = "the mask";

/// The chunk shape of masks of images of this shape, unless the user chose chunks for the image. It
/// always assumes uint16, because the grid must not depend on the values.
pub fn tile(shape: CubeShape) -> Tile {
    Tile::slab(CubeShape { bands: 1, ..shape }, 2, TARGET_CHUNK)
}

/// Collects the patterns of each mask. Masks are sorted by name; layers stay in the given order.
///
/// # Errors
/// If a name occurs twice without layers, two layers of a mask have the same name, or a mask has
/// too many layers.
pub fn groups(options: &[MaskOption]) -> Result<Vec<MaskGroup>> {
    let mut groups: Vec<MaskGroup> = Vec::new();
    for option in options {
        let pattern = (option.layer.clone(), option.pattern.clone());
        match groups.iter_mut().find(|group| group.name == option.name) {
            None => groups.push(MaskGroup {
                name: option.name.clone(),
                patterns: vec![pattern],
                classes: option.classes.clone(),
                class_names: option.class_names.clone(),
                colors: option.colors.clone(),
                resample: option.resample,
                all_touched: option.all_touched,
            }),
            Some(group) => {
                let clash = group
                    .patterns
                    .iter()
                    .any(|(layer, _)| layer.is_none() || *layer == option.layer);
                if clash || option.layer.is_none() {
                    return Err(Error::conflict(format!("two masks are named {}", option.name))
                        .with_remedy(
                            "give each a NAME=, or NAME:LAYER= for boolean layers of one mask",
                        ));
                }
                group.patterns.push(pattern);
            }
        }
    }
    groups.sort_by(|a, b| a.name.cmp(&b.name));
    let by_class = groups.iter().find(|group| group.is_by_class() && group.patterns.len() > 1);
    if let Some(group) = by_class {
        return Err(Error::conflict(format!(
            "mask {} has a pattern for all classes, and others",
            group.name
        ))
        .with_remedy("give masks of other files another name"));
    }
    match groups.iter().find(|group| group.patterns.len() > MAX_LAYERS) {
        Some(group) => {
            Err(Error::conflict(format!("mask {} has more than {MAX_LAYERS} layers", group.name))
                .with_remedy("spread them over several masks"))
        }
        None => Ok(groups),
    }
}

/// The error for a cube without a mask.
fn missing(group: &MaskGroup, pattern: &str, input: &Input) -> Error {
    let why = named_files::absence(pattern, input);
    Error::new(ErrorKind::Io, format!("its mask {:?} is missing: {why}", group.name))
        .at(&input.file)
        .with_remedy(remedy![
            "check the pattern of ",
            Opt::Mask,
            ", or name the class of cubes without one with ",
            Opt::MaskFill
        ])
}

/// The error for a mask whose file lacks its variable, with the option for cubes without a mask as
/// a remedy.
fn without_variable(error: Error) -> Error {
    let fill = remedy!["name the class of cubes without one with ", Opt::MaskFill];
    let remedy = match error.remedy() {
        Some(remedy) => remedy.clone().joined(", or ", fill),
        None => fill,
    };
    error.with_remedy(remedy)
}

/// An open mask of one cube.
pub struct MaskReader {
    layers: Vec<(Box<dyn Source>, Input)>,
    /// Names of the layers; empty if the mask holds class ids.
    pub layer_names: Vec<String>,
    /// The bit of each layer.
    bits: Vec<usize>,
    /// Names of the classes, if the file has them. If classes have new ids, the names are in the
    /// order of the new ids.
    pub class_names: Option<Vec<String>>,
    /// Colours of the classes, as far as they are known.
    pub class_colors: Vec<Option<Color>>,
    /// Ids of classes that its file knows only by name.
    pub(super) by_name: Option<IdsOfNames>,
    /// Colours of the classes that its file knows only by name.
    pub(super) named_colors: Vec<(String, Color)>,
    /// Names of the classes as in the file; empty if it names none.
    pub(super) file_classes: Vec<String>,
    /// New ids for those of the file.
    new_ids: Option<ClassTable>,
    /// Whether layers are known to be 0 or 1, so that values need not be checked.
    is_boolean: bool,
    /// Whether its bands all hold the same class ids, as a mask of the cube's shape does.
    is_repeated: bool,
    /// The class id of pixels that have no class in the file; if `None`, such pixels are an error.
    fill: Option<u16>,
}

impl MaskReader {
    /// Opens the mask `group` of a cube. Returns `None` if a file, or the variable in it, is
    /// missing and `optional` is set, or if the mask has a file for each class and the cube has
    /// none.
    ///
    /// # Errors
    /// If a file is missing or cannot be read, or has another shape.
    pub fn open(group: &MaskGroup, cube: CubeOfMask<'_>, optional: bool) -> Result<Option<Self>> {
        let CubeOfMask { input, rows, columns, .. } = cube;
        if let [(None, pattern)] = &group.patterns[..]
            && pattern == OF_PRODUCT
        {
            return Self::of_product(group, input, [rows, columns]).map(Some);
        }
        if let [(_, pattern)] = &group.patterns[..]
            && group.is_by_class()
        {
            return Self::by_class(group, class_files(pattern, input)?, cube);
        }
        let mut layers = Vec::new();
        for (_, pattern) in &group.patterns {
            let Some(file) = named_files::find(pattern, input, ROLE)? else {
                if optional {
                    return Ok(None);
                }
                return Err(missing(group, pattern, input));
            };
            let source = match open_layer(&file, group, cube) {
                Ok(source) => source,
                // Files may differ in the variables that they hold.
                Err(error) if optional && error.kind() == ErrorKind::NotFound => return Ok(None),
                Err(error) if error.kind() == ErrorKind::NotFound => {
                    return Err(without_variable(error));
                }
                Err(error) => return Err(error),
            };
            layers.push((source, file));
        }
        let reader = Self::named(group, layers)?;
        Ok(Some(reader))
    }

    /// Opens the files of the classes of a cube.
    fn by_class(
        group: &MaskGroup,
        files: Vec<(String, Input)>,
        cube: CubeOfMask<'_>,
    ) -> Result<Option<Self>> {
        let Some((_, first)) = files.first() else { return Ok(None) };
        if group.names_classes() {
            return Err(boolean_layers(group).at(&first.file));
        }
        let (mut layers, mut layer_names) = (Vec::new(), Vec::new());
        for (class, file) in files {
            let source = open_layer(&file, group, cube)?;
            let bands = source.info().shape.bands;
            if bands != 1 {
                let what = format!("the file of the class {class:?} has {bands} bands");
                return Err(Error::unsupported(what)
                    .at(file.file)
                    .with_remedy("give one band, which is 0 where the class is not"));
            }
            layers.push((source, file));
            layer_names.push(class);
        }
        if layers.len() > MAX_LAYERS {
            return Err(too_many_layers(&group.name, &layer_names).at(&layers[0].1.file));
        }
        Ok(Some(Self {
            bits: (0..layers.len()).collect(),
            layers,
            layer_names,
            class_names: None,
            class_colors: Vec::new(),
            by_name: None,
            named_colors: Vec::new(),
            file_classes: Vec::new(),
            new_ids: None,
            is_boolean: false,
            is_repeated: false,
            fill: None,
        }))
    }

    /// Opens the quality layers of the product that the cube belongs to.
    fn of_product(group: &MaskGroup, input: &Input, image: [usize; 2]) -> Result<Self> {
        let (mut layers, mut layer_names) = (Vec::new(), Vec::new());
        let found = hsipack_source::quality(&input.file, input.variable.as_deref(), image)?;
        for QualityLayers { names, file, source } in found {
            layers.push((source, Input::of(&file)));
            layer_names.extend(names);
        }
        let wrong = match layer_names.len() {
            0 => {
                "no quality layers are known for this cube: its product has none, or their files are missing"
            }
            count if count > MAX_LAYERS => "the product has too many quality layers",
            _ if group.names_classes() => "quality layers have no class ids",
            _ => {
                return Ok(Self {
                    bits: (0..layer_names.len()).collect(),
                    layers,
                    layer_names,
                    class_names: None,
                    class_colors: Vec::new(),
                    by_name: None,
                    named_colors: Vec::new(),
                    file_classes: Vec::new(),
                    new_ids: None,
                    is_boolean: true,
                    is_repeated: false,
                    fill: None,
                });
            }
        };
        Err(Error::unsupported(wrong).at(&input.file).with_remedy(
            "leave out this mask, or give the file of each layer; the page 'Products of sensors' of the documentation lists the products that have quality layers",
        ))
    }

    /// Whether it has only features on a map, or a grid of its own, and does not touch the cube.
    pub fn misses_cube(&self) -> bool {
        self.layers.iter().all(|(source, _)| source.info().misses_cube)
    }

    /// Notes for the user about its place on Earth, and what it does not show. `name` is its name.
    pub(super) fn notes(&self, name: &str, cube: CubeOfMask<'_>) -> Vec<String> {
        let missed = self.misses_cube().then(|| {
            format!("no part of mask {name} touches it; check its coordinates and reference system")
        });
        let image = [cube.rows, cube.columns];
        let alignment = self.layers.iter().find_map(|(source, _)| {
            let info = source.info();
            let size = [info.shape.rows, info.shape.columns];
            Alignment::of(cube.geo?, image, info.geo.as_ref()?, size).note(&format!("mask {name}"))
        });
        let boxes: usize = self.layers.iter().map(|(source, _)| source.info().undrawn_boxes).sum();
        let boxes = (boxes > 0).then(|| {
            format!(
                "annotations of mask {name} that are only boxes, and not drawn: {boxes}; {} reads them",
                Opt::Boxes
            )
        });
        [missed, alignment, boxes].into_iter().flatten().collect()
    }

    fn named(group: &MaskGroup, layers: Vec<(Box<dyn Source>, Input)>) -> Result<Self> {
        let info = layers[0].0.info();
        let class_names = info.class_names.clone();
        let is_one = layers.len() == 1 && group.patterns[0].0.is_none();
        let is_repeated = is_one && repeats_ids(&*layers[0].0)?;
        let layer_names: Vec<String> = if layers.len() > 1 || group.patterns[0].0.is_some() {
            group.patterns.iter().map(|(layer, _)| layer.clone().unwrap_or_default()).collect()
        } else if is_repeated {
            Vec::new()
        } else if info.shape.bands > 1 {
            let numbered = || (0..info.shape.bands).map(numbered_layer).collect();
            info.band_names.clone().unwrap_or_else(numbered)
        } else {
            Vec::new()
        };
        let several =
            layers.len() > 1 && layers.iter().any(|(source, _)| source.info().shape.bands != 1);
        if several || layer_names.len() > MAX_LAYERS {
            return Err(Error::unsupported(format!(
                "mask {} has {} layers; a mask has one, or up to {MAX_LAYERS} boolean layers",
                group.name, info.shape.bands
            ))
            .at(layers[0].1.file.clone())
            .with_remedy("give one band of class ids, rows × columns"));
        }
        let file = &layers[0].1.file;
        if !layer_names.is_empty() && group.names_classes() {
            return Err(boolean_layers(group).at(file));
        }
        let file_classes = class_names.clone().unwrap_or_default();
        let by_name =
            info.has_named_classes.then(|| IdsOfNames::new(&group.classes, &file_classes));
        let new_ids = match &by_name {
            Some(_) => None,
            None => ClassTable::new(&group.classes, class_names.as_deref())
                .map_err(|error| error.at(file))?,
        };
        let class_names = match (&by_name, &new_ids) {
            (Some(ids), _) => Some(ids.fixed_names()),
            (None, Some(table)) => class_names.map(|names| table.names(&group.classes, &names)),
            (None, None) => class_names,
        };
        let mut named_colors = Vec::new();
        let class_colors = match (&by_name, &new_ids) {
            (Some(_), _) => {
                let both = file_classes.iter().zip(&info.class_colors);
                named_colors
                    .extend(both.filter_map(|(name, color)| Some((name.clone(), (*color)?))));
                Vec::new()
            }
            (None, Some(table)) => table.colors(&info.class_colors),
            (None, None) => info.class_colors.clone(),
        };
        let class_names = classes::named(class_names, &group.class_names);
        Ok(Self {
            layers,
            bits: (0..layer_names.len()).collect(),
            layer_names,
            class_names,
            class_colors,
            by_name,
            named_colors,
            file_classes,
            new_ids,
            is_boolean: false,
            is_repeated,
            fill: None,
        })
    }

    /// Gives pixels without a class, which are NaN, negative or the file's nodata value, the class
    /// id `fill` if there is one. In boolean layers they are 0.
    pub fn filling(self, fill: Option<u16>) -> Self {
        Self { fill, ..self }
    }

    /// Takes a mask of as many bands as its cube has for one of class ids, unless its file names
    /// its layers. Then bands that differ are an error: they may say something about each value,
    /// such as whether it is valid.
    pub(super) fn of_cube_with(mut self, bands: usize) -> Self {
        let info = self.layers[0].0.info();
        let has_cube_shape =
            self.layers.len() == 1 && !self.is_boolean && info.shape.bands == bands;
        if has_cube_shape && bands > FEW_BANDS && info.band_names.is_none() {
            self.is_repeated = true;
            self.layer_names.clear();
            self.bits.clear();
        }
        self
    }

    /// Puts its layers into the bits of an array that has `layers`, the layers of all cubes, and
    /// gives classes that its file knows only by name their places in `class_names`.
    pub fn among(mut self, layers: &[String], class_names: Option<&[String]>) -> Self {
        let all: Vec<_> = counted(layers).collect();
        let bit = |(index, layer)| all.iter().position(|other| *other == layer).unwrap_or(index);
        let bits = counted(&self.layer_names).enumerate().map(bit).collect();
        if let Some(ids) = &mut self.by_name {
            ids.place(class_names.unwrap_or_default());
        }
        Self { bits, ..self }
    }

    /// Its first file.
    pub(super) fn file(&self) -> &Path {
        &self.layers[0].1.file
    }

    /// Fingerprint of its files.
    ///
    /// # Errors
    /// If a file cannot be read.
    pub(super) fn fingerprint(&self) -> Result<String> {
        Ok(fingerprint(&self.files())?.1)
    }

    /// Whether its files are those that were planned, with this fingerprint.
    ///
    /// # Errors
    /// If a file cannot be read.
    pub(super) fn is_as_planned(&self, planned: &str) -> Result<bool> {
        fingerprint::is_still(&self.files(), planned)
    }

    fn files(&self) -> Vec<PathBuf> {
        let files = self.layers.iter().flat_map(|(source, _)| &source.info().files);
        files.cloned().collect()
    }

    /// Reads rows `rows` into `out`: class ids, or one bit for each layer (the first layer is bit
    /// 0).
    ///
    /// # Errors
    /// If a value is not a class id that fits uint16, or a layer is not boolean.
    pub fn read_rows(
        &self,
        rows: std::ops::Range<usize>,
        buffer: &mut RowBuffer,
        out: &mut Vec<MaskValue>,
    ) -> Result<()> {
        out.clear();
        let mut layer = 0;
        let mut without_id = Vec::new();
        for (source, file) in &self.layers {
            source.read_rows(rows.clone(), buffer)?;
            let info = source.info();
            let boolean = !self.layer_names.is_empty();
            let without_class = self.without_class(info.ignore_value);
            let bands = info.shape.bands;
            let mut ids = ClassIds { buffer, at: 0 };
            if out.is_empty() {
                out.resize(buffer.len() / bands, 0);
            }
            for (pixel, id) in out.iter_mut().enumerate() {
                for band in 0..bands {
                    let value = match ids.next() {
                        Ok(value) if without_class.is_some_and(|(nodata, _)| nodata == value) => {
                            without_id.extend(without_class.map(|(_, id)| (pixel, id.into())));
                            0
                        }
                        Ok(value) => MaskValue::from(value),
                        Err(value) => {
                            let has_none = has_no_class(value, info.ignore_value);
                            let Some(id) = self.id_of(value, has_none) else {
                                let columns = info.shape.columns;
                                let (row, column) = (rows.start + pixel / columns, pixel % columns);
                                return Err(match source.lies_outside(row, column) {
                                    true => outside((row, column), &file.file),
                                    false => refuse_id(value, has_none, (row, column), &file.file),
                                });
                            };
                            without_id.push((pixel, id.into()));
                            0
                        }
                    };
                    if self.is_repeated {
                        if band > 0 && *id != value {
                            let columns = info.shape.columns;
                            let position = (rows.start + pixel / columns, pixel % columns);
                            return Err(bands_differ(bands, position, &file.file));
                        }
                        *id = value;
                    } else if boolean {
                        *id |= MaskValue::from(value != 0) << self.bits[layer + band];
                    } else {
                        *id = value;
                    }
                }
            }
            layer += bands;
        }
        if let Some(ids) = &self.by_name {
            out.iter_mut().try_for_each(|id| {
                // Values of class ids, which are not layers, fit u16.
                *id = ids.of(*id as u16).map_err(|error| error.at(self.file()))?.into();
                Ok(())
            })?;
        }
        if let Some(table) = &self.new_ids {
            out.iter_mut().for_each(|id| *id = table.of(*id as u16).into());
        }
        if self.layer_names.is_empty() {
            without_id.into_iter().for_each(|(pixel, id)| out[pixel] = id);
        }
        Ok(())
    }

    /// The class id that marks pixels without a class in a file, and the id that fills them. Id 0
    /// says itself that there is none, and an id to which the user gives a new one is a class.
    fn without_class(&self, nodata: Option<f64>) -> Option<(u16, u16)> {
        let ids = 1.0..=f64::from(u16::MAX);
        let nodata = nodata.filter(|nodata| ids.contains(nodata) && nodata.fract() == 0.0)? as u16;
        let is_class = self.new_ids.as_ref().is_some_and(|table| table.lists(nodata));
        self.fill.filter(|_| !self.is_boolean && !is_class).map(|fill| (nodata, fill))
    }

    /// The packed id of a value that is not a class id, if it has one.
    fn id_of(&self, value: f64, has_no_class: bool) -> Option<u16> {
        let listed = self.new_ids.as_ref().and_then(|table| table.of_value(value));
        let others = || self.new_ids.as_ref().and_then(ClassTable::of_others);
        listed.or_else(|| self.fill.or_else(others).filter(|_| has_no_class))
    }

    /// Reads the whole mask and returns its greatest value. Checks that layers are boolean.
    ///
    /// # Errors
    /// The same as those of [`read_rows`](Self::read_rows), and if a file with several bands is not
    /// boolean.
    pub fn scan(&self) -> Result<MaskValue> {
        if self.is_boolean {
            // The quality layers of a product are known to be boolean, so their arrays need not be read.
            return Ok(mask::all_layers(self.layer_names.len()));
        }
        let (source, file) = &self.layers[0];
        let shape = source.info().shape;
        let (mut buffer, mut out) = (RowBuffer::new(), Vec::new());
        let step = rows_at_once(&**source);
        // Programs write true as 1 or 255. Without names of its layers, a mask of bytes in three bands may be a picture.
        let may_be_bytes = source.info().band_names.is_some() || shape.bands > 4;
        let mut greatest = 0;
        let mut on = (!may_be_bytes).then_some(1);
        for start in (0..shape.rows).step_by(step) {
            let rows = start..shape.rows.min(start + step);
            self.read_rows(rows, &mut buffer, &mut out)?;
            greatest = out.iter().copied().fold(greatest, MaskValue::max);
            let has_layers = self.layers.len() == 1 && shape.bands > 1 && !self.is_repeated;
            if has_layers && !is_boolean(&buffer, &mut on) {
                let is_picture = [3, 4].contains(&shape.bands) && source.info().dtype == DType::U8;
                let error = if is_picture {
                    Error::unsupported(format!(
                        "the mask has {} bands, like an RGB picture of colours; colours are not class ids",
                        shape.bands
                    ))
                    .with_remedy(remedy![
                        "say which color is which class with ",
                        Opt::MaskColors,
                        ", or save the class ids as one band, for example a grayscale or palette PNG"
                    ])
                } else {
                    Error::unsupported(format!(
                        "the mask has {} bands that are not boolean",
                        shape.bands
                    ))
                    .with_remedy(
                        "give one band of class ids, rows × columns, not one-hot probabilities",
                    )
                };
                return Err(error.at(file.file.clone()));
            }
        }
        Ok(greatest)
    }
}

/// The error for a mask of too many bands, which differ at a pixel.
fn bands_differ(bands: usize, (row, column): (usize, usize), file: &Path) -> Error {
    Error::unsupported(format!(
        "the mask has {bands} bands that differ in row {row}, column {column}; a mask has one band, or up to {MAX_LAYERS} boolean layers"
    ))
    .at(file)
    .with_remedy("give one band of class ids, rows × columns")
}

/// The most layers that an error lists.
const LISTED: usize = 5;
/// Masks with more bands than this may repeat class ids in all bands, as masks of the shape of
/// their cubes do.
const FEW_BANDS: usize = 16;

/// Whether a mask repeats its class ids in many bands. Those of boolean layers differ at some
/// pixel, unless all are 0.
fn repeats_ids(source: &dyn Source) -> Result<bool> {
    let shape = source.info().shape;
    if shape.bands <= FEW_BANDS || shape.bands > MAX_LAYERS {
        return Ok(shape.bands > MAX_LAYERS);
    }
    let mut buffer = RowBuffer::new();
    let step = rows_at_once(source);
    for start in (0..shape.rows).step_by(step) {
        source.read_rows(start..shape.rows.min(start + step), &mut buffer)?;
        let size = buffer.dtype().size();
        let mut pixels = buffer.bytes().chunks_exact(shape.bands * size);
        if !pixels.all(|pixel| pixel.chunks_exact(size).all(|value| *value == pixel[..size])) {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Number of rows of a mask to read at once.
fn rows_at_once(source: &dyn Source) -> usize {
    let shape = source.info().shape;
    let rows = source.preferred_rows(16 << 20).max((1 << 20) / shape.row_values().max(1));
    rows.clamp(1, shape.rows)
}

/// Whether all values are 0 or `on`, which is 1 or 255 and is found out if it is not known yet.
fn is_boolean(buffer: &RowBuffer, on: &mut Option<u16>) -> bool {
    let mut ids = ClassIds { buffer, at: 0 };
    let mut is_on = |value: u16| matches!(value, 1 | 255) && *on.get_or_insert(value) == value;
    (0..buffer.len()).all(|_| ids.next().is_ok_and(|value| value == 0 || is_on(value)))
}

/// The name of a layer that its file does not name.
pub(super) fn numbered_layer(number: usize) -> String {
    format!("layer{number}")
}

/// Whether a value that is not a class id marks pixels without a class.
fn has_no_class(value: f64, nodata: Option<f64>) -> bool {
    value.is_nan() || value < 0.0 && value.fract() == 0.0 || Some(value) == nodata
}

/// The error for a pixel of the cube that is outside the picture of its mask.
fn outside((row, column): (usize, usize), file: &Path) -> Error {
    Error::conflict(format!(
        "row {row}, column {column} of the cube lies outside the mask's picture, by the coordinates in both files"
    ))
    .at(file)
    .with_remedy(remedy![
        "give such pixels a class with ",
        Opt::MaskFill.to("ID"),
        ", or correct the coordinates or the reference system of one of the files"
    ])
}

fn refuse_id(value: f64, has_no_class: bool, position: (usize, usize), file: &Path) -> Error {
    let (row, column) = position;
    let error = Error::new(
        ErrorKind::Overflow,
        format!("row {row}, column {column} of the mask is {value}, which is not a class id"),
    )
    .at(file);
    match has_no_class {
        true => error.with_remedy(remedy![
            "class ids are whole numbers from 0 to 65535; if the value marks pixels without a class (nodata), give them one with ",
            Opt::MaskFill.to("ID"),
            ", or give this value a class id with ",
            Opt::RemapClasses
        ]),
        false => error.with_remedy("class ids are whole numbers from 0 to 65535"),
    }
}

/// Opens a file of a mask.
fn open_layer(file: &Input, group: &MaskGroup, cube: CubeOfMask<'_>) -> Result<Box<dyn Source>> {
    let (image, input) = ([cube.rows, cube.columns], cube.input);
    let samples = input.number_of_samples()?;
    let source = labels::open(
        &file.file,
        &LabelOptions {
            variable: file.variable.clone(),
            image,
            cube: &names_of(input)?,
            sample: input.sample(),
            samples,
            geo: cube.geo,
            colors: &group.colors,
            resampling: group.resample,
            all_touched: group.all_touched,
        },
    )?;
    let shape = source.info().shape;
    if let Some(samples) = samples.filter(|_| file.file == input.file && shape.bands > 1) {
        let count = shape.bands;
        return Err(Error::conflict(format!("there are {samples} samples, but {count} masks"))
            .at(&file.file)
            .with_remedy("an array of masks has one for each sample"));
    }
    let size = [shape.rows, shape.columns];
    if size != image {
        return Err(other_size([size, image], &input.text()).at(&file.file));
    }
    Ok(source)
}

/// The names by which a file of labels for several cubes may call a cube.
///
/// # Errors
/// Never for inputs whose fields are complete.
pub(super) fn names_of(input: &Input) -> Result<CubeNames> {
    let field = |field: &str| Ok::<_, Error>(Pattern(field).of(input)?.unwrap_or_default());
    Ok(CubeNames {
        name: field("{name}")?,
        relative: field("{relative}")?,
        path: mirror::with_urls(&field("{path}")?),
    })
}

/// Layers with the number of layers of the same name before them: files may give several layers one
/// name.
pub(super) fn counted(layers: &[String]) -> impl Iterator<Item = (&str, usize)> {
    layers.iter().enumerate().map(|(index, layer)| {
        (layer.as_str(), layers[..index].iter().filter(|before| *before == layer).count())
    })
}

/// The error for new ids or names of the classes of a mask that has none.
fn boolean_layers(group: &MaskGroup) -> Error {
    Error::conflict(format!("mask {} holds boolean layers, which have no class ids", group.name))
        .with_remedy("give new ids and names for the classes of other masks")
}

/// The error for a mask with more layers than bits.
pub(super) fn too_many_layers(group: &str, layers: &[String]) -> Error {
    Error::unsupported(format!(
        "mask {group} has {} layers, more than {MAX_LAYERS}: {}, …",
        layers.len(),
        layers[..LISTED.min(layers.len())].join(", ")
    ))
    .with_remedy("give some of the layers in a mask of another name")
}

/// The error for a mask of another size than its cube: rows and columns of both.
fn other_size([mask, cube]: [[usize; 2]; 2], name: &str) -> Error {
    let [rows, columns] = cube;
    // How many times the sides of `large` are those of `small`, if both are so by the same factor.
    let factor = |large: [usize; 2], small: [usize; 2]| {
        let is_multiple = large[0].is_multiple_of(small[0]) && large[1].is_multiple_of(small[1]);
        let factors = (large[0] / small[0], large[1] / small[1]);
        (is_multiple && factors.0 == factors.1).then_some(factors.0)
    };
    let resample = remedy![
        "pass ",
        Opt::MaskResample.to("nearest"),
        " or ",
        Opt::MaskResample.to("majority"),
        " to bring it onto the grid of the cube"
    ];
    let (why, remedy) = if mask == [columns, rows] {
        ("; its sides are exchanged".to_owned(), "transpose the mask".into())
    } else if let Some(factor) = factor(mask, cube) {
        (format!(": it is larger by a factor of {factor}"), resample)
    } else if let Some(factor) = factor(cube, mask) {
        (format!(": it is smaller by a factor of {factor}"), resample)
    } else {
        let remedy = "give the mask of this cube, rows × columns; if both are georeferenced, pass ";
        (String::new(), remedy![remedy, Opt::MaskResample.to("nearest")])
    };
    Error::conflict(format!(
        "the mask has {}x{} pixels, but its cube {name} has {rows}x{columns}{why}",
        mask[0], mask[1]
    ))
    .with_remedy(remedy)
}

/// The values of a buffer as class ids.
struct ClassIds<'a> {
    buffer: &'a RowBuffer,
    at: usize,
}

impl ClassIds<'_> {
    /// The next value as a class id, or the number if it is not a class id.
    fn next(&mut self) -> Result<u16, f64> {
        let at = self.at;
        self.at += 1;
        let value = match self.buffer.dtype() {
            DType::Bool | DType::U8 => return Ok(self.buffer.bytes()[at].into()),
            DType::U16 => return Ok(self.buffer.as_slice::<u16>()[at]),
            _ => self.buffer.number(at),
        };
        if value.fract() == 0.0 && (0.0..=65535.0).contains(&value) {
            Ok(value as u16)
        } else {
            Err(value)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn option(name: &str, layer: Option<&str>) -> MaskOption {
        MaskOption { layer: layer.map(Into::into), ..MaskOption::new(name, "{dir}/{stem}.png") }
    }

    #[test]
    fn layers_of_the_same_name_are_told_apart() {
        let layers = ["a", "b", "a"].map(str::to_owned);
        assert_eq!(counted(&layers).collect::<Vec<_>>(), [("a", 0), ("b", 0), ("a", 1)]);
    }

    #[test]
    fn layers_of_one_name_make_one_mask() {
        let groups =
            groups(&[option("a", Some("x")), option("b", None), option("a", Some("y"))]).unwrap();
        assert_eq!(groups.len(), 2);
        assert_eq!(groups[0].patterns.len(), 2);
    }

    #[test]
    fn errors_about_sizes_say_how_they_differ() {
        for (mask, what) in [
            ([24, 16], "larger by a factor of 2"),
            ([6, 4], "smaller by a factor of 2"),
            ([8, 12], "sides are exchanged"),
            ([24, 8], "its cube a has 12x8"),
            ([13, 8], "its cube a has 12x8"),
        ] {
            let error = other_size([mask, [12, 8]], "a");
            assert!(error.what().contains(what) && error.remedy().is_some(), "{error}");
        }
    }

    #[test]
    fn a_name_twice_is_refused() {
        assert!(groups(&[option("a", None), option("a", None)]).is_err());
        assert!(groups(&[option("a", Some("x")), option("a", Some("x"))]).is_err());
        assert!(groups(&[option("a", Some("x")), option("a", None)]).is_err());
    }
}
