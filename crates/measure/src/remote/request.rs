//! Requests to another process that measures.

use serde::{Deserialize, Serialize};

use crate::{bench, diagnose};

/// A request.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Request {
    /// Whether the library has the device of that name.
    Device(String),
    /// Measure a case.
    Bench(Box<bench::Request>),
    /// Open a packed dataset, whose levels are timed next.
    Diagnose(Box<diagnose::DiagnoseOptions>),
}
