//! A service that fails, and texts that are hard to send.

use std::sync::Arc;

use takopi_bridge::{Content, Kind, Outgoing, Place, Transport as _, TransportError};
use takopi_telegram::Telegram;
use takopi_telegram::rate::{Limits, Rate};
use takopi_tests::dice::Dice;
use takopi_tests::telegram::{Fault, Room};

use crate::lab::{ALICE, BOB, GROUP, Lab, one_call_in_ten};

/// How many messages are written in each room.
const MESSAGES: usize = 8;

#[tokio::test(flavor = "multi_thread")]
async fn every_answer_arrives_exactly_once_and_in_order_though_calls_fail() {
    let lab = Lab::new().with("mode", "chat").with("trigger", "all");
    lab.fake.fail(one_call_in_ten(0x7e1e));
    let bot = lab.bot().await;
    let rooms =
        [(Room::chat(ALICE), ALICE), (Room::chat(BOB), BOB), (Room::topic(GROUP, 5), ALICE)];
    for number in 0..MESSAGES {
        for (room, user) in rooms {
            lab.fake.write(room, user, &format!("message {number}"));
        }
    }
    for (room, _) in rooms {
        lab.fake.shows(room, &format!("You said: message {}", MESSAGES - 1)).await;
    }
    bot.stop().await;
    for (room, _) in rooms {
        let shown = lab.fake.messages(room.chat);
        let answers: Vec<&str> = shown
            .iter()
            .filter(|message| message.by_bot)
            .filter_map(|it| it.text.split_once("You said: ")?.1.lines().next())
            .collect();
        let expected: Vec<String> = (0..MESSAGES).map(|it| format!("message {it}")).collect();
        assert_eq!(answers, expected, "{room:?}");
    }
}

#[tokio::test]
async fn a_message_that_was_sent_is_found_behind_an_error_of_the_service() {
    let lab = Lab::new();
    let mut failed = false;
    lab.fake.fail(move |call| {
        let answer = call.method == "sendMessage"
            && call.params["text"].as_str().is_some_and(|it| it.contains("You said"));
        (answer && !std::mem::replace(&mut failed, true)).then_some(Fault::ErrorBehind)
    });
    let bot = lab.bot().await;
    let room = Room::chat(ALICE);
    lab.fake.write(room, ALICE, "one");
    lab.fake.shows(room, "You said: one").await;
    // Behind the answer in the chat: whatever was sent for that was sent before.
    lab.fake.write(room, ALICE, "two");
    lab.fake.shows(room, "You said: two").await;
    bot.stop().await;
    let shown = lab.fake.messages(ALICE);
    assert_eq!(shown.iter().filter(|it| it.text.contains("You said: one")).count(), 1);
}

/// The transport alone, with nothing to wait for.
fn telegram(lab: &Lab) -> Telegram {
    let brief = std::time::Duration::ZERO;
    let limits = Limits { per_second: 1_000_000, chat_interval: brief, group_minute: 1_000_000 };
    Telegram::new(lab.api(), Rate::new(limits), Arc::new(lab.store()))
}

fn to_alice(text: &str) -> Outgoing {
    Outgoing::new(Place::new(ALICE.to_string()), Content::new(Kind::Final, text))
}

#[tokio::test]
async fn a_message_is_not_sent_again_while_it_is_unknown_whether_it_arrived() {
    let lab = Lab::new();
    let (mut sent, mut looked) = (0, 0);
    lab.fake.fail(move |call| {
        if call.method == "sendMessage" {
            sent += 1;
            return (sent == 1).then_some(Fault::ResetBehind);
        }
        looked += 1;
        (looked <= 60).then_some(Fault::BadGateway)
    });
    let found = telegram(&lab).send(to_alice("the answer")).await.unwrap();
    let ids: Vec<String> = lab.fake.messages(ALICE).iter().map(|it| it.id.to_string()).collect();
    assert_eq!(ids, [found.as_str()]);
}

#[tokio::test]
async fn a_message_whose_call_was_given_up_is_looked_for_before_it_is_sent_again() {
    let lab = Lab::new();
    let mut hung = false;
    lab.fake.fail(move |call| {
        let first = call.method == "sendMessage" && !std::mem::replace(&mut hung, true);
        first.then_some(Fault::HangBehind)
    });
    let telegram = telegram(&lab);
    tokio::select! {
        sent = telegram.send(to_alice("the answer")) => panic!("{sent:?}"),
        _ = lab.fake.shows(Room::chat(ALICE), "the answer") => {}
    }
    let found = telegram.send(to_alice("the answer")).await.unwrap();
    let ids: Vec<String> = lab.fake.messages(ALICE).iter().map(|it| it.id.to_string()).collect();
    assert_eq!(ids, [found.as_str()]);
}

#[tokio::test]
async fn a_lasting_refusal_is_not_retried() {
    let lab = Lab::new();
    let telegram = telegram(&lab);
    for (code, description) in [
        (403, "Forbidden: bot was blocked by the user"),
        (403, "Forbidden: bot was kicked from the supergroup chat"),
        (400, "Bad Request: chat not found"),
        (400, "Bad Request: message thread not found"),
    ] {
        lab.fake.fail(move |_| Some(Fault::Refused(code, description)));
        let refused = telegram.send(to_alice("the answer")).await.unwrap_err();
        assert!(matches!(refused, TransportError::Closed(_)), "{refused}");
    }
}

#[tokio::test]
async fn two_pollers_and_a_service_that_is_down_do_not_end_the_bot() {
    let lab = Lab::new();
    let other = lab.api();
    let polling = tokio::spawn(async move { other.updates(0, true).await });
    lab.fake
        .until("the other poller", |fake| {
            fake.calls().iter().any(|call| call.method == "getUpdates").then_some(())
        })
        .await;
    let bot = lab.bot().await;
    lab.fake
        .until("a conflict", |fake| {
            fake.refusals().iter().any(|it| it.contains("Conflict")).then_some(())
        })
        .await;
    polling.abort();
    lab.fake.write(Room::chat(ALICE), ALICE, "still there?");
    lab.fake.shows(Room::chat(ALICE), "You said: still there?").await;
    bot.stop().await;
}

/// Random text from what breaks formatters.
fn hostile(dice: &mut Dice) -> String {
    const PIECES: [&str; 44] = [
        "*",
        "**",
        "_",
        "__",
        "~~",
        "`",
        "```",
        "```rust\n",
        "\n",
        "\n\n",
        "[",
        "](",
        ")",
        "<b>",
        "</b>",
        "<script>",
        "&amp;",
        "|",
        "| a | b |\n|---|---|\n| 1 | 2 |\n",
        "> ",
        "- ",
        "1. ",
        "# ",
        "\\",
        "!",
        "\u{202e}",
        "\u{200b}",
        "\u{200d}",
        "\u{feff}",
        "\u{0}",
        "\u{7}",
        "👩‍👩‍👧‍👦",
        "🇩🇪",
        "e\u{301}",
        "שלום",
        "مرحبا",
        "日本語",
        "𝕏",
        "[x](https://a.b/?q=(1))",
        "[y](javascript:1)",
        "   ",
        "\t",
        "||spoiler||",
        "https://example.org/a_b*c",
    ];
    let size = match dice.below(20) {
        0 => 20_000,
        1..4 => 2_000,
        _ => 60,
    };
    let mut text = String::new();
    for _ in 0..=dice.below(size) {
        if dice.below(3) == 0 {
            let any = u32::try_from(dice.below(0x11_0000)).unwrap_or_default();
            text.push(char::from_u32(any).unwrap_or('x'));
        } else {
            text.push_str(PIECES[dice.index(PIECES.len())]);
        }
    }
    text
}

#[tokio::test(flavor = "multi_thread")]
async fn no_text_makes_a_message_that_the_service_refuses() {
    let lab = Lab::new();
    let telegram = telegram(&lab);
    let mut dice = Dice::new(0xbad);
    let mut texts: Vec<String> = (0..1000).map(|_| hostile(&mut dice)).collect();
    texts.push("x".repeat(100_000));
    texts.push("`".repeat(100_000));
    texts.push("**a** ".repeat(20_000));
    texts.push(String::new());
    let chat = takopi_bridge::present::Limit::Utf16(4096);
    for (number, text) in texts.iter().enumerate() {
        // As the bridge sends answers: in parts within the limit.
        let parts = takopi_bridge::present::chat::split(text, chat);
        for part in parts.iter().chain([text]) {
            let message =
                Outgoing::new(Place::new(ALICE.to_string()), Content::new(Kind::Final, part));
            if let Err(error) = telegram.send(message).await {
                panic!("text {number}: {error}; refusals: {:?}", lab.fake.refusals());
            }
        }
    }
    assert_eq!(lab.fake.refusals(), Vec::<String>::new());
}
