//! The model of a real agent, in the dialect of that agent: one script for all of them.

use std::collections::HashSet;
use std::sync::{Mutex, PoisonError};

use serde_json::json;

use super::real::Real;
use crate::model::chat::{self, ChatServer};
use crate::model::gemini::GeminiServer;
use crate::model::messages::{self, MessagesServer};
use crate::model::{Answer, Api, Gate, ModelServer, Script, Server};

/// What the model does at a request.
#[derive(Clone, Debug)]
pub enum Do {
    /// Answers.
    Say(String),
    /// Says something, and has the agent run a command.
    Run(String),
    /// Has the agent run a command that it must ask about.
    Ask(String),
    /// Has the agent call a tool of the MCP server `lab` with this text.
    Echo(String),
    /// Says something so many times (codex), and answers.
    Remark(usize, String),
    /// Waits for the gate, and answers.
    Wait(Gate, String),
    /// Answers with an HTTP status that no agent retries.
    Fail,
    /// Begins to answer, and the stream ends before the answer does.
    Break(String),
}

/// A request of an agent.
#[derive(Debug)]
pub(super) struct Asked {
    /// The needle of the script that answered it.
    pub(super) needle: Option<String>,
    pub(super) user_texts: Vec<String>,
    pub(super) tool_outputs: Vec<String>,
    /// All of it, as JSON.
    pub(super) body: String,
}

/// A scripted model.
#[derive(Debug)]
pub(super) enum Model {
    Chat(ChatServer),
    Messages(MessagesServer),
    Gemini(GeminiServer),
    /// With the needles whose answer is given again and again.
    Responses(ModelServer, Mutex<HashSet<String>>),
}

impl Model {
    /// What it does for prompts that contain `needle`.
    pub(super) fn when(&self, real: Real, needle: &str, script: impl IntoIterator<Item = Do>) {
        let script = script.into_iter();
        match self {
            Self::Chat(model) => {
                model.when(needle, script.map(|it| completion(real, it)).collect::<Vec<_>>());
            }
            Self::Gemini(model) => {
                model.when(needle, script.map(|it| completion(real, it)).collect::<Vec<_>>());
            }
            Self::Messages(model) => {
                model.when(needle, script.map(|it| message(real, it)).collect::<Vec<_>>());
            }
            Self::Responses(model, repeated) => {
                let mut answers: Vec<_> = script.map(response).collect();
                // The adapter may call the model for a title too: an answer that is all of a script is given again.
                let whole = if answers.len() == 1 { answers.pop() } else { None };
                match whole {
                    Some(answer) => {
                        let mut known = repeated.lock().unwrap_or_else(PoisonError::into_inner);
                        if known.insert(needle.to_owned()) {
                            model.when(needle, Script::repeat(answer));
                        }
                    }
                    None => model.when(needle, answers),
                }
            }
        }
    }

    /// All requests so far, oldest first.
    pub(super) fn asked(&self) -> Vec<Asked> {
        match self {
            Self::Chat(model) => asked(model),
            Self::Messages(model) => asked(model),
            Self::Gemini(model) => asked(model),
            Self::Responses(model, _) => asked(model),
        }
    }
}

fn asked<A: Api>(model: &Server<A>) -> Vec<Asked> {
    let requests = model.requests().into_iter();
    requests
        .map(|request| Asked {
            user_texts: request.user_texts(),
            tool_outputs: request.tool_outputs().into_iter().map(|output| output.text).collect(),
            body: request.body.to_string(),
            needle: request.needle,
        })
        .collect()
}

/// What the model says ahead of a command.
const REMARK: &str = "Let me run it.";
/// The text of a status that no agent retries.
const REFUSAL: &str = "bad request of the lab";

fn completion(real: Real, step: Do) -> chat::Answer {
    use chat::Answer;
    match step {
        Do::Say(text) | Do::Remark(_, text) => Answer::text(text),
        Do::Run(command) | Do::Ask(command) => {
            let (tool, input) = real.shell(&command);
            Answer::text(REMARK).tool(tool, input)
        }
        Do::Echo(text) => Answer::call(real.echo(), json!({ "text": text })),
        Do::Wait(gate, text) => Answer::new().wait_for(&gate).delta(text),
        Do::Fail => Answer::status(400, REFUSAL),
        Do::Break(text) => Answer::text(text).ends_short(),
    }
}

fn message(real: Real, step: Do) -> messages::Answer {
    use messages::Answer;
    match step {
        Do::Say(text) | Do::Remark(_, text) => Answer::text(text),
        Do::Run(command) | Do::Ask(command) => {
            let (tool, input) = real.shell(&command);
            Answer::text(REMARK).tool(tool, input)
        }
        Do::Echo(text) => Answer::call(real.echo(), json!({ "text": text })),
        Do::Wait(gate, text) => Answer::new().wait_for(&gate).block(text),
        Do::Fail => Answer::status(400, REFUSAL),
        Do::Break(text) => Answer::text(text).ends_short(),
    }
}

fn response(step: Do) -> Answer {
    match step {
        Do::Say(text) => Answer::text(text),
        Do::Run(command) => Answer::new().commentary(REMARK).exec(&command),
        Do::Remark(times, text) => {
            let remarks = (0..times).map(|n| format!("Remark {n}."));
            remarks.fold(Answer::new(), Answer::commentary).final_answer(text)
        }
        Do::Ask(command) => {
            let call = json!({
                "cmd": command,
                "sandbox_permissions": "require_escalated",
                "justification": "the lab wants it",
            });
            Answer::new().call("exec_command", call)
        }
        Do::Echo(text) => Answer::new().mcp("lab", "echo", json!({ "text": text })),
        Do::Wait(gate, text) => Answer::new().wait_for(&gate).message(text),
        Do::Fail => Answer::status(400, REFUSAL),
        Do::Break(text) => Answer::new().delta(text).cut_after(2),
    }
}
