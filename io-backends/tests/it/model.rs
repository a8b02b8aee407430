//! Random work on an appender, with short writes and a disk that is full now and then, held against a `Vec` of bytes.

use std::fmt;
use std::sync::Arc;

use bytes::Bytes;
use kseg_io_backends::{
    Appender, Backend, Call, Fault, Faulty, IoError, MapAccess, MemoryBackend, Op, OpenHow, Reserve, Verdict,
    appender,
};
use proptest::prelude::*;
use proptest::test_runner::TestRunner;

use crate::places;

#[derive(Clone)]
enum Step {
    Append(Vec<Vec<u8>>),
    Truncate(prop::sample::Index),
    Read(prop::sample::Index, usize),
    Reserve(u16),
    Map(prop::sample::Index),
    Flush,
    Seal,
    Reopen,
    /// So many writes find no space, after a few that do.
    Full(u64, u64),
    /// So many writes make a few bytes only.
    Short(u64, u64),
}

impl fmt::Debug for Step {
    /// Without the bytes: what counts is how many they are.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Step::Append(parts) => write!(f, "Append({:?})", parts.iter().map(Vec::len).collect::<Vec<_>>()),
            Step::Truncate(index) => write!(f, "Truncate({index:?})"),
            Step::Read(index, len) => write!(f, "Read({index:?}, {len})"),
            Step::Reserve(size) => write!(f, "Reserve({size})"),
            Step::Map(index) => write!(f, "Map({index:?})"),
            Step::Flush => f.write_str("Flush"),
            Step::Seal => f.write_str("Seal"),
            Step::Reopen => f.write_str("Reopen"),
            Step::Full(first, times) => write!(f, "Full({first}, {times})"),
            Step::Short(times, bytes) => write!(f, "Short({times}, {bytes})"),
        }
    }
}

fn step() -> impl Strategy<Value = Step> {
    let parts = prop::collection::vec(prop::collection::vec(any::<u8>(), 0..300), 0..20);
    prop_oneof![
        4 => parts.prop_map(Step::Append),
        1 => prop::collection::vec(any::<u8>(), 60_000..70_000).prop_map(|part| Step::Append(vec![part])),
        2 => any::<prop::sample::Index>().prop_map(Step::Truncate),
        4 => (any::<prop::sample::Index>(), 0..10_000_usize).prop_map(|(at, len)| Step::Read(at, len)),
        1 => any::<u16>().prop_map(Step::Reserve),
        1 => any::<prop::sample::Index>().prop_map(Step::Map),
        1 => Just(Step::Flush),
        1 => Just(Step::Seal),
        1 => Just(Step::Reopen),
        1 => (1..4_u64, 1..6_u64).prop_map(|(first, times)| Step::Full(first, times)),
        1 => (1..4_u64, 1..5000_u64).prop_map(|(times, bytes)| Step::Short(times, bytes)),
    ]
}

/// The answer; none where the disk is full, which is said as such.
fn unless_full<T>(result: Result<T, IoError>) -> Option<T> {
    match result {
        Ok(answer) => Some(answer),
        Err(error) => {
            assert_eq!(error.verdict(), Verdict::NoSpace, "{error}");
            assert_eq!(error.io_error().raw_os_error(), Some(Fault::ENOSPC), "{error}");
            None
        }
    }
}

fn run(backend: Arc<dyn Backend>, path: &std::path::Path, steps: &[Step]) {
    let faulty = Faulty::new(Arc::clone(&backend));
    let open = |len| appender(faulty.open(path, OpenHow::Create).unwrap(), len).unwrap();
    let mut log: Arc<dyn Appender> = open(0);
    let mut model: Vec<u8> = Vec::new();
    let mut regions = Vec::new();
    for step in steps {
        let place = |index: &prop::sample::Index| index.index(model.len() + 1);
        match step {
            Step::Append(parts) => {
                let start = model.len() as u64;
                let given: Vec<Bytes> = parts.iter().map(|part| Bytes::copy_from_slice(part)).collect();
                if let Some(range) = unless_full(log.append(given.into())) {
                    model.extend(parts.concat());
                    assert_eq!(range, start..model.len() as u64);
                }
            }
            Step::Truncate(index) => {
                let len = place(index);
                log.truncate(len as u64).unwrap();
                model.truncate(len);
            }
            Step::Read(index, len) => {
                let at = place(index);
                let mut bytes = vec![0xee; *len];
                let count = log.read_at(&mut bytes, at as u64).unwrap();
                assert_eq!(bytes[..count], model[at..model.len().min(at + len)]);
            }
            Step::Reserve(size) => {
                // Who writes to the file past the appender waits until that has nothing in flight.
                if unless_full(log.flush()).is_none() {
                    continue;
                }
                let end = model.len() as u64;
                let range = end..end + u64::from(*size);
                log.file().submit(Op::Reserve { range, how: Reserve::Zeroed }).wait().result.unwrap();
            }
            Step::Map(index) => {
                // Kept over whatever follows.
                let len = place(index);
                if unless_full(log.flush()).is_none() {
                    continue;
                }
                let region = log.file().map(len, MapAccess::Read).unwrap();
                for at in (0..len.saturating_sub(3)).step_by(4) {
                    assert_eq!(region.load::<4>(at), model[at..at + 4]);
                }
                regions.push(region);
            }
            Step::Flush => {
                if let Some(durable) = unless_full(log.flush()) {
                    assert_eq!(durable, model.len() as u64);
                }
            }
            Step::Seal => {
                let Some(len) = unless_full(log.seal()) else { continue };
                assert_eq!(len, model.len() as u64);
                let seen = backend.names().read(path, 1 << 30).unwrap().unwrap();
                let differ = seen.iter().zip(&model).position(|(a, b)| a != b);
                assert!(seen == model, "{} bytes of {}, first at {differ:?}", seen.len(), model.len());
            }
            Step::Reopen => {
                // What was accepted is in the file once nobody appends to it.
                faulty.clear();
                drop(log);
                log = open(model.len() as u64);
            }
            Step::Full(first, times) => {
                faulty.clear();
                faulty.inject(Fault::on(Call::Write).nth(*first).times(*times).error(Fault::ENOSPC));
            }
            Step::Short(times, bytes) => {
                faulty.inject(Fault::on(Call::Write).times(*times).short(*bytes));
            }
        }
        let marks = log.marks();
        assert_eq!(marks.accepted(), model.len() as u64);
        assert!(marks.durable() <= marks.stable() && marks.stable() <= marks.accepted(), "{marks:?}");
        assert!(!marks.fenced(), "{:?}", marks.fenced_by());
    }
}

fn for_all_steps(cases: u32, check: impl Fn(&[Step])) {
    let config = ProptestConfig { cases, failure_persistence: None, ..ProptestConfig::default() };
    TestRunner::new(config)
        .run(&prop::collection::vec(step(), 0..60), |steps| {
            check(&steps);
            Ok(())
        })
        .unwrap();
}

#[test]
fn an_appender_over_memory_is_a_vec() {
    for_all_steps(48, |steps| run(Arc::new(MemoryBackend::new()), "0.log".as_ref(), steps));
}

#[test]
fn an_appender_over_each_backend_is_a_vec() {
    places::with_each(|spec, backend, dir| {
        println!("over {spec}");
        let path = dir.join("0.log");
        for_all_steps(12, |steps| {
            backend.names().remove(&path).unwrap();
            run(Arc::clone(&backend), &path, steps);
        });
    });
}
