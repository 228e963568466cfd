//! HDF5 and the formats in it: NetCDF-4, HDF-EOS5, MATLAB v7.3.
//!
//! ```text
//! open:  tree      what is in the file                               (tree.rs)
//!        products  is it a product whose layout says everything?     (products.rs)
//!        choose    the dataset: the user's, the product's, or the only cube
//!        axes      --axes, the product, names of dimensions, the wavelength list's length, MATLAB
//!        spectral  wavelengths, fwhm, good bands                     (spectral.rs)
//! read:  contiguous, native numbers → `FlatSource`, past libhdf5
//!        anything else → one hyperslab of whole rows, then permuted to (row, column, band)
//! ```
//!
//! Where the axes of a cube cannot be told, that is an error asking for `--axes`, not a guess.
//!
//! libhdf5 decodes on one thread at a time, whichever file: several cubes at once do not go faster.
//! Chunks are decoded whole, so [`Source::preferred_rows`] follows their shape; a chunk is in
//! memory while it is decoded, whatever the budget.

mod axes;
mod heaps;
mod products;
mod spectral;
mod tree;

use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;

use ::hdf5::dataset::Layout;
use ::hdf5::plist::DatasetCreate;
use ::hdf5::{Container, Dataset, H5Type, Hyperslab, SliceOrIndex};
use bytemuck::Pod;
use hsipack_format::{CubeShape, DType, Error, ErrorKind, Result};

use self::products::{self, Facts, GOOD_BANDS, ProductCube};
use self::tree::{Entry, Tree, Values, damaged};
use crate::source::flat::{FileBytes, FlatLayout, FlatSource, permute};
use crate::source::{Access, Axis, AxisOrder, CubeInfo, OpenOptions, RowBuffer, Scaling, Source};

const SIGNATURE: &[u8] = b"\x89HDF\r\n\x1a\n";
const EXTENSIONS: [&str; 8] = ["h5", "hdf5", "he5", "hdf", "nc", "nc4", "mat", "h5ad"];

/// Whether a file that starts with `head` (up to 4 KiB) is of this format: the signature stands at
/// the start, or after a user block of 512, 1024, 2048 … bytes.
pub(super) fn recognises(path: &Path, head: &[u8]) -> bool {
    let in_head = [0, 512, 1024, 2048];
    if in_head.iter().any(|at| head.get(*at..).is_some_and(|rest| rest.starts_with(SIGNATURE))) {
        return true;
    }
    let extension = path.extension().and_then(|extension| extension.to_str()).unwrap_or_default();
    EXTENSIONS.contains(&extension.to_lowercase().as_str()) && signature_further_on(path)
}

fn signature_further_on(path: &Path) -> bool {
    let Ok(mut file) = File::open(path) else { return false };
    let mut bytes = [0; SIGNATURE.len()];
    (12..40).map(|power| 1u64 << power).any(|at| {
        file.seek(SeekFrom::Start(at)).is_ok()
            && file.read_exact(&mut bytes).is_ok()
            && bytes == SIGNATURE
    })
}

/// Opens the cube in `path`.
///
/// # Errors
/// If the file cannot be read or is malformed, or holds no cube or several.
pub fn open(path: &Path, options: &OpenOptions) -> Result<Box<dyn Source>> {
    open_cube(path, options).map_err(|error| error.at(path))
}

fn open_cube(path: &Path, options: &OpenOptions) -> Result<Box<dyn Source>> {
    let file = File::open(path).map_err(|error| Error::io(path, "cannot read", error))?;
    let mut head = Vec::new();
    (&file)
        .take(20)
        .read_to_end(&mut head)
        .map_err(|error| Error::io(path, "cannot read", error))?;
    if heaps::endless(&file).map_err(|error| Error::io(path, "cannot read", error))? {
        return Err(Error::malformed("a heap of texts in this HDF5 file is damaged")
            .with_remedy("copy the file again"));
    }
    let tree = Tree::open(path)?;
    let products = products::cubes(&tree);
    let entry = choose(path, &tree, &products, options)?;
    let product = products.iter().find(|cube| cube.path == entry.path);
    if let Some((what, remedy)) = product.and_then(ProductCube::refusal) {
        return Err(Error::unsupported(what).with_remedy(remedy));
    }
    let dtype = element_type(&entry)?;
    let dataset = tree
        .file
        .dataset(&entry.path)
        .map_err(|error| damaged(&format!("cannot open '{}'", entry.path), &error))?;
    let attributes = tree.attributes(&entry.path);
    let matlab = head.starts_with(b"MATLAB 7.3") || attributes.find(&["matlabclass"]).is_some();
    let dtype = match attributes.text("MATLAB_class").as_deref() {
        Some("logical") if dtype.size() == 1 => DType::Bool,
        Some("char" | "cell" | "struct" | "function_handle") => {
            return Err(Error::unsupported(format!("'{}' holds no numbers", entry.path)));
        }
        _ => dtype,
    };
    let meaning = Meaning { tree: &tree, entry: &entry, product, matlab, options };
    let cube = meaning.cube(&dataset)?;
    let mut info = CubeInfo::new(meaning.format(&tree), cube.shape(), dtype, path);
    meaning.describe(&mut info);
    if !tree.complete {
        info.notes.push("the file holds more groups than were looked through".into());
    }
    source(path, dataset, cube, info)
}

fn element_type(entry: &Entry) -> Result<DType> {
    match &entry.values {
        Values::Numbers(dtype) => Ok(*dtype),
        Values::Other(what) => {
            Err(Error::unsupported(format!("'{}' holds {what}, not numbers", entry.path))
                .with_remedy("name a dataset of integers or floats of at most 8 bytes"))
        }
    }
}

// ---------------------------------------------------------------------------------------------
// Which dataset

/// How a variable is named on the command line, with its shape.
fn offer(path: &Path, entry: &Entry) -> String {
    let file = path.file_name().unwrap_or(path.as_os_str()).to_string_lossy();
    format!("{file}::{} ({})", entry.path, entry.shape_text())
}

fn offers(path: &Path, entries: &[&Entry]) -> String {
    const MOST: usize = 20;
    let mut text: Vec<_> = entries.iter().take(MOST).map(|entry| offer(path, entry)).collect();
    if entries.len() > MOST {
        text.push(format!("and {} more", entries.len() - MOST));
    }
    text.join(", ")
}

fn ambiguous(path: &Path, what: &str, entries: &[&Entry]) -> Error {
    let file = path.display();
    Error::ambiguous(format!("{what}: {}", offers(path, entries)))
        .with_remedy(format!("name one: '{file}::{}'", entries[0].path))
}

/// The dataset to take: the one named, else the product's cube, else the only cube there is.
fn choose(
    path: &Path,
    tree: &Tree,
    products: &[ProductCube],
    options: &OpenOptions,
) -> Result<Entry> {
    if let Some(name) = &options.variable {
        return named(path, tree, products, name, options.mask);
    }
    let main: Vec<_> = products
        .iter()
        .filter(|cube| cube.main && !options.mask)
        .filter_map(|cube| tree.entry(&cube.path))
        .collect();
    let candidates = if main.is_empty() { cubes_below(tree, "", options.mask) } else { main };
    match &candidates[..] {
        [only] => Ok((*only).clone()),
        [first, ..] => {
            // The two halves of a refused product are no choice.
            let refused = products.iter().find(|cube| cube.path == first.path);
            match refused.and_then(ProductCube::refusal) {
                Some((what, remedy)) => Err(Error::unsupported(what).with_remedy(remedy)),
                None => Err(ambiguous(path, "the file holds several cubes", &candidates)),
            }
        }
        [] => Err(no_cube(path, tree, options.mask)),
    }
}

fn no_cube(path: &Path, tree: &Tree, mask: bool) -> Error {
    let numeric: Vec<_> = tree.datasets.iter().filter(|entry| entry.dtype().is_some()).collect();
    if numeric.is_empty() {
        return Error::unsupported("the file holds no dataset of numbers");
    }
    let (what, remedy) = if mask {
        ("no 2-D or 3-D dataset", "name a dataset of class ids")
    } else {
        ("no 3-D dataset", "a cube has three axes; a 2-D dataset can be a mask (--mask)")
    };
    Error::unsupported(format!("the file holds {what}, only {}", offers(path, &numeric)))
        .with_remedy(remedy)
}

/// The datasets below `group` that can be cubes; for a mask, images too. Those with the most axes
/// longer than 1 win: a list stored as 1x1xN is none as long as there is a real cube.
fn cubes_below<'a>(tree: &'a Tree, group: &str, mask: bool) -> Vec<&'a Entry> {
    let inside = format!("{group}/");
    let fits = |entry: &&Entry| {
        entry.path.starts_with(&inside)
            && entry.dtype().is_some()
            && !entry.shape.contains(&0)
            && (axes_of(&entry.shape).is_some() || (mask && entry.shape.len() == 2))
    };
    let all: Vec<_> = tree.datasets.iter().filter(fits).collect();
    let long = |entry: &Entry| entry.shape.iter().filter(|length| **length > 1).count();
    if mask {
        let whole = |entry: &&&Entry| {
            long(entry) >= 2 && entry.dtype().is_some_and(|dtype| !dtype.is_float())
        };
        let labels: Vec<_> = all.iter().filter(whole).copied().collect();
        return if labels.is_empty() { all } else { labels };
    }
    let most = all.iter().map(|entry| long(entry)).max().unwrap_or(0);
    all.into_iter().filter(|entry| long(entry) == most).collect()
}

/// The dataset that the user names: by full path, by its last components, or by the group whose
/// only cube it is.
fn named(
    path: &Path,
    tree: &Tree,
    products: &[ProductCube],
    name: &str,
    mask: bool,
) -> Result<Entry> {
    let wanted = format!("/{}", name.trim_matches('/'));
    if let Some(entry) = tree.entry(&wanted) {
        return Ok(entry.clone());
    }
    let same = |a: &str, b: &str| a == b;
    let alike = |a: &str, b: &str| a.eq_ignore_ascii_case(b);
    for equal in [same as fn(&str, &str) -> bool, alike] {
        let ends = |full: &str| {
            let cut = full.len().checked_sub(wanted.len());
            cut.and_then(|cut| full.get(cut..)).is_some_and(|end| equal(end, &wanted))
        };
        let mut of_product = products.iter().filter(|cube| cube.main && ends(&cube.path));
        if let (Some(cube), None) = (of_product.next(), of_product.next())
            && let Some(entry) = tree.entry(&cube.path)
        {
            return Ok(entry.clone());
        }
        let found: Vec<_> = tree.datasets.iter().filter(|entry| ends(&entry.path)).collect();
        let cubes = cubes_below(tree, "", mask);
        let can: Vec<_> =
            found.iter().filter(|f| cubes.iter().any(|c| c.path == f.path)).copied().collect();
        match (&found[..], &can[..]) {
            ([only], _) | (_, [only]) => return Ok((*only).clone()),
            ([], _) => {}
            _ => return Err(ambiguous(path, &format!("'{name}' fits several datasets"), &found)),
        }
    }
    if tree.groups.contains(&wanted) {
        let below = cubes_below(tree, &wanted, mask);
        match &below[..] {
            [only] => return Ok((*only).clone()),
            [] => {}
            _ => return Err(ambiguous(path, &format!("'{wanted}' holds several cubes"), &below)),
        }
    }
    if let Some(entry) = tree.linked(&wanted) {
        return Ok(entry);
    }
    let there: Vec<_> = tree.datasets.iter().filter(|entry| entry.dtype().is_some()).collect();
    Err(Error::new(ErrorKind::Conflict, format!("there is no dataset '{name}'"))
        .with_remedy(format!("the file holds {}", offers(path, &there))))
}

// ---------------------------------------------------------------------------------------------
// What it means

/// The three axes of an array with a cube in it: all of three, or the three longer than 1 of more.
fn axes_of(shape: &[usize]) -> Option<[usize; 3]> {
    if shape.len() == 3 {
        return Some([0, 1, 2]);
    }
    let long: Vec<_> = (0..shape.len()).filter(|axis| shape[*axis] > 1).collect();
    long.try_into().ok().filter(|_| shape.len() > 3)
}

/// A cube within a dataset.
#[derive(Clone, Debug)]
struct Cube {
    /// Lengths of all axes of the dataset.
    lengths: Vec<usize>,
    /// Which of them are the cube's; the second and third may be one that the dataset lacks, of
    /// length 1.
    axes: [usize; 3],
    /// What these are.
    order: AxisOrder,
}

impl Cube {
    fn length(&self, axis: usize) -> usize {
        self.lengths.get(axis).copied().unwrap_or(1)
    }

    fn shape(&self) -> CubeShape {
        self.order.shape(self.axes.map(|axis| self.length(axis)))
    }

    /// The dataset's axis of image rows.
    fn row_axis(&self) -> usize {
        self.axes[self.order.position(Axis::Row)]
    }
}

/// All there is to know what a dataset means.
struct Meaning<'a> {
    tree: &'a Tree,
    entry: &'a Entry,
    product: Option<&'a ProductCube>,
    /// MATLAB's index order is the opposite of the order on disk.
    matlab: bool,
    options: &'a OpenOptions,
}

impl Meaning<'_> {
    fn format(&self, tree: &Tree) -> String {
        let eos = tree.groups.iter().any(|group| group == "/HDFEOS");
        let netcdf = tree.attributes("").find(&["ncproperties"]).is_some();
        let container = match (self.matlab, eos, netcdf) {
            (true, _, _) => "MATLAB v7.3",
            (_, true, _) => "HDF-EOS5",
            (_, _, true) => "NetCDF-4",
            _ => "HDF5",
        };
        match self.product {
            Some(product) => format!("{} ({container})", product.name),
            None => container.to_owned(),
        }
    }

    /// The cube in the dataset, its size checked.
    fn cube(&self, dataset: &Dataset) -> Result<Cube> {
        let Entry { path, shape, .. } = self.entry;
        let text = self.entry.shape_text();
        if shape.contains(&0) {
            return Err(Error::malformed(format!("'{path}' is empty: {text}")));
        }
        let cube =
            if shape.len() == 2 && self.options.mask { self.image()? } else { self.three()? };
        let lengths = cube.axes.map(|axis| cube.length(axis));
        let product = lengths[0].checked_mul(lengths[1]).and_then(|n| n.checked_mul(lengths[2]));
        let possible = product.filter(|_| cube.shape().checked_values().is_some());
        let Some(values) = possible else {
            return Err(Error::malformed(format!(
                "'{path}' claims to be {text}: impossibly large"
            )));
        };
        self.check_size(dataset, values)?;
        Ok(cube)
    }

    /// Refuses sizes that the file cannot hold: no filter makes data 2000 times smaller, and a cube
    /// of hardly anything but fill values is a damaged header.
    fn check_size(&self, dataset: &Dataset, values: usize) -> Result<()> {
        const GRACE: u64 = 1 << 30;
        let plist = dataset.dcpl().map_err(|error| damaged("cannot read the layout", &error))?;
        if plist.layout() == Layout::Virtual || !plist.external().is_empty() {
            return Ok(());
        }
        let claimed = (values as u64).saturating_mul(8);
        let possible = self.tree.file.size().saturating_mul(2000).saturating_add(GRACE);
        if claimed <= possible {
            return Ok(());
        }
        Err(Error::malformed(format!(
            "'{}' claims to be {}, but the file has only {} bytes",
            self.entry.path,
            self.entry.shape_text(),
            self.tree.file.size()
        ))
        .with_remedy("copy the file again; it is cut short or damaged"))
    }

    /// A 2-D mask: one band.
    fn image(&self) -> Result<Cube> {
        let lengths = self.entry.shape.clone();
        let names = self.tree.axis_names(&self.entry.path, 2);
        let known = [0, 1].map(|axis| names[axis].as_deref().and_then(axes::axis_of_name));
        let turned = known == [Some(Axis::Column), Some(Axis::Row)];
        let rows_first = AxisOrder([Axis::Row, Axis::Column, Axis::Band]);
        let columns_first = AxisOrder([Axis::Column, Axis::Row, Axis::Band]);
        let order = if turned != self.matlab { columns_first } else { rows_first };
        Ok(Cube { lengths, axes: [0, 1, 2], order })
    }

    fn three(&self) -> Result<Cube> {
        let Entry { path, shape, .. } = self.entry;
        let rank = shape.len();
        if rank < 3 {
            return Err(Error::unsupported(format!(
                "'{path}' is {rank}-D ({}), not a cube",
                self.entry.shape_text()
            ))
            .with_remedy("name a 3-D dataset; a 2-D one can be a mask (--mask)"));
        }
        let kept = self.product.map(|product| product.axes).or_else(|| axes_of(shape));
        let Some(axes) = kept else {
            return Err(Error::unsupported(format!(
                "'{path}' is {rank}-D ({}), not a cube",
                self.entry.shape_text()
            ))
            .with_remedy("write each cube in it to a 3-D dataset of its own"));
        };
        let lengths = axes.map(|axis| shape[axis]);
        let order = self.order(axes, lengths)?;
        Ok(Cube { lengths: shape.clone(), axes, order })
    }

    /// What the three axes are, in the order on disk.
    fn order(&self, axes: [usize; 3], lengths: [usize; 3]) -> Result<AxisOrder> {
        if let Some(order) = self.options.axes {
            return Ok(if self.matlab { order.reversed() } else { order });
        }
        if let Some(product) = self.product {
            return Ok(product.order);
        }
        let names = self.tree.axis_names(&self.entry.path, self.entry.shape.len());
        let names = axes.map(|axis| names[axis].clone());
        if let Some(order) = axes::order_of_names(&names) {
            return Ok(order);
        }
        let shown = if self.matlab { [lengths[2], lengths[1], lengths[0]] } else { lengths };
        let (list, _) = spectral::find(self.tree, &self.entry.path, &lengths);
        let told = match &list {
            Some(list) => axes::order_of_length(shown, list.values.len()),
            None if self.options.mask => axes::order_of_length(shown, 1),
            None => None,
        };
        let path = &self.entry.path;
        let order = match (told, &list) {
            (Some(order), _) => order,
            // MATLAB's toolboxes and every cube published as .mat have (row, column, band).
            (None, None) if self.matlab => AxisOrder::BIP,
            (None, Some(list)) if self.matlab && shown[2] == list.values.len() => AxisOrder::BIP,
            (None, Some(list)) => {
                let why = format!(
                    "the wavelength list in {} ({}) fits more than one axis",
                    list.found,
                    list.values.len()
                );
                return axes::cannot_tell(path, lengths, &why);
            }
            (None, None) => {
                return axes::cannot_tell(path, lengths, "nothing tells which axis is the bands");
            }
        };
        Ok(if self.matlab { order.reversed() } else { order })
    }

    /// Fills in what the file says about bands and numbers.
    fn describe(&self, info: &mut CubeInfo) {
        let bands = info.shape.bands;
        let facts = match self.product {
            Some(product) => product.facts(self.tree, bands),
            None => self.generic_facts(bands, &mut info.notes),
        };
        info.notes.extend(facts.notes);
        if let Some(list) = facts.wavelengths
            && let Some(list) =
                fitting(Some(list), |l| l.values.len(), bands, "wavelength", &mut info.notes)
        {
            match spectral::to_nanometres(&list.values, list.unit.as_deref()) {
                Ok(nm) => info.wavelength = Some(nm),
                Err(note) => info.notes.push(note),
            }
            // Widths are in the unit of the band centres.
            let fwhm = fitting(facts.fwhm, Vec::len, bands, "fwhm", &mut info.notes);
            info.fwhm = fwhm.and_then(|fwhm| same_unit(&fwhm, &list));
        }
        info.good_bands = fitting(facts.good_bands, Vec::len, bands, "good band", &mut info.notes);
        let attributes = self.tree.attributes(&self.entry.path);
        info.ignore_value = ignore_value(&attributes, &mut info.notes);
        info.scaling =
            facts.scaling.unwrap_or_else(|| generic_scaling(&attributes, &mut info.notes));
        if attributes.text("_Unsigned").as_deref() == Some("true") && is_signed(info.dtype) {
            info.notes.push(
                "the attribute _Unsigned says that these signed numbers are unsigned; they are read \
                 as stored"
                    .into(),
            );
        }
    }

    fn generic_facts(&self, bands: usize, notes: &mut Vec<String>) -> Facts {
        let path = &self.entry.path;
        let (wavelengths, misfit) = spectral::find(self.tree, path, &[bands]);
        if let (None, Some(list)) = (&wavelengths, misfit) {
            notes.push(format!(
                "the wavelength list in {} has {} entries for {bands} bands; left out",
                list.found,
                list.values.len()
            ));
        }
        let names = ["fwhm", "fwhms", "bandwidth", "bandwidths"];
        let good = spectral::beside(self.tree, path, &GOOD_BANDS, bands);
        Facts {
            wavelengths,
            fwhm: spectral::beside(self.tree, path, &names, bands),
            good_bands: good.map(|good| good.iter().map(|flag| *flag != 0.0).collect()),
            ..Facts::default()
        }
    }
}

fn is_signed(dtype: DType) -> bool {
    matches!(dtype, DType::I8 | DType::I16 | DType::I32 | DType::I64)
}

/// Widths in nm, given the list of band centres whose unit they share.
fn same_unit(fwhm: &[f64], centres: &spectral::Wavelengths) -> Option<Vec<f64>> {
    let nm = spectral::to_nanometres(&centres.values, centres.unit.as_deref()).ok()?;
    let at = centres.values.iter().position(|value| *value > 0.0)?;
    let factor = nm[at] / centres.values[at];
    // A factor of a power of ten, free of the rounding of the quotient.
    let factor = 10f64.powi(factor.log10().round() as i32);
    fwhm.iter().all(|width| width.is_finite()).then(|| fwhm.iter().map(|w| w * factor).collect())
}

/// The list, if it has one entry a band; else a note.
fn fitting<T>(
    list: Option<T>,
    len: impl Fn(&T) -> usize,
    bands: usize,
    what: &str,
    notes: &mut Vec<String>,
) -> Option<T> {
    let list = list?;
    if len(&list) == bands {
        return Some(list);
    }
    notes.push(format!("the {what} list has {} entries for {bands} bands; left out", len(&list)));
    None
}

/// The number that marks missing data, under any of the names in use.
fn ignore_value(attributes: &tree::Attributes, notes: &mut Vec<String>) -> Option<f64> {
    const NAMES: [&str; 8] = [
        "fillvalue",
        "missingvalue",
        "dataignorevalue",
        "nodata",
        "nodatavalue",
        "ignorevalue",
        "filvalue",
        "missing",
    ];
    let named = |name: &'static str| Some((name, attributes.number(attributes.find(&[name])?)?));
    let found: Vec<_> = NAMES.into_iter().filter_map(named).collect();
    let (_, value) = *found.first()?;
    let same = |other: f64| other == value || (other.is_nan() && value.is_nan());
    if found.iter().any(|(_, other)| !same(*other)) {
        let all: Vec<_> = found.iter().map(|(name, value)| format!("{name} {value}")).collect();
        notes.push(format!(
            "several values mark missing data ({}); the first is taken",
            all.join(", ")
        ));
    }
    Some(value)
}

/// CF `scale_factor` multiplies; a capitalised `Scale_Factor` (NEON and products after it) divides.
fn generic_scaling(attributes: &tree::Attributes, notes: &mut Vec<String>) -> Scaling {
    let usable = |value: &f64| value.is_finite() && *value != 0.0;
    let multiply = attributes.number("scale_factor").filter(usable);
    let add = attributes.number("add_offset").filter(|value| value.is_finite());
    if multiply.is_some() || add.is_some() {
        let (multiply, add) = (multiply.unwrap_or(1.0), add.unwrap_or(0.0));
        return Scaling { multiply, divide: 1.0, add };
    }
    match attributes.number("Scale_Factor").filter(usable) {
        Some(divide) if divide >= 1.0 => {
            notes.push(format!("numbers are divided by the attribute Scale_Factor, {divide}"));
            Scaling { divide, ..Scaling::NONE }
        }
        Some(multiply) => {
            notes.push(format!("numbers are multiplied by the attribute Scale_Factor, {multiply}"));
            Scaling { multiply, ..Scaling::NONE }
        }
        None => Scaling::NONE,
    }
}

// ---------------------------------------------------------------------------------------------
// Reading it

/// The source of `cube`, if all that its dataset needs is there.
fn source(path: &Path, dataset: Dataset, cube: Cube, info: CubeInfo) -> Result<Box<dyn Source>> {
    let plist = dataset.dcpl().map_err(|error| damaged("cannot read the layout", &error))?;
    check_filters(&plist)?;
    if plist.layout() == Layout::Virtual {
        check_virtual(path, &plist)?;
    }
    if let Some(offset) = flat_offset(&dataset, &plist, info.dtype) {
        let bytes = FileBytes::open(path)?;
        let len = FlatSource::data_len(info.shape, info.dtype);
        let end = len.and_then(|len| len.checked_add(offset));
        if end.is_none_or(|end| end > bytes.len()) {
            return Err(Error::malformed("the file ends before the cube does")
                .with_remedy("copy the file again; it is cut short"));
        }
        let (order, big_endian) = (cube.order, cfg!(target_endian = "big"));
        let layout = FlatLayout { offset, order, big_endian, rows_reversed: false };
        return Ok(Box::new(FlatSource::new(info, layout, bytes)));
    }
    let chunk = plist.get_chunk().ok().flatten().filter(|chunk| chunk.len() == cube.lengths.len());
    Ok(Box::new(Hdf5Source { info, dataset, cube, chunk }))
}

/// Where the dataset lies in its file, if it lies there as one flat array of native numbers.
fn flat_offset(dataset: &Dataset, plist: &DatasetCreate, dtype: DType) -> Option<u64> {
    let flat = plist.layout() == Layout::Contiguous && plist.external().is_empty();
    let datatype = dataset.dtype().ok()?;
    let native = match dtype {
        DType::Bool => datatype.is::<bool>() || datatype.is::<u8>(),
        DType::U8 => datatype.is::<u8>(),
        DType::I8 => datatype.is::<i8>(),
        DType::U16 => datatype.is::<u16>(),
        DType::I16 => datatype.is::<i16>(),
        DType::U32 => datatype.is::<u32>(),
        DType::I32 => datatype.is::<i32>(),
        DType::U64 => datatype.is::<u64>(),
        DType::I64 => datatype.is::<i64>(),
        DType::F16 => datatype.is::<half::f16>(),
        DType::F32 => datatype.is::<f32>(),
        DType::F64 => datatype.is::<f64>(),
    };
    dataset.offset().filter(|_| flat && native)
}

/// Refuses datasets behind a filter that this build of libhdf5 lacks.
fn check_filters(plist: &DatasetCreate) -> Result<()> {
    // The binding's fixed-size buffer makes it panic on filters with more than 32 parameters.
    let filters = catch_unwind(AssertUnwindSafe(|| plist.get_filters()))
        .unwrap_or_else(|_| Err("a filter has too many parameters".into()));
    let filters = filters.map_err(|error| damaged("cannot read the filters", &error))?;
    let Some(missing) = filters.iter().find(|filter| !filter.decode_enabled()) else {
        return Ok(());
    };
    let name = match missing.id() {
        1 => "gzip",
        4 => "szip",
        307 => "bzip2",
        32001 => "Blosc",
        32004 => "LZ4",
        32008 => "Bitshuffle",
        32013 => "ZFP",
        32015 => "Zstandard",
        32017 | 32024 => "SZ",
        32019 => "JPEG",
        32026 => "Blosc2",
        _ => "an HDF5 plugin",
    };
    let id = missing.id();
    Err(Error::unsupported(format!(
        "the cube is compressed with {name} (HDF5 filter {id}), which hsipack does not have"
    ))
    .with_remedy(
        "rewrite it with h5repack -f GZIP=4 IN OUT on a machine that has the filter, or in Python \
         with hdf5plugin and h5py",
    ))
}

/// Refuses virtual datasets some of whose files are missing: libhdf5 reads fill values for them.
fn check_virtual(path: &Path, plist: &DatasetCreate) -> Result<()> {
    let map = catch_unwind(AssertUnwindSafe(|| plist.get_virtual_map()))
        .unwrap_or_else(|_| Err("the mapping makes no sense".into()))
        .map_err(|error| damaged("cannot read the virtual dataset's mapping", &error))?;
    let folder = path.parent().unwrap_or(Path::new(""));
    for source in map {
        let name = source.src_filename;
        // A name with a % stands for a series of files.
        if name == "." || name.contains('%') || folder.join(&name).exists() {
            continue;
        }
        return Err(Error::new(
            ErrorKind::Io,
            format!("the cube is a virtual dataset over '{name}', which is missing"),
        )
        .with_remedy("put that file beside this one"));
    }
    Ok(())
}

/// A cube that libhdf5 has to read.
struct Hdf5Source {
    info: CubeInfo,
    dataset: Dataset,
    cube: Cube,
    /// Lengths of a chunk along all axes, if there are chunks.
    chunk: Option<Vec<usize>>,
}

impl Hdf5Source {
    /// The values of image rows `rows`, in the order on disk.
    fn block<T: H5Type>(&self, rows: Range<usize>) -> ::hdf5::Result<Vec<T>> {
        let slice = |axis: usize| -> SliceOrIndex {
            if axis == self.cube.row_axis() {
                rows.clone().into()
            } else {
                (0..self.cube.lengths[axis]).into()
            }
        };
        let slices: Vec<_> = (0..self.cube.lengths.len()).map(slice).collect();
        let block = self.dataset.read_slice(Hyperslab::from(slices));
        Ok(like(Container::read_dyn::<T>, block)?.into_raw_vec_and_offset().0)
    }

    fn read_as<T: H5Type + Pod>(&self, rows: Range<usize>, out: &mut RowBuffer) -> Result<()> {
        let shape = CubeShape { rows: rows.len(), ..self.info.shape };
        let doing = || format!("cannot read rows {} to {}", rows.start, rows.end - 1);
        let block = self.block::<T>(rows.clone()).map_err(|error| damaged(&doing(), &error))?;
        let (from, to) = (bytemuck::cast_slice(&block), out.reset(self.info.dtype, shape.values()));
        if from.len() != to.len() {
            return Err(Error::malformed(format!("{}: {} bytes came", doing(), from.len())));
        }
        permute(self.cube.order, shape, false, self.info.dtype.size(), from, to);
        Ok(())
    }
}

/// Fixes the type of `value` to what `of` returns: n-dimensional arrays of no fixed rank belong to
/// a crate that this one does not name.
fn like<A, R>(_of: fn(&A) -> R, value: R) -> R {
    value
}

impl Source for Hdf5Source {
    fn info(&self) -> &CubeInfo {
        &self.info
    }

    fn access(&self) -> Access {
        Access::Random
    }

    fn preferred_rows(&self, budget: usize) -> usize {
        let shape = self.info.shape;
        let row_bytes = (shape.row_values() * self.info.dtype.size()).max(1);
        let chunk = self.chunk.as_ref().map(|chunk| Chunk {
            rows: chunk.get(self.cube.row_axis()).copied().unwrap_or(1),
            bytes: chunk.iter().fold(self.info.dtype.size(), |n, length| n.saturating_mul(*length)),
        });
        preferred_rows(shape.rows, row_bytes, chunk, budget)
    }

    fn read_rows(&self, rows: Range<usize>, out: &mut RowBuffer) -> Result<()> {
        match self.info.dtype {
            // As bytes: what stands in a file need not be 0 or 1, and a Rust `bool` must be.
            DType::Bool | DType::U8 => self.read_as::<u8>(rows, out),
            DType::I8 => self.read_as::<i8>(rows, out),
            DType::U16 => self.read_as::<u16>(rows, out),
            DType::I16 => self.read_as::<i16>(rows, out),
            DType::U32 => self.read_as::<u32>(rows, out),
            DType::I32 => self.read_as::<i32>(rows, out),
            DType::U64 => self.read_as::<u64>(rows, out),
            DType::I64 => self.read_as::<i64>(rows, out),
            DType::F16 => self.read_as::<half::f16>(rows, out),
            DType::F32 => self.read_as::<f32>(rows, out),
            DType::F64 => self.read_as::<f64>(rows, out),
        }
        .map_err(|error| error.at(&self.info.files[0]))
    }
}

/// What matters of the shape of chunks.
#[derive(Clone, Copy, Debug)]
struct Chunk {
    rows: usize,
    bytes: usize,
}

/// How many rows to read at once. Every read decodes all chunks that hold its rows, so it takes
/// whole chunks if the budget allows, else as few pieces of one as it can.
fn preferred_rows(rows: usize, row_bytes: usize, chunk: Option<Chunk>, budget: usize) -> usize {
    /// A read of this size is cheap enough.
    const ENOUGH: usize = 1 << 20;
    let decoding = chunk.map_or(0, |chunk| chunk.bytes.min(budget / 2));
    // The rows are held twice: as they lie in the file, and permuted.
    let affordable = (budget.saturating_sub(decoding) / 2 / row_bytes).clamp(1, rows);
    let enough = ENOUGH.div_ceil(row_bytes);
    let step = chunk.map_or(1, |chunk| chunk.rows.clamp(1, rows));
    if affordable >= step {
        let most = if affordable == rows { rows } else { affordable / step * step };
        return enough.div_ceil(step).saturating_mul(step).min(most).clamp(1, rows);
    }
    step.div_ceil(step.div_ceil(affordable))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_signature_is_found_behind_a_user_block() {
        for at in [0, 512, 1024, 2048] {
            let mut head = vec![b'x'; at];
            head.extend(SIGNATURE);
            assert!(recognises(Path::new("a.bin"), &head), "{at}");
        }
        assert!(!recognises(Path::new("a.bin"), b"\x89HDF"));
        assert!(!recognises(Path::new("a.h5"), &[0; 4096]));
    }

    #[test]
    fn a_large_user_block_is_looked_behind_by_extension() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.h5");
        let mut bytes = vec![b'x'; 8192];
        bytes.extend(SIGNATURE);
        std::fs::write(&path, &bytes).unwrap();
        assert!(recognises(&path, &bytes[..4096]));
    }

    #[test]
    fn axes_of_length_one_are_dropped_only_beyond_three() {
        assert_eq!(axes_of(&[1, 5, 1]), Some([0, 1, 2]));
        assert_eq!(axes_of(&[5, 1, 1, 6, 7]), Some([0, 3, 4]));
        assert_eq!(axes_of(&[2, 5, 6, 7]), None);
        assert_eq!(axes_of(&[5, 1, 1, 1, 7]), None);
        assert_eq!(axes_of(&[5, 6]), None);
    }

    #[test]
    fn reads_follow_the_chunks() {
        let chunk = |rows| Some(Chunk { rows, bytes: 1000 });
        // Whole chunks, as many as make a decent read.
        assert_eq!(preferred_rows(1000, 1 << 16, chunk(25), 1 << 30), 25);
        assert_eq!(preferred_rows(1000, 1 << 10, chunk(100), 1 << 30), 1000);
        assert_eq!(preferred_rows(1000, 1 << 14, chunk(10), 1 << 30), 70);
        // A chunk that is too much at once is read in equal pieces.
        assert_eq!(preferred_rows(1000, 1 << 20, chunk(100), 101 << 20), 50);
        // At least a row, at most all rows.
        assert_eq!(preferred_rows(1000, 1 << 20, chunk(100), 0), 1);
        assert_eq!(preferred_rows(7, 10, None, 1 << 30), 7);
        assert_eq!(preferred_rows(7, 10, chunk(9), 1 << 30), 7);
    }

    #[test]
    fn widths_share_the_unit_of_the_centres() {
        let centres = |unit: &str, values: &[f64]| spectral::Wavelengths {
            values: values.to_vec(),
            unit: Some(unit.into()),
            found: String::new(),
        };
        assert_eq!(same_unit(&[0.01], &centres("um", &[0.45])).unwrap(), [10.0]);
        assert_eq!(same_unit(&[10.0], &centres("nm", &[450.0])).unwrap(), [10.0]);
        assert_eq!(same_unit(&[f64::NAN], &centres("nm", &[450.0])), None);
    }
}
