//! The part of the comparison that needs Java.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;

use serde_json::Value;

use super::differences::NOT_RUN;
use super::golden::{Verdict, temporary, told, verdict};
use super::oracle::{Oracle, kafka};
use super::story::{self, Story};
use super::{Asked, broker, dump, random};
use crate::{Outcome, shell};

/// Stories at a time: one waits for its oracle while the other works.
const SIDE_BY_SIDE: usize = 2;

/// One folder that both clean for so many random stories.
const FOLDERS_OF: u64 = 8;

/// What the live part consists of.
pub(crate) const PARTS: &[&str] = &["stories", "random", "same-folder", "dump-tool", "broker"];

/// Every story, or one; without a name also the dump tool and the broker.
///
/// # Errors
/// What differs, and what did not run.
pub(crate) fn run(asked: &Asked) -> Outcome {
    let only = asked.story.as_deref();
    let wanted = |part: &str| asked.part.as_deref().is_none_or(|p| p == part);
    println!("live: {}", shell::output(&mut kafka(["build"]))?.trim());
    let mut failed = Vec::new();
    let names: Vec<String> = story::names()?
        .into_iter()
        .filter(|n| wanted("stories") && only.is_none_or(|o| o == n) && !NOT_RUN.contains(&n.as_str()))
        .collect();
    for (name, verdict) in names.iter().zip(side_by_side(&names, |name| put_to_both(name))) {
        let verdict = verdict?;
        println!("live   {name:<34} {}{}", told(&verdict), story::instead(name));
        if verdict.failed() {
            failed.extend(verdict.found);
        } else if only.is_some() {
            verdict.found.iter().for_each(|f| println!("  {f}"));
        }
    }
    if only.is_none() {
        type Part<'a> = (&'a str, &'a dyn Fn() -> Outcome);
        let seeds = random::Seeds {
            first: asked.seed,
            count: asked.random,
            steps: random::STEPS,
            jobs: SIDE_BY_SIDE,
        };
        let folders = random::Seeds { count: asked.random.div_ceil(FOLDERS_OF), ..seeds };
        let parts: [Part<'_>; 4] = [
            ("random", &|| random::run(&seeds)),
            ("same-folder", &|| random::run_same_folder(&folders)),
            ("dump-tool", &|| dump::run()),
            ("broker", &|| broker::run(asked.lines)),
        ];
        for (what, run) in parts.into_iter().filter(|(what, _)| wanted(what)) {
            let outcome = run();
            println!("live   {what:<34} {}", if outcome.is_ok() { "agrees" } else { "DIFFERS" });
            failed.extend(outcome.err());
        }
    }
    if failed.is_empty() {
        Ok(())
    } else {
        Err(format!("live: {} differences\n  {}", failed.len(), failed.join("\n  ")))
    }
}

/// Applies `work` to each, a few at a time. Results in order.
fn side_by_side<T: Sync, R: Send>(of: &[T], work: impl Fn(&T) -> R + Sync) -> Vec<R> {
    let next = AtomicUsize::new(0);
    let done: Mutex<Vec<(usize, R)>> = Mutex::new(Vec::new());
    thread::scope(|scope| {
        for _ in 0..SIDE_BY_SIDE {
            scope.spawn(|| {
                while let Some((n, one)) =
                    Some(next.fetch_add(1, Ordering::Relaxed)).and_then(|n| Some((n, of.get(n)?)))
                {
                    let result = work(one);
                    done.lock().unwrap_or_else(PoisonError::into_inner).push((n, result));
                }
            });
        }
    });
    let mut done = done.into_inner().unwrap_or_else(PoisonError::into_inner);
    done.sort_by_key(|(n, _)| *n);
    done.into_iter().map(|(_, result)| result).collect()
}

/// Plays a story to Kafka in one folder, then to kseg in another.
fn put_to_both(name: &str) -> Result<Verdict, String> {
    let story = Story::load(name)?;
    let folder = temporary()?;
    let place = folder.path().to_string_lossy().into_owned();
    let mut oracle = Oracle::start(&["replay"])?;
    let mut answers: Vec<Value> = Vec::new();
    for line in &story.lines {
        answers.push(oracle.ask(&line.replace("$DIR", &place))?);
    }
    drop(oracle);
    let expected = story.expected(answers)?;
    let own = story.expected_folders() == story.golden();
    let left = if own { folder.path().to_path_buf() } else { story.expected_folders() };
    verdict(&story, &expected, &left)
}
