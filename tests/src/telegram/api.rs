//! The methods of the API.

use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::body::{Body, Bytes};
use axum::extract::{Path, State as Injected};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use futures::stream;
use serde_json::{Value, json};

use super::state::{Call, Shown, chat_json, user_json};
use super::{BOT, Fault, Room, Shared, TOKEN, check};

/// An error of the API: its code, its description.
type Refusal = (u16, String);

pub(super) async fn handle(
    Injected(shared): Injected<Arc<Shared>>,
    Path(path): Path<String>,
    headers: HeaderMap,
    body: Bytes,
) -> Response {
    let file = path.strip_prefix(&format!("file/bot{TOKEN}/"));
    let method = file.map(|_| "file").or_else(|| path.strip_prefix(&format!("bot{TOKEN}/")));
    let Some(method) = method else {
        return refusal(&(401, "Unauthorized".to_owned()));
    };
    let params = read(&headers, &body);
    let call = {
        let mut state = shared.state();
        let number = state.calls.len() + 1;
        let call = Call { number, method: method.to_owned(), params, at: Instant::now() };
        state.calls.push(call.clone());
        call
    };
    shared.changed();
    let fault = (shared.faults.lock().unwrap())(&call);
    match fault {
        Some(Fault::TooManyRequests(seconds)) => {
            let description = format!("Too Many Requests: retry after {seconds}");
            let body = json!({ "ok": false, "error_code": 429, "description": description,
                "parameters": { "retry_after": seconds } });
            return (StatusCode::TOO_MANY_REQUESTS, body.to_string()).into_response();
        }
        Some(Fault::BadGateway) => {
            return (StatusCode::BAD_GATEWAY, "<html>502 Bad Gateway</html>").into_response();
        }
        Some(Fault::Unauthorized) => return refusal(&(401, "Unauthorized".to_owned())),
        Some(Fault::Moved) => {
            let location = [(header::LOCATION, format!("/moved/{path}"))];
            return (StatusCode::FOUND, location).into_response();
        }
        Some(Fault::Reset) => return reset(),
        Some(Fault::Hang) => std::future::pending().await,
        Some(Fault::Refused(code, description)) => return refusal(&(code, description.to_owned())),
        Some(Fault::ResetBehind | Fault::ErrorBehind | Fault::HangBehind) | None => {}
    }
    if let Some(file) = file {
        let found = shared.state().file(file).map(|(_, bytes)| bytes.clone());
        return match found {
            Some(bytes) => bytes.into_response(),
            None => refusal(&(404, "Not Found".to_owned())),
        };
    }
    let result = if method == "getUpdates" {
        updates(&shared, &call.params).await
    } else {
        let result = act(&shared, &call);
        shared.changed();
        result
    };
    match fault {
        Some(Fault::ResetBehind) => return reset(),
        Some(Fault::ErrorBehind) => return refusal(&(500, "Internal Server Error".to_owned())),
        Some(Fault::HangBehind) => std::future::pending().await,
        _ => {}
    }
    match result {
        Ok(result) => json!({ "ok": true, "result": result }).to_string().into_response(),
        Err(refused) => {
            shared.state().refusals.push(format!("{method}: {}", refused.1));
            shared.changed();
            refusal(&refused)
        }
    }
}

/// The parameters, from JSON or from a form.
fn read(headers: &HeaderMap, body: &Bytes) -> Value {
    let kind =
        headers.get(header::CONTENT_TYPE).and_then(|it| it.to_str().ok()).unwrap_or_default();
    match kind.split_once("boundary=") {
        Some((_, boundary)) => form(boundary.trim_matches('"'), body),
        None => serde_json::from_slice(body).unwrap_or(Value::Null),
    }
}

/// The fields of a form; a file becomes its name and its size.
fn form(boundary: &str, body: &[u8]) -> Value {
    let text = String::from_utf8_lossy(body);
    let mut fields = json!({});
    for part in text.split(&format!("--{boundary}")) {
        let Some((head, content)) = part.split_once("\r\n\r\n") else { continue };
        let content = content.strip_suffix("\r\n").unwrap_or(content);
        let quoted = |key: &str| {
            let (_, rest) = head.split_once(&format!("{key}=\""))?;
            Some(rest.split_once('"')?.0.to_owned())
        };
        let Some(name) = quoted(" name") else { continue };
        fields[&name] = match quoted("filename") {
            Some(file) => json!({ "file_name": file, "file_size": content.len() }),
            None => serde_json::from_str(content).unwrap_or_else(|_| content.into()),
        };
    }
    fields
}

fn refusal((code, description): &Refusal) -> Response {
    let status = StatusCode::from_u16(*code).unwrap();
    let body = json!({ "ok": false, "error_code": code, "description": description });
    (status, body.to_string()).into_response()
}

/// A response that breaks off before its end.
fn reset() -> Response {
    let broken = stream::iter([Err::<Bytes, _>(std::io::Error::other("reset"))]);
    Response::builder().header(header::CONTENT_LENGTH, 100).body(Body::from_stream(broken)).unwrap()
}

async fn updates(shared: &Shared, params: &Value) -> Result<Value, Refusal> {
    let offset = params["offset"].as_i64().unwrap_or(0);
    let wait = Duration::from_secs(params["timeout"].as_u64().unwrap_or(0));
    let mut changes = shared.changes.subscribe();
    {
        let mut state = shared.state();
        if state.webhook {
            let text = "Conflict: can't use getUpdates method while webhook is active; use deleteWebhook \
                        to delete the webhook first";
            return Err((409, text.to_owned()));
        }
        if state.polling > 0 {
            let text = "Conflict: terminated by other getUpdates request; make sure that only one bot \
                        instance is running";
            return Err((409, text.to_owned()));
        }
        state.polling += 1;
    }
    let _polling = Polling(shared);
    let deadline = tokio::time::Instant::now() + wait;
    loop {
        changes.borrow_and_update();
        let found = shared.state().updates_from(offset);
        // What waits for a confirmation sees it.
        shared.changes.send_if_modified(|_| false);
        if !found.is_empty() {
            return Ok(found.into());
        }
        let changed = tokio::time::timeout_at(deadline, changes.changed()).await;
        if changed.is_err() {
            return Ok(json!([]));
        }
    }
}

struct Polling<'a>(&'a Shared);

impl Drop for Polling<'_> {
    fn drop(&mut self) {
        self.0.state().polling -= 1;
        self.0.changed();
    }
}

fn act(shared: &Shared, call: &Call) -> Result<Value, Refusal> {
    let params = &call.params;
    let bad = |text: &str| (400, text.to_owned());
    let mut state = shared.state();
    let id = |name: &str| params[name].as_i64().unwrap_or_default();
    let (chat, message) = (id("chat_id"), id("message_id"));
    match call.method.as_str() {
        "getMe" => Ok(user_json(BOT)),
        "getChat" => Ok(chat_json(chat)),
        "getChatMember" => match state.members.get(&chat) {
            Some(member) if member.is_null() => Err(bad("Bad Request: chat not found")),
            Some(member) => Ok(member.clone()),
            None => Ok(json!({ "status": "administrator", "user": user_json(BOT) })),
        },
        "setMyCommands" => Ok(true.into()),
        "deleteWebhook" => {
            state.webhook = false;
            Ok(true.into())
        }
        "getFile" => {
            let id = params["file_id"].as_str().unwrap_or_default();
            let (_, bytes) = state.file(id).ok_or_else(|| bad("Bad Request: invalid file_id"))?;
            Ok(json!({ "file_id": id, "file_path": id, "file_size": bytes.len() }))
        }
        "sendMessage" | "sendDocument" => {
            if call.method == "sendMessage" {
                check::message(params).map_err(|text| (400, text))?;
            }
            let replied = params["reply_parameters"]["message_id"].as_i64();
            if replied.is_some_and(|replied| !state.exists(chat, replied)) {
                return Err(bad("Bad Request: message to be replied not found"));
            }
            let room = Room { chat, topic: params["message_thread_id"].as_i64() };
            let silent = params["disable_notification"].as_bool().unwrap_or(false);
            Ok(state.send(room, params.clone(), !silent))
        }
        "editMessageText" => {
            check::message(params).map_err(|text| (400, text))?;
            let Some(known) = state.get(chat, message) else {
                return Err(bad("Bad Request: message to edit not found"));
            };
            if known.by != BOT {
                return Err(bad("Bad Request: message can't be edited"));
            }
            let same = ["text", "entities", "reply_markup"]
                .iter()
                .all(|name| empty(&known.fields[*name]) == empty(&params[*name]));
            if same {
                return Err(bad(
                    "Bad Request: message is not modified: specified new message content and reply \
                     markup are exactly the same as a current content and reply markup of the message",
                ));
            }
            for name in ["text", "entities", "reply_markup"] {
                known.fields[name] = params[name].clone();
            }
            known.edits += 1;
            Ok(state.message_json(chat, message))
        }
        "deleteMessage" => {
            if state.delete(chat, message) {
                Ok(true.into())
            } else {
                Err(bad("Bad Request: message to delete not found"))
            }
        }
        "answerCallbackQuery" => {
            let id = params["callback_query_id"].as_str().unwrap_or_default();
            state.answered.insert(id.to_owned());
            Ok(true.into())
        }
        _ => Err((404, "Not Found".to_owned())),
    }
}

/// A list that is empty is as good as none.
fn empty(value: &Value) -> Value {
    let none = value.as_array().is_some_and(Vec::is_empty)
        || value["inline_keyboard"].as_array().is_some_and(Vec::is_empty);
    if none { Value::Null } else { value.clone() }
}

impl Shown {
    /// Whether it has a button with this label.
    pub fn has_button(&self, label: &str) -> bool {
        self.buttons.iter().any(|it| it == label)
    }
}
