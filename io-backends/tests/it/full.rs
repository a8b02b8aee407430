//! A disk that is really full.

use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use kseg_io_backends::{Appender, Op, OpenHow, RawFile, Reserve, Verdict, appender, open};

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

#[test]
fn iob_10_a_disk_that_is_really_full_refuses_appends_and_takes_them_again_when_there_is_space() {
    for kind in ["ext4", "xfs"] {
        let Some(disk) = places::on_loop(kind, 512, 320 << 20) else { continue };
        for (index, spec) in places::SPECS.iter().enumerate() {
            let Some(backend) = places::backend(spec, disk.path()) else { continue };
            let what = format!("{spec} on {kind}");
            let path = disk.path().join(format!("{index}.log"));
            let log = appender(backend.open(&path, OpenHow::CreateNew).unwrap(), 0).unwrap();
            let append = |len: usize| {
                let at = log.marks().accepted();
                log.append(Bytes::from(bytes(at, len)).into()).map(drop)
            };
            append(1000).unwrap();
            assert_eq!(log.flush().unwrap(), 1000);
            let ballast = ballast(disk.path(), 400 << 10);
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
