//! Calls of a client and how they are answered, or not.

use nix::sys::signal::Signal as Posix;
use serde_json::{Value, json};
use takopi_tests::codex::fake::{self, Control, Script, Server, Signal, Step, app_server, turn};
use tokio::io::AsyncWriteExt;

use super::Live;

#[tokio::test]
async fn a_healthy_server_serves() {
    let control = Control::new();
    let script = app_server::hello("hello").version("0.150.0");
    let mut live = Live::start(&control, &script, &["app-server"]);
    live.call(1, "model/list", json!({})).await;
    assert_eq!(live.reply(1).await["error"]["message"], "Not initialized");
    live.call(2, "initialize", json!({"clientInfo": {"name": "lab", "version": "9"}})).await;
    let agent = live.reply(2).await["result"]["userAgent"].clone();
    assert_eq!(agent, "lab/0.150.0 (Debian 12.0.0; x86_64) xterm (lab; 9)");
    live.send(&json!({"method": "initialized"})).await;
    let thread = live.thread(3).await;
    for (id, method) in [
        (4, "model/list"),
        (5, "thread/backgroundTerminals/clean"),
        (6, "thread/name/set"),
        (7, "thread/unsubscribe"),
    ] {
        live.call(id, method, json!({"threadId": thread})).await;
        assert!(live.reply(id).await.get("result").is_some(), "{method}");
    }
    live.call(8, "thread/fork", json!({"threadId": thread})).await;
    assert_ne!(live.reply(8).await["result"]["thread"]["id"], thread.as_str());
    live.call(12, "thread/list", json!({})).await;
    let listed = live.reply(12).await["result"]["data"].clone();
    assert_eq!(listed.as_array().unwrap().len(), 2);
    live.call(9, "no/such", json!({})).await;
    let unknown = live.reply(9).await;
    assert_eq!(unknown["error"]["code"], -32600);
    live.turn(10, "01a1e21b-0000-7000-8000-000000000000", "hi").await;
    let missing = live.reply(10).await["error"]["message"].clone();
    assert_eq!(missing, "thread not found: 01a1e21b-0000-7000-8000-000000000000");
    live.call(11, "thread/resume", json!({"threadId": "AB-1", "cwd": "/elsewhere"})).await;
    let resumed = live.reply(11).await["result"].clone();
    assert_eq!((&resumed["thread"]["id"], &resumed["cwd"]), (&json!("ab-1"), &json!("/elsewhere")));
    assert_eq!(live.close().await.code(), Some(0));
    assert_eq!(control.sent(0).len(), 13);
    assert_eq!(control.call("initialized").await.message, json!({"method": "initialized"}));
}

#[tokio::test]
async fn garbage_of_the_client_is_recorded_and_ignored() {
    let control = Control::new();
    let mut live = Live::server(&control, &app_server::echo()).await;
    live.send(&json!("garbage")).await;
    live.call(1, "model/list", json!({})).await;
    live.reply(1).await;
    assert_eq!(control.sent(0)[2], json!("garbage"));
}

#[tokio::test]
async fn it_dies_at_every_step_of_the_handshake() {
    for method in ["initialize", "initialized", "thread/start", "turn/start"] {
        for steps in [vec![Step::Exit(3)], vec![Step::Reply, Step::Exit(3)]] {
            let control = Control::new();
            let script = Server::new().thread("t").once(method, steps).script();
            let mut live = Live::start(&control, &script, &["app-server"]);
            let handshake = [
                json!({"id": 1, "method": "initialize", "params": {}}),
                json!({"method": "initialized"}),
                json!({"id": 2, "method": "thread/start", "params": {}}),
                json!({"id": 3, "method": "turn/start", "params": {"threadId": "t"}}),
            ];
            let lines = handshake.map(|message| format!("{message}\n")).concat();
            let stdin = live.child.stdin.as_mut().unwrap();
            stdin.write_all(lines.as_bytes()).await.unwrap();
            assert_eq!(live.end().await.code(), Some(3), "{method}");
            assert_eq!(control.calls(method).len(), 1, "{method}");
        }
    }
}

#[tokio::test]
async fn a_call_is_answered_twice_or_never_and_others_as_ever() {
    let control = Control::new();
    let script = Server::new()
        .always("thread/name/set", [Step::Reply, Step::Reply])
        .always("thread/archive", [])
        .script();
    let (mut live, thread) = Live::with_thread(&control, &script).await;
    let params = json!({"threadId": thread});
    live.call(2, "thread/archive", params.clone()).await;
    live.call(3, "thread/name/set", params.clone()).await;
    live.call(4, "model/list", json!({})).await;
    let ids = [live.next().await, live.next().await, live.next().await].map(|it| it["id"].clone());
    assert_eq!(ids, [json!(3), json!(3), json!(4)]);
    let ended = live.close().await;
    assert_eq!((ended.code(), ended.text()), (Some(0), ""));
}

#[tokio::test]
async fn a_late_reply_comes_behind_later_calls() {
    let control = Control::new();
    let late = [Step::reached("late"), Step::gate("go"), Step::Reply];
    let script = Server::new().once("model/list", late).script();
    let mut live = Live::server(&control, &script).await;
    live.call(1, "model/list", json!({})).await;
    live.call(2, "model/list", json!({})).await;
    assert_eq!(live.next().await["id"], 2);
    control.reached("late").await;
    control.open("go");
    assert_eq!(live.next().await["id"], 1);
}

#[tokio::test]
async fn rules_serve_once_by_text_and_always() {
    let control = Control::new();
    let script = Server::new()
        .when("thread/resume", "gone", app_server::not_found())
        .once("thread/resume", app_server::busy())
        .once("thread/resume", app_server::overloaded())
        .always("model/list", [Step::ReplyWith(json!({"data": ["$CWD"]}))])
        .script();
    let mut live = Live::server(&control, &script).await;
    let mut answers = Vec::new();
    for (id, thread) in [(1, "a"), (2, "gone"), (3, "b"), (4, "c")] {
        live.call(id, "thread/resume", json!({"threadId": thread})).await;
        let reply = live.reply(id).await;
        answers.push((reply["error"]["code"].clone(), reply["error"]["message"].clone()));
    }
    let expected = [
        (json!(-32600), json!("thread a already has an active writer")),
        (json!(-32600), json!("no rollout found for thread id gone")),
        (json!(-32001), json!("Server overloaded; retry later.")),
        (Value::Null, Value::Null),
    ];
    assert_eq!(answers, expected);
    live.call(5, "model/list", json!({})).await;
    assert_eq!(live.reply(5).await["result"], json!({"data": [""]}));
}

#[tokio::test]
async fn errors_carry_data() {
    let control = Control::new();
    let data = Some(json!({"codexErrorInfo": "usageLimitExceeded"}));
    let fails = Step::Fail { code: -32603, message: "no".to_owned(), data: data.clone() };
    let mut live =
        Live::server(&control, &Server::new().once("model/list", [fails]).script()).await;
    live.call(1, "model/list", json!({})).await;
    let error = live.reply(1).await["error"].clone();
    assert_eq!(error, json!({"code": -32603, "message": "no", "data": data}));
}

#[tokio::test]
async fn replies_and_notices_can_be_huge_or_broken() {
    let control = Control::new();
    let script = Server::new()
        .once("model/list", [app_server::huge_reply(2 * 1024 * 1024)])
        .once("model/list", [Step::raw(*b"\xff\xff\n"), app_server::flood(500), Step::Reply])
        .script();
    let mut live = Live::server(&control, &script).await;
    live.call(1, "model/list", json!({})).await;
    let line = live.lines.next_line().await.unwrap().unwrap();
    assert_eq!(line.len(), 2 * 1024 * 1024);
    assert!(line.starts_with(r#"{"id":1,"result":{"#));
    live.call(2, "model/list", json!({})).await;
    assert!(live.lines.next_line().await.is_err(), "invalid UTF-8");
    assert_eq!(live.methods_until("reply").await.len(), 501);
}

#[tokio::test]
async fn it_can_do_things_before_it_reads() {
    let control = Control::new();
    let first = [Step::stderr("warming up"), turn::status("idle"), Step::Exit(9)];
    let script = Server::new().first(first).script();
    let live = Live::start(&control, &script, &["app-server"]);
    let ended = live.end().await;
    assert_eq!((ended.code(), ended.lines().len()), (Some(9), 1));
    assert_eq!(ended.stderr, b"warming up\n");
}

#[tokio::test]
async fn it_can_outlive_its_stdin_and_a_term() {
    let control = Control::new();
    let script = Server::new()
        .first([Step::ignore([Signal::Term])])
        .at_eof([Step::reached("eof"), Step::SleepForever])
        .script();
    let mut live = Live::server(&control, &script).await;
    drop(live.child.stdin.take());
    control.reached("eof").await;
    live.signal(Posix::SIGTERM);
    live.signal(Posix::SIGKILL);
    assert_eq!(live.end().await.code(), None);
}

#[tokio::test]
async fn it_can_stop_reading() {
    let control = Control::new();
    let stops = [Step::Reply, Step::StopReading];
    let mut live = Live::server(&control, &Server::new().once("model/list", stops).script()).await;
    live.call(1, "model/list", json!({})).await;
    live.reply(1).await;
    live.call(2, "model/list", json!({})).await;
    drop(live.child.stdin.take());
    // One that reads would exit with 0 at the end of its stdin.
    assert_eq!(control.calls("model/list").len(), 1);
    drop(control);
    assert_eq!(live.end().await.code(), Some(fake::OVERSLEPT));
}

#[tokio::test]
async fn each_start_is_its_own_server() {
    let control = Control::new();
    let dies = Server::new().once("turn/start", [Step::Reply, Step::Die(Signal::Kill)]).script();
    let script = Script::nth([dies, app_server::hello("alive")]);
    let (mut live, thread) = Live::with_thread(&control, &script).await;
    live.turn(2, &thread, "hi").await;
    assert_eq!(live.end().await.code(), None);
    let (mut live, thread) = Live::with_thread(&control, &script).await;
    live.turn(2, &thread, "hi").await;
    live.until("turn/completed").await;
    assert_eq!(control.nth_call("turn/start", 1).await.start, 1);
}
