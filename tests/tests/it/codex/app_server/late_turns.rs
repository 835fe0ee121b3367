//! Turns of a shared app-server that are stopped: nothing is left of them, and their neighbours never notice.
use serde_json::Value;
use takopi_core::Runner;
use takopi_tests::codex::fake::Step;
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
