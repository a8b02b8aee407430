//! A disk that is really full.

use std::io::ErrorKind;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use bytes::Bytes;
use kseg_io_backends::{Appender, IoError, Op, OpenHow, RawFile, Reserve, Verdict, appender, open};

use crate::places;

/// A file that takes all space but for about `left` bytes.
fn ballast(dir: &Path, left: u64) -> Arc<dyn RawFile> {
    let file = open("std").unwrap().open(&dir.join("ballast"), OpenHow::CreateNew).unwrap();
    let (mut at, mut step) = (0, 16 << 20);
    while step >= 4096 {
        let op = Op::Reserve { range: at..at + step, how: Reserve::BlocksAndLen };
        match file.submit(op).wait().result {
            Ok(_) => at += step,
            Err(error) => {
                assert_eq!(error.verdict(), Verdict::NoSpace, "{error}");
                step /= 2;
            }
        }
    }
    file.submit(Op::SetLen { len: at - left }).wait().result.unwrap();
    file
}

fn bytes(from: u64, len: usize) -> Vec<u8> {
    (from..from + len as u64).map(|place| (place * 31 % 251) as u8).collect()
}

fn all(log: &dyn Appender) -> Vec<u8> {
    let mut all = vec![0; 10_000_000];
    let count = log.read_at(&mut all, 0).unwrap();
    all.truncate(count);
    all
}

/// Appends what belongs at the log's end.
fn append(log: &dyn Appender, len: usize) -> Result<(), IoError> {
    log.append(Bytes::from(bytes(log.marks().accepted(), len)).into()).map(drop)
}

#[test]
fn iob_10_a_disk_that_is_really_full_refuses_appends_and_takes_them_again_when_there_is_space() {
    for kind in ["ext4", "xfs"] {
        let Some(disk) = places::on_loop(kind, 512, 320 << 20) else { continue };
        for (index, spec) in places::SPECS.iter().enumerate() {
            let Some(backend) = places::backend(spec, disk.path()) else { continue };
            let what = format!("{spec} on {kind}");
            let path = disk.path().join(format!("{index}.log"));
            let log = appender(backend.open(&path, OpenHow::CreateNew).unwrap(), 0).unwrap();
            let append = |len| append(&*log, len);
            append(400).unwrap();
            append(600).unwrap();
            assert_eq!(log.flush().unwrap(), 1000);
            let ballast = ballast(disk.path(), 400 << 10);
            // A backend can be had there all the same.
            let mut rest = Vec::new();
            while let Ok(file) = tempfile::tempfile_in(disk.path())
                && file.write_all_at(&[7; 4096], 0).is_ok()
            {
                rest.push(file);
            }
            assert!(places::backend(spec, disk.path()).is_some(), "{what}");
            drop(rest);
            // Twice: a file system may find some more when it has thought about it.
            for len in [10_000, 50_000] {
                let refused = loop {
                    match append(len) {
                        Ok(()) => assert!(log.marks().accepted() < 4 << 20, "{what}: it is not full"),
                        Err(error) => break error,
                    }
                };
                assert_eq!(refused.verdict(), Verdict::NoSpace, "{what}: {refused}");
                assert!(refused.to_string().contains(&format!("{index}.log")), "{refused}");
            }
            assert!(!log.marks().fenced(), "{what}");
            let accepted = log.marks().accepted();
            assert!(accepted > 50_000, "{what}: nothing was accepted: {accepted}");
            // What was accepted is there, is written when it can be, and can be cut.
            assert!(all(&*log) == bytes(0, accepted as usize), "{what}");
            match log.flush() {
                Ok(durable) => assert_eq!(durable, accepted, "{what}"),
                Err(error) => assert_eq!(error.verdict(), Verdict::NoSpace, "{what}: {error}"),
            }
            log.truncate(accepted - 30_000).unwrap();
            assert!(all(&*log) == bytes(0, accepted as usize - 30_000), "{what}");
            ballast.submit(Op::SetLen { len: 0 }).wait().result.unwrap();
            drop(ballast);
            std::fs::remove_file(disk.path().join("ballast")).unwrap();
            for _ in 0..20 {
                append(10_000).unwrap_or_else(|error| panic!("{what}: {error}"));
            }
            let len = accepted - 30_000 + 200_000;
            assert_eq!(log.flush().unwrap(), len, "{what}");
            assert_eq!(log.seal().unwrap(), len, "{what}");
            drop(log);
            assert!(std::fs::read(&path).unwrap() == bytes(0, len as usize), "{what}");
            std::fs::remove_file(&path).unwrap();
        }
    }
}

/// The directory for the process of [`iob_10_a_limit_on_the_size_of_files_refuses_appends_and_fences_nothing`] that has the limit.
const LIMITED: &str = "KSEG_LIMITED";

#[test]
fn iob_10_a_limit_on_the_size_of_files_refuses_appends_and_fences_nothing() {
    let name = "full::iob_10_a_limit_on_the_size_of_files_refuses_appends_and_fences_nothing";
    if let Some(dir) = std::env::var_os(LIMITED) {
        return places::SPECS.iter().for_each(|spec| meet_the_limit(spec, Path::new(&dir)));
    }
    // In blocks of 512 bytes, no multiple of what engines write at a time; and in the middle of such a block.
    for limit in ["ulimit -f 2001", "prlimit --pid $$ --fsize=1000001"] {
        // The limit is the process's: one of its own meets it, which ignores the signal that comes with the error.
        let dir = places::on_disk();
        let script = format!("{limit} || exit 77; trap '' XFSZ; exec \"$0\" --exact {name} --nocapture");
        let mut shell = Command::new("sh");
        shell.arg("-c").arg(script).arg(std::env::current_exe().unwrap()).env(LIMITED, dir.path());
        let output = shell.output().unwrap();
        let told = String::from_utf8_lossy(&output.stdout);
        let error = String::from_utf8_lossy(&output.stderr);
        if output.status.code() == Some(77) {
            println!("skipped: {limit}: {error}");
            continue;
        }
        assert!(output.status.success(), "{limit}: {told}{error}");
        assert!(told.contains("std met it"), "{limit}: {told}");
    }
}

fn meet_the_limit(spec: &str, dir: &Path) {
    let Some(backend) = places::backend(spec, dir) else { return };
    let path = dir.join(format!("{spec}.log"));
    let log = appender(backend.open(&path, OpenHow::CreateNew).unwrap(), 0).unwrap();
    let append = |len| append(&*log, len);
    append(400).unwrap();
    append(600).unwrap();
    assert_eq!(log.flush().unwrap(), 1000);
    for len in [90_000, 40_000] {
        // What an append accepts may not have been written yet.
        let refused = loop {
            if let Err(error) = append(len).and_then(|()| log.flush()) {
                break error;
            }
            assert!(log.marks().accepted() < 2 << 20, "{spec}: there is no limit");
        };
        assert_eq!(
            (refused.verdict(), refused.kind()),
            (Verdict::NoSpace, ErrorKind::FileTooLarge),
            "{spec}"
        );
        assert!(refused.to_string().contains(".log"), "{refused}");
    }
    assert!(!log.marks().fenced(), "{spec}");
    let (accepted, durable) = (log.marks().accepted(), log.marks().durable());
    assert!(durable > 500_000, "{spec}: {durable}");
    assert!(all(&*log) == bytes(0, accepted as usize), "{spec}");
    // What was acknowledged stays, also where what came behind it is cut.
    log.truncate(durable - 50_000).unwrap();
    append(30_000).unwrap();
    let len = durable - 20_000;
    assert_eq!(log.flush().unwrap(), len, "{spec}");
    assert_eq!(log.seal().unwrap(), len, "{spec}");
    drop(log);
    assert!(std::fs::read(&path).unwrap() == bytes(0, len as usize), "{spec}");
    // Without a flush in between: where space is taken ahead, what is accepted has it.
    if spec.contains("preallocate=0") {
        return println!("{spec} met it");
    }
    let log =
        appender(backend.open(&dir.join(format!("{spec}-2.log")), OpenHow::CreateNew).unwrap(), 0).unwrap();
    while self::append(&*log, 16_000).is_ok() {
        assert!(log.marks().accepted() < 2 << 20, "{spec}: there is no limit");
    }
    let accepted = log.marks().accepted();
    assert_eq!(log.seal().unwrap(), accepted, "{spec}");
    println!("{spec} met it");
}
