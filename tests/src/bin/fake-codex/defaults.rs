//! What a healthy app-server does with a call of its client, modelled on recordings of 0.166.0.

use std::collections::HashMap;

use serde_json::{Value, json};
use takopi_tests::codex::fake::{Server, Step, turn};
use uuid::Uuid;

/// The threads of the server.
#[derive(Default)]
pub(crate) struct Threads {
    initialized: bool,
    loaded: HashMap<String, Thread>,
}

/// One loaded thread.
#[derive(Default)]
pub(crate) struct Thread {
    /// Its directory.
    pub(crate) cwd: String,
    /// The turn that runs.
    pub(crate) turn: Option<String>,
    /// Input, cached, output and reasoning tokens of all turns.
    pub(crate) usage: [u64; 4],
}

/// How a call would be answered.
pub(crate) type Outcome = Result<Value, (i64, String)>;

/// What a healthy server does with a call.
pub(crate) struct Plan {
    /// The thread it is about.
    pub(crate) thread: Option<String>,
    /// The turn it is about.
    pub(crate) turn: Option<String>,
    /// The answer.
    pub(crate) outcome: Outcome,
    /// Everything that happens.
    pub(crate) steps: Vec<Step>,
    /// Whether it was folded into a running turn, which no rule of the script changes.
    pub(crate) folded: bool,
}

impl Threads {
    /// The thread of this id, if it is loaded.
    pub(crate) fn get_mut(&mut self, id: Option<&String>) -> Option<&mut Thread> {
        self.loaded.get_mut(id?)
    }

    /// Records a call and returns what should happen.
    pub(crate) fn plan(&mut self, server: &Server, method: &str, params: &Value) -> Plan {
        let mut plan = Plan {
            thread: params["threadId"].as_str().map(str::to_owned),
            turn: None,
            outcome: Ok(json!({})),
            steps: vec![Step::Reply],
            folded: false,
        };
        plan.outcome = self.outcome(server, method, params, &mut plan);
        if plan.outcome.is_err() {
            plan.steps = vec![Step::Reply];
        }
        plan
    }

    fn outcome(
        &mut self,
        server: &Server,
        method: &str,
        params: &Value,
        plan: &mut Plan,
    ) -> Outcome {
        match (method, self.initialized) {
            ("initialize", true) => return refuse("Already initialized"),
            ("initialize", false) => {
                self.initialized = true;
                return Ok(welcome(server, &params["clientInfo"]));
            }
            (_, false) => return refuse("Not initialized"),
            _ => {}
        }
        match method {
            "initialized" => Ok(Value::Null),
            "model/list" => Ok(json!({"data": [model()], "nextCursor": null})),
            "thread/loaded/list" => {
                let ids: Vec<_> = self.loaded.keys().collect();
                Ok(json!({"data": ids, "nextCursor": null}))
            }
            "thread/list" => {
                let threads = self.loaded.keys().map(|id| self.describe(id, server));
                Ok(json!({"data": threads.collect::<Vec<_>>(), "nextCursor": null}))
            }
            "thread/start" => {
                let id = server.thread.clone().unwrap_or_else(new_id);
                Ok(self.load(id, server, params, plan))
            }
            "thread/resume" => {
                let Some(id) = plan.thread.clone() else {
                    return refuse("missing field `threadId`");
                };
                Ok(self.load(id.to_lowercase(), server, params, plan))
            }
            "thread/unsubscribe" if !self.is_loaded(plan) => Ok(json!({"status": "notLoaded"})),
            _ if !known(method) => refuse(&format!("Invalid request: unknown variant `{method}`")),
            _ if !self.is_loaded(plan) => {
                refuse(&format!("thread not found: {}", plan.thread.as_deref().unwrap_or_default()))
            }
            "thread/unsubscribe" => Ok(json!({"status": "unsubscribed"})),
            "thread/fork" => Ok(self.load(new_id(), server, params, plan)),
            "thread/read" | "thread/unarchive" => {
                let id = plan.thread.clone().unwrap_or_default();
                Ok(json!({"thread": self.describe(&id, server)}))
            }
            "turn/start" => Ok(self.start_turn(plan)),
            "turn/steer" => match self.running(plan) {
                Some(turn) => Ok(json!({"turnId": turn})),
                None => refuse("no active turn to steer"),
            },
            "turn/interrupt" => {
                if self.running(plan).is_none() {
                    return refuse("no active turn to interrupt");
                }
                plan.steps.push(Step::Interrupt);
                Ok(json!({}))
            }
            _ => Ok(json!({})),
        }
    }

    fn load(&mut self, id: String, server: &Server, params: &Value, plan: &mut Plan) -> Value {
        let here = || std::env::current_dir().unwrap_or_default().to_string_lossy().into_owned();
        let thread = self.loaded.entry(id.clone()).or_default();
        thread.cwd = params["cwd"].as_str().map_or_else(here, str::to_owned);
        let described = self.describe(&id, server);
        let cwd = described["cwd"].clone();
        plan.thread = Some(id);
        plan.steps.push(Step::notify("thread/started", json!({"thread": described})));
        json!({
            "thread": described,
            "model": params["model"].as_str().unwrap_or("gpt-5.5"),
            "modelProvider": "mock",
            "cwd": cwd,
            "approvalPolicy": params["approvalPolicy"].as_str().unwrap_or("on-request"),
            "sandbox": {"type": "readOnly", "networkAccess": false},
            "reasoningEffort": null,
        })
    }

    fn describe(&self, id: &str, server: &Server) -> Value {
        let cwd = self.loaded.get(id).map(|thread| thread.cwd.as_str());
        json!({
            "id": id,
            "sessionId": id,
            "preview": "",
            "ephemeral": false,
            "modelProvider": "mock",
            "createdAt": 0,
            "updatedAt": 0,
            "status": {"type": "idle"},
            "cwd": cwd,
            "cliVersion": server.version,
            "source": "vscode",
            "name": null,
            "turns": [],
        })
    }

    fn start_turn(&mut self, plan: &mut Plan) -> Value {
        let running = self.running(plan);
        plan.folded = running.is_some();
        if !plan.folded {
            plan.steps = turn::opened(turn::answer("Hello from the fake."));
        }
        let id = running.unwrap_or_else(new_id);
        if let Some(thread) = self.get_mut(plan.thread.as_ref()) {
            thread.turn = Some(id.clone());
        }
        plan.turn = Some(id.clone());
        json!({"turn": {"id": id, "items": [], "itemsView": "notLoaded", "status": "inProgress", "error": null}})
    }

    /// The running turn of the call's thread, which the call is then about.
    fn running(&self, plan: &mut Plan) -> Option<String> {
        plan.turn = self.loaded.get(plan.thread.as_ref()?)?.turn.clone();
        plan.turn.clone()
    }

    fn is_loaded(&self, plan: &Plan) -> bool {
        plan.thread.as_ref().is_some_and(|id| self.loaded.contains_key(id))
    }
}

/// Methods about a thread that is loaded, which get an empty response unless scripted
/// otherwise.
fn known(method: &str) -> bool {
    matches!(
        method,
        "thread/unsubscribe"
            | "thread/fork"
            | "thread/read"
            | "thread/name/set"
            | "thread/archive"
            | "thread/unarchive"
            | "thread/compact/start"
            | "thread/backgroundTerminals/clean"
            | "turn/start"
            | "turn/steer"
            | "turn/interrupt"
    )
}

fn welcome(server: &Server, client: &Value) -> Value {
    let name = client["name"].as_str().unwrap_or("client");
    let (version, theirs) = (&server.version, client["version"].as_str().unwrap_or("0"));
    let agent = format!("{name}/{version} (Debian 12.0.0; x86_64) xterm ({name}; {theirs})");
    let home = std::env::var("CODEX_HOME").unwrap_or_else(|_| "/codex-home".to_owned());
    json!({"userAgent": agent, "codexHome": home, "platformFamily": "unix", "platformOs": "linux"})
}

fn model() -> Value {
    json!({"id": "gpt-5.5", "model": "gpt-5.5", "displayName": "GPT-5.5", "isDefault": true})
}

fn refuse(message: &str) -> Outcome {
    Err((-32600, message.to_owned()))
}

fn new_id() -> String {
    Uuid::new_v4().to_string()
}
