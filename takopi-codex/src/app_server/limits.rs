//! Limits of a turn, on top of those of its run. Both are off unless asked for.
//!
//! Pure: moments in, deadlines out. Quiet after a tool begins when a tool's item completes while no
//! other is running, is renewed by every notification of the turn, and is over when the agent goes on:
//! another item begins, or text comes. It pauses while an approval is open.

use std::collections::HashSet;
use std::time::Duration;

use takopi_core::model::Reason;
use takopi_core::runner::RunError;
use tokio::time::Instant;

use super::notification::Kind;
use super::streams::Stream;
use crate::common::{Body, Item};

/// Limits of a turn.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct TurnLimits {
    /// How long codex may be silent behind a tool.
    pub(super) post_tool_quiet: Option<Duration>,
    /// How long a turn may take.
    pub(super) turn: Option<Duration>,
}

/// The clock of one turn.
#[derive(Debug)]
pub(super) struct TurnClock {
    limits: TurnLimits,
    begun: Instant,
    /// Tools at work.
    open: HashSet<String>,
    /// Since when nothing arrived behind a tool.
    quiet_since: Option<Instant>,
}

impl TurnClock {
    pub(super) fn new(limits: TurnLimits, now: Instant) -> Self {
        Self { limits, begun: now, open: HashSet::new(), quiet_since: None }
    }

    /// A notification about the turn.
    pub(super) fn notification(&mut self, kind: &Kind<'_>, now: Instant) {
        if self.limits.post_tool_quiet.is_none() {
            return;
        }
        match kind {
            Kind::ItemStarted(item) => {
                self.quiet_since = None;
                if is_tool(item) {
                    self.open.insert(id_of(item).to_owned());
                }
            }
            Kind::ItemCompleted(item) if is_tool(item) => {
                self.open.remove(id_of(item));
                self.quiet_since = self.open.is_empty().then_some(now);
            }
            Kind::Text { stream, .. } if *stream == Stream::Progress => self.renew_quiet(now),
            Kind::ItemCompleted(_) | Kind::Text { .. } | Kind::OtherText => self.quiet_since = None,
            _ => self.renew_quiet(now),
        }
    }

    /// Renews the quiet: something happened that is not the agent's going on.
    pub(super) fn renew_quiet(&mut self, now: Instant) {
        if self.quiet_since.is_some() {
            self.quiet_since = Some(now);
        }
    }

    /// When the first limit will be reached; `busy` while an approval is open.
    pub(super) fn deadline(&self, busy: bool) -> Option<Instant> {
        let turn = self.limits.turn.and_then(|limit| self.begun.checked_add(limit));
        [self.quiet_deadline().filter(|_| !busy), turn].into_iter().flatten().min()
    }

    fn quiet_deadline(&self) -> Option<Instant> {
        self.quiet_since?.checked_add(self.limits.post_tool_quiet?)
    }

    /// The end of a run whose turn reached a limit: the limit's name and value.
    pub(super) fn refusal(&self, now: Instant) -> RunError {
        match (self.limits.post_tool_quiet, self.limits.turn) {
            (Some(limit), _) if self.quiet_deadline().is_some_and(|deadline| deadline <= now) => {
                let error =
                    format!("codex was silent for {limit:?} after a tool (post-tool quiet limit)");
                RunError::new(Reason::TimeoutIdle, error)
            }
            (_, limit) => {
                let limit = limit.unwrap_or_default();
                let error = format!("the turn took longer than {limit:?} (turn limit)");
                RunError::new(Reason::TimeoutWall, error)
            }
        }
    }
}

fn id_of<'a>(item: &'a Item<'_>) -> &'a str {
    item.id.as_deref().unwrap_or_default()
}

/// Whether an item is work, and not text.
fn is_tool(item: &Item<'_>) -> bool {
    match &item.body {
        Body::UserMessage
        | Body::AgentMessage { .. }
        | Body::Thought { .. }
        | Body::Error { .. } => false,
        Body::Unknown { kind, .. } => kind.as_deref() != Some("hookPrompt"),
        _ => true,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use serde_json::value::to_raw_value;

    use super::*;
    use crate::app_server::notification::Notification;

    const SECOND: Duration = Duration::from_secs(1);

    fn notification(method: &str, id: &str, kind: &str) -> Notification {
        let params = json!({ "item": { "id": id, "type": kind } });
        Notification::new(method.to_owned(), to_raw_value(&params).unwrap())
    }

    fn quiet(begin: Instant) -> TurnClock {
        let limits = TurnLimits { post_tool_quiet: Some(90 * SECOND), turn: None };
        TurnClock::new(limits, begin)
    }

    #[test]
    fn quiet_counts_only_behind_a_tool_and_until_the_agent_goes_on() {
        let begin = Instant::now();
        let mut clock = quiet(begin);
        assert_eq!(clock.deadline(false), None, "silence at the start is for the idle limit");
        clock.notification(&notification("item/started", "a", "commandExecution").kind(), begin);
        assert_eq!(clock.deadline(false), None);
        clock.notification(&notification("item/completed", "a", "commandExecution").kind(), begin);
        assert_eq!(clock.deadline(false), Some(begin + 90 * SECOND));
        assert_eq!(clock.deadline(true), None, "an approval is open");
        clock.notification(
            &notification("thread/tokenUsage/updated", "", "").kind(),
            begin + SECOND,
        );
        assert_eq!(clock.deadline(false), Some(begin + 91 * SECOND));
        let refusal = clock.refusal(begin + 91 * SECOND);
        assert_eq!(refusal.reason, Reason::TimeoutIdle);
        assert!(refusal.message.contains("90s") && refusal.message.contains("post-tool quiet"));
        clock.notification(
            &notification("item/agentMessage/delta", "m", "").kind(),
            begin + 2 * SECOND,
        );
        assert_eq!(clock.deadline(false), None);
    }

    #[test]
    fn quiet_waits_for_every_tool_at_work() {
        let begin = Instant::now();
        let mut clock = quiet(begin);
        clock.notification(&notification("item/started", "a", "commandExecution").kind(), begin);
        clock.notification(&notification("item/started", "b", "mcpToolCall").kind(), begin);
        clock.notification(&notification("item/completed", "a", "commandExecution").kind(), begin);
        assert_eq!(clock.deadline(false), None);
        clock.notification(&notification("item/completed", "b", "mcpToolCall").kind(), begin);
        assert!(clock.deadline(false).is_some());
        clock.notification(&notification("item/started", "m", "agentMessage").kind(), begin);
        assert_eq!(clock.deadline(false), None);
    }

    #[test]
    fn a_turn_has_its_own_limit_whatever_happens_in_it() {
        let begin = Instant::now();
        let limits = TurnLimits { post_tool_quiet: None, turn: Some(600 * SECOND) };
        let mut clock = TurnClock::new(limits, begin);
        clock.notification(&notification("item/started", "a", "commandExecution").kind(), begin);
        assert_eq!(clock.deadline(true), Some(begin + 600 * SECOND));
        let refusal = clock.refusal(begin + 600 * SECOND);
        assert_eq!(refusal.reason, Reason::TimeoutWall);
        assert!(refusal.message.contains("600s") && refusal.message.contains("turn limit"));
    }
}
