//! Round numbers along an axis.

/// The positions of ticks on an axis, and where the axis begins and ends.
#[derive(Clone, Debug, PartialEq)]
pub struct Ticks {
    /// The values, ascending, at equal steps of 1, 2 or 5 times a power of ten.
    pub at: Vec<f64>,
    /// Decimals needed to tell them apart.
    pub digits: usize,
}

impl Ticks {
    /// About `count` ticks that cover at least `low` to `high`. An empty range is widened. Numbers
    /// that are not finite are replaced: `low` by 0, `high` by `low` + 1.
    pub fn around(low: f64, high: f64, count: usize) -> Self {
        let (low, high) = sound(low, high);
        let step = round_step((high - low) / count.max(1) as f64);
        let (first, last) = ((low / step + 1e-9).floor(), (high / step - 1e-9).ceil());
        Self::new(first, last.max(first + 1.0), step)
    }

    /// About `count` ticks, none of them outside `low` to `high`.
    pub fn within(low: f64, high: f64, count: usize) -> Self {
        let (low, high) = sound(low, high);
        let step = round_step((high - low) / count.max(1) as f64);
        Self::new((low / step - 1e-9).ceil(), (high / step + 1e-9).floor(), step)
    }

    fn new(first: f64, last: f64, step: f64) -> Self {
        let count = (last - first).clamp(0.0, 1000.0) as usize;
        let digits = (-step.log10().floor()).clamp(0.0, 12.0) as usize;
        // Products do not accumulate rounding errors. Adding 0 turns -0 into 0.
        let at = (0..=count).map(|number| (first + number as f64) * step + 0.0).collect();
        Self { at, digits }
    }

    /// The first and the last tick.
    pub fn ends(&self) -> (f64, f64) {
        let end = |value: Option<&f64>| value.copied().unwrap_or_default();
        (end(self.at.first()), end(self.at.last()))
    }

    /// The label of a tick.
    pub fn label(&self, tick: f64) -> String {
        let text = format!("{tick:.*}", self.digits);
        // Group digits by three only if there are more than four, as is usual in most fields.
        if self.digits == 0 && tick.abs() >= 10_000.0 { grouped(&text) } else { text }
    }
}

fn sound(low: f64, high: f64) -> (f64, f64) {
    let low = if low.is_finite() { low } else { 0.0 };
    let high = if high.is_finite() { high } else { low + 1.0 };
    let (low, high) = if low <= high { (low, high) } else { (high, low) };
    // If the ends are so close together, steps between them would vanish.
    let least = low.abs().max(high.abs()) * 1e-9;
    if high - low > least {
        (low, high)
    } else {
        (low, high + if low == 0.0 { 1.0 } else { low.abs() * 0.1 })
    }
}

/// 1, 2 or 5 times a power of ten that is not clearly below `rough`.
fn round_step(rough: f64) -> f64 {
    let power = 10f64.powf(rough.log10().floor());
    let factor = match rough / power {
        mantissa if mantissa <= 1.001 => 1.0,
        mantissa if mantissa <= 2.001 => 2.0,
        mantissa if mantissa <= 5.001 => 5.0,
        _ => 10.0,
    };
    factor * power
}

/// `12 345`, with non-breaking thin spaces.
fn grouped(digits: &str) -> String {
    let (sign, digits) = digits.split_at(usize::from(digits.starts_with('-')));
    let mut text = sign.to_owned();
    for (number, digit) in digits.chars().enumerate() {
        if number > 0 && (digits.len() - number).is_multiple_of(3) {
            text.push('\u{202f}');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_round_and_cover_the_range() {
        assert_eq!(Ticks::around(0.0, 9.7, 5).at, [0.0, 2.0, 4.0, 6.0, 8.0, 10.0]);
        assert_eq!(Ticks::around(0.0, 1.0, 5).at, [0.0, 0.2, 0.4, 0.6000000000000001, 0.8, 1.0]);
        assert_eq!(Ticks::around(-3.0, 3.0, 3).at, [-4.0, -2.0, 0.0, 2.0, 4.0]);
        assert_eq!(Ticks::within(0.3, 2.1, 4).at, [0.5, 1.0, 1.5, 2.0]);
        for (low, high) in [(0.0, 1e-7), (3.0, 4.5e9), (-1e-3, 2e3), (99.9, 100.1), (7.0, 7.0)] {
            let ticks = Ticks::around(low, high, 5);
            let (first, last) = ticks.ends();
            assert!(first <= low && last >= high, "{low} {high} {ticks:?}");
            assert!((2..=8).contains(&ticks.at.len()), "{low} {high} {ticks:?}");
        }
    }

    #[test]
    fn labels_tell_ticks_apart() {
        let ticks = Ticks::around(0.0, 0.05, 5);
        let labels: Vec<_> = ticks.at.iter().map(|tick| ticks.label(*tick)).collect();
        assert_eq!(labels, ["0.00", "0.01", "0.02", "0.03", "0.04", "0.05"]);
        assert_eq!(Ticks::around(0.0, 40_000.0, 4).label(10_000.0), "10\u{202f}000");
        assert_eq!(Ticks::around(-40_000.0, 0.0, 4).label(-10_000.0), "-10\u{202f}000");
    }

    #[test]
    fn nonsense_gives_some_axis() {
        for (low, high) in [(f64::NAN, 1.0), (0.0, f64::INFINITY), (5.0, 1.0), (0.0, 0.0)] {
            let ticks = Ticks::around(low, high, 5);
            assert!(ticks.at.len() >= 2 && ticks.at.iter().all(|tick| tick.is_finite()));
        }
    }
}
