//! Runs of the real pi with a scripted model.

use takopi_core::{ActionKind, ResumeToken, Runner, UsageScope};
use takopi_tests::model::chat::{Answer, ChatServer};
use takopi_tests::pi::home::TestHome;
use takopi_tests::pi::real;
use takopi_tests::runs::run;

use super::{LONG, engine, runner};

#[tokio::test]
async fn a_new_session_and_a_follow_up_cold_and_warm() {
    let Some(pi) = real::pi_or_skip() else { return };
    let model = ChatServer::start();
    for (prompt, answer) in [("[[one]]", "One."), ("[[two]]", "Two."), ("[[three]]", "Three.")] {
        model.when(prompt, answer);
    }
    let home = TestHome::new(&model);
    let warm = runner(engine(&pi).keep_warm(LONG), &home);
    let first = run(&warm, home.request("go [[one]]")).await;
    assert_eq!(first.steady_outline(), ["started", "completed: One."]);
    let process = home.processes();
    assert_eq!(process.len(), 1, "it is kept warm");
    let second = run(&warm, home.request("go [[two]]").resume(first.session())).await;
    assert_eq!(second.ok().answer, "Two.");
    assert_eq!(home.processes(), process, "the same process ran both");
    let cold = runner(engine(&pi), &home);
    let third = run(&cold, home.request("go [[three]]").resume(first.session())).await;
    assert_eq!(third.ok().answer, "Three.");
    assert_eq!(third.session(), first.session());
    assert_eq!(home.sessions(), [first.session().value]);
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
        assert_eq!((usage.input_tokens, usage.cached_input_tokens), (11, 3), "{usage:?}");
        assert_eq!((usage.output_tokens, usage.scope), (7, UsageScope::Turn), "{usage:?}");
        assert!(seen.ok().cost_usd.is_some_and(|cost| cost > 0.0));
    }
    warm.shutdown().await;
    cold.shutdown().await;
    home.assert_no_processes().await;
}

#[tokio::test]
async fn a_session_that_does_not_exist_is_not_found_and_none_is_begun() {
    let Some(pi) = real::pi_or_skip() else { return };
    let model = ChatServer::start();
    let home = TestHome::new(&model);
    let runner = runner(engine(&pi), &home);
    let unknown = ResumeToken::new("pi", "01a1e443-1aa9-70f6-9a71-8421d061dced");
    let seen = run(&runner, home.request("hi").resume(unknown.clone())).await;
    let completed = seen.failed("session_not_found");
    assert_eq!(completed.resume, Some(unknown));
    assert_eq!(home.sessions(), Vec::<String>::new());
    assert_eq!(model.requests().len(), 0);
    home.assert_no_processes().await;
}

#[tokio::test]
async fn a_command_is_an_action_and_what_is_said_before_it_a_note() {
    let Some(pi) = real::pi_or_skip() else { return };
    let model = ChatServer::start();
    let look = Answer::new().reasoning("Hm.").delta("Look.").bash("echo out; exit 3");
    model.otherwise([look, Answer::text("done")]);
    let home = TestHome::new(&model);
    let runner = runner(engine(&pi), &home);
    let seen = run(&runner, home.request("go")).await;
    assert_eq!(
        seen.steady_outline(),
        [
            "started",
            "note completed: Hm.",
            "note completed: Look.",
            "command started: echo out; exit 3",
            "command completed: echo out; exit 3",
            "completed: done",
        ]
    );
    let command = seen.done(&ActionKind::Command)[0];
    assert_eq!(command.action.detail.get("exit_code").unwrap(), 3);
    assert_eq!(command.ok, Some(false));
    assert_eq!(seen.ok().usage.as_ref().unwrap().output_tokens, 14, "both calls count");
    home.assert_no_processes().await;
}
