//! Files in and out.

use std::os::unix::fs::symlink;

use serde_json::json;
use takopi_tests::telegram::{Fault, Room};

use crate::lab::{ALICE, Lab};

const CHAT: Room = Room { chat: ALICE, topic: None };

#[tokio::test]
async fn a_document_goes_into_the_project_and_is_named_in_the_prompt() {
    let lab = Lab::new();
    let bot = lab.bot().await;
    lab.fake.send_file(CHAT, ALICE, "../../notes.txt", b"hello", "read this");
    let answer = lab.fake.shows(CHAT, "You said: read this").await;
    assert!(answer.text.contains("Attached file: incoming/notes.txt"), "{}", answer.text);
    assert_eq!(std::fs::read(lab.work().join("incoming/notes.txt")).unwrap(), b"hello");
    lab.fake.send_file(CHAT, ALICE, ".env", b"x", "and this");
    lab.fake.shows(CHAT, "may hold secrets and is not transferred").await;
    bot.stop().await;
}

#[tokio::test]
async fn a_document_does_not_make_its_worktree_dirty() {
    let (lab, branch) = Lab::with_branch();
    let bot = lab.bot().await;
    lab.fake.send_file(CHAT, ALICE, "notes.txt", b"hello", "/web @topic read this");
    lab.fake.shows(CHAT, "Attached file: incoming/notes.txt").await;
    bot.stop().await;
    assert!(branch.join("incoming/notes.txt").is_file());
    let repository = takopi_projects::Repository::open(lab.projects.get("web").unwrap()).unwrap();
    let removed = repository.prune().unwrap().remove(0).result.unwrap();
    assert!(removed.contains("ignored files went with it: incoming/"), "{removed}");
}

#[tokio::test]
async fn a_file_that_is_too_large_is_refused() {
    let lab = Lab::new().with("max_file", 3);
    let bot = lab.bot().await;
    lab.fake.send_file(CHAT, ALICE, "a.txt", b"hello", "read this");
    lab.fake.shows(CHAT, "the file is larger than 3 bytes").await;
    bot.stop().await;
}

#[tokio::test]
async fn only_files_of_the_project_are_sent() {
    let lab = Lab::new();
    std::fs::create_dir(lab.work().join("src")).unwrap();
    std::fs::write(lab.work().join("src/a.rs"), "fn main() {}").unwrap();
    std::fs::write(lab.directory.path().join("secret"), "x").unwrap();
    symlink(lab.directory.path().join("secret"), lab.work().join("link")).unwrap();
    let bot = lab.bot().await;
    for path in ["../secret", "/etc/passwd", "link"] {
        lab.fake.write(CHAT, ALICE, &format!("/file get {path}"));
        lab.fake.shows(CHAT, &format!("{path} is not inside of the project")).await;
    }
    lab.fake.write(CHAT, ALICE, "/file get src/a.rs");
    let file = |name: &'static str| {
        move |fake: &takopi_tests::telegram::FakeTelegram| {
            fake.messages(ALICE).into_iter().find_map(|it| it.file.filter(|file| file.0 == name))
        }
    };
    assert_eq!(lab.fake.until("the file", file("a.rs")).await.1, 12);
    lab.fake.write(CHAT, ALICE, "/file get src");
    assert!(lab.fake.until("the archive", file("src.zip")).await.1 > 12);
    bot.stop().await;
    let sent = lab.fake.messages(ALICE).into_iter().filter(|it| it.file.is_some());
    assert_eq!(sent.count(), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_voice_note_needs_a_command() {
    let voice = |lab: &Lab| {
        let id = "file-0";
        lab.fake.send_file(CHAT, ALICE, "x", b"spoken words", "a file, so that there is one");
        lab.fake.receive(CHAT, ALICE, json!({ "voice": { "file_id": id } }));
    };
    let lab = Lab::new();
    let bot = lab.bot().await;
    voice(&lab);
    lab.fake.shows(CHAT, "voice notes are not set up here; please write").await;
    bot.stop().await;

    let lab = Lab::new().with("transcribe", "cat {file}");
    let bot = lab.bot().await;
    voice(&lab);
    lab.fake.shows(CHAT, "You said: spoken words").await;
    bot.stop().await;
}

#[tokio::test]
async fn a_photo_goes_with_its_prompt_and_not_with_the_next_one() {
    let lab = Lab::new();
    let images = std::sync::Arc::new(std::sync::Mutex::new(Vec::new()));
    let seen = images.clone();
    let settings = takopi_bridge::Settings::default()
        .approvals(|_| std::sync::Arc::new(takopi_core::approvals::deny()))
        .requests(move |message, request| {
            let context = message.context.clone().unwrap_or_default();
            seen.lock().unwrap().push(context.settings.images);
            request
        });
    let bot = lab.run(lab.parts(lab.demo(), settings)).await;
    let photo = json!([{ "file_id": "small" }, { "file_id": lab.fake.add_file("x", b"image") }]);
    lab.fake.receive(CHAT, ALICE, json!({ "photo": photo }));
    let answer = lab.fake.shows(CHAT, "You said: see the image").await;
    lab.fake.reply(CHAT, ALICE, answer.id, "and now?");
    lab.fake.shows(CHAT, "You said: and now?").await;
    bot.stop().await;
    let path = lab.work().join("incoming/photo.jpg");
    assert_eq!(std::fs::read(&path).unwrap(), b"image");
    assert_eq!(*images.lock().unwrap(), [vec![path], Vec::new()]);
}

#[tokio::test]
async fn a_photo_alone_is_a_prompt_for_the_engine_of_its_place() {
    let lab = Lab::new();
    let settings = takopi_bridge::Settings::default()
        .approvals(|_| std::sync::Arc::new(takopi_core::approvals::deny()));
    let bot = lab.run(lab.parts_with_another_default(settings)).await;
    lab.fake.write(CHAT, ALICE, "/agent demo");
    lab.fake.shows(CHAT, "use engine demo").await;
    let photo = json!([{ "file_id": lab.fake.add_file("x", b"image") }]);
    lab.fake.receive(CHAT, ALICE, json!({ "photo": photo }));
    lab.fake.shows(CHAT, "You said: see the image").await;
    bot.stop().await;
}

/// Files in both directions, though the service is down for a moment.
#[tokio::test]
async fn a_file_is_fetched_and_sent_again_when_that_can_help() {
    let lab = Lab::new();
    std::fs::write(lab.work().join("a.txt"), "content").unwrap();
    let mut failed = std::collections::BTreeSet::new();
    lab.fake.fail(move |call| match call.method.as_str() {
        "getFile" if failed.insert("getFile") => Some(Fault::Reset),
        "file" if failed.insert("file") => Some(Fault::BadGateway),
        "sendDocument" if failed.insert("sendDocument") => Some(Fault::TooManyRequests(1)),
        _ => None,
    });
    let bot = lab.bot().await;
    lab.fake.send_file(CHAT, ALICE, "notes.txt", b"hello", "read this");
    lab.fake.shows(CHAT, "You said: read this").await;
    assert_eq!(std::fs::read(lab.work().join("incoming/notes.txt")).unwrap(), b"hello");
    lab.fake.write(CHAT, ALICE, "/file get a.txt");
    lab.fake
        .until("the file", |fake| {
            fake.messages(ALICE).into_iter().find(|it| it.by_bot && it.file.is_some())
        })
        .await;
    bot.stop().await;
}
