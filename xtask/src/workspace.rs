//! What this workspace consists of: its root, its packages and their targets, as `cargo metadata` tells.

use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::shell;

/// The crates that others build on. They keep the MSRV, have a feature check each and are modelled with loom.
pub(crate) const LIBRARIES: &[&str] =
    &["kseg-format", "kseg-io-backends", "kseg-index", "kseg-segment", "kseg-log", "kseg-cleaner"];

/// The root of the workspace.
pub(crate) fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap_or(Path::new("."))
}

/// A package of this workspace.
#[derive(Debug)]
pub(crate) struct Package {
    pub(crate) name: String,
    pub(crate) folder: PathBuf,
    pub(crate) publish: bool,
    pub(crate) features: Vec<String>,
    pub(crate) benches: Vec<String>,
    pub(crate) docs_rs: bool,
    pub(crate) dependencies: Vec<Dependency>,
}

/// What a package asks for.
#[derive(Debug)]
pub(crate) struct Dependency {
    pub(crate) name: String,
    pub(crate) dev: bool,
    /// Whether it is one of ours, given by path.
    pub(crate) internal: bool,
    /// The version asked for; `*` where only a path is given.
    pub(crate) version: String,
}

/// The workspace as cargo sees it.
#[derive(Debug)]
pub(crate) struct Workspace {
    pub(crate) packages: Vec<Package>,
    pub(crate) target: PathBuf,
    pub(crate) rust_version: String,
}

/// Asks cargo.
///
/// # Errors
/// `cargo metadata` fails, as with a manifest that does not parse.
pub(crate) fn load() -> Result<Workspace, String> {
    let text = shell::output(&mut shell::cargo(["metadata", "--no-deps", "--format-version", "1"]))?;
    let json: Value = serde_json::from_str(&text).map_err(|e| format!("cargo metadata: {e}"))?;
    let packages: Vec<Package> = list(&json["packages"]).iter().map(package).collect();
    let rust_version = list(&json["packages"])
        .iter()
        .find(|p| LIBRARIES.contains(&word(&p["name"]).as_str()))
        .map(|p| word(&p["rust_version"]))
        .filter(|v| !v.is_empty())
        .ok_or("no library crate states rust-version")?;
    Ok(Workspace { packages, target: PathBuf::from(word(&json["target_directory"])), rust_version })
}

fn package(json: &Value) -> Package {
    let targets = |kind: &str| {
        let of_kind = |t: &&Value| list(&t["kind"]).iter().any(|k| k == kind);
        list(&json["targets"]).iter().filter(of_kind).map(|t| word(&t["name"])).collect()
    };
    Package {
        name: word(&json["name"]),
        folder: Path::new(&word(&json["manifest_path"])).parent().map(Path::to_path_buf).unwrap_or_default(),
        publish: json["publish"].is_null(),
        features: json["features"].as_object().map(|f| f.keys().cloned().collect()).unwrap_or_default(),
        benches: targets("bench"),
        docs_rs: json["metadata"]["docs"]["rs"].is_object(),
        dependencies: list(&json["dependencies"]).iter().map(dependency).collect(),
    }
}

fn dependency(json: &Value) -> Dependency {
    Dependency {
        name: word(&json["name"]),
        dev: json["kind"] == "dev",
        internal: json["path"].is_string(),
        version: word(&json["req"]),
    }
}

fn list(json: &Value) -> &[Value] {
    json.as_array().map(Vec::as_slice).unwrap_or_default()
}

fn word(json: &Value) -> String {
    json.as_str().unwrap_or_default().to_owned()
}
