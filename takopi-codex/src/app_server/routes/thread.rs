//! What is known of one thread, and of the turn that runs on it.

use std::collections::VecDeque;

use serde_json::value::RawValue;
use takopi_core::jsonl::LineWarnings;

use crate::app_server::inbox::{Sender, TurnMessage};
use crate::app_server::notification::Notification;
use crate::app_server::requests::ServerRequest;
use crate::app_server::subagents::TurnNumber;

/// Turns that ended lately, whose late messages are known for what they are.
const ENDED_REMEMBERED: usize = 8;
/// How many ends are held back until a turn is named.
const ENDS_HELD: usize = 4;

#[derive(Default)]
pub(super) struct ThreadRoute {
    pub(super) turn: Option<TurnRoute>,
    pub(super) ended: VecDeque<String>,
    /// The thread's last `tokenUsage`, of whatever turn: the baseline of the next.
    pub(super) usage: Option<Box<RawValue>>,
}

pub(super) struct TurnRoute {
    pub(super) number: TurnNumber,
    pub(super) id: Option<String>,
    /// Whether the response that names the turn is still to come.
    starting: bool,
    pub(super) begun: Begun,
    /// Ends that came meanwhile, with the turns they name: the response shows which of them is this turn's.
    held: VecDeque<(Option<String>, TurnMessage)>,
    pub(super) inbox: Sender,
    pub(super) lines: LineWarnings,
    pub(super) drift_reported: bool,
}

/// What is known of the beginning of a turn from what was received.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Begun {
    /// Nothing came that can be of it.
    #[default]
    No,
    /// Something came that may be of it: it must not be sent again.
    Perhaps,
    /// Something of it came.
    Yes,
}

impl Begun {
    fn by(notification: &Notification) -> Self {
        if notification.is_of_a_turn() { Self::Yes } else { Self::No }
    }
}

impl ThreadRoute {
    /// Whether a message of this turn is none of the turn that runs.
    pub(super) fn is_of_another_turn(&self, method: &str, turn: Option<&str>) -> bool {
        // Usage of an earlier turn is the baseline of this one; elicitations name a turn by guess.
        if matches!(method, "thread/tokenUsage/updated" | "mcpServer/elicitation/request") {
            return false;
        }
        let Some(turn) = turn else { return false };
        // Before the response a turn is named by guess, which must not cost its end.
        let is_certain = |running: &&TurnRoute| !running.starting || method != "turn/completed";
        let running = self.turn.as_ref().filter(is_certain).and_then(|it| it.id.as_deref());
        self.ended.iter().any(|ended| ended == turn) || running.is_some_and(|own| own != turn)
    }

    pub(super) fn deliver(&mut self, notification: Notification, weight: usize) {
        let Some(turn) = &mut self.turn else { return };
        let ends = notification.is_turn_end();
        if ends && turn.starting {
            let id = notification.turn().map(str::to_owned);
            return turn.hold(id, TurnMessage::Notification(notification));
        }
        turn.begun = turn.begun.max(Begun::by(&notification));
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

    /// The end of a turn was too long to be read; `false` if it is not the end of the turn that runs.
    pub(super) fn end_too_long(&mut self, id: Option<String>) -> bool {
        if self.is_of_another_turn("turn/completed", id.as_deref()) {
            return false;
        }
        let Some(turn) = &mut self.turn else { return false };
        if turn.starting {
            turn.hold(id, TurnMessage::EndTooLong);
        } else {
            turn.inbox.send_end(TurnMessage::EndTooLong);
            self.end_turn();
        }
        true
    }

    /// The response to the request that starts the turn is still to come.
    pub(super) fn starts(&mut self) {
        if let Some(turn) = &mut self.turn {
            turn.starting = true;
        }
    }

    /// The response has named the turn, or there is none that could: if the end of the turn was held
    /// back, it is delivered. Other ends are dropped.
    pub(super) fn started(&mut self, id: Option<String>) {
        let Some(turn) = self.turn.as_mut().filter(|turn| turn.starting) else { return };
        turn.starting = false;
        if let Some(id) = &id {
            // A prompt was added to a turn that runs though it was not followed any longer.
            self.ended.retain(|ended| ended != id);
        }
        // It outranks an id that a notification named before.
        turn.id = id.or(turn.id.take());
        let own = turn.id.as_deref();
        let held = std::mem::take(&mut turn.held).into_iter();
        let mut ends = held.filter(|(id, _)| own.is_none() || id.is_none() || id.as_deref() == own);
        let Some((id, end)) = ends.next() else { return };
        turn.id = turn.id.take().or(id);
        turn.report_lines();
        turn.inbox.send_end(end);
        self.end_turn();
    }

    /// The request that starts the turn was refused. If nothing of the turn was received, it may be sent
    /// again, and no end was this turn's.
    pub(super) fn refused(&mut self) {
        let Some(turn) = &mut self.turn else { return };
        if turn.begun == Begun::Yes {
            self.started(None);
        } else {
            turn.held.clear();
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
    pub(super) fn new(number: TurnNumber, inbox: Sender) -> Self {
        let (held, lines) = (VecDeque::new(), LineWarnings::default());
        let begun = Begun::No;
        Self { number, id: None, starting: false, begun, held, inbox, lines, drift_reported: false }
    }

    /// Something came that may have been of this turn.
    pub(super) fn received_perhaps(&mut self) {
        self.begun = self.begun.max(Begun::Perhaps);
    }

    /// Warns of something that may have been of this turn.
    pub(super) fn warn(&mut self, warning: &str) {
        self.received_perhaps();
        self.inbox.warn(warning);
    }

    /// Takes a request of this turn, or of a sub-agent below it. One that cannot be read is declined.
    pub(super) fn request(&mut self, request: ServerRequest, weight: usize) {
        if request.names_turn() {
            self.begun = Begun::Yes;
        }
        self.received_perhaps();
        if let Some(fault) = request.unreadable() {
            self.warn(&format!("declined: `{}` cannot be read: {fault}", request.method()));
            request.decline();
        } else {
            self.inbox.send(TurnMessage::Request(request), weight);
        }
    }

    /// Holds back an end until the turn is named.
    fn hold(&mut self, id: Option<String>, end: TurnMessage) {
        if self.held.len() == ENDS_HELD {
            self.held.pop_front();
        }
        self.held.push_back((id, end));
    }

    /// Reports how many lines could not be read beside those that were shown.
    fn report_lines(&mut self) {
        for warning in self.lines.rest() {
            self.inbox.warn(&warning);
        }
    }
}
