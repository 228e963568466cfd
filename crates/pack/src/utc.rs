//! Dates and times in UTC, as RFC 3339 writes them.

/// A day that is counted from 1970-01-01, as `2026-11-21`.
pub(crate) fn date(days: i64) -> String {
    let (year, month, day) = civil(days);
    format!("{year:04}-{month:02}-{day:02}")
}

/// Seconds since 1970-01-01 and less than a second of nanoseconds, as `2026-11-21T13:45:00Z`.
pub(crate) fn time(seconds: i64, nanos: u32) -> String {
    let (days, second) = (seconds.div_euclid(86_400), seconds.rem_euclid(86_400));
    let fraction = match nanos {
        0 => String::new(),
        nanos => format!(".{nanos:09}").trim_end_matches('0').to_owned(),
    };
    let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
    format!("{}T{hour:02}:{minute:02}:{second:02}{fraction}Z", date(days))
}

/// Year, month and day of a day that is counted from 1970-01-01 (Hinnant's `civil_from_days`).
fn civil(days: i64) -> (i64, i64, i64) {
    let days = days + 719_468;
    let era = days.div_euclid(146_097);
    let of_era = days.rem_euclid(146_097);
    let year = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year + year / 4 - year / 100);
    let month = (5 * of_year + 2) / 153;
    let day = of_year - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    (year + era * 400 + i64::from(month <= 2), month, day)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn days_become_dates() {
        assert_eq!(civil(0), (1970, 1, 1));
        assert_eq!(civil(11_016), (2000, 2, 29));
        assert_eq!(civil(20_778), (2026, 11, 21));
        assert_eq!(date(-1), "1969-12-31");
    }

    #[test]
    fn times_have_a_fraction_only_if_they_need_one() {
        assert_eq!(time(1_577_872_800, 0), "2020-01-01T10:00:00Z");
        assert_eq!(time(-1, 250_000_000), "1969-12-31T23:59:59.25Z");
    }
}
