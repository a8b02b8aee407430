//! Where a batch ends and the next begins.

use kseg_format::{Batch, BatchHeader, BatchOptions, Batches, Framed, Magic, first_batch_size, frame};

use crate::support::{at, forge, three};

fn two() -> Vec<u8> {
    let mut bytes = three(at(0)).to_vec();
    bytes.extend_from_slice(&three(at(3)));
    bytes
}

/// How many batches a walk gives, and how it ends.
fn walk(bytes: &[u8]) -> (usize, Option<&'static str>) {
    let mut count = 0;
    for batch in Batches::new(bytes) {
        match batch {
            Ok(_) => count += 1,
            Err(error) => return (count, Some(error.kafka_name())),
        }
    }
    (count, None)
}

fn framed(bytes: &[u8]) -> Result<Framed, &'static str> {
    frame(&bytes[..bytes.len().min(17)], bytes.len() as u64).map_err(|error| error.kafka_name())
}

const CORRUPT: Option<&str> = Some("CorruptRecordException");

fn sized(bytes: &[u8], at: usize, size: i32) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    bytes[at + 8..at + 12].copy_from_slice(&size.to_be_bytes());
    bytes
}

#[test]
fn format_edge_1_a_buffer_cut_short_gives_the_whole_batches() {
    let bytes = two();
    assert_eq!(walk(&bytes), (2, None));
    assert_eq!(walk(&bytes[..bytes.len() - 5]), (1, None));
}

#[test]
fn format_edge_2_and_3_a_wrong_size_or_magic_ends_the_walk_with_an_error() {
    let bytes = two();
    let second = bytes.len() / 2;
    assert_eq!(walk(&sized(&bytes, second, 9)), (1, CORRUPT));
    let mut magic = bytes.clone();
    magic[second + 16] = 37;
    assert_eq!(walk(&magic), (1, CORRUPT));
}

#[test]
fn format_edge_4_a_size_above_the_readers_limit_is_an_error() {
    let bytes = two();
    let first = Batches::with_limit(&bytes, 60).next().unwrap();
    assert_eq!(
        first.unwrap_err().to_string(),
        "batch length at byte 8 of the batch: expected at most 60, found 82"
    );
    assert!(Batches::with_limit(&bytes, 82).next().unwrap().is_ok());
    // Without a limit the batch's size, 12 more, still has to fit 32 bits.
    let mut bytes = bytes;
    bytes[8..12].copy_from_slice(&(i32::MAX - 11).to_be_bytes());
    let error = Batches::new(&bytes).next().unwrap().unwrap_err();
    assert_eq!(
        (error.kafka_name(), error.to_string().as_str()),
        (
            "IllegalArgumentException",
            "batch length at byte 8 of the batch: expected at most 2147483635, found 2147483636"
        )
    );
}

#[test]
fn format_edge_5_and_169_the_size_of_the_first_batch_without_the_batch() {
    let bytes = three(BatchOptions::default());
    for len in [0, 1, 12, 16] {
        assert_eq!(first_batch_size(&bytes[..len]), Ok(None));
    }
    assert_eq!(first_batch_size(&bytes[..17]), Ok(Some(bytes.len() as u64)));
    let mut magic = bytes.to_vec();
    magic[16] = 10;
    assert_eq!(first_batch_size(&magic).unwrap_err().kafka_name(), "CorruptRecordException");
    assert_eq!(first_batch_size(&sized(&bytes, 0, 0)).unwrap_err().kafka_name(), "CorruptRecordException");
}

#[test]
fn format_edge_6_and_7_small_and_negative_sizes() {
    let bytes = three(BatchOptions::default());
    assert_eq!(walk(&sized(&bytes, 0, 13)[..16]), (0, CORRUPT));
    assert_eq!(walk(&sized(&bytes, 0, 14)[..16]), (0, None));
    assert_eq!(walk(&sized(&bytes, 0, -1)), (0, CORRUPT));
    let mut magic = bytes.to_vec();
    magic[16] = 0xff;
    assert_eq!(walk(&magic), (0, CORRUPT));
}

#[test]
fn format_edge_8_9_and_156_a_batch_shorter_than_its_header_is_corrupt() {
    let bytes = three(BatchOptions::default());
    for size in [14, 26, 28, 40, 48] {
        let short = sized(&bytes, 0, size);
        assert_eq!(walk(&short), (0, CORRUPT));
        assert_eq!(walk(&short[..12 + size as usize]), (0, CORRUPT));
        let error = BatchHeader::read(&short[..12 + size as usize]).unwrap_err();
        assert_eq!(
            error.to_string(),
            format!("batch length at byte 8 of the batch: expected at least 49, found {size}")
        );
        // The framing of a file does not know it yet.
        assert_eq!(framed(&short), Ok(Framed::Whole { size: 12 + size as usize, magic: Magic::V2 }));
    }
    assert_eq!(walk(&sized(&bytes, 0, 10)), (0, CORRUPT));
    // One of 49 with a count has no records.
    let empty = forge(&bytes, |bytes| bytes.truncate(61));
    assert_eq!(crate::support::failure(&empty), (0, "InvalidRecordException"));
}

#[test]
fn format_edge_22_and_134_the_end_of_a_file() {
    let bytes = three(BatchOptions::default());
    let size = bytes.len();
    assert_eq!(framed(&bytes), Ok(Framed::Whole { size, magic: Magic::V2 }));
    assert_eq!(framed(&bytes[..size - 1]), Ok(Framed::Torn { needed: Some(size as u64) }));
    assert_eq!(framed(&bytes[..18]), Ok(Framed::Torn { needed: Some(size as u64) }));
    for len in 1..18 {
        assert_eq!(framed(&bytes[..len]), Ok(Framed::Torn { needed: None }));
    }
    assert_eq!(framed(&[]), Ok(Framed::End));
    assert_eq!(framed(&[0; 17]), Ok(Framed::Torn { needed: None }));
    assert_eq!(framed(&[0; 18]), Err("CorruptRecordException"));
    assert_eq!(framed(&[0; 4096]), Err("CorruptRecordException"));
}

#[test]
fn a_prefix_that_is_too_short_for_what_remains_is_refused() {
    assert!(frame(&[0; 16], 100).is_err());
}

#[test]
fn format_edge_131_sizes_that_do_not_fit_32_bits() {
    let bytes = three(BatchOptions::default());
    let largest = sized(&bytes, 0, i32::MAX);
    assert_eq!(walk(&largest), (0, Some("IllegalArgumentException")));
    assert_eq!(walk(&sized(&bytes, 0, i32::MAX - 12)), (0, None));
    let needed = Some(12 + i32::MAX as u64);
    assert_eq!(framed(&largest), Ok(Framed::Torn { needed }));
}

#[test]
fn format_edge_132_a_file_with_another_magic_is_corrupt() {
    for magic in [9, -3i8 as u8] {
        let bytes = forge(&three(BatchOptions::default()), |bytes| bytes[16] = magic);
        assert_eq!(framed(&bytes), Err("CorruptRecordException"));
        // Where the batch is not whole, that is what is said of it.
        assert!(matches!(framed(&bytes[..40]), Ok(Framed::Torn { .. })));
    }
}

#[test]
fn format_edge_167_buffers_that_a_follower_may_be_given() {
    let batch = crate::support::build(BatchOptions::default(), &[(0, None, Some(&[b'a'; 186]))]);
    assert_eq!(batch.len(), 256);
    assert_eq!(walk(&batch[..11]), (0, None));
    assert_eq!(walk(&sized(&batch, 0, 13)), (0, CORRUPT));
    assert_eq!(walk(&batch[..16]), (0, None));
    for magic in [0xff, 3] {
        let mut bytes = batch.to_vec();
        bytes[16] = magic;
        assert_eq!(walk(&bytes), (0, CORRUPT));
    }
    assert_eq!(walk(&batch[..243]), (0, None));
    let mut bytes = batch.to_vec();
    bytes[17..21].fill(0);
    assert_eq!(Batch::parse(&bytes).unwrap().verify().unwrap_err().kafka_name(), "CorruptRecordException");
}

#[test]
fn format_edge_133_a_batch_shorter_than_its_header_in_a_file() {
    let batch = three(BatchOptions::default());
    // 32 bytes at the very end, and with another batch behind, whose fields would stand in the rest of the header.
    let short = sized(&batch, 0, 20)[..32].to_vec();
    let followed = [&short[..], &batch].concat();
    for bytes in [&short, &followed] {
        assert_eq!(framed(bytes), Ok(Framed::Whole { size: 32, magic: Magic::V2 }));
        for read in [&bytes[..32], &bytes[..]] {
            let error = BatchHeader::read(read).unwrap_err();
            let said = "batch length at byte 8 of the batch: expected at least 49, found 20";
            assert_eq!((error.kafka_name(), error.to_string().as_str()), ("CorruptRecordException", said));
        }
    }
}

#[test]
fn format_edge_170_a_part_of_a_buffer_is_walked_like_the_whole() {
    let all: Vec<_> = (0..4).map(|n| three(at(n * 3))).collect();
    let bytes = all.concat();
    let first = all[0].len();
    let bases = |bytes: &[u8]| -> Vec<i64> {
        Batches::new(bytes).map(|batch| batch.unwrap().base_offset().unwrap().get()).collect()
    };
    // Rust's slices do what Kafka's do, but for lengths beyond the end, which they refuse.
    assert_eq!(bases(&bytes[first..]), [3, 6, 9]);
    assert_eq!(bases(&bytes[1..][first - 1..]), [3, 6, 9]);
    assert_eq!(bases(&bytes[first..][first..2 * first]), [6]);
    assert_eq!(bases(&bytes[2 * first..][..first]), [6]);
    assert_eq!(bases(&bytes[0..0]), [0i64; 0]);
    assert!(bytes.get(bytes.len() + 1..).is_none() && bytes.get(first..usize::MAX).is_none());
    let mut walk = Batches::new(&bytes);
    walk.next();
    assert_eq!((walk.position(), bases(walk.rest())), (first, vec![3, 6, 9]));
}
