//! A stand-in for `libcuda.so.1`, the library of NVIDIA's driver, for tests on machines without a GPU.
//!
//! A program that finds this library under the driver's name runs its real CUDA code: bindings, contexts, page-locking,
//! streams, events. Device memory is host memory that only this library can reach: whoever reads it through its
//! device address crashes, as with a real device. Each stream's work is done late, on a thread of the library, in any
//! order that events allow.
//!
//! A real device punishes misuse rarely, and late: by wrong data. The stand-in knows which operation is ordered behind
//! which, and notes every misuse as a *fault* when the call is made, whatever the timing. Faults go to a report. At the
//! process's exit, all that was not given back is a fault, too.
//!
//! | file | part |
//! |---|---|
//! | `abi.rs` | types, handles and results, as `cuda.h` has them |
//! | `driver.rs` | the driver's functions: a table |
//! | `control.rs` | functions beside the driver's, for tests: faults, a consumer's work, holding streams, failing calls |
//! | `world.rs` | the one state, what every call passes through, waiting |
//! | `settings.rs` | environment variables |
//! | `calls.rs` | which calls were made, and which are to fail |
//! | `contexts.rs` | devices, their contexts, and which one is current |
//! | `streams.rs`, `events.rs` | queues of operations; points in them |
//! | `order.rs` | what is ordered behind what: vector clocks |
//! | `memory.rs` | the device's memory, and who used it last |
//! | `host.rs` | registered host memory, and copies that use it |
//! | `work.rs` | operations: what they demand when they are queued, and doing them |
//! | `faults.rs`, `exit.rs` | the report; what is done at exit, and after a fork |
//!
//! How to run a program over it: `docs/transfer.md`.

#![cfg(all(target_os = "linux", target_pointer_width = "64"))]
#![deny(missing_docs)]

mod abi;
mod calls;
mod contexts;
mod control;
mod driver;
mod events;
mod exit;
mod faults;
mod host;
mod memory;
mod order;
mod settings;
mod streams;
mod work;
mod world;
