//! Tests of the server over real connections: its responses, compared with the packed values, and
//! the requests it refuses.

mod answers;
mod archives;
mod arrays;
mod common;
mod ending;
mod refusals;
mod training;
