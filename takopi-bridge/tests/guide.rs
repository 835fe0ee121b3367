//! The guide `docs/write-a-bridge.md`: its code is the example's, word for word, and works.

#![allow(clippy::unwrap_used, clippy::panic, reason = "helpers of tests")]

#[path = "../examples/line_chat.rs"]
#[allow(dead_code, unreachable_pub, reason = "the example's main")]
mod line_chat;

use std::sync::Arc;

use line_chat::{LineChat, hand_on, settings};
use takopi_bridge::testing::{Fault, Room};
use takopi_bridge::transport::Kind;
use takopi_bridge::{Bridge, End, Incoming, Place, Router, Settings};
use takopi_core::demo::{Demo, Step};
use tokio::sync::mpsc;

const GUIDE: &str = include_str!("../../docs/write-a-bridge.md");

/// Where the guide's code is from.
const SOURCES: [&str; 2] = [include_str!("../examples/line_chat.rs"), include_str!("guide.rs")];

/// Lines without indentation, so that a part of something may stand alone.
fn flat(text: &str) -> String {
    text.lines().map(str::trim).collect::<Vec<_>>().join("\n")
}

#[test]
fn the_code_of_the_guide_is_the_code_that_is_compiled() {
    let blocks = GUIDE.split("```rust\n").skip(1).map(|rest| rest.split("```").next().unwrap());
    let mut count = 0;
    for block in blocks {
        let found = SOURCES.iter().any(|source| flat(source).contains(flat(block).trim()));
        assert!(found, "this is not in the example:\n{block}");
        count += 1;
    }
    assert!(count >= 7, "the guide has {count} blocks of code");
}

/// Waits for lines that say this, and gives the name of the message they are.
async fn until(shown: &mut mpsc::Receiver<String>, text: &str) -> String {
    loop {
        let lines = shown.recv().await.unwrap();
        if lines.contains(text) {
            return lines.split(['[', ']']).nth(1).unwrap().to_owned();
        }
    }
}

#[tokio::test]
async fn the_bridge_of_the_guide_asks_answers_goes_on_and_cancels() {
    let (lines, mut shown) = mpsc::channel(64);
    let router = Router::new(Arc::new(Demo::new().runner()));
    let bridge = Bridge::new(LineChat::new(lines), router, settings());

    assert_eq!(hand_on(&bridge, 1, "hello"), None);
    let question = until(&mut shown, "wants to change files").await;
    let word = hand_on(&bridge, 2, &format!("!{question} accept"));
    assert_eq!(word.as_deref(), Some("decided"));
    let answer = until(&mut shown, "You said: hello").await;

    hand_on(&bridge, 3, &format!("@{answer} and again"));
    let question = until(&mut shown, "wants to change files").await;
    let word = hand_on(&bridge, 4, &format!("!{question} stop")).unwrap();
    assert!(word.ends_with("which was running"), "{word}");
    until(&mut shown, "cancelled by you").await;

    let word = hand_on(&bridge, 5, "!m1 dance").unwrap();
    assert_eq!(word, "\"dance\" is nothing that can be pressed");
    let reader = async { while shown.recv().await.is_some() {} };
    tokio::select! {
        cancelled = bridge.shutdown() => assert!(cancelled.is_empty()),
        () = reader => panic!("the chat is gone before the bridge"),
    }
}

#[tokio::test(start_paused = true)]
async fn an_answer_reaches_the_chat_though_every_second_call_fails() {
    let room = Room::new();
    room.misbehave(|call| (call.number % 2 == 0).then_some(Fault::Fail));
    let demo = Demo::scripted([Step::Say("42".to_owned())]).runner();
    let bridge = Bridge::new(room.clone(), Router::new(Arc::new(demo)), Settings::default());

    let job = bridge.receive(Incoming::new(Place::new("general"), "1", "?")).unwrap();
    let report = job.report().await;
    assert!(matches!(report.end, End::Ran(completed) if completed.ok));
    assert!(report.unsaid.is_none());
    room.says(Kind::Final, "42").await;
    bridge.shutdown().await;
}
