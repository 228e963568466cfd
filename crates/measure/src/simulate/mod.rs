//! Loaders, queue and model over time: how many batches an input pipeline gives, and who waits for whom.
//!
//! Each of some **loaders** works on one batch at a time. A finished batch goes into a bounded **queue**; while there
//! is no room the loader **holds** it and waits (back-pressure). One consumer, the **model**, takes a batch, is busy
//! for a step, and takes the next.
//!
//! ```
//! use hsipack_measure::simulate::{Model, simulate};
//!
//! let outcome = simulate(&Model::new(7, 2.0, 0.1)).unwrap().outcome;
//! assert!((95..=101).contains(&outcome.batches)); // in 30 s; 98 if all loads took the same time
//! ```
//!
//! Time goes from event to event in whole nanoseconds; nothing is stepped or rounded beside that. The same model gives
//! the same run on every machine.
//!
//! | file | part |
//! |---|---|
//! | `model.rs` | what is simulated, and what is no model |
//! | `times.rs` | how load and step times are drawn |
//! | `random.rs` | random numbers by what they are for |
//! | `measured.rs` | a model from measured statistics |
//! | `what_if.rs` | a model with something changed |
//! | `engine.rs` | the events |
//! | `tally.rs` | shares, levels and their course, from the events |
//! | `trace.rs` | the first batches one by one, from the events |
//! | `report.rs` | what came out |
//! | `timeline.rs` | a picture of it |
//! | `page.rs`, `page.js`, `page.css` | a page that plays it |

mod engine;
mod measured;
mod model;
mod page;
mod random;
mod report;
mod tally;
mod timeline;
mod times;
mod trace;
mod what_if;

#[cfg(test)]
mod tests;

pub use measured::Measured;
pub use model::{DEFAULT_SPREAD, End, MOST_BATCHES, MOST_LOADERS, MOST_QUEUE, Model, Order};
pub use page::page;
pub use report::{
    Bounds, Changed, Limit, LoaderShare, Options, Outcome, Report, Run, Scenario, simulate,
};
pub use tally::Series;
pub use timeline::timeline;
pub use times::Times;
pub use trace::{BatchTrace, Trace};
pub use what_if::{Change, WhatIf};
