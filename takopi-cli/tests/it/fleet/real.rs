//! The real codex behind a worker, and the page of the fleet in a real browser.

use std::process::Stdio;

use nix::sys::signal::Signal;
use takopi_tests::browser::page_or_skip;
use takopi_tests::codex::home::TestHome;
use takopi_tests::model::{Answer, Gate};
use tokio::process::Command;

use super::lab::FleetLab;
use crate::real::lab::{Lab, Running};
use crate::web::server::Server;

/// A queue; on a thread of its own, because it waits for what it starts.
async fn fleet() -> Option<FleetLab> {
    tokio::task::spawn_blocking(FleetLab::new).await.unwrap()
}

fn takopi(lab: &Lab, fleet: &FleetLab, args: &[&str]) -> Command {
    let mut command = lab.takopi(args);
    command.env("TAKOPI_FLEET", &fleet.url);
    command
}

/// Another machine: a home of its own, and the same model.
fn elsewhere(lab: &Lab, home: &TestHome, fleet: &FleetLab, args: &[&str]) -> Command {
    let mut command = home.command(env!("CARGO_BIN_EXE_takopi"));
    command.args(args).env("TAKOPI_CODEX_BIN", &lab.codex.path).env("TAKOPI_FLEET", &fleet.url);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true);
    command
}

async fn worker(lab: &Lab, fleet: &FleetLab, args: &[&str]) -> Running {
    let mut worker = Running::new(takopi(lab, fleet, &["worker", "--name", "alpha"]).args(args));
    worker.wait_for("  engines  ").await;
    worker
}

#[tokio::test]
async fn a_real_codex_answers_behind_a_worker_and_remembers() {
    let (Some(lab), Some(fleet)) = (Lab::new(), fleet().await) else { return };
    lab.model.when("say hi", [Answer::new().exec("echo hi"), Answer::text("It says hi.")]);
    lab.model.when("once more", "hi again\n");
    let worker = worker(&lab, &fleet, &["--engine", "codex"]).await;
    let run = async |args: &[&str]| Running::new(&mut takopi(&lab, &fleet, args)).end().await;
    let first = run(&["run", "--fleet", "say hi"]).await;
    assert_eq!((first.code, first.stdout.as_str()), (Some(0), "It says hi.\n"), "{}", first.stderr);
    assert!(first.stderr.contains("✓ echo hi"), "{}", first.stderr);
    let again = run(&["run", "--fleet", "--resume", first.resume_line(), "once more"]).await;
    assert_eq!((again.code, again.stdout.as_str()), (Some(0), "hi again\n"), "{}", again.stderr);
    assert_eq!(lab.model.requests_about("once more")[0].assistant_texts(), ["It says hi."]);
    worker.signal(Signal::SIGTERM);
    assert_eq!(worker.end().await.code, Some(0));
    lab.home.assert_no_processes().await;
}

#[tokio::test]
async fn a_worker_that_is_killed_in_a_turn_is_followed_by_the_next_and_leaves_no_codex() {
    let (Some(lab), Some(fleet)) = (Lab::new(), fleet().await) else { return };
    let gate = Gate::new();
    lab.model.when("wait", [Answer::new().wait_for(&gate).message("late"), Answer::text("done")]);
    let first = worker(&lab, &fleet, &["--engine", "codex"]).await;
    let run = Running::new(&mut takopi(&lab, &fleet, &["run", "--fleet", "wait"]));
    lab.model.wait_for_requests(1).await;
    first.signal(Signal::SIGKILL);
    first.end().await;
    let next = worker(&lab, &fleet, &["--engine", "codex"]).await;
    let ran = run.end().await;
    assert_eq!((ran.code, ran.stdout.as_str()), (Some(0), "done\n"), "{}", ran.stderr);
    assert!(ran.stderr.contains("was lost; another one runs this again"), "{}", ran.stderr);
    next.signal(Signal::SIGTERM);
    assert_eq!(next.end().await.code, Some(0));
    lab.home.assert_no_processes().await;
}

#[tokio::test]
async fn a_session_goes_on_on_another_machine_also_one_that_was_imported() {
    let (Some(lab), Some(fleet)) = (Lab::new(), fleet().await) else { return };
    let home = TestHome::new(&lab.model);
    for word in ["one", "two", "three", "four"] {
        lab.model.when(word, Answer::text(word.to_uppercase()));
    }
    let run = async |args: &[&str]| Running::new(&mut takopi(&lab, &fleet, args)).end().await;
    let first = worker(&lab, &fleet, &["--engine", "codex"]).await;
    let began = run(&["run", "--fleet", "one"]).await;
    assert_eq!(began.code, Some(0), "{}", began.stderr);
    let own = lab.run(&["run", "three"]).await;
    assert_eq!(own.code, Some(0), "{}", own.stderr);
    let id = own.resume_line().rsplit(' ').next().unwrap();
    let imported = run(&["fleet", "import", &id[..18]]).await;
    assert_eq!(imported.code, Some(0), "{}", imported.stderr);
    assert!(imported.stderr.contains("is in the fleet, with 1 files"), "{}", imported.stderr);
    assert_eq!(run(&["fleet", "import", id]).await.code, Some(1), "it is there already");
    first.signal(Signal::SIGTERM);
    assert_eq!(first.end().await.code, Some(0));

    let args = ["worker", "--name", "beta", "--engine", "codex"];
    let mut second = Running::new(&mut elsewhere(&lab, &home, &fleet, &args));
    second.wait_for("  engines  ").await;
    let again = run(&["run", "--fleet", "--resume", began.resume_line(), "two"]).await;
    assert_eq!((again.code, again.stdout.as_str()), (Some(0), "TWO\n"), "{}", again.stderr);
    assert_eq!(lab.model.requests_about("two")[0].assistant_texts(), ["ONE"]);
    let again = run(&["run", "--fleet", "--resume", own.resume_line(), "four"]).await;
    assert_eq!((again.code, again.stdout.as_str()), (Some(0), "FOUR\n"), "{}", again.stderr);
    assert_eq!(lab.model.requests_about("four")[0].assistant_texts(), ["THREE"]);
    second.signal(Signal::SIGTERM);
    assert_eq!(second.end().await.code, Some(0));
    home.assert_no_processes().await;
}

#[tokio::test]
async fn the_page_of_the_fleet_follows_it_in_a_browser() {
    let (Some(lab), Some(fleet)) = (Lab::new(), fleet().await) else { return };
    let Some(mut page) = page_or_skip().await else { return };
    let args = ["serve", "--engine", "demo", "--listen", "127.0.0.1:0", "--fleet"];
    let server = Server::of(Running::new(&mut takopi(&lab, &fleet, &args))).await;
    page.open(&format!("{}fleet", server.address)).await;
    page.wait_for("document.querySelector('#figures').innerText.startsWith('0 workers')").await;
    let worker = worker(&lab, &fleet, &["--engine", "demo", "--slots", "3"]).await;
    page.wait_for("document.querySelector('#workers').innerText.includes('alpha')").await;
    page.wait_for("document.querySelector('#workers').innerText.includes('0/3')").await;
    page.wait_for("document.querySelectorAll('#graph rect').length === 30").await;
    worker.signal(Signal::SIGTERM);
    worker.end().await;
    page.wait_for("document.querySelector('#workers .left')").await;
    assert_eq!(server.stop().await.code, Some(0));
}
