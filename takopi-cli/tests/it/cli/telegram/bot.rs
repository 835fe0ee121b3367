//! The bot: answers, signals, restarts, and what keeps it from starting.

use nix::sys::signal::Signal;
use takopi_tests::telegram::{FakeTelegram, Fault, Room, Shown, TOKEN};

use super::super::lab::{Lab, Ran, Running};
use super::{ALICE, CHAT, MALLORY, RUNS, accept, configure, lab, start};

/// The session in the last lines of a message.
fn session(text: &str) -> String {
    text.split_once("--resume ").unwrap().1.trim().to_owned()
}

/// The message that shows a run, once it shows its session.
async fn progress(fake: &FakeTelegram) -> Shown {
    fake.until("a progress message with a session", |fake| {
        let shows = |it: &Shown| it.has_button("Cancel") && it.text.contains("--resume");
        fake.messages(ALICE).into_iter().find(shows)
    })
    .await
}

#[tokio::test]
async fn a_message_is_answered_and_a_signal_ends_the_bot_in_order() {
    let fake = FakeTelegram::start();
    let lab = lab(&fake, "");
    let running = start(&lab);
    fake.write(CHAT, ALICE, "hello");
    accept(&fake).await;
    let answer = fake.shows(CHAT, "You said: hello").await;
    assert!(answer.notified && answer.text.contains("--resume demo-"), "{answer:?}");
    running.signal(Signal::SIGTERM);
    let ran = running.end();
    assert_eq!((ran.code, ran.stdout.as_str()), (Some(0), ""), "{ran:?}");
    assert_eq!(ran.stderr, "note: the bot is running; Ctrl-C ends it\n");
    let state = std::fs::read_to_string(lab.path("state/telegram-4242.json")).unwrap();
    assert!(!state.contains("hello"), "no prompts on disk: {state}");
}

#[tokio::test]
async fn a_signal_in_a_run_cancels_it_and_its_session_goes_on_after_a_restart() {
    let fake = FakeTelegram::start();
    let lab = lab(&fake, "");
    let running = start(&lab);
    fake.write(CHAT, ALICE, "first");
    fake.offers(CHAT, "Accept").await;
    let shown = progress(&fake).await;
    running.signal(Signal::SIGTERM);
    let ran = running.end();
    assert_eq!(ran.code, Some(0), "{ran:?}");
    let left = fake.messages(ALICE);
    assert!(left.iter().all(|it| it.buttons.is_empty()), "{left:#?}");
    let last = left.iter().rfind(|it| it.text.contains("--resume")).unwrap();
    assert_eq!(session(&last.text), session(&shown.text));

    let running = start(&lab);
    fake.reply(CHAT, ALICE, last.id, "second");
    accept(&fake).await;
    let answer = fake.shows(CHAT, "You said: second").await;
    assert_eq!(session(&answer.text), session(&shown.text));
    running.signal(Signal::SIGINT);
    assert_eq!(running.end().code, Some(0));
}

#[tokio::test]
async fn a_run_that_a_kill_cut_short_says_so_after_the_restart_and_goes_on() {
    let fake = FakeTelegram::start();
    let lab = lab(&fake, "");
    let running = start(&lab);
    fake.write(CHAT, ALICE, "first");
    let question = fake.offers(CHAT, "Accept").await;
    let shown = progress(&fake).await;
    // The bot learns the id of a message a moment after the service shows it.
    let state = lab.path("state/telegram-4242.json");
    let known = ["--resume".to_owned(), format!("{ALICE}/{}", question.id)];
    let knows = |state: &str| known.iter().all(|it| state.contains(it));
    while !knows(&std::fs::read_to_string(&state).unwrap_or_default()) {
        tokio::time::sleep(std::time::Duration::from_millis(5)).await;
    }
    running.signal(Signal::SIGKILL);
    assert_eq!(running.end().code, None);

    let running = start(&lab);
    let closed = fake.shows(CHAT, "takopi was restarted while this ran; reply to go on").await;
    assert_eq!(closed.id, shown.id);
    let left = fake.messages(ALICE);
    assert!(left.iter().all(|it| it.buttons.is_empty()), "the question is closed too: {left:#?}");
    fake.reply(CHAT, ALICE, closed.id, "second");
    accept(&fake).await;
    let answer = fake.shows(CHAT, "You said: second").await;
    assert_eq!(session(&answer.text), session(&shown.text));
    running.signal(Signal::SIGTERM);
    assert_eq!(running.end().code, Some(0));
    let again =
        fake.messages(ALICE).iter().filter(|it| it.text.contains("You said: first")).count();
    assert_eq!(again, 0, "the message was handled once");
}

#[tokio::test]
async fn a_stranger_is_a_line_in_the_log_and_nothing_else() {
    let fake = FakeTelegram::start();
    let lab = lab(&fake, "");
    let running = start(&lab);
    fake.write(Room::chat(MALLORY), MALLORY, "my private words");
    fake.write(CHAT, ALICE, "/help");
    fake.shows(CHAT, "Before a message").await;
    running.signal(Signal::SIGTERM);
    let ran = running.end();
    assert!(fake.messages(MALLORY).iter().all(|it| !it.by_bot));
    assert!(ran.stderr.contains("a message of somebody who is not allowed user=66"), "{ran:?}");
    assert!(!ran.stderr.contains("private words"), "{ran:?}");
}

fn refused(lab: &Lab) -> Ran {
    let ran = lab.run(&["telegram", "--engine", "demo"]);
    assert_eq!(ran.stderr.lines().count(), 1, "{ran:?}");
    ran
}

#[test]
fn what_keeps_the_bot_from_starting_is_one_line_and_an_exit_code() {
    let fake = FakeTelegram::start();
    let lab = Lab::new();
    for (table, code, said) in [
        ("", 2, "no token: run `takopi telegram setup`, or set TAKOPI_TELEGRAM_TOKEN"),
        ("token = 'SECRET'", 2, "`token` is no token of a bot, which looks like 123456:ABC…"),
        ("token_file = '/no/such'", 2, "cannot read /no/such: No such file"),
        ("tokn = 'SECRET'", 2, "[telegram]: unknown key `tokn`"),
        ("token = '1:SECRETSECRET'", 1, "error: Telegram refuses the token; get the current one"),
    ] {
        configure(&lab, &fake, table);
        let ran = refused(&lab);
        assert_eq!(ran.code, Some(code), "{ran:?}");
        assert!(ran.stderr.contains(said) && !ran.stderr.contains("SECRET"), "{ran:?}");
    }
    configure(&lab, &fake, &format!("token = {TOKEN:?}\n[projects.demo]\npath = '/'\n"));
    let ran = refused(&lab);
    assert_eq!(ran.code, Some(2), "{ran:?}");
    assert!(ran.stderr.contains("project `demo` has the name of an engine"), "{ran:?}");
    let text = format!("[telegram]\nservice = {:?}\ntoken = {TOKEN:?}\n", fake.url());
    lab.write("home/.config/takopi/config.toml", &text);
    let ran = refused(&lab);
    assert_eq!(ran.code, Some(2), "{ran:?}");
    assert!(ran.stderr.contains("nobody is allowed to use the bot; set `allowed_users`"));
}

#[tokio::test]
async fn a_second_process_of_a_bot_leaves_the_messages_of_the_first_alone() {
    let fake = FakeTelegram::start();
    let lab = lab(&fake, "");
    let running = start(&lab);
    fake.write(CHAT, ALICE, "first");
    fake.offers(CHAT, "Accept").await;
    let ran = refused(&lab);
    assert_eq!(ran.code, Some(1), "{ran:?}");
    assert!(ran.stderr.contains("another `takopi telegram` runs this bot"), "{ran:?}");
    accept(&fake).await;
    fake.shows(CHAT, "You said: first").await;
    running.signal(Signal::SIGTERM);
    assert_eq!(running.end().code, Some(0));
    // A lock that is left behind keeps nobody from starting.
    let running = start(&lab);
    running.signal(Signal::SIGTERM);
    assert_eq!(running.end().code, Some(0));
}

#[tokio::test]
async fn a_signal_ends_a_bot_whose_service_is_down() {
    let fake = FakeTelegram::start();
    fake.fail(|_| Some(Fault::BadGateway));
    let lab = lab(&fake, "");
    let mut running = Running::start(lab.takopi(&["telegram", "--engine", "demo"]));
    running.wait_for("retrying");
    running.signal(Signal::SIGTERM);
    let ran = running.end();
    assert_eq!(ran.code, Some(0), "{ran:?}");
    assert!(!ran.stderr.contains(RUNS) && !ran.stderr.contains(TOKEN), "{ran:?}");
}
