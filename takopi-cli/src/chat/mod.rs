//! `takopi chat`: one or more conversations with the agent on one terminal.
//!
//! A message that is sent while a turn runs waits for it, visibly. Ctrl-C cancels the running turn, a second
//! one exits. Without a terminal each line of standard input is handled as if it were typed, answers go to
//! standard output in the order they arrive, and the chat ends when everything is answered. A line that
//! looks like a command but is none is refused. The exit cancels what runs, and waits until no process is
//! left.

mod display;
pub(crate) mod editor;
mod input;

use std::collections::HashMap;
use std::io::IsTerminal as _;
use std::sync::Arc;
use std::time::Duration;

use takopi_bridge::present::{Line, Style, one_line};
use takopi_bridge::transport::Content;
use takopi_bridge::{
    Bridge, Incoming, JobEnd, JobId, JobInfo, JobReport, JobStatus, Place, Target,
};
use takopi_core::{Completed, EngineId, Host, Reason};
use tokio::sync::mpsc;

use crate::args::{Approve, ChatArgs};
use crate::signals::{self, Signal};
use crate::terminal::Terminal;
use crate::{answer, approve, conversation, engines, exit, run};
use display::{Change, Mode, TerminalTransport, View};
use editor::Typed;
use input::Input;

/// How often a message is updated.
const INTERVAL: Duration = Duration::from_millis(100);
/// The most unanswered messages that are read from a pipe.
const AHEAD: usize = 64;
/// The most characters of a title.
const TITLE: usize = 60;
const HELP: &str = "\
/new  start another conversation
/sessions  list the conversations; /switch N  switch to one
/queue  list waiting and running messages; /cancel  cancel those of this conversation
/quit  exit
A message with a resume line resumes that session. The name of an engine before a message sends it to that
engine, in a session of its own: ENGINES.
A space before a line sends it as a message even if it looks like a command.";
/// The commands.
const COMMANDS: [&str; 7] = ["/quit", "/help", "/new", "/sessions", "/queue", "/cancel", "/switch"];

pub(crate) fn main(args: &ChatArgs, terminal: Terminal) -> anyhow::Result<u8> {
    let router = conversation::router(&args.options, args.keep_warm)?;
    let typing = terminal.draws && std::io::stdin().is_terminal();
    let approve = if typing { Approve::Ask } else { Approve::Deny };
    let settings = conversation::settings(&args.options, approve, INTERVAL);
    let engines = router.runners().map(|runner| runner.engine()).collect();
    let mode = if typing { Mode::Drawn } else { Mode::Lines };
    run::runtime()?.block_on(async {
        let (transport, changes) = TerminalTransport::new();
        let chat = Chat {
            bridge: Arc::new(Bridge::new(transport, router, settings)),
            engines,
            view: View::new(terminal, mode),
            titles: Vec::new(),
            current: 1,
            messages: 0,
            prompts: HashMap::new(),
            finals: HashMap::new(),
            next_interrupt: NextInterrupt::Cancels,
            result: Outcome::Ok,
        };
        chat.run(changes, Input::new(typing)).await
    })
}

struct Chat {
    bridge: Arc<Bridge<TerminalTransport>>,
    /// The engines that a message can name.
    engines: Vec<EngineId>,
    view: View,
    /// The titles of the conversations, which are numbered from one.
    titles: Vec<String>,
    current: usize,
    messages: u64,
    /// The prompts of the jobs that have not ended.
    prompts: HashMap<JobId, String>,
    /// The parts of the final messages of jobs that have ended and are not yet reported.
    finals: HashMap<JobId, Vec<Content>>,
    next_interrupt: NextInterrupt,
    result: Outcome,
}

/// The effect of the next Ctrl-C.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum NextInterrupt {
    /// It cancels the running turn.
    Cancels,
    /// It exits.
    Exits,
}

/// Whether everything went well so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Outcome {
    Ok,
    /// A run failed, or a line was refused.
    Failed,
}

/// How far the chat has come.
enum Phase {
    /// Input is read.
    Reading,
    /// The input has ended; messages are still being answered.
    Draining,
    /// What runs is being cancelled.
    Stopping(tokio::task::JoinHandle<()>),
    /// Nothing runs any more; the last reports are shown.
    Stopped,
}

impl Phase {
    /// Waits for the end of [`Phase::Stopping`].
    async fn stopped(&mut self) {
        if let Self::Stopping(task) = self {
            let _ = task.await;
        }
    }
}

/// What a line asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum After {
    Continue,
    Exit,
}

/// A job that has ended.
struct Ended {
    /// The number of its conversation.
    conversation: usize,
    report: JobReport,
}

impl Chat {
    async fn run(
        mut self,
        mut changes: mpsc::Receiver<Change>,
        mut input: Input,
    ) -> anyhow::Result<u8> {
        let (mut signals, mut continued) = (signals::forward()?, signals::continued()?);
        let (ended, mut reports) = mpsc::channel(16);
        let (mut phase, mut code) = (Phase::Reading, None);
        // Every accepted job is reported, and every report is shown.
        while !matches!(phase, Phase::Stopped) || !self.prompts.is_empty() {
            self.view.draw(&format!("[{}] › ", self.current), &input.editor);
            if matches!(phase, Phase::Draining) && self.prompts.is_empty() {
                phase = self.stop();
            }
            let reads =
                matches!(phase, Phase::Reading) && (input.is_typed() || self.prompts.len() < AHEAD);
            tokio::select! {
                biased;
                Some(signal) = signals.recv() => {
                    input.interrupt();
                    if matches!(phase, Phase::Stopping(_) | Phase::Stopped) {
                        signals::exit_now(signal);
                    }
                    if signal != Signal::Interrupt || self.interrupt() == After::Exit {
                        code = Some(signal.code());
                        phase = self.stop();
                    }
                }
                Some(()) = continued.recv() => {
                    input.prepare_again();
                    self.view.redraw();
                }
                Some(change) = changes.recv() => {
                    if let Some(message) = self.view.change(change) && let Some(job) = message.job {
                        self.finals.entry(job).or_default().push(message);
                    }
                }
                Some(ended) = reports.recv() => self.ended(ended)?,
                typed = input.next(), if reads => {
                    self.next_interrupt = NextInterrupt::Cancels;
                    match typed {
                        Typed::Edit => {}
                        Typed::Line(line) => {
                            if self.line(&line, &ended) == After::Exit {
                                phase = self.stop();
                            }
                        }
                        Typed::End if input.is_typed() => phase = self.stop(),
                        Typed::End => phase = Phase::Draining,
                    }
                }
                () = phase.stopped(), if matches!(phase, Phase::Stopping(_)) => phase = Phase::Stopped,
            }
        }
        let failed = self.result == Outcome::Failed && !self.view.is_drawn();
        Ok(code.unwrap_or(if failed { exit::FAILED } else { exit::OK }))
    }

    /// Cancels what runs, in a task, so that the ends of jobs are still shown.
    fn stop(&self) -> Phase {
        let bridge = self.bridge.clone();
        Phase::Stopping(tokio::spawn(async move {
            bridge.shutdown().await;
            if let Ok(host) = Host::global() {
                host.settle().await;
            }
        }))
    }

    /// Handles Ctrl-C: the first cancels the running turn, the second exits.
    fn interrupt(&mut self) -> After {
        if self.next_interrupt == NextInterrupt::Exits {
            return After::Exit;
        }
        self.next_interrupt = NextInterrupt::Exits;
        let here = self.place();
        let mut running = self.jobs().into_iter().filter(|job| job.place == here);
        let running = running.find(|job| job.status == JobStatus::Running);
        match running {
            Some(job) => self.cancel(job.job),
            None => self.note("nothing is running in this conversation"),
        }
        self.note("press Ctrl-C again to exit");
        After::Continue
    }

    /// Handles a line.
    fn line(&mut self, line: &str, ended: &mpsc::Sender<Ended>) -> After {
        let mut words = line.split_whitespace();
        match (words.next(), words.next()) {
            (None, _) => {}
            _ if line.starts_with(' ') => self.message(line, ended),
            (Some("/quit"), None) => return After::Exit,
            (Some("/help"), None) => {
                self.view.print(&HELP.replace("ENGINES", &engines::directives(&self.engines)));
            }
            (Some("/new"), None) => self.current = self.titles.len() + 1,
            (Some("/sessions"), None) => self.list_sessions(),
            (Some("/queue"), None) => self.list_jobs(),
            (Some("/cancel"), None) => self.cancel(self.place()),
            (Some("/switch"), number) => match number.and_then(|it| it.parse().ok()) {
                Some(number) if (1..=self.titles.len()).contains(&number) => self.current = number,
                _ => self.error("/switch needs the number of a conversation; /sessions lists them"),
            },
            (Some(word), None) if self.decides(word) => {}
            (Some(word), _) if self.is_mistyped(word) && !line.trim_end().contains('\n') => {
                self.result = Outcome::Failed;
                let problem = if COMMANDS.contains(&word) {
                    format!("{word} takes no arguments")
                } else {
                    format!("unknown command {word}; /help lists the commands")
                };
                self.error(&format!(
                    "{problem}; to send the line as a message, put a space before it"
                ));
            }
            _ => self.message(line, ended),
        }
        After::Continue
    }

    /// Whether the first word of a line looks like a command and is not an engine. Paths do not.
    fn is_mistyped(&self, word: &str) -> bool {
        let Some(name) = word.strip_prefix('/').filter(|name| !name.is_empty()) else {
            return false;
        };
        let plain = name.chars().all(|it| it.is_alphanumeric() || "-_".contains(it));
        plain && !self.engines.iter().any(|engine| engine.as_str().eq_ignore_ascii_case(name))
    }

    /// Decides the approval request of this conversation, if there is one and the word is a decision.
    /// Requests of other conversations are not decided from here.
    fn decides(&mut self, word: &str) -> bool {
        let mut keys = word.chars();
        let decision = keys.next().and_then(approve::decision).filter(|_| keys.next().is_none());
        let Some(decision) = decision else { return false };
        let here = self.place();
        let question = self.view.questions().find(|question| question.chat == here.chat);
        if let Some(question) = question {
            // It may have been withdrawn, or be too long to be accepted unseen.
            if let Err(error) = self.bridge.choose(question, decision, "you") {
                self.note(&error.to_string());
            }
            return true;
        }
        let elsewhere = self.view.questions().next().map(|question| question.chat.clone());
        if let Some(chat) = &elsewhere {
            self.note(&format!(
                "no approval request here; there is one in [{chat}]: /switch {chat}"
            ));
        }
        elsewhere.is_some()
    }

    fn message(&mut self, text: &str, ended: &mpsc::Sender<Ended>) {
        let conversation = self.current;
        if conversation > self.titles.len() {
            self.titles.push(one_line(text, TITLE));
        }
        let prompt = Line::new()
            .with(Style::Good, format!("[{conversation}] › "))
            .with(Style::Strong, one_line(text, 1000));
        if self.view.is_drawn() {
            self.view.print_lines(&[prompt]);
        }
        self.messages += 1;
        let incoming = Incoming::new(self.place(), self.messages.to_string(), text).by("you");
        // The bridge reports why it refuses a message.
        let Ok(job) = self.bridge.receive(incoming) else {
            self.result = Outcome::Failed;
            return;
        };
        self.prompts.insert(job.id, one_line(text, TITLE));
        let ended = ended.clone();
        tokio::spawn(async move {
            let report = job.report().await;
            ended.send(Ended { conversation, report }).await
        });
    }

    /// Shows how a job ended.
    fn ended(&mut self, ended: Ended) -> anyhow::Result<()> {
        let Ended { conversation, report } = ended;
        let prompt = self.prompts.remove(&report.job).unwrap_or_default();
        let finals = self.finals.remove(&report.job).unwrap_or_default();
        let head = finals.first().and_then(|it| it.text.lines().next()).unwrap_or_default();
        let resume = finals.iter().find_map(|it| it.resume_line.as_deref());
        match report.end {
            JobEnd::Ran(completed) => {
                let Completed { ok, answer, error, reason, .. } = *completed;
                if !ok {
                    self.result = Outcome::Failed;
                }
                let around = if self.view.is_drawn() { &[Line::new()][..] } else { &[] };
                if !answer.is_empty() {
                    self.view.print_lines(around);
                    self.view.aside(|terminal| answer::print(&answer, terminal))?;
                    self.view.print_lines(around);
                }
                // A cancelled run is reported by the line below.
                if let Some(error) = error.filter(|_| !ok && reason != Some(Reason::Interrupted)) {
                    self.error(&error);
                }
                self.view.print_lines(&[
                    Line::new().with(Style::Dim, format!("[{conversation}] {head}"))
                ]);
                if let Some(line) = resume {
                    self.view.print_lines(&[Line::new().with(Style::Dim, line.trim_matches('`'))]);
                }
            }
            JobEnd::Steered(_) | JobEnd::Answered => {}
            _ => {
                self.result = Outcome::Failed;
                self.note(&format!("not started: {prompt}"));
            }
        }
        Ok(())
    }

    /// Cancels jobs, and reports which.
    fn cancel(&mut self, target: impl Into<Target>) {
        let cancelled = self.bridge.cancel(target, Some("you"));
        if cancelled.is_empty() {
            self.note("nothing is waiting or running in this conversation");
        }
        for cancelled in cancelled {
            let prompt = self.prompts.get(&cancelled.job).cloned().unwrap_or_default();
            self.note(&format!("{cancelled}: {prompt}"));
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
        self.view.print_lines(&lines);
    }

    fn list_jobs(&mut self) {
        let lines = self.jobs().into_iter().map(|job| {
            let prompt = self.prompts.get(&job.job).map_or("", String::as_str);
            let head = format!("[{}] {}", job.place.chat, state(&job));
            Line::new().with(Style::Warn, head).with(Style::Plain, format!("  {prompt}"))
        });
        let lines: Vec<Line> = lines.collect();
        match lines.as_slice() {
            [] => self.note("nothing is waiting or running"),
            lines => self.view.print_lines(lines),
        }
    }

    fn jobs(&self) -> Vec<JobInfo> {
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

fn state(job: &JobInfo) -> String {
    match job.status {
        JobStatus::Running => "running".to_owned(),
        status => status.to_string(),
    }
}
