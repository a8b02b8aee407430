//! Directories on file systems of several kinds, and backends for them; what is not to be had here is skipped, and said.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use kseg_io_backends::{Backend, BackendSpec};

/// Backends over the operating system's files, of every kind and with each option that changes how they append.
pub(crate) const SPECS: [&str; 13] = [
    "std",
    "std,preallocate=1m",
    "std,zeroed=64k",
    "std,zeroed=1m,dsync=on",
    "std,writebehind=64k",
    "std+dontcache",
    "std+direct",
    "std+direct,chunk=16k,zeroed=64k,tail=8k",
    "uring",
    "uring,inline=0",
    "uring,depth=2,entries=2,inline=0,registered=off,preallocate=0,dsync=on",
    "uring+direct",
    "uring+direct,chunk=8k,depth=4,zeroed=256k,tail=32k,dsync=on",
];

/// The backend that `spec` names for files in `dir`; none where a probe says that it is not to be had there.
pub(crate) fn backend(spec: &str, dir: &Path) -> Option<Arc<dyn Backend>> {
    match spec.parse::<BackendSpec>().unwrap().open_in(dir) {
        Ok(opened) => Some(opened.backend),
        Err(error) => {
            assert!(error.unavailable().is_some(), "{error}");
            println!("skipped: {spec} in {}: {error}", dir.display());
            None
        }
    }
}

/// A new directory on the file system of the temporary directory, usually the disk's.
pub(crate) fn on_disk() -> tempfile::TempDir {
    tempfile::tempdir().unwrap()
}

/// A new directory on a tmpfs.
pub(crate) fn on_tmpfs() -> Option<tempfile::TempDir> {
    let made = tempfile::tempdir_in("/dev/shm");
    if let Err(error) = &made {
        println!("skipped: no tmpfs at /dev/shm: {error}");
    }
    made.ok()
}

/// A new file system of this kind (`ext4`, `xfs`) in a file of so many bytes, behind a block device whose blocks have
/// `sector` bytes, mounted as long as the result lives. It takes root, and the program that makes such file systems.
pub(crate) fn on_loop(kind: &str, sector: u32, size: u64) -> Option<Mounted> {
    let dir = tempfile::tempdir().unwrap();
    let (image, mount) = (dir.path().join("image"), dir.path().join("mount"));
    std::fs::create_dir(&mount).unwrap();
    std::fs::File::create(&image).unwrap().set_len(size).unwrap();
    let run = |program: &str, args: &[&str], paths: &[&Path]| {
        let output = Command::new(program).args(args).args(paths).output();
        let output = output.map_err(|error| format!("{program}: {error}"))?;
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        let said = String::from_utf8_lossy(&output.stdout).trim().to_owned();
        if output.status.success() { Ok(said) } else { Err(format!("{program}: {text}")) }
    };
    let quiet = if kind == "xfs" { "-q" } else { "-qF" };
    let made =
        run("losetup", &["--find", "--show", "-b", &sector.to_string()], &[&image]).and_then(|device| {
            let device = Path::new(&device);
            let mounted = run(&format!("mkfs.{kind}"), &[quiet], &[device])
                .and_then(|_| run("mount", &[], &[device, &mount]));
            // It goes with the mount, or now.
            run("losetup", &["--detach"], &[device]).and(mounted)
        });
    match made {
        Ok(_) => Some(Mounted { mount, _dir: dir }),
        Err(error) => {
            println!("skipped: no {kind} with sectors of {sector} can be made and mounted here: {error}");
            None
        }
    }
}

pub(crate) struct Mounted {
    mount: PathBuf,
    _dir: tempfile::TempDir,
}

impl Mounted {
    pub(crate) fn path(&self) -> &Path {
        &self.mount
    }

    /// How often the device below was told to make durable what it was given.
    pub(crate) fn flushes(&self) -> u64 {
        let mounts = std::fs::read_to_string("/proc/self/mounts").unwrap();
        let mount = self.mount.to_str().unwrap();
        let device =
            mounts.lines().find_map(|line| line.split_once(' ').filter(|(_, rest)| rest.starts_with(mount)));
        let device = device.unwrap().0.trim_start_matches("/dev/");
        let counts = std::fs::read_to_string(format!("/sys/block/{device}/stat")).unwrap();
        counts.split_whitespace().nth(15).unwrap().parse().unwrap()
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        // Whoever still holds a file there keeps the file system until then.
        let unmounted = Command::new("umount").arg("--lazy").arg(&self.mount).status();
        assert!(
            std::thread::panicking() || unmounted.is_ok_and(|status| status.success()),
            "it is unmounted"
        );
    }
}

/// Runs `test` for each backend that is to be had on the disk.
pub(crate) fn with_each(test: impl Fn(&str, Arc<dyn Backend>, &Path)) {
    let dir = on_disk();
    for (index, spec) in SPECS.iter().enumerate() {
        let dir = dir.path().join(index.to_string());
        std::fs::create_dir(&dir).unwrap();
        if let Some(backend) = backend(spec, &dir) {
            test(spec, backend, &dir);
        }
    }
}

/// Runs one test of this program in `dir` under strace, and returns what it told of the calls in `trace`; nothing where strace
/// cannot be had.
pub(crate) fn traced(test: &str, trace: &str, dir: &Path) -> Option<String> {
    let file = dir.join("trace");
    let output = Command::new("strace")
        .args(["-f", "-y", "-e", trace, "-o"])
        .arg(&file)
        .arg(std::env::current_exe().unwrap())
        .args(["--exact", test])
        .env("TMPDIR", dir)
        .output();
    let output = match output {
        Ok(output) => output,
        Err(error) => {
            println!("skipped: strace does not run here: {error}");
            return None;
        }
    };
    let told = String::from_utf8_lossy(&output.stderr);
    if told.contains("PTRACE") || told.contains("ptrace") {
        println!("skipped: strace may not trace here: {told}");
        return None;
    }
    assert!(output.status.success(), "{told}");
    Some(std::fs::read_to_string(file).unwrap())
}
