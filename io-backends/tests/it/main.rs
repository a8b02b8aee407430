//! Behaviour of the crate, seen from outside.
#![cfg(not(loom))]

#[macro_use]
#[path = "../support/forward.rs"]
mod forward;

mod asked;
mod beside;
#[cfg(feature = "testing")]
mod conformance;
mod direct;
#[cfg(feature = "testing")]
mod durability;
#[cfg(feature = "testing")]
mod faults;
mod full;
mod locks;
mod maps;
#[cfg(feature = "testing")]
mod metering;
#[cfg(feature = "testing")]
mod model;
mod overlay;
mod places;
#[cfg(feature = "testing")]
mod power;
mod reads;
mod space;
mod uring;
