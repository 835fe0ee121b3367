//! `fake-codex`: plays the script in its environment as `codex exec`, `codex app-server`,
//! `codex --version` or `codex login`. The scripts are described in `takopi_tests::codex::fake`.
//!
//! It is started thousands of times by a chaos test: plain threads, no runtime, nothing done that
//! the script does not ask for.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stderr,
    reason = "a test tool: a failure here is a test's failure"
)]

mod app_server;
mod defaults;
mod exec;
mod grandchild;
mod link;
mod output;
mod player;
mod signals;
mod state;
mod vars;

use std::sync::Arc;

use takopi_tests::codex::fake::report::{Mode, Report};
use takopi_tests::codex::fake::{BAD_SCRIPT, CONTROL, SCRIPT, SCRIPT_FILE, Script, Start, Step};

use crate::link::Link;
use crate::player::{Fake, Player};

fn main() {
    let args: Vec<String> =
        std::env::args_os().skip(1).map(|arg| arg.to_string_lossy().into_owned()).collect();
    if let [grandchild::COMMAND, plan] = args.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        grandchild::live(plan);
    }
    let mode = mode(&args);
    let script = script();
    let (fake, link) = begin(mode, args);
    match mode {
        Mode::Version => aside(fake, link, script.version, Step::line("codex-cli 0.166.0")),
        Mode::Login => aside(fake, link, script.login, Step::stderr("Logged in using ChatGPT")),
        Mode::Exec => match nth(script, fake.start).exec {
            Some(steps) => exec::run(&fake, link, &steps),
            None => complain("the script has no exec"),
        },
        Mode::AppServer => match nth(script, fake.start).app_server {
            Some(server) => app_server::run(fake, link, server),
            None => complain("the script has no app_server"),
        },
    }
    std::process::exit(0);
}

/// Ends a fake whose script cannot be played, loudly.
fn complain(what: &str) -> ! {
    eprintln!("fake-codex: {what}");
    std::process::exit(BAD_SCRIPT);
}

fn mode(args: &[String]) -> Mode {
    let has = |word: &str| args.iter().any(|arg| arg == word);
    if has("--version") || has("-V") {
        Mode::Version
    } else if has("app-server") {
        Mode::AppServer
    } else if has("exec") {
        Mode::Exec
    } else if has("login") {
        Mode::Login
    } else {
        complain(&format!("started neither as exec nor as app-server: {args:?}"))
    }
}

fn script() -> Script {
    let json = std::env::var(SCRIPT).ok().or_else(|| {
        let file = std::env::var_os(SCRIPT_FILE)?;
        Some(std::fs::read_to_string(file).unwrap_or_else(|error| complain(&error.to_string())))
    });
    let json = json.unwrap_or_else(|| complain(&format!("{SCRIPT} is not set")));
    serde_json::from_str(&json).unwrap_or_else(|error| complain(&format!("bad script: {error}")))
}

/// Reports to the control, if there is one, that this process has started.
fn begin(mode: Mode, args: Vec<String>) -> (Arc<Fake>, Option<Link>) {
    let Some(control) = std::env::var_os(CONTROL) else {
        return (Arc::new(Fake::new(None, 0, args)), None);
    };
    let mut link = Link::connect(control.as_ref());
    let lossy = |text: std::ffi::OsString| text.to_string_lossy().into_owned();
    let start = link.send(&Report::Start {
        mode,
        pid: std::process::id(),
        args: args.clone(),
        env: std::env::vars_os().map(|(name, value)| (lossy(name), lossy(value))).collect(),
        cwd: std::env::current_dir().unwrap_or_default(),
    });
    let start = start.parse().expect("the control answers with a number");
    (Arc::new(Fake::new(Some(control.into()), start, args)), Some(link))
}

fn nth(mut script: Script, start: usize) -> Start {
    let Some(last) = script.starts.len().checked_sub(1) else { complain("the script is empty") };
    if last > 0 && std::env::var_os(CONTROL).is_none() {
        complain("a script with several starts needs a control, which counts them");
    }
    script.starts.swap_remove(start.min(last))
}

fn aside(fake: Arc<Fake>, link: Option<Link>, steps: Option<Vec<Step>>, default: Step) {
    let mut player = Player::new(fake, link);
    for step in steps.unwrap_or_else(|| vec![default]) {
        player.play(&step);
    }
}
