//! takopi over a real agent with a scripted model, with a home and a state directory of its own.

use std::fmt;
use std::ops::Deref;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::Duration;

use serde_json::{Value, json};
use takopi_acp::{Acp, AcpEngine, Agent};
use takopi_core::{EngineRunner, Host, RunRequest};

pub use super::model::Do;
use super::model::Model;
use super::real::Real;
use crate::home::Home;
use crate::model::ModelServer;
use crate::model::chat::ChatServer;
use crate::model::gemini::GeminiServer;
use crate::model::messages::MessagesServer;
use crate::{claude, codex, pi, runs};

/// One test's agent and the takopi that runs it.
pub struct Bench {
    real: Real,
    program: PathBuf,
    model: Model,
    home: Box<dyn Deref<Target = Home> + Send + Sync>,
    env: Vec<(String, String)>,
    host: Host,
}

impl fmt::Debug for Bench {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Bench").field("real", &self.real).finish_non_exhaustive()
    }
}

/// A model, the home whose agent talks to it, and the variables for that.
type Place = (Model, Box<dyn Deref<Target = Home> + Send + Sync>, Vec<(String, String)>);

impl Bench {
    /// A bench for an agent; `None` if it cannot be had here, or is not to be tested.
    #[track_caller]
    pub fn new(real: Real) -> Option<Self> {
        let program = real.program_or_skip()?;
        let (model, home, mut env) = match real {
            Real::CodexAcp => codex_place(),
            Real::ClaudeAcp => {
                let model = MessagesServer::start();
                let home = claude::home::TestHome::new(&model);
                let env = home.env();
                (Model::Messages(model), Box::new(home) as Box<_>, env)
            }
            Real::PiAcp => {
                let pi = pi::real::pi_or_skip()?;
                let model = ChatServer::start();
                let home = pi::home::TestHome::new(&model);
                let mut env = home.env();
                env.push(("PI_ACP_PI_COMMAND".to_owned(), text(&pi.path)));
                (Model::Chat(model), Box::new(home) as Box<_>, env)
            }
            Real::Opencode => opencode_place(),
            Real::Qwen => qwen_place(),
            Real::Gemini => gemini_place(),
        };
        // Nothing of the developer's own directories.
        for (name, place) in [
            ("XDG_CONFIG_HOME", ".config"),
            ("XDG_DATA_HOME", ".local/share"),
            ("XDG_CACHE_HOME", ".cache"),
            ("XDG_STATE_HOME", ".local/state"),
        ] {
            env.push((name.to_owned(), text(&home.root().join("user").join(place))));
        }
        let host = Host::builder().state_directory(home.state()).build().expect("a host");
        Some(Self { real, program, model, home, env, host })
    }

    /// The agent. One that no preset knows is described by its command line.
    pub fn agent(&self) -> Agent {
        let name = self.real.name();
        Agent::preset(name).unwrap_or_else(|| {
            Agent::custom(name, [text(&self.program)], "pi").expect("an agent of one's own")
        })
    }

    /// The directories of the test.
    pub fn home(&self) -> &Home {
        &self.home
    }

    /// The variables of the test.
    pub fn env(&self) -> Vec<(String, String)> {
        self.env.clone()
    }

    /// The agent's program.
    pub fn program(&self) -> &Path {
        &self.program
    }

    /// The agent as takopi runs it.
    pub fn acp(&self) -> Acp {
        Acp::new(self.agent()).program(&self.program)
    }

    /// A runner that keeps sessions warm for this long.
    pub fn runner(&self, keep_warm: Duration) -> EngineRunner<AcpEngine> {
        self.runner_of(self.acp().keep_warm(keep_warm))
    }

    /// A runner of this engine.
    pub fn runner_of(&self, acp: Acp) -> EngineRunner<AcpEngine> {
        acp.runner().on(self.host.clone())
    }

    /// A runner with locks of its own on the same sessions, as another process of takopi has.
    pub fn elsewhere(&self, keep_warm: Duration) -> EngineRunner<AcpEngine> {
        let host = Host::builder().state_directory(self.home.state()).build().expect("a host");
        self.acp().keep_warm(keep_warm).runner().on(host)
    }

    /// A request in the workspace.
    pub fn request(&self, prompt: &str) -> RunRequest {
        runs::request_in(&self.home.workspace(), self.env.clone(), prompt)
    }

    /// What the model does for prompts that contain `needle`.
    pub fn when(&self, needle: &str, script: impl IntoIterator<Item = Do>) {
        self.model.when(self.real, needle, script);
    }

    /// The texts of the user in the latest request about a prompt.
    pub fn remembered(&self, needle: &str) -> Vec<String> {
        let mut asked = self.model.asked().into_iter();
        let last = asked.rfind(|request| request.needle.as_deref() == Some(needle));
        last.map(|request| request.user_texts).unwrap_or_default()
    }

    /// The results of tools in the latest request about a prompt.
    pub fn tool_outputs(&self, needle: &str) -> Vec<String> {
        let mut asked = self.model.asked().into_iter();
        let last = asked.rfind(|request| request.needle.as_deref() == Some(needle));
        last.map(|request| request.tool_outputs).unwrap_or_default()
    }

    /// All requests to the model, as JSON.
    pub fn sent(&self) -> Vec<String> {
        self.model.asked().into_iter().map(|request| request.body).collect()
    }

    /// How many requests were about a prompt.
    pub fn calls(&self, needle: &str) -> usize {
        let asked = self.model.asked();
        asked.iter().filter(|request| request.needle.as_deref() == Some(needle)).count()
    }

    /// The commands of the processes that live.
    pub fn processes(&self) -> Vec<String> {
        self.home.processes().into_iter().map(|process| process.command).collect()
    }
}

fn text(path: &Path) -> String {
    path.to_str().expect("the target directory is UTF-8").to_owned()
}

fn codex_place() -> Place {
    let model = ModelServer::start();
    // The mode of the session decides what is asked, unless the configuration does.
    let home = codex::home::TestHome::builder(&model)
        .approval_policy("on-request")
        .sandbox_mode("workspace-write")
        .build();
    let env = home.env();
    (Model::Responses(model, Mutex::default()), Box::new(home), env)
}

fn opencode_place() -> Place {
    let model = ChatServer::start();
    let models = json!({ "m1": {
        "name": "M1", "tool_call": true, "limit": { "context": 200_000, "output": 8000 },
    } });
    let options = json!({ "baseURL": model.base_url(), "apiKey": "dummy" });
    let config = json!({
        "model": "mock/m1",
        "small_model": "mock/m1",
        "autoupdate": false,
        "share": "disabled",
        "permission": { "bash": { "*": "allow", "touch *": "ask" } },
        "provider": { "mock": {
            "npm": "@ai-sdk/openai-compatible", "name": "Mock", "options": options, "models": models,
        } },
    });
    let set = [
        ("OPENCODE_DISABLE_AUTOUPDATE", "1"),
        ("OPENCODE_DISABLE_MODELS_FETCH", "1"),
        ("OPENCODE_DISABLE_LSP_DOWNLOAD", "1"),
    ];
    let (home, env) = configured(".config/opencode/opencode.json", &config, &set);
    (Model::Chat(model), Box::new(home), env)
}

fn qwen_place() -> Place {
    let model = ChatServer::start();
    let settings = json!({
        "security": { "auth": { "selectedType": "openai" } },
        "general": { "enableAutoUpdate": false },
        "privacy": { "usageStatisticsEnabled": false },
    });
    let base = model.base_url();
    let set = [
        ("OPENAI_API_KEY", "dummy"),
        ("OPENAI_BASE_URL", &base),
        ("OPENAI_MODEL", "mock-model"),
        ("QWEN_TELEMETRY_ENABLED", "false"),
    ];
    let (home, env) = configured(".qwen/settings.json", &settings, &set);
    (Model::Chat(model), Box::new(home), env)
}

fn gemini_place() -> Place {
    let model = GeminiServer::start();
    let settings = json!({
        "security": { "auth": { "selectedType": "gemini-api-key" } },
        // Left to itself it asks one model which other one to ask.
        "model": { "name": "gemini-2.5-pro" },
        "general": { "enableAutoUpdate": false },
        "privacy": { "usageStatisticsEnabled": false },
    });
    let base = model.base_url();
    let set = [
        ("GEMINI_API_KEY", "dummy"),
        ("GOOGLE_GEMINI_BASE_URL", &base),
        ("GEMINI_CLI_TRUST_WORKSPACE", "true"),
        ("GEMINI_TELEMETRY_ENABLED", "false"),
    ];
    let (home, env) = configured(".gemini/settings.json", &settings, &set);
    (Model::Gemini(model), Box::new(home), env)
}

/// A home with a configuration file of the user's, and its variables with these.
fn configured(
    file: &str,
    config: &Value,
    set: &[(&str, &str)],
) -> (Box<Home>, Vec<(String, String)>) {
    let file = Path::new("user").join(file);
    let folder = file.parent().and_then(Path::to_str).expect("a file in a folder");
    let home = Home::new(&[folder]);
    std::fs::write(home.root().join(&file), config.to_string()).expect("the test's home");
    let set = set.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
    let env = home.env().into_iter().chain(set).collect();
    (Box::new(home), env)
}
