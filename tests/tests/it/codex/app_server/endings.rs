//! The runner over `codex app-server`, with a server that dies, falls silent or does not let go.
use std::sync::Arc;
use std::time::Duration;

use takopi_codex::app_server::CodexAppServer;
use takopi_core::approvals::channel;
use takopi_core::{ActionKind, EngineRunner, Phase, Runner, TakopiEvent};
use takopi_tests::codex::fake::{Grandchild, Place, Script, Server, Signal, Step, turn};
use takopi_tests::codex::lab::{Lab, session};
use takopi_tests::limits::with_enough_time;
use takopi_tests::runs::{Seen, finish, is_started, run, until};
use tokio_util::sync::CancellationToken;

const LONG: Duration = Duration::from_mins(10);

/// First this server, then healthy ones.
fn then_healthy(server: Server) -> Lab {
    Lab::new(Script::nth([server.script(), Server::new().script()]))
}

/// A server whose call of `method` plays these steps.
fn at(method: &str, steps: impl IntoIterator<Item = Step>) -> Server {
    Server::new().always(method, steps)
}

/// Servers that end themselves with `end` at each step of the handshake and of a turn.
fn ends_at_every_step(end: &[Step]) -> Vec<(&'static str, Server)> {
    let behind = |steps: Vec<Step>| steps.into_iter().chain(end.to_vec());
    let within_turn = |steps: Vec<Step>| at("turn/start", behind(turn::opened(steps)));
    vec![
        ("before anything", Server::new().first(end.to_vec())),
        ("at initialize", at("initialize", end.to_vec())),
        ("behind initialize", at("initialize", behind(vec![Step::Reply]))),
        ("at initialized", at("initialized", end.to_vec())),
        ("at thread/resume", at("thread/resume", end.to_vec())),
        ("behind thread/resume", at("thread/resume", behind(vec![Step::Reply]))),
        ("at turn/start", at("turn/start", end.to_vec())),
        ("behind turn/start", at("turn/start", behind(vec![Step::Reply]))),
        ("behind turn/started", at("turn/start", behind(vec![Step::Reply, turn::started()]))),
        ("in a message", within_turn(vec![turn::delta("m", "hal")])),
        ("in a command", within_turn(vec![turn::command_started("c", "ls")])),
        ("behind an item", within_turn(turn::message("m", "so far"))),
        ("in a question", within_turn(vec![turn::ask_command("q", "c", "ls").without_waiting()])),
    ]
}

#[tokio::test]
async fn a_server_that_dies_at_any_step_is_process_died_and_the_next_run_resumes_on_a_fresh_one() {
    for (step, server) in ends_at_every_step(&[Step::Die(Signal::Kill)]) {
        let lab = then_healthy(server);
        let runner = lab.app_server(LONG);
        let seen = run(&runner, lab.request("hi").resume(session())).await;
        let end = seen.failed("process_died");
        assert_eq!(end.resume, Some(session()), "{step}");
        let next = run(&runner, lab.request("next").resume(session())).await;
        assert_eq!(next.ok().resume, Some(session()), "{step}");
        assert_eq!(lab.control.starts().len(), 2, "{step}");
        let resumed = lab.control.calls("thread/resume");
        assert_eq!(
            resumed.last().unwrap().message["params"]["threadId"],
            session().value,
            "{step}"
        );
        assert_eq!(lab.control.calls("thread/start").len(), 0, "{step}");
        runner.shutdown().await;
        lab.assert_nothing_left().await;
    }
}

#[tokio::test]
async fn a_server_that_exits_at_any_step_is_process_died_too() {
    for (step, server) in ends_at_every_step(&[Step::Exit(0)]) {
        let lab = then_healthy(server);
        let runner = lab.app_server(LONG);
        let seen = run(&runner, lab.request("hi").resume(session())).await;
        seen.failed("process_died");
        assert!(run(&runner, lab.request("n").resume(session())).await.completed().ok, "{step}");
        runner.shutdown().await;
    }
}

#[tokio::test]
async fn stderr_of_a_dead_server_is_in_a_warning_without_credentials_and_not_in_the_error() {
    let steps = turn::message("m", "so far").into_iter();
    let said = "Error: the disk is full, Authorization: Bearer sk-SECRET-123";
    let steps = steps.chain([Step::stderr(said), Step::Exit(1)]);
    let lab = Lab::new(Server::new().turns(steps).script());
    let runner = lab.app_server(Duration::ZERO);
    let seen = run(&runner, lab.request("hi")).await;
    assert_eq!(seen.failed("process_died").answer, "so far");
    let error = seen.completed().error.as_deref().unwrap();
    assert!(!error.contains("disk is full"), "{error}");
    let tail = &seen.done(&ActionKind::Warning)[0].action.detail["stderr_tail"];
    assert_eq!(tail, "Error: the disk is full, Authorization: Bearer [redacted]\n");
    let all = serde_json::to_string(&seen.events).unwrap();
    assert!(!all.contains("SECRET"), "{all}");
}

#[tokio::test]
async fn stderr_of_a_server_that_dies_in_a_turn_is_not_taken_for_the_session_of_the_run() {
    for said in ["thread other already has an active writer", "no rollout found for thread id 1"] {
        let steps = [turn::command_started("c", "ls"), Step::stderr(said), Step::Exit(1)];
        let lab = Lab::new(Server::new().turns(steps).script());
        let runner = lab.app_server(Duration::ZERO);
        run(&runner, lab.request("hi").resume(session())).await.failed("process_died");
    }
}

#[tokio::test]
async fn stderr_of_a_server_that_dies_while_it_opens_the_session_says_why() {
    let said = format!("no rollout found for thread id {}", session().value);
    let lab = Lab::new(at("thread/resume", [Step::stderr(said.as_str()), Step::Exit(1)]).script());
    let runner = lab.app_server(Duration::ZERO);
    run(&runner, lab.request("hi").resume(session())).await.failed("session_not_found");
}

/// The phases of the approvals, with how they ended.
fn approvals(seen: &Seen) -> Vec<(Phase, Option<bool>)> {
    let approvals = seen.actions(&ActionKind::Approval);
    approvals.into_iter().map(|event| (event.phase, event.ok)).collect()
}

const WITHDRAWN: [(Phase, Option<bool>); 2] =
    [(Phase::Started, None), (Phase::Completed, Some(false))];

#[tokio::test]
async fn an_approval_that_waits_when_the_server_dies_is_closed() {
    let ask = turn::ask_command("q", "c", "ls").without_waiting();
    let early = [ask.clone(), Step::gate("die"), Step::Die(Signal::Kill)];
    let late = turn::opened([ask, Step::gate("die"), Step::Die(Signal::Kill)]);
    // Before the response to `turn/start`, and behind it.
    for steps in [early.to_vec(), late] {
        let lab = Lab::new(at("turn/start", steps).script());
        let runner = lab.app_server(Duration::ZERO);
        let (handler, _questions) = channel(1);
        let mut stream = runner.run(lab.request("hi").approvals(Arc::new(handler)));
        let is_approval = |event: &TakopiEvent| matches!(event, TakopiEvent::Action(event) if event.action.kind == ActionKind::Approval);
        let events = until(&mut stream, "the approval", is_approval).await;
        lab.control.open("die");
        let seen = finish(stream, events).await;
        seen.failed("process_died");
        assert_eq!(approvals(&seen), WITHDRAWN);
    }
}

#[tokio::test]
async fn an_approval_that_waits_when_a_limit_of_the_turn_strikes_is_closed() {
    let ask = turn::ask_command("q", "c", "ls").without_waiting();
    let steps = [ask, Step::SleepForever];
    with_enough_time(async |limit| {
        let lab = Lab::new(Server::new().turns(steps.clone()).script());
        let engine = CodexAppServer::new(lab.codex()).turn_limit(limit);
        let runner = EngineRunner::new(engine).on(lab.host.clone());
        let (handler, _questions) = channel(1);
        let seen = run(&runner, lab.request("hi").approvals(Arc::new(handler))).await;
        seen.failed("timeout_wall");
        if approvals(&seen).is_empty() {
            return false;
        }
        assert_eq!(approvals(&seen), WITHDRAWN);
        true
    })
    .await;
}

#[tokio::test]
async fn silence_at_any_step_is_ended_by_the_idle_limit_and_nothing_is_replayed() {
    // A question that waits and a tool that runs are not idle.
    let busy = |step: &str| ["in a question", "in a command"].contains(&step);
    let silence = [Step::reached("silent"), Step::StopReading];
    let silent = ends_at_every_step(&silence).into_iter().filter(|(step, _)| !busy(step));
    // At once: the ladder gives each of them seconds to end by itself.
    futures::future::join_all(silent.map(|(step, server)| silence_ends(step, server))).await;
}

async fn silence_ends(step: &str, server: Server) {
    with_enough_time(async |limit| {
        let lab = then_healthy(server.clone());
        let runner = lab.app_server(LONG);
        let request = lab.request("hi").resume(session()).idle_timeout(limit);
        let seen = run(&runner, request).await;
        let error = seen.failed("timeout_idle").error.clone().unwrap();
        assert!(error.contains(&format!("{limit:?}")), "{step}: {error}");
        assert_eq!(lab.home.processes(), [], "{step}: whoever sees the end knows");
        if lab.control.marks("silent").is_empty() {
            return false;
        }
        assert!(lab.control.calls("turn/start").len() <= 1, "{step}: never replayed");
        let next = run(&runner, lab.request("next").resume(session())).await;
        assert!(next.completed().ok, "{step}: {next:#?}");
        assert_eq!(lab.control.starts().len(), 2, "{step}: the silent one is retired");
        runner.shutdown().await;
        lab.assert_nothing_left().await;
        true
    })
    .await;
}

#[tokio::test]
async fn silence_after_a_tool_is_ended_too() {
    let steps = [
        turn::command_started("c", "ls"),
        turn::command_completed("c", "ls", "", 0),
        Step::reached("silent"),
        Step::SleepForever,
    ];
    with_enough_time(async |limit| {
        let lab = then_healthy(Server::new().turns(steps.clone()));
        let runner = lab.app_server(LONG);
        let seen = run(&runner, lab.request("hi").idle_timeout(limit)).await;
        seen.failed("timeout_idle");
        assert_eq!(lab.home.processes(), []);
        if lab.control.marks("silent").is_empty() {
            return false;
        }
        assert_eq!(lab.control.calls("turn/start").len(), 1);
        true
    })
    .await;
}

#[tokio::test]
async fn cancel_interrupts_the_turn_and_ends_what_ran_in_the_background() {
    let steps = turn::message("m", "so far").into_iter().chain([
        Grandchild::new("terminal").at(Place::OwnSession).spawn(),
        Grandchild::new("detached").at(Place::Detached).spawn(),
        Step::reached("ready"),
        Step::SleepForever,
    ]);
    let lab = then_healthy(Server::new().turns(steps));
    let runner = lab.app_server(LONG);
    let cancel = CancellationToken::new();
    let stream = runner.run(lab.request("hi").cancel(cancel.clone()));
    lab.control.reached("ready").await;
    cancel.cancel();
    let seen = finish(stream, Vec::new()).await;
    assert_eq!(seen.failed("interrupted").answer, "so far");
    assert_eq!(lab.home.processes(), [], "whoever sees the end knows that nothing is left");
    assert_eq!(lab.control.calls("turn/interrupt").len(), 1);
    let next = run(&runner, lab.request("next").resume(seen.session())).await;
    assert_eq!(next.ok().resume, Some(seen.session()));
    runner.shutdown().await;
    lab.assert_nothing_left().await;
}

#[tokio::test]
async fn a_server_that_answers_no_interrupt_and_no_signal_is_killed() {
    let signals = [Signal::Int, Signal::Term, Signal::Hup];
    let server = Server::new()
        .first([Step::ignore(signals)])
        .at_eof([Step::SleepForever])
        .always("turn/interrupt", [])
        .turns([
            Grandchild::new("stubborn").at(Place::OwnSession).ignoring(signals).spawn(),
            Step::reached("ready"),
            Step::SleepForever,
        ]);
    let lab = Lab::new(server.script());
    let runner = lab.app_server(LONG);
    let cancel = CancellationToken::new();
    let stream = runner.run(lab.request("hi").cancel(cancel.clone()));
    lab.control.reached("ready").await;
    cancel.cancel();
    finish(stream, Vec::new()).await.failed("interrupted");
    assert_eq!(lab.home.processes(), []);
    lab.assert_nothing_left().await;
}

#[tokio::test]
async fn stop_during_the_start_leaves_no_server_and_no_lock() {
    for method in ["initialize", "thread/resume", "turn/start"] {
        let lab = then_healthy(at(method, [Step::reached("ready"), Step::SleepForever]));
        let runner = lab.app_server(LONG);
        let cancel = CancellationToken::new();
        let request = lab.request("hi").resume(session()).cancel(cancel.clone());
        let stream = runner.run(request);
        lab.control.reached("ready").await;
        cancel.cancel();
        let seen = finish(stream, Vec::new()).await;
        assert_eq!(seen.failed("interrupted").resume, Some(session()), "{method}");
        assert_eq!(lab.home.processes(), [], "{method}: whoever sees the end knows");
        let next = run(&runner, lab.request("next").resume(session()).wait(Duration::ZERO)).await;
        assert!(next.completed().ok, "{method}: {next:#?}");
        runner.shutdown().await;
        lab.assert_nothing_left().await;
    }
}

#[tokio::test]
async fn a_run_stopped_in_the_handshake_ends_when_its_server_is_gone() {
    let lab = then_healthy(at("initialize", [Step::reached("ready"), Step::SleepForever]));
    let runner = lab.app_server(LONG);
    let cancel = CancellationToken::new();
    let stream = runner.run(lab.request("hi").resume(session()).cancel(cancel.clone()));
    lab.control.reached("ready").await;
    cancel.cancel();
    finish(stream, Vec::new()).await.failed("interrupted");
    assert_eq!(lab.home.processes(), [], "whoever sees the end knows");
}

#[tokio::test]
async fn a_dropped_stream_ends_the_server_before_the_session_can_be_had_again() {
    for method in ["initialize", "thread/resume", "turn/start"] {
        let lab = then_healthy(at(method, [Step::reached("ready"), Step::SleepForever]));
        let runner = lab.app_server(LONG);
        let stream = runner.run(lab.request("hi").resume(session()));
        let first = lab.control.reached("ready").await;
        drop(stream);
        let mut next = runner.run(lab.request("next").resume(session()));
        let seen = until(&mut next, "Started", is_started).await;
        assert!(!lab.control.alive().contains(&first.pid), "{method}: the first was gone before");
        finish(next, seen).await.ok();
        runner.shutdown().await;
        lab.assert_nothing_left().await;
    }
}

#[tokio::test]
async fn a_warm_server_that_died_or_was_retired_is_never_handed_out_again() {
    let dies = [Step::gate("die"), Step::Die(Signal::Kill)];
    let server = Server::new()
        .always("turn/start", turn::opened(turn::answer("one")).into_iter().chain(dies));
    let lab = then_healthy(server);
    let runner = lab.app_server(LONG);
    let first = run(&runner, lab.request("one")).await;
    first.ok();
    let pid = lab.control.started(0).await.pid;
    lab.control.open("die");
    lab.control.gone(pid).await;
    let second = run(&runner, lab.request("two").resume(first.session())).await;
    assert_eq!(second.ok().resume, Some(first.session()));
    assert_eq!(lab.control.starts().len(), 2);
    runner.shutdown().await;
    lab.assert_nothing_left().await;
}

#[tokio::test]
async fn a_session_that_failed_auth_gets_a_fresh_server() {
    let refused = serde_json::json!({"message": "Your access token could not be refreshed", "codexErrorInfo": "unauthorized"});
    let lab = then_healthy(Server::new().turns([turn::ended("failed", &refused)]));
    let runner = lab.app_server(LONG);
    let seen = run(&runner, lab.request("hi").resume(session())).await;
    assert!(seen.failed("auth").error.as_ref().unwrap().contains("codex login"));
    run(&runner, lab.request("next").resume(session())).await.ok();
    assert_eq!(lab.control.starts().len(), 2);
    runner.shutdown().await;
}

#[tokio::test]
async fn shutdown_ends_warm_servers_that_do_not_end_with_their_input() {
    let server = Server::new().at_eof([Step::ignore([Signal::Term]), Step::SleepForever]);
    let lab = Lab::new(server.script());
    let runner = lab.app_server(LONG);
    let one = run(&runner, lab.request("one"));
    let two = run(&runner, lab.request("two"));
    let (one, two) = futures::future::join(one, two).await;
    one.ok();
    two.ok();
    assert_eq!(lab.control.alive().len(), 2);
    runner.shutdown().await;
    lab.assert_nothing_left().await;
}

#[tokio::test]
async fn a_consumer_that_does_not_read_loses_no_item() {
    const ITEMS: usize = 3000;
    let items = (0..ITEMS).flat_map(|n| {
        let id = format!("c{n:05}");
        [turn::command_started(&id, "ls"), turn::command_completed(&id, "ls", "", 0)]
    });
    let server = Server::new()
        .turns_when("many", items.chain(turn::answer("done")))
        .turns_when("meanwhile", turn::answer("another run"));
    let lab = Lab::new(server.script());
    let runner = lab.app_server(Duration::ZERO).buffer(16, 64 * 1024);
    let mut stream = runner.run(lab.request("many"));
    let first = until(
        &mut stream,
        "the turn",
        |event| matches!(event, TakopiEvent::Action(event) if event.action.kind == ActionKind::Turn),
    );
    let first = first.await;
    // Time for the buffers to fill: a whole run goes by.
    run(&runner, lab.request("meanwhile")).await.ok();
    let seen = finish(stream, first).await;
    assert_eq!(seen.ok().answer, "done");
    let ids: Vec<_> =
        seen.done(&ActionKind::Command).iter().map(|it| it.action.id.clone()).collect();
    assert_eq!(ids.len(), ITEMS);
    assert!(ids.is_sorted());
    runner.shutdown().await;
}

#[tokio::test]
async fn the_answer_so_far_of_a_cancelled_run_is_there_also_without_deltas() {
    let steps = [
        turn::delta("m", "Half a "),
        turn::delta("m", "sentence"),
        turn::command_started("c", "ls"),
        Step::Gate("never".into()),
    ];
    let lab = Lab::new(Server::new().turns(steps).script());
    let runner = lab.app_server(Duration::ZERO);
    let request = lab.request("go");
    let cancel = request.cancel.clone();
    let mut stream = runner.run(request);
    // The command comes behind the text: that was received, too.
    let is_command = |event: &TakopiEvent| matches!(event, TakopiEvent::Action(event) if event.action.kind == ActionKind::Command);
    let seen = until(&mut stream, "the command", is_command).await;
    cancel.cancel();
    let seen = finish(stream, seen).await;
    assert_eq!(seen.failed("interrupted").answer, "Half a sentence");
    runner.shutdown().await;
    lab.assert_nothing_left().await;
}
