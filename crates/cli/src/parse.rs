//! How option values are spelled.

use hsipack_format::arguments::numbers;
pub use hsipack_format::arguments::{bytes, duration, one_of, pixels, typed};
use hsipack_format::samples::Condition;

/// Class ids and ranges of class ids, both ends included: `1,3,10-20`.
pub fn classes(text: &str) -> Result<ClassList, String> {
    numbers(text, "class id or range of class ids").map(ClassList)
}

/// A condition on samples: `label == 'urban' and cloud < 10`.
pub fn condition(text: &str) -> Result<Condition, String> {
    Condition::parse(text).map_err(|error| error.to_string())
}

/// Class ids, given as one value.
#[derive(Clone, Debug)]
pub struct ClassList(pub Vec<u32>);
