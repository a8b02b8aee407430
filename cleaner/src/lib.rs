//! Compaction of Kafka partition logs: which log goes first, rounds over one, a manager with threads over many.
//!
//! A compacted log keeps, for each key, at least the record with the latest offset. What has been compacted before is its
//! clean section; behind it lies what has not, the dirty section; and the end of the log cannot be compacted now: the
//! active segment, undecided transactions, records younger than the compaction lag.
//!
//! ```text
//!  log start                first dirty         first uncleanable        active segment     log end
//!      |------- clean ----------|---- cleanable ----|----- uncleanable -----|----- active -----|
//! ```
//!
//! [`Cleaner`] does one round over one log: the latest offset of each dirty key goes into an [`OffsetMap`] of a fixed size, then
//! segments are copied without what is superseded, and swapped in. [`Manager`] has many logs: it chooses the dirtiest, keeps
//! checkpoints, holds cleaning off while a log is truncated, leaves alone what cannot be cleaned, and says why a log is not
//! being compacted ([`Next`]). The decision itself is pure: [`Sections::of`] divides one log, [`select`] picks among many,
//! without files, threads or clock.
//!
//! ```
//! use kseg_cleaner::{LogFacts, Rules, Sections, SegmentFacts, select};
//! use kseg_format::{Offset, Timestamp};
//!
//! let segment = |base, size| SegmentFacts {
//!     base_offset: Offset::new(base),
//!     size,
//!     largest_timestamp: Timestamp::new(1000),
//!     first_batch_timestamp: None,
//! };
//! let sealed = [segment(0, 300), segment(100, 700)];
//! let log = LogFacts {
//!     sealed: &sealed,
//!     active_base_offset: Offset::new(200),
//!     active_size: 50,
//!     log_start_offset: Offset::ZERO,
//!     log_end_offset: Offset::new(210),
//!     last_stable_offset: Offset::new(210),
//!     checkpoint: Some(Offset::new(100)),
//! };
//! let rules = Rules::default();
//! let sections = Sections::of(&log, &rules, Timestamp::new(5000));
//!
//! assert_eq!(sections.cleanable_ratio(), 0.7);
//! assert_eq!(select([(&sections, &rules)]).chosen, Some(0));
//! ```
#![forbid(unsafe_code)]

/// The examples of the crate's README are tests.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
mod readme {}

mod backpressure;
mod build;
mod checkpoints;
mod copy;
mod dirty;
mod error;
mod facts;
mod grouping;
mod keys;
mod manager;
mod offset_map;
mod options;
mod round;
mod select;
mod source;
mod states;
mod stats;
mod status;
mod steady;
mod sync;
mod throttle;
mod transactions;
mod writes;

pub use dirty::{FirstDirty, LogFacts, Reset, Rules, Sections, SegmentFacts};
pub use error::{Error, Result};
pub use grouping::{GroupFacts, GroupLimits, group};
#[cfg(loom)]
#[doc(hidden)]
pub use manager::model::ModelThreads;
pub use manager::{Manager, ManagerOptions, Pass, Threads, Totals};
pub use offset_map::{MapFull, OffsetMap, SLOT_BYTES};
pub use options::{CleanerOptions, NullKey};
pub use round::{Cleaner, Dirty, Pace, Round, Unhindered};
pub use select::{Selection, select};
pub use states::PartitionState;
pub use stats::{RoundReport, RoundStats};
pub use status::{Next, Status, Uncleanable};
pub use throttle::Throttle;
