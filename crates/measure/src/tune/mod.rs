//! Which codec, chunk size and number of mantissa bits suit these cubes on this machine.
//!
//! ```text
//! cubes or dataset → sample → candidates → rounds → Pareto front → advice → report, page
//! ```
//!
//! | file | part |
//! |---|---|
//! | `options.rs` | what is asked for |
//! | `run.rs` | all of it, in order |
//! | `sample.rs` | adjacent rows of some cubes, cut into chunks |
//! | `candidates.rs` | what is tried |
//! | `figures.rs` | what came of a candidate |
//! | `measure.rs` | encoding, decoding and copying, round by round, within a time |
//! | `pareto.rs` | what nothing else is better than in every respect |
//! | `advice.rs` | what limits the rate with a disk, cores and a model, and what to choose |
//! | `windows.rs` | what windows cost by how cubes are cut, and what loaders do about it |
//! | `precision.rs` | information in bits, what dropping some gains, and the error it makes |
//! | `report.rs` | everything that was found; its names are the keys of `--json` |
//! | `page.rs` | the same as a page |

mod advice;
mod candidates;
mod figures;
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
pub use self::options::Options;
pub use self::page::page;
pub use self::precision::{BandErrors, Precision, Spectrum, Variant};
pub use self::report::Report;
pub use self::run::tune;
pub use self::sample::SampleReport;
pub use self::windows::{Auto, Layout, Windows};

// `bench`, too, chooses a codec with these.
pub(crate) use self::measure::{Bench, Limits};
pub(crate) use self::sample::Chunks;
