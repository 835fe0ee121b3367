//! The demo engine.

use std::sync::Arc;

use takopi_core::approvals::{accept_all, deny};
use takopi_core::demo::Demo;
use takopi_core::model::{ActionEvent, ActionKind, Phase, Reason};
use takopi_core::{EngineRunner, RunRequest, Runner};

use crate::common::engines::{lab, success};
use crate::common::{TestHost, actions, all, end, end_of};

#[tokio::test(start_paused = true)]
async fn the_demo_shows_every_kind_and_honours_resume() {
    let test_host = TestHost::on_test_runtime();
    let runner = EngineRunner::new(Demo::new()).on(test_host.host.clone());
    let request = RunRequest::new("hello").deltas(true).approvals(Arc::new(accept_all()));
    let events = all(runner.run(request)).await;
    for kind in ActionKind::KNOWN {
        assert!(actions(&events).iter().any(|event| event.action.kind == *kind), "{kind}");
    }
    assert!(actions(&events).iter().any(|event| event.ok == Some(false)), "a command fails");
    let first = end_of(&events);
    assert!(first.ok && first.answer.contains("hello"));
    let again = RunRequest::new("more").resume(first.resume.clone());
    let second = end(runner.run(again)).await;
    assert_eq!(second.resume, first.resume);
    assert!(second.answer.contains("Welcome back"));
    assert!(test_host.lock_files().is_empty() && test_host.is_unlocked(), "no file for a demo");
}

#[tokio::test(start_paused = true)]
async fn the_answer_is_streamed_only_if_asked_for_and_the_pieces_joined_are_the_text() {
    let test_host = TestHost::on_test_runtime();
    let runner = EngineRunner::new(Demo::new()).on(test_host.host.clone());
    let is_answer = |event: &&&ActionEvent| event.action.kind == ActionKind::Answer;
    let plain = all(runner.run(RunRequest::new("hello"))).await;
    assert_eq!(actions(&plain).iter().filter(is_answer).count(), 0);
    let events = all(runner.run(RunRequest::new("hello").deltas(true))).await;
    let actions = actions(&events);
    let streamed: Vec<_> = actions.iter().filter(is_answer).collect();
    let (first, last) = (streamed.first().unwrap(), streamed.last().unwrap());
    assert_eq!((first.phase, last.phase), (Phase::Started, Phase::Completed));
    assert!(streamed.len() > 4, "in one piece: {streamed:#?}");
    let joined: String = streamed.iter().filter_map(|event| event.answer_piece()).collect();
    assert_eq!(joined, end_of(&events).answer);
}

#[tokio::test(start_paused = true)]
async fn the_demo_changes_a_file_only_if_that_is_accepted() {
    let test_host = TestHost::on_test_runtime();
    let runner = EngineRunner::new(Demo::new()).on(test_host.host.clone());
    let changes = async |request: RunRequest| {
        let events = all(runner.run(request)).await;
        assert!(end_of(&events).ok);
        let changed = |event: &&ActionEvent| event.action.kind == ActionKind::FileChange;
        actions(&events).iter().filter(|it| changed(it)).count()
    };
    let request = || RunRequest::new("hello");
    assert_eq!(changes(request().approvals(Arc::new(accept_all()))).await, 2);
    assert_eq!(changes(request().approvals(Arc::new(deny()))).await, 0);
    assert_eq!(changes(request()).await, 0, "nobody accepted it");
}

#[tokio::test(start_paused = true)]
async fn a_session_that_is_not_stored_is_not_offered_and_not_resumed() {
    let test_host = TestHost::on_test_runtime();
    let runner = EngineRunner::new(Demo::new()).on(test_host.host.clone());
    let stored = runner.ask(RunRequest::new("hello").key("k".to_owned())).await;
    assert!(stored.ok && stored.resume.is_some(), "a key changes nothing here");
    let ephemeral = runner.ask(RunRequest::new("hello").ephemeral(true)).await;
    assert!(ephemeral.ok && ephemeral.resume.is_none(), "{ephemeral:?}");
    let resumed = RunRequest::new("more").resume(stored.resume).ephemeral(true);
    let refused = runner.ask(resumed).await;
    assert_eq!(refused.reason, Some(Reason::InvalidRequest), "{refused:?}");
    assert!(refused.error.unwrap().contains("`ephemeral`"));
}

#[tokio::test(start_paused = true)]
async fn an_engine_that_stores_every_session_refuses_by_name() {
    let test_host = TestHost::on_test_runtime();
    let runner = lab(&test_host.host, |run| async move {
        let _ = run.emit(success("never")).await;
    });
    let refused = runner.ask(RunRequest::new("hello").ephemeral(true)).await;
    assert_eq!(refused.reason, Some(Reason::InvalidRequest), "{refused:?}");
    let error = refused.error.unwrap();
    assert!(error.contains("lab") && error.contains("`ephemeral`"), "{error}");
}
