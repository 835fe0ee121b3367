//! `takopi telegram` with the real codex: the binary, a fake Bot API, a scripted model.

use std::process::Command;

use nix::sys::signal::Signal;
use serde_json::json;
use takopi_tests::model::{Answer, Gate};
use takopi_tests::telegram::{FakeTelegram, Room, TOKEN};

use super::lab::Lab;

const ALICE: i64 = 11;
const CHAT: Room = Room { chat: ALICE, topic: None };
/// An image of one pixel.
const PNG: &[u8] = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR\0\0\0\x01\0\0\0\x01\x08\x06\0\0\0\x1f\x15\xc4\x89\0\0\0\rIDATx\x9cc\xf8\xcf\xc0\xf0\x1f\0\x05\0\x01\xff\x89\x99=\x1d\0\0\0\0IEND\xaeB`\x82";

fn git(directory: &std::path::Path, args: &[&str]) {
    let identity = ["-c", "user.name=T", "-c", "user.email=t@example.org"];
    let done = Command::new("git").arg("-C").arg(directory).args(identity).args(args).status();
    assert!(done.unwrap().success());
}

#[tokio::test(flavor = "multi_thread")]
async fn an_approval_an_image_and_a_restart_in_a_run_on_a_branch() {
    let Some(lab) = Lab::asking() else { return };
    let arguments = json!({
        "cmd": "echo hello > written.txt",
        "sandbox_permissions": "require_escalated",
        "justification": "to write",
    });
    lab.model
        .when("write it", [Answer::new().call("exec_command", arguments), Answer::text("written")]);
    let gate = Gate::new();
    lab.model.when("slowly", [Answer::new().started().wait_for(&gate).message("never")]);
    lab.model.when("go on", [Answer::text("after the restart")]);
    let web = lab.home.workspace();
    git(&web, &["init", "--quiet", "-b", "main"]);
    git(&web, &["commit", "--quiet", "--allow-empty", "-m", "first"]);
    let fake = FakeTelegram::start();
    let config = lab.home.root().join("telegram.toml");
    let (service, path) = (fake.url(), web.to_str().unwrap());
    let text = format!(
        "[telegram]\ntoken = {TOKEN:?}\nservice = {service:?}\nallowed_users = [{ALICE}]\n\
         [projects.web]\npath = {path:?}\n"
    );
    std::fs::write(&config, text).unwrap();
    let args = ["--config", config.to_str().unwrap(), "telegram"];
    let mut running = lab.start(&args);
    running.wait_for("the bot is running").await;

    // An image goes with the prompt; the approval is given by a button.
    let photo = json!([{ "file_id": fake.add_file("photo", PNG) }]);
    let fields = json!({ "photo": photo, "caption": "/web @fix/parser write it" });
    fake.receive(CHAT, ALICE, fields);
    let question = fake.offers(CHAT, "Accept").await;
    assert!(question.text.contains("echo hello > written.txt"), "{}", question.text);
    fake.press(ALICE, question.id, "Accept", ALICE);
    let answer = fake.shows(CHAT, "written\n").await;
    assert!(answer.text.contains("ctx: web @fix/parser\ncodex resume "), "{}", answer.text);
    let request = lab.model.requests_about("write it").remove(0);
    assert!(request.body.to_string().contains("input_image"), "{}", request.body);
    let worktrees: Vec<_> = std::fs::read_dir(web.join(".worktrees")).unwrap().collect();
    let worktree = worktrees[0].as_ref().unwrap().path();
    assert!(worktree.join("written.txt").exists() && worktree.join("incoming/photo.jpg").exists());

    // A signal in a run: it is cancelled in the chat, and no process is left.
    fake.reply(CHAT, ALICE, answer.id, "slowly");
    gate.reached().await;
    fake.offers(CHAT, "Cancel").await;
    running.signal(Signal::SIGTERM);
    let ran = running.end().await;
    assert_eq!(ran.code, Some(0), "{ran:?}");
    assert!(!ran.stderr.contains("do-not-print"), "{ran:?}");
    lab.home.assert_no_processes().await;
    gate.open();
    assert!(fake.messages(ALICE).iter().all(|it| it.buttons.is_empty()));

    // The next process goes on in the session and on the branch, without the image.
    let mut running = lab.start(&args);
    running.wait_for("the bot is running").await;
    fake.reply(CHAT, ALICE, answer.id, "/nonsense go on");
    let next = fake.shows(CHAT, "after the restart").await;
    let footer = |text: &str| text.split_once("ctx: ").unwrap().1.to_owned();
    assert_eq!(footer(&next.text), footer(&answer.text));
    running.signal(Signal::SIGTERM);
    assert_eq!(running.end().await.code, Some(0));
    lab.home.assert_no_processes().await;
    assert_eq!(fake.refusals(), Vec::<String>::new());
}
