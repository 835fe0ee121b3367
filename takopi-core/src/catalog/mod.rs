//! What a program needs to know about an engine besides running it.
//!
//! An engine's crate provides one [`EngineEntry`]: how to construct a runner, which options it
//! understands, where its sessions are stored, how to check its installation, and what to advise when a
//! run fails. A program with a list of entries needs no other knowledge of any engine: adding an engine
//! to it is adding one entry to the list.

mod files;
mod finding;
mod portable;
mod program;
mod sessions;

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use thiserror::Error;

use crate::model::{Completed, EngineId};
use crate::process::EnvPolicy;
use crate::runner::Runner;

pub use files::{SessionFiles, SessionFormat};
pub use finding::{Finding, Status};
pub use portable::{PortableFile, PortableSessions};
pub use program::{Program, output};
pub use sessions::{Role, SessionError, SessionStore, StoredSession, TranscriptEntry};

/// An engine, as a program offers it to its users.
///
/// ```
/// use takopi_core::catalog::{EngineEntry, EngineSetup, Feature};
/// use takopi_core::demo::DemoEntry;
///
/// let entries: [&dyn EngineEntry; 1] = [&DemoEntry];
/// let demo = entries.iter().find(|entry| entry.id().as_str() == "demo").unwrap();
/// assert!(demo.default_transport().supports(Feature::Approvals));
/// let runner = demo.runner(&EngineSetup::new())?;
/// # Ok::<(), takopi_core::catalog::SetupError>(())
/// ```
pub trait EngineEntry: Send + Sync {
    /// The engine's name, as users type it.
    fn id(&self) -> EngineId;

    /// One line about the engine, e.g. `OpenAI Codex`.
    fn title(&self) -> &str;

    /// The transports it can be run over, at least one; the first is the default.
    fn transports(&self) -> &[TransportInfo];

    /// The [settings](crate::RunSettings::NAMES) it understands beyond those that takopi itself applies to every
    /// engine ([`COMMON_SETTINGS`]).
    fn settings(&self) -> &[&str];

    /// The program it runs, if it runs one.
    fn program(&self) -> Option<&Program> {
        None
    }

    /// Whether its program is found, or it needs none.
    fn is_installed(&self) -> bool {
        self.program().is_none_or(Program::is_installed)
    }

    /// Constructs a runner.
    fn runner(&self, setup: &EngineSetup) -> Result<Arc<dyn Runner>, SetupError>;

    /// The sessions it has stored on this machine; `None` if it stores none, or takopi cannot read them
    /// ([`store`](Self::store)).
    fn sessions(&self) -> Result<Option<Box<dyn SessionStore>>, SessionError> {
        Ok(None)
    }

    /// Its sessions as files that can be copied to another machine; `None` if they cannot.
    fn portable(&self, setup: &EngineSetup) -> Option<Arc<dyn PortableSessions>> {
        let _ = setup;
        None
    }

    /// The name of the store that its sessions are in, for an engine without [`sessions`](Self::sessions) whose agent keeps
    /// them all the same. If it is the name of another engine, that one lists them.
    fn store(&self) -> Option<&str> {
        None
    }

    /// Checks the installation: program, version, login.
    fn doctor<'a>(&'a self, setup: &'a EngineSetup) -> BoxFuture<'a, Vec<Finding>> {
        let _ = setup;
        Box::pin(std::future::ready(Vec::new()))
    }

    /// What a person can do about a failed run, where that depends on the engine.
    fn hint(&self, completed: &Completed) -> Option<String> {
        let _ = completed;
        None
    }

    /// What a person can do when the agent's commands were refused under this sandbox.
    fn sandbox_hint(&self, sandbox: Option<&str>) -> Option<String> {
        let _ = sandbox;
        None
    }

    /// What lets the agent change files without asking, for a hint to a person.
    fn edits_hint(&self) -> Option<&'static str> {
        None
    }

    /// The transport that is used unless another is asked for.
    fn default_transport(&self) -> &TransportInfo {
        self.transports().first().unwrap_or(&NO_TRANSPORT)
    }

    /// The transport of this name, or the default one.
    fn transport(&self, name: Option<&str>) -> Result<&TransportInfo, SetupError> {
        let Some(name) = name else { return Ok(self.default_transport()) };
        let found = self.transports().iter().find(|transport| transport.name == name);
        found.ok_or_else(|| {
            let known: Vec<&str> = self.transports().iter().map(|it| it.name).collect();
            SetupError::new(format!(
                "{} has no transport `{name}`; it has {}",
                self.id(),
                known.join(", ")
            ))
        })
    }

    /// Whether it understands a setting.
    fn understands(&self, setting: &str) -> bool {
        COMMON_SETTINGS.contains(&setting) || self.settings().contains(&setting)
    }
}

impl fmt::Debug for dyn EngineEntry + '_ {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "EngineEntry({})", self.id())
    }
}

/// The settings that takopi applies itself, whatever the engine.
pub const COMMON_SETTINGS: &[&str] = &["cwd", "wait", "idle_timeout", "wall_timeout"];

const NO_TRANSPORT: TransportInfo = TransportInfo::new("none", "", &[]);

/// One way to run an engine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct TransportInfo {
    /// Its name, as users type it.
    pub name: &'static str,
    /// One line about it.
    pub about: &'static str,
    /// What the engine supports over it.
    pub features: &'static [Feature],
}

impl TransportInfo {
    /// A transport.
    pub const fn new(
        name: &'static str,
        about: &'static str,
        features: &'static [Feature],
    ) -> Self {
        Self { name, about, features }
    }

    /// Whether the engine supports this over the transport.
    pub fn supports(&self, feature: Feature) -> bool {
        self.features.contains(&feature)
    }
}

/// What an engine may or may not support.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Feature {
    /// The agent can ask for approval while it runs.
    Approvals,
    /// A message can be added to a running turn.
    Steering,
    /// The host can offer tools of its own.
    HostTools,
    /// A prompt can have images.
    Images,
    /// The answer is streamed as it is written.
    Deltas,
    /// A session can be resumed, also by another process.
    Resume,
    /// A session need not be stored.
    Ephemeral,
}

impl Feature {
    /// Every feature.
    pub const ALL: [Self; 7] = [
        Self::Approvals,
        Self::Steering,
        Self::HostTools,
        Self::Images,
        Self::Deltas,
        Self::Resume,
        Self::Ephemeral,
    ];

    /// Its name, for people and in JSON.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Approvals => "approvals",
            Self::Steering => "steering",
            Self::HostTools => "host_tools",
            Self::Images => "images",
            Self::Deltas => "deltas",
            Self::Resume => "resume",
            Self::Ephemeral => "ephemeral",
        }
    }
}

/// How an engine is set up for all runs of a program.
#[derive(Debug, Clone, Default)]
#[non_exhaustive]
pub struct EngineSetup {
    /// The transport, by name; the engine's default if not set.
    pub transport: Option<String>,
    /// The program to run; the one on the `PATH` if not set.
    pub program: Option<PathBuf>,
    /// How long an idle session is kept warm; zero keeps none.
    pub keep_warm: Duration,
    /// How many runs are busy at once, for a runner whose sessions share processes; not set, each live
    /// session has its own.
    pub shared_by: Option<usize>,
    /// Which variables the engine inherits.
    pub env_policy: EnvPolicy,
    /// Whether hooks, tool servers and settings in files of the working directory apply without a question.
    /// Off by default: they can run commands of whoever wrote them.
    pub project_settings: bool,
    /// Whether the agent may leave work in the background that outlasts its answer; the engine's default
    /// if not set.
    pub background: Option<bool>,
    /// Options of the engine, as `key`, `value`: those of [`RunSettings::options`](crate::RunSettings::options).
    pub options: Vec<(String, String)>,
}

impl EngineSetup {
    /// The engine's defaults; nothing is kept warm.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets [`Self::transport`].
    pub fn transport(mut self, name: impl Into<Option<String>>) -> Self {
        self.transport = name.into();
        self
    }

    /// Sets [`Self::program`].
    pub fn program(mut self, program: impl Into<Option<PathBuf>>) -> Self {
        self.program = program.into();
        self
    }

    /// Sets [`Self::keep_warm`].
    pub fn keep_warm(mut self, keep_warm: Duration) -> Self {
        self.keep_warm = keep_warm;
        self
    }

    /// Sets [`Self::shared_by`].
    pub fn shared_by(mut self, busy: usize) -> Self {
        self.shared_by = Some(busy);
        self
    }

    /// Sets [`Self::env_policy`].
    pub fn env_policy(mut self, policy: EnvPolicy) -> Self {
        self.env_policy = policy;
        self
    }

    /// Sets [`Self::project_settings`].
    pub fn project_settings(mut self, apply: bool) -> Self {
        self.project_settings = apply;
        self
    }

    /// Sets [`Self::background`].
    pub fn background(mut self, allowed: impl Into<Option<bool>>) -> Self {
        self.background = allowed.into();
        self
    }

    /// Sets [`Self::options`].
    pub fn options(mut self, options: Vec<(String, String)>) -> Self {
        self.options = options;
        self
    }
}

/// An engine cannot be set up as asked.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{message}")]
pub struct SetupError {
    message: String,
}

impl SetupError {
    /// An error with this message.
    pub fn new(message: impl Into<String>) -> Self {
        Self { message: message.into() }
    }
}
