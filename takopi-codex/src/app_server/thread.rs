//! Threads: codex's conversations.

use std::path::PathBuf;
use std::time::Duration;

use serde::Serialize;
use serde_json::{Map, Value, json};

use super::client::Client;
use super::error::ClientError;
use super::turn::{TurnOptions, TurnReport, TurnStream};

/// The method that opens a stored thread.
pub(super) const RESUME: &str = "thread/resume";
/// How long a server may take to end its background terminals.
const CLEAN_LIMIT: Duration = Duration::from_secs(10);
/// How many pages of models are read at the most.
const MODEL_PAGES: usize = 100;

/// Settings of a thread. What is left out is the user's own configuration.
#[derive(Debug, Clone, Default, Serialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct ThreadOptions {
    /// The directory to work in.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cwd: Option<PathBuf>,
    /// The model.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// The sandbox: `read-only`, `workspace-write`, `danger-full-access`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sandbox: Option<String>,
    /// Whether the thread is not stored. Only for a thread that is begun.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub ephemeral: bool,
    /// When the agent asks for approval: `never`, `on-request`, …
    #[serde(skip_serializing_if = "Option::is_none")]
    pub approval_policy: Option<String>,
    /// Further settings, with the same keys as `-c`.
    #[serde(skip_serializing_if = "Map::is_empty")]
    pub config: Map<String, Value>,
    /// Instructions on top of codex's own.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub developer_instructions: Option<String>,
    /// Tools that the client answers calls of, as `thread/start` takes them. A thread keeps those it
    /// was started with.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub dynamic_tools: Vec<Value>,
}

/// Which models are listed.
#[derive(Debug, Clone, Default, Serialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct ModelOptions {
    /// Also those that are hidden from a choice of models.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub include_hidden: bool,
}

impl ModelOptions {
    /// Lists hidden models too.
    pub fn include_hidden(mut self) -> Self {
        self.include_hidden = true;
        self
    }
}

/// A thread that the server has loaded.
#[derive(Clone)]
pub struct Thread {
    client: Client,
    id: String,
    /// The server's whole answer to the request that opened the thread.
    opened: Value,
}

impl Client {
    /// Begins a conversation.
    pub async fn start_thread(&self, options: &ThreadOptions) -> Result<Thread, ClientError> {
        self.open_thread("thread/start", to_params(options)).await
    }

    /// Goes on with a conversation. Its history is not sent along.
    pub async fn resume_thread(
        &self,
        id: &str,
        options: &ThreadOptions,
    ) -> Result<Thread, ClientError> {
        self.open_thread(RESUME, of_thread(id, options)).await
    }

    /// Begins a conversation that has another one's history.
    pub async fn fork_thread(
        &self,
        id: &str,
        options: &ThreadOptions,
    ) -> Result<Thread, ClientError> {
        self.open_thread("thread/fork", of_thread(id, options)).await
    }

    /// Reads what is stored of a conversation, with its turns if asked.
    pub async fn read_thread(&self, id: &str, turns: bool) -> Result<Value, ClientError> {
        self.request("thread/read", &json!({ "threadId": id, "includeTurns": turns })).await
    }

    /// Lists stored conversations; `filter` takes what `thread/list` takes (`cwd`, `limit`, `cursor`,
    /// `sourceKinds`, …).
    pub async fn list_threads(&self, filter: Value) -> Result<Value, ClientError> {
        self.request("thread/list", &filter).await
    }

    /// Gives a conversation a name.
    pub async fn set_thread_name(&self, id: &str, name: &str) -> Result<(), ClientError> {
        self.order("thread/name/set", &json!({ "threadId": id, "name": name })).await
    }

    /// Puts a conversation away.
    pub async fn archive_thread(&self, id: &str) -> Result<(), ClientError> {
        self.order("thread/archive", &json!({ "threadId": id })).await
    }

    /// Takes a conversation out again.
    pub async fn unarchive_thread(&self, id: &str) -> Result<(), ClientError> {
        self.order("thread/unarchive", &json!({ "threadId": id })).await
    }

    /// The models there are, of every page of the server's list.
    pub async fn models(&self, options: &ModelOptions) -> Result<Vec<Value>, ClientError> {
        const METHOD: &str = "model/list";
        let mut params = to_params(options);
        let mut models = Vec::new();
        for _ in 0..MODEL_PAGES {
            let mut page: Value = self.request(METHOD, &params).await?;
            let Some(Value::Array(data)) = page.get_mut("data").map(Value::take) else {
                return Err(ClientError::Answer {
                    method: METHOD.to_owned(),
                    detail: "there is no list in it".to_owned(),
                });
            };
            models.extend(data);
            match page.get_mut("nextCursor").map(Value::take) {
                Some(cursor @ Value::String(_)) => params.insert("cursor".to_owned(), cursor),
                _ => break,
            };
        }
        Ok(models)
    }

    async fn open_thread(
        &self,
        method: &str,
        params: Map<String, Value>,
    ) -> Result<Thread, ClientError> {
        let opened: Value = self.request(method, &params).await?;
        let id = thread_id(&opened).ok_or_else(|| ClientError::Answer {
            method: method.to_owned(),
            detail: "it names no thread".to_owned(),
        })?;
        Ok(Thread { client: self.clone(), id, opened })
    }

    async fn order(&self, method: &str, params: &Value) -> Result<(), ClientError> {
        self.request::<Value>(method, params).await.map(drop)
    }
}

impl Thread {
    /// Its id, which is also the session's.
    pub fn id(&self) -> &str {
        &self.id
    }

    /// The server's answer to the request that opened it.
    pub fn opened(&self) -> &Value {
        &self.opened
    }

    /// The directory the thread works in, as the server reports it.
    pub fn cwd(&self) -> Option<&str> {
        let cwd = self.opened.get("cwd").or_else(|| self.opened.get("thread")?.get("cwd"));
        cwd.and_then(Value::as_str)
    }

    /// Starts a turn. A thread runs one at a time: a second one would be folded into the first.
    pub async fn start_turn(
        &self,
        text: &str,
        options: &TurnOptions,
    ) -> Result<TurnStream, ClientError> {
        TurnStream::start(&self.client, &self.id, text, options).await
    }

    /// Runs a turn to its end; whatever is asked on the way is declined.
    pub async fn run(&self, text: &str, options: &TurnOptions) -> Result<TurnReport, ClientError> {
        self.start_turn(text, options).await?.finish().await
    }

    /// Shortens the conversation's history by a summary, and waits until that is done.
    pub async fn compact(&self) -> Result<TurnReport, ClientError> {
        TurnStream::compact(&self.client, &self.id).await?.finish().await
    }

    /// Ends what runs in the thread's background terminals.
    pub async fn clean_background_terminals(&self) -> Result<(), ClientError> {
        clean_background_terminals(&self.client, &self.id).await
    }

    pub(super) fn client(&self) -> &Client {
        &self.client
    }
}

/// Ends what runs in the background terminals of a thread.
pub(super) async fn clean_background_terminals(
    client: &Client,
    thread: &str,
) -> Result<(), ClientError> {
    let params = json!({ "threadId": thread });
    let method = "thread/backgroundTerminals/clean";
    client.request_within::<Value>(method, &params, CLEAN_LIMIT).await.map(drop)
}

/// The id of a thread, wherever the versions put it.
fn thread_id(answer: &Value) -> Option<String> {
    let thread = answer.get("thread");
    [
        thread.and_then(|thread| thread.get("id")),
        thread.and_then(|thread| thread.get("sessionId")),
        answer.get("sessionId"),
        answer.get("threadId"),
    ]
    .into_iter()
    .flatten()
    .find_map(Value::as_str)
    .filter(|id| !id.is_empty())
    .map(str::to_owned)
}

/// The settings of a thread that there is already. Its history is not to be sent along.
fn of_thread(id: &str, options: &ThreadOptions) -> Map<String, Value> {
    let mut params = to_params(options);
    params.insert("threadId".to_owned(), id.into());
    params.insert("excludeTurns".to_owned(), true.into());
    params
}

fn to_params(options: &impl Serialize) -> Map<String, Value> {
    match serde_json::to_value(options) {
        Ok(Value::Object(params)) => params,
        _ => Map::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_id_is_accepted_wherever_it_stands() {
        for answer in [
            json!({ "thread": { "id": "t" }, "sessionId": "other" }),
            json!({ "thread": { "sessionId": "t" } }),
            json!({ "sessionId": "t" }),
            json!({ "threadId": "t" }),
        ] {
            assert_eq!(thread_id(&answer).as_deref(), Some("t"), "{answer}");
        }
        assert_eq!(thread_id(&json!({ "thread": {} })), None);
    }

    #[test]
    fn what_is_left_out_is_not_sent() {
        assert!(to_params(&ThreadOptions::default()).is_empty());
    }
}
