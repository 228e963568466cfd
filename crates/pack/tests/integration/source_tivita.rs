//! tivita files.
