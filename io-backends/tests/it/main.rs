//! Behaviour of the crate, seen from outside.
#![cfg(not(loom))]

#[cfg(feature = "testing")]
mod conformance;
#[cfg(feature = "testing")]
mod faults;
mod locks;
mod maps;
#[cfg(feature = "testing")]
mod metering;
mod model;
#[cfg(feature = "testing")]
mod power;
