//! A request for approval while it is open, and the response that codex expects.

use std::borrow::Cow;
use std::path::Path;

use serde_json::{Map, Value, json};
use takopi_core::runner::Reply;
use takopi_core::{ApprovalRequest, Decision};

use super::patches::Patches;
use super::read::read;
use crate::app_server::requests::ServerRequest;
use crate::resume_codec;

/// The requests that an approval handler can decide.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Method {
    Command,
    FileChange,
    Permissions,
    Elicitation,
    UserInput,
}

impl Method {
    const ALL: [Self; 5] =
        [Self::Command, Self::FileChange, Self::Permissions, Self::Elicitation, Self::UserInput];

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Command => "item/commandExecution/requestApproval",
            Self::FileChange => "item/fileChange/requestApproval",
            Self::Permissions => "item/permissions/requestApproval",
            Self::Elicitation => "mcpServer/elicitation/request",
            Self::UserInput => "item/tool/requestUserInput",
        }
    }
}

/// A request that waits for a decision.
#[derive(Debug)]
pub(super) struct Asked {
    pub(super) request: ApprovalRequest,
    method: Method,
    /// The permissions that are asked for, to be granted as they came.
    permissions: Value,
}

impl Asked {
    /// Reads a request of the server, in a turn on `thread`; `None` if it is not one to be decided by
    /// anybody.
    pub(super) fn read(
        request: &ServerRequest,
        thread: &str,
        patches: &Patches,
        cwd: &Path,
    ) -> Option<Self> {
        let method = Method::ALL.into_iter().find(|method| method.name() == request.method())?;
        let params: Option<Map<String, Value>> = request.parse();
        let permissions = params.as_ref().and_then(|params| params.get("permissions")).cloned();
        let asking = request.thread().unwrap_or(Cow::Borrowed(thread));
        let mut asked = read(method, params, request.params(), &asking, patches, cwd);
        asked.subagent = request.subagent().map(Cow::into_owned);
        asked.session = request.thread().and_then(|thread| resume_codec().token(&thread));
        Some(Self { request: asked, method, permissions: permissions.unwrap_or_else(|| json!({})) })
    }

    /// The response for codex.
    pub(super) fn response(&self, reply: &Reply) -> Value {
        let decision = reply.decision;
        match self.method {
            Method::Permissions if decision.is_yes() => {
                let wanted = self.permissions.clone();
                let session = decision == Decision::AcceptForSession;
                json!({ "permissions": wanted, "scope": if session { "session" } else { "turn" } })
            }
            Method::Permissions => json!({ "permissions": {} }),
            Method::Elicitation => {
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
            Method::UserInput if decision.is_yes() => {
                let answers: Map<String, Value> = reply
                    .content
                    .iter()
                    .map(|(question, answer)| {
                        (question.clone(), json!({ "answers": list(answer) }))
                    })
                    .collect();
                json!({ "answers": answers })
            }
            Method::UserInput => json!({ "answers": {} }),
            Method::Command | Method::FileChange => {
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

    /// Whether the turn must be ended beside the answer, because codex has no decision for that here.
    pub(super) fn ends_turn(&self, reply: &Reply) -> bool {
        let can_end = matches!(self.method, Method::Command | Method::FileChange);
        reply.decision == Decision::Cancel && !can_end
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

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(method: Method, params: &Value) -> Asked {
        let question = takopi_core::runner::Question::command("ls");
        let request = ApprovalRequest::new(crate::CODEX, question, "/w".into());
        let permissions = params["permissions"].clone();
        Asked { request, method, permissions }
    }

    #[test]
    fn every_decision_becomes_the_response_of_its_method() {
        use Method::{Command, Elicitation, FileChange, Permissions, UserInput};
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
            let question = asked(kind, &wanted);
            let response = |decision: Decision| question.response(&decision.into());
            assert_eq!(response(Decision::Accept), once, "{kind:?}");
            assert_eq!(response(Decision::AcceptForSession), session, "{kind:?}");
            assert_eq!(response(Decision::Decline), no, "{kind:?}");
            assert_eq!(response(Decision::Cancel), stop, "{kind:?}");
            let has_cancel = matches!(kind, Command | FileChange);
            assert_eq!(question.ends_turn(&Decision::Cancel.into()), !has_cancel, "{kind:?}");
        }
    }

    #[test]
    fn what_was_filled_in_reaches_codex() {
        let reply = Reply::from(Decision::Accept).with("q1", "yes").with("q2", json!(["a", "b"]));
        assert_eq!(
            asked(Method::UserInput, &json!({})).response(&reply),
            json!({ "answers": { "q1": { "answers": ["yes"] }, "q2": { "answers": ["a", "b"] } } })
        );
        assert_eq!(
            asked(Method::Elicitation, &json!({})).response(&reply)["content"],
            json!({ "q1": "yes", "q2": ["a", "b"] })
        );
    }
}
