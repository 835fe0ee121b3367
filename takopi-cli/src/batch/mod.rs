//! `takopi batch`: runs many prompts.
//!
//! The work is done by `takopi_batch`; here are the arguments, the progress display, and the summary.

mod answers;
mod args;
mod board;
mod plan;
mod table;

use std::fs::File;
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use takopi_batch::{
    Batch, BatchReport, Halt, Journal, JournalError, LineError, OnCrash, Outcome, Source,
};
use takopi_core::process::raise_descriptor_limit;
use takopi_core::{Completed, EngineId, Reason, Runner};
use takopi_projects::Context;
use tokio::sync::mpsc;
use tokio::time::MissedTickBehavior;
use tokio_util::sync::CancellationToken;

use answers::Answers;
pub(crate) use args::BatchArgs;
use args::BatchCommand;
use board::{Board, Show};

use crate::args::Approve;
use crate::engines::Chosen;
use crate::exit::{self, Usage};
use crate::fleet::Submitting;
use crate::signals::{Received, Signal};
use crate::terminal::{self, Terminal};
use crate::turn::Turn;
use crate::view::Mode;
use crate::{approve, hints, run, signals};

/// The most events that wait to be displayed.
const EVENTS: usize = 1024;

/// Runs a batch; `place` is the project that its options name.
pub(crate) fn main(
    args: BatchArgs,
    place: Option<Context>,
    terminal: Terminal,
) -> anyhow::Result<u8> {
    if let Some(BatchCommand::Report { out, json }) = args.command {
        return report(&out, json, terminal);
    }
    if let (Some(first), Some(second)) = (&args.input, args.more.first()) {
        let (first, second) = (first.display(), second.display());
        let what = format!(
            "expected one file of prompts; for several: cat {first} {second} | takopi batch"
        );
        return Err(Usage::new(what).into());
    }
    let show = Show::of(&args, terminal);
    let stop = CancellationToken::new();
    let chosen = Chosen::of(&args.options.run)?.without_background();
    let runner = chosen.shared_runner(args.jobs)?;
    let batch = batch(&args, runner.clone(), terminal)?
        .project(place.map(|place| place.project))
        .stop(stop.clone())
        .report_runs(show.runs());
    if let Some(out) = args.out.as_deref().filter(|out| is_input(out, &args)) {
        let what =
            format!("{} contains the prompts: choose another file for the results", out.display());
        return Err(Usage::new(what).into());
    }
    if args.dry_run {
        return plan::main(&args, &batch, terminal);
    }
    // A new file for results is created only after the input has been checked.
    let (journal, source) = match args.out.as_deref() {
        Some(out) if out.exists() => match Journal::open(out) {
            Ok(journal) => {
                let source = source(&args, &batch, &journal)?;
                (journal, source)
            }
            Err(error) => {
                let code = refused(&error, terminal);
                if matches!(error, JournalError::NotAResult(..)) {
                    terminal.hint("choose another file for the results");
                }
                return Ok(code);
            }
        },
        out => {
            let source = source(&args, &batch, &Journal::none())?;
            match out.map_or_else(|| Ok(Journal::none()), Journal::open) {
                Ok(journal) => (journal, source),
                Err(error) => return Ok(refused(&error, terminal)),
            }
        }
    };
    let is_first_run = journal.results().total == 0;
    let answers = args.answers.as_deref().map(|directory| {
        Answers::new(directory).map_err(|error| {
            Usage::new(format!("cannot use {} for answers: {error}", directory.display()))
        })
    });
    let answers = answers.transpose()?;
    if let Err(error) = raise_descriptor_limit() {
        tracing::debug!(%error, "cannot raise the limit on open files");
    }
    let mut board = Board::new(show, terminal, &args, answers);
    if let Some(out) = args.out.as_deref().filter(|_| !is_first_run) {
        board.restore_answers(out)?;
    }
    run::runtime()?.block_on(async {
        let mut received = signals::watch(stop.clone())?;
        let (events, mut received_events) = mpsc::channel(EVENTS);
        let running = tokio::spawn(batch.run(source, journal, events));
        let write_error = watch(&mut board, &mut received_events, &mut received, &stop).await;
        let outcome = running.await?;
        let answers_failed = board.answers_failed();
        let all_done = board.close();
        let signal = *received.borrow_and_update();
        let ending = Ending { args: &args, terminal, show, signal, is_first_run, all_done };
        let code = match (outcome, write_error) {
            (Err(error), _) => Err(error.into()),
            (Ok(outcome), None) => {
                let code = ending.report(&outcome, &runner.engine());
                if answers_failed { code.map(|code| code.max(exit::FAILED)) } else { code }
            }
            // The reader has gone away: there is no point in an error message.
            (Ok(_), Some(error)) if error.kind() == io::ErrorKind::BrokenPipe => Ok(exit::FAILED),
            (Ok(_), Some(error)) => {
                Err(anyhow::anyhow!("cannot write to standard output: {error}"))
            }
        };
        Turn { runner: &*runner, terminal, mode: Mode::Quiet }.end(&mut received).await;
        code
    })
}

/// Runs go on without the batch, which finds them again by their keys; `--on-crash fail` holds for workers too.
pub(crate) fn join_fleet(args: &mut BatchArgs) -> anyhow::Result<()> {
    let once = args.on_crash() == OnCrash::Fail;
    let how = if once { Submitting::AtMostOnce } else { Submitting::Unattended };
    args.options.run.join_fleet(how)
}

/// Displays events until the batch ends; returns the error if standard output could not be written to.
async fn watch(
    board: &mut Board,
    batch_events: &mut mpsc::Receiver<takopi_batch::BatchEvent>,
    received: &mut Received,
    stop: &CancellationToken,
) -> Option<io::Error> {
    let mut ticks = tokio::time::interval(takopi_bridge::present::terminal::TICK);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let (mut events, mut write_error) = (Vec::new(), None);
    loop {
        tokio::select! {
            count = batch_events.recv_many(&mut events, EVENTS) => {
                if count == 0 {
                    return write_error;
                }
                for event in events.drain(..) {
                    if let Err(error) = board.event(&event) {
                        write_error.get_or_insert(error);
                        stop.cancel();
                    }
                }
            }
            Ok(()) = received.changed() => {}
            _ = ticks.tick(), if board.is_moving() => board.tick(),
        }
    }
}

/// The batch of the arguments.
fn batch(
    args: &BatchArgs,
    runner: std::sync::Arc<dyn Runner>,
    terminal: Terminal,
) -> anyhow::Result<Batch> {
    let approve = match args.options.run.approve {
        Some(Approve::Ask) => {
            if !args.options.quiet {
                terminal.note("a batch has no user to ask: approval requests are declined");
            }
            Approve::Deny
        }
        other => other.unwrap_or(Approve::Deny),
    };
    let mut template = run::template(args.options.clone())?;
    let is_default = args.options.run.approve != Some(Approve::Deny);
    template.approvals =
        Some(approve::Approvals::new(approve, is_default, approve::PATIENCE).handler);
    Ok(Batch::new(runner)
        .template(template)
        .prompt_template(args.template.clone())
        .projects(args.options.run.projects.clone())
        .jobs(args.jobs)
        .retries(args.retries)
        .retry_failed(args.retry_failed)
        .on_failure(args.on_failure())
        .on_crash(args.on_crash())
        .on_change(args.on_change())
        .on_limit(args.on_limit())
        .total_timeout(args.total_timeout)
        .grace(args.grace))
}

/// The source of the prompts. A regular file is checked before anything runs; a pipe can be read only
/// once.
fn source(args: &BatchArgs, batch: &Batch, journal: &Journal) -> anyhow::Result<Source> {
    let format = args.format();
    let Some(path) = args.input.as_deref().filter(|path| *path != Path::new("-")) else {
        if args.input.is_none() && std::io::IsTerminal::is_terminal(&std::io::stdin()) {
            let message = "no prompts: name a file, or give them on standard input";
            return Err(Usage::new(message).into());
        }
        return Ok(Source::new(std::io::stdin()).format(format));
    };
    let open = || {
        File::open(path)
            .map_err(|error| Usage::new(format!("cannot read {}: {error}", path.display())))
    };
    let file = open()?;
    if file.metadata()?.is_dir() {
        return Err(Usage::new(format!("{} is a directory", path.display())).into());
    }
    if !file.metadata()?.is_file() {
        return Ok(Source::new(file).format(format));
    }
    let total = batch.check(file, format, journal).map_err(|bad| {
        let changed = bad.errors.iter().any(|error| matches!(error.fault, LineError::Changed(_)));
        let lines = bad.to_string().replace("\nline ", &format!("\n{}: line ", path.display()));
        let advice =
            if changed { "; --on-change keep or rerun accepts changed prompts" } else { "" };
        Usage::new(format!("{}: {lines}\nnothing was run{advice}", path.display()))
    })?;
    Ok(Source::new(open()?).format(format).total(total))
}

/// Whether the results would be written to the file of the prompts.
fn is_input(out: &Path, args: &BatchArgs) -> bool {
    let named = args.input.as_deref().filter(|path| *path != Path::new("-"));
    let file = |path: &Path| {
        let found = std::fs::metadata(path).ok().filter(std::fs::Metadata::is_file)?;
        Some((found.dev(), found.ino()))
    };
    let input = file(named.unwrap_or(Path::new("/dev/stdin")));
    input.is_some() && input == file(out)
}

/// Reports that the results cannot be used; returns the exit code.
fn refused(error: &JournalError, terminal: Terminal) -> u8 {
    terminal.error(&error.to_string());
    match error {
        JournalError::Busy(_) => exit::BUSY,
        JournalError::NotAFile(_) | JournalError::NotAResult(..) | JournalError::NotAState(..) => {
            exit::USAGE
        }
        JournalError::Io { error, .. } if is_misnamed(error) => exit::USAGE,
        _ => exit::FAILED,
    }
}

/// Whether the error is about the name of the file.
fn is_misnamed(error: &io::Error) -> bool {
    use io::ErrorKind::{IsADirectory, NotADirectory, NotFound, PermissionDenied};
    matches!(error.kind(), IsADirectory | NotADirectory | NotFound | PermissionDenied)
}

/// `takopi batch report`.
fn report(out: &Path, json: bool, terminal: Terminal) -> anyhow::Result<u8> {
    match BatchReport::read(out) {
        Ok(report) if json => {
            terminal::print(format!("{}\n", serde_json::to_string(&report)?).as_bytes())?;
        }
        Ok(report) => terminal.print_lines(&table::lines(&report))?,
        Err(error) => return Ok(refused(&error, terminal)),
    }
    Ok(exit::OK)
}

/// The end of a batch.
struct Ending<'a> {
    args: &'a BatchArgs,
    terminal: Terminal,
    show: Show,
    signal: Option<Signal>,
    /// There were no earlier results.
    is_first_run: bool,
    /// Every prompt has a result.
    all_done: bool,
}

impl Ending<'_> {
    /// Reports how the batch ended; returns the exit code.
    fn report(&self, outcome: &Outcome, engine: &EngineId) -> anyhow::Result<u8> {
        // The file has the results of earlier runs too.
        let report = match &self.args.out {
            Some(out) if !self.is_first_run => BatchReport::read(out)?,
            _ => outcome.report.clone(),
        };
        match self.show {
            Show::Json => {
                let mut figures = serde_json::to_value(&report)?;
                figures["type"] = "batch_completed".into();
                figures["left"] = outcome.left.into();
                terminal::print(format!("{figures}\n").as_bytes())?;
            }
            Show::Quiet => {}
            _ => table::lines(&report).iter().for_each(|line| self.terminal.line(line)),
        }
        let shows_hints = !matches!(self.show, Show::Json | Show::Quiet);
        if shows_hints && outcome.halt.is_none() {
            if outcome.report.attempts == 0 && outcome.failed_before == 0 {
                self.terminal.note("nothing to do: every prompt has its result");
            }
            if self.args.out.is_some() && outcome.report.failures() + outcome.failed_before > 0 {
                self.terminal.hint("--retry-failed runs the failed prompts again");
            }
        }
        if let Some(halt) = &outcome.halt {
            self.explain(halt, engine);
            if self.args.out.is_some() && shows_hints && !self.all_done {
                self.terminal.hint("run the same command again to continue");
            }
        }
        Ok(self.code(outcome))
    }

    fn explain(&self, halt: &Halt, engine: &EngineId) {
        let terminal = self.terminal;
        let note = |text: &str| {
            if self.show != Show::Quiet {
                terminal.note(text);
            }
        };
        match halt {
            Halt::Interrupted => note("interrupted"),
            Halt::TimedOut => terminal.error("the batch took longer than --total-timeout"),
            Halt::Engine { reason, error } => {
                terminal.error(error);
                let completed = Completed::failure(engine.clone(), reason.clone(), error.clone());
                if let Some(hint) = hints::of_run(&completed) {
                    terminal.hint(&hint);
                }
            }
            Halt::Limit { until, error } => {
                terminal.error(error);
                if let Some(until) = until {
                    note(&format!("the limit ends at {}", table::clock(*until)));
                }
            }
            Halt::Failed { job } => note(&format!("stopped because {job} failed")),
            Halt::Input { error } => terminal.error(error),
            _ => {}
        }
    }

    fn code(&self, outcome: &Outcome) -> u8 {
        match &outcome.halt {
            Some(Halt::Interrupted) => self.signal.unwrap_or(Signal::Interrupt).code(),
            Some(Halt::TimedOut) => exit::TIMEOUT,
            Some(Halt::Input { .. }) => exit::USAGE,
            Some(Halt::Engine { reason: Reason::EngineMissing | Reason::EngineTooOld, .. }) => {
                exit::NO_ENGINE
            }
            Some(_) => exit::FAILED,
            None if outcome.report.failures() + outcome.failed_before > 0 => exit::FAILED,
            None => exit::OK,
        }
    }
}
