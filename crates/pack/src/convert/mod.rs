//! Conversion: cubes in, a packed dataset out.
//!
//! | file | part |
//! |---|---|
//! | `options.rs` | what the user asks for |
//! | `plan/` | every input opened once, checked, given its place; nothing written |
//! | `pairs.rs` | which white and dark reference belong to which cube |
//! | `references.rs` | white and dark references of a cube, and whether they fit it |
//! | `transform.rs`, `calibration.rs`, `cast.rs` | from stored numbers to fp16 |
//! | `stats.rs` | per-band statistics and quantisation error |
//! | `bad_bands.rs` | bands that are marked bad or have no values |
//! | `masks.rs`, `patterns.rs` | class ids and boolean layers; where they lie |
//! | `classes.rs` | other class ids for those of mask files |
//! | `dry_run.rs` | what would be done, and how big it gets |
//! | `encode.rs` | one block of rows: read, transform, cast, compress |
//! | `engine/` | threads, order, back-pressure |
//! | `shards.rs` | shards, written once and whole |
//! | `staging/` | what lies beside the output, resume, and the commit; in folders and on servers |
//! | `shared_geo.rs` | where all samples of a stack lie |
//! | `metadata.rs` | `zarr.json`, `samples.jsonl`, `SHA256SUMS` |
//! | `run.rs` | all of it in order, and the report |
//! | `parts/` | the same by several processes: plan, work, commit |
//! | `sealed.rs` | JSON with a hash of itself |

mod bad_bands;
mod calibration;
pub(crate) mod cast;
mod classes;
mod dry_run;
pub(crate) mod encode;
mod engine;
pub(crate) mod masks;
pub(crate) mod metadata;
pub(crate) mod options;
pub(crate) mod pairs;
pub mod parts;
mod patterns;
pub mod plan;
pub(crate) mod references;
mod run;
mod sealed;
pub(crate) mod shards;
pub(crate) mod shared_geo;
pub(crate) mod staging;
pub mod stats;
pub(crate) mod transform;

pub use bad_bands::{BadBands, band_ranges};
pub use classes::{NewClass, OldClass};
pub use dry_run::{Estimate, StackEstimate, dry_run};
pub use masks::{MaskGroup, MaskReader, groups as mask_groups};
pub use options::*;
pub use run::{Report, WorstError, convert};
