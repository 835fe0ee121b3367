//! What `chat` and `serve` share: the engines and the settings of their bridge.

use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use takopi_bridge::{Continuity, FinalBy, Pace, Router, Settings};
use takopi_core::approvals::{ChannelHandler, accept_all};
use takopi_core::locks::{LockError, SessionGuard};
use takopi_core::model::ResumeToken;
use takopi_core::process::raise_descriptor_limit;
use takopi_core::runner::ResumeCodec;
use takopi_core::{ApprovalHandler, EngineId, EventStream, RunRequest, RunSettings, Runner};

use crate::approve;
use crate::args::{Approve, RunOptions};
use crate::engines::{self, Chosen};
use crate::exit::Usage;

/// How often a message is updated when only time has passed.
const REFRESH: Duration = Duration::from_secs(1);

/// The chosen engine, and all others for messages that name them, as `/demo` does. One that is not
/// installed is missed only by such a message.
pub(crate) fn router(options: &RunOptions, keep_warm: Duration) -> anyhow::Result<Router> {
    let chosen = Chosen::beside_others(options)?;
    let runner = chosen.runner(keep_warm)?;
    if let Some(missing) = options.settings().missing_path() {
        return Err(Usage::new(missing).into());
    }
    if let Err(error) = raise_descriptor_limit() {
        tracing::debug!(%error, "cannot raise the limit on open files");
    }
    let with_settings = |entry, runner| -> Arc<dyn Runner> {
        Arc::new(WithSettings { runner, settings: options.settings_of(entry) })
    };
    let mut router = Router::new(with_settings(chosen.entry, runner));
    for entry in chosen.others() {
        let runner = engines::other_runner(entry, options, keep_warm)?;
        router = router.with(with_settings(entry, runner));
    }
    Ok(router)
}

/// A runner whose requests have the settings of its engine: a bridge does not know them.
pub(crate) struct WithSettings {
    pub(crate) runner: Arc<dyn Runner>,
    pub(crate) settings: RunSettings,
}

impl Runner for WithSettings {
    fn engine(&self) -> EngineId {
        self.runner.engine()
    }

    fn run(&self, request: RunRequest) -> EventStream {
        let mut settings = request.settings.clone();
        settings.fill_from(&self.settings);
        self.runner.run(request.settings(settings))
    }

    fn resume_codec(&self) -> ResumeCodec {
        self.runner.resume_codec()
    }

    fn hold<'a>(
        &'a self,
        session: &'a ResumeToken,
    ) -> BoxFuture<'a, Result<Option<SessionGuard>, LockError>> {
        self.runner.hold(session)
    }

    fn shutdown(&self) -> BoxFuture<'_, ()> {
        self.runner.shutdown()
    }
}

/// The settings of the bridge: each place is a conversation, messages are updated at this interval;
/// `default` decides approval requests if the options do not.
pub(crate) fn settings(options: &RunOptions, default: Approve, interval: Duration) -> Settings {
    approval_settings(options, default)
        .continuity(Continuity::Place)
        .final_by(FinalBy::Edit)
        .pace(Pace::default().interval(interval).refresh(REFRESH))
}

/// Settings with nothing set but how approval requests are decided.
pub(crate) fn approval_settings(options: &RunOptions, default: Approve) -> Settings {
    let is_default = options.approve.is_none();
    let approve = options.approve.unwrap_or(default);
    Settings::default().approvals(move |people| approvals(approve, is_default, people))
}

/// What decides approval requests in this way; `people` are asked in the conversation.
pub(crate) fn approvals(
    approve: Approve,
    is_default: bool,
    people: ChannelHandler,
) -> Arc<dyn ApprovalHandler> {
    match approve {
        Approve::Ask => Arc::new(people),
        Approve::Deny => approve::denial(is_default),
        Approve::Accept => Arc::new(accept_all()),
    }
}
