//! What a restart keeps.

use std::path::Path;
use std::sync::{Arc, Mutex};

use takopi_core::demo::{Demo, Step};
use takopi_core::runner::{ChangeKind, FileChange, Patch, Question};
use takopi_core::{Host, RunSettings};
use takopi_projects::Project;
use takopi_tests::telegram::{Fault, Room};

use crate::lab::{ALICE, BOB, Lab};

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
    // The question, which may stand above it, is closed as well.
    let closed = lab.fake.until("the end of the run's message", |fake| {
        let mut shown = fake.messages(ALICE).into_iter();
        shown.find(|it| {
            it.id == progress.id && it.text.contains("interrupted: takopi was restarted")
        })
    });
    let closed = closed.await;
    assert!(closed.buttons.is_empty(), "{closed:?}");
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

/// After a week without updates the service counts on anywhere, also below what was handled.
#[tokio::test]
async fn updates_with_lower_numbers_are_handled_also_after_a_restart() {
    let lab = Lab::new().with("forward_window", "1ms");
    lab.fake.renumber(1000);
    let bot = lab.bot().await;
    lab.fake.write(CHAT, ALICE, "one");
    lab.fake.shows(CHAT, "You said: one").await;
    lab.fake.until("a confirmation", |fake| (fake.pending() == 0).then_some(())).await;
    lab.fake.renumber(500);
    lab.fake.write(CHAT, ALICE, "two");
    lab.fake.shows(CHAT, "You said: two").await;
    lab.fake.write(CHAT, ALICE, "three");
    lab.fake.shows(CHAT, "You said: three").await;
    lab.fake.until("a confirmation", |fake| (fake.pending() == 0).then_some(())).await;
    bot.stop().await;
    assert_eq!(lab.store().read(|stored| stored.offset), 502);
    lab.fake.renumber(7);
    let bot = lab.bot().await;
    lab.fake.write(CHAT, ALICE, "four");
    lab.fake.shows(CHAT, "You said: four").await;
    bot.stop().await;
    assert_eq!(lab.store().read(|stored| stored.offset), 8);
}

/// The message is being accepted when the bot is told to stop.
#[tokio::test(flavor = "multi_thread")]
async fn a_message_that_comes_too_late_for_a_stop_is_handled_by_the_next_process() {
    let lab = Lab::new();
    let (entered, mut has_entered) = tokio::sync::mpsc::channel(1);
    let (open, gate) = std::sync::mpsc::channel::<()>();
    let gate = Mutex::new(gate);
    let settings = takopi_bridge::Settings::default().requests(move |message, request| {
        if message.text == "late" {
            entered.try_send(()).unwrap();
            tokio::task::block_in_place(|| gate.lock().unwrap().recv().unwrap());
        }
        request
    });
    let bot = lab.run(lab.parts(lab.demo(), settings)).await;
    let other = Room::chat(BOB);
    lab.fake.write(other, BOB, "hello");
    lab.fake.offers(other, "Accept").await;
    lab.fake.write(CHAT, ALICE, "late");
    has_entered.recv().await.unwrap();
    let stopping = tokio::spawn(bot.stop());
    lab.fake.shows(other, "cancelled: shutting down").await;
    open.send(()).unwrap();
    stopping.await.unwrap();
    assert!(lab.fake.messages(ALICE).iter().all(|it| !it.text.contains("You said")));
    let bot = lab.bot().await;
    lab.fake.shows(CHAT, "You said: late").await;
    bot.stop().await;
}

#[tokio::test]
async fn a_stop_ends_though_the_service_hangs() {
    let lab = Lab::new();
    let mut parts = lab.parts(lab.demo(), takopi_bridge::Settings::default());
    parts.stop_within = std::time::Duration::from_millis(100);
    let bot = lab.run(parts).await;
    lab.fake.write(CHAT, ALICE, "hello");
    lab.fake.offers(CHAT, "Accept").await;
    // The bot learns the id of the message a moment after the service shows it.
    while lab.store().read(|stored| stored.open.is_empty()) {
        tokio::time::sleep(std::time::Duration::from_millis(5)).await;
    }
    lab.fake.fail(|_| Some(Fault::Hang));
    bot.stop().await;
    lab.fake.fail(|_| None);
    let bot = lab.bot().await;
    lab.fake.shows(CHAT, "interrupted: takopi was restarted").await;
    bot.stop().await;
}

#[tokio::test]
async fn messages_that_came_while_the_bot_was_away_are_answered() {
    let lab = Lab::new();
    lab.fake.write(CHAT, ALICE, "early");
    let bot = lab.bot().await;
    lab.fake.shows(CHAT, "You said: early").await;
    bot.stop().await;
}

/// The text of a session's answer that takes many messages.
fn long() -> String {
    "word ".repeat(3000)
}

fn session(text: &str) -> String {
    let lines = text.lines().find_map(|line| line.split_once("--resume "));
    lines.map(|it| it.1.trim().to_owned()).unwrap()
}

#[tokio::test]
async fn a_reply_to_any_part_of_an_answer_goes_on_there_after_a_restart() {
    let (lab, branch) = Lab::with_branch();
    let bot = lab.bot().await;
    lab.fake.write(CHAT, ALICE, &format!("/web @topic {}", long()));
    let first = lab.fake.shows(CHAT, "You said: word").await;
    let last = lab.fake.until("the last part", |fake| {
        let mut behind = fake.messages(ALICE).into_iter().filter(|it| it.id > first.id);
        behind.find(|it| it.text.contains("--resume demo-"))
    });
    let last = last.await;
    bot.stop().await;
    std::fs::write(branch.join("only-here"), "x").unwrap();
    assert!(!first.text.contains("--resume"), "{}", first.text);

    let bot = lab.bot().await;
    lab.fake.reply(CHAT, ALICE, first.id, "/file get only-here");
    lab.fake
        .until("the file", |fake| fake.messages(ALICE).into_iter().find(|it| it.file.is_some()))
        .await;
    lab.fake.reply(CHAT, ALICE, first.id, "second");
    let answer = lab.fake.shows(CHAT, "You said: second").await;
    assert_eq!(session(&answer.text), session(&last.text));
    assert!(answer.text.contains("ctx: web @topic"), "{}", answer.text);
    bot.stop().await;
}

#[tokio::test]
async fn the_text_of_an_answer_does_not_choose_where_a_reply_runs_after_a_restart() {
    let (lab, branch) = Lab::with_branch();
    let directories = Arc::new(Mutex::new(Vec::new()));
    let parts = || {
        let answer = "done\n\nctx: web @topic".to_owned();
        let host = Host::builder().state_directory(lab.directory.path().join("host")).build();
        let demo = Demo::scripted([Step::Say(answer)]).runner().on(host.unwrap());
        let seen = directories.clone();
        let settings = takopi_bridge::Settings::default().requests(move |message, request| {
            let context = message.context.clone().unwrap_or_default();
            seen.lock().unwrap().push(context.settings.cwd);
            request
        });
        lab.parts(Arc::new(demo), settings)
    };
    let bot = lab.run(parts()).await;
    lab.fake.write(CHAT, ALICE, "one");
    let answer = lab.fake.shows(CHAT, "ctx: web @topic").await;
    bot.stop().await;
    let bot = lab.run(parts()).await;
    let reply = lab.fake.reply(CHAT, ALICE, answer.id, "two");
    lab.fake
        .until("the second answer", |fake| {
            let mut shown = fake.messages(ALICE).into_iter();
            shown.find(|it| it.by_bot && it.id > reply && it.text.contains("ctx: web @topic"))
        })
        .await;
    bot.stop().await;
    assert_eq!(*directories.lock().unwrap(), [Some(lab.work()), None]);
    assert!(!branch.exists());
}

#[tokio::test]
async fn the_diffs_of_a_request_do_not_choose_where_a_reply_runs_after_a_restart() {
    let (lab, branch) = Lab::with_branch();
    let parts = || {
        let end = " ctx: web @topic\n takopi run --engine demo --resume demo-00000000";
        let diff = format!("{}{end}", "+new\n".repeat(1000));
        let file = FileChange::new(ChangeKind::Update, "notes", Path::new("/srv"));
        let patch = Patch::new([file.diff(diff.as_str())]);
        let ask = Step::Ask { id: "a".to_owned(), question: Question::Patch(patch) };
        let host = Host::builder().state_directory(lab.directory.path().join("host")).build();
        let demo = Demo::scripted([ask]).runner().on(host.unwrap());
        lab.parts(Arc::new(demo), takopi_bridge::Settings::default())
    };
    let bot = lab.run(parts()).await;
    lab.fake.write(CHAT, ALICE, "one");
    lab.fake.offers(CHAT, "Accept").await;
    let diff = lab.fake.shows(CHAT, "demo-00000000").await;
    assert!(
        diff.text.ends_with("ctx: web @topic\n takopi run --engine demo --resume demo-00000000")
    );
    bot.stop().await;
    let bot = lab.run(parts()).await;
    let reply = lab.fake.reply(CHAT, ALICE, diff.id, "two");
    lab.fake
        .until("the second request", |fake| {
            let mut shown = fake.messages(ALICE).into_iter();
            shown.find(|it| it.by_bot && it.id > reply && it.text.contains("demo-00000000"))
        })
        .await;
    bot.stop().await;
    assert!(!branch.exists());
}

#[tokio::test]
async fn a_file_is_fetched_from_where_the_answer_ran_after_a_restart() {
    let (lab, branch) = Lab::with_branch();
    let bot = lab.bot().await;
    lab.fake.write(CHAT, ALICE, "/web @topic hello");
    let answer = lab.fake.shows(CHAT, "You said: hello").await;
    bot.stop().await;
    std::fs::write(branch.join("only-here"), "x").unwrap();
    let bot = lab.bot().await;
    // The second is no reply: it is fetched from where the last message of the chat ran.
    lab.fake.reply(CHAT, ALICE, answer.id, "/file get only-here");
    lab.fake.write(CHAT, ALICE, "/file get only-here");
    lab.fake
        .until("the files", |fake| {
            let files = fake.messages(ALICE).into_iter().filter(|it| it.file.is_some());
            (files.count() == 2).then_some(())
        })
        .await;
    bot.stop().await;
}

#[tokio::test]
async fn the_settings_of_a_project_are_those_for_its_engine_after_a_restart() {
    for mode in ["replies", "chat"] {
        let mut lab = Lab::new().with("mode", mode);
        let mut project = Project::new("web", lab.work());
        project.engine = Some("demo".to_owned());
        project.settings = RunSettings::new().model("big").effort("high");
        lab.projects.add(project);
        let models = Arc::new(Mutex::new(Vec::new()));
        let parts = || {
            let seen = models.clone();
            let settings = takopi_bridge::Settings::default()
                .approvals(|_| Arc::new(takopi_core::approvals::deny()))
                .requests(move |message, request| {
                    let context = message.context.clone().unwrap_or_default();
                    seen.lock().unwrap().push(context.settings.model);
                    request
                });
            lab.parts_with_another_default(settings)
        };
        let bot = lab.run(parts()).await;
        lab.fake.write(CHAT, ALICE, "/web one");
        let answer = lab.fake.shows(CHAT, "You said: one").await;
        bot.stop().await;
        let bot = lab.run(parts()).await;
        match mode {
            "replies" => lab.fake.reply(CHAT, ALICE, answer.id, "two"),
            _ => lab.fake.write(CHAT, ALICE, "two"),
        };
        lab.fake.shows(CHAT, "You said: two").await;
        bot.stop().await;
        let big = Some("big".to_owned());
        assert_eq!(*models.lock().unwrap(), [big.clone(), big], "{mode}");
    }
}

#[tokio::test]
async fn a_press_on_an_unknown_message_delays_nobody() {
    let lab = Lab::new();
    // Of a message that a bot before this one sent.
    lab.fake.press_data(ALICE, 1000, "cancel", ALICE);
    lab.fake.write(Room::chat(BOB), BOB, "hello");
    let bot = lab.bot().await;
    lab.fake.shows(Room::chat(BOB), "You said: hello").await;
    let answered = lab.fake.calls().iter().any(|call| call.method == "answerCallbackQuery");
    assert!(!answered, "it waits for the message to be known");
    bot.crash().await;
}
