//! From the lines of one run to takopi's events, and when the run is over.
//!
//! Pure: lines in, events out, no I/O and no clock.
//!
//! Promises:
//! - `Started` is emitted once, at the first line that confirms the session that was asked for. A process
//!   that opened another one never gives a token: see [`Translator::session_mismatch`].
//! - Lines of sub-agents never touch the answer or the end. Their tool calls are actions, and the
//!   detail `subagent` says whose.
//! - A call is one action, however often there is news of it; one that is open at the end is closed.
//! - A refused permission is shown once, also if nobody was asked and the run goes well.
//! - The run ends once: [`Translator::finish`] returns the end, and nothing is emitted behind it.

mod answer;
mod call;
mod calls;
mod diff;
mod ends;
mod limits;
mod lines;
mod notes;
mod plan;
mod stream;
#[cfg(test)]
mod tests;
mod usage;

use std::path::PathBuf;

use takopi_core::model::{
    Action, ActionEvent, ActionKind, Completed, Level, Phase, Reason, ResumeToken, Started,
    TakopiEvent,
};
use takopi_core::redact::redacted;

use crate::failure::{Fault, is_refused_login};
use crate::wire::{
    ApiRetry, Assistant, Block, Init, Message, Object, RateLimit, State, Status, TurnResult, User,
};
use crate::{CLAUDE, resume_codec};
use answer::{Answer, Cut, Remark};
use calls::Calls;
use ends::Ends;
use limits::Limits;
use notes::{Compacting, Labels, Retry};
use stream::Pieces;
use usage::Figures;

#[doc(hidden)]
pub use lines::translate_lines;

/// The action id of rate limits.
const LIMITS_ID: &str = "claude.rate_limits";

/// What a run is, before its first line.
#[derive(Debug, Clone)]
pub(crate) struct TurnSetup {
    /// What `Started` calls the engine.
    pub(crate) title: String,
    /// The session that was asked for: chosen by takopi, or resumed.
    pub(crate) session: String,
    /// Where the agent works.
    pub(crate) directory: PathBuf,
    /// The `uuid` of the message that begins the run.
    pub(crate) message_id: String,
    /// Whether session and process are new and have cost nothing.
    pub(crate) fresh: bool,
    /// Whether pieces of the answer are emitted.
    pub(crate) deltas: bool,
}

/// One run.
#[derive(Debug)]
pub(crate) struct Translator {
    setup: TurnSetup,
    ends: Ends,
    is_started: bool,
    is_finished: bool,
    mismatch: Option<String>,
    permission_mode: Option<String>,
    labels: Labels,
    turns: u32,
    answer: Answer,
    pieces: Pieces,
    calls: Calls,
    retry: Retry,
    compacting: Compacting,
    limits: Limits,
    figures: Figures,
    /// What Claude Code said last about an error.
    fault: Fault,
    /// A login that was refused and has not worked since.
    refused_login: Option<Fault>,
    /// How the last turn of the run ended.
    outcome: Option<Outcome>,
    /// How many actions got an id from us.
    named: u32,
}

/// How a turn ended.
#[derive(Debug)]
enum Outcome {
    /// Well; with the text in the result, for an answer of which no message was seen.
    Ok(Option<String>),
    Failed(Fault),
}

impl Translator {
    /// A run.
    pub(crate) fn new(setup: TurnSetup) -> Self {
        Self {
            calls: Calls::new(setup.directory.clone()),
            ends: Ends::new(setup.message_id.clone()),
            figures: Figures::new(setup.fresh),
            setup,
            is_started: false,
            is_finished: false,
            mismatch: None,
            permission_mode: None,
            labels: Labels::default(),
            turns: 0,
            answer: Answer::default(),
            pieces: Pieces::new(),
            retry: Retry::default(),
            compacting: Compacting::default(),
            limits: Limits::default(),
            fault: Fault::default(),
            refused_login: None,
            outcome: None,
            named: 0,
        }
    }

    /// A further message of ours was sent: the run is over only when results have named all of them.
    pub(crate) fn steered(&mut self, message_id: String) {
        self.ends.sent(message_id);
    }

    /// The process reports its state. Also learnt from the first such line.
    pub(crate) fn reports_state(&mut self) {
        self.ends.reports_state();
    }

    /// Somebody is asked about this call, and the driver shows it.
    pub(crate) fn asked(&mut self, tool_use_id: &str) {
        self.calls.asked(tool_use_id);
    }

    /// What `total_cost_usd` was before the run, if it is known.
    pub(crate) fn cost_before(&mut self, total_usd: f64) {
        self.figures.cost_before(total_usd);
    }

    /// What `total_cost_usd` was last: what comes before the next run.
    pub(crate) fn total_cost(&self) -> Option<f64> {
        self.figures.total_cost()
    }

    /// Whether the run is over. Lines behind that are not of this run.
    pub(crate) fn is_over(&self) -> bool {
        self.is_finished || self.ends.is_over()
    }

    /// Whether a tool runs that the agent waits for; a command in the background is none.
    pub(crate) fn tool_running(&self) -> bool {
        self.calls.is_running()
    }

    /// Whether the login was refused: to wait for the retries is of no use.
    pub(crate) fn authentication_failed(&self) -> bool {
        self.refused_login.is_some()
    }

    /// The session that the process opened, if it is not the one that was asked for.
    pub(crate) fn session_mismatch(&self) -> Option<&str> {
        self.mismatch.as_deref()
    }

    /// Translates one line. Returns whether it shows that the agent does something in this run: a notice, a label that
    /// is not known, and news of another run's call or message do not.
    pub(crate) fn message(&mut self, message: &Message, events: &mut Vec<TakopiEvent>) -> bool {
        if self.is_over() {
            return false;
        }
        match message {
            Message::Init(init) => self.init(init, events),
            Message::State(state) => {
                self.ends.state(state);
                return !matches!(state, State::Other(_));
            }
            Message::Assistant(assistant) => self.assistant(assistant, events),
            Message::User(user) => self.user(user, events),
            Message::Result(result) => self.result(result, events),
            Message::Stream(stream) => {
                if self.setup.deltas && !stream.is_nested {
                    self.pieces.stream(stream, events);
                }
            }
            Message::ApiRetry(retry) => self.api_retry(retry, events),
            Message::CompactBoundary(boundary) => {
                events.extend(self.compacting.boundary(boundary).map(TakopiEvent::from));
            }
            Message::ConversationReset { session } => self.check_session(session.as_deref()),
            Message::ControlRequest { subtype, request, .. } => {
                if subtype == "can_use_tool"
                    && let Some(id) = Object::of(request).text("tool_use_id")
                {
                    self.asked(&id);
                }
            }
            Message::TaskStarted(task) => return self.calls.task_started(task),
            Message::TaskProgress(task) => return self.calls.task_progress(task, events),
            Message::TaskUpdated(task) => {
                self.ends.task(task);
                return self.calls.has_task(task);
            }
            Message::TaskNotification(task) => {
                self.ends.task(task);
                return self.calls.task_ended(task, events);
            }
            Message::BackgroundTasks(tasks) => return self.ends.background(tasks),
            Message::ToolProgress(progress) => return self.calls.progress(progress, events),
            Message::PermissionDenied(denial) => return self.calls.denied(denial, events),
            Message::Status(status) => return self.status(status, events),
            Message::Lifecycle { uuid, state } => return self.ends.lifecycle(uuid, state),
            Message::Notice(text) => {
                events.push(notes::notice(self.new_id("notice"), text).into());
                return false;
            }
            Message::RateLimit(limit) => {
                self.rate_limit(limit, events);
                return false;
            }
            Message::UnreadableRequest { .. }
            | Message::ControlResponse { .. }
            | Message::ControlCancel { .. }
            | Message::KeepAlive => return false,
            Message::Other { kind } => {
                tracing::trace!(kind = %redacted(kind), "skipped a line");
                return false;
            }
        }
        true
    }

    /// Ends the run: closes what is open, and returns the end. That is how the last result has it if
    /// the run is over, and else `otherwise`; a login that was refused is the reason of an interrupted
    /// run. The answer so far, usage, cost, limits and session are added.
    pub(crate) fn finish(
        &mut self,
        otherwise: Completed,
        events: &mut Vec<TakopiEvent>,
    ) -> Completed {
        let is_over = self.is_over();
        if std::mem::replace(&mut self.is_finished, true) {
            return otherwise;
        }
        let outcome = self.outcome.take().filter(|_| is_over);
        let (mut completed, fallback) = match outcome {
            Some(Outcome::Ok(text)) => (Completed::success(CLAUDE, ""), text),
            Some(Outcome::Failed(fault)) => (failure(&fault), None),
            None => (otherwise, None),
        };
        if let Some(refused) = &self.refused_login
            && matches!(completed.reason, Some(Reason::Interrupted | Reason::EngineFailed))
        {
            completed = failure(refused);
        }
        if let Some(opened) = &self.mismatch
            && completed.ok
        {
            let error =
                format!("session {} was requested, but {opened} was opened", self.setup.session);
            completed = Completed::failure(CLAUDE, Reason::Protocol, error);
        }
        if completed.ok && !self.is_started {
            let error = "Claude Code never confirmed the session that was asked for";
            completed = Completed::failure(CLAUDE, Reason::Protocol, error);
        }
        self.pieces.close(events);
        self.calls.close(events);
        events.extend(self.retry.close(completed.ok).map(TakopiEvent::from));
        events.extend(self.compacting.close(completed.ok).map(TakopiEvent::from));
        let answer = self.answer.take().map(|remark| remark.text).or(fallback).unwrap_or_default();
        let rate_limits = self.limits.at_end(&completed);
        let session = self.is_started.then(|| self.token());
        completed
            .answer(answer)
            .resume(session)
            .usage(self.figures.usage())
            .cost_usd(self.figures.cost_usd())
            .rate_limits(rate_limits)
    }

    fn token(&self) -> ResumeToken {
        ResumeToken::new(CLAUDE, self.setup.session.as_str())
    }

    fn check_session(&mut self, session: Option<&str>) {
        let Some(session) = session else { return };
        let is_asked_for = resume_codec().token(session) == Some(self.token());
        if !is_asked_for && self.mismatch.is_none() {
            self.mismatch = Some(session.to_owned());
        }
    }

    fn init(&mut self, init: &Init, events: &mut Vec<TakopiEvent>) {
        self.check_session(init.session.as_deref());
        if self.mismatch.is_some() {
            return;
        }
        self.ends.begun(&init.message_ids);
        self.permission_mode.clone_from(&init.permission_mode);
        self.start(init, events);
        let action = Action::new(format!("turn_{}", self.turns), ActionKind::Turn, "turn started");
        self.turns += 1;
        events.push(ActionEvent::new(CLAUDE, action, Phase::Started).into());
    }

    /// The session is the one that was asked for.
    fn start(&mut self, init: &Init, events: &mut Vec<TakopiEvent>) {
        if std::mem::replace(&mut self.is_started, true) {
            return;
        }
        self.calls.is_in(init.cwd.as_deref());
        let mut started = Started::new(self.token()).title(self.setup.title.as_str());
        for (name, value) in [
            ("model", &init.model),
            ("cwd", &init.cwd),
            ("version", &init.version),
            ("permission_mode", &init.permission_mode),
        ] {
            if let Some(value) = value {
                started.meta.insert(name.to_owned(), value.as_str().into());
            }
        }
        events.push(started.into());
    }

    fn assistant(&mut self, line: &Assistant, events: &mut Vec<TakopiEvent>) {
        if line.is_synthetic {
            if line.nested.is_none() {
                self.synthetic(line);
            }
            return;
        }
        if line.nested.is_none() {
            self.refused_login = None;
            events.extend(self.retry.close(true).map(TakopiEvent::from));
        }
        for block in &line.blocks {
            match block {
                Block::Text { text, is_cited } if line.nested.is_none() => {
                    let earlier = self.answer.push(line.message_id.as_deref(), text, *is_cited);
                    self.remark(earlier, events);
                }
                Block::Thinking { text } if line.nested.is_none() => {
                    self.note("thinking", text, events);
                }
                Block::ToolUse { id, name, input, on_server } => {
                    if line.nested.is_none() && !on_server {
                        let remark = self.answer.take();
                        self.remark(remark, events);
                    }
                    let nested = line.nested.as_ref();
                    self.calls.start(id.as_deref(), name, input.as_deref(), nested, events);
                }
                Block::ServerResult { tool_use_id, error } => {
                    self.calls.served(tool_use_id.as_deref(), error.as_deref(), events);
                }
                Block::Text { .. } | Block::Thinking { .. } | Block::Other => {}
            }
        }
    }

    /// A message of Claude Code itself: an error, or what a local command printed, which the result
    /// has, too.
    fn synthetic(&mut self, line: &Assistant) {
        if line.error.is_none() && line.status.is_none() {
            return;
        }
        if line.error.as_deref().is_some_and(is_refused_login) {
            self.refused_login = Some(Fault::refused_login(line.status));
        }
        self.fault.error.clone_from(&line.error);
        self.fault.api_error.clone_from(&line.api_error);
        self.fault.status = line.status;
        line.text().unwrap_or_default().clone_into(&mut self.fault.text);
    }

    fn user(&mut self, line: &User, events: &mut Vec<TakopiEvent>) {
        if line.nested.is_none() {
            let interrupted = |text: &String| text.starts_with("[Request interrupted by user");
            self.fault.interrupted |= line.texts.iter().any(interrupted);
            if let Some(cut) = line.texts.iter().find_map(|text| Cut::of(text))
                && line.is_synthetic
            {
                self.answer.is_cut(cut);
            }
        }
        self.calls.returned(line, events);
    }

    fn result(&mut self, result: &TurnResult, events: &mut Vec<TakopiEvent>) {
        // One that failed is a failure already, with a better reason.
        if result.is_ok() {
            self.check_session(result.session.as_deref());
        }
        if !self.ends.result(result.message_ids.as_deref(), result.is_unasked) {
            // What a turn said that nobody asked for is not the answer.
            let remark = self.answer.take();
            self.remark(remark, events);
            self.figures.skip(result);
            return;
        }
        self.figures.add(result);
        if result.is_ok() && result.session.is_some() && self.mismatch.is_none() {
            // If no `init` could be read: the session must not be lost for that.
            self.start(&Init::default(), events);
        }
        for denial in &result.denials {
            self.calls.denied(denial, events);
        }
        let fault = std::mem::take(&mut self.fault);
        if let Some(structured) = result.structured.as_ref().filter(|_| result.is_ok()) {
            // What is said beside it does not follow the schema that was asked for.
            let remark = self.answer.take();
            self.remark(remark, events);
            self.answer.push(None, structured, false);
        }
        self.outcome = Some(if result.is_ok() {
            Outcome::Ok(result.text.clone())
        } else {
            Outcome::Failed(Fault::of_result(result, fault))
        });
    }

    fn api_retry(&mut self, retry: &ApiRetry, events: &mut Vec<TakopiEvent>) {
        if retry.error.as_deref().is_some_and(is_refused_login) {
            self.refused_login = Some(Fault::refused_login(retry.status));
        }
        events.push(self.retry.notice(retry).into());
    }

    fn rate_limit(&mut self, limit: &RateLimit, events: &mut Vec<TakopiEvent>) {
        if self.limits.report(limit) {
            let mut action = Action::new(LIMITS_ID, ActionKind::Telemetry, "rate limits");
            action.detail = limit.info.clone().into();
            let event = ActionEvent::new(CLAUDE, action, Phase::Completed);
            events.push(event.ok(true).level(Level::Debug).into());
        }
    }

    /// Returns whether the status is one that is known.
    fn status(&mut self, status: &Status, events: &mut Vec<TakopiEvent>) -> bool {
        events.extend(self.compacting.status(status).map(TakopiEvent::from));
        if let Some(mode) = &status.permission_mode
            && self.permission_mode.as_ref() != Some(mode)
        {
            self.permission_mode = Some(mode.clone());
            self.note("mode", &format!("permission mode: {mode}"), events);
        }
        match status.label.as_deref() {
            // Before each call of the model.
            None | Some("requesting" | "compacting") => true,
            Some(label) => {
                if self.labels.is_new(label) {
                    self.note("status", label, events);
                }
                false
            }
        }
    }

    /// Text that is not the answer.
    fn remark(&mut self, remark: Option<Remark>, events: &mut Vec<TakopiEvent>) {
        let Some(Remark { message, text }) = remark else { return };
        if self.pieces.has(message.as_deref()) {
            return;
        }
        let action = Action::new(self.new_id("text"), ActionKind::Note, text);
        let action = action.with("phase", "commentary");
        events.push(ActionEvent::new(CLAUDE, action, Phase::Completed).ok(true).into());
    }

    fn note(&mut self, what: &str, text: &str, events: &mut Vec<TakopiEvent>) {
        if !text.trim().is_empty() {
            let action = Action::new(self.new_id(what), ActionKind::Note, text);
            events.push(ActionEvent::new(CLAUDE, action, Phase::Completed).ok(true).into());
        }
    }

    /// An id for what Claude Code gave none.
    fn new_id(&mut self, what: &str) -> String {
        let id = format!("claude.{what}_{}", self.named);
        self.named += 1;
        id
    }
}

fn failure(fault: &Fault) -> Completed {
    let reason = fault.reason();
    let error = fault.error(&reason);
    Completed::failure(CLAUDE, reason, error)
}
