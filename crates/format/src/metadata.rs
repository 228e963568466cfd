//! Typed access to the metadata of a dataset: hsipack's own attributes, and the CF attributes that
//! it reads.
//!
//! All other code reads attributes through this module, not from the JSON. Attributes written by
//! another library may have any type. An attribute of the wrong type is ignored, unless it would
//! change what values mean ([`ArrayMeta::check_attributes`]).

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use crate::statistics::BandStatistics;
use crate::zarr::{self, ArrayMeta, OWN};
use crate::{Color, CubeShape, DType, Error, Grid, Ratio, Result, Tile, codec, colors};

/// Version of the layout that this crate writes; also the newest version that it reads.
pub const LAYOUT: u64 = 1;
/// The image array of a stack.
pub const IMAGE: &str = "image";
/// The coordinate array of band centres in nm.
pub const WAVELENGTH: &str = "wavelength";
/// The coordinate array of full widths at half maximum in nm.
pub const FWHM: &str = "fwhm";
/// The key for the number of mantissa bits that values keep; the other bits are zero.
pub const KEEP_BITS: &str = "keep_bits";
/// The key for the statistics of each split's samples, by the split's name.
pub const SPLIT_STATS: &str = "split_stats";
/// The file that lists the samples.
pub const SAMPLES: &str = "samples.jsonl";
/// A key in an entry of `history`: the fingerprint that the dataset had before.
pub const CONTINUES: &str = "continues";
/// The key that says what an array is to the samples, if it is neither the image nor a mask.
const ROLE: &str = "role";
const RATIO: &str = "ratio";
/// CF's attribute for the unit of physical values.
pub const UNITS: &str = "units";
/// CF's attribute for the integer that marks missing values.
pub const FILL_VALUE: &str = "_FillValue";
/// The key of per-band statistics.
pub const STATS: &str = "stats";
const GOOD_BANDS: &str = "good_bands";
const BAND_NAMES: &str = "band_names";
const CHANNEL_NAMES: &str = "channel_names";
const LAYERS: &str = "layers";
const CLASS_NAMES: &str = "class_names";
const CLASS_COLORS: &str = "class_colors";
const PROVENANCE: &str = "made";
/// A key in an entry of `history`: the names of the columns that changed.
const COLUMNS: &str = "columns";
/// A key in an entry of `history`: the names of the masks that were added.
const MASKS: &str = "masks";
/// A key in an entry of `history`: the names of the companions that were added.
const COMPANIONS: &str = "companions";
/// The key in recipes for the companions that were added after packing.
pub const ADDED_COMPANIONS: &str = "added_companions";

/// How stored values are converted to physical values.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Scaling {
    /// Stored values are multiplied by this (`scale_factor`).
    pub factor: f64,
    /// This is added afterwards (`add_offset`). Packed floats have none.
    pub offset: f64,
    /// The stored integer that marks missing values (`_FillValue`). Floats have NaN instead.
    pub missing: Option<f64>,
}

impl Scaling {
    /// Stored values are the physical values.
    pub const NONE: Self = Self { factor: 1.0, offset: 0.0, missing: None };

    /// The physical value of a stored value; NaN if it marks a missing value.
    pub fn physical(self, stored: f64) -> f64 {
        if self.missing == Some(stored) {
            return f64::NAN;
        }
        let scaled = stored * self.factor;
        // Adding 0 would turn -0 into +0.
        if self.offset == 0.0 { scaled } else { scaled + self.offset }
    }
}

/// Notes of an image array about its bands.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct BandNotes {
    /// Mantissa bits that values were rounded to; `None` if all bits are used.
    pub keep_bits: Option<u8>,
    /// The bad-band list, if the sources had one: whether each band is good.
    pub good_bands: Option<Vec<bool>>,
    /// The names of the bands, if the sources had them.
    pub band_names: Option<Vec<String>>,
}

impl BandNotes {
    /// Writes these notes to the attributes of an image array.
    pub fn write(&self, attributes: &mut Map<String, Value>) {
        attributes.extend(self.keep_bits.map(|bits| (KEEP_BITS.to_owned(), json!(bits))));
        attributes
            .extend(self.good_bands.as_ref().map(|good| (GOOD_BANDS.to_owned(), json!(good))));
        attributes
            .extend(self.band_names.as_ref().map(|names| (BAND_NAMES.to_owned(), json!(names))));
    }
}

/// Meaning of the values of a mask array.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MaskMeaning {
    /// Names of boolean layers, bit 0 first; empty if the values are class ids.
    pub layers: Vec<String>,
    /// Names of the classes, if known.
    pub class_names: Option<Vec<String>>,
    /// Colours of the classes, as far as they are known: red, green and blue of class 0, 1, ….
    pub class_colors: Vec<Option<Color>>,
    /// How the mask was made, if it was added to the packed dataset. Such a mask has no source
    /// files.
    pub origin: Option<MaskOrigin>,
}

/// How a mask that was added to a packed dataset was made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MaskOrigin {
    /// The command, as typed.
    pub command: String,
    /// Its options.
    pub recipe: Value,
}

impl MaskMeaning {
    /// Writes this meaning to the attributes of a mask array.
    pub fn write(&self, attributes: &mut Map<String, Value>) {
        if let Some(MaskOrigin { command, recipe }) = &self.origin {
            attributes
                .insert(PROVENANCE.to_owned(), json!({ "command": command, "recipe": recipe }));
        }
        if !self.layers.is_empty() {
            attributes.insert(LAYERS.to_owned(), json!(self.layers));
        } else if let Some(classes) = &self.class_names {
            attributes.insert(CLASS_NAMES.to_owned(), json!(classes));
        }
        if self.class_colors.iter().any(Option::is_some) {
            let colors = self.class_colors.iter().map(|color| color.map(colors::hex));
            attributes.insert(CLASS_COLORS.to_owned(), json!(colors.collect::<Vec<_>>()));
        }
    }
}

/// The role of a companion. A *companion* is an array of floats beside the image of a cube.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// A network learns its values. It has the pixels of the image, and one or several channels.
    Target,
    /// A further image of the same ground: of another sensor or time, perhaps of another
    /// resolution.
    Image,
}

impl Role {
    /// Its name in attributes and errors.
    pub fn name(self) -> &'static str {
        match self {
            Self::Target => "target",
            Self::Image => "image",
        }
    }

    /// The role in errors: a further image is not the image of the cube.
    pub fn words(self) -> &'static str {
        match self {
            Self::Target => "target",
            Self::Image => "further image",
        }
    }

    /// The name of its bands in errors.
    pub fn bands(self) -> &'static str {
        match self {
            Self::Target => "channel",
            Self::Image => "band",
        }
    }

    /// The key of the names of its bands.
    fn names_key(self) -> &'static str {
        match self {
            Self::Target => CHANNEL_NAMES,
            Self::Image => BAND_NAMES,
        }
    }
}

/// The attributes of a companion. Per-band attributes are `None` if the sources had none.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CompanionMeaning {
    /// Its role.
    pub role: Role,
    /// Its resolution.
    pub ratio: Ratio,
    /// The names of its bands or channels.
    pub band_names: Option<Vec<String>>,
    /// The unit of its values, if the sources had it.
    pub unit: Option<String>,
    /// Band centres in nm.
    pub wavelength: Option<Vec<f64>>,
    /// Full widths at half maximum in nm.
    pub fwhm: Option<Vec<f64>>,
}

impl CompanionMeaning {
    /// Writes this meaning to the attributes of a companion.
    pub fn write(&self, attributes: &mut Map<String, Value>) {
        attributes.extend(self.unit.as_ref().map(|unit| (UNITS.to_owned(), json!(unit))));
        let mut ours = Map::from_iter([(ROLE.to_owned(), json!(self.role.name()))]);
        if !self.ratio.is_same() {
            ours.insert(RATIO.to_owned(), json!(self.ratio));
        }
        let names = self.band_names.as_ref();
        ours.extend(names.map(|names| (self.role.names_key().to_owned(), json!(names))));
        for (key, numbers) in [(WAVELENGTH, &self.wavelength), (FWHM, &self.fwhm)] {
            ours.extend(numbers.as_ref().map(|numbers| (key.to_owned(), json!(numbers))));
        }
        attributes.insert(OWN.to_owned(), Value::Object(ours));
    }
}

impl ArrayMeta {
    /// The role of a companion; `None` for images of cubes and for masks.
    pub fn role(&self) -> Option<Role> {
        let role = self.own()?.get(ROLE)?;
        [Role::Target, Role::Image].into_iter().find(|candidate| role == candidate.name())
    }

    /// The resolution of a companion. Other arrays have the pixels of the image.
    ///
    /// # Errors
    /// If it is not two whole numbers, one of them 1.
    pub fn ratio(&self) -> Result<Ratio> {
        match self.own().and_then(|attributes| attributes.get(RATIO)) {
            None => Ok(Ratio::EQUAL),
            Some(ratio) => serde_json::from_value(ratio.clone())
                .map_err(|_| Error::malformed(format!("the ratio of the array is {ratio}"))),
        }
    }

    /// The meaning of a companion's values; `None` for other arrays.
    pub fn companion_meaning(&self) -> Option<CompanionMeaning> {
        let role = self.role()?;
        let per_band =
            |key| self.list(key, Value::as_f64).filter(|list| list.len() == self.bands());
        Some(CompanionMeaning {
            role,
            ratio: self.ratio().ok()?,
            band_names: self.list(role.names_key(), text),
            unit: self.unit(),
            wavelength: per_band(WAVELENGTH),
            fwhm: per_band(FWHM),
        })
    }

    /// The unit of physical values (CF's `units`), if it is known and all of them have it.
    pub fn unit(&self) -> Option<String> {
        self.attributes.get(UNITS).and_then(text)
    }

    /// hsipack's own attributes.
    pub fn own(&self) -> Option<&Map<String, Value>> {
        self.attributes.get(OWN)?.as_object()
    }

    /// How stored values are converted to physical values: CF's `scale_factor`, `add_offset` and,
    /// for integers, `_FillValue`.
    pub fn scaling(&self) -> Scaling {
        let number = |key: &str| self.attributes.get(key).and_then(Value::as_f64);
        Scaling {
            factor: number("scale_factor").unwrap_or(Scaling::NONE.factor),
            offset: number("add_offset").unwrap_or(Scaling::NONE.offset),
            missing: self.missing().map(|missing| missing as f64),
        }
    }

    /// The stored integer that marks missing values (`_FillValue`); `None` for floats, and if no
    /// value is missing.
    pub fn missing(&self) -> Option<i64> {
        let (least, greatest) = self.dtype.integers()?;
        let missing = self.attributes.get(FILL_VALUE)?.as_i64()?;
        (least..=greatest).contains(&missing).then_some(missing)
    }

    /// The notes of an image array about its bands.
    pub fn band_notes(&self) -> BandNotes {
        let bands = self.bands();
        BandNotes {
            keep_bits: self
                .own()
                .and_then(|attributes| attributes.get(KEEP_BITS)?.as_u64())
                .and_then(|bits| u8::try_from(bits).ok()),
            good_bands: self.list(GOOD_BANDS, Value::as_bool).filter(|list| list.len() == bands),
            band_names: self.list(BAND_NAMES, text).filter(|list| list.len() == bands),
        }
    }

    /// The meaning of the values of a mask array.
    pub fn mask_meaning(&self) -> MaskMeaning {
        MaskMeaning {
            layers: self.list(LAYERS, text).unwrap_or_default(),
            class_names: self.list(CLASS_NAMES, text),
            class_colors: self
                .list(CLASS_COLORS, |color| Some(color.as_str().and_then(colors::parse_hex)))
                .unwrap_or_default(),
            origin: self.origin(),
        }
    }

    fn origin(&self) -> Option<MaskOrigin> {
        let origin = self.own()?.get(PROVENANCE)?.as_object()?;
        let command = origin.get("command").and_then(text).unwrap_or_default();
        Some(MaskOrigin { command, recipe: origin.get("recipe").cloned().unwrap_or_default() })
    }

    /// Whether per-band statistics are recorded.
    pub fn has_statistics(&self) -> bool {
        self.own().is_some_and(|attributes| attributes.contains_key(STATS))
    }

    /// Per-band statistics of an image array's stored values.
    ///
    /// # Errors
    /// If they are not recorded, or not for every band.
    pub fn statistics(&self) -> Result<BandStatistics> {
        BandStatistics::parse(self.own().and_then(|attributes| attributes.get(STATS)), self.bands())
    }

    /// The same statistics for the samples of each split, with the name of the split.
    ///
    /// # Errors
    /// If one of them does not cover every band.
    pub fn split_statistics(&self) -> Result<Vec<(String, BandStatistics)>> {
        let splits = self
            .own()
            .and_then(|attributes| attributes.get(SPLIT_STATS))
            .and_then(Value::as_object);
        let read = |(split, stats): (&String, &Value)| {
            Ok((split.clone(), BandStatistics::parse(Some(stats), self.bands())?))
        };
        splits.into_iter().flatten().map(read).collect()
    }

    fn bands(&self) -> usize {
        self.shape.get(3).map_or(1, |bands| *bands as usize)
    }

    fn list<T>(&self, key: &str, read: impl Fn(&Value) -> Option<T>) -> Option<Vec<T>> {
        self.own()?.get(key)?.as_array()?.iter().map(read).collect()
    }

    /// Refuses attributes that give values an impossible meaning.
    ///
    /// # Errors
    /// If an attribute is invalid; the error names it and says what is wrong.
    pub fn check_attributes(&self) -> Result<()> {
        let number = |key: &str| match self.attributes.get(key) {
            None => Ok(None),
            Some(value) => {
                value.as_f64().filter(|value| value.is_finite()).map(Some).ok_or_else(|| {
                    Error::malformed(format!("{key} is {value}, not a finite number"))
                })
            }
        };
        let largest = match self.dtype {
            DType::F16 => f64::from(half::f16::MAX),
            DType::F32 => f64::from(f32::MAX),
            integers => integers.integers().map_or(1.0, |(_, greatest)| greatest as f64),
        };
        if let Some(factor) = number("scale_factor")?
            && !(factor.is_normal() && (factor * largest).is_finite())
        {
            return Err(Error::malformed(format!(
                "scale_factor is {factor:e}; values of {} cannot be multiplied and divided by it",
                self.dtype
            )));
        }
        number("add_offset")?;
        if let (Some((least, greatest)), Some(missing)) =
            (self.dtype.integers(), self.attributes.get(FILL_VALUE))
            && self.missing().is_none()
        {
            return Err(Error::malformed(format!(
                "{FILL_VALUE} is {missing}; {} has the integers {least} to {greatest}",
                self.dtype
            )));
        }
        let bits = self.own().and_then(|attributes| attributes.get(KEEP_BITS));
        let mantissa = if self.dtype == DType::F16 { 10 } else { 23 };
        match bits {
            Some(bits) if bits.as_u64().is_none_or(|bits| bits > mantissa) => {
                Err(Error::malformed(format!(
                    "{KEEP_BITS} is {bits}; values of {} have {mantissa} mantissa bits",
                    self.dtype
                )))
            }
            _ => Ok(()),
        }
    }

    /// The number of samples in an array and the chunk grid of their cubes. `axes` is 4 (sample, y,
    /// x, band) or 3 (sample, y, x).
    ///
    /// # Errors
    /// If the array has other axes, or a chunk holds pixels of several cubes.
    pub fn samples_and_grid(&self, axes: usize) -> Result<(usize, Grid)> {
        if self.shape.len() != axes {
            return Err(Error::damaged(format!(
                "the array has {} axes instead of {axes}",
                self.shape.len()
            )));
        }
        let length =
            |value: u64| usize::try_from(value).map_err(|_| Error::damaged("an axis is too long"));
        let lengths = self.shape.iter().map(|value| length(*value)).collect::<Result<Vec<_>>>()?;
        let bands = lengths.get(3).copied().unwrap_or(1);
        let shape = CubeShape::new(lengths[1], lengths[2], bands);
        let chunk = self.chunk_shape.as_ref().unwrap_or(&self.file_shape);
        let tile = Tile { rows: length(chunk[1])?, columns: length(chunk[2])? };
        let whole =
            |file: u64, chunk: u64, axis: u64| file == chunk.saturating_mul(axis.div_ceil(chunk));
        let band_group = chunk.get(3).map_or(Ok(bands), |group| length(*group))?;
        let one_sample = chunk[0] == 1 && band_group <= bands;
        let whole_cubes = self.chunk_shape.is_none()
            || (1..axes).all(|axis| whole(self.file_shape[axis], chunk[axis], self.shape[axis]));
        if !one_sample || !whole_cubes || shape.checked_values().is_none() {
            return Err(Error::unsupported(
                "chunks are not rows × columns × bands of one cube, or shards do not hold whole cubes",
            ));
        }
        let bytes = [tile.columns, band_group, self.dtype.size()]
            .into_iter()
            .try_fold(tile.rows, |bytes, length| bytes.checked_mul(length));
        if bytes.is_none_or(|bytes| bytes > codec::MAX_CHUNK) {
            return Err(Error::damaged("chunks are larger than 2 GiB"));
        }
        let grid = Grid::new(shape, tile, length(self.file_shape[0])?)?;
        Ok((lengths[0], grid.in_band_groups(band_group)?))
    }

    /// The fill value of an array as little-endian bytes.
    ///
    /// # Errors
    /// If it is not a number.
    pub fn fill_bytes(&self) -> Result<Vec<u8>> {
        let number = match &self.fill_value {
            Value::Number(number) => number.as_f64(),
            Value::String(text) if text == "NaN" => Some(f64::NAN),
            Value::String(text) if text == "Infinity" => Some(f64::INFINITY),
            Value::String(text) if text == "-Infinity" => Some(f64::NEG_INFINITY),
            _ => None,
        };
        let value =
            number.ok_or_else(|| Error::unsupported(format!("fill_value {}", self.fill_value)))?;
        match self.dtype {
            DType::F16 => Ok(half::f16::from_f64(value).to_le_bytes().to_vec()),
            DType::F32 => Ok((value as f32).to_le_bytes().to_vec()),
            DType::U8 => Ok(vec![value as u8]),
            DType::U16 => Ok((value as u16).to_le_bytes().to_vec()),
            DType::U32 => Ok((value as u32).to_le_bytes().to_vec()),
            DType::U64 => Ok((value as u64).to_le_bytes().to_vec()),
            DType::I16 => Ok((value as i16).to_le_bytes().to_vec()),
            other => Err(Error::unsupported(format!("chunks of {other} that were never written"))),
        }
    }
}

/// Whether an entry of `history` is about masks that were added.
fn is_of_masks(entry: &Value) -> bool {
    entry.get(MASKS).is_some()
}

/// Whether an entry of `history` is about masks that were replaced: before that, it was another
/// dataset.
fn replaced_masks(entry: &Value) -> bool {
    is_of_masks(entry) && entry.get(CONTINUES).is_none()
}

/// Whether an entry of `history` is about companions that were added.
fn is_of_companions(entry: &Value) -> bool {
    entry.get(COMPANIONS).is_some()
}

/// Whether an entry of `history` is about columns.
fn is_of_columns(entry: &Value) -> bool {
    entry.get(COLUMNS).is_some()
}

/// Whether an entry of `history` is about something that an earlier state of the dataset cannot be
/// derived from.
fn is_break(entry: &Value) -> bool {
    replaced_masks(entry) || is_of_columns(entry)
}

/// Records in a recipe where the files of companions are that were added later.
fn add_companions(recipe: &mut Value, added: &[Value]) {
    let Some(recipe) = recipe.as_object_mut() else { return };
    let all = recipe.entry(ADDED_COMPANIONS).or_insert_with(|| json!([]));
    if let Some(all) = all.as_array_mut() {
        all.extend_from_slice(added);
    }
}

fn text(value: &Value) -> Option<String> {
    value.as_str().map(str::to_owned)
}

/// The `hsipack` attributes of a dataset's root group.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Root(pub Map<String, Value>);

impl Root {
    /// The root of a new dataset of `samples` samples, written by the program `created_by` at the
    /// time `created`.
    pub fn new(
        created_by: &str,
        created: &str,
        command: &str,
        recipe: Value,
        request: &str,
        samples: usize,
    ) -> Self {
        let mut root = Map::new();
        root.insert("layout".into(), json!(LAYOUT));
        root.insert("created_by".into(), json!(created_by));
        root.insert("created".into(), json!(created));
        root.insert("command".into(), json!(command));
        root.insert("recipe".into(), recipe);
        root.insert("history".into(), json!([{ "request": request, "samples": samples }]));
        Self(root)
    }

    /// Adds an id that no other writer has. It is needed on servers: if the answer to a commit is
    /// lost, the id shows whose commit succeeded.
    #[must_use]
    pub fn written_by(mut self, id: &str) -> Self {
        self.0.insert("write_id".into(), json!(id));
        self
    }

    /// The root after an append to a dataset with fingerprint `continues`.
    #[must_use]
    pub fn appended(
        mut self,
        continues: &str,
        created: &str,
        command: &str,
        recipe: Value,
        request: &str,
        samples: usize,
    ) -> Self {
        self.push(json!({
            "request": request, "samples": samples, "command": command, "recipe": recipe,
            "created": created, CONTINUES: continues,
        }));
        self
    }

    /// The root after masks were added to a dataset of `samples` samples. `continues` is the
    /// fingerprint that it had before. It is `None` if masks were replaced: for programs that have
    /// the dataset open, it is then another dataset.
    #[must_use]
    pub fn with_masks(
        mut self,
        continues: Option<&str>,
        created: &str,
        command: &str,
        names: &[&str],
        samples: usize,
    ) -> Self {
        let mut entry = json!({
            MASKS: names, "samples": samples, "command": command, "created": created,
        });
        if let Some(before) = continues {
            entry[CONTINUES] = json!(before);
        }
        self.push(entry);
        self
    }

    /// The root after companions were added to a dataset with fingerprint `continues`: their names,
    /// and where their files are.
    #[must_use]
    pub fn with_companions(
        mut self,
        continues: &str,
        created: &str,
        command: &str,
        (names, added): (&[&str], Vec<Value>),
        samples: usize,
    ) -> Self {
        self.push(json!({
            COMPANIONS: names, "samples": samples, "command": command, "created": created,
            CONTINUES: continues,
        }));
        let history = self.0.get_mut("history").and_then(Value::as_array_mut);
        let recipes = history.into_iter().flatten().filter_map(|entry| entry.get_mut("recipe"));
        recipes.for_each(|recipe| add_companions(recipe, &added));
        self.0.get_mut("recipe").into_iter().for_each(|recipe| add_companions(recipe, &added));
        self
    }

    /// The root of a dataset that was merged from others. `recipes` say how their samples were
    /// converted, each with the number of samples after it.
    pub fn merged(
        created_by: &str,
        created: &str,
        command: &str,
        recipes: Vec<(Value, usize)>,
        request: &str,
    ) -> Self {
        let mut recipes = recipes.into_iter();
        let (first, samples) = recipes.next().unwrap_or_default();
        let mut root = Self::new(created_by, created, command, first, request, samples);
        for (recipe, samples) in recipes {
            root.push(json!({ "request": request, "samples": samples, "recipe": recipe }));
        }
        root
    }

    /// The root after columns of the `samples` samples changed. `continues` is the fingerprint that
    /// the dataset had before: programs that have it open can go on, because the cubes are the
    /// same.
    #[must_use]
    pub fn with_columns(
        mut self,
        continues: &str,
        created: &str,
        command: &str,
        columns: &[String],
        samples: usize,
    ) -> Self {
        self.push(json!({
            COLUMNS: columns, "samples": samples, "command": command, "created": created,
            CONTINUES: continues,
        }));
        self
    }

    fn push(&mut self, entry: Value) {
        match self.0.get_mut("history").and_then(Value::as_array_mut) {
            Some(history) => history.push(entry),
            None => drop(self.0.insert("history".into(), json!([entry]))),
        }
    }

    /// The version of the layout.
    pub fn layout(&self) -> Option<u64> {
        self.0.get("layout")?.as_u64()
    }

    /// The program that wrote the dataset, and its version.
    pub fn created_by(&self) -> Option<&str> {
        self.0.get("created_by")?.as_str()
    }

    /// Whether any version of hsipack wrote the dataset.
    pub fn is_ours(&self) -> bool {
        self.created_by().is_some_and(|by| by.starts_with("hsipack "))
    }

    /// When the dataset was packed (UTC).
    pub fn created(&self) -> Option<&str> {
        self.0.get("created")?.as_str()
    }

    /// The command that packed the dataset.
    pub fn command(&self) -> Option<&str> {
        self.0.get("command")?.as_str()
    }

    /// How often samples were appended.
    pub fn appends(&self) -> usize {
        self.conversions().map_or(0, |conversions| conversions.count().saturating_sub(1))
    }

    /// Identifies the conversion or append that was last run on the dataset.
    pub fn last_request(&self) -> Option<&str> {
        self.conversions()?.next_back()?["request"].as_str()
    }

    /// How the samples were converted: recipes, each with the number of samples that the dataset
    /// had after it. `None` if this is not recorded.
    pub fn recipes(&self) -> Option<Vec<(&Value, usize)>> {
        let recipe = |entry| {
            let recipe = Value::get(entry, "recipe").or_else(|| self.0.get("recipe"))?;
            let samples = entry["samples"].as_u64()?;
            Some((recipe, usize::try_from(samples).unwrap_or(usize::MAX)))
        };
        self.conversions()?.map(recipe).collect()
    }

    /// The number of samples that the dataset had when its fingerprint was `fingerprint`; `None` if
    /// it never had that fingerprint.
    pub fn samples_at(&self, fingerprint: &str) -> Option<u64> {
        let mut earlier = self.earlier().into_iter();
        earlier.find(|(then, _)| *then == fingerprint).map(|(_, samples)| samples)
    }

    /// The fingerprints that the dataset had before cubes, masks, targets or images were added,
    /// oldest first, each with the number of samples that it had.
    pub fn earlier(&self) -> Vec<(&str, u64)> {
        self.earlier_since(is_break)
    }

    /// Whether the dataset has the cubes and masks that it had when its fingerprint was
    /// `fingerprint`, at the same positions. Its samples may have other columns.
    pub fn has_chunks_of(&self, fingerprint: &str) -> bool {
        self.earlier_since(replaced_masks).iter().any(|(then, _)| *then == fingerprint)
    }

    /// As [`earlier`](Self::earlier), since the last entry of `history` of some kind.
    fn earlier_since(&self, is_break: fn(&Value) -> bool) -> Vec<(&str, u64)> {
        let history = self.history().map_or(&[][..], Vec::as_slice);
        let first = history.iter().rposition(is_break).unwrap_or(0);
        let pairs = history[first..].windows(2);
        pairs
            .filter_map(|pair| Some((pair[1][CONTINUES].as_str()?, pair[0]["samples"].as_u64()?)))
            .collect()
    }

    /// Names of the masks and companions that were added since the dataset's fingerprint was
    /// `fingerprint`.
    pub fn arrays_since(&self, fingerprint: &str) -> Vec<&str> {
        let history = self.history().zip(self.position(fingerprint));
        let since = history.into_iter().flat_map(|(history, at)| &history[at..]);
        let names = since.filter_map(|entry| entry.get(MASKS).or_else(|| entry.get(COMPANIONS)));
        names.filter_map(Value::as_array).flatten().filter_map(Value::as_str).collect()
    }

    /// The position in `history` of the change that was made when the fingerprint was
    /// `fingerprint`.
    fn position(&self, fingerprint: &str) -> Option<usize> {
        let history = self.history()?;
        let first = history.iter().rposition(is_break).unwrap_or(0);
        let after = &history[first..];
        let at = after.iter().position(|entry| entry[CONTINUES] == fingerprint)?;
        Some(first + at)
    }

    /// The entries of `history` about the conversion and appends.
    fn conversions(&self) -> Option<impl DoubleEndedIterator<Item = &Value>> {
        let is_other =
            |entry: &Value| is_of_masks(entry) || is_of_companions(entry) || is_of_columns(entry);
        Some(self.history()?.iter().filter(move |entry| !is_other(entry)))
    }

    fn history(&self) -> Option<&Vec<Value>> {
        self.0.get("history")?.as_array()
    }
}

/// The `hsipack` attributes of a dataset's root group; `None` if hsipack did not pack the store.
///
/// # Errors
/// Those of [`parse_group`](crate::zarr::parse_group).
pub fn parse_root(text: &[u8]) -> Result<Option<Root>> {
    Ok(match zarr::parse_group(text)?.remove(OWN) {
        Some(Value::Object(attributes)) => Some(Root(attributes)),
        _ => None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::zarr::ChunkCodecs;

    fn array(shape: Vec<u64>, attributes: Value) -> ArrayMeta {
        ArrayMeta {
            file_shape: shape.clone(),
            shape,
            dtype: DType::F16,
            chunk_shape: None,
            codecs: ChunkCodecs { compression: None, checksum: false },
            fill_value: Value::Null,
            dimension_names: Vec::new(),
            attributes: Map::from_iter([(OWN.to_owned(), attributes)]),
        }
    }

    #[test]
    fn band_and_mask_attributes_round_trip() {
        let notes = BandNotes {
            keep_bits: Some(7),
            good_bands: Some(vec![true, false]),
            band_names: Some(vec!["red".into(), "edge".into()]),
        };
        let mut attributes = Map::new();
        notes.write(&mut attributes);
        assert_eq!(array(vec![1, 1, 1, 2], Value::Object(attributes)).band_notes(), notes);
        for meaning in [
            MaskMeaning { layers: vec!["fat".into()], ..MaskMeaning::default() },
            MaskMeaning { class_names: Some(vec!["skin".into()]), ..MaskMeaning::default() },
            MaskMeaning { class_colors: vec![None, Some([255, 0, 16])], ..MaskMeaning::default() },
            MaskMeaning {
                origin: Some(MaskOrigin {
                    command: "hsipack split".into(),
                    recipe: json!({"seed": 0}),
                }),
                ..MaskMeaning::default()
            },
            MaskMeaning::default(),
        ] {
            let mut attributes = Map::new();
            meaning.write(&mut attributes);
            assert_eq!(array(vec![1, 1, 1], Value::Object(attributes)).mask_meaning(), meaning);
        }
    }

    #[test]
    fn attributes_of_another_type_are_as_if_they_were_not_there() {
        let odd = json!({
            "keep_bits": "all", "good_bands": [1, 0], "band_names": ["one"], "layers": "fat", "class_names": [1],
        });
        for attributes in [odd, json!("nothing"), json!({"good_bands": [true]})] {
            let meta = array(vec![1, 1, 1, 2], attributes);
            assert_eq!(meta.band_notes(), BandNotes::default());
            assert_eq!(meta.mask_meaning(), MaskMeaning::default());
            assert!(meta.statistics().is_err() && meta.split_statistics().unwrap().is_empty());
        }
    }

    #[test]
    fn axes_whose_product_overflows_are_refused() {
        // There are no rows, so the cube is empty, whatever its other axes are.
        let lengths = vec![1, 0, 1, 1 << 62];
        let meta = ArrayMeta {
            shape: lengths,
            dtype: DType::F64,
            file_shape: vec![1, 1, 1, 1 << 62],
            chunk_shape: None,
            codecs: ChunkCodecs { compression: None, checksum: false },
            fill_value: Value::Null,
            dimension_names: Vec::new(),
            attributes: Map::new(),
        };
        assert!(meta.samples_and_grid(4).is_err());
    }

    #[test]
    fn the_samples_of_each_fingerprint_are_known() {
        let history = json!([
            {"samples": 3}, {"samples": 5, CONTINUES: "f0"}, {"samples": 9, CONTINUES: "f1"}
        ]);
        let root = Root(Map::from_iter([("history".to_owned(), history)]));
        assert_eq!(root.samples_at("f0"), Some(3));
        assert_eq!(root.samples_at("f1"), Some(5));
        assert_eq!(root.samples_at("f2"), None);
        assert_eq!(Root::default().samples_at("f0"), None);
    }

    #[test]
    fn added_masks_are_neither_appends_nor_recipes() {
        let root = Root::new("hsipack 1", "now", "convert", json!({"n": 1}), "r0", 3);
        let root = root.with_masks(Some("f0"), "now", "split", &["a", "b"], 3);
        let root = root.appended("f1", "now", "convert", json!({"n": 2}), "r1", 5);
        let root = root.with_masks(Some("f2"), "now", "split", &["c"], 5);
        assert_eq!((root.appends(), root.last_request()), (1, Some("r1")));
        assert_eq!(root.recipes().unwrap().iter().map(|(_, until)| *until).sum::<usize>(), 8);
        assert_eq!(["f0", "f1", "f2"].map(|at| root.samples_at(at)), [Some(3), Some(3), Some(5)]);
        assert_eq!(root.earlier(), [("f0", 3), ("f1", 3), ("f2", 5)]);
        assert_eq!(root.arrays_since("f0"), ["a", "b", "c"]);
        assert_eq!(root.arrays_since("f1"), ["c"]);
        // If masks are replaced, it becomes another dataset.
        let root = root.with_masks(None, "now", "split", &["a"], 5);
        let root = root.with_masks(Some("f4"), "now", "split", &["d"], 5);
        assert_eq!(["f0", "f2", "f3"].map(|at| root.samples_at(at)), [None; 3]);
        assert_eq!(root.samples_at("f4"), Some(5));
        assert_eq!(root.arrays_since("f4"), ["d"]);
        assert_eq!(root.earlier(), [("f4", 5)]);
        assert_eq!(Root::default().earlier(), []);
    }
}
