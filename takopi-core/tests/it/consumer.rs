//! What the consumer may do to a run: drop it, cancel it, stop reading.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use crate::common::engines::{lab, note, started, success};
use crate::common::{
    LAB, TestHost, all, end, end_of, is_started, settle_tasks, titles, token, until_action,
    until_started,
};
use futures::StreamExt;
use takopi_core::demo::{Demo, Step};
use takopi_core::model::{AnswerPieces, Completed, Reason, TakopiEvent};
use takopi_core::{EngineRun, EngineRunner, RunRequest, Runner};
use tokio::time::Instant;

fn prompt() -> RunRequest {
    RunRequest::new("go")
}

fn on(value: &str) -> RunRequest {
    RunRequest::new("go").resume(token(value))
}

#[tokio::test(start_paused = true)]
async fn dropping_the_stream_before_completed_cancels_the_run() {
    let test_host = TestHost::on_test_runtime();
    let stopped = Arc::new(AtomicBool::new(false));
    let seen = stopped.clone();
    let runner = lab(&test_host.host, move |run| {
        let seen = seen.clone();
        async move {
            run.emit(started("a")).await.unwrap();
            run.stop().cancelled().await;
            seen.store(true, Ordering::SeqCst);
        }
    });
    let mut events = runner.run(prompt());
    until_started(&mut events).await;
    drop(events);
    test_host.host.settle().await;
    assert!(stopped.load(Ordering::SeqCst));
    assert!(test_host.is_unlocked());
}

#[tokio::test(start_paused = true)]
async fn dropping_the_stream_after_completed_does_nothing() {
    let test_host = TestHost::on_test_runtime();
    let stopped = Arc::new(AtomicBool::new(false));
    let seen = stopped.clone();
    let runner = lab(&test_host.host, move |run| {
        let seen = seen.clone();
        async move {
            run.emit(started("a")).await.unwrap();
            run.emit(success("yes")).await.unwrap();
            // Still at work behind the scenes, such as handing its process over.
            tokio::time::sleep(Duration::from_secs(1)).await;
            seen.store(run.stop().is_cancelled(), Ordering::SeqCst);
        }
    });
    let mut events = runner.run(prompt());
    until_started(&mut events).await;
    assert!(matches!(events.next().await, Some(TakopiEvent::Completed(_))));
    drop(events);
    test_host.host.settle().await;
    assert!(!stopped.load(Ordering::SeqCst));
}

#[tokio::test(start_paused = true)]
async fn a_run_that_is_already_cancelled_is_not_started() {
    let test_host = TestHost::on_test_runtime();
    let begun = Arc::new(AtomicUsize::new(0));
    let counter = begun.clone();
    let runner = lab(&test_host.host, move |_run| {
        counter.fetch_add(1, Ordering::SeqCst);
        std::future::pending()
    });
    for request in [prompt(), on("a")] {
        drop(runner.run(request));
    }
    for request in [prompt(), on("a")] {
        request.cancel.cancel();
        assert_eq!(end(runner.run(request)).await.reason, Some(Reason::Interrupted));
    }
    test_host.host.settle().await;
    assert_eq!(begun.load(Ordering::SeqCst), 0);
    assert!(test_host.is_unlocked());
}

#[tokio::test(start_paused = true)]
async fn a_cancelled_run_ends_as_interrupted_with_the_answer_so_far() {
    let test_host = TestHost::on_test_runtime();
    let script = [Step::Say("half of it".to_owned()), Step::Pause(Duration::from_hours(1))];
    let runner = EngineRunner::new(Demo::scripted(script)).on(test_host.host.clone());
    let request = prompt();
    let cancel = request.cancel.clone();
    let mut events = runner.run(request);
    let session = until_started(&mut events).await;
    settle_tasks().await;
    cancel.cancel();
    let end = end(events).await;
    assert_eq!((end.ok, end.reason), (false, Some(Reason::Interrupted)));
    assert_eq!((end.answer.as_str(), end.resume), ("half of it", Some(session)));
    assert!(test_host.is_unlocked());
}

#[tokio::test(start_paused = true)]
async fn a_cancel_that_comes_with_the_end_leaves_exactly_one_of_them() {
    let test_host = TestHost::on_test_runtime();
    let runner = lab(&test_host.host, |run| async move {
        run.emit(started("a")).await.unwrap();
        // The engine cancels its own run, and ends it in the same breath.
        if run.request.prompt == "cancel first" {
            run.request.cancel.cancel();
            run.emit(success("yes")).await.unwrap();
        } else {
            run.emit(success("yes")).await.unwrap();
            run.request.cancel.cancel();
        }
        std::future::pending::<()>().await;
    });
    for prompt in ["cancel first", "end first"] {
        let end = end(runner.run(RunRequest::new(prompt))).await;
        assert!(end.ok, "the engine said it before the driver saw the cancel: {end:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn cancel_and_end_on_different_threads_leave_exactly_one_completed() {
    let test_host = TestHost::on_test_runtime();
    let runner = lab(&test_host.host, |run| async move {
        run.emit(started("a")).await.unwrap();
        // From another task, so that the driver is awake at the same time.
        let other = run.clone();
        tokio::spawn(async move { other.emit(success("yes")).await });
        run.stop().cancelled().await;
        let _ = run.emit(Completed::failure(LAB, Reason::Interrupted, "cut")).await;
    });
    for _ in 0..500 {
        let request = prompt();
        let cancel = request.cancel.clone();
        let mut events = runner.run(request);
        until_started(&mut events).await;
        tokio::spawn(async move { cancel.cancel() });
        let end = end(events).await;
        assert!(end.ok || end.reason == Some(Reason::Interrupted), "{end:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn cancelling_a_run_that_waits_in_line_takes_it_out_of_the_line() {
    let test_host = TestHost::on_test_runtime();
    let runner = lab(&test_host.host, |run| async move {
        run.emit(started("a")).await.unwrap();
        run.stop().cancelled().await;
    });
    let mut first = runner.run(on("a"));
    until_started(&mut first).await;
    let request = on("a");
    let cancel = request.cancel.clone();
    let second = runner.run(request);
    settle_tasks().await;
    cancel.cancel();
    let end = end(second).await;
    assert_eq!((end.reason, end.resume), (Some(Reason::Interrupted), Some(token("a"))));
    drop(first);
    test_host.host.settle().await;
    assert!(test_host.is_unlocked());
}

#[tokio::test(start_paused = true)]
async fn a_consumer_that_stops_reading_is_waited_for_at_the_bound_of_items() {
    let test_host = TestHost::on_test_runtime();
    let emitted = Arc::new(AtomicUsize::new(0));
    let counter = emitted.clone();
    let runner = lab(&test_host.host, move |run| {
        let counter = counter.clone();
        async move {
            run.emit(started("a")).await.unwrap();
            for number in 0..1000 {
                run.emit(note(&number.to_string())).await.unwrap();
                counter.fetch_add(1, Ordering::SeqCst);
            }
            run.emit(success("all")).await.unwrap();
        }
    })
    .buffer(10, 1 << 20);
    let mut events = runner.run(prompt());
    settle_tasks().await;
    tokio::time::sleep(Duration::from_hours(1)).await;
    assert_eq!(emitted.load(Ordering::SeqCst), 9, "with Started that makes ten");
    until_started(&mut events).await;
    settle_tasks().await;
    assert!(emitted.load(Ordering::SeqCst) <= 20, "what is taken is bounded, too");
    let rest = all(events).await;
    let expected: Vec<_> = (0..1000).map(|number| number.to_string()).collect();
    assert_eq!(titles(&rest), expected, "below the bound every event is yielded as it came");
}

#[tokio::test(start_paused = true)]
async fn a_consumer_that_stops_reading_is_waited_for_at_the_bound_of_bytes() {
    let test_host = TestHost::on_test_runtime();
    let emitted = Arc::new(AtomicUsize::new(0));
    let counter = emitted.clone();
    let runner = lab(&test_host.host, move |run| {
        let counter = counter.clone();
        async move {
            for _ in 0..100 {
                run.emit(note(&"x".repeat(10_000))).await.unwrap();
                counter.fetch_add(1, Ordering::SeqCst);
            }
            run.emit(started("a")).await.unwrap();
            run.emit(success("all")).await.unwrap();
        }
    })
    .buffer(1000, 50_000);
    let events = runner.run(prompt());
    settle_tasks().await;
    assert_eq!(emitted.load(Ordering::SeqCst), 5);
    assert_eq!(all(events).await.len(), 102);
}

#[tokio::test(start_paused = true)]
async fn many_events_at_once_wait_for_the_consumer_at_the_bound_too() {
    let test_host = TestHost::on_test_runtime();
    let emitted = Arc::new(AtomicBool::new(false));
    let flag = emitted.clone();
    let runner = lab(&test_host.host, move |run| {
        let flag = flag.clone();
        async move {
            let notes = (0..100).map(|number| note(&number.to_string()).into());
            run.emit_all(notes.collect()).await.unwrap();
            flag.store(true, Ordering::SeqCst);
            run.emit(started("a")).await.unwrap();
            run.emit(success("all")).await.unwrap();
        }
    })
    .buffer(10, 1 << 20);
    let mut events = runner.run(prompt());
    settle_tasks().await;
    assert!(!emitted.load(Ordering::SeqCst), "there is room for ten");
    until_action(&mut events, "0").await;
    settle_tasks().await;
    assert!(!emitted.load(Ordering::SeqCst), "and for ten more");
    let expected: Vec<_> = (1..100).map(|number| number.to_string()).collect();
    assert_eq!(titles(&all(events).await), expected);
}

#[tokio::test(start_paused = true)]
async fn behind_a_stop_no_action_is_passed_on() {
    let test_host = TestHost::on_test_runtime();
    let runner = lab(&test_host.host, |run| async move {
        run.emit(started("a")).await.unwrap();
        run.stop().cancelled().await;
        run.emit(note("late")).await.unwrap_err();
        run.emit_all(vec![note("late").into(), note("later").into()]).await.unwrap_err();
    });
    let mut events = runner.run(prompt());
    until_started(&mut events).await;
    events.cancel();
    let rest = all(events).await;
    assert_eq!(rest.len(), 1, "{rest:?}");
    assert_eq!(end_of(&rest).reason, Some(Reason::Interrupted));
}

#[tokio::test(start_paused = true)]
async fn a_consumer_that_stops_reading_never_stalls_another_session() {
    let test_host = TestHost::on_test_runtime();
    let runner = lab(&test_host.host, |run| async move {
        let session = run.resume.clone().unwrap();
        run.emit(started(&session.value)).await.unwrap();
        for _ in 0..100 {
            if run.emit(note("n")).await.is_err() {
                return;
            }
        }
        run.emit(success("all")).await.unwrap();
    })
    .buffer(4, 1 << 20);
    let stuck = runner.run(on("stuck"));
    settle_tasks().await;
    assert_eq!(all(runner.run(on("free"))).await.len(), 102);
    assert_eq!(all(stuck).await.len(), 102, "and it goes on where it stood");
}

#[tokio::test(start_paused = true)]
async fn the_idle_limit_pauses_while_the_consumer_does_not_read_and_the_wall_clock_does_not() {
    let test_host = TestHost::on_test_runtime();
    let runner = lab(&test_host.host, |run| async move {
        run.emit(started("a")).await.unwrap();
        for _ in 0..10 {
            if run.emit(note("n")).await.is_err() {
                return;
            }
        }
        run.emit(success("all")).await.unwrap();
    })
    .buffer(4, 1 << 20);
    let request = RunRequest::new("go").idle_timeout(Duration::from_secs(5));
    let events = runner.run(request);
    tokio::time::sleep(Duration::from_hours(1)).await;
    assert!(end(events).await.ok);

    let request = RunRequest::new("go").wall_timeout(Duration::from_mins(1));
    let events = runner.run(request);
    tokio::time::sleep(Duration::from_hours(1)).await;
    let end = end(events).await;
    assert_eq!(end.reason, Some(Reason::TimeoutWall));
}

#[tokio::test(start_paused = true)]
async fn the_terminal_event_never_waits_for_the_consumer() {
    let test_host = TestHost::on_test_runtime();
    let runner = lab(&test_host.host, |run| async move {
        run.emit(started("a")).await.unwrap();
        if run.request.prompt == "fill it" {
            run.emit(note("n")).await.unwrap();
        }
        run.emit(success("all")).await.unwrap();
    })
    .buffer(2, 1 << 20);
    let full = runner.run(RunRequest::new("fill it").resume(token("a")));
    settle_tasks().await;
    // The consumer has read nothing, and the session is free.
    assert!(end(runner.run(on("a"))).await.ok);
    let events = all(full).await;
    assert_eq!(events.len(), 3);
    assert!(is_started(&events[0]));
    assert!(end_of(&events).ok);
}

#[tokio::test(start_paused = true)]
async fn cancelling_a_run_whose_consumer_does_not_read_ends_it() {
    let test_host = TestHost::on_test_runtime();
    let runner = lab(&test_host.host, |run| async move {
        run.emit(started("a")).await.unwrap();
        while run.emit(note("n")).await.is_ok() {}
    })
    .buffer(4, 1 << 20);
    let request = on("a");
    let cancel = request.cancel.clone();
    let unread = runner.run(request);
    settle_tasks().await;
    cancel.cancel();
    test_host.host.settle().await;
    assert!(test_host.is_unlocked());
    assert_eq!(end(unread).await.reason, Some(Reason::Interrupted));
}

#[tokio::test(start_paused = true)]
async fn the_run_goes_on_whether_or_not_the_stream_is_polled() {
    let test_host = TestHost::on_test_runtime();
    let runner = lab(&test_host.host, |run| async move {
        run.emit(started("a")).await.unwrap();
        tokio::time::sleep(Duration::from_secs(5)).await;
        run.emit(success("all")).await.unwrap();
    });
    let events = runner.run(prompt());
    let begun = Instant::now();
    test_host.host.settle().await;
    assert_eq!(begun.elapsed(), Duration::from_secs(5));
    assert!(end(events).await.ok);
}

#[tokio::test(start_paused = true)]
async fn several_may_wait_for_a_host_to_settle_at_once() {
    let test_host = TestHost::on_test_runtime();
    let runner = lab(&test_host.host, |run| async move {
        run.emit(started("a")).await.unwrap();
        tokio::time::sleep(Duration::from_secs(1)).await;
        run.emit(success("all")).await.unwrap();
    });
    let mut events = runner.run(prompt());
    until_started(&mut events).await;
    let (host, other) = (test_host.host.clone(), test_host.host.clone());
    let late = async {
        tokio::time::sleep(Duration::from_secs(1)).await;
        other.settle().await;
    };
    tokio::join!(host.settle(), late, runner.shutdown());
    assert!(end(events).await.ok);
}

#[tokio::test(start_paused = true)]
async fn a_runner_shuts_down_without_waiting_for_the_runs_of_another() {
    let test_host = TestHost::on_test_runtime();
    let turn = |length: u64| {
        move |run: EngineRun| async move {
            run.emit(started(&length.to_string())).await.unwrap();
            tokio::time::sleep(Duration::from_secs(length)).await;
            run.emit(success("all")).await.unwrap();
        }
    };
    let (slow, quick) = (lab(&test_host.host, turn(100)), lab(&test_host.host, turn(1)));
    let (slow_run, _quick_run) = (slow.run(prompt()), quick.run(prompt()));
    let begun = Instant::now();
    quick.shutdown().await;
    assert_eq!(begun.elapsed(), Duration::from_secs(1));
    slow.shutdown().await;
    assert_eq!(begun.elapsed(), Duration::from_secs(100));
    assert!(end(slow_run).await.ok);
}

#[tokio::test(start_paused = true)]
async fn two_consumers_see_their_own_run_only() {
    let test_host = TestHost::on_test_runtime();
    let runner = lab(&test_host.host, |run| async move {
        let name = run.request.prompt.clone();
        run.emit(started(&name)).await.unwrap();
        run.emit(note(&name)).await.unwrap();
        run.stop().cancelled().await;
    });
    let requests = ["one", "two"].map(RunRequest::new);
    let cancels = requests.clone().map(|request| request.cancel);
    let [mut one, mut two] = requests.map(|request| runner.run(request));
    until_action(&mut one, "one").await;
    until_action(&mut two, "two").await;
    cancels[0].cancel();
    assert_eq!(end(one).await.resume, Some(token("one")));
    assert!(two.next().now_or_never_is_none());
    cancels[1].cancel();
    assert_eq!(end(two).await.resume, Some(token("two")));
}

trait NowOrNever {
    fn now_or_never_is_none(self) -> bool;
}

impl<F: Future + Unpin> NowOrNever for F {
    fn now_or_never_is_none(self) -> bool {
        futures::FutureExt::now_or_never(self).is_none()
    }
}

/// Emits this many pieces of one message, and more of another.
fn writer(test_host: &TestHost, items: usize, bytes: usize) -> impl Runner {
    lab(&test_host.host, move |run| async move {
        run.emit(started("a")).await.unwrap();
        let mut pieces = AnswerPieces::new(LAB);
        for n in 0..PIECES {
            let mut events = Vec::new();
            let message = if n < PIECES / 2 { "m1" } else { "m2" };
            pieces.piece(message, &format!("{n} "), &mut events);
            run.emit_all(events).await.unwrap();
        }
        run.emit(success("yes")).await.unwrap();
    })
    .buffer(items, bytes)
}

const PIECES: usize = 500;

fn pieces_of(events: &[TakopiEvent], message: &str) -> Vec<String> {
    let piece = |event: &TakopiEvent| match event {
        TakopiEvent::Action(event) if event.action.id == message => {
            event.answer_piece().map(str::to_owned)
        }
        _ => None,
    };
    events.iter().filter_map(piece).collect()
}

fn whole(numbers: std::ops::Range<usize>) -> String {
    numbers.fold(String::new(), |text, n| text + &n.to_string() + " ")
}

#[tokio::test(start_paused = true)]
async fn a_slow_consumer_gets_pieces_merged_but_never_lost_or_repeated() {
    let test_host = TestHost::on_test_runtime();
    let mut events = writer(&test_host, 10, 1 << 20).run(prompt());
    let mut seen = vec![events.next().await.unwrap()];
    // The run goes on as far as it gets while nobody reads.
    settle_tasks().await;
    seen.extend(events.collect::<Vec<_>>().await);
    let (first, second) = (pieces_of(&seen, "m1"), pieces_of(&seen, "m2"));
    assert!(first.len() < PIECES / 4, "{} pieces were not merged", first.len());
    assert_eq!(first.concat(), whole(0..PIECES / 2));
    assert_eq!(second.concat(), whole(PIECES / 2..PIECES));
}

#[tokio::test(start_paused = true)]
async fn below_the_bound_every_piece_is_yielded_as_it_came() {
    let test_host = TestHost::on_test_runtime();
    let seen = all(writer(&test_host, 10 * PIECES, 1 << 20).run(prompt())).await;
    assert_eq!(pieces_of(&seen, "m1").len() + pieces_of(&seen, "m2").len(), PIECES);
}

#[tokio::test(start_paused = true)]
async fn pieces_beyond_the_bound_of_the_buffer_wait_and_are_not_lost() {
    let test_host = TestHost::on_test_runtime();
    let mut events = writer(&test_host, 10, 2000).run(prompt());
    let mut seen = vec![events.next().await.unwrap()];
    settle_tasks().await;
    seen.extend(events.collect::<Vec<_>>().await);
    assert_eq!(pieces_of(&seen, "m1").concat(), whole(0..PIECES / 2));
}
