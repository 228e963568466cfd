//! Measuring in another process. Each case of a benchmark runs in its own process, so that memory
//! and processor time are its own. Devices for which this process has no library are measured in a
//! Python process, whose torch supports them.
//!
//! Requests are written to the process's standard input and answers to its standard output, both as
//! JSON, one per line:
//!
//! | request | answer |
//! |---|---|
//! | [`Request::Device`] | the device that the name means, such as `cuda:0` |
//! | [`Request::Bench`] | a [`bench::Measurement`](crate::bench::Measurement) |
//! | [`Request::Diagnose`] | [`diagnose::About`](crate::diagnose::About); after it, only requests of [`diagnose`](crate::diagnose) follow |
//!
//! An answer is `{"done": …}` or `{"failed": …}`, an error with all its parts. The process that
//! asked spells the remedy for its own users. The process ends when its input ends.
//!
//! | file | part |
//! |---|---|
//! | `request.rs` | what is asked |
//! | `channel.rs`, `serve.rs` | the side that answers |
//! | `process.rs` | the process, as seen by the one that asks |
//! | `failure.rs` | errors as plain data |

mod channel;
mod failure;
mod process;
mod request;
mod serve;

pub use channel::Channel;
pub use failure::Failure;
pub use process::Process;
pub use request::Request;
pub use serve::serve;
