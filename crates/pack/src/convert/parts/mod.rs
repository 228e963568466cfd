//! Conversions in parts, by processes on one machine or many: whatever engine runs them.
//!
//! | step | file | what it does |
//! |---|---|---|
//! | plan | `plan.rs` | decides everything, and writes it down; the output gets nothing but a note that it was begun |
//! | work | `work.rs` | a part of the shards, a receipt for each |
//! | commit | `commit.rs` | looks that all receipts are there, then makes the shards a dataset |
//!
//! `file.rs` is the file that the first step writes, `part.rs` which shards are whose. All share the staging folder of a
//! conversion by one process (`convert/staging/`), which can go on with it, too (`--resume`). What a shard holds is decided by the
//! plan alone. So the dataset is the same byte for byte, whoever wrote what in which order; and two who write the same
//! shard, such as one that was taken for dead, do no harm: each writes a file of its own, and gives it the shard's name.

mod commit;
mod file;
mod part;
mod plan;
mod work;

pub use commit::{commit, discard};
pub use part::Part;
pub use plan::{Planned, plan};
pub use work::{State, WorkOptions, WorkReport, state, work};
