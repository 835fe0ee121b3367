//! Other processes: this test binary again, playing a part.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};

use nix::sys::resource::{Resource, setrlimit};

use super::PATIENCE;

/// What marks a line of an actor among what the test harness prints.
const CUE: &str = "@@";

/// A process that plays a part of this test binary, and is killed when dropped.
pub struct Actor {
    child: Child,
    input: Option<ChildStdin>,
    lines: Receiver<String>,
}

impl Actor {
    /// Plays the hidden test `actor` with `ACTOR=part`, on the state directory.
    pub fn new(part: &str, state: &Path) -> Self {
        Self::with(part, state, |_| {})
    }

    /// The same, with something else about it.
    pub fn with(part: &str, state: &Path, change: impl FnOnce(&mut Command)) -> Self {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command
            .args(["--exact", "actor", "--ignored", "--nocapture", "--test-threads=1"])
            .env("ACTOR", part)
            .env("TAKOPI_STATE_DIR", state)
            .env("LAB_GROUND", state)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped());
        change(&mut command);
        let mut child = command.spawn().unwrap();
        let output = BufReader::new(child.stdout.take().unwrap());
        let (sender, lines) = channel();
        std::thread::spawn(move || {
            for line in output.lines().map_while(Result::ok) {
                if let Some((_, line)) = line.split_once(CUE)
                    && sender.send(line.to_owned()).is_err()
                {
                    return;
                }
            }
        });
        Self { input: child.stdin.take(), child, lines }
    }

    pub fn pid(&self) -> i32 {
        i32::try_from(self.child.id()).unwrap()
    }

    /// Tells it something.
    pub fn tell(&mut self, line: &str) {
        writeln!(self.input.as_mut().unwrap(), "{line}").unwrap();
    }

    /// What it says next.
    #[track_caller]
    pub fn hear(&self) -> String {
        self.lines.recv_timeout(PATIENCE).expect("the actor says nothing")
    }

    /// Waits until it says this, and says nothing else before.
    #[track_caller]
    pub fn expect(&self, line: &str) {
        assert_eq!(self.hear(), line);
    }

    /// Waits until it says something that contains this.
    #[track_caller]
    pub fn until(&self, part: &str) -> String {
        loop {
            let line = self.hear();
            if line.contains(part) {
                return line;
            }
        }
    }

    /// SIGKILL, and reaped.
    pub fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Waits until it is over, and that it went well.
    pub fn finish(&mut self) {
        drop(self.input.take());
        let status = self.child.wait().unwrap();
        assert!(status.success(), "{status}");
    }
}

impl Drop for Actor {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// In an actor: says a line.
pub fn say(line: &str) {
    let mut output = std::io::stdout().lock();
    writeln!(output, "{CUE}{line}").unwrap();
    output.flush().unwrap();
}

/// In an actor: the next line it is told; `None` when nobody tells it anything any more.
pub fn listen() -> Option<String> {
    let mut line = String::new();
    (std::io::stdin().read_line(&mut line).unwrap() > 0).then(|| line.trim_end().to_owned())
}

/// Sets the limit on open descriptors of a command.
pub fn limit_descriptors(command: &mut Command, soft: u64, hard: u64) {
    // SAFETY: the closure only makes a system call.
    unsafe {
        command.pre_exec(move || Ok(setrlimit(Resource::RLIMIT_NOFILE, soft, hard)?));
    }
}

/// Runs the tests of these modules again, with few descriptors.
pub fn again_with_256_descriptors(modules: &[&str]) {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(modules.iter().map(|module| format!("{module}::")));
    command.args(["--test-threads=1", "--quiet"]);
    limit_descriptors(&mut command, 256, 256);
    let output = command.output().unwrap();
    assert!(
        output.status.success(),
        "{}\n{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
}
