//! Tests of the server over real connections: what it answers, compared with the values that were packed, and whom it refuses.

mod answers;
mod archives;
mod common;
mod ending;
mod refusals;
mod training;
