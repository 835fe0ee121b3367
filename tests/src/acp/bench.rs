//! takopi over a real agent with a scripted model, with a home and a state directory of its own.

use std::collections::HashSet;
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use serde_json::{Value, json};
use takopi_acp::{Acp, AcpEngine, Agent};
use takopi_core::{EngineRunner, Host, RunRequest};

use super::real::Real;
use crate::codex;
use crate::home::Home;
use crate::model::chat::{self, ChatServer};
use crate::model::{self, Gate, ModelServer};
use crate::runs;

/// What the model does at a request.
#[derive(Clone, Debug)]
pub enum Do {
    /// Answers.
    Say(String),
    /// Says something, and has the agent run a command.
    Run(String),
    /// Has the agent run a command that it must ask about.
    Ask(String),
    /// Has the agent call a tool of the MCP server `lab` with this text.
    Echo(String),
    /// Says something so many times (codex), and answers.
    Remark(usize, String),
    /// Waits for the gate, and answers.
    Wait(Gate, String),
    /// Answers with an HTTP status that no agent retries.
    Fail,
    /// Begins to answer, and the stream ends before the answer does.
    Break(String),
}

/// The model, in the dialect of the agent.
#[derive(Debug)]
enum Model {
    Chat(ChatServer),
    Responses(ModelServer),
}

/// One test's agent and the takopi that runs it.
pub struct Bench {
    real: Real,
    program: PathBuf,
    model: Model,
    home: Homes,
    env: Vec<(String, String)>,
    host: Host,
    /// The prompts whose answer is given again and again.
    repeated: Mutex<HashSet<String>>,
}

#[derive(Debug)]
enum Homes {
    Plain(Home),
    Codex(codex::home::TestHome),
}

impl std::ops::Deref for Homes {
    type Target = Home;

    fn deref(&self) -> &Home {
        match self {
            Self::Plain(home) => home,
            Self::Codex(home) => home,
        }
    }
}

impl Bench {
    /// A bench for an agent; `None` if it cannot be had here.
    #[track_caller]
    pub fn new(real: Real) -> Option<Self> {
        let program = real.program_or_skip()?;
        let (model, home, mut env) = match real {
            Real::CodexAcp => {
                let model = ModelServer::start();
                // The mode of the session decides what is asked, unless the configuration does.
                let home = codex::home::TestHome::builder(&model)
                    .approval_policy("on-request")
                    .sandbox_mode("workspace-write")
                    .build();
                let env = home.env();
                (Model::Responses(model), Homes::Codex(home), env)
            }
            Real::Opencode | Real::Qwen => {
                let model = ChatServer::start();
                let home = Home::new(&["user/.config/opencode", "user/.qwen"]);
                let env = home.env();
                configure(real, &home, &model.base_url());
                (Model::Chat(model), Homes::Plain(home), env)
            }
        };
        let base = match &model {
            Model::Chat(model) => model.base_url(),
            Model::Responses(_) => String::new(),
        };
        let set: &[(&str, &str)] = match real {
            Real::Opencode => &[
                ("OPENCODE_DISABLE_AUTOUPDATE", "1"),
                ("OPENCODE_DISABLE_MODELS_FETCH", "1"),
                ("OPENCODE_DISABLE_LSP_DOWNLOAD", "1"),
            ],
            Real::Qwen => &[
                ("OPENAI_API_KEY", "dummy"),
                ("OPENAI_BASE_URL", &base),
                ("OPENAI_MODEL", "mock-model"),
                ("QWEN_TELEMETRY_ENABLED", "false"),
            ],
            Real::CodexAcp => &[],
        };
        env.extend(set.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())));
        // Nothing of the developer's own directories.
        for name in ["XDG_CONFIG_HOME", "XDG_DATA_HOME", "XDG_CACHE_HOME", "XDG_STATE_HOME"] {
            let place = home.root().join("user").join(match name {
                "XDG_CONFIG_HOME" => ".config",
                "XDG_DATA_HOME" => ".local/share",
                "XDG_CACHE_HOME" => ".cache",
                _ => ".local/state",
            });
            env.push((name.to_owned(), place.to_string_lossy().into_owned()));
        }
        let host = Host::builder().state_directory(home.state()).build().expect("a host");
        Some(Self { real, program, model, home, env, host, repeated: Mutex::default() })
    }

    /// The agent.
    pub fn agent(&self) -> Agent {
        Agent::preset(self.real.name()).expect("a preset")
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
    pub fn program(&self) -> &PathBuf {
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
        match &self.model {
            Model::Chat(model) => {
                let answers = script.into_iter().map(|step| self.chat(step));
                model.when(needle, answers.collect::<Vec<_>>());
            }
            Model::Responses(model) => {
                let mut answers: Vec<_> = script.into_iter().map(response).collect();
                // The adapter may call the model for a title too: an answer that is all of a script is given again.
                let whole = if answers.len() == 1 { answers.pop() } else { None };
                match whole {
                    Some(answer) => {
                        let mut known =
                            self.repeated.lock().unwrap_or_else(PoisonError::into_inner);
                        if known.insert(needle.to_owned()) {
                            model.when(needle, model::Script::repeat(answer));
                        }
                    }
                    None => model.when(needle, answers),
                }
            }
        }
    }

    fn chat(&self, step: Do) -> chat::Answer {
        use chat::Answer;
        match step {
            Do::Say(text) | Do::Remark(_, text) => Answer::text(text),
            Do::Run(command) | Do::Ask(command) => {
                let (tool, input) = match self.real {
                    Real::Qwen => (
                        "run_shell_command",
                        json!({ "command": command, "description": "run it", "is_background": false }),
                    ),
                    _ => ("bash", json!({ "command": command, "description": "run it" })),
                };
                Answer::text("Let me run it.").tool(tool, input)
            }
            Do::Echo(text) => {
                let tool = if self.real == Real::Qwen { "mcp__lab__echo" } else { "lab_echo" };
                Answer::call(tool, json!({ "text": text }))
            }
            Do::Wait(gate, text) => Answer::new().wait_for(&gate).delta(text),
            Do::Fail => Answer::status(400, "bad request of the lab"),
            Do::Break(text) => Answer::text(text).ends_short(),
        }
    }

    /// The texts of the user in the latest request about a prompt.
    pub fn remembered(&self, needle: &str) -> Vec<String> {
        match &self.model {
            Model::Chat(model) => {
                let requests = model.requests();
                let mut about = requests.iter().rev();
                let last = about.find(|request| request.needle.as_deref() == Some(needle));
                last.map(chat::ChatRequest::user_texts).unwrap_or_default()
            }
            Model::Responses(model) => {
                let requests = model.requests();
                let mut about = requests.iter().rev();
                let last = about.find(|request| request.needle.as_deref() == Some(needle));
                last.map(model::RecordedRequest::user_texts).unwrap_or_default()
            }
        }
    }

    /// The results of tools in the latest request about a prompt.
    pub fn tool_outputs(&self, needle: &str) -> Vec<String> {
        let is_it = |known: &Option<String>| known.as_deref() == Some(needle);
        let outputs = match &self.model {
            Model::Chat(model) => {
                let requests = model.requests();
                let last = requests.iter().rfind(|request| is_it(&request.needle));
                last.map(chat::ChatRequest::tool_outputs)
            }
            Model::Responses(model) => {
                let requests = model.requests();
                let last = requests.iter().rfind(|request| is_it(&request.needle));
                last.map(model::RecordedRequest::tool_outputs)
            }
        };
        outputs.unwrap_or_default().into_iter().map(|output| output.text).collect()
    }

    /// How many requests were about a prompt.
    pub fn calls(&self, needle: &str) -> usize {
        let is_it = |known: &Option<String>| known.as_deref() == Some(needle);
        match &self.model {
            Model::Chat(model) => {
                model.requests().iter().filter(|request| is_it(&request.needle)).count()
            }
            Model::Responses(model) => {
                model.requests().iter().filter(|request| is_it(&request.needle)).count()
            }
        }
    }

    /// The commands of the processes that live.
    pub fn processes(&self) -> Vec<String> {
        self.home.processes().into_iter().map(|process| process.command).collect()
    }
}

fn response(step: Do) -> model::Answer {
    use model::Answer;
    match step {
        Do::Say(text) => Answer::text(text),
        Do::Run(command) => Answer::new().commentary("Let me run it.").exec(&command),
        Do::Remark(times, text) => {
            let remarks = (0..times).map(|n| format!("Remark {n}."));
            remarks.fold(Answer::new(), Answer::commentary).final_answer(text)
        }
        Do::Ask(command) => {
            let call = json!({
                "cmd": command,
                "sandbox_permissions": "require_escalated",
                "justification": "the lab wants it",
            });
            Answer::new().call("exec_command", call)
        }
        Do::Echo(text) => Answer::new().mcp("lab", "echo", json!({ "text": text })),
        Do::Wait(gate, text) => Answer::new().wait_for(&gate).message(text),
        Do::Fail => Answer::status(400, "bad request of the lab"),
        Do::Break(text) => Answer::new().delta(text).cut_after(2),
    }
}

/// Writes the agent's own configuration.
fn configure(real: Real, home: &Home, base_url: &str) {
    let user = home.root().join("user");
    let write = |file: &str, value: Value| {
        std::fs::write(user.join(file), value.to_string()).expect("the test's home");
    };
    match real {
        Real::Opencode => {
            let models = json!({ "m1": {
                "name": "M1", "tool_call": true, "limit": { "context": 200_000, "output": 8000 },
            } });
            let options = json!({ "baseURL": base_url, "apiKey": "dummy" });
            write(
                ".config/opencode/opencode.json",
                json!({
                    "model": "mock/m1",
                    "small_model": "mock/m1",
                    "autoupdate": false,
                    "share": "disabled",
                    "permission": { "bash": { "*": "allow", "touch *": "ask" } },
                    "provider": { "mock": {
                        "npm": "@ai-sdk/openai-compatible", "name": "Mock", "options": options, "models": models,
                    } },
                }),
            );
        }
        Real::Qwen => write(
            ".qwen/settings.json",
            json!({
                "security": { "auth": { "selectedType": "openai" } },
                "general": { "enableAutoUpdate": false },
                "privacy": { "usageStatisticsEnabled": false },
            }),
        ),
        Real::CodexAcp => {}
    }
}
