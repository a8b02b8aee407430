//! Cases of [`Namespace`].

use std::io::ErrorKind;
use std::path::PathBuf;
use std::time::{Duration, SystemTime};

use super::{Case, Place, pattern, read, write};
use crate::backend::{Kind, Namespace, OpenHow};
use crate::error::Verdict;

pub(super) const CASES: &[Case] = &[
    ("a backend has a name and nothing to drive", a_backend_has_a_name_and_nothing_to_drive),
    ("directories are made with their parents", directories_are_made_with_their_parents),
    ("a list is sorted and complete", a_list_is_sorted_and_complete),
    ("absent things are told apart from broken ones", absent_things_are_told_apart),
    ("a rename keeps open handles and replaces", a_rename_keeps_open_handles_and_replaces),
    ("a renamed directory takes its contents along", a_renamed_directory_takes_its_contents_along),
    ("a rename that cannot be is refused", a_rename_that_cannot_be_is_refused),
    ("a removed file stays readable through handles", a_removed_file_stays_readable),
    ("a removed directory takes everything along", a_removed_directory_takes_everything_along),
    ("whole files are read within a limit", whole_files_are_read_within_a_limit),
    ("whole files are written in place", whole_files_are_written_in_place),
    ("replace leaves the old contents or the new ones", replace_leaves_the_old_or_the_new),
    ("a lock excludes until it is dropped", a_lock_excludes_until_it_is_dropped),
    ("a claim excludes until it is dropped", a_claim_excludes_until_it_is_dropped),
    ("times of change move and can be set", times_of_change_move_and_can_be_set),
    ("directories and files are synced", directories_and_files_are_synced),
];

fn a_backend_has_a_name_and_nothing_to_drive(place: &Place) {
    assert!(!place.backend.name().is_empty());
    assert_eq!(place.backend.drive(Duration::ZERO).unwrap(), 0);
}

fn directories_are_made_with_their_parents(place: &Place) {
    let names = place.backend.names();
    let deep = place.path("a/b/c");
    names.create_dir_all(&deep).unwrap();
    names.create_dir_all(&deep).unwrap();
    for dir in ["a", "a/b", "a/b/c"] {
        assert_eq!(names.stat(&place.path(dir)).unwrap().unwrap().kind, Kind::Dir);
    }
    place.file("file", b"");
    let error = names.create_dir_all(&place.path("file/sub")).unwrap_err();
    assert_eq!(error.verdict(), Verdict::Misuse, "{error}");
    assert_eq!(error.path(), place.path("file/sub"));
}

fn a_list_is_sorted_and_complete(place: &Place) {
    let names = place.backend.names();
    assert_eq!(names.list(&place.dir).unwrap(), []);
    for name in ["b.log", "a.log", "c.log", "a"] {
        place.file(name, &pattern(0, name.len()));
    }
    names.create_dir_all(&place.path("a-dir/below")).unwrap();
    let seen: Vec<_> = names
        .list(&place.dir)
        .unwrap()
        .into_iter()
        .map(|entry| {
            (
                entry.name.into_string().unwrap(),
                entry.kind,
                if entry.kind == Kind::File { entry.len } else { 0 },
            )
        })
        .collect();
    let expected = [
        ("a", Kind::File, 1),
        ("a-dir", Kind::Dir, 0),
        ("a.log", Kind::File, 5),
        ("b.log", Kind::File, 5),
        ("c.log", Kind::File, 5),
    ];
    assert_eq!(seen, expected.map(|(name, kind, len)| (name.to_owned(), kind, len)));
}

fn absent_things_are_told_apart(place: &Place) {
    let names = place.backend.names();
    let absent = place.path("absent");
    assert_eq!(names.stat(&absent).unwrap(), None);
    assert_eq!(names.read(&absent, 10).unwrap(), None);
    assert!(!names.remove(&absent).unwrap());
    names.remove_dir_all(&absent).unwrap();
    let below = place.path("absent/file");
    assert_eq!(names.read(&below, 10).unwrap(), None);
    assert_eq!(names.stat(&below).unwrap(), None);
    for error in [
        names.list(&absent).unwrap_err(),
        names.rename(&absent, &place.path("other")).unwrap_err(),
        names.sync_dir(&absent).unwrap_err(),
        names.sync_file(&absent).unwrap_err(),
        names.write(&below, b"x", false).unwrap_err(),
        names.replace(&below, b"x").unwrap_err(),
        names.lock(&below).unwrap_err(),
        names.set_modified(&absent, SystemTime::UNIX_EPOCH).unwrap_err(),
        place.backend.open(&absent, OpenHow::Read).unwrap_err(),
        place.backend.open(&absent, OpenHow::Write).unwrap_err(),
        place.backend.open(&below, OpenHow::Create).unwrap_err(),
    ] {
        assert_eq!(error.verdict(), Verdict::Absent, "{error}");
        assert_eq!(error.kind(), ErrorKind::NotFound, "{error}");
    }
    assert_eq!(names.list(&place.dir).unwrap(), [], "a failed call left something behind");

    place.file("file", b"");
    assert_eq!(names.list(&place.path("file")).unwrap_err().verdict(), Verdict::Misuse);
    assert_ne!(names.remove(&place.dir).unwrap_err().verdict(), Verdict::Absent);
}

fn a_rename_keeps_open_handles_and_replaces(place: &Place) {
    let names = place.backend.names();
    let old = place.file("old", b"old contents");
    let victim = place.file("new", b"victim");
    names.rename(&place.path("old"), &place.path("new")).unwrap();
    assert_eq!(names.stat(&place.path("old")).unwrap(), None);
    assert_eq!(place.contents(&place.path("new")).unwrap(), b"old contents");
    // Both handles go on, each with its file; neither follows the name.
    assert_eq!(read(&victim, 0, 100), b"victim");
    write(&old, 12, b" and more");
    assert_eq!(place.contents(&place.path("new")).unwrap(), b"old contents and more");
    assert_eq!(old.path(), place.path("old"));
    names.rename(&place.path("new"), &place.path("new")).unwrap();
    assert_eq!(place.contents(&place.path("new")).unwrap(), b"old contents and more");
}

fn a_renamed_directory_takes_its_contents_along(place: &Place) {
    let names = place.backend.names();
    names.create_dir_all(&place.path("t-0/deep")).unwrap();
    // A neighbour whose name begins alike must not come along.
    names.create_dir_all(&place.path("t-0.x")).unwrap();
    let file = place.file("t-0/0.log", b"batch");
    place.file("t-0/deep/1.log", b"deeper");
    names.rename(&place.path("t-0"), &place.path("t-0-delete")).unwrap();
    assert_eq!(names.stat(&place.path("t-0")).unwrap(), None);
    assert_eq!(place.contents(&place.path("t-0-delete/0.log")).unwrap(), b"batch");
    assert_eq!(place.contents(&place.path("t-0-delete/deep/1.log")).unwrap(), b"deeper");
    assert!(names.stat(&place.path("t-0.x")).unwrap().is_some());
    write(&file, 5, b"!");
    assert_eq!(place.contents(&place.path("t-0-delete/0.log")).unwrap(), b"batch!");
    // Over an empty directory.
    names.create_dir_all(&place.path("empty")).unwrap();
    names.rename(&place.path("t-0-delete"), &place.path("empty")).unwrap();
    assert_eq!(place.contents(&place.path("empty/0.log")).unwrap(), b"batch!");
}

fn a_rename_that_cannot_be_is_refused(place: &Place) {
    let names = place.backend.names();
    names.create_dir_all(&place.path("dir/sub")).unwrap();
    names.create_dir_all(&place.path("other")).unwrap();
    place.file("file", b"x");
    for (from, to) in [("file", "dir"), ("dir", "file"), ("other", "dir"), ("dir", "dir/sub/in-itself")] {
        let error = names.rename(&place.path(from), &place.path(to)).unwrap_err();
        assert_eq!(error.verdict(), Verdict::Misuse, "{from} to {to}: {error}");
    }
    let error = names.rename(&place.path("file"), &place.path("absent/file")).unwrap_err();
    assert_eq!(error.verdict(), Verdict::Absent, "{error}");
    assert_eq!(place.contents(&place.path("file")).unwrap(), b"x");
    assert!(names.stat(&place.path("dir/sub")).unwrap().is_some());
}

fn a_removed_file_stays_readable(place: &Place) {
    let names = place.backend.names();
    let file = place.file("0.log", &pattern(0, 5000));
    let reader = place.open("0.log", OpenHow::Read);
    assert!(names.remove(&place.path("0.log")).unwrap());
    assert!(!names.remove(&place.path("0.log")).unwrap());
    assert_eq!(names.list(&place.dir).unwrap(), []);
    assert_eq!(read(&reader, 100, 10_000), pattern(100, 4900));
    write(&file, 5000, &pattern(5000, 10));
    assert_eq!(read(&reader, 5000, 10), pattern(5000, 10));
    // The name is free: what comes there now is another file.
    place.file("0.log", b"new");
    assert_eq!(reader.len().unwrap(), 5010);
    assert_eq!(place.contents(&place.path("0.log")).unwrap(), b"new");
}

fn a_removed_directory_takes_everything_along(place: &Place) {
    let names = place.backend.names();
    names.create_dir_all(&place.path("t-0/deep")).unwrap();
    names.create_dir_all(&place.path("t-0.x")).unwrap();
    let file = place.file("t-0/deep/0.log", b"kept open");
    names.remove_dir_all(&place.path("t-0")).unwrap();
    assert_eq!(names.stat(&place.path("t-0")).unwrap(), None);
    assert_eq!(names.stat(&place.path("t-0/deep/0.log")).unwrap(), None);
    assert!(names.stat(&place.path("t-0.x")).unwrap().is_some());
    assert_eq!(read(&file, 0, 100), b"kept open");
    place.file("file", b"");
    assert_eq!(names.remove_dir_all(&place.path("file")).unwrap_err().verdict(), Verdict::Misuse);
}

fn whole_files_are_read_within_a_limit(place: &Place) {
    let names = place.backend.names();
    place.file("empty", b"");
    assert_eq!(names.read(&place.path("empty"), 0).unwrap().unwrap(), b"");
    place.file("file", &pattern(0, 1000));
    assert_eq!(names.read(&place.path("file"), 1000).unwrap().unwrap(), pattern(0, 1000));
    assert_eq!(names.read(&place.path("file"), u64::MAX).unwrap().unwrap(), pattern(0, 1000));
    assert_eq!(names.read(&place.path("file"), 999).unwrap_err().kind(), ErrorKind::FileTooLarge);
    assert_eq!(names.read(&place.dir, 999).unwrap_err().verdict(), Verdict::Misuse);
}

fn whole_files_are_written_in_place(place: &Place) {
    let names = place.backend.names();
    let path = place.path("file");
    for (len, sync) in [(10, false), (100_000, true), (3, false), (0, true), (7, true)] {
        names.write(&path, &pattern(len as u64, len), sync).unwrap();
        assert_eq!(place.contents(&path).unwrap(), pattern(len as u64, len));
    }
    let open = place.open("file", OpenHow::Read);
    names.write(&path, b"seen through the handle", false).unwrap();
    assert_eq!(read(&open, 0, 100), b"seen through the handle");
}

fn replace_leaves_the_old_or_the_new(place: &Place) {
    let names = place.backend.names();
    let path = place.path("checkpoint");
    names.replace(&path, b"one").unwrap();
    let open = place.open("checkpoint", OpenHow::Read);
    // A leftover of a stopped try is no obstacle.
    place.file("checkpoint.tmp", b"a longer leftover than the contents");
    names.replace(&path, b"two").unwrap();
    assert_eq!(place.contents(&path).unwrap(), b"two");
    // Not in place: who has the old one open keeps it.
    assert_eq!(read(&open, 0, 100), b"one");
    assert_eq!(names.list(&place.dir).unwrap().len(), 1);
    assert_eq!(names.replace(&PathBuf::from("/"), b"x").unwrap_err().verdict(), Verdict::Misuse);

    // Readers beside it see one of the two, whole.
    let versions = [vec![b'a'; 5000], vec![b'b'; 9000]];
    names.replace(&path, &versions[0]).unwrap();
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| {
            for round in 0..20 {
                names.replace(&path, &versions[round % 2]).unwrap();
            }
        });
        loop {
            let last = writer.is_finished();
            assert!(versions.contains(&place.contents(&path).unwrap()));
            if last {
                break;
            }
        }
    });
}

fn a_lock_excludes_until_it_is_dropped(place: &Place) {
    let names: &dyn Namespace = place.backend.names();
    let path = place.path(".lock");
    let held = names.lock(&path).unwrap();
    for _ in 0..2 {
        let error = names.lock(&path).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::WouldBlock, "{error}");
        assert_eq!(error.verdict(), Verdict::Other);
    }
    let other = names.lock(&place.path("other.lock")).unwrap();
    drop(held);
    let again = names.lock(&path).unwrap();
    // The lock is on the file, whatever its name.
    names.rename(&path, &place.path("renamed")).unwrap();
    assert_eq!(names.lock(&place.path("renamed")).unwrap_err().kind(), ErrorKind::WouldBlock);
    let new = names.lock(&path).unwrap();
    drop((again, new, other));
    assert!(names.stat(&path).unwrap().is_some(), "the file of a lock stays");
}

fn a_claim_excludes_until_it_is_dropped(place: &Place) {
    let names: &dyn Namespace = place.backend.names();
    let (dir, other) = (place.path("claimed/t-0"), place.path("claimed/t-1"));
    names.create_dir_all(&dir).unwrap();
    names.create_dir_all(&other).unwrap();
    let kind = |path: &str| names.claim(&place.path(path)).unwrap_err().kind();
    let held = names.claim(&dir).unwrap();
    for path in ["claimed/t-0", "claimed/t-0/", "claimed/t-1/../t-0"] {
        let error = names.claim(&place.path(path)).unwrap_err();
        assert_eq!((error.kind(), error.verdict()), (ErrorKind::WouldBlock, Verdict::Other), "{error}");
        assert_eq!(error.path(), place.path(path));
    }
    let beside = names.claim(&other).unwrap();
    // The claim is on the directory, whatever its name, and on no other that has the name afterwards.
    names.rename(&dir, &place.path("claimed/t-0.delete")).unwrap();
    assert_eq!(kind("claimed/t-0.delete"), ErrorKind::WouldBlock);
    names.create_dir_all(&dir).unwrap();
    let new = names.claim(&dir).unwrap();
    drop(held);
    let renamed = names.claim(&place.path("claimed/t-0.delete")).unwrap();
    assert_eq!(kind("claimed/t-0"), ErrorKind::WouldBlock);
    drop((beside, renamed));
    assert_eq!(kind("claimed/t-0"), ErrorKind::WouldBlock, "another directory's claim was given back");
    drop(new);
    drop(names.claim(&dir).unwrap());
    assert_eq!(kind("claimed/t-2"), ErrorKind::NotFound);
    place.file("file", b"");
    assert_eq!(kind("file"), ErrorKind::NotADirectory);
}

fn times_of_change_move_and_can_be_set(place: &Place) {
    let names = place.backend.names();
    let file = place.file("0.log", b"x");
    let path = place.path("0.log");
    let modified = || names.stat(&path).unwrap().unwrap().modified;
    let past = SystemTime::UNIX_EPOCH + Duration::from_millis(1_500_000_000_123);
    names.set_modified(&path, past).unwrap();
    assert_eq!(modified(), past);
    assert_eq!(names.stat(&path).unwrap().unwrap().len, 1);
    write(&file, 1, b"y");
    assert_ne!(modified(), past);
    names.set_modified(&path, past).unwrap();
    read(&file, 0, 2);
    assert_eq!(modified(), past, "a read is no change");
}

fn directories_and_files_are_synced(place: &Place) {
    let names = place.backend.names();
    place.file("0.log", b"x");
    names.sync_file(&place.path("0.log")).unwrap();
    names.sync_dir(&place.dir).unwrap();
    assert_eq!(names.sync_dir(&place.path("0.log")).unwrap_err().verdict(), Verdict::Misuse);
}
