//! Instants as people and programs read them: RFC 3339, UTC, milliseconds.
//!
//! Purpose: one formatter for the evidence, the views and the log. Pure; reads no clock. Callers:
//! `control`, `admin`.

/// Milliseconds since the Unix epoch as `2026-01-02T03:04:05.678Z`.
#[must_use]
pub fn rfc3339_ms(ms: u64) -> String {
    let (days, of_day) = (ms / 86_400_000, ms % 86_400_000);
    let (year, month, day) = civil(days);
    let (hour, minute) = (of_day / 3_600_000, of_day / 60_000 % 60);
    let (second, milli) = (of_day / 1000 % 60, of_day % 1000);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{milli:03}Z")
}

/// Year, month and day of a count of days since 1970-01-01, in the proleptic Gregorian calendar.
///
/// Counts in eras of 400 years that begin on the first of March, so that the leap day is the last
/// day of a year and month lengths follow one formula.
const fn civil(days: u64) -> (u64, u64, u64) {
    const ERA_DAYS: u64 = 146_097;
    // Days from 0000-03-01 to 1970-01-01.
    let shifted = days + 719_468;
    let (era, of_era) = (shifted / ERA_DAYS, shifted % ERA_DAYS);
    let year_of_era = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let march_month = (5 * of_year + 2) / 153;
    let day = of_year - (153 * march_month + 2) / 5 + 1;
    let month = if march_month < 10 { march_month + 3 } else { march_month - 9 };
    let year = era * 400 + year_of_era + if month <= 2 { 1 } else { 0 };
    (year, month, day)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_instants() {
        for (ms, text) in [
            (0, "1970-01-01T00:00:00.000Z"),
            (951_782_400_000, "2000-02-29T00:00:00.000Z"),
            (1_750_000_000_123, "2025-06-15T15:06:40.123Z"),
            (4_107_542_399_999, "2100-02-28T23:59:59.999Z"),
            (4_107_542_400_000, "2100-03-01T00:00:00.000Z"),
        ] {
            assert_eq!(rfc3339_ms(ms), text);
        }
    }
}
