//! Behaviour of a segment, one module a behaviour.

mod aborted;
mod append;
mod damage;
mod file;
mod lookup;
mod recover;
mod support;
mod truncate;
