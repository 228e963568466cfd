//! Looking at hyperspectral cubes and packed datasets in a browser: a page, and the server on this machine that answers it.
//!
//! | file | job |
//! |---|---|
//! | `server.rs` | the server: when it begins, what it lets in, when it ends |
//! | `workers.rs` | the threads that read cubes, so that answers never wait for a disk in the server's own |
//! | `door.rs` | who is let in: the token, this machine's name, the page's own origin |
//! | `routes.rs` | which address is which question |
//! | `query.rs` | what stands behind the `?` |
//! | `answer.rs` | answers: JSON, pictures, numbers, errors |
//! | `page.rs` | the files of the page, which lie in `page/` and are part of the program |
//! | `subject.rs` | what is looked at: a dataset, or cubes in files |
//! | `about.rs` | what is told of all of it |
//! | `listing.rs` | which samples are listed, in which order |
//! | `marks.rs` | what is conspicuous about a sample |
//! | `facts.rs` | what is told of one cube |
//! | `training/` | batches of a loader, before and after they are augmented |
//! | `cube/` | values of one cube: bands, spectra, angles, masks, thumbnails |
//!
//! Answers are pure: the same question gets the same answer as long as the dataset is the same. Nothing is written.
#![deny(missing_docs)]

mod about;
mod answer;
mod cube;
mod door;
mod facts;
mod listing;
mod marks;
mod page;
mod query;
mod routes;
mod server;
mod subject;
mod training;
mod workers;

pub use server::{End, Options, View};
pub use subject::Subject;
pub use training::Training;
