//! The runner contract: a request in, one ordered stream of events out.
//!
//! [`Runner`] is what consumers hold. [`Engine`] is what an engine's author writes, and
//! [`EngineRunner`] turns any engine into a runner: it takes the session's lock, passes events on
//! in order, applies the limits, and makes sure that every run ends with exactly one `Completed`,
//! whatever the engine does.

mod approval;
mod buffer;
mod clock;
mod contract;
mod desk;
mod drive;
mod engine;
mod request;
mod resume;
mod shared;
mod slot;
mod steer;
mod stream;

use futures::future::BoxFuture;

use crate::locks::{LockError, SessionGuard};
use crate::model::{Completed, EngineId, ResumeToken};

pub use approval::{
    Access, ApprovalHandler, ApprovalKind, ApprovalRequest, ChangeKind, Command, Decision, Excerpt,
    FileAccess, FileChange, FileScope, Form, FormField, Location, Network, Patch, Permissions,
    Question, QuestionOption, Reply, ToolCall, Unknown, Unrecognized, UserQuestion,
};
pub(crate) use approval::{real_path, words};
pub use desk::{Desk, Outcome, Settled};
pub use drive::{EngineRunner, STOP_LIMIT};
pub use engine::{EmitError, Engine, EngineRun, RunError, SessionScope, StoppedError};
pub use request::RunRequest;
pub use resume::{ResumeCodec, lower_case_uuid};
pub use shared::WAIT_ACTION;
pub use steer::{
    SteerError, SteerMessage, SteerMessages, SteerReceiver, SteerSender, steer_channel,
};
pub use stream::EventStream;

/// Runs an engine. Object-safe: bridges hold many of them as `Arc<dyn Runner>`.
pub trait Runner: Send + Sync {
    /// The engine's name.
    fn engine(&self) -> EngineId;

    /// Runs one turn. The run goes on whether or not the stream is polled, until its bounded buffer
    /// is full.
    fn run(&self, request: RunRequest) -> EventStream;

    /// Runs one turn to its end.
    fn ask(&self, request: RunRequest) -> BoxFuture<'_, Completed> {
        Box::pin(self.run(request).completed())
    }

    /// How its session ids and resume lines are written.
    fn resume_codec(&self) -> ResumeCodec;

    /// The token of a session id, in canonical form; `None` if it is no id of this engine.
    fn token(&self, id: &str) -> Option<ResumeToken> {
        self.resume_codec().token(id)
    }

    /// The line a person can paste to go on with the session, e.g. `` `codex resume <id>` ``.
    fn format_resume(&self, token: &ResumeToken) -> String {
        self.resume_codec().format(token)
    }

    /// The session that the last resume line in the text names.
    fn extract_resume(&self, text: &str) -> Option<ResumeToken> {
        self.resume_codec().extract(text)
    }

    /// Whether the line is a resume line of this engine and nothing else.
    fn is_resume_line(&self, line: &str) -> bool {
        self.resume_codec().is_line(line)
    }

    /// Takes the lock of a session as a run would, for work on its files: waits until no run uses the session and nothing has it
    /// loaded, and keeps it so until the guard is dropped. `None` if its sessions are not locked on this machine.
    fn hold<'a>(
        &'a self,
        session: &'a ResumeToken,
    ) -> BoxFuture<'a, Result<Option<SessionGuard>, LockError>> {
        let _ = session;
        Box::pin(std::future::ready(Ok(None)))
    }

    /// Ends the processes that are kept between runs, and waits until every process is gone.
    fn shutdown(&self) -> BoxFuture<'_, ()>;
}
