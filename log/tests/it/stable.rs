//! Transactions: which offsets are decided, and which transactions a committed read is told of.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use bytes::BytesMut;
use kseg_format::{Batches, LeaderEpoch, Offset, Origin, ProducerId};
use kseg_io_backends::{Call, Fault, Faulty};
use kseg_log::{Isolation, Log};

use crate::support::*;

/// Appends to a log as its leader, or with offsets given, keeping each producer's sequences.
struct Appends<'l> {
    log: &'l Log,
    follower: bool,
    sequences: [i32; 8],
}

impl<'l> Appends<'l> {
    fn to(log: &'l Log, follower: bool) -> Self {
        Appends { log, follower, sequences: [0; 8] }
    }

    fn append(&self, bytes: BytesMut, origin: Origin) {
        if self.follower {
            self.log.append_as_follower(bytes.freeze(), LeaderEpoch::new(0)).expect("an append");
        } else {
            self.log.append_as_leader(bytes, LeaderEpoch::new(0), origin).expect("an append");
        }
    }

    fn base(&self) -> i64 {
        if self.follower { self.log.log_end_offset().get() } else { 0 }
    }

    fn data(&mut self, id: i64, count: usize) {
        let sequence = &mut self.sequences[id as usize];
        let draft = Draft::new(count).of(id, 0, *sequence).transactional();
        *sequence += count as i32;
        self.append(draft.base(self.base()).bytes(), Origin::Client);
    }

    fn plain(&self, count: usize) {
        self.append(Draft::new(count).base(self.base()).bytes(), Origin::Client);
    }

    fn end(&self, id: i64, committed: bool) {
        self.append(marker_bytes(self.base(), (id, 0), committed, 0), Origin::Coordinator);
    }
}

/// Four producers side by side: 1 is aborted at 29, 3 committed at 58, 2 aborted at 74, 4 committed at 89. With a roll
/// at each of these offsets.
fn four_producers(log: &Log, follower: bool, rolls: &[i64]) {
    let mut appends = Appends::to(log, follower);
    let roll = |appends: &Appends<'_>| {
        if rolls.contains(&appends.log.log_end_offset().get()) {
            appends.log.roll(None).expect("a roll");
        }
    };
    for (id, count) in
        [(1, 5), (0, 3), (2, 2), (1, 4), (3, 3), (0, 2), (1, 10), (1, -1), (2, 6), (4, 3), (0, 10)]
            .into_iter()
            .chain([(3, 9), (3, 0), (4, 8), (2, 7), (2, -1), (0, 10), (4, 4), (4, 0)])
    {
        roll(&appends);
        match (id, count) {
            (0, count) => appends.plain(count as usize),
            (id, -1) => appends.end(id, false),
            (id, 0) => appends.end(id, true),
            (id, count) => appends.data(id, count as usize),
        }
    }
    assert_eq!(log.log_end_offset().get(), 90);
}

const TWO_ABORTED: [(i64, i64, i64, i64); 2] = [(1, 0, 29, 8), (2, 8, 74, 36)];

fn committed(log: &Log, offset: i64) -> (usize, Vec<i64>) {
    let fetch = log.read(Offset::new(offset), 1 << 20, Isolation::Committed, true).expect("a read");
    (fetch.len(), fetch.aborted.expect("asked for").iter().map(|t| t.producer_id.get()).collect())
}

#[test]
fn log_edge_51_recovery_makes_the_transaction_index() {
    for first in [102, 75] {
        let bench = Bench::new(&[]);
        let log = bench.open();
        log.truncate_fully_and_start_at(Offset::new(first.min(100)), None).expect("an empty log");
        let two = |base, count, sequence| Draft::new(count).base(base).of(2, 0, sequence).transactional();
        if first == 75 {
            two(75, 1, 0).follow(&log).expect("an append");
            log.roll(Some(Offset::new(100))).expect("a roll");
        }
        Draft::new(2).base(100).of(1, 0, 0).transactional().follow(&log).expect("an append");
        two(102, 2, i32::from(first == 75)).follow(&log).expect("an append");
        Draft::new(2).base(104).follow(&log).expect("an append");
        for (offset, id, committed) in [(106, 2, false), (107, 1, true)] {
            let bytes = marker_bytes(offset, (id, 0), committed, 0).freeze();
            log.append_as_follower(bytes, LeaderEpoch::new(0)).expect("an append");
        }
        log.abandon();
        remove(&bench, &name(100, "txnindex"));
        let log = bench.open_unclean(100);
        assert_eq!(aborted(&log), [(2, first, 106, 100)]);
        assert_eq!((log.log_end_offset().get(), snapshots(&bench).last()), (108, Some(&108)));
    }
}

#[test]
fn log_edge_108_a_full_truncation_forgets_transactions() {
    let log = Bench::new(&[]).open();
    Appends::to(&log, false).data(1, 3);
    assert_eq!(log.first_unstable_offset(), Some(Offset::ZERO));
    log.truncate_fully_and_start_at(Offset::new(2), Some(Offset::new(1))).expect("truncated");
    assert_eq!(offsets(&log), (1, 2, 2));
    assert_eq!((log.first_unstable_offset(), producers(&log)), (None, vec![]));
}

#[test]
fn log_edge_109_a_truncation_forgets_a_transaction_that_a_snapshot_told_of() {
    let bench = Bench::new(&[]);
    let log = bench.open();
    let mut appends = Appends::to(&log, false);
    appends.plain(3);
    appends.data(1, 2);
    log.close().expect("closed");
    let log = bench.open();
    assert_eq!(log.first_unstable_offset(), Some(Offset::new(3)));
    log.truncate_to(Offset::ZERO).expect("truncated");
    assert_eq!((log.first_unstable_offset(), producers(&log)), (None, vec![]));
}

#[test]
fn log_edge_110_and_111_a_decision_counts_once_its_marker_is_below_the_high_watermark() {
    let log = Bench::new(&[]).open();
    let mut appends = Appends::to(&log, false);
    appends.data(1, 5);
    appends.plain(3);
    appends.data(2, 2);
    let unstable = || log.first_unstable_offset().map(Offset::get);
    log.update_high_watermark(log.log_end_offset());
    assert_eq!((unstable(), log.last_stable_offset().get()), (Some(0), 0));
    appends.end(1, true);
    assert_eq!((unstable(), log.last_stable_offset().get()), (Some(0), 0));
    log.update_high_watermark(log.log_end_offset());
    assert_eq!((unstable(), log.last_stable_offset().get()), (Some(8), 8));
    appends.end(2, false);
    assert_eq!((unstable(), log.last_stable_offset().get()), (Some(8), 8));
    log.update_high_watermark(log.log_end_offset());
    assert_eq!((unstable(), log.last_stable_offset()), (None, log.log_end_offset()));
}

#[test]
fn log_edge_112_the_first_unstable_offset_goes_up_with_the_log_start() {
    let bench = Bench::new(&[("retention.bytes", "0"), ("retention.ms", "-1")]);
    let log = bench.open();
    let mut appends = Appends::to(&log, false);
    for n in 0..10 {
        if n == 8 {
            log.roll(None).expect("a roll");
        }
        appends.data(1, 1);
    }
    log.update_high_watermark(Offset::new(8));
    log.increment_log_start_offset(Offset::new(5)).expect("moved");
    assert_eq!((log.first_unstable_offset(), log.last_stable_offset().get()), (Some(Offset::new(5)), 5));
    assert_eq!(log.delete_old_segments().expect("retention").deleted, 1);
    assert_eq!((log.first_unstable_offset(), log.log_start_offset().get()), (Some(Offset::new(8)), 8));
    // In the middle of a batch too; Kafka falls back to the batch's base, below the log start.
    let log = Bench::new(&[]).open();
    Appends::to(&log, false).data(1, 8);
    log.update_high_watermark(Offset::new(8));
    log.increment_log_start_offset(Offset::new(5)).expect("moved");
    assert_eq!(committed(&log, 5).0, 0);
    assert_eq!((log.first_unstable_offset(), log.last_stable_offset().get()), (Some(Offset::new(5)), 5));
}

#[test]
fn log_edge_113_and_294_four_producers_side_by_side() {
    for follower in [false, true] {
        let bench = Bench::new(&[]);
        let log = bench.open();
        four_producers(&log, follower, &[]);
        assert_eq!(aborted(&log), TWO_ABORTED);
        for (high_watermark, unstable) in [(30, Some(8)), (75, Some(36)), (90, None)] {
            log.update_high_watermark(Offset::new(high_watermark));
            assert_eq!(log.first_unstable_offset().map(Offset::get), unstable);
            // A read that may go no farther tells where that is.
            let fetch = log.read(log.last_stable_offset(), 1, Isolation::Committed, true).expect("a read");
            assert!(fetch.place.is_some() && fetch.is_empty());
        }
        log.abandon();
        remove(&bench, &name(0, "txnindex"));
        let log = bench.open_unclean(0);
        assert_eq!((aborted(&log), log.first_unstable_offset()), (TWO_ABORTED.to_vec(), None));
    }
}

#[test]
fn log_edge_115_and_295_an_abort_that_is_not_in_the_index_is_not_decided() {
    let faulty = Arc::new(Faulty::new(kseg_io_backends::open("memory").expect("memory")));
    let bench = Bench::on(faulty.clone(), &[]);
    let log = bench.open();
    Appends::to(&log, false).data(1, 10);
    faulty.inject(Fault::on(Call::Write).role("txnindex").always());
    let abort = || {
        let bytes = marker_bytes(0, (1, 0), false, 0);
        log.append_as_leader(bytes, LeaderEpoch::new(0), Origin::Coordinator)
    };
    let failed = abort().expect_err("a failed write");
    assert!(failed.to_string().contains(".txnindex"), "{failed}");
    assert_eq!((offsets(&log), log.last_stable_offset().get()), ((0, 0, 11), 0));
    assert_eq!(kafka_name(abort()), "KafkaStorageException");
    assert_eq!(log.log_end_offset().get(), 11);
    log.update_high_watermark(Offset::new(12));
    assert_eq!((offsets(&log), log.last_stable_offset().get()), ((0, 11, 11), 0));
    assert_eq!(
        committed(&log, 0),
        (0, vec![]),
        "what can be read goes on to be read, and nothing undecided is"
    );
    faulty.clear();
    assert_eq!(kafka_name(log.close()), "KafkaStorageException");
    assert_eq!(snapshots(&bench), [0_i64; 0]);
    let log = bench.open_unclean(0);
    log.update_high_watermark(Offset::new(11));
    assert_eq!((aborted(&log), log.last_stable_offset().get()), (vec![(1, 0, 10, 11)], 11));
}

#[test]
fn log_edge_116_open_transactions_are_not_read_while_the_high_watermark_moves() {
    let log = Bench::new(&[]).open();
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !done.load(Ordering::SeqCst) {
                log.update_high_watermark(log.log_end_offset());
            }
        });
        let mut appends = Appends::to(&log, false);
        for _ in 0..200 {
            let at = log.log_end_offset().get();
            appends.data(5, 1);
            assert_eq!(committed(&log, at).0, 0, "offset {at}");
            appends.end(5, false);
        }
        done.store(true, Ordering::SeqCst);
    });
}

#[test]
fn con_02_a_committed_read_is_told_of_every_aborted_transaction_in_it() {
    for _ in 0..20 {
        let log = Bench::new(&[]).open();
        let mut appends = Appends::to(&log, false);
        appends.plain(5);
        log.update_high_watermark(Offset::new(5));
        appends.data(7, 5);
        std::thread::scope(|scope| {
            let writer = scope.spawn(|| {
                log.update_high_watermark(Offset::new(10));
                Appends::to(&log, false).end(7, false);
                log.update_high_watermark(Offset::new(11));
            });
            while !writer.is_finished() {
                let fetch = log.read(Offset::ZERO, 1 << 20, Isolation::Committed, true).expect("a read");
                let bytes = fetch.region.expect("data").to_bytes().expect("bytes");
                let beyond = Batches::new(&bytes)
                    .any(|batch| batch.expect("framing").header().producer_id() == Some(ProducerId::new(7)));
                assert!(!beyond || !fetch.aborted.expect("asked for").is_empty());
            }
        });
        assert_eq!(committed(&log, 0).1, [7]);
    }
}

#[test]
fn log_edge_261_aborted_transactions_by_offsets() {
    let log = Bench::new(&[]).open();
    log.truncate_fully_and_start_at(Offset::new(10), None).expect("an empty log");
    let mut appends = Appends::to(&log, false);
    appends.data(1, 2);
    appends.end(1, false);
    appends.plain(5);
    let from = |offset| log.aborted_transactions(Offset::new(offset), Offset::new(100)).expect("read").len();
    assert_eq!((from(9), from(10), from(15)), (0, 1, 1));
}

#[test]
fn log_edge_307_the_last_segment_s_transactions_are_recovered_with_and_without_snapshots() {
    for snapshots_too in [false, true] {
        let bench = Bench::new(&[]);
        let log = bench.open();
        four_producers(&log, false, &[19, 49, 75]);
        assert_eq!((bases(&log), aborted(&log)), (vec![0, 19, 49, 75], TWO_ABORTED.to_vec()));
        log.close().expect("closed");
        remove(&bench, &name(75, "index"));
        // The markers lie in segments 19 and 49, so that 75 has no transaction index to lose.
        assert_eq!(bench.size_of(&name(75, "txnindex")), None);
        if snapshots_too {
            for at in snapshots(&bench) {
                remove(&bench, &name(at, "snapshot"));
            }
        }
        let log = bench.open_unclean(75);
        assert_eq!(aborted(&log), TWO_ABORTED);
        assert!(producers(&log).iter().all(|p| p.2.is_none()), "{:?}", producers(&log));
        assert_eq!(snapshots(&bench), [19, 49, 75, 90]);
    }
}

#[test]
fn a_transaction_index_of_another_segment_is_made_anew_when_the_log_is_opened() {
    let bench = Bench::new(&[]);
    let log = bench.open();
    four_producers(&log, false, &[19, 49, 75]);
    log.close().expect("closed");
    // The markers lie at 29 and 74: each segment gets the other's index.
    let (low, high) = (contents(&bench, &name(19, "txnindex")), contents(&bench, &name(49, "txnindex")));
    overwrite(&bench, &name(19, "txnindex"), &high);
    overwrite(&bench, &name(49, "txnindex"), &low);
    let before = snapshots(&bench);
    let log = bench.open();
    assert_eq!((aborted(&log), snapshots(&bench)), (TWO_ABORTED.to_vec(), before));
    let report = log.load_report();
    assert_eq!(report.aborted_rebuilt, [Offset::new(19), Offset::new(49)]);
    assert!(!report.is_quiet() && report.to_string().contains("transaction index"), "{report}");
    log.close().expect("closed");
    assert_eq!(
        (contents(&bench, &name(19, "txnindex")), contents(&bench, &name(49, "txnindex"))),
        (low, high)
    );
    // Bytes that are no entries, and entries that reach beyond the log.
    for junk in [vec![1; 34], [vec![0; 2], vec![0x7f; 32]].concat()] {
        overwrite(&bench, &name(49, "txnindex"), &junk);
        assert_eq!(aborted(&bench.open()), TWO_ABORTED);
    }
}

#[test]
fn a_transaction_index_is_made_anew_as_a_whole_wherever_it_stops() {
    let calls =
        [Call::Open, Call::Write, Call::SetLen, Call::Replace, Call::WriteFile, Call::Rename, Call::SyncDir];
    let mut stopped = 0;
    for call in calls {
        for nth in 1.. {
            let faulty = Arc::new(Faulty::new(kseg_io_backends::open("memory").expect("memory")));
            let bench = Bench::on(faulty.clone(), &[]);
            let log = bench.open();
            four_producers(&log, false, &[19, 49, 75]);
            log.close().expect("closed");
            overwrite(&bench, &name(19, "txnindex"), &contents(&bench, &name(49, "txnindex")));
            let before = faulty.fired();
            faulty.inject(Fault::on(call).nth(nth).always());
            let opened = Log::open(std::path::Path::new(DIR), bench.options());
            let failed = opened.is_err();
            drop(opened.map(|log| log.abandon()));
            faulty.clear();
            if faulty.fired() == before {
                break;
            }
            stopped += usize::from(failed);
            assert_eq!(aborted(&bench.open_unclean(90)), TWO_ABORTED, "{call:?} {nth}");
        }
    }
    assert!(stopped > 3, "{stopped}");
}
