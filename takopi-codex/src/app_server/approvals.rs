//! What codex asks leave for, shown to whoever may decide, and the decision as codex wants it said.
//!
//! What is asked is shown: the command, the changes as they stood in the item's start, the server
//! and its message. The directory is never empty.

use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};

use serde::Deserialize;
use serde_json::{Map, Value, json};
use takopi_core::model::{Action, ActionEvent, ActionKind, Phase};
use takopi_core::runner::ApprovalKind;
use takopi_core::{ApprovalRequest, Decision};

use super::message::Notification;
use super::requests::ServerRequest;
use crate::CODEX;
use crate::common::without_shell;

/// The patches of a turn, for the questions that name them by item only.
#[derive(Debug, Default)]
pub(super) struct Patches {
    by_item: HashMap<String, String>,
}

#[derive(Deserialize)]
struct ItemTold {
    item: PatchItem,
}

#[derive(Deserialize)]
struct PatchItem {
    #[serde(default)]
    id: String,
    #[serde(default)]
    changes: Vec<Value>,
}

impl Patches {
    /// Remembers a patch that is about to be applied.
    pub(super) fn hear(&mut self, told: &Notification) {
        if told.method == "item/started"
            && told.params.get().contains("\"fileChange\"")
            && let Some(ItemTold { item }) = told.parse()
            && !item.changes.is_empty()
        {
            self.by_item.insert(item.id, summary(&item.changes));
        }
    }
}

/// `1 add, 1 update: a.rs, b.rs`
fn summary(changes: &[Value]) -> String {
    let mut kinds: BTreeMap<&str, usize> = BTreeMap::new();
    let mut names = Vec::new();
    for change in changes {
        let kind = change.get("kind");
        let kind = kind.and_then(|kind| kind.as_str().or_else(|| kind.get("type")?.as_str()));
        *kinds.entry(kind.unwrap_or("change")).or_default() += 1;
        if let Some(path) = change.get("path").and_then(Value::as_str) {
            let name = Path::new(path).file_name().map(|name| name.to_string_lossy().into_owned());
            names.push(name.unwrap_or_else(|| path.to_owned()));
        }
    }
    let kinds: Vec<String> = kinds.iter().map(|(kind, count)| format!("{count} {kind}")).collect();
    format!("{}: {}", kinds.join(", "), names.join(", "))
}

/// A question that can be put to somebody.
#[derive(Debug)]
pub(super) struct Question {
    pub(super) request: ApprovalRequest,
    /// The id of the question's action in the stream.
    id: String,
    kind: ApprovalKind,
    params: Map<String, Value>,
}

impl Question {
    /// Reads a request of the server; `None` if it is not one to be decided by anybody.
    pub(super) fn read(
        request: &ServerRequest,
        patches: &Patches,
        thread_cwd: &Path,
    ) -> Option<Self> {
        let params: Map<String, Value> = request.parse().unwrap_or_default();
        let text =
            |key: &str| params.get(key).and_then(Value::as_str).filter(|text| !text.is_empty());
        let (kind, title) = match request.method() {
            "item/commandExecution/requestApproval" => {
                let command = text("command").map(|command| without_shell(command).into_owned());
                (ApprovalKind::Command, command.unwrap_or_else(|| "a command".to_owned()))
            }
            "item/fileChange/requestApproval" => {
                let patch = text("itemId").and_then(|item| patches.by_item.get(item)).cloned();
                (ApprovalKind::FileChange, patch.unwrap_or_else(|| "changes to files".to_owned()))
            }
            "item/permissions/requestApproval" => {
                let wanted = params.get("permissions").map(Value::to_string).unwrap_or_default();
                (ApprovalKind::Permissions, format!("permissions: {wanted}"))
            }
            "mcpServer/elicitation/request" => {
                let server = text("serverName").unwrap_or("an MCP server");
                let message = text("message").unwrap_or("wants something");
                (ApprovalKind::Elicitation, format!("{server}: {message}"))
            }
            _ => return None,
        };
        let cwd = text("cwd").map_or_else(|| thread_cwd.to_owned(), PathBuf::from);
        let mut asked = ApprovalRequest::new(CODEX, kind, title, cwd);
        asked.reason = text("reason").map(str::to_owned);
        asked.detail = bounded(&params);
        let id = match request.id() {
            super::message::RequestId::Number(id) => format!("codex.approval_{id}"),
            super::message::RequestId::Text(id) => format!("codex.approval_{id}"),
        };
        Some(Self { request: asked, id, kind, params })
    }

    /// The question, waiting.
    pub(super) fn waiting(&self) -> ActionEvent {
        ActionEvent::new(CODEX, self.action(), Phase::Started)
    }

    /// The question, decided; `None` if there was nobody to decide.
    pub(super) fn decided(&self, decision: Option<Decision>) -> ActionEvent {
        let (ok, message) = match decision {
            Some(Decision::Accept) => (true, "accepted"),
            Some(Decision::AcceptForSession) => (true, "accepted for the session"),
            Some(Decision::Cancel) => (false, "declined, and the turn ends"),
            Some(_) => (false, "declined"),
            None => (false, "declined: nobody could be asked"),
        };
        ActionEvent::new(CODEX, self.action(), Phase::Completed).ok(ok).message(message)
    }

    /// The question, taken back by codex.
    pub(super) fn withdrawn(&self) -> ActionEvent {
        ActionEvent::new(CODEX, self.action(), Phase::Completed).ok(false).message("withdrawn")
    }

    fn action(&self) -> Action {
        let mut action = Action::new(&self.id, ActionKind::Approval, &self.request.title)
            .with("cwd", self.request.cwd.display().to_string());
        if let Some(reason) = &self.request.reason {
            action = action.with("reason", reason.as_str());
        }
        action
    }

    /// The decision, as codex wants it said.
    pub(super) fn answer(&self, decision: Decision) -> Value {
        match self.kind {
            ApprovalKind::Permissions => match decision {
                Decision::Accept | Decision::AcceptForSession => {
                    let wanted =
                        self.params.get("permissions").cloned().unwrap_or_else(|| json!({}));
                    let scope = if decision == Decision::Accept { "turn" } else { "session" };
                    json!({ "permissions": wanted, "scope": scope })
                }
                _ => json!({ "permissions": {} }),
            },
            ApprovalKind::Elicitation => match decision {
                Decision::Accept => json!({ "action": "accept", "content": {} }),
                Decision::AcceptForSession => {
                    json!({ "action": "accept", "content": {}, "_meta": { "persist": "session" } })
                }
                Decision::Cancel => json!({ "action": "cancel" }),
                _ => json!({ "action": "decline" }),
            },
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

    #[test]
    fn a_patch_is_summed_up() {
        let changes = [
            json!({ "path": "/w/src/a.rs", "kind": { "type": "add" } }),
            json!({ "path": "/w/b.rs", "kind": "update" }),
        ];
        assert_eq!(summary(&changes), "1 add, 1 update: a.rs, b.rs");
    }
}
