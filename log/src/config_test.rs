use proptest::prelude::*;

use super::*;

fn with(key: &str, value: &str) -> Result<LogConfig, ConfigError> {
    LogConfig::from_pairs([(key, value)])
}

#[test]
fn no_pairs_give_kafka_s_defaults() {
    let config = LogConfig::from_pairs([]).unwrap();
    assert_eq!(config, LogConfig::default());
    assert_eq!(config.segment_bytes, 1_073_741_824);
    assert_eq!(config.segment_ms, 604_800_000);
    assert_eq!(config.max_message_bytes, 1_048_588);
    assert_eq!(config.segment_index_bytes, 10_485_760);
    assert_eq!(config.delete_retention_ms, 86_400_000);
    assert_eq!(config.cleanup_policy, CleanupPolicy::DELETE);
    config.validate().unwrap();
}

#[test]
fn an_error_names_key_value_and_what_is_allowed() {
    let error = with("segment.bytes", "13").unwrap_err();
    assert_eq!(error.to_string(), "segment.bytes=13 is refused: it takes 1048576 and up");
    assert_eq!(error.key(), "segment.bytes");
    let error = with("segment.byte", "13").unwrap_err().to_string();
    assert!(error.contains("segment.byte=13") && error.contains("segment.bytes"), "{error}");
    let error = with("message.format.version", "3.0").unwrap_err();
    assert!(error.to_string().ends_with("Kafka 4.0 removed it"), "{error}");
    assert_eq!(error.kafka_name(), "InvalidConfigurationException");
}

#[test]
fn log_edge_225_what_a_topic_may_set() {
    let lags = LogConfig::from_pairs([("min.compaction.lag.ms", "11"), ("max.compaction.lag.ms", "10")]);
    assert!(matches!(lags, Err(ConfigError::Conflict { .. })));
    for (key, value) in [
        ("segment.bytes", "13"),
        ("segment.bytes", "1048575"),
        ("min.cleanable.dirty.ratio", "1.1"),
        ("retention.ms", "-2"),
        ("cleanup.policy", "Delete"),
        ("cleanup.policy", "delete,"),
        ("no.such.key", "1"),
        ("message.format.version", "3.0"),
    ] {
        let error = with(key, value).unwrap_err();
        assert_eq!(error.key(), key, "{key}={value}");
    }
    assert_eq!(with("segment.bytes", "1048576").unwrap().segment_size_max(), 1_048_576);
    assert_eq!(with("internal.segment.bytes", "1").unwrap().segment_size_max(), 1);
    assert_eq!(with("cleanup.policy", "").unwrap().cleanup_policy, CleanupPolicy::NONE);
    assert_eq!(with("cleanup.policy", "delete,delete").unwrap().cleanup_policy, CleanupPolicy::DELETE);
}

#[test]
fn log_edge_298_a_blank_after_the_comma_of_a_policy_is_fine() {
    let policy = with("cleanup.policy", "compact, delete").unwrap().cleanup_policy;
    assert_eq!(policy, CleanupPolicy::COMPACT_AND_DELETE);
}

#[test]
fn log_edge_226_compression_levels() {
    for (key, value) in [
        ("compression.gzip.level", "0"),
        ("compression.gzip.level", "10"),
        ("compression.lz4.level", "18"),
        ("compression.zstd.level", "23"),
    ] {
        assert!(with(key, value).is_err(), "{key}={value}");
    }
    assert_eq!(with("compression.gzip.level", "-1").unwrap().compression_gzip_level, -1);
}

#[test]
fn log_edge_318_hours_of_a_broker_become_milliseconds_of_a_topic() {
    let config = BrokerConfig::from_pairs([
        ("log.roll.hours", "2"),
        ("log.roll.jitter.hours", "2"),
        ("log.retention.hours", "960"),
    ])
    .unwrap();
    assert_eq!(config.topic_defaults.segment_ms, 7_200_000);
    assert_eq!(config.topic_defaults.segment_jitter_ms, 7_200_000);
    assert_eq!(config.topic_defaults.retention_ms, 3_456_000_000);
}

#[test]
fn log_edge_319_values_that_kafka_refuses() {
    for key in [
        "flush.ms",
        "file.delete.delay.ms",
        "segment.ms",
        "segment.jitter.ms",
        "segment.index.bytes",
        "max.message.bytes",
        "index.interval.bytes",
        "delete.retention.ms",
        "min.compaction.lag.ms",
        "max.compaction.lag.ms",
        "message.timestamp.before.max.ms",
        "message.timestamp.after.max.ms",
        "preallocate",
        "message.timestamp.type",
        "compression.type",
    ] {
        assert!(with(key, "-1").is_err(), "{key}");
    }
    for (key, value) in [
        // Kafka takes it, and cannot roll the segment.
        ("segment.index.bytes", "11"),
        ("flush.messages", "0"),
        ("max.compaction.lag.ms", "0"),
        ("min.insync.replicas", "0"),
        ("min.cleanable.dirty.ratio", "-0.1"),
        ("min.cleanable.dirty.ratio", "1.2"),
        ("min.cleanable.dirty.ratio", "NaN"),
        ("compression.gzip.level", "-2"),
        ("compression.lz4.level", "-1"),
        ("compression.lz4.level", "0"),
        ("compression.zstd.level", "-0.1"),
        ("cleanup.policy", "true"),
        ("remote.storage.enable", "true"),
    ] {
        assert!(with(key, value).is_err(), "{key}={value}");
    }
    let words = ["preallocate", "message.timestamp.type", "compression.type", "cleanup.policy"];
    for (key, value) in LogConfig::default().to_pairs() {
        if value.parse::<f64>().is_ok() {
            assert!(with(key, "not_a_number").is_err(), "{key}");
        }
    }
    for key in words {
        assert!(with(key, "not_a_number").is_err(), "{key}");
    }
    let unlimited = with("retention.bytes", "-5").unwrap();
    assert_eq!((unlimited.retention_bytes, unlimited.retention_size_max()), (-5, None));
}

#[test]
fn log_edge_320_lists_of_throttled_replicas() {
    for key in ["leader.replication.throttled.replicas", "follower.replication.throttled.replicas"] {
        for value in ["*", "* ", "", " ", "100:10", "100:10,12:10,15:1  ", "100:0,"] {
            assert!(with(key, value).is_ok(), "{value:?}");
        }
        for value in ["100", "100:", "100:0,10", "100:0,10:", "100 :0", "*,100:10", "* ,100:10"] {
            assert!(with(key, value).is_err(), "{value:?}");
        }
    }
    let config = with("leader.replication.throttled.replicas", "100:10, 12:10 ").unwrap();
    assert_eq!(config.leader_replication_throttled_replicas.items(), ["100:10", "12:10"]);
}

#[test]
fn log_edge_321_settings_in_one_line() {
    let line = LogConfig::loggable([
        ("retention.bytes", "100"),
        ("unknown.topic.password", "secret"),
        ("min.insync.replicas", "2"),
        ("ssl.truststore.password", "hunter2"),
    ]);
    assert_eq!(
        line,
        "{min.insync.replicas=2, retention.bytes=100, ssl.truststore.password=(redacted), \
         unknown.topic.password=(redacted)}"
    );
}

#[test]
fn every_key_survives_being_written_and_read() {
    let config = LogConfig {
        internal_segment_bytes: Some(512),
        cleanup_policy: CleanupPolicy::COMPACT_AND_DELETE,
        compression_type: CompressionType::Zstd,
        message_timestamp_type: TimestampType::LogAppendTime,
        min_cleanable_dirty_ratio: 0.1,
        preallocate: true,
        retention_ms: -1,
        leader_replication_throttled_replicas: value::Value::read("1:2,3:4").unwrap(),
        ..LogConfig::default()
    };
    let pairs = config.to_pairs();
    assert_eq!(pairs.iter().map(|(key, _)| *key).collect::<Vec<_>>(), LogConfig::KEYS);
    let again = LogConfig::from_pairs(pairs.iter().map(|(key, value)| (*key, value.as_str()))).unwrap();
    assert_eq!(again, config);
    assert_eq!(LogConfig::default().to_pairs().len(), LogConfig::KEYS.len() - 1);
}

#[test]
fn a_topic_s_settings_lie_over_the_defaults() {
    let base = with("segment.bytes", "2097152").unwrap();
    let topic = base.clone().with_pairs([("retention.ms", "5"), ("retention.ms", "6")]).unwrap();
    assert_eq!((topic.segment_bytes, topic.retention_ms), (2_097_152, 6));
    assert!(base.with_pairs([("min.compaction.lag.ms", "9223372036854775807")]).is_ok());
}

#[test]
fn numbers_are_trimmed_and_words_are_not() {
    assert_eq!(with("segment.ms", " +7 ").unwrap().segment_ms, 7);
    assert!(with("preallocate", " TRUE ").unwrap().preallocate);
    assert!(with("compression.type", " gzip").is_err());
    assert!(with("message.timestamp.type", "createtime").is_err());
}

#[test]
fn the_finer_unit_of_a_broker_key_counts() {
    let config = BrokerConfig::from_pairs([
        ("log.roll.ms", "5"),
        ("log.roll.hours", "9"),
        ("log.retention.minutes", "-7"),
        ("log.retention.hours", "3"),
        ("log.flush.scheduler.interval.ms", "1000"),
        ("num.recovery.threads.per.data.dir", "4"),
    ])
    .unwrap();
    assert_eq!(config.topic_defaults.segment_ms, 5);
    assert_eq!(config.topic_defaults.retention_age_ms_max(), None);
    assert_eq!(config.topic_defaults.flush_ms, 1000);
    assert_eq!(config.log_flush_scheduler_interval_ms, 1000);
    assert_eq!(config.num_recovery_threads_per_data_dir, 4);
}

#[test]
fn a_broker_s_error_names_the_broker_s_key() {
    for (key, value) in [
        ("log.segment.bytes", "13"),
        ("log.roll.hours", "0"),
        ("log.roll.hours", "x"),
        ("log.retention.ms", "0"),
        ("num.recovery.threads.per.data.dir", "0"),
        ("log.cleanup.policy", "Delete"),
        ("segment.bytes", "2097152"),
    ] {
        assert_eq!(BrokerConfig::from_pairs([(key, value)]).unwrap_err().key(), key);
    }
    assert_eq!(BrokerConfig::from_pairs([]).unwrap(), BrokerConfig::default());
    BrokerConfig::default().validate().unwrap();
}

#[test]
fn jitter_stays_below_its_bound() {
    let config = LogConfig { segment_jitter_ms: 100, segment_ms: 60, ..LogConfig::default() };
    assert!((0..1000).all(|random| (0..60).contains(&config.segment_jitter(random * 7919))));
    assert_eq!(LogConfig::default().segment_jitter(u32::MAX), 0);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn any_text_for_any_key_is_read_or_refused(text in ".{0,24}", number in any::<i64>()) {
        for key in LogConfig::KEYS {
            for value in [text.clone(), number.to_string()] {
                if let Ok(config) = with(key, &value) {
                    config.validate().unwrap();
                }
            }
        }
    }
}

#[test]
fn a_misspelt_key_is_answered_with_those_that_it_may_mean() {
    for (key, expected) in [
        ("retention", "did you mean retention.ms or retention.bytes?"),
        ("segment.byte", "did you mean segment.bytes?"),
        ("retention_ms", "did you mean retention.ms?"),
        ("cleanup.polcy", "did you mean cleanup.policy?"),
        ("min.clenable.dirty.ratoi", "did you mean min.cleanable.dirty.ratio?"),
        ("insync.replicas", "did you mean min.insync.replicas?"),
        ("ms", "no key is like it"),
        ("", "no key is like it"),
        ("colour", "no key is like it"),
        ("message.format.version", "Kafka 4.0 removed it"),
    ] {
        let refused = LogConfig::from_pairs([(key, "1")]).expect_err("no such key").to_string();
        assert!(refused.ends_with(expected), "{key}: {refused}");
    }
}
