//! Locks, atomics and threads of this crate: parking_lot's and std's, or loom's under `--cfg loom`, with one interface.

#[cfg(not(loom))]
mod imp {
    pub(crate) type AtomicBool = std::sync::atomic::AtomicBool;
    pub(crate) type AtomicU64 = std::sync::atomic::AtomicU64;
    pub(crate) type Mutex<T> = parking_lot::Mutex<T>;
    pub(crate) type MutexGuard<'a, T> = parking_lot::MutexGuard<'a, T>;

    #[derive(Debug, Default)]
    pub(crate) struct Condvar(parking_lot::Condvar);

    impl Condvar {
        pub(crate) fn new() -> Self {
            Condvar(parking_lot::Condvar::new())
        }

        pub(crate) fn wait<'a, T>(&self, mut guard: MutexGuard<'a, T>) -> MutexGuard<'a, T> {
            self.0.wait(&mut guard);
            guard
        }

        pub(crate) fn wait_for<'a, T>(
            &self,
            mut guard: MutexGuard<'a, T>,
            limit: std::time::Duration,
        ) -> MutexGuard<'a, T> {
            self.0.wait_for(&mut guard, limit);
            guard
        }

        pub(crate) fn notify_all(&self) {
            self.0.notify_all();
        }
    }
}

#[cfg(loom)]
mod imp {
    pub(crate) type AtomicBool = loom::sync::atomic::AtomicBool;
    pub(crate) type AtomicU64 = loom::sync::atomic::AtomicU64;
    pub(crate) type MutexGuard<'a, T> = loom::sync::MutexGuard<'a, T>;

    #[derive(Debug)]
    pub(crate) struct Mutex<T>(loom::sync::Mutex<T>);

    impl<T> Mutex<T> {
        pub(crate) fn new(value: T) -> Self {
            Mutex(loom::sync::Mutex::new(value))
        }

        pub(crate) fn lock(&self) -> MutexGuard<'_, T> {
            self.0.lock().expect("a model does not poison")
        }
    }

    #[derive(Debug)]
    pub(crate) struct Condvar(loom::sync::Condvar);

    impl Condvar {
        pub(crate) fn new() -> Self {
            Condvar(loom::sync::Condvar::new())
        }

        pub(crate) fn wait<'a, T>(&self, guard: MutexGuard<'a, T>) -> MutexGuard<'a, T> {
            self.0.wait(guard).expect("a model does not poison")
        }

        /// A model has no time: it waits until it is woken.
        pub(crate) fn wait_for<'a, T>(
            &self,
            guard: MutexGuard<'a, T>,
            _limit: std::time::Duration,
        ) -> MutexGuard<'a, T> {
            self.wait(guard)
        }

        pub(crate) fn notify_all(&self) {
            self.0.notify_all();
        }
    }
}

pub(crate) use imp::{AtomicBool, AtomicU64, Condvar, Mutex, MutexGuard};
pub(crate) use std::sync::atomic::Ordering;

/// A cleaner's thread; models drive rounds by hand instead.
pub(crate) type JoinHandle = std::thread::JoinHandle<()>;

pub(crate) fn spawn(name: String, f: impl FnOnce() + Send + 'static) -> std::io::Result<JoinHandle> {
    std::thread::Builder::new().name(name).spawn(f)
}

/// Threads of one round, which end with it, and the channels between them. Models make no rounds: the same in both halves.
pub(crate) use crossbeam_channel::{Receiver, Sender, bounded};
pub(crate) use std::thread::{Scope, scope};

/// A thread that ends within `scope`.
pub(crate) fn spawn_scoped<'scope>(
    scope: &'scope Scope<'scope, '_>,
    name: &str,
    f: impl FnOnce() + Send + 'scope,
) -> std::io::Result<()> {
    std::thread::Builder::new().name(name.to_owned()).spawn_scoped(scope, f).map(drop)
}

pub(crate) fn sleep(time: std::time::Duration) {
    std::thread::sleep(time);
}

/// Whether the caller's thread is on its way out of a panic.
pub(crate) fn panicking() -> bool {
    std::thread::panicking()
}
