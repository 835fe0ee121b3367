//! What the real pi asks of its host: approvals, tools, messages into a running turn.

use std::sync::{Arc, Mutex};

use futures::future::BoxFuture;
use serde_json::json;
use takopi_core::runner::{Reply, steer_channel};
use takopi_core::tools::{HostTool, HostToolCall};
use takopi_core::{ActionKind, ApprovalHandler, ApprovalRequest, Decision, RunRequest, Runner};
use takopi_tests::model::Gate;
use takopi_tests::model::chat::{Answer, ChatServer};
use takopi_tests::pi::home::TestHome;
use takopi_tests::pi::real;
use takopi_tests::runs::{finish, run};

use super::{LONG, engine, runner};

/// Decides everything alike, and remembers what was asked.
struct Always {
    decision: Decision,
    asked: Mutex<Vec<ApprovalRequest>>,
}

impl Always {
    fn new(decision: Decision) -> Arc<Self> {
        Arc::new(Self { decision, asked: Mutex::default() })
    }

    fn count(&self) -> usize {
        self.asked.lock().unwrap().len()
    }
}

impl ApprovalHandler for Always {
    fn decide(&self, request: ApprovalRequest) -> BoxFuture<'static, Decision> {
        self.asked.lock().unwrap().push(request);
        let decision = self.decision;
        Box::pin(async move { decision })
    }
}

fn asking(home: &TestHome, prompt: &str) -> RunRequest {
    home.request(prompt).permission_mode("default")
}

#[tokio::test]
async fn a_command_runs_only_if_it_is_approved() {
    let Some(pi) = real::pi_or_skip() else { return };
    for (decision, made, told) in [
        (Some(Decision::Accept), true, "(no output)"),
        (Some(Decision::Decline), false, "declined"),
        (None, false, "declined"),
    ] {
        let model = ChatServer::start();
        model.otherwise([Answer::new().bash("touch made"), Answer::text("done")]);
        let home = TestHome::new(&model);
        let runner = runner(engine(&pi), &home);
        let handler = decision.map(Always::new);
        let mut request = asking(&home, "go");
        if let Some(handler) = &handler {
            request = request.approvals(handler.clone());
        }
        let seen = run(&runner, request).await;
        assert_eq!(seen.ok().answer, "done", "{decision:?}");
        assert_eq!(home.workspace().join("made").exists(), made, "{decision:?}");
        let output = &model.requests()[1].tool_outputs()[0].text;
        assert!(output.contains(told), "{decision:?}: {output}");
        let approval = seen.done(&ActionKind::Approval)[0];
        assert_eq!(approval.ok, Some(made), "{approval:?}");
        if let Some(handler) = handler {
            let asked = handler.asked.lock().unwrap();
            assert_eq!(asked.len(), 1);
            assert!(asked[0].is_understood() && asked[0].is_whole(), "{asked:?}");
        }
        home.assert_no_processes().await;
    }
}

#[tokio::test]
async fn a_yes_for_the_session_is_asked_once_and_reading_never() {
    let Some(pi) = real::pi_or_skip() else { return };
    let model = ChatServer::start();
    let touch = || Answer::new().bash("touch made");
    let read = Answer::call("read", json!({ "path": "made" }));
    model.when("[[one]]", [touch(), touch(), read, Answer::text("done")]);
    model.when("[[two]]", [touch(), Answer::new().bash("touch other"), Answer::text("done")]);
    let home = TestHome::new(&model);
    let runner = runner(engine(&pi).keep_warm(LONG), &home);
    let handler = Always::new(Decision::AcceptForSession);
    let first = run(&runner, asking(&home, "[[one]]").approvals(handler.clone())).await;
    first.ok();
    assert_eq!(handler.count(), 1);
    let second = asking(&home, "[[two]]").approvals(handler.clone()).resume(first.session());
    run(&runner, second).await.ok();
    assert_eq!(handler.count(), 2, "another command is asked about");
    runner.shutdown().await;
    home.assert_no_processes().await;
}

/// Makes `touch other` of every command, for the session.
struct Changes(Mutex<Vec<ApprovalRequest>>);

impl ApprovalHandler for Changes {
    fn decide(&self, _: ApprovalRequest) -> BoxFuture<'static, Decision> {
        Box::pin(async { Decision::Decline })
    }

    fn reply(&self, request: ApprovalRequest) -> BoxFuture<'static, Reply> {
        self.0.lock().unwrap().push(request);
        let reply = Reply::from(Decision::AcceptForSession).with("command", "touch other");
        Box::pin(async move { reply })
    }
}

#[tokio::test]
async fn a_yes_for_the_session_is_for_the_command_that_was_accepted() {
    let Some(pi) = real::pi_or_skip() else { return };
    let model = ChatServer::start();
    let bash = |command: &str| Answer::new().bash(command);
    // Once asked and changed, once asked again, once allowed.
    let asked = || bash("touch made");
    model.otherwise([asked(), asked(), bash("touch other"), Answer::text("done")]);
    let home = TestHome::new(&model);
    let runner = runner(engine(&pi), &home);
    let handler = Arc::new(Changes(Mutex::default()));
    run(&runner, asking(&home, "go").approvals(handler.clone())).await.ok();
    assert_eq!(handler.0.lock().unwrap().len(), 2);
    assert!(home.workspace().join("other").exists() && !home.workspace().join("made").exists());
    home.assert_no_processes().await;
}

#[tokio::test]
async fn a_cancel_by_the_approval_handler_ends_the_turn() {
    let Some(pi) = real::pi_or_skip() else { return };
    let model = ChatServer::start();
    model.otherwise([Answer::new().bash("touch made"), Answer::text("went on")]);
    let home = TestHome::new(&model);
    let runner = runner(engine(&pi), &home);
    let handler = Always::new(Decision::Cancel);
    let seen = run(&runner, asking(&home, "go").approvals(handler)).await;
    seen.failed("interrupted");
    assert!(!home.workspace().join("made").exists());
    home.assert_no_processes().await;
}

#[tokio::test]
async fn tools_and_servers_of_the_host_are_offered_and_called() {
    let Some(pi) = real::pi_or_skip() else { return };
    let model = ChatServer::start();
    model.otherwise([
        Answer::call("read_ticket", json!({ "id": 7 })),
        Answer::call("read_ticket", json!({})),
        Answer::call("mcp__lab__echo", json!({ "text": "yo" })),
        Answer::text("done"),
    ]);
    let home = TestHome::new(&model);
    let schema = json!({ "type": "object", "properties": { "id": { "type": "integer" } } });
    let call = |call: HostToolCall| async move {
        match call.arguments["id"].as_i64() {
            Some(id) => Ok(format!("ticket {id} is open")),
            None => Err("there is no ticket without an id"),
        }
    };
    let tool = HostTool::new("read_ticket", "Reads a ticket.", schema, call);
    let runner = runner(engine(&pi).tool(tool).mcp_server(home.lab_mcp()), &home);
    let handler = Always::new(Decision::Accept);
    let seen = run(&runner, asking(&home, "go").approvals(handler.clone())).await;
    assert_eq!(seen.ok().answer, "done");
    assert_eq!(handler.count(), 1, "the host's own tools are not asked about, its servers are");
    let outputs = model.requests().last().unwrap().tool_outputs();
    let texts: Vec<&str> = outputs.iter().map(|output| output.text.as_str()).collect();
    assert_eq!(texts, ["ticket 7 is open", "there is no ticket without an id", "yo"]);
    let tools: Vec<String> =
        seen.done(&ActionKind::Tool).iter().map(|it| it.action.title.clone()).collect();
    assert_eq!(tools, ["read_ticket", "read_ticket", "lab.echo"]);
    home.assert_no_processes().await;
}

#[tokio::test]
async fn a_message_is_taken_into_the_running_turn() {
    let Some(pi) = real::pi_or_skip() else { return };
    let model = ChatServer::start();
    let gate = Gate::new();
    model.when("[[long]]", Answer::new().wait_for(&gate).bash("echo out"));
    model.when("[[also]]", "both done");
    let home = TestHome::new(&model);
    let runner = runner(engine(&pi), &home);
    let (steer, steering) = steer_channel();
    let stream = runner.run(home.request("[[long]]").steering(steering));
    gate.reached().await;
    steer.send("/and [[also]]").await.unwrap();
    gate.open();
    let seen = finish(stream, Vec::new()).await;
    assert_eq!(seen.ok().answer, "both done");
    let texts = model.requests().last().unwrap().user_texts();
    assert_eq!(texts, ["[[long]]", " /and [[also]]"]);
    home.assert_no_processes().await;
}
