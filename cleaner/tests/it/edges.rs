//! That no edge case of compaction goes without a test.
//!
//! The cases are numbered 1 to 191. The number stands in the names of the tests: `cleaner_edge_7_...`,
//! `cleaner_edge_7_and_9_...`, `cleaner_edge_91_to_96_...`, in whatever crate the behaviour is at home. Cases of what a
//! filter puts out have the numbers of the format's own cases there.

use std::collections::BTreeSet;
use std::path::Path;

const LAST: u32 = 191;

/// Cases that a test with another name covers.
const UNDER: &[(u32, &str)] = &[
    (16, "bytes_are_those_of_the_segments_in_the_section"),
    (17, "bytes_are_those_of_the_segments_in_the_section"),
    (40, "format_edge_140_a_wrapper_becomes_a_batch_of_magic_2"),
    (76, "format_edge_52_filtering_stops_behind_the_batch_that_exceeds_the_limit"),
    (80, "format_edge_50_offsets_and_sequences_outlive_the_last_record"),
    (81, "format_edge_51_timestamps_and_the_leader_epoch"),
    (82, "format_edge_46_an_emptied_batch_leaves_its_header_or_nothing"),
    (83, "format_edge_47_and_142_a_header_alone_is_kept_or_goes"),
    (84, "format_edge_48_a_tombstone_gives_its_batch_a_horizon"),
    (86, "format_edge_49_a_compacted_batch_is_compacted_again"),
    (87, "format_edge_51_timestamps_and_the_leader_epoch"),
    (140, "format_edge_140_a_wrapper_becomes_a_batch_of_magic_2"),
];

/// Cases that nothing here can be tried on, each with the reason.
const WITHOUT: &[(u32, &str)] = &[
    (41, "the reader of damaged wrappers is the format's; the cleaner reads through it"),
    (88, "the size of the next batch is asked of the format's framing, whose cases have its numbers"),
    (75, "buffers below 512 bytes are refused, so no thread spins; sizes are fixed when a manager is made"),
    (141, "there is no registry of gauges: figures are asked of the manager"),
    (142, "as 141"),
    (145, "the number of threads is that of `start`; another number is another `start`"),
];

/// The numbers in a test's name: those right behind `cleaner_edge`, with or without `and`, and ranges with `to`.
fn numbers(name: &str) -> Vec<u32> {
    let mut numbers: Vec<u32> = Vec::new();
    for (at, marker) in name.match_indices("cleaner_edge_") {
        let mut range = false;
        for word in name[at + marker.len()..].split('_') {
            match word.parse::<u32>() {
                Ok(number) if range => {
                    let from = numbers.last().map_or(number, |last| last + 1);
                    numbers.extend(from..=number);
                    range = false;
                }
                Ok(number) => numbers.push(number),
                Err(_) if word == "to" => range = true,
                Err(_) if word == "and" => {}
                Err(_) => break,
            }
        }
    }
    numbers
}

/// The names of the test functions below a folder.
fn collect(folder: &Path, found: &mut BTreeSet<String>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            collect(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            let text = std::fs::read_to_string(&path).unwrap();
            let functions = text.split("#[test]").skip(1).filter_map(|rest| rest.split("fn ").nth(1));
            found.extend(functions.filter_map(|rest| rest.split('(').next()).map(str::to_owned));
        }
    }
}

#[test]
fn every_edge_case_has_a_test_or_a_reason() {
    let workspace = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let mut names = BTreeSet::new();
    for krate in ["format", "segment", "log", "cleaner"] {
        for part in ["src", "tests"] {
            collect(&workspace.join(krate).join(part), &mut names);
        }
    }
    let mut tested: BTreeSet<u32> = names.iter().flat_map(|name| numbers(name)).collect();
    for (number, name) in UNDER {
        assert!(names.contains(*name), "case {number}: no test {name}");
        assert!(tested.insert(*number), "case {number} has a test of its own");
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
    assert_eq!(numbers("cleaner_edge_7_a_size_of_32_bits"), [7]);
    assert_eq!(numbers("cln_03_cleaner_edge_27_28_and_29_cut"), [27, 28, 29]);
    assert_eq!(numbers("cleaner_edge_091_to_093_and_95_a"), [91, 92, 93, 95]);
    assert_eq!(numbers("log_edge_5_records"), [0u32; 0]);
}
