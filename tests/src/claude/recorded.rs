//! The lines that were recorded of the real Claude Code, in `fixtures/`.

use std::path::Path;

use serde_json::Value;

use crate::dirs;

/// What Claude Code printed in one recording.
#[derive(Clone, Debug)]
pub struct Recording {
    /// Its release, kind and name.
    pub name: String,
    /// The lines.
    pub lines: Vec<String>,
}

/// All recordings of all releases.
pub fn all() -> Vec<Recording> {
    let mut all = Vec::new();
    let fixtures = dirs::workspace().join("fixtures");
    for release in std::fs::read_dir(fixtures).expect("the recordings").flatten() {
        let version = release.file_name().to_string_lossy().into_owned();
        for kind in ["print", "duplex"] {
            let files = std::fs::read_dir(release.path().join(kind)).into_iter().flatten();
            all.extend(files.flatten().map(|file| read(&version, kind, &file.path())));
        }
    }
    all.retain(|recording| !recording.lines.is_empty());
    all.sort_by(|a, b| a.name.cmp(&b.name));
    assert!(all.len() > 200, "only {} recordings", all.len());
    all
}

fn read(version: &str, kind: &str, path: &Path) -> Recording {
    let text = std::fs::read_to_string(path).expect("a recording");
    let printed = text.split('\n').filter(|line| !line.is_empty() && !line.starts_with("> "));
    let lines = printed.map(|line| line.strip_prefix("< ").unwrap_or(line).to_owned());
    let name = path.file_stem().unwrap_or_default().to_string_lossy();
    Recording { name: format!("{version}/{kind}/{name}"), lines: lines.collect() }
}

/// Whether a line of a conversation is of a sub-agent.
pub fn is_nested(line: &str) -> bool {
    let Ok(line) = serde_json::from_str::<Value>(line) else { return false };
    let of_conversation = ["assistant", "user", "stream_event"].map(Value::from);
    of_conversation.contains(&line["type"]) && line["parent_tool_use_id"].is_string()
}
