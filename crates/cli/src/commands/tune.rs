//! `hsipack tune`.

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

use hsipack_format::Result;
use hsipack_format::text::printable;
use hsipack_measure::tune::{
    self, Case, GpuDecoding, Measured, Report, TuneOptions, Variant, Windows,
};
use hsipack_pack::progress::Progress;
use indicatif::ProgressBar;

use crate::{files, output, task};

/// Measure which codec, chunk size and precision suit your cubes.
///
/// PATH is a packed dataset, or cubes as `convert` takes them. A sample of them is encoded and
/// decoded with every candidate, in rounds, by the code that `convert` and `read` use. The report
/// says what limits training with which disk, and how much information each mantissa bit holds.
/// Only the files given with --html and --apply are written.
#[derive(clap::Args)]
#[command(after_long_help = EXAMPLES)]
pub struct Args {
    #[command(flatten)]
    options: TuneOptions,

    /// Print the report as one JSON object on stdout; its keys are listed by --help
    #[arg(long)]
    json: bool,

    /// Write an HTML page with charts, which needs no network
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,

    /// Write the recommended options to a file for `convert --config`. Dropping bits is only a
    /// comment in that file
    #[arg(long, value_name = "FILE")]
    apply: Option<PathBuf>,
}

const EXAMPLES: &str = "\
Examples:
  hsipack tune scans/ --quick
  hsipack tune scans.hsipack --disk-rate 1000MB/s --step-time 40ms --html tune.html
  hsipack tune scenes/ --patch 9x9
  hsipack tune scans.hsipack --device cuda
  hsipack tune scans/ --apply tuned.toml && hsipack convert scans/ -o scans.hsipack --config tuned.toml

Keys of --json (sizes in bytes, rates{threads,gb_per_s,least,greatest} in 10^9 uncompressed bytes
per second: median, least and greatest of the rounds; candidates and cases are counted from 0):
  paths quick cores machine_cores threads rounds batch_size disk_rate step_time default_chunk_bytes
  sample{cubes,bytes,all_cubes,all_bytes,shapes,from_dataset} copy[]{rate} notes seconds
  candidates[]: name codec level shuffle chunk_bytes keep_bits bytes ratio write{rate} decode[]{rate} front
  cases[]:      disk_rate candidate bytes_per_s cubes_per_s epoch_s limit parts[disk,decode,copy,step]
  choice:       candidate case write_s
  windows:      rows columns all_bytes memory_bytes shuffle_window_bytes choice (null without --patch)
                layouts[]{chunk,chunk_bytes,chunks_per_window,windows_per_s,auto}
  device:       device batch_bytes link{rate of stored bytes} choice (null without --device)
                candidates[]{name,block_bytes,ratio,decode{rate},bytes_per_s}
  integers:     dtype codec ratio decode[]{rate} write{rate} smaller faster (null if values are not integers)
  precision:    information{pairs,chance,bits} shares keep_99 keep_99_9 codec
                best variants[]{codec,keep_bits,share,ratio,decode[],write,smaller,faster,smaller_than_chosen,
                faster_than_chosen,max_rel,bound_rel,mean_rel,max_abs}
                bands{shape,keep_bits,wavelength,max_rel,mean_rel,plain_mean_rel,max_abs} (null: no value)
                spectra[]{cube,row,column,wavelength,before,after}";

/// Runs the command.
///
/// # Errors
/// If the cubes cannot be read, a file cannot be written, or the command was stopped.
pub fn run(args: Args) -> Result<ExitCode> {
    let progress = Arc::new(Progress::default());
    task::stop_on_ctrl_c(&progress);
    let bar = ProgressBar::new_spinner();
    task::spin(&bar);
    let tell = |what: &str| bar.set_message(printable(what).into_owned());
    let report = tune::tune(&args.options, &progress.stop, &tell);
    bar.finish_and_clear();
    let report = report?;
    if let Some(file) = &args.html {
        files::replace(file, &tune::page(&report))?;
    }
    if let Some(file) = &args.apply {
        files::replace(file, report.config().trim_end())?;
    }
    output::report(&report, args.json, print);
    Ok(ExitCode::SUCCESS)
}

fn print(report: &Report) {
    let sample = &report.sample;
    say!(
        "{}: {} of {}, {} of {} uncompressed, tried in {:.0} s",
        report.paths.join(" "),
        sample.cubes,
        output::count(sample.all_cubes, "cube"),
        output::bytes(sample.bytes),
        output::bytes(sample.all_bytes),
        report.seconds
    );
    report.notes.iter().for_each(|note| say!("  note: {note}"));
    print_codecs(report);
    print_cases(report);
    report.windows.iter().for_each(print_windows);
    report.device.iter().for_each(print_device);
    print_precision(report);
    report.integers.iter().for_each(|integers| say!("  {}", integers.sentence()));
    let codec = &report.recommended().codec;
    let block = report.block_bytes().map(|bytes| format!(" --block-size {bytes}"));
    let block = block.unwrap_or_default();
    let chunk = report.chunk().map(|chunk| format!(" --chunk {chunk}")).unwrap_or_default();
    let dtype = report.dtype().map(|dtype| format!(" --dtype {dtype}")).unwrap_or_default();
    say!(
        "\n  choose       --codec {} --level {} --filter {}{block}{chunk}{dtype}",
        codec.compressor,
        codec.level,
        codec.shuffle,
    );
    if *codec == report.chosen().candidate.codec {
        say!("               packs all of it in about {:.0} s here", report.choice.write_s);
    }
}

/// `1.2 MB`, for chunk sizes that are powers of two.
fn chunk(measured: &Measured) -> String {
    let bytes = measured.candidate.chunk_bytes;
    if bytes >= 1 << 20 { format!("{} MiB", bytes >> 20) } else { format!("{} KiB", bytes >> 10) }
}

/// Prints the front, the fastest first, and memcpy as the upper limit.
fn print_codecs(report: &Report) {
    say!(
        "\n  {:<18}{:>8}{:>8}{:>12}   decode GB/s with {} threads (least-greatest)",
        "codec",
        "chunks",
        "ratio",
        "write GB/s",
        report.threads.iter().map(usize::to_string).collect::<Vec<_>>().join(", "),
    );
    let mut front: Vec<&Measured> =
        report.candidates.iter().filter(|measured| measured.front).collect();
    front.sort_by(|a, b| b.decode_at_most().total_cmp(&a.decode_at_most()));
    for measured in front {
        say!(
            "  {:<18}{:>8}{:>8.2}{:>12.2}   {}",
            measured.name,
            chunk(measured),
            measured.ratio,
            measured.write.gb_per_s,
            rates(&measured.decode)
        );
    }
    say!("  {:<46}   {}", "memcpy", rates(&report.copy));
    let worse = report.candidates.iter().filter(|measured| !measured.front).count();
    if worse > 0 {
        let are = if worse == 1 { "other is" } else { "others are" };
        say!("  {worse} {are} worse in ratio, decoding and writing than one of these (see --json)");
    }
}

fn rates(rates: &[tune::Rate]) -> String {
    let text = |rate: &tune::Rate| {
        format!("{:.2} ({:.2}-{:.2})", rate.gb_per_s, rate.least, rate.greatest)
    };
    rates.iter().map(text).collect::<Vec<_>>().join("  ")
}

fn print_cases(report: &Report) {
    say!(
        "\n  {:<12}{:<18}{:>8}{:>10}{:>10}{:>10}  limited by",
        "disk",
        "best codec",
        "chunks",
        "GB/s",
        "cubes/s",
        "s/epoch"
    );
    let line = |case: &Case| {
        let candidate = &report.candidates[case.candidate];
        let disk = case.disk_rate.map_or_else(
            || "unlimited".to_owned(),
            |rate| format!("{}/s", output::bytes(rate as u64)),
        );
        say!(
            "  {disk:<12}{:<18}{:>8}{:>10.2}{:>10.1}{:>10.2}  {}",
            candidate.name,
            chunk(candidate),
            case.bytes_per_s / 1e9,
            case.cubes_per_s,
            case.epoch_s,
            case.limit.name()
        );
    };
    report.cases.iter().for_each(line);
    if report.cores > report.machine_cores {
        say!("  decoding on {} cores is estimated from {}", report.cores, report.machine_cores);
    }
}

fn print_windows(windows: &Windows) {
    let Windows { rows, columns, all_bytes, memory_bytes, layouts, choice, .. } = windows;
    say!(
        "\n  windows of {rows}x{columns}; all cubes take {} decoded, and a loader would use {} of memory here",
        output::bytes(*all_bytes),
        output::bytes(*memory_bytes)
    );
    say!(
        "  {:<18}{:>10}{:>16}{:>20}  with cache=auto a loader",
        "chunks",
        "size",
        "chunks/window",
        "windows/s, no cache"
    );
    for (at, layout) in layouts.iter().enumerate() {
        let name =
            layout.chunk.as_ref().map_or("default".to_owned(), |chunk| format!("--chunk {chunk}"));
        let mark = if at == *choice { "*" } else { "" };
        say!(
            "  {:<18}{:>10}{:>16.2}{:>20.0}  {}",
            format!("{name}{mark}"),
            output::bytes(layout.chunk_bytes),
            layout.chunks_per_window,
            layout.windows_per_s,
            layout.auto.words()
        );
    }
}

fn print_device(gpu: &GpuDecoding) {
    let GpuDecoding { device, batch_bytes, link, candidates, choice } = gpu;
    say!(
        "\n  {device} decodes a batch of {}; stored bytes are copied to it at {:.2} GB/s",
        output::bytes(*batch_bytes),
        link.gb_per_s
    );
    say!(
        "  {:<18}{:>10}{:>8}   {:<26}with the copies GB/s",
        "codec",
        "blocks",
        "ratio",
        "decode GB/s"
    );
    for (at, candidate) in candidates.iter().enumerate() {
        let mark = if at == *choice { "*" } else { "" };
        say!(
            "  {:<18}{:>10}{:>8.2}   {:<26}{:.2}",
            format!("{}{mark}", candidate.name),
            candidate.block_bytes,
            candidate.ratio,
            rates(&[candidate.decode]),
            candidate.bytes_per_s / 1e9
        );
    }
}

fn print_precision(report: &Report) {
    let precision = &report.precision;
    say!("\n  mantissa bit   information");
    let most = precision.information.mantissa().iter().copied().fold(1e-12, f64::max);
    for (at, bits) in precision.information.mantissa().iter().enumerate() {
        let bar = "#".repeat((40.0 * bits / most).round() as usize);
        say!("  {:>12}   {bits:.4}  {:>6.2} %  {bar}", at + 1, 100.0 * precision.shares[at]);
    }
    let line = |variant: &&Variant| say!("  {}", precision.sentence(variant));
    match precision.gain() {
        None => say!("  {}", precision.all_needed()),
        Some(gain) => {
            let more = precision.variants.iter().find(|variant| {
                variant.codec == gain.codec
                    && variant.keep_bits == precision.keep_99_9
                    && (gain.keep_bits + 1..10).contains(&variant.keep_bits)
            });
            line(&gain);
            more.iter().for_each(line);
        }
    }
}
