//! Finds the codec, chunk size and number of mantissa bits that suit these cubes on this machine.
//!
//! ```text
//! cubes or dataset → sample → candidates → rounds → Pareto front → advice → report, page
//! ```
//!
//! | file | part |
//! |---|---|
//! | `options.rs` | the options |
//! | `run.rs` | the whole run, in order |
//! | `sample.rs` | adjacent rows of some cubes, cut into chunks |
//! | `candidates.rs` | the codecs and chunk sizes that are tried |
//! | `figures.rs` | the results of a candidate |
//! | `measure.rs` | encoding, decoding and copying, round by round, for a limited time |
//! | `pareto.rs` | the Pareto front |
//! | `advice.rs` | what limits the rate with a disk, cores and a model, and what to choose |
//! | `windows.rs` | what windows cost for each way to cut cubes, and what loaders do about it |
//! | `gpu.rs` | decoding on a GPU, with blocks of different sizes |
//! | `integers.rs` | integers that are packed as they are, compared with float16 |
//! | `precision.rs` | information in bits, the gain of dropping some, and the resulting error |
//! | `report.rs` | all results; its names are the keys of `--json` |
//! | `page.rs` | the report as a page |

mod advice;
mod candidates;
mod figures;
mod gpu;
mod integers;
mod measure;
mod options;
mod page;
mod pareto;
mod precision;
mod report;
mod run;
mod sample;
mod windows;

pub use self::advice::{Case, Choice, Limit};
pub use self::candidates::Candidate;
pub use self::figures::{Measured, Rate};
pub use self::gpu::{GpuCandidate, GpuDecoding};
pub use self::integers::Integers;
pub use self::options::TuneOptions;
pub use self::page::page;
pub use self::precision::{BandErrors, Precision, Spectrum, Variant};
pub use self::report::Report;
pub use self::run::tune;
pub use self::sample::SampleReport;
pub use self::windows::{Auto, Layout, Windows};

// `bench` also chooses a codec with these.
pub(crate) use self::measure::{Bench, Limits};
pub(crate) use self::sample::Chunks;
