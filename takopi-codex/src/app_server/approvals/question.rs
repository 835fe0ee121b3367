//! A question of codex, as it is shown, and the reply as codex wants it said.

use std::path::{Path, PathBuf};

use serde_json::{Map, Value, json};
use takopi_core::model::{Action, ActionEvent, ActionKind, Phase};
use takopi_core::runner::{ApprovalKind, Reply};
use takopi_core::{ApprovalRequest, Decision};

use super::patches::{Patches, summary};
use crate::app_server::requests::ServerRequest;
use crate::common::without_shell;
use crate::{CODEX, resume_codec};

/// A question that can be put to somebody.
#[derive(Debug)]
pub(super) struct Question {
    pub(super) request: ApprovalRequest,
    /// The id of the question's action in the stream.
    id: String,
    params: Map<String, Value>,
}

impl Question {
    /// Reads a request of the server; `None` if it is not one to be decided by anybody.
    pub(super) fn read(
        id: String,
        request: &ServerRequest,
        patches: &Patches,
        thread_cwd: &Path,
    ) -> Option<Self> {
        let params: Map<String, Value> = request.parse().unwrap_or_default();
        let text =
            |key: &str| params.get(key).and_then(Value::as_str).filter(|text| !text.is_empty());
        let changes = text("itemId").and_then(|item| patches.of(item));
        let (kind, title) = match request.method() {
            "item/commandExecution/requestApproval" => {
                let command = text("command").map(|command| without_shell(command).into_owned());
                (ApprovalKind::Command, command.unwrap_or_else(|| network(&params)))
            }
            "item/fileChange/requestApproval" => {
                let patch = changes.map_or_else(|| "changes to files".to_owned(), summary);
                (ApprovalKind::FileChange, patch)
            }
            "item/permissions/requestApproval" => {
                (ApprovalKind::Permissions, permissions(params.get("permissions")))
            }
            "mcpServer/elicitation/request" => {
                let server = text("serverName").unwrap_or("an MCP server");
                let message = text("message").or_else(|| text("title"));
                let message = message.unwrap_or("wants something");
                (ApprovalKind::Elicitation, format!("{server}: {message}"))
            }
            "item/tool/requestUserInput" => {
                (ApprovalKind::UserInput, questions(params.get("questions")))
            }
            _ => return None,
        };
        let cwd = text("cwd").map_or_else(|| thread_cwd.to_owned(), PathBuf::from);
        let mut asked = ApprovalRequest::new(CODEX, kind, title, cwd);
        asked.session = request.thread().and_then(|thread| resume_codec().token(&thread));
        asked.reason = text("reason").map(str::to_owned);
        asked.detail = bounded(&params).into();
        if let Some(changes) = changes {
            asked.detail.insert("changes", changes);
        }
        if let Some(subagent) = request.subagent() {
            asked.detail.insert("subagent", subagent.into_owned());
        }
        Some(Self { request: asked, id, params })
    }

    /// The question, waiting.
    pub(super) fn waiting(&self) -> ActionEvent {
        ActionEvent::new(CODEX, self.action(), Phase::Started).message("waiting for a decision")
    }

    /// The question, decided; `None` if there was nobody to decide.
    pub(super) fn decided(&self, reply: Option<&Reply>) -> ActionEvent {
        let Some(reply) = reply else {
            let action = self.action().with("decision", Decision::Decline.as_str());
            return ActionEvent::new(CODEX, action, Phase::Completed)
                .ok(false)
                .message("declined: nobody could be asked");
        };
        let mut action = self.action().with("decision", reply.decision.as_str());
        if let Some(by) = &reply.by {
            action = action.with("by", by.as_str());
        }
        ActionEvent::new(CODEX, action, Phase::Completed)
            .ok(reply.decision.is_yes())
            .message(reply.to_string())
    }

    /// The question, overtaken: codex took it back, or the turn is over.
    pub(super) fn withdrawn(&self) -> ActionEvent {
        ActionEvent::new(CODEX, self.action(), Phase::Completed).ok(false).message("withdrawn")
    }

    fn action(&self) -> Action {
        let request = &self.request;
        let mut action = Action::new(&self.id, ActionKind::Approval, &request.title)
            .with("asks_for", request.kind.as_str())
            .with("cwd", request.cwd.display().to_string());
        if let Some(reason) = &request.reason {
            action = action.with("reason", reason.as_str());
        }
        for (key, shown) in
            [("changes", "changes"), ("serverName", "server"), ("subagent", "subagent")]
        {
            if let Some(value) = request.detail.get(key) {
                action = action.with(shown, value.clone());
            }
        }
        action
    }

    /// The reply, as codex wants it said.
    pub(super) fn answer(&self, reply: &Reply) -> Value {
        let decision = reply.decision;
        match self.request.kind {
            ApprovalKind::Permissions if decision.is_yes() => {
                let wanted = self.params.get("permissions").cloned().unwrap_or_else(|| json!({}));
                let session = decision == Decision::AcceptForSession;
                json!({ "permissions": wanted, "scope": if session { "session" } else { "turn" } })
            }
            ApprovalKind::Permissions => json!({ "permissions": {} }),
            ApprovalKind::Elicitation => {
                let content = &reply.content;
                match decision {
                    Decision::Accept => json!({ "action": "accept", "content": content }),
                    Decision::AcceptForSession => {
                        let meta = json!({ "persist": "session" });
                        json!({ "action": "accept", "content": content, "_meta": meta })
                    }
                    Decision::Cancel => json!({ "action": "cancel" }),
                    _ => json!({ "action": "decline" }),
                }
            }
            ApprovalKind::UserInput if decision.is_yes() => {
                let answers: Map<String, Value> = reply
                    .content
                    .iter()
                    .map(|(question, answer)| {
                        (question.clone(), json!({ "answers": list(answer) }))
                    })
                    .collect();
                json!({ "answers": answers })
            }
            ApprovalKind::UserInput => json!({ "answers": {} }),
            _ => {
                let word = match decision {
                    Decision::Accept => "accept",
                    Decision::AcceptForSession => "acceptForSession",
                    Decision::Cancel => "cancel",
                    _ => "decline",
                };
                json!({ "decision": word })
            }
        }
    }

    /// Whether the turn must be ended beside the answer, because codex has no word for that here.
    pub(super) fn ends_turn(&self, reply: &Reply) -> bool {
        let has_word =
            matches!(self.request.kind, ApprovalKind::Command | ApprovalKind::FileChange);
        reply.decision == Decision::Cancel && !has_word
    }
}

/// A text as a list of one; a list as the texts in it.
fn list(answer: &Value) -> Vec<String> {
    let text = |value: &Value| match value {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    };
    match answer {
        Value::Array(many) => many.iter().map(text).collect(),
        one => vec![text(one)],
    }
}

/// A question without a command is about a host on the network.
fn network(params: &Map<String, Value>) -> String {
    let context = params.get("networkApprovalContext");
    let host = context.and_then(|context| context.get("host")).and_then(Value::as_str);
    host.map_or_else(|| "a command".to_owned(), |host| format!("network access to {host}"))
}

/// `write /srv, read /etc, network`
fn permissions(wanted: Option<&Value>) -> String {
    let none = Value::Null;
    let wanted = wanted.unwrap_or(&none);
    let files = &wanted["fileSystem"];
    let mut parts = Vec::new();
    for access in ["write", "read"] {
        for path in files[access].as_array().into_iter().flatten() {
            parts.push(format!("{access} {}", list(path).join("")));
        }
    }
    for entry in files["entries"].as_array().into_iter().flatten() {
        let (access, path) = (entry["access"].as_str().unwrap_or("use"), &entry["path"]);
        let path = path["path"].as_str().or_else(|| path["pattern"].as_str());
        let part = path.map(|path| format!("{access} {path}"));
        parts.push(part.unwrap_or_else(|| entry.to_string()));
    }
    if wanted["network"]["enabled"] == true {
        parts.push("network".to_owned());
    }
    parts.dedup();
    if parts.is_empty() { format!("permissions {wanted}") } else { parts.join(", ") }
}

fn questions(asked: Option<&Value>) -> String {
    let asked = asked.and_then(Value::as_array).into_iter().flatten();
    let texts: Vec<&str> = asked.filter_map(|question| question["question"].as_str()).collect();
    if texts.is_empty() { "a question".to_owned() } else { texts.join("; ") }
}

/// The particulars, without what is long.
fn bounded(params: &Map<String, Value>) -> Map<String, Value> {
    const LONG: usize = 4096;
    params
        .iter()
        .filter(|(_, value)| !value.is_null() && value.to_string().len() <= LONG)
        .map(|(key, value)| (key.clone(), value.clone()))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn question(kind: ApprovalKind, params: &Value) -> Question {
        let request = ApprovalRequest::new(CODEX, kind, "title", "/w".into());
        let params = params.as_object().cloned().unwrap_or_default();
        Question { request, id: "codex.approval_0".to_owned(), params }
    }

    #[test]
    fn every_decision_is_said_in_the_words_of_its_kind() {
        use ApprovalKind::{Command, Elicitation, FileChange, Permissions, UserInput};
        let wanted = json!({ "permissions": { "network": { "enabled": true } } });
        for (kind, once, session, no, stop) in [
            (
                Command,
                json!({ "decision": "accept" }),
                json!({ "decision": "acceptForSession" }),
                json!({ "decision": "decline" }),
                json!({ "decision": "cancel" }),
            ),
            (
                FileChange,
                json!({ "decision": "accept" }),
                json!({ "decision": "acceptForSession" }),
                json!({ "decision": "decline" }),
                json!({ "decision": "cancel" }),
            ),
            (
                Permissions,
                json!({ "permissions": { "network": { "enabled": true } }, "scope": "turn" }),
                json!({ "permissions": { "network": { "enabled": true } }, "scope": "session" }),
                json!({ "permissions": {} }),
                json!({ "permissions": {} }),
            ),
            (
                Elicitation,
                json!({ "action": "accept", "content": {} }),
                json!({ "action": "accept", "content": {}, "_meta": { "persist": "session" } }),
                json!({ "action": "decline" }),
                json!({ "action": "cancel" }),
            ),
            (
                UserInput,
                json!({ "answers": {} }),
                json!({ "answers": {} }),
                json!({ "answers": {} }),
                json!({ "answers": {} }),
            ),
        ] {
            let question = question(kind, &wanted);
            let said = |decision: Decision| question.answer(&decision.into());
            assert_eq!(said(Decision::Accept), once, "{kind:?}");
            assert_eq!(said(Decision::AcceptForSession), session, "{kind:?}");
            assert_eq!(said(Decision::Decline), no, "{kind:?}");
            assert_eq!(said(Decision::Cancel), stop, "{kind:?}");
            let worded = matches!(kind, Command | FileChange);
            assert_eq!(question.ends_turn(&Decision::Cancel.into()), !worded, "{kind:?}");
        }
    }

    #[test]
    fn what_was_filled_in_reaches_codex() {
        let reply = Reply::from(Decision::Accept).with("q1", "yes").with("q2", json!(["a", "b"]));
        assert_eq!(
            question(ApprovalKind::UserInput, &json!({})).answer(&reply),
            json!({ "answers": { "q1": { "answers": ["yes"] }, "q2": { "answers": ["a", "b"] } } })
        );
        assert_eq!(
            question(ApprovalKind::Elicitation, &json!({})).answer(&reply)["content"],
            json!({ "q1": "yes", "q2": ["a", "b"] })
        );
    }

    #[test]
    fn permissions_are_read_out() {
        let wanted = json!({
            "fileSystem": {
                "write": ["/srv"],
                "entries": [{ "access": "read", "path": { "type": "path", "path": "/etc" } }],
            },
            "network": { "enabled": true },
        });
        assert_eq!(permissions(Some(&wanted)), "write /srv, read /etc, network");
        assert_eq!(permissions(Some(&json!({ "odd": 1 }))), r#"permissions {"odd":1}"#);
    }

    #[test]
    fn who_decided_is_shown_and_so_is_that_nobody_could() {
        let question = question(ApprovalKind::Command, &json!({}));
        let waiting = question.waiting();
        assert_eq!((waiting.phase, waiting.ok), (Phase::Started, None));
        let decided = question.decided(Some(&Reply::from(Decision::Accept).by("alice")));
        assert_eq!(decided.message.as_deref(), Some("accepted by alice"));
        assert_eq!(decided.action.detail["by"], "alice");
        let nobody = question.decided(None);
        assert_eq!(nobody.message.as_deref(), Some("declined: nobody could be asked"));
        assert_eq!(nobody.action.detail["decision"], "decline");
    }
}
