//! What a restart keeps.

use takopi_tests::telegram::Room;

use crate::lab::{ALICE, Lab};

const CHAT: Room = Room { chat: ALICE, topic: None };

#[tokio::test(flavor = "multi_thread")]
async fn a_run_that_a_crash_cut_short_says_so_and_its_session_goes_on() {
    let lab = Lab::new();
    // It waits for an approval that nobody gives.
    let bot = lab.run(lab.parts(lab.demo(), takopi_bridge::Settings::default())).await;
    lab.fake.write(CHAT, ALICE, "first");
    lab.fake.offers(CHAT, "Accept").await;
    let progress = lab.fake.until("a progress message with a session", |fake| {
        let shown = fake.messages(ALICE).into_iter();
        shown
            .filter(|it| it.by_bot)
            .find(|it| it.has_button("Cancel") && it.text.contains("--resume"))
    });
    let progress = progress.await;
    // The bot learns the id of the message a moment after the service shows it.
    let stored = || lab.store().read(|it| it.open.values().any(|line| line.contains("--resume")));
    while !stored() {
        tokio::time::sleep(std::time::Duration::from_millis(5)).await;
    }
    bot.crash().await;

    let bot = lab.bot().await;
    let closed = lab.fake.shows(CHAT, "interrupted: takopi was restarted").await;
    assert_eq!((closed.id, closed.buttons.len()), (progress.id, 0));
    let session = |text: &str| text.split_once("--resume ").unwrap().1.trim().to_owned();
    lab.fake.reply(CHAT, ALICE, closed.id, "second");
    let answer = lab.fake.shows(CHAT, "You said: second").await;
    assert_eq!(session(&answer.text), session(&closed.text));
    bot.stop().await;
    assert!(lab.store().read(|stored| stored.open.is_empty()));
}

#[tokio::test]
async fn an_update_is_handled_once_though_the_service_delivers_it_again() {
    let lab = Lab::new();
    let bot = lab.bot().await;
    lab.fake.write(CHAT, ALICE, "once");
    lab.fake.shows(CHAT, "You said: once").await;
    bot.crash().await;
    // Nothing was confirmed since the answer: the service delivers it again to the next process.
    let bot = lab.bot().await;
    lab.fake.write(CHAT, ALICE, "next");
    lab.fake.shows(CHAT, "You said: next").await;
    bot.stop().await;
    let shown = lab.fake.messages(ALICE);
    let answers = shown.iter().filter(|it| it.by_bot && it.text.contains("You said: once"));
    assert_eq!(answers.count(), 1);
}

#[tokio::test]
async fn messages_that_came_while_the_bot_was_away_are_answered() {
    let lab = Lab::new();
    lab.fake.write(CHAT, ALICE, "early");
    let bot = lab.bot().await;
    lab.fake.shows(CHAT, "You said: early").await;
    bot.stop().await;
}
