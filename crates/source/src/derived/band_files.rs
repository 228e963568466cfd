//! Cubes with a file for each band: `leaf_450nm.tif`, `leaf_500nm.tif` …, or `scene_01.png`,
//! `scene_02.png` ….
//!
//! A pattern says which part of a name is the band. The text that its stars match names the cube,
//! if several cubes share a folder.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::ffi::OsStr;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use hsipack_format::{CubeShape, Error, Opt, Result, remedy};
use regex::Regex;

use crate::derived::mosaic::open_frame;
use crate::labels::Alignment;
use crate::recent::Recent;
use crate::{Access, CubeInfo, OpenOptions, RowBuffer, Scaling, Source};

/// The most files of a cube that stay open.
const KEPT_OPEN: usize = 64;
/// The most files in a folder. Bands of thousands of cubes may share one.
const MAX_FILES: usize = 1 << 20;
/// The most names that a message lists.
const LISTED: usize = 5;

/// Which part of a file's path is the band: `*_{band}.png`, `TOA_{nm}nm.tif`, `{um}um/*.tif`.
#[derive(Clone, Debug)]
pub struct BandPattern {
    text: String,
    regex: Regex,
    quantity: Quantity,
    /// How many folders and files the pattern names.
    depth: usize,
}

/// Kind of the band's part of a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Quantity {
    /// The number of the band.
    Number,
    /// Its centre, in a unit of this many nm.
    Wavelength(u32),
}

const FIELDS: [(&str, Quantity); 3] = [
    ("{band}", Quantity::Number),
    ("{nm}", Quantity::Wavelength(1)),
    ("{um}", Quantity::Wavelength(1000)),
];

/// A band, ordered by number or wavelength.
#[derive(Clone, Debug)]
struct BandFile {
    /// The number, or the wavelength in nm.
    value: f64,
    path: PathBuf,
}

/// The files of the bands of a cube.
#[derive(Clone, Debug)]
pub struct BandsOfCube {
    /// Texts that the stars of the pattern match, with `_` between several.
    pub name: String,
    /// In the order of the bands.
    files: Vec<BandFile>,
    quantity: Quantity,
}

impl BandPattern {
    /// Parses a pattern with one of the fields `{band}`, `{nm}` and `{um}`.
    ///
    /// # Errors
    /// If it has none of them, or several.
    pub fn parse(text: &str) -> Result<Self> {
        let wrong = |what: String| {
            Error::conflict(what).with_remedy(
                "give a pattern with {band} for the number of the band, or {nm} or {um} for its wavelength, such as '*_{band}.png'",
            )
        };
        let found: Vec<_> = FIELDS.iter().filter(|(field, _)| text.contains(field)).collect();
        let [(field, quantity)] = found[..] else {
            return Err(wrong(format!("{text:?} does not say which part of a name is the band")));
        };
        let text = text.trim_start_matches("./");
        let Some((before, after)) = text.split_once(field) else {
            unreachable!("it contains the field")
        };
        if after.contains(field) || [before, after].iter().any(|part| part.contains(['{', '}'])) {
            return Err(wrong(format!("{text:?} has several fields")));
        }
        if text.starts_with('/') || text.ends_with('/') || text.split('/').any(|part| part == "..")
        {
            return Err(wrong(format!("{text:?} is not a pattern of files below a folder")));
        }
        let number = match quantity {
            Quantity::Number => r"(?<band>\d+)",
            Quantity::Wavelength(_) => r"(?<band>\d+(?:[.,]\d+)?)",
        };
        let regex = format!("^{}{number}{}$", expression(before), expression(after));
        let regex = Regex::new(&regex).map_err(|error| wrong(format!("{text:?}: {error}")))?;
        let depth = text.split('/').count();
        Ok(Self { text: text.to_owned(), regex, quantity: *quantity, depth })
    }

    /// The cubes in a folder, sorted by name, without the files and folders that are `excluded`.
    /// Empty if no file matches.
    ///
    /// # Errors
    /// If the folder cannot be listed.
    pub fn cubes_in(
        &self,
        folder: &Path,
        excluded: &dyn Fn(&Path) -> bool,
    ) -> Result<Vec<BandsOfCube>> {
        static RECENT: Recent<Vec<String>> = Recent::new();
        let names = match self.depth {
            // Each of thousands of cubes in one folder is opened by itself.
            1 => RECENT.get(folder, |names| names.len() > KEPT_OPEN, || names_in(folder, 1))?,
            depth => Arc::new(names_in(folder, depth)?),
        };
        let mut cubes: BTreeMap<Vec<&str>, Vec<BandFile>> = BTreeMap::new();
        for name in names.iter() {
            let Some(found) = self.regex.captures(name) else { continue };
            if is_excluded(folder, name, excluded) {
                continue;
            }
            let Some(value) = found["band"].replace(',', ".").parse::<f64>().ok() else { continue };
            let factor = match self.quantity {
                Quantity::Number => 1.0,
                Quantity::Wavelength(factor) => f64::from(factor),
            };
            let named: Vec<_> = self.regex.capture_names().collect();
            let stars = (1..found.len()).filter(|group| named[*group].is_none());
            let stars: Vec<&str> =
                stars.filter_map(|group| Some(found.get(group)?.as_str())).collect();
            let file = BandFile { value: value * factor, path: folder.join(name) };
            cubes.entry(stars).or_default().push(file);
        }
        let quantity = self.quantity;
        let cube = |(stars, mut files): (Vec<&str>, Vec<BandFile>)| {
            files.sort_by(|a, b| a.value.total_cmp(&b.value).then_with(|| a.path.cmp(&b.path)));
            BandsOfCube { name: stars.join("_"), files, quantity }
        };
        let cubes: Vec<_> = cubes.into_iter().map(cube).collect();
        let mut names = HashSet::new();
        if let Some(cube) = cubes.iter().find(|cube| !names.insert(&cube.name)) {
            return Err(Error::ambiguous(format!(
                "{:?} matches the files of two cubes in this folder, whose names would both be {:?}",
                self.text, cube.name
            ))
            .at(folder)
            .with_remedy(remedy!["write more of the names into the pattern of ", Opt::BandsFrom]));
        }
        Ok(cubes)
    }

    /// Opens the cube called `name` in a folder, or its only cube. `any_numbers` says that numbers
    /// of bands may be missing between others. Files that are `excluded` are not bands.
    ///
    /// # Errors
    /// If there is no such cube, a band is missing or has two files, or files differ in size or
    /// type.
    pub fn open(
        &self,
        folder: &Path,
        name: Option<&str>,
        any_numbers: bool,
        excluded: &dyn Fn(&Path) -> bool,
    ) -> Result<Box<dyn Source>> {
        let mut cubes = self.cubes_in(folder, excluded)?;
        let position = match name {
            Some(name) => cubes.iter().position(|cube| cube.name == name),
            None if cubes.len() > 1 => {
                let names = cubes.iter().take(LISTED).map(|cube| cube.name.clone()).collect();
                return Err(Error::ambiguous("the folder holds bands of several cubes")
                    .with_choices(names)
                    .at(folder)
                    .with_remedy("give the folder around it, or FOLDER::NAME"));
            }
            None => (!cubes.is_empty()).then_some(0),
        };
        let position = position.ok_or_else(|| {
            Error::conflict(format!("no file of the folder matches {:?}", self.text))
                .at(folder)
                .with_remedy(remedy!["correct ", Opt::BandsFrom])
        })?;
        let cube = cubes.swap_remove(position);
        cube.check(any_numbers).map_err(|error| error.at(folder))?;
        cube.open(folder)
    }
}

/// Whether a file, or one of the folders around it below `folder`, is excluded.
fn is_excluded(folder: &Path, name: &str, excluded: &dyn Fn(&Path) -> bool) -> bool {
    let path = folder.join(name);
    path.ancestors().take_while(|ancestor| *ancestor != folder).any(excluded)
}

/// The expression for the text around a field.
fn expression(text: &str) -> String {
    let letter = |letter: char| match letter {
        // Lazy, so that all digits are the band's.
        '*' => "([^/]*?)".to_owned(),
        '?' => "[^/]".to_owned(),
        other => regex::escape(other.encode_utf8(&mut [0; 4])),
    };
    text.chars().map(letter).collect()
}

/// The paths of the files `depth` levels below a folder, relative to it, sorted. Hidden files are
/// left out.
fn names_in(folder: &Path, depth: usize) -> Result<Vec<String>> {
    let mut names = Vec::new();
    add_names(folder, "", depth, &mut names)?;
    names.sort();
    Ok(names)
}

fn add_names(folder: &Path, prefix: &str, depth: usize, names: &mut Vec<String>) -> Result<()> {
    let fail = |error| Error::io(folder, "cannot list", error);
    let is_hidden = |name: &OsStr| name.as_encoded_bytes().starts_with(b".");
    for entry in folder.read_dir().map_err(fail)? {
        let entry = entry.map_err(fail)?;
        let (name, path) = (entry.file_name(), entry.path());
        let Some(text) = name.to_str().filter(|_| !is_hidden(&name)) else { continue };
        let text = format!("{prefix}{text}");
        match (depth, path.is_dir()) {
            (1, false) => names.push(text),
            (2.., true) => add_names(&path, &format!("{text}/"), depth - 1, names)?,
            _ => {}
        }
        if names.len() > MAX_FILES {
            return Err(Error::unsupported("the folder has more than a million files").at(folder));
        }
    }
    Ok(())
}

impl BandsOfCube {
    /// The bands of `other` that this cube lacks, if it has no band that `other` lacks: then files
    /// may be missing.
    pub fn lacks(&self, other: &Self) -> Vec<String> {
        let has = |cube: &Self, value: f64| {
            cube.files.binary_search_by(|file| file.value.total_cmp(&value)).is_ok()
        };
        if self.files.iter().any(|file| !has(other, file.value)) {
            return Vec::new();
        }
        let missing = other.files.iter().filter(|file| !has(self, file.value));
        missing.map(|file| self.label(file.value)).collect()
    }

    /// The number of bands.
    pub fn bands(&self) -> usize {
        self.files.len()
    }

    fn label(&self, value: f64) -> String {
        match self.quantity {
            Quantity::Number => value.to_string(),
            Quantity::Wavelength(_) => format!("{value} nm"),
        }
    }

    /// Refuses bands with two files, and missing numbers.
    fn check(&self, any_numbers: bool) -> Result<()> {
        if let Some(pair) = self.files.windows(2).find(|pair| pair[0].value == pair[1].value) {
            let name = |file: &BandFile| {
                file.path.file_name().unwrap_or_default().to_string_lossy().into_owned()
            };
            return Err(Error::conflict(format!(
                "band {} has two files: {} and {}",
                self.label(pair[0].value),
                name(&pair[0]),
                name(&pair[1])
            ))
            .with_remedy(remedy!["make ", Opt::BandsFrom, " match one of them"]));
        }
        if self.quantity != Quantity::Number || any_numbers {
            return Ok(());
        }
        let gaps = self.files.windows(2).filter(|pair| pair[0].value + 1.0 < pair[1].value);
        let missing: Vec<String> = gaps
            .flat_map(|pair| {
                let numbers = (1..).map(|step| pair[0].value + f64::from(step));
                numbers.take_while(|number| *number < pair[1].value).take(LISTED + 1)
            })
            .take(LISTED + 1)
            .map(|number| number.to_string())
            .collect();
        match missing.is_empty() {
            true => Ok(()),
            false => Err(self.missing(missing).with_remedy(remedy![
                "add their files; if the cube has no such bands, give the centre of each of its bands with ",
                Opt::BandCenters
            ])),
        }
    }

    /// The error that bands are missing.
    pub fn missing(&self, mut bands: Vec<String>) -> Error {
        if bands.len() > LISTED {
            bands.truncate(LISTED);
            bands.push("…".to_owned());
        }
        let cube =
            if self.name.is_empty() { String::new() } else { format!("cube {:?}: ", self.name) };
        Error::conflict(format!("{cube}files of bands are missing: {}", bands.join(", ")))
    }

    fn open(self, folder: &Path) -> Result<Box<dyn Source>> {
        let mut sources = Vec::new();
        let (mut first, mut scaling): (Option<CubeInfo>, Vec<Scaling>) = (None, Vec::new());
        let (mut spectrum, mut beside) = (Spectrum::default(), BTreeSet::new());
        for file in &self.files {
            let source = open_band(&file.path)?;
            let info = source.info();
            scaling.push(info.scaling_of(0));
            spectrum.add(info);
            beside.extend(info.files.iter().filter(|beside| **beside != file.path).cloned());
            let first = first.get_or_insert_with(|| info.clone());
            if info.shape != first.shape || info.dtype != first.dtype {
                let size = |info: &CubeInfo| {
                    format!("{}x{} {}", info.shape.rows, info.shape.columns, info.dtype)
                };
                let first_name = first.files[0].file_name().unwrap_or_default().to_string_lossy();
                return Err(Error::conflict(format!(
                    "this band is {}, but {first_name} is {}",
                    size(info),
                    size(first)
                ))
                .at(&file.path)
                .with_remedy("bands of a cube have one size and type; correct the file, or leave it out of the pattern"));
            }
            let size = [info.shape.rows, info.shape.columns];
            if let (Some(other), Some(ours)) = (&first.geo, &info.geo)
                && Alignment::of(other, size, ours, size) == Alignment::Elsewhere
            {
                let other = first.files[0].file_name().unwrap_or_default().to_string_lossy();
                return Err(Error::conflict(format!(
                    "this band lies elsewhere on Earth than {other}, by the coordinates in both files"
                ))
                .at(&file.path)
                .with_remedy("warp the bands of a cube to the same pixels (gdalwarp), or correct or remove the coordinates of one of the files"));
            }
            let bits = |value: Option<f64>| value.map(f64::to_bits);
            if bits(info.ignore_value) != bits(first.ignore_value) {
                let marker = |value: Option<f64>| {
                    value.map_or_else(|| "nothing".to_owned(), |value| value.to_string())
                };
                let other = first.files[0].file_name().unwrap_or_default().to_string_lossy();
                return Err(Error::conflict(format!(
                    "{} marks missing values in this band, but {} in {other}",
                    marker(info.ignore_value),
                    marker(first.ignore_value)
                ))
                .at(&file.path)
                .with_remedy("give all bands of a cube the same nodata value"));
            }
            sources.push((self.files.len() <= KEPT_OPEN).then_some(source));
        }
        let Some(first) = first else {
            return Err(Error::conflict("there is no band").at(folder));
        };
        let shape = CubeShape { bands: self.files.len(), ..first.shape };
        crate::cube_size::check_size(shape, first.dtype).map_err(|error| error.at(folder))?;
        let format = format!("{}, a file for each band", first.format);
        let mut info = CubeInfo::new(format, shape, first.dtype, &first.files[0]);
        // Files of bands come first, in the order of the bands; others, such as headers, after them.
        info.files = self.files.iter().map(|file| file.path.clone()).chain(beside).collect();
        info.ignore_value = first.ignore_value;
        info.geo = first.geo;
        info.exposure = first.exposure;
        info.unit = first.unit;
        info.scale_bands(scaling);
        spectrum.describe(self.files.len(), &mut info);
        if self.quantity != Quantity::Number {
            info.wavelength = Some(self.files.iter().map(|file| file.value).collect());
        }
        Ok(Box::new(BandFiles { info, sources }))
    }
}

/// Facts about bands from the files of bands.
#[derive(Default)]
struct Spectrum {
    wavelength: Vec<f64>,
    fwhm: Vec<f64>,
    good_bands: Vec<bool>,
    band_names: Vec<String>,
}

impl Spectrum {
    /// Adds the file of the next band.
    fn add(&mut self, info: &CubeInfo) {
        self.wavelength.extend(info.wavelength.iter().flatten());
        self.fwhm.extend(info.fwhm.iter().flatten());
        self.good_bands.extend(info.good_bands.iter().flatten());
        self.band_names.extend(info.band_names.iter().flatten().cloned());
    }

    /// Describes the bands of the cube by those lists to which all files contribute.
    fn describe(self, bands: usize, info: &mut CubeInfo) {
        info.wavelength = Some(self.wavelength).filter(|list| list.len() == bands);
        info.fwhm = Some(self.fwhm).filter(|list| list.len() == bands);
        info.good_bands = Some(self.good_bands).filter(|list| list.len() == bands);
        info.band_names = Some(self.band_names).filter(|list| list.len() == bands);
    }
}

/// Opens the file of a band.
fn open_band(path: &Path) -> Result<Box<dyn Source>> {
    let source = open_frame(path, &OpenOptions::default())?;
    match source.info().shape.bands {
        1 => Ok(source),
        bands => {
            Err(Error::conflict(format!("this file of one band has {bands}")).at(path).with_remedy(
                remedy!["make ", Opt::BandsFrom, " match files of one band, in grayscale"],
            ))
        }
    }
}

/// A cube with a file for each band.
struct BandFiles {
    info: CubeInfo,
    /// The open files, unless there are too many.
    sources: Vec<Option<Box<dyn Source>>>,
}

impl Source for BandFiles {
    fn info(&self) -> &CubeInfo {
        &self.info
    }

    fn access(&self) -> Access {
        let of_first = self.sources.first().and_then(Option::as_ref);
        of_first.map_or(Access::Sequential, |source| source.access())
    }

    /// Every read passes over all files, some of which are streams, so it takes as many rows as
    /// possible.
    fn preferred_rows(&self, budget: usize) -> usize {
        (budget / 2 / self.info.row_bytes().max(1)).clamp(1, self.info.shape.rows)
    }

    fn read_rows(&self, rows: Range<usize>, out: &mut RowBuffer) -> Result<()> {
        let CubeShape { columns, bands, .. } = self.info.shape;
        let size = self.info.dtype.size();
        let pixels = rows.len() * columns;
        let to = out.reset(self.info.dtype, pixels * bands);
        let mut band_buffer = RowBuffer::new();
        for band in 0..bands {
            self.read_band(band, rows.clone(), &mut band_buffer)?;
            let values = band_buffer.bytes().chunks_exact(size);
            for (pixel, value) in to.chunks_exact_mut(bands * size).zip(values) {
                pixel[band * size..][..size].copy_from_slice(value);
            }
        }
        Ok(())
    }

    fn has_cheap_bands(&self) -> bool {
        self.access() == Access::Random
    }

    fn read_band(&self, band: usize, rows: Range<usize>, out: &mut RowBuffer) -> Result<()> {
        if let Some(source) = &self.sources[band] {
            return source.read_rows(rows, out);
        }
        let source = open_band(&self.info.files[band])?;
        let (ours, theirs) = (&self.info, source.info());
        if (theirs.shape, theirs.dtype) != (CubeShape { bands: 1, ..ours.shape }, ours.dtype) {
            return Err(Error::conflict("the file changed while it was read").at(&ours.files[band]));
        }
        source.read_rows(rows, out)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn folder(files: &[&str]) -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        for file in files {
            let path = folder.path().join(file);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, "x").unwrap();
        }
        folder
    }

    /// The cubes in a folder with their bands.
    fn found(pattern: &str, files: &[&str]) -> Vec<(String, Vec<f64>)> {
        let folder = folder(files);
        let cubes =
            BandPattern::parse(pattern).unwrap().cubes_in(folder.path(), &|_| false).unwrap();
        let values = |cube: &BandsOfCube| cube.files.iter().map(|file| file.value).collect();
        cubes.iter().map(|cube| (cube.name.clone(), values(cube))).collect()
    }

    #[test]
    fn the_text_around_the_band_names_the_cube() {
        let files = ["a_10.png", "a_2.png", "b_1.png", "picture.bmp", ".a_3.png", "a_x.png"];
        let of = |name: &str, values: &[f64]| (name.to_owned(), values.to_vec());
        assert_eq!(found("*_{band}.png", &files), [of("a", &[2.0, 10.0]), of("b", &[1.0])]);
        let files = ["TOA_450nm.tif", "TOA_1020.5nm.tif", "BOA_450nm.tif"];
        assert_eq!(found("TOA_{nm}nm.tif", &files), [of("", &[450.0, 1020.5])]);
        assert_eq!(found("*{um}um.tif", &["0.4um.tif", "0.5um.tif"]), [of("", &[400.0, 500.0])]);
        let files = ["1/a.png", "2/a.png", "2/b.png", "c_3.png"];
        assert_eq!(found("{band}/*.png", &files), [of("a", &[1.0, 2.0]), of("b", &[2.0])]);
        assert!(found("*_{band}.png", &["x.tif"]).is_empty());
    }

    #[test]
    fn excluded_files_and_folders_are_no_bands() {
        let folder = folder(&["a_1.png", "a_2.png", "a_10.png", "x/2.png", "y/1.png"]);
        let bands = |pattern: &str, name: &str| {
            let excluded = |path: &Path| path.file_name() == Some(OsStr::new(name));
            let cubes = BandPattern::parse(pattern).unwrap().cubes_in(folder.path(), &excluded);
            cubes.unwrap().iter().map(BandsOfCube::bands).sum::<usize>()
        };
        assert_eq!((bands("a_{band}.png", "a_10.png"), bands("a_{band}.png", "b")), (2, 3));
        assert_eq!((bands("*/{band}.png", "x"), bands("*/{band}.png", "b")), (1, 2));
    }

    #[test]
    fn patterns_without_a_band_are_refused() {
        for text in
            ["*.png", "{band}_{nm}.png", "{band}{band}", "/a/{band}", "../{band}", "{foo}{band}"]
        {
            assert!(BandPattern::parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn missing_and_double_bands_are_named() {
        let cubes = |files: &[&str]| {
            let folder = folder(files);
            BandPattern::parse("*_{band}.*").unwrap().cubes_in(folder.path(), &|_| false).unwrap()
        };
        let error = |files: &[&str]| cubes(files)[0].check(false).unwrap_err().to_string();
        assert!(error(&["a_1.png", "a_3.png", "a_6.png"]).contains("missing: 2, 4, 5"));
        assert!(cubes(&["a_1.png", "a_3.png"])[0].check(true).is_ok());
        let double = cubes(&["a_1.png", "a_01.png"]);
        assert!(double[0].check(true).unwrap_err().to_string().contains("a_01.png and a_1.png"));
        let both = cubes(&["a_1.p", "a_2.p", "b_1.p", "b_2.p", "b_3.p", "c_4.p"]);
        assert_eq!(both[0].lacks(&both[1]), ["3"]);
        assert!(both[1].lacks(&both[0]).is_empty() && both[2].lacks(&both[1]).is_empty());
    }
}
