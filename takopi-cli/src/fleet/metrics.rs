//! `takopi worker --metrics`: figures of the worker and of the queue, as text for Prometheus.
//!
//! Off by default. The text has names and numbers only: no prompts, no keys of jobs.

use std::fmt::Write as _;
use std::net::SocketAddr;
use std::sync::Arc;

use anyhow::anyhow;
use axum::extract::State;
use axum::http::header::CONTENT_TYPE;
use axum::middleware;
use axum::response::IntoResponse;
use axum::routing::get;
use takopi_fleet::PgBoard;
use takopi_fleet::board::pg::Overview;
use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use super::watched::{CLASSES, Counters};
use crate::serve::listen::{self, Bounds};
use crate::terminal::Terminal;

/// What is shown.
pub(super) struct Shown {
    pub(super) counters: Arc<Counters>,
    pub(super) slots: u32,
    pub(super) name: String,
    pub(super) board: Arc<PgBoard>,
}

/// Serves the figures until `stop` fires.
pub(super) async fn serve(
    address: SocketAddr,
    shown: Shown,
    stop: CancellationToken,
    terminal: Terminal,
) -> anyhow::Result<JoinHandle<()>> {
    let listener = TcpListener::bind(address)
        .await
        .map_err(|error| anyhow!("cannot listen on {address} for --metrics: {error}"))?;
    terminal.note(&format!("figures for Prometheus: http://{}/metrics", listener.local_addr()?));
    let service = axum::Router::new()
        .route("/metrics", get(figures))
        .layer(middleware::from_fn(listen::in_time))
        .with_state(Arc::new(shown));
    Ok(tokio::spawn(async move {
        listen::serve(listener, service, Bounds::default(), &stop).await;
    }))
}

async fn figures(State(shown): State<Arc<Shown>>) -> impl IntoResponse {
    let fleet = shown.board.overview().await.ok();
    let text = text(&shown, fleet.as_ref());
    ([(CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8")], text)
}

/// The text, one family of figures after the other.
fn text(shown: &Shown, fleet: Option<&Overview>) -> String {
    let mut text = Text::default();
    let name = &[("worker", shown.name.as_str())][..];
    text.family("takopi_worker_slots", "gauge", "How many jobs run at once.");
    text.row("takopi_worker_slots", name, f64::from(shown.slots));
    let engines = shown.counters.read();
    text.family("takopi_worker_running", "gauge", "Jobs that run now.");
    for (engine, figures) in &engines {
        text.row("takopi_worker_running", &[name, &[("engine", engine)]].concat(), figures.running);
    }
    text.family("takopi_worker_runs_total", "counter", "Runs that ended, by how they did.");
    for (engine, figures) in &engines {
        for (outcome, count) in &figures.ended {
            let labels = [name, &[("engine", engine), ("outcome", outcome)]].concat();
            text.row("takopi_worker_runs_total", &labels, *count);
        }
    }
    text.family("takopi_worker_run_seconds", "histogram", "How long runs took.");
    for (engine, figures) in &engines {
        let labels = [name, &[("engine", engine.as_str())]].concat();
        let all: u64 = figures.ended.values().sum();
        let classes = CLASSES.map(|most| most.to_string());
        let bounds = classes.iter().map(String::as_str).chain(["+Inf"]);
        for (most, count) in bounds.zip(figures.within.into_iter().chain([all])) {
            let labels = [&labels[..], &[("le", most)]].concat();
            text.row("takopi_worker_run_seconds_bucket", &labels, count);
        }
        text.row("takopi_worker_run_seconds_sum", &labels, figures.seconds);
        text.row("takopi_worker_run_seconds_count", &labels, all);
    }
    text.family("takopi_fleet_up", "gauge", "Whether the fleet's database answers.");
    text.row("takopi_fleet_up", &[], u8::from(fleet.is_some()));
    let Some(fleet) = fleet else { return text.0 };
    let (status, alive) = (&fleet.status, fleet.status.workers.iter().filter(|it| it.alive));
    for (name, help, value) in [
        ("takopi_fleet_workers", "Workers that live.", alive.count() as u64),
        ("takopi_fleet_jobs_waiting", "Jobs that wait.", status.queued),
        ("takopi_fleet_jobs_running", "Jobs that run.", status.running),
        ("takopi_fleet_sessions", "Sessions.", status.sessions),
        ("takopi_fleet_sessions_stranded", "Sessions whose machine is gone.", status.stranded),
        ("takopi_fleet_bytes", "What the tables take.", fleet.all_bytes),
    ] {
        text.family(name, "gauge", help);
        text.row(name, &[], value);
    }
    let oldest = status.lines.iter().map(|line| line.oldest_seconds).max().unwrap_or(0);
    text.family("takopi_fleet_oldest_seconds", "gauge", "How long the first job has waited.");
    text.row("takopi_fleet_oldest_seconds", &[], oldest);
    text.0
}

#[derive(Default)]
struct Text(String);

impl Text {
    fn family(&mut self, name: &str, kind: &str, help: &str) {
        let _ = writeln!(self.0, "# HELP {name} {help}\n# TYPE {name} {kind}");
    }

    fn row(&mut self, name: &str, labels: &[(&str, &str)], value: impl std::fmt::Display) {
        let escape =
            |text: &str| text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
        let labels: Vec<_> =
            labels.iter().map(|(key, value)| format!("{key}=\"{}\"", escape(value))).collect();
        let labels =
            if labels.is_empty() { String::new() } else { format!("{{{}}}", labels.join(",")) };
        let _ = writeln!(self.0, "{name}{labels} {value}");
    }
}
