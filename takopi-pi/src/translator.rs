//! From the lines of one run to takopi's events, and when the run is over.
//!
//! Pure: lines in, events out, no I/O and no clock.
//!
//! Promises:
//! - `Started` is emitted once, when pi has accepted the prompt.
//! - The run is over at `agent_settled`, not at `agent_end`: a retry, a compaction or a queued message may
//!   follow. It went well if the last message of the assistant ended with `stop`.
//! - A call is one action, also if the model uses an id twice; one that is open at the end is closed.
//! - The answer is the text of the last message without tool calls. Text of other messages is a note, unless
//!   it was streamed.
//! - The run ends once: [`Translator::finish`] returns the end, and nothing is emitted behind it.

mod calls;
mod lines;
#[cfg(test)]
mod tests;

use std::path::PathBuf;

use takopi_core::model::{
    Action, ActionEvent, ActionKind, AnswerPieces, Completed, Level, Phase, Reason, ResumeToken,
    Started, TakopiEvent, Usage, UsageScope,
};
use takopi_core::redact::redacted;

use crate::failure;
use crate::wire::{Assistant, Event, Tokens};
use crate::{PI, TITLE};
use calls::Calls;

#[doc(hidden)]
pub use lines::translate_lines;

const RETRY_ID: &str = "pi.retry";

/// What a run is, before its first line.
#[derive(Debug, Clone)]
pub(crate) struct TurnSetup {
    pub(crate) session: String,
    /// Where the agent works.
    pub(crate) directory: PathBuf,
    /// Whether pieces of the answer are emitted.
    pub(crate) deltas: bool,
    /// How many images go with the prompt.
    pub(crate) images: usize,
}

/// One run.
#[derive(Debug)]
pub(crate) struct Translator {
    setup: TurnSetup,
    is_started: bool,
    is_finished: bool,
    /// How many messages the assistant began.
    messages: u32,
    /// Whether the last of them is being written.
    is_writing: bool,
    /// How many actions got an id from us.
    named: u32,
    pieces: AnswerPieces,
    /// The block that is streamed.
    block: Option<u64>,
    /// The answer so far, and the message it is of.
    answer: Option<(String, String)>,
    /// How the last call of the model ended.
    last: Option<Ending>,
    calls: Calls,
    /// The retry that is shown as running.
    retry: Option<Action>,
    compaction: Option<Action>,
    tokens: Option<Tokens>,
    /// Steering messages that wait in pi.
    waiting: usize,
    /// How the run settled: whether it was aborted.
    settled: Option<bool>,
}

#[derive(Debug)]
struct Ending {
    stop_reason: String,
    error: Option<String>,
}

impl Translator {
    /// A run.
    pub(crate) fn new(setup: TurnSetup) -> Self {
        Self {
            calls: Calls::new(&setup.directory),
            setup,
            is_started: false,
            is_finished: false,
            messages: 0,
            is_writing: false,
            named: 0,
            pieces: AnswerPieces::new(PI),
            block: None,
            answer: None,
            last: None,
            retry: None,
            compaction: None,
            tokens: None,
            waiting: 0,
            settled: None,
        }
    }

    /// pi has accepted the prompt.
    pub(crate) fn accepted(&mut self, events: &mut Vec<TakopiEvent>) {
        if !std::mem::replace(&mut self.is_started, true) {
            let session = ResumeToken::new(PI, self.setup.session.clone());
            events.push(Started::new(session).title(TITLE).into());
        }
    }

    /// Whether the run is over. Lines behind that are not of this run.
    pub(crate) fn is_over(&self) -> bool {
        self.is_finished || self.settled.is_some()
    }

    /// Whether pi still has messages that it did not run, although it has settled.
    pub(crate) fn has_waiting(&self) -> bool {
        self.waiting > 0
    }

    /// Nothing waits, whatever was said before.
    pub(crate) fn nothing_waits(&mut self) {
        self.waiting = 0;
    }

    /// pi was given what it did not run: it goes on.
    pub(crate) fn goes_on(&mut self) {
        self.settled = None;
        self.waiting = 0;
    }

    /// Whether a tool runs that the agent waits for.
    pub(crate) fn tool_running(&self) -> bool {
        self.calls.is_running()
    }

    /// Translates one line.
    pub(crate) fn event(&mut self, event: &Event, events: &mut Vec<TakopiEvent>) {
        if let Event::Queue { waiting } = event {
            // Also behind the end: a message that came too late waits there.
            self.waiting = *waiting;
        }
        if self.is_over() {
            return;
        }
        match event {
            Event::AgentStart => self.accepted(events),
            Event::MessageStart => {
                self.is_writing = false;
                self.write();
                self.block = None;
            }
            Event::Text { block, delta } => self.text(*block, delta, events),
            Event::Assistant(message) => self.assistant(message, events),
            Event::ToolStart { id, name, input } => self.calls.begin(id, name, input, events),
            Event::ToolEnd(end) => self.calls.end(end, events),
            Event::Retry { attempt, max, error } => self.retry(*attempt, *max, error, events),
            Event::RetryEnd { success } => self.retry_ended(*success, events),
            Event::CompactionStart { reason } => self.compaction(reason.as_deref(), events),
            Event::CompactionEnd { error } => self.compacted(error.as_deref(), events),
            Event::ExtensionError { error } => {
                let id = self.next_id("warning");
                let title = format!("an extension of pi failed: {error}");
                events.push(ActionEvent::warning(PI, id, title).into());
            }
            Event::Settled { aborted } => {
                // What settles was accepted, whatever was lost of its beginning.
                self.accepted(events);
                self.settled = Some(*aborted);
            }
            Event::Other { kind } => {
                tracing::debug!(kind = %redacted(kind), "an event of pi that is not known");
            }
            Event::User { images } => self.prompted(*images, events),
            Event::Progress | Event::Quiet | Event::Queue { .. } => {}
        }
    }

    /// Ends the run: closes what is open and returns its end; `otherwise` if it did not end by itself.
    pub(crate) fn finish(
        &mut self,
        otherwise: Completed,
        events: &mut Vec<TakopiEvent>,
    ) -> Completed {
        self.is_finished = true;
        self.pieces.close(events);
        self.calls.close(events);
        self.retry_ended(false, events);
        self.compacted(Some("not finished"), events);
        let answer = self.answer.take().map(|(_, text)| text).unwrap_or_default();
        let completed = match self.settled {
            Some(false) => self.outcome(),
            Some(true) => Completed::failure(PI, Reason::Interrupted, "interrupted"),
            None => otherwise,
        };
        let session = self.is_started.then(|| ResumeToken::new(PI, self.setup.session.clone()));
        let cost = self.tokens.map(|tokens| tokens.cost_usd).filter(|cost| *cost > 0.0);
        completed.answer(answer).resume(session).usage(self.usage()).cost_usd(cost)
    }

    /// How a run that settled ended.
    fn outcome(&self) -> Completed {
        let failed = |error: &str| {
            let (reason, message) = failure::of_text(error);
            Completed::failure(PI, reason, message)
        };
        let Some(Ending { stop_reason, error }) = &self.last else {
            return failed("pi ended the run without a message of the model");
        };
        match (stop_reason.as_str(), error) {
            ("stop", _) => Completed::success(PI, ""),
            ("length", _) => failed("the answer was truncated: the model reached its output limit"),
            ("aborted", _) => Completed::failure(PI, Reason::Interrupted, "interrupted"),
            (_, Some(error)) => failed(error),
            (reason, None) => failed(&format!("pi ended the run with `{reason}`")),
        }
    }

    /// The model got a message. Of the first one images may be missing: pi leaves out what it cannot resize.
    fn prompted(&mut self, images: usize, events: &mut Vec<TakopiEvent>) {
        let missing = std::mem::take(&mut self.setup.images).saturating_sub(images);
        if missing > 0 {
            let title =
                format!("pi left out {missing} of the images: it could not read or resize them");
            events.push(ActionEvent::warning(PI, self.next_id("warning"), title).into());
        }
    }

    fn text(&mut self, block: u64, delta: &str, events: &mut Vec<TakopiEvent>) {
        if !self.setup.deltas {
            return;
        }
        self.write();
        let id = self.message_id();
        let before = self.block.replace(block);
        // As the blocks are joined in the answer.
        let separator = if before.is_some_and(|before| before != block) { "\n\n" } else { "" };
        self.pieces.piece(&id, &format!("{separator}{delta}"), events);
    }

    fn assistant(&mut self, message: &Assistant, events: &mut Vec<TakopiEvent>) {
        if message.error.is_none() {
            self.retry_ended(true, events);
        }
        for thought in &message.thoughts {
            let id = self.next_id("reasoning");
            events.push(note(Action::new(id, ActionKind::Note, thought)));
        }
        self.pieces.close(events);
        self.write();
        self.is_writing = false;
        let (id, text) = (self.message_id(), message.texts.join("\n\n"));
        // What failed is written again, or never was the answer to anything.
        let superseded = self.answer.take_if(|_| !text.is_empty());
        let failed_before = self.last.as_ref().is_some_and(|last| last.stop_reason == "error");
        if let Some((id, text)) = superseded.filter(|_| !failed_before) {
            self.remark(id, &text, events);
        }
        if message.stop_reason == "toolUse" {
            self.remark(id, &text, events);
        } else if !text.is_empty() {
            self.answer = Some((id, text));
        }
        self.last =
            Some(Ending { stop_reason: message.stop_reason.clone(), error: message.error.clone() });
        let sum = self.tokens.get_or_insert_default();
        let Tokens { input, output, cache_read, cache_write, reasoning, cost_usd } = message.tokens;
        sum.input = sum.input.saturating_add(input);
        sum.output = sum.output.saturating_add(output);
        sum.cache_read = sum.cache_read.saturating_add(cache_read);
        sum.cache_write = sum.cache_write.saturating_add(cache_write);
        sum.reasoning = sum.reasoning.saturating_add(reasoning);
        sum.cost_usd += cost_usd;
    }

    /// Text that is not the answer.
    fn remark(&self, id: String, text: &str, events: &mut Vec<TakopiEvent>) {
        if !text.is_empty() && !self.pieces.has(&id) {
            events.push(note(Action::new(id, ActionKind::Note, text).with("phase", "commentary")));
        }
    }

    fn retry(&mut self, attempt: u64, max: u64, error: &str, events: &mut Vec<TakopiEvent>) {
        let (_, reason) = failure::of_text(error);
        let title = format!("Retrying... {attempt}/{max}");
        let action = Action::new(RETRY_ID, ActionKind::Note, title)
            .with("attempt", attempt)
            .with("max", max)
            .with("reason", reason);
        let phase = if self.retry.is_some() { Phase::Updated } else { Phase::Started };
        events.push(ActionEvent::new(PI, action.clone(), phase).level(Level::Info).into());
        self.retry = Some(action);
    }

    fn retry_ended(&mut self, success: bool, events: &mut Vec<TakopiEvent>) {
        if let Some(action) = self.retry.take() {
            let event = ActionEvent::new(PI, action, Phase::Completed).ok(success);
            events.push(event.level(Level::Info).into());
        }
    }

    fn compaction(&mut self, reason: Option<&str>, events: &mut Vec<TakopiEvent>) {
        let id = self.next_id("compaction");
        let mut action = Action::new(id, ActionKind::Note, "compacting the conversation");
        if let Some(reason) = reason {
            action.detail.insert("reason", reason);
        }
        events.push(ActionEvent::new(PI, action.clone(), Phase::Started).into());
        self.compaction = Some(action);
    }

    fn compacted(&mut self, error: Option<&str>, events: &mut Vec<TakopiEvent>) {
        if let Some(mut action) = self.compaction.take() {
            if let Some(error) = error {
                action.detail.insert("error_message", error);
            }
            let event = ActionEvent::new(PI, action, Phase::Completed).ok(error.is_none());
            events.push(event.into());
        }
    }

    fn usage(&self) -> Option<Usage> {
        let tokens = self.tokens?;
        let mut usage = Usage::default();
        usage.input_tokens =
            tokens.input.saturating_add(tokens.cache_read).saturating_add(tokens.cache_write);
        usage.cached_input_tokens = tokens.cache_read;
        usage.output_tokens = tokens.output;
        usage.reasoning_output_tokens = tokens.reasoning;
        usage.scope = UsageScope::Turn;
        usage.others.insert("cache_write_input_tokens".to_owned(), tokens.cache_write.into());
        Some(usage)
    }

    /// Begins a message, unless one is being written. One whose beginning was lost must not have the id of another.
    fn write(&mut self) {
        if !self.is_writing {
            self.messages += 1;
            self.is_writing = true;
        }
    }

    /// pi's messages have no ids.
    fn message_id(&self) -> String {
        format!("message_{}", self.messages)
    }

    fn next_id(&mut self, what: &str) -> String {
        self.named += 1;
        format!("pi.{what}_{}", self.named)
    }
}

fn note(action: Action) -> TakopiEvent {
    ActionEvent::new(PI, action, Phase::Completed).ok(true).into()
}
