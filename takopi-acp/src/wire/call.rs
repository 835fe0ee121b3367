//! Tool calls, and requests for permission to make them.

use std::collections::HashSet;

use serde_json::value::RawValue;
use takopi_core::jsonl::{Object, text};

use super::Text;

/// The longest text of a file that is kept for its diff.
const FILE_BYTES: usize = 256 * 1024;

/// News of a tool call: fields that are there replace earlier ones.
#[derive(Debug, Default, Clone)]
pub(crate) struct CallUpdate {
    pub(crate) id: String,
    pub(crate) title: Option<String>,
    pub(crate) kind: Option<String>,
    pub(crate) status: Option<String>,
    pub(crate) input: Option<Box<RawValue>>,
    pub(crate) content: Option<Vec<Content>>,
    pub(crate) locations: Option<Vec<String>>,
    /// Output of a command as the tool itself reports it, all of it so far.
    pub(crate) output: Option<Text>,
    /// New output of a command.
    pub(crate) output_delta: Option<String>,
    pub(crate) exit_code: Option<i64>,
    /// Whether a tool of an MCP server is called.
    pub(crate) is_mcp: bool,
}

/// What a call shows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Content {
    Text(Text),
    /// What happens to a file; no old text means that it is new.
    Diff {
        path: String,
        old: Option<String>,
        new: String,
        is_cut: bool,
    },
}

impl CallUpdate {
    /// Reads a call; `None` if it has no id.
    pub(crate) fn read(call: &Object<'_>) -> Option<Self> {
        let meta = call.object("_meta");
        let raw_output = call.object("rawOutput");
        let exit = [
            meta.object("terminal_exit").int("exit_code"),
            raw_output.int("exitCode"),
            raw_output.int("exit_code"),
            raw_output.object("metadata").int("exit"),
        ];
        Some(Self {
            id: call.text("toolCallId").filter(|id| !id.is_empty())?,
            title: call.text("title").filter(|title| !title.trim().is_empty()),
            kind: call.text("kind"),
            status: call.text("status"),
            input: call.raw("rawInput").filter(|input| !is_empty(input)).map(ToOwned::to_owned),
            content: call.raw("content").map(contents),
            locations: call.raw("locations").map(|_| {
                let locations = call.list("locations").into_iter();
                locations.filter_map(|location| Object::of(location).text("path")).collect()
            }),
            output: raw_output.text("output").map(|output| Text::new(&output)),
            output_delta: meta
                .object("terminal_output_delta")
                .text("data")
                .or_else(|| meta.object("terminal_output").text("data")),
            exit_code: exit.into_iter().flatten().next(),
            is_mcp: meta.flag("is_mcp_tool_call") == Some(true),
        })
    }
}

fn is_empty(raw: &RawValue) -> bool {
    raw.get().trim() == "{}"
}

fn contents(raw: &RawValue) -> Vec<Content> {
    takopi_core::jsonl::list(raw).into_iter().filter_map(content).collect()
}

fn content(raw: &RawValue) -> Option<Content> {
    let content = Object::of(raw);
    match content.text("type")?.as_str() {
        "content" => Some(Content::Text(Text::new(without_fence(&words(&content)?)))),
        "diff" => {
            let (old, new) = (content.text("oldText"), content.text("newText")?);
            let is_cut = old.as_ref().map_or(0, String::len).max(new.len()) > FILE_BYTES;
            let keep = |text: String| text[..text.floor_char_boundary(FILE_BYTES)].to_owned();
            let path = content.text("path")?;
            Some(Content::Diff { path, old: old.map(keep), new: keep(new), is_cut })
        }
        _ => None,
    }
}

/// Whether everything in an entry is read: what the call says, a diff, or where its output will be.
fn is_read(raw: &RawValue) -> bool {
    let entry = Object::of(raw);
    if [&entry, &entry.object("content")].iter().any(|object| repeated(object).next().is_some()) {
        return false;
    }
    let known: &[&str] = match entry.text("type").as_deref() {
        Some("content") if words(&entry).is_some() => &["content"],
        Some("diff") if content(raw).is_some() => {
            if entry.has("oldText") && entry.text("oldText").is_none() {
                return false;
            }
            &["path", "oldText", "newText"]
        }
        Some("terminal") => &["terminalId"],
        _ => return false,
    };
    entry.iter().all(|(name, _)| ["type", "_meta"].contains(&name) || known.contains(&name))
}

/// The text of a content block.
fn words(content: &Object<'_>) -> Option<String> {
    content.object("content").text("text")
}

/// An output that stands in a code block.
fn without_fence(text: &str) -> &str {
    let inside = text.trim().strip_prefix("```").and_then(|rest| rest.strip_suffix("```"));
    match inside.and_then(|inside| inside.split_once('\n')) {
        Some((_, output)) => output.strip_suffix('\n').unwrap_or(output),
        None => text,
    }
}

/// A request for permission.
#[derive(Debug)]
pub(crate) struct Permission {
    pub(crate) session: String,
    pub(crate) call: CallUpdate,
    /// The input as it came, also one without fields; `None` if none was sent.
    pub(crate) input: Option<Box<RawValue>>,
    /// All that the call says in words. Agents that send no input put it here.
    pub(crate) text: String,
    pub(crate) options: Vec<PermissionOption>,
    /// What is not known or could not be read, as JSON.
    pub(crate) unknown: Vec<(String, String)>,
    /// What makes two requests the same: all that tells what is to be done, as it came.
    pub(crate) same: String,
}

/// One of the answers that the agent offers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct PermissionOption {
    pub(crate) id: String,
    pub(crate) name: String,
    pub(crate) kind: String,
}

/// The fields of a request that are read, or grant nothing.
const KNOWN: [&str; 4] = ["sessionId", "toolCall", "options", "_meta"];

/// The fields of its call that are read, or grant nothing.
const KNOWN_OF_CALL: [&str; 10] = [
    "toolCallId",
    "title",
    "kind",
    "status",
    "rawInput",
    "rawOutput",
    "content",
    "locations",
    "name",
    "_meta",
];

/// The fields of a call that tell what is to be done.
const TELLING: [&str; 6] = ["title", "kind", "name", "rawInput", "content", "locations"];

impl Permission {
    /// Reads a request; `None` if it does not say what or whom it is about, or offers nothing.
    pub(crate) fn read(params: &RawValue) -> Option<Self> {
        let params = Object::of(params);
        let call = params.object("toolCall");
        let unknown = unknown(&params, &call);
        let options: Vec<_> = params.list("options").into_iter().filter_map(option).collect();
        let session = params.text("sessionId")?;
        let input = call.raw("rawInput").map(ToOwned::to_owned);
        let texts = call.list("content").into_iter().filter_map(|entry| words(&Object::of(entry)));
        let texts: Vec<String> = texts.filter(|text| !text.trim().is_empty()).collect();
        let text = texts.join("\n");
        let telling = call.iter().filter(|(name, _)| TELLING.contains(name));
        let same: Vec<&str> = telling.flat_map(|(name, raw)| [name, raw.get()]).collect();
        let same = same.join("\n");
        let call = CallUpdate::read(&call)?;
        let permission = Self { session, call, input, text, options, unknown, same };
        (!permission.options.is_empty()).then_some(permission)
    }
}

/// Members whose name stood in the object before. The first one is read here, and agents may read another.
fn repeated<'a, 'r>(object: &'a Object<'r>) -> impl Iterator<Item = (&'a str, &'r RawValue)> {
    let mut names = HashSet::new();
    object.iter().filter(move |(name, _)| !names.insert(*name))
}

/// What of a request is not known or cannot be read.
fn unknown(params: &Object<'_>, call: &Object<'_>) -> Vec<(String, String)> {
    let (input, meta) = (call.object("rawInput"), call.object("_meta"));
    let twice = [params, call, &input, &meta].into_iter().flat_map(repeated);
    let options = params.list("options").into_iter();
    let options = options.filter(|option| repeated(&Object::of(option)).next().is_some());
    let fields = params.iter().filter(|(name, _)| !KNOWN.contains(name));
    let fields = fields.chain(call.iter().filter(|(name, _)| !KNOWN_OF_CALL.contains(name)));
    let lists =
        ["content", "locations"].into_iter().filter_map(|name| Some((name, call.raw(name)?)));
    let no_lists = lists.filter(|(_, raw)| !raw.get().starts_with('['));
    let contents = call.list("content").into_iter().filter(|entry| !is_read(entry));
    let locations = call.list("locations").into_iter();
    let locations = locations.filter(|location| {
        let location = Object::of(location);
        location.text("path").is_none() || repeated(&location).next().is_some()
    });
    fields
        .chain(twice)
        .chain(options.map(|option| ("options", option)))
        .chain(no_lists)
        .chain(contents.map(|entry| ("content", entry)))
        .chain(locations.map(|location| ("locations", location)))
        .map(|(name, raw)| (name.to_owned(), raw.get().to_owned()))
        .collect()
}

fn option(raw: &RawValue) -> Option<PermissionOption> {
    let option = Object::of(raw);
    let id = text(option.raw("optionId")?)?;
    let name = option.text("name").unwrap_or_else(|| id.clone());
    Some(PermissionOption { name, kind: option.text("kind")?, id })
}
