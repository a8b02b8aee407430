//! A consumer that reads committed transactions only: it stops before the first one that is open, and leaves out those that were
//! aborted, of which a read brings the list.
//!
//! `cargo run -p kseg-log --example committed`

use std::collections::HashSet;
use std::error::Error;
use std::path::Path;

use bytes::BytesMut;
use kseg_format::{
    BatchOptions, Batches, EndTransactionMarker, LeaderEpoch, Offset, Origin, Producer, ProducerEpoch,
    ProducerId, RecordBatchBuilder, Sequence, Timestamp,
};
use kseg_log::{Isolation, Log, OpenOptions};

/// Values, and where they are.
type Records = Vec<(Offset, String)>;

/// Reads committed records from an offset on.
struct Consumer<'l> {
    log: &'l Log,
    next: Offset,
    scratch: Vec<u8>,
}

impl Consumer<'_> {
    /// The next committed records, or none where the rest is not decided.
    fn poll(&mut self) -> Result<Records, Box<dyn Error>> {
        let fetch = self.log.read(self.next, 1 << 20, Isolation::Committed, true)?;
        let (mut found, mut ignored) = (Vec::new(), HashSet::new());
        let Some(region) = fetch.region else { return Ok(found) };
        // By where they begin.
        let mut aborted = fetch.aborted.unwrap_or_default();
        aborted.sort_by_key(|transaction| transaction.first_offset);
        let mut aborted = aborted.into_iter().peekable();
        for batch in Batches::new(&region.to_bytes()?) {
            let batch = batch?.verify()?;
            let header = batch.header();
            while let Some(begun) = aborted.next_if(|it| it.first_offset <= header.last_offset()) {
                ignored.insert(begun.producer_id);
            }
            let producer = header.producer_id();
            if header.is_control() {
                // A transaction of this producer ends; what follows is of another one.
                if let Some(record) = batch.records(&mut self.scratch, 1 << 20)?.next() {
                    let record = record?;
                    let marker = EndTransactionMarker::parse(record.key(), record.value())?;
                    if let Some(producer) = producer.filter(|_| !marker.committed) {
                        ignored.remove(&producer);
                    }
                }
            } else if !(header.is_transactional() && producer.is_some_and(|it| ignored.contains(&it))) {
                for record in batch.records(&mut self.scratch, 1 << 30)? {
                    let record = record?;
                    if record.offset() >= self.next {
                        let value = String::from_utf8_lossy(record.value().unwrap_or_default()).into_owned();
                        found.push((record.offset(), value));
                    }
                }
            }
            self.next = header.next_offset();
        }
        Ok(found)
    }
}

/// Appends a batch of one record in a producer's transaction.
fn send(log: &Log, producer: i64, sequence: i32, value: &str) -> Result<(), Box<dyn Error>> {
    let mut builder = RecordBatchBuilder::new(BatchOptions {
        producer: Some(Producer {
            id: ProducerId::new(producer),
            epoch: ProducerEpoch::new(0),
            base_sequence: Some(Sequence::new(sequence)),
        }),
        transactional: true,
        ..BatchOptions::default()
    });
    builder.append(Some(Timestamp::new(1)), None, Some(value.as_bytes()), &[])?;
    let mut batch = BytesMut::new();
    builder.finish(&mut batch)?;
    log.append_as_leader(batch, LeaderEpoch::new(0), Origin::Client)?;
    Ok(())
}

/// Ends a producer's transaction.
fn end(log: &Log, producer: i64, committed: bool) -> Result<(), Box<dyn Error>> {
    let mut batch = BytesMut::new();
    EndTransactionMarker { committed, coordinator_epoch: 0 }.encode_batch(
        Offset::ZERO,
        Timestamp::new(1),
        None,
        (ProducerId::new(producer), ProducerEpoch::new(0)),
        &mut batch,
    )?;
    log.append_as_leader(batch, LeaderEpoch::new(0), Origin::Coordinator)?;
    // There are no replicas: what is in the log is committed.
    log.update_high_watermark(log.log_end_offset());
    Ok(())
}

fn run() -> Result<[Records; 2], Box<dyn Error>> {
    let backend = kseg_io_backends::open("memory")?;
    let log = Log::open(Path::new("/data/orders-0"), OpenOptions::new(backend))?;
    send(&log, 1, 0, "kept")?;
    send(&log, 2, 0, "taken back")?;
    end(&log, 1, true)?;
    send(&log, 2, 1, "taken back too")?;
    end(&log, 2, false)?;
    send(&log, 2, 2, "kept, of the next transaction")?;
    send(&log, 1, 1, "not decided yet")?;
    end(&log, 2, true)?;
    let mut consumer = Consumer { log: &log, next: Offset::ZERO, scratch: Vec::new() };
    let first = consumer.poll()?;
    end(&log, 1, true)?;
    let second = consumer.poll()?;
    log.close()?;
    Ok([first, second])
}

fn main() -> Result<(), Box<dyn Error>> {
    for (n, records) in run()?.into_iter().enumerate() {
        println!("poll {n}:");
        records.iter().for_each(|(offset, value)| println!("  {offset}: {value}"));
    }
    Ok(())
}

#[test]
fn committed_records_are_seen_once_and_no_others() {
    let all = run().expect("a run");
    let found =
        all.each_ref().map(|poll| poll.iter().map(|(o, v)| (o.get(), v.as_str())).collect::<Vec<_>>());
    assert_eq!(found[0], [(0, "kept"), (5, "kept, of the next transaction")]);
    assert_eq!(found[1], [(6, "not decided yet")]);
}
