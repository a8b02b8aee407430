//! Segments whose offsets reach too far from their base are split when the log is opened.

use std::path::Path;
use std::sync::Arc;

use kseg_format::{AbortedTransaction, Offset, ProducerId};
use kseg_io_backends::{Call, Fault, Faulty};
use kseg_log::{CutReason, Log, OpenOptions};

use crate::support::*;

const M: i64 = i32::MAX as i64;
/// Where the next segment begins.
const NEXT: i64 = M + 100;

fn write(bench: &Bench, name: &str, bytes: &[u8]) {
    overwrite(bench, name, bytes);
}

fn aborted(last: i64) -> AbortedTransaction {
    AbortedTransaction {
        producer_id: ProducerId::new(7),
        first_offset: Offset::new(0),
        last_offset: Offset::new(last),
        last_stable_offset: Offset::new(0),
    }
}

/// A partition with batches at these offsets in the segment at 0, and one in the segment behind it.
fn compacted(bench: &Bench, offsets: &[i64]) {
    bench.open().close().expect("closed");
    let bytes: Vec<u8> = offsets.iter().flat_map(|&o| batch_at(o, 1, o, 100).to_vec()).collect();
    write(bench, &name(0, "log"), &bytes);
    for kind in ["index", "timeindex"] {
        bench.backend.names().remove(&Path::new(DIR).join(name(0, kind))).expect("removed");
    }
    write(bench, &name(NEXT, "log"), &batch_at(NEXT, 1, NEXT, 100));
}

/// Offsets of the batches, by reading from each end to the next.
fn batches(log: &Log) -> Vec<i64> {
    let mut found = Vec::new();
    let mut next = log.log_start_offset().get();
    while let Some(bytes) = bytes_of(log, next) {
        for batch in kseg_format::Batches::new(&bytes) {
            next = batch.expect("a batch").header().last_offset().get() + 1;
            found.push(next - 1);
        }
    }
    found
}

#[test]
fn a_segment_that_reaches_too_far_is_split_where_its_batches_no_longer_fit() {
    for (offsets, expected) in [
        (vec![0, M, M + 1, M + 2], vec![0, M + 1, NEXT]),
        // No batch fits the old base, which goes.
        (vec![M + 5, M + 6], vec![M + 5, NEXT]),
        (vec![3, M + 3, M + 4], vec![0, M + 3, NEXT]),
    ] {
        for clean in [true, false] {
            let bench = Bench::new(&[("segment.index.bytes", "1000")]);
            compacted(&bench, &offsets);
            let log = if clean { bench.open() } else { bench.open_unclean(0) };
            assert_eq!(bases(&log), expected, "clean {clean}");
            assert_eq!(log.load_report().split, [Offset::ZERO]);
            assert_eq!(batches(&log), [&offsets[..], &[NEXT]].concat());
            assert!(log.load_report().cuts.is_empty() && !log.load_report().is_quiet());
            let leftovers = bench.files().into_iter().map(|(n, _)| n);
            assert!(leftovers.clone().all(|n| !n.ends_with(".swap") && !n.ends_with(".cleaned")));
            // Once is enough.
            log.close().expect("closed");
            assert!(bench.open_unclean(0).load_report().split.is_empty());
        }
    }
}

#[test]
fn aborted_transactions_go_with_the_batches_that_end_them() {
    let bench = Bench::new(&[("segment.index.bytes", "1000")]);
    compacted(&bench, &[0, M, M + 1, M + 2]);
    let entries: Vec<u8> = [M, M + 2].iter().flat_map(|&last| aborted(last).encode()).collect();
    write(&bench, &name(0, "txnindex"), &entries);
    let log = bench.open();
    let segments = log.state(true).expect("state").segments;
    let found: Vec<_> = segments.into_iter().map(|s| s.aborted).collect();
    assert_eq!(found, [vec![aborted(M)], vec![aborted(M + 2)], vec![]]);
}

#[test]
fn a_split_that_stops_anywhere_is_made_good_by_the_next_opening() {
    let calls =
        [Call::Open, Call::Write, Call::Flush, Call::SyncDir, Call::SetModified, Call::Rename, Call::Remove];
    let mut stopped = 0;
    for offsets in [vec![0, M, M + 1, M + 2], vec![M + 5, M + 6]] {
        for call in calls {
            for nth in 1.. {
                let faulty = Arc::new(Faulty::new(kseg_io_backends::open("memory").expect("memory")));
                let bench = Bench::on(faulty.clone(), &[("segment.index.bytes", "1000")]);
                compacted(&bench, &offsets);
                let before = faulty.fired();
                faulty.inject(Fault::on(call).nth(nth).always());
                let unclean = || OpenOptions { clean: false, ..bench.options() };
                if let Ok(log) = Log::open(Path::new(DIR), unclean()) {
                    log.abandon();
                }
                faulty.clear();
                if faulty.fired() == before {
                    break;
                }
                stopped += 1;
                let log = bench.open_unclean(0);
                let split = *offsets.iter().find(|&&o| o > M).expect("too far");
                // An empty part at the old base may be left where nothing fits it.
                let whole = bases(&log) == [0, split, NEXT] || offsets[0] > M && bases(&log) == [split, NEXT];
                assert!(whole, "{call:?} {nth}: {:?}", bases(&log));
                assert_eq!(batches(&log), [&offsets[..], &[NEXT]].concat(), "{call:?} {nth}");
            }
        }
    }
    assert!(stopped > 30, "{stopped}");
}

#[test]
fn an_offset_beyond_the_next_segment_is_damage_and_no_reason_to_split() {
    for next in [true, false] {
        let bench = Bench::new(&[("segment.index.bytes", "1000")]);
        compacted(&bench, &[0, 1, NEXT + 1]);
        if !next {
            bench.backend.names().remove(&Path::new(DIR).join(name(NEXT, "log"))).expect("removed");
        }
        let log = bench.open_unclean(0);
        assert_eq!((bases(&log), batches(&log)), (vec![0], vec![0, 1]));
        let cuts = &log.load_report().cuts;
        assert!(matches!(cuts[0].reason, CutReason::TooFar { .. }), "{}", cuts[0]);
        assert!(log.load_report().split.is_empty());
    }
}

/// Opens, after a crash, a partition whose only segment, at 0, has batches at these offsets.
fn alone(offsets: &[i64], with_index: bool, clean: bool) -> (Bench, Log) {
    alone_with(&[("segment.index.bytes", "1000")], offsets, with_index, clean)
}

fn alone_with(config: &[(&str, &str)], offsets: &[i64], with_index: bool, clean: bool) -> (Bench, Log) {
    let bench = Bench::new(config);
    bench.open().close().expect("closed");
    let bytes: Vec<u8> = offsets.iter().flat_map(|&o| batch_at(o, 1, o, 100).to_vec()).collect();
    write(&bench, &name(0, "log"), &bytes);
    if !with_index {
        for kind in ["index", "timeindex"] {
            bench.backend.names().remove(&Path::new(DIR).join(name(0, kind))).expect("removed");
        }
    }
    let log = if clean { bench.open() } else { bench.open_unclean(0) };
    (bench, log)
}

#[test]
fn log_edge_182_the_last_segment_is_split_too() {
    for with_index in [true, false] {
        let (_, log) = alone(&[0, M, M + 1, M + 2], with_index, false);
        assert_eq!((bases(&log), batches(&log)), (vec![0, M + 1], vec![0, M, M + 1, M + 2]));
        assert_eq!(log.log_end_offset().get(), M + 3);
    }
}

#[test]
fn the_distance_to_the_next_index_entry_goes_on_in_a_part_that_recovery_made() {
    // Every batch of a part but the first is farther than the interval from the entry before it.
    for (with_index, expected) in [(true, vec![M + 2, M + 3, M + 4]), (false, vec![M + 2, M + 3])] {
        let config = [("segment.index.bytes", "1000"), ("index.interval.bytes", "90")];
        let (_, log) = alone_with(&config, &[0, M + 1, M + 2, M + 3], with_index, false);
        follow(&log, M + 4, M + 4).expect("an append");
        let segments = log.state(true).expect("state").segments;
        let entries: Vec<i64> = segments[1].offset_entries.iter().map(|e| e.offset.get()).collect();
        assert_eq!((segments.len(), entries), (2, expected), "with an index: {with_index}");
    }
}

#[test]
fn what_is_no_batch_behind_those_that_are_too_far_is_cut_and_kept_aside() {
    let torn = batch_at(M + 3, 1, 1, 100)[..70].to_vec();
    for (tail, kept) in [(vec![0; 500], false), (torn, true)] {
        let bench = Bench::new(&[("segment.index.bytes", "1000")]);
        bench.open().close().expect("closed");
        let mut bytes: Vec<u8> =
            [0, M + 1, M + 2].iter().flat_map(|&o| batch_at(o, 1, o, 100).to_vec()).collect();
        bytes.extend(&tail);
        write(&bench, &name(0, "log"), &bytes);
        let log = bench.open_unclean(0);
        assert_eq!((bases(&log), batches(&log)), (vec![0, M + 1], vec![0, M + 1, M + 2]));
        let cut = &log.load_report().cuts[0];
        assert_eq!((cut.position, cut.len, cut.kept.is_some()), (200, tail.len() as u64, kept));
        let left: Vec<String> = bench.files().into_iter().map(|(name, _)| name).collect();
        assert!(left.iter().all(|name| !name.ends_with(".swap")), "{left:?}");
    }
}

#[test]
fn log_edge_247_a_segment_whose_first_batch_is_out_of_reach_becomes_one_at_that_batch() {
    for with_index in [true, false] {
        let (bench, log) = alone(&[M + 1, M + 2], with_index, false);
        assert_eq!((bases(&log), batches(&log)), (vec![M + 1], vec![M + 1, M + 2]), "{with_index}");
        assert_eq!((log.log_start_offset().get(), log.log_end_offset().get()), (M + 1, M + 3));
        assert!(bench.size_of(&name(0, "log")).is_none());
        assert!(bench.size_of(&format!("{}.deleted", name(0, "log"))).is_some());
    }
}

#[test]
fn log_edge_167_a_batch_that_reaches_too_far_has_a_segment_of_its_own() {
    let bench = Bench::new(&[("segment.index.bytes", "1000")]);
    bench.open().close().expect("closed");
    write(&bench, &name(0, "log"), &batch_at(M - 1, 3, 1, 200));
    let log = bench.open_unclean(0);
    assert_eq!((bases(&log), spans(&log, M - 1)), (vec![M - 1], vec![(M - 1, M + 1)]));
    let (_, log) = alone(&[M + 1, M + 2], true, false);
    assert_eq!(bases(&log), [M + 1]);
}

#[test]
fn log_edge_166_only_the_segment_that_overflows_is_split() {
    for clean in [true, false] {
        let bench = Bench::new(&[("segment.index.bytes", "1000")]);
        bench.open().close().expect("closed");
        for (base, offsets) in [(0, vec![0, 1]), (10, vec![10, 11, M + 20, M + 21]), (M + 50, vec![M + 50])] {
            let bytes: Vec<u8> = offsets.iter().flat_map(|&o| batch_at(o, 1, o, 100).to_vec()).collect();
            write(&bench, &name(base, "log"), &bytes);
        }
        for kind in ["index", "timeindex"] {
            bench.backend.names().remove(&Path::new(DIR).join(name(0, kind))).expect("removed");
        }
        let log = if clean { bench.open() } else { bench.open_unclean(0) };
        assert_eq!(bases(&log), [0, 10, M + 20, M + 50]);
        assert_eq!(log.load_report().split, [Offset::new(10)]);
        assert_eq!(batches(&log), [0, 1, 10, 11, M + 20, M + 21, M + 50]);
    }
}

#[test]
fn log_edge_57_a_part_takes_the_batches_that_fit_it() {
    let bench = Bench::new(&[]);
    bench.open().close().expect("closed");
    let batches = [(0, 1024), (500, (1 << 20) + 1), (M + 5, 100)];
    let bytes: Vec<u8> = batches.iter().flat_map(|&(o, size)| batch_at(o, 1, o, size).to_vec()).collect();
    write(&bench, &name(0, "log"), &bytes);
    write(&bench, &name(NEXT, "log"), &batch_at(NEXT, 1, NEXT, 100));
    for kind in ["index", "timeindex"] {
        bench.backend.names().remove(&Path::new(DIR).join(name(0, kind))).expect("removed");
    }
    let log = bench.open_unclean(0);
    assert_eq!(bases(&log), [0, M + 5, NEXT]);
    assert_eq!(contents(&bench, &name(0, "log")), bytes[..bytes.len() - 100]);
    assert_eq!(contents(&bench, &name(M + 5, "log")), bytes[bytes.len() - 100..]);
}
