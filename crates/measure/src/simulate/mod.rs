//! Simulates loaders, queue, device and model over time: how many batches an input pipeline
//! delivers, and which part waits for which.
//!
//! Each of several **loaders** works on one batch at a time. A finished batch goes into a bounded
//! **queue**. While the queue is full, the loader **holds** its batch and waits (back-pressure).
//! One consumer, the **model**, takes a batch, works on it for one step, and takes the next. With a
//! **device**, batches are copied and may be decoded there before the step, one at a time each; the
//! first of these stages takes batches from the queue.
//!
//! ```
//! use hsipack_measure::simulate::{Model, simulate};
//!
//! let outcome = simulate(&Model::new(7, 2.0, 0.1)).unwrap().outcome;
//! assert!((95..=101).contains(&outcome.batches)); // in 30 s; 98 if all loads took the same time
//! ```
//!
//! Time advances from event to event in whole nanoseconds; there are no time steps, and nothing
//! else is rounded. The same model gives the same run on every machine.
//!
//! | file | part |
//! |---|---|
//! | `options.rs` | the options, and the model that they make |
//! | `arguments.rs` | feature `clap`: options as they are typed |
//! | `model.rs` | the model, and which models are refused |
//! | `bounds.rs` | upper bounds of the rate, and its limit |
//! | `event.rs` | events in the life of a batch |
//! | `times.rs` | how load and step times are drawn |
//! | `random.rs` | independent random numbers for each purpose |
//! | `measured.rs` | a model from measured statistics |
//! | `what_if.rs` | a model with something changed |
//! | `engine.rs` | the event loop |
//! | `stages.rs` | the stages after the queue: copy, decoding, step |
//! | `tally.rs` | shares, means and time series, from the events |
//! | `trace.rs` | the first batches one by one, from the events |
//! | `report.rs` | the results |
//! | `timeline.rs` | a picture of a run |
//! | `page.rs`, `page.js`, `page.css` | a page that animates a run |

#[cfg(feature = "clap")]
mod arguments;
mod bounds;
mod engine;
mod event;
mod measured;
mod model;
mod options;
mod page;
mod random;
mod report;
mod stages;
mod tally;
mod timeline;
mod times;
mod trace;
mod what_if;

#[cfg(test)]
mod tests;

pub use bounds::{Bounds, Limit};
pub use measured::Measured;
pub use model::{
    DEFAULT_SPREAD, End, MAX_BATCHES, MAX_DEVICE_SLOTS, MAX_LOADERS, MAX_QUEUE, Model, Order,
};
pub use options::SimulateOptions;
pub use page::page;
pub use report::{
    Changed, DeviceShare, LoaderShare, Options, Outcome, Report, Run, Scenario, simulate,
};
pub use tally::Series;
pub use timeline::timeline;
pub use times::{Spread, Times};
pub use trace::{BatchTrace, Trace};
pub use what_if::{Change, WhatIf};
