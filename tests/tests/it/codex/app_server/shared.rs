//! The app-server runner in shared mode, on the real codex: many sessions on few processes.
use std::time::Duration;

use futures::future::join_all;
use takopi_codex::Codex;
use takopi_codex::app_server::{CodexAppServer, PoolLimits};
use takopi_core::{EngineRunner, Host, Runner};
use takopi_tests::codex::home::TestHome;
use takopi_tests::codex::real;
use takopi_tests::model::{Answer, Gate, ModelServer};
use takopi_tests::runs::{finish, is_started, request, run, until};
use tokio_util::sync::CancellationToken;

fn runner(codex: &real::Codex, home: &TestHome, limits: PoolLimits) -> impl Runner + use<> {
    let host = Host::builder().state_directory(home.state()).build().unwrap();
    let engine = CodexAppServer::new(Codex::new().binary(&codex.path))
        .keep_warm(Duration::from_mins(10))
        .shared(limits);
    EngineRunner::new(engine).on(host)
}

#[tokio::test]
async fn a_hundred_sessions_at_once_get_their_own_answers_on_few_processes() {
    let Some(codex) = real::codex_or_skip() else { return };
    let model = ModelServer::start();
    for number in 0..100 {
        model.when(&format!("prompt {number:03}."), format!("answer {number:03}").as_str());
    }
    let home = TestHome::new(&model);
    let runner = runner(&codex, &home, PoolLimits::new(12, 60, 4));
    let runs = (0..100).map(|number| run(&runner, request(&home, &format!("prompt {number:03}."))));
    let seen = join_all(runs).await;
    for (number, seen) in seen.iter().enumerate() {
        assert_eq!(seen.ok().answer, format!("answer {number:03}"));
    }
    assert!(home.servers().len() <= 4, "{:#?}", home.processes());
    let mut sessions: Vec<_> = seen.iter().map(|seen| seen.session().value).collect();
    sessions.sort();
    sessions.dedup();
    assert_eq!(sessions.len(), 100);
    runner.shutdown().await;
    home.assert_no_processes().await;
}

#[tokio::test]
async fn sessions_share_a_process_and_go_on_where_their_thread_is_loaded() {
    let Some(codex) = real::codex_or_skip() else { return };
    let model = ModelServer::start();
    model.when("one", "1");
    model.when("two", "2");
    model.when("three", "3");
    let home = TestHome::new(&model);
    let runner = runner(&codex, &home, PoolLimits::new(4, 10, 2));
    let one = run(&runner, request(&home, "one")).await.session();
    let two = run(&runner, request(&home, "two")).await.session();
    assert_ne!(one, two);
    let three = run(&runner, request(&home, "three").resume(one)).await;
    assert_eq!(three.ok().answer, "3");
    assert_eq!(home.servers().len(), 1);
    assert_eq!(model.requests()[2].user_texts(), ["one", "three"]);
    runner.shutdown().await;
}

#[tokio::test]
async fn a_full_process_is_drained_and_replaced_but_never_under_a_run() {
    let Some(codex) = real::codex_or_skip() else { return };
    let model = ModelServer::start();
    let gate = Gate::new();
    model.when("long", Answer::new().wait_for(&gate).message("long answer"));
    for name in ["a.", "b.", "c."] {
        model.when(name, name);
    }
    let home = TestHome::new(&model);
    // Two sessions fill a process; two processes at the most.
    let runner = runner(&codex, &home, PoolLimits::new(2, 2, 2));
    let mut long = runner.run(request(&home, "long"));
    let seen = until(&mut long, "Started", is_started).await;
    gate.reached().await;
    for name in ["a.", "b.", "c."] {
        assert_eq!(run(&runner, request(&home, name)).await.ok().answer, name);
    }
    gate.open();
    assert_eq!(finish(long, seen).await.ok().answer, "long answer");
    runner.shutdown().await;
    home.assert_no_processes().await;
}

#[tokio::test]
async fn interrupting_one_session_leaves_its_neighbour_alone_and_nothing_running() {
    let Some(codex) = real::codex_or_skip() else { return };
    let model = ModelServer::start();
    let gate = Gate::new();
    model.when("neighbour", Answer::new().wait_for(&gate).message("undisturbed"));
    let command = "nohup setsid sleep 620 >/dev/null 2>&1 & sleep 621 & echo ready; sleep 622";
    model.when("work", Answer::new().exec(command));
    model.when("again", "going on");
    let home = TestHome::new(&model);
    let runner = runner(&codex, &home, PoolLimits::new(4, 10, 1));
    let mut neighbour = runner.run(request(&home, "neighbour"));
    let before = until(&mut neighbour, "Started", is_started).await;
    let cancel = CancellationToken::new();
    let mut work = runner.run(request(&home, "work").cancel(cancel.clone()));
    let seen = until(&mut work, "Started", is_started).await;
    home.wait_for_command("sleep 622").await;
    home.wait_for_command("sleep 620").await;
    cancel.cancel();
    let seen = finish(work, seen).await;
    seen.failed("interrupted");
    let sleeping: Vec<_> = home
        .processes()
        .into_iter()
        .filter(|process| process.command.starts_with("sleep"))
        .collect();
    assert_eq!(sleeping, [], "whoever sees the end knows that nothing is left");
    gate.open();
    assert_eq!(finish(neighbour, before).await.ok().answer, "undisturbed");
    let again = run(&runner, request(&home, "again").resume(seen.session())).await;
    assert_eq!(again.ok().answer, "going on");
    runner.shutdown().await;
    home.assert_no_processes().await;
}
