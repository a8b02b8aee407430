//! The part of the comparison that needs Java.

use serde_json::Value;

use super::differences::NOT_RUN;
use super::golden::{Verdict, temporary, told, verdict};
use super::oracle::{Oracle, kafka};
use super::story::{self, Story};
use super::{Asked, broker, dump, random};
use crate::{Outcome, shell};

/// Operations of a random story.
const RANDOM_LENGTH: u32 = 150;

/// Every story, or one; without a name also the dump tool and the broker.
///
/// # Errors
/// What differs, and what did not run.
pub(crate) fn run(asked: &Asked) -> Outcome {
    let only = asked.story.as_deref();
    println!("live: {}", shell::output(&mut kafka(["build"]))?.trim());
    let mut failed = Vec::new();
    for name in story::names()?.into_iter().filter(|n| only.is_none_or(|o| o == n)) {
        if NOT_RUN.contains(&name.as_str()) {
            continue;
        }
        let verdict = put_to_both(&name)?;
        println!("live   {name:<34} {}{}", told(&verdict), story::instead(&name));
        if verdict.failed() {
            failed.extend(verdict.found);
        } else if only.is_some() {
            verdict.found.iter().for_each(|f| println!("  {f}"));
        }
    }
    if only.is_none() {
        for seed in asked.seed..asked.seed + asked.random {
            let found = random::story(seed, RANDOM_LENGTH)?;
            println!("live   random-{seed:<27} {}", if found.is_empty() { "agrees" } else { "DIFFERS" });
            failed.extend(found);
        }
        for (what, outcome) in [("dump tool", dump::run()), ("broker", broker::run())] {
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
