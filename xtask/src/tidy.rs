//! `cargo xtask tidy`: the rules of this workspace that no tool knows.
//!
//! Only files that git knows are looked at. Every rule collects what it finds; all findings are printed together.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use crate::Outcome;
use crate::flags::Flags;
use crate::shell;
use crate::workspace::{self, LIBRARIES, Package};

pub(crate) const ABOUT: &str =
    "checks the rules that no tool knows: layers, manifests, crate pages, paths, locks, .gitignore";

/// Which crates a crate may use, besides in its tests. A package that is not listed is a leaf and may use all.
const LAYERS: &[(&str, &[&str])] = &[
    ("kseg-format", &[]),
    ("kseg-io-backends", &[]),
    ("kseg-index", &["kseg-format"]),
    ("kseg-segment", &["kseg-index", "kseg-format", "kseg-io-backends"]),
    ("kseg-log", &["kseg-segment", "kseg-index", "kseg-format", "kseg-io-backends"]),
    ("kseg-cleaner", &["kseg-log", "kseg-segment", "kseg-index", "kseg-format", "kseg-io-backends"]),
];

/// The one crate with unsafe code.
const UNSAFE: &str = "kseg-io-backends";

/// Names that a careless `.gitignore` would swallow.
const KINDS: &[&str] = &[
    "log/src/any.rs",
    "log/tests/golden/any.log",
    "xtask/kafka/golden/any/topic-0/00000000000000000000.log",
    "xtask/kafka/golden/any/topic-0/00000000000000000000.index",
    "xtask/kafka/golden/any/topic-0/00000000000000000000.timeindex",
    "xtask/kafka/golden/any/topic-0/00000000000000000000.txnindex",
    "xtask/kafka/golden/any/topic-0/00000000000000000000.snapshot",
    "xtask/kafka/golden/any/topic-0/00000000000000000000.log.deleted",
    "xtask/kafka/golden/any/topic-0/00000000000000000000.log.cut",
    "xtask/kafka/golden/any/topic-0/leader-epoch-checkpoint",
    "xtask/kafka/golden/any/topic-0/partition.metadata",
    "xtask/kafka/golden-broker/any.tar.gz",
];

pub(crate) fn run(flags: Flags) -> Outcome {
    flags.finish()?;
    check()
}

/// All rules.
///
/// # Errors
/// The list of what was found.
pub(crate) fn check() -> Outcome {
    let workspace = workspace::load()?;
    let files = tracked()?;
    let mut found = Vec::new();
    for package in &workspace.packages {
        manifest(package, &mut found);
        pages(package, &mut found);
    }
    for file in &files {
        let Ok(text) = std::fs::read_to_string(workspace::root().join(file)) else { continue };
        machine_paths(file, &text, &mut found);
        if file.extension().is_some_and(|e| e == "rs") {
            ignored_tests(file, &text, &mut found);
            if let Some(package) = workspace
                .packages
                .iter()
                .find(|p| workspace::root().join(file).starts_with(p.folder.join("src")))
            {
                source(package, file, &text, &mut found);
            }
        }
    }
    gitignore(&files, &mut found)?;
    footprint(&mut found)?;
    if found.is_empty() {
        println!("tidy: {} files, nothing found", files.len());
        return Ok(());
    }
    Err(format!("tidy found\n  {}", found.join("\n  ")))
}

fn tracked() -> Result<Vec<PathBuf>, String> {
    let names = shell::output(shell::command("git").args(["ls-files", "-z"]))?;
    Ok(names.split('\0').filter(|n| !n.is_empty()).map(PathBuf::from).collect())
}

fn manifest(package: &Package, found: &mut Vec<String>) {
    let name = &package.name;
    if package.publish && !package.docs_rs {
        found.push(format!("{name}: no [package.metadata.docs.rs]"));
    }
    let layer = LAYERS.iter().find(|(crate_name, _)| crate_name == name);
    for dependency in package.dependencies.iter().filter(|d| d.internal) {
        let asked = &dependency.name;
        if dependency.dev {
            // Cargo drops a dependency without a version on publishing, so that tests may point upwards.
            if dependency.version != "*" {
                found.push(format!("{name}: dev-dependency {asked} has a version; only a path, please"));
            }
            continue;
        }
        if package.publish && dependency.version == "*" {
            found.push(format!("{name}: dependency {asked} has no version"));
        }
        if layer.is_some_and(|(_, may)| !may.contains(&asked.as_str())) {
            found.push(format!("{name} must not use {asked}"));
        }
    }
}

fn pages(package: &Package, found: &mut Vec<String>) {
    let mut wanted = vec!["README.md"];
    if package.publish {
        wanted.push("CHANGELOG.md");
    }
    for page in wanted {
        if !package.folder.join(page).is_file() {
            found.push(format!("{}: no {page}", package.name));
        }
    }
    let src = package.folder.join("src");
    for root in ["lib.rs", "main.rs"].map(|f| src.join(f)) {
        let Ok(text) = std::fs::read_to_string(&root) else { continue };
        if package.name != UNSAFE && !text.contains("#![forbid(unsafe_code)]") {
            found.push(format!("{}: no #![forbid(unsafe_code)]", root.display()));
        }
    }
}

/// Folders that only one machine has. Put together here, so that this file does not find itself.
fn machine_paths(file: &Path, text: &str, found: &mut Vec<String>) {
    let folders = ["work", "root", "home", "Users"].map(|f| format!("/{f}/"));
    for (n, line) in text.lines().enumerate() {
        let starts =
            |at: usize| !line[..at].ends_with(|c: char| c.is_alphanumeric() || "._-~/}>*".contains(c));
        if folders.iter().any(|f| line.match_indices(f.as_str()).any(|(at, _)| starts(at))) {
            found.push(format!("{}:{}: a path of one machine", file.display(), n + 1));
        }
    }
}

fn ignored_tests(file: &Path, text: &str, found: &mut Vec<String>) {
    let attribute = format!("#[{}", "ignore");
    let example = format!("```{}", "ignore");
    for (n, line) in text.lines().enumerate() {
        if line.trim_start().starts_with(&attribute) || line.contains(&example) {
            found.push(format!("{}:{}: an ignored test", file.display(), n + 1));
        }
    }
}

/// Rules for the sources of a crate: what stands in `lib.rs`, and where locks and threads come from.
fn source(package: &Package, file: &Path, text: &str, found: &mut Vec<String>) {
    if !LIBRARIES.contains(&package.name.as_str()) {
        return;
    }
    let name = file.file_name().and_then(|n| n.to_str()).unwrap_or_default();
    if name == "lib.rs" {
        let items = [
            "fn ", "struct ", "enum ", "trait ", "const ", "static ", "type ", "union ", "unsafe ", "async ",
            "extern ",
        ];
        for (n, line) in text.lines().enumerate() {
            let item = line.strip_prefix("pub ").unwrap_or(line);
            if items.iter().any(|i| item.starts_with(i))
                || item.starts_with("impl")
                || item.starts_with("macro_rules!")
            {
                found.push(format!(
                    "{}:{}: an item in lib.rs; it holds modules and re-exports only",
                    file.display(),
                    n + 1
                ));
            }
        }
    }
    let suite = file.components().any(|c| c.as_os_str() == "conformance");
    let tests = name.starts_with("test") || name.ends_with("_test.rs") || name.ends_with("_tests.rs");
    if name == "sync.rs" || suite || tests {
        return;
    }
    let tests_begin =
        ["#[cfg(test)]\nmod ", "#[cfg(all(test"].iter().filter_map(|mark| text.find(mark)).min();
    for (n, line) in text[..tests_begin.unwrap_or(text.len())].lines().enumerate() {
        if takes_locks(line.split("//").next().unwrap_or_default()) {
            found.push(format!(
                "{}:{}: locks, atomics and threads come from the crate's sync.rs",
                file.display(),
                n + 1
            ));
        }
    }
}

/// Whether a line names a lock, an atomic, a channel or a thread by its real path. Handles that are shared with users
/// of the crate stay std's, and so do process-wide statics, which no model can reset.
fn takes_locks(code: &str) -> bool {
    const STAY: &[&str] = &["Arc", "Weak", "LazyLock"];
    let std_sync = code.split("std::sync::").skip(1).any(|rest| {
        let (names, _) = rest.strip_prefix('{').unwrap_or(rest).split_once(['}', ';']).unwrap_or((rest, ""));
        names.split(',').any(|name| {
            let name: String = name.trim().chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect();
            !name.is_empty() && !STAY.contains(&name.as_str())
        })
    });
    std_sync || ["parking_lot::", "crossbeam_channel::", "std::thread"].iter().any(|l| code.contains(l))
}

/// How many packages whoever takes a crate builds, itself among them: with default features, and with none.
const FOOTPRINTS: &[(&str, usize, usize)] = &[("kseg-format", 16, 5)];

fn footprint(found: &mut Vec<String>) -> Outcome {
    for &(package, most, most_bare) in FOOTPRINTS {
        for (most, features) in [(most, &[][..]), (most_bare, &["--no-default-features"][..])] {
            let mut tree = shell::command("cargo");
            tree.args(["tree", "--locked", "-e", "normal", "--prefix", "none", "-p", package]).args(features);
            let count = packages(&shell::output(&mut tree)?);
            if count > most {
                let features = features.join(" ");
                found.push(format!("{package} {features}: {count} packages, expected at most {most}"));
            }
        }
    }
    Ok(())
}

/// The packages that a tree without prefixes names, each once.
fn packages(tree: &str) -> usize {
    let name = |line: &str| line.trim_end_matches(" (*)").to_owned();
    tree.lines().filter(|line| !line.is_empty()).map(name).collect::<BTreeSet<_>>().len()
}

/// Nothing tracked, and nothing of a kind that we track, may be ignored.
fn gitignore(files: &[PathBuf], found: &mut Vec<String>) -> Outcome {
    let mut names: Vec<u8> = Vec::new();
    for name in files.iter().map(PathBuf::as_path).chain(KINDS.iter().map(Path::new)) {
        names.extend_from_slice(name.as_os_str().as_encoded_bytes());
        names.push(0);
    }
    let list = tempfile::NamedTempFile::new().map_err(|e| format!("temporary file: {e}"))?;
    std::fs::write(list.path(), names).map_err(|e| format!("{}: {e}", list.path().display()))?;
    let input = list.reopen().map_err(|e| format!("{}: {e}", list.path().display()))?;
    let mut git = shell::command("git");
    git.args(["check-ignore", "--no-index", "--stdin", "-z"]).stdin(Stdio::from(input));
    let done = git.output().map_err(|e| format!("git: {e}"))?;
    // 0: something is ignored; 1: nothing is.
    if !matches!(done.status.code(), Some(0 | 1)) {
        return Err(format!("git check-ignore: {}\n{}", done.status, String::from_utf8_lossy(&done.stderr)));
    }
    for name in String::from_utf8_lossy(&done.stdout).split('\0').filter(|n| !n.is_empty()) {
        found.push(format!("{name}: swallowed by .gitignore"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::{ignored_tests, machine_paths, packages, takes_locks};

    #[test]
    fn a_path_of_one_machine_is_found() {
        let mut found = Vec::new();
        machine_paths(Path::new("a.md"), &format!("see {}/notes", ["/", "root"].concat()), &mut found);
        assert_eq!(found.len(), 1);
        let inside = ["https://example.org/", "work/shop and target/", "home/x"].concat();
        machine_paths(Path::new("a.md"), &inside, &mut found);
        assert_eq!(found.len(), 1);
    }

    #[test]
    fn an_ignored_test_is_found() {
        let mut found = Vec::new();
        ignored_tests(Path::new("a.rs"), &["    #[", "ignore = \"slow\"]"].concat(), &mut found);
        assert_eq!(found.len(), 1);
    }

    #[test]
    fn a_package_counts_once() {
        assert_eq!(packages("a v1.0\nb v1.0\nc v1.0\nb v1.0 (*)\nb v2.0\n"), 4);
    }

    #[test]
    fn a_lock_from_elsewhere_is_found() {
        assert!(takes_locks("use std::sync::{Arc, Mutex};"));
        assert!(takes_locks("    std::thread::yield_now();"));
        assert!(!takes_locks("use std::sync::{Arc, LazyLock, Weak};"));
        assert!(!takes_locks("    backend: std::sync::Arc<dyn Backend>,"));
    }
}
