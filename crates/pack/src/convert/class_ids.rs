//! Ids of classes that mask files know only by name, such as those of polygons with a text as
//! attribute. A name has the same id in all cubes: its place among the names of all files, unless
//! the user gives it another one.

use std::collections::{HashMap, HashSet};

use hsipack_format::{Error, Opt, Result, remedy};

use super::classes::{NewClass, OldClass};

/// The ids of the classes of one file.
#[derive(Clone, Debug)]
pub struct IdsOfNames {
    /// Names of the classes as in the file. Class 0 is what no label covers.
    names: Vec<String>,
    /// The ids that the user gives, by the places of the names.
    fixed: Vec<Option<u16>>,
    /// The packed ids, by the places of the names; `None` for names that the mask does not have.
    ids: Vec<Option<u16>>,
}

impl IdsOfNames {
    /// The classes of a file, of which `classes` gives some an id.
    pub(super) fn new(classes: &[NewClass], names: &[String]) -> Self {
        let others = classes.iter().find(|new| new.class == OldClass::Others).map(|new| new.id);
        let fixed = names.iter().enumerate().map(|(index, name)| {
            let is_it = |new: &&NewClass| match &new.class {
                OldClass::Name(listed) => index > 0 && listed == name,
                // What no label covers has no name.
                OldClass::Id(0) => index == 0,
                _ => false,
            };
            classes.iter().find(is_it).map(|new| new.id).or(others)
        });
        let mut fixed: Vec<Option<u16>> = fixed.collect();
        if let Some(first) = fixed.first_mut() {
            first.get_or_insert(0);
        }
        let ids = (0..).zip(&fixed).map(|(index, id)| id.or(Some(index))).collect();
        Self { names: names.to_vec(), fixed, ids }
    }

    /// Names by the ids that the user gives.
    pub(super) fn fixed_names(&self) -> Vec<String> {
        let mut names: Vec<String> = Vec::new();
        for (name, id) in self.names.iter().zip(&self.fixed) {
            let Some(id) = id.map(usize::from) else { continue };
            if names.len() <= id {
                names.resize(id + 1, String::new());
            }
            if names[id].is_empty() {
                names[id].clone_from(name);
            }
        }
        names
    }

    /// Names to which the user gives no id.
    pub(super) fn free_names(&self) -> impl Iterator<Item = &String> {
        let both = self.names.iter().zip(&self.fixed).skip(1);
        both.filter(|(_, id)| id.is_none()).map(|(name, _)| name)
    }

    /// Gives names their places among those of the mask.
    pub(super) fn place(&mut self, all: &[String]) {
        let mut ids: HashMap<&str, u16> = HashMap::new();
        for (name, id) in all.iter().zip(0..=u16::MAX) {
            ids.entry(name).or_insert(id);
        }
        let both = self.names.iter().zip(&self.fixed);
        self.ids =
            both.map(|(name, fixed)| fixed.or_else(|| ids.get(name.as_str()).copied())).collect();
    }

    /// The packed id of a class of the file.
    ///
    /// # Errors
    /// If the mask does not have the name of the class.
    pub(super) fn of(&self, class: u16) -> Result<u16> {
        let class = usize::from(class);
        self.ids.get(class).copied().flatten().ok_or_else(|| {
            let name = self.names.get(class).map(String::as_str).unwrap_or_default();
            Error::conflict(format!("the packed mask has no class named {name:?}"))
                .with_remedy(remedy!["give the class an id with ", Opt::RemapClasses])
        })
    }
}

/// Adds names to those that classes have by their ids, each with the least id from 1 on that is
/// free. `taken` are ids that are not free, though they have no name.
pub(super) fn add_names<'a>(
    names_by_id: &mut Vec<String>,
    names: impl IntoIterator<Item = &'a String>,
    taken: &[u16],
) {
    let mut next = 1;
    if names_by_id.is_empty() {
        names_by_id.push(String::new());
    }
    let mut present: HashSet<String> = names_by_id.iter().cloned().collect();
    for name in names {
        if !present.insert(name.clone()) {
            continue;
        }
        let is_taken = |id: usize, names_by_id: &[String]| {
            names_by_id.get(id).is_some_and(|name| !name.is_empty())
                || taken.iter().any(|taken| usize::from(*taken) == id)
        };
        while is_taken(next, names_by_id) {
            next += 1;
        }
        if names_by_id.len() <= next {
            names_by_id.resize(next + 1, String::new());
        }
        names_by_id[next].clone_from(name);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(text: &str) -> Vec<String> {
        text.split(' ').map(|name| name.replace('-', "")).collect()
    }

    #[test]
    fn names_have_places_among_those_of_all_cubes() {
        let mut ids = IdsOfNames::new(&[], &names("- roof tree"));
        assert_eq!([0, 1, 2].map(|index| ids.of(index).unwrap()), [0, 1, 2]);
        assert_eq!(ids.free_names().cloned().collect::<Vec<_>>(), ["roof", "tree"]);
        ids.place(&names("- grass roof road tree"));
        assert_eq!([0, 1, 2].map(|index| ids.of(index).unwrap()), [0, 2, 4]);
        ids.place(&names("- tree"));
        assert!(ids.of(1).unwrap_err().to_string().contains("no class named \"roof\""));
    }

    #[test]
    fn users_give_some_names_ids() {
        let new = |class: &str, id| NewClass { class: OldClass::of(class), id };
        let mut ids = IdsOfNames::new(&[new("roof", 7), new("0", 9)], &names("- roof tree"));
        assert_eq!(ids.fixed_names(), names("- - - - - - - roof - -"));
        ids.place(&names("- tree"));
        assert_eq!([0, 1, 2].map(|index| ids.of(index).unwrap()), [9, 7, 1]);
        let all = IdsOfNames::new(&[new("roof", 7), new("*", 3)], &names("- roof tree"));
        assert_eq!([0, 1, 2].map(|index| all.of(index).unwrap()), [3, 7, 3]);
        assert_eq!(all.free_names().count(), 0);
    }

    #[test]
    fn new_names_get_the_least_free_ids() {
        let mut class_names = names("none roof - tree");
        add_names(&mut class_names, &names("a roof b c"), &[4]);
        assert_eq!(class_names, names("none roof a tree - b c"));
        let mut class_names = Vec::new();
        add_names(&mut class_names, &names("a"), &[]);
        assert_eq!(class_names, names("- a"));
    }
}
