//! The demo engine: a scripted agent inside takopi.
//!
//! It needs no account and no program, and its sessions live in this process only. [`Demo::new`]
//! shows every kind of action, a failing command, a question whose answer it honours, and an answer; [`Demo::scripted`]
//! plays what it is given, so that a bridge can be tested without an agent. Both honour resume and
//! cancel.

use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use uuid::Uuid;

use crate::catalog::{EngineEntry, EngineSetup, Feature, SetupError, TransportInfo};
use crate::model::{
    Action, ActionEvent, ActionKind, AnswerPieces, Completed, EngineId, Level, Phase, Reason,
    ResumeToken, Started, Usage,
};
use crate::runner::{
    ApprovalRequest, ChangeKind, Decision, Engine, EngineRun, EngineRunner, FileChange, Patch,
    Question, ResumeCodec, RunError, RunRequest, Runner, SessionScope, SteerMessages, StoppedError,
};
use crate::settings::{directory_problem, parse_duration};

/// The demo engine's name.
pub const DEMO: EngineId = EngineId::from_static("demo");

/// How many pieces of the answer take as long as one step.
const PACE_PER_PIECE: u32 = 8;

/// One step of a script.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum Step {
    /// Something happens.
    Act(ActionEvent),
    /// Approval is asked for something.
    Ask {
        /// The id of the approval's action.
        id: String,
        /// What is asked.
        question: Question,
    },
    /// These steps, if what was asked last was accepted.
    IfAccepted(Vec<Step>),
    /// These steps, if what was asked last was declined.
    IfDeclined(Vec<Step>),
    /// The answer so far, for runs that are cancelled later.
    Say(String),
    /// Nothing happens for a while.
    Pause(Duration),
    /// The turn fails, and the script ends.
    Fail(Reason, String),
}

/// A scripted agent. See the [module](self).
///
/// ```
/// use futures::StreamExt;
/// use takopi_core::demo::Demo;
/// use takopi_core::{Runner, RunRequest, TakopiEvent};
///
/// # tokio::runtime::Builder::new_current_thread().build()?.block_on(async {
/// let runner = Demo::new().runner();
/// let events: Vec<_> = runner.run(RunRequest::new("hello")).collect().await;
/// assert!(matches!(events.first(), Some(TakopiEvent::Started(_))));
/// assert!(matches!(events.last(), Some(TakopiEvent::Completed(end)) if end.ok));
/// # });
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Debug, Clone)]
pub struct Demo {
    script: Option<Vec<Step>>,
    pace: Duration,
}

impl Default for Demo {
    fn default() -> Self {
        Self::new()
    }
}

impl Demo {
    /// Shows all there is, at once.
    pub fn new() -> Self {
        Self { script: None, pace: Duration::ZERO }
    }

    /// Plays a script; the answer is the last [`Step::Say`].
    pub fn scripted(script: impl IntoIterator<Item = Step>) -> Self {
        Self { script: Some(script.into_iter().collect()), pace: Duration::ZERO }
    }

    /// Takes this long over every step, so that a person can follow.
    pub fn pace(mut self, pace: Duration) -> Self {
        self.pace = pace;
        self
    }

    /// A runner for it, on the global host.
    pub fn runner(self) -> EngineRunner<Self> {
        EngineRunner::new(self)
    }

    async fn turn(&self, run: &EngineRun) -> Result<(), StoppedError> {
        let token = run.resume.clone().unwrap_or_else(|| {
            let id = Uuid::new_v4().simple().to_string();
            ResumeToken::new(DEMO, format!("demo-{}", &id[..12]))
        });
        run.emit(Started::new(token).title("Demo")).await?;
        let script = self.script.clone().unwrap_or_else(|| tour(run));
        let mut turn = Turn {
            run,
            follow_ups: run.steer_messages(),
            pieces: AnswerPieces::new(DEMO),
            said: 0,
            pace: self.pace / PACE_PER_PIECE,
            answer: String::new(),
            taken: Vec::new(),
            accepted: false,
        };
        let mut script = VecDeque::from(script);
        while let Some(step) = next_step(&mut script, turn.accepted) {
            if turn.play(step).await? {
                return Ok(());
            }
            if turn.pause(self.pace).await.is_err() {
                run.emit(turn.cut_short()).await?;
                return Err(StoppedError);
            }
        }
        let usage = Usage { input_tokens: 11, output_tokens: 7, ..Usage::default() };
        run.emit(Completed::success(DEMO, turn.answer_so_far()).usage(Some(usage))).await
    }
}

/// Takes the next step; those that depend on what was asked last stand for the steps in them, or for none.
fn next_step(script: &mut VecDeque<Step>, accepted: bool) -> Option<Step> {
    loop {
        let (applies, then) = match script.pop_front()? {
            Step::IfAccepted(then) => (accepted, then),
            Step::IfDeclined(then) => (!accepted, then),
            step => return Some(step),
        };
        if applies {
            then.into_iter().rev().for_each(|step| script.push_front(step));
        }
    }
}

/// One turn on its way.
struct Turn<'a> {
    run: &'a EngineRun,
    follow_ups: SteerMessages,
    /// The answer in pieces, for runs that ask for them.
    pieces: AnswerPieces,
    /// How many times something was said.
    said: usize,
    /// How long a piece of the answer takes.
    pace: Duration,
    /// The answer so far.
    answer: String,
    /// The follow-ups that were taken.
    taken: Vec<String>,
    /// Whether what was asked last was accepted.
    accepted: bool,
}

impl Turn<'_> {
    /// Plays one step; `true` if it ended the turn.
    async fn play(&mut self, step: Step) -> Result<bool, StoppedError> {
        let run = self.run;
        let played = match step {
            Step::Act(event) => run.emit(event).await.map(|()| false),
            Step::Say(text) => self.say(text).await.map(|()| false),
            Step::Pause(length) => self.pause(length).await.map(|()| false),
            Step::Ask { id, question } => self.ask(&id, question).await,
            // `next_step` replaces them.
            Step::IfAccepted(_) | Step::IfDeclined(_) => Ok(false),
            Step::Fail(reason, error) => {
                let failed = Completed::failure(DEMO, reason, error);
                run.emit(failed.answer(self.answer_so_far())).await?;
                return Ok(true);
            }
        };
        if played == Ok(false) {
            return Ok(false);
        }
        run.emit(self.cut_short()).await?;
        Ok(true)
    }

    /// Asks for approval, visibly; `true` if the answer ends the turn.
    async fn ask(&mut self, id: &str, question: Question) -> Result<bool, StoppedError> {
        let asked = ApprovalRequest::new(DEMO, question, directory(self.run));
        self.run.emit(asked.waiting(id)).await?;
        let reply = self.run.request_approval(asked.clone()).await?;
        self.run.emit(asked.decided(id, reply.as_ref())).await?;
        self.accepted = reply.as_ref().is_some_and(|reply| reply.decision.is_yes());
        Ok(reply.is_some_and(|reply| reply.decision == Decision::Cancel))
    }

    /// Says something, word by word if the run asks for that.
    async fn say(&mut self, text: String) -> Result<(), StoppedError> {
        self.said += 1;
        if self.run.request.deltas {
            self.answer.clear();
            let id = format!("said_{}", self.said);
            for word in text.split_inclusive(' ') {
                let mut events = Vec::new();
                self.pieces.piece(&id, word, &mut events);
                self.answer.push_str(word);
                self.run.emit_all(events).await?;
                self.pause(self.pace).await?;
            }
            let mut events = Vec::new();
            self.pieces.close(&mut events);
            self.run.emit_all(events).await?;
        }
        self.answer = text;
        Ok(())
    }

    /// Waits, and takes follow-ups meanwhile.
    async fn pause(&mut self, length: Duration) -> Result<(), StoppedError> {
        let run = self.run;
        let time = async {
            if !length.is_zero() {
                tokio::time::sleep(length).await;
            }
        };
        tokio::pin!(time);
        loop {
            let follow_up = tokio::select! {
                biased;
                () = run.stop().cancelled() => return Err(StoppedError),
                follow_up = self.follow_ups.next() => follow_up,
                () = &mut time => return Ok(()),
            };
            let text = follow_up.text().trim().to_owned();
            follow_up.taken();
            let id = format!("steer_{}", self.taken.len());
            let note = Action::new(id, ActionKind::Note, format!("also: {text}"));
            self.taken.push(text);
            run.emit(ActionEvent::new(DEMO, note, Phase::Completed).ok(true)).await?;
        }
    }

    fn cut_short(&self) -> Completed {
        Completed::failure(DEMO, Reason::Interrupted, "interrupted").answer(self.answer_so_far())
    }

    /// The answer so far.
    fn answer_so_far(&self) -> String {
        let also = self.taken.iter().map(|text| format!("\nYou also said: {text}"));
        std::iter::once(self.answer.clone()).chain(also).collect()
    }
}

impl Engine for Demo {
    fn id(&self) -> EngineId {
        DEMO
    }

    fn resume_codec(&self) -> ResumeCodec {
        ResumeCodec::new(DEMO, "takopi run --engine demo --resume", canonical)
            .also(&["takopi run --resume"])
    }

    fn session_scope(&self) -> SessionScope {
        SessionScope::Process
    }

    fn check(&self, request: &RunRequest) -> Result<(), RunError> {
        match request.settings.cwd.as_deref().and_then(directory_problem) {
            Some(problem) => Err(RunError::new(Reason::InvalidRequest, problem)),
            None => Ok(()),
        }
    }

    /// The one that was named: the demo itself touches no file.
    fn directory<'a>(&self, request: &'a RunRequest) -> Option<&'a Path> {
        request.settings.cwd.as_deref()
    }

    fn can_be_ephemeral(&self) -> bool {
        true
    }

    fn is_steerable(&self) -> bool {
        true
    }

    fn run(self: Arc<Self>, run: EngineRun) -> BoxFuture<'static, ()> {
        Box::pin(async move {
            let _ = self.turn(&run).await;
        })
    }
}

/// The demo engine for programs with many engines. Its one option is `pace`, the time each step takes.
#[derive(Debug, Clone, Copy, Default)]
pub struct DemoEntry;

impl EngineEntry for DemoEntry {
    fn id(&self) -> EngineId {
        DEMO
    }

    fn title(&self) -> &'static str {
        "A scripted agent inside takopi"
    }

    fn transports(&self) -> &[TransportInfo] {
        const IN_PROCESS: TransportInfo = TransportInfo::new(
            "in-process",
            "a script inside this process",
            &[Feature::Approvals, Feature::Steering, Feature::Deltas],
        );
        &[IN_PROCESS]
    }

    fn settings(&self) -> &[&str] {
        &["ephemeral", "options"]
    }

    fn runner(&self, setup: &EngineSetup) -> Result<Arc<dyn Runner>, SetupError> {
        self.transport(setup.transport.as_deref())?;
        let mut demo = Demo::new();
        for (key, value) in &setup.options {
            if key != "pace" {
                return Err(SetupError::new(format!("-c {key}: the demo has only `pace`")));
            }
            let pace = parse_duration(value);
            demo = demo.pace(pace.map_err(|error| SetupError::new(format!("-c pace: {error}")))?);
        }
        Ok(Arc::new(demo.runner()))
    }
}

/// `demo-` and some letters and digits.
fn canonical(id: &str) -> Option<String> {
    let id = id.to_ascii_lowercase();
    let name = id.strip_prefix("demo-")?;
    let good =
        (1..=32).contains(&name.len()) && name.bytes().all(|byte| byte.is_ascii_alphanumeric());
    good.then_some(id)
}

/// Where it works.
fn directory(run: &EngineRun) -> PathBuf {
    run.request.settings.cwd.clone().unwrap_or_else(|| PathBuf::from("."))
}

/// Every kind of action once.
fn tour(run: &EngineRun) -> Vec<Step> {
    let act = |id: &str, kind: ActionKind, title: &str, phase| {
        ActionEvent::new(DEMO, Action::new(id, kind, title), phase)
    };
    let begin = |id, kind, title| Step::Act(act(id, kind, title, Phase::Started));
    let end = |id, kind, title| Step::Act(act(id, kind, title, Phase::Completed).ok(true));
    let command = |id, title, exit_code: i32| {
        let action = Action::new(id, ActionKind::Command, title).with("exit_code", exit_code);
        Step::Act(ActionEvent::new(DEMO, action, Phase::Completed).ok(exit_code == 0))
    };
    let changes = serde_json::json!([{ "path": "src/lib.rs", "kind": "update" }]);
    let change = |phase| {
        let action = Action::new("edit", ActionKind::FileChange, "src/lib.rs")
            .with("changes", changes.clone());
        ActionEvent::new(DEMO, action, phase)
    };
    let todo = |done: u64, next: &str, phase| {
        let action = Action::new("plan", ActionKind::Note, format!("todo {done}/2: {next}"));
        Step::Act(ActionEvent::new(DEMO, action.with("done", done).with("total", 2), phase))
    };
    let greeting = match &run.resume {
        Some(token) => format!("Welcome back to {}.", token.value),
        None => "This is the demo engine: no account, no model, nothing installed.".to_owned(),
    };
    vec![
        begin("turn_0", ActionKind::Turn, "turn started"),
        todo(0, "look around", Phase::Started),
        Step::Act(
            ActionEvent::new(
                DEMO,
                Action::new("hello", ActionKind::Note, "I will look around first.")
                    .with("phase", "commentary"),
                Phase::Completed,
            )
            .ok(true),
        ),
        begin("list", ActionKind::Command, "ls"),
        command("list", "ls", 0),
        begin("search", ActionKind::WebSearch, "why do octopuses have three hearts"),
        end("search", ActionKind::WebSearch, "why do octopuses have three hearts"),
        begin("tool", ActionKind::Tool, "aquarium.feed"),
        end("tool", ActionKind::Tool, "aquarium.feed"),
        begin("agent", ActionKind::Subagent, "review: the change below"),
        end("agent", ActionKind::Subagent, "review: the change below"),
        todo(1, "make the change", Phase::Updated),
        Step::Ask {
            id: "ask".to_owned(),
            question: Question::Patch(Patch::new([FileChange::new(
                ChangeKind::Update,
                "src/lib.rs",
                &directory(run),
            )
            .diff("@@ -1 +1 @@\n-pub const HEARTS: u32 = 1;\n+pub const HEARTS: u32 = 3;\n")])),
        },
        Step::IfAccepted(vec![
            Step::Act(change(Phase::Started)),
            Step::Act(change(Phase::Completed).ok(true)),
        ]),
        Step::IfDeclined(vec![end("left", ActionKind::Note, "I leave src/lib.rs as it is.")]),
        begin("test", ActionKind::Command, "cargo test"),
        command("test", "cargo test", 101),
        Step::Act(ActionEvent::warning(DEMO, "warning", "one test fails; this is only a demo")),
        Step::Act(
            act("limits", ActionKind::Telemetry, "rate limits: 12 % used", Phase::Completed)
                .ok(true)
                .level(Level::Debug),
        ),
        todo(2, "nothing left", Phase::Completed),
        Step::Say(format!("{greeting} You said: {}", run.request.prompt.trim())),
    ]
}
