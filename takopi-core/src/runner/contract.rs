//! The order of events, held against an engine that breaks it.
//!
//! Pure: events in, verdicts out. At most one `Started`, of the session that was asked for; exactly
//! one `Completed`, filled in where the engine left gaps; nothing behind it.

use crate::model::{Completed, Reason, ResumeToken, Started, TakopiEvent};
use crate::runner::ResumeCodec;

/// What becomes of an event.
#[derive(Debug)]
pub(super) enum Verdict {
    /// It goes to the consumer.
    Pass(TakopiEvent),
    /// It goes to the consumer once the session's lock is held; [`Contract::confirm`] is told then.
    Start(Started),
    /// The run is over.
    Finish(Completed),
    /// It is dropped.
    Ignore(&'static str),
    /// The engine broke the contract: the run ends.
    Break(Reason, String),
}

pub(super) struct Contract {
    codec: ResumeCodec,
    asked: Option<ResumeToken>,
    /// The session that the engine named first.
    session: Option<ResumeToken>,
    /// Whether the consumer knows of it.
    started: bool,
    over: bool,
}

impl Contract {
    pub(super) fn new(codec: ResumeCodec, asked: Option<ResumeToken>) -> Self {
        Self { codec, asked, session: None, started: false, over: false }
    }

    pub(super) fn admit(&mut self, event: TakopiEvent) -> Verdict {
        if self.over {
            return Verdict::Ignore("an event behind the end of the run");
        }
        match event {
            TakopiEvent::Started(started) => self.started(started),
            TakopiEvent::Completed(completed) => self.completed(completed),
            other @ TakopiEvent::Action(_) => Verdict::Pass(other),
        }
    }

    /// `Started` was passed on.
    pub(super) fn confirm(&mut self) {
        self.started = true;
    }

    /// Whether actions are let through as they are.
    pub(super) fn is_open(&self) -> bool {
        !self.over
    }

    /// Nothing more is let through.
    pub(super) fn close(&mut self) {
        self.over = true;
    }

    /// The session that was named, else the one that was asked for.
    pub(super) fn resume(&self) -> Option<ResumeToken> {
        self.session.clone().or_else(|| self.asked.clone())
    }

    fn started(&mut self, mut started: Started) -> Verdict {
        let named = &started.resume.value;
        let Some(token) = self.codec.token(named) else {
            return Verdict::Break(
                Reason::Protocol,
                format!("the engine named no session but {named:?}"),
            );
        };
        if let Some(session) = &self.session
            && *session != token
        {
            let error = format!("the engine changed from session {} to {named}", session.value);
            return Verdict::Break(Reason::Protocol, error);
        }
        if self.started {
            return Verdict::Ignore("a second start of the same session");
        }
        if let Some(asked) = &self.asked
            && *asked != token
        {
            let error =
                format!("session {} was asked for, and the engine opened {named}", asked.value);
            return Verdict::Break(Reason::Protocol, error);
        }
        started.resume = token.clone();
        self.session = Some(token);
        Verdict::Start(started)
    }

    fn completed(&mut self, mut completed: Completed) -> Verdict {
        self.over = true;
        if completed.ok && !self.started {
            completed.ok = false;
            completed.reason = Some(Reason::Protocol);
            completed.error = Some("the engine ended without naming its session".to_owned());
        }
        if !completed.ok {
            completed.reason.get_or_insert(Reason::EngineFailed);
            completed
                .error
                .get_or_insert_with(|| "the engine did not say why it failed".to_owned());
        }
        completed.resume = self.resume();
        Verdict::Finish(completed)
    }
}
