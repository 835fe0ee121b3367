//! What the agent asks in a run: approvals, and calls of the host's tools.
//!
//! - A request is read into a typed question with all that a yes would grant. A field of a tool's input
//!   that is not known is marked as such, and never dropped.
//! - A yes passes the tool's input on as it was asked for, or as the handler changed it.
//! - "For the session" allows this command, this file or this tool of a server for as long as the process
//!   lives; takopi's extension keeps that.
//! - Dialogs of other extensions are cancelled, visibly: what a yes to them grants is not known.

mod question;

use std::path::PathBuf;
use std::sync::Arc;

use serde_json::{Value, json};
use takopi_core::Decision;
use takopi_core::model::TakopiEvent;
use takopi_core::redact::redact;
use takopi_core::runner::{Desk, EngineRun, Outcome, Reply, Settled, StoppedError};
use takopi_core::tools::{HostToolCall, HostTools, ToolItem, ToolOutput};

use crate::dialog::Dialog;

/// How much of another extension's question is shown.
const TITLE_CHARS: usize = 200;

/// Where the requests of one run are dealt with.
pub(crate) struct RequestHandler {
    run: EngineRun,
    tools: Arc<HostTools>,
    session: String,
    directory: PathBuf,
    desk: Desk<Dialog>,
}

impl RequestHandler {
    /// For a run of a session in a directory.
    pub(crate) fn new(
        run: EngineRun,
        tools: Arc<HostTools>,
        session: String,
        directory: PathBuf,
    ) -> Self {
        let desk = Desk::new(run.clone());
        Self { run, tools, session, directory, desk }
    }

    /// Takes up a dialog.
    pub(crate) fn take(&mut self, dialog: Dialog, events: &mut Vec<TakopiEvent>) {
        let Some(asked) = dialog.question() else {
            // Before it is cut: half a credential cannot be recognised.
            let title: String = redact(dialog.title()).chars().take(TITLE_CHARS).collect();
            let warning = format!("declined: an extension of pi asks {title:?}");
            events.push(self.run.warning(warning));
            return;
        };
        if asked["kind"] == "call" {
            let id = asked["id"].as_str().unwrap_or_default();
            let call = HostToolCall::new(&self.session, id, asked["input"].clone());
            match self.tools.call(asked["tool"].as_str().unwrap_or_default(), call) {
                Ok(call) => self.desk.call(dialog, call),
                Err(missing) => {
                    events.push(self.run.warning(missing.clone()));
                    dialog.answer(&json!({ "error": missing }));
                }
            }
            return;
        }
        let request = question::approval(&asked, &self.session, &self.directory);
        self.desk.ask(dialog, request, events);
    }

    /// The next request that is settled. Never resolves while no request is open.
    pub(crate) async fn settled(&mut self) -> Settled {
        self.desk.settled().await
    }

    /// Answers a request that is settled. Returns whether the turn is to be ended.
    pub(crate) fn settle(
        &mut self,
        settled: Settled,
        events: &mut Vec<TakopiEvent>,
    ) -> Result<bool, StoppedError> {
        match self.desk.settle(settled, events)? {
            Some((dialog, Outcome::Decided(reply))) => {
                dialog.answer(&decision(&reply));
                Ok(reply.decision == Decision::Cancel)
            }
            Some((dialog, Outcome::Called(result))) => {
                dialog.answer(&result.map_or_else(|error| json!({ "error": error }), content));
                Ok(false)
            }
            Some(_) | None => Ok(false),
        }
    }

    /// The run is over: closes what is still open. What was not answered is cancelled.
    pub(crate) fn close(&mut self, events: &mut Vec<TakopiEvent>) {
        drop(self.desk.close(events));
    }
}

/// A decision as takopi's extension reads it.
fn decision(reply: &Reply) -> Value {
    if !reply.decision.is_yes() {
        let why = reply.why.as_ref().map(|why| format!(" ({why})")).unwrap_or_default();
        let reason = format!("The user declined this{why}.");
        return json!({ "decision": "deny", "reason": reason });
    }
    let session = reply.decision == Decision::AcceptForSession;
    json!({ "decision": "allow", "session": session, "input": reply.content })
}

/// The output of a tool as pi has it.
fn content(output: ToolOutput) -> Value {
    let items = output.items.into_iter().filter_map(|item| match item {
        ToolItem::Text(text) => Some(json!({ "type": "text", "text": text })),
        // pi has images as data, not as addresses.
        ToolItem::Image(url) => Some(match data_url(&url) {
            Some((kind, data)) => json!({ "type": "image", "mimeType": kind, "data": data }),
            None => json!({ "type": "text", "text": url }),
        }),
        _ => None,
    });
    json!({ "content": items.collect::<Vec<_>>() })
}

fn data_url(url: &str) -> Option<(&str, &str)> {
    url.strip_prefix("data:")?.split_once(";base64,")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_yes_may_change_the_input_and_a_no_has_its_reason() {
        let yes = decision(&Reply::from(Decision::Accept).with("command", "touch b"));
        let expected =
            json!({ "decision": "allow", "session": false, "input": { "command": "touch b" } });
        assert_eq!(yes, expected);
        assert_eq!(decision(&Decision::AcceptForSession.into())["session"], true);
        let no = decision(&Reply::from(Decision::Decline).because("not now"));
        assert_eq!(
            no,
            json!({ "decision": "deny", "reason": "The user declined this (not now)." })
        );
        assert_eq!(decision(&Decision::Cancel.into())["decision"], "deny");
    }

    #[test]
    fn texts_and_images_become_content() {
        let output = ToolOutput::new().text("a").image("data:image/png;base64,AAAA");
        assert_eq!(
            content(output),
            json!({ "content": [
                { "type": "text", "text": "a" },
                { "type": "image", "mimeType": "image/png", "data": "AAAA" },
            ] })
        );
    }
}
