//! `takopi run`: one prompt in, one answer out.

use std::time::Duration;

use takopi_core::process::raise_descriptor_limit;
use takopi_core::{RunRequest, Runner};

use crate::args::{Approve, Options, RunArgs, RunOptions};
use crate::engines::Chosen;
use crate::exit::Usage;
use crate::fleet::Submitting;
use crate::terminal::Terminal;
use crate::turn::{Report, Turn};
use crate::view::Mode;
use crate::{approve, keys, projects, prompt, resume, signals};

pub(crate) fn main(mut args: RunArgs, terminal: Terminal) -> anyhow::Result<u8> {
    if let Some(text) = &mut args.resume
        && let Some(id) = resume::completed(args.options.run.engine_flag(), text)?
    {
        *text = id;
    }
    if let Some(text) = &args.resume
        && !args.options.run.flags.is_typed("engine")
        && let Some(owner) = resume::owner(args.options.run.usual_engine(), text)?
    {
        args.options.run.choose_engine(&owner);
    }
    match &args.resume {
        Some(text) => args.options.run.return_to(text)?,
        None if args.last => {}
        None => projects::take_directives(&mut args.prompt, &mut args.options.run)?,
    }
    let place = args.options.run.enter_project()?;
    args.options.run.join_fleet(Submitting::Attended)?;
    args.options.run.fleet.check(&args)?;
    let chosen = Chosen::of(&args.options.run)?.with_project_settings();
    let approve = approve_mode(&args.options.run, &chosen, terminal);
    let approvals =
        approve::Approvals::new(approve, args.options.run.approve.is_none(), approve::PATIENCE);
    // A command runs one turn, so nothing is kept warm.
    let runner = chosen.runner(Duration::ZERO)?;
    let settings = args.options.run.settings();
    let directory = settings.cwd.map_or_else(std::env::current_dir, Ok)?;
    let sandbox = settings.sandbox;
    let mode = match (args.options.json, args.options.quiet) {
        (true, _) => Mode::Json,
        (_, true) => Mode::Quiet,
        _ => Mode::Progress,
    };
    let mut request = request(args, &chosen, &*runner, &directory, terminal)?;
    request.approvals = Some(approvals.handler);
    if let Err(error) = raise_descriptor_limit() {
        tracing::debug!(%error, "cannot raise the limit on open files");
    }
    runtime()?.block_on(async {
        let mut received = signals::watch(request.cancel.clone())?;
        let turn = Turn { runner: &*runner, terminal, mode };
        let seen = turn.show(request, approvals.questions, &mut received).await;
        let report = Report {
            signal: *received.borrow_and_update(),
            sandbox: sandbox.as_deref(),
            engine: Some(chosen.entry),
            place: place.as_ref(),
            declines: approve == Approve::Deny && chosen.can_ask(),
        };
        let code = turn.report(&seen, &report);
        turn.end(&mut received).await;
        code
    })
}

/// The runtime of a command: the main thread writes output, another one runs the tasks.
pub(crate) fn runtime() -> anyhow::Result<tokio::runtime::Runtime> {
    let mut builder = tokio::runtime::Builder::new_multi_thread();
    Ok(builder.worker_threads(1).enable_all().build()?)
}

/// The request, without its approval handler.
fn request(
    args: RunArgs,
    chosen: &Chosen,
    runner: &dyn Runner,
    directory: &std::path::Path,
    terminal: Terminal,
) -> anyhow::Result<RunRequest> {
    let resumed = match &args.resume {
        Some(text) => Some(resume::token(runner, text)?),
        None if args.last => match args.options.run.fleet.last(runner)? {
            Some(last) => Some(last),
            None => Some(resume::last(chosen.entry, directory)?),
        },
        None => None,
    };
    let mut request = template(args.options)?.deltas(args.deltas);
    request.resume = resumed;
    let prompt = prompt::read(&args.prompt)?;
    if prompt.replaced {
        terminal.note("standard input is not UTF-8; invalid bytes are sent as \u{fffd}");
    }
    request.prompt = prompt.text;
    Ok(request)
}

/// A request with everything that the options set, without prompt and session.
pub(crate) fn template(options: Options) -> Result<RunRequest, Usage> {
    let mut settings = options.run.settings();
    settings.images.extend(options.image);
    settings.output_schema = options.output_schema.or(settings.output_schema);
    match settings.missing_path() {
        Some(missing) => Err(Usage::new(missing)),
        None => Ok(RunRequest::new("").settings(settings)),
    }
}

/// How approval requests are decided: as asked for, or by the default. Without a terminal to ask on they
/// are declined.
fn approve_mode(options: &RunOptions, chosen: &Chosen, terminal: Terminal) -> Approve {
    match options.approve {
        Some(Approve::Ask) if !keys::has_terminal() => Approve::Deny,
        Some(approve) => approve,
        None if chosen.can_ask() && terminal.shows_errors && keys::has_terminal() => Approve::Ask,
        None => Approve::Deny,
    }
}
