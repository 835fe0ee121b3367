//! A warm app-server that dies, and one that refuses a turn as overloaded: a turn of which anything was
//! seen is never sent again.
use std::time::Duration;

use serde_json::json;
use takopi_core::{ActionKind, Runner};
use takopi_tests::codex::fake::app_server::overloaded;
use takopi_tests::codex::fake::{Script, Server, Signal, Step, turn};
use takopi_tests::codex::lab::Lab;
use takopi_tests::runs::{Seen, run};

use super::neighbours::{Neighbour, server, shared};

const LONG: Duration = Duration::from_hours(1);

/// A warm server plays `steps` at its second turn and dies without a reply. Returns what the run saw
/// and how often its prompt was sent.
async fn dies_before_the_reply(steps: impl IntoIterator<Item = Step>) -> (Seen, usize) {
    let dying = steps.into_iter().chain([Step::Die(Signal::Kill)]);
    let first = Server::new().when("turn/start", "second", dying);
    let lab = Lab::new(Script::nth([
        first.script(),
        Server::new().turns(turn::answer("from the next server")).script(),
    ]));
    let runner = lab.app_server(LONG);
    let session = run(&runner, lab.request("first")).await.session();
    let seen = run(&runner, lab.request("second").resume(session.clone())).await;
    let sent = lab.control.calls("turn/start").into_iter();
    let sent = sent.filter(|call| call.message.to_string().contains("second")).count();
    let next = run(&runner, lab.request("next").resume(session)).await;
    assert_eq!(next.ok().answer, "from the next server");
    runner.shutdown().await;
    lab.assert_nothing_left().await;
    (seen, sent)
}

#[tokio::test]
async fn a_turn_whose_command_was_seen_is_not_sent_again_and_the_command_is_in_the_stream() {
    let steps =
        [turn::command_started("c", "rm x"), turn::command_completed("c", "rm x", "gone", 0)];
    let (seen, sent) = dies_before_the_reply(steps).await;
    seen.failed("process_died");
    assert_eq!(sent, 1);
    assert_eq!(seen.done(&ActionKind::Command).len(), 1, "{:#?}", seen.events);
}

#[tokio::test]
async fn a_turn_of_which_anything_was_seen_is_not_sent_again() {
    for (what, steps) in [
        ("its start", vec![turn::started()]),
        ("a text", vec![turn::delta("m", "hal")]),
        ("a question", vec![turn::ask_command("q", "c", "ls").without_waiting()]),
        ("an error", vec![turn::error("trouble", &json!("other"), true)]),
    ] {
        let (seen, sent) = dies_before_the_reply(steps).await;
        assert_eq!(sent, 1, "{what}");
        seen.failed("process_died");
    }
}

#[tokio::test]
async fn a_turn_of_which_something_came_that_cannot_be_read_is_not_sent_again() {
    let item =
        json!({"threadId": 7, "turnId": "$TURN", "item": {"type": "commandExecution", "id": "c"}});
    for (what, step) in [
        ("no JSON", Step::line("half a line")),
        ("no readable address", Step::notify("item/completed", item)),
        ("too long", Step::huge(r#"{"method":"item/completed","params":""#, r#""}"#, 65 << 20)),
    ] {
        let (seen, sent) = dies_before_the_reply([step]).await;
        assert_eq!(sent, 1, "{what}");
        seen.failed("process_died");
        assert_eq!(seen.done(&ActionKind::Warning).len(), 1, "{what}: {:#?}", seen.events);
    }
}

#[tokio::test]
async fn a_turn_that_a_dead_warm_server_never_began_is_run_by_the_next_server() {
    let quota = Step::notify("account/rateLimits/updated", json!({"rateLimits": {}}));
    for (what, steps) in [
        ("nothing", vec![]),
        ("usage and status of the thread", vec![turn::usage(), turn::status("active")]),
        ("a notification of no thread", vec![quota]),
    ] {
        let (seen, sent) = dies_before_the_reply(steps).await;
        assert_eq!(seen.ok().answer, "from the next server", "{what}");
        assert_eq!(sent, 2, "{what}");
    }
}

#[tokio::test]
async fn an_end_that_came_before_the_server_died_is_the_end_of_the_run() {
    let steps = [turn::started()].into_iter().chain(turn::answer("all done"));
    let (seen, sent) = dies_before_the_reply(steps).await;
    assert_eq!(seen.ok().answer, "all done");
    assert_eq!(sent, 1);
}

/// How often the prompt was sent that has this text.
fn prompts(lab: &Lab, text: &str) -> usize {
    let calls = lab.control.calls("turn/start").into_iter();
    calls.filter(|call| call.message.to_string().contains(text)).count()
}

/// A turn that is begun and then refused as overloaded.
fn begun_and_refused(steps: impl IntoIterator<Item = Step>) -> Vec<Step> {
    [turn::started()].into_iter().chain(steps).chain(overloaded()).collect()
}

#[tokio::test]
async fn a_turn_that_has_begun_is_not_sent_again_though_the_server_is_overloaded() {
    let command = [turn::command_completed("c", "rm x", "gone", 0)];
    let lab =
        Lab::new(Server::new().when("turn/start", "refused", begun_and_refused(command)).script());
    let runner = lab.app_server(LONG);
    let cold = run(&runner, lab.request("refused, cold")).await;
    let session = run(&runner, lab.request("first")).await.session();
    let warm = run(&runner, lab.request("refused, warm").resume(session.clone())).await;
    for (seen, text) in [(cold, "refused, cold"), (warm, "refused, warm")] {
        seen.failed("overloaded");
        assert_eq!(prompts(&lab, text), 1, "{text}");
        assert_eq!(seen.done(&ActionKind::Command).len(), 1, "{text}: {:#?}", seen.events);
    }
    run(&runner, lab.request("next").resume(session)).await.ok();
    runner.shutdown().await;
    lab.assert_nothing_left().await;
}

#[tokio::test]
async fn a_turn_that_may_have_begun_is_not_sent_again_though_the_server_is_overloaded() {
    let item = json!({"type": "commandExecution", "id": "c", "command": "rm x"});
    let of_thread = json!({"threadId": "$THREAD", "item": item});
    let of_nobody = json!({"threadId": 7, "turnId": "$TURN", "item": item});
    for (what, step) in [
        ("a question", turn::ask_command("q", "c", "ls").without_waiting()),
        ("an item that names no turn", Step::notify("item/completed", of_thread)),
        ("no JSON", Step::line("half a line")),
        ("no readable address", Step::notify("item/completed", of_nobody)),
    ] {
        let steps = [step].into_iter().chain(overloaded());
        let lab = Lab::new(Server::new().once("turn/start", steps).script());
        let seen = run(&lab.app_server(Duration::ZERO), lab.request("hi")).await;
        seen.failed("overloaded");
        assert_eq!(prompts(&lab, "hi"), 1, "{what}");
        lab.assert_nothing_left().await;
    }
}

#[tokio::test]
async fn a_turn_that_ends_before_it_is_refused_is_the_end_of_the_run() {
    let steps = begun_and_refused(turn::answer("all done"));
    let lab = Lab::new(Server::new().always("turn/start", steps).script());
    let seen = run(&lab.app_server(Duration::ZERO), lab.request("hi")).await;
    assert_eq!(seen.ok().answer, "all done");
    assert_eq!(prompts(&lab, "hi"), 1);
    lab.assert_nothing_left().await;
}

#[tokio::test]
async fn what_a_thread_reports_of_itself_is_no_turn_that_has_begun() {
    let starting = json!({"threadId": "$THREAD", "name": "lab", "status": "starting"});
    let starting = Step::notify("mcpServer/startupStatus/updated", starting);
    let steps = [turn::usage(), turn::status("active"), starting].into_iter().chain(overloaded());
    let lab = Lab::new(Server::new().once("turn/start", steps).script());
    let seen = run(&lab.app_server(Duration::ZERO), lab.request("hi")).await;
    seen.ok();
    assert_eq!(prompts(&lab, "hi"), 2);
    lab.assert_nothing_left().await;
}

#[tokio::test]
async fn a_turn_that_a_shared_server_began_and_refused_is_interrupted() {
    // The refusal ends the turn for the fake: another server takes its place for the session.
    let lab = Lab::new(server().when("turn/start", "victim", begun_and_refused([])).script());
    let runner = shared(&lab);
    let neighbour = Neighbour::start(&runner, &lab).await;
    let victim = run(&runner, lab.request("victim")).await;
    victim.failed("overloaded");
    assert_eq!(prompts(&lab, "victim"), 1);
    let interrupt = lab.control.call("turn/interrupt").await.message;
    assert_eq!(interrupt["params"]["threadId"], victim.session().value);
    assert_ne!(interrupt["params"]["turnId"], "");
    neighbour.ends_undisturbed(&lab).await;
    let again = lab.request("other prompt").resume(victim.session());
    assert_eq!(run(&runner, again).await.ok().answer, "here");
    assert_eq!(lab.control.starts().len(), 2);
    runner.shutdown().await;
    lab.assert_nothing_left().await;
}
