//! The real agents, each with a scripted model: a session from its beginning to its end, what is asked, what is left.

use std::sync::Arc;
use std::time::Duration;

use futures::future::join_all;
use serde_json::Value;
use takopi_core::approvals::{accept_all, deny};
use takopi_core::external::CancellationToken;
use takopi_core::runner::steer_channel;
use takopi_core::{ActionKind, ResumeToken, RunRequest, Runner};
use takopi_tests::acp::bench::{Bench, Do};
use takopi_tests::acp::real::Real;
use takopi_tests::model::{Gate, PATIENCE, within};
use takopi_tests::runs::{Seen, finish_unbounded, is_started, until};

const COLD: Duration = Duration::ZERO;
const WARM: Duration = Duration::from_mins(10);

/// Runs a request to its end. Agents take many seconds to start, and the last of four runs waits for three others.
async fn run(runner: &dyn Runner, request: RunRequest) -> Seen {
    finish_unbounded(runner.run(request), Vec::new()).await
}

fn say(text: &str) -> Do {
    Do::Say(text.to_owned())
}

/// A new session, a tool call, the next prompt in another process, its history.
async fn a_session_goes_on_in_another_process(real: Real) {
    let Some(bench) = Bench::new(real) else { return };
    bench.when("alpha", [Do::Run("echo takopi-out; exit 3".into()), say("first answer")]);
    bench.when("beta", [say("second answer")]);
    let runner = bench.runner(WARM);
    let allow = Arc::new(accept_all());
    let first = run(&runner, bench.request("alpha").approvals(allow.clone())).await;
    assert_eq!(first.ok().answer, "first answer", "{:#?}", first.events);
    let done = first.done(&ActionKind::Command);
    assert_eq!(done.len(), 1, "{:#?}", first.events);
    let detail = |name: &str| done[0].action.detail.get(name);
    // What each agent reports of a command that exits with 3: see docs/engines.md.
    let (ok, exit_code) = match real {
        Real::Opencode | Real::Qwen | Real::CodexAcp => (false, Some(3)),
        Real::PiAcp => (false, Some(1)),
        Real::ClaudeAcp => (false, None),
        Real::Gemini => (true, None),
    };
    assert_eq!(done[0].ok, Some(ok), "{:?}", done[0]);
    assert_eq!(detail("exit_code").and_then(Value::as_i64), exit_code, "{:?}", done[0]);
    let output = detail("output_tail").and_then(Value::as_str).unwrap_or_default();
    assert_eq!(output.contains("takopi-out"), real != Real::Gemini, "{:?}", done[0]);
    let line = runner.format_resume(&first.session());
    // Given up by the first runner because another process wants it.
    let other = bench.elsewhere(COLD);
    let token = other.extract_resume(&line).expect("its own line");
    let second = run(&other, bench.request("beta").resume(token.clone())).await;
    assert_eq!(second.ok().answer, "second answer", "{:#?}", second.events);
    assert_eq!((second.session(), second.completed().resume.clone()), (token.clone(), Some(token)));
    let history = bench.remembered("beta").join(" | ");
    assert!(history.contains("alpha") && history.contains("beta"), "{history}");
    other.shutdown().await;
    runner.shutdown().await;
    assert_eq!(bench.processes(), Vec::<String>::new());
}

/// An approval that is given, and one that is not.
async fn what_is_asked_is_decided(real: Real) {
    let Some(bench) = Bench::new(real) else { return };
    bench.when("gamma", [Do::Ask("touch yes.txt".into()), say("made it")]);
    bench.when("delta", [Do::Ask("touch no.txt".into()), say("did not")]);
    let runner = bench.runner(WARM);
    let mode = if real == Real::CodexAcp { Some("read-only") } else { None };
    let request = |prompt: &str| {
        let request = bench.request(prompt);
        match mode {
            Some(mode) => request.permission_mode(mode),
            None => request,
        }
    };
    let yes = run(&runner, request("gamma").approvals(Arc::new(accept_all()))).await;
    yes.ok();
    assert!(!yes.actions(&ActionKind::Approval).is_empty(), "{:#?}", yes.events);
    assert!(bench.home().workspace().join("yes.txt").exists(), "{:#?}", yes.events);
    let session = yes.session();
    let no = run(&runner, request("delta").resume(session).approvals(Arc::new(deny()))).await;
    assert!(!no.actions(&ActionKind::Approval).is_empty(), "{:#?}", no.events);
    assert!(!bench.home().workspace().join("no.txt").exists(), "{:#?}", no.events);
    let declined = no.done(&ActionKind::Command);
    assert!(declined.iter().all(|event| event.ok == Some(false)), "{declined:#?}");
    runner.shutdown().await;
    assert_eq!(bench.processes(), Vec::<String>::new());
}

/// A cancel in a command with a child in a session of its own: nothing is left, and the session goes on.
async fn a_cancelled_command_leaves_nothing(real: Real) {
    let Some(bench) = Bench::new(real) else { return };
    let command = "setsid sleep 4321 & echo up > ready.txt; sleep 4321";
    bench.when("epsilon", [Do::Run(command.into()), say("never")]);
    bench.when("zeta", [say("went on")]);
    let runner = bench.runner(WARM);
    let cancel = CancellationToken::new();
    let request = bench.request("epsilon").approvals(Arc::new(accept_all())).cancel(cancel.clone());
    let mut stream = runner.run(request);
    let seen = until(&mut stream, "Started", is_started).await;
    let ready = bench.home().workspace().join("ready.txt");
    let mut rest = tokio::spawn(finish_unbounded(stream, seen));
    within(PATIENCE, "the command to run", async {
        while !ready.exists() {
            assert!(!rest.is_finished(), "ended before the command: {:#?}", (&mut rest).await);
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    })
    .await;
    cancel.cancel();
    let seen = rest.await.expect("the run");
    seen.failed("interrupted");
    assert_eq!(bench.processes(), Vec::<String>::new(), "behind the end nothing lives");
    let again = run(&runner, bench.request("zeta").resume(seen.session())).await;
    assert_eq!(again.ok().answer, "went on", "{:#?}", again.events);
    runner.shutdown().await;
}

/// Four prompts at once on one session, each from a takopi of its own: four answers, four in the history.
async fn four_prompts_at_once_are_all_answered(real: Real) {
    let Some(bench) = Bench::new(real) else { return };
    bench.when("begin", [say("begun")]);
    let words = ["red", "green", "blue", "black"];
    for word in words {
        bench.when(word, [say(&format!("{word} done"))]);
    }
    bench.when("recall", [say("recalled")]);
    let first = bench.runner(COLD);
    let session = run(&first, bench.request("begin")).await.session();
    let runs = words.map(|word| {
        let (bench, session) = (&bench, session.clone());
        async move {
            let runner = bench.elsewhere(COLD);
            let seen = run(&runner, bench.request(word).resume(session)).await;
            runner.shutdown().await;
            seen
        }
    });
    for (word, seen) in words.iter().zip(join_all(runs).await) {
        assert_eq!(seen.ok().answer, format!("{word} done"), "{:#?}", seen.events);
    }
    run(&first, bench.request("recall").resume(session)).await.ok();
    let history = bench.remembered("recall").join(" | ");
    assert!(words.iter().all(|word| history.contains(word)), "{history}");
    // Left to itself, opencode would ask again and again. Others call the model for more than the answer.
    for word in words.iter().filter(|_| real == Real::Opencode) {
        assert_eq!(bench.calls(word), 1, "{word} was asked once");
    }
    first.shutdown().await;
    assert_eq!(bench.processes(), Vec::<String>::new());
}

/// A model that fails, and a session that does not exist.
async fn failures_are_reported(real: Real) {
    let Some(bench) = Bench::new(real) else { return };
    bench.when("broken", [Do::Fail]);
    let runner = bench.runner(COLD);
    let seen = run(&runner, bench.request("broken")).await;
    let end = seen.completed();
    assert!(!end.ok && end.reason.is_some() && end.error.is_some(), "{end:?}");
    let token = ResumeToken::new(runner.engine(), real.unknown_session());
    let seen = run(&runner, bench.request("never").resume(token.clone())).await;
    assert_eq!(seen.failed("session_not_found").resume, Some(token));
    assert!(!seen.events.iter().any(is_started));
    assert_eq!(bench.calls("never"), 0);
    runner.shutdown().await;
    assert_eq!(bench.processes(), Vec::<String>::new());
}

/// A tool of an MCP server that takopi gives the agent is called, and is an action of the run.
async fn a_server_of_the_host_is_the_agents(real: Real) {
    let Some(bench) = Bench::new(real) else { return };
    bench.when("ping", [Do::Echo("takopi-echo".into()), say("heard it")]);
    let runner = bench.runner_of(bench.acp().mcp_server(bench.home().lab_mcp()).keep_warm(COLD));
    let seen = run(&runner, bench.request("ping").approvals(Arc::new(accept_all()))).await;
    assert_eq!(seen.ok().answer, "heard it", "{:#?}", seen.events);
    let done = seen.done(&ActionKind::Tool);
    assert_eq!((done.len(), done[0].ok), (1, Some(true)), "{:#?}", seen.events);
    assert!(done[0].action.title.contains("echo"), "{:?}", done[0]);
    // Codex and Claude Code give their models only what is structured of a result.
    let is_structured = matches!(real, Real::CodexAcp | Real::ClaudeAcp);
    let result = if is_structured { r#"{"a":1}"# } else { "takopi-echo" };
    let outputs = bench.tool_outputs("ping");
    assert!(outputs.iter().any(|output| output.contains(result)), "{outputs:?}");
    runner.shutdown().await;
    assert_eq!(bench.processes(), Vec::<String>::new());
}

macro_rules! on_each {
    ($($agent:ident = $real:ident: $($check:ident)*;)*) => {
        $(mod $agent {
            use super::*;
            $(#[tokio::test(flavor = "multi_thread")] async fn $check() { super::$check(Real::$real).await; })*
        })*
    };
}

on_each! {
    opencode = Opencode: a_session_goes_on_in_another_process what_is_asked_is_decided a_cancelled_command_leaves_nothing
        four_prompts_at_once_are_all_answered failures_are_reported a_server_of_the_host_is_the_agents;
    qwen = Qwen: a_session_goes_on_in_another_process what_is_asked_is_decided a_cancelled_command_leaves_nothing
        four_prompts_at_once_are_all_answered failures_are_reported a_server_of_the_host_is_the_agents;
    codex_acp = CodexAcp: a_session_goes_on_in_another_process what_is_asked_is_decided a_cancelled_command_leaves_nothing
        four_prompts_at_once_are_all_answered failures_are_reported a_server_of_the_host_is_the_agents;
    claude_acp = ClaudeAcp: a_session_goes_on_in_another_process what_is_asked_is_decided a_cancelled_command_leaves_nothing
        four_prompts_at_once_are_all_answered failures_are_reported a_server_of_the_host_is_the_agents;
    // Not four prompts: each waits a minute for the one before, and one was seen to find the session gone.
    gemini = Gemini: a_session_goes_on_in_another_process what_is_asked_is_decided a_cancelled_command_leaves_nothing
        failures_are_reported a_server_of_the_host_is_the_agents;
    // It asks for nothing and takes no MCP servers.
    pi_acp = PiAcp: a_session_goes_on_in_another_process a_cancelled_command_leaves_nothing
        four_prompts_at_once_are_all_answered failures_are_reported;
}

/// A message into the running turn is part of it, and its answer is the run's.
#[tokio::test(flavor = "multi_thread")]
async fn codex_acp_takes_a_message_into_the_running_turn() {
    let Some(bench) = Bench::new(Real::CodexAcp) else { return };
    let gate = Gate::new();
    bench.when("long", [Do::Wait(gate.clone(), "one done".into())]);
    bench.when("also", [say("both done")]);
    let runner = bench.runner(COLD);
    let (steer, steering) = steer_channel();
    let run = runner.run(bench.request("long").steering(steering));
    let run = tokio::spawn(finish_unbounded(run, Vec::new()));
    gate.reached().await;
    steer.send("also this").await.expect("taken");
    gate.open();
    let seen = run.await.expect("the run");
    assert_eq!(seen.ok().answer, "both done", "{:#?}", seen.events);
    let history = bench.remembered("also");
    let place = |word: &str| history.iter().position(|text| text.contains(word));
    assert!(place("long").is_some() && place("long") < place("also"), "{history:?}");
    runner.shutdown().await;
    assert_eq!(bench.processes(), Vec::<String>::new());
}

/// A broken stream makes opencode ask its model without end: takopi stops it.
#[tokio::test(flavor = "multi_thread")]
async fn opencode_is_stopped_when_its_models_stream_breaks_again_and_again() {
    let Some(bench) = Bench::new(Real::Opencode) else { return };
    bench.when("drop", std::iter::repeat_n(Do::Break("half ".into()), 200));
    let runner = bench.runner(COLD);
    let seen = run(&runner, bench.request("drop")).await;
    let error = seen.failed("engine_failed").error.clone().unwrap_or_default();
    assert!(error.contains("over and over"), "{error}");
    assert!(bench.calls("drop") < 40, "{}", bench.calls("drop"));
    runner.shutdown().await;
    assert_eq!(bench.processes(), Vec::<String>::new());
}

/// A prompt that looks like a command of the agent reaches the model.
#[tokio::test(flavor = "multi_thread")]
async fn a_prompt_that_begins_with_a_slash_is_text_for_opencode() {
    let Some(bench) = Bench::new(Real::Opencode) else { return };
    bench.when("/etc/hosts", [say("it is fine")]);
    let runner = bench.runner(COLD);
    let seen = run(&runner, bench.request("/etc/hosts: why is it empty?")).await;
    assert_eq!(seen.ok().answer, "it is fine");
    runner.shutdown().await;
}

/// Nobody would be asked about a file that goes to the model like this.
#[tokio::test(flavor = "multi_thread")]
async fn a_prompt_of_claude_acp_that_mentions_a_file_reaches_the_model_without_it() {
    let Some(bench) = Bench::new(Real::ClaudeAcp) else { return };
    std::fs::write(bench.home().workspace().join("secret.txt"), "the-secret-itself").unwrap();
    bench.when("look at", [say("looked")]);
    let runner = bench.runner(COLD);
    let seen = run(&runner, bench.request("look at @/etc/passwd and @secret.txt")).await;
    assert_eq!(seen.ok().answer, "looked", "{:#?}", seen.events);
    let sent = bench.sent().concat();
    assert!(sent.contains("look at @/etc/passwd and @secret.txt"), "{sent}");
    assert!(!sent.contains("root:x:") && !sent.contains("the-secret-itself"), "{sent}");
    runner.shutdown().await;
    assert_eq!(bench.processes(), Vec::<String>::new());
}
