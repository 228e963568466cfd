//! Writes the files of a dataset card.

use std::fs;
use std::path::{Path, PathBuf};

use hsipack_format::{Error, Opt, Result, remedy};
use hsipack_pack::preview::{self, PreviewOptions};
use hsipack_store::output;
use hsipack_store::remote::{self, is_url};
use serde::{Deserialize, Serialize};

use crate::about::About;
use crate::facts::Facts;
use crate::{croissant, readme, stac};

/// A card of a dataset. An option is a field, here and nowhere else.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "clap", derive(clap::Args))]
#[serde(default)]
pub struct CardOptions {
    /// A packed dataset: a folder, or its URL.
    #[cfg_attr(feature = "clap", arg(skip))]
    pub dataset: PathBuf,
    /// Folder for README.md, preview.png, croissant.json and stac/
    /// [default: the folder that holds DATASET]
    ///
    /// Links in the files expect the dataset's folder there.
    #[cfg_attr(feature = "clap", arg(short, long, value_name = "DIR"))]
    pub output: Option<PathBuf>,
    /// The author's words: a TOML file with title, description, license, authors, citation, …
    /// [default: none, and the card says that there is no license]
    #[cfg_attr(feature = "clap", arg(long, value_name = "FILE"))]
    pub about: Option<PathBuf>,
    /// Overwrite the output if it exists [default: an existing file is an error]
    #[cfg_attr(feature = "clap", arg(long))]
    pub force: bool,
}

/// The result of writing a card.
#[derive(Clone, Debug, Serialize)]
pub struct Card {
    /// The folder.
    pub output: PathBuf,
    /// Paths of all files.
    pub files: Vec<PathBuf>,
    /// Number of STAC items.
    pub items: usize,
    /// Notes for the user.
    pub notes: Vec<String>,
}

/// Writes the card of a dataset.
///
/// # Errors
/// If the dataset or the author's file cannot be read, a file exists already, or one cannot be
/// written.
pub fn card(options: &CardOptions) -> Result<Card> {
    let about = match &options.about {
        Some(file) => About::read(file)?,
        None => About::default(),
    };
    let folder = output_folder(options)?;
    let threads = hsipack_store::threads::cores();
    let facts = Facts::of(&options.dataset, &about, threads)?;
    let mut texts = vec![
        ("README.md".to_owned(), readme::text(&facts, &about)),
        ("croissant.json".to_owned(), croissant::text(&facts, &about)),
    ];
    texts.extend(stac::files(&facts, &about));
    let mut files = vec![folder.join(readme::PICTURE)];
    files.extend(texts.iter().map(|(name, _)| folder.join(name)));
    output::check_absent(&files, options.force)?;
    fs::create_dir_all(&folder).map_err(|error| Error::io(&folder, "cannot create", error))?;
    draw(&options.dataset, &files[0])?;
    for ((_, text), file) in texts.iter().zip(&files[1..]) {
        output::write_whole(file, text.as_bytes())?;
    }
    let items = facts.footprints.items.len();
    Ok(Card { notes: notes(&facts, &about, options, &folder), output: folder, files, items })
}

/// The folder of the card.
fn output_folder(options: &CardOptions) -> Result<PathBuf> {
    match &options.output {
        Some(folder) => {
            remote::refuse(folder, "writing a card to")?;
            Ok(folder.clone())
        }
        None if is_url(&options.dataset) => {
            Err(Error::conflict("the dataset is on a server, so its card needs a folder")
                .at(&options.dataset)
                .with_remedy(remedy!["give one with ", Opt::Output]))
        }
        None => {
            let dataset = &options.dataset;
            // `.` has no name, so its folder cannot be seen in its path.
            let path = match dataset.file_name() {
                Some(_) => dataset.clone(),
                None => dataset
                    .canonicalize()
                    .map_err(|error| Error::io(dataset, "cannot open", error))?,
            };
            let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
            Ok(folder.unwrap_or(Path::new(".")).to_owned())
        }
    }
}

/// Draws the contact sheet.
fn draw(dataset: &Path, picture: &Path) -> Result<()> {
    preview::preview(&PreviewOptions {
        mask_file: None,
        path: dataset.display().to_string(),
        output: picture.to_owned(),
        sample: None,
        mask: None,
        axes: None,
        // Whether it may be replaced was decided above.
        force: true,
    })
    .map(drop)
}

fn notes(facts: &Facts, about: &About, options: &CardOptions, folder: &Path) -> Vec<String> {
    let mut notes = Vec::new();
    if about.license.is_none() && about.license_url.is_none() {
        notes.push(
            "no license: nobody else may say under which conditions the data can be used; add license = \"…\" to the author's file"
                .to_owned(),
        );
    }
    let is_beside = || {
        let [sibling, other] = [folder.join(&facts.folder), options.dataset.clone()]
            .map(|path| path.canonicalize().ok());
        sibling.is_some() && sibling == other
    };
    if about.location.is_none() && !is_beside() {
        notes.push(format!(
            "the card expects the dataset beside it: copy it to {}, or set location in the author's file",
            folder.join(&facts.folder).display()
        ));
    }
    notes.extend(facts.footprints.notes());
    notes
}
