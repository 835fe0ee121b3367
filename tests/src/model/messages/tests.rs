//! The promises of the Messages server that need no Claude Code.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};

use serde_json::{Value, json};

use super::{Answer, MessagesServer, Script};
use crate::model::{Gate, Outcome};

/// Sends a request as Claude Code would and returns all of the response, up to where the connection ends.
fn post(address: SocketAddr, body: &Value) -> String {
    let body = body.to_string();
    let mut stream = TcpStream::connect(address).unwrap();
    write!(
        stream,
        "POST /v1/messages?beta=true HTTP/1.1\r\nhost: model\r\nconnection: close\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    )
    .unwrap();
    let mut response = Vec::new();
    let _ = stream.read_to_end(&mut response);
    String::from_utf8(response).unwrap()
}

/// A conversation of these messages, `>` before those of the user.
fn conversation(session: &str, messages: &[&str]) -> Value {
    let message = |text: &&str| match text.strip_prefix('>') {
        Some(text) => json!({"role": "user", "content": [{"type": "text", "text": text}]}),
        None => json!({"role": "assistant", "content": [{"type": "text", "text": text}]}),
    };
    let user = json!({"session_id": session}).to_string();
    json!({
        "model": "m",
        "stream": true,
        "metadata": {"user_id": user},
        "tools": [{"name": "Bash"}],
        "messages": messages.iter().map(message).collect::<Vec<_>>(),
    })
}

#[test]
fn the_place_in_a_script_is_the_number_of_answers_since_its_prompt() {
    let model = MessagesServer::start();
    model.when("[[two]]", [Answer::text("first"), Answer::text("second")]);
    model.when("[[one]]", "only");
    let ask = |messages: &[&str]| post(model.address(), &conversation("s", messages));
    let second = ask(&[">go [[two]]", "first", "><system-reminder>"]);
    assert!(second.contains("second"), "{second}");
    for _ in 0..2 {
        assert!(ask(&[">go [[two]]"]).contains("first"));
    }
    assert!(ask(&[">go [[two]]", "first", ">a word", "second", ">now [[one]]"]).contains("only"));
    assert!(ask(&[">[[one]]", "only", ">and [[two]]", "first", ">a word"]).contains("second"));
    let mut merged = conversation("s", &[">[[two]]"]);
    let block = json!({"type": "text", "text": "[[one]]"});
    merged["messages"][0]["content"].as_array_mut().unwrap().push(block);
    assert!(post(model.address(), &merged).contains("only"));
    let over = ask(&[">go [[one]]", "only"]);
    assert!(over.starts_with("HTTP/1.1 410") && over.contains("used up"), "{over}");
    assert_eq!(model.unexpected().len(), 1);
    assert!(model.unused().is_empty());
}

#[test]
fn a_retry_gets_the_next_attempt_and_other_sessions_are_not_shifted() {
    let model = MessagesServer::start();
    let busy = Answer::status(529, "busy").header("retry-after", "1");
    model.otherwise(busy.then(Answer::new().dropped()).then("fine"));
    let ask = |session| post(model.address(), &conversation(session, &[">x"]));
    let refused = ask("a");
    assert!(refused.starts_with("HTTP/1.1 529") && refused.contains("retry-after: 1"));
    assert!(
        refused
            .ends_with(r#"{"error":{"message":"busy","type":"overloaded_error"},"type":"error"}"#)
    );
    assert_eq!(ask("a"), "");
    assert!(ask("a").contains("fine") && ask("a").contains("fine"));
    assert!(ask("b").starts_with("HTTP/1.1 529"));
    assert!(model.requests().iter().all(|request| request.outcome == Outcome::Answered));
    model.assert_finished();
}

#[test]
fn an_answer_without_a_stream_is_one_message() {
    let model = MessagesServer::start();
    let answer = Answer::new().thinking("hm").block("a").deltas(["b", "c"]).bash("ls");
    model.otherwise(Script::repeat(answer));
    let mut body = conversation("s", &[">x"]);
    let streamed = post(model.address(), &body);
    let kinds: Vec<&str> =
        streamed.lines().filter_map(|line| line.strip_prefix("event: ")).collect();
    assert_eq!(kinds.iter().filter(|kind| **kind == "content_block_start").count(), 4);
    assert_eq!(kinds[0], "message_start");
    assert_eq!(kinds[kinds.len() - 2..], ["message_delta", "message_stop"]);
    assert!(streamed.contains(r#""stop_reason":"tool_use""#));

    body["stream"] = Value::Null;
    let whole = post(model.address(), &body);
    let (_, message) = whole.split_once("\r\n\r\n").unwrap();
    let message: Value = serde_json::from_str(message).unwrap();
    let texts: Vec<_> = message["content"].as_array().unwrap().iter().collect();
    assert_eq!(texts[0]["thinking"], "hm");
    assert_eq!((&texts[1]["text"], &texts[2]["text"]), (&json!("a"), &json!("bc")));
    assert_eq!(texts[3]["input"]["command"], "ls");
    assert_eq!(message["stop_reason"], "tool_use");
}

#[test]
fn side_calls_are_answered_and_not_recorded() {
    let model = MessagesServer::start();
    model.otherwise("main");
    let mut body = conversation("s", &[">Warmup"]);
    body["tools"] = json!([]);
    assert!(post(model.address(), &body).contains("aside"));
    assert!(model.requests().is_empty());
}

#[test]
fn faults_look_as_scripted() {
    let model = MessagesServer::start();
    model.when("error", Answer::text("half").fails("overloaded_error", "Overloaded"));
    model.when("cut", Answer::new().deltas(["a", "b"]).cut_after(4));
    model.when("short", Answer::text("half").ends_short());
    let ask = |prompt: &str| post(model.address(), &conversation("s", &[&format!(">{prompt}")]));
    let whole = |body: &str| body.ends_with("\r\n0\r\n\r\n");
    let error = ask("error");
    assert!(error.contains("event: error") && error.contains("Overloaded") && whole(&error));
    let cut = ask("cut");
    assert!(cut.contains(r#""text":"a""#) && !cut.contains(r#""text":"b""#) && !whole(&cut));
    let short = ask("short");
    assert!(short.contains("half") && !short.contains("message_stop") && whole(&short));
}

#[tokio::test]
async fn the_history_is_what_the_model_was_sent() {
    let model = MessagesServer::start();
    let gate = Gate::new();
    model.otherwise(Answer::new().wait_for(&gate).block("done"));
    let mut body = conversation("s", &[">go", "looking"]);
    body["messages"].as_array_mut().unwrap().extend([
        json!({"role": "system", "content": "# Environment"}),
        json!({"role": "assistant", "content": [{"type": "tool_use", "id": "t", "name": "Bash", "input": {"command": "ls"}}]}),
        json!({"role": "user", "content": [
            {"type": "tool_result", "tool_use_id": "t", "content": [{"type": "text", "text": "a b"}]},
            {"type": "text", "text": "<system-reminder>x</system-reminder>"},
        ]}),
        json!({"role": "user", "content": "and then\n"}),
    ]);
    let address = model.address();
    let asking = tokio::task::spawn_blocking(move || post(address, &body));
    gate.reached().await;
    let request = model.requests().remove(0);
    assert_eq!(
        request.history(),
        [
            "user: go",
            "assistant: looking",
            r#"call: Bash {"command":"ls"}"#,
            "result: a b",
            "user: and then"
        ]
    );
    assert_eq!(request.user_texts(), ["go", "and then"]);
    assert_eq!(request.tool_outputs()[0].text, "a b");
    assert_eq!(request.session().as_deref(), Some("s"));
    gate.open();
    assert!(asking.await.unwrap().contains("done"));
}
