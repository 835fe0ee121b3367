//! Which session a message goes on with, when things are on their way or come twice.

use std::time::Duration;

use crate::support::{Runs, engine, lab, message, settle, token};
use takopi_bridge::JobStatus;
use takopi_bridge::present::{Chat, Limit};
use takopi_bridge::testing::{Room, RoomFault, RoomMethod};
use takopi_bridge::transport::Kind;
use takopi_bridge::{
    Bridge, Continuity, FinalBy, Incoming, Place, Press, PressOutcome, ReceiveError, Router,
    RunContext, Settings,
};
use takopi_core::{Completed, EngineId, Reason};

fn bridge(settings: Settings) -> (Bridge<Room>, Room, Runs) {
    let (lab, runs) = lab();
    let room = Room::new();
    (Bridge::new(room.clone(), Router::new(lab), settings), room, runs)
}

#[tokio::test(start_paused = true)]
async fn a_conversation_continues_while_the_final_message_of_a_cancelled_job_is_pending() {
    for continuity in [Continuity::Reply, Continuity::Place] {
        let (bridge, room, mut runs) = bridge(Settings::default().continuity(continuity));
        let wait = RoomFault::RateLimit(Duration::from_secs(30));
        room.set_faults(move |call| (call.kind == Some(Kind::Final)).then_some(wait));
        bridge.receive(message("u1", "first")).unwrap();
        let first = runs.next().await;
        let second = bridge.receive(message("u2", "second").replying_to("u1")).unwrap();
        room.shows(Kind::Queued, "behind 1").await;
        bridge.cancel(second.id, Some("alice"));
        settle().await;
        assert_eq!(bridge.jobs()[1].status, JobStatus::Finished, "its last word is on its way");
        bridge.receive(message("u3", "third").replying_to("u1")).unwrap();
        settle().await;
        assert!(runs.is_empty(), "the third waits for the first");
        first.started("s1");
        first.done("one");
        assert_eq!(runs.next().await.request.resume, Some(token("s1")));
    }
}

#[tokio::test(start_paused = true)]
async fn a_session_that_does_not_exist_has_no_resume_line() {
    for (reason, has_line) in [(Reason::SessionNotFound, false), (Reason::EngineFailed, true)] {
        let (bridge, room, mut runs) = bridge(Settings::default());
        bridge.receive(message("u1", "go on\n\n`lab resume s1`")).unwrap();
        let run = runs.next().await;
        assert_eq!(run.request.resume, Some(token("s1")));
        let failure = Completed::failure("lab", reason, "it is gone");
        run.emit(failure.resume(Some(token("s1"))));
        let last = room.shows(Kind::Final, "it is gone").await;
        assert_eq!(last.text().contains("lab resume s1"), has_line, "{}", last.text());
        assert_eq!(last.sent.content.resume_line.is_some(), has_line);
    }
}

#[tokio::test(start_paused = true)]
async fn a_reply_to_a_part_of_an_answer_resumes_its_session_while_more_parts_are_pending() {
    let chat = Chat::new(Limit::Chars(100));
    let (bridge, room, mut runs) = bridge(Settings::default().chat(chat));
    let job = bridge.receive(message("u1", "first")).unwrap();
    let first = runs.next().await;
    first.started("s1");
    room.shows(Kind::Progress, "s1").await;
    room.set_faults(|call| {
        let later = call.method == RoomMethod::Delete || call.text.contains("the end");
        later.then_some(RoomFault::Hang)
    });
    first.done(&format!("{}the end", "word ".repeat(30)));
    let answer = room.shows(Kind::Final, "word").await;
    settle().await;
    assert_eq!(bridge.job_of(&answer.at()), Some(job.id));
    bridge.receive(message("u2", "go on").replying_to(answer.id)).unwrap();
    assert_eq!(runs.next().await.request.resume, Some(token("s1")));
}

#[tokio::test(start_paused = true)]
async fn the_job_of_a_known_message_counts_before_a_quoted_resume_line() {
    let (bridge, room, mut runs) = bridge(Settings::default().final_by(FinalBy::Edit));
    let job = bridge.receive(message("u1", "go")).unwrap();
    let run = runs.next().await;
    run.started("s1");
    run.done("The old session:\n\nlab resume s9\n\nis over.");
    job.report().await;
    let answer = room.shows(Kind::Final, "s9").await;
    let quoted = "The old session:\n\nlab resume s9\n\nis over.";
    let reply = message("u2", "go on").replying_to_text(answer.id.clone(), quoted);
    bridge.receive(reply).unwrap();
    assert_eq!(runs.next().await.request.resume, Some(token("s1")));
    let unknown = message("u3", "go on").replying_to_text("somewhere", quoted);
    bridge.receive(unknown).unwrap();
    assert_eq!(runs.next().await.request.resume, Some(token("s9")));
}

#[tokio::test(start_paused = true)]
async fn a_directive_against_the_session_that_the_author_names_is_refused() {
    let (lab, runs) = lab();
    let (other, others) = engine(EngineId::from_static("other"));
    let bridge = Bridge::new(Room::new(), Router::new(lab).with(other), Settings::default());
    let refused = bridge.receive(message("u1", "/other go").resume(token("s1"))).unwrap_err();
    assert!(matches!(refused, ReceiveError::Route(_)), "{refused}");
    settle().await;
    assert!(runs.is_empty() && others.is_empty());
    bridge.receive(message("u2", "/lab go").resume(token("s1"))).unwrap();
}

#[tokio::test(start_paused = true)]
async fn two_spellings_of_a_session_are_one_line() {
    let (bridge, _room, mut runs) = bridge(Settings::default());
    bridge.receive(message("u1", "go").resume(token("s1"))).unwrap();
    bridge.receive(message("u2", "go").resume(token("S1"))).unwrap();
    let first = runs.next().await;
    settle().await;
    assert!(runs.is_empty());
    first.done("one");
    assert_eq!(runs.next().await.request.resume, Some(token("s1")));
}

#[tokio::test(start_paused = true)]
async fn a_message_received_twice_is_one_job_without_a_notice() {
    let (bridge, room, mut runs) = bridge(Settings::default());
    let job = bridge.receive(message("u1", "go")).unwrap();
    let again = bridge.receive(message("u1", "go")).unwrap_err();
    assert_eq!(again, ReceiveError::Duplicate(job.id));
    let _run = runs.next().await;
    settle().await;
    assert!(runs.is_empty());
    assert!(room.messages().iter().all(|message| message.kind() != Kind::Notice));
    bridge.receive(Incoming::new(Place::new("elsewhere"), "u1", "go")).unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_press_on_a_message_that_is_not_known_is_not_called_late() {
    let (bridge, room, mut runs) = bridge(Settings::default());
    room.set_faults(|call| (call.method == RoomMethod::Send).then_some(RoomFault::Hang));
    bridge.receive(message("u1", "go")).unwrap();
    let _run = runs.next().await;
    let shown = takopi_bridge::MessageId::from("m1").at("general");
    let pressed = bridge.press(&shown, Press::Cancel, "alice");
    assert_eq!(pressed, PressOutcome::UnknownMessage);
    assert_eq!(pressed.to_string(), "unknown message; try again in a moment");
}

#[tokio::test(start_paused = true)]
async fn a_conversation_stays_where_it_began_and_says_so() {
    let (bridge, room, mut runs) = bridge(Settings::default().continuity(Continuity::Place));
    let at = |id: &str, directory: &str, line: &str| {
        let settings = takopi_core::RunSettings::new().cwd(directory);
        message(id, "go").context(RunContext::new(settings).line(line))
    };
    bridge.receive(at("u1", "/a", "ctx: a")).unwrap();
    let run = runs.next().await;
    run.started("s1");
    run.done("one");
    room.shows(Kind::Final, "one").await;
    let refused = bridge.receive(at("u2", "/b", "ctx: b")).unwrap_err();
    let said = "this conversation runs in ctx: a, not in ctx: b; begin a new conversation for that";
    assert_eq!(refused.to_string(), said);
    room.shows(Kind::Notice, said).await;
    // The same place, named again, and a reply go on there.
    bridge.receive(at("u3", "/a", "ctx: a")).unwrap();
    let run = runs.next().await;
    assert_eq!(run.request.resume, Some(token("s1")));
    run.done("two");
    bridge.receive(at("u4", "/b", "ctx: b").replying_to("u1")).unwrap();
    let run = runs.next().await;
    assert_eq!(run.request.settings.cwd.as_deref(), Some(std::path::Path::new("/a")));
}

#[tokio::test(start_paused = true)]
async fn a_message_without_a_prompt_starts_no_session_and_continues_one() {
    let (bridge, room, mut runs) = bridge(Settings::default());
    assert_eq!(bridge.receive(message("u1", "/lab")).unwrap_err(), ReceiveError::Empty);
    room.shows(Kind::Notice, "the message says nothing").await;
    bridge.receive(message("u2", "/lab\nlab resume s1")).unwrap();
    let run = runs.next().await;
    assert_eq!(
        (run.request.resume.clone(), run.request.prompt.as_str()),
        (Some(token("s1")), "continue")
    );
}

/// After a restart the bridge knows an old answer by its text alone.
#[tokio::test(start_paused = true)]
async fn answers_to_two_replies_to_an_old_answer_come_in_order() {
    let (bridge, room, mut runs) = bridge(Settings::default());
    room.set_faults(|call| call.text.contains("first answer").then_some(RoomFault::Fail));
    for id in ["u1", "u2"] {
        let reply = message(id, id).replying_to_text("old", "done\n\nlab resume s1");
        bridge.receive(reply).unwrap();
    }
    let first = runs.next().await;
    assert_eq!(first.request.prompt, "u1");
    settle().await;
    assert!(runs.is_empty(), "one at a time on a session");
    first.done("first answer");
    let second = runs.next().await;
    assert_eq!(second.request.resume, Some(token("s1")));
    second.done("second answer");
    tokio::time::sleep(Duration::from_secs(5)).await;
    assert!(room.messages().iter().all(|it| it.kind() != Kind::Final), "{:?}", room.texts());
    room.clear_faults();
    room.shows(Kind::Final, "second answer").await;
    let finals = room.messages().into_iter().filter(|it| it.kind() == Kind::Final);
    let answers: Vec<bool> = finals.map(|it| it.text().contains("first answer")).collect();
    assert_eq!(answers, [true, false]);
}
