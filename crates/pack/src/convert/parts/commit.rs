//! The last step: checks that all receipts exist, and turns the shards into a dataset.

use std::path::Path;
use std::time::Instant;

use hsipack_format::{Command, Error, Result, remedy};

use super::work::Opened;
use crate::convert::engine;
use crate::convert::run::{self, Report};
use crate::convert::staging::{Claim, Staging};

/// The most names of shards in an error.
const SHOWN: usize = 10;

/// Turns what workers wrote for the conversion planned in `file` into a dataset. It appears
/// complete, or replaces the previous dataset if cubes are appended. Repeating it does nothing.
///
/// `change_folder` says whether this process may change its working directory to that of the plan.
///
/// # Errors
/// If a receipt is missing, damaged or belongs to another plan, or workers are still writing.
/// Nothing is then changed.
pub fn commit(file: &Path, change_folder: bool) -> Result<Report> {
    let start = Instant::now();
    let opened = Opened::read(file, change_folder)?;
    if opened.is_done() {
        Claim::tidy(&opened.output, &opened.identity)?;
        return Ok(run::complete(&opened.output, start));
    }
    let claim = Claim::of_parts(&opened.output, opened.writer.as_deref())?;
    claim.recover()?;
    if claim.plan()?.is_none() {
        return Err(opened.nothing_begun());
    }
    let base = opened.base()?;
    let Opened { plan, output, record, append, identity, .. } = &opened;
    let staging = Staging::of_parts(claim, identity, *append, engine::shards(plan))?;
    check_receipts(&opened, &staging)?;
    let outcome = engine::outcome(plan, &staging)?;
    let base = base.as_ref();
    run::write_metadata(plan, &staging, base, record, &outcome)?;
    let report = run::report(output, plan, base, &outcome, start);
    staging.commit()?;
    Ok(report)
}

/// Gives up the conversion planned in `file`: removes what workers wrote, and the plan that was
/// begun at the output. Does nothing if that has already ended.
///
/// # Errors
/// If workers are still writing, or something cannot be removed.
pub fn discard(file: &Path) -> Result<()> {
    let opened = Opened::read(file, false)?;
    if let Some(claim) = Claim::left(&opened.output, &opened.identity, opened.writer.as_deref())? {
        let shards = engine::shards(&opened.plan);
        Staging::of_parts(claim, &opened.identity, opened.append, shards)?.discard()?;
    }
    Ok(())
}

fn check_receipts(opened: &Opened, staging: &Staging) -> Result<()> {
    let recorded = staging.recorded()?;
    let all: Vec<(&str, usize)> = engine::shards_of(&opened.plan).collect();
    let is_missing =
        |(stack, shard): &&(&str, usize)| !recorded.contains(&((*stack).to_owned(), *shard));
    let missing: Vec<_> = all.iter().filter(is_missing).collect();
    if !missing.is_empty() {
        let names = missing.iter().take(SHOWN).map(|(stack, shard)| format!("{shard} of {stack}"));
        let names = names.collect::<Vec<_>>().join(", ");
        let more = match missing.len().saturating_sub(SHOWN) {
            0 => String::new(),
            more => format!(" and {more} more"),
        };
        return Err(Error::conflict(format!(
            "{} of {} shards have no receipt: {names}{more}",
            missing.len(),
            all.len()
        ))
        .at(staging.folder())
        .with_remedy(remedy![
            "write them with ",
            Command::Work,
            ", which does the rest, then commit again"
        ]));
    }
    all.iter().try_for_each(|(stack, shard)| staging.check_receipt(stack, *shard))
}
