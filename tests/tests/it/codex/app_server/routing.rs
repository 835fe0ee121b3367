//! Routing: requests of sub-agents and of no known thread, messages that cannot be attributed, and what
//! counts as a sign of life of a turn.
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::future::BoxFuture;
use serde_json::{Value, json};
use takopi_codex::app_server::{Client, CodexAppServer, ThreadOptions, TurnOptions};
use takopi_core::runner::Question;
use takopi_core::tools::HostTool;
use takopi_core::{
    ActionKind, ApprovalHandler, ApprovalRequest, Decision, EngineRunner, Phase, Runner,
};
use takopi_tests::codex::fake::{Server, Step, turn};
use takopi_tests::codex::lab::Lab;
use takopi_tests::limits::with_enough_time;
use takopi_tests::model::{PATIENCE, within};
use takopi_tests::runs::{Seen, run};

const CHILD: &str = "01a1e21b-0000-7eb0-9d27-459e98f10b74";
const GRANDCHILD: &str = "01a1e21b-0001-7eb0-9d27-459e98f10b74";

/// Accepts everything and remembers what it was.
#[derive(Default)]
struct Accepts(Mutex<Vec<ApprovalRequest>>);

impl ApprovalHandler for Accepts {
    fn decide(&self, request: ApprovalRequest) -> BoxFuture<'static, Decision> {
        self.0.lock().unwrap().push(request);
        Box::pin(std::future::ready(Decision::Accept))
    }
}

async fn one_run(server: Server) -> (Lab, Seen, Vec<ApprovalRequest>) {
    let lab = Lab::new(server.script());
    let runner = lab.app_server(Duration::ZERO);
    let handler = Arc::new(Accepts::default());
    let seen = run(&runner, lab.request("hi").approvals(handler.clone())).await;
    runner.shutdown().await;
    lab.assert_nothing_left().await;
    let asked = std::mem::take(&mut *handler.0.lock().unwrap());
    (lab, seen, asked)
}

fn warnings(seen: &Seen) -> Vec<&str> {
    seen.done(&ActionKind::Warning).iter().map(|it| it.action.title.as_str()).collect()
}

fn spawn_item(parent: &str, child: &str) -> Value {
    json!({
        "type": "collabAgentToolCall", "id": "spawn", "tool": "spawnAgent", "status": "completed",
        "senderThreadId": parent, "receiverThreadIds": [child], "prompt": "go", "agentsStates": {},
    })
}

/// The ways in which a server reports that a sub-agent was started.
fn started_child() -> Vec<Step> {
    let spawned =
        json!({"subAgent": {"thread_spawn": {"parent_thread_id": "$THREAD", "depth": 1}}});
    let activity = json!({
        "type": "subAgentActivity", "id": "a", "kind": "started",
        "agentPath": "/root/child", "agentThreadId": CHILD,
    });
    vec![
        turn::item_completed(&spawn_item("$THREAD", CHILD)),
        turn::item_started(&activity),
        Step::notify(
            "thread/started",
            json!({"thread": {"id": CHILD, "parentThreadId": "$THREAD"}}),
        ),
        Step::notify("thread/started", json!({"thread": {"id": CHILD, "source": spawned}})),
    ]
}

/// Every kind of request, how it is accepted and how it is declined.
fn every_kind() -> Vec<(Step, Value, Value)> {
    let granted = json!({
        "permissions": {"fileSystem": {"write": ["/etc"]}, "network": {"enabled": true}},
        "scope": "turn",
    });
    let decision = |word: &str| json!({ "decision": word });
    let action = json!({"action": "decline"});
    vec![
        (turn::ask_command("q", "c", "ls"), decision("accept"), decision("decline")),
        (turn::ask_patch("q", "p"), decision("accept"), decision("decline")),
        (turn::ask_permissions("q", "c", "/etc"), granted, json!({"permissions": {}})),
        (
            turn::ask_elicitation("q", "lab", "may I?"),
            json!({"action": "accept", "content": {}}),
            action,
        ),
        (turn::ask_user_input("q", "c", "which?"), json!({"answers": {}}), json!({"answers": {}})),
    ]
}

/// The same and the requests that no handler is asked about, and how each is declined.
fn every_refusal() -> Vec<(Step, Value)> {
    let mut all: Vec<_> =
        every_kind().into_iter().map(|(ask, _, declined)| (ask, declined)).collect();
    // The names of two approvals before version 2 of the protocol.
    for method in ["execCommandApproval", "applyPatchApproval"] {
        let ids = json!({"threadId": "$THREAD", "turnId": "$TURN", "callId": "c"});
        all.push((Step::ask("q", method, ids), json!({"decision": "denied"})));
    }
    let text = json!({"type": "inputText", "text": "this tool is not available"});
    let failed = json!({"success": false, "contentItems": [text]});
    all.push((turn::ask_tool("q", "c", "weather", &json!({})), failed));
    all
}

#[tokio::test]
async fn what_a_sub_agent_asks_is_asked_in_the_run_that_started_it_and_marked() {
    for started in started_child() {
        for (ask, accepted, _) in every_kind() {
            let steps = [started.clone()].into_iter();
            let steps = steps.chain(turn::elsewhere(CHILD, "child-turn", [ask.clone()]));
            let (lab, seen, asked) =
                one_run(Server::new().turns(steps.chain(turn::answer("done")))).await;
            assert_eq!(seen.ok().answer, "done");
            assert_eq!(lab.control.answer("q").await["result"], accepted, "{started:?} {ask:?}");
            assert_eq!(asked.len(), 1);
            let approvals = seen.actions(&ActionKind::Approval);
            assert_eq!(approvals.len(), 2, "{approvals:?}");
            for approval in approvals {
                assert_eq!(approval.action.detail["subagent"], CHILD);
            }
        }
    }
}

#[tokio::test]
async fn a_sub_agent_of_a_sub_agent_asks_in_the_run_at_the_top() {
    let grandchild = turn::elsewhere(
        CHILD,
        "child-turn",
        [turn::item_completed(&spawn_item("$THREAD", GRANDCHILD))],
    );
    let steps = [turn::item_completed(&spawn_item("$THREAD", CHILD))].into_iter().chain(grandchild);
    let ask = turn::elsewhere(GRANDCHILD, "deep", [turn::ask_command("q", "c", "ls")]);
    let (lab, seen, asked) =
        one_run(Server::new().turns(steps.chain(ask).chain(turn::answer("done")))).await;
    seen.ok();
    assert_eq!(lab.control.answer("q").await["result"], json!({"decision": "accept"}));
    assert_eq!(asked[0].subagent.as_deref(), Some(GRANDCHILD));
}

/// Never decides.
struct Undecided;

impl ApprovalHandler for Undecided {
    fn decide(&self, _: ApprovalRequest) -> BoxFuture<'static, Decision> {
        Box::pin(std::future::pending())
    }
}

#[tokio::test]
async fn an_open_request_of_a_sub_agent_is_declined_when_the_turn_above_it_ends() {
    let mut asks = every_kind();
    let text = json!({"type": "inputText", "text": "this tool is not available"});
    let failed = json!({"success": false, "contentItems": [text]});
    asks.push((turn::ask_tool("q", "c", "slow", &json!({})), Value::Null, failed));
    for (ask, _, declined) in asks {
        let ask = ask.without_waiting();
        let steps = [turn::item_completed(&spawn_item("$THREAD", CHILD))].into_iter();
        let steps = steps.chain(turn::elsewhere(CHILD, "child-turn", [ask.clone()]));
        let lab = Lab::new(Server::new().turns(steps.chain(turn::answer("done"))).script());
        let tool = HostTool::new("slow", "", json!({}), |_| {
            std::future::pending::<Result<String, String>>()
        });
        let engine = CodexAppServer::new(lab.codex()).keep_warm(Duration::from_hours(1)).tool(tool);
        let runner = EngineRunner::new(engine).on(lab.host.clone());
        let seen = run(&runner, lab.request("hi").approvals(Arc::new(Undecided))).await;
        assert_eq!(seen.ok().answer, "done");
        let answer = within(PATIENCE, "an answer", lab.control.answer("q")).await;
        assert_eq!(answer["result"], declined, "{ask:?}");
        assert_eq!(lab.control.answers("q").len(), 1);
        runner.shutdown().await;
        lab.assert_nothing_left().await;
    }
}

#[tokio::test]
async fn the_patch_of_a_sub_agent_is_shown_and_a_question_it_takes_back_is_closed() {
    let child = [
        turn::patch_started("p", &["/w/a.rs", "/w/b.rs"]),
        turn::ask_patch("q", "p"),
        turn::ask_command("w", "c", "ls").with_id(77).without_waiting(),
        Step::notify("serverRequest/resolved", json!({"threadId": CHILD, "requestId": 77})),
    ];
    let steps = [turn::item_completed(&spawn_item("$THREAD", CHILD))].into_iter();
    let steps = steps.chain(turn::elsewhere(CHILD, "child-turn", child));
    let lab = Lab::new(Server::new().turns(steps.chain(turn::answer("done"))).script());
    let runner = lab.app_server(Duration::ZERO);
    let seen = run(&runner, lab.request("hi")).await;
    runner.shutdown().await;
    assert_eq!(seen.ok().answer, "done");
    let approvals = seen.actions(&ActionKind::Approval);
    assert_eq!(
        approvals[0].action.title,
        "2 add: /w/a.rs (outside the working directory), /w/b.rs (outside the working directory)"
    );
    assert_eq!(approvals.iter().filter(|it| it.phase == Phase::Completed).count(), 2);
    assert!(seen.actions(&ActionKind::FileChange).is_empty(), "it is not the turn's own patch");
}

/// The files of the patch that was asked about.
fn files(asked: &ApprovalRequest) -> Vec<String> {
    let Question::Patch(patch) = &asked.question else { panic!("{asked:?}") };
    patch.files.iter().map(|file| file.path.path.display().to_string()).collect()
}

#[tokio::test]
async fn an_approval_shows_the_patch_of_the_agent_that_asks_though_ids_are_the_same() {
    let child = |steps: Vec<Step>| turn::elsewhere(CHILD, "child-turn", steps);
    let mut steps = vec![turn::item_completed(&spawn_item("$THREAD", CHILD))];
    steps.extend(child(vec![turn::patch_started("p", &["/w/child.rs"])]));
    steps.push(turn::patch_started("p", &["/w/parent.rs"]));
    steps.extend(child(vec![
        turn::ask_patch("q", "p"),
        turn::patch_completed("p", &["/w/child.rs"], "completed"),
        turn::ask_patch("q", "p"),
    ]));
    steps.push(turn::ask_patch("q", "p"));
    steps.extend(turn::answer("done"));
    let (_, seen, asked) = one_run(Server::new().turns(steps)).await;
    seen.ok();
    let shown: Vec<_> = asked.iter().map(files).collect();
    assert_eq!(shown, [vec!["/w/child.rs"], vec![], vec!["/w/parent.rs"]]);
}

#[tokio::test]
async fn a_request_of_an_unknown_thread_is_declined_visibly_without_a_handler() {
    for (ask, declined) in every_refusal() {
        let steps = turn::elsewhere("01a1e21b-ffff-7eb0-9d27-459e98f10b74", "x", [ask.clone()]);
        let (lab, seen, asked) =
            one_run(Server::new().turns(steps.into_iter().chain(turn::answer("done")))).await;
        seen.ok();
        assert_eq!(lab.control.answer("q").await["result"], declined, "{ask:?}");
        assert!(asked.is_empty());
        let shown = warnings(&seen);
        assert_eq!(shown.len(), 1, "{shown:?}");
        assert!(shown[0].starts_with("declined: "), "{shown:?}");
    }
}

#[tokio::test]
async fn a_request_whose_address_cannot_be_read_is_declined_visibly_without_a_handler() {
    for (ask, declined) in every_refusal() {
        for id in ["threadId", "turnId"] {
            let ask = ask.clone().with_param(id, 7);
            let steps = [ask.clone()].into_iter().chain(turn::answer("done"));
            let (lab, seen, asked) = one_run(Server::new().turns(steps)).await;
            seen.ok();
            assert_eq!(lab.control.answer("q").await["result"], declined, "{ask:?}");
            assert!(asked.is_empty(), "{ask:?}");
            let shown = warnings(&seen);
            assert_eq!(shown.len(), 1, "{shown:?}");
            assert!(shown[0].starts_with("declined: "), "{shown:?}");
        }
    }
}

#[tokio::test]
async fn a_request_of_an_earlier_turn_of_the_thread_is_declined_visibly() {
    for (ask, declined) in every_refusal() {
        if matches!(&ask, Step::Ask(ask) if ask.method == "mcpServer/elicitation/request") {
            // Which turn it belongs to is only guessed by the server.
            continue;
        }
        let steps = turn::elsewhere("$THREAD", "an-earlier-turn", [ask.clone()]);
        let (lab, seen, asked) =
            one_run(Server::new().turns(steps.into_iter().chain(turn::answer("done")))).await;
        seen.ok();
        assert_eq!(lab.control.answer("q").await["result"], declined, "{ask:?}");
        assert!(asked.is_empty());
        assert_eq!(warnings(&seen).len(), 1);
    }
}

#[tokio::test]
async fn a_request_that_comes_when_no_turn_runs_is_declined() {
    for (ask, declined) in every_refusal() {
        let late = turn::answer("done").into_iter().chain([ask.clone()]);
        let before = turn::elsewhere("nowhere", "never", [ask.clone()]);
        let server = Server::new()
            .turns(late)
            .always("model/list", before.into_iter().chain([Step::ReplyWith(json!({"data": []}))]));
        let lab = Lab::new(server.script());
        let client = Client::start(&lab.host, &lab.launch()).await.unwrap();
        let options = takopi_codex::app_server::ModelOptions::default();
        client.models(&options).await.unwrap();
        let thread = client.start_thread(&ThreadOptions::default()).await.unwrap();
        thread.run("hi", &TurnOptions::default()).await.unwrap();
        // The late one is on its way.
        let both = async {
            while lab.control.answers("q").len() < 2 {
                tokio::task::yield_now().await;
            }
        };
        within(PATIENCE, "both answers", both).await;
        for answer in lab.control.answers("q") {
            assert_eq!(answer["result"], declined, "{ask:?}");
        }
        client.close().await;
    }
}

#[tokio::test]
async fn a_bare_client_that_only_waits_for_the_end_declines_what_is_asked() {
    for (ask, declined) in every_refusal() {
        let child = turn::elsewhere("nowhere", "never", [ask.clone()]);
        let steps = [ask.clone()].into_iter().chain(child).chain(turn::answer("done"));
        let lab = Lab::new(Server::new().turns(steps).script());
        let client = Client::start(&lab.host, &lab.launch()).await.unwrap();
        let thread = client.start_thread(&ThreadOptions::default()).await.unwrap();
        thread.run("hi", &TurnOptions::default()).await.unwrap();
        let answers = lab.control.answers("q");
        assert_eq!(answers.len(), 2);
        for answer in answers {
            assert_eq!(answer["result"], declined, "{ask:?}");
        }
        client.close().await;
    }
}

#[tokio::test]
async fn notifications_without_an_owner_do_not_keep_a_hung_turn_alive() {
    let limits = json!({"rateLimits": {"primary": {"usedPercent": "$SEQ"}}});
    let neighbour = json!({"threadId": "elsewhere", "status": {"type": "idle"}});
    let earlier = json!({"threadId": "$THREAD", "turnId": "earlier", "tokenUsage": {}});
    let starting = json!({"threadId": "$THREAD", "name": "lab", "status": "starting"});
    let lost = json!({"threadId": "$THREAD", "turnId": "$TURN", "willRetry": true,
                      "error": {"message": "Reconnecting... 1/5"}});
    with_enough_time(async |limit| {
        // For four times as long as the limit.
        let notices = (0..limit.as_millis() / 25).flat_map(|_| {
            let notices = [
                Step::notify("account/rateLimits/updated", limits.clone()),
                Step::notify("thread/status/changed", neighbour.clone()),
                Step::notify("thread/tokenUsage/updated", earlier.clone()),
                Step::notify("mcpServer/startupStatus/updated", starting.clone()),
                Step::notify("warning", json!({"threadId": "$THREAD", "message": "slow"})),
                Step::notify("error", lost.clone()),
                Step::line("not JSON"),
                Step::Pause { millis: 100 },
            ];
            // Declined, each with a warning.
            let ask = turn::elsewhere("nowhere", "never", [turn::ask_command("q", "c", "ls")]);
            notices.into_iter().chain(ask)
        });
        let lab = Lab::new(Server::new().turns(notices.chain(turn::answer("too late"))).script());
        let runner = lab.app_server(Duration::ZERO);
        let seen = run(&runner, lab.request("hi").idle_timeout(limit)).await;
        runner.shutdown().await;
        lab.assert_nothing_left().await;
        seen.failed("timeout_idle");
        // Else the limit was reached before the server had printed anything of that.
        !warnings(&seen).is_empty()
    })
    .await;
}

/// Messages whose address cannot be read, or is another turn's.
fn odd_messages() -> Vec<Step> {
    let end = json!({"id": "another", "status": "failed", "items": [], "error": {"message": "no"}});
    let item = json!({"type": "agentMessage", "id": "x", "text": "not mine"});
    vec![
        Step::notify("item/completed", json!({"threadId": 7, "turnId": "$TURN", "item": item})),
        Step::notify("item/completed", json!({"threadId": "$THREAD", "turnId": 7, "item": item})),
        Step::notify("item/completed", json!({"item": item})),
        Step::notify("turn/completed", json!({"threadId": 7, "turn": end})),
        Step::notify("turn/completed", json!({"turn": end})),
        Step::notify("turn/completed", json!({"threadId": "$THREAD", "turn": true})),
        Step::notify("turn/completed", json!({"threadId": {"id": "$THREAD"}, "turn": end})),
        Step::notify("turn/completed", json!({"threadId": "$THREAD", "turn": {}})),
        Step::notify("turn/completed", json!({"threadId": "$THREAD"})),
        Step::notify("error", json!({"error": {"message": "not mine"}, "willRetry": false})),
        Step::notify("turn/completed", json!([])),
    ]
}

#[tokio::test]
async fn a_message_whose_address_cannot_be_read_has_no_owner_and_is_reported_once() {
    for odd in odd_messages() {
        let steps = [odd.clone(), odd.clone()].into_iter().chain(turn::answer("mine"));
        let (_, seen, _) = one_run(Server::new().turns(steps)).await;
        assert_eq!(seen.ok().answer, "mine", "{odd:?}");
        let shown = warnings(&seen);
        assert_eq!(shown.len(), 1, "{odd:?}: {shown:?}");
        assert!(shown[0].contains("protocol has drifted"), "{shown:?}");
    }
}

/// A command that has ended, with these fields beside its own.
fn command(id: &str, fields: &Value) -> Value {
    let mut item = json!({
        "type": "commandExecution", "id": id, "command": "ls", "status": "completed", "exitCode": 0,
    });
    item.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
    item
}

fn commands(seen: &Seen) -> Vec<&str> {
    seen.done(&ActionKind::Command).iter().map(|it| it.action.id.as_str()).collect()
}

#[tokio::test]
async fn a_turn_given_as_text_is_compared_with_the_turn_that_runs() {
    let of_another = json!({"threadId": "$THREAD", "turn": "another"});
    let elsewhere = json!({"threadId": "elsewhere", "turn": "another"});
    let own = json!({"threadId": "$THREAD", "turn": "$TURN", "item": command("own", &json!({}))});
    let steps = [
        Step::notify("turn/completed", of_another),
        Step::notify("turn/completed", elsewhere),
        Step::notify("item/completed", own),
    ];
    let steps = steps.into_iter().chain(turn::answer("mine"));
    let (_, seen, _) = one_run(Server::new().turns(steps)).await;
    assert_eq!(seen.ok().answer, "mine");
    assert_eq!(commands(&seen), ["own"]);
    assert!(warnings(&seen).is_empty(), "{:?}", warnings(&seen));
}

#[tokio::test]
async fn ids_are_read_from_where_they_stand_if_there_is_no_doubt() {
    let items = [
        ("both", json!({"threadId": "$THREAD", "turnId": "$TURN"})),
        ("thread", json!({"threadId": "$THREAD"})),
        ("turn", json!({"turnId": "$TURN"})),
        ("of another turn", json!({"threadId": "$THREAD", "turnId": "another"})),
        ("of another thread", json!({"threadId": "elsewhere", "turnId": "$TURN"})),
    ];
    let mut steps: Vec<Step> = items
        .iter()
        .map(|(id, ids)| Step::notify("item/completed", json!({ "item": command(id, ids) })))
        .collect();
    steps.extend(turn::message("m", "done"));
    steps.push(Step::notify(
        "turn/completed",
        json!({"turn": {"id": "$TURN", "status": "completed", "items": []}}),
    ));
    let (_, seen, _) = one_run(Server::new().turns(steps)).await;
    assert_eq!(seen.ok().answer, "done");
    assert_eq!(commands(&seen), ["both", "thread", "turn"]);
    assert!(warnings(&seen).is_empty(), "{:?}", warnings(&seen));
}
