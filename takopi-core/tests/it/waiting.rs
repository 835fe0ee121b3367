//! Runs that wait for the same session: order, reports, time limits.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::common::engines::{lab, lab_elsewhere, lab_with_files, note, started, success};
use crate::common::{
    TestHost, actions, all, end, end_of, is_started, key, settle_tasks, token, until_started,
};
use crate::wait_ends::assert_wait_is_closed;
use futures::{FutureExt, StreamExt};
use takopi_core::locks::SessionLocks;
use takopi_core::model::{Level, Phase, Reason, TakopiEvent};
use takopi_core::runner::WAIT_ACTION;
use takopi_core::{EngineRun, Host, RunRequest, Runner};
use tokio::sync::Barrier;
use tokio::time::Instant;

pub(crate) const SECOND: Duration = Duration::from_secs(1);

pub(crate) fn on(value: &str) -> RunRequest {
    RunRequest::new("go").resume(token(value))
}

/// Starts the session of its request, or one named by its prompt, and takes ten seconds over it.
pub(crate) fn ten_seconds(host: &Host) -> impl Runner + use<> {
    lab(host, |run| async move {
        let name = run.resume.as_ref().map_or(&run.request.prompt, |token| &token.value);
        if run.emit(started(name)).await.is_err() {
            return;
        }
        tokio::select! {
            () = run.stop().cancelled() => return,
            () = tokio::time::sleep(10 * SECOND) => {}
        }
        let _ = run.emit(success("done")).await;
    })
}

#[tokio::test(start_paused = true)]
async fn runs_on_the_same_token_go_one_after_the_other_first_come_first_served() {
    let test_host = TestHost::on_test_runtime();
    let inside = Arc::new(AtomicUsize::new(0));
    let order = Arc::new(Mutex::new(Vec::new()));
    let (room, log) = (inside.clone(), order.clone());
    let turn = move |run: EngineRun| {
        let (room, log) = (room.clone(), log.clone());
        async move {
            assert_eq!(room.fetch_add(1, Ordering::SeqCst), 0, "two runs on one session");
            log.lock().unwrap().push(run.request.prompt.clone());
            run.emit(started("a")).await.unwrap();
            tokio::time::sleep(SECOND).await;
            room.fetch_sub(1, Ordering::SeqCst);
            run.emit(success("")).await.unwrap();
        }
    };
    // Two runners: the session is one, however many there are. Capitals are the same session.
    let runners =
        [lab_with_files(&test_host.host, turn.clone()), lab_with_files(&test_host.host, turn)];
    let runs: Vec<_> = (0..20)
        .map(|number| {
            let token = token(if number % 3 == 0 { "A" } else { "a" });
            let request = RunRequest::new(number.to_string()).resume(token);
            runners[number % 2].run(request)
        })
        .collect();
    for run in runs {
        assert!(end(run).await.ok);
    }
    let expected: Vec<_> = (0..20).map(|number| number.to_string()).collect();
    assert_eq!(*order.lock().unwrap(), expected);
    test_host.host.settle().await;
    assert!(test_host.is_unlocked());
}

#[tokio::test(start_paused = true)]
async fn runs_on_different_tokens_and_new_sessions_go_in_parallel() {
    let test_host = TestHost::on_test_runtime();
    let barrier = Arc::new(Barrier::new(20));
    let gate = barrier.clone();
    let runner = lab_with_files(&test_host.host, move |run| {
        let gate = gate.clone();
        async move {
            // No task passes before all are here.
            gate.wait().await;
            let name = run.request.prompt.clone();
            run.emit(started(&name)).await.unwrap();
            gate.wait().await;
            run.emit(success("")).await.unwrap();
        }
    });
    let runs = (0..20).map(|number| {
        let name = format!("s{number}");
        let request = RunRequest::new(&name);
        let request = if number < 10 { request.resume(token(&name)) } else { request };
        end(runner.run(request))
    });
    for end in futures::future::join_all(runs).await {
        assert!(end.ok, "{end:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_new_sessions_lock_is_taken_before_started_is_emitted() {
    let test_host = TestHost::on_test_runtime();
    for files in [false, true] {
        let turn = |run: EngineRun| async move {
            run.emit(note("early")).await.unwrap();
            run.emit(started("a")).await.unwrap();
            run.stop().cancelled().await;
        };
        let runner: Box<dyn Runner> = if files {
            Box::new(lab_with_files(&test_host.host, turn))
        } else {
            Box::new(lab(&test_host.host, turn))
        };
        let holder = || {
            if files {
                test_host.host.session_locks().holder(&key("a")).now_or_never().unwrap()
            } else {
                test_host.host.local_locks().holder(&key("a")).now_or_never().unwrap()
            }
        };
        let mut events = runner.run(RunRequest::new("go"));
        assert!(!is_started(&events.next().await.unwrap()));
        assert!(is_started(&events.next().await.unwrap()));
        assert_eq!(holder().unwrap().pid, std::process::id());
        drop(events);
        test_host.host.settle().await;
        assert_eq!(holder(), None);
    }
    assert!(test_host.is_unlocked());
}

#[tokio::test(start_paused = true)]
async fn a_second_new_session_with_the_same_id_is_held_back_until_the_first_ends() {
    let test_host = TestHost::on_test_runtime();
    let runner = ten_seconds(&test_host.host);
    let mut first = runner.run(RunRequest::new("twin"));
    until_started(&mut first).await;
    let second = runner.run(RunRequest::new("twin"));
    let begun = Instant::now();
    let (first, second) = tokio::join!(async { (end(first).await, Instant::now()) }, async {
        let mut second = second;
        until_started(&mut second).await;
        let started_at = Instant::now();
        (end(second).await, started_at)
    });
    assert!(first.0.ok && second.0.ok);
    assert_eq!(first.1 - begun, 10 * SECOND);
    assert!(second.1 >= first.1, "its Started came before the first ended");
    assert!(second.1 - first.1 < SECOND);
}

#[tokio::test(start_paused = true)]
async fn a_started_that_was_given_up_while_it_waited_can_be_emitted_again_and_still_waits() {
    let test_host = TestHost::on_test_runtime();
    let holder = ten_seconds(&test_host.host);
    let impatient = lab(&test_host.host, |run| async move {
        while tokio::time::timeout(SECOND, run.emit(started("a"))).await.is_err() {}
        run.emit(success("in the end")).await.unwrap();
    });
    let mut first = holder.run(on("a"));
    until_started(&mut first).await;
    let begun = Instant::now();
    let second = all(impatient.run(RunRequest::new("go"))).await;
    assert_eq!(end_of(&second).answer, "in the end");
    assert!(second.iter().any(is_started));
    assert!(begun.elapsed() >= 10 * SECOND, "not before the first was done");

    // Given up at the full buffer instead: the lock is held by then, and once is enough.
    let unread = lab(&test_host.host, |run| async move {
        run.emit(note("fills the buffer")).await.unwrap();
        while tokio::time::timeout(SECOND, run.emit(started("b"))).await.is_err() {}
        run.emit(success("in the end")).await.unwrap();
    })
    .buffer(1, 1 << 20);
    let events = unread.run(RunRequest::new("go"));
    tokio::time::sleep(5 * SECOND).await;
    let events = all(events).await;
    assert!(end_of(&events).ok && events.iter().any(is_started));
    test_host.host.settle().await;
    assert!(test_host.is_unlocked());
}

#[tokio::test(start_paused = true)]
async fn success_emitted_while_started_still_waits_is_no_success() {
    let test_host = TestHost::on_test_runtime();
    let holder = ten_seconds(&test_host.host);
    let mut first = holder.run(on("a"));
    until_started(&mut first).await;
    let runner = lab(&test_host.host, |run| async move {
        let other = run.clone();
        let waiting = tokio::spawn(async move { other.emit(started("a")).await });
        settle_tasks().await;
        run.emit(success("too early")).await.unwrap();
        let _ = waiting.await;
    });
    let end = end(runner.run(RunRequest::new("go"))).await;
    assert_eq!((end.reason, end.resume), (Some(Reason::Protocol), Some(token("a"))));
    assert_eq!(end.answer, "too early");
}

#[tokio::test(start_paused = true)]
async fn a_run_that_waits_reports_it_and_names_the_holder() {
    let test_host = TestHost::on_test_runtime();
    let runner = ten_seconds(&test_host.host);
    let mut first = runner.run(on("a"));
    until_started(&mut first).await;
    let begun = Instant::now();
    let mut second = runner.run(on("a"));
    let Some(TakopiEvent::Action(word)) = second.next().await else { panic!("no word") };
    let waited = begun.elapsed();
    assert!((Duration::from_millis(250)..SECOND).contains(&waited), "{waited:?}");
    assert_eq!((word.phase, word.level), (Phase::Started, Some(Level::Info)));
    assert!(word.action.title.contains("another run of this process"), "{}", word.action.title);
    let rest = all(second).await;
    let free = actions(&rest)[0];
    assert_eq!((&free.action.id, free.phase), (&word.action.id, Phase::Completed));
    assert!(is_started(&rest[1]), "and then it starts");
    assert!(end_of(&rest).ok && end(first).await.ok);
}

#[tokio::test(start_paused = true)]
async fn an_engine_that_waits_can_say_so_until_it_waits_no_more() {
    let test_host = TestHost::on_test_runtime();
    let runner = lab(&test_host.host, |run| async move {
        run.waiting("waiting for a place");
        run.wait_over().await.unwrap();
        run.emit(started("a")).await.unwrap();
        run.emit(success("")).await.unwrap();
    });
    let events = all(runner.run(RunRequest::new("go"))).await;
    let words = actions(&events);
    assert_eq!(words[0].action.title, "waiting for a place");
    assert_eq!((&*words[0].action.id, words[0].phase), (WAIT_ACTION, Phase::Started));
    assert_eq!((&*words[1].action.id, words[1].phase), (WAIT_ACTION, Phase::Completed));
    assert!(is_started(&events[2]), "closed before it goes on: {events:?}");
}

#[tokio::test(start_paused = true)]
async fn a_session_that_is_held_has_no_run_and_one_on_another_machine_cannot_be_held() {
    let test_host = TestHost::on_test_runtime();
    let runner = ten_seconds(&test_host.host);
    let held = runner.hold(&token("a")).await.unwrap();
    let refused = end(runner.run(on("a").wait(Duration::ZERO))).await;
    assert_eq!(refused.reason, Some(Reason::SessionBusy));
    assert!(held.is_some());
    drop(held);
    assert!(end(runner.run(on("a").wait(Duration::ZERO))).await.ok);
    let elsewhere = lab_elsewhere(&test_host.host, |_| async {});
    assert!(elsewhere.hold(&token("a")).await.unwrap().is_none());
}

#[tokio::test(start_paused = true)]
async fn a_short_wait_is_not_reported() {
    let test_host = TestHost::on_test_runtime();
    let runner = lab(&test_host.host, |run| async move {
        run.emit(started("a")).await.unwrap();
        tokio::time::sleep(Duration::from_millis(200)).await;
        run.emit(success("")).await.unwrap();
    });
    let mut first = runner.run(on("a"));
    until_started(&mut first).await;
    let second = all(runner.run(on("a"))).await;
    assert_eq!(second.len(), 2, "an uneventful run has no event of takopi's own: {second:?}");
}

#[tokio::test(start_paused = true)]
async fn no_wait_at_all_fails_at_once() {
    let test_host = TestHost::on_test_runtime();
    let runner = ten_seconds(&test_host.host);
    let mut first = runner.run(on("a"));
    until_started(&mut first).await;
    let begun = Instant::now();
    for request in [
        RunRequest::new("go").resume(token("a")).wait(Duration::ZERO),
        RunRequest::new("a").wait(Duration::ZERO),
    ] {
        let events = all(runner.run(request)).await;
        let end = end_of(&events);
        assert_eq!(end.reason, Some(Reason::SessionBusy));
        assert!(end.error.as_deref().unwrap().contains("another run of this process"));
        assert_eq!(end.resume, Some(token("a")));
        assert_eq!(events.len(), 1);
    }
    assert!(begun.elapsed().is_zero());
    // It needs no time where no run waits.
    let request = RunRequest::new("go").resume(token("b")).wait(Duration::ZERO);
    assert!(end(runner.run(request)).await.ok);
}

/// The action that reports the wait for the session was begun, and was over, without success, before
/// the end.
#[tokio::test(start_paused = true)]
async fn waiting_is_not_counted_by_the_limits() {
    let test_host = TestHost::on_test_runtime();
    let runner = ten_seconds(&test_host.host);
    for request in [RunRequest::new("go").resume(token("a")), RunRequest::new("a")] {
        let mut first = runner.run(on("a"));
        until_started(&mut first).await;
        // Its own ten seconds fit, ten more would not.
        let request = request.idle_timeout(11 * SECOND).wall_timeout(12 * SECOND);
        let begun = Instant::now();
        let end = end(runner.run(request)).await;
        assert!(end.ok, "{end:?}");
        assert!(begun.elapsed() >= 20 * SECOND);
    }
}

#[tokio::test(start_paused = true)]
async fn a_full_buffer_does_not_keep_a_waiting_run_from_its_turn_or_its_bound() {
    let test_host = TestHost::on_test_runtime();
    let runner = ten_seconds(&test_host.host);
    let noisy = lab(&test_host.host, |run| async move {
        run.emit(note("fills the buffer")).await.unwrap();
        let _ = run.emit(started("a")).await;
    })
    .buffer(1, 1 << 20);
    let mut first = runner.run(on("a"));
    until_started(&mut first).await;
    let unread = noisy.run(RunRequest::new("go").wait(3 * SECOND));
    tokio::time::sleep(5 * SECOND).await;
    let events = unread.collect::<Vec<_>>().now_or_never().expect("it ended without a reader");
    assert_eq!(end_of(&events).reason, Some(Reason::SessionBusy));
}

#[tokio::test(start_paused = true)]
async fn waiting_for_an_outside_holder_is_visible_bounded_and_not_counted() {
    let test_host = TestHost::on_test_runtime();
    let runner = lab(&test_host.host, |run| async move {
        let mut tries = 0;
        while tries < 5 {
            tries += 1;
            if !run.wait_for_session("process 7", 2 * SECOND).await.unwrap() {
                let error = format!("busy after {tries}");
                let failure = takopi_core::RunError::new(Reason::SessionBusy, error);
                return run.fail(failure).await;
            }
        }
        run.emit(started("a")).await.unwrap();
        run.emit(success("")).await.unwrap();
    });
    let request = RunRequest::new("go").resume(token("a")).wall_timeout(SECOND);
    let events = all(runner.run(request)).await;
    let words = actions(&events);
    assert!(words[0].action.title.contains("process 7"));
    assert_eq!(words.len(), 2, "said once, and taken back once: {words:?}");
    assert_eq!((words[1].phase, &words[1].action.id), (Phase::Completed, &words[0].action.id));
    assert!(end_of(&events).ok, "ten seconds outside a limit of one: {events:?}");

    let request = RunRequest::new("go").resume(token("a")).wait(5 * SECOND);
    let begun = Instant::now();
    let events = all(runner.run(request)).await;
    assert_eq!(end_of(&events).reason, Some(Reason::SessionBusy));
    assert_wait_is_closed(&events);
    assert_eq!(begun.elapsed(), 5 * SECOND);
}

#[tokio::test(start_paused = true)]
async fn waiting_until_a_session_is_free_is_visible_bounded_and_not_counted() {
    let test_host = TestHost::on_test_runtime();
    let runner = lab(&test_host.host, |run| async move {
        let free = async {
            tokio::time::sleep(10 * SECOND).await;
            "free"
        };
        let waited = run.wait_for_session_until("another server", free).await;
        let Ok(Some(free)) = waited else {
            let failure = takopi_core::RunError::new(Reason::SessionBusy, format!("{waited:?}"));
            return run.fail(failure).await;
        };
        run.emit(started("a")).await.unwrap();
        run.emit(success(free)).await.unwrap();
    });
    let begun = Instant::now();
    let events = all(runner.run(on("a").wall_timeout(SECOND).idle_timeout(SECOND))).await;
    assert_eq!(begun.elapsed(), 10 * SECOND);
    assert_eq!(end_of(&events).answer, "free", "{events:?}");
    let notes: Vec<_> = actions(&events).iter().map(|event| (event.phase, event.ok)).collect();
    assert_eq!(notes, [(Phase::Started, None), (Phase::Completed, Some(true))]);
    assert!(actions(&events)[0].action.title.contains("another server"), "{events:?}");

    for (wait, visible) in [(Duration::ZERO, false), (3 * SECOND, true)] {
        let begun = Instant::now();
        let events = all(runner.run(on("a").wait(wait))).await;
        assert_eq!(begun.elapsed(), wait);
        assert_eq!(end_of(&events).error.as_deref(), Some("Ok(None)"));
        if visible {
            assert_wait_is_closed(&events);
        } else {
            assert_eq!(events.len(), 1, "{events:?}");
        }
    }

    let request = on("a");
    let cancel = request.cancel.clone();
    let cancelling = async {
        tokio::time::sleep(SECOND).await;
        cancel.cancel();
    };
    let begun = Instant::now();
    let (events, ()) = tokio::join!(all(runner.run(request)), cancelling);
    assert_eq!(end_of(&events).reason, Some(Reason::Interrupted));
    assert_eq!(begun.elapsed(), SECOND);
}

#[tokio::test(start_paused = true)]
async fn a_run_dropped_in_line_leaves_the_line_to_the_next() {
    let test_host = TestHost::on_test_runtime();
    let runner = ten_seconds(&test_host.host);
    let mut first = runner.run(on("a"));
    until_started(&mut first).await;
    let begun = Instant::now();
    let second = runner.run(on("a"));
    let third = runner.run(on("a"));
    settle_tasks().await;
    drop(second);
    assert!(end(third).await.ok);
    assert_eq!(begun.elapsed(), 20 * SECOND);
    test_host.host.settle().await;
    assert!(test_host.is_unlocked());
}

#[tokio::test(start_paused = true)]
async fn a_lock_directory_that_cannot_be_made_ends_the_run_with_an_error() {
    let test_host = TestHost::on_test_runtime();
    // A file where a directory should be.
    std::fs::write(test_host.directory.path().join("locks"), "").unwrap();
    let runs = Arc::new(AtomicUsize::new(0));
    let counter = runs.clone();
    let runner = lab_with_files(&test_host.host, move |run| {
        counter.fetch_add(1, Ordering::SeqCst);
        async move {
            run.emit(started("a")).await.unwrap_err();
        }
    });
    for request in [on("a"), RunRequest::new("go")] {
        let end = end(runner.run(request)).await;
        assert_eq!((end.reason, end.resume), (Some(Reason::SpawnFailed), Some(token("a"))));
        let error = end.error.unwrap();
        assert!(error.contains("locks") && error.contains("TAKOPI_STATE_DIR"), "{error}");
    }
    assert_eq!(runs.load(Ordering::SeqCst), 1, "a resume is not even begun");
}
