//! Locks and atomics of this crate: parking_lot's and std's, or loom's under `--cfg loom`, with one interface.

#[cfg(not(loom))]
mod imp {
    pub(crate) type AtomicBool = std::sync::atomic::AtomicBool;
    pub(crate) type AtomicU64 = std::sync::atomic::AtomicU64;
    pub(crate) type Mutex<T> = parking_lot::Mutex<T>;
    pub(crate) type RwLock<T> = parking_lot::RwLock<T>;
}

#[cfg(loom)]
mod imp {
    pub(crate) type AtomicBool = loom::sync::atomic::AtomicBool;
    pub(crate) type AtomicU64 = loom::sync::atomic::AtomicU64;

    #[derive(Debug)]
    pub(crate) struct Mutex<T>(loom::sync::Mutex<T>);

    impl<T> Mutex<T> {
        pub(crate) fn new(value: T) -> Self {
            Mutex(loom::sync::Mutex::new(value))
        }

        pub(crate) fn lock(&self) -> loom::sync::MutexGuard<'_, T> {
            self.0.lock().expect("a model does not poison")
        }
    }

    #[derive(Debug)]
    pub(crate) struct RwLock<T>(loom::sync::RwLock<T>);

    impl<T> RwLock<T> {
        pub(crate) fn new(value: T) -> Self {
            RwLock(loom::sync::RwLock::new(value))
        }

        pub(crate) fn read(&self) -> loom::sync::RwLockReadGuard<'_, T> {
            self.0.read().expect("a model does not poison")
        }

        pub(crate) fn write(&self) -> loom::sync::RwLockWriteGuard<'_, T> {
            self.0.write().expect("a model does not poison")
        }
    }
}

pub(crate) use imp::{AtomicBool, AtomicU64, Mutex, RwLock};
pub(crate) use std::sync::atomic::Ordering;
