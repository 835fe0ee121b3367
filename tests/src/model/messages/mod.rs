//! Anthropic's Messages API, as Claude Code uses it: a stream of events or, where the request does not ask for one, one JSON
//! message.
//!
//! - The latest text of the user with a needle in it names the script, and the number of messages of the assistant behind it
//!   is the place of the answer in the script. So a script is played from its start for every prompt that names it, and
//!   concurrent runs, sub-agents and retries never shift it.
//! - A prompt with no needle is answered by [`Server::otherwise`], counted from the latest text of the user.
//! - The same request again is a retry and gets the same answer, or the next one of `Answer::then`.
//! - A request without tools is a side call (a warm-up, a summary of a command: old releases make several in a turn). It is
//!   answered with a word and not recorded.
//! - A request with no answer gets a status 410, which Claude Code does not retry.
//!
//! ```no_run
//! # use takopi_tests::model::messages::{Answer, MessagesServer};
//! # use serde_json::json;
//! let model = MessagesServer::start();
//! model.when("greet", "hello");
//! model.when("list", [Answer::text("looking").bash("ls"), Answer::text("three files")]);
//! model.when("flaky", Answer::status(529, "busy").then("hello"));
//! // … start claude on `model.base_url()` …
//! assert_eq!(model.requests()[1].history()[0], "user: list the files");
//! ```

mod answer;
mod record;
#[cfg(test)]
mod tests;
mod wire;

use std::collections::VecDeque;

use axum::Router;
use axum::routing::{any, post};
use serde_json::Value;

pub use self::answer::{Answer, Block, Content, Usage};
use super::api::{Api, Headers, Prompt, Serve};
use super::beat::{Beat, Serial};
use super::record::{Recorded, ToolOutput};
use super::{Server, script};

/// The Messages API.
#[derive(Clone, Copy, Debug)]
pub struct Messages;

/// A server for Claude Code.
pub type MessagesServer = Server<Messages>;
/// A request of Claude Code.
pub type MessagesRequest = Recorded<Messages>;
/// Answers for Claude Code.
pub type Script = script::Script<Answer>;

impl Api for Messages {
    type Answer = Answer;
    const BASE: &'static str = "";
    const PATH: &'static str = "/v1/messages";

    fn user_texts(body: &Value) -> Vec<String> {
        record::prompts(body).into_iter().rev().map(|prompt| prompt.text).collect()
    }

    fn assistant_texts(body: &Value) -> Vec<String> {
        record::assistant_texts(body)
    }

    fn tool_outputs(body: &Value) -> Vec<ToolOutput> {
        record::tool_outputs(body)
    }
}

impl Serve for Messages {
    fn beside<S: Clone + Send + Sync + 'static>(router: Router<S>) -> Router<S> {
        let count = post(async || r#"{"input_tokens":11}"#);
        // The root is asked for now and then, to see whether the service is there.
        router.route("/v1/messages/count_tokens", count).route("/", any(async || ""))
    }

    fn prompts(body: &Value) -> Vec<Prompt> {
        record::prompts(body)
    }

    fn aside(body: &Value) -> Option<Answer> {
        let tools = body["tools"].as_array().is_some_and(|tools| !tools.is_empty());
        (!tools).then(|| Answer::text("aside"))
    }

    fn identity(body: &Value) -> String {
        let messages = body["messages"].as_array().map(Vec::len);
        format!("{} {}", body["metadata"]["user_id"], messages.unwrap_or_default())
    }

    fn attempt(answer: Answer, n: usize) -> Answer {
        answer.attempt(n)
    }

    fn refusal(text: String) -> Answer {
        Answer::status(410, text)
    }

    fn beats(answer: Answer, serial: Serial, body: &Value) -> (Headers, VecDeque<Beat>) {
        wire::beats(answer.sent(), serial, body)
    }
}
