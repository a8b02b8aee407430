//! Behaviour of a log, one module a behaviour.

mod append;
mod dir;
mod faults;
mod life;
mod manager;
mod order;

mod read;
mod reopen;
mod retain;
mod split;
mod support;
mod swap;
mod transactions;
mod truncate;
mod writer;
