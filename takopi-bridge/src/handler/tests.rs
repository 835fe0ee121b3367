//! The promises of the run handler, on a paused clock.

use std::sync::Arc;
use std::time::Duration;

use crate::test_support::{Lab, Run, Runs, lab, settle};
use proptest::prelude::*;
use takopi_core::{Phase, Reason, RunRequest, TakopiEvent};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep};

use super::{FinalBy, Handler, HandlerOptions, Pace, ReplyTarget, RunResult, RunUpdate};
use crate::present::{Chat, Limit};
use crate::testing::{Room, RoomCall, RoomFault, RoomMethod};
use crate::transport::{Kind, Place, TransportError};

const INTERVAL: Duration = Duration::from_secs(2);

fn options(by: FinalBy) -> HandlerOptions {
    let pace = Pace::default().interval(INTERVAL);
    HandlerOptions { final_by: by, pace, ..HandlerOptions::default() }
}

fn paced(pace: Pace) -> HandlerOptions {
    HandlerOptions { pace, ..HandlerOptions::default() }
}

/// A running run in a room.
struct Stage {
    room: Room,
    run: Run,
    shown: JoinHandle<RunResult>,
    /// Resolves when the run has ended, before its final message is delivered.
    over: oneshot::Receiver<Instant>,
}

async fn begin(room: Room, options: HandlerOptions) -> Stage {
    let (lab, mut runs): (Arc<Lab>, Runs) = lab();
    let handler = Handler::new(room.clone(), options);
    let (ended, over) = oneshot::channel();
    let mut ended = Some(ended);
    let shown = tokio::spawn(async move {
        let request = RunRequest::new("hello");
        let target = ReplyTarget::new(Place::new("general")).reply_to("question");
        let on_update = |update: RunUpdate<'_>| {
            if let RunUpdate::Event(TakopiEvent::Completed(_)) = update
                && let Some(ended) = ended.take()
            {
                let _ = ended.send(Instant::now());
            }
        };
        handler.show(handler.message(&target), &*lab, request, &target, on_update).await
    });
    let run = runs.next().await;
    Stage { room, run, shown, over }
}

async fn stage(by: FinalBy) -> Stage {
    begin(Room::new(), options(by)).await
}

fn edits(calls: &[RoomCall]) -> Vec<&RoomCall> {
    calls.iter().filter(|call| call.method == RoomMethod::Edit).collect()
}

#[tokio::test(start_paused = true)]
async fn the_first_message_is_sent_at_once_and_silently() {
    let begun = Instant::now();
    let stage = stage(FinalBy::Edit).await;
    let first = stage.room.shows(Kind::Progress, "starting").await;
    assert_eq!(begun.elapsed(), Duration::ZERO);
    assert!(first.sent.silent);
    assert_eq!(first.sent.reply_to.unwrap().as_str(), "question");
}

#[tokio::test(start_paused = true)]
async fn edits_respect_the_interval_and_the_last_state_is_always_shown() {
    let stage = stage(FinalBy::Edit).await;
    stage.run.started("s1");
    for n in 0..100 {
        stage.run.act(&format!("command{n}"), Phase::Started);
        sleep(Duration::from_millis(100)).await;
    }
    let calls = stage.room.calls();
    let close = calls.windows(2).find(|pair| pair[1].at - pair[0].at < INTERVAL);
    assert!(close.is_none(), "two calls too close: {close:?}");
    assert!((5..=6).contains(&calls.len()), "{} calls in ten seconds", calls.len());
    let last = stage.room.shows(Kind::Progress, "command99").await;
    assert!(last.text().ends_with("`lab resume s1`"), "{}", last.text());
}

#[tokio::test(start_paused = true)]
async fn nothing_is_edited_when_nothing_changed() {
    let stage = stage(FinalBy::Edit).await;
    stage.run.started("s1");
    stage.run.act("command", Phase::Started);
    stage.room.shows(Kind::Progress, "command").await;
    let before = stage.room.calls().len();
    for _ in 0..10 {
        stage.run.act("command", Phase::Started);
        sleep(INTERVAL * 2).await;
    }
    assert_eq!(stage.room.calls().len(), before, "time alone is no change");
    stage.run.act("command", Phase::Completed);
    stage.room.shows(Kind::Progress, "✓").await;
    assert_eq!(stage.room.calls().len(), before + 1);
}

#[tokio::test(start_paused = true)]
async fn elapsed_time_is_refreshed_where_that_is_set() {
    let options = paced(Pace::default().refresh(Duration::from_secs(10)));
    let stage = begin(Room::new(), options).await;
    stage.run.started("s1");
    let working = stage.room.shows(Kind::Progress, "working").await;
    sleep(Duration::from_secs(65)).await;
    let later = stage.room.messages().pop().unwrap();
    assert_eq!((later.id.clone(), later.edits), (working.id, working.edits + 6), "{later:?}");
    assert!(later.text().contains("1m"), "{}", later.text());
}

#[tokio::test(start_paused = true)]
async fn a_refresh_of_zero_blocks_nothing() {
    let options = paced(Pace::default().refresh(Duration::ZERO));
    let stage = begin(Room::new(), options).await;
    stage.run.started("s1");
    sleep(Duration::from_secs(10)).await;
    stage.run.done("42");
    assert!(stage.shown.await.unwrap().undelivered.is_none());
}

#[tokio::test(start_paused = true)]
async fn a_rate_limit_delays_the_next_call_for_as_long_as_asked() {
    const WAIT: Duration = Duration::from_secs(17);
    let room = Room::new();
    room.set_faults(|call| (call.number == 2).then_some(RoomFault::RateLimit(WAIT)));
    let stage = begin(room, options(FinalBy::Edit)).await;
    stage.room.shows(Kind::Progress, "starting").await;
    stage.run.started("s1");
    for n in 0..40 {
        stage.run.act(&format!("command{n}"), Phase::Started);
        sleep(Duration::from_millis(500)).await;
    }
    stage.room.shows(Kind::Progress, "command39").await;
    let calls = stage.room.calls();
    assert_eq!(calls[2].at - calls[1].at, WAIT);
}

#[tokio::test(start_paused = true)]
async fn a_rate_limit_delays_the_final_message_too() {
    const WAIT: Duration = Duration::from_secs(17);
    let room = Room::new();
    room.set_faults(|call| (call.number == 1).then_some(RoomFault::RateLimit(WAIT)));
    let begun = Instant::now();
    let stage = begin(room, options(FinalBy::Edit)).await;
    settle().await;
    stage.run.done("42");
    let shown = stage.shown.await.unwrap();
    assert!(shown.undelivered.is_none());
    assert_eq!(begun.elapsed(), WAIT);
    assert!(stage.room.last_text().contains("42"));
}

#[tokio::test(start_paused = true)]
async fn a_message_that_was_deleted_meanwhile_is_sent_again() {
    let stage = stage(FinalBy::Edit).await;
    let first = stage.room.shows(Kind::Progress, "starting").await;
    stage.room.remove(&first.id);
    stage.run.started("s1");
    stage.run.act("command", Phase::Started);
    let second = stage.room.shows(Kind::Progress, "command").await;
    assert_ne!(first.id, second.id);
    stage.room.remove(&second.id);
    stage.run.done("42");
    let shown = stage.shown.await.unwrap();
    assert!(stage.room.last_text().contains("42"));
    assert_eq!(shown.messages, [stage.room.messages()[0].id.clone()]);
}

#[tokio::test(start_paused = true)]
async fn the_final_message_replaces_the_progress_message() {
    let stage = stage(FinalBy::Edit).await;
    let progress = stage.room.shows(Kind::Progress, "starting").await;
    stage.run.started("s1");
    stage.run.done("42");
    let shown = stage.shown.await.unwrap();
    assert!(shown.completed.ok);
    assert_eq!(shown.messages, [progress.id]);
    let last = &stage.room.messages()[0].sent.content;
    assert_eq!(last.resume_line.as_deref(), Some("`lab resume s1`"));
    insta::assert_snapshot!(stage.room.texts().join("\n---\n"), @"
    done · Lab · 0s

    42

    `lab resume s1`
    ");
}

#[tokio::test(start_paused = true)]
async fn the_final_message_may_be_a_new_message_that_notifies() {
    let stage = stage(FinalBy::NewMessage).await;
    let progress = stage.room.shows(Kind::Progress, "starting").await;
    stage.run.started("s1");
    stage.run.done("42");
    stage.shown.await.unwrap();
    let messages = stage.room.messages();
    assert_eq!(messages.len(), 1, "the progress message is gone");
    assert_ne!(messages[0].id, progress.id);
    assert!(!messages[0].sent.silent);
    assert_eq!(messages[0].kind(), Kind::Final);
}

#[tokio::test(start_paused = true)]
async fn cancelled_and_failed_runs_keep_the_resume_line_and_the_answer_so_far() {
    let stage1 = stage(FinalBy::Edit).await;
    stage1.run.started("s1");
    stage1.run.fail("the model is *gone*");
    stage1.shown.await.unwrap();
    insta::assert_snapshot!(stage1.room.last_text(), @r"
    failed (engine failed) · Lab · 0s

    half an answer

    the model is \*gone\*

    `lab resume s1`
    ");
    let stage2 = stage(FinalBy::Edit).await;
    stage2.run.started("s2");
    stage2.room.shows(Kind::Progress, "working").await;
    stage2.run.request.cancel.cancel();
    let shown = stage2.shown.await.unwrap();
    assert_eq!(shown.completed.reason, Some(Reason::Interrupted));
    assert!(stage2.room.last_text().starts_with("cancelled"));
    assert!(stage2.room.last_text().ends_with("`lab resume s2`"));
}

#[tokio::test(start_paused = true)]
async fn a_long_answer_comes_in_parts_and_the_resume_line_in_the_last() {
    for by in [FinalBy::Edit, FinalBy::NewMessage] {
        let chat = Chat::new(Limit::Chars(120));
        let stage = begin(Room::new(), HandlerOptions { chat, ..options(by) }).await;
        stage.run.started("s1");
        stage.run.done(&"twelve words that are said again and again until it is long. ".repeat(8));
        let shown = stage.shown.await.unwrap();
        let messages = stage.room.messages();
        assert!(messages.len() > 3);
        let ids: Vec<_> = messages.iter().map(|message| message.id.clone()).collect();
        assert_eq!(shown.messages, ids, "in order, and nothing else is left");
        assert!(messages.iter().all(|message| message.text().chars().count() <= 120));
        let with_line = messages.iter().filter(|it| it.text().contains("lab resume")).count();
        assert_eq!(with_line, 1);
        assert!(messages.last().unwrap().text().ends_with("`lab resume s1`"));
        let loud = messages.iter().filter(|message| !message.sent.silent).count();
        assert_eq!(loud, usize::from(by == FinalBy::NewMessage), "at most one notification");
    }
}

#[tokio::test(start_paused = true)]
async fn a_chat_that_hangs_delays_no_run_and_undelivered_parts_are_reported() {
    let room = Room::new();
    room.set_faults(|_| Some(RoomFault::Hang));
    let begun = Instant::now();
    let stage = begin(room, options(FinalBy::NewMessage)).await;
    stage.run.started("s1");
    for n in 0..1000 {
        stage.run.act(&format!("command{n}"), Phase::Started);
    }
    stage.run.done("42");
    assert_eq!(stage.over.await.unwrap(), begun, "the run does not wait for the chat");
    let shown = stage.shown.await.unwrap();
    assert!(shown.completed.ok);
    let undelivered = shown.undelivered.unwrap();
    assert!(undelivered.parts[0].contains("42"));
    assert!(matches!(undelivered.cause, TransportError::TimedOut(_)));
    let error = "1 part of the final message could not be delivered: the chat's API did not respond within 30s";
    assert_eq!(undelivered.to_string(), error);
    assert!(std::error::Error::source(&undelivered).is_none(), "the cause is printed once");
    let pace = Pace::default();
    let most = pace.call_timeout * (pace.attempts + 1) + Duration::from_mins(1);
    assert!(begun.elapsed() <= most, "bounded: {:?}", begun.elapsed());
    let last = stage.room.calls().iter().filter(|call| call.kind == Some(Kind::Final)).count();
    assert_eq!(last, pace.attempts as usize);
}

#[tokio::test(start_paused = true)]
async fn a_progress_message_that_failed_is_retried_though_nothing_changed() {
    let room = Room::new();
    room.set_faults(|call| (call.number <= 3).then_some(RoomFault::Fail));
    let stage = begin(room, options(FinalBy::Edit)).await;
    stage.room.shows(Kind::Progress, "starting").await;
    assert_eq!(stage.room.calls().len(), 4);
}

#[tokio::test(start_paused = true)]
async fn a_rate_limit_that_is_too_long_is_not_waited_for() {
    let room = Room::new();
    let day = Duration::from_hours(24);
    room.set_faults(move |call| {
        (call.kind == Some(Kind::Final)).then_some(RoomFault::RateLimit(day))
    });
    let stage = begin(room, options(FinalBy::Edit)).await;
    stage.room.shows(Kind::Progress, "starting").await;
    let begun = Instant::now();
    stage.run.done("42");
    let undelivered = stage.shown.await.unwrap().undelivered.unwrap();
    assert!(matches!(undelivered.cause, TransportError::RateLimited { .. }));
    assert_eq!(begun.elapsed(), Duration::ZERO);
}

#[tokio::test(start_paused = true)]
async fn a_call_to_a_chat_that_accepts_no_more_is_not_repeated() {
    let room = Room::new();
    room.set_faults(|call| (call.kind == Some(Kind::Final)).then_some(RoomFault::Closed));
    let stage = begin(room, options(FinalBy::NewMessage)).await;
    stage.room.shows(Kind::Progress, "starting").await;
    stage.run.done("42");
    let undelivered = stage.shown.await.unwrap().undelivered.unwrap();
    assert!(matches!(undelivered.cause, TransportError::Closed(_)));
    // As a new message, and in the place of the progress.
    let calls = stage.room.calls();
    assert_eq!(calls.iter().filter(|call| call.kind == Some(Kind::Final)).count(), 2);
}

#[tokio::test(start_paused = true)]
async fn an_endless_interval_still_shows_the_first_and_the_final_message() {
    let pace = Pace::default().interval(Duration::MAX).refresh(Duration::MAX);
    let stage = begin(Room::new(), HandlerOptions { final_by: FinalBy::Edit, ..paced(pace) }).await;
    stage.room.shows(Kind::Progress, "starting").await;
    stage.run.started("s1");
    stage.run.act("command", Phase::Started);
    sleep(Duration::from_hours(1)).await;
    stage.run.done("42");
    assert!(stage.shown.await.unwrap().undelivered.is_none());
    assert_eq!(stage.room.calls().len(), 2);
}

#[tokio::test(start_paused = true)]
async fn dropping_the_handler_cancels_the_run() {
    let stage = stage(FinalBy::Edit).await;
    stage.run.started("s1");
    stage.room.shows(Kind::Progress, "working").await;
    stage.shown.abort();
    assert!(stage.shown.await.unwrap_err().is_cancelled());
    settle().await;
    assert!(stage.run.is_dropped());
}

#[derive(Debug, Clone, Copy)]
enum Trouble {
    Nth(usize, RoomFault),
    First(usize, RoomFault),
}

fn trouble() -> impl Strategy<Value = Trouble> {
    let fault = || {
        prop_oneof![
            Just(RoomFault::Fail),
            Just(RoomFault::Hang),
            (0..90_u64).prop_map(|wait| RoomFault::RateLimit(Duration::from_secs(wait))),
        ]
    };
    prop_oneof![
        (2..5_usize, fault()).prop_map(|(n, fault)| Trouble::Nth(n, fault)),
        (0..4_usize, fault()).prop_map(|(n, fault)| Trouble::First(n, fault)),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn the_final_message_is_delivered_despite_faults(
        trouble in trouble(),
        by in prop_oneof![Just(FinalBy::Edit), Just(FinalBy::NewMessage)],
        gaps in proptest::collection::vec(0..5000_u64, 0..20),
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .start_paused(true)
            .build()
            .unwrap();
        runtime.block_on(async {
            let room = Room::new();
            room.set_faults(move |call| match trouble {
                Trouble::Nth(n, fault) => (call.number % n == 0).then_some(fault),
                Trouble::First(n, fault) => (call.number <= n).then_some(fault),
            });
            let stage = begin(room, options(by)).await;
            stage.run.started("s1");
            for (n, gap) in gaps.iter().enumerate() {
                stage.run.act(&format!("command{n}"), Phase::Started);
                sleep(Duration::from_millis(*gap)).await;
            }
            let end = Instant::now();
            stage.run.done("42");
            assert_eq!(stage.over.await.unwrap(), end);
            let shown = stage.shown.await.unwrap();
            assert!(shown.undelivered.is_none(), "{:?}", shown.undelivered);
            let texts = stage.room.texts();
            assert_eq!(texts.iter().filter(|text| text.contains("42")).count(), 1);
            assert!(texts.iter().any(|text| text.ends_with("`lab resume s1`")));
            for pair in edits(&stage.room.calls()).windows(2) {
                let final_message = pair[1].kind == Some(Kind::Final);
                assert!(final_message || pair[1].at - pair[0].at >= INTERVAL);
            }
        });
    }
}
