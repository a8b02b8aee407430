//! `kseg-format` beside other crates that read and write Kafka's record batches, and beside bare loops that do the least
//! that the work asks for.
//!
//! A [`Coder`] does one work once: encode a batch, decode one, walk over headers, take a checksum. [`Timed`] makes it a
//! work of a [`kseg_bench`] contest; the criterion targets call it themselves. All coders of a contest give one hash.
#![forbid(unsafe_code)]

mod bare;
mod cells;
mod checksum;
mod coder;
mod headers;
mod kseg;
mod others;

pub use cells::{Cell, Contest, Way, cells, contests};
pub use coder::{Coder, Timed};
