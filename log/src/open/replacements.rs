//! What interrupted deletions, compactions, swaps and splits left in the directory is finished or undone.

use kseg_format::checkpoint_files::LEADER_EPOCHS;
use kseg_format::{Offset, PartitionMetadata};
use kseg_io_backends::{Kind, OpenHow};
use kseg_segment::{FileKind, FileName, Headers, Suffix, file_name, parse_file_name};

use super::Loading;
use crate::cleaning::{SwapList, parse_list_name};
use crate::error::Result;

impl Loading<'_> {
    /// The regular files of the directory, taken apart; names that are none of ours, and folders, are noted once.
    pub(super) fn files(&mut self) -> Result<Vec<(String, FileName, u64)>> {
        let mut files = Vec::new();
        let mut unknown = Vec::new();
        for entry in self.log.backend.names().list(&self.log.dir)? {
            let Some(name) = entry.name.to_str().filter(|_| entry.kind == Kind::File) else {
                unknown.push(self.log.dir.join(&entry.name));
                continue;
            };
            match parse_file_name(name) {
                Some(parsed) => files.push((name.to_string(), parsed, entry.len)),
                // The epochs are in the file that it was to replace.
                None if name.strip_suffix(".tmp") == Some(LEADER_EPOCHS) => self.remove(name)?,
                None if is_kept_beside(name) || parse_list_name(name).is_some() => {}
                None => unknown.push(self.path(name)),
            }
        }
        unknown.sort();
        self.report.unknown = unknown;
        files.sort();
        Ok(files)
    }

    /// Phases 1 to 3: files of interrupted deletions, compactions and swaps. What happened to a swap of ours is in its list
    /// (see `cleaning.rs`); one without is Kafka's, and the offsets in its files tell.
    pub(super) fn finish_replacements(&mut self) -> Result<()> {
        let lists = self.lists()?;
        if let Some((_, list)) = lists.iter().find(|(suffix, _)| *suffix == Suffix::Swap)
            && let Some(list) = list
        {
            self.finish_swap(list)?;
        } else {
            let undone = lists.iter().any(|(suffix, _)| *suffix == Suffix::Cleaned);
            self.finish_swaps_of_kafka(undone)?;
        }
        if !lists.is_empty() {
            // What they tell is done, and stays so, before they go.
            self.log.backend.names().sync_dir(&self.log.dir)?;
            self.log.remove_lists()?;
            self.log.backend.names().sync_dir(&self.log.dir)?;
        }
        Ok(())
    }

    /// The lists of swaps in the directory.
    fn lists(&self) -> Result<Vec<(Suffix, Option<SwapList>)>> {
        /// A line of at most 64 bytes for each segment; a longer file is not one of ours.
        const LIMIT: u64 = 16 * 1024 * 1024;
        let names = self.log.backend.names();
        let mut lists = Vec::new();
        for entry in names.list(&self.log.dir)? {
            let Some((_, suffix)) = entry.name.to_str().and_then(parse_list_name) else { continue };
            let bytes = names.read(&self.log.dir.join(&entry.name), LIMIT)?;
            lists.push((suffix, bytes.and_then(|bytes| SwapList::parse(&bytes))));
        }
        Ok(lists)
    }

    /// Ends a swap that has happened: the old segments go, the new ones get their names.
    fn finish_swap(&mut self, list: &SwapList) -> Result<()> {
        let files = self.files()?;
        let present = |offset, kind, suffix| {
            files
                .iter()
                .any(|f| f.1 == FileName { offset, kind, suffix })
                .then(|| file_name(offset, kind, suffix))
        };
        for (name, parsed, _) in &files {
            let old = list.old.contains(&parsed.offset) && !list.new.contains_key(&parsed.offset);
            let goes = match parsed.suffix {
                Suffix::Deleted | Suffix::Cleaned => true,
                Suffix::None => old,
                Suffix::Swap => !list.new.contains_key(&parsed.offset),
            };
            if goes {
                self.remove(name)?;
            }
        }
        for (&base, kinds) in &list.new {
            for kind in FileKind::OF_SEGMENT {
                match (present(base, kind, Suffix::Swap), present(base, kind, Suffix::None)) {
                    (Some(swap), _) => {
                        let to = self.path(&file_name(base, kind, Suffix::None));
                        self.log.backend.names().rename(&self.path(&swap), &to)?;
                        self.report.completed.push(to);
                    }
                    // The old segment's, of a kind that the new one has not.
                    (None, Some(name)) if !kinds.contains(&kind) => self.remove(&name)?,
                    _ => {}
                }
            }
        }
        Ok(())
    }

    /// `undone`: nothing that is `.swap` counts.
    fn finish_swaps_of_kafka(&mut self, undone: bool) -> Result<()> {
        let files = self.files()?;
        let min_cleaned = files.iter().filter(|f| f.1.suffix == Suffix::Cleaned).map(|f| f.1.offset).min();
        for (name, parsed, _) in &files {
            let goes = match parsed.suffix {
                Suffix::Deleted | Suffix::Cleaned => true,
                // A replacement is complete only once no part of it is `.cleaned` any more.
                Suffix::Swap => undone || min_cleaned.is_some_and(|min| parsed.offset >= min),
                Suffix::None => false,
            };
            if goes {
                self.remove(name)?;
            }
        }
        let files = self.files()?;
        let mut range: Option<(Offset, Offset)> = None;
        for (_, parsed, size) in &files {
            if parsed.suffix == Suffix::Swap && parsed.kind == FileKind::Log {
                let next = self.next_offset_of_swap(parsed.offset, *size)?;
                let (min, max) = range.unwrap_or((parsed.offset, next));
                range = Some((min.min(parsed.offset), max.max(next)));
            }
        }
        if let Some((min, max)) = range {
            for (name, parsed, _) in &files {
                if parsed.suffix != Suffix::Swap && min <= parsed.offset && parsed.offset < max {
                    self.remove(name)?;
                }
            }
        }
        for (name, parsed, _) in files.iter().filter(|f| f.1.suffix == Suffix::Swap) {
            let to = self.path(&file_name(parsed.offset, parsed.kind, Suffix::None));
            self.log.backend.names().rename(&self.path(name), &to)?;
            self.report.completed.push(to);
        }
        if range.is_some() {
            self.log.backend.names().sync_dir(&self.log.dir)?;
        }
        Ok(())
    }

    /// The offset behind the last batch of a `.log.swap` file, by a walk over its headers.
    fn next_offset_of_swap(&self, base: Offset, size: u64) -> Result<Offset> {
        let path = self.path(&file_name(base, FileKind::Log, Suffix::Swap));
        let file = self.log.backend.open(&path, OpenHow::Read)?;
        let mut walk = Headers::new(&*file, 0, size);
        let mut next = base;
        loop {
            match walk.next() {
                Ok(Some((_, header))) => next = header.next_offset(),
                // What is no batch, such as the space that was taken ahead of the batches of a split segment, retires nothing.
                Ok(None) | Err(kseg_segment::Error::Corrupt { .. }) => return Ok(next),
                Err(e) => return Err(self.log.wrap(e)),
            }
        }
    }

    pub(super) fn remove(&mut self, name: &str) -> Result<()> {
        let path = self.path(name);
        self.log.backend.names().remove(&path)?;
        self.report.removed.push(path);
        Ok(())
    }
}

/// Files of a partition directory that are no segment's: checkpoints, their leftovers, and what was kept aside.
fn is_kept_beside(name: &str) -> bool {
    let base = name.strip_suffix(".tmp").unwrap_or(name);
    base == LEADER_EPOCHS
        || base == PartitionMetadata::FILE_NAME
        || name.ends_with(".checkpoint")
        || is_cut(name)
}

/// A name for what was kept aside ([`Cut::kept`], [`Segment::set_aside`]).
fn is_cut(name: &str) -> bool {
    let base = match name.rsplit_once('.') {
        Some((base, number)) if !number.is_empty() && number.bytes().all(|b| b.is_ascii_digit()) => base,
        _ => name,
    };
    base.ends_with(".cut")
}
