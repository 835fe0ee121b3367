//! `takopi chat` with a git that takes its time.

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

/// Passes on what it is called with once the gate is open.
const GIT: &str =
    "#!/bin/sh\nPATH=/usr/local/bin:/usr/bin:/bin\ncat \"$HOME/gate\"\nexec git \"$@\"\n";

#[test]
fn while_git_makes_a_worktree_only_the_messages_of_that_conversation_wait() {
    let lab = Lab::new();
    let work = lab.path("work");
    for args in [&["init", "--quiet"][..], &["commit", "--quiet", "--allow-empty", "-m", "first"]] {
        let identity = ["-c", "user.name=T", "-c", "user.email=t@example.org"];
        let mut git = std::process::Command::new("git");
        assert!(git.current_dir(&work).args(identity).args(args).status().unwrap().success());
    }
    lab.write("home/.config/takopi/config.toml", &format!("[projects.web]\npath = {work:?}\n"));
    let git = lab.write_executable("bin/git", GIT);
    let gate = Gate::new(&lab);
    let mut command = Command::new(env!("CARGO_BIN_EXE_takopi"));
    command = command.args(["chat", "--engine", "demo"]).current_dir(&work).env_clear();
    command = command.envs(lab.env()).env("PATH", git.parent().unwrap());
    let screen = Screen::start(command, (120, 100));
    screen.wait_for("[1] ›");
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
    assert!(work.join(".worktrees/topic").is_dir());
    screen.press("/quit\r");
    assert_eq!(screen.end().0, Some(0));
}
