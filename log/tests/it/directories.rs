//! Data directories: ids, epochs, cordons, stray and deleted folders, and directories that fail at the start.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use kseg_format::{LeaderEpoch, MetaProperties, Offset, Origin, PartitionMetadata, Uuid};
use kseg_io_backends::{Call, Fault, Faulty};
use kseg_log::{BrokerConfig, LoadOptions, LogDir, LogManager, TopicPartition};

use crate::support::*;

fn disk0(bench: &Bench) -> LogDir {
    LogDir::open(Path::new("/disk0"), options(bench)).expect("a data directory")
}

fn faulty() -> (Arc<Faulty>, Bench) {
    let faulty = Arc::new(Faulty::new(kseg_io_backends::open("memory").expect("memory")));
    (faulty.clone(), Bench::on(faulty, &[]))
}

fn p(partition: i32) -> TopicPartition {
    TopicPartition::new("t", partition)
}

fn names(bench: &Bench, dir: &str) -> Vec<String> {
    let entries = bench.backend.names().list(Path::new(dir)).expect("list");
    entries.into_iter().map(|e| e.name.to_string_lossy().into_owned()).collect()
}

fn write(bench: &Bench, path: &str, bytes: &[u8]) {
    let path = Path::new(path);
    bench.backend.names().create_dir_all(path.parent().expect("a folder")).expect("made");
    bench.backend.names().write(path, bytes, true).expect("written");
}

fn placed(manager: &LogManager, partition: i32) -> PathBuf {
    manager.get_or_create(&p(partition)).expect("a log");
    manager.dir_of(&p(partition)).expect("found").expect("a directory").path().to_path_buf()
}

#[test]
fn log_edge_91_and_161_and_279_a_deleted_log_takes_nothing_and_goes_later() {
    for closed in [false, true] {
        let bench = Bench::new(&[("retention.ms", "1")]);
        let dir = disk0(&bench);
        dir.start_background(&BrokerConfig::default());
        let log = dir.get_or_create(&p(0), None).expect("a log");
        lead(&log, 3, 1, 200);
        log.update_high_watermark(Offset::new(3));
        if closed {
            log.close().expect("closed");
        }
        assert!(dir.delete(&p(0)).expect("deleted"));
        let folder = names(&bench, "/disk0").into_iter().find(|n| n.ends_with("-delete")).expect("renamed");
        let append = log.append_as_leader(batch(1, 1, 100), LeaderEpoch::new(9), Origin::Client);
        assert_eq!((kafka_name(append), log.log_end_offset().get()), ("KafkaStorageException", 3));
        // Retention and the flusher go on, and do not meet it.
        bench.scheduler.advance(400_000);
        assert!(!names(&bench, "/disk0").contains(&folder));
        assert!(dir.last_trouble().is_none() && dir.offline().is_none() && log.last_trouble().is_none());
        assert!(dir.get(&p(0)).expect("no error").is_none());
    }
}

#[test]
fn log_edge_160_the_topic_id_goes_where_the_folder_goes_and_another_one_is_refused() {
    let bench = Bench::new(&[]);
    let dir = disk0(&bench);
    let topic = dir.create_topic("t", 2, []).expect("a topic");
    let id_in = |folder: &str| {
        let path = Path::new("/disk0").join(folder).join(PartitionMetadata::FILE_NAME);
        let bytes = bench.backend.names().read(&path, 1000).expect("read").expect("a file");
        PartitionMetadata::parse(&bytes).expect("an id").topic_id
    };
    assert_eq!(id_in("t-0"), topic.id, "before the first append");
    dir.delete(&p(0)).expect("deleted");
    let folder = names(&bench, "/disk0").into_iter().find(|n| n.ends_with("-delete")).expect("renamed");
    assert_eq!(id_in(&folder), topic.id);
    let other = PartitionMetadata::new(Uuid::from_bytes([5; 16]));
    assert!(dir.shutdown().expect("stopped").clean);
    write(&bench, "/disk0/t-1/partition.metadata", &other.to_bytes());
    let dir = disk0(&bench);
    let refused = dir.get(&p(1)).expect_err("the folder of another topic");
    assert_eq!(refused.kafka_name(), "InconsistentTopicIdException", "{refused}");
    assert!(refused.to_string().contains("/disk0/t-1"), "{refused}");
}

#[test]
fn log_edge_162_a_file_in_the_place_of_a_folder_is_not_deleted() {
    let bench = Bench::new(&[]);
    let dir = disk0(&bench);
    drop(dir.get_or_create(&p(0), None).expect("a log"));
    bench.backend.names().remove_dir_all(Path::new("/disk0/t-0")).expect("removed");
    write(&bench, "/disk0/t-0", b"a file");
    let refused = dir.delete(&p(0)).expect_err("a file");
    assert!(refused.to_string().contains("/disk0/t-0"), "{refused}");
    // In Kafka the whole directory goes out of service; here a file of somebody's is no reason for that.
    lead(&dir.get_or_create(&p(1), None).expect("others are served"), 1, 1, 100);
    let left = bench.backend.names().read(Path::new("/disk0/t-0"), 100).expect("read");
    assert_eq!(left.as_deref(), Some(&b"a file"[..]));
}

#[test]
fn log_edge_199_what_fails_while_logs_are_loaded() {
    let (faulty, bench) = faulty();
    let both = manager(&bench, 2);
    for n in 0..4 {
        lead(&both.get_or_create(&p(n)).expect("a log"), 1, 1, 100);
    }
    let of_0: Vec<_> = both.live().next().expect("a directory").partitions().expect("list");
    drop(both);
    // A log that makes no sense fails alone, and its directory serves.
    let damaged = format!("/disk0/{}/leader-epoch-checkpoint", of_0[0]);
    let good = bench.backend.names().read(Path::new(&damaged), 1000).expect("read").expect("a file");
    write(&bench, &damaged, b"damaged");
    let both = manager(&bench, 2);
    let summary = both.load_all(LoadOptions::default());
    assert_eq!((summary.opened, summary.failed.len()), (3, 1));
    assert_eq!(both.live().count(), 2);
    drop(both);
    // An I/O error takes the directory out of service, and the other goes on.
    write(&bench, &damaged, &good);
    let both = manager(&bench, 2);
    faulty.inject(Fault::on(Call::ReadFile).under("/disk0").error(5));
    let summary = both.load_all(LoadOptions::default());
    faulty.clear();
    assert!(summary.opened >= 2 && !summary.failed.is_empty(), "{summary:?}");
    let live: Vec<_> = both.live().map(|dir| dir.path().to_path_buf()).collect();
    assert_eq!(live, [PathBuf::from("/disk1")]);
}

#[test]
fn log_edge_203_the_epoch_of_the_node_is_that_of_all_its_directories() {
    let marker = |epoch: i64| format!("{{\"version\":0,\"brokerEpoch\":{epoch}}}");
    for (markers, expected) in [
        ([Some(3), Some(3)], Some(3)),
        ([Some(3), Some(4)], None),
        ([Some(3), None], None),
        ([None, Some(3)], None),
    ] {
        let bench = Bench::new(&[]);
        for (n, epoch) in markers.iter().enumerate() {
            if let Some(epoch) = epoch {
                write(&bench, &format!("/disk{n}/.kafka_cleanshutdown"), marker(*epoch).as_bytes());
            }
        }
        let both = manager(&bench, 2);
        assert_eq!(both.broker_epoch(), expected, "{markers:?}");
        assert!(both.shutdown().into_iter().all(|(_, report)| report.expect("stopped").clean));
        assert_eq!(manager(&bench, 2).broker_epoch(), expected, "the next start finds the same");
    }
}

#[test]
fn log_edge_249_and_250_cordoned_directories_take_no_new_partitions() {
    let bench = Bench::new(&[]);
    let three = manager(&bench, 3);
    three.set_cordoned_list("/disk0, /disk1/").expect("two of the three");
    assert_eq!((placed(&three, 0), placed(&three, 1)), ("/disk2".into(), "/disk2".into()));
    three.set_cordoned_list("*").expect("all");
    assert!(three.dirs().expect("dirs").iter().all(|dir| dir.cordoned));
    assert_eq!(placed(&three, 2), PathBuf::from("/disk0"));
    for wrong in ["*,/disk0", "/disk9", "/disk0,/disk9"] {
        assert!(three.set_cordoned_list(wrong).is_err(), "{wrong}");
        assert!(three.dirs().expect("dirs").iter().all(|dir| dir.cordoned), "{wrong}");
    }
    three.set_cordoned_list("").expect("none");
    assert_eq!(placed(&three, 3), PathBuf::from("/disk1"));

    let bench = Bench::new(&[]);
    let one = manager(&bench, 1);
    one.set_cordoned(Path::new("/disk0"), true).expect("its own");
    assert_eq!(placed(&one, 0), PathBuf::from("/disk0"));
}

#[test]
fn log_edge_293_a_copy_that_moves_in_takes_its_files_along() {
    let bench = Bench::new(&[]);
    let both = manager(&bench, 2);
    let topic = both.create_topic("t", 1, []).expect("a topic");
    let log = both.get(&p(0)).expect("open").expect("a log");
    lead(&log, 3, 1, 200);
    let (from, to) = match log.dir() == Path::new("/disk0/t-0") {
        true => ("/disk0", "/disk1"),
        false => ("/disk1", "/disk0"),
    };
    while both.move_step(&p(0), Path::new(to), 1000).expect("a step") > 0 {}
    let moved = both.get(&p(0)).expect("open").expect("a log");
    let append = moved.append_as_leader(batch(1, 1, 100), LeaderEpoch::new(10), Origin::Client);
    append.expect("an append");
    assert_eq!(moved.latest_epoch(), Some(LeaderEpoch::new(10)));
    let files = names(&bench, &format!("{to}/t-0"));
    for file in ["leader-epoch-checkpoint", "partition.metadata"] {
        assert!(files.iter().any(|f| f == file), "{files:?}");
    }
    assert_eq!(names(&bench, to).iter().filter(|n| n.starts_with("t-0")).count(), 1, "and no other folder");
    assert!(!names(&bench, from).iter().any(|n| n == "t-0"));
    let dir = both.dir_of(&p(0)).expect("found").expect("a directory");
    assert_eq!(dir.topic_id(&p(0)).expect("read"), Some(topic.id));
}

#[test]
fn log_edge_310_and_311_directories_are_known_by_their_ids() {
    let bench = Bench::new(&[]);
    let id = |n: u8| Uuid::from_bytes([n; 16]);
    let text = |n: Option<u8>| {
        let id = n.map(|n| format!("directory.id={}\n", id(n))).unwrap_or_default();
        format!("version=1\ncluster.id=c\nnode.id=1\n{id}")
    };
    for (n, of) in [(0, None), (1, None), (3, Some(3)), (4, Some(4))] {
        write(&bench, &format!("/disk{n}/{}", MetaProperties::FILE_NAME), text(of).as_bytes());
    }
    let five = manager(&bench, 5);
    let ids: Vec<_> = five
        .live()
        .map(|dir| dir.meta_properties().expect("read").and_then(|meta| meta.directory_id))
        .collect();
    assert_eq!(ids, [None, None, None, Some(id(3)), Some(id(4))]);
    let with = |id: Uuid| {
        five.live()
            .find(|dir| dir.meta_properties().expect("read").and_then(|meta| meta.directory_id) == Some(id))
    };
    with(id(4)).expect("it is known").get_or_create(&p(0), None).expect("a log");
    assert_eq!(placed(&five, 0), PathBuf::from("/disk4"));
    // Of an id that no directory has, or of none, any directory takes it.
    assert!(with(id(9)).is_none());
    assert_eq!(placed(&five, 1), PathBuf::from("/disk0"));
}

#[test]
fn log_edge_312_asking_for_a_partition_makes_none() {
    let bench = Bench::new(&[]);
    let one = manager(&bench, 1);
    assert!(one.get(&p(0)).expect("no error").is_none());
    assert!(!names(&bench, "/disk0").iter().any(|n| n.starts_with("t-")));
}

#[test]
fn log_edge_313_a_stray_partition_is_asked_about_once_and_renamed() {
    let bench = Bench::new(&[]);
    let dir = disk0(&bench);
    lead(&dir.get_or_create(&p(0), None).expect("a log"), 1, 1, 100);
    assert!(dir.shutdown().expect("stopped").clean);
    let dir = disk0(&bench);
    let asked = AtomicUsize::new(0);
    let is_stray = |_: &TopicPartition, _| asked.fetch_add(1, Ordering::SeqCst) == 0;
    dir.load_all(LoadOptions { is_stray: &is_stray, ..LoadOptions::default() }).expect("loaded");
    assert_eq!(asked.load(Ordering::SeqCst), 1);
    let folder = names(&bench, "/disk0").into_iter().find(|n| n.starts_with("t-0")).expect("a folder");
    let unique = folder.strip_prefix("t-0.").and_then(|n| n.strip_suffix("-stray")).expect("set aside");
    assert!(unique.len() == 32 && unique.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b)));
    assert!(dir.get(&p(0)).expect("no error").is_none());
}

#[test]
fn log_edge_314_recovery_points_are_those_of_the_logs() {
    let bench = Bench::new(&[]);
    let dir = disk0(&bench);
    for n in 0..5 {
        let log = dir.get_or_create(&p(n), None).expect("a log");
        for _ in 0..50 {
            lead(&log, 1, 1, 100);
        }
        log.flush(false).expect("flushed");
        assert_eq!(log.recovery_point().get(), 50);
    }
    dir.checkpoint().expect("written");
    let path = Path::new("/disk0/recovery-point-offset-checkpoint");
    let text = bench.backend.names().read(path, 1000).expect("read").expect("a file");
    assert_eq!(String::from_utf8_lossy(&text), "0\n5\nt 0 50\nt 1 50\nt 2 50\nt 3 50\nt 4 50\n");
}

#[test]
fn log_edge_315_a_configuration_is_read_when_a_log_is_made_and_none_is_remembered() {
    let (faulty, bench) = faulty();
    let dir = disk0(&bench);
    dir.create_topic("a", 1, []).expect("a topic");
    dir.create_topic("b", 1, []).expect("a topic");
    let (a, b) = (TopicPartition::new("a", 0), TopicPartition::new("b", 0));
    dir.delete(&a).expect("deleted");
    dir.delete(&b).expect("deleted");
    // One that could not be made.
    faulty.inject(Fault::on(Call::CreateDir).error(28));
    dir.get_or_create(&a, None).expect_err("no space");
    faulty.clear();
    dir.alter_topic("a", [("segment.ms", "5000")], []).expect("changed");
    dir.alter_topic("b", [("segment.ms", "6000")], []).expect("changed");
    let made = |partition| dir.get_or_create(partition, None).expect("a log").config().segment_ms;
    assert_eq!((made(&a), made(&b)), (5000, 6000));
}

#[test]
fn log_edge_316_a_flush_of_a_log_that_has_moved_is_no_error() {
    let bench = Bench::new(&[]);
    let both = manager(&bench, 2);
    let log = both.get_or_create(&p(0)).expect("a log");
    lead(&log, 3, 1, 200);
    let to = if log.dir().starts_with("/disk0") { "/disk1" } else { "/disk0" };
    while both.move_step(&p(0), Path::new(to), 1000).expect("a step") > 0 {}
    log.flush(true).expect("its place is elsewhere now");
    bench.scheduler.advance(1_000_000);
    log.flush(true).expect("and its files have gone");
    assert_eq!(both.live().count(), 2);
}

#[test]
fn log_edge_317_a_directory_that_may_not_be_written_is_out_of_service_from_the_start() {
    const EACCES: i32 = 13;
    let (faulty, bench) = faulty();
    write(&bench, "/disk0/notes", b"");
    faulty.inject(Fault::on(Call::Lock).under("/disk0").error(EACCES));
    let both = manager(&bench, 2);
    let status = both.dirs().expect("dirs");
    assert!(status[0].offline.as_ref().is_some_and(|cause| cause.contains("/disk0")), "{status:?}");
    assert!(status[1].offline.is_none());
    faulty.clear();
    // It holds no lock there.
    disk0(&bench);
}

#[test]
fn a_folder_whose_number_is_written_oddly_is_given_its_usual_name() {
    let bench = Bench::new(&[]);
    let dir = disk0(&bench);
    for n in [1, 7] {
        lead(&dir.get_or_create(&p(n), None).expect("a log"), n as usize, 1, 200);
    }
    assert!(dir.shutdown().expect("stopped").clean);
    let rename = |from: &str, to: &str| {
        bench
            .backend
            .names()
            .rename(&Path::new("/disk0").join(from), &Path::new("/disk0").join(to))
            .expect("renamed");
    };
    rename("t-7", "t-007");
    rename("t-1", "t-+1");
    // Its place is taken.
    write(&bench, "/disk0/t-01/00000000000000000000.log", b"");
    write(&bench, "/disk0/t-1/00000000000000000000.log", b"");
    let dir = disk0(&bench);
    assert_eq!(dir.partitions().expect("list"), [p(1), p(7)]);
    assert_eq!(dir.unknown(), ["t-+1", "t-01"]);
    let summary = dir.load_all(LoadOptions::default()).expect("loaded");
    assert_eq!((summary.opened, summary.stray.len()), (2, 0));
    assert_eq!(dir.get(&p(7)).expect("open").expect("a log").log_end_offset().get(), 7);
    assert!(dir.shutdown().expect("stopped").clean);
    let left = names(&bench, "/disk0").into_iter().filter(|name| name.starts_with("t-")).collect::<Vec<_>>();
    assert_eq!(left, ["t-+1", "t-01", "t-1", "t-7"]);
}

#[test]
fn a_start_that_is_refused_leaves_every_directory_as_it_was() {
    let bench = Bench::new(&[]);
    let two = manager(&bench, 2);
    two.create_topic("t", 2, []).expect("a topic");
    assert!(two.shutdown().into_iter().all(|(_, report)| report.expect("stopped").clean));
    let marked =
        || ["/disk0", "/disk1"].map(|dir| names(&bench, dir).contains(&".kafka_cleanshutdown".to_owned()));
    let refused = |expected: &str| {
        let error = LogManager::open(&paths(2), &options(&bench)).map(drop).expect_err("refused");
        assert!(error.to_string().contains(expected), "{error}");
        assert_eq!(marked(), [true, true], "{error}");
    };
    let held = bench.backend.names().lock(Path::new("/disk1/.lock")).expect("somebody else has it");
    refused("in use");
    drop(held);
    let topics = Path::new("/disk1/kseg-topics.json");
    let good = bench.backend.names().read(topics, 1 << 20).expect("read").expect("a file");
    bench.backend.names().replace(topics, b"{").expect("damaged");
    refused("kseg-topics.json");
    bench.backend.names().replace(topics, &good).expect("mended");
    assert!(manager(&bench, 2).live().all(LogDir::was_clean));
}

#[test]
fn the_metadata_quorums_folder_is_nobodys_partition() {
    let bench = Bench::new(&[]);
    write(&bench, "/disk0/__cluster_metadata-0/00000000000000000000.log", b"not ours to read");
    let dir = disk0(&bench);
    let quorum = TopicPartition::new("__cluster_metadata", 0);
    assert!(dir.was_clean(), "a new directory");
    assert_eq!((dir.partitions().expect("list"), dir.unknown()), (Vec::new(), [].as_slice()));
    assert_eq!(dir.load_all(LoadOptions::default()).expect("loaded").opened, 0);
    let refusals = [
        dir.get(&quorum).map(drop),
        dir.get_or_create(&quorum, None).map(drop),
        dir.create_topic(&quorum.topic, 1, []).map(drop),
        dir.delete(&quorum).map(drop),
        dir.set_aside(&quorum).map(drop),
    ];
    for refused in refusals {
        assert_eq!(refused.expect_err("refused").kafka_name(), "InvalidRequestException");
    }
    assert!(dir.delete_topic(&quorum.topic).is_err());
    assert!(dir.shutdown().expect("stopped").clean);
    assert_eq!(names(&bench, "/disk0/__cluster_metadata-0"), ["00000000000000000000.log"]);
    // A manager places nothing by it either.
    assert_eq!(manager(&bench, 1).dirs().expect("dirs")[0].partitions, 0);
}

#[test]
fn a_partition_metadata_that_cannot_be_read_is_an_error_of_its_partition_alone() {
    for topic_known in [true, false] {
        let damages: [&[u8]; 5] = [
            b"",
            b"garbage",
            b"version: 0",
            b"version: 0\ntopic_id: short",
            b"version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAA",
        ];
        for damage in damages {
            let bench = Bench::new(&[]);
            let dir = disk0(&bench);
            if topic_known {
                dir.create_topic("t", 2, []).expect("a topic");
            }
            for n in 0..2 {
                lead(&dir.get_or_create(&p(n), None).expect("a log"), 1, 1, 100);
            }
            assert!(dir.shutdown().expect("stopped").clean);
            let path = Path::new("/disk0/t-0").join(PartitionMetadata::FILE_NAME);
            bench.backend.names().remove(&path).expect("removed");
            write(&bench, "/disk0/t-0/partition.metadata", damage);
            let dir = disk0(&bench);
            let summary = dir.load_all(LoadOptions::default()).expect("loaded");
            assert_eq!((summary.opened, summary.failed.len()), (1, 1));
            let error = dir.get(&p(0)).map(drop).expect_err("damaged");
            assert_eq!(error.kafka_name(), "KafkaStorageException", "{error}");
            let text = error.to_string();
            assert!(
                ["/disk0/t-0/partition.metadata", "expected", "found"].iter().all(|part| text.contains(part)),
                "{text}"
            );
            assert!(dir.get_or_create(&p(0), None).is_err());
            assert_eq!(dir.offline(), None);
            let left = bench.backend.names().read(&path, 1000).expect("read").expect("a file");
            assert_eq!(left, damage);
            // It can be deleted all the same.
            assert!(dir.delete(&p(0)).expect("deleted"));
        }
    }
}

#[test]
fn a_lost_partition_metadata_is_written_again_where_the_topics_id_is_known() {
    let bench = Bench::new(&[]);
    let dir = disk0(&bench);
    let topic = dir.create_topic("t", 1, []).expect("a topic");
    lead(&dir.get(&p(0)).expect("open").expect("a log"), 1, 1, 100);
    assert!(dir.shutdown().expect("stopped").clean);
    let path = Path::new("/disk0/t-0").join(PartitionMetadata::FILE_NAME);
    bench.backend.names().remove(&path).expect("removed");
    let dir = disk0(&bench);
    assert_eq!(dir.get(&p(0)).expect("open").expect("a log").log_end_offset().get(), 1);
    assert_eq!(dir.topic_id(&p(0)).expect("read"), Some(topic.id));
}
