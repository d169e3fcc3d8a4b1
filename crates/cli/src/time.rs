//! Times as people write them: milliseconds since 1970, or RFC 3339 in UTC.

/// A time in milliseconds since 1970 as RFC 3339, to the millisecond.
pub fn rfc3339(ms: i64) -> String {
    let (days, of_day) = (ms.div_euclid(86_400_000), ms.rem_euclid(86_400_000));
    let (year, month, day) = civil(days);
    let (hours, minutes) = (of_day / 3_600_000, of_day / 60_000 % 60);
    let (seconds, ms) = (of_day / 1000 % 60, of_day % 1000);
    format!("{year:04}-{month:02}-{day:02}T{hours:02}:{minutes:02}:{seconds:02}.{ms:03}Z")
}

/// Milliseconds since 1970 from a number of them, a date (`2026-11-03`), or a date and a time in UTC
/// (`2026-11-03T10:00:00Z`, the seconds and their fraction optional).
pub fn parse(text: &str) -> Option<i64> {
    if let Ok(ms) = text.parse::<i64>() {
        return (ms >= 0).then_some(ms);
    }
    let (date, time) = text.split_once(['T', ' ']).unwrap_or((text, "00:00"));
    let mut date = date.splitn(3, '-').map(digits);
    let (year, month, day) = (date.next()??, date.next()??, date.next()??);
    if !(1970..=9999).contains(&year) || !(1..=12).contains(&month) || !(1..=31).contains(&day) {
        return None;
    }
    let days = days_of(year, month, day);
    if civil(days) != (year, month, day) {
        return None;
    }
    let time = time.strip_suffix('Z').unwrap_or(time);
    let (time, fraction) = time.split_once('.').unwrap_or((time, "0"));
    let mut parts = time.splitn(3, ':').map(digits);
    let (hour, minute, second) = (parts.next()??, parts.next()??, parts.next().unwrap_or(Some(0))?);
    if hour > 23 || minute > 59 || second > 60 {
        return None;
    }
    let ms = digits(&format!("{fraction:0<3}")[..3])?;
    Some(days * 86_400_000 + hour * 3_600_000 + minute * 60_000 + second * 1000 + ms)
}

fn digits(text: &str) -> Option<i64> {
    let plain = !text.is_empty() && text.len() <= 4 && text.bytes().all(|byte| byte.is_ascii_digit());
    if plain { text.parse().ok() } else { None }
}

/// Days since 1970-01-01 of a date. Years begin in March here, so that the leap day is the last.
fn days_of(year: i64, month: i64, day: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let era = year.div_euclid(400);
    let year_of_era = year.rem_euclid(400);
    let day_of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    era * 146_097 + year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year - 719_468
}

/// The date of a day since 1970-01-01; the reverse of [`days_of`].
fn civil(days: i64) -> (i64, i64, i64) {
    let days = days + 719_468;
    let era = days.div_euclid(146_097);
    let of_era = days.rem_euclid(146_097);
    let year_of_era = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * of_year + 2) / 153;
    let day = of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    (era * 400 + year_of_era + i64::from(month <= 2), month, day)
}

#[cfg(test)]
mod tests {
    use super::{parse, rfc3339};

    #[test]
    fn writes_and_reads_the_same_time() {
        for (ms, text) in [
            (0, "1970-01-01T00:00:00.000Z"),
            (951_782_400_000, "2000-02-29T00:00:00.000Z"),
            (1_793_700_305_123, "2026-11-03T10:05:05.123Z"),
            (4_102_444_799_999, "2099-12-31T23:59:59.999Z"),
        ] {
            assert_eq!(rfc3339(ms), text);
            assert_eq!(parse(text), Some(ms));
        }
    }

    #[test]
    fn reads_shorter_forms_and_refuses_what_is_no_time() {
        assert_eq!(parse("1000"), Some(1000));
        assert_eq!(parse("2026-11-03"), parse("2026-11-03T00:00Z"));
        assert_eq!(parse("2026-11-03 10:05"), parse("2026-11-03T10:05:00.000Z"));
        for wrong in ["", "-1", "2026-02-30", "2026-13-01", "2026-11-03T25:00", "yesterday", "2026-11"] {
            assert_eq!(parse(wrong), None, "{wrong}");
        }
    }
}
