//! Google's Gemini API, as gemini uses it: a stream of events or, where the request does not ask for one, one JSON response.
//!
//! Scripts and answers are those of [`chat`](super::chat). The address of a request names its model and whether it wants a
//! stream: both are added to the body, so that a record has them as those of other APIs.

mod record;
#[cfg(test)]
mod tests;
mod wire;

use std::collections::VecDeque;

use axum::Router;
use axum::http::Uri;
use serde_json::{Value, json};

use super::Server;
use super::api::{Api, Headers, Prompt, Serve};
use super::beat::{Beat, Serial};
pub use super::chat::Answer;
use super::record::{Recorded, ToolOutput};

/// The Gemini API.
#[derive(Clone, Copy, Debug)]
pub struct Gemini;

/// A server for gemini.
pub type GeminiServer = Server<Gemini>;
/// A request of gemini.
pub type GeminiRequest = Recorded<Gemini>;

impl Api for Gemini {
    type Answer = Answer;
    const BASE: &'static str = "";
    const PATH: &'static str = "/v1beta/models/{call}";

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

impl Serve for Gemini {
    fn beside<S: Clone + Send + Sync + 'static>(router: Router<S>) -> Router<S> {
        router
    }

    fn request(address: &Uri, mut body: Value) -> Value {
        let call = address.path().rsplit('/').next().unwrap_or_default();
        let (model, method) = call.split_once(':').unwrap_or((call, ""));
        body["model"] = json!(model);
        body["stream"] = json!(method == "streamGenerateContent");
        body
    }

    fn prompts(body: &Value) -> Vec<Prompt> {
        record::prompts(body)
    }

    fn aside(body: &Value) -> Option<Answer> {
        let tools = body["tools"].as_array().is_some_and(|tools| !tools.is_empty());
        (!tools || body["stream"] != true).then(|| Answer::text("aside"))
    }

    fn identity(body: &Value) -> String {
        body["contents"].to_string()
    }

    fn attempt(answer: Answer, n: usize) -> Answer {
        answer.attempt(n)
    }

    fn refusal(text: String) -> Answer {
        Answer::status(400, text)
    }

    fn beats(answer: Answer, _serial: Serial, body: &Value) -> (Headers, VecDeque<Beat>) {
        wire::beats(answer, body)
    }
}
