//! Gives classes of mask files new ids and names while they are packed.

use std::collections::BTreeSet;
use std::str::FromStr;

use hsipack_format::{Color, Error, Opt, Result, remedy};
use serde::{Deserialize, Serialize};

/// A class of a mask file, and the new id of its pixels.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NewClass {
    /// The class.
    pub class: OldClass,
    /// The new id.
    pub id: u16,
}

/// Refers to a class of a mask file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OldClass {
    /// Its id.
    Id(u16),
    /// A value of the file that cannot be a class id, such as -1 or NaN.
    Value(OtherValue),
    /// Its name in the file.
    Name(String),
    /// Every class that is not listed.
    Others,
}

/// A value of a mask file that marks a class, or pixels without one, and is not from 0 to 65535: a
/// whole number, or NaN.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct OtherValue(f64);

impl OtherValue {
    /// Whether a pixel has this value.
    fn is(self, value: f64) -> bool {
        self.0 == value || self.0.is_nan() && value.is_nan()
    }
}

impl PartialEq for OtherValue {
    fn eq(&self, other: &Self) -> bool {
        self.is(other.0)
    }
}

impl Eq for OtherValue {}

impl FromStr for OtherValue {
    type Err = String;

    fn from_str(text: &str) -> std::result::Result<Self, Self::Err> {
        match text.parse::<f64>() {
            Ok(value) if value.is_nan() || value.is_finite() && value.fract() == 0.0 => {
                Ok(Self(value))
            }
            _ => Err(format!("{text:?} is neither a whole number nor nan")),
        }
    }
}

impl TryFrom<String> for OtherValue {
    type Error = String;

    fn try_from(text: String) -> std::result::Result<Self, Self::Error> {
        text.parse()
    }
}

impl From<OtherValue> for String {
    fn from(OtherValue(value): OtherValue) -> Self {
        value.to_string()
    }
}

/// The name of a class.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClassName {
    /// The id in the dataset.
    pub id: u16,
    /// The name.
    pub name: String,
}

impl OldClass {
    /// Parses `*`, an id, another whole number or `nan`, or a name.
    pub fn of(text: &str) -> Self {
        match (text.parse(), text.parse()) {
            _ if text == "*" => Self::Others,
            (Ok(id), _) => Self::Id(id),
            (_, Ok(value)) => Self::Value(value),
            _ => Self::Name(text.to_owned()),
        }
    }

    /// The class as typed.
    pub fn text(&self) -> String {
        match self {
            Self::Id(id) => id.to_string(),
            Self::Value(OtherValue(value)) => value.to_string(),
            Self::Name(name) => name.clone(),
            Self::Others => "*".to_owned(),
        }
    }

    fn is_named(&self, name: &str) -> bool {
        matches!(self, Self::Name(listed) if listed == name)
    }

    /// Its id.
    ///
    /// # Errors
    /// If it is not an id.
    pub(super) fn id(&self) -> Result<u16> {
        let class = match self {
            Self::Id(id) => return Ok(*id),
            Self::Value(value) => &String::from(*value),
            Self::Name(name) => name,
            Self::Others => "*",
        };
        Err(Error::conflict(format!("{class:?} is not a class id"))
            .with_remedy("give a whole number from 0 to 65535"))
    }
}

/// The value of an option for one class of a mask: its new id, or its name.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OptionOfClass<T> {
    /// The mask. If `None`, its name and a dot may be before the class; otherwise there is only one
    /// mask.
    #[serde(default)]
    pub mask: Option<String>,
    /// The class.
    pub class: OldClass,
    /// The value.
    pub value: T,
}

impl FromStr for OptionOfClass<u16> {
    type Err = String;

    /// Parses a class and its new id: `3=1`, `tumour=2`, `organs.tumour=2`, `*=255`.
    fn from_str(text: &str) -> std::result::Result<Self, Self::Err> {
        let bad = || format!("{text:?}: give CLASS=ID, such as tumour=2, organs.3=1 or *=255");
        let (class, id) = text.rsplit_once('=').ok_or_else(bad)?;
        match (class.trim(), id.trim().parse()) {
            ("", _) => Err(bad()),
            (class, Ok(value)) => Ok(Self { mask: None, class: OldClass::of(class), value }),
            (_, Err(_)) => Err(format!("{text:?}: class ids are whole numbers from 0 to 65535")),
        }
    }
}

impl FromStr for OptionOfClass<String> {
    type Err = String;

    /// Parses a class id and the name of the class: `1=tumour`, `organs.2=spleen`.
    fn from_str(text: &str) -> std::result::Result<Self, Self::Err> {
        match text.split_once('=').map(|(class, name)| (class.trim(), name.trim())) {
            Some((class, name)) if !class.is_empty() && !name.is_empty() => {
                Ok(Self { mask: None, class: OldClass::of(class), value: name.to_owned() })
            }
            _ => Err(format!("{text:?}: give ID=NAME, such as 1=tumour or organs.2=spleen")),
        }
    }
}

/// The new ids of the values in a mask file.
#[derive(Clone, Debug)]
pub struct ClassTable {
    /// The new id of every class id.
    ids: Vec<u16>,
    /// The class ids to which the user gives one.
    listed: Vec<u16>,
    /// New ids of other values.
    values: Vec<(OtherValue, u16)>,
    /// The new id of all that are not listed.
    others: Option<u16>,
}

impl ClassTable {
    /// The table for a mask file with these class names; `None` if all classes keep their ids. A
    /// class need not be in every file.
    ///
    /// # Errors
    /// If a class has a name but the file names no classes, or a class gets two ids, one by its id
    /// and one by its name.
    pub(super) fn new(classes: &[NewClass], names: Option<&[String]>) -> Result<Option<Self>> {
        if classes.is_empty() {
            return Ok(None);
        }
        let others = classes.iter().find(|new| new.class == OldClass::Others).map(|new| new.id);
        let mut new_ids: Vec<Option<u16>> = vec![None; usize::from(u16::MAX) + 1];
        let mut values = Vec::new();
        for new in classes {
            let old = match &new.class {
                OldClass::Others => continue,
                OldClass::Value(value) => {
                    values.push((*value, new.id));
                    continue;
                }
                OldClass::Id(id) => usize::from(*id),
                OldClass::Name(name) => {
                    let names = names.ok_or_else(|| {
                        Error::conflict(format!("the mask has no class named {name:?}"))
                            .with_remedy("it does not name its classes; give their ids")
                    })?;
                    match names.iter().position(|other| other == name) {
                        Some(id) => id,
                        None => continue,
                    }
                }
            };
            if new_ids[old].replace(new.id).is_some_and(|before| before != new.id) {
                return Err(Error::conflict(format!("class {old} has two new ids"))
                    .with_remedy("give the class one new id, by its id or by its name"));
            }
        }
        let listed = (0..=u16::MAX).filter(|id| new_ids[usize::from(*id)].is_some()).collect();
        let new_id = |(old, new): (u16, Option<u16>)| new.or(others).unwrap_or(old);
        let ids = (0..=u16::MAX).zip(new_ids).map(new_id).collect();
        Ok(Some(Self { ids, listed, values, others }))
    }

    /// The new id of a class id.
    pub(super) fn of(&self, id: u16) -> u16 {
        self.ids[usize::from(id)]
    }

    /// Whether the user gives a class id a new one.
    pub(super) fn lists(&self, id: u16) -> bool {
        self.listed.contains(&id)
    }

    /// The new id of another value, if it is listed.
    pub(super) fn of_value(&self, value: f64) -> Option<u16> {
        self.values.iter().find(|(listed, _)| listed.is(value)).map(|(_, id)| *id)
    }

    /// The new id of all that are not listed.
    pub(super) fn of_others(&self) -> Option<u16> {
        self.others
    }

    /// Names of the new classes. If several classes become one, it has the name of the first;
    /// classes that are listed by name come last, in the order of the list, so that their name does
    /// not depend on the file. A name is empty if it is not known. Classes that `*` replaces give
    /// no name.
    pub(super) fn names(&self, classes: &[NewClass], names: &[String]) -> Vec<String> {
        let listed = |name: &String| classes.iter().any(|new| new.class.is_named(name));
        let by_id = |old: u16| classes.iter().any(|new| new.class == OldClass::Id(old));
        let others = classes.iter().any(|new| new.class == OldClass::Others);
        let mut new_names: Vec<String> = Vec::new();
        let mut give = |id: u16, name: &String| {
            let id = usize::from(id);
            if new_names.len() <= id {
                new_names.resize(id + 1, String::new());
            }
            if new_names[id].is_empty() {
                new_names[id].clone_from(name);
            }
        };
        for (old, name) in (0..=u16::MAX).zip(names) {
            if !listed(name) && (!others || by_id(old)) {
                give(self.of(old), name);
            }
        }
        for new in classes {
            let same = |other: &&NewClass| other.id == new.id;
            let is_here = |other: &NewClass| names.iter().any(|name| other.class.is_named(name));
            if let OldClass::Name(name) = &new.class
                && classes.iter().filter(same).any(is_here)
            {
                give(new.id, name);
            }
        }
        new_names
    }
}

impl ClassTable {
    /// The colours of the new classes, from those of the classes of a file. If several classes
    /// become one, it has the colour of the first.
    pub(super) fn colors(&self, colors: &[Option<Color>]) -> Vec<Option<Color>> {
        let mut new: Vec<Option<Color>> = Vec::new();
        for (old, color) in (0..=u16::MAX).zip(colors) {
            let id = usize::from(self.of(old));
            if new.len() <= id && color.is_some() {
                new.resize(id + 1, None);
            }
            if let Some(color) = color {
                new[id].get_or_insert(*color);
            }
        }
        new
    }
}

/// The colours of a mask's classes in all cubes: `ours` of those so far, and those that another
/// cube has besides.
pub(crate) fn colors_together(ours: &mut Vec<Option<Color>>, theirs: &[Option<Color>]) {
    if ours.len() < theirs.len() {
        ours.resize(theirs.len(), None);
    }
    for (ours, theirs) in ours.iter_mut().zip(theirs) {
        *ours = ours.or(*theirs);
    }
}

/// The names that the files give, with those that the user gives in their place. A name is empty if
/// it is not known.
pub(super) fn named(files: Option<Vec<String>>, user_names: &[ClassName]) -> Option<Vec<String>> {
    let mut names = match files {
        None if user_names.is_empty() => return None,
        names => names.unwrap_or_default(),
    };
    for ClassName { id, name } in user_names {
        let id = usize::from(*id);
        if names.len() <= id {
            names.resize(id + 1, String::new());
        }
        names[id].clone_from(name);
    }
    Some(names)
}

/// The names of a mask's classes in all cubes: `ours` of those so far, and `theirs` of another
/// cube.
///
/// # Errors
/// If a class has different names. Then the same id would mean different things.
pub(crate) fn together(
    mask: &str,
    ours: Option<Vec<String>>,
    theirs: Option<Vec<String>>,
) -> Result<Option<Vec<String>>> {
    let (mut names, theirs) = match (ours, theirs) {
        (Some(ours), Some(theirs)) => (ours, theirs),
        (ours, theirs) => return Ok(ours.or(theirs)),
    };
    if names.len() < theirs.len() {
        names.resize(theirs.len(), String::new());
    }
    for (id, (ours, theirs)) in names.iter_mut().zip(theirs).enumerate() {
        let (earlier, here) = (ours.trim(), theirs.trim());
        if earlier.is_empty() {
            *ours = theirs;
        } else if id == 0 && means_nothing(earlier) && means_nothing(here) {
            // Programs name unlabelled pixels differently.
        } else if !here.is_empty() && earlier.to_lowercase() != here.to_lowercase() {
            return Err(Error::conflict(format!(
                "class {id} of mask {mask} is called {here:?} here, but {earlier:?} in other cubes"
            ))
            .with_remedy(remedy![
                "give classes the same ids with ",
                Opt::RemapClasses,
                ", or, if it is the same class, one name with ",
                Opt::ClassNames
            ]));
        }
    }
    Ok(Some(names))
}

/// Whether a name of class 0 means that pixels are not labelled.
pub(crate) fn means_nothing(name: &str) -> bool {
    const NOTHING: [&str; 7] =
        ["background", "unlabel", "unclassified", "undefined", "unknown", "none", "no data"];
    let name = name.to_lowercase();
    NOTHING.iter().any(|word| name.contains(word))
}

/// Checks that every class of a mask that is given a new id by its name is in one of the mask
/// files. `existing` are the names in all of them.
///
/// # Errors
/// If a name is in none.
pub(super) fn check_names(
    mask: &str,
    classes: &[NewClass],
    existing: &BTreeSet<String>,
) -> Result<()> {
    let missing = classes.iter().find_map(|new| match &new.class {
        OldClass::Name(name) if !existing.contains(name) => Some(name),
        _ => None,
    });
    let Some(missing) = missing else { return Ok(()) };
    let names: Vec<&str> = existing.iter().map(String::as_str).collect();
    let what = format!("no file of mask {mask} has a class named {missing:?}");
    Err(Error::conflict(what).with_remedy(format!("their classes: {}", names.join(", "))))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_that_are_no_class_ids_are_given_ids_too() {
        let classes = [new("-1", 255), new("nan", 7), new("99999", 3), new("2", 9)];
        let table = ClassTable::new(&classes, None).unwrap().unwrap();
        let of = [-1.0, f64::NAN, 99999.0, -2.0, 0.5].map(|value| table.of_value(value));
        assert_eq!(of, [Some(255), Some(7), Some(3), None, None]);
        assert_eq!((table.of(2), table.of(3), table.of_others()), (9, 3, None));
        let text = serde_json::to_string(&classes).unwrap();
        assert_eq!(serde_json::from_str::<Vec<NewClass>>(&text).unwrap(), classes);
        for name in ["inf", "0.5", "-", "1x"] {
            assert_eq!(OldClass::of(name), OldClass::Name(name.to_owned()));
        }
        assert!(OldClass::of("-1").id().is_err());
    }

    fn new(text: &str, id: u16) -> NewClass {
        NewClass { class: OldClass::of(text), id }
    }

    #[test]
    fn classes_are_given_ids_by_number_by_name_and_all_others() {
        let names: Vec<String> = ["none", "fat", "skin", "bone"].map(str::to_owned).into();
        let table = |classes: &[NewClass]| ClassTable::new(classes, Some(&names));
        let classes = [new("fat", 7), new("3", 0), new("*", 255)];
        let class_table = table(&classes).unwrap().unwrap();
        assert_eq!([0, 1, 2, 3, 9].map(|id| class_table.of(id)), [255, 7, 255, 0, 255]);
        let of_new = class_table.names(&classes, &names);
        assert_eq!((of_new.len(), of_new[0].as_str(), of_new[7].as_str()), (8, "bone", "fat"));
        let merged = [new("2", 1)];
        let class_table = table(&merged).unwrap().unwrap();
        assert_eq!([0, 1, 2, 3, 65535].map(|id| class_table.of(id)), [0, 1, 1, 3, 65535]);
        assert_eq!(class_table.names(&merged, &names), ["none", "fat", "", "bone"]);
        assert!(table(&[]).unwrap().is_none());
        let absent = table(&[new("liver", 1), new("fat", 2)]).unwrap().unwrap();
        assert_eq!([0, 1, 2].map(|id| absent.of(id)), [0, 2, 2]);
        let existing = names.iter().cloned().collect();
        check_names("gt", &[new("fat", 1), new("7", 1), new("*", 3)], &existing).unwrap();
        assert_eq!(
            check_names("gt", &[new("liver", 1)], &existing).unwrap_err().to_string(),
            "no file of mask gt has a class named \"liver\" (their classes: bone, fat, none, skin)"
        );
        assert!(table(&[new("fat", 1), new("1", 2)]).is_err());
        assert!(ClassTable::new(&[new("fat", 1)], None).is_err());
    }

    #[test]
    fn classes_that_become_one_have_the_same_name_in_every_file() {
        let classes = [new("oak", 1), new("pine", 1)];
        for file in [&["none", "oak", "pine"][..], &["none", "pine", "oak"], &["none", "pine"]] {
            let names: Vec<String> = file.iter().copied().map(str::to_owned).collect();
            let table = ClassTable::new(&classes, Some(&names)).unwrap().unwrap();
            assert_eq!(table.names(&classes, &names), ["none", "oak"], "{file:?}");
        }
        // A class that was not listed keeps its id, and its name, which differs from that in other files.
        let names = ["none", "pine", "oak"].map(str::to_owned);
        let table = ClassTable::new(&classes[..1], Some(&names)).unwrap().unwrap();
        assert_eq!(table.names(&classes[..1], &names), ["none", "pine"]);
    }

    fn names(text: &str) -> Option<Vec<String>> {
        Some(text.split(' ').map(|name| name.replace('-', "")).collect())
    }

    #[test]
    fn given_names_replace_those_of_files() {
        let user_names =
            [(2, "fat"), (4, "skin")].map(|(id, name)| ClassName { id, name: name.into() });
        assert_eq!(named(None, &user_names), names("- - fat - skin"));
        assert_eq!(named(names("none bone blood"), &user_names), names("none bone fat - skin"));
        assert_eq!(named(names("none"), &[]), names("none"));
        assert_eq!(named(None, &[]), None);
    }

    #[test]
    fn an_id_means_the_same_in_all_cubes() {
        let both = |ours, theirs| together("gt", names(ours), names(theirs));
        assert_eq!(both("none fat", "None - skin").unwrap(), names("none fat skin"));
        assert_eq!(both("Unclassified a", "Background a").unwrap(), names("Unclassified a"));
        assert!(both("oak", "pine").is_err() && both("oak", "none").is_err());
        assert_eq!(both("none - skin", "none fat").unwrap(), names("none fat skin"));
        assert_eq!(together("gt", None, names("a")).unwrap(), names("a"));
        assert_eq!(together("gt", names("a"), None).unwrap(), names("a"));
        assert_eq!(together("gt", None, None).unwrap(), None);
        assert_eq!(
            both("none fat", "none skin").unwrap_err().to_string(),
            "class 1 of mask gt is called \"skin\" here, but \"fat\" in other cubes (give classes \
             the same ids with remap_classes, or, if it is the same class, one name with class_names)"
        );
    }
}
