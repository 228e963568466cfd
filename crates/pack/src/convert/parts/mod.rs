//! Conversions in parts, by several processes on one or many machines, started by any workflow
//! engine.
//!
//! | step | file | what it does |
//! |---|---|---|
//! | plan | `plan.rs` | decides everything and writes it to a file; at the output, records only that the conversion was begun |
//! | work | `work.rs` | writes a part of the shards, with a receipt for each |
//! | commit | `commit.rs` | checks that all receipts exist, then turns the shards into a dataset |
//!
//! `file.rs` defines the file that the first step writes, and `part.rs` which shards belong to
//! which part. All steps share the staging folder of a conversion by one process
//! (`convert/staging/`), so such a process can also resume the conversion (`--resume`). The plan
//! alone decides what a shard contains. So the dataset is the same byte for byte, whichever process
//! wrote which shard, in whichever order. It does no harm if two processes write the same shard,
//! for example because one was thought to be dead: each writes its own file, and then renames it to
//! the shard's name.

mod commit;
mod file;
mod part;
mod plan;
mod work;

pub use commit::{commit, discard};
pub use part::Part;
pub use plan::{Planned, plan};
pub use work::{State, WorkOptions, WorkReport, state, work};
