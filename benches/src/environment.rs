//! What the figures depend on beside the code: machine, kernel, file system, compiler, commit.

use std::fmt;
use std::fs::{self, OpenOptions};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use serde::Serialize;

use crate::error::BenchError;
use crate::stats::Summary;

/// Where a run took place. What cannot be found out is `None`.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct Environment {
    /// The processor's name.
    pub cpu: Option<String>,
    /// How many cores this process may use.
    pub cores: usize,
    /// The machine's memory.
    pub memory: Option<Memory>,
    /// Programs that ran or waited to run over the last minute, before the first slice: above 0 means company.
    pub load: Option<f64>,
    /// The kernel, by name and release.
    pub kernel: String,
    /// The folder that the files were in.
    pub dir: PathBuf,
    /// Its file system's type, mount options, free bytes, and the device's cache.
    pub mount: Mount,
    /// Microseconds of an fdatasync after a 4 KiB append, so that a sync that does nothing shows.
    pub sync_us: Option<Summary>,
    /// The state in which files are written.
    pub file_state: &'static str,
    /// The compiler.
    pub rustc: Option<&'static str>,
    /// The commit, and whether there were changes on top.
    pub commit: Option<&'static str>,
    /// `release`, or `debug`, whose figures mean nothing.
    pub profile: &'static str,
}

/// Memory, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Memory {
    /// All of it.
    pub total: u64,
    /// What is free or can be freed.
    pub available: u64,
}

/// The file system of a folder.
#[derive(Clone, Debug, Default, Serialize)]
#[non_exhaustive]
pub struct Mount {
    /// The type as the mount table names it, or the number that statfs gives.
    pub kind: String,
    /// Where it is mounted.
    pub point: Option<String>,
    /// Mount options.
    pub options: Option<String>,
    /// The device.
    pub source: Option<String>,
    /// Free bytes for this user.
    pub free: u64,
    /// The device's cache mode (`write back`, `write through`), and whether it has forced unit access.
    pub cache: Option<String>,
}

impl Environment {
    /// Looks around; `dir` is the folder for files, and gets a small one for a moment.
    ///
    /// # Errors
    /// [`BenchError::Io`] where the folder cannot be written to or has no file system behind it.
    pub fn of(dir: &Path) -> Result<Environment, BenchError> {
        let dir = dir.canonicalize().map_err(BenchError::io("find", dir))?;
        Ok(Environment {
            cpu: cpu(),
            cores: std::thread::available_parallelism().map_or(1, usize::from),
            memory: memory(),
            load: read("/proc/loadavg").and_then(|text| text.split(' ').next()?.parse().ok()),
            kernel: kernel(),
            mount: Mount::of(&dir)?,
            sync_us: Some(sync_us(&dir)?),
            dir,
            file_state: "extending: every slice that writes begins with an empty file",
            rustc: known(env!("KSEG_BENCH_RUSTC")),
            commit: known(env!("KSEG_BENCH_COMMIT")),
            profile: if cfg!(debug_assertions) { "debug" } else { "release" },
        })
    }

    /// Bytes of memory that are free or can be freed; without limit where that is not known.
    pub fn memory_available(&self) -> u64 {
        self.memory.map_or(u64::MAX, |memory| memory.available)
    }
}

impl fmt::Display for Environment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let gib = |bytes: u64| bytes as f64 / (1u64 << 30) as f64;
        let or = |text: &Option<String>| text.clone().unwrap_or_else(|| "unknown".to_owned());
        write!(f, "machine     {}, {} cores", or(&self.cpu), self.cores)?;
        if let Some(Memory { total, available }) = self.memory {
            write!(f, ", {:.1} GiB memory ({:.1} available)", gib(total), gib(available))?;
        }
        if let Some(load) = self.load {
            write!(f, ", load {load}")?;
            if load > self.cores as f64 / 2.0 {
                write!(f, " (others are running: intervals will be wide)")?;
            }
        }
        writeln!(f, "\nkernel      {}", self.kernel)?;
        writeln!(f, "directory   {} ({:.1} GiB free)", self.dir.display(), gib(self.mount.free))?;
        write!(f, "file system {}", self.mount.kind)?;
        if let (Some(source), Some(point)) = (&self.mount.source, &self.mount.point) {
            write!(f, ", {source} on {point}")?;
        }
        if let Some(options) = &self.mount.options {
            write!(f, " ({options})")?;
        }
        if let Some(cache) = &self.mount.cache {
            write!(f, ", device cache: {cache}")?;
        }
        if let Some(sync) = self.sync_us {
            write!(f, "\nfdatasync   {:.0} us after a 4 KiB append (median of {})", sync.median, sync.count)?;
            if sync.median < 5.0 {
                write!(f, ": NOTHING IS MADE DURABLE HERE, figures of durable appends mean nothing")?;
            }
        }
        writeln!(f, "\nfile state  {}", self.file_state)?;
        write!(f, "build       {}, {}", self.rustc.unwrap_or("compiler unknown"), self.profile)?;
        write!(f, ", commit {}", self.commit.unwrap_or("unknown"))?;
        if self.profile == "debug" {
            write!(f, "\nNOT A RELEASE BUILD: figures mean nothing")?;
        }
        Ok(())
    }
}

impl Mount {
    /// The file system that holds `dir`, an absolute path.
    fn of(dir: &Path) -> Result<Mount, BenchError> {
        let failed = BenchError::io("ask for the file system of", dir);
        let stat = match rustix::fs::statfs(dir) {
            Ok(stat) => stat,
            Err(error) => return Err(failed(error.into())),
        };
        let free = (stat.f_bavail as u64).saturating_mul(stat.f_bsize as u64);
        let device = fs::metadata(dir).map_err(BenchError::io("look at", dir))?.dev();
        let unnamed = Mount { kind: format!("{:#x}", stat.f_type), free, ..Mount::default() };
        let table = read("/proc/self/mountinfo").unwrap_or_default();
        // The longest mount point above the folder; of equal ones the last, which hides those before it.
        let above = table.lines().filter_map(mounted).filter(|(point, _)| dir.starts_with(point));
        let Some((point, line)) = above.max_by_key(|(point, _)| point.len()) else { return Ok(unnamed) };
        let mut fields = line.split(" - ").nth(1).unwrap_or_default().split(' ');
        Ok(Mount {
            kind: fields.next().map_or(unnamed.kind, str::to_owned),
            source: fields.next().map(str::to_owned),
            options: line.split(' ').nth(5).map(str::to_owned),
            point: Some(point),
            free,
            cache: cache(device),
        })
    }
}

/// The mount point of a line of mountinfo, and the line.
fn mounted(line: &str) -> Option<(String, &str)> {
    let point = line.split(' ').nth(4)?;
    Some((point.replace("\\040", " ").replace("\\011", "\t").replace("\\134", "\\"), line))
}

/// The cache of a block device; a partition asks its disk.
fn cache(device: u64) -> Option<String> {
    let number = (rustix::fs::major(device), rustix::fs::minor(device));
    let folder = format!("/sys/dev/block/{}:{}", number.0, number.1);
    let queue = [format!("{folder}/queue"), format!("{folder}/../queue")]
        .into_iter()
        .find(|q| Path::new(q).is_dir())?;
    let mode = read(&format!("{queue}/write_cache"))?;
    let fua = read(&format!("{queue}/fua")).is_some_and(|fua| fua.trim() == "1");
    Some(format!("{}, {}", mode.trim(), if fua { "FUA" } else { "no FUA" }))
}

/// Bytes that the kernel has fetched from devices for this process, read-ahead included (proc_pid_io(5)).
pub(crate) fn read_from_devices() -> Result<u64, BenchError> {
    let text = read("/proc/self/io").unwrap_or_default();
    let bytes = text.lines().find_map(|line| line.strip_prefix("read_bytes: ")?.parse().ok());
    bytes.ok_or_else(|| {
        BenchError::Unsuited("/proc/self/io does not tell what comes from a device".to_owned())
    })
}

fn sync_us(dir: &Path) -> Result<Summary, BenchError> {
    let path = dir.join("sync-probe");
    let failed = || BenchError::io("append to and sync", &path);
    let file = OpenOptions::new().write(true).create(true).truncate(true).open(&path).map_err(failed())?;
    let timed = (0..20).map(|at| {
        file.write_all_at(&[1; 4096], at * 4096)?;
        let begin = Instant::now();
        file.sync_data().map(|()| begin.elapsed())
    });
    let times: Result<Vec<Duration>, _> = timed.collect();
    fs::remove_file(&path).map_err(BenchError::io("remove", &path))?;
    let us: Vec<f64> =
        times.map_err(failed())?.iter().map(Duration::as_secs_f64).map(|seconds| seconds * 1e6).collect();
    Summary::of(&us).ok_or_else(|| BenchError::Asked("no sync was timed".to_owned()))
}

fn cpu() -> Option<String> {
    let text = read("/proc/cpuinfo")?;
    let line = text.lines().find(|line| line.starts_with("model name"))?;
    Some(line.split_once(':')?.1.trim().to_owned())
}

fn memory() -> Option<Memory> {
    let text = read("/proc/meminfo")?;
    let field = |name: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(name))?;
        line.trim_start_matches(':').trim().trim_end_matches(" kB").parse::<u64>().ok().map(|kib| kib << 10)
    };
    Some(Memory { total: field("MemTotal")?, available: field("MemAvailable")? })
}

fn kernel() -> String {
    let release = read("/proc/sys/kernel/osrelease");
    let part =
        |text: Option<String>| text.map_or_else(|| "unknown".to_owned(), |text| text.trim().to_owned());
    format!("{} {} {}", std::env::consts::OS, part(release), std::env::consts::ARCH)
}

fn read(path: &str) -> Option<String> {
    fs::read_to_string(path).ok()
}

fn known(text: &'static str) -> Option<&'static str> {
    (!text.is_empty()).then_some(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_machine_has_a_kernel_a_file_system_and_a_sync() {
        let dir = tempfile::tempdir().unwrap();
        let environment = Environment::of(dir.path()).unwrap();
        assert!(
            !environment.kernel.is_empty() && !environment.mount.kind.is_empty() && environment.cores >= 1
        );
        assert_eq!(environment.sync_us.unwrap().count, 20);
        assert!(fs::read_dir(dir.path()).unwrap().next().is_none(), "the probe is gone");
        let text = environment.to_string();
        for line in ["machine", "kernel", "directory", "file system", "fdatasync", "file state", "build"] {
            assert!(text.lines().any(|l| l.starts_with(line)), "{line} in {text}");
        }
    }

    #[test]
    fn a_missing_folder_is_named() {
        let error = Environment::of(Path::new("/nowhere/at/all")).unwrap_err();
        assert!(error.to_string().contains("/nowhere/at/all"), "{error}");
    }

    #[test]
    fn a_mount_point_with_a_space_is_read() {
        let line = r"36 25 8:1 / /mnt/a\040b rw,noatime shared:1 - xfs /dev/sda1 rw";
        assert_eq!(mounted(line), Some(("/mnt/a b".to_owned(), line)));
        assert_eq!(mounted("short"), None);
    }
}
