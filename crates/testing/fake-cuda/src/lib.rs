//! A stand-in for `libcuda.so.1`, the library of the NVIDIA driver, for tests on machines without a
//! GPU.
//!
//! A program that finds this library under the driver's name runs its real CUDA code: bindings,
//! contexts, page-locking, streams, events. Device memory is host memory that only this library can
//! access: a program that reads it through its device address crashes, as with a real device. The
//! work of each stream is done late, on a thread of the library, in any order that events allow.
//!
//! A real device punishes misuse rarely and late, with wrong data. The stand-in knows the order of
//! all operations, and reports every misuse as a *fault* when the call is made, whatever the
//! timing. Faults are written to a report. At the exit of the process, everything that was not
//! given back is a fault as well.
//!
//! | file | part |
//! |---|---|
//! | `abi.rs` | types, handles and results, as `cuda.h` has them |
//! | `driver.rs` | the driver's functions: a table; the global state |
//! | `control.rs` | additional functions for tests: faults, a consumer's work, pausing streams, failing calls |
//! | `world.rs` | the entry points of all calls, the device's thread, waiting |
//! | `state/` | everything that is known, and what calls and queued work do to it |
//! | `settings.rs` | environment variables |
//! | `calls.rs` | which calls were made, and which must fail |
//! | `contexts.rs` | devices, their contexts, and which one is current |
//! | `streams.rs`, `events.rs` | queues of operations; points in them |
//! | `modules.rs` | modules of kernels that were loaded |
//! | `kernels.rs` | the kernels that can be launched, compiled as C++ |
//! | `order.rs` | the order of operations: vector clocks |
//! | `memory.rs` | the device's memory, and the last operations on it |
//! | `host.rs` | registered host memory, and copies that use it |
//! | `operation.rs` | operations that are queued on streams |
//! | `faults.rs`, `exit.rs` | the report; checks at exit, and after a fork |
//!
//! `docs/transfer.md` describes how to run a program over it.

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
mod kernels;
mod memory;
mod modules;
mod operation;
mod order;
mod settings;
mod state;
mod streams;
mod world;
