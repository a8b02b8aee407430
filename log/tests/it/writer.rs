use std::sync::Arc;

use kseg_format::{Batches, Codec, Timestamp};
use kseg_io_backends::{Call, Metered};
use kseg_log::{BatchWriter, WriterOptions};

use crate::support::*;

#[test]
fn batches_go_out_by_size_and_linger_with_one_write_each() {
    let metered = Arc::new(Metered::new(kseg_io_backends::open("memory").expect("memory")));
    let bench = Bench::on(metered.clone(), &[]);
    let log = Arc::new(bench.open());
    let options = WriterOptions { batch_size: 1000, linger_ms: 50, ..WriterOptions::default() };
    let mut writer = BatchWriter::new(log.clone(), options);
    let before = metered.calls(Call::Write, "log").calls;
    let mut batches = 0;
    for n in 0..100i64 {
        let sent = writer.append(Some(Timestamp::new(n)), None, Some(&[b'x'; 90]), &[]).expect("taken");
        batches += u64::from(sent.is_some());
    }
    assert!(writer.waiting() > 0 && batches >= 10);
    assert_eq!(metered.calls(Call::Write, "log").calls - before, batches);
    assert!(writer.poll().expect("too early").is_none());
    bench.scheduler.advance(50);
    assert!(writer.poll().expect("due").is_some());
    assert_eq!((writer.waiting(), log.log_end_offset().get()), (0, 100));
    let bytes = bytes_of(&log, 0).expect("data");
    for batch in Batches::new(&bytes) {
        assert!(batch.expect("whole").header().size() <= 1000);
    }
    assert!(writer.flush().expect("nothing waits").is_none());
}

#[test]
fn every_codec_comes_back() {
    for codec in Codec::ALL {
        let bench = Bench::new(&[]);
        let log = Arc::new(bench.open());
        let mut writer = BatchWriter::new(log.clone(), WriterOptions { codec, ..WriterOptions::default() });
        for n in 0..1000i64 {
            let value = format!("value {n}");
            writer
                .append(Some(Timestamp::new(n)), Some(b"k"), Some(value.as_bytes()), &[(b"h", None)])
                .expect("taken");
        }
        writer.flush().expect("sent");
        let bytes = bytes_of(&log, 0).expect("data");
        let mut scratch = Vec::new();
        let mut next = 0;
        for batch in Batches::new(&bytes) {
            let batch = batch.expect("whole").verify().expect("a checksum");
            assert_eq!(batch.header().codec().expect("known"), codec);
            for record in batch.records(&mut scratch, 1 << 20).expect("records") {
                let record = record.expect("a record");
                assert_eq!(record.offset().get(), next);
                assert_eq!(record.value(), Some(format!("value {next}").as_bytes()));
                next += 1;
            }
        }
        assert_eq!(next, 1000, "{codec}");
    }
}

#[test]
fn a_record_larger_than_a_batch_goes_out_alone() {
    let bench = Bench::new(&[]);
    let log = Arc::new(bench.open());
    let mut writer =
        BatchWriter::new(log.clone(), WriterOptions { batch_size: 100, ..WriterOptions::default() });
    for size in [10, 5000, 10] {
        writer.append(None, None, Some(&vec![b'x'; size]), &[]).expect("taken");
    }
    writer.flush().expect("sent");
    let bytes = bytes_of(&log, 0).expect("data");
    assert_eq!(Batches::new(&bytes).count(), 3);
}

#[test]
fn a_record_that_no_batch_can_hold_is_refused() {
    let bench = Bench::new(&[]);
    let log = Arc::new(bench.open());
    let mut writer = BatchWriter::new(log.clone(), WriterOptions::default());
    assert!(writer.append(Some(Timestamp::new(-5)), None, None, &[]).is_err());
    writer.append(Some(Timestamp::new(5)), None, None, &[]).expect("the next one is fine");
    writer.flush().expect("sent");
    assert_eq!(log.log_end_offset().get(), 1);
}
