//! What is known of one thread, and of the turn that runs on it.

use std::collections::VecDeque;

use serde_json::value::RawValue;
use takopi_core::jsonl::LineWarnings;

use crate::app_server::inbox::{Sender, TurnMessage};
use crate::app_server::notification::Notification;

/// Turns that ended lately, whose late messages are known for what they are.
const ENDED_REMEMBERED: usize = 8;

#[derive(Default)]
pub(super) struct ThreadRoute {
    pub(super) turn: Option<TurnRoute>,
    pub(super) ended: VecDeque<String>,
    /// The thread's last `tokenUsage`, of whatever turn: the baseline of the next.
    pub(super) usage: Option<Box<RawValue>>,
}

pub(super) struct TurnRoute {
    pub(super) id: Option<String>,
    pub(super) inbox: Sender,
    pub(super) lines: LineWarnings,
    pub(super) drift_reported: bool,
}

impl ThreadRoute {
    /// Whether a message of this turn is none of the turn that runs.
    pub(super) fn is_of_another_turn(&self, method: &str, turn: Option<&str>) -> bool {
        // Usage of an earlier turn is the baseline of this one; elicitations name a turn by guess.
        if matches!(method, "thread/tokenUsage/updated" | "mcpServer/elicitation/request") {
            return false;
        }
        let Some(turn) = turn else { return false };
        let running = self.turn.as_ref().and_then(|running| running.id.as_deref());
        self.ended.iter().any(|ended| ended == turn) || running.is_some_and(|own| own != turn)
    }

    pub(super) fn deliver(&mut self, notification: Notification, weight: usize) {
        let Some(turn) = &mut self.turn else { return };
        let ends = notification.is_turn_end();
        if (ends || notification.method == "turn/started")
            && let Some(id) = notification.turn()
        {
            turn.id.get_or_insert_with(|| id.to_owned());
        }
        if ends {
            turn.report_lines();
        }
        turn.inbox.send(TurnMessage::Notification(notification), weight);
        if ends {
            self.end_turn();
        }
    }

    pub(super) fn end_turn(&mut self) {
        let Some(mut turn) = self.turn.take() else { return };
        turn.report_lines();
        if let Some(id) = turn.id.take() {
            self.ended.push_back(id);
            if self.ended.len() > ENDED_REMEMBERED {
                self.ended.pop_front();
            }
        }
    }
}

impl TurnRoute {
    pub(super) fn new(inbox: Sender) -> Self {
        Self { id: None, inbox, lines: LineWarnings::default(), drift_reported: false }
    }

    /// Reports how many lines could not be read beside those that were shown.
    fn report_lines(&mut self) {
        for warning in self.lines.rest() {
            self.inbox.warn(warning);
        }
    }
}
