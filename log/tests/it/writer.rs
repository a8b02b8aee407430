use std::sync::Arc;

use bytes::BytesMut;
use kseg_format::{BatchOptions, Batches, Codec, LeaderEpoch, Origin, RecordBatchBuilder, Timestamp};
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

#[test]
fn the_rules_of_the_topic_hold_for_the_writers_batches() {
    let refused = |pairs: &[(&str, &str)], time| {
        let bench = Bench::new(pairs);
        let log = Arc::new(bench.open());
        let mut writer = BatchWriter::new(log.clone(), WriterOptions::default());
        writer.append(Some(Timestamp::new(10_000_000)), None, Some(b"fine"), &[]).expect("taken");
        writer.append(Some(Timestamp::new(time)), None, Some(b"late or early"), &[]).expect("taken");
        let result = writer.flush().map_err(|e| e.kafka_name());
        assert_eq!(log.size() == 0, result.is_err());
        result.err()
    };
    // The clock shows 10000000.
    let limits = [("message.timestamp.before.max.ms", "100"), ("message.timestamp.after.max.ms", "50")];
    assert_eq!(refused(&limits, 9_999_900), None);
    assert_eq!(refused(&limits, 9_999_899), Some("RecordValidationException"));
    assert_eq!(refused(&limits, 10_000_050), None);
    assert_eq!(refused(&limits, 10_000_051), Some("RecordValidationException"));
    assert_eq!(refused(&[("cleanup.policy", "compact")], 10_000_000), Some("RecordValidationException"));

    let bench = Bench::new(&[("message.timestamp.type", "LogAppendTime"), ("compression.type", "gzip")]);
    let log = Arc::new(bench.open());
    let mut writer = BatchWriter::new(log.clone(), WriterOptions::default());
    writer.append(Some(Timestamp::new(5)), None, Some(b"v"), &[]).expect("taken");
    let info = writer.flush().expect("sent").expect("a batch");
    assert_eq!(info.log_append_time, Some(Timestamp::new(10_000_000)));
    let bytes = bytes_of(&log, 0).expect("data");
    let header = *Batches::new(&bytes).next().expect("a batch").expect("whole").header();
    assert_eq!(header.codec().expect("known"), Codec::Gzip);
}

#[test]
fn what_the_writer_built_is_what_a_checked_append_stores() {
    let stored = |checked: bool| {
        let bench = Bench::new(&[]);
        let log = Arc::new(bench.open());
        lead(&log, 3, 1, 200);
        if checked {
            let mut builder = RecordBatchBuilder::new(BatchOptions::default());
            for n in 0..5 {
                builder
                    .append(Timestamp::from_raw(9_999_990 + n), Some(b"k"), Some(b"v"), &[])
                    .expect("a record");
            }
            let mut bytes = BytesMut::new();
            builder.finish(&mut bytes).expect("a batch");
            log.append_as_leader(bytes, LeaderEpoch::new(0), Origin::Client).expect("an append");
        } else {
            let mut writer = BatchWriter::new(log.clone(), WriterOptions::default());
            for n in 0..5 {
                writer
                    .append(Timestamp::from_raw(9_999_990 + n), Some(b"k"), Some(b"v"), &[])
                    .expect("taken");
            }
            writer.flush().expect("sent");
        }
        bytes_of(&log, 3).expect("data")
    };
    assert_eq!(stored(true), stored(false));
    for batch in Batches::new(&stored(false)) {
        batch.expect("whole").verify().expect("a checksum");
    }
}

#[test]
fn a_record_that_is_too_large_takes_no_other_with_it() {
    let bench = Bench::new(&[("max.message.bytes", "500")]);
    let log = Arc::new(bench.open());
    let mut writer =
        BatchWriter::new(log.clone(), WriterOptions { batch_size: 1 << 20, ..WriterOptions::default() });
    for _ in 0..30 {
        writer.append(None, None, Some(&[b'x'; 90]), &[]).expect("taken");
    }
    let sent = writer.append(None, None, Some(&[b'x'; 900]), &[]).expect("those before it go out first");
    assert!(sent.is_some());
    let refused = writer.flush().expect_err("too large");
    assert_eq!((refused.kafka_name(), log.log_end_offset().get()), ("RecordTooLargeException", 30));
}

#[test]
fn batches_carry_on_the_latest_leader_epoch() {
    // With gzip the log makes the batch anew, without it takes it as it was built.
    for codec in ["producer", "gzip"] {
        let bench = Bench::new(&[("compression.type", codec)]);
        let log = Arc::new(bench.open());
        let epochs = |log: &kseg_log::Log| {
            let entries = log.state(false).expect("a state").epochs;
            entries.iter().map(|e| (e.epoch.get(), e.start_offset.get())).collect::<Vec<_>>()
        };
        let mut writer = BatchWriter::new(log.clone(), WriterOptions::default());
        let mut send = |epoch: Option<i32>| {
            if let Some(epoch) = epoch {
                log.assign_epoch(LeaderEpoch::new(epoch), log.log_end_offset()).expect("assigned");
            }
            writer.append(Some(Timestamp::new(1)), None, Some(b"v"), &[]).expect("taken");
            writer.flush().expect("sent");
        };
        send(None);
        send(None);
        send(Some(4));
        send(None);
        assert_eq!(epochs(&log), [(0, 0), (4, 2)], "{codec}");
        let bytes = bytes_of(&log, 3).expect("data");
        let last = Batches::new(&bytes).last().expect("a batch").expect("whole");
        assert_eq!(last.header().leader_epoch(), Some(LeaderEpoch::new(4)), "{codec}");
    }
}
