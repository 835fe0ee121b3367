//! The state machine from Codex's messages to takopi's events.
//!
//! Pure, but for one look at the clock when a usage limit ended the run. Each transport reads its own lines, and calls the method that is named after what happened.
//! Promises: one `Started` for each session that is named (more than one breaks the contract), at most
//! one `Completed`, and nothing behind that; an item that is
//! still open at the end of its turn is closed as unfinished before it; what comes late is ignored.

use std::borrow::Cow;

use takopi_core::model::{
    Action, ActionEvent, ActionKind, Completed, Detail, Phase, RateLimits, ResumeToken, Started,
    TakopiEvent, Usage,
};
use takopi_core::paths::Directory;

use super::answer::Answer;
use super::describe::{Shown, not_blank, show};
use super::item::{Body, Item};
use super::labels::MessagePhase;
use super::open::OpenActions;
use super::reconnect::{Notice, Reconnect};
use crate::failure::Fault;
use crate::{CODEX, rates, resume_codec};

/// What is known of one run.
#[derive(Debug)]
pub(crate) struct Translation {
    title: String,
    directory: Directory,
    session: Option<ResumeToken>,
    turns: u32,
    in_turn: bool,
    answer: Answer,
    /// Items that were started and not completed, in their order.
    open: OpenActions,
    reconnect: Reconnect,
    /// Whether no message came behind the last tool that was begun.
    tool_running: bool,
    /// The limits of the account, as they were reported last.
    rate_limits: Option<RateLimits>,
    /// How many actions got an id from us.
    named: u32,
    over: bool,
}

impl Translation {
    /// A run in a directory; `title` is what `Started` calls the engine.
    pub(crate) fn new(title: impl Into<String>, directory: Directory) -> Self {
        Self {
            title: title.into(),
            directory,
            session: None,
            turns: 0,
            in_turn: false,
            answer: Answer::default(),
            open: OpenActions::default(),
            reconnect: Reconnect::default(),
            tool_running: true,
            rate_limits: None,
            named: 0,
            over: false,
        }
    }

    /// The session, once Codex has named it.
    pub(crate) fn session(&self) -> Option<&ResumeToken> {
        self.session.as_ref()
    }

    /// Whether a turn was started and has not ended.
    pub(crate) fn in_turn(&self) -> bool {
        self.in_turn
    }

    /// The answer so far; an empty one is an answer too.
    pub(crate) fn answer(&self) -> Option<&str> {
        self.answer.get()
    }

    /// Whether a tool may be running, also where no event shows it: codex never completes a
    /// command that went to the background, but a message shows that it no longer waits for it.
    pub(crate) fn tool_running(&self) -> bool {
        self.tool_running
    }

    /// Whether `Completed` was emitted.
    pub(crate) fn is_over(&self) -> bool {
        self.over
    }

    /// Codex named the session.
    pub(crate) fn thread_started(&mut self, id: &str, events: &mut Vec<TakopiEvent>) {
        // An id that is none, and a second session, are the contract's to refuse: it ends the run.
        let token = resume_codec().token(id).unwrap_or_else(|| ResumeToken::new(CODEX, id));
        if self.over || self.session.as_ref() == Some(&token) {
            return;
        }
        self.session.get_or_insert_with(|| token.clone());
        events.push(Started::new(token).title(self.title.as_str()).into());
    }

    /// A turn began.
    pub(crate) fn turn_started(&mut self, events: &mut Vec<TakopiEvent>) {
        if self.over {
            return;
        }
        let id = format!("turn_{}", self.turns);
        self.turns += 1;
        self.in_turn = true;
        let action = Action::new(id, ActionKind::Turn, "turn started");
        events.push(ActionEvent::new(CODEX, action, Phase::Started).into());
    }

    /// Something about an item.
    pub(crate) fn item(&mut self, phase: Phase, item: Item<'_>, events: &mut Vec<TakopiEvent>) {
        if self.over {
            return;
        }
        if self.in_turn {
            events.extend(self.reconnect.close(true).map(TakopiEvent::from));
        }
        let shown = match item.body {
            Body::AgentMessage { text, phase: Some(MessagePhase::Commentary) } => not_blank(text)
                .map(|text| {
                    Shown::note(text).details(Detail::from_static(r#"{"phase":"commentary"}"#))
                }),
            Body::AgentMessage { text, phase: message_phase } => {
                if phase == Phase::Completed {
                    self.tool_running = false;
                    self.answer.record(text, message_phase);
                }
                None
            }
            Body::Error { message } => {
                if phase == Phase::Completed {
                    let id = self.id_of(item.id);
                    let title = message.and_then(not_blank).unwrap_or(Cow::Borrowed("error"));
                    events.push(ActionEvent::warning(CODEX, id, title).into());
                }
                return;
            }
            body => show(body, &self.directory),
        };
        if let Some(shown) = shown {
            let id = self.id_of(item.id);
            events.push(self.act(id, phase, shown).into());
        }
    }

    /// Trouble with the model's stream: a notice that Codex reconnects, or a warning.
    pub(crate) fn stream_error(&mut self, fault: &Fault<'_>, events: &mut Vec<TakopiEvent>) {
        if self.over {
            return;
        }
        match Notice::parse(fault.message(), fault.details()) {
            Some(notice) => events.push(self.reconnect.notice(&notice).into()),
            None => self.warning(fault.text(), events),
        }
    }

    /// A warning that is no item.
    pub(crate) fn warning(&mut self, title: impl Into<String>, events: &mut Vec<TakopiEvent>) {
        if !self.over {
            let id = self.new_id("warning");
            events.push(ActionEvent::warning(CODEX, id, title).into());
        }
    }

    /// The limits of the account were reported.
    pub(crate) fn rate_limits(&mut self, rate_limits: RateLimits) {
        self.rate_limits = Some(rate_limits);
    }

    /// The turn went well.
    pub(crate) fn turn_completed(&mut self, usage: Option<Usage>, events: &mut Vec<TakopiEvent>) {
        self.finish(Completed::success(CODEX, "").usage(usage), events);
    }

    /// The turn did not go well.
    pub(crate) fn turn_failed(&mut self, fault: &Fault<'_>, events: &mut Vec<TakopiEvent>) {
        let reason = fault.reason();
        let error = fault.error(&reason);
        self.finish(Completed::failure(CODEX, reason, error), events);
    }

    /// The turn is over, and another one follows in the same run: closes what is open. What it answered becomes a note if
    /// that is wanted.
    pub(crate) fn turn_ended(&mut self, shows_answer: bool, events: &mut Vec<TakopiEvent>) {
        events.extend(self.open.drain().map(|action| unfinished(action).into()));
        self.tool_running = false;
        let answer = self.answer.take().filter(|answer| shows_answer && !answer.trim().is_empty());
        if let Some(answer) = answer {
            let id = self.new_id("answer");
            events.push(self.act(id, Phase::Completed, Shown::note(answer)).into());
        }
    }

    /// The run ends in the middle of a message: this is its text.
    pub(crate) fn answer_so_far(&mut self, text: String) {
        self.answer.record(text.into(), None);
    }

    /// The run is over: closes what is open, and adds the answer so far and the session.
    pub(crate) fn finish(&mut self, completed: Completed, events: &mut Vec<TakopiEvent>) {
        if self.over {
            return;
        }
        self.over = true;
        events.extend(self.open.drain().map(|action| unfinished(action).into()));
        if self.in_turn {
            events.extend(self.reconnect.close(completed.ok).map(TakopiEvent::from));
        }
        self.in_turn = false;
        let answer = self.answer.take().unwrap_or_default();
        let rate_limits = rates::at_end(&completed, self.rate_limits.take());
        let completed = completed.answer(answer).resume(self.session.clone());
        events.push(completed.rate_limits(rate_limits).into());
    }

    /// The event about an item, which is remembered while it is open.
    fn act(&mut self, id: String, phase: Phase, shown: Shown) -> ActionEvent {
        let mut action = Action::new(id, shown.kind, shown.title);
        action.detail = shown.detail;
        match phase {
            Phase::Completed => self.open.remove(&action.id),
            Phase::Started | Phase::Updated => self.open.put(&action),
        }
        let mut event = ActionEvent::new(CODEX, action, phase);
        self.tool_running |= phase == Phase::Started && event.action.kind.is_tool();
        if phase == Phase::Completed {
            event.ok = Some(shown.ok);
            event.message = shown.message;
        }
        event
    }

    fn id_of(&mut self, id: Option<Cow<'_, str>>) -> String {
        id.and_then(not_blank).map_or_else(|| self.new_id("item"), Cow::into_owned)
    }

    /// An id for what Codex gave none.
    fn new_id(&mut self, what: &str) -> String {
        let id = format!("codex.{what}_{}", self.named);
        self.named += 1;
        id
    }
}

fn unfinished(action: Action) -> ActionEvent {
    let action = action.with("status", "unfinished");
    ActionEvent::new(CODEX, action, Phase::Completed).message("unfinished")
}
