//! What shows the fleet while it runs: the terminal, the page, figures for Prometheus.

use std::os::unix::process::CommandExt as _;

use nix::sys::signal::Signal;
use serde_json::Value;

use super::lab::{FleetLab, address, get};
use crate::cli::lab::Running;
use crate::screen::Screen;

#[test]
fn the_status_on_a_terminal_follows_the_fleet() {
    let Some(fleet) = FleetLab::new() else { return };
    let command = pty_process::blocking::Command::new(env!("CARGO_BIN_EXE_takopi"))
        .args(["fleet", "status"])
        .current_dir(fleet.lab.path("work"))
        .env_clear()
        .envs(fleet.lab.env())
        .env("TAKOPI_FLEET", &fleet.url);
    let screen = Screen::start(command, (20, 100));
    screen.wait_for("no worker serves");
    let worker = fleet.worker("alpha", &["--slots", "2"]);
    screen.wait_for("● alpha  □□    0/2  lease");
    worker.signal(Signal::SIGTERM);
    worker.end();
    screen.wait_for("– alpha  □□    0/2  left");
    screen.press("\x03");
    assert_eq!(screen.end().0, Some(0));
}

#[test]
fn the_page_shows_the_same_and_is_not_there_without_a_fleet() {
    let Some(fleet) = FleetLab::new() else { return };
    let _worker = fleet.worker("alpha", &[]);
    let args = ["serve", "--engine", "demo", "--listen", "127.0.0.1:0", "--fleet"];
    let mut server = Running::start(fleet.takopi(&args));
    server.wait_for("listening on ");
    let at = address(server.seen());
    let (head, page) = get(&at, "/fleet");
    assert!(head.starts_with("HTTP/1.1 200") && page.contains("Fleet · takopi"), "{head}");
    assert!(head.contains("script-src 'nonce-") && head.contains("connect-src 'self'"), "{head}");
    let (head, body) = get(&at, "/fleet/status");
    assert!(head.starts_with("HTTP/1.1 200"), "{head}");
    let body: Value = serde_json::from_str(&body).unwrap();
    assert_eq!(body["status"]["workers"][0]["machine"], "alpha");
    server.signal(Signal::SIGINT);
    assert_eq!(server.end().code, Some(0));

    let mut alone = Running::start(fleet.takopi(&args[..5]));
    alone.wait_for("listening on ");
    let (head, _) = get(&address(alone.seen()), "/fleet");
    assert!(head.starts_with("HTTP/1.1 404"), "{head}");
    alone.signal(Signal::SIGINT);
    alone.end();
}

#[test]
fn a_worker_shows_figures_for_prometheus_if_asked() {
    let Some(fleet) = FleetLab::new() else { return };
    let mut worker = fleet.worker("alpha", &["--metrics", "127.0.0.1:0"]);
    assert_eq!(fleet.run(&["run", "--fleet", "--engine", "demo", "hello"]).code, Some(0));
    worker.wait_for("✓ demo");
    let (head, figures) = get(&address(worker.seen()), "/metrics");
    assert!(head.contains("text/plain; version=0.0.4"), "{head}");
    for line in [
        "takopi_worker_slots{worker=\"alpha\"} 4",
        "takopi_worker_running{worker=\"alpha\",engine=\"demo\"} 0",
        "takopi_worker_runs_total{worker=\"alpha\",engine=\"demo\",outcome=\"ok\"} 1",
        "takopi_worker_run_seconds_bucket{worker=\"alpha\",engine=\"demo\",le=\"+Inf\"} 1",
        "takopi_worker_run_seconds_count{worker=\"alpha\",engine=\"demo\"} 1",
        "takopi_fleet_up 1",
        "takopi_fleet_workers 1",
        "takopi_fleet_jobs_waiting 0",
    ] {
        assert!(figures.lines().any(|found| found == line), "{line}:\n{figures}");
    }
    worker.signal(Signal::SIGTERM);
    assert_eq!(worker.end().code, Some(0));
}

#[test]
fn an_address_for_figures_that_is_taken_is_an_error() {
    let Some(fleet) = FleetLab::new() else { return };
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let at = taken.local_addr().unwrap().to_string();
    let ran = fleet.run(&["worker", "--engine", "demo", "--metrics", &at]);
    assert_eq!(ran.code, Some(1));
    assert!(ran.stderr.contains(&format!("cannot listen on {at} for --metrics")), "{}", ran.stderr);
}

#[test]
fn a_worker_that_is_tied_ends_with_its_input() {
    let Some(fleet) = FleetLab::new() else { return };
    let mut command = fleet.takopi(&["worker", "--tied", "--engine", "demo", "--name", "alpha"]);
    let (input, held) = std::io::pipe().unwrap();
    command.stdin(input).process_group(0);
    let mut worker = Running::start(command);
    worker.wait_for("engines  demo");
    drop(held);
    assert_eq!(worker.end().code, Some(143));
}
