//! Damage that an orderly stop would have hidden: offsets that no checksum covers, files that are gone or short, checkpoints that
//! are another log's. Nothing that was acknowledged is lost or named again, and what was done is said.

use kseg_format::{LeaderEpoch, Offset, Origin, Timestamp};
use kseg_log::{CutReason, Isolation, Log, TimestampQuery};

use crate::support::*;

/// Size of each batch.
const SIZE: usize = 100;

/// A log of ten batches of one record each, closed in an orderly way; offsets in an index entry for every third.
fn ten() -> Bench {
    let bench = Bench::new(&[("index.interval.bytes", "200")]);
    let log = bench.open();
    for n in 0..10 {
        lead(&log, 1, 100 + n, SIZE);
    }
    log.close().expect("closed");
    bench
}

/// Puts bytes over those at `at` in the batch number `n`.
fn harm(bench: &Bench, n: usize, at: usize, with: &[u8]) {
    let mut bytes = contents(bench, &name(0, "log"));
    bytes[n * SIZE + at..][..with.len()].copy_from_slice(with);
    overwrite(bench, &name(0, "log"), &bytes);
}

fn set_base(bench: &Bench, n: usize, base: i64) {
    harm(bench, n, 0, &base.to_be_bytes());
}

const LAST_OFFSET_DELTA: usize = 23;

fn refused(log: &Log, offset: i64) -> String {
    log.read(Offset::new(offset), 1 << 20, Isolation::LogEnd, true).expect_err("damage").to_string()
}

#[test]
fn a_last_batch_with_a_damaged_offset_is_cut_after_an_orderly_stop_and_kept() {
    let harms: [fn(&Bench); 4] = [
        |bench| set_base(bench, 9, 0),
        |bench| set_base(bench, 9, 5),
        // The checksum is right: only the recovery point tells.
        |bench| set_base(bench, 9, i64::MAX - 1),
        |bench| harm(bench, 9, LAST_OFFSET_DELTA, &[0x7f]),
    ];
    for (n, harm) in harms.iter().enumerate() {
        for log_start in [0, 4] {
            let bench = ten();
            harm(&bench);
            let before = contents(&bench, &name(0, "log"));
            let log = bench.open_at(true, 10, log_start);
            assert_eq!(offsets(&log), (log_start, log_start, 9), "{n}");
            let report = log.load_report();
            assert_eq!((report.recovered.len(), report.emptied), (1, false), "{n}");
            assert_eq!(report.missing_up_to, Some(Offset::new(10)), "{n}");
            assert!(!report.is_quiet());
            assert_eq!(contents(&bench, &name(0, "log.cut")), before[9 * SIZE..], "{n}");
            assert_eq!(lead(&log, 1, 200, SIZE).first_offset, Some(Offset::new(9)), "{n}");
            let expected: Vec<_> = (log_start..10).map(|n| (n, n)).collect();
            assert_eq!(spans(&log, log_start), expected, "{n}");
            log.close().expect("closed");
            let log = bench.open_at(true, 10, log_start);
            assert!(log.load_report().is_quiet(), "{n}: {}", log.load_report());
            assert_eq!(spans(&log, log_start), expected, "{n}");
        }
    }
}

#[test]
fn offsets_of_the_tail_that_go_back_are_seen_without_a_recovery_point_too() {
    let bench = ten();
    set_base(&bench, 9, 3);
    let log = bench.open();
    assert_eq!(log.log_end_offset().get(), 9);
    let cut = &log.load_report().cuts[0];
    assert!(
        matches!(cut.reason, CutReason::OffsetsGoBack { after, found } if (after.get(), found.get()) == (8, 3))
    );
}

#[test]
fn a_sound_log_stays_as_it_is_whatever_its_recovery_point_says() {
    for (point, missing, left) in [(5, None, Some(5)), (25, Some(25), None), (0, None, None)] {
        let bench = ten();
        let before = bench.files();
        let log = bench.open_at(true, point, 0);
        let report = log.load_report();
        assert_eq!(log.log_end_offset().get(), 10);
        assert_eq!((report.cuts.len(), report.recovered.len()), (0, 0));
        assert_eq!((report.missing_up_to, report.left_at), (missing.map(Offset::new), left.map(Offset::new)));
        assert_eq!(report.is_quiet(), point == 0);
        log.close().expect("closed");
        assert_eq!(bench.files(), before);
    }
}

#[test]
fn what_no_log_start_reaches_is_kept_aside_whole() {
    for clean in [true, false] {
        let bench = Bench::new(&[]);
        let log = bench.open();
        lead(&log, 3, 1, 1000);
        log.roll(None).expect("a roll");
        lead(&log, 3, 1, 1000);
        log.close().expect("closed");
        let before = [contents(&bench, &name(0, "log")), contents(&bench, &name(3, "log"))];
        let log = bench.open_at(clean, 6, 99_999);
        assert_eq!((offsets(&log), bases(&log)), ((99_999, 99_999, 99_999), vec![99_999]));
        let report = log.load_report();
        assert!(report.emptied && !report.is_quiet());
        let kept: Vec<_> =
            report.set_aside.iter().map(|p| p.file_name().expect("a name").to_owned()).collect();
        assert_eq!(kept, [name(0, "log.cut").as_str(), name(3, "log.cut").as_str()]);
        assert_eq!([contents(&bench, &name(0, "log.cut")), contents(&bench, &name(3, "log.cut"))], before);
        assert!(report.to_string().contains("begins anew there"), "{report}");
        lead(&log, 1, 1, 100);
        log.close().expect("closed");
        let log = bench.open_at(true, 100_000, 99_999);
        assert!(log.load_report().is_quiet(), "{}", log.load_report());
        assert!(bench.files().iter().any(|(n, _)| *n == name(3, "log.cut")));
    }
}

#[test]
fn a_damaged_offset_within_the_last_segment_stays_out_of_indexes_made_anew() {
    type Harm = fn(&Bench, usize);
    let harms: [(usize, Harm); 6] = [
        (4, |bench, n| harm(bench, n, LAST_OFFSET_DELTA, &[0x7f])),
        (8, |bench, n| harm(bench, n, LAST_OFFSET_DELTA, &[0x7f])),
        (4, |bench, n| set_base(bench, n, 0)),
        (4, |bench, n| set_base(bench, n, 7)),
        (6, |bench, n| set_base(bench, n, 1 << 40)),
        (8, |bench, n| set_base(bench, n, 0)),
    ];
    for (case, (n, harm)) in harms.iter().enumerate() {
        for without in [&["timeindex"][..], &["index", "timeindex"]] {
            let bench = ten();
            harm(&bench, *n);
            for kind in without {
                remove(&bench, &name(0, kind));
            }
            let log = bench.open_at(true, 10, 0);
            assert_eq!(log.log_end_offset().get(), 10, "{case}");
            for n in 10..14 {
                assert_eq!(lead(&log, 1, 100 + n, SIZE).first_offset, Some(Offset::new(n)), "{case}");
            }
            log.roll(None).expect("a roll");
            log.close().expect("closed");
            let log = bench.open_at(true, 14, 0);
            assert_eq!((log.log_end_offset().get(), log.load_report().cuts.len()), (14, 0), "{case}");
            for n in [9, 10, 13] {
                let found = log.offset_for_timestamp(TimestampQuery::At(Timestamp::new(100 + n)));
                assert_eq!(found.expect("a lookup").map(|f| f.offset.get()), Some(n), "{case}");
            }
            assert_eq!(read(&log, 13).0, 13, "{case}");
        }
    }
}

#[test]
fn an_index_that_refuses_what_was_appended_is_made_anew() {
    // As a version before this one left it: the entries of a batch with a damaged last offset.
    let bench = ten();
    harm(&bench, 7, LAST_OFFSET_DELTA, &[0x7f]);
    let mut index = [7i32.to_be_bytes(), 700i32.to_be_bytes()].concat();
    index[0] = 0x7f;
    overwrite(&bench, &name(0, "index"), &index);
    let mut times = [&107i64.to_be_bytes()[..], &7i32.to_be_bytes()].concat();
    times[8] = 0x7f;
    overwrite(&bench, &name(0, "timeindex"), &times);
    let log = bench.open_at(true, 10, 0);
    for n in 10..14 {
        lead(&log, 1, 100 + n, SIZE);
    }
    log.close().expect("closed");
    assert_eq!(contents(&bench, &name(0, "timeindex")).last_chunk(), Some(&13i32.to_be_bytes()));
    let log = bench.open_at(true, 14, 0);
    assert_eq!(read(&log, 13).0, 13);
}

#[test]
fn a_read_follows_no_offset_that_cannot_be() {
    // Upwards beyond the end, and back: both hide the batches behind or the damaged one itself.
    for (base, found) in [((1 << 40) + 4, "found 1099511627780"), (1, "found 1")] {
        for rolled in [false, true] {
            let bench = Bench::new(&[]);
            let log = bench.open();
            for n in 0..10 {
                lead(&log, 1, 100 + n, SIZE);
            }
            if rolled {
                log.roll(None).expect("a roll");
                lead(&log, 1, 110, SIZE);
            }
            log.close().expect("closed");
            set_base(&bench, 4, base);
            let log = bench.open_at(true, if rolled { 11 } else { 10 }, 0);
            assert_eq!(read(&log, 3).0, 3);
            for offset in [4, 5, 9] {
                let error = refused(&log, offset);
                assert!(error.contains(&name(0, "log")) && error.contains("at position 400"), "{error}");
                assert!(error.contains(found), "{error}");
            }
        }
    }
}

#[test]
fn a_segment_that_lost_its_indexes_names_its_aborted_transactions_again() {
    for (clean, without) in [(true, true), (false, true), (true, false), (false, false)] {
        let bench = Bench::new(&[]);
        let log = bench.open();
        Draft::new(2).of(7, 0, 0).transactional().lead(&log).expect("an append");
        log.append_as_leader(marker_bytes(0, (7, 0), false, 0), LeaderEpoch::new(0), Origin::Coordinator)
            .expect("a marker");
        log.roll(None).expect("a roll");
        lead(&log, 1, 1, 100);
        log.update_high_watermark(Offset::new(4));
        let expected = vec![(7, 0, 2, 3)];
        assert_eq!(aborted(&log), expected);
        log.close().expect("closed");
        let right = contents(&bench, &name(0, "txnindex"));
        for kind in ["index", "timeindex"] {
            remove(&bench, &name(0, kind));
        }
        if without {
            remove(&bench, &name(0, "txnindex"));
        }
        let log = bench.open_at(clean, 4, 0);
        assert_eq!(aborted(&log), expected, "{clean}");
        assert_eq!(contents(&bench, &name(0, "txnindex")), right);
        assert_eq!(log.load_report().aborted_rebuilt.len(), usize::from(without));
    }
}

#[test]
fn a_transaction_index_of_half_an_entry_or_with_an_impossible_one_is_made_anew() {
    const ENTRY: usize = 34;
    let prepared = || {
        let bench = Bench::new(&[]);
        let log = bench.open();
        for n in 0..2 {
            Draft::new(2).of(7, 0, 2 * n).transactional().lead(&log).expect("an append");
            log.append_as_leader(marker_bytes(0, (7, 0), false, 0), LeaderEpoch::new(0), Origin::Coordinator)
                .expect("a marker");
        }
        log.roll(None).expect("a roll");
        log.close().expect("closed");
        bench
    };
    let harms: [fn(&mut Vec<u8>); 5] = [
        |bytes| bytes.truncate(ENTRY + 19),
        |bytes| bytes.truncate(19),
        // The first offset, negative; the last stable offset beyond the marker, and before that of the entry in front.
        |bytes| bytes[10] = 0xff,
        |bytes| bytes[ENTRY - 1] = 99,
        |bytes| bytes[2 * ENTRY - 1] = 0,
    ];
    for (n, harm) in harms.iter().enumerate() {
        let bench = prepared();
        let right = contents(&bench, &name(0, "txnindex"));
        let mut bytes = right.clone();
        harm(&mut bytes);
        overwrite(&bench, &name(0, "txnindex"), &bytes);
        let log = bench.open_at(true, 6, 0);
        assert_eq!(log.load_report().aborted_rebuilt, [Offset::ZERO], "{n}");
        assert_eq!(contents(&bench, &name(0, "txnindex")), right, "{n}");
        assert_eq!(aborted(&log), [(7, 0, 2, 3), (7, 3, 5, 6)], "{n}");
    }
}

#[test]
fn an_emptied_transaction_index_is_made_anew_where_there_were_aborted_transactions() {
    for (committed, expected) in [(false, vec![(7, 0, 2, 3)]), (true, vec![])] {
        let bench = Bench::new(&[]);
        let log = bench.open();
        Draft::new(2).of(7, 0, 0).transactional().lead(&log).expect("an append");
        let marker = marker_bytes(0, (7, 0), committed, 0);
        log.append_as_leader(marker, LeaderEpoch::new(0), Origin::Coordinator).expect("a marker");
        log.roll(None).expect("a roll");
        log.close().expect("closed");
        // As a truncation leaves it too.
        overwrite(&bench, &name(0, "txnindex"), &[]);
        for again in [false, true] {
            let log = bench.open_at(true, 3, 0);
            assert_eq!(aborted(&log), expected, "{committed}");
            let rebuilt = usize::from(!committed && !again);
            assert_eq!(log.load_report().aborted_rebuilt.len(), rebuilt, "{committed} {again}");
            log.close().expect("closed");
        }
        assert_eq!(contents(&bench, &name(0, "txnindex")).len(), 34 * expected.len());
    }
}

#[test]
fn a_batch_that_cannot_be_read_keeps_no_log_closed() {
    for (without, magic) in [(&["snapshot"][..], 3), (&["index", "snapshot"], 99)] {
        let bench = Bench::new(&[]);
        let log = bench.open();
        for n in 0..3 {
            Draft::new(1).of(7, 0, n).lead(&log).expect("an append");
        }
        let size = log.size() as usize / 3;
        log.roll(None).expect("a roll");
        lead(&log, 1, 1, 100);
        log.close().expect("closed");
        let mut bytes = contents(&bench, &name(0, "log"));
        bytes[size + 16] = magic;
        overwrite(&bench, &name(0, "log"), &bytes);
        for kind in without {
            let gone = bench.files().into_iter().filter(|(n, _)| n.ends_with(&format!(".{kind}")));
            for (name, _) in gone.collect::<Vec<_>>() {
                remove(&bench, &name);
            }
        }
        // Without any snapshot the producers would be those of a new log: one from before is there.
        overwrite(&bench, &name(0, "snapshot"), &[]);
        let log = bench.open_at(true, 4, 0);
        assert_eq!((log.log_end_offset().get(), read(&log, 3).0), (4, 3));
        let report = log.load_report().to_string();
        assert!(report.contains("left out of its producer's state"), "{report}");
        assert_eq!(producers(&log), [(7, 2, None)], "what lies behind it is read");
        assert!(refused(&log, 1).contains("magic"));
        assert_eq!(contents(&bench, &name(0, "log")), bytes);
    }
}

#[test]
fn an_index_lost_below_the_log_start_costs_no_producer() {
    let bench = Bench::new(&[]);
    let log = bench.open();
    Draft::new(2).of(7, 0, 0).transactional().lead(&log).expect("an append");
    log.roll(None).expect("a roll");
    Draft::new(2).of(8, 0, 0).lead(&log).expect("an append");
    log.roll(None).expect("a roll");
    Draft::new(2).of(8, 0, 2).lead(&log).expect("an append");
    log.update_high_watermark(Offset::new(6));
    log.increment_log_start_offset(Offset::new(3)).expect("moved");
    let before = producers(&log);
    assert_eq!(before, [(7, 1, Some(0)), (8, 3, None)]);
    log.close().expect("closed");
    remove(&bench, &name(0, "index"));
    let log = bench.open_at(true, 6, 3);
    assert_eq!(producers(&log), before);
    assert_eq!(log.load_report().rebuilt, [Offset::ZERO]);
}
