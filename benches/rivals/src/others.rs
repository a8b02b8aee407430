//! The other crates, each as it is meant to be used: structures made beforehand where it encodes from such, one buffer
//! that is used again where it takes one.

pub(crate) mod kafka_protocol;
pub(crate) mod krabka;
pub(crate) mod rskafka;
