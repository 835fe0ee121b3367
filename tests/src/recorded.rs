//! What the real agents printed, in `fixtures/`: a recording each, or a turn each where a recording has several.

use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::dirs;

/// What an agent printed.
#[derive(Clone, Debug)]
pub struct Recording {
    /// Its release, kind and name.
    pub name: String,
    /// The lines.
    pub lines: Vec<String>,
}

/// All recordings of all releases of Claude Code.
pub fn claude() -> Vec<Recording> {
    let mut all = Vec::new();
    for release in below(&dirs::workspace().join("fixtures")) {
        for kind in ["print", "duplex"] {
            all.extend(below(&release.join(kind)).iter().map(|file| {
                let lines = text(file).lines().filter_map(printed).map(str::to_owned).collect();
                Recording { name: name(file), lines }
            }));
        }
    }
    checked(all, 200)
}

/// Every turn of pi in its RPC mode.
pub fn pi() -> Vec<Recording> {
    let files = below(&dirs::workspace().join("fixtures/pi-1.5.0/rpc"));
    let turns = files.iter().flat_map(|file| {
        let text = text(file);
        let begins = |line: &str| line.starts_with("> ") && line.contains(r#""type":"prompt""#);
        let lines = text.lines().map(|line| (begins(line), printed(line).map(str::to_owned)));
        turns(file, lines)
    });
    checked(turns.collect(), 20)
}

/// Every turn of the agents that speak ACP, by the name of the preset.
pub fn acp() -> Vec<(&'static str, Vec<Recording>)> {
    let agents = [
        ("opencode", "acp-opencode-1.18.33"),
        ("codex-acp", "acp-codex-acp-2.6.0"),
        ("qwen", "acp-qwen-0.24.4"),
        ("gemini", "acp-gemini-0.61.0"),
        ("claude-acp", "acp-claude-agent-acp-0.99.1"),
    ];
    let of = |directory: &str| {
        let files = below(&dirs::workspace().join("fixtures").join(directory));
        let files = files.into_iter().filter(|it| it.extension().is_some_and(|it| it == "jsonl"));
        let turns = files.flat_map(|file| {
            let lines: Vec<Value> =
                text(&file).lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
            let lines = lines.into_iter().map(|line| {
                let begins = line["dir"] == ">" && line["msg"]["method"] == "session/prompt";
                (begins, (line["dir"] == "<").then(|| line["msg"].to_string()))
            });
            turns(&file, lines)
        });
        checked(turns.collect(), 10)
    };
    agents.map(|(agent, directory)| (agent, of(directory))).into()
}

/// The turns of a recording, whose lines say whether one begins with them, and what the agent printed.
fn turns(file: &Path, lines: impl IntoIterator<Item = (bool, Option<String>)>) -> Vec<Recording> {
    let mut turns: Vec<Recording> = Vec::new();
    for (begins, line) in lines {
        if begins {
            turns
                .push(Recording { name: format!("{} {}", name(file), turns.len()), lines: vec![] });
        }
        if let Some(turn) = turns.last_mut() {
            turn.lines.extend(line);
        }
    }
    turns
}

fn checked(mut all: Vec<Recording>, least: usize) -> Vec<Recording> {
    all.retain(|recording| !recording.lines.is_empty());
    all.sort_by(|a, b| a.name.cmp(&b.name));
    assert!(all.len() >= least, "only {} recordings", all.len());
    all
}

fn below(directory: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(directory).into_iter().flatten().flatten();
    entries.map(|entry| entry.path()).collect()
}

fn text(file: &Path) -> String {
    std::fs::read_to_string(file).expect("a recording")
}

/// `release/kind/name`, or `release/name`.
fn name(file: &Path) -> String {
    let fixtures = dirs::workspace().join("fixtures");
    let relative = file.strip_prefix(&fixtures).unwrap_or(file);
    relative.with_extension("").to_string_lossy().into_owned()
}

/// What the agent printed of a line of a recording in both directions.
fn printed(line: &str) -> Option<&str> {
    let printed = !line.is_empty() && !line.starts_with("> ");
    printed.then(|| line.strip_prefix("< ").unwrap_or(line))
}
