//! Bad reads, writes and syncs beneath a log, over every backend that is to be had: the same answers, and nothing leaks.

use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use kseg_format::{LeaderEpoch, Offset, Origin};
use kseg_io_backends::{Backend, BackendSpec, Call, Fault, Faulty, Metered};
use kseg_log::{Isolation, Log, LogDir, LogDirOptions, OpenOptions, TimestampQuery, TopicPartition};

use crate::places;
use crate::support::*;

/// How many descriptors of this process lead below `dir`.
fn descriptors(dir: &Path) -> usize {
    let open = std::fs::read_dir("/proc/self/fd").expect("the process's descriptors");
    open.filter_map(|entry| std::fs::read_link(entry.ok()?.path()).ok())
        .filter(|to| to.starts_with(dir))
        .count()
}

fn append(log: &Log, size: usize) -> kseg_log::Result<kseg_log::AppendInfo> {
    log.append_as_leader(batch(1, 1, size), LeaderEpoch::new(0), Origin::Client)
}

fn twelve(n: i64) -> Vec<(i64, i64)> {
    (0..n).map(|at| (at, at)).collect()
}

#[test]
fn iob_01_reads_of_seven_bytes_read_and_recover_the_same_log() {
    places::with_each(|spec, backend, dir| {
        let faulty = Arc::new(Faulty::new(backend));
        let bench = Bench::below(dir, faulty.clone(), &[]);
        let log = bench.open();
        for _ in 0..12 {
            append(&log, 1000).expect(spec);
        }
        log.close().expect(spec);
        faulty.inject(Fault::on(Call::Read).short(7).always());
        let log = bench.open_unclean(0);
        assert_eq!(spans(&log, 0), twelve(12), "{spec}");
        assert_eq!((log.size(), faulty.fired() > 100), (12_000, true), "{spec}");
    });
}

#[test]
fn iob_02_short_writes_leave_the_same_bytes_and_none_at_all_is_an_error() {
    places::with_each(|spec, backend, dir| {
        let mut whole: Option<Vec<u8>> = None;
        for short in [None, Some(1), Some(511), Some(512), Some(999)] {
            let faulty = Arc::new(Faulty::new(backend.clone()));
            let above = dir.join(format!("{short:?}"));
            let bench = Bench::below(&above, faulty.clone(), &[]);
            let log = bench.open();
            for _ in 0..20 {
                if let Some(bytes) = short {
                    faulty.inject(Fault::on(Call::Write).role("log").short(bytes));
                }
                append(&log, 1000).expect(spec);
                log.flush(false).expect(spec);
            }
            log.close().expect(spec);
            let bytes = contents(&bench, &name(0, "log"));
            assert_eq!(bytes.len(), 20_000, "{spec} {short:?}");
            assert!(whole.get_or_insert_with(|| bytes.clone()) == &bytes, "{spec} {short:?}");
        }
        let faulty = Arc::new(Faulty::new(backend));
        let log = Bench::below(&dir.join("none"), faulty.clone(), &[]).open();
        faulty.inject(Fault::on(Call::Write).role("log").short(0).always());
        assert!(append(&log, 1000).map(drop).and_then(|()| log.flush(false)).is_err(), "{spec}");
        assert!(append(&log, 1000).is_err(), "{spec}: how far it got is not known");
    });
}

#[test]
fn iob_03_thousands_of_tiny_batches_at_once_lie_in_order() {
    places::with_each(|spec, backend, dir| {
        for count in [1024, 1025, 2048, 3000] {
            let bench = Bench::below(&dir.join(count.to_string()), backend.clone(), &[]);
            let log = bench.open();
            for _ in 0..count {
                append(&log, 78).expect(spec);
            }
            log.flush(false).expect(spec);
            assert_eq!(spans(&log, 0), twelve(count), "{spec}");
            log.close().expect(spec);
            assert_eq!(bench.size_of(&name(0, "log")), Some(count as u64 * 78), "{spec}");
            assert_eq!(spans(&bench.open_unclean(0), 0), twelve(count), "{spec}");
        }
    });
}

#[test]
fn iob_04_a_log_that_is_let_go_of_leaves_what_was_appended_or_a_beginning_of_it() {
    places::with_each(|spec, backend, dir| {
        for round in 0..20 {
            let bench = Bench::below(&dir.join(round.to_string()), backend.clone(), &[]);
            let log = bench.open();
            let sent = batch(1, round, 1000);
            log.append_as_leader(sent, LeaderEpoch::new(0), Origin::Client).expect(spec);
            log.abandon();
            drop(log);
            // Memory that would be taken again, had a write let go of it.
            std::hint::black_box((0..200).map(|_| vec![0x55_u8; 1000]).collect::<Vec<_>>());
            let log = bench.open_unclean(0);
            assert!(log.load_report().to_string().is_empty(), "{spec}: {}", log.load_report());
            assert!([0, 1].contains(&log.log_end_offset().get()), "{spec}");
            if log.log_end_offset().get() == 1 {
                let found = log.offset_for_timestamp(TimestampQuery::Max).expect(spec).expect("a record");
                assert_eq!(found.timestamp.map(|t| t.get()), Some(round), "{spec}");
            }
        }
    });
}

#[test]
fn iob_07_where_there_are_no_direct_writes_it_is_told_at_the_open_and_no_append_fails() {
    let Ok(tmpfs) = tempfile::tempdir_in("/dev/shm") else {
        return println!("skipped: no tmpfs at /dev/shm");
    };
    for spec in ["std+direct", "uring+direct"] {
        // Found out beforehand, or by the first file.
        let asked: BackendSpec = spec.parse().expect("a specification");
        let refused = asked.open_in(tmpfs.path()).expect_err("no direct writes");
        assert!(refused.unavailable().is_some(), "{spec}: {refused}");
        let Ok(backend) = kseg_io_backends::open(spec) else { continue };
        let error = Log::open(&tmpfs.path().join("t-0"), OpenOptions::new(backend)).expect_err("no log");
        for part in ["direct", "STATX_DIOALIGN", "/dev/shm", "t-0/"] {
            assert!(error.to_string().contains(part), "{spec}: {part:?} is missing in {error}");
        }
    }
    let asked: BackendSpec = "auto".parse().expect("a specification");
    let opened = asked.open_in(tmpfs.path()).expect("the next best");
    assert_eq!(opened.got.to_string(), "std");
    let log = Bench::below(&tmpfs.path().join("auto"), opened.backend, &[]).open();
    for _ in 0..10 {
        append(&log, 1000).map(drop).and_then(|()| log.flush(false)).expect("an append");
    }
}

#[test]
fn iob_08_after_a_failed_sync_everything_fails_with_the_first_error_until_it_is_opened_again() {
    places::with(&["memory", "std", "std+direct", "uring", "uring+direct"], |spec, backend, dir| {
        let faulty = Arc::new(Faulty::new(backend));
        let options = || LogDirOptions::new(faulty.clone() as Arc<dyn Backend>);
        let path = dir.join("data");
        let data = LogDir::open(&path, options()).expect(spec);
        let log = data.get_or_create(&TopicPartition::new("t", 0), None).expect(spec);
        faulty.inject(Fault::on(Call::Flush).role("log").nth(3).error(Fault::EIO));
        let mut first = None;
        for n in 1..=5 {
            let flushed = append(&log, 1000).map(drop).and_then(|()| log.flush(false));
            assert_eq!(flushed.is_ok(), n < 3, "{spec}: flush {n}");
            if let Err(error) = flushed {
                let text = first.get_or_insert_with(|| error.to_string());
                // A failing device takes its directory out of service: that, too, tells of the first error.
                let cause = text.rsplit(": ").next().unwrap_or_default();
                assert!(error.to_string().contains(cause), "{spec}: {error}: expected {cause}");
            }
        }
        assert_eq!((faulty.fired(), log.recovery_point().get()), (1, 2), "{spec}");
        drop(log);
        assert!(!data.shutdown().is_ok_and(|report| report.clean), "{spec}");
        let data = LogDir::open(&path, options()).expect(spec);
        assert!(!data.was_clean(), "{spec}: no marker was written");
        let log = data.get_or_create(&TopicPartition::new("t", 0), None).expect(spec);
        assert!(log.log_end_offset().get() >= 2, "{spec}");
        append(&log, 1000).map(drop).and_then(|()| log.flush(false)).expect(spec);
    });
}

#[test]
fn iob_09_nothing_is_accepted_behind_a_write_of_unknown_extent() {
    places::with(&["memory", "std", "std+direct", "uring", "uring+direct"], |spec, backend, dir| {
        let reached = Arc::new(Metered::new(backend));
        let faulty = Arc::new(Faulty::new(reached.clone() as Arc<dyn Backend>));
        let bench = Bench::below(dir, faulty.clone(), &[]);
        let log = bench.open();
        for _ in 0..5 {
            append(&log, 1000).expect(spec);
            log.flush(false).expect(spec);
        }
        faulty.inject(Fault::on(Call::Write).role("log").error_after(400, Fault::EIO));
        assert!(append(&log, 1000).map(drop).and_then(|()| log.flush(false)).is_err(), "{spec}");
        reached.reset();
        for _ in 0..2 {
            assert!(append(&log, 1000).is_err(), "{spec}");
        }
        assert_eq!(reached.calls(Call::Write, "log").calls, 0, "{spec}: not even tried");
        assert_eq!(spans(&log, 0)[..5], twelve(5), "{spec}");
        assert!(log.close().is_err(), "{spec}");
        let log = bench.open_unclean(0);
        assert_eq!((log.size(), log.log_end_offset().get()), (5000, 5), "{spec}");
        append(&log, 1000).map(drop).and_then(|()| log.flush(false)).expect(spec);
    });
}

#[test]
fn iob_06_batches_lie_back_to_back_whatever_the_blocks_are() {
    places::with_each(|spec, backend, dir| {
        let bench = Bench::below(dir, backend, &[]);
        let log = bench.open();
        for n in 1..=5 {
            append(&log, 1000).expect(spec);
            log.flush(false).expect(spec);
            assert_eq!(log.size(), n * 1000, "{spec}");
        }
        log.close().expect(spec);
        assert_eq!(bench.size_of(&name(0, "log")), Some(5000), "{spec}");
        if spec != "memory" {
            let plain = kseg_io_backends::open("std").expect("std");
            assert_eq!(spans(&Bench::below(dir, plain, &[]).open(), 0), twelve(5), "{spec}");
        }
    });
}

/// What can go wrong with a call.
fn faults() -> Vec<(&'static str, Fault)> {
    vec![
        ("EIO", Fault::on_any().error(Fault::EIO)),
        ("ENOSPC", Fault::on_any().error(Fault::ENOSPC)),
        ("EINTR", Fault::on_any().error(4)),
        ("EFBIG", Fault::on_any().error(27)),
        ("ENOENT", Fault::on_any().error(2)),
        ("EIO after 100 bytes", Fault::on_any().error_after(100, Fault::EIO)),
        ("ENOSPC after 100 bytes", Fault::on_any().error_after(100, Fault::ENOSPC)),
        ("ENOSPC from there on", Fault::on_any().error(Fault::ENOSPC).always()),
        ("a short call", Fault::on_any().short(100)),
        ("a failed sync", Fault::on(Call::Flush).error(Fault::EIO)),
        ("a failed sync of a directory", Fault::on(Call::SyncDir).error(Fault::EIO)),
        ("a failed rename", Fault::on(Call::Rename).error(Fault::EIO)),
        ("a write of nothing", Fault::on(Call::Write).short(0)),
    ]
}

/// What was appended, and how much of it is acknowledged.
#[derive(Default)]
struct Lived {
    kept: Vec<Bytes>,
    durable: i64,
}

impl Lived {
    /// Opens a log, appends over rolls, waits now and then until all is durable, truncates, closes.
    fn through(&mut self, bench: &Bench) -> kseg_log::Result<()> {
        let log = Log::open(&bench.dir, bench.options())?;
        for base in 0..6 {
            self.append(&log, base, base % 2 == 1)?;
        }
        self.durable = self.durable.min(4);
        log.truncate_to(Offset::new(4))?;
        for base in 4..8 {
            self.append(&log, base, base == 6)?;
        }
        log.close()
    }

    fn append(&mut self, log: &Log, base: i64, durable: bool) -> kseg_log::Result<()> {
        let bytes = batch_at(base, 1, 1, 400).freeze();
        self.kept.push(bytes.clone());
        let (_, handle) = log.append_as_follower_durable(bytes, LeaderEpoch::new(0))?;
        if durable {
            handle.wait()?;
            self.durable = base + 1;
        }
        Ok(())
    }
}

#[test]
fn whatever_call_fails_over_real_files_nothing_acknowledged_is_lost_and_nothing_leaks() {
    // Every so many-th call meets one of the faults; with `KSEG_LIVES` all meet all of them.
    let all = std::env::var_os("KSEG_LIVES").is_some();
    places::with(&["std", "std+direct", "uring", "uring+direct"], |spec, backend, dir| {
        for (first, (name, fault)) in (1..).zip(faults()) {
            let step = if all { 1 } else { 23 };
            for n in (if all { 1 } else { first }..).step_by(step) {
                let what = format!("{spec}: {name} at call {n}");
                let above = dir.join(n.to_string());
                let faulty = Arc::new(Faulty::new(backend.clone()));
                faulty.inject(fault.clone().nth(n));
                let bench = Bench::below(&above, faulty.clone(), &[("internal.segment.bytes", "1500")]);
                let mut lived = Lived::default();
                let ended = lived.through(&bench);
                let fired = faulty.fired();
                drop((bench, faulty));
                assert_eq!(descriptors(&above), 0, "{what}: descriptors are left");
                assert!(lived.kept.iter().all(Bytes::is_unique), "{what}: a buffer is held");
                let bench = Bench::below(&above, backend.clone(), &[]);
                if let Err(error) = &ended {
                    let text = error.to_string();
                    assert!(text.contains(&*dir.to_string_lossy()), "{what}: no file is named in {text}");
                }
                let log = bench.open_unclean(0);
                let (end, durable) = (log.log_end_offset(), lived.durable);
                assert!(end >= Offset::new(durable), "{what}: {durable} were acknowledged, it ends at {end}");
                let read = spans(&log, 0);
                assert_eq!(read, twelve(read.len() as i64), "{what}");
                drop((log, bench));
                std::fs::remove_dir_all(&above).expect("removed");
                if fired == 0 {
                    ended.expect(&what);
                    break;
                }
            }
        }
    });
}

/// Appends and makes durable.
fn acknowledged(log: &Log) -> kseg_log::Result<()> {
    append(log, 1000)?;
    log.flush(false)
}

#[test]
fn iob_10_a_full_disk_is_told_and_what_is_there_stays_readable() {
    places::with_each(|spec, backend, dir| {
        let faulty = Arc::new(Faulty::new(backend));
        let bench = Bench::below(dir, faulty.clone(), &[]);
        let log = bench.open();
        let acknowledged = || acknowledged(&log);
        acknowledged().expect(spec);
        // What is about epochs has been written. Whole blocks take more than what is appended.
        faulty.set_space(Some(if spec.contains("direct") { 60_000 } else { 9_000 }));
        let mut count = 1;
        while acknowledged().is_ok() {
            count += 1;
            assert!(count < 100, "{spec}: it is not full");
        }
        assert!(if spec.contains("direct") { count > 5 } else { count == 10 }, "{spec}: {count}");
        for _ in 0..5 {
            let error = acknowledged().expect_err("full").to_string();
            assert!(error.contains("No space left") && error.contains(".log"), "{spec}: {error}");
        }
        assert_eq!(spans(&log, 0)[..count], twelve(count as i64), "{spec}");
        assert!(log.read(Offset::new(count as i64 - 1), 1 << 20, Isolation::LogEnd, true).is_ok());
        log.update_high_watermark(Offset::new(count as i64));
        log.increment_log_start_offset(Offset::new(2)).expect(spec);
        log.delete_old_segments().expect(spec);
        // Space comes back: nothing has to be opened again.
        faulty.set_space(None);
        let next = log.log_end_offset();
        assert!(next >= Offset::new(count as i64), "{spec}");
        let info = append(&log, 1000).expect(spec);
        assert_eq!(info.first_offset, Some(next), "{spec}");
        log.flush(false).expect(spec);
        log.close().expect(spec);
        let log = bench.open_at(true, next.get() + 1, 2);
        assert_eq!(log.log_end_offset(), next.next(), "{spec}");
        assert_eq!(append(&log, 1000).expect(spec).first_offset, Some(next.next()), "{spec}");
        assert_eq!(spans(&log, 2), twelve(next.get() + 2)[2..], "{spec}");
    });
}

#[test]
fn iob_10_a_file_that_may_not_grow_is_told_and_what_is_there_stays() {
    places::with_each(|spec, backend, dir| {
        let faulty = Arc::new(Faulty::new(backend));
        let bench = Bench::below(dir, faulty.clone(), &[]);
        let log = bench.open();
        let acknowledged = || acknowledged(&log);
        acknowledged().expect(spec);
        let fault = || Fault::on(Call::Write).role("log").error(27).always();
        // Also one that is met in the middle of a write.
        for fault in [fault(), Fault::on(Call::Write).role("log").error_after(100, 27).always()] {
            let before = log.recovery_point();
            faulty.inject(fault);
            for _ in 0..3 {
                let error = acknowledged().expect_err("it may not grow").to_string();
                assert!(error.contains("File too large") && error.contains(".log"), "{spec}: {error}");
            }
            assert_eq!(log.recovery_point(), before, "{spec}");
            assert_eq!(spans(&log, 0), twelve(log.log_end_offset().get()), "{spec}");
            faulty.clear();
            acknowledged().expect(spec);
            assert_eq!(log.recovery_point(), log.log_end_offset(), "{spec}");
        }
        let end = log.log_end_offset().get();
        log.close().expect(spec);
        assert_eq!(spans(&bench.open_at(true, end, 0), 0), twelve(end), "{spec}");
    });
}

#[test]
fn a_log_that_rolls_often_holds_no_more_files_for_it() {
    places::with_each(|spec, backend, dir| {
        let bench = Bench::below(dir, backend, &[("internal.segment.bytes", "1000")]);
        let log = bench.open();
        for n in 0..40 {
            append(&log, 1000).expect(spec);
            if n > 0 {
                // A consumer that stays with the first segment keeps it open.
                assert_eq!(read(&log, 0), (0, 1000), "{spec}");
            }
        }
        assert_eq!(bases(&log).len(), 40, "{spec}");
        let before = descriptors(dir);
        for _ in 0..100 {
            append(&log, 1000).expect(spec);
        }
        assert_eq!((bases(&log).len(), descriptors(dir)), (140, before), "{spec}");
        assert_eq!(spans(&log, 0).len(), 140, "{spec}");
    });
}
