//! `takopi chat`: one or more conversations with the agent on one terminal.
//!
//! A message that is sent while a turn runs waits for it, visibly. Ctrl-C drops what is being typed; else it
//! cancels the running turn, and a second one exits. Without a terminal each line of standard input is handled as if it were typed, answers go to
//! standard output in the order they arrive, and the chat ends when everything is answered. A line that
//! looks like a command but is none is refused. The exit cancels what runs, and waits until no process is
//! left.

mod asked;
mod complete;
mod display;
mod input;
mod line;
mod lists;
mod send;
mod watch;

use std::collections::HashMap;
use std::io::IsTerminal as _;
use std::sync::Arc;
use std::time::Duration;

use takopi_bridge::present::{Line, Style};
use takopi_bridge::transport::Content;
use takopi_bridge::{Bridge, JobEnd, JobId, JobInfo, JobReport, JobStatus, Place};
use takopi_core::{ActionEvent, Completed, EngineId, Host, Reason};
use takopi_projects::Projects;
use tokio::sync::mpsc;

use crate::args::{Approve, ChatArgs};
use crate::editor::{History, Typed};
use crate::signals::{self, Signal};
use crate::terminal::{Label, Terminal, labelled};
use crate::turn::until;
use crate::{conversation, exit, hints, resume, run};
use complete::Completion;
use display::{Change, Mode, Prompt, TerminalTransport, View, answered};
use input::Input;
use line::{After, COMMANDS};
use send::Placing;
use watch::Watch;

/// How often a message is updated.
const INTERVAL: Duration = Duration::from_millis(100);
/// The most unanswered messages that are read from a pipe.
const AHEAD: usize = 64;
/// The most characters of a title.
const TITLE: usize = 60;
/// The file of the state directory with what was typed.
const HISTORY: &str = "chat-history";
/// What a chat on a terminal begins with.
const WELCOME: &str =
    "/help lists the commands; Alt-Enter adds a line, Tab completes, Ctrl-D exits";
pub(crate) fn main(args: &ChatArgs, terminal: Terminal) -> anyhow::Result<u8> {
    let router = conversation::router(&args.options, args.keep_warm)?;
    let typing = terminal.draws && std::io::stdin().is_terminal();
    let approve = if typing { Approve::Ask } else { Approve::Deny };
    let settings = conversation::settings(&args.options, approve, INTERVAL);
    let directory = args.options.settings().cwd.map_or_else(std::env::current_dir, Ok)?;
    let history = if typing {
        History::open(Host::global()?.state_directory().join(HISTORY))
    } else {
        History::default()
    };
    let engines: Vec<EngineId> = router.runners().map(|runner| runner.engine()).collect();
    let words = engines.iter().map(|engine| format!("/{engine}"));
    let projects = args.options.projects.iter().map(|project| format!("/{}", project.name));
    let words = words.chain(projects).chain(COMMANDS.map(str::to_owned));
    let completion = Completion::new(words, directory);
    let mode = if typing { Mode::Drawn } else { Mode::Lines };
    run::runtime()?.block_on(async {
        let watch = Arc::new(Watch::default());
        let streams = typing && terminal.formats();
        let (transport, changes) = TerminalTransport::new(watch.clone(), streams);
        let chat = Chat {
            bridge: Arc::new(Bridge::new(transport, router, settings)),
            engines,
            completion,
            watch,
            projects: args.options.projects.clone(),
            view: View::new(terminal, mode),
            titles: Vec::new(),
            current: 1,
            messages: 0,
            placing: Placing::default(),
            begun: None,
            prompts: HashMap::new(),
            finals: HashMap::new(),
            early: Vec::new(),
            next_interrupt: NextInterrupt::Cancels,
            result: Outcome::Ok,
        };
        chat.run(changes, Input::new(typing, history)).await
    })
}

struct Chat {
    bridge: Arc<Bridge<TerminalTransport>>,
    /// The engines that a message can name.
    engines: Vec<EngineId>,
    completion: Completion,
    /// The events of running jobs, if they are shown.
    watch: Arc<Watch>,
    /// The projects that a message can name.
    projects: Projects,
    view: View,
    /// The titles of the conversations, which are numbered from one.
    titles: Vec<String>,
    current: usize,
    messages: u64,
    /// The messages that wait for git.
    placing: Placing,
    /// How many approval requests had been shown when the line that is being typed was begun.
    begun: Option<u64>,
    /// The conversations and prompts of the jobs that have not ended.
    prompts: HashMap<JobId, Prompt>,
    /// The parts of the final messages of jobs that have ended and are not yet reported.
    finals: HashMap<JobId, Vec<Content>>,
    /// Questions, and what became of them, of turns that began before the end of another was shown.
    early: Vec<Change>,
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
        // Why an answer could not be written.
        let mut unwritten = None;
        if self.view.is_drawn() {
            self.view.print_lines(&[Line::new().with(Style::Dim, WELCOME)]);
        }
        let watch = self.watch.clone();
        // Every accepted job is reported, and every report is shown.
        while !matches!(phase, Phase::Stopped) || self.unanswered() > 0 {
            let prompt = format!("[{}] › ", self.current);
            self.view.draw(&prompt, &input.editor, self.placing.waiting());
            if matches!(phase, Phase::Draining) {
                self.decline_all();
                if self.unanswered() == 0 {
                    phase = self.stop();
                }
            }
            if input.editor.is_empty() {
                self.begun = None;
            }
            let reads =
                matches!(phase, Phase::Reading) && (input.is_typed() || self.unanswered() < AHEAD);
            let due = self.view.due();
            tokio::select! {
                biased;
                Some(signal) = signals.recv() => {
                    let dropped = input.interrupt();
                    if dropped && signal == Signal::Interrupt && matches!(phase, Phase::Reading) {
                        continue;
                    }
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
                // Before anything new is shown: it was typed without having seen that.
                typed = input.next(), if reads => {
                    self.begun.get_or_insert(self.view.requests.shown());
                    self.next_interrupt = NextInterrupt::Cancels;
                    match typed {
                        Typed::Edit => {}
                        Typed::Complete => match self.completion.complete(input.editor.before_cursor()) {
                            complete::Completed::Insert(text) => input.editor.insert(&text),
                            complete::Completed::Offer(what) => input.editor.offer(what),
                        },
                        Typed::Line(line) => {
                            if line::is_kept(&line) {
                                input.editor.keep(&line);
                            }
                            if self.line(&line, &ended) == After::Exit {
                                phase = self.stop();
                            }
                        }
                        Typed::End if input.is_typed() => phase = self.stop(),
                        Typed::End => phase = Phase::Draining,
                    }
                }
                events = watch.next() => self.events(events),
                Some(change) = changes.recv() => self.change(change),
                Some(ended) = reports.recv() => {
                    if let Err(error) = self.ended(ended) {
                        unwritten = Some(error);
                        phase = self.stop();
                    }
                    for change in std::mem::take(&mut self.early) {
                        self.change(change);
                    }
                }
                placed = self.placing.next() => self.placed(placed, &ended),
                () = until(due), if due.is_some() => self.view.show_ripe(),
                () = phase.stopped(), if matches!(phase, Phase::Stopping(_)) => phase = Phase::Stopped,
            }
        }
        if let Some(error) = unwritten {
            return Err(error);
        }
        let failed = self.result == Outcome::Failed && !self.view.is_drawn();
        Ok(code.unwrap_or(if failed { exit::FAILED } else { exit::OK }))
    }

    /// Shows events of running jobs.
    fn events(&mut self, events: impl IntoIterator<Item = (JobId, ActionEvent)>) {
        for (job, event) in events {
            self.view.event(job, &event, self.prompts.get(&job));
        }
    }

    /// Applies a change of a message. What is asked comes after the steps before it, and those come after the
    /// report of the turn before.
    fn change(&mut self, change: Change) {
        let events = self.watch.take();
        self.events(events);
        let is_early = change.asks().is_some_and(|job| self.watch.waits_for_another(job));
        if is_early || self.early.iter().any(|it| it.message() == change.message()) {
            self.early.push(change);
        } else if let Some(message) = self.view.change(change)
            && let Some(job) = message.job
        {
            self.finals.entry(job).or_default().push(message);
        }
    }

    /// Cancels what runs, in a task, so that the ends of jobs are still shown.
    fn stop(&mut self) -> Phase {
        self.cancel_all_placing();
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
            None if self.cancel_placing(self.current) => {}
            None => self.note("nothing is running in this conversation"),
        }
        self.note("press Ctrl-C again to exit");
        After::Continue
    }

    /// Shows how a job ended.
    fn ended(&mut self, ended: Ended) -> anyhow::Result<()> {
        let Ended { conversation, report } = ended;
        if matches!(report.end, JobEnd::Answered) {
            // The job goes on.
            return Ok(());
        }
        let events = self.watch.reported(report.job);
        self.events(events);
        let prompt = self.prompts.remove(&report.job).map(|it| it.1).unwrap_or_default();
        let finals = self.finals.remove(&report.job).unwrap_or_default();
        let head = finals.first().and_then(|it| it.text.lines().next()).unwrap_or_default();
        let resume_line = finals.iter().find_map(|it| it.resume_line.as_deref());
        let mut written = Ok(());
        match report.end {
            JobEnd::Ran(completed) => {
                let Completed { ok, answer, error, reason, .. } = &*completed;
                if !ok {
                    self.result = Outcome::Failed;
                }
                self.view.show_held(report.job, error.as_deref().unwrap_or_default());
                let drawn = self.view.is_drawn();
                if !self.view.has_shown(report.job, answer) && !answer.is_empty() {
                    if drawn {
                        let name = answered(Some(&(conversation, prompt)));
                        self.view.print_lines(&[Line::new(), name]);
                    }
                    // What follows is shown even if the answer cannot be written.
                    written = self.view.answer(answer);
                    if drawn {
                        self.view.print_lines(&[Line::new()]);
                    }
                }
                self.view.print_lines(&[
                    Line::new().with(Style::Dim, format!("[{conversation}] {head}"))
                ]);
                // The line above reports a cancelled run.
                if let Some(error) = error
                    && !ok
                    && *reason != Some(Reason::Interrupted)
                {
                    self.view.print_lines(&labelled(Label::Error, error));
                    if let Some(hint) = hints::of_run(&completed) {
                        self.view.print_lines(&labelled(Label::Hint, &hint));
                    }
                }
                let exists = self.watch.has_started(report.job)
                    || completed
                        .resume
                        .as_ref()
                        .is_some_and(|token| resume::may_exist(token, Some(&completed)));
                if let Some(line) = resume_line.filter(|_| exists) {
                    self.view.print_lines(&[Line::new().with(Style::Dim, line.trim_matches('`'))]);
                }
            }
            JobEnd::Steered(_) | JobEnd::Answered => {}
            _ => {
                self.result = Outcome::Failed;
                self.note(&format!("not started: {prompt}"));
            }
        }
        written
    }

    fn jobs(&self) -> Vec<JobInfo> {
        self.bridge.jobs()
    }

    fn place(&self) -> Place {
        Place::new(self.current.to_string())
    }

    fn note(&mut self, text: &str) {
        self.view.say(&labelled(Label::Note, text));
    }

    fn error(&mut self, text: &str) {
        self.view.say(&labelled(Label::Error, text));
    }
}
