//! Processes that a fake leaves behind.
//!
//! A grandchild is this program again, under [`COMMAND`]. It reports that it is ready on its stdin, a
//! socket to the fake, then sleeps on a connection of its own to the control.

use std::io::{BufRead, BufReader, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use crate::fake::report::Report;
use crate::fake::{Grandchild, Place};
use nix::unistd::{Pid, setpgid, setsid};
use serde::{Deserialize, Serialize};

use super::link::Link;
use super::{complain, player, signals};

/// The first argument of a grandchild; the second is its plan.
pub(crate) const COMMAND: &str = "__grandchild";

#[derive(Clone, Serialize, Deserialize)]
struct Plan {
    grandchild: Grandchild,
    control: PathBuf,
    start: usize,
    /// Whether this process only starts the grandchild and exits, which detaches it.
    middleman: bool,
}

/// Starts a grandchild and returns its pid when it is ready.
pub(crate) fn spawn(grandchild: &Grandchild, control: PathBuf, start: usize) -> u32 {
    let (ready, theirs) = UnixStream::pair().expect("a pair of sockets");
    let middleman = grandchild.place == Place::Detached;
    let plan = Plan { grandchild: grandchild.clone(), control, start, middleman };
    let mut child = command(&plan, OwnedFd::from(theirs).into()).spawn().expect("a grandchild");
    if middleman {
        child.wait().expect("a middleman that exits");
    } else {
        std::thread::spawn(move || child.wait());
    }
    let mut pid = String::new();
    let read = BufReader::new(ready).read_line(&mut pid);
    let pid = read.ok().and_then(|_| pid.trim_end().parse().ok());
    pid.unwrap_or_else(|| complain(&format!("grandchild {:?} did not start", grandchild.name)))
}

/// The life of a grandchild.
pub(crate) fn live(plan: &str) -> ! {
    let plan: Plan = serde_json::from_str(plan).expect("a plan made by spawn");
    if plan.middleman {
        let plan = Plan { middleman: false, ..plan };
        let spawned = command(&plan, Stdio::inherit()).spawn();
        spawned.expect("a grandchild");
        std::process::exit(0);
    }
    match plan.grandchild.place {
        Place::SameGroup => {}
        Place::OwnGroup => setpgid(Pid::from_raw(0), Pid::from_raw(0)).expect("a group"),
        Place::OwnSession | Place::Detached => drop(setsid().expect("a session")),
    }
    signals::restore();
    signals::ignore(&plan.grandchild.ignores);
    let pid = std::process::id();
    let mut link = Link::connect(&plan.control);
    link.send(&Report::Grandchild { name: plan.grandchild.name, start: plan.start, pid });
    let ready = std::io::stdin().as_fd().try_clone_to_owned().expect("a socket on stdin");
    writeln!(UnixStream::from(ready), "{pid}").unwrap_or_default();
    player::close_stdin();
    link.sleep()
}

fn command(plan: &Plan, stdin: Stdio) -> Command {
    let keep = |kept: bool| {
        if kept { Stdio::inherit() } else { Stdio::null() }
    };
    let mut command = Command::new(std::env::current_exe().expect("the fake's own executable"));
    command
        .arg(COMMAND)
        .arg(serde_json::to_string(plan).expect("a plan is plain data"))
        .stdin(stdin)
        .stdout(keep(plan.grandchild.holds_stdout))
        .stderr(keep(plan.grandchild.holds_stderr));
    if plan.grandchild.clears_env {
        command.env_clear();
    }
    command
}
