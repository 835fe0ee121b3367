//! A conversation with a claude over its two-way stream of lines, with nothing of takopi around it.

use std::ops::{Deref, DerefMut};
use std::path::Path;

use serde_json::{Value, json};
use uuid::Uuid;

use super::home::TestHome;
use crate::raw::{RawProcess, RawRun};

/// What every conversation is started with.
pub const ARGS: [&str; 6] =
    ["-p", "--output-format", "stream-json", "--verbose", "--input-format", "stream-json"];

/// A claude that reads messages and control requests.
#[derive(Debug)]
pub struct Duplex {
    process: RawProcess,
    requests: usize,
}

impl Deref for Duplex {
    type Target = RawProcess;

    fn deref(&self) -> &RawProcess {
        &self.process
    }
}

impl DerefMut for Duplex {
    fn deref_mut(&mut self) -> &mut RawProcess {
        &mut self.process
    }
}

impl Duplex {
    /// Starts claude in the home's workspace, with state events and these arguments beside [`ARGS`].
    pub fn start(claude: impl AsRef<Path>, home: &TestHome, args: &[&str]) -> Self {
        Self::spawn(home.command(claude).args(ARGS).args(args))
    }

    /// Starts a command that is complete but for the state events.
    pub fn spawn(command: &mut tokio::process::Command) -> Self {
        command.env("CLAUDE_CODE_EMIT_SESSION_STATE_EVENTS", "1");
        Self { process: RawProcess::spawn(command), requests: 0 }
    }

    /// Sends a message of the user and returns its id.
    pub async fn user(&mut self, text: &str) -> String {
        let uuid = Uuid::new_v4().to_string();
        let message = json!({
            "type": "user",
            "message": {"role": "user", "content": text},
            "parent_tool_use_id": null,
            "uuid": uuid,
        });
        self.send(&message).await;
        uuid
    }

    /// Sends a control request, without waiting for its response, and returns its id.
    pub async fn request(&mut self, request: Value) -> String {
        self.requests += 1;
        let id = format!("request-{}", self.requests);
        self.send(&json!({"type": "control_request", "request_id": id, "request": request})).await;
        id
    }

    /// Sends a control request and reads up to its response, which is returned without its envelope.
    pub async fn control(&mut self, request: Value) -> Value {
        let id = self.request(request).await;
        self.response(&id).await
    }

    /// Reads up to the response to a control request.
    pub async fn response(&mut self, id: &str) -> Value {
        let found = |line: &Value| {
            line["type"] == "control_response" && line["response"]["request_id"] == id
        };
        self.until(found).await["response"].take()
    }

    /// Answers a control request of claude.
    pub async fn answer(&mut self, request: &Value, response: Value) {
        let id = &request["request_id"];
        let response = json!({"subtype": "success", "request_id": id, "response": response});
        self.send(&json!({"type": "control_response", "response": response})).await;
    }

    /// Reads up to the first line of this type, with this subtype unless it is empty.
    pub async fn line(&mut self, kind: &str, subtype: &str) -> Value {
        self.until(|line| {
            line["type"] == kind && (subtype.is_empty() || line["subtype"] == subtype)
        })
        .await
    }

    /// Reads up to the first control request of this subtype.
    pub async fn asked(&mut self, subtype: &str) -> Value {
        self.until(|line| {
            line["type"] == "control_request" && line["request"]["subtype"] == subtype
        })
        .await
    }

    /// Reads up to the first line that is looked for. The conversation must not end before.
    pub async fn until(&mut self, found: impl Fn(&Value) -> bool) -> Value {
        loop {
            let Some(line) = self.next().await else {
                panic!("claude ended before the line that was looked for: {:#?}", self.seen());
            };
            if found(&line) {
                return line;
            }
        }
    }

    /// Reads up to the result of a turn and, behind it, to the state `idle`.
    pub async fn result(&mut self) -> Value {
        let result = self.line("result", "").await;
        self.until(|line| line["state"] == "idle").await;
        result
    }

    /// Closes the input and reads claude to its end.
    pub async fn end(self) -> RawRun {
        self.process.end().await
    }
}
