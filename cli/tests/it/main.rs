//! Behaviour of the built program.

mod bad_input;
mod clean;
mod compat;
mod dump;
mod follow;
mod round_trip;
mod run;
mod topics;
