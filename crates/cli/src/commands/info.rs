//! `hsipack info`; `info/` counts the pixels of classes.

mod pixels;

use std::collections::BTreeMap;
use std::process::ExitCode;

use hsipack_format::geo::Unit;
use hsipack_format::{Geo, Result};
use hsipack_pack::convert::band_ranges;
use hsipack_pack::info::{
    BoxesReport, CubeReport, DatasetReport, ImageReport, MaskReport, ScalingReport, StackReport,
    TargetReport, Values, Wavelengths,
};
use hsipack_pack::target::Target;
use hsipack_store::mirror;
use serde::Serialize;

use crate::output;

/// Show what a cube or a packed dataset holds.
///
/// PATH is a cube in any input format (file, or file::variable inside a container), an archive of
/// one cube or archive.zip/folder/file, or a packed dataset. If a container holds several cubes,
/// the variables to choose from are listed. Values are physical: missing values are skipped, and
/// the file's scaling is applied.
#[derive(clap::Args)]
#[command(after_long_help = KEYS)]
pub struct Args {
    /// A cube, file::variable, an archive of one cube, or a packed dataset (a folder, or its URL)
    path: String,

    /// Print the report as one JSON object on stdout; its keys are stable and listed by --help
    #[arg(long)]
    json: bool,

    /// Do not read the values of a cube, so there is no range and no NaN count; values of datasets
    /// are never read [default: every value is read]
    #[arg(long)]
    quick: bool,

    /// Count the pixels of every class of a dataset's masks, in all cubes and in each split. Reads
    /// all masks
    #[arg(long, conflicts_with = "quick")]
    count_classes: bool,

    /// Order of the axes of an array, such as byx [default: what the file says, otherwise yxb]
    ///
    /// Name the axes in the index order of the file's own tool (NumPy, MATLAB, h5py): y, x and b
    /// (row, column, band) once each, and 1 for axes of length 1 to drop, as in 11yxb.
    #[arg(long, value_name = "ORDER")]
    axes: Option<String>,
}

const KEYS: &str = "\
Keys of --json (null where unknown; wavelengths in nm, sizes in bytes, bands counted from 0):
  cube:     kind path format shape dtype bytes file_bytes files wavelengths bad_bands band_names
            ignore_value scaling{multiply,divide,add} band_scaling[]{multiply,divide,add} empty_bands unit
            class_names geo{crs,transform,unit} quality_layers values notes
  dataset:  kind path layout samples stacks stored_bytes uncompressed_bytes ratio splits groups labels
            geo[]{crs,pixel_size,unit,samples} boxes{boxes,samples,labels} (if there are any) columns created_by created command appends
            earlier[]{samples,fingerprint} fingerprint
  stacks[]: name samples shape dtype scale_factor add_offset fill_value keep_bits chunk band_group chunk_bytes shards samples_per_shard
            codec{name,level,shuffle,checksum} stored_bytes uncompressed_bytes wavelengths bad_bands
            values quantisation{band,wavelength_nm,max_rel,mean_rel,max_abs,max_abs_band,
            max_abs_wavelength_nm}
            masks[]{name,dtype,layers,class_names,stored_bytes}
            targets[]{name,dtype,channels,channel_names,unit,stored_bytes}
            images[]{name,dtype,shape,ratio,band_names,wavelengths,unit,stored_bytes}
  class_pixels (with --count-classes): by mask, pixels classes[]{id,name,pixels,splits{NAME: pixels}}
  wavelengths: count min_nm max_nm order fwhm_nm        values: min max nan inf ignored

Examples:
  hsipack info scan.hdr
  hsipack info scene.h5::/reflectance/cube --quick
  hsipack info tissue.hsipack --json | jq .stacks[0].shape
  hsipack info tissue.hsipack --count-classes";

/// Runs the command.
///
/// # Errors
/// If the path is neither a cube nor a dataset, or cannot be read.
pub fn run(args: Args) -> Result<ExitCode> {
    let _inputs = mirror::session();
    describe(args).map_err(mirror::error_with_urls)
}

fn describe(args: Args) -> Result<ExitCode> {
    match Target::open(&args.path, args.axes.as_deref())? {
        Target::Cube(input, source) => {
            let report = CubeReport::new(&input, &*source, args.quick)?;
            output::report(&report, args.json, print_cube);
        }
        Target::Dataset(dataset) => {
            let class_pixels = args.count_classes.then(|| pixels::count(&args.path)).transpose()?;
            let report = Described { report: DatasetReport::new(&dataset)?, class_pixels };
            output::report(&report, args.json, |described| {
                print_dataset(&described.report);
                described.class_pixels.iter().for_each(pixels::print);
            });
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// A dataset, and the pixels of its classes if they were counted.
#[derive(Serialize)]
struct Described {
    #[serde(flatten)]
    report: DatasetReport,
    #[serde(skip_serializing_if = "Option::is_none")]
    class_pixels: Option<pixels::ByMask>,
}

/// Prints one line: a name in a column of its own, and a text.
fn line(name: &str, text: impl AsRef<str>) {
    say!("  {name:<15}{}", text.as_ref());
}

fn print_cube(report: &CubeReport) {
    let [rows, columns, bands] = report.shape;
    say!("{}", report.path);
    line("format", &report.format);
    line("shape", format!("{rows} x {columns} x {bands} (rows x columns x bands)"));
    line("type", format!("{} ({} of values)", report.dtype, output::bytes(report.bytes)));
    line("wavelengths", wavelengths(report.wavelengths.as_ref()));
    if let Some(bad) = &report.bad_bands {
        line("bad bands", bands_text(bad));
    }
    if !report.empty_bands.is_empty() {
        line("empty bands", bands_text(&report.empty_bands));
    }
    if let Some(value) = report.ignore_value {
        line("ignore value", value.to_string());
    }
    if let Some(scaling) = &report.scaling {
        line("scaling", scaling_text(scaling));
    }
    if let Some([first, .., last]) = report.band_scaling.as_deref() {
        let [first, last] = [first, last].map(scaling_text);
        line("scaling", format!("by band: {first} in the first, {last} in the last"));
    }
    if let Some(unit) = &report.unit {
        line("unit", unit);
    }
    if let Some(classes) = report.class_names.as_deref().and_then(classes_text) {
        line("classes", classes);
    }
    if let Some(geo) = &report.geo {
        line("location", place(geo.crs.as_deref(), geo.pixel_size(), geo.unit));
        line("footprint", footprint(geo, rows, columns));
    }
    if !report.quality_layers.is_empty() {
        let layers = report.quality_layers.join(", ");
        line("quality", format!("{layers} (a mask of them: --mask quality=product)"));
    }
    match &report.values {
        Some(all) => line("values", values(all, missing(report))),
        None => line("values", "not read (--quick)"),
    }
    line("files", format!("{} ({})", report.files.join(", "), output::bytes(report.file_bytes)));
    report.notes.iter().for_each(|note| line("note", note));
}

/// `value * 0.0001 - 0.5`; terms that change nothing are skipped.
fn scaling_text(scaling: &ScalingReport) -> String {
    let mut text = "value".to_owned();
    for (sign, factor, none) in
        [("*", scaling.multiply, 1.0), ("/", scaling.divide, 1.0), ("+", scaling.add, 0.0)]
    {
        if factor != none {
            let is_less = sign == "+" && factor < 0.0;
            let (sign, factor) = if is_less { ("-", -factor) } else { (sign, factor) };
            text += &match factor.abs() {
                1e-4.. => format!(" {sign} {factor}"),
                _ => format!(" {sign} {factor:e}"),
            };
        }
    }
    text
}

fn wavelengths(wavelengths: Option<&Wavelengths>) -> String {
    let Some(wavelengths) = wavelengths else { return "unknown".to_owned() };
    let order = if wavelengths.order == "ascending" {
        String::new()
    } else {
        format!(", {}", wavelengths.order)
    };
    let fwhm = wavelengths.fwhm_nm.map_or(String::new(), |[least, most]| {
        if output::number(least) == output::number(most) {
            format!(", fwhm {} nm", output::number(least))
        } else {
            format!(", fwhm {}-{} nm", output::number(least), output::number(most))
        }
    });
    let (least, most) = (output::number(wavelengths.min_nm), output::number(wavelengths.max_nm));
    format!("{least}-{most} nm ({}{order}){fwhm}", output::count(wavelengths.count, "band"))
}

/// A reference system and the size of pixels in it.
fn place(crs: Option<&str>, [width, height]: [f64; 2], unit: Option<Unit>) -> String {
    let unit = unit.map_or("", Unit::symbol);
    // For WKT, the name is enough.
    let name = |crs: &str| match crs.split('"').nth(1) {
        Some(name) => format!("\"{name}\" (WKT)"),
        None => crs.to_owned(),
    };
    let crs = crs.map_or_else(|| "unknown reference system".to_owned(), name);
    let (width, height) = (output::number(width), output::number(height));
    format!("{crs}, pixels of {width} x {height} {unit}").trim_end().to_owned()
}

/// The extent of the image along the axes of the reference system.
fn footprint(geo: &Geo, rows: usize, columns: usize) -> String {
    let (right, bottom) = (columns as f64, rows as f64);
    let corners = [(0.0, 0.0), (right, 0.0), (0.0, bottom), (right, bottom)]
        .map(|(column, row)| geo.at(column, row));
    let decimals = if geo.unit == Some(Unit::Degree) { 5 } else { 1 };
    let along = |axis: usize| {
        let least = corners.iter().map(|corner| corner[axis]).fold(f64::INFINITY, f64::min);
        let most = corners.iter().map(|corner| corner[axis]).fold(f64::NEG_INFINITY, f64::max);
        format!("{} to {}", rounded(least, decimals), rounded(most, decimals))
    };
    let turned = if geo.is_north_up() { "" } else { "; not north up" };
    match geo.unit {
        Some(Unit::Degree) => format!("longitude {}, latitude {}{turned}", along(0), along(1)),
        _ => format!("x {}, y {}{turned}", along(0), along(1)),
    }
}

/// A number with this many decimals, without trailing zeros.
fn rounded(value: f64, decimals: usize) -> String {
    let text = format!("{value:.decimals$}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

/// `none`, or ranges: `0-2, 81 (4 bands)`.
fn bands_text(bands: &[usize]) -> String {
    if bands.is_empty() {
        return "none".to_owned();
    }
    format!("{} ({})", band_ranges(bands), output::count(bands.len(), "band"))
}

/// Which values of a cube are missing.
fn missing(report: &CubeReport) -> &'static str {
    match (report.ignore_value.is_some(), report.empty_bands.is_empty()) {
        (true, true) => "equal to the ignore value",
        (true, false) => "equal to the ignore value or in empty bands",
        (false, _) => "in empty bands",
    }
}

/// The range and the counts of values. `missing` says which values are missing.
fn values(all: &Values, missing: &str) -> String {
    let range = match (all.min, all.max) {
        (Some(min), Some(max)) => format!("{} to {}", output::number(min), output::number(max)),
        _ => "none is finite".to_owned(),
    };
    let mut text = format!("{range}, {} NaN", all.nan);
    if all.ignored > 0 {
        text += &format!(", {} {missing}", all.ignored);
    }
    if all.inf > 0 {
        text += &format!(", {} infinite", all.inf);
    }
    text
}

/// `1 grass, 2 soil`; `None` if no class has a name.
fn classes_text(names: &[String]) -> Option<String> {
    const SHOWN: usize = 8;
    // Not all classes need have names.
    let named = || names.iter().enumerate().filter(|(_, name)| !name.is_empty());
    let count = named().count();
    let more = if count > SHOWN { format!(", … ({count} classes)") } else { String::new() };
    let shown = named().take(SHOWN).map(|(id, name)| format!("{id} {name}"));
    (count > 0).then(|| format!("{}{more}", shown.collect::<Vec<_>>().join(", ")))
}

fn print_dataset(report: &DatasetReport) {
    say!("{}", report.path);
    line(
        "samples",
        format!("{} in {}", report.samples, output::count(report.stacks.len(), "stack")),
    );
    line(
        "size",
        format!(
            "{} stored, {} uncompressed (ratio {:.2})",
            output::bytes(report.stored_bytes),
            output::bytes(report.uncompressed_bytes),
            report.ratio
        ),
    );
    for geo in &report.geo {
        let of = output::count(geo.samples, "sample");
        line("location", format!("{} ({of})", place(geo.crs.as_deref(), geo.pixel_size, geo.unit)));
    }
    for (name, counts) in
        [("splits", &report.splits), ("groups", &report.groups), ("labels", &report.labels)]
    {
        if !counts.is_empty() {
            line(name, counts_text(counts));
        }
    }
    if let Some(BoxesReport { boxes, samples, labels }) = &report.boxes {
        let (boxes, samples) = (output::count(*boxes, "box"), output::count(*samples, "sample"));
        line("boxes", format!("{boxes} in {samples}: {}", counts_text(labels)));
    }
    if !report.columns.is_empty() {
        line("columns", report.columns.join(", "));
    }
    let created = report.created.as_deref().unwrap_or("at an unknown time");
    line("created", format!("{created} by {}", report.created_by.as_deref().unwrap_or("?")));
    if report.appends > 0 {
        line("appended", output::count(report.appends, "time"));
    }
    if let Some(command) = &report.command {
        line("command", command);
    }
    for earlier in &report.earlier {
        let samples = output::count(earlier.samples as usize, "sample");
        line("earlier", format!("{samples}, fingerprint {}", earlier.fingerprint));
    }
    line("fingerprint", &report.fingerprint);
    report.stacks.iter().for_each(print_stack);
}

/// `train 80, test 20, none 3`: the most frequent first.
fn counts_text(counts: &BTreeMap<String, usize>) -> String {
    const SHOWN: usize = 8;
    let mut sorted: Vec<(&String, &usize)> = counts.iter().collect();
    sorted.sort_by_key(|(name, count)| (std::cmp::Reverse(**count), *name));
    let label = |(name, count): &(&String, &usize)| {
        format!("{} {count}", if name.is_empty() { "(none)" } else { name })
    };
    let shown: Vec<String> = sorted.iter().take(SHOWN).map(label).collect();
    let more = if sorted.len() > SHOWN {
        format!(", … ({} in all)", sorted.len())
    } else {
        String::new()
    };
    format!("{}{more}", shown.join(", "))
}

fn print_stack(stack: &StackReport) {
    say!("\n  {}", stack.name);
    let line = |name: &str, text: String| say!("    {name:<15}{text}");
    line(
        "cubes",
        format!(
            "{} of {} in {} of up to {}",
            stack.samples,
            stack.dtype,
            output::count(stack.shards, "shard"),
            output::count(stack.samples_per_shard, "cube")
        ),
    );
    let [rows, columns] = stack.chunk;
    let bands = stack.band_group.map(|bands| format!(" x {bands} bands")).unwrap_or_default();
    let bytes = output::bytes(stack.chunk_bytes);
    line("chunks", format!("{rows}x{columns} pixels{bands} ({bytes})"));
    line("codec", codec(stack));
    let ratio = stack.uncompressed_bytes as f64 / stack.stored_bytes.max(1) as f64;
    line("stored", format!("{} (ratio {ratio:.2})", output::bytes(stack.stored_bytes)));
    line("wavelengths", wavelengths(stack.wavelengths.as_ref()));
    if let Some(bad) = &stack.bad_bands {
        line("bad bands", bands_text(bad));
    }
    if stack.scale_factor != 1.0 {
        line("scale factor", format!("{} (stored to physical)", stack.scale_factor));
    }
    if stack.add_offset != 0.0 {
        line("add offset", format!("{} (added last)", stack.add_offset));
    }
    if let Some(number) = stack.fill_value {
        line("fill value", format!("{number} (missing values)"));
    }
    if let Some(bits) = stack.keep_bits {
        let all = if stack.dtype == "float32" { 23 } else { 10 };
        line("kept bits", format!("{bits} of {all} mantissa bits; the others are zero"));
    }
    if let Some(all) = &stack.values {
        line("values", values(all, "missing"));
    }
    if let Some(worst) = &stack.quantisation {
        let nm = |nm: Option<f64>| {
            nm.map_or(String::new(), |nm| format!(" ({} nm)", output::number(nm)))
        };
        line(
            "packing error",
            format!(
                "up to {:.2e} relative, in band {}{}; {:.2e} absolute, in band {}{}",
                worst.max_rel,
                worst.band,
                nm(worst.wavelength_nm),
                worst.max_abs,
                worst.max_abs_band,
                nm(worst.max_abs_wavelength_nm),
            ),
        );
    }
    for mask in &stack.masks {
        line("mask", mask_text(mask));
    }
    for target in &stack.targets {
        line("target", target_text(target));
    }
    for image in &stack.images {
        line("further image", image_text(image));
    }
}

fn codec(stack: &StackReport) -> String {
    match &stack.codec {
        None => "none".to_owned(),
        Some(codec) => format!(
            "blosc {} level {}, {}{}",
            codec.name,
            codec.level,
            codec.shuffle,
            if codec.checksum { ", crc32c" } else { "" }
        ),
    }
}

fn mask_text(mask: &MaskReport) -> String {
    let meaning = match (&mask.class_names, mask.layers.as_slice()) {
        (_, [_, ..]) => format!(": layers {}", mask.layers.join(", ")),
        (Some(names), _) => match classes_text(names) {
            Some(classes) => format!(": classes {classes}"),
            None => String::new(),
        },
        _ => String::new(),
    };
    let made_by = mask.made_by.as_ref().map(|by| format!(", made by {by}")).unwrap_or_default();
    let stored = output::bytes(mask.stored_bytes);
    format!("{} ({}, {stored}){meaning}{made_by}", mask.name, mask.dtype)
}

fn target_text(target: &TargetReport) -> String {
    let channels = match (target.channels, &target.channel_names) {
        (1, _) => String::new(),
        (_, Some(names)) => format!(": channels {}", names.join(", ")),
        (count, None) => format!(": {count} channels"),
    };
    let unit = target.unit.as_ref().map(|unit| format!(", in {unit}")).unwrap_or_default();
    let stored = output::bytes(target.stored_bytes);
    format!("{} ({}{unit}, {stored}){channels}", target.name, target.dtype)
}

fn image_text(image: &ImageReport) -> String {
    let ImageReport { name, dtype, shape: [rows, columns, bands], .. } = image;
    let ratio = match image.ratio {
        [1, 1] => String::new(),
        [finer, 1] => format!(", {finer} pixels for each of the cube along each axis"),
        [_, coarser] => format!(", a pixel for {coarser} of the cube along each axis"),
    };
    let names = match &image.band_names {
        Some(names) if !names.is_empty() && names.len() <= 8 => {
            format!(": bands {}", names.join(", "))
        }
        _ => String::new(),
    };
    let waves = image.wavelengths.as_ref();
    let waves = waves.map(|range| format!(", {} to {} nm", range.min_nm, range.max_nm));
    let unit = image.unit.as_ref().map(|unit| format!(", in {unit}")).unwrap_or_default();
    let stored = output::bytes(image.stored_bytes);
    let shape = format!("{rows}x{columns}x{bands}");
    format!("{name} ({dtype} {shape}{ratio}{}{unit}, {stored}){names}", waves.unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scalings_read_as_sums() {
        let text = |divide, add| scaling_text(&ScalingReport { multiply: 1.0, divide, add });
        assert_eq!(text(100.0, -0.25), "value / 100 - 0.25");
        assert_eq!(text(1.0, 3e-5), "value + 3e-5");
    }

    #[test]
    fn footprints_are_from_edge_to_edge() {
        let utm = Geo::new(None, [634_200.5, 30.0, 0.0, 5_297_190.0, 0.0, -30.0]).unwrap();
        assert_eq!(footprint(&utm, 20, 24), "x 634200.5 to 634920.5, y 5296590 to 5297190");
        let turned = Geo::new(None, [0.0, 3.0, 4.0, 0.0, 4.0, -3.0]).unwrap();
        assert_eq!(footprint(&turned, 10, 10), "x 0 to 70, y -30 to 40; not north up");
        let degrees = Geo::new(None, [7.5, 1e-3, 0.0, 47.25, 0.0, -1e-3]).unwrap();
        let degrees = degrees.in_unit(Some(Unit::Degree));
        assert_eq!(footprint(&degrees, 5, 5), "longitude 7.5 to 7.505, latitude 47.245 to 47.25");
    }

    #[test]
    fn bands_come_in_ranges() {
        assert_eq!(bands_text(&[0, 1, 2, 81]), "0-2, 81 (4 bands)");
        assert_eq!(bands_text(&[]), "none");
    }
}
