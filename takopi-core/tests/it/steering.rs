//! Follow-ups are taken into the running turn or handed back; none is lost.

use std::time::Duration;

use crate::common::TestHost;
use crate::common::engines::lab;
use futures::StreamExt;
use takopi_core::demo::{Demo, Step};
use takopi_core::runner::{SteerError, steer_channel};
use takopi_core::{RunRequest, Runner, TakopiEvent};

/// A turn that goes on until it is cancelled.
fn endless() -> Demo {
    Demo::scripted([Step::Say("done".to_owned()), Step::Pause(Duration::from_hours(1))])
}

fn not_steered(text: &str) -> Result<(), SteerError> {
    Err(SteerError { text: text.to_owned() })
}

#[tokio::test]
async fn a_follow_up_is_taken_into_the_running_turn() {
    let runner = endless().runner();
    let (steer, steering) = steer_channel();
    let request = RunRequest::new("begin").steering(steering);
    let cancel = request.cancel.clone();
    let mut events = runner.run(request);
    assert!(matches!(events.next().await, Some(TakopiEvent::Started(_))));

    assert_eq!(steer.send("and hurry").await, Ok(()));
    let Some(TakopiEvent::Action(note)) = events.next().await else { panic!("no note") };
    assert_eq!(note.action.title, "also: and hurry");
    cancel.cancel();
    let Some(TakopiEvent::Completed(end)) = events.next().await else { panic!("no end") };
    assert_eq!(end.answer, "done\nYou also said: and hurry");

    assert_eq!(steer.send("too late").await, not_steered("too late"));
}

#[tokio::test]
async fn a_message_sent_before_the_turn_begins_waits_for_it() {
    let runner = endless().runner();
    let mut first = runner.run(RunRequest::new("first"));
    let Some(TakopiEvent::Started(started)) = first.next().await else { panic!("no start") };

    let (steer, steering) = steer_channel();
    let second = RunRequest::new("second").resume(started.resume).steering(steering);
    let mut second = runner.run(second);
    let said = tokio::spawn(async move { steer.send("go on").await });
    drop(first);
    assert_eq!(said.await.unwrap(), Ok(()));
    assert!(matches!(second.next().await, Some(TakopiEvent::Started(_))));
}

#[tokio::test]
async fn an_engine_that_cannot_be_steered_hands_back_at_once() {
    let test_host = TestHost::on_test_runtime();
    let deaf = lab(&test_host.host, |run| async move { run.stop().cancelled().await });
    let (steer, steering) = steer_channel();
    let _events = deaf.run(RunRequest::new("begin").steering(steering));
    assert_eq!(steer.send("hello").await, not_steered("hello"));
}

#[tokio::test]
async fn a_refused_run_hands_messages_back_and_a_second_run_receives_none() {
    let runner = endless().runner();
    let (steer, steering) = steer_channel();
    let request = RunRequest::new("begin").cwd("/nowhere/at/all").steering(steering);
    let refused: Vec<_> = runner.run(request.clone()).collect().await;
    assert_eq!(refused.len(), 1);
    assert_eq!(steer.send("hello").await, not_steered("hello"));

    let mut again = request;
    again.settings.cwd = None;
    let mut events = runner.run(again);
    assert!(matches!(events.next().await, Some(TakopiEvent::Started(_))));
    assert_eq!(steer.send("hello").await, not_steered("hello"));
}
