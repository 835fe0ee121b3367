//! Runs of the real Claude Code with a scripted model.

use takopi_core::{ActionKind, ResumeToken, Runner, TakopiEvent, UsageScope};
use takopi_tests::claude::home::TestHome;
use takopi_tests::claude::real;
use takopi_tests::model::Gate;
use takopi_tests::model::messages::{Answer, MessagesServer};
use takopi_tests::runs::{finish, run, until};

use super::{LONG, engine, runner};

#[tokio::test]
async fn a_new_session_and_a_follow_up_cold_and_warm() {
    let Some(claude) = real::claude_or_skip() else { return };
    let model = MessagesServer::start();
    for (prompt, answer) in [("[[one]]", "One."), ("[[two]]", "Two."), ("[[three]]", "Three.")] {
        model.when(prompt, answer);
    }
    let home = TestHome::new(&model);
    let warm = runner(engine(&claude).keep_warm(LONG), &home);
    let first = run(&warm, home.request("go [[one]]")).await;
    assert_eq!(
        first.steady_outline(),
        ["started", "turn started: turn started", "completed: One."]
    );
    let process = home.processes();
    assert_eq!(process.len(), 1, "it is kept warm");
    let second = run(&warm, home.request("go [[two]]").resume(first.session())).await;
    assert_eq!(second.ok().answer, "Two.");
    assert_eq!(home.processes(), process, "the same process ran both");
    let cold = runner(engine(&claude), &home);
    let third = run(&cold, home.request("go [[three]]").resume(first.session())).await;
    assert_eq!(third.ok().answer, "Three.");
    assert_eq!(third.session(), first.session());
    let history = model.requests().last().unwrap().history();
    assert_eq!(
        history,
        [
            "user: go [[one]]",
            "assistant: One.",
            "user: go [[two]]",
            "assistant: Two.",
            "user: go [[three]]",
        ]
    );
    for seen in [&first, &second, &third] {
        let usage = seen.ok().usage.clone().unwrap();
        assert_eq!((usage.output_tokens, usage.scope), (7, UsageScope::Turn), "{usage:?}");
    }
    warm.shutdown().await;
    cold.shutdown().await;
    home.assert_no_processes().await;
}

#[tokio::test]
async fn a_session_that_does_not_exist_is_not_found_and_none_is_begun() {
    let Some(claude) = real::claude_or_skip() else { return };
    let model = MessagesServer::start();
    let home = TestHome::new(&model);
    let runner = runner(engine(&claude), &home);
    let unknown = ResumeToken::new("claude", "01a1e21b-26e5-4eb0-9d27-459e98f10b74");
    let seen = run(&runner, home.request("hi").resume(unknown)).await;
    seen.failed("session_not_found");
    assert_eq!(home.sessions(), Vec::<String>::new());
    assert_eq!(model.requests().len(), 0);
    runner.shutdown().await;
    home.assert_no_processes().await;
}

#[tokio::test]
async fn the_answer_is_streamed_if_asked_for_and_no_text_comes_twice() {
    let Some(claude) = real::claude_or_skip() else { return };
    let model = MessagesServer::start();
    let gate = Gate::new();
    let look = || Answer::text("Look.").bash("echo out");
    let answer = || Answer::new().delta("Final ").wait_for(&gate).delta("answer");
    model.otherwise([look(), answer(), look(), answer()]);
    let home = TestHome::new(&model);
    let runner = runner(engine(&claude), &home);
    let request = || home.request("go").permission_mode("bypassPermissions");
    let mut stream = runner.run(request().deltas(true));
    let seen = until(&mut stream, "streamed text", |event| {
        matches!(event, TakopiEvent::Action(event) if event.answer_piece() == Some("Final "))
    })
    .await;
    gate.open();
    let seen = finish(stream, seen).await;
    assert_eq!(seen.ok().answer, "Final answer");
    assert_eq!(seen.streamed(), ["Look.", "Final answer"]);
    assert_eq!(seen.actions(&ActionKind::Note).len(), 0, "{:#?}", seen.outline());

    let plain = run(&runner, request()).await;
    assert_eq!(plain.ok().answer, "Final answer");
    assert_eq!(plain.actions(&ActionKind::Answer).len(), 0);
    assert_eq!(plain.done(&ActionKind::Note)[0].action.title, "Look.");
    runner.shutdown().await;
    home.assert_no_processes().await;
}

#[tokio::test]
async fn a_command_has_its_exit_code_and_output() {
    let Some(claude) = real::claude_or_skip() else { return };
    let model = MessagesServer::start();
    model.otherwise([Answer::text("Look.").bash("echo out; exit 3"), Answer::text("Done.")]);
    let home = TestHome::new(&model);
    let runner = runner(engine(&claude), &home);
    let request = home.request("go").permission_mode("bypassPermissions");
    let seen = run(&runner, request).await;
    assert_eq!(seen.ok().answer, "Done.");
    let commands = seen.done(&ActionKind::Command);
    assert_eq!(commands[0].action.title, "echo out; exit 3");
    assert_eq!(commands[0].action.detail["exit_code"], 3);
    runner.shutdown().await;
    home.assert_no_processes().await;
}
