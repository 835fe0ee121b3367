//! takopi is stopped, or killed, in the middle of a command of the agent.

use nix::sys::signal::Signal;
use takopi_tests::model::chat::Answer;

use super::lab::{Lab, resume_line, session};

const RUN: [&str; 4] = ["run", "--permission-mode", "bypassPermissions", "work"];

/// A model whose agent starts all that can be left behind.
fn script(lab: &Lab) {
    let tree = "sleep 6210 & setsid sleep 6211 & (setsid sleep 6212 >/dev/null 2>&1 &); sleep 6213";
    lab.model.when("work", Answer::new().bash(tree));
    lab.model.when("go on", "going on");
}

async fn until_all_run(lab: &Lab) {
    for number in 6210..=6213 {
        lab.home.wait_for_command(&format!("sleep {number}")).await;
    }
}

#[tokio::test]
async fn a_signal_ends_the_run_with_its_code_and_the_resume_line_and_nothing_is_left() {
    let Some(lab) = Lab::new() else { return };
    script(&lab);
    let mut running = lab.start(&RUN);
    running.wait_for("▸ sleep 6210").await;
    until_all_run(&lab).await;
    running.signal(Signal::SIGINT);
    let ran = running.end().await;
    assert_eq!(lab.home.processes(), [], "nothing is left when takopi exits");
    assert_eq!((ran.code, ran.stdout.as_str()), (Some(130), ""), "{}", ran.stderr);
    let again = lab.run(&["run", "--resume", resume_line(&ran), "-q", "go on"]).await;
    assert_eq!((again.code, again.stdout.as_str()), (Some(0), "going on\n"), "{again:?}");
}

/// The end of its input makes pi end its commands. What detached itself is found by the next takopi.
#[tokio::test]
#[cfg(target_os = "linux")]
async fn when_takopi_is_killed_nothing_is_left_and_the_session_goes_on() {
    let Some(lab) = Lab::new() else { return };
    script(&lab);
    lab.model.when("begin", "begun");
    let begun = lab.run(&["run", "begin"]).await;
    let id = session(&begun);
    let mut running = lab.start(&[&["run", "--resume", id][..], &RUN[1..]].concat());
    running.wait_for("▸ sleep 6210").await;
    until_all_run(&lab).await;
    running.signal(Signal::SIGKILL);
    assert_eq!(running.end().await.code, None);
    // It calls itself `pi`.
    let attached = |command: &str| command.contains("sleep 6213") || command.trim() == "pi";
    let gone = || !lab.home.processes().iter().any(|process| attached(&process.command));
    lab.home.wait_until(gone, "pi to end at the end of its input").await;
    let again = lab.run(&["run", "--resume", id, "-q", "go on"]).await;
    assert_eq!((again.code, again.stdout.as_str()), (Some(0), "going on\n"), "{again:?}");
    lab.home.assert_no_processes().await;
    let history = lab.model.requests_about("go on")[0].user_texts();
    assert_eq!(history, ["begin", "work", "go on"]);
}
