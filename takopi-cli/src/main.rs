//! `takopi`: runs coding agents from a shell.
//!
//! The answer goes to standard output, everything else to standard error; the exit code depends on how the run
//! ended ([`exit`]). Settings come from flags, then `TAKOPI_*`, then the
//! configuration file, then defaults ([`args`], [`config`]).

mod answer;
mod approve;
mod args;
mod batch;
mod chat;
mod config;
mod conversation;
mod demo;
mod doctor;
mod editor;
mod engines;
mod engines_list;
mod exit;
#[cfg_attr(not(feature = "fleet"), path = "fleet/off.rs")]
mod fleet;
mod held;
mod hints;
mod keys;
mod logging;
mod projects;
mod prompt;
mod resume;
mod run;
mod screen;
mod serve;
mod sessions;
mod signals;
mod stream;
#[cfg(feature = "telegram")]
mod telegram;
mod terminal;
mod turn;
mod variable;
mod view;

use std::process::ExitCode;

use clap::{CommandFactory, Parser};

use args::{Cli, Color, Command};
use fleet::Submitting;
use terminal::Terminal;

fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => {
            let words: Vec<String> =
                std::env::args_os().map(|word| word.to_string_lossy().into_owned()).collect();
            let mut command = Cli::command();
            command.build();
            let error = variable::blamed(error, &command, &words);
            return ExitCode::from(refused(&error));
        }
    };
    let verbose = cli.global.verbose > 0;
    let mut terminal = Terminal::detect(cli.global.color.unwrap_or_default());
    match dispatch(cli, &mut terminal) {
        Ok(code) => ExitCode::from(code),
        Err(error) => {
            terminal.error(&if verbose { format!("{error:#}") } else { error.to_string() });
            ExitCode::from(exit::of_error(&error))
        }
    }
}

/// Prints why a command line was not accepted, or what it asked for: `--help` and `--version` are errors for clap too.
fn refused(error: &clap::Error) -> u8 {
    if error.use_stderr() {
        let _ = error.print();
        return u8::try_from(error.exit_code()).unwrap_or(exit::USAGE);
    }
    let terminal = Terminal::detect(Color::Auto);
    let text = error.render();
    let text = if terminal.formats() { text.ansi().to_string() } else { text.to_string() };
    match terminal::print(text.as_bytes()) {
        Ok(()) => exit::OK,
        Err(error) => {
            terminal.error(&error.to_string());
            exit::FAILED
        }
    }
}

fn dispatch(cli: Cli, terminal: &mut Terminal) -> anyhow::Result<u8> {
    let logs_to_stderr = logging::start(cli.global.verbose, cli.command.logged())?;
    if logs_to_stderr {
        terminal.draw_nothing();
    }
    // The configuration file is not needed for this, and may be broken.
    if let Command::Completions { shell } = cli.command {
        let mut script = Vec::new();
        clap_complete::generate(shell, &mut Cli::command(), "takopi", &mut script);
        return terminal::print(&script).map(|()| exit::OK);
    }
    let file = cli.global.config.as_deref();
    if let Command::Doctor(args) = cli.command {
        return doctor::main(&args, file, *terminal);
    }
    let config = config::load(file)?;
    if cli.global.color.is_none()
        && let Some(color) = config.color
    {
        terminal.recolor(color);
    }
    match cli.command {
        Command::Run(args) => run::main(args.filled(config), *terminal),
        Command::Batch(args) => {
            let mut args = args.filled(config);
            let place = args.options.run.enter_project()?;
            batch::join_fleet(&mut args)?;
            batch::main(args, place, *terminal)
        }
        Command::Chat(mut args) => {
            args.options = args.options.filled(config);
            args.options.enter_project()?;
            args.options.join_fleet(Submitting::Attended)?;
            chat::main(&args, *terminal)
        }
        Command::Serve(mut args) => {
            args.options = args.options.filled(config);
            args.options.enter_project()?;
            args.options.join_fleet(Submitting::Attended)?;
            serve::main(*args, *terminal)
        }
        #[cfg(feature = "telegram")]
        Command::Telegram(args) => telegram::main(*args, config, file, *terminal),
        #[cfg(feature = "fleet")]
        Command::Worker(args) => fleet::worker(*args, config, *terminal),
        #[cfg(feature = "fleet")]
        Command::Fleet(args) => fleet::main(args, &config, *terminal),
        Command::Projects(args) => projects::main(&args, &config, file, *terminal),
        Command::Sessions(args) => sessions::main(&args, *terminal),
        Command::Engines(args) => engines_list::main(&args, &config, *terminal),
        Command::Demo(args) => demo::main(&args, *terminal),
        Command::Doctor(_) | Command::Completions { .. } => Ok(exit::OK),
    }
}
