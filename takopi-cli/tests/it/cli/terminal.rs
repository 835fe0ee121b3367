//! Screens: the binary on a terminal of its own.
//!
//! The demo waits at its approval request, which is where the screen does not change.

use std::process::Stdio;

use pty_process::blocking::Command;

use super::lab::{Lab, neutral};
use crate::screen::Screen;

fn start(lab: &Lab, args: &[&str], size: (u16, u16)) -> Screen {
    start_with(lab, args, size, |command| command)
}

fn start_with(
    lab: &Lab,
    args: &[&str],
    size: (u16, u16),
    change: impl FnOnce(Command) -> Command,
) -> Screen {
    let command = Command::new(env!("CARGO_BIN_EXE_takopi"))
        .args(args)
        .current_dir(lab.path("work"))
        .env_clear()
        .envs(lab.env());
    Screen::start(change(command), size)
}

/// The screen without what differs from run to run: ids and seconds.
pub(crate) fn still(screen: &str) -> String {
    let mut still = String::new();
    let text = neutral(screen);
    for piece in text.split_inclusive(|letter: char| !letter.is_ascii_alphanumeric()) {
        let word = piece.trim_end_matches(|letter: char| !letter.is_ascii_alphanumeric());
        let number = word.strip_suffix('s').filter(|it| it.bytes().all(|it| it.is_ascii_digit()));
        match number.filter(|number| !number.is_empty()) {
            Some(_) => still.extend(["Ns", &piece[word.len()..]]),
            None => still.push_str(piece),
        }
    }
    still
}

const DEMO: [&str; 4] = ["run", "--engine", "demo", "hello **there**"];

#[test]
fn a_run_with_an_approval_request() {
    let lab = Lab::new();
    let screen = start(&lab, &DEMO, (24, 80));
    let asked = screen.wait_for("no, and stop");
    insta::assert_snapshot!(still(&asked), @r"
    • I will look around first.
    ✓ ls
    ✓ search: why do octopuses have three hearts
    ✓ tool: aquarium.feed
    ✓ subagent: review: the change below
    ? demo wants to change files
        update src/lib.rs (+1 −1)
          @@ -1 +1 @@
          -pub const HEARTS: u32 = 1;
          +pub const HEARTS: u32 = 3;
      in .
      y yes  a yes, for this session  n no  c no, and stop  (4m Ns left)
    ");
    screen.press("x\ry");
    let (code, over, raw) = screen.end();
    assert_eq!(code, Some(0));
    insta::assert_snapshot!(still(&over), @r"
    • I will look around first.
    ✓ ls
    ✓ search: why do octopuses have three hearts
    ✓ tool: aquarium.feed
    ✓ subagent: review: the change below
    ? demo wants to change files
        update src/lib.rs (+1 −1)
          @@ -1 +1 @@
          -pub const HEARTS: u32 = 1;
          +pub const HEARTS: u32 = 3;
      in .
    ✓ asked: 1 update: src/lib.rs: accepted
    ✓ files: update src/lib.rs
    ✗ cargo test (exit 101)
    ! one test fails; this is only a demo
    ✓ todo 2/2: nothing left

    This is the demo engine: no account, no model, nothing installed. You said:
    hello there

    ✓ Demo · Ns · 10 steps · 11 tokens in, 7 out
    takopi run --engine demo --resume demo-ID
    ");
    assert!(raw.contains("\x1b[1mthere\x1b[0m"), "the answer is laid out: {raw:?}");
}

#[test]
fn every_decision_of_an_approval_request() {
    for (key, said, code) in [
        ("a", "✓ asked: 1 update: src/lib.rs: accepted for the session", 0),
        ("n", "✗ asked: 1 update: src/lib.rs: declined", 0),
        ("c", "✗ asked: 1 update: src/lib.rs: declined, and the turn ends", 130),
    ] {
        let lab = Lab::new();
        let screen = start(&lab, &DEMO, (30, 80));
        screen.wait_for("no, and stop");
        screen.press(key);
        let (ended, over, _) = screen.end();
        assert_eq!(ended, Some(code), "{over}");
        assert!(over.lines().any(|line| line == said), "{key}: {over}");
    }
}

#[test]
fn control_c_during_an_approval_request_stops_the_run_and_restores_the_terminal() {
    let lab = Lab::new();
    let screen = start(&lab, &DEMO, (24, 80));
    screen.wait_for("no, and stop");
    screen.press("\x03");
    let (code, over, _) = screen.end();
    assert_eq!(code, Some(130), "{over}");
    assert!(over.contains("✗ Demo · interrupted · "), "{over}");
}

#[test]
fn approve_deny_and_accept_ask_no_one() {
    for (approve, said) in [("deny", "declined: --approve deny"), ("accept", "accepted")] {
        let lab = Lab::new();
        let args: Vec<&str> = DEMO.iter().copied().chain(["--approve", approve]).collect();
        let (code, over, _) = start(&lab, &args, (30, 100)).end();
        assert_eq!(code, Some(0));
        assert!(over.contains(said), "{over}");
    }
}

#[test]
fn a_narrow_screen_wraps_only_messages() {
    let lab = Lab::new();
    let screen = start(&lab, &DEMO, (30, 30));
    screen.wait_for("no, and stop");
    screen.press("y");
    let (code, over, _) = screen.end();
    assert_eq!(code, Some(0));
    insta::assert_snapshot!(still(&over), @r"
    • I will look around first.
    ✓ ls
    ✓ search: why do octopuses h…
    ✓ tool: aquarium.feed
    ✓ subagent: review: the chan…
    ? demo wants to change files
        update src/lib.rs (+1 −1)
          @@ -1 +1 @@
          -pub const HEARTS: u32
          = 1;
          +pub const HEARTS: u32
          = 3;
      in .
    ✓ asked: 1 update:…: accepted
    ✓ files: update src/lib.rs
    ✗ cargo test (exit 101)
    ! one test fails; this is
      only a demo
    ✓ todo 2/2: nothing left

    This is the demo engine: no
    account, no model, nothing
    installed. You said: hello
    there

    ✓ Demo · Ns · 10 steps · 11 tokens in, 7 out
    takopi run --engine demo --resume demo-ID
    ");
}

#[test]
fn without_colour_the_answer_is_unchanged() {
    let lab = Lab::new();
    let args: Vec<&str> = DEMO.iter().copied().chain(["--approve", "deny"]).collect();
    let screen = start_with(&lab, &args, (30, 100), |it| it.env("NO_COLOR", "1"));
    let (_, over, raw) = screen.end();
    assert!(over.contains("You said: hello **there**"), "{over}");
    assert!(!raw.contains("\x1b[3") && !raw.contains("\x1b[1m"), "{raw:?}");
}

#[test]
fn a_redirected_answer_is_unchanged_while_the_run_is_drawn() {
    let lab = Lab::new();
    let file = lab.path("answer");
    let output = std::fs::File::create(&file).unwrap();
    let args: Vec<&str> = DEMO.iter().copied().chain(["--approve", "deny"]).collect();
    let screen = start_with(&lab, &args, (30, 100), |it| it.stdout(Stdio::from(output)));
    let (code, over, raw) = screen.end();
    assert_eq!(code, Some(0));
    assert!(raw.contains("\x1b[32m✓\x1b[0m ls") && !over.contains("You said"), "{over}");
    let answer = std::fs::read_to_string(file).unwrap();
    let expected = "This is the demo engine: no account, no model, nothing installed. \
                    You said: hello **there**\n";
    assert_eq!(answer, expected);
}

#[test]
fn without_a_prompt_a_terminal_is_not_read_from() {
    let (code, over, _) = start(&Lab::new(), &["run", "--engine", "demo"], (10, 80)).end();
    assert_eq!(code, Some(2));
    assert_eq!(over, "error: no prompt: give it as an argument, or on standard input");
}

#[test]
fn with_logs_on_the_terminal_nothing_is_drawn_and_questions_are_still_asked() {
    let lab = Lab::new();
    let args: Vec<&str> = DEMO.iter().copied().chain(["--verbose"]).collect();
    let screen = start(&lab, &args, (40, 100));
    screen.wait_for("no, and stop");
    screen.press("y");
    let (code, over, raw) = screen.end();
    assert_eq!(code, Some(0));
    assert!(over.contains("✓ asked: 1 update: src/lib.rs: accepted"), "{over}");
    assert!(!raw.contains("\x1b[J"), "{raw:?}");
}

#[test]
fn quiet_shows_only_approval_requests() {
    let lab = Lab::new();
    let args: Vec<&str> = DEMO.iter().copied().chain(["--quiet"]).collect();
    let screen = start(&lab, &args, (24, 100));
    screen.wait_for("no, and stop");
    screen.press("y");
    let (code, over, _) = screen.end();
    assert_eq!(code, Some(0));
    insta::assert_snapshot!(still(&over), @r"
    ? demo wants to change files
        update src/lib.rs (+1 −1)
          @@ -1 +1 @@
          -pub const HEARTS: u32 = 1;
          +pub const HEARTS: u32 = 3;
      in .
    This is the demo engine: no account, no model, nothing installed. You said: hello there
    ");
}

#[test]
fn the_demo_shows_a_run_and_a_wait() {
    // On a busy machine the shorter wait may be over before it is shown.
    for pace in ["0", "1s"] {
        let lab = Lab::new();
        let screen = start(&lab, &["demo", "--pace", pace], (50, 100));
        screen.wait_for("no, and stop");
        screen.press("y");
        let (code, over, raw) = screen.end();
        assert_eq!(code, Some(0));
        assert!(over.contains("✓ walk to the shop\n"), "{over}");
        assert!(over.ends_with("With an agent: takopi run 'what does this project do?'"), "{over}");
        if raw.contains("waiting for the session") {
            assert!(over.contains("✓ the session is free\n✓ walk to the shop\n"), "{over}");
            return;
        }
    }
    panic!("no wait was shown");
}
