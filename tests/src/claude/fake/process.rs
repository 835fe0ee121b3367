//! A scripted `claude -p` over its two-way stream, and ready scripts of it.
//!
//! What a script does not mention goes as with a healthy 2.1.325: `initialize` and other control requests, turns that answer
//! `Hello from the fake.`, messages folded into the running turn, interrupts, `end_session`, errors for unknown requests, the
//! end of the input.
//!
//! A call is a control request, by its subtype, or a message of the user: `user` begins a turn, `steer` comes while one runs.
//! It is played as a list of steps. Answering is one of them, so that the list is the whole behavior: no [`Step::Reply`]
//! never answers, two answer twice, a [`Step::Gate`] before it answers late, [`Step::Exit`] before or behind it dies there.
//! Steps up to the first that [blocks](Step::blocks) are played before the next message is read; the rest goes on beside other
//! calls. A turn is over with [`Step::State`] of `idle`.

use serde::{Deserialize, Serialize};

use super::{Script, Step, turn};
use crate::fake::Rule;

/// One process.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Process {
    /// The version that its lines name.
    pub version: String,
    /// The session of every line, whatever was asked for.
    pub session: Option<String>,
    /// Whether it prints its state; only if the client asks for it in the environment by default.
    pub states: Option<bool>,
    /// Played before anything is read.
    pub first: Vec<Step>,
    /// Played when stdin has ended. By default it ends the running turn and exits.
    pub at_eof: Option<Vec<Step>>,
    /// What happens instead of the default, by call; the first rule that fits and is not used up.
    pub rules: Vec<Rule>,
}

impl Default for Process {
    fn default() -> Self {
        Self {
            version: "2.1.325".to_owned(),
            session: None,
            states: None,
            first: Vec::new(),
            at_eof: None,
            rules: Vec::new(),
        }
    }
}

impl Process {
    /// A healthy process.
    pub fn new() -> Self {
        Self::default()
    }

    /// Names this session in every line.
    pub fn session(mut self, id: &str) -> Self {
        self.session = Some(id.to_owned());
        self
    }

    /// Never prints its state, as old releases.
    pub fn without_states(mut self) -> Self {
        self.states = Some(false);
        self
    }

    /// Plays steps before anything is read.
    pub fn first(mut self, steps: impl IntoIterator<Item = Step>) -> Self {
        self.first = steps.into_iter().collect();
        self
    }

    /// Plays steps when stdin has ended. A process whose steps are over exits with 0.
    pub fn at_eof(mut self, steps: impl IntoIterator<Item = Step>) -> Self {
        self.at_eof = Some(steps.into_iter().collect());
        self
    }

    /// One call plays these steps. Of several such rules each serves one call, in order; calls after that go by
    /// [`Process::always`] or the default.
    pub fn once(self, call: &str, steps: impl IntoIterator<Item = Step>) -> Self {
        self.rule(Rule::new(call, steps).once())
    }

    /// Every such call plays these steps. With none it is ignored: `always("interrupt", [])`.
    pub fn always(self, call: &str, steps: impl IntoIterator<Item = Step>) -> Self {
        self.rule(Rule::new(call, steps))
    }

    /// Every such call whose message contains `text` plays these steps.
    pub fn when(self, call: &str, text: &str, steps: impl IntoIterator<Item = Step>) -> Self {
        self.rule(Rule::new(call, steps).containing(text))
    }

    /// The next turn plays these steps behind its opening. They bring their own end, like [`turn::answer`] does.
    pub fn turn(self, steps: impl IntoIterator<Item = Step>) -> Self {
        self.once("user", turn::opened(steps))
    }

    /// Every turn plays these steps behind its opening.
    pub fn turns(self, steps: impl IntoIterator<Item = Step>) -> Self {
        self.always("user", turn::opened(steps))
    }

    /// Every turn whose prompt contains `text` plays these steps behind its opening.
    pub fn turns_when(self, text: &str, steps: impl IntoIterator<Item = Step>) -> Self {
        self.when("user", text, turn::opened(steps))
    }

    /// Ignores interrupts, `end_session`, the end of its input and all signals that can be ignored: only SIGKILL ends it.
    pub fn stubborn(mut self) -> Self {
        let signals = [super::Signal::Hup, super::Signal::Int, super::Signal::Term];
        self.first.insert(0, Step::ignore(signals));
        self.always("interrupt", []).always("end_session", []).at_eof([Step::SleepForever])
    }

    /// The script whose processes are this one.
    pub fn script(self) -> Script {
        self.into()
    }

    fn rule(mut self, rule: Rule) -> Self {
        self.rules.push(rule);
        self
    }
}

/// A process that answers every prompt with `answer`.
pub fn answering(answer: &str) -> Script {
    Process::new().turns(turn::answer(answer)).script()
}

/// A process that answers every prompt with the prompt.
pub fn echo() -> Script {
    answering("$PROMPT")
}

/// A process whose turns all fail with this status and text of the API.
pub fn failing(status: u16, error: &str, text: &str) -> Script {
    Process::new().turns(turn::api_error(status, error, text)).script()
}

/// A resume of a session that does not exist.
pub fn unknown_session() -> Script {
    let text = "No conversation found with session ID: $SESSION";
    let failed = [turn::failure("error_during_execution", text), Step::stderr(text)];
    Process::new().first(failed.into_iter().chain([Step::Exit(1)])).script()
}
