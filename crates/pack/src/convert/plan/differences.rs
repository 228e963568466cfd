//! Notes about cubes that were packed with other options, where files that differ, too, may need
//! that.

use std::fmt::Display;

use hsipack_format::Opt;
use hsipack_store::Dataset;

use crate::convert::classes::NewClass;
use crate::convert::options::{ConvertOptions, MaskOption, ValueOptions};
use crate::validate::recipe::{self, Recipe};

/// The record of how a dataset was packed; `None` if there is none. Of several conversions, the
/// last that calibrated by references counts, because cubes without references may have been
/// calibrated before.
pub(crate) fn recipe_of(base: &Dataset) -> Option<Recipe> {
    let recipes = recipe::read(base).ok()?;
    let calibrated = recipes
        .iter()
        .rposition(|recipe| recipe.values.white.is_some() || recipe.values.dark.is_some());
    let index = calibrated.unwrap_or(recipes.len().checked_sub(1)?);
    recipes.into_iter().nth(index)
}

/// The record that a conversion will make.
pub(super) fn recipe_for(options: &ConvertOptions) -> Recipe {
    Recipe {
        values: options.values.clone(),
        masks: options.mask.clone(),
        companions: options.companions(),
        mask_fill: options.mask_fill,
        until: 0,
    }
}

/// The differences of two records, of cubes that messages call by these `words`.
pub(crate) fn notes(
    [ours, theirs]: [&Recipe; 2],
    words: [&str; 2],
    has_wavelengths: bool,
) -> Vec<String> {
    let mut notes: Vec<String> =
        calibration(&ours.values, &theirs.values, words).into_iter().collect();
    let mut add = |option: Opt, of: &str, [ours, theirs]: [String; 2], meaning: &str| {
        if ours != theirs {
            notes.push(format!(
                "{of}{option} is {ours} for {} and {theirs} for {}: check that their {meaning} mean the same",
                words[0], words[1]
            ));
        }
    };
    let values = [ours, theirs].map(|recipe| &recipe.values);
    add(Opt::Fill, "", values.map(|values| values.fill.to_string()), "values");
    add(Opt::Nodata, "", values.map(|values| or_none(values.nodata)), "values");
    for mask in &ours.masks {
        let Some(other) = theirs.masks.iter().find(|other| is_same_mask(mask, other)) else {
            continue;
        };
        let (both, of) = ([mask, other], format!("mask {}: ", mask.name));
        add(Opt::RemapClasses, &of, both.map(|mask| new_ids(&mask.classes)), "class ids");
        add(
            Opt::MaskResample,
            &of,
            both.map(|mask| or_none(mask.resample.map(|method| method.name()))),
            "classes",
        );
        add(
            Opt::AllTouched,
            &of,
            both.map(|mask| or_none(mask.all_touched.then_some("given"))),
            "classes",
        );
    }
    if ours.masks.iter().any(|mask| theirs.masks.iter().any(|other| is_same_mask(mask, other))) {
        add(Opt::MaskFill, "", [ours, theirs].map(|recipe| or_none(recipe.mask_fill)), "class ids");
    }
    if let (Some(ours), Some(theirs)) = (ours.companions.first(), theirs.companions.first()) {
        let fits = [ours, theirs].map(|companion| or_none(companion.fit.map(|fit| fit.name())));
        add(Opt::Fit, "", fits, "values");
    }
    if let Some(options) = other_bands(&ours.values, &theirs.values).filter(|_| !has_wavelengths) {
        notes.push(format!(
            "{options} of {} and {} differ, and wavelengths are missing: check that the bands are the same",
            words[0], words[1]
        ));
    }
    notes
}

/// The options that choose other bands; `None` if they choose the same.
pub(super) fn other_bands(ours: &ValueOptions, theirs: &ValueOptions) -> Option<String> {
    let options = [
        (Opt::Bands, ours.bands != theirs.bands),
        (Opt::DropBadBands, ours.drop_bad_bands != theirs.drop_bad_bands),
        (Opt::Resample, ours.resample != theirs.resample),
    ];
    let options = options.into_iter().filter(|(_, differs)| *differs);
    let options: Vec<String> = options.map(|(option, _)| option.to_string()).collect();
    (!options.is_empty()).then(|| options.join(" and "))
}

fn or_none(value: Option<impl Display>) -> String {
    value.map_or_else(|| "not given".to_owned(), |value| value.to_string())
}

/// New ids of classes as typed.
fn new_ids(classes: &[NewClass]) -> String {
    let mut texts: Vec<String> =
        classes.iter().map(|new| format!("{}={}", new.class.text(), new.id)).collect();
    texts.sort_unstable();
    or_none(Some(texts.join(",")).filter(|text| !text.is_empty()))
}

fn is_same_mask(ours: &MaskOption, theirs: &MaskOption) -> bool {
    ours.name == theirs.name && ours.layer == theirs.layer
}

/// A note if cubes are calibrated by references and others are not. That is right if the others
/// were calibrated before.
fn calibration(ours: &ValueOptions, theirs: &ValueOptions, of: [&str; 2]) -> Option<String> {
    let is_calibrated = |values: &ValueOptions| (values.white.is_some(), values.dark.is_some());
    let words = |(white, dark)| match (white, dark) {
        (true, true) => "a white and a dark reference",
        (true, false) => "a white reference only",
        (false, true) => "a dark reference only",
        (false, false) => "no reference",
    };
    let (ours, theirs) = (is_calibrated(ours), is_calibrated(theirs));
    (ours != theirs).then(|| {
        format!(
            "{} are calibrated with {}, {} with {}: check that their values mean the same",
            of[0],
            words(ours),
            of[1],
            words(theirs)
        )
    })
}
