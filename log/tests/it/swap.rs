//! Segments that take the place of others: what is read, what a fault or a stop leaves.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use kseg_format::{AbortedTransaction, Batches, LeaderEpoch, Offset, Origin, ProducerId};
use kseg_io_backends::{
    Backend, Call, Fault, Faulty, Loss, Moment, OpenHow, PowerLoss, Watched, open, write_all,
};
use kseg_log::{Error, Finished, Isolation, Log, Sealed};

use crate::support::*;

/// Three sealed segments of three batches each, bases 0, 3 and 6, and an active one.
fn filled(bench: &Bench) -> Log {
    let log = bench.open();
    fill(&log);
    log.flush(true).expect("a flush");
    log
}

fn fill(log: &Log) {
    for n in 0..10 {
        if n > 0 && n % 3 == 0 {
            log.roll(None).expect("a roll");
        }
        lead(log, 1, 1000 + n, 100);
    }
    log.update_high_watermark(log.log_end_offset());
}

/// All sealed segments, and one that has the batches with even offsets and an aborted transaction.
fn compacted(log: &Log) -> kseg_log::Result<(Vec<Sealed>, Finished)> {
    let (sealed, active) = log.sealed_segments()?;
    let mut into = log.begin_replacement(sealed[0].base_offset())?;
    let wrapped = |source| Error::Segment { dir: log.dir().to_path_buf(), source };
    for segment in &sealed {
        let bytes = segment.segment().region_from(None).map_err(wrapped)?.to_bytes()?;
        let mut kept = BytesMut::new();
        let mut last = None;
        for batch in Batches::new(&bytes).map(|b| b.expect("framing")) {
            if batch.last_offset().get() % 2 == 0 && batch.last_offset() < active {
                kept.extend_from_slice(batch.as_bytes());
                last = Some(batch.last_offset());
            }
        }
        let Some(last) = last else { continue };
        assert_eq!(into.room_for(&kept).map_err(wrapped)?, kept.len());
        into.append(last, kept.freeze()).map_err(wrapped)?;
    }
    into.append_aborted(&entry()).map_err(wrapped)?;
    Ok((sealed, into.finish(None).map_err(wrapped)?))
}

fn entry() -> AbortedTransaction {
    AbortedTransaction {
        producer_id: ProducerId::new(7),
        first_offset: Offset::new(1),
        last_offset: Offset::new(2),
        last_stable_offset: Offset::new(3),
    }
}

fn swap(log: &Log) -> kseg_log::Result<()> {
    let (sealed, finished) = compacted(log)?;
    log.replace_segments(&sealed, &[finished])
}

/// The offsets that can be read.
fn there(log: &Log) -> Vec<i64> {
    let mut found = Vec::new();
    let mut next = log.log_start_offset();
    while next < log.log_end_offset() {
        let fetch = log.read(next, 1 << 20, Isolation::HighWatermark, true).expect("a read");
        let Some(region) = fetch.region else { break };
        assert!(fetch.offset >= next || found.is_empty(), "{} again after {next}", fetch.offset);
        for batch in Batches::new(&region.to_bytes().expect("bytes")) {
            let batch = batch.expect("framing").verify().expect("checksum");
            found.push(batch.last_offset().get());
            next = batch.next_offset();
        }
    }
    found
}

fn aborted(log: &Log) -> Vec<AbortedTransaction> {
    log.aborted_transactions(Offset::ZERO, Offset::new(100)).expect("aborted transactions")
}

const BEFORE: [i64; 10] = [0, 1, 2, 3, 4, 5, 6, 7, 8, 9];
const AFTER: [i64; 6] = [0, 2, 4, 6, 8, 9];

fn leftovers(bench: &Bench) -> Vec<String> {
    let odd = |name: &String| {
        [".cleaned", ".swap", ".sources", ".deleted"].iter().any(|ending| name.contains(ending))
    };
    bench.files().into_iter().map(|(name, _)| name).filter(odd).collect()
}

#[test]
fn the_new_segment_is_read_in_the_place_of_the_old_ones() {
    let bench = Bench::new(&[("file.delete.delay.ms", "60000")]);
    let log = filled(&bench);
    let held = log.read(Offset::new(4), 100, Isolation::LogEnd, true).expect("a read").region.expect("bytes");
    let before = held.to_bytes().expect("bytes");
    swap(&log).expect("a swap");
    assert_eq!((there(&log), bases(&log), aborted(&log)), (AFTER.to_vec(), vec![0, 9], vec![entry()]));
    assert_eq!(held.to_bytes().expect("still there"), before);
    assert_eq!(read(&log, 5), (6, 200));
    assert_eq!(lead(&log, 1, 1, 100).first_offset, Some(Offset::new(10)));
    bench.scheduler.advance(60_000);
    assert_eq!(leftovers(&bench), Vec::<String>::new());
    assert_eq!(held.to_bytes().expect("still there"), before);
    // Snapshots of bases that are gone have gone.
    let snapshots = bench.files().into_iter().filter(|(name, _)| name.ends_with(".snapshot")).count();
    assert_eq!(snapshots, 1, "{:?}", bench.files());
    log.close().expect("closed");
    let log = bench.open();
    assert_eq!((log.log_end_offset().get(), aborted(&log)), (11, vec![entry()]));
    assert!(log.load_report().is_quiet());
}

#[test]
fn con_07_a_segment_that_was_truncated_meanwhile_is_not_replaced() {
    let bench = Bench::new(&[]);
    let log = filled(&bench);
    let (sealed, finished) = compacted(&log).expect("a replacement");
    log.truncate_to(Offset::new(4)).expect("a truncation");
    lead(&log, 1, 7777, 100);
    log.update_high_watermark(log.log_end_offset());
    let refused = log.replace_segments(&sealed, &[finished]).expect_err("refused");
    assert!(matches!(refused, Error::Replaced { .. }), "{refused}");
    assert_eq!(there(&log), [0, 1, 2, 3, 4]);
    assert!(leftovers(&bench).iter().all(|name| !name.contains(".cleaned") && !name.contains(".swap")));
    lead(&log, 1, 1, 100);
    // Truncated to nothing and written anew, with segments at the same bases.
    let (sealed, finished) = compacted(&log).expect("a replacement");
    log.truncate_fully_and_start_at(Offset::ZERO, None).expect("a truncation");
    fill(&log);
    log.replace_segments(&sealed, &[finished]).expect_err("refused");
    assert_eq!(there(&log), BEFORE);
}

/// At every sync of a swap another thread appends, rolls and reads, and the sync waits for it.
#[test]
fn appends_rolls_and_reads_go_on_at_every_sync_of_a_swap() {
    const NEVER: Duration = Duration::from_secs(30);
    let (begun, at_sync) = mpsc::channel();
    let (go_on, held) = mpsc::channel();
    let (begun, held) = (Mutex::new(begun), Mutex::new(held));
    let armed = Arc::new(AtomicBool::new(false));
    let arm = armed.clone();
    let watched = Watched::new(open("memory").expect("memory"), move |moment, call, _| {
        let syncs = matches!(call, Call::SyncDir | Call::SyncFile | Call::WriteFile);
        let of_swap = std::thread::current().name() == Some("swap");
        if moment == Moment::Before && syncs && of_swap && arm.load(Ordering::SeqCst) {
            begun.lock().expect("one").send(()).expect("somebody listens");
            held.lock().expect("one").recv_timeout(NEVER).expect("the swap holds up an append or a read");
        }
    });
    let bench = Bench::on(Arc::new(watched), &[("file.delete.delay.ms", "60000")]);
    let log = filled(&bench);
    let (sealed, finished) = compacted(&log).expect("a replacement");
    armed.store(true, Ordering::SeqCst);
    let mut syncs = 0;
    std::thread::scope(|scope| {
        let swap = std::thread::Builder::new().name("swap".to_owned());
        let swap = swap.spawn_scoped(scope, || log.replace_segments(&sealed, &[finished])).expect("a thread");
        while !swap.is_finished() {
            if at_sync.recv_timeout(Duration::from_millis(10)).is_err() {
                continue;
            }
            syncs += 1;
            lead(&log, 1, 2000, 100);
            log.roll(None).expect("a roll");
            log.update_high_watermark(log.log_end_offset());
            let found = there(&log);
            assert!(found.starts_with(&BEFORE) || found.starts_with(&AFTER), "{found:?}");
            go_on.send(()).expect("the swap waits");
        }
        armed.store(false, Ordering::SeqCst);
        swap.join().expect("no panic").expect("a swap");
    });
    assert!(syncs >= 3, "{syncs}");
    let expected: Vec<i64> = AFTER.into_iter().chain(10..10 + syncs).collect();
    assert_eq!(there(&log), expected);
    log.abandon();
    let log = bench.open_unclean(0);
    log.update_high_watermark(log.log_end_offset());
    assert_eq!((there(&log), log.log_end_offset().get()), (expected, 10 + syncs));
}

#[test]
fn a_new_segment_outside_the_old_ones_is_refused() {
    let bench = Bench::new(&[]);
    let log = filled(&bench);
    let (sealed, finished) = compacted(&log).expect("a replacement");
    for old in [&[], &sealed[1..]] {
        let refused = log.replace_segments(old, std::slice::from_ref(&finished)).expect_err("refused");
        assert!(matches!(refused, Error::InvalidArgument { .. }), "{refused}");
    }
    assert_eq!(there(&log), BEFORE);
    log.replace_segments(&sealed, &[finished]).expect("a swap");
    assert_eq!(there(&log), AFTER);
}

#[test]
fn cleaner_edge_004_what_retention_removed_meanwhile_is_passed_over() {
    let bench = Bench::new(&[]);
    let log = filled(&bench);
    let (sealed, finished) = compacted(&log).expect("a replacement");
    log.increment_log_start_offset(Offset::new(9)).expect("moved");
    assert_eq!(log.delete_old_segments().expect("retention").deleted, 3);
    log.replace_segments(&sealed, &[finished]).expect("a swap");
    assert_eq!((bases(&log), there(&log)), (vec![0, 9], vec![9]));
    let gone = leftovers(&bench).into_iter().filter(|name| name.ends_with(".log.deleted")).count();
    assert_eq!(gone, 3);
}

#[test]
fn a_high_watermark_in_a_replaced_segment_is_found_again() {
    let bench = Bench::new(&[]);
    let log = filled(&bench);
    log.update_high_watermark(Offset::new(5));
    assert_eq!(there(&log), [0, 1, 2, 3, 4]);
    swap(&log).expect("a swap");
    assert_eq!(there(&log), [0, 2, 4]);
    assert_eq!(log.high_watermark().get(), 5);
}

#[test]
fn a_segment_whose_index_would_overflow_says_how_much_it_takes() {
    let bench = Bench::new(&[("segment.index.bytes", "24"), ("index.interval.bytes", "150")]);
    let log = bench.open();
    lead(&log, 1, 1, 100);
    log.roll(None).expect("a roll");
    let into = log.begin_replacement(Offset::ZERO).expect("a replacement");
    let batches: Vec<Bytes> = (0..20).map(|n| batch_at(n, 1, 1000, 100).freeze()).collect();
    let all = batches.concat();
    // An entry falls due in front of the third, fifth and seventh; the time index has room for one and the reserved one.
    let room = into.room_for(&all).expect("batches");
    assert_eq!(room, 400);
    into.append(Offset::new(3), Bytes::from(all[..room].to_vec())).expect("an append");
    assert_eq!(into.room_for(&all[room..]).expect("batches"), 0);
    let size = into.size();
    let finished = into.finish(None).expect("finished");
    assert_eq!((finished.size, size), (400, 400));
}

/// A fault at each call of a swap: the log is as it was, or takes no more changes and is one or the other when opened.
#[test]
fn a_swap_that_fails_leaves_the_log_as_it_was_or_to_be_opened_again() {
    let calls =
        [Call::Write, Call::Rename, Call::SyncDir, Call::Flush, Call::SyncFile, Call::Open, Call::SetLen];
    let (mut unchanged, mut fenced) = (0, 0);
    for call in calls {
        for nth in 1.. {
            let faulty = Arc::new(Faulty::new(open("memory").expect("memory")));
            let bench = Bench::on(faulty.clone(), &[("segment.index.bytes", "240")]);
            let log = filled(&bench);
            faulty.inject(Fault::on(call).nth(nth));
            let Err(error) = swap(&log) else { break };
            assert!(nth < 40, "{error}");
            faulty.clear();
            // What can be read has not changed, whatever the names on the disk are.
            assert_eq!(there(&log), BEFORE, "{call:?} {nth}");
            if log.append_as_leader(batch(1, 1, 100), LeaderEpoch::new(0), Origin::Client).is_ok() {
                unchanged += 1;
                log.remove_unfinished_replacements().expect("removed");
                assert_eq!(leftovers(&bench), Vec::<String>::new(), "{call:?} {nth}");
                swap(&log).expect("the next one");
                assert_eq!(there(&log), AFTER);
                continue;
            }
            fenced += 1;
            log.abandon();
            let log = bench.open_unclean(0);
            log.update_high_watermark(log.log_end_offset());
            let found = there(&log);
            assert!(found == BEFORE || found == AFTER, "{call:?} {nth}: {found:?}");
            assert_eq!(leftovers(&bench), Vec::<String>::new(), "{call:?} {nth}");
        }
    }
    assert!(unchanged > 10 && fenced > 5, "{unchanged} {fenced}");
}

/// The power goes at every call of a swap: the log is before it or after it.
#[test]
fn a_swap_has_happened_or_has_not_wherever_the_power_goes() {
    let run = |disk: &Arc<PowerLoss>, cut: Option<u64>| {
        let bench = Bench::on(disk.clone(), &[("file.delete.delay.ms", "0"), ("segment.index.bytes", "240")]);
        disk.names().create_dir_all(std::path::Path::new(DIR)).expect("a directory");
        disk.names().sync_dir(std::path::Path::new("/data")).expect("a sync");
        disk.names().sync_dir(std::path::Path::new("/")).expect("a sync");
        let log = filled(&bench);
        let begun = disk.calls();
        if let Some(cut) = cut {
            disk.cut_at(begun + cut);
        }
        (begun, swap(&log))
    };
    let whole = Arc::new(PowerLoss::new());
    let (begun, swapped) = run(&whole, None);
    swapped.expect("a swap");
    let (calls, mut before, mut after) = (whole.calls() - begun, 0, 0);
    for n in 0..=calls {
        let disk = Arc::new(PowerLoss::new());
        let (_, swapped) = run(&disk, Some(n));
        let losses = [Loss::Nothing, Loss::Everything, Loss::Names, Loss::Bytes];
        for loss in losses.into_iter().chain((0..4).map(|seed| Loss::Random(n << 16 | seed))) {
            let what = format!("cut at call {n}, {loss:?}");
            let bench = Bench::on(Arc::new(disk.after(loss)), &[("segment.index.bytes", "240")]);
            let log = bench.open_unclean(9);
            log.update_high_watermark(log.log_end_offset());
            let found = there(&log);
            if found == AFTER {
                after += 1;
                assert_eq!((bases(&log), aborted(&log)), (vec![0, 9], vec![entry()]), "{what}");
            } else {
                before += 1;
                assert_eq!((found, bases(&log)), (BEFORE.to_vec(), vec![0, 3, 6, 9]), "{what}");
                assert!(swapped.is_err(), "{what}: it was said to be durable");
                assert_eq!(aborted(&log), [], "{what}");
            }
            assert_eq!(leftovers(&bench), Vec::<String>::new(), "{what}");
        }
    }
    assert!(before > 50 && after > 30, "{before} {after}");
}

fn rename(bench: &Bench, from: &str, to: &str) {
    let path = |name: &str| std::path::Path::new(DIR).join(name);
    bench.backend.names().rename(&path(from), &path(to)).expect("a rename");
}

/// What Kafka leaves of a swap, without a list of ours.
#[test]
fn cleaner_edge_091_to_096_swaps_of_kafka_are_undone_or_finished_by_what_is_there() {
    let base = |n: i64, rest: &str| format!("{n:020}.{rest}");
    let kinds = ["log", "index", "timeindex", "txnindex"];
    for stage in 1..=6 {
        let bench = Bench::new(&[]);
        let log = filled(&bench);
        compacted(&log).expect("a replacement");
        log.close().expect("closed");
        let swap = |kind: &str| {
            rename(&bench, &base(0, &format!("{kind}.cleaned")), &base(0, &format!("{kind}.swap")));
        };
        if stage >= 2 {
            kinds[..if stage == 2 { 1 } else { 4 }].iter().for_each(|kind| swap(kind));
        }
        if stage >= 4 {
            for n in [0, 3, 6] {
                for kind in &kinds[..3] {
                    rename(&bench, &base(n, kind), &base(n, &format!("{kind}.deleted")));
                }
            }
        }
        let done = match stage {
            5 => &kinds[..2],
            6 => &kinds[..],
            _ => &[],
        };
        done.iter().for_each(|kind| rename(&bench, &base(0, &format!("{kind}.swap")), &base(0, kind)));
        let log = bench.open();
        log.update_high_watermark(log.log_end_offset());
        let expected = if stage <= 2 { BEFORE.to_vec() } else { AFTER.to_vec() };
        assert_eq!(there(&log), expected, "stage {stage}");
        assert_eq!(aborted(&log), if stage <= 2 { vec![] } else { vec![entry()] }, "stage {stage}");
        assert_eq!(leftovers(&bench), Vec::<String>::new(), "stage {stage}");
    }
}

/// A list that Kafka left under its bare name, and one that is not whole, change nothing.
#[test]
fn a_list_that_says_nothing_is_removed() {
    for name in ["00000000000000000000.sources", "00000000000000000000.sources.swap"] {
        let bench = Bench::new(&[]);
        let log = filled(&bench);
        log.close().expect("closed");
        let file =
            bench.backend.open(&std::path::Path::new(DIR).join(name), OpenHow::Create).expect("a file");
        write_all(&*file, 0, Bytes::from_static(b"0\nold 3\nnew 3 lo").into()).expect("a write");
        let log = bench.open();
        log.update_high_watermark(log.log_end_offset());
        assert_eq!((there(&log), leftovers(&bench)), (BEFORE.to_vec(), vec![]));
        assert!(log.load_report().unknown.is_empty());
    }
}

/// A swap that stopped right after it had happened, of a new segment with the batches below `end`.
fn stopped_after_swap(end: i64) -> Bench {
    let faulty = Arc::new(Faulty::new(open("memory").expect("memory")));
    let bench = Bench::on(faulty.clone(), &[]);
    let log = filled(&bench);
    let (sealed, _) = log.sealed_segments().expect("segments");
    let into = log.begin_replacement(Offset::ZERO).expect("a replacement");
    for offset in 0..end {
        into.append(Offset::new(offset), batch_at(offset, 1, 1000 + offset, 100).freeze())
            .expect("an append");
    }
    // Three files and the list get their names; the next rename is that of an old segment.
    faulty.inject(Fault::on(Call::Rename).nth(5).always());
    log.replace_segments(&sealed, &[into.finish(None).expect("finished")]).expect_err("a stop");
    faulty.clear();
    log.abandon();
    bench
}

#[test]
fn cleaner_edge_177_and_178_old_segments_of_which_nothing_was_kept_do_not_come_back() {
    for (end, left) in [(1, vec![0, 9]), (0, vec![9])] {
        let bench = stopped_after_swap(end);
        let files = bench.files();
        assert!(files.iter().any(|(name, _)| name.ends_with("06.log")), "{files:?}");
        let log = bench.open_unclean(9);
        log.update_high_watermark(log.log_end_offset());
        assert_eq!((there(&log), bases(&log), leftovers(&bench)), (left, vec![0, 9], vec![]));
    }
}

#[test]
fn cleaner_edge_97_and_98_and_163_files_of_swaps_that_did_not_happen_do_no_harm() {
    // Two new segments, of which one has its next name: neither counts.
    let bench = Bench::new(&[]);
    let log = filled(&bench);
    let one = log.begin_replacement(Offset::ZERO).expect("one").finish(None).expect("finished");
    let two = log.begin_replacement(Offset::new(3)).expect("two").finish(None).expect("finished");
    assert_eq!((one.base.get(), two.base.get()), (0, 3));
    log.close().expect("closed");
    for kind in ["log", "index", "timeindex"] {
        rename(&bench, &format!("{:020}.{kind}.cleaned", 3), &format!("{:020}.{kind}.swap", 3));
    }
    let log = bench.open();
    log.update_high_watermark(log.log_end_offset());
    assert_eq!((there(&log), leftovers(&bench)), (BEFORE.to_vec(), vec![]));
    log.close().expect("closed");

    // A snapshot in the range of a swap that has happened goes.
    let bench = stopped_after_swap(2);
    let stale = std::path::Path::new(DIR).join(format!("{:020}.snapshot", 6));
    bench.backend.names().write(&stale, b"stale", false).expect("a file");
    let log = bench.open_unclean(9);
    assert_eq!(log.log_end_offset().get(), 10);
    assert!(bench.size_of(&format!("{:020}.snapshot", 6)).is_none());

    // What a failed round left is gone before the next one begins to write.
    let bench = Bench::new(&[]);
    let log = filled(&bench);
    let stray = log.begin_replacement(Offset::ZERO).expect("one");
    drop(stray);
    assert_eq!(log.remove_unfinished_replacements().expect("removed"), 1);
    assert_eq!(leftovers(&bench), Vec::<String>::new());
}

#[test]
fn what_a_failed_round_left_and_cannot_be_removed_is_told_of() {
    let faulty = Arc::new(Faulty::new(open("memory").expect("memory")));
    let log = filled(&Bench::on(faulty.clone(), &[]));
    drop(log.begin_replacement(Offset::ZERO).expect("one"));
    faulty.inject(Fault::on(Call::Remove).role("cleaned").always());
    let error = log.remove_unfinished_replacements().expect_err("it is there").to_string();
    let trouble = log.state(false).expect("state").last_trouble.expect("one");
    assert_eq!((trouble.task, &trouble.error), ("remove-unfinished-replacements", &error));
    assert!(error.contains(".cleaned"), "{error}");
}

#[test]
fn a_list_that_cannot_be_removed_does_no_harm_to_a_segment_of_an_old_base() {
    let faulty = Arc::new(Faulty::new(open("memory").expect("memory")));
    let bench = Bench::on(faulty.clone(), &[]);
    let log = filled(&bench);
    faulty.inject(Fault::on(Call::Remove).role("swap").always());
    swap(&log).expect_err("the list is there");
    faulty.clear();
    assert_eq!(there(&log), AFTER);
    // A segment that begins where an old one did would go with the next opening.
    assert!(matches!(log.truncate_to(Offset::new(6)), Err(Error::Fenced { .. })));
    log.abandon();
    let log = bench.open_unclean(0);
    log.update_high_watermark(log.log_end_offset());
    assert_eq!((there(&log), leftovers(&bench)), (AFTER.to_vec(), Vec::new()));
    log.truncate_to(Offset::new(6)).expect("a truncation");
    log.roll(None).expect("a roll");
    lead(&log, 1, 5000, 100);
    log.abandon();
    let log = bench.open_unclean(0);
    log.update_high_watermark(log.log_end_offset());
    assert_eq!((there(&log), bases(&log)), (vec![0, 2, 4, 6], vec![0, 6]));
}
