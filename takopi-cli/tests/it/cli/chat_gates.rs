//! `takopi chat` with an agent that asks several things, or asks late, and with a git that takes its time.

use std::fs::{File, OpenOptions};
use std::path::PathBuf;

use pty_process::blocking::Command;

use super::lab::Lab;
use crate::screen::Screen;

/// A pipe that a program of the test reads, which ends when the test says so.
struct Gate(PathBuf);

impl Gate {
    fn new(lab: &Lab) -> Self {
        let path = lab.path("home/gate");
        assert!(std::process::Command::new("mkfifo").arg(&path).status().unwrap().success());
        Self(path)
    }

    /// Waits until a program reads; it does until what this returns is dropped.
    fn reached(&self) -> File {
        OpenOptions::new().write(true).open(&self.0).unwrap()
    }

    /// Nobody who comes from now on waits.
    fn remove(&self) {
        let open = self.0.with_extension("open");
        std::fs::write(&open, "").unwrap();
        std::fs::rename(open, &self.0).unwrap();
    }
}

/// An agent that speaks ACP. It asks for two commands at once, or for one when its gate opens, and ends the turn when all is
/// decided. It writes the decisions down.
const AGENT: &str = r#"#!/bin/sh
[ "$1" = --version ] && { echo "my-agent 4.5.6"; exit 0; }
say() { printf '{"jsonrpc":"2.0",%s}\n' "$1"; }
ask() {
  call="\"toolCallId\":\"$1\",\"kind\":\"execute\",\"title\":\"$2\",\"status\":\"pending\",\"rawInput\":{\"command\":\"$2\"}"
  options='{"optionId":"yes","kind":"allow_once","name":"Yes"},{"optionId":"no","kind":"reject_once","name":"No"}'
  say "\"id\":\"$1\",\"method\":\"session/request_permission\",\"params\":{\"sessionId\":\"own\",\"toolCall\":{$call},\"options\":[$options]}"
}
while read -r line; do
  id=$(printf '%s' "$line" | sed -n 's/.*"id":\([0-9]*\).*/\1/p')
  case $line in
    *'"initialize"'*) say "\"id\":$id,\"result\":{\"protocolVersion\":1,\"agentCapabilities\":{}}" ;;
    *'"session/new"'*) say "\"id\":$id,\"result\":{\"sessionId\":\"own\"}" ;;
    *'"session/prompt"'*)
      turn=$id
      case $line in
        *twice*) open=2; ask q1 'touch one'; ask q2 'touch two' ;;
        *) open=1; cat "$HOME/gate"; ask q1 'touch one' ;;
      esac ;;
    *'"q1"'*|*'"q2"'*)
      printf '%s\n' "$line" | sed 's/.*"id":"\(q.\)".*"optionId":"\([a-z]*\)".*/\1 \2/;s/.*"optionId":"\([a-z]*\)".*"id":"\(q.\)".*/\2 \1/' >> "$HOME/decisions"
      open=$((open - 1))
      [ $open = 0 ] || continue
      say "\"method\":\"session/update\",\"params\":{\"sessionId\":\"own\",\"update\":{\"sessionUpdate\":\"agent_message_chunk\",\"content\":{\"type\":\"text\",\"text\":\"over\"}}}"
      say "\"id\":$turn,\"result\":{\"stopReason\":\"end_turn\"}" ;;
  esac
done
"#;

fn start(lab: &Lab) -> Screen {
    let agent = lab.write_executable("bin/my-agent", AGENT);
    let config = format!(
        "[engines.mine]\nkind = 'acp'\ncommand = ['{}', '--acp']\nsessions = 'my-agent'\n",
        agent.display()
    );
    lab.write("home/.config/takopi/config.toml", &config);
    let mut command = Command::new(env!("CARGO_BIN_EXE_takopi"));
    command = command.args(["chat", "--engine", "mine"]).current_dir(lab.path("work"));
    let screen = Screen::start(command.env_clear().envs(lab.env()), (60, 100));
    screen.wait_for("[1] ›");
    screen
}

fn decisions(lab: &Lab) -> String {
    std::fs::read_to_string(lab.path("home/decisions")).unwrap()
}

#[test]
fn a_decision_is_for_the_request_that_is_shown() {
    let lab = Lab::new();
    let screen = start(&lab);
    screen.press("twice\r");
    // Both are open.
    screen.wait_for_times("waiting for a decision", 2);
    let shown = screen.wait_for("then Enter");
    assert_eq!(shown.matches("then Enter").count(), 1, "{shown}");
    let is_first = shown.contains("\ntouch one\n");
    let (yes, no) = if is_first { ("q1", "q2") } else { ("q2", "q1") };
    // A message that names another engine begins a session of that.
    screen.press("/demo explain\r");
    screen.wait_for("[1] › /demo explain");
    screen.press("y\r");
    let shown = screen.wait_for_times("then Enter", 2);
    assert!(shown.contains("\ntouch one\n") && shown.contains("\ntouch two\n"), "{shown}");
    screen.press("n\r");
    screen.wait_for("[1] done");
    let decided = decisions(&lab);
    assert_eq!(decided, format!("{yes} yes\n{no} no\n"));
    screen.wait_for("[1] demo wants to change files");
    screen.press("y\r");
    let shown = screen.wait_for("You said: explain");
    assert!(!shown.contains("error: "), "{shown}");
    screen.press("/quit\r");
    assert_eq!(screen.end().0, Some(0));
}

#[test]
fn a_decision_that_was_typed_before_its_request_was_shown_does_not_count() {
    let lab = Lab::new();
    let gate = Gate::new(&lab);
    let screen = start(&lab);
    screen.press("once\r");
    screen.wait_for("[1] working");
    screen.press("y");
    screen.wait_for("[1] › y");
    drop(gate.reached());
    screen.wait_for("then Enter");
    screen.press("\r");
    let shown = screen.wait_for("\"y\" was typed before this request was shown");
    assert!(!shown.contains("accepted by you"), "{shown}");
    screen.press("n\r");
    screen.wait_for("[1] done");
    assert_eq!(decisions(&lab), "q1 no\n");
    screen.press("/quit\r");
    assert_eq!(screen.end().0, Some(0));
}

/// Passes on what it is called with once the gate is open.
const GIT: &str =
    "#!/bin/sh\nPATH=/usr/local/bin:/usr/bin:/bin\ncat \"$HOME/gate\"\nexec git \"$@\"\n";

/// A chat in a repository that is a project, with this git.
fn start_with(lab: &Lab, git: &str) -> Screen {
    let work = lab.path("work");
    for args in [&["init", "--quiet"][..], &["commit", "--quiet", "--allow-empty", "-m", "first"]] {
        let identity = ["-c", "user.name=T", "-c", "user.email=t@example.org"];
        let mut git = std::process::Command::new("git");
        assert!(git.current_dir(&work).args(identity).args(args).status().unwrap().success());
    }
    let config = format!("[projects.web]\npath = '{}'\n", work.display());
    lab.write("home/.config/takopi/config.toml", &config);
    let git = lab.write_executable("bin/git", git);
    let mut command = Command::new(env!("CARGO_BIN_EXE_takopi"));
    command = command.args(["chat", "--engine", "demo"]).current_dir(&work).env_clear();
    command = command.envs(lab.env()).env("PATH", git.parent().unwrap());
    let screen = Screen::start(command, (120, 100));
    screen.wait_for("[1] ›");
    screen
}

#[test]
fn while_git_makes_a_worktree_only_the_messages_of_that_conversation_wait() {
    let lab = Lab::new();
    let gate = Gate::new(&lab);
    let screen = start_with(&lab, GIT);
    screen.press("first\r");
    screen.wait_for("then Enter");
    screen.press("/new\r/web @topic second\r");
    let waits = gate.reached();
    // A command, a decision, and a later message are handled meanwhile.
    screen.press("/switch 1\ry\r");
    screen.wait_for("[1] done");
    screen.press("/switch 2\rthird\r/queue\r");
    screen.wait_for("[2] waiting for git  /web @topic second\n[2] waiting for git  third\n");
    screen.press("/new\r/web @topic never\r");
    screen.wait_for("[3] waiting for git: /web @topic never");
    screen.press("\x03");
    screen.wait_for("note: cancelled while it waited for git: /web @topic never");
    gate.remove();
    drop(waits);
    screen.wait_for("[2] demo wants to change files");
    screen.press("/switch 2\ry\r");
    screen.wait_for("You said: second");
    screen.wait_for_times("[2] demo wants to change files", 2);
    screen.press("n\r");
    let shown = screen.wait_for("You said: third");
    assert!(!shown.contains("error: ") && !shown.contains("[3] done"), "{shown}");
    assert!(lab.path("work/.worktrees/topic").is_dir());
    screen.press("/quit\r");
    assert_eq!(screen.end().0, Some(0));
}

#[test]
fn messages_behind_one_that_git_has_no_place_for_are_not_sent() {
    let lab = Lab::new();
    let gate = Gate::new(&lab);
    let git = "#!/bin/sh\nPATH=/usr/bin:/bin\ncat \"$HOME/gate\"\necho no room >&2\nexit 128\n";
    let screen = start_with(&lab, git);
    screen.press("/web @topic first\r");
    let waits = gate.reached();
    screen.press("second\r/queue\r");
    screen.wait_for("[1] waiting for git  second");
    gate.remove();
    drop(waits);
    screen.wait_for("so it has no branches");
    screen.wait_for("error: not sent, as the message before it was not: second");
    screen.press("/queue\r");
    let shown = screen.wait_for("nothing is waiting or running");
    assert!(!shown.contains("demo wants"), "{shown}");
    screen.press("/quit\r");
    assert_eq!(screen.end().0, Some(0));
}
