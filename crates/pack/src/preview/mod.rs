//! Pictures: a cube in colour with its mask and spectra, or a contact sheet of a dataset.
//!
//! | file | job |
//! |---|---|
//! | `sampling.rs` | chooses the pixels to read |
//! | `gather.rs` | reads them in one pass |
//! | `bands.rs` | chooses the bands for red, green and blue |
//! | `stretch.rs` | turns values into colours |
//! | `classes.rs` | the mask: classes, their pixels and colours |
//! | `palette.rs` | colours |
//! | `canvas.rs`, `text.rs` | shapes, text, PNG |
//! | `chart.rs` | axes, lines, legend |
//! | `page.rs` | layout of the page |
//! | `pictures.rs` | contact sheets of given pictures |
//!
//! At most 1024 rows and columns of a cube are read, evenly spread, so that memory does not grow
//! with the cube. Every run reads the same pixels.

mod bands;
mod canvas;
mod chart;
mod classes;
mod gather;
mod page;
pub mod palette;
pub mod pictures;
pub(crate) mod sampling;
mod stretch;
mod text;

use std::borrow::Cow;
use std::path::{Path, PathBuf};

use hsipack_format::metadata::Scaling;
use hsipack_format::{Error, Opt, Result, Sample, remedy};
use hsipack_source::Source;
use hsipack_store::dataset::ChunkArray;
use hsipack_store::{Dataset, Stack, mirror, threads};
use serde::Serialize;
use serde_json::Value;

use crate::convert::stats::BandStats;
use crate::export::find_mask;
use crate::input::Input;
use crate::physical::{Cube, readers};
use crate::session::Session;
use crate::spectra::Curve;
use crate::target::{self, Target};
pub use bands::{Preset, presets};
use chart::{Chart, Line};
use classes::ClassMap;
pub use classes::{Meaning, packed_values};
use gather::{Gathered, gather};
use page::{Cell, Words};
pub use sampling::{Sampling, spread};
use stretch::stretch_like;
pub use stretch::{Image, stretch};

/// The most rows and columns of one picture.
const SIDE: usize = 1024;
/// The most rows and columns of each of two pictures side by side.
const SIDE_OF_TWO: usize = 660;
/// The most rows of a picture that is at least twice as high as wide.
const SIDE_OF_TALL: usize = 760;
/// The most pictures on a contact sheet.
const CELLS: usize = 12;
/// The most stacks whose spectra are drawn.
const STACKS: usize = 8;
/// Spectra share a chart if none exceeds another by more than this factor.
const ALIKE: f64 = 10.0;

/// The cubes to draw, and the file.
#[derive(Clone, Debug)]
#[cfg_attr(feature = "clap", derive(clap::Args))]
pub struct PreviewOptions {
    /// A cube, file::variable, an archive of one cube, or a packed dataset (a folder, or its URL)
    pub path: String,
    /// Picture to write (.png); an earlier preview of that name is replaced
    #[cfg_attr(feature = "clap", arg(short, long, value_name = "PNG"))]
    pub output: PathBuf,
    /// Sample of a dataset to draw: its id, counted from 0, or its name. If it may be both, write
    /// id:3 or name:3
    /// [default: a contact sheet of up to 12 samples]
    #[cfg_attr(feature = "clap", arg(long, value_name = "N|NAME"))]
    pub sample: Option<String>,
    /// Mask of the dataset to draw [default: the first mask of a sample; none on contact sheets]
    #[cfg_attr(feature = "clap", arg(long, value_name = "NAME"))]
    pub mask: Option<String>,
    /// Mask file to show: a file, or file::variable (PNG, NumPy, MATLAB, ENVI, TIFF, HDF5), of a
    /// cube [default: none]
    #[cfg_attr(feature = "clap", arg(long, value_name = "FILE", conflicts_with = "mask"))]
    pub mask_file: Option<String>,
    /// Order of the axes of an array, such as byx [default: what the file says, otherwise yxb]
    ///
    /// Name the axes in the index order of the file's own tool (NumPy, MATLAB, h5py): y, x and b
    /// (row, column, band) once each, and 1 for axes of length 1 to drop, as in 11yxb.
    #[cfg_attr(feature = "clap", arg(long, value_name = "ORDER"))]
    pub axes: Option<String>,
    /// Overwrite the output if it exists and is not an earlier preview
    /// [default: such a file is an error]
    #[cfg_attr(feature = "clap", arg(long))]
    pub force: bool,
}

/// The result of a preview.
#[derive(Clone, Debug, Serialize)]
pub struct Previewed {
    /// The file.
    pub output: PathBuf,
    /// Names of the cubes in it.
    pub cubes: Vec<String>,
    /// Descriptions of the pictures.
    pub captions: Vec<String>,
}

/// Draws a preview.
///
/// # Errors
/// If the path, sample or mask does not exist or cannot be read, or the picture cannot be written.
pub fn preview(options: &PreviewOptions) -> Result<Previewed> {
    canvas::check_output(&options.output, options.force)?;
    let _inputs = Session::begin();
    preview_here(options).map_err(mirror::error_with_urls)
}

fn preview_here(options: &PreviewOptions) -> Result<Previewed> {
    match Target::open(&options.path, options.axes.as_deref())? {
        Target::Cube(input, source) => preview_cube(options, &input, &*source),
        Target::Dataset(dataset) => preview_dataset(options, &dataset),
    }
}

fn preview_cube(options: &PreviewOptions, input: &Input, source: &dyn Source) -> Result<Previewed> {
    if options.sample.is_some() {
        return Err(Error::conflict(
            "a sample was chosen, but this is a cube, not a packed dataset",
        )
        .at(&input.file)
        .with_remedy(remedy!["leave out ", Opt::Sample]));
    }
    if let Some(mask) = &options.mask {
        return Err(Error::conflict(format!(
            "{mask} would be a mask of a dataset, but this is a cube"
        ))
        .at(&input.file)
        .with_remedy(remedy!["name the file of the mask with ", Opt::MaskFile]));
    }
    let cube = Cube::of_source(source);
    let shape = cube.shape;
    let mask = options.mask_file.as_deref();
    let sampling = sampling_of(&cube, mask.is_some());
    let map = mask.map(|mask| ClassMap::of_file(mask, shape.rows, shape.columns, &sampling));
    let file = mirror::url_of(&input.file).unwrap_or_else(|| input.file.clone());
    let file = Path::new(file.file_name().unwrap_or(file.as_os_str()));
    let title = Input { file: file.to_owned(), ..input.clone() }.text();
    draw_single(options, &title, &cube, &sampling, map.transpose()?.as_ref())
}

fn preview_dataset(options: &PreviewOptions, dataset: &Dataset) -> Result<Previewed> {
    if let Some(file) = &options.mask_file {
        return Err(Error::conflict(format!(
            "{file} would be the mask of a cube, but this is a dataset"
        ))
        .at(dataset.path())
        .with_remedy(remedy!["name a mask of the dataset with ", Opt::Masks]));
    }
    let sample = match (&options.sample, dataset.samples().len()) {
        (Some(text), _) => {
            let id = target::find_sample(dataset.samples(), dataset.path(), text)?;
            dataset.samples().get(id)?
        }
        (None, 1) => dataset.samples().get(0)?,
        (None, 0) => return Err(Error::damaged("the dataset has no samples").at(dataset.path())),
        (None, _) => return draw_sheet(options, dataset),
    };
    let cube = Cube::of_sample(dataset, &sample)?;
    let mask = mask_of(dataset, &sample, options.mask.as_deref(), true)?;
    let sampling = sampling_of(&cube, mask.is_some());
    let map = mask.map(|mask| ClassMap::of_sample(mask, sample.index, &sampling)).transpose()?;
    let title = format!("{} (sample {})", sample.name, sample.id);
    draw_single(options, &title, &cube, &sampling, map.as_ref())
}

/// The mask of a sample with the given name. Without a name, the first mask if `first` is set.
fn mask_of<'a>(
    dataset: &'a Dataset,
    sample: &Sample,
    name: Option<&str>,
    first: bool,
) -> Result<Option<&'a ChunkArray>> {
    let Some(stack) = dataset.stack(&sample.stack) else { return Ok(None) };
    match name {
        Some(name) => find_mask(dataset, stack, name).map(Some),
        None => Ok(stack.masks.first().filter(|_| first)),
    }
}

/// The pixels of a cube to read. There are fewer if two pictures are side by side, or if a tall
/// picture would not fit on a screen.
fn sampling_of(cube: &Cube, two: bool) -> Sampling {
    let (rows, columns) = (cube.shape.rows, cube.shape.columns);
    let side = match () {
        () if rows >= 2 * columns => SIDE_OF_TALL,
        () if two && columns < 2 * rows => SIDE_OF_TWO,
        () => SIDE,
    };
    Sampling::new(rows, columns, side)
}

fn draw_single(
    options: &PreviewOptions,
    title: &str,
    cube: &Cube,
    sampling: &Sampling,
    map: Option<&ClassMap>,
) -> Result<Previewed> {
    let choice =
        bands::choose(cube.shape.bands, cube.wavelength.as_deref(), cube.good_bands.as_deref());
    let Gathered { rgb, spectra } = gather(cube, sampling, choice.bands, map)?;
    let (image, without) = stretch_clear(sampling, &rgb, map);
    let without = match without.as_slice() {
        [] => String::new(),
        names => format!(" of the pixels without {}", names.join(", ")),
    };
    let mut captions = vec![format!(
        "{}; each channel stretched from its 2nd to its 98th percentile{without}.",
        choice.caption
    )];
    captions.extend(size_caption(cube, sampling));
    captions.extend(map.map(|map| {
        let more = if map.more > 0 { format!(" {} less frequent classes are tinted, too.", map.more) } else { String::new() };
        format!("Mask '{}': its classes are laid over the second picture in the colours of the spectra.{more}", map.name)
    }));
    let lines: Vec<(String, String, palette::Colour, Curve)> = match map {
        None => {
            let detail = format!("{} px", spectra[0].pixels());
            vec![("all pixels".to_owned(), detail, palette::WHOLE, spectra[0].curve())]
        }
        Some(map) => (map.classes.iter().zip(&spectra))
            .map(|(class, spectrum)| {
                let share = percent(class.pixels, map.pixels() as u64);
                (class.label.clone(), share, class.colour, spectrum.curve())
            })
            .collect(),
    };
    let axis = Axis::of(cube.wavelength.as_deref(), cube.good_bands.as_deref(), cube.shape.bands);
    let lines = lines
        .into_iter()
        .map(|(label, detail, colour, curve)| axis.line(label, detail, colour, curve));
    let chart = chart(lines.collect(), axis.wavelengths);
    let words = Words {
        title: title.to_owned(),
        subtitle: subtitle(cube),
        nodata: image.pixels.contains(&palette::NODATA),
        captions,
    };
    let mut images = vec![image];
    images.extend(map.map(|map| map.overlay(&images[0])));
    let (canvas, height) = page::single(&images, &words, &[chart])?;
    canvas.save(&options.output, height)?;
    Ok(Previewed {
        output: options.output.clone(),
        cubes: vec![title.to_owned()],
        captions: words.captions,
    })
}

/// Stretches a picture, by the pixels without clouds if the mask marks them. Returns it, and the
/// names of what was left out.
fn stretch_clear(
    sampling: &Sampling,
    rgb: &[[f32; 3]],
    map: Option<&ClassMap>,
) -> (Image, Vec<String>) {
    let (like, without) = match map.and_then(|map| map.clear(rgb)) {
        Some((clear, names)) => (Cow::Owned(clear), names),
        None => (Cow::Borrowed(rgb), Vec::new()),
    };
    (stretch_like(sampling.columns.len(), sampling.rows.len(), rgb, &like), without)
}

fn percent(part: u64, whole: u64) -> String {
    let share = part as f64 * 100.0 / whole.max(1) as f64;
    if share > 0.0 && share < 0.1 { "< 0.1 %".to_owned() } else { format!("{share:.1} %") }
}

fn subtitle(cube: &Cube) -> String {
    let shape = cube.shape;
    let mut text = format!(
        "{} × {} × {} (rows × columns × bands) · {}",
        shape.rows, shape.columns, shape.bands, cube.format
    );
    if let Some((low, high)) = nm_range(cube.wavelength.as_deref()) {
        text += &format!(" · {low:.0}–{high:.0} nm");
    }
    text
}

fn nm_range(nm: Option<&[f64]>) -> Option<(f64, f64)> {
    let nm = nm?;
    let low = nm.iter().copied().fold(f64::INFINITY, f64::min);
    let high = nm.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    (low <= high).then_some((low, high))
}

/// Says which pixels of the cube are shown and how they are stretched; `None` if neither needs a
/// note.
fn size_caption(cube: &Cube, sampling: &Sampling) -> Option<String> {
    let (rows, columns) = (sampling.rows.len(), sampling.columns.len());
    let mut parts = Vec::new();
    if (rows, columns) != (cube.shape.rows, cube.shape.columns) {
        parts.push(format!(
            "Shown are {rows} of {} rows and {columns} of {} columns, evenly spread; the spectra are of these pixels.",
            cube.shape.rows, cube.shape.columns
        ));
    }
    let (width, height) = page::shown_size(columns, rows);
    let (across, down) = (width / columns, height / rows);
    if across != down {
        parts.push(format!("Pixels are drawn {across} wide and {down} high to make them visible."));
    }
    (!parts.is_empty()).then(|| parts.join(" "))
}

/// The x axis of spectra.
struct Axis {
    x: Vec<f64>,
    drawn: Vec<bool>,
    wavelengths: bool,
}

impl Axis {
    /// Wavelengths if they are known, otherwise numbers of bands. Bad bands are gaps.
    fn of(wavelength: Option<&[f64]>, good: Option<&[bool]>, bands: usize) -> Self {
        Self {
            x: match wavelength {
                Some(nm) => nm.to_vec(),
                None => (0..bands).map(|band| band as f64).collect(),
            },
            drawn: good.map_or_else(|| vec![true; bands], <[bool]>::to_vec),
            wavelengths: wavelength.is_some(),
        }
    }

    fn line(&self, label: String, detail: String, colour: palette::Colour, curve: Curve) -> Line {
        Line { label, detail, colour, x: self.x.clone(), drawn: self.drawn.clone(), curve }
    }
}

fn chart(lines: Vec<Line>, wavelengths: bool) -> Chart {
    let mut remarks =
        vec!["Lines are means, bands around them ± one standard deviation.".to_owned()];
    if lines.iter().any(|line| line.drawn.contains(&false)) {
        remarks.push("Bad bands are gaps.".to_owned());
    }
    let x_title = if wavelengths { "Wavelength [nm]" } else { "Band number" };
    Chart {
        lines,
        x_title: x_title.to_owned(),
        whole: !wavelengths,
        y_title: "Physical value, mean ± standard deviation".to_owned(),
        remarks,
    }
}

fn draw_sheet(options: &PreviewOptions, dataset: &Dataset) -> Result<Previewed> {
    let samples = dataset.samples();
    let shown = spread(samples.len(), CELLS).into_iter().map(|id| samples.get(id));
    let shown = shown.collect::<Result<Vec<Sample>>>()?;
    let mask = options.mask.as_deref();
    let draw = |(): &mut (), sample: &Sample| cell(dataset, sample, mask);
    let cells = threads::in_turn(readers(), "preview", shown.iter(), || (), draw)?;
    let name = dataset.path().canonicalize().unwrap_or_else(|_| dataset.path().to_owned());
    let title = name.file_name().unwrap_or(name.as_os_str()).to_string_lossy().into_owned();
    let words = Words {
        title,
        subtitle: sheet_subtitle(dataset, shown.len()),
        captions: sheet_captions(dataset, options.mask.as_deref()),
        nodata: cells.iter().any(|cell| cell.image.pixels.contains(&palette::NODATA)),
    };
    let (canvas, height) = page::sheet(&cells, &words, &stack_charts(dataset)?)?;
    canvas.save(&options.output, height)?;
    let cubes = shown.into_iter().map(|sample| sample.name).collect();
    Ok(Previewed { output: options.output.clone(), cubes, captions: words.captions })
}

fn cell(dataset: &Dataset, sample: &Sample, mask: Option<&str>) -> Result<Cell> {
    let cube = Cube::of_sample(dataset, sample)?;
    let sampling = Sampling::new(cube.shape.rows, cube.shape.columns, page::CELL.0);
    let choice =
        bands::choose(cube.shape.bands, cube.wavelength.as_deref(), cube.good_bands.as_deref());
    let mut rgb = vec![[f32::NAN; 3]; sampling.pixels()];
    let bands = cube.shape.bands;
    for rows in sampling.reads(cube.block_rows()) {
        cube.read_rows(rows, &mut |row, column, values| {
            for (pixel, offset) in sampling.hits(row, column, values.len() / bands) {
                rgb[pixel] = choice.bands.map(|band| values[offset * bands + band] as f32);
            }
            Ok(())
        })?;
    }
    let map = mask_of(dataset, sample, mask, false)?
        .map(|mask| ClassMap::of_sample(mask, sample.index, &sampling))
        .transpose()?;
    let (mut image, _) = stretch_clear(&sampling, &rgb, map.as_ref());
    if let Some(map) = map {
        image = map.overlay(&image);
    }
    Ok(Cell { image, name: sample.name.clone(), detail: detail(sample) })
}

/// Text such as `sample 3 · train · tumour`.
fn detail(sample: &Sample) -> String {
    let label = sample.label.as_ref().map(|label| match label {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    });
    let parts =
        [Some(format!("sample {}", sample.id)), sample.split.clone(), sample.group.clone(), label];
    parts.into_iter().flatten().collect::<Vec<_>>().join(" · ")
}

fn sheet_subtitle(dataset: &Dataset, shown: usize) -> String {
    let count = dataset.samples().len();
    let stacks: Vec<String> = (dataset.stacks().iter().take(STACKS))
        .map(|stack| {
            let dtype = stack.image.meta().dtype;
            format!("{} × {} ({dtype})", stack.image.len(), stack.name)
        })
        .collect();
    let shown = if shown < count { format!(", {shown} of them shown") } else { String::new() };
    format!("{count} samples{shown} · packed dataset · {}", stacks.join(", "))
}

fn sheet_captions(dataset: &Dataset, mask: Option<&str>) -> Vec<String> {
    let mut captions: Vec<String> = Vec::new();
    let several = dataset.stacks().len() > 1;
    for stack in dataset.stacks().iter().take(STACKS) {
        let good = stack.image.meta().band_notes().good_bands;
        let bands = stack.image.shape().bands;
        let choice = bands::choose(bands, stack.wavelength.as_deref(), good.as_deref());
        let caption = match several {
            true => format!("{}: {}.", stack.name, choice.caption),
            false => format!("{}.", choice.caption),
        };
        if !captions.contains(&caption) {
            captions.push(caption);
        }
    }
    captions.push(
        "Each channel of each picture is stretched from its 2nd to its 98th percentile.".to_owned(),
    );
    captions.extend(mask.map(|mask| format!("The classes of mask '{mask}' are laid over.")));
    captions
}

/// Charts with the spectra of the stacks, from the statistics that packing stored. Stacks share a
/// chart only if their values have a similar magnitude, so that no spectrum becomes a flat line at
/// the bottom.
fn stack_charts(dataset: &Dataset) -> Result<Vec<Chart>> {
    let stacks: Vec<&Stack> = dataset.stacks().iter().take(STACKS).collect();
    let wavelengths = stacks.iter().all(|stack| stack.wavelength.is_some());
    let mut lines = Vec::new();
    for (index, stack) in stacks.iter().enumerate() {
        lines.extend(stack_line(stack, index, wavelengths)?);
    }
    let groups = by_magnitude(lines);
    Ok(groups.into_iter().map(|lines| chart(lines, wavelengths)).collect())
}

fn stack_line(stack: &Stack, index: usize, wavelengths: bool) -> Result<Option<Line>> {
    let bands = stack.image.shape().bands;
    if !stack.image.meta().has_statistics() {
        return Ok(None);
    }
    let stats = BandStats::of(stack.image.meta())
        .map_err(|error| error.at(stack.image.folder().join("zarr.json")))?;
    let nm = stack.wavelength.as_deref().filter(|_| wavelengths);
    let axis = Axis::of(nm, stack.image.meta().band_notes().good_bands.as_deref(), bands);
    let detail = match stack.image.len() {
        1 => "1 cube".to_owned(),
        cubes => format!("{cubes} cubes"),
    };
    let curve = stats_curve(&stats, stack.image.scaling());
    let colour = palette::class_colour(index + 1);
    Ok(Some(axis.line(stack.name.clone(), detail, colour, curve)))
}

/// Groups lines so that in each group the largest is at most [`ALIKE`] times the smallest. Lines
/// keep their order.
fn by_magnitude(lines: Vec<Line>) -> Vec<Vec<Line>> {
    let mut groups: Vec<(f64, f64, Vec<Line>)> = Vec::new();
    for line in lines {
        let size = line.magnitude();
        let fits =
            |(low, high, _): &&mut (f64, f64, Vec<Line>)| high.max(size) <= low.min(size) * ALIKE;
        match groups.iter_mut().find(fits) {
            Some((low, high, members)) => {
                (*low, *high) = (low.min(size), high.max(size));
                members.push(line);
            }
            None => groups.push((size, size, vec![line])),
        }
    }
    groups.into_iter().map(|(_, _, lines)| lines).collect()
}

fn stats_curve(stats: &BandStats, scaling: Scaling) -> Curve {
    let value_or_nan = |count: u64, value: f64| if count == 0 { f64::NAN } else { value };
    Curve {
        mean: stats
            .0
            .iter()
            .map(|band| value_or_nan(band.count, scaling.physical(band.mean)))
            .collect(),
        std: stats
            .0
            .iter()
            .map(|band| value_or_nan(band.count, band.std() * scaling.factor.abs()))
            .collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stacks_of_other_magnitudes_get_charts_of_their_own() {
        let line = |value: f64| {
            let curve = Curve { mean: vec![value], std: vec![0.0] };
            Axis::of(None, None, 1).line(value.to_string(), String::new(), palette::WHOLE, curve)
        };
        let groups = by_magnitude([0.5, 2000.0, 0.1, 900.0, f64::NAN].map(line).into());
        let names: Vec<Vec<&str>> = (groups.iter())
            .map(|group| group.iter().map(|line| line.label.as_str()).collect())
            .collect();
        assert_eq!(names, [vec!["0.5", "0.1"], vec!["2000", "900"], vec!["NaN"]]);
    }

    #[test]
    fn shares_are_never_rounded_to_nothing() {
        assert_eq!(percent(1, 100_000), "< 0.1 %");
        assert_eq!((percent(0, 5), percent(1, 3)), ("0.0 %".to_owned(), "33.3 %".to_owned()));
    }
}
