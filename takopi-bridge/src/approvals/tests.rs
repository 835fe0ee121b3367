use std::future::poll_fn;
use std::path::Path;

use takopi_core::approvals::channel;
use takopi_core::runner::{ChangeKind, FileChange, Patch, Question};
use takopi_core::{ApprovalHandler as _, ApprovalRequest};

use super::*;
use crate::handler::HandlerOptions;
use crate::testing::{Room, RoomFault};
use crate::transport::MessageId;

#[tokio::test(start_paused = true)]
async fn what_happened_before_a_request_is_shown_before_it() {
    let room = Room::new();
    let handler = Handler::new(room.clone(), HandlerOptions::default());
    let approvals = Approvals::new(&handler, Duration::from_secs(90), Continuity::Reply);
    let (people, requests) = channel(4);
    let request = ApprovalRequest::new("lab".into(), Question::command("ls"), "/srv".into());
    let (target, over) = (ReplyTarget::new(Place::new("general")), CancellationToken::new());
    let asking = async { people.reply(request).await };
    tokio::pin!(asking);
    let (mut arrived, mut shown_after) = (false, None);
    // A run that emits an event and asks right after its events were looked at.
    let run = poll_fn(|context| {
        if arrived && shown_after.is_none() {
            shown_after = Some(room.calls().len());
        }
        arrived = true;
        asking.as_mut().poll(context).map(drop)
    });
    let serve = async {
        let asked = |message: MessageRef| {
            approvals.choose(&message, Reply::from(Decision::Decline)).unwrap();
        };
        approvals.serve(requests, &target, &over, asked).await;
    };
    let ends = async {
        run.await;
        over.cancel();
    };
    tokio::join!(biased; ends, serve);
    assert_eq!(shown_after, Some(0), "the event was seen before anything was sent");
    assert!(!room.calls().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_request_that_is_withdrawn_while_it_is_sent_keeps_no_buttons() {
    let room = Room::new();
    room.set_faults(|call| {
        (call.number == 1).then_some(RoomFault::RateLimit(Duration::from_secs(1)))
    });
    let handler = Handler::new(room.clone(), HandlerOptions::default());
    let approvals = Approvals::new(&handler, Duration::from_secs(90), Continuity::Reply);
    let (people, requests) = channel(4);
    let request = ApprovalRequest::new("lab".into(), Question::command("ls"), "/srv".into());
    let (target, over) = (ReplyTarget::new(Place::new("general")), CancellationToken::new());
    let ends = async {
        while room.calls().is_empty() {
            yield_now().await;
        }
        over.cancel();
    };
    let serve = approvals.serve(requests, &target, &over, |_| {});
    tokio::join!(serve, ends, async { drop(people.reply(request).await) });
    let message = room.messages().remove(0);
    assert!(message.text().ends_with(WITHDRAWN), "{message:?}");
    assert!(message.sent.content.buttons.is_empty(), "{message:?}");
}

#[tokio::test(start_paused = true)]
async fn the_diffs_of_a_request_are_sent_right_before_it() {
    let room = Room::new();
    // Each call takes long enough for all others to be made.
    room.set_faults(|call| {
        (call.number % 2 == 1).then_some(RoomFault::RateLimit(Duration::from_secs(1)))
    });
    let handler = Handler::new(room.clone(), HandlerOptions::default());
    let approvals = Approvals::new(&handler, Duration::from_secs(90), Continuity::Reply);
    let (people, requests) = channel(4);
    let asks = |name: &str| {
        let file = FileChange::new(ChangeKind::Update, name, Path::new("/srv"));
        let diff = format!("{name}\n").repeat(1500);
        let patch = Patch::new(vec![file.diff(diff.as_str())]);
        ApprovalRequest::new("lab".into(), Question::Patch(patch), "/srv".into())
    };
    let (target, over) = (ReplyTarget::new(Place::new("general")), CancellationToken::new());
    let both = async {
        tokio::join!(people.reply(asks("one")), people.reply(asks("two")));
    };
    let decide = |message: MessageRef| {
        approvals.choose(&message, Reply::from(Decision::Decline)).unwrap();
    };
    let serve = approvals.serve(requests, &target, &over, decide);
    let ends = async {
        both.await;
        over.cancel();
    };
    tokio::join!(ends, serve);
    let messages = room.messages();
    let of: Vec<&str> =
        messages.iter().map(|it| if it.text().contains("one") { "one" } else { "two" }).collect();
    assert!(of.len() > 3, "{of:?}");
    assert_eq!(of.iter().filter(|it| **it == "one").count(), of.len() / 2);
    assert!(of.is_sorted() || of.is_sorted_by(|a, b| a >= b), "{of:?}");
    assert!(approvals.turns.lock().unwrap().len() < 2, "{:?}", approvals.turns);
}

#[test]
fn an_answer_that_comes_before_the_message_is_confirmed_counts() {
    let handler = Handler::new(Room::new(), HandlerOptions::default());
    let approvals = Approvals::new(&handler, Duration::from_secs(90), Continuity::Reply);
    let message = |id: &str| MessageId::from(id.to_owned()).at("general");
    let waiting = |reply| Waiting {
        reply,
        offered: vec![Decision::Accept],
        questions: Vec::new(),
        place: Place::new("general"),
        since: Instant::now(),
    };
    let early =
        |id: &str, decision: Decision| approvals.choose_early(&message(id), Reply::from(decision));
    assert_eq!(early("1", Decision::Accept), Err(AnswerError::NotPending), "nothing is sent");
    let sending = Sending::new(&approvals);
    assert_eq!(early("1", Decision::Accept), Ok(()));
    assert_eq!(early("1", Decision::Decline), Ok(()));
    let known = approvals.choose(&message("0"), Decision::Accept);
    assert_eq!(known, Err(AnswerError::NotPending), "a known message is not on its way");
    let (reply, mut answer) = oneshot::channel();
    approvals.open().insert(&message("1"), waiting(reply));
    assert_eq!(answer.try_recv().unwrap().decision, Decision::Accept, "the first counts");
    let (reply, mut answer) = oneshot::channel();
    approvals.open().insert(&message("2"), waiting(reply));
    assert!(answer.try_recv().is_err(), "it was for another message");
    drop(sending);
    assert!(approvals.open().early.is_empty());
}

#[tokio::test(start_paused = true)]
async fn requests_are_declined_and_forgotten_when_serve_is_dropped() {
    let room = Room::new();
    let handler = Handler::new(room.clone(), HandlerOptions::default());
    let approvals = Approvals::new(&handler, Duration::from_secs(90), Continuity::Reply);
    let (people, requests) = channel(4);
    let request = ApprovalRequest::new("lab".into(), Question::command("ls"), "/srv".into());
    let asked = tokio::spawn(async move { people.reply(request).await });
    let served = approvals.clone();
    let serve = tokio::spawn(async move {
        let target = ReplyTarget::new(Place::new("general"));
        served.serve(requests, &target, &CancellationToken::new(), |_| {}).await;
    });
    let question = room.question().await;
    serve.abort();
    assert!(!asked.await.unwrap().decision.is_yes());
    assert!(approvals.open().waiting.is_empty(), "no entry is left");
    let chosen = approvals.choose(&question, Reply::from(Decision::Accept));
    assert_eq!(chosen, Err(AnswerError::NotPending));
}
