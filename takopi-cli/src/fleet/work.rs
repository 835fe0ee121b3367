//! `takopi worker`: runs jobs of a fleet on this machine.
//!
//! It serves until SIGTERM or SIGINT, then takes no more and lets what runs end within the grace time; what does not is handed to
//! others. A second signal exits at once. At its start it stops what a killed worker left running here, and the fleet gives
//! what that one held to others at once.

use std::collections::BTreeMap;
use std::fs::{File, TryLockError};
use std::net::SocketAddr;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, anyhow};
use clap::Args;
use takopi_bridge::present::{Line, Style};
use takopi_core::catalog::{EngineEntry, EngineSetup, Finding, Status};
use takopi_core::demo::DEMO;
use takopi_core::process::{end_strays, raise_descriptor_limit};
use takopi_core::settings::parse_duration;
use takopi_core::{Host, Runner};
use takopi_fleet::files::version_number;
use takopi_fleet::work::{Allowed, Ceiling, Served, Travels, Worker, WorkerOptions};
use tokio_util::sync::CancellationToken;

use super::metrics;
use super::watched::{Counters, Watched};
use crate::args::{RunOptions, listen, setting};
use crate::config::{AllowTable, Config, FleetTable};
use crate::conversation::WithSettings;
use crate::engines::{self, EngineFlags, NameParser};
use crate::exit::{self, Usage};
use crate::signals::Signal;
use crate::terminal::Terminal;
use crate::{run, serve, signals};

/// How many runs at once, unless it is said.
const SLOTS: u32 = 4;

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  takopi worker --fleet postgres://takopi@db.example/fleet --slots 8
  takopi worker --engine codex --place app=~/src/app --label gpu

The password comes from PGPASSWORD or a password file (~/.pgpass); the address also from TAKOPI_FLEET or `url` of [fleet] in the
configuration file. The first SIGTERM or Ctrl-C drains the worker, the second one stops it at once.")]
pub(crate) struct WorkerArgs {
    // First: clap takes the other arguments out of the matches as it reads them.
    #[command(flatten)]
    flags: EngineFlags,
    /// The fleet's database. Default: TAKOPI_FLEET, or `url` of [fleet] in the configuration file
    #[arg(long, value_name = "URL")]
    fleet: Option<String>,
    /// How many jobs run at once. Default: 4
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    slots: Option<u32>,
    /// A directory that jobs may ask for by this name; can be repeated
    #[arg(long, value_name = "NAME=DIR", value_parser = setting)]
    place: Vec<(String, String)>,
    /// Serve repositories of this owner, as git:URL@REF; `file` for those of this machine; can be repeated
    #[arg(long, value_name = "HOST/OWNER")]
    git: Vec<String>,
    /// A label that jobs can ask for with --on; can be repeated
    #[arg(long, value_name = "LABEL")]
    label: Vec<String>,
    /// Serve this engine; can be repeated. Default: all that are installed, without the demo
    #[arg(long, value_name = "ENGINE", value_parser = NameParser::Engine)]
    engine: Vec<String>,
    /// Set an option of the engine, of the first one if there are several; can be repeated
    #[arg(short = 'c', value_name = "KEY=VALUE", value_parser = setting, requires = "engine")]
    settings: Vec<(String, String)>,
    /// The name of this worker: the same after a restart, and no other worker's. Default: the host's name
    #[arg(long, value_name = "NAME")]
    name: Option<String>,
    /// How long running jobs may take to end when the worker is told to stop
    #[arg(long, value_name = "DURATION", value_parser = parse_duration, default_value = "10m")]
    grace: Duration,
    /// How long the fleet waits for a sign of life before it gives the jobs to others
    #[arg(long, value_name = "DURATION", value_parser = parse_duration, default_value = "30s", hide = true)]
    lease: Duration,
    /// Exit at once when standard input ends: for workers that belong to another process
    #[arg(long, hide = true)]
    tied: bool,
    /// Show figures for Prometheus at this address, under /metrics
    #[arg(long, value_name = "ADDRESS:PORT", value_parser = listen)]
    metrics: Option<SocketAddr>,
}

impl WorkerArgs {
    /// Takes what is not said from the table.
    fn fill(&mut self, table: &FleetTable) {
        self.slots = self.slots.or(table.slots);
        self.name = self.name.take().or_else(|| table.name.clone());
        if self.engine.is_empty() {
            self.engine.clone_from(&table.engines);
        }
        self.label.extend(table.labels.iter().cloned());
        self.git.extend(table.git.iter().cloned());
    }

    /// The places of the table and of the flags, which must exist.
    fn places(&self, table: &FleetTable) -> Result<BTreeMap<String, PathBuf>, Usage> {
        let named = self.place.iter().map(|(name, path)| {
            let path = serve::expanded(path);
            (name.clone(), std::path::absolute(&path).unwrap_or(path))
        });
        let places: BTreeMap<_, _> = super::places(table).chain(named).collect();
        match places.iter().find(|(_, path)| !path.is_dir()) {
            Some((name, path)) => {
                let path = path.display();
                Err(Usage::new(format!("the place {name}: {path} is not a directory")))
            }
            None => Ok(places),
        }
    }
}

/// An engine that is served, and what people read of it.
struct Offer {
    entry: &'static dyn EngineEntry,
    version: Option<String>,
    travels: Travels,
}

impl Offer {
    fn text(&self) -> String {
        let version = self.version.as_deref().map(|version| format!(" {version}"));
        format!("{}{}", self.entry.id(), version.unwrap_or_default())
    }
}

pub(crate) fn main(mut args: WorkerArgs, config: Config, terminal: Terminal) -> anyhow::Result<u8> {
    let table = config.fleet.clone();
    args.fill(&table);
    let url = super::address(args.fleet.as_deref(), &table)?;
    let places = args.places(&table)?;
    let slots = args.slots.unwrap_or(SLOTS);
    let mut options = RunOptions { flags: args.flags, ..RunOptions::default() }.filled(config);
    options.engine = args.engine.first().cloned();
    options.settings = args.settings;
    // So that the password is kept from agents, wherever the address comes from.
    options.fleet.fleet.get_or_insert_default();
    let host = Host::global()?;
    let name = args.name.map_or_else(hostname, Ok)?;
    let state = host.state_directory().join("fleet").join(file_name(&name));
    let _lock = lock(&state, &name)?;
    if args.tied {
        std::thread::spawn(|| {
            let _ = std::io::copy(&mut std::io::stdin(), &mut std::io::sink());
            signals::exit_now(Signal::Terminate);
        });
    }
    if let Err(error) = raise_descriptor_limit() {
        tracing::debug!(%error, "cannot raise the limit on open files");
    }
    run::runtime()?.block_on(async {
        let stop = CancellationToken::new();
        let _received = signals::watch(stop.clone())?;
        let board = Arc::new(super::open(url.clone()).await?);
        let offers = offers(&args.engine, &options, terminal).await?;
        for stray in end_strays(host.state_directory()) {
            terminal.note(&format!("stopped a stray process: {} {}", stray.pid, stray.command));
        }
        for before in board.overview().await?.status.workers.iter().filter(|it| it.machine == name)
        {
            terminal.note(&format!("takes over from {}, which held {}", before.id, before.held));
        }
        let mut work = WorkerOptions::new(&name, &state);
        (work.slots, work.lease, work.grace) = (slots, args.lease, args.grace);
        work.host = Some(host.clone());
        work.offers = args.label.iter().map(|label| format!("label:{label}")).collect();
        work.places.clone_from(&places);
        work.own_places = table.own_places.iter().cloned().collect();
        work.git = args.git.iter().cloned().collect();
        work.ceiling = ceiling(&table.allow);
        let counters = Arc::new(Counters::default());
        let mut worker = Worker::new(board.clone(), work);
        let mut runners: Vec<Arc<dyn Runner>> = Vec::new();
        for offer in &offers {
            let runner = runner(offer.entry, &options, slots, &counters, terminal)?;
            let version = offer.version.as_deref().map_or(0, version_number);
            worker =
                worker.engine(Served { runner: runner.clone(), version, travels: offer.travels.clone() });
            runners.push(runner);
        }
        let serving = match args.metrics {
            Some(address) => {
                let shown = metrics::Shown { counters, slots, name: name.clone(), board };
                Some(metrics::serve(address, shown, stop.clone(), terminal).await?)
            }
            None => None,
        };
        print_offer(terminal, &name, &url.to_string(), slots, &offers, &places, &args.label);
        let draining = async {
            stop.cancelled().await;
            terminal.note("draining: takes no more jobs; a second signal stops at once");
            std::future::pending::<()>().await;
        };
        tokio::select! {
            // First, so that it is reported also if nothing runs and the worker stops at once.
            biased;
            () = draining => {}
            served = worker.serve(stop.clone()) => served.map_err(anyhow::Error::new).map_err(super::explained)?,
        }
        stop.cancel();
        if let Some(serving) = serving {
            serving.await?;
        }
        for runner in runners {
            runner.shutdown().await;
        }
        host.settle().await;
        terminal.note("stopped");
        Ok(exit::OK)
    })
}

fn runner(
    entry: &'static dyn EngineEntry,
    options: &RunOptions,
    slots: u32,
    counters: &Arc<Counters>,
    terminal: Terminal,
) -> Result<Arc<dyn Runner>, Usage> {
    let busy = usize::try_from(slots).unwrap_or(usize::MAX);
    let local = engines::worker_runner(entry, options, busy)?;
    // What a job does not set is as this machine's configuration says.
    let mut settings = options.settings_of(entry);
    (settings.cwd, settings.wait) = (None, None);
    let runner = Arc::new(WithSettings { runner: local, settings });
    Ok(Arc::new(Watched { runner, counters: counters.clone(), terminal }))
}

/// The engines to serve: those that were named, which must work; else all that do.
async fn offers(
    named: &[String],
    options: &RunOptions,
    terminal: Terminal,
) -> anyhow::Result<Vec<Offer>> {
    let mut entries: Vec<&'static dyn EngineEntry> = Vec::new();
    for name in named {
        let entry = engines::find(name)?;
        if !entries.iter().any(|known| known.id() == entry.id()) {
            entries.push(entry);
        }
    }
    if named.is_empty() {
        entries =
            engines::all().filter(|entry| entry.id() != DEMO && entry.is_installed()).collect();
    }
    let mut offers = Vec::new();
    for entry in entries {
        let program = entry.program().and_then(|it| options.flags.programs.get(it.flag)).cloned();
        let findings = entry.doctor(&EngineSetup::new().program(program)).await;
        let wrong = findings.iter().find(|it| it.status == Status::Problem && is_essential(it));
        match wrong {
            Some(wrong) if named.is_empty() => {
                terminal.note(&format!("{} is not served: {}", entry.id(), wrong.text));
            }
            Some(wrong) => return Err(anyhow!("{} cannot be served: {}", entry.id(), wrong.text)),
            None => {
                let version = findings.iter().find(|finding| finding.check == "version");
                let mut version = version.map(|finding| finding.text.clone());
                let travels = match engines::portable(entry, options) {
                    _ if entry.id() == DEMO => Travels::Freely,
                    Some(sessions) => {
                        version = sessions.version().await.map(|it| it.to_string()).or(version);
                        Travels::Files(sessions)
                    }
                    None => Travels::No,
                };
                offers.push(Offer { entry, version, travels });
            }
        }
    }
    if offers.is_empty() {
        let text =
            "no engine is installed here; `takopi engines` shows all, --engine demo needs none";
        return Err(anyhow!(text));
    }
    Ok(offers)
}

/// A login can be made while the worker runs, or be in the job's model provider.
fn is_essential(finding: &Finding) -> bool {
    finding.check != "login"
}

fn print_offer(
    terminal: Terminal,
    name: &str,
    url: &str,
    slots: u32,
    offers: &[Offer],
    places: &BTreeMap<String, PathBuf>,
    labels: &[String],
) {
    let row = |title: &str, text: String| {
        terminal
            .line(&Line::new().with(Style::Dim, format!("  {title:<8} ")).with(Style::Plain, text));
    };
    let head = Line::new().with(Style::Plain, "worker ").with(Style::Strong, name);
    terminal.line(&head.with(Style::Plain, format!(" serves {url}")));
    row("slots", slots.to_string());
    row("engines", offers.iter().map(Offer::text).collect::<Vec<_>>().join(", "));
    for (place, path) in places {
        row("place", format!("{place} → {}", path.display()));
    }
    if !labels.is_empty() {
        row("labels", labels.join(", "));
    }
}

/// What jobs may ask for.
fn ceiling(table: &AllowTable) -> Ceiling {
    let mut ceiling = Ceiling::default();
    let set = |allowed: &mut Allowed, said: &Option<Vec<String>>| match said {
        Some(values) if values.iter().any(|value| value == "*") => *allowed = Allowed::Any,
        Some(values) => *allowed = Allowed::only(values.iter().cloned()),
        None => {}
    };
    set(&mut ceiling.sandboxes, &table.sandboxes);
    set(&mut ceiling.permission_modes, &table.permission_modes);
    set(&mut ceiling.options, &table.options);
    set(&mut ceiling.env, &table.env);
    ceiling.approvals = table.approvals.unwrap_or(ceiling.approvals);
    ceiling.scratch = table.scratch.unwrap_or(ceiling.scratch);
    ceiling
}

pub(super) fn hostname() -> anyhow::Result<String> {
    let name = nix::unistd::gethostname().context("cannot read the name of this machine")?;
    Ok(name.to_string_lossy().into_owned())
}

/// The name as that of a directory.
fn file_name(name: &str) -> String {
    let safe = |letter: char| letter.is_ascii_alphanumeric() || "-_.".contains(letter);
    let name: String = name.chars().map(|letter| if safe(letter) { letter } else { '_' }).collect();
    format!("worker-{name}")
}

/// One worker of a name runs here: a second one would be taken for its successor.
fn lock(state: &Path, name: &str) -> anyhow::Result<File> {
    let fail = || format!("cannot use {}", state.display());
    // Nobody else's concern, as everything in the state directory.
    let made = std::fs::DirBuilder::new().recursive(true).mode(0o700).create(state);
    made.with_context(fail)?;
    let file = File::create(state.join("lock")).with_context(fail)?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(TryLockError::WouldBlock) => {
            Err(anyhow!("a worker named {name} runs on this machine; give this one another --name"))
        }
        Err(TryLockError::Error(error)) => Err(error).with_context(fail),
    }
}
