//! A Claude Code that prints what it should not: junk, floods, other sessions, results of other turns.

use std::time::Duration;

use serde_json::{Value, json};
use takopi_core::{ActionKind, Runner, TakopiEvent};
use takopi_tests::claude::fake::{Process, Script, Step, turn};
use takopi_tests::claude::lab::{Lab, session};
use takopi_tests::runs::{Seen, finish, is_started, run, until};

use super::LONG;

const MIB: usize = 1024 * 1024;
const OTHER: &str = "01a1e21b-ffff-4eb0-9d27-459e98f10b74";

/// One run on a process that is not kept, and nothing left behind it.
async fn one_run(process: Process) -> Seen {
    one_resumed(process, false).await
}

async fn one_resumed(process: Process, resumes: bool) -> Seen {
    let lab = Lab::new(process);
    let runner = lab.runner(Duration::ZERO);
    let seen = run(&runner, lab.request("hi").resume(resumes.then(session))).await;
    runner.shutdown().await;
    lab.assert_nothing_left().await;
    seen
}

fn warnings(seen: &Seen) -> Vec<String> {
    seen.done(&ActionKind::Warning).iter().map(|it| it.action.title.clone()).collect()
}

fn turn_of(steps: impl IntoIterator<Item = Step>, answer: &str) -> Process {
    Process::new().turns(steps.into_iter().chain(turn::answer(answer)))
}

#[tokio::test]
async fn junk_is_shown_three_times_counted_and_passed_over() {
    let junk = (0..7).map(|n| Step::line(format!("junk {n}")));
    let seen = one_run(turn_of(junk, "Hello.")).await;
    assert_eq!(seen.ok().answer, "Hello.");
    assert_eq!(
        warnings(&seen),
        ["not JSON: junk 0", "not JSON: junk 1", "not JSON: junk 2", "4 more lines were not JSON"]
    );
}

#[tokio::test]
async fn what_is_no_message_is_passed_over() {
    let noise = vec![
        Step::raw(*b"\n\n \n\xff\xfe\n"),
        Step::line("[]"),
        Step::line("{}"),
        Step::line("null"),
        Step::line(r#"{"type":42}"#),
        Step::line(r#"{"type":"from_the_future","session_id":"$SESSION"}"#),
        Step::line(r#"{"type":"system","subtype":"from_the_future"}"#),
        Step::line(r#"{"type":"assistant","message":null}"#),
        Step::line(r#"{"type":"assistant","message":{"content":[null,{"type":"tool_use"}]}}"#),
        Step::line(r#"{"type":"user","message":{"content":42}}"#),
        Step::line(r#"{"type":"control_response","response":{"request_id":"none"}}"#),
        Step::line(r#"{"type":"control_response"}"#),
        Step::line(r#"{"type":"control_cancel_request","request_id":"none"}"#),
        Step::line(r#"{"type":"command_lifecycle"}"#),
        turn::keep_alive(),
        turn::flood(2000),
        Step::FloodStderr(8 * MIB),
    ];
    let process = turn_of(noise.clone(), "Hello.").first(noise);
    assert_eq!(one_run(process).await.ok().answer, "Hello.");
}

#[tokio::test]
async fn a_notice_is_shown_without_credentials() {
    let content = json!({ "content": "401: Bearer sk-abc123def456 refused" });
    let seen = one_run(turn_of([turn::system("informational", &content)], "Hello.")).await;
    assert_eq!(seen.ok().answer, "Hello.");
    let notes = seen.done(&ActionKind::Note);
    assert_eq!(notes[0].action.title, "401: Bearer [redacted] refused", "{notes:#?}");
}

#[tokio::test]
async fn a_credential_at_the_end_of_what_is_shown_of_an_error_is_not_shown_in_part() {
    // A detail has at most 8 KiB and an ellipsis.
    let begin = " postgres://app:hunter";
    let error = format!("{}{begin}2@db/main", ".".repeat(8 * 1024 - 3 - begin.len()));
    let calls = [
        turn::tool("m", "mcp__lab__echo", &json!({})),
        turn::tool_failed("m", &error),
        turn::bash("b", "psql"),
        turn::tool_failed("b", &error),
    ];
    let seen = one_run(turn_of(calls, "Hello.")).await;
    assert_eq!(seen.ok().answer, "Hello.");
    let failed = [seen.done(&ActionKind::Tool)[0], seen.done(&ActionKind::Command)[0]];
    assert!(failed.iter().all(|it| it.message.as_ref().is_some_and(|it| it.ends_with('…'))));
    let all = serde_json::to_string(&seen.events).unwrap();
    assert!(!all.contains("hunter"), "{failed:#?}");
}

#[tokio::test]
async fn a_line_that_is_too_long_is_skipped_and_shown() {
    let seen = one_run(turn_of([turn::huge_text(70 * MIB)], "Hello.")).await;
    assert_eq!(seen.ok().answer, "Hello.");
    let shown = warnings(&seen);
    assert!(shown.len() == 1 && shown[0].contains("too long"), "{shown:?}");
    // One that is just long is read.
    let seen = one_run(Process::new().turns([
        turn::huge_text(20 * MIB),
        turn::result("long"),
        turn::lifecycle("completed"),
        turn::idle(),
    ]))
    .await;
    assert!(seen.ok().answer.len() > 19 * MIB);
}

#[tokio::test]
async fn a_request_that_cannot_be_read_is_refused_under_its_id() {
    let long = r#"{"type":"control_request","request_id":"long","request":{"subtype":"can_use_tool","x":""#;
    let odd = [
        Step::line(
            r#"{"type":"control_request","request_id":7,"request":{"subtype":"can_use_tool"}}"#,
        ),
        Step::line(r#"{"type":"control_request","request_id":"bare"}"#),
        Step::line(r#"{"type":"control_request"}"#),
        Step::huge(long, r#""}}"#, 70 * MIB),
        Step::gate("answered"),
    ];
    let lab = Lab::new(turn_of(odd, "Hello."));
    let runner = lab.runner(Duration::ZERO);
    let stream = runner.run(lab.request("hi"));
    for id in [json!(7), json!("bare"), json!("long")] {
        let refused = || {
            let sent = lab.control.sent(0).into_iter();
            let mut responses = sent.filter(|it| it["response"]["request_id"] == id);
            responses.any(|it| it["response"]["subtype"] == "error")
        };
        lab.home.wait_until(refused, "a refusal").await;
    }
    lab.control.open("answered");
    let seen = finish(stream, Vec::new()).await;
    assert_eq!(seen.ok().answer, "Hello.");
    assert_eq!(warnings(&seen).len(), 3, "{:?}", warnings(&seen));
    runner.shutdown().await;
    lab.assert_nothing_left().await;
}

#[tokio::test]
async fn a_result_that_cannot_be_read_ends_the_run_as_protocol() {
    let long = Step::huge(r#"{"type":"result","subtype":"success","result":""#, r#""}"#, 70 * MIB);
    let broken = Step::line(r#"{"type":"result", broken"#);
    // Of many lines that cannot be read, only the first are shown.
    let junk = std::iter::repeat_n(Step::line("junk"), 5);
    let behind_junk = junk.chain([broken.clone()]).collect::<Vec<_>>();
    for result in [vec![long], vec![broken], behind_junk] {
        let steps = [turn::text("so far")].into_iter().chain(result);
        let end = [turn::lifecycle("completed"), turn::idle()];
        let seen = one_run(Process::new().turns(steps.chain(end))).await;
        assert_eq!(seen.failed("protocol").answer, "so far");
    }
}

#[tokio::test]
async fn a_turn_that_ends_without_a_result_was_interrupted() {
    let steps = [turn::text("so far"), turn::lifecycle("cancelled"), turn::idle()];
    let seen = one_run(Process::new().turns(steps)).await;
    assert_eq!(seen.failed("interrupted").answer, "so far");
}

#[tokio::test]
async fn a_flood_behind_a_slow_consumer_waits_and_loses_nothing() {
    const CALLS: usize = 10_000;
    let calls = (0..CALLS).flat_map(|n| {
        let id = format!("t{n:05}");
        [turn::bash(&id, "ls"), turn::tool_result(&id, "")]
    });
    let calls = calls.chain([Step::reached("flooded")]).chain(turn::answer("done"));
    let lab = Lab::new(Process::new().turns_when("many", calls).turns(turn::answer("meanwhile")));
    let runner = lab.runner(Duration::ZERO).buffer(16, 64 * 1024);
    let mut stream = runner.run(lab.request("many"));
    let first = until(&mut stream, "Started", is_started).await;
    // Time for the buffers to fill: a whole run goes by.
    run(&runner, lab.request("else")).await.ok();
    assert_eq!(lab.control.marks("flooded").len(), 0, "the process waits: memory is bounded");
    let seen = finish(stream, first).await;
    assert_eq!(seen.ok().answer, "done");
    let ids: Vec<_> =
        seen.done(&ActionKind::Command).iter().map(|it| it.action.id.clone()).collect();
    assert_eq!(ids.len(), CALLS);
    assert!(ids.is_sorted());
    runner.shutdown().await;
    lab.assert_nothing_left().await;
}

#[tokio::test]
async fn a_process_that_opens_another_session_is_protocol_and_its_token_is_never_given() {
    let other = json!({ "session_id": OTHER });
    let result = vec![turn::text("x"), turn::result_with("x", &other), turn::idle()];
    let reset = vec![turn::reset(OTHER), turn::text("x"), turn::result("x"), turn::idle()];
    for (what, process, is_started_before) in [
        ("in all lines", Process::new().session(OTHER), false),
        ("in the result", Process::new().turns(result), true),
        ("by a reset", Process::new().turns(reset), true),
    ] {
        for resumes in [false, true] {
            let seen = one_resumed(process.clone(), resumes).await;
            let end = seen.failed("protocol");
            assert_eq!(seen.events.iter().any(is_started), is_started_before, "{what}");
            let tokens =
                end.resume.iter().chain(seen.events.iter().filter_map(|event| match event {
                    TakopiEvent::Started(started) => Some(&started.resume),
                    _ => None,
                }));
            for token in tokens {
                assert_ne!(token.value, OTHER, "{what}");
            }
            assert_eq!(end.resume.is_some(), resumes || is_started_before, "{what}: {end:?}");
        }
    }
}

#[tokio::test]
async fn an_unknown_session_is_never_silently_a_new_one() {
    let lab = Lab::new(takopi_tests::claude::fake::unknown_session());
    let runner = lab.runner(LONG);
    let seen = run(&runner, lab.request("hi").resume(session())).await;
    assert_eq!(seen.failed("session_not_found").resume, Some(session()));
    assert!(!seen.events.iter().any(is_started));
    assert_eq!(lab.control.starts().len(), 1);
    runner.shutdown().await;
    lab.assert_nothing_left().await;
}

/// The lines of a turn that nobody asked for, or of somebody else's.
fn foreign_turn(fields: &Value) -> Vec<Step> {
    vec![turn::init(), turn::text("stale"), turn::result_with("stale", fields), state("idle")]
}

/// A state as a line: the turn of the fake goes on.
fn state(name: &str) -> Step {
    turn::system("session_state_changed", &json!({ "state": name }))
}

#[tokio::test]
async fn the_result_of_a_turn_that_nobody_asked_for_or_of_another_message_does_not_end_the_run() {
    let unasked = json!({"origin": {"kind": "task-notification"}, "user_message_uuids": null});
    for fields in [unasked, json!({"user_message_uuids": ["somebody else's"]})] {
        let own = [state("running"), turn::lifecycle("started"), turn::init()];
        let steps = [turn::running(), turn::lifecycle("queued")]
            .into_iter()
            .chain(foreign_turn(&fields))
            .chain(own)
            .chain(turn::answer("fresh"));
        let seen = one_run(Process::new().always("user", steps)).await;
        assert_eq!(seen.ok().answer, "fresh", "{fields}");
    }
}

#[tokio::test]
async fn a_late_result_of_an_earlier_run_is_not_that_of_the_next() {
    let late = [Step::gate("late"), turn::result("late"), Step::reached("printed")];
    let waiting = turn::opened([Step::reached("begun"), Step::gate("go")]);
    let process = Process::new()
        .turn(turn::answer("one").into_iter().chain(late))
        .once("user", waiting.into_iter().chain(turn::answer("two")));
    let lab = Lab::new(process);
    let runner = lab.runner(LONG);
    let one = run(&runner, lab.request("one")).await;
    assert_eq!(one.ok().answer, "one");
    let stream = runner.run(lab.request("two").resume(one.session()));
    lab.control.reached("begun").await;
    lab.control.open("late");
    lab.control.reached("printed").await;
    lab.control.open("go");
    assert_eq!(finish(stream, Vec::new()).await.ok().answer, "two");
    assert_eq!(lab.control.starts().len(), 1);
    runner.shutdown().await;
    lab.assert_nothing_left().await;
}

#[tokio::test]
async fn a_turn_between_two_runs_touches_neither() {
    let between = turn::unasked("between", "It ended.").into_iter();
    let between = between.chain([Step::reached("between")]);
    let process = Process::new()
        .turn(turn::answer("one").into_iter().chain(between))
        .turns(turn::answer("two"));
    let lab = Lab::new(process);
    let runner = lab.runner(LONG);
    let one = run(&runner, lab.request("one")).await;
    assert_eq!(one.ok().answer, "one");
    lab.control.open("between");
    lab.control.reached("between").await;
    let two = run(&runner, lab.request("two").resume(one.session())).await;
    assert_eq!(two.ok().answer, "two");
    assert_eq!(lab.control.starts().len(), 1);
    runner.shutdown().await;
    lab.assert_nothing_left().await;
}

#[tokio::test]
async fn a_run_that_comes_into_an_unasked_turn_ends_with_its_own() {
    let origin = json!({"origin": {"kind": "task-notification"}, "user_message_uuids": null});
    let unasked = [
        Step::gate("wake"),
        turn::running(),
        turn::init(),
        turn::text("It ended."),
        Step::reached("woken"),
        Step::gate("go"),
        turn::result_with("It ended.", &origin),
        turn::idle(),
        Step::reached("unasked is over"),
    ];
    let own = [
        turn::lifecycle("queued"),
        Step::reached("queued"),
        Step::gate("own"),
        turn::running(),
        turn::lifecycle("started"),
        turn::init(),
        turn::text("two"),
        turn::result_with("two", &json!({"user_message_uuids": ["$MESSAGE"]})),
        turn::idle(),
    ];
    let process = Process::new().turn(turn::answer("one").into_iter().chain(unasked));
    let lab = Lab::new(process.always("steer", own));
    let runner = lab.runner(LONG);
    let one = run(&runner, lab.request("one")).await;
    lab.control.open("wake");
    lab.control.reached("woken").await;
    let stream = runner.run(lab.request("two").resume(one.session()));
    lab.control.reached("queued").await;
    lab.control.open("go");
    lab.control.reached("unasked is over").await;
    lab.control.open("own");
    let two = finish(stream, Vec::new()).await;
    assert_eq!(two.ok().answer, "two");
    runner.shutdown().await;
    lab.assert_nothing_left().await;
}

#[tokio::test]
async fn results_of_older_releases_end_the_run_with_and_without_states() {
    let unnamed = || turn::result_with("Hello.", &json!({"user_message_uuids": null}));
    // Half a year old: states, and how far a message is.
    let steps = [turn::text("Hello."), unnamed(), turn::lifecycle("completed"), turn::idle()];
    let seen = one_run(Process::new().turns(steps)).await;
    assert_eq!(seen.ok().answer, "Hello.");
    // A year old: neither. The process then stays as it is.
    let steps = [turn::init(), turn::text("Hello."), unnamed(), turn::idle()];
    let old = Process::new().without_states().always("user", steps);
    let lab = Lab::new(Script::from(old).version("2.0.45")).unknown();
    let runner = lab.runner(LONG);
    let one = run(&runner, lab.request("one")).await;
    assert_eq!(one.ok().answer, "Hello.");
    let two = run(&runner, lab.request("two").resume(one.session())).await;
    assert_eq!(two.ok().answer, "Hello.");
    assert_eq!(lab.control.starts().len(), 1, "warm all the same");
    runner.shutdown().await;
    lab.assert_nothing_left().await;
}

#[tokio::test]
async fn calls_left_open_are_closed_at_the_end_and_late_ones_are_ignored() {
    let steps = [turn::bash("late", "sleep 9")].into_iter().chain(turn::answer("done"));
    let late = [turn::tool_result("late", "too late")];
    let seen = one_run(Process::new().turns(steps.chain(late))).await;
    assert_eq!(seen.ok().answer, "done");
    let commands = seen.actions(&ActionKind::Command);
    assert_eq!(commands.len(), 2, "{commands:?}");
    assert_ne!(commands[1].ok, Some(true), "it is not known how it ended");
}
