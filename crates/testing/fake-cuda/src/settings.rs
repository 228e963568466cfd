//! Settings from the environment.

use std::fmt::Display;
use std::str::FromStr;
use std::time::Duration;

use crate::calls::Order;

/// The file to which faults are added; if it is not set, they go to standard error.
pub const REPORT: &str = "FAKE_CUDA_REPORT";
/// The exit status of a process with faults; if it is not set, the process keeps its own.
pub const EXIT_STATUS: &str = "FAKE_CUDA_EXIT_STATUS";

/// Other settings from the environment, each with its variable and its default.
pub struct Settings {
    /// `FAKE_CUDA_SEED`: seed of the delays and of the order of streams; 1.
    pub seed: u64,
    /// `FAKE_CUDA_DEVICES`: number of devices; 1.
    pub devices: usize,
    /// `FAKE_CUDA_MEMORY`: bytes per device; 1 GiB.
    pub memory: usize,
    /// `FAKE_CUDA_VERSION`: CUDA version of the driver; 12080.
    pub version: i32,
    /// `FAKE_CUDA_PATIENCE`: seconds until a wait counts as stuck; 30.
    pub patience: Duration,
    /// `FAKE_CUDA_READ_ONLY`: whether read-only memory can be registered, 0 or 1; 1.
    pub read_only: bool,
    /// `FAKE_CUDA_PROMPT`: whether calls and work have no delays, for measuring, 0 or 1; 0.
    pub prompt: bool,
    /// `FAKE_CUDA_FAIL`: calls that fail, such as
    /// `cuMemAlloc_v2:3:CUDA_ERROR_OUT_OF_MEMORY,cuEventRecord:9:lost`.
    pub fail: Vec<Order>,
}

impl Settings {
    /// The settings for a driver with these functions.
    ///
    /// # Panics
    /// If the value of a variable is not valid.
    pub fn of_environment(functions: &[&str]) -> Self {
        let fail: String = variable("FAKE_CUDA_FAIL", String::new());
        let orders = fail.split(',').filter(|order| !order.is_empty());
        Self {
            seed: variable("FAKE_CUDA_SEED", 1),
            devices: variable("FAKE_CUDA_DEVICES", 1),
            memory: variable("FAKE_CUDA_MEMORY", 1 << 30),
            version: variable("FAKE_CUDA_VERSION", 12080),
            patience: Duration::from_secs(variable("FAKE_CUDA_PATIENCE", 30)),
            read_only: variable("FAKE_CUDA_READ_ONLY", 1) != 0,
            prompt: variable("FAKE_CUDA_PROMPT", 0) != 0,
            fail: orders
                .map(|order| Order::parse(order, functions))
                .map(|order| order.unwrap_or_else(|why| panic!("FAKE_CUDA_FAIL: {why}")))
                .collect(),
        }
    }
}

/// The value of a variable, or `otherwise`.
pub fn variable<T: FromStr<Err: Display>>(name: &str, otherwise: T) -> T {
    match std::env::var(name) {
        Ok(text) => text.parse().unwrap_or_else(|why| panic!("{name}={text}: {why}")),
        Err(_) => otherwise,
    }
}

/// Random numbers (xorshift).
pub struct Dice(u64);

impl Dice {
    pub fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1)
    }

    /// A number below `sides`.
    pub fn roll(&mut self, sides: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) % sides
    }

    /// The delay before an operation begins: often none, sometimes long.
    pub fn delay(&mut self) -> Duration {
        let most = [0, 0, 0, 60, 60, 250, 250, 1500][self.roll(8) as usize];
        Duration::from_micros(self.roll(most + 1))
    }

    /// The time a call takes to return, so that other threads can run between it and the next call.
    pub fn pause(&mut self) -> Duration {
        let most = [0, 0, 0, 0, 0, 0, 0, 100][self.roll(8) as usize];
        Duration::from_micros(self.roll(most + 1))
    }
}
