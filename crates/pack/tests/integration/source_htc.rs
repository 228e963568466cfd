//! htc files.
