//! `--keep-bits auto`: finds how many mantissa bits hold 99 % of the information of the inputs.

use std::sync::atomic::AtomicBool;

use hsipack_format::{Opt, Result};
use hsipack_store::Dataset;

use super::Plan;
use crate::convert::options::{KeepBits, Resources, ValueOptions};
use crate::precision::{self, SHARE};

/// Replaces `auto` by a number: that of the existing dataset if cubes are appended, otherwise the
/// number that a sample of the inputs needs.
///
/// # Errors
/// If an input cannot be read.
pub(super) fn choose(
    plan: &mut Plan,
    values: &ValueOptions,
    resources: Resources,
    base: Option<&Dataset>,
    stop: &AtomicBool,
) -> Result<()> {
    if plan.values.keep_bits != KeepBits::Auto {
        return Ok(());
    }
    let all = precision::mantissa_bits(values.dtype());
    if let Some(base) = base {
        plan.values.keep_bits = kept(base).map_or(KeepBits::All, KeepBits::Bits);
        let kept = kept(base).unwrap_or(all);
        plan.notes.push(format!("{kept} of {all} mantissa bits are kept, as in the dataset"));
        return Ok(());
    }
    let information = precision::measure(plan, values, resources.threads, stop)?;
    let bits = match information.bits_for(SHARE) {
        // Float32 values cannot be rounded to 22 bits.
        22 => all,
        bits => bits,
    };
    plan.values.keep_bits = KeepBits::Bits(bits);
    let auto = Opt::KeepBits.to("auto");
    plan.notes.push(if information.total() == 0.0 {
        format!("{auto}: neighbouring values have no information in common; all {all} mantissa bits are kept")
    } else {
        format!(
            "{auto}: {bits} of {all} mantissa bits are kept, which hold {:.1} % of the information",
            100.0 * information.share(bits)
        )
    });
    plan.information = Some(information);
    Ok(())
}

/// Number of mantissa bits that a dataset's images keep; `None` if they keep all.
pub(super) fn kept(base: &Dataset) -> Option<u8> {
    base.stacks().iter().find_map(|stack| stack.image.meta().band_notes().keep_bits)
}
