use std::path::Path;

use kseg_format::{LeaderEpoch, Offset, Origin, TopicPartition};
use kseg_io_backends::{Op, OpenHow};
use kseg_log::{CutReason, Error, Log, LogDir, LogDirOptions, OpenOptions};

use crate::support::*;

#[test]
fn log_13_an_emptied_log_keeps_its_offsets() {
    for clean in [true, false] {
        let bench = Bench::new(&[("retention.ms", "1")]);
        let log = bench.open();
        lead(&log, 10, 1, 200);
        log.update_high_watermark(Offset::new(10));
        log.delete_old_segments().expect("retention");
        assert_eq!(offsets(&log), (10, 10, 10));
        let log = if clean {
            log.close().expect("closed");
            bench.open()
        } else {
            log.abandon();
            bench.open_unclean(0)
        };
        assert_eq!(offsets(&log), (10, 10, 10));
        assert_eq!(lead(&log, 1, 1, 100).first_offset, Some(Offset::new(10)));
    }
}

#[test]
fn idx_08_and_log_edge_190_an_empty_active_segment_without_index_files_loads_cleanly() {
    let bench = Bench::new(&[]);
    let log = bench.open();
    lead(&log, 10, 1, 200);
    log.roll(None).expect("a roll");
    log.abandon();
    assert_eq!(bench.size_of("00000000000000000010.index"), None);
    let log = bench.open();
    assert_eq!(log.log_end_offset().get(), 10);
    assert!(log.load_report().recovered.is_empty() && log.load_report().rebuilt.is_empty());
    log.close().expect("closed");
    assert_eq!(bench.size_of("00000000000000000010.index"), Some(0));
}

#[test]
fn log_edge_173_the_recovery_point_bounds_what_is_checked() {
    let bench = Bench::new(&[("internal.segment.bytes", "1000")]);
    let log = bench.open();
    for _ in 0..35 {
        lead(&log, 1, 1, 100);
    }
    assert_eq!(bases(&log), [0, 10, 20, 30]);
    log.abandon();
    let log = bench.open_unclean(25);
    assert_eq!(log.load_report().recovered, [Offset::new(20), Offset::new(30)]);
    // Recovery itself never raises it.
    assert_eq!((log.recovery_point().get(), log.log_end_offset().get()), (25, 35));
    log.flush(false).expect("flushed");
    assert_eq!(log.recovery_point().get(), 35);
}

#[test]
fn a_torn_tail_is_cut_after_a_crash_and_after_a_clean_stop() {
    for clean in [true, false] {
        let bench = Bench::new(&[]);
        let log = bench.open();
        for _ in 0..5 {
            lead(&log, 1, 1, 100);
        }
        log.close().expect("closed");
        let path = Path::new(DIR).join("00000000000000000000.log");
        let file = bench.backend.open(&path, OpenHow::Write).expect("open");
        file.submit(Op::SetLen { len: 493 }).wait().result.expect("cut");
        let log = if clean { bench.open() } else { bench.open_unclean(0) };
        assert_eq!((log.log_end_offset().get(), log.size()), (4, 400));
        let cuts = &log.load_report().cuts;
        assert!(matches!(cuts[0].reason, CutReason::TornTail), "{}", cuts[0]);
        assert_eq!(bench.size_of("00000000000000000000.log.cut"), Some(93));
        assert_eq!(lead(&log, 1, 1, 100).first_offset, Some(Offset::new(4)));
    }
}

#[test]
fn what_lies_behind_damage_is_kept_aside_after_a_crash() {
    let bench = Bench::new(&[("internal.segment.bytes", "1000")]);
    let log = bench.open();
    for n in 0..25 {
        lead(&log, 1, n, 100);
    }
    log.abandon();
    let path = Path::new(DIR).join("00000000000000000000.log");
    let mut bytes = bench.backend.names().read(&path, 10_000).expect("read").expect("a file");
    bytes[450] ^= 1;
    bench.backend.names().write(&path, &bytes, false).expect("written");
    let log = bench.open_unclean(0);
    assert_eq!((offsets(&log).2, bases(&log)), (4, vec![0]));
    let mut kept: Vec<_> = bench.files().into_iter().filter(|(name, _)| name.contains(".cut")).collect();
    kept.sort();
    let expected = [
        ("00000000000000000000.log.cut", 600),
        ("00000000000000000010.log.cut", 1000),
        ("00000000000000000020.log.cut", 500),
    ];
    assert_eq!(kept, expected.map(|(n, l)| (n.to_string(), l)));
    let report = log.load_report().to_string();
    assert!(report.contains("position 400") && report.contains("checksum"), "{report}");
    // The files that were kept are no reason for a complaint at the next start.
    log.close().expect("closed");
    assert!(bench.open().load_report().is_quiet());
}

#[test]
fn a_wrong_checksum_is_not_cut_after_a_clean_stop() {
    let bench = Bench::new(&[]);
    let log = bench.open();
    for _ in 0..3 {
        lead(&log, 1, 1, 100);
    }
    log.close().expect("closed");
    let path = Path::new(DIR).join("00000000000000000000.log");
    let mut bytes = bench.backend.names().read(&path, 10_000).expect("read").expect("a file");
    bytes[250] ^= 1;
    bench.backend.names().write(&path, &bytes, false).expect("written");
    let log = bench.open();
    assert_eq!((offsets(&log), log.size()), ((0, 0, 3), 300));
    assert!(log.load_report().is_quiet());
}

#[test]
fn log_edge_197_files_of_strange_names_are_left_alone() {
    let bench = Bench::new(&[]);
    bench.open().close().expect("closed");
    for name in ["abc.log", "foo.snapshot", "foo.cleaned", "notes.txt", "-5.log"] {
        bench.backend.names().write(&Path::new(DIR).join(name), b"something", false).expect("written");
    }
    let log = bench.open();
    let unknown: Vec<_> = log.load_report().unknown.iter().filter_map(|p| p.file_name()?.to_str()).collect();
    assert_eq!(unknown, ["-5.log", "abc.log", "foo.cleaned", "foo.snapshot", "notes.txt"]);
    assert_eq!(bench.size_of("abc.log"), Some(9));
}

#[test]
fn log_edge_188_a_log_that_ends_below_its_start_begins_anew_there() {
    let bench = Bench::new(&[("internal.segment.bytes", "100")]);
    let log = bench.open();
    for _ in 0..6 {
        lead(&log, 1, 1, 100);
    }
    log.abandon();
    bench
        .backend
        .names()
        .write(&Path::new(DIR).join("00000000000000000001.log"), &[1; 13], false)
        .expect("written");
    let options = kseg_log::OpenOptions { clean: false, log_start_offset: Offset::new(4), ..bench.options() };
    let log = Log::open(Path::new(DIR), options).expect("a log");
    assert_eq!((offsets(&log), bases(&log)), ((4, 4, 4), vec![4]));
    assert!(log.load_report().emptied);
}

#[test]
fn log_edge_193_leader_epochs_are_rebuilt_from_the_batches() {
    let bench = Bench::new(&[]);
    let log = bench.open();
    for epoch in [0, 0, 2, 5] {
        log.append_as_leader(batch(1, 1, 100), LeaderEpoch::new(epoch), Origin::Client).expect("an append");
    }
    log.abandon();
    bench
        .backend
        .names()
        .write(&Path::new(DIR).join("leader-epoch-checkpoint"), b"0\n1\n0 0\n", true)
        .expect("written");
    let log = bench.open_unclean(0);
    let epochs: Vec<_> = log
        .state(false)
        .expect("state")
        .epochs
        .iter()
        .map(|e| (e.epoch.get(), e.start_offset.get()))
        .collect();
    assert_eq!(epochs, [(0, 0), (2, 2), (5, 3)]);
}

#[test]
fn a_malformed_epoch_file_is_named_with_its_line() {
    let bench = Bench::new(&[]);
    bench.open().close().expect("closed");
    bench
        .backend
        .names()
        .write(&Path::new(DIR).join("leader-epoch-checkpoint"), b"0\n1\n0 0 0\n", true)
        .expect("written");
    let refused = Log::open(Path::new(DIR), bench.options()).expect_err("malformed");
    assert!(
        refused.to_string().contains("leader-epoch-checkpoint") && refused.to_string().contains('3'),
        "{refused}"
    );
}

#[test]
fn a_directory_that_is_no_partition_is_refused() {
    let bench = Bench::new(&[]);
    for dir in ["/data/nothing", "/data/t-", "/data/t-x"] {
        let refused = Log::open(Path::new(dir), bench.options()).expect_err("not a partition");
        assert_eq!(refused.kafka_name(), "KafkaException");
        assert!(refused.to_string().contains(dir), "{refused}");
    }
    bench.backend.names().create_dir_all(Path::new("/data")).expect("a directory");
    bench.backend.names().write(Path::new("/data/f-0"), b"", false).expect("a file");
    let refused = Log::open(Path::new("/data/f-0"), bench.options()).expect_err("a file");
    assert!(refused.to_string().contains("expected a directory"), "{refused}");
}

#[test]
fn log_edge_183_and_184_and_185_and_186_and_187_interrupted_swaps_are_finished_or_undone() {
    // One segment of four batches, and its replacement by two segments of two batches each.
    let whole: Vec<u8> = (0..4).flat_map(|n| batch_at(n, 1, 1, 100).to_vec()).collect();
    let (low, high) = whole.split_at(200);
    let states: [&[(&str, &[u8])]; 5] = [
        &[
            ("00000000000000000000.log", &whole),
            ("00000000000000000000.log.cleaned", low),
            ("00000000000000000002.log.cleaned", high),
        ],
        &[
            ("00000000000000000000.log", &whole),
            ("00000000000000000000.log.cleaned", low),
            ("00000000000000000002.log.swap", high),
        ],
        &[
            ("00000000000000000000.log", &whole),
            ("00000000000000000000.log.swap", low),
            ("00000000000000000002.log.swap", high),
        ],
        &[
            ("00000000000000000000.log.deleted", &whole),
            ("00000000000000000000.log.swap", low),
            ("00000000000000000002.log.swap", high),
        ],
        &[("00000000000000000000.log", low), ("00000000000000000002.log.swap", high)],
    ];
    for (n, files) in states.into_iter().enumerate() {
        let bench = Bench::new(&[]);
        bench.backend.names().create_dir_all(Path::new(DIR)).expect("a directory");
        for (name, bytes) in files {
            bench.backend.names().write(&Path::new(DIR).join(name), bytes, true).expect("written");
        }
        let log = bench.open_unclean(0);
        assert_eq!(bases(&log), if n < 2 { vec![0] } else { vec![0, 2] }, "state {n}");
        for offset in 0..4 {
            assert_eq!(read(&log, offset).0, offset, "state {n}");
        }
        let left = bench
            .files()
            .into_iter()
            .any(|(name, _)| !name.ends_with("index") && name.matches('.').count() > 1);
        assert!(!left, "state {n}: {:?}", bench.files());
    }
}

#[test]
fn a_second_file_for_a_base_offset_is_left_alone() {
    let bench = Bench::new(&[]);
    let log = bench.open();
    lead(&log, 3, 1, 200);
    log.close().expect("closed");
    bench.backend.names().write(&Path::new(DIR).join("0.log"), b"", false).expect("written");
    let log = bench.open();
    assert_eq!((log.log_end_offset().get(), log.size()), (3, 200));
    assert!(log.load_report().unknown.iter().any(|p| p.ends_with("0.log")));
}

#[test]
fn a_log_that_lost_what_was_durable_says_so() {
    let bench = Bench::new(&[]);
    let log = bench.open();
    lead(&log, 3, 1, 200);
    log.close().expect("closed");
    bench
        .backend
        .names()
        .write(&Path::new(DIR).join("00000000000000000000.log"), b"", false)
        .expect("emptied");
    let options = kseg_log::OpenOptions { recovery_point: Offset::new(3), ..bench.options() };
    let log = Log::open(Path::new(DIR), options).expect("a log");
    assert_eq!(log.load_report().missing_up_to, Some(Offset::new(3)));
    assert!(log.load_report().to_string().contains("below offset 3"));
}

/// That the folder is refused to a second log, whatever path leads there, and what the error says.
#[track_caller]
fn check_refused(options: OpenOptions, path: &Path) {
    let error = Log::open(path, options).expect_err("the log is open already");
    assert!(matches!(&error, Error::AlreadyOpen { dir } if dir == path), "{error:?}");
    let told = format!(
        "{}: expected a log that is not open, found one that is open already in this process",
        path.display()
    );
    assert_eq!((error.to_string(), error.kafka_name()), (told, "KafkaException"));
}

#[test]
fn a_log_is_open_once_in_a_process() {
    let above = tempfile::tempdir().expect("a directory");
    let std = Bench::below(above.path(), kseg_io_backends::open("std").expect("std"), &[]);
    let memory = Bench::new(&[]);
    for bench in [&memory, &std] {
        let log = bench.open();
        lead(&log, 3, 1, 100);
        let beside = bench.dir.with_file_name("t-1");
        let other = Log::open(&beside, bench.options()).expect("another log");
        for path in [bench.dir.clone(), beside.join("../t-0")] {
            check_refused(bench.options(), &path);
        }
        // What was refused has left the log, and its claim, as they were.
        lead(&log, 1, 1, 100);
        check_refused(bench.options(), &bench.dir);
        log.close().expect("closed");
        let log = bench.open();
        assert_eq!(log.log_end_offset(), Offset::new(4));
        log.abandon();
        drop(bench.open_unclean(0));
        assert_eq!(bench.open().log_end_offset(), Offset::new(4));
        drop(other);
    }
    // A world in memory is no part of another.
    let log = memory.open();
    let elsewhere = Bench::new(&[]).open();
    drop((log, elsewhere));
    // Any two backends on files are of the same world, and a link leads to the folder it leads to.
    let log = std.open();
    let link = above.path().join("link-0");
    std::os::unix::fs::symlink(&std.dir, &link).expect("a link");
    let again = kseg_io_backends::open("std").expect("std");
    for path in [&std.dir, &link] {
        check_refused(OpenOptions { backend: again.clone(), ..std.options() }, path);
    }
    drop(log);
}

#[test]
fn a_log_that_could_not_be_opened_is_not_open() {
    let bench = Bench::new(&[]);
    bench.open().close().expect("closed");
    let path = bench.dir.join("leader-epoch-checkpoint");
    bench.backend.names().replace(&path, b"nonsense").expect("written");
    for _ in 0..2 {
        let error = Log::open(&bench.dir, bench.options()).expect_err("a malformed file");
        assert!(matches!(error, Error::Checkpoint(_)), "{error:?}");
    }
    bench.backend.names().replace(&path, b"0\n0\n").expect("written");
    bench.open();
}

#[test]
fn a_log_of_a_data_directory_is_open_for_all_others_too() {
    let bench = Bench::new(&[]);
    let dir =
        LogDir::open(Path::new("/data"), LogDirOptions::new(bench.backend.clone())).expect("a directory");
    let partition = TopicPartition::new("t", 0);
    let log = dir.get_or_create(&partition, None).expect("a log");
    check_refused(bench.options(), &bench.dir);
    // The folder that was renamed for its deletion is not in the way of the next one of its name.
    assert!(dir.delete(&partition).expect("deleted"));
    let new = dir.get_or_create(&partition, None).expect("a log");
    check_refused(bench.options(), &bench.dir);
    drop((log, new));
    dir.shutdown().expect("shut down");
    bench.open();
}
