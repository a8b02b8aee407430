//! fio, where it is installed: the same kind of writes by a program that knows nothing of logs.

use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use serde_json::Value;

use crate::bench::Scale;
use crate::contest::{Slice, Work};
use crate::error::{BenchError, expect};
use crate::state::FileState;

/// The least time of one run: fio counts in milliseconds.
const LEAST: Duration = Duration::from_millis(20);

/// Sequential direct writes through an io_uring, to a file that is made ready once and written over and over: what was
/// written stays in the same state.
#[derive(Debug)]
pub(crate) struct Fio {
    path: PathBuf,
    size: u64,
    block: usize,
    depth: usize,
}

impl Fio {
    /// Writes of `block` bytes, `depth` in flight; none where there is no fio.
    pub(crate) fn new(
        path: PathBuf,
        block: usize,
        depth: usize,
        state: FileState,
        scale: Scale,
    ) -> Result<Option<Fio>, BenchError> {
        let there = Command::new("fio").arg("--version").output().is_ok_and(|output| output.status.success());
        if !there {
            return Ok(None);
        }
        let options = OpenOptions::new().read(true).write(true).create(true).truncate(true).clone();
        let file = options.open(&path).map_err(BenchError::io("create", &path))?;
        state.prepare(&file, &path)?;
        let size = state.cap(scale) / block as u64 * block as u64;
        Ok(Some(Fio { path, size, block, depth }))
    }

    fn run(&self, at_least: Duration) -> Result<Slice, BenchError> {
        let mut command = Command::new("fio");
        command.args(["--name=kseg", "--rw=write", "--ioengine=io_uring", "--direct=1", "--overwrite=1"]);
        command.args(["--time_based", "--output-format=json"]);
        command.arg(format!("--filename={}", self.path.display()));
        command.args([format!("--bs={}", self.block), format!("--iodepth={}", self.depth)]);
        command.arg(format!("--size={}", self.size));
        command.arg(format!("--runtime={}ms", at_least.max(LEAST).as_millis()));
        let output = command.output().map_err(BenchError::io("run fio on", &self.path))?;
        let failed = |why: &str| BenchError::Asked(format!("fio: {why}"));
        if !output.status.success() {
            return Err(failed(String::from_utf8_lossy(&output.stderr).trim()));
        }
        let text = String::from_utf8_lossy(&output.stdout);
        // Warnings may stand before the report.
        let report: Value = text
            .find('{')
            .and_then(|at| serde_json::from_str(&text[at..]).ok())
            .ok_or_else(|| failed("its report is not JSON"))?;
        slice(&report).ok_or_else(|| failed("its report does not say what was written"))
    }
}

/// What a report says of its one job.
fn slice(report: &Value) -> Option<Slice> {
    let job = &report["jobs"][0];
    let units = job["write"]["io_bytes"].as_u64()?;
    let seconds = job["write"]["runtime"].as_f64()? / 1e3;
    let running = (job["usr_cpu"].as_f64()? + job["sys_cpu"].as_f64()?) / 100.0;
    (seconds > 0.0).then_some(Slice { units, seconds, cpu_seconds: running * seconds, latency: None })
}

impl Work for Fio {
    /// That it writes where it should: no zeros are left at the file's beginning.
    fn check(&mut self) -> Result<u64, BenchError> {
        self.run(LEAST)?;
        let file = File::open(&self.path).map_err(BenchError::io("open", &self.path))?;
        let mut first = vec![0; 512];
        file.read_exact_at(&mut first, 0).map_err(BenchError::io("read", &self.path))?;
        expect("whether fio has written", 1, u64::from(first.iter().any(|byte| *byte != 0)))?;
        Ok(0)
    }

    fn is_comparable(&self) -> bool {
        false
    }

    fn slice(&mut self, at_least: Duration) -> Result<Slice, BenchError> {
        self.run(at_least)
    }
}

impl Drop for Fio {
    fn drop(&mut self) {
        // It goes with the working folder at the latest.
        let _ = fs::remove_file(&self.path);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_gives_bytes_time_and_running_time() {
        let report = r#"{"jobs": [{"usr_cpu": 10.0, "sys_cpu": 15.0,
            "write": {"io_bytes": 1048576, "runtime": 200}}]}"#;
        let report: Value = serde_json::from_str(report).unwrap();
        assert_eq!(
            slice(&report),
            Some(Slice { units: 1 << 20, seconds: 0.2, cpu_seconds: 0.05, latency: None })
        );
        assert_eq!(slice(&serde_json::json!({"jobs": []})), None);
        assert_eq!(slice(&serde_json::json!({"jobs": [{"write": {"io_bytes": 1, "runtime": 0}}]})), None);
    }
}
