//! Conversion: packs cubes into a dataset.
//!
//! | file | part |
//! |---|---|
//! | `options/` | the options of a conversion |
//! | `arguments.rs` | feature `clap`: the options as they are typed on a command line |
//! | `plan/` | opens and checks every input once, gives it a place, and resolves the options that depend on inputs; writes nothing |
//! | `cube_file.rs` | opens the file of a cube or of its reference as the options say |
//! | `pairs.rs` | finds the white and dark references of each cube |
//! | `references.rs` | white and dark references of a cube, and whether they fit it |
//! | `transform.rs`, `calibration.rs`, `cast.rs` | from stored numbers to fp16 |
//! | `stats.rs` | per-band statistics and quantisation error |
//! | `bad_bands.rs` | bands that are marked bad or have no values |
//! | `masks.rs` | class ids and boolean layers, and where their files are |
//! | `companions.rs` | targets and further images, and where their files are |
//! | `fit.rs` | brings companions of another resolution to the grid of their cubes |
//! | `assignment.rs` | options of the form `NAME=VALUE` |
//! | `classes.rs`, `class_ids.rs` | new ids and names for the classes of mask files |
//! | `boxes.rs` | bounding boxes as columns of samples |
//! | `conflicts.rs` | errors about outputs that are in the way, or missing |
//! | `dry_run.rs` | shows what would be packed and the estimated size |
//! | `encode.rs` | one block of rows: read, transform, cast, compress |
//! | `engine/` | threads, order, back-pressure |
//! | `shards.rs` | writes shards |
//! | `staging/` | the files beside the output, resuming, and the commit; in folders and on servers |
//! | `shared_geo.rs` | the georeferencing that all samples of a stack share |
//! | `metadata.rs` | `zarr.json`, `samples.jsonl`, `SHA256SUMS` |
//! | `request.rs` | what identifies a command, what a dataset records of it, and how two commands differ |
//! | `run.rs` | runs all steps in order and reports |
//! | `parts/` | the same with several processes: plan, work, commit |
//! | `sealed.rs` | JSON with a hash of itself |

#[cfg(feature = "clap")]
mod arguments;
mod assignment;
mod bad_bands;
mod band_centers;
mod boxes;
mod calibration;
pub(crate) mod cast;
mod class_files;
mod class_ids;
pub(crate) mod classes;
pub(crate) mod companions;
mod conflicts;
mod cube_file;
mod dry_run;
pub(crate) mod encode;
mod engine;
mod file_columns;
mod fit;
pub(crate) mod header;
pub mod integers;
pub(crate) mod masks;
pub(crate) mod metadata;
pub(crate) mod named_files;
pub(crate) mod options;
pub(crate) mod pairs;
pub mod parts;
mod pixel_position;
pub mod plan;
pub(crate) mod references;
mod request;
mod run;
mod sealed;
pub(crate) mod shards;
pub(crate) mod shared_geo;
pub(crate) mod staging;
pub mod stats;
pub(crate) mod transform;

pub use assignment::Assignment;
pub use bad_bands::{BadBands, band_ranges};
pub use classes::{ClassName, NewClass, OldClass, OptionOfClass, OtherValue};
pub(crate) use companions::CompanionReader;
pub use companions::PlannedCompanion;
pub(crate) use conflicts::output_exists;
pub use dry_run::{Estimate, StackEstimate, dry_run};
pub use masks::{CubeOfMask, MaskGroup, MaskReader, groups as mask_groups};
pub use options::*;
pub(crate) use options::{one_or_several, words};
pub use run::{PackedColumns, PackedStack, Report, WorstError, convert};
