//! Processes that a fake leaves behind.

use std::fs;
use std::os::fd::AsRawFd;

use nix::sys::signal::{Signal as Posix, killpg};
use nix::unistd::{Pid, getpgid, getsid};
use takopi_tests::codex::fake::{Control, Grandchild, Place, Script, Signal, Step, exec};

use super::{Live, command, kill};

const EXEC: [&str; 3] = ["exec", "--json", "-"];

fn pid(number: u32) -> Pid {
    Pid::from_raw(number.try_into().unwrap())
}

/// A field of `/proc/PID/status`.
fn status(process: u32, field: &str) -> String {
    let status = fs::read_to_string(format!("/proc/{process}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(':'));
    line.unwrap().trim().to_owned()
}

fn sleeping_with(child: Grandchild) -> Script {
    Script::exec([child.spawn(), Step::reached("spawned"), Step::SleepForever])
}

#[tokio::test]
async fn one_in_the_same_group_dies_with_the_group() {
    let control = Control::new();
    let script = sleeping_with(Grandchild::new("child"));
    let mut command = command(control.env(&script), &EXEC);
    let running = command.process_group(0).spawn().unwrap();
    let fake = running.id().unwrap();
    let child = control.reached("child").await.pid;
    control.reached("spawned").await;
    assert_ne!(child, fake);
    assert_eq!(status(child, "PPid"), fake.to_string());
    assert_eq!(getpgid(Some(pid(child))).unwrap(), pid(fake));
    killpg(pid(fake), Posix::SIGTERM).unwrap();
    control.gone(fake).await;
    control.gone(child).await;
}

#[tokio::test]
async fn one_with_its_own_group_or_session_survives_the_group() {
    for place in [Place::OwnGroup, Place::OwnSession, Place::Detached] {
        let control = Control::new();
        let script = sleeping_with(Grandchild::new("child").at(place));
        let mut command = command(control.env(&script), &EXEC);
        let running = command.process_group(0).spawn().unwrap();
        let fake = running.id().unwrap();
        let child = control.reached("child").await.pid;
        control.reached("spawned").await;
        assert_eq!(getpgid(Some(pid(child))).unwrap(), pid(child), "{place:?}");
        let leads_session = getsid(Some(pid(child))).unwrap() == pid(child);
        assert_eq!(leads_session, place != Place::OwnGroup, "{place:?}");
        let is_child = status(child, "PPid") == fake.to_string();
        assert_eq!(is_child, place != Place::Detached, "{place:?}");
        killpg(pid(fake), Posix::SIGKILL).unwrap();
        control.gone(fake).await;
        assert_eq!(control.alive(), [child], "{place:?}");
        kill(child, Posix::SIGTERM);
        control.gone(child).await;
    }
}

#[tokio::test]
async fn one_can_hold_stdout_open() {
    let control = Control::new();
    let holder = Grandchild::new("holder").holding_stdout().holding_stderr();
    let script = Script::exec([holder.spawn(), Grandchild::new("other").spawn()]);
    let mut live = Live::start(&control, &script, &EXEC);
    let holder = control.reached("holder").await.pid;
    let other = control.reached("other").await.pid;
    assert!(live.child.wait().await.unwrap().success());
    let pipe = |path: String| fs::read_link(path).unwrap();
    let ours = live.lines.get_ref().get_ref().as_raw_fd();
    let ours = pipe(format!("/proc/self/fd/{ours}"));
    assert_eq!(pipe(format!("/proc/{holder}/fd/1")), ours);
    assert_eq!(pipe(format!("/proc/{other}/fd/1")), std::path::Path::new("/dev/null"));
    assert_ne!(pipe(format!("/proc/{holder}/fd/2")), std::path::Path::new("/dev/null"));
    kill(holder, Posix::SIGKILL);
    assert!(live.next().await.is_null());
}

#[tokio::test]
async fn one_keeps_or_clears_its_environment() {
    let control = Control::new();
    let script = Script::exec([
        Grandchild::new("keeps").spawn(),
        Grandchild::new("clears").at(Place::Detached).clearing_env().spawn(),
        Step::SleepForever,
    ]);
    let mut command = command(control.env(&script), &EXEC);
    let _fake = command.env("MARKER", "run-1").spawn().unwrap();
    let environ = |process: u32| fs::read_to_string(format!("/proc/{process}/environ")).unwrap();
    let keeps = control.reached("keeps").await.pid;
    assert!(environ(keeps).contains("MARKER=run-1"));
    let clears = control.reached("clears").await.pid;
    assert_eq!(environ(clears), "");
}

#[tokio::test]
async fn one_can_ignore_signals() {
    let control = Control::new();
    let child = Grandchild::new("child").ignoring([Signal::Term, Signal::Int]);
    let script = Script::exec([Step::ignore([Signal::Hup]), child.spawn(), Step::SleepForever]);
    let live = Live::start(&control, &script, &EXEC);
    let child = control.reached("child").await.pid;
    let ignored = u64::from_str_radix(&status(child, "SigIgn"), 16).unwrap();
    let bit = |signal: Posix| 1 << (signal as i32 - 1);
    let wanted = bit(Posix::SIGTERM) | bit(Posix::SIGINT);
    assert_eq!(ignored & wanted, wanted);
    assert_eq!(ignored & bit(Posix::SIGHUP), 0, "nothing is inherited");
    kill(child, Posix::SIGTERM);
    kill(child, Posix::SIGKILL);
    control.gone(child).await;
    live.signal(Posix::SIGKILL);
    control.all_gone().await;
}

#[tokio::test]
async fn a_fake_can_end_them_itself() {
    let control = Control::new();
    let cleans_up = [Step::KillSpawned, exec::turn_failed("interrupted"), Step::Exit(1)];
    let script = Script::exec([
        Step::on_signal(Signal::Int, cleans_up),
        Grandchild::new("child").at(Place::OwnSession).spawn(),
        Step::reached("spawned"),
        Step::SleepForever,
    ]);
    let live = Live::start(&control, &script, &EXEC);
    control.reached("spawned").await;
    live.signal(Posix::SIGINT);
    let ended = live.end().await;
    assert_eq!((ended.code(), ended.lines().len()), (Some(1), 1));
    control.all_gone().await;
}

#[tokio::test]
async fn dropping_the_control_ends_them() {
    let control = Control::new();
    let child = Grandchild::new("child").at(Place::Detached).ignoring([Signal::Term]);
    let script = Script::exec([child.holding_stdout().spawn()]);
    let live = Live::start(&control, &script, &EXEC);
    control.reached("child").await;
    drop(control);
    // The output ends when no process holds it any more.
    assert_eq!(live.end().await.stdout, b"");
}
