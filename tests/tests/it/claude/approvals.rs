//! Approvals, questions, plans and host tools on the real Claude Code.

use std::sync::{Arc, Mutex};

use serde_json::json;
use takopi_core::approvals::{Rules, from_fn};
use takopi_core::mcp::McpServer;
use takopi_core::runner::{Question, Reply};
use takopi_core::tools::HostTool;
use takopi_core::{ActionKind, ApprovalRequest, Decision, RunRequest, Runner};
use takopi_tests::claude::home::TestHome;
use takopi_tests::claude::real;
use takopi_tests::model::messages::{Answer, MessagesServer};
use takopi_tests::runs::{Seen, run};

use super::{LONG, engine, runner};

/// Decides everything in the same way, and records what was asked.
fn deciding(
    request: RunRequest,
    reply: impl Fn(&ApprovalRequest) -> Reply + Send + Sync + 'static,
) -> (RunRequest, Arc<Mutex<Vec<ApprovalRequest>>>) {
    let asked: Arc<Mutex<Vec<ApprovalRequest>>> = Arc::default();
    let record = asked.clone();
    let handler = from_fn(move |request: ApprovalRequest| {
        let reply = reply(&request);
        record.lock().unwrap().push(request);
        async move { reply }
    });
    (request.approvals(Arc::new(handler)), asked)
}

fn decisions(seen: &Seen) -> Vec<String> {
    let decided = seen.done(&ActionKind::Approval);
    decided.iter().map(|event| event.message.clone().unwrap_or_default()).collect()
}

#[tokio::test]
async fn a_command_is_allowed_declined_changed_or_ends_the_turn() {
    let Some(claude) = real::claude_or_skip() else { return };
    let model = MessagesServer::start();
    let home = TestHome::new(&model);
    let file = |name: &str| home.workspace().join(name);
    model.otherwise([
        Answer::new().bash(&format!("touch {}", file("asked").display())),
        Answer::text("After."),
    ]);
    let runner = runner(engine(&claude), &home);

    let (request, asked) = deciding(home.request("one"), |_| Decision::Accept.into());
    let seen = run(&runner, request).await;
    assert_eq!(seen.ok().answer, "After.");
    assert!(file("asked").exists());
    assert_eq!(decisions(&seen), ["accepted"]);
    let asked = asked.lock().unwrap().pop().unwrap();
    assert!(matches!(&asked.question, Question::Command(it) if it.command.starts_with("touch ")));
    assert_eq!(asked.cwd, home.workspace());
    assert!(asked.is_understood(), "{asked:?}");

    std::fs::remove_file(file("asked")).unwrap();
    let (request, _) = deciding(home.request("two"), |_| {
        Reply::from(Decision::Decline).because("not on a Friday")
    });
    let seen = run(&runner, request).await;
    assert_eq!(seen.ok().answer, "After.", "the agent goes on");
    assert!(!file("asked").exists());
    let told = model.requests().pop().unwrap().tool_outputs().pop().unwrap();
    assert_eq!(told.text, "not on a Friday");

    let other = format!("touch {}", file("changed").display());
    let (request, _) = deciding(home.request("three"), move |_| {
        Reply::from(Decision::Accept).with("command", other.as_str())
    });
    run(&runner, request).await.ok();
    assert!(file("changed").exists() && !file("asked").exists());

    let (request, _) = deciding(home.request("four"), |_| Decision::Cancel.into());
    let seen = run(&runner, request).await;
    seen.failed("interrupted");
    assert!(!file("asked").exists());

    let nobody = run(&runner, home.request("five")).await;
    assert_eq!(decisions(&nobody), ["declined: no approval handler"]);
    assert!(!file("asked").exists());
    runner.shutdown().await;
    home.assert_no_processes().await;
}

#[tokio::test]
async fn for_the_session_is_not_asked_again_and_nothing_is_written_for_ever() {
    let Some(claude) = real::claude_or_skip() else { return };
    let model = MessagesServer::start();
    let home = TestHome::new(&model);
    let path = home.workspace().join("new.txt");
    let touch = format!("touch {}", home.workspace().join("touched").display());
    let write =
        |text: &str| json!({ "file_path": path.to_str().unwrap(), "content": format!("{text}\n") });
    model.otherwise([
        Answer::new().bash(&touch),
        Answer::new().bash(&touch),
        Answer::new().tool("Write", write("one")),
        Answer::new().tool("Write", write("two")),
        Answer::text("Done."),
    ]);
    let runner = runner(engine(&claude).keep_warm(LONG), &home);
    let (request, asked) = deciding(home.request("go"), |_| Decision::AcceptForSession.into());
    let seen = run(&runner, request).await;
    assert_eq!(seen.ok().answer, "Done.");
    assert_eq!(std::fs::read_to_string(&path).unwrap(), "two\n");
    let asked = asked.lock().unwrap().clone();
    let kinds: Vec<_> = asked.iter().map(|asked| asked.kind().as_str()).collect();
    assert_eq!(kinds, ["command", "file_change"], "each once");
    assert!(!home.workspace().join(".claude").exists(), "no rule is kept in the project");
    runner.shutdown().await;
}

#[tokio::test]
async fn a_question_gets_its_answer_and_a_plan_its_approval() {
    let Some(claude) = real::claude_or_skip() else { return };
    let model = MessagesServer::start();
    let home = TestHome::new(&model);
    let question = json!({ "questions": [{
        "question": "Which color?", "header": "Color", "multiSelect": false,
        "options": [
            { "label": "Red", "description": "warm" },
            { "label": "Blue", "description": "cold" },
        ],
    }] });
    model.when("[[ask]]", [Answer::call("AskUserQuestion", question), Answer::text("Thanks.")]);
    let plan = json!({ "plan": "1. Do it." });
    model.when("[[plan]]", [Answer::call("ExitPlanMode", plan), Answer::text("Planned.")]);
    let runner = runner(engine(&claude), &home);
    let (request, asked) = deciding(home.request("[[ask]]"), |_| {
        Reply::from(Decision::Accept).with("Which color?", "Blue")
    });
    assert_eq!(run(&runner, request).await.ok().answer, "Thanks.");
    let asked = asked.lock().unwrap().pop().unwrap();
    let Question::Questions(questions) = &asked.question else { panic!("{asked:?}") };
    assert_eq!(questions[0].options[1].label, "Blue");
    let told = model.requests_about("[[ask]]").pop().unwrap().tool_outputs().pop().unwrap();
    assert!(told.text.contains("Blue"), "{}", told.text);

    let request = home.request("[[plan]]").permission_mode("plan");
    let (request, asked) = deciding(request, |_| Decision::Accept.into());
    assert_eq!(run(&runner, request).await.ok().answer, "Planned.");
    let asked = asked.lock().unwrap().pop().unwrap();
    assert!(matches!(&asked.question, Question::Plan(_)), "{asked:?}");
    runner.shutdown().await;
}

#[tokio::test]
async fn a_tool_of_the_host_is_called_without_approval() {
    let Some(claude) = real::claude_or_skip() else { return };
    let model = MessagesServer::start();
    let home = TestHome::new(&model);
    model.otherwise([
        Answer::call("mcp__takopi__greet", json!({ "name": "Ada" })),
        Answer::call("mcp__takopi__fails", json!({})),
        Answer::text("Greeted."),
    ]);
    let schema = json!({ "type": "object", "properties": { "name": { "type": "string" } } });
    let greet = HostTool::new("greet", "Greets.", schema.clone(), |call| async move {
        Ok::<_, String>(format!("hello {}", call.arguments["name"].as_str().unwrap_or("nobody")))
    });
    let fails =
        HostTool::new("fails", "Fails.", schema, |_| async { Err::<String, _>("no such ticket") });
    let runner = runner(engine(&claude).tool(greet).tool(fails), &home);
    let seen = run(&runner, home.request("go")).await;
    assert_eq!(seen.ok().answer, "Greeted.");
    let outputs = model.requests().pop().unwrap().tool_outputs();
    assert_eq!(outputs[0].text, "hello Ada");
    assert!(outputs[1].text.contains("no such ticket"), "{}", outputs[1].text);
    let tools = seen.done(&ActionKind::Tool);
    let titles: Vec<_> = tools.iter().map(|event| event.action.title.as_str()).collect();
    assert!(titles[0].starts_with("takopi.greet"), "{titles:?}");
    assert_eq!(tools[1].ok, Some(false));
    runner.shutdown().await;
    home.assert_no_processes().await;
}

#[tokio::test]
async fn tools_of_the_hosts_own_mcp_server_pass_by_a_rule_and_others_are_declined() {
    let Some(claude) = real::claude_or_skip() else { return };
    let model = MessagesServer::start();
    let home = TestHome::new(&model);
    let call =
        |server: &str| Answer::call(&format!("mcp__{server}__echo"), json!({ "text": "yo" }));
    model.otherwise([call("ours"), call("theirs"), Answer::text("ended")]);
    let binary = takopi_tests::codex::fake::binary().with_file_name("lab-mcp");
    let server = |name: &str| {
        let server = McpServer::new(name, &binary).unwrap();
        home.env().into_iter().fold(server, |server, (name, value)| server.env(name, value))
    };
    let engine = engine(&claude).mcp_server(server("ours")).mcp_server(server("theirs"));
    let runner = runner(engine, &home);
    let rules = Arc::new(Rules::new().mcp_server("ours"));
    let seen = run(&runner, home.request("go").approvals(rules)).await;
    assert_eq!(seen.ok().answer, "ended");
    let decided: Vec<_> = seen.done(&ActionKind::Approval).iter().map(|it| it.ok).collect();
    assert_eq!(decided, [Some(true), Some(false)], "{:#?}", seen.outline());
    let outputs = model.requests().pop().unwrap().tool_outputs();
    assert!(outputs[0].text.contains(r#""a":1"#), "{outputs:?}");
    runner.shutdown().await;
    home.assert_no_processes().await;
}
