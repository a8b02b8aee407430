//! Looks at partitions that somebody else may be writing to: nothing is changed and no lock is taken.
//!
//! One partition at a time is open, over a layer that takes what opening a log mends, and forgets it afterwards. A file ends
//! where it ended when it was seen first. Where files vanish, are replaced or cut beneath a look, it is taken again.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, SystemTime};

use kseg_cleaner::{Next, Status};
use kseg_io_backends::{Backend, Overlay, StdBackend};
use kseg_log::{Clock, Log, LogDir, LogDirOptions, SystemClock, TopicPartition};

use super::{Work, configured, next, print, unknown_configuration};
use crate::data_dir::{self, Access};
use crate::error::{Error, Result};
use crate::tell::tell;

/// How often a partition is looked at before what was seen last is told, however it has changed meanwhile.
const LOOKS: u32 = 30;
/// The longest wait between two looks.
const PAUSE_MAX: Duration = Duration::from_millis(200);

/// Prints what `say` says of each partition that was asked for. One that cannot be looked at is told of, and the others are
/// looked at all the same; returns whether all could be.
pub(super) fn over(
    work: &Work<'_>,
    mut say: impl FnMut(&Log, &Status, &str) -> Result<Vec<u8>>,
) -> Result<bool> {
    let path = &work.common.dir;
    work.pairs()?;
    data_dir::check(path, Access::Look, &StdBackend::new())?;
    let mut view = View::open(path)?;
    data_dir::tell_damage(&view.dir, Access::Look);
    if let Some(note) = unknown_configuration(&*view.overlay, &view.dir)? {
        tell!("kseg: {note}");
    }
    let configured = configured(&view.dir)?;
    let mut say = |log: &Log, status: &Status| say(log, status, &next(work.common, &configured, status));
    let asked = work.partitions(&view.dir)?.into_iter().filter(|(_, asked)| *asked);
    let mut left: Vec<_> = asked.map(|(partition, _)| partition).collect();
    let mut damage_told = false;
    let mut said = BTreeMap::new();
    for look in 1..=LOOKS {
        let mut again = Vec::new();
        for partition in left {
            let folder = path.join(partition.to_string());
            let before = Trace::of(&folder);
            let seen = view.of(work, &partition, &mut damage_told, &mut say);
            let after = Trace::of(&folder);
            // What is told of a log that could not be read to its end may come of the change.
            let whole = matches!(&seen, Ok((_, true)));
            if look < LOOKS && (if whole { before.went_to(&after) } else { before != after }) {
                again.push(partition);
            } else {
                said.insert(partition, seen);
            }
        }
        if again.is_empty() {
            break;
        }
        left = again;
        thread::sleep(PAUSE_MAX.min(Duration::from_millis(5) * look));
        view = View::open(path)?;
    }
    let mut out = Vec::new();
    let mut good = true;
    for (partition, said) in said {
        match said {
            Ok((text, whole)) => {
                out.extend(text);
                good &= whole;
            }
            // What the command line asks for is wrong for all of them.
            Err(error @ Error::Usage(_)) => return Err(error),
            Err(error) => {
                tell!("kseg: {partition}: {error}");
                good = false;
            }
        }
    }
    print(&out)?;
    Ok(good)
}

/// The directory as it is at one time, and what is changed for a look.
struct View {
    overlay: Arc<Overlay>,
    clock: Arc<dyn Clock>,
    dir: LogDir,
}

impl View {
    fn open(path: &Path) -> Result<View> {
        let mut look = 1;
        loop {
            let before = Trace::of(path);
            let overlay = Arc::new(Overlay::new(Arc::new(StdBackend::new())));
            let clock: Arc<dyn Clock> = Arc::new(SystemClock);
            let options = LogDirOptions::new(overlay.clone() as Arc<dyn Backend>);
            match LogDir::open(path, LogDirOptions { clock: clock.clone(), ..options }) {
                Ok(dir) => return Ok(View { overlay, clock, dir }),
                Err(_) if look < LOOKS && Trace::of(path) != before => look += 1,
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// What is said of a partition, and whether all of it could be looked at.
    fn of(
        &self,
        work: &Work<'_>,
        partition: &TopicPartition,
        damage_told: &mut bool,
        say: &mut impl FnMut(&Log, &Status) -> Result<Vec<u8>>,
    ) -> Result<(Vec<u8>, bool)> {
        let folder = work.common.dir.join(partition.to_string());
        let gone = || Error::bad(&folder, "a folder of a partition", "none");
        let opened = self.dir.get(partition).map_err(Error::from);
        let seen = opened.and_then(|log| log.ok_or_else(gone)).and_then(|log| {
            let seen = self.of_log(work, &log, damage_told, say).and_then(|seen| seen.ok_or_else(gone));
            log.abandon();
            seen
        });
        self.overlay.forget(&folder).map_err(|error| Error::from(kseg_log::Error::from(error)))?;
        seen
    }

    fn of_log(
        &self,
        work: &Work<'_>,
        log: &Arc<Log>,
        damage_told: &mut bool,
        say: &mut impl FnMut(&Log, &Status) -> Result<Vec<u8>>,
    ) -> Result<Option<(Vec<u8>, bool)>> {
        let manager = work.manager(self.overlay.clone(), self.clock.clone())?;
        let config = work.config_of(log)?;
        work.prepare(log, config)?;
        manager.add(self.dir.path(), log.clone())?;
        let Some(status) = manager.status().pop() else { return Ok(None) };
        if !*damage_told {
            // There is one such file, of which each partition's look tells.
            for damage in manager.damaged_checkpoints() {
                data_dir::tell_damaged(&damage, Access::Look);
                *damage_told = true;
            }
        }
        let whole = !matches!(status.next, Next::Unknown { .. });
        Ok(Some((say(log, &status)?, whole)))
    }
}

/// What a look at a folder goes by: names, and of each the number of its file, its length and the time of its last change.
#[derive(Debug, PartialEq)]
struct Trace(BTreeMap<OsString, (u64, u64, Option<SystemTime>)>);

impl Trace {
    fn of(folder: &Path) -> Trace {
        let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
        // What vanishes meanwhile is not there.
        let seen = entries.filter_map(|entry| {
            let meta = entry.metadata().ok()?;
            Some((entry.file_name(), (meta.ino(), meta.len(), meta.modified().ok())))
        });
        Trace(seen.collect())
    }

    /// Whether batches that were there are not, or elsewhere: a log file vanished, was replaced, or cut.
    fn went_to(&self, after: &Trace) -> bool {
        let logs = self.0.iter().filter(|(name, _)| name.to_string_lossy().ends_with(".log"));
        logs.into_iter().any(|(name, (file, len, _))| {
            after.0.get(name).is_none_or(|(now, now_len, _)| now != file || now_len < len)
        })
    }
}
