//! The record of a server: every request, in the order of arrival, and how its answer ended.

use std::collections::BTreeMap;
use std::marker::PhantomData;
use std::time::Instant;

use serde_json::Value;

use super::api::Api;

/// How far the answer to a request has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It is still being answered.
    Open,
    /// All of the scripted answer was sent, cuts and errors included.
    Answered,
    /// The agent hung up before the answer was over.
    HungUp,
}

/// One request for an answer.
#[derive(Clone, Debug)]
pub struct Recorded<A> {
    /// Its place in the order of arrival, from 0.
    pub index: usize,
    /// The body as it came.
    pub body: Value,
    /// The headers, names in lower case.
    pub headers: BTreeMap<String, String>,
    /// The needle of the script that answered it; none for the `otherwise` script and for unexpected requests.
    pub needle: Option<String>,
    /// When it came.
    pub started: Instant,
    /// When its answer was over. This is taken just before the last bytes are sent, so two requests that an agent makes one
    /// after the other never seem to overlap.
    pub ended: Option<Instant>,
    /// How its answer ended.
    pub outcome: Outcome,
    pub(super) api: PhantomData<A>,
}

/// The result of a tool call, as the agent reports it to the model.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ToolOutput {
    /// The call it answers.
    pub call_id: String,
    /// The output's text; an output that is not a string is given as JSON.
    pub text: String,
}

impl<A> Recorded<A> {
    /// The model that was asked for.
    pub fn model(&self) -> &str {
        self.body["model"].as_str().unwrap_or_default()
    }

    /// Whether a stream of events was asked for.
    pub fn stream(&self) -> bool {
        self.body["stream"].as_bool().unwrap_or_default()
    }

    /// The value of a header, named in lower case.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).map(String::as_str)
    }

    /// Whether this request and the other were being answered at the same time. A request without an end goes on.
    pub fn overlaps(&self, other: &Self) -> bool {
        let ends_before = |a: &Self, b: &Self| a.ended.is_some_and(|ended| ended <= b.started);
        !ends_before(self, other) && !ends_before(other, self)
    }
}

impl<A: Api> Recorded<A> {
    /// The texts of the user in the conversation so far, oldest first, without those that the agent writes itself
    /// (its environment, reminders, notes about an interrupted turn).
    pub fn user_texts(&self) -> Vec<String> {
        A::user_texts(&self.body)
    }

    /// The latest text of the user: the prompt this request is about.
    pub fn last_user_text(&self) -> Option<String> {
        self.user_texts().pop()
    }

    /// The texts of all messages of the assistant in the conversation so far, oldest first.
    pub fn assistant_texts(&self) -> Vec<String> {
        A::assistant_texts(&self.body)
    }

    /// The results of all tool calls in the conversation so far, oldest first.
    pub fn tool_outputs(&self) -> Vec<ToolOutput> {
        A::tool_outputs(&self.body)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn request(started: Instant, ended: Option<Instant>) -> Recorded<()> {
        Recorded {
            index: 0,
            body: Value::Null,
            headers: BTreeMap::new(),
            needle: None,
            started,
            ended,
            outcome: Outcome::Open,
            api: PhantomData,
        }
    }

    #[test]
    fn requests_overlap_unless_one_ended_before_the_other_began() {
        let zero = Instant::now();
        let at = |second: u64| zero + Duration::from_secs(second);
        let early = request(at(0), Some(at(2)));
        assert!(!early.overlaps(&request(at(2), None)));
        assert!(!request(at(2), None).overlaps(&early));
        assert!(early.overlaps(&request(at(1), Some(at(3)))));
        assert!(request(at(0), None).overlaps(&request(at(9), None)));
    }
}
