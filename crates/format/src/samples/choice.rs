//! Choosing samples by their splits.

use super::Samples;
use crate::{Command, Error, Opt, Result, remedy};

impl Samples {
    /// The samples among `ids` that belong to one of these splits, in the order of `ids`.
    ///
    /// # Errors
    /// If a split does not exist, or none of `ids` belongs to any of them; the error lists the
    /// existing splits.
    ///
    /// # Panics
    /// If one of the ids does not exist.
    pub fn in_splits(&self, ids: Vec<usize>, splits: &[String]) -> Result<Vec<usize>> {
        let existing = self.splits().different();
        let wanted: Vec<bool> = existing.iter().map(|name| splits.contains(name)).collect();
        let is_wanted =
            |id: &usize| self.splits().number(*id).is_some_and(|split| wanted[split as usize]);
        let chosen: Vec<usize> = ids.into_iter().filter(is_wanted).collect();
        let mut missing: Vec<&String> =
            splits.iter().filter(|split| !existing.contains(split)).collect();
        if missing.is_empty() {
            if !chosen.is_empty() {
                return Ok(chosen);
            }
            missing.extend(splits);
        }
        let names: Vec<String> = missing.iter().map(|split| format!("'{split}'")).collect();
        let mut sorted = existing.to_vec();
        sorted.sort_unstable();
        let remedy = match sorted.as_slice() {
            [] => remedy!["it has no splits; give them with ", Command::Convert.with(Opt::Table)],
            listed => format!("it has {}", listed.join(", ")).into(),
        };
        Err(Error::conflict(format!("no sample is in split {}", names.join(", ")))
            .with_remedy(remedy))
    }
}
