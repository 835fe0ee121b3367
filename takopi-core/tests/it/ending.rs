//! How engine processes end: the stop sequence, the sweep, and what is left behind (nothing).

use std::time::Duration;

use crate::common::apart::{ChildProcess, limit_descriptors, report};
use crate::common::engines::{
    lab, lab_with_files, shell, short_stop_sequence, started, stop_sequence, success, then_wait,
};
use crate::common::processes::{descriptors, is_alive, number_in, signal, until_runs};
use crate::common::{TestHost, end, eventually, token, until_started};
use nix::sys::signal::Signal;
use takopi_core::model::Reason;
use takopi_core::process::{
    Launch, MarkedProcesses, StartCutoff, StdinPlan, StopSequence, StopStep,
};
use takopi_core::{RunRequest, Runner};

fn prompt() -> RunRequest {
    RunRequest::new("go")
}

fn on(value: &str) -> RunRequest {
    RunRequest::new("go").resume(token(value))
}

/// With enough time for an engine that ends at the first signal, on a machine of any speed.
fn patiently(launch: Launch) -> Launch {
    launch.stop_sequence(stop_sequence(Duration::from_mins(1)))
}

#[tokio::test]
async fn the_stop_sequence_is_int_then_term_then_kill() {
    // A machine that is busy may take long to run the trap of TERM.
    let graces: [fn(Launch) -> Launch; 3] = [
        |launch| launch.stop_sequence(short_stop_sequence()),
        |launch| launch.stop_sequence(stop_sequence(Duration::from_secs(3))),
        |launch| launch.stop_sequence(stop_sequence(Duration::from_secs(30))),
    ];
    for grace in graces {
        if stopped_in_sequence(grace).await == "INT\nTERM\n" {
            return;
        }
    }
    panic!("the signals were not INT and TERM, once each");
}

/// The signals that an engine handled which ends by none of them.
async fn stopped_in_sequence(grace: fn(Launch) -> Launch) -> String {
    let test_host = TestHost::on_own_thread();
    let script = then_wait(
        r#"
        trap 'echo INT >> $DIR/log' INT
        trap 'echo TERM >> $DIR/log' TERM
        echo '{"say":"so far"}'
        "#,
    );
    let runner = shell(script).bash().launch_with(grace).on(&test_host);
    let request = prompt();
    let cancel = request.cancel.clone();
    let mut events = runner.run(request);
    until_started(&mut events).await;
    cancel.cancel();
    let end = end(events).await;
    assert_eq!((end.reason, end.answer.as_str()), (Some(Reason::Interrupted), "so far"));
    assert!(test_host.processes().is_empty(), "nothing is left when Completed is emitted");
    assert!(test_host.is_unlocked());
    // There is none if it had no time for a single trap.
    std::fs::read_to_string(test_host.file("log")).unwrap_or_default()
}

#[tokio::test]
async fn an_engine_that_ends_on_int_gets_no_other_signal_and_is_read_to_the_end() {
    let test_host = TestHost::on_own_thread();
    let script = then_wait(
        r#"
        trap 'echo INT >> $DIR/log; echo "{\"say\":\"last words\"}"; exit 0' INT
        trap 'echo TERM >> $DIR/log' TERM
        "#,
    );
    let runner = shell(script).bash().launch_with(patiently).on(&test_host);
    let request = prompt();
    let cancel = request.cancel.clone();
    let mut events = runner.run(request);
    until_started(&mut events).await;
    cancel.cancel();
    assert_eq!(end(events).await.answer, "last words");
    assert_eq!(std::fs::read_to_string(test_host.file("log")).unwrap(), "INT\n");
}

#[tokio::test]
async fn a_server_is_ended_by_the_end_of_its_input_first() {
    let test_host = TestHost::on_own_thread();
    let (name, value) = test_host.mark();
    let script = r"
        trap 'echo signal >> $DIR/log' INT TERM
        cat > /dev/null
        echo input >> $DIR/log
    ";
    let grace = Duration::from_mins(1);
    let launch = Launch::new("/bin/bash")
        .args(["-c", script])
        .env("DIR", value)
        .env(name, value)
        .stdin(StdinPlan::Open)
        .stop_sequence(StopSequence::new([
            (StopStep::CloseStdin, grace),
            (StopStep::Terminate, grace),
        ]));
    let (process, _output) = test_host.host.start(launch).await.unwrap();
    let pid = i32::try_from(process.pid()).unwrap();
    process.stop().await;
    assert!(!is_alive(pid));
    assert_eq!(std::fs::read_to_string(test_host.file("log")).unwrap(), "input\n");
}

#[tokio::test]
async fn dropping_a_handle_ends_the_process() {
    let test_host = TestHost::on_own_thread();
    let (name, value) = test_host.mark();
    let launch = Launch::new("sleep").args(["1000"]).env(name, value);
    let (process, output) = test_host.host.start(launch).await.unwrap();
    let pid = i32::try_from(process.pid()).unwrap();
    assert!(is_alive(pid));
    drop((process, output));
    test_host.host.settle().await;
    assert!(!is_alive(pid));
}

#[tokio::test]
async fn dropping_the_stream_ends_the_process_before_the_next_run_on_its_session_starts() {
    let test_host = TestHost::on_own_thread();
    // Two at once would find each other's directory. It takes its time to end.
    let script = then_wait(
        r"
        mkdir $DIR/room || exit 9
        trap 'sleep 0.3; rmdir $DIR/room; exit 0' INT
        ",
    );
    let runner = shell(script).bash().launch_with(patiently).on(&test_host);
    for _ in 0..3 {
        let mut events = runner.run(on("a"));
        until_started(&mut events).await;
        drop(events);
    }
    runner.shutdown().await;
    assert!(!test_host.file("room").exists() && test_host.processes().is_empty());
    assert!(test_host.is_unlocked());
}

#[tokio::test]
async fn a_run_that_reached_a_limit_ends_when_nothing_of_it_is_left() {
    let test_host = TestHost::on_own_thread();
    let script = then_wait("setsid sleep 1000 > /dev/null 2>&1 &\necho '{\"say\":\"so far\"}'");
    let runner = shell(script).on(&test_host);
    let limited = |reason: &Reason, limit: Duration| match reason {
        Reason::TimeoutIdle => prompt().idle_timeout(limit),
        _ => prompt().wall_timeout(limit),
    };
    for reason in [Reason::TimeoutIdle, Reason::TimeoutWall] {
        // On a busy machine the shell may need longer than the first limit to get so far.
        let mut answer = String::new();
        for seconds in [0.5, 5.0, 50.0] {
            let request = limited(&reason, Duration::from_secs_f64(seconds));
            let end = end(runner.run(request)).await;
            assert_eq!(end.reason, Some(reason.clone()));
            assert!(test_host.processes().is_empty() && test_host.is_unlocked());
            answer = end.answer;
            if !answer.is_empty() {
                break;
            }
        }
        assert_eq!(answer, "so far");
    }
}

#[tokio::test]
async fn ending_one_process_of_a_run_does_not_touch_the_other() {
    let test_host = TestHost::on_own_thread();
    let mark = (test_host.mark().0, test_host.directory.path().to_owned());
    let runner = lab(&test_host.host, move |run| {
        let launch = Launch::new("sleep").args(["1000"]).env(mark.0, &mark.1);
        async move {
            let (engine, _output) = run.start(launch.clone()).unwrap();
            let (beside, _output) = run.start(launch).unwrap();
            beside.stop().await;
            // It would be ended within the sweep of the other, if at all.
            let alive = is_alive(i32::try_from(engine.pid()).unwrap());
            run.emit(started(if alive { "alive" } else { "dead" })).await.unwrap();
            run.stop().cancelled().await;
        }
    });
    let mut events = runner.run(prompt());
    assert_eq!(until_started(&mut events).await, token("alive"));
    drop(events);
    test_host.host.settle().await;
    assert!(test_host.processes().is_empty());
}

/// Plays a part in a process of its own, with its own descriptors.
pub(crate) async fn play(part: &str) {
    match part {
        "dropper" => drop_two_hundred_streams().await,
        "forty" => run_forty_at_once().await,
        other => panic!("no such part: {other}"),
    }
    report("nothing is left");
}

/// Plays a part with 256 descriptors.
fn with_256_descriptors(part: &str) {
    let state = tempfile::TempDir::new().unwrap();
    let actor =
        ChildProcess::with(part, state.path(), |command| limit_descriptors(command, 256, 256));
    actor.expect("nothing is left");
}

async fn drop_two_hundred_streams() {
    let test_host = TestHost::on_own_thread();
    let script = r#"
        setsid sleep 1000 > /dev/null 2>&1 &
        echo "{\"started\":\"$(cat)\"}"
        while :; do sleep 1; done
    "#;
    let runner = shell(script).on(&test_host);
    let batch = async |number: usize| {
        let mut streams: Vec<_> = (0..20)
            .map(|member| {
                let name = format!("s{number}-{member}");
                runner.run(RunRequest::new(&name))
            })
            .collect();
        for stream in &mut streams {
            until_started(stream).await;
        }
        drop(streams);
        runner.shutdown().await;
    };
    // The first batch opens what stays open: the runtime's own descriptors.
    batch(0).await;
    let before = descriptors();
    for number in 1..=10 {
        batch(number).await;
    }
    assert!(test_host.processes().is_empty());
    assert!(test_host.is_unlocked());
    eventually("no descriptor is left", || descriptors() <= before).await;
}

#[test]
fn two_hundred_dropped_streams_leave_no_process_no_descriptor_no_lock_with_256_descriptors() {
    with_256_descriptors("dropper");
}

#[tokio::test]
async fn a_run_given_up_at_any_moment_leaves_nothing() {
    let test_host = TestHost::on_own_thread();
    let script = r#"
        setsid sleep 1000 > /dev/null 2>&1 &
        echo '{"started":"a"}'
        echo '{"note":"n"}'
        exec sleep 1000
    "#;
    let runner = shell(script).on(&test_host);
    for moment in 0..60 {
        let request = on("a");
        let cancel = request.cancel.clone();
        let events = runner.run(request);
        // Anywhere between the request and the first events.
        tokio::time::sleep(Duration::from_micros(150 * moment)).await;
        if moment % 2 == 0 {
            drop(events);
            runner.shutdown().await;
        } else {
            cancel.cancel();
            assert_eq!(end(events).await.reason, Some(Reason::Interrupted));
        }
        assert!(test_host.processes().is_empty() && test_host.is_unlocked(), "at {moment}");
    }
}

#[tokio::test]
async fn a_clone_of_the_run_that_lives_on_keeps_no_session() {
    let test_host = TestHost::on_own_thread();
    let (keep, kept) = std::sync::mpsc::channel();
    let runner = lab_with_files(&test_host.host, move |run| {
        keep.send(run.clone()).unwrap();
        async move {
            let (process, _output) = run.start(Launch::new("true")).unwrap();
            run.emit(started("a")).await.unwrap();
            run.emit(success("")).await.unwrap();
            process.finish();
        }
    });
    assert!(end(runner.run(prompt())).await.ok);
    runner.shutdown().await;
    assert!(test_host.is_unlocked());
    let kept = kept.recv().unwrap();
    assert!(kept.stop().is_cancelled(), "and it is told");
}

#[tokio::test]
async fn what_lived_before_is_spared_by_a_stop_and_by_a_sweep_of_marked_ones() {
    let test_host = TestHost::on_own_thread();
    let (name, value) = test_host.mark();
    let script = r"
        setsid sleep 1000 > /dev/null 2>&1 & echo $! > $DIR/early
        read line
        setsid sleep 1000 > /dev/null 2>&1 & echo $! > $DIR/late
        wait
    ";
    let start = async || {
        let launch = Launch::new("/bin/bash")
            .args(["-c", script])
            .env(name, value)
            .env("DIR", value)
            .stdin(StdinPlan::Open)
            .stop_sequence(short_stop_sequence());
        let (mut process, output) = test_host.host.start(launch).await.unwrap();
        let early = number_in(&test_host.file("early")).await;
        // The tick in which it was started is over.
        let tick = StartCutoff::now();
        while StartCutoff::now() == tick {
            tokio::task::yield_now().await;
        }
        let before = StartCutoff::now();
        let input = process.stdin().unwrap();
        assert!(input.write(b"go\n".to_vec()).await);
        let late = number_in(&test_host.file("late")).await;
        // Until then they may have no environment to be found by.
        for pid in [early, late] {
            until_runs(pid, &["sleep", "1000"]).await;
        }
        for file in ["early", "late"] {
            std::fs::remove_file(test_host.file(file)).unwrap();
        }
        (process, output, [early, late], before)
    };
    let (process, _output, [early, late], before) = start().await;
    process.stop_sparing(before).await;
    assert!(is_alive(early) && !is_alive(late));
    signal(early, Signal::SIGKILL);

    let (process, _output, [early, late], before) = start().await;
    MarkedProcesses::new(name, value.to_str().unwrap()).end(before).await;
    assert!(is_alive(early) && !is_alive(late));
    process.stop().await;
    assert!(!is_alive(early), "a stop that spares nobody");
}

async fn run_forty_at_once() {
    let test_host = TestHost::on_own_thread();
    let runner = shell(then_wait("")).on(&test_host);
    let mut streams: Vec<_> = (0..40)
        .map(|number| runner.run(RunRequest::new("go").resume(token(&format!("s{number}")))))
        .collect();
    // The script names another session than asked: all break off, and nothing is left of them.
    for stream in streams.drain(..) {
        assert_eq!(end(stream).await.reason, Some(Reason::Protocol));
    }
    assert!(test_host.processes().is_empty() && test_host.is_unlocked());
}

#[test]
fn forty_runs_at_once_fit_into_256_descriptors_and_end_together() {
    with_256_descriptors("forty");
}

#[test]
fn a_caller_that_drops_its_runtime_does_not_take_the_clean_up_with_it() {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    let test_host = TestHost::on_own_thread();
    let script = then_wait("echo $$ > $DIR/pid; setsid sleep 1000 > /dev/null 2>&1 &");
    let runner = shell(script).on(&test_host);
    let (dropped, kept) = runtime.block_on(async {
        let mut dropped = runner.run(prompt());
        until_started(&mut dropped).await;
        let kept = runner.run(on("a"));
        (dropped, kept)
    });
    let pid = runtime.block_on(number_in(&test_host.file("pid")));
    assert!(is_alive(pid));
    runtime.spawn(async move { drop(dropped) });
    drop(runtime);
    // The next in line gets the session only once the first is gone.
    let other = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    other.block_on(async {
        let mut kept = kept;
        until_started(&mut kept).await;
        assert!(!is_alive(pid));
        drop(kept);
        test_host.host.settle().await;
        assert!(test_host.processes().is_empty() && test_host.is_unlocked());
    });
}

#[tokio::test]
async fn a_cancelled_run_ends_only_when_its_processes_are_gone_though_its_engine_does_not_wait() {
    let test_host = TestHost::on_own_thread();
    let (name, value) = test_host.mark();
    let (value, grace) = (value.to_owned(), Duration::from_mins(1));
    let script = r"
        trap 'echo $$ > $DIR/interrupted; until [ -e $DIR/gate ]; do sleep 0.01; done; exit' INT
        echo $$ > $DIR/pid
        while :; do sleep 0.01; done
    ";
    let launch = Launch::new("/bin/bash").args(["-c", script]).env(name, &value).env("DIR", &value);
    let launch = launch.stop_sequence(StopSequence::new([(StopStep::Interrupt, grace)]));
    let runner = lab(&test_host.host, move |run| {
        let launch = launch.clone();
        async move {
            let (_process, _output) = run.start(launch).unwrap();
            run.emit(started("a")).await.unwrap();
            run.stop().cancelled().await;
        }
    });
    let request = prompt();
    let cancel = request.cancel.clone();
    let mut events = runner.run(request);
    until_started(&mut events).await;
    let pid = number_in(&test_host.file("pid")).await;
    cancel.cancel();
    let interrupted = test_host.file("interrupted");
    let mut end = std::pin::pin!(end(events));
    let early = tokio::select! {
        biased;
        end = &mut end => Some(end),
        _ = number_in(&interrupted) => None,
    };
    // It had its chance, and gets another one.
    let again = tokio::time::timeout(Duration::from_millis(200), &mut end);
    let early = if early.is_some() { early } else { again.await.ok() };
    assert!(early.is_none(), "its process lives, and waits for the gate: {early:?}");
    std::fs::write(test_host.file("gate"), "").unwrap();
    assert_eq!(end.await.reason, Some(Reason::Interrupted));
    assert!(!is_alive(pid));
}

#[tokio::test]
async fn shutdown_waits_for_ladders_and_reaping() {
    let test_host = TestHost::on_own_thread();
    let script = then_wait("trap 'sleep 0.3; exit 0' INT; setsid sleep 1000 > /dev/null 2>&1 &");
    let runner = shell(script).bash().on(&test_host);
    let mut events = runner.run(prompt());
    until_started(&mut events).await;
    drop(events);
    runner.shutdown().await;
    assert!(test_host.processes().is_empty() && test_host.is_unlocked());
    assert!(crate::common::names_in(&test_host.file("runs")).is_empty(), "nor a run record");
}

#[tokio::test]
async fn a_host_goes_on_after_shutdown() {
    let test_host = TestHost::on_own_thread();
    let script = r#"echo '{"started":"a"}'; echo '{"done":"yes"}'"#;
    let runner = shell(script).on(&test_host);
    for _ in 0..3 {
        assert!(end(runner.run(on("a"))).await.ok);
        runner.shutdown().await;
    }
    let mut events = shell(then_wait("")).on(&test_host).run(on("a"));
    until_started(&mut events).await;
    assert_eq!(
        crate::common::names_in(&test_host.file("runs")).len(),
        1,
        "and keeps its record again"
    );
}
