//! Options that slow down reading, as on a slower disk or link.

use std::time::Duration;

use hsipack_read::store::Link;

use crate::parse;

/// Arguments of commands that measure reading.
#[derive(clap::Args, Clone, Copy, Default)]
pub struct LinkArgs {
    /// Read at most this many stored bytes per second, such as 1000MB/s, as from a slower disk or link
    /// [default: unlimited]
    #[arg(long, value_name = "BYTES/s", value_parser = parse::rate)]
    pub rate_limit: Option<u64>,

    /// Wait this long, such as 30ms, before every read of a file, or before the answer to every request for chunks
    /// [default: no wait]
    #[arg(long, value_name = "TIME", value_parser = parse::duration)]
    pub latency: Option<Duration>,
}

impl LinkArgs {
    /// The link.
    pub fn link(self) -> Link {
        Link { rate: self.rate_limit, latency: self.latency.unwrap_or_default() }
    }
}
