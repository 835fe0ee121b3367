//! The promises of the bridge, with a chat room in memory and runs that the test plays.

use std::sync::Arc;
use std::time::Duration;

use crate::support::{Runs, engine, lab, message, settle, token};
use takopi_bridge::JobStatus;
use takopi_bridge::testing::{Room, RoomFault};
use takopi_bridge::transport::Kind;
use takopi_bridge::{
    Bridge, Continuity, FinalBy, Incoming, JobEnd, Limits, MessageId, Place, Press, PressOutcome,
    ReceiveError, Router, Settings,
};
use takopi_core::demo::Demo;
use takopi_core::{EngineId, Phase, Reason};
use tokio::time::Instant;

fn settings() -> Settings {
    Settings::default().final_by(FinalBy::Edit)
}

fn bridge(settings: Settings) -> (Bridge<Room>, Room, Runs) {
    let (lab, runs) = lab();
    let room = Room::new();
    (Bridge::new(room.clone(), Router::new(lab), settings), room, runs)
}

fn completed(end: &JobEnd) -> &takopi_core::Completed {
    match end {
        JobEnd::Ran(completed) => completed,
        other => panic!("it did not run: {other:?}"),
    }
}

#[tokio::test(start_paused = true)]
async fn a_message_is_run_and_answered_where_it_was_asked() {
    let (bridge, room, mut runs) = bridge(settings());
    let place = Place::new("general").thread("topic 7");
    let job = bridge.receive(Incoming::new(place.clone(), "u1", "hello")).unwrap();
    let run = runs.next().await;
    assert_eq!((run.request.prompt.as_str(), run.request.resume.clone()), ("hello", None));
    let progress = room.shows(Kind::Progress, "starting").await;
    assert_eq!(progress.sent.place, place);
    assert_eq!(progress.sent.reply_to, Some(MessageId::from("u1")));
    assert_eq!(progress.sent.content.buttons, [Press::Cancel]);
    assert_eq!(progress.sent.content.job, Some(job.id));
    run.started("s1");
    run.done("42");
    let report = job.report().await;
    assert!(completed(&report.end).ok);
    assert_eq!(report.messages, [progress.id]);
    let last = room.messages().pop().unwrap();
    assert!(last.text().contains("42"));
    assert_eq!(last.sent.content.buttons, []);
}

#[tokio::test(start_paused = true)]
async fn a_second_message_queues_visibly_and_its_message_becomes_its_progress() {
    let (bridge, room, mut runs) = bridge(settings());
    bridge.receive(message("u1", "first")).unwrap();
    let first = runs.next().await;
    first.started("s1");
    let shown = room.shows(Kind::Progress, "lab resume s1").await;

    let reply = message("u2", "second").replying_to_text(shown.id.clone(), shown.text());
    let second = bridge.receive(reply).unwrap();
    let third = bridge.receive(message("u3", "third\nlab resume s1")).unwrap();
    let queued = room.shows(Kind::Queued, "queued behind 1").await;
    assert!(queued.sent.silent);
    room.shows(Kind::Queued, "queued behind 2").await;
    assert!(runs.is_empty());

    first.done("one");
    let run = runs.next().await;
    assert_eq!(
        (run.request.prompt.as_str(), run.request.resume.clone()),
        ("second", Some(token("s1")))
    );
    room.until(|messages| {
        messages.iter().find(|it| it.id == queued.id && it.kind() == Kind::Progress).map(|_| ())
    })
    .await;
    let moved = room.shows(Kind::Queued, "queued behind 1").await;
    assert_ne!(moved.id, queued.id, "the third moved up");
    run.done("two");
    assert_eq!(second.report().await.messages, [queued.id]);
    runs.next().await.done("three");
    assert!(completed(&third.report().await.end).ok);
}

#[tokio::test(start_paused = true)]
async fn a_reply_to_a_run_without_a_session_yet_waits_and_resumes_it() {
    let (bridge, room, mut runs) = bridge(settings());
    bridge.receive(message("u1", "first")).unwrap();
    let first = runs.next().await;
    let progress = room.shows(Kind::Progress, "starting").await;
    bridge.receive(message("u2", "to its progress").replying_to(progress.id)).unwrap();
    bridge.receive(message("u3", "to the question itself").replying_to("u1")).unwrap();
    settle().await;
    assert!(runs.is_empty());
    first.started("s1");
    first.done("one");
    for prompt in ["to its progress", "to the question itself"] {
        let run = runs.next().await;
        assert_eq!(run.request.prompt, prompt);
        assert_eq!(run.request.resume, Some(token("s1")));
        run.done("more");
    }
    bridge.drain().await;
}

#[tokio::test(start_paused = true)]
async fn messages_that_reply_to_nothing_run_side_by_side() {
    let (bridge, _room, mut runs) = bridge(settings());
    bridge.receive(message("u1", "first")).unwrap();
    bridge.receive(message("u2", "second")).unwrap();
    let (first, second) = (runs.next().await, runs.next().await);
    assert_eq!((first.request.resume.clone(), second.request.resume.clone()), (None, None));
}

#[tokio::test(start_paused = true)]
async fn a_place_may_be_a_conversation() {
    let (lab, mut runs) = lab();
    let (other, mut others) = engine(EngineId::from_static("other"));
    let router = Router::new(lab).with(other);
    let bridge = Bridge::new(Room::new(), router, settings().continuity(Continuity::Place));
    let say = |id: &str, text: &str| bridge.receive(message(id, text)).unwrap();

    say("u1", "first");
    let queued = say("u2", "second");
    say("u3", "third");
    let first = runs.next().await;
    settle().await;
    assert!(runs.is_empty());
    bridge.cancel(queued.id, None);
    first.started("s1");
    first.done("one");
    let third = runs.next().await;
    assert_eq!(
        (third.request.prompt.as_str(), third.request.resume.clone()),
        ("third", Some(token("s1")))
    );
    let last = say("u4", "fourth");
    bridge.cancel(last.id, None);
    third.done("three");
    say("u5", "fifth");
    assert_eq!(
        runs.next().await.request.resume,
        Some(token("s1")),
        "a cancelled job loses nothing"
    );

    say("u6", "/other engine");
    assert_eq!(others.next().await.request.resume, None, "another engine has a session of its own");
    bridge.forget(&Place::new("general"));
    say("u7", "anew");
    assert_eq!(runs.next().await.request.resume, None);
}

#[tokio::test(start_paused = true)]
async fn cancel_finds_the_job_of_a_message_and_reports_whether_it_ran() {
    let (bridge, room, mut runs) = bridge(settings());
    let running = bridge.receive(message("u1", "first")).unwrap();
    let run = runs.next().await;
    run.started("s1");
    let progress = room.shows(Kind::Progress, "lab resume s1").await;
    let queued = bridge.receive(message("u2", "second").replying_to("u1")).unwrap();
    let waiting = room.shows(Kind::Queued, "queued behind 1").await;

    let pressed = bridge.press(&waiting.at(), Press::Cancel, "b_ob");
    assert_eq!(pressed.to_string(), format!("cancelled {}, which was still queued", queued.id));
    let report = queued.report().await;
    assert_eq!(report.end, JobEnd::CancelledInQueue);
    insta::assert_snapshot!(room.shows(Kind::Final, "not started").await.text(), @r"
    cancelled · 0s  
    cancelled by b\_ob; it had not started

    `lab resume s1`
    ");
    assert!(runs.is_empty());

    let pressed = bridge.press(&progress.at(), Press::Cancel, "al_ice");
    assert_eq!(pressed.to_string(), format!("cancelled {}, which was running", running.id));
    let report = running.report().await;
    assert_eq!(completed(&report.end).reason, Some(Reason::Interrupted));
    insta::assert_snapshot!(room.shows(Kind::Final, "cancelled · Lab").await.text(), @r"
    cancelled · Lab · 2s  
    cancelled by al\_ice

    `lab resume s1`
    ");
    assert_eq!(bridge.press(&progress.at(), Press::Cancel, "alice"), PressOutcome::AlreadyOver);
    let nowhere = MessageId::from("m99").at("general");
    assert_eq!(bridge.press(&nowhere, Press::Cancel, "alice"), PressOutcome::UnknownMessage);
}

#[tokio::test(start_paused = true)]
async fn the_jobs_of_a_place_are_listed_and_cancelled_together() {
    let (bridge, _room, mut runs) = bridge(settings());
    bridge.receive(message("u1", "here")).unwrap();
    bridge.receive(message("u2", "here too").replying_to("u1")).unwrap();
    bridge.receive(Incoming::new(Place::new("elsewhere"), "u1", "there")).unwrap();
    let _runs = (runs.next().await, runs.next().await);
    let listed: Vec<_> = bridge.jobs().into_iter().map(|it| (it.place.chat, it.status)).collect();
    let here = || "general".to_owned();
    assert_eq!(
        listed,
        [
            (here(), JobStatus::Running),
            (here(), JobStatus::Behind(1)),
            ("elsewhere".to_owned(), JobStatus::Running)
        ]
    );
    let cancelled = bridge.cancel(Place::new("general"), Some("alice"));
    let running: Vec<_> = cancelled.iter().map(|it| it.was_running).collect();
    assert_eq!(running, [true, false]);
    settle().await;
    assert_eq!(bridge.jobs().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_message_that_is_not_accepted_is_an_error_and_a_notice() {
    let (lab, mut runs) = lab();
    let (other, _others) = engine(EngineId::from_static("other"));
    let room = Room::new();
    let settings = settings().limits(Limits::new(1, 1));
    let bridge = Bridge::new(room.clone(), Router::new(lab).with(other), settings);
    bridge.receive(message("u1", "runs")).unwrap();
    let _run = runs.next().await;
    let refused = bridge.receive(message("u2", "/other go").replying_to("u1")).unwrap_err();
    assert!(matches!(refused, ReceiveError::Route(_)), "{refused}");
    bridge.receive(message("u3", "waits")).unwrap();
    let refused = bridge.receive(message("u4", "too many")).unwrap_err();
    assert_eq!(refused.to_string(), "the queue is full (1 waiting); try again later");
    let told = room.shows(Kind::Notice, "the queue is full").await;
    assert_eq!(told.sent.reply_to, Some(MessageId::from("u4")));
    assert!(told.sent.silent);
    let unknown = takopi_core::ResumeToken::new("nobody", "1");
    let refused = bridge.receive(message("u5", "go on").resume(unknown)).unwrap_err();
    assert!(matches!(refused, ReceiveError::UnknownEngine(_)));
}

#[tokio::test(start_paused = true)]
async fn requests_are_made_by_the_author_and_completed_by_the_bridge() {
    let settings = settings().requests(|incoming, request| {
        request.model(format!("for {}", incoming.user.as_deref().unwrap_or("nobody"))).cwd("/srv")
    });
    let (bridge, _room, mut runs) = bridge(settings);
    bridge.receive(message("u1", "lab resume S1\ngo on")).unwrap();
    let request = runs.next().await.request;
    assert_eq!(request.settings.model.as_deref(), Some("for alice"));
    assert_eq!((request.prompt.as_str(), request.resume), ("go on", Some(token("s1"))));
    assert!(request.approvals.is_some());
}

#[tokio::test(start_paused = true)]
async fn a_chat_that_hangs_stalls_no_other_chat_and_no_run() {
    let (bridge, room, mut runs) = bridge(settings());
    room.set_faults(|call| (call.chat == "general").then_some(RoomFault::Hang));
    let begun = Instant::now();
    let stuck = bridge.receive(message("u1", "stuck")).unwrap();
    runs.next().await.done("unheard");
    let fine = bridge.receive(Incoming::new(Place::new("fine"), "u1", "fine")).unwrap();
    runs.next().await.done("heard");
    assert!(fine.report().await.undelivered.is_none());
    assert_eq!(begun.elapsed(), Duration::ZERO);
    let report = stuck.report().await;
    assert!(completed(&report.end).ok);
    assert!(report.undelivered.unwrap().parts[0].contains("unheard"));
}

#[tokio::test(start_paused = true)]
async fn a_rate_limit_holds_back_every_message_of_its_chat_and_no_other_chat() {
    const WAIT: Duration = Duration::from_secs(40);
    let (bridge, room, mut runs) = bridge(settings());
    room.set_faults(|call| (call.number == 1).then_some(RoomFault::RateLimit(WAIT)));
    let begun = Instant::now();
    bridge.receive(message("u1", "first")).unwrap();
    let _first = runs.next().await;
    settle().await;
    bridge.receive(message("u2", "second")).unwrap();
    let _second = runs.next().await;
    let elsewhere = bridge.receive(Incoming::new(Place::new("fine"), "u1", "third")).unwrap();
    runs.next().await.done("heard");
    elsewhere.report().await;
    assert_eq!(begun.elapsed(), Duration::ZERO);
    room.until(|messages| (messages.len() == 3).then_some(())).await;
    let calls = room.calls();
    let held = calls[1..].iter().filter(|call| call.chat == "general");
    assert!(held.clone().count() == 2 && held.clone().all(|call| call.at - begun == WAIT));
}

#[tokio::test(start_paused = true)]
async fn the_next_job_of_a_session_does_not_wait_for_the_previous_final_message() {
    let (bridge, room, mut runs) = bridge(settings());
    room.set_faults(|call| (call.kind == Some(Kind::Final)).then_some(RoomFault::Hang));
    let begun = Instant::now();
    bridge.receive(message("u1", "first")).unwrap();
    bridge.receive(message("u2", "second").replying_to("u1")).unwrap();
    runs.next().await.done("one");
    runs.next().await.done("two");
    assert_eq!(begun.elapsed(), Duration::ZERO);
}

#[tokio::test(start_paused = true)]
async fn shutdown_reports_what_it_cancelled_and_accepts_nothing_new() {
    let (bridge, room, mut runs) = bridge(settings());
    let running = bridge.receive(message("u1", "first")).unwrap();
    let queued = bridge.receive(message("u2", "second").replying_to("u1")).unwrap();
    let run = runs.next().await;
    run.started("s1");
    settle().await;
    let cancelled = bridge.shutdown().await;
    let said: Vec<_> = cancelled.iter().map(|it| (it.job, it.was_running)).collect();
    assert_eq!(said, [(running.id, true), (queued.id, false)]);
    assert!(room.messages().iter().all(|message| message.kind() == Kind::Final));
    assert!(room.texts().iter().all(|text| text.contains("shutting down")));
    let refused = bridge.receive(message("u3", "late")).unwrap_err();
    assert_eq!(refused.to_string(), "shutting down: new messages are not accepted");
}

#[tokio::test(start_paused = true)]
async fn drain_lets_everything_end() {
    let (bridge, _room, mut runs) = bridge(settings());
    let first = bridge.receive(message("u1", "first")).unwrap();
    let second = bridge.receive(message("u2", "second").replying_to("u1")).unwrap();
    let play = async {
        runs.next().await.done("one");
        runs.next().await.done("two");
    };
    tokio::join!(bridge.drain(), play);
    assert!(completed(&first.report().await.end).ok);
    assert!(completed(&second.report().await.end).ok);
}

#[tokio::test(start_paused = true)]
async fn dropping_the_bridge_cancels_waiting_and_running_jobs() {
    let (bridge, room, mut runs) = bridge(settings());
    let running = bridge.receive(message("u1", "first")).unwrap();
    let queued = bridge.receive(message("u2", "second").replying_to("u1")).unwrap();
    let run = runs.next().await;
    drop(bridge);
    assert!(run.request.cancel.is_cancelled());
    assert_eq!(completed(&running.report().await.end).reason, Some(Reason::Interrupted));
    assert_eq!(queued.report().await.end, JobEnd::CancelledInQueue);
    assert!(room.texts().iter().all(|text| text.contains("shutting down")));
}

#[tokio::test(start_paused = true)]
async fn a_failed_run_keeps_its_session_for_the_next_message() {
    let (bridge, room, mut runs) = bridge(settings());
    bridge.receive(message("u1", "first")).unwrap();
    let run = runs.next().await;
    run.started("s1");
    run.act("command", Phase::Started);
    run.fail("the model is gone");
    let last = room.shows(Kind::Final, "the model is gone").await;
    bridge.receive(message("u2", "again").replying_to(last.id)).unwrap();
    assert_eq!(runs.next().await.request.resume, Some(token("s1")));
}

#[tokio::test]
async fn the_demo_engine_is_bridged_from_question_to_answer() {
    let room = Room::new();
    let demo = Arc::new(Demo::new().runner());
    let bridge = Bridge::new(room.clone(), Router::new(demo), Settings::default());
    let job = bridge.receive(message("u1", "hello")).unwrap();
    let question = room.question().await;
    assert_eq!(bridge.job_of(&question), Some(job.id));
    bridge.choose(&question, takopi_core::Decision::Accept, "alice").unwrap();
    assert!(completed(&job.report().await.end).ok);
    let last = room.shows(Kind::Final, "You said: hello").await;
    assert!(last.text().contains("takopi run --engine demo --resume demo-"), "{}", last.text());
    let reply = message("u2", "and again").replying_to_text(last.id.clone(), last.text());
    let job = bridge.receive(reply).unwrap();
    bridge.cancel(job.id, Some("alice"));
    assert_eq!(job.report().await.undelivered.map(|undelivered| undelivered.to_string()), None);
    bridge.shutdown().await;
}
