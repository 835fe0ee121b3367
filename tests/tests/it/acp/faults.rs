//! What the fake agent does wrong, and what comes of it.

use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::json;
use takopi_acp::{Acp, Agent};
use takopi_core::approvals::{accept_all, from_fn};
use takopi_core::external::CancellationToken;
use takopi_core::{ActionKind, ApprovalRequest, Decision, ResumeToken, Runner};
use takopi_tests::acp::fake::{
    Grandchild, Lab, Place, Process, Script, Signal, Step, answer, binary, command, end,
    permission, text, text_of, thought, update,
};
use takopi_tests::limits::with_enough_time;
use takopi_tests::runs::{finish, is_started, run, until};

const COLD: Duration = Duration::ZERO;
const WARM: Duration = Duration::from_mins(10);

#[tokio::test]
async fn a_prompt_is_answered_and_nothing_is_left() {
    let lab = Lab::new(Process::new().turns(answer("$PROMPT")));
    let runner = lab.runner(WARM);
    let seen = run(&runner, lab.request("hello")).await;
    assert_eq!(seen.ok().answer, "hello");
    let again = run(&runner, lab.request("again").resume(seen.session())).await;
    assert_eq!((again.ok().answer.as_str(), again.session()), ("again", seen.session()));
    assert_eq!(lab.control.starts().len(), 1, "the process was kept");
    runner.shutdown().await;
    lab.assert_nothing_left().await;
}

#[tokio::test]
async fn an_update_without_a_session_that_can_be_read_is_nobodys_and_reported_once() {
    let content = json!({ "type": "text", "text": "stray" });
    let update = json!({ "sessionUpdate": "agent_message_chunk", "content": content });
    let stray = |session: serde_json::Value| {
        Step::notify("session/update", json!({ "sessionId": session, "update": update }))
    };
    let absent = Step::notify("session/update", json!({ "update": update }));
    let strays = [
        absent,
        stray(json!(7)),
        stray(json!({ "id": "$SESSION" })),
        stray(json!(null)),
        stray(json!("another")),
    ];
    let lab = Lab::new(Process::new().turns(strays.into_iter().chain(answer("own"))));
    let seen = run(&lab.runner(COLD), lab.request("x")).await;
    assert_eq!(seen.ok().answer, "own");
    let warnings = seen.done(&ActionKind::Warning);
    assert_eq!(warnings.len(), 1, "{warnings:#?}");
    assert!(warnings[0].action.title.contains("has drifted"), "{warnings:#?}");
    lab.assert_nothing_left().await;
}

#[tokio::test]
async fn a_prompt_that_the_agent_could_not_read_fails() {
    let error = r#"{"jsonrpc":"2.0","id":null,"error":{"code":-32700,"message":"boom"}}"#;
    let lab = Lab::new(Process::new().turns([Step::line(error)]));
    let seen = run(&lab.runner(COLD), lab.request("x")).await;
    let text = seen.failed("engine_failed").error.clone().unwrap();
    assert!(text.contains("boom"), "{text}");
    lab.assert_nothing_left().await;
}

/// opencode works in the directory of the session, and hangs at an approval if it is told another one.
#[tokio::test]
async fn opencode_resumes_a_session_in_the_directory_it_was_begun_in() {
    let first =
        json!({ "sessions": [{ "sessionId": "ses_2", "cwd": "/else" }], "nextCursor": "n" });
    let second = json!({ "sessions": [{ "sessionId": "ses_1", "cwd": "/its/own" }] });
    let process = Process {
        session_capabilities: json!({ "list": {}, "resume": {} }),
        ..Process::new()
            .once("session/list", [Step::ReplyWith(first)])
            .once("session/list", [Step::ReplyWith(second)])
            .turns([permission("ask", "c1", "ls"), text_of("m", "on"), end("end_turn")])
    };
    let lab = Lab::new(process);
    let agent = Agent::preset("opencode").unwrap();
    let acp = Acp::new(agent).program(lab.binary()).keep_warm(COLD);
    let token = ResumeToken::new("opencode", "ses_1");
    let asked: Arc<Mutex<Vec<PathBuf>>> = Arc::default();
    let record = asked.clone();
    let handler = from_fn(move |request: ApprovalRequest| {
        record.lock().unwrap().push(request.cwd);
        async { Decision::Accept }
    });
    let request = lab.request("x").resume(token).approvals(Arc::new(handler));
    let seen = run(&acp.runner().on(lab.host.clone()), request).await;
    assert_eq!(seen.ok().answer, "on");
    assert_eq!(*asked.lock().unwrap(), [PathBuf::from("/its/own")], "it is asked about there");
    let notes = seen.actions(&ActionKind::Note);
    assert_eq!(notes[0].action.title, "the session works in /its/own");
    assert_eq!(lab.control.calls("session/resume")[0].message["params"]["cwd"], "/its/own");
    lab.assert_nothing_left().await;
}

#[tokio::test]
async fn another_version_of_the_protocol_is_refused() {
    let lab = Lab::new(Process { protocol: 2, ..Process::new() });
    let seen = run(&lab.runner(COLD), lab.request("x")).await;
    let error = seen.failed("protocol").error.clone().unwrap();
    assert!(error.contains("version 2"), "{error}");
    lab.assert_nothing_left().await;
}

#[tokio::test]
async fn a_session_in_place_of_the_one_asked_for_ends_the_run() {
    let other = Step::ReplyWith(json!({ "sessionId": "lab-another" }));
    let lab = Lab::new(Process::new().always("session/resume", [other]));
    let token = ResumeToken::new("lab", "lab-1");
    let seen = run(&lab.runner(COLD), lab.request("x").resume(token.clone())).await;
    assert_eq!(seen.failed("protocol").resume, Some(token));
    assert!(!seen.events.iter().any(is_started));
    lab.assert_nothing_left().await;
}

#[tokio::test]
async fn an_unknown_session_is_never_replaced_by_a_new_one() {
    let lab = Lab::new(Process::new().always("session/resume", [Step::fail(-32603, "kaput")]));
    let token = ResumeToken::new("lab", "lab-1");
    let seen = run(&lab.runner(COLD), lab.request("x").resume(token)).await;
    seen.failed("session_not_found");
    for method in ["session/new", "session/prompt"] {
        assert!(lab.control.calls(method).is_empty(), "{method}");
    }
    lab.assert_nothing_left().await;
}

#[tokio::test]
async fn a_session_that_another_process_holds_is_waited_for() {
    let busy = Step::Fail {
        code: -32600,
        message: "in use".into(),
        data: Some(json!({ "reason": "thread_active_writer" })),
    };
    let process = Process::new()
        .once("session/resume", [busy.clone()])
        .once("session/resume", [busy.clone()]);
    let lab = Lab::new(process);
    let token = ResumeToken::new("lab", "lab-1");
    run(&lab.runner(COLD), lab.request("x").resume(token.clone())).await.ok();
    let lab = Lab::new(Process::new().always("session/resume", [busy]));
    let request = lab.request("x").resume(token).wait(Duration::ZERO);
    run(&lab.runner(COLD), request).await.failed("session_busy");
    lab.assert_nothing_left().await;
}

/// A replay behind the response is told from new text by the quiet behind it: an agent that was suspended for that long
/// looks as if it had ended its replay, and the test is repeated.
async fn replays_nothing(attempt: impl AsyncFn() -> String, expected: &str) {
    let mut answer = String::new();
    for _ in 0..5 {
        answer = attempt().await;
        if answer == expected {
            return;
        }
    }
    panic!("the replay is in the answer, every time: {answer}");
}

/// The replay of a loaded session, behind the response too, is not part of the turn.
#[tokio::test]
async fn a_replay_is_dropped_also_if_it_comes_late() {
    let replay = [text("old before"), Step::Reply, text("old behind"), text("older")];
    let process = Process {
        session_capabilities: json!({}),
        ..Process::new().always("session/load", replay).turns(answer("new"))
    };
    let attempt = async || {
        let lab = Lab::new(process.clone());
        let token = ResumeToken::new("lab", "lab-1");
        let seen = run(&lab.runner(COLD), lab.request("x").resume(token)).await;
        lab.assert_nothing_left().await;
        let notes = seen.actions(&ActionKind::Note).into_iter().map(|it| it.action.title.clone());
        notes.chain([seen.ok().answer.clone()]).collect()
    };
    replays_nothing(attempt, "new").await;
}

#[tokio::test]
async fn requests_that_are_not_known_are_refused_at_once() {
    let asks = [
        Step::ask("file", "fs/write_text_file", json!({ "path": "/x" })),
        Step::ask("vendor", "craft/drainMidTurnQueue", json!({})),
    ];
    let lab = Lab::new(Process::new().turns(asks.into_iter().chain(answer("on"))));
    assert_eq!(run(&lab.runner(COLD), lab.request("x")).await.ok().answer, "on");
    for name in ["file", "vendor"] {
        let answers = lab.control.answers(name);
        assert_eq!(answers[0]["error"]["code"], -32601, "{answers:?}");
    }
    lab.assert_nothing_left().await;
}

#[tokio::test]
async fn lines_that_cannot_be_read_are_warnings_and_the_turn_goes_on() {
    let odd = [
        Step::raw(b"\xff\xfe not utf-8\n".to_vec()),
        Step::line("not json"),
        Step::line(""),
        Step::line("[1,2]"),
        Step::line(r#"{"jsonrpc":"2.0","method":"session/update","params":null}"#),
        Step::line(r#"{"jsonrpc":"2.0","id":4711,"result":{}}"#),
    ];
    let lab = Lab::new(Process::new().turns(odd.into_iter().chain(answer("on"))));
    let seen = run(&lab.runner(COLD), lab.request("x")).await;
    assert_eq!(seen.ok().answer, "on");
    // The update without a session is one, too.
    assert_eq!(seen.actions(&ActionKind::Warning).len(), 3, "{:#?}", seen.events);
    lab.assert_nothing_left().await;
}

/// Behind each such line stands a message that takopi answers: it has read the line then.
#[tokio::test]
async fn lines_that_cannot_be_read_before_a_run_are_warnings_in_it_and_no_beginning() {
    let ask = permission("between", "c", "rm x").without_waiting();
    let between = [Step::gate("between"), Step::line("of the time between"), ask];
    let process = Process { first: vec![Step::line("of the start")], ..Process::new() };
    let one = text("one");
    let turn = [one, Step::Reply].into_iter().chain(between);
    let process = process.once("session/prompt", turn).turns([Step::Exit(1)]);
    let lab = Lab::new(Script { starts: vec![process, Process::new().turns(answer("two"))] });
    let runner = lab.runner(WARM);
    let warnings = |seen: &takopi_tests::runs::Seen| -> Vec<String> {
        seen.done(&ActionKind::Warning).iter().map(|it| it.action.title.clone()).collect()
    };
    let first = run(&runner, lab.request("x")).await;
    assert_eq!(first.ok().answer, "one");
    assert_eq!(warnings(&first), ["not JSON: of the start"]);
    lab.control.open("between");
    lab.home.wait_until(|| !lab.control.answers("between").is_empty(), "an answer").await;
    let outcome = &lab.control.answers("between")[0]["result"]["outcome"]["outcome"];
    assert_eq!(outcome, "cancelled");
    // The process dies of the prompt, which is sent again: the line came before it.
    let second = run(&runner, lab.request("y").resume(first.session())).await;
    assert_eq!(second.ok().answer, "two");
    assert_eq!(warnings(&second), ["not JSON: of the time between"]);
    runner.shutdown().await;
    lab.assert_nothing_left().await;
}

#[tokio::test]
async fn a_cancel_answers_what_is_asked_and_leaves_nothing() {
    let child = Grandchild::new("child").at(Place::OwnSession).spawn();
    let steps = [command("c", "in_progress", "sleep 9"), child, permission("ask", "d", "rm x")];
    let process = Process::new().turns_when("work", steps.into_iter().chain(answer("never")));
    let lab = Lab::new(process.turns(answer("on")));
    let runner = lab.runner(WARM);
    let cancel = CancellationToken::new();
    let waits = from_fn(|_| std::future::pending::<Decision>());
    let request = lab.request("work").approvals(Arc::new(waits)).cancel(cancel.clone());
    let mut stream = runner.run(request);
    let seen = until(&mut stream, "the question", |event| {
        matches!(event, takopi_core::TakopiEvent::Action(event) if event.action.kind == ActionKind::Approval)
    })
    .await;
    cancel.cancel();
    let seen = finish(stream, seen).await;
    seen.failed("interrupted");
    let answered = lab.control.answers("ask");
    assert_eq!(answered[0]["result"]["outcome"]["outcome"], "cancelled", "{answered:?}");
    assert!(lab.home.processes().is_empty(), "{:?}", lab.home.processes());
    let again = run(&runner, lab.request("next").resume(seen.session())).await;
    assert_eq!(again.ok().answer, "on");
    runner.shutdown().await;
    lab.assert_nothing_left().await;
}

#[tokio::test]
async fn an_agent_that_ignores_everything_is_ended_all_the_same() {
    let hangs = [text("half"), Step::reached("hangs"), Step::SleepForever];
    let lab = Lab::new(Process::new().turns(hangs).stubborn());
    let runner = lab.runner(COLD);
    let cancel = CancellationToken::new();
    let mut stream = runner.run(lab.request("x").cancel(cancel.clone()));
    let seen = until(&mut stream, "Started", is_started).await;
    lab.control.reached("hangs").await;
    cancel.cancel();
    let seen = finish(stream, seen).await;
    assert_eq!(seen.failed("interrupted").answer, "half");
    lab.assert_nothing_left().await;
}

#[tokio::test]
async fn an_agent_that_dies_fails_its_run_with_what_it_wrote() {
    let dies = [text("half"), Step::stderr("out of luck"), Step::Exit(3)];
    let lab = Lab::new(Process::new().turns(dies));
    let seen = run(&lab.runner(COLD), lab.request("x")).await;
    assert_eq!(seen.failed("process_died").answer, "half");
    let warnings = seen.actions(&ActionKind::Warning);
    assert!(format!("{warnings:?}").contains("out of luck"), "{warnings:?}");
    lab.assert_nothing_left().await;
    let dies = [Step::stderr("no licence"), Step::Exit(1)];
    let lab = Lab::new(Process { first: dies.to_vec(), ..Process::new() });
    run(&lab.runner(COLD), lab.request("x")).await.failed("process_died");
    lab.assert_nothing_left().await;
}

#[tokio::test]
async fn an_agent_that_says_the_same_for_ever_is_stopped() {
    let same = (0..50).map(|n| text_of(&format!("m{n}"), "half "));
    let lab = Lab::new(Process::new().turns(same.chain([Step::SleepForever])));
    let seen = run(&lab.runner(COLD), lab.request("x")).await;
    let error = seen.failed("engine_failed").error.clone().unwrap();
    assert!(error.contains("over and over"), "{error}");
    lab.assert_nothing_left().await;
}

#[tokio::test]
async fn an_end_that_is_not_one_is_a_failure() {
    for (steps, reason) in [
        (vec![end("end_turn")], "engine_failed"),
        (vec![text("x"), end("cancelled")], "engine_failed"),
        (vec![text("x"), end("refusal")], "engine_failed"),
        (vec![text("x"), Step::ReplyWith(json!({}))], "protocol"),
        (vec![text("x"), Step::fail(-32000, "log in")], "auth"),
        // An agent that marks the model's text: its own at the end is an error.
        (vec![text_of("m", "half"), text("usage limit reached"), end("end_turn")], "usage_limit"),
    ] {
        let lab = Lab::new(Process::new().turns(steps));
        run(&lab.runner(COLD), lab.request("x")).await.failed(reason);
        lab.assert_nothing_left().await;
    }
}

#[tokio::test]
async fn settings_that_the_agent_does_not_have_are_refused_by_name() {
    let lab = Lab::new(Process::new().turns([thought("hm")].into_iter().chain(answer("x"))));
    let runner = lab.runner(COLD);
    let allow = || Arc::new(accept_all());
    for (request, what) in [
        (lab.request("x").model("m"), "choice of models"),
        (lab.request("x").effort("high"), "effort setting"),
        (lab.request("x").permission_mode("plan"), "permission modes"),
        (lab.request("x").option("fast", "on"), "no option `fast`"),
        (lab.request("x").sandbox("read-only"), "no sandbox modes"),
    ] {
        let seen = run(&runner, request.approvals(allow())).await;
        let error = seen.failed("invalid_request").error.clone().unwrap();
        assert!(error.contains(what), "{error}");
    }
    lab.assert_nothing_left().await;
}

#[tokio::test]
async fn notices_and_retries_are_shown_without_credentials() {
    let text = "401: Bearer sk-abc123def456 refused";
    let error = json!({ "message": text, "willRetry": true, "additionalDetails": text });
    let meta = json!({ "codex": { "error": error } });
    let notes = [
        update(&json!({ "sessionUpdate": "session_info_update", "_meta": meta })),
        update(&json!({ "sessionUpdate": "notice", "severity": "info", "title": text })),
        update(&json!({ "sessionUpdate": "notice", "severity": "warning", "title": text })),
    ];
    let lab = Lab::new(Process::new().turns(notes.into_iter().chain(answer("on"))));
    let seen = run(&lab.runner(COLD), lab.request("x")).await;
    assert_eq!(seen.ok().answer, "on");
    let events = serde_json::to_string(&seen.events).unwrap();
    assert_eq!(events.matches("Bearer [redacted] refused").count(), 4, "{events}");
    assert!(!events.contains("sk-abc"), "{events}");
    lab.assert_nothing_left().await;
}

#[tokio::test]
async fn notices_do_not_keep_a_hung_turn_alive() {
    let notice = json!({ "sessionUpdate": "notice", "severity": "info", "title": "still here" });
    let notices = (0..300).flat_map(|_| {
        [
            update(&notice),
            update(&json!({ "sessionUpdate": "available_commands_update" })),
            update(&json!({ "sessionUpdate": "from_the_future" })),
            Step::notify("session/update", json!({ "sessionId": "child", "update": notice })),
            Step::line("not JSON"),
            Step::Pause { millis: 100 },
        ]
    });
    let lab = Lab::new(Process::new().turns(notices.chain(answer("too late"))));
    let request = lab.request("x").idle_timeout(Duration::from_millis(900));
    run(&lab.runner(COLD), request).await.failed("timeout_idle");
    lab.assert_nothing_left().await;
}

/// gemini never closes a call that was declined, and takopi gets no news of the calls of a sub-agent's session.
#[tokio::test]
async fn a_call_that_nobody_reports_the_end_of_keeps_no_hung_turn_alive() {
    let ask = permission("ask", "c1", "ls");
    let foreign = ask.clone().with_param("sessionId", "child");
    for (ask, decision) in [(ask, Decision::Decline), (foreign, Decision::Accept)] {
        with_enough_time(async |limit| {
            let lab = Lab::new(Process::new().turns([ask.clone(), Step::SleepForever]));
            let decide = from_fn(move |_| std::future::ready(decision));
            let request = lab.request("x").approvals(Arc::new(decide));
            let request = request.idle_timeout(limit).wall_timeout(10 * limit);
            let seen = run(&lab.runner(COLD), request).await;
            lab.assert_nothing_left().await;
            // Else a limit was reached before the agent had asked.
            let asked = !seen.actions(&ActionKind::Approval).is_empty();
            if asked {
                seen.failed("timeout_idle");
            }
            asked
        })
        .await;
    }
}

/// gemini answers a load before it replays the session.
#[tokio::test]
async fn a_replay_behind_the_response_to_a_load_is_no_part_of_the_answer() {
    let session = "01a1e21b-26e5-4eb0-9d27-459e98f10b74";
    let replay = [Step::Reply, Step::Pause { millis: 50 }, text("of yesterday")];
    let process = Process { session_capabilities: json!({}), ..Process::new() };
    let process = process.always("session/load", replay).turns(answer("of today"));
    let attempt = async || {
        let lab = Lab::new(process.clone());
        let agent = Agent::preset("gemini").unwrap();
        let runner = Acp::new(agent).program(binary()).runner().on(lab.host.clone());
        let token = ResumeToken::new("gemini", session);
        let seen = run(&runner, lab.request("x").resume(token)).await;
        runner.shutdown().await;
        lab.assert_nothing_left().await;
        seen.ok().answer.clone()
    };
    replays_nothing(attempt, "of today").await;
}

/// An adapter exits, and the agent that it runs does so later or never: it has the session until then.
#[tokio::test]
async fn a_session_is_given_up_only_when_the_agent_behind_an_adapter_is_gone_too() {
    let signals = [Signal::Hup, Signal::Int, Signal::Term];
    let inner = Grandchild::new("inner").ignoring(signals).spawn();
    let lab = Lab::new(Process { first: vec![inner], ..Process::new() });
    let runner = lab.runner(WARM);
    run(&runner, lab.request("x")).await.ok();
    runner.shutdown().await;
    lab.assert_nothing_left().await;
}

/// Programs that start themselves again exit on SIGTERM and leave their inner process.
#[tokio::test]
async fn an_agent_that_exits_late_leaves_nothing_of_its_group() {
    let signals = [Signal::Hup, Signal::Int, Signal::Term];
    let inner = Grandchild::new("inner").ignoring(signals).spawn();
    let exits = Step::on_signal(Signal::Term, [Step::Exit(0)]);
    let process = Process {
        first: vec![inner, exits],
        at_eof: Some(vec![Step::SleepForever]),
        ..Process::new()
    };
    let lab = Lab::new(process);
    let runner = lab.runner(WARM);
    run(&runner, lab.request("x")).await.ok();
    runner.shutdown().await;
    lab.assert_nothing_left().await;
}
