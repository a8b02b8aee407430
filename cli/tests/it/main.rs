//! Behaviour of the built program.

mod bad_input;
mod clean;
mod closed;
mod compat;
mod data_dir;
mod dump;
mod follow;
mod round_trip;
mod run;
mod topics;
