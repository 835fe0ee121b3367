//! Codex over `codex exec --json`, on the real codex with a scripted model.
use std::time::Duration;

use futures::StreamExt;
use futures::future::join;
use takopi_codex::Codex;
use takopi_core::{ActionKind, Host, ResumeToken, Runner, UsageScope};
use takopi_tests::codex::home::TestHome;
use takopi_tests::codex::real;
use takopi_tests::codex::real::raw::RawCodex;
use takopi_tests::model::{Answer, Gate, ModelServer};
use takopi_tests::runs::{finish, is_started, request, run, until};
use tokio_util::sync::CancellationToken;

/// An exec runner with locks of its own, as another process would have.
fn runner(codex: &real::Codex, home: &TestHome) -> impl Runner + use<> {
    let host = Host::builder().state_directory(home.state()).build().unwrap();
    Codex::new().binary(&codex.path).exec().on(host)
}

#[tokio::test]
async fn a_new_run_and_a_resumed_one() {
    let Some(codex) = real::codex_or_skip() else { return };
    let model = ModelServer::start();
    model.when("first", "Hello.");
    model.when("second", "Hello again.");
    let home = TestHome::new(&model);
    let runner = runner(&codex, &home);

    let first = run(&runner, request(&home, "first")).await;
    assert_eq!(first.ok().answer, "Hello.");
    assert_eq!(first.outline(), ["started", "turn started: turn started", "completed: Hello."]);
    let usage = first.completed().usage.clone().unwrap();
    assert_eq!((usage.input_tokens, usage.scope), (11, UsageScope::Turn));

    let second = run(&runner, request(&home, "second").resume(first.session())).await;
    assert_eq!(second.ok().answer, "Hello again.");
    assert_eq!(second.session(), first.session());
    let usage = second.completed().usage.clone().unwrap();
    assert_eq!((usage.input_tokens, usage.scope), (22, UsageScope::Thread));
    let request = model.requests_about("second").remove(0);
    assert_eq!(request.user_texts(), ["first", "second"], "the history came along");
    model.assert_finished();
    runner.shutdown().await;
    home.assert_no_processes().await;
}

#[tokio::test]
async fn two_resumes_of_one_token_at_once_both_reach_the_model_in_two_turns() {
    let Some(codex) = real::codex_or_skip() else { return };
    let model = ModelServer::start();
    model.when("first", "begun");
    model.when("left", "answer to left");
    model.when("right", "answer to right");
    let home = TestHome::new(&model);
    // Two hosts do not share a table of locks, only the files: like two processes.
    let (one, other) = (runner(&codex, &home), runner(&codex, &home));
    let token = run(&one, request(&home, "first")).await.session();

    let left = run(&one, request(&home, "left").resume(token.clone()));
    let right = run(&other, request(&home, "right").resume(token.clone()));
    let (left, right) = join(left, right).await;
    assert_eq!(left.ok().answer, "answer to left");
    assert_eq!(right.ok().answer, "answer to right");
    let requests = model.requests();
    assert_eq!(requests.len(), 3);
    assert!(!requests[1].overlaps(&requests[2]), "one after the other");
    assert_eq!(requests[2].user_texts().len(), 3, "the last turn sees both earlier ones");
}

#[tokio::test]
async fn a_resume_started_while_a_new_session_runs_waits_for_it() {
    let Some(codex) = real::codex_or_skip() else { return };
    let model = ModelServer::start();
    let gate = Gate::new();
    model.when("first", Answer::new().wait_for(&gate).message("first answer"));
    model.when("second", "second answer");
    let home = TestHome::new(&model);
    let (one, other) = (runner(&codex, &home), runner(&codex, &home));

    let mut first = one.run(request(&home, "first"));
    let seen = until(&mut first, "Started", is_started).await;
    let Some(takopi_core::TakopiEvent::Started(started)) = seen.last() else { panic!() };
    let mut second = other.run(request(&home, "second").resume(started.resume.clone()));
    let waiting = until(&mut second, "the note about waiting", |event| {
        matches!(event, takopi_core::TakopiEvent::Action(event) if event.action.id == takopi_core::runner::WAIT_ACTION)
    })
    .await;
    assert_eq!(model.requests_about("second").len(), 0);
    gate.open();
    assert_eq!(finish(first, seen).await.ok().answer, "first answer");
    assert_eq!(finish(second, waiting).await.ok().answer, "second answer");
}

#[tokio::test]
async fn a_failing_command_a_patch_and_reasoning_are_shown() {
    let Some(codex) = real::codex_or_skip() else { return };
    let model = ModelServer::start();
    model.when(
        "work",
        [
            Answer::new().reasoning("**Thinking** hard").exec("echo out; exit 3"),
            Answer::new().add_file("new.txt", "hello"),
            Answer::text("done"),
        ],
    );
    let home = TestHome::new(&model);
    let runner = runner(&codex, &home);
    let seen = run(&runner, request(&home, "work")).await;
    assert_eq!(seen.ok().answer, "done");
    let command = seen.done(&ActionKind::Command)[0];
    assert_eq!(command.action.title, "echo out; exit 3");
    assert_eq!(command.ok, Some(false));
    assert_eq!(command.action.detail["exit_code"], 3);
    let change = seen.done(&ActionKind::FileChange)[0];
    assert_eq!((change.action.title.as_str(), change.ok), ("new.txt", Some(true)));
    assert!(home.workspace().join("new.txt").is_file());
    assert!(seen.done(&ActionKind::Note).iter().any(|note| note.action.title.contains("Thinking")));
}

#[tokio::test]
async fn mcp_calls_and_web_searches_are_shown() {
    let Some(codex) = real::codex_or_skip() else { return };
    let model = ModelServer::start();
    model.when(
        "work",
        [
            Answer::new().mcp("lab", "echo", serde_json::json!({ "text": "yo" })),
            Answer::new().web_search("octopus").message("done"),
        ],
    );
    let home = TestHome::builder(&model).lab_mcp().build();
    let runner = runner(&codex, &home);
    let seen = run(&runner, request(&home, "work")).await;
    assert_eq!(seen.ok().answer, "done");
    let tool = seen.done(&ActionKind::Tool)[0];
    assert_eq!((tool.action.title.as_str(), tool.ok), ("lab.echo", Some(true)));
    assert_eq!(tool.action.detail["result_summary"]["has_structured"], true);
    assert_eq!(seen.done(&ActionKind::WebSearch)[0].action.title, "octopus");
}

#[tokio::test]
async fn failures_get_their_reason() {
    let Some(codex) = real::codex_or_skip() else { return };
    let model = ModelServer::start();
    model.when("boom", Answer::new().failed("server_error", "boom from mock model"));
    model.when("login", Answer::status(401, "token expired"));
    model.when("limit", Answer::usage_limit());
    let home = TestHome::new(&model);
    let runner = runner(&codex, &home);
    let boom = run(&runner, request(&home, "boom")).await;
    assert!(boom.failed("engine_failed").error.as_ref().unwrap().contains("boom from mock model"));
    let login = run(&runner, request(&home, "login")).await;
    assert!(login.failed("auth").error.as_ref().unwrap().contains("codex login"));
    run(&runner, request(&home, "limit")).await.failed("usage_limit");
}

#[tokio::test]
async fn a_reconnect_with_recovery_is_one_note() {
    let Some(codex) = real::codex_or_skip() else { return };
    let model = ModelServer::start();
    model.when(
        "go",
        [Answer::new().ends_short(), Answer::new().ends_short(), Answer::text("recovered")],
    );
    let home = TestHome::builder(&model).stream_max_retries(5).build();
    let runner = runner(&codex, &home);
    let seen = run(&runner, request(&home, "go")).await;
    assert_eq!(seen.ok().answer, "recovered");
    let notes: Vec<_> = seen
        .actions(&ActionKind::Note)
        .into_iter()
        .filter(|note| note.action.id == "codex.reconnect")
        .collect();
    assert_eq!(notes.len(), 3, "{notes:#?}");
    assert_eq!(notes[1].action.title, "Reconnecting... 2/5");
    assert_eq!(notes[2].ok, Some(true));
}

#[tokio::test]
async fn cancel_during_a_command_leaves_nothing_running_and_the_session_goes_on() {
    let Some(codex) = real::codex_or_skip() else { return };
    let model = ModelServer::start();
    let command = "nohup setsid sleep 600 >/dev/null 2>&1 & sleep 601 & echo ready; sleep 602";
    model.when("work", Answer::new().commentary("on it").exec(command));
    model.when("again", "going on");
    let home = TestHome::new(&model);
    let runner = runner(&codex, &home);
    let cancel = CancellationToken::new();
    let mut stream = runner.run(request(&home, "work").cancel(cancel.clone()));
    let seen = until(&mut stream, "the command", |event| {
        matches!(event, takopi_core::TakopiEvent::Action(event) if event.action.kind == ActionKind::Command)
    })
    .await;
    home.wait_for_command("sleep 602").await;
    home.wait_for_command("sleep 600").await;
    cancel.cancel();
    let seen = finish(stream, seen).await;
    seen.failed("interrupted");
    // Nothing is left once the end is received: no polling.
    assert_eq!(home.processes(), [], "{seen:#?}");
    let again = run(&runner, request(&home, "again").resume(seen.session())).await;
    assert_eq!(again.ok().answer, "going on");
}

#[tokio::test]
async fn dropping_the_stream_ends_codex_before_the_next_run_on_the_session() {
    let Some(codex) = real::codex_or_skip() else { return };
    let model = ModelServer::start();
    model.when("hang", Answer::new().hang());
    model.when("again", "going on");
    let home = TestHome::new(&model);
    let runner = runner(&codex, &home);
    let mut stream = runner.run(request(&home, "hang"));
    let seen = until(&mut stream, "Started", is_started).await;
    let Some(takopi_core::TakopiEvent::Started(started)) = seen.last() else { panic!() };
    let token = started.resume.clone();
    model.wait_for_requests(1).await;
    drop(stream);
    let again = run(&runner, request(&home, "again").resume(token)).await;
    assert_eq!(again.ok().answer, "going on");
    runner.shutdown().await;
    home.assert_no_processes().await;
}

#[tokio::test]
async fn tokens_that_are_none_start_nothing() {
    let Some(codex) = real::codex_or_skip() else { return };
    let model = ModelServer::start();
    let home = TestHome::new(&model);
    let runner = runner(&codex, &home);
    for value in ["my-session", "--last", "--dangerously-bypass-approvals-and-sandbox", ""] {
        let token = ResumeToken::new("codex", value);
        let seen = run(&runner, request(&home, "hi").resume(token.clone())).await;
        assert_eq!(seen.failed("invalid_request").resume, Some(token));
        assert_eq!(seen.events.len(), 1);
    }
    let unknown = ResumeToken::new("codex", "01a1e21b-26e5-7eb0-9d27-459e98f10b74");
    let seen = run(&runner, request(&home, "hi").resume(unknown.clone())).await;
    assert_eq!(seen.failed("session_not_found").resume, Some(unknown));
    assert_eq!(model.requests().len(), 0, "no new session, no prompt sent");
}

#[tokio::test]
async fn an_upper_case_token_is_the_same_session() {
    let Some(codex) = real::codex_or_skip() else {
        return;
    };
    let model = ModelServer::start();
    model.otherwise(takopi_tests::model::Script::repeat(Answer::text("fine")));
    let home = TestHome::new(&model);
    let runner = runner(&codex, &home);
    let token = run(&runner, request(&home, "one")).await.session();
    let shouted = ResumeToken::new("codex", token.value.to_uppercase());
    let seen = run(&runner, request(&home, "two").resume(shouted)).await;
    assert_eq!(seen.ok().resume, Some(token));
}

#[tokio::test]
async fn a_session_held_by_another_codex_is_waited_for() {
    let Some(codex) = real::codex_or_skip() else { return };
    // Older releases do not guard their sessions.
    if real::older_than(&codex, real::Version::new(0, 147, 0)) {
        return;
    }
    let model = ModelServer::start();
    model.when("begin", "begun");
    model.when("mine", "my answer");
    let gate = Gate::new();
    model.when("theirs", Answer::new().wait_for(&gate).message("their answer"));
    let home = TestHome::new(&model);
    let runner = runner(&codex, &home);
    let token = run(&runner, request(&home, "begin")).await.session();
    let theirs = RawCodex::resume(&codex, &home, &token.value, "theirs").await;
    let theirs = tokio::spawn(theirs.end());
    gate.reached().await;
    // Not for longer than its limit.
    let busy =
        run(&runner, request(&home, "mine").resume(token.clone()).wait(Duration::from_millis(300)))
            .await;
    assert_eq!(busy.failed("session_busy").resume, Some(token.clone()));
    let mut mine = runner.run(request(&home, "mine").resume(token));
    let seen = until(&mut mine, "the note about waiting", |event| {
        matches!(event, takopi_core::TakopiEvent::Action(event) if event.action.id == takopi_core::runner::WAIT_ACTION)
    })
    .await;
    gate.open();
    assert_eq!(theirs.await.unwrap().answer(), "their answer");
    assert_eq!(finish(mine, seen).await.ok().answer, "my answer");
}

#[tokio::test]
async fn npms_own_wrapper_runs_and_is_cancelled_cleanly() {
    let Some(codex) = real::npm_wrapper_or_skip() else { return };
    let model = ModelServer::start();
    model.when("hello", "Hello.");
    model.when("work", Answer::new().exec("sleep 603"));
    let home = TestHome::new(&model);
    let runner = runner(&codex, &home);
    assert_eq!(run(&runner, request(&home, "hello")).await.ok().answer, "Hello.");
    let mut stream = runner.run(request(&home, "work"));
    home.wait_for_command("sleep 603").await;
    let first = stream.next().await;
    assert!(first.is_some());
    drop(stream);
    runner.shutdown().await;
    assert_eq!(home.processes(), []);
}
