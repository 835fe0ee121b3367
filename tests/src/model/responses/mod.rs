//! OpenAI's Responses API, as codex uses it.
//!
//! A script's answers are used up one per request, in order. After a tool call codex calls again with the same latest user
//! message and gets the next one; so does a retry. A status 400 codex does not retry: it ends the turn with the text.

mod answer;
mod record;
#[cfg(test)]
mod tests;
mod wire;

use std::collections::VecDeque;

use axum::Router;
use axum::http::StatusCode;
use axum::routing::get;
use serde_json::Value;

pub use self::answer::{Answer, Phase, Usage};
use super::api::{Api, Headers, Prompt, Serve};
use super::beat::{Beat, Serial};
use super::record::{Recorded, ToolOutput};
use super::{Server, script};

/// The Responses API.
#[derive(Clone, Copy, Debug)]
pub struct Responses;

/// A server for codex.
pub type ModelServer = Server<Responses>;
/// A request of codex.
pub type RecordedRequest = Recorded<Responses>;
/// Answers for codex.
pub type Script = script::Script<Answer>;

impl Api for Responses {
    type Answer = Answer;
    const BASE: &'static str = "/v1";
    const PATH: &'static str = "/v1/responses";

    fn user_texts(body: &Value) -> Vec<String> {
        record::user_texts(body)
    }

    fn assistant_texts(body: &Value) -> Vec<String> {
        record::message_texts(body, "assistant")
    }

    fn tool_outputs(body: &Value) -> Vec<ToolOutput> {
        record::tool_outputs(body)
    }
}

impl Serve for Responses {
    fn beside<S: Clone + Send + Sync + 'static>(router: Router<S>) -> Router<S> {
        router.route("/v1/models", get(async || r#"{"models":[]}"#))
    }

    fn prompts(body: &Value) -> Vec<Prompt> {
        let text = record::user_texts(body).pop().unwrap_or_default();
        vec![Prompt { text, step: None }]
    }

    fn refusal(text: String) -> Answer {
        Answer::status(StatusCode::BAD_REQUEST.as_u16(), text)
    }

    fn beats(answer: Answer, serial: Serial, _body: &Value) -> (Headers, VecDeque<Beat>) {
        let answer = answer.sent();
        (answer.headers.clone(), wire::beats(answer, serial))
    }
}
