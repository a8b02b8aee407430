//! What a round did, in numbers and in Kafka's words.
//!
//! Source: Kafka `CleanerStats`, `LogCleaner.recordStats`.

use std::fmt;
use std::time::Duration;

/// Counters of one round.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
#[non_exhaustive]
pub struct RoundStats {
    /// Bytes of the batches that the map was built from.
    pub map_bytes_read: u64,
    /// Records in them: one for each control batch.
    pub map_records_read: u64,
    /// Bytes of all batches of the segments that were copied.
    pub bytes_read: u64,
    /// Bytes of the batches that were kept.
    pub bytes_written: u64,
    /// Records that were looked at: not those of batches that went as a whole.
    pub records_read: u64,
    /// Records that were kept, control records among them.
    pub records_written: u64,
    /// Records without a key that were dropped.
    pub invalid_records: u64,
    /// Records whose key had the hash of another key, found with
    /// [`CleanerOptions::verify_keys`](crate::CleanerOptions::verify_keys); they were kept.
    pub hash_collisions: u64,
    /// Keys in the map over its slots, 0 to 1.
    pub map_utilization: f64,
    /// Segments that were replaced.
    pub segments_read: u64,
    /// Segments that took their place.
    pub segments_written: u64,
    /// How long the map took to build.
    pub map_time: Duration,
    /// How long the round took.
    pub time: Duration,
}

impl RoundStats {
    /// Records that are gone.
    pub fn records_dropped(&self) -> u64 {
        self.records_read.saturating_sub(self.records_written)
    }
}

/// A finished round in the words that Kafka logs, and operators look for.
#[derive(Debug, Clone, Copy)]
#[allow(clippy::exhaustive_structs, reason = "what the lines say")]
pub struct RoundReport<'a> {
    /// Number of the cleaner's thread.
    pub thread: usize,
    /// The log, as `topic-partition`.
    pub log: &'a str,
    /// Where the dirty section began.
    pub first_dirty: i64,
    /// Up to where it was cleaned.
    pub end: i64,
    /// The counters.
    pub stats: &'a RoundStats,
}

const MEGABYTE: f64 = (1 << 20) as f64;

impl fmt::Display for RoundReport<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let stats = self.stats;
        let mb = |bytes: u64| bytes as f64 / MEGABYTE;
        let (all, map) = (stats.time.as_secs_f64(), stats.map_time.as_secs_f64());
        let clean = (all - map).max(0.0);
        let share = |part: f64| 100.0 * part / all;
        let less = |written: u64, read: u64| 100.0 * (1.0 - written as f64 / read as f64);
        let (read, written) = (mb(stats.bytes_read), mb(stats.bytes_written));
        writeln!(
            f,
            "\n\tLog cleaner thread {} cleaned log {} (dirty section = [{}, {}])",
            self.thread, self.log, self.first_dirty, self.end
        )?;
        writeln!(
            f,
            "\t{} MB of log processed in {} seconds ({} MB/sec).",
            Grouped(read),
            Grouped(all),
            Grouped(read / all)
        )?;
        let mapped = mb(stats.map_bytes_read);
        writeln!(
            f,
            "\tIndexed {} MB in {map:.1} seconds ({} Mb/sec, {:.1}% of total time)",
            Grouped(mapped),
            Grouped(mapped / map),
            share(map)
        )?;
        writeln!(f, "\tBuffer utilization: {:.1}%", 100.0 * stats.map_utilization)?;
        writeln!(
            f,
            "\tCleaned {} MB in {clean:.1} seconds ({} Mb/sec, {:.1}% of total time)",
            Grouped(read),
            Grouped(read / clean),
            share(clean)
        )?;
        writeln!(f, "\tStart size: {} MB ({} messages)", Grouped(read), Whole(stats.records_read))?;
        writeln!(f, "\tEnd size: {} MB ({} messages)", Grouped(written), Whole(stats.records_written))?;
        write!(
            f,
            "\t{:.1}% size reduction ({:.1}% fewer messages)",
            less(stats.bytes_written, stats.bytes_read),
            less(stats.records_written, stats.records_read)
        )
    }
}

/// A number with a comma after every third digit.
struct Whole(u64);

impl fmt::Display for Whole {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let digits = self.0.to_string();
        for (n, digit) in digits.chars().enumerate() {
            if n > 0 && (digits.len() - n).is_multiple_of(3) {
                f.write_str(",")?;
            }
            write!(f, "{digit}")?;
        }
        Ok(())
    }
}

/// The same, with one decimal.
struct Grouped(f64);

impl fmt::Display for Grouped {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let tenths = (self.0 * 10.0).round();
        if !tenths.is_finite() || tenths.abs() >= u64::MAX as f64 {
            return write!(f, "{:.1}", self.0);
        }
        let sign = if tenths < 0.0 { "-" } else { "" };
        let tenths = tenths.abs() as u64;
        write!(f, "{sign}{}.{}", Whole(tenths / 10), tenths % 10)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_report_has_kafkas_lines() {
        let stats = RoundStats {
            map_bytes_read: 2 << 30,
            bytes_read: 2 << 30,
            bytes_written: 1 << 30,
            records_read: 2_000_000,
            records_written: 500_000,
            map_utilization: 0.45,
            map_time: Duration::from_secs(1),
            time: Duration::from_secs(4),
            ..RoundStats::default()
        };
        let report = RoundReport { thread: 0, log: "t-0", first_dirty: 3, end: 9, stats: &stats };
        assert_eq!(
            report.to_string(),
            "\n\tLog cleaner thread 0 cleaned log t-0 (dirty section = [3, 9])
\t2,048.0 MB of log processed in 4.0 seconds (512.0 MB/sec).
\tIndexed 2,048.0 MB in 1.0 seconds (2,048.0 Mb/sec, 25.0% of total time)
\tBuffer utilization: 45.0%
\tCleaned 2,048.0 MB in 3.0 seconds (682.7 Mb/sec, 75.0% of total time)
\tStart size: 2,048.0 MB (2,000,000 messages)
\tEnd size: 1,024.0 MB (500,000 messages)
\t50.0% size reduction (75.0% fewer messages)"
        );
    }
}
