//! How a session comes to be on an agent's process: the handshake, a new session or a stored one, its settings.
//!
//! Promises:
//! - version 1 of the protocol is spoken, and an agent that answers with another one is refused;
//! - a stored session is resumed, or loaded with its replay dropped; there never is a new session in its place, and an
//!   agent that opens another one than asked for ends the run;
//! - a setting that the agent does not have is refused by name, before the prompt is sent.

use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use serde_json::{Value, json};
use takopi_core::keeper::OpenError;
use takopi_core::model::{Reason, ResumeToken};
use takopi_core::runner::{EngineRun, RunError, StoppedError};

use crate::agent::Rest;
use crate::client::{Client, ClientError};
use crate::launch::{AcpLaunch, Settings};
use crate::wire::{AgentInfo, ConfigOption, SessionPage, SessionReply};
use crate::{Agent, failure};

/// How long an agent may take to start. On a busy machine it takes ten times as long as on a quiet one.
const START_LIMIT: Duration = Duration::from_mins(2);
/// How long it may take to change a setting.
const SETTING_LIMIT: Duration = Duration::from_secs(30);
/// How soon a session that another process holds is asked for again, at first and at the latest.
const ASK_AGAIN: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(1));
/// The most pages of an agent's list of sessions that are read.
const PAGES: usize = 100;
/// How often it is looked whether a session was left alone for long enough.
const LOOK: Duration = Duration::from_secs(1);

/// Opens sessions on one process.
pub(crate) struct Opener<'a> {
    pub(crate) run: &'a EngineRun,
    pub(crate) agent: &'a Agent,
    pub(crate) client: &'a Client,
    pub(crate) launch: &'a AcpLaunch,
}

/// A session that was opened.
pub(crate) struct Opened {
    pub(crate) token: ResumeToken,
    /// The directory in which it works.
    pub(crate) directory: PathBuf,
    /// Its permission mode, if the agent has any.
    pub(crate) mode: Option<String>,
}

impl Opener<'_> {
    /// The handshake.
    pub(crate) async fn initialize(&self) -> Result<AgentInfo, OpenError> {
        let params = json!({
            "protocolVersion": 1,
            "clientCapabilities": {
                "fs": { "readTextFile": false, "writeTextFile": false },
                "terminal": false,
                // Warnings of the agent come as such, not as text of the model.
                "session": { "notices": {} },
            },
            "clientInfo": { "name": "takopi", "title": "takopi", "version": env!("CARGO_PKG_VERSION") },
        });
        let reply = self.call("initialize", &params, START_LIMIT).await?;
        let reply = match reply {
            Ok(reply) => reply,
            Err(error) => return Err(self.failed(error, failure::of_new).await.into()),
        };
        let info = AgentInfo::read(&reply);
        if info.protocol != Some(1) {
            let spoken = info.protocol.map_or("none".to_owned(), |version| version.to_string());
            let title = self.agent.title();
            let error = format!(
                "{title} speaks version {spoken} of the Agent Client Protocol, and takopi speaks version 1"
            );
            return Err(RunError::new(Reason::Protocol, error).into());
        }
        Ok(info)
    }

    /// The session of the run, new or stored, with its settings.
    pub(crate) async fn open(&self, info: &AgentInfo) -> Result<Opened, OpenError> {
        let (token, reply, directory) = if let Some(session) = &self.run.resume {
            let directory = self.directory(info, session).await?;
            let reply = self.stored(info, session, &directory).await?;
            (session.clone(), reply, directory)
        } else {
            let (token, reply) = self.new_session().await?;
            (token, reply, self.launch.cwd.clone())
        };
        let mode = self.configure(&token.value, &reply).await?;
        Ok(Opened { token, directory, mode })
    }

    /// The directory in which a stored session works.
    async fn directory(
        &self,
        info: &AgentInfo,
        session: &ResumeToken,
    ) -> Result<PathBuf, OpenError> {
        let cwd = self.launch.cwd.clone();
        if !self.agent.quirks.keeps_directory || !info.lists {
            return Ok(cwd);
        }
        let own = self.listed_directory(&session.value).await?.unwrap_or_else(|| cwd.clone());
        if own != cwd {
            self.run.note(format!("the session works in {}", own.display())).await?;
        }
        Ok(own)
    }

    async fn new_session(&self) -> Result<(ResumeToken, SessionReply), OpenError> {
        let params = json!({ "cwd": self.launch.cwd, "mcpServers": self.launch.mcp_servers() });
        let reply = match self.call("session/new", &params, START_LIMIT).await? {
            Ok(reply) => SessionReply::read(&reply),
            Err(error) => return Err(self.failed(error, failure::of_new).await.into()),
        };
        let id = reply.id.as_deref().unwrap_or_default();
        let token = self.agent.resume_codec().token(id).ok_or_else(|| {
            let error = format!("{} named its session {id:?}, which is no id", self.agent.title());
            RunError::new(Reason::Protocol, error)
        })?;
        Ok((token, reply))
    }

    async fn stored(
        &self,
        info: &AgentInfo,
        session: &ResumeToken,
        directory: &Path,
    ) -> Result<SessionReply, OpenError> {
        let method = match info {
            AgentInfo { resumes: true, .. } => "session/resume",
            AgentInfo { loads: true, .. } => "session/load",
            _ => {
                let error = format!("{} cannot resume sessions", self.agent.title());
                return Err(RunError::new(Reason::InvalidRequest, error).into());
            }
        };
        if let Some(rest) = self.agent.quirks.rest {
            self.let_rest(rest, &session.value).await?;
        }
        let params = json!({
            "sessionId": session.value,
            "cwd": directory,
            "mcpServers": self.launch.mcp_servers(),
        });
        let (mut pause, longest) = ASK_AGAIN;
        let reply = loop {
            match self.call(method, &params, START_LIMIT).await? {
                Ok(reply) => break SessionReply::read(&reply),
                Err(ClientError::Refused(error)) if failure::is_busy(&error) => {
                    let holder = "another process of the agent";
                    if !self.run.wait_for_session(holder, pause).await? {
                        let error = format!("the session is held by {holder}");
                        return Err(RunError::new(Reason::SessionBusy, error).into());
                    }
                    pause = (pause * 2).min(longest);
                }
                Err(error) => {
                    let of_resume =
                        |agent: &Agent, error: &_| failure::of_resume(agent, &session.value, error);
                    return Err(self.failed(error, of_resume).await.into());
                }
            }
        };
        if let Some(other) = reply.id.as_deref().filter(|id| *id != session.value) {
            let title = self.agent.title();
            let error = format!("{title} opened session {other} in place of the one asked for");
            return Err(RunError::new(Reason::Protocol, error).into());
        }
        if method == "session/load" {
            self.unless_stopped(self.client.quiet(self.agent.quirks.quiet)).await?;
        }
        Ok(reply)
    }

    /// The directory that a session was begun in, if the agent lists it.
    async fn listed_directory(&self, session: &str) -> Result<Option<PathBuf>, OpenError> {
        let mut params = json!({});
        for _ in 0..PAGES {
            // An agent that does not answer this may still resume the session.
            let Ok(page) = self.call("session/list", &params, START_LIMIT).await? else { break };
            let page = SessionPage::read(&page);
            if let Some((_, cwd)) = page.sessions.into_iter().find(|(id, _)| id == session) {
                return Ok(Some(PathBuf::from(cwd)));
            }
            let Some(cursor) = page.next else { break };
            params = json!({ "cursor": cursor });
        }
        Ok(None)
    }

    /// Waits until the files of a session were left alone for long enough.
    async fn let_rest(&self, rest: Rest, session: &str) -> Result<(), OpenError> {
        let (env, session) = (self.run.request.env.clone(), session.to_owned());
        let home = move || {
            let set = |name: &str| {
                let own = env.iter().rev().find(|(known, _)| known == name);
                own.map(|(_, value)| value.clone()).or_else(|| std::env::var_os(name))
            };
            set(rest.home).or_else(|| set("HOME")).map(PathBuf::from)
        };
        let directory = home().map(|home| home.join(rest.directory)).unwrap_or_default();
        loop {
            let (directory, session) = (directory.clone(), session.clone());
            let written = tokio::task::spawn_blocking(move || last_write(&directory, &session, 4));
            let written = written.await.ok().flatten();
            let age = written.and_then(|written| SystemTime::now().duration_since(written).ok());
            let Some(left) = age.and_then(|age| rest.age.checked_sub(age)) else { return Ok(()) };
            let holder =
                "its last write: the agent loses a session that is loaded within a minute of it";
            if !self.run.wait_for_session(holder, left.min(LOOK)).await? {
                let error = format!("the session may be loaded in {} s", left.as_secs() + 1);
                return Err(RunError::new(Reason::SessionBusy, error).into());
            }
        }
    }

    /// Sets what the request asks for. Returns the permission mode that the session is in then, if it is known.
    async fn configure(
        &self,
        session: &str,
        offered: &SessionReply,
    ) -> Result<Option<String>, OpenError> {
        let Settings { model, effort, mode, options } = &self.launch.settings;
        let asking = self.agent.quirks.asking_mode.map(str::to_owned);
        let is_wanted = |mode: &String| offered.mode.as_ref() != Some(mode);
        let mode = match mode {
            Some(mode) => Some(mode.clone()),
            // An agent that no longer has this mode is left as it is.
            None => asking
                .filter(|mode| offered.modes.as_ref().is_some_and(|modes| modes.contains(mode))),
        };
        let mut set = mode.clone().or_else(|| offered.mode.clone());
        if let Some(mode) = mode.filter(is_wanted) {
            let known = offered.category("mode");
            if let Some(modes) = &offered.modes {
                let params = json!({ "sessionId": session, "modeId": mode });
                self.check_value("permission mode", &mode, modes)?;
                self.set("permission mode", &mode, "session/set_mode", &params).await?;
            } else if let Some(option) = known {
                self.set_option(session, "permission mode", option, &mode).await?;
            } else {
                return Err(self.has_no("permission modes").into());
            }
        }
        if let Some(model) = model {
            if let Some(option) = offered.category("model") {
                self.set_option(session, "model", option, model).await?;
            } else if offered.models.is_some() {
                let params = json!({ "sessionId": session, "modelId": model });
                self.set("model", model, "session/set_model", &params).await?;
            } else {
                return Err(self.has_no("choice of models").into());
            }
        }
        if let Some(effort) = effort {
            let Some(option) = offered.category("thought_level") else {
                return Err(self.has_no("effort setting").into());
            };
            self.set_option(session, "effort", option, effort).await?;
        }
        for (key, value) in options {
            let Some(option) = offered.options.iter().find(|option| option.id == *key) else {
                let known: Vec<&str> = offered.options.iter().map(|it| it.id.as_str()).collect();
                let known = if known.is_empty() { "none".to_owned() } else { known.join(", ") };
                let error = format!("{} has no option `{key}`; it has {known}", self.agent.id());
                return Err(RunError::new(Reason::InvalidRequest, error).into());
            };
            self.set_option(session, key, option, value).await?;
            if option.category.as_deref() == Some("mode") {
                set = Some(value.clone());
            }
        }
        Ok(set)
    }

    async fn set_option(
        &self,
        session: &str,
        what: &str,
        option: &ConfigOption,
        value: &str,
    ) -> Result<(), OpenError> {
        if option.current.as_deref() == Some(value) {
            return Ok(());
        }
        if !option.values.is_empty() {
            self.check_value(what, value, &option.values)?;
        }
        let params = json!({ "sessionId": session, "configId": option.id, "value": value });
        self.set(what, value, "session/set_config_option", &params).await
    }

    fn check_value(&self, what: &str, value: &str, known: &[String]) -> Result<(), RunError> {
        if known.iter().any(|known| known == value) {
            return Ok(());
        }
        let shown: Vec<&str> = known.iter().take(20).map(String::as_str).collect();
        let more = if known.len() > shown.len() { ", …" } else { "" };
        let id = self.agent.id();
        let error = format!("{id} has no {what} `{value}`; it has {}{more}", shown.join(", "));
        Err(RunError::new(Reason::InvalidRequest, error))
    }

    async fn set(
        &self,
        what: &str,
        value: &str,
        method: &str,
        params: &Value,
    ) -> Result<(), OpenError> {
        let refused = |agent: &Agent, error: &takopi_core::rpc::ErrorBody| {
            let RunError { reason, message, .. } = failure::of_new(agent, error);
            let reason = if reason == Reason::Auth { reason } else { Reason::InvalidRequest };
            RunError::new(reason, format!("{} refused {what} `{value}`: {message}", agent.id()))
        };
        match self.call(method, params, SETTING_LIMIT).await? {
            Ok(_) => Ok(()),
            Err(error) => Err(self.failed(error, refused).await.into()),
        }
    }

    fn has_no(&self, what: &str) -> RunError {
        let error = format!("{} has no {what} here", self.agent.id());
        RunError::new(Reason::InvalidRequest, error)
    }

    async fn call(
        &self,
        method: &str,
        params: &Value,
        limit: Duration,
    ) -> Result<Result<Box<serde_json::value::RawValue>, ClientError>, StoppedError> {
        self.unless_stopped(self.client.call(method, params, limit)).await
    }

    async fn unless_stopped<T>(&self, work: impl Future<Output = T>) -> Result<T, StoppedError> {
        tokio::select! {
            biased;
            () = self.run.stop().cancelled() => Err(StoppedError),
            done = work => Ok(done),
        }
    }

    /// A request that failed, as the end of the run.
    async fn failed(
        &self,
        error: ClientError,
        refused: impl FnOnce(&Agent, &takopi_core::rpc::ErrorBody) -> RunError,
    ) -> RunError {
        match error {
            ClientError::Refused(error) => refused(self.agent, &error),
            ClientError::Gone => {
                let stderr = self.client.stderr_tail().await;
                let error = format!("{} exited before it opened a session", self.agent.title());
                RunError::new(Reason::ProcessDied, error).stderr_tail(stderr)
            }
            error => RunError::new(Reason::Protocol, format!("{}: {error}", self.agent.title())),
        }
    }
}

/// When the files of a session were last written. Their names have the first part of the id.
fn last_write(directory: &Path, session: &str, depth: usize) -> Option<SystemTime> {
    let part = session.split('-').next().filter(|part| part.len() >= 8)?;
    let mut last = None;
    for entry in std::fs::read_dir(directory).ok()?.flatten() {
        let path = entry.path();
        let written = if path.is_dir() {
            if depth == 0 { None } else { last_write(&path, session, depth - 1) }
        } else if entry.file_name().to_string_lossy().contains(part) {
            entry.metadata().and_then(|metadata| metadata.modified()).ok()
        } else {
            None
        };
        last = last.max(written);
    }
    last
}
