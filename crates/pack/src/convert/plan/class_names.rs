//! Names of the classes of masks, in all cubes of a plan and in the dataset to which they are
//! appended.

use std::collections::{BTreeMap, BTreeSet};

use hsipack_format::metadata::MaskMeaning;
use hsipack_format::{Color, Result};
use hsipack_store::Dataset;

use super::{PlannedMask, PlannedStack};
use crate::convert::class_ids::add_names;
use crate::convert::classes;
use crate::convert::masks::MaskGroup;

/// Facts about the classes of each mask, by its name.
pub(super) struct ClassNames {
    /// Their names, in order of the packed ids, in all cubes so far.
    names: BTreeMap<String, Vec<String>>,
    /// Masks whose classes have different names in different stacks of the dataset. Older versions
    /// packed such ones. Cubes are compared only with those of their own stack.
    disagreeing: BTreeSet<String>,
    /// Names in the files of the masks whose classes get new ids.
    in_files: BTreeMap<String, BTreeSet<String>>,
    /// Names of classes that files know only by name, and that have no ids yet.
    free: BTreeMap<String, BTreeSet<String>>,
    /// Colours of classes that files know only by name.
    colors: BTreeMap<String, BTreeMap<String, Color>>,
}

impl ClassNames {
    /// The names in the dataset to which cubes are appended.
    pub(super) fn of(base: Option<&Dataset>) -> Self {
        let (mut names, mut disagreeing) = (BTreeMap::new(), BTreeSet::new());
        for mask in base.into_iter().flat_map(Dataset::stacks).flat_map(|stack| &stack.masks) {
            let (name, theirs) = (mask.name(), mask.meta().mask_meaning().class_names);
            match classes::together(name, names.remove(name), theirs) {
                Ok(Some(all)) if !disagreeing.contains(name) => {
                    names.insert(name.to_owned(), all);
                }
                Ok(_) => {}
                Err(_) => {
                    disagreeing.insert(name.to_owned());
                }
            }
        }
        Self {
            names,
            disagreeing,
            in_files: BTreeMap::new(),
            free: BTreeMap::new(),
            colors: BTreeMap::new(),
        }
    }

    /// Adds the names in a mask file, if its classes get new ids.
    pub(super) fn found(&mut self, group: &MaskGroup, file_classes: &[String]) {
        if !group.classes.is_empty() {
            let names = self.in_files.entry(group.name.clone()).or_default();
            names.extend(file_classes.iter().cloned());
        }
    }

    /// Adds names of classes of a mask file that have no id.
    pub(super) fn without_ids(&mut self, group: &MaskGroup, names: Vec<String>) {
        if !names.is_empty() {
            self.free.entry(group.name.clone()).or_default().extend(names);
        }
    }

    /// Adds colours of classes of a mask file that have no id. The first colour of a name counts.
    pub(super) fn colored(&mut self, group: &MaskGroup, colors: Vec<(String, Color)>) {
        if !colors.is_empty() {
            let all = self.colors.entry(group.name.clone()).or_default();
            colors.into_iter().for_each(|(name, color)| {
                all.entry(name).or_insert(color);
            });
        }
    }

    /// Gives the masks of all stacks the colours of the names that their classes have.
    pub(super) fn color(&self, stacks: &mut [PlannedStack]) {
        for mask in stacks.iter_mut().flat_map(|stack| &mut stack.masks) {
            let (Some(all), Some(names)) = (self.colors.get(&mask.name), &mask.class_names) else {
                continue;
            };
            let colors: Vec<Option<Color>> =
                names.iter().map(|name| all.get(name).copied()).collect();
            classes::colors_together(&mut mask.class_colors, &colors);
        }
    }

    /// Gives the names without ids the ids that are free, in the order of the alphabet.
    pub(super) fn give_ids(&mut self, groups: &[MaskGroup]) {
        for (mask, names) in std::mem::take(&mut self.free) {
            let group = groups.iter().find(|group| group.name == mask);
            let taken = group.into_iter().flat_map(|group| &group.classes).map(|new| new.id);
            add_names(self.names.entry(mask).or_default(), &names, &taken.collect::<Vec<_>>());
        }
    }

    /// The masks of a cube whose classes have other names than those so far, with all names. They
    /// are added by [`add`](Self::add).
    ///
    /// # Errors
    /// If a class has different names.
    pub(super) fn new_in(&self, masks: &[PlannedMask]) -> Result<Vec<(String, Vec<String>)>> {
        let mut new = Vec::new();
        for PlannedMask { name, class_names, .. } in masks {
            let before = self.names.get(name);
            let differs = class_names.is_some() && before != class_names.as_ref();
            if differs && !self.disagreeing.contains(name) {
                let names = classes::together(name, before.cloned(), class_names.clone())?;
                new.extend(names.map(|names| (name.clone(), names)));
            }
        }
        Ok(new)
    }

    /// Adds what [`new_in`](Self::new_in) gave.
    pub(super) fn add(&mut self, new: Vec<(String, Vec<String>)>) {
        self.names.extend(new);
    }

    /// Checks that all classes which get new ids by their names are in some file.
    ///
    /// # Errors
    /// If one is in none.
    pub(super) fn check(&self, groups: &[MaskGroup]) -> Result<()> {
        let of = |group: &MaskGroup| match self.in_files.get(&group.name) {
            Some(existing) => classes::check_names(&group.name, &group.classes, existing),
            None => Ok(()),
        };
        groups.iter().try_for_each(of)
    }

    /// Gives the masks of all stacks the names: a stack may have no cube whose mask file names the
    /// classes.
    ///
    /// # Errors
    /// If a class has different names.
    pub(super) fn give(&self, stacks: &mut [PlannedStack]) -> Result<()> {
        for mask in stacks.iter_mut().flat_map(|stack| &mut stack.masks) {
            let all_names = self.names.get(&mask.name);
            if let Some(all_names) =
                all_names.filter(|_| mask.layers.is_empty() && mask.origin.is_none())
            {
                let names = mask.class_names.take();
                mask.class_names = classes::together(&mask.name, names, Some(all_names.clone()))?;
            }
        }
        Ok(())
    }

    /// Notes for the user about stacks of the dataset, to which cubes are appended in `stacks`.
    pub(super) fn notes(&self, stacks: &[PlannedStack], base: Option<&Dataset>) -> Vec<String> {
        let mut notes = Vec::new();
        let planned: BTreeSet<&str> = stacks.iter().map(|stack| stack.name.as_str()).collect();
        let others = base.into_iter().flat_map(Dataset::stacks);
        for stack in others.filter(|stack| !planned.contains(stack.name.as_str())) {
            let unnamed = stack.masks.iter().filter(|mask| {
                let MaskMeaning { layers, class_names, .. } = mask.meta().mask_meaning();
                let is_named = self.names.contains_key(mask.name());
                is_named && layers.is_empty() && class_names.is_none()
            });
            notes.extend(unnamed.map(|mask| {
                format!(
                    "the classes of mask {} have no names in stack {}, to which no cube is added",
                    mask.name(),
                    stack.name
                )
            }));
        }
        notes.extend(self.disagreeing.iter().map(|mask| {
            format!(
                "stacks of the dataset name the classes of mask {mask} differently; pack it again so that an id means one class"
            )
        }));
        notes
    }
}
