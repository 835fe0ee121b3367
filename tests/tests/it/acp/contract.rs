//! The contract, on the fake agent and, with `TAKOPI_TEST_ENGINES=all`, on the real ones.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::future::BoxFuture;
use takopi_core::{RunRequest, Runner};
use takopi_tests::acp::bench::{Bench, Do};
use takopi_tests::acp::fake::{Lab, Process, Step, answer, thought};
use takopi_tests::acp::real::{Real, all_engines};
use takopi_tests::contract::{Prompt, Subject};
use takopi_tests::model::Gate;

/// A buffer that a run fills at once.
const TIGHT: (usize, usize) = (4, 4096);
const WARM: Duration = Duration::from_mins(10);

/// The fake agent. It remembers nothing.
struct FakeSubject {
    lab: Arc<Lab>,
}

impl FakeSubject {
    fn new() -> Self {
        let held = [Step::reached("at $PROMPT"), Step::gate("$PROMPT")];
        let fails = [Step::fail(-32603, "no such model")];
        // Thoughts of another message each.
        let thoughts = (0..20).flat_map(|n| {
            [
                thought(&format!("Thought {n}.")),
                takopi_tests::acp::fake::text(&format!("Text {n}.")),
            ]
        });
        let process = Process::new()
            .turns_when("work", thoughts.chain(answer("$PROMPT")))
            .turns_when("fails", fails)
            .turns_when("held", held.into_iter().chain(answer("$PROMPT")))
            .turns(answer("$PROMPT"));
        Self { lab: Arc::new(Lab::new(process)) }
    }
}

impl Subject for FakeSubject {
    fn runner(&self) -> Arc<dyn Runner> {
        Arc::new(self.lab.runner(WARM).buffer(TIGHT.0, TIGHT.1))
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

/// A real agent.
struct RealSubject {
    real: Real,
    bench: Bench,
    gates: Mutex<HashMap<String, Gate>>,
}

impl RealSubject {
    fn new(real: Real) -> Option<Self> {
        if !all_engines() {
            return None;
        }
        Some(Self { real, bench: Bench::new(real)?, gates: Mutex::default() })
    }

    fn gate(&self, word: &str) -> Gate {
        self.gates.lock().unwrap().entry(word.to_owned()).or_default().clone()
    }
}

impl Subject for RealSubject {
    fn runner(&self) -> Arc<dyn Runner> {
        Arc::new(self.bench.runner(WARM).buffer(TIGHT.0, TIGHT.1))
    }

    fn request(&self, prompt: Prompt<'_>) -> RunRequest {
        let (word, script) = match prompt {
            Prompt::Answers(word) => (word, vec![Do::Say(word.to_owned())]),
            Prompt::Works(word) if self.real == Real::CodexAcp => {
                (word, vec![Do::Remark(12, word.to_owned())])
            }
            Prompt::Works(word) => {
                let steps = (0..6).map(|n| Do::Run(format!("echo step {n}")));
                (word, steps.chain([Do::Say(word.to_owned())]).collect())
            }
            Prompt::Waits(word) | Prompt::Hangs(word) => {
                (word, vec![Do::Wait(self.gate(word), word.to_owned())])
            }
            Prompt::Fails(word) => (word, vec![Do::Fail]),
        };
        self.bench.when(word, script);
        let allow = Arc::new(takopi_core::approvals::accept_all());
        self.bench.request(word).approvals(allow)
    }

    fn reached(&self, word: &str) -> BoxFuture<'static, ()> {
        let gate = self.gate(word);
        Box::pin(async move { gate.reached().await })
    }

    fn open(&self, word: &str) {
        self.gate(word).open();
    }

    fn processes(&self) -> Vec<String> {
        self.bench.processes()
    }
}

mod fake {
    takopi_tests::contract_tests!(|| Some(super::FakeSubject::new()));
}

mod opencode {
    takopi_tests::contract_tests!(|| super::RealSubject::new(super::Real::Opencode));
}

mod codex_acp {
    takopi_tests::contract_tests!(|| super::RealSubject::new(super::Real::CodexAcp));
}

mod qwen {
    takopi_tests::contract_tests!(|| super::RealSubject::new(super::Real::Qwen));
}

mod claude_acp {
    takopi_tests::contract_tests!(|| super::RealSubject::new(super::Real::ClaudeAcp));
}

mod pi_acp {
    takopi_tests::contract_tests!(|| super::RealSubject::new(super::Real::PiAcp));
}
