//! The batches of a training: any batch of any epoch of a loader, before and after augmentation.
//!
//! | file | job |
//! |---|---|
//! | `setup.rs` | the options of the loader: from the start of the viewer, and from the page |
//! | `batches.rs` | which items a batch has, and what was drawn for them |
//! | `images.rs` | the pixels of an item, read and augmented; the latest items are kept |
//! | `values.rs` | from arrays to the numbers that are sent to the page |
//! | `answers.rs` | questions about all this, and their answers |

mod answers;
mod batches;
mod images;
mod setup;
mod values;

pub use answers::Answers;
pub use setup::Training;
