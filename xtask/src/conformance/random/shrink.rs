//! Makes a story that differs short, so that one can see why.

/// Leaves lines out as long as what is left `differs`: halves, quarters and so on, then one after the other, until none can
/// be spared or there is no more time (`goes_on` says so before each attempt).
///
/// # Errors
/// Those of `differs`.
pub(super) fn shrunk<E>(
    lines: &[String],
    mut differs: impl FnMut(&[String]) -> Result<bool, E>,
    mut goes_on: impl FnMut() -> bool,
) -> Result<Vec<String>, E> {
    let mut kept = lines.to_vec();
    let mut size = kept.len().div_ceil(2);
    while size > 0 {
        let before = kept.len();
        // From the end: what comes late matters to little.
        let mut end = kept.len();
        while end > 0 {
            if !goes_on() {
                return Ok(kept);
            }
            let first = end.saturating_sub(size);
            let without = [&kept[..first], &kept[end..]].concat();
            if differs(&without)? {
                kept = without;
            }
            end = first;
        }
        // Where a single line could be spared, another one may be superfluous now.
        if size > 1 || kept.len() == before {
            size /= 2;
        }
    }
    Ok(kept)
}

/// What a difference is about, without numbers and values: a shorter story must differ in this, not in something else.
pub(super) fn about(found: &str) -> String {
    // "NAME line N OP: ..." or "NAME: FOLDER/file ..."
    let what = found
        .split_once(" line ")
        .and_then(|(_, rest)| rest.split_once(' '))
        .map_or_else(|| found.split_once(": ").map_or(found, |(_, rest)| rest), |(_, rest)| rest);
    let failure = [": Kafka fails", ": kseg fails", ": error:"].iter().any(|f| what.contains(f));
    let end = what.find(if failure { " (" } else { ": Kafka " }).unwrap_or(what.len());
    what[..end].chars().filter(|c| !c.is_ascii_digit()).collect()
}

#[cfg(test)]
mod tests {
    use super::{about, shrunk};

    fn story(lines: usize) -> Vec<String> {
        (0..lines).map(|n| format!("line {n}")).collect()
    }

    /// Differs where `wanted` are all there, in order, and counts how often it was asked.
    fn planted(wanted: &[usize], asked: &mut u32, lines: &[String]) -> bool {
        *asked += 1;
        let mut rest = lines.iter();
        wanted.iter().all(|n| rest.any(|line| *line == format!("line {n}")))
    }

    #[test]
    fn only_the_lines_that_differ_together_are_left() {
        for wanted in [&[0, 57, 58, 199][..], &[100], &[3, 4, 5], &[]] {
            let mut asked = 0;
            let short =
                shrunk::<()>(&story(200), |l| Ok(planted(wanted, &mut asked, l)), || true).expect("shrunk");
            let expected: Vec<String> = wanted.iter().map(|n| format!("line {n}")).collect();
            assert_eq!(short, expected);
            assert!(asked < 200, "{asked} attempts");
        }
    }

    #[test]
    fn a_line_that_can_go_only_behind_another_one_goes_too() {
        // Lines in pairs: the later one alone makes no sense, and is met first.
        let differs = |lines: &[String]| {
            let there = |n: usize| lines.contains(&format!("line {n}"));
            Ok::<_, ()>(there(7) && (!there(3) || there(5)))
        };
        assert_eq!(shrunk(&story(8), differs, || true), Ok(vec!["line 7".to_owned()]));
    }

    #[test]
    fn it_ends_when_there_is_no_more_time() {
        let mut left = 3;
        let goes_on = || {
            left -= 1;
            left >= 0
        };
        let mut asked = 0;
        let short = shrunk::<()>(&story(64), |l| Ok(planted(&[60], &mut asked, l)), goes_on).expect("shrunk");
        assert_eq!(asked, 3);
        assert!(short.len() < 64 && short.contains(&"line 60".to_owned()), "{short:?}");
    }

    #[test]
    fn what_a_difference_is_about_has_no_numbers_in_it() {
        let pairs = [
            (
                "random-7 line 12 state: .segments[0].index[3][1]: Kafka 2, kseg 3",
                "state: .segments[].index[][]",
            ),
            (
                "random-7 line 9 append: kseg fails: \"InvalidRecordException\" (at 7), Kafka answers {}",
                "append: kseg fails: \"InvalidRecordException\"",
            ),
            (
                "random-8 line 9 open: error: Kafka \"A\", kseg \"B\" (at 7)",
                "open: error: Kafka \"A\", kseg \"B\"",
            ),
            ("random-7: random-0/file 0012.log: Kafka 10 bytes, kseg 12, first", "random-/file .log"),
        ];
        for (found, what) in pairs {
            assert_eq!(about(found), what);
        }
    }
}
