//! Runs a program to its end or to a deadline, whichever comes first, with nothing left behind.

use std::io;
use std::os::unix::process::CommandExt as _;
use std::process::{Command, Output, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use anyhow::{Context as _, bail};
use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;

/// Runs `command` without input and returns its output, or an error with the cause: not found, too slow, or a
/// failure with the end of what it printed.
pub(crate) fn run(mut command: Command, limit: Duration) -> anyhow::Result<Output> {
    let name = command.get_program().to_string_lossy().into_owned();
    let child = command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        // A group of its own, so that the deadline ends its children too.
        .process_group(0)
        .spawn();
    let child = match child {
        Err(error) if error.kind() == io::ErrorKind::NotFound => bail!("{name} is not installed"),
        child => child.with_context(|| format!("cannot run {name}"))?,
    };
    let group = Pid::from_raw(child.id().try_into().context("a pid fits")?);
    let (send, done) = mpsc::channel();
    thread::spawn(move || send.send(child.wait_with_output()));
    let Ok(output) = done.recv_timeout(limit) else {
        let _ = killpg(group, Signal::SIGKILL);
        bail!("{name} did not end within {limit:?}");
    };
    let output = output.with_context(|| format!("cannot wait for {name}"))?;
    if !output.status.success() {
        let errors = String::from_utf8_lossy(&output.stderr);
        let last = errors.lines().rev().find(|line| !line.trim().is_empty());
        bail!("{name} failed ({}): {}", output.status, last.unwrap_or("it printed nothing"));
    }
    Ok(output)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str) -> Command {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        command
    }

    fn is_alive(pid: Pid) -> bool {
        // A zombie is not: the process that reaps orphans takes its time.
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        stat.rsplit_once(") ").is_some_and(|(_, rest)| !rest.starts_with('Z'))
    }

    #[test]
    fn a_failure_contains_the_last_line_of_the_output() {
        let error = run(shell("echo first >&2; echo why >&2; exit 3"), Duration::MAX / 2);
        let error = error.unwrap_err().to_string();
        assert!(error.contains("exit status: 3") && error.ends_with("why"), "{error}");
    }

    #[test]
    fn a_program_that_hangs_is_ended_with_its_children() {
        let directory = tempfile::tempdir().unwrap();
        let pid = directory.path().join("pid");
        // On a busy machine the child may not be there yet when its time is over.
        let mut limit = Duration::from_millis(100);
        let child = loop {
            let mut command = shell("sleep 600 & echo $! > pid; sleep 600");
            command.current_dir(directory.path());
            let error = run(command, limit).unwrap_err();
            assert!(error.to_string().contains("did not end"), "{error}");
            match std::fs::read_to_string(&pid).ok().and_then(|text| text.trim().parse().ok()) {
                Some(child) => break Pid::from_raw(child),
                None => limit *= 4,
            }
        };
        let deadline = std::time::Instant::now() + Duration::from_mins(1);
        while is_alive(child) {
            assert!(std::time::Instant::now() < deadline, "its child lives on");
            thread::sleep(Duration::from_millis(5));
        }
    }

    #[test]
    fn a_missing_program_has_an_error_of_its_own() {
        let error = run(Command::new("takopi-no-such-program"), Duration::from_secs(1));
        assert!(error.unwrap_err().to_string().contains("not installed"));
    }
}
