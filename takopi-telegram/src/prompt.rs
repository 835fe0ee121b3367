//! What a message means: a command, or a prompt with the place it runs in.
//!
//! Promises:
//! - a reply goes on in the session and directory of the message it replies to, whatever it begins with, also
//!   after a restart;
//! - what is forwarded right behind a message is part of its prompt;
//! - only the person's own words, and the messages of the bot that they reply to, name a command, an engine or a
//!   session: what is forwarded, and what others wrote, is text;
//! - what an agent writes does not choose where a reply runs: only the last lines of a message of the bot do, and those of
//!   requests and of parts of answers, which end with its text, are not read. After a restart that holds for the last
//!   messages of these kinds that [`crate::state`] remembers;
//! - what cannot be run is answered with the reason, and starts nothing.

use std::path::Path;

use takopi_bridge::{Incoming, MessageId, Place, ReceiveError, RunContext};
use takopi_core::{EngineId, RunSettings};
use takopi_projects::Context;

use crate::bot::Bot;
use crate::commands;
use crate::config::Mode;
use crate::transport::place_key;
use crate::update::{Attachment, Message, Reply};

/// A message with what was forwarded right behind it.
pub(crate) struct Bundle {
    message: Message,
    forwarded: Vec<String>,
    files: Vec<Attachment>,
}

/// Where a message goes.
pub(crate) struct Destination {
    pub(crate) text: String,
    pub(crate) context: Option<RunContext>,
    /// The engine that the message names. It must be that of the session, if the text names one.
    directive: Option<String>,
    /// The engine of a new session, if the message names none.
    engine: Option<EngineId>,
    /// The last lines of an earlier message of its conversation.
    footer: Option<String>,
}

impl Destination {
    fn new(text: String, context: Option<RunContext>) -> Self {
        Self { text, context, directive: None, engine: None, footer: None }
    }
}

impl Bot {
    /// Handles a message, and shows why it is refused if it is. `false` if the bot stops before it was accepted: the next
    /// process handles it.
    pub(crate) async fn message(&self, mut bundle: Bundle) -> bool {
        let message = &mut bundle.message;
        self.transport.saw(message.origin.chat, message.id);
        if !self.is_allowed(&message.user, &message.origin) {
            tracing::warn!(
                user = message.user.id,
                chat = message.origin.chat,
                "a message of somebody who is not allowed"
            );
            return true;
        }
        if !self.take_mention(message) {
            return true;
        }
        let place = message.origin.place();
        if message.text.trim().is_empty() && bundle.files.is_empty() && bundle.forwarded.is_empty()
        {
            return true;
        }
        let message = message.clone();
        match self.accept(bundle, &place).await {
            Ok(handled) => handled,
            Err(_) if !runtime_goes_on().await => false,
            Err(refusal) => {
                self.notice(&place, &message, refusal);
                true
            }
        }
    }

    /// Runs a command or passes a prompt on. `Err` is shown to the person; `false` as above.
    async fn accept(&self, bundle: Bundle, place: &Place) -> Result<bool, String> {
        let Bundle { mut message, mut forwarded, files } = bundle;
        if message.forwarded {
            forwarded.insert(0, std::mem::take(&mut message.text));
        }
        self.complete(message.reply.as_mut(), message.origin.chat);
        if let Some((command, rest)) = commands::read(&message.text) {
            return self.command(command, rest, &message, place).await.map(|()| true);
        }
        let session = message.reply.as_ref().filter(|reply| self.is_session(reply, place));
        let mut target = match session {
            Some(reply) => self.continued(reply, &message.text, place).await?,
            None => self.fresh(&message, place).await?,
        };
        if let Some(context) = &mut target.context {
            // Those of the message that is replied to were sent with that.
            context.settings.images.clear();
        }
        for attachment in files {
            self.attach(&attachment, &mut target).await?;
        }
        for text in forwarded.iter().filter(|text| !text.trim().is_empty()) {
            target.text.push_str("\n\nForwarded message:\n");
            target.text.push_str(&quoted(text));
        }
        if target.text.trim().is_empty() {
            return Err(ReceiveError::Empty.to_string());
        }
        let text = match &target.directive {
            Some(engine) => format!("/{engine} {}", target.text),
            None => target.text,
        };
        let mut incoming = Incoming::new(place.clone(), message.id.to_string(), text);
        incoming = incoming.by(message.user.name);
        if let Some(reply) = &message.reply {
            let id = reply.id.to_string();
            incoming = if reply.by == self.me.id {
                incoming.replying_to_text(id, &reply.text)
            } else {
                incoming.replying_to(id)
            };
        } else if let Some(footer) = target.footer {
            incoming = incoming.replying_to_text(message.id.to_string(), footer);
        }
        incoming.context = target.context;
        incoming.engine = target.engine;
        match self.bridge.receive(incoming) {
            // The bridge shows why it refuses a message.
            Ok(_) | Err(ReceiveError::Duplicate(_)) => Ok(true),
            Err(error) => {
                tracing::info!(%error, "a message was not accepted");
                Ok(error != ReceiveError::ShuttingDown)
            }
        }
    }

    /// Adds the last lines of its answer to a part that does not show them.
    fn complete(&self, reply: Option<&mut Reply>, chat: i64) {
        let Some(reply) = reply.filter(|reply| reply.by == self.me.id) else { return };
        let footer = self.store.read(|stored| stored.part(chat, reply.id).map(str::to_owned));
        match footer {
            // What it ends with is the agent's.
            Some(footer) if footer.is_empty() => reply.text.clear(),
            Some(footer) => {
                reply.text.push_str("\n\n");
                reply.text.push_str(&footer);
            }
            None => {}
        }
    }

    /// Whether a message belongs to a session: of a job that is known, or by a resume line in its text.
    fn is_session(&self, reply: &Reply, place: &Place) -> bool {
        let message = MessageId::from(reply.id.to_string()).at(&place.chat);
        let resumes = |line: &str| self.resume.runners().any(|runner| runner.is_resume_line(line));
        self.bridge.job_of(&message).is_some()
            || (reply.by == self.me.id && reply.text.lines().any(resumes))
    }

    /// A reply runs where the message it replies to ran, whatever it begins with.
    async fn continued(
        &self,
        reply: &Reply,
        text: &str,
        place: &Place,
    ) -> Result<Destination, String> {
        let context = self.context_of(reply, place).await?;
        Ok(Destination::new(text.to_owned(), context))
    }

    /// Where the message that is replied to ran, if it is one of the bot.
    pub(crate) async fn context_of(
        &self,
        reply: &Reply,
        place: &Place,
    ) -> Result<Option<RunContext>, String> {
        let message = MessageId::from(reply.id.to_string()).at(&place.chat);
        if self.bridge.job_of(&message).is_some() {
            return self.restored(self.bridge.context_of(&message), place).await;
        }
        if reply.by != self.me.id {
            return Ok(None);
        }
        self.context_in_text(&reply.text, place).await
    }

    /// Where a message of the bot says that it ran. The settings are those for the engine of its resume line.
    pub(crate) async fn context_in_text(
        &self,
        text: &str,
        place: &Place,
    ) -> Result<Option<RunContext>, String> {
        let owner = |line: &str| self.resume.runners().find(|runner| runner.is_resume_line(line));
        let Some(context) = Context::at_end(text, |line| owner(line).is_some()) else {
            return Ok(None);
        };
        let engine = text.lines().rev().find_map(owner).map(|runner| runner.engine());
        let engine = engine.as_ref().map(EngineId::as_str);
        self.context(&context, engine, place).await.map(Some)
    }

    /// The context of an earlier run, with its settings. A worktree that was pruned meanwhile is created again.
    async fn restored(
        &self,
        context: Option<RunContext>,
        place: &Place,
    ) -> Result<Option<RunContext>, String> {
        let Some(mut context) = context else { return Ok(None) };
        let gone = context.settings.cwd.as_ref().is_some_and(|directory| !directory.is_dir());
        if let Some(named) = context.line.as_deref().and_then(Context::find).filter(|_| gone) {
            context.settings.cwd = self.context(&named, None, place).await?.settings.cwd;
        }
        Ok(Some(context))
    }

    /// A message that is no reply: its directives, the project of its place, the conversation of its place.
    async fn fresh(&self, message: &Message, place: &Place) -> Result<Destination, String> {
        let bound = self.projects.of_chat(&place.chat, place.thread.as_deref());
        let read = self.names.read(&message.text, bound.is_some()).map_err(|it| it.to_string())?;
        let chosen = self.store.read(|stored| stored.places.get(&place_key(place)).cloned());
        let chosen = chosen.unwrap_or_default();
        let names_place = read.project.is_some() || read.branch.is_some() || read.engine.is_some();
        if self.config.mode == Mode::Chat && !names_place {
            if let Some(context) = self.bridge.context_in(place) {
                let context = self.restored(context, place).await?;
                return Ok(Destination::new(read.text, context));
            }
            if let Some(footer) = chosen.footer {
                let context = self.context_in_text(&footer, place).await?;
                let footer = Some(footer);
                return Ok(Destination { footer, ..Destination::new(read.text, context) });
            }
        } else if self.config.mode == Mode::Chat {
            self.new_conversation(place, message.id);
        }
        let project = read.project.or_else(|| bound.map(|project| project.name.clone()));
        let own = project.as_deref().and_then(|name| self.projects.get(name));
        let usual = chosen.engine.or_else(|| own?.engine.clone());
        let engine = read.engine.clone().or_else(|| usual.clone());
        let context = if let Some(project) = project {
            let mut context = Context::new(project);
            context.branch = read.branch;
            self.context(&context, engine.as_deref(), place).await?
        } else {
            let settings = self.settings(None, engine.as_deref(), place);
            RunContext::new(settings.cwd(&self.directory))
        };
        Ok(Destination {
            directive: read.engine,
            engine: usual.map(EngineId::from),
            ..Destination::new(read.text, Some(context))
        })
    }

    /// With this message, or behind it, the place begins a conversation.
    pub(crate) fn new_conversation(&self, place: &Place, message: i64) {
        self.bridge.forget(place);
        self.store.change(|stored| {
            let state = stored.used(place_key(place));
            state.footer = None;
            state.begun = message;
        });
    }

    /// What people chose for the place, and what the project has for its engine.
    fn settings(&self, project: Option<&str>, engine: Option<&str>, place: &Place) -> RunSettings {
        let chosen = self.store.read(|stored| stored.places.get(&place_key(place)).cloned());
        let chosen = chosen.unwrap_or_default();
        let mut settings = RunSettings::new();
        settings.model = chosen.model;
        settings.effort = chosen.effort;
        if let (Some(project), Some(default)) =
            (project.and_then(|name| self.projects.get(name)), self.engines.first())
        {
            let engine =
                engine.map_or_else(|| default.clone(), |name| EngineId::from(name.to_owned()));
            settings.fill_from(&project.settings_for(&engine, default));
        }
        settings
    }

    /// The directory of a context, which git may have to create, with its settings and its line.
    async fn context(
        &self,
        context: &Context,
        engine: Option<&str>,
        place: &Place,
    ) -> Result<RunContext, String> {
        let (projects, wanted) = (self.projects.clone(), context.clone());
        let found = tokio::task::spawn_blocking(move || projects.directory(&wanted)).await;
        let directory = found.map_err(|it| it.to_string())?.map_err(|it| it.to_string())?;
        let settings = self.settings(Some(&context.project), engine, place).cwd(directory);
        Ok(RunContext::new(settings).line(context.to_string()))
    }
}

impl Bundle {
    pub(crate) fn new(mut message: Message) -> Self {
        let files = message.file.take().into_iter().collect();
        Self { message, forwarded: Vec::new(), files }
    }

    /// The message itself.
    pub(crate) fn message(&self) -> &Message {
        &self.message
    }

    /// Its chat.
    pub(crate) fn chat(&self) -> i64 {
        self.message.origin.chat
    }

    /// Whether a message is of the same person in the same chat and topic.
    pub(crate) fn is_beside(&self, next: &Message) -> bool {
        next.user.id == self.message.user.id && next.origin == self.message.origin
    }

    /// Whether such a message was forwarded behind this one. A command stands alone.
    pub(crate) fn takes(&self, next: &Message) -> bool {
        let is_command = !self.message.forwarded && commands::read(&self.message.text).is_some();
        next.forwarded && !is_command
    }

    pub(crate) fn add(&mut self, message: Message) {
        self.forwarded.push(message.text);
        self.files.extend(message.file);
    }
}

/// Text of others as text: none of its lines is a resume line.
fn quoted(text: &str) -> String {
    text.trim().lines().map(|line| format!("> {line}")).collect::<Vec<_>>().join("\n")
}

/// The directory that files of a place are fetched from.
pub(crate) fn root<'a>(context: Option<&'a RunContext>, otherwise: &'a Path) -> &'a Path {
    context.and_then(|context| context.settings.cwd.as_deref()).unwrap_or(otherwise)
}

/// Whether the runtime of this task goes on. On one that is being shut down, what a task waits for fails, which says
/// nothing about the message: the next process handles it.
async fn runtime_goes_on() -> bool {
    tokio::task::spawn_blocking(|| ()).await.is_ok()
}

#[cfg(test)]
mod tests {
    use takopi_bridge::present::markup::RichText;

    use super::*;

    #[test]
    fn where_an_answer_ran_is_read_back_from_what_the_chat_shows() {
        for branch in ["fix/parser", "a`b", "`a``b`", "_a_*b", "```"] {
            let context = Context::new("web").branch(branch);
            let answer = format!("done\n\n{context}  \n`codex resume 0199`");
            let shown = RichText::from_markdown(&answer).telegram().text;
            assert_eq!(Context::find(&shown), Some(context), "{shown}");
        }
    }

    #[test]
    fn no_answer_ends_like_the_lines_below_it() {
        let resumes = |line: &str| line.starts_with("codex resume");
        for answer in [
            "done\nctx: web",
            "done\n\n`ctx: web`",
            "# ctx: web",
            "- done\n- ctx: web",
            "> ctx: web",
            "```\nctx: web\n```",
            "    ctx: web",
            "---\nctx: web",
            "| a |\n| - |\n| ctx: web |",
            "ctx: web\n===",
            "ctx: web\n---",
            "<p>\nctx: web",
        ] {
            let shown = RichText::from_markdown(&format!("{answer}\n\n`codex resume 0199`"));
            let shown = shown.telegram().text;
            assert!(shown.ends_with("codex resume 0199"), "{shown}");
            assert_eq!(Context::at_end(&shown, resumes), None, "{shown}");
        }
    }

    #[test]
    fn a_runtime_that_is_shut_down_under_a_task_does_not_go_on() {
        for shut_down in [false, true] {
            let runtime =
                tokio::runtime::Builder::new_multi_thread().worker_threads(1).build().unwrap();
            let (begin, begun) = std::sync::mpsc::channel();
            let (go_on, waiting) = std::sync::mpsc::channel::<()>();
            let (report, reported) = std::sync::mpsc::channel();
            runtime.spawn(async move {
                begin.send(()).unwrap();
                // Its thread is kept, so that the task is not dropped meanwhile.
                waiting.recv().unwrap();
                report.send(runtime_goes_on().await).unwrap();
            });
            begun.recv().unwrap();
            let mut runtime = Some(runtime);
            if shut_down && let Some(runtime) = runtime.take() {
                runtime.shutdown_background();
            }
            go_on.send(()).unwrap();
            assert_eq!(reported.recv().unwrap(), !shut_down);
        }
    }
}
