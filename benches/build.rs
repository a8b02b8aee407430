//! Writes down which compiler and which commit the program is built from, for the head of its report.

use std::path::Path;
use std::process::Command;

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    // The state of the other crates decides whether the commit is all there is to say.
    rerun_if_changed("src");
    for folder in ["format", "index", "io-backends", "segment", "log", "cleaner"] {
        rerun_if_changed(&format!("../{folder}/src"));
    }
    let rustc = std::env::var("RUSTC").unwrap_or_else(|_| "rustc".to_owned());
    say("KSEG_BENCH_RUSTC", output(&rustc, &["--version"]));
    let log = output("git", &["rev-parse", "--git-path", "logs/HEAD"]);
    log.iter().for_each(|path| rerun_if_changed(path));
    // In a package that was unpacked inside another project's repository, the commit would be that project's.
    let ours = output("git", &["ls-files", "build.rs"]).is_some();
    let commit = output("git", &["rev-parse", "--short=12", "HEAD"]).filter(|_| ours).map(|commit| {
        let changed = output("git", &["status", "--porcelain", "--untracked-files=no", "--", ".."]).is_some();
        if changed { format!("{commit} and changes") } else { commit }
    });
    say("KSEG_BENCH_COMMIT", commit);
}

fn rerun_if_changed(path: &str) {
    if Path::new(path).exists() {
        println!("cargo:rerun-if-changed={path}");
    }
}

fn say(name: &str, value: Option<String>) {
    println!("cargo:rustc-env={name}={}", value.unwrap_or_default());
}

/// What a command prints, trimmed; `None` where it is missing, fails, or prints nothing.
fn output(program: &str, arguments: &[&str]) -> Option<String> {
    let output = Command::new(program).args(arguments).output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?.trim().to_owned();
    (output.status.success() && !text.is_empty()).then_some(text)
}
