//! What the agent asks in a turn, and the answers.
//!
//! - A request is read into a typed question. A field that is not known is marked as such, and never dropped.
//! - An answer is one of the options that the agent offers: the first of the kind. A kind that is not offered is not
//!   invented.
//! - "For the session" never outlives the session. An option that is known to end with it is chosen; others may be
//!   permanent, so takopi chooses "once" and itself answers the very same request again while the process lives.
//! - A request that is left is answered `cancelled`: agents wait for an answer also after they were cancelled.

mod question;

use std::collections::HashSet;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use serde_json::{Value, json};
use takopi_core::model::{ResumeToken, TakopiEvent};
use takopi_core::rpc::{PeerRequest, RequestId};
use takopi_core::runner::{
    Desk, EngineRun, Excerpt, Outcome, Question, Settled, StoppedError, Unknown,
};
use takopi_core::{ApprovalRequest, Decision};

use crate::Agent;
use crate::client::PERMISSION;
use crate::wire::{CallUpdate, Permission, PermissionOption};

/// How much of a text is kept.
const TEXT_BYTES: usize = 64 * 1024;
/// How many requests are remembered as allowed for the session.
const ALLOWED: usize = 1024;

/// The requests that were allowed for the session, as they came.
pub(crate) type Allowed = Arc<Mutex<HashSet<String>>>;

/// Where the requests of one turn are dealt with.
pub(crate) struct RequestHandler {
    run: EngineRun,
    agent: Agent,
    session: ResumeToken,
    directory: PathBuf,
    allowed: Allowed,
    desk: Desk<Ticket>,
}

/// What is needed to answer a request.
struct Ticket {
    request: PeerRequest,
    call: Option<String>,
    options: Vec<PermissionOption>,
    /// What makes two requests the same; nothing for one that was not fully understood.
    same: Option<String>,
}

/// What follows from an answer.
pub(crate) enum Answered {
    Nothing,
    /// This call is not made.
    Declined(Option<String>),
    /// The turn is to be ended.
    EndTurn,
}

/// What a request is about.
pub(crate) struct About {
    pub(crate) call: CallUpdate,
    /// Whether another session makes the call, such as a sub-agent's.
    pub(crate) is_foreign: bool,
}

impl RequestHandler {
    pub(crate) fn new(
        run: EngineRun,
        agent: Agent,
        session: ResumeToken,
        directory: PathBuf,
        allowed: Allowed,
    ) -> Self {
        let desk = Desk::new(run.clone());
        Self { run, agent, session, directory, allowed, desk }
    }

    /// Takes up a request. Returns what it is about, if that can be read.
    pub(crate) fn take(
        &mut self,
        request: PeerRequest,
        events: &mut Vec<TakopiEvent>,
    ) -> Option<About> {
        let Some(permission) = Permission::read(request.params()) else {
            let raw = Excerpt::new(request.params().get(), TEXT_BYTES);
            let question = Question::Unknown(Unknown::new(PERMISSION, raw));
            let mut asked = self.approval(question);
            asked.decisions = vec![Decision::Decline, Decision::Cancel];
            let ticket = Ticket { request, call: None, options: Vec::new(), same: None };
            self.desk.ask(ticket, asked, events);
            return None;
        };
        let (asked, is_exact) = self.question(&permission);
        let is_foreign = asked.subagent.is_some();
        let same = Some(permission.same).filter(|same| is_exact && same.len() <= TEXT_BYTES);
        let once = choice(&self.agent, &permission.options, Decision::Accept);
        if let (Some(same), Some(once)) = (&same, once)
            && self.allowed.lock().unwrap_or_else(PoisonError::into_inner).contains(same)
        {
            let once = once.id.clone();
            request.answer(selected(&once));
            return Some(About { call: permission.call, is_foreign });
        }
        let call = permission.call;
        let ticket =
            Ticket { request, call: Some(call.id.clone()), options: permission.options, same };
        self.desk.ask(ticket, asked, events);
        Some(About { call, is_foreign })
    }

    /// The agent no longer asks.
    pub(crate) fn withdraw(&mut self, id: &RequestId, events: &mut Vec<TakopiEvent>) {
        if let Some(ticket) = self.desk.withdraw(|ticket| ticket.request.id() == id, events) {
            // The protocol wants an answer all the same.
            ticket.request.decline();
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
    ) -> Result<Answered, StoppedError> {
        let Some((ticket, Outcome::Decided(reply))) = self.desk.settle(settled, events)? else {
            return Ok(Answered::Nothing);
        };
        let Ticket { request, call, options, same } = ticket;
        if reply.decision == Decision::Cancel {
            request.decline();
            return Ok(Answered::EndTurn);
        }
        let Some(option) = choice(&self.agent, &options, reply.decision) else {
            request.decline();
            return Ok(Answered::Declined(call));
        };
        request.answer(selected(&option.id));
        if !reply.decision.is_yes() {
            return Ok(Answered::Declined(call));
        }
        if reply.decision == Decision::AcceptForSession
            && let Some(same) = same
        {
            let mut allowed = self.allowed.lock().unwrap_or_else(PoisonError::into_inner);
            if allowed.len() < ALLOWED {
                allowed.insert(same);
            }
        }
        Ok(Answered::Nothing)
    }

    /// The turn is over, or is being cancelled: closes what is still open. Dropped, a request is answered `cancelled`.
    pub(crate) fn close(&mut self, events: &mut Vec<TakopiEvent>) {
        drop(self.desk.close(events));
    }

    fn approval(&self, question: Question) -> ApprovalRequest {
        let mut request = ApprovalRequest::new(self.run.engine(), question, self.directory.clone());
        request.session = Some(self.session.clone());
        request
    }

    /// The question, and whether it shows all of what is asked.
    fn question(&self, permission: &Permission) -> (ApprovalRequest, bool) {
        let Permission { session, options, .. } = permission;
        let (question, unrecognized) = question::question(permission, &self.directory);
        let reason = question::reason(permission, &question);
        let mut request = self.approval(question);
        request.subagent = (*session != self.session.value).then(|| session.clone());
        request.reason = Some(reason);
        request.unrecognized = unrecognized;
        let is_exact = request.is_understood() && request.is_whole();
        let offers = |decision| choice(&self.agent, options, decision).is_some();
        let can_remember = is_exact || session_option(&self.agent, options).is_some();
        request.decisions = Decision::ALL
            .into_iter()
            .filter(|decision| match decision {
                Decision::Accept => offers(Decision::Accept),
                Decision::AcceptForSession => can_remember && offers(Decision::AcceptForSession),
                // A no is always possible.
                _ => true,
            })
            .collect();
        (request, is_exact)
    }
}

/// The option that stands for a decision.
fn choice<'a>(
    agent: &Agent,
    options: &'a [PermissionOption],
    decision: Decision,
) -> Option<&'a PermissionOption> {
    let first = |kind: &str| options.iter().find(|option| option.kind == kind);
    match decision {
        Decision::Accept => first("allow_once"),
        Decision::AcceptForSession => {
            session_option(agent, options).or_else(|| first("allow_once"))
        }
        Decision::Decline => first("reject_once"),
        // Answered `cancelled`: nothing is done, and most agents end the turn.
        _ => None,
    }
}

/// The option that is known to last for the session.
fn session_option<'a>(
    agent: &Agent,
    options: &'a [PermissionOption],
) -> Option<&'a PermissionOption> {
    let known = agent.quirks.session_options;
    options.iter().find(|option| option.kind == "allow_always" && known.contains(&&*option.id))
}

fn selected(option: &str) -> Value {
    json!({ "outcome": { "outcome": "selected", "optionId": option } })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_option_of_the_kind_is_chosen_and_none_is_invented() {
        let option = |id: &str, kind: &str| PermissionOption {
            id: id.to_owned(),
            name: id.to_owned(),
            kind: kind.to_owned(),
        };
        let qwen = Agent::preset("qwen").unwrap();
        let options = [
            option("proceed_always_project", "allow_always"),
            option("proceed_once", "allow_once"),
            option("proceed_once_and_switch", "allow_once"),
            option("cancel", "reject_once"),
        ];
        let chosen = |agent: &Agent, options: &[PermissionOption], decision| {
            choice(agent, options, decision).map(|option| option.id.clone())
        };
        assert_eq!(chosen(&qwen, &options, Decision::Accept).as_deref(), Some("proceed_once"));
        assert_eq!(chosen(&qwen, &options, Decision::Decline).as_deref(), Some("cancel"));
        // What qwen offers beyond once is permanent.
        let session = chosen(&qwen, &options, Decision::AcceptForSession);
        assert_eq!(session.as_deref(), Some("proceed_once"));
        let gemini = Agent::preset("gemini").unwrap();
        let always =
            [option("proceed_always", "allow_always"), option("proceed_once", "allow_once")];
        let session = chosen(&gemini, &always, Decision::AcceptForSession);
        assert_eq!(session.as_deref(), Some("proceed_always"));
        assert_eq!(chosen(&gemini, &always, Decision::Decline), None);
        assert_eq!(chosen(&gemini, &[], Decision::Accept), None);
    }
}
