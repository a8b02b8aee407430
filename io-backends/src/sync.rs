//! Locks and atomics of this crate, in two halves with the same names.
//!
//! Normally they are parking_lot's and std's; under `cfg(loom)` they are loom's, so that a model drives them.
//! Outside this file nothing mentions the cfg, and nothing names `std::sync` but its `Arc`: handles to trait
//! objects stay std's, because loom's cannot hold unsized values.
//!
//! [`real`] is the exception: words that the kernel shares through a memory map, and tables that live as long as
//! the process. No model touches either, so they are the same in both halves.

#[cfg(not(loom))]
mod half {
    pub(crate) type Mutex<T> = parking_lot::Mutex<T>;
    pub(crate) type MutexGuard<'a, T> = parking_lot::MutexGuard<'a, T>;
    pub(crate) type RwLock<T> = parking_lot::RwLock<T>;
    pub(crate) type Condvar = parking_lot::Condvar;
    pub(crate) type AtomicBool = std::sync::atomic::AtomicBool;
    pub(crate) type AtomicU32 = std::sync::atomic::AtomicU32;
    pub(crate) type AtomicU64 = std::sync::atomic::AtomicU64;

    pub(crate) type Thread = std::thread::Thread;

    /// The calling thread.
    pub(crate) fn current() -> Thread {
        std::thread::current()
    }

    /// Holds the calling thread until it is unparked, or for no reason at all not that long.
    pub(crate) fn park() {
        std::thread::park();
    }

    /// The time of day.
    pub(crate) fn now() -> std::time::SystemTime {
        std::time::SystemTime::now()
    }

    /// Holds the calling thread.
    #[cfg(feature = "testing")]
    pub(crate) fn sleep(time: std::time::Duration) {
        std::thread::sleep(time);
    }

    /// Runs `work` without the lock that `guard` holds, and takes it again.
    pub(crate) fn unlocked<'a, T, R>(
        _mutex: &'a Mutex<T>,
        guard: &mut MutexGuard<'a, T>,
        work: impl FnOnce() -> R,
    ) -> R {
        MutexGuard::unlocked(guard, work)
    }

    /// Lets others run.
    pub(crate) fn yield_now() {
        std::thread::yield_now();
    }

    /// Runs `job` on a thread of this process's few background threads, which are started when first needed, and on
    /// this one where no thread can be had.
    pub(crate) fn in_background(job: impl FnOnce() + Send + 'static) {
        let mut job = Some(job);
        in_turns(move || {
            if let Some(job) = job.take() {
                job();
            }
            false
        });
    }

    /// Runs `job` there for as long as it asks for another turn, which comes after those of all others who wait for one.
    pub(crate) fn in_turns(job: impl FnMut() -> bool + Send + 'static) {
        super::pool::POOL.run(Box::new(job));
    }
}

/// The background threads: for operations that nobody blocks on.
#[cfg(not(loom))]
mod pool {
    use std::collections::VecDeque;
    use std::sync::LazyLock;

    /// Most threads. A job is a wait for a device; more of them than this are not needed for it to be busy.
    const THREADS_MAX: usize = 4;

    /// Says whether it wants another turn.
    type Job = Box<dyn FnMut() -> bool + Send>;

    pub(super) static POOL: LazyLock<Pool> = LazyLock::new(Pool::default);

    #[derive(Default)]
    pub(super) struct Pool {
        state: parking_lot::Mutex<State>,
        more: parking_lot::Condvar,
    }

    #[derive(Default)]
    struct State {
        jobs: VecDeque<Job>,
        idle: usize,
        threads: usize,
    }

    impl Pool {
        pub(super) fn run(&'static self, job: Job) {
            let mut state = self.state.lock();
            state.jobs.push_back(job);
            if state.idle >= state.jobs.len() {
                self.more.notify_one();
                return;
            }
            if state.threads < THREADS_MAX {
                let name = format!("kseg-io-{}", state.threads);
                if std::thread::Builder::new().name(name).spawn(|| self.work()).is_ok() {
                    state.threads += 1;
                } else if state.threads == 0 {
                    let job = state.jobs.pop_back();
                    drop(state);
                    job.into_iter().for_each(|mut job| while job() {});
                }
            }
        }

        fn work(&self) {
            let mut state = self.state.lock();
            loop {
                match state.jobs.pop_front() {
                    Some(mut job) => {
                        drop(state);
                        let again = job();
                        state = self.state.lock();
                        if again {
                            state.jobs.push_back(job);
                        }
                    }
                    None => {
                        state.idle += 1;
                        self.more.wait(&mut state);
                        state.idle -= 1;
                    }
                }
            }
        }
    }
}

#[cfg(loom)]
mod half {
    use std::ops::{Deref, DerefMut};

    pub(crate) type AtomicBool = loom::sync::atomic::AtomicBool;
    pub(crate) type AtomicU32 = loom::sync::atomic::AtomicU32;
    pub(crate) type AtomicU64 = loom::sync::atomic::AtomicU64;

    pub(crate) type Thread = loom::thread::Thread;

    /// The calling thread.
    pub(crate) fn current() -> Thread {
        loom::thread::current()
    }

    /// Holds the calling thread until it is unparked, or for no reason at all not that long.
    pub(crate) fn park() {
        loom::thread::park();
    }

    /// A time that only counts: a model has no clock.
    pub(crate) fn now() -> std::time::SystemTime {
        static COUNT: super::real::AtomicU64 = super::real::AtomicU64::new(0);
        let count = COUNT.fetch_add(1, super::Ordering::Relaxed);
        std::time::SystemTime::UNIX_EPOCH + std::time::Duration::from_millis(count)
    }

    /// Lets others go first: a model has no clock.
    #[cfg(feature = "testing")]
    pub(crate) fn sleep(_time: std::time::Duration) {
        loom::thread::yield_now();
    }

    /// Runs `work` without the lock that `guard` holds, and takes it again.
    pub(crate) fn unlocked<'a, T, R>(
        mutex: &'a Mutex<T>,
        guard: &mut MutexGuard<'a, T>,
        work: impl FnOnce() -> R,
    ) -> R {
        guard.0 = None;
        let result = work();
        *guard = mutex.lock();
        result
    }

    /// Lets others run.
    pub(crate) fn yield_now() {
        loom::thread::yield_now();
    }

    /// Runs `job` on a thread of its own.
    pub(crate) fn in_background(job: impl FnOnce() + Send + 'static) {
        loom::thread::spawn(job);
    }

    /// Runs `job` on a thread of its own for as long as it asks for another turn.
    pub(crate) fn in_turns(mut job: impl FnMut() -> bool + Send + 'static) {
        loom::thread::spawn(move || while job() {});
    }

    /// loom's mutex with parking_lot's signatures.
    #[derive(Debug)]
    pub(crate) struct Mutex<T>(loom::sync::Mutex<T>);

    /// What [`Mutex::lock`] returns. Empty only while [`Condvar::wait`] holds the lock's guard.
    #[derive(Debug)]
    pub(crate) struct MutexGuard<'a, T>(Option<loom::sync::MutexGuard<'a, T>>);

    impl<T> Mutex<T> {
        pub(crate) fn new(value: T) -> Self {
            Self(loom::sync::Mutex::new(value))
        }

        pub(crate) fn lock(&self) -> MutexGuard<'_, T> {
            MutexGuard(Some(self.0.lock().expect("loom's mutex is not poisoned")))
        }
    }

    impl<T: Default> Default for Mutex<T> {
        fn default() -> Self {
            Self::new(T::default())
        }
    }

    impl<T> Deref for MutexGuard<'_, T> {
        type Target = T;

        fn deref(&self) -> &T {
            self.0.as_ref().expect("the guard is held")
        }
    }

    impl<T> DerefMut for MutexGuard<'_, T> {
        fn deref_mut(&mut self) -> &mut T {
            self.0.as_mut().expect("the guard is held")
        }
    }

    /// loom's condition variable with parking_lot's signatures.
    #[derive(Debug)]
    pub(crate) struct Condvar(loom::sync::Condvar);

    impl Condvar {
        pub(crate) fn new() -> Self {
            Self(loom::sync::Condvar::new())
        }

        pub(crate) fn wait<T>(&self, guard: &mut MutexGuard<'_, T>) {
            let held = guard.0.take().expect("the guard is held");
            guard.0 = Some(self.0.wait(held).expect("loom's mutex is not poisoned"));
        }

        pub(crate) fn notify_all(&self) {
            self.0.notify_all();
        }
    }

    /// loom's reader-writer lock with parking_lot's signatures.
    #[derive(Debug)]
    pub(crate) struct RwLock<T>(loom::sync::RwLock<T>);

    impl<T> RwLock<T> {
        pub(crate) fn new(value: T) -> Self {
            Self(loom::sync::RwLock::new(value))
        }

        pub(crate) fn read(&self) -> loom::sync::RwLockReadGuard<'_, T> {
            self.0.read().expect("loom's lock is not poisoned")
        }

        pub(crate) fn write(&self) -> loom::sync::RwLockWriteGuard<'_, T> {
            self.0.write().expect("loom's lock is not poisoned")
        }
    }
}

pub(crate) use half::*;

/// Shared with the kernel, or with the whole process: never loom's.
pub(crate) mod real {
    pub(crate) type AtomicU32 = std::sync::atomic::AtomicU32;
    pub(crate) type AtomicU64 = std::sync::atomic::AtomicU64;
    pub(crate) type Mutex<T> = parking_lot::Mutex<T>;
    pub(crate) type OnceLock<T> = std::sync::OnceLock<T>;
    pub(crate) use std::thread::yield_now;
}

pub(crate) use std::sync::atomic::Ordering;
