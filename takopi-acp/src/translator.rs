//! From the updates of one turn to takopi's events, and how the turn ended.
//!
//! Pure: updates in, events out, no I/O and no clock.
//!
//! Promises:
//! - a call is one action, however often and in whatever order there is news of it; one that is open at the end is closed;
//! - the answer is the last message of the turn; what was said before a call or another message is a note;
//! - text that is not the model's never is the answer: an agent that marks the model's text has its own shown as warnings,
//!   and an error of its own at the end of the turn makes the run fail;
//! - `end_turn` with neither text nor a call is a failure, and so is every other end.

mod call;
mod calls;
mod lines;
mod messages;
mod plan;
#[cfg(test)]
mod tests;

use std::path::PathBuf;

use serde_json::json;
use takopi_core::model::{
    Action, ActionEvent, ActionKind, Completed, Level, Phase, Reason, TakopiEvent, Usage,
    UsageScope,
};
use takopi_core::redact::{redact, redacted};
use takopi_core::rpc::ResponseError;
use takopi_core::runner::RunError;

use self::calls::Calls;
use self::messages::Messages;
use self::plan::Plan;
use crate::wire::{CallUpdate, PromptReply, Tokens, Update};
use crate::{Agent, failure};

#[doc(hidden)]
pub use lines::translate_lines;

/// What a turn is, before its first update.
#[derive(Debug, Clone)]
pub(crate) struct TurnSetup {
    pub(crate) agent: Agent,
    /// Where the agent works.
    pub(crate) directory: PathBuf,
    /// Whether the agent marks the model's text with ids.
    pub(crate) uses_ids: bool,
    /// Whether pieces of the answer are emitted.
    pub(crate) deltas: bool,
}

/// One turn.
#[derive(Debug)]
pub(crate) struct Translator {
    setup: TurnSetup,
    messages: Messages,
    calls: Calls,
    plan: Plan,
    /// The agent tries to reach its model.
    is_retrying: bool,
    /// Figures of single calls of the model, for agents that report those.
    tokens: Option<Tokens>,
    outcome: Option<Result<PromptReply, RunError>>,
    was_declined: bool,
    /// How many actions got an id from us.
    named: u32,
}

impl Translator {
    pub(crate) fn new(setup: TurnSetup) -> Self {
        let engine = setup.agent.id().clone();
        Self {
            messages: Messages::new(engine.clone(), setup.uses_ids, setup.deltas),
            calls: Calls::new(engine.clone(), &setup.directory),
            plan: Plan::new(engine),
            setup,
            is_retrying: false,
            tokens: None,
            outcome: None,
            was_declined: false,
            named: 0,
        }
    }

    /// Whether the turn is over.
    pub(crate) fn is_over(&self) -> bool {
        self.outcome.is_some()
    }

    /// Whether a tool runs that the agent waits for.
    pub(crate) fn tool_running(&self) -> bool {
        self.calls.is_running()
    }

    /// Whether the agent says the same over and over: it would not end by itself.
    pub(crate) fn is_repeating(&self) -> bool {
        self.messages.is_repeating()
    }

    /// Translates one update.
    pub(crate) fn update(&mut self, update: &Update, events: &mut Vec<TakopiEvent>) {
        if self.is_over() {
            return;
        }
        let is_work = !matches!(
            update,
            Update::Retry { .. } | Update::Mode(_) | Update::Other(_) | Update::Notice { .. }
        );
        if is_work {
            self.reconnected(events);
        }
        match update {
            Update::Message { id, text, tokens } => {
                if let Some(tokens) = *tokens {
                    self.tokens.get_or_insert_default().add(tokens);
                }
                self.messages.piece(id.as_deref(), text, events);
            }
            Update::Thought { id, text } => self.messages.thought(id.as_deref(), text, events),
            Update::Call(call) => {
                self.messages.interrupted(events);
                self.calls.update(call, events);
            }
            Update::Plan(entries) => self.plan.update(entries, events),
            Update::Notice { severity, text } => self.notice(severity.as_deref(), text, events),
            Update::Retry { message, details } => self.retry(message, details.as_deref(), events),
            // It decides whether the process is used again.
            Update::Mode(_) => {}
            Update::Other(kind) => {
                tracing::trace!(kind = %redacted(kind), "an update without an event");
            }
        }
    }

    /// Somebody is asked about a call, of this session or a foreign one. It may be the first news of it.
    pub(crate) fn asked(
        &mut self,
        call: &CallUpdate,
        is_foreign: bool,
        events: &mut Vec<TakopiEvent>,
    ) {
        self.reconnected(events);
        self.messages.interrupted(events);
        self.calls.asked(call, is_foreign, events);
    }

    /// A call was not approved.
    pub(crate) fn declined(&mut self, call: &str) {
        self.was_declined = true;
        self.calls.declined(call);
    }

    /// The response to the prompt came: the turn is over.
    pub(crate) fn ended(&mut self, reply: Result<PromptReply, ResponseError>) {
        self.outcome = Some(reply.map_err(|error| match error {
            ResponseError::Refused(error) => failure::of_prompt(&self.setup.agent, &error),
            _ => RunError::new(Reason::Protocol, "the end of the turn was too long to be read"),
        }));
    }

    /// The end of the run; `otherwise` if the turn did not end by itself.
    pub(crate) fn finish(
        &mut self,
        otherwise: Completed,
        events: &mut Vec<TakopiEvent>,
    ) -> Completed {
        self.reconnected(events);
        let had_calls = self.calls.any();
        self.calls.close(events);
        self.plan.close(events);
        let (answer, own) = self.messages.close(events);
        let engine = self.setup.agent.id().clone();
        let completed = match self.outcome.take() {
            None => otherwise,
            Some(Err(RunError { reason, message, .. })) => {
                Completed::failure(engine, reason, message)
            }
            Some(Ok(reply)) => {
                let usage = self.usage(&reply);
                let end = match self.verdict(&reply, &answer, own.as_deref(), had_calls) {
                    None => Completed::success(engine, String::new()),
                    Some(RunError { reason, message, .. }) => {
                        Completed::failure(engine, reason, message)
                    }
                };
                end.usage(usage)
            }
        };
        completed.answer(answer)
    }

    /// Why an end is a failure, if it is one.
    fn verdict(
        &self,
        reply: &PromptReply,
        answer: &str,
        own: Option<&str>,
        had_calls: bool,
    ) -> Option<RunError> {
        let agent = &self.setup.agent;
        let failed = |error: String| Some(RunError::new(Reason::EngineFailed, error));
        match reply.stop_reason.as_str() {
            "end_turn" if own.is_some() => own.map(|text| failure::of_text(agent, text)),
            "end_turn" if answer.trim().is_empty() && !had_calls => {
                failed(format!("{} ended the turn without an answer", agent.title()))
            }
            "end_turn" => None,
            "cancelled" if self.was_declined => failed(format!(
                "{} ended the turn because a request of it was declined",
                agent.title()
            )),
            "cancelled" => failed(format!("{} cancelled the turn by itself", agent.title())),
            "" => {
                let error = format!("{} ended the turn without a reason", agent.title());
                Some(RunError::new(Reason::Protocol, error))
            }
            "max_tokens" => {
                failed("the answer was cut off: the model's limit of tokens".to_owned())
            }
            other => failed(format!("{} ended the turn: {other}", agent.title())),
        }
    }

    fn usage(&self, reply: &PromptReply) -> Option<Usage> {
        let tokens = reply.tokens.or(self.tokens)?;
        let mut usage = Usage::default();
        usage.input_tokens = tokens.input;
        usage.cached_input_tokens = tokens.cached;
        usage.output_tokens = tokens.output;
        usage.reasoning_output_tokens = tokens.reasoning;
        let of_last_call = self.setup.agent.quirks.usage_of_last_call;
        usage.scope = if of_last_call { UsageScope::LastCall } else { UsageScope::Turn };
        Some(usage)
    }

    fn notice(&mut self, severity: Option<&str>, text: &str, events: &mut Vec<TakopiEvent>) {
        if text.trim().is_empty() {
            return;
        }
        let engine = self.setup.agent.id().clone();
        let id = self.new_id("notice");
        if matches!(severity, Some("info" | "debug")) {
            let action = Action::new(id, ActionKind::Note, redact(text));
            let event = ActionEvent::new(engine, action, Phase::Completed).ok(true);
            events.push(event.level(Level::Info).into());
        } else {
            events.push(ActionEvent::warning(engine, id, text).into());
        }
    }

    fn retry(&mut self, message: &str, details: Option<&str>, events: &mut Vec<TakopiEvent>) {
        let phase = if self.is_retrying { Phase::Updated } else { Phase::Started };
        self.is_retrying = true;
        let mut action = self.retrying(&redact(message));
        action.detail.insert("reason", json!(details));
        let event = ActionEvent::new(self.setup.agent.id().clone(), action, phase);
        events.push(event.level(Level::Info).into());
    }

    /// The agent goes on: its model was reached, or the turn is over.
    fn reconnected(&mut self, events: &mut Vec<TakopiEvent>) {
        if std::mem::take(&mut self.is_retrying) {
            let action = self.retrying("reconnected");
            let event = ActionEvent::new(self.setup.agent.id().clone(), action, Phase::Completed);
            events.push(event.ok(true).into());
        }
    }

    fn retrying(&self, title: &str) -> Action {
        Action::new(format!("{}.reconnect", self.setup.agent.id()), ActionKind::Note, title)
    }

    fn new_id(&mut self, what: &str) -> String {
        let id = format!("{}.{what}_{}", self.setup.agent.id(), self.named);
        self.named += 1;
        id
    }
}
