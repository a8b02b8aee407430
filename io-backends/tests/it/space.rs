//! Space that is taken ahead, and files that are longer than what counts in them.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use kseg_io_backends::{Appender, Backend, OpenHow, Verdict, appender, open};

use crate::places;

/// Bytes that the file system has given to a file.
fn taken(path: &Path) -> u64 {
    fs::metadata(path).unwrap().blocks() * 512
}

#[test]
fn space_that_was_taken_and_not_used_goes_back_when_a_file_is_sealed_or_let_go_of() {
    for kind in ["ext4", "xfs"] {
        let Some(disk) = places::on_loop(kind, 512, 320 << 20) else { continue };
        for (index, spec) in places::SPECS.iter().enumerate() {
            let Some(backend) = places::backend(spec, disk.path()) else { continue };
            for sealed in [true, false] {
                let what = format!("{spec} on {kind}, sealed: {sealed}");
                let path = disk.path().join(format!("{index}-{sealed}.log"));
                let log = appender(backend.open(&path, OpenHow::CreateNew).unwrap(), 0).unwrap();
                log.append(Bytes::from(vec![1; 100_000]).into()).unwrap();
                log.flush().unwrap();
                let ahead = taken(&path);
                if sealed {
                    log.seal().unwrap();
                    log.flush().unwrap();
                } else {
                    drop(log);
                }
                assert_eq!(fs::metadata(&path).unwrap().len(), 100_000, "{what}");
                let left = taken(&path);
                assert!(left < 140_000, "{what}: {left} of {ahead}");
            }
        }
    }
}

/// A file of 20 MiB, appended to by 64 KiB and flushed after each `flushed` of them.
fn appended(backend: &dyn Backend, path: &Path, flushed: usize) -> Arc<dyn Appender> {
    let log = appender(backend.open(path, OpenHow::CreateNew).unwrap(), 0).unwrap();
    for index in 1..=320 {
        log.append(Bytes::from(vec![1; 64 << 10]).into()).unwrap();
        if index % flushed == 0 {
            log.flush().unwrap();
        }
    }
    log
}

#[test]
fn space_ahead_is_a_part_of_what_the_file_holds_and_none_where_flushes_are_frequent() {
    const LEN: u64 = 20 << 20;
    let Some(disk) = places::on_loop("ext4", 512, 320 << 20) else { return };
    let path = disk.path().join("0.log");
    // Extents have a block of their own at times.
    let bare = LEN..LEN + (64 << 10);
    for (spec, flushed, ahead) in [
        ("std", 1000, true),
        // Sixteen steps between two flushes are 1 MiB; a step is more than that.
        ("std", 16, false),
        ("std", 1, false),
        ("std,preallocate=0", 1000, false),
        ("std,dsync=on", 1000, false),
        ("std+dontcache", 1000, true),
        // Of 64 KiB: it is `inline` that has them written when they return.
        ("uring,inline=1m", 1000, true),
        ("uring,inline=1m", 1, false),
        ("uring,inline=1m,preallocate=0", 1000, false),
    ] {
        let what = format!("{spec}, flushed after {flushed}");
        let Some(backend) = places::backend(spec, disk.path()) else { continue };
        let log = appended(&*backend, &path, flushed);
        assert_eq!(fs::metadata(&path).unwrap().len(), LEN, "{what}");
        log.flush().unwrap();
        let held = taken(&path);
        if ahead {
            assert!(held > LEN + (256 << 10) && held <= LEN + LEN / 4 + (64 << 10), "{what}: {held}");
        } else {
            assert!(bare.contains(&held), "{what}: {held}");
        }
        // Cut, it holds what it has; and goes on taking where it is.
        log.truncate(LEN / 2).unwrap();
        assert!(taken(&path) <= LEN / 2 + (64 << 10), "{what}");
        for _ in 0..160 {
            log.append(Bytes::from(vec![2; 64 << 10]).into()).unwrap();
        }
        log.seal().unwrap();
        log.flush().unwrap();
        assert!(bare.contains(&taken(&path)), "{what}: {} when sealed", taken(&path));
        drop(log);
        fs::remove_file(&path).unwrap();
    }
    // Let go of without being sealed.
    drop(appended(&*open("std").unwrap(), &path, 1000));
    fs::File::open(&path).unwrap().sync_all().unwrap();
    assert!(bare.contains(&taken(&path)), "{} when closed", taken(&path));
}

#[test]
fn iob_10_space_ahead_leaves_nothing_of_a_full_disk_unused() {
    let Some(disk) = places::on_loop("ext4", 512, 64 << 20) else { return };
    let path = disk.path().join("0.log");
    // What an append at a time brings to the disk, with and without.
    let filled = ["std", "std,preallocate=0"].map(|spec| {
        let backend = places::backend(spec, disk.path()).unwrap();
        let log = appender(backend.open(&path, OpenHow::CreateNew).unwrap(), 0).unwrap();
        let refused = loop {
            if let Err(error) = log.append(Bytes::from(vec![4; 64 << 10]).into()) {
                break error;
            }
        };
        assert_eq!(refused.verdict(), Verdict::NoSpace, "{spec}: {refused}");
        let accepted = log.marks().accepted();
        assert_eq!(log.flush().unwrap(), accepted);
        drop(log);
        assert!(fs::read(&path).unwrap() == vec![4; accepted as usize], "{spec}");
        fs::remove_file(&path).unwrap();
        accepted
    });
    assert!(filled[0] >= filled[1] - (256 << 10) && filled[1] > 32 << 20, "{filled:?}");
}

#[test]
fn no_space_is_taken_ahead_where_it_would_be_memory() {
    let Some(dir) = places::on_tmpfs() else { return };
    let path = dir.path().join("0.log");
    let log = appended(&*open("std").unwrap(), &path, 1000);
    assert_eq!(taken(&path), log.marks().accepted());
}

#[test]
#[cfg(feature = "testing")]
fn iob_10_space_that_is_only_welcome_and_not_there_refuses_no_append() {
    use kseg_io_backends::{Call, Fault, Faulty};

    let Some(disk) = places::on_loop("ext4", 512, 320 << 20) else { return };
    for (errno, fails) in [(Fault::ENOSPC, false), (Fault::EIO, true)] {
        let path = disk.path().join(format!("{errno}.log"));
        let faulty = Faulty::new(open("std").unwrap());
        faulty.inject(Fault::on(Call::Reserve).error(errno));
        let log = appender(faulty.open(&path, OpenHow::CreateNew).unwrap(), 0).unwrap();
        let append = || log.append(Bytes::from(vec![3; 1 << 20]).into());
        for _ in 0..8 {
            append().unwrap();
        }
        if fails {
            let error = append().unwrap_err();
            assert_eq!(error.verdict(), Verdict::Damaged, "{error}");
            assert!(log.marks().fenced());
        } else {
            for _ in 8..20 {
                append().unwrap();
            }
            assert_eq!(log.flush().unwrap(), 20 << 20);
        }
        assert_eq!(faulty.fired(), 1, "{errno}");
    }
}

#[test]
fn what_lay_behind_the_end_when_a_file_was_opened_is_gone_with_the_first_flush_of_an_append() {
    places::with_each(|spec, backend, dir| {
        // Zeros stay ahead; and where writes are done when they return, what is there stays until it is sealed.
        if spec.contains("zeroed") || !(spec.contains("direct") || spec.contains("uring")) {
            return;
        }
        let path = dir.join("0.log");
        let reopened = |len| {
            fs::write(&path, [7; 20_000]).unwrap();
            appender(backend.open(&path, OpenHow::Write).unwrap(), len).unwrap()
        };
        let len = || fs::metadata(&path).unwrap().len();
        for end in [0, 4096, 5000] {
            let log = reopened(end);
            log.append(Bytes::from_static(&[1; 100]).into()).unwrap();
            log.flush().unwrap();
            assert_eq!(len(), end + 100, "{spec}");
            let log = reopened(end);
            log.append(Bytes::from_static(&[1; 100]).into()).unwrap();
            drop(log);
            assert_eq!(len(), end + 100, "{spec}");
        }
        // Who appends nothing changes nothing.
        let log = reopened(5000);
        log.flush().unwrap();
        drop(log);
        assert_eq!(len(), 20_000, "{spec}");
    });
}

#[test]
fn a_file_that_was_made_and_cannot_be_had_is_not_left_behind() {
    let Some(dir) = places::on_tmpfs() else { return };
    let path = dir.path().join("0.log");
    let direct = open("std+direct").unwrap();
    for _ in 0..2 {
        let error = direct.open(&path, OpenHow::CreateNew).unwrap_err();
        assert_eq!(error.kind(), std::io::ErrorKind::Unsupported, "{error}");
        assert!(!path.exists());
    }
    // One that was there stays.
    fs::write(&path, b"theirs").unwrap();
    direct.open(&path, OpenHow::Create).unwrap_err();
    direct.open(&path, OpenHow::CreateNew).unwrap_err();
    assert_eq!(fs::read(&path).unwrap(), b"theirs");
}

#[test]
#[cfg(feature = "testing")]
fn nothing_is_stable_that_was_not_accepted() {
    use std::sync::{Arc, Mutex};

    use kseg_io_backends::{Appender, Backend, Call, Moment, Watched};

    places::with_each(|spec, backend, dir| {
        let log: Arc<Mutex<Option<Arc<dyn Appender>>>> = Arc::default();
        let told = Arc::clone(&log);
        let of = spec.to_owned();
        let watched = Watched::new(backend, move |moment, call, _| {
            let log = told.lock().unwrap().clone();
            if let (Moment::Before, Call::Write, Some(log)) = (moment, call, log) {
                // In this order: the one that is read last may have moved on.
                let (stable, accepted) = (log.marks().stable(), log.marks().accepted());
                assert!(stable <= accepted, "{of}: {stable} and {accepted}");
            }
        });
        let on = appender(watched.open(&dir.join("0.log"), OpenHow::CreateNew).unwrap(), 0).unwrap();
        *log.lock().unwrap() = Some(Arc::clone(&on));
        // Many writes, of which the first have landed before the last begin.
        on.append(Bytes::from(vec![1; 20 << 20]).into()).unwrap();
        on.flush().unwrap();
        *log.lock().unwrap() = None;
    });
}
