//! A chat of two agents.

use takopi_tests::codex;
use takopi_tests::model::messages::Answer;
use takopi_tests::model::{Gate, ModelServer};
use tokio::io::AsyncWriteExt as _;

use super::lab::{Lab, resume_line};
use crate::real::lab::Running;

/// The codex beside Claude Code.
pub(crate) struct Beside {
    pub(crate) model: ModelServer,
    home: codex::home::TestHome,
    codex: codex::real::Codex,
}

impl Beside {
    /// `None` if there is no codex to be had.
    pub(crate) fn new() -> Option<Self> {
        let codex = codex::real::codex_or_skip()?;
        let model = ModelServer::start();
        let home = codex::home::TestHome::new(&model);
        Some(Self { model, home, codex })
    }

    /// Adds it to a command.
    pub(crate) fn join(&self, command: &mut tokio::process::Command) {
        let own = self.home.env().into_iter();
        command.envs(own.filter(|(name, _)| name.starts_with("CODEX") || name.ends_with("_KEY")));
        command.env("TAKOPI_CODEX_BIN", &self.codex.path);
    }
}

#[tokio::test]
async fn lines_of_a_pipe_are_one_conversation_and_wait_for_each_other() {
    let Some(lab) = Lab::new() else { return };
    let gate = Gate::new();
    lab.model.when("first", Answer::new().wait_for(&gate).block("one"));
    lab.model.when("second", "two");
    let (mut chat, mut input) = lab.start_with_input(&["chat"]);
    input.write_all(b"first\nsecond\n").await.unwrap();
    gate.reached().await;
    chat.wait_for("queued behind 1").await;
    assert!(lab.model.requests_about("second").is_empty());
    drop(input);
    gate.open();
    let ran = chat.end().await;
    assert_eq!((ran.code, ran.stdout.as_str()), (Some(0), "one\ntwo\n"), "{}", ran.stderr);
    assert_eq!(lab.model.requests_about("second")[0].assistant_texts(), ["one"]);
    resume_line(&ran);
    lab.home.assert_no_processes().await;
}

#[tokio::test]
async fn engines_take_turns_and_the_resume_lines_of_both_are_recognized() {
    let (Some(lab), Some(beside)) = (Lab::new(), Beside::new()) else { return };
    lab.model.when("remember", "claude has 7");
    beside.model.when("remember", "codex has 8");
    // What a resume line alone asks for.
    lab.model.when("continue", "claude had 7");
    beside.model.when("continue", "codex had 8");
    let mut command = lab.takopi(&["chat"]);
    beside.join(&mut command);
    let (mut chat, mut input) = Running::with_input(&mut command);
    let resume = |said: &str, start: &str| {
        let line = said.lines().find(|line| line.starts_with(start));
        line.unwrap_or_else(|| panic!("no {start:?} in {said}")).to_owned()
    };
    input.write_all(b"/claude remember 7\n").await.unwrap();
    let claude = resume(chat.wait_for("claude --resume ").await, "claude --resume ");
    // The same conversation, another engine: a session of its own.
    input.write_all(b"/codex remember 8\n").await.unwrap();
    let codex = resume(chat.wait_for("codex resume ").await, "codex resume ");
    // Each line brings its session and its engine back.
    let lines = format!("{claude}\n/new\n{codex}\n");
    input.write_all(lines.as_bytes()).await.unwrap();
    drop(input);
    let ran = chat.end().await;
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    for answer in ["claude has 7", "codex has 8", "claude had 7", "codex had 8"] {
        assert!(ran.stdout.contains(answer), "{} {}", ran.stdout, ran.stderr);
    }
    assert_eq!(lab.model.requests()[1].assistant_texts(), ["claude has 7"]);
    assert_eq!(beside.model.requests()[1].assistant_texts(), ["codex has 8"]);
    lab.home.assert_no_processes().await;
}
