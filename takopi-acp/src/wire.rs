//! What agents send, read tolerantly.
//!
//! Only the fields that are used; a field of an unexpected type is absent, and an update that is not known is
//! [`Update::Other`]. Values are parsed once, into types that own their text.

mod call;
mod session;
#[cfg(test)]
mod tests;
mod text;

use serde_json::value::RawValue;
use takopi_core::jsonl::Object;

pub(crate) use call::{CallUpdate, Content, Permission, PermissionOption};
pub(crate) use session::{AgentInfo, ConfigOption, SessionPage, SessionReply};
pub(crate) use text::{Text, head};

/// The part of a `session/update` that tells whose it is and what happened.
#[derive(Debug)]
pub(crate) struct SessionUpdate {
    /// The session it names.
    pub(crate) session: String,
    pub(crate) update: Update,
}

/// What happened.
#[derive(Debug)]
pub(crate) enum Update {
    /// A piece of a message.
    Message { id: Option<String>, text: String, tokens: Option<Tokens> },
    /// A piece of the agent's reasoning.
    Thought { id: Option<String>, text: String },
    /// News of a tool call.
    Call(Box<CallUpdate>),
    /// The agent's list of tasks.
    Plan(Vec<PlanEntry>),
    /// A warning of the agent itself.
    Notice { severity: Option<String>, text: String },
    /// The agent tries again to reach its model.
    Retry { message: String, details: Option<String> },
    /// The permission mode that the session is in.
    Mode(String),
    /// Anything else, by its name.
    Other(String),
}

/// A task of the agent's list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct PlanEntry {
    pub(crate) text: String,
    pub(crate) is_done: bool,
}

/// Token figures.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Tokens {
    pub(crate) input: u64,
    pub(crate) cached: u64,
    pub(crate) output: u64,
    pub(crate) reasoning: u64,
}

/// How a turn ended.
#[derive(Debug, Clone, Default)]
pub(crate) struct PromptReply {
    pub(crate) stop_reason: String,
    pub(crate) tokens: Option<Tokens>,
}

impl SessionUpdate {
    /// Reads an update; `None` if it names no session that can be read: it may be anybody's.
    pub(crate) fn read(params: &RawValue) -> Option<Self> {
        let params = Object::of(params);
        let session = params.text("sessionId")?;
        Some(Self { session, update: Update::read(&params.object("update")) })
    }
}

impl Update {
    fn read(update: &Object<'_>) -> Self {
        let kind = update.text("sessionUpdate").unwrap_or_default();
        match kind.as_str() {
            "agent_message_chunk" => Self::Message {
                id: update.text("messageId").filter(|id| !id.is_empty()),
                text: chunk_text(update),
                tokens: Tokens::read(&update.object("_meta").object("usage")),
            },
            "agent_thought_chunk" => {
                Self::Thought { id: update.text("messageId"), text: chunk_text(update) }
            }
            "tool_call" | "tool_call_update" => match CallUpdate::read(update) {
                Some(call) => Self::Call(Box::new(call)),
                None => Self::Other(kind),
            },
            "current_mode_update" | "config_option_update" => {
                let mode = update.text("currentModeId").or_else(|| session::mode(update));
                mode.map_or(Self::Other(kind), Self::Mode)
            }
            "plan" => Self::Plan(update.list("entries").into_iter().filter_map(entry).collect()),
            "notice" => {
                let parts = [update.text("title"), update.text("description")];
                let parts: Vec<String> = parts.into_iter().flatten().collect();
                Self::Notice { severity: update.text("severity"), text: parts.join(": ") }
            }
            "session_info_update" => {
                let error = update.object("_meta").object("codex").object("error");
                match error.text("message") {
                    Some(message) if error.flag("willRetry") == Some(true) => {
                        Self::Retry { message, details: error.text("additionalDetails") }
                    }
                    _ => Self::Other(kind),
                }
            }
            _ => Self::Other(kind),
        }
    }
}

fn chunk_text(update: &Object<'_>) -> String {
    update.object("content").text("text").unwrap_or_default()
}

fn entry(raw: &RawValue) -> Option<PlanEntry> {
    let entry = Object::of(raw);
    let is_done = entry.text("status").as_deref() == Some("completed");
    Some(PlanEntry { text: entry.text("content")?, is_done })
}

impl Tokens {
    /// Figures in ACP's spelling. Some agents count cached tokens as input, others beside it: the total tells.
    pub(crate) fn read(usage: &Object<'_>) -> Option<Self> {
        let count = |name| usage.count(name).unwrap_or_default();
        let (input, output) = (usage.count("inputTokens")?, count("outputTokens"));
        let (cached, written) = (count("cachedReadTokens"), count("cachedWriteTokens"));
        let beside = input.saturating_add(cached).saturating_add(written);
        let is_beside = beside.saturating_add(output) <= count("totalTokens");
        let input = if is_beside { beside } else { input };
        Some(Self { input, cached, output, reasoning: count("thoughtTokens") })
    }

    /// Gemini's own spelling.
    fn quota(quota: &Object<'_>) -> Option<Self> {
        let count = quota.object("token_count");
        let input = count.count("input_tokens")?;
        let output = count.count("output_tokens").unwrap_or_default();
        Some(Self { input, output, ..Self::default() })
    }

    pub(crate) fn add(&mut self, other: Self) {
        self.input = self.input.saturating_add(other.input);
        self.cached = self.cached.saturating_add(other.cached);
        self.output = self.output.saturating_add(other.output);
        self.reasoning = self.reasoning.saturating_add(other.reasoning);
    }
}

impl PromptReply {
    pub(crate) fn read(result: &RawValue) -> Self {
        let result = Object::of(result);
        let tokens = Tokens::read(&result.object("usage"));
        Self {
            stop_reason: result.text("stopReason").unwrap_or_default(),
            tokens: tokens.or_else(|| Tokens::quota(&result.object("_meta").object("quota"))),
        }
    }
}
