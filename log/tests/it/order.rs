//! What waits for what, and what comes before what: seen through a backend that tells of every call.

use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::time::Duration;

use kseg_format::{LeaderEpoch, Offset, Timestamp};
use kseg_io_backends::{Backend, Call, Fault, Faulty, Moment, Watched};
use kseg_log::{LogDir, LogDirOptions, TimestampQuery, TopicPartition};

use crate::support::*;

fn memory() -> Arc<dyn Backend> {
    kseg_io_backends::open("memory").expect("memory is always there")
}

/// Holds back the first call of a kind that is made once it is armed, until it is let go.
struct Gate {
    armed: Arc<AtomicBool>,
    reached: mpsc::Receiver<()>,
    open: mpsc::Sender<()>,
}

impl Gate {
    fn on(call: Call, end: &'static str) -> (Arc<dyn Backend>, Gate) {
        let armed = Arc::new(AtomicBool::new(false));
        let (tell, reached) = mpsc::channel();
        let (open, wait) = mpsc::channel();
        let (flag, ends) = (armed.clone(), Mutex::new((tell, wait)));
        let backend = Watched::new(memory(), move |moment, made, path| {
            let meant = moment == Moment::Before && made == call && path.to_string_lossy().ends_with(end);
            if meant && flag.swap(false, Ordering::SeqCst) {
                let ends = ends.lock().expect("a gate");
                ends.0.send(()).expect("somebody waits");
                ends.1.recv().expect("somebody opens");
            }
        });
        (Arc::new(backend), Gate { armed, reached, open })
    }

    fn arm(&self) {
        self.armed.store(true, Ordering::SeqCst);
    }

    /// Runs `held`, which the gate holds back, and beside it `free`, which it must not: what `free` answered, or `None`
    /// where it answers only behind the gate.
    fn beside<T: Send>(&self, held: impl FnOnce() + Send, free: impl FnOnce() -> T + Send) -> Option<T> {
        /// Long enough for any machine; a run in which nothing waits takes none of it.
        const PATIENCE: Duration = Duration::from_secs(20);
        self.arm();
        std::thread::scope(|scope| {
            scope.spawn(held);
            self.reached.recv().expect("the call is made");
            let (tell, told) = mpsc::channel();
            scope.spawn(move || tell.send(free()));
            let answer = told.recv_timeout(PATIENCE).ok();
            self.open.send(()).expect("somebody is held");
            answer
        })
    }
}

#[test]
fn readers_do_not_wait_for_the_write_of_an_append() {
    let (backend, gate) = Gate::on(Call::Write, ".log");
    let log = Bench::on(backend, &[]).open();
    lead(&log, 2, 5, 200);
    let answer = gate.beside(
        || {
            lead(&log, 1, 9, 100);
        },
        || {
            let by_time = log.offset_for_timestamp(TimestampQuery::At(Timestamp::new(5))).expect("a lookup");
            (read(&log, 0), by_time.is_some(), log.log_end_offset().get(), log.size())
        },
    );
    assert_eq!(answer, Some(((0, 200), true, 2, 200)));
    assert_eq!(offsets(&log).2, 3);
}

#[test]
fn appends_do_not_wait_for_a_flush() {
    let (backend, gate) = Gate::on(Call::Flush, ".log");
    let log = Bench::on(backend, &[]).open();
    lead(&log, 2, 5, 200);
    let first = gate.beside(|| log.flush(false).expect("flushed"), || lead(&log, 1, 9, 100).first_offset);
    assert_eq!(first, Some(Some(Offset::new(2))));
    // What came beside it is not covered.
    assert_eq!(log.recovery_point().get(), 2);
}

#[test]
fn a_log_is_opened_while_another_one_recovers() {
    let (backend, gate) = Gate::on(Call::Read, "t-0/00000000000000000000.log");
    let bench = Bench::on(backend, &[]);
    let options =
        || LogDirOptions { scheduler: bench.scheduler.clone(), ..LogDirOptions::new(bench.backend.clone()) };
    let [slow, other] = [0, 1].map(|n| TopicPartition::new("t", n));
    let dir = LogDir::open(Path::new("/data"), options()).expect("open");
    lead(&dir.get_or_create(&slow, None).expect("a log"), 3, 1, 200);
    lead(&dir.get_or_create(&other, None).expect("a log"), 4, 1, 200);
    drop(dir);
    let dir = LogDir::open(Path::new("/data"), options()).expect("open");
    let opened = Mutex::new(Vec::new());
    let recover = || opened.lock().expect("logs").push(dir.get(&slow).expect("open").expect("a log"));
    let end = gate.beside(
        || std::thread::scope(|scope| (0..4).for_each(|_| drop(scope.spawn(recover)))),
        || {
            dir.checkpoint().expect("written");
            dir.get(&other).expect("open").expect("a log").log_end_offset().get()
        },
    );
    assert_eq!(end, Some(4));
    // All who asked for the one that recovered got the same log.
    let opened = opened.into_inner().expect("logs");
    assert_eq!((opened.len(), opened[0].log_end_offset().get()), (4, 3));
    assert!(opened.iter().all(|log| Arc::ptr_eq(log, &opened[0])));
}

#[test]
fn the_epoch_file_has_one_writer_at_a_time() {
    let (inside, overlaps) = (AtomicU64::new(0), Arc::new(AtomicU64::new(0)));
    let seen = overlaps.clone();
    let backend = Arc::new(Watched::new(memory(), move |moment, call, path| {
        if call != Call::Replace || !path.ends_with("leader-epoch-checkpoint") {
            return;
        }
        if moment != Moment::Before {
            inside.fetch_sub(1, Ordering::SeqCst);
            return;
        }
        seen.fetch_add(inside.fetch_add(1, Ordering::SeqCst), Ordering::SeqCst);
        // Whoever else may come in now does.
        (0..10).for_each(|_| std::thread::yield_now());
    }));
    let bench = Bench::on(backend, &[]);
    let log = bench.open();
    const EPOCHS: i32 = 30;
    for epoch in 0..EPOCHS {
        let bytes = batch(1, 1, 100);
        log.append_as_leader(bytes, LeaderEpoch::new(epoch), kseg_format::Origin::Client).expect("an append");
    }
    log.update_high_watermark(Offset::new(EPOCHS.into()));
    std::thread::scope(|scope| {
        // The log's mutex is held while a new epoch is written, and not while what is owed is.
        scope.spawn(|| {
            for epoch in EPOCHS..2 * EPOCHS {
                log.assign_epoch(LeaderEpoch::new(epoch), Offset::new(epoch.into())).expect("noted");
            }
        });
        scope.spawn(|| {
            for start in 1..i64::from(EPOCHS) {
                log.increment_log_start_offset(Offset::new(start)).expect("moved");
            }
        });
    });
    assert_eq!(overlaps.load(Ordering::SeqCst), 0);
    let path = Path::new(DIR).join("leader-epoch-checkpoint");
    let text = bench.backend.names().read(&path, 10_000).expect("read").expect("a file");
    assert_eq!(String::from_utf8_lossy(&text).lines().nth(1), Some((EPOCHS + 1).to_string().as_str()));
}

/// A log of 25 batches in three segments, the fifth batch damaged, as a crash left it.
fn damaged(bench: &Bench) {
    let log = bench.open();
    for n in 0..25 {
        lead(&log, 1, n, 100);
    }
    log.abandon();
    let path = Path::new(DIR).join("00000000000000000000.log");
    let mut bytes = bench.backend.names().read(&path, 10_000).expect("read").expect("a file");
    bytes[450] ^= 1;
    bench.backend.names().write(&path, &bytes, false).expect("written");
}

#[test]
fn a_recovery_that_stops_anywhere_leaves_no_hole() {
    let calls =
        [Call::Open, Call::Write, Call::Flush, Call::SetLen, Call::Remove, Call::SyncDir, Call::Replace];
    let mut stopped = 0;
    for call in calls {
        for nth in 1.. {
            let faulty = Arc::new(Faulty::new(memory()));
            let bench = Bench::on(
                faulty.clone(),
                &[("internal.segment.bytes", "1000"), ("segment.index.bytes", "1000")],
            );
            damaged(&bench);
            let before = faulty.fired();
            faulty.inject(Fault::on(call).nth(nth).always());
            let options = kseg_log::OpenOptions { clean: false, ..bench.options() };
            if let Ok(log) = kseg_log::Log::open(Path::new(DIR), options) {
                log.abandon();
            }
            faulty.clear();
            if faulty.fired() == before {
                break;
            }
            stopped += 1;
            let log = bench.open_unclean(0);
            assert_eq!((offsets(&log).2, bases(&log)), (4, vec![0]), "{call:?} {nth}");
            // Every byte that left the log is kept.
            let kept = |name: &str, len| bench.files().iter().any(|(n, l)| n.starts_with(name) && *l == len);
            for (name, len) in [
                ("00000000000000000000.log.cut", 600),
                ("00000000000000000010.log.cut", 1000),
                ("00000000000000000020.log.cut", 500),
            ] {
                assert!(kept(name, len), "{call:?} {nth}: {name} in {:?}", bench.files());
            }
        }
    }
    assert!(stopped > 20, "{stopped}");
}

#[test]
fn iob_11_a_directory_is_synced_when_names_in_it_have_to_last() {
    let calls = Arc::new(Mutex::new(Vec::new()));
    let notes = calls.clone();
    let backend = Arc::new(Watched::new(memory(), move |moment, call, path| {
        let names = [Call::Remove, Call::WriteFile, Call::Replace, Call::CreateDir, Call::SyncDir];
        if moment == Moment::Done && names.contains(&call) {
            notes.lock().expect("notes").push(format!("{call:?} {}", path.display()));
        }
    }));
    let bench = Bench::on(backend, &[]);
    let since = || std::mem::take(&mut *calls.lock().expect("notes"));
    let options =
        || LogDirOptions { scheduler: bench.scheduler.clone(), ..LogDirOptions::new(bench.backend.clone()) };
    let open = || LogDir::open(Path::new("/data"), options()).expect("open");
    let partition = TopicPartition::new("t", 0);

    let dir = open();
    assert_eq!(since()[..2], ["CreateDir /data", "SyncDir /"]);
    let log = dir.get_or_create(&partition, None).expect("a log");
    assert_eq!(since()[..2], ["CreateDir /data/t-0", "SyncDir /data"]);
    lead(&log, 10, 1, 200);
    log.roll(None).expect("a roll");
    // The flush that a roll schedules makes the new segment's name last; those behind it have nothing to add.
    assert_eq!(since().iter().filter(|c| *c == "SyncDir /data/t-0").count(), 1);
    lead(&log, 10, 1, 200);
    log.flush(false).expect("flushed");
    lead(&log, 10, 1, 200);
    log.flush(false).expect("flushed");
    assert!(!since().iter().any(|c| c == "SyncDir /data/t-0"));

    log.update_high_watermark(Offset::new(20));
    log.increment_log_start_offset(Offset::new(5)).expect("moved");
    dir.checkpoint().expect("written");
    // Each of these is atomic and durable, its name included.
    let checkpoints = [
        "Replace /data/recovery-point-offset-checkpoint",
        "Replace /data/log-start-offset-checkpoint",
        "Replace /data/replication-offset-checkpoint",
    ];
    assert_eq!(since().into_iter().filter(|c| c.contains("-offset-")).collect::<Vec<_>>(), checkpoints);

    drop(log);
    assert!(dir.shutdown().expect("stopped").clean);
    let calls = since();
    let end =
        [&checkpoints[..], &["WriteFile /data/.kafka_cleanshutdown", "SyncDir /data", "Remove /data/.lock"]];
    assert_eq!(calls[calls.len() - 6..], end.concat());
    drop(open());
    assert_eq!(since()[..2], ["Remove /data/.kafka_cleanshutdown", "SyncDir /data"]);
}

#[test]
fn a_flush_beside_a_truncation_vouches_for_nothing_that_was_written_behind_it() {
    let (backend, gate) = Gate::on(Call::SyncDir, "t-0");
    let bench = Bench::on(backend, &[]);
    let log = bench.open();
    for n in 0..10 {
        lead(&log, 1, n, 100);
    }
    let ended = gate.beside(
        || log.flush(true).expect("flushed"),
        || {
            log.truncate_to(Offset::new(5)).expect("truncated");
            for n in 0..10 {
                lead(&log, 1, n, 100);
            }
            log.log_end_offset().get()
        },
    );
    assert_eq!(ended, Some(15));
    assert!(log.recovery_point() <= Offset::new(5), "{}", log.recovery_point());
    log.flush(false).expect("flushed");
    assert_eq!(log.recovery_point(), Offset::new(15));
}
