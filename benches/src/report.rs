//! The table that a person reads and the JSON that a program reads.

use std::fmt::{self, Write as _};

use serde::Serialize;

use crate::contest::{Latencies, Measured, Outcome, Plan, Unit};
use crate::environment::Environment;
use crate::stats::{Summary, Verdict};

/// A whole run.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// Where it ran.
    pub environment: Environment,
    /// How long each slice was, and how many there were.
    pub plan: Plan,
    /// Whether this run only checks results: too short and too small for any figure to mean something.
    pub tiny: bool,
    /// Scenarios, in the order in which they ran.
    pub scenarios: Vec<Row>,
}

/// A scenario and what came of it.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    /// The scenario's name.
    pub scenario: String,
    /// What its works do, in a sentence.
    pub about: String,
    /// What a rate counts.
    pub unit: Unit,
    /// How it ended.
    #[serde(flatten)]
    pub result: RowResult,
}

/// How a scenario ended.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "lowercase")]
#[allow(clippy::exhaustive_enums, reason = "a scenario is measured, fails, or cannot be run here")]
pub enum RowResult {
    /// All works gave the right result and were measured.
    Measured(Outcome),
    /// A work failed or gave a wrong result.
    Failed(String),
    /// This machine or this choice of backends does not allow it.
    Skipped(String),
}

impl Report {
    /// Whether every scenario was measured or skipped with a reason.
    pub fn succeeded(&self) -> bool {
        self.scenarios.iter().all(|row| !matches!(row.result, RowResult::Failed(_)))
    }

    /// The whole report as JSON, slices included.
    pub fn to_json(&self) -> serde_json::Result<String> {
        serde_json::to_string_pretty(self)
    }
}

/// The columns of [`head`] and [`Row`]'s text.
const SCENARIO: usize = 24;
const NAME: usize = 14;
const RATE: usize = 15;
const RATIO: usize = 22;

/// The line above the rows.
pub fn head() -> String {
    format!(
        "{:SCENARIO$} {:NAME$} {:>RATE$}  {:RATIO$} {:7} {:20} {:14} to first",
        "scenario", "work", "rate", "ratio [95 %]", "cpu", "reference", "goal"
    )
}

impl Row {
    /// The row as lines of a table; without ratios where `claims` is false.
    pub fn to_text(&self, claims: bool) -> String {
        let mut text = String::new();
        match &self.result {
            RowResult::Failed(why) => line(&mut text, &self.scenario, &format!("FAILED   {why}")),
            RowResult::Skipped(why) => line(&mut text, &self.scenario, &format!("skipped  {why}")),
            RowResult::Measured(outcome) => {
                let mut scenario = self.scenario.as_str();
                for measured in &outcome.entrants {
                    let name = if measured.reference.is_some() { &measured.name } else { "-" };
                    // What is too long for its column has a line of its own: the others stay where they are.
                    if scenario.len() > SCENARIO || name.len() > NAME {
                        line(&mut text, scenario, if name.len() > NAME { name } else { "" });
                        scenario = "";
                    }
                    let name = if name.len() > NAME { "" } else { name };
                    let columns = columns(measured, self.unit, claims);
                    line(&mut text, scenario, &format!("{name:NAME$} {columns}"));
                    scenario = "";
                    if let Some(latency) = measured.latency.filter(|_| claims) {
                        line(&mut text, "", &format!("{:NAME$} {}", "", latency_text(latency)));
                    }
                }
                line(&mut text, "", &format!("results equal, hash {:08x}", outcome.hash));
            }
        }
        text
    }
}

fn line(text: &mut String, scenario: &str, rest: &str) {
    // Writing to a String does not fail.
    let _ = writeln!(text, "{}", format!("{scenario:SCENARIO$} {rest}").trim_end());
}

/// All but the names of scenario and work.
fn columns(measured: &Measured, unit: Unit, claims: bool) -> String {
    let Measured { name, reference, goal, rate, ratio, cpu_ratio, to_first, .. } = measured;
    let rate = rate.map_or_else(String::new, |rate| in_units(rate.median, unit));
    let Some(reference) = reference else {
        return format!("{rate:>RATE$}  {:RATIO$} {:7} {name}", "reference", "");
    };
    let shown = |summary: &Option<Summary>| {
        summary.filter(|_| claims).map_or("-".to_owned(), |s| Ratio(s).to_string())
    };
    let goal = match (goal, ratio) {
        (Some(goal), Some(ratio)) if claims => format!("{goal} {}", Standing(ratio.against(*goal))),
        _ => "-".to_owned(),
    };
    let median =
        |summary: &Option<Summary>| summary.filter(|_| claims).map_or(String::new(), |s| digits(s.median));
    let (cpu, to_first) = (median(cpu_ratio), median(to_first));
    format!("{rate:>RATE$}  {:RATIO$} {cpu:7} {reference:20} {goal:14} {to_first}", shown(ratio))
}

fn latency_text(latency: Latencies) -> String {
    let Latencies { p50_us, p99_us, max_us } = latency;
    format!("p50 {}, p99 {}, longest {}", time(p50_us.median), time(p99_us.median), time(max_us))
}

/// A time in microseconds, with three digits and its unit.
fn time(us: f64) -> String {
    let (scaled, unit) = match us {
        us if us >= 1e6 => (us / 1e6, "s"),
        us if us >= 1e3 => (us / 1e3, "ms"),
        us => (us, "us"),
    };
    format!("{} {unit}", three_digits(scaled))
}

fn three_digits(value: f64) -> String {
    let decimals = if value < 10.0 { 2 } else { usize::from(value < 100.0) };
    format!("{value:.decimals$}")
}

struct Ratio(Summary);

impl fmt::Display for Ratio {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Summary { median, interval, .. } = self.0;
        f.write_str(&digits(median))?;
        match interval {
            Some(interval) => write!(f, " [{}, {}]", digits(interval.low), digits(interval.high)),
            None => f.write_str(" [too few]"),
        }
    }
}

struct Standing(Verdict);

impl fmt::Display for Standing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.0 {
            Verdict::Met => "met",
            Verdict::Missed => "MISSED",
            Verdict::Open => "undecided",
        })
    }
}

/// A ratio: three decimals, more where it is small.
fn digits(ratio: f64) -> String {
    let decimals = if ratio >= 0.1 { 3 } else { 4 };
    format!("{ratio:.decimals$}")
}

/// A rate with three digits and its unit.
fn in_units(rate: f64, unit: Unit) -> String {
    let (scaled, prefix) = match rate {
        r if r >= 1e9 => (r / 1e9, "G"),
        r if r >= 1e6 => (r / 1e6, "M"),
        r if r >= 1e3 => (r / 1e3, "k"),
        r => (r, ""),
    };
    let digits = three_digits(scaled);
    let unit = match unit {
        Unit::Bytes => "B",
        Unit::Appends | Unit::Arrivals => "appends",
        Unit::Records => "records",
        Unit::Lookups => "lookups",
    };
    let gap = if prefix.is_empty() || unit == "B" { "" } else { " " };
    format!("{digits} {prefix}{gap}{unit}/s")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::contest::Slice;
    use crate::stats::Interval;

    fn summary(median: f64) -> Option<Summary> {
        let interval = Interval { low: median * 0.9, high: median * 1.1, confidence: 0.96 };
        Some(Summary { count: 15, median, interval: Some(interval) })
    }

    fn row() -> Row {
        let measured = |name: &str, reference: Option<&str>, ratio, to_first| Measured {
            name: name.to_owned(),
            reference: reference.map(str::to_owned),
            goal: reference.map(|_| 0.9),
            rate: summary(2.5e9),
            ratio,
            cpu_ratio: ratio,
            to_first,
            latency: None,
            slices: vec![Slice { units: 5, seconds: 0.5, cpu_seconds: 0.4, latency: None }],
        };
        let outcome = Outcome {
            hash: 0xBEEF,
            entrants: vec![
                measured("pwrite + CRC", None, None, None),
                measured("std", Some("pwrite + CRC"), summary(1.0), None),
                measured("memory", Some("pwrite + CRC"), summary(0.5), summary(0.25)),
            ],
        };
        Row {
            scenario: "append-16k".to_owned(),
            about: String::new(),
            unit: Unit::Bytes,
            result: RowResult::Measured(outcome),
        }
    }

    #[test]
    fn a_row_shows_rate_ratio_interval_reference_and_goal() {
        let text = row().to_text(true);
        let lines: Vec<&str> = text.lines().collect();
        assert!(lines[0].starts_with("append-16k") && lines[0].ends_with("pwrite + CRC"), "{text}");
        assert!(lines[1].contains("2.50 GB/s") && lines[1].contains("1.000 [0.900, 1.100]"), "{text}");
        assert!(lines[1].contains("0.9 met"), "{text}");
        assert!(lines[2].contains("0.9 MISSED") && lines[2].ends_with("0.250"), "{text}");
        assert!(lines[3].ends_with("hash 0000beef"), "{text}");
        assert_eq!(head().find("reference"), lines[1].find("pwrite"));
    }

    #[test]
    fn long_names_leave_the_columns_where_they_are() {
        let mut row = row();
        row.scenario = "append-durable-4k-64-tasks-to-1".to_owned();
        let RowResult::Measured(outcome) = &mut row.result else { panic!("it was measured") };
        outcome.entrants[1].name = "uring+direct,depth=16,zeroed=1m".to_owned();
        let text = row.to_text(true);
        for name in [&row.scenario, "uring+direct,depth=16,zeroed=1m"] {
            assert!(text.lines().any(|line| line.trim() == name), "{name} in {text}");
        }
        let rows: Vec<&str> = text.lines().filter(|line| line.contains("pwrite")).collect();
        assert_eq!(rows.len(), 3, "{text}");
        assert!(rows.iter().all(|row| row.find("pwrite") == head().find("reference")), "{text}");
        assert!(rows[2].contains(" memory "), "{text}");
    }

    #[test]
    fn latencies_stand_below_the_work_that_they_are_of() {
        let mut row = row();
        let RowResult::Measured(outcome) = &mut row.result else { panic!("it was measured") };
        let [p50, p99] = [81.25, 1_234.0].map(|us| summary(us).unwrap());
        outcome.entrants[1].latency = Some(Latencies { p50_us: p50, p99_us: p99, max_us: 2.5e6 });
        let text = row.to_text(true);
        assert_eq!(text.lines().nth(2).unwrap().trim(), "p50 81.2 us, p99 1.23 ms, longest 2.50 s");
        assert!(!row.to_text(false).contains("p50"));
    }

    #[test]
    fn a_tiny_run_claims_nothing() {
        let text = row().to_text(false);
        assert!(!text.contains("1.000") && !text.contains("met") && !text.contains("0.25"), "{text}");
        assert!(text.contains("hash 0000beef"));
    }

    #[test]
    fn failed_and_skipped_scenarios_say_why() {
        let with = |result| Row { result, ..row() };
        assert!(with(RowResult::Failed("no space".to_owned())).to_text(true).contains("FAILED   no space"));
        assert!(
            with(RowResult::Skipped("no memory".to_owned())).to_text(true).contains("skipped  no memory")
        );
    }

    #[test]
    fn json_holds_every_slice() {
        let json = serde_json::to_value(row()).unwrap();
        assert_eq!(json["unit"], "bytes");
        assert_eq!(json["measured"]["entrants"][1]["slices"][0]["units"], 5);
        assert_eq!(json["measured"]["entrants"][1]["ratio"]["interval"]["low"], 0.9);
    }

    #[test]
    fn rates_keep_three_digits() {
        assert_eq!(in_units(2.345e9, Unit::Bytes), "2.35 GB/s");
        assert_eq!(in_units(23.45e6, Unit::Records), "23.4 M records/s");
        assert_eq!(in_units(234.5e3, Unit::Lookups), "234 k lookups/s");
        assert_eq!(in_units(5.0, Unit::Appends), "5.00 appends/s");
    }
}
