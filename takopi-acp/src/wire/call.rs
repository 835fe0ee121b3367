//! Tool calls, and requests for permission to make them.

use serde_json::value::RawValue;
use takopi_core::jsonl::{Object, text};
use takopi_core::model::{OUTPUT_TAIL_BYTES, tail};

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
    pub(crate) output: Option<String>,
    /// New output of a command.
    pub(crate) output_delta: Option<String>,
    pub(crate) exit_code: Option<i64>,
    /// Whether a tool of an MCP server is called.
    pub(crate) is_mcp: bool,
}

/// What a call shows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Content {
    Text(String),
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
            output: raw_output.text("output").map(|output| cut(&output)),
            output_delta: meta
                .object("terminal_output_delta")
                .text("data")
                .or_else(|| meta.object("terminal_output").text("data"))
                .map(|data| cut(&data)),
            exit_code: exit.into_iter().flatten().next(),
            is_mcp: meta.flag("is_mcp_tool_call") == Some(true),
        })
    }
}

fn is_empty(raw: &RawValue) -> bool {
    raw.get().trim() == "{}"
}

fn cut(output: &str) -> String {
    tail(output, OUTPUT_TAIL_BYTES).to_owned()
}

fn contents(raw: &RawValue) -> Vec<Content> {
    takopi_core::jsonl::list(raw).into_iter().filter_map(content).collect()
}

fn content(raw: &RawValue) -> Option<Content> {
    let content = Object::of(raw);
    match content.text("type")?.as_str() {
        "content" => Some(Content::Text(cut(&content.object("content").text("text")?))),
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

/// A request for permission.
#[derive(Debug)]
pub(crate) struct Permission {
    pub(crate) session: String,
    pub(crate) call: CallUpdate,
    pub(crate) options: Vec<PermissionOption>,
    /// Fields of the call that are not known, as JSON.
    pub(crate) unknown: Vec<(String, String)>,
}

/// One of the answers that the agent offers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct PermissionOption {
    pub(crate) id: String,
    pub(crate) name: String,
    pub(crate) kind: String,
}

/// The fields of a call that are read, or grant nothing.
const KNOWN: [&str; 10] = [
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

impl Permission {
    /// Reads a request; `None` if it does not say what or whom it is about, or offers nothing.
    pub(crate) fn read(params: &RawValue) -> Option<Self> {
        let params = Object::of(params);
        let call = params.object("toolCall");
        let unknown = call.iter().filter(|(name, _)| !KNOWN.contains(name));
        let unknown = unknown.map(|(name, raw)| (name.to_owned(), raw.get().to_owned())).collect();
        let options: Vec<_> = params.list("options").into_iter().filter_map(option).collect();
        let session = params.text("sessionId")?;
        let call = CallUpdate::read(&call)?;
        (!options.is_empty()).then_some(Self { session, call, options, unknown })
    }
}

fn option(raw: &RawValue) -> Option<PermissionOption> {
    let option = Object::of(raw);
    let id = text(option.raw("optionId")?)?;
    let name = option.text("name").unwrap_or_else(|| id.clone());
    Some(PermissionOption { name, kind: option.text("kind")?, id })
}
