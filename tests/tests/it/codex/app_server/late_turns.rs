//! Turns of a shared app-server that are stopped: nothing is left of them, and their neighbours never notice.
use serde_json::{Value, json};
use takopi_core::{ActionKind, Runner};
use takopi_tests::codex::fake::{Step, turn};
use takopi_tests::codex::lab::Lab;
use takopi_tests::runs::{finish, run};
use tokio_util::sync::CancellationToken;

use super::neighbours::{Neighbour, server, shared};

#[tokio::test]
async fn an_interrupt_that_is_answered_with_null_leaves_the_server_usable() {
    let script = server()
        .turns_when("victim", [Step::reached("working"), Step::SleepForever])
        .always("turn/interrupt", [Step::ReplyWith(Value::Null), Step::Interrupt])
        .script();
    let lab = Lab::new(script);
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
    assert_eq!(lab.control.starts().len(), 1);
    runner.shutdown().await;
    lab.assert_nothing_left().await;
}

#[tokio::test]
async fn a_late_request_of_a_known_sub_agent_is_declined_and_warns_no_neighbour() {
    const CHILD: &str = "01a1e21b-0000-7eb0-9d27-459e98f10b74";
    let child = json!({"thread": {"id": CHILD, "parentThreadId": "$THREAD"}});
    let late = turn::elsewhere(CHILD, "child-turn", [turn::ask_command("q", "c", "ls")]);
    let steps = [Step::notify("thread/started", child)].into_iter();
    let steps = steps.chain(turn::answer("done")).chain(late);
    let lab = Lab::new(server().turns_when("parent", steps).script());
    let runner = shared(&lab);
    let neighbour = Neighbour::start(&runner, &lab).await;
    run(&runner, lab.request("parent")).await.ok();
    let answer = lab.control.answer("q").await;
    assert_eq!(answer["result"], json!({"decision": "decline"}));
    let seen = neighbour.ends_undisturbed(&lab).await;
    assert_eq!(seen.done(&ActionKind::Warning).len(), 0, "{:#?}", seen.events);
    runner.shutdown().await;
    lab.assert_nothing_left().await;
}
