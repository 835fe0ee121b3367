//! `fake-codex`: plays the script in its environment as `codex exec`, `codex app-server`,
//! `codex --version` or `codex login`. The scripts are described in `takopi_tests::codex::fake`.
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
mod state;

use takopi_tests::codex::fake::report::Mode;
use takopi_tests::codex::fake::{Script, Step};
use takopi_tests::fake::play::{Begun, aside, begin, complain, nth};

fn main() {
    let Begun { mode, script, fake, link } = begin::<Script>(mode);
    match mode {
        Mode::Version => aside(fake, link, script.version, Step::line("codex-cli 0.166.0")),
        Mode::Login => aside(fake, link, script.login, Step::stderr("Logged in using ChatGPT")),
        Mode::AppServer => match nth(script.starts, fake.start).app_server {
            Some(server) => app_server::run(fake, link, server),
            None => complain("the script has no app_server"),
        },
        _ => match nth(script.starts, fake.start).exec {
            Some(steps) => exec::run(&fake, link, &steps),
            None => complain("the script has no exec"),
        },
    }
    std::process::exit(0);
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
