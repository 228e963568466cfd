/// To come.
pub fn timeline() {}
