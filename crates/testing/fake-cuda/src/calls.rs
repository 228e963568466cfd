//! Which driver calls were made, and which calls must fail.

use std::collections::HashMap;

use crate::abi::CUresult;

/// An order that the `nth` call of a function, from 1, must fail.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Order {
    pub function: String,
    pub nth: u64,
    pub how: How,
}

/// How a call fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum How {
    /// With this result, and no other effect.
    Result(CUresult),
    /// The device is lost, from this call on.
    Lost,
}

impl Order {
    /// Parses `function:nth:result`, where the function is one of `functions`, and the result is a
    /// name from `cuda.h`, or `lost`.
    pub fn parse(text: &str, functions: &[&str]) -> Result<Self, String> {
        let [function, nth, how] = text.split(':').collect::<Vec<_>>()[..] else {
            return Err(format!("'{text}' is not function:nth:result"));
        };
        let nth = nth.parse().map_err(|why| format!("'{nth}' in '{text}': {why}"))?;
        let how = match how {
            "lost" => How::Lost,
            name => How::Result(
                CUresult::named(name).ok_or_else(|| format!("'{name}' is no result known here"))?,
            ),
        };
        Self { function: function.to_owned(), nth, how }.checked(functions)
    }

    /// Returns itself if its function is one of `functions`.
    pub fn checked(self, functions: &[&str]) -> Result<Self, String> {
        if functions.contains(&self.function.as_str()) {
            return Ok(self);
        }
        Err(format!("'{}' is no function of the stand-in", self.function))
    }
}

/// Calls that were made, and orders to fail.
#[derive(Default)]
pub struct Calls {
    counts: HashMap<String, u64>,
    orders: Vec<Order>,
}

impl Calls {
    /// Adds an order, whose count starts after the calls made so far.
    pub fn order(&mut self, order: Order) {
        let nth = order.nth + self.made(&order.function);
        self.orders.push(Order { nth, ..order });
    }

    /// Counts a call, and returns how it must fail, if it must.
    pub fn count(&mut self, function: &str) -> Option<How> {
        let calls = self.counts.entry(function.to_owned()).or_default();
        *calls += 1;
        let number = *calls;
        let due = |order: &Order| order.function == function && order.nth == number;
        self.orders.iter().find(|order| due(order)).map(|order| order.how)
    }

    /// Number of calls of a function.
    pub fn made(&self, function: &str) -> u64 {
        self.counts.get(function).copied().unwrap_or(0)
    }
}
