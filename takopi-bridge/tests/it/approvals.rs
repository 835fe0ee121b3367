//! Approvals through the chat, and follow-ups into a running turn.

use std::sync::Arc;
use std::time::Duration;

use crate::support::{LAB, Run, Runs, lab, message, settle, token};
use takopi_bridge::present::{Chat, Limit};
use takopi_bridge::testing::{Room, RoomFault};
use takopi_bridge::transport::Kind;
use takopi_bridge::{
    AnswerError, Bridge, Continuity, FinalBy, Incoming, JobEnd, MessageId, Place, Press,
    PressOutcome, ReceiveError, Router, RunContext, Settings, WhileBusy,
};
use takopi_core::approvals::{Rules, accept_all};
use takopi_core::demo::{Demo, Step};
use takopi_core::runner::{
    ChangeKind, FileChange, Patch, Question, QuestionOption, Reply, UserQuestion,
};
use takopi_core::{ApprovalRequest, Decision, RunSettings};
use tokio::task::JoinHandle;
use tokio::time::Instant;

const PATIENCE: Duration = Duration::from_secs(90);

fn settings() -> Settings {
    Settings::default().final_by(FinalBy::Edit).patience(PATIENCE)
}

struct Stage {
    bridge: Bridge<Room>,
    room: Room,
    run: Run,
    runs: Runs,
}

async fn stage(settings: Settings) -> Stage {
    let (lab, mut runs) = lab();
    let room = Room::new();
    let bridge = Bridge::new(room.clone(), Router::new(lab), settings);
    bridge.receive(message("u1", "publish it")).unwrap();
    let run = runs.next().await;
    run.started("s1");
    room.shows(Kind::Progress, "working").await;
    Stage { bridge, room, run, runs }
}

fn asks(title: &str) -> ApprovalRequest {
    ApprovalRequest::new(LAB, Question::command(title), "/srv".into())
}

/// The agent asks.
fn ask(run: &Run, request: ApprovalRequest) -> JoinHandle<Reply> {
    tokio::spawn(run.request.approvals.clone().unwrap().reply(request))
}

#[tokio::test(start_paused = true)]
async fn a_request_is_a_message_with_buttons_that_shows_the_decision() {
    let stage = stage(settings()).await;
    let asked = ask(&stage.run, asks("cargo publish"));
    let question = stage.room.question().await;
    let shown = stage.room.shows(Kind::Question, "cargo publish").await;
    assert!(!shown.sent.silent, "it must notify");
    let buttons: Vec<_> = shown.sent.content.buttons.iter().map(ToString::to_string).collect();
    assert_eq!(buttons, ["accept", "accept_for_session", "decline", "cancel"]);

    let press: Press = "accept_for_session".parse().unwrap();
    assert_eq!(stage.bridge.press(&question, press, "bob"), PressOutcome::Decided);
    assert_eq!(asked.await.unwrap().to_string(), "accepted for the session by bob");
    insta::assert_snapshot!(stage.room.shows(Kind::Question, "bob").await.text(), @"
    **lab wants to run a command**  
    `cargo publish`  
    in `/srv`

    accepted for the session by bob
    ");
    let late = stage.bridge.press(&question, Press::Choose(Decision::Decline), "eve");
    assert_eq!(late, PressOutcome::AlreadyOver, "the first answer counts");
    assert_eq!(stage.room.shows(Kind::Question, "bob").await.sent.content.buttons, []);
}

#[tokio::test(start_paused = true)]
async fn a_request_without_an_answer_is_declined_visibly() {
    let stage = stage(settings()).await;
    let asked = ask(&stage.run, asks("cargo publish"));
    let begun = Instant::now();
    let reply = asked.await.unwrap();
    assert_eq!(begun.elapsed(), PATIENCE);
    assert_eq!(reply.to_string(), "declined: no answer within 1m 30s");
    let said = stage.room.shows(Kind::Question, "no answer within 1m 30s").await;
    assert_eq!(said.sent.content.buttons, []);
}

#[tokio::test(start_paused = true)]
async fn a_request_is_withdrawn_when_the_agent_takes_it_back() {
    let stage = stage(settings()).await;
    let asked = ask(&stage.run, asks("cargo publish"));
    let question = stage.room.question().await;
    asked.abort();
    stage.room.shows(Kind::Question, "withdrawn").await;
    assert!(stage.bridge.choose(&question, Decision::Accept, "bob").is_err());
}

#[tokio::test(start_paused = true)]
async fn a_request_is_withdrawn_when_its_run_ends_first() {
    let stage = stage(settings()).await;
    let asked = ask(&stage.run, asks("cargo publish"));
    stage.room.question().await;
    stage.run.done("without");
    stage.room.shows(Kind::Question, "withdrawn").await;
    assert!(!asked.await.unwrap().decision.is_yes());
    stage.bridge.drain().await;
}

#[tokio::test(start_paused = true)]
async fn many_requests_are_shown_at_once_and_answered_in_any_order() {
    let stage = stage(settings()).await;
    let first = ask(&stage.run, asks("first"));
    let first_shown = stage.room.shows(Kind::Question, "first").await;
    let second = ask(&stage.run, asks("second"));
    let second_shown = stage.room.shows(Kind::Question, "second").await;
    stage.bridge.choose(&second_shown.at(), Decision::Decline, "bob").unwrap();
    assert_eq!(second.await.unwrap().to_string(), "declined by bob");
    stage.bridge.choose(&first_shown.at(), Decision::Accept, "alice").unwrap();
    assert_eq!(first.await.unwrap().to_string(), "accepted by alice");
}

#[tokio::test(start_paused = true)]
async fn a_request_that_cannot_be_shown_is_declined() {
    let stage = stage(settings()).await;
    stage.room.set_faults(|call| (call.kind == Some(Kind::Question)).then_some(RoomFault::Hang));
    let reply = ask(&stage.run, asks("cargo publish")).await.unwrap();
    assert!(reply.to_string().starts_with("declined: the request could not be shown"), "{reply}");
}

#[tokio::test(start_paused = true)]
async fn a_question_that_takes_a_text_is_answered_by_a_reply() {
    let stage = stage(settings()).await;
    let options = ["main", "next"].map(|it| QuestionOption::default().label(it.to_owned()));
    let asked = ask(&stage.run, asks_for_text(options.to_vec()));
    let shown = stage.room.shows(Kind::Question, "main, next, or your own text").await;
    let words = message("u2", " release ").replying_to(shown.id);
    let report = stage.bridge.receive(words).unwrap().report().await;
    assert_eq!(report.end, JobEnd::Answered);
    let reply = asked.await.unwrap();
    assert_eq!(
        (reply.content["q1"].as_str(), reply.by.as_deref()),
        (Some("release"), Some("alice"))
    );
}

#[tokio::test(start_paused = true)]
async fn a_command_too_long_to_be_shown_completely_can_only_be_declined() {
    let chat = Chat::new(Limit::Chars(1000));
    let stage = stage(settings().chat(chat)).await;
    let asked = ask(&stage.run, asks(&format!("echo {} ; rm -rf /", "a ".repeat(600))));
    let question = stage.room.question().await;
    let shown = stage.room.shows(Kind::Question, "too long to be shown here completely").await;
    let buttons: Vec<_> = shown.sent.content.buttons.iter().map(ToString::to_string).collect();
    assert_eq!(buttons, ["decline", "cancel"]);
    let accept = Press::Choose(Decision::Accept);
    assert_eq!(stage.bridge.press(&question, accept, "bob"), PressOutcome::NotOffered);
    let decline = Press::Choose(Decision::Decline);
    assert_eq!(stage.bridge.press(&question, decline, "bob"), PressOutcome::Decided);
    assert_eq!(asked.await.unwrap().to_string(), "declined by bob");
}

#[tokio::test(start_paused = true)]
async fn a_diff_that_does_not_fit_is_shown_before_the_question() {
    let stage = stage(settings().chat(Chat::new(Limit::Chars(1000)))).await;
    let cwd = std::path::Path::new("/srv");
    let diff = (0..200).map(|n| format!("+line {n}\n")).collect::<Vec<_>>().concat();
    let file = FileChange::new(ChangeKind::Add, "/etc/motd", cwd).diff(diff.as_str());
    let question = Question::Patch(Patch::new([file]));
    let asked = ask(&stage.run, ApprovalRequest::new(LAB, question, cwd.to_owned()));
    let first = stage.room.shows(Kind::Question, "+line 0\n").await;
    let last = stage.room.shows(Kind::Question, "+line 199\n").await;
    let shown = stage.room.shows(Kind::Question, "the changes are in the messages above").await;
    assert!(first.sent.content.buttons.is_empty() && last.sent.content.buttons.is_empty());
    assert!(shown.sent.content.text.contains("/etc/motd (outside the working directory)"));
    stage.bridge.choose(&shown.at(), Decision::Accept, "alice").unwrap();
    assert_eq!(asked.await.unwrap().to_string(), "accepted by alice");
}

fn asks_for_text(options: Vec<QuestionOption>) -> ApprovalRequest {
    let question = UserQuestion::default().id("q1".to_owned()).question("Which branch?".to_owned());
    let question = Question::Questions(vec![question.options(options)]);
    ApprovalRequest::new(LAB, question, "/srv".into())
}

#[tokio::test(start_paused = true)]
async fn a_question_that_takes_a_text_is_not_answered_without_one() {
    let stage = stage(settings()).await;
    let asked = ask(&stage.run, asks_for_text(Vec::new()));
    let question = stage.room.question().await;
    let accept = Press::Choose(Decision::Accept);
    assert_eq!(stage.bridge.press(&question, accept, "bob"), PressOutcome::NotOffered);
    // In a chat without replies the author knows which question is meant.
    stage.bridge.answer(&question, "main", "bob").unwrap();
    let reply = asked.await.unwrap();
    assert_eq!((reply.content["q1"].as_str(), reply.decision), (Some("main"), Decision::Accept));
    assert_eq!(stage.bridge.answer(&question, "next", "eve"), Err(AnswerError::NotPending));
}

#[tokio::test(start_paused = true)]
async fn a_question_too_long_to_be_shown_completely_takes_no_text() {
    for continuity in [Continuity::Reply, Continuity::Place] {
        let chat = Chat::new(Limit::Chars(1000));
        let stage = stage(settings().chat(chat).continuity(continuity)).await;
        let option = QuestionOption::default().label("main".to_owned());
        let long = option.clone().description(Some("and all of the others ".repeat(100)));
        let asked = ask(&stage.run, asks_for_text(vec![option, long]));
        let question = stage.room.question().await;
        let shown = stage.room.shows(Kind::Question, "it can only be declined").await;
        assert!(!shown.text().contains("or your own text"), "{shown:?}");
        let answered = stage.bridge.answer(&question, "main", "bob");
        assert_eq!(answered, Err(AnswerError::NotOffered));
        let reply = Reply::from(Decision::Accept).with("q1", "main");
        let chosen = stage.bridge.choose(&question, reply, "bob");
        assert_eq!(chosen, Err(AnswerError::NotOffered));
        let message = match continuity {
            Continuity::Reply => message("u2", "main").replying_to(shown.id),
            Continuity::Place => message("u2", "main"),
        };
        let job = stage.bridge.receive(message).unwrap();
        stage.room.shows(Kind::Queued, "queued behind 1").await;
        assert!(!asked.is_finished());
        stage.bridge.choose(&question, Decision::Decline, "bob").unwrap();
        assert_eq!(asked.await.unwrap().to_string(), "declined by bob");
        drop(job);
    }
}

#[tokio::test(start_paused = true)]
async fn rules_decide_before_people_are_asked() {
    let settings =
        settings().approvals(|people| Arc::new(Rules::new().command("ls").otherwise(people)));
    let stage = stage(settings).await;
    assert!(ask(&stage.run, asks("ls")).await.unwrap().decision.is_yes());
    let _asked = ask(&stage.run, asks("rm x"));
    let question = stage.room.question().await;
    assert_eq!(question, stage.room.shows(Kind::Question, "rm x").await.at());
}

#[tokio::test(start_paused = true)]
async fn a_follow_up_that_the_turn_does_not_accept_waits_in_the_queue() {
    let (lab, mut runs) = lab();
    let room = Room::new();
    let settings = settings().while_busy(WhileBusy::Steer);
    let bridge = Bridge::new(room.clone(), Router::new(lab), settings);
    let first = bridge.receive(message("u1", "write the parser")).unwrap();
    let mut run = runs.next().await;
    run.started("s1");
    settle().await;
    let second = bridge.receive(message("u2", "in Rust").replying_to("u1")).unwrap();
    settle().await;
    run.rejects_steering();
    room.shows(Kind::Queued, "queued behind 1").await;
    run.done("one");
    let run = runs.next().await;
    assert_eq!(
        (run.request.prompt.as_str(), run.request.resume.clone()),
        ("in Rust", Some(token("s1")))
    );
    run.done("two");
    assert!(matches!(first.report().await.end, JobEnd::Ran(_)));
    assert!(matches!(second.report().await.end, JobEnd::Ran(_)));
}

#[tokio::test(start_paused = true)]
async fn a_follow_up_with_an_image_is_a_job_of_its_own() {
    let (lab, mut runs) = lab();
    let room = Room::new();
    let settings = settings().while_busy(WhileBusy::Steer);
    let bridge = Bridge::new(room.clone(), Router::new(lab), settings);
    bridge.receive(message("u1", "write the parser")).unwrap();
    let run = runs.next().await;
    run.started("s1");
    settle().await;
    let photo = RunContext::new(RunSettings::new().image("/tmp/photo.png"));
    bridge.receive(message("u2", "like this").replying_to("u1").context(photo)).unwrap();
    let waits = room.shows(Kind::Queued, "").await;
    assert!(waits.text().contains("queued behind 1"), "{waits:?}");
    run.done("one");
    let second = runs.next().await.request;
    assert_eq!(second.resume, Some(token("s1")));
    assert_eq!(second.settings.images, [std::path::PathBuf::from("/tmp/photo.png")]);
}

#[tokio::test]
async fn a_follow_up_that_waits_for_the_turn_is_visible_and_can_be_cancelled() {
    let script = [
        Step::Ask { id: "ask".to_owned(), question: Question::command("wait") },
        Step::Pause(Duration::from_millis(1)),
        Step::Say("done".to_owned()),
    ];
    let demo = Arc::new(Demo::scripted(script).runner());
    let room = Room::new();
    let settings = settings().while_busy(WhileBusy::Steer);
    let bridge = Bridge::new(room.clone(), Router::new(demo), settings);
    let first = bridge.receive(message("u1", "begin")).unwrap();
    let question = room.question().await;
    let second = bridge.receive(message("u2", "drop the database").replying_to("u1")).unwrap();
    let waits = room.shows(Kind::Queued, "waiting to be added to the running turn").await;
    assert_eq!(waits.sent.content.buttons, [Press::Cancel]);
    // The room shows the message before the bridge has its id.
    settle().await;
    let pressed = bridge.press(&waits.at(), Press::Cancel, "alice");
    assert_eq!(pressed.to_string(), format!("cancelled {}, which was still queued", second.id));
    assert_eq!(second.report().await.end, JobEnd::CancelledInQueue);
    room.shows(Kind::Final, "cancelled by alice").await;
    bridge.choose(&question, Decision::Accept, "alice").unwrap();
    let JobEnd::Ran(completed) = first.report().await.end else { panic!("it did not run") };
    assert_eq!(completed.answer, "done");
}

#[tokio::test]
async fn the_demo_engine_adds_a_follow_up_to_its_turn() {
    let script = [
        Step::Ask { id: "ask".to_owned(), question: Question::command("wait") },
        Step::Pause(Duration::from_millis(1)),
        Step::Say("done".to_owned()),
    ];
    let demo = Arc::new(Demo::scripted(script).runner());
    let room = Room::new();
    let bridge = Bridge::new(room.clone(), Router::new(demo), settings());
    let first = bridge.receive(message("u1", "begin")).unwrap();
    let question = room.question().await;
    let steer = message("u2", "be quick").replying_to("u1").while_busy(WhileBusy::Steer);
    let second = bridge.receive(steer).unwrap();
    // Until it is sent; the demo reads it in its next pause.
    settle().await;
    bridge.choose(&question, Decision::Accept, "alice").unwrap();
    assert_eq!(second.report().await.end, JobEnd::Steered(first.id));
    room.shows(Kind::Notice, "added to the running turn").await;
    let JobEnd::Ran(completed) = first.report().await.end else { panic!("it did not run") };
    assert_eq!(completed.answer, "done\nYou also said: be quick");
    let steered = MessageId::from("u2").at("general");
    assert_eq!(bridge.job_of(&steered), bridge.job_of(&question), "it is part of that job now");
    bridge.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn the_settings_may_replace_the_handler_that_asks_people() {
    let stage = stage(settings().approvals(|_| Arc::new(accept_all()))).await;
    assert!(ask(&stage.run, asks("rm x")).await.unwrap().decision.is_yes());
    assert!(stage.room.messages().iter().all(|message| message.kind() != Kind::Question));
}

#[tokio::test(start_paused = true)]
async fn where_a_place_is_one_conversation_the_next_message_answers_a_question() {
    let stage = stage(settings().continuity(Continuity::Place)).await;
    let options = ["main", "next"].map(|it| QuestionOption::default().label(it.to_owned()));
    let asked = ask(&stage.run, asks_for_text(options.to_vec()));
    stage.room.shows(Kind::Question, "answer with your next message: main, next, or").await;
    let elsewhere = Incoming::new(Place::new("another"), "u2", "main").by("eve");
    let elsewhere = stage.bridge.receive(elsewhere).unwrap();
    assert!(!asked.is_finished());
    drop(elsewhere);
    let report = stage.bridge.receive(message("u3", "2")).unwrap().report().await;
    assert_eq!(report.end, JobEnd::Answered);
    assert_eq!(asked.await.unwrap().content["q1"].as_str(), Some("next"));
    // Nothing is asked any more: this is a message.
    let job = stage.bridge.receive(message("u4", "go on")).unwrap();
    stage.room.shows(Kind::Queued, "queued behind 1").await;
    drop(job);
}

#[tokio::test(start_paused = true)]
async fn a_message_answers_only_the_question_that_it_may_answer() {
    let stage = stage(settings().continuity(Continuity::Place)).await;
    let _command = ask(&stage.run, asks("ls"));
    let shown = stage.room.question().await;
    let asked = ask(&stage.run, asks_for_text(Vec::new()));
    let question = stage.room.shows(Kind::Question, "answer with your next message").await;
    settle().await;
    let prompt = message("u2", "main").may_answer(shown.message);
    let _job = stage.bridge.receive(prompt).unwrap();
    settle().await;
    assert!(!asked.is_finished(), "it is a prompt");
    stage.bridge.receive(message("u3", "next").may_answer(question.id)).unwrap();
    assert_eq!(asked.await.unwrap().content["q1"].as_str(), Some("next"));
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_is_delivered_twice_answers_one_question() {
    let stage = stage(settings().continuity(Continuity::Place)).await;
    let first = ask(&stage.run, asks_for_text(Vec::new()));
    stage.room.question().await;
    settle().await;
    tokio::time::advance(Duration::from_millis(1)).await;
    let second = ask(&stage.run, asks_for_text(Vec::new()));
    while stage.room.messages().iter().filter(|it| it.kind() == Kind::Question).count() < 2 {
        settle().await;
    }
    settle().await;
    let answered = stage.bridge.receive(message("u2", "main")).unwrap();
    assert_eq!(answered.id, stage.bridge.job_of(&MessageId::from("u1").at("general")).unwrap());
    let again = stage.bridge.receive(message("u2", "main")).unwrap_err();
    assert_eq!(again, ReceiveError::Duplicate(answered.id));
    assert_eq!(first.await.unwrap().content["q1"].as_str(), Some("main"));
    settle().await;
    assert!(!second.is_finished());
}

#[tokio::test(start_paused = true)]
async fn a_message_of_a_new_conversation_answers_no_question_of_the_one_before() {
    let mut stage = stage(settings().continuity(Continuity::Place)).await;
    let asked = ask(&stage.run, asks_for_text(Vec::new()));
    let question = stage.room.question().await;
    stage.bridge.forget(&Place::new("general"));
    stage.bridge.receive(message("u2", "something else")).unwrap();
    settle().await;
    assert!(!asked.is_finished(), "it is a prompt");
    let new = stage.runs.next().await;
    assert_eq!((new.request.prompt.as_str(), &new.request.resume), ("something else", &None));
    // A question of the new conversation is answered before the older one.
    new.started("s2");
    let newer = ask(&new, asks_for_text(Vec::new()));
    let two =
        |room: &Room| room.calls().iter().filter(|it| it.kind == Some(Kind::Question)).count();
    while two(&stage.room) < 2 {
        settle().await;
    }
    settle().await;
    stage.bridge.receive(message("u3", "next")).unwrap();
    assert_eq!(newer.await.unwrap().content["q1"].as_str(), Some("next"));
    stage.bridge.receive(message("u4", "main").replying_to(question.message)).unwrap();
    assert_eq!(asked.await.unwrap().content["q1"].as_str(), Some("main"));
}
