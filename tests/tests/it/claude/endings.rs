//! How runs of the real Claude Code end: cancels, failures, background work.

use serde_json::json;
use takopi_core::{ActionKind, Runner};
use takopi_tests::claude::home::TestHome;
use takopi_tests::claude::real;
use takopi_tests::model::Gate;
use takopi_tests::model::messages::{Answer, MessagesServer};
use takopi_tests::runs::{finish, is_started, run, until};
use tokio_util::sync::CancellationToken;

use super::{LONG, engine, runner};

/// A command that goes on until it is ended. (The Bash tool refuses to sleep.)
fn lasting(number: u32) -> String {
    format!("tail -n {number} -f /dev/null")
}

#[tokio::test]
async fn a_cancel_leaves_nothing_and_the_session_goes_on() {
    let Some(claude) = real::claude_or_skip() else { return };
    let model = MessagesServer::start();
    let tree = format!(
        "{} & setsid {} & (nohup {} >/dev/null 2>&1 &); (setsid {} >/dev/null 2>&1 &); {}",
        lasting(611),
        lasting(612),
        lasting(613),
        lasting(614),
        lasting(615),
    );
    let background = json!({ "command": lasting(616), "run_in_background": true });
    model.when("[[work]]", [Answer::new().tool("Bash", background), Answer::new().bash(&tree)]);
    model.when("[[again]]", "going on");
    let home = TestHome::new(&model);
    let runner = runner(engine(&claude).keep_warm(LONG), &home);
    let cancel = CancellationToken::new();
    let request = home.request("[[work]]").permission_mode("bypassPermissions");
    let mut stream = runner.run(request.cancel(cancel.clone()));
    let seen = until(&mut stream, "Started", is_started).await;
    for number in 611..=616 {
        home.wait_for_command(&lasting(number)).await;
    }
    cancel.cancel();
    let seen = finish(stream, seen).await;
    seen.failed("interrupted");
    assert_eq!(home.processes(), [], "whoever sees the end knows that nothing is left");
    let again = run(&runner, home.request("[[again]]").resume(seen.session())).await;
    assert_eq!(again.ok().answer, "going on");
    runner.shutdown().await;
    home.assert_no_processes().await;
}

#[tokio::test]
async fn a_cancel_while_the_model_is_silent_keeps_the_answer_so_far() {
    let Some(claude) = real::claude_or_skip() else { return };
    let model = MessagesServer::start();
    let gate = Gate::new();
    model.when(
        "[[stall]]",
        [Answer::text("So far.").bash("true"), Answer::new().delta("never ").wait_for(&gate)],
    );
    let home = TestHome::new(&model);
    let runner = runner(engine(&claude), &home);
    let cancel = CancellationToken::new();
    let request = home.request("[[stall]]").permission_mode("bypassPermissions");
    let stream = runner.run(request.cancel(cancel.clone()));
    gate.reached().await;
    cancel.cancel();
    let seen = finish(stream, Vec::new()).await;
    seen.failed("interrupted");
    assert_eq!(home.processes(), []);
    runner.shutdown().await;
}

#[tokio::test]
async fn failures_have_a_reason_and_a_refused_login_ends_the_run_at_once() {
    let Some(claude) = real::claude_or_skip() else { return };
    let model = MessagesServer::start();
    model.when("[[login]]", Answer::status(401, "invalid x-api-key"));
    model.when("[[limit]]", Answer::limit_reached(1_900_000_000));
    model.when("[[busy]]", Answer::status(529, "Overloaded"));
    model.when("[[rate]]", Answer::status(429, "slow down").header("retry-after", "3600"));
    model.when("[[model]]", Answer::status(404, "model: no-such-model"));
    // Retries as a user has them: a refused login must not wait for them.
    let home = TestHome::new(&model).max_retries(10);
    let runner_10 = runner(engine(&claude), &home);
    let login = run(&runner_10, home.request("[[login]]")).await;
    assert!(login.failed("auth").error.as_ref().unwrap().contains("claude auth login"));
    assert!(model.requests_about("[[login]]").len() <= 3, "not ten tries");
    run(&runner_10, home.request("[[rate]]")).await.failed("rate_limit");
    runner_10.shutdown().await;
    let home = TestHome::new(&model);
    let runner_0 = runner(engine(&claude), &home);
    run(&runner_0, home.request("[[busy]]")).await.failed("overloaded");
    run(&runner_0, home.request("[[model]]")).await.failed("engine_failed");
    runner_0.shutdown().await;
    let home = TestHome::new(&model).subscription();
    let spent = runner(engine(&claude), &home);
    let limit = run(&spent, home.request("[[limit]]")).await;
    let limit = limit.failed("usage_limit");
    assert_eq!(limit.rate_limits.as_ref().unwrap().resets_at, Some(1_900_000_000));
    spent.shutdown().await;
    home.assert_no_processes().await;
}

#[tokio::test]
async fn a_sub_agent_in_the_background_is_waited_for_and_its_answer_comes_last() {
    let Some(claude) = real::claude_or_skip() else { return };
    let model = MessagesServer::start();
    let agent = json!({
        "description": "dig", "prompt": "dig [[sub]]", "subagent_type": "general-purpose",
        "run_in_background": true,
    });
    let gate = Gate::new();
    model.when(
        "[[main]]",
        [Answer::call("Agent", agent), Answer::text("Started it."), Answer::text("It found gold.")],
    );
    model.when("[[sub]]", Answer::new().wait_for(&gate).block("gold"));
    let home = TestHome::new(&model);
    let runner = runner(engine(&claude), &home);
    let request = home.request("[[main]]").permission_mode("bypassPermissions");
    let stream = runner.run(request);
    gate.reached().await;
    // The first turn of the agent, and the call of the sub-agent.
    model.wait_for_requests(3).await;
    gate.open();
    let seen = finish(stream, Vec::new()).await;
    assert_eq!(seen.ok().answer, "It found gold.");
    assert_eq!(seen.done(&ActionKind::Subagent).len(), 1, "{:#?}", seen.outline());
    runner.shutdown().await;
    home.assert_no_processes().await;
}

#[tokio::test]
async fn a_background_command_does_not_hold_the_answer_and_ends_with_the_process() {
    let Some(claude) = real::claude_or_skip() else { return };
    let model = MessagesServer::start();
    let background = json!({ "command": lasting(617), "run_in_background": true });
    model.when("[[serve]]", [Answer::new().tool("Bash", background), Answer::text("It serves.")]);
    model.when("[[next]]", "Next.");
    let home = TestHome::new(&model);
    let runner = runner(engine(&claude).keep_warm(LONG), &home);
    let request = home.request("[[serve]]").permission_mode("bypassPermissions");
    let seen = run(&runner, request).await;
    assert_eq!(seen.ok().answer, "It serves.");
    home.wait_for_command(&lasting(617)).await;
    let next = home.request("[[next]]").resume(seen.session());
    let next = run(&runner, next.permission_mode("bypassPermissions")).await;
    assert_eq!(next.ok().answer, "Next.", "the session goes on beside it");
    runner.shutdown().await;
    assert_eq!(home.processes(), [], "it ends with the process");
}

#[tokio::test]
async fn without_background_work_agents_and_commands_are_waited_for() {
    let Some(claude) = real::claude_or_skip() else { return };
    let model = MessagesServer::start();
    let agent = json!({
        "description": "dig", "prompt": "dig [[sub]]", "subagent_type": "general-purpose",
        "run_in_background": true,
    });
    model.when("[[main]]", [Answer::call("Agent", agent), Answer::text("It found gold.")]);
    model.when("[[sub]]", "gold");
    let home = TestHome::new(&model);
    let runner = runner(engine(&claude).background(false), &home);
    let request = home.request("[[main]]").permission_mode("bypassPermissions");
    let seen = run(&runner, request).await;
    assert_eq!(seen.ok().answer, "It found gold.");
    let told = model.requests_about("[[main]]").pop().unwrap().tool_outputs().pop().unwrap();
    assert!(told.text.contains("gold"), "{}", told.text);
    runner.shutdown().await;
    home.assert_no_processes().await;
}
