//! New class ids for masks, applied when masks are read.

use std::collections::HashMap;

use hsipack_format::{Command, DType, Error, Opt, remedy};
use serde::{Deserialize, Serialize};

use super::open::Dataset;
use crate::Result;

/// New class ids for a mask.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct NewIds {
    /// The mask's name.
    pub mask: String,
    /// Classes, and the new ids of their pixels.
    pub classes: Vec<(Class, u32)>,
    /// The new id of all other pixels. If `None`, they keep their ids.
    pub other: Option<u32>,
}

/// A class of a mask.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Class {
    /// The class id.
    Id(u32),
    /// The name of the class in the dataset.
    Name(String),
}

/// The new id of every id that a mask's type can hold.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct IdTable(Vec<u16>);

impl IdTable {
    /// The new id of an id.
    pub(crate) fn of(&self, id: u32) -> u32 {
        self.0.get(id as usize).map_or(id, |new| u32::from(*new))
    }

    /// Replaces the ids in the values of a mask by the new ones, in place.
    pub(crate) fn apply(&self, dtype: DType, values: &mut [u8]) {
        match dtype {
            DType::U16 => {
                for pair in values.as_chunks_mut::<2>().0 {
                    *pair = self.0[usize::from(u16::from_le_bytes(*pair))].to_le_bytes();
                }
            }
            // A table of a uint8 mask has no larger ids.
            _ => values.iter_mut().for_each(|value| *value = self.0[usize::from(*value)] as u8),
        }
    }
}

impl Dataset {
    /// The new id of every id that a mask can hold, from 0, in each of these stacks, in their
    /// order.
    ///
    /// # Errors
    /// If a stack has no such mask, or the mask holds no class ids; if no stack has a class of that
    /// name; if a class is given two new ids; if the mask's type cannot hold an id.
    pub fn new_ids(&self, stacks: &[usize], new: &NewIds) -> Result<Vec<Vec<u16>>> {
        Ok(self.id_tables(stacks, new)?.into_iter().map(|table| table.0).collect())
    }

    /// The tables of a mask's new ids, one for each of these stacks, in their order.
    ///
    /// # Errors
    /// If a stack has no such mask, or the mask holds no class ids; if no stack has a class of that
    /// name; if a class is given two new ids; if the mask's type cannot hold an id.
    pub(crate) fn id_tables(&self, stacks: &[usize], new: &NewIds) -> Result<Vec<IdTable>> {
        for (class, _) in &new.classes {
            let Class::Name(name) = class else { continue };
            let mut names: Vec<String> =
                stacks.iter().flat_map(|stack| self.class_names(*stack, &new.mask)).collect();
            if names.contains(name) {
                continue;
            }
            names.retain(|name| !name.is_empty());
            names.sort_unstable();
            names.dedup();
            let error = Error::conflict(format!("mask {} has no class named {name:?}", new.mask));
            return Err(error.at(self.path()).with_remedy(match names.as_slice() {
                [] => "it does not name its classes; give their ids".to_owned(),
                names => format!("its classes: {}", names.join(", ")),
            }));
        }
        let by_name = new.classes.iter().any(|(class, _)| matches!(class, Class::Name(_)));
        let nameless =
            stacks.iter().find(|stack| by_name && self.class_names(**stack, &new.mask).is_empty());
        if let Some(stack) = nameless {
            let name = &self.stacks()[*stack].name;
            let what = format!("stack {name} does not name the classes of mask {}", new.mask);
            return Err(Error::conflict(what).at(self.path()).with_remedy("give their ids"));
        }
        stacks.iter().map(|stack| self.id_table(*stack, new)).collect()
    }

    fn id_table(&self, stack: usize, new: &NewIds) -> Result<IdTable> {
        let array = self.mask_array(stack, &new.mask)?;
        let most: u32 = match array.dtype() {
            DType::U8 => u8::MAX.into(),
            DType::U16 => u16::MAX.into(),
            other => {
                return Err(Error::unsupported(format!(
                    "the mask has the type {other}, so its classes cannot have new ids"
                ))
                .at(self.path())
                .with_remedy(remedy!["pack the masks with ", Command::Convert]));
            }
        };
        if !self.mask_layers(stack, &new.mask).is_empty() {
            let mask = &new.mask;
            return Err(Error::conflict(format!(
                "mask {mask} holds boolean layers, not class ids"
            ))
            .at(self.path())
            .with_remedy(remedy!["choose another mask with ", Opt::Masks]));
        }
        let fits = |id: u32| {
            u16::try_from(id).ok().filter(|_| id <= most).ok_or_else(|| {
                let what =
                    format!("class id {id} is too large: mask {} is {}", new.mask, array.dtype());
                Error::conflict(what)
                    .at(self.path())
                    .with_remedy(format!("use ids from 0 to {most}"))
            })
        };
        let other = new.other.map(fits).transpose()?;
        let mut table: Vec<u16> = (0..=most as u16).map(|id| other.unwrap_or(id)).collect();
        let names = self.class_names(stack, &new.mask);
        let mut assigned = HashMap::new();
        for (class, id) in &new.classes {
            let old = match class {
                Class::Id(id) => Some(fits(*id)?),
                Class::Name(name) => {
                    names.iter().position(|existing| existing == name).map(|id| id as u16)
                }
            };
            let id = fits(*id)?;
            let Some(old) = old else { continue };
            if assigned.insert(old, id).is_some_and(|before| before != id) {
                return Err(Error::conflict(format!(
                    "class {old} of mask {} has two new ids",
                    new.mask
                ))
                .at(self.path())
                .with_remedy("give the class one new id, by its id or by its name"));
            }
            table[usize::from(old)] = id;
        }
        Ok(IdTable(table))
    }

    /// Names of the classes of a stack's mask, by class id. Empty if they are not known, or there
    /// is no such mask.
    pub fn class_names(&self, stack: usize, mask: &str) -> Vec<String> {
        let mask = self.stacks().get(stack).and_then(|stack| stack.mask(mask));
        mask.and_then(|mask| mask.meta().mask_meaning().class_names).unwrap_or_default()
    }
}
