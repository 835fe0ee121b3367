//! The messages and commands in a session file.
//!
//! The file is a tree: each entry names the entry before it, and a session that two processes wrote to has
//! branches. What counts is the branch of the last entry, as for pi itself. Other entries, and lines that
//! cannot be read, are skipped.

use std::collections::{HashMap, HashSet};
use std::fs::File;
use std::io::{self, BufRead as _, BufReader};
use std::path::Path;

use serde_json::Value;
use takopi_core::catalog::{Role, TranscriptEntry};
use takopi_core::model::{OUTPUT_TAIL_BYTES, tail};

/// What a command prints last if its exit code is not 0.
const EXIT_CODE: &str = "Command exited with code ";

/// What is stored for a command that printed nothing.
const NO_OUTPUT: &str = "(no output)";

/// One entry, and the tool call of a command.
#[derive(Debug)]
pub(super) struct Entry {
    pub(super) shown: TranscriptEntry,
    call: Option<String>,
}

/// How a tool call ended.
struct ToolResult {
    /// `None` if it did not run to its end.
    exit_code: Option<i64>,
    /// The end of what it printed.
    output: String,
}

/// A line that is part of the tree.
struct Node {
    id: String,
    parent: Option<String>,
    entries: Vec<Entry>,
}

/// All messages and commands of the newest branch, in order.
pub(super) fn read(path: &Path) -> io::Result<Vec<TranscriptEntry>> {
    let (mut nodes, mut results) = (Vec::new(), HashMap::new());
    for line in BufReader::new(File::open(path)?).split(b'\n') {
        let Ok(line) = serde_json::from_slice::<Value>(&line?) else { continue };
        let Some(id) = line["id"].as_str().filter(|_| line["type"] != "session") else { continue };
        results.extend(result(&line["message"]));
        nodes.push(Node {
            id: id.to_owned(),
            parent: line["parentId"].as_str().map(str::to_owned),
            entries: entries(&line),
        });
    }
    let branch = branch(&nodes);
    let nodes = nodes.into_iter().enumerate().filter(|(at, _)| branch.contains(at));
    let entries = nodes.flat_map(|(_, node)| node.entries).map(|mut entry| {
        if let Some(result) = entry.call.as_ref().and_then(|call| results.get(call)) {
            entry.shown.exit_code = result.exit_code;
            entry.shown.set_output(&result.output);
        }
        entry.shown
    });
    Ok(entries.collect())
}

/// The lines that lead to the last one.
fn branch(nodes: &[Node]) -> HashSet<usize> {
    let places: HashMap<&str, usize> =
        nodes.iter().enumerate().map(|(at, node)| (node.id.as_str(), at)).collect();
    let mut branch = HashSet::new();
    let mut next = nodes.len().checked_sub(1);
    // A line that was visited before would be a circle.
    while let Some(at) = next.filter(|at| branch.insert(*at)) {
        next = nodes[at].parent.as_deref().and_then(|parent| places.get(parent)).copied();
    }
    branch
}

/// The messages and commands of a line.
pub(super) fn entries(line: &Value) -> Vec<Entry> {
    let message = &line["message"];
    let mut entries = match (line["type"].as_str(), message["role"].as_str()) {
        (Some("message"), Some("user")) => {
            texts(&message["content"]).map(|text| entry(Role::User, &text)).into_iter().collect()
        }
        (Some("message"), Some("assistant")) => assistant(message),
        (Some("compaction"), _) => vec![entry(Role::Note, "the conversation was compacted")],
        _ => Vec::new(),
    };
    for it in &mut entries {
        it.shown.at = line["timestamp"].as_str().map(str::to_owned);
    }
    entries
}

fn assistant(message: &Value) -> Vec<Entry> {
    let said = texts(&message["content"]).map(|text| entry(Role::Agent, &text));
    let calls = message["content"].as_array().into_iter().flatten().filter_map(|block| {
        let is_command = block["type"] == "toolCall" && block["name"] == "bash";
        let command = block["arguments"]["command"].as_str().filter(|_| is_command)?;
        let call = block["id"].as_str().map(str::to_owned);
        Some(Entry { call, ..entry(Role::Command, command) })
    });
    let error = message["errorMessage"].as_str().map(|error| entry(Role::Note, error));
    said.into_iter().chain(calls).chain(error).collect()
}

/// The result of a tool call, by call.
fn result(message: &Value) -> Option<(String, ToolResult)> {
    let call = message["toolCallId"].as_str().filter(|_| message["role"] == "toolResult")?;
    let said = texts(&message["content"]).unwrap_or_default();
    let (exit_code, output) = match said.rsplit_once(EXIT_CODE) {
        _ if message["isError"] != true => (Some(0), said.as_str()),
        Some((output, code)) => (code.trim().parse().ok(), output),
        None => (None, said.as_str()),
    };
    let output = if output.trim() == NO_OUTPUT { "" } else { output };
    let output = tail(output, OUTPUT_TAIL_BYTES).to_owned();
    Some((call.to_owned(), ToolResult { exit_code, output }))
}

/// A text, or the texts in a list of blocks.
fn texts(content: &Value) -> Option<String> {
    let said = match content {
        Value::String(said) => said.clone(),
        content => {
            let blocks = content.as_array()?.iter().filter(|block| block["type"] == "text");
            blocks.filter_map(|block| block["text"].as_str()).collect::<Vec<_>>().join("\n\n")
        }
    };
    (!said.trim().is_empty()).then_some(said)
}

fn entry(role: Role, said: &str) -> Entry {
    Entry { shown: TranscriptEntry::new(role, said), call: None }
}
