//! Sub-agents of a run that is cut short on a shared app-server: none of them goes on behind its end.
use std::sync::Arc;
use std::time::Duration;

use serde_json::json;
use takopi_codex::Codex;
use takopi_codex::app_server::{CodexAppServer, PoolLimits};
use takopi_core::approvals::accept_all;
use takopi_core::{ActionKind, EngineRunner, Host, Runner};
use takopi_tests::codex::fake::{Sent, Server, Step, turn};
use takopi_tests::codex::home::TestHome;
use takopi_tests::codex::lab::Lab;
use takopi_tests::codex::real;
use takopi_tests::model::{Answer, Gate, ModelServer};
use takopi_tests::runs::{Seen, finish, is_started, request, run, until};
use tokio_util::sync::CancellationToken;

use super::neighbours::{Neighbour, server, shared};

const LONG: Duration = Duration::from_hours(1);
const CHILD: &str = "01a1e21b-0000-7eb0-9d27-459e98f10b74";
const GRANDCHILD: &str = "01a1e21b-0001-7eb0-9d27-459e98f10b74";
const IDLE: &str = "01a1e21b-0002-7eb0-9d27-459e98f10b74";

/// A thread is reported as that of a sub-agent.
fn spawned(child: &str, parent: &str) -> Step {
    Step::notify("thread/started", json!({"thread": {"id": child, "parentThreadId": parent}}))
}

/// The calls of a method that are about this thread, and the turns they name.
fn turns_of(calls: &[Sent], thread: &str) -> Vec<String> {
    let params = calls.iter().map(|call| &call.message["params"]);
    let own = params.filter(|params| params["threadId"] == thread);
    own.map(|params| params["turnId"].as_str().unwrap_or_default().to_owned()).collect()
}

/// A turn that has these sub-agents: one that works, one below it, and one that has ended its turn.
fn with_sub_agents() -> Vec<Step> {
    let mut steps = vec![spawned(CHILD, "$THREAD"), spawned(IDLE, "$THREAD")];
    steps.extend(turn::elsewhere(IDLE, "it", [turn::started(), turn::completed()]));
    // Its start was not reported, as codex does not report what came before it listened.
    let item = turn::command_started("c", "sleep 9");
    steps.extend(turn::elsewhere(CHILD, "ct", [item]));
    steps.push(spawned(GRANDCHILD, CHILD));
    steps.extend(turn::elsewhere(GRANDCHILD, "gt", [turn::started()]));
    steps.extend([Step::reached("working"), Step::SleepForever]);
    steps
}

/// Cancels the run of "victim" when it works, beside its neighbour.
async fn cancelled_beside_a_neighbour(server: Server, servers: usize) -> (Lab, Seen) {
    let lab = Lab::new(server.script());
    let runner = shared(&lab);
    let neighbour = Neighbour::start(&runner, &lab).await;
    let cancel = CancellationToken::new();
    let victim = runner.run(lab.request("victim").cancel(cancel.clone()));
    lab.control.reached("working").await;
    cancel.cancel();
    let victim = finish(victim, Vec::new()).await;
    victim.failed("interrupted");
    neighbour.ends_undisturbed(&lab).await;
    let again = lab.request("other prompt").resume(victim.session());
    assert_eq!(run(&runner, again).await.ok().answer, "here");
    assert_eq!(lab.control.starts().len(), servers);
    assert_eq!(lab.control.overlaps(), Vec::<String>::new());
    runner.shutdown().await;
    lab.assert_nothing_left().await;
    (lab, victim)
}

#[tokio::test]
async fn a_cancel_on_a_shared_server_interrupts_the_sub_agents_that_work() {
    let server = server().turns_when("victim", with_sub_agents());
    let (lab, victim) = cancelled_beside_a_neighbour(server, 1).await;
    let interrupts = lab.control.calls("turn/interrupt");
    assert_eq!(turns_of(&interrupts, &victim.session().value).len(), 1);
    assert_eq!(turns_of(&interrupts, CHILD), ["ct"]);
    assert_eq!(turns_of(&interrupts, GRANDCHILD), ["gt"]);
    assert_eq!(turns_of(&interrupts, IDLE), Vec::<String>::new());
    // What they left in the background is ended too.
    let cleaned = lab.control.calls("thread/backgroundTerminals/clean");
    for thread in [CHILD, GRANDCHILD, IDLE, &victim.session().value] {
        assert_eq!(turns_of(&cleaned, thread).len(), 1, "{thread}");
    }
}

#[tokio::test]
async fn a_sub_agent_that_begins_another_turn_is_interrupted_again() {
    let another = turn::elsewhere(CHILD, "another", [turn::started()]);
    let refused = another.into_iter().chain([Step::fail(-32600, "no active turn to interrupt")]);
    let server = server().turns_when("victim", with_sub_agents()).when(
        "turn/interrupt",
        r#""turnId":"ct""#,
        refused,
    );
    let (lab, _) = cancelled_beside_a_neighbour(server, 1).await;
    assert_eq!(turns_of(&lab.control.calls("turn/interrupt"), CHILD), ["ct", "another"]);
}

#[tokio::test]
async fn a_server_whose_sub_agents_never_stop_gets_no_further_runs() {
    let another = turn::elsewhere(CHILD, "ct-$SEQ", [turn::started()]);
    let refused = another.into_iter().chain([Step::fail(-32600, "no active turn to interrupt")]);
    let server =
        server().turns_when("victim", with_sub_agents()).when("turn/interrupt", CHILD, refused);
    cancelled_beside_a_neighbour(server, 2).await;
}

#[tokio::test]
async fn a_cancel_on_the_real_codex_leaves_no_sub_agent_of_the_run_working() {
    let Some(codex) = real::codex_or_skip() else { return };
    let model = ModelServer::start();
    let (gate, never) = (Gate::new(), Gate::new());
    model.when("neighbour", Answer::new().wait_for(&gate).message("undisturbed"));
    let spawn =
        Answer::new().call_in("multi_agent_v1", "spawn_agent", json!({ "message": "errand" }));
    model.when("parent", [spawn, Answer::new().wait_for(&never).message("not this")]);
    let goes_on = Answer::new().wait_for(&never).message("not this");
    model.when("errand", [Answer::new().exec("sleep 640"), goes_on]);
    model.when("other", "here");
    let home = TestHome::new(&model);
    let host = Host::builder().state_directory(home.state()).build().unwrap();
    let engine = CodexAppServer::new(Codex::new().binary(&codex.path))
        .shared(PoolLimits::new(4, 10, 1))
        .keep_warm(LONG);
    let runner = EngineRunner::new(engine).on(host);
    let mut neighbour = runner.run(request(&home, "neighbour"));
    let before = until(&mut neighbour, "Started", is_started).await;
    let cancel = CancellationToken::new();
    let victim = runner.run(request(&home, "parent").cancel(cancel.clone()));
    home.wait_for_command("sleep 640").await;
    never.reached().await;
    cancel.cancel();
    let victim = finish(victim, Vec::new()).await;
    victim.failed("interrupted");
    let sleeping =
        |process: &takopi_tests::codex::home::Process| process.command.starts_with("sleep");
    assert!(!home.processes().iter().any(sleeping), "its command goes on");
    let servers = home.servers();
    // Whole runs behind the end, in which a sub-agent whose command was ended would go on.
    for _ in 0..2 {
        model.when("other", "here");
        assert_eq!(run(&runner, request(&home, "other")).await.ok().answer, "here");
    }
    assert_eq!(model.requests_about("errand").len(), 1, "the sub-agent goes on");
    gate.open();
    assert_eq!(finish(neighbour, before).await.ok().answer, "undisturbed");
    assert_eq!(home.servers(), servers, "the server is used again");
    runner.shutdown().await;
    home.assert_no_processes().await;
}

#[tokio::test]
async fn what_a_sub_agent_asks_in_a_turn_that_an_earlier_run_began_is_declined_visibly() {
    let ask = |id: &str| turn::ask_command(id, "c", "ls");
    let mut first = vec![spawned(CHILD, "$THREAD")];
    first.extend(turn::elsewhere(CHILD, "earlier", [turn::started()]));
    first.extend(turn::answer("one"));
    let mut second = turn::elsewhere(CHILD, "earlier", [ask("late"), turn::completed()]);
    second.extend(turn::elsewhere(CHILD, "later", [ask("own")]));
    second.extend(turn::answer("two"));
    let lab = Lab::new(Server::new().turn(first).turn(second).script());
    let runner = lab.app_server(LONG);
    let one = run(&runner, lab.request("one")).await;
    one.ok();
    let request = lab.request("two").resume(one.session()).approvals(Arc::new(accept_all()));
    let two = run(&runner, request).await;
    assert_eq!(two.ok().answer, "two");
    assert_eq!(lab.control.starts().len(), 1);
    assert_eq!(lab.control.answer("late").await["result"], json!({"decision": "decline"}));
    assert_eq!(lab.control.answer("own").await["result"], json!({"decision": "accept"}));
    let warnings = two.done(&ActionKind::Warning);
    assert_eq!(warnings.len(), 1, "{warnings:?}");
    assert!(warnings[0].action.title.starts_with("declined: "), "{warnings:?}");
    runner.shutdown().await;
    lab.assert_nothing_left().await;
}
