//! Which codex to run: what both transports need to know.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use futures::future::BoxFuture;
use takopi_core::jsonl::Jsonl;
use takopi_core::mcp::McpServer;
use takopi_core::process::{EnvPolicy, Launch, find_program};
use takopi_core::version::{Version, version_of};
use takopi_core::{EngineRunner, Host, Reason, RunError, RunRequest};

use crate::app_server::{CodexAppServer, ServerLaunch};
use crate::exec::CodexExec;
use crate::mcp;
use crate::{MINIMUM_VERSION, TITLE};

/// After so many questions for its version that were cut short by the end of their runs, a codex is not asked again:
/// its runs are over before it would answer, and each question is a process.
const QUESTIONS_CUT_SHORT: u32 = 3;

/// Which codex to run, and how.
///
/// ```
/// use takopi_codex::Codex;
/// use takopi_core::Runner;
///
/// let runner = Codex::new().binary("/opt/codex/bin/codex").args(["-c", "notify=[]"]).exec();
/// assert_eq!(runner.engine().as_str(), "codex");
/// ```
#[derive(Debug, Clone)]
#[must_use = "a codex does nothing until it is made into a runner"]
pub struct Codex {
    binary: PathBuf,
    pub(crate) args: Vec<String>,
    profile: Option<String>,
    home: Option<PathBuf>,
    env_policy: EnvPolicy,
    /// How many questions for the version were cut short.
    cut_short: Arc<AtomicU32>,
}

/// Counts a question as cut short when it is dropped before it was answered.
struct Question(Option<Arc<AtomicU32>>);

impl Drop for Question {
    fn drop(&mut self) {
        if let Some(cut_short) = &self.0 {
            cut_short.fetch_add(1, Ordering::Relaxed);
        }
    }
}

impl Default for Codex {
    fn default() -> Self {
        Self::new()
    }
}

impl Codex {
    /// The `codex` on the `PATH`, as the user has set it up.
    pub fn new() -> Self {
        Self {
            binary: PathBuf::from("codex"),
            args: Vec::new(),
            profile: None,
            home: None,
            env_policy: EnvPolicy::default(),
            cut_short: Arc::default(),
        }
    }

    /// Runs this program: a path, or a name to be found on the `PATH`.
    pub fn binary(mut self, program: impl Into<PathBuf>) -> Self {
        self.binary = program.into();
        self
    }

    /// Adds arguments that go ahead of codex's subcommand, such as `-c KEY=VALUE`.
    pub fn args<I, S>(mut self, args: I) -> Self
    where
        I: IntoIterator<Item = S>,
        S: Into<String>,
    {
        self.args.extend(args.into_iter().map(Into::into));
        self
    }

    /// Gives codex an MCP server of the host's own; the user's configuration stays as it is.
    pub fn mcp_server(self, server: McpServer) -> Self {
        self.args(mcp::args_of(server))
    }

    /// Uses a profile of the user's configuration. `Started` calls the engine by its name.
    pub fn profile(mut self, name: impl Into<String>) -> Self {
        self.profile = Some(name.into());
        self
    }

    /// Sets `CODEX_HOME`, which otherwise is left as it is.
    pub fn home(mut self, directory: impl Into<PathBuf>) -> Self {
        self.home = Some(directory.into());
        self
    }

    /// Which variables codex inherits.
    pub fn env_policy(mut self, policy: EnvPolicy) -> Self {
        self.env_policy = policy;
        self
    }

    /// A runner over `codex exec --json`: one process a run.
    pub fn exec(self) -> EngineRunner<Jsonl<CodexExec>> {
        Jsonl::runner(CodexExec::new(self))
    }

    /// A runner over `codex app-server`: a process per live session, kept warm for a while.
    pub fn app_server(self) -> EngineRunner<CodexAppServer> {
        EngineRunner::new(CodexAppServer::new(self))
    }

    /// How to start an app-server for a request.
    pub(crate) fn server_launch(&self, request: &RunRequest) -> ServerLaunch {
        let options = request
            .settings
            .options
            .iter()
            .flat_map(|(key, value)| ["-c".to_owned(), format!("{key}={value}")]);
        ServerLaunch {
            binary: self.binary.clone(),
            args: self.all_args().into_iter().map(str::to_owned).chain(options).collect(),
            env: request.env.clone(),
            env_policy: self.env_policy.clone(),
            codex_home: self.home.clone(),
            ..ServerLaunch::default()
        }
    }

    /// What `Started` calls the engine.
    pub(crate) fn title(&self) -> &str {
        self.profile.as_deref().unwrap_or(TITLE)
    }

    /// What goes ahead of the subcommand.
    pub(crate) fn all_args(&self) -> Vec<&str> {
        let profile = self.profile.iter().flat_map(|name| ["--profile", name]);
        profile.chain(self.args.iter().map(String::as_str)).collect()
    }

    /// The program and its environment.
    pub(crate) fn launch(&self, request: &RunRequest) -> Launch {
        let mut launch = Launch::new(&self.binary).env_policy(self.env_policy.clone());
        if let Some(home) = &self.home {
            launch = launch.env("CODEX_HOME", home);
        }
        request.env.iter().fold(launch, |launch, (name, value)| launch.env(name, value))
    }

    /// `CODEX_HOME`, if it is set here.
    pub(crate) fn home_directory(&self) -> Option<&Path> {
        self.home.as_deref()
    }

    /// The program with these variables, and its version; `None` if there is no such program or it prints no version.
    pub(crate) async fn version(
        &self,
        host: &Host,
        env: &[(OsString, OsString)],
    ) -> Option<(PathBuf, Version)> {
        let path = env.iter().rev().find(|(name, _)| name == "PATH");
        let program = find_program(&self.binary, path.map(|(_, value)| value.as_os_str()))?;
        let home = self.home.iter().map(|home| ("CODEX_HOME".into(), home.clone().into()));
        let env: Vec<_> = home.chain(env.iter().cloned()).collect();
        let version = version_of(host, &program, &self.env_policy, &env).await?;
        Some((program, version))
    }

    /// Asks the program for its version, once as long as its file stays the same, and resolves only
    /// if that was read and is too old.
    ///
    /// The question is not a process of the run: it does not hold the session's lock, and ending it
    /// must not end what the run started. It ends with the future, and is not repeated for ever by runs that are
    /// over sooner.
    pub(crate) fn too_old(
        &self,
        host: &Host,
        request: &RunRequest,
    ) -> BoxFuture<'static, RunError> {
        if self.cut_short.load(Ordering::Relaxed) >= QUESTIONS_CUT_SHORT {
            return Box::pin(std::future::pending());
        }
        let (codex, host, env) = (self.clone(), host.clone(), request.env.clone());
        Box::pin(async move {
            let mut question = Question(Some(codex.cut_short.clone()));
            let version = codex.version(&host, &env).await;
            question.0 = None;
            if let Some((program, version)) = version
                && version < MINIMUM_VERSION
            {
                let error = format!(
                    "{} is codex {version}, and takopi needs {MINIMUM_VERSION} or newer; \
                     update it, for example with `npm install -g @openai/codex@latest`",
                    program.display(),
                );
                return RunError::new(Reason::EngineTooOld, error);
            }
            std::future::pending().await
        })
    }
}

#[cfg(test)]
mod tests {
    use futures::poll;

    use super::*;

    #[tokio::test]
    async fn a_codex_whose_runs_are_shorter_than_the_question_is_not_asked_for_ever() {
        let codex = Codex::new().binary("/bin/sh");
        let directory = tempfile::tempdir().unwrap();
        let host = Host::builder().state_directory(directory.path()).build().unwrap();
        for cut_short in [1, 2, 3, 3, 3] {
            let mut question = codex.too_old(&host, &RunRequest::new("x"));
            assert!(poll!(&mut question).is_pending());
            drop(question);
            assert_eq!(codex.cut_short.load(Ordering::Relaxed), cut_short);
        }
    }
}
