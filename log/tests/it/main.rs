//! Behaviour of a log, one module a behaviour.

mod append;
mod closing;
mod dir;
mod directories;
mod edges;
mod faults;
mod life;
mod load;
mod manager;
mod messages;
mod order;
mod producers;
mod read;
mod recover;
mod reopen;
mod retain;
mod rolls;
mod split;
mod stable;
mod support;
mod swap;
mod transactions;
mod truncate;
mod verification;
mod writer;
