//! The promises of the room.

use futures::FutureExt as _;
use serde_json::Value;
use takopi_core::{Action, ActionEvent, ActionKind, Completed, Phase};

use super::super::watchers::{BYTES, MOST};
use super::*;

fn content(text: &str, live: bool) -> Content {
    let content = Content::new(if live { Kind::Question } else { Kind::Notice }, text);
    if live { content.buttons([Press::Cancel]) } else { content }
}

async fn send(room: &Room, chat: &str, text: &str, live: bool) -> MessageRef {
    let message = Outgoing::new(Place::new(chat), content(text, live));
    room.send(message).await.unwrap().at(chat)
}

fn start(room: &Room, title: &str) -> String {
    room.start(title, Choice::default()).unwrap()
}

fn open(room: &Room, line: &str) -> String {
    let stored =
        Stored { title: "stored".to_owned(), resume_line: line.to_owned(), messages: Vec::new() };
    room.open(stored, Choice::default()).unwrap()
}

fn read(change: &str) -> Value {
    serde_json::from_str(change).unwrap()
}

fn watch(room: &Room) -> Watch {
    room.watch(CancellationToken::new())
}

fn snapshot(room: &Room) -> Value {
    read(&watch(room).snapshot)
}

/// The change that waits, if there is one.
fn next(changes: &mut Changes) -> Option<Value> {
    changes.next().now_or_never().map(|change| read(&change.unwrap()))
}

fn piece(text: &str) -> TakopiEvent {
    let action = Action::new("m", ActionKind::Answer, "");
    ActionEvent::new("lab", action, Phase::Updated).message(text).into()
}

#[tokio::test]
async fn a_browser_gets_a_snapshot_and_then_every_change_in_order() {
    let room = Room::new(None);
    let chat = start(&room, "say hi\nplease");
    room.add_user_message(&chat, "say hi\nplease").unwrap();
    let Watch { snapshot, mut changes } = watch(&room);
    let all = read(&snapshot);
    assert_eq!(all["chats"][0]["title"], "say hi please");
    assert_eq!(all["chats"][0]["messages"][0]["text"], "say hi\nplease");

    let message = send(&room, &chat, "working", true).await;
    room.edit(message.clone(), content("**hi**", false)).await.unwrap();
    room.edit(message.clone(), content("**hi**", false)).await.unwrap();
    room.delete(message.clone()).await.unwrap();
    let kinds = ["message", "message", "gone"].map(|kind| {
        let change = next(&mut changes).unwrap();
        assert_eq!((&change["type"], &change["chat"]), (&kind.into(), &chat.clone().into()));
        change["message"]["html"].as_str().unwrap_or_default().to_owned()
    });
    assert_eq!(
        kinds,
        ["<p>working</p>\n", "<p><strong>hi</strong></p>\n", ""],
        "and nothing twice"
    );
    assert!(matches!(room.edit(message, content("late", false)).await, Err(TransportError::Gone)));
    assert_eq!(next(&mut changes), None);
}

#[tokio::test(start_paused = true)]
async fn an_answer_is_published_as_it_grows_and_only_what_is_new() {
    let room = Room::new(None);
    let chat = start(&room, "hello");
    let place = Place::new(&chat);
    let job = takopi_bridge::testing::job(1);
    // The first piece comes before the message.
    room.event(&place, job, &piece("One.\n\nTwo\n"));
    let message = Content::new(Kind::Progress, "working").job(job).buttons([Press::Cancel]);
    let id = room.send(Outgoing::new(place.clone(), message)).await.unwrap().at(&chat);
    let mut changes = watch(&room).changes;
    let all = snapshot(&room);
    assert_eq!(all["chats"][0]["messages"][0]["turn"]["answer"][0], "<p>One.</p>\n");
    for text in ["and", " three", " and four"] {
        room.event(&place, job, &piece(text));
    }
    tokio::time::sleep(std::time::Duration::from_secs(1)).await;
    let change = next(&mut changes).unwrap();
    assert_eq!((&change["type"], &change["from"]), (&"answer".into(), &1.into()));
    assert_eq!(change["blocks"], serde_json::json!(["<p>Two<br />\nand three and four</p>\n"]));
    assert_eq!(next(&mut changes), None, "pieces that come at once are published once");

    room.event(&place, job, &Completed::success("lab", "One.\n\nTwo\nand three and four").into());
    room.edit(id, Content::new(Kind::Final, "done").job(job)).await.unwrap();
    let change = next(&mut changes).unwrap();
    let turn = &change["message"]["turn"];
    assert_eq!((&turn["outcome"], turn["answer"].as_array().unwrap().len()), (&"done".into(), 2));
}

#[tokio::test]
async fn of_many_steps_each_is_published_alone() {
    let room = Room::new(None);
    let (chat, job) = (start(&room, "hello"), takopi_bridge::testing::job(1));
    let place = Place::new(&chat);
    let message = Content::new(Kind::Progress, "working").job(job).buttons([Press::Cancel]);
    room.send(Outgoing::new(place.clone(), message)).await.unwrap();
    let mut changes = watch(&room).changes;
    for number in 0..300 {
        let action = Action::new(number.to_string(), ActionKind::Command, format!("c{number}"));
        let action = action.with("output_tail", "x".repeat(8 << 10));
        room.event(&place, job, &ActionEvent::new("lab", action, Phase::Completed).ok(true).into());
        let step = changes.next().await.unwrap();
        assert!(step.len() < 10 << 10, "{} bytes", step.len());
        let step = read(&step);
        assert_eq!(
            (&step["type"], &step["step"]["title"]),
            (&"step".into(), &format!("c{number}").into())
        );
        assert_eq!(step["omitted"], (number + 1_usize).saturating_sub(200));
    }
    let all = snapshot(&room);
    let turn = &all["chats"][0]["messages"][0]["turn"];
    assert_eq!((&turn["omitted"], &turn["steps"][0]["title"]), (&100.into(), &"c100".into()));
}

#[tokio::test]
async fn a_session_that_is_not_confirmed_has_no_resume_line() {
    let room = Room::new(None);
    let (chat, job) = (start(&room, "hi"), takopi_bridge::testing::job(1));
    let working = || {
        let line = "`codex resume 0199`";
        Content::new(Kind::Progress, format!("working\n\n{line}")).job(job).resume_line(line)
    };
    let message = Outgoing::new(Place::new(chat.as_str()), working());
    let message = room.send(message).await.unwrap().at(&chat);
    assert_eq!(snapshot(&room)["chats"][0]["resume"], Value::Null);
    let token = takopi_core::ResumeToken::new("codex", "0199");
    room.event(&Place::new(chat.as_str()), job, &takopi_core::Started::new(token).into());
    room.edit(message, working()).await.unwrap();
    assert_eq!(snapshot(&room)["chats"][0]["resume"], "codex resume 0199");
}

#[tokio::test]
async fn the_resume_line_is_shown_with_the_conversation_and_not_in_the_message() {
    let room = Room::new(None);
    let chat = start(&room, "hello");
    let line = "`codex resume 0199`";
    let mut last = content(&format!("done\n\n{line}"), false);
    last.resume_line = Some(line.to_owned());
    room.send(Outgoing::new(Place::new(&chat), last)).await.unwrap();
    let all = snapshot(&room);
    let shown = &all["chats"][0];
    assert_eq!(shown["resume"], "codex resume 0199");
    assert_eq!(shown["messages"][0]["html"], "<p>done</p>\n");
    let added = room.add_user_message(&chat, "go on").unwrap();
    assert_eq!(added.resume_line.as_deref(), Some("codex resume 0199"));
    // The conversation of that session is open already.
    assert_eq!(open(&room, "codex resume 0199"), chat);
    assert_ne!(open(&room, "codex resume 0200"), chat);
}

#[tokio::test]
async fn a_browser_that_does_not_read_is_disconnected_and_only_so_much_waits_for_it() {
    for (count, text) in [(2 * MOST, "short".to_owned()), (20, "x".repeat(1 << 20))] {
        let room = Room::new(None);
        let chat = start(&room, "hello");
        let (closing, reading) = (CancellationToken::new(), CancellationToken::new());
        let mut changes = room.watch(closing.clone()).changes;
        let mut others = room.watch(reading.clone()).changes;
        for _ in 0..count {
            send(&room, &chat, &text, true).await;
            assert_eq!(read(&others.next().await.unwrap())["type"], "message");
        }
        assert!(closing.is_cancelled() && !reading.is_cancelled(), "{count}");
        assert_eq!(room.watchers(), 1);
        let (mut waited, mut bytes) = (0, 0);
        while let Some(change) = changes.next().await {
            (waited, bytes) = (waited + 1, bytes + change.len());
        }
        assert!(waited <= MOST && bytes <= BYTES, "{waited} changes, {bytes} bytes");
        let all = snapshot(&room);
        let last = all["chats"][0]["messages"].as_array().unwrap().last().unwrap();
        assert!(last["html"].as_str().unwrap().contains(&text));
    }
}

#[tokio::test]
async fn the_oldest_messages_are_removed_first_but_none_that_is_running() {
    let room = Room::new(None);
    let chat = start(&room, "hello");
    let running = send(&room, &chat, "running", true).await;
    for number in 0..MOST_MESSAGES {
        send(&room, &chat, &format!("done {number}"), false).await;
    }
    let all = snapshot(&room);
    let shown = all["chats"][0]["messages"].as_array().unwrap();
    assert_eq!(shown.len(), MOST_MESSAGES);
    assert_eq!(shown[0]["id"], running.message.as_str());
    assert_eq!(shown[1]["html"], "<p>done 1</p>\n");

    let long = "x".repeat(MOST_BYTES);
    send(&room, &chat, &long, false).await;
    let all = snapshot(&room);
    assert_eq!(all["chats"][0]["messages"].as_array().unwrap().len(), 2);
}

#[tokio::test]
async fn the_oldest_idle_conversation_is_closed_first() {
    let room = Room::new(None);
    let busy = start(&room, "busy");
    send(&room, &busy, "running", true).await;
    let idle = start(&room, "idle");
    send(&room, &idle, "done", false).await;
    for _ in 2..=MOST_CHATS {
        let more = start(&room, "more");
        send(&room, &more, "done", false).await;
    }
    assert!(room.add_user_message(&busy, "hello?").is_some());
    assert!(room.add_user_message(&idle, "hello?").is_none());
}

#[tokio::test]
async fn a_new_conversation_is_opened_though_all_others_run() {
    let room = Room::new(None);
    for _ in 0..MOST_CHATS {
        let busy = start(&room, "busy");
        send(&room, &busy, "running", true).await;
    }
    let new = start(&room, "new");
    let _pending = room.add_user_message(&new, "hello").unwrap();
    // It waits for the bridge, and is not closed for another one.
    let other = start(&room, "other");
    let _pending_too = room.add_user_message(&other, "hello").unwrap();
    assert!(room.add_user_message(&new, "hello?").is_some());
    while room.start("more", Choice::default()).is_some() {}
    assert_eq!(snapshot(&room)["chats"].as_array().unwrap().len(), MOST_BUSY);
}

/// A message that answers a question of the agent gets no answer of its own.
#[tokio::test]
async fn a_conversation_is_idle_when_the_bridge_is_done_with_its_last_message() {
    let room = Room::new(None);
    let chats: Vec<String> = (0..MOST_CHATS).map(|_| start(&room, "asked")).collect();
    for chat in &chats {
        send(&room, chat, "which color?", false).await;
        room.add_user_message(chat, "blue").unwrap();
    }
    let _pending = room.add_user_message(&chats[0], "and now?").unwrap();
    let new = start(&room, "new");
    let all = snapshot(&room);
    let ids: Vec<&Value> = all["chats"].as_array().unwrap().iter().map(|it| &it["id"]).collect();
    let expected: Vec<&String> = chats[..1].iter().chain(&chats[2..]).chain([&new]).collect();
    assert_eq!(ids, expected);
}

#[tokio::test]
async fn what_is_sent_to_a_closed_conversation_is_dropped() {
    let room = Room::new(None);
    let chat = start(&room, "hello");
    let message = send(&room, &chat, "working", true).await;
    assert!(room.rename(&chat, "a better\nname"));
    assert_eq!(snapshot(&room)["chats"][0]["title"], "a better name");
    room.close(&chat);
    room.edit(message, content("done", false)).await.unwrap();
    send(&room, &chat, "more", false).await;
    assert!(!room.rename(&chat, "x") && room.add_user_message(&chat, "hello?").is_none());
    assert_eq!(snapshot(&room)["chats"], serde_json::json!([]));
}
