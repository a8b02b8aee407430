//! Milliseconds since 1970 and RFC 3339, both ways, in UTC.

const MS_PER_DAY: i64 = 86_400_000;

/// Reads milliseconds since 1970, or a time such as `2024-10-05T02:00:00.123Z`, `2024-10-05 02:00+02:00`, `2024-10-05`.
///
/// A time without a zone is UTC; digits behind the milliseconds are dropped. `None` where it is neither.
pub(crate) fn parse(text: &str) -> Option<i64> {
    text.parse().ok().or_else(|| rfc3339(text))
}

/// The time as `2024-10-05T02:00:00.123Z`; outside the years 0 to 9999 the bare number with `ms`.
pub(crate) fn format(ms: i64) -> String {
    let (days, rest) = (ms.div_euclid(MS_PER_DAY), ms.rem_euclid(MS_PER_DAY));
    let (year, month, day) = date_of(days);
    if !(0..=9999).contains(&year) {
        return format!("{ms}ms");
    }
    let (second, ms) = (rest / 1000, rest % 1000);
    let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{ms:03}Z")
}

fn rfc3339(text: &str) -> Option<i64> {
    let (date, rest) = (text.get(..10)?, text.get(10..)?);
    let &[y0, y1, y2, y3, b'-', m0, m1, b'-', d0, d1] = date.as_bytes() else { return None };
    let (year, month, day) = (number(&[y0, y1, y2, y3])?, number(&[m0, m1])?, number(&[d0, d1])?);
    if !(1..=12).contains(&month) || day < 1 || day > days_in(year, month) {
        return None;
    }
    let ms = days_of(year, month, day) * MS_PER_DAY;
    if rest.is_empty() {
        return Some(ms);
    }
    let rest = rest.strip_prefix(['T', 't', ' '])?;
    let (clock, zone) = match rest.find(['Z', 'z', '+', '-']) {
        Some(at) => rest.split_at(at),
        None => (rest, "Z"),
    };
    Some(ms + clock_ms(clock)? - zone_ms(zone)?)
}

fn clock_ms(clock: &str) -> Option<i64> {
    let (clock, fraction) = clock.split_once('.').unwrap_or((clock, "0"));
    let mut parts = clock.split(':').map(|part| if part.len() == 2 { number(part.as_bytes()) } else { None });
    let (hour, minute, second) = (parts.next()??, parts.next()??, parts.next().unwrap_or(Some(0))?);
    if parts.next().is_some() || hour > 23 || minute > 59 || second > 60 {
        return None;
    }
    number(fraction.as_bytes())?;
    let ms: i64 =
        fraction.bytes().chain(*b"000").take(3).fold(0, |ms, digit| ms * 10 + i64::from(digit - b'0'));
    Some(((hour * 60 + minute) * 60 + second) * 1000 + ms)
}

fn zone_ms(zone: &str) -> Option<i64> {
    let sign = match zone.as_bytes().first()? {
        b'Z' | b'z' if zone.len() == 1 => return Some(0),
        b'+' => 1,
        b'-' => -1,
        _ => return None,
    };
    let &[h0, h1, b':', m0, m1] = &zone.as_bytes()[1..] else { return None };
    let (hour, minute) = (number(&[h0, h1])?, number(&[m0, m1])?);
    (hour < 24 && minute < 60).then_some(sign * (hour * 60 + minute) * 60_000)
}

/// Digits and nothing else.
fn number(digits: &[u8]) -> Option<i64> {
    let all = !digits.is_empty() && digits.len() < 18 && digits.iter().all(u8::is_ascii_digit);
    all.then(|| digits.iter().fold(0, |n, digit| n * 10 + i64::from(digit - b'0')))
}

fn days_in(year: i64, month: i64) -> i64 {
    match month {
        2 if year % 4 == 0 && (year % 100 != 0 || year % 400 == 0) => 29,
        2 => 28,
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    }
}

/// Days since 1970-01-01. Counts years from March, so that the leap day is the last one; 400 years are 146 097 days.
fn days_of(year: i64, month: i64, day: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let (era, of_era) = (year.div_euclid(400), year.rem_euclid(400));
    let of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    era * 146_097 + of_era * 365 + of_era / 4 - of_era / 100 + of_year - 719_468
}

/// The inverse of [`days_of`].
fn date_of(days: i64) -> (i64, i64, i64) {
    let days = days + 719_468;
    let (era, of_era) = (days.div_euclid(146_097), days.rem_euclid(146_097));
    let year = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year + year / 4 - year / 100);
    let shifted = (5 * of_year + 2) / 153;
    let day = of_year - (153 * shifted + 2) / 5 + 1;
    let month = if shifted < 10 { shifted + 3 } else { shifted - 9 };
    (era * 400 + year + i64::from(month <= 2), month, day)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_round_trip() {
        for ms in [
            0,
            -1,
            1_728_093_600_123,
            951_782_400_000,
            951_868_799_999,
            4_107_542_400_000,
            -62_135_596_800_000,
        ] {
            assert_eq!(parse(&format(ms)), Some(ms), "{}", format(ms));
        }
        assert_eq!(format(1_728_093_600_123), "2024-10-05T02:00:00.123Z");
        assert_eq!(format(i64::MAX), "9223372036854775807ms");
    }

    #[test]
    fn zones_spaces_and_short_forms_are_read() {
        assert_eq!(parse("2024-10-05 04:00+02:00"), parse("2024-10-05T02:00:00Z"));
        assert_eq!(parse("2024-10-05"), parse("2024-10-05T00:00:00.000Z"));
        assert_eq!(parse("2024-10-05T02:00:00.5"), Some(1_728_093_600_500));
        assert_eq!(parse("-5"), Some(-5));
    }

    #[test]
    fn what_is_no_time_is_refused() {
        for text in [
            "",
            "yesterday",
            "2024-13-01",
            "2023-02-29",
            "2024-10-05T25:00Z",
            "2024-10-05T02",
            "2024-10-05T02:00:00.Z",
            "2024-10-05X",
            "2024-1-05",
        ] {
            assert_eq!(parse(text), None, "{text}");
        }
    }
}
