//! Work beside the turn, and turns that come to nothing, on the real Claude Code.

use std::path::Path;
use std::sync::{Arc, Mutex};

use futures::future::join;
use serde_json::json;
use takopi_core::approvals::from_fn;
use takopi_core::{ActionKind, ApprovalRequest, Decision, Runner};
use takopi_tests::claude::home::TestHome;
use takopi_tests::claude::real;
use takopi_tests::limits::with_enough_time;
use takopi_tests::model::Gate;
use takopi_tests::model::messages::{Answer, MessagesServer};
use takopi_tests::runs::run;

use super::{LONG, engine, runner};

/// A command that goes on until it is ended. (The Bash tool refuses to sleep.)
fn lasting(number: u32) -> String {
    format!("tail -n {number} -f /dev/null")
}

/// Opens a pipe that a command reads, and so lets the command end.
async fn release(pipe: &Path) {
    let pipe = pipe.to_owned();
    tokio::task::spawn_blocking(move || std::fs::write(pipe, "")).await.unwrap().unwrap();
}

#[tokio::test]
async fn a_stalled_stream_is_ended_by_the_idle_limit() {
    let Some(claude) = real::claude_or_skip() else { return };
    let model = MessagesServer::start();
    let gate = Gate::new();
    model.when("[[first]]", "First.");
    model.when("[[stall]]", Answer::text("Whole.").delta("never ").wait_for(&gate));
    model.when("[[again]]", "Going on.");
    let home = TestHome::new(&model);
    let runner = runner(engine(&claude).keep_warm(LONG), &home);
    let first = run(&runner, home.request("[[first]]")).await;
    let resume = |prompt| home.request(prompt).resume(first.session());
    with_enough_time(async |limit| {
        let seen = run(&runner, resume("[[stall]]").idle_timeout(limit)).await;
        seen.failed("timeout_idle");
        gate.arrivals() > 0
    })
    .await;
    assert_eq!(home.processes(), [], "a process that stalls is not kept");
    assert_eq!(run(&runner, resume("[[again]]")).await.ok().answer, "Going on.");
    runner.shutdown().await;
}

#[tokio::test]
async fn what_a_sub_agent_asks_is_marked() {
    let Some(claude) = real::claude_or_skip() else { return };
    let model = MessagesServer::start();
    model.when("[[main]]", [Answer::new().agent("dig [[sub]]", false), Answer::text("Gold.")]);
    model.when("[[sub]]", [Answer::new().bash("touch touched"), Answer::text("gold")]);
    let home = TestHome::new(&model);
    let asked: Arc<Mutex<Vec<ApprovalRequest>>> = Arc::default();
    let record = asked.clone();
    let handler = from_fn(move |request: ApprovalRequest| {
        record.lock().unwrap().push(request);
        async { Decision::Accept }
    });
    let runner = runner(engine(&claude), &home);
    let request = home.request("[[main]]").approvals(Arc::new(handler));
    let seen = run(&runner, request).await;
    assert_eq!(seen.ok().answer, "Gold.");
    assert!(home.workspace().join("touched").exists());
    let asked = asked.lock().unwrap().clone();
    assert_eq!(asked.len(), 1, "{asked:?}");
    assert!(asked[0].subagent.is_some(), "{asked:?}");
    let command = seen.done(&ActionKind::Command)[0];
    assert!(command.action.detail.contains_key("subagent"), "{command:?}");
    runner.shutdown().await;
}

#[tokio::test]
async fn a_turn_that_nobody_asked_for_is_not_the_answer_of_the_next_run() {
    let Some(claude) = real::claude_or_skip() else { return };
    for held in [false, true] {
        let model = MessagesServer::start();
        let gate = Gate::new();
        let home = TestHome::new(&model);
        let pipe = home.workspace().join("pipe");
        let command = format!("mkfifo {0} && cat {0}", pipe.display());
        let unasked = Answer::new().wait_for(&gate).block("It has ended.");
        let script = [Answer::new().bash_in_background(&command), "Serving.".into(), unasked];
        model.when("[[serve]]", script);
        model.when("[[next]]", "Next.");
        let runner = runner(engine(&claude).keep_warm(LONG), &home);
        let request = |prompt| home.request(prompt).permission_mode("bypassPermissions");
        let seen = run(&runner, request("[[serve]]")).await;
        assert_eq!(seen.ok().answer, "Serving.");
        home.wait_for_command(&format!("cat {}", pipe.display())).await;
        release(&pipe).await;
        gate.reached().await;
        if !held {
            gate.open();
            model.wait_until_idle().await;
        }
        let next = run(&runner, request("[[next]]").resume(seen.session()));
        // With or without the unasked turn still under way.
        let (next, ()) = join(next, async { gate.open() }).await;
        assert_eq!(next.ok().answer, "Next.", "{held}: {:#?}", next.outline());
        runner.shutdown().await;
        home.assert_no_processes().await;
    }
}

#[tokio::test]
async fn a_command_that_reaches_its_limit_goes_to_the_background_or_is_ended() {
    let Some(claude) = real::claude_or_skip() else { return };
    let model = MessagesServer::start();
    model.otherwise([Answer::new().bash(&lasting(631)), Answer::text("Moved on.")]);
    let home = TestHome::new(&model).set("BASH_DEFAULT_TIMEOUT_MS", "1000");
    let runner = runner(engine(&claude).keep_warm(LONG), &home);
    let request = || home.request("go").permission_mode("bypassPermissions");
    let seen = run(&runner, request()).await;
    assert_eq!(seen.ok().answer, "Moved on.");
    home.wait_for_command(&lasting(631)).await;
    runner.shutdown().await;
    home.assert_no_processes().await;

    let seen = run(&runner, request().option("background", "false")).await;
    assert_eq!(seen.ok().answer, "Moved on.");
    assert_eq!(seen.done(&ActionKind::Command)[0].ok, Some(false));
    runner.shutdown().await;
    home.assert_no_processes().await;
}

#[tokio::test]
async fn without_background_work_the_agent_cannot_wake_itself() {
    let Some(claude) = real::claude_or_skip() else { return };
    let model = MessagesServer::start();
    let wake = json!({ "delaySeconds": 60, "reason": "later", "prompt": "go on" });
    let cron = json!({ "cron": "* * * * *", "prompt": "go on", "recurring": true });
    model.otherwise([
        Answer::call("ScheduleWakeup", wake),
        Answer::call("CronCreate", cron),
        Answer::text("Neither."),
    ]);
    let home = TestHome::new(&model);
    let runner = runner(engine(&claude), &home);
    let request = home.request("go").permission_mode("bypassPermissions");
    let seen = run(&runner, request.option("background", "false")).await;
    assert_eq!(seen.ok().answer, "Neither.");
    let history = model.requests().pop().unwrap().history();
    assert_eq!(
        history.iter().filter(|line| line.starts_with("error: ")).count(),
        2,
        "{history:#?}"
    );
    runner.shutdown().await;
    home.assert_no_processes().await;
}
