//! What came of an engine and went its own ways: found and ended after a stop, left alone after an
//! ordinary end.

use crate::common::apart::{ChildProcess, report};
use crate::common::engines::{shell, short_stop_sequence, then_wait};
use crate::common::processes::{is_alive, number_in, signal, until_gone, zombies_in_group};
use crate::common::{TestHost, end, until_started};
use nix::sys::signal::Signal;
use takopi_core::model::Reason;
use takopi_core::peer::Peer;
use takopi_core::process::{Launch, StdinPlan};
use takopi_core::{RunRequest, Runner};

fn prompt() -> RunRequest {
    RunRequest::new("go")
}

/// Runs the script, cancels the run, and returns the process that the script wrote in `$DIR/pid`.
async fn cancelled(test_host: &TestHost, script: &str) -> i32 {
    let launch = |launch: Launch| launch.stop_sequence(short_stop_sequence());
    let runner = shell(then_wait(script)).launch_with(launch).on(test_host);
    let request = prompt();
    let cancel = request.cancel.clone();
    let mut events = runner.run(request);
    until_started(&mut events).await;
    let pid = number_in(&test_host.file("pid")).await;
    assert!(is_alive(pid));
    cancel.cancel();
    assert_eq!(end(events).await.reason, Some(Reason::Interrupted));
    std::fs::remove_file(test_host.file("pid")).unwrap();
    pid
}

#[tokio::test]
async fn a_grandchild_in_its_own_session_is_gone_after_cancel() {
    let test_host = TestHost::on_own_thread();
    let pid =
        cancelled(&test_host, "setsid sleep 1000 > /dev/null 2>&1 & echo $! > $DIR/pid").await;
    assert!(!is_alive(pid), "gone when Completed is seen");
}

#[tokio::test]
async fn a_grandchild_that_ignores_signals_is_gone_after_cancel() {
    let test_host = TestHost::on_own_thread();
    let script = r#"
        setsid sh -c 'trap "" INT TERM; echo $$ > $DIR/pid; while :; do sleep 0.05; done' &
        until [ -s $DIR/pid ]; do sleep 0.01; done
    "#;
    assert!(!is_alive(cancelled(&test_host, script).await));
}

#[tokio::test]
async fn a_process_that_left_the_tree_but_bears_the_marker_is_gone_after_cancel() {
    let test_host = TestHost::on_own_thread();
    let script = "(setsid sleep 1000 > /dev/null 2>&1 & echo $! > $DIR/pid)";
    assert!(!is_alive(cancelled(&test_host, script).await));
}

/// Sleeps without the environment of the engine, and says so.
const CLEARED: &str =
    "env -i sh -c 'echo $$ > $0/pid; exec /bin/sleep 1000' $DIR > /dev/null 2>&1 &";
/// The same, also without the limit that marks what comes of an engine.
const UNMARKED: &str = "env -i prlimit --rttime=unlimited \
    sh -c 'echo $$ > $0/pid; exec /bin/sleep 1000' $DIR > /dev/null 2>&1 &";

#[tokio::test]
async fn a_process_in_the_tree_that_cleared_its_environment_is_gone_after_cancel() {
    let test_host = TestHost::on_own_thread();
    assert!(!is_alive(cancelled(&test_host, &format!("setsid {CLEARED}")).await));
}

#[tokio::test]
async fn a_process_in_the_tree_without_any_mark_is_gone_after_cancel() {
    let test_host = TestHost::on_own_thread();
    assert!(!is_alive(cancelled(&test_host, &format!("setsid {UNMARKED}")).await));
}

#[tokio::test]
async fn a_daemon_that_left_the_tree_its_session_and_its_environment_is_gone_after_cancel() {
    let test_host = TestHost::on_own_thread();
    assert!(!is_alive(cancelled(&test_host, &format!("(setsid {CLEARED})")).await));
}

#[tokio::test]
async fn a_process_of_the_group_that_left_the_tree_and_all_marks_is_gone_after_cancel() {
    let test_host = TestHost::on_own_thread();
    // In the background of a shell it ignores SIGINT, which is all the group will get.
    assert!(!is_alive(cancelled(&test_host, &format!("({UNMARKED})")).await));
}

#[tokio::test]
#[cfg(target_os = "linux")]
async fn everything_can_be_killed_at_once_without_grace() {
    let test_host = TestHost::on_own_thread();
    let stubborn = r#"setsid sh -c 'trap "" INT TERM; echo $$ > $DIR/pid; exec sleep 1000' &"#;
    let runner = shell(then_wait(&format!("trap '' INT TERM; {stubborn}"))).on(&test_host);
    let mut events = runner.run(prompt());
    until_started(&mut events).await;
    let pid = number_in(&test_host.file("pid")).await;
    test_host.host.kill_now();
    until_gone(pid).await;
    assert_eq!(end(events).await.reason, Some(Reason::ProcessDied));
}

#[tokio::test]
async fn a_grandchild_that_detached_itself_stays_after_an_ordinary_completion() {
    let test_host = TestHost::on_own_thread();
    let script = r#"
        setsid sleep 1000 > /dev/null 2>&1 & echo $! > $DIR/pid
        echo '{"started":"a"}'
        echo '{"done":"the server runs"}'
    "#;
    let runner = shell(script).on(&test_host);
    assert!(end(runner.run(prompt())).await.ok);
    runner.shutdown().await;
    assert!(test_host.is_unlocked());
    assert!(is_alive(number_in(&test_host.file("pid")).await));
}

#[tokio::test]
async fn what_a_killed_engine_leaves_is_ended() {
    let test_host = TestHost::on_own_thread();
    let script =
        then_wait("setsid sleep 1000 > /dev/null 2>&1 & echo $! > $DIR/pid\necho $$ > $DIR/engine");
    let runner = shell(script).on(&test_host);
    let mut events = runner.run(prompt());
    until_started(&mut events).await;
    let left = number_in(&test_host.file("pid")).await;
    signal(number_in(&test_host.file("engine")).await, Signal::SIGKILL);
    let end = end(events).await;
    assert_eq!(end.reason, Some(Reason::ProcessDied));
    assert!(end.error.unwrap().contains("rc=-9"));
    until_gone(left).await;
    runner.shutdown().await;
    assert!(test_host.processes().is_empty() && test_host.is_unlocked());
}

/// Plays a part in a process of its own: closes an adapter whose agent outlives it, and reaps no orphan.
pub(crate) async fn play() {
    #[cfg(target_os = "linux")]
    nix::sys::prctl::set_child_subreaper(true).unwrap();
    let test_host = TestHost::on_own_thread();
    let script = r"
        (until [ -e $DIR/go ]; do sleep 0.01; done; echo > $DIR/over) &
        echo $$ > $DIR/pid
        exec cat
    ";
    let launch = Launch::new("sh")
        .args(["-c", script])
        .env("DIR", test_host.directory.path())
        .stdin(StdinPlan::Open);
    let (peer, _output) = Peer::start(&test_host.host, launch).await.unwrap();
    let group = number_in(&test_host.file("pid")).await;
    let agent_exits = async {
        until_gone(group).await;
        std::fs::write(test_host.file("go"), "").unwrap();
    };
    // Longer than the test waits.
    let closed = peer.close_with_group(std::time::Duration::from_hours(1));
    tokio::join!(closed, agent_exits);
    assert!(test_host.file("over").exists(), "the agent had ended by itself");
    report(&format!("closed with {} dead", zombies_in_group(group).len()));
}

#[test]
#[cfg(target_os = "linux")]
fn a_group_is_gone_though_nothing_reaps_its_orphans() {
    let state = tempfile::TempDir::new().unwrap();
    let actor = ChildProcess::new("adapter", state.path());
    actor.expect("closed with 1 dead");
}
