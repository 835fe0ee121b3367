//! From an app-server's notifications about a turn to takopi's events.
//!
//! Pure: notifications in, events out, no I/O and no clock. Items, errors and ends go through the
//! translation both transports share. Messages are streamed for runs that ask for it, each piece as it
//! came; no text that was streamed is emitted again as a note. The output and the progress of tools are
//! gathered and emitted once a batch, as `updated` events, by [`TurnTranslator::flush`]. How often that
//! is depends on how fast the consumer reads: progress is coalesced, items are not.

use std::borrow::Cow;

use serde_json::Value;
use serde_json::value::RawValue;
use takopi_core::model::{
    Action, ActionEvent, ActionKind, AnswerPieces, Completed, Level, Phase, Reason, TakopiEvent,
};
use takopi_core::paths::Directory;

use super::notification::{Kind, TurnEnd};
use super::streams::{Stream, Streams};
use super::usage::TurnUsage;
use crate::common::{Body, Item, MessagePhase, Step, Translation};
use crate::failure::Fault;
use crate::{CODEX, rates};

/// Under this id the plan of a turn is shown.
const PLAN_ID: &str = "codex.plan";
/// The action id of rate limits.
const LIMITS_ID: &str = "codex.rate_limits";

/// One turn.
#[derive(Debug)]
pub(super) struct TurnTranslator {
    translation: Translation,
    streams: Streams,
    /// The messages in pieces, if the run asks for them.
    pieces: Option<AnswerPieces>,
    /// Whether the last message that may be the answer came in pieces.
    streamed: bool,
    /// The message that is known to be commentary from its start: it is not streamed.
    commentary: Option<String>,
    /// What is written of a message that is not complete: the answer so far, if the turn ends now.
    unfinished: String,
    usage: TurnUsage,
    limits: Option<String>,
    plan: Option<Vec<Step<'static>>>,
}

impl TurnTranslator {
    /// A turn in a directory; `fresh` if the thread is new and has used nothing.
    pub(super) fn new(title: &str, directory: Directory, fresh: bool) -> Self {
        Self {
            translation: Translation::new(title, directory),
            streams: Streams::default(),
            pieces: None,
            streamed: false,
            commentary: None,
            unfinished: String::new(),
            usage: TurnUsage::new(fresh),
            limits: None,
            plan: None,
        }
    }

    /// Emits messages in pieces while they are written.
    pub(super) fn deltas(mut self, deltas: bool) -> Self {
        self.pieces = deltas.then(|| AnswerPieces::new(CODEX));
        self
    }

    /// The turn has this id, and its thread's last figures before it were these.
    pub(super) fn named(&mut self, turn: &str, usage_before: Option<&RawValue>) {
        self.usage.named(turn, usage_before);
    }

    /// The turn is over, and the run is not: what it answered is shown, unless it was streamed.
    pub(super) fn turn_ended(&mut self, events: &mut Vec<TakopiEvent>) {
        self.close_open(events);
        self.usage.turn_ended();
        let shows_answer = !std::mem::take(&mut self.streamed);
        self.translation.turn_ended(shows_answer, events);
    }

    /// The run goes on with this turn: what was seen so far belongs to the same run.
    pub(super) fn goes_on(&mut self, turn: &str) {
        self.usage.goes_on(turn);
    }

    /// The server confirmed the thread.
    pub(super) fn thread_started(&mut self, id: &str, events: &mut Vec<TakopiEvent>) {
        self.translation.thread_started(id, events);
    }

    /// Whether a tool may be at work.
    pub(super) fn tool_running(&self) -> bool {
        self.translation.tool_running()
    }

    /// Whether `Completed` was emitted.
    pub(super) fn is_over(&self) -> bool {
        self.translation.is_over()
    }

    /// Ends the turn from outside.
    pub(super) fn finish(&mut self, completed: Completed, events: &mut Vec<TakopiEvent>) {
        self.close_open(events);
        if !completed.ok && !self.unfinished.trim().is_empty() {
            self.translation.answer_so_far(std::mem::take(&mut self.unfinished));
        }
        self.translation.finish(completed, events);
    }

    /// Translates one notification.
    pub(super) fn notification(&mut self, kind: Kind<'_>, events: &mut Vec<TakopiEvent>) {
        if self.is_over() {
            return;
        }
        match kind {
            Kind::TurnStarted => self.translation.turn_started(events),
            Kind::ItemStarted(item) => self.item(Phase::Started, item, events),
            Kind::ItemCompleted(item) => self.item(Phase::Completed, item, events),
            Kind::Text { stream: Stream::Message, item, text } => {
                let is_commentary = self.commentary.as_deref() == Some(&*item);
                if !is_commentary {
                    self.unfinished.push_str(&text);
                }
                if let Some(pieces) = self.pieces.as_mut().filter(|_| !is_commentary) {
                    pieces.piece(&item, &text, events);
                }
            }
            Kind::Text { stream, item, text } => self.streams.add(stream, item, &text),
            Kind::Plan(steps) => self.plan(steps, events),
            Kind::TokenUsage { turn, usage } => self.usage.update(turn.as_deref(), usage),
            Kind::RateLimits(params) => self.rate_limits(params, events),
            Kind::Error(fault) => self.translation.stream_error(&fault, events),
            Kind::Warning(text) => {
                let text = text.unwrap_or("the app-server warns, but not of what".into());
                self.translation.warning(text, events);
            }
            Kind::TurnCompleted(end) => self.completed(end, events),
            Kind::RequestResolved(_) | Kind::OtherText | Kind::Other => {}
        }
    }

    /// Says what was streamed since the last time.
    pub(super) fn flush(&mut self, events: &mut Vec<TakopiEvent>) {
        if !self.is_over() {
            self.streams.flush(events);
        }
    }

    fn item(&mut self, phase: Phase, mut item: Item<'_>, events: &mut Vec<TakopiEvent>) {
        match &item.body {
            Body::AgentMessage { text, .. }
                if phase == Phase::Completed && is_turn_aborted(text) =>
            {
                return self.finish(interrupted(), events);
            }
            Body::UserMessage => {}
            _ => self.usage.agent_seen(),
        }
        let id = item.id.clone().unwrap_or_default();
        if matches!(item.body, Body::AgentMessage { .. }) {
            // Another one begins, or this one is complete.
            self.unfinished.clear();
        }
        match &mut item.body {
            // exec prints these when they are complete; here their text may be streamed before.
            Body::Thought { .. } if phase == Phase::Started => return,
            Body::AgentMessage { phase: message_phase, .. } if phase == Phase::Started => {
                if *message_phase == Some(MessagePhase::Commentary) {
                    self.commentary = Some(id.into_owned());
                }
                return;
            }
            Body::AgentMessage { text, phase: message_phase } => {
                let is_commentary = *message_phase == Some(MessagePhase::Commentary);
                let pieces = self.pieces.as_mut().filter(|pieces| pieces.has(&id));
                if !is_commentary {
                    self.streamed = pieces.is_some();
                }
                if let Some(pieces) = pieces {
                    pieces.complete(&id, text, events);
                    if is_commentary {
                        // It was streamed before it was known to be commentary: no note repeats it.
                        *text = Cow::Borrowed("");
                    }
                }
            }
            _ => {}
        }
        let before = events.len();
        self.translation.item(phase, item, events);
        if phase == Phase::Completed {
            self.streams.close(&id);
            return;
        }
        for event in &events[before..] {
            if let TakopiEvent::Action(event) = event {
                self.streams.opened(&event.action);
            }
        }
    }

    fn plan(&mut self, steps: Vec<Step<'_>>, events: &mut Vec<TakopiEvent>) {
        let owned = |step: Step<'_>| Step { text: step.text.into_owned().into(), done: step.done };
        let steps: Vec<Step<'static>> = steps.into_iter().map(owned).collect();
        let phase = if self.plan.is_some() { Phase::Updated } else { Phase::Started };
        self.todo(phase, steps.clone(), events);
        self.plan = Some(steps);
    }

    fn todo(&mut self, phase: Phase, steps: Vec<Step<'_>>, events: &mut Vec<TakopiEvent>) {
        let item = Item { id: Some(PLAN_ID.into()), body: Body::Todo { steps } };
        self.translation.item(phase, item, events);
    }

    /// The plan and the message that is written end with their turn, as they stand.
    fn close_open(&mut self, events: &mut Vec<TakopiEvent>) {
        if let Some(pieces) = &mut self.pieces {
            pieces.close(events);
        }
        if let Some(steps) = self.plan.take() {
            self.todo(Phase::Completed, steps, events);
        }
    }

    fn rate_limits(&mut self, params: &str, events: &mut Vec<TakopiEvent>) {
        let Ok(params) = serde_json::from_str::<Value>(params) else { return };
        let Some(Value::Object(limits)) = params.get("rateLimits") else { return };
        let known = ["primary", "secondary", "credits"];
        if known.iter().all(|key| limits.get(*key).is_none_or(Value::is_null)) {
            return;
        }
        let text = params.to_string();
        if self.limits.as_ref() == Some(&text) {
            return;
        }
        self.limits = Some(text);
        if let Some(limits) = rates::in_figures(limits) {
            self.translation.rate_limits(limits);
        }
        let mut action = Action::new(LIMITS_ID, ActionKind::Telemetry, "rate limits");
        action.detail = limits.clone().into();
        let event = ActionEvent::new(CODEX, action, Phase::Completed).ok(true).level(Level::Debug);
        events.push(event.into());
    }

    fn completed(&mut self, end: Option<TurnEnd<'_>>, events: &mut Vec<TakopiEvent>) {
        self.close_open(events);
        let usage = self.usage.so_far();
        let Some(TurnEnd { status, error }) = end else {
            let error = "the end of the turn was not understood";
            return self
                .finish(Completed::failure(CODEX, Reason::Protocol, error).usage(usage), events);
        };
        match &*status {
            "completed" => self.translation.turn_completed(usage, events),
            "interrupted" => self.finish(interrupted().usage(usage), events),
            _ => {
                let fault = error.unwrap_or_else(|| Fault::new("the turn failed"));
                let reason = fault.reason();
                let completed = Completed::failure(CODEX, reason.clone(), fault.error(&reason));
                self.finish(completed.usage(usage), events);
            }
        }
    }
}

/// What an interrupted turn ends with.
pub(super) fn interrupted() -> Completed {
    Completed::failure(CODEX, Reason::Interrupted, "interrupted")
}

/// Whether a message is nothing but the marker of a turn that was aborted. Quoted, it is text.
pub(super) fn is_turn_aborted(text: &str) -> bool {
    let text = text.trim();
    text == "<turn_aborted/>"
        || text == "<turn_aborted>"
        || (text.starts_with("<turn_aborted>")
            && text
                .strip_suffix("</turn_aborted>")
                .is_some_and(|rest| !rest.contains("</turn_aborted>")))
}
