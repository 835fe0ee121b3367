//! A conversation with the real codex.

use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use serde_json::json;
use takopi_bridge::Settings;
use takopi_codex::Codex;
use takopi_codex::app_server::CodexAppServer;
use takopi_core::{EngineRunner, Host};
use takopi_telegram::bot::Parts;
use takopi_tests::codex::home::TestHome;
use takopi_tests::codex::real;
use takopi_tests::model::{Answer, Gate, ModelServer};
use takopi_tests::telegram::Room;

use crate::lab::{ALICE, BOB, GROUP, Lab};

fn parts(lab: &Lab, codex: &real::Codex, home: &TestHome) -> Parts {
    let host = Host::builder().state_directory(home.state()).build().unwrap();
    let engine = CodexAppServer::new(Codex::new().binary(&codex.path)).keep_warm(Duration::ZERO);
    let runner = EngineRunner::new(engine).on(host);
    let env = home.env();
    let settings = Settings::default().requests(move |_, mut request| {
        for (name, value) in &env {
            request = request.env(name, value);
        }
        request
    });
    let mut parts = lab.parts(Arc::new(runner), settings);
    parts.directory = home.workspace();
    parts
}

fn git(directory: &std::path::Path, args: &[&str]) {
    let identity = ["-c", "user.name=T", "-c", "user.email=t@example.org"];
    let done = Command::new("git").arg("-C").arg(directory).args(identity).args(args).status();
    assert!(done.unwrap().success());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_conversation_with_approvals_branches_topics_two_users_and_a_restart() {
    let Some(codex) = real::codex_or_skip() else { return };
    let model = ModelServer::start();
    let home =
        TestHome::builder(&model).approval_policy("on-request").sandbox_mode("read-only").build();
    let arguments = json!({
        "cmd": "echo hello > written.txt",
        "sandbox_permissions": "require_escalated",
        "justification": "to write",
    });
    model
        .when("write it", [Answer::new().call("exec_command", arguments), Answer::text("written")]);
    let long =
        format!("# All of it\n\n```rust\n{}```\n\nthe very end", "let x = \"*_`\";\n".repeat(2900));
    assert!(long.len() > 40_000);
    model.when("everything", [Answer::text(long)]);
    let gate = Gate::new();
    model.when("slowly", [Answer::new().started().wait_for(&gate).message("never")]);
    model.when("and in the topic", [Answer::text("from the topic")]);
    model.when("go on", [Answer::text("after the restart")]);

    let lab = Lab::new();
    let web = lab.work();
    git(&web, &["init", "--quiet", "-b", "main"]);
    git(&web, &["commit", "--quiet", "--allow-empty", "-m", "first"]);
    let lab = lab.project("web", &web);
    let bot = lab.run(parts(&lab, &codex, &home)).await;
    let (alice, bob, topic) = (Room::chat(ALICE), Room::chat(BOB), Room::topic(GROUP, 9));

    // Alone: with three first runs at once in a new home, two app-servers exited at `initialize`. The cause is
    // not known.
    lab.fake.write(topic, BOB, "@takopi_test_bot and in the topic");
    lab.fake.shows(topic, "from the topic").await;

    // An approval on a branch, decided by a button; at the same time another user.
    lab.fake.write(alice, ALICE, "/web @fix/parser write it");
    lab.fake.write(bob, BOB, "everything");
    let question = lab.fake.offers(alice, "Accept").await;
    assert!(question.text.contains("echo hello > written.txt"), "{}", question.text);
    lab.fake.press(ALICE, question.id, "Accept", ALICE);
    let answer = lab.fake.shows(alice, "written\n").await;
    assert!(answer.text.contains("ctx: web @fix/parser\ncodex resume "), "{}", answer.text);
    let worktrees: Vec<_> = std::fs::read_dir(web.join(".worktrees")).unwrap().collect();
    let worktree = worktrees[0].as_ref().unwrap().path();
    assert!(worktree.join("written.txt").exists());

    // An answer of 40 kB, in order and complete.
    lab.fake.shows(bob, "the very end").await;
    let parts_of_it: Vec<String> =
        lab.fake.messages(BOB).into_iter().filter(|it| it.by_bot).map(|it| it.text).collect();
    assert_eq!(parts_of_it.join("\n").matches("let x = \"*_`\";").count(), 2900);
    assert!(
        parts_of_it.len() > 10 && parts_of_it.iter().all(|it| it.encode_utf16().count() <= 4096)
    );

    // A run is cancelled by its button.
    lab.fake.write(bob, BOB, "slowly");
    let progress = lab.fake.offers(bob, "Cancel").await;
    lab.fake.press(BOB, progress.id, "Cancel", BOB);
    lab.fake.shows(bob, "cancelled by user12").await;
    gate.open();
    bot.stop().await;

    // After a restart a reply goes on in the session and on the branch.
    let bot = lab.run(parts(&lab, &codex, &home)).await;
    lab.fake.reply(alice, ALICE, answer.id, "/nonsense go on");
    let next = lab.fake.shows(alice, "after the restart").await;
    let footer = |text: &str| text.split_once("ctx: ").unwrap().1.to_owned();
    assert_eq!(footer(&next.text), footer(&answer.text));
    bot.stop().await;
    let refused: Vec<String> =
        lab.fake.refusals().into_iter().filter(|it| !it.contains("not modified")).collect();
    assert_eq!(refused, Vec::<String>::new());
}
