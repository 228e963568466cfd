//! `hsipack card`.

use std::path::PathBuf;
use std::process::ExitCode;

use hsipack_format::Result;
use hsipack_publish::{Card, CardOptions, TEMPLATE, card};

use crate::output;

/// Write the dataset card, Croissant and STAC files of a dataset.
///
/// README.md is a dataset card for the Hugging Face Hub and other readers: sensors, bands, splits,
/// classes with their pixels, license, authors, and three lines that load the dataset; preview.png
/// is its picture. croissant.json is Croissant 1.0: files with their checksums, the table of
/// samples, bands and classes. stac/ is a STAC collection with an item for each cube that has a
/// place and a time. Everything comes from the dataset or from the author's file (--about); a
/// license is never invented. Every pixel of the masks is read, to count classes.
#[derive(clap::Args)]
#[command(after_long_help = EXAMPLES)]
pub struct Args {
    /// A packed dataset: a folder, or its URL
    #[arg(required_unless_present = "template")]
    dataset: Option<PathBuf>,

    #[command(flatten)]
    options: CardOptions,

    /// Print an author's file to fill in, for --about
    #[arg(long, conflicts_with_all = ["dataset", "output", "about", "force", "json"])]
    template: bool,

    /// Print the report as one JSON object on stdout: output, files, items, notes
    #[arg(long)]
    json: bool,
}

const EXAMPLES: &str = "\
Examples:
  hsipack card --template > about.toml
  hsipack card leaves.hsipack --about about.toml
  hsipack card leaves.hsipack --about about.toml -o published/ --force";

/// Runs the command.
///
/// # Errors
/// The errors of [`card`].
pub fn run(args: Args) -> Result<ExitCode> {
    match args.dataset {
        Some(dataset) => {
            let options = CardOptions { dataset, ..args.options };
            output::report(&card(&options)?, args.json, print);
        }
        None => output::write(TEMPLATE.as_bytes()),
    }
    Ok(ExitCode::SUCCESS)
}

fn print(card: &Card) {
    for file in
        card.files.iter().filter(|file| !file.components().any(|part| part.as_os_str() == "items"))
    {
        say!("{}", file.display());
    }
    if card.items > 0 {
        say!("  {}", output::count(card.items, "STAC item"));
    }
    card.notes.iter().for_each(|note| say!("  note: {note}"));
}
