//! The token: where it must not be found.

use std::sync::atomic::{AtomicUsize, Ordering};

use nix::sys::signal::Signal;
use serde_json::json;
use takopi_tests::telegram::{FakeTelegram, Fault, TOKEN};

use super::super::lab::{Lab, Running};
use super::{ALICE, CHAT, RUNS, accept, configure};

/// The part that is secret.
fn secret() -> &'static str {
    TOKEN.split_once(':').unwrap().1
}

fn script(lab: &Lab, name: &str, text: &str) -> String {
    let path = lab.write_executable(name, &format!("#!/bin/sh\n{text}\n"));
    path.to_str().unwrap().to_owned()
}

#[tokio::test]
async fn the_token_is_in_no_environment_and_no_argument_list() {
    let fake = FakeTelegram::start();
    let lab = Lab::new();
    let voice = script(&lab, "transcribe", "env");
    configure(&lab, &fake, &format!("transcribe = '{voice} {{file}}'\n"));
    let seen = lab.path("seen");
    // An agent that keeps what it can see, and fails.
    let agent =
        script(&lab, "agent", &format!("env >> {0}; ps -ef >> {0} 2>&1; exit 1", seen.display()));
    let mut command = lab.takopi(&["telegram", "--engine", "codex", "--codex-bin", &agent]);
    command.env("TAKOPI_TELEGRAM_TOKEN", TOKEN).env("TAKOPI_TEST_MARK", "inherited");
    let mut running = Running::start(command);
    running.wait_for(RUNS);
    fake.write(CHAT, ALICE, "hello");
    fake.until("a failure", |fake| {
        fake.messages(ALICE).into_iter().find(|it| it.by_bot && it.notified)
    })
    .await;
    let printed = std::fs::read_to_string(&seen).unwrap();
    assert!(printed.contains("TAKOPI_TEST_MARK=inherited"), "{printed}");
    assert!(!printed.contains(secret()), "{printed}");
    let arguments = std::fs::read(format!("/proc/{}/cmdline", running.pid())).unwrap();
    assert!(!String::from_utf8_lossy(&arguments).contains(secret()));

    // The transcription's text becomes the prompt, which the demo engine repeats.
    let file = json!({ "voice": { "file_id": fake.add_file("v.ogg", b"spoken") } });
    fake.receive(CHAT, ALICE, json!({ "caption": "/demo", "voice": file["voice"] }));
    accept(&fake).await;
    let answer = fake.shows(CHAT, "You said:").await;
    let all: String = fake.messages(ALICE).into_iter().map(|it| it.text).collect();
    assert!(all.contains("TAKOPI_TEST_MARK=inherited"), "{answer:?}");
    assert!(!all.contains(secret()), "{all}");
    running.signal(Signal::SIGTERM);
    assert!(!running.end().stderr.contains(secret()));
}

/// Every kind of failure, at the most verbose level, to the end by a token that is revoked.
#[tokio::test]
async fn the_token_is_in_no_log_and_no_error() {
    let fake = FakeTelegram::start();
    let lab = Lab::new();
    let file = lab.write("token", &format!("{TOKEN}\n"));
    configure(&lab, &fake, &format!("token_file = {:?}\n", file.to_str().unwrap()));
    let mut command = lab.takopi(&["-vvv", "telegram", "--engine", "demo", "--approve", "deny"]);
    command.env("TAKOPI_LOG_FILE", lab.path("log"));
    let faults = [
        Fault::BadGateway,
        Fault::Reset,
        Fault::TooManyRequests(1),
        Fault::Moved,
        Fault::ResetBehind,
    ];
    let count = AtomicUsize::new(0);
    // Every other call fails, each time in another way.
    fake.fail(move |call| {
        let count = count.fetch_add(1, Ordering::Relaxed);
        let fails = count.is_multiple_of(2) && call.method != "setMyCommands";
        fails.then(|| faults[(count / 2) % faults.len()])
    });
    let mut running = Running::start(command);
    running.wait_for(RUNS);
    fake.send_file(CHAT, ALICE, "a.txt", b"x", "hello");
    fake.until("an answer or a refusal", |fake| {
        fake.messages(ALICE).into_iter().find(|it| it.by_bot)
    })
    .await;
    fake.fail(|_| Some(Fault::Unauthorized));
    fake.write(CHAT, ALICE, "one more");
    let ran = running.end();
    assert_eq!(ran.code, Some(1), "{ran:?}");
    assert!(ran.stderr.contains("error: Telegram refuses the token"), "{ran:?}");
    let log = std::fs::read_to_string(lab.path("log")).unwrap();
    assert!(log.contains("TRACE") && log.contains("502"), "{log}");
    for text in [&log, &ran.stderr, &ran.stdout] {
        assert!(!text.contains(secret()), "{text}");
    }
    assert!(fake.calls().iter().all(|call| !call.method.contains("moved")));
}
