//! Who is answered.

use takopi_tests::telegram::{Fault, Room};

use crate::lab::{ALICE, BOB, GROUP, Lab, MALLORY};

/// Handles what is pending, by a message that is answered.
async fn settle(lab: &Lab, text: &str) {
    lab.fake.write(Room::chat(ALICE), ALICE, text);
    lab.fake.shows(Room::chat(ALICE), &format!("You said: {text}")).await;
    lab.fake.until("all updates are confirmed", |fake| (fake.pending() == 0).then_some(())).await;
}

#[tokio::test]
async fn strangers_are_not_answered_wherever_they_write() {
    let lab = Lab::new();
    let bot = lab.bot().await;
    lab.fake.write(Room::chat(MALLORY), MALLORY, "hello");
    lab.fake.write(Room::chat(GROUP), MALLORY, "@takopi_test_bot hello");
    lab.fake.write(Room::chat(GROUP), MALLORY, "/help");
    lab.fake.write(Room::chat(-200), ALICE, "@takopi_test_bot hello");
    settle(&lab, "done").await;
    for chat in [MALLORY, GROUP, -200] {
        assert!(lab.fake.messages(chat).iter().all(|message| !message.by_bot), "{chat}");
    }
    bot.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_press_of_a_stranger_or_with_forged_data_does_nothing() {
    let lab = Lab::new();
    // Approvals are asked for in the chat.
    let bot = lab.run(lab.parts(lab.demo(), takopi_bridge::Settings::default())).await;
    let room = Room::chat(GROUP);
    lab.fake.write(room, ALICE, "@takopi_test_bot go");
    let question = lab.fake.offers(room, "Accept").await;
    lab.fake.press(GROUP, question.id, "Accept", MALLORY);
    lab.fake.press_data(GROUP, question.id, &format!("accept {ALICE}"), ALICE);
    lab.fake.press_data(GROUP, question.id, "{\"chat_id\":-200}", ALICE);
    lab.fake.press_data(GROUP, question.id, "", ALICE);
    // A button of another message has no effect on this one.
    lab.fake.press_data(ALICE, question.id, "accept", ALICE);
    settle_help(&lab).await;
    pressed(&lab, 3).await;
    let still = lab.fake.messages(GROUP).into_iter().find(|it| it.id == question.id).unwrap();
    assert!(still.has_button("Accept"), "{still:?}");
    lab.fake.press(GROUP, question.id, "Accept", BOB);
    lab.fake.shows(room, "accepted by user12").await;
    lab.fake.shows(room, "You said: go").await;
    bot.stop().await;
}

/// Waits until this many presses were answered.
async fn pressed(lab: &Lab, count: usize) {
    let answers = |fake: &takopi_tests::telegram::FakeTelegram| {
        fake.calls().iter().filter(|call| call.method == "answerCallbackQuery").count()
    };
    lab.fake.until("answers to presses", |fake| (answers(fake) >= count).then_some(())).await;
}

async fn settle_help(lab: &Lab) {
    lab.fake.write(Room::chat(ALICE), ALICE, "/help");
    lab.fake.shows(Room::chat(ALICE), "Before a message").await;
}

#[tokio::test]
async fn a_group_is_answered_when_the_bot_is_meant() {
    let lab = Lab::new();
    let bot = lab.bot().await;
    let room = Room::topic(GROUP, 7);
    lab.fake.write(room, ALICE, "not for the bot");
    lab.fake.write(room, ALICE, "/help@another_bot");
    lab.fake.write(room, ALICE, "Please, @Takopi_Test_Bot, one");
    let answer = lab.fake.shows(room, "You said: Please, , one").await;
    assert!(answer.notified);
    lab.fake.reply(room, BOB, answer.id, "two");
    lab.fake.shows(room, "You said: two").await;
    let shown = lab.fake.messages(GROUP);
    assert!(shown.iter().all(|it| !it.text.contains("You said: not for")), "{shown:#?}");
    bot.stop().await;
}

#[tokio::test]
async fn everything_is_answered_in_a_group_if_it_is_set_so() {
    let lab = Lab::new().with("trigger", "all");
    let bot = lab.bot().await;
    lab.fake.write(Room::chat(GROUP), BOB, "hi");
    lab.fake.shows(Room::chat(GROUP), "You said: hi").await;
    bot.stop().await;
}

#[tokio::test]
async fn a_token_that_is_refused_ends_the_bot_and_is_in_no_error() {
    let lab = Lab::new();
    let token = takopi_telegram::Token::parse("1:wrong-wrong-wrong").unwrap();
    let api = takopi_telegram::Api::new(lab.fake.url(), token).unwrap();
    let mut parts = lab.parts(lab.demo(), takopi_bridge::Settings::default());
    parts.api = api.clone();
    let error = takopi_telegram::Bot::start(parts).await.unwrap_err();
    assert!(error.to_string().contains("refuses the token"), "{error}");
    lab.fake.fail(|_| Some(Fault::BadGateway));
    let refused = api.call("getMe", &serde_json::json!({})).await.unwrap_err();
    let unreachable = takopi_telegram::Api::new("http://127.0.0.1:1", lab_token()).unwrap();
    let lost = unreachable.call("getMe", &serde_json::json!({})).await.unwrap_err();
    for text in [format!("{error:?}{refused:?}{refused}"), format!("{lost:?}{lost}")] {
        assert!(!text.contains("wrong-wrong") && !text.contains("do-not-print"), "{text}");
    }
}

fn lab_token() -> takopi_telegram::Token {
    takopi_telegram::Token::parse(takopi_tests::telegram::TOKEN).unwrap()
}

#[tokio::test]
async fn nobody_is_allowed_by_default() {
    let mut lab = Lab::new();
    lab.config["allowed_users"] = serde_json::json!([]);
    let parts = lab.parts(lab.demo(), takopi_bridge::Settings::default());
    let error = takopi_telegram::Bot::start(parts).await.unwrap_err();
    assert!(error.to_string().contains("allowed_users"), "{error}");
}

/// A forged press: its message is in a chat where the bot answers nobody, or it names another chat in its data.
#[tokio::test(flavor = "multi_thread")]
async fn a_press_counts_for_its_own_message_only_whatever_its_data_says() {
    let lab = Lab::new();
    let bot = lab.run(lab.parts(lab.demo(), takopi_bridge::Settings::default())).await;
    lab.fake.write(Room::chat(ALICE), ALICE, "mine");
    let mine = lab.fake.offers(Room::chat(ALICE), "Accept").await;
    // Of an allowed user in a chat that is not, and of a stranger who names Alice's chat.
    lab.fake.press_data(-200, mine.id, "accept", ALICE);
    lab.fake.press_data(MALLORY, mine.id, &format!("accept:{ALICE}:{}", mine.id), MALLORY);
    lab.fake.press_data(BOB, mine.id, &format!("{{\"chat_id\":{ALICE}}}"), BOB);
    settle_help(&lab).await;
    pressed(&lab, 1).await;
    let still = lab.fake.messages(ALICE).into_iter().find(|it| it.id == mine.id).unwrap();
    assert!(still.has_button("Accept"), "{still:?}");
    let calls = lab.fake.calls();
    let answered = calls.iter().filter(|call| call.method == "answerCallbackQuery");
    assert_eq!(answered.count(), 1, "only the one of Bob, who is allowed: with `unknown button`");
    bot.stop().await;
}

#[tokio::test]
async fn a_private_message_is_answered_though_it_looks_like_a_command_of_another_bot() {
    let lab = Lab::new();
    let web = lab.work();
    let lab = lab.project("web", &web);
    let bot = lab.bot().await;
    let room = Room::chat(ALICE);
    for (text, answer) in [
        ("/usr/lib/node_modules/@types/node is broken", "You said: /usr/lib/node_modules/@types"),
        ("/web@fix do it", "/web@fix: put a space before @fix if that is a branch"),
        ("/web@takopi_test_bot do it", "You said: do it"),
        ("/help@another_bot", "Before a message"),
    ] {
        lab.fake.write(room, ALICE, text);
        lab.fake.shows(room, answer).await;
    }
    // In a group a path is none of another bot's commands either.
    lab.fake.write(Room::chat(GROUP), ALICE, "/opt/@scope/x is broken");
    lab.fake.shows(Room::chat(GROUP), "You said: /opt/@scope/x is broken").await;
    bot.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_topic_that_is_bound_to_a_project_is_answered_and_its_buttons_work() {
    let mut lab = Lab::new();
    let mut project = takopi_projects::Project::new("web", lab.work());
    project.chats = vec!["-600:7".to_owned()];
    lab.projects.add(project);
    let bot = lab.run(lab.parts(lab.demo(), takopi_bridge::Settings::default())).await;
    let (bound, other) = (Room::topic(-600, 7), Room::topic(-600, 8));
    lab.fake.write(other, ALICE, "@takopi_test_bot hello");
    lab.fake.write(bound, ALICE, "@takopi_test_bot hello");
    let question = lab.fake.offers(bound, "Accept").await;
    lab.fake.press(-600, question.id, "Accept", ALICE);
    lab.fake.shows(bound, "You said: hello").await;
    let shown = lab.fake.messages(-600);
    assert!(shown.iter().all(|it| !it.by_bot || it.topic == Some(7)), "{shown:#?}");
    bot.stop().await;
}

#[tokio::test]
async fn only_a_mention_of_the_bot_itself_counts_and_is_taken_off() {
    let lab = Lab::new();
    let bot = lab.bot().await;
    let room = Room::chat(GROUP);
    lab.fake.write(room, ALICE, "@takopi_test_bot2 not for the bot");
    lab.fake.write(room, ALICE, "mail@takopi_test_bot not for the bot");
    lab.fake.write(room, ALICE, "İİ @takopi_test_bot hello");
    let answer = lab.fake.shows(room, "You said: İİ").await;
    assert!(answer.text.contains("hello") && !answer.text.contains('@'), "{}", answer.text);
    let shown = lab.fake.messages(GROUP);
    assert!(shown.iter().all(|it| !it.by_bot || !it.text.contains("not for")), "{shown:#?}");
    bot.stop().await;
}
