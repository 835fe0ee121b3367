//! A home for pi: a [`Home`] with pi's own directory, in which its one model is a scripted one.

use std::collections::BTreeMap;
use std::fs;
use std::ops::Deref;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use takopi_core::RunRequest;

use crate::home::Home;
pub use crate::home::Process;
use crate::model::chat::ChatServer;
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
    /// A home whose pi talks to this model and does not retry.
    pub fn new(model: &ChatServer) -> Self {
        Self::at(&model.base_url())
    }

    /// A home for a pi that calls no model.
    pub fn without_model() -> Self {
        // Port 9 is `discard`: a pi that does call gets no answer.
        Self::at("http://127.0.0.1:9/v1")
    }

    fn at(base_url: &str) -> Self {
        let home = Home::new(&["agent"]);
        let set = [
            ("PI_CODING_AGENT_DIR", home.path("agent")),
            ("PI_OFFLINE", "1".to_owned()),
            ("PI_TELEMETRY", "0".to_owned()),
        ];
        let env = set.map(|(name, value)| (name.to_owned(), value)).into();
        let this = Self { home, env };
        let model = |id: &str| {
            json!({
                "id": id, "name": id, "reasoning": id == "thinker", "input": ["text", "image"],
                "cost": {"input": 1000, "output": 2000, "cacheRead": 0, "cacheWrite": 0},
                "contextWindow": 200_000, "maxTokens": 8000,
            })
        };
        let provider = json!({
            "baseUrl": base_url, "api": "openai-completions", "apiKey": "dummy",
            "models": [model("m1"), model("thinker")],
        });
        this.write("models.json", &json!({ "providers": { "mock": provider } }));
        this.retries(0)
    }

    fn write(&self, name: &str, value: &Value) {
        fs::write(self.config().join(name), value.to_string()).expect("pi's own directory");
    }

    /// How often pi sends a request again that failed, soon; 0 by default here.
    pub fn retries(self, retries: u32) -> Self {
        let retry = json!({ "enabled": retries > 0, "maxRetries": retries, "baseDelayMs": 10 });
        let settings = json!({ "defaultProvider": "mock", "defaultModel": "m1", "retry": retry });
        self.write("settings.json", &settings);
        self
    }

    /// Sets one more variable for pi, or another value.
    pub fn set(mut self, name: &str, value: &str) -> Self {
        self.env.insert(name.to_owned(), value.to_owned());
        self
    }

    /// `PI_CODING_AGENT_DIR`.
    pub fn config(&self) -> PathBuf {
        self.root().join("agent")
    }

    /// The variables to set for pi or takopi, on top of whatever is inherited.
    pub fn env(&self) -> Vec<(String, String)> {
        self.home.env().into_iter().chain(self.env.clone()).collect()
    }

    /// A command that runs in the workspace with `PATH` and [`TestHome::env`] as its whole environment.
    pub fn command(&self, program: impl AsRef<Path>) -> tokio::process::Command {
        self.command_with(program.as_ref(), self.env())
    }

    /// A request that runs in the workspace with [`TestHome::env`]. Nothing is asked.
    pub fn request(&self, prompt: &str) -> RunRequest {
        runs::request_in(&self.workspace(), self.env(), prompt).permission_mode("bypassPermissions")
    }

    /// The sessions that are stored, sorted.
    pub fn sessions(&self) -> Vec<String> {
        let below = |dir: &Path| -> Vec<PathBuf> {
            let entries = fs::read_dir(dir).into_iter().flatten().flatten();
            entries.map(|entry| entry.path()).collect()
        };
        let files = below(&self.config().join("sessions")).into_iter().flat_map(|dir| below(&dir));
        let id = |file: PathBuf| Some(file.file_stem()?.to_str()?.rsplit_once('_')?.1.to_owned());
        let mut sessions: Vec<String> = files.filter_map(id).collect();
        sessions.sort();
        sessions
    }
}
