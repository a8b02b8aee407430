//! A journal of entries over whichever backend is named: appended, durable when they are to be, found again after any stop, read
//! from the file, from a map of it, and sent to a socket by the kernel.
//!
//! `cargo run -p kseg-io-backends --example journal -- FOLDER uring+direct` appends ten entries to those that are there.

use std::error::Error;
use std::io::Read;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::thread;

use bytes::Bytes;
use kseg_io_backends::{
    Appender, Backend, BackendSpec, Durability, Held, IoError, OpenHow, RawFile, Verdict, appender,
};

/// Bytes before each entry: its size, so that the next one is found, and what all its bytes come to, so that a torn one is.
const HEAD: u64 = 8;

struct Journal {
    log: Arc<dyn Appender>,
    /// Nobody else has it open.
    _lock: Box<dyn Held>,
}

impl Journal {
    /// Opens the journal in `dir`, without what a crash left of an entry that was never durable.
    fn open(backend: &Arc<dyn Backend>, dir: &Path) -> Result<Journal, IoError> {
        backend.names().create_dir_durably(dir)?;
        let lock = backend.names().lock(&dir.join(".lock"))?;
        let file = backend.open(&dir.join("0.journal"), OpenHow::Create)?;
        let mut end = 0;
        while let Some(entry) = entry_at(&*file, end)? {
            end += HEAD + entry.len() as u64;
        }
        let log = appender(file, end)?;
        log.truncate(end)?;
        // What was read may have been in a cache only, and the name, if it is new, in no directory yet.
        log.flush()?;
        backend.names().sync_dir(dir)?;
        Ok(Journal { log, _lock: lock })
    }

    /// Appends an entry: it can be read at once, and is durable when the handle says so.
    fn append(&self, entry: &[u8]) -> Result<Durability, IoError> {
        let mut head = [0; HEAD as usize];
        head[..4].copy_from_slice(&(entry.len() as u32).to_be_bytes());
        head[4..].copy_from_slice(&sum(entry).to_be_bytes());
        // Two parts, one write.
        let parts = vec![Bytes::copy_from_slice(&head), Bytes::copy_from_slice(entry)];
        match self.log.append_durable(parts.into()) {
            Ok((_, durable)) => Ok(durable),
            Err(error) => {
                match error.verdict() {
                    Verdict::NoSpace => {
                        eprintln!("nothing was appended, and may be once there is space: {error}")
                    }
                    _ => eprintln!("nothing more is appended until the journal is opened again: {error}"),
                }
                Err(error)
            }
        }
    }

    fn entries(&self) -> Result<Vec<String>, IoError> {
        let (mut entries, mut at) = (Vec::new(), 0);
        while at < self.log.marks().accepted() {
            let mut head = [0; HEAD as usize];
            self.log.read_at(&mut head, at)?;
            let mut entry = vec![0; size_in(&head) as usize];
            self.log.read_at(&mut entry, at + HEAD)?;
            at += HEAD + entry.len() as u64;
            entries.push(String::from_utf8_lossy(&entry).into_owned());
        }
        Ok(entries)
    }

    /// The file as it is when no more is appended to it, and durable: reserved space is gone.
    fn seal(self) -> Result<Arc<dyn RawFile>, IoError> {
        self.log.seal()?;
        // Behind the seal: the length is part of what is made durable.
        self.log.flush()?;
        Ok(Arc::clone(self.log.file()))
    }
}

/// The entry at `at`, if a whole one is there.
fn entry_at(file: &dyn RawFile, at: u64) -> Result<Option<Vec<u8>>, IoError> {
    let mut head = [0; HEAD as usize];
    let left = file.len()?.saturating_sub(at + HEAD);
    // Zeros are space that was taken ahead.
    if file.read_at(&mut head, at)? < head.len()
        || head == [0; HEAD as usize]
        || u64::from(size_in(&head)) > left
    {
        return Ok(None);
    }
    let mut entry = vec![0; size_in(&head) as usize];
    let count = file.read_at(&mut entry, at + HEAD)?;
    let whole = count == entry.len() && head[4..] == sum(&entry).to_be_bytes();
    Ok(whole.then_some(entry))
}

fn size_in(head: &[u8; HEAD as usize]) -> u32 {
    u32::from_be_bytes([head[0], head[1], head[2], head[3]])
}

/// A stand-in for a checksum; never 0.
fn sum(bytes: &[u8]) -> u32 {
    bytes.iter().fold(1, |sum: u32, byte| sum.rotate_left(5).wrapping_add(u32::from(*byte))) | 1
}

fn run(dir: &Path, spec: &str) -> Result<Vec<String>, Box<dyn Error>> {
    // What cannot be had on this file system is an error that says what would help; `auto` takes the next.
    let opened = spec.parse::<BackendSpec>()?.open_in(dir)?;
    for (wish, error) in &opened.passed_over {
        println!("not {wish}: {error}");
    }
    let journal = Journal::open(&opened.backend, dir)?;
    let known = journal.entries()?.len();
    let handles: Vec<Durability> = (known..known + 10)
        .map(|number| journal.append(format!("entry {number}").as_bytes()))
        .collect::<Result<_, IoError>>()?;
    // One sync for all of them. They can be awaited as well, and asked with `check`.
    for durable in handles {
        durable.wait()?;
    }
    let entries = journal.entries()?;

    let file = journal.seal()?;
    let len = file.len()?;
    // Without a copy where the engine can: the file must not change while somebody looks at them.
    let mapped = file.map_bytes(0..len)?;
    let (near, mut far) = UnixStream::pair()?;
    let receiver = thread::spawn(move || {
        let mut all = Vec::new();
        far.read_to_end(&mut all).map(|_| all)
    });
    let sent = kseg_io_backends::send(&*file, near.as_fd(), 0..len)?;
    drop(near);
    let received = receiver.join().map_err(|_| "the receiver panicked")??;
    assert!(sent == len && received == mapped);
    Ok(entries)
}

fn told() -> Result<(), Box<dyn Error>> {
    let mut args = std::env::args_os().skip(1);
    let dir = args.next().map(PathBuf::from).ok_or("expected a folder, and the name of a backend")?;
    let spec =
        args.next().map_or(Ok("auto".to_owned()), |spec| spec.into_string()).map_err(|_| "not a name")?;
    let entries = run(&dir, &spec)?;
    println!("{} entries, the last one {:?}", entries.len(), entries.last());
    Ok(())
}

fn main() -> ExitCode {
    match told() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // As text, which says what would help.
            eprintln!("journal: {error}");
            ExitCode::FAILURE
        }
    }
}

#[test]
fn entries_are_there_after_each_start_whichever_backend_is_next() {
    let folder = tempfile::tempdir().expect("a folder");
    for (starts, spec) in (1..).zip(["auto", "std", "std,zeroed=64k", "std,dsync=on"]) {
        let entries = run(folder.path(), spec).expect(spec);
        assert_eq!(
            entries,
            (0..starts * 10).map(|number| format!("entry {number}")).collect::<Vec<_>>(),
            "{spec}"
        );
        // What a crash left of an entry, and zeros behind it, are not taken for one.
        let path = folder.path().join("0.journal");
        let mut bytes = std::fs::read(&path).expect("the file");
        bytes.extend([&[0, 0, 0, 5, 1, 2, 3, 4, b'h', b'a'][..], &[0; 5000]].concat());
        std::fs::write(&path, bytes).expect("written");
    }
}

#[cfg(feature = "testing")]
#[test]
fn what_was_durable_is_there_wherever_the_power_goes() {
    use kseg_io_backends::{Loss, PowerLoss};

    let dir = Path::new("/data/journal");
    for cut in 0.. {
        let disk = Arc::new(PowerLoss::new());
        disk.cut_at(cut);
        let mut durable = 0;
        let mut write = || -> Result<(), IoError> {
            let journal = Journal::open(&(disk.clone() as Arc<dyn Backend>), dir)?;
            (0..3).try_for_each(|number| journal.append(&[number])?.wait().map(|_| durable += 1))
        };
        assert!(write().is_ok() || disk.is_off());
        for loss in [Loss::Nothing, Loss::Everything, Loss::Names, Loss::Bytes, Loss::Random(cut)] {
            let found = Arc::new(disk.after(loss)) as Arc<dyn Backend>;
            let journal = Journal::open(&found, dir).expect("a journal");
            assert!(journal.entries().expect("readable").len() >= durable, "cut at {cut}, {loss:?}");
        }
        if !disk.is_off() {
            break;
        }
    }
}
