//! A real broker adopts folders that `kseg append` has made, a real consumer reads the lines, a real producer adds some,
//! and `kseg cat` reads those.

use std::fs;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::{Value, json};

use super::golden::temporary;
use super::oracle::{Oracle, kafka};
use super::{broker_round, dump};
use crate::replay::{base64, decoded};
use crate::{Outcome, shell, workspace};

pub(super) const CODECS: &[&str] = &["none", "gzip", "snappy", "lz4", "zstd"];

/// Files of a data directory that a broker and kseg both keep beside the partitions.
const CHECKPOINTS: &[&str] = &[
    "recovery-point-offset-checkpoint",
    "log-start-offset-checkpoint",
    "replication-offset-checkpoint",
    "cleaner-offset-checkpoint",
];

/// What a broker says when it does not like a folder. A clean adoption has none of these.
const COMPLAINTS: &[&str] = &[
    "stray",
    "Found invalid messages",
    "Rebuilding",
    "Recovering unflushed",
    "orphaned",
    "orrupt",
    "No producer snapshot",
];

/// The classes that load logs; what they warn of counts.
const LOADERS: &[&str] = &["LogLoader", "LogManager", "LogSegment", "UnifiedLog", "ProducerStateManager"];

/// A broker in a folder; stopped when it is dropped, however that comes.
pub(super) struct Broker {
    pub(super) folder: PathBuf,
    port: u16,
    running: bool,
}

impl Broker {
    fn order(&self, action: &str) -> Command {
        let mut command = kafka(["broker"]);
        command.arg(&self.folder).arg(action).env("KSEG_KAFKA_PORT", self.port.to_string());
        command
    }

    /// Formats an empty cluster of one.
    pub(super) fn new(folder: &Path) -> Result<Broker, String> {
        let broker = Broker { folder: folder.to_path_buf(), port: free_ports()?, running: false };
        shell::output(&mut broker.order("new"))?;
        Ok(broker)
    }

    pub(super) fn start(&mut self) -> Outcome {
        self.running = true;
        // Its output must not be ours: the broker would keep it open.
        let mut order = self.order("start");
        order.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let status = order.status().map_err(|e| e.to_string())?;
        if status.success() {
            Ok(())
        } else {
            Err(format!("the broker does not start: {}", self.last_lines()))
        }
    }

    pub(super) fn stop(&mut self) -> Outcome {
        shell::output(&mut self.order("stop"))?;
        self.running = false;
        Ok(())
    }

    /// As if the machine had lost it: kill -9.
    pub(super) fn kill(&mut self) -> Outcome {
        shell::output(&mut self.order("kill"))?;
        self.running = false;
        Ok(())
    }

    pub(super) fn client(&self) -> Result<Oracle, String> {
        Oracle::start(&["client", &format!("127.0.0.1:{}", self.port)])
    }

    pub(super) fn log(&self) -> String {
        fs::read_to_string(self.folder.join("broker.log")).unwrap_or_default()
    }

    fn last_lines(&self) -> String {
        let log = self.log();
        let lines: Vec<&str> = log.lines().collect();
        lines[lines.len().saturating_sub(5)..].join("\n")
    }
}

impl Drop for Broker {
    fn drop(&mut self) {
        if self.running {
            let _ = shell::output(&mut self.order("kill"));
        }
    }
}

/// Two ports in a row that nobody listens on: the broker's and its controller's.
fn free_ports() -> Result<u16, String> {
    for _ in 0..100 {
        let first = TcpListener::bind(("127.0.0.1", 0)).map_err(|e| format!("a port: {e}"))?;
        let port = first.local_addr().map_err(|e| format!("a port: {e}"))?.port();
        if port < u16::MAX && TcpListener::bind(("127.0.0.1", port + 1)).is_ok() {
            return Ok(port);
        }
    }
    Err("no two free ports in a row".to_owned())
}

/// # Errors
/// The first thing that is not as it should be.
pub(crate) fn run(count: Option<u64>) -> Outcome {
    adopted_lines(count)?;
    broker_round::run()
}

fn adopted_lines(count: Option<u64>) -> Outcome {
    let kseg = dump::built()?;
    let folder = temporary()?;
    let ours = folder.path().join("kseg");
    let text = match count {
        None => lines()?,
        Some(count) => many_lines(usize::try_from(count).map_err(|e| e.to_string())?)?,
    };
    for codec in CODECS {
        append(&kseg, &ours.join(format!("lines-{codec}-0")), codec, &text)?;
    }

    let left = compacted(&kseg, &ours)?;

    let mut broker = Broker::new(&folder.path().join("broker"))?;
    broker.start()?;
    let mut client = broker.client()?;
    for codec in CODECS {
        asked(&mut client, json!({"op": "createTopic", "topic": format!("lines-{codec}")}))?;
    }
    let config = json!({"cleanup.policy": "compact"});
    asked(&mut client, json!({"op": "createTopic", "topic": COMPACTED, "config": config}))?;
    drop(client);
    broker.stop()?;
    let said_before = broker.log().len();
    hand_over(&ours, &broker.folder.join("data"))?;
    broker.start()?;

    let mut client = broker.client()?;
    asked(&mut client, json!({"op": "producer", "name": "p"}))?;
    for codec in CODECS {
        let topic = format!("lines-{codec}");
        for (n, part) in text.chunks(FETCHED_AT_ONCE).enumerate() {
            let fetch = json!({
                "op": "fetch",
                "topic": topic,
                "offset": n * FETCHED_AT_ONCE,
                "max": FETCHED_AT_ONCE
            });
            let fetched = values(&asked(&mut client, fetch)?)?;
            same(&topic, n * FETCHED_AT_ONCE, part, &fetched)?;
        }
        // Nothing behind the last line.
        let fetch = json!({"op": "fetch", "topic": topic, "offset": text.len()});
        same(&topic, text.len(), &[], &values(&asked(&mut client, fetch)?)?)?;
        let more =
            json!([{"value": base64(b"one more")}, {"value": base64("and a last \u{1f980}".as_bytes())}]);
        asked(&mut client, json!({"op": "send", "name": "p", "topic": topic, "records": more}))?;
    }
    let fetched = values(&asked(&mut client, json!({"op": "fetch", "topic": COMPACTED}))?)?;
    same(COMPACTED, 0, &left, &fetched)?;
    drop(client);
    broker.stop()?;
    let said = &broker.log()[said_before..];
    complaints(said)?;
    from_snapshots(said, text.len())?;

    let grown: Vec<String> =
        text.iter().cloned().chain(["one more".to_owned(), "and a last \u{1f980}".to_owned()]).collect();
    for codec in CODECS {
        let topic = format!("lines-{codec}");
        let partition = broker.folder.join("data").join(format!("{topic}-0"));
        let printed = shell::output(Command::new(&kseg).arg("cat").arg(&partition))?;
        same(&topic, 0, &grown, &printed.lines().map(str::to_owned).collect::<Vec<_>>())?;
    }
    println!(
        "broker adopted {} partitions of {} lines, and kseg read them back with what it added",
        CODECS.len(),
        text.len()
    );
    Ok(())
}

/// Records that a consumer is asked for at once: its answer is one line of JSON.
const FETCHED_AT_ONCE: usize = 50_000;

/// Where the texts of the machine's documentation lie.
const TEXTS: &str = "/usr/share/doc";

/// As many lines, from the machine's documentation and this workspace's own text, again from the start where these are too
/// few. No line is empty or has a carriage return, so that they can be told apart as lines.
fn many_lines(count: usize) -> Result<Vec<String>, String> {
    let mut out = lines()?;
    let mut folders = vec![PathBuf::from(TEXTS)];
    while let Some(folder) = folders.pop().filter(|_| out.len() < count) {
        // A machine may have no documentation, or some that is not ours to read.
        let Ok(entries) = fs::read_dir(&folder) else { continue };
        let mut paths: Vec<PathBuf> = entries.filter_map(|e| Some(e.ok()?.path())).collect();
        paths.sort();
        for path in paths {
            if path.is_symlink() {
                continue;
            } else if path.is_dir() {
                folders.push(path);
            } else if let Ok(text) = fs::read_to_string(&path) {
                let usable = |line: &&str| !line.trim().is_empty() && !line.contains('\r');
                out.extend(text.lines().filter(usable).map(str::to_owned));
            }
        }
    }
    let real = out.len();
    println!(
        "broker: {count} lines, {} of them from {TEXTS} and this workspace, the rest again",
        real.min(count)
    );
    out.truncate(count);
    while out.len() < count {
        out.push(out[out.len() - real].clone());
    }
    Ok(out)
}

/// Real lines: this workspace's own text. No line is empty, so that `kseg cat` shows one for each.
fn lines() -> Result<Vec<String>, String> {
    let mut out = Vec::new();
    for file in ["LICENSE", "xtask/kafka/README.md", "Cargo.lock"] {
        let text = shell::text(&workspace::root().join(file))?;
        out.extend(text.lines().filter(|l| !l.trim().is_empty()).map(str::to_owned));
    }
    Ok(out)
}

fn append(kseg: &Path, partition: &Path, codec: &str, text: &[String]) -> Outcome {
    let input = tempfile::NamedTempFile::new().map_err(|e| format!("temporary file: {e}"))?;
    fs::write(input.path(), text.join("\n") + "\n")
        .map_err(|e| format!("{}: {e}", input.path().display()))?;
    let stdin = input.reopen().map_err(|e| format!("{}: {e}", input.path().display()))?;
    let mut command = Command::new(kseg);
    command.arg("append").arg(partition).args(["--codec", codec]).stdin(Stdio::from(stdin));
    let done = command.output().map_err(|e| format!("kseg append: {e}"))?;
    if done.status.success() {
        Ok(())
    } else {
        Err(format!("kseg append: {}", String::from_utf8_lossy(&done.stderr)))
    }
}

/// The topic that is compacted here before the broker gets it.
const COMPACTED: &str = "compacted";

/// Appends each key many times, compacts the partition, and returns the values that are left.
fn compacted(kseg: &Path, ours: &Path) -> Result<Vec<String>, String> {
    const KEYS: usize = 100;
    let (all, folder) = (40 * KEYS, format!("{COMPACTED}-0"));
    let text: String = (0..all).map(|n| format!("key-{}\tvalue {n}\n", n % KEYS)).collect();
    let input = tempfile::NamedTempFile::new().map_err(|e| format!("temporary file: {e}"))?;
    fs::write(input.path(), text).map_err(|e| format!("{}: {e}", input.path().display()))?;
    let mut append = Command::new(kseg);
    append.arg("append").arg(ours.join(&folder)).args(["--format", "key-value", "--input"]).arg(input.path());
    shell::output(&mut append)?;
    let mut clean = Command::new(kseg);
    clean.args(["clean", "run", "--write", "--roll", "--all", "--set", "cleanup.policy=compact"]);
    shell::output(clean.arg(ours).arg(&folder))?;
    Ok((all - KEYS..all).map(|n| format!("value {n}")).collect())
}

/// Puts kseg's partitions and checkpoints in the place of the broker's, which keep only the id of their topic.
fn hand_over(ours: &Path, data: &Path) -> Outcome {
    for name in CODECS.iter().map(|codec| format!("lines-{codec}-0")).chain([format!("{COMPACTED}-0")]) {
        let (from, to) = (ours.join(&name), data.join(&name));
        let failed = |e: std::io::Error| format!("{}: {e}", to.display());
        let id = fs::read(to.join("partition.metadata")).map_err(failed)?;
        fs::remove_dir_all(&to).map_err(failed)?;
        super::folders::copied(&from, &to)?;
        fs::write(to.join("partition.metadata"), id).map_err(failed)?;
    }
    for name in CHECKPOINTS {
        let from = ours.join(name);
        if from.is_file() {
            fs::copy(&from, data.join(name)).map_err(|e| format!("{}: {e}", from.display()))?;
        }
    }
    Ok(())
}

/// What the client answers.
///
/// # Errors
/// It fails.
pub(super) fn asked(client: &mut Oracle, op: Value) -> Result<Value, String> {
    let answer = client.ask(&op.to_string())?;
    answer.get("ok").cloned().ok_or_else(|| format!("{op}: {answer}"))
}

fn values(fetched: &Value) -> Result<Vec<String>, String> {
    let text = |record: &Value| {
        let bytes = decoded(&record["value"]).map_err(|e| e.message)?;
        String::from_utf8(bytes).map_err(|e| e.to_string())
    };
    fetched.as_array().into_iter().flatten().map(text).collect()
}

/// Compares what was read with the lines from `first` on.
fn same(topic: &str, first: usize, expected: &[String], read: &[String]) -> Outcome {
    if expected == read {
        return Ok(());
    }
    let at = expected.iter().zip(read).position(|(a, b)| a != b).unwrap_or(expected.len().min(read.len()));
    Err(format!(
        "{topic}, from line {first}: {} lines went in, {} come out; line {} is {:?}, and was {:?}",
        expected.len(),
        read.len(),
        first + at,
        read.get(at),
        expected.get(at)
    ))
}

/// What the broker did not like while it loaded a directory that had been stopped in an orderly way.
///
/// # Errors
/// The first complaints, or that nothing tells of an orderly stop.
pub(super) fn complaints(log: &str) -> Outcome {
    // The broker's own metadata log is not what is looked at.
    let ours: Vec<&str> = log.lines().filter(|l| !l.contains("__cluster_metadata")).collect();
    let bad = |line: &&&str| {
        let loud = line.contains(" WARN ") || line.contains(" ERROR ");
        (loud && LOADERS.iter().any(|l| line.contains(l))) || COMPLAINTS.iter().any(|c| line.contains(c))
    };
    let found: Vec<&str> = ours.iter().filter(bad).take(5).copied().collect();
    if !found.is_empty() {
        return Err(format!("the broker complains:\n    {}", found.join("\n    ")));
    }
    if !ours.iter().any(|l| l.contains("Skipping recovery of")) {
        return Err("the broker does not say that it skips recovery".to_owned());
    }
    Ok(())
}

/// Whether partitions of `lines` records each were loaded from the snapshot at their end: there was nothing to rebuild.
fn from_snapshots(log: &str, lines: usize) -> Outcome {
    let loaded = format!("rebuilding producer state from offset {lines} ");
    let clean = log.lines().filter(|l| l.contains(&loaded)).count();
    if clean == CODECS.len() {
        return Ok(());
    }
    Err(format!("{clean} of {} partitions were loaded from the producer snapshot at their end", CODECS.len()))
}
