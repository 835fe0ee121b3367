//! What `chat` and `serve` have in common: the engines of a bridge, and how it behaves.

use std::sync::Arc;
use std::time::Duration;

use takopi_bridge::{Continuity, FinalBy, Pace, Router, Settings};
use takopi_core::approvals::accept_all;
use takopi_core::process::raise_descriptor_limit;

use crate::approve;
use crate::args::{Approve, RunOptions};
use crate::engines::Choice;
use crate::exit::Usage;
use crate::run::exec_cannot_ask;

/// How often time alone counts as news.
const REFRESH: Duration = Duration::from_secs(1);

/// The engine that was chosen, and the demo, which needs nothing, for `/demo`.
pub(crate) fn router(options: &RunOptions, keep_warm: Duration) -> anyhow::Result<Router> {
    if let Some(directory) = options.cd.as_ref().filter(|directory| !directory.is_dir()) {
        let what = format!("the directory {} does not exist", directory.display());
        return Err(Usage::new(what).into());
    }
    if let Err(error) = raise_descriptor_limit() {
        tracing::debug!(%error, "cannot raise the limit on open files");
    }
    let chosen = Choice::of(options)?;
    if options.approve.is_some_and(|approve| !chosen.allows(approve)) {
        return Err(exec_cannot_ask().into());
    }
    let router = Router::new(chosen.runner(keep_warm));
    if matches!(chosen, Choice::Demo { .. }) {
        return Ok(router);
    }
    Ok(router.with(Choice::Demo { pace: Duration::ZERO }.runner(keep_warm)))
}

/// A place is a conversation, its messages are kept current so often, and its runs are as the
/// options ask; `otherwise` is who answers approvals if they do not say.
pub(crate) fn settings(options: RunOptions, otherwise: Approve, interval: Duration) -> Settings {
    let is_default = options.approve.is_none();
    let approve = options.approve.unwrap_or(otherwise);
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
