//! Times and shares as people read them.

/// A share from 0 to 1.
pub fn percent(share: f64) -> String {
    format!("{:.0}%", 100.0 * share)
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
