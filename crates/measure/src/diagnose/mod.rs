//! Which part of an input pipeline training waits for, found by caching.
//!
//! Training runs with ever less of the pipeline replaced by something kept ready: first on one batch that is kept on
//! the device, at last on everything real. What a level adds is what a drop from the level before accuses. A drop
//! counts only if it is larger than the spread from run to run.
//!
//! | file | part |
//! |---|---|
//! | `facts.rs` | what is known beside the times |
//! | `level.rs` | the levels, and what each adds |
//! | `subset.rs` | which samples all levels read |
//! | `rounds.rs` | how often levels, or a remedy, are run |
//! | `verdict.rs` | from times of levels to the part that is to blame |
//! | `prediction.rs` | what a batch is predicted to take, and the measured time that this rests on |
//! | `remedy.rs` | what to do about it, and what that is predicted to bring |
//! | `windowed.rs` | what loaders do by default where windows are decoded one by one |
//! | `observed.rs` | what a running loader waits for, from what it counted |
//! | `report.rs` | all of it, as JSON and for people |
//! | `driver.rs` | the trait of levels; runs them, judges, and tries the remedy |
//! | `packed.rs` | the levels of a packed dataset |
//! | `request.rs` | a packed dataset and how it is read, as plain data |
//! | `remote.rs` | the same levels in another process |
//! | `words.rs` | times and shares as people read them |

mod driver;
mod facts;
mod level;
mod observed;
mod packed;
mod prediction;
mod remedy;
mod remote;
mod report;
mod request;
mod rounds;
mod subset;
mod verdict;
mod windowed;
mod words;

pub use driver::{Effort, Lap, Levels, Timer, Variant, diagnose};
pub use facts::{AugmentationCost, CollateCost, Facts, Kind, WindowCost};
pub use level::Level;
pub use observed::{Limit, Observed};
pub use packed::{PackedOptions, Step, run};
pub use prediction::Basis;
pub use remedy::{Action, Remedy, remedy};
pub(crate) use remote::serve;
pub use remote::{About, recorded, run_remotely};
pub use report::{Diagnosis, Trial, Verified};
pub use request::PackedRequest;
pub use rounds::Rounds;
pub use subset::subset;
pub use verdict::{Limits, Measured, Row, Verdict, verdict};
