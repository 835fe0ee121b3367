//! The scripted model: the real codex, run without takopi, against every kind of answer it can give.
//!
//! What codex prints is compared with the recordings in `fixtures/`, so this also shows that each of them can be made again.
use std::fs;

use nix::sys::signal::Signal;
use serde_json::json;
use takopi_tests::codex::home::{HomeBuilder, TestHome};
use takopi_tests::codex::real;
use takopi_tests::codex::real::raw::{RawCodex, RawRun};
use takopi_tests::dirs;
use takopi_tests::model::{
    Answer, Gate, ModelServer, Outcome, PATIENCE, Phase, Script, Usage, within,
};

/// A recording of `codex exec --json` of the pinned release.
fn recording(name: &str) -> RawRun {
    let file = format!("fixtures/codex-{}/exec/{name}.jsonl", real::PINNED);
    let text = fs::read_to_string(dirs::workspace().join(file)).unwrap();
    RawRun { lines: text.lines().map(str::to_owned).collect(), ..RawRun::default() }
}

/// Runs a script and expects what the recording of that name has, to the letter; another release than the pinned one is
/// held to the kinds of lines.
async fn assert_recorded(
    name: &str,
    settings: impl FnOnce(HomeBuilder) -> HomeBuilder,
    script: impl Into<Script>,
) {
    let Some(codex) = real::codex_or_skip() else { return };
    let model = ModelServer::start();
    model.otherwise(script);
    let home = settings(TestHome::builder(&model)).build();
    let ended = RawCodex::exec(&codex, &home, "hi").await.end().await;

    let recorded = recording(name);
    if codex.version == real::PINNED {
        let replacements = [
            (home.workspace().to_str().unwrap().to_owned(), "/workspace"),
            (model.address().to_string(), "127.0.0.1:PORT"),
            ("ws_0_0_0".to_owned(), "ws1"),
            // Codex reads a command's two outputs apart: what is written to both comes in either order.
            (r"err\ntakopi-out\n".to_owned(), r"takopi-out\nerr\n"),
        ];
        let plain = |line: &String| {
            replacements
                .iter()
                .fold(line.clone(), |line, (own, recorded)| line.replace(own, recorded))
        };
        let lines: Vec<String> = ended.neutral().iter().map(plain).collect();
        assert_eq!(lines, recorded.neutral(), "{}", ended.stderr);
    } else {
        assert_eq!(ended.kinds(), recorded.kinds(), "{}", ended.stderr);
    }
    let failed = recorded.kinds().contains(&"turn.failed".to_owned());
    assert_eq!(ended.code, Some(i32::from(failed)));
    model.assert_finished();
    home.assert_no_processes().await;
}

fn plain(home: HomeBuilder) -> HomeBuilder {
    home
}

#[tokio::test]
async fn a_message() {
    assert_recorded("hello", plain, "Hello from the mock.").await;
}

#[tokio::test]
async fn a_message_of_odd_characters() {
    assert_recorded("unicode", plain, "héllo 🐙\u{2028}line\0nul").await;
}

#[tokio::test]
async fn two_messages() {
    let answer = Answer::text("First message").message("Second message");
    assert_recorded("two_messages", plain, answer).await;
}

#[tokio::test]
async fn messages_with_phases() {
    let answer = Answer::new().commentary("Commentary").final_answer("Final answer");
    assert_recorded("phases", plain, answer).await;
    assert_recorded("commentary_only", plain, Answer::new().commentary("Commentary")).await;
}

#[tokio::test]
async fn a_message_in_pieces() {
    let answer = Answer::new().deltas(["Hello ", "from ", "the mock."]);
    assert_recorded("hello", plain, answer).await;
}

#[tokio::test]
async fn reasoning_and_a_command_that_fails() {
    let first =
        Answer::new().reasoning("**Looking** around").exec("echo takopi-out; echo err >&2; exit 3");
    assert_recorded("shell", plain, [first, Answer::text("ran it")]).await;
}

#[tokio::test]
async fn a_patch() {
    let script = [Answer::new().add_file("new.txt", "new"), Answer::text("patched")];
    assert_recorded("patch", plain, script).await;
}

#[tokio::test]
async fn a_tool_of_an_mcp_server() {
    let script = [Answer::new().mcp("lab", "echo", json!({"text": "yo"})), Answer::text("called")];
    assert_recorded("mcp", HomeBuilder::lab_mcp, script).await;
}

#[tokio::test]
async fn a_web_search() {
    let answer = Answer::new().web_search("octopus").message("searched");
    assert_recorded("web_search", plain, answer).await;
}

#[tokio::test]
async fn a_failed_response() {
    let answer = Answer::new().failed("server_error", "boom from mock model");
    assert_recorded("failed", plain, answer).await;
}

#[tokio::test]
async fn statuses_that_are_not_tried_again() {
    assert_recorded("http401", plain, Answer::status(401, "token expired")).await;
    assert_recorded("http429", plain, Answer::usage_limit()).await;
}

#[tokio::test]
async fn a_status_that_is_tried_again_and_stays() {
    let fail = || Answer::status(500, "internal");
    let settings = |home: HomeBuilder| home.stream_max_retries(2);
    assert_recorded("http500", settings, [fail(), fail(), fail()]).await;
}

#[tokio::test]
async fn streams_that_end_too_soon_and_then_one_that_does_not() {
    let short = || Answer::new().started().ends_short();
    let settings = |home: HomeBuilder| home.stream_max_retries(5);
    assert_recorded("drop_then_ok", settings, [short(), short(), Answer::text("recovered")]).await;
}

#[tokio::test]
async fn a_broken_connection_and_then_one_that_holds() {
    let Some(codex) = real::codex_or_skip() else {
        return;
    };
    let model = ModelServer::start();
    model.otherwise([Answer::new().deltas(["half", "lost"]).cut_after(3), "whole".into()]);
    let home = TestHome::builder(&model).stream_max_retries(5).build();
    let ended = RawCodex::exec(&codex, &home, "hi").await.end().await;
    assert_eq!(
        ended.kinds(),
        [
            "thread.started",
            "turn.started",
            "error",
            "item.completed agent_message",
            "turn.completed"
        ]
    );
    assert!(ended.lines[2].contains("Reconnecting... 1/5"), "{}", ended.lines[2]);
    assert_eq!(ended.answer(), "whole");
    model.assert_finished();
}

#[tokio::test]
async fn a_gate_holds_codex_until_it_is_opened() {
    let Some(codex) = real::codex_or_skip() else { return };
    let model = ModelServer::start();
    let (before, between) = (Gate::new(), Gate::new());
    let usage = Usage { input: 100, cached: 0, output: 50, reasoning: 25 };
    model.when(
        "wait",
        Answer::new()
            .wait_for(&before)
            .commentary("one")
            .wait_for(&between)
            .delta_in(Phase::FinalAnswer, "two")
            .usage(usage),
    );
    let home = TestHome::new(&model);
    let mut codex = RawCodex::exec(&codex, &home, "wait for me").await;
    before.reached().await;
    codex.line_with("turn.started").await;
    before.open();
    between.reached().await;
    codex.line_with("agent_message").await;
    assert_eq!(model.requests()[0].outcome, Outcome::Open);
    between.open();
    let ended = codex.end().await;
    assert_eq!(ended.answer(), "two");
    assert!(ended.lines.last().unwrap().contains(r#""input_tokens":100"#));
}

#[tokio::test]
async fn sigint_ends_a_turn_that_hangs() {
    let Some(codex) = real::codex_or_skip() else { return };
    let model = ModelServer::start();
    model.otherwise(Answer::new().started().hang());
    let home = TestHome::new(&model);
    let codex = RawCodex::exec(&codex, &home, "hi").await;
    model.wait_for_requests(1).await;
    codex.signal(Signal::SIGINT);
    let ended = codex.end().await;
    assert_eq!(ended.code, Some(1));
    assert_eq!(ended.kinds(), ["thread.started", "turn.started"]);
    model.wait_until_idle().await;
    assert_eq!(model.requests()[0].outcome, Outcome::HungUp);
    home.assert_no_processes().await;
}

#[tokio::test]
async fn processes_that_run_from_codex_are_found() {
    let Some(codex) = real::codex_or_skip() else {
        return;
    };
    let model = ModelServer::start();
    model.otherwise(Answer::new().exec("cd / && nohup setsid sleep 600 && true"));
    let home = TestHome::new(&model);
    assert_eq!(home.processes(), []);
    let mut codex = RawCodex::exec(&codex, &home, "hi").await;
    codex.line_with("item.started").await;
    let sleeper = async {
        loop {
            let found = home.processes().into_iter().find(|it| it.command == "sleep 600");
            match found {
                Some(sleeper) => return sleeper,
                None => tokio::task::yield_now().await,
            }
        }
    };
    let sleeper = within(PATIENCE, "the command to run", sleeper).await;
    codex.signal(Signal::SIGKILL);
    codex.end().await;
    assert!(home.processes().iter().any(|it| it.pid == sleeper.pid));
    // What is left now goes with the home.
    let root = home.root().to_owned();
    drop(home);
    assert!(!root.exists());
    let command = fs::read(format!("/proc/{}/cmdline", sleeper.pid)).unwrap_or_default();
    assert!(command.is_empty(), "gone, or a zombie");
}

#[tokio::test]
async fn eight_conversations_at_once_each_get_their_own_answers() {
    let Some(codex) = real::codex_or_skip() else {
        return;
    };
    let model = ModelServer::start();
    let all_here = Gate::new();
    for n in 0..8 {
        let first = Answer::new().wait_for(&all_here).exec(&format!("echo output-{n}"));
        model.when(&format!("prompt {n}"), [first, Answer::text(format!("answer {n}"))]);
    }
    let home = TestHome::new(&model);
    let conversation = async |n: usize| {
        let codex = RawCodex::exec(&codex, &home, &format!("prompt {n}")).await;
        codex.end().await
    };
    let conversations = futures::future::join_all((0..8).map(conversation));
    let director = async {
        all_here.reached_by(8).await;
        all_here.open();
    };
    let (ended, ()) = tokio::join!(conversations, director);

    for (n, ended) in ended.iter().enumerate() {
        assert_eq!(ended.answer(), format!("answer {n}"));
        let requests = model.requests_about(&format!("prompt {n}"));
        assert_eq!(requests.len(), 2);
        assert!(requests.iter().all(|it| it.session() == Some(&ended.thread())));
        assert!(!requests[0].overlaps(&requests[1]));
        assert!(requests[1].tool_outputs()[0].text.contains(&format!("output-{n}")));
    }
    let first = |n: usize| model.requests_about(&format!("prompt {n}")).swap_remove(0);
    assert!(first(0).overlaps(&first(7)));
    model.assert_finished();
    home.assert_no_processes().await;
}

#[tokio::test]
async fn requests_are_recorded_with_the_whole_conversation() {
    let Some(codex) = real::codex_or_skip() else {
        return;
    };
    let model = ModelServer::start();
    model.when("first", [Answer::new().exec("exit 3"), Answer::text("one")]);
    model.when("second", "two");
    let home = TestHome::new(&model);
    let first = RawCodex::exec(&codex, &home, "the first prompt").await.end().await;
    let second = RawCodex::resume(&codex, &home, &first.thread(), "the second prompt").await;
    assert_eq!(second.end().await.answer(), "two");

    let requests = model.requests();
    let prompts: Vec<_> = requests.iter().map(|it| it.last_user_text().unwrap()).collect();
    assert_eq!(prompts, ["the first prompt", "the first prompt", "the second prompt"]);
    let last = &requests[2];
    assert_eq!(last.index, 2);
    assert_eq!(last.user_texts(), ["the first prompt", "the second prompt"]);
    assert_eq!(last.assistant_texts(), ["one"]);
    assert_eq!(last.needle.as_deref(), Some("second"));
    assert_eq!((last.model(), last.stream()), ("gpt-5.5", true));
    assert_eq!(last.session(), Some(&*first.thread()));
    assert_eq!(last.header("accept"), Some("text/event-stream"));
    assert_eq!(last.header("authorization"), None);
    let outputs = requests[1].tool_outputs();
    assert_eq!(outputs[0].call_id, "call_0_0_0");
    assert!(outputs[0].text.contains("exited with code 3"), "{outputs:?}");
    let overlap =
        requests.iter().any(|a| requests.iter().any(|b| a.index != b.index && a.overlaps(b)));
    assert!(!overlap);
    model.assert_finished();
}

#[tokio::test]
async fn a_request_without_an_answer_fails_the_turn_with_the_reason() {
    let Some(codex) = real::codex_or_skip() else {
        return;
    };
    let model = ModelServer::start();
    model.when("short", Answer::new().exec("true"));
    let home = TestHome::builder(&model).stream_max_retries(5).request_max_retries(5).build();
    let ended = RawCodex::exec(&codex, &home, "a short script").await.end().await;
    let last = ended.lines.last().unwrap();
    assert!(last.contains("turn.failed") && last.contains("is used up"), "{last}");
    assert_eq!(model.unexpected().len(), 1);
}

#[tokio::test]
async fn an_app_server_is_served_too() {
    let Some(codex) = real::codex_or_skip() else { return };
    let model = ModelServer::start();
    model.when("greet", Answer::new().deltas(["hel", "lo"]));
    let home = TestHome::new(&model);
    let mut codex = RawCodex::start(&codex, &home, &["app-server"]);
    let client = json!({"name": "takopi", "title": "takopi", "version": "0"});
    let hello = json!({"clientInfo": client, "capabilities": {"experimentalApi": true}});
    codex.send(&json!({"id": 1, "method": "initialize", "params": hello})).await;
    codex.line_with(r#""id":1,"#).await;
    codex.send(&json!({"method": "initialized"})).await;
    let thread = json!({"cwd": home.workspace()});
    codex.send(&json!({"id": 2, "method": "thread/start", "params": thread})).await;
    let started = codex.line_with(r#""id":2,"#).await;
    let thread = &started["result"]["thread"]["id"];
    let turn = json!({"threadId": thread, "input": [{"type": "text", "text": "greet"}]});
    codex.send(&json!({"id": 3, "method": "turn/start", "params": turn})).await;
    let completed = codex.line_with("turn/completed").await;
    assert_eq!(completed["params"]["turn"]["status"], "completed");
    let ended = codex.end().await;
    assert_eq!(ended.code, Some(0));
    let deltas = ended.lines.iter().filter(|line| line.contains("item/agentMessage/delta"));
    assert_eq!(deltas.count(), 2);
    model.assert_finished();
    home.assert_no_processes().await;
}

#[tokio::test]
async fn the_wrapper_that_npm_installs_runs_too() {
    let Some(codex) = real::npm_wrapper_or_skip() else {
        return;
    };
    let model = ModelServer::start();
    model.otherwise("hello");
    let home = TestHome::new(&model);
    let ended = RawCodex::exec(&codex, &home, "hi").await.end().await;
    assert_eq!((ended.code, ended.answer()), (Some(0), "hello".into()));
    home.assert_no_processes().await;
}
