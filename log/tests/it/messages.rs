//! What an operator is told of, by way of `tracing`.

use std::fmt::Write as _;
use std::path::Path;
use std::sync::{Arc, Mutex, OnceLock};

use kseg_format::Offset;
use kseg_io_backends::{Call, Fault, Faulty};
use kseg_log::{LogDir, LogDirOptions, TopicPartition};
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Dispatch, Event, Metadata, Subscriber};

use crate::support::*;

/// Keeps each event as a line: level, message, fields.
#[derive(Clone, Default)]
struct Lines(Arc<Mutex<Vec<String>>>);

struct Line(String);

impl Visit for Line {
    fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
        let written = match field.name() {
            "message" => write!(self.0, " {value:?}"),
            name => write!(self.0, " {name}={value:?}"),
        };
        written.expect("text");
    }
}

impl Subscriber for Lines {
    fn enabled(&self, _: &Metadata<'_>) -> bool {
        true
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        let mut line = Line(event.metadata().level().to_string());
        event.record(&mut line);
        self.0.lock().expect("lines").push(line.0);
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

impl Lines {
    /// What `f` tells.
    fn of<T>(f: impl FnOnce() -> T) -> (T, Vec<String>) {
        // While there is one subscriber alone, tracing asks the thread that first comes to a message whether anybody wants
        // it, and remembers the answer: beside tests that have none the message would be lost. So there are always two.
        static SECOND: OnceLock<Dispatch> = OnceLock::new();
        SECOND.get_or_init(|| Dispatch::new(Lines::default()));
        let lines = Lines::default();
        let value = tracing::subscriber::with_default(lines.clone(), f);
        let told = lines.0.lock().expect("lines").clone();
        (value, told)
    }
}

#[track_caller]
fn told(lines: &[String], parts: &[&str]) {
    let found = lines.iter().any(|line| parts.iter().all(|part| line.contains(part)));
    assert!(found, "expected a line with {parts:?} among {lines:#?}");
}

#[test]
fn a_logs_life_is_told() {
    let bench = Bench::new(&[("internal.segment.bytes", "300"), ("retention.bytes", "600")]);
    let (log, lines) = Lines::of(|| {
        let log = bench.open();
        for n in 0..10 {
            lead(&log, 1, n, 250);
        }
        log
    });
    told(&lines, &["INFO", "log loaded", "/data/t-0", "segments=1", "log_end=0"]);
    told(&lines, &["INFO", "segment rolled", "base=9"]);
    let ((), lines) = Lines::of(|| {
        log.update_high_watermark(Offset::new(10));
        log.update_high_watermark(Offset::new(8));
        log.delete_old_segments().expect("retention");
        log.truncate_to(Offset::new(7)).expect("truncated");
        log.truncate_to(Offset::new(99)).expect("nothing to do");
    });
    told(&lines, &["WARN", "moved backwards", "before=10", "now=8"]);
    told(&lines, &["INFO", "deleting segments", "Size", "bases=[0, 1"]);
    told(&lines, &["INFO", "log start offset raised", "/data/t-0"]);
    told(&lines, &["INFO", "will be deleted", "00000000000000000000.log.deleted", "delay_ms=60000"]);
    told(&lines, &["WARN", "below the high watermark", "offset=7", "high_watermark=8"]);
    told(&lines, &["INFO", "truncating", "offset=7", "log_end=10"]);
    told(&lines, &["INFO", "no effect", "offset=99"]);
}

#[test]
fn what_recovery_did_is_told() {
    let bench = Bench::new(&[]);
    let log = bench.open();
    lead(&log, 1, 1, 100);
    log.abandon();
    let path = Path::new(DIR).join("00000000000000000000.log");
    let mut bytes = bench.backend.names().read(&path, 1000).expect("read").expect("there");
    bytes.extend_from_slice(&[7; 40]);
    bench.backend.names().write(&path, &bytes, true).expect("damaged");
    let (_log, lines) = Lines::of(|| bench.open_unclean(0));
    told(&lines, &["INFO", "unflushed segment recovered", "base=0"]);
    told(&lines, &["WARN", "00000000000000000000.log", "100"]);
    told(&lines, &["INFO", "log loaded", "clean=false", "log_end=1"]);
}

#[test]
fn what_happens_to_a_directory_is_told() {
    let faulty = Arc::new(Faulty::new(kseg_io_backends::open("memory").expect("memory")));
    let bench = Bench::on(faulty.clone(), &[]);
    let options = LogDirOptions {
        clock: bench.clock.clone(),
        scheduler: bench.scheduler.clone(),
        ..LogDirOptions::new(bench.backend.clone())
    };
    bench.backend.names().create_dir_all(Path::new("/disk/lost+found")).expect("made");
    let partition = |n| TopicPartition::new("t", n);
    let (dir, lines) = Lines::of(|| {
        let dir = LogDir::open(Path::new("/disk"), options).expect("open");
        for n in 0..3 {
            lead(&dir.get_or_create(&partition(n), None).expect("a log"), 1, 1, 100);
        }
        dir.delete(&partition(0)).expect("deleted");
        dir.set_aside(&partition(1)).expect("set aside");
        bench.scheduler.advance(60_000);
        dir
    });
    told(&lines, &["WARN", "lost+found", "left alone"]);
    told(&lines, &["INFO", "renamed for deletion", "/disk/t-0", "-delete"]);
    told(&lines, &["WARN", "set aside", "/disk/t-1", "-stray"]);
    told(&lines, &["INFO", "partition deleted", "-delete"]);
    let ((), lines) = Lines::of(|| {
        faulty.inject(Fault::on(Call::Flush).role("log"));
        dir.get(&partition(2)).expect("open").expect("a log").flush(true).expect_err("a failed sync");
    });
    told(&lines, &["ERROR", "out of service", "/disk", "00000000000000000000.log"]);
}
