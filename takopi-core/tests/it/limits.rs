//! The idle limit and the wall clock, on a paused clock.

use std::sync::Arc;
use std::time::Duration;

use crate::common::engines::{action, lab, lab_elsewhere, note, started, success};
use crate::common::{LAB, TestHost, actions, all, end, end_of, token};
use futures::future::BoxFuture;
use takopi_core::demo::{DEMO, Demo, Step};
use takopi_core::model::{Action, ActionEvent, ActionKind, Completed, Level, Phase, Reason};
use takopi_core::runner::Question;
use takopi_core::{ApprovalHandler, ApprovalRequest, Decision, EngineRunner, RunRequest, Runner};
use tokio::time::{Instant, sleep};

const SECOND: Duration = Duration::from_secs(1);

#[tokio::test(start_paused = true)]
async fn a_silent_engine_ends_at_the_idle_limit_which_is_named_with_its_value() {
    let test_host = TestHost::on_test_runtime();
    let runner = lab(&test_host.host, |run| async move {
        run.emit(started("a")).await.unwrap();
        run.stop().cancelled().await;
        let _ =
            run.emit(Completed::failure(LAB, Reason::Interrupted, "cut").answer("so far")).await;
    });
    let begun = Instant::now();
    let end = end(runner.run(RunRequest::new("go").idle_timeout(300 * SECOND))).await;
    assert_eq!(begun.elapsed(), 300 * SECOND);
    assert_eq!((end.ok, end.reason), (false, Some(Reason::TimeoutIdle)));
    let error = end.error.unwrap();
    assert!(error.contains("300s") && error.contains("idle"), "{error}");
    assert_eq!((end.answer.as_str(), end.resume), ("so far", Some(token("a"))));
}

#[tokio::test(start_paused = true)]
async fn a_long_run_ends_at_the_wall_clock_which_is_named_with_its_value() {
    let test_host = TestHost::on_test_runtime();
    let runner = lab(&test_host.host, |run| async move {
        run.emit(started("a")).await.unwrap();
        while run.emit(note("busy")).await.is_ok() {
            sleep(SECOND).await;
        }
    });
    let begun = Instant::now();
    let request =
        RunRequest::new("go").idle_timeout(5 * SECOND).wall_timeout(Duration::from_millis(90_500));
    let end = end(runner.run(request)).await;
    assert_eq!(begun.elapsed(), 91 * SECOND, "the engine looks up once a second");
    assert_eq!(end.reason, Some(Reason::TimeoutWall));
    let error = end.error.unwrap();
    assert!(error.contains("90.5s") && error.contains("wall"), "{error}");
}

#[tokio::test(start_paused = true)]
async fn a_run_on_another_machine_has_its_limits_there() {
    let test_host = TestHost::on_test_runtime();
    let runner = lab_elsewhere(&test_host.host, |run| async move {
        run.emit(started("a")).await.unwrap();
        sleep(3600 * SECOND).await;
        run.emit(success("")).await.unwrap();
    });
    let request = RunRequest::new("go").idle_timeout(5 * SECOND).wall_timeout(10 * SECOND);
    assert!(end(runner.run(request)).await.ok);
}

#[tokio::test(start_paused = true)]
async fn warnings_notices_and_figures_for_machines_do_not_renew_the_idle_limit() {
    let test_host = TestHost::on_test_runtime();
    let runner = lab(&test_host.host, |run| async move {
        run.emit(started("a")).await.unwrap();
        let figures = || {
            let action = Action::new("figures", ActionKind::Telemetry, "figures");
            ActionEvent::new(LAB, action, Phase::Completed).ok(true)
        };
        for _ in 0..20 {
            sleep(SECOND).await;
            let notice = note("a remark of the engine").level(Level::Info);
            let events = vec![run.warning("odd"), notice.into(), figures().into()];
            if run.emit_all(events).await.is_err() || run.emit(figures()).await.is_err() {
                return;
            }
        }
    });
    let end = end(runner.run(RunRequest::new("go").idle_timeout(5 * SECOND))).await;
    assert_eq!(end.reason, Some(Reason::TimeoutIdle));
}

#[tokio::test(start_paused = true)]
async fn every_event_of_the_run_renews_the_idle_limit() {
    let test_host = TestHost::on_test_runtime();
    let runner = lab(&test_host.host, |run| async move {
        run.emit(started("a")).await.unwrap();
        for _ in 0..5 {
            sleep(4 * SECOND).await;
            run.emit(note("still here")).await.unwrap();
        }
        for _ in 0..5 {
            sleep(4 * SECOND).await;
            run.renew_idle();
        }
        run.emit(success("")).await.unwrap();
    });
    assert!(end(runner.run(RunRequest::new("go").idle_timeout(5 * SECOND))).await.ok);
}

#[tokio::test(start_paused = true)]
async fn without_limits_a_run_may_take_as_long_as_it_likes() {
    let test_host = TestHost::on_test_runtime();
    let runner = lab(&test_host.host, |run| async move {
        run.emit(started("a")).await.unwrap();
        sleep(Duration::from_mins(1)).await;
        run.emit(success("")).await.unwrap();
    });
    assert!(end(runner.run(RunRequest::new("go"))).await.ok);
    let request = RunRequest::new("go").idle_timeout(Duration::MAX).wall_timeout(Duration::MAX);
    assert!(end(runner.run(request)).await.ok, "and the longest limit is none");
}

/// Emits the actions, is then silent for half a minute, and ends well unless it is stopped.
fn then_silent(test_host: &TestHost, actions: Vec<ActionEvent>) -> impl Runner + use<> {
    lab(&test_host.host, move |run| {
        let actions = actions.clone();
        async move {
            run.emit(started("a")).await.unwrap();
            for action in actions {
                run.emit(action).await.unwrap();
            }
            tokio::select! {
                () = run.stop().cancelled() => {}
                () = sleep(30 * SECOND) => run.emit(success("")).await.unwrap(),
            }
        }
    })
}

fn quick() -> RunRequest {
    RunRequest::new("go").idle_timeout(5 * SECOND)
}

#[tokio::test(start_paused = true)]
async fn an_open_tool_pauses_the_idle_limit() {
    let test_host = TestHost::on_test_runtime();
    for kind in [
        ActionKind::Command,
        ActionKind::Tool,
        ActionKind::FileChange,
        ActionKind::WebSearch,
        ActionKind::Subagent,
    ] {
        let open = then_silent(&test_host, vec![action("a", kind.clone(), Phase::Started)]);
        assert!(end(open.run(quick())).await.ok, "{kind}");
        let done = [Phase::Started, Phase::Updated, Phase::Completed]
            .map(|phase| action("a", kind.clone(), phase));
        let done = then_silent(&test_host, done.to_vec());
        assert_eq!(end(done.run(quick())).await.reason, Some(Reason::TimeoutIdle), "{kind}");
    }
    let note = then_silent(&test_host, vec![action("n", ActionKind::Note, Phase::Started)]);
    assert_eq!(end(note.run(quick())).await.reason, Some(Reason::TimeoutIdle), "no tool");
}

#[tokio::test(start_paused = true)]
async fn a_notice_while_a_tool_runs_does_not_end_the_pause() {
    let test_host = TestHost::on_test_runtime();
    for at_once in [false, true] {
        let runner = lab(&test_host.host, move |run| async move {
            run.emit(started("a")).await.unwrap();
            run.emit(action("a", ActionKind::Command, Phase::Started)).await.unwrap();
            sleep(20 * SECOND).await;
            let notice = || note("the connection is lost").level(Level::Info);
            if at_once {
                run.emit_all(vec![notice().into(), notice().into()]).await.unwrap();
            } else {
                run.emit(notice()).await.unwrap();
            }
            sleep(20 * SECOND).await;
            run.emit(action("a", ActionKind::Command, Phase::Completed)).await.unwrap();
            run.emit(success("")).await.unwrap();
        });
        let end = end(runner.run(quick())).await;
        assert!(end.ok, "{end:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn tools_that_end_among_many_events_end_the_pause_too() {
    let test_host = TestHost::on_test_runtime();
    let runner = lab(&test_host.host, |run| async move {
        run.emit(started("a")).await.unwrap();
        run.emit(action("a", ActionKind::Command, Phase::Started)).await.unwrap();
        // The limits are looked at while the tool runs.
        sleep(20 * SECOND).await;
        let done = action("a", ActionKind::Command, Phase::Completed);
        run.emit_all(vec![note("it ends").into(), done.into(), note("it did").into()])
            .await
            .unwrap();
        run.stop().cancelled().await;
    });
    let begun = Instant::now();
    assert_eq!(end(runner.run(quick())).await.reason, Some(Reason::TimeoutIdle));
    assert_eq!(begun.elapsed(), 25 * SECOND);
}

#[tokio::test(start_paused = true)]
async fn a_later_item_ends_the_pause_of_a_tool_that_went_to_the_background() {
    let test_host = TestHost::on_test_runtime();
    let background = action("server", ActionKind::Command, Phase::Started);
    let runner = then_silent(&test_host, vec![background.clone(), note("I go on meanwhile")]);
    assert_eq!(end(runner.run(quick())).await.reason, Some(Reason::TimeoutIdle));
    let runner =
        then_silent(&test_host, vec![background, action("b", ActionKind::Tool, Phase::Started)]);
    assert!(end(runner.run(quick())).await.ok, "the later item is a tool itself");
}

#[tokio::test(start_paused = true)]
async fn an_engine_can_report_that_no_tool_runs() {
    let test_host = TestHost::on_test_runtime();
    let runner = lab(&test_host.host, |run| async move {
        run.emit(started("a")).await.unwrap();
        run.emit(action("server", ActionKind::Command, Phase::Started)).await.unwrap();
        sleep(30 * SECOND).await;
        run.no_tool_running();
        run.stop().cancelled().await;
    });
    let begun = Instant::now();
    assert_eq!(end(runner.run(quick())).await.reason, Some(Reason::TimeoutIdle));
    assert_eq!(begun.elapsed(), 30 * SECOND);
}

#[tokio::test(start_paused = true)]
async fn a_tool_that_began_later_is_not_ended_by_an_earlier_one() {
    let test_host = TestHost::on_test_runtime();
    let events = [("a", Phase::Started), ("b", Phase::Started), ("a", Phase::Completed)];
    let events = events.map(|(id, phase)| action(id, ActionKind::Command, phase));
    let runner = then_silent(&test_host, events.to_vec());
    assert!(end(runner.run(quick())).await.ok, "b is still at work");
}

/// Answers after a while.
struct Slow(Duration);

impl ApprovalHandler for Slow {
    fn decide(&self, request: ApprovalRequest) -> BoxFuture<'static, Decision> {
        assert!(!request.cwd.as_os_str().is_empty());
        let length = self.0;
        Box::pin(async move {
            sleep(length).await;
            Decision::Accept
        })
    }
}

fn asks() -> Step {
    Step::Ask { id: "ask".to_owned(), question: Question::command("rm -rf target") }
}

#[tokio::test(start_paused = true)]
async fn an_approval_that_waits_pauses_the_idle_limit() {
    let test_host = TestHost::on_test_runtime();
    let runner = EngineRunner::new(Demo::scripted([asks()])).on(test_host.host.clone());
    let request =
        RunRequest::new("go").idle_timeout(5 * SECOND).approvals(Arc::new(Slow(3600 * SECOND)));
    let begun = Instant::now();
    let events = all(runner.run(request)).await;
    assert!(end_of(&events).ok, "{events:?}");
    assert!(begun.elapsed() >= 3600 * SECOND);
    let phases: Vec<_> = actions(&events).iter().map(|event| (event.phase, event.ok)).collect();
    assert_eq!(phases, [(Phase::Started, None), (Phase::Completed, Some(true))]);
}

#[tokio::test(start_paused = true)]
async fn the_idle_limit_counts_again_once_an_approval_is_answered() {
    let test_host = TestHost::on_test_runtime();
    let script = [asks(), Step::Pause(3600 * SECOND)];
    let runner = EngineRunner::new(Demo::scripted(script)).on(test_host.host.clone());
    let request =
        RunRequest::new("go").idle_timeout(5 * SECOND).approvals(Arc::new(Slow(100 * SECOND)));
    let begun = Instant::now();
    assert_eq!(end(runner.run(request)).await.reason, Some(Reason::TimeoutIdle));
    assert_eq!(begun.elapsed(), 105 * SECOND);
}

#[tokio::test(start_paused = true)]
async fn an_approved_command_still_counts_as_running_for_the_idle_limit() {
    let test_host = TestHost::on_test_runtime();
    let command = |phase| {
        Step::Act(ActionEvent::new(DEMO, Action::new("c", ActionKind::Command, "make"), phase))
    };
    let script =
        [command(Phase::Started), asks(), Step::Pause(3600 * SECOND), command(Phase::Completed)];
    let runner = EngineRunner::new(Demo::scripted(script)).on(test_host.host.clone());
    let request = RunRequest::new("go").idle_timeout(5 * SECOND).approvals(Arc::new(Slow(SECOND)));
    assert!(end(runner.run(request)).await.ok);
}

#[tokio::test(start_paused = true)]
async fn an_unanswered_approval_ends_with_the_wall_clock() {
    let test_host = TestHost::on_test_runtime();
    let runner = EngineRunner::new(Demo::scripted([asks()])).on(test_host.host.clone());
    let request = RunRequest::new("go")
        .wall_timeout(60 * SECOND)
        .approvals(Arc::new(Slow(Duration::from_secs(1 << 30))));
    assert_eq!(end(runner.run(request)).await.reason, Some(Reason::TimeoutWall));
}

#[tokio::test(start_paused = true)]
async fn without_a_handler_an_approval_is_declined_visibly() {
    let test_host = TestHost::on_test_runtime();
    let runner = EngineRunner::new(Demo::scripted([asks()])).on(test_host.host.clone());
    let events = all(runner.run(RunRequest::new("go"))).await;
    let answer = actions(&events)[1];
    assert_eq!(answer.ok, Some(false));
    assert!(answer.message.as_deref().unwrap().contains("declined"));
}

#[tokio::test(start_paused = true)]
async fn an_emit_that_is_given_up_while_it_waits_does_not_stop_the_clock() {
    let test_host = TestHost::on_test_runtime();
    let holder = lab(&test_host.host, |run| async move {
        run.emit(started("a")).await.unwrap();
        run.stop().cancelled().await;
    });
    let mut held = holder.run(RunRequest::new("go"));
    crate::common::until_started(&mut held).await;
    let runner = lab(&test_host.host, |run| async move {
        // An engine that waits for several things at once drops what it does not wait for.
        let emitted = tokio::time::timeout(SECOND, run.emit(started("a"))).await;
        assert!(emitted.is_err(), "the session is held");
        run.stop().cancelled().await;
    });
    // One second of it is a wait.
    let begun = Instant::now();
    let end = end(runner.run(quick())).await;
    assert_eq!(end.reason, Some(Reason::TimeoutIdle));
    assert_eq!(begun.elapsed(), 6 * SECOND);
}
