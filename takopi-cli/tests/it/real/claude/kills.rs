//! takopi is stopped, or killed, in the middle of a command of the agent.

use nix::sys::signal::Signal;
use takopi_tests::model::messages::Answer;

use super::lab::{Lab, lasting, resume_line, session};

/// A command with children that leave its process group, its session and its parent.
fn tree() -> String {
    format!(
        "{} & setsid {} & (nohup {} >/dev/null 2>&1 &); (setsid {} >/dev/null 2>&1 &); {}",
        lasting(611),
        lasting(612),
        lasting(613),
        lasting(614),
        lasting(615),
    )
}

/// A model whose agent starts all that can be left behind.
fn script(lab: &Lab) {
    let background = Answer::new().bash_in_background(&lasting(616));
    lab.model.when("work", [background, Answer::new().bash(&tree())]);
    lab.model.when("go on", "going on");
}

async fn until_all_run(lab: &Lab) {
    for number in 611..=616 {
        lab.home.wait_for_command(&lasting(number)).await;
    }
}

const RUN: [&str; 4] = ["run", "--permission-mode", "bypassPermissions", "work"];

#[tokio::test]
async fn a_signal_ends_the_run_with_its_code_and_the_resume_line_and_nothing_is_left() {
    for (signal, code) in [(Signal::SIGINT, 130), (Signal::SIGTERM, 143)] {
        let Some(lab) = Lab::new() else { return };
        script(&lab);
        let mut running = lab.start(&RUN);
        running.wait_for("▸ tail -n 611").await;
        until_all_run(&lab).await;
        running.signal(signal);
        let ran = running.end().await;
        assert_eq!(lab.home.processes(), [], "nothing is left when takopi exits");
        assert_eq!((ran.code, ran.stdout.as_str()), (Some(code), ""), "{}", ran.stderr);
        assert!(ran.stderr.contains("✗ Claude Code · interrupted · "), "{}", ran.stderr);
        let again = lab.run(&["run", "--resume", resume_line(&ran), "-q", "go on"]).await;
        assert_eq!((again.code, again.stdout.as_str()), (Some(0), "going on\n"), "{again:?}");
    }
}

/// The kernel interrupts Claude Code, which ends its commands. What none of them knows any more is found by
/// the next takopi.
#[tokio::test]
#[cfg(target_os = "linux")]
async fn when_takopi_is_killed_nothing_is_left_and_the_session_goes_on() {
    let Some(lab) = Lab::new() else { return };
    script(&lab);
    lab.model.when("begin", "begun");
    let begun = lab.run(&["run", "begin"]).await;
    let id = session(&begun);
    let mut running = lab.start(&[&["run", "--resume", id][..], &RUN[1..]].concat());
    running.wait_for("▸ tail -n 611").await;
    until_all_run(&lab).await;
    running.signal(Signal::SIGKILL);
    let began = std::time::Instant::now();
    assert_eq!(running.end().await.code, None);
    let gone = || lab.home.claudes(&lab.claude).is_empty();
    lab.home.wait_until(gone, "the kernel to interrupt Claude Code").await;
    let interrupted = began.elapsed();
    let again = lab.run(&["run", "--resume", id, "-q", "go on"]).await;
    assert_eq!((again.code, again.stdout.as_str()), (Some(0), "going on\n"), "{again:?}");
    lab.home.assert_no_processes().await;
    println!("Claude Code was gone after {interrupted:?}, everything after {:?}", began.elapsed());
    let history = lab.model.requests_about("go on")[0].user_texts();
    assert_eq!(history, ["begin", "work", "go on"]);
}
