//! A Claude Code that dies, falls silent or does not let go.

use std::time::Duration;

use serde_json::json;
use takopi_core::{ActionKind, Runner};
use takopi_tests::claude::fake::{Grandchild, Place, Process, Script, Signal, Step, turn};
use takopi_tests::claude::lab::{Lab, session};
use takopi_tests::limits::with_enough_time;
use takopi_tests::runs::{finish, is_started, run, until};
use tokio_util::sync::CancellationToken;

use super::LONG;

/// First this process, then healthy ones.
fn then_healthy(process: Process) -> Lab {
    Lab::new(Script::nth([process, Process::new()]))
}

/// Processes that end themselves with `end` at each step of a run.
fn ends_at_every_step(end: &[Step]) -> Vec<(&'static str, Process)> {
    let behind = |steps: Vec<Step>| steps.into_iter().chain(end.to_vec());
    let within_turn = |steps: Vec<Step>| Process::new().turns(behind(steps));
    let question = vec![
        turn::bash("t", "ls"),
        turn::requires_action(),
        turn::ask_bash("q", "t", "ls").without_waiting(),
    ];
    vec![
        ("before anything", Process::new().first(end.to_vec())),
        ("at the message", Process::new().always("user", end.to_vec())),
        ("before init", Process::new().always("user", behind(vec![turn::running()]))),
        ("behind init", within_turn(vec![])),
        ("in a message", within_turn(vec![turn::delta("hal")])),
        ("in a tool", within_turn(vec![turn::bash("t", "ls")])),
        ("in a question", within_turn(question)),
        ("behind a message", within_turn(vec![turn::text("so far")])),
        ("behind the result", within_turn(vec![turn::text("so far"), turn::result("so far")])),
    ]
}

#[tokio::test]
async fn a_process_that_dies_at_any_step_is_process_died_and_the_next_run_resumes_on_a_fresh_one() {
    for end in [Step::Die(Signal::Kill), Step::Exit(0)] {
        for (step, process) in ends_at_every_step(std::slice::from_ref(&end)) {
            let lab = then_healthy(process);
            let runner = lab.runner(LONG);
            let seen = run(&runner, lab.request("hi").resume(session())).await;
            assert_eq!(seen.failed("process_died").resume, Some(session()), "{step}");
            assert_eq!(lab.control.starts().len(), 1, "{step}: a cold one is not replaced");
            assert_eq!(lab.home.processes(), [], "{step}: whoever sees the end knows");
            let next = run(&runner, lab.request("next").resume(session())).await;
            assert_eq!(next.ok().resume, Some(session()), "{step}");
            assert_eq!(lab.control.starts().len(), 2, "{step}");
            let args = lab.control.args(1).join(" ");
            assert!(args.contains("--resume") && args.contains(&session().value), "{step}: {args}");
            runner.shutdown().await;
            lab.assert_nothing_left().await;
        }
    }
}

#[tokio::test]
async fn stderr_of_a_dead_process_is_in_a_warning_without_credentials_and_not_in_the_error() {
    let said = "Error: the disk is full, Authorization: Bearer sk-ant-SECRET-123";
    let steps = [turn::text("so far"), Step::stderr(said), Step::Exit(1)];
    let lab = Lab::new(Process::new().turns(steps));
    let seen = run(&lab.runner(Duration::ZERO), lab.request("hi")).await;
    assert_eq!(seen.failed("process_died").answer, "so far");
    let error = seen.completed().error.as_deref().unwrap();
    assert!(!error.contains("disk is full"), "{error}");
    let tail = &seen.done(&ActionKind::Warning)[0].action.detail["stderr_tail"];
    assert_eq!(tail, "Error: the disk is full, Authorization: Bearer [redacted]\n");
    let all = serde_json::to_string(&seen.events).unwrap();
    assert!(!all.contains("SECRET"), "{all}");
    lab.assert_nothing_left().await;
}

#[tokio::test]
async fn a_login_on_stderr_counts_only_before_the_turn_and_if_it_is_claudes_own() {
    let plugin = Step::stderr("MCP server \"github\" failed to authenticate");
    let own = Step::stderr("Not logged in · Please run /login");
    let within_turn =
        |line: &Step| Process::new().turns([turn::text("so far"), line.clone(), Step::Exit(1)]);
    let before = |line: &Step| Process::new().first([line.clone(), Step::Exit(1)]);
    for (process, reason) in [
        (within_turn(&plugin), "process_died"),
        (within_turn(&own), "process_died"),
        (before(&plugin), "process_died"),
        (before(&own), "auth"),
    ] {
        let lab = Lab::new(process);
        let seen = run(&lab.runner(Duration::ZERO), lab.request("hi")).await;
        let error = seen.failed(reason).error.clone().unwrap();
        assert!(!error.contains("github") && !error.contains("/login"), "{error}");
        lab.assert_nothing_left().await;
    }
}

#[tokio::test]
async fn a_process_that_closes_its_output_but_lives_is_ended() {
    let steps = [turn::text("so far"), Step::CloseStdout, Step::SleepForever];
    let lab = then_healthy(Process::new().turns(steps));
    let runner = lab.runner(LONG);
    let seen = run(&runner, lab.request("hi").resume(session())).await;
    assert_eq!(seen.failed("process_died").answer, "so far");
    assert_eq!(lab.home.processes(), []);
    run(&runner, lab.request("next").resume(session()).wait(Duration::ZERO)).await.ok();
    runner.shutdown().await;
    lab.assert_nothing_left().await;
}

#[tokio::test]
async fn silence_at_any_step_is_ended_by_the_idle_limit_and_nothing_is_replayed() {
    // A question that waits and a tool that runs are not idle.
    let busy = |step: &str| ["in a question", "in a tool"].contains(&step);
    let silence = [Step::reached("silent"), Step::StopReading];
    let silent = ends_at_every_step(&silence).into_iter().filter(|(step, _)| !busy(step));
    // At once: each of them gets seconds to end by itself.
    futures::future::join_all(silent.map(|(step, process)| silence_ends(step, process))).await;
}

async fn silence_ends(step: &str, process: Process) {
    with_enough_time(async |limit| {
        let lab = then_healthy(process.clone());
        let runner = lab.runner(LONG);
        let request = lab.request("hi").resume(session()).idle_timeout(limit);
        let seen = run(&runner, request).await;
        let error = seen.failed("timeout_idle").error.clone().unwrap();
        assert!(error.contains(&format!("{limit:?}")), "{step}: {error}");
        assert_eq!(lab.home.processes(), [], "{step}: whoever sees the end knows");
        if lab.control.marks("silent").is_empty() {
            return false;
        }
        assert!(lab.control.calls("user").len() <= 1, "{step}: never replayed");
        let next = run(&runner, lab.request("next").resume(session())).await;
        assert!(next.completed().ok, "{step}: {next:#?}");
        assert_eq!(lab.control.starts().len(), 2, "{step}: the silent one is not used again");
        runner.shutdown().await;
        lab.assert_nothing_left().await;
        true
    })
    .await;
}

#[tokio::test]
async fn silence_after_a_tool_is_ended_too() {
    let steps = [
        turn::bash("t", "ls"),
        turn::tool_result("t", ""),
        Step::reached("silent"),
        Step::SleepForever,
    ];
    with_enough_time(async |limit| {
        let lab = then_healthy(Process::new().turns(steps.clone()));
        let runner = lab.runner(LONG);
        let seen = run(&runner, lab.request("hi").idle_timeout(limit)).await;
        seen.failed("timeout_idle");
        assert_eq!(lab.home.processes(), []);
        !lab.control.marks("silent").is_empty()
    })
    .await;
}

#[tokio::test]
async fn notices_and_news_of_other_runs_do_not_keep_a_hung_turn_alive() {
    let notices = (0..300).flat_map(|n| {
        let task = json!({ "task_id": "old", "tool_use_id": "of another run", "description": "x" });
        let other = r#"{"type":"command_lifecycle","command_uuid":"another","state":"started"}"#;
        let progress = r#"{"type":"tool_progress","parent_tool_use_id":"of another run"}"#;
        let background = json!({ "tasks": [{ "task_id": "old", "task_type": "local_bash" }] });
        let unknown = format!("unknown {n}");
        [
            turn::system("informational", &json!({ "content": "still here" })),
            turn::rate_limit("allowed", 1),
            Step::line("not JSON"),
            turn::system("task_started", &task),
            turn::system("task_progress", &task),
            turn::system("task_updated", &task),
            turn::system("task_notification", &task),
            turn::system("background_tasks_changed", &background),
            turn::system("status", &json!({ "status": unknown })),
            turn::system("session_state_changed", &json!({ "state": unknown })),
            Step::line(other),
            Step::line(progress),
            Step::Pause { millis: 100 },
        ]
    });
    let steps = turn::opened(notices).into_iter().chain(turn::over("too late"));
    let lab = then_healthy(Process::new().turns(steps));
    let runner = lab.runner(LONG);
    let request = lab.request("hi").idle_timeout(Duration::from_millis(900));
    run(&runner, request).await.failed("timeout_idle");
    runner.shutdown().await;
    lab.assert_nothing_left().await;
}

/// Cancels a run that is in the middle of its turn, and what ran beside it.
async fn cancelled(process: Process) {
    let signals = [Signal::Int, Signal::Term, Signal::Hup];
    let steps = [
        turn::text("so far"),
        Grandchild::new("command").at(Place::OwnSession).ignoring(signals).spawn(),
        Grandchild::new("detached").at(Place::Detached).spawn(),
        Step::reached("ready"),
        Step::SleepForever,
    ];
    let lab = then_healthy(process.turns(steps));
    let runner = lab.runner(LONG);
    let cancel = CancellationToken::new();
    let stream = runner.run(lab.request("hi").cancel(cancel.clone()));
    lab.control.reached("ready").await;
    cancel.cancel();
    let seen = finish(stream, Vec::new()).await;
    assert_eq!(seen.failed("interrupted").answer, "so far");
    assert_eq!(lab.home.processes(), [], "whoever sees the end knows that nothing is left");
    assert_eq!(lab.control.calls("interrupt").len(), 1);
    let next = run(&runner, lab.request("next").resume(seen.session())).await;
    assert_eq!(next.ok().resume, Some(seen.session()));
    runner.shutdown().await;
    lab.assert_nothing_left().await;
}

#[tokio::test]
async fn cancel_interrupts_the_turn_and_ends_what_ran_beside_it() {
    cancelled(Process::new()).await;
}

#[tokio::test]
async fn a_process_that_answers_no_interrupt_no_end_and_no_signal_is_killed() {
    let deaf = |call: &str| Process::new().always(call, []);
    tokio::join!(
        cancelled(Process::new().stubborn()),
        cancelled(deaf("interrupt")),
        cancelled(deaf("end_session")),
        // As releases without it do.
        cancelled(Process::new().always("end_session", [Step::fail(0, "unsupported")])),
    );
}

#[tokio::test]
async fn cancel_and_drop_at_any_step_leave_no_process_and_a_free_session() {
    let stays = [Step::reached("ready"), Step::SleepForever];
    let steps = ends_at_every_step(&stays).into_iter().map(async |(step, process)| {
        for dropped in [false, true] {
            let lab = then_healthy(process.clone());
            let runner = lab.runner(LONG);
            let cancel = CancellationToken::new();
            let request = lab.request("hi").resume(session()).cancel(cancel.clone());
            let stream = runner.run(request);
            let first = lab.control.reached("ready").await;
            if dropped {
                drop(stream);
            } else {
                cancel.cancel();
                let seen = finish(stream, Vec::new()).await;
                assert_eq!(seen.failed("interrupted").resume, Some(session()), "{step}");
                assert_eq!(lab.home.processes(), [], "{step}: whoever sees the end knows");
            }
            let mut next = runner.run(lab.request("next").resume(session()));
            let seen = until(&mut next, "Started", is_started).await;
            assert!(!lab.control.alive().contains(&first.pid), "{step}: it was gone before");
            finish(next, seen).await.ok();
            assert_eq!(lab.control.overlaps(), Vec::<String>::new(), "{step}");
            runner.shutdown().await;
            lab.assert_nothing_left().await;
        }
    });
    futures::future::join_all(steps).await;
}

#[tokio::test]
async fn shutdown_ends_warm_processes_that_do_not_end_when_asked() {
    let lab = Lab::new(Process::new().stubborn());
    let runner = lab.runner(LONG);
    let (one, two) =
        tokio::join!(run(&runner, lab.request("one")), run(&runner, lab.request("two")));
    one.ok();
    two.ok();
    assert_eq!(lab.control.alive().len(), 2);
    runner.shutdown().await;
    lab.assert_nothing_left().await;
}

#[tokio::test]
async fn a_claude_that_is_too_old_or_missing_is_one_clear_end() {
    let lab = Lab::new(Process::new().script().version("2.0.44")).unknown();
    let seen = run(&lab.runner(LONG), lab.request("hi")).await;
    let error = seen.failed("engine_too_old").error.clone().unwrap();
    assert!(error.contains("2.0.44") && error.contains("2.0.45"), "{error}");
    assert_eq!(lab.control.starts().len(), 0);
    for binary in ["/nowhere/claude", "no-claude-of-this-name", "/dev/null"] {
        let runner = lab.claude().binary(binary).runner().on(lab.host.clone());
        let seen = run(&runner, lab.request("hi")).await;
        assert!(seen.failed("engine_missing").error.as_ref().unwrap().contains(binary));
    }
    let seen = run(&lab.runner(LONG), lab.request("hi").cwd("/nowhere/at/all")).await;
    assert!(seen.failed("invalid_request").error.as_ref().unwrap().contains("/nowhere/at/all"));
    assert_eq!(lab.control.starts().len(), 0);
    lab.assert_nothing_left().await;
}

#[tokio::test]
async fn a_claude_that_prints_no_version_is_run_all_the_same() {
    let script = Process::new().turns(turn::answer("Hello.")).script();
    let lab = Lab::new(script.on_version([Step::Exit(1)])).unknown();
    let runner = lab.runner(LONG);
    assert_eq!(run(&runner, lab.request("hi")).await.ok().answer, "Hello.");
    runner.shutdown().await;
    lab.assert_nothing_left().await;
}

#[tokio::test]
async fn a_cancel_does_not_wait_for_the_version() {
    let answers =
        [Step::reached("asked"), Step::gate("version"), Step::line("2.1.325 (Claude Code)")];
    let lab = Lab::new(Process::new().script().on_version(answers)).unknown();
    let runner = lab.runner(Duration::ZERO);
    let cancel = CancellationToken::new();
    let stream = runner.run(lab.request("hi").cancel(cancel.clone()));
    lab.control.reached("asked").await;
    cancel.cancel();
    finish(stream, Vec::new()).await.failed("interrupted");
    lab.control.open("version");
    run(&runner, lab.request("next")).await.ok();
    assert_eq!(lab.control.version_calls(), 2, "the first question was given up");
    assert_eq!(lab.control.starts().len(), 1);
    runner.shutdown().await;
    lab.assert_nothing_left().await;
}
