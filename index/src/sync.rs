//! The only door to atomics: the standard ones, or loom's when a model drives the crate.
//!
//! Both halves have the same names, so no other file of the crate mentions the cfg.

#[cfg(not(loom))]
mod imp {
    pub(crate) type AtomicU32 = std::sync::atomic::AtomicU32;
    pub(crate) type AtomicUsize = std::sync::atomic::AtomicUsize;
    pub(crate) type Ordering = std::sync::atomic::Ordering;
}

#[cfg(loom)]
mod imp {
    pub(crate) type AtomicU32 = loom::sync::atomic::AtomicU32;
    pub(crate) type AtomicUsize = loom::sync::atomic::AtomicUsize;
    pub(crate) type Ordering = loom::sync::atomic::Ordering;
}

pub(crate) use imp::*;
