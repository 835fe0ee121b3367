//! `takopi telegram setup`: on a terminal and in a script.

use std::os::unix::fs::PermissionsExt as _;

use nix::sys::signal::Signal;
use pty_process::blocking::Command;
use takopi_tests::telegram::{FakeTelegram, Fault, Room, TOKEN};

use super::super::lab::Lab;
use super::{ALICE, CHAT, MALLORY, accept, start};
use crate::screen::Screen;

const FILE: &str = "home/.config/takopi/config.toml";

fn screen(lab: &Lab, fake: &FakeTelegram) -> Screen {
    let command = Command::new(env!("CARGO_BIN_EXE_takopi"))
        .args(["telegram", "setup", "--service", &fake.url()])
        .current_dir(lab.path("work"))
        .env_clear()
        .envs(lab.env());
    Screen::start(command, (24, 160))
}

#[tokio::test]
async fn a_person_is_asked_for_the_token_shown_who_wrote_and_answered_afterwards() {
    let fake = FakeTelegram::start();
    let lab = Lab::new();
    let existing = lab.write(FILE, "model = 'm'\n[projects.web]\npath = '/srv/web'\n");
    std::fs::set_permissions(&existing, std::fs::Permissions::from_mode(0o644)).unwrap();
    fake.write(Room::chat(MALLORY), MALLORY, "I was first");
    fake.set_webhook();

    let screen = screen(&lab, &fake);
    screen.wait_for("token:");
    screen.press(&format!("{TOKEN}\n"));
    screen.wait_for("now write any message to @takopi_test_bot");
    fake.write(Room::chat(MALLORY), MALLORY, "it is me");
    screen.wait_for("user66 (66) wrote. Is that you? [Y/n]");
    screen.press("n\n");
    screen.wait_for("waiting for another message");
    fake.write(CHAT, ALICE, "hi");
    screen.wait_for("user11 (11) wrote. Is that you? [Y/n]");
    screen.press("\n");
    let (code, shown, raw) = screen.end();
    assert_eq!(code, Some(0), "{shown}");
    assert!(shown.contains("user11 (11) may use the bot; written to "), "{shown}");
    assert!(shown.contains("Is that you? [Y/n] n"), "what is no secret is shown again: {shown}");
    assert!(!raw.contains("do-not-print-me"), "{raw}");

    let written = std::fs::read_to_string(&existing).unwrap();
    let service = fake.url();
    let expected = format!(
        "model = 'm'\n[projects.web]\npath = '/srv/web'\n\n[telegram]\ntoken = {TOKEN:?}\n\
         service = {service:?}\n# user11\nallowed_users = [11]\n"
    );
    assert_eq!(written, expected);
    assert_eq!(existing.metadata().unwrap().permissions().mode() & 0o777, 0o600);

    // What was written works, and the message of the setup is no prompt.
    let running = start(&lab);
    fake.write(CHAT, ALICE, "hello");
    accept(&fake).await;
    fake.shows(CHAT, "You said: hello").await;
    running.signal(Signal::SIGTERM);
    assert_eq!(running.end().code, Some(0));
    assert!(fake.messages(ALICE).iter().all(|it| !it.text.contains("You said: hi")));
}

#[test]
fn control_c_ends_the_setup_and_nothing_is_written() {
    let fake = FakeTelegram::start();
    let lab = Lab::new();
    let screen = screen(&lab, &fake);
    screen.wait_for("token:");
    screen.press("\x03");
    let (code, shown, _) = screen.end();
    assert_eq!(code, Some(130), "{shown}");
    assert!(!lab.path(FILE).exists());
}

#[test]
fn the_end_of_the_input_is_no_yes_to_the_question_who_wrote() {
    let fake = FakeTelegram::start();
    let lab = Lab::new();
    let screen = screen(&lab, &fake);
    screen.wait_for("token:");
    screen.press(&format!("{TOKEN}\n"));
    screen.wait_for("now write any message");
    fake.write(Room::chat(MALLORY), MALLORY, "it is me");
    screen.wait_for("user66 (66) wrote. Is that you? [Y/n]");
    screen.press("\x04");
    let (code, shown, _) = screen.end();
    assert_eq!(code, Some(1), "{shown}");
    assert!(shown.contains("standard input has ended"), "{shown}");
    assert!(!lab.path(FILE).exists());
}

#[tokio::test]
async fn a_script_passes_the_token_on_standard_input() {
    let fake = FakeTelegram::start();
    // The service is down for a moment at every step.
    let mut called = std::collections::BTreeSet::new();
    fake.fail(move |call| {
        let step = format!("{} {}", call.method, call.params["offset"]);
        called.insert(step).then_some(Fault::BadGateway)
    });
    let lab = Lab::new();
    let service = fake.url();
    let args = ["telegram", "setup", "--service", &service];
    let mut command = lab.takopi(&args);
    command.stdin(std::process::Stdio::piped());
    command.stdout(std::process::Stdio::piped()).stderr(std::process::Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut input = child.stdin.take().unwrap();
    std::io::Write::write_all(&mut input, format!("{TOKEN}\n").as_bytes()).unwrap();
    fake.until("a poll", |fake| {
        let calls = fake.calls();
        calls.iter().any(|it| it.method == "getUpdates" && it.params["offset"] == 0).then_some(())
    })
    .await;
    fake.write(CHAT, ALICE, "hi");
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    assert_eq!(lab.path(FILE).metadata().unwrap().permissions().mode() & 0o777, 0o600);
    fake.until("the message is confirmed", |fake| (fake.pending() == 0).then_some(())).await;
    let again = lab.run(&args);
    assert_eq!(again.code, Some(2));
    assert!(again.stderr.contains("has a table [telegram] already"), "{again:?}");
}

#[test]
fn a_token_that_is_none_or_is_refused_writes_nothing() {
    let fake = FakeTelegram::start();
    let lab = Lab::new();
    for (typed, code, said) in [
        ("SECRET\n", 2, "that is no token; it looks like 123456:ABC…"),
        ("", 2, "that is no token"),
        ("1:SECRETSECRET\n", 1, "Telegram refuses the token; get the current one from @BotFather"),
    ] {
        let ran = lab.run_with(&["telegram", "setup", "--service", &fake.url()], typed.as_bytes());
        assert_eq!(ran.code, Some(code), "{ran:?}");
        assert!(ran.stderr.contains(said) && !ran.stderr.contains("SECRET"), "{ran:?}");
        assert_eq!(ran.stderr.lines().count(), 1, "{ran:?}");
        assert!(!lab.path(FILE).exists());
    }
}
