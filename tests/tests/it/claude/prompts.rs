//! What reaches the model of the real Claude Code, and what its answer looks like.

use std::sync::{Arc, Mutex};

use serde_json::{Value, json};
use takopi_core::approvals::from_fn;
use takopi_core::runner::{Reply, steer_channel};
use takopi_core::{ApprovalRequest, Decision, Runner};
use takopi_tests::claude::home::TestHome;
use takopi_tests::claude::real;
use takopi_tests::model::Gate;
use takopi_tests::model::messages::{Answer, MessagesServer, Script};
use takopi_tests::runs::{finish, run};
use tokio_util::sync::CancellationToken;

use super::{engine, runner};

/// An image of one pixel.
const PNG: &[u8] =
    b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR\0\0\0\x01\0\0\0\x01\x08\x06\0\0\0\x1f\x15\xc4\x89\
    \0\0\0\rIDATx\xdacd\xf8\xcfP\x0f\0\x03\x86\x01\x80Z4}k\0\0\0\0IEND\xaeB`\x82";

#[tokio::test]
async fn a_message_that_comes_too_late_for_the_turn_gets_one_of_its_own() {
    let Some(claude) = real::claude_or_skip() else { return };
    let model = MessagesServer::start();
    let gate = Gate::new();
    model.when("[[work]]", Answer::new().delta("Fir").wait_for(&gate).delta("st."));
    model.when("[[also]]", "Second.");
    let home = TestHome::new(&model);
    let runner = runner(engine(&claude), &home);
    let (steer, steering) = steer_channel();
    let stream = runner.run(home.request("[[work]]").steering(steering));
    gate.reached().await;
    steer.send("[[also]]").await.unwrap();
    gate.open();
    let seen = finish(stream, Vec::new()).await;
    assert_eq!(
        seen.steady_outline(),
        [
            "started",
            "turn started: turn started",
            "turn started: turn started",
            "note completed: First.",
            "completed: Second.",
        ]
    );
    assert_eq!(seen.ok().usage.as_ref().unwrap().output_tokens, 14, "of both turns");
    assert!(steer.send("nobody").await.is_err(), "the run is over");
    runner.shutdown().await;
    home.assert_no_processes().await;
}

#[tokio::test]
async fn a_cancel_right_behind_a_message_ends_both() {
    let Some(claude) = real::claude_or_skip() else { return };
    let model = MessagesServer::start();
    let gate = Gate::new();
    model.when("[[work]]", Answer::new().delta("Fir").wait_for(&gate).delta("st."));
    model.when("[[also]]", Answer::new().delta("Sec").wait_for(&gate).delta("ond."));
    model.when("[[again]]", "Going on.");
    let home = TestHome::new(&model);
    let runner = runner(engine(&claude), &home);
    let (steer, steering) = steer_channel();
    let cancel = CancellationToken::new();
    let request = home.request("[[work]]").steering(steering).cancel(cancel.clone());
    let stream = runner.run(request);
    gate.reached().await;
    steer.send("[[also]]").await.unwrap();
    cancel.cancel();
    let seen = finish(stream, Vec::new()).await;
    seen.failed("interrupted");
    assert_eq!(home.processes(), []);
    let again = run(&runner, home.request("[[again]]").resume(seen.session())).await;
    assert_eq!(again.ok().answer, "Going on.");
    runner.shutdown().await;
}

#[tokio::test]
async fn an_image_and_a_prompt_of_two_megabytes_reach_the_model_whole() {
    let Some(claude) = real::claude_or_skip() else { return };
    let model = MessagesServer::start();
    model.otherwise(Script::repeat("Seen."));
    let home = TestHome::new(&model);
    let file = home.workspace().join("pixel.png");
    std::fs::write(&file, PNG).unwrap();
    let runner = runner(engine(&claude), &home);
    run(&runner, home.request("what is it?").image(&file)).await.ok();
    let request = model.requests().pop().unwrap();
    let content = request.body["messages"].as_array().unwrap().iter().find_map(|message| {
        let blocks = message["content"].as_array()?;
        blocks.iter().find(|block| block["type"] == "image")
    });
    assert_eq!(content.unwrap()["source"]["media_type"], "image/png");
    assert!(request.user_texts().contains(&"what is it?".to_owned()));

    let long = format!("begin {}end", "octopus 🐙 ".repeat(2_000_000 / 13));
    run(&runner, home.request(&long)).await.ok();
    let sent = model.requests().pop().unwrap().last_user_text().unwrap();
    assert!(sent == long, "{} of {} bytes", sent.len(), long.len());
    runner.shutdown().await;
}

#[tokio::test]
async fn with_a_schema_the_answer_is_its_json() {
    let Some(claude) = real::claude_or_skip() else { return };
    let model = MessagesServer::start();
    let call = Answer::text("I will.").tool("StructuredOutput", json!({ "color": "red" }));
    model.otherwise([call, Answer::text("I gave it.")]);
    let home = TestHome::new(&model);
    let file = home.workspace().join("schema.json");
    let schema = json!({
        "type": "object", "properties": { "color": { "type": "string" } }, "required": ["color"],
        "additionalProperties": false,
    });
    std::fs::write(&file, schema.to_string()).unwrap();
    let runner = runner(engine(&claude), &home);
    let seen = run(&runner, home.request("go").output_schema(&file)).await;
    let answer: Value = serde_json::from_str(&seen.ok().answer).unwrap();
    assert_eq!(answer, json!({ "color": "red" }), "{:#?}", seen.outline());
    runner.shutdown().await;
}

#[tokio::test]
async fn model_effort_and_instructions_reach_the_request() {
    let Some(claude) = real::claude_or_skip() else { return };
    let model = MessagesServer::start();
    model.otherwise(Script::repeat("Hello."));
    let home = TestHome::new(&model);
    let runner = runner(engine(&claude), &home);
    for effort in ["low", "high"] {
        let request = home.request("go").model("claude-opus-4-6").effort(effort);
        let request = request.option("append_system_prompt", "You are an octopus.\n\"8\" arms.");
        let seen = run(&runner, request).await;
        assert_eq!(seen.started().meta["model"], "claude-opus-4-6");
        let request = model.requests().pop().unwrap();
        assert_eq!(request.model(), "claude-opus-4-6");
        assert_eq!(request.body["output_config"]["effort"], effort, "{}", request.body);
        assert!(request.system().contains("You are an octopus.\n\"8\" arms."));
    }
    runner.shutdown().await;
}

#[tokio::test]
async fn tools_can_be_allowed_and_taken_away() {
    let Some(claude) = real::claude_or_skip() else { return };
    let model = MessagesServer::start();
    let home = TestHome::new(&model);
    model.otherwise([
        Answer::new().bash("touch allowed"),
        Answer::new().write_file(home.workspace().join("asked"), "no"),
        Answer::text("Done."),
    ]);
    let asked: Arc<Mutex<Vec<String>>> = Arc::default();
    let record = asked.clone();
    let handler = from_fn(move |request: ApprovalRequest| {
        record.lock().unwrap().push(request.kind().as_str().to_owned());
        async { Reply::from(Decision::Decline) }
    });
    let runner = runner(engine(&claude), &home);
    let request = home
        .request("go")
        .option("allowed_tools", "Bash(touch:*)")
        .option("disallowed_tools", "WebFetch,WebSearch");
    let seen = run(&runner, request.approvals(Arc::new(handler))).await;
    assert_eq!(seen.ok().answer, "Done.");
    assert!(home.workspace().join("allowed").exists());
    assert_eq!(*asked.lock().unwrap(), ["file_change"]);
    let tools = model.requests().pop().unwrap().tools();
    assert!(tools.contains(&"Bash".to_owned()) && !tools.contains(&"WebFetch".to_owned()));
    runner.shutdown().await;
}

#[tokio::test]
async fn an_answer_that_is_cut_off_behind_a_block_has_both_halves() {
    let Some(claude) = real::claude_or_skip() else { return };
    let model = MessagesServer::start();
    let broken = Answer::text("One half,").fails("api_error", "broken");
    model.when("[[late]]", [broken, Answer::text("the other.")]);
    let limited = Answer::text("Up to he").stop("max_tokens");
    model.when("[[limit]]", [limited, Answer::text("re and on.")]);
    let home = TestHome::new(&model);
    let runner = runner(engine(&claude), &home);
    let seen = run(&runner, home.request("[[late]]")).await;
    assert_eq!(seen.ok().answer, "One half,\n\nthe other.");
    let seen = run(&runner, home.request("[[limit]]")).await;
    assert_eq!(seen.ok().answer, "Up to here and on.");
    runner.shutdown().await;
    home.assert_no_processes().await;
}
