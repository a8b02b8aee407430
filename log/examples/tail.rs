//! A reader at the tail of a log: it sees each record once it is committed, and sleeps while there is none.
//!
//! `cargo run -p kseg-log --example tail` prints what a writer beside it appends. The high watermark is what readers wait for; the
//! log tells of each change, and where it moves while a reader looks, the reader finds word of it and looks again.

use std::error::Error;
use std::path::Path;
use std::sync::Arc;
use std::thread;

use crossbeam_channel::{Receiver, bounded};
use kseg_format::{Batches, Offset};
use kseg_log::{BatchWriter, Isolation, Log, Observer, OpenOptions, WriterOptions};

/// Follows a log from an offset on.
struct Tail {
    log: Arc<Log>,
    next: Offset,
    moved: Receiver<()>,
    scratch: Vec<u8>,
}

impl Tail {
    /// A log has one observer: programs with more readers tell them from there.
    fn new(log: Arc<Log>, from: Offset) -> Tail {
        // One word is enough, however often the watermark moves before it is read.
        let (tell, moved) = bounded(1);
        log.observe(Some(Observer::new(move |_| {
            // Full: there is word already. Without a receiver nobody wants to know.
            tell.try_send(()).unwrap_or(());
        })));
        Tail { log, next: from, moved, scratch: Vec::new() }
    }

    /// Hands on what is committed and was not seen yet; waits for it where there is nothing.
    fn records(&mut self, mut record: impl FnMut(Offset, &[u8])) -> Result<(), Box<dyn Error>> {
        let region = loop {
            match self.log.read(self.next, 1 << 20, Isolation::HighWatermark, true)?.region {
                Some(region) => break region,
                None => self.moved.recv()?,
            }
        };
        for batch in Batches::new(&region.to_bytes()?) {
            let batch = batch?.verify()?;
            for each in batch.records(&mut self.scratch, 1 << 30)? {
                let each = each?;
                // A read begins with a whole batch.
                if each.offset() >= self.next {
                    record(each.offset(), each.value().unwrap_or_default());
                }
            }
            self.next = batch.header().next_offset();
        }
        Ok(())
    }
}

fn run(count: i64) -> Result<Vec<(Offset, String)>, Box<dyn Error>> {
    let backend = kseg_io_backends::open("memory")?;
    let log = Arc::new(Log::open(Path::new("/data/lines-0"), OpenOptions::new(backend))?);
    let mut tail = Tail::new(Arc::clone(&log), Offset::ZERO);
    let writer = thread::spawn(move || {
        let mut writer = BatchWriter::new(log, WriterOptions::default());
        for n in 0..count {
            writer.append(None, None, Some(format!("line {n}").as_bytes()), &[])?;
            if n % 7 == 6 || n + 1 == count {
                writer.flush()?;
                // There are no replicas: what is in the log is committed.
                writer.log().update_high_watermark(writer.log().log_end_offset());
            }
        }
        Ok::<_, kseg_log::Error>(())
    });
    let mut seen = Vec::new();
    while tail.next.get() < count {
        tail.records(|offset, value| seen.push((offset, String::from_utf8_lossy(value).into_owned())))?;
    }
    writer.join().map_err(|_| "the writer panicked")??;
    Ok(seen)
}

fn main() -> Result<(), Box<dyn Error>> {
    for (offset, line) in run(100)? {
        println!("{offset}: {line}");
    }
    Ok(())
}

#[test]
fn each_record_is_seen_once_and_in_order() {
    let expected: Vec<_> = (0..1000).map(|n| (Offset::new(n), format!("line {n}"))).collect();
    assert_eq!(run(1000).expect("a run"), expected);
}
