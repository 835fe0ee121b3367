//! The test's side: gates, reports, and what becomes of fakes whose test is gone.

use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use takopi_tests::codex::fake::{self, Control, Script, Signal, Step, exec};

use super::{Live, run_exec};

const EXEC: [&str; 3] = ["exec", "--json", "-"];

#[tokio::test]
async fn a_gate_holds_until_it_is_opened() {
    let control = Control::new();
    let script = Script::exec([
        Step::reached("before"),
        Step::gate("go"),
        Step::reached("behind"),
        exec::turn_started(),
    ]);
    let live = Live::start(&control, &script, &EXEC);
    let before = control.reached("before").await;
    assert_eq!((before.pid, before.start), (live.child.id().unwrap(), 0));
    assert!(control.marks("behind").is_empty());
    control.open("another");
    control.open("go");
    let ended = live.end().await;
    assert_eq!(ended.lines().len(), 1);
    assert_eq!(control.marks("behind").len(), 1);
}

#[tokio::test]
async fn a_gate_that_is_open_already_lets_everybody_pass() {
    let control = Control::new();
    control.open("go");
    let script = Script::exec([Step::gate("go"), Step::gate("go"), exec::turn_started()]);
    assert_eq!(run_exec(&control, &script, "").await.lines().len(), 1);
    assert_eq!(run_exec(&control, &script, "").await.lines().len(), 1);
}

#[tokio::test]
async fn gates_and_points_are_separate_for_each_prompt() {
    let control = Control::new();
    let script = Script::exec([
        Step::ReadStdin,
        Step::reached("read $PROMPT"),
        Step::gate("go $PROMPT"),
        exec::message("$PROMPT"),
    ]);
    let one = async {
        let ended = run_exec(&control, &script, "one").await;
        control.open("go two");
        ended
    };
    let two = run_exec(&control, &script, "two");
    let open = async {
        control.reached("read one").await;
        control.reached("read two").await;
        control.open("go one");
    };
    let (one, two, ()) = tokio::join!(one, two, open);
    assert_eq!(one.lines()[0]["item"]["text"], "one");
    assert_eq!(two.lines()[0]["item"]["text"], "two");
}

#[tokio::test]
async fn a_process_that_is_killed_in_a_gate_is_known_to_be_gone() {
    let control = Control::new();
    let script = Script::exec([Step::reached("waiting"), Step::gate("never")]);
    let mut live = Live::start(&control, &script, &EXEC);
    let mark = control.reached("waiting").await;
    assert_eq!(control.alive(), [mark.pid]);
    live.child.start_kill().unwrap();
    control.gone(mark.pid).await;
    control.all_gone().await;
    assert!(control.alive().is_empty());
    assert_eq!(control.pids(), [mark.pid]);
}

#[tokio::test]
async fn dropping_the_control_ends_fakes_that_wait_or_sleep() {
    let control = Control::new();
    let stubborn = Step::ignore([Signal::Int, Signal::Term, Signal::Hup]);
    let ready = Step::reached("ready");
    let sleeps = Script::exec([stubborn.clone(), ready.clone(), Step::SleepForever]);
    let waits = Script::exec([stubborn, ready, Step::gate("never")]);
    let sleeper = Live::start(&control, &sleeps, &EXEC);
    let waiter = Live::start(&control, &waits, &EXEC);
    control.nth_reached("ready", 1).await;
    drop(control);
    assert_eq!(sleeper.end().await.code(), Some(fake::OVERSLEPT));
    assert_eq!(waiter.end().await.code(), Some(fake::OVERSLEPT));
}

#[tokio::test]
async fn a_long_script_travels_in_a_file() {
    let control = Control::new();
    let text = "x".repeat(300 * 1024);
    let script = Script::exec([exec::message(&text)]);
    assert_eq!(control.env(&script)[0].0, fake::SCRIPT_FILE);
    let ended = run_exec(&control, &script, "").await;
    assert_eq!(ended.lines()[0]["item"]["text"], text);
}

#[tokio::test(start_paused = true)]
async fn waiting_holds_a_paused_clock() {
    let control = Control::new();
    let script = Script::exec([Step::reached("here"), Step::gate("go")]);
    let before = tokio::time::Instant::now();
    let live = Live::start(&control, &script, &EXEC);
    let waited = tokio::time::timeout(Duration::from_hours(1), control.reached("here")).await;
    assert!(waited.is_ok());
    assert_eq!(before.elapsed(), Duration::ZERO);
    control.open("go");
    assert_eq!(live.end().await.code(), Some(0));
}

#[tokio::test]
async fn a_wait_that_is_dropped_holds_nothing_up() {
    let control = Control::new();
    let mut waiting = Box::pin(control.reached("nowhere"));
    assert!(futures::poll!(&mut waiting).is_pending());
    // The runtime ends with the test, and would wait for a waiter that did not give up.
    drop(waiting);
}

#[test]
fn it_works_without_a_runtime() {
    let control = Control::new();
    let script = Script::exec([Step::gate("go"), Step::reached("there"), Step::gate("end")]);
    let mut child = std::process::Command::new(fake::binary())
        .args(EXEC)
        .envs(control.env(&script))
        .spawn()
        .unwrap();
    control.open("go");
    assert_eq!(block_on(control.reached("there")).pid, child.id());
    control.open("end");
    assert!(child.wait().unwrap().success());
    block_on(control.all_gone());
}

/// The smallest executor there is.
fn block_on<T>(future: impl Future<Output = T>) -> T {
    struct Unpark(std::thread::Thread);
    impl Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }
    let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
    let mut future = pin!(future);
    loop {
        match future.as_mut().poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(output) => return output,
            Poll::Pending => std::thread::park(),
        }
    }
}
