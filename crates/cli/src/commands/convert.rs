//! `hsipack convert`.
//!
//! | file | part |
//! |---|---|
//! | `convert.rs` | arguments, how they become options, and the closing report |
//! | `config.rs` | options from a file (`--config`) |

mod config;

use std::path::PathBuf;
use std::process::ExitCode;

use hsipack_format::{Compressor, DType, Result, Shuffle};
use hsipack_pack::convert::parts::{self, Planned};
use hsipack_pack::convert::plan::{Plan, PlannedSample};
use hsipack_pack::convert::{
    self, BandSelection, ChunkShape, ConvertOptions, KeepBits, LayoutOptions, MaskOption, Mode,
    Nodata, Normalize, Reference, Report, Scale, ValueOptions,
};

use crate::task::Task;
use crate::{output, parse, typed};

/// Pack cubes into a new dataset, or add them to an existing one.
///
/// Inputs are ENVI, NumPy, MATLAB, HDF5/NetCDF-4/HDF-EOS, TIFF, Zarr, Tivita and HTC files, folders and archives
/// (.zip, .tar, .tar.gz, .tgz) of such files, or a CSV with a `path` column. Name a variable inside a container
/// as file::variable, and a file in an archive as archive.zip/folder/file.
#[derive(clap::Args)]
#[command(after_long_help = EXAMPLES)]
pub struct Args {
    /// Files, folders and archives (searched for cubes), globs in quotes, file::variable, CSV lists, or URLs of these.
    /// Hidden files in folders and globs are skipped
    #[arg(required = true, value_name = "INPUT")]
    inputs: Vec<String>,

    /// Dataset to write: a folder that does not exist yet, or a URL (s3://, gs://, az://) where nothing is stored yet
    #[arg(short, long, value_name = "OUT")]
    output: PathBuf,

    /// Read options from a TOML file, such as `hsipack tune --apply` writes. Keys are option names without the
    /// dashes, as in codec = "zstd". Options on the command line override the file
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,

    /// Continue an interrupted conversion or append (run the same command plus --resume)
    #[arg(long, conflicts_with = "dry_run")]
    resume: bool,

    /// Add the cubes to the dataset at OUT
    #[arg(long)]
    append: bool,

    /// Show what would be packed and the estimated size, and write nothing
    #[arg(long)]
    dry_run: bool,

    /// Only write a plan to FILE (a path or URL), for several processes or machines. Then run `hsipack work FILE
    /// --part I/N` anywhere, and `hsipack commit FILE` at the end
    #[arg(long, value_name = "FILE", conflicts_with = "dry_run")]
    plan: Option<PathBuf>,

    /// Print the closing report as one JSON object on stdout
    #[arg(long)]
    json: bool,

    /// Skip files below input folders whose path or name matches this glob (repeatable)
    #[arg(long, value_name = "GLOB", help_heading = "Inputs")]
    exclude: Vec<String>,

    /// Skip inputs that cannot be opened, and list them, instead of stopping
    #[arg(long, help_heading = "Inputs")]
    skip_errors: bool,

    /// Order of the axes of arrays, such as byx [default: what the file says, otherwise yxb]
    ///
    /// Name the axes in the index order of the file's own tool (NumPy, MATLAB, h5py): y, x and b (row, column, band) once
    /// each, and 1 for axes of length 1 to drop, as in 11yxb.
    #[arg(long, value_name = "ORDER", help_heading = "Inputs")]
    axes: Option<String>,

    /// CSV with a `name` column. The other columns (label, group, split, any) go to samples.jsonl as numbers,
    /// booleans (True, False) or text; empty cells become null
    ///
    /// The name of a cube is its path below the folder that was given, without the ending: day1/scan_01. For files and
    /// patterns it is the file's name without the ending: scan_01.
    #[arg(long, value_name = "CSV", help_heading = "Samples")]
    table: Option<PathBuf>,

    /// Regular expression for the path of each cube. Its named groups become columns, as in
    /// '(?P<group>patient\d+)/(?P<label>\w+)_'
    #[arg(long, value_name = "REGEX", help_heading = "Samples")]
    path_columns: Option<String>,

    /// Pack a mask with each cube: a path with {dir}, {stem}, {name} or {path} of the cube in it, such as
    /// '{dir}/{stem}_mask.png' or '{path}::gt' (repeatable) [default NAME: mask]
    ///
    /// Masks are PNG, NumPy, MATLAB, ENVI, TIFF or HDF5 files. A relative path is tried from the working directory and
    /// beside the cube. NAME:LAYER= packs boolean layers into the bits of one mask. The word `product` makes layers of
    /// the quality files of EnMAP, DESIS, PRISMA, … (quality=product).
    #[arg(long, value_name = "[NAME[:LAYER]=]PATTERN|product", value_parser = parse::mask, help_heading = "Samples")]
    mask: Vec<MaskOption>,

    /// Class id, 0 to 65535, for cubes that have no mask file [default: a missing mask is an error]
    #[arg(long, value_name = "ID", requires = "mask", help_heading = "Samples")]
    mask_fill: Option<u16>,

    /// Give classes of a mask new ids, such as tumour=3,7=3,*=255 (repeatable)
    /// [default: classes that are not named keep their ids]
    ///
    /// CLASS is a class id of the mask file, the name of a class in the file, or * for all other classes. With several
    /// masks, write NAME.CLASS=ID.
    #[arg(long, value_name = "CLASS=ID", value_delimiter = ',', value_parser = parse::new_class, requires = "mask", help_heading = "Samples")]
    classes: Vec<parse::NewClassArg>,

    /// Name the classes of a mask, such as 1=tumour,2=vessel (repeatable) [default: the names in the mask files]
    ///
    /// Tables, pictures and pages then show the names. ID is a class id as it is packed, after --classes is applied. With
    /// several masks, write the mask's name before it, such as organs.1=liver. Names cannot contain commas.
    #[arg(long, value_name = "ID=NAME", value_delimiter = ',', value_parser = parse::class_name, requires = "mask", help_heading = "Samples")]
    class_names: Vec<parse::ClassNameArg>,

    /// White reference: a cube of the same sensor, averaged over its rows
    ///
    /// Give a file for all cubes; or a pattern with {dir}, {stem} and {path} of each cube, such as {dir}/white/{stem}.hdr;
    /// or `auto` for the reference beside each cube, WHITEREF_NAME (Specim) or whiteReference (Headwall). Packs
    /// (value - dark) / (white - dark), each file in its own scale, times the ratio of integration times if they differ.
    /// --dry-run lists the references of each cube.
    #[arg(long, value_name = "FILE|PATTERN|auto", help_heading = "Values")]
    white: Option<Reference>,

    /// Dark reference, given like --white (auto takes DARKREF_NAME or darkReference)
    #[arg(long, value_name = "FILE|PATTERN|auto", help_heading = "Values")]
    dark: Option<Reference>,

    /// Reflectance of the white panel, above 0 and at most 1
    #[arg(
        long,
        value_name = "R",
        default_value_t = 1.0,
        requires = "white",
        help_heading = "Values"
    )]
    white_reflectance: f64,

    /// Bands to keep, counted from 0, in this order, such as 0,5,10-20 [default: all]
    #[arg(long, value_name = "LIST", value_parser = parse::bands, conflicts_with = "wavelengths", help_heading = "Values")]
    bands: Option<BandSelection>,

    /// Bands to keep, by centre wavelength in nm, both ends included, such as 450-700,1500-1800 [default: all]
    #[arg(long, value_name = "RANGES", value_parser = parse::wavelengths, help_heading = "Values")]
    wavelengths: Option<BandSelection>,

    /// Drop the bands that the file's bad-band list marks as bad
    #[arg(long, help_heading = "Values")]
    drop_bad_bands: bool,

    /// Normalise each spectrum
    ///
    /// l1 divides by the sum of magnitudes, l2 by the Euclidean norm. snv gives mean 0 and standard deviation 1 (over
    /// n - 1). Missing and infinite values are not counted, and are missing afterwards. A spectrum of zeros becomes
    /// zeros; with snv, so does a spectrum of equal values.
    #[arg(long, value_name = "NAME", value_parser = parse::one_of(&Normalize::ALL), default_value_t = Normalize::None, help_heading = "Values")]
    normalize: Normalize,

    /// How to pack missing values (the file's ignore value, and NaN), after normalising: as nan, as this
    /// VALUE, or not at all (error)
    #[arg(
        long,
        value_name = "nan|VALUE|error",
        default_value = "nan",
        allow_negative_numbers = true,
        help_heading = "Values"
    )]
    nodata: Nodata,

    /// Stored number that marks missing values; overrides the file
    #[arg(long, value_name = "VALUE", allow_negative_numbers = true, help_heading = "Values")]
    ignore_value: Option<f64>,

    /// Pack numbers as they are stored: do not apply the scale factor and offset of the file
    #[arg(long, help_heading = "Values")]
    raw_values: bool,

    /// Divide values by this factor before the cast. It is recorded as scale_factor, so that readers undo it
    ///
    /// auto takes a power of two for each cube shape, which is 1 unless values exceed 65504 or stay below 1/16. It reads
    /// every cube twice.
    #[arg(long, value_name = "none|auto|FACTOR", default_value = "none", help_heading = "Values")]
    scale: Scale,

    /// Type of the packed values
    #[arg(long, value_name = "TYPE", value_parser = parse::one_of(&[DType::F16, DType::F32]), default_value_t = DType::F16, help_heading = "Values")]
    dtype: DType,

    /// Round values to N mantissa bits; float16 has 10, float32 has 23
    ///
    /// The other bits become zero, and take almost no space once compressed. auto keeps as many bits as hold 99 % of the
    /// real information in a sample of the cubes. `hsipack tune` shows the gain and the cost.
    #[arg(long, value_name = "all|auto|N", default_value_t = KeepBits::All, help_heading = "Values")]
    keep_bits: KeepBits,

    /// Maximum difference of the wavelengths of cubes of one shape, in nm
    #[arg(long, value_name = "NM", default_value_t = 0.01, help_heading = "Values")]
    wavelength_tolerance: f64,

    /// Compressor: lz4hc (fastest to read), lz4 (20 times faster to write, a tenth larger), zstd
    /// (smallest, slowest to read), zlib or blosclz
    #[arg(long, value_name = "NAME", value_parser = parse::one_of(&Compressor::ALL), default_value_t = Compressor::Lz4Hc, help_heading = "Layout")]
    codec: Compressor,

    /// Compression level, 0 (no compression) to 9
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u8).range(0..=9), help_heading = "Layout")]
    level: u8,

    /// Shuffle filter before compression
    #[arg(long, value_name = "NAME", value_parser = parse::one_of(&Shuffle::ALL), default_value_t = Shuffle::Byte, help_heading = "Layout")]
    shuffle: Shuffle,

    /// Chunk shape in pixels: ROWS (full width), or ROWSxCOLUMNS for crops of large scenes
    /// [default: whole rows of about 2 MiB]
    #[arg(long, value_name = "ROWS[xCOLUMNS]", value_parser = parse::chunk, help_heading = "Layout")]
    chunk: Option<ChunkShape>,

    /// Target size of a shard file, uncompressed; a shard holds at least one cube
    #[arg(long, value_name = "BYTES", value_parser = parse::bytes, default_value = "512MiB", help_heading = "Layout")]
    shard_size: usize,

    /// Number of threads [default: one per core]
    #[arg(short, long, value_parser = clap::value_parser!(u16).range(1..=1024), help_heading = "Resources")]
    jobs: Option<u16>,

    /// Memory for reading, for all threads together; more memory makes transposing large scenes faster
    #[arg(long, value_name = "BYTES", value_parser = parse::bytes, default_value = "256MiB", help_heading = "Resources")]
    memory: usize,
}

const EXAMPLES: &str = "\
Examples:
  hsipack convert scans/ -o scans.hsipack
  hsipack convert 'flight/*.hdr' -o flight.hsipack --mask '{dir}/{stem}_labels.png' --table cubes.csv
  hsipack convert scene.h5::/reflectance/cube -o scene.hsipack --chunk 64x64 --drop-bad-bands
  hsipack convert raw/ -o raw.hsipack --white auto --dark auto --scale auto
  hsipack convert scans/ -o scans.hsipack --config tuned.toml --keep-bits auto";

impl Args {
    fn options(&self) -> Result<ConvertOptions> {
        let mut options = ConvertOptions::new(self.inputs.clone(), self.output.clone());
        options.exclude = self.exclude.clone();
        options.skip_errors = self.skip_errors;
        options.mode = match (self.resume, self.append) {
            (true, append) => Mode::Resume { append },
            (_, true) => Mode::Append,
            _ => Mode::Create,
        };
        options.values = self.values();
        options.layout = LayoutOptions {
            compressor: self.codec,
            level: self.level,
            shuffle: self.shuffle,
            chunk: self.chunk,
            shard_bytes: self.shard_size,
        };
        options.masks = self.mask.clone();
        for class in &self.classes {
            class.give(&mut options.masks)?;
        }
        for name in &self.class_names {
            name.give(&mut options.masks)?;
        }
        options.mask_fill = self.mask_fill;
        options.table = self.table.clone();
        options.path_columns = self.path_columns.clone();
        options.wavelength_tolerance = self.wavelength_tolerance;
        options.jobs = self.jobs.map_or(options.jobs, usize::from);
        options.memory = self.memory;
        options.command = typed::command_line(&["--resume"], &["--plan"]);
        Ok(options)
    }

    fn values(&self) -> ValueOptions {
        ValueOptions {
            dtype: self.dtype,
            scale: self.scale,
            nodata: self.nodata,
            ignore_value: self.ignore_value,
            raw_values: self.raw_values,
            keep_bits: self.keep_bits,
            normalize: self.normalize,
            bands: self
                .bands
                .clone()
                .or_else(|| self.wavelengths.clone())
                .unwrap_or(BandSelection::All),
            drop_bad_bands: self.drop_bad_bands,
            white: self.white.clone(),
            dark: self.dark.clone(),
            white_reflectance: self.white_reflectance,
            axes: self.axes.clone(),
        }
    }
}

/// Runs the command.
///
/// # Errors
/// The errors of the conversion.
pub fn run(args: Args, command: clap::Command) -> Result<ExitCode> {
    let args = match &args.config {
        Some(file) => config::merge(file, command)?,
        None => args,
    };
    let options = args.options()?;
    if args.dry_run {
        let estimate = convert::dry_run(&options)?;
        output::report(&estimate, args.json, print_estimate);
        return Ok(ExitCode::SUCCESS);
    }
    if let Some(file) = &args.plan {
        let task = Task::start("planned");
        let planned = parts::plan(&options, file, &task.progress, &|plan| begin(&task, plan));
        task.finish();
        output::report(&planned?, args.json, print_planned);
        return Ok(ExitCode::SUCCESS);
    }
    let task = Task::start("packed");
    let report = convert::convert(&options, &task.progress, &|plan| begin(&task, plan));
    task.finish();
    let report = report?;
    output::report(&report, args.json, print);
    Ok(ExitCode::SUCCESS)
}

/// Reports what the plan found, and how much there is to do.
fn begin(task: &Task, plan: &Plan) {
    task.set_total(plan.samples.iter().map(PlannedSample::value_bytes).sum());
    tell(task, "left out", &plan.skipped);
    tell(task, "note", &plan.notes);
}

/// Lines of one kind to print; the rest is only counted.
const SHOWN: usize = 20;

fn tell(task: &Task, what: &str, lines: &[String]) {
    task.bar.suspend(|| {
        for line in lines.iter().take(SHOWN) {
            note!("{what}: {line}");
        }
        if lines.len() > SHOWN {
            note!("{what}: and {} more (see --json)", lines.len() - SHOWN);
        }
    });
}

fn print_planned(planned: &Planned) {
    if planned.already_complete {
        say!("{} is complete; there was nothing left to do", planned.output);
        return;
    }
    let plan = planned.plan.display();
    say!(
        "{plan}: {} in {} for {}",
        output::count(planned.cubes, "cube"),
        output::count(planned.shards, "shard"),
        planned.output
    );
    say!(
        "  next: hsipack work {plan} --part 1/N … N/N, wherever that can be read (N up to {}); then hsipack commit {plan}",
        planned.shards
    );
}

/// Prints the report of a conversion.
pub fn print(report: &Report) {
    if report.already_complete {
        report.notes.iter().for_each(|note| say!("{note}"));
        return;
    }
    say!("{}: {} in {:.1} s", report.output, output::count(report.cubes, "cube"), report.seconds);
    say!(
        "  {} of files -> {} packed -> {} stored (ratio {:.2})",
        output::bytes(report.source_bytes),
        output::bytes(report.packed_bytes),
        output::bytes(report.stored_bytes),
        report.ratio
    );
    if let Some(bits) = report.keep_bits {
        say!("  {bits} mantissa bits kept");
    }
    if let Some(worst) = &report.worst {
        let place = |band: usize, nm: Option<f64>, file: &str| {
            let nm = nm.map(|nm| format!(" ({} nm)", output::number(nm))).unwrap_or_default();
            format!("in band {band}{nm} of {file}")
        };
        say!(
            "  worst {}error: {:.2e} relative, {}",
            if report.keep_bits.is_some() { "" } else { "fp16 " },
            worst.relative,
            place(worst.band, worst.wavelength, &worst.file)
        );
        say!(
            "    and {:.2e} absolute, {}",
            worst.absolute,
            place(worst.absolute_band, worst.absolute_wavelength, &worst.absolute_file)
        );
    }
    if report.nan + report.inf > 0 {
        say!("  {} NaN and {} infinite values", report.nan, report.inf);
    }
    for bad in &report.bad_bands {
        let remedy = match (bad.marked.is_empty(), bad.empty.is_empty()) {
            (false, true) => "--drop-bad-bands",
            (true, _) => "--bands",
            (false, false) => "--drop-bad-bands or --bands",
        };
        say!("  {} (leave them out with {remedy})", bad.text());
    }
    if !report.skipped.is_empty() {
        say!("  {} left out (listed above)", output::count(report.skipped.len(), "input"));
    }
}

fn print_estimate(estimate: &convert::Estimate) {
    say!("{} would get {}", estimate.output, output::count(estimate.cubes, "cube"));
    for stack in &estimate.stacks {
        say!(
            "  {}: {}, {} wavelengths, chunks of {}x{} pixels, {}{}",
            stack.name,
            output::count(stack.cubes, "cube"),
            if stack.wavelengths { "with" } else { "without" },
            stack.chunk[0],
            stack.chunk[1],
            output::count(stack.shards, "shard"),
            if stack.scale == 1.0 { String::new() } else { format!(", scale {}", stack.scale) },
        );
        for mask in &stack.masks {
            say!("    mask {mask}");
        }
    }
    say!(
        "  {} of files -> {} packed -> about {} stored (ratio {:.2}, from {} compressed as samples)",
        output::bytes(estimate.source_bytes),
        output::bytes(estimate.packed_bytes),
        output::bytes(estimate.stored_bytes),
        estimate.ratio,
        output::bytes(estimate.sampled_bytes),
    );
    if let Some(bits) = estimate.keep_bits {
        say!("  {bits} mantissa bits would be kept");
    }
    for pair in &estimate.references {
        let named = [("white", &pair.white), ("dark", &pair.dark)];
        let named = named.into_iter().filter_map(|(kind, file)| Some((kind, file.as_ref()?)));
        let named: Vec<String> = named.map(|(kind, file)| format!("{kind} {file}")).collect();
        say!("  {}: {}", pair.cube, named.join(", "));
    }
    for note in &estimate.notes {
        say!("  note: {note}");
    }
    for skipped in &estimate.skipped {
        say!("  left out: {skipped}");
    }
}
