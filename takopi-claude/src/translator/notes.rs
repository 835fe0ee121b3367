//! Notes of Claude Code itself. Those of retries and of compacting change while they are open.

use takopi_core::model::{Action, ActionEvent, ActionKind, Level, Phase};
use takopi_core::redact::redact;

use crate::CLAUDE;
use crate::wire::{ApiRetry, CompactBoundary, Status};

/// A notice for people, which may quote an error. It is no sign of the agent.
pub(super) fn notice(id: String, text: &str) -> ActionEvent {
    let action = Action::new(id, ActionKind::Note, redact(text));
    ActionEvent::new(CLAUDE, action, Phase::Completed).ok(true).level(Level::Info)
}

/// The id of the action of retries: a loop of ten is one note that changes, not ten.
const RETRY_ID: &str = "claude.retry";

/// Whether the model is retried.
#[derive(Debug, Default)]
pub(super) struct Retry {
    open: Option<Action>,
}

impl Retry {
    pub(super) fn notice(&mut self, retry: &ApiRetry) -> ActionEvent {
        let count = match (retry.attempt, retry.max) {
            (Some(attempt), Some(max)) => format!("Retrying... {attempt}/{max}"),
            (Some(attempt), None) => format!("Retrying... {attempt}"),
            _ => "Retrying...".to_owned(),
        };
        let mut action = Action::new(RETRY_ID, ActionKind::Note, count);
        let mut add = |name: &'static str, figure: Option<i64>| {
            if let Some(figure) = figure {
                action.detail.insert(name, figure);
            }
        };
        add("attempt", retry.attempt);
        add("max", retry.max);
        add("delay_ms", retry.delay_ms);
        let reason = match (retry.error.as_deref(), retry.status) {
            (None | Some("unknown"), None) => "no response".to_owned(),
            (None | Some("unknown"), Some(status)) => format!("status {status}"),
            (Some(error), None) => error.to_owned(),
            (Some(error), Some(status)) => format!("{error}, status {status}"),
        };
        let action = action.with("reason", reason);
        let begins = retry.attempt.map_or(self.open.is_none(), |attempt| attempt <= 1);
        let phase = if begins || self.open.is_none() { Phase::Started } else { Phase::Updated };
        self.open = Some(action.clone());
        ActionEvent::new(CLAUDE, action, phase).level(Level::Info)
    }

    /// Closes the note if it is open: the model responded, or was given up.
    pub(super) fn close(&mut self, ok: bool) -> Option<ActionEvent> {
        let action = self.open.take()?;
        Some(ActionEvent::new(CLAUDE, action, Phase::Completed).ok(ok).level(Level::Info))
    }
}

/// How many labels of a status that are not known are shown.
const LABELS: usize = 16;

/// The labels of a status that are not known to this version. Each is shown once.
#[derive(Debug, Default)]
pub(super) struct Labels {
    shown: Vec<String>,
}

impl Labels {
    /// Whether the label is to be shown.
    pub(super) fn is_new(&mut self, label: &str) -> bool {
        let is_new = self.shown.len() < LABELS && !self.shown.iter().any(|shown| shown == label);
        if is_new {
            self.shown.push(label.to_owned());
        }
        is_new
    }
}

/// Whether the conversation is compacted.
#[derive(Debug, Default)]
pub(super) struct Compacting {
    count: u32,
    open: Option<Action>,
    /// A compaction was closed, and its boundary is still to come.
    is_due: bool,
}

impl Compacting {
    pub(super) fn status(&mut self, status: &Status) -> Option<ActionEvent> {
        match (status.label.as_deref(), &self.open) {
            (Some("compacting"), None) => {
                let action = self.action();
                self.open = Some(action.clone());
                Some(ActionEvent::new(CLAUDE, action, Phase::Started))
            }
            (None, Some(_)) if status.compact_result.is_some() => {
                let ok = status.compact_result.as_deref() == Some("success");
                self.is_due = ok;
                self.close(ok)
            }
            _ => None,
        }
    }

    pub(super) fn boundary(&mut self, boundary: &CompactBoundary) -> Option<ActionEvent> {
        if std::mem::take(&mut self.is_due) {
            return None;
        }
        let mut action = self.open.take().unwrap_or_else(|| self.action());
        if let Some(trigger) = &boundary.trigger {
            action = action.with("trigger", trigger.as_str());
        }
        if let Some(tokens) = boundary.tokens_before {
            action = action.with("tokens_before", tokens);
        }
        Some(ActionEvent::new(CLAUDE, action, Phase::Completed).ok(true))
    }

    pub(super) fn close(&mut self, ok: bool) -> Option<ActionEvent> {
        let action = self.open.take()?;
        Some(ActionEvent::new(CLAUDE, action, Phase::Completed).ok(ok))
    }

    fn action(&mut self) -> Action {
        let id = format!("claude.compact_{}", self.count);
        self.count += 1;
        Action::new(id, ActionKind::Note, "compacting the conversation")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unknown_status_is_shown_once_and_the_number_of_them_is_bounded() {
        let mut labels = Labels::default();
        assert!(labels.is_new("pondering") && !labels.is_new("pondering"));
        let shown = (0..1000).filter(|n| labels.is_new(&format!("status {n}"))).count();
        assert_eq!(shown, LABELS - 1);
    }
}
