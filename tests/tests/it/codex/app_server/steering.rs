//! Follow-ups into a running turn, on the real codex with a scripted model.
use takopi_codex::Codex;
use takopi_core::runner::steer_channel;
use takopi_core::{Host, Runner};
use takopi_tests::codex::home::TestHome;
use takopi_tests::codex::real;
use takopi_tests::model::{Answer, Gate, ModelServer};
use takopi_tests::runs::{finish, is_started, request, until};

#[tokio::test]
async fn a_follow_up_is_taken_into_the_running_turn_and_answered_in_it() {
    let Some(codex) = real::codex_or_skip() else {
        return;
    };
    let model = ModelServer::start();
    let gate = Gate::new();
    model.when("begin", Answer::new().wait_for(&gate).message("First."));
    model.when("mind the tests", "Both.");
    let home = TestHome::new(&model);
    let host = Host::builder().state_directory(home.state()).build().unwrap();
    let runner = Codex::new().binary(&codex.path).app_server().on(host);

    let (steer, steering) = steer_channel();
    let mut stream = runner.run(request(&home, "begin").steering(steering));
    let events = until(&mut stream, "the start", is_started).await;
    gate.reached().await;
    steer.send("and mind the tests").await.unwrap();
    gate.open();
    let seen = finish(stream, events).await;
    assert_eq!(seen.ok().answer, "Both.");
    assert_eq!(model.requests()[1].user_texts(), ["begin", "and mind the tests"]);

    let late = steer.send("one more thing").await.unwrap_err();
    assert_eq!(late.text, "one more thing");
    runner.shutdown().await;
    home.assert_no_processes().await;
}

#[tokio::test]
async fn exec_cannot_be_steered_and_hands_back_at_once() {
    let Some(codex) = real::codex_or_skip() else { return };
    let model = ModelServer::start();
    let gate = Gate::new();
    model.when("begin", Answer::new().wait_for(&gate).message("Alone."));
    let home = TestHome::new(&model);
    let host = Host::builder().state_directory(home.state()).build().unwrap();
    let runner = Codex::new().binary(&codex.path).exec().on(host);

    let (steer, steering) = steer_channel();
    let mut stream = runner.run(request(&home, "begin").steering(steering));
    let events = until(&mut stream, "the start", is_started).await;
    assert_eq!(steer.send("hello").await.unwrap_err().text, "hello");
    gate.open();
    assert_eq!(finish(stream, events).await.ok().answer, "Alone.");
}
