//! The options of a conversion.
//!
//! An option is a field, here and nowhere else: its name, its default, its documentation, and the
//! values that it takes. `serde` makes fields the keyword arguments of Python's `hsipack.convert`,
//! what datasets and plans record, and what is compared if a conversion is resumed. The feature
//! `clap` makes them the flags of `hsipack convert` and the keys of its configuration files; the
//! documentation is then also the help.
//!
//! | file | part |
//! |---|---|
//! | `mod.rs` | [`ConvertOptions`]: everything, with checks that need no file |
//! | `values.rs` | values of cubes |
//! | `layout.rs` | chunks, shards, compression |
//! | `companion.rs` | targets and further images |
//! | `mask.rs` | masks |
//! | `mask_classes.rs` | new ids, names and colours of their classes |
//! | `band_arguments.rs` | feature `clap`: the choice of bands as it is typed |
//! | `words.rs` | values that are words or numbers |

// The help of arguments: `<group>` in it is not HTML.
#![allow(rustdoc::invalid_html_tags)]

#[macro_use]
mod words;
#[cfg(feature = "clap")]
mod band_arguments;
mod companion;
mod layout;
mod mask;
mod mask_classes;
mod values;

use std::collections::BTreeSet;
use std::path::PathBuf;

#[cfg(feature = "clap")]
use hsipack_format::arguments::{bytes, one_of};
use hsipack_format::{Error, Opt, Result, remedy};
use hsipack_source::BandPattern;
use hsipack_source::labels::{self, Resampling};
use hsipack_store::threads::cores;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::{Map, Value};

pub use self::companion::{CompanionOption, FitMethod};
use self::layout::at_least_1;
pub use self::layout::{BandGroup, ChunkShape, LayoutOptions};
pub use self::mask::{MaskColors, MaskOption};
pub(crate) use self::mask::{check_array_name, check_mask_name};
use self::values::LATER_VALUES;
pub use self::values::{
    BandSelection, Fill, KeepBits, Normalize, PackedType, Reference, Scale, ValueOptions,
};
pub(crate) use self::words::{one_or_several, words};
#[cfg(feature = "clap")]
use super::arguments;
use super::assignment::Assignment;
use super::band_centers::{self, BandCenters};
use super::classes::{ClassName, NewClass, OptionOfClass};
use crate::input::Input;
use crate::pattern::Pattern;
use crate::table::TableOptions;

/// Whether a cube is packed that no table or list has, or that lacks the file of a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unlisted {
    /// It is packed, without the columns of the table or list.
    Keep,
    /// It is left out.
    Skip,
    /// It is an error.
    Error,
}

hsipack_format::option_names!(Unlisted, "unlisted", {
    Keep => "keep",
    Skip => "skip",
    Error => "error",
});

impl Serialize for Unlisted {
    fn serialize<S: serde::Serializer>(&self, to: S) -> std::result::Result<S::Ok, S::Error> {
        to.serialize_str(self.name())
    }
}

from_words! {
    Unlisted: "keep, skip or error";
    FitMethod: "nearest or mean";
}

/// How a conversion treats what already exists at the output.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "clap", derive(clap::Args))]
#[serde(default)]
pub struct Mode {
    /// Continue an interrupted conversion or append (run the same command plus --resume)
    // If there is nothing to resume, begin it.
    #[cfg_attr(feature = "clap", arg(long))]
    pub resume: bool,
    /// Add the cubes to the dataset at OUT
    #[cfg_attr(feature = "clap", arg(long))]
    pub append: bool,
}

impl Mode {
    /// A new dataset; the output must not exist.
    pub const CREATE: Self = Self { resume: false, append: false };
    /// Add cubes to a dataset.
    pub const APPEND: Self = Self { resume: false, append: true };
    /// Resume a conversion or an append that was interrupted.
    pub const RESUME: Self = Self { resume: true, append: false };
}

/// Resources of the machine that a conversion may use.
#[derive(Clone, Copy, Debug)]
pub struct Resources {
    /// Number of threads.
    pub threads: usize,
    /// Bytes of memory for reading, for all threads together.
    pub buffer_size: usize,
}

impl Resources {
    pub(super) fn buffer_per_thread(self) -> usize {
        self.buffer_size / self.threads.max(1)
    }
}

/// A whole conversion.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "clap", derive(clap::Args))]
#[serde(default)]
pub struct ConvertOptions {
    /// Files, folders and archives (searched for cubes), globs in quotes, file::variable, CSV
    /// lists, or URLs of these. Hidden files in folders and globs are skipped
    #[cfg_attr(feature = "clap", arg(value_name = "INPUT"))]
    pub inputs: Vec<String>,
    /// Files that hold the arrays of a program. They come after the inputs.
    #[serde(skip)]
    #[cfg_attr(feature = "clap", arg(skip))]
    pub arrays: Vec<Input>,
    /// Dataset to write: a folder that does not exist yet, or a URL (s3://, gs://, az://) where
    /// nothing is stored yet
    #[cfg_attr(
        feature = "clap",
        arg(short, long, value_name = "OUT", value_parser = arguments::path_or_none(), default_value = "", hide_default_value = true)
    )]
    pub output: PathBuf,
    /// Whether the output may already exist.
    #[serde(flatten)]
    #[cfg_attr(feature = "clap", command(flatten))]
    pub mode: Mode,
    /// Skip files and folders below input folders whose path or name matches this glob (repeatable)
    #[cfg_attr(feature = "clap", arg(long, value_name = "GLOB", help_heading = "Inputs"))]
    pub exclude: Vec<String>,
    /// Skip inputs that cannot be opened, and list them, instead of stopping
    #[cfg_attr(feature = "clap", arg(long, help_heading = "Inputs"))]
    pub skip_errors: bool,
    /// CSV, TSV, JSON, JSON lines or Parquet with a `name` column (repeatable). The other columns
    /// (label, group, split, any) go to samples.jsonl as numbers, booleans (True, False) or text;
    /// empty cells become null
    ///
    /// Several tables each add their columns, and each must have a row for every cube, unless
    /// --unlisted says otherwise. They may not have the same columns, except those that identify
    /// cubes.
    ///
    /// FILE.json::KEY names a part of a JSON file. Keys of nested objects become columns with dots:
    /// files.header. A column with the name of a field that hsipack writes itself becomes
    /// table.NAME.
    ///
    /// The name of a cube is its path below the folder that was given, without the ending:
    /// day1/scan_01. For files and patterns it is the file's name without the ending: scan_01.
    #[serde(with = "one_or_several")]
    #[cfg_attr(feature = "clap", arg(long, value_name = "FILE", help_heading = "Samples"))]
    pub table: Vec<PathBuf>,
    /// How rows of tables and lists belong to cubes.
    #[serde(flatten)]
    #[cfg_attr(feature = "clap", command(flatten, next_help_heading = "Samples"))]
    pub joins: TableOptions,
    /// Whether to keep or skip cubes without a row in the table, a list, a file of --column or
    /// --boxes, or stop with an error [default: error, but keep for lists]
    #[cfg_attr(feature = "clap", arg(long, value_name = "keep|skip|error", value_parser = one_of(&Unlisted::ALL), help_heading = "Samples"))]
    pub unlisted: Option<Unlisted>,
    /// Name of each sample, with fields, as --mask; such as '{group}#{time}'
    /// [default: the path below the input folder]
    #[cfg_attr(feature = "clap", arg(long, value_name = "PATTERN", help_heading = "Samples"))]
    pub name: Option<String>,
    /// Regular expression for the path of each cube. Its named groups become columns, as in
    /// '(?P<group>patient\d+)/(?P<label>\w+)_', and fields of patterns
    #[cfg_attr(feature = "clap", arg(long, value_name = "REGEX", help_heading = "Samples"))]
    pub path_columns: Option<String>,
    /// Read a column from a file for each cube (repeatable): a path with fields, as --mask, such as
    /// 'brix={dir}/{stem}.json::fruit.brix' or 'yaw={path}::imu/yaw'
    ///
    /// Files are .npy, .npz, MATLAB, HDF5 and Zarr files (a number, a text, or an array of up to
    /// 4096 numbers with one or two axes; of an array with as many entries as there are samples,
    /// the entry of the sample), JSON (FILE::KEY, with dots between keys), CSV (FILE::COLUMN) and
    /// text. Missing files are errors unless --unlisted is keep or skip.
    #[cfg_attr(feature = "clap", arg(long, value_name = "NAME=PATTERN", help_heading = "Samples"))]
    pub column: Vec<Assignment>,
    /// Pack a mask with each cube: a path with {dir}, {stem}, {name} or {path} of the cube in it,
    /// such as '{dir}/{stem}_mask.png' or '{path}::gt' (repeatable) [default NAME: mask]
    ///
    /// Further fields are {relative} (the path below the input folder), {parent} (the name of the
    /// cube's folder), {variable} and {group} (what follows '::' in an input, and the group of that
    /// variable), {1}, {2}, … (what the stars of an input matched), the columns of --table, and the
    /// named groups of --path-columns, as in '{dir}/{scene}_gt.mat'.
    ///
    /// Masks are PNG, NumPy, MATLAB, ENVI, TIFF or HDF5 files, polygons (GeoJSON, GeoPackage,
    /// shapefile, labelme, ENVI ROI) or one file of COCO annotations for all cubes. A relative path
    /// is tried from the working directory and beside the cube. NAME:LAYER= packs boolean layers
    /// into the bits of one mask. The word `product` makes layers of the quality files of EnMAP,
    /// DESIS, PRISMA, … (quality=product). With a file for each class, write {class} in the place
    /// of LAYER and in the path, as in 'organs:{class}={dir}/{stem}_{class}.png'.
    #[cfg_attr(
        feature = "clap",
        arg(long, value_name = "[NAME[:LAYER]=]PATTERN|product", help_heading = "Labels")
    )]
    pub mask: Vec<MaskOption>,
    /// Class id, 0 to 65535, for cubes that have no mask file, and for pixels without a class (NaN,
    /// negative or nodata) [default: both are errors]
    #[cfg_attr(
        feature = "clap",
        arg(long, value_name = "ID", requires = "mask", help_heading = "Labels")
    )]
    pub mask_fill: Option<u16>,
    /// Give classes of a mask new ids, such as tumour=3,7=3,*=255 (repeatable)
    /// [default: classes that are not named keep their ids]
    ///
    /// CLASS is a class id of the mask file, another whole number in it or nan, as in -1=255, the
    /// name of a class in the file, or * for everything else. With several masks, write
    /// NAME.CLASS=ID.
    #[cfg_attr(
        feature = "clap",
        arg(
            long,
            value_name = "CLASS=ID",
            // As public examples spell it.
            alias = "classes",
            value_delimiter = ',',
            allow_hyphen_values = true,
            requires = "mask",
            help_heading = "Labels"
        )
    )]
    pub remap_classes: Vec<OptionOfClass<u16>>,
    /// Name the classes of a mask, such as 1=tumour,2=vessel (repeatable)
    /// [default: the names in the mask files]
    ///
    /// Tables, pictures and pages then show the names. ID is a class id as it is packed, after
    /// --remap-classes is applied. With several masks, write the mask's name before it, such as
    /// organs.1=liver. Names cannot contain commas.
    #[cfg_attr(
        feature = "clap",
        arg(
            long,
            value_name = "ID=NAME",
            value_delimiter = ',',
            requires = "mask",
            help_heading = "Labels"
        )
    )]
    pub class_names: Vec<OptionOfClass<String>>,
    /// Classes of masks that have a color for each class: CSV, JSON, ESRI .clr or QGIS (.txt,
    /// .qml), with color, id and name (repeatable) [default: colored masks are refused]
    ///
    /// A CSV has the columns r, g, b (or color, as #rrggbb), and id and name; without ids, classes
    /// are numbered from 0 in the order of the file. Every pixel must have one of the colors. With
    /// several masks, write NAME=FILE.
    #[cfg_attr(
        feature = "clap",
        arg(long, value_name = "[NAME=]FILE", requires = "mask", help_heading = "Labels")
    )]
    pub mask_colors: Vec<MaskColors>,
    /// Bring masks on another grid onto that of their cubes: the class at the center of each pixel,
    /// or the most frequent one in it [default: such masks are refused]
    ///
    /// Where mask and cube are georeferenced, their coordinates are used, otherwise a whole ratio
    /// of their sizes. The results are those of GDAL (near, mode). Pixels outside the mask get the
    /// class of --mask-fill.
    #[cfg_attr(
        feature = "clap",
        arg(long, value_name = "nearest|majority", value_parser = one_of(&Resampling::ALL), requires = "mask", help_heading = "Labels")
    )]
    pub mask_resample: Option<Resampling>,
    /// Give polygons and lines (masks in GeoJSON, GeoPackage, shapefile, labelme or ENVI ROI) all
    /// pixels that they touch, not only those whose center is inside
    #[cfg_attr(feature = "clap", arg(long, requires = "mask", help_heading = "Labels"))]
    pub all_touched: bool,
    /// Pack a target with each cube: floats for each pixel, as 'mag1c={dir}/{stem}_mag1c.tif'
    /// (repeatable)
    ///
    /// A target has the rows and columns of its cube, and one or several channels, such as
    /// abundances, concentrations or heights. PATTERN has the same fields as that of --mask. Files
    /// are of any format that is read for cubes, or PNG, JPEG or TIFF pictures. Values are packed
    /// as float32, after the scaling that the file states; missing values become NaN.
    #[cfg_attr(feature = "clap", arg(long, value_name = "NAME=PATTERN", help_heading = "Labels"))]
    pub target: Vec<Assignment>,
    /// Pack a further image with each cube, of another sensor or time, as 'rgb={dir}/{stem}.jpg'
    /// (repeatable)
    ///
    /// An image has bands of its own, and the rows and columns of its cube, or both a whole number
    /// of times as many, or as few. PATTERN has the same fields as that of --mask. Files are of any
    /// format that is read for cubes, or PNG, JPEG or TIFF pictures. Whole numbers of 8 bits are
    /// packed as float16, of 16 bits as float32, which hold them exactly; other values, after the
    /// scaling that the file states, as those of the cubes. Missing values become NaN.
    #[cfg_attr(feature = "clap", arg(long, value_name = "NAME=PATTERN", help_heading = "Images"))]
    pub image: Vec<Assignment>,
    /// Bring targets and further images of another resolution to the pixels of their cubes: the
    /// value at the center of each pixel, or the mean of the values in it
    /// [default: images keep their resolution, targets are refused]
    #[cfg_attr(
        feature = "clap",
        arg(long, value_name = "nearest|mean", value_parser = one_of(&FitMethod::ALL), help_heading = "Images")
    )]
    pub fit: Option<FitMethod>,
    /// Bounding boxes of objects: one file for all cubes, or a path with fields, as --mask: COCO,
    /// Pascal VOC, YOLO or CSV
    ///
    /// They become the columns `boxes`, a list of [x_min, y_min, x_max, y_max] by the edges of
    /// pixels, and `box_labels`, a list of the names or ids of their classes. A CSV has the columns
    /// xmin, ymin, xmax, ymax or x, y, w, h, a column of classes (FILE.csv::COLUMN names another
    /// one than class or label), and a column of file names, if it is of several cubes. --unlisted
    /// says what happens to cubes that no file lists.
    #[cfg_attr(feature = "clap", arg(long, value_name = "FILE|PATTERN", help_heading = "Labels"))]
    pub boxes: Option<String>,
    /// Options that decide the values.
    #[serde(flatten)]
    #[cfg_attr(feature = "clap", command(flatten))]
    pub values: ValueOptions,
    /// Maximum difference of the wavelengths of cubes of one shape, in nm
    #[cfg_attr(
        feature = "clap",
        arg(long, value_name = "NM", default_value_t = 0.01, help_heading = "Values")
    )]
    pub wavelength_tolerance: f64,
    /// Options that decide the layout.
    #[serde(flatten)]
    #[cfg_attr(feature = "clap", command(flatten))]
    pub layout: LayoutOptions,
    /// Number of threads [default: one per core]
    #[serde(deserialize_with = "at_least_1")]
    #[cfg_attr(feature = "clap", arg(short = 'j', long, alias = "jobs", value_parser = arguments::threads(), default_value_t = cores(), hide_default_value = true, help_heading = "Resources"))]
    pub threads: usize,
    /// Memory for reading, for all threads together; more makes transposing large scenes faster
    #[serde(deserialize_with = "at_least_1")]
    #[cfg_attr(feature = "clap", arg(long, value_name = "BYTES", value_parser = bytes, default_value = "256MiB", help_heading = "Resources"))]
    pub buffer_size: usize,
    /// The command, which the dataset records.
    #[cfg_attr(feature = "clap", arg(skip))]
    pub command: String,
}

/// The default of [`ConvertOptions::buffer_size`].
pub(super) const BUFFER: usize = 256 << 20;

impl Default for ConvertOptions {
    fn default() -> Self {
        Self {
            inputs: Vec::new(),
            arrays: Vec::new(),
            output: PathBuf::new(),
            mode: Mode::CREATE,
            exclude: Vec::new(),
            skip_errors: false,
            table: Vec::new(),
            joins: TableOptions::default(),
            unlisted: None,
            name: None,
            path_columns: None,
            column: Vec::new(),
            mask: Vec::new(),
            mask_fill: None,
            remap_classes: Vec::new(),
            class_names: Vec::new(),
            mask_colors: Vec::new(),
            mask_resample: None,
            all_touched: false,
            target: Vec::new(),
            image: Vec::new(),
            fit: None,
            boxes: None,
            values: ValueOptions::default(),
            wavelength_tolerance: 0.01,
            layout: LayoutOptions::default(),
            threads: cores(),
            buffer_size: BUFFER,
            command: String::new(),
        }
    }
}

impl ConvertOptions {
    /// A conversion of `inputs` to a new dataset at `output`, with defaults for all other options.
    pub fn new(inputs: Vec<String>, output: impl Into<PathBuf>) -> Self {
        Self { inputs, output: output.into(), ..Self::default() }
    }

    /// All options by name.
    pub fn by_name(&self) -> Map<String, Value> {
        let Value::Object(mut all) = serde_json::json!(self) else { unreachable!("a structure") };
        // Recipes omit some defaults.
        all.entry("keep_bits").or_insert_with(|| serde_json::json!(self.values.keep_bits));
        for name in LATER_VALUES {
            all.entry(name).or_insert(Value::Null);
        }
        all
    }

    /// The same options, with what they say about masks in the masks.
    ///
    /// # Errors
    /// If a class is of no mask, has two new ids or names, or colours cannot be read.
    pub(crate) fn with_classes(&self) -> Result<Self> {
        let mut options = self.clone();
        for class in options.remap_classes.drain(..) {
            let (mask, class, id) = class.among(&options.mask);
            MaskOption::give_class(&mut options.mask, mask.as_deref(), NewClass { class, id })?;
        }
        for class in options.class_names.drain(..) {
            let (mask, class, name) = class.among(&options.mask);
            let class = ClassName { id: class.id()?, name };
            MaskOption::name_class(&mut options.mask, mask.as_deref(), class)?;
        }
        for MaskColors { mask, file } in options.mask_colors.drain(..) {
            let colors = labels::read_colors(&file)?;
            MaskOption::color_classes(&mut options.mask, mask.as_deref(), colors)?;
        }
        for mask in &mut options.mask {
            (mask.resample, mask.all_touched) = (options.mask_resample, options.all_touched);
        }
        Ok(options)
    }

    /// Threads and memory of the conversion.
    pub fn resources(&self) -> Resources {
        Resources { threads: self.threads, buffer_size: self.buffer_size }
    }

    /// The same options, whose values say which files of bands are left out.
    pub(super) fn with_bands_exclude(&self) -> Self {
        let mut options = self.clone();
        if options.values.bands_from.is_some() {
            options.values.bands_exclude.clone_from(&options.exclude);
        }
        options
    }

    /// Checks everything that can be checked without reading any file.
    ///
    /// # Errors
    /// If options contradict each other or are out of range.
    pub fn check(&self) -> Result<()> {
        let conflict =
            |what: &str, remedy: &'static str| Err(Error::conflict(what).with_remedy(remedy));
        if self.inputs.is_empty() && self.arrays.is_empty() {
            return conflict("no input was given", "name files, folders, globs or a CSV list");
        }
        if let Scale::Factor(factor) = self.values.scale
            && !(factor.is_finite() && factor > 0.0)
        {
            return conflict(
                "the scale is not a positive number",
                "give none, auto or a number such as 2 or 0.001",
            );
        }
        if self.mask_fill.is_some() && self.mask.is_empty() {
            let what = format!("{} without {}", Opt::MaskFill, Opt::Mask);
            return Err(Error::conflict(what)
                .with_remedy(remedy!["give the paths of the masks with ", Opt::Mask]));
        }
        let of_masks = [
            (Opt::MaskColors, !self.mask_colors.is_empty()),
            (Opt::MaskResample, self.mask_resample.is_some()),
            (Opt::AllTouched, self.all_touched),
        ];
        if let Some((option, _)) =
            of_masks.iter().find(|(_, is_set)| *is_set && self.mask.is_empty())
        {
            return Err(Error::conflict(format!("{option} without {}", Opt::Mask))
                .with_remedy(remedy!["give the paths of the masks with ", Opt::Mask]));
        }
        if !self.values.dtype().is_float() {
            self.values.check_unchanged()?;
        }
        self.values.check_resampled()?;
        self.values.keep_bits.check(self.values.dtype())?;
        if self.layout.level > 9 {
            return conflict("the compression level is above 9", "give 0 to 9");
        }
        if self.layout.chunk.is_some_and(|chunk| chunk.rows == 0 || chunk.columns == Some(0)) {
            return conflict(
                "a side of the chunks is 0",
                "give at least 1 pixel, such as 64 rows and 64 columns",
            );
        }
        let panel = self.values.white_reflectance;
        if !(panel > 0.0 && panel <= 1.0) {
            return conflict(
                &format!(
                    "the reflectance of the white panel is {panel}, not above 0 and at most 1"
                ),
                "give it as a fraction of 1, such as 0.99",
            );
        }
        if panel != 1.0 && self.values.white.is_none() {
            return conflict(
                "a reflectance of the white panel is given, but no white reference",
                "give the white reference, or leave out its reflectance",
            );
        }
        if !self.joins.table_key.is_empty() && self.table.is_empty() {
            let what = format!("{} without {}", Opt::TableKey, Opt::Table);
            return Err(
                Error::conflict(what).with_remedy(remedy!["give the table with ", Opt::Table])
            );
        }
        self.joins.check(self.table.len())?;
        self.check_columns()?;
        if let Some(centers) = &self.values.band_centers {
            BandCenters::parse(centers)?;
        }
        if let Some(pattern) = &self.values.bands_from {
            BandPattern::parse(pattern)?;
        }
        self.mask.iter().try_for_each(|mask| check_mask_name(&mask.name))?;
        self.check_companions()
    }

    /// The targets and further images that it asks for.
    pub fn companions(&self) -> Vec<CompanionOption> {
        CompanionOption::all(&self.target, &self.image, self.fit)
    }

    /// Refuses names that the arrays of companions cannot have.
    fn check_companions(&self) -> Result<()> {
        let companions = self.companions();
        for (index, CompanionOption { name, role, .. }) in companions.iter().enumerate() {
            check_array_name(name, role.words())?;
            let other = companions[..index].iter().find(|other| other.name == *name);
            let what = match other {
                _ if self.mask.iter().any(|mask| mask.name == *name) => {
                    format!("a mask and a {} are named", role.words())
                }
                Some(other) if other.role == *role => format!("two {}s are named", role.words()),
                Some(_) => "a target and a further image are named".to_owned(),
                None => continue,
            };
            return Err(Error::conflict(format!("{what} {name}"))
                .with_remedy("give each a NAME= of its own"));
        }
        if self.fit.is_some() && companions.is_empty() {
            let what = format!("{} without {} or {}", Opt::Fit, Opt::Target, Opt::Image);
            return Err(Error::conflict(what).with_remedy(remedy!["leave out ", Opt::Fit]));
        }
        Ok(())
    }

    /// Refuses names of columns that files cannot give.
    fn check_columns(&self) -> Result<()> {
        let mut names = BTreeSet::new();
        for Assignment { name, .. } in &self.column {
            let why = match () {
                () if name == "name" => "samples are named with ",
                () if !names.insert(name) => "give each column once: ",
                () => continue,
            };
            let opt = if name == "name" { Opt::Name } else { Opt::Column };
            return Err(Error::conflict(format!(
                "{} cannot give the column {name:?}",
                Opt::Column
            ))
            .with_remedy(remedy![why, opt]));
        }
        Ok(())
    }

    /// The patterns of files of labels. That of masks with a file for each class has the class in
    /// it.
    pub(crate) fn label_patterns(&self) -> impl Iterator<Item = &str> {
        self.mask.iter().map(|mask| &mask.pattern).chain(&self.boxes).map(String::as_str)
    }

    /// The patterns of all options, whose fields are looked up for each cube.
    pub(crate) fn patterns(&self) -> impl Iterator<Item = Pattern<'_>> {
        let references = [&self.values.white, &self.values.dark].into_iter().flatten();
        let references = references.filter_map(|reference| match reference {
            Reference::Pattern(pattern) => Some(pattern),
            Reference::File(_) | Reference::Auto => None,
        });
        let masks = self.mask.iter().flat_map(MaskOption::patterns);
        let of_table = self.joins.table_key.iter().map(|key| &key.value);
        let centers = self.values.band_centers.iter();
        let of_bands = centers.filter(|centers| band_centers::is_pattern(centers));
        let of_bands = self.values.header.iter().chain(of_bands);
        let of_columns =
            self.column.iter().chain(&self.target).chain(&self.image).map(|column| &column.value);
        let of_columns = of_columns.chain(&self.boxes);
        let others = references.chain(of_bands).chain(&self.name).chain(of_table).chain(of_columns);
        masks.chain(others.map(|text| Pattern(text)))
    }
}

#[cfg(test)]
mod tests {
    use hsipack_format::Compressor;
    use serde_json::json;

    use super::*;

    #[test]
    fn options_are_read_as_given_and_as_recorded() {
        let read = |options: Value| serde_json::from_value::<ConvertOptions>(options);
        let options = read(json!({
            "inputs": ["a"], "output": "b", "append": true, "scale": 2, "fill": -1.5, "keep_bits": 7, "white": "w.hdr",
            "chunk": [8, 4], "codec": "zstd", "mask": [{ "name": "m", "pattern": "{stem}.png" }],
        }))
        .unwrap();
        assert_eq!((options.mode, options.values.scale), (Mode::APPEND, Scale::Factor(2.0)));
        assert_eq!(options.values.fill, Fill::Value(-1.5));
        assert_eq!(options.values.keep_bits, KeepBits::Bits(7));
        assert_eq!(options.values.white, Some(Reference::File("w.hdr".to_owned())));
        assert_eq!((options.layout.codec, options.mask.len()), (Compressor::Zstd, 1));
        let again = read(Value::Object(options.by_name())).unwrap();
        assert_eq!(again.by_name(), options.by_name());
        assert_eq!(options.by_name()["scale"], json!({ "factor": 2.0 }));
        for (wrong, expected) in [
            (json!({ "append": 1 }), "expected a boolean"),
            (json!({ "level": -1 }), "expected u8"),
            (json!({ "threads": 0 }), "nonzero"),
            (json!({ "chunk": 0 }), "at least 1 pixel"),
            (json!({ "chunk": "8x8" }), "invalid type: value, expected at least 1 pixel"),
            (json!({ "scale": "half" }), "none, auto or a number"),
            (json!({ "scale": [1] }), "invalid type: value, expected none, auto or a number"),
            (json!({ "keep_bits": 7.5 }), "1 to 10"),
            (json!({ "dtype": "int8" }), "float16, float32"),
            (json!({ "codec": 3 }), "expected a string"),
        ] {
            let error = read(wrong.clone()).unwrap_err().to_string();
            assert!(error.contains(expected), "{wrong}: {error}");
        }
    }
}
