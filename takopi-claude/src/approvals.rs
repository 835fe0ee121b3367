//! What the agent asks in a run: approvals, questions, plans, calls of the host's tools.
//!
//! - A request is read into a typed question with all that a yes would grant. A field of a tool's input
//!   that is not known is marked as such, and never dropped.
//! - A yes passes the tool's input on as it was asked for, or as the handler changed it.
//! - "For the session" is a rule of takopi's own making, as narrow as the request, that lives with the
//!   process. The rules that Claude Code suggests may be permanent, and are never sent back.

mod question;
mod rule;

use std::path::PathBuf;
use std::sync::Arc;

use serde_json::{Map, Value, json};
use takopi_core::Decision;
use takopi_core::model::TakopiEvent;
use takopi_core::runner::{Desk, EngineRun, Outcome, Question, Reply, Settled, StoppedError};
use takopi_core::tools::HostTools;

use self::question::Asked;
use crate::control::ControlRequest;
use crate::tools;

/// Where the requests of one run are dealt with.
pub(crate) struct RequestHandler {
    run: EngineRun,
    tools: Arc<HostTools>,
    session: String,
    directory: PathBuf,
    desk: Desk<Ticket>,
}

/// What is needed to answer a request.
struct Ticket {
    request: ControlRequest,
    /// What is asked, unless it is the call of a tool.
    asked: Option<Asked>,
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

    /// Takes up a request. Returns the call that it is about, if a tool wants to be used.
    pub(crate) fn take(
        &mut self,
        request: ControlRequest,
        events: &mut Vec<TakopiEvent>,
    ) -> Option<String> {
        match request.subtype() {
            "can_use_tool" => {
                let asked = Asked::read(&request, &self.session, &self.directory);
                let call = asked.call.clone();
                let question = asked.request.clone();
                self.desk.ask(Ticket { request, asked: Some(asked) }, question, events);
                call
            }
            "mcp_message" => {
                match tools::call(&request, &self.tools, &self.session) {
                    Ok(call) => self.desk.call(Ticket { request, asked: None }, call),
                    Err(missing) => {
                        events.push(self.run.warning(missing.clone()));
                        tools::answer(request, Err(missing));
                    }
                }
                None
            }
            unknown => {
                let what = format!("declined: this version of takopi does not know `{unknown}`");
                events.push(self.run.warning(what));
                None
            }
        }
    }

    /// The process no longer asks.
    pub(crate) fn withdraw(&mut self, id: &str, events: &mut Vec<TakopiEvent>) {
        if let Some(ticket) = self.desk.withdraw(|ticket| ticket.request.id() == id, events) {
            ticket.request.forget();
        }
    }

    /// The next request that is settled. Never resolves while no request is open.
    pub(crate) async fn settled(&mut self) -> Settled {
        self.desk.settled().await
    }

    /// Answers a request that is settled.
    pub(crate) fn settle(
        &mut self,
        settled: Settled,
        events: &mut Vec<TakopiEvent>,
    ) -> Result<(), StoppedError> {
        match self.desk.settle(settled, events)? {
            Some((Ticket { request, asked: Some(asked) }, Outcome::Decided(reply))) => {
                request.answer(&response(&asked, &reply));
            }
            Some((Ticket { request, .. }, Outcome::Called(result))) => {
                tools::answer(request, result);
            }
            Some(_) | None => {}
        }
        Ok(())
    }

    /// The run is over: closes what is still open. What was not answered is declined.
    pub(crate) fn close(&mut self, events: &mut Vec<TakopiEvent>) {
        drop(self.desk.close(events));
    }
}

/// The response to a request to use a tool.
fn response(asked: &Asked, reply: &Reply) -> Value {
    if !reply.decision.is_yes() {
        let message = reply.why.as_deref().unwrap_or("The user declined this.");
        let mut response = json!({ "behavior": "deny", "message": message });
        if reply.decision == Decision::Cancel {
            response["interrupt"] = true.into();
        }
        return response;
    }
    let mut input = asked.input.clone();
    if matches!(asked.request.question, Question::Questions(_)) {
        let answers: Map<String, Value> = reply
            .content
            .iter()
            .map(|(question, answer)| (question.clone(), one_text(answer).into()))
            .collect();
        input.insert("answers".to_owned(), answers.into());
    } else {
        // What the handler changed.
        input.extend(reply.content.clone());
    }
    // A rule is for what was accepted, not for what was asked.
    let for_session = reply.decision == Decision::AcceptForSession;
    let rule = asked.session_rule(&input).filter(|_| for_session);
    let mut response = json!({ "behavior": "allow", "updatedInput": input });
    if let Some(rule) = rule {
        response["updatedPermissions"] = json!([{
            "type": "addRules",
            "rules": [rule],
            "behavior": "allow",
            "destination": "session",
        }]);
    }
    response
}

/// An answer of several texts as one.
fn one_text(answer: &Value) -> String {
    match answer {
        Value::String(text) => text.clone(),
        Value::Array(answers) => answers.iter().map(one_text).collect::<Vec<_>>().join(", "),
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    fn asked(tool: &str, input: &Value) -> Asked {
        let request = json!({
            "subtype": "can_use_tool", "tool_name": tool, "input": input, "tool_use_id": "t1",
            "permission_suggestions": [{
                "type": "addRules", "rules": [{ "toolName": "Bash", "ruleContent": "touch:*" }],
                "behavior": "allow", "destination": "localSettings",
            }],
        });
        Asked::from_json(&request.to_string(), "s", Path::new("/srv"))
    }

    #[test]
    fn a_yes_passes_the_input_on_as_asked_or_as_changed() {
        let input = json!({ "command": "touch a", "description": "d" });
        let yes = response(&asked("Bash", &input), &Decision::Accept.into());
        assert_eq!(yes, json!({ "behavior": "allow", "updatedInput": input }));
        let changed = Reply::from(Decision::Accept).with("command", "touch b");
        let yes = response(&asked("Bash", &input), &changed);
        assert_eq!(yes["updatedInput"], json!({ "command": "touch b", "description": "d" }));
    }

    #[test]
    fn for_the_session_is_a_narrow_rule_and_never_a_permanent_one() {
        let input = json!({ "command": "touch a" });
        let yes = response(&asked("Bash", &input), &Decision::AcceptForSession.into());
        assert_eq!(
            yes["updatedPermissions"],
            json!([{
                "type": "addRules", "behavior": "allow", "destination": "session",
                "rules": [{ "toolName": "Bash", "ruleContent": "touch a" }],
            }])
        );
    }

    #[test]
    fn a_rule_for_the_session_is_for_the_input_that_was_accepted() {
        let input = json!({ "command": "rm -r /srv" });
        let rule = |command: &str| {
            let reply = Reply::from(Decision::AcceptForSession).with("command", command);
            response(&asked("Bash", &input), &reply)["updatedPermissions"][0]["rules"].clone()
        };
        let changed = json!([{ "toolName": "Bash", "ruleContent": "rm -r /srv/old" }]);
        assert_eq!(rule("rm -r /srv/old"), changed);
        assert_eq!(rule("rm *"), Value::Null, "no rule can be written for it");
    }

    #[test]
    fn a_no_has_its_reason_and_may_end_the_turn() {
        let no = |reply: Reply| response(&asked("Bash", &json!({ "command": "x" })), &reply);
        let declined = no(Reply::from(Decision::Decline).because("not now"));
        assert_eq!(declined, json!({ "behavior": "deny", "message": "not now" }));
        let cancelled = no(Decision::Cancel.into());
        assert_eq!(cancelled["interrupt"], true);
    }

    #[test]
    fn answers_go_back_under_their_questions() {
        let input = json!({ "questions": [{
            "question": "Which?", "header": "H", "multiSelect": true,
            "options": [{ "label": "A", "description": "a" }, { "label": "B" }],
        }] });
        let asked = asked("AskUserQuestion", &input);
        assert!(matches!(&asked.request.question, Question::Questions(of) if of[0].multi));
        let reply = Reply::from(Decision::Accept).with("Which?", json!(["A", "B"]));
        let yes = response(&asked, &reply);
        assert_eq!(yes["updatedInput"]["answers"], json!({ "Which?": "A, B" }));
        assert_eq!(yes["updatedInput"]["questions"], input["questions"]);
    }
}
