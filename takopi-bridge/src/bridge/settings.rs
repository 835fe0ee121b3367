//! How a bridge behaves.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use takopi_core::approvals::ChannelHandler;
use takopi_core::{ApprovalHandler, RunRequest};

use super::{FollowUp, Incoming};
use crate::handler::{FinalBy, Look, Pace};
use crate::present::Chat;
use crate::scheduler::Limits;

/// Which session a message without a resume line goes on with.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Continuity {
    /// That of the message it replies to; one that replies to nothing begins a session.
    #[default]
    Reply,
    /// That of the message it replies to, or the last one of its place: a place is a conversation.
    Place,
}

type Requests = dyn Fn(&Incoming, RunRequest) -> RunRequest + Send + Sync;
type Deciders = dyn Fn(ChannelHandler) -> Arc<dyn ApprovalHandler> + Send + Sync;

/// How a bridge behaves. The defaults suit a chat of people.
///
/// ```
/// use std::sync::Arc;
/// use takopi_bridge::Settings;
/// use takopi_bridge::handler::FinalBy;
/// use takopi_bridge::scheduler::Limits;
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
    pub(super) look: Look,
    pub(super) limits: Limits,
    pub(super) continuity: Continuity,
    pub(super) follow_up: FollowUp,
    pub(super) patience: Duration,
    pub(super) requests: Arc<Requests>,
    pub(super) approvals: Arc<Deciders>,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            look: Look::default(),
            limits: Limits::default(),
            continuity: Continuity::default(),
            follow_up: FollowUp::default(),
            patience: Duration::from_mins(5),
            requests: Arc::new(|_, request| request),
            approvals: Arc::new(|people| Arc::new(people)),
        }
    }
}

impl Settings {
    /// Presents with this.
    pub fn chat(mut self, chat: Chat) -> Self {
        self.look.chat = chat;
        self
    }

    /// Calls the chat so often.
    pub fn pace(mut self, pace: Pace) -> Self {
        self.look.pace = pace;
        self
    }

    /// Says the last word so.
    pub fn final_by(mut self, by: FinalBy) -> Self {
        self.look.final_by = by;
        self
    }

    /// Lets so much go on at once.
    pub fn limits(mut self, limits: Limits) -> Self {
        self.limits = limits;
        self
    }

    /// Which session a message without a resume line goes on with.
    pub fn continuity(mut self, continuity: Continuity) -> Self {
        self.continuity = continuity;
        self
    }

    /// What to do with a message whose session is busy, unless the message says.
    pub fn follow_up(mut self, follow_up: FollowUp) -> Self {
        self.follow_up = follow_up;
        self
    }

    /// How long people may take to answer a question; five minutes if not set.
    pub fn patience(mut self, patience: Duration) -> Self {
        self.patience = patience;
        self
    }

    /// Makes the request of a message: directory, model, limits. Prompt, session, cancellation and
    /// approvals are the bridge's.
    pub fn requests(
        mut self,
        make: impl Fn(&Incoming, RunRequest) -> RunRequest + Send + Sync + 'static,
    ) -> Self {
        self.requests = Arc::new(make);
        self
    }

    /// Who decides what an agent may do. The closure gets the handler that asks in the chat, and may
    /// put another before it, or in its place; without this, everything is asked in the chat.
    pub fn approvals(
        mut self,
        make: impl Fn(ChannelHandler) -> Arc<dyn ApprovalHandler> + Send + Sync + 'static,
    ) -> Self {
        self.approvals = Arc::new(make);
        self
    }
}

impl fmt::Debug for Settings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Settings")
            .field("look", &self.look)
            .field("limits", &self.limits)
            .field("continuity", &self.continuity)
            .field("follow_up", &self.follow_up)
            .field("patience", &self.patience)
            .finish_non_exhaustive()
    }
}
