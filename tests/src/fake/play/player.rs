//! Plays the steps that all fakes have.

use std::fs::File;
use std::path::PathBuf;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use crate::fake::report::Report;
use crate::fake::{FOREVER, OVERSLEPT, Step};
use nix::sys::signal::{Signal, kill};
use nix::unistd::{Pid, dup2_stdin, dup2_stdout};

use super::link::Link;
use super::vars::Vars;
use super::{complain, grandchild, output, signals};

/// What all threads of the process share.
#[derive(Debug)]
pub struct Fake {
    /// Directory of the control, if there is one.
    pub control: Option<PathBuf>,
    /// Number of this start.
    pub start: usize,
    /// Arguments, without the program.
    pub args: Vec<String>,
    sequence: Arc<AtomicU64>,
    spawned: Mutex<Vec<u32>>,
}

/// Plays steps on one thread.
#[derive(Debug)]
pub struct Player {
    fake: Arc<Fake>,
    link: Option<Link>,
    /// The placeholders of its steps.
    pub vars: Vars,
}

impl Fake {
    /// A process that has begun.
    pub(crate) fn new(control: Option<PathBuf>, start: usize, args: Vec<String>) -> Self {
        let (sequence, spawned) = (Arc::default(), Mutex::default());
        Self { control, start, args, sequence, spawned }
    }

    fn control(&self) -> PathBuf {
        let needed = || complain("this step needs a control: use Control::env");
        self.control.clone().unwrap_or_else(needed)
    }
}

impl Player {
    /// A player that reports over `link`, or over a connection of its own once it needs one.
    pub fn new(fake: Arc<Fake>, link: Option<Link>) -> Self {
        let mut vars = Vars::new(Arc::clone(&fake.sequence));
        vars.set("START", &fake.start.to_string());
        Self { fake, link, vars }
    }

    /// A player for another thread, with the placeholders as they are now.
    pub fn beside(&self) -> Self {
        Self { fake: Arc::clone(&self.fake), link: None, vars: self.vars.clone() }
    }

    /// Plays a step that all fakes have.
    pub fn play(&mut self, step: &Step) {
        match step {
            Step::Line(text) => output::line(self.vars.fill(text)),
            Step::Raw(bytes) => output::stdout(bytes),
            Step::Huge { head, tail, len } => {
                output::huge(&self.vars.fill(head), &self.vars.fill(tail), *len);
            }
            Step::FloodStdout { line, lines } => {
                output::lines((0..*lines).map(|_| self.vars.fill(line)));
            }
            Step::Stderr(text) => output::stderr(&self.vars.fill(text)),
            Step::FloodStderr(bytes) => output::flood_stderr(*bytes),
            Step::CloseStdout => dup2_stdout(nothing()).expect("stdout can be replaced"),
            Step::CloseStdin => close_stdin(),
            Step::Gate(name) => self.send(&Report::Wait(self.vars.fill(name))),
            Step::Reached(name) => self.send(&Report::Reached(self.vars.fill(name))),
            Step::Spawn(child) => {
                let pid = grandchild::spawn(child, self.fake.control(), self.fake.start);
                self.spawned().push(pid);
            }
            Step::KillSpawned => self.kill_spawned(),
            Step::IgnoreSignals(signals) => signals::ignore(signals),
            Step::OnSignal { signal, steps } => {
                signals::react(*signal, self.beside(), steps.clone());
            }
            Step::Pause { millis } => std::thread::sleep(Duration::from_millis(*millis)),
            Step::SleepForever => self.sleep(),
            Step::Exit(code) => std::process::exit(*code),
            Step::Die(signal) => signals::die(*signal),
            other => complain(&format!("this step has no place here: {other:?}")),
        }
    }

    /// Reports something if there is a control.
    pub fn report(&mut self, report: &Report) {
        if self.fake.control.is_some() {
            self.send(report);
        }
    }

    /// Reports something and waits for the answer.
    fn send(&mut self, report: &Report) {
        self.link().send(report);
    }

    fn link(&mut self) -> &mut Link {
        let fake = &self.fake;
        self.link.get_or_insert_with(|| {
            let mut link = Link::connect(&fake.control());
            link.send(&Report::Join { start: fake.start, pid: std::process::id() });
            link
        })
    }

    fn sleep(&mut self) -> ! {
        if self.fake.control.is_some() {
            self.link().sleep();
        }
        std::thread::sleep(FOREVER);
        std::process::exit(OVERSLEPT);
    }

    fn kill_spawned(&self) {
        for pid in self.spawned().drain(..) {
            let pid = Pid::from_raw(pid.try_into().expect("a pid"));
            let _ = kill(pid, Signal::SIGKILL);
        }
    }

    fn spawned(&self) -> std::sync::MutexGuard<'_, Vec<u32>> {
        self.fake.spawned.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Closes stdin: a writer gets a broken pipe.
pub(crate) fn close_stdin() {
    dup2_stdin(nothing()).expect("stdin can be replaced");
}

fn nothing() -> File {
    File::options().read(true).write(true).open("/dev/null").expect("/dev/null")
}
