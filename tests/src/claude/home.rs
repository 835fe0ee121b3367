//! A home for Claude Code: a [`Home`] with directories for its settings, sessions and temporary files.
//!
//! [`TestHome::env`] keeps the developer's settings and keys out, and claude from calling anything but the model server.

use std::collections::BTreeMap;
use std::fs;
use std::ops::Deref;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use takopi_core::RunRequest;

pub use crate::home::Process;
use crate::home::{Home, MARKER, lab_mcp_binary};
use crate::model::messages::MessagesServer;
use crate::runs;

/// The directories of one test.
#[derive(Debug)]
pub struct TestHome {
    home: Home,
    env: BTreeMap<String, String>,
}

impl Deref for TestHome {
    type Target = Home;

    fn deref(&self) -> &Home {
        &self.home
    }
}

impl TestHome {
    /// A home whose claude talks to this model and does not retry.
    pub fn new(model: &MessagesServer) -> Self {
        Self::at(model.base_url())
    }

    /// A home for a claude that calls no model, such as the fake one.
    pub fn without_model() -> Self {
        // Port 9 is `discard`: a claude that does call gets no answer. An empty address would be the real service.
        Self::at("http://127.0.0.1:9".into())
    }

    fn at(base_url: String) -> Self {
        let home = Home::new(&["claude", "tmp"]);
        let set = [
            ("CLAUDE_CONFIG_DIR", home.path("claude")),
            ("CLAUDE_CODE_TMPDIR", home.path("tmp")),
            ("ANTHROPIC_BASE_URL", base_url),
            ("ANTHROPIC_API_KEY", "dummy".into()),
            ("ANTHROPIC_AUTH_TOKEN", String::new()),
            ("CLAUDE_CODE_OAUTH_TOKEN", String::new()),
            ("CLAUDE_CODE_MAX_RETRIES", "0".into()),
            ("DISABLE_TELEMETRY", "1".into()),
            ("DISABLE_AUTOUPDATER", "1".into()),
            ("DISABLE_ERROR_REPORTING", "1".into()),
            ("CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC", "1".into()),
            // Tests may run as root, where claude refuses to skip permissions otherwise.
            ("IS_SANDBOX", "1".into()),
        ];
        let env = set.map(|(name, value)| (name.to_owned(), value)).into();
        Self { home, env }
    }

    /// Sets one more variable for claude, or another value.
    pub fn set(mut self, name: &str, value: &str) -> Self {
        self.env.insert(name.to_owned(), value.to_owned());
        self
    }

    /// How often claude sends a request again that failed; 0 by default here.
    pub fn max_retries(self, retries: u32) -> Self {
        self.set("CLAUDE_CODE_MAX_RETRIES", &retries.to_string())
    }

    /// Lets claude log in by a subscription's token rather than by a key.
    pub fn subscription(self) -> Self {
        self.set("ANTHROPIC_API_KEY", "").set("CLAUDE_CODE_OAUTH_TOKEN", "sk-ant-oat01-dummy")
    }

    /// Writes the user's `settings.json`.
    pub fn settings(self, settings: &Value) -> Self {
        fs::write(self.config().join("settings.json"), settings.to_string()).expect("settings");
        self
    }

    /// `CLAUDE_CONFIG_DIR`.
    pub fn config(&self) -> PathBuf {
        self.root().join("claude")
    }

    /// The variables to set for claude or takopi, on top of whatever is inherited.
    pub fn env(&self) -> Vec<(String, String)> {
        self.home.env().into_iter().chain(self.env.clone()).collect()
    }

    /// A command that runs in the workspace with `PATH` and [`TestHome::env`] as its whole environment.
    pub fn command(&self, program: impl AsRef<Path>) -> tokio::process::Command {
        self.command_with(program.as_ref(), self.env())
    }

    /// A request that runs in the workspace with [`TestHome::env`].
    pub fn request(&self, prompt: &str) -> RunRequest {
        runs::request_in(&self.workspace(), self.env(), prompt)
    }

    /// For `--mcp-config`: the MCP server `lab`, whose tool `echo` returns its text and the structured content `{"a":1}`.
    pub fn lab_mcp(&self) -> Value {
        let env = json!({ MARKER: self.id() });
        json!({"mcpServers": {"lab": {"command": lab_mcp_binary(), "args": [], "env": env}}})
    }

    /// The file in which claude keeps a session of the workspace, whether it is there or not.
    pub fn transcript(&self, session: &str) -> PathBuf {
        let plain = |c: char| if c.is_ascii_alphanumeric() { c } else { '-' };
        let project: String = self.path("workspace").chars().map(plain).collect();
        self.config().join("projects").join(project).join(format!("{session}.jsonl"))
    }

    /// The lines of a session's transcript; none if there is no such session.
    pub fn transcript_lines(&self, session: &str) -> Vec<Value> {
        let text = fs::read_to_string(self.transcript(session)).unwrap_or_default();
        text.lines().map(|line| serde_json::from_str(line).expect("a line is JSON")).collect()
    }

    /// The sessions of all directories that have a transcript, sorted.
    pub fn sessions(&self) -> Vec<String> {
        let below = |dir: &Path| -> Vec<PathBuf> {
            let entries = fs::read_dir(dir).into_iter().flatten().flatten();
            entries.map(|entry| entry.path()).collect()
        };
        let files = below(&self.config().join("projects")).into_iter().flat_map(|dir| below(&dir));
        let transcripts = files.filter(|file| file.extension().is_some_and(|it| it == "jsonl"));
        let mut sessions: Vec<String> =
            transcripts.filter_map(|file| Some(file.file_stem()?.to_str()?.to_owned())).collect();
        sessions.sort();
        sessions
    }

    /// The processes of this test whose program is this claude: not the commands that it runs.
    pub fn claudes(&self, program: impl AsRef<Path>) -> Vec<i32> {
        let program = program.as_ref();
        let runs = |process: &Process| {
            let words = process.command.split(' ').take(2);
            words.into_iter().any(|word| Path::new(word) == program)
        };
        self.processes().into_iter().filter(runs).map(|process| process.pid).collect()
    }
}
