//! A backend over another: what is done through it shows in it, and nothing of it below.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use kseg_io_backends::{
    Backend, Kind, MapAccess, MemoryBackend, Op, OpenHow, Overlay, Verdict, open, write_all,
};

/// All names, with contents and times.
fn all(backend: &dyn Backend, dir: &Path) -> BTreeMap<PathBuf, (Option<Vec<u8>>, SystemTime)> {
    let mut found = BTreeMap::new();
    for entry in backend.names().list(dir).unwrap() {
        let path = dir.join(&entry.name);
        let modified = backend.names().stat(&path).unwrap().unwrap().modified;
        let contents = match entry.kind {
            Kind::Dir => {
                found.extend(all(backend, &path));
                None
            }
            _ => backend.names().read(&path, 1 << 30).unwrap(),
        };
        found.insert(path, (contents, modified));
    }
    found
}

fn names(backend: &dyn Backend, dir: &str) -> Vec<(String, u64)> {
    let entries = backend.names().list(Path::new(dir)).unwrap();
    entries.into_iter().map(|e| (e.name.into_string().unwrap(), e.len)).collect()
}

fn read(backend: &dyn Backend, path: &str) -> Option<String> {
    let bytes = backend.names().read(Path::new(path), 1 << 20).unwrap();
    bytes.map(|bytes| String::from_utf8(bytes).unwrap())
}

fn below() -> Arc<dyn Backend> {
    let below = Arc::new(MemoryBackend::new());
    below.names().create_dir_all(Path::new("/d/sub")).unwrap();
    for (path, text) in [("/d/one", "first"), ("/d/two", "second"), ("/d/sub/three", "third")] {
        below.names().write(Path::new(path), text.as_bytes(), true).unwrap();
    }
    below
}

#[test]
fn whatever_is_done_shows_above_and_not_below() {
    let below = below();
    let before = all(&*below, Path::new("/"));
    let overlay = Overlay::new(below.clone());
    let p = Path::new;
    assert_eq!(names(&overlay, "/d"), [("one".into(), 5), ("sub".into(), 0), ("two".into(), 6)]);

    // Names.
    overlay.names().rename(p("/d/one"), p("/d/uno")).unwrap();
    assert!(overlay.names().remove(p("/d/two")).unwrap() && !overlay.names().remove(p("/d/two")).unwrap());
    overlay.names().rename(p("/d/sub"), p("/d/moved")).unwrap();
    overlay.names().write(p("/d/moved/four"), b"fourth", true).unwrap();
    assert_eq!(names(&overlay, "/d"), [("moved".into(), 0), ("uno".into(), 5)]);
    assert_eq!(names(&overlay, "/d/moved"), [("four".into(), 6), ("three".into(), 5)]);
    assert_eq!((read(&overlay, "/d/uno"), read(&overlay, "/d/one")), (Some("first".into()), None));
    assert_eq!(read(&overlay, "/d/moved/three").as_deref(), Some("third"));
    assert!(overlay.names().list(p("/d/sub")).is_err());
    overlay.names().rename(p("/d/moved"), p("/d/again")).unwrap();
    assert_eq!(names(&overlay, "/d/again"), [("four".into(), 6), ("three".into(), 5)]);
    overlay.names().remove_dir_all(p("/d/again")).unwrap();
    overlay.names().create_dir_all(p("/d/again")).unwrap();
    assert_eq!(names(&overlay, "/d/again"), []);

    // Contents: a cut, a write, a map.
    let file = overlay.open(p("/d/uno"), OpenHow::Write).unwrap();
    file.submit(Op::SetLen { len: 4 }).wait().result.unwrap();
    assert_eq!((file.len().unwrap(), read(&overlay, "/d/uno").as_deref()), (4, Some("firs")));
    assert_eq!(overlay.names().stat(p("/d/uno")).unwrap().unwrap().len, 4);
    write_all(&*file, 4, Bytes::from_static(b"-rate").into()).unwrap();
    assert_eq!(read(&overlay, "/d/uno").as_deref(), Some("firs-rate"));
    let other = overlay.open(p("/d/uno"), OpenHow::Write).unwrap();
    other.map(8, MapAccess::Write).unwrap().store(0, *b"FIRS");
    assert_eq!(&file.map_bytes(0..9).unwrap()[..], b"FIRS-rate");
    let time = SystemTime::UNIX_EPOCH + Duration::from_secs(7);
    overlay.names().set_modified(p("/d/uno"), time).unwrap();
    assert_eq!(overlay.names().stat(p("/d/uno")).unwrap().unwrap().modified, time);

    // A lock is nobody else's.
    let held = overlay.names().lock(p("/d/.lock")).unwrap();
    assert!(overlay.names().lock(p("/d/.lock")).is_err());
    drop((below.names().lock(p("/elsewhere")).unwrap(), held));
    below.names().remove(p("/elsewhere")).unwrap();
    assert_eq!(all(&*below, Path::new("/")), before);
}

#[test]
fn a_handle_of_a_file_that_others_copied_or_removed_is_that_file() {
    let overlay = Overlay::new(below());
    let p = Path::new("/d/one");
    let reader = overlay.open(p, OpenHow::Read).unwrap();
    let writer = overlay.open(p, OpenHow::Write).unwrap();
    write_all(&*writer, 0, Bytes::from_static(b"F").into()).unwrap();
    assert_eq!(&reader.map_bytes(0..5).unwrap()[..], b"First");
    let refused = reader.submit(Op::SetLen { len: 1 }).wait().result.unwrap_err();
    assert_eq!(refused.verdict(), Verdict::Misuse);
    overlay.names().remove(p).unwrap();
    write_all(&*writer, 1, Bytes::from_static(b"I").into()).unwrap();
    assert_eq!((&writer.map_bytes(0..5).unwrap()[..], read(&overlay, "/d/one")), (&b"FIrst"[..], None));
    // And one whose name goes before it is written to.
    let writer = overlay.open(Path::new("/d/two"), OpenHow::Write).unwrap();
    overlay.names().remove(Path::new("/d/two")).unwrap();
    write_all(&*writer, 0, Bytes::from_static(b"S").into()).unwrap();
    assert_eq!((&writer.map_bytes(0..6).unwrap()[..], read(&overlay, "/d/two")), (&b"Second"[..], None));
}

/// Whoever looks beside a writer sees a whole: what was there when the file was opened.
#[test]
fn a_file_that_grows_below_ends_where_it_was_opened() {
    let below = open("memory").unwrap();
    let path = Path::new("/file");
    below.names().write(path, b"12", true).unwrap();
    let overlay = Overlay::new(below.clone());
    let file = overlay.open(path, OpenHow::Write).unwrap();
    let theirs = below.open(path, OpenHow::Write).unwrap();
    write_all(&*theirs, 2, Bytes::from_static(b"34").into()).unwrap();
    assert_eq!((file.len().unwrap(), read(&overlay, "/file").as_deref()), (2, Some("12")));
    assert_eq!(overlay.names().stat(path).unwrap().unwrap().len, 2);
    assert_eq!(overlay.open(path, OpenHow::Read).unwrap().map(2, MapAccess::Read).unwrap().len(), 2);
    assert!(file.map_bytes(0..4).is_err());
    // Cut below: told, not made up for.
    theirs.submit(Op::SetLen { len: 1 }).wait().result.unwrap();
    let cut = file.map(2, MapAccess::Write).unwrap_err();
    assert_eq!(cut.kind(), std::io::ErrorKind::UnexpectedEof);
    assert_eq!(names(&overlay, "/"), [("file".into(), 2)]);
    drop(file);
    overlay.forget(Path::new("/")).unwrap();
    assert_eq!(
        (names(&overlay, "/"), read(&overlay, "/file").as_deref()),
        (vec![("file".into(), 1)], Some("1"))
    );
}

#[test]
fn what_was_changed_in_a_directory_is_forgotten() {
    let below = below();
    let overlay = Overlay::new(below.clone());
    let p = Path::new;
    overlay.names().remove(p("/d/two")).unwrap();
    overlay.names().replace(p("/d/sub/three"), b"3").unwrap();
    overlay.names().rename(p("/d/sub/three"), p("/d/sub/trois")).unwrap();
    overlay.forget(p("/d/sub")).unwrap();
    assert_eq!(
        (names(&overlay, "/d/sub"), read(&overlay, "/d/sub/three").as_deref()),
        (names(&*below, "/d/sub"), Some("third"))
    );
    assert_eq!(names(&overlay, "/d"), [("one".into(), 5), ("sub".into(), 0)]);
    overlay.forget(p("/d")).unwrap();
    assert_eq!(names(&overlay, "/d"), names(&*below, "/d"));
}

/// An index that was given its full size is a hole but for its beginning: one of a tebibyte takes no memory, and no time.
#[cfg(target_os = "linux")]
#[test]
fn holes_are_not_copied() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("index");
    let file = std::fs::File::create(&path).unwrap();
    file.set_len(1 << 40).unwrap();
    std::os::unix::fs::FileExt::write_all_at(&file, b"entry", 1 << 30).unwrap();
    let overlay = Overlay::new(open("std").unwrap());
    let above = overlay.open(&path, OpenHow::Write).unwrap();
    write_all(&*above, 0, Bytes::from_static(b"mine").into()).unwrap();
    let mut seen = [0; 7];
    assert_eq!((above.read_at(&mut seen, (1 << 30) - 1).unwrap(), &seen), (7, b"\0entry\0"));
    assert_eq!((above.read_at(&mut seen, 0).unwrap(), &seen), (7, b"mine\0\0\0"));
    assert_eq!(above.len().unwrap(), 1 << 40);
}
