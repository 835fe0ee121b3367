//! The runner over `codex app-server`, with a server that misbehaves: order, replies, ends, sizes.
use std::time::Duration;

use serde_json::json;
use takopi_core::{ActionKind, Runner, UsageScope};
use takopi_tests::codex::fake::{Script, Server, Step, app_server, turn};
use takopi_tests::codex::lab::{Lab, session};
use takopi_tests::runs::{Seen, is_started, run};

const MIB: usize = 1024 * 1024;
const SHORT: Duration = Duration::from_millis(300);
const LONG: Duration = Duration::from_mins(10);

fn lab(server: Server) -> Lab {
    Lab::new(server.script())
}

/// One run on a server that is not kept, and nothing left behind it.
async fn one_run(server: Server) -> (Lab, Seen) {
    let lab = lab(server);
    let runner = lab.app_server(Duration::ZERO);
    let seen = run(&runner, lab.request("hi")).await;
    runner.shutdown().await;
    lab.assert_nothing_left().await;
    (lab, seen)
}

#[tokio::test]
async fn events_and_even_the_end_may_come_before_the_reply() {
    let all: Vec<Step> = [turn::started()].into_iter().chain(turn::answer("early")).collect();
    let mut early = all[..3].to_vec();
    early.push(Step::Reply);
    early.extend_from_slice(&all[3..]);
    let (_, seen) = one_run(Server::new().always("turn/start", early)).await;
    assert_eq!(seen.ok().answer, "early");
    let last = all.into_iter().chain([Step::Reply]);
    let (_, seen) = one_run(Server::new().always("turn/start", last)).await;
    assert_eq!(seen.ok().answer, "early");
    assert_eq!(seen.completed().usage.as_ref().unwrap().input_tokens, 11);
}

#[tokio::test]
async fn replies_that_come_twice_or_without_a_request_change_nothing() {
    let twice = turn::opened([]).into_iter().chain([Step::Reply]).chain(turn::answer("Hello."));
    let strange = [
        Step::line(r#"{"id":4711,"result":{}}"#),
        Step::line(r#"{"id":"text","result":{}}"#),
        Step::line(r#"{"id":null,"error":{"code":1,"message":"?"}}"#),
        Step::Reply,
        Step::Reply,
        Step::notify("thread/started", json!({"thread": {"id": "$THREAD"}})),
    ];
    let server = Server::new()
        .always("initialize", [Step::Reply, Step::Reply])
        .always("thread/start", strange)
        .always("turn/start", twice);
    let (_, seen) = one_run(server).await;
    assert_eq!(
        seen.steady_outline(),
        ["started", "turn started: turn started", "completed: Hello."]
    );
}

#[tokio::test]
async fn what_is_no_message_is_passed_over() {
    let noise = [
        Step::line("not JSON"),
        Step::raw(*b"\n\n \n\xff\xfe\n"),
        Step::line("[]"),
        Step::line("{}"),
        Step::line(r#"{"method":42}"#),
        Step::line(r#"{"method":"from/the/future","params":{"threadId":"$THREAD"}}"#),
        Step::line(r#"{"method":"item/completed","params":{"threadId":"$THREAD","item":null}}"#),
        Step::line(r#"{"method":"turn/plan/updated","params":null}"#),
        app_server::flood(2000),
        Step::FloodStderr(8 * MIB),
    ];
    let server =
        Server::new().first(noise.clone()).turns(noise.into_iter().chain(turn::answer("Hello.")));
    let (_, seen) = one_run(server).await;
    assert_eq!(seen.ok().answer, "Hello.");
}

#[tokio::test]
async fn a_failed_turn_and_a_refused_one_have_the_text_of_the_engine() {
    let (_, seen) = one_run(Server::new().turns(turn::failed("boom"))).await;
    assert_eq!(seen.failed("engine_failed").error.as_deref(), Some("boom"));
    let refused = [Step::fail(-32600, "no such model")];
    let (_, seen) = one_run(Server::new().always("turn/start", refused)).await;
    assert!(seen.failed("engine_failed").error.as_ref().unwrap().contains("no such model"));
    let limit = json!({"message": "slow down", "codexErrorInfo": "usageLimitExceeded"});
    let (_, seen) = one_run(Server::new().turns([turn::ended("failed", &limit)])).await;
    seen.failed("usage_limit");
}

#[tokio::test]
async fn an_overloaded_server_is_asked_again() {
    let server = Server::new()
        .once("thread/start", app_server::overloaded())
        .once("turn/start", app_server::overloaded())
        .once("turn/start", app_server::overloaded());
    let (lab, seen) = one_run(server).await;
    assert_eq!(seen.ok().answer, "Hello from the fake.");
    assert_eq!(lab.control.starts().len(), 1);
    assert_eq!(lab.control.calls("turn/start").len(), 3);
}

#[tokio::test]
async fn a_server_that_stays_overloaded_ends_the_run_as_overloaded() {
    let server = Server::new().always("turn/start", app_server::overloaded());
    let (_, seen) = one_run(server).await;
    seen.failed("overloaded");
}

#[tokio::test]
async fn an_active_writer_is_waited_out_on_one_server_and_the_session_is_never_a_new_one() {
    let server = Server::new()
        .once("thread/resume", app_server::busy())
        .once("thread/resume", app_server::busy());
    let lab = lab(server);
    let runner = lab.app_server(Duration::ZERO);
    let seen = run(&runner, lab.request("hi").resume(session())).await;
    assert_eq!(seen.ok().resume, Some(session()));
    assert_eq!(lab.control.calls("thread/resume").len(), 3);
    assert_eq!(lab.control.calls("thread/start").len(), 0);
    let notes = seen.actions(&ActionKind::Note);
    assert_eq!(notes[0].action.title, "waiting for the session, held by another codex");

    let lab = Lab::new(Server::new().always("thread/resume", app_server::busy()).script());
    let runner = lab.app_server(Duration::ZERO);
    let request = lab.request("hi").resume(session()).wait(SHORT);
    assert_eq!(run(&runner, request).await.failed("session_busy").resume, Some(session()));
    assert_eq!(lab.control.calls("thread/start").len(), 0);
    runner.shutdown().await;
    lab.assert_nothing_left().await;
}

#[tokio::test]
async fn an_unknown_thread_and_another_thread_are_never_silently_new_ones() {
    let lab = lab(Server::new().always("thread/resume", app_server::not_found()));
    let runner = lab.app_server(Duration::ZERO);
    let seen = run(&runner, lab.request("hi").resume(session())).await;
    assert_eq!(seen.failed("session_not_found").resume, Some(session()));

    let other = json!({"thread": {"id": "01a1e21b-ffff-7eb0-9d27-459e98f10b74"}});
    let server = Server::new().always("thread/resume", [Step::ReplyWith(other)]);
    let lab = Lab::new(server.script());
    let runner = lab.app_server(Duration::ZERO);
    let seen = run(&runner, lab.request("hi").resume(session())).await;
    assert_eq!(seen.failed("protocol").resume, Some(session()));
    assert!(!seen.events.iter().any(is_started));
    assert_eq!(lab.control.calls("turn/start").len(), 0, "the prompt goes nowhere");
    runner.shutdown().await;
    lab.assert_nothing_left().await;
}

#[tokio::test]
async fn a_thread_id_is_taken_from_wherever_it_stands() {
    let id = "01a1e21b-26e5-7eb0-9d27-459e98f10b74";
    for reply in [
        json!({"thread": {"id": id}}),
        json!({"thread": {"sessionId": id}}),
        json!({"sessionId": id}),
        json!({"threadId": id}),
    ] {
        let server = Server::new().thread(id).always("thread/start", [Step::ReplyWith(reply)]);
        let (_, seen) = one_run(server).await;
        assert_eq!(seen.ok().resume.as_ref().unwrap().value, id);
    }
}

#[tokio::test]
async fn replies_that_make_no_sense_end_the_run_as_protocol() {
    for (method, reply) in [
        ("thread/start", json!({})),
        ("thread/start", json!({"thread": {"id": "not a session"}})),
        ("thread/start", json!([1])),
        ("turn/start", json!({"turn": {}})),
        ("turn/start", json!(null)),
    ] {
        let (_, seen) =
            one_run(Server::new().always(method, [Step::ReplyWith(reply.clone())])).await;
        assert!(!seen.completed().ok, "{method} {reply}");
        seen.failed("protocol");
    }
}

#[tokio::test]
async fn a_sub_agents_events_and_end_do_not_touch_the_parents() {
    let child = turn::elsewhere(
        "01a1e21b-0000-7eb0-9d27-459e98f10b74",
        "child-turn",
        [turn::started()].into_iter().chain(turn::answer("the child's")),
    );
    let failed =
        turn::elsewhere("01a1e21b-0001-7eb0-9d27-459e98f10b74", "other", turn::failed("no"));
    let steps = child.into_iter().chain(failed).chain(turn::answer("the parent's"));
    let (_, seen) = one_run(Server::new().turns(steps)).await;
    assert_eq!(
        seen.steady_outline(),
        ["started", "turn started: turn started", "completed: the parent's"]
    );
}

#[tokio::test]
async fn the_end_of_another_turn_of_the_thread_is_not_this_ones() {
    let stale = turn::elsewhere("$THREAD", "an-earlier-turn", turn::answer("stale"));
    let (_, seen) =
        one_run(Server::new().turns(stale.into_iter().chain(turn::answer("fresh")))).await;
    assert_eq!(seen.ok().answer, "fresh");
}

#[tokio::test]
async fn the_end_of_another_turn_before_the_reply_is_not_this_ones() {
    let foreign = turn::elsewhere("$THREAD", "other", [turn::completed()]);
    let foreign_turn = turn::elsewhere("$THREAD", "other", [turn::started(), turn::completed()]);
    for foreign in [foreign, foreign_turn] {
        let own: Vec<Step> = [turn::started()].into_iter().chain(turn::answer("own")).collect();
        let opened = foreign.iter().cloned().chain([Step::Reply]).chain(own.clone());
        let (_, seen) = one_run(Server::new().always("turn/start", opened)).await;
        assert_eq!(seen.ok().answer, "own");
        let ended = foreign.iter().cloned().chain([turn::completed(), Step::Reply]);
        let (_, seen) = one_run(Server::new().always("turn/start", ended)).await;
        seen.ok();
    }
}

#[tokio::test]
async fn an_end_too_long_to_read_ends_its_own_turn_only() {
    let end = |turn: &str| {
        let head = format!(
            r#"{{"method":"turn/completed","params":{{"threadId":"$THREAD",{turn}"items":[""#
        );
        Step::huge(&head, r#""]}}}"#, 70 * MIB)
    };
    let stale = [end(r#""turn":{"id":"an-earlier-turn","#)];
    let (_, seen) =
        one_run(Server::new().turns(stale.into_iter().chain(turn::answer("fresh")))).await;
    assert_eq!(seen.ok().answer, "fresh");
    // It may be the end of this turn.
    let (_, seen) = one_run(Server::new().turns([end(r#""turn":{"#)])).await;
    seen.failed("protocol");
}

#[tokio::test]
async fn items_left_open_are_closed_at_the_end_and_late_ones_are_ignored() {
    let late = turn::command_completed("late", "sleep 9", "", 0);
    let steps = [turn::command_started("late", "sleep 9")].into_iter();
    let steps = steps.chain(turn::message("m", "done")).chain([turn::completed(), late]);
    let (_, seen) = one_run(Server::new().turns(steps)).await;
    assert_eq!(seen.ok().answer, "done");
    let commands = seen.actions(&ActionKind::Command);
    assert_eq!(commands.len(), 2, "{commands:?}");
    assert_ne!(commands[1].ok, Some(true), "it is not known how it ended");
}

#[tokio::test]
async fn turn_aborted_ends_a_turn_as_a_whole_message_only() {
    for text in
        ["<turn_aborted>", " <turn_aborted/>\n", "<turn_aborted>\nby the user\n</turn_aborted>"]
    {
        let steps = turn::message("m", "so far").into_iter().chain(turn::message("n", text));
        let (_, seen) = one_run(Server::new().turns(steps.chain([Step::SleepForever]))).await;
        assert_eq!(seen.failed("interrupted").answer, "so far", "{text}");
    }
    for text in ["it said <turn_aborted>", "`<turn_aborted/>`", "<turn_aborted> is a marker"] {
        let steps = turn::message("n", text).into_iter().chain([turn::completed()]);
        let (_, seen) = one_run(Server::new().turns(steps)).await;
        assert_eq!(seen.ok().answer, text);
    }
}

#[tokio::test]
async fn a_reply_or_an_end_too_long_to_read_is_protocol_and_other_lines_are_passed_over() {
    let server = Server::new().always("thread/start", [app_server::huge_reply(70 * MIB)]);
    let (_, seen) = one_run(server).await;
    seen.failed("protocol");

    let head = r#"{"method":"turn/completed","params":{"threadId":"$THREAD","turn":{"id":"$TURN","items":[""#;
    let end = Step::huge(head, r#""]}}}"#, 70 * MIB);
    let (_, seen) =
        one_run(Server::new().turns(turn::message("m", "so far").into_iter().chain([end]))).await;
    assert_eq!(seen.failed("protocol").answer, "so far");

    let head = r#"{"method":"item/completed","params":{"threadId":"$THREAD","turnId":"$TURN","item":{"text":""#;
    let item = Step::huge(head, r#""}}}"#, 70 * MIB);
    let (_, seen) =
        one_run(Server::new().turns([item].into_iter().chain(turn::answer("Hello.")))).await;
    assert_eq!(seen.ok().answer, "Hello.");
}

#[tokio::test]
async fn usage_is_of_this_run_alone_warm_and_resumed() {
    let lab = lab(Server::new());
    let runner = lab.app_server(LONG);
    let first = run(&runner, lab.request("one")).await;
    let second = run(&runner, lab.request("two").resume(first.session())).await;
    assert_eq!(lab.control.starts().len(), 1);
    for seen in [&first, &second] {
        let usage = seen.ok().usage.clone().unwrap();
        assert_eq!(
            (usage.input_tokens, usage.output_tokens, usage.scope),
            (11, 7, UsageScope::Turn)
        );
    }
    runner.shutdown().await;
}

/// `thread/tokenUsage/updated`: input tokens of the thread, and of the last call.
fn reported_usage(turn: &str, total: u64, last: u64) -> Step {
    let tokens = |input: u64| json!({"inputTokens": input, "outputTokens": 0});
    let usage = json!({"total": tokens(total), "last": tokens(last)});
    let params = json!({"threadId": "$THREAD", "turnId": turn, "tokenUsage": usage});
    Step::notify("thread/tokenUsage/updated", params)
}

async fn resumed_usage(server: Server) -> u64 {
    let lab = lab(server);
    let runner = lab.app_server(Duration::ZERO);
    let seen = run(&runner, lab.request("hi").resume(session())).await;
    runner.shutdown().await;
    seen.ok().usage.as_ref().unwrap().input_tokens
}

#[tokio::test]
async fn what_a_thread_used_before_is_only_the_baseline() {
    let end = [reported_usage("$TURN", 1030, 30), turn::completed()];
    let server = Server::new()
        .always("thread/resume", [reported_usage("earlier", 1000, 500), Step::Reply])
        .turns(turn::message("m", "done").into_iter().chain(end));
    assert_eq!(resumed_usage(server).await, 30);
}

#[tokio::test]
async fn earlier_usage_of_a_thread_is_only_the_baseline_however_late_it_is_reported() {
    // 0.125.0: behind the reply, and once more under the id of the new turn.
    let steps = [reported_usage("earlier", 1000, 500), Step::Reply, turn::started()]
        .into_iter()
        .chain([reported_usage("$TURN", 1000, 500)])
        .chain(turn::message("m", "done"))
        .chain([reported_usage("$TURN", 1030, 30), turn::completed()]);
    assert_eq!(resumed_usage(Server::new().always("turn/start", steps)).await, 30);
    // Ahead of the reply to the turn, though other figures came with the thread.
    let steps = [turn::started(), reported_usage("earlier", 1000, 500)]
        .into_iter()
        .chain(turn::message("m", "done"))
        .chain([reported_usage("$TURN", 1030, 30), Step::Reply, turn::completed()]);
    let server = Server::new()
        .always("thread/resume", [reported_usage("earlier", 900, 500), Step::Reply])
        .always("turn/start", steps);
    assert_eq!(resumed_usage(server).await, 30);
}

#[tokio::test]
async fn a_server_that_is_too_old_or_cannot_be_started_is_one_clear_end() {
    let (_, seen) = one_run(Server::new().version("0.124.9")).await;
    assert!(seen.failed("engine_too_old").error.as_ref().unwrap().contains("0.124.9"));
    let lab = lab(Server::new());
    for binary in ["/nowhere/codex", "no-codex-of-this-name", "/dev/null"] {
        let codex = takopi_codex::Codex::new().binary(binary);
        let runner = codex.app_server().on(lab.host.clone());
        let seen = run(&runner, lab.request("hi")).await;
        assert!(seen.failed("engine_missing").error.as_ref().unwrap().contains(binary));
    }
    let runner = lab.app_server(Duration::ZERO);
    let seen = run(&runner, lab.request("hi").cwd("/nowhere/at/all")).await;
    assert!(seen.failed("invalid_request").error.as_ref().unwrap().contains("/nowhere/at/all"));
    assert_eq!(lab.control.starts().len(), 0);
}

#[tokio::test]
async fn two_runs_on_one_session_are_two_turns_never_one_folded_into_the_other() {
    let script = || {
        let gated = [Step::gate("go")].into_iter().chain(turn::answer("$PROMPT"));
        Server::new().turns_when("one", gated).turns(turn::answer("$PROMPT"))
    };
    let lab = Lab::new(Script::nth([script().script(), script().script()]));
    let runner = lab.app_server(LONG);
    let one = run(&runner, lab.request("one").resume(session()));
    let two = async {
        lab.control.call("turn/start").await;
        let two = run(&runner, lab.request("two").resume(session()));
        let open = async {
            tokio::task::yield_now().await;
            assert_eq!(lab.control.calls("turn/start").len(), 1);
            lab.control.open("go");
        };
        futures::future::join(two, open).await.0
    };
    let (one, two) = futures::future::join(one, two).await;
    assert_eq!((one.ok().answer.as_str(), two.ok().answer.as_str()), ("one", "two"));
    assert_eq!(lab.control.starts().len(), 1, "the second took the warm server over");
    runner.shutdown().await;
    lab.assert_nothing_left().await;
}
