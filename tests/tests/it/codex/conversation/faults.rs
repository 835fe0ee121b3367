//! Conversations, approvals and tools with a server that misbehaves.
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt as _;
use serde_json::json;
use takopi_codex::app_server::{
    CodexAppServer, Conversation, ConversationReport, Message, TurnOptions,
};
use takopi_core::RunRequest;
use takopi_core::approvals::{accept_all, channel};
use takopi_core::tools::HostTool;
use takopi_core::{ActionKind, Decision, EngineRunner, Reason, TakopiEvent};
use takopi_tests::codex::fake::app_server::not_found;
use takopi_tests::codex::fake::{Script, Server, Signal, Step, turn};
use takopi_tests::codex::lab::{Lab, session};
use takopi_tests::limits::with_enough_time;
use takopi_tests::model::{PATIENCE, within};
use takopi_tests::runs::{Seen, finish, run};

const LONG: Duration = Duration::from_mins(10);

fn server(lab: &Lab) -> CodexAppServer {
    CodexAppServer::new(lab.codex()).keep_warm(LONG)
}

fn conversation(lab: &Lab) -> Conversation {
    with(lab, server(lab), |settings| settings)
}

fn with(
    lab: &Lab,
    server: CodexAppServer,
    settings: impl FnOnce(RunRequest) -> RunRequest,
) -> Conversation {
    Conversation::on(lab.host.clone(), server, settings(lab.request("")))
}

async fn send(conversation: &Conversation, input: &str) -> ConversationReport {
    conversation.run_turn(input, TurnOptions::default()).await
}

fn message(text: &str) -> Message {
    serde_json::from_value(json!({ "role": "assistant", "content": text })).unwrap()
}

/// The messages of approval actions, as they ended.
fn decisions(seen: &Seen) -> Vec<&str> {
    let done = seen.done(&ActionKind::Approval);
    done.into_iter().map(|event| event.message.as_deref().unwrap_or_default()).collect()
}

#[tokio::test]
async fn the_end_of_a_turn_right_behind_its_request_drops_the_handler() {
    let lab = Lab::new(
        Server::new()
            .turns([
                turn::command_started("c1", "ls"),
                turn::ask_command("leave", "c1", "ls").without_waiting(),
                turn::completed(),
            ])
            .script(),
    );
    let (ask, mut questions) = channel(1);
    let conversation = with(&lab, server(&lab), |settings| settings.approvals(Arc::new(ask)));
    let mut approvals = Vec::new();
    let report = conversation
        .watch_turn("go", TurnOptions::default(), |event| {
            if let TakopiEvent::Action(event) = event
                && event.action.kind == ActionKind::Approval
            {
                approvals.push(event.message.clone().unwrap_or_default());
            }
        })
        .await;
    assert!(report.ok(), "{report:#?}");
    assert_eq!(approvals, ["waiting for a decision", "withdrawn"]);
    // It may never have been put to anybody.
    if let Ok(mut question) = questions.try_recv() {
        question.withdrawn().await;
        assert!(!question.answer(Decision::Accept));
    }
    conversation.close().await;
    lab.assert_nothing_left().await;
}

#[tokio::test]
async fn a_request_that_is_asked_twice_is_answered_twice_and_one_settled_late_is_no_matter() {
    let lab = Lab::new(
        Server::new()
            .turns(
                [
                    turn::ask_command("first", "c1", "ls").with_id(7).without_waiting(),
                    turn::ask_command("second", "c1", "ls").with_id(7),
                    Step::Withdraw("first".to_owned()),
                    Step::Withdraw("second".to_owned()),
                ]
                .into_iter()
                .chain(turn::answer("went on")),
            )
            .script(),
    );
    let runner = lab.app_server(Duration::ZERO);
    let asked = lab.request("go").approvals(Arc::new(accept_all()));
    let seen = run(&runner, asked).await;
    assert_eq!(seen.ok().answer, "went on");
    // Codex takes the first answer for either, and may settle the second before it is decided.
    let decisions_seen = decisions(&seen);
    assert_eq!(decisions_seen.len(), 2);
    assert!(decisions_seen.contains(&"accepted by policy"), "{decisions_seen:?}");
    let ids: Vec<&str> =
        seen.done(&ActionKind::Approval).iter().map(|event| event.action.id.as_str()).collect();
    assert_ne!(ids[0], ids[1], "each is an action of its own");
    lab.assert_nothing_left().await;
}

#[tokio::test]
async fn cancel_ends_the_turn_where_codex_has_no_cancel_decision() {
    for ask in [
        turn::ask_permissions("leave", "p1", "/srv"),
        turn::ask_elicitation("leave", "lab", "may I?"),
        turn::ask_user_input("leave", "q1", "which?"),
    ] {
        let steps = [ask, Step::SleepForever];
        let lab = Lab::new(Server::new().turns(steps).script());
        let runner = lab.app_server(Duration::ZERO);
        let (ask, mut questions) = channel(1);
        let stream = takopi_core::Runner::run(&runner, lab.request("go").approvals(Arc::new(ask)));
        let answer = async {
            questions.recv().await.unwrap().answer(Decision::Cancel);
        };
        let (seen, ()) = tokio::join!(finish(stream, Vec::new()), answer);
        seen.failed("interrupted");
        assert_eq!(decisions(&seen), ["declined, and the turn ends"]);
        lab.assert_nothing_left().await;
    }
}

#[tokio::test]
async fn a_handler_that_panics_is_a_no() {
    struct Broken;
    impl takopi_core::ApprovalHandler for Broken {
        fn decide(
            &self,
            _: takopi_core::ApprovalRequest,
        ) -> futures::future::BoxFuture<'static, Decision> {
            Box::pin(async { panic!("on purpose") })
        }
    }
    let steps = [turn::ask_command("leave", "c1", "ls")].into_iter().chain(turn::answer("on"));
    let lab = Lab::new(Server::new().turns(steps).script());
    let asked = lab.request("go").approvals(Arc::new(Broken));
    let seen = run(&lab.app_server(Duration::ZERO), asked).await;
    assert_eq!(seen.ok().answer, "on");
    assert_eq!(decisions(&seen), ["declined: the approval handler panicked"]);
    assert_eq!(lab.control.answer("leave").await["result"]["decision"], "decline");
    lab.assert_nothing_left().await;
}

#[tokio::test]
async fn a_running_tool_is_dropped_with_its_turn() {
    let steps = [
        turn::ask_tool("call", "t1", "slow", &json!({})).without_waiting(),
        Step::gate("called"),
        turn::completed(),
    ];
    let lab = Lab::new(Server::new().turns(steps).script());
    let (called, mut calls) = tokio::sync::mpsc::channel::<tokio::sync::oneshot::Sender<()>>(1);
    let tool = HostTool::new("slow", "", json!({}), move |_| {
        let called = called.clone();
        async move {
            let (alive, gone) = tokio::sync::oneshot::channel::<()>();
            // Closes when the future that holds the other end is dropped.
            called.send(alive).await.unwrap();
            let _gone = gone;
            std::future::pending::<Result<String, String>>().await
        }
    });
    let runner = EngineRunner::new(server(&lab).tool(tool)).on(lab.host.clone());
    let beside = async {
        let mut call = calls.recv().await.unwrap();
        lab.control.open("called");
        call.closed().await;
    };
    let (seen, ()) = tokio::join!(run(&runner, lab.request("go")), beside);
    seen.ok();
    takopi_core::Runner::shutdown(&runner).await;
    lab.assert_nothing_left().await;
}

#[tokio::test]
async fn a_sub_agents_end_before_the_parents_is_not_in_the_report() {
    let elsewhere = turn::elsewhere(
        "01a1e21b-0000-7eb0-9d27-459e98f10b74",
        "other",
        turn::message("m0", "the sub-agent's").into_iter().chain([turn::completed()]),
    );
    let steps = elsewhere.into_iter().chain(turn::answer("the parent's"));
    let lab = Lab::new(Server::new().turns(steps).script());
    let conversation = conversation(&lab);
    let report = send(&conversation, "go").await;
    assert_eq!(report.final_text.as_deref(), Some("the parent's"), "{report:#?}");
    assert_eq!(report.messages, [message("the parent's")]);
    conversation.close().await;
    lab.assert_nothing_left().await;
}

#[tokio::test]
async fn the_mark_of_an_aborted_turn_ends_it_and_quoted_it_is_text() {
    let quoted = "you will see `<turn_aborted>` there";
    let lab = Lab::new(
        Server::new()
            .turns_when(
                "abort",
                turn::aborted_message("m1").into_iter().chain([Step::SleepForever]),
            )
            .turns_when("quote", turn::answer(quoted))
            .script(),
    );
    let conversation = conversation(&lab);
    let quote = send(&conversation, "quote").await;
    assert!(quote.ok() && !quote.interrupted, "{quote:#?}");
    assert_eq!(quote.messages, [message(quoted)]);
    let abort = send(&conversation, "abort").await;
    assert!(abort.interrupted, "{abort:#?}");
    assert_eq!((abort.messages.len(), abort.final_text), (0, None));
    conversation.close().await;
    lab.assert_nothing_left().await;
}

#[tokio::test]
async fn the_prompt_behind_an_aborted_turn_that_goes_on_is_not_added_to_it() {
    let aborted = turn::aborted_message("m1").into_iter().chain([Step::SleepForever]);
    let server =
        Server::new().turns_when("abort", aborted).turns_when("next", turn::answer("here"));
    let lab = Lab::new(server.script());
    let conversation = conversation(&lab);
    let abort = send(&conversation, "abort").await;
    assert!(abort.interrupted, "{abort:#?}");
    let next = within(PATIENCE, "the next turn", send(&conversation, "next")).await;
    assert_eq!(next.final_text.as_deref(), Some("here"), "{next:#?}");
    assert_eq!(next.thread_id, abort.thread_id);
    assert_eq!(lab.control.calls("turn/interrupt").len(), 1);
    conversation.close().await;
    lab.assert_nothing_left().await;
}

#[tokio::test]
async fn an_interrupt_is_heeded_at_every_step_of_the_start() {
    for method in ["initialize", "thread/start", "turn/start"] {
        let stuck = Server::new().always(method, [Step::reached("stuck"), Step::SleepForever]);
        let lab = Lab::new(Script::nth([stuck.script(), Server::new().script()]));
        let conversation = conversation(&lab);
        let beside = async {
            lab.control.reached("stuck").await;
            assert!(conversation.interrupt());
        };
        let (report, ()) = tokio::join!(send(&conversation, "go"), beside);
        assert!(report.interrupted, "{method}: {report:#?}");
        assert!(send(&conversation, "again").await.ok(), "{method}");
        assert_eq!(lab.control.starts().len(), 2, "{method}: in a fresh process");
        conversation.close().await;
        lab.assert_nothing_left().await;
    }
}

#[tokio::test]
async fn a_conversation_of_which_nothing_was_stored_goes_on_in_a_new_thread() {
    let stuck = Server::new().always("turn/start", [Step::reached("stuck"), Step::SleepForever]);
    let empty = Server::new().always("thread/resume", not_found());
    let lab = Lab::new(Script::nth([stuck.script(), empty.script()]));
    let conversation = conversation(&lab);
    let beside = async {
        lab.control.reached("stuck").await;
        assert!(conversation.interrupt());
    };
    let (first, ()) = tokio::join!(send(&conversation, "go"), beside);
    assert!(first.interrupted && first.thread_id.is_some(), "{first:#?}");
    let mut ends = 0;
    let count = |event: &TakopiEvent| {
        ends += usize::from(matches!(event, TakopiEvent::Completed(_)));
    };
    let again = conversation.watch_turn("again", TurnOptions::default(), count).await;
    assert!(again.ok(), "{again:#?}");
    assert_eq!(ends, 1);
    assert_ne!(again.thread_id, first.thread_id);
    assert_eq!(again.thread_id, conversation.session().map(|token| token.value));
    conversation.close().await;
    lab.assert_nothing_left().await;
}

#[tokio::test]
async fn a_session_of_the_caller_that_codex_does_not_know_is_not_replaced() {
    let lab = Lab::new(Server::new().always("thread/resume", not_found()).script());
    let conversation = with(&lab, server(&lab), |settings| settings.resume(session()));
    for _ in 0..2 {
        let report = send(&conversation, "go").await;
        assert_eq!(report.reason, Some(Reason::SessionNotFound), "{report:#?}");
    }
    assert_eq!(lab.control.calls("thread/start").len(), 0);
    assert_eq!(conversation.session(), Some(session()));
    conversation.close().await;
    lab.assert_nothing_left().await;
}

#[tokio::test]
async fn a_process_that_dies_at_any_step_is_retired_and_the_next_turn_goes_on() {
    let die = || Step::Die(Signal::Kill);
    let cases: Vec<(&str, Server)> = vec![
        ("the start", Server::new().first([die()])),
        ("initialize", Server::new().always("initialize", [die()])),
        ("initialized", Server::new().always("initialized", [die()])),
        ("thread/start", Server::new().always("thread/start", [die()])),
        ("behind thread/start", Server::new().always("thread/start", [Step::Reply, die()])),
        ("turn/start", Server::new().always("turn/start", [die()])),
        ("behind turn/start", Server::new().always("turn/start", [Step::Reply, die()])),
        ("the opened turn", Server::new().turns([die()])),
        ("a tool", Server::new().turns([turn::command_started("c1", "ls"), die()])),
        (
            "behind a tool",
            Server::new().turns([
                turn::command_started("c1", "ls"),
                turn::command_completed("c1", "ls", "", 0),
                die(),
            ]),
        ),
        (
            "a question",
            Server::new().turns([turn::ask_command("q", "c1", "ls").without_waiting(), die()]),
        ),
    ];
    for (step, dying) in cases {
        let lab = Lab::new(Script::nth([dying.script(), Server::new().script()]));
        let conversation = conversation(&lab);
        let died = send(&conversation, "go").await;
        assert_eq!(died.reason, Some(Reason::ProcessDied), "{step}: {died:#?}");
        assert!(died.retired, "{step}");
        let calls = lab.control.calls("turn/start").len();
        let next = send(&conversation, "again").await;
        assert!(next.ok(), "{step}: {next:#?}");
        let after = lab.control.calls("turn/start");
        assert_eq!(after.len(), calls + 1, "{step}: the turn is not sent again");
        if died.turn_id.is_some() {
            assert_eq!(next.thread_id, died.thread_id, "{step}: the same thread");
            assert_eq!(lab.control.calls("thread/resume").len(), 1, "{step}");
        }
        conversation.close().await;
        lab.assert_nothing_left().await;
    }
}

#[tokio::test]
async fn silence_after_a_tool_is_ended_by_its_own_limit() {
    let silent = Server::new().turns([
        turn::command_started("c1", "ls"),
        turn::command_completed("c1", "ls", "out", 0),
        Step::SleepForever,
    ]);
    let lab = Lab::new(Script::nth([silent.script(), Server::new().script()]));
    let quiet = Duration::from_millis(300);
    let conversation = with(&lab, server(&lab).post_tool_quiet(quiet), |settings| settings);
    let report = send(&conversation, "go").await;
    assert_eq!(report.reason, Some(Reason::TimeoutIdle), "{report:#?}");
    assert!(report.error.as_deref().unwrap().contains("300ms after a tool"), "{report:#?}");
    assert!(report.retired && !report.interrupted);
    assert_eq!(report.tool_iterations, 1);
    assert!(send(&conversation, "again").await.ok());
    conversation.close().await;
    lab.assert_nothing_left().await;
}

#[tokio::test]
async fn a_turn_has_a_limit_of_its_own_if_asked() {
    let busy = Server::new().turns([turn::command_started("c1", "sleep"), Step::SleepForever]);
    let lab = Lab::new(Script::nth([busy.script(), Server::new().script()]));
    let limit = Duration::from_millis(300);
    let conversation = with(&lab, server(&lab).turn_limit(limit), |settings| settings);
    let report = send(&conversation, "go").await;
    assert_eq!(report.reason, Some(Reason::TimeoutWall), "{report:#?}");
    assert!(report.error.as_deref().unwrap().contains("300ms (turn limit)"), "{report:#?}");
    assert!(report.retired);
    conversation.close().await;
    lab.assert_nothing_left().await;
}

#[tokio::test]
async fn silence_after_turn_start_is_ended_by_the_idle_limit() {
    with_enough_time(async |idle| {
        let silent = Server::new().turns([Step::reached("silent"), Step::SleepForever]);
        let lab = Lab::new(Script::nth([silent.script(), Server::new().script()]));
        let conversation = with(&lab, server(&lab), |settings| settings.idle_timeout(idle));
        let report = send(&conversation, "go").await;
        assert_eq!(report.reason, Some(Reason::TimeoutIdle), "{report:#?}");
        assert!(report.retired);
        if lab.control.marks("silent").is_empty() {
            return false;
        }
        let again = send(&conversation, "again").await;
        conversation.close().await;
        lab.assert_nothing_left().await;
        assert!(again.ok() || again.reason == Some(Reason::TimeoutIdle), "{again:#?}");
        again.ok()
    })
    .await;
}

#[tokio::test]
async fn turns_wait_in_line_and_a_closed_conversation_begins_none() {
    let steps = [Step::reached("running"), Step::gate("go")].into_iter();
    let lab = Lab::new(Server::new().turns(steps.chain(turn::answer("$PROMPT"))).script());
    let conversation = conversation(&lab);
    let (first, second) = (conversation.clone(), conversation.clone());
    let first = tokio::spawn(async move { send(&first, "one").await });
    lab.control.reached("running").await;
    let second = tokio::spawn(async move { send(&second, "two").await });
    lab.control.open("go");
    assert_eq!(first.await.unwrap().final_text.as_deref(), Some("one"));
    assert_eq!(second.await.unwrap().final_text.as_deref(), Some("two"));
    assert_eq!(lab.control.starts().len(), 1);
    conversation.close().await;
    assert!(send(&conversation, "three").await.interrupted);
    assert_eq!(lab.control.calls("turn/start").len(), 2);
    lab.assert_nothing_left().await;
}

/// Rounds of a race, at moments that are spread over the life of a turn.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn closing_races_with_a_turn_and_nothing_panics_or_stays() {
    const ROUNDS: u64 = 500;
    let steps = [turn::command_started("c1", "ls"), Step::Pause { millis: 3 }];
    let lab = Arc::new(Lab::new(
        Server::new().turns(steps.into_iter().chain(turn::answer("hi"))).script(),
    ));
    let round = |number: u64| {
        let lab = lab.clone();
        async move {
            let conversation = conversation(&lab);
            let running = conversation.clone();
            let turn = tokio::spawn(async move { send(&running, "go").await });
            // Up to twice what a whole turn takes.
            tokio::time::sleep(Duration::from_micros(number * 7919 % 60_000)).await;
            conversation.close().await;
            let report = turn.await.expect("no panic");
            assert!(report.ok() || report.interrupted, "{number}: {report:#?}");
        }
    };
    futures::stream::iter(0..ROUNDS).for_each_concurrent(4, round).await;
    lab.assert_nothing_left().await;
}

#[tokio::test]
async fn a_message_that_codex_accepts_too_late_is_answered_in_the_same_report() {
    for echo in [Vec::new(), turn::user_message()] {
        let mut first = vec![Step::reached("turn"), Step::gate("end")];
        first.extend(turn::message_in_phase("m", "First.", "final_answer"));
        first.extend(echo);
        first.extend([turn::usage(), turn::completed()]);
        let server = Server::new().turns_when("begin", first);
        let lab = Lab::new(server.turns_when("tests", turn::answer("Both.")).script());
        let conversation = conversation(&lab);
        let beside = async {
            lab.control.reached("turn").await;
            assert!(conversation.steer("mind the tests").await);
            lab.control.open("end");
        };
        let (report, ()) = tokio::join!(send(&conversation, "begin"), beside);
        assert!(report.ok(), "{report:#?}");
        assert_eq!(report.final_text.as_deref(), Some("Both."));
        assert_eq!(report.messages.first(), Some(&message("First.")));
        assert_eq!(report.messages.last(), Some(&message("Both.")));
        assert_eq!(lab.control.calls("turn/start").len(), 2);
        assert!(!conversation.steer("nobody hears").await);
        conversation.close().await;
        lab.assert_nothing_left().await;
    }
}

#[tokio::test]
async fn a_turn_whose_future_is_dropped_is_interrupted_and_the_next_goes_on() {
    let steps = [Step::reached("running"), Step::SleepForever];
    let lab = Lab::new(Server::new().turns_when("hang", steps).script());
    let conversation = conversation(&lab);
    {
        let turn = send(&conversation, "hang");
        tokio::select! {
            report = turn => panic!("{report:#?}"),
            _ = lab.control.reached("running") => {}
        }
    }
    let next = send(&conversation, "next").await;
    assert!(next.ok(), "{next:#?}");
    let closing = conversation.clone();
    drop(conversation);
    closing.close().await;
    lab.assert_nothing_left().await;
}
