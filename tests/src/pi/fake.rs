//! The fake pi: one binary, `fake-pi`, that speaks the RPC mode from a script, for the faults that the real one cannot be made
//! to show. What all fakes have in common is in [`fake`](crate::fake).
//!
//! What a script does not mention goes as with a healthy 1.5.0: the extension reports that it is loaded, `get_state` names the
//! session, a prompt is answered with `Hello from the fake.` and leaves a session file, `abort` ends the run, the end of the input
//! ends the process. A call is a command by its type; it is played as a list of steps, of which answering is one.
//!
//! Text that the fake sends, and names of gates and points, may hold `$SESSION`, `$PROMPT`, and `$REPLY`.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::fake::Rule;
pub use crate::fake::{Control, Signal, Step};

/// What a process does.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Process {
    /// The session that it opens, whatever was asked for.
    pub session: Option<String>,
    /// Whether takopi's extension is not loaded.
    pub unguarded: bool,
    /// Played before anything is read.
    pub first: Vec<Step>,
    /// Played when stdin has ended.
    pub at_eof: Vec<Step>,
    /// What happens instead of the default, by call; the first rule that fits and is not used up.
    pub rules: Vec<Rule>,
}

/// What every process started from one environment does.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Script {
    /// One entry per start; the last repeats.
    pub starts: Vec<Process>,
    /// What `--version` prints; `1.5.0` by default.
    pub version: Option<String>,
}

impl From<Process> for Script {
    fn from(process: Process) -> Self {
        Self { starts: vec![process], version: None }
    }
}

impl<const N: usize> From<[Process; N]> for Script {
    fn from(starts: [Process; N]) -> Self {
        Self { starts: starts.into(), version: None }
    }
}

impl Process {
    /// A healthy process.
    pub fn new() -> Self {
        Self::default()
    }

    /// Opens this session, whatever was asked for.
    pub fn session(mut self, id: &str) -> Self {
        self.session = Some(id.to_owned());
        self
    }

    /// Does not load the extension.
    pub fn unguarded(mut self) -> Self {
        self.unguarded = true;
        self
    }

    /// Plays steps before anything is read.
    pub fn first(mut self, steps: impl IntoIterator<Item = Step>) -> Self {
        self.first = steps.into_iter().collect();
        self
    }

    /// Every such call plays these steps. With none it is ignored.
    pub fn always(mut self, call: &str, steps: impl IntoIterator<Item = Step>) -> Self {
        self.rules.push(Rule::new(call, steps));
        self
    }

    /// One such call plays these steps.
    pub fn once(mut self, call: &str, steps: impl IntoIterator<Item = Step>) -> Self {
        self.rules.push(Rule::new(call, steps).once());
        self
    }

    /// Every such call whose line contains `text` plays these steps.
    pub fn when(mut self, call: &str, text: &str, steps: impl IntoIterator<Item = Step>) -> Self {
        self.rules.push(Rule::new(call, steps).containing(text));
        self
    }

    /// Ignores `abort`, the end of its input and all signals that can be ignored: only SIGKILL ends it.
    pub fn stubborn(mut self) -> Self {
        self.first.insert(0, Step::ignore([Signal::Hup, Signal::Int, Signal::Term]));
        self.at_eof = vec![Step::SleepForever];
        self.always("abort", [])
    }
}

/// A line of JSON.
pub fn line(value: &Value) -> Step {
    Step::line(value.to_string())
}

/// A message of the assistant.
pub fn message(text: &str, stop: &str) -> Step {
    let content = json!([{ "type": "text", "text": text }]);
    let usage = json!({ "input": 8, "output": 7, "cacheRead": 3 });
    let message =
        json!({ "role": "assistant", "content": content, "stopReason": stop, "usage": usage });
    line(&json!({ "type": "message_end", "message": message }))
}

/// A command of the agent that begins.
pub fn command(id: &str, command: &str) -> Step {
    let args = json!({ "command": command });
    line(
        &json!({ "type": "tool_execution_start", "toolCallId": id, "toolName": "bash", "args": args }),
    )
}

/// The end of a run.
pub fn settled(aborted: bool) -> Step {
    line(&json!({ "type": "agent_settled", "aborted": aborted }))
}

/// The acceptance of a prompt, and these steps of its run.
pub fn run(steps: impl IntoIterator<Item = Step>) -> Vec<Step> {
    let begun = [Step::Reply, line(&json!({ "type": "agent_start" }))];
    begun.into_iter().chain(steps).collect()
}

/// A whole run that answers.
pub fn answer(text: &str) -> Vec<Step> {
    run([message(text, "stop"), line(&json!({ "type": "agent_end" })), settled(false)])
}

/// An approval that takopi's extension asks for.
pub fn ask(id: &str, tool: &str, input: &Value) -> Step {
    let question =
        json!({ "takopi": { "kind": "approval", "id": id, "tool": tool, "input": input } });
    line(&json!({
        "type": "extension_ui_request", "id": id, "method": "input", "title": question.to_string(),
    }))
}

/// Writes the file by which a session is found again, below pi's own directory.
pub fn store(agent: &Path, session: &str, directory: &Path) {
    let folder = agent.join("sessions/--fake--");
    let header = json!({ "type": "session", "version": 3, "id": session, "cwd": directory });
    let file = folder.join(format!("2026-11-16T12-00-00-000Z_{session}.jsonl"));
    std::fs::create_dir_all(folder).expect("pi's own directory");
    std::fs::write(file, format!("{header}\n")).expect("a session file");
}

/// What was answered to a dialog, of all that was sent to a process.
pub fn answered(sent: &[Value], id: &str) -> Option<Value> {
    let mut answers = sent.iter().filter(|it| it["type"] == "extension_ui_response");
    answers.find(|it| it["id"] == id).cloned()
}

/// The `fake-pi` executable that was built beside the running test.
pub fn binary() -> PathBuf {
    crate::fake::binary("fake-pi")
}
