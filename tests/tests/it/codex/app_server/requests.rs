//! Requests of a server to its client, and a bare client on a server that misbehaves.
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use futures::future::{BoxFuture, join, join_all};
use serde_json::{Value, json};
use takopi_codex::app_server::{Client, ClientError, ThreadOptions, TurnOptions};
use takopi_core::{
    ActionKind, ApprovalHandler, ApprovalRequest, Decision, Phase, Runner, TakopiEvent,
};
use takopi_tests::codex::fake::{Script, Server, Signal, Step, turn};
use takopi_tests::codex::lab::Lab;
use takopi_tests::limits::with_enough_time;
use takopi_tests::model::{PATIENCE, within};
use takopi_tests::runs::{Seen, finish, run};

/// Gives the same decision to everything, or none at all.
struct Always(Option<Decision>);

impl ApprovalHandler for Always {
    fn decide(&self, _request: ApprovalRequest) -> BoxFuture<'static, Decision> {
        match self.0 {
            Some(decision) => Box::pin(std::future::ready(decision)),
            None => Box::pin(std::future::pending()),
        }
    }
}

fn lab_of_turn(steps: impl IntoIterator<Item = Step>) -> Lab {
    Lab::new(Server::new().turns(steps).script())
}

async fn one_run(lab: &Lab, handler: Option<Always>) -> Seen {
    let runner = lab.app_server(Duration::ZERO);
    let mut request = lab.request("hi");
    if let Some(handler) = handler {
        request = request.approvals(Arc::new(handler));
    }
    let seen = run(&runner, request).await;
    runner.shutdown().await;
    lab.assert_nothing_left().await;
    seen
}

/// Every kind of request and how it is declined.
fn every_kind() -> Vec<(Step, Value)> {
    vec![
        (turn::ask_command("q", "c", "rm -rf /"), json!({"decision": "decline"})),
        (turn::ask_patch("q", "p"), json!({"decision": "decline"})),
        (turn::ask_permissions("q", "c", "/etc"), json!({"permissions": {}})),
        (turn::ask_elicitation("q", "lab", "may I?"), json!({"action": "decline"})),
        (turn::ask_user_input("q", "c", "which?"), json!({"answers": {}})),
    ]
}

#[tokio::test]
async fn requests_of_every_kind_are_declined_visibly_without_an_approval_handler() {
    for (ask, declined) in every_kind() {
        let patch = [turn::patch_started("p", &["/w/a.rs", "/w/b.rs"])];
        let steps = patch.into_iter().chain([ask.clone()]).chain(turn::answer("went on"));
        let lab = lab_of_turn(steps);
        let seen = one_run(&lab, None).await;
        assert_eq!(seen.ok().answer, "went on", "{ask:?}");
        assert_eq!(lab.control.answer("q").await["result"], declined);
        let approvals = seen.actions(&ActionKind::Approval);
        let warnings = seen.done(&ActionKind::Warning);
        let visible =
            approvals.iter().any(|it| it.phase == Phase::Completed && it.ok == Some(false));
        assert!(visible || !warnings.is_empty(), "{ask:?}: {:#?}", seen.events);
        for approval in approvals {
            assert!(!approval.action.title.is_empty());
            assert!(!approval.action.detail["cwd"].as_str().unwrap().is_empty());
        }
    }
}

#[tokio::test]
async fn what_is_asked_is_shown() {
    let patch = [turn::patch_started("p", &["/w/a.rs", "/w/b.rs"]), turn::ask_patch("q", "p")];
    let lab = lab_of_turn(patch.into_iter().chain(turn::answer("went on")));
    let seen = one_run(&lab, None).await;
    let outside = "(outside the working directory)";
    let title = format!("2 add: /w/a.rs {outside}, /w/b.rs {outside}");
    assert_eq!(seen.actions(&ActionKind::Approval)[0].action.title, title);
    let lab =
        lab_of_turn([turn::ask_command("q", "c", "ls -l")].into_iter().chain(turn::answer("")));
    let seen = one_run(&lab, None).await;
    let approval = seen.actions(&ActionKind::Approval)[0];
    assert_eq!(approval.action.title, "ls -l");
    assert_eq!(approval.action.detail["cwd"], lab.home.workspace().to_str().unwrap());
}

#[tokio::test]
async fn every_decision_reaches_the_server_in_its_protocol() {
    for (decision, word) in [
        (Decision::Accept, "accept"),
        (Decision::AcceptForSession, "acceptForSession"),
        (Decision::Decline, "decline"),
        (Decision::Cancel, "cancel"),
    ] {
        let lab =
            lab_of_turn([turn::ask_command("q", "c", "ls")].into_iter().chain(turn::answer("ok")));
        let seen = one_run(&lab, Some(Always(Some(decision)))).await;
        assert_eq!(lab.control.answer("q").await["result"], json!({"decision": word}));
        seen.completed();
    }
}

#[tokio::test]
async fn a_request_of_an_unknown_kind_is_refused_with_32601_and_shown() {
    let ask = Step::ask(
        "q",
        "item/hologram/requestApproval",
        json!({"threadId": "$THREAD", "turnId": "$TURN"}),
    );
    let nobodys = Step::ask("n", "host/unknown", json!({}));
    let lab = lab_of_turn([ask, nobodys].into_iter().chain(turn::answer("went on")));
    let seen = one_run(&lab, Some(Always(Some(Decision::Accept)))).await;
    assert_eq!(seen.ok().answer, "went on");
    assert_eq!(lab.control.answer("q").await["error"]["code"], -32601);
    assert_eq!(lab.control.answer("n").await["error"]["code"], -32601);
    let warnings = seen.done(&ActionKind::Warning);
    assert_eq!(warnings.len(), 2, "{warnings:?}");
    for (warning, method) in warnings.iter().zip(["item/hologram/requestApproval", "host/unknown"])
    {
        assert!(warning.action.title.contains(method), "{warnings:?}");
    }
}

#[tokio::test]
async fn an_unregistered_host_tool_fails_and_the_turn_goes_on() {
    let call = turn::ask_tool("q", "call-1", "weather", &json!({"city": "Piran"}));
    let lab = lab_of_turn([call].into_iter().chain(turn::answer("without")));
    assert_eq!(one_run(&lab, None).await.ok().answer, "without");
    assert_eq!(lab.control.answer("q").await["result"]["success"], false);
}

#[tokio::test]
async fn ids_of_requests_may_be_numbers_or_texts_and_come_back_as_they_were() {
    for id in [json!(0), json!("text-id"), json!(9_007_199_254_740_993_i64)] {
        let ask = turn::ask_command("q", "c", "ls").with_id(id.clone());
        let lab = lab_of_turn([ask].into_iter().chain(turn::answer("ok")));
        one_run(&lab, None).await.ok();
        assert_eq!(lab.control.answer("q").await["id"], id);
    }
}

#[tokio::test]
async fn a_turn_that_ends_right_behind_its_question_ends_the_run() {
    for decision in [None, Some(Decision::Accept)] {
        let ask = turn::ask_command("q", "c", "ls").without_waiting();
        let steps = turn::message("m", "done").into_iter().chain([ask, turn::completed()]);
        let lab = lab_of_turn(steps);
        let seen = one_run(&lab, Some(Always(decision))).await;
        assert_eq!(seen.ok().answer, "done", "{decision:?}");
    }
}

#[tokio::test]
async fn a_question_does_not_outlive_its_turn_in_the_stream() {
    let ask = turn::ask_command("q", "c", "ls").without_waiting();
    let ends = turn::message("m", "done").into_iter().chain([ask.clone(), turn::completed()]);
    let withdrawn = [ask, Step::Withdraw("q".to_owned())].into_iter().chain(turn::answer("done"));
    for steps in [ends.collect::<Vec<_>>(), withdrawn.collect()] {
        let seen = one_run(&lab_of_turn(steps), Some(Always(None))).await;
        let approvals = seen.actions(&ActionKind::Approval);
        let phases: Vec<_> = approvals.iter().map(|it| (it.phase, it.ok)).collect();
        assert_eq!(phases, [(Phase::Started, None), (Phase::Completed, Some(false))]);
    }
}

#[tokio::test]
async fn a_question_the_server_takes_back_does_not_hang_the_run() {
    let ask = turn::ask_command("q", "c", "ls").without_waiting();
    let steps = [ask, Step::Withdraw("q".to_owned())].into_iter().chain(turn::answer("went on"));
    let lab = lab_of_turn(steps);
    let seen = one_run(&lab, Some(Always(None))).await;
    assert_eq!(seen.ok().answer, "went on");
}

#[tokio::test]
async fn a_waiting_question_is_not_idle_and_cancel_overtakes_it() {
    with_enough_time(async |limit| {
        let lab = lab_of_turn([turn::ask_command("q", "c", "ls")]);
        let runner = lab.app_server(Duration::ZERO);
        let cancel = tokio_util::sync::CancellationToken::new();
        let request = lab.request("hi").approvals(Arc::new(Always(None))).idle_timeout(limit);
        let mut stream = runner.run(request.cancel(cancel.clone()));
        let mut events = Vec::new();
        let asked = loop {
            match stream.next().await {
                Some(event) => events.push(event),
                None => break false,
            }
            let last = events.last().unwrap();
            if matches!(last, TakopiEvent::Action(event) if event.action.kind == ActionKind::Approval)
            {
                break true;
            }
        };
        if !asked {
            // The limit was over before the question came.
            return false;
        }
        tokio::time::sleep(limit * 2).await;
        cancel.cancel();
        finish(stream, events).await.failed("interrupted");
        assert_eq!(lab.home.processes(), []);
        runner.shutdown().await;
        true
    })
    .await;
}

async fn client(lab: &Lab, timeout: Duration) -> Client {
    let mut launch = lab.launch();
    launch.request_timeout = timeout;
    Client::start(&lab.host, &launch).await.unwrap()
}

#[tokio::test]
async fn replies_out_of_order_reach_their_requests() {
    let server = Server::new()
        .always("thread/list", [Step::gate("list"), Step::ReplyWith(json!({"data": "list"}))])
        .always("model/list", [Step::gate("models"), Step::ReplyWith(json!({"data": "models"}))]);
    let lab = Lab::new(server.script());
    let client = client(&lab, PATIENCE).await;
    let list = client.call("thread/list", json!({}));
    let models = client.call("model/list", json!({}));
    let director = async {
        lab.control.call("thread/list").await;
        lab.control.call("model/list").await;
        lab.control.open("models");
        lab.control.open("list");
    };
    let (list, (models, ())) = join(list, join(models, director)).await;
    assert_eq!(list.unwrap()["data"], "list");
    assert_eq!(models.unwrap()["data"], "models");
    client.close().await;
}

#[tokio::test]
async fn a_request_that_is_never_answered_times_out_and_a_late_reply_is_dropped() {
    with_enough_time(async |limit| {
        let server = Server::new().once("thread/list", [Step::gate("late"), Step::Reply]);
        let lab = Lab::new(server.script());
        let mut launch = lab.launch();
        launch.request_timeout = limit;
        let Ok(client) = Client::start(&lab.host, &launch).await else { return false };
        let error = client.call("thread/list", json!({})).await.unwrap_err();
        assert!(matches!(error, ClientError::Timeout { .. }), "{error}");
        assert!(error.to_string().contains("thread/list"), "{error}");
        lab.control.open("late");
        let next = client.call("thread/list", json!({})).await;
        client.close().await;
        lab.assert_nothing_left().await;
        next.is_ok()
    })
    .await;
}

#[tokio::test]
async fn a_server_that_dies_fails_everything_pending_at_once() {
    let server = Server::new()
        .always("thread/list", [])
        .always("model/list", [Step::stderr("Error: out of cheese"), Step::Die(Signal::Kill)]);
    let lab = Lab::new(server.script());
    let client = client(&lab, Duration::from_mins(10)).await;
    let pending = join_all((0..20).map(|_| client.call("thread/list", json!({}))));
    let killer = async {
        lab.control.nth_call("thread/list", 19).await;
        client.call("model/list", json!({})).await
    };
    let (pending, killer) = within(PATIENCE, "everything to fail", join(pending, killer)).await;
    let Err(ClientError::Closed { stderr_tail, .. }) = killer else { panic!("not closed") };
    assert!(stderr_tail.contains("out of cheese"), "{stderr_tail}");
    for answer in pending {
        assert!(matches!(answer, Err(ClientError::Closed { .. })), "{answer:?}");
    }
    client.closed().await;
    assert!(client.is_closed());
}

#[tokio::test]
async fn closing_a_client_races_with_its_turn_and_nothing_panics_or_stays() {
    let deltas = (0..50).map(|n| turn::delta("m", &format!("{n}")));
    let lab = Lab::new(Script::app_server(Server::new().turns(deltas.chain(turn::answer("done")))));
    for round in 0..100_u64 {
        let client = client(&lab, PATIENCE).await;
        let thread = client.start_thread(&ThreadOptions::default()).await.unwrap();
        let options = TurnOptions::default();
        let turn = thread.run("hi", &options);
        let close = async {
            // A few yields more each round: the race is met at other points.
            for _ in 0..round % 25 {
                tokio::task::yield_now().await;
            }
            if round % 3 == 0 { client.kill().await } else { client.close().await }
        };
        let both = join(turn, close);
        match within(PATIENCE, "both to end", both).await.0 {
            Ok(report) => assert_eq!(report.answer.as_deref(), Some("done")),
            Err(error) => assert!(matches!(error, ClientError::Closed { .. }), "{error}"),
        }
    }
    lab.assert_nothing_left().await;
}
