//! The commands, one per file: their arguments, and how these become options of the libraries.

pub mod add;
pub mod bench;
pub mod card;
pub mod commit;
pub mod completions;
pub mod convert;
pub mod diagnose;
pub mod export;
pub mod info;
pub mod layouts;
pub mod local_cache;
pub mod man;
pub mod merge;
pub mod preview;
pub mod read;
pub mod repair;
pub mod simulate;
pub mod spectra;
pub mod split;
pub mod status;
pub mod table;
pub mod tune;
pub mod validate;
pub mod view;
pub mod work;
