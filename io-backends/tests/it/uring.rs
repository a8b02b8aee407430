//! The ring under more than it has room for, and at its end.

use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use kseg_io_backends::{Appender, Backend, Op, OpenHow, Through, appender};

use crate::places;

fn with_uring(spec: &str, test: impl Fn(Arc<dyn Backend>, &Path)) {
    let dir = places::on_disk();
    if let Some(backend) = places::backend(spec, dir.path()) {
        test(backend, dir.path());
    }
}

#[test]
fn iob_05_more_writes_than_completions_fit_all_complete_once() {
    const WRITES: usize = 2500;
    with_uring("uring,entries=2,inline=0", |backend, dir| {
        std::thread::scope(|scope| {
            for thread in 0..4_u8 {
                let backend = &backend;
                let path = dir.join(thread.to_string());
                scope.spawn(move || {
                    let file = backend.open(&path, OpenHow::CreateNew).unwrap();
                    let write = |index: usize| {
                        let data = Bytes::from(vec![thread ^ index as u8; 100]).into();
                        file.submit(Op::Write { at: index as u64 * 100, data, through: Through::No })
                    };
                    let tickets: Vec<_> = (0..WRITES).map(write).collect();
                    for ticket in tickets {
                        assert_eq!(ticket.wait().result.unwrap(), 100);
                    }
                });
            }
        });
        for thread in 0..4_u8 {
            let seen = std::fs::read(dir.join(thread.to_string())).unwrap();
            let expected: Vec<u8> = (0..WRITES).flat_map(|index| [thread ^ index as u8; 100]).collect();
            assert_eq!(seen, expected);
        }
    });
}

#[test]
fn iob_04_what_is_in_flight_is_written_though_everybody_has_gone() {
    with_uring("uring,inline=0", |backend, dir| {
        let path = dir.join("0.log");
        let file = backend.open(&path, OpenHow::CreateNew).unwrap();
        for index in 0..200_u64 {
            let data = Bytes::from(vec![0xaa; 1000]).into();
            drop(file.submit(Op::Write { at: index * 1000, data, through: Through::No }));
            // Memory that would be taken again, had the write let go of it.
            std::hint::black_box(vec![0x55_u8; 1000]);
        }
        drop(file);
        drop(backend);
        assert_eq!(std::fs::read(&path).unwrap(), vec![0xaa; 200_000]);
    });
}

#[test]
fn tickets_are_waited_for_in_any_order_from_any_thread() {
    with_uring("uring,entries=4,inline=0", |backend, dir| {
        let file = backend.open(&dir.join("0.log"), OpenHow::CreateNew).unwrap();
        for round in 0..50_u64 {
            let mut tickets: Vec<_> = (0..8_u64)
                .map(|index| {
                    let data = vec![Bytes::from(vec![index as u8; 50]), Bytes::from(vec![0xff; 50])].into();
                    let through = if index % 3 == 0 { Through::Data } else { Through::No };
                    file.submit(Op::Write { at: round * 800 + index * 100, data, through })
                })
                .collect();
            tickets.rotate_left((round % 8) as usize);
            std::thread::scope(|scope| {
                for ticket in tickets {
                    scope.spawn(|| assert_eq!(ticket.wait().result.unwrap(), 100));
                }
            });
        }
        assert_eq!(file.len().unwrap(), 40_000);
        assert_eq!(backend.drive(std::time::Duration::from_millis(1)).unwrap(), 0, "nothing is left");
    });
}

#[test]
fn a_view_waits_for_writes_that_nobody_waits_for() {
    with_uring("uring,inline=0", |backend, dir| {
        let file = backend.open(&dir.join("0.log"), OpenHow::CreateNew).unwrap();
        let write = |at| {
            let data = Bytes::from(vec![7; 100_000]).into();
            file.submit(Op::Write { at, data, through: Through::No })
        };
        write(0).wait().result.unwrap();
        drop((1..10).map(|index| write(index * 100_000)).collect::<Vec<_>>());
        let view = file.map_bytes(0..100_000).unwrap();
        assert_eq!(view, vec![7; 100_000]);
        assert!(write(50_000).wait().result.is_err(), "the view shows these bytes");
    });
}

#[test]
fn many_logs_share_a_ring() {
    with_uring("uring,entries=2,inline=0,depth=4", |backend, dir| {
        std::thread::scope(|scope| {
            for thread in 0..6_u8 {
                let backend = &backend;
                let path = dir.join(format!("{thread}.log"));
                scope.spawn(move || {
                    let log = appender(backend.open(&path, OpenHow::CreateNew).unwrap(), 0).unwrap();
                    let log: Arc<dyn Appender> = log;
                    for round in 0..60_u8 {
                        log.append(Bytes::from(vec![round; 999]).into()).unwrap();
                        if round % 20 == thread {
                            assert_eq!(log.flush().unwrap(), (u64::from(round) + 1) * 999);
                        }
                    }
                    drop(log);
                    let expected: Vec<u8> = (0..60).flat_map(|round| [round; 999]).collect();
                    assert_eq!(std::fs::read(&path).unwrap(), expected);
                });
            }
        });
    });
}

#[test]
fn more_files_than_a_ring_holds_are_written_each_with_its_own() {
    with_uring("uring,inline=0", |backend, dir| {
        let open =
            |index: u32| (index, backend.open(&dir.join(index.to_string()), OpenHow::CreateNew).unwrap());
        let mut files: Vec<_> = (0..300).map(open).collect();
        // The places of those that are gone go to others.
        files.retain(|(index, _)| index % 3 != 0);
        files.extend((300..500).map(open));
        for (index, file) in &files {
            let data = Bytes::copy_from_slice(&index.to_be_bytes()).into();
            let done = file.submit(Op::Write { at: 0, data, through: Through::No }).wait();
            assert_eq!(done.result.unwrap(), 4);
        }
        let read = |index: u32| std::fs::read(dir.join(index.to_string())).unwrap();
        assert!(files.iter().all(|(index, _)| read(*index) == index.to_be_bytes()));
        assert!((0..300).step_by(3).all(|gone| read(gone).is_empty()));
    });
}
