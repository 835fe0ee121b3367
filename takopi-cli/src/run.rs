//! `takopi run`: one prompt in, one answer out.

use std::time::Duration;

use takopi_core::process::raise_descriptor_limit;
use takopi_core::{RunRequest, Runner};

use crate::args::{Approve, Options, RunArgs, RunOptions};
use crate::engines::Choice;
use crate::exit::Usage;
use crate::terminal::Terminal;
use crate::turn::{Report, Turn};
use crate::view::Mode;
use crate::{approve, keys, prompt, resume, signals};

pub(crate) fn main(args: RunArgs, terminal: Terminal) -> anyhow::Result<u8> {
    let choice = Choice::of(&args.options.run)?;
    let approve = who_answers(&args.options.run, &choice, terminal)?;
    let (handler, questions) =
        approve::handler(approve, args.options.run.approve.is_none(), approve::PATIENCE);
    // A command runs one turn.
    let runner = choice.runner(Duration::ZERO);
    let settings = args.options.run.settings();
    let directory = settings.cwd.map_or_else(std::env::current_dir, Ok)?;
    let sandbox = settings.sandbox;
    let mode = match (args.options.json, args.options.quiet) {
        (true, _) => Mode::Json,
        (_, true) => Mode::Quiet,
        _ => Mode::Progress,
    };
    let mut request = request(args, &*runner, &directory, terminal)?;
    request.approvals = handler;
    if let Err(error) = raise_descriptor_limit() {
        tracing::debug!(%error, "cannot raise the limit on open files");
    }
    runtime()?.block_on(async {
        let mut received = signals::watch(request.cancel.clone())?;
        let turn = Turn { runner: &*runner, terminal, mode };
        let seen = turn.show(request, questions, &mut received).await;
        let report = Report {
            signal: *received.borrow_and_update(),
            sandbox: sandbox.as_deref(),
            could_ask: approve != Approve::Deny || !choice.can_ask(),
        };
        let code = turn.report(&seen, &report);
        turn.end(&mut received).await;
        code
    })
}

/// The runtime of a command: the main thread writes, another one runs the tasks.
pub(crate) fn runtime() -> anyhow::Result<tokio::runtime::Runtime> {
    let mut builder = tokio::runtime::Builder::new_multi_thread();
    Ok(builder.worker_threads(1).enable_all().build()?)
}

/// What is asked of the engine, but for who decides.
fn request(
    args: RunArgs,
    runner: &dyn Runner,
    directory: &std::path::Path,
    terminal: Terminal,
) -> anyhow::Result<RunRequest> {
    let mut request = template(args.options)?;
    request.resume = match &args.resume {
        Some(text) => Some(resume::token(runner, text)?),
        None if args.last => Some(resume::last(runner, directory)?),
        None => None,
    };
    let prompt = prompt::read(&args.prompt)?;
    if prompt.mended {
        terminal.note("standard input is not UTF-8; what could not be read is sent as \u{fffd}");
    }
    request.prompt = prompt.text;
    Ok(request)
}

/// A request with all that the options set, but for prompt and session.
pub(crate) fn template(options: Options) -> Result<RunRequest, Usage> {
    let mut settings = options.run.settings();
    settings.images.extend(options.image);
    settings.output_schema = options.output_schema.or(settings.output_schema);
    match settings.missing_path() {
        Some(missing) => Err(Usage::new(missing)),
        None => Ok(RunRequest::new("").settings(settings)),
    }
}

/// Who would answer has nobody to answer.
pub(crate) fn exec_cannot_ask() -> Usage {
    Usage::new("over exec codex cannot ask: --approve ask and accept need --transport app-server")
}

/// Who answers what the agent asks.
fn who_answers(args: &RunOptions, choice: &Choice, terminal: Terminal) -> Result<Approve, Usage> {
    match args.approve {
        Some(approve) if !choice.allows(approve) => Err(exec_cannot_ask()),
        Some(Approve::Ask) if !keys::has_terminal() => Ok(Approve::Deny),
        Some(approve) => Ok(approve),
        None if choice.can_ask() && terminal.shows_errors && keys::has_terminal() => {
            Ok(Approve::Ask)
        }
        None => Ok(Approve::Deny),
    }
}
