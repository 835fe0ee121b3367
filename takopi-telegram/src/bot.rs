//! The bot: it polls for updates and handles them, those of a chat one after another.
//!
//! Promises:
//! - an update is handled once: its number is stored when its job was accepted. One that was not stored when the
//!   process died is delivered again by the service;
//! - a chat whose message takes long to prepare (a voice note, a large file, a new worktree) or that the bot may
//!   not write to yet delays no other chat;
//! - a stop ends in bounded time, though the service hangs;
//! - nothing but a refused token ends the loop: everything else is retried, with pauses.
//!
//! Who is answered: `access`; what a message means: `prompt`, `commands` and `attach`.

use std::panic::AssertUnwindSafe;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt as _;
use serde_json::{Value, json};
use takopi_bridge::present::{Chat, Limit};
use takopi_bridge::{Bridge, Continuity, Pace, Place, Router, Settings, WhileBusy};
use takopi_core::EngineId;
use takopi_projects::{Names, Projects};
use thiserror::Error;
use tokio::sync::Semaphore;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::api::{Api, ApiError, FIRST_PAUSE, LONGEST_PAUSE, retried};
use crate::commands;
use crate::config::{Config, Mode};
use crate::gather::Gathering;
use crate::lanes::Lanes;
use crate::prompt::Bundle;
use crate::rate::{Limits, Rate};
use crate::state::Store;
use crate::transport::{LIMIT, Telegram};
use crate::update::{self, Message, Press, Update};
use crate::window::Window;

/// How often the calls are tried that nothing can begin without.
const ATTEMPTS: usize = 9;
/// How many messages of a chat can wait. Further ones are refused.
const MESSAGES: usize = 100;
/// How many messages can be kept here. With more the service delivers nothing before some were handled.
const KEPT: usize = 300;
/// How many notices can wait for a chat. Further ones are dropped: the chat is flooded already.
const NOTICES: usize = 16;
/// How often the service is asked while messages are being prepared.
const PAUSE: Duration = Duration::from_millis(500);
/// How many presses are handled at once. Further ones are dropped: nobody presses that fast.
const PRESSES: usize = 64;
/// How long a stop takes at most. Service managers kill what takes longer than 90 seconds.
const STOP: Duration = Duration::from_mins(1);
/// How often a message is edited at most.
const INTERVAL: Duration = Duration::from_secs(2);

/// Why a bot cannot go on.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum BotError {
    /// The service refuses the token.
    #[error("Telegram refuses the token; get the current one from @BotFather")]
    Unauthorized,
    /// A call failed that nothing can begin without.
    #[error("cannot start: {0}")]
    Api(ApiError),
    /// Nobody would be answered.
    #[error(
        "nobody is allowed to use the bot; set `allowed_users`, or run `takopi telegram setup`"
    )]
    NobodyAllowed,
    /// A project has the name of a command or an engine.
    #[error("project `{0}` has the name of an engine or a command; give it another name")]
    Shadowed(String),
}

impl From<ApiError> for BotError {
    fn from(error: ApiError) -> Self {
        // A token with a wrong id is 404, one with a wrong secret 401.
        if matches!(error.code(), Some(401 | 404)) { Self::Unauthorized } else { Self::Api(error) }
    }
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
    /// How long a stop waits until everything that ran is shown as cancelled. What is not shown by then is closed by the
    /// next start.
    pub stop_within: Duration,
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
            stop_within: STOP,
        }
    }
}

/// A running bot.
#[derive(Debug)]
pub struct Bot {
    pub(crate) api: Api,
    pub(crate) config: Config,
    pub(crate) projects: Projects,
    pub(crate) names: Names,
    pub(crate) transport: Arc<Telegram>,
    pub(crate) bridge: Bridge<Arc<Telegram>>,
    pub(crate) store: Arc<Store>,
    pub(crate) engines: Vec<EngineId>,
    pub(crate) resume: Router,
    pub(crate) me: Me,
    pub(crate) directory: PathBuf,
    stop_within: Duration,
    presses: Arc<Semaphore>,
    updates: Window,
    messages: Lanes,
    notices: Lanes,
}

/// The account of the bot.
#[derive(Debug)]
pub(crate) struct Me {
    pub(crate) id: i64,
    /// With `@`, in lower case.
    pub(crate) mention: String,
}

impl Bot {
    /// Connects to the service, registers the commands, and closes the messages of runs that a crash cut
    /// short.
    pub async fn start(parts: Parts) -> Result<Arc<Self>, BotError> {
        let Parts {
            api,
            config,
            projects,
            router,
            settings,
            store,
            limits,
            directory,
            pace,
            stop_within,
        } = parts;
        if config.allowed_users.is_empty() {
            return Err(BotError::NobodyAllowed);
        }
        let engines: Vec<EngineId> = router.runners().map(|runner| runner.engine()).collect();
        let names = engines.iter().map(EngineId::as_str);
        let names = Names::new(names, &projects, commands::names());
        if let Some(name) = names.shadowed() {
            return Err(BotError::Shadowed(name.to_owned()));
        }
        let (nothing, commands) = (json!({}), json!({ "commands": commands::menu() }));
        let me = retried(ATTEMPTS, || api.call("getMe", &nothing)).await?;
        retried(ATTEMPTS, || api.call("deleteWebhook", &nothing)).await?;
        retried(ATTEMPTS, || api.call("setMyCommands", &commands)).await?;
        let me = Me {
            id: me["id"].as_i64().unwrap_or_default(),
            mention: format!("@{}", me["username"].as_str().unwrap_or_default()).to_lowercase(),
        };
        let names = names.bot(&me.mention);
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
        let updates = store.read(|stored| Window::new(stored.offset, stored.handled.clone()));
        let resume = router.clone();
        let bridge = Bridge::new(transport.clone(), router, settings);
        Ok(Arc::new(Self {
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
            stop_within,
            presses: Arc::new(Semaphore::new(PRESSES)),
            updates,
            messages: Lanes::new(MESSAGES),
            notices: Lanes::new(NOTICES),
        }))
    }

    /// Handles updates until `stop` fires, then cancels what runs and waits until that is shown, for as long as
    /// [`Parts::stop_within`] says.
    pub async fn run(self: &Arc<Self>, stop: &CancellationToken) -> Result<(), BotError> {
        let ended = tokio::select! {
            biased;
            () = stop.cancelled() => Ok(()),
            error = self.poll() => Err(error),
        };
        // What is not accepted yet is delivered again to the next process.
        self.messages.close();
        self.bridge.shutdown_within(self.stop_within).await;
        self.notices.close();
        ended
    }

    /// Handles updates for ever; returns only when the token is refused.
    async fn poll(self: &Arc<Self>) -> BotError {
        let mut gathering = Gathering::new(self.config.forward_window);
        // The service has forgotten these.
        for (number, update) in self.store.read(|stored| stored.kept.clone()) {
            self.handle(number, &update, &mut gathering);
        }
        let mut pause = FIRST_PAUSE;
        loop {
            let asked = Instant::now();
            let failed = match self.next_updates(gathering.next().is_none()).await {
                Ok(updates) => {
                    pause = FIRST_PAUSE;
                    for update in &updates {
                        if let Some(number) = update::number(update)
                            && self.updates.begin(number, update)
                        {
                            self.handle(number, update, &mut gathering);
                        }
                    }
                    None
                }
                Err(error) if matches!(error.code(), Some(401 | 404)) => return error.into(),
                Err(error) => {
                    if error.code() == Some(409) {
                        tracing::warn!(
                            "another program polls with the same token; stop one of them"
                        );
                    } else {
                        tracing::warn!(%error, "cannot get updates");
                    }
                    let wait = error.retry_after().unwrap_or(pause);
                    pause = (pause * 2).min(LONGEST_PAUSE);
                    Some(wait)
                }
            };
            for (numbers, bundle) in gathering.ready(asked) {
                self.handle_message(&numbers, bundle);
            }
            match (failed, gathering.next()) {
                (Some(wait), _) => tokio::time::sleep(wait).await,
                (None, Some(window)) => tokio::time::sleep_until(window).await,
                (None, None) => {
                    self.settle().await;
                    self.keep();
                }
            }
        }
    }

    /// Waits a moment for what is being handled. While it is, the service delivers it again at once.
    async fn settle(&self) {
        let idle = async {
            while !self.updates.is_idle() {
                self.updates.finished().await;
            }
        };
        let _ = tokio::time::timeout(PAUSE, idle).await;
    }

    /// The next updates, and again those that are being handled: the offset confirms nothing that is not finished.
    async fn next_updates(&self, wait: bool) -> Result<Vec<Value>, ApiError> {
        let offset = self.updates.offset();
        let wait = wait && self.updates.is_idle();
        let updates = self.api.updates(offset, wait).await?;
        if let Some(first) = updates.iter().filter_map(update::number).min()
            && first < offset
        {
            tracing::info!(first, offset, "the service numbers the updates anew");
            self.updates.renumber(first);
        }
        Ok(updates)
    }

    /// Handles an update; a message waits for what is forwarded behind it.
    fn handle(self: &Arc<Self>, number: i64, update: &Value, gathering: &mut Gathering) {
        match update::read(update) {
            Update::Message(message) => gathering.add(number, *message),
            Update::Press(press) => {
                self.handle_press(press);
                self.finish(&[number]);
            }
            Update::Other => self.finish(&[number]),
        }
    }

    /// Stores what is being handled if it would keep the service from delivering anything else.
    fn keep(&self) {
        if !self.updates.is_crowded() {
            return;
        }
        self.store.change(|stored| {
            if stored.kept.len() > KEPT {
                tracing::warn!("too many messages are being prepared");
                return;
            }
            stored.kept.extend(self.updates.take());
            stored.offset = self.updates.offset();
            stored.handled = self.updates.handled();
        });
    }

    /// Handles a message behind those of its chat.
    fn handle_message(self: &Arc<Self>, numbers: &[i64], bundle: Bundle) {
        let (bot, chat, of_it) = (self.clone(), bundle.chat(), numbers.to_owned());
        let message = bundle.message().clone();
        let has_room = self.messages.add(chat, async move {
            // One that cannot be handled must not be delivered for ever.
            let handling = AssertUnwindSafe(bot.message(bundle)).catch_unwind();
            let handled = handling.await.unwrap_or_else(|_| {
                tracing::error!(chat, "handling a message panicked");
                true
            });
            if handled {
                bot.finish(&of_it);
            }
        });
        if !has_room {
            tracing::warn!(chat, "too many messages wait in a chat");
            if self.is_allowed(&message.user, &message.origin) {
                let refusal = "too many messages wait in this chat; write this one again later";
                self.notice(&message.origin.place(), &message, refusal.to_owned());
            }
            self.finish(numbers);
        }
    }

    /// Updates were handled.
    fn finish(&self, numbers: &[i64]) {
        // Both in one step: of two that finish at once, the later offset is stored last. It may be lower than the
        // stored one, if the service numbers anew.
        self.store.change(|stored| {
            for number in numbers {
                self.updates.finish(*number);
                stored.kept.remove(number);
            }
            stored.offset = self.updates.offset();
            stored.handled = self.updates.handled();
        });
    }

    /// Sends a notice of the bot itself behind those of its chat, in the background.
    pub(crate) fn notice(&self, place: &Place, message: &Message, text: String) {
        let (transport, place, id) = (self.transport.clone(), place.clone(), message.id);
        let chat = message.origin.chat;
        let sending = async move { transport.notice(&place, id, &text).await };
        if !self.notices.add(chat, sending) {
            tracing::warn!(chat, "too many notices wait for a chat");
        }
    }

    /// Handles a press in the background: it may have to wait for its message to be known.
    fn handle_press(self: &Arc<Self>, press: Press) {
        let Ok(permit) = self.presses.clone().try_acquire_owned() else {
            tracing::warn!(user = press.user.id, "too many presses at once");
            return;
        };
        let bot = self.clone();
        tokio::spawn(async move {
            bot.press(&press).await;
            drop(permit);
        });
    }
}
