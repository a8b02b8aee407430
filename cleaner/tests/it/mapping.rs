//! Building the map, rounds that it ends early, and which segments are copied together.

use bytes::BytesMut;
use kseg_cleaner::{Cleaner, CleanerOptions, Dirty, GroupFacts, GroupLimits, group};
use kseg_format::{Offset, Timestamp};
use kseg_io_backends::Backend;

use crate::bed::*;

fn facts(segments: &[(i64, u64, u64, u64)]) -> Vec<GroupFacts> {
    let fact = |&(base, size, offset_index_size, time_index_size)| GroupFacts {
        base_offset: Offset::new(base),
        size,
        offset_index_size,
        time_index_size,
    };
    segments.iter().map(fact).collect()
}

fn grouped(segments: &[(i64, u64, u64, u64)], size: u64, index_size: u64, end: i64) -> Vec<usize> {
    group(&facts(segments), &GroupLimits { size, index_size, first_uncleanable: Offset::new(end) })
}

const MAX: i64 = i32::MAX as i64;

#[test]
fn cleaner_edge_6_and_7_and_8_groups_grow_to_their_limits() {
    let ten: Vec<_> = (0..10).map(|n| (n * 10, 100, 16, 24)).collect();
    assert_eq!(grouped(&ten, MAX as u64, MAX as u64, 100), [10]);
    assert_eq!(grouped(&ten, 1, MAX as u64, 100), [1; 10]);
    assert_eq!(grouped(&ten, MAX as u64, 1, 100), [1; 10]);
    assert_eq!(grouped(&ten, 301, MAX as u64, 100), [3, 3, 3, 1]);
    assert_eq!(grouped(&ten, MAX as u64, 73, 100), [3, 3, 3, 1]);
}

#[test]
fn cleaner_edge_9_and_10_and_11_offsets_of_a_group_stay_in_the_range_of_a_relative_offset() {
    // The base behind a segment bounds its last offset, inclusive.
    assert_eq!(grouped(&[(0, 100, 8, 12), (MAX - 1, 100, 8, 12)], 10_000, 10_000, MAX + 1), [2]);
    assert_eq!(grouped(&[(0, 100, 8, 12), (MAX - 1, 100, 8, 12)], 10_000, 10_000, MAX + 2), [1, 1]);
    let four = [(0, 100, 8, 12), (MAX - 1, 100, 8, 12), (MAX + 2, 100, 8, 12), (MAX + 3, 100, 8, 12)];
    assert_eq!(grouped(&four, 10_000, 10_000, MAX + 4), [1, 3]);
}

#[test]
fn cleaner_edge_12_and_13_empty_segments_join_whatever_the_distance() {
    let far = 1_i64 << 31;
    let three = |size| [(0, size, 0, 0), (far, 100, 0, 0), (2 * far, 100, 0, 0)];
    assert_eq!(grouped(&three(100), 10_000, 10_000, 3 * far), [1, 1, 1]);
    assert_eq!(
        grouped(&[(0, 0, 0, 0), (far, 0, 0, 0), (2 * far, 100, 0, 0)], 10_000, 10_000, 3 * far),
        [2, 1]
    );
    // An index without entries tells nothing of the last offset.
    assert_eq!(grouped(&[(0, 100, 0, 0), (MAX / 2, 100, 0, 0)], 10_000, 10_000, MAX + 2), [1, 1]);

    // Over two rounds, the empty ones are merged away.
    let bed = Bed::new(&[]);
    for n in 0..3 {
        bed.follow(at(n * far, &[kv("k", "v")]));
        bed.log.roll(Some(Offset::new((n + 1) * far))).unwrap();
    }
    bed.log.update_high_watermark(bed.log.log_end_offset());
    bed.round(0, NOW).unwrap();
    assert_eq!((bed.segments().len(), bed.bytes()[0].len()), (4, 0));
    bed.round(0, NOW).unwrap();
    assert_eq!((bed.segments(), bed.offsets()), (vec![0, 2 * far, 3 * far], vec![2 * far]));
}

#[test]
fn cln_10_groups_whose_index_or_offsets_would_not_fit_stay_apart() {
    assert_eq!(grouped(&[(0, 400, 0, 0), (1, 400, 0, 0), (2, 400, 0, 0)], 1000, 100, 3), [2, 1]);
    let far = 1_i64 << 31;
    let bases = |a, b, c| [(a, 100, 0, 0), (b, 100, 0, 0), (c, 100, 0, 0)];
    assert_eq!(grouped(&bases(0, 10, far), 1000, 100, far + 12), [2, 1]);
    assert_eq!(grouped(&bases(0, 10, far + 10), 1000, 100, far + 12), [1, 1, 1]);
    assert_eq!(grouped(&[(0, 100, 16, 0), (10, 100, 16, 0)], 1000, 16, 20), [1, 1]);
}

#[test]
fn cleaner_edge_20_and_21_whole_ranges_are_taken_up() {
    let bed = Bed::new(&[("internal.segment.bytes", "1000")]);
    bed.keys(0..500);
    bed.roll();
    let round = bed.round(0, NOW).unwrap();
    assert_eq!((round.end, round.stats.map_records_read), (Some(Offset::new(500)), 500));
    assert_eq!(round.stats.map_utilization, 500.0 / 10_000.0);
    let from = bed.log.sealed_segments().unwrap().0[3].base_offset().get();
    let round = bed.round(from, NOW).unwrap();
    assert_eq!(round.stats.map_records_read as i64, 500 - from);

    let bed = Bed::new(&[]);
    bed.follow(at(0, &[kv("0", "v")]));
    bed.follow(at(7_206_178, &[kv("1", "v")]));
    bed.roll();
    assert_eq!(bed.round(0, NOW).unwrap().end, Some(Offset::new(7_206_179)));
    assert_eq!(bed.offsets(), [0, 7_206_178]);
}

#[test]
fn cleaner_edge_22_and_23_and_24_a_full_map_ends_a_round_early() {
    let mut bed = Bed::new(&[]);
    bed.options = options(3);
    bed.keys(0..5);
    bed.roll();
    let round = bed.round(2, NOW).unwrap();
    assert_eq!((round.end, round.stats.map_records_read), (Some(Offset::new(4)), 4));

    let mut bed = Bed::new(&[]);
    bed.options = options(2);
    bed.keys([0, 1, 0, 1, 0]);
    bed.roll();
    for (first, left) in [(2, vec![1, 2, 3, 4]), (3, vec![2, 3, 4]), (4, vec![3, 4])] {
        let round = bed.round(first, NOW).unwrap();
        assert_eq!((round.end, bed.offsets()), (Some(Offset::new(first + 1)), left));
    }

    let mut bed = Bed::new(&[]);
    bed.options = options(4);
    bed.keys([0, 1, 0, 1, 0]);
    bed.roll();
    let size = bed.bytes()[0].len() as u64;
    let round = bed.round(2, NOW).unwrap();
    assert_eq!(round.end, Some(Offset::new(5)));
    let stats = round.stats;
    assert_eq!((stats.records_read, stats.records_written, stats.invalid_records), (5, 2, 0));
    assert_eq!((stats.bytes_read, stats.bytes_written), (size, bed.bytes()[0].len() as u64));
    assert!(stats.time >= stats.map_time && stats.records_dropped() == 3);
}

#[test]
fn cleaner_edge_25_and_26_gaps_at_the_ends_of_segments_are_passed_over() {
    let bed = Bed::new(&[]);
    bed.keys(0..10);
    bed.log.roll(Some(Offset::new(11))).unwrap();
    bed.log.update_high_watermark(bed.log.log_end_offset());
    assert_eq!(bed.round(0, NOW).unwrap().end, Some(Offset::new(11)));

    let bed = Bed::new(&[]);
    bed.keys(0..10);
    bed.log.roll(Some(Offset::new(15))).unwrap();
    for n in 15..25 {
        bed.follow(at(n, &[kv(&n.to_string(), "v")]));
    }
    bed.log.roll(Some(Offset::new(30))).unwrap();
    bed.log.update_high_watermark(bed.log.log_end_offset());
    assert_eq!(bed.round(0, NOW).unwrap().end, Some(Offset::new(30)));
}

#[test]
fn cleaner_edge_152_and_153_batches_without_keys_move_the_end_too() {
    let mut bed = Bed::new(&[("cleanup.policy", "delete")]);
    bed.options = options(2);
    for n in 0..3 {
        bed.put(&[(None, Some("nobody's"))]);
        bed.put(&[kv(&format!("k{n}"), "v")]);
    }
    bed.roll();
    let round = bed.round(0, NOW).unwrap();
    assert_eq!((round.end, round.stats.invalid_records), (Some(Offset::new(3)), 2));
    assert_eq!(bed.all_offsets(), [1, 3, 4, 5]);
    let round = bed.round(3, NOW).unwrap();
    assert_eq!((round.end, round.stats.invalid_records), (Some(Offset::new(5)), 1));
    assert_eq!(bed.all_offsets(), [1, 3, 5]);

    let mut bed = Bed::new(&[("cleanup.policy", "delete")]);
    bed.options = options(2);
    bed.keys([1]);
    bed.put(&[(None, Some("nobody's"))]);
    bed.commit(9);
    bed.put(&[kv("b", "v"), (None, Some("nobody's"))]);
    bed.roll();
    assert_eq!(bed.round(0, NOW).unwrap().end, Some(Offset::new(3)));
}

#[test]
fn cln_04_one_segment_with_more_keys_than_the_map_takes_several_rounds() {
    let mut bed = Bed::new(&[]);
    bed.options.map_bytes = 240;
    bed.options.load_factor = 0.9;
    bed.keys(0..20);
    bed.roll();
    let mut first = 0;
    for end in [9, 18, 20] {
        first = bed.round(first, NOW).unwrap().end.unwrap().get();
        assert_eq!((first, bed.offsets().len()), (end, 20));
    }
}

#[test]
fn cleaner_edge_172_and_173_and_174_settings_that_cannot_work_are_refused() {
    let with = |set: &dyn Fn(&mut CleanerOptions)| {
        let mut options = CleanerOptions::default();
        set(&mut options);
        Cleaner::new(options).map(|_| ()).map_err(|e| e.kafka_name())
    };
    assert_eq!(with(&|_| {}), Ok(()));
    assert_eq!(with(&|o| o.map_bytes = 24), Err("ConfigException"));
    for factor in [0.0, 1.0, 1.6, 5.0, f64::NAN] {
        assert_eq!(with(&|o| o.load_factor = factor), Err("ConfigException"), "{factor}");
    }
    assert_eq!(with(&|o| o.io_buffer_bytes = 0), Err("ConfigException"));
}

#[test]
fn cleaner_edge_184_what_is_usable_is_rounded_down() {
    let mut bed = Bed::new(&[]);
    bed.options.map_bytes = 2400;
    bed.options.load_factor = 0.29;
    assert_eq!(bed.options.usable_slots(), 28);
    bed.keys(0..60);
    bed.roll();
    assert_eq!(bed.round(0, NOW).unwrap().end, Some(Offset::new(28)));
}

#[test]
fn cleaner_edge_183_empty_ranges_do_nothing_and_backward_ones_are_refused() {
    let bed = Bed::new(&[]);
    for _ in 0..2 {
        bed.keys([1, 1]);
        bed.roll();
    }
    let round = |first, end| {
        let dirty = Dirty {
            first: Offset::new(first),
            first_uncleanable: Offset::new(end),
            now: Timestamp::new(NOW),
        };
        bed.round_of(dirty).map(|round| (round.end, round.stats.bytes_read)).map_err(|e| e.kafka_name())
    };
    assert_eq!(round(4, 4), Ok((None, 0)));
    assert_eq!(round(2, 3), Ok((None, 0)));
    assert_eq!(round(3, 3), Err("IllegalArgumentException"));
    assert_eq!(round(5, 9), Err("IllegalArgumentException"));
    assert_eq!(bed.offsets(), [0, 1, 2, 3]);
}

#[test]
fn cleaner_edge_159_indexes_have_an_entry_an_interval() {
    let bed = Bed::new(&[("internal.segment.bytes", "40000"), ("index.interval.bytes", "4096")]);
    let value = "v".repeat(500);
    for n in 0..60 {
        bed.append_at(kseg_format::BatchOptions::default(), &[NOW], &[kv(&n.to_string(), &value)]);
    }
    bed.roll();
    bed.round(0, NOW).unwrap();
    let state = bed.log.state(true).unwrap();
    let segment = &state.segments[0];
    let size = bed.bytes()[0].len() as u64;
    assert_eq!(segment.offset_entries.len() as u64, size / (4096 + 569));
    assert_eq!(segment.time_entries.len(), 1);
    for entry in &segment.offset_entries {
        let batch =
            kseg_format::Batch::parse(&bed.bytes()[0][entry.position as usize..]).unwrap().last_offset();
        assert_eq!(batch, entry.offset);
    }
}

#[test]
fn cleaner_edge_179_an_output_that_fills_an_index_goes_on_in_a_next_segment() {
    let bed = Bed::new(&[("segment.index.bytes", "24"), ("index.interval.bytes", "200")]);
    for n in 0..12 {
        bed.append_at(kseg_format::BatchOptions::default(), &[NOW], &[kv(&format!("{n}"), "v")]);
        bed.append_at(kseg_format::BatchOptions::default(), &[NOW], &[kv(&format!("x{n}"), "v")]);
        bed.roll();
    }
    let before = bed.offsets();
    for _ in 0..4 {
        bed.round(0, NOW).unwrap();
        assert_eq!(bed.offsets(), before);
        assert!(bed.files().iter().all(|(name, _)| !name.ends_with(".cleaned")));
    }
    assert!(bed.segments().len() < 12, "{:?}", bed.segments());
    let bed = bed.reopened(true, false);
    assert_eq!(bed.offsets(), before);
}

/// Puts batches into a segment that an append would not put there.
fn overflowing(offsets: &[i64]) -> Bed {
    let backend = std::sync::Arc::new(kseg_io_backends::MemoryBackend::new());
    let mut bytes = BytesMut::new();
    for &offset in offsets {
        bytes.extend_from_slice(&at(
            offset,
            &[kv(&(offset % 2).to_string(), "v"), kv(&offset.to_string(), "v")],
        ));
    }
    let names = backend.names();
    names.create_dir_all(std::path::Path::new(DIR)).unwrap();
    names.write(&std::path::Path::new(DIR).join("00000000000000000000.log"), &bytes, false).unwrap();
    let next = offsets.last().unwrap() + 2;
    let active = format!("{DIR}/{next:020}.log");
    names.write(std::path::Path::new(&active), b"", false).unwrap();
    Bed::on(backend, &[])
}

#[test]
fn cleaner_edge_14_and_185_offsets_too_far_from_their_base_make_a_next_segment() {
    let far = 1_i64 << 31;
    let bed = overflowing(&[5, 7, far + 2, far + 5, far + 7]);
    bed.log.update_high_watermark(bed.log.log_end_offset());
    let round = bed.round(0, NOW).unwrap();
    assert_eq!(round.end, Some(bed.log.log_end_offset()));
    assert_eq!(bed.offsets(), [6, 8, far + 2, far + 3, far + 6, far + 7, far + 8]);
    for (base, bytes) in bed.segments().into_iter().zip(bed.bytes()) {
        for batch in kseg_format::Batches::new(&bytes) {
            assert!(batch.unwrap().last_offset().get() - base <= MAX);
        }
    }
    bed.round(0, NOW).unwrap();
    let bed = bed.reopened(true, false);
    assert_eq!(bed.offsets().len(), 7);
}

#[test]
fn cleaner_edge_85_and_89_batches_go_whole_and_may_grow() {
    let bed = Bed::new(&[]);
    bed.txn(1, &[0]);
    bed.txn(2, &[1, 2]);
    bed.txn(1, &[3, 4, 5]);
    bed.txn(2, &[6]);
    bed.abort(2);
    bed.commit(1);
    bed.by(2, false, &[7]);
    bed.clean();
    assert_eq!(bed.last_offsets(), [0, 5, 7, 8, 9]);

    // Deltas from the horizon take more bytes than those from the first record.
    let bed = Bed::new(&[]);
    let keys: Vec<String> = (0..30).map(|n| format!("k{n}")).collect();
    let entries: Vec<Entry<'_>> = keys.iter().map(|key| gone(key)).collect();
    bed.put(&entries);
    let before = bed.bytes()[0].len();
    let config =
        kseg_log::LogConfig::from_pairs([("cleanup.policy", "compact"), ("max.message.bytes", "10")]);
    bed.log.update_config(config.unwrap()).unwrap();
    bed.clean();
    assert!(bed.bytes()[0].len() > before);
}

#[test]
fn a_map_beyond_the_memory_that_can_be_had_is_refused() {
    for bytes in [usize::MAX, isize::MAX as usize, 1 << 60] {
        let mut options = CleanerOptions::default();
        options.map_bytes = bytes;
        let refused = Cleaner::new(options).expect_err("refused");
        assert!(refused.to_string().contains("map_bytes: expected no more than"), "{refused}");
    }
}
