//! Random work on an appender, held against a `Vec` of bytes.

use std::sync::Arc;

use bytes::Bytes;
use kseg_io_backends::{Appender, Backend, MapAccess, MemoryBackend, Op, OpenHow, Reserve, appender};
use proptest::prelude::*;
use proptest::test_runner::TestRunner;

use crate::places;

#[derive(Debug, Clone)]
enum Step {
    Append(Vec<Vec<u8>>),
    Truncate(prop::sample::Index),
    Read(prop::sample::Index, usize),
    Reserve(u16),
    Map(prop::sample::Index),
    Flush,
    Seal,
    Reopen,
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
    ]
}

fn run(backend: &dyn Backend, path: &std::path::Path, steps: &[Step]) {
    let open = |len| appender(backend.open(path, OpenHow::Create).unwrap(), len).unwrap();
    let mut log: Arc<dyn Appender> = open(0);
    let mut model: Vec<u8> = Vec::new();
    let mut regions = Vec::new();
    for step in steps {
        let place = |index: &prop::sample::Index| index.index(model.len() + 1);
        match step {
            Step::Append(parts) => {
                let start = model.len() as u64;
                model.extend(parts.concat());
                let parts: Vec<Bytes> = parts.iter().map(|part| Bytes::copy_from_slice(part)).collect();
                assert_eq!(log.append(parts.into()).unwrap(), start..model.len() as u64);
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
                let end = model.len() as u64;
                let range = end..end + u64::from(*size);
                log.file().submit(Op::Reserve { range, how: Reserve::Zeroed }).wait().result.unwrap();
            }
            Step::Map(index) => {
                // Kept over whatever follows.
                let len = place(index);
                log.flush().unwrap();
                let region = log.file().map(len, MapAccess::Read).unwrap();
                for at in (0..len.saturating_sub(3)).step_by(4) {
                    assert_eq!(region.load::<4>(at), model[at..at + 4]);
                }
                regions.push(region);
            }
            Step::Flush => assert_eq!(log.flush().unwrap(), model.len() as u64),
            Step::Seal => {
                assert_eq!(log.seal().unwrap(), model.len() as u64);
                let seen = backend.names().read(path, 1 << 30).unwrap().unwrap();
                assert_eq!(seen, model);
            }
            Step::Reopen => {
                // What was accepted is in the file once nobody appends to it.
                drop(log);
                log = open(model.len() as u64);
            }
        }
        let marks = log.marks();
        assert_eq!(marks.accepted(), model.len() as u64);
        assert!(marks.durable() <= marks.stable() && marks.stable() <= marks.accepted() && !marks.fenced());
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
    for_all_steps(48, |steps| run(&MemoryBackend::new(), "0.log".as_ref(), steps));
}

#[test]
fn an_appender_over_each_backend_is_a_vec() {
    places::with_each(|_, backend, dir| {
        let path = dir.join("0.log");
        for_all_steps(12, |steps| {
            backend.names().remove(&path).unwrap();
            run(&*backend, &path, steps);
        });
    });
}
