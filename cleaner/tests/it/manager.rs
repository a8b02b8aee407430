//! Many logs: selection, states, checkpoints, partitions that are left alone, retention, threads.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use bytes::Bytes;
use kseg_cleaner::{Cleaner, CleanerOptions, Manager, ManagerOptions, Next, NullKey, PartitionState};
use kseg_format::{BatchOptions, Codec, LeaderEpoch, Offset, Origin};
use kseg_io_backends::{Backend, Call, MemoryBackend, Moment, OpenHow, Watched, write_all};
use kseg_log::{
    Clock, Compaction, Log, LogConfig, LogDir, LogDirOptions, LogManager, ManualClock, ManualScheduler,
    OpenOptions, TopicPartition,
};

use crate::bed::{Entry, NOW, batch, gone, kv};

const HOUR: i64 = 3_600_000;

fn cleaner_options() -> CleanerOptions {
    let mut options = CleanerOptions::default();
    options.map_bytes = 24 * 1000;
    options.null_key = NullKey::Discard;
    options
}

/// Data directories `/d0`, `/d1` with logs `t-0`, `t-1`, ..., and a manager of them.
struct Pool {
    backend: Arc<dyn Backend>,
    clock: Arc<ManualClock>,
    scheduler: Arc<ManualScheduler>,
    manager: Arc<Manager>,
    cleaner: Cleaner,
}

impl Pool {
    fn new() -> Pool {
        Pool::with(ManagerOptions::default())
    }

    fn with(options: ManagerOptions) -> Pool {
        Pool::on(Arc::new(MemoryBackend::new()), options)
    }

    fn on(backend: Arc<dyn Backend>, mut options: ManagerOptions) -> Pool {
        let clock = Arc::new(ManualClock::new(NOW));
        let scheduler = ManualScheduler::new(clock.clone());
        options.cleaner = cleaner_options();
        let manager = Manager::new(options, backend.clone(), clock.clone()).unwrap();
        let cleaner = Cleaner::new(cleaner_options()).unwrap();
        Pool { backend, clock, scheduler, manager, cleaner }
    }

    fn log(&self, dir: &str, partition: i32, pairs: &[(&str, &str)]) -> Arc<Log> {
        let mut all = vec![
            ("cleanup.policy", "compact"),
            ("segment.index.bytes", "2400"),
            ("min.cleanable.dirty.ratio", "0.0"),
        ];
        all.extend_from_slice(pairs);
        let options = OpenOptions {
            config: LogConfig::from_pairs(all).unwrap(),
            clock: self.clock.clone(),
            scheduler: self.scheduler.clone(),
            ..OpenOptions::new(self.backend.clone())
        };
        let log = Arc::new(Log::open(&PathBuf::from(format!("{dir}/t-{partition}")), options).unwrap());
        self.manager.add(Path::new(dir), log.clone()).unwrap();
        log
    }

    fn pass(&mut self) -> kseg_cleaner::Pass {
        self.manager.pass(&mut self.cleaner)
    }

    /// The partition that a pass cleans.
    fn cleaned(&mut self) -> Option<i32> {
        self.pass().cleaned.map(|(partition, ..)| partition.partition)
    }

    fn write(&self, dir: &str, text: &str) {
        self.backend.names().create_dir_all(Path::new(dir)).unwrap();
        let path = Path::new(dir).join("cleaner-offset-checkpoint");
        self.backend.names().replace(&path, text.as_bytes()).unwrap();
    }

    /// The checkpoint that was damaged, once it has been written anew.
    fn kept(&self, dir: &str) -> Option<String> {
        let path = Path::new(dir).join("cleaner-offset-checkpoint.damaged");
        self.backend.names().read(&path, 1 << 20).unwrap().map(|bytes| String::from_utf8(bytes).unwrap())
    }

    fn text(&self, dir: &str) -> String {
        let path = Path::new(dir).join("cleaner-offset-checkpoint");
        String::from_utf8(self.backend.names().read(&path, 1 << 20).unwrap().unwrap()).unwrap()
    }

    fn next(&self, partition: i32) -> Next {
        self.manager.status().into_iter().find(|s| s.partition == p(partition)).unwrap().next
    }
}

fn p(partition: i32) -> TopicPartition {
    TopicPartition::new("t", partition)
}

fn put(log: &Log, time: i64, entries: &[Entry<'_>]) {
    let times = vec![time; entries.len()];
    let bytes = batch(BatchOptions::default(), &times, entries);
    log.append_as_leader(bytes, LeaderEpoch::new(0), Origin::Client).unwrap();
    log.update_high_watermark(log.log_end_offset());
}

/// The same key so often, in a segment of its own.
fn fill(log: &Log, count: usize) {
    for n in 0..count {
        put(log, NOW, &[kv("k", &n.to_string())]);
    }
    log.roll(None).unwrap();
    log.update_high_watermark(log.log_end_offset());
}

fn damage(pool: &Pool, dir: &str, partition: i32, at: u64, bytes: &'static [u8]) {
    let path = PathBuf::from(format!("{dir}/t-{partition}/00000000000000000000.log"));
    let file = pool.backend.open(&path, OpenHow::Write).unwrap();
    write_all(&*file, at, Bytes::from_static(bytes).into()).unwrap();
}

#[test]
fn cln_13_cleaner_edge_102_and_134_and_135_and_167_a_bad_partition_is_left_alone_and_the_others_are_cleaned()
{
    let mut pool = Pool::new();
    let logs: Vec<_> = (0..3).map(|n| pool.log("/d0", n, &[])).collect();
    logs.iter().for_each(|log| fill(log, 4));
    damage(&pool, "/d0", 0, 8, &[0x7f]);
    damage(&pool, "/d0", 1, 16, &[0xff]);
    let mut seen = Vec::new();
    for _ in 0..4 {
        let pass = pool.pass();
        seen.extend(pass.cleaned.map(|(partition, ..)| (partition.partition, "cleaned")));
        seen.extend(
            pass.failed.into_iter().map(|(partition, error)| (partition.partition, error.kafka_name())),
        );
    }
    seen.sort_unstable();
    assert_eq!(seen, [(0, "CorruptRecordException"), (1, "CorruptRecordException"), (2, "cleaned")]);
    let marks = pool.manager.uncleanable();
    assert_eq!(marks.iter().map(|(p, _)| p.partition).collect::<Vec<_>>(), [0, 1]);
    assert!(marks[0].1.reason.contains("00000000000000000000.log"), "{}", marks[0].1.reason);
    let sealed = |n: usize| logs[n].sealed_segments().unwrap().0[0].size();
    assert_eq!(pool.manager.uncleanable_bytes(), sealed(0) + sealed(1));
    assert!(matches!(pool.next(0), Next::Uncleanable(_)));
    pool.manager.remove(&p(0)).unwrap();
    assert_eq!(pool.manager.uncleanable().len(), 1);
    // Somebody mended it, and says so.
    damage(&pool, "/d0", 1, 16, &[2]);
    assert!(pool.manager.clear_uncleanable(&p(1)) && !pool.manager.clear_uncleanable(&p(1)));
    assert_eq!(pool.cleaned(), Some(1));
}

#[test]
fn a_partition_that_failed_is_tried_again_after_a_while() {
    let mut pool = Pool::new();
    let log = pool.log("/d0", 0, &[]);
    fill(&log, 4);
    damage(&pool, "/d0", 0, 16, &[0xff]);
    assert!(!pool.pass().failed.is_empty());
    for _ in 0..3 {
        let pass = pool.pass();
        assert!(!pass.did_something() && pass.failed.is_empty());
    }
    pool.clock.set(NOW + 600_000);
    assert!(!pool.pass().failed.is_empty());
    assert_eq!(pool.manager.uncleanable()[0].1.failures, 2);
    damage(&pool, "/d0", 0, 16, &[2]);
    pool.clock.set(NOW + 1_200_000);
    assert_eq!(pool.cleaned(), None);
    pool.clock.set(NOW + 1_800_000);
    assert_eq!(pool.cleaned(), Some(0));
    assert_eq!(pool.manager.uncleanable().len(), 0);
    assert_eq!((pool.manager.totals().rounds, pool.manager.totals().failed), (1, 2));
}

#[test]
fn a_clock_that_is_set_back_puts_off_no_second_try() {
    let mut pool = Pool::new();
    fill(&pool.log("/d0", 0, &[]), 4);
    damage(&pool, "/d0", 0, 16, &[0xff]);
    assert!(!pool.pass().failed.is_empty());
    damage(&pool, "/d0", 0, 16, &[2]);
    for (now_ms, cleaned) in [
        (NOW + 500_000, None),
        (NOW - HOUR, None),
        (NOW - HOUR + 99_999, None),
        (NOW - HOUR + 100_000, Some(0)),
    ] {
        pool.clock.set(now_ms);
        assert_eq!(pool.cleaned(), cleaned, "{}", now_ms - NOW);
        assert_eq!(pool.manager.since_last_run_ms(), 0);
    }
}

#[test]
fn cln_08_checkpoints_that_do_not_fit_are_corrected_at_once() {
    for (checkpoint, file) in [("t 0 5\n", true), ("t 0 500\n", true), ("", false)] {
        let mut pool = Pool::new();
        let log = pool.log("/d0", 0, &[("min.cleanable.dirty.ratio", "1.0")]);
        fill(&log, 20);
        log.increment_log_start_offset(Offset::new(10)).unwrap();
        pool.write("/d0", &format!("0\n{}\n{checkpoint}", usize::from(file)));
        assert_eq!(pool.cleaned(), None);
        assert_eq!(pool.text("/d0"), if file { "0\n1\nt 0 10\n" } else { "0\n0\n" });
        let sections = pool.manager.status()[0].sections.unwrap();
        assert_eq!(sections.first_dirty.offset.get(), 10);
    }
}

#[test]
fn cleaner_edge_121_a_finished_round_is_in_the_checkpoint_and_lines_without_a_log_are_not() {
    let mut pool = Pool::new();
    let log = pool.log("/d0", 0, &[]);
    fill(&log, 4);
    pool.write("/d0", "0\n2\nt 0 0\nstray 7 9\n");
    assert_eq!(pool.cleaned(), Some(0));
    assert_eq!(pool.text("/d0"), "0\n1\nt 0 4\n");
    assert_eq!(pool.manager.checkpoint(&p(0)).unwrap(), Some(Offset::new(4)));
    assert_eq!(pool.cleaned(), None);
    assert_eq!(pool.manager.state(&p(0)), None);
}

#[test]
fn cleaner_edge_130_and_132_and_133_checkpoints_are_lowered_moved_and_removed() {
    let mut pool = Pool::new();
    let logs: Vec<_> = (0..2).map(|n| pool.log("/d0", n, &[])).collect();
    logs.iter().for_each(|log| fill(log, 4));
    while pool.cleaned().is_some() {}
    assert_eq!(pool.text("/d0"), "0\n2\nt 0 4\nt 1 4\n");
    pool.manager.lower_checkpoint(&p(0), Offset::new(9)).unwrap();
    assert_eq!(pool.manager.checkpoint(&p(0)).unwrap(), Some(Offset::new(4)));
    pool.manager.lower_checkpoint(&p(0), Offset::new(2)).unwrap();
    assert_eq!(pool.manager.checkpoint(&p(0)).unwrap(), Some(Offset::new(2)));
    // A log that is not compacted keeps what it has.
    pool.manager.update_config(&p(0), LogConfig::default()).unwrap();
    pool.manager.lower_checkpoint(&p(0), Offset::new(1)).unwrap();
    assert_eq!(pool.manager.checkpoint(&p(0)).unwrap(), Some(Offset::new(2)));

    assert!(pool.manager.moved(&p(1), Path::new("/d1"), logs[1].clone()).is_err());
    pool.backend.names().create_dir_all(Path::new("/d1")).unwrap();
    pool.manager.abort_and_pause(&p(1));
    pool.manager.moved(&p(1), Path::new("/d1"), logs[1].clone()).unwrap();
    pool.manager.resume(&p(1)).unwrap();
    assert_eq!((pool.text("/d0"), pool.text("/d1")), ("0\n1\nt 0 2\n".into(), "0\n1\nt 1 4\n".into()));
    assert_eq!(pool.manager.checkpoint(&p(1)).unwrap(), Some(Offset::new(4)));
    pool.manager.directory_failed(Path::new("/d1"));
    assert_eq!(pool.manager.checkpoint(&p(1)).unwrap(), None);
    pool.manager.remove(&p(0)).unwrap();
    assert_eq!(pool.text("/d0"), "0\n0\n");
}

#[test]
fn cleaner_edge_131_and_146_a_directory_that_failed_keeps_its_file() {
    let mut pool = Pool::new();
    for (dir, n) in [("/d0", 0), ("/d1", 1)] {
        fill(&pool.log(dir, n, &[]), 4);
    }
    while pool.cleaned().is_some() {}
    let before = pool.text("/d0");
    pool.manager.directory_failed(Path::new("/d0"));
    assert_eq!(pool.manager.checkpoint(&p(0)).unwrap(), None);
    assert_eq!(pool.manager.checkpoint(&p(1)).unwrap(), Some(Offset::new(4)));
    pool.manager.lower_checkpoint(&p(0), Offset::ZERO).unwrap();
    assert_eq!(pool.cleaned(), None);
    assert_eq!(pool.text("/d0"), before);
    assert_eq!(pool.manager.uncleanable(), []);
}

#[test]
fn cleaner_edge_164_and_165_and_166_a_bad_checkpoint_file_stops_nothing() {
    for text in ["0\n1\nt 0 x\n", "0\n1\nt x 1\n", "0\n1\nt 0\n", "0\n2\nt 0 1\n", "1\n0\n", "\n0\n"] {
        let mut pool = Pool::new();
        for (dir, n) in [("/d0", 0), ("/d1", 1)] {
            fill(&pool.log(dir, n, &[]), 4);
        }
        pool.write("/d0", text);
        let mut cleaned = vec![pool.cleaned(), pool.cleaned()];
        cleaned.sort_unstable();
        assert_eq!(cleaned, [Some(0), Some(1)], "{text:?}");
        assert_eq!(pool.text("/d0"), "0\n1\nt 0 4\n");
        assert_eq!(pool.kept("/d0").as_deref(), Some(text), "{text:?}");
        assert_eq!(pool.manager.damaged_checkpoints(), []);
    }
    for text in ["0\n", ""] {
        let mut pool = Pool::new();
        fill(&pool.log("/d0", 0, &[]), 4);
        pool.write("/d0", text);
        assert_eq!(pool.cleaned(), Some(0));
        assert_eq!(pool.manager.damaged_checkpoints(), []);
        assert_eq!(pool.kept("/d0"), None);
    }
    // The same partition in the files of two directories: that of the directory with the log counts.
    let pool = Pool::new();
    let log = pool.log("/d0", 0, &[]);
    pool.log("/d1", 1, &[]);
    fill(&log, 4);
    pool.write("/d0", "0\n1\nt 0 2\n");
    pool.write("/d1", "0\n1\nt 0 4\n");
    assert_eq!(pool.manager.checkpoint(&p(0)).unwrap(), Some(Offset::new(2)));
    let damaged = Pool::new();
    damaged.log("/d0", 0, &[]);
    damaged.write("/d0", "nonsense");
    damaged.manager.status();
    let told = damaged.manager.damaged_checkpoints()[0].to_string();
    assert!(told.contains("cleaner-offset-checkpoint") && told.contains("line 1"), "{told}");
}

/// It is known to be damaged before anything asks for an entry, and a log that is not here does not lose its line.
#[test]
fn a_checkpoint_is_looked_at_when_its_directory_is_taken_in() {
    let mut pool = Pool::new();
    pool.write("/d0", "0\n1\nt 7 1x1\n");
    fill(&pool.log("/d0", 0, &[]), 4);
    assert_eq!(pool.manager.damaged_checkpoints().len(), 1);
    pool.write("/d0", "0\n3\nt 7 1\nt 8 2\nt 9 3\n");
    pool.manager.keep_checkpoint(Path::new("/d0"), &p(8));
    pool.manager.keep_checkpoint(Path::new("/d1"), &p(9));
    assert_eq!(pool.cleaned(), Some(0));
    assert_eq!(pool.text("/d0"), "0\n2\nt 0 4\nt 8 2\n");
}

#[test]
fn cleaner_edge_124_and_170_retention_of_compacted_logs_is_the_cleaners() {
    for (policy, marked, deleted) in [
        ("delete", false, 0),
        ("compact,delete", false, 1),
        ("compact", false, 0),
        ("compact,delete", true, 0),
    ] {
        let mut pool = Pool::with({
            let mut options = ManagerOptions::default();
            options.retry_ms = None;
            options
        });
        let pairs =
            [("cleanup.policy", policy), ("retention.bytes", "100"), ("min.cleanable.dirty.ratio", "1.0")];
        let log = pool.log("/d0", 0, &pairs);
        fill(&log, 4);
        fill(&log, 4);
        if marked {
            damage(&pool, "/d0", 0, 16, &[0xff]);
            let config = [("cleanup.policy", "compact"), ("min.cleanable.dirty.ratio", "0.0")];
            log.update_config(LogConfig::from_pairs(config).unwrap()).unwrap();
            assert!(!pool.pass().failed.is_empty());
            log.update_config(LogConfig::from_pairs(pairs).unwrap()).unwrap();
        }
        assert_eq!(pool.pass().deleted, deleted, "{policy} {marked}");
    }
    let mut pool = Pool::new();
    let log = pool.log("/d0", 0, &[("cleanup.policy", ""), ("retention.bytes", "1"), ("retention.ms", "1")]);
    fill(&log, 4);
    fill(&log, 4);
    assert_eq!(pool.pass().deleted + log.delete_old_segments().unwrap().deleted, 0);
    log.increment_log_start_offset(Offset::new(4)).unwrap();
    assert_eq!(log.delete_old_segments().unwrap().deleted, 1);
}

#[test]
fn cleaner_edge_125_and_126_retention_and_cleaning_keep_out_of_each_others_way() {
    let mut pool = Pool::new();
    let log = pool.log("/d0", 0, &[("cleanup.policy", "delete")]);
    fill(&log, 4);
    assert_eq!(pool.manager.pause_for_retention().len(), 1);
    assert_eq!(pool.manager.pause_for_retention().len(), 0);
    let compact =
        LogConfig::from_pairs([("cleanup.policy", "compact"), ("min.cleanable.dirty.ratio", "0.0")]).unwrap();
    pool.manager.update_config(&p(0), compact).unwrap();
    assert_eq!(pool.cleaned(), None);
    assert!(matches!(pool.next(0), Next::Taken(PartitionState::Paused(1))));
    pool.manager.resume(&p(0)).unwrap();
    assert_eq!(pool.cleaned(), Some(0));
    pool.manager.update_config(&p(0), LogConfig::default()).unwrap();
    assert_eq!(pool.manager.pause_for_retention().len(), 1);
    assert!(matches!(pool.next(0), Next::NotCompacted));
}

#[test]
fn cleaner_edge_137_and_138_and_119_a_log_under_both_policies_is_cleaned_then_expires() {
    for codec in [Codec::None, Codec::Gzip, Codec::Snappy, Codec::Lz4, Codec::Zstd] {
        let mut pool = Pool::new();
        let pairs = [
            ("cleanup.policy", "compact,delete"),
            ("retention.ms", "3600000"),
            ("min.compaction.lag.ms", "1000"),
        ];
        let log = pool.log("/d0", 0, &pairs);
        let large = "large".repeat(4000);
        for round in 0..3 {
            for key in 0..100 {
                let (key, value) = (format!("{key}"), format!("{round}"));
                let bytes =
                    batch(BatchOptions { codec, ..BatchOptions::default() }, &[NOW], &[kv(&key, &value)]);
                log.append_as_leader(bytes, LeaderEpoch::new(0), Origin::Client).unwrap();
            }
            if round == 0 {
                put(&log, NOW, &[kv("large", &large)]);
            }
        }
        log.update_high_watermark(log.log_end_offset());
        log.roll(None).unwrap();
        log.update_high_watermark(log.log_end_offset());
        let before = log.size();
        assert_eq!(pool.cleaned(), None);
        assert!(matches!(pool.next(0), Next::TooYoung { min_compaction_lag_ms: 1000 }));
        pool.clock.set(NOW + 1001);
        assert_eq!(pool.cleaned(), Some(0));
        assert!(log.size() < before);
        let status = &pool.manager.status()[0];
        let (end, stats) = status.last_round.unwrap();
        assert_eq!((end.get(), stats.records_read, stats.records_written), (301, 301, 101));
        pool.clock.set(NOW + HOUR + 1);
        assert_eq!(pool.pass().deleted, 1);
        assert_eq!((log.log_start_offset(), log.size()), (log.log_end_offset(), 0));
    }
}

#[test]
fn cleaner_edge_69_nothing_behind_an_open_transaction_is_cleaned() {
    let mut pool = Pool::new();
    let log = pool.log("/d0", 0, &[]);
    let open = crate::bed::producer(1, 0, 0, true);
    log.append_as_leader(batch(open, &[NOW], &[kv("k", "1")]), LeaderEpoch::new(0), Origin::Client).unwrap();
    fill(&log, 4);
    assert_eq!(pool.cleaned(), None);
    assert_eq!(pool.next(0), Next::Undecided { last_stable: Offset::ZERO });
    assert!(pool.next(0).to_string().contains("open transaction"));
}

#[test]
fn cleaner_edge_143_and_171_figures_of_an_idle_manager_and_settings() {
    let pool = Pool::new();
    let totals = pool.manager.totals();
    assert_eq!((totals.rounds, totals.dead_threads, totals.time_max.as_secs()), (0, 0, 0));
    pool.clock.set(NOW + 7);
    assert_eq!(pool.manager.since_last_run_ms(), 7);
    for (key, value, good) in [
        ("segment.bytes", "1048575", false),
        ("cleanup.policy", "COMPACT", false),
        ("cleanup.policy", "compact,delete", true),
        ("cleanup.policy", "", true),
    ] {
        assert_eq!(LogConfig::from_pairs([(key, value)]).is_ok(), good, "{key}={value}");
    }
    let mut options = ManagerOptions::default();
    options.max_bytes_per_second = Some(0.0);
    assert!(options.validate().is_err());
    assert!(pool.manager.start(0).is_err());
}

#[test]
fn cleaner_edge_176_a_failed_round_puts_retention_off() {
    let mut pool = Pool::new();
    let bad = pool.log("/d0", 0, &[]);
    fill(&bad, 8);
    damage(&pool, "/d0", 0, 16, &[0xff]);
    let pairs = [
        ("cleanup.policy", "compact,delete"),
        ("retention.bytes", "10"),
        ("min.cleanable.dirty.ratio", "1.0"),
    ];
    let expiring = pool.log("/d0", 1, &pairs);
    fill(&expiring, 4);
    fill(&expiring, 4);
    let pass = pool.pass();
    assert!(!pass.failed.is_empty() && pass.deleted == 0);
    assert_eq!(pool.pass().deleted, 1);
}

/// Something that is in the way of a file: a directory with something in it.
fn in_the_way(pool: &Pool, path: &str) {
    pool.backend.names().create_dir_all(&Path::new(path).join("x")).unwrap();
}

fn partitions(failed: &[(TopicPartition, kseg_cleaner::Error)]) -> Vec<i32> {
    failed.iter().map(|(partition, _)| partition.partition).collect()
}

#[test]
fn what_goes_wrong_in_selection_is_told_of_every_log_and_the_others_are_cleaned() {
    let mut pool = Pool::new();
    for (dir, n) in [("/d0", 0), ("/d0", 1), ("/d1", 2)] {
        fill(&pool.log(dir, n, &[]), 4);
    }
    pool.backend.names().remove(Path::new("/d0/cleaner-offset-checkpoint")).unwrap();
    in_the_way(&pool, "/d0/cleaner-offset-checkpoint");
    let pass = pool.pass();
    assert_eq!(partitions(&pass.failed), [0, 1]);
    for (_, error) in &pass.failed {
        assert!(error.to_string().contains("/d0/cleaner-offset-checkpoint"), "{error}");
    }
    assert_eq!(pass.cleaned.unwrap().0, p(2));
    assert_eq!(pool.manager.totals().troubles, 2);
    let (partition, trouble) = pool.manager.last_trouble().unwrap();
    assert_eq!((partition, trouble.failures, trouble.since_ms), (p(1), 1, NOW));
    // They are left alone, and told of once.
    assert!(pool.pass().failed.is_empty());
}

/// Three logs in `/d0` that are too large, and not dirty enough to be cleaned.
fn three_that_retention_shortens(pool: &mut Pool) {
    let pairs = [
        ("cleanup.policy", "compact,delete"),
        ("retention.bytes", "1"),
        ("min.cleanable.dirty.ratio", "1.0"),
    ];
    for n in 0..3 {
        let log = pool.log("/d0", n, &pairs);
        fill(&log, 4);
        fill(&log, 4);
    }
}

#[test]
fn every_log_whose_retention_fails_is_told_of() {
    let mut pool = Pool::new();
    three_that_retention_shortens(&mut pool);
    for n in [0, 2] {
        in_the_way(&pool, &format!("/d0/t-{n}/00000000000000000000.log.deleted"));
    }
    let pass = pool.pass();
    assert_eq!((partitions(&pass.failed), pass.deleted), (vec![0, 2], 1));
    assert_eq!(pool.manager.totals().troubles, 2);
    assert_eq!(pool.manager.uncleanable().iter().map(|(p, _)| p.partition).collect::<Vec<_>>(), [0, 2]);
}

#[test]
fn a_checkpoint_that_cannot_be_written_is_told_of_and_its_log_is_left_alone() {
    let mut pool = Pool::new();
    fill(&pool.log("/d0", 0, &[]), 4);
    in_the_way(&pool, "/d0/cleaner-offset-checkpoint.tmp");
    let pass = pool.pass();
    assert!(pass.cleaned.is_some());
    assert_eq!(partitions(&pass.failed), [0]);
    assert!(pass.failed[0].1.to_string().contains("cleaner-offset-checkpoint"), "{}", pass.failed[0].1);
    // The same bytes are not cleaned again before its time, and then later and later.
    for (after_ms, rounds) in [(0, 1), (600_000, 2), (1_200_000, 2), (1_800_000, 3)] {
        pool.clock.set(NOW + after_ms);
        pool.pass();
        let totals = pool.manager.totals();
        assert_eq!((totals.rounds, totals.troubles), (rounds, rounds), "after {after_ms} ms");
    }
    assert!(matches!(pool.next(0), Next::Uncleanable(mark) if mark.failures == 3));
    // Threads say it in the same places.
    let threaded = Pool::new();
    fill(&threaded.log("/d0", 0, &[]), 4);
    in_the_way(&threaded, "/d0/cleaner-offset-checkpoint.tmp");
    let threads = threaded.manager.start(1).unwrap();
    until(|| threaded.manager.last_trouble().is_some());
    threads.stop();
    assert_eq!(threaded.manager.totals().rounds, 1);
    assert_eq!(threaded.manager.last_trouble().unwrap().0, p(0));
    assert_eq!(threaded.manager.uncleanable().len(), 1);
}

/// Waits for what threads do, and not for ever.
fn until(there: impl Fn() -> bool) {
    for _ in 0..60_000 {
        if there() {
            return;
        }
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
    panic!("it does not come");
}

#[test]
fn threads_that_are_stopped_stop_no_others() {
    for _ in 0..20 {
        let mut options = ManagerOptions::default();
        options.backoff_ms = 1;
        let pool = Pool::with(options);
        let others = pool.manager.start(8).unwrap();
        let threads = pool.manager.start(2).unwrap();
        drop(others);
        fill(&pool.log("/d0", 0, &[]), 4);
        until(|| pool.manager.totals().rounds == 1);
        assert_eq!(threads.count(), 2);
    }
}

/// A pool whose backend panics at one call on a file of this role, once it is armed.
fn panics(call: Call, role: &'static str) -> (Pool, Arc<AtomicBool>) {
    let armed = Arc::new(AtomicBool::new(false));
    let told = armed.clone();
    let backend = Watched::new(Arc::new(MemoryBackend::new()), move |moment, seen, path| {
        let there = path.extension().is_some_and(|extension| extension == role);
        if moment == Moment::Before && seen == call && there && told.swap(false, Ordering::Relaxed) {
            panic!("a fault below the cleaner");
        }
    });
    (Pool::on(Arc::new(backend), ManagerOptions::default()), armed)
}

#[test]
fn a_panic_ends_the_work_and_nobody_waits_for_it() {
    let (mut pool, armed) = panics(Call::Open, "cleaned");
    let log = pool.log("/d0", 0, &[]);
    fill(&log, 4);
    armed.store(true, Ordering::Relaxed);
    let threads = pool.manager.start(1).unwrap();
    until(|| pool.manager.totals().dead_threads == 1);
    threads.stop();
    assert_eq!(pool.manager.state(&p(0)), None);
    pool.manager.abort(&p(0)).unwrap();
    let (_, trouble) = pool.manager.last_trouble().unwrap();
    assert!(trouble.reason.contains("t-0") && trouble.reason.contains("panic"), "{}", trouble.reason);
    let totals = pool.manager.totals();
    assert_eq!((totals.failed, totals.troubles, totals.rounds), (1, 1, 0));
    // It is tried again when its time has come.
    assert_eq!(pool.cleaned(), None);
    pool.clock.set(NOW + 600_000);
    assert_eq!(pool.cleaned(), Some(0));
}

#[test]
fn a_panic_in_retention_or_in_a_pause_ends_these() {
    let (mut pool, armed) = panics(Call::Rename, "log");
    three_that_retention_shortens(&mut pool);
    armed.store(true, Ordering::Relaxed);
    let panicked = catch_unwind(AssertUnwindSafe(|| drop(pool.pass())));
    assert!(panicked.is_err());
    for n in 0..3 {
        assert_eq!(pool.manager.state(&p(n)), None);
    }
    let held = catch_unwind(AssertUnwindSafe(|| {
        pool.manager.while_paused(&p(0), || -> kseg_cleaner::Result<()> { panic!("while it is paused") })
    }));
    assert!(held.is_err());
    assert_eq!(pool.manager.state(&p(0)), None);
}

#[test]
fn cln_14_status_says_why_a_log_is_not_compacted() {
    let mut pool = Pool::new();
    let active = pool.log("/d0", 0, &[]);
    put(&active, NOW, &[kv("k", "1"), kv("k", "2"), gone("k")]);
    assert_eq!(pool.cleaned(), None);
    assert!(matches!(pool.next(0), Next::AllActive { .. }), "{:?}", pool.next(0));
    let ratio = pool.log("/d0", 1, &[("min.cleanable.dirty.ratio", "1.0")]);
    fill(&ratio, 4);
    assert!(matches!(pool.next(1), Next::BelowRatio { .. }));
    let worth = pool.log("/d0", 2, &[]);
    fill(&worth, 4);
    assert!(matches!(pool.next(2), Next::Waiting { .. }));
    assert_eq!(pool.cleaned(), Some(2));
    assert_eq!(pool.next(2), Next::AllClean);
    for status in pool.manager.status() {
        assert!(status.next.to_string().len() > 10);
    }
}

#[test]
fn con_09_a_pause_always_comes_and_as_many_resumes_end_it() {
    let pool = Pool::new();
    let log = pool.log("/d0", 0, &[]);
    fill(&log, 4);
    let threads = pool.manager.start(2).unwrap();
    assert_eq!(threads.count(), 2);
    for n in 0..30 {
        fill(&log, 2);
        pool.manager.abort_and_pause(&p(0));
        assert_eq!(pool.manager.state(&p(0)), Some(PartitionState::Paused(1)));
        pool.manager.abort_and_pause(&p(0));
        pool.manager.resume(&p(0)).unwrap();
        assert_eq!(pool.manager.state(&p(0)), Some(PartitionState::Paused(1)), "{n}");
        pool.manager.resume(&p(0)).unwrap();
    }
    threads.stop();
    assert_eq!(pool.manager.state(&p(0)), None);
    assert!(pool.manager.resume(&p(0)).is_err());
    // Two at the same time.
    let threads = pool.manager.start(1).unwrap();
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                for _ in 0..50 {
                    pool.manager.abort_and_pause(&p(0));
                    pool.manager.resume(&p(0)).unwrap();
                }
            });
        }
    });
    drop(threads);
    assert_eq!(pool.manager.state(&p(0)), None);
}

#[test]
fn cleaner_edge_136_and_191_threads_end_when_they_are_stopped_and_a_change_of_policy_ends_rounds() {
    let pool = Pool::new();
    let logs: Vec<_> = (0..2).map(|n| pool.log("/d0", n, &[])).collect();
    let threads = pool.manager.start(2).unwrap();
    for log in &logs {
        fill(log, 50);
    }
    for n in 0..2 {
        pool.manager.update_config(&p(n), LogConfig::default()).unwrap();
        assert_eq!(pool.manager.state(&p(n)), None);
        assert!(!logs[n as usize].config().cleanup_policy.compact);
    }
    threads.stop();
    assert_eq!(pool.manager.totals().dead_threads, 0);
}

#[test]
fn truncation_holds_cleaning_off_and_lowers_the_checkpoint() {
    let mut pool = Pool::new();
    let log = pool.log("/d0", 0, &[]);
    fill(&log, 4);
    fill(&log, 4);
    assert_eq!(pool.cleaned(), Some(0));
    assert_eq!(pool.manager.checkpoint(&p(0)).unwrap(), Some(Offset::new(8)));
    put(&log, NOW, &[kv("k", "v"), kv("l", "v")]);
    pool.manager.truncate_to(&p(0), Offset::new(8)).unwrap();
    assert_eq!(pool.manager.checkpoint(&p(0)).unwrap(), Some(Offset::new(8)));
    pool.manager.truncate_to(&p(0), Offset::new(3)).unwrap();
    assert_eq!(pool.manager.checkpoint(&p(0)).unwrap(), Some(Offset::ZERO));
    fill(&log, 4);
    assert_eq!(pool.cleaned(), Some(0));
    pool.manager.truncate_fully_and_start_at(&p(0), Offset::new(2), None).unwrap();
    assert_eq!(pool.manager.checkpoint(&p(0)).unwrap(), Some(Offset::new(2)));
    assert_eq!(pool.manager.state(&p(0)), None);
}

/// What is done to logs through their directories is known to the manager, and done while nothing is cleaned.
#[test]
fn what_a_directory_does_to_its_logs_is_known_here() {
    let mut pool = Pool::new();
    let options = LogDirOptions {
        config: LogConfig::from_pairs([
            ("cleanup.policy", "compact"),
            ("min.cleanable.dirty.ratio", "0.0"),
            ("segment.index.bytes", "2400"),
        ])
        .unwrap(),
        clock: pool.clock.clone(),
        scheduler: pool.scheduler.clone(),
        ..LogDirOptions::new(pool.backend.clone())
    };
    let dirs = [PathBuf::from("/d0"), PathBuf::from("/d1")];
    let logs = LogManager::open(&dirs, &options).unwrap();
    let compaction: Arc<dyn Compaction> = pool.manager.clone();
    logs.set_compaction(Some(&compaction));
    let source: &LogDir = logs.live().next().unwrap();
    for n in 0..3 {
        let log = source.get_or_create(&p(n), None).unwrap();
        pool.manager.add(Path::new("/d0"), log.clone()).unwrap();
        fill(&log, 4);
        fill(&log, 4);
    }
    while pool.cleaned().is_some() {}
    assert_eq!(pool.text("/d0"), "0\n3\nt 0 8\nt 1 8\nt 2 8\n");
    // Within the active segment the checkpoint stays; below, it is lowered to where that one begins then.
    let log = source.get(&p(0)).unwrap().unwrap();
    put(&log, NOW, &[kv("k", "v"), kv("l", "v")]);
    source.truncate_to(&p(0), Offset::new(8)).unwrap();
    assert_eq!(pool.manager.checkpoint(&p(0)).unwrap(), Some(Offset::new(8)));
    source.truncate_to(&p(0), Offset::new(3)).unwrap();
    assert_eq!(pool.manager.checkpoint(&p(0)).unwrap(), Some(Offset::ZERO));
    source.truncate_fully_and_start_at(&p(1), Offset::new(2), None).unwrap();
    assert_eq!(pool.manager.checkpoint(&p(1)).unwrap(), Some(Offset::new(2)));
    assert_eq!((pool.manager.state(&p(0)), pool.manager.state(&p(1))), (None, None));
    // A move takes the checkpoint along.
    while logs.move_step(&p(2), Path::new("/d1"), 1 << 20).unwrap() > 0 {}
    assert_eq!((pool.text("/d0"), pool.text("/d1")), ("0\n2\nt 0 0\nt 1 2\n".into(), "0\n1\nt 2 8\n".into()));
    let moved = logs.get(&p(2)).unwrap().unwrap();
    fill(&moved, 4);
    assert_eq!(pool.cleaned(), Some(2));
    assert_eq!(pool.manager.checkpoint(&p(2)).unwrap(), Some(Offset::new(12)));
    // A deleted one is forgotten.
    assert!(logs.delete(&p(0)).unwrap());
    assert_eq!(pool.manager.partitions(), [p(1), p(2)]);
    assert_eq!(pool.text("/d0"), "0\n1\nt 1 2\n");
    assert_eq!(pool.manager.state(&p(2)), None);
    // So is one that is not open, or was never taken in; lines of others stay.
    source.get_or_create(&p(3), None).unwrap();
    pool.backend.names().create_dir_all(Path::new("/d0/t-4")).unwrap();
    pool.write("/d0", "0\n3\nt 1 2\nt 3 5\nt 4 6\n");
    assert!(source.delete(&p(3)).unwrap() && source.delete(&p(4)).unwrap());
    assert_eq!(pool.text("/d0"), "0\n1\nt 1 2\n");
    // The end of compaction ends what is under way, and is no error where nothing is.
    logs.alter_topic("t", &[("cleanup.policy", "delete")], &[]).unwrap();
    assert!(matches!(pool.next(2), Next::NotCompacted));
    assert_eq!(pool.manager.state(&p(2)), None);
    for (_, report) in logs.shutdown() {
        assert!(report.unwrap().failed.is_empty());
    }
}

/// Writes that take so many milliseconds of the clock by hand, and a manager that makes way above 20.
fn yielded(write_ms: i64, limit: Option<f64>) -> u64 {
    let clock = Arc::new(ManualClock::new(NOW));
    let scheduler = ManualScheduler::new(clock.clone());
    let told = clock.clone();
    let slow = Watched::new(Arc::new(MemoryBackend::new()), move |moment, call, path| {
        let appends = path.extension().is_some_and(|role| role == "log");
        if moment == Moment::Before && call == Call::Write && appends {
            told.set(told.now_ms() + write_ms);
        }
    });
    let backend: Arc<dyn Backend> = Arc::new(slow);
    let mut options = ManagerOptions::default();
    options.cleaner = cleaner_options();
    options.cleaner.io_buffer_bytes = 512;
    options.yield_above_ms = limit;
    let manager = Manager::new(options.clone(), backend.clone(), clock.clone()).unwrap();
    let config = [("cleanup.policy", "compact"), ("min.cleanable.dirty.ratio", "0.0")];
    let open = OpenOptions {
        config: LogConfig::from_pairs(config).unwrap(),
        clock: clock.clone(),
        scheduler,
        ..OpenOptions::new(backend)
    };
    let log = Arc::new(Log::open(Path::new("/d0/t-0"), open).unwrap());
    manager.add(Path::new("/d0"), log.clone()).unwrap();
    fill(&log, 60);
    let mut cleaner = Cleaner::new(options.cleaner).unwrap();
    for _ in 0..3 {
        // Of sixteen appends the time of one is taken.
        for n in 0..16 {
            put(&log, NOW, &[kv("other", &n.to_string())]);
        }
        log.roll(None).unwrap();
        clock.set(clock.now_ms() + 20);
        assert!(manager.pass(&mut cleaner).cleaned.is_some());
    }
    u64::try_from(manager.totals().yielded.as_millis()).unwrap()
}

#[test]
fn cleaning_makes_way_while_appends_are_slow() {
    assert!(yielded(50, Some(20.0)) >= 5);
    assert_eq!(yielded(0, Some(20.0)), 0);
    assert_eq!(yielded(50, None), 0);
}
