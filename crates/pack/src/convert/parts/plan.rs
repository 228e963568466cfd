//! The first step: decides and checks everything, and writes it to a file.

use std::path::{Path, PathBuf};
use std::time::Instant;

use hsipack_format::{Error, Result};
use hsipack_store::mirror;
use hsipack_store::remote::is_url;
use serde::Serialize;

use super::file::{Header, PlanFile};
use crate::convert::band_centers;
use crate::convert::engine;
use crate::convert::options::{ConvertOptions, Reference};
use crate::convert::plan::{Plan, PlannedSample};
use crate::convert::run::{self, Work};
use crate::convert::staging::{About, Staging};
use crate::progress::Progress;
use crate::session::Session;

/// The result of planning.
#[derive(Clone, Debug, Serialize)]
pub struct Planned {
    /// The file with the plan.
    pub plan: PathBuf,
    /// The dataset.
    pub output: String,
    /// Number of cubes to pack.
    pub cubes: usize,
    /// Bytes of their values, as stored in their files.
    pub bytes: u64,
    /// Number of shards to write. If there are more workers than shards, some have nothing to do.
    pub shards: usize,
    /// Seconds that it took.
    pub seconds: f64,
    /// Notes for the user.
    pub notes: Vec<String>,
    /// Inputs that were skipped.
    pub skipped: Vec<String>,
    /// Whether everything had already been done. Then no plan was written.
    pub already_complete: bool,
}

/// Plans a conversion, and writes the plan to `file`, a path or a URL. Records at the output that
/// the conversion was begun. From then on, workers can write their parts.
///
/// # Errors
/// If anything is wrong with inputs, options or the output, or the plan cannot be written. Nothing
/// is then begun.
pub fn plan(
    options: &ConvertOptions,
    file: &Path,
    progress: &Progress,
    planned: &dyn Fn(&Plan),
) -> Result<Planned> {
    let _inputs = Session::begin();
    plan_here(options, file, progress, planned).map_err(mirror::error_with_urls)
}

fn plan_here(
    options: &ConvertOptions,
    file: &Path,
    progress: &Progress,
    planned: &dyn Fn(&Plan),
) -> Result<Planned> {
    let start = Instant::now();
    PlanFile::check_place(file)?;
    let mut report = Planned {
        plan: file.to_owned(),
        output: options.output.display().to_string(),
        cubes: 0,
        bytes: 0,
        shards: 0,
        seconds: 0.0,
        notes: Vec::new(),
        skipped: Vec::new(),
        already_complete: true,
    };
    let Some(work) = run::begin(options, progress, planned)? else { return Ok(report) };
    let Work { plan, options, base, record, requested, identity, append, claim } = work;
    let fingerprint = base.as_ref().map(|base| base.fingerprint());
    let about = About { plan: &identity, append, requested: &requested, base: fingerprint };
    let staging = Staging::open(claim, about, engine::shards(&plan))?;
    let folder = is_relative(&plan, &options).then(std::env::current_dir).transpose();
    let folder = folder
        .map_err(|error| Error::io(Path::new("."), "cannot tell the working directory", error));
    let written = folder.and_then(|folder| {
        let (request, identity) = (&record.request, &identity);
        let header = Header { folder, append, request, identity, writer: staging.write_id() };
        PlanFile::new(&plan, &options, header).write(file)
    });
    if let Err(error) = written {
        // A conversion that was begun earlier may have finished shards, so it is kept.
        if !options.mode.resume {
            let _ = staging.discard();
        }
        return Err(error);
    }
    report.cubes = plan.samples.len();
    report.bytes = plan.samples.iter().map(PlannedSample::value_bytes).sum();
    report.shards = engine::shards_of(&plan).count();
    report.notes = plan.notes.iter().map(|note| mirror::with_urls(note)).collect();
    report.skipped = plan.skipped.iter().map(|skipped| mirror::with_urls(skipped)).collect();
    report.already_complete = false;
    report.seconds = start.elapsed().as_secs_f64();
    Ok(report)
}

/// Whether workers need the working directory to find a path.
fn is_relative(plan: &Plan, options: &ConvertOptions) -> bool {
    let relative = |path: &Path| !path.is_absolute() && !is_url(path);
    let pattern = |pattern: &str| {
        !["{dir}", "{path}"].iter().any(|field| pattern.starts_with(field))
            && relative(Path::new(pattern))
    };
    let reference = |reference: &Option<Reference>| match reference {
        Some(Reference::File(file)) => relative(Path::new(file)),
        Some(Reference::Pattern(text)) => pattern(text),
        _ => false,
    };
    let url_or_path = |path: &Path| mirror::url_of(path).unwrap_or_else(|| path.to_owned());
    relative(&options.output)
        || plan.samples.iter().any(|sample| relative(&url_or_path(&sample.input.file)))
        || options.mask.iter().any(|mask| pattern(&mask.pattern))
        || options.target.iter().chain(&options.image).any(|option| pattern(&option.value))
        || options.values.header.as_deref().is_some_and(pattern)
        || options
            .values
            .band_centers
            .as_deref()
            .is_some_and(|text| band_centers::is_pattern(text) && pattern(text))
        || reference(&options.values.white)
        || reference(&options.values.dark)
}
