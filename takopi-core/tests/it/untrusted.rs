//! What an engine writes is bounded and free of credentials when it reaches the consumer.

use serde_json::json;
use takopi_core::model::bounds::{EVENT_BYTES, ID_BYTES, TEXT_BYTES};
use takopi_core::model::{Action, ActionEvent, ActionKind, Completed, Level, Phase, Reason};
use takopi_core::{RunRequest, Runner, TakopiEvent};

use crate::common::engines::{lab, shell, started};
use crate::common::{LAB, TestHost, all, end_of};

const SECRET: &str = "sk-SECRET-123";

async fn passed_on(sent: Vec<TakopiEvent>) -> Vec<TakopiEvent> {
    let test_host = TestHost::on_test_runtime();
    let runner = lab(&test_host.host, move |run| {
        let sent = sent.clone();
        async move {
            run.emit(started("a")).await.unwrap();
            // One by one and many at once are two ways through the buffer.
            let (first, rest) = sent.split_first().unwrap();
            run.emit(first.clone()).await.unwrap();
            run.emit_all(rest.to_vec()).await.unwrap();
        }
    });
    all(runner.run(RunRequest::new("go"))).await
}

fn action(kind: ActionKind, title: &str) -> ActionEvent {
    ActionEvent::new(LAB, Action::new("1", kind, title), Phase::Completed)
}

#[tokio::test(start_paused = true)]
async fn texts_about_failures_lose_their_credentials() {
    let said = format!("refused: Bearer {SECRET}");
    let mut warning = ActionEvent::warning(LAB, "w", said.as_str()).message(said.as_str());
    warning.action.detail.insert("stderr_tail", said.as_str());
    warning.action.detail.insert("anything", json!([{ "deep": said }]));
    let failed = action(ActionKind::Tool, "tool").ok(false).message(said.as_str());
    let mut running = action(ActionKind::Tool, "tool");
    running.action.detail.insert("error_message", said.as_str());
    let mut reconnect = action(ActionKind::Note, "Reconnecting... 1/5").level(Level::Info);
    reconnect.action.detail.insert("reason", said.as_str());
    // What is cut off begins in the middle of the password.
    let long = format!("{}postgres://app:{SECRET}@host/db", "x".repeat(TEXT_BYTES - 25));
    let long = ActionEvent::warning(LAB, "w", long);
    let actions = [warning.clone(), warning, failed, running, reconnect, long];
    let end = Completed::failure(LAB, Reason::EngineFailed, said);
    let sent = actions.into_iter().map(TakopiEvent::from).chain([end.into()]).collect();
    let events = passed_on(sent).await;
    assert_eq!(events.len(), 8);
    let text = serde_json::to_string(&events).unwrap();
    assert!(!text.contains("sk-"), "{text}");
    assert_eq!(end_of(&events).error.as_deref(), Some("refused: Bearer [redacted]"));
}

#[tokio::test(start_paused = true)]
async fn what_is_the_users_own_is_passed_on_as_it_is() {
    let said = format!("export OPENAI_API_KEY={SECRET}");
    let mut command = action(ActionKind::Command, &said).ok(false);
    command.action.detail.insert("output_tail", said.as_str());
    let mut approval = action(ActionKind::Approval, &said).ok(false).level(Level::Warning);
    approval.action.detail.insert("reason", said.as_str());
    let message = action(ActionKind::Note, &said).ok(true);
    let end = Completed::success(LAB, said.as_str());
    let sent: Vec<TakopiEvent> =
        vec![command.into(), approval.into(), message.into(), end.clone().into()];
    let events = passed_on(sent.clone()).await;
    assert_eq!(events[1..4], sent[..3]);
    assert_eq!(end_of(&events).answer, end.answer);
}

#[tokio::test(start_paused = true)]
async fn no_event_is_larger_than_its_bound() {
    let huge = "x".repeat(2_000_000);
    let changes: Vec<_> = (0..20_000).map(|n| json!({ "path": format!("{n}") })).collect();
    let mut patch = action(ActionKind::FileChange, &huge).message(huge.as_str());
    patch.action.detail.insert("changes", changes);
    patch.action.detail.insert("status", "completed");
    let end = Completed::failure(LAB, Reason::EngineFailed, huge);
    let events = passed_on(vec![patch.clone().into(), patch.into(), end.into()]).await;
    assert_eq!(events.len(), 4);
    for event in &events {
        assert!(event.weight() <= EVENT_BYTES, "{} bytes", event.weight());
    }
    for event in &events[1..3] {
        let TakopiEvent::Action(event) = event else { panic!("no action") };
        assert_eq!(event.action.detail["truncated"], true);
        assert_eq!(event.action.detail["status"], "completed");
    }
}

#[tokio::test(start_paused = true)]
async fn an_action_keeps_its_id_whether_its_events_are_truncated_or_not() {
    let event = |title: &str, phase| {
        let action = Action::new("x".repeat(2_000), ActionKind::Command, title);
        ActionEvent::new(LAB, action, phase).into()
    };
    let (small, large) =
        (event("ls", Phase::Started), event(&"l".repeat(99_000), Phase::Completed));
    let end = Completed::success(LAB, "").into();
    let ids: Vec<_> = passed_on(vec![small, large, end])
        .await
        .into_iter()
        .filter_map(|event| match event {
            TakopiEvent::Action(event) => Some(event.action.id),
            _ => None,
        })
        .collect();
    assert!(ids[0].len() <= ID_BYTES, "{} bytes", ids[0].len());
    assert_eq!(ids, [ids[0].as_str(); 2]);
}

#[tokio::test]
async fn lines_that_are_not_json_are_shown_without_credentials() {
    let test_host = TestHost::on_own_thread();
    let script = format!(
        "echo 'panic: Bearer {SECRET}'; echo '{{\"started\":\"a\"}}'; echo '{{\"done\":\"x\"}}'"
    );
    let events = all(shell(script).on(&test_host).run(RunRequest::new("go"))).await;
    let text = serde_json::to_string(&events).unwrap();
    assert!(text.contains("not JSON: panic: Bearer [redacted]"), "{text}");
}

#[test]
fn prompts_and_messages_are_never_logged() {
    let (_, steering) = takopi_core::runner::steer_channel();
    let request = RunRequest::new("my secret plan").steering(steering);
    let logged = format!("{request:?} {:?}", request.steering);
    assert!(logged.starts_with("RunRequest { prompt: 14 bytes, "), "{logged}");
    assert!(logged.contains("SteerReceiver"), "{logged}");
    assert!(!logged.contains("secret"), "{logged}");
}
