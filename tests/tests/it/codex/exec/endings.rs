//! Codex over `codex exec --json`, with a codex that does not end as it should: cancel, limits, what is left behind.
use std::time::Duration;

use futures::StreamExt;
use takopi_core::{ActionKind, Phase, Reason, Runner, TakopiEvent};
use takopi_tests::codex::fake::{Grandchild, Place, Script, Signal, Step, exec};
use takopi_tests::codex::lab::{Lab, session};
use takopi_tests::limits::with_enough_time;
use takopi_tests::runs::{Seen, finish, is_started, run, until};
use tokio_util::sync::CancellationToken;

fn opening() -> Vec<Step> {
    vec![Step::ReadStdin, exec::thread_started(), exec::turn_started()]
}

/// The opening, and these steps.
fn opened(steps: impl IntoIterator<Item = Step>) -> Script {
    Script::exec(opening().into_iter().chain(steps))
}

/// Runs up to the point `ready` of the fake, cancels, and reads on to the end.
async fn cancelled_at_ready(lab: &Lab) -> Seen {
    let cancel = CancellationToken::new();
    let runner = lab.exec();
    let mut stream = runner.run(lab.request("hi").cancel(cancel.clone()));
    let seen = until(&mut stream, "Started", is_started).await;
    lab.control.reached("ready").await;
    cancel.cancel();
    finish(stream, seen).await
}

#[tokio::test]
async fn cancel_is_sigint_first_so_that_codex_ends_its_own_commands() {
    let ends_itself = [
        Step::reached("interrupted"),
        Step::KillSpawned,
        exec::message("cut short"),
        Step::Exit(1),
    ];
    let lab = Lab::new(opened([
        exec::message("so far"),
        Grandchild::new("command").at(Place::OwnSession).spawn(),
        Step::on_signal(Signal::Term, [Step::reached("terminated")]),
        Step::on_signal(Signal::Int, ends_itself),
        Step::reached("ready"),
        Step::SleepForever,
    ]));
    let seen = cancelled_at_ready(&lab).await;
    assert_eq!(seen.failed("interrupted").answer, "cut short", "read to the last");
    assert_eq!(lab.home.processes(), []);
    assert_eq!(lab.control.marks("interrupted").len(), 1);
    assert_eq!(lab.control.marks("terminated").len(), 0);
    lab.assert_nothing_left().await;
}

#[tokio::test]
async fn a_turn_that_ends_behind_a_cancel_leaves_its_answer() {
    let ends = [exec::message("done all the same"), exec::turn_completed(), Step::Exit(0)];
    let lab = Lab::new(opened([
        Step::on_signal(Signal::Int, ends),
        Step::reached("ready"),
        Step::SleepForever,
    ]));
    let seen = cancelled_at_ready(&lab).await;
    let end = seen.failed("interrupted");
    assert_eq!(end.answer, "done all the same");
    assert!(end.usage.is_some());
    lab.assert_nothing_left().await;
}

#[tokio::test]
async fn a_cancel_while_the_last_events_wait_for_room_leaves_the_answer() {
    let commands = (0..4).map(|n| exec::command_completed(&format!("item_{n}"), "ls", "", 0));
    let end = [exec::message("all of it"), exec::turn_completed(), Step::reached("printed")];
    for last in [Some(Step::SleepForever), None] {
        let lab = Lab::new(opened(commands.clone().chain(end.clone()).chain(last)));
        let runner = lab.exec().buffer(1, 1 << 20);
        let cancel = CancellationToken::new();
        let mut stream = runner.run(lab.request("hi").cancel(cancel.clone()));
        lab.control.reached("printed").await;
        // Only one more has room, and the rest waits.
        let seen = until(&mut stream, "Started", is_started).await;
        cancel.cancel();
        let seen = finish(stream, seen).await;
        assert_eq!(seen.completed().answer, "all of it");
        runner.shutdown().await;
        lab.assert_nothing_left().await;
    }
}

#[tokio::test]
async fn a_codex_that_ignores_sigint_and_sigterm_is_killed_with_all_that_came_of_it() {
    let signals = [Signal::Int, Signal::Term, Signal::Hup];
    let lab = Lab::new(opened([
        Step::ignore(signals),
        Grandchild::new("same group").ignoring(signals).spawn(),
        Grandchild::new("own group").at(Place::OwnGroup).ignoring(signals).spawn(),
        Grandchild::new("own session").at(Place::OwnSession).ignoring(signals).spawn(),
        Grandchild::new("bare").at(Place::OwnSession).clearing_env().spawn(),
        Grandchild::new("detached").at(Place::Detached).ignoring(signals).spawn(),
        Step::reached("ready"),
        Step::SleepForever,
    ]));
    let seen = cancelled_at_ready(&lab).await;
    seen.failed("interrupted");
    // Nothing is left once the end is received: no polling.
    assert_eq!(lab.home.processes(), []);
    lab.control.all_gone().await;
    lab.assert_nothing_left().await;
}

#[tokio::test]
async fn a_killed_codex_leaves_none_of_its_commands() {
    let lab = Lab::new(opened([
        Grandchild::new("command").at(Place::OwnSession).spawn(),
        Grandchild::new("detached").at(Place::Detached).spawn(),
        Step::Die(Signal::Kill),
    ]));
    run(&lab.exec(), lab.request("hi")).await.failed("process_died");
    lab.host.settle().await;
    lab.control.all_gone().await;
    lab.assert_nothing_left().await;
}

#[tokio::test]
async fn what_detached_itself_stays_after_an_ordinary_end() {
    let server = Grandchild::new("dev server").at(Place::Detached);
    let lab = Lab::new(opened([server.spawn(), exec::message("up"), exec::turn_completed()]));
    let runner = lab.exec();
    run(&runner, lab.request("hi")).await.ok();
    let server = lab.control.reached("dev server").await;
    runner.shutdown().await;
    assert_eq!(lab.control.alive(), [server.pid]);
}

#[tokio::test]
async fn a_grandchild_that_holds_the_pipes_delays_nothing() {
    let holder = || {
        let holder = Grandchild::new("holder").at(Place::Detached);
        holder.holding_stdout().holding_stderr().spawn()
    };
    let lab = Lab::new(opened([holder(), exec::message("Hello."), exec::turn_completed()]));
    let runner = lab.exec();
    let first = run(&runner, lab.request("hi")).await;
    assert_eq!(first.ok().answer, "Hello.");
    // Nor does it hold the session.
    run(&runner, lab.request("hi").resume(first.session())).await.ok();

    let lab = Lab::new(opened([holder(), Step::stderr("why"), Step::Exit(2)]));
    let seen = run(&lab.exec(), lab.request("hi")).await;
    assert_eq!(seen.failed("engine_failed").error.as_deref(), Some("codex exec failed (rc=2)."));
    assert_eq!(seen.done(&ActionKind::Warning)[0].action.detail["stderr_tail"], "why\n");
}

#[tokio::test]
async fn the_answer_comes_at_the_end_of_the_turn_and_the_session_is_held_until_codex_is_gone() {
    let lingering = opened([exec::message("Hello."), exec::turn_completed(), Step::gate("linger")]);
    let lab = Lab::new(Script::nth([lingering, exec::hello("again")]));
    let runner = lab.exec();
    let first = run(&runner, lab.request("hi")).await;
    assert_eq!(first.ok().answer, "Hello.");
    let codex = lab.control.started(0).await.pid;
    assert_eq!(lab.control.alive(), [codex], "the answer did not wait for the process");
    let at_once = lab.request("hi").resume(first.session()).wait(Duration::ZERO);
    run(&runner, at_once).await.failed("session_busy");
    let mut waiting = runner.run(lab.request("hi").resume(first.session()));
    let seen = until(
        &mut waiting,
        "the note about waiting",
        |event| matches!(event, TakopiEvent::Action(event) if event.action.id == takopi_core::runner::WAIT_ACTION),
    )
    .await;
    assert_eq!(lab.control.starts().len(), 1, "nothing was started meanwhile");
    lab.control.open("linger");
    assert_eq!(finish(waiting, seen).await.ok().answer, "again");
    lab.assert_nothing_left().await;
}

#[tokio::test]
async fn a_codex_that_lingers_for_ever_is_ended() {
    let lab =
        Lab::new(opened([exec::message("Hello."), exec::turn_completed(), Step::SleepForever]));
    let runner = lab.exec();
    assert_eq!(run(&runner, lab.request("hi")).await.ok().answer, "Hello.");
    runner.shutdown().await;
    lab.assert_nothing_left().await;
}

#[tokio::test]
async fn a_dropped_stream_ends_codex_before_the_session_can_be_had_again() {
    let hanging = opened([Step::reached("ready"), Step::SleepForever]);
    let lab = Lab::new(Script::nth([hanging, exec::hello("again")]));
    let runner = lab.exec();
    let mut stream = runner.run(lab.request("hi"));
    let seen = until(&mut stream, "Started", is_started).await;
    let Some(TakopiEvent::Started(started)) = seen.last() else { panic!() };
    let session = started.resume.clone();
    let first = lab.control.reached("ready").await;
    drop(stream);
    let seen = run(&runner, lab.request("hi").resume(session)).await;
    assert_eq!(seen.ok().answer, "again");
    assert!(!lab.control.alive().contains(&first.pid), "the first was gone before");
    lab.assert_nothing_left().await;
}

#[tokio::test]
async fn runs_dropped_while_waiting_or_before_they_were_polled_start_nothing() {
    let hanging = opened([Step::reached("ready"), Step::gate("go"), exec::turn_completed()]);
    let lab = Lab::new(hanging);
    let runner = lab.exec();
    let first = runner.run(lab.request("hi").resume(session()));
    lab.control.reached("ready").await;
    for _ in 0..50 {
        drop(runner.run(lab.request("hi").resume(session())));
    }
    let last = runner.run(lab.request("hi").resume(session()));
    lab.control.open("go");
    finish(first, Vec::new()).await.ok();
    finish(last, Vec::new()).await.ok();
    assert_eq!(lab.control.starts().len(), 2);
    lab.assert_nothing_left().await;
}

#[tokio::test]
async fn silence_after_turn_started_is_ended_by_the_idle_limit_which_is_named() {
    with_enough_time(async |limit| {
        let lab = Lab::new(opened([exec::message("so far"), Step::SleepForever]));
        let seen = run(&lab.exec(), lab.request("hi").idle_timeout(limit)).await;
        let end = seen.failed("timeout_idle");
        let error = end.error.as_deref().unwrap();
        assert!(error.contains("idle") && error.contains(&format!("{limit:?}")), "{error}");
        assert_eq!(lab.home.processes(), []);
        lab.assert_nothing_left().await;
        end.answer == "so far"
    })
    .await;
}

#[tokio::test]
async fn notices_and_lines_that_are_not_json_do_not_keep_a_hung_turn_alive() {
    with_enough_time(async |limit| {
        // For four times as long as the limit.
        let count = u32::try_from(limit.as_millis() / 25).unwrap();
        let notices = (0..count).flat_map(|n| {
            [
                Step::line("not JSON"),
                Step::line(r#"{"type":"account.rate_limits","used":7}"#),
                Step::line("7"),
                exec::reconnecting(n % 5 + 1, 5, None),
                Step::Pause { millis: 100 },
            ]
        });
        let late = [exec::message("too late"), exec::turn_completed()];
        let lab = Lab::new(opened(notices.chain(late)));
        let seen = run(&lab.exec(), lab.request("hi").idle_timeout(limit)).await;
        lab.assert_nothing_left().await;
        seen.failed("timeout_idle");
        // Else the limit was reached before the engine had printed anything.
        seen.actions(&ActionKind::Note).len() > 1
    })
    .await;
}

/// Whether a run reached its idle limit with no command running: the machine was too slow for the limit.
fn was_slow(seen: &Seen) -> bool {
    let command = seen.actions(&ActionKind::Command).last().map(|event| event.phase);
    seen.completed().reason == Some(Reason::TimeoutIdle) && command != Some(Phase::Started)
}

#[tokio::test]
async fn a_running_command_is_not_idle() {
    with_enough_time(async |limit| {
        let pause = u64::try_from(limit.as_millis()).unwrap() * 3 / 2;
        let lab = Lab::new(opened([
            exec::command_started("item_0", "cargo build"),
            Step::Pause { millis: pause },
            exec::command_completed("item_0", "cargo build", "", 0),
            exec::message("built"),
            exec::turn_completed(),
        ]));
        let seen = run(&lab.exec(), lab.request("hi").idle_timeout(limit)).await;
        if was_slow(&seen) {
            return false;
        }
        assert_eq!(seen.ok().answer, "built");
        true
    })
    .await;
}

#[tokio::test]
async fn a_running_command_is_ended_by_the_wall_limit() {
    with_enough_time(async |limit| {
        let lab = Lab::new(opened([exec::command_started("item_0", "sleep"), Step::SleepForever]));
        let wall = limit * 3 / 2;
        let request = lab.request("hi").idle_timeout(limit).wall_timeout(wall);
        let seen = run(&lab.exec(), request).await;
        lab.assert_nothing_left().await;
        if was_slow(&seen) {
            return false;
        }
        let error = seen.failed("timeout_wall").error.clone().unwrap();
        assert!(error.contains(&format!("{wall:?}")), "{error}");
        true
    })
    .await;
}

#[tokio::test]
async fn a_codex_that_closes_its_output_and_stays_is_ended() {
    let lab = Lab::new(opened([Step::CloseStdout, Step::SleepForever]));
    let seen = run(&lab.exec(), lab.request("hi")).await;
    seen.failed("protocol");
    lab.assert_nothing_left().await;
}

#[tokio::test]
async fn a_consumer_that_does_not_read_stalls_no_other_run_and_loses_nothing() {
    const LINES: usize = 20_000;
    with_enough_time(async |limit| {
        let lab = Lab::new(Script::nth([
            opened([exec::flood(LINES), exec::message("done"), exec::turn_completed()]),
            exec::hello("other"),
        ]));
        let runner = lab.exec();
        let mut stalled = runner.run(lab.request("hi").idle_timeout(limit));
        let first = stalled.next().await;
        let other = run(&runner, lab.request("hi")).await;
        assert_eq!(other.ok().answer, "other");
        // The run is not idle while its consumer does not read, however long that is.
        tokio::time::sleep(limit * 3 / 2).await;
        let seen = finish(stalled, first.into_iter().collect()).await;
        if was_slow(&seen) {
            return false;
        }
        assert_eq!(seen.ok().answer, "done");
        let ids: Vec<u64> = seen
            .actions(&ActionKind::Note)
            .iter()
            .map(|note| note.action.id.trim_start_matches("item_").parse().unwrap())
            .collect();
        assert_eq!(ids.len(), LINES);
        assert!(ids.is_sorted());
        true
    })
    .await;
}

#[tokio::test]
async fn fifty_runs_at_once_each_have_their_own_session() {
    let script =
        [Step::ReadStdin, exec::thread_started(), Step::gate("go"), exec::message("$PROMPT")];
    let lab = Lab::new(Script::exec(script.into_iter().chain([exec::turn_completed()])));
    let runner = lab.exec();
    let runs = (0..50).map(|n| run(&runner, lab.request(&format!("prompt {n}"))));
    let director = async {
        lab.control.started(49).await;
        lab.control.open("go");
    };
    let (runs, ()) = futures::future::join(futures::future::join_all(runs), director).await;
    let mut sessions: Vec<_> = runs.iter().map(|seen| seen.session().value).collect();
    for (n, seen) in runs.iter().enumerate() {
        assert_eq!(seen.ok().answer, format!("prompt {n}"));
    }
    sessions.sort();
    sessions.dedup();
    assert_eq!(sessions.len(), 50);
    lab.assert_nothing_left().await;
}
