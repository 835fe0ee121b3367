//! The steps a fake plays.

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// One thing a fake does.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Step {
    /// Writes a line to stdout, as it stands but for placeholders.
    Line(String),
    /// Writes bytes to stdout, as they are.
    Raw(Vec<u8>),
    /// Writes a line of exactly `len` bytes: `head`, filling, `tail`. Never held in memory.
    Huge {
        /// How the line begins.
        head: String,
        /// How the line ends, before its newline.
        tail: String,
        /// Length of the line without its newline.
        len: usize,
    },
    /// Writes the same line many times.
    FloodStdout {
        /// The line, with placeholders.
        line: String,
        /// How often.
        lines: usize,
    },
    /// Writes a line to stderr, with placeholders.
    Stderr(String),
    /// Writes this many bytes of log lines to stderr.
    FloodStderr(usize),
    /// Closes stdout; what is written later is lost.
    CloseStdout,

    /// Reads stdin to its end (exec). Read input is seen in `Control::stdin` and in `$PROMPT`.
    ReadStdin,
    /// Reads this many bytes of stdin, or what there is (exec).
    ReadStdinBytes(usize),
    /// Closes stdin, read or not; a server then goes on as at the end of its input.
    CloseStdin,

    /// Waits until the test opens the gate. One that was opened before lets everybody pass.
    Gate(String),
    /// Reports to the test that this point was reached.
    Reached(String),

    /// Starts a grandchild and goes on when it is ready.
    Spawn(Grandchild),
    /// Kills the grandchildren this process started, as a codex that cleans up does.
    KillSpawned,
    /// Ignores signals from here on.
    IgnoreSignals(Vec<Signal>),
    /// From here on the signal plays these steps, each time it comes, beside the others. Only steps
    /// that all fakes have.
    OnSignal {
        /// Which signal.
        signal: Signal,
        /// What it does.
        steps: Vec<Step>,
    },
    /// Sleeps. Not for synchronisation: it shuffles runs of a chaos test.
    Pause {
        /// For how long.
        millis: u64,
    },
    /// Does nothing, until killed.
    SleepForever,
    /// Exits.
    Exit(i32),
    /// Dies of a signal.
    Die(Signal),

    /// Sends a notification (app-server). One of `turn/completed` for `$TURN` ends the turn.
    Notify {
        /// The method.
        method: String,
        /// The parameters, with placeholders in strings.
        params: Value,
    },
    /// Sends a request to the client (app-server, claude).
    Ask(Ask),
    /// Withdraws the ask of this name (app-server, claude), or all of the running turn if it is `*` (claude).
    Withdraw(String),
    /// Answers the client's request as a healthy agent does (app-server, claude).
    Reply,
    /// Answers the client's request with this result (app-server, claude).
    ReplyWith(Value),
    /// Answers the client's request with an error (app-server, claude).
    Fail {
        /// The code, -32600 for most of Codex's errors; Claude Code has none.
        code: i64,
        /// The message.
        message: String,
        /// `error.data` or `error_code`, if any.
        data: Option<Value>,
    },
    /// The session is `running`, `requires_action` or `idle` from here on, which is printed if the client asked for such lines
    /// (claude). With `idle` the turn is over; `running` outside a turn begins one that nobody asked for.
    State(String),
    /// Sends `thread/tokenUsage/updated` after a model call; totals add up per thread (app-server).
    Usage {
        /// Input tokens, cached ones included.
        input: u64,
        /// Cached input tokens.
        cached: u64,
        /// Output tokens.
        output: u64,
        /// Reasoning tokens.
        reasoning: u64,
    },
    /// Ends the running turn as interrupted: its steps stop, its open asks are withdrawn, its end is sent (app-server, claude).
    Interrupt,
    /// Reads no further message of the client (app-server, claude); behind a step that blocks, perhaps one.
    StopReading,
}

/// A request of the agent to the client.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Ask {
    /// The name under which the test finds the client's answer.
    pub name: String,
    /// The method, or the subtype of a control request.
    pub method: String,
    /// The parameters, with placeholders in strings.
    pub params: Value,
    /// Whether the next step waits for the answer.
    pub wait: bool,
    /// The id of the request; the server's next number by default.
    pub id: Option<Value>,
}

/// A process that a fake leaves behind: it sleeps until it is killed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Grandchild {
    /// The point it reports with its pid when it is ready.
    pub name: String,
    /// Its place in the process tree.
    pub place: Place,
    /// Whether it keeps the fake's stdout open.
    pub holds_stdout: bool,
    /// Whether it keeps the fake's stderr open.
    pub holds_stderr: bool,
    /// Whether its environment is empty.
    pub clears_env: bool,
    /// Signals it ignores; it dies of any other.
    pub ignores: Vec<Signal>,
}

/// Where a grandchild is in the process tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Place {
    /// A child of the fake in its process group.
    SameGroup,
    /// A child of the fake that leads a process group.
    OwnGroup,
    /// A child of the fake that leads a session, like Codex's commands.
    OwnSession,
    /// Out of the tree: forked twice, leading a session, adopted by init.
    Detached,
}

/// A signal, by its usual name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[allow(missing_docs, reason = "the names say it")]
pub enum Signal {
    Hup,
    Int,
    Quit,
    Abrt,
    Kill,
    Segv,
    Pipe,
    Term,
    Usr1,
}

impl Step {
    /// Writes a line of text to stdout.
    pub fn line(text: impl Into<String>) -> Self {
        Self::Line(text.into())
    }

    /// Writes a JSON value to stdout, on one line.
    pub fn json(value: &Value) -> Self {
        Self::Line(value.to_string())
    }

    /// Writes bytes to stdout.
    pub fn raw(bytes: impl Into<Vec<u8>>) -> Self {
        Self::Raw(bytes.into())
    }

    /// Writes a line of `len` bytes that is not JSON.
    pub fn huge_junk(len: usize) -> Self {
        Self::huge("", "", len)
    }

    /// Writes a line of `len` bytes that begins and ends as given.
    pub fn huge(head: impl Into<String>, tail: impl Into<String>, len: usize) -> Self {
        Self::Huge { head: head.into(), tail: tail.into(), len }
    }

    /// Writes a line to stderr.
    pub fn stderr(text: impl Into<String>) -> Self {
        Self::Stderr(text.into())
    }

    /// Waits for a gate.
    pub fn gate(name: impl Into<String>) -> Self {
        Self::Gate(name.into())
    }

    /// Reports a point.
    pub fn reached(name: impl Into<String>) -> Self {
        Self::Reached(name.into())
    }

    /// Ignores signals.
    pub fn ignore(signals: impl IntoIterator<Item = Signal>) -> Self {
        Self::IgnoreSignals(signals.into_iter().collect())
    }

    /// Plays steps when the signal comes.
    pub fn on_signal(signal: Signal, steps: impl IntoIterator<Item = Self>) -> Self {
        Self::OnSignal { signal, steps: steps.into_iter().collect() }
    }

    /// Sends a notification.
    pub fn notify(method: impl Into<String>, params: Value) -> Self {
        Self::Notify { method: method.into(), params }
    }

    /// Answers the client's request with an error that has no data.
    pub fn fail(code: i64, message: impl Into<String>) -> Self {
        Self::Fail { code, message: message.into(), data: None }
    }

    /// Sends a request to the client and waits for its answer.
    pub fn ask(name: impl Into<String>, method: impl Into<String>, params: Value) -> Self {
        Self::Ask(Ask { name: name.into(), method: method.into(), params, wait: true, id: None })
    }

    /// The same ask without waiting for the answer; other steps stay as they are.
    pub fn without_waiting(self) -> Self {
        match self {
            Self::Ask(ask) => Self::Ask(Ask { wait: false, ..ask }),
            other => other,
        }
    }

    /// The same ask under this id; other steps stay as they are.
    pub fn with_id(self, id: impl Into<Value>) -> Self {
        match self {
            Self::Ask(ask) => Self::Ask(Ask { id: Some(id.into()), ..ask }),
            other => other,
        }
    }

    /// The same ask with one more parameter; other steps stay as they are.
    pub fn with_param(self, key: &str, value: impl Into<Value>) -> Self {
        match self {
            Self::Ask(mut ask) => {
                ask.params[key] = value.into();
                Self::Ask(ask)
            }
            other => other,
        }
    }

    /// Whether the step can take as long as it likes.
    pub fn blocks(&self) -> bool {
        match self {
            Self::Gate(_) | Self::Pause { .. } | Self::SleepForever => true,
            Self::Ask(ask) => ask.wait,
            _ => false,
        }
    }
}

impl Grandchild {
    /// A child of the fake in its group, which holds nothing and dies of any signal.
    pub fn new(name: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            place: Place::SameGroup,
            holds_stdout: false,
            holds_stderr: false,
            clears_env: false,
            ignores: Vec::new(),
        }
    }

    /// Puts it elsewhere in the process tree.
    pub fn at(self, place: Place) -> Self {
        Self { place, ..self }
    }

    /// Lets it keep the fake's stdout open.
    pub fn holding_stdout(self) -> Self {
        Self { holds_stdout: true, ..self }
    }

    /// Lets it keep the fake's stderr open.
    pub fn holding_stderr(self) -> Self {
        Self { holds_stderr: true, ..self }
    }

    /// Gives it an empty environment.
    pub fn clearing_env(self) -> Self {
        Self { clears_env: true, ..self }
    }

    /// Lets it ignore signals.
    pub fn ignoring(self, signals: impl IntoIterator<Item = Signal>) -> Self {
        Self { ignores: signals.into_iter().collect(), ..self }
    }

    /// The step that starts it.
    pub fn spawn(self) -> Step {
        Step::Spawn(self)
    }
}
