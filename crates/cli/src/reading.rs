//! How slow what a command reads from is made.

use std::time::Duration;

use hsipack_read::store::Link;

use crate::parse;

/// Arguments of commands that measure reading.
#[derive(clap::Args, Clone, Copy, Default)]
pub struct LinkArgs {
    /// Read at most so many stored bytes a second, such as 1000MB/s, as from a slower disk or over a slower link
    #[arg(long, value_name = "BYTES/s", value_parser = parse::rate)]
    pub rate_limit: Option<u64>,

    /// Wait so long for what is read, such as 30ms: before every read of a file, before the answer to every request for
    /// chunks [default: not at all]
    #[arg(long, value_name = "TIME", value_parser = parse::duration)]
    pub latency: Option<Duration>,
}

impl LinkArgs {
    /// The link.
    pub fn link(self) -> Link {
        Link { rate: self.rate_limit, latency: self.latency.unwrap_or_default() }
    }
}
