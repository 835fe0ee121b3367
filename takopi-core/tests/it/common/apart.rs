//! Other processes: this test binary again, in one of its roles.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};

use nix::sys::resource::{Resource, setrlimit};

use super::TEST_DEADLINE;

/// Marks a line of a child among what the test harness prints.
const CUE: &str = "@@";

/// This test binary in a role, as a child process. Killed when dropped.
pub struct ChildProcess {
    child: Child,
    input: Option<ChildStdin>,
    lines: Receiver<String>,
}

impl ChildProcess {
    /// Runs the hidden test `actor` with `ACTOR=part`, on the state directory.
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
            .env("LAB_TEST_HOST", state)
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

    /// Sends it a line.
    pub fn send_line(&mut self, line: &str) {
        writeln!(self.input.as_mut().unwrap(), "{line}").unwrap();
    }

    /// The next line it reports.
    #[track_caller]
    pub fn next_line(&self) -> String {
        self.lines.recv_timeout(TEST_DEADLINE).expect("the child reports nothing")
    }

    /// Waits for its next line, which must be this one.
    #[track_caller]
    pub fn expect(&self, line: &str) {
        assert_eq!(self.next_line(), line);
    }

    /// Waits for a line that contains this.
    #[track_caller]
    pub fn until(&self, part: &str) -> String {
        loop {
            let line = self.next_line();
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

    /// Waits until it has exited successfully.
    pub fn finish(&mut self) {
        drop(self.input.take());
        let status = self.child.wait().unwrap();
        assert!(status.success(), "{status}");
    }
}

impl Drop for ChildProcess {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// In a child: reports a line.
pub fn report(line: &str) {
    let mut output = std::io::stdout().lock();
    writeln!(output, "{CUE}{line}").unwrap();
    output.flush().unwrap();
}

/// In a child: the next line it is sent; `None` at the end of its input.
pub fn receive_line() -> Option<String> {
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
