//! Odd but legal lines of an app-server: responses, envelopes, ids, and lines that cannot be read.
use std::sync::Arc;
use std::time::Duration;

use futures::future::{BoxFuture, join};
use serde_json::json;
use takopi_codex::app_server::{
    Client, ClientError, CodexAppServer, ModelOptions, PoolLimits, ThreadOptions, TurnOptions,
    TurnStatus,
};
use takopi_core::{ActionKind, ApprovalHandler, ApprovalRequest, Decision, EngineRunner, Runner};
use takopi_tests::codex::fake::{Server, Step, turn};
use takopi_tests::codex::lab::Lab;
use takopi_tests::runs::{Seen, run};

const MIB: usize = 1024 * 1024;

struct Accepts;

impl ApprovalHandler for Accepts {
    fn decide(&self, _request: ApprovalRequest) -> BoxFuture<'static, Decision> {
        Box::pin(std::future::ready(Decision::Accept))
    }
}

async fn one_run(server: Server) -> (Lab, Seen) {
    let lab = Lab::new(server.script());
    let runner = lab.app_server(Duration::ZERO);
    let seen = run(&runner, lab.request("hi").approvals(Arc::new(Accepts))).await;
    runner.shutdown().await;
    lab.assert_nothing_left().await;
    (lab, seen)
}

fn warnings(seen: &Seen) -> Vec<&str> {
    seen.done(&ActionKind::Warning).iter().map(|it| it.action.title.as_str()).collect()
}

#[tokio::test]
async fn an_error_of_any_shape_fails_its_request_at_once_with_its_text() {
    for (error, said) in [
        (r#"{"message":"boom"}"#, "boom"),
        (r#"{"code":-32600,"message":null,"data":"boom"}"#, "boom"),
        (r#""boom""#, "boom"),
        (r#"{"code":99999999999999999999,"message":"boom"}"#, "99999999999999999999"),
        (r#"{"code":1.5,"message":"boom"}"#, "boom"),
        (r#"{"code":-1,"code":-2,"message":"boom","message":"later"}"#, "boom"),
        (r#"["boom"]"#, "boom"),
        ("17", "17"),
    ] {
        let line = Step::line(format!(r#"{{"id":$REQUEST,"error":{error}}}"#));
        let (_, seen) = one_run(Server::new().always("turn/start", [line])).await;
        let text = seen.failed("engine_failed").error.clone().unwrap();
        assert!(text.contains(said), "{error}: {text}");
    }
}

#[tokio::test]
async fn an_error_of_a_request_that_could_not_be_read_fails_the_one_that_waits() {
    for line in [
        r#"{"id":null,"error":{"code":-32700,"message":"boom"}}"#,
        r#"{"id":"$REQUEST","error":"boom"}"#,
    ] {
        let server = Server::new().always("turn/start", [Step::line(line)]);
        let (_, seen) = one_run(server).await;
        let text = seen.failed("engine_failed").error.clone().unwrap();
        assert!(text.contains("boom"), "{line}: {text}");
    }
}

#[tokio::test]
async fn a_request_whose_method_is_no_text_is_refused_and_answers_none_of_ours() {
    // The id is that of `turn/start`, which waits.
    let odd = Step::line(r#"{"method":7,"id":$REQUEST,"params":{}}"#);
    let steps = [odd].into_iter().chain(turn::opened(turn::answer("done")));
    let (_, seen) = one_run(Server::new().always("turn/start", steps)).await;
    assert_eq!(seen.ok().answer, "done");
}

/// The envelope of such a line is JSON for any parser, its parameters are not.
#[tokio::test]
async fn what_no_parser_takes_inside_of_a_notification_loses_nothing_else() {
    let item = |item: &str| {
        let place = r#""threadId":"$THREAD","turnId":"$TURN""#;
        Step::line(format!(r#"{{"method":"item/completed","params":{{{place},"item":{item}}}}}"#))
    };
    let steps = [
        item(
            r#"{"type":"commandExecution","id":"c","command":"ls","status":"failed","exitCode":1e999}"#,
        ),
        item(r#"{"type":"agentMessage","id":"m","text":"half \ud83d of it"}"#),
        turn::completed(),
    ];
    let (_, seen) = one_run(Server::new().turns(steps)).await;
    assert_eq!(seen.ok().answer, "half \u{fffd} of it");
    assert_eq!(seen.done(&ActionKind::Command).len(), 1, "{:#?}", seen.events);
    assert!(seen.done(&ActionKind::Warning).is_empty(), "{:#?}", seen.events);
}

#[tokio::test]
async fn a_member_of_the_envelope_that_stands_twice_loses_no_end() {
    let end = r#"{"threadId":"$THREAD","turn":{"id":"$TURN","status":"completed","items":[]}}"#;
    for line in [
        format!(r#"{{"method":"turn/completed","method":"turn/completed","params":{end}}}"#),
        format!(r#"{{"method":"turn/completed","params":{end},"params":{end}}}"#),
        format!(r#"{{"jsonrpc":"2.0","jsonrpc":"2.0","params":{end},"method":"turn/completed"}}"#),
    ] {
        let steps = turn::message("m", "done").into_iter().chain([Step::line(line.as_str())]);
        let (_, seen) = one_run(Server::new().turns(steps)).await;
        assert_eq!(seen.ok().answer, "done", "{line}");
    }
}

#[tokio::test]
async fn ids_of_requests_come_back_as_they_were_whatever_they_are() {
    for id in [json!(u64::MAX), json!(1.5), json!(-7), json!("\u{1f419} \" text")] {
        let ask = turn::ask_command("q", "c", "ls").with_id(id.clone());
        let (lab, seen) =
            one_run(Server::new().turns([ask].into_iter().chain(turn::answer("ok")))).await;
        seen.ok();
        let answer = lab.control.answer("q").await;
        assert_eq!((&answer["id"], &answer["result"]), (&id, &json!({"decision": "accept"})));
    }
}

#[tokio::test]
async fn a_request_nested_too_deep_to_be_shown_is_declined_visibly() {
    let deep = format!("{}{}", "[".repeat(200), "]".repeat(200));
    let line = format!(
        r#"{{"method":"item/commandExecution/requestApproval","id":4242,"params":{{"threadId":"$THREAD","turnId":"$TURN","itemId":"c","command":"rm -rf /","deep":{deep}}}}}"#
    );
    let steps = [Step::line(line), turn::ask_command("next", "c", "ls")].into_iter();
    let (lab, seen) = one_run(Server::new().turns(steps.chain(turn::answer("went on")))).await;
    assert_eq!(seen.ok().answer, "went on");
    let sent = lab.control.sent(0);
    let answers: Vec<_> = sent.iter().filter(|message| message["id"] == 4242).collect();
    assert_eq!(answers, [&json!({"id": 4242, "result": {"decision": "decline"}})]);
    let shown = warnings(&seen);
    assert!(shown[0].contains("item/commandExecution/requestApproval"), "{shown:?}");
}

#[tokio::test]
async fn a_request_too_long_to_be_read_is_declined_visibly() {
    let head = r#"{"method":"item/commandExecution/requestApproval","id":4242,"params":{"threadId":"$THREAD","turnId":"$TURN","command":""#;
    let steps = [Step::huge(head, r#""}}"#, 70 * MIB), turn::ask_command("next", "c", "ls")];
    let (lab, seen) =
        one_run(Server::new().turns(steps.into_iter().chain(turn::answer("went on")))).await;
    assert_eq!(seen.ok().answer, "went on");
    let sent = lab.control.sent(0);
    let answers: Vec<_> = sent.iter().filter(|message| message["id"] == 4242).collect();
    assert_eq!(answers, [&json!({"id": 4242, "result": {"decision": "decline"}})]);
    assert!(warnings(&seen)[0].contains("too long"), "{:?}", warnings(&seen));
}

#[tokio::test]
async fn lines_that_cannot_be_read_are_shown_three_times_and_then_counted() {
    let junk = (0..5).map(|number| Step::line(format!("junk {number}")));
    let steps = junk.chain([Step::huge_junk(70 * MIB)]).chain(turn::answer("done"));
    let (_, seen) = one_run(Server::new().turns(steps)).await;
    seen.ok();
    let long = format!("a line of {} bytes was too long and is skipped", 70 * MIB);
    assert_eq!(
        warnings(&seen),
        [
            "not JSON: junk 0",
            "not JSON: junk 1",
            "not JSON: junk 2",
            &long,
            "2 more lines were not JSON"
        ]
    );
}

#[tokio::test]
async fn lines_that_could_not_be_read_before_the_turn_are_shown_in_it() {
    let (_, seen) = one_run(Server::new().first([Step::line("Welcome to codex!")])).await;
    seen.ok();
    assert_eq!(warnings(&seen), ["not JSON: Welcome to codex!"]);
}

#[tokio::test]
async fn on_a_shared_server_every_turn_is_warned_of_lines_that_cannot_be_read() {
    let waits = [vec![Step::reached("a"), Step::gate("a")], turn::answer("a")].concat();
    let junk = [vec![Step::line("junk"), Step::reached("junk")], turn::answer("b")].concat();
    let lab =
        Lab::new(Server::new().turns_when("first", waits).turns_when("second", junk).script());
    let engine = CodexAppServer::new(lab.codex()).shared(PoolLimits::new(4, 10, 1));
    let runner = EngineRunner::new(engine).on(lab.host.clone());
    let first = run(&runner, lab.request("first"));
    let second = async {
        lab.control.reached("a").await;
        let seen = run(&runner, lab.request("second")).await;
        lab.control.open("a");
        seen
    };
    let (first, second) = join(first, second).await;
    assert_eq!(lab.control.starts().len(), 1);
    for seen in [first, second] {
        seen.ok();
        assert_eq!(warnings(&seen), ["not JSON: junk"]);
    }
    runner.shutdown().await;
}

#[tokio::test]
async fn a_turn_report_has_the_usage_of_the_turn() {
    // Figures that arrive ahead of the agent's first item count as well.
    let early = [vec![turn::usage()], turn::answer("done")].concat();
    let lab = Lab::new(Server::new().turns_when("early", early).script());
    let client = Client::start(&lab.host, &lab.launch()).await.unwrap();
    let thread = client.start_thread(&ThreadOptions::default()).await.unwrap();
    for _ in 0..2 {
        let usage = thread.run("hi", &TurnOptions::default()).await.unwrap().usage.unwrap();
        assert_eq!((usage.input_tokens, usage.output_tokens), (11, 7));
    }
    let usage = thread.run("early", &TurnOptions::default()).await.unwrap().usage.unwrap();
    assert_eq!((usage.input_tokens, usage.output_tokens), (22, 14));
    client.close().await;
}

#[tokio::test]
async fn a_turn_report_is_a_success_only_if_the_end_says_so() {
    for (end, status) in [
        (r#""status":"failed","status":"failed""#, TurnStatus::Failed),
        (r#""status":1"#, TurnStatus::Other("1".to_owned())),
        (r#""other":1"#, TurnStatus::Other(String::new())),
        (r#""status":"completed","items":["\ud83d",1e999]"#, TurnStatus::Completed),
        (r#""status":"completed""#, TurnStatus::Completed),
    ] {
        let line = format!(
            r#"{{"method":"turn/completed","params":{{"threadId":"$THREAD","turn":{{"id":"$TURN",{end}}}}}}}"#
        );
        let lab = Lab::new(Server::new().turns([Step::line(line.as_str())]).script());
        let client = Client::start(&lab.host, &lab.launch()).await.unwrap();
        let thread = client.start_thread(&ThreadOptions::default()).await.unwrap();
        let report = thread.run("hi", &TurnOptions::default()).await.unwrap();
        assert_eq!(report.status, status, "{end}");
        client.close().await;
    }
}

#[tokio::test]
async fn the_error_of_a_turn_report_has_no_credentials() {
    let error = json!({"message": "401: Bearer sk-SECRET-123", "additionalDetails": {"password": "hunter2"}});
    let end =
        json!({"threadId": "$THREAD", "turn": {"id": "$TURN", "status": "failed", "error": error}});
    let lab = Lab::new(Server::new().turns([Step::notify("turn/completed", end)]).script());
    let client = Client::start(&lab.host, &lab.launch()).await.unwrap();
    let thread = client.start_thread(&ThreadOptions::default()).await.unwrap();
    let report = thread.run("hi", &TurnOptions::default()).await.unwrap();
    let error = report.error.unwrap();
    assert_eq!(error["message"], "401: Bearer [redacted]");
    assert_eq!(error["additionalDetails"]["password"], "[redacted]");
    client.close().await;
}

#[tokio::test]
async fn hidden_models_are_listed_when_asked_for_and_pages_are_followed() {
    let hidden = json!({"data": [{"id": "a"}], "nextCursor": "page-2"});
    let last = json!({"data": [{"id": "b"}], "nextCursor": null});
    let server = Server::new()
        .when("model/list", "page-2", [Step::ReplyWith(last)])
        .when("model/list", "includeHidden", [Step::ReplyWith(hidden)])
        .always("model/list", [Step::ReplyWith(json!({"data": []}))]);
    let lab = Lab::new(server.script());
    let client = Client::start(&lab.host, &lab.launch()).await.unwrap();
    let models = client.models(&ModelOptions::default().include_hidden()).await.unwrap();
    assert_eq!(models, [json!({"id": "a"}), json!({"id": "b"})]);
    let calls = lab.control.calls("model/list");
    assert_eq!(calls[1].message["params"], json!({"includeHidden": true, "cursor": "page-2"}));
    assert_eq!(
        client.models(&ModelOptions::default()).await.unwrap(),
        Vec::<serde_json::Value>::new()
    );
    client.close().await;
    let gone = client.models(&ModelOptions::default()).await.unwrap_err();
    assert!(matches!(gone, ClientError::Closed { .. }), "{gone}");
}
