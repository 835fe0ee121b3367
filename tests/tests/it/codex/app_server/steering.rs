//! Follow-ups into a running turn, on the real codex with a scripted model, and on a fake that accepts them too late.
use std::time::Duration;

use futures::FutureExt as _;
use takopi_codex::Codex;
use takopi_core::runner::steer_channel;
use takopi_core::{ActionKind, Host, Runner};

use takopi_tests::codex::fake::{Script, Server, Signal, Step, turn};
use takopi_tests::codex::home::TestHome;
use takopi_tests::codex::lab::Lab;
use takopi_tests::codex::real;
use takopi_tests::model::{Answer, Gate, ModelServer};
use takopi_tests::runs::{finish, is_started, request, run, until};

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
    let mut texts = model.requests()[1].user_texts();
    // On a busy machine codex ends the turn without asking the model again. Then the message is in the history, and a turn of its own
    // sends the same text.
    texts.dedup();
    assert_eq!(texts, ["begin", "and mind the tests"]);

    let late = steer.send("one more thing").await.unwrap_err();
    assert_eq!(late.text, "one more thing");
    runner.shutdown().await;
    home.assert_no_processes().await;
}

/// The server accepts a follow-up after the model was asked for the last time, and does this with it.
async fn accepted_too_late(steps: Vec<Step>, deltas: bool) {
    let mut first = vec![Step::Reached("turn".into()), Step::Gate("end".into())];
    first.extend(turn::message("m", "First."));
    first.extend(steps);
    first.extend([turn::usage(), turn::completed()]);
    let server = Server::new().turns_when("begin", first);
    let lab = Lab::new(server.turns_when("tests", turn::answer("Both.")).script());
    let runner = lab.app_server(Duration::ZERO);
    let (steer, steering) = steer_channel();
    let mut request = lab.request("begin").steering(steering).deltas(deltas);
    let image = lab.control.directory().join("dot.png");
    std::fs::write(&image, b"\x89PNG\r\n\x1a\n").unwrap();
    request.settings.images = vec![image];
    let mut stream = runner.run(request);
    let events = until(&mut stream, "the start", is_started).await;
    lab.control.reached("turn").await;
    steer.send("mind the tests").await.unwrap();
    lab.control.open("end");
    let seen = finish(stream, events).await;
    assert_eq!(seen.ok().answer, "Both.");
    // What the first turn answered is not lost.
    let notes: Vec<&str> =
        seen.actions(&ActionKind::Note).iter().map(|note| note.action.title.as_str()).collect();
    assert_eq!(notes, ["First."]);
    assert_eq!(seen.ok().usage.as_ref().unwrap().input_tokens, 22, "of both turns");
    let sent = lab.control.calls("turn/start");
    assert_eq!(sent.len(), 2);
    let images = |at: usize| sent[at].message["params"]["input"].as_array().unwrap().len() - 1;
    assert_eq!((images(0), images(1)), (1, 0), "they are sent once");
    assert_eq!(sent[1].message["params"]["input"][0]["text"], "mind the tests");
    runner.shutdown().await;
    lab.assert_nothing_left().await;
}

#[tokio::test]
async fn a_follow_up_that_the_model_never_got_has_a_turn_of_its_own_in_the_same_run() {
    accepted_too_late(Vec::new(), false).await;
    accepted_too_late(turn::user_message(), false).await;
    // Asked for in pieces, it comes in none.
    accepted_too_late(Vec::new(), true).await;
}

#[tokio::test]
async fn an_answer_that_was_streamed_is_not_repeated_before_the_turn_of_a_follow_up() {
    let mut first = vec![Step::Reached("turn".into()), Step::Gate("end".into())];
    first.extend(turn::answer("First."));
    let server = Server::new().turns_when("begin", first);
    let lab = Lab::new(server.turns_when("tests", turn::answer("Both.")).script());
    let runner = lab.app_server(Duration::ZERO);
    let (steer, steering) = steer_channel();
    let mut stream = runner.run(lab.request("begin").steering(steering).deltas(true));
    let events = until(&mut stream, "the start", is_started).await;
    lab.control.reached("turn").await;
    steer.send("mind the tests").await.unwrap();
    lab.control.open("end");
    let seen = finish(stream, events).await;
    assert_eq!(seen.ok().answer, "Both.");
    assert_eq!(seen.actions(&ActionKind::Note).len(), 0, "{:?}", seen.outline());
    runner.shutdown().await;
    lab.assert_nothing_left().await;
}

#[tokio::test]
async fn a_follow_up_is_not_lost_with_a_server_that_never_began_the_turn() {
    let dies = [Step::reached("silent"), Step::gate("die"), Step::Die(Signal::Kill)];
    let dies = Server::new().turns_when("one", turn::answer("one")).when("turn/start", "two", dies);
    let second = [Step::reached("in"), Step::gate("go")].into_iter().chain(turn::user_message());
    let second = Server::new().turns(second.chain(turn::answer("both")));
    let lab = Lab::new(Script::nth([dies.script(), second.script()]));
    let runner = lab.app_server(Duration::from_hours(1));
    let one = run(&runner, lab.request("one")).await;
    let (steer, steering) = steer_channel();
    let request = lab.request("two").resume(one.session()).steering(steering);
    let follow_up = async {
        lab.control.reached("silent").await;
        let mut follow_up = std::pin::pin!(steer.send("and three"));
        assert_eq!(follow_up.as_mut().now_or_never(), None, "it waits for the turn");
        lab.control.open("die");
        lab.control.reached("in").await;
        follow_up.await.unwrap();
        lab.control.open("go");
    };
    let (two, ()) = tokio::join!(run(&runner, request), follow_up);
    assert_eq!(two.ok().answer, "both");
    let steered = lab.control.calls("turn/steer");
    assert_eq!(steered.len(), 1);
    assert_eq!(steered[0].message["params"]["input"][0]["text"], "and three");
    runner.shutdown().await;
    lab.assert_nothing_left().await;
}

#[tokio::test]
async fn a_follow_up_that_the_model_got_is_not_sent_again() {
    let mut first = vec![Step::Reached("turn".into()), Step::Gate("end".into())];
    first.extend(turn::user_message());
    first.extend(turn::answer("Both."));
    let lab = Lab::new(Server::new().turns_when("begin", first).script());
    let runner = lab.app_server(Duration::ZERO);
    let (steer, steering) = steer_channel();
    let mut stream = runner.run(lab.request("begin").steering(steering));
    let events = until(&mut stream, "the start", is_started).await;
    lab.control.reached("turn").await;
    steer.send("mind the tests").await.unwrap();
    lab.control.open("end");
    assert_eq!(finish(stream, events).await.ok().answer, "Both.");
    assert_eq!(lab.control.calls("turn/start").len(), 1);
    runner.shutdown().await;
    lab.assert_nothing_left().await;
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
