//! Finds what a path refers to: a cube in a file, or a packed dataset; and which sample of a
//! dataset.

use std::path::Path;

use hsipack_format::{Command, Error, Result, Samples, remedy};
use hsipack_source::Source;
use hsipack_store::remote::is_url;
use hsipack_store::{Dataset, is_packed};

use crate::convert::ValueOptions;
use crate::convert::plan;
use crate::input::Input;
use crate::search::only_cube;

/// A cube or a dataset to inspect.
pub enum Target {
    /// A cube in a file.
    Cube(Box<Input>, Box<dyn Source>),
    /// A packed dataset.
    Dataset(Box<Dataset>),
}

impl Target {
    /// Opens what `text` names: `file`, `file::variable`, an archive of one cube, or the folder or
    /// URL of a dataset. `axes` is the order of an array's axes, if the user gave it. The caller
    /// must hold a session of [`mirror`](hsipack_store::mirror) as long as files are read.
    ///
    /// # Errors
    /// If it is neither, or cannot be opened.
    pub fn open(text: &str, axes: Option<&str>) -> Result<Self> {
        let input = Input::parse(text);
        // Only datasets are opened from a server. If there is none, opening it gives the error.
        let remote = is_url(&input.file);
        if remote || (input.variable.is_none() && is_packed(&input.file)) {
            return Ok(Self::Dataset(Box::new(Dataset::open(&input.file)?)));
        }
        let input = only_cube(input.here()?)?;
        let is_cube = hsipack_source::is_container_folder(&input.file)
            || hsipack_source::is_product_folder(&input.file);
        if input.file.is_dir() && !is_cube {
            return Err(Error::unsupported("this folder is neither a cube nor a packed dataset")
                .at(&input.file)
                .with_remedy(remedy![
                    "give one of the cubes in it, or a dataset that ",
                    Command::Convert,
                    " wrote"
                ]));
        }
        let values = ValueOptions { axes: axes.map(str::to_owned), ..ValueOptions::default() };
        let source = plan::open_source(&input, &values)?;
        Ok(Self::Cube(Box::new(input), source))
    }
}

/// The id of the sample that `text` names among those of the dataset at `path`: by its id or its
/// name, or by one of them in particular, as in `id:3` and `name:3`.
///
/// # Errors
/// If there is no such sample, or one sample has this id and another one this name.
pub fn find_sample(samples: &Samples, path: &Path, text: &str) -> Result<usize> {
    let found = match (samples.by_id(text), samples.by_name(text)) {
        (Some(id), Some(named)) if id != named => {
            return Err(Error::conflict(format!(
                "{text} is the id of the sample {}, and the name of the sample with the id {named}",
                samples.name(id)
            ))
            .at(path)
            .with_remedy(format!("give id:{text} or name:{text}")));
        }
        (by_id, by_name) => by_id.or(by_name),
    };
    let explicit = || match text.split_once(':')? {
        ("id", id) => samples.by_id(id),
        ("name", name) => samples.by_name(name),
        _ => None,
    };
    found.or_else(explicit).ok_or_else(|| {
        let error = Error::conflict(format!("there is no sample {text}")).at(path);
        match samples.names().next() {
            None => error,
            Some(first) => error.with_remedy(format!(
                "give an id from 0 to {} or a name such as {first}; samples.jsonl lists them",
                samples.len() - 1,
            )),
        }
    })
}
