//! Faults that the real pi cannot be made to show.

use std::time::Duration;

use serde_json::{Value, json};
use takopi_core::runner::steer_channel;
use takopi_core::{ActionKind, Runner};
use takopi_tests::pi::fake::{
    Process, Script, Step, answer, answered, ask, command, line, message, run as begun, settled,
};
use takopi_tests::pi::lab::Lab;
use takopi_tests::runs::{Seen, finish, run};
use tokio_util::sync::CancellationToken;

use super::LONG;

const OTHER: &str = "01a1e443-1aa9-70f6-9a71-8421d061dced";

/// One run, behind which nothing is left.
async fn one_run(lab: &Lab) -> Seen {
    let runner = lab.runner(Duration::ZERO);
    let seen = run(&runner, lab.request("hi")).await;
    runner.shutdown().await;
    lab.assert_nothing_left().await;
    seen
}

/// How many prompts a process was sent.
fn prompts(lab: &Lab, start: usize) -> usize {
    lab.control.sent(start).iter().filter(|it| it["type"] == "prompt").count()
}

#[tokio::test]
async fn a_process_with_another_session_or_without_the_extension_gets_no_prompt() {
    for (process, reason) in [
        (Process::new().session(OTHER), "session_not_found"),
        (Process::new().unguarded(), "protocol"),
    ] {
        let lab = Lab::new(process);
        one_run(&lab).await.failed(reason);
        assert_eq!(prompts(&lab, 0), 0, "{reason}");
    }
}

#[tokio::test]
async fn a_pi_that_is_too_old_is_not_started() {
    let script = Script { version: Some("1.0.3".to_owned()), ..Process::new().into() };
    let lab = Lab::new(script).unknown();
    let seen = one_run(&lab).await;
    let error = seen.failed("engine_too_old").error.clone().unwrap();
    assert!(error.contains("this is pi 1.0.3, and takopi needs 1.1.0"), "{error}");
    assert_eq!(lab.control.starts().len(), 0);
}

#[tokio::test]
async fn a_process_that_dies_ends_the_run_with_what_it_said() {
    let dying = |steps: Vec<Step>| Process::new().always("prompt", begun(steps));
    let half = vec![message("half", "stop"), line(&json!({ "type": "agent_end" })), Step::Exit(0)];
    let seen = one_run(&Lab::new(dying(half))).await;
    assert_eq!(seen.failed("process_died").answer, "half", "agent_end is not the end");
    let open = vec![command("c", "ls"), Step::stderr("out of memory"), Step::Exit(7)];
    let seen = one_run(&Lab::new(dying(open))).await;
    seen.failed("process_died");
    assert_eq!(seen.done(&ActionKind::Command)[0].ok, Some(false), "what was open is closed");
    let warning = seen.done(&ActionKind::Warning)[0];
    assert!(warning.action.detail.get("stderr_tail").is_some(), "{warning:?}");
    let earlier = vec![Step::stderr("no api key found for x"), Step::Exit(1)];
    one_run(&Lab::new(dying(earlier))).await.failed("process_died");
    let never = Process::new().first([Step::stderr("no api key found for x"), Step::Exit(1)]);
    one_run(&Lab::new(never)).await.failed("auth");
}

#[tokio::test]
async fn a_warm_process_that_died_is_replaced_and_the_prompt_is_sent_once_more() {
    let first = Process::new().once("prompt", answer("one")).always("prompt", [Step::Exit(3)]);
    let lab = Lab::new([first, Process::new().always("prompt", answer("two"))]);
    let runner = lab.runner(LONG);
    let one = run(&runner, lab.request("one")).await;
    let two = run(&runner, lab.request("two").resume(one.session())).await;
    assert_eq!(two.ok().answer, "two");
    assert_eq!((prompts(&lab, 0), prompts(&lab, 1)), (2, 1));
    runner.shutdown().await;
    lab.assert_nothing_left().await;
}

#[tokio::test]
async fn a_warm_process_that_printed_anything_is_never_replaced() {
    let status = json!({
        "type": "extension_ui_request", "id": "s", "method": "setStatus",
        "statusKey": "other", "statusText": "works",
    });
    for printed in [
        line(&json!({ "type": "agent_start" })),
        line(&json!({ "type": "turn_start" })),
        line(&json!({ "type": "from_the_future" })),
        line(&status),
        Step::line("half a line"),
        Step::Reply,
    ] {
        let dies = [printed.clone(), Step::Exit(3)];
        let first = Process::new().once("prompt", answer("one")).always("prompt", dies);
        let lab = Lab::new([first, Process::new()]);
        let runner = lab.runner(LONG);
        let one = run(&runner, lab.request("one")).await;
        run(&runner, lab.request("two").resume(one.session())).await.failed("process_died");
        assert_eq!(prompts(&lab, 0), 2, "{printed:?}");
        assert_eq!(lab.control.starts().len(), 1, "{printed:?}");
        runner.shutdown().await;
        lab.assert_nothing_left().await;
    }
}

#[tokio::test]
async fn lines_that_cannot_be_read_never_end_a_run() {
    let odd = [
        Step::line("not json"),
        Step::line(""),
        Step::line("[1,2]"),
        Step::raw(b"\xff\xfe{\n".as_slice()),
        line(&json!({ "type": "from_the_future", "a": [1] })),
        line(&json!({ "type": "message_end", "message": "?" })),
        line(&json!({ "type": "tool_execution_end" })),
        line(&json!({ "type": "response", "id": "nobody", "success": true })),
        message("fine", "stop"),
        settled(false),
    ];
    let seen = one_run(&Lab::new(Process::new().always("prompt", begun(odd)))).await;
    assert_eq!(seen.ok().answer, "fine");
    assert_eq!(seen.done(&ActionKind::Warning).len(), 3, "{:?}", seen.outline());
}

/// Behind each such line stands a message that takopi answers: it has read the line then.
#[tokio::test]
async fn lines_that_cannot_be_read_before_a_run_are_warnings_in_it_and_no_beginning() {
    let ask = ask("between", "bash", &json!({ "command": "ls" }));
    let between = [Step::gate("between"), Step::line("of the time between"), ask];
    let process = Process::new().first([Step::line("of the start")]);
    let process = process.once("prompt", answer("one").into_iter().chain(between));
    let process = process.always("prompt", [Step::Exit(3)]);
    let lab = Lab::new([process, Process::new().always("prompt", answer("two"))]);
    let runner = lab.runner(LONG);
    let warnings = |seen: &Seen| -> Vec<String> {
        seen.done(&ActionKind::Warning).iter().map(|it| it.action.title.clone()).collect()
    };
    let one = run(&runner, lab.request("one")).await;
    assert_eq!(one.ok().answer, "one");
    assert_eq!(warnings(&one), ["not JSON: of the start"]);
    lab.control.open("between");
    let reply = || answered(&lab.control.sent(0), "between");
    lab.home.wait_until(|| reply().is_some(), "an answer").await;
    assert_eq!(reply().unwrap()["cancelled"], true);
    // The process dies of the prompt, which is sent again: the line came before it.
    let two = run(&runner, lab.request("two").resume(one.session())).await;
    assert_eq!(two.ok().answer, "two");
    assert_eq!(warnings(&two), ["not JSON: of the time between"]);
    runner.shutdown().await;
    lab.assert_nothing_left().await;
}

#[tokio::test]
async fn notices_do_not_keep_a_hung_run_alive() {
    let notices = (0..300).flat_map(|_| {
        [
            line(&json!({ "type": "extension_error", "error": "again" })),
            line(&json!({ "type": "from_the_future" })),
            Step::line("not JSON"),
            Step::Pause { millis: 100 },
        ]
    });
    let late = [message("too late", "stop"), settled(false)];
    let lab = Lab::new(Process::new().always("prompt", begun(notices.chain(late))));
    let request = lab.request("hi").idle_timeout(Duration::from_millis(900));
    run(&lab.runner(Duration::ZERO), request).await.failed("timeout_idle");
    lab.assert_nothing_left().await;
}

#[tokio::test]
async fn a_prompt_that_is_refused_or_taken_by_a_command_fails_the_run() {
    let refused = [Step::fail(0, "No API key found for mock.")];
    let seen = one_run(&Lab::new(Process::new().always("prompt", refused))).await;
    seen.failed("auth");
    let handled = [Step::ReplyWith(json!({ "disposition": "handled" }))];
    let seen = one_run(&Lab::new(Process::new().always("prompt", handled))).await;
    assert!(seen.failed("engine_failed").error.as_ref().unwrap().contains("took the prompt"));
}

#[tokio::test]
async fn a_failure_that_names_no_command_is_that_of_the_prompt() {
    let failure =
        json!({ "type": "response", "command": "parse", "success": false, "error": "boom" });
    let seen = one_run(&Lab::new(Process::new().always("prompt", [line(&failure)]))).await;
    assert_eq!(seen.failed("engine_failed").error.as_deref(), Some("boom"));
}

#[tokio::test]
async fn a_prompt_whose_response_is_lost_ends_when_pi_has_settled() {
    for unnamed in [None, Some(json!({ "type": "response", "success": true }))] {
        let begun = [line(&json!({ "type": "agent_start" }))].into_iter();
        let steps = begun.chain(unnamed.as_ref().map(line));
        let steps = steps.chain([message("done", "stop"), settled(false)]);
        let seen = one_run(&Lab::new(Process::new().always("prompt", steps))).await;
        assert_eq!(seen.ok().answer, "done");
    }
}

#[tokio::test]
async fn a_stubborn_process_is_killed_and_the_run_is_interrupted() {
    let hangs = begun([Step::reached("hangs"), Step::SleepForever]);
    let lab = Lab::new(Process::new().stubborn().always("prompt", hangs));
    let runner = lab.runner(LONG);
    let cancel = CancellationToken::new();
    let stream = runner.run(lab.request("hi").cancel(cancel.clone()));
    lab.control.reached("hangs").await;
    cancel.cancel();
    finish(stream, Vec::new()).await.failed("interrupted");
    lab.assert_nothing_left().await;
}

#[tokio::test]
async fn what_cannot_be_read_or_is_asked_by_others_is_declined_visibly() {
    let confirm = json!({
        "type": "extension_ui_request", "id": "other", "method": "confirm", "title": "Sure?",
    });
    let steps = [
        ask("odd", "bash", &json!("no object")),
        ask("bash", "bash", &json!({ "command": "rm -rf /" })),
        line(&confirm),
        Step::gate("answered"),
        message("went on", "stop"),
        settled(false),
    ];
    let lab = Lab::new(Process::new().always("prompt", begun(steps)));
    let runner = lab.runner(Duration::ZERO);
    let stream = runner.run(lab.request("hi"));
    let sent = |id: &str| answered(&lab.control.sent(0), id);
    for id in ["odd", "bash", "other"] {
        lab.home.wait_until(|| sent(id).is_some(), "an answer").await;
    }
    lab.control.open("answered");
    let seen = finish(stream, Vec::new()).await;
    assert_eq!(seen.ok().answer, "went on");
    for id in ["odd", "bash"] {
        let answer: Value =
            serde_json::from_str(sent(id).unwrap()["value"].as_str().unwrap()).unwrap();
        assert_eq!(answer["decision"], "deny", "{id}");
    }
    assert_eq!(sent("other").unwrap()["cancelled"], true);
    assert_eq!(seen.done(&ActionKind::Approval).len(), 2);
    let warning = seen.done(&ActionKind::Warning)[0];
    assert!(warning.action.title.contains("Sure?"), "{warning:?}");
    lab.assert_nothing_left().await;
}

#[tokio::test]
async fn a_credential_at_the_edge_of_what_is_shown_of_an_error_is_not_shown_in_part() {
    // Of an error the last 8 KiB are shown, of a dialog the first 200 characters.
    let end = "hunter2@db/main";
    let error = format!("postgres://app:{end}{}", ".".repeat(8 * 1024 - end.len()));
    let begin = " postgres://app:hunter";
    let title = format!("{}{begin}2@db/main", ".".repeat(200 - begin.len()));
    let call = |kind: &str, fields: Value| {
        let mut call = json!({ "type": kind, "toolCallId": "c", "toolName": "mcp__lab__echo" });
        call.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
        line(&call)
    };
    let result = json!({ "content": [{ "type": "text", "text": error }] });
    let steps = [
        call("tool_execution_start", json!({ "args": {} })),
        call("tool_execution_end", json!({ "isError": true, "result": result })),
        line(&json!({
            "type": "extension_ui_request", "id": "d", "method": "confirm", "title": title,
        })),
        message("done", "stop"),
        settled(false),
    ];
    let seen = one_run(&Lab::new(Process::new().always("prompt", begun(steps)))).await;
    assert_eq!(seen.ok().answer, "done");
    let error = &seen.done(&ActionKind::Tool)[0].action.detail["error_message"];
    assert!(error.as_str().is_some_and(|error| error.ends_with("...")), "{error}");
    assert_eq!(seen.done(&ActionKind::Warning).len(), 1, "{:?}", seen.outline());
    let all = serde_json::to_string(&seen.events).unwrap();
    assert!(!all.contains("hunter"), "{all}");
}

#[tokio::test]
async fn a_dialog_with_an_odd_id_or_that_is_too_long_is_answered_under_its_id() {
    let confirm = json!({
        "type": "extension_ui_request", "id": 7, "method": "confirm", "title": "Sure?",
    });
    let long = r#"{"type":"extension_ui_request","id":"long","method":"input","title":""#;
    let steps = [
        line(&confirm),
        Step::huge(long, r#""}"#, 70 * 1024 * 1024),
        Step::gate("answered"),
        message("went on", "stop"),
        settled(false),
    ];
    let lab = Lab::new(Process::new().always("prompt", begun(steps)));
    let runner = lab.runner(Duration::ZERO);
    let stream = runner.run(lab.request("hi"));
    for id in [json!(7), json!("long")] {
        let cancelled = || {
            let sent = lab.control.sent(0);
            sent.iter().any(|it| it["id"] == id && it["cancelled"] == true)
        };
        lab.home.wait_until(cancelled, "an answer").await;
    }
    lab.control.open("answered");
    let seen = finish(stream, Vec::new()).await;
    assert_eq!(seen.ok().answer, "went on");
    assert_eq!(seen.done(&ActionKind::Warning).len(), 2, "{:?}", seen.outline());
    lab.assert_nothing_left().await;
}

#[tokio::test]
async fn a_line_that_is_nested_deeply_is_read() {
    let deep = format!("{}1{}", "[".repeat(300), "]".repeat(300));
    let call = format!(
        r#"{{"type":"tool_execution_start","toolCallId":"c","toolName":"bash","args":{{"command":"ls","x":{deep}}}}}"#
    );
    let end = json!({ "type": "tool_execution_end", "toolCallId": "c", "toolName": "bash" });
    let steps = [Step::line(call), line(&end), message("done", "stop"), settled(false)];
    let seen = one_run(&Lab::new(Process::new().always("prompt", begun(steps)))).await;
    assert_eq!(seen.ok().answer, "done");
    assert_eq!(seen.done(&ActionKind::Command)[0].action.title, "ls");
    assert!(seen.done(&ActionKind::Warning).is_empty(), "{:?}", seen.outline());
}

#[tokio::test]
async fn a_message_that_pi_queued_and_did_not_run_is_run_before_the_end() {
    let queue = |texts: Value| line(&json!({ "type": "queue_update", "steering": texts }));
    let first =
        begun([Step::reached("runs"), Step::gate("end"), message("one", "stop"), settled(false)]);
    let process = Process::new()
        .once("prompt", first)
        .always("prompt", answer("both"))
        .always("steer", [Step::Reply, queue(json!(["also"]))])
        .always("clear_queue", [Step::ReplyWith(json!({ "steering": ["also"] }))]);
    let lab = Lab::new(process);
    let runner = lab.runner(Duration::ZERO);
    let (steer, steering) = steer_channel();
    let stream = runner.run(lab.request("hi").steering(steering));
    lab.control.reached("runs").await;
    steer.send("also").await.unwrap();
    lab.control.open("end");
    let seen = finish(stream, Vec::new()).await;
    assert_eq!(seen.ok().answer, "both");
    assert_eq!(prompts(&lab, 0), 2);
    runner.shutdown().await;
    lab.assert_nothing_left().await;
}

/// pi settles while the message is on its way, and queues it behind its end.
#[tokio::test]
async fn a_message_that_pi_queued_behind_its_end_is_run_before_the_end() {
    let queue = |texts: Value| line(&json!({ "type": "queue_update", "steering": texts }));
    let process = Process::new()
        .once("prompt", begun([Step::reached("runs"), Step::gate("never")]))
        .always("prompt", answer("both"))
        .always(
            "steer",
            [message("one", "stop"), settled(false), queue(json!(["also"])), Step::Reply],
        )
        .always("clear_queue", [Step::ReplyWith(json!({ "steering": ["also"] }))]);
    let lab = Lab::new(process);
    let runner = lab.runner(Duration::ZERO);
    let (steer, steering) = steer_channel();
    let stream = runner.run(lab.request("hi").steering(steering));
    lab.control.reached("runs").await;
    steer.send("also").await.unwrap();
    let seen = finish(stream, Vec::new()).await;
    assert_eq!(seen.ok().answer, "both");
    assert_eq!(prompts(&lab, 0), 2);
    runner.shutdown().await;
    lab.assert_nothing_left().await;
}

#[tokio::test]
async fn a_queue_that_cannot_be_taken_back_does_not_hold_up_the_end() {
    for refusal in [Step::fail(0, "no"), Step::ReplyWith(json!({ "steering": [] }))] {
        let queue = line(&json!({ "type": "queue_update", "steering": ["also"] }));
        let process = Process::new()
            .always("prompt", begun([queue, message("one", "stop"), settled(false)]))
            .always("clear_queue", [refusal]);
        let lab = Lab::new(process);
        let seen = run(&lab.runner(Duration::ZERO), lab.request("hi")).await;
        assert_eq!(seen.ok().answer, "one");
        lab.assert_nothing_left().await;
    }
}
