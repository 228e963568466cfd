//! When the device worked, by the consumer's clock: from the moment it has a batch until it is done
//! with it.

/// Length of the windows in which utilisation over time is given, in seconds.
pub const WINDOW_S: f64 = 0.15;

/// Periods of work, in seconds after a common start, one after the other.
#[derive(Clone, Debug, Default)]
pub struct Busy(Vec<[f64; 2]>);

impl Busy {
    /// Adds work from `start` to `end`.
    pub fn add(&mut self, start: f64, end: f64) {
        self.0.push([start, end]);
    }

    /// Share of the time from `start` to `end` that was work, 0 to 1.
    pub fn share(&self, start: f64, end: f64) -> f64 {
        let inside = |[from, to]: &[f64; 2]| (to.min(end) - from.max(start)).max(0.0);
        if end > start { self.0.iter().map(inside).sum::<f64>() / (end - start) } else { 0.0 }
    }

    /// Shares of the windows of [`WINDOW_S`] from `start` on. A shorter rest before `end` is
    /// dropped.
    pub fn windows(&self, start: f64, end: f64) -> Vec<f64> {
        let count = ((end - start) / WINDOW_S + 1e-9).floor().max(0.0) as usize;
        let window = |number: usize| {
            let from = start + number as f64 * WINDOW_S;
            self.share(from, from + WINDOW_S)
        };
        (0..count).map(window).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn windows_show_what_lies_in_them() {
        let mut busy = Busy::default();
        busy.add(0.05, 0.15);
        busy.add(0.30, 0.75);
        let windows = busy.windows(0.0, 0.8);
        let want = [2.0 / 3.0, 0.0, 1.0, 1.0, 1.0];
        assert_eq!(windows.len(), want.len());
        for (window, want) in windows.iter().zip(want) {
            assert!((window - want).abs() < 1e-9, "{windows:?}");
        }
        assert!((busy.share(0.1, 0.4) - 0.5).abs() < 1e-9);
        assert_eq!((busy.share(1.0, 1.0), busy.windows(0.0, 0.1).len()), (0.0, 0));
    }
}
