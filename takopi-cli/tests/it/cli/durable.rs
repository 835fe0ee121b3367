//! What `takopi batch` has the kernel do with its files, seen from outside: the system calls of the process.
#![cfg(all(target_os = "linux", target_env = "gnu"))]

use std::collections::HashMap;
use std::os::unix::fs::FileExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use nix::libc;
use nix::sys::ptrace::{self, Options};
use nix::sys::signal::Signal;
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::Pid;

use super::lab::Lab;

/// A system call on a file.
#[derive(Debug)]
struct Call {
    /// `opened`, `wrote` and `synced` for one that succeeded, `writes` for a write that begins.
    what: &'static str,
    path: PathBuf,
    /// What it writes.
    text: String,
}

impl Call {
    fn is(&self, what: &str, path: &Path) -> bool {
        self.what == what && self.path == path
    }
}

/// The calls of all threads of a command, in their order, and its exit code.
#[expect(clippy::zombie_processes, reason = "it is waited for by its id, with its threads")]
fn traced(mut command: Command) -> (Vec<Call>, i32) {
    // SAFETY: the closure makes a system call only.
    unsafe {
        command.pre_exec(|| Ok(ptrace::traceme()?));
    }
    let child = command.spawn().unwrap();
    let leader = Pid::from_raw(child.id().try_into().unwrap());
    // Only what this thread started: the other tests have processes too.
    let any = || waitpid(None, Some(WaitPidFlag::__WALL | WaitPidFlag::__WNOTHREAD)).unwrap();
    assert_eq!(any(), WaitStatus::Stopped(leader, Signal::SIGTRAP), "it has not begun");
    let options = Options::PTRACE_O_TRACESYSGOOD | Options::PTRACE_O_TRACECLONE;
    ptrace::setoptions(leader, options | Options::PTRACE_O_EXITKILL).unwrap();
    ptrace::syscall(leader, None).unwrap();
    let mut calls = Vec::new();
    let mut begun = HashMap::new();
    loop {
        let (pid, signal) = match any() {
            WaitStatus::Exited(pid, code) if pid == leader => return (calls, code),
            WaitStatus::Signaled(pid, signal, _) if pid == leader => panic!("{signal}"),
            WaitStatus::PtraceSyscall(pid) => {
                calls.extend(call(leader, pid, &mut begun));
                (pid, None)
            }
            // A new thread begins with it.
            WaitStatus::Stopped(pid, Signal::SIGSTOP) | WaitStatus::PtraceEvent(pid, ..) => {
                (pid, None)
            }
            WaitStatus::Stopped(pid, signal) => (pid, Some(signal)),
            _ => continue,
        };
        // A thread that was killed by the exit of its process cannot go on.
        let _ = ptrace::syscall(pid, signal);
    }
}

/// The call at whose beginning or end a thread stands, if it is one of those that count.
fn call(leader: Pid, thread: Pid, begun: &mut HashMap<Pid, (i64, PathBuf)>) -> Option<Call> {
    let info = ptrace::syscall_info(thread).ok()?;
    let file = |descriptor: u64| {
        std::fs::read_link(format!("/proc/{leader}/fd/{descriptor}")).unwrap_or_default()
    };
    if info.op == libc::PTRACE_SYSCALL_INFO_ENTRY {
        // SAFETY: `op` says which of the union it is.
        let entry = unsafe { info.u.entry };
        let (number, path) = (i64::try_from(entry.nr).unwrap(), file(entry.args[0]));
        begun.insert(thread, (number, path.clone()));
        if number != libc::SYS_write {
            return None;
        }
        let mut text = vec![0; usize::try_from(entry.args[2]).unwrap()];
        let memory = std::fs::File::open(format!("/proc/{leader}/mem")).unwrap();
        memory.read_exact_at(&mut text, entry.args[1]).ok()?;
        return Some(Call {
            what: "writes",
            path,
            text: String::from_utf8_lossy(&text).into_owned(),
        });
    }
    let (number, path) = begun.remove(&thread)?;
    // SAFETY: as above.
    let exit = unsafe { info.u.exit };
    if info.op != libc::PTRACE_SYSCALL_INFO_EXIT || exit.is_error != 0 {
        return None;
    }
    let (what, path) = match number {
        libc::SYS_openat => ("opened", file(u64::try_from(exit.sval).ok()?)),
        libc::SYS_write => ("wrote", path),
        libc::SYS_fdatasync | libc::SYS_fsync => ("synced", path),
        _ => return None,
    };
    Some(Call { what, path, text: String::new() })
}

#[test]
fn the_files_of_a_batch_are_synced_by_the_kernel_before_a_result_is_reported() {
    let lab = Lab::new();
    let job = "{\"id\":\"a\",\"prompt\":\"hello\",\"session\":\"s\"}\n";
    let prompts = lab.write("work/prompts", job);
    let stderr = lab.write("stderr", "").canonicalize().unwrap();
    std::fs::create_dir(lab.path("results")).unwrap();
    let results = lab.path("results").canonicalize().unwrap();
    let [out, state, fresh] = ["out", "out.state", "out.state.new"].map(|name| results.join(name));
    let mut command = lab.takopi(&["batch", "--engine", "demo", "--out"]);
    command.arg(&out).arg(prompts).stdout(std::process::Stdio::null());
    command.stderr(std::fs::File::create(&stderr).unwrap());
    // A thread of its own, for it waits for all that it started.
    let (mut calls, code) = std::thread::spawn(|| traced(command)).join().unwrap();
    assert_eq!(code, 0, "{}", std::fs::read_to_string(&stderr).unwrap());

    calls.retain(|call| call.path.starts_with(&results) || call.path == stderr);
    let first = |what: &str, path: &Path, text: &str| {
        let found = calls.iter().position(|it| it.is(what, path) && it.text.contains(text));
        found.unwrap_or_else(|| panic!("nothing {what} {} {text}: {calls:#?}", path.display()))
    };
    let last = |what: &str, path: &Path, before: usize| {
        calls[..before].iter().rposition(|call| call.is(what, path))
    };
    let is_synced = |path: &Path, after: usize, before: usize| {
        let synced = last("synced", path, before);
        assert!(synced > Some(after), "{} is not synced: {calls:#?}", path.display());
    };
    // A new state is on disk before it is in its place.
    let in_place = first("opened", &state, "");
    is_synced(&fresh, last("wrote", &fresh, in_place).expect("a new state"), in_place);
    // The directory knows both files before anything is sent.
    let created = first("opened", &out, "").max(in_place);
    is_synced(&results, created, first("writes", &state, "\"sent\""));
    // The session is on disk before the result that follows from it, and that before it is reported.
    is_synced(&state, first("writes", &state, "\"session\""), first("writes", &out, ""));
    is_synced(&out, first("wrote", &out, ""), first("writes", &stderr, "✓ a "));
}
