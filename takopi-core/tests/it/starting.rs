//! Starting engine processes: environment, signals, descriptors, and what can be wrong with them.

use std::fs::File;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use crate::common::apart::{ChildProcess, limit_descriptors, report};
use crate::common::engines::shell;
use crate::common::processes::{is_alive, number_in};
use crate::common::{TestHost, all, end, end_of, eventually, token, until_started};
use futures::{FutureExt, StreamExt};
use nix::sys::signal::{SigHandler, SigSet, Signal, kill};
use nix::unistd::Pid;
use takopi_core::model::{Completed, Reason, TakopiEvent};
use takopi_core::process::{
    EnvPolicy, Launch, descriptor_limit, find_program, raise_descriptor_limit,
};
use takopi_core::{RunRequest, Runner};

fn prompt() -> RunRequest {
    RunRequest::new("go")
}

/// Plays a part in a process of its own.
pub(crate) async fn play(part: &str) {
    match part {
        "environment" => tell_environment().await,
        "deaf" => cancel_a_trapper().await,
        "signals" => tell_signals().await,
        "forker" => fork_and_run().await,
        "poor" => run_without_descriptors().await,
        "poor sweeper" => sweep_without_descriptors().await,
        "raiser" => raise().await,
        other => panic!("no such part: {other}"),
    }
}

/// Reports the environment of an engine.
async fn tell_environment() {
    let test_host = TestHost::on_own_thread();
    let script = r#"echo '{"started":"a"}'; env > $DIR/env; echo '{"done":""}'"#;
    let launch = |launch: Launch| launch.env_policy(EnvPolicy::default().deny("MY_BOT_*"));
    let runner = shell(script).launch_with(launch).on(&test_host);
    let request = RunRequest::new("go").env("SLACK_ON_PURPOSE", "asked for");
    assert!(end(runner.run(request)).await.ok);
    for line in std::fs::read_to_string(test_host.file("env")).unwrap().lines() {
        report(line);
    }
    report("end");
}

#[test]
fn the_environment_is_inherited_but_for_the_secrets_of_chat_bots() {
    let state = tempfile::TempDir::new().unwrap();
    let actor = ChildProcess::with("environment", state.path(), |command| {
        command
            .env("HOME", "/home/somebody")
            .env("MY_TOOL", "kept")
            .env("MY_BOT_KEY", "secret")
            .env("TELEGRAM_BOT_TOKEN", "secret")
            .env("SLACK_BOT_TOKEN", "secret")
            .env("DISCORD_TOKEN", "secret");
    });
    let mut lines = Vec::new();
    loop {
        match actor.next_line() {
            line if line == "end" => break,
            line => lines.push(line),
        }
    }
    for kept in ["HOME=/home/somebody", "MY_TOOL=kept", "SLACK_ON_PURPOSE=asked for"] {
        assert!(lines.iter().any(|line| line == kept), "{kept}");
    }
    assert!(!lines.iter().any(|line| line.contains("secret")), "{lines:?}");
    assert!(lines.iter().any(|line| line.starts_with("TAKOPI_RUN=")));
    assert!(!lines.iter().any(|line| line.starts_with("CODEX_HOME=")));
}

#[tokio::test]
async fn a_missing_program_is_reported_as_missing() {
    let test_host = TestHost::on_own_thread();
    for name in ["no-such-program-anywhere", "/no/such/program", "./no-such-program"] {
        let runner = shell("").program(name).on(&test_host);
        let request = RunRequest::new("go").resume(token("a"));
        let events = all(runner.run(request)).await;
        let end = end_of(&events);
        assert_eq!(end.reason, Some(Reason::EngineMissing), "{name}");
        assert!(end.error.as_deref().unwrap().contains(name), "{end:?}");
        assert_eq!(end.resume, Some(token("a")));
        assert_eq!(events.len(), 1);
    }
    test_host.host.settle().await;
    assert!(test_host.is_unlocked());
}

#[tokio::test]
async fn a_program_that_may_not_be_executed_is_reported_as_such() {
    let test_host = TestHost::on_own_thread();
    let path = test_host.file("program");
    std::fs::write(&path, "#!/bin/sh\n").unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o644)).unwrap();
    let end = end(shell("").program(&path).on(&test_host).run(prompt())).await;
    assert_eq!(end.reason, Some(Reason::EngineMissing));
    let error = end.error.unwrap();
    assert!(error.contains("not executable") && error.contains(path.to_str().unwrap()), "{error}");
}

#[tokio::test]
async fn a_missing_directory_is_named() {
    let test_host = TestHost::on_own_thread();
    let request = RunRequest::new("go").cwd("/no/such/directory");
    let end = end(shell("").on(&test_host).run(request)).await;
    assert_eq!(end.reason, Some(Reason::InvalidRequest));
    assert!(end.error.unwrap().contains("/no/such/directory"));
}

#[tokio::test]
async fn an_engine_runs_in_the_directory_of_its_request() {
    let test_host = TestHost::on_own_thread();
    let script = r#"echo '{"started":"a"}'; echo "{\"done\":\"$(pwd)\"}""#;
    let directory = test_host.directory.path().canonicalize().unwrap();
    let request = RunRequest::new("go").cwd(&directory);
    assert_eq!(
        end(shell(script).on(&test_host).run(request)).await.answer,
        directory.to_str().unwrap()
    );
}

#[test]
fn a_program_is_found_as_a_shell_finds_it_and_named_in_full() {
    let directory = tempfile::TempDir::new().unwrap();
    let [first, second] = ["first", "second"].map(|name| directory.path().join(name));
    let write = |path: &PathBuf, mode| {
        std::fs::create_dir_all(path).unwrap();
        std::fs::write(path.join("tool"), "").unwrap();
        let mode = std::fs::Permissions::from_mode(mode);
        std::fs::set_permissions(path.join("tool"), mode).unwrap();
    };
    write(&first, 0o644);
    write(&second, 0o755);
    let path = std::env::join_paths([&first, &second]).unwrap();
    let find = |path: &std::ffi::OsStr| find_program("tool".as_ref(), Some(path));
    assert_eq!(find(&path), Some(second.join("tool")), "one that can be executed is preferred");
    assert_eq!(find(first.as_os_str()), Some(first.join("tool")));
    assert_eq!(find("/nowhere".as_ref()), None);
    // A relative entry means this directory, not the one the engine will run in.
    let found = find_program("Cargo.toml".as_ref(), Some(".".as_ref())).unwrap();
    assert!(found.is_absolute());
}

/// Runs an engine with a trap, cancels the run, and reports the signals that the engine received.
async fn cancel_a_trapper() {
    let test_host = TestHost::on_own_thread();
    let script = r#"
        trap 'echo INT > $DIR/heard; exit 0' INT
        trap 'echo TERM > $DIR/heard; exit 0' TERM
        echo '{"started":"a"}'
        while :; do sleep 0.02; done
    "#;
    let runner = shell(script).bash().on(&test_host);
    let request = prompt();
    let cancel = request.cancel.clone();
    let mut events = runner.run(request);
    until_started(&mut events).await;
    cancel.cancel();
    end(events).await;
    report(std::fs::read_to_string(test_host.file("heard")).unwrap().trim());
}

#[test]
fn an_engine_receives_sigint_even_if_takopi_ignores_it() {
    let state = tempfile::TempDir::new().unwrap();
    // As a shell starts what runs in its background.
    let actor = ChildProcess::with("deaf", state.path(), |command| {
        // SAFETY: the closure only makes a system call.
        unsafe {
            command.pre_exec(|| {
                nix::sys::signal::signal(Signal::SIGINT, SigHandler::SigIgn)?;
                Ok(())
            });
        }
    });
    actor.expect("INT");
}

/// Runs an engine that reports which signals it ignores, and which it blocks.
async fn tell_signals() {
    let test_host = TestHost::on_own_thread();
    let script = r#"
        echo '{"started":"a"}'
        signals=$(grep -E 'SigBlk|SigIgn' /proc/self/status | tr '\t\n' '  ')
        echo "{\"done\":\"$signals\"}"
    "#;
    let answer = end(shell(script).bash().on(&test_host).run(prompt())).await.answer;
    let sets = answer.split_whitespace().filter_map(|word| u64::from_str_radix(word, 16).ok());
    // The C library keeps 32 and 33 for itself and does not let them be changed.
    let sets: Vec<_> = sets.map(|set| format!("{:x}", set & !(0b11 << 31))).collect();
    report(&sets.join(" "));
}

#[test]
fn an_engine_starts_with_default_signals_and_none_blocked_whatever_takopi_inherited() {
    let state = tempfile::TempDir::new().unwrap();
    // As under `nohup`, in the background, and worse.
    let actor = ChildProcess::with("signals", state.path(), |command| {
        // SAFETY: the closure makes system calls only.
        unsafe {
            command.pre_exec(|| {
                let ignored = [Signal::SIGHUP, Signal::SIGINT, Signal::SIGQUIT, Signal::SIGPIPE];
                for ignored in ignored.into_iter().chain([Signal::SIGTERM, Signal::SIGUSR1]) {
                    nix::sys::signal::signal(ignored, SigHandler::SigIgn)?;
                }
                // Only Linux has realtime signals.
                #[cfg(target_os = "linux")]
                libc::signal(libc::SIGRTMAX(), libc::SIG_IGN);
                let mut blocked = SigSet::empty();
                blocked.add(Signal::SIGTERM);
                blocked.add(Signal::SIGUSR2);
                blocked.thread_set_mask()?;
                Ok(())
            });
        }
    });
    actor.expect("0 0");
}

/// Runs an engine, forks, and reports how a run ends in the child.
async fn fork_and_run() {
    let test_host = TestHost::on_own_thread();
    let runner = shell(r#"echo '{"started":"a"}'; echo '{"done":""}'"#).on(&test_host);
    assert!(end(runner.run(prompt())).await.ok);
    let other = shell(r#"echo '{"started":"b"}'; sleep 1000"#).on(&test_host);
    let mut unfinished = other.run(prompt());
    until_started(&mut unfinished).await;
    // SAFETY: the child uses nothing that another thread of this process can have locked but the
    // allocator, which is made for it.
    match unsafe { nix::unistd::fork() }.unwrap() {
        nix::unistd::ForkResult::Child => {
            let now = |future: &mut (dyn Future<Output = ()> + Unpin)| future.now_or_never();
            let ended = runner.run(prompt()).collect::<Vec<_>>().now_or_never();
            let settled = now(&mut Box::pin(test_host.host.settle()));
            let shut_down = now(&mut Box::pin(other.shutdown()));
            let launched = test_host.host.start(Launch::new("true")).now_or_never();
            let ended = match ended.as_deref() {
                Some([TakopiEvent::Completed(end)]) => end.error.clone().unwrap_or_default(),
                other => format!("{other:?}"),
            };
            let rest = unfinished.collect::<Vec<_>>().now_or_never();
            let began_before = matches!(rest.as_deref(), Some([TakopiEvent::Completed(_)]));
            let over = settled.is_some() && shut_down.is_some() && began_before;
            report(&format!("{ended} {over} {}", matches!(launched, Some(Err(_)))));
            // SAFETY: ends this process at once; what it has is the parent's.
            unsafe { libc::_exit(0) };
        }
        nix::unistd::ForkResult::Parent { child } => {
            tokio::task::spawn_blocking(move || nix::sys::wait::waitpid(child, None))
                .await
                .unwrap()
                .unwrap();
        }
    }
    drop(unfinished);
    test_host.host.settle().await;
    report("the parent goes on");
}

#[test]
fn in_a_forked_process_a_run_ends_at_once_with_an_error() {
    let state = tempfile::TempDir::new().unwrap();
    let actor = ChildProcess::new("forker", state.path());
    let line = actor.next_line();
    assert!(line.contains("forked") && line.ends_with("true true"), "{line}");
    actor.expect("the parent goes on");
}

/// Opens files until there is no descriptor left.
fn hoard() -> Vec<File> {
    std::iter::from_fn(|| File::open("/dev/null").ok()).collect()
}

async fn run_without_descriptors() {
    let test_host = TestHost::on_own_thread();
    let script = r#"echo '{"started":"a"}'; echo '{"done":"enough"}'"#;
    let runner = shell(script).on(&test_host);
    let tell = |end: Completed| {
        report(&format!("{:?} {}", end.reason, end.error.unwrap_or_default()));
    };
    assert!(end(runner.run(prompt())).await.ok);
    // The descriptors of the engine that has ended come back with it, not with its answer.
    runner.shutdown().await;
    let mut files = hoard();
    tell(end(runner.run(RunRequest::new("go").resume(token("a")))).await);
    // Enough for the lock and the record, not for the pipes.
    files.truncate(files.len() - 4);
    tell(end(runner.run(RunRequest::new("go").resume(token("a")))).await);
    drop(files);
    assert!(end(runner.run(prompt())).await.ok, "and it goes on when there are some again");
    runner.shutdown().await;
    assert!(test_host.is_unlocked() && test_host.processes().is_empty());
    report("fine");
}

#[test]
fn running_out_of_descriptors_is_spawn_failed_with_the_limit_named() {
    let state = tempfile::TempDir::new().unwrap();
    let actor =
        ChildProcess::with("poor", state.path(), |command| limit_descriptors(command, 64, 64));
    for _ in 0..2 {
        let line = actor.next_line();
        assert!(line.contains("SpawnFailed") && line.contains("limit is 64"), "{line}");
    }
    actor.expect("fine");
}

async fn sweep_without_descriptors() {
    let test_host = TestHost::on_own_thread();
    let script = r#"
        (setsid sleep 1000 > /dev/null 2>&1 & echo $! > $DIR/left)
        echo $$ > $DIR/pid
        echo '{"started":"a"}'
        exec sleep 1000
    "#;
    let runner = shell(script).on(&test_host);
    let request = prompt();
    let cancel = request.cancel.clone();
    let mut events = runner.run(request);
    until_started(&mut events).await;
    let left = number_in(&test_host.file("left")).await;
    let engine = Pid::from_raw(number_in(&test_host.file("pid")).await);
    let mut files = hoard();
    cancel.cancel();
    let freed = async {
        // What the engine gives back is hoarded, too.
        eventually("the engine is reaped", || {
            files.extend(hoard());
            kill(engine, None).is_err()
        })
        .await;
        for _ in 0..20 {
            files.extend(hoard());
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        drop(files);
    };
    let (end, ()) = tokio::join!(end(events), freed);
    assert_eq!(end.reason, Some(Reason::Interrupted));
    assert!(!is_alive(left));
    report("swept");
}

#[test]
fn a_sweep_that_cannot_see_for_want_of_descriptors_looks_again() {
    let state = tempfile::TempDir::new().unwrap();
    let actor = ChildProcess::with("poor sweeper", state.path(), |command| {
        limit_descriptors(command, 64, 64);
    });
    actor.expect("swept");
}

async fn raise() {
    let test_host = TestHost::on_own_thread();
    assert_eq!(descriptor_limit(), Some(100));
    assert_eq!(raise_descriptor_limit().unwrap(), 200);
    assert_eq!(descriptor_limit(), Some(200));
    let script = r#"echo '{"started":"a"}'; echo "{\"done\":\"$(ulimit -Sn) $(ulimit -Hn)\"}""#;
    report(&end(shell(script).on(&test_host).run(prompt())).await.answer);
}

#[test]
fn a_raised_limit_on_descriptors_is_put_back_for_engines() {
    let state = tempfile::TempDir::new().unwrap();
    let actor = ChildProcess::with("raiser", state.path(), |command: &mut Command| {
        limit_descriptors(command, 100, 200);
    });
    actor.expect("100 200");
}

#[test]
fn a_spawn_error_prints_its_cause_once() {
    let error = std::io::Error::other("no room");
    let error = takopi_core::process::SpawnError::System { program: "agent".into(), error };
    assert_eq!(error.to_string(), "cannot start agent: no room");
    assert!(std::error::Error::source(&error).is_none(), "a chain would print it again");
}
