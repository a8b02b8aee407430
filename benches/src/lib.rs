//! Benchmarks of I/O backends for append-only logs, next to the limits of the hardware.
//!
//! A [`Scenario`] is one thing that a log does. Its works do it in different ways: bare loops over system calls and memory
//! (the limit), and the log over each backend. [`Bench`] runs them in alternating slices and gives the median of the ratios
//! that were taken pair by pair, with its 95 % interval; every work's result is checked before and during the run.
//!
//! The harness takes any [`Backend`](kseg_io_backends::Backend), one of your own included:
//!
//! ```
//! use std::time::Duration;
//! use kseg_bench::{Bench, Environment, Plan, Scale, named};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let parent = std::env::temp_dir();
//! let environment = Environment::of(&parent)?;
//! let backends = vec![kseg_io_backends::open("memory")?];
//! let mut bench = Bench::new(backends, &parent, Scale::TINY, environment.memory_available())?;
//! let plan = Plan { rounds: 3, slice: Duration::from_millis(1) };
//! for scenario in named("append-16k")? {
//!     let row = bench.run(&scenario, plan);
//!     print!("{}", row.to_text(true));
//! }
//! # Ok(())
//! # }
//! ```
#![forbid(unsafe_code)]

mod bench;
mod contest;
mod environment;
mod error;
mod filled;
mod fio;
mod flight;
mod payload;
mod reference;
mod report;
mod scenarios;
mod state;
mod stats;
mod supply;

pub use bench::{Bench, Medium, Scale};
pub use contest::{Entrant, Latencies, Latency, Measured, Outcome, Plan, Slice, Unit, Watch, Work, run};
pub use environment::{Environment, Memory, Mount};
pub use error::BenchError;
pub use report::{Report, Row, RowResult, head};
pub use scenarios::{Scenario, all, named};
pub use stats::{CONFIDENCE, Interval, Summary, Verdict};
