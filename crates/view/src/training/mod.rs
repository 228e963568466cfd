//! What training is given: any batch of any epoch of a loader, before and after it is augmented.
//!
//! | file | job |
//! |---|---|
//! | `setup.rs` | what the loader is asked for: when the viewer was started, and on the page |
//! | `batches.rs` | which items a batch has, and what was drawn for them |
//! | `made.rs` | the pixels of an item, read and augmented; the latest ones stay |
//! | `values.rs` | from arrays to the numbers that the page is sent |
//! | `answers.rs` | questions about all that, and their answers |

mod answers;
mod batches;
mod made;
mod setup;
mod values;

pub use answers::Answers;
pub use setup::Training;
