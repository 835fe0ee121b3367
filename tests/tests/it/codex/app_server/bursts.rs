//! Much at once over `codex app-server`, with a consumer that reads: no message is lost, and no run
//! ends for it.
use std::time::Duration;

use serde_json::json;
use takopi_codex::app_server::{
    Client, CodexAppServer, PoolLimits, ThreadOptions, TurnEvent, TurnOptions,
};
use takopi_core::{ActionKind, EngineRunner, Runner};
use takopi_tests::codex::fake::{Server, Step, turn};
use takopi_tests::codex::lab::Lab;
use takopi_tests::runs::run;

const MIB: usize = 1024 * 1024;

/// A message of the agent, streamed as one piece of so many bytes.
fn large_delta(len: usize) -> Step {
    let head = r#"{"method":"item/agentMessage/delta","params":{"threadId":"$THREAD","turnId":"$TURN","itemId":"m","delta":""#;
    Step::huge(head, r#""}}"#, len)
}

fn shared(lab: &Lab) -> EngineRunner<CodexAppServer> {
    let engine = CodexAppServer::new(lab.codex()).shared(PoolLimits::new(4, 10, 1));
    EngineRunner::new(engine).on(lab.host.clone())
}

/// So many items, each an event of its own.
fn items(lines: usize) -> Step {
    let item = json!({"type": "reasoning", "id": "item_$SEQ", "summary": ["thought $SEQ"]});
    let params = json!({"threadId": "$THREAD", "turnId": "$TURN", "item": item});
    let line = json!({"method": "item/completed", "params": params}).to_string();
    Step::FloodStdout { line, lines }
}

#[tokio::test]
async fn a_message_larger_than_the_inbox_reaches_a_consumer_that_reads() {
    let steps = [large_delta(40 * MIB), large_delta(40 * MIB)].into_iter();
    let lab = Lab::new(Server::new().turns(steps.chain(turn::answer("done"))).script());
    for runner in [lab.app_server(Duration::ZERO), shared(&lab)] {
        let seen = run(&runner, lab.request("hi")).await;
        assert_eq!(seen.ok().answer, "done");
        runner.shutdown().await;
    }
    lab.assert_nothing_left().await;
}

#[tokio::test]
async fn messages_larger_than_the_inbox_may_come_before_the_reply() {
    let early = [turn::started(), large_delta(40 * MIB), large_delta(40 * MIB), Step::Reply];
    let steps = early.into_iter().chain(turn::answer("done"));
    let lab = Lab::new(Server::new().always("turn/start", steps).script());
    for runner in [lab.app_server(Duration::ZERO), shared(&lab)] {
        let seen = run(&runner, lab.request("hi")).await;
        assert_eq!(seen.ok().answer, "done");
        runner.shutdown().await;
    }
    lab.assert_nothing_left().await;
}

#[tokio::test]
async fn a_line_that_cannot_be_read_behind_a_large_message_ends_no_run() {
    let junk =
        [large_delta(40 * MIB), Step::line("junk"), large_delta(40 * MIB), Step::line("more")];
    let lab = Lab::new(Server::new().turns(junk.into_iter().chain(turn::answer("done"))).script());
    for runner in [lab.app_server(Duration::ZERO), shared(&lab)] {
        let seen = run(&runner, lab.request("hi")).await;
        assert_eq!(seen.ok().answer, "done");
        assert_eq!(seen.done(&ActionKind::Warning).len(), 2);
        runner.shutdown().await;
    }
    lab.assert_nothing_left().await;
}

#[tokio::test]
async fn very_many_short_notifications_at_once_end_no_run() {
    // Short enough that one read brings thousands.
    let notices = Step::FloodStdout { line: r#"{"method":"x"}"#.to_owned(), lines: 100_000 };
    let steps = [notices, items(20_000)].into_iter().chain(turn::answer("done"));
    let lab = Lab::new(Server::new().turns(steps).script());
    for runner in [lab.app_server(Duration::ZERO), shared(&lab)] {
        let seen = run(&runner, lab.request("hi")).await;
        assert_eq!(seen.ok().answer, "done");
        let notes = seen.done(&ActionKind::Note);
        // On a slow machine takopi may note that it waits for the session.
        let items = notes.iter().filter(|note| note.action.id.starts_with("item_"));
        assert_eq!(items.count(), 20_000);
        runner.shutdown().await;
    }
    lab.assert_nothing_left().await;
}

#[tokio::test]
async fn a_bare_client_that_reads_late_gets_everything_from_a_process_of_its_own() {
    let steps = [Step::reached("begun"), large_delta(40 * MIB), items(10_000)].into_iter();
    let lab = Lab::new(Server::new().turns(steps.chain(turn::answer("done"))).script());
    let client = Client::start(&lab.host, &lab.launch()).await.unwrap();
    let thread = client.start_thread(&ThreadOptions::default()).await.unwrap();
    let mut stream = thread.start_turn("hi", &TurnOptions::default()).await.unwrap();
    lab.control.reached("begun").await;
    let mut items = 0;
    while let Some(event) = stream.next().await.unwrap() {
        if let TurnEvent::Notification(notification) = event {
            items += usize::from(notification.method == "item/completed");
        }
    }
    assert_eq!(items, 10_000 + 2, "with the prompt and the answer");
    client.close().await;
}
