//! What the server must know of an API to serve it.

use std::collections::VecDeque;
use std::fmt::Debug;

use axum::Router;
use axum::http::Uri;
use serde_json::Value;

use super::beat::{Beat, Serial};
use super::record::ToolOutput;
use super::script::Scripted;

/// An API of models.
pub trait Api: Clone + Debug + Send + Sync + Sized + 'static {
    /// An answer, as tests write it.
    type Answer: Scripted + Clone + Debug + Send;
    /// What comes behind the address in the base URL that an agent is given.
    const BASE: &'static str;
    /// Where prompts are posted.
    const PATH: &'static str;

    /// The texts of the user in a request, oldest first, without those that the agent writes itself.
    fn user_texts(body: &Value) -> Vec<String>;

    /// The texts of the assistant in a request, oldest first.
    fn assistant_texts(body: &Value) -> Vec<String>;

    /// The results of tool calls in a request, oldest first.
    fn tool_outputs(body: &Value) -> Vec<ToolOutput>;
}

/// The part of an API that only the server needs.
pub(super) trait Serve: Api {
    /// Adds what agents ask for beside answers.
    fn beside<S: Clone + Send + Sync + 'static>(router: Router<S>) -> Router<S>;

    /// A request as it is recorded, by its address and its body.
    fn request(_address: &Uri, body: Value) -> Value {
        body
    }

    /// The prompts that a request may be about, latest first.
    fn prompts(body: &Value) -> Vec<Prompt>;

    /// The answer to a request that is not about a prompt, and is not recorded.
    fn aside(_body: &Value) -> Option<Self::Answer> {
        None
    }

    /// What two tries of one request have in common, and other requests of their place in the script have not.
    fn identity(_body: &Value) -> String {
        String::new()
    }

    /// The answer to the `n`th try of a request, from 0.
    fn attempt(answer: Self::Answer, _n: usize) -> Self::Answer {
        answer
    }

    /// The answer to a request that no script has one for.
    fn refusal(text: String) -> Self::Answer;

    /// The headers of an answer, and what is done for it.
    fn beats(answer: Self::Answer, serial: Serial, body: &Value) -> (Headers, VecDeque<Beat>);
}

/// Names and values of headers.
pub(super) type Headers = Vec<(String, String)>;

/// A message of the user that a request may be about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Prompt {
    pub(super) text: String,
    /// The place of the answer in the script; the next that was not used if the API does not tell.
    pub(super) step: Option<usize>,
}
