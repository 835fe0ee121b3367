//! What is recorded.

use std::time::Duration;

use serde_json::json;
use takopi_tests::codex::home::HomeBuilder;
use takopi_tests::codex::real::Version;
use takopi_tests::model::{Answer, Gate, Script};

/// Over which transport.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// `codex exec --json`.
    Exec,
    /// `codex app-server`.
    AppServer,
}

impl Place {
    /// Its directory below the release's.
    pub(crate) fn directory(self) -> &'static str {
        match self {
            Self::Exec => "exec",
            Self::AppServer => "app-server",
        }
    }
}

/// What a client of app-server does besides starting one turn.
#[derive(Clone, Debug)]
pub(crate) enum Play {
    /// Nothing, and whatever is asked is accepted.
    Turn,
    /// Interrupts the turn once its command runs.
    Interrupt,
    /// Starts a second turn while the first waits at the gate.
    TwoTurns(Gate),
    /// A second server resumes the thread while the first has it, and again when it is gone.
    ResumeBusy,
}

/// One recording.
#[derive(Clone)]
pub(crate) struct Scene {
    pub(crate) name: &'static str,
    pub(crate) places: &'static [Place],
    pub(crate) settings: fn(HomeBuilder) -> HomeBuilder,
    pub(crate) script: Script,
    pub(crate) play: Play,
}

const BOTH: &[Place] = &[Place::Exec, Place::AppServer];
const EXEC: &[Place] = &[Place::Exec];
const SERVER: &[Place] = &[Place::AppServer];

fn scene(name: &'static str, places: &'static [Place], script: impl Into<Script>) -> Scene {
    Scene { name, places, settings: |home| home, script: script.into(), play: Play::Turn }
}

impl Scene {
    fn with(self, settings: fn(HomeBuilder) -> HomeBuilder) -> Self {
        Self { settings, ..self }
    }

    fn played(self, play: Play) -> Self {
        Self { play, ..self }
    }
}

/// All of them, for this release.
pub(crate) fn all(version: Version) -> Vec<Scene> {
    let asking = |home: HomeBuilder| home.approval_policy("on-request").sandbox_mode("read-only");
    let patient = |home: HomeBuilder| home.stream_max_retries(5);
    let failing = |home: HomeBuilder| home.stream_max_retries(2);
    let short = || Answer::new().started().ends_short();
    let broken = || Answer::status(500, "internal");
    let command = "echo takopi-out; echo err >&2; exit 3";
    let patch = || [Answer::new().add_file("new.txt", "new"), Answer::text("patched")];
    let namespace = version.mcp_namespace("lab");
    let mcp = Answer::new().call_in(&namespace, "echo", json!({"text": "yo"}));
    let gate = Gate::new();
    let wants = json!({"cmd": "touch asked.txt", "sandbox_permissions": "require_escalated", "justification": "to see"});
    let mut scenes = vec![
        scene("hello", EXEC, "Hello from the mock."),
        scene("unicode", EXEC, "héllo 🐙\u{2028}line\0nul"),
        scene("two_messages", EXEC, Answer::text("First message").message("Second message")),
        scene("commentary_only", EXEC, Answer::new().commentary("Commentary")),
        scene("phases", BOTH, Answer::new().commentary("Commentary").final_answer("Final answer")),
        scene("stream", SERVER, Answer::new().deltas(["hel", "lo"])),
        scene(
            "shell",
            BOTH,
            [Answer::new().reasoning("**Looking** around").exec(command), Answer::text("ran it")],
        ),
        scene("patch", BOTH, patch()),
        scene("mcp", BOTH, [mcp, Answer::text("called")]).with(HomeBuilder::lab_mcp),
        scene("web_search", BOTH, Answer::new().web_search("octopus").message("searched")),
        scene("failed", BOTH, Answer::new().failed("server_error", "boom from mock model")),
        scene("http401", BOTH, Answer::status(401, "token expired")),
        scene("http429", BOTH, Answer::usage_limit()),
        scene("http500", BOTH, [broken(), broken(), broken()]).with(failing),
        scene("drop_then_ok", BOTH, [short(), short(), Answer::text("recovered")]).with(patient),
        scene(
            "approve_command",
            SERVER,
            [Answer::new().call("exec_command", wants), Answer::text("ran it")],
        )
        .with(asking),
        scene("approve_patch", SERVER, patch()).with(asking),
        scene("interrupt", SERVER, Answer::new().exec("sleep 600 & echo child $!; sleep 600"))
            .played(Play::Interrupt),
        scene(
            "two_turn_starts",
            SERVER,
            [Answer::new().wait_for(&gate).message("one"), Answer::text("two")],
        )
        .played(Play::TwoTurns(gate)),
        scene("resume_busy", SERVER, Script::repeat(Answer::new().deltas(["hel", "lo"])))
            .played(Play::ResumeBusy),
    ];
    if version < Version::new(0, 152, 0) {
        let plan = |first: &str, second: &str| {
            let step = |step: &str, status: &str| json!({"step": step, "status": status});
            Answer::new()
                .call("update_plan", json!({"plan": [step("one", first), step("two", second)]}))
        };
        let script = [
            plan("in_progress", "pending"),
            plan("completed", "in_progress"),
            Answer::text("planned"),
        ];
        scenes.push(scene("plan", BOTH, script));
    }
    scenes
}

/// How long the notification of a second turn may take, once the first goes on.
pub(crate) const SECOND_TURN: Duration = Duration::from_secs(3);
