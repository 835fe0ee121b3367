//! Where the messages of the server go: routed by thread and turn before anything else.
//!
//! - Responses go to the request that waits for them; late ones are dropped.
//! - Notifications and requests go to the turn that runs on their thread. Requests of a sub-agent go
//!   to the turn above it. Notifications about no thread go to every turn.
//! - What belongs to another turn is dropped. What cannot be attributed is dropped too:
//!   a request is declined, and the turns it may belong to get a warning.
//! - Ends of turns that come before the response that names the turn are held back until then.
//! - A turn whose inbox overflows gets no further messages but its end; other turns are not affected.

mod target;
#[cfg(test)]
mod tests;
mod thread;

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use takopi_core::jsonl::{LineWarnings, UnreadLines};
use takopi_core::peer::PendingRequests;
use takopi_core::redact::{redact, redacted};
use takopi_core::rpc::{ErrorBody, Incoming, Response, ResponseError};
use tokio::sync::oneshot;

use self::target::Target;
use self::thread::{Begun, ThreadRoute, TurnRoute};
use super::address::{Address, Id};
use super::error::ClientError;
use super::inbox::{Inbox, Room, TurnMessage, inbox};
use super::message::{address_of, started_turn};
use super::notification::Notification;
use super::requests::ServerRequest;
use super::subagents::{Subagents, TurnNumber};
use crate::common::head;

/// Of how many threads usage is kept. Servers are replaced long before they have loaded so many.
const THREADS_KNOWN: usize = 4096;

/// A message that must be routed.
#[derive(Debug)]
pub(super) enum Message {
    Notification(Notification),
    Request(ServerRequest),
}

/// A message and where it goes.
pub(super) struct Routed {
    message: Message,
    target: Target,
    weight: usize,
    /// Whether it is of interest to the turn above the sub-agent it is about.
    concerns_parent: bool,
}

#[derive(Default)]
pub(super) struct Routes {
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// Requests of ours; each with the thread on which it starts a turn, which the response names.
    pending: PendingRequests<i64, Response, Option<String>>,
    threads: HashMap<String, ThreadRoute>,
    subagents: Subagents,
    /// How many turns were opened.
    turns_opened: TurnNumber,
    /// Lines that could not be read while no turn was running.
    unread: UnreadLines,
    drift_logged: bool,
}

impl Routes {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Registers request `id` and returns its response to come; `None` if the server is gone already.
    ///
    /// A request that starts a turn gives the thread: the turn is named as soon as the response is
    /// read. Messages of other turns may follow on the next line, before the caller runs again.
    pub(super) fn register(
        &self,
        id: i64,
        starts_turn_on: Option<&str>,
    ) -> Option<oneshot::Receiver<Response>> {
        let mut state = self.state();
        let response = state.pending.register(id, starts_turn_on.map(str::to_owned))?;
        if let Some(route) = starts_turn_on.and_then(|thread| state.threads.get_mut(thread)) {
            route.starts();
        }
        Some(response)
    }

    /// The caller no longer waits: a late response is dropped.
    pub(super) fn forget(&self, id: i64) {
        let mut state = self.state();
        if let Some((_, Some(thread))) = state.pending.take(&id)
            && let Some(route) = state.threads.get_mut(&thread)
        {
            route.started(None);
        }
    }

    /// Opens the inbox of a turn that is about to be started.
    pub(super) fn open_turn(&self, thread: &str) -> Result<Inbox, ClientError> {
        let mut state = self.state();
        let State { threads, unread, pending, turns_opened, .. } = &mut *state;
        let route = threads.entry(thread.to_owned()).or_default();
        if route.turn.is_some() {
            return Err(ClientError::TurnRunning { thread: thread.to_owned() });
        }
        let (sender, inbox) = inbox(route.usage.clone());
        for warning in unread.take() {
            sender.warn(&warning);
        }
        if !pending.is_closed() {
            *turns_opened += 1;
            route.turn = Some(TurnRoute::new(*turns_opened, sender));
        }
        Ok(inbox)
    }

    /// The turn is over, or is no longer followed.
    pub(super) fn close_turn(&self, thread: &str) {
        if let Some(route) = self.state().threads.get_mut(thread) {
            route.end_turn();
        }
    }

    /// Whether anything of the turn was received that runs on this thread, or is about to be started.
    pub(super) fn has_begun(&self, thread: &str) -> bool {
        self.begun(thread) == Begun::Yes
    }

    /// The same, or something was received that may be of it.
    pub(super) fn may_have_begun(&self, thread: &str) -> bool {
        self.begun(thread) != Begun::No
    }

    fn begun(&self, thread: &str) -> Begun {
        let state = self.state();
        let Some(route) = state.threads.get(thread) else { return Begun::No };
        // One that is no longer there has ended.
        route.turn.as_ref().map_or(Begun::Yes, |turn| turn.begun)
    }

    /// The sub-agents below a thread, each with the turn that it runs. What is a session of ours by now is
    /// none of them.
    pub(super) fn subagents(&self, thread: &str) -> Vec<(String, Option<String>)> {
        let state = self.state();
        let is_ours =
            |agent: &str| state.threads.get(agent).is_some_and(|route| route.turn.is_some());
        let below = state.subagents.below(thread).filter(|(agent, _)| !is_ours(agent));
        below.map(|(agent, turn)| (agent.to_owned(), turn.map(str::to_owned))).collect()
    }

    /// A sub-agent does not run this turn any more.
    pub(super) fn subagent_stopped(&self, thread: &str, turn: &str) {
        self.state().subagents.turn_ended(thread, turn);
    }

    /// The server is gone: everything that waits, fails.
    pub(super) fn close(&self) {
        let mut state = self.state();
        state.pending.close();
        for route in state.threads.values_mut() {
            route.started(None);
            route.end_turn();
        }
        state.threads.clear();
    }

    /// Which request of ours a response answers.
    pub(super) fn answered(&self, response: &Incoming<'_>) -> Option<i64> {
        response.answers(self.state().pending.ids())
    }

    /// A refusal does not say what it refuses, and several requests wait.
    pub(super) fn refused(&self, error: &ErrorBody) {
        let message = redacted(&error.message);
        let warning = format!("the app-server refused an unnamed request: {message}");
        if !self.state().warn(None, &warning) {
            tracing::warn!(code = error.code, "the app-server refused an unnamed request");
        }
    }

    /// Hands the response to request `id` to its caller.
    pub(super) fn respond(&self, id: i64, response: Response) {
        let pending = {
            let mut state = self.state();
            let pending = state.pending.take(&id);
            let thread = pending.as_ref().and_then(|(_, starts_turn_on)| starts_turn_on.as_deref());
            if let Some(route) = thread.and_then(|thread| state.threads.get_mut(thread)) {
                match &response {
                    Err(ResponseError::Refused(_)) => route.refused(),
                    Ok(result) => route.started(started_turn(result)),
                    Err(_) => route.started(None),
                }
            }
            pending
        };
        // The caller may be gone; then the response is not needed.
        if pending.is_none_or(|(caller, _)| caller.send(response).is_err()) {
            tracing::debug!(id, "a late response of the app-server");
        }
    }

    /// Finds out where a notification goes.
    pub(super) fn route_notification(&self, notification: Notification) -> Routed {
        let Notification { method, params, .. } = &notification;
        let weight = method.len() + params.get().len();
        let address = address_of(params);
        let mut state = self.state();
        state.learn(&address);
        if !notification.is_usage() {
            state.turn_named(&address, method);
        }
        let target = state.target(method, &address);
        let concerns_parent = method == "serverRequest/resolved"
            || address.item.as_ref().is_some_and(super::address::ItemAddress::is_patch);
        let boxed = |id: Id<'_>| id.into_known().map(|id| id.into_owned().into_boxed_str());
        let (thread, turn) = (boxed(address.thread), boxed(address.turn));
        let message = Message::Notification(notification.addressed(thread, turn));
        Routed { message, target, weight, concerns_parent }
    }

    /// Finds out where a request goes.
    pub(super) fn route_request(&self, request: ServerRequest) -> Routed {
        let target = {
            let mut state = self.state();
            let address = request.address();
            state.turn_named(&address, request.method());
            state.target_of_request(request.method(), &address)
        };
        let weight = request.weight();
        Routed { message: Message::Request(request), target, weight, concerns_parent: true }
    }

    /// An inbox that has no room for the message, if there is one.
    pub(super) fn full(&self, routed: &Routed) -> Option<Room> {
        let mut state = self.state();
        let full = |turn: &mut TurnRoute| {
            (!turn.inbox.has_room(routed.weight)).then(|| turn.inbox.room(routed.weight))
        };
        match &routed.target {
            Target::Turn(thread) => state.turn(thread).and_then(full),
            Target::Above(thread) if routed.concerns_parent => state.turn(thread).and_then(full),
            Target::All => state.turns().find_map(full),
            Target::Above(_) | Target::Nobody | Target::Unattributed(_) => None,
        }
    }

    /// Delivers a message.
    pub(super) fn deliver(&self, routed: Routed) {
        let Routed { message, target, weight, concerns_parent } = routed;
        match message {
            Message::Request(request) => self.deliver_request(request, &target, weight),
            Message::Notification(notification) => {
                self.deliver_notification(notification, &target, weight, concerns_parent);
            }
        }
    }

    fn deliver_request(&self, mut request: ServerRequest, target: &Target, weight: usize) {
        let (thread, is_subagent) = match target {
            Target::Turn(thread) => (thread, false),
            Target::Above(thread) => (thread, true),
            Target::All | Target::Nobody => return decline(request),
            Target::Unattributed(thread) => {
                let warning = format!(
                    "declined: it is not known which run `{}` belongs to",
                    request.method()
                );
                if self.state().warn(thread.as_deref(), &warning) {
                    request.decline();
                } else {
                    decline(request);
                }
                return;
            }
        };
        if is_subagent {
            request.mark_subagent();
        }
        let mut state = self.state();
        let Some(turn) = state.turn(thread) else {
            drop(state);
            return decline(request);
        };
        turn.request(request, weight);
    }

    fn deliver_notification(
        &self,
        notification: Notification,
        target: &Target,
        weight: usize,
        concerns_parent: bool,
    ) {
        let mut state = self.state();
        if let (true, Some(thread)) = (notification.is_usage(), notification.thread()) {
            // Replayed by `thread/resume`, possibly ahead of its response: the baseline of the next turn.
            if state.threads.len() < THREADS_KNOWN || state.threads.contains_key(thread) {
                let route = state.threads.entry(thread.to_owned()).or_default();
                route.usage = Some(notification.params.clone());
            }
        }
        match target {
            Target::Turn(thread) => {
                let Some(route) = state.threads.get_mut(thread) else { return };
                route.deliver(notification, weight);
            }
            Target::Above(thread) if concerns_parent => {
                if let Some(turn) = state.turn(thread) {
                    turn.inbox.send(TurnMessage::Subagent(notification), weight);
                }
            }
            Target::All => {
                for turn in state.turns() {
                    turn.inbox.send(TurnMessage::Notification(notification.clone()), weight);
                }
            }
            Target::Unattributed(thread) => state.drifted(&notification.method, thread.as_deref()),
            Target::Above(_) | Target::Nobody => {}
        }
    }

    /// A line that is not JSON.
    pub(super) fn not_json(&self, line: &[u8]) {
        tracing::debug!("the app-server printed a line that is not JSON");
        self.state().warn_of_line(|lines| lines.not_json(line));
    }

    /// A line that was too long to be read and is not a response.
    pub(super) fn too_long(&self, bytes: u64) {
        tracing::warn!(bytes, "a message of the app-server was too long and is skipped");
        self.state().warn_of_line(|lines| lines.too_long(bytes));
    }

    /// The end of a turn on this thread was too long to be read; `false` if that turn is not running. An
    /// end whose turn cannot be read is that of the turn that runs: it would never end otherwise.
    pub(super) fn end_too_long(&self, thread: &str, turn: Option<String>) -> bool {
        self.state().threads.get_mut(thread).is_some_and(|route| route.end_too_long(turn))
    }
}

impl State {
    fn turn(&mut self, thread: &str) -> Option<&mut TurnRoute> {
        self.threads.get_mut(thread)?.turn.as_mut()
    }

    fn turns(&mut self) -> impl Iterator<Item = &mut TurnRoute> {
        self.threads.values_mut().filter_map(|route| route.turn.as_mut())
    }

    /// Learns of sub-agents.
    fn learn(&mut self, address: &Address<'_>) {
        let Some(thread) = address.thread.known() else { return };
        if let Some(parent) = &address.parent {
            self.subagents.learn(thread, parent, self.turn_above(parent));
        }
        if let Some(item) = &address.item {
            for agent in item.started_agents() {
                // A thread that runs a turn of ours is no sub-agent.
                if self.threads.get(agent).is_none_or(|route| route.turn.is_none()) {
                    let parent = item.starter().unwrap_or(thread);
                    self.subagents.learn(agent, parent, self.turn_above(parent));
                }
            }
        }
    }

    /// A message names a turn, which may be that of a sub-agent.
    fn turn_named(&mut self, address: &Address<'_>, method: &str) {
        if let (Some(thread), Some(turn)) = (address.thread.known(), address.turn.known()) {
            let during = self.turn_above(thread);
            self.subagents.turn(thread, turn, method, during);
        }
    }

    /// The turn of ours that runs on this thread, or above it.
    fn turn_above(&self, thread: &str) -> Option<TurnNumber> {
        let number = |thread: &str| Some(self.threads.get(thread)?.turn.as_ref()?.number);
        number(thread).or_else(|| self.subagents.ancestors(thread).find_map(number))
    }

    /// Warns the turns a message may belong to; `false` if none is running.
    fn warn(&mut self, thread: Option<&str>, warning: &str) -> bool {
        let mut warned = false;
        let warn = |turn: &mut TurnRoute| turn.warn(warning);
        match thread {
            Some(thread) => warned = self.turn(thread).map(warn).is_some(),
            None => {
                for turn in self.turns() {
                    warn(turn);
                    warned = true;
                }
            }
        }
        warned
    }

    /// A notification has no readable address.
    fn drifted(&mut self, method: &str, thread: Option<&str>) {
        if !std::mem::replace(&mut self.drift_logged, true) {
            tracing::warn!(
                method = %head(&redact(method)),
                "a message of the app-server names no thread or turn that can be read"
            );
        }
        let warning = format!(
            "the app-server's protocol has drifted: `{method}` names no thread or turn that can be read, and is ignored"
        );
        let report = |turn: &mut TurnRoute| {
            if !std::mem::replace(&mut turn.drift_reported, true) {
                turn.warn(&warning);
            }
        };
        match thread {
            Some(thread) => self.turn(thread).into_iter().for_each(report),
            None => self.turns().for_each(report),
        }
    }

    /// Warns every turn of a line; without one the warning waits for the next.
    fn warn_of_line(&mut self, mut warning: impl FnMut(&mut LineWarnings) -> Option<String>) {
        let mut shown = false;
        for turn in self.turns() {
            shown = true;
            if let Some(warning) = warning(&mut turn.lines) {
                turn.warn(&warning);
            }
        }
        if !shown {
            self.unread.keep(warning);
        }
    }
}

/// Declines a request that no run here owns. Never accepts: no handler was asked.
fn decline(request: ServerRequest) {
    tracing::warn!(
        method = %head(&redact(request.method())),
        "declined: a request of the app-server belongs to no run here"
    );
    request.decline();
}
