//! Publishing: the files that others need to find, cite and load a packed dataset.
//!
//! [`card`] describes a dataset in the forms that catalogues of datasets read:
//!
//! | file | what it is |
//! |---|---|
//! | `README.md` | a dataset card as the Hugging Face Hub shows it: a YAML header, and a page for people |
//! | `preview.png` | the contact sheet of [`hsipack_pack::preview`], which the card shows |
//! | `croissant.json` | Croissant 1.0: metadata files with checksums, shards, the table of samples, bands and classes |
//! | `stac/` | a STAC collection with an item for each cube that has a place and a time |
//!
//! Everything is either read from the dataset or said by its author in one TOML file ([`About`]).
//! Nothing else is written: without the author's words there is no licence, no author and no
//! citation.
//!
//! | module | job |
//! |---|---|
//! | `about.rs` | the author's file |
//! | `facts.rs` | facts that are read from the dataset |
//! | `readme.rs`, `croissant.rs`, `stac.rs` | the text of each file. Pure |
//! | `footprints.rs` | where cubes are on Earth, in longitude and latitude, and when they were measured |
//! | `card.rs` | writes the files |
#![deny(missing_docs)]

mod about;
mod card;
mod croissant;
mod facts;
mod footprints;
mod markdown;
mod readme;
mod stac;

pub use about::{About, Author, TEMPLATE};
pub use card::{Card, CardOptions, card};
