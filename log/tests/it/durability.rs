//! Handles on records that will be durable: waited on, asked, awaited; across rolls, truncations, fences and closes.

use std::future::Future;
use std::path::Path;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, mpsc};
use std::task::{Context, Poll, Wake, Waker};
use std::thread;
use std::time::Duration;

use kseg_format::{LeaderEpoch, Offset, Origin};
use kseg_io_backends::{Backend, Call, Fault, Faulty, Loss, Metered, Moment, PowerLoss, Watched};
use kseg_log::{
    BatchWriter, Durability, Error, Log, LogDir, LogDirOptions, OpenOptions, ThreadScheduler, TopicPartition,
    TransactionVersion, WriterOptions,
};

use crate::places;
use crate::support::*;

/// Far longer than anything here takes: what meets it hangs.
const NEVER: Duration = Duration::from_secs(30);

fn ask(log: &Log, size: usize) -> Durability {
    let version = TransactionVersion::V0;
    let (_, durability) = log
        .append_as_leader_durable(batch(1, 1, size), LeaderEpoch::new(0), Origin::Client, version)
        .expect("an append");
    durability
}

/// Runs a future on this thread.
fn block_on<F: Future>(future: F) -> F::Output {
    struct Unpark(thread::Thread);
    impl Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }
    let waker = Waker::from(Arc::new(Unpark(thread::current())));
    let mut context = Context::from_waker(&waker);
    let mut future = pin!(future);
    loop {
        if let Poll::Ready(output) = future.as_mut().poll(&mut context) {
            return output;
        }
        thread::park_timeout(NEVER);
    }
}

fn cause(result: kseg_log::Result<()>) -> String {
    match result.expect_err("not durable") {
        Error::NotDurable { cause, .. } => cause,
        other => other.to_string(),
    }
}

#[test]
fn one_flush_serves_all_who_asked_before_it() {
    places::with_each(|spec, backend, dir| {
        let metered = Arc::new(Metered::new(backend));
        let bench = Bench::below(dir, metered.clone(), &[]);
        let log = bench.open();
        log.flush(true).expect("flushed");
        metered.reset();
        let handles: Vec<_> = (0..20).map(|_| ask(&log, 300)).collect();
        assert!(
            handles.iter().all(|handle| handle.check().is_none()),
            "{spec}: nothing is told before a flush"
        );
        assert_eq!((handles[3].end_offset().get(), log.recovery_point().get()), (4, 0));
        for handle in handles {
            handle.wait().expect(spec);
        }
        let syncs = metered.calls(Call::Flush, "log").calls;
        // Where writes are durable by themselves nothing is left to sync.
        assert!(syncs <= 1, "{spec}: {syncs} syncs");
        assert_eq!(log.recovery_point().get(), 20, "{spec}");
        assert_eq!(metered.calls(Call::SyncDir, "").calls, 0, "{spec}: the names were durable");
    });
}

#[test]
fn a_handle_reaches_back_over_rolls_and_over_the_names_of_their_files() {
    let watched = Arc::new(Metered::new(kseg_io_backends::open("memory").expect("memory")));
    let bench = Bench::on(watched.clone(), &[("file.delete.delay.ms", "1")]);
    // Its flushes after a roll do not come to run.
    struct Never;
    impl std::fmt::Debug for Never {
        fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            f.write_str("Never")
        }
    }
    impl kseg_log::Scheduler for Never {
        fn schedule(&self, _: &'static str, _: u64, _: kseg_log::Task) {}
    }
    let options = OpenOptions { scheduler: Arc::new(Never), ..bench.options() };
    let log = Log::open(Path::new(DIR), options).expect("a log");
    log.flush(true).expect("flushed");
    let first = ask(&log, 100);
    log.roll(None).expect("a roll");
    let second = ask(&log, 100);
    log.roll(None).expect("a roll");
    watched.reset();
    second.wait().expect("durable");
    assert_eq!(watched.calls(Call::Flush, "log").calls, 2, "both segments");
    assert_eq!(watched.calls(Call::SyncDir, "").calls, 1, "and their names");
    assert!(matches!(first.check(), Some(Ok(()))), "what comes before is durable too");
}

#[test]
fn iob_11_an_acknowledged_handle_is_kept_through_a_loss_of_power_wherever_its_segment_is() {
    // The roll lies before the append, between it and the wait, or nowhere.
    for roll in 0..3 {
        for await_it in [false, true] {
            let disk = Arc::new(PowerLoss::new());
            let options = LogDirOptions::new(disk.clone() as Arc<dyn Backend>);
            let dir = LogDir::open(Path::new("/mnt/data"), options).expect("a directory");
            let log = dir.get_or_create(&TopicPartition::new("t", 0), None).expect("a log");
            lead(&log, 1, 1, 100);
            if roll == 0 {
                log.roll(None).expect("a roll");
            }
            let handle = ask(&log, 100);
            if roll == 1 {
                log.roll(None).expect("a roll");
                lead(&log, 1, 1, 100);
            }
            if await_it { block_on(handle) } else { handle.wait() }.expect("durable");
            for loss in [Loss::Everything, Loss::Names, Loss::Bytes] {
                let options = LogDirOptions::new(Arc::new(disk.after(loss)) as Arc<dyn Backend>);
                let dir = LogDir::open(Path::new("/mnt/data"), options).expect("a directory");
                let log = dir.get_or_create(&TopicPartition::new("t", 0), None).expect("a log");
                assert!(log.log_end_offset().get() >= 2, "{roll} {loss:?}");
                assert_eq!(spans(&log, 0)[..2], [(0, 0), (1, 1)], "{roll} {loss:?}");
            }
        }
    }
}

#[test]
fn iob_11_an_acknowledged_handle_is_kept_in_a_folder_that_was_not_there_before() {
    for dir in ["/new/data", "/data", "data", "new/data"].map(Path::new) {
        let folder = dir.join("t-0");
        let disk = Arc::new(PowerLoss::new());
        let lone = Log::open(&folder, OpenOptions::new(disk.clone() as Arc<dyn Backend>)).expect("a log");
        ask(&lone, 100).wait().expect("durable");
        let whole = Arc::new(PowerLoss::new());
        let options = LogDirOptions::new(whole.clone() as Arc<dyn Backend>);
        let in_dir = LogDir::open(dir, options).expect("a directory");
        let log = in_dir.get_or_create(&TopicPartition::new("t", 0), None).expect("a log");
        ask(&log, 100).wait().expect("durable");
        for disk in [disk, whole] {
            for loss in [Loss::Everything, Loss::Names, Loss::Bytes] {
                let found = Arc::new(disk.after(loss)) as Arc<dyn Backend>;
                let log = Log::open(&folder, OpenOptions::new(found)).expect("a log");
                assert_eq!(log.log_end_offset().get(), 1, "{folder:?} {loss:?}");
            }
        }
    }
}

#[test]
fn records_that_were_deleted_before_a_flush_take_no_later_ones_with_them() {
    let disk = Arc::new(PowerLoss::new());
    let open = |disk: Arc<PowerLoss>| {
        let dir = LogDir::open(Path::new("/mnt/data"), LogDirOptions::new(disk as Arc<dyn Backend>));
        let dir = dir.expect("a directory");
        let log = dir.get_or_create(&TopicPartition::new("t", 0), None).expect("a log");
        (dir, log)
    };
    let (_dir, log) = open(disk.clone());
    lead(&log, 5, 1, 100);
    log.update_high_watermark(Offset::new(5));
    assert!(log.increment_log_start_offset(Offset::new(5)).expect("raised"));
    assert_eq!(log.recovery_point().get(), 5, "as in Kafka");
    log.roll(None).expect("a roll");
    ask(&log, 100).wait().expect("durable");
    // No checkpoint tells of the log start: recovery walks over the deleted ones, too.
    let (_dir, log) = open(Arc::new(disk.after(Loss::Everything)));
    assert_eq!(log.log_end_offset().get(), 6);
}

#[test]
fn a_failed_sync_reaches_everybody_and_names_the_first_error() {
    places::with_each(|spec, backend, dir| {
        let faulty = Arc::new(Faulty::new(backend));
        let bench = Bench::below(dir, faulty.clone(), &[]);
        let log = bench.open();
        let early = ask(&log, 100);
        log.flush(false).expect("flushed");
        faulty.inject(Fault::on(Call::Flush).role("log").always());
        faulty.inject(Fault::on(Call::Write).role("log").always());
        let version = TransactionVersion::V0;
        let append = || {
            let bytes = batch(1, 1, 100);
            log.append_as_leader_durable(bytes, LeaderEpoch::new(0), Origin::Client, version)
        };
        faulty.clear();
        faulty.inject(Fault::on(Call::Flush).role("log"));
        let handles: Vec<_> = (0..5).map(|_| append().expect("accepted").1).collect();
        let mut handles = handles.into_iter();
        let first = handles.next().expect("one").wait();
        if faulty.fired() == 0 {
            // Its writes are durable by themselves.
            assert!(first.is_ok(), "{spec}");
            return;
        }
        let text = first.expect_err("a failed sync").to_string();
        assert!(text.contains(".log"), "{spec}: {text}");
        let second = handles.next().expect("one");
        assert!(cause(second.wait()).contains(".log"), "{spec}");
        assert!(cause(block_on(handles.next().expect("one"))).contains(".log"), "{spec}");
        assert!(matches!(handles.next().expect("one").check(), Some(Err(_))), "{spec}");
        early.wait().expect("what was durable stays so");
        assert!(append().is_err() && log.flush(false).is_err() && log.durability().is_err(), "{spec}");
        assert!(
            log.flush(false).expect_err("fenced").to_string().contains(".log"),
            "{spec}: the first error"
        );
        assert_eq!(log.recovery_point().get(), 1, "{spec}");
    });
}

#[test]
fn a_truncation_answers_those_it_cuts_and_no_others() {
    let bench = Bench::new(&[]);
    let log = bench.open();
    let handles: Vec<_> = (0..4).map(|_| ask(&log, 100)).collect();
    log.truncate_to(Offset::new(2)).expect("cut");
    // The same offsets again: that they are durable is not what was asked about.
    ask(&log, 100).wait().expect("durable");
    ask(&log, 100).wait().expect("durable");
    let told: Vec<_> = handles.into_iter().map(|handle| block_on(handle).is_ok()).collect();
    assert_eq!(told, [true, true, false, false]);
    let all = [ask(&log, 100), log.durability().expect("asked")];
    log.truncate_fully_and_start_at(Offset::new(100), None).expect("cut");
    for handle in all {
        assert!(cause(handle.wait()).contains("truncated"));
    }
    let mut told = ask(&log, 100);
    let untold = ask(&log, 100);
    log.flush(false).expect("durable");
    assert_eq!(log.recovery_point().get(), 102);
    block_on(&mut told).expect("durable");
    // What was promised was kept, whenever and however often somebody asks.
    log.truncate_to(Offset::new(100)).expect("cut");
    for _ in 0..2 {
        assert!(matches!((told.check(), untold.check()), (Some(Ok(())), Some(Ok(())))));
        block_on(&mut told).expect("durable");
    }
    drop(told);
    untold.wait().expect("durable");
}

#[test]
fn a_close_keeps_the_promise_and_an_abandoned_log_says_that_it_does_not() {
    places::with_each(|spec, backend, dir| {
        let bench = Bench::below(dir, backend, &[]);
        let log = bench.open();
        let (asked, awaited) = (ask(&log, 100), ask(&log, 100));
        log.close().expect("closed");
        assert!(matches!(asked.check(), Some(Ok(()))), "{spec}");
        block_on(awaited).expect(spec);
        asked.wait().expect(spec);
        assert_eq!(log.recovery_point().get(), 2, "{spec}");
        log.flush(false).expect("nothing is left to do");
        assert!(matches!(log.durability(), Err(Error::Closed { .. })));

        let log = bench.open();
        let (asked, awaited) = (ask(&log, 100), ask(&log, 100));
        log.abandon();
        assert!(cause(asked.wait()).contains("abandoned"), "{spec}");
        assert!(cause(block_on(awaited)).contains("abandoned"), "{spec}");
    });
}

#[test]
fn a_sync_that_a_truncation_overtakes_tells_nothing_of_what_came_later() {
    // A sync of the log's file is held until the log has been cut and has grown again.
    let (begun, at_sync) = mpsc::channel();
    let (go_on, cut) = mpsc::channel();
    let cut = std::sync::Mutex::new(cut);
    let armed = Arc::new(AtomicBool::new(false));
    let arm = armed.clone();
    let power = Arc::new(PowerLoss::new());
    let watched = Watched::new(power.clone(), move |moment, call, path| {
        let of_log = path.extension().is_some_and(|e| e == "log");
        if (moment, call, of_log) == (Moment::Done, Call::Flush, true) && arm.swap(false, Ordering::SeqCst) {
            begun.send(()).expect("somebody listens");
            cut.lock().expect("one").recv_timeout(NEVER).expect("the log is cut");
        }
    });
    let bench = Bench::on(Arc::new(watched), &[]);
    let log = Arc::new(bench.open());
    // Segments 0 and 3: the sync of the first one, which the truncation leaves alone, is the one that is held.
    for _ in 0..3 {
        lead(&log, 1, 1, 100);
    }
    armed.store(true, Ordering::SeqCst);
    let flush = thread::spawn({
        let log = log.clone();
        move || log.roll(None)
    });
    at_sync.recv_timeout(NEVER).expect("a sync");
    for _ in 0..3 {
        lead(&log, 1, 1, 100);
    }
    log.truncate_to(Offset::new(3)).expect("cut");
    let late = ask(&log, 100);
    go_on.send(()).expect("somebody waits");
    flush.join().expect("no panic").expect("rolled");
    assert!(late.check().is_none() && log.recovery_point().get() <= 3);
    late.wait().expect("durable");
    assert_eq!(log.recovery_point().get(), 4);
}

#[test]
fn handles_that_are_only_awaited_are_served_by_the_scheduler() {
    let bench = Bench::new(&[]);
    let options = OpenOptions { scheduler: ThreadScheduler::start().expect("a thread"), ..bench.options() };
    let log = Arc::new(Log::open(Path::new(DIR), options).expect("a log"));
    let answered = AtomicUsize::new(0);
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..20 {
                    block_on(ask(&log, 100)).expect("durable");
                    answered.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
    });
    assert_eq!((answered.into_inner(), log.recovery_point().get()), (80, 80));
}

#[test]
fn many_producers_are_all_told_and_never_too_early() {
    places::with_each(|spec, backend, dir| {
        let metered = Arc::new(Metered::new(backend));
        let bench = Bench::below(dir, metered.clone(), &[("internal.segment.bytes", "20000")]);
        let log = bench.open();
        thread::scope(|scope| {
            for number in 0..8 {
                let log = &log;
                scope.spawn(move || {
                    for round in 0..12 {
                        let handle = ask(log, 700);
                        let end = handle.end_offset();
                        let told = if (number + round) % 3 == 0 { block_on(handle) } else { handle.wait() };
                        told.expect(spec);
                        assert!(log.recovery_point() >= end, "{spec}");
                    }
                });
            }
        });
        assert_eq!(log.recovery_point().get(), 96, "{spec}");
        assert!(bases(&log).len() > 2, "{spec}: it rolled meanwhile");
        log.close().expect(spec);
        let log = bench.open();
        assert_eq!(spans(&log, 0).len(), 96, "{spec}");
    });
}

#[test]
fn a_flush_that_is_due_runs_without_the_logs_mutex_and_serves_all() {
    // While the first sync is held, others append: their syncs are one.
    let (begun, at_sync) = mpsc::channel();
    let (go_on, held) = mpsc::channel();
    let held = std::sync::Mutex::new(held);
    let syncs = Arc::new(AtomicUsize::new(0));
    let count = syncs.clone();
    let watched =
        Watched::new(kseg_io_backends::open("memory").expect("memory"), move |moment, call, path| {
            let sync = (moment, call) == (Moment::Before, Call::Flush)
                && path.extension().is_some_and(|e| e == "log");
            if sync && count.fetch_add(1, Ordering::SeqCst) == 0 {
                begun.send(()).expect("somebody listens");
                held.lock().expect("one").recv_timeout(NEVER).expect("released");
            }
        });
    let bench = Bench::on(Arc::new(watched), &[("flush.messages", "1")]);
    let log = bench.open();
    thread::scope(|scope| {
        scope.spawn(|| lead(&log, 1, 1, 100));
        at_sync.recv_timeout(NEVER).expect("a sync");
        for _ in 0..6 {
            scope.spawn(|| lead(&log, 1, 1, 100));
        }
        while log.log_end_offset().get() < 7 {
            thread::yield_now();
        }
        go_on.send(()).expect("somebody waits");
    });
    assert_eq!(log.recovery_point().get(), 7);
    // One of those that waited may have been the next leader before the last had asked.
    assert!(syncs.load(Ordering::SeqCst) <= 3, "{syncs:?}");
}

#[test]
fn a_batch_writer_asks_for_all_that_it_has_sent() {
    let bench = Bench::new(&[]);
    let log = Arc::new(bench.open());
    let mut writer =
        BatchWriter::new(log.clone(), WriterOptions { batch_size: 200, ..WriterOptions::default() });
    assert!(writer.flush_durable().expect("nothing to send").is_none());
    for _ in 0..30 {
        writer.append(None, None, Some(b"a record of some bytes"), &[]).expect("taken");
    }
    assert!(log.log_end_offset().get() > 0);
    let (info, durability) = writer.flush_durable().expect("sent").expect("something");
    assert_eq!((info.last_offset, log.recovery_point()), (Some(Offset::new(29)), Offset::ZERO));
    durability.wait().expect("durable");
    assert_eq!(log.recovery_point().get(), 30);
}

#[test]
fn appends_that_add_nothing_have_nothing_to_wait_for() {
    let bench = Bench::new(&[]);
    let log = bench.open();
    let (info, durability) =
        log.append_as_follower_durable(bytes::Bytes::new(), LeaderEpoch::new(0)).expect("nothing");
    assert_eq!(info.last_offset, None);
    assert!(matches!(durability.check(), Some(Ok(()))));
    let sent = Draft::new(1).of(7, 0, 0);
    sent.lead(&log).expect("appended");
    let again = log.append_as_leader_durable(
        sent.bytes(),
        LeaderEpoch::new(0),
        Origin::Client,
        TransactionVersion::V0,
    );
    let (info, durability) = again.expect("a duplicate");
    assert_eq!(info.first_offset, Some(Offset::ZERO));
    // It was acknowledged once, and is durable only now.
    assert!(durability.check().is_none());
    durability.wait().expect("durable");
    assert_eq!(log.recovery_point().get(), 1);
}
