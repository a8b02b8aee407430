//! A story in the making: each operation is chosen with Kafka's answers so far in mind.

use serde_json::{Value, json};

use super::super::oracle::Oracle;
use super::super::story::Story;

/// When every random story begins.
pub(super) const START: i64 = 1_700_000_000_000;

/// Repeatable numbers, spread well enough for choosing (xorshift64*).
#[derive(Debug)]
pub(super) struct Chance(u64);

impl Chance {
    pub(super) fn new(seed: u64) -> Chance {
        Chance(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1)
    }

    /// A number below `bound`.
    pub(super) fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 32) % bound.max(1)
    }

    pub(super) fn long(&mut self, bound: i64) -> i64 {
        i64::try_from(self.below(u64::try_from(bound).unwrap_or(1))).unwrap_or(0)
    }

    pub(super) fn one_in(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }

    pub(super) fn pick<'a, T>(&mut self, of: &'a [T]) -> Option<&'a T> {
        let n = self.below(of.len() as u64);
        of.get(usize::try_from(n).unwrap_or(0))
    }
}

/// Lines, and Kafka's answers to them.
pub(super) struct Tale<'a> {
    pub(super) chance: Chance,
    oracle: &'a mut Oracle,
    place: String,
    pub(super) story: Story,
    pub(super) answers: Vec<Value>,
    pub(super) now: i64,
    /// The longest `file.delete.delay.ms` so far.
    delay: i64,
}

impl<'a> Tale<'a> {
    /// Nothing is open yet; logs will be below `place`.
    ///
    /// # Errors
    /// The oracle has ended.
    pub(super) fn new(
        name: String,
        seed: u64,
        place: String,
        oracle: &'a mut Oracle,
    ) -> Result<Tale<'a>, String> {
        oracle.ask(&json!({"op": "reset"}).to_string())?;
        let story = Story { name, lines: Vec::new() };
        Ok(Tale {
            chance: Chance::new(seed),
            oracle,
            place,
            story,
            answers: Vec::new(),
            now: START,
            delay: 0,
        })
    }

    /// Puts one operation to Kafka.
    ///
    /// # Errors
    /// The oracle has ended.
    pub(super) fn put(&mut self, op: Value) -> Result<Value, String> {
        if let Some(delay) = op.pointer("/config/file.delete.delay.ms").and_then(Value::as_str) {
            // What is no number is refused, and delays nothing.
            self.delay = self.delay.max(delay.parse().unwrap_or(0));
        }
        let line = op.to_string();
        let answer = self.oracle.ask(&line.replace("$DIR", &self.place))?;
        self.story.lines.push(line);
        self.answers.push(answer.clone());
        if let Some(now) = answer.pointer("/ok/now").and_then(Value::as_i64) {
            self.now = now;
        }
        Ok(answer)
    }

    /// Has done what was put off, before a log is closed or abandoned. Kafka's tasks outlive their log, also one whose process is said
    /// to have died, and remove files of those names that its next life has made; kseg's do not (row 43).
    ///
    /// # Errors
    /// The oracle has ended.
    pub(super) fn let_delays_pass(&mut self) -> Result<(), String> {
        if self.delay > 0 {
            self.put(json!({"op": "sleep", "ms": self.delay}))?;
        }
        Ok(())
    }
}
