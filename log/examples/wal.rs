//! A write-ahead log: an entry is acknowledged once it survives a loss of power, and all entries are read back at the start.
//!
//! `cargo run -p kseg-log --example wal -- FOLDER` appends a hundred entries to those that are there. They are awaited, by tasks
//! of an executor of a few lines; any other will do. Entries that are awaited at the same time share a flush.

use std::error::Error;
use std::future::Future;
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};

use bytes::BytesMut;
use kseg_format::{BatchOptions, Batches, LeaderEpoch, Offset, Origin, RecordBatchBuilder};
use kseg_log::{
    Isolation, Log, LogConfig, LogDir, LogDirOptions, ThreadScheduler, TopicPartition, TransactionVersion,
};

/// A directory with one partition.
struct Wal {
    dir: LogDir,
    log: Arc<Log>,
}

impl Wal {
    /// Opens the log; what a crash left is recovered.
    fn open(path: &Path) -> Result<Wal, Box<dyn Error>> {
        let options = LogDirOptions {
            config: LogConfig::from_pairs([("retention.ms", "-1")])?,
            // Runs the flushes for entries that are awaited.
            scheduler: ThreadScheduler::start()?,
            ..LogDirOptions::new(kseg_io_backends::open("std")?)
        };
        let dir = LogDir::open(path, options)?;
        let log = dir.get_or_create(&TopicPartition::new("wal", 0), None)?;
        Ok(Wal { dir, log })
    }

    /// Hands every entry from `from` on to `entry`, with its offset.
    fn replay(&self, from: Offset, mut entry: impl FnMut(Offset, &[u8])) -> Result<(), Box<dyn Error>> {
        let (mut next, mut scratch) = (from, Vec::new());
        while let Some(region) = self.log.read(next, 1 << 20, Isolation::LogEnd, true)?.region {
            for batch in Batches::new(&region.to_bytes()?) {
                let batch = batch?.verify()?;
                for record in batch.records(&mut scratch, 1 << 30)? {
                    let record = record?;
                    // A read begins with a whole batch.
                    if record.offset() >= from {
                        entry(record.offset(), record.value().unwrap_or_default());
                    }
                }
                next = batch.header().next_offset();
            }
        }
        Ok(())
    }

    /// Appends an entry; it is in order with all others at once, and durable when the future is ready.
    async fn append(&self, entry: &[u8]) -> Result<Offset, Box<dyn Error>> {
        let mut builder = RecordBatchBuilder::new(BatchOptions::default());
        builder.append(None, None, Some(entry), &[])?;
        let mut batch = BytesMut::new();
        builder.finish(&mut batch)?;
        let (info, durable) = self.log.append_as_leader_durable(
            batch,
            LeaderEpoch::new(0),
            Origin::Client,
            TransactionVersion::V0,
        )?;
        durable.await?;
        Ok(info.last_offset.ok_or("a batch without records")?)
    }
}

fn run(path: &Path) -> Result<Vec<(Offset, String)>, Box<dyn Error>> {
    let wal = Wal::open(path)?;
    let mut known = 0;
    wal.replay(wal.log.log_start_offset(), |_, _| known += 1)?;
    let entries: Vec<String> = (known..known + 100).map(|n| format!("entry {n}")).collect();
    let appends = entries.iter().map(|entry| wal.append(entry.as_bytes()));
    for (entry, offset) in entries.iter().zip(all(appends)) {
        let offset = offset?;
        assert_eq!(*entry, format!("entry {}", offset.get()));
    }
    let mut found = Vec::new();
    wal.replay(Offset::ZERO, |offset, entry| {
        found.push((offset, String::from_utf8_lossy(entry).into_owned()));
    })?;
    wal.dir.shutdown()?;
    Ok(found)
}

fn main() -> Result<(), Box<dyn Error>> {
    let path = std::env::args_os().nth(1).map(PathBuf::from).ok_or("expected a folder")?;
    let entries = run(&path)?;
    println!("{} entries, the last one {:?}", entries.len(), entries.last());
    Ok(())
}

/// Runs the futures side by side until all are ready.
fn all<F: Future>(futures: impl Iterator<Item = F>) -> Vec<F::Output> {
    let mut tasks: Vec<_> = futures.map(|task| (Box::pin(task), None)).collect();
    let everyone = std::future::poll_fn(|context| {
        for (task, result) in tasks.iter_mut().filter(|(_, result)| result.is_none()) {
            if let Poll::Ready(ready) = task.as_mut().poll(context) {
                *result = Some(ready);
            }
        }
        if tasks.iter().all(|(_, result)| result.is_some()) { Poll::Ready(()) } else { Poll::Pending }
    });
    block_on(everyone);
    tasks.into_iter().filter_map(|(_, result)| result).collect()
}

fn block_on<F: Future>(future: F) -> F::Output {
    struct Unpark(Thread);
    impl Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }
    let waker = Waker::from(Arc::new(Unpark(thread::current())));
    let (mut future, mut context) = (pin!(future), Context::from_waker(&waker));
    loop {
        match future.as_mut().poll(&mut context) {
            Poll::Ready(output) => return output,
            Poll::Pending => thread::park(),
        }
    }
}

#[test]
fn entries_are_there_after_each_start() {
    let folder = tempfile::tempdir().expect("a folder");
    for starts in 1..=2 {
        let entries = run(folder.path()).expect("a run");
        let expected = (0..starts * 100).map(|n| (Offset::new(n), format!("entry {n}")));
        assert_eq!(entries, expected.collect::<Vec<_>>());
    }
}
