//! Several data directories: placing, failing, deleting, moving, and what is left for the next start.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use kseg_format::{LeaderEpoch, Offset, Origin, PartitionMetadata};
use kseg_io_backends::{Call, Fault, Faulty, Metered, Moment, Watched};
use kseg_log::{
    BrokerConfig, Error, Isolation, LoadOptions, Log, LogDir, LogDirOptions, LogManager, TopicPartition,
};

use crate::support::*;

fn faulty(pairs: &[(&str, &str)]) -> (Arc<Faulty>, Bench) {
    let faulty = Arc::new(Faulty::new(kseg_io_backends::open("memory").expect("memory")));
    (faulty.clone(), Bench::on(faulty, pairs))
}

fn p(partition: i32) -> TopicPartition {
    TopicPartition::new("t", partition)
}

fn names(bench: &Bench, dir: &str) -> Vec<String> {
    let entries = bench.backend.names().list(Path::new(dir)).expect("list");
    entries.into_iter().map(|e| e.name.to_string_lossy().into_owned()).collect()
}

fn partitions_of(manager: &LogManager) -> Vec<usize> {
    manager.dirs().expect("dirs").iter().map(|dir| dir.partitions).collect()
}

/// The error of a call that must fail.
fn refused<T>(result: kseg_log::Result<T>) -> Error {
    result.err().expect("refused")
}

#[test]
fn log_edge_201_a_directory_has_one_manager_and_no_lock_file_after_it() {
    let bench = Bench::new(&[]);
    let first = manager(&bench, 2);
    assert_eq!(refused(LogManager::open(&paths(2), &options(&bench))).kafka_name(), "KafkaException");
    for (path, report) in first.shutdown() {
        assert!(report.expect("stopped").clean);
        assert!(!names(&bench, path.to_str().expect("text")).contains(&".lock".to_owned()));
    }
    manager(&bench, 2);
}

#[test]
fn log_edge_202_220_a_log_that_does_not_close_keeps_the_marker_from_its_directory_alone() {
    let (faulty, bench) = faulty(&[]);
    let both = manager(&bench, 2);
    for partition in 0..4 {
        lead(&both.get_or_create(&p(partition)).expect("a log"), 1, 1, 100);
    }
    faulty.inject(Fault::on(Call::Flush).under("/disk0").always());
    let reports = both.shutdown();
    faulty.clear();
    let clean: Vec<_> = reports.iter().map(|(_, r)| r.as_ref().expect("a report").clean).collect();
    assert_eq!(clean, [false, true]);
    // Every log of the directory was tried.
    assert_eq!(reports[0].1.as_ref().expect("a report").failed.len(), 2);
    assert!(!names(&bench, "/disk0").contains(&".kafka_cleanshutdown".to_owned()));
    assert!(names(&bench, "/disk1").contains(&".kafka_cleanshutdown".to_owned()));
}

#[test]
fn log_edge_204_a_stop_between_two_loads_after_a_crash_leaves_no_marker() {
    let bench = Bench::new(&[]);
    let dir = manager(&bench, 1);
    for partition in 0..2 {
        lead(&dir.get_or_create(&p(partition)).expect("a log"), 1, 1, 100);
    }
    drop(dir);
    let dir = manager(&bench, 1);
    dir.get(&p(0)).expect("open").expect("a log");
    assert!(!dir.shutdown().remove(0).1.expect("stopped").clean);
    let dir = manager(&bench, 1);
    assert_eq!(dir.load_all(LoadOptions::default()).opened, 2);
    assert!(dir.shutdown().remove(0).1.expect("stopped").clean);
}

#[test]
fn log_edge_205_a_directory_that_cannot_be_made_is_out_of_service_and_the_others_serve() {
    let (faulty, bench) = faulty(&[]);
    faulty.inject(Fault::on(Call::CreateDir).under("/disk1").always());
    let three = manager(&bench, 3);
    let status = three.dirs().expect("dirs");
    assert_eq!(status.iter().map(|dir| dir.offline.is_some()).collect::<Vec<_>>(), [false, true, false]);
    assert!(status[1].offline.as_ref().is_some_and(|cause| cause.contains("/disk1")), "{status:?}");
    // A partition that is not found might lie there.
    let error = refused(three.get_or_create(&p(0)));
    assert_eq!((error.kafka_name(), error.to_string().contains("/disk1")), ("KafkaStorageException", true));
    // A path that no file system takes.
    let odd = [PathBuf::from("/disk0"), PathBuf::from("/dev/null/x")];
    let real = LogDirOptions::new(kseg_io_backends::open("std").expect("std"));
    let temp = tempfile::tempdir().expect("a directory");
    let two = LogManager::open(&[temp.path().to_path_buf(), odd[1].clone()], &real).expect("one serves");
    assert!(two.dirs().expect("dirs")[1].offline.is_some());
    assert_eq!(refused(LogManager::open(&odd[1..], &real)).kafka_name(), "IOException");
}

#[test]
fn log_edge_206_a_partition_is_made_in_the_first_directory_that_can() {
    let (faulty, bench) = faulty(&[]);
    let five = manager(&bench, 5);
    for dir in ["/disk0", "/disk1"] {
        faulty.inject(Fault::on(Call::CreateDir).under(dir).always());
    }
    lead(&five.get_or_create(&p(0)).expect("a log"), 1, 1, 100);
    assert_eq!(partitions_of(&five), [0, 0, 1, 0, 0]);
    let offline: Vec<_> = five.dirs().expect("dirs").iter().map(|dir| dir.offline.is_some()).collect();
    assert_eq!(offline, [true, true, false, false, false]);
}

#[test]
fn log_edge_207_209_retention_runs_by_itself_and_leaves_compacted_logs_alone() {
    let bench = Bench::new(&[("internal.segment.bytes", "300"), ("retention.ms", "1000")]);
    let dir = manager(&bench, 1);
    let compacted = [("cleanup.policy", "compact,delete"), ("retention.ms", "1000")];
    dir.create_topic("t", 1, []).expect("a topic");
    dir.create_topic("c", 1, compacted).expect("a topic");
    let log = dir.get(&p(0)).expect("open").expect("a log");
    for n in 0..20 {
        lead(&log, 10, n, 250);
    }
    log.update_high_watermark(log.log_end_offset());
    let kept = dir.get(&TopicPartition::new("c", 0)).expect("open").expect("a log");
    let keyed = |time| {
        let mut builder = kseg_format::RecordBatchBuilder::new(Default::default());
        builder
            .append(kseg_format::Timestamp::from_raw(time), Some(b"k"), Some(&[0; 150]), &[])
            .expect("a record");
        let mut bytes = bytes::BytesMut::new();
        builder.finish(&mut bytes).expect("a batch");
        bytes
    };
    for n in 0..5 {
        let epoch = kseg_format::LeaderEpoch::new(0);
        kept.append_as_leader(keyed(n), epoch, kseg_format::Origin::Client).expect("an append");
    }
    kept.update_high_watermark(kept.log_end_offset());
    dir.start_background(&BrokerConfig::default());
    bench.scheduler.advance(30_000);
    assert_eq!(bases(&log), [200]);
    assert_eq!(bases(&kept).len(), 5);
    bench.scheduler.advance(60_000);
    log.state(true).expect("state"); // touches the indexes
    // Four files a segment (log, two indexes, a producer snapshot), the epochs and the topic's id.
    let files = names(&bench, "/disk0/t-0");
    assert_eq!(files.len(), 4 + 2, "{files:?}");
    assert_eq!(
        refused(log.read(Offset::ZERO, 1, Isolation::LogEnd, true)).kafka_name(),
        "OffsetOutOfRangeException"
    );
    assert_eq!(read(&log, 200), (200, 0));
}

#[test]
fn log_edge_208_retention_by_size_keeps_what_fits_and_one_segment_more() {
    let bench =
        Bench::new(&[("internal.segment.bytes", "250"), ("retention.bytes", "1260"), ("retention.ms", "-1")]);
    let dir = manager(&bench, 1);
    let log = dir.get_or_create(&p(0)).expect("a log");
    for n in 0..20 {
        lead(&log, 10, n, 250);
    }
    log.update_high_watermark(log.log_end_offset());
    assert_eq!(bases(&log).len(), 20);
    dir.start_background(&BrokerConfig::default());
    bench.scheduler.advance(30_000);
    assert_eq!(bases(&log).len(), 6);
}

#[test]
fn sealed_segments_that_nobody_reads_let_go_of_their_files_in_the_background() {
    let metered = Arc::new(Metered::new(kseg_io_backends::open("memory").expect("memory")));
    let bench = Bench::on(metered.clone(), &[("internal.segment.bytes", "250"), ("retention.ms", "-1")]);
    let dir = manager(&bench, 1);
    let log = dir.get_or_create(&p(0)).expect("a log");
    for n in 0..5 {
        lead(&log, 10, n, 250);
    }
    let opened = || {
        let before = metered.calls(Call::Open, "log").calls;
        assert_eq!(read(&log, 0).0, 0);
        metered.calls(Call::Open, "log").calls - before
    };
    let every_ms = 300_000;
    dir.start_background(&BrokerConfig { log_retention_check_interval_ms: every_ms, ..Default::default() });
    bench.scheduler.advance(30_000);
    assert_eq!(opened(), 0, "read a moment ago");
    bench.scheduler.advance(every_ms);
    assert_eq!(opened(), 0, "read in the last interval");
    bench.scheduler.advance(2 * every_ms);
    assert_eq!(opened(), 1, "not read in the last interval");
}

#[test]
fn log_edge_210_a_log_is_flushed_when_its_time_has_come() {
    let bench = Bench::new(&[("flush.ms", "1000")]);
    let dir = manager(&bench, 1);
    let log = dir.get_or_create(&p(0)).expect("a log");
    let config = BrokerConfig {
        log_flush_scheduler_interval_ms: 500,
        log_initial_task_delay_ms: 0,
        ..Default::default()
    };
    dir.start_background(&config);
    lead(&log, 5, 1, 100);
    bench.scheduler.advance(999);
    assert_eq!(log.recovery_point().get(), 0);
    bench.scheduler.advance(502);
    assert_eq!(log.recovery_point().get(), 5);
    assert_eq!(dir.metrics().expect("metrics").counts.flushes, 1);
}

#[test]
fn log_edge_211_partitions_are_spread_evenly_and_cordoned_directories_take_none() {
    let bench = Bench::new(&[]);
    let three = manager(&bench, 3);
    for n in 0..20 {
        three.get_or_create(&p(n)).expect("a log");
        let counts = partitions_of(&three);
        assert!(counts.iter().max().expect("some") - counts.iter().min().expect("some") <= 1, "{counts:?}");
    }
    three.set_cordoned(Path::new("/disk0"), true).expect("cordoned");
    three.set_cordoned(Path::new("/disk1/"), true).expect("cordoned");
    for n in 20..23 {
        three.get_or_create(&p(n)).expect("a log");
    }
    assert_eq!(partitions_of(&three), [7, 7, 9]);
    three.set_cordoned(Path::new("/disk2"), true).expect("cordoned");
    three.get_or_create(&p(23)).expect("the first of the cordoned takes it");
    assert_eq!(partitions_of(&three), [8, 7, 9]);
    assert_eq!(three.metrics().expect("metrics").cordoned_dirs(), 3);
}

#[test]
fn log_edge_212_names_that_are_none_of_ours_are_left_and_told() {
    let bench = Bench::new(&[]);
    for dir in ["/disk0/lost+found", "/disk0/remote-log-index-cache", "/disk0/t-0"] {
        bench.backend.names().create_dir_all(Path::new(dir)).expect("made");
    }
    bench.backend.names().write(Path::new("/disk0/notes"), b"x", false).expect("written");
    let dir = LogDir::open(Path::new("/disk0"), options(&bench)).expect("open");
    assert_eq!(dir.unknown(), ["lost+found", "notes"]);
    assert_eq!(dir.load_all(LoadOptions::default()).expect("loaded").opened, 1);
}

#[test]
fn log_edge_213_a_directory_has_one_name_however_it_is_written() {
    let bench = Bench::new(&[]);
    let twice = [PathBuf::from("/disk0"), PathBuf::from("/disk0/./")];
    assert_eq!(refused(LogManager::open(&twice, &options(&bench))).kafka_name(), "IllegalArgumentException");
    let (faulty, bench) = faulty(&[]);
    let dir = LogManager::open(&[PathBuf::from("/disk0/")], &options(&bench)).expect("open");
    let log = dir.get_or_create(&p(0)).expect("a log");
    lead(&log, 1, 1, 100);
    faulty.inject(Fault::on(Call::Flush).role("log"));
    log.flush(false).expect_err("a failed sync");
    assert!(dir.dirs().expect("dirs")[0].offline.is_some());
}

#[test]
fn log_edge_214_a_deleted_partition_is_renamed_now_and_removed_later() {
    let bench = Bench::new(&[]);
    let dir = manager(&bench, 1);
    let log = dir.get_or_create(&p(0)).expect("a log");
    lead(&log, 3, 1, 100);
    let held =
        log.read(Offset::ZERO, 1 << 20, Isolation::LogEnd, true).expect("a read").region.expect("bytes");
    assert!(dir.delete(&p(0)).expect("deleted"));
    assert!(!dir.delete(&p(0)).expect("gone"));
    let renamed = |bench: &Bench| names(bench, "/disk0").into_iter().find(|n| n.ends_with("-delete"));
    let name = renamed(&bench).expect("the folder, renamed");
    assert!(name.starts_with("t-0.") && name.len() == "t-0.".len() + 32 + "-delete".len(), "{name}");
    // Nothing is appended to what has been deleted; what is held can be read.
    assert_eq!(refused(log.flush(true).and(log.roll(None))).kafka_name(), "KafkaStorageException");
    assert_eq!(held.to_bytes().expect("bytes").len(), 100);
    bench.scheduler.advance(59_999);
    assert!(renamed(&bench).is_some());
    bench.scheduler.advance(1);
    assert!(renamed(&bench).is_none());
    assert_eq!(held.to_bytes().expect("bytes").len(), 100);
}

#[test]
fn a_partition_that_was_being_deleted_is_removed_after_the_next_start() {
    let bench = Bench::new(&[]);
    let dir = manager(&bench, 1);
    lead(&dir.get_or_create(&p(0)).expect("a log"), 1, 1, 100);
    dir.delete(&p(0)).expect("deleted");
    drop(dir);
    // The first process's scheduler is gone with it.
    let next = Bench::on(bench.backend.clone(), &[]);
    let dir = manager(&next, 1);
    assert_eq!(dir.partitions().expect("list"), []);
    next.scheduler.advance(60_000);
    assert!(!names(&next, "/disk0").iter().any(|n| n.ends_with("-delete")));
    drop(dir);
}

#[test]
fn log_edge_215_the_longest_topic_can_be_made_and_deleted() {
    let bench = Bench::new(&[]);
    let dir = manager(&bench, 1);
    let longest = TopicPartition::new("n".to_owned() + &"o".repeat(248), 5);
    dir.get_or_create(&longest).expect("a log");
    assert!(dir.delete(&longest).expect("deleted"));
    let renamed = names(&bench, "/disk0").into_iter().find(|n| n.ends_with("-delete")).expect("renamed");
    assert_eq!(renamed.len(), 255);
    bench.scheduler.advance(60_000);
    assert!(!names(&bench, "/disk0").iter().any(|n| n.ends_with("-delete")));
    // Kafka's storage layer takes 253 characters; no broker makes such a topic.
    let longer = TopicPartition::new("n".repeat(250), 0);
    assert_eq!(refused(dir.get_or_create(&longer)).kafka_name(), "InvalidTopicException");
}

#[test]
fn log_edge_216_a_partition_made_anew_is_measured_when_the_old_one_is_gone() {
    let bench = Bench::new(&[]);
    let dir = manager(&bench, 2);
    lead(&dir.get_or_create(&p(0)).expect("a log"), 9, 1, 300);
    dir.delete(&p(0)).expect("deleted");
    lead(&dir.get_or_create(&p(0)).expect("a log"), 2, 1, 100);
    bench.scheduler.advance(60_000);
    let metrics = dir.metrics().expect("metrics");
    assert_eq!(metrics.logs.len(), 1);
    assert_eq!((metrics.logs[0].log_end_offset.get(), metrics.logs[0].size), (2, 100));
    let to = if partitions_of(&dir)[0] == 1 { "/disk1" } else { "/disk0" };
    assert_eq!(dir.move_step(&p(0), Path::new(to), 1 << 20).expect("moved"), 0);
    let metrics = dir.metrics().expect("metrics");
    assert_eq!(metrics.logs.iter().map(|log| log.is_future).collect::<Vec<_>>(), [false]);
}

#[test]
fn log_edge_217_the_log_start_is_in_its_checkpoint_while_its_segment_is_there() {
    let bench = Bench::new(&[("internal.segment.bytes", "1000"), ("retention.ms", "-1")]);
    let dir = LogDir::open(Path::new("/disk0"), options(&bench)).expect("open");
    let log = dir.get_or_create(&p(0), None).expect("a log");
    for n in 0..12 {
        lead(&log, 4, n, 500);
    }
    log.update_high_watermark(log.log_end_offset());
    log.increment_log_start_offset(Offset::new(31)).expect("moved");
    let text = || {
        dir.checkpoint().expect("written");
        let path = Path::new("/disk0/log-start-offset-checkpoint");
        String::from_utf8(bench.backend.names().read(path, 1000).expect("read").expect("there"))
            .expect("text")
    };
    assert_eq!(text(), "0\n1\nt 0 31\n");
    log.delete_old_segments().expect("retention");
    assert_eq!(bases(&log)[0], 24);
    assert_eq!(text(), "0\n1\nt 0 31\n");
    log.increment_log_start_offset(Offset::new(32)).expect("moved");
    log.delete_old_segments().expect("retention");
    assert_eq!(text(), "0\n0\n");
}

#[test]
fn log_edge_218_strays_are_set_aside() {
    let bench = Bench::new(&[]);
    let dir = LogDir::open(Path::new("/disk0"), options(&bench)).expect("open");
    let known = dir.create_topic("known", 1, []).expect("a topic");
    dir.create_topic("unknown", 1, []).expect("a topic");
    dir.create_topic("elsewhere", 1, []).expect("a topic");
    lead(&dir.get_or_create(&TopicPartition::new("without-id", 0), None).expect("a log"), 1, 1, 100);
    assert!(dir.shutdown().expect("stopped").clean);
    let dir = LogDir::open(Path::new("/disk0"), options(&bench)).expect("open");
    // What a broker asks of its metadata.
    let is_stray = |partition: &TopicPartition, id| match partition.topic.as_str() {
        "elsewhere" => true,
        _ => id != Some(known.id),
    };
    let summary =
        dir.load_all(LoadOptions { is_stray: &is_stray, ..LoadOptions::default() }).expect("loaded");
    let stray: Vec<_> = summary.stray.iter().map(|p| p.topic.as_str()).collect();
    assert_eq!((summary.opened, stray), (1, vec!["elsewhere", "unknown", "without-id"]));
    assert_eq!(dir.partitions().expect("list"), [TopicPartition::new("known", 0)]);
    let set_aside = names(&bench, "/disk0").into_iter().filter(|n| n.ends_with("-stray")).count();
    assert_eq!(set_aside, 3);
    bench.scheduler.advance(1_000_000);
    assert_eq!(names(&bench, "/disk0").into_iter().filter(|n| n.ends_with("-stray")).count(), 3);
}

#[test]
fn log_edge_219_without_a_delay_a_partition_is_removed_at_once() {
    let bench = Bench::new(&[("file.delete.delay.ms", "0")]);
    let dir = manager(&bench, 1);
    dir.start_background(&BrokerConfig { log_initial_task_delay_ms: 0, ..BrokerConfig::default() });
    bench.scheduler.advance(10);
    lead(&dir.get_or_create(&p(0)).expect("a log"), 1, 1, 100);
    dir.delete(&p(0)).expect("deleted");
    assert!(!names(&bench, "/disk0").iter().any(|n| n.starts_with("t-0")));
    assert!(dir.shutdown().remove(0).1.expect("stopped").clean);
}

#[test]
fn log_edge_221_a_topic_changed_while_its_log_is_made_is_in_force_for_it_alone() {
    let bench = Bench::new(&[]);
    let dir = LogDir::open(Path::new("/disk0"), options(&bench)).expect("open");
    dir.create_topic("a", 1, [("segment.ms", "5000")]).expect("a topic");
    dir.create_topic("b", 1, []).expect("a topic");
    let (a, b) = (TopicPartition::new("a", 0), TopicPartition::new("b", 0));
    let open_before = dir.get(&a).expect("open").expect("a log");
    assert_eq!(open_before.config().segment_ms, 5000);
    dir.alter_topic("a", [("segment.ms", "6000")], []).expect("changed");
    dir.alter_topic("b", [("retention.bytes", "77")], []).expect("changed");
    assert_eq!(open_before.config().segment_ms, 6000);
    let opened_after = dir.get(&b).expect("open").expect("a log");
    assert_eq!((opened_after.config().retention_bytes, open_before.config().retention_bytes), (77, -1));
    // From several threads at once: whichever comes first, the last configuration is in force.
    dir.create_topic("c", 8, []).expect("a topic");
    std::thread::scope(|scope| {
        for n in 0..8 {
            let dir = &dir;
            scope.spawn(move || dir.get(&TopicPartition::new("c", n)).expect("open").expect("a log"));
        }
        dir.alter_topic("c", [("segment.ms", "7000")], []).expect("changed");
    });
    for n in 0..8 {
        let log = dir.get(&TopicPartition::new("c", n)).expect("open").expect("a log");
        assert_eq!(log.config().segment_ms, 7000);
    }
}

#[test]
fn log_edge_224_a_partition_has_its_topics_id_from_the_beginning() {
    let bench = Bench::new(&[]);
    let dir = LogDir::open(Path::new("/disk0"), options(&bench)).expect("open");
    let topic = dir.create_topic("t", 2, []).expect("a topic");
    for n in 0..2 {
        assert_eq!(dir.topic_id(&p(n)).expect("read"), Some(topic.id));
    }
    assert_eq!(refused(dir.create_topic("t", 2, [])).kafka_name(), "TopicExistsException");
    let path = Path::new("/disk0/t-1").join(PartitionMetadata::FILE_NAME);
    bench.backend.names().write(&path, b"version: 0", true).expect("damaged");
    let error = refused(dir.topic_id(&p(1)));
    assert!(error.to_string().contains("t-1/partition.metadata"), "{error}");
}

#[test]
fn a_directory_that_fails_goes_out_of_service_with_all_its_logs_and_the_others_go_on() {
    let (faulty, bench) = faulty(&[]);
    let two = manager(&bench, 2);
    let logs: Vec<Arc<Log>> = (0..4).map(|n| two.get_or_create(&p(n)).expect("a log")).collect();
    for log in &logs {
        lead(log, 1, 1, 100);
    }
    faulty.inject(Fault::on(Call::Flush).under("/disk0").role("log"));
    logs[0].flush(true).expect_err("a failed sync");
    for (n, log) in logs.iter().enumerate() {
        let dead = n % 2 == 0;
        let append = log.append_as_leader(
            batch(1, 1, 100),
            kseg_format::LeaderEpoch::new(0),
            kseg_format::Origin::Client,
        );
        assert_eq!(append.is_err(), dead, "{n}");
        let read = log.read(Offset::ZERO, 100, Isolation::LogEnd, true);
        assert_eq!(read.is_err(), dead, "{n}");
        assert_eq!(log.flush(true).is_err(), dead, "{n}");
    }
    let error = refused(logs[2].read(Offset::ZERO, 100, Isolation::LogEnd, true)).to_string();
    assert!(error.contains("/disk0") && error.contains("00000000000000000000.log"), "{error}");
    assert_eq!(two.metrics().expect("metrics").offline_dirs(), 1);
    assert!(two.get(&p(1)).expect("served").is_some());
    assert_eq!(refused(two.get_or_create(&p(9))).kafka_name(), "KafkaStorageException");
    assert_eq!(refused(two.delete(&p(0))).kafka_name(), "KafkaStorageException");
    let clean: Vec<_> =
        two.shutdown().into_iter().map(|(_, report)| report.expect("a report").clean).collect();
    assert_eq!(clean, [false, true]);
    let two = manager(&bench, 2);
    assert_eq!(two.load_all(LoadOptions::default()).opened, 4);
}

#[test]
fn a_full_disk_takes_no_directory_out_of_service() {
    let (faulty, bench) = faulty(&[]);
    let dir = manager(&bench, 1);
    let log = dir.get_or_create(&p(0)).expect("a log");
    lead(&log, 1, 1, 100);
    faulty.set_space(Some(0));
    let full =
        log.append_as_leader(batch(1, 1, 100), kseg_format::LeaderEpoch::new(0), kseg_format::Origin::Client);
    assert_eq!(refused(full).kafka_name(), "IOException");
    assert_eq!(read(&log, 0), (0, 100));
    faulty.set_space(None);
    assert_eq!(lead(&log, 1, 1, 100).first_offset, Some(Offset::new(1)));
}

#[test]
fn a_partition_moves_while_it_is_appended_to() {
    let bench = Bench::new(&[("internal.segment.bytes", "1000")]);
    let two = manager(&bench, 2);
    let topic = two.create_topic("t", 1, []).expect("a topic");
    let log = two.get(&p(0)).expect("open").expect("a log");
    for n in 0..40 {
        lead(&log, 3, n, 300);
    }
    log.update_high_watermark(Offset::new(100));
    log.increment_log_start_offset(Offset::new(10)).expect("moved");
    log.delete_old_segments().expect("retention");
    let mut steps = 0;
    while two.move_step(&p(0), Path::new("/disk1"), 1000).expect("a step") > 0 {
        if steps < 5 {
            lead(&log, 1, 50, 200);
        }
        steps += 1;
        assert!(steps < 100);
    }
    assert!(steps > 5);
    let moved = two.get(&p(0)).expect("open").expect("a log");
    assert_eq!(moved.dir(), Path::new("/disk1/t-0"));
    assert_eq!(offsets(&moved), (10, 100, 125));
    assert_eq!(
        two.dir_of(&p(0)).expect("found").expect("a dir").topic_id(&p(0)).expect("read"),
        Some(topic.id)
    );
    assert_eq!(lead(&moved, 1, 60, 200).first_offset, Some(Offset::new(125)));
    assert_eq!(refused(log.roll(None)).kafka_name(), "KafkaStorageException");
    assert!(two.move_step(&p(0), Path::new("/disk1"), 1000).is_err());
    assert_eq!(partitions_of(&two), [0, 1]);
    assert!(two.shutdown().into_iter().all(|(_, report)| report.expect("stopped").clean));
    let two = manager(&bench, 2);
    let moved = two.get(&p(0)).expect("open").expect("a log");
    assert_eq!(offsets(&moved), (10, 100, 126));
}

#[test]
fn all_logs_are_opened_on_several_threads_and_told_of() {
    let bench = Bench::new(&[]);
    let dir = LogDir::open(Path::new("/disk0"), options(&bench)).expect("open");
    for n in 0..30 {
        lead(&dir.get_or_create(&p(n), None).expect("a log"), 1, 1, 100);
    }
    drop(dir);
    bench
        .backend
        .names()
        .write(Path::new("/disk0/t-7/leader-epoch-checkpoint"), b"damaged", true)
        .expect("damaged");
    let dir = LogDir::open(Path::new("/disk0"), options(&bench)).expect("open");
    let told = AtomicUsize::new(0);
    let options = LoadOptions {
        threads: 4,
        progress: &|loaded| {
            assert_eq!(loaded.of, 30);
            assert!(loaded.done >= 1 && loaded.done <= 30);
            assert_eq!(loaded.result.is_err(), loaded.partition.partition == 7);
            if let Ok(log) = loaded.result {
                assert_eq!(log.load_report().recovered.len(), 1);
            }
            told.fetch_add(1, Ordering::Relaxed);
        },
        ..LoadOptions::default()
    };
    let summary = dir.load_all(options).expect("loaded");
    assert_eq!((summary.opened, told.into_inner()), (29, 30));
    assert_eq!(summary.failed.iter().map(|(p, _)| p.partition).collect::<Vec<_>>(), [7]);
}

#[test]
fn topics_are_made_changed_grown_and_deleted() {
    let bench = Bench::new(&[]);
    let dir = LogDir::open(Path::new("/disk0"), options(&bench)).expect("open");
    assert_eq!(refused(dir.create_topic("t", 0, [])).kafka_name(), "InvalidPartitionsException");
    let wrong = refused(dir.create_topic("t", 1, [("segment.bytes", "13")]));
    assert!(wrong.to_string().contains("segment.bytes"), "{wrong}");
    assert!(dir.topics().expect("topics").is_empty() && dir.partitions().expect("list").is_empty());
    dir.create_topic("t", 2, [("cleanup.policy", "compact")]).expect("a topic");
    assert_eq!(refused(dir.create_topic("t", 2, [])).kafka_name(), "TopicExistsException");
    assert!(dir.get(&p(1)).expect("open").expect("a log").config().cleanup_policy.compact);
    let changed = dir.alter_topic("t", [("segment.ms", "9")], ["cleanup.policy"]).expect("changed");
    assert_eq!(changed.config.into_iter().collect::<Vec<_>>(), [("segment.ms".to_owned(), "9".to_owned())]);
    assert!(!dir.get(&p(1)).expect("open").expect("a log").config().cleanup_policy.compact);
    assert!(dir.alter_topic("t", [], ["cleanup.policy"]).is_err());
    assert!(dir.alter_topic("t", [("segment.ms", "-1")], []).is_err());
    assert_eq!(refused(dir.alter_topic("u", [], [])).kafka_name(), "UnknownTopicOrPartitionException");
    assert_eq!(dir.add_partitions("t", 3).expect("grown").partitions, 3);
    assert_eq!(refused(dir.add_partitions("t", 3)).kafka_name(), "InvalidPartitionsException");
    assert!(dir.shutdown().expect("stopped").clean);

    let dir = LogDir::open(Path::new("/disk0"), options(&bench)).expect("open");
    assert_eq!(dir.topics().expect("topics")["t"].partitions, 3);
    assert_eq!(dir.get(&p(2)).expect("open").expect("a log").config().segment_ms, 9);
    dir.delete_topic("t").expect("deleted");
    assert!(dir.partitions().expect("list").is_empty() && dir.topics().expect("topics").is_empty());
    assert!(dir.delete_topic("t").is_err());
}

#[test]
fn what_is_refused_is_counted() {
    let bench = Bench::new(&[("max.message.bytes", "500"), ("cleanup.policy", "compact")]);
    let dir = manager(&bench, 1);
    let log = dir.get_or_create(&p(0)).expect("a log");
    let append = |bytes| {
        refused(log.append_as_leader(bytes, kseg_format::LeaderEpoch::new(0), kseg_format::Origin::Client));
        dir.metrics().expect("metrics").counts
    };
    assert_eq!(append(batch(1, 1, 600)).bytes_rejected, 600);
    assert_eq!(append(batch(3, 1, 200)).no_key_records, 3);
    let mut damaged = batch(1, 1, 200);
    damaged[100] ^= 1;
    assert_eq!(append(damaged).invalid_crc_records, 1);
    assert_eq!(append(batch_at(7, 1, 1, 200)).invalid_offset_or_sequence_records, 1);
}

/// The bytes of a log, batch by batch, from its start.
fn content(log: &Log) -> Vec<u8> {
    let mut all = Vec::new();
    let mut at = log.log_start_offset();
    while let Some(region) = log.read(at, 1 << 20, Isolation::LogEnd, true).expect("a read").region {
        let bytes = region.to_bytes().expect("bytes");
        for batch in kseg_format::Batches::new(&bytes) {
            at = batch.expect("a batch").next_offset();
        }
        all.extend_from_slice(&bytes);
    }
    all
}

#[test]
fn what_is_truncated_during_a_move_does_not_come_back_with_the_copy() {
    for again in [0, 30, 90] {
        let bench = Bench::new(&[("internal.segment.bytes", "1000")]);
        let two = manager(&bench, 2);
        let log = two.get_or_create(&p(0)).expect("a log");
        for n in 0..40 {
            lead(&log, 1, n, 300);
        }
        assert!(two.move_step(&p(0), Path::new("/disk1"), 9000).expect("a step") > 0);
        log.truncate_to(Offset::new(10)).expect("truncated");
        for n in 0..again {
            lead(&log, 1, 1000 + n, 310);
        }
        let expected = (content(&log), log.log_end_offset());
        for n in 0.. {
            assert!(n < 100, "the move ends");
            if two.move_step(&p(0), Path::new("/disk1"), 3000).expect("a step") == 0 {
                break;
            }
        }
        let moved = two.get(&p(0)).expect("open").expect("a log");
        assert_eq!(moved.dir(), Path::new("/disk1/t-0"));
        assert_eq!(moved.log_end_offset(), expected.1);
        assert!(content(&moved) == expected.0, "{again}");
    }
}

#[test]
fn a_move_that_fails_at_its_end_leaves_the_partition_where_it_was_and_in_service() {
    let (faulty, bench) = faulty(&[]);
    for fault in [
        Fault::on(Call::Rename).under("/disk1"),
        Fault::on(Call::Flush).role("log").under("/disk1"),
        Fault::on(Call::Write).role("log").under("/disk1"),
    ] {
        let two = manager(&bench, 2);
        let log = two.get_or_create(&p(0)).expect("a log");
        lead(&log, 3, 1, 200);
        faulty.inject(fault);
        let failed = refused(two.move_step(&p(0), Path::new("/disk1"), 1000));
        faulty.clear();
        assert!(failed.to_string().contains("/disk1"), "{failed}");
        let out: Vec<_> = two.dirs().expect("dirs").iter().map(|dir| dir.offline.is_some()).collect();
        assert_eq!(out, [false, true]);
        let log = two.get(&p(0)).expect("open").expect("a log");
        assert_eq!(log.dir(), Path::new("/disk0/t-0"));
        lead(&log, 1, 2, 100);
        log.flush(false).expect("durable");
        assert_eq!(log.recovery_point(), log.log_end_offset());
        drop((log, two.shutdown()));
    }
}

#[test]
fn a_topic_has_its_configuration_and_its_id_in_every_directory() {
    let bench = Bench::new(&[("segment.ms", "1000")]);
    let one = manager(&bench, 1);
    one.get_or_create(&TopicPartition::new("found", 0)).expect("a log");
    one.create_topic("made", 1, [("segment.ms", "7")]).expect("a topic");
    one.shutdown();
    // Another disk comes.
    let two = manager(&bench, 2);
    two.alter_topic("found", &[("segment.ms", "8")], &[]).expect("changed");
    two.alter_topic("made", &[("segment.bytes", "2000000")], &[]).expect("changed");
    for partition in 1..4 {
        for (topic, ms) in [("made", 7), ("found", 8)] {
            let log = two.get_or_create(&TopicPartition::new(topic, partition)).expect("a log");
            assert_eq!((log.config().segment_ms, log.dir()), (ms, log.dir()));
        }
    }
    // Wherever a partition goes, it opens there.
    for partition in 0..4 {
        for topic in ["made", "found"] {
            let partition = TopicPartition::new(topic, partition);
            let log = two.get(&partition).expect("open").expect("a log");
            let to = if log.dir().starts_with("/disk0") { "/disk1" } else { "/disk0" };
            while two.move_step(&partition, Path::new(to), 1000).expect("a step") > 0 {}
        }
    }
    two.shutdown();
    let two = manager(&bench, 2);
    assert_eq!(two.load_all(LoadOptions::default()).failed.len(), 0);
    for (topic, ms) in [("made", 7), ("found", 8)] {
        for partition in 0..4 {
            let log = two.get(&TopicPartition::new(topic, partition)).expect("open").expect("a log");
            assert_eq!(log.config().segment_ms, ms, "{topic}-{partition}");
        }
    }
}

#[test]
fn a_move_keeps_the_end_of_a_log_that_ends_in_a_gap() {
    let bench = Bench::new(&[]);
    let two = manager(&bench, 2);
    let log = two.get_or_create(&p(0)).expect("a log");
    for n in 0..3 {
        lead(&log, 4, n, 200);
    }
    // Inside a batch, which goes as a whole.
    log.truncate_to(Offset::new(10)).expect("truncated");
    assert_eq!(log.log_end_offset().get(), 10);
    for n in 0.. {
        assert!(n < 20, "the move ends");
        if two.move_step(&p(0), Path::new("/disk1"), 1000).expect("a step") == 0 {
            break;
        }
    }
    let moved = two.get(&p(0)).expect("open").expect("a log");
    assert_eq!((moved.dir(), moved.log_end_offset().get()), (Path::new("/disk1/t-0"), 10));
    assert_eq!(lead(&moved, 1, 9, 100).first_offset, Some(Offset::new(10)));
}

#[test]
fn a_copy_that_a_stop_left_behind_is_cut_to_where_the_epochs_part() {
    let bench = Bench::new(&[]);
    let two = manager(&bench, 2);
    let lead_in = |log: &Log, epoch: i32, size: usize| {
        let append = log.append_as_leader(batch(1, 1, size), LeaderEpoch::new(epoch), Origin::Client);
        append.expect("an append");
    };
    let log = two.get_or_create(&p(0)).expect("a log");
    for _ in 0..10 {
        lead_in(&log, 0, 300);
    }
    assert!(two.move_step(&p(0), Path::new("/disk1"), 2400).expect("a step") > 0);
    log.truncate_to(Offset::new(4)).expect("truncated");
    for _ in 0..10 {
        lead_in(&log, 1, 310);
    }
    let expected = content(&log);
    drop((log, two));
    let two = manager(&bench, 2);
    while two.move_step(&p(0), Path::new("/disk1"), 1000).expect("a step") > 0 {}
    let moved = two.get(&p(0)).expect("open").expect("a log");
    assert_eq!(moved.dir(), Path::new("/disk1/t-0"));
    assert!(content(&moved) == expected);
}

#[test]
fn a_move_takes_batches_of_which_the_epoch_file_does_not_know() {
    let bench = Bench::new(&[]);
    let two = manager(&bench, 2);
    let log = two.get_or_create(&p(0)).expect("a log");
    let append = log.append_as_leader(batch(3, 1, 200), LeaderEpoch::new(5), Origin::Client);
    append.expect("an append");
    drop(log);
    two.shutdown();
    let path = Path::new("/disk0/t-0/leader-epoch-checkpoint");
    bench.backend.names().write(path, b"0\n1\n1 0\n", true).expect("an old one");
    let two = manager(&bench, 2);
    assert_eq!(two.move_step(&p(0), Path::new("/disk1"), 1000).expect("a step"), 0);
    let moved = two.get(&p(0)).expect("open").expect("a log");
    assert_eq!((moved.log_end_offset().get(), moved.latest_epoch()), (3, Some(LeaderEpoch::new(5))));
}

#[test]
fn a_topic_whose_partition_has_a_file_in_its_place_is_told_of() {
    let bench = Bench::new(&[]);
    let dir = LogDir::open(Path::new("/disk0"), options(&bench)).expect("open");
    bench.backend.names().write(Path::new("/disk0/t-1"), b"", true).expect("a file");
    let error = refused(dir.create_topic("t", 3, []));
    assert!(
        matches!(&error, Error::NotADirectory { path, .. } if path == Path::new("/disk0/t-1")),
        "{error}"
    );
}

#[test]
fn a_topic_is_not_taken_for_unknown_where_a_directory_cannot_be_listed() {
    let (faulty, bench) = faulty(&[]);
    let two = manager(&bench, 2);
    two.get_or_create(&p(0)).expect("a log");
    faulty.inject(Fault::on(Call::List).under("/disk0"));
    let error = refused(two.delete_topic("t"));
    assert_eq!((error.kafka_name(), error.to_string().contains("/disk0")), ("IOException", true), "{error}");
}

#[test]
fn a_topic_is_spread_over_the_directories_which_are_listed_once_for_it() {
    let metered = Arc::new(Metered::new(kseg_io_backends::open("memory").expect("memory")));
    let bench = Bench::on(metered.clone(), &[]);
    let manager = manager(&bench, 3);
    let lists = || {
        let tallies = metered.tallies();
        tallies.iter().filter(|((call, _), _)| *call == Call::List).map(|(_, tally)| tally.calls).sum::<u64>()
    };
    let [few, many] = [("few", 7), ("many", 60)].map(|(topic, partitions)| {
        let before = lists();
        manager.create_topic(topic, partitions, []).expect("a topic");
        lists() - before
    });
    bench.backend.names().create_dir_all(Path::new("/alone")).expect("a directory");
    let alone = LogDir::open(Path::new("/alone"), options(&bench)).expect("open");
    let before = lists();
    alone.get_or_create(&p(0), None).expect("a log");
    assert_eq!(many - few, 53 * (lists() - before), "a partition more costs what opening its log does");
    assert_eq!(partitions_of(&manager), [23, 22, 22]);
}

#[test]
fn a_directory_that_is_given_no_scheduler_does_its_periodic_work() {
    let backend = kseg_io_backends::open("memory").expect("memory");
    backend.names().create_dir_all(Path::new("/disk0")).expect("a directory");
    let dir = LogDir::open(Path::new("/disk0"), LogDirOptions::new(backend.clone())).expect("open");
    dir.get_or_create(&TopicPartition::new("t", 0), None).expect("a log");
    let every = BrokerConfig {
        log_initial_task_delay_ms: 1,
        replica_high_watermark_checkpoint_interval_ms: 1,
        ..BrokerConfig::default()
    };
    let checkpoint = Path::new("/disk0/replication-offset-checkpoint");
    let written = || backend.names().stat(checkpoint).expect("looked at").is_some();
    assert!(!written());
    dir.start_background(&every);
    let begun = std::time::Instant::now();
    while !written() {
        assert!(begun.elapsed().as_secs() < 60, "no checkpoint was written");
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
    dir.shutdown().expect("stopped");
}

/// Each of two directories with a topic of this name of its own.
fn each_with_its_own(bench: &Bench) {
    for path in paths(2) {
        let dir = LogDir::open(&path, options(bench)).expect("open");
        dir.create_topic("t", 1, []).expect("a topic");
        assert!(dir.shutdown().expect("stopped").clean);
    }
}

#[test]
fn two_directories_with_different_topics_of_one_name_are_refused_as_they_are() {
    let bench = Bench::new(&[]);
    each_with_its_own(&bench);
    let ids = ["/disk0", "/disk1"].map(|dir| {
        let dir = LogDir::open(Path::new(dir), options(&bench)).expect("open");
        assert!(dir.was_clean());
        let id = dir.topics().expect("topics")["t"].id;
        dir.shutdown().expect("stopped");
        id
    });
    for _ in 0..2 {
        let error = refused(LogManager::open(&paths(2), &options(&bench))).to_string();
        let expected = format!(
            "/disk1/kseg-topics.json: topic t: id {}: expected {}, as in /disk0/kseg-topics.json",
            ids[1], ids[0]
        );
        assert!(error.contains(&expected), "{error}");
    }
    assert!(
        ["/disk0", "/disk1"].iter().all(|dir| names(&bench, dir).contains(&".kafka_cleanshutdown".into()))
    );
    // Either of them serves alone.
    LogManager::open(&paths(1), &options(&bench)).expect("open");
}

#[test]
fn a_topic_of_which_directories_say_different_things_is_what_the_first_says() {
    let bench = Bench::new(&[]);
    let both = manager(&bench, 2);
    both.create_topic("t", 2, [("retention.ms", "1000")]).expect("a topic");
    both.shutdown();
    // As a crash leaves it that came before the second directory was written.
    let alone = |dir: &str, keys: &[(&str, &str)], partitions| {
        let dir = LogDir::open(Path::new(dir), options(&bench)).expect("open");
        dir.change_topic("t", keys.iter().copied(), [], partitions).expect("changed");
        dir.shutdown().expect("stopped");
    };
    alone("/disk0", &[("retention.ms", "2000")], None);
    alone("/disk1", &[("segment.ms", "5000")], Some(3));
    let both = manager(&bench, 2);
    let topics: Vec<_> =
        both.live().map(|dir| dir.topics().expect("topics").remove("t").expect("t")).collect();
    assert_eq!(topics[0], topics[1]);
    assert_eq!(topics[0].partitions, 3);
    assert_eq!(
        topics[0].config.iter().collect::<Vec<_>>(),
        [(&"retention.ms".to_owned(), &"2000".to_owned())]
    );
    for partition in both.partitions().expect("partitions") {
        let log = both.get(&partition).expect("open").expect("a log");
        assert_eq!(log.config().retention_ms, 2000, "{partition}");
    }
    both.shutdown();
    let files = ["/disk0", "/disk1"].map(|dir| {
        let path = Path::new(dir).join("kseg-topics.json");
        bench.backend.names().read(&path, 1 << 20).expect("read").expect("a file")
    });
    assert_eq!(files[0], files[1]);
}

#[test]
fn logs_of_several_directories_are_opened_at_the_same_time() {
    let bench = Bench::new(&[]);
    let two = manager(&bench, 2);
    two.create_topic("t", 4, []).expect("a topic");
    assert!(two.shutdown().into_iter().all(|(_, report)| report.expect("stopped").clean));
    // The first log of each directory waits for one of another.
    let met = Arc::new((Mutex::new(BTreeSet::new()), Condvar::new()));
    let meeting = met.clone();
    let watched = Watched::new(bench.backend.clone(), move |moment, call, path| {
        if (moment, call) != (Moment::Before, Call::Open) || !path.ends_with(name(0, "log")) {
            return;
        }
        let (dirs, came) = &*meeting;
        let mut dirs = dirs.lock().expect("the directories");
        dirs.insert(path.ancestors().nth(2).expect("a directory").to_path_buf());
        came.notify_all();
        let alone = |dirs: &mut BTreeSet<_>| dirs.len() < 2;
        let (dirs, _) = came.wait_timeout_while(dirs, Duration::from_secs(10), alone).expect("no panic");
        assert_eq!(dirs.len(), 2, "both are being loaded");
    });
    let options = LogDirOptions { backend: Arc::new(watched), ..options(&bench) };
    let two = LogManager::open(&paths(2), &options).expect("open");
    let summary = two.load_all(LoadOptions { threads: 1, ..LoadOptions::default() });
    assert_eq!((summary.opened, summary.failed.len()), (4, 0));
}
