//! Bytes of a file to a socket: all of them, in order, and by the kernel.

use std::io::Read;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use kseg_io_backends::{Appender, Backend, MemoryBackend, OpenHow, Verdict, appender, send};

use crate::places;

fn bytes(len: usize) -> Vec<u8> {
    (0..len).map(|place| (place * 31 % 251) as u8).collect()
}

fn log(backend: &dyn Backend, dir: &Path, len: usize) -> Arc<dyn Appender> {
    backend.names().create_dir_all(dir).unwrap();
    let log = appender(backend.open(&dir.join("0.log"), OpenHow::CreateNew).unwrap(), 0).unwrap();
    for part in bytes(len).chunks(10_007) {
        log.append(Bytes::copy_from_slice(part).into()).unwrap();
    }
    log
}

/// What arrives at the other end of a socket while `send` runs, and what it returned.
fn received<T>(send: impl FnOnce(&UnixStream) -> T) -> (Vec<u8>, T) {
    let (near, mut far) = UnixStream::pair().unwrap();
    std::thread::scope(|scope| {
        let reader = scope.spawn(move || {
            let mut all = Vec::new();
            far.read_to_end(&mut all).unwrap();
            all
        });
        let result = send(&near);
        drop(near);
        (reader.join().unwrap(), result)
    })
}

#[test]
fn a_range_of_an_active_file_arrives_whole_on_every_backend() {
    let check = |spec: &str, log: Arc<dyn Appender>| {
        let all = bytes(300_000);
        for (from, to) in [(0, 300_000), (1, 2), (4095, 131_073), (299_990, 400_000), (300_000, 300_001)] {
            let (arrived, sent) = received(|socket| log.send_to(socket.as_fd(), from..to).unwrap());
            let expected = &all[from as usize..(to as usize).min(all.len())];
            assert_eq!(sent, expected.len() as u64, "{spec}: {from}..{to}");
            assert_eq!(arrived, expected, "{spec}: {from}..{to}");
        }
    };
    places::with_each(|spec, backend, dir| check(spec, log(&*backend, dir, 300_000)));
    check("memory", log(&MemoryBackend::new(), Path::new("d"), 300_000));
}

#[test]
fn a_sealed_file_goes_to_a_socket() {
    places::with_each(|spec, backend, dir| {
        let log = log(&*backend, &dir.join("sent"), 200_000);
        log.seal().unwrap();
        let (arrived, sent) = received(|socket| send(&**log.file(), socket.as_fd(), 100..200_000).unwrap());
        assert_eq!(sent, 199_900, "{spec}");
        assert_eq!(arrived, bytes(200_000)[100..], "{spec}");
        let (arrived, sent) = received(|socket| log.send_to(socket.as_fd(), 5..200_000).unwrap());
        assert_eq!(sent, 199_995, "{spec}");
        assert_eq!(arrived, bytes(200_000)[5..], "{spec}");
    });
}

#[test]
fn the_kernel_sends_a_sealed_file_of_every_backend_and_nobody_reads_it() {
    let dir = places::on_disk();
    let calls = "trace=sendfile,splice,read,pread64,readv,preadv,preadv2,mmap";
    let Some(trace) = places::traced("reads::a_sealed_file_goes_to_a_socket", calls, dir.path()) else {
        return;
    };
    let sends = |line: &str| line.contains("sendfile(") || line.contains("splice(");
    // Each backend's directory has the number of its specification for a name.
    let mut seen = 0;
    for (index, spec) in places::SPECS.iter().enumerate() {
        let file = format!("/{index}/sent/0.log>");
        let on_the_file: Vec<&str> = trace.lines().filter(|line| line.contains(&file)).collect();
        if on_the_file.is_empty() {
            assert!(places::backend(spec, dir.path()).is_none(), "{spec}: nothing was done with {file}");
            continue;
        }
        seen += 1;
        assert!(on_the_file.iter().any(|line| sends(line)), "{spec}: {on_the_file:#?}");
        // A probe at the open reads of an empty file.
        let moves_nothing = |line: &str| line.ends_with(" = 0");
        assert!(
            on_the_file.iter().all(|line| sends(line) || moves_nothing(line)),
            "{spec}: {on_the_file:#?}"
        );
    }
    assert!(seen >= 5, "the engine std is to be had everywhere: {trace}");
}

#[test]
fn a_socket_that_does_not_block_takes_what_it_can() {
    let dir = places::on_disk();
    for (spec, len) in [("std", 4_000_000), ("memory", 4_000_000)] {
        let backend = kseg_io_backends::open(spec).unwrap();
        let log = log(&*backend, &dir.path().join(spec), len);
        let (near, mut far) = UnixStream::pair().unwrap();
        near.set_nonblocking(true).unwrap();
        let (mut at, mut arrived) = (0, Vec::new());
        while at < len as u64 {
            match log.send_to(near.as_fd(), at..len as u64) {
                Ok(sent) => {
                    assert!(sent > 0);
                    at += sent;
                }
                Err(error) => {
                    assert_eq!(error.kind(), std::io::ErrorKind::WouldBlock, "{error}");
                    let mut some = vec![0; 100_000];
                    let count = far.read(&mut some).unwrap();
                    arrived.extend_from_slice(&some[..count]);
                }
            }
        }
        drop(near);
        far.read_to_end(&mut arrived).unwrap();
        assert!(arrived == bytes(len), "{spec}");
    }
}

#[test]
fn a_file_that_ends_before_the_range_is_an_error() {
    let dir = places::on_disk();
    let backend = kseg_io_backends::open("std").unwrap();
    let log = log(&*backend, dir.path(), 1000);
    let (arrived, error) = received(|socket| send(&**log.file(), socket.as_fd(), 900..1100).unwrap_err());
    assert_eq!(arrived, bytes(1000)[900..]);
    assert_eq!((error.verdict(), error.at(), error.size()), (Verdict::Damaged, Some(900), Some(200)));
}

#[test]
fn what_the_kernel_does_not_send_is_copied() {
    places::with_each(|spec, backend, dir| {
        let log = log(&*backend, dir, 200_000);
        log.flush().unwrap();
        // sendfile(2) refuses a file that is opened to be appended to.
        let path = dir.join("copy");
        let copy = std::fs::OpenOptions::new().append(true).create(true).open(&path).unwrap();
        assert_eq!(log.send_to(copy.as_fd(), 1000..u64::MAX).unwrap(), 199_000, "{spec}");
        assert!(std::fs::read(&path).unwrap() == bytes(200_000)[1000..], "{spec}");
    });
}

#[test]
#[cfg(feature = "testing")]
fn what_is_cut_and_appended_to_again_beside_a_read_is_no_damage() {
    use std::sync::Mutex;

    use kseg_io_backends::{Call, MemoryBackend, Moment, Watched};

    let on: Arc<Mutex<Option<Arc<dyn Appender>>>> = Arc::default();
    let told = Arc::clone(&on);
    let reads = Mutex::new(0);
    let watched = Watched::new(Arc::new(MemoryBackend::new()), move |moment, call, _| {
        let log = told.lock().unwrap().clone();
        let (Call::Read, Some(log)) = (call, log) else { return };
        let mut reads = reads.lock().unwrap();
        match (moment, *reads) {
            // The first read finds half of the file, the second nothing, and then all is there again.
            (Moment::Before, 0) => log.truncate(100_000).unwrap(),
            (Moment::Done, 1) => drop(log.append(Bytes::from(bytes(100_000)).into()).unwrap()),
            _ => {}
        }
        *reads += i32::from(moment == Moment::Done);
    });
    let log = log(&watched, Path::new("d"), 200_000);
    *on.lock().unwrap() = Some(Arc::clone(&log));
    let mut seen = vec![0; 300_000];
    assert_eq!(log.read_at(&mut seen, 0).unwrap(), 200_000);
    assert!(seen[..100_000] == bytes(200_000)[..100_000] && seen[100_000..200_000] == bytes(100_000));
    *on.lock().unwrap() = None;
}
