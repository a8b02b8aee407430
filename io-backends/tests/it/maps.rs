//! Maps of real files: what is refused, and what a cut leaves behind.

use std::io::ErrorKind;
use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use kseg_io_backends::{
    Backend, IoError, MapAccess, Op, OpenHow, RawFile, StdBackend, Through, Verdict, appender, write_all,
};

fn file(dir: &Path, len: usize) -> Arc<dyn RawFile> {
    let file = StdBackend::new().open(&dir.join("0.log"), OpenHow::Create).unwrap();
    write_all(&*file, 0, Bytes::from(vec![7; len]).into()).unwrap();
    file
}

fn write(file: &dyn RawFile, at: u64) -> Result<u64, IoError> {
    file.submit(Op::Write { at, data: Bytes::from_static(b"x").into(), through: Through::No }).wait().result
}

#[track_caller]
fn busy<T: std::fmt::Debug>(result: Result<T, IoError>) {
    let error = result.unwrap_err();
    assert_eq!((error.verdict(), error.kind()), (Verdict::Misuse, ErrorKind::ResourceBusy), "{error}");
}

#[test]
fn a_view_is_safe_from_every_handle_of_its_file() {
    let dir = tempfile::tempdir().unwrap();
    let backend = StdBackend::new();
    let file = file(dir.path(), 10_000);
    let view = file.map_bytes(100..5000).unwrap();
    let other = backend.open(&dir.path().join("0.log"), OpenHow::Write).unwrap();
    drop(file);
    busy(write(&*other, 0));
    busy(write(&*other, 4999));
    busy(other.submit(Op::SetLen { len: 4999 }).wait().result);
    busy(other.map(200, MapAccess::Write));
    busy(backend.names().write(&dir.path().join("0.log"), b"short", false));
    busy(backend.names().write(&dir.path().join("0.log"), &[1; 20_000], false));
    assert_eq!(write(&*other, 5000).unwrap(), 1);
    other.submit(Op::SetLen { len: 5000 }).wait().result.unwrap();
    assert_eq!(other.map(100, MapAccess::Write).unwrap().load::<4>(0), [7; 4]);
    assert_eq!(other.map(5000, MapAccess::Read).unwrap().load::<4>(4096), [7; 4]);
    assert!(view.iter().all(|byte| *byte == 7));
    let clone = view.clone();
    drop(view);
    busy(write(&*other, 4999));
    drop(clone);
    assert_eq!(write(&*other, 0).unwrap(), 1);
}

#[test]
fn a_view_is_refused_where_a_writable_region_could_change_it() {
    let dir = tempfile::tempdir().unwrap();
    let file = file(dir.path(), 10_000);
    let region = file.map(5000, MapAccess::Write).unwrap();
    busy(file.map_bytes(4999..6000));
    assert_eq!(file.map_bytes(5000..6000).unwrap().len(), 1000);
    drop(region);
    let _reading = file.map(5000, MapAccess::Read).unwrap();
    assert_eq!(file.map_bytes(0..6000).unwrap().len(), 6000);
}

#[test]
fn a_truncation_that_a_view_forbids_changes_nothing_and_does_not_fence() {
    let dir = tempfile::tempdir().unwrap();
    let log = appender(file(dir.path(), 10_000), 10_000).unwrap();
    let view = log.file().map_bytes(0..8000).unwrap();
    busy(log.truncate(7999));
    assert_eq!((log.marks().accepted(), log.marks().fenced()), (10_000, false));
    log.truncate(9000).unwrap();
    assert_eq!(log.append(Bytes::from_static(b"more").into()).unwrap(), 9000..9004);
    drop(view);
    log.truncate(10).unwrap();
}

#[test]
fn cutting_a_file_under_its_regions_kills_nobody_at_any_moment() {
    let dir = tempfile::tempdir().unwrap();
    const LEN: usize = 1 << 20;
    let file = file(dir.path(), LEN);
    std::thread::scope(|scope| {
        let readers: Vec<_> = (0..2)
            .map(|_| {
                scope.spawn(|| {
                    let mut mapped = 0;
                    while mapped < 50 {
                        // Mapped before, during and after cuts.
                        let Ok(region) = file.map(LEN, MapAccess::Write) else { continue };
                        mapped += 1;
                        for at in (0..LEN - 4).step_by(4096) {
                            assert!(matches!(region.load::<4>(at), [7, 7, 7, 7] | [0, 0, 0, 0]));
                        }
                    }
                })
            })
            .collect();
        for round in 0.. {
            file.submit(Op::SetLen { len: round % 200 * 4099 }).wait().result.unwrap();
            file.submit(Op::SetLen { len: LEN as u64 }).wait().result.unwrap();
            if readers.iter().all(|reader| reader.is_finished()) {
                break;
            }
        }
    });
}

/// Files stay mapped for the whole process: tests that count them run one after the other.
#[cfg(target_os = "linux")]
static COUNTED: std::sync::Mutex<()> = std::sync::Mutex::new(());

/// How many maps of files in `dir` the process has.
#[cfg(target_os = "linux")]
fn maps_of(dir: &Path) -> usize {
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    maps.lines().filter(|line| line.contains(dir.to_str().unwrap())).count()
}

#[cfg(target_os = "linux")]
#[test]
fn a_file_stays_mapped_between_views_while_its_handle_lives() {
    let _alone = COUNTED.lock();
    let dir = tempfile::tempdir().unwrap();
    let file = file(dir.path(), 10_000);
    let first = file.map_bytes(100..5000).unwrap();
    let second = file.map_bytes(4000..9000).unwrap();
    assert_eq!(maps_of(dir.path()), 1);
    drop((first, second));
    assert_eq!(maps_of(dir.path()), 1);
    // Written again, cut and grown meanwhile: a view shows what the file has when it is made.
    write(&*file, 4999).unwrap();
    assert_eq!(&file.map_bytes(4998..5001).unwrap()[..], &[7, b'x', 7]);
    file.submit(Op::SetLen { len: 4000 }).wait().result.unwrap();
    assert_eq!(file.map_bytes(3000..4001).unwrap_err().verdict(), Verdict::Misuse);
    write_all(&*file, 4000, Bytes::from(vec![8; 100_000]).into()).unwrap();
    let third = file.map_bytes(3999..104_000).unwrap();
    assert_eq!((third[0], third[1], third[100_000]), (7, 8, 8));
    assert_eq!(maps_of(dir.path()), 1);
    drop(file);
    assert!(third[1..].iter().all(|byte| *byte == 8));
    drop(third);
    assert_eq!(maps_of(dir.path()), 0);
}

#[cfg(target_os = "linux")]
#[test]
fn no_more_than_so_many_files_stay_mapped() {
    let _alone = COUNTED.lock();
    let dir = tempfile::tempdir().unwrap();
    let files: Vec<_> = (0..80)
        .map(|n| {
            let file = StdBackend::new().open(&dir.path().join(format!("{n}.log")), OpenHow::Create).unwrap();
            write_all(&*file, 0, Bytes::from(vec![n; 100]).into()).unwrap();
            file
        })
        .collect();
    let views: Vec<_> = files.iter().map(|file| file.map_bytes(0..100).unwrap()).collect();
    assert_eq!(maps_of(dir.path()), 80);
    drop(views);
    assert!((1..=64).contains(&maps_of(dir.path())));
    for (n, file) in files.iter().enumerate() {
        assert_eq!(&file.map_bytes(10..20).unwrap()[..], &[n as u8; 10]);
    }
    drop(files);
    assert_eq!(maps_of(dir.path()), 0);
}
