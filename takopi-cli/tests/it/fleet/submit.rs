//! Runs on workers: one prompt, a batch, waiting, cancelling, and workers that come and go.

use nix::sys::signal::Signal;

use super::lab::FleetLab;
use crate::cli::lab::Running;

#[test]
fn a_prompt_runs_on_a_worker_which_shows_it_and_drains_on_sigterm() {
    let Some(fleet) = FleetLab::new() else { return };
    let mut worker = fleet.worker("alpha", &["--slots", "2", "--label", "gpu"]);
    let ran = fleet.run(&["run", "--fleet", "--on", "gpu", "--engine", "demo", "hello"]);
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    assert!(ran.stdout.contains("hello"), "{}", ran.stdout);
    let job = fleet.jobs().remove(0);
    let (id, session) = (job["id"].as_str().unwrap(), job["session"].as_str().unwrap());
    worker.wait_for(&format!("✓ demo {id}"));
    let line = format!("takopi run --fleet --engine demo --resume {session}");
    assert!(ran.stderr.contains(&line), "{}", ran.stderr);
    for resume in [&["--resume", session][..], &["--resume", &line], &["--last"]] {
        let args = [&["run", "--fleet", "--engine", "demo"], resume, &["more"]].concat();
        let again = fleet.run(&args);
        assert_eq!(again.code, Some(0), "{}", again.stderr);
        assert!(again.stderr.contains(session), "{}", again.stderr);
    }
    worker.signal(Signal::SIGTERM);
    let ended = worker.end();
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    assert!(ended.stderr.contains(&format!("▸ demo {id}")), "{}", ended.stderr);
    assert!(
        ended.stderr.contains("draining") && ended.stderr.contains("stopped"),
        "{}",
        ended.stderr
    );
    let status = fleet.run(&["fleet", "status"]);
    assert!(
        status.stdout.contains("– alpha") && status.stdout.contains("left"),
        "{}",
        status.stdout
    );
}

#[test]
fn a_run_says_what_no_worker_offers() {
    let Some(fleet) = FleetLab::new() else { return };
    let _worker = fleet.worker("alpha", &[]);
    let args = ["run", "--fleet", "--on", "gpu", "--engine", "demo", "--wait", "0", "hello"];
    let ran = fleet.run(&args);
    assert_eq!(ran.code, Some(1), "{}", ran.stderr);
    assert!(ran.stderr.contains("no worker offers label:gpu"), "{}", ran.stderr);
}

#[test]
fn the_directory_here_stands_for_a_place_of_the_workers() {
    let Some(fleet) = FleetLab::new() else { return };
    let there = fleet.lab.path("there");
    std::fs::create_dir(&there).unwrap();
    let place = format!("app={}", there.display());
    let _worker = fleet.worker("alpha", &["--place", &place]);
    let ran = fleet.run(&["run", "--fleet", "--place", "app", "--engine", "demo", "hello"]);
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    let config = format!("[fleet.places]\napp = '{}'\n", fleet.lab.path("work").display());
    fleet.lab.write("home/.config/takopi/config.toml", &config);
    let ran = fleet.run(&["run", "--fleet", "--cd", ".", "--engine", "demo", "hello"]);
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    let needs: Vec<_> = fleet.jobs().iter().map(|job| job["ok"].clone()).collect();
    assert_eq!(needs, [true, true]);
}

#[test]
fn the_repository_here_is_a_place_at_the_commit_that_was_pushed() {
    let Some(fleet) = FleetLab::new() else { return };
    let work = fleet.lab.path("work");
    let git = |args: &[&str]| {
        let mut git = std::process::Command::new("git");
        git.arg("-C").arg(&work).args(["-c", "user.name=T", "-c", "user.email=t@example.org"]);
        assert!(git.args(args).status().unwrap().success(), "{args:?}");
    };
    git(&["init", "--quiet", "-b", "main"]);
    std::fs::create_dir(work.join("src")).unwrap();
    std::fs::write(work.join("src/file"), "").unwrap();
    git(&["add", "."]);
    git(&["commit", "--quiet", "-m", "first"]);
    let args = ["run", "--fleet", "--place", "git", "--cd", "src", "--engine", "demo", "hello"];
    let refused = fleet.run(&args);
    assert_eq!(refused.code, Some(2), "{}", refused.stderr);
    assert!(refused.stderr.contains("--place git: the repository "), "{}", refused.stderr);
    git(&["init", "--quiet", "--bare", "../shared.git"]);
    git(&["remote", "add", "origin", "../shared.git"]);
    git(&["push", "--quiet", "origin", "main"]);
    let _worker = fleet.worker("alpha", &["--git", "file"]);
    let ran = fleet.run(&args);
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    let trees = fleet.lab.path("state/fleet/worker-alpha/git/trees");
    let tree = std::fs::read_dir(trees).unwrap().map(|it| it.unwrap().path());
    assert!(tree.into_iter().any(|tree| tree.join("src/file").is_file()));
}

#[test]
fn the_workers_configuration_is_the_ceiling_of_what_a_job_may_ask() {
    let Some(fleet) = FleetLab::new() else { return };
    let args = ["run", "--fleet", "--engine", "demo", "-c", "pace=0", "hello"];
    let worker = fleet.worker("alpha", &[]);
    let refused = fleet.run(&args);
    assert_eq!(refused.code, Some(2), "{}", refused.stderr);
    let said = "the worker does not allow the option \"pace\"";
    assert!(refused.stderr.contains(said), "{}", refused.stderr);
    drop(worker);
    let config = "[fleet.allow]\noptions = ['pace']\nscratch = false\n";
    fleet.lab.write("home/.config/takopi/config.toml", config);
    let _worker = fleet.worker("beta", &[]);
    let nowhere = fleet.run(&args);
    assert_eq!(nowhere.code, Some(2), "{}", nowhere.stderr);
    assert!(nowhere.stderr.contains("runs without a place"), "{}", nowhere.stderr);
}

#[test]
fn a_batch_that_was_killed_finds_its_run_again() {
    // On a busy machine the shorter run may be over before the batch is killed.
    for pace in ["pace=300ms", "pace=3s"] {
        let Some(fleet) = FleetLab::new() else { return };
        if found_again(&fleet, pace) {
            return;
        }
    }
    panic!("the run was over too early");
}

/// Whether the run went on after its batch was killed, and was found.
fn found_again(fleet: &FleetLab, pace: &str) -> bool {
    let input = fleet.lab.write("in.jsonl", "{\"id\":\"one\",\"prompt\":\"hello\"}\n");
    let out = fleet.lab.path("out.jsonl");
    let args = [
        "batch",
        input.to_str().unwrap(),
        "--fleet",
        "--engine",
        "demo",
        "--out",
        out.to_str().unwrap(),
    ];
    let _worker = fleet.worker("alpha", &["-c", pace]);
    let batch = Running::start(fleet.takopi(&args));
    let job = fleet.wait_for_job(&["running", "done"]);
    batch.signal(Signal::SIGKILL);
    batch.end();
    if fleet.jobs()[0]["state"] != "running" {
        return false;
    }
    let again = fleet.run(&args);
    assert_eq!(again.code, Some(0), "{}", again.stderr);
    let jobs = fleet.jobs();
    assert_eq!(
        (jobs.len(), jobs[0]["id"].as_str(), jobs[0]["attempts"].as_u64()),
        (1, Some(&*job), Some(1))
    );
    assert!(job.ends_with("/one/1"), "{job}");
    let results = std::fs::read_to_string(out).unwrap();
    assert!(results.contains("\"ok\":true"), "{results}");
    true
}

#[test]
fn a_worker_that_was_killed_is_followed_at_once_by_one_of_its_name() {
    let Some(fleet) = FleetLab::new() else { return };
    let first = fleet.worker("alpha", &["--lease", "10m", "-c", "pace=1h"]);
    let second = fleet.run(&["worker", "--engine", "demo", "--name", "alpha"]);
    assert_eq!(second.code, Some(1), "{}", second.stderr);
    assert!(
        second.stderr.contains("a worker named alpha runs on this machine"),
        "{}",
        second.stderr
    );
    let run = Running::start(fleet.takopi(&["run", "--fleet", "--engine", "demo", "hello"]));
    fleet.wait_for_job(&["running"]);
    first.signal(Signal::SIGKILL);
    first.end();
    let begun = std::time::Instant::now();
    let mut next = fleet.worker("alpha", &[]);
    let ran = run.end();
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    assert!(begun.elapsed().as_secs() < 500, "nobody waited for the lease");
    assert!(ran.stderr.contains("was lost; another one runs this again"), "{}", ran.stderr);
    next.wait_for("✓ demo");
    next.signal(Signal::SIGTERM);
    assert!(next.end().stderr.contains("takes over from alpha/"));
}

#[test]
fn the_fleets_database_is_not_in_the_environment_of_an_agent() {
    let Some(fleet) = FleetLab::new() else { return };
    let seen = fleet.lab.path("environment");
    let script = format!(
        "#!/bin/sh\ncase \"$1\" in --version) echo codex-cli 0.166.0;; login) echo ok;; *) env >{}; exit 1;; esac\n",
        seen.display()
    );
    let program = fleet.lab.write_executable("codex.sh", &script);
    let program = program.to_str().unwrap();
    let mut command = fleet.worker_command(&["--engine", "codex", "--codex-bin", program]);
    command.env("PGPASSWORD", "hunter2").env("PGPASSFILE", "/none").env("OTHER", "visible");
    let mut worker = Running::start(command);
    worker.wait_for("engines  codex 0.166.0");
    let ran = fleet.run(&["run", "--fleet", "--engine", "codex", "hello"]);
    assert_eq!(ran.code, Some(1), "{}", ran.stderr);
    let environment = std::fs::read_to_string(seen).unwrap();
    assert!(environment.contains("OTHER=visible"), "{environment}");
    for secret in ["hunter2", "PGPASS", "TAKOPI_FLEET"] {
        assert!(!environment.contains(secret), "{environment}");
    }
}
