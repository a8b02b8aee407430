//! Handles on bytes becoming durable, and the sync that serves all who wait.

use std::future::Future;
use std::path::Path;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Barrier, Mutex, mpsc};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};
use std::time::Duration;

use bytes::Bytes;
use kseg_io_backends::{
    Align, Appender, Backend, Call, Completer, Durability, Fault, Faulty, FileCaps, MemoryBackend, Metered,
    Moment, Op, OpenHow, RawFile, Ticket, Verdict, Watched, appender,
};

use crate::places;

fn on(backend: &dyn Backend, dir: &Path) -> Arc<dyn Appender> {
    backend.names().create_dir_all(dir).unwrap();
    appender(backend.open(&dir.join("0.log"), OpenHow::CreateNew).unwrap(), 0).unwrap()
}

fn ask(log: &Arc<dyn Appender>) -> Durability {
    log.append_durable(Bytes::from_static(b"some bytes").into()).unwrap().1
}

struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

fn block_on<F: Future + Unpin>(mut future: F) -> F::Output {
    let waker = Waker::from(Arc::new(Unpark(thread::current())));
    loop {
        match Pin::new(&mut future).poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(output) => return output,
            Poll::Pending => thread::park(),
        }
    }
}

/// Runs `work` on a thread of its own. Far longer than it takes: what meets it hangs.
fn in_time(work: impl FnOnce() + Send + 'static) {
    let (done, ended) = mpsc::channel();
    let worker = thread::spawn(move || {
        work();
        done.send(()).unwrap();
    });
    assert_ne!(ended.recv_timeout(Duration::from_secs(60)), Err(mpsc::RecvTimeoutError::Timeout), "it hangs");
    worker.join().unwrap();
}

#[test]
fn one_sync_answers_all_who_asked_before_it() {
    let metered = Metered::new(Arc::new(MemoryBackend::new()));
    let log = on(&metered, Path::new("d"));
    let handles: Vec<Durability> = (0..5).map(|_| ask(&log)).collect();
    assert!(handles.iter().all(|handle| handle.check().is_none()), "nobody has waited yet");
    assert_eq!(metered.calls(Call::Flush, "log").calls, 0);
    let last = ask(&log);
    assert_eq!((last.position(), last.wait().unwrap()), (60, 60));
    for handle in handles {
        assert_eq!(handle.check().unwrap().unwrap(), 60);
        assert_eq!(handle.wait().unwrap(), 60);
    }
    assert_eq!(metered.calls(Call::Flush, "log").calls, 1);
}

#[test]
fn a_handle_is_waited_on_asked_or_awaited_on_every_backend() {
    places::with_each(|spec, backend, dir| {
        let log = on(&*backend, dir);
        assert_eq!(ask(&log).wait().unwrap(), 10, "{spec}");
        assert_eq!(block_on(ask(&log)).unwrap(), 20, "{spec}");
        let asked = ask(&log);
        drop(ask(&log));
        assert_eq!(log.flush().unwrap(), 40);
        assert_eq!(asked.check().unwrap().unwrap(), 40);
        assert_eq!(log.marks().durable(), 40);
        // Bytes that were durable before need nobody.
        assert_eq!(Arc::clone(&log).durability(5).check().unwrap().unwrap(), 40);
    });
}

#[test]
fn many_threads_and_tasks_are_all_answered_and_never_too_early() {
    places::with_each(|spec, backend, dir| {
        let log = on(&*backend, dir);
        let answered = AtomicUsize::new(0);
        thread::scope(|scope| {
            for number in 0..8 {
                let (log, answered) = (&log, &answered);
                scope.spawn(move || {
                    for round in 0..6 {
                        let (range, handle) =
                            log.append_durable(Bytes::from(vec![number; 777]).into()).unwrap();
                        let durable = if (u32::from(number) + round) % 3 == 0 {
                            block_on(handle).unwrap()
                        } else {
                            handle.wait().unwrap()
                        };
                        assert!(range.end <= durable && durable <= log.marks().stable(), "{spec}");
                        answered.fetch_add(1, Ordering::Relaxed);
                    }
                });
            }
        });
        assert_eq!(answered.into_inner(), 48);
        assert_eq!(log.flush().unwrap(), 48 * 777);
    });
}

#[test]
fn a_failed_sync_reaches_every_handle_and_is_not_tried_again() {
    places::with_each(|spec, backend, dir| {
        let reached = Arc::new(Metered::new(backend));
        let faulty = Faulty::new(Arc::clone(&reached) as Arc<dyn Backend>);
        let log = on(&faulty, dir);
        let before = ask(&log);
        log.flush().unwrap();
        faulty.inject(Fault::on(Call::Flush).error(Fault::EIO));
        faulty.inject(Fault::on(Call::Write).error(Fault::EIO));
        // Where writes complete later, or are durable by themselves, it is the write that fails.
        let Ok((_, first)) = log.append_durable(Bytes::from_static(b"some bytes").into()) else {
            assert!(log.marks().fenced(), "{spec}");
            assert_eq!(before.wait().unwrap(), 10);
            return;
        };
        let second = Arc::clone(&log).durability(log.marks().accepted());
        let error = block_on(first).unwrap_err();
        assert!(matches!(error.verdict(), Verdict::Damaged | Verdict::Fenced), "{spec}: {error}");
        assert_eq!(second.wait().unwrap_err().verdict(), Verdict::Fenced);
        assert_eq!(before.wait().unwrap(), 10, "what was durable stays so");
        reached.reset();
        assert_eq!(log.flush().unwrap_err().verdict(), Verdict::Fenced);
        assert_eq!(reached.calls(Call::Flush, "log").calls, 0);
        assert_eq!(log.marks().durable(), 10);
    });
}

#[test]
fn a_truncation_ends_the_handles_that_were_not_answered() {
    let log = on(&MemoryBackend::new(), Path::new("d"));
    let early = ask(&log);
    log.flush().unwrap();
    assert_eq!(early.check().unwrap().unwrap(), 10);
    let cut = ask(&log);
    log.truncate(15).unwrap();
    // The same positions again: what is durable now is not what was asked about.
    let again = ask(&log);
    assert_eq!(again.wait().unwrap(), 25);
    assert_eq!(cut.wait().unwrap_err().kind(), std::io::ErrorKind::Interrupted);
}

#[test]
fn a_full_disk_fails_those_who_wait_and_fences_nothing() {
    places::with_each(|spec, backend, dir| {
        // Where writes are done when they return, a full disk is told by the append.
        let later = spec.contains("direct") || spec.contains("uring");
        let faulty = Arc::new(Faulty::new(backend));
        let log = on(&*faulty, &dir.join("d"));
        log.append(Bytes::from(vec![1; 5000]).into()).unwrap();
        assert_eq!(log.flush().unwrap(), 5000, "{spec}");
        faulty.inject(Fault::on(Call::Write).error(Fault::ENOSPC).always());
        let asked = log.append_durable(Bytes::from(vec![2; 5000]).into());
        if !later {
            assert_eq!(asked.unwrap_err().verdict(), Verdict::NoSpace, "{spec}");
        } else if let Ok((range, handle)) = asked {
            assert_eq!(range, 5000..10_000, "{spec}");
            // The one who waits, and the one who awaits.
            let other = Arc::clone(&log).durability(10_000);
            assert_eq!(handle.wait().unwrap_err().verdict(), Verdict::NoSpace, "{spec}");
            assert_eq!(block_on(other).unwrap_err().verdict(), Verdict::NoSpace, "{spec}");
            // Nothing more is taken, and what was taken is there.
            let refused = log.append(Bytes::from(vec![3; 5000]).into()).unwrap_err();
            assert_eq!(refused.verdict(), Verdict::NoSpace, "{spec}: {refused}");
            let mut seen = vec![0; 20_000];
            assert_eq!(log.read_at(&mut seen, 0).unwrap(), 10_000, "{spec}");
            assert!(seen[..5000] == [1; 5000] && seen[5000..10_000] == [2; 5000], "{spec}");
        }
        assert!(!log.marks().fenced(), "{spec}");
        assert_eq!(log.marks().durable(), 5000, "{spec}");
        faulty.clear();
        let (range, handle) = log.append_durable(Bytes::from(vec![4; 5000]).into()).unwrap();
        assert_eq!(block_on(handle).unwrap(), range.end, "{spec}");
        log.seal().unwrap();
        let seen = std::fs::read(dir.join("d/0.log")).unwrap();
        assert_eq!(seen.len() as u64, range.end, "{spec}");
        assert!(seen[..5000] == [1; 5000] && seen[range.start as usize..] == [4; 5000], "{spec}");
    });
}

#[test]
fn a_handle_on_bytes_that_are_not_there_is_refused() {
    places::with_each(|_, backend, dir| {
        let log = on(&*backend, dir);
        drop(ask(&log));
        in_time(move || {
            let beyond = || Arc::clone(&log).durability(11);
            assert_eq!(beyond().check().unwrap().unwrap_err().verdict(), Verdict::Misuse);
            assert_eq!(block_on(beyond()).unwrap_err().verdict(), Verdict::Misuse);
            let error = beyond().wait().unwrap_err();
            assert_eq!((error.verdict(), error.size()), (Verdict::Misuse, Some(11)), "{error}");
            assert_eq!(Arc::clone(&log).durability(10).wait().unwrap(), 10);
        });
    });
}

/// A waker that asks for the next bytes at once, so that somebody always waits for its log.
struct Chain {
    log: Arc<dyn Appender>,
    next: Mutex<Option<Durability>>,
    ended: Arc<AtomicBool>,
}

impl Chain {
    fn begin(log: Arc<dyn Appender>, ended: &Arc<AtomicBool>) -> Arc<Self> {
        let chain = Arc::new(Chain { log, next: Mutex::new(None), ended: Arc::clone(ended) });
        Arc::clone(&chain).wake();
        chain
    }
}

impl Wake for Chain {
    fn wake(self: Arc<Self>) {
        if !self.ended.load(Ordering::SeqCst) {
            let mut next = ask(&self.log);
            let waker = Waker::from(Arc::clone(&self));
            assert!(Pin::new(&mut next).poll(&mut Context::from_waker(&waker)).is_pending());
            *self.next.lock().unwrap() = Some(next);
        }
    }
}

#[test]
fn who_awaits_bytes_of_one_file_is_served_beside_others_whose_files_are_never_at_rest() {
    in_time(|| {
        let backend = MemoryBackend::new();
        let ended = Arc::new(AtomicBool::new(false));
        let on = |number: usize| on(&backend, Path::new(&format!("d{number}")));
        let chains: Vec<Arc<Chain>> = (0..8).map(|number| Chain::begin(on(number), &ended)).collect();
        let log = on(8);
        for round in 1..=20 {
            assert_eq!(block_on(ask(&log)).unwrap(), 10 * round);
        }
        ended.store(true, Ordering::SeqCst);
        drop(chains);
    });
}

#[test]
fn space_ahead_is_taken_though_all_threads_of_the_background_are_busy() {
    places::with_each(|spec, backend, dir| {
        if !spec.contains("zeroed") {
            return;
        }
        // As many syncs as there are threads, and more, that last until all is over.
        let gate = Arc::new(Barrier::new(2));
        let held = Arc::new(Mutex::new(()));
        let stuck = {
            let held = Arc::clone(&held);
            Watched::new(Arc::new(MemoryBackend::new()), move |moment, call, _| {
                if (moment, call) == (Moment::Before, Call::Flush) {
                    drop(held.lock().unwrap());
                }
            })
        };
        let holder = {
            let (gate, held) = (Arc::clone(&gate), Arc::clone(&held));
            thread::spawn(move || {
                let _held = held.lock().unwrap();
                gate.wait();
                gate.wait();
            })
        };
        gate.wait();
        let mut waiting: Vec<Durability> =
            (0..6).map(|number| ask(&on(&stuck, Path::new(&format!("d{number}"))))).collect();
        for handle in &mut waiting {
            assert!(Pin::new(handle).poll(&mut Context::from_waker(Waker::noop())).is_pending());
        }
        let dir = dir.to_path_buf();
        let (done, ended) = mpsc::channel();
        let worker = thread::spawn(move || {
            let log = on(&*backend, &dir);
            for _ in 0..200 {
                log.append(Bytes::from(vec![1; 10_000]).into()).unwrap();
            }
            log.seal().unwrap();
            done.send(()).unwrap();
        });
        let in_time = ended.recv_timeout(Duration::from_secs(60));
        gate.wait();
        holder.join().unwrap();
        assert_eq!(in_time, Ok(()), "{spec} hangs");
        worker.join().unwrap();
    });
}

/// A file whose writes are done once as many are in flight as its plan allows, the last one first; or at a sync.
#[derive(Debug)]
struct Together {
    file: Arc<dyn RawFile>,
    flying: Mutex<Vec<(Op, Completer)>>,
}

const DEPTH: u32 = 4;
const CHUNK: u32 = 4096;

impl RawFile for Together {
    forward_to!(file);

    fn align(&self) -> Align {
        self.file.align()
    }

    fn caps(&self) -> FileCaps {
        let mut caps = self.file.caps();
        (caps.parallel_append, caps.plan.depth, caps.plan.chunk) = (true, DEPTH, CHUNK);
        caps
    }

    fn submit(&self, op: Op) -> Ticket {
        if !matches!(op, Op::Write { .. }) {
            return self.file.submit(op);
        }
        let (completer, ticket) = Ticket::pending();
        let mut flying = self.flying.lock().unwrap();
        flying.push((op, completer));
        assert!(flying.len() <= DEPTH as usize);
        if flying.len() == DEPTH as usize {
            for (op, completer) in flying.drain(..).rev() {
                completer.complete(self.file.submit(op).wait());
            }
        }
        ticket
    }
}

#[test]
fn as_many_writes_are_in_flight_as_the_plan_allows_and_end_in_any_order() {
    in_time(|| {
        let file = MemoryBackend::new().open(Path::new("0.log"), OpenHow::Create).unwrap();
        let log = appender(Arc::new(Together { file, flying: Mutex::default() }), 0).unwrap();
        let all: Vec<u8> = (0..3 * DEPTH * CHUNK).map(|place| (place * 31 % 251) as u8).collect();
        for part in all.chunks(CHUNK as usize) {
            log.append(Bytes::copy_from_slice(part).into()).unwrap();
        }
        assert_eq!(log.flush().unwrap(), all.len() as u64);
        let mut read = vec![0; all.len()];
        assert_eq!(log.file().read_at(&mut read, 0).unwrap(), all.len());
        assert_eq!(read, all);
    });
}
