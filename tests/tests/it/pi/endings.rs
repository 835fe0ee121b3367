//! How runs of the real pi end: cancels, failures, prompts that look like commands.

use std::path::Path;
use std::sync::Arc;

use takopi_core::{ActionKind, Phase, Runner, TakopiEvent};
use takopi_tests::model::Gate;
use takopi_tests::model::chat::{Answer, ChatServer};
use takopi_tests::pi::home::TestHome;
use takopi_tests::pi::real;
use takopi_tests::runs::{finish, is_started, run, until};
use tokio_util::sync::CancellationToken;

use super::{LONG, engine, runner};

/// A picture of one pixel.
const DOT: &[u8] = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR\0\0\0\x01\0\0\0\x01\x08\x06\0\0\0\x1f\x15\xc4\x89\0\0\0\rIDATx\x9cc\xf8\xcf\xc0\xf0\x1f\0\x05\0\x01\xff\x89\x99=\x1d\0\0\0\0IEND\xaeB`\x82";

#[tokio::test]
async fn a_cancel_leaves_nothing_and_the_session_goes_on() {
    let Some(pi) = real::pi_or_skip() else { return };
    let model = ChatServer::start();
    let tree = "sleep 6110 & setsid sleep 6111 & (nohup sleep 6112 >/dev/null 2>&1 &); \
                (setsid sleep 6113 >/dev/null 2>&1 &); trap '' TERM INT; sleep 6114";
    model.when("[[work]]", Answer::new().bash(tree));
    model.when("[[again]]", "going on");
    let home = TestHome::new(&model);
    let runner = runner(engine(&pi).keep_warm(LONG), &home);
    let cancel = CancellationToken::new();
    let mut stream = runner.run(home.request("[[work]]").cancel(cancel.clone()));
    let seen = until(&mut stream, "Started", is_started).await;
    for number in 6110..=6114 {
        home.wait_for_command(&format!("sleep {number}")).await;
    }
    cancel.cancel();
    let seen = finish(stream, seen).await;
    seen.failed("interrupted");
    assert_eq!(home.processes(), [], "whoever sees the end knows that nothing is left");
    let again = run(&runner, home.request("[[again]]").resume(seen.session())).await;
    assert_eq!(again.ok().answer, "going on");
    let texts = model.requests().last().unwrap().user_texts();
    assert_eq!(texts, ["[[work]]", "[[again]]"]);
    runner.shutdown().await;
    home.assert_no_processes().await;
}

#[tokio::test]
async fn a_cancel_while_an_approval_waits_ends_the_run() {
    let Some(pi) = real::pi_or_skip() else { return };
    let model = ChatServer::start();
    model.otherwise(Answer::new().bash("touch made"));
    let home = TestHome::new(&model);
    let runner = runner(engine(&pi), &home);
    let cancel = CancellationToken::new();
    let (handler, _requests) = takopi_core::approvals::channel(4);
    let request = home.request("go").permission_mode("default").approvals(Arc::new(handler));
    let mut stream = runner.run(request.cancel(cancel.clone()));
    let waits = |event: &TakopiEvent| matches!(event, TakopiEvent::Action(event) if event.action.kind == ActionKind::Approval);
    let seen = until(&mut stream, "the approval", waits).await;
    cancel.cancel();
    finish(stream, seen).await.failed("interrupted");
    assert!(!home.workspace().join("made").exists());
    home.assert_no_processes().await;
}

#[tokio::test]
async fn a_cancel_while_the_model_writes_keeps_the_answer_so_far() {
    let Some(pi) = real::pi_or_skip() else { return };
    let model = ChatServer::start();
    let gate = Gate::new();
    model.otherwise(Answer::new().delta("So far.").wait_for(&gate).delta(" Never."));
    let home = TestHome::new(&model);
    let runner = runner(engine(&pi), &home);
    let cancel = CancellationToken::new();
    let mut stream = runner.run(home.request("go").deltas(true).cancel(cancel.clone()));
    let piece = |event: &TakopiEvent| matches!(event, TakopiEvent::Action(event) if event.answer_piece().is_some());
    let seen = until(&mut stream, "a piece of the answer", piece).await;
    cancel.cancel();
    let seen = finish(stream, seen).await;
    assert_eq!(seen.failed("interrupted").answer, "So far.");
    home.assert_no_processes().await;
}

#[tokio::test]
async fn failures_of_the_model_have_a_reason_and_the_session_goes_on() {
    let Some(pi) = real::pi_or_skip() else { return };
    let model = ChatServer::start();
    model.when("[[login]]", Answer::status(401, "bad key"));
    model.when("[[rate]]", Answer::status(429, "slow down"));
    model.when("[[error]]", Answer::status(500, "kaput"));
    model.when("[[drop]]", Answer::new().delta("half").cut());
    model.when("[[long]]", Answer::too_long());
    model.when("[[length]]", Answer::text("cut sh").finish("length"));
    model.when("[[again]]", "fine");
    let home = TestHome::new(&model);
    let runner = runner(engine(&pi).keep_warm(LONG), &home);
    for (prompt, reason) in [
        ("[[login]]", "auth"),
        ("[[rate]]", "rate_limit"),
        ("[[error]]", "engine_failed"),
        ("[[drop]]", "engine_failed"),
        ("[[long]]", "context_too_long"),
        ("[[length]]", "engine_failed"),
    ] {
        let seen = run(&runner, home.request(prompt)).await;
        let completed = seen.failed(reason);
        assert!(completed.error.as_ref().is_some_and(|error| !error.contains('{')), "{prompt}");
        let again = home.request("[[again]]").resume(seen.session());
        assert_eq!(run(&runner, again).await.ok().answer, "fine", "{prompt}");
    }
    runner.shutdown().await;
    home.assert_no_processes().await;
}

#[tokio::test]
async fn retries_are_one_note_and_a_success_behind_them_is_one() {
    let Some(pi) = real::pi_or_skip() else { return };
    let model = ChatServer::start();
    let busy = || Answer::status(500, "busy");
    model.when("[[flaky]]", busy().then(busy()).then("at last"));
    model.when("[[never]]", busy());
    let home = TestHome::new(&model).retries(3);
    let runner = runner(engine(&pi), &home);
    let retries = |seen: &takopi_tests::runs::Seen| -> Vec<(Phase, Option<bool>)> {
        let notes = seen.actions(&ActionKind::Note);
        let retries = notes.iter().filter(|it| it.action.id == "pi.retry");
        retries.map(|it| (it.phase, it.ok)).collect()
    };
    let seen = run(&runner, home.request("[[flaky]]")).await;
    assert_eq!(seen.ok().answer, "at last");
    let (started, updated) = ((Phase::Started, None), (Phase::Updated, None));
    assert_eq!(retries(&seen), [started, updated, (Phase::Completed, Some(true))]);
    let seen = run(&runner, home.request("[[never]]")).await;
    seen.failed("engine_failed");
    assert_eq!(retries(&seen), [started, updated, updated, (Phase::Completed, Some(false))]);
    home.assert_no_processes().await;
}

#[tokio::test]
async fn a_prompt_is_text_whatever_it_begins_with() {
    let Some(pi) = real::pi_or_skip() else { return };
    let model = ChatServer::start();
    model.otherwise("fine");
    let home = TestHome::new(&model);
    let templates = home.config().join("prompts");
    std::fs::create_dir_all(&templates).unwrap();
    std::fs::write(templates.join("deploy.md"), "Deploy everything at once.").unwrap();
    let runner = runner(engine(&pi), &home);
    for prompt in ["/deploy now", "/mcp", "@notes.txt what?", "!ls", "--help"] {
        assert_eq!(run(&runner, home.request(prompt)).await.ok().answer, "fine", "{prompt}");
        let sent = model.requests().last().unwrap().last_user_text().unwrap();
        assert_eq!(sent.trim_start(), prompt);
    }
    home.assert_no_processes().await;
}

#[tokio::test]
async fn model_effort_and_images_reach_the_model() {
    let Some(pi) = real::pi_or_skip() else { return };
    let model = ChatServer::start();
    model.otherwise("fine");
    let home = TestHome::new(&model);
    let image = home.root().join("dot.png");
    std::fs::write(&image, DOT).unwrap();
    let runner = runner(engine(&pi), &home);
    let request = home.request("what is it?").model("mock/thinker".to_owned());
    run(&runner, request.effort("high".to_owned()).image(image)).await.ok();
    let request = &model.requests()[0];
    assert_eq!((request.model(), request.images()), ("thinker", 1));
    assert_eq!(request.body["reasoning_effort"], "high", "{}", request.body);
    // The provider may have models that pi does not know: it is asked for this one, and for no other.
    run(&runner, home.request("hi").model("mock/unlisted".to_owned())).await.ok();
    assert_eq!(model.requests()[1].model(), "unlisted");
    let unknown = home.request("hi").model("no-such-provider/m".to_owned());
    let seen = run(&runner, unknown).await;
    assert!(!seen.completed().ok, "{:?}", seen.events);
    home.assert_no_processes().await;
}

#[tokio::test]
async fn the_answer_is_streamed_if_asked_for_and_no_text_comes_twice() {
    let Some(pi) = real::pi_or_skip() else { return };
    let model = ChatServer::start();
    let look = Answer::text("Look.").bash("echo out");
    model.otherwise([look, Answer::new().deltas(["Final ", "answer"])]);
    let home = TestHome::new(&model);
    let runner = runner(engine(&pi), &home);
    let seen = run(&runner, home.request("go").deltas(true)).await;
    assert_eq!(seen.ok().answer, "Final answer");
    assert_eq!(seen.streamed(), ["Look.", "Final answer"]);
    assert!(seen.actions(&ActionKind::Note).is_empty(), "{:?}", seen.outline());
    let quiet = run(&runner, home.request("go")).await;
    assert!(quiet.actions(&ActionKind::Answer).is_empty());
    home.assert_no_processes().await;
}

#[tokio::test]
async fn a_session_of_another_directory_goes_on_where_it_began() {
    let Some(pi) = real::pi_or_skip() else { return };
    let model = ChatServer::start();
    model.when("[[one]]", "begun");
    model.when("[[two]]", [Answer::new().bash("pwd"), Answer::text("done")]);
    let home = TestHome::new(&model);
    let runner = runner(engine(&pi), &home);
    let session = run(&runner, home.request("[[one]]")).await.session();
    let other = home.root().join("other");
    std::fs::create_dir(&other).unwrap();
    let seen = run(&runner, home.request("[[two]]").cwd(&other).resume(session)).await;
    assert_eq!(seen.ok().answer, "done");
    let pwd = &model.requests().last().unwrap().tool_outputs()[0].text;
    assert_eq!(Path::new(pwd.trim()), home.workspace());
    let notes = seen.done(&ActionKind::Note);
    let told = notes.iter().any(|it| it.action.title.starts_with("the session belongs to "));
    assert!(told, "{:?}", seen.outline());
    assert_eq!(home.sessions().len(), 1);
    home.assert_no_processes().await;
}
