//! Tools of the host on the real codex with a scripted model.
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::{Value, json};
use takopi_codex::Codex;
use takopi_codex::app_server::CodexAppServer;
use takopi_core::tools::{HostTool, HostToolCall};
use takopi_core::{ActionKind, EngineRunner, Host, Phase, Runner};
use takopi_tests::codex::home::TestHome;
use takopi_tests::codex::real;
use takopi_tests::model::{Answer, ModelServer};
use takopi_tests::runs::{request, run};

fn runner(codex: &real::Codex, home: &TestHome, tools: Vec<HostTool>) -> impl Runner + use<> {
    let host = Host::builder().state_directory(home.state()).build().unwrap();
    let engine = CodexAppServer::new(Codex::new().binary(&codex.path)).keep_warm(Duration::ZERO);
    EngineRunner::new(tools.into_iter().fold(engine, CodexAppServer::tool)).on(host)
}

fn schema() -> Value {
    json!({ "type": "object", "properties": { "id": { "type": "integer" } }, "required": ["id"] })
}

#[tokio::test]
async fn a_tool_of_the_host_is_called_and_its_result_reaches_the_model() {
    let Some(codex) = real::codex_or_skip() else { return };
    let model = ModelServer::start();
    let call = || Answer::new().call("read_ticket", json!({ "id": 7 }));
    model.when("look", [call(), Answer::text("it is red")]);
    model.when("again", [call(), Answer::text("still red")]);
    let home = TestHome::new(&model);
    let calls: Arc<Mutex<Vec<HostToolCall>>> = Arc::default();
    let seen_calls = calls.clone();
    let tool = HostTool::new("read_ticket", "Reads a ticket.", schema(), move |call| {
        seen_calls.lock().unwrap().push(call);
        async { Ok::<_, String>("ticket 7: the build is red") }
    });
    let runner = runner(&codex, &home, vec![tool]);
    let seen = run(&runner, request(&home, "look")).await;
    assert_eq!(seen.ok().answer, "it is red");
    let offered = model.requests()[0].body["tools"].to_string();
    assert!(offered.contains("Reads a ticket."), "{offered}");
    let heard = model.requests()[1].tool_outputs();
    assert!(heard[0].text.contains("the build is red"), "{heard:?}");
    let actions = seen.actions(&ActionKind::Tool);
    let phases: Vec<Phase> = actions.iter().map(|event| event.phase).collect();
    assert_eq!(phases, [Phase::Started, Phase::Completed]);
    assert_eq!(actions[1].action.title, "read_ticket");
    assert_eq!(actions[1].action.detail["arguments"]["id"], 7);
    assert_eq!(actions[1].ok, Some(true));

    // In a fresh process, which knows the tools of the thread from its record.
    let again = run(&runner, request(&home, "again").resume(seen.session())).await;
    assert_eq!(again.ok().answer, "still red");
    let calls = calls.lock().unwrap().clone();
    assert_eq!(calls.len(), 2);
    assert_eq!(calls[0].arguments, json!({ "id": 7 }));
    assert_eq!(calls[0].session, seen.session().value);
    runner.shutdown().await;
    home.assert_no_processes().await;
}

#[tokio::test]
async fn a_tool_that_fails_or_hangs_is_a_clear_failure_to_the_model() {
    let Some(codex) = real::codex_or_skip() else { return };
    let model = ModelServer::start();
    for name in ["fails", "hangs", "breaks"] {
        let call = Answer::new().call(name, json!({ "id": 1 }));
        model.when(name, [call, Answer::text("went on")]);
    }
    let home = TestHome::new(&model);
    let tool = |name: &'static str| {
        HostTool::new(name, "A tool.", schema(), move |_| async move {
            match name {
                "fails" => Err::<String, _>("there is no such ticket"),
                "hangs" => std::future::pending().await,
                _ => panic!("on purpose"),
            }
        })
        .timeout(Duration::from_millis(200))
    };
    let tools = vec![tool("fails"), tool("hangs"), tool("breaks")];
    let runner = runner(&codex, &home, tools);
    for (name, told) in [
        ("fails", "there is no such ticket"),
        ("hangs", "the tool `hangs` did not answer within 200ms"),
        ("breaks", "the tool `breaks` broke"),
    ] {
        let seen = run(&runner, request(&home, name)).await;
        assert_eq!(seen.ok().answer, "went on");
        assert_eq!(seen.done(&ActionKind::Tool)[0].ok, Some(false), "{name}");
        let heard = model.requests_about(name)[1].tool_outputs();
        assert!(heard[0].text.contains(told), "{heard:?}");
    }
    runner.shutdown().await;
}
