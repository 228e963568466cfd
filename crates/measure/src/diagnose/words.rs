//! Formats times and shares for people.

/// A share from 0 to 1, as a percentage.
pub fn percent(share: f64) -> String {
    format!("{:.0}%", 100.0 * share)
}

/// Three digits and a unit, in powers of 1000.
pub fn bytes(count: u64) -> String {
    let (value, unit) = match count as f64 {
        count if count < 999.5e3 => (count / 1e3, "kB"),
        count if count < 999.5e6 => (count / 1e6, "MB"),
        count => (count / 1e9, "GB"),
    };
    let digits = if value < 9.995 { 2 } else { usize::from(value < 99.95) };
    format!("{value:.digits$} {unit}")
}

/// Three digits and a unit.
pub fn time(seconds: f64) -> String {
    let (value, unit) = match seconds {
        s if s >= 1.0 => (s, "s"),
        s if s >= 1e-3 => (s * 1e3, "ms"),
        s => (s * 1e6, "µs"),
    };
    let digits = if value < 9.995 { 2 } else { usize::from(value < 99.95) };
    format!("{value:.digits$} {unit}")
}
