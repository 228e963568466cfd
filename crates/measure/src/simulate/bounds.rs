//! Upper bounds of the rate of batches, and its limit.

use serde::Serialize;

/// Upper bounds in batches per second, if no part waits for the other.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Bounds {
    /// Number of loaders divided by the mean load time.
    pub loading: f64,
    /// One divided by the mean copy time; `None` if batches are not copied.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub copy: Option<f64>,
    /// One divided by the mean decode time; `None` if the device does not decode.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub decode: Option<f64>,
    /// Number of device slots divided by the mean time of all stages on the device; `None` if there
    /// is a slot for each stage.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub device_slots: Option<f64>,
    /// One divided by the mean step time.
    pub step: f64,
}

impl Bounds {
    /// Each bound, with the limit if it is the only one.
    fn all(self) -> impl Iterator<Item = (f64, Limit)> {
        let Self { loading, copy, decode, device_slots, step } = self;
        let all = [
            (Some(loading), Limit::Loading),
            (copy, Limit::Copy),
            (decode, Limit::Decode),
            (device_slots, Limit::DeviceSlots),
            (Some(step), Limit::Step),
        ];
        all.into_iter().filter_map(|(bound, limit)| Some((bound?, limit)))
    }

    /// The lowest bound.
    pub fn least(self) -> f64 {
        self.all().map(|(bound, _)| bound).fold(f64::INFINITY, f64::min)
    }

    /// The lowest bound, if no other is near.
    pub fn limit(self) -> Limit {
        let alone = |(bound, limit): &(f64, Limit)| {
            self.all().all(|(other, of)| of == *limit || *bound < 0.9 * other)
        };
        self.all().find(alone).map_or(Limit::Balanced, |(_, limit)| limit)
    }
}

/// The limit of the rate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Limit {
    /// Loading: the model waits for batches.
    Loading,
    /// The link to the device.
    Copy,
    /// Decoding on the device.
    Decode,
    /// The device slots: few batches are on the device at once, so stages wait for each other.
    DeviceSlots,
    /// The model's step: loaders wait for the model.
    Step,
    /// The two lowest bounds are within 10 % of each other. The spread of the times and the size of
    /// the queue matter, too.
    Balanced,
}

hsipack_format::option_names!(Limit, "limit", {
    Loading => "loading",
    Copy => "copy",
    Decode => "decode",
    DeviceSlots => "device-slots",
    Step => "step",
    Balanced => "balanced",
});
