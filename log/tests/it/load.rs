//! What opening a log makes of the files that it finds.

use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use kseg_format::{Codec, LeaderEpoch, Magic, Offset, Origin, Timestamp};
use kseg_io_backends::{Backend, Call, Moment, Watched};
use kseg_log::{Log, TimestampQuery};

use crate::support::*;

const M: i64 = i32::MAX as i64;

/// A log of `count` segments of one record each, at offsets and times 0 and up.
fn ones(bench: &Bench, count: i64) -> Log {
    let log = bench.open();
    for n in 0..count {
        if n > 0 {
            log.roll(None).expect("a roll");
        }
        lead(&log, 1, n, 100);
    }
    log
}

fn remove_all(bench: &Bench, ending: &str) {
    for (name, _) in bench.files().into_iter().filter(|(name, _)| name.ends_with(ending)) {
        remove(bench, &name);
    }
}

fn index_files(bench: &Bench) -> Vec<(String, Vec<u8>)> {
    let names = bench.files().into_iter().map(|f| f.0).filter(|name| name.ends_with("index"));
    names.map(|name| (name.clone(), contents(bench, &name))).collect()
}

/// Every offset and every time is found.
fn all_found(log: &Log, count: i64) {
    for n in 0..count {
        assert_eq!(read(log, n).0, n);
        let found = log.offset_for_timestamp(TimestampQuery::At(Timestamp::new(n))).expect("a lookup");
        assert_eq!(found.map(|f| f.offset.get()), Some(n));
    }
}

#[test]
fn log_edge_170_snapshots_that_are_made_where_there_are_none() {
    for (clean, recovery_point, expected) in
        [(true, 4, vec![2, 3, 4]), (false, 4, vec![2, 3, 4]), (false, 0, vec![1, 2, 3, 4])]
    {
        let bench = Bench::new(&[]);
        ones(&bench, 4).close().expect("closed");
        remove_all(&bench, ".snapshot");
        bench.open_at(clean, recovery_point, 0);
        assert_eq!(snapshots(&bench), expected, "{clean} {recovery_point}");
    }
}

#[test]
fn log_edge_171_and_172_stray_snapshots_go() {
    let bench = Bench::new(&[]);
    let log = bench.open();
    for (count, base) in [(1, 1), (1, 2), (2, 4)] {
        lead(&log, count, 1, 100);
        assert_eq!(log.roll(None).expect("a roll").get(), base);
    }
    log.close().expect("closed");
    assert_eq!(snapshots(&bench), [1, 2, 4]);
    overwrite(&bench, &name(3, "snapshot"), b"");
    let log = bench.open();
    assert!(log.load_report().is_quiet(), "{}", log.load_report());
    assert_eq!(snapshots(&bench), [1, 2, 4]);

    let bench = Bench::new(&[]);
    bench.open().close().expect("closed");
    overwrite(&bench, &name(42, "snapshot"), b"");
    bench.open();
    assert_eq!(snapshots(&bench), [0_i64; 0]);
}

#[test]
fn log_edge_173_recovery_makes_the_indexes_that_were_there() {
    let bench = Bench::new(&[("internal.segment.bytes", "1000"), ("index.interval.bytes", "1")]);
    let log = bench.open();
    for n in 0..100 {
        lead(&log, 1, n, 100);
    }
    log.close().expect("closed");
    let before = index_files(&bench);
    let log = bench.open_unclean(10);
    assert_eq!((log.recovery_point().get(), log.log_end_offset().get()), (10, 100));
    log.flush(false).expect("flushed");
    assert_eq!(log.recovery_point().get(), 100);
    all_found(&log, 100);
    log.close().expect("closed");
    assert_eq!(index_files(&bench), before);
}

#[test]
fn log_edge_174_and_175_and_176_indexes_that_are_missing_or_cut_are_made_anew() {
    type Harm = fn(&Bench);
    let harms: [(Harm, bool, i64); 3] = [
        (|bench| ["timeindex", ".index"].iter().for_each(|ending| remove_all(bench, ending)), false, 0),
        (
            |bench| {
                for (name, _) in index_files(bench) {
                    overwrite(bench, &name, b"xx");
                }
            },
            false,
            0,
        ),
        // Kafka leaves the time indexes of sealed segments empty.
        (|bench| remove_all(bench, ".timeindex"), false, 100),
    ];
    for (harm, clean, recovery_point) in harms {
        let bench = Bench::new(&[("internal.segment.bytes", "1000"), ("index.interval.bytes", "1")]);
        let log = bench.open();
        for n in 0..100 {
            lead(&log, 1, n, 100);
        }
        log.close().expect("closed");
        let before = index_files(&bench);
        harm(&bench);
        let log = bench.open_at(clean, recovery_point, 0);
        all_found(&log, 100);
        log.close().expect("closed");
        assert_eq!(index_files(&bench), before);
    }
}

#[test]
fn log_edge_177_index_files_without_a_segment_go() {
    let bench = Bench::new(&[]);
    ones(&bench, 2).close().expect("closed");
    for ending in ["index", "timeindex"] {
        overwrite(&bench, &name(5, ending), b"");
    }
    let log = bench.open();
    assert!(bench.size_of(&name(5, "index")).is_none() && bench.size_of(&name(5, "timeindex")).is_none());
    let removed: Vec<_> = log.load_report().removed.iter().filter_map(|p| p.file_name()?.to_str()).collect();
    assert_eq!(removed, [name(5, "index"), name(5, "timeindex")]);
    assert_eq!(bases(&log), [0, 1]);
}

#[test]
fn log_edge_178_what_waited_for_its_removal_goes_at_once() {
    let bench = Bench::new(&[]);
    ones(&bench, 3).close().expect("closed");
    for ending in ["log.deleted", "index.deleted", "snapshot.deleted"] {
        overwrite(&bench, &name(1, ending), b"x");
    }
    let log = bench.open();
    assert!(!bench.files().iter().any(|(name, _)| name.ends_with(".deleted")), "{:?}", bench.files());
    assert_eq!(bases(&log), [0, 1, 2]);
}

#[test]
fn log_edge_179_junk_behind_the_records_goes_and_the_records_stay() {
    let bench = Bench::new(&[("index.interval.bytes", "1")]);
    let log = bench.open();
    for n in 0..100 {
        lead(&log, 1, n, 100);
    }
    log.close().expect("closed");
    for file in [name(0, "log"), name(0, "index"), name(0, "timeindex")] {
        let with_junk = [contents(&bench, &file), vec![0xa7; 37]].concat();
        overwrite(&bench, &file, &with_junk);
    }
    let log = bench.open_unclean(50);
    all_found(&log, 100);
    assert_eq!((log.log_end_offset().get(), log.size()), (100, 10_000));
    assert_eq!((log.load_report().cuts[0].position, log.load_report().cuts[0].len), (10_000, 37));
}

#[test]
fn log_edge_180_and_309_offsets_too_far_apart_for_one_segment() {
    for records in [1, 2] {
        let bench = Bench::new(&[("index.interval.bytes", "1")]);
        let log = bench.open();
        Draft::new(1).follow(&log).expect("an append");
        for n in 0..3 {
            let codec = if records == 2 { Codec::Gzip } else { Codec::None };
            let draft = Draft::new(records).base(M + 2 + n * records as i64).codec(codec);
            draft.follow(&log).expect("an append");
        }
        assert_eq!((bases(&log), snapshots(&bench)), (vec![0, M + 2], vec![M + 2]));
        let before = spans(&log, 0);
        log.close().expect("closed");
        for base in [0, M + 2] {
            assert!(bench.size_of(&name(base, "index")).is_some_and(|len| len % 8 == 0));
        }
        let log = bench.open();
        assert_eq!((bases(&log), spans(&log, 0)), (vec![0, M + 2], before));
        let last = |n: usize| log.state(true).expect("state").segments[n].offset_entries.last().copied();
        assert!(last(0).is_none() && last(1).is_some_and(|entry| entry.offset.get() > M + 2));
    }
}

#[test]
fn log_edge_181_segments_of_old_compressed_batches_begin_at_a_bound_below_them() {
    let log = Bench::new(&[]).open();
    for last in [0, M + 3, M + 5, M + 7] {
        let records: Vec<_> = (if last == 0 { 0 } else { last - 1 }..=last).map(|o| (o, 1)).collect();
        let bytes = messages(Magic::V1, Codec::Gzip, &records).freeze();
        log.append_as_follower(bytes, LeaderEpoch::new(0)).expect("an append");
    }
    assert_eq!(bases(&log), [0, 3, M + 4]);
    for offset in [0, M + 2, M + 3, M + 4, M + 7] {
        assert!(read(&log, offset).1 > 0, "{offset}");
    }
}

#[test]
fn log_edge_189_a_log_that_began_anew_goes_on_and_leaves_nothing_behind() {
    let bench = Bench::new(&[("internal.segment.bytes", "100"), ("file.delete.delay.ms", "1000")]);
    let log = bench.open();
    for _ in 0..10 {
        lead(&log, 1, 1, 100);
    }
    log.abandon();
    overwrite(&bench, &name(1, "log"), &[1; 13]);
    let log = bench.open_at(false, 0, 4);
    assert_eq!((offsets(&log), bases(&log)), ((4, 4, 4), vec![4]));
    while log.log_end_offset().get() < 9 {
        lead(&log, 1, 1, 100);
        log.roll(None).expect("a roll");
    }
    bench.scheduler.advance(1000);
    assert_eq!((bases(&log), snapshots(&bench)), ((4..=9).collect(), (5..=9).collect()));
    assert!(!bench.files().iter().any(|(name, _)| name.ends_with(".deleted")), "{:?}", bench.files());
}

#[test]
fn log_edge_190_an_empty_active_segment_without_indexes_after_a_crash() {
    let bench = Bench::new(&[]);
    let log = bench.open();
    lead(&log, 3, 1, 100);
    log.roll(None).expect("a roll");
    log.abandon();
    assert_eq!(bench.size_of(&name(3, "index")), None);
    let log = bench.open_unclean(3);
    assert_eq!(log.log_end_offset().get(), 3);
    assert_eq!(bench.size_of(&name(3, "index")), Some(10_485_760));
}

#[test]
fn log_edge_125_and_194_the_log_start_is_the_greater_of_checkpoint_and_first_segment() {
    let bench = Bench::new(&[]);
    let log = bench.open();
    log.truncate_fully_and_start_at(Offset::new(5), None).expect("an empty log");
    lead(&log, 1, 1, 100);
    log.close().expect("closed");
    assert_eq!(offsets(&bench.open_at(true, 6, 0)), (5, 5, 6));
    assert_eq!(offsets(&Bench::new(&[]).open_at(true, 0, 500)), (500, 500, 500));
}

#[test]
fn log_edge_195_a_folder_that_waits_for_deletion_is_not_recovered() {
    const FOLDER: &str = "/data/t-0.0123456789abcdef0123456789abcdef-delete";
    let bench = Bench::new(&[]);
    let open = || {
        let options = kseg_log::OpenOptions { clean: false, ..bench.options() };
        Log::open(Path::new(FOLDER), options).expect("a log")
    };
    let log = open();
    assert_eq!((bases(&log), offsets(&log)), (vec![0], (0, 0, 0)));
    log.abandon();
    bench.backend.names().remove_dir_all(Path::new(FOLDER)).expect("removed");

    let log = ones(&bench, 2);
    log.close().expect("closed");
    let file = |name: &str| Path::new(FOLDER).join(name);
    bench.backend.names().rename(Path::new(DIR), Path::new(FOLDER)).expect("renamed");
    let bytes = |name: &str| bench.backend.names().read(&file(name), 1000).expect("read");
    let before = bytes(&name(0, "log"));
    let log = open();
    assert_eq!((log.log_end_offset().get(), log.load_report().recovered.len()), (0, 0));
    assert_eq!((bytes(&name(0, "log")), bytes(&name(1, "snapshot"))), (before, None));
    assert_eq!(bytes("leader-epoch-checkpoint").as_deref(), Some(&b"0\n0\n"[..]));
}

#[test]
fn log_edge_196_an_empty_segment_takes_appends() {
    let bench = Bench::new(&[]);
    bench.open().close().expect("closed");
    for ending in ["log", "index"] {
        overwrite(&bench, &name(0, ending), b"");
    }
    let log = bench.open();
    for n in 0..3 {
        assert_eq!(lead(&log, 1, n, 5000).first_offset, Some(Offset::new(n)));
    }
    all_found(&log, 3);
}

#[test]
fn log_edge_198_a_damaged_snapshot_is_passed_over() {
    for damage in [vec![], vec![1, 2, 3], vec![7; 60]] {
        let bench = Bench::new(&[]);
        let log = bench.open();
        for sequence in 0..4 {
            if sequence > 0 {
                log.roll(None).expect("a roll");
            }
            Draft::new(1).of(1, 0, sequence).lead(&log).expect("an append");
        }
        log.close().expect("closed");
        overwrite(&bench, &name(4, "snapshot"), &damage);
        let log = bench.open();
        assert_eq!((producers(&log), snapshots(&bench)), (vec![(1, 3, None)], vec![1, 2, 3, 4]));
        assert_eq!(log.load_report().doubts.len(), 1, "{}", log.load_report());
        assert_eq!(bench.size_of(&name(4, "snapshot")), Some(56));
    }
}

#[test]
fn log_edge_244_and_245_offsets_that_go_back_end_the_log_with_and_without_its_index() {
    for interval in ["0", "4096"] {
        for with_index in [true, false] {
            let bench = Bench::new(&[("index.interval.bytes", interval)]);
            let log = bench.open();
            for n in 0..3 {
                lead(&log, 1, n, 100);
            }
            log.close().expect("closed");
            let once = contents(&bench, &name(0, "log"));
            overwrite(&bench, &name(0, "log"), &once.repeat(2));
            if !with_index {
                remove(&bench, &name(0, "index"));
            }
            let log = bench.open_unclean(0);
            assert_eq!((log.log_end_offset().get(), log.size()), (3, 300), "{interval} {with_index}");
            // Kafka empties the segment, keeps both, or does not start; here nothing good is lost.
            assert_eq!(contents(&bench, &name(0, "log.cut")), once);
        }
    }
}

#[test]
fn log_edge_246_an_index_with_more_entries_than_are_allowed_now_is_loaded() {
    let bench = Bench::new(&[("index.interval.bytes", "0")]);
    let log = bench.open();
    for n in 0..10 {
        lead(&log, 1, n, 100);
    }
    log.close().expect("closed");
    assert_eq!(bench.size_of(&name(0, "index")), Some(9 * 8));
    let bench =
        Bench { config: config(&[("index.interval.bytes", "0"), ("segment.index.bytes", "24")]), ..bench };
    let log = bench.open();
    assert_eq!((log.log_end_offset().get(), bases(&log)), (10, vec![0]));
    all_found(&log, 10);
    lead(&log, 1, 10, 100);
    assert_eq!(bases(&log), [0, 10], "the index has no room for another entry");
    all_found(&log, 11);
}

#[test]
fn log_edge_256_a_log_that_begins_anew_has_an_epoch_file_without_entries() {
    for clean in [true, false] {
        let bench = Bench::new(&[]);
        lead(&bench.open(), 3, 1, 100);
        bench.open().close().expect("closed");
        overwrite(&bench, "leader-epoch-checkpoint", b"");
        let log = bench.open_at(clean, 0, 9);
        assert_eq!((bases(&log), offsets(&log)), (vec![9], (9, 9, 9)));
        assert_eq!(contents(&bench, "leader-epoch-checkpoint"), b"0\n0\n");
    }
}

#[test]
fn log_edge_257_a_sealed_segment_without_its_index_after_a_crash() {
    let bench = Bench::new(&[]);
    let log = bench.open();
    for sequence in 0..10 {
        if sequence > 0 && sequence % 2 == 0 {
            log.roll(None).expect("a roll");
        }
        Draft::new(1).of(1, 0, sequence).lead(&log).expect("an append");
    }
    log.close().expect("closed");
    assert_eq!(snapshots(&bench), [2, 4, 6, 8, 10]);
    remove(&bench, &name(2, "index"));
    let log = bench.open_unclean(9);
    // Those that Kafka removes and makes again (4 at its end, 6 and 8 as the last two bases, 10) never go.
    assert_eq!((snapshots(&bench), producers(&log)), (vec![2, 4, 6, 8, 10], vec![(1, 9, None)]));
    assert_eq!((log.load_report().rebuilt.clone(), bases(&log)), (vec![Offset::new(2)], vec![0, 2, 4, 6, 8]));
}

#[test]
fn log_edge_258_an_epoch_that_comes_back_in_a_scan_and_in_a_recovery() {
    let epoch_0 = |base, sequence| Draft::new(1).base(base).of(1, 0, sequence);
    let filled = |bench: &Bench| {
        let log = bench.open();
        for n in 0..3 {
            epoch_0(n, n as i32).follow(&log).expect("an append");
        }
        log.roll(None).expect("a roll");
        epoch_0(3, 3).follow(&log).expect("an append");
        let marker = marker_bytes(4, (1, 1), false, 0).freeze();
        log.append_as_follower(marker, LeaderEpoch::new(0)).expect("an append");
        epoch_0(5, 4).follow(&log).expect("an append");
        log.roll(None).expect("a roll");
        epoch_0(6, 5).follow(&log).expect("an append");
        log
    };
    let remembered = |log: &Log| {
        let state = log.state(false).expect("state");
        state.producers[0].batches.iter().map(|b| b.last_offset().get()).collect::<Vec<_>>()
    };
    // A truncation scans the segment as one append: what was known before it stays.
    let bench = Bench::new(&[]);
    let log = filled(&bench);
    remove(&bench, &name(6, "snapshot"));
    log.truncate_to(Offset::new(6)).expect("truncated");
    assert_eq!(remembered(&log), [2, 5], "a snapshot tells of the last batch before it alone");
    // Recovery goes batch by batch: the marker's epoch forgets them.
    let bench = Bench::new(&[]);
    filled(&bench).abandon();
    let log = bench.open_unclean(3);
    log.truncate_to(Offset::new(6)).expect("truncated");
    assert_eq!(remembered(&log), [5]);
}

/// Bases 0, 9 and so on to 99, log end 101; these snapshots; and how often each `.log` file is read while it is opened
/// after a crash.
fn opened_after_a_crash(kept: &[i64], recovery_point: i64) -> (Vec<i64>, Vec<i64>, Vec<i64>) {
    let (opening, read) = (Arc::new(AtomicU64::new(0)), Arc::new(Mutex::new(Vec::new())));
    let (flag, notes) = (opening.clone(), read.clone());
    let memory = kseg_io_backends::open("memory").expect("memory");
    let backend: Arc<dyn Backend> = Arc::new(Watched::new(memory, move |moment, call, path| {
        let file = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        if flag.load(Ordering::SeqCst) == 1
            && call == Call::Read
            && moment == Moment::Done
            && let Some(base) = file.strip_suffix(".log")
        {
            notes.lock().expect("notes").push(base.parse().expect("a number"));
        }
    }));
    let bench = Bench::on(backend, &[]);
    let log = bench.open();
    for n in 0..101 {
        if n > 0 && n % 9 == 0 {
            log.roll(None).expect("a roll");
        }
        Draft::new(1).of(1, 0, n).lead(&log).expect("an append");
    }
    log.close().expect("closed");
    for at in snapshots(&bench).into_iter().filter(|at| !kept.contains(at)) {
        remove(&bench, &name(at, "snapshot"));
    }
    opening.store(1, Ordering::SeqCst);
    let log = bench.open_unclean(recovery_point);
    opening.store(0, Ordering::SeqCst);
    assert_eq!((log.log_end_offset().get(), producers(&log)), (101, vec![(1, 100, None)]));
    let recovered = log.load_report().recovered.iter().map(|o| o.get()).collect();
    let mut read = std::mem::take(&mut *read.lock().expect("notes"));
    read.sort_unstable();
    read.dedup();
    (recovered, read, snapshots(&bench))
}

#[test]
fn log_edge_305_and_306_which_segments_a_crash_makes_it_read() {
    let all: Vec<i64> = (0..12).map(|n| n * 9).collect();
    let after = vec![72, 81, 90, 99, 101];
    let (recovered, read, snapshots) = opened_after_a_crash(&[90, 99, 101], 72);
    assert_eq!((recovered, read, snapshots), (vec![72, 81, 90, 99], all, after.clone()));
    let (recovered, read, snapshots) = opened_after_a_crash(&after, 73);
    assert_eq!((recovered.clone(), snapshots), (vec![72, 81, 90, 99], after));
    assert_eq!(read, recovered, "with a snapshot at 72 none before it is read");
}

#[test]
fn log_edge_308_a_recovered_log_is_truncated() {
    let bench = Bench::new(&[("internal.segment.bytes", "500")]);
    let log = bench.open();
    for n in 0..100 {
        lead(&log, 1, n, 100);
    }
    assert_eq!(bases(&log).len(), 20);
    log.abandon();
    let log = bench.open_unclean(0);
    assert!(log.truncate_to(Offset::new(3)).expect("truncated"));
    assert_eq!((bases(&log), log.log_end_offset().get(), log.size()), (vec![0], 3, 300));
}

#[test]
fn a_stamp_of_an_epoch_survives_a_reopening() {
    let bench = Bench::new(&[]);
    let log = bench.open();
    for epoch in [3, 5] {
        let bytes = Draft::new(2).epoch(epoch).bytes();
        log.append_as_leader(bytes, LeaderEpoch::new(epoch), Origin::Client).expect("an append");
    }
    log.close().expect("closed");
    assert_eq!(epochs(&bench.open()), [(3, 0), (5, 2)]);
}

#[test]
fn log_edge_52_recovery_notes_each_leader_epoch_where_it_begins() {
    let bench = Bench::new(&[]);
    let log = bench.open();
    log.truncate_fully_and_start_at(Offset::new(104), None).expect("an empty log");
    for (base, epoch) in [(104, 0), (106, 1), (108, 1), (110, 2)] {
        Draft::new(2).base(base).epoch(epoch).follow(&log).expect("an append");
    }
    log.abandon();
    overwrite(&bench, "leader-epoch-checkpoint", b"0\n0\n");
    assert_eq!(epochs(&bench.open_unclean(0)), [(0, 104), (1, 106), (2, 110)]);
}

#[test]
fn log_edge_268_a_new_log_has_nothing_and_then_what_was_appended() {
    let log = Bench::new(&[]).open();
    let read = |max| log.read(Offset::ZERO, max, kseg_log::Isolation::LogEnd, true).expect("no error");
    assert!(read(1).is_empty());
    lead(&log, 1, 1, 100);
    lead(&log, 1, 1, 100);
    assert_eq!((log.log_end_offset().get(), log.recovery_point().get(), read(1000).len()), (2, 0, 200));
}
