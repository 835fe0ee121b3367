//! Several takopi processes on one machine: one session, one writer, and what a killed one leaves.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use crate::common::apart::{ChildProcess, receive_line, report};
use crate::common::engines::{codec, shell};
use crate::common::processes::{bearers, is_alive, number_in, open_files, until_gone};
use crate::common::{LAB, TestHost, end, eventually, key, names_in};
use futures::{FutureExt, StreamExt};
use takopi_core::locks::{FileLocks, Holder, LocalLocks, NoLeases, SessionLocks};
use takopi_core::model::TakopiEvent;
use takopi_core::process::{end_strays, strays};
use takopi_core::{Host, RunRequest, Runner};
use tempfile::TempDir;

/// Plays a part in a process of its own.
pub(crate) async fn play(part: &str) {
    let state = PathBuf::from(std::env::var("TAKOPI_STATE_DIR").unwrap());
    match part {
        "locker" => locker(&state).await,
        "runner" => runner(true).await,
        "leaver" => runner(false).await,
        "ender" => report(&format!("ended {}", end_strays(&state).len())),
        other => panic!("no such part: {other}"),
    }
}

/// Takes and releases locks on request: `lock N`, `release N`, `crowd N`.
async fn locker(state: &Path) {
    let locks = FileLocks::new(LocalLocks::new(), state.join("locks"));
    let take = |locks: &FileLocks| locks.lock(key("a"), Holder::here(LAB), Arc::new(NoLeases));
    let (told, mut lines) = tokio::sync::mpsc::channel(16);
    std::thread::spawn(move || {
        while let Some(line) = receive_line() {
            told.blocking_send(line).unwrap();
        }
    });
    let mut held = HashMap::new();
    let mut waiting = futures::stream::FuturesUnordered::new();
    loop {
        let line = tokio::select! {
            line = lines.recv() => line,
            Some((name, guard)) = waiting.next() => {
                report(&format!("has {name}"));
                held.insert(name, guard);
                continue;
            }
        };
        let Some(line) = line else { return };
        let (deed, name) = line.split_once(' ').unwrap();
        match deed {
            "lock" => {
                let (mut lock, name) = (take(&locks), name.to_owned());
                if let Some(guard) = (&mut lock).now_or_never() {
                    report(&format!("has {name}"));
                    held.insert(name, guard.unwrap());
                } else {
                    // In line from its first look on.
                    report(&format!("waits {name}"));
                    waiting.push(async move { (name, lock.await.unwrap()) });
                }
            }
            "release" => drop(held.remove(name).unwrap()),
            "crowd" => {
                let crowd: Vec<_> = (0..name.parse().unwrap())
                    .map(|_| {
                        let lock = take(&locks);
                        tokio::spawn(async move { drop(lock.await.unwrap()) })
                    })
                    .collect();
                tokio::task::yield_now().await;
                report("crowded");
                tokio::spawn(async move {
                    futures::future::join_all(crowd).await;
                    report("crowd served");
                });
            }
            other => panic!("cannot {other}"),
        }
    }
}

/// Runs `$SCRIPT` on the session `$SESSION` and reports its events; `cancel` cancels it. Stays until
/// its input ends if it is to stay, else leaves everything as it is when the session has started.
async fn runner(stay: bool) {
    // As every program does: a host of its own with the state directory of the environment.
    let host = Host::global().unwrap();
    let script = std::env::var("SCRIPT").unwrap();
    let runner =
        takopi_core::jsonl::Jsonl::runner(shell(script).bash().env("DIR", host.state_directory()));
    let session = std::env::var("SESSION").ok().map(|id| codec().token(&id).unwrap());
    let request = RunRequest::new("go").resume(session);
    let cancel = request.cancel.clone();
    let mut events = runner.run(request);
    if stay {
        std::thread::spawn(move || {
            while let Some(line) = receive_line() {
                assert_eq!(line, "cancel");
                cancel.cancel();
            }
        });
    }
    while let Some(event) = events.next().await {
        report(&serde_json::to_string(&event).unwrap());
        if !stay && matches!(event, TakopiEvent::Started(_)) {
            return;
        }
    }
    runner.shutdown().await;
    report("shut down");
}

/// An actor that runs the script on the session.
fn runs(state: &Path, session: Option<&str>, script: &str) -> ChildProcess {
    ChildProcess::with("runner", state, |command| {
        command.env("SCRIPT", script);
        if let Some(session) = session {
            command.env("SESSION", session);
        }
    })
}

/// Kills what actors of this state directory left, whatever becomes of the test.
struct Broom(TempDir);

impl Broom {
    fn new() -> Self {
        Self(TempDir::new().unwrap())
    }

    fn path(&self) -> &Path {
        self.0.path()
    }

    fn processes(&self) -> Vec<i32> {
        bearers(&format!("LAB_TEST_HOST={}", self.path().display()))
    }
}

impl Drop for Broom {
    fn drop(&mut self) {
        for pid in self.processes() {
            crate::common::processes::signal(pid, nix::sys::signal::Signal::SIGKILL);
        }
    }
}

fn block_on<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(future)
}

#[test]
fn two_processes_on_one_token_run_one_after_the_other_and_the_second_names_the_holder() {
    let state = Broom::new();
    let script = r#"
        mkdir $DIR/room || exit 9
        echo '{"started":"a"}'
        until [ -e $DIR/gate ]; do sleep 0.01; done
        rmdir $DIR/room
        echo '{"done":"alone"}'
    "#;
    let mut first = runs(state.path(), Some("a"), script);
    first.until(r#""type":"started""#);
    let mut second = runs(state.path(), Some("A"), script);
    let word = second.next_line();
    assert!(word.contains(&format!("process {} for", first.pid())), "{word}");
    std::fs::write(state.path().join("gate"), "").unwrap();
    for actor in [&mut first, &mut second] {
        let end = actor.until(r#""type":"completed""#);
        assert!(end.contains("alone"), "{end}");
        actor.expect("shut down");
        actor.finish();
    }
    assert!(names_in(&state.path().join("locks")).is_empty());
}

#[test]
fn killing_the_holder_frees_the_session() {
    let state = Broom::new();
    let mut holder = ChildProcess::new("locker", state.path());
    holder.send_line("lock 1");
    holder.expect("has 1");
    let mut waiter = ChildProcess::new("locker", state.path());
    waiter.send_line("lock 2");
    waiter.expect("waits 2");
    holder.kill();
    waiter.expect("has 2");
}

#[test]
fn killing_a_waiter_leaves_no_hole_in_the_line() {
    let state = Broom::new();
    let mut actors: Vec<_> = (0..3).map(|_| ChildProcess::new("locker", state.path())).collect();
    actors[0].send_line("lock 0");
    actors[0].expect("has 0");
    for (number, actor) in actors.iter_mut().enumerate().skip(1) {
        actor.send_line(&format!("lock {number}"));
        actor.expect(&format!("waits {number}"));
    }
    actors[1].kill();
    actors[0].send_line("release 0");
    actors[2].expect("has 2");
}

#[test]
fn across_processes_the_order_is_that_of_arrival() {
    let state = Broom::new();
    let mut actors: Vec<_> = (0..4).map(|_| ChildProcess::new("locker", state.path())).collect();
    actors[0].send_line("lock 0");
    actors[0].expect("has 0");
    for (number, actor) in actors.iter_mut().enumerate().skip(1) {
        actor.send_line(&format!("lock {number}"));
        actor.expect(&format!("waits {number}"));
    }
    // The process that had it comes again, and queues behind all of them.
    actors[0].send_line("lock 4");
    actors[0].expect("waits 4");
    for number in 0..4 {
        actors[number].send_line(&format!("release {number}"));
        let next = number + 1;
        actors[next % 4].expect(&format!("has {next}"));
    }
}

#[test]
fn a_process_with_many_waiters_of_its_own_gives_way_to_another() {
    let state = Broom::new();
    let mut crowded = ChildProcess::new("locker", state.path());
    crowded.send_line("lock 1");
    crowded.expect("has 1");
    crowded.send_line("crowd 50");
    crowded.expect("crowded");
    let mut other = ChildProcess::new("locker", state.path());
    other.send_line("lock 2");
    other.expect("waits 2");
    crowded.send_line("release 1");
    other.expect("has 2");
    other.send_line("release 2");
    crowded.expect("crowd served");
}

#[test]
fn an_engine_inherits_neither_the_lock_nor_the_record() {
    let state = Broom::new();
    let script = r#"echo $$ > $DIR/pid; echo '{"started":"a"}'; sleep 1000"#;
    let actor = runs(state.path(), Some("a"), script);
    actor.until("started");
    let engine = block_on(number_in(&state.path().join("pid")));
    let of_takopi = |pid| {
        let mut files = open_files(pid);
        files.retain(|file| Path::new(file).starts_with(state.path()));
        files.len()
    };
    // What the start of the run had open for a moment is closed beside it.
    let only_these = || of_takopi(actor.pid()) == 2;
    block_on(eventually("only the lock and the record are open", only_these));
    assert_eq!(of_takopi(engine), 0);
}

#[test]
fn when_takopi_is_killed_its_engine_gets_sigint_and_is_gone() {
    let state = Broom::new();
    let script = r#"
        trap 'echo INT > $DIR/heard; exit 0' INT
        echo $$ > $DIR/pid
        echo '{"started":"a"}'
        while :; do sleep 0.05; done
    "#;
    let mut actor = runs(state.path(), Some("a"), script);
    actor.until("started");
    let engine = block_on(number_in(&state.path().join("pid")));
    assert!(is_alive(engine));
    actor.kill();
    block_on(until_gone(engine));
    assert_eq!(std::fs::read_to_string(state.path().join("heard")).unwrap(), "INT\n");
}

#[test]
fn a_program_that_drops_everything_and_returns_leaves_no_more_than_one_that_was_killed() {
    let state = Broom::new();
    let script = r#"echo $$ > $DIR/pid; echo '{"started":"a"}'; exec sleep 1000"#;
    let mut actor = ChildProcess::with("leaver", state.path(), |command| {
        command.env("SCRIPT", script);
    });
    actor.until("started");
    actor.finish();
    block_on(until_gone(block_on(number_in(&state.path().join("pid")))));
}

/// An engine that ignores the death signal, and something that left its tree.
const STUBBORN: &str = r#"
    : Authorization: Bearer sk-SECRET-123
    trap '' INT
    (setsid sleep 1000 > /dev/null 2>&1 & echo $! > $DIR/left)
    echo $$ > $DIR/pid
    echo '{"started":"a"}'
    while :; do sleep 0.05; done
"#;

/// What a takopi that was killed left behind: the engine, and what left its tree.
fn killed_with_strays(state: &Path) -> [i32; 2] {
    let mut actor = runs(state, None, STUBBORN);
    actor.until("started");
    actor.kill();
    let pids = ["pid", "left"].map(|name| block_on(number_in(&state.join(name))));
    assert!(pids.iter().all(|pid| is_alive(*pid)));
    pids
}

#[test]
fn what_a_killed_takopi_left_is_found_by_its_run_record_and_ended() {
    let state = Broom::new();
    let pids = killed_with_strays(state.path());
    let seen = strays(state.path());
    for pid in pids {
        let stray = seen.iter().find(|stray| stray.pid == pid).expect("a stray");
        assert!(stray.command.contains("sleep"), "{stray:?}");
        assert!(!stray.command.contains("SECRET"), "{stray:?}");
    }
    assert!(pids.iter().all(|pid| is_alive(*pid)), "looking ends nobody");
    let ended = end_strays(state.path());
    for pid in pids {
        assert!(ended.iter().any(|stray| stray.pid == pid), "{ended:?}");
        assert!(!is_alive(pid));
    }
    assert!(strays(state.path()).is_empty());
    assert!(names_in(&state.path().join("runs")).is_empty());
}

#[test]
fn a_daemon_with_a_cleared_environment_that_a_killed_takopi_left_is_found_and_ended() {
    let state = Broom::new();
    let script = r#"
        (setsid env -i sleep 1000 > /dev/null 2>&1 & echo $! > $DIR/left)
        echo '{"started":"a"}'
        exec sleep 1000
    "#;
    let mut actor = runs(state.path(), None, script);
    actor.until("started");
    actor.kill();
    let left = block_on(number_in(&state.path().join("left")));
    assert!(is_alive(left));
    let ended = end_strays(state.path());
    let gone = !is_alive(left);
    crate::common::processes::signal(left, nix::sys::signal::Signal::SIGKILL);
    assert!(gone && ended.iter().any(|stray| stray.pid == left), "{ended:?}");
}

#[test]
fn what_a_killed_takopi_left_is_ended_by_the_next_start() {
    let state = Broom::new();
    let pids = killed_with_strays(state.path());
    let mut next = runs(state.path(), None, r#"echo '{"started":"b"}'; echo '{"done":""}'"#);
    next.until("shut down");
    next.finish();
    assert!(!pids.iter().any(|pid| is_alive(*pid)));
    assert!(names_in(&state.path().join("runs")).is_empty());
}

#[test]
fn a_takopi_that_lives_in_what_a_killed_one_left_does_not_end_its_own_home() {
    let state = Broom::new();
    // A shell that an agent opened and a person took over, and something else of that agent.
    std::fs::create_dir(state.path().join("runs")).unwrap();
    // Another process of these tests may do the same.
    let dead = format!("dead{}", std::process::id());
    std::fs::write(state.path().join(format!("runs/{dead}.run")), "+1\n").unwrap();
    let script = r#"
        sleep 1000 > /dev/null 2>&1 & echo $! > $TAKOPI_STATE_DIR/other
        "$0" --exact actor --ignored --nocapture
        echo "still here"
    "#;
    let output = Command::new("/bin/sh")
        .args(["-c", script])
        .arg(std::env::current_exe().unwrap())
        .env("TAKOPI_RUN", format!("{dead}.1"))
        .env("ACTOR", "ender")
        .env("TAKOPI_STATE_DIR", state.path())
        .env("LAB_TEST_HOST", state.path())
        .output()
        .unwrap();
    let said = String::from_utf8(output.stdout).unwrap();
    assert!(said.contains("ended 1") && said.contains("still here"), "{said}");
    assert!(!is_alive(block_on(number_in(&state.path().join("other")))));
}

#[test]
fn a_live_takopi_has_no_strays() {
    let state = Broom::new();
    let mut actor = runs(state.path(), Some("a"), STUBBORN);
    actor.until("started");
    assert!(strays(state.path()).is_empty());
    assert!(end_strays(state.path()).is_empty());
    let engine = block_on(number_in(&state.path().join("pid")));
    assert!(is_alive(engine));
    actor.send_line("cancel");
    actor.until("interrupted");
    assert!(!is_alive(engine));
}

#[test]
fn what_detached_itself_in_a_run_that_completed_stays() {
    let state = Broom::new();
    let script = r#"
        setsid sleep 1000 > /dev/null 2>&1 & echo $! > $DIR/server
        echo '{"started":"a"}'
        echo '{"done":"the server runs"}'
    "#;
    let mut first = runs(state.path(), None, script);
    first.until("shut down");
    first.finish();
    let server = block_on(number_in(&state.path().join("server")));
    // Killed later, in another run: what the first detached is no stray of it.
    killed_with_strays(state.path());
    let ended = end_strays(state.path());
    assert!(!ended.iter().any(|stray| stray.pid == server), "{ended:?}");
    assert!(is_alive(server));
}

#[test]
fn the_session_of_a_killed_takopi_is_free_for_the_next() {
    let state = Broom::new();
    let mut first = runs(state.path(), Some("a"), r#"echo '{"started":"a"}'; exec sleep 1000"#);
    first.until("started");
    first.kill();
    let next = runs(state.path(), Some("a"), r#"echo '{"started":"a"}'; echo '{"done":"mine"}'"#);
    next.until("mine");
    next.expect("shut down");
    assert!(names_in(&state.path().join("locks")).is_empty());
}

#[test]
fn two_takopis_that_start_at_the_same_moment_keep_their_records() {
    let state = Broom::new();
    let script = r#"
        echo "{\"started\":\"s$$\"}"
        until [ -e $DIR/gate ]; do sleep 0.01; done
        echo '{"done":""}'
    "#;
    let mut actors: Vec<_> = (0..8).map(|_| runs(state.path(), None, script)).collect();
    for actor in &actors {
        actor.until("started");
    }
    assert_eq!(names_in(&state.path().join("runs")).len(), 8);
    std::fs::write(state.path().join("gate"), "").unwrap();
    for actor in &mut actors {
        actor.until("shut down");
        actor.finish();
    }
    assert!(names_in(&state.path().join("runs")).is_empty());
}

#[tokio::test]
async fn a_holder_in_another_process_is_named() {
    let test_host = TestHost::on_own_thread();
    let mut holder = ChildProcess::new("locker", test_host.directory.path());
    holder.send_line("lock 1");
    holder.expect("has 1");
    // What waiters see, and a run that does not wait.
    let seen = test_host.host.session_locks().holder(&key("a")).await.unwrap();
    assert_eq!(i32::try_from(seen.pid), Ok(holder.pid()));
    let runner = shell(r#"echo '{"started":"a"}'; echo '{"done":""}'"#).on(&test_host);
    let request = RunRequest::new("go").resume(crate::common::token("a")).wait(Duration::ZERO);
    let end = end(runner.run(request)).await;
    assert!(end.error.unwrap().contains(&format!("process {}", holder.pid())));
}
