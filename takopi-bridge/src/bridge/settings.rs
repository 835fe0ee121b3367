//! How a bridge behaves.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use takopi_core::approvals::ChannelHandler;
use takopi_core::{ApprovalHandler, RunRequest};

use super::{Incoming, WhileBusy};
use crate::handler::{FinalBy, HandlerOptions};
use crate::outbox::Pace;
use crate::present::Chat;
use crate::scheduler::Limits;

/// Which session a message without a resume line resumes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Continuity {
    /// That of the message it replies to; a message that is no reply starts a session.
    #[default]
    Reply,
    /// That of the message it replies to, else the last one of its place: a place is one conversation. A
    /// message there also answers a question of the agent that takes a text.
    Place,
}

type RequestFn = dyn Fn(&Incoming, RunRequest) -> RunRequest + Send + Sync;
type ApprovalFn = dyn Fn(&Incoming, ChannelHandler) -> Arc<dyn ApprovalHandler> + Send + Sync;

/// How a bridge behaves. The defaults suit a chat of people.
///
/// ```
/// use std::sync::Arc;
/// use takopi_bridge::{FinalBy, Limits, Settings};
/// use takopi_core::approvals::Rules;
///
/// let settings = Settings::default()
///     .limits(Limits::new(4, 100))
///     .final_by(FinalBy::Edit)
///     .requests(|message, request| match message.place.thread.as_deref() {
///         Some("docs") => request.cwd("/srv/docs"),
///         _ => request.cwd("/srv/project").model("gpt-5"),
///     })
///     .approvals(|people| Arc::new(Rules::new().command("cargo test").otherwise(people)));
/// # drop(settings);
/// ```
#[derive(Clone)]
pub struct Settings {
    pub(super) handler: HandlerOptions,
    pub(super) limits: Limits,
    pub(super) continuity: Continuity,
    pub(super) while_busy: WhileBusy,
    pub(super) patience: Duration,
    pub(super) requests: Arc<RequestFn>,
    pub(super) approvals: Arc<ApprovalFn>,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            handler: HandlerOptions::default(),
            limits: Limits::default(),
            continuity: Continuity::default(),
            while_busy: WhileBusy::default(),
            patience: Duration::from_mins(5),
            requests: Arc::new(|_, request| request),
            approvals: Arc::new(|_, people| Arc::new(people)),
        }
    }
}

impl Settings {
    /// Sets how messages are written, and the limit on their length.
    pub fn chat(mut self, chat: Chat) -> Self {
        self.handler.chat = chat;
        self
    }

    /// Sets how often the chat is called, and for how long.
    pub fn pace(mut self, pace: Pace) -> Self {
        self.handler.pace = pace;
        self
    }

    /// Sets how the final message is delivered.
    pub fn final_by(mut self, by: FinalBy) -> Self {
        self.handler.final_by = by;
        self
    }

    /// Sets how many jobs run and wait at once.
    pub fn limits(mut self, limits: Limits) -> Self {
        self.limits = limits;
        self
    }

    /// Sets which session a message without a resume line resumes.
    pub fn continuity(mut self, continuity: Continuity) -> Self {
        self.continuity = continuity;
        self
    }

    /// Sets what happens to a message whose session is busy, unless the message itself sets it.
    pub fn while_busy(mut self, while_busy: WhileBusy) -> Self {
        self.while_busy = while_busy;
        self
    }

    /// Sets how long people may take to decide a request; five minutes by default.
    pub fn patience(mut self, patience: Duration) -> Self {
        self.patience = patience;
        self
    }

    /// Completes the request of a message: directory, model, limits. The bridge sets prompt, session,
    /// cancellation and approvals.
    pub fn requests(
        mut self,
        make: impl Fn(&Incoming, RunRequest) -> RunRequest + Send + Sync + 'static,
    ) -> Self {
        self.requests = Arc::new(make);
        self
    }

    /// Sets the approval handler. The closure gets the handler that asks in the chat, and may put
    /// another one in front of it or in its place. By default every request is shown in the chat.
    pub fn approvals(
        self,
        make: impl Fn(ChannelHandler) -> Arc<dyn ApprovalHandler> + Send + Sync + 'static,
    ) -> Self {
        self.approvals_for(move |_, people| make(people))
    }

    /// Sets the approval handler of each message. The closure gets the message, and the handler that asks in
    /// the chat.
    pub fn approvals_for(
        mut self,
        make: impl Fn(&Incoming, ChannelHandler) -> Arc<dyn ApprovalHandler> + Send + Sync + 'static,
    ) -> Self {
        self.approvals = Arc::new(make);
        self
    }
}

impl fmt::Debug for Settings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Settings")
            .field("handler", &self.handler)
            .field("limits", &self.limits)
            .field("continuity", &self.continuity)
            .field("while_busy", &self.while_busy)
            .field("patience", &self.patience)
            .finish_non_exhaustive()
    }
}
