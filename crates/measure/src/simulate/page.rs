/// To come.
pub fn page() {}
