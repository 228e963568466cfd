//! Finds the part of an input pipeline that training waits for, by caching.
//!
//! Training runs with ever more of the pipeline real. At the first level, one batch is kept ready
//! on the device; at the last level, everything is real. If the rate drops from one level to the
//! next, the part that the level adds is the culprit. A drop counts only if it is larger than the
//! spread from run to run.
//!
//! | file | part |
//! |---|---|
//! | `facts.rs` | facts about the pipeline besides the times |
//! | `level.rs` | the levels, and what each adds |
//! | `subset.rs` | which samples all levels read |
//! | `rounds.rs` | how often levels, or a remedy, are run |
//! | `verdict.rs` | finds the culprit from the times of the levels |
//! | `prediction.rs` | the predicted time of a batch, and the measured time it is based on |
//! | `remedy.rs` | what to do about the culprit, and the gain that is predicted |
//! | `windowed.rs` | what loaders do by default if windows are decoded one by one |
//! | `observed.rs` | what a running loader waits for, from its counters |
//! | `report.rs` | the whole diagnosis, as JSON and for people |
//! | `driver.rs` | the trait of levels; runs them, finds the culprit, and tries the remedy |
//! | `packed.rs` | the levels of a packed dataset |
//! | `effort.rs` | how much is measured |
//! | `options.rs` | a packed dataset and the options for reading it, as plain data |
//! | `remote.rs` | the same levels in another process |
//! | `words.rs` | formats times and shares for people |

mod action;
mod driver;
mod effort;
mod facts;
mod level;
mod observed;
mod options;
mod packed;
mod prediction;
mod remedy;
mod remote;
mod report;
mod rounds;
mod subset;
mod verdict;
mod windowed;
mod words;

pub use action::Action;
pub use driver::{Lap, Levels, Timer, Variant, diagnose};
pub use effort::Effort;
pub use facts::{AugmentationCost, CollateCost, Facts, Kind, WindowCost};
pub use level::Level;
pub use observed::{Limit, Observed};
pub use options::DiagnoseOptions;
pub use packed::{PackedOptions, Step, run};
pub use prediction::Basis;
pub use remedy::{Remedy, remedy};
pub(crate) use remote::serve;
pub use remote::{About, recorded, run_remotely};
pub use report::{Diagnosis, Trial, Verified};
pub use rounds::Rounds;
pub use subset::subset;
pub use verdict::{Limits, Measured, Row, Verdict, verdict};
