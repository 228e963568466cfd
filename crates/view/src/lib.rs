//! A viewer for hyperspectral cubes and packed datasets in the browser: a page, and the server on
//! this machine that answers its requests.
//!
//! | file | job |
//! |---|---|
//! | `server.rs` | the server: when it starts, which requests it accepts, when it ends |
//! | `workers.rs` | the threads that read cubes, so that the server's own thread never waits for a disk |
//! | `auth.rs` | checks of requests: the token, the name of this machine, the page's own origin |
//! | `routes.rs` | which address is which question |
//! | `query.rs` | the part of an address after the `?` |
//! | `answer.rs` | answers: JSON, pictures, numbers, errors |
//! | `page.rs` | the files of the page, which are in `page/` and are part of the program |
//! | `subject.rs` | what the viewer shows: a dataset, or cubes in files |
//! | `about.rs` | information about all that the viewer shows |
//! | `listing.rs` | which samples are listed, in which order |
//! | `quality.rs` | what is conspicuous about a sample |
//! | `facts.rs` | information about one cube |
//! | `training/` | batches of a loader, before and after augmentation |
//! | `cube/` | values of one cube: bands, spectra, angles, masks, thumbnails |
//!
//! The same question gets the same answer as long as the dataset does not change. Nothing is
//! written.
#![deny(missing_docs)]

mod about;
mod answer;
mod auth;
mod cube;
mod facts;
mod listing;
mod page;
mod quality;
mod query;
mod routes;
mod server;
mod subject;
mod training;
mod workers;

pub use server::{End, Options, View};
pub use subject::Subject;
pub use training::Training;
