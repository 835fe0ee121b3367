//! The contract over demo, codex exec, codex app-server, Claude Code and pi: on the real programs, and on the fake claude and pi.
use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::future::BoxFuture;
use takopi_claude::Claude;
use takopi_codex::Codex;
use takopi_codex::app_server::CodexAppServer;
use takopi_core::demo::Demo;
use takopi_core::{
    ApprovalHandler, ApprovalRequest, Decision, EngineRunner, Host, RunRequest, Runner,
};
use takopi_pi::Pi;
use takopi_tests::claude;
use takopi_tests::claude::fake::{Process, Step, turn};
use takopi_tests::codex::home::TestHome;
use takopi_tests::codex::real;
use takopi_tests::contract::{Prompt, Subject};
use takopi_tests::model::chat::{Answer as Completion, ChatServer};
use takopi_tests::model::messages::{Answer as Message, MessagesServer};
use takopi_tests::model::{Answer, Gate, ModelServer};
use takopi_tests::pi;
use takopi_tests::runs;
use tokio_util::sync::CancellationToken;

/// A buffer that a run fills at once.
const TIGHT: (usize, usize) = (4, 4096);

/// The demo engine. It asks for an approval on its way, which is where a test can hold it.
struct DemoSubject {
    host: Host,
    gates: Mutex<HashMap<String, Approval>>,
}

/// Approves once the test opens it; knows when it was asked.
#[derive(Clone, Default)]
struct Approval {
    asked: CancellationToken,
    open: CancellationToken,
}

impl ApprovalHandler for Approval {
    fn decide(&self, _request: ApprovalRequest) -> BoxFuture<'static, Decision> {
        self.asked.cancel();
        let open = self.open.clone();
        Box::pin(async move {
            open.cancelled().await;
            Decision::Accept
        })
    }
}

impl DemoSubject {
    fn new() -> Self {
        Self { host: Host::builder().build().unwrap(), gates: Mutex::default() }
    }

    fn gate(&self, word: &str) -> Approval {
        self.gates.lock().unwrap().entry(word.to_owned()).or_default().clone()
    }
}

impl Subject for DemoSubject {
    fn runner(&self) -> Arc<dyn Runner> {
        Arc::new(Demo::new().runner().on(self.host.clone()).buffer(TIGHT.0, TIGHT.1))
    }

    fn request(&self, prompt: Prompt<'_>) -> RunRequest {
        match prompt {
            Prompt::Answers(word) | Prompt::Works(word) => RunRequest::new(word),
            Prompt::Waits(word) | Prompt::Hangs(word) => {
                RunRequest::new(word).approvals(Arc::new(self.gate(word)))
            }
            Prompt::Fails(word) => RunRequest::new(word).cwd("/nowhere/at/all"),
        }
    }

    fn reached(&self, word: &str) -> BoxFuture<'static, ()> {
        Box::pin(self.gate(word).asked.cancelled_owned())
    }

    fn open(&self, word: &str) {
        self.gate(word).open.cancel();
    }

    fn processes(&self) -> Vec<String> {
        Vec::new()
    }
}

#[derive(Clone, Copy)]
enum Transport {
    Exec,
    AppServer,
}

/// The real codex with a scripted model.
struct CodexSubject {
    transport: Transport,
    codex: real::Codex,
    model: ModelServer,
    home: TestHome,
    host: Host,
    gates: Mutex<HashMap<String, Gate>>,
}

impl CodexSubject {
    fn new(transport: Transport) -> Option<Self> {
        let codex = real::codex_or_skip()?;
        let model = ModelServer::start();
        let home = TestHome::new(&model);
        let host = Host::builder().state_directory(home.state()).build().unwrap();
        let gates = Mutex::default();
        Some(Self { transport, codex, model, home, host, gates })
    }

    fn gate(&self, word: &str) -> Gate {
        self.gates.lock().unwrap().entry(word.to_owned()).or_default().clone()
    }
}

impl Subject for CodexSubject {
    fn runner(&self) -> Arc<dyn Runner> {
        let codex = Codex::new().binary(&self.codex.path);
        let (items, bytes) = TIGHT;
        match self.transport {
            Transport::Exec => Arc::new(codex.exec().on(self.host.clone()).buffer(items, bytes)),
            Transport::AppServer => {
                let engine = CodexAppServer::new(codex).keep_warm(Duration::from_mins(10));
                Arc::new(EngineRunner::new(engine).on(self.host.clone()).buffer(items, bytes))
            }
        }
    }

    fn request(&self, prompt: Prompt<'_>) -> RunRequest {
        let (word, answer) = match prompt {
            Prompt::Answers(word) => (word, Answer::text(word)),
            Prompt::Works(word) => {
                let thoughts = (0..20).fold(Answer::new(), |answer, n| {
                    answer.reasoning(format!("**Thought {n}** about it"))
                });
                (word, thoughts.message(word))
            }
            Prompt::Waits(word) | Prompt::Hangs(word) => {
                (word, Answer::new().wait_for(&self.gate(word)).message(word))
            }
            Prompt::Fails(word) => (word, Answer::new().failed("server_error", "boom")),
        };
        self.model.when(word, answer);
        runs::request(&self.home, word)
    }

    fn reached(&self, word: &str) -> BoxFuture<'static, ()> {
        let gate = self.gate(word);
        Box::pin(async move { gate.reached().await })
    }

    fn open(&self, word: &str) {
        self.gate(word).open();
    }

    fn processes(&self) -> Vec<String> {
        self.home.processes().iter().map(ToString::to_string).collect()
    }

    fn remembered(&self, word: &str) -> Option<Vec<String>> {
        let request = self.model.requests_about(word).into_iter().next_back();
        Some(request.map(|request| request.user_texts()).unwrap_or_default())
    }
}

/// The real Claude Code with a scripted model.
struct ClaudeSubject {
    claude: claude::real::Claude,
    model: MessagesServer,
    home: claude::home::TestHome,
    host: Host,
    gates: Mutex<HashMap<String, Gate>>,
}

impl ClaudeSubject {
    fn new() -> Option<Self> {
        let claude = claude::real::claude_or_skip()?;
        let model = MessagesServer::start();
        let home = claude::home::TestHome::new(&model);
        let host = Host::builder().state_directory(home.state()).build().unwrap();
        Some(Self { claude, model, home, host, gates: Mutex::default() })
    }

    fn gate(&self, word: &str) -> Gate {
        self.gates.lock().unwrap().entry(word.to_owned()).or_default().clone()
    }
}

impl Subject for ClaudeSubject {
    fn runner(&self) -> Arc<dyn Runner> {
        let claude = Claude::new().binary(&self.claude.path).keep_warm(Duration::from_mins(10));
        Arc::new(claude.runner().on(self.host.clone()).buffer(TIGHT.0, TIGHT.1))
    }

    fn request(&self, prompt: Prompt<'_>) -> RunRequest {
        let (word, answer) = match prompt {
            Prompt::Answers(word) => (word, Message::text(word)),
            Prompt::Works(word) => {
                let thoughts = (0..20)
                    .fold(Message::new(), |answer, n| answer.thinking(format!("Thought {n}.")));
                (word, thoughts.block(word))
            }
            Prompt::Waits(word) | Prompt::Hangs(word) => {
                (word, Message::new().wait_for(&self.gate(word)).block(word))
            }
            Prompt::Fails(word) => (word, Message::status(404, "no such model")),
        };
        self.model.when(word, answer);
        self.home.request(word)
    }

    fn reached(&self, word: &str) -> BoxFuture<'static, ()> {
        let gate = self.gate(word);
        Box::pin(async move { gate.reached().await })
    }

    fn open(&self, word: &str) {
        self.gate(word).open();
    }

    fn processes(&self) -> Vec<String> {
        self.home.processes().iter().map(ToString::to_string).collect()
    }

    fn remembered(&self, word: &str) -> Option<Vec<String>> {
        let request = self.model.requests_about(word).into_iter().next_back();
        Some(request.map(|request| request.user_texts()).unwrap_or_default())
    }
}

/// The fake Claude Code. It remembers nothing.
struct FakeClaudeSubject {
    lab: Arc<claude::lab::Lab>,
}

impl FakeClaudeSubject {
    fn new() -> Self {
        let held = |gate: &str| vec![Step::reached("at $PROMPT"), Step::gate(gate)];
        let thoughts = (0..20).map(|n| turn::thinking(&format!("Thought {n}.")));
        let process = Process::new()
            .turns_when("work", thoughts.chain(turn::answer("$PROMPT")))
            .turns_when("fails", turn::api_error(404, "model_not_found", "no such model"))
            .turns_when("held", held("$PROMPT").into_iter().chain(turn::answer("$PROMPT")))
            .turns(turn::answer("$PROMPT"));
        Self { lab: Arc::new(claude::lab::Lab::new(process)) }
    }
}

impl Subject for FakeClaudeSubject {
    fn runner(&self) -> Arc<dyn Runner> {
        Arc::new(self.lab.runner(Duration::from_mins(10)).buffer(TIGHT.0, TIGHT.1))
    }

    fn request(&self, prompt: Prompt<'_>) -> RunRequest {
        self.lab.request(&match prompt {
            Prompt::Answers(word) => word.to_owned(),
            Prompt::Works(word) => format!("work {word}"),
            Prompt::Waits(word) | Prompt::Hangs(word) => format!("held {word}"),
            Prompt::Fails(word) => format!("fails {word}"),
        })
    }

    fn reached(&self, word: &str) -> BoxFuture<'static, ()> {
        let (lab, point) = (Arc::clone(&self.lab), format!("at held {word}"));
        Box::pin(async move {
            lab.control.reached(&point).await;
        })
    }

    fn open(&self, word: &str) {
        self.lab.control.open(&format!("held {word}"));
    }

    fn processes(&self) -> Vec<String> {
        self.lab.home.processes().iter().map(ToString::to_string).collect()
    }
}

/// The real pi with a scripted model.
struct PiSubject {
    pi: pi::real::Pi,
    model: ChatServer,
    home: pi::home::TestHome,
    host: Host,
    gates: Mutex<HashMap<String, Gate>>,
}

impl PiSubject {
    fn new() -> Option<Self> {
        let pi = pi::real::pi_or_skip()?;
        let model = ChatServer::start();
        let home = pi::home::TestHome::new(&model);
        let host = Host::builder().state_directory(home.state()).build().unwrap();
        Some(Self { pi, model, home, host, gates: Mutex::default() })
    }

    fn gate(&self, word: &str) -> Gate {
        self.gates.lock().unwrap().entry(word.to_owned()).or_default().clone()
    }
}

impl Subject for PiSubject {
    fn runner(&self) -> Arc<dyn Runner> {
        let pi = Pi::new().binary(&self.pi.path).keep_warm(Duration::from_mins(10));
        Arc::new(pi.runner().on(self.host.clone()).buffer(TIGHT.0, TIGHT.1))
    }

    fn request(&self, prompt: Prompt<'_>) -> RunRequest {
        let (word, answer) = match prompt {
            Prompt::Answers(word) => (word, vec![Completion::text(word)]),
            Prompt::Works(word) => {
                // One in each message: pi runs those of one message beside each other.
                let calls = (0..10).map(|n| Completion::new().bash(&format!("echo {n}")));
                (word, calls.chain([Completion::text(word)]).collect())
            }
            Prompt::Waits(word) | Prompt::Hangs(word) => {
                (word, vec![Completion::new().wait_for(&self.gate(word)).delta(word)])
            }
            Prompt::Fails(word) => (word, vec![Completion::status(404, "no such model")]),
        };
        self.model.when(word, answer);
        self.home.request(word)
    }

    fn reached(&self, word: &str) -> BoxFuture<'static, ()> {
        let gate = self.gate(word);
        Box::pin(async move { gate.reached().await })
    }

    fn open(&self, word: &str) {
        self.gate(word).open();
    }

    fn processes(&self) -> Vec<String> {
        self.home.processes().iter().map(ToString::to_string).collect()
    }

    fn remembered(&self, word: &str) -> Option<Vec<String>> {
        let request = self.model.requests_about(word).into_iter().next_back();
        Some(request.map(|request| request.user_texts()).unwrap_or_default())
    }
}

/// The fake pi. It remembers nothing.
struct FakePiSubject {
    lab: Arc<pi::lab::Lab>,
}

impl FakePiSubject {
    fn new() -> Self {
        use pi::fake;
        let held = [Step::reached("at $PROMPT"), Step::gate("$PROMPT")];
        let held = held.into_iter().chain([fake::message("$PROMPT", "stop"), fake::settled(false)]);
        let work = (0..20).map(|n| fake::message(&format!("Step {n}."), "toolUse"));
        let work = work.chain([fake::message("$PROMPT", "stop"), fake::settled(false)]);
        let failing = [fake::message("", "error"), fake::settled(false)];
        let process = fake::Process::new()
            .when("prompt", "work", fake::run(work))
            .when("prompt", "fails", fake::run(failing))
            .when("prompt", "held", fake::run(held))
            .always("prompt", fake::answer("$PROMPT"));
        Self { lab: Arc::new(pi::lab::Lab::new(process)) }
    }
}

impl Subject for FakePiSubject {
    fn runner(&self) -> Arc<dyn Runner> {
        Arc::new(self.lab.runner(Duration::from_mins(10)).buffer(TIGHT.0, TIGHT.1))
    }

    fn request(&self, prompt: Prompt<'_>) -> RunRequest {
        self.lab.request(&match prompt {
            Prompt::Answers(word) => word.to_owned(),
            Prompt::Works(word) => format!("work {word}"),
            Prompt::Waits(word) | Prompt::Hangs(word) => format!("held {word}"),
            Prompt::Fails(word) => format!("fails {word}"),
        })
    }

    fn reached(&self, word: &str) -> BoxFuture<'static, ()> {
        let (lab, point) = (Arc::clone(&self.lab), format!("at held {word}"));
        Box::pin(async move {
            lab.control.reached(&point).await;
        })
    }

    fn open(&self, word: &str) {
        self.lab.control.open(&format!("held {word}"));
    }

    fn processes(&self) -> Vec<String> {
        self.lab.home.processes().iter().map(ToString::to_string).collect()
    }
}

mod demo {
    takopi_tests::contract_tests!(|| Some(super::DemoSubject::new()));
}

mod codex_exec {
    takopi_tests::contract_tests!(|| super::CodexSubject::new(super::Transport::Exec));
}

mod codex_app_server {
    takopi_tests::contract_tests!(|| super::CodexSubject::new(super::Transport::AppServer));
}

mod claude_code {
    takopi_tests::contract_tests!(super::ClaudeSubject::new);
}

mod fake_claude_code {
    takopi_tests::contract_tests!(|| Some(super::FakeClaudeSubject::new()));
}

mod pi_rpc {
    takopi_tests::contract_tests!(super::PiSubject::new);
}

mod fake_pi_rpc {
    takopi_tests::contract_tests!(|| Some(super::FakePiSubject::new()));
}
