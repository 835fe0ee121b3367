//! The guide `docs/write-a-bridge.md`: its code in order is the example, and works.

#[path = "../../examples/line_chat.rs"]
#[allow(dead_code, unreachable_pub, reason = "the example's main")]
mod line_chat;

use std::sync::Arc;

use line_chat::{LineChat, handle_line, settings};
use takopi_bridge::{Bridge, Router};
use takopi_core::demo::Demo;
use tokio::sync::mpsc;

const GUIDE: &str = include_str!("../../../docs/write-a-bridge.md");

const EXAMPLE: &str = include_str!("../../examples/line_chat.rs");

/// The contents of the fences with this language.
fn blocks<'a>(language: &str, text: &'a str) -> Vec<&'a str> {
    let fence = format!("```{language}\n");
    text.split(fence.as_str()).skip(1).map(|rest| rest.split("```").next().unwrap()).collect()
}

#[test]
fn the_code_of_the_guide_in_order_is_the_example() {
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
    assert!(!manifest.contains("git = "), "there is no public repository to depend on");
    for dependency in ["takopi-bridge", "takopi-core", "tokio"] {
        let name = dependency.replace('-', "_");
        assert!(EXAMPLE.contains(&format!("{name}::")) && manifest.contains(dependency));
    }
}

/// Waits for a message that contains this, and returns its id.
async fn until(shown: &mut mpsc::Receiver<String>, text: &str) -> String {
    loop {
        let lines = shown.recv().await.unwrap();
        if lines.contains(text) {
            return lines.split(['[', ']']).nth(1).unwrap().to_owned();
        }
    }
}

#[tokio::test]
async fn the_bridge_of_the_guide_approves_answers_resumes_and_cancels() {
    let (lines, mut shown) = mpsc::channel(64);
    let router = Router::new(Arc::new(Demo::new().runner()));
    let bridge = Bridge::new(LineChat::new(lines), router, settings());

    assert_eq!(handle_line(&bridge, 1, "hello"), None);
    let question = until(&mut shown, "wants to change files").await;
    let text = handle_line(&bridge, 2, &format!("!{question} accept"));
    assert_eq!(text.as_deref(), Some("decided"));
    let answer = until(&mut shown, "You said: hello").await;

    handle_line(&bridge, 3, &format!("@{answer} and again"));
    let question = until(&mut shown, "wants to change files").await;
    let text = handle_line(&bridge, 4, &format!("!{question} stop")).unwrap();
    assert!(text.ends_with("which was running"), "{text}");
    until(&mut shown, "cancelled by you").await;

    let text = handle_line(&bridge, 5, "!m1 dance").unwrap();
    assert_eq!(text, "\"dance\" is not a button");
    let reader = async { while shown.recv().await.is_some() {} };
    tokio::select! {
        cancelled = bridge.shutdown() => assert!(cancelled.is_empty()),
        () = reader => panic!("the chat is gone before the bridge"),
    }
}

mod what_to_test {
    use std::sync::Arc;

    use takopi_bridge::testing::{Room, RoomFault};
    use takopi_bridge::{Bridge, Incoming, JobEnd, Kind, Place, Router, Settings};
    use takopi_core::demo::{Demo, Step};

    #[tokio::test(start_paused = true)]
    async fn an_answer_reaches_the_chat_though_every_second_call_fails() {
        let room = Room::new();
        room.set_faults(|call| (call.number % 2 == 0).then_some(RoomFault::Fail));
        let demo = Demo::scripted([Step::Say("42".to_owned())]).runner();
        let bridge = Bridge::new(room.clone(), Router::new(Arc::new(demo)), Settings::default());

        let job = bridge.receive(Incoming::new(Place::new("general"), "1", "?")).unwrap();
        let report = job.report().await;
        assert!(matches!(report.end, JobEnd::Ran(completed) if completed.ok));
        assert!(report.undelivered.is_none());
        room.shows(Kind::Final, "42").await;
        bridge.shutdown().await;
    }
}
