//! One suite over several releases of Claude Code: `TAKOPI_TEST_CLAUDE_VERSIONS=2.0.45,2.1.210,2.1.325`.
//!
//! takopi's promises are the same on all of them. Where Claude Code itself has drifted, the release
//! decides what is expected.

use std::io::Write as _;
use std::sync::Arc;

use serde_json::json;
use takopi_core::approvals::from_fn;
use takopi_core::runner::steer_channel;
use takopi_core::{ActionKind, ApprovalRequest, Decision, ResumeToken, Runner, UsageScope};
use takopi_tests::claude::home::TestHome;
use takopi_tests::claude::real::{self, Claude, Version};
use takopi_tests::model::Gate;
use takopi_tests::model::messages::{Answer, MessagesServer};
use takopi_tests::runs::{finish, is_started, run, until};
use takopi_tests::skip::test_name;
use tokio_util::sync::CancellationToken;

use super::{LONG, engine, runner};

/// Runs a check on every release that is asked for.
async fn each(check: impl AsyncFn(&Claude)) {
    for version in real::versions() {
        if let Some(claude) = real::claude_version_or_skip(version) {
            let _ = writeln!(std::io::stdout(), "{} on claude {}", test_name(), claude.version);
            check(&claude).await;
        }
    }
}

/// Whether sub-agents can work in the background, and results name what they are about.
fn has_background(claude: &Claude) -> bool {
    claude.version >= Version::new(2, 1, 0)
}

#[tokio::test]
async fn a_new_session_goes_on_cold_and_warm_with_its_whole_history() {
    each(async |claude| {
        let model = MessagesServer::start();
        for word in ["first", "second", "third", "fourth"] {
            model.when(word, word);
        }
        let home = TestHome::new(&model);
        let cold = runner(engine(claude), &home);
        let first = run(&cold, home.request("first")).await;
        assert_eq!(
            first.steady_outline(),
            ["started", "turn started: turn started", "completed: first"]
        );
        let resume = |word| home.request(word).resume(first.session());
        let second = run(&cold, resume("second")).await;
        let warm = runner(engine(claude).keep_warm(LONG), &home);
        let third = run(&warm, resume("third")).await;
        let processes = home.processes();
        let fourth = run(&warm, resume("fourth")).await;
        assert_eq!(home.processes(), processes, "the same process ran both");
        assert_eq!(
            model.requests().last().unwrap().history(),
            [
                "user: first",
                "assistant: first",
                "user: second",
                "assistant: second",
                "user: third",
                "assistant: third",
                "user: fourth",
            ]
        );
        for (seen, answer) in
            [(first, "first"), (second, "second"), (third, "third"), (fourth, "fourth")]
        {
            assert_eq!(seen.ok().answer, answer);
            let usage = seen.ok().usage.clone().unwrap();
            assert_eq!((usage.output_tokens, usage.scope), (7, UsageScope::Turn), "{answer}");
            assert_eq!((usage.input_tokens, usage.cached_input_tokens), (19, 3), "{answer}");
        }
        cold.shutdown().await;
        warm.shutdown().await;
        home.assert_no_processes().await;
    })
    .await;
}

#[tokio::test]
async fn the_usage_of_a_run_is_that_of_all_its_calls() {
    each(async |claude| {
        let model = MessagesServer::start();
        model.otherwise([Answer::new().bash("true"), Answer::text("Done.")]);
        let home = TestHome::new(&model);
        let runner = runner(engine(claude).keep_warm(LONG), &home);
        let request = || home.request("go").permission_mode("bypassPermissions");
        let first = run(&runner, request()).await;
        let second = run(&runner, request().resume(first.session())).await;
        for seen in [&first, &second] {
            assert_eq!(seen.ok().usage.as_ref().unwrap().output_tokens, 14, "{seen:#?}");
        }
        assert!(first.ok().cost_usd.is_some_and(|cost| cost > 0.0));
        runner.shutdown().await;
    })
    .await;
}

#[tokio::test]
async fn a_command_and_a_new_file_are_shown() {
    each(async |claude| {
        let model = MessagesServer::start();
        let home = TestHome::new(&model);
        let path = home.workspace().join("new.txt");
        model.otherwise([
            Answer::text("Look.").bash("echo out; exit 3"),
            Answer::new().write_file(&path, "hello\n"),
            Answer::text("Done."),
        ]);
        let runner = runner(engine(claude), &home);
        let seen = run(&runner, home.request("go").permission_mode("bypassPermissions")).await;
        assert_eq!(seen.ok().answer, "Done.");
        let command = seen.done(&ActionKind::Command)[0];
        assert_eq!((command.action.title.as_str(), command.ok), ("echo out; exit 3", Some(false)));
        assert_eq!(command.action.detail["exit_code"], 3);
        let change = seen.done(&ActionKind::FileChange)[0];
        assert_eq!((change.action.title.as_str(), change.ok), ("new.txt", Some(true)));
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "hello\n");
        runner.shutdown().await;
        home.assert_no_processes().await;
    })
    .await;
}

#[tokio::test]
async fn an_approval_is_given_and_refused() {
    each(async |claude| {
        let model = MessagesServer::start();
        let home = TestHome::new(&model);
        let path = home.workspace().join("asked");
        model.otherwise([
            Answer::new().bash(&format!("touch {}", path.display())),
            Answer::text("After."),
        ]);
        let runner = runner(engine(claude), &home);
        for decision in [Decision::Decline, Decision::Accept] {
            let handler = from_fn(move |_: ApprovalRequest| async move { decision });
            let seen = run(&runner, home.request("go").approvals(Arc::new(handler))).await;
            assert_eq!(seen.ok().answer, "After.");
            assert_eq!(path.exists(), decision == Decision::Accept, "{:#?}", seen.outline());
            assert_eq!(seen.done(&ActionKind::Approval).len(), 1);
            let command = seen.done(&ActionKind::Command)[0];
            assert_eq!(command.ok, Some(decision == Decision::Accept));
        }
        runner.shutdown().await;
        home.assert_no_processes().await;
    })
    .await;
}

#[tokio::test]
async fn a_cancel_leaves_nothing_and_the_session_goes_on() {
    each(async |claude| {
        let model = MessagesServer::start();
        let lasting = |number: u32| format!("tail -n {number} -f /dev/null");
        let tree = format!(
            "(nohup setsid {} >/dev/null 2>&1 &); {} & {}",
            lasting(621),
            lasting(622),
            lasting(623)
        );
        model.when("[[work]]", Answer::new().bash(&tree));
        model.when("[[again]]", "Going on.");
        let home = TestHome::new(&model);
        let runner = runner(engine(claude).keep_warm(LONG), &home);
        let cancel = CancellationToken::new();
        let request = home.request("[[work]]").permission_mode("bypassPermissions");
        let mut stream = runner.run(request.cancel(cancel.clone()));
        let seen = until(&mut stream, "Started", is_started).await;
        for number in 621..=623 {
            home.wait_for_command(&lasting(number)).await;
        }
        cancel.cancel();
        let seen = finish(stream, seen).await;
        seen.failed("interrupted");
        assert_eq!(home.processes(), [], "whoever sees the end knows that nothing is left");
        let again = run(&runner, home.request("[[again]]").resume(seen.session())).await;
        assert_eq!(again.ok().answer, "Going on.");
        let history = model.requests().last().unwrap().history();
        assert_eq!(history[0], "user: [[work]]", "{history:#?}");
        runner.shutdown().await;
        home.assert_no_processes().await;
    })
    .await;
}

#[tokio::test]
async fn a_sub_agent_is_waited_for_and_its_answer_comes_last() {
    each(async |claude| {
        let model = MessagesServer::start();
        let gate = Gate::new();
        if has_background(claude) {
            let agent = Answer::new().agent("dig [[sub]]", true);
            model.when("[[main]]", [agent, "Started it.".into(), "It found gold.".into()]);
        } else {
            let agent = json!({
                "description": "dig", "prompt": "dig [[sub]]", "subagent_type": "general-purpose",
            });
            model.when("[[main]]", [Answer::call("Task", agent), "It found gold.".into()]);
        }
        model.when("[[sub]]", Answer::new().wait_for(&gate).block("gold"));
        let home = TestHome::new(&model);
        let runner = runner(engine(claude), &home);
        let request = home.request("[[main]]").permission_mode("bypassPermissions");
        let stream = runner.run(request);
        gate.reached().await;
        model.wait_for_requests(if has_background(claude) { 3 } else { 2 }).await;
        gate.open();
        let seen = finish(stream, Vec::new()).await;
        assert_eq!(seen.ok().answer, "It found gold.");
        assert_eq!(seen.done(&ActionKind::Subagent).len(), 1, "{:#?}", seen.outline());
        runner.shutdown().await;
        home.assert_no_processes().await;
    })
    .await;
}

#[tokio::test]
async fn an_unknown_session_is_not_found() {
    each(async |claude| {
        let model = MessagesServer::start();
        let home = TestHome::new(&model);
        let runner = runner(engine(claude), &home);
        let unknown = ResumeToken::new("claude", "01a1e21b-26e5-4eb0-9d27-459e98f10b74");
        run(&runner, home.request("hi").resume(unknown)).await.failed("session_not_found");
        assert_eq!(model.requests().len(), 0);
        assert_eq!(home.sessions(), Vec::<String>::new());
        runner.shutdown().await;
        home.assert_no_processes().await;
    })
    .await;
}

#[tokio::test]
async fn a_message_during_a_tool_is_answered_in_the_same_turn_or_handed_back() {
    each(async |claude| {
        let model = MessagesServer::start();
        model.otherwise([Answer::new().bash("touch touched"), Answer::text("Both.")]);
        let home = TestHome::new(&model);
        let runner = runner(engine(claude), &home);
        let (steer, steering) = steer_channel();
        // Where attachments are off, as in older releases, the model would not see it.
        let takes_messages = claude.version >= Version::new(2, 1, 325);
        // The approval reaches Claude Code behind the message, so the tool ends behind it.
        let handler = from_fn(move |_: ApprovalRequest| {
            let steer = steer.clone();
            async move {
                let sent = steer.send("and the eighth arm, too").await;
                assert_eq!(sent.is_ok(), takes_messages);
                Decision::Accept
            }
        });
        let request = home.request("go").approvals(Arc::new(handler)).steering(steering);
        let seen = run(&runner, request).await;
        assert_eq!(seen.ok().answer, "Both.");
        assert_eq!(seen.actions(&ActionKind::Turn).len(), 1, "{:#?}", seen.outline());
        let requests = model.requests();
        assert_eq!(requests.len(), 2);
        let messages = requests[1].body["messages"].to_string();
        assert_eq!(messages.contains("and the eighth arm, too"), takes_messages);
        runner.shutdown().await;
        home.assert_no_processes().await;
    })
    .await;
}
