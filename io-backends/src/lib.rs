//! Append-only files over interchangeable I/O backends, with marks for what is accepted, stable and durable.
//!
//! A [`Backend`] is an engine with a cache mode and options, chosen at run time by a value, [`BackendSpec`]:
//! [`open`]`("std")` for files of the operating system, `"uring+direct"` for the same through an io_uring and past the
//! page cache, `"memory"` for a file system in memory. It opens [`RawFile`]s, on which operations are submitted at
//! positions, and has a [`Namespace`] for directories and whole small files. Above a file stands an [`Appender`],
//! whose [`Marks`] tell what was accepted, what the file itself returns, and what survives power loss; after a failed
//! sync it is fenced and acknowledges nothing any more.
//!
//! ```
//! use std::path::Path;
//!
//! use kseg_io_backends::{Backend, OpenHow, appender, open};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let backend = open("memory")?;
//! backend.names().create_dir_all(Path::new("topic-0"))?;
//! let file = backend.open(Path::new("topic-0/00000000000000000000.log"), OpenHow::CreateNew)?;
//!
//! let log = appender(file, 0)?;
//! let range = log.append(bytes::Bytes::from_static(b"a batch").into())?;
//! assert_eq!(range, 0..7);
//! assert_eq!((log.marks().accepted(), log.marks().durable()), (7, 0));
//!
//! let mut bytes = [0; 16];
//! let count = log.read_at(&mut bytes, 2)?;
//! assert_eq!(&bytes[..count], b"batch");
//!
//! assert_eq!(log.flush()?, 7);
//! # Ok(())
//! # }
//! ```
//!
//! # Features
//! - `testing`: `conformance`, the suite that every engine passes, `Metered`, which counts calls, `Faulty`, which
//!   makes them fail, `Watched`, which tells of each, and `PowerLoss`, a backend in memory whose power can be cut.

/// The examples of the crate's README are tests.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
mod readme {}

#[allow(unsafe_code, reason = "memory at chosen addresses")]
mod aligned;
mod appender;
mod backend;
mod commit;
#[cfg(feature = "testing")]
pub mod conformance;
mod direct;
mod error;
#[cfg(feature = "testing")]
mod fault;
mod flights;
#[cfg(feature = "testing")]
mod hook;
mod inode;
mod lock;
#[allow(unsafe_code, reason = "words of mapped files, and views of them")]
mod map;
mod marks;
mod memory;
#[cfg(feature = "testing")]
mod metered;
mod op;
mod options;
mod overlay;
mod plain;
mod plan;
#[cfg(feature = "testing")]
mod power;
mod probe;
mod queued;
mod send;
mod slots;
mod space;
mod spec;
mod std_file;
mod std_names;
mod sync;
mod synced;
#[allow(unsafe_code, reason = "a system call without a safe wrapper")]
mod sys;
mod tail;
mod ticket;
#[cfg(target_os = "linux")]
mod uring;
#[cfg(feature = "testing")]
mod watched;

pub use crate::{
    appender::{Appender, appender},
    backend::{
        Align, Backend, Entry, FileCaps, Held, Kind, MapAccess, Namespace, OpenHow, RawFile, Stat, write_all,
    },
    commit::Durability,
    error::{IoError, Verdict},
    map::{MappedRegion, page_size},
    marks::Marks,
    memory::MemoryBackend,
    op::{Advice, Done, Gather, Op, Reserve, Through},
    options::Options,
    overlay::Overlay,
    plan::{AppendPlan, Space},
    probe::Unavailable,
    send::send,
    slots::SlotTable,
    spec::{BackendSpec, Cache, Engine, Opened, SpecError, open},
    std_file::StdBackend,
    ticket::{Completer, Ticket},
};

#[cfg(target_os = "linux")]
pub use crate::uring::UringBackend;

#[cfg(feature = "testing")]
pub use crate::{
    fault::{Fault, Faulty},
    hook::Call,
    metered::{Metered, Tally},
    power::{Loss, PowerLoss},
    watched::{Moment, Watched},
};
