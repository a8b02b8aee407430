//! What must hold of a compacted log, judged by what went in and what came out alone, for random logs of many producers over
//! several rounds; and that each rule catches a log that breaks it.

use std::collections::{BTreeMap, HashMap};

use proptest::prelude::*;

use crate::bed::*;

/// A record of data as a reader of committed transactions sees it.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Seen {
    offset: i64,
    key: String,
    value: Option<String>,
}

/// What the rules look at.
#[derive(Debug, Clone, Default)]
struct View {
    /// All records, and the offsets of the markers, as they lie.
    data: Vec<Seen>,
    /// Offsets of data whose transaction was aborted.
    aborted: Vec<i64>,
    /// Offsets of the data of each transaction, and of its marker.
    transactions: Vec<(Vec<i64>, i64)>,
    /// The last sequence of each producer.
    sequences: BTreeMap<i64, Option<i32>>,
    markers: Vec<i64>,
    /// Base and last offset of each batch, in order.
    batches: Vec<(i64, i64)>,
    end: i64,
}

/// What was put into a log, as far as the log does not tell.
#[derive(Debug, Clone, Default)]
struct Played {
    aborted: Vec<i64>,
    transactions: Vec<(Vec<i64>, i64)>,
}

fn view(bed: &Bed, played: &Played) -> View {
    let data: Vec<Seen> =
        bed.data().into_iter().map(|(offset, key, value)| Seen { offset, key, value }).collect();
    let markers = bed.all_offsets().into_iter().filter(|o| data.iter().all(|s| s.offset != *o)).collect();
    let aborted = data.iter().map(|s| s.offset).filter(|o| played.aborted.contains(o)).collect();
    let transactions = played.transactions.clone();
    let sequences = PRODUCERS.map(|id| (id, bed.last_sequence(id))).collect();
    let end = bed.log.log_end_offset().get();
    View { data, aborted, transactions, sequences, markers, batches: bed.batches(), end }
}

/// The first rule that `after` breaks. `clean_end`: up to where rounds have gone. `window`: tombstones may not be gone yet.
fn broken(before: &View, after: &View, clean_end: i64, window: bool) -> Option<String> {
    if !after.data.is_sorted_by(|a, b| a.offset < b.offset) {
        return Some("order: offsets do not rise".to_owned());
    }
    let mut from = 0;
    for (base, last) in &after.batches {
        if *base < from || last < base {
            return Some(format!("order: the batch {base} to {last} reaches back"));
        }
        from = last + 1;
    }
    if after.end != before.end {
        return Some(format!("the log ends at {} and not at {}", after.end, before.end));
    }
    let source: BTreeMap<i64, &Seen> = before.data.iter().map(|s| (s.offset, s)).collect();
    for seen in &after.data {
        if source.get(&seen.offset) != Some(&seen) {
            return Some(format!("offsets: {seen:?} was never there"));
        }
    }
    if let Some(offset) = after.aborted.iter().find(|o| **o < clean_end) {
        return Some(format!("aborted data at {offset} is still there"));
    }
    let mut latest: HashMap<&str, &Seen> = HashMap::new();
    for seen in before.data.iter().filter(|s| !before.aborted.contains(&s.offset) && s.key != "-") {
        latest.insert(&seen.key, seen);
    }
    let kept: BTreeMap<i64, &Seen> = after.data.iter().map(|s| (s.offset, s)).collect();
    for (key, seen) in &latest {
        let needed = seen.value.is_some() || window;
        if needed && !kept.contains_key(&seen.offset) {
            return Some(format!("the last value of {key} at {} is gone", seen.offset));
        }
    }
    for seen in after.data.iter().filter(|s| s.offset < clean_end && !after.aborted.contains(&s.offset)) {
        if let Some(newest) = latest.get(&*seen.key)
            && newest.offset < clean_end
            && newest.offset != seen.offset
        {
            return Some(format!("{} at {} is superseded by {}", seen.key, seen.offset, newest.offset));
        }
    }
    for (offsets, marker) in &before.transactions {
        let left = offsets.iter().any(|offset| kept.contains_key(offset));
        if left && !after.markers.contains(marker) {
            return Some(format!("the marker at {marker} has left before its data"));
        }
    }
    if before.sequences != after.sequences {
        return Some(format!("last sequences were {:?} and are {:?}", before.sequences, after.sequences));
    }
    if let Some(marker) = after.markers.iter().find(|m| !before.markers.contains(m)) {
        return Some(format!("the marker at {marker} was never there"));
    }
    None
}

/// Producers 1 to 5 use transactions, 6 to 8 are idempotent alone, and 0 is none.
const TRANSACTIONAL: u8 = 5;
const PRODUCERS: std::ops::RangeInclusive<i64> = 1..=8;

/// An operation of a random log.
#[derive(Debug, Clone)]
enum Op {
    Put { producer: u8, keys: Vec<(u8, bool)> },
    End { producer: u8, commit: bool },
    Roll,
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        8 => (0_u8..9, prop::collection::vec((0_u8..6, prop::bool::weighted(0.2)), 1..4))
            .prop_map(|(producer, keys)| Op::Put { producer, keys }),
        3 => (1_u8..=TRANSACTIONAL, any::<bool>()).prop_map(|(producer, commit)| Op::End { producer, commit }),
        1 => Just(Op::Roll),
    ]
}

/// Plays it. All transactions are decided in the end.
fn play(bed: &Bed, ops: &[Op]) -> Played {
    let mut open: BTreeMap<u8, Vec<i64>> = BTreeMap::new();
    let mut played = Played::default();
    let end = |producer: u8, commit: bool, open: &mut BTreeMap<u8, Vec<i64>>, played: &mut Played| {
        if let Some(offsets) = open.remove(&producer) {
            let marker = bed.marker(i64::from(producer), commit);
            if !commit {
                played.aborted.extend(&offsets);
            }
            played.transactions.push((offsets, marker));
        }
    };
    for op in ops {
        match op {
            Op::Put { producer: id, keys } => {
                let first = bed.log.log_end_offset().get();
                let texts: Vec<(String, Option<String>)> = keys
                    .iter()
                    .enumerate()
                    .map(|(n, (key, dead))| {
                        (format!("k{key}"), (!dead).then(|| format!("v{}", first + n as i64)))
                    })
                    .collect();
                let entries: Vec<Entry<'_>> = texts.iter().map(|(k, v)| (Some(&**k), v.as_deref())).collect();
                if *id == 0 {
                    bed.put(&entries);
                } else {
                    let (epoch, sequence) = bed.producer(i64::from(*id));
                    let transactional = *id <= TRANSACTIONAL;
                    bed.append(producer(i64::from(*id), epoch, sequence, transactional), &entries);
                    bed.set_producer(i64::from(*id), epoch, sequence + entries.len() as i32);
                    if transactional {
                        open.entry(*id).or_default().extend(first..first + entries.len() as i64);
                    }
                }
            }
            Op::End { producer, commit } => end(*producer, *commit, &mut open, &mut played),
            Op::Roll => bed.roll(),
        }
    }
    for producer in 1..=TRANSACTIONAL {
        end(producer, producer % 2 == 0, &mut open, &mut played);
    }
    played
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    #[test]
    fn a_compacted_log_keeps_its_promises(
        ops in prop::collection::vec(op(), 1..90),
        slots in 4_usize..40,
        crash in any::<bool>(),
        parallel in any::<bool>(),
    ) {
        let mut bed = Bed::new(&[("delete.retention.ms", "1000")]);
        let played = play(&bed, &ops);
        bed.options = options(slots);
        bed.options.parallel = parallel;
        bed.roll();
        let before = view(&bed, &played);
        let mut first = 0;
        // Rounds with a small map, up to the end of what is sealed.
        while first < bed.active() {
            let round = bed.round(first, NOW).unwrap();
            prop_assert!(round.end.unwrap().get() > first);
            first = round.end.unwrap().get();
            let after = view(&bed, &played);
            prop_assert_eq!(broken(&before, &after, 0, true), None);
        }
        bed.options = options(1000);
        bed.options.parallel = !parallel;
        bed.round(0, NOW + 999).unwrap();
        let whole = view(&bed, &played);
        prop_assert_eq!(broken(&before, &whole, first, true), None);
        // What every round keeps: a second one at the same time changes nothing more than markers and headers.
        bed.round(0, NOW + 999).unwrap();
        let again = view(&bed, &played);
        prop_assert_eq!(&again.data, &whole.data);
        bed.round(0, NOW + 5000).unwrap();
        bed.round(0, NOW + 50_000).unwrap();
        let after = view(&bed, &played);
        prop_assert_eq!(broken(&before, &after, first, false), None);
        prop_assert!(after.data.iter().all(|s| s.value.is_some()), "tombstones are gone");
        let bed = bed.reopened(crash, !crash);
        prop_assert_eq!(view(&bed, &played).data, after.data);
        prop_assert_eq!(bed.log.first_unstable_offset(), None);
    }
}

#[test]
fn each_rule_catches_a_log_that_breaks_it() {
    let bed = Bed::new(&[]);
    bed.put(&[kv("a", "0")]);
    bed.put(&[kv("a", "1"), gone("b")]);
    bed.txn(1, &[7]);
    bed.abort(1);
    bed.txn(2, &[8]);
    bed.commit(2);
    let played = Played { aborted: vec![3], transactions: vec![(vec![3], 4), (vec![5], 6)] };
    let before = view(&bed, &played);
    bed.clean();
    let after = view(&bed, &played);
    let end = bed.active();
    assert_eq!(broken(&before, &after, end, true), None);
    let breaking = |change: &dyn Fn(&mut View), rule: &str| {
        let mut changed = after.clone();
        change(&mut changed);
        let found = broken(&before, &changed, end, true);
        assert!(found.as_ref().is_some_and(|found| found.contains(rule)), "{rule}: {found:?}");
    };
    breaking(&|v| v.data.swap(0, 1), "do not rise");
    breaking(&|v| v.batches.swap(0, 1), "reaches back");
    breaking(&|v| v.end -= 1, "ends at");
    breaking(&|v| v.data[0].value = Some("other".into()), "never there");
    breaking(&|v| v.data[0].offset = 0, "never there");
    breaking(&|v| v.aborted.push(3), "aborted data");
    breaking(&|v| drop(v.data.remove(0)), "the last value of a");
    breaking(&|v| drop(v.data.remove(1)), "the last value of b");
    let old = Seen { offset: 0, key: "a".into(), value: Some("0".into()) };
    breaking(&|v| v.data.insert(0, old.clone()), "superseded");
    breaking(&|v| v.markers.push(2), "marker");
    breaking(&|v| v.markers.retain(|marker| *marker != 6), "left before its data");
    breaking(&|v| v.sequences.retain(|id, _| *id != 2), "last sequences");
}
