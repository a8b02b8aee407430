use proptest::prelude::*;

use super::*;

fn offsets(text: &str) -> Result<Vec<(String, i64)>, CheckpointError> {
    let parsed = parse_offsets(text.as_bytes())?;
    Ok(parsed.into_iter().map(|(partition, offset)| (partition.to_string(), offset.get())).collect())
}

fn one(topic: &str, offset: i64) -> Result<Vec<(String, i64)>, CheckpointError> {
    Ok(vec![(topic.to_owned(), offset)])
}

#[test]
fn log_edge_222_checkpoints_that_are_read_and_refused() {
    assert_eq!(offsets(""), Ok(vec![]));
    for refused in ["1\n0\n", "0\n2\nt 0 1\n", "0\n1\nt 0 1 2\n", "0\n1\n t 0 1\n", "0\n1\nt 0 1\n\n"] {
        assert!(offsets(refused).is_err(), "{refused:?}");
    }
    assert_eq!(offsets("0\r\n1\r\nt 0 1\r\n"), one("t-0", 1));
}

#[test]
fn format_edge_125_an_empty_checkpoint_is_written_and_read() {
    assert_eq!(print_epochs(&[]), b"0\n0\n");
    assert_eq!(print_offsets([]), b"0\n0\n");
    assert_eq!(offsets("0\n0\n"), Ok(vec![]));
    assert_eq!(offsets("1\n0\n").unwrap_err().kafka_name(), "KafkaStorageException");
}

#[test]
fn format_edge_126_variants_of_the_text() {
    for accepted in [
        "0\n1\nt\t0\t1\n",
        "0\n1\nt  0 \t 1\n",
        "0\n1\nt 0 1   \n",
        "0\n1\nt 0 1",
        "0\r1\rt 0 1\r",
        "+0\n+1\nt +0 +1\n",
        "0\n2\nt 0 9\nt 0 1\n",
    ] {
        assert_eq!(offsets(accepted), one("t-0", 1), "{accepted:?}");
    }
    assert_eq!(offsets("0"), Ok(vec![]));
    assert_eq!(offsets("0\n"), Ok(vec![]));
    assert_eq!(offsets("0\n1\nt -1 -5\n"), one("t--1", -5));
    for refused in
        ["0 \n0\n", "x\n", "\n", "0\n1 \nt 0 1\n", "0\n\n", "0\n1\n\n", "0\n1\n   \n", "0\n0\nt 0 1\n"]
    {
        let error = offsets(refused).unwrap_err();
        assert_eq!(error.kafka_name(), "KafkaStorageException", "{refused:?}");
    }
    assert_eq!(offsets("0\n1\nt x 1\n").unwrap_err().kafka_name(), "NumberFormatException");
    assert_eq!(offsets("0\n1\nt 0 9223372036854775808\n").unwrap_err().kafka_name(), "NumberFormatException");
    assert_eq!(offsets("0\n-1\n").unwrap_err().kafka_name(), "IllegalArgumentException");
}

#[test]
fn format_edge_154_more_variants_of_the_text() {
    assert!(offsets("0\n0\n\n").is_err());
    assert_eq!(offsets("+0\n0\n"), Ok(vec![]));
    assert_eq!(offsets("0\n9999999999\n").unwrap_err().kafka_name(), "KafkaStorageException");
}

#[test]
fn a_great_count_reserves_nothing() {
    let error = offsets("0\n2147483647\nt 0 1\n").unwrap_err();
    assert_eq!((error.line(), error.expected(), error.found()), (2, "2147483647 entries", "1"));
}

#[test]
fn an_error_names_file_line_expected_and_found() {
    let error = offsets("0\n2\nt 0 1\nt 0\n").unwrap_err().in_file("/d/recovery-point-offset-checkpoint");
    assert_eq!(
        error.to_string(),
        "/d/recovery-point-offset-checkpoint, line 4: expected \"topic partition offset\" and nothing else, \
         found \"t 0\""
    );
    let error = offsets("0\n1\nt 0 1x\n").unwrap_err();
    assert_eq!(
        error.to_string(),
        "checkpoint, line 3: expected \"topic partition offset\" with a 64-bit number for offset, found \"t 0 1x\""
    );
    let error = parse_offsets(b"0\n1\nt\xff 0 1\n").unwrap_err();
    assert_eq!((error.line(), error.expected(), error.found()), (3, "UTF-8", "byte 0xff"));
    assert_eq!(error.path(), None);
}

#[test]
fn kafka_s_examples_are_written_byte_for_byte() {
    let entry =
        |epoch, start| EpochEntry { epoch: LeaderEpoch::new(epoch), start_offset: Offset::new(start) };
    let entries = [entry(0, 0), entry(3, 5)];
    assert_eq!(print_epochs(&entries), b"0\n2\n0 0\n3 5\n");
    assert_eq!(parse_epochs(b"0\n2\n0 0\n3 5\n").unwrap(), entries);
    assert!(parse_epochs(b"0\n1\n0 0 0\n").is_err());
    let partition = TopicPartition::new("foo", 1);
    assert_eq!(print_offsets([(&partition, Offset::new(5))]), b"0\n1\nfoo 1 5\n");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn any_bytes_are_read_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..64)) {
        let _ = parse_offsets(&bytes);
        let _ = parse_epochs(&bytes);
    }

    #[test]
    fn any_text_like_a_checkpoint_is_read_or_refused(text in "[0-9 \t\r\n+a-]{0,40}") {
        let _ = parse_offsets(text.as_bytes());
        let _ = parse_epochs(text.as_bytes());
    }

    #[test]
    fn offsets_round_trip(
        entries in prop::collection::btree_map(("[a-z._-]{1,9}", 0..9i32), any::<i64>(), 0..9),
    ) {
        let entries: BTreeMap<TopicPartition, Offset> = entries
            .into_iter()
            .map(|((topic, number), offset)| (TopicPartition::new(topic, number), Offset::new(offset)))
            .collect();
        let bytes = print_offsets(entries.iter().map(|(partition, offset)| (partition, *offset)));
        prop_assert_eq!(parse_offsets(&bytes).unwrap(), entries);
    }
}
