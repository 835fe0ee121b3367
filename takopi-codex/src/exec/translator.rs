//! From the lines of one run to its events, and what the end of the process means.

use std::path::Path;

use takopi_core::jsonl::{Ending, NotJsonError, Translator};
use takopi_core::model::{
    Action, ActionEvent, ActionKind, Completed, Level, Phase, Reason, ResumeToken, TakopiEvent,
    UsageScope,
};
use takopi_core::paths::Directory;
use takopi_core::process::Exit;
use takopi_core::redact::redacted;

use super::wire::Line;
use crate::common::Translation;
use crate::failure::{Fault, advised, reason_on_stderr};
use crate::{CODEX, TITLE};

/// Who holds a session that another codex has open.
const OTHER_CODEX: &str = "another codex";

/// Turns the output of one `codex exec --json` into events. Pure: no I/O, no clock.
///
/// ```
/// use takopi_codex::exec::ExecTranslator;
/// use takopi_core::jsonl::Translator;
///
/// let mut translator = ExecTranslator::new("/srv/project", None);
/// let mut events = Vec::new();
/// for line in [
///     r#"{"type":"thread.started","thread_id":"01a1e21b-26e5-7eb0-9d27-459e98f10b74"}"#,
///     r#"{"type":"item.completed","item":{"id":"item_0","type":"agent_message","text":"Hello."}}"#,
///     r#"{"type":"turn.completed","usage":{"input_tokens":11,"output_tokens":7}}"#,
/// ] {
///     translator.line(line.as_bytes(), &mut events).unwrap();
/// }
/// assert_eq!(events.len(), 2); // Started, and Completed with the answer
/// ```
#[derive(Debug)]
pub struct ExecTranslator {
    translation: Translation,
    asked: Option<ResumeToken>,
    /// Whether the turn has begun: the prompt must not be sent again.
    begun: bool,
    /// Whether the last line was of a known kind.
    known: bool,
    /// What the last trouble with the stream was about, if that is known.
    trouble: Option<Reason>,
}

impl ExecTranslator {
    /// A run in a directory, of a new session or one that goes on.
    pub fn new(directory: impl AsRef<Path>, resume: Option<ResumeToken>) -> Self {
        Self::of(TITLE, Directory::new([directory.as_ref()]), resume)
    }

    pub(super) fn of(title: &str, directory: Directory, asked: Option<ResumeToken>) -> Self {
        let translation = Translation::new(title, directory);
        Self { translation, asked, begun: false, known: true, trouble: None }
    }

    fn trouble(&mut self, fault: &Fault<'_>, events: &mut Vec<TakopiEvent>) {
        let reason = fault.reason();
        self.trouble = (reason != Reason::EngineFailed).then_some(reason);
        self.translation.stream_error(fault, events);
    }

    /// rc 0.
    fn left(&self) -> Completed {
        if self.translation.session().is_none() {
            let error = "codex exec ended and no session id was seen";
            Completed::failure(CODEX, Reason::Protocol, error)
        } else if self.translation.in_turn() && self.translation.answer().is_none() {
            let error = "codex exec ended in the middle of a turn, without an answer";
            Completed::failure(CODEX, Reason::Protocol, error)
        } else {
            Completed::success(CODEX, "")
        }
    }

    /// Any other rc, or a signal.
    fn failed(&self, exit: &Exit, reported: Option<Reason>) -> Completed {
        // The text of stderr goes to a warning, never in here.
        let error = format!("codex exec failed (rc={}).", exit.rc());
        if let Some(signal) = exit.signal {
            let error = format!("{error} It was killed by signal {signal}.");
            return Completed::failure(CODEX, Reason::ProcessDied, error);
        }
        let reason = reported.or_else(|| self.trouble.clone()).unwrap_or(Reason::EngineFailed);
        let error = match (&reason, &self.asked) {
            (Reason::SessionNotFound, Some(asked)) => {
                format!("{error} It knows no session {}.", asked.value)
            }
            _ => advised(&reason, error),
        };
        Completed::failure(CODEX, reason, error)
    }

    /// What stderr leaves no doubt about. A session can only be missing or held when one was asked
    /// for and Codex has not opened it.
    fn reported_on_stderr(&self, exit: &Exit) -> Option<Reason> {
        let opened = self.begun || self.translation.session().is_some();
        let opening = self.asked.is_some() && !opened;
        reason_on_stderr(&exit.stderr_tail, opening)
    }
}

impl Translator for ExecTranslator {
    fn line(&mut self, line: &[u8], events: &mut Vec<TakopiEvent>) -> Result<(), NotJsonError> {
        let line = Line::parse(line)?;
        self.begun |= line.is_of_turn();
        self.known = !matches!(line, Line::Unknown { .. });
        let translation = &mut self.translation;
        match line {
            Line::ThreadStarted { id } => translation.thread_started(&id, events),
            Line::TurnStarted => translation.turn_started(events),
            Line::Item { phase, item } => translation.item(phase, item, events),
            Line::TurnCompleted { usage } => {
                // On a resumed session exec counts the whole thread.
                let scope =
                    if self.asked.is_some() { UsageScope::Thread } else { UsageScope::Turn };
                translation.turn_completed(usage.map(|usage| usage.covering(scope)), events);
            }
            Line::TurnFailed { fault } => translation.turn_failed(&fault, events),
            Line::Error { fault } => self.trouble(&fault, events),
            Line::Unknown { kind } => {
                tracing::debug!(kind = %redacted(&kind), "codex exec printed an unknown event");
            }
        }
        Ok(())
    }

    fn end(&mut self, exit: &Exit, events: &mut Vec<TakopiEvent>) -> Ending {
        if self.translation.is_over() {
            return Ending::Over;
        }
        if exit.code == Some(0) {
            self.translation.finish(self.left(), events);
            return Ending::Over;
        }
        let reported = self.reported_on_stderr(exit);
        if reported == Some(Reason::SessionBusy) {
            return Ending::Busy { holder: OTHER_CODEX.to_owned() };
        }
        let completed = self.failed(exit, reported);
        let title = format!("codex exec failed (rc={}).", exit.rc());
        let mut action = Action::new("codex.exit", ActionKind::Warning, title);
        if !exit.stderr_tail.is_empty() {
            action = action.with("stderr_tail", exit.stderr_tail.as_str());
        }
        let warning = ActionEvent::new(CODEX, action, Phase::Completed);
        events.push(warning.ok(false).level(Level::Warning).into());
        self.translation.finish(completed, events);
        Ending::Over
    }

    fn answer(&self) -> Option<&str> {
        self.translation.answer()
    }

    fn tool_running(&self) -> bool {
        self.translation.tool_running()
    }

    fn is_of_run(&self) -> bool {
        self.known
    }
}
