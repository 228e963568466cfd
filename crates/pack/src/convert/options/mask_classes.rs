//! Gives the classes of masks the new ids, names and colours that options say.

use hsipack_format::{Error, Opt, Result, remedy};
use hsipack_source::labels::ClassColor;

use super::mask::MaskOption;
use crate::convert::classes::{ClassName, NewClass, OldClass, OptionOfClass};

impl<T> OptionOfClass<T> {
    /// The mask, if it is named; the class; and the value.
    pub(in crate::convert) fn among(self, masks: &[MaskOption]) -> (Option<String>, OldClass, T) {
        let Self { mask, class, value } = self;
        if let (None, OldClass::Name(text)) = (&mask, &class) {
            let split = masks.iter().find_map(|mask| {
                let class = text.strip_prefix(&mask.name)?.strip_prefix('.')?;
                Some((mask.name.clone(), OldClass::of(class)))
            });
            if let Some((mask, class)) = split {
                return (Some(mask), class, value);
            }
        }
        (mask, class, value)
    }
}

impl MaskOption {
    /// Gives a class of mask `name` a new id. If `name` is `None`, there must be only one mask.
    ///
    /// # Errors
    /// If there is no such mask, no name is given but there are several masks, the mask is made of
    /// layers, or the class already has another new id.
    pub fn give_class(masks: &mut [Self], name: Option<&str>, new: NewClass) -> Result<()> {
        let mask = Self::with_classes(masks, name, "new class ids")?;
        let before = mask.classes.iter().find(|before| before.class == new.class);
        if before.is_some_and(|before| before.id != new.id) {
            return Err(Error::conflict(format!("a class of mask {} has two new ids", mask.name))
                .with_remedy("give the class one new id"));
        }
        mask.classes.push(new);
        Ok(())
    }

    /// Names a packed class id of mask `name`. If `name` is `None`, there must be only one mask.
    ///
    /// # Errors
    /// If there is no such mask, no mask is named but there are several, the mask is made of
    /// layers, the name of the class is empty, or the class already has another name.
    pub fn name_class(masks: &mut [Self], name: Option<&str>, class: ClassName) -> Result<()> {
        let mask = Self::with_classes(masks, name, "class names")?;
        if class.name.trim().is_empty() {
            let what = format!("the name of class {} of mask {} is empty", class.id, mask.name);
            return Err(Error::conflict(what).with_remedy("leave it out, or give a name"));
        }
        let mut before = mask.class_names.iter().filter(|before| before.id == class.id);
        if let Some(before) = before.find(|before| before.name != class.name) {
            return Err(Error::conflict(format!(
                "class {} of mask {} has two names: {:?} and {:?}",
                class.id, mask.name, before.name, class.name
            ))
            .with_remedy("give one of them"));
        }
        mask.class_names.push(class);
        Ok(())
    }

    /// Gives mask `name` the colours of its classes. If `name` is `None`, there must be only one
    /// mask.
    ///
    /// # Errors
    /// If there is no such mask, no mask is named but there are several, the mask is made of
    /// layers, or it already has colours.
    pub fn color_classes(
        masks: &mut [Self],
        name: Option<&str>,
        colors: Vec<ClassColor>,
    ) -> Result<()> {
        let mask = Self::with_classes(masks, name, "class colors")?;
        if !mask.colors.is_empty() {
            return Err(Error::conflict(format!("mask {} has two files of colors", mask.name))
                .with_remedy("give one file with all colors"));
        }
        mask.colors = colors;
        Ok(())
    }

    /// The mask `name` of class ids, for which the user gives `attributes`.
    fn with_classes<'a>(
        masks: &'a mut [Self],
        name: Option<&str>,
        attributes: &str,
    ) -> Result<&'a mut Self> {
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
                    "{attributes} are given, but there are {} masks",
                    masks.len()
                ));
            }
            (Some(name), masks) => match masks.iter_mut().find(|mask| mask.name == name) {
                Some(mask) => mask,
                None => {
                    return wrong(format!(
                        "{attributes} are given for mask {name}, which is not packed"
                    ));
                }
            },
        };
        if mask.layer.is_some() {
            let what =
                format!("mask {} consists of boolean layers, which have no class ids", mask.name);
            return Err(Error::conflict(what)
                .with_remedy(format!("give {attributes} for masks of class ids")));
        }
        Ok(mask)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::convert::ConvertOptions;

    /// The masks `organs` and `b.c`, whose classes get new ids and names as typed.
    fn with(ids: &[&str], names: &[&str]) -> Result<Vec<MaskOption>> {
        let options = ConvertOptions {
            mask: vec!["organs=a.png".parse().unwrap(), "b.c=a.png".parse().unwrap()],
            remap_classes: ids.iter().map(|text| text.parse().unwrap()).collect(),
            class_names: names.iter().map(|text| text.parse().unwrap()).collect(),
            ..ConvertOptions::default()
        };
        Ok(options.with_classes()?.mask)
    }

    #[test]
    fn classes_have_masks_if_these_are_named() {
        let masks = with(&["organs.tumour=3", "b.c.*=255", "organs.7 = 0"], &[]).unwrap();
        assert_eq!(masks[0].classes, [new("tumour", 3), new("7", 0)]);
        assert_eq!(masks[1].classes, [new("*", 255)]);
        assert!(with(&["tumour=3"], &[]).is_err());
        for bad in ["", "3", "=3", "a=", "a=-1", "a=65536", "a=b"] {
            assert!(bad.parse::<OptionOfClass<u16>>().is_err(), "{bad}");
        }
    }

    #[test]
    fn class_names_have_masks_if_these_are_named() {
        let typed = ["organs.3=tumour", "b.c.0=a=b", "organs.7 = left lung "];
        let masks = with(&[], &typed).unwrap();
        let class = |id, name: &str| ClassName { id, name: name.to_owned() };
        assert_eq!(masks[0].class_names, [class(3, "tumour"), class(7, "left lung")]);
        assert_eq!(masks[1].class_names, [class(0, "a=b")]);
        for bad in ["3=tumour", "organs.x=tumour", "organs.65536=tumour", "organs.3=fat"] {
            assert!(with(&[], &["organs.3=tumour", bad]).is_err(), "{bad}");
        }
        for bad in ["", "3", "=3", "3="] {
            assert!(bad.parse::<OptionOfClass<String>>().is_err(), "{bad}");
        }
    }

    #[test]
    fn a_mask_is_named_unless_there_is_only_one() {
        let mask = |name: &str, layer: Option<&str>| MaskOption {
            layer: layer.map(str::to_owned),
            ..MaskOption::new(name, "{stem}.png")
        };
        let mut single = [mask("a", None)];
        MaskOption::give_class(&mut single, None, new("1", 2)).unwrap();
        MaskOption::give_class(&mut single, Some("a"), new("2", 2)).unwrap();
        assert_eq!(single[0].classes, [new("1", 2), new("2", 2)]);
        assert!(MaskOption::give_class(&mut single, None, new("1", 3)).is_err());
        let mut two = [mask("a", None), mask("b", Some("x"))];
        for name in [None, Some("c"), Some("b")] {
            assert!(MaskOption::give_class(&mut two, name, new("1", 2)).is_err(), "{name:?}");
        }
        assert!(MaskOption::give_class(&mut [], None, new("1", 2)).is_err());
    }

    #[test]
    fn classes_are_named_once() {
        let name = |id, name: &str| ClassName { id, name: name.to_owned() };
        let mut masks = ["a", "b"].map(|mask| MaskOption::new(mask, "{stem}.png"));
        MaskOption::name_class(&mut masks, Some("b"), name(1, "fat")).unwrap();
        MaskOption::name_class(&mut masks, Some("b"), name(1, "fat")).unwrap();
        MaskOption::name_class(&mut masks, Some("b"), name(300, "skin")).unwrap();
        assert!(masks[0].class_names.is_empty() && masks[1].class_names.len() == 3);
        for (mask, class, what) in [
            (None, name(1, "fat"), "class names are given, but there are 2 masks"),
            (Some("c"), name(1, "fat"), "class names are given for mask c"),
            (Some("b"), name(1, "bone"), "class 1 of mask b has two names"),
            (Some("b"), name(2, " "), "the name of class 2 of mask b is empty"),
        ] {
            let error = MaskOption::name_class(&mut masks, mask, class).unwrap_err().to_string();
            assert!(error.contains(what), "{error}");
        }
    }

    fn new(text: &str, id: u16) -> NewClass {
        NewClass { class: OldClass::of(text), id }
    }
}
