//! The runner over `codex app-server`, on the real codex with a scripted model.
use std::time::Duration;

use takopi_codex::Codex;
use takopi_codex::app_server::CodexAppServer;
use takopi_core::{ActionKind, EngineRunner, Host, Runner, TakopiEvent, UsageScope};
use takopi_tests::codex::home::TestHome;
use takopi_tests::codex::real;
use takopi_tests::codex::real::raw::RawCodex;
use takopi_tests::model::{Answer, Gate, ModelServer};
use takopi_tests::runs::{finish, is_started, request, run, until};
use tokio_util::sync::CancellationToken;

const LONG: Duration = Duration::from_mins(10);

/// A runner with locks of its own, as another process would have.
fn runner(codex: &real::Codex, home: &TestHome, warm: Duration) -> impl Runner + use<> {
    let host = Host::builder().state_directory(home.state()).build().unwrap();
    EngineRunner::new(CodexAppServer::new(Codex::new().binary(&codex.path)).keep_warm(warm))
        .on(host)
}

fn is_wait(event: &TakopiEvent) -> bool {
    matches!(event, TakopiEvent::Action(event) if event.action.id == takopi_core::runner::WAIT_ACTION)
}

#[tokio::test]
async fn a_run_and_a_warm_second_one_with_usage_of_each_alone() {
    let Some(codex) = real::codex_or_skip() else { return };
    let model = ModelServer::start();
    model.when("first", "Hello.");
    model.when("second", "Hello again.");
    let home = TestHome::new(&model);
    let runner = runner(&codex, &home, LONG);
    let first = run(&runner, request(&home, "first")).await;
    assert_eq!(
        first.steady_outline(),
        ["started", "turn started: turn started", "completed: Hello."]
    );
    let servers = home.servers();
    let second = run(&runner, request(&home, "second").resume(first.session())).await;
    assert_eq!(
        second.steady_outline(),
        ["started", "turn started: turn started", "completed: Hello again."]
    );
    assert_eq!(home.servers(), servers, "the same process ran both");
    for seen in [&first, &second] {
        let usage = seen.ok().usage.clone().unwrap();
        assert_eq!(
            (usage.input_tokens, usage.output_tokens, usage.scope),
            (11, 7, UsageScope::Turn)
        );
    }
    assert_eq!(model.requests()[1].user_texts(), ["first", "second"]);
    runner.shutdown().await;
    assert_eq!(home.processes(), [], "shutdown ends what is kept warm");
}

#[tokio::test]
async fn a_session_works_where_each_of_its_runs_asks_cold_and_warm() {
    let Some(codex) = real::codex_or_skip() else { return };
    let model = ModelServer::start();
    let home = TestHome::new(&model);
    let (here, there) = (home.workspace(), home.workspace().with_file_name("there"));
    std::fs::create_dir(&there).unwrap();
    let (warm, cold) = (runner(&codex, &home, LONG), runner(&codex, &home, Duration::ZERO));
    let mut session = None;
    // Each time the warm one goes on where it was, goes elsewhere, and comes back.
    for (number, (runner, directory)) in [
        (&warm as &dyn Runner, &here),
        (&warm, &here),
        (&warm, &there),
        (&warm, &there),
        (&warm, &here),
        (&cold, &there),
        (&cold, &here),
    ]
    .into_iter()
    .enumerate()
    {
        let (prompt, file) = (format!("step {number}"), format!("file_{number}"));
        model.when(&prompt, [Answer::new().exec(&format!("touch {file}")), Answer::text("done")]);
        let request = request(&home, &prompt).cwd(directory).resume(session.clone());
        let seen = run(runner, request).await;
        assert_eq!(seen.ok().answer, "done");
        assert!(directory.join(&file).exists(), "{prompt}: not in {}", directory.display());
        session = Some(seen.session());
    }
    warm.shutdown().await;
    cold.shutdown().await;
}

#[tokio::test]
async fn the_same_events_as_over_exec_for_the_same_happenings() {
    let Some(codex) = real::codex_or_skip() else { return };
    let model = ModelServer::start();
    let script = || {
        [
            Answer::new().reasoning("**Thinking** hard").exec("echo out; exit 3"),
            Answer::new().add_file("new.txt", "hello"),
            Answer::new().mcp("lab", "echo", serde_json::json!({ "text": "yo" })),
            Answer::new().web_search("octopus").message("done"),
        ]
    };
    model.when("work", script().to_vec());
    model.when("work", script().to_vec());
    let home = TestHome::builder(&model).lab_mcp().build();
    let host = Host::builder().state_directory(home.state()).build().unwrap();
    let exec = Codex::new().binary(&codex.path).exec().on(host);
    let over_exec = run(&exec, request(&home, "work")).await;
    std::fs::remove_file(home.workspace().join("new.txt")).unwrap();
    let runner = runner(&codex, &home, Duration::ZERO);
    let over_server = run(&runner, request(&home, "work")).await;
    assert_eq!(over_server.steady_outline(), over_exec.steady_outline());
    assert_eq!(over_server.ok().answer, "done");
    runner.shutdown().await;
    home.assert_no_processes().await;
}

#[tokio::test]
async fn the_answer_is_streamed_if_asked_for_and_no_text_comes_twice() {
    let Some(codex) = real::codex_or_skip() else { return };
    let model = ModelServer::start();
    let gate = Gate::new();
    let answer =
        || Answer::new().commentary("Commentary").delta("Final ").wait_for(&gate).delta("answer");
    model.when("go", [answer(), answer()]);
    let home = TestHome::new(&model);
    let runner = runner(&codex, &home, Duration::ZERO);
    let mut stream = runner.run(request(&home, "go").deltas(true));
    let seen = until(&mut stream, "streamed text", |event| {
        matches!(event, TakopiEvent::Action(event) if event.answer_piece() == Some("Final "))
    })
    .await;
    gate.open();
    let seen = finish(stream, seen).await;
    assert_eq!(seen.ok().answer, "Final answer");
    assert_eq!(seen.streamed(), ["Final answer"]);
    let notes = seen.done(&ActionKind::Note);
    assert_eq!(notes[0].action.title, "Commentary");
    assert_eq!(notes[0].action.detail["phase"], "commentary");
    assert_eq!(notes.len(), 1, "{notes:#?}");

    let plain = run(&runner, request(&home, "go")).await;
    assert_eq!(plain.ok().answer, "Final answer");
    assert_eq!(plain.streamed(), Vec::<String>::new());
    assert_eq!(plain.actions(&ActionKind::Answer).len(), 0);
    runner.shutdown().await;
}

#[tokio::test]
async fn failures_carry_the_engines_text_and_a_reason() {
    let Some(codex) = real::codex_or_skip() else { return };
    let model = ModelServer::start();
    model.when("boom", Answer::new().failed("server_error", "boom from mock model"));
    model.when("login", Answer::status(401, "token expired"));
    model.when("limit", Answer::usage_limit());
    let home = TestHome::new(&model);
    let runner = runner(&codex, &home, Duration::ZERO);
    let boom = run(&runner, request(&home, "boom")).await;
    assert!(boom.failed("engine_failed").error.as_ref().unwrap().contains("boom from mock model"));
    let login = run(&runner, request(&home, "login")).await;
    assert!(login.failed("auth").error.as_ref().unwrap().contains("codex login"));
    run(&runner, request(&home, "limit")).await.failed("usage_limit");
    let unknown = takopi_core::ResumeToken::new("codex", "01a1e21b-26e5-7eb0-9d27-459e98f10b74");
    let seen = run(&runner, request(&home, "hi").resume(unknown)).await;
    seen.failed("session_not_found");
    runner.shutdown().await;
    home.assert_no_processes().await;
}

#[tokio::test]
async fn interrupt_leaves_nothing_running_and_the_session_goes_on() {
    let Some(codex) = real::codex_or_skip() else { return };
    let model = ModelServer::start();
    let command = "nohup setsid sleep 610 >/dev/null 2>&1 & sleep 611 & echo ready; sleep 612";
    model.when("work", Answer::new().commentary("on it").exec(command));
    model.when("again", "going on");
    let home = TestHome::new(&model);
    let runner = runner(&codex, &home, LONG);
    let cancel = CancellationToken::new();
    let mut stream = runner.run(request(&home, "work").cancel(cancel.clone()));
    let seen = until(&mut stream, "Started", is_started).await;
    home.wait_for_command("sleep 612").await;
    home.wait_for_command("sleep 610").await;
    cancel.cancel();
    let seen = finish(stream, seen).await;
    seen.failed("interrupted");
    assert_eq!(home.processes(), [], "whoever sees the end knows that nothing is left");
    let again = run(&runner, request(&home, "again").resume(seen.session())).await;
    assert_eq!(again.ok().answer, "going on");
    assert_eq!(model.requests_about("again")[0].user_texts(), ["work", "again"]);
    runner.shutdown().await;
}

#[tokio::test]
async fn a_warm_session_is_given_up_to_another_runner_and_can_be_had_back() {
    let Some(codex) = real::codex_or_skip() else { return };
    let model = ModelServer::start();
    model.when("one", "1");
    model.when("two", "2");
    model.when("three", "3");
    let home = TestHome::new(&model);
    let (mine, theirs) = (runner(&codex, &home, LONG), runner(&codex, &home, LONG));
    let token = run(&mine, request(&home, "one")).await.session();
    let two = run(&theirs, request(&home, "two").resume(token.clone())).await;
    assert_eq!(two.ok().answer, "2");
    let back = run(&mine, request(&home, "three").resume(token)).await;
    assert_eq!(back.ok().answer, "3");
    assert_eq!(model.requests()[2].user_texts(), ["one", "two", "three"]);
    mine.shutdown().await;
    theirs.shutdown().await;
}

#[tokio::test]
async fn exec_gets_a_session_that_the_app_server_keeps_warm() {
    let Some(codex) = real::codex_or_skip() else { return };
    let model = ModelServer::start();
    model.when("one", "1");
    model.when("two", "2");
    let home = TestHome::new(&model);
    let host = Host::builder().state_directory(home.state()).build().unwrap();
    let binary = Codex::new().binary(&codex.path);
    let server =
        EngineRunner::new(CodexAppServer::new(binary.clone()).keep_warm(LONG)).on(host.clone());
    let exec = binary.exec().on(host);
    let token = run(&server, request(&home, "one")).await.session();
    let two = run(&exec, request(&home, "two").resume(token)).await;
    assert_eq!(two.ok().answer, "2");
    server.shutdown().await;
}

#[tokio::test]
async fn after_its_warm_time_a_session_is_free_for_others() {
    let Some(codex) = real::codex_or_skip() else { return };
    let model = ModelServer::start();
    model.when("one", "1");
    model.when("two", "2");
    let home = TestHome::new(&model);
    let runner = runner(&codex, &home, Duration::from_millis(1));
    let token = run(&runner, request(&home, "one")).await.session();
    home.assert_no_processes().await;
    let outside = RawCodex::resume(&codex, &home, &token.value, "two").await.end().await;
    assert_eq!(outside.answer(), "2");
    runner.shutdown().await;
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
    let runner = runner(&codex, &home, Duration::from_millis(1));
    let token = run(&runner, request(&home, "begin")).await.session();
    home.assert_no_processes().await;
    let theirs = RawCodex::resume(&codex, &home, &token.value, "theirs").await;
    let meanwhile = async {
        gate.reached().await;
        let wait = Duration::from_millis(300);
        let busy = run(&runner, request(&home, "mine").resume(token.clone()).wait(wait)).await;
        assert_eq!(busy.failed("session_busy").resume, Some(token.clone()));
        let mut mine = runner.run(request(&home, "mine").resume(token.clone()));
        let seen = until(&mut mine, "the note about waiting", is_wait).await;
        gate.open();
        finish(mine, seen).await
    };
    let (theirs, mine) = futures::future::join(theirs.end(), meanwhile).await;
    assert_eq!(theirs.answer(), "their answer");
    assert_eq!(mine.ok().answer, "my answer");
    runner.shutdown().await;
}

#[tokio::test]
async fn a_declined_patch_is_not_written_and_is_reported() {
    let Some(codex) = real::codex_or_skip() else {
        return;
    };
    let model = ModelServer::start();
    model.when("patch", [Answer::new().add_file("new.txt", "hello"), Answer::text("ended")]);
    let home =
        TestHome::builder(&model).approval_policy("on-request").sandbox_mode("read-only").build();
    let runner = runner(&codex, &home, Duration::ZERO);
    let seen = run(&runner, request(&home, "patch")).await;
    assert_eq!(seen.ok().answer, "ended");
    let approval = seen.done(&ActionKind::Approval)[0];
    assert_eq!(approval.action.title, "1 add: new.txt");
    assert_eq!(approval.ok, Some(false));
    assert!(approval.message.as_ref().unwrap().contains("no approval handler"));
    assert!(!home.workspace().join("new.txt").exists());
    runner.shutdown().await;
}

#[tokio::test]
async fn what_one_run_set_does_not_hold_for_the_next() {
    let Some(codex) = real::codex_or_skip() else {
        return;
    };
    let model = ModelServer::start();
    model.when("one", "1");
    model.when("two", "2");
    model.when("three", "3");
    let home = TestHome::new(&model);
    let runner = runner(&codex, &home, LONG);
    let token = run(&runner, request(&home, "one").effort("low")).await.session();
    let first = home.servers();
    run(&runner, request(&home, "two").effort("high").resume(token.clone())).await.ok();
    assert_eq!(home.servers(), first, "what is set anew takes the place of what was set");
    run(&runner, request(&home, "three").resume(token)).await.ok();
    assert_ne!(home.servers(), first, "nothing takes a setting back but loading the session anew");
    runner.shutdown().await;
    assert_eq!(home.processes(), []);
}
