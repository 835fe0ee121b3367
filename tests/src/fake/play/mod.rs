//! What the programs of the fakes are made of: they read the script in their environment, report to the test's control and
//! play steps.
//!
//! A fake is started thousands of times by a chaos test: plain threads, no runtime, nothing done that the script does not ask
//! for.

mod asks;
mod grandchild;
mod link;
pub mod output;
mod player;
mod signals;
mod vars;

use std::sync::Arc;

use serde::de::DeserializeOwned;

pub use self::asks::{Asks, Settled};
pub use self::link::Link;
pub use self::player::{Fake, Player};
pub use self::vars::Vars;
use super::report::{Mode, Report};
use super::{BAD_SCRIPT, CONTROL, Rule, SCRIPT, SCRIPT_FILE, Step};

/// A fake that has begun.
#[derive(Debug)]
pub struct Begun<T> {
    /// What it was started as.
    pub mode: Mode,
    /// What it is to do.
    pub script: T,
    /// What its threads share.
    pub fake: Arc<Fake>,
    /// The connection of its main thread to the control, if there is one.
    pub link: Option<Link>,
}

/// Reads arguments and script, and reports to the control that this process has begun. A grandchild never comes back.
pub fn begin<T: DeserializeOwned>(mode: fn(&[String]) -> Mode) -> Begun<T> {
    let args: Vec<String> =
        std::env::args_os().skip(1).map(|arg| arg.to_string_lossy().into_owned()).collect();
    if let [grandchild::COMMAND, plan] = args.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        grandchild::live(plan);
    }
    let mode = mode(&args);
    let script = script();
    let (fake, link) = report(mode, args);
    Begun { mode, script, fake, link }
}

/// Ends a fake whose script cannot be played, loudly.
pub fn complain(what: &str) -> ! {
    let program = std::env::current_exe().unwrap_or_default();
    eprintln!("{}: {what}", program.file_name().unwrap_or_default().display());
    std::process::exit(BAD_SCRIPT);
}

fn script<T: DeserializeOwned>() -> T {
    let json = std::env::var(SCRIPT).ok().or_else(|| {
        let file = std::env::var_os(SCRIPT_FILE)?;
        Some(std::fs::read_to_string(file).unwrap_or_else(|error| complain(&error.to_string())))
    });
    let json = json.unwrap_or_else(|| complain(&format!("{SCRIPT} is not set")));
    serde_json::from_str(&json).unwrap_or_else(|error| complain(&format!("bad script: {error}")))
}

/// Reports to the control, if there is one, that this process has started.
fn report(mode: Mode, args: Vec<String>) -> (Arc<Fake>, Option<Link>) {
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

/// What the `start`th process does; the last entry repeats.
pub fn nth<T>(mut starts: Vec<T>, start: usize) -> T {
    let Some(last) = starts.len().checked_sub(1) else { complain("the script is empty") };
    if last > 0 && std::env::var_os(CONTROL).is_none() {
        complain("a script with several starts needs a control, which counts them");
    }
    starts.swap_remove(start.min(last))
}

/// Plays the steps of a process that is no session, such as `--version`.
pub fn aside(fake: Arc<Fake>, link: Option<Link>, steps: Option<Vec<Step>>, default: Step) {
    let mut player = Player::new(fake, link);
    for step in steps.unwrap_or_else(|| vec![default]) {
        player.play(&step);
    }
}

/// How often each rule of a script was used.
#[derive(Debug, Default)]
pub struct Used(Vec<usize>);

impl Used {
    /// The steps of the first rule that fits the call and is not used up.
    pub fn rule(&mut self, rules: &[Rule], method: &str, text: &str) -> Option<Vec<Step>> {
        self.0.resize(rules.len(), 0);
        let at = rules.iter().zip(&self.0).position(|(rule, used)| {
            rule.method == method
                && rule.containing.as_ref().is_none_or(|needle| text.contains(needle))
                && rule.times.is_none_or(|times| *used < times)
        })?;
        self.0[at] += 1;
        Some(rules[at].steps.clone())
    }
}
