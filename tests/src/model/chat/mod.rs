//! OpenAI's Chat Completions API, as pi, opencode and other agents use it: a stream of chunks or, where the request does not
//! ask for one, one JSON completion.
//!
//! - The latest text of the user with a needle in it names the script, and the number of messages of the assistant behind it
//!   is the place of the answer in the script. So a script is played from its start for every prompt that names it, and
//!   concurrent runs, sub-agents and retries never shift it.
//! - A prompt with no needle is answered by [`Server::otherwise`], counted from the latest text of the user.
//! - The same request again is a retry and gets the same answer, or the next one of `Answer::then`.
//! - A request without tools is a side call (a title, a summary). It is answered with a word and not recorded.
//! - A request with no answer gets a status 400, which agents do not retry.
//!
//! ```no_run
//! # use takopi_tests::model::chat::{Answer, ChatServer};
//! let model = ChatServer::start();
//! model.when("greet", "hello");
//! model.when("list", [Answer::text("looking").bash("ls"), Answer::text("three files")]);
//! model.when("flaky", Answer::status(500, "busy").then("hello"));
//! // … start the agent on `model.base_url()` …
//! assert_eq!(model.requests()[1].history()[0], "user: list the files");
//! ```

mod answer;
mod record;
#[cfg(test)]
mod tests;
mod wire;

use std::collections::VecDeque;

use axum::Router;
use axum::routing::get;
use serde_json::Value;

pub use self::answer::{Answer, Content, Usage};
use super::api::{Api, Headers, Prompt, Serve};
use super::beat::{Beat, Serial};
use super::record::{Recorded, ToolOutput};
use super::{Server, script};

/// The Chat Completions API.
#[derive(Clone, Copy, Debug)]
pub struct Chat;

/// A server for agents that speak it.
pub type ChatServer = Server<Chat>;
/// A request of such an agent.
pub type ChatRequest = Recorded<Chat>;
/// Answers for such agents.
pub type Script = script::Script<Answer>;

impl Api for Chat {
    type Answer = Answer;
    const BASE: &'static str = "/v1";
    const PATH: &'static str = "/v1/chat/completions";

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

impl Serve for Chat {
    fn beside<S: Clone + Send + Sync + 'static>(router: Router<S>) -> Router<S> {
        router.route("/v1/models", get(async || r#"{"object":"list","data":[]}"#))
    }

    fn prompts(body: &Value) -> Vec<Prompt> {
        record::prompts(body)
    }

    fn aside(body: &Value) -> Option<Answer> {
        let tools = body["tools"].as_array().is_some_and(|tools| !tools.is_empty());
        (!tools).then(|| Answer::text("aside"))
    }

    fn identity(body: &Value) -> String {
        format!("{} {}", body["prompt_cache_key"], body["messages"])
    }

    fn attempt(answer: Answer, n: usize) -> Answer {
        answer.attempt(n)
    }

    fn refusal(text: String) -> Answer {
        Answer::status(400, text)
    }

    fn beats(answer: Answer, serial: Serial, body: &Value) -> (Headers, VecDeque<Beat>) {
        wire::beats(answer, serial, body)
    }
}
