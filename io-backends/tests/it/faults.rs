//! What a failing device leads to.

use std::io::ErrorKind;
use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use kseg_io_backends::{
    Advice, Appender, Backend, Call, Fault, Faulty, MapAccess, MemoryBackend, Metered, Op, OpenHow, Reserve,
    StdBackend, Through, Verdict, appender,
};

use crate::places;

struct Place {
    _dir: tempfile::TempDir,
    faulty: Arc<Faulty>,
    /// Sits below the faults: what reached the engine.
    reached: Arc<Metered>,
    log: Arc<dyn Appender>,
}

impl Place {
    fn new(engine: Arc<dyn Backend>) -> Self {
        let dir = tempfile::tempdir().unwrap();
        engine.names().create_dir_all(dir.path()).unwrap();
        let reached = Arc::new(Metered::new(engine));
        let faulty = Arc::new(Faulty::new(Arc::clone(&reached) as Arc<dyn Backend>));
        let log = appender(faulty.open(&dir.path().join("0.log"), OpenHow::CreateNew).unwrap(), 0).unwrap();
        Self { _dir: dir, faulty, reached, log }
    }

    fn append(&self, index: u8) -> Result<std::ops::Range<u64>, kseg_io_backends::IoError> {
        self.log.append(Bytes::from(vec![index; 1000]).into())
    }

    fn contents(&self) -> Vec<u8> {
        let path = self.log.file().path();
        self.reached.names().read(&path, 1 << 20).unwrap().unwrap()
    }

    fn expected(batches: u8) -> Vec<u8> {
        (0..batches).flat_map(|index| vec![index; 1000]).collect()
    }
}

fn on_every_engine(test: impl Fn(Place)) {
    test(Place::new(Arc::new(StdBackend::new())));
    test(Place::new(Arc::new(MemoryBackend::new())));
    if let Some(uring) = places::backend("uring", &std::env::temp_dir()) {
        test(Place::new(uring));
    }
}

#[test]
fn iob_01_reads_of_seven_bytes_give_the_same_bytes() {
    on_every_engine(|place| {
        for index in 0..12 {
            place.append(index).unwrap();
        }
        place.faulty.inject(Fault::on(Call::Read).always().short(7));
        let mut bytes = vec![0xee; 13_000];
        assert_eq!(place.log.read_at(&mut bytes, 0).unwrap(), 12_000);
        assert_eq!(bytes[..12_000], Place::expected(12));
        assert_eq!(place.faulty.fired(), 12_000_u64.div_ceil(7));
    });
}

#[test]
fn iob_01_a_file_that_ends_before_its_mark_is_an_error_and_not_zeros() {
    on_every_engine(|place| {
        place.append(0).unwrap();
        place.append(1).unwrap();
        let path = place.log.file().path();
        let other = place.reached.open(&path, OpenHow::Write).unwrap();
        other.submit(kseg_io_backends::Op::SetLen { len: 1500 }).wait().result.unwrap();
        let mut bytes = vec![0; 2000];
        assert_eq!(place.log.read_at(&mut bytes[..1500], 0).unwrap(), 1500);
        let error = place.log.read_at(&mut bytes, 0).unwrap_err();
        assert_eq!((error.verdict(), error.kind()), (Verdict::Damaged, ErrorKind::UnexpectedEof));
        assert_eq!(error.at(), Some(1500));
    });
}

#[test]
fn iob_02_short_writes_are_continued() {
    for first in [1, 511, 512, 999] {
        on_every_engine(|place| {
            for index in 0..20 {
                place.faulty.inject(Fault::on(Call::Write).role("log").short(first));
                assert_eq!(place.append(index).unwrap().start, u64::from(index) * 1000);
            }
            assert_eq!(place.faulty.fired(), 20);
            assert_eq!(place.contents(), Place::expected(20));
            // In many parts, and shorter again and again.
            place.faulty.inject(Fault::on(Call::Write).times(50).short(first));
            let parts: Vec<Bytes> = (0..100).map(|index| Bytes::from(vec![index; 10])).collect();
            place.log.append(parts.clone().into()).unwrap();
            assert_eq!(place.contents()[20_000..], parts.concat());
        });
    }
}

#[test]
fn iob_02_short_writes_are_continued_where_they_are_several_in_flight_or_whole_blocks() {
    places::with_each(|spec, backend, dir| {
        for first in [1, 511, 512, 999, 5000] {
            let faulty = Faulty::new(Arc::clone(&backend));
            let path = dir.join(format!("{first}.log"));
            let log = appender(faulty.open(&path, OpenHow::CreateNew).unwrap(), 0).unwrap();
            for index in 0..20 {
                faulty.inject(Fault::on(Call::Write).times(2).short(first));
                log.append(Bytes::from(vec![index; 10_000]).into()).unwrap();
                if index % 3 == 0 {
                    log.flush().unwrap();
                }
            }
            let len = log.seal().unwrap();
            let expected = (0..20).flat_map(|index| vec![index; 10_000]).collect::<Vec<u8>>();
            assert!(len == 200_000 && std::fs::read(&path).unwrap() == expected, "{spec}: {first}");
            assert!(faulty.fired() > 10, "{spec}: {first}");
        }
    });
}

#[test]
fn iob_02_a_write_that_writes_nothing_is_an_error_and_not_a_loop() {
    on_every_engine(|place| {
        place.append(0).unwrap();
        place.faulty.inject(Fault::on(Call::Write).always().short(0));
        let error = place.append(1).unwrap_err();
        assert_eq!((error.verdict(), error.kind()), (Verdict::Damaged, ErrorKind::WriteZero));
        assert_eq!(place.faulty.fired(), 1);
        assert!(place.log.marks().fenced());
    });
}

#[test]
fn iob_08_a_failed_sync_fences_and_is_never_tried_again() {
    on_every_engine(|place| {
        place.faulty.inject(Fault::on(Call::Flush).nth(3).error(Fault::EIO));
        for index in 0..2 {
            place.append(index).unwrap();
            assert_eq!(place.log.flush().unwrap(), u64::from(index + 1) * 1000);
        }
        place.append(2).unwrap();
        let first = place.log.flush().unwrap_err();
        assert_eq!(first.verdict(), Verdict::Damaged);
        assert_eq!(first.io_error().raw_os_error(), Some(Fault::EIO));
        let before = place.reached.total();
        for _ in 0..2 {
            for error in [
                place.append(3).unwrap_err(),
                place.log.flush().unwrap_err(),
                place.log.truncate(0).unwrap_err(),
                place.log.seal().unwrap_err(),
            ] {
                assert_eq!(error.verdict(), Verdict::Fenced);
                assert_eq!(error.fenced_by().unwrap().to_string(), first.to_string());
            }
        }
        assert_eq!(place.reached.total(), before, "a fenced file asks the engine for nothing");
        assert_eq!((place.log.marks().accepted(), place.log.marks().durable()), (3000, 2000));
        assert_eq!(place.log.marks().fenced_by().unwrap().to_string(), first.to_string());
        // What is there can be read, durable or not.
        let mut bytes = vec![0; 3000];
        assert_eq!(place.log.read_at(&mut bytes, 0).unwrap(), 3000);
        assert_eq!(bytes, Place::expected(3));
    });
}

#[test]
fn iob_09_a_write_of_unknown_extent_fences_at_once() {
    on_every_engine(|place| {
        place.faulty.inject(Fault::on(Call::Write).nth(6).error_after(400, Fault::EIO));
        for index in 0..5 {
            place.append(index).unwrap();
        }
        let error = place.append(5).unwrap_err();
        assert_eq!(error.verdict(), Verdict::Damaged);
        assert_eq!((error.at(), error.size()), (Some(5000), Some(1000)));
        let before = place.reached.total();
        for _ in 0..2 {
            assert_eq!(place.append(6).unwrap_err().verdict(), Verdict::Fenced);
        }
        assert_eq!(place.reached.total(), before, "no I/O is tried");
        assert_eq!(place.log.marks().accepted(), 5000);
        let mut bytes = vec![0; 9000];
        assert_eq!(place.log.read_at(&mut bytes, 0).unwrap(), 5000);
        assert_eq!(bytes[..5000], Place::expected(5));
        // On disk lies a torn tail, for recovery to cut.
        assert_eq!(place.contents().len(), 5400);
    });
}

#[test]
fn iob_10_a_full_disk_is_told_and_appends_go_on_when_there_is_space_again() {
    on_every_engine(|place| {
        place.faulty.set_space(Some(10_400));
        for index in 0..10 {
            place.append(index).unwrap();
        }
        for _ in 10..15 {
            let error = place.append(10).unwrap_err();
            assert_eq!(error.verdict(), Verdict::NoSpace, "{error}");
            assert!(!place.log.marks().fenced());
            // What fitted of it was taken back.
            assert_eq!(place.contents(), Place::expected(10));
        }
        let mut bytes = vec![0; 20_000];
        assert_eq!(place.log.read_at(&mut bytes, 0).unwrap(), 10_000);
        assert_eq!(place.log.flush().unwrap(), 10_000);
        place.faulty.set_space(None);
        for index in 10..15 {
            assert_eq!(place.append(index).unwrap().start, u64::from(index) * 1000);
        }
        assert_eq!(place.log.flush().unwrap(), 15_000);
        assert_eq!(place.contents(), Place::expected(15));
    });
}

#[test]
fn iob_10_what_was_accepted_and_finds_no_space_when_it_is_flushed_is_written_when_there_is_some() {
    on_every_engine(|place| {
        // Two between two flushes: the next ones need not be written before somebody waits for them.
        place.append(0).unwrap();
        place.append(1).unwrap();
        assert_eq!(place.log.flush().unwrap(), 2000);
        place.faulty.set_space(Some(8400));
        let accepted = (2..20).take_while(|index| place.append(*index).is_ok()).count() as u64;
        assert!(accepted >= 8, "{accepted} accepted");
        let end = 2000 + accepted * 1000;
        for _ in 0..3 {
            match place.log.flush() {
                Ok(durable) => assert_eq!((durable, accepted), (end, 8)),
                Err(error) => assert_eq!(error.verdict(), Verdict::NoSpace, "{error}"),
            }
            assert_eq!(place.append(20).unwrap_err().verdict(), Verdict::NoSpace);
        }
        let mut bytes = vec![0; 30_000];
        assert_eq!(place.log.read_at(&mut bytes, 0).unwrap() as u64, end);
        assert!(bytes[..end as usize] == Place::expected(2 + accepted as u8));
        place.faulty.set_space(None);
        assert_eq!(place.log.flush().unwrap(), end);
        place.append(2 + accepted as u8).unwrap();
        assert_eq!(place.log.flush().unwrap(), end + 1000);
        assert_eq!(place.contents(), Place::expected(3 + accepted as u8));
    });
}

#[test]
fn iob_10_of_several_writes_the_first_finds_no_space_and_those_behind_it_do_not_count() {
    places::with_each(|spec, backend, dir| {
        let faulty = Faulty::new(backend);
        let path = dir.join("0.log");
        let log = appender(faulty.open(&path, OpenHow::CreateNew).unwrap(), 0).unwrap();
        let bytes = |from: u64, len: u64| (from..from + len).map(|at| (at % 251) as u8).collect::<Vec<u8>>();
        let append = |len| log.append(Bytes::from(bytes(log.marks().accepted(), len)).into());
        append(1000).unwrap();
        log.flush().unwrap();
        faulty.inject(Fault::on(Call::Write).error(Fault::ENOSPC));
        match append(3_000_000) {
            Ok(range) => {
                assert_eq!(range, 1000..3_001_000, "{spec}");
                assert_eq!(log.marks().stable(), 1000, "{spec}");
            }
            // Done at once, and taken back.
            Err(error) => assert_eq!(error.verdict(), Verdict::NoSpace, "{spec}: {error}"),
        }
        assert_eq!((faulty.fired(), log.marks().fenced()), (1, false), "{spec}");
        append(1000).unwrap();
        let len = log.flush().unwrap();
        assert_eq!(log.seal().unwrap(), len, "{spec}");
        assert!(std::fs::read(&path).unwrap() == bytes(0, len), "{spec}");
    });
}

#[test]
fn a_full_disk_whose_remains_cannot_be_cut_fences() {
    on_every_engine(|place| {
        place.append(0).unwrap();
        place.faulty.set_space(Some(400));
        place.faulty.inject(Fault::on(Call::SetLen).error(Fault::EIO));
        assert_eq!(place.append(1).unwrap_err().verdict(), Verdict::NoSpace);
        assert!(place.log.marks().fenced());
        assert_eq!(place.append(1).unwrap_err().verdict(), Verdict::Fenced);
    });
}

#[test]
fn a_truncation_that_fails_fences_and_leaves_the_marks() {
    on_every_engine(|place| {
        place.append(0).unwrap();
        place.faulty.inject(Fault::on(Call::SetLen).error(Fault::EIO));
        assert_eq!(place.log.truncate(500).unwrap_err().verdict(), Verdict::Damaged);
        assert_eq!((place.log.marks().accepted(), place.log.marks().fenced()), (1000, true));
    });
}

#[test]
fn a_replacement_that_fails_leaves_the_old_contents() {
    let memory: Arc<dyn Backend> = Arc::new(MemoryBackend::new());
    let faulty = Faulty::new(Arc::clone(&memory));
    let (names, path) = (faulty.names(), Path::new("checkpoint"));
    names.replace(path, b"old contents").unwrap();
    for first in [0, 1, 5] {
        faulty.inject(Fault::on(Call::Replace).error_after(first, Fault::EIO));
        assert_eq!(names.replace(path, b"new contents").unwrap_err().verdict(), Verdict::Damaged);
        assert_eq!(names.read(path, 100).unwrap().unwrap(), b"old contents");
    }
    assert_eq!(memory.names().read(Path::new("checkpoint.tmp"), 100).unwrap().unwrap(), b"new c");
    faulty.set_space(Some(3));
    assert_eq!(names.replace(path, b"new contents").unwrap_err().verdict(), Verdict::NoSpace);
    faulty.set_space(None);
    names.replace(path, b"new contents").unwrap();
    assert_eq!(names.read(path, 100).unwrap().unwrap(), b"new contents");
}

#[test]
fn faults_pick_their_calls_by_kind_role_and_number() {
    let faulty = Faulty::new(Arc::new(MemoryBackend::new()));
    let names = faulty.names();
    let write = |name: &str| names.write(Path::new(name), b"x", false).is_ok();
    faulty.inject(Fault::on(Call::WriteFile).role("index").nth(2).times(2).error(Fault::EACCES));
    let went_well: Vec<bool> = ["0.index", "0.log", "1.index", "1.log", "2.index", "3.index"]
        .iter()
        .map(|name| write(name))
        .collect();
    assert_eq!(went_well, [true, true, false, true, false, true]);
    assert_eq!(faulty.fired(), 2);
    faulty.inject(Fault::on(Call::Open).always());
    assert!(faulty.open(Path::new("0.log"), OpenHow::Read).is_err());
    faulty.clear();
    assert!(faulty.open(Path::new("0.log"), OpenHow::Read).is_ok());
}

#[test]
fn a_device_that_lies_says_yes_and_does_nothing() {
    let faulty = Faulty::new(kseg_io_backends::open("memory").unwrap());
    let file = faulty.open("f.log".as_ref(), OpenHow::Create).unwrap();
    let write = || Op::Write { at: 0, data: Bytes::from_static(b"abc").into(), through: Through::No };
    faulty.inject(Fault::on_any().lost().times(2));
    assert_eq!(file.submit(write()).wait().result.unwrap(), 3);
    assert_eq!(file.len().unwrap(), 0);
    faulty.clear();
    faulty.inject(Fault::on(Call::Rename).lost());
    faulty.names().rename("f.log".as_ref(), "g.log".as_ref()).unwrap();
    assert!(faulty.names().stat("f.log".as_ref()).unwrap().is_some());
    assert_eq!(file.submit(write()).wait().result.unwrap(), 3);
    assert_eq!((file.len().unwrap(), faulty.fired()), (3, 3));
}

#[test]
fn a_late_call_is_made() {
    let faulty = Faulty::new(kseg_io_backends::open("memory").unwrap());
    let file = faulty.open("f.log".as_ref(), OpenHow::Create).unwrap();
    faulty.inject(Fault::on(Call::SetLen).late(std::time::Duration::from_millis(1)));
    assert_eq!(file.submit(Op::SetLen { len: 9 }).wait().result.unwrap(), 9);
    assert_eq!((file.len().unwrap(), faulty.fired()), (9, 1));
}

#[test]
fn an_injected_error_names_the_operation_that_it_meets() {
    let faulty = Faulty::new(kseg_io_backends::open("memory").unwrap());
    let path = Path::new("f.log");
    let file = faulty.open(path, OpenHow::Create).unwrap();
    let names = faulty.names();
    let submit = |op| file.submit(op).wait().result.err();
    faulty.inject(Fault::on_any().always());
    let errors = [
        ("open", faulty.open(path, OpenHow::Read).err()),
        ("write", submit(Op::Write { at: 0, data: Bytes::from_static(b"a").into(), through: Through::No })),
        ("sync", submit(Op::Flush { metadata: false })),
        ("set length", submit(Op::SetLen { len: 0 })),
        ("reserve", submit(Op::Reserve { range: 0..1, how: Reserve::Blocks })),
        ("advise", submit(Op::Advise { range: 0..1, how: Advice::Normal })),
        ("read", file.read_at(&mut [0], 0).err()),
        ("length", file.len().err()),
        ("map", file.map(0, MapAccess::Read).err()),
        ("map", file.map_bytes(0..0).err()),
        ("make directory", names.create_dir_all(path).err()),
        ("list", names.list(path).err()),
        ("stat", names.stat(path).err()),
        ("rename", names.rename(path, path).err()),
        ("remove", names.remove(path).err()),
        ("remove directory", names.remove_dir_all(path).err()),
        ("sync directory", names.sync_dir(path).err()),
        ("sync", names.sync_file(path).err()),
        ("read", names.read(path, 1).err()),
        ("write", names.write(path, b"a", true).err()),
        ("replace", names.replace(path, b"a").err()),
        ("lock", names.lock(path).err()),
        ("set time", names.set_modified(path, std::time::UNIX_EPOCH).err()),
    ];
    for (op, error) in errors {
        let error = error.expect(op);
        assert_eq!((error.op(), error.path()), (op, path));
    }
}

#[test]
fn a_write_to_what_was_opened_to_be_read_says_so() {
    places::with_each(|spec, backend, dir| {
        let path = dir.join("0.log");
        drop(backend.open(&path, OpenHow::CreateNew).unwrap());
        let file = backend.open(&path, OpenHow::Read).unwrap();
        for op in [
            Op::Write { at: 0, data: Bytes::from(vec![1; 100_000]).into(), through: Through::No },
            Op::Write { at: 0, data: Bytes::from_static(b"x").into(), through: Through::Data },
            Op::SetLen { len: 1 },
        ] {
            let error = file.submit(op).wait().result.unwrap_err();
            assert_eq!(error.verdict(), Verdict::Misuse, "{spec}: {error}");
            let told = error.to_string();
            assert!(told.contains("0.log") && told.ends_with("it was opened to be read"), "{spec}: {told}");
        }
    });
}
