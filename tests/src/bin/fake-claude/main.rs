//! `fake-claude`: plays the script in its environment as `claude -p` over its two-way stream, `claude --version` or
//! `claude auth`. The scripts are described in `takopi_tests::claude::fake`.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test tool: a failure here is a test's failure"
)]

mod defaults;
mod duplex;
mod state;

use takopi_tests::claude::fake::report::Mode;
use takopi_tests::claude::fake::{Script, Step};
use takopi_tests::fake::play::{Begun, aside, begin, complain, nth};

fn main() {
    let Begun { mode, script, fake, link } = begin::<Script>(mode);
    match mode {
        Mode::Version => aside(fake, link, script.version, Step::line("2.1.325 (Claude Code)")),
        Mode::Login => aside(fake, link, script.auth, Step::line(defaults::AUTH)),
        _ => {
            let process = nth(script.starts, fake.start);
            duplex::run(&fake, link, process);
        }
    }
    std::process::exit(0);
}

fn mode(args: &[String]) -> Mode {
    let has = |word: &str| args.iter().any(|arg| arg == word);
    let first = args.first().map(String::as_str);
    if has("--version") || has("-v") {
        Mode::Version
    } else if first == Some("auth") {
        Mode::Login
    } else if (has("-p") || has("--print"))
        && args.iter().any(|it| it.starts_with("--input-format"))
    {
        Mode::Duplex
    } else {
        complain(&format!("not started with -p and --input-format stream-json: {args:?}"))
    }
}
