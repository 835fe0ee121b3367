//! One suite over several releases of codex: `TAKOPI_TEST_CODEX_VERSIONS=0.125.0,0.144.6,0.166.0`.
//!
//! takopi's promises are the same on all of them. Where codex itself has drifted, the release decides
//! what is expected.
use std::io::Write as _;
use std::time::Duration;

use futures::future::join;
use takopi_codex::Codex;
use takopi_codex::app_server::CodexAppServer;
use takopi_core::{ActionKind, EngineRunner, Host, Phase, Runner, UsageScope};
use takopi_tests::codex::home::TestHome;
use takopi_tests::codex::real::{self, Version};
use takopi_tests::model::{Answer, ModelServer};
use takopi_tests::runs::{Seen, finish, is_started, request, run, until};
use takopi_tests::skip::test_name;
use tokio_util::sync::CancellationToken;

const LONG: Duration = Duration::from_mins(10);

/// Runs a check on every release that is asked for.
async fn each(check: impl AsyncFn(&real::Codex)) {
    for version in real::versions() {
        if let Some(codex) = real::codex_version_or_skip(version) {
            let _ = writeln!(std::io::stdout(), "{} on codex {}", test_name(), codex.version);
            check(&codex).await;
        }
    }
}

/// A host of its own has locks of its own, as another process would have.
fn host(home: &TestHome) -> Host {
    Host::builder().state_directory(home.state()).build().unwrap()
}

fn exec(codex: &real::Codex, home: &TestHome) -> impl Runner + use<> {
    Codex::new().binary(&codex.path).exec().on(host(home))
}

fn app_server(codex: &real::Codex, home: &TestHome, warm: Duration) -> impl Runner + use<> {
    let engine = CodexAppServer::new(Codex::new().binary(&codex.path)).keep_warm(warm);
    EngineRunner::new(engine).on(host(home))
}

/// Whether codex reports in time how a command ended.
fn reports_ends_of_commands(codex: &real::Codex) -> bool {
    codex.version >= Version::new(0, 146, 0)
}

#[tokio::test]
async fn a_new_run_and_a_resumed_one_over_both_transports() {
    each(async |codex| {
        let model = ModelServer::start();
        for word in ["first", "second", "third", "fourth"] {
            model.when(word, word);
        }
        let home = TestHome::new(&model);
        let over_exec = exec(codex, &home);
        let first = run(&over_exec, request(&home, "first")).await;
        assert_eq!(first.outline(), ["started", "turn started: turn started", "completed: first"]);
        let resume = |word| request(&home, word).resume(first.session());
        let second = run(&over_exec, resume("second")).await;
        let usage = second.ok().usage.clone().unwrap();
        assert_eq!((usage.input_tokens, usage.scope), (22, UsageScope::Thread));

        let over_server = app_server(codex, &home, LONG);
        let third = run(&over_server, resume("third")).await;
        let servers = home.servers();
        let fourth = run(&over_server, resume("fourth")).await;
        assert_eq!(home.servers(), servers, "the same process ran both");
        for seen in [&third, &fourth] {
            let usage = seen.ok().usage.clone().unwrap();
            assert_eq!((usage.input_tokens, usage.scope), (11, UsageScope::Turn), "{seen:#?}");
        }
        assert_eq!(model.requests()[3].user_texts(), ["first", "second", "third", "fourth"]);
        over_server.shutdown().await;
        assert_eq!(home.processes(), []);
    })
    .await;
}

/// A command that fails and a patch, in whatever form codex reports them.
fn check_work(codex: &real::Codex, home: &TestHome, seen: &Seen) {
    assert_eq!(seen.ok().answer, "done");
    let commands = seen.actions(&ActionKind::Command);
    let closed: Vec<_> = commands.iter().filter(|it| it.phase == Phase::Completed).collect();
    assert_eq!(closed.len(), 1, "{commands:#?}");
    assert_eq!(closed[0].action.title, "echo out; exit 3");
    assert_ne!(closed[0].ok, Some(true));
    if reports_ends_of_commands(codex) {
        assert_eq!(closed[0].action.detail["exit_code"], 3);
    }
    let change = seen.done(&ActionKind::FileChange)[0];
    assert_eq!((change.action.title.as_str(), change.ok), ("new.txt", Some(true)));
    std::fs::remove_file(home.workspace().join("new.txt")).unwrap();
}

#[tokio::test]
async fn a_command_and_a_patch_over_both_transports() {
    each(async |codex| {
        let model = ModelServer::start();
        let script = || {
            vec![
                Answer::new().exec("echo out; exit 3"),
                Answer::new().add_file("new.txt", "hello"),
                Answer::text("done"),
            ]
        };
        model.when("by exec", script());
        model.when("by server", script());
        let home = TestHome::new(&model);
        let seen = run(&exec(codex, &home), request(&home, "by exec")).await;
        check_work(codex, &home, &seen);
        let runner = app_server(codex, &home, Duration::ZERO);
        let seen = run(&runner, request(&home, "by server")).await;
        check_work(codex, &home, &seen);
        runner.shutdown().await;
        home.assert_no_processes().await;
    })
    .await;
}

async fn check_cancel(runner: &dyn Runner, home: &TestHome, word: &str) {
    let cancel = CancellationToken::new();
    let mut stream = runner.run(request(home, word).cancel(cancel.clone()));
    let seen = until(&mut stream, "Started", is_started).await;
    home.wait_for_command("sleep 622").await;
    home.wait_for_command("sleep 620").await;
    cancel.cancel();
    let seen = finish(stream, seen).await;
    seen.failed("interrupted");
    assert_eq!(home.processes(), [], "whoever sees the end knows that nothing is left");
    let again = run(runner, request(home, "again").resume(seen.session())).await;
    assert_eq!(again.ok().answer, "going on");
    runner.shutdown().await;
}

#[tokio::test]
async fn cancel_leaves_nothing_and_the_session_goes_on_over_both_transports() {
    each(async |codex| {
        let model = ModelServer::start();
        let command = "nohup setsid sleep 620 >/dev/null 2>&1 & sleep 621 & echo ready; sleep 622";
        model.when("by exec", Answer::new().exec(command));
        model.when("by server", Answer::new().exec(command));
        model.when("again", [Answer::text("going on")]);
        let home = TestHome::new(&model);
        check_cancel(&exec(codex, &home), &home, "by exec").await;
        model.when("again", [Answer::text("going on")]);
        check_cancel(&app_server(codex, &home, LONG), &home, "by server").await;
    })
    .await;
}

#[tokio::test]
async fn two_resumes_at_once_are_two_turns_in_one_history() {
    each(async |codex| {
        let model = ModelServer::start();
        for word in ["begin", "left", "right", "last"] {
            model.when(word, word);
        }
        let home = TestHome::new(&model);
        // The transports share the sessions and their locks.
        let (one, other) = (exec(codex, &home), app_server(codex, &home, LONG));
        let token = run(&one, request(&home, "begin")).await.session();
        let resume = |word| request(&home, word).resume(token.clone());
        let (left, right) = join(run(&one, resume("left")), run(&other, resume("right"))).await;
        assert_eq!((&*left.ok().answer, &*right.ok().answer), ("left", "right"));
        let requests = model.requests();
        assert!(!requests[1].overlaps(&requests[2]), "one after the other");
        assert_eq!(requests[2].user_texts().len(), 3, "the later turn sees the earlier one");
        // A server of the old releases does not see turns of others: it must not be kept.
        let last = run(&one, resume("last")).await;
        assert_eq!(last.ok().answer, "last");
        assert_eq!(model.requests()[3].user_texts().len(), 4);
        join(one.shutdown(), other.shutdown()).await;
    })
    .await;
}

/// A codex that is killed right behind its `Started` leaves a file without a whole line.
#[tokio::test]
async fn a_session_of_which_nothing_was_written_is_not_found() {
    const ID: &str = "01a1e21b-26e5-7eb0-9d27-459e98f10b74";
    each(async |codex| {
        let model = ModelServer::start();
        let home = TestHome::new(&model);
        let sessions = home.codex_home().join("sessions/2026/07/18");
        std::fs::create_dir_all(&sessions).unwrap();
        let file = sessions.join(format!("rollout-2026-07-18T10-00-00-{ID}.jsonl"));
        let runners: [Box<dyn Runner>; 2] =
            [Box::new(exec(codex, &home)), Box::new(app_server(codex, &home, Duration::ZERO))];
        for runner in runners {
            for written in ["", r#"{"timestamp":"2026-07-18T10:00:00.000Z","type":"session_me"#] {
                std::fs::write(&file, written).unwrap();
                let token = takopi_core::ResumeToken::new("codex", ID);
                let seen = run(&*runner, request(&home, "hi").resume(token)).await;
                seen.failed("session_not_found");
            }
            runner.shutdown().await;
        }
        assert_eq!(model.requests().len(), 0, "no new session, no prompt sent");
        home.assert_no_processes().await;
    })
    .await;
}

#[tokio::test]
async fn failures_have_the_same_reasons_over_both_transports() {
    each(async |codex| {
        let model = ModelServer::start();
        let home = TestHome::new(&model);
        let runners: [Box<dyn Runner>; 2] =
            [Box::new(exec(codex, &home)), Box::new(app_server(codex, &home, Duration::ZERO))];
        for runner in runners {
            model.when("boom", Answer::new().failed("server_error", "boom from mock model"));
            model.when("login", Answer::status(401, "token expired"));
            model.when("limit", Answer::usage_limit());
            let boom = run(&*runner, request(&home, "boom")).await;
            assert!(
                boom.failed("engine_failed").error.as_ref().unwrap().contains("boom from mock")
            );
            let login = run(&*runner, request(&home, "login")).await;
            assert!(login.failed("auth").error.as_ref().unwrap().contains("codex login"));
            run(&*runner, request(&home, "limit")).await.failed("usage_limit");
            let unknown = "01a1e21b-26e5-7eb0-9d27-459e98f10b74";
            let unknown = takopi_core::ResumeToken::new("codex", unknown);
            let seen = run(&*runner, request(&home, "hi").resume(unknown)).await;
            seen.failed("session_not_found");
            runner.shutdown().await;
        }
        home.assert_no_processes().await;
    })
    .await;
}

#[tokio::test]
async fn tools_of_mcp_servers_and_web_searches_are_shown_over_both_transports() {
    each(async |codex| {
        let model = ModelServer::start();
        let namespace = codex.version.mcp_namespace("lab");
        let home = TestHome::builder(&model).lab_mcp().build();
        let runners: [Box<dyn Runner>; 2] =
            [Box::new(exec(codex, &home)), Box::new(app_server(codex, &home, Duration::ZERO))];
        for runner in runners {
            let call = Answer::new().call_in(&namespace, "echo", serde_json::json!({"text": "yo"}));
            model.when("work", [call, Answer::new().web_search("octopus").message("done")]);
            let seen = run(&*runner, request(&home, "work")).await;
            assert_eq!(seen.ok().answer, "done");
            let tool = seen.done(&ActionKind::Tool)[0];
            assert_eq!((tool.action.title.as_str(), tool.ok), ("lab.echo", Some(true)));
            assert_eq!(seen.done(&ActionKind::WebSearch)[0].action.title, "octopus");
            runner.shutdown().await;
        }
    })
    .await;
}
