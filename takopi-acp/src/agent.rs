//! Which agent to run: its command line, its session store, and what is particular about it.
//!
//! Agents that speak ACP differ where the protocol leaves room. Each difference that matters is a field of [`Quirks`], so
//! that the rest of the crate knows no agent by name.

use std::path::PathBuf;
use std::time::Duration;

use takopi_core::EngineId;
use takopi_core::runner::ResumeCodec;
use thiserror::Error;

/// An agent that cannot be described like this.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum AgentError {
    /// The name cannot be typed as an engine's.
    #[error(
        "{0:?} is no name for an engine: use lower-case letters, digits and `-`, beginning with a letter"
    )]
    Name(String),
    /// There is no program.
    #[error("the command of engine {0} is empty: give the program and its arguments")]
    NoCommand(String),
    /// The store cannot be part of a lock's name.
    #[error(
        "{0:?} is no name for a session store: use lower-case letters, digits and `-`, beginning with a letter"
    )]
    Store(String),
    /// The command of resume lines is not one.
    #[error("the resume command of engine {0} is empty")]
    NoResume(String),
}

/// The form of an agent's session ids. What has another form is refused before anything is started: agents take other texts
/// for titles, or begin a new session.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum SessionIds {
    /// UUIDs, in lower case.
    Uuid,
    /// `ses_` and letters or digits, as opencode has them.
    OpenCode,
    /// Visible ASCII that cannot be taken for a flag or a path upwards.
    #[default]
    Plain,
}

impl SessionIds {
    fn canonical(self) -> fn(&str) -> Option<String> {
        match self {
            Self::Uuid => takopi_core::runner::lower_case_uuid,
            Self::OpenCode => |id| {
                let rest = id.strip_prefix("ses_")?;
                let plain = |byte: u8| byte.is_ascii_alphanumeric();
                (!rest.is_empty() && id.len() <= LONGEST_ID && rest.bytes().all(plain))
                    .then(|| id.to_owned())
            },
            Self::Plain => |id| {
                let plain = id.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'`');
                let is_id = !id.is_empty() && id.len() <= LONGEST_ID && plain;
                (is_id && !id.starts_with(['-', '/', '.'])).then(|| id.to_owned())
            },
        }
    }
}

/// The longest session id.
const LONGEST_ID: usize = 256;

/// How an agent differs from others.
#[derive(Debug, Clone)]
pub(crate) struct Quirks {
    /// Every text of the model has a `messageId`. One at the end without is an error of the agent.
    pub(crate) message_ids: bool,
    /// The mode in which people decide. By itself the agent lets a model decide.
    pub(crate) asking_mode: Option<&'static str>,
    /// Options of kind `allow_always` that are known to last no longer than the session.
    pub(crate) session_options: &'static [&'static str],
    /// What goes ahead of a prompt that begins with `/`, so that it is not taken for a command.
    pub(crate) slash_prefix: &'static str,
    /// Variables that its process gets, ahead of those of the request.
    pub(crate) env: &'static [(&'static str, &'static str)],
    /// `usage` is of the last call of the model alone.
    pub(crate) usage_of_last_call: bool,
    /// How long a session must have been left alone before it may be loaded, and where its files are.
    pub(crate) rest: Option<Rest>,
    /// A session works in the directory it was begun in, whatever directory it is resumed with; and with another one
    /// what was approved there is never run.
    pub(crate) keeps_directory: bool,
    /// How long it must be quiet behind a load: replay and new text look alike.
    pub(crate) quiet: Duration,
    /// How long it may take to exit once its input is closed.
    pub(crate) linger: Duration,
    /// It does not end with its input, so the kernel interrupts it when takopi dies.
    pub(crate) interrupt_on_death: bool,
    /// It may take messages into a running turn.
    pub(crate) steering: bool,
}

/// A session that is loaded too soon after its last write is lost.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Rest {
    /// How long it must have been left alone.
    pub(crate) age: Duration,
    /// The directory of an agent's files, below the home directory.
    pub(crate) directory: &'static str,
    /// The variable that names another home directory.
    pub(crate) home: &'static str,
}

/// A zero-width space: opencode takes every prompt that begins with `/` for a command, and answers an unknown one with
/// nothing. No agent was seen to skip it as white space.
const ZERO_WIDTH: &str = "\u{200b}";

const PLAIN: Quirks = Quirks {
    message_ids: false,
    asking_mode: None,
    session_options: &[],
    slash_prefix: ZERO_WIDTH,
    env: &[],
    usage_of_last_call: false,
    rest: None,
    keeps_directory: false,
    quiet: Duration::from_millis(250),
    linger: Duration::from_secs(3),
    interrupt_on_death: false,
    steering: false,
};

/// A known agent.
struct Preset {
    name: &'static str,
    title: &'static str,
    command: &'static [&'static str],
    store: &'static str,
    /// The command that resumes a session interactively; adapters have none of their own.
    resume: Option<&'static str>,
    ids: SessionIds,
    install: &'static str,
    login: &'static str,
    quirks: Quirks,
}

static PRESETS: [Preset; 5] = [
    Preset {
        name: "opencode",
        title: "opencode",
        command: &["opencode", "acp"],
        store: "opencode",
        resume: Some("opencode --session"),
        ids: SessionIds::OpenCode,
        install: "npm install -g opencode-ai",
        login: "log in with `opencode auth login`",
        quirks: Quirks {
            message_ids: true,
            session_options: &["always"],
            usage_of_last_call: true,
            keeps_directory: true,
            ..PLAIN
        },
    },
    Preset {
        name: "gemini",
        title: "Gemini CLI",
        command: &["gemini", "--acp"],
        store: "gemini",
        resume: Some("gemini --resume"),
        ids: SessionIds::Uuid,
        install: "npm install -g @google/gemini-cli",
        login: "log in with `gemini`, or set GEMINI_API_KEY",
        quirks: Quirks {
            session_options: &["proceed_always"],
            rest: Some(Rest {
                age: Duration::from_secs(61),
                directory: ".gemini/tmp",
                home: "GEMINI_CLI_HOME",
            }),
            // It replays after its response.
            quiet: Duration::from_secs(1),
            interrupt_on_death: true,
            ..PLAIN
        },
    },
    Preset {
        name: "qwen",
        title: "Qwen Code",
        command: &["qwen", "--acp"],
        store: "qwen",
        resume: Some("qwen --resume"),
        ids: SessionIds::Uuid,
        install: "npm install -g @qwen-code/qwen-code",
        login: "log in with `qwen`, or set OPENAI_API_KEY",
        quirks: Quirks { asking_mode: Some("default"), linger: Duration::from_secs(6), ..PLAIN },
    },
    Preset {
        name: "codex-acp",
        title: "Codex (ACP)",
        command: &["codex-acp"],
        store: "codex",
        resume: None,
        ids: SessionIds::Uuid,
        install: "npm install -g @agentclientprotocol/codex-acp",
        login: "log in with `codex login`",
        quirks: Quirks {
            message_ids: true,
            asking_mode: Some("workspace-write"),
            session_options: &["allow_for_session"],
            linger: Duration::from_secs(1),
            steering: true,
            ..PLAIN
        },
    },
    Preset {
        name: "claude-acp",
        title: "Claude Code (ACP)",
        command: &["claude-agent-acp"],
        store: "claude",
        resume: None,
        ids: SessionIds::Uuid,
        install: "npm install -g @agentclientprotocol/claude-agent-acp",
        login: "log in with `claude auth login`, or set ANTHROPIC_API_KEY",
        quirks: Quirks {
            message_ids: true,
            // A prompt is text: `@path` in it attaches no file, which nobody would be asked about. (Without attachments
            // of any kind, messages into a running turn would be lost too.)
            env: &[("CLAUDE_CODE_DISABLE_FILE_MENTIONS", "1")],
            linger: Duration::from_secs(4),
            steering: true,
            ..PLAIN
        },
    },
];

/// An agent: what takopi calls it, how it is started, where its sessions are.
///
/// ```
/// use takopi_acp::Agent;
///
/// let opencode = Agent::preset("opencode").unwrap();
/// assert_eq!(opencode.command(), ["opencode", "acp"]);
/// let own = Agent::custom("mine", ["my-agent", "--acp"], "my-agent")?;
/// assert_eq!(own.id().as_str(), "mine");
/// # Ok::<(), takopi_acp::AgentError>(())
/// ```
#[derive(Debug, Clone)]
pub struct Agent {
    id: EngineId,
    title: String,
    command: Vec<String>,
    store: String,
    resume: Option<String>,
    ids: SessionIds,
    install: Option<&'static str>,
    login: &'static str,
    pub(crate) quirks: Quirks,
}

impl Agent {
    /// The names of the agents that takopi knows.
    pub fn presets() -> impl Iterator<Item = &'static str> {
        PRESETS.iter().map(|preset| preset.name)
    }

    /// An agent that takopi knows.
    pub fn preset(name: &str) -> Option<Self> {
        let preset = PRESETS.iter().find(|preset| preset.name == name)?;
        Some(Self {
            id: EngineId::from_static(preset.name),
            title: preset.title.to_owned(),
            command: preset.command.iter().map(|&word| word.to_owned()).collect(),
            store: preset.store.to_owned(),
            resume: preset.resume.map(str::to_owned),
            ids: preset.ids,
            install: Some(preset.install),
            login: preset.login,
            quirks: preset.quirks.clone(),
        })
    }

    /// Any other agent, by its command line. Engines that reach the same sessions name the same store: they share the
    /// locks of its sessions.
    pub fn custom<I, S>(
        name: impl Into<String>,
        command: I,
        store: impl Into<String>,
    ) -> Result<Self, AgentError>
    where
        I: IntoIterator<Item = S>,
        S: Into<String>,
    {
        let (name, store) = (name.into(), store.into());
        if !is_name(&name) {
            return Err(AgentError::Name(name));
        }
        if !is_name(&store) {
            return Err(AgentError::Store(store));
        }
        let command: Vec<String> = command.into_iter().map(Into::into).collect();
        if command.first().is_none_or(|program| program.trim().is_empty()) {
            return Err(AgentError::NoCommand(name));
        }
        Ok(Self {
            title: name.clone(),
            id: EngineId::from(name),
            command,
            store,
            resume: None,
            ids: SessionIds::default(),
            install: None,
            login: "log in with the agent's own command",
            quirks: PLAIN,
        })
    }

    /// Under another name, with its sessions in the same store.
    pub fn named(mut self, name: impl Into<String>) -> Result<Self, AgentError> {
        let name = name.into();
        if !is_name(&name) {
            return Err(AgentError::Name(name));
        }
        self.id = EngineId::from(name);
        Ok(self)
    }

    /// Started with another command line.
    pub fn with_command<I, S>(mut self, command: I) -> Result<Self, AgentError>
    where
        I: IntoIterator<Item = S>,
        S: Into<String>,
    {
        let command: Vec<String> = command.into_iter().map(Into::into).collect();
        if command.first().is_none_or(|program| program.trim().is_empty()) {
            return Err(AgentError::NoCommand(self.id.to_string()));
        }
        self.command = command;
        Ok(self)
    }

    /// With its sessions in another store.
    pub fn with_store(mut self, store: impl Into<String>) -> Result<Self, AgentError> {
        self.store = store.into();
        if is_name(&self.store) { Ok(self) } else { Err(AgentError::Store(self.store)) }
    }

    /// What people read.
    pub fn with_title(mut self, title: impl Into<String>) -> Self {
        self.title = title.into();
        self
    }

    /// Sets the command that resumes a session interactively, for resume lines: `my-agent --session`. Without one the line
    /// is that of takopi.
    pub fn resumed_by(mut self, command: &str) -> Result<Self, AgentError> {
        let words: Vec<&str> = command.split_ascii_whitespace().collect();
        if words.is_empty() {
            return Err(AgentError::NoResume(self.id.to_string()));
        }
        self.resume = Some(words.join(" "));
        Ok(self)
    }

    /// The name of the engine.
    pub fn id(&self) -> &EngineId {
        &self.id
    }

    /// What people read.
    pub fn title(&self) -> &str {
        &self.title
    }

    /// The program and its arguments.
    pub fn command(&self) -> &[String] {
        &self.command
    }

    /// The store of its sessions.
    pub fn store(&self) -> &str {
        &self.store
    }

    /// The command that installs it, if it is known.
    pub fn install(&self) -> Option<&'static str> {
        self.install
    }

    /// How to log in.
    pub(crate) fn login(&self) -> &'static str {
        self.login
    }

    pub(crate) fn program(&self) -> PathBuf {
        PathBuf::from(self.command.first().map_or("", String::as_str))
    }

    /// How its sessions are written.
    pub fn resume_codec(&self) -> ResumeCodec {
        let command = match &self.resume {
            Some(command) => command.clone(),
            None => format!("takopi run --engine {} --resume", self.id),
        };
        ResumeCodec::new(self.id.clone(), command, self.ids.canonical())
    }
}

/// Whether a text can be typed after `--engine` and as `/NAME`, and be a part of a lock's name.
fn is_name(name: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    name.len() <= 40
        && name.starts_with(|letter: char| letter.is_ascii_lowercase())
        && name.bytes().all(plain)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_of_another_form_are_no_tokens() {
        let token = |name: &str, id: &str| Agent::preset(name).unwrap().resume_codec().token(id);
        let uuid = "01A1E21B-26e5-4eb0-9d27-459e98f10b74";
        assert_eq!(token("gemini", uuid).unwrap().value, uuid.to_ascii_lowercase());
        assert!(token("opencode", "ses_e1bbfb424ffezAOjnPk2pQdyCc").is_some());
        for id in ["", "--fork", "ses_", "ses_a/b", "a title", uuid, "ses_a b"] {
            assert_eq!(token("opencode", id), None, "{id}");
        }
        let own = Agent::custom("mine", ["x"], "mine").unwrap().resume_codec();
        assert!(own.token("sess-7:a/b").is_some());
        let long = "x".repeat(LONGEST_ID + 1);
        for id in ["", "--last", "two words", "../../etc", "/etc", "a`b", "ä", long.as_str()] {
            assert_eq!(own.token(id), None, "{id}");
        }
    }

    #[test]
    fn resume_lines_are_the_agents_own_command_or_takopis() {
        let line = |agent: Agent, id: &str| {
            let codec = agent.resume_codec();
            codec.format(&codec.token(id).unwrap())
        };
        let uuid = "01a1e21b-26e5-4eb0-9d27-459e98f10b74";
        let preset = |name| Agent::preset(name).unwrap();
        assert_eq!(line(preset("opencode"), "ses_1"), "`opencode --session ses_1`");
        assert_eq!(line(preset("qwen"), uuid), format!("`qwen --resume {uuid}`"));
        let adapter = format!("`takopi run --engine codex-acp --resume {uuid}`");
        assert_eq!(line(preset("codex-acp"), uuid), adapter);
        let own = Agent::custom("mine", ["x"], "mine").unwrap();
        assert_eq!(line(own.clone(), "7"), "`takopi run --engine mine --resume 7`");
        let own = own.resumed_by(" my-agent   --session ").unwrap();
        assert_eq!(line(own, "7"), "`my-agent --session 7`");
    }

    #[test]
    fn an_agent_that_cannot_be_named_or_started_is_refused() {
        let custom = |name: &str, command: &[&str], store: &str| {
            Agent::custom(name, command.iter().copied(), store).unwrap_err().to_string()
        };
        assert!(custom("My Agent", &["x"], "s").contains("no name for an engine"));
        assert!(custom("mine", &[], "s").contains("empty"));
        assert!(custom("mine", &[" "], "s").contains("empty"));
        assert!(custom("mine", &["x"], "").contains("no name for a session store"));
        assert!(custom("mine", &["x"], "a:b").contains("no name for a session store"));
    }

    #[test]
    fn adapters_share_the_store_of_their_agent() {
        let store = |name| Agent::preset(name).unwrap().store().to_owned();
        assert_eq!((store("codex-acp"), store("claude-acp")), ("codex".into(), "claude".into()));
        for name in Agent::presets() {
            assert!(is_name(&store(name)));
        }
    }
}
