//! The promises of the model server that need no codex.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::thread;
use std::time::Duration;

use serde_json::json;

use crate::model::{Answer, Gate, ModelServer, Outcome, Script};

/// Sends a prompt as codex would and leaves the connection open.
fn connect(address: SocketAddr, prompt: &str) -> TcpStream {
    let message = json!({"type": "message", "role": "user", "content": [{"text": prompt}]});
    let body = json!({"model": "m", "stream": true, "input": [message]}).to_string();
    let mut stream = TcpStream::connect(address).unwrap();
    write!(
        stream,
        "POST /v1/responses HTTP/1.1\r\nhost: model\r\nconnection: close\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    )
    .unwrap();
    stream
}

/// Sends a prompt and returns all of the response, up to where the connection ends.
fn ask(address: SocketAddr, prompt: &str) -> String {
    let mut response = Vec::new();
    let _ = connect(address, prompt).read_to_end(&mut response);
    String::from_utf8(response).unwrap()
}

#[test]
fn the_longest_needle_wins_and_the_default_comes_last() {
    let model = ModelServer::start();
    model.otherwise("anything");
    model.when("prompt 1", "one");
    model.when("prompt 10", "ten");
    let ask = |prompt| ask(model.address(), prompt);
    assert!(ask("a prompt 10 b").contains(r#""text":"ten""#));
    assert!(ask("a prompt 1 b").contains(r#""text":"one""#));
    assert!(ask("else").contains(r#""text":"anything""#));
    let needles: Vec<_> = model.requests().into_iter().map(|it| it.needle).collect();
    assert_eq!(needles, [Some("prompt 10".into()), Some("prompt 1".into()), None]);
    model.assert_finished();
}

#[test]
fn answers_are_used_up_in_order_and_then_the_request_is_unexpected() {
    let model = ModelServer::start();
    model.when("x", [Answer::text("first"), Answer::text("second")]);
    model.when("x", "third");
    for text in ["first", "second", "third"] {
        assert!(ask(model.address(), "x").contains(text));
    }
    let refusal = ask(model.address(), "x");
    assert!(refusal.starts_with("HTTP/1.1 400"), "{refusal}");
    assert!(refusal.contains(r#"the script for "x" is used up"#), "{refusal}");
    assert!(ask(model.address(), "y").contains("no script matches"));
    assert_eq!(model.unexpected().len(), 2);
}

#[test]
fn a_script_may_repeat_and_an_answer_without_a_request_is_unused() {
    let model = ModelServer::start();
    model.when("often", Script::repeat("again"));
    model.when("never", "x");
    for _ in 0..3 {
        assert!(ask(model.address(), "often").contains("again"));
    }
    assert!(model.unexpected().is_empty());
    assert_eq!(model.unused(), [r#"the script for "never" has 1 answer(s) left"#]);
}

#[test]
fn statuses_cuts_and_short_bodies_look_as_scripted() {
    let model = ModelServer::start();
    model.when("status", Answer::status(503, "later").header("retry-after", "1"));
    model.when("cut", Answer::new().deltas(["a", "b"]).cut_after(3));
    model.when("short", Answer::text("half").delay(Duration::from_millis(1)).ends_short());
    let ask = |prompt| ask(model.address(), prompt);

    let status = ask("status");
    assert!(status.starts_with("HTTP/1.1 503") && status.contains("retry-after: 1"));
    assert!(status.ends_with("later"));

    // A body in chunks is whole if it ends with an empty chunk.
    let whole = |body: &str| body.ends_with("\r\n0\r\n\r\n");
    let cut = ask("cut");
    assert!(cut.contains(r#""delta":"a""#) && !cut.contains(r#""delta":"b""#));
    assert!(!whole(&cut), "{cut}");
    let short = ask("short");
    assert!(short.contains("half") && !short.contains("response.completed"));
    assert!(whole(&short), "{short}");
    let outcomes = model.requests().into_iter().map(|it| it.outcome);
    assert!(outcomes.into_iter().all(|it| it == Outcome::Answered));
}

#[tokio::test(start_paused = true)]
async fn gates_hold_answers_even_when_the_clock_is_paused() {
    let model = ModelServer::start();
    let (before, between) = (Gate::new(), Gate::new());
    let answer = Answer::new().wait_for(&before).delta("a").wait_for(&between).delta("b");
    model.otherwise(answer);
    let mut stream = connect(model.address(), "x");

    before.reached().await;
    stream.set_nonblocking(true).unwrap();
    let nothing = stream.read(&mut [0]).unwrap_err();
    assert_eq!(nothing.kind(), std::io::ErrorKind::WouldBlock);

    before.open();
    between.reached().await;
    assert_eq!((before.arrivals(), between.arrivals()), (1, 1));
    assert_eq!(model.requests()[0].outcome, Outcome::Open);
    between.open();
    model.wait_until_idle().await;
    assert_eq!(model.requests()[0].outcome, Outcome::Answered);
}

#[tokio::test]
async fn a_client_that_hangs_up_is_noticed_before_and_within_the_stream() {
    let model = ModelServer::start();
    model.when("early", Answer::new().hang());
    model.when("late", Answer::new().started().hang());
    let early = connect(model.address(), "early");
    let late = connect(model.address(), "late");
    let requests = model.wait_for_requests(2).await;
    assert!(requests[0].overlaps(&requests[1]));
    drop((early, late));
    model.wait_until_idle().await;
    let outcomes = model.requests().into_iter().map(|it| it.outcome);
    assert!(outcomes.into_iter().all(|it| it == Outcome::HungUp));
}

#[tokio::test]
async fn dropping_the_server_ends_what_hangs_and_frees_the_port() {
    let model = ModelServer::start();
    let address = model.address();
    model.otherwise(Answer::new().started().hang());
    let hanging = thread::spawn(move || ask(address, "x"));
    model.wait_for_requests(1).await;
    drop(model);
    hanging.join().unwrap();
    // A process that another test is just starting has a copy of the listener until it executes, and another
    // server may be given the port: both are over soon.
    let freed = async {
        while TcpListener::bind(address).is_err() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(Duration::from_mins(1), freed).await.expect("the port is free again");
}
