//! What one chat costs the others: nothing.

use serde_json::json;
use takopi_bridge::Settings;
use takopi_tests::telegram::Room;

use crate::lab::{ALICE, BOB, GROUP, Lab, MALLORY};

const CHAT: Room = Room { chat: ALICE, topic: None };
const OTHER: Room = Room { chat: BOB, topic: None };

/// A lab whose transcription waits until the file `open` is there, and a voice note of Alice.
fn slow_voice() -> (Lab, std::path::PathBuf) {
    let lab = Lab::new();
    let script = lab.directory.path().join("transcribe");
    let open = lab.directory.path().join("open");
    let body = format!("while [ ! -e {} ]; do sleep 0.01; done; cat \"$1\"", open.display());
    std::fs::write(&script, body).unwrap();
    let lab = lab.with("transcribe", format!("sh {} {{file}}", script.display()));
    let id = lab.fake.add_file("x", b"spoken words");
    lab.fake.receive(CHAT, ALICE, json!({ "voice": { "file_id": id } }));
    (lab, open)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_transcription_delays_its_own_chat_only_and_keeps_the_order_there() {
    let (lab, open) = slow_voice();
    lab.fake.write(CHAT, ALICE, "behind it");
    let bot = lab.bot().await;
    lab.fake.write(OTHER, BOB, "one");
    lab.fake.shows(OTHER, "You said: one").await;
    lab.fake.write(OTHER, BOB, "two");
    lab.fake.shows(OTHER, "You said: two").await;
    assert!(lab.fake.messages(ALICE).iter().all(|it| !it.by_bot), "they wait");
    std::fs::write(open, "").unwrap();
    lab.fake.shows(CHAT, "You said: spoken words").await;
    lab.fake.shows(CHAT, "You said: behind it").await;
    bot.stop().await;
    let answers = |chat: i64, text: &str| {
        lab.fake.messages(chat).iter().filter(|it| it.by_bot && it.text.contains(text)).count()
    };
    for (chat, text) in [(ALICE, "spoken words"), (ALICE, "behind it"), (BOB, "one"), (BOB, "two")]
    {
        assert_eq!(answers(chat, &format!("You said: {text}")), 1, "{text}: answered once");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_message_that_is_being_prepared_during_a_crash_is_handled_by_the_next_process() {
    let (lab, open) = slow_voice();
    let bot = lab.bot().await;
    lab.fake.write(OTHER, BOB, "one");
    lab.fake.shows(OTHER, "You said: one").await;
    bot.crash().await;
    std::fs::write(open, "").unwrap();
    let bot = lab.bot().await;
    lab.fake.shows(CHAT, "You said: spoken words").await;
    bot.stop().await;
}

/// The service delivers 100 updates at once, beginning with the first that is not confirmed.
#[tokio::test(flavor = "multi_thread")]
async fn a_message_that_takes_long_stops_no_other_chat_however_many_come_behind_it() {
    let (lab, open) = slow_voice();
    let bot = lab.bot().await;
    for number in 0..150 {
        lab.fake.write(Room::chat(MALLORY), MALLORY, &format!("message {number}"));
    }
    lab.fake.write(OTHER, BOB, "hello");
    lab.fake.shows(OTHER, "You said: hello").await;
    assert!(lab.fake.messages(ALICE).iter().all(|it| !it.by_bot), "it waits");
    bot.crash().await;
    // The service has forgotten the voice note; takopi has not.
    assert!(lab.fake.pending() < 100);
    std::fs::write(open, "").unwrap();
    let bot = lab.bot().await;
    lab.fake.shows(CHAT, "You said: spoken words").await;
    bot.stop().await;
    assert!(lab.store().read(|stored| stored.kept.is_empty()));
}

#[tokio::test]
async fn a_message_for_which_there_is_no_room_in_its_chat_is_refused_visibly() {
    let (lab, _open) = slow_voice();
    for number in 0..110 {
        lab.fake.write(CHAT, ALICE, &format!("message {number}"));
    }
    let bot = lab.bot().await;
    lab.fake.shows(CHAT, "too many messages wait in this chat").await;
    bot.crash().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_handled_behind_a_slow_message_is_not_handled_again_after_a_restart() {
    for crashes in [true, false] {
        let (lab, open) = slow_voice();
        let bot = lab.bot().await;
        lab.fake.write(OTHER, BOB, "one");
        lab.fake.shows(OTHER, "You said: one").await;
        if crashes {
            bot.crash().await;
        } else {
            bot.stop().await;
        }
        std::fs::write(open, "").unwrap();
        let bot = lab.bot().await;
        lab.fake.shows(CHAT, "You said: spoken words").await;
        // Behind it: what the service delivered before was handled.
        lab.fake.write(OTHER, BOB, "two");
        lab.fake.shows(OTHER, "You said: two").await;
        bot.stop().await;
        let answers = lab.fake.messages(BOB).into_iter();
        assert_eq!(answers.filter(|it| it.text.contains("You said: one")).count(), 1, "{crashes}");
    }
}

#[tokio::test]
async fn notices_of_a_group_delay_no_other_chat() {
    let lab = Lab::new();
    let settings =
        Settings::default().approvals(|_| std::sync::Arc::new(takopi_core::approvals::deny()));
    let mut parts = lab.parts(lab.demo(), settings);
    parts.limits.group_minute = 1;
    let bot = lab.run(parts).await;
    for _ in 0..40 {
        lab.fake.write(Room::chat(GROUP), ALICE, "/help");
    }
    lab.fake.write(CHAT, ALICE, "hello");
    lab.fake.shows(CHAT, "You said: hello").await;
    let told = lab.fake.messages(GROUP).into_iter().filter(|it| it.by_bot).count();
    assert!(told <= 1, "the others wait for their minute: {told}");
    bot.crash().await;
}
