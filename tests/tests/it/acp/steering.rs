//! Messages into a running turn of the fake agent.

use std::time::Duration;

use serde_json::{Value, json};
use takopi_acp::{Acp, AcpEngine, Agent};
use takopi_core::external::CancellationToken;
use takopi_core::runner::steer_channel;
use takopi_core::{EngineRunner, Runner};
use takopi_tests::acp::fake::{Lab, Process, Step, binary, end, text_of, thought};
use takopi_tests::runs::{finish, run};

const WARM: Duration = Duration::from_mins(10);

/// An agent that takes messages into the running turn, and does this with them. Its turn ends with the gate `end`.
fn lab(steering: impl IntoIterator<Item = Step>) -> (Lab, EngineRunner<AcpEngine>) {
    let hello = json!({
        "protocolVersion": 1,
        "agentCapabilities": { "sessionCapabilities": { "resume": {} } },
        "_meta": { "steering": { "supported": true } },
    });
    let session = json!({ "sessionId": "01a1e21b-26e5-7eb0-9d27-459e98f10b74" });
    let turn = [Step::reached("runs"), Step::gate("end"), text_of("m", "done"), end("end_turn")];
    let process = Process::new()
        .always("initialize", [Step::ReplyWith(hello)])
        .always("session/new", [Step::ReplyWith(session)])
        .always("_session/steering", steering)
        .turns(turn.into_iter().chain([Step::reached("over")]));
    let lab = Lab::new(process);
    let acp = Acp::new(Agent::preset("claude-acp").unwrap()).program(binary()).keep_warm(WARM);
    let runner = acp.runner().on(lab.host.clone());
    (lab, runner)
}

/// A message that begins a turn of its own would have no end: it counts as not taken, and the process goes.
#[tokio::test]
async fn a_message_is_taken_only_if_the_agent_put_it_into_the_turn() {
    let says = |outcome: &str| Step::ReplyWith(json!({ "outcome": outcome }));
    for (reply, taken, starts) in [
        (says("injected"), true, 1),
        (says("startedNewTurn"), false, 2),
        (Step::fail(-32603, "no"), false, 1),
    ] {
        let (lab, runner) = lab([reply]);
        let (steer, steering) = steer_channel();
        let stream = runner.run(lab.request("go").steering(steering));
        let running = tokio::spawn(finish(stream, Vec::new()));
        lab.control.reached("runs").await;
        assert_eq!(steer.send("also").await.is_ok(), taken);
        lab.control.open("end");
        let seen = running.await.unwrap();
        assert_eq!(seen.ok().answer, "done");
        let sent = lab.control.calls("_session/steering");
        assert_eq!(sent[0].message["params"]["prompt"][0]["text"], "also", "{sent:?}");
        run(&runner, lab.request("next").resume(seen.session())).await.ok();
        assert_eq!(lab.control.starts().len(), starts, "{sent:?}");
        runner.shutdown().await;
        lab.assert_nothing_left().await;
    }
}

/// More than the run's inbox holds stands ahead of what the agent says.
#[tokio::test]
async fn what_the_agent_says_to_a_late_message_is_read_behind_all_that_is_ahead_of_it() {
    let noise = std::iter::repeat_n(thought("hm"), 40);
    let late = [Step::gate("late")].into_iter().chain(noise).chain([Step::fail(-32603, "no")]);
    let (lab, runner) = lab(late);
    let (steer, steering) = steer_channel();
    let stream = runner.run(lab.request("go").steering(steering));
    let running = tokio::spawn(finish(stream, Vec::new()));
    lab.control.reached("runs").await;
    let sending = tokio::spawn(async move { steer.send("also").await });
    lab.control.call("_session/steering").await;
    lab.control.open("end");
    lab.control.reached("over").await;
    lab.control.open("late");
    assert!(sending.await.unwrap().is_err(), "it was not taken");
    let seen = running.await.unwrap();
    assert_eq!(seen.ok().answer, "done");
    run(&runner, lab.request("next").resume(seen.session())).await.ok();
    assert_eq!(lab.control.starts().len(), 1, "nothing is wrong with the process");
    runner.shutdown().await;
    lab.assert_nothing_left().await;
}

#[tokio::test]
async fn a_cancel_is_heard_while_the_agent_has_not_answered_a_late_message() {
    let (lab, runner) = lab([Step::gate("never")]);
    let (steer, steering) = steer_channel();
    let cancel = CancellationToken::new();
    let stream = runner.run(lab.request("go").steering(steering).cancel(cancel.clone()));
    let running = tokio::spawn(finish(stream, Vec::new()));
    lab.control.reached("runs").await;
    let sending = tokio::spawn(async move { steer.send("also").await });
    lab.control.call("_session/steering").await;
    lab.control.open("end");
    lab.control.reached("over").await;
    cancel.cancel();
    // The agent may have begun a turn with it, which is cancelled too.
    let cancelled: Value = lab.control.call("session/cancel").await.message;
    assert!(cancelled["params"]["sessionId"].is_string(), "{cancelled}");
    let seen = running.await.unwrap();
    assert_eq!(seen.failed("interrupted").answer, "done");
    assert!(sending.await.unwrap().is_err(), "it was not taken");
    runner.shutdown().await;
    lab.assert_nothing_left().await;
}
