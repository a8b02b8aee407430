//! What is measured.
//!
//! A scenario is a name, a unit, and a function that makes its entrants: for each medium among the backends a bare loop, and
//! for each backend the same work through the log.

mod append;
mod arrivals;
mod clean;
mod codec;
mod direct;
mod lookup;
mod read;
mod recover;
mod scale;
mod writer;

use std::fmt;

use crate::bench::Bench;
use crate::contest::{Entrant, Unit};
use crate::error::BenchError;

/// One thing to measure.
pub struct Scenario {
    /// The name that `--scenarios` takes.
    pub name: String,
    /// What its works do, in a sentence.
    pub about: String,
    /// What a rate counts.
    pub unit: Unit,
    /// Whether it runs when nothing is said.
    pub by_default: bool,
    make: Make,
}

type Make = Box<dyn Fn(&mut Bench) -> Result<Vec<Entrant>, BenchError>>;

impl fmt::Debug for Scenario {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Scenario").field("name", &self.name).field("unit", &self.unit).finish_non_exhaustive()
    }
}

impl Scenario {
    fn new(
        name: impl Into<String>,
        about: impl Into<String>,
        unit: Unit,
        make: impl Fn(&mut Bench) -> Result<Vec<Entrant>, BenchError> + 'static,
    ) -> Scenario {
        Scenario { name: name.into(), about: about.into(), unit, by_default: true, make: Box::new(make) }
    }

    fn on_request(mut self) -> Scenario {
        self.by_default = false;
        self
    }

    pub(crate) fn entrants(&self, bench: &mut Bench) -> Result<Vec<Entrant>, BenchError> {
        (self.make)(bench)
    }
}

/// All scenarios, in the order in which they run: those that write, those that read what was filled, those without a log.
pub fn all() -> Vec<Scenario> {
    let mut all = append::scenarios();
    all.extend(arrivals::scenarios());
    all.extend(direct::scenarios());
    all.extend(writer::scenarios());
    all.extend(read::scenarios());
    all.extend(recover::scenarios());
    all.extend(lookup::scenarios());
    all.extend(scale::scenarios());
    all.extend(clean::scenarios());
    all.extend(codec::scenarios());
    all
}

/// The scenarios of a comma-separated list: names, `default`, `all`, or `x*` for all that begin with `x`.
///
/// # Errors
/// [`BenchError::Asked`] where a part of the list names none.
pub fn named(list: &str) -> Result<Vec<Scenario>, BenchError> {
    let mut chosen = Vec::new();
    let mut all = all();
    for part in list.split(',').map(str::trim) {
        let is_asked = |scenario: &Scenario| match (part, part.strip_suffix('*')) {
            ("all", _) => true,
            ("default", _) => scenario.by_default,
            (_, Some(beginning)) => scenario.name.starts_with(beginning),
            (name, None) => scenario.name == name,
        };
        let before = chosen.len();
        chosen.extend(all.extract_if(.., |scenario| is_asked(scenario)));
        let twice = chosen.iter().take(before).any(is_asked);
        if chosen.len() == before && !twice {
            return Err(BenchError::Asked(format!("there is no scenario {part:?}; --list shows them")));
        }
    }
    Ok(chosen)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(list: &str) -> Vec<String> {
        named(list).unwrap().into_iter().map(|scenario| scenario.name).collect()
    }

    #[test]
    fn names_are_unique() {
        let mut all = names("all");
        let count = all.len();
        all.sort();
        all.dedup();
        assert_eq!(all.len(), count);
    }

    #[test]
    fn a_list_keeps_its_order_and_takes_each_once() {
        assert_eq!(names("lookup, append-16k,lookup"), ["lookup", "append-16k"]);
        assert!(names("append*").len() > 2 && names("append*").iter().all(|name| name.starts_with("append")));
        assert!(names("default").len() < names("all").len());
    }

    #[test]
    fn an_unknown_name_is_refused() {
        for list in ["no-such", "", "append-16k,nope*"] {
            assert!(matches!(named(list), Err(BenchError::Asked(_))), "{list}");
        }
    }
}
