//! The guide `docs/write-a-bridge.md`: its code pasted together is the example, and works.

#[path = "../../examples/line_chat.rs"]
#[allow(dead_code, unreachable_pub, reason = "the example's main")]
mod line_chat;

use std::sync::Arc;

use line_chat::{LineChat, hand_on, settings};
use takopi_bridge::{Bridge, Router};
use takopi_core::demo::Demo;
use tokio::sync::mpsc;

const GUIDE: &str = include_str!("../../../docs/write-a-bridge.md");

const EXAMPLE: &str = include_str!("../../examples/line_chat.rs");

/// What stands in the fences of this language.
fn blocks<'a>(language: &str, text: &'a str) -> Vec<&'a str> {
    let fence = format!("```{language}\n");
    text.split(fence.as_str()).skip(1).map(|rest| rest.split("```").next().unwrap()).collect()
}

#[test]
fn the_code_of_the_guide_pasted_together_is_the_example() {
    let (steps, test) = GUIDE.split_once("## 6.").unwrap();
    let code = EXAMPLE.split_once("\n\n").unwrap().1;
    assert_eq!(blocks("rust", steps).join("\n"), code);
    let flat = |text: &str| text.lines().map(str::trim).collect::<Vec<_>>().join("\n");
    let this = flat(include_str!("guide.rs"));
    let [test] = blocks("rust", test).try_into().unwrap();
    assert!(this.contains(flat(test).trim()), "this is not in this file:\n{test}");
}

#[test]
fn the_features_that_the_guide_asks_for_are_those_of_the_example() {
    let [manifest] = blocks("toml", GUIDE).try_into().unwrap();
    for feature in ["macros", "rt", "sync", "time"] {
        assert!(manifest.contains(&format!("\"{feature}\"")), "{feature} is missing");
    }
    for dependency in ["takopi-bridge", "takopi-core", "tokio"] {
        let name = dependency.replace('-', "_");
        assert!(EXAMPLE.contains(&format!("{name}::")) && manifest.contains(dependency));
    }
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

mod what_to_test {
    use std::sync::Arc;

    use takopi_bridge::testing::{Fault, Room};
    use takopi_bridge::{Bridge, End, Incoming, Kind, Place, Router, Settings};
    use takopi_core::demo::{Demo, Step};

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
}
