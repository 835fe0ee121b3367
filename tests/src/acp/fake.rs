//! The fake ACP agent: one binary, `fake-acp`, that plays a script, for the faults that real agents cannot be made to show.
//! What all fakes have in common is in [`fake`](crate::fake).
//!
//! What a script does not mention goes as with a healthy agent. A call is played as a list of steps; answering is one of them.
//! A turn is over when `session/prompt` is answered.
//!
//! | placeholder | meaning |
//! |---|---|
//! | `$SESSION` | the session of the call; for `session/new` a new id |
//! | `$PROMPT` | text of the prompt |
//! | `$REPLY` | the client's last answer to an [`Ask`](crate::fake::Ask), as JSON inside a string |
//! | `$START` | number of this start, from 0 |
//! | `$SEQ` | a number that grows with every use |

use std::path::PathBuf;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use takopi_acp::{Acp, AcpEngine, Agent};
use takopi_core::EngineRunner;

use crate::fake::Rule;
pub use crate::fake::{Control, Grandchild, Place, Signal, Step};
use crate::home::Home;
use crate::lab::FakeHome;

/// One process.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Process {
    /// The version of the protocol that it answers with.
    pub protocol: i64,
    /// What it announces for sessions: `resume`, `close`, …
    pub session_capabilities: Value,
    /// Played before anything is read.
    pub first: Vec<Step>,
    /// Played when stdin has ended; by default it exits.
    pub at_eof: Option<Vec<Step>>,
    /// What happens instead of the default, by method.
    pub rules: Vec<Rule>,
}

impl Default for Process {
    fn default() -> Self {
        Self {
            protocol: 1,
            session_capabilities: json!({ "resume": {}, "close": {} }),
            first: Vec::new(),
            at_eof: None,
            rules: Vec::new(),
        }
    }
}

/// What every process started from one environment does.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Script {
    /// One entry per start; the last repeats.
    pub starts: Vec<Process>,
}

impl From<Process> for Script {
    fn from(process: Process) -> Self {
        Self { starts: vec![process] }
    }
}

impl Process {
    /// A healthy process.
    pub fn new() -> Self {
        Self::default()
    }

    /// One call plays these steps.
    pub fn once(mut self, method: &str, steps: impl IntoIterator<Item = Step>) -> Self {
        self.rules.push(Rule::new(method, steps).once());
        self
    }

    /// Every such call plays these steps. With none it is ignored.
    pub fn always(mut self, method: &str, steps: impl IntoIterator<Item = Step>) -> Self {
        self.rules.push(Rule::new(method, steps));
        self
    }

    /// Every turn whose prompt contains `text` plays these steps.
    pub fn turns_when(mut self, text: &str, steps: impl IntoIterator<Item = Step>) -> Self {
        self.rules.push(Rule::new("session/prompt", steps).containing(text));
        self
    }

    /// Every turn plays these steps.
    pub fn turns(self, steps: impl IntoIterator<Item = Step>) -> Self {
        self.always("session/prompt", steps)
    }

    /// Ignores cancels, closes, the end of its input and all signals that can be ignored.
    pub fn stubborn(mut self) -> Self {
        let signals = [Signal::Hup, Signal::Int, Signal::Term];
        self.first.insert(0, Step::ignore(signals));
        self.at_eof = Some(vec![Step::SleepForever]);
        self.always("session/cancel", []).always("session/close", [])
    }
}

/// A `session/update`.
pub fn update(update: &Value) -> Step {
    Step::notify("session/update", json!({ "sessionId": "$SESSION", "update": update }))
}

/// A piece of a message.
pub fn text(text: &str) -> Step {
    update(&json!({
        "sessionUpdate": "agent_message_chunk", "content": { "type": "text", "text": text },
    }))
}

/// A piece of the message of this id.
pub fn text_of(id: &str, text: &str) -> Step {
    update(&json!({
        "sessionUpdate": "agent_message_chunk", "messageId": id,
        "content": { "type": "text", "text": text },
    }))
}

/// A piece of reasoning.
pub fn thought(text: &str) -> Step {
    update(&json!({
        "sessionUpdate": "agent_thought_chunk", "content": { "type": "text", "text": text },
    }))
}

/// News of a command.
pub fn command(id: &str, status: &str, command: &str) -> Step {
    update(&json!({
        "sessionUpdate": "tool_call", "toolCallId": id, "kind": "execute", "title": command,
        "status": status, "rawInput": { "command": command },
    }))
}

/// A request for permission to run a command.
pub fn permission(name: &str, id: &str, command: &str) -> Step {
    let option = |id: &str, kind: &str| json!({ "optionId": id, "kind": kind, "name": id });
    let options = [
        option("once", "allow_once"),
        option("forever", "allow_always"),
        option("no", "reject_once"),
    ];
    let call = json!({
        "toolCallId": id, "kind": "execute", "title": command, "status": "pending",
        "rawInput": { "command": command },
    });
    let params = json!({ "sessionId": "$SESSION", "toolCall": call, "options": options });
    Step::ask(name, "session/request_permission", params)
}

/// The end of a turn.
pub fn end(stop_reason: &str) -> Step {
    Step::ReplyWith(json!({ "stopReason": stop_reason }))
}

/// A healthy turn.
pub fn answer(answer: &str) -> Vec<Step> {
    vec![text(answer), end("end_turn")]
}

/// The `fake-acp` executable that was built beside the running test.
pub fn binary() -> PathBuf {
    crate::fake::binary("fake-acp")
}

/// One test's fakes and the takopi that runs them, as an agent that no preset knows.
pub type Lab = crate::lab::Lab<Home>;

/// The agent needs no directories of its own.
impl FakeHome for Home {
    type Script = Script;
    const PROGRAM: &'static str = "fake-acp";

    fn without_model() -> Self {
        Self::new(&[])
    }

    fn home(&self) -> &Home {
        self
    }

    fn env(&self) -> Vec<(String, String)> {
        self.env()
    }
}

impl Lab {
    /// The agent.
    pub fn acp(&self) -> Acp {
        let command = [self.binary().to_string_lossy().into_owned()];
        Acp::new(Agent::custom("lab", command, "lab").expect("a name"))
    }

    /// A runner that keeps sessions warm for this long.
    pub fn runner(&self, keep_warm: Duration) -> EngineRunner<AcpEngine> {
        self.acp().keep_warm(keep_warm).runner().on(self.host.clone())
    }
}
