//! Real agents that speak ACP, by the command: from the configuration file, and from many processes at once.

use std::process::Stdio;

use takopi_tests::acp::bench::{Bench, Do};
use takopi_tests::acp::real::Real;
use takopi_tests::model::Gate;
use tokio::process::Command;

use super::lab::{Ran, Running};

/// A real agent as `[engines.mine]`, a scripted model, and the binary.
struct Lab {
    bench: Bench,
}

impl Lab {
    /// Under another name than its preset has, if there is one; `None` if the agent is not to be had or not to be tested.
    fn new(real: Real) -> Option<Self> {
        let bench = Bench::new(real)?;
        let agent = bench.agent();
        let program = bench.program().to_str().unwrap();
        let arguments = agent.command().iter().skip(1).map(String::as_str);
        let command: Vec<&str> = [program].into_iter().chain(arguments).collect();
        let config = format!(
            "[engines.mine]\nkind = 'acp'\ncommand = {command:?}\nsessions = '{}'\n",
            agent.store()
        );
        std::fs::write(bench.home().root().join("config.toml"), config).unwrap();
        Some(Self { bench })
    }

    fn takopi(&self, args: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_takopi"));
        command
            .arg("--config")
            .arg(self.bench.home().root().join("config.toml"))
            .args(args)
            .current_dir(self.bench.home().workspace())
            .env_clear()
            .envs(std::env::var_os("PATH").map(|path| ("PATH", path)))
            .envs(self.bench.env())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true);
        command
    }

    fn start(&self, args: &[&str]) -> Running {
        Running::new(&mut self.takopi(args))
    }

    async fn run(&self, args: &[&str]) -> Ran {
        self.start(args).end().await
    }

    /// Runs a prompt that begins a session, and returns the line that resumes it.
    async fn begin(&self, prompt: &str, answer: &str) -> String {
        self.bench.when(prompt, [Do::Say(answer.to_owned())]);
        let Ran { code, stdout, stderr } = self.run(&["run", "--engine", "mine", prompt]).await;
        assert_eq!((code, stdout), (Some(0), format!("{answer}\n")), "{stderr}");
        let line = stderr.lines().last().unwrap_or_default();
        assert!(line.starts_with("takopi run --engine mine --resume "), "{stderr}");
        line.to_owned()
    }
}

/// No preset knows pi-acp.
#[tokio::test]
async fn an_agent_that_no_preset_knows_runs_by_its_entry_in_the_configuration() {
    let Some(lab) = Lab::new(Real::PiAcp) else { return };
    let line = lab.begin("first", "one").await;
    lab.bench.when("second", [Do::Run("echo out".into()), Do::Say("two".into())]);
    // The line alone chooses the engine.
    let second = lab.run(&["run", "--resume", &line, "second"]).await;
    assert_eq!((second.code, second.stdout.as_str()), (Some(0), "two\n"), "{}", second.stderr);
    assert!(second.stderr.contains("echo out"), "{}", second.stderr);
    assert_eq!(lab.bench.remembered("second"), ["first", "second"]);
    let unknown = Real::PiAcp.unknown_session();
    let lost = lab.run(&["run", "--engine", "mine", "--resume", unknown, "third"]).await;
    assert_eq!(lost.code, Some(1), "{}", lost.stderr);
    assert!(lost.stderr.contains(&format!("mine has no session {unknown}")), "{}", lost.stderr);
    lab.bench.when("broken", [Do::Fail]);
    let broken = lab.run(&["run", "--engine", "mine", "broken"]).await;
    assert_eq!((broken.code, broken.stdout.as_str()), (Some(1), ""), "{}", broken.stderr);
    let listed = lab.run(&["engines"]).await;
    let mine = listed.stdout.lines().find(|line| line.contains("mine")).unwrap_or_default();
    assert!(mine.contains("✓ mine"), "{}", listed.stdout);
    lab.bench.home().assert_no_processes().await;
}

/// Left to themselves some of these agents loop without end, others lose prompts.
async fn four_processes_on_one_session_are_all_answered_and_remembered_in_order(real: Real) {
    let Some(lab) = Lab::new(real) else { return };
    let line = lab.begin("begin", "begun").await;
    let gate = Gate::new();
    let prompts: Vec<String> = (0..4).map(|n| format!("prompt {n}")).collect();
    lab.bench.when(&prompts[0], [Do::Wait(gate.clone(), "answer 0".into())]);
    for (n, prompt) in prompts.iter().enumerate().skip(1) {
        lab.bench.when(prompt, [Do::Say(format!("answer {n}"))]);
    }
    let mut running = vec![lab.start(&["run", "--resume", &line, &prompts[0]])];
    gate.reached().await;
    for prompt in &prompts[1..] {
        let mut next = lab.start(&["run", "--resume", &line, prompt]);
        next.wait_for("▸ waiting for the session, held by process ").await;
        running.push(next);
    }
    gate.open();
    for (n, running) in running.into_iter().enumerate() {
        let Ran { code, stdout, stderr } = running.end().await;
        assert_eq!((code, stdout), (Some(0), format!("answer {n}\n")), "{stderr}");
    }
    lab.bench.when("at last", [Do::Say("the end".into())]);
    let last = lab.run(&["run", "--resume", &line, "-q", "at last"]).await;
    assert_eq!((last.code, last.stdout.as_str()), (Some(0), "the end\n"), "{}", last.stderr);
    let history = lab.bench.remembered("at last");
    let words = ["begin"].into_iter().chain(prompts.iter().map(String::as_str)).chain(["at last"]);
    let places: Vec<_> =
        words.map(|word| history.iter().position(|text| text.contains(word))).collect();
    assert!(places.is_sorted() && places.iter().all(Option::is_some), "{history:?}");
    lab.bench.home().assert_no_processes().await;
}

macro_rules! on_each {
    ($($agent:ident = $real:ident;)*) => {
        $(mod $agent {
            use super::*;

            #[tokio::test]
            async fn four_processes_on_one_session_are_all_answered_and_remembered_in_order() {
                super::four_processes_on_one_session_are_all_answered_and_remembered_in_order(Real::$real).await;
            }
        })*
    };
}

on_each! {
    opencode = Opencode;
    qwen = Qwen;
    codex_acp = CodexAcp;
    claude_acp = ClaudeAcp;
    pi_acp = PiAcp;
}
