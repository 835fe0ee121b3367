//! What `chat` and `serve` share: the engines and the settings of their bridge.

use std::sync::Arc;
use std::time::Duration;

use takopi_bridge::{Continuity, FinalBy, Pace, Router, Settings};
use takopi_core::approvals::accept_all;
use takopi_core::catalog::EngineSetup;
use takopi_core::demo::DEMO;
use takopi_core::process::raise_descriptor_limit;

use crate::approve;
use crate::args::{Approve, RunOptions};
use crate::engines::{self, Chosen};
use crate::exit::Usage;

/// How often a message is updated when only time has passed.
const REFRESH: Duration = Duration::from_secs(1);

/// The chosen engine, and the demo engine for `/demo`, which needs nothing.
pub(crate) fn router(options: &RunOptions, keep_warm: Duration) -> anyhow::Result<Router> {
    let chosen = Chosen::of(options)?;
    let runner = chosen.runner(keep_warm)?;
    if let Some(missing) = options.settings().missing_path() {
        return Err(Usage::new(missing).into());
    }
    if let Err(error) = raise_descriptor_limit() {
        tracing::debug!(%error, "cannot raise the limit on open files");
    }
    let router = Router::new(runner);
    let demo = engines::find(DEMO.as_str())?;
    if chosen.entry.id() == demo.id() {
        return Ok(router);
    }
    Ok(router.with(demo.runner(&EngineSetup::new())?))
}

/// The settings of the bridge: each place is a conversation, messages are updated at this interval, runs
/// use the options; `default` decides approval requests if the options do not.
pub(crate) fn settings(options: RunOptions, default: Approve, interval: Duration) -> Settings {
    let is_default = options.approve.is_none();
    let approve = options.approve.unwrap_or(default);
    Settings::default()
        .continuity(Continuity::Place)
        .final_by(FinalBy::Edit)
        .pace(Pace::default().interval(interval).refresh(REFRESH))
        .requests(move |_, request| request.settings(options.settings()))
        .approvals(move |people| match approve {
            Approve::Ask => Arc::new(people),
            Approve::Deny => approve::denial(is_default),
            Approve::Accept => Arc::new(accept_all()),
        })
}
