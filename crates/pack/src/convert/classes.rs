//! Replaces class ids of mask files while they are packed.

use hsipack_format::{Error, Opt, Result, remedy};
use serde::{Deserialize, Serialize};

use super::options::MaskOption;

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
    /// Its name in the file.
    Name(String),
    /// Every class that is not listed.
    Others,
}

impl OldClass {
    /// Parses `*`, an id or a name.
    pub fn of(text: &str) -> Self {
        match text.parse() {
            _ if text == "*" => Self::Others,
            Ok(id) => Self::Id(id),
            Err(_) => Self::Name(text.to_owned()),
        }
    }
}

impl MaskOption {
    /// Gives a class of mask `name` a new id. If `name` is `None`, there must be only one mask.
    ///
    /// # Errors
    /// If there is no such mask, no name is given but there are several masks, the mask is made of layers, or the class
    /// already has another new id.
    pub fn give_class(masks: &mut [Self], name: Option<&str>, new: NewClass) -> Result<()> {
        let names: Vec<String> = masks.iter().map(|mask| mask.name.clone()).collect();
        let wrong = |what: String| {
            let error = Error::conflict(what);
            Err(match names.as_slice() {
                [] => error.with_remedy(remedy!["give the masks with ", Opt::Mask]),
                names => error.with_remedy(format!("the masks are {}", names.join(", "))),
            })
        };
        let mask = match (name, masks) {
            (None, [only]) => only,
            (None, masks) => {
                return wrong(format!(
                    "new class ids are given, but there are {} masks",
                    masks.len()
                ));
            }
            (Some(name), masks) => match masks.iter_mut().find(|mask| mask.name == name) {
                Some(mask) => mask,
                None => {
                    return wrong(format!(
                        "new class ids are given for mask {name}, which is not packed"
                    ));
                }
            },
        };
        if mask.layer.is_some() {
            let what =
                format!("mask {} consists of boolean layers, which have no class ids", mask.name);
            return Err(Error::conflict(what).with_remedy("give new ids to masks of class ids"));
        }
        let before = mask.classes.iter().find(|before| before.class == new.class);
        if before.is_some_and(|before| before.id != new.id) {
            return Err(Error::conflict(format!("a class of mask {} has two new ids", mask.name))
                .with_remedy("give the class one new id"));
        }
        mask.classes.push(new);
        Ok(())
    }
}

/// The new id of every class id.
#[derive(Clone, Debug)]
pub struct ClassTable(Vec<u16>);

impl ClassTable {
    /// The table for a mask file with these class names; `None` if all classes keep their ids.
    ///
    /// # Errors
    /// If the file has no class of that name, or a class gets two ids, one by its id and one by its name.
    pub(super) fn new(classes: &[NewClass], names: Option<&[String]>) -> Result<Option<Self>> {
        if classes.is_empty() {
            return Ok(None);
        }
        let others = classes.iter().find(|new| new.class == OldClass::Others).map(|new| new.id);
        let mut given: Vec<Option<u16>> = vec![None; usize::from(u16::MAX) + 1];
        for new in classes {
            let old = match &new.class {
                OldClass::Others => continue,
                OldClass::Id(id) => usize::from(*id),
                OldClass::Name(name) => place(name, names)?,
            };
            if given[old].replace(new.id).is_some_and(|before| before != new.id) {
                return Err(Error::conflict(format!("class {old} has two new ids"))
                    .with_remedy("give the class one new id, by its id or by its name"));
            }
        }
        let new_id = |(old, new): (u16, Option<u16>)| new.or(others).unwrap_or(old);
        Ok(Some(Self((0..=u16::MAX).zip(given).map(new_id).collect())))
    }

    /// The new id.
    pub(super) fn of(&self, id: u16) -> u16 {
        self.0[usize::from(id)]
    }

    /// Names of the new classes. If several classes become one, it has the name of the first. A name is empty if it is
    /// not known. Classes that `*` replaces give no name.
    pub(super) fn names(&self, classes: &[NewClass], names: &[String]) -> Vec<String> {
        let others = classes.iter().find(|new| new.class == OldClass::Others);
        let is_named = |old: u16| {
            others.is_none()
                || classes.iter().any(|new| match &new.class {
                    OldClass::Id(id) => *id == old,
                    OldClass::Name(name) => names.get(usize::from(old)) == Some(name),
                    OldClass::Others => false,
                })
        };
        let mut made: Vec<String> = Vec::new();
        for (old, name) in (0..=u16::MAX).zip(names).filter(|(old, _)| is_named(*old)) {
            let new = usize::from(self.of(old));
            if made.len() <= new {
                made.resize(new + 1, String::new());
            }
            if made[new].is_empty() {
                made[new].clone_from(name);
            }
        }
        made
    }
}

fn place(name: &str, names: Option<&[String]>) -> Result<usize> {
    let names = names.unwrap_or_default();
    names.iter().position(|known| known == name).ok_or_else(|| {
        Error::conflict(format!("the mask has no class named {name:?}")).with_remedy(match names {
            [] => "it does not name its classes; give their ids".to_owned(),
            names => format!("its classes: {}", names.join(", ")),
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn new(text: &str, id: u16) -> NewClass {
        NewClass { class: OldClass::of(text), id }
    }

    #[test]
    fn classes_are_given_ids_by_number_by_name_and_all_others() {
        let names: Vec<String> = ["none", "fat", "skin", "bone"].map(str::to_owned).into();
        let table = |classes: &[NewClass]| ClassTable::new(classes, Some(&names));
        let classes = [new("fat", 7), new("3", 0), new("*", 255)];
        let made = table(&classes).unwrap().unwrap();
        assert_eq!([0, 1, 2, 3, 9].map(|id| made.of(id)), [255, 7, 255, 0, 255]);
        let of_new = made.names(&classes, &names);
        assert_eq!((of_new.len(), of_new[0].as_str(), of_new[7].as_str()), (8, "bone", "fat"));
        let merged = [new("2", 1)];
        let made = table(&merged).unwrap().unwrap();
        assert_eq!([0, 1, 2, 3, 65535].map(|id| made.of(id)), [0, 1, 1, 3, 65535]);
        assert_eq!(made.names(&merged, &names), ["none", "fat", "", "bone"]);
        assert!(table(&[]).unwrap().is_none());
        assert!(
            table(&[new("liver", 1)]).unwrap_err().to_string().contains("its classes: none, fat")
        );
        assert!(table(&[new("fat", 1), new("1", 2)]).is_err());
        assert!(ClassTable::new(&[new("fat", 1)], None).is_err());
    }

    #[test]
    fn a_mask_is_named_unless_there_is_only_one() {
        let mask = |name: &str, layer: Option<&str>| MaskOption {
            name: name.into(),
            layer: layer.map(str::to_owned),
            pattern: "{stem}.png".into(),
            classes: Vec::new(),
        };
        let mut one = [mask("a", None)];
        MaskOption::give_class(&mut one, None, new("1", 2)).unwrap();
        MaskOption::give_class(&mut one, Some("a"), new("2", 2)).unwrap();
        assert_eq!(one[0].classes, [new("1", 2), new("2", 2)]);
        assert!(MaskOption::give_class(&mut one, None, new("1", 3)).is_err());
        let mut two = [mask("a", None), mask("b", Some("x"))];
        for name in [None, Some("c"), Some("b")] {
            assert!(MaskOption::give_class(&mut two, name, new("1", 2)).is_err(), "{name:?}");
        }
        assert!(MaskOption::give_class(&mut [], None, new("1", 2)).is_err());
    }
}
