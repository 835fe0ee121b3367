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
    /// The session's lock must be taken first.
    Claim(Started),
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
    session: Option<ResumeToken>,
    over: bool,
}

impl Contract {
    pub(super) fn new(codec: ResumeCodec, asked: Option<ResumeToken>) -> Self {
        Self { codec, asked, session: None, over: false }
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

    /// Nothing more is let through.
    pub(super) fn close(&mut self) {
        self.over = true;
    }

    /// The session that was confirmed, else the one that was asked for.
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
        if let Some(session) = &self.session {
            return if *session == token {
                Verdict::Ignore("a second start of the same session")
            } else {
                let error = format!("the engine changed from session {} to {named}", session.value);
                Verdict::Break(Reason::Protocol, error)
            };
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
        if self.asked.is_some() {
            // Its lock has been held since before the engine was started.
            Verdict::Pass(started.into())
        } else {
            Verdict::Claim(started)
        }
    }

    fn completed(&mut self, mut completed: Completed) -> Verdict {
        self.over = true;
        if completed.ok && self.session.is_none() {
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
