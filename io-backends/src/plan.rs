//! [`AppendPlan`]: how a file is best appended to, as its engine and the options of its specification say.

/// How space is taken ahead of the end of a file that is appended to. Complete.
///
/// Steps are in bytes, 0 for none. Space that was taken and not used goes back when the file is sealed, or its appender dropped.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub enum Space {
    /// None is taken ahead.
    #[default]
    None,
    /// Blocks, in steps; the length of the file stays exact. A full disk is noticed before an append is accepted.
    Blocks(u32),
    /// As `Blocks`, but none for an append that is written at once: that notices a full disk by itself. So is every append to a
    /// file whose writes are done when they return, and of others those of [`AppendPlan::at_once`].
    Queued(u32),
    /// As `Queued`, in steps of a quarter of what the file holds, of 2 MiB at least and so many bytes at most. An append that is
    /// written at once takes some too, from 8 MiB on, since writes go faster into blocks that are there; but none where a flush
    /// has come within a step: a sync has less to do where the file system has not promised blocks before. Where there is no
    /// space, such an append goes on without.
    Grown(u32),
    /// Blocks in steps, and the length goes ahead with them between two flushes; a flush sets it right.
    Ahead(u32),
    /// Blocks in steps, written with zeros, so that an append changes no metadata; the length goes ahead with them
    /// until the file is sealed.
    Zeroed(u32),
}

/// How a file is best appended to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct AppendPlan {
    /// Space ahead of the end.
    pub space: Space,
    /// Writes in flight at a time, where they may overlap. At least 1.
    pub depth: u32,
    /// Bytes of one write, at most, where the appender cuts them; where writes are aligned, also how many are
    /// gathered before a write begins without a flush.
    pub chunk: u32,
    /// Bytes before the stable mark that stay in memory for readers.
    pub tail: u32,
    /// Writes of fewer bytes are done by the thread that asks for them. An append of so few is written before it returns;
    /// but where several of them come between two flushes, as those of many who wait together, they are kept and written by
    /// the flush, in few calls. 0 for files whose writes all complete later.
    pub at_once: u32,
    /// Where writes are aligned: a flush of fewer bytes writes them as they are, and a larger one does so with what is left
    /// behind its last whole block. Nothing is padded then, so nothing has to be cut off again. For files that take such
    /// writes, by another way than the aligned ones; the appender never has both in flight. 0 for never.
    pub unaligned: u32,
    /// Whether each write is durable by itself: [`Through::Data`](crate::Through::Data).
    pub through: bool,
    /// Bytes after which the kernel is told to begin writing back what it has; 0 for never.
    pub write_behind: u32,
}

impl AppendPlan {
    /// One write at a time, nothing ahead, nothing kept.
    pub const PLAIN: AppendPlan = AppendPlan {
        space: Space::None,
        depth: 1,
        chunk: 1 << 30,
        tail: 0,
        at_once: 0,
        unaligned: 0,
        through: false,
        write_behind: 0,
    };
}

impl Default for AppendPlan {
    fn default() -> Self {
        Self::PLAIN
    }
}
