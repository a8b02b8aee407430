//! Verified transactions: the first batch brings the guard of its verification.

use kseg_format::{LeaderEpoch, Offset, Origin, ProducerEpoch, ProducerId, Sequence};
use kseg_log::{
    AppendInfo, BrokerConfig, Log, LogDir, LogDirOptions, OpenOptions, TopicPartition, TransactionRequest,
    TransactionVersion, VerificationGuard,
};

use crate::support::*;

const P: i64 = 23;
const V1: TransactionVersion = TransactionVersion::V1;
const V2: TransactionVersion = TransactionVersion::V2;

fn open(bench: &Bench, verify_transactions: bool) -> Log {
    let options = OpenOptions { verify_transactions, ..bench.options() };
    Log::open(std::path::Path::new(DIR), options).expect("a log")
}

fn start(
    log: &Log,
    epoch: i16,
    sequence: i32,
    version: TransactionVersion,
) -> kseg_log::Result<Option<VerificationGuard>> {
    log.start_verification(ProducerId::new(P), ProducerEpoch::new(epoch), Sequence::new(sequence), version)
}

fn begin(log: &Log, epoch: i16, sequence: i32, version: TransactionVersion) -> VerificationGuard {
    start(log, epoch, sequence, version).expect("a verification").expect("a guard")
}

fn kept(log: &Log) -> Option<VerificationGuard> {
    log.verification_guard(ProducerId::new(P))
}

fn append(
    log: &Log,
    draft: &Draft,
    origin: Origin,
    guard: Option<VerificationGuard>,
) -> kseg_log::Result<AppendInfo> {
    let request = TransactionRequest { guard, ..TransactionRequest::default() };
    log.append_as_leader_in(draft.bytes(), LeaderEpoch::new(0), origin, request)
}

fn end(log: &Log, epoch: i16, version: TransactionVersion) {
    let bytes = marker_bytes(0, (P, epoch), true, 0);
    log.append_as_leader_in(bytes, LeaderEpoch::new(0), Origin::Coordinator, version).expect("a marker");
}

fn open_transaction(log: &Log) -> Option<i64> {
    producers(log).first().and_then(|p| p.2)
}

#[test]
fn log_edge_237_the_first_sequence_of_a_producer_that_is_not_known() {
    let data = Draft::new(1).of(P, 0, 5).transactional();
    let with = |version| {
        let log = open(&Bench::new(&[]), true);
        let guard = begin(&log, 0, 5, version);
        append(&log, &data, Origin::Client, Some(guard))
    };
    with(V1).expect("accepted");
    assert_eq!(kafka_name(with(V2)), "OutOfOrderSequenceException");
    let log = open(&Bench::new(&[]), true);
    assert_eq!(kafka_name(append(&log, &data, Origin::Client, None)), "InvalidTxnStateException");
    assert_eq!(log.log_end_offset(), Offset::ZERO);
}

#[test]
fn log_edge_238_no_batch_overtakes_one_that_was_asked_about() {
    let log = open(&Bench::new(&[]), true);
    let guard = begin(&log, 0, 3, V1);
    assert_eq!(begin(&log, 0, 1, V1), guard);
    let third = Draft::new(1).of(P, 0, 3).transactional();
    assert_eq!(kafka_name(append(&log, &third, Origin::Client, Some(guard))), "OutOfOrderSequenceException");
    let first = Draft::new(1).of(P, 0, 1).transactional();
    append(&log, &first, Origin::Client, Some(guard)).expect("the lowest");
}

#[test]
fn log_edge_239_an_older_epoch_is_told_before_a_missing_guard() {
    let log = open(&Bench::new(&[]), true);
    Draft::new(1).of(P, 4, 0).lead(&log).expect("an append");
    let old = Draft::new(1).of(P, 3, 1).transactional();
    assert_eq!(kafka_name(append(&log, &old, Origin::Client, None)), "InvalidProducerEpochException");
    assert_eq!(kafka_name(start(&log, 3, 1, V2)), "InvalidProducerEpochException");
}

#[test]
fn log_edge_300_a_verification_with_an_epoch_for_each_transaction() {
    for (origin, verify) in [(Origin::Client, true), (Origin::Coordinator, true), (Origin::Client, false)] {
        let log = open(&Bench::new(&[]), verify);
        let sequence = |n| if origin == Origin::Client { n } else { 0 };
        assert_eq!(kept(&log), None);
        let guard = begin(&log, 1, sequence(2), V2);
        assert_eq!(kept(&log), Some(guard));
        append(&log, &Draft::new(2).of(P, 1, 0), origin, None).expect("idempotent: no transaction");
        assert_eq!((kept(&log), open_transaction(&log)), (Some(guard), None));
        assert_eq!(begin(&log, 1, sequence(2), V2), guard);
        let first = Draft::new(1).of(P, 1, sequence(2)).transactional();
        append(&log, &first, origin, Some(guard)).expect("verified");
        assert_eq!((kept(&log), open_transaction(&log)), (None, Some(2)));
        assert_eq!(start(&log, 1, 3, V2).expect("nothing to verify"), None);
        end(&log, 2, V2);
        assert_eq!(open_transaction(&log), None);
        let next = begin(&log, 2, 0, V2);
        assert!(!VerificationGuard::allows(Some(next), Some(guard)));
    }
}

#[test]
fn log_edge_301_a_verification_without_epochs_and_one_that_nothing_asks_for() {
    for (origin, verify) in [(Origin::Client, false), (Origin::Client, true), (Origin::Coordinator, false)] {
        let log = open(&Bench::new(&[]), verify);
        let sequence = |n| if origin == Origin::Client { n } else { 0 };
        let guard = begin(&log, 1, sequence(5), V1);
        append(&log, &Draft::new(2).of(P, 1, sequence(3)), origin, None).expect("idempotent");
        assert_eq!((kept(&log), open_transaction(&log)), (Some(guard), None));
        assert_eq!(begin(&log, 1, sequence(5), V1), guard);
        let first = Draft::new(1).of(P, 1, sequence(5)).transactional();
        append(&log, &first, origin, Some(guard)).expect("verified");
        assert_eq!((kept(&log), open_transaction(&log)), (None, Some(2)));
        assert_eq!(start(&log, 1, 6, V1).expect("nothing to verify"), None);
        end(&log, 1, V1);
        assert_eq!(open_transaction(&log), None);
        assert!(!VerificationGuard::allows(Some(begin(&log, 1, 6, V1)), Some(guard)));
    }
}

#[test]
fn log_edge_302_a_marker_of_an_empty_transaction_ends_the_verification_before_it() {
    let after = |made: TransactionVersion, epoch, version| {
        let log = open(&Bench::new(&[]), true);
        begin(&log, 0, 0, made);
        end(&log, epoch, version);
        kept(&log)
    };
    assert_eq!(after(V2, 1, V2), None);
    assert_eq!(after(V1, 0, V1), None);
    assert!(after(V2, 0, TransactionVersion::V0).is_some(), "it is that of the next transaction");
}

#[test]
fn log_edge_303_verification_may_be_switched_off_while_one_is_under_way() {
    for (sequence, accepted) in [(3, true), (7, false)] {
        let log = open(&Bench::new(&[]), true);
        let guard = begin(&log, 0, 3, V1);
        log.verify_transactions(false);
        let result = append(&log, &Draft::new(1).of(P, 0, sequence).transactional(), Origin::Client, None);
        if accepted {
            result.expect("nothing asks for the guard");
            assert_eq!(kept(&log), None);
        } else {
            assert_eq!((kafka_name(result), kept(&log)), ("OutOfOrderSequenceException", Some(guard)));
        }
    }
}

#[test]
fn log_edge_304_verification_may_be_switched_on_while_a_batch_is_under_way() {
    let log = open(&Bench::new(&[]), false);
    log.verify_transactions(true);
    let first = Draft::new(1).of(P, 0, 0).transactional();
    assert_eq!(kafka_name(append(&log, &first, Origin::Client, None)), "InvalidTxnStateException");
    assert_eq!((open_transaction(&log), kept(&log)), (None, None));
    let guard = begin(&log, 0, 0, V1);
    append(&log, &first, Origin::Client, Some(guard)).expect("verified");
    assert_eq!(open_transaction(&log), Some(0));
}

#[test]
fn format_edge_114_a_verification_that_nobody_ends_expires() {
    let bench = Bench::new(&[]);
    let options = OpenOptions {
        producer_expiration_ms: 1000,
        producer_expiration_check_ms: 100,
        verify_transactions: true,
        ..bench.options()
    };
    let log = Log::open(std::path::Path::new(DIR), options).expect("a log");
    begin(&log, 0, 0, V2);
    bench.scheduler.advance(999);
    assert!(kept(&log).is_some());
    bench.scheduler.advance(1);
    assert_eq!(kept(&log), None);
}

#[test]
fn format_edge_114_the_lowest_sequence_of_the_highest_epoch_counts() {
    // (epoch and sequence of each start, first sequence that is accepted, first that is not)
    for (starts, accepted, refused) in
        [(&[(0, 5), (0, 3)][..], 3, 5), (&[(0, 3), (1, 6)], 6, 7), (&[(1, 6), (0, 3)], 6, 7)]
    {
        for (sequence, fits) in [(accepted, true), (refused, false)] {
            let log = open(&Bench::new(&[]), true);
            let guards: Vec<_> = starts.iter().map(|&(epoch, first)| begin(&log, epoch, first, V1)).collect();
            assert!(guards.windows(2).all(|pair| pair[0] == pair[1]));
            let batch = Draft::new(1).of(P, 1, sequence).transactional();
            let result = append(&log, &batch, Origin::Client, Some(guards[0]));
            assert_eq!(result.is_ok(), fits, "{starts:?} {sequence}");
        }
    }
}

#[test]
fn format_edge_152_a_producer_without_batches_begins_at_0_where_each_transaction_has_an_epoch() {
    for marker_first in [false, true] {
        for (version, sequence, fits) in [(V2, 7, false), (V2, 0, true), (V1, 7, !marker_first)] {
            let log = open(&Bench::new(&[]), true);
            if marker_first {
                end(&log, 0, V1);
            }
            let guard = begin(&log, 0, sequence, version);
            let batch = Draft::new(1).of(P, 0, sequence).transactional();
            let result = append(&log, &batch, Origin::Client, Some(guard));
            assert_eq!(result.is_ok(), fits, "{marker_first} {sequence}: {result:?}");
        }
    }
}

#[test]
fn a_directory_opens_its_logs_as_its_brokers_configuration_says() {
    let bench = Bench::new(&[]);
    let broker = |pairs: &[(&str, &str)]| BrokerConfig::from_pairs(pairs.iter().copied()).expect("valid");
    let first = Draft::new(1).of(P, 0, 0).transactional();
    for (n, (pairs, verified)) in [
        (
            &[("producer.id.expiration.ms", "1000"), ("producer.id.expiration.check.interval.ms", "10")][..],
            true,
        ),
        (&[("transaction.partition.verification.enable", "false")], false),
    ]
    .into_iter()
    .enumerate()
    {
        let options = LogDirOptions {
            clock: bench.clock.clone(),
            scheduler: bench.scheduler.clone(),
            ..LogDirOptions::new(bench.backend.clone()).for_broker(&broker(pairs))
        };
        let dir = LogDir::open(std::path::Path::new(&format!("/disk{n}")), options).expect("open");
        let log = dir.get_or_create(&TopicPartition::new("t", 0), None).expect("a log");
        assert_eq!(first.lead(&log).is_err(), verified);
        Draft::new(1).of(7, 0, 0).times(&[10_000_000]).lead(&log).expect("no transaction");
        if verified {
            bench.scheduler.advance(1010);
            assert_eq!(producers(&log), []);
        }
    }
}
