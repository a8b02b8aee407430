//! What may be gone after a cut of the power, and what may not.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use bytes::Bytes;
use kseg_io_backends::{
    Align, AppendPlan, Appender, Backend, FileCaps, IoError, Loss, MapAccess, Op, OpenHow, PowerLoss,
    RawFile, Reserve, Space, Through, Ticket, appender, conformance,
};

const FILE: &str = "/d/00000000000000000000.log";

fn disk() -> PowerLoss {
    let disk = PowerLoss::new();
    disk.names().create_dir_all(Path::new("/d")).unwrap();
    disk.names().sync_dir(Path::new("/")).unwrap();
    disk
}

fn contents(disk: &PowerLoss, path: &str) -> Option<Vec<u8>> {
    disk.names().read(Path::new(path), 1 << 20).unwrap()
}

fn losses() -> impl Iterator<Item = Loss> {
    [Loss::Nothing, Loss::Everything, Loss::Names, Loss::Bytes].into_iter().chain((0..200).map(Loss::Random))
}

#[test]
fn it_keeps_the_promises_of_every_backend() {
    conformance::run_suite(&|| (Arc::new(disk()), "/d".into()));
}

#[test]
fn iob_11_a_synced_file_goes_with_a_name_that_was_not() {
    let disk = disk();
    let log = appender(disk.open(Path::new(FILE), OpenHow::CreateNew).unwrap(), 0).unwrap();
    log.append(Bytes::from_static(b"batch").into()).unwrap();
    log.flush().unwrap();
    assert_eq!(contents(&disk.after(Loss::Everything), FILE), None);
    disk.names().sync_dir(Path::new("/d")).unwrap();
    for loss in losses() {
        assert_eq!(contents(&disk.after(loss), FILE).as_deref(), Some(&b"batch"[..]), "{loss:?}");
    }
}

#[test]
fn iob_11_a_directory_that_was_made_durably_keeps_what_is_synced_in_it() {
    for dir in ["/d/e/f", "/g", "h", "i/j"].map(Path::new) {
        let disk = disk();
        disk.names().create_dir_durably(dir).unwrap();
        let made = disk.calls();
        disk.names().create_dir_durably(dir).unwrap();
        assert_eq!(disk.calls(), made + 1, "nothing is synced of one that is there");
        disk.names().replace(&dir.join("file"), b"synced").unwrap();
        for loss in losses() {
            let found = contents(&disk.after(loss), dir.join("file").to_str().unwrap());
            assert_eq!(found.as_deref(), Some(&b"synced"[..]), "{dir:?} {loss:?}");
        }
    }
}

#[test]
fn bytes_are_lost_by_sectors_and_never_behind_a_sync() {
    let disk = disk();
    let log = appender(disk.open(Path::new(FILE), OpenHow::CreateNew).unwrap(), 0).unwrap();
    disk.names().sync_dir(Path::new("/d")).unwrap();
    log.append(Bytes::from(vec![1; 700]).into()).unwrap();
    log.flush().unwrap();
    log.append(Bytes::from(vec![2; 1000]).into()).unwrap();
    let mut seen = std::collections::BTreeSet::new();
    for loss in losses() {
        let found = contents(&disk.after(loss), FILE).unwrap();
        assert!(found.len() == 700 || found.len() == 1700, "{loss:?}: {}", found.len());
        assert!(found[..700].iter().all(|b| *b == 1), "{loss:?}");
        let sectors: Vec<&[u8]> =
            [700..1024, 1024..1536, 1536..1700].into_iter().filter_map(|range| found.get(range)).collect();
        for sector in &sectors {
            assert!(sector.iter().all(|b| *b == sector[0] && (*b == 0 || *b == 2)), "{loss:?}");
        }
        seen.insert(sectors.iter().map(|sector| sector[0]).collect::<Vec<_>>());
    }
    // Nothing, and each of the eight ways in which three sectors may be there.
    assert_eq!(seen.len(), 9);
    assert_eq!(contents(&disk.after(Loss::Bytes), FILE).unwrap()[700..], [0; 1000]);
}

#[test]
fn a_length_that_shrank_comes_back_unless_its_metadata_was_synced() {
    let disk = disk();
    let file = disk.open(Path::new(FILE), OpenHow::CreateNew).unwrap();
    let write = Op::Write { at: 0, data: Bytes::from(vec![7; 600]).into(), through: Through::No };
    file.submit(write).wait().result.unwrap();
    file.submit(Op::Flush { metadata: false }).wait().result.unwrap();
    disk.names().sync_dir(Path::new("/d")).unwrap();
    file.submit(Op::SetLen { len: 100 }).wait().result.unwrap();
    file.submit(Op::Flush { metadata: false }).wait().result.unwrap();
    assert_eq!(contents(&disk.after(Loss::Everything), FILE).unwrap(), [7; 600]);
    assert_eq!(contents(&disk.after(Loss::Nothing), FILE).unwrap(), [7; 100]);
    file.submit(Op::Flush { metadata: true }).wait().result.unwrap();
    assert_eq!(contents(&disk.after(Loss::Everything), FILE).unwrap(), [7; 100]);
}

#[test]
fn a_write_through_is_durable_and_those_before_it_are_not() {
    let disk = disk();
    let file = disk.open(Path::new(FILE), OpenHow::CreateNew).unwrap();
    disk.names().sync_dir(Path::new("/d")).unwrap();
    for (at, byte, through) in [(0, 1, Through::No), (512, 2, Through::Data)] {
        let write = Op::Write { at, data: Bytes::from(vec![byte; 512]).into(), through };
        file.submit(write).wait().result.unwrap();
    }
    let found = contents(&disk.after(Loss::Everything), FILE).unwrap();
    assert_eq!((&found[..512], &found[512..]), (&[0; 512][..], &[2; 512][..]));
}

#[test]
fn space_that_was_reserved_without_a_length_is_not_seen() {
    let disk = disk();
    let file = disk.open(Path::new(FILE), OpenHow::CreateNew).unwrap();
    disk.names().sync_dir(Path::new("/d")).unwrap();
    file.submit(Op::Reserve { range: 0..4096, how: Reserve::Blocks }).wait().result.unwrap();
    assert_eq!(contents(&disk.after(Loss::Nothing), FILE).unwrap(), []);
    file.submit(Op::Reserve { range: 0..4096, how: Reserve::Zeroed }).wait().result.unwrap();
    assert_eq!(contents(&disk.after(Loss::Nothing), FILE).unwrap(), [0; 4096]);
    assert_eq!(contents(&disk.after(Loss::Everything), FILE).unwrap(), []);
}

#[test]
fn a_mapped_file_may_hold_anything_of_its_length() {
    let disk = disk();
    let path = "/d/00000000000000000000.index";
    let file = disk.open(Path::new(path), OpenHow::CreateNew).unwrap();
    disk.names().sync_dir(Path::new("/d")).unwrap();
    file.submit(Op::SetLen { len: 1024 }).wait().result.unwrap();
    file.submit(Op::Flush { metadata: true }).wait().result.unwrap();
    let region = file.map(1024, MapAccess::Write).unwrap();
    region.flush().unwrap();
    let all: std::collections::BTreeSet<_> =
        losses().map(|loss| contents(&disk.after(loss), path).unwrap()).collect();
    assert!(all.iter().all(|found| found.len() == 1024));
    assert!(all.len() > 20, "{}", all.len());
}

#[test]
fn names_are_lost_from_the_last_change_backwards() {
    let disk = disk();
    for n in 0..4 {
        disk.names().write(Path::new(&format!("/d/{n}")), b"x", true).unwrap();
    }
    disk.names().rename(Path::new("/d/0"), Path::new("/d/4")).unwrap();
    let mut seen = std::collections::BTreeSet::new();
    for loss in losses() {
        let names = disk.after(loss).names().list(Path::new("/d")).unwrap();
        let names: Vec<String> = names.iter().map(|e| e.name.to_string_lossy().into_owned()).collect();
        seen.insert(names.join(""));
    }
    assert_eq!(seen.into_iter().collect::<Vec<_>>(), ["", "0", "01", "012", "0123", "1234"]);
}

#[test]
fn replacing_leaves_the_old_or_the_new_contents_wherever_the_power_goes() {
    let path = "/d/checkpoint";
    let calls = {
        let disk = disk();
        let before = disk.calls();
        disk.names().replace(Path::new(path), b"new").unwrap();
        disk.calls() - before
    };
    assert!(calls >= 5, "{calls}");
    for n in 0..=calls {
        let disk = disk();
        disk.names().replace(Path::new(path), b"old").unwrap();
        disk.cut_at(disk.calls() + n);
        let done = disk.names().replace(Path::new(path), b"new").is_ok();
        assert!(disk.is_off());
        assert_eq!(done, n == calls);
        for loss in losses() {
            let found = contents(&disk.after(loss), path).unwrap();
            assert!(found == b"new" || (found == b"old" && !done), "cut at {n}, {loss:?}: {found:?}");
        }
    }
}

#[test]
fn when_the_power_is_off_nothing_answers() {
    let disk = disk();
    let file = disk.open(Path::new(FILE), OpenHow::CreateNew).unwrap();
    disk.cut_at(disk.calls());
    assert!(disk.is_off());
    assert!(file.read_at(&mut [0; 4], 0).is_err());
    assert!(file.len().is_err());
    let error = file.submit(Op::Flush { metadata: false }).wait().result.unwrap_err();
    assert_eq!((error.op(), error.path()), ("sync", Path::new(FILE)));
    assert!(disk.names().stat(Path::new(FILE)).is_err());
    let error = disk.open(Path::new(FILE), OpenHow::Read).unwrap_err().to_string();
    assert!(error.contains("the power is off") && error.contains(FILE), "{error}");
}

/// A file of the model that is appended to as an engine's is whose writes are aligned, or complete later.
#[derive(Debug)]
struct Shaped {
    file: Arc<dyn RawFile>,
    block: u32,
    plan: AppendPlan,
    /// Whether there was a write of whole blocks, and one that was not.
    whole: AtomicBool,
    odd: AtomicBool,
}

impl RawFile for Shaped {
    forward_to!(file);

    fn align(&self) -> Align {
        let block = self.block.try_into().unwrap();
        Align::new(block, 1.try_into().unwrap(), block)
    }

    fn caps(&self) -> FileCaps {
        let mut caps = self.file.caps();
        caps.parallel_append = true;
        caps.plan = self.plan;
        caps
    }

    fn submit(&self, op: Op) -> Ticket {
        if let Op::Write { at, data, .. } = &op {
            let block = u64::from(self.block);
            let whole = at.is_multiple_of(block) && data.len().is_multiple_of(block);
            assert!(whole || data.len() < u64::from(self.plan.unaligned), "{} bytes at {at}", data.len());
            if whole { &self.whole } else { &self.odd }.store(true, Ordering::Relaxed);
        }
        self.file.submit(op)
    }
}

/// The byte that belongs at a position, whenever it is written; never zero.
fn byte(at: usize) -> u8 {
    (at * 31 % 251) as u8 + 1
}

/// Appends, flushes and a truncation, until the power goes; `durable` is what a flush has answered for.
fn grow(log: &dyn Appender, durable: &mut u64) -> Result<(), IoError> {
    let sizes = [300, 90, 700, 1, 2048, 20, 30, 5000, 9000, 2, 3000, 12_288, 64, 65, 100, 7000, 3, 4, 5];
    for (index, size) in sizes.into_iter().enumerate() {
        let at = log.marks().accepted() as usize;
        log.append(Bytes::from((at..at + size).map(byte).collect::<Vec<_>>()).into())?;
        if index == 9 {
            let kept = log.marks().accepted() - 7000;
            *durable = kept.min(*durable);
            log.truncate(kept)?;
        }
        if [1, 3, 4, 7, 9, 11, 14, 17].contains(&index) {
            *durable = log.flush()?;
        }
    }
    log.seal()?;
    *durable = log.flush()?;
    Ok(())
}

#[test]
fn iob_11_what_a_flush_answered_for_is_there_however_the_file_is_appended_to() {
    let plan = |change: fn(&mut AppendPlan)| {
        let mut plan = AppendPlan::PLAIN;
        (plan.chunk, plan.depth) = (4096, 4);
        change(&mut plan);
        plan
    };
    // The block, and which writes of whole blocks and of others there must be.
    let shapes = [
        ("through the cache", 1, plan(|_| ()), (true, false)),
        ("together", 1, plan(|plan| (plan.at_once, plan.space) = (2000, Space::Queued(8192))), (true, false)),
        ("grown", 1, plan(|plan| plan.space = Space::Grown(1024)), (true, false)),
        ("padded", 1024, plan(|plan| plan.space = Space::Ahead(8192)), (true, false)),
        ("zeroed", 1024, plan(|plan| plan.space = Space::Zeroed(8192)), (true, false)),
        ("unaligned", 1024, plan(|plan| (plan.unaligned, plan.tail) = (2048, 8192)), (true, true)),
        (
            "unaligned, ahead",
            1024,
            plan(|plan| (plan.unaligned, plan.space) = (2048, Space::Ahead(8192))),
            (true, true),
        ),
        ("durable by itself", 1024, plan(|plan| (plan.unaligned, plan.through) = (2048, true)), (true, true)),
    ];
    for (what, block, plan, writes) in shapes {
        let live = |cut: Option<u64>| {
            let disk = disk();
            let file = disk.open(Path::new(FILE), OpenHow::CreateNew).unwrap();
            disk.names().sync_dir(Path::new("/d")).unwrap();
            let begin = disk.calls();
            if let Some(cut) = cut {
                disk.cut_at(begin + cut);
            }
            let (whole, odd) = Default::default();
            let file = Arc::new(Shaped { file, block, plan, whole, odd });
            let mut durable = 0;
            let lived =
                appender(Arc::clone(&file) as Arc<dyn RawFile>, 0).and_then(|log| grow(&*log, &mut durable));
            let writes = [&file.whole, &file.odd].map(|seen| seen.load(Ordering::Relaxed));
            (lived, durable, disk.calls() - begin, (writes[0], writes[1]), disk)
        };
        let (lived, _, calls, seen, _) = live(None);
        lived.unwrap();
        assert_eq!(seen, writes, "{what}");
        for cut in 0..=calls {
            let (lived, durable, made, _, disk) = live(Some(cut));
            // Which of the zeros ahead the background writes is chance, and so is how many calls there are.
            assert!(lived.is_err() || made <= cut, "{what}: cut at {cut} of {made}, and nobody noticed");
            for loss in losses().take(28) {
                let found = contents(&disk.after(loss), FILE).unwrap();
                let what = format!("{what}: cut at {cut}, {loss:?}");
                assert!(found.len() as u64 >= durable, "{what}: {} of {durable} bytes", found.len());
                let lost = |at: usize| found[at] == 0 && at as u64 >= durable;
                let wrong = (0..found.len()).find(|at| found[*at] != byte(*at) && !lost(*at));
                assert_eq!(wrong, None, "{what}: {durable} bytes are durable");
            }
        }
    }
}
