//! `takopi chat` on a terminal of its own, and in a pipe.
//!
//! The demo waits at its approval request, which is where the screen does not change.

use std::io::{Read as _, Write as _};
use std::process::Stdio;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::sys::termios::{LocalFlags, SetArg, tcgetattr, tcsetattr};
use nix::sys::wait::{WaitPidFlag, waitpid};
use nix::unistd::Pid;
use pty_process::blocking::Command;

use super::lab::{Lab, Running, neutral};
use super::terminal::still;
use crate::screen::Screen;

/// What a demo that takes its time over every step looks like.
const SLOW: [&str; 4] = ["--approve", "accept", "-c", "pace=1h"];

fn command(lab: &Lab, args: &[&str]) -> Command {
    Command::new(env!("CARGO_BIN_EXE_takopi"))
        .args(["chat", "--engine", "demo"])
        .args(args)
        .current_dir(lab.path("work"))
        .env_clear()
        .envs(lab.env())
}

fn start(lab: &Lab, args: &[&str]) -> Screen {
    let screen = Screen::start(command(lab, args), (30, 80));
    screen.wait_for("[1] ›");
    screen
}

#[test]
fn a_chat_whose_terminal_is_gone_exits_even_if_hangups_are_ignored() {
    let lab = Lab::new();
    let (mut pty, pts) = pty_process::blocking::open().unwrap();
    // SAFETY: the closure makes a system call only.
    let command = unsafe {
        command(&lab, &[]).pre_exec(|| {
            nix::sys::signal::signal(Signal::SIGHUP, nix::sys::signal::SigHandler::SigIgn)?;
            Ok(())
        })
    };
    let mut child = command.spawn(pts).unwrap();
    let (mut seen, mut bytes) = (Vec::new(), [0; 4096]);
    while !String::from_utf8_lossy(&seen).contains("[1]") {
        let count = pty.read(&mut bytes).unwrap();
        seen.extend(&bytes[..count]);
    }
    drop(pty);
    let deadline = Instant::now() + Duration::from_mins(1);
    while child.try_wait().unwrap().is_none() {
        if Instant::now() > deadline {
            child.kill().unwrap();
            panic!("it runs on without a terminal");
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn an_approval_request_is_decided_by_a_line_and_the_decision_is_shown() {
    let lab = Lab::new();
    // Two questions fit on it.
    let screen = Screen::start(command(&lab, &[]), (60, 80));
    screen.wait_for("[1] ›");
    screen.press("hello **there**\r");
    screen.wait_for("then Enter");
    // The last line that is drawn.
    let asked = screen.wait_for("waiting for a decision\n[1] ›");
    insta::assert_snapshot!(still(&asked), @r"
    /help lists the commands; Alt-Enter adds a line, Tab completes, Ctrl-D exits
    [1] › hello **there**
    • I will look around first.
    ✓ ls
    ✓ search: why do octopuses have three hearts
    ✓ tool: aquarium.feed
    ✓ subagent: review: the change below
    [1] demo wants to change files
    update src/lib.rs (+1 −1)

      @@ -1 +1 @@
      -pub const HEARTS: u32 = 1;
      +pub const HEARTS: u32 = 3;

    in .
    y yes, a yes for this session, n no, c no and stop; then Enter
    [1] waiting · Demo · Ns · step 7 · todo 1/2: make the change
    ▸ asked: 1 update: src/lib.rs: waiting for a decision
    [1] ›
    ");
    // What is no answer is a message, and waits.
    screen.press("yes, and more\r");
    screen.wait_for("queued behind 1");
    screen.press("y\r");
    let decided = screen.wait_for("done · Demo");
    assert_eq!(decided.matches("accepted by you").count(), 1, "{decided}");
    // The message that waited runs now, and asks too.
    screen.wait_for_times("then Enter", 2);
    screen.press("n\r");
    screen.wait_for("declined by you");
    screen.wait_for("Welcome back");
    screen.press("/quit\r");
    let (code, over, _) = screen.end();
    assert_eq!(code, Some(0), "{over}");
}

#[test]
fn a_decision_is_for_the_request_of_its_own_conversation() {
    let lab = Lab::new();
    let screen = start(&lab, &[]);
    screen.press("first\r");
    screen.wait_for("then Enter");
    screen.press("/new\ry\r");
    let shown = screen.wait_for("note: no approval request here; there is one in [1]: /switch 1");
    assert!(!shown.contains("accepted"), "{shown}");
    // The second conversation's own question is answered, though the first one's is older.
    screen.press("second\r");
    screen.wait_for("[2] demo wants to change files");
    screen.press("n\r");
    screen.wait_for("[2] ✗ asked: 1 update: src/lib.rs: declined by you");
    screen.wait_for("[2] done · Demo");
    screen.press("/switch 1\ry\r");
    screen.wait_for("[1] ✓ asked: 1 update: src/lib.rs: accepted by you");
    screen.wait_for("[1] done · Demo");
    screen.press("/quit\r");
    assert_eq!(screen.end().0, Some(0));
}

#[test]
fn on_a_narrow_screen_a_decision_is_shown_whole() {
    let lab = Lab::new();
    let screen = Screen::start(command(&lab, &[]), (60, 20));
    screen.wait_for("[1] ›");
    screen.press("hello\r");
    screen.wait_for("stop; then");
    screen.press("y\r");
    let shown = screen.wait_for("[1] done");
    let words = shown.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(words.contains("accepted by you ✓ files:"), "{shown}");
    screen.press("/quit\r");
    assert_eq!(screen.end().0, Some(0));
}

#[test]
fn a_decision_is_not_kept_in_the_history() {
    let lab = Lab::new();
    let screen = Screen::start(command(&lab, &[]), (60, 80));
    screen.wait_for("[1] ›");
    screen.press("hello\r");
    screen.wait_for("then Enter");
    screen.press("y\r");
    screen.wait_for("[1] done");
    screen.press("\x1b[A");
    // The line that is typed, not the message above.
    screen.wait_for_times("[1] › hello", 2);
    screen.press("\x03");
    screen.wait_for_times("[1] › hello", 1);
    screen.press("/quit\r");
    assert_eq!(screen.end().0, Some(0));
    let history = std::fs::read_to_string(lab.path("state").join("chat-history")).unwrap();
    assert_eq!(history, "hello\n/quit\n");
}

#[test]
fn an_answer_is_formatted_between_blank_lines() {
    let lab = Lab::new();
    let screen = start(&lab, &["--approve", "deny"]);
    screen.press("hello **there**\r");
    // The prompt is the last line that is drawn.
    let shown = screen.wait_for_ending("takopi run --engine demo --resume", "\n[1] ›");
    insta::assert_snapshot!(still(&shown), @r"
    /help lists the commands; Alt-Enter adds a line, Tab completes, Ctrl-D exits
    [1] › hello **there**
    • I will look around first.
    ✓ ls
    ✓ search: why do octopuses have three hearts
    ✓ tool: aquarium.feed
    ✓ subagent: review: the change below
    ✗ asked: 1 update: src/lib.rs: declined: --approve deny
    • I leave src/lib.rs as it is.
    ✗ cargo test (exit 101)
    ! one test fails; this is only a demo
    ✓ todo 2/2: nothing left

    [1] ↳ hello **there**
    This is the demo engine: no account, no model, nothing installed. You said:
    hello there

    [1] done · Demo · Ns · 10 steps
    takopi run --engine demo --resume demo-ID
    [1] ›
    ");
    screen.press("\x04");
    let (code, over, raw) = screen.end();
    assert_eq!(code, Some(0), "{over}");
    assert!(raw.contains("\x1b[1mthere\x1b[0m"), "{raw:?}");
    assert!(raw.ends_with("\x1b[?2004l"), "the terminal is given back: {raw:?}");
}

#[test]
fn conversations_run_side_by_side_and_waiting_messages_are_listed() {
    let lab = Lab::new();
    let screen = start(&lab, &SLOW);
    screen.press("first\r");
    screen.wait_for("[1] working");
    screen.press("second\r");
    screen.wait_for("queued behind 1");
    screen.press("/new\rother\r");
    screen.wait_for("[2] working");
    screen.press("/queue\r");
    screen.wait_for("[1] running  first\n[1] queued behind 1  second\n[2] running  other\n");
    screen.press("/switch 1\r/sessions\r");
    screen.wait_for("▸ 1  first  running\n  2  other  running\n");
    screen.press("/switch 3\r");
    screen.wait_for("error: /switch needs the number of a conversation");
    screen.press("/cancel\r");
    screen.wait_for("note: cancelled job 1, which was running: first");
    screen.wait_for("note: cancelled job 2, which was still queued: second");
    screen.wait_for("note: not started: second");
    screen.wait_for("[1] cancelled · Demo");
    let shown = screen.wait_for("[2] working");
    assert!(!shown.contains("[1] working"), "{shown}");
    screen.press("/quit\r");
    let (code, over, _) = screen.end();
    assert_eq!(code, Some(0), "{over}");
    assert!(over.contains("[2] cancelled · Demo"), "{over}");
}

#[test]
fn nothing_lands_inside_an_answer_that_is_being_written() {
    let lab = Lab::new();
    let screen = start(&lab, &["--approve", "accept", "-c", "pace=800ms"]);
    let prompt = (1..=30).map(|n| format!("word{n}")).collect::<Vec<_>>().join(" ");
    screen.press(&format!("{prompt}\r/new\rother\r/switch 1\r"));
    screen.wait_for("This is the demo engine");
    screen.press("/switch 9\r");
    let early = screen.wait_for("error: /switch needs the number of a conversation");
    // It is shown at once, below what is being written.
    assert!(!early.contains("[1] done · Demo"), "{early}");
    // And so is what is typed, however often the answer was drawn.
    screen.press("typed");
    let early = screen.wait_for("› typed");
    assert!(!early.contains("[1] done · Demo"), "{early}");
    screen.press("\x03");
    screen.wait_for("[1] done · Demo");
    screen.wait_for("[2] done · Demo");
    screen.press("\x04");
    let (_, over, _) = screen.end();
    let lines: Vec<&str> = over.lines().collect();
    let said = lines.join(" ");
    let answer = format!("installed. You said: {prompt}");
    assert!(said.contains(&answer), "{over}");
    assert_eq!(over.matches("error: /switch needs").count(), 1, "{over}");
}

#[test]
fn control_c_cancels_the_turn_and_a_second_one_exits() {
    let lab = Lab::new();
    let screen = start(&lab, &SLOW);
    screen.press("first\r");
    screen.wait_for("[1] working");
    screen.press("\x03");
    screen.wait_for("note: cancelled job 1, which was running: first");
    screen.wait_for("[1] cancelled · Demo");
    // Another message resets the first Ctrl-C.
    screen.press("second\r");
    screen.wait_for("[1] working");
    screen.press("\x03");
    screen.wait_for("cancelled job 2, which was running: second");
    screen.press("\x03");
    let (code, over, _) = screen.end();
    assert_eq!(code, Some(130), "{over}");
}

#[test]
fn pasted_text_is_one_message_and_keeps_its_tabs() {
    let lab = Lab::new();
    let screen = start(&lab, &["--approve", "accept"]);
    screen.press("\x1b[200~one\n\ttwo\n\x1b[201~");
    screen.wait_for("[1] › one\n          two");
    screen.press("\r");
    screen.wait_for("You said: one");
    screen.press("/quit\r");
    assert_eq!(screen.end().0, Some(0));
    let history = std::fs::read_to_string(lab.path("state").join("chat-history")).unwrap();
    assert!(history.contains("one<\\n>\ttwo"), "{history:?}");
}

#[test]
fn a_paste_of_ten_thousand_lines_is_one_message_and_drawn_as_a_note() {
    let lab = Lab::new();
    let screen = start(&lab, &["--approve", "accept"]);
    let lines: String = (0..10_000).flat_map(|n| [n.to_string(), "\n".to_owned()]).collect();
    screen.press(&format!("\x1b[200~{lines}\x1b[201~"));
    screen.wait_for("[1] › [pasted text 1: 10000 lines]");
    screen.press(" is what I mean\r");
    screen.wait_for("9999 is what I mean");
    screen.press("/quit\r");
    let (code, over, raw) = screen.end();
    assert_eq!(code, Some(0), "{over}");
    // The answer of the demo has all of it, once.
    assert!(raw.len() < 4 * lines.len() + 20_000, "{} bytes for {}", raw.len(), lines.len());
}

#[test]
fn control_c_drops_what_is_typed_and_nothing_else() {
    let lab = Lab::new();
    let screen = start(&lab, &SLOW);
    screen.press("first\r");
    screen.wait_for("[1] working");
    screen.press("a draft");
    screen.wait_for("[1] › a draft");
    screen.press("\x03");
    let shown = screen.wait_without("a draft");
    assert!(shown.contains("[1] working") && !shown.contains("cancelled"), "{shown}");
    screen.press("\x03");
    screen.wait_for("note: cancelled job 1, which was running: first");
    screen.press("/quit\r");
    assert_eq!(screen.end().0, Some(0));
}

#[test]
fn keys_edit_the_line_and_the_history_is_there_after_a_restart() {
    let lab = Lab::new();
    let screen = start(&lab, &["--approve", "accept"]);
    // Ctrl-A, Ctrl-E, Alt-Left, Ctrl-K; wide and combining characters.
    screen.press("日本 e\u{301} word\x01the \x05\x1b[1;3D\x0bend\r");
    screen.wait_for("[1] › the 日本 e\u{301} end");
    screen.wait_for("日本 e\u{301} end\n\n[1] done");
    screen.press("one\\\rtwo\x1b\rthree\r");
    screen.wait_for("You said: one two three");
    screen.press("\x04");
    assert_eq!(screen.end().0, Some(0));

    let screen = start(&lab, &["--approve", "accept"]);
    screen.press("\x1b[A");
    screen.wait_for("[1] › one\n      two\n      three");
    screen.press("\x03");
    screen.wait_without("three");
    screen.press("\x12日");
    screen.wait_for("search: 日 the 日本");
    screen.press("\r");
    screen.wait_for("日本 e\u{301} end\n\n[1] done");
    screen.press("/qui\t\r");
    assert_eq!(screen.end().0, Some(0));
}

#[test]
fn tab_completes_the_name_of_a_project() {
    let lab = Lab::new();
    let path = lab.path("work").display().to_string();
    let config = lab.write("projects.toml", &format!("[projects.aquarium]\npath = {path:?}\n"));
    let screen = start(&lab, &["--approve", "accept", "--config", config.to_str().unwrap()]);
    screen.press("/aq\thello\r");
    screen.wait_for("[1] › /aquarium hello");
    let shown = screen.wait_for("[1] done");
    assert!(shown.contains("You said:\nhello"), "{shown}");
    assert!(shown.contains("\n✓ asked: 1 update: src/lib.rs: accepted by policy"), "{shown}");
    screen.press("\x04");
    assert_eq!(screen.end().0, Some(0));
}

#[test]
fn a_decision_with_nothing_asked_is_not_sent() {
    let lab = Lab::new();
    let screen = start(&lab, &[]);
    screen.press("y\r");
    let shown = screen.wait_for("note: nothing was asked, so \"y\" was not sent");
    assert!(!shown.contains("working"), "{shown}");
    screen.press("/quit\r");
    assert_eq!(screen.end().0, Some(0));
}

#[test]
fn after_control_z_the_chat_is_as_it_was() {
    let lab = Lab::new();
    let screen = start(&lab, &[]);
    screen.press("hel");
    screen.wait_for("[1] › hel");
    let pid = Pid::from_raw(screen.pid());
    kill(pid, Signal::SIGSTOP).unwrap();
    waitpid(pid, Some(WaitPidFlag::WUNTRACED)).unwrap();
    // What a shell does.
    let mut settings = tcgetattr(screen.terminal()).unwrap();
    settings.local_flags.insert(LocalFlags::ICANON | LocalFlags::ECHO);
    tcsetattr(screen.terminal(), SetArg::TCSANOW, &settings).unwrap();
    kill(pid, Signal::SIGCONT).unwrap();
    let begun = Instant::now();
    while tcgetattr(screen.terminal()).unwrap().local_flags.contains(LocalFlags::ICANON) {
        assert!(begun.elapsed() < Duration::from_secs(30), "the terminal was not taken again");
        std::thread::yield_now();
    }
    screen.press("lo\r");
    screen.wait_for("[1] › hello\n• I will");
    screen.wait_for("then Enter");
    screen.press("/quit\r");
    let (code, _, raw) = screen.end();
    assert_eq!(code, Some(0));
    assert_eq!(raw.matches("\x1b[?2004h").count(), 2, "{raw:?}");
}

#[test]
fn in_a_pipe_every_line_is_answered_in_order_on_standard_output() {
    let lab = Lab::new();
    let ran = lab.run_with(&["chat", "--engine", "demo"], b"one\n\ntwo\r\n/new\nthree");
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    let mut answers: Vec<&str> = ran.stdout.lines().collect();
    let place = |what: &str| answers.iter().position(|it| it.ends_with(what)).unwrap();
    assert!(place("You said: one") < place("You said: two"), "{answers:?}");
    answers.sort_unstable();
    insta::assert_snapshot!(neutral(&answers.join("\n")), @r"
    This is the demo engine: no account, no model, nothing installed. You said: one
    This is the demo engine: no account, no model, nothing installed. You said: three
    Welcome back to demo-ID. You said: two
    ");
    assert!(ran.stderr.contains("[2] done · Demo · "), "{}", ran.stderr);
    assert!(!ran.stderr.contains('\x1b'), "{}", ran.stderr);
}

#[test]
fn in_a_pipe_steps_come_before_what_is_asked_and_a_decision_is_shown_once() {
    let lab = Lab::new();
    let mut command = lab.takopi(&["chat", "--engine", "demo", "--approve", "ask"]);
    let (reader, mut writer) = std::io::pipe().unwrap();
    command.stdin(Stdio::from(reader));
    let mut running = Running::start(command);
    writer.write_all(b"hello\n").unwrap();
    running.wait_for("then Enter");
    writer.write_all(b"y\n").unwrap();
    drop(writer);
    let ran = running.end();
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    insta::assert_snapshot!(still(&ran.stderr), @r"
    • I will look around first.
    ✓ ls
    ✓ search: why do octopuses have three hearts
    ✓ tool: aquarium.feed
    ✓ subagent: review: the change below
    [1] demo wants to change files
    update src/lib.rs (+1 −1)

      @@ -1 +1 @@
      -pub const HEARTS: u32 = 1;
      +pub const HEARTS: u32 = 3;

    in .
    y yes, a yes for this session, n no, c no and stop; then Enter
    [1] ✓ asked: 1 update: src/lib.rs: accepted by you
    ✓ files: update src/lib.rs
    ✗ cargo test (exit 101)
    ! one test fails; this is only a demo
    ✓ todo 2/2: nothing left
    [1] done · Demo · Ns · 10 steps
    takopi run --engine demo --resume demo-ID
    ");
}

#[test]
fn a_turn_is_reported_before_the_steps_of_the_next_one() {
    let lab = Lab::new();
    let ran = lab.run_with(&["chat", "--engine", "demo"], "hello\n".repeat(5).as_bytes());
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    let order = ran.stderr.lines().filter_map(|line| match line {
        "• I will look around first." => Some("begins"),
        line => line.starts_with("[1] done").then_some("done"),
    });
    assert_eq!(order.collect::<Vec<_>>(), ["begins", "done"].repeat(5), "{}", ran.stderr);
}

#[test]
fn a_line_that_looks_like_a_command_but_is_none_is_not_sent() {
    let lab = Lab::new();
    let ran = lab.run_with(
        &["chat", "--engine", "demo"],
        b"/QUIT\n/foo bar\n/new now please\n /foo bar\n/etc/hosts is what?\n/Demo hi\n",
    );
    assert_eq!(ran.code, Some(1), "{}", ran.stderr);
    let errors: Vec<&str> = ran.stderr.lines().filter(|it| it.starts_with("error: ")).collect();
    assert_eq!(
        errors,
        [
            "error: unknown command /QUIT; /help lists the commands; to send the line as a message, put a space before it",
            "error: unknown command /foo; /help lists the commands; to send the line as a message, put a space before it",
            "error: /new takes no arguments; to send the line as a message, put a space before it",
        ]
    );
    let said: Vec<&str> =
        ran.stdout.lines().filter_map(|it| it.split("You said: ").nth(1)).collect();
    assert_eq!(said, ["/foo bar", "/etc/hosts is what?", "hi"]);
}

#[test]
fn in_a_pipe_a_run_that_fails_is_1_and_an_engine_can_be_named() {
    let lab = Lab::new();
    let args = ["chat", "--codex-bin", "/nowhere/codex"];
    let ran = lab.run_with(&args, b"hello\n");
    assert_eq!((ran.code, ran.stdout.as_str()), (Some(1), ""));
    assert!(ran.stderr.contains("error: "), "{}", ran.stderr);
    let ran = lab.run_with(&args, b"/demo hello\n");
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
}

#[test]
fn in_a_pipe_a_signal_ends_it_with_its_code() {
    let lab = Lab::new();
    let args: Vec<&str> = ["chat", "--engine", "demo"].iter().chain(&SLOW).copied().collect();
    let mut command = lab.takopi(&args);
    let (reader, mut writer) = std::io::pipe().unwrap();
    command.stdin(Stdio::from(reader));
    let mut running = Running::start(command);
    writer.write_all(b"one\ntwo\n").unwrap();
    running.wait_for("queued behind 1");
    running.signal(Signal::SIGTERM);
    let ran = running.end();
    assert_eq!((ran.code, ran.stdout.as_str()), (Some(143), ""), "{}", ran.stderr);
    // Whether it had begun or not.
    assert!(ran.stderr.contains("[1] cancelled · "), "{}", ran.stderr);
    drop(writer);
}
