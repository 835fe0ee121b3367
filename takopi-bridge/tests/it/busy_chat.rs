//! A chat that is busy, slow, hangs or fails: what is delivered and what waits.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::support::{Run, Runs, lab, message, settle, token};
use takopi_bridge::Limits;
use takopi_bridge::Pace;
use takopi_bridge::testing::{Room, RoomFault, RoomMethod};
use takopi_bridge::transport::{Content, Kind, MessageRef, Outgoing, TransportError};
use takopi_bridge::{
    Bridge, FinalBy, Incoming, JobEnd, JobHandle, MessageId, Place, ReceiveError, Router, Settings,
    Transport,
};
use takopi_core::{Phase, ResumeToken};
use tokio::time::{Instant, sleep, timeout};

const SECOND: Duration = Duration::from_secs(1);
const HOUR: Duration = Duration::from_hours(1);

fn bridge(settings: Settings) -> (Bridge<Room>, Room, Runs) {
    let (lab, runs) = lab();
    let room = Room::new();
    (Bridge::new(room.clone(), Router::new(lab), settings), room, runs)
}

/// A chat far away, where every call takes a while.
struct Far(Room);

impl Transport for Far {
    async fn send(&self, message: Outgoing) -> Result<MessageId, TransportError> {
        sleep(SECOND / 10).await;
        self.0.send(message).await
    }

    async fn edit(&self, message: MessageRef, content: Content) -> Result<(), TransportError> {
        sleep(SECOND / 10).await;
        self.0.edit(message, content).await
    }

    async fn delete(&self, message: MessageRef) -> Result<(), TransportError> {
        sleep(SECOND / 10).await;
        self.0.delete(message).await
    }
}

/// A chat that takes one call a second.
fn one_a_second(room: &Room) {
    let last = Mutex::new(None::<Instant>);
    room.set_faults(move |call| {
        let mut last = last.lock().unwrap();
        match *last {
            Some(last) if call.at < last + SECOND => {
                Some(RoomFault::RateLimit(last + SECOND - call.at))
            }
            _ => {
                *last = Some(call.at);
                None
            }
        }
    });
}

/// So many runs in a far chat that takes one call a second.
async fn busy(count: usize) -> (Bridge<Far>, Room, Vec<JobHandle>, Vec<Run>) {
    let (lab, mut runs) = lab();
    let room = Room::new();
    one_a_second(&room);
    let settings = Settings::default().limits(Limits::new(50, 50));
    let bridge = Bridge::new(Far(room.clone()), Router::new(lab), settings);
    let (mut jobs, mut begun) = (Vec::new(), Vec::new());
    for number in 0..count {
        jobs.push(bridge.receive(message(&format!("u{number}"), "go")).unwrap());
        let run = runs.next().await;
        run.started(&format!("s{number}"));
        begun.push(run);
    }
    (bridge, room, jobs, begun)
}

#[tokio::test(start_paused = true)]
async fn no_answer_is_lost_when_many_runs_end_at_once_in_a_busy_chat() {
    for count in [6, 10, 20] {
        let (_bridge, room, jobs, runs) = busy(count).await;
        sleep(SECOND * 60).await;
        let (end, before) = (Instant::now(), room.calls().len());
        for run in &runs {
            run.done("42");
        }
        for job in jobs {
            assert!(job.report().await.undelivered.is_none());
        }
        let left: Vec<_> =
            room.messages().iter().map(takopi_bridge::testing::RoomMessage::kind).collect();
        assert_eq!(left, vec![Kind::Final; count]);
        // A final message and a deletion each, and as many calls that came too soon.
        let calls = room.calls().len() - before;
        assert!(calls <= 4 * count + 2, "{calls} calls for {count} answers");
        assert!(end.elapsed() <= SECOND * 3 * u32::try_from(count).unwrap(), "{:?}", end.elapsed());
    }
}

#[tokio::test(start_paused = true)]
async fn a_final_message_goes_before_the_edits_of_a_busy_chat() {
    let (_bridge, room, mut jobs, runs) = busy(8).await;
    let runs = Arc::new(runs);
    let busy = runs.clone();
    let noise = tokio::spawn(async move {
        for number in 0.. {
            for run in &busy[1..] {
                run.act(&format!("step {number}"), Phase::Started);
            }
            sleep(SECOND / 5).await;
        }
    });
    sleep(SECOND * 60).await;
    let begun = Instant::now();
    runs[0].done(&"word ".repeat(4096 * 3 / 5));
    room.until(|messages| {
        let parts = messages.iter().filter(|message| message.kind() == Kind::Final);
        (parts.count() == 4).then_some(())
    })
    .await;
    assert!(begun.elapsed() <= SECOND * 7, "four parts took {:?}", begun.elapsed());
    assert!(
        jobs.remove(0).report().await.undelivered.is_none(),
        "edits do not starve what comes later"
    );
    noise.abort();
}

#[tokio::test(start_paused = true)]
async fn the_queue_position_is_rarely_edited() {
    const JOBS: usize = 41;
    let (bridge, room, mut runs) = bridge(Settings::default().limits(Limits::new(1, 100)));
    for number in 0..JOBS {
        bridge.receive(message(&format!("u{number}"), "go")).unwrap();
    }
    for _ in 0..JOBS {
        let run = runs.next().await;
        sleep(SECOND * 3).await;
        run.done("42");
    }
    bridge.drain().await;
    let calls = room.calls();
    let moved = |call: &&takopi_bridge::testing::RoomCall| {
        call.method == RoomMethod::Edit && call.kind == Some(Kind::Queued)
    };
    let moves = calls.iter().filter(moved).count();
    // 780 if every step of every job is shown; its logarithm is below 5 for each job.
    assert!((JOBS / 2..JOBS * 5).contains(&moves), "{moves} edits");
}

#[tokio::test(start_paused = true)]
async fn a_chat_that_is_always_rate_limited_is_given_up_within_the_longest_wait() {
    let (bridge, room, mut runs) = bridge(Settings::default());
    room.set_faults(|_| Some(RoomFault::RateLimit(Duration::from_secs(299))));
    let job = bridge.receive(message("u1", "go")).unwrap();
    runs.next().await.done("42");
    let begun = Instant::now();
    let report = timeout(HOUR, job.report()).await.unwrap();
    assert!(matches!(report.undelivered.unwrap().cause, TransportError::RateLimited { .. }));
    assert!(begun.elapsed() <= Pace::default().longest_wait, "{:?}", begun.elapsed());
}

#[tokio::test(start_paused = true)]
async fn a_chat_that_wants_to_be_left_alone_for_no_time_is_not_hammered() {
    let (bridge, room, mut runs) = bridge(Settings::default());
    room.set_faults(|_| Some(RoomFault::RateLimit(Duration::ZERO)));
    let job = bridge.receive(message("u1", "go")).unwrap();
    runs.next().await.done("42");
    assert!(job.report().await.undelivered.is_some());
    assert!(room.calls().len() <= 1210, "{} calls in five minutes", room.calls().len());
}

#[tokio::test(start_paused = true)]
async fn a_shutdown_ends_though_people_go_on_writing() {
    let (lab, _runs) = lab();
    let bridge = Arc::new(Bridge::new(Far(Room::new()), Router::new(lab), Settings::default()));
    let writing = bridge.clone();
    let people = tokio::spawn(async move {
        for number in 0.. {
            let _ = writing.receive(message(&format!("u{number}"), "hello"));
            sleep(SECOND / 20).await;
        }
    });
    sleep(SECOND).await;
    assert!(timeout(HOUR, bridge.shutdown()).await.is_ok());
    people.abort();
}

#[tokio::test(start_paused = true)]
async fn a_chat_that_hangs_takes_the_room_of_no_other() {
    let (bridge, room, mut runs) = bridge(Settings::default().limits(Limits::new(2, 20)));
    room.set_faults(|call| (call.chat == "general").then_some(RoomFault::Hang));
    for number in 0..22 {
        bridge.receive(message(&format!("u{number}"), "go")).unwrap();
        runs.next().await.done("42");
        settle().await;
    }
    let refused = bridge.receive(message("u22", "go")).unwrap_err();
    assert_eq!(refused, ReceiveError::ChatBehind(22), "nothing waits and nothing runs");
    let fine = bridge.receive(Incoming::new(Place::new("fine"), "u1", "go")).unwrap();
    runs.next().await.done("42");
    assert!(fine.report().await.undelivered.is_none());
}

#[tokio::test(start_paused = true)]
async fn notices_that_hang_in_one_chat_are_delivered_in_another() {
    let (bridge, room, _runs) = bridge(Settings::default());
    room.set_faults(|call| (call.chat == "general").then_some(RoomFault::Hang));
    let nobody = ResumeToken::new("nobody", "1");
    for number in 0..20 {
        let message = message(&format!("u{number}"), "go").resume(nobody.clone());
        assert!(bridge.receive(message).is_err());
    }
    let message = Incoming::new(Place::new("fine"), "u1", "go").resume(nobody);
    assert!(bridge.receive(message).is_err());
    let told = room.shows(Kind::Notice, "engine nobody is not available here");
    let told = timeout(HOUR, told).await.unwrap();
    assert_eq!(told.sent.place, Place::new("fine"));
}

/// A chat that refuses to answer a message that is gone, and was there for so many calls.
struct Strict(Room, usize);

impl Transport for Strict {
    async fn send(&self, message: Outgoing) -> Result<MessageId, TransportError> {
        if message.reply_to.is_some() && self.0.calls().len() >= self.1 {
            return Err(TransportError::Gone);
        }
        self.0.send(message).await
    }

    async fn edit(&self, message: MessageRef, content: Content) -> Result<(), TransportError> {
        self.0.edit(message, content).await
    }

    async fn delete(&self, message: MessageRef) -> Result<(), TransportError> {
        self.0.delete(message).await
    }
}

#[tokio::test(start_paused = true)]
async fn an_answer_to_a_deleted_message_is_still_delivered() {
    for was_there_for in [0, 1] {
        let (lab, mut runs) = lab();
        let room = Room::new();
        let chat = Strict(room.clone(), was_there_for);
        let bridge = Bridge::new(chat, Router::new(lab), Settings::default());
        let job = bridge.receive(message("u1", "go")).unwrap();
        let run = runs.next().await;
        let progress = timeout(HOUR, room.shows(Kind::Progress, "starting")).await.unwrap();
        assert_eq!(progress.sent.reply_to.is_some(), was_there_for > 0);
        run.done("42");
        assert!(job.report().await.undelivered.is_none());
        assert!(room.last_text().contains("42"));
    }
}

#[tokio::test(start_paused = true)]
async fn a_message_that_is_over_can_be_pressed_no_more_though_it_cannot_be_deleted() {
    let (bridge, room, mut runs) = bridge(Settings::default());
    room.set_faults(|call| (call.method == RoomMethod::Delete).then_some(RoomFault::Fail));
    let job = bridge.receive(message("u1", "go")).unwrap();
    let run = runs.next().await;
    run.started("s1");
    room.shows(Kind::Progress, "s1").await;
    run.done("42");
    assert!(job.report().await.undelivered.is_none());
    assert!(room.messages().iter().all(|message| message.sent.content.buttons.is_empty()));
    insta::assert_snapshot!(room.texts()[0], @"
    done · Lab · 2s  
    see the separate final message

    `lab resume s1`
    ");
}

#[tokio::test(start_paused = true)]
async fn a_message_without_its_final_message_shows_that_and_keeps_the_resume_line() {
    for by in [FinalBy::Edit, FinalBy::NewMessage] {
        let (bridge, room, mut runs) = bridge(Settings::default().final_by(by));
        room.set_faults(|call| call.text.contains("42").then_some(RoomFault::Fail));
        let job = bridge.receive(message("u1", "go")).unwrap();
        let run = runs.next().await;
        run.started("s1");
        room.shows(Kind::Progress, "s1").await;
        run.done("42");
        assert!(job.report().await.undelivered.is_some());
        let [message] = room.messages().try_into().unwrap();
        assert_eq!(message.sent.content.buttons, []);
        assert!(message.text().contains("could not be delivered"), "{}", message.text());
        assert!(message.text().ends_with("`lab resume s1`"), "{}", message.text());
    }
}

/// A chat whose author forgot something.
struct Panics(Room);

impl Transport for Panics {
    async fn send(&self, message: Outgoing) -> Result<MessageId, TransportError> {
        self.0.send(message).await
    }

    async fn edit(&self, _: MessageRef, _: Content) -> Result<(), TransportError> {
        panic!("what a chat this is")
    }

    async fn delete(&self, message: MessageRef) -> Result<(), TransportError> {
        self.0.delete(message).await
    }
}

#[tokio::test(start_paused = true)]
async fn a_transport_that_panics_costs_a_call_and_not_the_run() {
    let (lab, mut runs) = lab();
    let room = Room::new();
    let bridge = Bridge::new(Panics(room.clone()), Router::new(lab), Settings::default());
    let job = bridge.receive(message("u1", "go")).unwrap();
    let run = runs.next().await;
    room.shows(Kind::Progress, "starting").await;
    run.started("s1");
    sleep(SECOND * 10).await;
    assert!(!run.is_dropped());
    run.done("42");
    let report = job.report().await;
    assert!(matches!(report.end, JobEnd::Ran(completed) if completed.resume == Some(token("s1"))));
    assert!(room.last_text().contains("42"));
}
