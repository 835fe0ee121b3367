//! Turns of a shared app-server that are stopped: nothing is left of them, and their neighbours never notice.
use std::path::Path;

use serde_json::{Value, json};
use takopi_core::{ActionKind, Runner};
use takopi_tests::codex::fake::{Step, turn};
use takopi_tests::codex::lab::Lab;
use takopi_tests::runs::{finish, run};
use tokio_util::sync::CancellationToken;

use super::neighbours::{Neighbour, server, shared};

#[tokio::test]
async fn a_run_that_is_stopped_before_its_prompt_was_sent_sends_none() {
    let opening = [Step::reached("opening"), Step::gate("open"), Step::Reply];
    let lab = Lab::new(server().when("thread/start", "victim-directory", opening).script());
    let runner = shared(&lab);
    let neighbour = Neighbour::start(&runner, &lab).await;
    let directory = tempfile::Builder::new().prefix("victim-directory").tempdir().unwrap();
    let schema = directory.path().join("schema.json");
    std::fs::write(&schema, "{}").unwrap();
    let cancel = CancellationToken::new();
    let mut request = lab.request("victim").cwd(directory.path()).cancel(cancel.clone());
    request.settings.output_schema = Some(schema.clone());
    let victim = runner.run(request);
    lab.control.reached("opening").await;
    // A pipe, so that the run waits for its schema after it has a session.
    let writer = pipe_at(&schema);
    lab.control.open("open");
    let writer = writer.await.unwrap();
    cancel.cancel();
    // A whole run in between: the cancel has reached the victim by then.
    run(&runner, lab.request("other")).await.ok();
    std::io::Write::write_all(&mut &writer, b"{}").unwrap();
    drop(writer);
    finish(victim, Vec::new()).await.failed("interrupted");
    let prompts = lab.control.calls("turn/start").into_iter();
    let sent = prompts.filter(|call| call.message.to_string().contains("victim")).count();
    assert_eq!(sent, 0);
    neighbour.ends_undisturbed(&lab).await;
    assert_eq!(lab.control.starts().len(), 1);
    runner.shutdown().await;
    lab.assert_nothing_left().await;
}

/// Puts a pipe in the place of a file. Its writing end is there when somebody reads.
fn pipe_at(file: &Path) -> tokio::task::JoinHandle<std::fs::File> {
    std::fs::remove_file(file).unwrap();
    assert!(std::process::Command::new("mkfifo").arg(file).status().unwrap().success());
    let file = file.to_owned();
    tokio::task::spawn_blocking(move || std::fs::OpenOptions::new().write(true).open(file).unwrap())
}

#[tokio::test]
async fn an_interrupt_that_is_answered_with_null_leaves_the_server_usable() {
    let script = server()
        .turns_when("victim", [Step::reached("working"), Step::SleepForever])
        .always("turn/interrupt", [Step::ReplyWith(Value::Null), Step::Interrupt])
        .script();
    let lab = Lab::new(script);
    let runner = shared(&lab);
    let neighbour = Neighbour::start(&runner, &lab).await;
    let cancel = CancellationToken::new();
    let victim = runner.run(lab.request("victim").cancel(cancel.clone()));
    lab.control.reached("working").await;
    cancel.cancel();
    let victim = finish(victim, Vec::new()).await;
    victim.failed("interrupted");
    neighbour.ends_undisturbed(&lab).await;
    let again = lab.request("other prompt").resume(victim.session());
    assert_eq!(run(&runner, again).await.ok().answer, "here");
    assert_eq!(lab.control.starts().len(), 1);
    runner.shutdown().await;
    lab.assert_nothing_left().await;
}

#[tokio::test]
async fn a_late_request_of_a_known_sub_agent_is_declined_and_warns_no_neighbour() {
    const CHILD: &str = "01a1e21b-0000-7eb0-9d27-459e98f10b74";
    let child = json!({"thread": {"id": CHILD, "parentThreadId": "$THREAD"}});
    let late = turn::elsewhere(CHILD, "child-turn", [turn::ask_command("q", "c", "ls")]);
    let steps = [Step::notify("thread/started", child)].into_iter();
    let steps = steps.chain(turn::answer("done")).chain(late);
    let lab = Lab::new(server().turns_when("parent", steps).script());
    let runner = shared(&lab);
    let neighbour = Neighbour::start(&runner, &lab).await;
    run(&runner, lab.request("parent")).await.ok();
    let answer = lab.control.answer("q").await;
    assert_eq!(answer["result"], json!({"decision": "decline"}));
    let seen = neighbour.ends_undisturbed(&lab).await;
    assert_eq!(seen.done(&ActionKind::Warning).len(), 0, "{:#?}", seen.events);
    runner.shutdown().await;
    lab.assert_nothing_left().await;
}
