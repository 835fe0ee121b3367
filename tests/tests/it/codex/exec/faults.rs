//! Codex over `codex exec --json`, with a codex that misbehaves: what it prints and how it ends.

use takopi_core::{ActionKind, Runner, UsageScope};
use takopi_tests::codex::fake::{Script, Signal, Step, exec};
use takopi_tests::codex::lab::{Lab, session};
use takopi_tests::limits::with_enough_time;
use takopi_tests::runs::run;

const MIB: usize = 1024 * 1024;

/// The session, the turn and an answer, with these steps before the answer.
fn answering_after(steps: impl IntoIterator<Item = Step>) -> Script {
    let opening = [Step::ReadStdin, exec::thread_started(), exec::turn_started()];
    let end = [exec::message("Hello."), exec::turn_completed()];
    Script::exec(opening.into_iter().chain(steps).chain(end))
}

#[tokio::test]
async fn a_session_with_an_active_writer_is_tried_again_and_the_prompt_is_not_lost() {
    let lab = Lab::new(Script::nth([exec::busy(), exec::busy(), exec::echo()]));
    let seen = run(&lab.exec(), lab.request("the prompt").resume(session())).await;
    assert_eq!(seen.ok().answer, "the prompt");
    assert_eq!(seen.session(), session());
    assert_eq!(lab.control.starts().len(), 3);
    let notes = seen.actions(&ActionKind::Note);
    assert_eq!(notes[0].action.title, "waiting for the session, held by another codex");
    assert_eq!(notes[1].action.title, "the session is free");
    assert_eq!(notes.len(), 2);
    lab.assert_nothing_left().await;
}

#[tokio::test]
async fn an_active_writer_that_stays_is_session_busy_at_the_end_of_the_wait() {
    with_enough_time(async |wait| {
        let lab = Lab::new(exec::busy());
        let seen = run(&lab.exec(), lab.request("hi").resume(session()).wait(wait)).await;
        assert_eq!(seen.failed("session_busy").resume, Some(session()));
        let starts = lab.control.starts();
        for start in &starts {
            assert!(start.args.windows(2).any(|args| args == ["resume", &session().value]));
        }
        lab.assert_nothing_left().await;
        // It was tried again.
        starts.len() >= 2
    })
    .await;
}

#[tokio::test]
async fn an_unknown_session_has_its_reason_and_codex_starts_once() {
    let lab = Lab::new(exec::not_found());
    let seen = run(&lab.exec(), lab.request("hi").resume(session())).await;
    assert_eq!(seen.failed("session_not_found").resume, Some(session()));
    assert_eq!(lab.control.starts().len(), 1);
}

#[tokio::test]
async fn every_exit_code_is_named_and_stderr_stays_out_of_the_error() {
    for code in [1, 2, 42, 101, 255] {
        let script = Script::exec([
            Step::ReadStdin,
            exec::thread_started(),
            exec::turn_started(),
            Step::stderr("secret of stderr, token=abc"),
            Step::Exit(code),
        ]);
        let lab = Lab::new(script);
        let seen = run(&lab.exec(), lab.request("hi")).await;
        let error = seen.failed("engine_failed").error.clone().unwrap();
        assert_eq!(error, format!("codex exec failed (rc={code})."));
        let warning = seen.done(&ActionKind::Warning)[0];
        assert_eq!(warning.action.detail["stderr_tail"], "secret of stderr, token=[redacted]\n");
        assert_eq!(seen.completed().resume, Some(seen.session()));
    }
}

#[tokio::test]
async fn death_by_a_signal_is_a_process_that_died_with_the_answer_so_far() {
    for (signal, number) in
        [(Signal::Segv, 11), (Signal::Abrt, 6), (Signal::Kill, 9), (Signal::Term, 15)]
    {
        let script = Script::exec([
            Step::ReadStdin,
            exec::thread_started(),
            exec::turn_started(),
            exec::message("so far"),
            Step::Die(signal),
        ]);
        let lab = Lab::new(script);
        let seen = run(&lab.exec(), lab.request("hi")).await;
        let end = seen.failed("process_died");
        assert_eq!(end.answer, "so far");
        assert!(end.error.as_ref().unwrap().contains(&format!("signal {number}")), "{end:?}");
        lab.assert_nothing_left().await;
    }
}

#[tokio::test]
async fn lines_that_are_not_json_are_three_warnings_and_a_count() {
    let garbage = (0..7).map(|n| Step::line(format!("garbage {n}")));
    let lab = Lab::new(answering_after(garbage));
    let seen = run(&lab.exec(), lab.request("hi")).await;
    assert_eq!(seen.ok().answer, "Hello.");
    let titles: Vec<_> =
        seen.done(&ActionKind::Warning).iter().map(|it| it.action.title.clone()).collect();
    assert_eq!(
        titles,
        [
            "not JSON: garbage 0",
            "not JSON: garbage 1",
            "not JSON: garbage 2",
            "4 more lines were not JSON"
        ]
    );
}

#[tokio::test]
async fn output_that_is_not_json_at_all_is_one_clear_end() {
    let lab = Lab::new(Script::exec([Step::ReadStdin, Step::raw(vec![0xff; 512]), Step::Exit(0)]));
    let seen = run(&lab.exec(), lab.request("hi")).await;
    let error = seen.failed("protocol").error.clone().unwrap();
    assert!(error.contains("no session id was seen"), "{error}");
}

#[tokio::test]
async fn odd_bytes_do_not_end_a_run() {
    let steps = [
        Step::raw(*b"\n\n   \n\r\n"),
        // Invalid UTF-8 inside a message, a line that is nothing else, half a line of JSON.
        Step::raw(
            *b"{\"type\":\"item.completed\",\"item\":{\"id\":\"a\",\"type\":\"reasoning\",\"text\":\"caf\xe9\"}}\n",
        ),
        Step::raw(*b"\xff\xfe\xfd\n"),
        Step::raw(*b"{\"type\":\"item.comp"),
        Step::raw(*b"\n"),
        Step::line(r#"{"type":"from.the.future","value":[1,2,3]}"#),
        Step::line(r#"{"type":"item.completed","item":{"id":"b","type":"hologram"}}"#),
        Step::line("[1, 2, 3]"),
        Step::line("null"),
    ];
    let lab = Lab::new(answering_after(steps));
    let seen = run(&lab.exec(), lab.request("hi")).await;
    assert_eq!(seen.ok().answer, "Hello.");
    let notes: Vec<_> =
        seen.done(&ActionKind::Note).iter().map(|it| it.action.title.clone()).collect();
    assert_eq!(notes, ["caf\u{fffd}", "hologram"]);
}

#[tokio::test]
async fn lines_are_cut_at_newlines_only_and_the_last_one_needs_none() {
    let text = "one\u{2028}two\u{85}three\u{b}four";
    let end = r#"{"type":"turn.completed","usage":{"input_tokens":1,"output_tokens":2}}"#;
    let lab = Lab::new(Script::exec([
        Step::ReadStdin,
        exec::thread_started(),
        exec::turn_started(),
        Step::line(
            serde_json::json!({"type": "item.completed", "item": {"id": "a", "type": "agent_message", "text": text}})
                .to_string(),
        ),
        Step::raw(end.as_bytes()),
    ]));
    let seen = run(&lab.exec(), lab.request("hi")).await;
    assert_eq!(seen.ok().answer, text);
    assert_eq!(seen.completed().usage.as_ref().unwrap().input_tokens, 1);
}

#[tokio::test]
async fn a_line_of_100_mib_is_skipped_with_a_warning_and_one_of_24_is_read() {
    let steps = [exec::huge_message(100 * MIB), Step::huge_junk(70 * MIB)];
    let lab = Lab::new(answering_after(steps));
    let seen = run(&lab.exec(), lab.request("hi")).await;
    assert_eq!(seen.ok().answer, "Hello.");
    let warnings = seen.done(&ActionKind::Warning);
    assert_eq!(warnings.len(), 2, "{warnings:?}");
    assert!(warnings[0].action.title.contains(&(100 * MIB).to_string()), "{:?}", warnings[0]);

    let big = Script::exec([
        Step::ReadStdin,
        exec::thread_started(),
        exec::turn_started(),
        exec::huge_message(24 * MIB),
        exec::turn_completed(),
    ]);
    let lab = Lab::new(big);
    let seen = run(&lab.exec(), lab.request("hi")).await;
    assert!(seen.ok().answer.len() > 23 * MIB);
}

#[tokio::test]
async fn a_flood_on_stderr_blocks_nothing_and_its_tail_is_bounded() {
    let lab = Lab::new(answering_after([Step::FloodStderr(32 * MIB)]));
    assert_eq!(run(&lab.exec(), lab.request("hi")).await.ok().answer, "Hello.");

    let dying = [Step::FloodStderr(32 * MIB), Step::stderr("the last words"), Step::Exit(3)];
    let lab = Lab::new(answering_after(dying));
    let seen = run(&lab.exec(), lab.request("hi")).await;
    seen.failed("engine_failed");
    let tail = seen.done(&ActionKind::Warning)[0].action.detail["stderr_tail"].to_string();
    assert!(tail.len() < 12 * 1024 && tail.contains("the last words"), "{} bytes", tail.len());
}

#[tokio::test]
async fn a_prompt_that_is_never_read_stalls_nothing() {
    let prompt = "p".repeat(8 * MIB);
    let end = || [exec::thread_started(), exec::message("Hello."), exec::turn_completed()];
    for opening in [vec![], vec![Step::CloseStdin], vec![Step::ReadStdinBytes(10)]] {
        let lab = Lab::new(Script::exec(opening.into_iter().chain(end())));
        let seen = run(&lab.exec(), lab.request(&prompt)).await;
        assert_eq!(seen.ok().answer, "Hello.");
        lab.assert_nothing_left().await;
    }
}

#[tokio::test]
async fn events_before_the_prompt_was_read_arrive_and_the_prompt_arrives_whole() {
    let prompt = "p".repeat(2 * MIB);
    let steps = [exec::thread_started(), exec::turn_started(), exec::flood(5000)];
    let end = [Step::ReadStdin, exec::message("Hello."), exec::turn_completed()];
    let lab = Lab::new(Script::exec(steps.into_iter().chain(end)));
    let seen = run(&lab.exec(), lab.request(&prompt)).await;
    assert_eq!(seen.ok().answer, "Hello.");
    assert_eq!(seen.done(&ActionKind::Note).len(), 5000);
    assert_eq!(lab.control.stdin(0).len(), prompt.len());
}

#[tokio::test]
async fn another_session_than_asked_for_is_never_gone_on_with() {
    let other = "01a1e21b-ffff-7eb0-9d27-459e98f10b74";
    let lab = Lab::new(Script::exec([
        exec::thread_started_as(other),
        exec::turn_started(),
        Step::ReadStdin,
        exec::message("Hello."),
        Step::SleepForever,
    ]));
    let seen = run(&lab.exec(), lab.request("hi").resume(session())).await;
    assert_eq!(seen.failed("protocol").resume, Some(session()));
    assert!(!seen.events.iter().any(takopi_tests::runs::is_started));
    lab.assert_nothing_left().await;
}

#[tokio::test]
async fn usage_of_a_resumed_session_is_the_threads() {
    let lab = Lab::new(exec::hello("Hello."));
    let runner = lab.exec();
    let new = run(&runner, lab.request("hi")).await;
    let resumed = run(&runner, lab.request("hi").resume(new.session())).await;
    let scope = |seen: &takopi_tests::runs::Seen| seen.ok().usage.clone().unwrap().scope;
    assert_eq!((scope(&new), scope(&resumed)), (UsageScope::Turn, UsageScope::Thread));
}

#[tokio::test]
async fn a_plugins_401_on_stderr_is_not_a_logged_out_account() {
    let plugin = "ERROR rmcp::transport: worker quit: 401 Unauthorized, run `codex mcp login lab`";
    let lab = Lab::new(Script::exec([Step::ReadStdin, Step::stderr(plugin), Step::Exit(1)]));
    run(&lab.exec(), lab.request("hi")).await.failed("engine_failed");
    let lab = Lab::new(Script::exec([
        Step::ReadStdin,
        Step::stderr("Not logged in. Run `codex login`."),
        Step::Exit(1),
    ]));
    run(&lab.exec(), lab.request("hi")).await.failed("auth");
}

#[tokio::test]
async fn the_version_is_asked_beside_the_run_and_only_a_known_old_one_ends_it() {
    let old = Script::exec([exec::thread_started(), exec::turn_started(), Step::SleepForever])
        .version("0.124.9");
    let lab = Lab::new(old).unknown();
    let seen = run(&lab.exec(), lab.request("hi")).await;
    assert!(seen.failed("engine_too_old").error.as_ref().unwrap().contains("0.124.9"));
    lab.assert_nothing_left().await;

    for version in [
        vec![Step::SleepForever],
        vec![Step::line("who knows")],
        vec![Step::raw(*b"\xff\xfe 0.1")],
        vec![Step::FloodStderr(MIB), Step::Exit(3)],
        vec![Step::Die(Signal::Segv)],
    ] {
        let lab = Lab::new(exec::hello("Hello.").on_version(version)).unknown();
        let runner = lab.exec();
        assert_eq!(run(&runner, lab.request("hi")).await.ok().answer, "Hello.");
        assert_eq!(run(&runner, lab.request("hi")).await.ok().answer, "Hello.");
        runner.shutdown().await;
        lab.control.all_gone().await;
    }
}

#[tokio::test]
async fn a_version_is_asked_once_however_many_run() {
    let asked = [Step::reached("asked"), Step::line("codex-cli 0.166.0")];
    let script = answering_after([Step::gate("go")]).on_version(asked);
    let lab = Lab::new(script).unknown();
    let runner = lab.exec();
    let runs = (0..8).map(|_| run(&runner, lab.request("hi")));
    let director = async {
        lab.control.started(7).await;
        let version = lab.control.reached("asked").await;
        lab.control.gone(version.pid).await;
        assert_eq!(lab.control.version_calls(), 1);
        lab.control.open("go");
    };
    let (runs, ()) = futures::future::join(futures::future::join_all(runs), director).await;
    for seen in runs {
        seen.ok();
    }
}
