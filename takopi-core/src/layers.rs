//! Holds the layers of the crate: a module uses only modules below it.
//!
//! A plain text scan. It finds `crate::NAME` anywhere in code, and `super::NAME` in the files that
//! stand directly below the crate root.

use std::fs;
use std::path::{Path, PathBuf};

/// The top-level modules, lowest first. The table in the crate's documentation shows the same.
const LAYERS: [&str; 23] = [
    "sys",
    "tolerant",
    "model",
    "paths",
    "failure",
    "settings",
    "mcp",
    "tools",
    "redact",
    "locks",
    "worktree",
    "process",
    "host",
    "version",
    "peer",
    "runner",
    "images",
    "approvals",
    "keeper",
    "jsonl",
    "rpc",
    "catalog",
    "demo",
];

fn layer(name: &str) -> Option<usize> {
    LAYERS.iter().position(|layer| *layer == name)
}

/// The identifier at the beginning of a text.
fn identifier(text: &str) -> &str {
    let end = text.find(|next: char| !next.is_alphanumeric() && next != '_');
    &text[..end.unwrap_or(text.len())]
}

/// The uses in the source of `module` that do not point downwards. With `is_root`, `super` is the
/// crate root.
fn upward_uses(module: &str, is_root: bool, source: &str) -> Vec<String> {
    let own = layer(module).expect("a new module needs a place in LAYERS");
    let code = source.lines().filter(|line| !line.trim_start().starts_with("//"));
    let mut found = Vec::new();
    for line in code {
        let paths: &[&str] = if is_root { &["crate::", "super::"] } else { &["crate::"] };
        for path in paths {
            for (at, _) in line.match_indices(path) {
                let used = identifier(&line[at + path.len()..]);
                let is_fine = match layer(used) {
                    Some(layer) => layer <= own,
                    // Anything else of the root is an alias that hides its layer.
                    None => *path == "super::",
                };
                if !is_fine {
                    found.push(format!("{module} uses {path}{used}: {}", line.trim()));
                }
            }
        }
    }
    found
}

fn source_files(directory: &Path, files: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            source_files(&path, files);
        } else {
            files.push(path);
        }
    }
}

#[test]
fn no_module_uses_a_layer_above_its_own() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut files = Vec::new();
    source_files(&root, &mut files);
    let mut seen = vec![false; LAYERS.len()];
    let mut found = Vec::new();
    for file in files {
        let relative = file.strip_prefix(&root).unwrap().with_extension("");
        let parts: Vec<_> = relative.iter().map(|part| part.to_str().unwrap()).collect();
        if matches!(parts[..], ["lib" | "layers"]) {
            continue;
        }
        let is_root = parts.len() == 1 || (parts.len() == 2 && parts[1] == "mod");
        found.extend(upward_uses(parts[0], is_root, &fs::read_to_string(&file).unwrap()));
        seen[layer(parts[0]).unwrap()] = true;
    }
    assert!(found.is_empty(), "{}", found.join("\n"));
    assert!(seen.iter().all(|seen| *seen), "a module of LAYERS is gone: {seen:?}");
}

#[test]
fn an_arrow_that_points_up_is_found() {
    let up = |source| !upward_uses("locks", true, source).is_empty();
    assert!(up("use crate::process::Launch;"));
    assert!(up("    let host = crate::host::Host::new();"));
    assert!(up("use super::runner::Runner;"));
    assert!(up("use crate::{model, host};"), "an alias or a list hides the layer");
    assert!(!up("use crate::model::EngineId;\nuse crate::locks::Holder;\nuse super::*;"));
    assert!(!up("//! See [`HostBuilder`](crate::host::HostBuilder)."));
}
