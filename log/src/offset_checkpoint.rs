//! [`OffsetCheckpoint`]: one file of offsets by partition, of which nothing is lost unseen.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use kseg_format::{CheckpointError, Offset, TopicPartition, parse_offsets, print_offsets};
use kseg_io_backends::Namespace;
use tracing::warn;

use crate::error::Result;

/// Largest checkpoint that is read: far above a line for each of a million partitions.
const SIZE_MAX: u64 = 512 * 1024 * 1024;

/// What follows the name of a checkpoint that could not be read and has been replaced since.
const DAMAGED: &str = ".damaged";

/// A file of offsets by partition, as a data directory has four of them.
///
/// One that cannot be read is taken for one without entries, and said to be so; before something else is written in its place
/// it is kept beside it as `<name>.damaged` (or `<name>.damaged.1` and so on where there is one already), which Kafka
/// ignores.
#[derive(Debug)]
pub struct OffsetCheckpoint {
    path: PathBuf,
    /// What is wrong with the file as it was last read; none once it has been written.
    damage: Option<CheckpointError>,
}

impl OffsetCheckpoint {
    /// The file at `path`, which need not be there. Nothing is read yet.
    pub fn new(path: impl Into<PathBuf>) -> OffsetCheckpoint {
        OffsetCheckpoint { path: path.into(), damage: None }
    }

    /// The file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// What is wrong with the file, with its line: as it was last read, and not written since.
    pub fn damage(&self) -> Option<&CheckpointError> {
        self.damage.as_ref()
    }

    /// The entries; none where there is no file, or it is damaged.
    ///
    /// # Errors
    /// [`Error::Io`](crate::Error::Io).
    pub fn read(&mut self, names: &dyn Namespace) -> Result<BTreeMap<TopicPartition, Offset>> {
        let bytes = names.read(&self.path, SIZE_MAX)?.unwrap_or_default();
        match parse_offsets(&bytes) {
            Ok(offsets) => {
                self.damage = None;
                Ok(offsets)
            }
            Err(error) => {
                let error = error.in_file(&self.path);
                if self.damage.as_ref() != Some(&error) {
                    warn!(%error, "damaged checkpoint: taken for one without entries");
                }
                self.damage = Some(error);
                Ok(BTreeMap::new())
            }
        }
    }

    /// Puts these entries in the place of what the file holds, atomically and durably; a damaged file is kept aside first.
    ///
    /// # Errors
    /// [`Error::Io`](crate::Error::Io): the file has its old content.
    pub fn write<'a>(
        &mut self,
        names: &dyn Namespace,
        offsets: impl IntoIterator<Item = (&'a TopicPartition, Offset)>,
    ) -> Result<()> {
        if self.damage.is_some() {
            keep(names, &self.path)?;
        }
        names.replace(&self.path, &print_offsets(offsets))?;
        self.damage = None;
        Ok(())
    }

    /// Sets the entry of one partition, or takes it out; what is so already is not written.
    ///
    /// # Errors
    /// [`Error::Io`](crate::Error::Io): the file has its old content.
    pub fn set(
        &mut self,
        names: &dyn Namespace,
        partition: &TopicPartition,
        offset: Option<Offset>,
    ) -> Result<()> {
        let mut offsets = self.read(names)?;
        let before = match offset {
            Some(offset) => offsets.insert(partition.clone(), offset),
            None => offsets.remove(partition),
        };
        if before == offset { Ok(()) } else { self.write(names, offsets.iter().map(|(p, &o)| (p, o))) }
    }

    /// Whether a file of this name was kept aside by [`write`](Self::write) in the place of the checkpoint `name`.
    pub(crate) fn is_kept(file: &str, name: &str) -> bool {
        let behind = file.strip_prefix(name).and_then(|rest| rest.strip_prefix(DAMAGED));
        behind.is_some_and(|number| {
            number.is_empty() || number.strip_prefix('.').is_some_and(|n| n.parse::<u64>().is_ok())
        })
    }
}

/// Keeps a copy of the file beside it, durably; none where there is one of the same content already.
fn keep(names: &dyn Namespace, path: &Path) -> Result<()> {
    let Some(bytes) = names.read(path, SIZE_MAX)? else { return Ok(()) };
    let mut number: u64 = 0;
    loop {
        let mut name = path.as_os_str().to_os_string();
        name.push(if number == 0 { DAMAGED.to_owned() } else { format!("{DAMAGED}.{number}") });
        let kept = PathBuf::from(name);
        // One that is there may be from a write that came no further than this.
        match names.stat(&kept)? {
            None => {
                names.write(&kept, &bytes, true)?;
            }
            Some(there)
                if there.len == bytes.len() as u64
                    && names.read(&kept, SIZE_MAX)?.as_deref() == Some(&bytes) => {}
            Some(_) => {
                number += 1;
                continue;
            }
        }
        if let Some(dir) = path.parent() {
            names.sync_dir(dir)?;
        }
        warn!(file = %path.display(), kept = %kept.display(), "damaged checkpoint kept aside before it is written anew");
        return Ok(());
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn what_could_not_be_read_is_kept_once_and_never_overwritten() {
        let backend = kseg_io_backends::open("memory").expect("memory is always there");
        let names = backend.names();
        let text = |name: &str| {
            let bytes = names.read(Path::new(name), 1000).expect("read");
            bytes.map(|bytes| String::from_utf8(bytes).expect("text"))
        };
        let partition = TopicPartition::new("t", 0);
        let mut file = OffsetCheckpoint::new("/points");
        for (n, damage) in ["0\n1\nt 0 1x1\n", "0\n1\nt 0 1x1\n", "1\n", "\u{fffd}"].into_iter().enumerate() {
            names.write(Path::new("/points"), damage.as_bytes(), true).expect("written");
            assert!(file.read(names).expect("read").is_empty());
            let told = file.damage().expect("damage").to_string();
            assert!(told.contains("/points") && told.contains("line"), "{told}");
            file.write(names, [(&partition, Offset::new(n as i64))]).expect("written");
            assert!(file.damage().is_none());
            assert_eq!(text("/points"), Some(format!("0\n1\nt 0 {n}\n")));
            assert_eq!(file.read(names).expect("read")[&partition].get(), n as i64);
        }
        // A good one leaves nothing behind; a damaged one of a content that is kept already is not kept again.
        file.write(names, []).expect("written");
        let kept = ["/points.damaged", "/points.damaged.1", "/points.damaged.2", "/points.damaged.3"];
        let kept: Vec<_> = kept.into_iter().map(text).collect();
        let expected = [Some("0\n1\nt 0 1x1\n"), Some("1\n"), Some("\u{fffd}"), None];
        assert_eq!(kept, expected.map(|text| text.map(str::to_owned)));
    }

    #[test]
    fn names_of_kept_files_are_known() {
        for (name, kept) in [
            ("points.damaged", true),
            ("points.damaged.12", true),
            ("points", false),
            ("points.damaged.", false),
            ("points.damaged.x", false),
            ("point.damaged", false),
            ("points.damaged1", false),
        ] {
            assert_eq!(OffsetCheckpoint::is_kept(name, "points"), kept, "{name}");
        }
    }
}
