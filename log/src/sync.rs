//! Locks, atomics and threads of this crate: parking_lot's and std's, or loom's under `--cfg loom`, with one interface.

#[cfg(not(loom))]
mod imp {
    pub(crate) type AtomicBool = std::sync::atomic::AtomicBool;
    pub(crate) type AtomicI64 = std::sync::atomic::AtomicI64;
    pub(crate) type AtomicU64 = std::sync::atomic::AtomicU64;
    pub(crate) type AtomicUsize = std::sync::atomic::AtomicUsize;
    pub(crate) type Mutex<T> = parking_lot::Mutex<T>;
    pub(crate) type MutexGuard<'a, T> = parking_lot::MutexGuard<'a, T>;
    pub(crate) type RwLock<T> = parking_lot::RwLock<T>;
    pub(crate) type Thread = std::thread::Thread;
    pub(crate) type ThreadId = std::thread::ThreadId;

    /// The calling thread.
    pub(crate) fn current() -> Thread {
        std::thread::current()
    }

    /// Holds the calling thread until it is unparked, or for no reason at all not that long.
    pub(crate) fn park() {
        std::thread::park();
    }

    /// Lets others run.
    pub(crate) fn yield_now() {
        std::thread::yield_now();
    }

    /// As `park`, for about `time` at most.
    pub(crate) fn park_timeout(time: std::time::Duration) {
        std::thread::park_timeout(time);
    }

    pub(crate) type Moment = std::time::Instant;
}

#[cfg(loom)]
mod imp {
    pub(crate) type AtomicBool = loom::sync::atomic::AtomicBool;
    pub(crate) type AtomicI64 = loom::sync::atomic::AtomicI64;
    pub(crate) type AtomicU64 = loom::sync::atomic::AtomicU64;
    pub(crate) type AtomicUsize = loom::sync::atomic::AtomicUsize;

    pub(crate) type MutexGuard<'a, T> = loom::sync::MutexGuard<'a, T>;
    pub(crate) type Thread = loom::thread::Thread;
    pub(crate) type ThreadId = loom::thread::ThreadId;

    /// The calling thread.
    pub(crate) fn current() -> Thread {
        loom::thread::current()
    }

    /// Holds the calling thread until it is unparked, or for no reason at all not that long.
    pub(crate) fn park() {
        loom::thread::park();
    }

    /// Lets others run.
    pub(crate) fn yield_now() {
        loom::thread::yield_now();
    }

    /// As `park`, for no time at all.
    pub(crate) fn park_timeout(_time: std::time::Duration) {
        yield_now();
    }

    /// A point in time, of which there are two: one that is now, and one that is long past once another thread has run.
    #[derive(Clone, Copy, Debug)]
    pub(crate) struct Moment;

    impl Moment {
        pub(crate) fn now() -> Self {
            Moment
        }

        pub(crate) fn elapsed(&self) -> std::time::Duration {
            std::time::Duration::from_secs(3600)
        }

        pub(crate) fn duration_since(&self, _earlier: Moment) -> std::time::Duration {
            self.elapsed()
        }
    }

    #[derive(Debug)]
    pub(crate) struct Mutex<T>(loom::sync::Mutex<T>);

    impl<T: Default> Default for Mutex<T> {
        fn default() -> Self {
            Mutex::new(T::default())
        }
    }

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

/// The channel that feeds the scheduler's thread. Models drive background work by hand and start no such thread, so it is
/// the same in both halves.
pub(crate) use crossbeam_channel::{RecvTimeoutError, Sender, unbounded};
pub(crate) use imp::{
    AtomicBool, AtomicI64, AtomicU64, AtomicUsize, Moment, Mutex, MutexGuard, RwLock, Thread, ThreadId,
    current, park, park_timeout, yield_now,
};
pub(crate) use std::sync::atomic::Ordering;
/// A thread that runs background work; models drive that work by hand instead.
pub(crate) type JoinHandle = std::thread::JoinHandle<()>;

pub(crate) fn spawn(name: &str, f: impl FnOnce() + Send + 'static) -> std::io::Result<JoinHandle> {
    std::thread::Builder::new().name(name.to_string()).spawn(f)
}

/// Does `work` to each of `items`, on up to `threads` threads, of which the caller's is one, and waits for all. Fewer threads,
/// where the system gives no more, do the same work.
pub(crate) fn for_each<T: Sync>(threads: usize, items: &[T], work: impl Fn(&T) + Sync) {
    let next = AtomicUsize::new(0);
    let some = || {
        // One number is handed out at a time; what they stand for is not shared: Relaxed.
        while let Some(item) = items.get(next.fetch_add(1, Ordering::Relaxed)) {
            work(item);
        }
    };
    std::thread::scope(|scope| {
        for _ in 1..threads.min(items.len()) {
            if std::thread::Builder::new().spawn_scoped(scope, some).is_err() {
                break;
            }
        }
        some();
    });
}

/// Whether the caller runs on this thread.
pub(crate) fn is_current(thread: &JoinHandle) -> bool {
    thread.thread().id() == std::thread::current().id()
}
