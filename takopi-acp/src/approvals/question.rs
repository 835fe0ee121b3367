//! A request for permission as a typed question.
//!
//! What a yes would grant and the question does not show is marked, and never dropped. A call whose input is not known is
//! not understood: people can still accept it, rules do not.

use std::borrow::Cow;
use std::path::{Path, PathBuf};

use serde_json::value::RawValue;
use takopi_core::jsonl::{Object, text};
use takopi_core::runner::{
    ChangeKind, Command, Excerpt, FileChange, Location, Patch, Question, ToolCall, Unrecognized,
};

use super::TEXT_BYTES;
use crate::diff;
use crate::wire::{CallUpdate, Content, Permission};

/// How much of what an agent says about its request is shown.
const REASON_BYTES: usize = 4096;

/// What is asked, and what of it could not be shown.
pub(super) fn question(permission: &Permission, directory: &Path) -> (Question, Vec<Unrecognized>) {
    let (question, mut unrecognized) = shown(permission, directory);
    unrecognized.extend(permission.unknown.iter().map(|(name, json)| part(name, json)));
    (question, unrecognized)
}

fn shown(permission: &Permission, directory: &Path) -> (Question, Vec<Unrecognized>) {
    let call = &permission.call;
    let input = permission.input.as_deref();
    let diffs = call.content.iter().flatten();
    let files: Vec<FileChange> =
        diffs.filter_map(|content| change(content, call, directory)).collect();
    match call.kind.as_deref() {
        Some("execute") if !call.is_mcp => {
            let input = input.map(Object::of).unwrap_or_default();
            if let Some(command) = input.text("command") {
                let known =
                    ["command", "cwd", "description", "timeout", "is_background", "workdir"];
                let odd = input.iter().filter(|(name, raw)| {
                    !known.contains(name)
                        || (*name == "is_background" && raw.get() != "false")
                        || (["cwd", "workdir"].contains(name) && !is_at(raw.get(), directory))
                });
                let odd = odd.map(|(name, raw)| part(name, raw.get()));
                let odd = odd.chain(files.iter().map(unshown)).collect();
                return (Question::Command(Command::new(command)), odd);
            }
            // The title is for people: it need not be what would run.
            let title = call.title.clone().unwrap_or_default();
            let odd = std::iter::once(unread_input(permission)).chain(files.iter().map(unshown));
            (Question::Command(Command::new(title)), odd.collect())
        }
        Some(kind @ ("edit" | "delete" | "move")) if !files.is_empty() => {
            let is_shown = |path: &str| {
                let path = Location::new(path, directory).path;
                files.iter().any(|file| file.path.path == path)
            };
            let places = call.locations.iter().flatten().filter(|path| !is_shown(path));
            let places = places.map(|path| part("locations", path));
            let input = input.into_iter().flat_map(|input| beyond_diffs(kind, input, is_shown));
            let odd = places.chain(input).collect();
            (Question::Patch(Patch::new(files)), odd)
        }
        Some("edit" | "delete" | "move") => {
            let kind = match call.kind.as_deref() {
                Some("delete") => ChangeKind::Delete,
                _ => ChangeKind::Unknown,
            };
            let paths = call.locations.iter().flatten();
            let files = paths.map(|path| FileChange::new(kind, path, directory));
            let mut unseen =
                vec![Unrecognized::new("content", Excerpt::from("the agent sent no diff"))];
            unseen.extend(input.map(|input| part("rawInput", input.get())));
            (Question::Patch(Patch::new(files)), unseen)
        }
        _ => {
            // Some agents send the input as text.
            let words = Some(permission.text.as_str()).filter(|words| !words.is_empty());
            let input = input.map(RawValue::get).or(words);
            let missing = input.is_none().then(|| unread_input(permission)).into_iter();
            let odd = missing.chain(files.iter().map(unshown)).collect();
            let tool = ToolCall::default()
                .tool(call.title.clone())
                .description(call.kind.clone())
                .input(input.map(|input| Excerpt::new(input, TEXT_BYTES)));
            (Question::ToolCall(tool), odd)
        }
    }
}

/// What of the input of a change goes beyond its diffs.
fn beyond_diffs(
    kind: &str,
    input: &RawValue,
    is_shown: impl Fn(&str) -> bool,
) -> Vec<Unrecognized> {
    if !input.get().starts_with('{') {
        return vec![part("rawInput", input.get())];
    }
    let beyond = |name: &str, raw: &RawValue| match kind {
        // The diff has one place, and all of them would be replaced.
        "edit" => {
            ["replace_all", "replaceAll"].contains(&name) && !matches!(raw.get(), "false" | "null")
        }
        // What is deleted besides, and where a file is moved to, is in no diff.
        _ => !text(raw).is_some_and(|path| is_shown(&path)),
    };
    let input = Object::of(input);
    let beyond = input.iter().filter(|(name, raw)| beyond(name, raw));
    beyond.map(|(name, raw)| part(name, raw.get())).collect()
}

/// A change that the question has no place for.
fn unshown(file: &FileChange) -> Unrecognized {
    let diff = file.diff.clone().unwrap_or_default();
    let mut shown =
        Excerpt::new(&format!("{}\n{}", file.path.path.display(), diff.text), TEXT_BYTES);
    shown.omitted += diff.omitted;
    Unrecognized::new("content", shown)
}

/// An input that was not sent, or is not of the form that is known.
fn unread_input(permission: &Permission) -> Unrecognized {
    match &permission.input {
        Some(input) => part("rawInput", input.get()),
        None => Unrecognized::new("rawInput", Excerpt::from("the agent did not send it")),
    }
}

fn is_at(json: &str, directory: &Path) -> bool {
    serde_json::from_str::<PathBuf>(json).is_ok_and(|path| path == directory)
}

fn change(content: &Content, call: &CallUpdate, directory: &Path) -> Option<FileChange> {
    let Content::Diff { path, old, new, is_cut } = content else { return None };
    let kind = match old.as_deref() {
        _ if call.kind.as_deref() == Some("delete") => ChangeKind::Delete,
        // Meant for new files, and sent by some whenever they did not look at what is there.
        None => ChangeKind::Unknown,
        Some(_) => ChangeKind::Update,
    };
    let diff = diff::unified(old.as_deref(), new, usize::MAX);
    let mut excerpt = Excerpt::new(&diff, TEXT_BYTES);
    if *is_cut {
        excerpt.omitted = excerpt.omitted.max(1);
    }
    Some(FileChange::new(kind, path, directory).diff(excerpt))
}

fn part(name: &str, json: &str) -> Unrecognized {
    Unrecognized::new(name, Excerpt::new(json, TEXT_BYTES))
}

/// Why it is asked, and what the agent offers.
pub(super) fn reason(permission: &Permission, question: &Question) -> String {
    let names: Vec<&str> = permission.options.iter().map(|option| option.name.as_str()).collect();
    let offers = format!("the agent offers: {}", cut(&names.join(" / ")));
    let is_input = matches!(question, Question::ToolCall(_)) && permission.input.is_none();
    match permission.text.trim() {
        // It is the question itself.
        _ if is_input => offers,
        "" => offers,
        text => format!("{}; {offers}", cut(text)),
    }
}

/// The beginning of a text, with a mark where something is missing.
fn cut(text: &str) -> Cow<'_, str> {
    let kept = &text[..text.floor_char_boundary(REASON_BYTES)];
    if kept.len() < text.len() { format!("{kept}…").into() } else { kept.into() }
}

#[cfg(test)]
mod tests;
