//! Choosing samples by what the list says of them.

use super::Samples;
use crate::{Command, Error, Opt, Result, remedy};

impl Samples {
    /// Those of the samples `ids` that are of one of these splits, in their order.
    ///
    /// # Errors
    /// If there is no such split, or none of `ids` is of any of them; the splits that there are are named.
    ///
    /// # Panics
    /// If there is no sample of one of the ids.
    pub fn in_splits(&self, ids: Vec<usize>, splits: &[String]) -> Result<Vec<usize>> {
        let there = self.splits().different();
        let wanted: Vec<bool> = there.iter().map(|one| splits.contains(one)).collect();
        let is_wanted =
            |id: &usize| self.splits().number(*id).is_some_and(|split| wanted[split as usize]);
        let chosen: Vec<usize> = ids.into_iter().filter(is_wanted).collect();
        let mut missing: Vec<&String> =
            splits.iter().filter(|split| !there.contains(split)).collect();
        if missing.is_empty() {
            if !chosen.is_empty() {
                return Ok(chosen);
            }
            missing.extend(splits);
        }
        let names: Vec<String> = missing.iter().map(|split| format!("'{split}'")).collect();
        let mut there = there.to_vec();
        there.sort_unstable();
        let remedy = match there.as_slice() {
            [] => remedy!["it has no splits; give them with ", Command::Convert.with(Opt::Table)],
            there => format!("it has {}", there.join(", ")).into(),
        };
        Err(Error::conflict(format!("no sample is of split {}", names.join(", ")))
            .with_remedy(remedy))
    }
}
