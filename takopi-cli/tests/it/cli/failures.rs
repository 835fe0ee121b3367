//! Failures as people read them: each is told once, with what to do about it, and without a line that would
//! resume a session that does not exist.

use futures::FutureExt as _;
use pty_process::blocking::Command;
use takopi_core::locks::{FileLocks, Holder, LocalLocks, NoLeases, SessionKey, SessionLocks as _};
use takopi_core::{EngineId, ResumeToken};

use super::lab::{Lab, SESSION, codex};
use crate::screen::Screen;

const MISSING: (&str, &str) = (
    "/no/such was not found",
    "hint: install it with `npm install -g @openai/codex`, or name it with --codex-bin PATH",
);

/// What a run prints that fails on a terminal.
fn on_a_terminal(lab: &Lab, args: &[&str]) -> String {
    let command = Command::new(env!("CARGO_BIN_EXE_takopi"))
        .args(args)
        .current_dir(lab.path("work"))
        .env_clear()
        .envs(lab.env());
    let (_, over, _) = Screen::start(command, (30, 120)).end();
    over
}

/// What a chat on a terminal shows after a message whose run fails.
fn in_a_chat(lab: &Lab, args: &[&str]) -> String {
    let command = Command::new(env!("CARGO_BIN_EXE_takopi"))
        .arg("chat")
        .args(args)
        .current_dir(lab.path("work"))
        .env_clear()
        .envs(lab.env());
    let screen = Screen::start(command, (30, 120));
    screen.wait_for("[1] ›");
    screen.press("hello\r");
    screen.wait_for("error: ");
    screen.press("\x04");
    screen.end().1
}

#[test]
fn each_failure_is_told_once_with_its_hint() {
    let lab = Lab::new();
    let doubled = codex("doubled");
    for (program, told, hint) in
        [("/no/such", MISSING.0, Some(MISSING.1)), (&doubled, "the model said no", None)]
    {
        let options = ["--transport", "exec", "--codex-bin", program];
        let run = [&["run"], &options[..], &["hello"]].concat();
        let quiet = [&["run", "-q"], &options[..], &["hello"]].concat();
        let chat = [&["chat"], &options[..]].concat();
        for shown in [
            lab.run(&run).stderr,
            lab.run(&quiet).stderr,
            on_a_terminal(&lab, &run),
            on_a_terminal(&lab, &quiet),
            lab.run_with(&chat, b"hello\n").stderr,
            in_a_chat(&lab, &options),
        ] {
            assert_eq!(shown.matches(told).count(), 1, "{shown}");
            assert!(shown.contains(&format!("error: {told}\n")) || hint.is_none(), "{shown}");
            let hints: Vec<&str> = shown.lines().filter(|it| it.starts_with("hint: ")).collect();
            assert_eq!(hints, Vec::from_iter(hint), "{shown}");
        }
    }
}

#[test]
fn a_warning_that_the_error_does_not_repeat_is_shown() {
    let lab = Lab::new();
    let doubled = std::fs::read_to_string(codex("doubled")).unwrap();
    let program = lab.write_executable("warning", &doubled.replacen("said no", "is busy", 1));
    let options = ["--transport", "exec", "--codex-bin", program.to_str().unwrap()];
    let run = [&["run"], &options[..], &["hello"]].concat();
    for shown in [lab.run(&run).stderr, on_a_terminal(&lab, &run), in_a_chat(&lab, &options)] {
        let at = |text: &str| shown.find(text).unwrap_or_else(|| panic!("{text}: {shown}"));
        assert!(at("! the model is busy") < at("error: the model said no"), "{shown}");
    }
}

#[test]
fn a_session_that_does_not_exist_gets_no_resume_line() {
    let lab = Lab::new();
    let options = ["--transport", "exec", "--codex-bin", &codex("forgetful")];
    let line = format!("codex resume {SESSION}\n");
    for ran in [
        lab.run(&[&["run"], &options[..], &["--resume", SESSION, "hello"]].concat()),
        lab.run_with(&[&["chat"], &options[..]].concat(), line.as_bytes()),
    ] {
        assert_eq!(ran.code, Some(1), "{}", ran.stderr);
        assert!(ran.stderr.contains("session not found"), "{}", ran.stderr);
        assert!(ran.stderr.contains("hint: list the stored sessions"), "{}", ran.stderr);
        assert!(!ran.stderr.contains("codex resume"), "{}", ran.stderr);
    }
}

#[test]
fn a_session_that_was_waited_for_and_never_confirmed_gets_no_resume_line() {
    let lab = Lab::new();
    let locks = FileLocks::new(LocalLocks::new(), lab.path("state/locks"));
    let engine = EngineId::from_static("codex");
    let key = SessionKey::new(&ResumeToken::new(engine.clone(), SESSION));
    let lock = locks.try_lock(&key, &Holder::here(engine), &NoLeases).now_or_never();
    let guard = lock.unwrap().unwrap().unwrap();
    let options = ["--transport", "exec", "--wait", "50ms", "--codex-bin", &codex("good")];
    let line = format!("codex resume {SESSION}\n");
    for ran in [
        lab.run(&[&["run"], &options[..], &["--resume", SESSION, "hello"]].concat()),
        lab.run_with(&[&["chat"], &options[..]].concat(), line.as_bytes()),
    ] {
        assert!(ran.stderr.contains("session busy"), "{}", ran.stderr);
        assert!(ran.stderr.contains("hint: wait longer with --wait"), "{}", ran.stderr);
        assert!(!ran.stderr.contains("codex resume"), "{}", ran.stderr);
    }
    drop(guard);
}

#[test]
fn without_term_there_are_no_colours_and_nothing_is_drawn() {
    let lab = Lab::new();
    for term in [None, Some(""), Some("dumb")] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_takopi"))
            .args(["run", "--engine", "demo", "--approve", "accept", "hello"])
            .current_dir(lab.path("work"))
            .env_clear()
            .envs(lab.env())
            .env_remove("TERM");
        if let Some(term) = term {
            command = command.env("TERM", term);
        }
        let (code, over, raw) = Screen::start(command, (30, 80)).end();
        assert_eq!(code, Some(0), "{over}");
        assert!(!raw.contains('\x1b'), "TERM={term:?}: {raw:?}");
    }
}
