use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use kseg_format::{LeaderEpoch, Offset, Origin};
use kseg_io_backends::{Call, Fault, Faulty, Metered, Moment, Watched};

use crate::support::*;

#[test]
fn an_append_is_one_write_and_no_other_call() {
    let metered = Arc::new(Metered::new(kseg_io_backends::open("memory").expect("memory")));
    let bench = Bench::on(metered.clone(), &[]);
    let log = bench.open();
    lead(&log, 1, 1, 1000); // opens what is opened lazily, writes the epoch
    let before = metered.total();
    for n in 0..20 {
        lead(&log, 1, n, 1000);
    }
    assert_eq!(metered.total() - before, 20);
}

#[test]
fn a_failed_flush_makes_the_log_read_only_until_it_is_opened_again() {
    let faulty = Arc::new(Faulty::new(kseg_io_backends::open("memory").expect("memory")));
    let bench = Bench::on(faulty.clone(), &[]);
    let log = bench.open();
    lead(&log, 1, 1, 100);
    faulty.inject(Fault::on(Call::Flush).role("log"));
    let failed = log.flush(false).expect_err("a failed sync");
    assert_eq!(failed.kafka_name(), "IOException");
    assert!(failed.to_string().contains("00000000000000000000.log"), "{failed}");
    assert_eq!(log.recovery_point().get(), 0);
    let refused =
        log.append_as_leader(batch(1, 1, 100), LeaderEpoch::new(0), Origin::Client).expect_err("fenced");
    assert_eq!(refused.kafka_name(), "KafkaStorageException");
    assert!(log.flush(false).is_err() && log.roll(None).is_err());
    assert_eq!(read(&log, 0), (0, 100));
    log.abandon();
    let log = bench.open_unclean(0);
    assert_eq!(lead(&log, 1, 1, 100).first_offset, Some(Offset::new(1)));
}

#[test]
fn a_failed_write_uses_no_offset() {
    for short in [false, true] {
        let faulty = Arc::new(Faulty::new(kseg_io_backends::open("memory").expect("memory")));
        let bench = Bench::on(faulty.clone(), &[]);
        let log = bench.open();
        lead(&log, 1, 1, 100);
        if short {
            faulty.inject(Fault::on(Call::Write).role("log").short(40));
        } else {
            faulty.inject(Fault::on(Call::Write).role("log"));
        }
        let result = log.append_as_leader(batch(1, 1, 100), LeaderEpoch::new(0), Origin::Client);
        if short {
            // A short write is continued.
            assert_eq!(result.expect("an append").first_offset, Some(Offset::new(1)));
        } else {
            result.expect_err("a failed write");
            assert_eq!((log.log_end_offset().get(), read(&log, 0)), (1, (0, 100)));
            log.abandon();
            let log = bench.open_unclean(0);
            assert_eq!(log.log_end_offset().get(), 1);
        }
    }
}

#[test]
fn a_segment_that_could_not_be_renamed_is_not_removed_later() {
    let faulty = Arc::new(Faulty::new(kseg_io_backends::open("memory").expect("memory")));
    let bench = Bench::on(faulty.clone(), &[]);
    let log = bench.open();
    for n in 0..15 {
        if n == 10 {
            log.roll(None).expect("a roll");
        }
        lead(&log, 1, n, 100);
    }
    faulty.inject(Fault::on(Call::Rename).role("log"));
    log.truncate_to(Offset::new(8)).expect_err("a failed rename");
    // Half done: the log takes nothing more, and nothing is removed behind its back.
    assert!(log.append_as_leader(batch(1, 1, 100), LeaderEpoch::new(0), Origin::Client).is_err());
    bench.scheduler.advance(3_600_000);
    assert!(bench.size_of("00000000000000000010.log").is_some());
}

#[test]
fn an_epoch_that_could_not_be_written_is_written_with_the_next_append() {
    let faulty = Arc::new(Faulty::new(kseg_io_backends::open("memory").expect("memory")));
    let bench = Bench::on(faulty.clone(), &[]);
    let log = bench.open();
    lead(&log, 1, 1, 100);
    faulty.inject(Fault::on(Call::Replace));
    let append = || log.append_as_leader(batch(1, 1, 100), LeaderEpoch::new(7), Origin::Client);
    append().expect_err("the epoch file");
    assert_eq!((log.log_end_offset().get(), log.latest_epoch()), (1, Some(LeaderEpoch::new(0))));
    append().expect("an append");
    log.close().expect("closed");
    assert_eq!(bench.open().latest_epoch(), Some(LeaderEpoch::new(7)));
}

#[test]
fn what_background_work_could_not_do_can_be_asked_for() {
    let faulty = Arc::new(Faulty::new(kseg_io_backends::open("memory").expect("memory")));
    let bench = Bench::on(faulty.clone(), &[]);
    let log = bench.open();
    let last = || log.state(false).expect("state").last_trouble.map(|t| (t.task, t.error));
    for n in 0..10 {
        lead(&log, 1, n, 100);
        if n == 4 {
            log.roll(None).expect("a roll");
        }
    }
    assert_eq!(last(), None);

    log.update_high_watermark(Offset::new(10));
    log.increment_log_start_offset(Offset::new(5)).expect("moved");
    log.delete_old_segments().expect("retention");
    faulty.inject(Fault::on(Call::Remove).role("deleted"));
    bench.scheduler.advance(3_600_000);
    let (task, error) = last().expect("a failed removal");
    assert_eq!(task, "delete-file");
    assert!(error.contains("00000000000000000000.log.deleted"), "{error}");

    faulty.inject(Fault::on(Call::Replace));
    log.increment_log_start_offset(Offset::new(7)).expect("moved all the same");
    let (task, error) = last().expect("a failed write");
    assert_eq!(task, "leader-epoch-cache-flush");
    assert!(error.contains("leader-epoch-checkpoint"), "{error}");

    faulty.inject(Fault::on(Call::Flush).role("log"));
    log.roll(None).expect("the flush is for later");
    let (task, error) = last().expect("a failed flush");
    assert_eq!((task, log.recovery_point().get()), ("flush-log", 7));
    assert!(error.contains(".log"), "{error}");
    assert_eq!(log.last_trouble().map(|t| t.at_ms), Some(13_600_000));
    assert!(log.append_as_leader(batch(1, 1, 100), LeaderEpoch::new(0), Origin::Client).is_err());
}

/// A log with an index entry for each batch: 512 of them fill a page of the offset index.
fn thick(faulty: &Arc<Faulty>) -> Bench {
    Bench::on(faulty.clone(), &[("index.interval.bytes", "1")])
}

#[test]
fn an_append_for_whose_index_entries_there_is_no_space_is_refused() {
    let faulty = Arc::new(Faulty::new(kseg_io_backends::open("memory").expect("memory")));
    let bench = thick(&faulty);
    let log = bench.open();
    let mut refusals = 0;
    for n in 0..1200 {
        faulty.inject(Fault::on(Call::Reserve).always().error(Fault::ENOSPC));
        let appended = log.append_as_leader(batch(1, n, 100), LeaderEpoch::new(0), Origin::Client);
        if let Err(full) = appended {
            assert_eq!(full.kafka_name(), "IOException");
            assert!(full.to_string().contains("index: No space"), "{full}");
            assert_eq!((log.log_end_offset().get(), log.size()), (n, n as u64 * 100));
            refusals += 1;
            faulty.clear();
            assert_eq!(lead(&log, 1, n, 100).first_offset, Some(Offset::new(n)));
        }
        faulty.clear();
        assert_eq!(read(&log, n), (n, 100));
    }
    // Both at the first, then the offset index once and the time index twice.
    assert!((4..=5).contains(&refusals), "{refusals}");
    // The entry that ends the time index has its space as well.
    faulty.inject(Fault::on(Call::Reserve).error(Fault::ENOSPC));
    log.close().expect("closed");
    faulty.clear();
    let log = bench.open_at(true, 1200, 0);
    assert!(log.load_report().is_quiet(), "{}", log.load_report());
    assert_eq!(spans(&log, 0).len(), 1200);
    assert_eq!(log.close().map_err(|e| e.to_string()), Ok(()));
}

#[test]
fn indexes_take_what_they_need_where_there_is_no_more() {
    let faulty = Arc::new(Faulty::new(kseg_io_backends::open("memory").expect("memory")));
    let bench = thick(&faulty);
    let log = bench.open();
    lead(&log, 1, 0, 100);
    let mut refused = 0;
    for n in 1..1200 {
        let before = faulty.fired();
        // The next request alone: for a page each, the second is granted.
        faulty.inject(Fault::on(Call::Reserve).error(Fault::ENOSPC));
        lead(&log, 1, n, 100);
        refused += faulty.fired() - before;
        faulty.clear();
    }
    assert!(refused >= 3, "{refused}");
    log.close().expect("closed");
    let log = bench.open_at(true, 1200, 0);
    assert_eq!((spans(&log, 0).len(), log.load_report().is_quiet()), (1200, true));
}

/// As on a small disk of which the log file has taken all that was left.
#[test]
fn space_that_a_log_file_has_taken_ahead_is_given_back_for_index_entries() {
    let above = tempfile::tempdir().expect("a folder");
    let spec = "std,zeroed=64k";
    let faulty = Arc::new(Faulty::new(kseg_io_backends::open(spec).expect(spec)));
    let (full, given_back) = (faulty.clone(), Arc::new(AtomicUsize::new(0)));
    let count = given_back.clone();
    let watched = Watched::new(faulty.clone(), move |moment, call, path| {
        if (moment, call) == (Moment::Done, Call::SetLen) && path.ends_with(name(0, "log")) {
            full.clear();
            count.fetch_add(1, Ordering::Relaxed);
        }
    });
    let bench = Bench::below(above.path(), Arc::new(watched), &[("index.interval.bytes", "1")]);
    let log = bench.open();
    lead(&log, 1, 0, 100);
    for kind in ["index", "timeindex"] {
        faulty.inject(Fault::on(Call::Reserve).role(kind).always().error(Fault::ENOSPC));
    }
    for n in 1..1200 {
        lead(&log, 1, n, 100);
    }
    assert_eq!(given_back.load(Ordering::Relaxed), 1);
    assert_eq!((log.log_end_offset().get(), log.size()), (1200, 120_000));
    log.close().expect("closed");
    let log = bench.open_at(true, 1200, 0);
    assert_eq!((spans(&log, 0).len(), log.load_report().is_quiet()), (1200, true));
}

#[test]
fn indexes_that_are_made_anew_take_their_space_first() {
    let faulty = Arc::new(Faulty::new(kseg_io_backends::open("memory").expect("memory")));
    let bench = thick(&faulty);
    let log = bench.open();
    for n in 0..20 {
        lead(&log, 1, n, 100);
    }
    log.close().expect("closed");
    let open = |clean| {
        let options = kseg_log::OpenOptions { clean, recovery_point: Offset::new(20), ..bench.options() };
        kseg_log::Log::open(&bench.dir, options)
    };
    let before = contents(&bench, &name(0, "log"));
    for clean in [true, false] {
        remove(&bench, &name(0, "index"));
        remove(&bench, &name(0, "timeindex"));
        faulty.inject(Fault::on(Call::Reserve).error(Fault::ENOSPC));
        let full = open(clean).map(drop).expect_err("no space");
        assert!(full.to_string().contains("index: No space"), "{full}");
        faulty.clear();
        assert_eq!(contents(&bench, &name(0, "log")), before);
        let log = open(clean).expect("a log");
        assert_eq!(spans(&log, 0).len(), 20);
        // No space is asked for where the batches that stay have their entries.
        faulty.inject(Fault::on(Call::Reserve).error(Fault::ENOSPC));
        log.close().expect("closed");
        faulty.clear();
    }
}

#[test]
fn a_file_system_that_reserves_nothing_has_zeros_written() {
    let faulty = Arc::new(Faulty::new(kseg_io_backends::open("memory").expect("memory")));
    let bench = thick(&faulty);
    let log = bench.open();
    lead(&log, 1, 0, 100);
    let path = bench.dir.join(name(0, "index"));
    for n in 1..600 {
        // The first of the two ways.
        faulty.inject(Fault::on(Call::Reserve).error(95));
        lead(&log, 1, n, 100);
        faulty.clear();
    }
    assert!(bench.backend.names().stat(&path).expect("stat").is_some());
    log.close().expect("closed");
    let log = bench.open_at(true, 600, 0);
    assert_eq!((spans(&log, 0).len(), log.load_report().is_quiet()), (600, true));
}
