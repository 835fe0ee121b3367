//! A home for codex: a [`Home`] with a `CODEX_HOME`, in which codex is configured to call only the model server.
//!
//! [`TestHome::env`] keeps the developer's codex settings and keys out.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::ops::Deref;
use std::path::{Path, PathBuf};

pub use crate::home::Process;
use crate::home::{Home, MARKER, lab_mcp_binary};
use crate::model::ModelServer;

/// The directories of one test.
#[derive(Debug)]
pub struct TestHome(Home);

impl Deref for TestHome {
    type Target = Home;

    fn deref(&self) -> &Home {
        &self.0
    }
}

/// The settings of a home's `config.toml`.
#[derive(Clone, Debug)]
pub struct HomeBuilder {
    base_url: String,
    settings: BTreeMap<String, String>,
    features: BTreeMap<String, bool>,
    request_max_retries: u32,
    stream_max_retries: u32,
    lab_mcp: bool,
    tables: String,
}

impl TestHome {
    /// A home whose codex talks to this model, asks for no approval, is not sandboxed and does not retry.
    pub fn new(model: &ModelServer) -> Self {
        Self::builder(model).build()
    }

    /// A home with other settings.
    pub fn builder(model: &ModelServer) -> HomeBuilder {
        HomeBuilder::new(model.base_url())
    }

    /// A home for a codex that calls no model, such as the fake one.
    pub fn without_model() -> Self {
        // Port 9 is `discard`: a codex that does call gets no answer.
        HomeBuilder::new("http://127.0.0.1:9/v1".into()).build()
    }

    /// `CODEX_HOME`.
    pub fn codex_home(&self) -> PathBuf {
        self.root().join("codex")
    }

    /// The variables to set for codex or takopi, on top of whatever is inherited.
    pub fn env(&self) -> Vec<(String, String)> {
        let set = [
            ("CODEX_HOME", self.path("codex")),
            ("CODEX_SQLITE_HOME", self.path("codex")),
            ("CODEX_APP_SERVER_DISABLE_MANAGED_CONFIG", "1".into()),
            // Codex takes an empty key for none.
            ("OPENAI_API_KEY", String::new()),
            ("CODEX_API_KEY", String::new()),
            ("CODEX_ACCESS_TOKEN", String::new()),
            ("RUST_LOG", "error".into()),
        ];
        let set = set.map(|(name, value)| (name.to_owned(), value));
        self.0.env().into_iter().chain(set).collect()
    }

    /// A command that runs in the workspace with `PATH` and [`TestHome::env`] as its whole environment.
    pub fn command(&self, program: impl AsRef<Path>) -> tokio::process::Command {
        self.command_with(program.as_ref(), self.env())
    }

    /// The app-servers that this process started: not what they fork for a moment, which looks alike.
    pub fn servers(&self) -> Vec<i32> {
        let own = i32::try_from(std::process::id()).expect("a pid fits");
        let servers = self.processes().into_iter();
        servers
            .filter(|process| process.ppid == own && process.command.ends_with(" app-server"))
            .map(|process| process.pid)
            .collect()
    }
}

impl HomeBuilder {
    fn new(base_url: String) -> Self {
        let home = Self {
            base_url,
            settings: BTreeMap::new(),
            features: BTreeMap::new(),
            request_max_retries: 0,
            stream_max_retries: 0,
            lab_mcp: false,
            tables: String::new(),
        };
        home.setting("model", r#""gpt-5.5""#)
            .setting("model_provider", r#""mock""#)
            .approval_policy("never")
            .sandbox_mode("danger-full-access")
            // Both call home: one clones a repository with a git of its own, the other reports usage.
            .feature("plugins", false)
            .setting("analytics.enabled", "false")
    }

    /// `approval_policy`: `on-request` or `never` (the default here); `untrusted` is gone in 0.166.
    pub fn approval_policy(self, policy: &str) -> Self {
        self.setting("approval_policy", &format!("{policy:?}"))
    }

    /// `sandbox_mode`: `read-only`, `workspace-write` or `danger-full-access` (the default here).
    pub fn sandbox_mode(self, mode: &str) -> Self {
        self.setting("sandbox_mode", &format!("{mode:?}"))
    }

    /// How often codex sends a request again that got an error for an answer; 0 by default here.
    pub fn request_max_retries(mut self, retries: u32) -> Self {
        self.request_max_retries = retries;
        self
    }

    /// How often codex asks again after a stream that broke or failed; 0 by default here.
    pub fn stream_max_retries(mut self, retries: u32) -> Self {
        self.stream_max_retries = retries;
        self
    }

    /// Sets a top-level key, given as `key` or `table.key`, to a TOML value.
    pub fn setting(mut self, key: &str, toml: &str) -> Self {
        self.settings.insert(key.into(), toml.into());
        self
    }

    /// Sets a feature flag of codex.
    pub fn feature(mut self, name: &str, on: bool) -> Self {
        self.features.insert(name.into(), on);
        self
    }

    /// Adds the MCP server `lab`, whose tool `echo` returns its text and the structured content `{"a":1}`.
    pub fn lab_mcp(mut self) -> Self {
        self.lab_mcp = true;
        self
    }

    /// Adds tables, as TOML, to the end of the file.
    pub fn toml(mut self, tables: &str) -> Self {
        self.tables.push_str(tables);
        self.tables.push('\n');
        self
    }

    /// Creates the directories.
    pub fn build(self) -> TestHome {
        let home = TestHome(Home::new(&["codex"]));
        let config = home.codex_home().join("config.toml");
        fs::write(config, self.config(home.id())).expect("write config.toml");
        home
    }

    fn config(&self, id: &str) -> String {
        let mut toml = String::new();
        for (key, value) in &self.settings {
            let _ = writeln!(toml, "{key} = {value}");
        }
        toml.push_str("[features]\n");
        for (name, on) in &self.features {
            let _ = writeln!(toml, "{name} = {on}");
        }
        let _ = write!(
            toml,
            "[model_providers.mock]\n\
             name = \"mock\"\n\
             base_url = \"{}\"\n\
             wire_api = \"responses\"\n\
             request_max_retries = {}\n\
             stream_max_retries = {}\n",
            self.base_url, self.request_max_retries, self.stream_max_retries
        );
        if self.lab_mcp {
            // Codex does not pass its environment on to MCP servers, so the marker is set here.
            let _ = write!(
                toml,
                "[mcp_servers.lab]\ncommand = \"{}\"\nenv = {{ {MARKER} = \"{id}\" }}\n",
                lab_mcp_binary().display()
            );
        }
        toml.push_str(&self.tables);
        toml
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_are_written_above_the_tables() {
        let config = HomeBuilder::new("http://model/v1".into())
            .sandbox_mode("read-only")
            .feature("goals", false)
            .stream_max_retries(5)
            .toml("[extra]\nkey = 1")
            .config("id");
        let (top, tables) = config.split_once("[features]\n").unwrap();
        assert!(top.contains("sandbox_mode = \"read-only\"\n"));
        assert!(tables.starts_with("goals = false\nplugins = false\n"));
        assert!(tables.contains("stream_max_retries = 5\n[extra]\nkey = 1\n"));
    }
}
