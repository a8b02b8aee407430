//! What may be gone after a cut of the power, and what may not.

use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use kseg_io_backends::{
    Backend, Loss, MapAccess, Op, OpenHow, PowerLoss, Reserve, Through, appender, conformance,
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
    assert!(file.submit(Op::Flush { metadata: false }).wait().result.is_err());
    assert!(disk.names().stat(Path::new(FILE)).is_err());
    let error = disk.open(Path::new(FILE), OpenHow::Read).unwrap_err().to_string();
    assert!(error.contains("the power is off") && error.contains(FILE), "{error}");
}
