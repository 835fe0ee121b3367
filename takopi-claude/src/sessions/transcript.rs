//! The messages and commands in a session file.
//!
//! The file is a tree: each line names the line before it, and a session that two processes wrote to has
//! branches. What counts is the branch of the last message, as for Claude Code itself. A message with several
//! tool calls is one line for each block, and their results branch off; they are found by their ids.
//! Compacting begins a new tree, whose first line names the last line of the old one. Lines of sub-agents, other lines,
//! and lines that cannot be read are skipped.

use std::collections::{HashMap, HashSet};
use std::fs::File;
use std::io::{self, BufRead as _, BufReader};
use std::path::Path;

use serde_json::Value;
use takopi_core::catalog::{Role, TranscriptEntry};
use takopi_core::model::{OUTPUT_TAIL_BYTES, tail};

/// What a command prints first if its exit code is not 0.
const EXIT_CODE: &str = "Exit code ";
/// What is stored for a command that printed nothing.
const NO_OUTPUT: &str = "(Bash completed with no output)";
/// What follows a turn that was interrupted.
const INTERRUPTED: &str = "[Request interrupted by user";

/// One entry, and how it belongs to others.
#[derive(Debug)]
pub(super) struct Entry {
    pub(super) shown: TranscriptEntry,
    /// The tool call of a command.
    call: Option<String>,
    /// The message of a text.
    message: Option<String>,
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
    uuid: String,
    parent: Option<String>,
    /// The model's message, of which the line is one block.
    message: Option<String>,
    entries: Vec<Entry>,
}

/// All messages and commands of the newest branch, in order.
pub(super) fn read(path: &Path) -> io::Result<Vec<TranscriptEntry>> {
    let (mut nodes, mut found, mut newest) = (Vec::new(), HashMap::new(), None);
    for line in BufReader::new(File::open(path)?).split(b'\n') {
        let Ok(line) = serde_json::from_slice::<Value>(&line?) else { continue };
        let Some(uuid) = text(&line, "uuid").filter(|_| !is_true(&line, "isSidechain")) else {
            continue;
        };
        if matches!(kind(&line), "user" | "assistant") {
            newest = Some(nodes.len());
        }
        found.extend(results(&line));
        nodes.push(Node {
            uuid: uuid.to_owned(),
            parent: parent(&line),
            message: message_id(&line),
            entries: entries(&line),
        });
    }
    let branch = branch(&nodes, newest);
    let nodes = nodes.into_iter().enumerate().filter(|(at, _)| branch.contains(at));
    Ok(joined(nodes.flat_map(|(_, node)| node.entries), &found))
}

/// The lines that lead to the newest one, and the other blocks of the same messages.
fn branch(nodes: &[Node], newest: Option<usize>) -> HashSet<usize> {
    let places = nodes.iter().enumerate().map(|(at, node)| (node.uuid.as_str(), at));
    let places: HashMap<&str, usize> = places.collect();
    let mut branch = HashSet::new();
    let mut next = newest;
    // A line that was visited before would be a circle.
    while let Some(at) = next.filter(|at| branch.insert(*at)) {
        next = nodes[at].parent.as_deref().and_then(|parent| places.get(parent)).copied();
    }
    // The blocks of a message follow each other, also where its results branch off.
    for (at, node) in nodes.iter().enumerate() {
        let before = node.parent.as_deref().and_then(|parent| places.get(parent));
        let is_block = before.is_some_and(|before| {
            branch.contains(before)
                && node.message.is_some()
                && nodes[*before].message == node.message
        });
        if is_block {
            branch.insert(at);
        }
    }
    branch
}

/// The texts of one message in one entry, and commands with their results.
fn joined(
    entries: impl Iterator<Item = Entry>,
    results: &HashMap<String, ToolResult>,
) -> Vec<TranscriptEntry> {
    let mut done: Vec<Entry> = Vec::new();
    for mut next in entries {
        if let Some(result) = next.call.as_ref().and_then(|call| results.get(call)) {
            next.shown.exit_code = result.exit_code;
            next.shown.set_output(&result.output);
        }
        match done.last_mut() {
            Some(last) if last.message.is_some() && last.message == next.message => {
                last.shown.text.push_str("\n\n");
                last.shown.text.push_str(&next.shown.text);
            }
            _ => done.push(next),
        }
    }
    done.into_iter().map(|it| it.shown).collect()
}

/// The messages and commands of a line.
pub(super) fn entries(line: &Value) -> Vec<Entry> {
    if is_true(line, "isSidechain") || is_true(line, "isMeta") || is_true(line, "isCompactSummary")
    {
        return Vec::new();
    }
    let mut entries = match kind(line) {
        "user" => user(line).into_iter().collect(),
        "assistant" => assistant(line),
        "attachment" => queued(line).into_iter().collect(),
        "system" if text(line, "subtype") == Some("compact_boundary") => {
            vec![entry(Role::Note, "the conversation was compacted")]
        }
        _ => Vec::new(),
    };
    for it in &mut entries {
        it.shown.at = text(line, "timestamp").map(str::to_owned);
    }
    entries
}

fn user(line: &Value) -> Option<Entry> {
    let said = texts(line.pointer("/message/content")?)?;
    if said.starts_with(INTERRUPTED) {
        return Some(entry(Role::Note, "the turn was interrupted"));
    }
    let origin = line.pointer("/origin/kind").and_then(Value::as_str);
    if origin == Some("task-notification") || said.starts_with("<task-notification>") {
        return Some(entry(Role::Note, between(&said, "summary").unwrap_or("a task ended")));
    }
    // A command of Claude Code itself, and its output.
    if let Some(command) = between(&said, "command-name") {
        let arguments = between(&said, "command-args").unwrap_or_default();
        return Some(entry(Role::User, format!("{command} {arguments}").trim_end()));
    }
    let is_output = said.starts_with("<local-command-") || said.starts_with("<bash-std");
    (!is_output).then(|| entry(Role::User, said.trim_end()))
}

fn assistant(line: &Value) -> Vec<Entry> {
    let is_error = is_true(line, "isApiErrorMessage");
    if !is_error && line.pointer("/message/model").and_then(Value::as_str) == Some("<synthetic>") {
        return Vec::new();
    }
    let blocks = line.pointer("/message/content").and_then(Value::as_array);
    let block = |block: &Value| match kind(block) {
        "text" => {
            let said = text(block, "text").filter(|said| !said.trim().is_empty())?;
            if is_error {
                return Some(entry(Role::Note, said));
            }
            Some(Entry { message: message_id(line), ..entry(Role::Agent, said) })
        }
        "tool_use" if text(block, "name") == Some("Bash") => {
            let command = block.pointer("/input/command").and_then(Value::as_str)?;
            let call = text(block, "id").map(str::to_owned);
            Some(Entry { call, ..entry(Role::Command, command) })
        }
        _ => None,
    };
    blocks.into_iter().flatten().filter_map(block).collect()
}

/// A message that was added to a running turn.
fn queued(line: &Value) -> Option<Entry> {
    let attachment = line.get("attachment").filter(|it| kind(it) == "queued_command")?;
    let said = texts(attachment.get("prompt")?)?;
    let is_prompt = text(attachment, "commandMode").is_none_or(|mode| mode == "prompt");
    is_prompt.then(|| entry(Role::User, said.trim_end()))
}

/// The results of tool calls, by call.
fn results(line: &Value) -> Vec<(String, ToolResult)> {
    let blocks = line.pointer("/message/content").and_then(Value::as_array);
    let result = |block: &Value| {
        let call = text(block, "tool_use_id").filter(|_| kind(block) == "tool_result")?;
        let said = block.get("content").and_then(texts).unwrap_or_default();
        let (exit_code, output) = if is_true(block, "is_error") {
            let failed = said.strip_prefix(EXIT_CODE);
            let (code, output) = failed.map(|it| it.split_once('\n').unwrap_or((it, ""))).unzip();
            (code.and_then(|code| code.trim().parse().ok()), output.unwrap_or(&said))
        } else {
            (Some(0), said.as_str())
        };
        let output = if output == NO_OUTPUT { "" } else { output };
        let output = tail(output, OUTPUT_TAIL_BYTES).to_owned();
        Some((call.to_owned(), ToolResult { exit_code, output }))
    };
    blocks.into_iter().flatten().filter_map(result).collect()
}

/// A text, or the texts in a list of blocks.
fn texts(content: &Value) -> Option<String> {
    let said = match content {
        Value::String(said) => said.clone(),
        Value::Array(blocks) => {
            let blocks = blocks.iter().filter(|block| kind(block) == "text");
            blocks.filter_map(|block| text(block, "text")).collect::<Vec<_>>().join("\n")
        }
        _ => return None,
    };
    (!said.trim().is_empty()).then_some(said)
}

/// The text between `<tag>` and `</tag>`.
fn between<'a>(said: &'a str, tag: &str) -> Option<&'a str> {
    let (_, rest) = said.split_once(&format!("<{tag}>"))?;
    Some(rest.split_once(&format!("</{tag}>"))?.0)
}

fn entry(role: Role, said: &str) -> Entry {
    Entry { shown: TranscriptEntry::new(role, said), call: None, message: None }
}

fn parent(line: &Value) -> Option<String> {
    text(line, "parentUuid").or_else(|| text(line, "logicalParentUuid")).map(str::to_owned)
}

/// The id of the model's message.
fn message_id(line: &Value) -> Option<String> {
    let message = line.get("message").filter(|_| kind(line) == "assistant")?;
    text(message, "id").map(str::to_owned)
}

fn kind(value: &Value) -> &str {
    text(value, "type").unwrap_or_default()
}

fn text<'a>(value: &'a Value, key: &str) -> Option<&'a str> {
    value.get(key)?.as_str()
}

fn is_true(value: &Value, key: &str) -> bool {
    value.get(key).and_then(Value::as_bool).unwrap_or(false)
}
