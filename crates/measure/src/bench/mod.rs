//! The five published strategies against starving accelerators, side by side on the same cubes.
//!
//! ```text
//! cubes → files of every strategy → (repeat × rate × strategy) a process each → figures → table, JSON, page
//! ```
//!
//! What each strategy does is in `docs/benching.md`. Every case runs in a process of its own, so that memory, processor
//! time, allocator and threads are its own; cases take turns, so that what else the machine does hits all alike.
//!
//! | file | part |
//! |---|---|
//! | `options.rs` | strategies, and what is asked for |
//! | `synthetic.rs`, `npy.rs`, `data.rs` | cubes, and the files of every strategy |
//! | `codec.rs` | how the float32 cubes are compressed |
//! | `store.rs` | reading, counted and at a limited rate |
//! | `chain.rs` | augmenting one cube, as workers on the CPU do; and a batch |
//! | `workers.rs` | strategies 0 to 3: workers that load a batch each |
//! | `feed.rs` | batches of any strategy; the last one is the device loader |
//! | `busy.rs`, `load.rs` | when the device worked: by the clock, and by NVML |
//! | `measure.rs` | one case, measured |
//! | `run.rs` | all cases, a process each |
//! | `report.rs`, `page.rs` | means, spreads, speed-ups; the same as a page |

mod busy;
mod chain;
mod codec;
mod data;
mod feed;
mod load;
mod measure;
mod npy;
mod options;
mod page;
mod report;
mod run;
mod store;
mod synthetic;
mod workers;

pub use busy::WINDOW_S;
pub use data::{Data, WorkFolder, prepare};
pub use feed::{Arrived, Feed, Given, Seen};
pub use measure::{Measurement, Request, measure};
pub use options::{Augment, BenchOptions, CubeSize, Cubes, Settings, Strategy};
pub use report::{Entry, FIGURES, Report, Spread, Timeline};
pub use run::{Here, Measurer, Processes, Progress, run};
