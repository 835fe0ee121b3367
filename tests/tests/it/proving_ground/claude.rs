//! The scripted model and the real Claude Code, run without takopi: what the other tests of Claude Code rely on.

use std::path::Path;

use serde_json::{Value, json};
use takopi_tests::claude::duplex::Duplex;
use takopi_tests::claude::home::TestHome;
use takopi_tests::claude::real;
use takopi_tests::model::messages::{Answer, MessagesRequest, MessagesServer};
use takopi_tests::model::{Gate, Outcome};

/// Approvals come over the stream.
const ASKING: [&str; 2] = ["--permission-prompt-tool", "stdio"];
/// Nothing needs an approval.
const FREE: [&str; 3] = ["--permission-prompt-tool", "stdio", "--dangerously-skip-permissions"];

/// A command that runs until the file is there: the Bash tool refuses to sleep.
fn waits_for(file: &Path) -> String {
    format!("until test -e {}; do python3 -c 'import time; time.sleep(0.05)'; done", file.display())
}

#[tokio::test]
async fn hello_over_two_turns_in_one_process() {
    let Some(claude) = real::claude_or_skip() else { return };
    let model = MessagesServer::start();
    model.when("[[one]]", Answer::new().thinking("hm").block("First part.").block("Second part."));
    model.when("[[two]]", "Again.");
    let home = TestHome::new(&model);
    let mut claude = Duplex::start(&claude, &home, &ASKING);
    let hello = claude.control(json!({"subtype": "initialize"})).await;
    assert_eq!(hello["subtype"], "success");
    assert_eq!(hello["response"]["session_state"], "idle");

    let uuid = claude.user("go [[one]]").await;
    let first = claude.result().await;
    assert_eq!(first["result"], "Second part.");
    assert_eq!(first["user_message_uuids"], json!([uuid]));
    claude.user("go [[two]]").await;
    let second = claude.result().await;
    assert_eq!((&second["result"], &second["result_index"]), (&json!("Again."), &json!(1)));
    let session = second["session_id"].as_str().unwrap().to_owned();
    let ended = claude.end().await;
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);

    let requests = model.requests();
    assert_eq!(requests.len(), 2);
    assert_eq!(requests[1].session(), Some(session.clone()));
    assert_eq!(
        requests[1].history(),
        [
            "user: go [[one]]",
            "thinking: hm",
            "assistant: First part.",
            "assistant: Second part.",
            "user: go [[two]]"
        ]
    );
    assert_eq!(home.sessions(), [session.as_str()]);
    assert!(!home.transcript_lines(&session).is_empty());
    model.assert_finished();
    home.assert_no_processes().await;
}

#[tokio::test]
async fn commands_run_and_their_results_reach_the_model() {
    let Some(claude) = real::claude_or_skip() else { return };
    let model = MessagesServer::start();
    let both = Answer::text("Both.").bash("echo one").bash("echo two; exit 3");
    model.otherwise([both, Answer::text("Done.")]);
    let home = TestHome::new(&model);
    let mut claude = Duplex::start(&claude, &home, &FREE);
    claude.user("go").await;
    assert_eq!(claude.result().await["result"], "Done.");
    assert_eq!(claude.end().await.code, Some(0));
    let outputs = model.requests()[1].tool_outputs();
    let texts: Vec<&str> = outputs.iter().map(|output| output.text.as_str()).collect();
    assert_eq!(texts, ["one", "Exit code 3\ntwo"]);
    model.assert_finished();
    home.assert_no_processes().await;
}

#[tokio::test]
async fn an_approval_is_asked_for_and_may_be_given_or_denied() {
    let Some(claude) = real::claude_or_skip() else { return };
    let model = MessagesServer::start();
    let home = TestHome::new(&model);
    let file = home.workspace().join("touched");
    let touch = || Answer::new().bash(&format!("touch {}", file.display()));
    model.when("[[ask]]", [touch(), Answer::text("After.")]);
    let mut claude = Duplex::start(&claude, &home, &ASKING);

    claude.user("first [[ask]]").await;
    let asked = claude.asked("can_use_tool").await;
    assert_eq!(asked["request"]["tool_name"], "Bash");
    claude.answer(&asked, json!({"behavior": "deny", "message": "not today"})).await;
    assert_eq!(claude.result().await["permission_denials"][0]["tool_name"], "Bash");
    assert!(!file.exists());

    claude.user("second [[ask]]").await;
    let asked = claude.asked("can_use_tool").await;
    let input = &asked["request"]["input"];
    claude.answer(&asked, json!({"behavior": "allow", "updatedInput": input})).await;
    assert_eq!(claude.result().await["result"], "After.");
    assert!(file.exists());
    assert_eq!(claude.end().await.code, Some(0));
    assert_eq!(model.requests()[1].tool_outputs()[0].text, "not today");
    home.assert_no_processes().await;
}

#[tokio::test]
async fn an_interrupt_ends_the_turn_and_withdraws_the_approval() {
    let Some(claude) = real::claude_or_skip() else { return };
    let model = MessagesServer::start();
    let gate = Gate::new();
    model.when("[[stream]]", Answer::new().delta("half").wait_for(&gate));
    model.when("[[ask]]", Answer::new().bash("touch touched"));
    model.when("[[hello]]", "Hello.");
    let home = TestHome::new(&model);
    let mut claude = Duplex::start(&claude, &home, &ASKING);

    claude.user("[[stream]]").await;
    gate.reached().await;
    let reply = claude.control(json!({"subtype": "interrupt"})).await;
    assert_eq!(reply["response"], json!({"still_queued": []}));
    assert_eq!(claude.result().await["terminal_reason"], "aborted_streaming");
    model.wait_until_idle().await;
    assert_eq!(model.requests()[0].outcome, Outcome::HungUp);

    claude.user("[[ask]]").await;
    let asked = claude.asked("can_use_tool").await;
    let interrupt = claude.request(json!({"subtype": "interrupt"})).await;
    let withdrawn = claude.line("control_cancel_request", "").await;
    assert_eq!(withdrawn["request_id"], asked["request_id"]);
    claude.response(&interrupt).await;
    assert_eq!(claude.result().await["terminal_reason"], "aborted_tools");

    let idle = claude.control(json!({"subtype": "interrupt"})).await;
    assert_eq!(idle["subtype"], "success");
    claude.user("[[hello]]").await;
    assert_eq!(claude.result().await["result"], "Hello.");
    assert_eq!(claude.end().await.code, Some(0));
    home.assert_no_processes().await;
}

#[tokio::test]
async fn a_message_during_a_tool_is_folded_into_the_turn() {
    let Some(claude) = real::claude_or_skip() else { return };
    let model = MessagesServer::start();
    let home = TestHome::new(&model);
    let go = home.workspace().join("go");
    model.when("[[long]]", [Answer::new().bash(&waits_for(&go)), Answer::text("Both done.")]);
    let mut claude = Duplex::start(&claude, &home, &FREE);
    let first = claude.user("[[long]]").await;
    claude.line("assistant", "").await;
    let second = claude.user("and a word").await;
    claude.until(|line| line["command_uuid"] == second.as_str()).await;
    std::fs::write(&go, "").unwrap();
    let result = claude.result().await;
    assert_eq!(result["result"], "Both done.");
    assert_eq!(result["user_message_uuids"], json!([first, second]));
    assert_eq!(claude.end().await.code, Some(0));
    let request = model.requests().pop().unwrap();
    assert!(request.body["messages"].to_string().contains("and a word"), "{:?}", request.history());
    model.assert_finished();
    home.assert_no_processes().await;
}

#[tokio::test]
async fn end_session_ends_commands_in_the_foreground_and_the_background() {
    let Some(claude) = real::claude_or_skip() else { return };
    let model = MessagesServer::start();
    let home = TestHome::new(&model);
    let (never, late) = (home.root().join("never"), home.root().join("late"));
    model.otherwise([
        Answer::new().bash_in_background(&waits_for(&never)),
        Answer::new().bash(&format!("touch {}; {}", late.display(), waits_for(&never))),
    ]);
    let mut claude = Duplex::start(&claude, &home, &FREE);
    claude.user("go").await;
    claude.line("system", "task_started").await;
    claude.line("assistant", "").await;
    home.wait_until(|| late.exists(), "the second command").await;
    let id = claude.request(json!({"subtype": "end_session"})).await;
    assert_eq!(claude.response(&id).await["subtype"], "success");
    assert_eq!(claude.line("result", "").await["terminal_reason"], "aborted_tools");
    assert_eq!(claude.end().await.code, Some(1));
    home.assert_no_processes().await;
}

#[tokio::test]
async fn a_tool_of_the_host_is_called_over_the_stream() {
    let Some(claude) = real::claude_or_skip() else { return };
    let model = MessagesServer::start();
    let call = Answer::new().mcp("host", "greet", json!({"name": "Ada"}));
    model.otherwise([call, Answer::text("Greeted.")]);
    let home = TestHome::new(&model);
    let config = r#"{"mcpServers":{"host":{"type":"sdk","name":"host"}}}"#;
    let args = ["--mcp-config", config, "--allowedTools", "mcp__host"];
    let mut claude = Duplex::start(&claude, &home, &args);
    let hello = claude.request(json!({"subtype": "initialize"})).await;
    claude.user("go").await;
    let mut calls = Vec::new();
    let result = loop {
        let line = claude.next().await.unwrap();
        let message = &line["request"]["message"];
        let result = match message["method"].as_str() {
            Some("initialize") => json!({
                "protocolVersion": message["params"]["protocolVersion"],
                "capabilities": {"tools": {}},
                "serverInfo": {"name": "host", "version": "1"},
            }),
            Some("tools/list") => {
                let schema = json!({"type": "object", "properties": {"name": {"type": "string"}}});
                json!({"tools": [{"name": "greet", "description": "", "inputSchema": schema}]})
            }
            Some("tools/call") => {
                calls.push(message["params"]["arguments"].clone());
                json!({"content": [{"type": "text", "text": "hello Ada"}]})
            }
            Some(_) => json!({}),
            None if line["type"] == "result" => break line,
            None => continue,
        };
        let response = json!({"jsonrpc": "2.0", "id": message["id"], "result": result});
        claude.answer(&line, json!({ "mcp_response": response })).await;
    };
    assert_eq!(result["result"], "Greeted.");
    assert_eq!(calls, [json!({"name": "Ada"})]);
    assert_eq!(model.requests()[1].tool_outputs()[0].text, "hello Ada");
    let seen: Vec<Value> =
        claude.seen().iter().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert!(seen.iter().any(|line| line["response"]["request_id"] == hello.as_str()));
    assert_eq!(claude.end().await.code, Some(0));
    home.assert_no_processes().await;
}

#[tokio::test]
async fn sub_agents_at_once_play_their_own_scripts() {
    let Some(claude) = real::claude_or_skip() else { return };
    let model = MessagesServer::start();
    let two = Answer::new().agent("do [[left]]", false).agent("do [[right]]", false);
    model.when("[[both]]", [two, Answer::text("Both came back.")]);
    model.when("[[left]]", [Answer::new().bash("echo left"), Answer::text("Left done.")]);
    model.when("[[right]]", [Answer::new().bash("echo right"), Answer::text("Right done.")]);
    let home = TestHome::new(&model);
    let mut claude = Duplex::start(&claude, &home, &FREE);
    claude.user("[[both]]").await;
    assert_eq!(claude.result().await["result"], "Both came back.");
    assert_eq!(claude.end().await.code, Some(0));
    let mut outputs: Vec<String> = Vec::new();
    for needle in ["[[left]]", "[[right]]"] {
        let last = model.requests_about(needle).pop().unwrap();
        outputs.extend(last.tool_outputs().into_iter().map(|output| output.text));
    }
    assert_eq!(outputs, ["left", "right"]);
    model.assert_finished();
    home.assert_no_processes().await;
}

#[tokio::test]
async fn failures_of_the_model_are_retried_or_reported() {
    let Some(claude) = real::claude_or_skip() else { return };
    let model = MessagesServer::start();
    let soon = |status| Answer::status(status, "try later").header("retry-after", "0");
    model.when("[[retried]]", soon(529).then(Answer::new().dropped()).then("Recovered."));
    let broken = |answer: Answer| answer.fails("api_error", "broken");
    model.when("[[early]]", broken(Answer::new().started()).then("Fallen back."));
    model.when("[[late]]", [broken(Answer::text("One half,")), Answer::text("the other.")]);
    model.when("[[403]]", Answer::status(403, "forbidden"));
    let home = TestHome::new(&model).max_retries(3);
    let mut claude = Duplex::start(&claude, &home, &ASKING);
    claude.user("no script").await;
    let unexpected = claude.result().await;
    let text = unexpected["result"].as_str().unwrap();
    assert!(text.contains("no script matches: request 0"), "{text}");
    assert_eq!(model.unexpected().len(), 1);

    claude.user("[[retried]]").await;
    let retry = claude.line("system", "api_retry").await;
    assert_eq!((&retry["error_status"], &retry["attempt"]), (&json!(529), &json!(1)));
    assert_eq!(claude.line("system", "api_retry").await["error_status"], Value::Null);
    assert_eq!(claude.result().await["result"], "Recovered.");

    claude.user("[[early]]").await;
    assert_eq!(claude.result().await["result"], "Fallen back.");
    let streams: Vec<bool> =
        model.requests_about("[[early]]").iter().map(MessagesRequest::stream).collect();
    assert_eq!(streams, [true, false]);

    // What came as a whole block stays, and claude asks for the rest.
    claude.user("[[late]]").await;
    assert_eq!(claude.line("assistant", "").await["message"]["content"][0]["text"], "One half,");
    assert_eq!(claude.result().await["result"], "the other.");

    claude.user("[[403]]").await;
    let refused = claude.result().await;
    assert_eq!((&refused["api_error_status"], &refused["is_error"]), (&json!(403), &json!(true)));
    assert_eq!(claude.end().await.code, Some(1));
    assert!(model.unused().is_empty());
    home.assert_no_processes().await;
}

#[tokio::test]
async fn a_spent_subscription_is_reported_with_its_reset() {
    let Some(claude) = real::claude_or_skip() else { return };
    let model = MessagesServer::start();
    let resets = 4_102_444_800;
    model.when("[[near]]", Answer::text("Nearly.").near_limit(resets));
    model.when("[[spent]]", Answer::limit_reached(resets));
    let home = TestHome::new(&model).subscription();
    let mut claude = Duplex::start(&claude, &home, &ASKING);
    for (prompt, status) in [("[[near]]", "allowed_warning"), ("[[spent]]", "rejected")] {
        claude.user(prompt).await;
        let limit = claude.line("rate_limit_event", "").await["rate_limit_info"].take();
        assert_eq!((&limit["status"], &limit["resetsAt"]), (&json!(status), &json!(resets)));
        claude.result().await;
    }
    assert_eq!(claude.end().await.code, Some(1));
    home.assert_no_processes().await;
}

#[tokio::test]
async fn releases_that_are_asked_for_answer_a_prompt() {
    for version in real::versions() {
        let Some(claude) = real::claude_version_or_skip(version) else { return };
        let model = MessagesServer::start();
        model.otherwise([Answer::new().bash("echo out"), Answer::text("Hello.")]);
        let home = TestHome::new(&model);
        let mut claude = Duplex::start(&claude, &home, &FREE);
        claude.user("hi").await;
        assert_eq!(claude.line("result", "").await["result"], "Hello.", "{version}");
        assert_eq!(claude.end().await.code, Some(0));
        assert_eq!(model.requests()[1].tool_outputs()[0].text, "out", "{version}");
        model.assert_finished();
        home.assert_no_processes().await;
    }
}
