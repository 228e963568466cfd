//! How the values of a dataset were made, as it records it.

use std::path::{Path, PathBuf};

use hsipack_format::metadata::ADDED_COMPANIONS;
use hsipack_format::{
    Codec, Command, Compressor, Error, ErrorKind, Opt, Result, Sample, Shuffle, remedy,
};
use hsipack_store::Dataset;
use hsipack_store::remote::is_url;
use serde_json::Value;

use crate::convert::{Assignment, CompanionOption, FitMethod, MaskOption, ValueOptions};
use crate::input::{ARRAY, Input};

/// The record of one conversion or append.
pub struct Recipe {
    /// Options that decide the values.
    pub values: ValueOptions,
    /// The masks.
    pub masks: Vec<MaskOption>,
    /// The companions: the targets, then the further images.
    pub companions: Vec<CompanionOption>,
    /// The class id of cubes without a mask.
    pub mask_fill: Option<u16>,
    /// The first sample that was not made this way. The recipe applies to all samples from the
    /// `until` of the previous recipe.
    pub until: usize,
}

/// The recipes of a dataset, in the order of the samples.
///
/// # Errors
/// If the dataset has no recipes, or they are from another version.
pub fn read(dataset: &Dataset) -> Result<Vec<Recipe>> {
    let missing = || {
        Error::unsupported("the dataset does not record how it was converted")
            .at(dataset.path().join("zarr.json"))
            .with_remedy(remedy![
                "only datasets that ",
                Command::Convert,
                " wrote can be compared with their sources"
            ])
    };
    let recipes = dataset.root().recipes().ok_or_else(missing)?;
    let recipes = recipes.into_iter().map(|(recipe, until)| {
        let part = |key: &str| recipe.get(key).cloned().unwrap_or_default();
        Ok(Recipe {
            values: ValueOptions::from_record(part("values")).map_err(|_| missing())?,
            masks: serde_json::from_value(part("masks")).map_err(|_| missing())?,
            companions: companions(recipe).ok_or_else(missing)?,
            mask_fill: serde_json::from_value(part("mask_fill")).map_err(|_| missing())?,
            until,
        })
    });
    recipes.collect()
}

/// The companions of a recipe, with those that were added later; `None` if the recipe is malformed.
fn companions(recipe: &Value) -> Option<Vec<CompanionOption>> {
    let assignments = |key: &str| -> Option<Vec<Assignment>> {
        let listed = recipe.get(key).cloned();
        listed.map_or(Some(Vec::new()), |listed| serde_json::from_value(listed).ok())
    };
    let fit = recipe.get("fit").cloned();
    let fit: Option<FitMethod> = fit.map(serde_json::from_value).transpose().ok()?;
    let mut all = CompanionOption::all(&assignments("targets")?, &assignments("images")?, fit);
    if let Some(added) = recipe.get(ADDED_COMPANIONS) {
        all.extend(serde_json::from_value::<Vec<_>>(added.clone()).ok()?);
    }
    Some(all)
}

/// The recipe of sample `id`.
pub fn of(recipes: &[Recipe], id: usize) -> Option<&Recipe> {
    recipes.iter().find(|recipe| id < recipe.until)
}

/// The codec that a dataset's array was packed with.
pub fn codec(array: &hsipack_store::dataset::ChunkArray) -> Codec {
    let meta = array.meta();
    let stored = Codec::new(Compressor::Lz4, 0, Shuffle::None, meta.dtype);
    meta.codecs.compression.unwrap_or(stored)
}

/// Finds the source of a sample: the recorded path relative to the working directory, otherwise to
/// `root`, otherwise to the folder that contains the dataset.
///
/// # Errors
/// If no file is there, or the source was never a file.
pub fn locate(sample: &Sample, dataset: &Path, root: Option<&Path>) -> Result<Input> {
    if sample.source.format == ARRAY {
        let what = "it was packed from an array in a program, so there is no source file";
        let remedy = "pack it again with the program that made it";
        return Err(Error::unsupported(what).with_remedy(remedy));
    }
    let found = find(sample, dataset, root).map(|input| input.with_fields_of(sample));
    found.ok_or_else(|| {
        Error::new(ErrorKind::Io, format!("the source of sample {} is missing", sample.name))
            .at(&sample.source.path)
            .with_remedy(remedy![
                "run this in the folder where the conversion was run, or pass ",
                Opt::SourceRoot
            ])
    })
}

fn find(sample: &Sample, dataset: &Path, root: Option<&Path>) -> Option<Input> {
    let recorded = Input::parse(&sample.source.path);
    let axes = sample.source.axes.clone();
    if is_url(&recorded.file) {
        return Input { axes, ..recorded }.here().ok();
    }
    // If the whole recorded path does not exist here, the variable after `::` is split off.
    let (file, variable) = match sample.source.path.split_once("::") {
        Some((file, variable)) if !Path::new(&sample.source.path).exists() => {
            (PathBuf::from(file), Some(variable.to_owned()))
        }
        _ => (recorded.file.clone(), recorded.variable.clone()),
    };
    let beside = dataset.parent().unwrap_or(Path::new(""));
    let places = [Some(Path::new("")), root, Some(beside)];
    let here = |folder: &Path| Input::of(&folder.join(&file)).here().ok();
    let found = places.into_iter().flatten().filter_map(here).find(|input| input.file.exists())?;
    Some(Input { variable, axes, ..found })
}
