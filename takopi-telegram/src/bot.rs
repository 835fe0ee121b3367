//! The bot: who is answered, and what their messages mean.
//!
//! Promises:
//! - only allowed users are answered, in their private chats and in the configured groups. Anybody else causes
//!   a log line and nothing else, also by pressing buttons or forging their data;
//! - an update is handled once: its number is stored when its job was accepted. One that was not stored when
//!   the process died is delivered again by the service;
//! - nothing but a refused token ends the loop: everything else is retried, with pauses.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use takopi_bridge::present::{Chat, Limit};
use takopi_bridge::{
    Bridge, Continuity, Incoming, MessageId, Pace, Place, Press as Button, PressOutcome,
    ReceiveError, Router, RunContext, Settings, WhileBusy,
};
use takopi_core::{EngineId, RunSettings};
use takopi_projects::{Context, Names, Projects};
use thiserror::Error;
use tokio_util::sync::CancellationToken;

use crate::api::{Api, ApiError};
use crate::commands;
use crate::config::{Config, Mode, Trigger};
use crate::rate::{Limits, Rate};
use crate::state::Store;
use crate::transport::{LIMIT, Telegram, place_key};
use crate::update::{self, Attachment, Message, Press, Reply, Update};

/// How long a failed poll is not repeated, at first and at most.
const FIRST_PAUSE: Duration = Duration::from_millis(500);
const LONGEST_PAUSE: Duration = Duration::from_secs(30);
/// How often and how long a press waits for its message to be known.
const PRESS_RETRIES: usize = 10;
/// … and if no response has named a message as new as that yet.
const LONG_PRESS_RETRIES: usize = 300;
const PRESS_PAUSE: Duration = Duration::from_millis(100);
/// How often a message is edited at most.
const INTERVAL: Duration = Duration::from_secs(2);

/// Why a bot cannot go on.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum BotError {
    /// The service refuses the token.
    #[error("Telegram refuses the token; get the current one from @BotFather")]
    Unauthorized,
    /// The first calls failed.
    #[error("cannot start: {0}")]
    Api(#[from] ApiError),
    /// Nobody would be answered.
    #[error(
        "nobody is allowed to use the bot; set `allowed_users`, or run `takopi telegram setup`"
    )]
    NobodyAllowed,
    /// A project has the name of a command or an engine.
    #[error("project `{0}` has the name of an engine or a command; give it another name")]
    Shadowed(String),
}

/// What a bot is made of. The engines and their settings come with the router.
#[derive(Debug)]
#[non_exhaustive]
pub struct Parts {
    /// The API.
    pub api: Api,
    /// The table `[telegram]`.
    pub config: Config,
    /// The projects.
    pub projects: Projects,
    /// The engines.
    pub router: Router,
    /// The settings of the bridge; the bot sets those that depend on Telegram.
    pub settings: Settings,
    /// What survives a restart.
    pub store: Store,
    /// The limits of the service.
    pub limits: Limits,
    /// Where messages without a project run.
    pub directory: PathBuf,
    /// How often messages are edited and calls are retried.
    pub pace: Pace,
}

impl Parts {
    /// With the limits of the public service.
    pub fn new(api: Api, config: Config, router: Router, store: Store, directory: PathBuf) -> Self {
        let pace = Pace::default().interval(INTERVAL).call_timeout(Duration::from_mins(2));
        let pace = pace.attempts(12).longest_wait(Duration::from_mins(15));
        Self {
            api,
            config,
            projects: Projects::default(),
            router,
            settings: Settings::default(),
            store,
            limits: Limits::default(),
            directory,
            pace,
        }
    }
}

/// A running bot.
#[derive(Debug)]
pub struct Bot {
    pub(crate) api: Api,
    pub(crate) config: Config,
    pub(crate) projects: Projects,
    names: Names,
    pub(crate) transport: Arc<Telegram>,
    pub(crate) bridge: Bridge<Arc<Telegram>>,
    pub(crate) store: Arc<Store>,
    pub(crate) engines: Vec<EngineId>,
    resume: Router,
    me: Me,
    pub(crate) directory: PathBuf,
}

#[derive(Debug)]
struct Me {
    id: i64,
    /// With `@`, in lower case.
    mention: String,
}

/// A message with what was forwarded right behind it.
struct Bundle {
    message: Message,
    forwarded: Vec<String>,
    files: Vec<Attachment>,
}

impl Bot {
    /// Connects to the service, registers the commands, and closes the messages of runs that a crash cut
    /// short.
    pub async fn start(parts: Parts) -> Result<Self, BotError> {
        let Parts { api, config, projects, router, settings, store, limits, directory, pace } =
            parts;
        if config.allowed_users.is_empty() {
            return Err(BotError::NobodyAllowed);
        }
        let engines: Vec<EngineId> = router.runners().map(|runner| runner.engine()).collect();
        let names = engines.iter().map(EngineId::as_str);
        let names = Names::new(names, &projects, commands::names());
        if let Some(name) = names.shadowed() {
            return Err(BotError::Shadowed(name.to_owned()));
        }
        let me = retried(&api, "getMe", &json!({})).await?;
        retried(&api, "deleteWebhook", &json!({})).await?;
        retried(&api, "setMyCommands", &json!({ "commands": commands::menu() })).await?;
        let me = Me {
            id: me["id"].as_i64().unwrap_or_default(),
            mention: format!("@{}", me["username"].as_str().unwrap_or_default()).to_lowercase(),
        };
        let store = Arc::new(store);
        let transport = Arc::new(Telegram::new(api.clone(), Rate::new(limits), store.clone()));
        transport.close_open_messages().await;
        let continuity = match config.mode {
            Mode::Replies => Continuity::Reply,
            Mode::Chat => Continuity::Place,
        };
        let while_busy = if config.steer { WhileBusy::Steer } else { WhileBusy::Queue };
        let settings = settings
            .chat(Chat::new(Limit::Utf16(LIMIT)))
            .continuity(continuity)
            .while_busy(while_busy)
            .pace(pace);
        let resume = router.clone();
        let bridge = Bridge::new(transport.clone(), router, settings);
        Ok(Self {
            api,
            config,
            projects,
            names,
            transport,
            bridge,
            store,
            engines,
            resume,
            me,
            directory,
        })
    }

    /// Handles updates until `stop` fires, then cancels what runs and waits until that is shown.
    pub async fn run(&self, stop: &CancellationToken) -> Result<(), BotError> {
        let ended = tokio::select! {
            biased;
            () = stop.cancelled() => Ok(()),
            error = self.poll() => Err(error),
        };
        self.bridge.shutdown().await;
        ended
    }

    /// Handles updates for ever; returns only when the token is refused.
    async fn poll(&self) -> BotError {
        let mut pause = FIRST_PAUSE;
        loop {
            match self.next_updates().await {
                Ok(updates) => {
                    pause = FIRST_PAUSE;
                    self.handle_all(&updates).await;
                }
                Err(error) if error.code() == Some(401) || error.code() == Some(404) => {
                    return BotError::Unauthorized;
                }
                Err(error) => {
                    if error.code() == Some(409) {
                        tracing::warn!(
                            "another program polls with the same token; stop one of them"
                        );
                    } else {
                        tracing::warn!(%error, "cannot get updates");
                    }
                    tokio::time::sleep(error.retry_after().unwrap_or(pause)).await;
                    pause = (pause * 2).min(LONGEST_PAUSE);
                }
            }
        }
    }

    /// The next updates. What is forwarded behind a message comes a moment later, so the same offset is
    /// asked for again: that confirms nothing.
    async fn next_updates(&self) -> Result<Vec<Value>, ApiError> {
        let offset = self.store.read(|stored| stored.offset);
        let updates = self.api.updates(offset, true).await?;
        let last = updates.last().map(update::read);
        let window = self.config.forward_window;
        if matches!(last, Some(Update::Message(_))) && !window.is_zero() {
            tokio::time::sleep(window).await;
            return Ok(self.api.updates(offset, false).await.unwrap_or(updates));
        }
        Ok(updates)
    }

    async fn handle_all(&self, updates: &[Value]) {
        let mut rest = updates.iter().peekable();
        while let Some(update) = rest.next() {
            let mut number = update::number(update);
            match update::read(update) {
                Update::Message(message) => {
                    let mut bundle = Bundle::new(*message);
                    while let Some(next) = rest.peek() {
                        let Update::Message(forwarded) = update::read(next) else { break };
                        if !bundle.takes(&forwarded) {
                            break;
                        }
                        number = update::number(next);
                        bundle.add(*forwarded);
                        rest.next();
                    }
                    self.message(bundle).await;
                }
                Update::Press(press) => self.press(&press).await,
                Update::Other => {}
            }
            if let Some(number) = number {
                self.store.change(|stored| stored.offset = stored.offset.max(number + 1));
            }
        }
    }

    fn is_allowed(&self, user: i64, chat: i64, private: bool) -> bool {
        let bound = || self.projects.of_chat(&chat.to_string(), None).is_some();
        let chat_allowed = private || self.config.chats.contains(&chat) || bound();
        self.config.allowed_users.contains(&user) && chat_allowed
    }

    async fn press(&self, press: &Press) {
        if !self.is_allowed(press.user.id, press.chat, press.private) {
            tracing::warn!(
                user = press.user.id,
                chat = press.chat,
                "a press by somebody who is not allowed"
            );
            return;
        }
        // The data names no chat and no message: they are those of the message with the button.
        let text = if let Ok(button) = press.data.parse::<Button>() {
            let message = MessageId::from(press.message.to_string()).at(press.chat.to_string());
            let mut outcome = self.bridge.press(&message, button, &press.user.name);
            // People may press before the response with the id of the message is here.
            let is_under_way = press.message > self.transport.newest(press.chat);
            let retries = if is_under_way { LONG_PRESS_RETRIES } else { PRESS_RETRIES };
            for _ in 0..retries {
                if outcome != PressOutcome::UnknownMessage {
                    break;
                }
                tokio::time::sleep(PRESS_PAUSE).await;
                outcome = self.bridge.press(&message, button, &press.user.name);
            }
            outcome.to_string()
        } else {
            tracing::warn!(user = press.user.id, "a press with unknown data");
            "unknown button".to_owned()
        };
        let text: String = text.chars().take(200).collect();
        let params = json!({ "callback_query_id": press.id, "text": text });
        if let Err(error) = self.api.call("answerCallbackQuery", &params).await {
            tracing::warn!(%error, "cannot answer a press");
        }
    }

    async fn message(&self, mut bundle: Bundle) {
        let message = &mut bundle.message;
        self.transport.saw(message.chat, message.id);
        if !self.is_allowed(message.user.id, message.chat, message.private) {
            tracing::warn!(
                user = message.user.id,
                chat = message.chat,
                "a message of somebody who is not allowed"
            );
            return;
        }
        if !self.take_mention(message) {
            return;
        }
        let mut place = Place::new(message.chat.to_string());
        if let Some(topic) = message.topic {
            place = place.thread(topic.to_string());
        }
        if message.text.trim().is_empty() && bundle.files.is_empty() && bundle.forwarded.is_empty()
        {
            return;
        }
        let id = message.id;
        if let Err(refusal) = self.accept(bundle, &place).await {
            self.transport.notice(&place, id, &refusal).await;
        }
    }

    /// Whether a message is for the bot; takes the mention off its text.
    fn take_mention(&self, message: &mut Message) -> bool {
        let replies = message.reply.as_ref().is_some_and(|reply| reply.by == self.me.id);
        let first = message.text.split_whitespace().next().unwrap_or_default().to_lowercase();
        if let Some((_, bot)) = first.strip_prefix('/').and_then(|name| name.split_once('@'))
            && format!("@{bot}") != self.me.mention
        {
            return false;
        }
        let at = message.text.to_lowercase().find(&self.me.mention);
        let mentioned = at.filter(|_| self.me.mention.len() > 1);
        if let Some(at) = mentioned
            && !first.starts_with('/')
            && message.text.is_char_boundary(at)
            && message.text.get(at..at + self.me.mention.len()).is_some()
        {
            message.text.replace_range(at..at + self.me.mention.len(), "");
            message.text = message.text.trim().to_owned();
        }
        message.private
            || self.config.trigger == Trigger::All
            || replies
            || mentioned.is_some()
            || first.starts_with('/')
    }

    /// Runs a command or passes a prompt on. `Err` is shown to the person.
    async fn accept(&self, bundle: Bundle, place: &Place) -> Result<(), String> {
        let Bundle { message, forwarded, files } = bundle;
        if let Some((command, rest)) = commands::read(&message.text) {
            return self.command(command, rest, &message, place).await;
        }
        let session = message.reply.as_ref().filter(|reply| self.is_session(reply, place));
        let mut target = match session {
            Some(reply) => self.continued(reply, &message.text, place).await?,
            None => self.fresh(&message, place).await?,
        };
        for attachment in files {
            self.attach(&attachment, &mut target).await?;
        }
        for text in forwarded.iter().filter(|text| !text.trim().is_empty()) {
            target.text.push_str("\n\nForwarded message:\n");
            target.text.push_str(text);
        }
        if target.text.trim().is_empty() {
            return Err("the message is empty".to_owned());
        }
        let mut incoming = Incoming::new(place.clone(), message.id.to_string(), target.text);
        incoming = incoming.by(message.user.name);
        if let Some(reply) = &message.reply {
            incoming = incoming.replying_to_text(reply.id.to_string(), &reply.text);
        } else if let Some(footer) = target.footer {
            incoming = incoming.replying_to_text(message.id.to_string(), footer);
        }
        incoming.context = target.context;
        match self.bridge.receive(incoming) {
            // The bridge shows why it refuses a message.
            Ok(_) | Err(ReceiveError::Duplicate(_)) => Ok(()),
            Err(error) => {
                tracing::info!(%error, "a message was not accepted");
                Ok(())
            }
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
        let message = MessageId::from(reply.id.to_string()).at(&place.chat);
        let known = self.bridge.job_of(&message).is_some();
        let context = match (known, Context::find(&reply.text)) {
            (true, _) => self.bridge.context_of(&message),
            (false, Some(context)) => Some(self.context(&context, None, place).await?),
            (false, None) => None,
        };
        Ok(Destination { text: text.to_owned(), context, footer: None })
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
                return Ok(Destination { text: read.text, context, footer: None });
            }
            if let Some(footer) = chosen.footer {
                let context = match Context::find(&footer) {
                    Some(context) => Some(self.context(&context, None, place).await?),
                    None => None,
                };
                return Ok(Destination { text: read.text, context, footer: Some(footer) });
            }
        } else if self.config.mode == Mode::Chat {
            self.new_conversation(place, message.id);
        }
        let project = read.project.or_else(|| bound.map(|project| project.name.clone()));
        let own = project.as_deref().and_then(|name| self.projects.get(name));
        let engine = read.engine.or(chosen.engine).or_else(|| own?.engine.clone());
        let context = if let Some(project) = project {
            let mut context = Context::new(project);
            context.branch = read.branch;
            self.context(&context, engine.as_deref(), place).await?
        } else {
            let settings = self.settings(None, engine.as_deref(), place);
            RunContext::new(settings.cwd(&self.directory))
        };
        let text = match engine {
            Some(engine) => format!("/{engine} {}", read.text),
            None => read.text,
        };
        Ok(Destination { text, context: Some(context), footer: None })
    }

    /// With this message, or behind it, the place begins a conversation.
    pub(crate) fn new_conversation(&self, place: &Place, message: i64) {
        self.bridge.forget(place);
        self.store.change(|stored| {
            let state = stored.places.entry(place_key(place)).or_default();
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

/// Where a message goes.
pub(crate) struct Destination {
    pub(crate) text: String,
    pub(crate) context: Option<RunContext>,
    /// The last lines of an earlier message of its conversation.
    footer: Option<String>,
}

impl Bundle {
    fn new(mut message: Message) -> Self {
        let files = message.file.take().into_iter().collect();
        Self { message, forwarded: Vec::new(), files }
    }

    /// Whether a message was forwarded right behind this one. A command stands alone.
    fn takes(&self, next: &Message) -> bool {
        let first = &self.message;
        next.forwarded
            && next.user.id == first.user.id
            && (next.chat, next.topic) == (first.chat, first.topic)
            && commands::read(&first.text).is_none()
    }

    fn add(&mut self, message: Message) {
        self.forwarded.push(message.text);
        self.files.extend(message.file);
    }
}

/// Calls a method until it succeeds or the service refuses it.
async fn retried(api: &Api, method: &str, params: &Value) -> Result<Value, BotError> {
    let mut pause = FIRST_PAUSE;
    for _ in 0..8 {
        match api.call(method, params).await {
            Ok(result) => return Ok(result),
            Err(error) if matches!(error.code(), Some(401 | 404)) => {
                return Err(BotError::Unauthorized);
            }
            Err(error) if error.code().is_some_and(|code| code < 500 && code != 429) => {
                return Err(error.into());
            }
            Err(error) => {
                tracing::warn!(%error, "retrying");
                tokio::time::sleep(error.retry_after().unwrap_or(pause)).await;
                pause = (pause * 2).min(LONGEST_PAUSE);
            }
        }
    }
    Ok(api.call(method, params).await?)
}

/// The directory that files of a place are fetched from.
pub(crate) fn root<'a>(context: Option<&'a RunContext>, otherwise: &'a Path) -> &'a Path {
    context.and_then(|context| context.settings.cwd.as_deref()).unwrap_or(otherwise)
}
