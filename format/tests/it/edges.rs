//! That no edge case of the format goes without a test.
//!
//! The cases are numbered 1 to 209. The number stands in the names of the tests: `format_edge_7_...`,
//! `format_edge_7_and_9_...`, in whatever crate the behaviour is at home.

use std::collections::BTreeSet;
use std::path::Path;

const LAST: u32 = 209;

/// Cases that nothing here can be tried on, each with the reason.
const WITHOUT: &[(u32, &str)] = &[
    (14, "a timestamp type \"none\" cannot be set: `TimestampType` has CreateTime and LogAppendTime alone"),
    (78, "a leader's append has one target, magic 2, and no message of magic 0 or 1 can be given a producer"),
    (
        128,
        "no checkpoint is read lazily, and none is asked by directory: a data directory reads its own, once, at open",
    ),
    (176, "as 14, for a wrapper of magic 1"),
];

/// The numbers in a test's name: those right behind `format_edge`, with or without `and` between them.
fn numbers(name: &str) -> Vec<u32> {
    let mut numbers = Vec::new();
    for (at, marker) in name.match_indices("format_edge_") {
        let words = name[at + marker.len()..].split('_').filter(|word| *word != "and");
        numbers.extend(words.map_while(|word| word.parse::<u32>().ok()));
    }
    numbers
}

/// Adds the numbers in the names of the test functions below a folder.
fn collect(folder: &Path, found: &mut BTreeSet<u32>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            collect(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            let text = std::fs::read_to_string(&path).unwrap();
            let functions = text.split("#[test]").skip(1).filter_map(|rest| rest.split("fn ").nth(1));
            for name in functions.filter_map(|rest| rest.split('(').next()) {
                found.extend(numbers(name));
            }
        }
    }
}

#[test]
fn every_edge_case_has_a_test_or_a_reason() {
    let workspace = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let mut tested = BTreeSet::new();
    for krate in ["format", "segment", "log"] {
        for part in ["src", "tests"] {
            collect(&workspace.join(krate).join(part), &mut tested);
        }
    }
    let without: BTreeSet<u32> = WITHOUT.iter().map(|(number, _)| *number).collect();
    let missing: Vec<_> = (1..=LAST).filter(|n| !tested.contains(n) && !without.contains(n)).collect();
    assert!(missing.is_empty(), "edge cases without a test: {missing:?}");
    let both: Vec<_> = tested.intersection(&without).collect();
    assert!(both.is_empty(), "edge cases with a test and a reason for having none: {both:?}");
    assert!(tested.iter().all(|number| (1..=LAST).contains(number)), "{tested:?}");
}

#[test]
fn numbers_are_read_from_names() {
    assert_eq!(numbers("format_edge_7_a_size_of_32_bits"), [7]);
    assert_eq!(numbers("log_edge_3_and_format_edge_27_28_and_29_cut"), [27, 28, 29]);
    assert_eq!(numbers("format_edge_112_and_209_a"), [112, 209]);
    assert_eq!(numbers("log_edge_5_records"), [0u32; 0]);
}
