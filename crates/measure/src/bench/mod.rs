//! Compares the five published strategies for keeping accelerators busy, and decoding on the
//! device, on the same cubes.
//!
//! ```text
//! cubes → files of every strategy → (repeat × rate × strategy) a process each → figures → table, JSON, page
//! ```
//!
//! `docs/benching.md` describes the strategies. Every case runs in its own process, so that memory,
//! processor time, allocator and threads are its own. Cases take turns, so that other load on the
//! machine affects all alike.
//!
//! | file | part |
//! |---|---|
//! | `options.rs` | the strategies, and the options of a benchmark |
//! | `augment.rs` | which augmentations are applied |
//! | `arguments.rs` | feature `clap`: options as they are typed |
//! | `synthetic.rs`, `npy.rs`, `data.rs` | cubes, and the files of every strategy |
//! | `codec.rs` | how the float32 cubes are compressed |
//! | `store.rs` | reading, counted and at a limited rate |
//! | `chain.rs` | augmenting one cube, as workers on the CPU do; and a batch |
//! | `workers.rs` | strategies 0 to 3: workers that load a batch each |
//! | `feed.rs` | batches of any strategy; the last two are the device loader |
//! | `busy.rs`, `load.rs` | when the device worked: by the clock, and by NVML |
//! | `measure.rs` | one case, measured |
//! | `run.rs` | all cases, each in its own process |
//! | `report.rs`, `page.rs` | means, spreads, speed-ups; the same as a page |

#[cfg(feature = "clap")]
mod arguments;
mod augment;
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

pub use augment::Augment;
pub use busy::WINDOW_S;
pub use data::{Data, WorkFolder, prepare};
pub use feed::{Arrived, ConsumerStats, Delivered, Feed};
pub use measure::{Measurement, Request, measure};
pub use options::{BenchOptions, CubeSize, Cubes, Settings, Strategy};
pub use report::{Entry, FIGURES, Report, Spread, Timeline};
pub use run::{InProcess, Measurer, Processes, Progress, run};
