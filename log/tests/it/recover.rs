//! Start-up after a crash or after damage: nothing good is lost, and what was done is said.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use kseg_format::{Batches, LeaderEpoch, Offset, Origin};
use kseg_io_backends::{Backend, Call, Fault, Faulty, Metered, Moment, Watched};
use kseg_log::{CutReason, Isolation, Log, LogDir, LogDirOptions, TopicPartition};

use crate::support::*;

fn memory() -> Arc<dyn Backend> {
    kseg_io_backends::open("memory").expect("memory")
}

fn dir_options(bench: &Bench) -> LogDirOptions {
    LogDirOptions {
        config: bench.config.clone(),
        clock: bench.clock.clone(),
        scheduler: bench.scheduler.clone(),
        ..LogDirOptions::new(bench.backend.clone())
    }
}

fn open_dir(bench: &Bench) -> LogDir {
    LogDir::open(Path::new("/data"), dir_options(bench)).expect("a data directory")
}

fn t0() -> TopicPartition {
    TopicPartition::new("t", 0)
}

/// A crashed log whose one segment holds three batches of 1000 bytes, and then `tail`.
fn with_tail(tail: &[u8]) -> Bench {
    let bench = Bench::new(&[]);
    let log = bench.open();
    for n in 0..3 {
        lead(&log, 1, n, 1000);
    }
    log.abandon();
    let bytes = [&contents(&bench, &name(0, "log"))[..], tail].concat();
    overwrite(&bench, &name(0, "log"), &bytes);
    bench
}

/// The three batches, nothing else, and room for the next one.
fn is_as_before(bench: &Bench) -> Log {
    let log = bench.open_unclean(0);
    assert_eq!((log.log_end_offset().get(), log.size()), (3, 3000));
    assert_eq!(bench.size_of(&name(0, "log")), Some(3000));
    assert_eq!(spans(&log, 0), [(0, 0), (1, 1), (2, 2)]);
    log
}

#[test]
fn rec_01_a_half_written_batch_goes() {
    let fourth = batch_at(3, 1, 3, 1000);
    for len in [400, 60, 16, 11] {
        let bench = with_tail(&fourth[..len]);
        let log = is_as_before(&bench);
        assert!(matches!(log.load_report().cuts[0].reason, CutReason::TornTail));
        assert_eq!(contents(&bench, &name(0, "log.cut")), fourth[..len]);
        assert_eq!(lead(&log, 1, 3, 1000).first_offset, Some(Offset::new(3)));
        assert_eq!(read(&log, 3), (3, 1000));
        log.abandon();
        let log = bench.open_unclean(0);
        assert!(log.load_report().is_quiet(), "{}", log.load_report());
        assert_eq!((log.log_end_offset().get(), log.size()), (4, 4000));
    }
}

#[test]
fn rec_02_space_that_was_never_written_goes() {
    let zeros = with_tail(&[0; 4096]);
    assert!(matches!(is_as_before(&zeros).load_report().cuts[0].reason, CutReason::ZeroTail));
    let ones = with_tail(&[0xff; 4096]);
    assert!(matches!(is_as_before(&ones).load_report().cuts[0].reason, CutReason::Corrupt(_)));
}

#[test]
fn rec_03_only_what_is_not_known_to_be_durable_is_read() {
    let (counting, bytes_of_0) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
    let (flag, reads) = (counting.clone(), bytes_of_0.clone());
    let backend = Watched::new(memory(), move |moment, call, path| {
        let sealed = path.ends_with(name(0, "log"));
        if flag.load(Ordering::SeqCst) && sealed && call == Call::Read && moment == Moment::Before {
            reads.fetch_add(1, Ordering::SeqCst);
        }
    });
    let bench = Bench::on(Arc::new(backend), &[]);
    let log = bench.open();
    for n in 0..250 {
        if n == 100 || n == 200 {
            log.roll(None).expect("a roll");
        }
        lead(&log, 1, n, 100);
    }
    log.close().expect("closed");
    let mut bytes = contents(&bench, &name(0, "log"));
    bytes[20 * 100 + 90] ^= 1;
    overwrite(&bench, &name(0, "log"), &bytes);
    counting.store(true, Ordering::SeqCst);
    let log = bench.open_unclean(150);
    assert_eq!(log.load_report().recovered, [Offset::new(100), Offset::new(200)]);
    assert!(log.load_report().cuts.is_empty());
    log.close().expect("closed");
    let log = bench.open_at(true, 250, 0);
    assert!(log.load_report().recovered.is_empty());
    assert_eq!(bytes_of_0.load(Ordering::SeqCst), 0, "the damaged segment was not looked at");
    // Whoever reads with a check is told.
    let damaged = bytes_of(&log, 20).expect("data");
    let checked = Batches::new(&damaged).next().expect("a batch").expect("framing").verify();
    assert_eq!(checked.expect_err("a wrong checksum").kafka_name(), "CorruptRecordException");
}

#[test]
fn rec_04_and_log_edge_200_a_start_that_did_not_end_leaves_no_marker() {
    let bench = Bench::new(&[]);
    let dir = open_dir(&bench);
    lead(&dir.get_or_create(&t0(), None).expect("a log"), 3, 1, 1000);
    assert!(dir.shutdown().expect("stopped").clean);
    let bytes = contents(&bench, &name(0, "log"));
    overwrite(&bench, &name(0, "log"), &bytes[..900]);
    let dir = open_dir(&bench);
    assert!(dir.was_clean());
    // Killed before any log was loaded.
    drop(dir);
    let dir = open_dir(&bench);
    assert!(!dir.was_clean());
    let log = dir.get(&t0()).expect("opened").expect("a log");
    assert_eq!((log.load_report().recovered.len(), log.log_end_offset().get()), (1, 0));
}

#[test]
fn rec_05_a_full_disk_while_a_log_is_recovered() {
    const ENOSPC: i32 = 28;
    let faulty = Arc::new(Faulty::new(memory()));
    let bench = Bench::on(faulty.clone(), &[]);
    let dir = open_dir(&bench);
    let log = dir.get_or_create(&t0(), None).expect("a log");
    for epoch in 0..3 {
        log.append_as_leader(batch(1, 1, 100), LeaderEpoch::new(epoch), Origin::Client).expect("an append");
    }
    dir.checkpoint().expect("written");
    log.abandon();
    drop((log, dir));
    overwrite(&bench, "leader-epoch-checkpoint", b"0\n0\n");
    let dir = open_dir(&bench);
    faulty.inject(Fault::on(Call::Replace).error(ENOSPC));
    let failed = dir.get(&t0()).expect_err("no space");
    assert!(failed.to_string().contains("leader-epoch-checkpoint"), "{failed}");
    let report = dir.shutdown().expect("stopped");
    assert!(!report.clean);
    let points = bench.backend.names().read(Path::new("/data/recovery-point-offset-checkpoint"), 1000);
    assert_eq!(points.expect("read").as_deref(), Some(&b"0\n1\nt 0 0\n"[..]));
    faulty.clear();
    let dir = open_dir(&bench);
    assert!(!dir.was_clean());
    let log = dir.get(&t0()).expect("opened").expect("a log");
    assert_eq!((log.log_end_offset().get(), epochs(&log)), (3, vec![(0, 0), (1, 1), (2, 2)]));
}

#[test]
fn rec_06_a_log_start_ahead_of_everything() {
    for clean in [true, false] {
        let bench = Bench::new(&[]);
        let log = bench.open();
        Draft::new(100).of(1, 0, 0).lead(&log).expect("an append");
        log.roll(None).expect("a roll");
        Draft::new(200).of(1, 0, 100).lead(&log).expect("an append");
        log.close().expect("closed");
        let log = bench.open_at(clean, 300, 500);
        assert_eq!((bases(&log), offsets(&log)), (vec![500], (500, 500, 500)));
        assert_eq!(
            (epochs(&log), producers(&log), snapshots(&bench)),
            (vec![], vec![], if clean { vec![500] } else { vec![] })
        );
        assert!(bench.size_of(&name(500, "snapshot")).is_none_or(|len| len == 10), "it tells of no producer");
        assert!(log.load_report().emptied);
        let log = Bench::new(&[]).open_at(clean, 0, 500);
        assert_eq!((bases(&log), offsets(&log)), (vec![500], (500, 500, 500)));
    }
}

#[test]
fn rec_07_a_replacement_that_stopped_anywhere_is_finished_or_undone() {
    const KINDS: [&str; 3] = ["log", "index", "timeindex"];
    // Two segments and what they are compacted to: every second batch, under the first one's base.
    let prepared = || {
        let bench = Bench::new(&[("index.interval.bytes", "1")]);
        let log = bench.open();
        for n in 0..210 {
            if n == 100 || n == 200 {
                log.roll(None).expect("a roll");
            }
            Draft::new(1).of(1, 0, n).lead(&log).expect("an append");
        }
        log.close().expect("closed");
        let compacted: Vec<u8> = (0..200)
            .filter(|n| n % 2 == 1)
            .flat_map(|n| Draft::new(1).base(n).of(1, 0, n as i32).bytes().to_vec())
            .collect();
        overwrite(&bench, &name(0, "log.cleaned"), &compacted);
        overwrite(&bench, &name(0, "index.cleaned"), b"");
        overwrite(&bench, &name(0, "timeindex.cleaned"), b"");
        bench
    };
    let mut steps: Vec<(String, String)> = Vec::new();
    for kind in KINDS {
        steps.push((name(0, &format!("{kind}.cleaned")), name(0, &format!("{kind}.swap"))));
    }
    for base in [0, 100] {
        for kind in KINDS {
            steps.push((name(base, kind), name(base, &format!("{kind}.deleted"))));
        }
    }
    for kind in KINDS {
        steps.push((name(0, &format!("{kind}.swap")), name(0, kind)));
    }
    for done in 0..=steps.len() {
        for clean in [true, false] {
            let bench = prepared();
            for (from, to) in &steps[..done] {
                let path = |name: &str| Path::new(DIR).join(name);
                bench.backend.names().rename(&path(from), &path(to)).expect("renamed");
            }
            let log = bench.open_at(clean, 205, 0);
            let swapped = done >= KINDS.len();
            assert_eq!(bases(&log), if swapped { vec![0, 200] } else { vec![0, 100, 200] }, "{done}");
            let expected: Vec<_> =
                (0..210).filter(|n| !swapped || *n >= 200 || n % 2 == 1).map(|n| (n, n)).collect();
            assert_eq!((spans(&log, 0), log.log_end_offset().get()), (expected, 210), "after {done} steps");
            assert_eq!(producers(&log), [(1, 209, None)]);
            assert!(snapshots(&bench).contains(&200), "{done}: {:?}", snapshots(&bench));
            let left = [".cleaned", ".swap", ".deleted"];
            let left = bench.files().into_iter().find(|(name, _)| left.iter().any(|l| name.ends_with(l)));
            assert_eq!(left, None, "after {done} steps");
        }
    }
}

#[test]
fn rec_08_files_that_are_gone_already_are_no_reason_to_fail() {
    let bench = Bench::new(&[("file.delete.delay.ms", "100")]);
    let log = bench.open();
    log.truncate_fully_and_start_at(Offset::new(100), None).expect("an empty log");
    bench.scheduler.advance(100);
    lead(&log, 10, 1, 1000);
    log.roll(None).expect("a roll");
    log.close().expect("closed");
    overwrite(&bench, &name(0, "log.deleted"), b"x");
    remove(&bench, &name(100, "timeindex"));
    let log = bench.open();
    assert_eq!((bases(&log), bench.size_of(&name(0, "log.deleted"))), (vec![100, 110], None));
    remove(&bench, &name(100, "index"));
    log.update_high_watermark(Offset::new(110));
    log.increment_log_start_offset(Offset::new(110)).expect("moved");
    assert_eq!(log.delete_old_segments().expect("retention").deleted, 1);
    bench.scheduler.advance(100);
    assert_eq!(log.last_trouble(), None);
    assert!(bench.files().iter().all(|(name, _)| !name.starts_with("00000000000000000100.")));
}

#[test]
fn rec_09_a_damaged_index_is_made_anew_byte_for_byte() {
    let prepared = || {
        let bench = Bench::new(&[]);
        let log = bench.open();
        for n in 0..12 {
            lead(&log, 1, 100 + n, 1000);
        }
        log.roll(None).expect("a roll");
        log.close().expect("closed");
        bench
    };
    let files = |bench: &Bench| (contents(bench, &name(0, "index")), contents(bench, &name(0, "timeindex")));
    type Harm = fn(&Bench);
    let harms: [Harm; 4] = [
        |bench| remove(bench, &name(0, "index")),
        |bench| overwrite(bench, &name(0, "index"), &[0xa5; 16]),
        |bench| {
            let bytes = contents(bench, &name(0, "index"));
            overwrite(bench, &name(0, "index"), &bytes[..9]);
        },
        |bench| remove(bench, &name(0, "timeindex")),
    ];
    for harm in harms {
        for clean in [true, false] {
            let bench = prepared();
            let before = files(&bench);
            harm(&bench);
            let log = bench.open_at(clean, 12, 0);
            for n in 0..12 {
                assert_eq!(read(&log, n).0, n);
                let query = kseg_log::TimestampQuery::At(kseg_format::Timestamp::new(100 + n));
                let found = log.offset_for_timestamp(query).expect("a lookup");
                assert_eq!(found.map(|f| f.offset.get()), Some(n));
            }
            log.close().expect("closed");
            assert_eq!(files(&bench), before);
        }
    }
}

#[test]
fn rec_10_leader_epoch_0_is_an_epoch() {
    let bench = Bench::new(&[]);
    let log = bench.open();
    for (base, epoch) in [(0, 0), (10, 1), (20, 1), (30, 4)] {
        Draft::new(10).base(base).epoch(epoch).follow(&log).expect("an append");
    }
    log.abandon();
    let mut without = Draft::new(1).base(40).bytes();
    kseg_format::BatchMut::parse(&mut without).expect("a batch").set_leader_epoch(None).expect("set");
    let bytes = [contents(&bench, &name(0, "log")), without.to_vec()].concat();
    overwrite(&bench, &name(0, "log"), &bytes);
    remove(&bench, "leader-epoch-checkpoint");
    let log = bench.open_unclean(0);
    assert_eq!((epochs(&log), log.log_end_offset().get()), (vec![(0, 0), (1, 10), (4, 30)], 41));
}

#[test]
fn rec_11_a_damaged_snapshot_costs_nothing() {
    let prepared = || {
        let bench = Bench::new(&[]);
        let log = bench.open();
        for n in 0..250 {
            if n == 100 || n == 200 {
                log.roll(None).expect("a roll");
            }
            Draft::new(1).of(i64::from(n % 3), 0, n / 3).lead(&log).expect("an append");
        }
        let before = producers(&log);
        log.close().expect("closed");
        (bench, before)
    };
    type Harm = fn(&mut Vec<u8>);
    let harms: [Harm; 4] =
        [Vec::clear, |bytes| bytes.truncate(3), |bytes| bytes[30] ^= 4, |bytes| bytes[1] = 9];
    for harm in harms {
        let (bench, before) = prepared();
        assert_eq!(snapshots(&bench), [100, 200, 250]);
        let good = contents(&bench, &name(250, "snapshot"));
        let mut bad = good.clone();
        harm(&mut bad);
        overwrite(&bench, &name(250, "snapshot"), &bad);
        let log = bench.open_at(true, 250, 0);
        assert_eq!((producers(&log), snapshots(&bench)), (before, vec![100, 200, 250]));
        assert_eq!(contents(&bench, &name(250, "snapshot")), good);
        assert!(log.load_report().to_string().contains(&name(250, "snapshot")), "{}", log.load_report());
    }
}

#[test]
fn rec_12_a_damaged_checkpoint_is_no_reason_not_to_start() {
    for file in ["recovery-point-offset-checkpoint", "log-start-offset-checkpoint"] {
        for (text, value, said) in [
            (&b""[..], 0, false),
            (b"0\n2\nt 0 100\n", 0, true),
            (b"0\n1\nt 0 1x0\n", 0, true),
            (&[0; 64], 0, true),
            (b"7\n0\n", 0, true),
            (b"0\n1\nt 0 100\n", 100, false),
        ] {
            let bench = Bench::new(&[]);
            let dir = open_dir(&bench);
            let log = dir.get_or_create(&t0(), None).expect("a log");
            for _ in 0..2 {
                lead(&log, 100, 1, 2000);
                log.roll(None).expect("a roll");
            }
            log.abandon();
            drop((log, dir));
            bench.backend.names().write(&Path::new("/data").join(file), text, true).expect("written");
            let dir = open_dir(&bench);
            let log = dir.get(&t0()).expect("opened").expect("a log");
            let words = dir.damaged_checkpoints().iter().map(ToString::to_string).collect::<String>();
            assert_eq!(words.contains(file) && words.contains("line"), said, "{text:?}: {words}");
            assert_eq!((log.log_end_offset().get(), dir.was_clean()), (200, false));
            if file.starts_with("recovery") {
                let first = log.load_report().recovered[0].get();
                assert_eq!((first, log.recovery_point().get()), (value, value), "{text:?}");
            } else {
                assert_eq!(log.log_start_offset().get(), value, "{text:?}");
            }
        }
    }
}

#[test]
fn rec_13_a_folder_that_waits_for_deletion_may_hold_no_segment() {
    let bench = Bench::new(&[]);
    let folder = Path::new("/data/t-0.0123456789abcdef0123456789abcdef-delete");
    bench.backend.names().create_dir_all(folder).expect("a folder");
    bench.backend.names().write(&folder.join(name(7, "snapshot")), b"", true).expect("written");
    let options = kseg_log::OpenOptions { clean: false, ..bench.options() };
    let log = Log::open(folder, options).expect("a log");
    assert_eq!((bases(&log), offsets(&log)), (vec![0], (0, 0, 0)));
    let dir = open_dir(&bench);
    lead(&dir.get_or_create(&t0(), None).expect("others are served"), 1, 1, 100);
}

#[test]
fn rec_14_foreign_files_are_left_alone_and_named() {
    let bench = Bench::new(&[]);
    let log = bench.open();
    lead(&log, 3, 1, 200);
    log.close().expect("closed");
    let foreign = [".DS_Store", "._00000000000000000000.log", "abc.log", "notes.txt"];
    for file in foreign {
        overwrite(&bench, file, b"something");
    }
    bench.backend.names().create_dir_all(&Path::new(DIR).join("sub")).expect("a folder");
    let log = bench.open();
    let unknown: Vec<_> = log.load_report().unknown.iter().filter_map(|p| p.file_name()?.to_str()).collect();
    assert_eq!(unknown, [&foreign[..], &["sub"]].concat());
    assert_eq!((log.log_end_offset().get(), spans(&log, 0)), (3, vec![(0, 2)]));
    for file in foreign {
        assert_eq!(contents(&bench, file), b"something");
    }
    let fetch = log.read(Offset::ZERO, 1, Isolation::LogEnd, true).expect("a read");
    assert_eq!(fetch.len(), 200);
}

#[test]
fn rec_15_snapshots_of_a_recovery_hold_what_lies_below_their_names() {
    let bench = Bench::new(&[]);
    let log = bench.open();
    let mut at_200 = Vec::new();
    for n in 0..250 {
        if n == 100 || n == 200 {
            log.roll(None).expect("a roll");
        }
        if n == 200 {
            at_200 = producers(&log);
        }
        Draft::new(1).of(i64::from(n % 7), 0, n / 7).lead(&log).expect("an append");
    }
    log.close().expect("closed");
    let written: Vec<_> = [100, 200, 250].iter().map(|&at| contents(&bench, &name(at, "snapshot"))).collect();
    for at in snapshots(&bench) {
        remove(&bench, &name(at, "snapshot"));
    }
    let log = bench.open_unclean(0);
    assert_eq!(snapshots(&bench), [100, 200, 250]);
    for (at, bytes) in [100, 200, 250].into_iter().zip(&written) {
        assert_eq!(contents(&bench, &name(at, "snapshot")), *bytes, "{at}");
    }
    log.truncate_to(Offset::new(200)).expect("truncated");
    assert_eq!((producers(&log), snapshots(&bench)), (at_200, vec![100, 200]));
}

#[test]
fn a_recovery_makes_the_newest_snapshot_durable_and_leaves_the_epochs_that_are_known() {
    let metered = Arc::new(Metered::new(memory()));
    let bench = Bench::on(metered.clone(), &[]);
    let log = bench.open();
    for n in 0..30 {
        if n == 10 || n == 20 {
            log.roll(None).expect("a roll");
        }
        Draft::new(1).of(7, 0, n).lead(&log).expect("an append");
    }
    log.close().expect("closed");
    for active_is_empty in [false, true] {
        for at in snapshots(&bench) {
            remove(&bench, &name(at, "snapshot"));
        }
        metered.reset();
        let log = bench.open_unclean(0);
        assert_eq!(log.log_end_offset().get(), 30);
        assert_eq!(snapshots(&bench), [10, 20, 30]);
        // One sync for all segments; those of a roll are its own.
        assert_eq!(metered.calls(Call::SyncFile, "snapshot").calls, 1, "{active_is_empty}");
        assert_eq!(metered.calls(Call::Replace, "").calls, 0, "the checkpoint of the epochs is as it was");
        if !active_is_empty {
            log.roll(None).expect("a roll");
        }
        log.abandon();
    }
}
