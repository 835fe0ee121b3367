//! Turns of a shared app-server that begin late, or never: a run that was stopped meanwhile leaves no
//! turn behind, and its neighbours never notice.
use std::path::Path;
use std::time::Duration;

use serde_json::{Value, json};
use takopi_core::{ActionKind, Runner};
use takopi_tests::codex::fake::{Server, Step, turn};
use takopi_tests::codex::lab::Lab;
use takopi_tests::runs::{Seen, finish, run};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::neighbours::{Neighbour, server, shared, shared_within};

/// The turn of a run that has ended is interrupted beside its neighbour, and the session goes on when
/// the server is replaced.
async fn is_interrupted(runner: &dyn Runner, lab: &Lab, neighbour: Neighbour, victim: &Seen) {
    let interrupt = lab.control.call("turn/interrupt").await.message;
    assert_eq!(interrupt["params"]["threadId"], victim.session().value);
    assert_ne!(interrupt["params"]["turnId"], "");
    lab.control.reached("cleaned").await;
    neighbour.ends_undisturbed(lab).await;
    let again = lab.request("other prompt").resume(victim.session());
    assert_eq!(run(runner, again).await.ok().answer, "here");
    assert_eq!(lab.control.starts().len(), 2);
    assert_eq!(lab.control.overlaps(), Vec::<String>::new());
}

/// Reports that the background terminals of a thread were ended.
fn reports_cleaning(server: Server) -> Server {
    server.always("thread/backgroundTerminals/clean", [Step::Reply, Step::reached("cleaned")])
}

#[tokio::test]
async fn a_turn_that_begins_after_its_cancelled_run_has_ended_is_interrupted() {
    let late = [Step::reached("requested"), Step::gate("reply")]
        .into_iter()
        .chain(turn::opened([Step::SleepForever]));
    let lab = Lab::new(reports_cleaning(server().when("turn/start", "victim", late)).script());
    let runner = shared(&lab);
    let neighbour = Neighbour::start(&runner, &lab).await;
    let cancel = CancellationToken::new();
    let victim = runner.run(lab.request("victim").cancel(cancel.clone()));
    lab.control.reached("requested").await;
    cancel.cancel();
    let victim = finish(victim, Vec::new()).await;
    victim.failed("interrupted");
    assert_eq!(lab.control.calls("turn/interrupt").len(), 0, "there is no turn to interrupt yet");
    lab.control.open("reply");
    is_interrupted(&runner, &lab, neighbour, &victim).await;
    runner.shutdown().await;
    lab.assert_nothing_left().await;
}

/// Lets every task of this runtime do what it can without a message of the server or a timer.
async fn let_others_go_on() {
    for _ in 0..1000 {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn a_turn_that_begins_after_its_cancelled_run_has_ended_is_interrupted_whatever_the_limit() {
    let late = [Step::reached("requested"), Step::gate("reply")]
        .into_iter()
        .chain(turn::opened([Step::SleepForever]));
    let server = reports_cleaning(server().when("turn/start", "victim", late));
    let lab = Lab::new(server.script()).on_this_runtime();
    let runner = shared_within(&lab, Duration::from_hours(1));
    let neighbour = Neighbour::start(&runner, &lab).await;
    let cancel = CancellationToken::new();
    let victim = runner.run(lab.request("victim").cancel(cancel.clone()));
    lab.control.reached("requested").await;
    // From here on time passes only while nothing else happens.
    tokio::time::pause();
    cancel.cancel();
    let victim = finish(victim, Vec::new()).await;
    tokio::time::resume();
    victim.failed("interrupted");
    lab.control.open("reply");
    is_interrupted(&runner, &lab, neighbour, &victim).await;
    runner.shutdown().await;
    lab.assert_nothing_left().await;
}

#[tokio::test]
async fn a_cancelled_turn_that_begins_late_and_does_not_end_has_one_limit_for_both() {
    let late = [Step::reached("requested"), Step::gate("reply")]
        .into_iter()
        .chain(turn::opened([Step::SleepForever]));
    let server = server()
        .when("turn/start", "victim", late)
        .always("turn/interrupt", [Step::gate("interrupt"), Step::Reply, Step::Interrupt]);
    let lab = Lab::new(reports_cleaning(server).script()).on_this_runtime();
    let response = Duration::from_secs(30);
    let runner = shared_within(&lab, response);
    let neighbour = Neighbour::start(&runner, &lab).await;
    let cancel = CancellationToken::new();
    let victim = runner.run(lab.request("victim").cancel(cancel.clone()));
    lab.control.reached("requested").await;
    tokio::time::pause();
    let cancelled = Instant::now();
    cancel.cancel();
    let_others_go_on().await;
    tokio::time::advance(response.saturating_sub(Duration::from_secs(1))).await;
    lab.control.open("reply");
    lab.control.call("turn/interrupt").await;
    let victim = finish(victim, Vec::new()).await;
    let waited = cancelled.elapsed();
    tokio::time::resume();
    victim.failed("interrupted");
    assert!(response <= waited && waited < response * 3 / 2, "{waited:?}");
    lab.control.open("interrupt");
    // The turn is not left to its server.
    is_interrupted(&runner, &lab, neighbour, &victim).await;
    runner.shutdown().await;
    lab.assert_nothing_left().await;
}

#[tokio::test]
async fn a_turn_whose_reply_cannot_be_read_is_interrupted_when_it_is_known() {
    let reply = Step::ReplyWith(json!({"turn": {"id": 7}}));
    let unreadable = [reply, Step::gate("begin"), turn::started(), Step::SleepForever];
    let server = reports_cleaning(server().when("turn/start", "victim", unreadable));
    let lab = Lab::new(server.script());
    let runner = shared(&lab);
    let neighbour = Neighbour::start(&runner, &lab).await;
    let victim = run(&runner, lab.request("victim")).await;
    victim.failed("protocol");
    lab.control.open("begin");
    is_interrupted(&runner, &lab, neighbour, &victim).await;
    runner.shutdown().await;
    lab.assert_nothing_left().await;
}

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
async fn a_turn_that_goes_on_though_it_was_reported_as_aborted_is_interrupted() {
    let aborted = turn::aborted_message("m1").into_iter().chain([Step::SleepForever]);
    let lab = Lab::new(server().turns_when("victim", aborted).script());
    let runner = shared(&lab);
    let neighbour = Neighbour::start(&runner, &lab).await;
    let victim = run(&runner, lab.request("victim")).await;
    victim.failed("interrupted");
    let interrupts = lab.control.calls("turn/interrupt");
    assert_eq!(interrupts.len(), 1);
    assert_eq!(interrupts[0].message["params"]["threadId"], victim.session().value);
    let again = lab.request("other prompt").resume(victim.session());
    assert_eq!(run(&runner, again).await.ok().answer, "here");
    neighbour.ends_undisturbed(&lab).await;
    assert_eq!(lab.control.starts().len(), 1, "it answered the interrupt");
    assert_eq!(lab.control.overlaps(), Vec::<String>::new());
    runner.shutdown().await;
    lab.assert_nothing_left().await;
}

#[tokio::test]
async fn a_turn_that_ends_behind_an_aborted_message_costs_no_server() {
    let aborted = turn::aborted_message("m1").into_iter().chain([turn::completed()]);
    let lab = Lab::new(server().turns_when("victim", aborted).script());
    let runner = shared(&lab);
    let victim = run(&runner, lab.request("victim")).await;
    victim.failed("interrupted");
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
