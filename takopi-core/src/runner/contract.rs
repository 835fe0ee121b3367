//! Checks the order of an engine's events.
//!
//! Pure: an event in, an [`Admission`] out. At most one `Started`, of the requested session; exactly
//! one `Completed`, with missing fields filled in; nothing after it.

use crate::model::{Completed, Reason, ResumeToken, Started, TakopiEvent};
use crate::runner::{ResumeCodec, RunError};

/// What happens to an event.
#[derive(Debug)]
pub(super) enum Admission {
    /// It goes to the consumer.
    Pass(TakopiEvent),
    /// It goes to the consumer once the session's lock is held; [`Contract::confirm`] is called then.
    Start(Started),
    /// The run is over.
    Finish(Box<Completed>),
    /// It is dropped.
    Ignore(&'static str),
    /// The engine broke the contract: the run ends.
    Break(RunError),
}

/// How far the run is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// The consumer has no `Started` yet.
    Opening,
    /// The consumer has `Started`.
    Started,
    /// `Completed` was admitted, or takopi closed the run.
    Over,
}

pub(super) struct Contract {
    codec: ResumeCodec,
    requested: Option<ResumeToken>,
    /// The session that the engine named first.
    session: Option<ResumeToken>,
    stage: Stage,
    ephemeral: bool,
}

impl Contract {
    pub(super) fn new(codec: ResumeCodec, requested: Option<ResumeToken>) -> Self {
        Self { codec, requested, session: None, stage: Stage::Opening, ephemeral: false }
    }

    /// Sets whether the session is not stored: its end then offers none to resume.
    pub(super) fn ephemeral(mut self, ephemeral: bool) -> Self {
        self.ephemeral = ephemeral;
        self
    }

    pub(super) fn admit(&mut self, event: TakopiEvent) -> Admission {
        if self.stage == Stage::Over {
            return Admission::Ignore("an event after the end of the run");
        }
        match event {
            TakopiEvent::Started(started) => self.started(started),
            TakopiEvent::Completed(completed) => self.completed(completed),
            other @ TakopiEvent::Action(_) => Admission::Pass(other),
        }
    }

    /// `Started` was passed on.
    pub(super) fn confirm(&mut self) {
        if self.stage == Stage::Opening {
            self.stage = Stage::Started;
        }
    }

    /// Whether actions are passed on.
    pub(super) fn is_open(&self) -> bool {
        self.stage != Stage::Over
    }

    /// Drops all further events.
    pub(super) fn close(&mut self) {
        self.stage = Stage::Over;
    }

    /// The session that the engine named, else the requested one.
    pub(super) fn session(&self) -> Option<ResumeToken> {
        self.session.clone().or_else(|| self.requested.clone())
    }

    /// The same; none if it is not stored.
    pub(super) fn resume(&self) -> Option<ResumeToken> {
        self.session().filter(|_| !self.ephemeral)
    }

    fn started(&mut self, mut started: Started) -> Admission {
        let named = &started.resume.value;
        let Some(token) = self.codec.token(named) else {
            return broken(format!("the engine reported an invalid session id: {named:?}"));
        };
        if let Some(session) = &self.session
            && *session != token
        {
            return broken(format!("the engine changed from session {} to {named}", session.value));
        }
        if self.stage == Stage::Started {
            return Admission::Ignore("a second start of the same session");
        }
        if let Some(requested) = &self.requested
            && *requested != token
        {
            return broken(format!(
                "session {} was requested, but the engine opened {named}",
                requested.value
            ));
        }
        started.resume = token.clone();
        self.session = Some(token);
        Admission::Start(started)
    }

    fn completed(&mut self, mut completed: Box<Completed>) -> Admission {
        let stage = std::mem::replace(&mut self.stage, Stage::Over);
        if completed.ok && stage == Stage::Opening {
            completed.ok = false;
            completed.reason = Some(Reason::Protocol);
            completed.error = Some("the engine ended without reporting its session".to_owned());
        }
        if !completed.ok {
            completed.reason.get_or_insert(Reason::EngineFailed);
            completed
                .error
                .get_or_insert_with(|| "the engine failed without an error message".to_owned());
        }
        completed.resume = self.resume();
        Admission::Finish(completed)
    }
}

fn broken(message: String) -> Admission {
    Admission::Break(RunError::new(Reason::Protocol, message))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn actions_are_passed_on_until_the_run_is_completed_or_closed() {
        let lab = || crate::model::EngineId::from_static("lab");
        let new = || Contract::new(ResumeCodec::new(lab(), "lab", |id| Some(id.to_owned())), None);
        let mut contract = new();
        assert!(contract.is_open());
        contract.confirm();
        assert!(contract.is_open());
        contract.admit(Completed::success(lab(), "").into());
        assert!(!contract.is_open());
        let mut contract = new();
        contract.close();
        assert!(!contract.is_open());
    }
}
