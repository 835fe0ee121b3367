use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};

use serde_json::{Value, json};

use super::*;
use crate::model::record::Outcome;

/// The whole response, up to where the connection ends.
fn post(address: SocketAddr, body: &Value) -> String {
    let body = body.to_string();
    let mut stream = TcpStream::connect(address).unwrap();
    write!(
        stream,
        "POST /v1/chat/completions HTTP/1.1\r\nhost: model\r\nconnection: close\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    )
    .unwrap();
    let mut response = Vec::new();
    let _ = stream.read_to_end(&mut response);
    String::from_utf8(response).unwrap()
}

/// A conversation of these messages, `>` before those of the user.
fn conversation(messages: &[&str]) -> Value {
    let message = |text: &&str| match text.strip_prefix('>') {
        Some(text) => json!({"role": "user", "content": text}),
        None => json!({"role": "assistant", "content": text}),
    };
    json!({
        "model": "m",
        "stream": true,
        "tools": [{"type": "function", "function": {"name": "bash"}}],
        "messages": messages.iter().map(message).collect::<Vec<_>>(),
    })
}

#[test]
fn the_place_in_a_script_is_the_number_of_answers_since_its_prompt() {
    let model = ChatServer::start();
    model.when("[[two]]", [Answer::text("first"), Answer::text("second")]);
    model.when("[[one]]", "only");
    let ask = |messages: &[&str]| post(model.address(), &conversation(messages));
    assert!(ask(&[">go [[two]]"]).contains("first"));
    assert!(ask(&[">go [[two]]", "first"]).contains("second"));
    assert!(ask(&[">go [[two]]", "first", ">a word"]).contains("second"));
    assert!(ask(&[">go [[two]]", "first", "second", ">now [[one]]"]).contains("only"));
    let over = ask(&[">go [[one]]", "only"]);
    assert!(over.starts_with("HTTP/1.1 400") && over.contains("used up"), "{over}");
    assert_eq!(model.unexpected().len(), 1);
}

#[test]
fn a_retry_gets_the_next_attempt_and_other_conversations_are_not_shifted() {
    let model = ChatServer::start();
    model.otherwise(Answer::status(500, "busy").then(Answer::new().dropped()).then("fine"));
    let ask = |prompt: &str| post(model.address(), &conversation(&[&format!(">{prompt}")]));
    assert!(ask("a").starts_with("HTTP/1.1 500"));
    assert_eq!(ask("a"), "");
    assert!(ask("a").contains("fine") && ask("a").contains("fine"));
    assert!(ask("b").starts_with("HTTP/1.1 500"));
    assert!(model.requests().iter().all(|request| request.outcome == Outcome::Answered));
    model.assert_finished();
}

#[test]
fn an_answer_is_a_stream_of_chunks_or_one_completion() {
    let model = ChatServer::start();
    let answer = Answer::new().reasoning("hm").deltas(["a", "b"]).bash("ls").bash("pwd");
    model.otherwise(Script::repeat(answer));
    let mut body = conversation(&[">x"]);
    let streamed = post(model.address(), &body);
    assert!(streamed.contains(r#""reasoning_content":"hm""#) && streamed.contains("[DONE]"));
    assert!(streamed.contains(r#""finish_reason":"tool_calls""#));
    assert!(streamed.contains(r#""cached_tokens":3"#));

    body["stream"] = Value::Null;
    let whole = post(model.address(), &body);
    let (_, completion) = whole.split_once("\r\n\r\n").unwrap();
    let completion: Value = serde_json::from_str(completion).unwrap();
    let message = &completion["choices"][0]["message"];
    assert_eq!(message["content"], "ab");
    assert_eq!(message["tool_calls"][1]["function"]["name"], "bash");
    assert_eq!(completion["usage"]["completion_tokens"], 7);
}

#[test]
fn side_calls_are_answered_and_not_recorded() {
    let model = ChatServer::start();
    let mut body = conversation(&[">Generate a title"]);
    body["tools"] = Value::Null;
    assert!(post(model.address(), &body).contains("aside"));
    assert!(model.requests().is_empty());
}

#[test]
fn faults_look_as_scripted() {
    let model = ChatServer::start();
    model.when("cut", Answer::new().deltas(["one", "two"]).cut_after(2));
    model.when("short", Answer::text("half").ends_short());
    let ask = |prompt: &str| post(model.address(), &conversation(&[&format!(">{prompt}")]));
    let whole = |body: &str| body.ends_with("\r\n0\r\n\r\n");
    let cut = ask("cut");
    assert!(cut.contains("one") && !cut.contains("two") && !whole(&cut));
    let short = ask("short");
    assert!(short.contains("half") && !short.contains("[DONE]") && whole(&short));
}

#[test]
fn the_history_is_what_the_model_was_sent() {
    let model = ChatServer::start();
    model.otherwise("done");
    let mut body = conversation(&[]);
    body["messages"] = json!([
        {"role": "system", "content": "be kind"},
        {"role": "user", "content": [{"type": "text", "text": "go"}, {"type": "image_url", "image_url": {}}]},
        {"role": "assistant", "content": "looking", "tool_calls": [
            {"id": "t", "type": "function", "function": {"name": "bash", "arguments": "{\"command\":\"ls\"}"}},
        ]},
        {"role": "tool", "tool_call_id": "t", "content": "a b"},
    ]);
    post(model.address(), &body);
    let request = model.requests().remove(0);
    assert_eq!(
        request.history(),
        ["user: go", "assistant: looking", r#"call: bash {"command":"ls"}"#, "result: a b"]
    );
    assert_eq!((request.user_texts(), request.images()), (vec!["go".to_owned()], 1));
    assert_eq!(request.assistant_texts(), ["looking"]);
    assert_eq!(request.tool_outputs()[0].text, "a b");
    assert_eq!((request.system().as_str(), request.tools()), ("be kind", vec!["bash".to_owned()]));
}
