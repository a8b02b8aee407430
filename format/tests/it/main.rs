//! How batches are read, checked, built and changed, seen from outside.

mod builder;
mod cases;
mod control;
mod describe;
mod examples;
mod framing;
mod golden;
mod header;
mod legacy;
mod properties;
mod records;
mod support;
mod validate;
