//! A scripted `codex app-server`, and ready scripts of it.
//!
//! What a script does not mention goes as with a healthy server: `initialize`, threads, turns that
//! answer `Hello from the fake.`, interrupts, errors for unknown threads and methods.
//!
//! A call of the client is played as a list of steps. Answering is one of them, so that the list
//! is the whole behavior: no [`Step::Reply`] never answers, two answer twice, a [`Step::Gate`] before it
//! answers late, a notification before it comes ahead of the reply, [`Step::Exit`] before or behind
//! it dies there. Steps up to the first that [blocks](Step::blocks) are played before the next
//! message is read; the rest goes on beside other calls.

use serde::{Deserialize, Serialize};
use serde_json::json;

use super::{Script, Step, turn};
use crate::fake::Rule;

/// One app-server process.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Server {
    /// The version named in `initialize`.
    pub version: String,
    /// The id of every thread that is started; a new one each by default.
    pub thread: Option<String>,
    /// Played before anything is read.
    pub first: Vec<Step>,
    /// Played when stdin has ended; a healthy server exits with 0.
    pub at_eof: Vec<Step>,
    /// What happens instead of the default, by method; the first rule that fits and is not used up.
    pub rules: Vec<Rule>,
}

impl Default for Server {
    fn default() -> Self {
        Self {
            version: "0.166.0".to_owned(),
            thread: None,
            first: Vec::new(),
            at_eof: vec![Step::Exit(0)],
            rules: Vec::new(),
        }
    }
}

impl Server {
    /// A healthy server.
    pub fn new() -> Self {
        Self::default()
    }

    /// Names this version in `initialize`.
    pub fn version(mut self, number: &str) -> Self {
        number.clone_into(&mut self.version);
        self
    }

    /// Gives this id to threads that are started.
    pub fn thread(mut self, id: &str) -> Self {
        self.thread = Some(id.to_owned());
        self
    }

    /// Plays steps before anything is read.
    pub fn first(mut self, steps: impl IntoIterator<Item = Step>) -> Self {
        self.first = steps.into_iter().collect();
        self
    }

    /// Plays steps when stdin has ended, instead of exiting with 0.
    pub fn at_eof(mut self, steps: impl IntoIterator<Item = Step>) -> Self {
        self.at_eof = steps.into_iter().collect();
        self
    }

    /// One call of the method plays these steps. Of several such rules each serves one call, in
    /// order; calls after that go by [`Server::always`] or the default.
    pub fn once(self, method: &str, steps: impl IntoIterator<Item = Step>) -> Self {
        self.rule(Rule::new(method, steps).once())
    }

    /// Every call of the method plays these steps.
    pub fn always(self, method: &str, steps: impl IntoIterator<Item = Step>) -> Self {
        self.rule(Rule::new(method, steps))
    }

    /// Every call of the method whose message contains `text` plays these steps.
    pub fn when(self, method: &str, text: &str, steps: impl IntoIterator<Item = Step>) -> Self {
        self.rule(Rule::new(method, steps).containing(text))
    }

    /// The next turn plays these steps behind the reply, `turn/started` and the echo of the prompt.
    /// They bring their own end, like [`turn::answer`] does.
    pub fn turn(self, steps: impl IntoIterator<Item = Step>) -> Self {
        self.once("turn/start", turn::opened(steps))
    }

    /// Every turn plays these steps behind the reply, `turn/started` and the echo of the prompt.
    pub fn turns(self, steps: impl IntoIterator<Item = Step>) -> Self {
        self.always("turn/start", turn::opened(steps))
    }

    /// Every turn whose prompt contains `text` plays these steps behind its opening.
    pub fn turns_when(self, text: &str, steps: impl IntoIterator<Item = Step>) -> Self {
        self.when("turn/start", text, turn::opened(steps))
    }

    /// The script whose app-servers are this one.
    pub fn script(self) -> Script {
        Script::app_server(self)
    }

    fn rule(mut self, rule: Rule) -> Self {
        self.rules.push(rule);
        self
    }
}

/// A server that answers every turn with `answer`.
pub fn hello(answer: &str) -> Script {
    Server::new().turns(turn::answer(answer)).script()
}

/// A server that answers every turn with its prompt.
pub fn echo() -> Script {
    hello("$PROMPT")
}

/// A server whose turns all fail with `message`.
pub fn failed(message: &str) -> Script {
    Server::new().turns(turn::failed(message)).script()
}

/// The steps of a call that is refused because another codex has the thread open.
pub fn busy() -> [Step; 1] {
    [Step::fail(-32600, "thread $THREAD already has an active writer")]
}

/// The steps of a `thread/resume` of a thread that does not exist.
pub fn not_found() -> [Step; 1] {
    [Step::fail(-32600, "no rollout found for thread id $THREAD")]
}

/// The steps of a call that an overloaded server turns down.
pub fn overloaded() -> [Step; 1] {
    [Step::fail(-32001, "Server overloaded; retry later.")]
}

/// A reply to the call on a line of `len` bytes.
pub fn huge_reply(len: usize) -> Step {
    Step::huge(r#"{"id":$REQUEST,"result":{"filling":""#, r#""}}"#, len)
}

/// Many notices that belong to no thread.
pub fn flood(lines: usize) -> Step {
    let params = json!({"summary": "notice $SEQ ".repeat(16), "details": null});
    let line = json!({"method": "configWarning", "params": params}).to_string();
    Step::FloodStdout { line, lines }
}
