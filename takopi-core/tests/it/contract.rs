//! The runner's contract, held against engines that break it.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use crate::common::engines::{action, codec, lab, note, started, success};
use crate::common::{
    LAB, TestHost, actions, all, end, end_of, is_started, settle_tasks, titles, token,
};
use futures::StreamExt;
use futures::future::BoxFuture;
use takopi_core::demo::Demo;
use takopi_core::model::{ActionKind, Completed, Phase, Reason, ResumeToken, TakopiEvent};
use takopi_core::runner::{Engine, EngineRun, ResumeCodec, RunError};
use takopi_core::{EngineId, EngineRunner, RunRequest, Runner};
use tokio::sync::Barrier;

fn prompt() -> RunRequest {
    RunRequest::new("go")
}

fn on(value: &str) -> RunRequest {
    RunRequest::new("go").resume(token(value))
}

#[tokio::test(start_paused = true)]
async fn what_the_engine_wrote_to_stderr_is_a_warning_ahead_of_the_failure() {
    let test_host = TestHost::on_test_runtime();
    let runner = lab(&test_host.host, |run| async move {
        let error = RunError::new(Reason::EngineFailed, "it failed");
        run.fail(error.stderr_tail(run.request.prompt.as_str())).await;
    });
    let events = all(runner.run(RunRequest::new("no space left"))).await;
    let warning = actions(&events)[0];
    assert_eq!((&warning.action.kind, titles(&events)), (&ActionKind::Warning, vec!["it failed"]));
    assert_eq!(warning.action.detail["stderr_tail"], "no space left");
    assert_eq!(end_of(&events).error.as_deref(), Some("it failed"));
    let silent = all(runner.run(RunRequest::new(" \n"))).await;
    assert_eq!(silent.len(), 1, "{silent:?}");
}

#[tokio::test(start_paused = true)]
async fn a_runner_reads_session_ids_as_its_engine_writes_them() {
    let test_host = TestHost::on_test_runtime();
    let runner = lab(&test_host.host, |_run| std::future::ready(()));
    assert_eq!(runner.token("A"), Some(token("a")));
    assert_eq!(runner.token("no id"), None);
}

#[tokio::test(start_paused = true)]
async fn events_come_in_the_order_the_engine_produced_them_and_nothing_is_added() {
    let test_host = TestHost::on_test_runtime();
    let runner = lab(&test_host.host, |run| async move {
        run.emit(started("a")).await.unwrap();
        for number in 0..3000 {
            run.emit(note(&number.to_string())).await.unwrap();
        }
        run.emit(success("done")).await.unwrap();
    });
    let events = all(runner.run(prompt())).await;
    assert_eq!(events.len(), 3002, "an uneventful run has no event of takopi's own");
    assert!(is_started(&events[0]));
    let expected: Vec<_> = (0..3000).map(|number| number.to_string()).collect();
    assert_eq!(titles(&events), expected);
    assert_eq!(end_of(&events).answer, "done");
    assert!(end_of(&events).ok);
    assert_eq!(end_of(&events).resume, Some(token("a")));
}

#[tokio::test(start_paused = true)]
async fn actions_may_precede_started() {
    let test_host = TestHost::on_test_runtime();
    let runner = lab(&test_host.host, |run| async move {
        run.emit(note("early")).await.unwrap();
        run.emit(started("a")).await.unwrap();
        run.emit(success("")).await.unwrap();
    });
    let events = all(runner.run(prompt())).await;
    assert_eq!(titles(&events), ["early"]);
    assert!(is_started(&events[1]));
}

#[tokio::test(start_paused = true)]
async fn a_second_started_of_the_same_session_is_dropped() {
    let test_host = TestHost::on_test_runtime();
    let runner = lab(&test_host.host, |run| async move {
        for id in ["a", "A", "a"] {
            run.emit(started(id)).await.unwrap();
        }
        run.emit(success("yes")).await.unwrap();
    });
    let events = all(runner.run(prompt())).await;
    assert_eq!(events.len(), 2);
    assert!(end_of(&events).ok);
}

#[tokio::test(start_paused = true)]
async fn a_started_of_another_session_ends_the_run_as_a_breach_of_protocol() {
    let test_host = TestHost::on_test_runtime();
    let runner = lab(&test_host.host, |run| async move {
        run.emit(started("a")).await.unwrap();
        run.emit(started("b")).await.unwrap_err();
        assert!(run.stop().is_cancelled());
        run.emit(note("late")).await.unwrap_err();
    });
    let events = all(runner.run(prompt())).await;
    let end = end_of(&events);
    assert_eq!((end.ok, end.reason.clone()), (false, Some(Reason::Protocol)));
    let error = end.error.as_deref().unwrap();
    assert!(error.contains(" a ") && error.contains('b'), "{error}");
    assert_eq!(end.resume, Some(token("a")));
    assert_eq!(events.len(), 2);
}

#[tokio::test(start_paused = true)]
async fn an_engine_that_ignores_its_breach_and_stays_still_ends() {
    let test_host = TestHost::on_test_runtime();
    let runner = lab(&test_host.host, |run| async move {
        let _ = run.emit(started("a")).await;
        let _ = run.emit(started("b")).await;
        let _ = run.emit(success("as if nothing were")).await;
        std::future::pending::<()>().await;
    });
    let events = all(runner.run(prompt())).await;
    let end = end_of(&events);
    assert_eq!((end.ok, end.reason.clone()), (false, Some(Reason::Protocol)));
    assert_eq!(end.answer, "as if nothing were", "what it had to say is kept");
}

#[tokio::test(start_paused = true)]
async fn events_after_completed_are_dropped() {
    let test_host = TestHost::on_test_runtime();
    let runner = lab(&test_host.host, |run| async move {
        run.emit(started("a")).await.unwrap();
        run.emit(success("first")).await.unwrap();
        let _ = run.emit(note("late")).await;
        let _ = run.emit(started("b")).await;
        let _ = run.emit(Completed::failure(LAB, Reason::Auth, "second")).await;
    });
    let events = all(runner.run(prompt())).await;
    assert_eq!(events.len(), 2);
    assert_eq!(end_of(&events).answer, "first");
}

#[tokio::test(start_paused = true)]
async fn an_event_that_waited_for_room_does_not_come_behind_completed() {
    let test_host = TestHost::on_test_runtime();
    let runner = lab(&test_host.host, |run| async move {
        run.emit(started("a")).await.unwrap();
        let run = Arc::new(run);
        // Two tasks of one engine: one stands at the full buffer, the other ends the run.
        let other = run.clone();
        let stuck = tokio::spawn(async move {
            for number in 0..10 {
                let _ = other.emit(note(&number.to_string())).await;
            }
        });
        settle_tasks().await;
        run.emit(success("done")).await.unwrap();
        stuck.await.unwrap();
    })
    .buffer(2, 1 << 20);
    let mut events = runner.run(prompt());
    settle_tasks().await;
    let first = events.next().await.unwrap();
    assert!(is_started(&first));
    // There is room now, and the end was emitted.
    settle_tasks().await;
    let rest = all(events).await;
    assert_eq!(end_of(&rest).answer, "done");
}

#[tokio::test(start_paused = true)]
async fn an_end_without_completed_is_completed_by_takopi() {
    let test_host = TestHost::on_test_runtime();
    let runner = lab(&test_host.host, |run| async move {
        run.emit(started("a")).await.unwrap();
    });
    let end = end(runner.run(prompt())).await;
    assert_eq!((end.ok, end.reason), (false, Some(Reason::Protocol)));
    assert_eq!(end.resume, Some(token("a")));
}

#[tokio::test(start_paused = true)]
async fn success_without_a_session_is_no_success() {
    let test_host = TestHost::on_test_runtime();
    let runner = lab(&test_host.host, |run| async move {
        let usage = takopi_core::Usage::default();
        run.emit(success("what?").usage(Some(usage))).await.unwrap();
    });
    for (request, resume) in [(prompt(), None), (on("a"), Some(token("a")))] {
        let end = end(runner.run(request)).await;
        assert_eq!((end.ok, end.reason), (false, Some(Reason::Protocol)));
        assert_eq!((end.answer.as_str(), end.resume), ("what?", resume));
        assert!(end.error.is_some() && end.usage.is_some());
    }
}

#[tokio::test(start_paused = true)]
async fn a_failure_without_details_gets_a_reason_and_an_error() {
    let test_host = TestHost::on_test_runtime();
    let runner = lab(&test_host.host, |run| async move {
        let mut end = success("");
        end.ok = false;
        run.emit(end).await.unwrap();
    });
    let end = end(runner.run(prompt())).await;
    assert_eq!(end.reason, Some(Reason::EngineFailed));
    assert!(end.error.is_some());
}

#[tokio::test(start_paused = true)]
async fn another_session_than_asked_is_never_taken_for_it() {
    let test_host = TestHost::on_test_runtime();
    let runner = lab(&test_host.host, |run| async move {
        let _ = run.emit(started("fresh")).await;
        let _ = run.emit(success("in the wrong room")).await;
    });
    let events = all(runner.run(on("asked"))).await;
    assert!(!events.iter().any(is_started));
    let end = end_of(&events);
    assert_eq!((end.ok, end.reason.clone()), (false, Some(Reason::Protocol)));
    let error = end.error.as_deref().unwrap();
    assert!(error.contains("asked") && error.contains("fresh"), "{error}");
    assert_eq!(end.resume, Some(token("asked")));
}

#[tokio::test(start_paused = true)]
async fn a_started_that_names_no_session_ends_the_run() {
    let test_host = TestHost::on_test_runtime();
    let runner = lab(&test_host.host, |run| async move {
        run.emit(started("--last")).await.unwrap_err();
    });
    let end = end(runner.run(prompt())).await;
    assert_eq!(end.reason, Some(Reason::Protocol));
    assert!(end.error.unwrap().contains("--last"));
}

#[tokio::test(start_paused = true)]
async fn a_token_of_another_engine_or_no_token_at_all_runs_nothing() {
    let test_host = TestHost::on_test_runtime();
    let runs = Arc::new(AtomicUsize::new(0));
    let counter = runs.clone();
    let runner = lab(&test_host.host, move |_run| {
        counter.fetch_add(1, Ordering::SeqCst);
        std::future::ready(())
    });
    for asked in [ResumeToken::new("codex", "a"), token("--last"), token(""), token("a b")] {
        let request = RunRequest::new("go").resume(asked.clone());
        let events = all(runner.run(request)).await;
        let end = end_of(&events);
        assert_eq!(events.len(), 1);
        assert_eq!((end.ok, end.reason.clone()), (false, Some(Reason::InvalidRequest)));
        let error = end.error.as_deref().unwrap();
        let named = if asked.engine == LAB { &asked.value } else { "codex" };
        assert!(error.contains(named), "{error} does not say so");
        assert_eq!(end.resume, Some(asked));
    }
    assert_eq!(runs.load(Ordering::SeqCst), 0);
}

#[tokio::test(start_paused = true)]
async fn a_token_is_folded_into_canonical_form_before_anything_else() {
    let test_host = TestHost::on_test_runtime();
    let runner = lab(&test_host.host, |run| async move {
        assert_eq!(run.resume, Some(token("abc")));
        run.emit(started("ABC")).await.unwrap();
        run.emit(success("")).await.unwrap();
    });
    let events = all(runner.run(on("AbC"))).await;
    let TakopiEvent::Started(first) = &events[0] else { panic!("{events:?}") };
    assert_eq!(first.resume, token("abc"));
    assert_eq!(end_of(&events).resume, Some(token("abc")));
}

#[tokio::test(start_paused = true)]
async fn a_panic_in_translation_ends_the_run_and_no_other() {
    let test_host = TestHost::on_test_runtime();
    let barrier = Arc::new(Barrier::new(2));
    let gate = barrier.clone();
    let runner = lab(&test_host.host, move |run| {
        let gate = gate.clone();
        async move {
            let name = run.request.prompt.clone();
            run.emit(started(&name)).await.unwrap();
            gate.wait().await;
            assert!(name != "bad", "boom {name}");
            tokio::task::yield_now().await;
            run.emit(success(&name)).await.unwrap();
        }
    });
    let (bad, good) = tokio::join!(
        end(runner.run(RunRequest::new("bad"))),
        end(runner.run(RunRequest::new("good"))),
    );
    assert_eq!(bad.reason, Some(Reason::Protocol));
    assert!(bad.error.unwrap().contains("boom bad"));
    assert_eq!(bad.resume, Some(token("bad")));
    assert!(good.ok);
    assert!(test_host.is_unlocked());
}

#[tokio::test(start_paused = true)]
async fn a_panic_behind_completed_changes_nothing() {
    let test_host = TestHost::on_test_runtime();
    let runner = lab(&test_host.host, |run| async move {
        run.emit(started("a")).await.unwrap();
        run.emit(success("yes")).await.unwrap();
        panic!("too late");
    });
    assert!(end(runner.run(prompt())).await.ok);
    test_host.host.settle().await;
    assert!(test_host.is_unlocked());
}

/// An engine whose every part but the turn may panic.
struct Touchy {
    on: &'static str,
}

impl Engine for Touchy {
    fn id(&self) -> EngineId {
        LAB
    }

    fn resume_codec(&self) -> ResumeCodec {
        codec()
    }

    fn check(&self, _: &RunRequest) -> Result<(), RunError> {
        assert!(self.on != "check", "touched in check");
        Ok(())
    }

    fn run(self: Arc<Self>, _run: EngineRun) -> BoxFuture<'static, ()> {
        assert!(self.on != "run", "touched in run");
        Box::pin(std::future::pending())
    }

    fn take_lease(
        &self,
        _: &takopi_core::locks::SessionKey,
    ) -> Option<takopi_core::locks::SessionLease> {
        assert!(self.on != "take_lease", "touched in take_lease");
        None
    }
}

#[tokio::test(start_paused = true)]
async fn a_panic_anywhere_in_an_engine_still_ends_with_completed() {
    let test_host = TestHost::on_test_runtime();
    for on_what in ["check", "take_lease", "run"] {
        let runner = EngineRunner::new(Touchy { on: on_what }).on(test_host.host.clone());
        let end = end(runner.run(on("a"))).await;
        assert_eq!(end.reason, Some(Reason::Protocol), "{on_what}");
        assert_eq!(end.resume, Some(token("a")), "{on_what}");
        test_host.host.settle().await;
        assert!(test_host.is_unlocked(), "{on_what}");
    }
}

#[test]
fn a_host_whose_runtime_is_gone_still_ends_its_streams() {
    crate::common::in_real_time();
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let test_host = runtime.block_on(async { TestHost::on_test_runtime() });
    let runner = lab(&test_host.host, |_run| std::future::pending());
    let before = runner.run(on("a"));
    runtime.block_on(tokio::task::yield_now());
    drop(runtime);
    let behind = runner.run(on("b"));
    let reader = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    for (events, name) in [(before, "a"), (behind, "b")] {
        let end = reader.block_on(end(events));
        assert!(!end.ok && end.reason.is_some() && end.error.is_some());
        assert_eq!(end.resume, Some(token(name)));
    }
}

#[tokio::test(start_paused = true)]
async fn an_engine_that_never_returns_after_completed_blocks_no_other_run() {
    let test_host = TestHost::on_test_runtime();
    let runner = lab(&test_host.host, |run| async move {
        run.emit(started("a")).await.unwrap();
        run.emit(success("yes")).await.unwrap();
        std::future::pending::<()>().await;
    });
    let begun = tokio::time::Instant::now();
    for _ in 0..2 {
        assert!(end(runner.run(on("a"))).await.ok);
    }
    assert!(begun.elapsed().is_zero(), "the session is free with Completed");
    test_host.host.settle().await;
}

#[tokio::test(start_paused = true)]
async fn an_engine_that_ignores_stop_is_dropped_and_the_run_still_ends() {
    let test_host = TestHost::on_test_runtime();
    let runner = lab(&test_host.host, |run| async move {
        run.emit(started("a")).await.unwrap();
        std::future::pending::<()>().await;
    });
    let request = prompt();
    let cancel = request.cancel.clone();
    let mut events = runner.run(request);
    assert!(is_started(&events.next().await.unwrap()));
    cancel.cancel();
    let end = end(events).await;
    assert_eq!(end.reason, Some(Reason::Interrupted));
    assert_eq!(end.resume, Some(token("a")));
    assert!(test_host.is_unlocked());
}

#[tokio::test(start_paused = true)]
async fn a_resume_that_failed_before_started_carries_the_token_asked_for() {
    let test_host = TestHost::on_test_runtime();
    let runner = lab(&test_host.host, |run| async move {
        let mut end = Completed::failure(LAB, Reason::SessionNotFound, "no such session");
        end.resume = Some(token("made-up"));
        run.emit(end).await.unwrap();
    });
    assert_eq!(end(runner.run(on("a"))).await.resume, Some(token("a")));
    assert_eq!(end(runner.run(prompt())).await.resume, None);
}

#[tokio::test(start_paused = true)]
async fn a_refused_request_runs_nothing_and_reports_the_reason() {
    let test_host = TestHost::on_test_runtime();
    let runner = EngineRunner::new(Demo::new()).on(test_host.host.clone());
    let request = RunRequest::new("go").cwd("/no/such/directory");
    let events = all(runner.run(request)).await;
    assert_eq!(events.len(), 1);
    assert!(end_of(&events).error.as_deref().unwrap().contains("/no/such/directory"));
}

#[tokio::test(start_paused = true)]
async fn ids_of_takopis_own_actions_are_unique_in_a_run() {
    let test_host = TestHost::on_test_runtime();
    let runner = lab(&test_host.host, |run| async move {
        for _ in 0..3 {
            run.note("n").await.unwrap();
            run.warn("w").await.unwrap();
        }
        run.emit(action("x", ActionKind::Note, Phase::Completed)).await.unwrap();
        run.emit(started("a")).await.unwrap();
        run.emit(success("")).await.unwrap();
    });
    let events = all(runner.run(prompt())).await;
    let mut ids: Vec<_> = actions(&events).into_iter().map(|event| &event.action.id).collect();
    ids.sort();
    ids.dedup();
    assert_eq!(ids.len(), 7);
}

#[tokio::test(start_paused = true)]
async fn a_runner_is_an_object_and_knows_its_resume_lines() {
    let test_host = TestHost::on_test_runtime();
    let runner: Arc<dyn Runner> = Arc::new(lab(&test_host.host, |_run| std::future::ready(())));
    assert_eq!(runner.engine(), LAB);
    let line = runner.format_resume(&token("abc"));
    assert_eq!(line, "`lab resume abc`");
    assert!(runner.is_resume_line(&line) && !runner.is_resume_line("so: `lab resume abc`"));
    let text = format!("lab resume old\ndone\n{line}\n");
    assert_eq!(runner.extract_resume(&text), Some(token("abc")));
    runner.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn an_engine_can_see_the_session_of_its_run_and_whether_it_has_its_lock() {
    let test_host = TestHost::on_test_runtime();
    let looks = Arc::new(Mutex::new(Vec::new()));
    let looked = looks.clone();
    let runner = lab(&test_host.host, move |run| {
        let looked = looked.clone();
        async move {
            let look = || (run.session(), run.has_lock());
            let before = look();
            run.emit(started("a")).await.unwrap();
            looked.lock().unwrap().extend([before, look()]);
            run.emit(success("")).await.unwrap();
        }
    });
    for request in [RunRequest::new("go"), RunRequest::new("go").resume(token("a"))] {
        assert!(end(runner.run(request)).await.ok);
    }
    let known = (Some(token("a")), true);
    let expected = [(None, false), known.clone(), known.clone(), known];
    assert_eq!(*looks.lock().unwrap(), expected);
}
