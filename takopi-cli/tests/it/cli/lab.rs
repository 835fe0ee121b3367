//! A place of its own for each test, and the binary run in it.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

/// The id of no existing session.
pub(crate) const SESSION: &str = "01a1e21b-26e5-7eb0-9d27-459e98f10b74";

/// The directories of one test.
pub(crate) struct Lab {
    directory: tempfile::TempDir,
}

/// What came of a command.
#[derive(Debug)]
pub(crate) struct Ran {
    pub(crate) code: Option<i32>,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl Lab {
    pub(crate) fn new() -> Self {
        let lab = Self { directory: tempfile::tempdir().unwrap() };
        for name in ["home", "codex", "work"] {
            std::fs::create_dir(lab.path(name)).unwrap();
        }
        lab
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    pub(crate) fn write(&self, name: &str, text: &str) -> PathBuf {
        let path = self.path(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, text).unwrap();
        path
    }

    /// The same for a script that is executed.
    pub(crate) fn write_executable(&self, name: &str, script: &str) -> PathBuf {
        let path = self.path(name);
        takopi_tests::executable::write_executable(&path, script);
        path
    }

    /// The variables that keep the machine out.
    pub(crate) fn env(&self) -> Vec<(&'static str, PathBuf)> {
        vec![
            ("PATH", "/usr/local/bin:/usr/bin:/bin".into()),
            ("HOME", self.path("home")),
            ("CODEX_HOME", self.path("codex")),
            ("TAKOPI_STATE_DIR", self.path("state")),
            ("TERM", "xterm-256color".into()),
            ("TZ", "UTC".into()),
        ]
    }

    /// The binary, without input.
    pub(crate) fn takopi(&self, args: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_takopi"));
        command
            .args(args)
            .current_dir(self.path("work"))
            .env_clear()
            .envs(self.env())
            .stdin(Stdio::null());
        takopi_tests::signals::reset(&mut command);
        command
    }

    /// Runs the binary to its end.
    pub(crate) fn run(&self, args: &[&str]) -> Ran {
        ran(&mut self.takopi(args))
    }

    /// Runs the binary with something on its standard input.
    pub(crate) fn run_with(&self, args: &[&str], input: &[u8]) -> Ran {
        fed(self.takopi(args), input)
    }
}

/// Runs a command to its end with something on its standard input.
pub(crate) fn fed(mut command: Command, input: &[u8]) -> Ran {
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    child.stdin.take().unwrap().write_all(input).unwrap();
    finished(child)
}

/// Runs a command to its end.
pub(crate) fn ran(command: &mut Command) -> Ran {
    let output = command.output().unwrap();
    Ran {
        code: output.status.code(),
        stdout: String::from_utf8(output.stdout).unwrap(),
        stderr: String::from_utf8(output.stderr).unwrap(),
    }
}

/// A command that runs, read line by line.
pub(crate) struct Running {
    child: Child,
    stderr: BufReader<std::process::ChildStderr>,
    seen: String,
}

impl Running {
    pub(crate) fn start(mut command: Command) -> Self {
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let stderr = BufReader::new(child.stderr.take().unwrap());
        Self { child, stderr, seen: String::new() }
    }

    /// Waits until this is on standard error.
    pub(crate) fn wait_for(&mut self, text: &str) {
        while !self.seen.contains(text) {
            let read = self.stderr.read_line(&mut self.seen).unwrap();
            assert!(read > 0, "{text:?} was never printed:\n{}", self.seen);
        }
    }

    /// What was read of standard error so far.
    pub(crate) fn seen(&self) -> &str {
        &self.seen
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill(self.pid(), signal).unwrap();
    }

    /// Waits until it handles the signal itself.
    #[cfg(target_os = "linux")]
    pub(crate) fn wait_for_handler(&self, signal: Signal) {
        while !self.has_signal("SigCgt", signal) {
            std::thread::yield_now();
        }
    }

    /// Whether the signal is in this set of `/proc/PID/status`.
    #[cfg(target_os = "linux")]
    pub(crate) fn has_signal(&self, set: &str, signal: Signal) -> bool {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id())).unwrap();
        let signals = status.lines().find_map(|line| line.strip_prefix(set)?.strip_prefix(':'));
        let signals = u64::from_str_radix(signals.unwrap().trim(), 16).unwrap();
        signals & (1 << (signal as i32 - 1)) != 0
    }

    pub(crate) fn pid(&self) -> Pid {
        Pid::from_raw(self.child.id().try_into().unwrap())
    }

    pub(crate) fn stdout(&mut self) -> std::process::ChildStdout {
        self.child.stdout.take().unwrap()
    }

    pub(crate) fn end(mut self) -> Ran {
        self.stderr.read_to_string(&mut self.seen).unwrap();
        let mut stdout = String::new();
        if let Some(mut pipe) = self.child.stdout.take() {
            pipe.read_to_string(&mut stdout).unwrap();
        }
        let code = self.child.wait().unwrap().code();
        Ran { code, stdout, stderr: self.seen }
    }
}

fn finished(child: Child) -> Ran {
    let output = child.wait_with_output().unwrap();
    Ran {
        code: output.status.code(),
        stdout: String::from_utf8(output.stdout).unwrap(),
        stderr: String::from_utf8(output.stderr).unwrap(),
    }
}

/// One of the stand-ins for codex.
pub(crate) fn codex(name: &str) -> String {
    stand_in("codex", name)
}

/// One of the stand-ins for Claude Code.
pub(crate) fn claude(name: &str) -> String {
    stand_in("claude", name)
}

fn stand_in(engine: &str, name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests").join(engine).join(name);
    path.to_str().unwrap().to_owned()
}

/// The text with ids of demo sessions, which differ from run to run, made the same.
pub(crate) fn neutral(text: &str) -> String {
    let mut neutral = String::new();
    let mut rest = text;
    while let Some(at) = rest.find("demo-") {
        let (before, id) = rest.split_at(at + "demo-".len());
        neutral.push_str(before);
        neutral.push_str("ID");
        rest = id.trim_start_matches(|letter: char| letter.is_ascii_hexdigit());
    }
    neutral + rest
}
