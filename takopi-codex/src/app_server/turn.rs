//! Turns: one prompt and what comes of it.

use std::path::PathBuf;
use std::time::Duration;

use futures::future::BoxFuture;
use serde::de::IgnoredAny;
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};
use takopi_core::jsonl::{Object, value};
use takopi_core::model::Usage;
use takopi_core::redact::redact_value;

use super::client::Client;
use super::error::ClientError;
use super::inbox::{Inbox, TurnMessage};
use super::message::TurnStarted;
use super::notification::{Kind, Notification};
use super::requests::ServerRequest;
use super::translator::is_turn_aborted;
use super::usage::TurnUsage;

/// Settings of one turn. What is left out stays as it is for the thread.
#[derive(Debug, Clone, Default)]
#[non_exhaustive]
pub struct TurnOptions {
    /// The directory to work in.
    pub cwd: Option<PathBuf>,
    /// The model; holds for later turns too.
    pub model: Option<String>,
    /// How hard the model should think.
    pub effort: Option<String>,
    /// When the agent asks for approval (`never`, `on-request`, …); holds for later turns too.
    pub approval_policy: Option<String>,
    /// The sandbox, as `turn/start` takes it; holds for later turns too.
    pub sandbox_policy: Option<Value>,
    /// A JSON Schema the answer must follow, in this turn.
    pub output_schema: Option<Value>,
    /// Images that go with the text.
    pub images: Vec<PathBuf>,
}

/// Something that happens in a turn.
#[derive(Debug)]
#[non_exhaustive]
pub enum TurnEvent {
    /// A notification about the turn or about the server; every delta as it came.
    Notification(Notification),
    /// A notification about a sub-agent that the turn started: what its requests refer to.
    Subagent(Notification),
    /// A request of the server. Dropped without an answer, it is declined.
    Request(ServerRequest),
    /// Something about the connection that a person should know: lines that could not be read,
    /// messages that could not be attributed, requests that were declined for that.
    Warning(String),
}

impl TurnEvent {
    /// Whether it shows that the agent does something in the turn. What is about the server or the thread as a
    /// whole does not, nor does an error: while the connection is down nothing happens.
    pub(super) fn is_activity(&self) -> bool {
        match self {
            Self::Notification(notification) => {
                notification.thread().is_some()
                    && notification.is_of_a_turn()
                    && notification.method != "error"
            }
            Self::Request(_) | Self::Subagent(_) => true,
            Self::Warning(_) => false,
        }
    }
}

/// How a turn ended.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum TurnStatus {
    /// It did what was asked.
    #[default]
    Completed,
    /// It was interrupted.
    Interrupted,
    /// It failed.
    Failed,
    /// Something this version does not know.
    Other(String),
}

/// A turn that is over.
#[derive(Debug, Clone, Default)]
#[non_exhaustive]
pub struct TurnReport {
    /// Its id.
    pub id: String,
    /// How it ended.
    pub status: TurnStatus,
    /// The answer: the last message with phase `final_answer`, else the last with no phase.
    pub answer: Option<String>,
    /// The items that were completed, in order, as the server gave them.
    pub items: Vec<Value>,
    /// What went wrong, if something did.
    pub error: Option<Value>,
    /// Tokens used by this turn, if the server gave figures.
    pub usage: Option<Usage>,
}

/// A turn that runs. Dropping it stops listening; [`TurnStream::interrupt`] ends the turn.
#[derive(Debug)]
pub struct TurnStream {
    client: ClientRef,
    thread: String,
    id: String,
    inbox: Inbox,
    over: bool,
}

/// The response to `turn/start` that is to come.
pub(super) type StartReply = BoxFuture<'static, Result<String, ClientError>>;

/// A client that does not clutter debug output.
struct ClientRef(Client);

impl std::fmt::Debug for ClientRef {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Client")
    }
}

impl TurnStream {
    /// Listens for a turn that is about to be started. Its events may come ahead of the reply.
    pub(super) fn open(client: &Client, thread: &str) -> Result<Self, ClientError> {
        let inbox = client.routes().open_turn(thread)?;
        Ok(Self {
            client: ClientRef(client.clone()),
            thread: thread.to_owned(),
            id: String::new(),
            inbox,
            over: false,
        })
    }

    /// The request that sends the prompt, and the id of the turn as its response. What comes of the turn
    /// meanwhile, or before a failure, can be read.
    pub(super) fn start_request(&self, text: &str, options: &TurnOptions) -> StartReply {
        let (client, thread) = (self.client.0.clone(), self.thread.clone());
        let params = turn_params(&thread, text, options);
        Box::pin(async move {
            let reply = client.request_turn::<TurnStarted>("turn/start", &params, &thread).await;
            reply.map(|TurnStarted(id)| id)
        })
    }

    /// Whether the turn's own end was yielded.
    pub(super) fn is_over(&self) -> bool {
        self.over
    }

    /// The turn has this id.
    pub(super) fn named(&mut self, id: String) {
        self.id = id;
    }

    pub(super) async fn start(
        client: &Client,
        thread: &str,
        text: &str,
        options: &TurnOptions,
    ) -> Result<Self, ClientError> {
        let mut turn = Self::open(client, thread)?;
        let id = turn.start_request(text, options).await?;
        turn.named(id);
        Ok(turn)
    }

    /// Begins to shorten the thread's history, which codex does in a turn of its own.
    pub(super) async fn compact(client: &Client, thread: &str) -> Result<Self, ClientError> {
        let turn = Self::open(client, thread)?;
        let params = json!({ "threadId": thread });
        client.request::<Value>("thread/compact/start", &params).await?;
        Ok(turn)
    }

    /// The turn's id; empty for a turn that the server began by itself, until a notification names it.
    pub fn id(&self) -> &str {
        &self.id
    }

    /// The thread's usage as it was last reported before the turn.
    pub(super) fn usage_before(&self) -> Option<&RawValue> {
        self.inbox.usage_before.as_deref()
    }

    /// The next event; `None` when the turn is over and its end was yielded.
    pub async fn next(&mut self) -> Result<Option<TurnEvent>, ClientError> {
        if self.over {
            return Ok(None);
        }
        if let Some(message) = self.inbox.next().await {
            return self.event(message).map(Some);
        }
        let error = self.client.0.gone("turn/completed").await;
        self.over = true;
        Err(error)
    }

    /// An event that is there already.
    pub(super) fn try_next(&mut self) -> Result<Option<TurnEvent>, ClientError> {
        if self.over {
            return Ok(None);
        }
        match self.inbox.try_next() {
            Some(message) => self.event(message).map(Some),
            None => Ok(None),
        }
    }

    /// Whether more arrived than was read: from there on only the end is kept.
    pub(super) fn has_overflowed(&self) -> bool {
        self.inbox.has_overflowed()
    }

    /// Resolves when more arrived than was read.
    pub(super) async fn overflowed(&self) {
        self.inbox.overflowed().await;
    }

    /// The warnings that are there already, ahead of everything else.
    pub(super) fn take_warnings(&mut self) -> Vec<String> {
        self.inbox.take_warnings()
    }

    fn event(&mut self, message: TurnMessage) -> Result<TurnEvent, ClientError> {
        match message {
            TurnMessage::Notification(notification) => {
                self.over = notification.is_turn_end();
                if self.id.is_empty()
                    && !notification.is_usage()
                    && let Some(turn) = notification.turn()
                {
                    turn.clone_into(&mut self.id);
                }
                Ok(TurnEvent::Notification(notification))
            }
            TurnMessage::Subagent(notification) => Ok(TurnEvent::Subagent(notification)),
            TurnMessage::Request(request) => Ok(TurnEvent::Request(request)),
            TurnMessage::Warning(warning) => Ok(TurnEvent::Warning(warning)),
            TurnMessage::EndTooLong => {
                self.over = true;
                Err(ClientError::answer("turn/completed", "it is too long"))
            }
            // Only its end is still to come.
            TurnMessage::Overflow => Err(ClientError::Stalled { thread: self.thread.clone() }),
        }
    }

    /// Adds text to the turn while it runs. Fails if another turn than this one is running.
    pub async fn steer(&self, text: &str) -> Result<(), ClientError> {
        steer(&self.client.0, &self.thread, &self.id, text).await
    }

    /// Ends the turn; its end is still to be read.
    pub async fn interrupt(&self) -> Result<(), ClientError> {
        interrupt(&self.client.0, &self.thread, &self.id, Duration::from_secs(10)).await
    }

    /// Reads the turn to its end; whatever is asked on the way is declined.
    pub async fn finish(mut self) -> Result<TurnReport, ClientError> {
        let mut report = TurnReport::default();
        let mut answer = crate::common::Answer::default();
        let mut usage = TurnUsage::new(false);
        usage.named(&self.id, self.usage_before());
        while let Some(event) = self.next().await? {
            let TurnEvent::Notification(notification) = event else { continue };
            match notification.method.as_str() {
                "item/completed" => {
                    if let Some(item) = notification.item() {
                        if item["type"] != "userMessage" {
                            usage.agent_seen();
                        }
                        record_message(&mut answer, &item);
                        report.items.push(item);
                    }
                }
                "thread/tokenUsage/updated" => {
                    if let Kind::TokenUsage { turn, usage: figures } = notification.kind() {
                        usage.update(turn.as_deref(), figures);
                    }
                }
                "turn/completed" => {
                    (report.status, report.error) = turn_end(&notification);
                }
                _ => {}
            }
        }
        report.id.clone_from(&self.id);
        report.answer = answer.take();
        report.usage = usage.so_far();
        Ok(report)
    }
}

impl Drop for TurnStream {
    fn drop(&mut self) {
        if !self.over {
            self.client.0.routes().close_turn(&self.thread);
        }
    }
}

/// How a turn ended, and its error. An end that cannot be read is no success.
fn turn_end(notification: &Notification) -> (TurnStatus, Option<Value>) {
    let turn = Object::of(&notification.params).object("turn");
    let status = match turn.text("status") {
        Some(label) => match label.as_str() {
            "completed" => TurnStatus::Completed,
            "interrupted" => TurnStatus::Interrupted,
            "failed" => TurnStatus::Failed,
            _ => TurnStatus::Other(label),
        },
        None => TurnStatus::Other(turn.raw("status").map_or("", RawValue::get).to_owned()),
    };
    let error = turn.raw("error").map(|error| {
        let mut error = value(error);
        redact_value(&mut error);
        error
    });
    (status, error)
}

/// Records a message for the answer, if the item is one.
pub(super) fn record_message(answer: &mut crate::common::Answer, item: &Value) {
    let text = |key: &str| item.get(key).and_then(Value::as_str);
    if text("type") == Some("agentMessage") && !text("text").is_some_and(is_turn_aborted) {
        let phase = text("phase").and_then(crate::common::MessagePhase::new);
        answer.record(text("text").unwrap_or_default().into(), phase);
    }
}

pub(super) async fn steer(
    client: &Client,
    thread: &str,
    turn: &str,
    text: &str,
) -> Result<(), ClientError> {
    let params = json!({
        "threadId": thread,
        "expectedTurnId": turn,
        "input": [{ "type": "text", "text": text }],
    });
    client.request::<Value>("turn/steer", &params).await.map(drop)
}

pub(super) async fn interrupt(
    client: &Client,
    thread: &str,
    turn: &str,
    limit: Duration,
) -> Result<(), ClientError> {
    let params = json!({ "threadId": thread, "turnId": turn });
    // Whatever it contains, it is an answer.
    client.request_within::<IgnoredAny>("turn/interrupt", &params, limit).await.map(drop)
}

fn turn_params(thread: &str, text: &str, options: &TurnOptions) -> Value {
    let mut input = vec![json!({ "type": "text", "text": text })];
    input.extend(options.images.iter().map(|path| json!({ "type": "localImage", "path": path })));
    let mut params = Map::new();
    params.insert("threadId".to_owned(), thread.into());
    params.insert("input".to_owned(), input.into());
    let mut set = |key: &str, value: Option<Value>| {
        if let Some(value) = value {
            params.insert(key.to_owned(), value);
        }
    };
    set("cwd", options.cwd.as_ref().map(|cwd| json!(cwd)));
    set("model", options.model.clone().map(Value::from));
    set("effort", options.effort.clone().map(Value::from));
    set("approvalPolicy", options.approval_policy.clone().map(Value::from));
    set("sandboxPolicy", options.sandbox_policy.clone());
    set("outputSchema", options.output_schema.clone());
    Value::Object(params)
}
