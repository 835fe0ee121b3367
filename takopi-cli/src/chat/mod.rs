//! `takopi chat`: as many conversations with the agent as you like, on one terminal.
//!
//! What is typed while a turn runs waits for its turn, visibly. Ctrl-C cancels the turn that runs, a
//! second one leaves. Without a terminal each line of standard input is taken as if it were typed,
//! answers go to standard output in the order they come, and it ends when everything is answered. A
//! line that looks like a command and is none is refused. Leaving cancels what runs, and waits until
//! nothing is left of it.

mod desk;
mod editor;
mod input;

use std::collections::HashMap;
use std::io::IsTerminal as _;
use std::sync::Arc;
use std::time::Duration;

use takopi_bridge::present::{Line, Style, one_line};
use takopi_bridge::scheduler::Standing;
use takopi_bridge::transport::Content;
use takopi_bridge::{Bridge, End, Incoming, JobId, Listed, Place, Report, Target};
use takopi_core::{Completed, EngineId, Host, Reason};
use tokio::sync::mpsc;

use crate::args::{Approve, ChatArgs};
use crate::signals::{self, Signal};
use crate::terminal::Terminal;
use crate::{answer, approve, conversation, exit, run};
use desk::{Desk, View};
use editor::Typed;
use input::Input;

/// How often a message is kept current.
const INTERVAL: Duration = Duration::from_millis(100);
/// How many messages are taken from a pipe before they are answered; the rest waits there.
const AHEAD: usize = 64;
/// The letters of a title.
const TITLE: usize = 60;
const HELP: &str = "\
/new  begin another conversation
/sessions  list the conversations; /switch N  go on with one
/queue  list what waits and runs; /cancel  cancel all of this conversation
/quit  leave
A message with a resume line goes on with that session; /demo in front of one asks the demo engine.
A space in front sends what looks like a command.";
/// The commands.
const COMMANDS: [&str; 7] = ["/quit", "/help", "/new", "/sessions", "/queue", "/cancel", "/switch"];

pub(crate) fn main(args: ChatArgs, terminal: Terminal) -> anyhow::Result<u8> {
    let router = conversation::router(&args.options, args.keep_warm)?;
    let typing = terminal.draws && std::io::stdin().is_terminal();
    let approve = if typing { Approve::Ask } else { Approve::Deny };
    let settings = conversation::settings(args.options, approve, INTERVAL);
    let engines = router.runners().map(|runner| runner.engine()).collect();
    run::runtime()?.block_on(async {
        let (desk, changes) = Desk::new();
        let chat = Chat {
            bridge: Arc::new(Bridge::new(desk, router, settings)),
            engines,
            view: View::new(terminal, typing),
            titles: Vec::new(),
            current: 1,
            messages: 0,
            said: HashMap::new(),
            last_words: HashMap::new(),
            warned: false,
            failed: false,
        };
        chat.go(changes, Input::new(typing)).await
    })
}

struct Chat {
    bridge: Arc<Bridge<Desk>>,
    /// Those that a message can name.
    engines: Vec<EngineId>,
    view: View,
    /// The conversations, by their first words. They count from one.
    titles: Vec<String>,
    current: usize,
    messages: u64,
    /// What was said, by the jobs that are not over.
    said: HashMap<JobId, String>,
    /// The parts of the last words on those that are over and not yet reported.
    last_words: HashMap<JobId, Vec<Content>>,
    /// One more Ctrl-C leaves.
    warned: bool,
    failed: bool,
}

impl Chat {
    async fn go(
        mut self,
        mut changes: mpsc::Receiver<desk::Change>,
        mut input: Input,
    ) -> anyhow::Result<u8> {
        let (mut signals, mut continued) = (signals::forward()?, signals::continued()?);
        let (ended, mut reports) = mpsc::channel(16);
        let (mut listens, mut leaving, mut left, mut code) = (true, None, false, None);
        // Every job that was taken is reported, and every report is shown.
        while !left || !self.said.is_empty() {
            self.view.draw(&format!("[{}] › ", self.current), &input.editor);
            if !listens && self.said.is_empty() && leaving.is_none() {
                leaving = Some(self.leave());
            }
            tokio::select! {
                biased;
                Some(signal) = signals.recv() => {
                    input.interrupt();
                    if leaving.is_some() {
                        signals::leave(signal);
                    }
                    if signal != Signal::Interrupt || self.interrupt() {
                        (listens, code) = (false, Some(signal.code()));
                        leaving = Some(self.leave());
                    }
                }
                Some(()) = continued.recv() => {
                    input.prepare_again();
                    self.view.take_again();
                }
                Some(change) = changes.recv() => {
                    if let Some(last_word) = self.view.change(change) && let Some(job) = last_word.job {
                        self.last_words.entry(job).or_default().push(last_word);
                    }
                }
                Some((number, report)) = reports.recv() => self.ended(number, report)?,
                typed = input.next(), if listens && (input.is_typed() || self.said.len() < AHEAD) => match typed {
                    Typed::Some => self.warned = false,
                    Typed::Line(line) => {
                        self.warned = false;
                        if !self.line(&line, &ended) {
                            listens = false;
                            leaving = Some(self.leave());
                        }
                    }
                    Typed::End => {
                        listens = false;
                        if input.is_typed() {
                            leaving = Some(self.leave());
                        }
                    }
                },
                _ = async { leaving.as_mut()?.await.ok() }, if leaving.is_some() && !left => left = true,
            }
        }
        let failed = if self.failed && !self.view.is_drawn() { exit::FAILED } else { exit::OK };
        Ok(code.unwrap_or(failed))
    }

    /// Cancels what runs, in a task of its own, so that the ends are still seen.
    fn leave(&self) -> tokio::task::JoinHandle<()> {
        let bridge = self.bridge.clone();
        tokio::spawn(async move {
            bridge.shutdown().await;
            if let Ok(host) = Host::global() {
                host.settle().await;
            }
        })
    }

    /// Cancels the turn that runs; `true` if it is time to leave.
    fn interrupt(&mut self) -> bool {
        if std::mem::replace(&mut self.warned, true) {
            return true;
        }
        let here = self.place();
        let mut running = self.jobs().into_iter().filter(|job| job.place == here);
        let running = running.find(|job| job.standing == Standing::Running);
        match running {
            Some(job) => self.cancel(job.job),
            None => self.note("nothing runs in this conversation"),
        }
        self.note("Ctrl-C once more leaves");
        false
    }

    /// Takes in a line; `false` if it says to leave.
    fn line(&mut self, line: &str, ended: &mpsc::Sender<(usize, Report)>) -> bool {
        let mut words = line.split_whitespace();
        match (words.next(), words.next()) {
            (None, _) => {}
            _ if line.starts_with(' ') => self.message(line, ended),
            (Some("/quit"), None) => return false,
            (Some("/help"), None) => self.view.say(HELP),
            (Some("/new"), None) => self.current = self.titles.len() + 1,
            (Some("/sessions"), None) => self.list_sessions(),
            (Some("/queue"), None) => self.list_jobs(),
            (Some("/cancel"), None) => self.cancel(self.place()),
            (Some("/switch"), number) => match number.and_then(|it| it.parse().ok()) {
                Some(number) if (1..=self.titles.len()).contains(&number) => self.current = number,
                _ => self.error("/switch takes the number of a conversation; /sessions lists them"),
            },
            (Some(word), None) if self.answers(word) => {}
            (Some(word), _) if self.is_mistyped(word) && !line.trim_end().contains('\n') => {
                self.failed = true;
                let what = if COMMANDS.contains(&word) {
                    format!("{word} takes nothing behind it")
                } else {
                    format!("there is no {word}; /help lists what there is")
                };
                self.error(&format!("{what}; a space in front sends it as a message"));
            }
            _ => self.message(line, ended),
        }
        true
    }

    /// Whether the first word of a line looks like a command and is no engine. Paths do not.
    fn is_mistyped(&self, word: &str) -> bool {
        let Some(name) = word.strip_prefix('/').filter(|name| !name.is_empty()) else {
            return false;
        };
        let plain = name.chars().all(|letter| letter.is_alphanumeric() || "-_".contains(letter));
        plain && !self.engines.iter().any(|engine| engine.as_str().eq_ignore_ascii_case(name))
    }

    /// Answers the question that is asked in this conversation, if this is an answer to one. Leave
    /// that another one asks for is not given from here.
    fn answers(&mut self, word: &str) -> bool {
        let mut letters = word.chars();
        let decision =
            letters.next().and_then(approve::decision).filter(|_| letters.next().is_none());
        let Some(decision) = decision else { return false };
        let here = self.place();
        let question = self.view.questions().find(|question| question.chat == here.chat);
        if let Some(question) = question {
            // It may have been withdrawn in this moment, or be too long to be accepted unseen.
            if let Err(why) = self.bridge.choose(question, decision, "you") {
                self.note(&why.to_string());
            }
            return true;
        }
        let elsewhere = self.view.questions().next().map(|question| question.chat.clone());
        if let Some(chat) = &elsewhere {
            self.note(&format!("nothing is asked here; asked in [{chat}]: /switch {chat}"));
        }
        elsewhere.is_some()
    }

    fn message(&mut self, text: &str, ended: &mpsc::Sender<(usize, Report)>) {
        let number = self.current;
        if number > self.titles.len() {
            self.titles.push(one_line(text, TITLE));
        }
        let prompt = Line::new()
            .with(Style::Good, format!("[{number}] › "))
            .with(Style::Strong, one_line(text, 1000));
        if self.view.is_drawn() {
            self.view.stay(&[prompt]);
        }
        self.messages += 1;
        let incoming = Incoming::new(self.place(), self.messages.to_string(), text).by("you");
        // The kit says why a message is not taken.
        let Ok(job) = self.bridge.receive(incoming) else {
            self.failed = true;
            return;
        };
        self.said.insert(job.id, one_line(text, TITLE));
        let ended = ended.clone();
        tokio::spawn(async move { ended.send((number, job.report().await)).await });
    }

    /// Says how a job ended.
    fn ended(&mut self, number: usize, report: Report) -> anyhow::Result<()> {
        let said = self.said.remove(&report.job).unwrap_or_default();
        let last_words = self.last_words.remove(&report.job).unwrap_or_default();
        let head = last_words.first().and_then(|it| it.text.lines().next()).unwrap_or_default();
        let resume = last_words.iter().find_map(|it| it.resume_line.as_deref());
        match report.end {
            End::Ran(completed) => {
                let Completed { ok, answer, error, reason, .. } = *completed;
                self.failed |= !ok;
                let around = if self.view.is_drawn() { &[Line::new()][..] } else { &[] };
                if !answer.is_empty() {
                    self.view.stay(around);
                    self.view.aside(|terminal| answer::print(&answer, terminal))?;
                    self.view.stay(around);
                }
                // What was cancelled is told below.
                if let Some(error) = error.filter(|_| !ok && reason != Some(Reason::Interrupted)) {
                    self.error(&error);
                }
                self.view.stay(&[Line::new().with(Style::Dim, format!("[{number}] {head}"))]);
                if let Some(line) = resume {
                    self.view.stay(&[Line::new().with(Style::Dim, line.trim_matches('`'))]);
                }
            }
            End::Steered(_) => {}
            _ => {
                self.failed = true;
                self.note(&format!("it never began: {said}"));
            }
        }
        Ok(())
    }

    /// Cancels something, and says what that was.
    fn cancel(&mut self, target: impl Into<Target>) {
        let cancelled = self.bridge.cancel(target, Some("you"));
        if cancelled.is_empty() {
            self.note("nothing waits or runs in this conversation");
        }
        for cancelled in cancelled {
            let said = self.said.get(&cancelled.job).cloned().unwrap_or_default();
            self.note(&format!("{cancelled}: {said}"));
        }
    }

    fn list_sessions(&mut self) {
        let jobs = self.jobs();
        let lines = self.titles.iter().enumerate().map(|(at, title)| {
            let number = at + 1;
            let place = Place::new(number.to_string());
            let state = jobs.iter().find(|job| job.place == place).map(state).unwrap_or_default();
            let mark = if number == self.current { "▸" } else { " " };
            Line::new()
                .with(Style::Plain, format!("{mark} {number}  {title}"))
                .with(Style::Warn, format!("  {state}"))
        });
        let lines: Vec<Line> = lines.collect();
        self.view.stay(&lines);
    }

    fn list_jobs(&mut self) {
        let lines = self.jobs().into_iter().map(|job| {
            let said = self.said.get(&job.job).map_or("", String::as_str);
            let head = format!("[{}] {}", job.place.chat, state(&job));
            Line::new().with(Style::Warn, head).with(Style::Plain, format!("  {said}"))
        });
        let lines: Vec<Line> = lines.collect();
        match lines.as_slice() {
            [] => self.note("nothing waits or runs"),
            lines => self.view.stay(lines),
        }
    }

    fn jobs(&self) -> Vec<Listed> {
        self.bridge.jobs()
    }

    fn place(&self) -> Place {
        Place::new(self.current.to_string())
    }

    fn note(&mut self, text: &str) {
        self.view.aside(|terminal| terminal.note(text));
    }

    fn error(&mut self, text: &str) {
        self.view.aside(|terminal| terminal.error(text));
    }
}

fn state(job: &Listed) -> String {
    match job.standing {
        Standing::Running => "running".to_owned(),
        standing => standing.to_string(),
    }
}
