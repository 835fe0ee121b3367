//! Engines for tests: one whose turn is a closure, one around a shell script.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use serde_json::Value;
use takopi_core::jsonl::{Ending, Jsonl, LineEngine, NotJsonError, Translator};
use takopi_core::model::{Action, ActionEvent, ActionKind, Completed, Phase, Reason, ResumeToken};
use takopi_core::model::{Started, TakopiEvent};
use takopi_core::process::{Exit, Launch, StdinPlan, StopSequence, StopStep};
use takopi_core::runner::{Engine, EngineRun, EngineRunner, ResumeCodec, RunError, SessionScope};
use takopi_core::{EngineId, Host, RunRequest};

use super::{LAB, TestHost};

/// Ids of the lab are lower-case; capitals are folded.
pub fn codec() -> ResumeCodec {
    ResumeCodec::new(LAB, "lab resume", |id| {
        let good = !id.is_empty()
            && id.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte))
            && !id.starts_with('-');
        good.then(|| id.to_ascii_lowercase())
    })
}

/// An engine whose turn is a closure.
pub struct Lab<F> {
    turn: F,
    scope: SessionScope,
}

/// A runner for an engine whose turn is `turn`, with sessions that only this process reaches.
pub fn lab<F, T>(host: &Host, turn: F) -> EngineRunner<Lab<F>>
where
    F: Fn(EngineRun) -> T + Send + Sync + 'static,
    T: Future<Output = ()> + Send + 'static,
{
    EngineRunner::new(Lab { turn, scope: SessionScope::Process }).on(host.clone())
}

/// The same, with sessions that are locked with files.
pub fn lab_with_files<F, T>(host: &Host, turn: F) -> EngineRunner<Lab<F>>
where
    F: Fn(EngineRun) -> T + Send + Sync + 'static,
    T: Future<Output = ()> + Send + 'static,
{
    EngineRunner::new(Lab { turn, scope: SessionScope::Machine }).on(host.clone())
}

/// The same, with sessions on another machine: it works in no directory of this one.
pub fn lab_elsewhere<F, T>(host: &Host, turn: F) -> EngineRunner<Lab<F>>
where
    F: Fn(EngineRun) -> T + Send + Sync + 'static,
    T: Future<Output = ()> + Send + 'static,
{
    EngineRunner::new(Lab { turn, scope: SessionScope::Elsewhere }).on(host.clone())
}

impl<F, T> Engine for Lab<F>
where
    F: Fn(EngineRun) -> T + Send + Sync + 'static,
    T: Future<Output = ()> + Send + 'static,
{
    fn id(&self) -> EngineId {
        LAB
    }

    fn resume_codec(&self) -> ResumeCodec {
        codec()
    }

    fn session_scope(&self) -> SessionScope {
        self.scope
    }

    fn directory<'a>(&self, request: &'a RunRequest) -> Option<&'a Path> {
        request.settings.cwd.as_deref().filter(|_| self.scope != SessionScope::Elsewhere)
    }

    fn run(self: Arc<Self>, run: EngineRun) -> BoxFuture<'static, ()> {
        Box::pin((self.turn)(run))
    }
}

pub fn started(value: &str) -> Started {
    Started::new(ResumeToken::new(LAB, value))
}

pub fn note(title: &str) -> ActionEvent {
    action(title, ActionKind::Note, Phase::Completed).ok(true)
}

pub fn action(id: &str, kind: ActionKind, phase: Phase) -> ActionEvent {
    ActionEvent::new(LAB, Action::new(id, kind, id), phase)
}

pub fn success(answer: &str) -> Completed {
    Completed::success(LAB, answer)
}

/// An engine that is a shell script printing JSON lines:
///
/// - `{"started":"ID"}` confirms the session,
/// - `{"note":"TEXT"}` is an action, `{"open":"ID"}` a command that begins,
/// - `{"say":"TEXT"}` is the answer so far, `{"panic":true}` a bug of the translation,
/// - `{"done":"ANSWER"}` ends the turn.
///
/// A process that ends without it died, or, with code 75, found its session busy.
#[derive(Clone)]
pub struct Shell {
    script: String,
    program: PathBuf,
    launch: fn(Launch) -> Launch,
    payload: Option<Vec<u8>>,
    env: Vec<(String, String)>,
    scope: SessionScope,
    early_failure: Option<RunError>,
}

/// An engine around a script for `/bin/sh`; the prompt is its standard input.
pub fn shell(script: impl Into<String>) -> Shell {
    Shell {
        script: script.into(),
        program: "/bin/sh".into(),
        launch: |launch| launch,
        payload: None,
        env: Vec::new(),
        scope: SessionScope::Machine,
        early_failure: None,
    }
}

impl Shell {
    /// For bash, whose traps do not wait.
    pub fn bash(mut self) -> Self {
        self.program = "/bin/bash".into();
        self
    }

    pub fn program(mut self, program: impl Into<PathBuf>) -> Self {
        self.program = program.into();
        self
    }

    pub fn launch_with(mut self, change: fn(Launch) -> Launch) -> Self {
        self.launch = change;
        self
    }

    /// Finds out this about it once `$DIR/early_failure` exists.
    pub fn early_failure(mut self, failure: RunError) -> Self {
        self.early_failure = Some(failure);
        self
    }

    pub fn payload(mut self, payload: Vec<u8>) -> Self {
        self.payload = Some(payload);
        self
    }

    pub fn env(mut self, name: &str, value: impl AsRef<std::path::Path>) -> Self {
        self.env.push((name.to_owned(), value.as_ref().to_str().unwrap().to_owned()));
        self
    }

    /// A runner for it; `$DIR` is the test_host's directory.
    pub fn on(self, test_host: &TestHost) -> EngineRunner<Jsonl<Self>> {
        let (name, value) = test_host.mark();
        Jsonl::runner(self.env(name, value).env("DIR", value)).on(test_host.host.clone())
    }
}

impl LineEngine for Shell {
    type Translator = ShellLines;

    fn id(&self) -> EngineId {
        LAB
    }

    fn resume_codec(&self) -> ResumeCodec {
        codec()
    }

    fn session_scope(&self) -> SessionScope {
        self.scope
    }

    fn launch(
        &self,
        request: &RunRequest,
        resume: Option<&ResumeToken>,
    ) -> Result<Launch, RunError> {
        let payload = self.payload.clone().unwrap_or_else(|| request.prompt.clone().into());
        let mut launch = Launch::new(&self.program)
            .args(["-c", self.script.as_str()])
            .stdin(StdinPlan::Payload(payload))
            .env("SESSION", resume.map_or("new", |token| token.value.as_str()));
        for (name, value) in &self.env {
            launch = launch.env(name, value);
        }
        for (name, value) in &request.env {
            launch = launch.env(name, value);
        }
        if let Some(cwd) = &request.settings.cwd {
            launch = launch.cwd(cwd);
        }
        Ok((self.launch)(launch))
    }

    fn translator(&self, _: &RunRequest, _: Option<&ResumeToken>) -> ShellLines {
        ShellLines::default()
    }

    fn early_failure(&self, run: &EngineRun) -> BoxFuture<'static, RunError> {
        let file = run.host().state_directory().join("early_failure");
        match self.early_failure.clone() {
            Some(failure) => Box::pin(async move {
                super::eventually("a early_failure", || file.exists()).await;
                failure
            }),
            None => Box::pin(std::future::pending()),
        }
    }
}

#[derive(Default)]
pub struct ShellLines {
    answer: Option<String>,
    notes: u64,
}

impl Translator for ShellLines {
    fn line(&mut self, line: &[u8], events: &mut Vec<TakopiEvent>) -> Result<(), NotJsonError> {
        assert!(!line.trim_ascii().is_empty(), "blank lines never come");
        let value: Value = serde_json::from_slice(line).map_err(|_| NotJsonError)?;
        let text = |key: &str| value.get(key).and_then(Value::as_str);
        if let Some(id) = text("started") {
            events.push(started(id).into());
        }
        if let Some(title) = text("note") {
            self.notes += 1;
            let action = Action::new(format!("note_{}", self.notes), ActionKind::Note, title);
            events.push(ActionEvent::new(LAB, action, Phase::Completed).ok(true).into());
        }
        if let Some(id) = text("open") {
            events.push(action(id, ActionKind::Command, Phase::Started).into());
        }
        if let Some(said) = text("say") {
            self.answer = Some(said.to_owned());
        }
        if let Some(answer) = text("done") {
            events.push(success(answer).into());
        }
        assert!(value.get("panic").is_none(), "told to panic");
        Ok(())
    }

    fn end(&mut self, exit: &Exit, events: &mut Vec<TakopiEvent>) -> Ending {
        if exit.code == Some(75) {
            return Ending::Busy { holder: "somebody outside".to_owned() };
        }
        let error = format!("rc={} stderr={}", exit.rc(), exit.stderr_tail);
        let answer = self.answer.clone().unwrap_or_default();
        events.push(Completed::failure(LAB, Reason::ProcessDied, error).answer(answer).into());
        Ending::Over
    }

    fn answer(&self) -> Option<&str> {
        self.answer.as_deref()
    }
}

/// The usual ladder, for tests that cannot wait for seconds.
pub fn short_stop_sequence() -> StopSequence {
    stop_sequence(Duration::from_millis(300))
}

/// INT and TERM, and this long for each.
pub fn stop_sequence(grace: Duration) -> StopSequence {
    StopSequence::new([(StopStep::Interrupt, grace), (StopStep::Terminate, grace)])
}

/// A script for [`shell`] that reports that it started once all before it is done, and then does nothing.
pub fn then_wait(script: &str) -> String {
    format!("{script}\necho '{{\"started\":\"a\"}}'\nwhile :; do sleep 0.05; done")
}
