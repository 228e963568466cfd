//! Reports, and numbers as people read them.

/// `1.2 GB`: powers of 1000, three significant digits.
pub fn bytes(count: u64) -> String {
    const UNITS: [&str; 5] = ["kB", "MB", "GB", "TB", "PB"];
    if count < 1000 {
        return format!("{count} B");
    }
    let mut value = count as f64 / 1000.0;
    let mut unit = 0;
    while value >= 999.5 && unit + 1 < UNITS.len() {
        value /= 1000.0;
        unit += 1;
    }
    let digits = if value < 9.995 {
        2
    } else if value < 99.95 {
        1
    } else {
        0
    };
    format!("{value:.digits$} {}", UNITS[unit])
}

/// `1 cube`, `2 cubes`, `2 batches`.
pub fn count(number: usize, what: &str) -> String {
    let ending = if what.ends_with("tch") { "es" } else { "s" };
    if number == 1 { format!("1 {what}") } else { format!("{number} {what}{ending}") }
}

/// Shows a report on standard output: as one JSON object (`--json`), or as `print` does for people.
pub fn report<R: serde::Serialize>(report: &R, json: bool, print: impl FnOnce(&R)) {
    if json {
        println!("{}", serde_json::to_string(report).expect("reports have string keys"));
    } else {
        print(report);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_have_three_digits() {
        let shown = [0, 999, 1000, 9999, 123_456, 999_600, 61_440_000, 5_000_000_000].map(bytes);
        assert_eq!(
            shown,
            ["0 B", "999 B", "1.00 kB", "10.0 kB", "123 kB", "1.00 MB", "61.4 MB", "5.00 GB"]
        );
    }
}
