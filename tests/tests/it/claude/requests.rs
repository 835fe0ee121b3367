//! Requests of Claude Code to its host, host tools and follow-ups, with a process that misbehaves.

use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt as _;
use futures::future::BoxFuture;
use futures::stream::FuturesUnordered;
use serde_json::{Value, json};
use takopi_claude::Claude;
use takopi_core::runner::steer_channel;
use takopi_core::tools::HostTool;
use takopi_core::{ActionKind, ApprovalHandler, ApprovalRequest, Decision, Phase, Runner};
use takopi_tests::claude::fake::{Process, Step, turn};
use takopi_tests::claude::lab::Lab;
use takopi_tests::model::{PATIENCE, within};
use takopi_tests::runs::{Seen, finish, run};
use tokio_util::sync::{CancellationToken, DropGuard};

use super::LONG;

/// Never decides. Knows when it is asked, and when nobody waits for its decision any more.
#[derive(Clone, Default)]
struct Never {
    asked: CancellationToken,
    dropped: CancellationToken,
}

impl ApprovalHandler for Never {
    fn decide(&self, _request: ApprovalRequest) -> BoxFuture<'static, Decision> {
        let guard: DropGuard = self.dropped.clone().drop_guard();
        self.asked.cancel();
        Box::pin(async move {
            let _guard = guard;
            std::future::pending().await
        })
    }
}

/// Says yes to everything, or panics.
struct Rash {
    panics: bool,
}

impl ApprovalHandler for Rash {
    fn decide(&self, _request: ApprovalRequest) -> BoxFuture<'static, Decision> {
        let panics = self.panics;
        Box::pin(async move {
            assert!(!panics, "on purpose");
            Decision::Accept
        })
    }
}

fn lab_of_turn(steps: impl IntoIterator<Item = Step>) -> Lab {
    Lab::new(Process::new().turns(steps))
}

fn asks_and_goes_on(ask: Step) -> Lab {
    lab_of_turn([turn::bash("t", "ls"), ask].into_iter().chain(turn::answer("went on")))
}

async fn one_run(lab: &Lab, handler: Option<Arc<dyn ApprovalHandler>>) -> Seen {
    let runner = lab.runner(Duration::ZERO);
    let mut request = lab.request("hi");
    if let Some(handler) = handler {
        request = request.approvals(handler);
    }
    let seen = run(&runner, request).await;
    runner.shutdown().await;
    lab.assert_nothing_left().await;
    seen
}

/// What became of the approvals of a run.
fn phases(seen: &Seen) -> Vec<(Phase, Option<bool>)> {
    seen.actions(&ActionKind::Approval).iter().map(|it| (it.phase, it.ok)).collect()
}

const DECLINED: [(Phase, Option<bool>); 2] =
    [(Phase::Started, None), (Phase::Completed, Some(false))];

#[tokio::test]
async fn requests_are_declined_visibly_without_a_handler_and_by_one_that_panics() {
    for ask in [
        turn::ask_bash("q", "t", "rm -rf /"),
        turn::ask_tool("q", "t", "Write", &json!({"file_path": "/etc/hosts", "content": "x"})),
        turn::ask_tool("q", "t", "FromTheFuture", &json!({"a": 1})),
        turn::ask_question("q", "t", "Which?"),
        Step::ask("q", "can_use_tool", json!({})),
    ] {
        for handler in [None, Some(Arc::new(Rash { panics: true }))] {
            let lab = asks_and_goes_on(ask.clone());
            let seen = one_run(&lab, handler.map(|it| it as Arc<dyn ApprovalHandler>)).await;
            assert_eq!(seen.ok().answer, "went on", "{ask:?}");
            let answer = lab.control.answer("q").await;
            assert_eq!(answer["response"]["behavior"], "deny", "{ask:?}: {answer}");
            assert_eq!(phases(&seen).last(), DECLINED.last(), "{ask:?}: {:#?}", seen.events);
        }
    }
}

#[tokio::test]
async fn a_request_that_cannot_be_read_is_declined_whatever_the_handler_says() {
    for params in [json!({}), json!({"tool_name": "Bash"}), json!({"tool_name": 1, "input": {}})] {
        let lab = asks_and_goes_on(Step::ask("q", "can_use_tool", params.clone()));
        let seen = one_run(&lab, Some(Arc::new(Rash { panics: false }))).await;
        assert_eq!(seen.ok().answer, "went on");
        assert_eq!(lab.control.answer("q").await["response"]["behavior"], "deny", "{params}");
    }
}

#[tokio::test]
async fn a_request_of_an_unknown_kind_is_refused_and_shown() {
    let lab = asks_and_goes_on(Step::ask("q", "hologram", json!({"grant": "everything"})));
    let seen = one_run(&lab, Some(Arc::new(Rash { panics: false }))).await;
    assert_eq!(seen.ok().answer, "went on");
    let answer = lab.control.answer("q").await;
    assert_eq!(answer["subtype"], "error", "{answer}");
    let warnings = seen.done(&ActionKind::Warning);
    assert!(warnings[0].action.title.contains("`hologram`"), "{warnings:?}");
}

#[tokio::test]
async fn what_is_asked_while_no_run_has_the_process_is_declined() {
    let call = turn::call_host("tool", "takopi", "c", "touch", &json!({}));
    let later = [Step::gate("later"), turn::ask_bash("q", "t", "ls"), call, Step::reached("asked")];
    let lab = lab_of_turn(turn::answer("one").into_iter().chain(later));
    let touched = CancellationToken::new();
    let touch = touched.clone();
    let tool = HostTool::new("touch", "Touches.", json!({"type": "object"}), move |_| {
        touch.cancel();
        async { Ok::<_, String>("touched") }
    });
    let runner = lab.claude().keep_warm(LONG).tool(tool).runner().on(lab.host.clone());
    let request = lab.request("one").approvals(Arc::new(Rash { panics: false }));
    run(&runner, request).await.ok();
    lab.control.open("later");
    lab.control.reached("asked").await;
    assert_eq!(lab.control.answer("q").await["response"]["behavior"], "deny");
    assert_eq!(lab.control.answer("tool").await["subtype"], "error");
    assert!(!touched.is_cancelled(), "no run, no call");
    runner.shutdown().await;
    lab.assert_nothing_left().await;
}

#[tokio::test]
async fn a_question_that_is_withdrawn_drops_what_the_handler_does() {
    let ask = turn::ask_bash("q", "t", "ls").without_waiting();
    let steps = [ask, Step::gate("asked"), Step::Withdraw("q".to_owned()), Step::gate("dropped")];
    let lab = lab_of_turn(steps.into_iter().chain(turn::answer("went on")));
    let runner = lab.runner(Duration::ZERO);
    let handler = Never::default();
    let stream = runner.run(lab.request("hi").approvals(Arc::new(handler.clone())));
    let director = async {
        within(PATIENCE, "the question", handler.asked.cancelled()).await;
        lab.control.open("asked");
        within(PATIENCE, "the handler to be dropped", handler.dropped.cancelled()).await;
        lab.control.open("dropped");
    };
    let (seen, ()) = tokio::join!(finish(stream, Vec::new()), director);
    assert_eq!(seen.ok().answer, "went on");
    assert_eq!(phases(&seen), DECLINED);
    assert_eq!(lab.control.answers("q"), Vec::<Value>::new(), "nobody waits for an answer");
    lab.assert_nothing_left().await;
}

#[tokio::test]
async fn a_question_does_not_outlive_its_run() {
    let ask = turn::ask_bash("q", "t", "ls").without_waiting();
    let lab = lab_of_turn([ask].into_iter().chain(turn::answer("done")));
    let handler = Never::default();
    let seen = one_run(&lab, Some(Arc::new(handler.clone()))).await;
    assert_eq!(seen.ok().answer, "done");
    assert_eq!(phases(&seen), DECLINED);
    assert!(handler.dropped.is_cancelled() || !handler.asked.is_cancelled());
}

#[tokio::test]
async fn a_host_tool_that_fails_hangs_panics_or_is_missing_is_an_error_and_the_turn_goes_on() {
    let schema = json!({"type": "object"});
    let tool = |name: &'static str| {
        HostTool::new(name, "A tool.", schema.clone(), move |_| async move {
            match name {
                "fails" => Err::<String, _>("there is no such ticket"),
                "hangs" => std::future::pending().await,
                _ => panic!("on purpose"),
            }
        })
        .timeout(if name == "hangs" { Duration::from_millis(200) } else { LONG })
    };
    for (name, told) in [
        ("fails", "there is no such ticket"),
        ("hangs", "did not answer within 200ms"),
        ("panics", "broke"),
        ("missing", "missing"),
    ] {
        let call = turn::call_host("q", "takopi", "t", name, &json!({}));
        let steps = turn::connect_host("list", "takopi").into_iter().chain([call]);
        let lab = lab_of_turn(steps.chain(turn::answer("went on")));
        let tools = [tool("fails"), tool("hangs"), tool("panics")].into_iter();
        let claude = tools.fold(lab.claude().keep_warm(Duration::ZERO), Claude::tool);
        let runner = claude.runner().on(lab.host.clone());
        assert_eq!(run(&runner, lab.request("hi")).await.ok().answer, "went on", "{name}");
        let listed = lab.control.answer("list").await;
        let listed =
            listed["response"]["mcp_response"]["result"]["tools"].as_array().unwrap().len();
        assert_eq!(listed, 3);
        let answer = lab.control.answer("q").await;
        let result = &answer["response"]["mcp_response"]["result"];
        assert_eq!(result["isError"], true, "{name}: {answer}");
        assert!(result["content"].to_string().contains(told), "{name}: {answer}");
        runner.shutdown().await;
        lab.assert_nothing_left().await;
    }
}

/// A state as a line: the turn of the fake goes on.
fn state(name: &str) -> Step {
    turn::system("session_state_changed", &json!({ "state": name }))
}

#[tokio::test]
async fn a_follow_up_is_taken_into_the_running_turn_and_handed_back_when_the_run_is_over() {
    let steps = [Step::reached("in"), Step::gate("go")].into_iter().chain(turn::answer("Both."));
    let lab = lab_of_turn(steps);
    let runner = lab.runner(LONG);
    let (steer, steering) = steer_channel();
    let stream = runner.run(lab.request("begin").steering(steering));
    let director = async {
        lab.control.reached("in").await;
        steer.send("mind the tests").await.unwrap();
        lab.control.nth_call("user", 1).await;
        lab.control.open("go");
    };
    let (seen, ()) = tokio::join!(finish(stream, Vec::new()), director);
    assert_eq!(seen.ok().answer, "Both.");
    assert_eq!(steer.send("one more thing").await.unwrap_err().text, "one more thing");
    assert_eq!(lab.control.starts().len(), 1);
    runner.shutdown().await;
    lab.assert_nothing_left().await;
}

#[tokio::test]
async fn a_follow_up_that_came_too_late_for_the_turn_has_one_of_its_own_in_the_same_run() {
    let first = [
        Step::reached("in"),
        Step::gate("go"),
        turn::text("First."),
        turn::result_with("First.", &json!({"user_message_uuids": ["$MESSAGE"]})),
        turn::lifecycle("completed"),
        state("idle"),
        Step::reached("first is over"),
        Step::gate("never"),
    ];
    let second = [
        turn::lifecycle("queued"),
        Step::reached("queued"),
        Step::gate("second"),
        state("running"),
        turn::lifecycle("started"),
        turn::init(),
        turn::text("Second."),
        turn::result_with("Second.", &json!({"user_message_uuids": ["$MESSAGE"]})),
        turn::idle(),
    ];
    let lab = Lab::new(Process::new().turns(first).always("steer", second));
    let runner = lab.runner(Duration::ZERO);
    let (steer, steering) = steer_channel();
    let stream = runner.run(lab.request("begin").steering(steering));
    let director = async {
        lab.control.reached("in").await;
        steer.send("and then").await.unwrap();
        lab.control.reached("queued").await;
        lab.control.open("go");
        lab.control.reached("first is over").await;
        lab.control.open("second");
    };
    let (seen, ()) = tokio::join!(finish(stream, Vec::new()), director);
    assert_eq!(seen.ok().answer, "Second.");
    runner.shutdown().await;
    lab.assert_nothing_left().await;
}

#[tokio::test]
async fn a_process_that_reads_no_follow_up_holds_up_no_cancel() {
    // More than what the pipe and the queue in front of it hold.
    const MANY: usize = 80;
    let lab = lab_of_turn([Step::reached("deaf"), Step::StopReading, Step::SleepForever]);
    let runner = lab.runner(LONG);
    let cancel = CancellationToken::new();
    let (steer, steering) = steer_channel();
    let stream = runner.run(lab.request("hi").steering(steering).cancel(cancel.clone()));
    lab.control.reached("deaf").await;
    let text = "x".repeat(100_000);
    let sends: FuturesUnordered<_> = (0..MANY).map(|_| steer.send(text.clone())).collect();
    let director = async {
        let mut taken = 0;
        let mut settled = std::pin::pin!(sends.inspect(|_| {
            taken += 1;
            if taken == 65 {
                cancel.cancel();
            }
        }));
        while settled.next().await.is_some() {}
    };
    let (seen, ()) = within(PATIENCE, "the end and every follow-up", async {
        tokio::join!(finish(stream, Vec::new()), director)
    })
    .await;
    seen.failed("interrupted");
    assert_eq!(lab.home.processes(), []);
    runner.shutdown().await;
    lab.assert_nothing_left().await;
}
